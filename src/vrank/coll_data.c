/*
 * The collective functions of MPI that move data: MPI_Barrier, MPI_Bcast, and
 * the families of MPI_Gather, MPI_Scatter, MPI_Allgather and MPI_Alltoall.
 * Each fills in a call, which a blocking function runs and a non-blocking one
 * starts.
 */
#include "coll_args.h"

/* ---- checks
 * ------------------------------------------------------------------ */

int vcoll_args_enter(struct vcoll_call *call, enum vcoll_kind kind,
                     const char *name, MPI_Comm handle)
{
    struct vrank_face *face = face_enter(name);
    struct poise_mpi_comm *comm = vcomm_of(face, handle);

    if (comm == NULL) {
        return face_fail(face, NULL, MPI_ERR_COMM, NULL);
    }
    *call = (struct vcoll_call){.kind = kind, .name = name, .comm = comm};
    return MPI_SUCCESS;
}

int vcoll_args_fail(const struct vcoll_call *call, int error)
{
    return error == MPI_SUCCESS
               ? error
               : face_fail(call->comm->face, call->comm, error, NULL);
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
    int peers = side->peers > 0 ? side->peers : vcomm_peers(call->comm)->size;
    int error = MPI_SUCCESS;

    if (side->types == NULL) {
        error = check_type(side->type);
    }
    if (side->counts == NULL && side->count < 0) {
        error = MPI_ERR_COUNT;
    }
    for (int i = 0; side->counts != NULL && error == MPI_SUCCESS && i < peers;
         i++) {
        if (side->counts[i] < 0) {
            error = MPI_ERR_COUNT;
        } else if (side->types != NULL) {
            error = check_type(side->types[i]);
        }
    }
    return error;
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

/* ---- barrier and broadcast
 * ------------------------------------------------------ */

int MPI_Barrier(MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_BARRIER, "MPI_Barrier", comm);

    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_BARRIER, "MPI_Ibarrier", comm);

    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

static int bcast(struct vcoll_call *call, const char *name, void *buffer,
                 int count, MPI_Datatype datatype, int root, MPI_Comm comm)
{
    int error = vcoll_args_enter(call, COLL_BCAST, name, comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    call->root = root;
    call->recv =
        (struct vcoll_side){.base = buffer, .count = count, .type = datatype};
    error = vcoll_args_root(call, root);
    if (error == MPI_SUCCESS) {
        error = vcoll_args_side(call, &call->recv);
    }
    return vcoll_args_fail(call, error);
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype datatype, int root,
              MPI_Comm comm)
{
    struct vcoll_call call;
    int error = bcast(&call, "MPI_Bcast", buffer, count, datatype, root, comm);

    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Ibcast(void *buffer, int count, MPI_Datatype datatype, int root,
               MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call;
    int error = bcast(&call, "MPI_Ibcast", buffer, count, datatype, root, comm);

    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

/* ---- gather and scatter
 * ------------------------------------------------------------ */

/* `part` is what each rank has, `all` what the root has of everybody. Which of
 * them counts depends on who the caller is. */
static int gather(struct vcoll_call *call, const struct vcoll_side *part,
                  const struct vcoll_side *all)
{
    bool root = is_root(call);
    bool idle =
        call->comm->remote != NULL && (root || call->root == MPI_PROC_NULL);
    int error = vcoll_args_root(call, call->root);

    if (error == MPI_SUCCESS && root) {
        call->recv = *all;
        call->in_place = is_in_place(call, part->base);
        error = vcoll_args_side(call, all);
    }
    if (error == MPI_SUCCESS && !idle && !call->in_place) {
        call->send = *part;
        error = part->base == MPI_IN_PLACE ? MPI_ERR_BUFFER
                                           : vcoll_args_side(call, part);
    }
    return vcoll_args_fail(call, error);
}

static int scatter(struct vcoll_call *call, const struct vcoll_side *all,
                   const struct vcoll_side *part)
{
    bool root = is_root(call);
    bool idle =
        call->comm->remote != NULL && (root || call->root == MPI_PROC_NULL);
    int error = vcoll_args_root(call, call->root);

    if (error == MPI_SUCCESS && root) {
        call->send = *all;
        call->in_place = is_in_place(call, part->base);
        error = vcoll_args_side(call, all);
    }
    if (error == MPI_SUCCESS && !idle && !call->in_place) {
        call->recv = *part;
        error = part->base == MPI_IN_PLACE ? MPI_ERR_BUFFER
                                           : vcoll_args_side(call, part);
    }
    return vcoll_args_fail(call, error);
}

int MPI_Gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
               void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
               MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_GATHER, "MPI_Gather", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    call.root = root;
    error = gather(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .count = sendcount,
                                        .type = sendtype},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .count = recvcount,
                                        .type = recvtype});
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Igather(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
                MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_GATHER, "MPI_Igather", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    call.root = root;
    error = gather(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .count = sendcount,
                                        .type = sendtype},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .count = recvcount,
                                        .type = recvtype});
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

