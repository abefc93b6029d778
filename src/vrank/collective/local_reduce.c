/*
 * Reductions in local collectives. The last one to arrive combines what all
 * have contributed.
 *
 * The result is the same at each run: operands are combined in the order of
 * ranks, by a tree whose shape depends on the number of members alone, not on
 * the order in which they arrive, nor on the number of workers. Where processes
 * hold blocks of a power of two ranks the upper levels of the tree are the
 * exchanges of remote.c, so that the number of processes does not matter
 * either; but for MPI_Reduce of a commutative operation to a root that is not
 * in the first of them, if their number is no power of two: that process is the
 * top of the tree then.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "vrank/context/context.h"

/* Operands are combined in blocks of this size, which stay in the cache. */
#define BLOCK_BYTES 8192
/* The same where they may have to come from disk. */
#define BLOCK_FAR_BYTES ((size_t)1 << 20)

/* ---- operands ----------------------------------------------------------- */

size_t vcoll_reduced_elements(const struct vcoll_call *call, int ranks)
{
    size_t count = 0;

    if (call->recv.counts == NULL) {
        return (size_t)call->recv.count *
               (call->kind == COLL_REDUCE_SCATTER ? (size_t)ranks : 1);
    }
    for (int i = 0; i < ranks; i++) {
        count += (size_t)call->recv.counts[i];
    }
    return count;
}

/* How far apart small operands lie: together in as few cache lines as can be.
 */
static size_t small_stride(size_t bytes)
{
    return bytes <= 8 ? 8 : COLL_SMALL;
}

static bool reduce_contribute(struct vcoll_local *local,
                              struct vcoll_call *call)
{
    size_t count = vcoll_reduced_elements(call, call->comm->size);
    size_t bytes = type_bytes(call->recv.type, count);

    if (call->recv.type->dense && bytes <= COLL_SMALL) {
        memcpy(local->small + (size_t)call->place * small_stride(bytes),
               vcoll_operand(call), bytes);
        local->contributions[call->place].is_small = true;
    } else {
        int worker = call->table->worker_of[call->place];
        local->workers[worker].large = true;
    }
    return false;
}

/* Whether all operands lie in the local collective: seen without a look at each
 * contribution, which other workers have written. */
static bool all_small(const struct vcoll_local *local,
                      const struct vcoll_table *table)
{
    for (int w = 0; w < table->workers; w++) {
        if (local->workers[w].large) {
            return false;
        }
    }
    return true;
}

static const char *operand(const struct vcoll_local *local, int place,
                           size_t bytes)
{
    const struct vcoll_contribution *contribution =
        &local->contributions[place];

    return contribution->is_small
               ? local->small + (size_t)place * small_stride(bytes)
               : vcoll_operand(contribution->call);
}

static void copy_elements(MPI_Datatype type, size_t count, const char *from,
                          char *to)
{
    if (from != to) {
        type_copy(type, count, from, type, count, to, type_bytes(type, count));
    }
}

/* Elements from `first` on of an operand, in memory. */
static const char *operand_near(const struct vcoll_local *local, int place,
                                const struct vcoll_call *call, size_t total,
                                size_t first, size_t count)
{
    MPI_Datatype type = call->recv.type;
    const char *from = operand(local, place, type_bytes(type, total)) +
                       (ptrdiff_t)first * type_extent(type);

    if (local->near == NULL || !context_covers(from + type->true_lb)) {
        return from;
    }
    copy_elements(type, count, from, local->near);
    return local->near;
}

/*
 * How operands are combined: in pairs of neighbours, those pairs in pairs, and
 * so on, like
 *
 *     ((0 op 1) op (2 op 3)) op (4 op 5)
 *
 * A sum in floating point is also more exact that way than one after another.
 */

/* Elements that are combined at the same time. */
struct combination {
    struct vcoll_local *local;
    const struct vcoll_call *call;
    size_t total;        /* elements of an operand */
    size_t first, count; /* those of them */
    char *rooms[32];     /* for `count` elements each */
};

static const char *combination_operand(const struct combination *c, int place)
{
    return operand_near(c->local, place, c->call, c->total, c->first, c->count);
}

/* The operands of `members` places from `place` on, combined, in `to`; rooms
 * below `room` are in use. */
