/*
 * Persistent collectives: MPI_Bcast_init and its kin (MPI 4.0, 6.12). Each
 * has a communicator of its own, so that ranks may start them in any order and
 * a fast rank may start one again before a slow one has finished. What is
 * started is the nonblocking call, whose function checks and fills it in.
 */
#include <stdlib.h>

#include "internal.h"
#include "vrank/communicator/communicator.h"

struct persistent {
    struct vcoll_call what; /* as it was prepared; types and operation held */
    struct vcoll_call running; /* the one that was started */
    bool is_running;
};

static int persistent_step(struct poise_mpi_request *request)
{
    struct persistent *persistent = request->state;
    int error;

    if (!vcoll_step(&persistent->running)) {
        return 0;
    }
    error = persistent->running.error;
    vcoll_end(&persistent->running);
    persistent->is_running = false;
    return error == MPI_SUCCESS ? 1 : -error;
}

static int persistent_start(struct poise_mpi_request *request)
{
    struct persistent *persistent = request->state;
    int code;

    persistent->running = persistent->what;
    code = vcoll_begin(&persistent->running);
    persistent->is_running = code == MPI_SUCCESS;
    if (code != MPI_SUCCESS) {
        vcoll_end(&persistent->running);
    }
    return code;
}

static void persistent_free(void *state)
{
    struct persistent *persistent = state;

    if (persistent->is_running) {
        vcoll_end(&persistent->running);
    }
    vcoll_release(&persistent->what);
    free(persistent);
}

/* A communicator with the same members and the same topology. */
static int twin_of(struct poise_mpi_comm *comm, const char *why, MPI_Comm *out)
{
    int code = comm->remote != NULL ? intercomm_dup(comm, why, out)
                                    : vcomm_make(comm, comm->group, why, out);

    if (code == MPI_SUCCESS && comm->topology != NULL) {
        code = comm->topology->copy(comm, *out);
        if (code != MPI_SUCCESS) {
            vcomm_release(*out);
        }
    }
    return code;
}

int vcoll_prepare(const struct vcoll_call *what, MPI_Request *request)
{
    struct poise_mpi_comm *comm = what->comm;
    struct persistent *persistent = poise_alloc(1, sizeof *persistent);
    MPI_Comm twin = NULL;
    int code =
        persistent == NULL ? MPI_ERR_NO_MEM : twin_of(comm, what->name, &twin);

    if (code == MPI_SUCCESS) {
        persistent->what = *what;
        persistent->what.comm = twin;
        vcoll_hold(&persistent->what);
        code = request_prepare(twin,
                               &(struct request_task){.start = persistent_start,
                                                      .step = persistent_step,
                                                      .free = persistent_free,
                                                      .state = persistent},
                               request);
    } else {
        free(persistent);
    }
    return code == MPI_SUCCESS ? code : mpi_fail(comm->mpi, comm, code, NULL);
}

/* The call that the next function fills in is to be prepared, not started. */
static void prepare(const char *name)
{
    mpi_enter(name)->preparing = name;
}

int MPI_Allgather_init(const void *sendbuf, int sendcount,
                       MPI_Datatype sendtype, void *recvbuf, int recvcount,
                       MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                       MPI_Request *request)
{
    (void)info;
    prepare("MPI_Allgather_init");
    return MPI_Iallgather(sendbuf, sendcount, sendtype, recvbuf, recvcount,
                          recvtype, comm, request);
}

int MPI_Allgatherv_init(const void *sendbuf, int sendcount,
                        MPI_Datatype sendtype, void *recvbuf,
                        const int recvcounts[], const int displs[],
                        MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                        MPI_Request *request)
{
    (void)info;
    prepare("MPI_Allgatherv_init");
    return MPI_Iallgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts,
                           displs, recvtype, comm, request);
}

int MPI_Allreduce_init(const void *sendbuf, void *recvbuf, int count,
                       MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                       MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Allreduce_init");
    return MPI_Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request);
}

int MPI_Alltoall_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                      void *recvbuf, int recvcount, MPI_Datatype recvtype,
                      MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Alltoall_init");
    return MPI_Ialltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount,
                         recvtype, comm, request);
}

int MPI_Alltoallv_init(const void *sendbuf, const int sendcounts[],
                       const int sdispls[], MPI_Datatype sendtype,
                       void *recvbuf, const int recvcounts[],
                       const int rdispls[], MPI_Datatype recvtype,
                       MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Alltoallv_init");
    return MPI_Ialltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf,
                          recvcounts, rdispls, recvtype, comm, request);
}

int MPI_Alltoallw_init(const void *sendbuf, const int sendcounts[],
                       const int sdispls[], const MPI_Datatype sendtypes[],
                       void *recvbuf, const int recvcounts[],
                       const int rdispls[], const MPI_Datatype recvtypes[],
                       MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Alltoallw_init");
    return MPI_Ialltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf,
                          recvcounts, rdispls, recvtypes, comm, request);
}

int MPI_Barrier_init(MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Barrier_init");
    return MPI_Ibarrier(comm, request);
}

int MPI_Bcast_init(void *buffer, int count, MPI_Datatype datatype, int root,
                   MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Bcast_init");
    return MPI_Ibcast(buffer, count, datatype, root, comm, request);
}

int MPI_Exscan_init(const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                    MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Exscan_init");
    return MPI_Iexscan(sendbuf, recvbuf, count, datatype, op, comm, request);
}

