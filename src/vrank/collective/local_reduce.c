/*
 * Reductions at meetings. The last one to come combines what all have
 * contributed, in rank order, always in the same way: the result does not
 * depend on who comes when, nor on the number of workers, and in the usual
 * cases not on the number of processes.
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

static bool reduce_offer(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    size_t count = vcoll_reduced_elements(call, call->comm->size);
    size_t bytes = type_bytes(call->recv.type, count);

    if (call->recv.type->dense && bytes <= COLL_SMALL) {
        memcpy(meeting->small + (size_t)call->place * small_stride(bytes),
               vcoll_operand(call), bytes);
        meeting->slots[call->place].is_small = true;
    } else {
        int worker = call->board->worker_of[call->place];
        meeting->workers[worker].large = true;
    }
    return false;
}

/* Whether all operands lie in the meeting: seen without a look at each slot,
 * which other workers have written. */
static bool all_small(const struct vcoll_meeting *meeting,
                      const struct vcoll_board *board)
{
    for (int w = 0; w < board->workers; w++) {
        if (meeting->workers[w].large) {
            return false;
        }
    }
    return true;
}

static const char *operand(const struct vcoll_meeting *meeting, int place,
                           size_t bytes)
{
    const struct vcoll_slot *slot = &meeting->slots[place];

    return slot->is_small ? meeting->small + (size_t)place * small_stride(bytes)
                          : vcoll_operand(slot->call);
}

static void copy_elements(MPI_Datatype type, size_t count, const char *from,
                          char *to)
{
    if (from != to) {
        type_copy(type, count, from, type, count, to, type_bytes(type, count));
    }
}

/* Elements from `first` on of an operand, in memory. */
static const char *operand_near(const struct vcoll_meeting *meeting, int place,
                                const struct vcoll_call *call, size_t total,
                                size_t first, size_t count)
{
    MPI_Datatype type = call->recv.type;
    const char *from = operand(meeting, place, type_bytes(type, total)) +
                       (ptrdiff_t)first * type_extent(type);

    if (meeting->near == NULL || !context_covers(from + type->true_lb)) {
        return from;
    }
    copy_elements(type, count, from, meeting->near);
    return meeting->near;
}

/*
 * How operands are combined: in pairs of neighbours, those pairs in pairs, and
 * so on, like
 *
 *     ((0 op 1) op (2 op 3)) op (4 op 5)
 *
 * Where processes hold blocks of a power of two ranks, the levels above them
 * are those of remote.c, so that a sum in floating point is the same on
 * one process as on several. It is also more exact than one after another.
 */

/* Elements that are combined at the same time. */
struct combination {
    struct vcoll_meeting *meeting;
    const struct vcoll_call *call;
    size_t total;        /* elements of an operand */
    size_t first, count; /* those of them */
    char *rooms[32];     /* for `count` elements each */
};