static void combine_places(const struct combination *c, int place, int members,
                           char *to, int room)
{
    MPI_Datatype type = c->call->recv.type;
    int half = 1;

    if (members == 1) {
        copy_elements(type, c->count, combination_operand(c, place), to);
        return;
    }
    while (half * 2 < members) {
        half *= 2;
    }
    if (half > 1) {
        combine_places(c, place, half, c->rooms[room], room + 1);
    }
    combine_places(c, place + half, members - half, to, room + 1);
    op_apply(c->call->op, type, c->count,
             half > 1 ? c->rooms[room] : combination_operand(c, place), to);
}

/* The same of operands that all lie in the local collective, where they are
 * used up. */
static void combine_small(struct vcoll_local *local,
                          const struct vcoll_call *call, size_t count)
{
    MPI_Datatype type = call->recv.type;
    size_t bytes = type_bytes(type, count), stride = small_stride(bytes);
    size_t end = (size_t)call->table->members * stride;
    op_function *function = op_of_basic(call->op, type, &count);
    char *small = local->small;

    for (size_t step = stride; step < end; step *= 2) {
        for (size_t at = 0; at + step < end; at += 2 * step) {
            function(small + at + step, small + at, count);
        }
    }
    memcpy(local->result, small, bytes);
}

/* Room for the result; in the local collective itself for a short one. */
static char *result_room(struct vcoll_local *local, MPI_Datatype type,
                         size_t count)
{
    return type->dense && type_bytes(type, count) <= COLL_SMALL
               ? local->small_result
               : vcoll_memory_elements(&local->memory, type, count);
}

/* All `count` elements, so many at a time. */
static int combine_blocks(struct vcoll_local *local,
                          const struct vcoll_call *call, size_t count,
                          size_t block)
{
    MPI_Datatype type = call->recv.type;
    int members = call->table->members;
    struct combination c = {.local = local, .call = call, .total = count};

    for (int i = 0; ((int64_t)2 << i) < members; i++) {
        c.rooms[i] = vcoll_memory_elements(&local->memory, type, block);
        if (c.rooms[i] == NULL) {
            return MPI_ERR_NO_MEM;
        }
    }
    for (; c.first < count; c.first += c.count) {
        c.count = count - c.first < block ? count - c.first : block;
        combine_places(&c, 0, members,
                       local->result + (ptrdiff_t)c.first * type_extent(type),
                       0);
    }
    return MPI_SUCCESS;
}

static int combine_once(struct vcoll_local *local, struct vcoll_call *call)
{
    MPI_Datatype type = call->recv.type;
    size_t count = vcoll_reduced_elements(call, call->comm->size);
    size_t block = count, each;

    local->result = result_room(local, type, count);
    if (local->result == NULL) {
        return MPI_ERR_NO_MEM;
    }
    if (local->result == local->small_result && call->op->predefined &&
        call->op->commutative && all_small(local, call->table)) {
        combine_small(local, call, count);
        return MPI_SUCCESS;
    }
    each = type->dense ? type->size : (size_t)labs(type_extent(type));
    if (each > 0) {
        block = (context_span > 0 ? BLOCK_FAR_BYTES : BLOCK_BYTES) / each + 1;
    }
    block = block < count ? block : count;
    if (context_span > 0) {
        local->near = vcoll_memory_elements(&local->memory, type, block);
        if (local->near == NULL) {
            return MPI_ERR_NO_MEM;
        }
    }
    return combine_blocks(local, call, count, block);
}

/* ---- where the result goes ---------------------------------------------- */

static int take_result(const struct vcoll_local *local,
                       const struct vcoll_call *call, size_t first,
                       size_t count, char *to)
{
    MPI_Datatype type = call->recv.type;

    copy_elements(type, count,
                  local->result + (ptrdiff_t)first * type_extent(type), to);
    return MPI_SUCCESS;
}

static int reduce_each(struct vcoll_local *local, struct vcoll_call *call)
{
    return call->comm->rank == call->root
               ? take_result(local, call, 0, (size_t)call->recv.count,
                             call->recv.base)
               : MPI_SUCCESS;
}

static int allreduce_each(struct vcoll_local *local, struct vcoll_call *call)
{
    return take_result(local, call, 0, (size_t)call->recv.count,
                       call->recv.base);
}

static int reduce_scatter_each(struct vcoll_local *local,
                               struct vcoll_call *call)
{
    int rank = call->comm->rank;
    size_t first = vcoll_reduced_elements(call, rank);

