/*
 * Fortran entries of the preload. Open MPI's Fortran bindings call PMPI_*, so
 * its programs never come by the C entries; MPICH's call MPI_*, and only where
 * they were called from must be noted. Names as gfortran makes them.
 */
#include "rules.h"

#include <mpi.h>

#include <stddef.h>

#if defined(OPEN_MPI)

#define EXPORT __attribute__((visibility("default")))

/* The address that stands for MPI_IN_PLACE in Fortran; absent in programs
 * without Fortran. */
extern int mpi_fortran_in_place_ __attribute__((weak));

static void *buffer_of(void *buffer)
{
    return &mpi_fortran_in_place_ && buffer == (void *)&mpi_fortran_in_place_
               ? MPI_IN_PLACE
               : buffer;
}

EXPORT void mpi_barrier_(MPI_Fint *comm, MPI_Fint *err);
EXPORT void mpi_bcast_(void *buffer, MPI_Fint *count, MPI_Fint *type,
                       MPI_Fint *root, MPI_Fint *comm, MPI_Fint *err);
EXPORT void mpi_allreduce_(void *in, void *out, MPI_Fint *count, MPI_Fint *type,
                           MPI_Fint *op, MPI_Fint *comm, MPI_Fint *err);
EXPORT void mpi_reduce_(void *in, void *out, MPI_Fint *count, MPI_Fint *type,
                        MPI_Fint *op, MPI_Fint *root, MPI_Fint *comm,
                        MPI_Fint *err);
EXPORT void mpi_gather_(void *in, MPI_Fint *in_count, MPI_Fint *in_type,
                        void *out, MPI_Fint *out_count, MPI_Fint *out_type,
                        MPI_Fint *root, MPI_Fint *comm, MPI_Fint *err);
EXPORT void mpi_scatter_(void *in, MPI_Fint *in_count, MPI_Fint *in_type,
                         void *out, MPI_Fint *out_count, MPI_Fint *out_type,
                         MPI_Fint *root, MPI_Fint *comm, MPI_Fint *err);
EXPORT void mpi_allgather_(void *in, MPI_Fint *in_count, MPI_Fint *in_type,
                           void *out, MPI_Fint *out_count, MPI_Fint *out_type,
                           MPI_Fint *comm, MPI_Fint *err);
EXPORT void mpi_alltoall_(void *in, MPI_Fint *in_count, MPI_Fint *in_type,
                          void *out, MPI_Fint *out_count, MPI_Fint *out_type,
                          MPI_Fint *comm, MPI_Fint *err);
EXPORT void mpi_alltoallv_(void *in, MPI_Fint *in_counts, MPI_Fint *in_places,
                           MPI_Fint *in_type, void *out, MPI_Fint *out_counts,
                           MPI_Fint *out_places, MPI_Fint *out_type,
                           MPI_Fint *comm, MPI_Fint *err);
EXPORT void mpi_init_(MPI_Fint *err);
EXPORT void mpi_init_thread_(MPI_Fint *required, MPI_Fint *provided,
                             MPI_Fint *err);
EXPORT void mpi_comm_free_(MPI_Fint *comm, MPI_Fint *err);
EXPORT void mpi_finalize_(MPI_Fint *err);

void mpi_barrier_(MPI_Fint *comm, MPI_Fint *err)
{
    *err = MPI_Barrier(MPI_Comm_f2c(*comm));
}

void mpi_bcast_(void *buffer, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root,
                MPI_Fint *comm, MPI_Fint *err)
{
    *err = MPI_Bcast(buffer, *count, MPI_Type_f2c(*type), *root,
                     MPI_Comm_f2c(*comm));
}

void mpi_allreduce_(void *in, void *out, MPI_Fint *count, MPI_Fint *type,
                    MPI_Fint *op, MPI_Fint *comm, MPI_Fint *err)
{
    preload_site = __builtin_return_address(0);
    *err = MPI_Allreduce(buffer_of(in), out, *count, MPI_Type_f2c(*type),
                         MPI_Op_f2c(*op), MPI_Comm_f2c(*comm));
}

