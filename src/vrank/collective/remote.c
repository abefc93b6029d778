/*
 * Collectives of communicators that span processes. What is combined or
 * distributed passes a local collective in each process, and one rank of each,
 * its leader, exchanges it with the others; what differs from rank to rank goes
 * from rank to rank.
 *
 * Reductions give the same result at each run with the same placement: which
 * processes combine their parts depends only on the number of processes and,
 * where the operation commutes, on which of them the root is in.
 */
#include "internal.h"

/* Messages that one rank has under way at the same time, in exchanges of all
 * with all. */
#define WINDOW 32

/* Stages that one rank skips have neither a local collective nor a
 * schedule, so that stages have the same numbers everywhere. */
static void stage_local(struct vcoll_call *call,
                        const struct vcoll_local_ops *ops)
{
    call->stages[call->stage_count++].ops = ops;
}

static void stage_skip(struct vcoll_call *call)
{
    call->stage_count++;
}

/* A stage of messages; NULL: no memory. */
static struct vcoll_schedule *stage_schedule(struct vcoll_call *call)
{
    struct vcoll_schedule *schedule = vcoll_schedule_create();

    call->stages[call->stage_count++].schedule = schedule;
    return schedule;
}

static bool is_leader(const struct vcoll_call *call)
{
    return vcoll_leader(call, call->table->process) == call->comm->rank;
}

/* ---- between leaders --------------------------------------------------- */

/* Nothing is carried, but each waits for all others. */
static void leaders_barrier(struct vcoll_call *call,
                            struct vcoll_schedule *schedule)
{
    int count = call->table->processes, me = call->table->process;
    struct vcoll_piece nothing = {.type = MPI_BYTE};

    for (int step = 1; step < count; step *= 2) {
        vcoll_send(schedule, vcoll_leader(call, (me + step) % count), nothing);
        vcoll_receive(schedule, vcoll_leader(call, (me - step + count) % count),
                      nothing);
        vcoll_round(schedule);
    }
}

/* What the leader of process `root` carries, all carry. */
static void leaders_broadcast(struct vcoll_call *call,
                              struct vcoll_schedule *schedule, int root)
{
    int count = call->table->processes;
    int me = (call->table->process - root + count) % count, step = 1;

    while (step < count && (me & step) == 0) {
        step *= 2;
    }
    if (me != 0) {
        vcoll_receive(schedule, vcoll_leader(call, (me - step + root) % count),
                      call->carried);
        vcoll_round(schedule);
    }
    for (step /= 2; step > 0; step /= 2) {
        if (me + step < count) {
            vcoll_send(schedule, vcoll_leader(call, (me + step + root) % count),
                       call->carried);
        }
    }
    vcoll_round(schedule);
}

/* carried = carried op other, or other op carried if that is of lower ranks;
 * `other` is used up. */
static void combine_in(struct vcoll_call *call, struct vcoll_schedule *schedule,
                       struct vcoll_piece other, bool is_lower)
{
    if (is_lower || call->op->commutative) {
        vcoll_combine(schedule, other, call->carried.base);
    } else {
        vcoll_combine(schedule, call->carried, other.base);
        vcoll_copy(schedule, other, call->carried);
    }
}

/* Room for what another leader carries. */
static int other_room(struct vcoll_call *call, struct vcoll_piece *out)
{
    *out = call->carried;
    out->base = vcoll_alloc_elements(call, out->type, out->count);
    return out->base == NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS;
}

/* The tree of leaders_combine with process `top` in the first place: the place
 * of a process in it, and the other way round. Of a power of two processes each
 * has the same neighbours whatever the top, as in leaders_combine_all. */
static int tree_place(int count, int top, int process)
{
    return (count & (count - 1)) == 0 ? process ^ top
                                      : (process - top + count) % count;
}

static int tree_process(int count, int top, int place)
{
    return (count & (count - 1)) == 0 ? place ^ top : (place + top) % count;
}

/* The leader of process `root` comes to carry the combination of all. Where
 * order matters that of process 0 does first, and hands it over. */
static int leaders_combine(struct vcoll_call *call,
                           struct vcoll_schedule *schedule, int root)
{
    int count = call->table->processes, process = call->table->process;
    int top = call->op->commutative ? root : 0;
    int me = tree_place(count, top, process);
    struct vcoll_piece other;
    int code = other_room(call, &other);