int MPI_Gather_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, int recvcount, MPI_Datatype recvtype,
                    int root, MPI_Comm comm, MPI_Info info,
                    MPI_Request *request)
{
    (void)info;
    prepare("MPI_Gather_init");
    return MPI_Igather(sendbuf, sendcount, sendtype, recvbuf, recvcount,
                       recvtype, root, comm, request);
}

int MPI_Gatherv_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                     void *recvbuf, const int recvcounts[], const int displs[],
                     MPI_Datatype recvtype, int root, MPI_Comm comm,
                     MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Gatherv_init");
    return MPI_Igatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts,
                        displs, recvtype, root, comm, request);
}

int MPI_Reduce_init(const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm,
                    MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Reduce_init");
    return MPI_Ireduce(sendbuf, recvbuf, count, datatype, op, root, comm,
                       request);
}

int MPI_Reduce_scatter_init(const void *sendbuf, void *recvbuf,
                            const int recvcounts[], MPI_Datatype datatype,
                            MPI_Op op, MPI_Comm comm, MPI_Info info,
                            MPI_Request *request)
{
    (void)info;
    prepare("MPI_Reduce_scatter_init");
    return MPI_Ireduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm,
                               request);
}

int MPI_Reduce_scatter_block_init(const void *sendbuf, void *recvbuf,
                                  int recvcount, MPI_Datatype datatype,
                                  MPI_Op op, MPI_Comm comm, MPI_Info info,
                                  MPI_Request *request)
{
    (void)info;
    prepare("MPI_Reduce_scatter_block_init");
    return MPI_Ireduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op,
                                     comm, request);
}

int MPI_Scan_init(const void *sendbuf, void *recvbuf, int count,
                  MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                  MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Scan_init");
    return MPI_Iscan(sendbuf, recvbuf, count, datatype, op, comm, request);
}

int MPI_Scatter_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                     void *recvbuf, int recvcount, MPI_Datatype recvtype,
                     int root, MPI_Comm comm, MPI_Info info,
                     MPI_Request *request)
{
    (void)info;
    prepare("MPI_Scatter_init");
    return MPI_Iscatter(sendbuf, sendcount, sendtype, recvbuf, recvcount,
                        recvtype, root, comm, request);
}

int MPI_Scatterv_init(const void *sendbuf, const int sendcounts[],
                      const int displs[], MPI_Datatype sendtype, void *recvbuf,
                      int recvcount, MPI_Datatype recvtype, int root,
                      MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Scatterv_init");
    return MPI_Iscatterv(sendbuf, sendcounts, displs, sendtype, recvbuf,
                         recvcount, recvtype, root, comm, request);
}

int MPI_Neighbor_allgather_init(const void *sendbuf, int sendcount,
                                MPI_Datatype sendtype, void *recvbuf,
                                int recvcount, MPI_Datatype recvtype,
                                MPI_Comm comm, MPI_Info info,
                                MPI_Request *request)
{
    (void)info;
    prepare("MPI_Neighbor_allgather_init");
    return MPI_Ineighbor_allgather(sendbuf, sendcount, sendtype, recvbuf,
                                   recvcount, recvtype, comm, request);
}

int MPI_Neighbor_allgatherv_init(const void *sendbuf, int sendcount,
                                 MPI_Datatype sendtype, void *recvbuf,
                                 const int recvcounts[], const int displs[],
                                 MPI_Datatype recvtype, MPI_Comm comm,
                                 MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Neighbor_allgatherv_init");
    return MPI_Ineighbor_allgatherv(sendbuf, sendcount, sendtype, recvbuf,
                                    recvcounts, displs, recvtype, comm,
                                    request);
}

int MPI_Neighbor_alltoall_init(const void *sendbuf, int sendcount,
                               MPI_Datatype sendtype, void *recvbuf,
                               int recvcount, MPI_Datatype recvtype,
                               MPI_Comm comm, MPI_Info info,
                               MPI_Request *request)
{
    (void)info;
    prepare("MPI_Neighbor_alltoall_init");
    return MPI_Ineighbor_alltoall(sendbuf, sendcount, sendtype, recvbuf,
                                  recvcount, recvtype, comm, request);
}

int MPI_Neighbor_alltoallv_init(const void *sendbuf, const int sendcounts[],
                                const int sdispls[], MPI_Datatype sendtype,
                                void *recvbuf, const int recvcounts[],
                                const int rdispls[], MPI_Datatype recvtype,
                                MPI_Comm comm, MPI_Info info,
                                MPI_Request *request)
{
    (void)info;
    prepare("MPI_Neighbor_alltoallv_init");
    return MPI_Ineighbor_alltoallv(sendbuf, sendcounts, sdispls, sendtype,
                                   recvbuf, recvcounts, rdispls, recvtype, comm,
                                   request);
}

int MPI_Neighbor_alltoallw_init(const void *sendbuf, const int sendcounts[],
                                const MPI_Aint sdispls[],
                                const MPI_Datatype sendtypes[], void *recvbuf,
                                const int recvcounts[],
                                const MPI_Aint rdispls[],
                                const MPI_Datatype recvtypes[], MPI_Comm comm,
                                MPI_Info info, MPI_Request *request)
{
    (void)info;
    prepare("MPI_Neighbor_alltoallw_init");
    return MPI_Ineighbor_alltoallw(sendbuf, sendcounts, sdispls, sendtypes,
                                   recvbuf, recvcounts, rdispls, recvtypes,
                                   comm, request);
}
