/*
 * The collective functions of MPI that move data: MPI_Barrier, MPI_Bcast, and
 * the families of MPI_Gather, MPI_Scatter, MPI_Allgather and MPI_Alltoall.
 * Each fills in a call, and has it checked and run.
 */
#include "args.h"

/* ---- checks ------------------------------------------------------------- */

/* Begin to fill in a call. Otherwise the error has been handled, and its code
 * is returned. */
static int enter(struct vcoll_call *call, MPI_Comm handle)
{
    struct vrank_mpi *mpi = mpi_enter(call->name);

    if (mpi->preparing) {
        call->is_prepared = true;
        call->name = mpi->call = mpi->preparing;
        mpi->preparing = NULL;
    }
    call->comm = vcomm_of(mpi, handle);
    return call->comm ? MPI_SUCCESS : mpi_fail(mpi, NULL, MPI_ERR_COMM, NULL);
}

int vcoll_args_go(struct vcoll_call *call, MPI_Comm comm,
                  int (*check)(struct vcoll_call *call), MPI_Request *request)
{
    int code = enter(call, comm);

    if (code != MPI_SUCCESS) {
        return code;
    }
    code = check ? check(call) : MPI_SUCCESS;
    if (code != MPI_SUCCESS) {
        return mpi_fail(call->comm->mpi, call->comm, code, NULL);
    }
    if (call->is_prepared) {
        return vcoll_prepare(call, request);
    }
    return request ? vcoll_start(call, request) : vcoll_run(call);
}

int vcoll_args_root(const struct vcoll_call *call, int root)
{
    if (call->comm->remote != NULL) {
        return root == MPI_ROOT || root == MPI_PROC_NULL ||
                       (root >= 0 && root < call->comm->remote->size)
                   ? MPI_SUCCESS
                   : MPI_ERR_ROOT;
    }
    return root >= 0 && root < call->comm->size ? MPI_SUCCESS : MPI_ERR_ROOT;
}

static int check_type(MPI_Datatype type)
{
    return type != MPI_DATATYPE_NULL && type->committed ? MPI_SUCCESS
                                                        : MPI_ERR_TYPE;
}

int vcoll_args_side(const struct vcoll_call *call,
                    const struct vcoll_side *side)
{
    int peers = vcoll_peers(side, vcomm_peers(call->comm)->size);
    int code = MPI_SUCCESS;

    if (side->types == NULL) {
        code = check_type(side->type);
    }
    if (side->counts == NULL && side->count < 0) {
        code = MPI_ERR_COUNT;
    }
    for (int i = 0; side->counts != NULL && code == MPI_SUCCESS && i < peers;
         i++) {
        if (side->counts[i] < 0) {
            code = MPI_ERR_COUNT;
        } else if (side->types != NULL) {
            code = check_type(side->types[i]);
        }
    }
    return code;
}

/* Whether this rank is the one that gathers or scatters. */
static bool is_root(const struct vcoll_call *call)
{
    return call->comm->remote != NULL ? call->root == MPI_ROOT
                                      : call->root == call->comm->rank;
}

/* Whether the root's own data, `buf`, is where it belongs already. */
static bool is_in_place(const struct vcoll_call *call, const void *buf)
{
    return buf == MPI_IN_PLACE && call->comm->remote == NULL;
}

/* ---- barrier and broadcast ---------------------------------------------- */

int MPI_Barrier(MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_BARRIER, .name = "MPI_Barrier"};

    return vcoll_args_go(&call, comm, NULL, NULL);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_BARRIER, .name = "MPI_Ibarrier"};

    return vcoll_args_go(&call, comm, NULL, request);
}

static int bcast(struct vcoll_call *call)
{
    int code = vcoll_args_root(call, call->root);

    return code == MPI_SUCCESS ? vcoll_args_side(call, &call->recv) : code;
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype datatype, int root,
              MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_BCAST,
                              .name = "MPI_Bcast",
                              .root = root,
                              .recv = vcoll_each(buffer, count, datatype)};

    return vcoll_args_go(&call, comm, bcast, NULL);
}

int MPI_Ibcast(void *buffer, int count, MPI_Datatype datatype, int root,
               MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_BCAST,
                              .name = "MPI_Ibcast",
                              .root = root,
                              .recv = vcoll_each(buffer, count, datatype)};

    return vcoll_args_go(&call, comm, bcast, request);
}

/* ---- gather and scatter ------------------------------------------------- */

/* What each rank has of a gather or a scatter is `part`, what the root has of
 * all of them `all`. Which of the two counts depends on the caller's part in
 * the call. */
