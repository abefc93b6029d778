/*
 * What is done in local collectives where data moves: each member takes what it
 * needs straight from where the others have it.
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

static char *small_of(const struct vcoll_local *local, int place)
{
    return local->small + (size_t)place * COLL_SMALL;
}

/* Lay a piece into the local collective if it is small: whether it stays
 * outside. */
static bool contribute_piece(struct vcoll_local *local, struct vcoll_call *call,
                             const struct vcoll_piece *piece)
{
    size_t bytes = vcoll_piece_bytes(piece);

    if (bytes > COLL_SMALL) {
        return true;
    }
    type_pack(piece->type, piece->count, piece->base, 0, bytes,
              small_of(local, call->place));
    local->contributions[call->place].is_small = true;
    local->contributions[call->place].small_bytes = bytes;
    return false;
}

/* What a member has offered; `outside` is where it lies if it is not small. A
 * small one's owner, and with it its call, may be gone. */
static struct vcoll_piece contributed(const struct vcoll_local *local,
                                      int place, struct vcoll_piece outside)
{
    const struct vcoll_contribution *contribution =
        &local->contributions[place];

    return contribution->is_small
               ? (struct vcoll_piece){small_of(local, place),
                                      contribution->small_bytes, MPI_BYTE}
               : outside;
}

/* ---- from one to all ---------------------------------------------------- */

static bool bcast_contribute(struct vcoll_local *local, struct vcoll_call *call)
{
    struct vcoll_piece piece = vcoll_piece_of(&call->recv, 0);

    return call->comm->rank == call->root &&
           contribute_piece(local, call, &piece);
}

/* Take what a member has offered. */
static int take(const struct vcoll_local *local, int place,
                struct vcoll_piece from, const struct vcoll_piece *to)
{
    from = contributed(local, place, from);
    return vcoll_piece_copy(&from, to);
}

static int bcast_each(struct vcoll_local *local, struct vcoll_call *call)
{
    struct vcoll_piece mine = vcoll_piece_of(&call->recv, 0), from = mine;
    const struct vcoll_contribution *contribution =
        &local->contributions[call->root];

    if (call->comm->rank == call->root) {
        return MPI_SUCCESS;
    }
    if (!contribution->is_small) {
        from = vcoll_piece_of(&contribution->call->recv, 0);
    }
    return take(local, call->root, from, &mine);
}

static bool scatter_contribute(struct vcoll_local *local,
                               struct vcoll_call *call)
{
    (void)local;
    return call->comm->rank == call->root;
}

static int scatter_each(struct vcoll_local *local, struct vcoll_call *call)
{
    const struct vcoll_call *root = local->contributions[call->root].call;
    struct vcoll_piece from = vcoll_piece_of(&root->send, call->comm->rank);
    struct vcoll_piece to;

    if (call->in_place) {
        return MPI_SUCCESS;
    }
    to = vcoll_piece_of(&call->recv, 0);
    return vcoll_piece_copy(&from, &to);
}

/* ---- from all to one, or to all ----------------------------------------- */

static bool gather_contribute(struct vcoll_local *local,
                              struct vcoll_call *call)
{
    struct vcoll_piece piece;

    if (call->in_place && call->kind == COLL_GATHER) {
        return false;
    }
    piece = call->in_place ? vcoll_piece_of(&call->recv, call->comm->rank)
                           : vcoll_piece_of(&call->send, 0);
    return contribute_piece(local, call, &piece);
}

/* Take member `place`'s contribution to where it belongs. */
static int gather_one(const struct vcoll_local *local,
                      const struct vcoll_call *call, int place)
{
    const struct vcoll_contribution *contribution =
        &local->contributions[place];
    struct vcoll_piece to = vcoll_piece_of(&call->recv, place), from = to;

    if (!contribution->is_small) {
        from = contribution->call->in_place
                   ? vcoll_piece_of(&contribution->call->recv, place)
                   : vcoll_piece_of(&contribution->call->send, 0);
    }
    return take(local, place, from, &to);
}

static int gather_each(struct vcoll_local *local, struct vcoll_call *call)
{
    int code = MPI_SUCCESS, me = call->comm->rank;

    if (call->kind == COLL_GATHER && me != call->root) {
        return code;
    }
    for (int i = 0; i < call->table->members && code == MPI_SUCCESS; i++) {
        /* Each begins with its own, so that not all read the same. */
        int place =
            call->kind == COLL_GATHER ? i : (me + i) % call->table->members;
        if (!call->in_place || place != me) {
            code = gather_one(local, call, place);
        }
    }
    return code;
}