    if (code != MPI_SUCCESS) {
        return code;
    }
    for (int step = 1; step < count; step *= 2) {
        if (me & step) {
            int to = tree_process(count, top, me - step);
            vcoll_send(schedule, vcoll_leader(call, to), call->carried);
            vcoll_round(schedule);
            break;
        }
        if (me + step < count) {
            int from = tree_process(count, top, me + step);
            vcoll_receive(schedule, vcoll_leader(call, from), other);
            combine_in(call, schedule, other, false);
            vcoll_round(schedule);
        }
    }
    if (top != root && process == top) {
        vcoll_send(schedule, vcoll_leader(call, root), call->carried);
    } else if (top != root && process == root) {
        vcoll_receive(schedule, vcoll_leader(call, top), call->carried);
    }
    vcoll_round(schedule);
    return MPI_SUCCESS;
}

/* All leaders come to carry the combination. */
static int leaders_combine_all(struct vcoll_call *call,
                               struct vcoll_schedule *schedule)
{
    int count = call->table->processes, me = call->table->process;
    struct vcoll_piece other;
    int code;

    if ((count & (count - 1)) != 0) {
        code = leaders_combine(call, schedule, 0);
        if (code == MPI_SUCCESS) {
            leaders_broadcast(call, schedule, 0);
        }
        return code;
    }
    code = other_room(call, &other);
    for (int step = 1; step < count && code == MPI_SUCCESS; step *= 2) {
        int peer = vcoll_leader(call, me ^ step);
        vcoll_receive(schedule, peer, other);
        vcoll_send(schedule, peer, call->carried);
        combine_in(call, schedule, other, (me & step) != 0);
        vcoll_round(schedule);
    }
    return code;
}

/* ---- barrier and broadcast ---------------------------------------------- */

static int plan_barrier(struct vcoll_call *call)
{
    stage_local(call, &vcoll_local_barrier);
    if (is_leader(call)) {
        struct vcoll_schedule *schedule = stage_schedule(call);
        if (schedule == NULL) {
            return MPI_ERR_NO_MEM;
        }
        leaders_barrier(call, schedule);
    } else {
        stage_skip(call);
    }
    stage_local(call, &vcoll_local_barrier);
    return MPI_SUCCESS;
}

/* What the leader of process `root` carries reaches all, in a local collective.
 */
static int plan_distribute(struct vcoll_call *call, int root,
                           const struct vcoll_local_ops *ops)
{
    if (is_leader(call)) {
        struct vcoll_schedule *schedule = stage_schedule(call);
        if (schedule == NULL) {
            return MPI_ERR_NO_MEM;
        }
        leaders_broadcast(call, schedule, root);
    } else {
        stage_skip(call);
    }
    stage_local(call, ops);
    return MPI_SUCCESS;
}

static int plan_bcast(struct vcoll_call *call)
{
    call->carried = vcoll_piece_of(&call->recv, 0);
    return plan_distribute(
        call, vcoll_table_process(call->table, call->comm, call->root),
        &vcoll_local_distribute);
}

/* ---- reductions --------------------------------------------------------- */

/* All operands come to rank `root`, which combines them: for operations where
 * order matters, and ranks that are scattered over the processes. */
static int plan_gather_operands(struct vcoll_call *call, int root)
{
    struct vcoll_schedule *schedule = stage_schedule(call);
    struct vcoll_piece mine = call->carried;
    int size = call->comm->size;
    char **operands;

    mine.base = vcoll_operand(call);
    if (schedule == NULL) {
        return MPI_ERR_NO_MEM;
    }
    if (call->comm->rank != root) {
        vcoll_send(schedule, root, mine);
        return MPI_SUCCESS;
    }
    operands = vcoll_alloc(call, (size_t)size * sizeof *operands);
    for (int i = 0; operands != NULL && i < size; i++) {
        operands[i] = vcoll_alloc_elements(call, mine.type, mine.count);
        if (operands[i] == NULL) {
            return MPI_ERR_NO_MEM;
        }
        struct vcoll_piece operand = {operands[i], mine.count, mine.type};
        if (i == root) {
            vcoll_copy(schedule, mine, operand);
        } else {
            vcoll_receive(schedule, i, operand);
        }
    }
    if (operands == NULL) {
        return MPI_ERR_NO_MEM;
    }
    vcoll_round(schedule);
    vcoll_copy(schedule,
               (struct vcoll_piece){operands[size - 1], mine.count, mine.type},
               call->carried);
    for (int i = size - 2; i >= 0; i--) {
        vcoll_combine(schedule,
                      (struct vcoll_piece){operands[i], mine.count, mine.type},
                      call->carried.base);
    }
    return MPI_SUCCESS;
}