static const char *combination_operand(const struct combination *c, int place)
{
    return operand_near(c->meeting, place, c->call, c->total, c->first,
                        c->count);
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

/* The same of operands that all lie in the meeting, where they are used up. */
static void combine_small(struct vcoll_meeting *meeting,
                          const struct vcoll_call *call, size_t count)
{
    MPI_Datatype type = call->recv.type;
    size_t bytes = type_bytes(type, count), stride = small_stride(bytes);
    size_t end = (size_t)call->board->members * stride;
    op_function *function = op_of_basic(call->op, type, &count);
    char *small = meeting->small;

    for (size_t step = stride; step < end; step *= 2) {
        for (size_t at = 0; at + step < end; at += 2 * step) {
            function(small + at + step, small + at, count);
        }
    }
    memcpy(meeting->result, small, bytes);
}

/* Room for elements of a type; where the first would lie. */
static char *elements_room(struct vcoll_meeting *meeting, MPI_Datatype type,
                           size_t count)
{
    ptrdiff_t extent = type_extent(type);
    ptrdiff_t low = extent < 0 && count > 0 ? (ptrdiff_t)(count - 1) : 0;
    /* Operations may write the gap behind the last. */
    ptrdiff_t span = type->true_ub - type->true_lb +
                     (ptrdiff_t)count * (extent < 0 ? -extent : extent);
    char *room = vcoll_meeting_alloc(meeting, (size_t)span);

    /* A negative extent goes down from the end. */
    return room == NULL ? NULL : room - type->true_lb - low * extent;
}

/* The same where the meeting has room for a short one. */
static char *result_room(struct vcoll_meeting *meeting, MPI_Datatype type,
                         size_t count)
{
    return type->dense && type_bytes(type, count) <= COLL_SMALL
               ? meeting->small_result
               : elements_room(meeting, type, count);
}

/* All `count` elements, so many at a time. */
static int combine_blocks(struct vcoll_meeting *meeting,
                          const struct vcoll_call *call, size_t count,
                          size_t block)
{
    MPI_Datatype type = call->recv.type;
    int members = call->board->members;
    struct combination c = {.meeting = meeting, .call = call, .total = count};

    for (int i = 0; ((int64_t)2 << i) < members; i++) {
        c.rooms[i] = elements_room(meeting, type, block);
        if (c.rooms[i] == NULL) {
            return MPI_ERR_NO_MEM;
        }
    }
    for (; c.first < count; c.first += c.count) {
        c.count = count - c.first < block ? count - c.first : block;
        combine_places(&c, 0, members,
                       meeting->result + (ptrdiff_t)c.first * type_extent(type),
                       0);
    }
    return MPI_SUCCESS;
}

static int combine_once(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    MPI_Datatype type = call->recv.type;
    size_t count = vcoll_reduced_elements(call, call->comm->size);
    size_t block = count, each;

    meeting->result = result_room(meeting, type, count);
    if (meeting->result == NULL) {
        return MPI_ERR_NO_MEM;
    }
    if (meeting->result == meeting->small_result && call->op->predefined &&
        call->op->commutative && all_small(meeting, call->board)) {
        combine_small(meeting, call, count);
        return MPI_SUCCESS;
    }
    each = type->dense ? type->size : (size_t)labs(type_extent(type));
    if (each > 0) {
        block = (context_span > 0 ? BLOCK_FAR_BYTES : BLOCK_BYTES) / each + 1;
    }
    block = block < count ? block : count;
    if (context_span > 0) {
        meeting->near = elements_room(meeting, type, block);
        if (meeting->near == NULL) {
            return MPI_ERR_NO_MEM;
        }
    }
    return combine_blocks(meeting, call, count, block);
}

/* ---- who gets the result ------------------------------------------------ */

static int take_result(const struct vcoll_meeting *meeting,
                       const struct vcoll_call *call, size_t first,
                       size_t count, char *to)
{
    MPI_Datatype type = call->recv.type;

    copy_elements(type, count,
                  meeting->result + (ptrdiff_t)first * type_extent(type), to);
    return MPI_SUCCESS;
}

static int reduce_part(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    return call->comm->rank == call->root
               ? take_result(meeting, call, 0, (size_t)call->recv.count,
                             call->recv.base)
               : MPI_SUCCESS;
}

static int allreduce_part(struct vcoll_meeting *meeting,
                          struct vcoll_call *call)
{
    return take_result(meeting, call, 0, (size_t)call->recv.count,
                       call->recv.base);
}

static int reduce_scatter_part(struct vcoll_meeting *meeting,
                               struct vcoll_call *call)
{
    int rank = call->comm->rank;
    size_t first = vcoll_reduced_elements(call, rank);

    return take_result(meeting, call, first,
                       vcoll_reduced_elements(call, rank + 1) - first,
                       call->recv.base);
}

/* Between processes: the process's speaker carries on with the result. */
static int combine_part(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    return call->comm->rank == vcoll_speaker(call, call->board->process)
               ? take_result(meeting, call, 0, call->carried.count,
                             call->carried.base)
               : MPI_SUCCESS;
}

/* Then each takes its segment of what the speaker carries. */
static bool segment_offer(struct vcoll_meeting *meeting,
                          struct vcoll_call *call)
{
    (void)meeting;
    return call->comm->rank == vcoll_speaker(call, call->board->process);
}

static int segment_part(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    int rank = call->comm->rank;
    int place = vcoll_board_place(call->board,
                                  vcoll_speaker(call, call->board->process));
    size_t first = vcoll_reduced_elements(call, rank);
    MPI_Datatype type = call->recv.type;

    copy_elements(type, vcoll_reduced_elements(call, rank + 1) - first,
                  meeting->slots[place].call->carried.base +
                      (ptrdiff_t)first * type_extent(type),
                  call->recv.base);
    return MPI_SUCCESS;
}

/* ---- prefixes ----------------------------------------------------------- */

/* Prefixes in room of their own, so that only one member's buffer is needed at
 * a time. Without a rank's own operand (`inclusive`) the first one's result
 * stays as it was. */
static int prefix_once(struct vcoll_meeting *meeting, struct vcoll_call *call,
                       bool inclusive)
{
    MPI_Datatype type = call->recv.type;
    size_t count = (size_t)call->recv.count;
    char *before = result_room(meeting, type, count), *spare;

    meeting->result = before;
    if (type->dense && type_bytes(type, count) <= COLL_SMALL) {
        spare = meeting->small;
    } else {
        spare = result_room(meeting, type, count);
    }
    if (before == NULL || spare == NULL) {
        return MPI_ERR_NO_MEM;
    }
    for (int i = 0; i < call->board->members; i++) {
        const struct vcoll_call *member = meeting->slots[i].call;
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
static int scan_once(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    MPI_Datatype type = call->recv.type;
    size_t count = (size_t)call->recv.count;

    if (context_span > 0) {
        return prefix_once(meeting, call, true);
    }
    for (int i = 0; i < call->board->members; i++) {
        const struct vcoll_call *member = meeting->slots[i].call;
        copy_elements(type, count, vcoll_operand(member), member->recv.base);
        if (i > 0) {
            op_apply(call->op, type, count,
                     meeting->slots[i - 1].call->recv.base, member->recv.base);
        }
    }
    return MPI_SUCCESS;
}

/* The same one rank later. */
static int exscan_once(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    return prefix_once(meeting, call, false);
}

const struct vcoll_meet vcoll_meet_combine = {
    .offer = reduce_offer, .once = combine_once, .part = combine_part};
const struct vcoll_meet vcoll_meet_reduce = {
    .offer = reduce_offer, .once = combine_once, .part = reduce_part};
const struct vcoll_meet vcoll_meet_allreduce = {
    .offer = reduce_offer, .once = combine_once, .part = allreduce_part};
const struct vcoll_meet vcoll_meet_reduce_scatter = {
    .offer = reduce_offer, .once = combine_once, .part = reduce_scatter_part};
const struct vcoll_meet vcoll_meet_segment = {.offer = segment_offer,
                                              .part = segment_part};
const struct vcoll_meet vcoll_meet_scan = {.once = scan_once};
const struct vcoll_meet vcoll_meet_exscan = {.once = exscan_once};
