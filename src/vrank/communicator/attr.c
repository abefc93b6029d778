/*
 * Attributes of communicators, and what MPI itself has under its own keys.
 */
#include "vrank/mpi/comm.h"

#include <limits.h>

/* ---- keys --------------------------------------------------------------- */

int MPI_Comm_create_keyval(MPI_Comm_copy_attr_function *copy,
                           MPI_Comm_delete_attr_function *delete, int *keyval,
                           void *extra)
{
    struct keyval key = {.refs = 1, .class = KEY_COMM, .extra = extra};
    key.copy.comm = copy;
    key.delete.comm = delete;
    return keyval_create(mpi_enter("MPI_Comm_create_keyval"), &key, keyval);
}

int MPI_Keyval_create(MPI_Copy_function *copy, MPI_Delete_function *delete,
                      int *keyval, void *extra)
{
    return MPI_Comm_create_keyval(copy, delete, keyval, extra);
}

int MPI_Comm_free_keyval(int *keyval)
{
    return keyval_free(mpi_enter("MPI_Comm_free_keyval"), KEY_COMM, keyval);
}

int MPI_Keyval_free(int *keyval)
{
    return MPI_Comm_free_keyval(keyval);
}

/* ---- attributes --------------------------------------------------------- */

/* The values of MPI's own keys, each a pointer to an int. */
static const int *own_value(int key)
{
    static const int tag_ub = INT_MAX, host = MPI_PROC_NULL,
                     io = MPI_ANY_SOURCE, one = 1, zero = 0,
                     last_code = MPI_ERR_LASTCODE;
    switch (key) {
    case MPI_TAG_UB:
        return &tag_ub;
    case MPI_HOST:
        return &host;
    case MPI_IO:
        return &io;
    case MPI_WTIME_IS_GLOBAL:
        return vrank_processes() == 1 ? &one : &zero;
    case MPI_LASTUSEDCODE:
        return &last_code;
    case MPI_APPNUM:
        return &zero;
    default:
        return NULL;
    }
}

int MPI_Comm_get_attr(MPI_Comm handle, int keyval, void *value, int *flag)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_get_attr");
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);
    if (!comm) {
        return mpi_fail(mpi, NULL, MPI_ERR_COMM, NULL);
    }
    const int *own =
        keyval == MPI_UNIVERSE_SIZE ? &mpi->world->size : own_value(keyval);
    int at = attribute_at(&comm->attributes, keyval);
    if (own) {
        *(const int **)value = own;
    } else if (at >= 0) {
        *(void **)value = comm->attributes.items[at].value;
    } else if (!keyval_find(mpi, KEY_COMM, keyval)) {
        return mpi_fail(mpi, comm, MPI_ERR_KEYVAL, NULL);
    }
    *flag = own || at >= 0;
    return MPI_SUCCESS;
}

int MPI_Comm_set_attr(MPI_Comm handle, int keyval, void *value)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_set_attr");
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);
    if (!comm) {
        return mpi_fail(mpi, NULL, MPI_ERR_COMM, NULL);
    }
    int code =
        attribute_set(mpi, KEY_COMM, handle, &comm->attributes, keyval, value);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, comm, code, NULL);
}

int MPI_Comm_delete_attr(MPI_Comm handle, int keyval)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_delete_attr");
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);
    if (!comm) {
        return mpi_fail(mpi, NULL, MPI_ERR_COMM, NULL);
    }
    int at = attribute_at(&comm->attributes, keyval);
    int code =
        at < 0 ? MPI_ERR_KEYVAL
               : attribute_delete(mpi, KEY_COMM, handle, &comm->attributes, at);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, comm, code, NULL);
}

int MPI_Attr_get(MPI_Comm comm, int keyval, void *value, int *flag)
{
    return MPI_Comm_get_attr(comm, keyval, value, flag);
}

int MPI_Attr_put(MPI_Comm comm, int keyval, void *value)
{
    return MPI_Comm_set_attr(comm, keyval, value);
}

int MPI_Attr_delete(MPI_Comm comm, int keyval)
{
    return MPI_Comm_delete_attr(comm, keyval);
}

/* ---- functions that are there from the beginning ------------------------ */

int MPI_COMM_DUP_FN(MPI_Comm comm, int keyval, void *extra, void *in, void *out,
                    int *flag)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

int MPI_COMM_NULL_COPY_FN(MPI_Comm comm, int keyval, void *extra, void *in,
                          void *out, int *flag)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    (void)in;
    (void)out;
    *flag = 0;
    return MPI_SUCCESS;
}

int MPI_COMM_NULL_DELETE_FN(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    return MPI_SUCCESS;
}
