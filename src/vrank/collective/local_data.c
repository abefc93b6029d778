/*
 * What is done at meetings where data moves: each member takes what it needs
 * straight from where the others have it.
 */
#include <string.h>

#include "internal.h"
#include "vrank/context/context.h"

struct vcoll_piece vcoll_piece_of(const struct vcoll_side *side, int i)
{
    struct vcoll_piece piece = {side->base, (size_t)side->count, side->type};
    ptrdiff_t extent;

    if (side->types != NULL) {
        piece.type = side->types[i];
        piece.count = (size_t)side->counts[i];
        piece.base += side->places ? side->places[i] : side->displs[i];
        return piece;
    }
    extent = type_extent(side->type);
    if (side->counts != NULL) {
        piece.count = (size_t)side->counts[i];
        piece.base += side->displs[i] * extent;
    } else {
        piece.base += i * (ptrdiff_t)side->count * extent;
    }
    return piece;
}

int vcoll_piece_copy(const struct vcoll_piece *from,
                     const struct vcoll_piece *to)
{
    size_t bytes = vcoll_piece_bytes(from);

    if (bytes > vcoll_piece_bytes(to)) {
        return MPI_ERR_TRUNCATE;
    }
    if (bytes > 0 && from->base != to->base) {
        type_copy(from->type, from->count, from->base, to->type, to->count,
                  to->base, bytes);
    }
    return MPI_SUCCESS;
}

/* ---- small contributions ------------------------------------------------ */

static char *small_of(const struct vcoll_meeting *meeting, int place)
{
    return meeting->small + (size_t)place * COLL_SMALL;
}

/* Lay a piece into the meeting if it is small: whether it stays outside. */
static bool offer_piece(struct vcoll_meeting *meeting, struct vcoll_call *call,
                        const struct vcoll_piece *piece)
{
    size_t bytes = vcoll_piece_bytes(piece);

    if (bytes > COLL_SMALL) {
        return true;
    }
    type_pack(piece->type, piece->count, piece->base, 0, bytes,
              small_of(meeting, call->place));
    meeting->slots[call->place].is_small = true;
    meeting->slots[call->place].small_bytes = bytes;
    return false;
}

/* What a member has offered; `outside` is where it lies if it is not small. A
 * small one's owner, and with it its call, may be gone. */
static struct vcoll_piece offered(const struct vcoll_meeting *meeting,
                                  int place, struct vcoll_piece outside)
{
    const struct vcoll_slot *slot = &meeting->slots[place];

    return slot->is_small ? (struct vcoll_piece){small_of(meeting, place),
                                                 slot->small_bytes, MPI_BYTE}
                          : outside;
}

/* ---- from one to all ---------------------------------------------------- */

static bool bcast_offer(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    struct vcoll_piece piece = vcoll_piece_of(&call->recv, 0);

    return call->comm->rank == call->root && offer_piece(meeting, call, &piece);
}

/* Take what a member has offered. */
static int take(const struct vcoll_meeting *meeting, int place,
                struct vcoll_piece from, const struct vcoll_piece *to)
{
    from = offered(meeting, place, from);
    return vcoll_piece_copy(&from, to);
}

static int bcast_part(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    struct vcoll_piece mine = vcoll_piece_of(&call->recv, 0), from = mine;
    const struct vcoll_slot *slot = &meeting->slots[call->root];

    if (call->comm->rank == call->root) {
        return MPI_SUCCESS;
    }
    if (!slot->is_small) {
        from = vcoll_piece_of(&slot->call->recv, 0);
    }
    return take(meeting, call->root, from, &mine);
}

static bool scatter_offer(struct vcoll_meeting *meeting,
                          struct vcoll_call *call)
{
    (void)meeting;
    return call->comm->rank == call->root;
}

static int scatter_part(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    const struct vcoll_call *root = meeting->slots[call->root].call;
    struct vcoll_piece from = vcoll_piece_of(&root->send, call->comm->rank);
    struct vcoll_piece to;

    if (call->in_place) {
        return MPI_SUCCESS;
    }
    to = vcoll_piece_of(&call->recv, 0);
    return vcoll_piece_copy(&from, &to);
}

