/*
 * The collective functions of MPI that combine data: the families of
 * MPI_Reduce, MPI_Allreduce, MPI_Reduce_scatter, MPI_Scan and MPI_Exscan.
 */
#include "coll_args.h"

/* `count` elements of each rank, or as `counts` says. */
static int reduce(struct vcoll_call *call, const void *sendbuf, void *recvbuf,
                  int count, const int *counts, MPI_Datatype datatype,
                  MPI_Op op)
{
    bool between = call->comm->remote != NULL;
    int error;

    call->op = op;
    call->in_place = sendbuf == MPI_IN_PLACE;
    call->recv = (struct vcoll_side){
        .base = recvbuf, .count = count, .type = datatype, .counts = counts};
    if (!call->in_place) {
        call->send = (struct vcoll_side){.base = (char *)(uintptr_t)sendbuf,
                                         .count = count,
                                         .type = datatype,
                                         .counts = counts};
    }
    if (call->kind == COLL_REDUCE) {
        error = vcoll_args_root(call, call->root);
        if (error != MPI_SUCCESS) {
            return vcoll_args_fail(call, error);
        }
        if (call->root == MPI_PROC_NULL) {
            return MPI_SUCCESS;
        }
    }
    error = vcoll_args_side(call, &call->recv);
    if (error == MPI_SUCCESS) {
        error = op_check(op, datatype);
    }
    if (error == MPI_SUCCESS && call->in_place &&
        (between ||
         (call->kind == COLL_REDUCE && call->comm->rank != call->root))) {
        error = MPI_ERR_BUFFER;
    }
    return vcoll_args_fail(call, error);
}

int MPI_Reduce(const void *sendbuf, void *recvbuf, int count,
               MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_REDUCE, "MPI_Reduce", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    call.root = root;
    error = reduce(&call, sendbuf, recvbuf, count, NULL, datatype, op);
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Ireduce(const void *sendbuf, void *recvbuf, int count,
                MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm,
                MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_REDUCE, "MPI_Ireduce", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    call.root = root;
    error = reduce(&call, sendbuf, recvbuf, count, NULL, datatype, op);
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count,
                  MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_ALLREDUCE, "MPI_Allreduce", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = reduce(&call, sendbuf, recvbuf, count, NULL, datatype, op);
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Iallreduce(const void *sendbuf, void *recvbuf, int count,
                   MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_ALLREDUCE, "MPI_Iallreduce", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = reduce(&call, sendbuf, recvbuf, count, NULL, datatype, op);
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

int MPI_Reduce_scatter(const void *sendbuf, void *recvbuf,
                       const int recvcounts[], MPI_Datatype datatype, MPI_Op op,
                       MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_REDUCE_SCATTER,
                                 "MPI_Reduce_scatter", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = reduce(&call, sendbuf, recvbuf, 0, recvcounts, datatype, op);
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Ireduce_scatter(const void *sendbuf, void *recvbuf,
                        const int recvcounts[], MPI_Datatype datatype,
                        MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_REDUCE_SCATTER,
                                 "MPI_Ireduce_scatter", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = reduce(&call, sendbuf, recvbuf, 0, recvcounts, datatype, op);
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

int MPI_Reduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount,
                             MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_REDUCE_SCATTER,
                                 "MPI_Reduce_scatter_block", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = reduce(&call, sendbuf, recvbuf, recvcount, NULL, datatype, op);
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Ireduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount,
                              MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                              MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_REDUCE_SCATTER,
                                 "MPI_Ireduce_scatter_block", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = reduce(&call, sendbuf, recvbuf, recvcount, NULL, datatype, op);
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

int MPI_Scan(const void *sendbuf, void *recvbuf, int count,
             MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_SCAN, "MPI_Scan", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = reduce(&call, sendbuf, recvbuf, count, NULL, datatype, op);
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Iscan(const void *sendbuf, void *recvbuf, int count,
              MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
              MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_SCAN, "MPI_Iscan", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = reduce(&call, sendbuf, recvbuf, count, NULL, datatype, op);
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}

int MPI_Exscan(const void *sendbuf, void *recvbuf, int count,
               MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_EXSCAN, "MPI_Exscan", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = reduce(&call, sendbuf, recvbuf, count, NULL, datatype, op);
    return error == MPI_SUCCESS ? vcoll_run(&call) : error;
}

int MPI_Iexscan(const void *sendbuf, void *recvbuf, int count,
                MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                MPI_Request *request)
{
    struct vcoll_call call;
    int error = vcoll_args_enter(&call, COLL_EXSCAN, "MPI_Iexscan", comm);

    if (error != MPI_SUCCESS) {
        return error;
    }
    error = reduce(&call, sendbuf, recvbuf, count, NULL, datatype, op);
    return error == MPI_SUCCESS ? vcoll_start(&call, request) : error;
}