    return take_result(local, call, first,
                       vcoll_reduced_elements(call, rank + 1) - first,
                       call->recv.base);
}

/* Between processes: the process's leader carries on with the result. */
static int combine_each(struct vcoll_local *local, struct vcoll_call *call)
{
    return call->comm->rank == vcoll_leader(call, call->table->process)
               ? take_result(local, call, 0, call->carried.count,
                             call->carried.base)
               : MPI_SUCCESS;
}

/* Then each takes its segment of what the leader carries. */
static bool segment_contribute(struct vcoll_local *local,
                               struct vcoll_call *call)
{
    (void)local;
    return call->comm->rank == vcoll_leader(call, call->table->process);
}

static int segment_each(struct vcoll_local *local, struct vcoll_call *call)
{
    int rank = call->comm->rank;
    int place = vcoll_table_place(call->table,
                                  vcoll_leader(call, call->table->process));
    size_t first = vcoll_reduced_elements(call, rank);
    MPI_Datatype type = call->recv.type;

    copy_elements(type, vcoll_reduced_elements(call, rank + 1) - first,
                  local->contributions[place].call->carried.base +
                      (ptrdiff_t)first * type_extent(type),
                  call->recv.base);
    return MPI_SUCCESS;
}

/* ---- prefixes ----------------------------------------------------------- */

/* Prefixes in room of their own, so that only one member's buffer is needed at
 * a time. Without a rank's own operand (`inclusive`) the first one's result
 * stays as it was. */
static int prefix_once(struct vcoll_local *local, struct vcoll_call *call,
                       bool inclusive)
{
    MPI_Datatype type = call->recv.type;
    size_t count = (size_t)call->recv.count;
    char *before = result_room(local, type, count), *spare;

    local->result = before;
    if (type->dense && type_bytes(type, count) <= COLL_SMALL) {
        spare = local->small;
    } else {
        spare = result_room(local, type, count);
    }
    if (before == NULL || spare == NULL) {
        return MPI_ERR_NO_MEM;
    }
    for (int i = 0; i < call->table->members; i++) {
        const struct vcoll_call *member = local->contributions[i].call;
        char *next = i > 0 ? spare : before;
        copy_elements(type, count, vcoll_operand(member), next);
        if (i > 0 && !inclusive) {
            copy_elements(type, count, before, member->recv.base);
        }
        if (i > 0) {
            op_apply(call->op, type, count, before, next);
            spare = before;
            before = next;
        }
        if (inclusive) {
            copy_elements(type, count, before, member->recv.base);
        }
    }
    return MPI_SUCCESS;
}

/* Each result is the one before, combined with the own operand: there is no
 * need for other room. */
static int scan_once(struct vcoll_local *local, struct vcoll_call *call)
{
    MPI_Datatype type = call->recv.type;
    size_t count = (size_t)call->recv.count;

    if (context_span > 0) {
        return prefix_once(local, call, true);
    }
    for (int i = 0; i < call->table->members; i++) {
        const struct vcoll_call *member = local->contributions[i].call;
        copy_elements(type, count, vcoll_operand(member), member->recv.base);
        if (i > 0) {
            op_apply(call->op, type, count,
                     local->contributions[i - 1].call->recv.base,
                     member->recv.base);
        }
    }
    return MPI_SUCCESS;
}

/* The same one rank later. */
static int exscan_once(struct vcoll_local *local, struct vcoll_call *call)
{
    return prefix_once(local, call, false);
}

const struct vcoll_local_ops vcoll_local_combine = {.contribute =
                                                        reduce_contribute,
                                                    .once = combine_once,
                                                    .each = combine_each};
const struct vcoll_local_ops vcoll_local_reduce = {
    .contribute = reduce_contribute, .once = combine_once, .each = reduce_each};
const struct vcoll_local_ops vcoll_local_allreduce = {.contribute =
                                                          reduce_contribute,
                                                      .once = combine_once,
                                                      .each = allreduce_each};
const struct vcoll_local_ops vcoll_local_reduce_scatter = {
    .contribute = reduce_contribute,
    .once = combine_once,
    .each = reduce_scatter_each};
const struct vcoll_local_ops vcoll_local_segment = {
    .contribute = segment_contribute, .each = segment_each};
const struct vcoll_local_ops vcoll_local_scan = {.once = scan_once};
const struct vcoll_local_ops vcoll_local_exscan = {.once = exscan_once};