/* ---- from all to one, or to all ----------------------------------------- */

static bool gather_offer(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    struct vcoll_piece piece;

    if (call->in_place && call->kind == COLL_GATHER) {
        return false;
    }
    piece = call->in_place ? vcoll_piece_of(&call->recv, call->comm->rank)
                           : vcoll_piece_of(&call->send, 0);
    return offer_piece(meeting, call, &piece);
}

/* Take member `place`'s contribution to where it belongs. */
static int gather_one(const struct vcoll_meeting *meeting,
                      const struct vcoll_call *call, int place)
{
    const struct vcoll_slot *slot = &meeting->slots[place];
    struct vcoll_piece to = vcoll_piece_of(&call->recv, place), from = to;

    if (!slot->is_small) {
        from = slot->call->in_place ? vcoll_piece_of(&slot->call->recv, place)
                                    : vcoll_piece_of(&slot->call->send, 0);
    }
    return take(meeting, place, from, &to);
}

static int gather_part(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    int error = MPI_SUCCESS, me = call->comm->rank;

    if (call->kind == COLL_GATHER && me != call->root) {
        return error;
    }
    for (int i = 0; i < call->board->members && error == MPI_SUCCESS; i++) {
        /* Each begins with its own, so that not all read the same. */
        int place =
            call->kind == COLL_GATHER ? i : (me + i) % call->board->members;
        if (!call->in_place || place != me) {
            error = gather_one(meeting, call, place);
        }
    }
    return error;
}

static bool alltoall_offer(struct vcoll_meeting *meeting,
                           struct vcoll_call *call)
{
    (void)meeting;
    (void)call;
    return true;
}

static int alltoall_part(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    int error = MPI_SUCCESS, me = call->comm->rank;

    for (int i = 0; i < call->board->members && error == MPI_SUCCESS; i++) {
        int place = (me + i) % call->board->members;
        struct vcoll_piece from =
            vcoll_piece_of(&meeting->slots[place].call->send, me);
        struct vcoll_piece to = vcoll_piece_of(&call->recv, place);
        error = vcoll_piece_copy(&from, &to);
    }
    return error;
}

/* ---- where contexts are swapped ---------------------------------------------
 *
 * Of two members whoever comes second moves the data of both: its own buffers
 * are in memory, and those of the other, who waits in the call, are where they
 * are. When all have come all is done, and nobody has to be brought back
 * before, nor to wait until others have read.
 */

/* As vcoll_piece_copy; it may be over only when all is settled. */
static int pair_copy(const struct vcoll_piece *from,
                     const struct vcoll_piece *to)
{
    size_t bytes = vcoll_piece_bytes(from);

    if (bytes == 0 || bytes > vcoll_piece_bytes(to) || from->base == to->base ||
        !from->type->dense || !to->type->dense) {
        return vcoll_piece_copy(from, to);
    }
    context_copy_later(to->base, from->base, bytes);
    return MPI_SUCCESS;
}

/* Move what goes from one member to another, or to itself. */
static int pair_move(const struct vcoll_call *from, const struct vcoll_call *to)
{
    int source = from->comm->rank, target = to->comm->rank;
    struct vcoll_piece what, where;

    switch (to->kind) {
    case COLL_BCAST:
        if (source != to->root || source == target) {
            return MPI_SUCCESS;
        }
        what = vcoll_piece_of(&from->recv, 0);
        where = vcoll_piece_of(&to->recv, 0);
        break;
    case COLL_SCATTER:
        if (source != to->root || (source == target && to->in_place)) {
            return MPI_SUCCESS;
        }
        what = vcoll_piece_of(&from->send, target);
        where = vcoll_piece_of(&to->recv, 0);
        break;
    case COLL_ALLTOALL:
        what = vcoll_piece_of(&from->send, target);
        where = vcoll_piece_of(&to->recv, source);
        break;
    default:
        if ((to->kind == COLL_GATHER && target != to->root) ||
            (source == target && to->in_place)) {
            return MPI_SUCCESS;
        }
        what = from->in_place ? vcoll_piece_of(&from->recv, source)
                              : vcoll_piece_of(&from->send, 0);
        where = vcoll_piece_of(&to->recv, source);
        break;
    }
    return pair_copy(&what, &where);
}

