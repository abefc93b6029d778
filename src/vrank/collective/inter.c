/*
 * Collectives of intercommunicators: from one group to the other, rank to rank.
 * MPI_ROOT, MPI_PROC_NULL and ranks of the other group say which ranks send and
 * which receive. Source: MPI 3.1, 5.2.2 and 5.2.3.
 */
#include "internal.h"

/* The combination of what all of the other group have, in rank order. */
static int receive_operands(struct vcoll_call *call,
                            struct vcoll_schedule *schedule, size_t count,
                            char *result)
{
    MPI_Datatype type = call->recv.type;
    int size = call->comm->remote->size;
    struct vcoll_piece last = {NULL, count, type};
    struct vcoll_piece *operands =
        vcoll_alloc(call, (size_t)size * sizeof *operands);

    if (operands == NULL) {
        return MPI_ERR_NO_MEM;
    }
    for (int i = 0; i < size; i++) {
        operands[i] = last;
        operands[i].base = vcoll_alloc_elements(call, type, count);
        if (operands[i].base == NULL) {
            return MPI_ERR_NO_MEM;
        }
        vcoll_receive(schedule, i, operands[i]);
    }
    last = operands[size - 1];
    for (int i = size - 2; i >= 0; i--) {
        vcoll_combine(schedule, operands[i], last.base);
    }
    vcoll_copy(schedule, last, (struct vcoll_piece){result, count, type});
    return MPI_SUCCESS;
}

static int plan_reduce(struct vcoll_call *call, struct vcoll_schedule *schedule)
{
    struct vcoll_piece mine = {call->send.base, (size_t)call->recv.count,
                               call->recv.type};

    if (call->root == MPI_ROOT) {
        return receive_operands(call, schedule, mine.count, call->recv.base);
    }
    vcoll_send(schedule, call->root, mine);
    return MPI_SUCCESS;
}

/* MPI_Allreduce and MPI_Reduce_scatter: each rank receives from all of the
 * other group. */
static int plan_combine(struct vcoll_call *call,
                        struct vcoll_schedule *schedule)
{
    size_t count = vcoll_reduced_elements(call, call->comm->size);
    size_t first = vcoll_reduced_elements(call, call->comm->rank);
    MPI_Datatype type = call->recv.type;
    char *result = call->recv.base;
    int code;

    for (int i = 0; i < call->comm->remote->size; i++) {
        vcoll_send(schedule, i,
                   (struct vcoll_piece){call->send.base, count, type});
    }
    if (call->kind == COLL_ALLREDUCE) {
        return receive_operands(call, schedule, count, result);
    }
    result = vcoll_alloc_elements(call, type, count);
    if (result == NULL) {
        return MPI_ERR_NO_MEM;
    }
    code = receive_operands(call, schedule, count, result);
    count = vcoll_reduced_elements(call, call->comm->rank + 1) - first;
    vcoll_copy(schedule,
               (struct vcoll_piece){
                   result + (ptrdiff_t)first * type_extent(type), count, type},
               (struct vcoll_piece){call->recv.base, count, type});
    return code;
}

/* MPI_Bcast, MPI_Gather and MPI_Scatter. */
static int plan_rooted(struct vcoll_call *call, struct vcoll_schedule *schedule)
{
    bool gathers = call->kind == COLL_GATHER;

    for (int i = 0; call->root == MPI_ROOT && i < call->comm->remote->size;
         i++) {
        if (gathers) {
            vcoll_receive(schedule, i, vcoll_piece_of(&call->recv, i));
        } else if (call->kind == COLL_SCATTER) {
            vcoll_send(schedule, i, vcoll_piece_of(&call->send, i));
        } else {
            vcoll_send(schedule, i, vcoll_piece_of(&call->recv, 0));
        }
    }
    if (call->root >= 0 && gathers) {
        vcoll_send(schedule, call->root, vcoll_piece_of(&call->send, 0));
    } else if (call->root >= 0) {
        vcoll_receive(schedule, call->root, vcoll_piece_of(&call->recv, 0));
    }
    return MPI_SUCCESS;
}

/* MPI_Barrier, MPI_Allgather and MPI_Alltoall. */
static int plan_exchange(struct vcoll_call *call,
                         struct vcoll_schedule *schedule)
{
    struct vcoll_piece in = {.type = MPI_BYTE}, out = in;

    for (int i = 0; i < call->comm->remote->size; i++) {
        if (call->kind != COLL_BARRIER) {
            in = vcoll_piece_of(&call->recv, i);
            out = vcoll_piece_of(&call->send,
                                 call->kind == COLL_ALLTOALL ? i : 0);
        }
        vcoll_receive(schedule, i, in);
        vcoll_send(schedule, i, out);
    }
    return MPI_SUCCESS;
}

int vcoll_plan_inter(struct vcoll_call *call)
{
    struct vcoll_schedule *schedule = vcoll_schedule_create();

    call->stages[call->stage_count++].schedule = schedule;
    if (schedule == NULL) {
        return MPI_ERR_NO_MEM;
    }
    if (call->root == MPI_PROC_NULL) {
        return MPI_SUCCESS;
    }
    switch (call->kind) {
    case COLL_BCAST:
    case COLL_GATHER:
    case COLL_SCATTER:
        return plan_rooted(call, schedule);
    case COLL_REDUCE:
        return plan_reduce(call, schedule);
    case COLL_ALLREDUCE:
    case COLL_REDUCE_SCATTER:
        return plan_combine(call, schedule);
    case COLL_BARRIER:
    case COLL_ALLGATHER:
    case COLL_ALLTOALL:
        return plan_exchange(call, schedule);
    default:
        /* MPI has no prefixes and no neighbours between groups. */
        return MPI_ERR_COMM;
    }
}
