/*
 * Collectives that the library serves and the report counts: those that do not
 * wait, and one whose blocks have a type each. Over trees a call that does not
 * wait would have to be gone on with by whoever waits for anything; as long as
 * a program computes, nobody would be there to do it. (To do it all at once
 * instead would stand still where a rank sends what another one needs before it
 * comes to its own call.) MPI libraries go on inside of their own waits, so it
 * is never faster here.
 */
#include "communicator.h"

#define EXPORT __attribute__((visibility("default")))

static void note(enum entry entry)
{
    if (!preload_inside) {
        preload_count(entry, entry == ALLTOALLW ? TYPE : NONBLOCKING);
    }
}

EXPORT int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    note(IBARRIER);
    return PMPI_Ibarrier(comm, request);
}

EXPORT int MPI_Ibcast(void *buffer, int number, MPI_Datatype type, int root,
                      MPI_Comm comm, MPI_Request *request)
{
    note(IBCAST);
    return PMPI_Ibcast(buffer, number, type, root, comm, request);
}

EXPORT int MPI_Iallreduce(const void *in, void *out, int number,
                          MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                          MPI_Request *request)
{
    note(IALLREDUCE);
    return PMPI_Iallreduce(in, out, number, type, op, comm, request);
}

EXPORT int MPI_Iscan(const void *in, void *out, int number, MPI_Datatype type,
                     MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    note(ISCAN);
    return PMPI_Iscan(in, out, number, type, op, comm, request);
}

EXPORT int MPI_Iexscan(const void *in, void *out, int number, MPI_Datatype type,
                       MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    note(IEXSCAN);
    return PMPI_Iexscan(in, out, number, type, op, comm, request);
}

EXPORT int MPI_Ireduce_scatter_block(const void *in, void *out, int number,
                                     MPI_Datatype type, MPI_Op op,
                                     MPI_Comm comm, MPI_Request *request)
{
    note(IREDUCE_SCATTER_BLOCK);
    return PMPI_Ireduce_scatter_block(in, out, number, type, op, comm, request);
}

EXPORT int MPI_Ireduce(const void *in, void *out, int number, MPI_Datatype type,
                       MPI_Op op, int root, MPI_Comm comm, MPI_Request *request)
{
    note(IREDUCE);
    return PMPI_Ireduce(in, out, number, type, op, root, comm, request);
}

EXPORT int MPI_Ireduce_scatter(const void *in, void *out, const int numbers[],
                               MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                               MPI_Request *request)
{
    note(IREDUCE_SCATTER);
    return PMPI_Ireduce_scatter(in, out, numbers, type, op, comm, request);
}

EXPORT int MPI_Igather(const void *in, int in_number, MPI_Datatype in_type,
                       void *out, int out_number, MPI_Datatype out_type,
                       int root, MPI_Comm comm, MPI_Request *request)
{
    note(IGATHER);
    return PMPI_Igather(in, in_number, in_type, out, out_number, out_type, root,
                        comm, request);
}

EXPORT int MPI_Iscatter(const void *in, int in_number, MPI_Datatype in_type,
                        void *out, int out_number, MPI_Datatype out_type,
                        int root, MPI_Comm comm, MPI_Request *request)
{
    note(ISCATTER);
    return PMPI_Iscatter(in, in_number, in_type, out, out_number, out_type,
                         root, comm, request);
}

EXPORT int MPI_Iallgather(const void *in, int in_number, MPI_Datatype in_type,
                          void *out, int out_number, MPI_Datatype out_type,
                          MPI_Comm comm, MPI_Request *request)
{
    note(IALLGATHER);
    return PMPI_Iallgather(in, in_number, in_type, out, out_number, out_type,
                           comm, request);
}

EXPORT int MPI_Ialltoall(const void *in, int in_number, MPI_Datatype in_type,
                         void *out, int out_number, MPI_Datatype out_type,
                         MPI_Comm comm, MPI_Request *request)
{
    note(IALLTOALL);
    return PMPI_Ialltoall(in, in_number, in_type, out, out_number, out_type,
                          comm, request);
}

EXPORT int MPI_Igatherv(const void *in, int in_number, MPI_Datatype in_type,
                        void *out, const int out_numbers[],
                        const int out_places[], MPI_Datatype out_type, int root,
                        MPI_Comm comm, MPI_Request *request)
{
    note(IGATHERV);
    return PMPI_Igatherv(in, in_number, in_type, out, out_numbers, out_places,
                         out_type, root, comm, request);
}

EXPORT int MPI_Iallgatherv(const void *in, int in_number, MPI_Datatype in_type,
                           void *out, const int out_numbers[],
                           const int out_places[], MPI_Datatype out_type,
                           MPI_Comm comm, MPI_Request *request)
{
    note(IALLGATHERV);
    return PMPI_Iallgatherv(in, in_number, in_type, out, out_numbers,
                            out_places, out_type, comm, request);
}

EXPORT int MPI_Iscatterv(const void *in, const int in_numbers[],
                         const int in_places[], MPI_Datatype in_type, void *out,
                         int out_number, MPI_Datatype out_type, int root,
                         MPI_Comm comm, MPI_Request *request)
{
    note(ISCATTERV);
    return PMPI_Iscatterv(in, in_numbers, in_places, in_type, out, out_number,
                          out_type, root, comm, request);
}

EXPORT int MPI_Ialltoallv(const void *in, const int in_numbers[],
                          const int in_places[], MPI_Datatype in_type,
                          void *out, const int out_numbers[],
                          const int out_places[], MPI_Datatype out_type,
                          MPI_Comm comm, MPI_Request *request)
{
    note(IALLTOALLV);
    return PMPI_Ialltoallv(in, in_numbers, in_places, in_type, out, out_numbers,
                           out_places, out_type, comm, request);
}

EXPORT int MPI_Alltoallw(const void *in, const int in_numbers[],
                         const int in_places[], const MPI_Datatype in_types[],
                         void *out, const int out_numbers[],
                         const int out_places[], const MPI_Datatype out_types[],
                         MPI_Comm comm)
{
    note(ALLTOALLW);
    return PMPI_Alltoallw(in, in_numbers, in_places, in_types, out, out_numbers,
                          out_places, out_types, comm);
}

EXPORT int MPI_Ialltoallw(const void *in, const int in_numbers[],
                          const int in_places[], const MPI_Datatype in_types[],
                          void *out, const int out_numbers[],
                          const int out_places[],
                          const MPI_Datatype out_types[], MPI_Comm comm,
                          MPI_Request *request)
{
    note(IALLTOALLW);
    return PMPI_Ialltoallw(in, in_numbers, in_places, in_types, out,
                           out_numbers, out_places, out_types, comm, request);
}
