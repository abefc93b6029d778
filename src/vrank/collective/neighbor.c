/*
 * Collectives with the neighbours of a topology. Source: MPI 3.1, 7.6.
 */
#include "args.h"
#include "vrank/communicator/topology.h"

/* In which order the messages of neighbours are received. In a grid what a rank
 * sends down comes from above: where it is periodic and one or two ranks wide
 * both are the same rank, whose first message is for the second place. In a
 * graph the k-th edge from a rank is the k-th that leads here.
 * Source: MPI 4.1, 8.6 and example 8.10. */
static int receive_place(const struct vrank_topology *topology, int i)
{
    return topology->kind == MPI_CART ? i ^ 1 : i;
}

/* One message to each neighbour and from each. Where a rank is a neighbour
 * more than once, the order of the messages distinguishes them. */
int vcoll_plan_neighbor(struct vcoll_call *call)
{
    const struct vrank_topology *topology = topology_of(call->comm);
    struct vcoll_schedule *schedule = vcoll_schedule_create();
    bool differ = call->kind == COLL_NEIGHBOR_ALLTOALL;

    call->stages[call->stage_count++].schedule = schedule;
    if (schedule == NULL) {
        return MPI_ERR_NO_MEM;
    }
    for (int i = 0; i < topology->in; i++) {
        int place = receive_place(topology, i);
        if (topology->sources[place] != MPI_PROC_NULL) {
            vcoll_receive(schedule, topology->sources[place],
                          vcoll_piece_of(&call->recv, place));
        }
    }
    for (int i = 0; i < topology->out; i++) {
        if (topology->destinations[i] != MPI_PROC_NULL) {
            vcoll_send(schedule, topology->destinations[i],
                       vcoll_piece_of(&call->send, differ ? i : 0));
        }
    }
    return MPI_SUCCESS;
}

/* As vcoll_typed, with distances that may be large. */
static struct vcoll_side typed(const void *base, const int *counts,
                               const MPI_Aint *places,
                               const MPI_Datatype *types)
{
    return (struct vcoll_side){.base = (char *)(uintptr_t)base,
                               .counts = counts,
                               .places = places,
                               .types = types};
}

static int exchange(struct vcoll_call *call)
{
    const struct vrank_topology *topology = topology_of(call->comm);
    bool differ = call->kind == COLL_NEIGHBOR_ALLTOALL;
    int code;

    if (topology == NULL) {
        return MPI_ERR_TOPOLOGY;
    }
    call->send.peers = !differ ? 1 : topology->out > 0 ? topology->out : -1;
    call->recv.peers = topology->in > 0 ? topology->in : -1;
    code = vcoll_args_side(call, &call->send);
    if (code == MPI_SUCCESS) {
        code = vcoll_args_side(call, &call->recv);
    }
    return code;
}

int MPI_Neighbor_allgather(const void *sendbuf, int sendcount,
                           MPI_Datatype sendtype, void *recvbuf, int recvcount,
                           MPI_Datatype recvtype, MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_NEIGHBOR_ALLGATHER,
                              .name = "MPI_Neighbor_allgather",
                              .send = vcoll_each(sendbuf, sendcount, sendtype),
                              .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, exchange, NULL);
}

int MPI_Ineighbor_allgather(const void *sendbuf, int sendcount,
                            MPI_Datatype sendtype, void *recvbuf, int recvcount,
                            MPI_Datatype recvtype, MPI_Comm comm,
                            MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_NEIGHBOR_ALLGATHER,
                              .name = "MPI_Ineighbor_allgather",
                              .send = vcoll_each(sendbuf, sendcount, sendtype),
                              .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, exchange, request);
}

int MPI_Neighbor_allgatherv(const void *sendbuf, int sendcount,
                            MPI_Datatype sendtype, void *recvbuf,
                            const int recvcounts[], const int displs[],
                            MPI_Datatype recvtype, MPI_Comm comm)
{
    struct vcoll_call call = {
        .kind = COLL_NEIGHBOR_ALLGATHER,
        .name = "MPI_Neighbor_allgatherv",
        .send = vcoll_each(sendbuf, sendcount, sendtype),
        .recv = vcoll_lengths(recvbuf, recvcounts, displs, recvtype)};

    return vcoll_args_go(&call, comm, exchange, NULL);
}