/* What a rank carries of a reduction. */
static int carry(struct vcoll_call *call, size_t count, char *base)
{
    call->carried = (struct vcoll_piece){base, count, call->recv.type};
    if (base == NULL) {
        call->carried.base = vcoll_alloc_elements(call, call->recv.type, count);
    }
    return call->carried.base == NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS;
}

static bool is_in_order(const struct vcoll_call *call)
{
    return call->op->commutative || call->table->contiguous;
}

static int plan_reduce(struct vcoll_call *call)
{
    int root = vcoll_table_process(call->table, call->comm, call->root);
    bool is_root = call->comm->rank == call->root;
    struct vcoll_schedule *schedule;
    int code = MPI_SUCCESS;

    call->carried =
        (struct vcoll_piece){NULL, (size_t)call->recv.count, call->recv.type};
    if (is_root || is_leader(call)) {
        code =
            carry(call, call->carried.count, is_root ? call->recv.base : NULL);
    }
    if (code != MPI_SUCCESS || !is_in_order(call)) {
        return code != MPI_SUCCESS ? code
                                   : plan_gather_operands(call, call->root);
    }
    stage_local(call, &vcoll_local_combine);
    if (!is_leader(call)) {
        return MPI_SUCCESS;
    }
    schedule = stage_schedule(call);
    return schedule == NULL ? MPI_ERR_NO_MEM
                            : leaders_combine(call, schedule, root);
}

/* All leaders carry the combination of `count` elements, and all ranks take
 * what they need in a local collective. */
static int plan_combine_all(struct vcoll_call *call,
                            const struct vcoll_local_ops *end)
{
    struct vcoll_schedule *schedule;
    int code;

    if (!is_in_order(call)) {
        code = plan_gather_operands(call, 0);
        return code != MPI_SUCCESS ? code : plan_distribute(call, 0, end);
    }
    stage_local(call, &vcoll_local_combine);
    if (is_leader(call)) {
        schedule = stage_schedule(call);
        code = schedule == NULL ? MPI_ERR_NO_MEM
                                : leaders_combine_all(call, schedule);
        if (code != MPI_SUCCESS) {
            return code;
        }
    } else {
        stage_skip(call);
    }
    stage_local(call, end);
    return MPI_SUCCESS;
}

static int plan_allreduce(struct vcoll_call *call)
{
    int code = carry(call, (size_t)call->recv.count, call->recv.base);

    return code != MPI_SUCCESS
               ? code
               : plan_combine_all(call, &vcoll_local_distribute);
}

static int plan_reduce_scatter(struct vcoll_call *call)
{
    size_t count = vcoll_reduced_elements(call, call->comm->size);
    int code = MPI_SUCCESS;

    call->carried = (struct vcoll_piece){NULL, count, call->recv.type};
    if (is_leader(call)) {
        code = carry(call, count, NULL);
    }
    return code != MPI_SUCCESS ? code
                               : plan_combine_all(call, &vcoll_local_segment);
}

/* From rank to rank, each adding its own. */
static int plan_scan(struct vcoll_call *call)
{
    struct vcoll_schedule *schedule = stage_schedule(call);
    bool without = call->kind == COLL_EXSCAN;
    struct vcoll_piece mine = {vcoll_operand(call), (size_t)call->recv.count,
                               call->recv.type};
    struct vcoll_piece sum = mine, before = mine, result = mine;
    int rank = call->comm->rank;

    result.base = call->recv.base;
    sum.base = vcoll_alloc_elements(call, mine.type, mine.count);
    before.base = vcoll_alloc_elements(call, mine.type, mine.count);
    if (schedule == NULL || sum.base == NULL || before.base == NULL) {
        return MPI_ERR_NO_MEM;
    }
    vcoll_copy(schedule, mine, sum);
    if (rank > 0) {
        vcoll_receive(schedule, rank - 1, before);
        vcoll_combine(schedule, before, sum.base);
    }
    if (!without || rank > 0) {
        vcoll_copy(schedule, without ? before : sum, result);
    }
    vcoll_round(schedule);
    if (rank < call->comm->size - 1) {
        vcoll_send(schedule, rank + 1, sum);
    }
    return MPI_SUCCESS;
}

/* ---- each its own ------------------------------------------------------- */

