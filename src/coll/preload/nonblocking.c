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
#include "events.h"

#define EXPORT __attribute__((visibility("default")))

/* When it began, if a trace is in force; else 0. */
static uint64_t note(enum entry entry)
{
    if (!preload_inside) {
        preload_count(entry, entry == ALLTOALLW ? TYPE : NONBLOCKING);
    }
    return poise_trace_is_on() ? poise_clock_ticks() : 0;
}

/* The library has returned: the record of a call that does not wait says when
 * it was begun, and nothing of when it is complete. */
static int noted(enum entry entry, MPI_Comm comm, uint64_t enter, int code)
{
    struct seat seat;
    if (enter && code == MPI_SUCCESS && preload_look(comm, &seat)) {
        events_call(entry, seat.state, false,
                    &(struct events_span){poise_trace_ring(), enter,
                                          poise_clock_ticks(), 0, code});
    }
    return code;
}

EXPORT int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(IBARRIER);
    return noted(IBARRIER, comm, enter, PMPI_Ibarrier(comm, request));
}

EXPORT int MPI_Ibcast(void *buffer, int number, MPI_Datatype type, int root,
                      MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(IBCAST);
    return noted(IBCAST, comm, enter,
                 PMPI_Ibcast(buffer, number, type, root, comm, request));
}

EXPORT int MPI_Iallreduce(const void *in, void *out, int number,
                          MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                          MPI_Request *request)
{
    uint64_t enter = note(IALLREDUCE);
    return noted(IALLREDUCE, comm, enter,
                 PMPI_Iallreduce(in, out, number, type, op, comm, request));
}

EXPORT int MPI_Iscan(const void *in, void *out, int number, MPI_Datatype type,
                     MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(ISCAN);
    return noted(ISCAN, comm, enter,
                 PMPI_Iscan(in, out, number, type, op, comm, request));
}

EXPORT int MPI_Iexscan(const void *in, void *out, int number, MPI_Datatype type,
                       MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(IEXSCAN);
    return noted(IEXSCAN, comm, enter,
                 PMPI_Iexscan(in, out, number, type, op, comm, request));
}

EXPORT int MPI_Ireduce_scatter_block(const void *in, void *out, int number,
                                     MPI_Datatype type, MPI_Op op,
                                     MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(IREDUCE_SCATTER_BLOCK);
    return noted(
        IREDUCE_SCATTER_BLOCK, comm, enter,
        PMPI_Ireduce_scatter_block(in, out, number, type, op, comm, request));
}

EXPORT int MPI_Ireduce(const void *in, void *out, int number, MPI_Datatype type,
                       MPI_Op op, int root, MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(IREDUCE);
    return noted(IREDUCE, comm, enter,
                 PMPI_Ireduce(in, out, number, type, op, root, comm, request));
}

EXPORT int MPI_Ireduce_scatter(const void *in, void *out, const int numbers[],
                               MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                               MPI_Request *request)
{
    uint64_t enter = note(IREDUCE_SCATTER);
    return noted(
        IREDUCE_SCATTER, comm, enter,
        PMPI_Ireduce_scatter(in, out, numbers, type, op, comm, request));
}

EXPORT int MPI_Igather(const void *in, int in_number, MPI_Datatype in_type,
                       void *out, int out_number, MPI_Datatype out_type,
                       int root, MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(IGATHER);
    return noted(IGATHER, comm, enter,
                 PMPI_Igather(in, in_number, in_type, out, out_number, out_type,
                              root, comm, request));
}

EXPORT int MPI_Iscatter(const void *in, int in_number, MPI_Datatype in_type,
                        void *out, int out_number, MPI_Datatype out_type,
                        int root, MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(ISCATTER);
    return noted(ISCATTER, comm, enter,
                 PMPI_Iscatter(in, in_number, in_type, out, out_number,
                               out_type, root, comm, request));
}

EXPORT int MPI_Iallgather(const void *in, int in_number, MPI_Datatype in_type,
                          void *out, int out_number, MPI_Datatype out_type,
                          MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(IALLGATHER);
    return noted(IALLGATHER, comm, enter,
                 PMPI_Iallgather(in, in_number, in_type, out, out_number,
                                 out_type, comm, request));
}

EXPORT int MPI_Ialltoall(const void *in, int in_number, MPI_Datatype in_type,
                         void *out, int out_number, MPI_Datatype out_type,
                         MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(IALLTOALL);
    return noted(IALLTOALL, comm, enter,
                 PMPI_Ialltoall(in, in_number, in_type, out, out_number,
                                out_type, comm, request));
}

EXPORT int MPI_Igatherv(const void *in, int in_number, MPI_Datatype in_type,
                        void *out, const int out_numbers[],
                        const int out_places[], MPI_Datatype out_type, int root,
                        MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(IGATHERV);
    return noted(IGATHERV, comm, enter,
                 PMPI_Igatherv(in, in_number, in_type, out, out_numbers,
                               out_places, out_type, root, comm, request));
}

EXPORT int MPI_Iallgatherv(const void *in, int in_number, MPI_Datatype in_type,
                           void *out, const int out_numbers[],
                           const int out_places[], MPI_Datatype out_type,
                           MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(IALLGATHERV);
    return noted(IALLGATHERV, comm, enter,
                 PMPI_Iallgatherv(in, in_number, in_type, out, out_numbers,
                                  out_places, out_type, comm, request));
}

EXPORT int MPI_Iscatterv(const void *in, const int in_numbers[],
                         const int in_places[], MPI_Datatype in_type, void *out,
                         int out_number, MPI_Datatype out_type, int root,
                         MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(ISCATTERV);
    return noted(ISCATTERV, comm, enter,
                 PMPI_Iscatterv(in, in_numbers, in_places, in_type, out,
                                out_number, out_type, root, comm, request));
}

EXPORT int MPI_Ialltoallv(const void *in, const int in_numbers[],
                          const int in_places[], MPI_Datatype in_type,
                          void *out, const int out_numbers[],
                          const int out_places[], MPI_Datatype out_type,
                          MPI_Comm comm, MPI_Request *request)
{
    uint64_t enter = note(IALLTOALLV);
    return noted(IALLTOALLV, comm, enter,
                 PMPI_Ialltoallv(in, in_numbers, in_places, in_type, out,
                                 out_numbers, out_places, out_type, comm,
                                 request));
}

EXPORT int MPI_Alltoallw(const void *in, const int in_numbers[],
                         const int in_places[], const MPI_Datatype in_types[],
                         void *out, const int out_numbers[],
                         const int out_places[], const MPI_Datatype out_types[],
                         MPI_Comm comm)
{
    uint64_t enter = note(ALLTOALLW);
    return noted(ALLTOALLW, comm, enter,
                 PMPI_Alltoallw(in, in_numbers, in_places, in_types, out,
                                out_numbers, out_places, out_types, comm));
}

EXPORT int MPI_Ialltoallw(const void *in, const int in_numbers[],
                          const int in_places[], const MPI_Datatype in_types[],
                          void *out, const int out_numbers[],
                          const int out_places[],
                          const MPI_Datatype out_types[], MPI_Comm comm,
                          MPI_Request *request)
{
    uint64_t enter = note(IALLTOALLW);
    return noted(IALLTOALLW, comm, enter,
                 PMPI_Ialltoallw(in, in_numbers, in_places, in_types, out,
                                 out_numbers, out_places, out_types, comm,
                                 request));
}