void mpi_reduce_(void *in, void *out, MPI_Fint *count, MPI_Fint *type,
                 MPI_Fint *op, MPI_Fint *root, MPI_Fint *comm, MPI_Fint *err)
{
    *err = MPI_Reduce(buffer_of(in), out, *count, MPI_Type_f2c(*type),
                      MPI_Op_f2c(*op), *root, MPI_Comm_f2c(*comm));
}

void mpi_gather_(void *in, MPI_Fint *in_count, MPI_Fint *in_type, void *out,
                 MPI_Fint *out_count, MPI_Fint *out_type, MPI_Fint *root,
                 MPI_Fint *comm, MPI_Fint *err)
{
    *err = MPI_Gather(buffer_of(in), *in_count, MPI_Type_f2c(*in_type), out,
                      *out_count, MPI_Type_f2c(*out_type), *root,
                      MPI_Comm_f2c(*comm));
}

void mpi_scatter_(void *in, MPI_Fint *in_count, MPI_Fint *in_type, void *out,
                  MPI_Fint *out_count, MPI_Fint *out_type, MPI_Fint *root,
                  MPI_Fint *comm, MPI_Fint *err)
{
    *err = MPI_Scatter(in, *in_count, MPI_Type_f2c(*in_type), buffer_of(out),
                       *out_count, MPI_Type_f2c(*out_type), *root,
                       MPI_Comm_f2c(*comm));
}

void mpi_allgather_(void *in, MPI_Fint *in_count, MPI_Fint *in_type, void *out,
                    MPI_Fint *out_count, MPI_Fint *out_type, MPI_Fint *comm,
                    MPI_Fint *err)
{
    *err =
        MPI_Allgather(buffer_of(in), *in_count, MPI_Type_f2c(*in_type), out,
                      *out_count, MPI_Type_f2c(*out_type), MPI_Comm_f2c(*comm));
}

void mpi_alltoall_(void *in, MPI_Fint *in_count, MPI_Fint *in_type, void *out,
                   MPI_Fint *out_count, MPI_Fint *out_type, MPI_Fint *comm,
                   MPI_Fint *err)
{
    *err =
        MPI_Alltoall(buffer_of(in), *in_count, MPI_Type_f2c(*in_type), out,
                     *out_count, MPI_Type_f2c(*out_type), MPI_Comm_f2c(*comm));
}

void mpi_alltoallv_(void *in, MPI_Fint *in_counts, MPI_Fint *in_places,
                    MPI_Fint *in_type, void *out, MPI_Fint *out_counts,
                    MPI_Fint *out_places, MPI_Fint *out_type, MPI_Fint *comm,
                    MPI_Fint *err)
{
    *err = MPI_Alltoallv(buffer_of(in), in_counts, in_places,
                         MPI_Type_f2c(*in_type), out, out_counts, out_places,
                         MPI_Type_f2c(*out_type), MPI_Comm_f2c(*comm));
}

void mpi_init_(MPI_Fint *err)
{
    *err = MPI_Init(NULL, NULL);
}

void mpi_init_thread_(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *err)
{
    int given = 0;
    *err = MPI_Init_thread(NULL, NULL, *required, &given);
    *provided = given;
}

void mpi_comm_free_(MPI_Fint *comm, MPI_Fint *err)
{
    MPI_Comm handle = MPI_Comm_f2c(*comm);
    *err = MPI_Comm_free(&handle);
    *comm = MPI_Comm_c2f(handle);
}

void mpi_finalize_(MPI_Fint *err)
{
    *err = MPI_Finalize();
}

#else

#include <dlfcn.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void mpi_allreduce_(void *in, void *out, MPI_Fint *count, MPI_Fint *type,
                           MPI_Fint *op, MPI_Fint *comm, MPI_Fint *err);

typedef void (*allreduce_fn)(void *in, void *out, MPI_Fint *count,
                             MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
                             MPI_Fint *err);

void mpi_allreduce_(void *in, void *out, MPI_Fint *count, MPI_Fint *type,
                    MPI_Fint *op, MPI_Fint *comm, MPI_Fint *err)
{
    allreduce_fn next;
    *(void **)&next = dlsym(RTLD_NEXT, "mpi_allreduce_");
    preload_site = __builtin_return_address(0);
    next(in, out, count, type, op, comm, err);
    preload_site = NULL;
}

#endif
