/*
 * Attributes and Info for Fortran programs. An attribute's value is an integer
 * there, as wide as an address, or as any integer with the names of MPI-1; the
 * program's procedures that copy and delete it are called from functions of C
 * that find them by the key's extra state.
 */
#include "fortran.h"

/* The program's: arguments by reference, as everything. */
typedef void copy_wide(const MPI_Fint *handle, const MPI_Fint *keyval,
                       const MPI_Aint *extra, const MPI_Aint *in, MPI_Aint *out,
                       MPI_Fint *flag, MPI_Fint *ierror);
typedef void copy_narrow(const MPI_Fint *handle, const MPI_Fint *keyval,
                         const MPI_Fint *extra, const MPI_Fint *in,
                         MPI_Fint *out, MPI_Fint *flag, MPI_Fint *ierror);
typedef void delete_wide(const MPI_Fint *handle, const MPI_Fint *keyval,
                         const MPI_Aint *value, const MPI_Aint *extra,
                         MPI_Fint *ierror);
typedef void delete_narrow(const MPI_Fint *handle, const MPI_Fint *keyval,
                           const MPI_Fint *value, const MPI_Fint *extra,
                           MPI_Fint *ierror);

/* What a key was made with. This file is not notified when the last attribute
 * of a freed key is gone, so these stay as long as the program runs. */
struct kept {
    copy_wide *copy; /* these two, or those of MPI-1 */
    delete_wide *delete;
    copy_narrow *old_copy;
    delete_narrow *old_delete;
    MPI_Aint extra;
};

/* ---- the program's procedures ------------------------------------------- */

static int copy(MPI_Fint handle, int keyval, const struct kept *kept, void *in,
                void *out, int *flag)
{
    MPI_Aint from = (MPI_Aint)in, to = 0;
    MPI_Fint goes = 0, code = MPI_SUCCESS;
    if (kept->copy != NULL) {
        kept->copy(&handle, &keyval, &kept->extra, &from, &to, &goes, &code);
    } else {
        MPI_Fint extra = (MPI_Fint)kept->extra, old = (MPI_Fint)from, new = 0;
        kept->old_copy(&handle, &keyval, &extra, &old, &new, &goes, &code);
        to = new;
    }
    *flag = goes != 0;
    *(void **)out = (void *)to;
    return code;
}

static int delete (MPI_Fint handle, int keyval, void *value,
                   const struct kept *kept)
{
    MPI_Aint wide = (MPI_Aint)value;
    MPI_Fint code = MPI_SUCCESS;
    if (kept->delete != NULL) {
        kept->delete (&handle, &keyval, &wide, &kept->extra, &code);
    } else {
        MPI_Fint extra = (MPI_Fint)kept->extra, old = (MPI_Fint)wide;
        kept->old_delete(&handle, &keyval, &old, &extra, &code);
    }
    return code;
}

static int copy_of_comm(MPI_Comm comm, int keyval, void *extra, void *in,
                        void *out, int *flag)
{
    return copy(MPI_Comm_c2f(comm), keyval, extra, in, out, flag);
}

static int delete_of_comm(MPI_Comm comm, int keyval, void *value, void *extra)
{
    return delete (MPI_Comm_c2f(comm), keyval, value, extra);
}

static int copy_of_type(MPI_Datatype type, int keyval, void *extra, void *in,
                        void *out, int *flag)
{
    return copy(MPI_Type_c2f(type), keyval, extra, in, out, flag);
}

static int delete_of_type(MPI_Datatype type, int keyval, void *value,
                          void *extra)
{
    return delete (MPI_Type_c2f(type), keyval, value, extra);
}

/* ---- keys --------------------------------------------------------------- */

static struct kept *keep(const struct kept *what)
{
    struct kept *kept = malloc(sizeof *kept);
    if (kept == NULL) {
        MPI_Abort(MPI_COMM_WORLD, MPI_ERR_NO_MEM);
    }
    *kept = *what;
    return kept;
}

void mpi_comm_create_keyval_(copy_wide *copies, delete_wide *deletes,
                             MPI_Fint *keyval, const MPI_Aint *extra,
                             MPI_Fint *ierror)
{
    *ierror = MPI_Comm_create_keyval(
        copy_of_comm, delete_of_comm, keyval,
        keep(&(struct kept){copies, deletes, NULL, NULL, *extra}));
}

void mpi_keyval_create_(copy_narrow *copies, delete_narrow *deletes,
                        MPI_Fint *keyval, const MPI_Fint *extra,
                        MPI_Fint *ierror)
{
    *ierror = MPI_Comm_create_keyval(
        copy_of_comm, delete_of_comm, keyval,
        keep(&(struct kept){NULL, NULL, copies, deletes, *extra}));
}

void mpi_type_create_keyval_(copy_wide *copies, delete_wide *deletes,
                             MPI_Fint *keyval, const MPI_Aint *extra,
                             MPI_Fint *ierror)
{
    *ierror = MPI_Type_create_keyval(
        copy_of_type, delete_of_type, keyval,
        keep(&(struct kept){copies, deletes, NULL, NULL, *extra}));
}

/* Procedures of MPI's own that a program may hand over. */
static void copy_as(int goes, const MPI_Aint *in, MPI_Aint *out, MPI_Fint *flag,
                    MPI_Fint *ierror)
{
    *flag = goes;
    *out = goes ? *in : *out;
    *ierror = MPI_SUCCESS;
}

