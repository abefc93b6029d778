/*
 * The collective functions of MPI that combine data: the families of
 * MPI_Reduce, MPI_Allreduce, MPI_Reduce_scatter, MPI_Scan and MPI_Exscan.
 */
#include "args.h"

static int reduce(struct vcoll_call *call)
{
    bool between = call->comm->remote != NULL;
    int code;

    call->in_place = call->send.base == MPI_IN_PLACE;
    if (call->in_place) {
        call->send = (struct vcoll_side){0};
    }
    if (call->kind == COLL_REDUCE) {
        code = vcoll_args_root(call, call->root);
        if (code != MPI_SUCCESS) {
            return code;
        }
        if (call->root == MPI_PROC_NULL) {
            return MPI_SUCCESS;
        }
    }
    code = vcoll_args_side(call, &call->recv);
    if (code == MPI_SUCCESS) {
        code = op_check(call->op, call->recv.type);
    }
    if (code == MPI_SUCCESS && call->in_place &&
        (between ||
         (call->kind == COLL_REDUCE && call->comm->rank != call->root))) {
        code = MPI_ERR_BUFFER;
    }
    return code;
}

int MPI_Reduce(const void *sendbuf, void *recvbuf, int count,
               MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_REDUCE,
                              .name = "MPI_Reduce",
                              .root = root,
                              .op = op,
                              .send = vcoll_each(sendbuf, count, datatype),
                              .recv = vcoll_each(recvbuf, count, datatype)};

    return vcoll_args_go(&call, comm, reduce, NULL);
}

int MPI_Ireduce(const void *sendbuf, void *recvbuf, int count,
                MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm,
                MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_REDUCE,
                              .name = "MPI_Ireduce",
                              .root = root,
                              .op = op,
                              .send = vcoll_each(sendbuf, count, datatype),
                              .recv = vcoll_each(recvbuf, count, datatype)};

    return vcoll_args_go(&call, comm, reduce, request);
}

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count,
                  MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_ALLREDUCE,
                              .name = "MPI_Allreduce",
                              .op = op,
                              .send = vcoll_each(sendbuf, count, datatype),
                              .recv = vcoll_each(recvbuf, count, datatype)};

    return vcoll_args_go(&call, comm, reduce, NULL);
}

int MPI_Iallreduce(const void *sendbuf, void *recvbuf, int count,
                   MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_ALLREDUCE,
                              .name = "MPI_Iallreduce",
                              .op = op,
                              .send = vcoll_each(sendbuf, count, datatype),
                              .recv = vcoll_each(recvbuf, count, datatype)};

    return vcoll_args_go(&call, comm, reduce, request);
}

int MPI_Reduce_scatter(const void *sendbuf, void *recvbuf,
                       const int recvcounts[], MPI_Datatype datatype, MPI_Op op,
                       MPI_Comm comm)
{
    struct vcoll_call call = {
        .kind = COLL_REDUCE_SCATTER,
        .name = "MPI_Reduce_scatter",
        .op = op,
        .send = vcoll_lengths(sendbuf, recvcounts, NULL, datatype),
        .recv = vcoll_lengths(recvbuf, recvcounts, NULL, datatype)};

    return vcoll_args_go(&call, comm, reduce, NULL);
}

int MPI_Ireduce_scatter(const void *sendbuf, void *recvbuf,
                        const int recvcounts[], MPI_Datatype datatype,
                        MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call = {
        .kind = COLL_REDUCE_SCATTER,
        .name = "MPI_Ireduce_scatter",
        .op = op,
        .send = vcoll_lengths(sendbuf, recvcounts, NULL, datatype),
        .recv = vcoll_lengths(recvbuf, recvcounts, NULL, datatype)};

    return vcoll_args_go(&call, comm, reduce, request);
}

int MPI_Reduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount,
                             MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_REDUCE_SCATTER,
                              .name = "MPI_Reduce_scatter_block",
                              .op = op,
                              .send = vcoll_each(sendbuf, recvcount, datatype),
                              .recv = vcoll_each(recvbuf, recvcount, datatype)};

    return vcoll_args_go(&call, comm, reduce, NULL);
}

int MPI_Ireduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount,
                              MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                              MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_REDUCE_SCATTER,
                              .name = "MPI_Ireduce_scatter_block",
                              .op = op,
                              .send = vcoll_each(sendbuf, recvcount, datatype),
                              .recv = vcoll_each(recvbuf, recvcount, datatype)};

    return vcoll_args_go(&call, comm, reduce, request);
}

int MPI_Scan(const void *sendbuf, void *recvbuf, int count,
             MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_SCAN,
                              .name = "MPI_Scan",
                              .op = op,
                              .send = vcoll_each(sendbuf, count, datatype),
                              .recv = vcoll_each(recvbuf, count, datatype)};

    return vcoll_args_go(&call, comm, reduce, NULL);
}

int MPI_Iscan(const void *sendbuf, void *recvbuf, int count,
              MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
              MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_SCAN,
                              .name = "MPI_Iscan",
                              .op = op,
                              .send = vcoll_each(sendbuf, count, datatype),
                              .recv = vcoll_each(recvbuf, count, datatype)};

    return vcoll_args_go(&call, comm, reduce, request);
}

int MPI_Exscan(const void *sendbuf, void *recvbuf, int count,
               MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    struct vcoll_call call = {.kind = COLL_EXSCAN,
                              .name = "MPI_Exscan",
                              .op = op,
                              .send = vcoll_each(sendbuf, count, datatype),
                              .recv = vcoll_each(recvbuf, count, datatype)};

    return vcoll_args_go(&call, comm, reduce, NULL);
}

int MPI_Iexscan(const void *sendbuf, void *recvbuf, int count,
                MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                MPI_Request *request)
{
    struct vcoll_call call = {.kind = COLL_EXSCAN,
                              .name = "MPI_Iexscan",
                              .op = op,
                              .send = vcoll_each(sendbuf, count, datatype),
                              .recv = vcoll_each(recvbuf, count, datatype)};

    return vcoll_args_go(&call, comm, reduce, request);
}