int MPI_Ineighbor_allgatherv(const void *sendbuf, int sendcount,
                             MPI_Datatype sendtype, void *recvbuf,
                             const int recvcounts[], const int displs[],
                             MPI_Datatype recvtype, MPI_Comm comm,
                             MPI_Request *request)
{
    struct vcoll_call call = {
        .kind = COLL_NEIGHBOR_ALLGATHER,
        .name = "MPI_Ineighbor_allgatherv",
        .send = vcoll_each(sendbuf, sendcount, sendtype),
        .recv = vcoll_lengths(recvbuf, recvcounts, displs, recvtype)};

    return vcoll_args_go(&call, comm, exchange, request);
}

int MPI_Neighbor_alltoall(const void *sendbuf, int sendcount,
                          MPI_Datatype sendtype, void *recvbuf, int recvcount,
                          MPI_Datatype recvtype, MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_NEIGHBOR_ALLTOALL,
                              .name = "MPI_Neighbor_alltoall",
                              .send = vcoll_each(sendbuf, sendcount, sendtype),
                              .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, exchange, NULL);
}

int MPI_Ineighbor_alltoall(const void *sendbuf, int sendcount,
                           MPI_Datatype sendtype, void *recvbuf, int recvcount,
                           MPI_Datatype recvtype, MPI_Comm comm,
                           MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_NEIGHBOR_ALLTOALL,
                              .name = "MPI_Ineighbor_alltoall",
                              .send = vcoll_each(sendbuf, sendcount, sendtype),
                              .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, exchange, request);
}

int MPI_Neighbor_alltoallv(const void *sendbuf, const int sendcounts[],
                           const int sdispls[], MPI_Datatype sendtype,
                           void *recvbuf, const int recvcounts[],
                           const int rdispls[], MPI_Datatype recvtype,
                           MPI_Comm comm)
{
    struct vcoll_call call = {
        .kind = COLL_NEIGHBOR_ALLTOALL,
        .name = "MPI_Neighbor_alltoallv",
        .send = vcoll_lengths(sendbuf, sendcounts, sdispls, sendtype),
        .recv = vcoll_lengths(recvbuf, recvcounts, rdispls, recvtype)};

    return vcoll_args_go(&call, comm, exchange, NULL);
}

int MPI_Ineighbor_alltoallv(const void *sendbuf, const int sendcounts[],
                            const int sdispls[], MPI_Datatype sendtype,
                            void *recvbuf, const int recvcounts[],
                            const int rdispls[], MPI_Datatype recvtype,
                            MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call = {
        .kind = COLL_NEIGHBOR_ALLTOALL,
        .name = "MPI_Ineighbor_alltoallv",
        .send = vcoll_lengths(sendbuf, sendcounts, sdispls, sendtype),
        .recv = vcoll_lengths(recvbuf, recvcounts, rdispls, recvtype)};

    return vcoll_args_go(&call, comm, exchange, request);
}

int MPI_Neighbor_alltoallw(const void *sendbuf, const int sendcounts[],
                           const MPI_Aint sdispls[],
                           const MPI_Datatype sendtypes[], void *recvbuf,
                           const int recvcounts[], const MPI_Aint rdispls[],
                           const MPI_Datatype recvtypes[], MPI_Comm comm)
{
    struct vcoll_call call = {
        .kind = COLL_NEIGHBOR_ALLTOALL,
        .name = "MPI_Neighbor_alltoallw",
        .send = typed(sendbuf, sendcounts, sdispls, sendtypes),
        .recv = typed(recvbuf, recvcounts, rdispls, recvtypes)};

    return vcoll_args_go(&call, comm, exchange, NULL);
}

int MPI_Ineighbor_alltoallw(const void *sendbuf, const int sendcounts[],
                            const MPI_Aint sdispls[],
                            const MPI_Datatype sendtypes[], void *recvbuf,
                            const int recvcounts[], const MPI_Aint rdispls[],
                            const MPI_Datatype recvtypes[], MPI_Comm comm,
                            MPI_Request *request)
{
    struct vcoll_call call = {
        .kind = COLL_NEIGHBOR_ALLTOALL,
        .name = "MPI_Ineighbor_alltoallw",
        .send = typed(sendbuf, sendcounts, sdispls, sendtypes),
        .recv = typed(recvbuf, recvcounts, rdispls, recvtypes)};

    return vcoll_args_go(&call, comm, exchange, request);
}