void mpi_comm_null_copy_fn_(const MPI_Fint *comm, const MPI_Fint *keyval,
                            const MPI_Aint *extra, const MPI_Aint *in,
                            MPI_Aint *out, MPI_Fint *flag, MPI_Fint *ierror)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    copy_as(0, in, out, flag, ierror);
}

void mpi_comm_dup_fn_(const MPI_Fint *comm, const MPI_Fint *keyval,
                      const MPI_Aint *extra, const MPI_Aint *in, MPI_Aint *out,
                      MPI_Fint *flag, MPI_Fint *ierror)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    copy_as(1, in, out, flag, ierror);
}

void mpi_comm_null_delete_fn_(const MPI_Fint *comm, const MPI_Fint *keyval,
                              const MPI_Aint *value, const MPI_Aint *extra,
                              MPI_Fint *ierror)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    *ierror = MPI_SUCCESS;
}

/* A type's are the same: neither looks at the handle. */
copy_wide mpi_type_null_copy_fn_
    __attribute__((alias("mpi_comm_null_copy_fn_")));
copy_wide mpi_type_dup_fn_ __attribute__((alias("mpi_comm_dup_fn_")));
delete_wide mpi_type_null_delete_fn_
    __attribute__((alias("mpi_comm_null_delete_fn_")));

void mpi_null_copy_fn_(const MPI_Fint *comm, const MPI_Fint *keyval,
                       const MPI_Fint *extra, const MPI_Fint *in, MPI_Fint *out,
                       MPI_Fint *flag, MPI_Fint *ierror)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    (void)in;
    (void)out;
    *flag = 0;
    *ierror = MPI_SUCCESS;
}

void mpi_dup_fn_(const MPI_Fint *comm, const MPI_Fint *keyval,
                 const MPI_Fint *extra, const MPI_Fint *in, MPI_Fint *out,
                 MPI_Fint *flag, MPI_Fint *ierror)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    *flag = 1;
    *out = *in;
    *ierror = MPI_SUCCESS;
}

void mpi_null_delete_fn_(const MPI_Fint *comm, const MPI_Fint *keyval,
                         const MPI_Fint *value, const MPI_Fint *extra,
                         MPI_Fint *ierror)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    *ierror = MPI_SUCCESS;
}

/* ---- values ------------------------------------------------------------- */

void mpi_comm_set_attr_(const MPI_Fint *comm, const MPI_Fint *keyval,
                        const MPI_Aint *value, MPI_Fint *ierror)
{
    *ierror = MPI_Comm_set_attr(MPI_Comm_f2c(*comm), *keyval, (void *)*value);
}

void mpi_attr_put_(const MPI_Fint *comm, const MPI_Fint *keyval,
                   const MPI_Fint *value, MPI_Fint *ierror)
{
    MPI_Aint wide = *value;
    *ierror = MPI_Comm_set_attr(MPI_Comm_f2c(*comm), *keyval, (void *)wide);
}

void mpi_type_set_attr_(const MPI_Fint *type, const MPI_Fint *keyval,
                        const MPI_Aint *value, MPI_Fint *ierror)
{
    *ierror = MPI_Type_set_attr(MPI_Type_f2c(*type), *keyval, (void *)*value);
}

/* What MPI itself hangs on a communicator is the address of an integer in C,
 * and the integer in Fortran. */
static int attribute(MPI_Fint comm, int keyval, MPI_Aint *value, MPI_Fint *flag)
{
    void *found = NULL;
    int code = MPI_Comm_get_attr(MPI_Comm_f2c(comm), keyval, &found, flag);
    if (code == MPI_SUCCESS && *flag) {
        bool of_mpi = keyval >= MPI_TAG_UB && keyval <= MPI_APPNUM;
        *value = of_mpi ? *(const int *)found : (MPI_Aint)found;
    }
    return code;
}

void mpi_comm_get_attr_(const MPI_Fint *comm, const MPI_Fint *keyval,
                        MPI_Aint *value, MPI_Fint *flag, MPI_Fint *ierror)
{
    *ierror = attribute(*comm, *keyval, value, flag);
}

void mpi_attr_get_(const MPI_Fint *comm, const MPI_Fint *keyval,
                   MPI_Fint *value, MPI_Fint *flag, MPI_Fint *ierror)
{
    MPI_Aint wide = 0;
    *ierror = attribute(*comm, *keyval, &wide, flag);
    if (*flag) {
        *value = (MPI_Fint)wide;
    }
}

/* ---- Info --------------------------------------------------------------- */

void mpi_info_get_(const MPI_Fint *info, const char *key,
                   const MPI_Fint *value_length, char *value, MPI_Fint *flag,
                   MPI_Fint *ierror, size_t key_length, size_t length)
{
    char *own = fort_key(key, key_length);
    char received[MPI_MAX_INFO_VAL + 1] = "";
    int room =
        *value_length < MPI_MAX_INFO_VAL ? *value_length : MPI_MAX_INFO_VAL;
    *ierror = MPI_Info_get(MPI_Info_f2c(*info), own, room, received, flag);
    if (*ierror == MPI_SUCCESS && *flag) {
        fort_text_back(value, length, received);
    }
    free(own);
}
