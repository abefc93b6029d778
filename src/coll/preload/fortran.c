/*
 * Fortran entries of the preload. Open MPI's Fortran bindings call PMPI_*, so
 * its programs never come by the C entries: here is each under the names that
 * compilers give it, and under the one that its mpi_f08 calls. MPICH's call
 * MPI_*, and only where they were called from must be noted; but what has no
 * buffers, its mpi_f08 takes from PMPI_*.
 */
#include "rules.h"

#include <mpi.h>

#include <dlfcn.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

#if defined(OPEN_MPI)

/* The addresses that stand for MPI_IN_PLACE and MPI_BOTTOM in Fortran; absent
 * in programs without Fortran. */
extern int mpi_fortran_in_place_ __attribute__((weak));
extern int mpi_fortran_bottom_ __attribute__((weak));

static void *buffer_of(void *buffer)
{
    if (&mpi_fortran_in_place_ && buffer == (void *)&mpi_fortran_in_place_) {
        return MPI_IN_PLACE;
    }
    return &mpi_fortran_bottom_ && buffer == (void *)&mpi_fortran_bottom_
               ? MPI_BOTTOM
               : buffer;
}

#define OTHER_NAME(name, lower, params)                                        \
    EXPORT void name params __attribute__((alias("mpi_" #lower "_")));
/* Begins the definition of an entry. */
#define ENTRY(lower, upper, params)                                            \
    EXPORT void mpi_##lower##_ params;                                         \
    OTHER_NAME(mpi_##lower, lower, params)                                     \
    OTHER_NAME(mpi_##lower##__, lower, params)                                 \
    OTHER_NAME(MPI_##upper, lower, params)                                     \
    OTHER_NAME(ompi_##lower##_f, lower, params)                                \
    void mpi_##lower##_ params

ENTRY(barrier, BARRIER, (MPI_Fint * comm, MPI_Fint *err))
{
    *err = MPI_Barrier(MPI_Comm_f2c(*comm));
}

ENTRY(bcast, BCAST,
      (void *buffer, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root,
       MPI_Fint *comm, MPI_Fint *err))
{
    *err = MPI_Bcast(buffer_of(buffer), *count, MPI_Type_f2c(*type), *root,
                     MPI_Comm_f2c(*comm));
}

ENTRY(allreduce, ALLREDUCE,
      (void *in, void *out, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
       MPI_Fint *comm, MPI_Fint *err))
{
    if (!preload_site) {
        preload_site = __builtin_return_address(0);
    }
    *err = MPI_Allreduce(buffer_of(in), buffer_of(out), *count,
                         MPI_Type_f2c(*type), MPI_Op_f2c(*op),
                         MPI_Comm_f2c(*comm));
}

ENTRY(reduce, REDUCE,
      (void *in, void *out, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
       MPI_Fint *root, MPI_Fint *comm, MPI_Fint *err))
{
    *err =
        MPI_Reduce(buffer_of(in), buffer_of(out), *count, MPI_Type_f2c(*type),
                   MPI_Op_f2c(*op), *root, MPI_Comm_f2c(*comm));
}

ENTRY(scan, SCAN,
      (void *in, void *out, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
       MPI_Fint *comm, MPI_Fint *err))
{
    *err = MPI_Scan(buffer_of(in), buffer_of(out), *count, MPI_Type_f2c(*type),
                    MPI_Op_f2c(*op), MPI_Comm_f2c(*comm));
}

ENTRY(exscan, EXSCAN,
      (void *in, void *out, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
       MPI_Fint *comm, MPI_Fint *err))
{
    *err =
        MPI_Exscan(buffer_of(in), buffer_of(out), *count, MPI_Type_f2c(*type),
                   MPI_Op_f2c(*op), MPI_Comm_f2c(*comm));
}

ENTRY(reduce_scatter, REDUCE_SCATTER,
      (void *in, void *out, MPI_Fint *counts, MPI_Fint *type, MPI_Fint *op,
       MPI_Fint *comm, MPI_Fint *err))
{
    *err = MPI_Reduce_scatter(buffer_of(in), buffer_of(out), counts,
                              MPI_Type_f2c(*type), MPI_Op_f2c(*op),
                              MPI_Comm_f2c(*comm));
}

ENTRY(reduce_scatter_block, REDUCE_SCATTER_BLOCK,
      (void *in, void *out, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
       MPI_Fint *comm, MPI_Fint *err))
{
    *err = MPI_Reduce_scatter_block(buffer_of(in), buffer_of(out), *count,
                                    MPI_Type_f2c(*type), MPI_Op_f2c(*op),
                                    MPI_Comm_f2c(*comm));
}

ENTRY(gather, GATHER,
      (void *in, MPI_Fint *in_count, MPI_Fint *in_type, void *out,
       MPI_Fint *out_count, MPI_Fint *out_type, MPI_Fint *root, MPI_Fint *comm,
       MPI_Fint *err))
{
    *err = MPI_Gather(buffer_of(in), *in_count, MPI_Type_f2c(*in_type),
                      buffer_of(out), *out_count, MPI_Type_f2c(*out_type),
                      *root, MPI_Comm_f2c(*comm));
}

ENTRY(scatter, SCATTER,
      (void *in, MPI_Fint *in_count, MPI_Fint *in_type, void *out,
       MPI_Fint *out_count, MPI_Fint *out_type, MPI_Fint *root, MPI_Fint *comm,
       MPI_Fint *err))
{
    *err = MPI_Scatter(buffer_of(in), *in_count, MPI_Type_f2c(*in_type),
                       buffer_of(out), *out_count, MPI_Type_f2c(*out_type),
                       *root, MPI_Comm_f2c(*comm));
}

ENTRY(allgather, ALLGATHER,
      (void *in, MPI_Fint *in_count, MPI_Fint *in_type, void *out,
       MPI_Fint *out_count, MPI_Fint *out_type, MPI_Fint *comm, MPI_Fint *err))
{
    *err = MPI_Allgather(buffer_of(in), *in_count, MPI_Type_f2c(*in_type),
                         buffer_of(out), *out_count, MPI_Type_f2c(*out_type),
                         MPI_Comm_f2c(*comm));
}

ENTRY(alltoall, ALLTOALL,
      (void *in, MPI_Fint *in_count, MPI_Fint *in_type, void *out,
       MPI_Fint *out_count, MPI_Fint *out_type, MPI_Fint *comm, MPI_Fint *err))
{
    *err = MPI_Alltoall(buffer_of(in), *in_count, MPI_Type_f2c(*in_type),
                        buffer_of(out), *out_count, MPI_Type_f2c(*out_type),
                        MPI_Comm_f2c(*comm));
}

ENTRY(gatherv, GATHERV,
      (void *in, MPI_Fint *in_count, MPI_Fint *in_type, void *out,
       MPI_Fint *out_counts, MPI_Fint *out_places, MPI_Fint *out_type,
       MPI_Fint *root, MPI_Fint *comm, MPI_Fint *err))
{
    *err = MPI_Gatherv(buffer_of(in), *in_count, MPI_Type_f2c(*in_type),
                       buffer_of(out), out_counts, out_places,
                       MPI_Type_f2c(*out_type), *root, MPI_Comm_f2c(*comm));
}

ENTRY(scatterv, SCATTERV,
      (void *in, MPI_Fint *in_counts, MPI_Fint *in_places, MPI_Fint *in_type,
       void *out, MPI_Fint *out_count, MPI_Fint *out_type, MPI_Fint *root,
       MPI_Fint *comm, MPI_Fint *err))
{
    *err = MPI_Scatterv(buffer_of(in), in_counts, in_places,
                        MPI_Type_f2c(*in_type), buffer_of(out), *out_count,
                        MPI_Type_f2c(*out_type), *root, MPI_Comm_f2c(*comm));
}

ENTRY(allgatherv, ALLGATHERV,
      (void *in, MPI_Fint *in_count, MPI_Fint *in_type, void *out,
       MPI_Fint *out_counts, MPI_Fint *out_places, MPI_Fint *out_type,
       MPI_Fint *comm, MPI_Fint *err))
{
    *err = MPI_Allgatherv(buffer_of(in), *in_count, MPI_Type_f2c(*in_type),
                          buffer_of(out), out_counts, out_places,
                          MPI_Type_f2c(*out_type), MPI_Comm_f2c(*comm));
}

ENTRY(alltoallv, ALLTOALLV,
      (void *in, MPI_Fint *in_counts, MPI_Fint *in_places, MPI_Fint *in_type,
       void *out, MPI_Fint *out_counts, MPI_Fint *out_places,
       MPI_Fint *out_type, MPI_Fint *comm, MPI_Fint *err))
{
    *err =
        MPI_Alltoallv(buffer_of(in), in_counts, in_places,
                      MPI_Type_f2c(*in_type), buffer_of(out), out_counts,
                      out_places, MPI_Type_f2c(*out_type), MPI_Comm_f2c(*comm));
}

ENTRY(init, INIT, (MPI_Fint * err))
{
    *err = MPI_Init(NULL, NULL);
}

ENTRY(init_thread, INIT_THREAD,
      (MPI_Fint * required, MPI_Fint *provided, MPI_Fint *err))
{
    int given = 0;
    *err = MPI_Init_thread(NULL, NULL, *required, &given);
    *provided = given;
}

ENTRY(comm_free, COMM_FREE, (MPI_Fint * comm, MPI_Fint *err))
{
    MPI_Comm handle = MPI_Comm_f2c(*comm);
    *err = MPI_Comm_free(&handle);
    *comm = MPI_Comm_c2f(handle);
}

ENTRY(comm_disconnect, COMM_DISCONNECT, (MPI_Fint * comm, MPI_Fint *err))
{
    MPI_Comm handle = MPI_Comm_f2c(*comm);
    *err = MPI_Comm_disconnect(&handle);
    *comm = MPI_Comm_c2f(handle);
}

ENTRY(finalize, FINALIZE, (MPI_Fint * err))
{
    *err = MPI_Finalize();
}

#else

/* The last argument may be left out. */
static void tell(MPI_Fint *err, int code)
{
    if (err) {
        *err = code;
    }
}

EXPORT void mpi_init_f08_(MPI_Fint *err);
EXPORT void mpi_init_thread_f08_(MPI_Fint *required, MPI_Fint *provided,
                                 MPI_Fint *err);
EXPORT void mpi_barrier_f08_(MPI_Fint *comm, MPI_Fint *err);
EXPORT void mpi_comm_free_f08_(MPI_Fint *comm, MPI_Fint *err);
EXPORT void mpi_comm_disconnect_f08_(MPI_Fint *comm, MPI_Fint *err);
EXPORT void mpi_finalize_f08_(MPI_Fint *err);

void mpi_init_f08_(MPI_Fint *err)
{
    tell(err, MPI_Init(NULL, NULL));
}

void mpi_init_thread_f08_(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *err)
{
    int given = 0;
    tell(err, MPI_Init_thread(NULL, NULL, *required, &given));
    *provided = given;
}

void mpi_barrier_f08_(MPI_Fint *comm, MPI_Fint *err)
{
    tell(err, MPI_Barrier(MPI_Comm_f2c(*comm)));
}

void mpi_comm_free_f08_(MPI_Fint *comm, MPI_Fint *err)
{
    MPI_Comm handle = MPI_Comm_f2c(*comm);
    tell(err, MPI_Comm_free(&handle));
    *comm = MPI_Comm_c2f(handle);
}

void mpi_comm_disconnect_f08_(MPI_Fint *comm, MPI_Fint *err)
{
    MPI_Comm handle = MPI_Comm_f2c(*comm);
    tell(err, MPI_Comm_disconnect(&handle));
    *comm = MPI_Comm_c2f(handle);
}

void mpi_finalize_f08_(MPI_Fint *err)
{
    tell(err, MPI_Finalize());
}

#endif

/* Where an allreduce was called, for entries that go on into another. All their
 * arguments are addresses. */
typedef void (*allreduce_fn)(void *in, void *out, void *count, void *type,
                             void *op, void *comm, void *err);

#define SITE_ENTRY(name)                                                       \
    EXPORT void name(void *in, void *out, void *count, void *type, void *op,   \
                     void *comm, void *err);                                   \
    void name(void *in, void *out, void *count, void *type, void *op,          \
              void *comm, void *err)

static allreduce_fn begin_site(const char *name, const void *site)
{
    allreduce_fn next;
    *(void **)&next = dlsym(RTLD_NEXT, name);
    preload_site = site;
    return next;
}

#if defined(OPEN_MPI)

/* Its mpi_f08 is a layer of its own above the entry. */
SITE_ENTRY(mpi_allreduce_f08_)
{
    begin_site(__func__, __builtin_return_address(0))(in, out, count, type, op,
                                                      comm, err);
    preload_site = NULL;
}

#else

SITE_ENTRY(mpi_allreduce_)
{
    begin_site(__func__, __builtin_return_address(0))(in, out, count, type, op,
                                                      comm, err);
    preload_site = NULL;
}

SITE_ENTRY(mpi_allreduce_f08ts_)
{
    begin_site(__func__, __builtin_return_address(0))(in, out, count, type, op,
                                                      comm, err);
    preload_site = NULL;
}

#endif