int MPI_Gatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                void *recvbuf, const int recvcounts[], const int displs[],
                MPI_Datatype recvtype, int root, MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_GATHER, "MPI_Gatherv", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    call.root = root;
    error = gather(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .count = sendcount,
                                        .type = sendtype},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .type = recvtype,
                                        .counts = recvcounts,
                                        .displs = displs});
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Igatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                 void *recvbuf, const int recvcounts[], const int displs[],
                 MPI_Datatype recvtype, int root, MPI_Comm comm,
                 MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_GATHER, "MPI_Igatherv", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    call.root = root;
    error = gather(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .count = sendcount,
                                        .type = sendtype},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .type = recvtype,
                                        .counts = recvcounts,
                                        .displs = displs});
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

int MPI_Scatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
                MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_SCATTER, "MPI_Scatter", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    call.root = root;
    error = scatter(&call,
                    &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                         .count = sendcount,
                                         .type = sendtype},
                    &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                         .count = recvcount,
                                         .type = recvtype});
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Iscatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                 void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
                 MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_SCATTER, "MPI_Iscatter", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    call.root = root;
    error = scatter(&call,
                    &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                         .count = sendcount,
                                         .type = sendtype},
                    &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                         .count = recvcount,
                                         .type = recvtype});
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

int MPI_Scatterv(const void *sendbuf, const int sendcounts[],
                 const int displs[], MPI_Datatype sendtype, void *recvbuf,
                 int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_SCATTER, "MPI_Scatterv", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    call.root = root;
    error = scatter(&call,
                    &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                         .type = sendtype,
                                         .counts = sendcounts,
                                         .displs = displs},
                    &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                         .count = recvcount,
                                         .type = recvtype});
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Iscatterv(const void *sendbuf, const int sendcounts[],
                  const int displs[], MPI_Datatype sendtype, void *recvbuf,
                  int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                  MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_SCATTER, "MPI_Iscatterv", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    call.root = root;
    error = scatter(&call,
                    &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                         .type = sendtype,
                                         .counts = sendcounts,
                                         .displs = displs},
                    &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                         .count = recvcount,
                                         .type = recvtype});
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

/* ---- from all to all
 * ----------------------------------------------------------------- */

static int to_all(struct vcoll_call *call, const struct vcoll_side *send,
                  const struct vcoll_side *recv)
{
    int error;

    call->in_place = is_in_place(call, send->base);
    call->recv = *recv;
    error = vcoll_args_side(call, recv);
    if (error == MPI_SUCCESS && !call->in_place) {
        call->send = *send;
        error = send->base == MPI_IN_PLACE ? MPI_ERR_BUFFER
                                           : vcoll_args_side(call, send);
    }
    return vcoll_args_fail(call, error);
}