static int plan_gather(struct vcoll_call *call)
{
    struct vcoll_schedule *schedule = stage_schedule(call);

    if (schedule == NULL) {
        return MPI_ERR_NO_MEM;
    }
    if (call->comm->rank != call->root) {
        vcoll_send(schedule, call->root, vcoll_piece_of(&call->send, 0));
        return MPI_SUCCESS;
    }
    for (int i = 0; i < call->comm->size; i++) {
        struct vcoll_piece piece = vcoll_piece_of(&call->recv, i);
        if (i != call->root) {
            vcoll_receive(schedule, i, piece);
        } else if (!call->in_place) {
            vcoll_copy(schedule, vcoll_piece_of(&call->send, 0), piece);
        }
    }
    return MPI_SUCCESS;
}

static int plan_scatter(struct vcoll_call *call)
{
    struct vcoll_schedule *schedule = stage_schedule(call);

    if (schedule == NULL) {
        return MPI_ERR_NO_MEM;
    }
    if (call->comm->rank != call->root) {
        vcoll_receive(schedule, call->root, vcoll_piece_of(&call->recv, 0));
        return MPI_SUCCESS;
    }
    for (int i = 0; i < call->comm->size; i++) {
        struct vcoll_piece piece = vcoll_piece_of(&call->send, i);
        if (i != call->root) {
            vcoll_send(schedule, i, piece);
        } else if (!call->in_place) {
            vcoll_copy(schedule, piece, vcoll_piece_of(&call->recv, 0));
        }
    }
    return MPI_SUCCESS;
}

/* Rank 0 gathers everything without gaps, the leaders pass it on, and each
 * rank puts the pieces where they belong. */
static int plan_allgather(struct vcoll_call *call)
{
    struct vcoll_schedule *schedule = stage_schedule(call);
    int rank = call->comm->rank;
    struct vcoll_piece mine = call->in_place ? vcoll_piece_of(&call->recv, rank)
                                             : vcoll_piece_of(&call->send, 0);
    size_t bytes = 0;

    for (int i = 0; i < call->comm->size; i++) {
        struct vcoll_piece piece = vcoll_piece_of(&call->recv, i);
        bytes += vcoll_piece_bytes(&piece);
    }
    call->carried = (struct vcoll_piece){NULL, bytes, MPI_BYTE};
    if (is_leader(call)) {
        call->carried.base = vcoll_alloc(call, bytes);
    }
    if (schedule == NULL || (is_leader(call) && call->carried.base == NULL)) {
        return MPI_ERR_NO_MEM;
    }
    if (rank != 0) {
        vcoll_send(schedule, 0, mine);
        return plan_distribute(call, 0, &vcoll_local_unpack);
    }
    bytes = 0;
    for (int i = 0; i < call->comm->size; i++) {
        struct vcoll_piece piece = vcoll_piece_of(&call->recv, i);
        struct vcoll_piece packed = {call->carried.base + bytes,
                                     vcoll_piece_bytes(&piece), MPI_BYTE};
        bytes += packed.count;
        if (i == 0) {
            vcoll_copy(schedule, mine, packed);
        } else {
            vcoll_receive(schedule, i, packed);
        }
    }
    return plan_distribute(call, 0, &vcoll_local_unpack);
}

static int plan_alltoall(struct vcoll_call *call)
{
    struct vcoll_schedule *schedule = stage_schedule(call);
    int rank = call->comm->rank, size = call->comm->size;

    if (schedule == NULL) {
        return MPI_ERR_NO_MEM;
    }
    vcoll_copy(schedule, vcoll_piece_of(&call->send, rank),
               vcoll_piece_of(&call->recv, rank));
    for (int distance = 1; distance < size; distance++) {
        int to = (rank + distance) % size;
        int from = (rank - distance + size) % size;
        vcoll_receive(schedule, from, vcoll_piece_of(&call->recv, from));
        vcoll_send(schedule, to, vcoll_piece_of(&call->send, to));
        if (distance % WINDOW == 0) {
            vcoll_round(schedule);
        }
    }
    return MPI_SUCCESS;
}

int vcoll_plan_remote(struct vcoll_call *call)
{
    static int (*const plans[COLL_KINDS])(struct vcoll_call *) = {
        [COLL_BARRIER] = plan_barrier,
        [COLL_BCAST] = plan_bcast,
        [COLL_GATHER] = plan_gather,
        [COLL_SCATTER] = plan_scatter,
        [COLL_ALLGATHER] = plan_allgather,
        [COLL_ALLTOALL] = plan_alltoall,
        [COLL_REDUCE] = plan_reduce,
        [COLL_ALLREDUCE] = plan_allreduce,
        [COLL_REDUCE_SCATTER] = plan_reduce_scatter,
        [COLL_SCAN] = plan_scan,
        [COLL_EXSCAN] = plan_scan};

    return plans[call->kind](call);
}