/* A member's error, which another may find. */
static void pair_note(struct vcoll_meeting *meeting, struct vcoll_call *call,
                      int error)
{
    if (error != MPI_SUCCESS) {
        vrank_spin_lock(&meeting->order_lock);
        vcoll_note(call, error);
        vrank_spin_unlock(&meeting->order_lock);
    }
}

static bool pairs_offer(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    int before;

    vrank_spin_lock(&meeting->order_lock);
    before = meeting->ordered++;
    meeting->order[before] = call->place;
    vrank_spin_unlock(&meeting->order_lock);
    for (int i = 0; i < before; i++) {
        struct vcoll_call *other = meeting->slots[meeting->order[i]].call;
        pair_note(meeting, call, pair_move(other, call));
        pair_note(meeting, other, pair_move(call, other));
    }
    pair_note(meeting, call, pair_move(call, call));
    context_settle();
    return false;
}

const struct vcoll_meet *vcoll_meet_swapped(enum vcoll_kind kind)
{
    static const struct vcoll_meet pairs = {.offer = pairs_offer};

    switch (kind) {
    case COLL_BCAST:
    case COLL_GATHER:
    case COLL_SCATTER:
    case COLL_ALLGATHER:
    case COLL_ALLTOALL:
        return &pairs;
    default:
        return NULL;
    }
}

/* ---- with stages between processes -------------------------------------- */

int vcoll_speaker(const struct vcoll_call *call, int process)
{
    const struct vcoll_board *board = call->board;
    bool has_root = call->kind == COLL_BCAST || call->kind == COLL_REDUCE;

    if (has_root &&
        vcoll_board_process(board, call->comm, call->root) == process) {
        return call->root;
    }
    return board->leaders[process];
}

/* All take what the process's speaker carries. */
static bool spread_offer(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    return call->comm->rank == vcoll_speaker(call, call->board->process) &&
           offer_piece(meeting, call, &call->carried);
}

static int spread_part(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    int speaker = vcoll_speaker(call, call->board->process);
    int place = vcoll_board_place(call->board, speaker);
    struct vcoll_piece from = call->carried;

    if (call->comm->rank == speaker) {
        return MPI_SUCCESS;
    }
    if (!meeting->slots[place].is_small) {
        from = meeting->slots[place].call->carried;
    }
    return take(meeting, place, from, &call->carried);
}

/* All deal what the speaker carries, packed, to where it belongs. */
static bool deal_offer(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    (void)meeting;
    return call->comm->rank == vcoll_speaker(call, call->board->process);
}

static int deal_part(struct vcoll_meeting *meeting, struct vcoll_call *call)
{
    int place = vcoll_board_place(call->board,
                                  vcoll_speaker(call, call->board->process));
    const char *packed = meeting->slots[place].call->carried.base;

    for (int i = 0; i < call->comm->size; i++) {
        struct vcoll_piece to = vcoll_piece_of(&call->recv, i);
        size_t bytes = vcoll_piece_bytes(&to);
        if (!call->in_place || i != call->comm->rank) {
            type_unpack(to.type, to.count, to.base, 0, bytes, packed);
        }
        packed += bytes;
    }
    return MPI_SUCCESS;
}

/* ---- the table ---------------------------------------------------------- */

const struct vcoll_meet vcoll_meet_barrier = {0};
const struct vcoll_meet vcoll_meet_spread = {.offer = spread_offer,
                                             .part = spread_part};
const struct vcoll_meet vcoll_meet_deal = {.offer = deal_offer,
                                           .part = deal_part};
const struct vcoll_meet vcoll_meet_bcast = {.offer = bcast_offer,
                                            .part = bcast_part};
const struct vcoll_meet vcoll_meet_scatter = {.offer = scatter_offer,
                                              .part = scatter_part};
const struct vcoll_meet vcoll_meet_gather = {.offer = gather_offer,
                                             .part = gather_part};
const struct vcoll_meet vcoll_meet_alltoall = {.offer = alltoall_offer,
                                               .part = alltoall_part};