int MPI_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                  void *recvbuf, int recvcount, MPI_Datatype recvtype,
                  MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_ALLGATHER, "MPI_Allgather", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = to_all(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .count = sendcount,
                                        .type = sendtype},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .count = recvcount,
                                        .type = recvtype});
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Iallgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                   void *recvbuf, int recvcount, MPI_Datatype recvtype,
                   MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_ALLGATHER, "MPI_Iallgather", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = to_all(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .count = sendcount,
                                        .type = sendtype},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .count = recvcount,
                                        .type = recvtype});
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

int MPI_Allgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                   void *recvbuf, const int recvcounts[], const int displs[],
                   MPI_Datatype recvtype, MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_ALLGATHER, "MPI_Allgatherv", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = to_all(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .count = sendcount,
                                        .type = sendtype},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .type = recvtype,
                                        .counts = recvcounts,
                                        .displs = displs});
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Iallgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    void *recvbuf, const int recvcounts[], const int displs[],
                    MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call;
    int error =
        vcoll_args_enter(&call, COLL_ALLGATHER, "MPI_Iallgatherv", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = to_all(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .count = sendcount,
                                        .type = sendtype},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .type = recvtype,
                                        .counts = recvcounts,
                                        .displs = displs});
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

int MPI_Alltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                 void *recvbuf, int recvcount, MPI_Datatype recvtype,
                 MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_ALLTOALL, "MPI_Alltoall", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = to_all(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .count = sendcount,
                                        .type = sendtype},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .count = recvcount,
                                        .type = recvtype});
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Ialltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                  void *recvbuf, int recvcount, MPI_Datatype recvtype,
                  MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_ALLTOALL, "MPI_Ialltoall", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = to_all(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .count = sendcount,
                                        .type = sendtype},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .count = recvcount,
                                        .type = recvtype});
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

int MPI_Alltoallv(const void *sendbuf, const int sendcounts[],
                  const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
                  const int recvcounts[], const int rdispls[],
                  MPI_Datatype recvtype, MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_ALLTOALL, "MPI_Alltoallv", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = to_all(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .type = sendtype,
                                        .counts = sendcounts,
                                        .displs = sdispls},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .type = recvtype,
                                        .counts = recvcounts,
                                        .displs = rdispls});
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Ialltoallv(const void *sendbuf, const int sendcounts[],
                   const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
                   const int recvcounts[], const int rdispls[],
                   MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_ALLTOALL, "MPI_Ialltoallv", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = to_all(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .type = sendtype,
                                        .counts = sendcounts,
                                        .displs = sdispls},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .type = recvtype,
                                        .counts = recvcounts,
                                        .displs = rdispls});
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

int MPI_Alltoallw(const void *sendbuf, const int sendcounts[],
                  const int sdispls[], const MPI_Datatype sendtypes[],
                  void *recvbuf, const int recvcounts[], const int rdispls[],
                  const MPI_Datatype recvtypes[], MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_ALLTOALL, "MPI_Alltoallw", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = to_all(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .counts = sendcounts,
                                        .displs = sdispls,
                                        .types = sendtypes},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .counts = recvcounts,
                                        .displs = rdispls,
                                        .types = recvtypes});
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Ialltoallw(const void *sendbuf, const int sendcounts[],
                   const int sdispls[], const MPI_Datatype sendtypes[],
                   void *recvbuf, const int recvcounts[], const int rdispls[],
                   const MPI_Datatype recvtypes[], MPI_Comm comm,
                   MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_ALLTOALL, "MPI_Ialltoallw", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = to_all(&call,
                   &(struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                        .counts = sendcounts,
                                        .displs = sdispls,
                                        .types = sendtypes},
                   &(struct vcoll_side){.base = (char *)(uintptr_t)recvbuf,
                                        .counts = recvcounts,
                                        .displs = rdispls,
                                        .types = recvtypes});
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}