static int part_and_all(struct vcoll_call *call, struct vcoll_side *part,
                        struct vcoll_side *all)
{
    static const struct vcoll_side nothing;
    bool root = is_root(call);
    bool idle =
        call->comm->remote != NULL && (root || call->root == MPI_PROC_NULL);
    int code = vcoll_args_root(call, call->root);

    if (code == MPI_SUCCESS && root) {
        call->in_place = is_in_place(call, part->base);
        code = vcoll_args_side(call, all);
    } else {
        *all = nothing;
    }
    if (idle || call->in_place) {
        *part = nothing;
    } else if (code == MPI_SUCCESS) {
        code = part->base == MPI_IN_PLACE ? MPI_ERR_BUFFER
                                          : vcoll_args_side(call, part);
    }
    return code;
}

static int gather(struct vcoll_call *call)
{
    return part_and_all(call, &call->send, &call->recv);
}

static int scatter(struct vcoll_call *call)
{
    return part_and_all(call, &call->recv, &call->send);
}

int MPI_Gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
               void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
               MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_GATHER,
                              .name = "MPI_Gather",
                              .root = root,
                              .send = vcoll_each(sendbuf, sendcount, sendtype),
                              .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, gather, NULL);
}

int MPI_Igather(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
                MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_GATHER,
                              .name = "MPI_Igather",
                              .root = root,
                              .send = vcoll_each(sendbuf, sendcount, sendtype),
                              .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, gather, request);
}

int MPI_Gatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                void *recvbuf, const int recvcounts[], const int displs[],
                MPI_Datatype recvtype, int root, MPI_Comm comm)
{
    struct vcoll_call call = {
        .kind = COLL_GATHER,
        .name = "MPI_Gatherv",
        .root = root,
        .send = vcoll_each(sendbuf, sendcount, sendtype),
        .recv = vcoll_lengths(recvbuf, recvcounts, displs, recvtype)};

    return vcoll_args_go(&call, comm, gather, NULL);
}

int MPI_Igatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                 void *recvbuf, const int recvcounts[], const int displs[],
                 MPI_Datatype recvtype, int root, MPI_Comm comm,
                 MPI_Request *request)
{
    struct vcoll_call call = {
        .kind = COLL_GATHER,
        .name = "MPI_Igatherv",
        .root = root,
        .send = vcoll_each(sendbuf, sendcount, sendtype),
        .recv = vcoll_lengths(recvbuf, recvcounts, displs, recvtype)};

    return vcoll_args_go(&call, comm, gather, request);
}

int MPI_Scatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
                MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_SCATTER,
                              .name = "MPI_Scatter",
                              .root = root,
                              .send = vcoll_each(sendbuf, sendcount, sendtype),
                              .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, scatter, NULL);
}

int MPI_Iscatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                 void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
                 MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_SCATTER,
                              .name = "MPI_Iscatter",
                              .root = root,
                              .send = vcoll_each(sendbuf, sendcount, sendtype),
                              .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, scatter, request);
}

int MPI_Scatterv(const void *sendbuf, const int sendcounts[],
                 const int displs[], MPI_Datatype sendtype, void *recvbuf,
                 int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm)
{
    struct vcoll_call call = {
        .kind = COLL_SCATTER,
        .name = "MPI_Scatterv",
        .root = root,
        .send = vcoll_lengths(sendbuf, sendcounts, displs, sendtype),
        .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, scatter, NULL);
}

int MPI_Iscatterv(const void *sendbuf, const int sendcounts[],
                  const int displs[], MPI_Datatype sendtype, void *recvbuf,
                  int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                  MPI_Request *request)
{
    struct vcoll_call call = {
        .kind = COLL_SCATTER,
        .name = "MPI_Iscatterv",
        .root = root,
        .send = vcoll_lengths(sendbuf, sendcounts, displs, sendtype),
        .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, scatter, request);
}

/* ---- from all to all ---------------------------------------------------- */

static int to_all(struct vcoll_call *call)
{
    int code = vcoll_args_side(call, &call->recv);

    call->in_place = is_in_place(call, call->send.base);
    if (call->in_place) {
        call->send = (struct vcoll_side){0};
    } else if (code == MPI_SUCCESS) {
        code = call->send.base == MPI_IN_PLACE
                   ? MPI_ERR_BUFFER
                   : vcoll_args_side(call, &call->send);
    }
    return code;
}