static bool alltoall_contribute(struct vcoll_local *local,
                                struct vcoll_call *call)
{
    (void)local;
    (void)call;
    return true;
}

static int alltoall_each(struct vcoll_local *local, struct vcoll_call *call)
{
    int code = MPI_SUCCESS, me = call->comm->rank;

    for (int i = 0; i < call->table->members && code == MPI_SUCCESS; i++) {
        int place = (me + i) % call->table->members;
        struct vcoll_piece from =
            vcoll_piece_of(&local->contributions[place].call->send, me);
        struct vcoll_piece to = vcoll_piece_of(&call->recv, place);
        code = vcoll_piece_copy(&from, &to);
    }
    return code;
}

/* ---- where contexts are swapped ---------------------------------------------
 *
 * Of two members the second to arrive moves the data of both: its own buffers
 * are in memory, and those of the other, which waits in the call, are where
 * they are, in memory or on disk. When all have arrived all is done: no member
 * has to be brought back before, nor to wait until others have read.
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
    context_copy_async(to->base, from->base, bytes);
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
static void pair_note(struct vcoll_local *local, struct vcoll_call *call,
                      int code)
{
    if (code != MPI_SUCCESS) {
        vrank_spin_lock(&local->order_lock);
        vcoll_note(call, code);
        vrank_spin_unlock(&local->order_lock);
    }
}

static bool pairs_contribute(struct vcoll_local *local, struct vcoll_call *call)
{
    int before;

    vrank_spin_lock(&local->order_lock);
    before = local->ordered++;
    local->order[before] = call->place;
    vrank_spin_unlock(&local->order_lock);
    for (int i = 0; i < before; i++) {
        struct vcoll_call *other = local->contributions[local->order[i]].call;
        pair_note(local, call, pair_move(other, call));
        pair_note(local, other, pair_move(call, other));
    }
    pair_note(local, call, pair_move(call, call));
    context_copy_wait();
    return false;
}

const struct vcoll_local_ops *vcoll_local_swapped(enum vcoll_kind kind)
{
    static const struct vcoll_local_ops pairs = {.contribute =
                                                     pairs_contribute};

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

int vcoll_leader(const struct vcoll_call *call, int process)
{
    const struct vcoll_table *table = call->table;
    bool has_root = call->kind == COLL_BCAST || call->kind == COLL_REDUCE;

    if (has_root &&
        vcoll_table_process(table, call->comm, call->root) == process) {
        return call->root;
    }
    return table->lowest[process];
}

/* All take what the process's leader carries. */
static bool distribute_contribute(struct vcoll_local *local,
                                  struct vcoll_call *call)
{
    return call->comm->rank == vcoll_leader(call, call->table->process) &&
           contribute_piece(local, call, &call->carried);
}

static int distribute_each(struct vcoll_local *local, struct vcoll_call *call)
{
    int leader = vcoll_leader(call, call->table->process);
    int place = vcoll_table_place(call->table, leader);
    struct vcoll_piece from = call->carried;

    if (call->comm->rank == leader) {
        return MPI_SUCCESS;
    }
    if (!local->contributions[place].is_small) {
        from = local->contributions[place].call->carried;
    }
    return take(local, place, from, &call->carried);
}

/* All deal what the leader carries, packed, to where it belongs. */
static bool unpack_contribute(struct vcoll_local *local,
                              struct vcoll_call *call)
{
    (void)local;
    return call->comm->rank == vcoll_leader(call, call->table->process);
}

static int unpack_each(struct vcoll_local *local, struct vcoll_call *call)
{
    int place = vcoll_table_place(call->table,
                                  vcoll_leader(call, call->table->process));
    const char *packed = local->contributions[place].call->carried.base;

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

const struct vcoll_local_ops vcoll_local_barrier = {0};
const struct vcoll_local_ops vcoll_local_distribute = {
    .contribute = distribute_contribute, .each = distribute_each};
const struct vcoll_local_ops vcoll_local_unpack = {
    .contribute = unpack_contribute, .each = unpack_each};
const struct vcoll_local_ops vcoll_local_bcast = {
    .contribute = bcast_contribute, .each = bcast_each};
const struct vcoll_local_ops vcoll_local_scatter = {
    .contribute = scatter_contribute, .each = scatter_each};
const struct vcoll_local_ops vcoll_local_gather = {
    .contribute = gather_contribute, .each = gather_each};
const struct vcoll_local_ops vcoll_local_alltoall = {
    .contribute = alltoall_contribute, .each = alltoall_each};