int MPI_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                  void *recvbuf, int recvcount, MPI_Datatype recvtype,
                  MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_ALLGATHER,
                              .name = "MPI_Allgather",
                              .send = vcoll_each(sendbuf, sendcount, sendtype),
                              .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, to_all, NULL);
}

int MPI_Iallgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                   void *recvbuf, int recvcount, MPI_Datatype recvtype,
                   MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_ALLGATHER,
                              .name = "MPI_Iallgather",
                              .send = vcoll_each(sendbuf, sendcount, sendtype),
                              .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, to_all, request);
}

int MPI_Allgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                   void *recvbuf, const int recvcounts[], const int displs[],
                   MPI_Datatype recvtype, MPI_Comm comm)
{
    struct vcoll_call call = {
        .kind = COLL_ALLGATHER,
        .name = "MPI_Allgatherv",
        .send = vcoll_each(sendbuf, sendcount, sendtype),
        .recv = vcoll_lengths(recvbuf, recvcounts, displs, recvtype)};

    return vcoll_args_go(&call, comm, to_all, NULL);
}

int MPI_Iallgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, const int recvcounts[], const int displs[],
                    MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call = {
        .kind = COLL_ALLGATHER,
        .name = "MPI_Iallgatherv",
        .send = vcoll_each(sendbuf, sendcount, sendtype),
        .recv = vcoll_lengths(recvbuf, recvcounts, displs, recvtype)};

    return vcoll_args_go(&call, comm, to_all, request);
}

int MPI_Alltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                 void *recvbuf, int recvcount, MPI_Datatype recvtype,
                 MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_ALLTOALL,
                              .name = "MPI_Alltoall",
                              .send = vcoll_each(sendbuf, sendcount, sendtype),
                              .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, to_all, NULL);
}

int MPI_Ialltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                  void *recvbuf, int recvcount, MPI_Datatype recvtype,
                  MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_ALLTOALL,
                              .name = "MPI_Ialltoall",
                              .send = vcoll_each(sendbuf, sendcount, sendtype),
                              .recv = vcoll_each(recvbuf, recvcount, recvtype)};

    return vcoll_args_go(&call, comm, to_all, request);
}

int MPI_Alltoallv(const void *sendbuf, const int sendcounts[],
                  const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
                  const int recvcounts[], const int rdispls[],
                  MPI_Datatype recvtype, MPI_Comm comm)
{
    struct vcoll_call call = {
        .kind = COLL_ALLTOALL,
        .name = "MPI_Alltoallv",
        .send = vcoll_lengths(sendbuf, sendcounts, sdispls, sendtype),
        .recv = vcoll_lengths(recvbuf, recvcounts, rdispls, recvtype)};

    return vcoll_args_go(&call, comm, to_all, NULL);
}

int MPI_Ialltoallv(const void *sendbuf, const int sendcounts[],
                   const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
                   const int recvcounts[], const int rdispls[],
                   MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call = {
        .kind = COLL_ALLTOALL,
        .name = "MPI_Ialltoallv",
        .send = vcoll_lengths(sendbuf, sendcounts, sdispls, sendtype),
        .recv = vcoll_lengths(recvbuf, recvcounts, rdispls, recvtype)};

    return vcoll_args_go(&call, comm, to_all, request);
}

int MPI_Alltoallw(const void *sendbuf, const int sendcounts[],
                  const int sdispls[], const MPI_Datatype sendtypes[],
                  void *recvbuf, const int recvcounts[], const int rdispls[],
                  const MPI_Datatype recvtypes[], MPI_Comm comm)
{
    struct vcoll_call call = {
        .kind = COLL_ALLTOALL,
        .name = "MPI_Alltoallw",
        .send = vcoll_typed(sendbuf, sendcounts, sdispls, sendtypes),
        .recv = vcoll_typed(recvbuf, recvcounts, rdispls, recvtypes)};

    return vcoll_args_go(&call, comm, to_all, NULL);
}

int MPI_Ialltoallw(const void *sendbuf, const int sendcounts[],
                   const int sdispls[], const MPI_Datatype sendtypes[],
                   void *recvbuf, const int recvcounts[], const int rdispls[],
                   const MPI_Datatype recvtypes[], MPI_Comm comm,
                   MPI_Request *request)
{
    struct vcoll_call call = {
        .kind = COLL_ALLTOALL,
        .name = "MPI_Ialltoallw",
        .send = vcoll_typed(sendbuf, sendcounts, sdispls, sendtypes),
        .recv = vcoll_typed(recvbuf, recvcounts, rdispls, recvtypes)};

    return vcoll_args_go(&call, comm, to_all, request);
}
