/*
 * How a collective call is served: one table of what each is, one way through
 * it. Tree or library is chosen only from what MPI makes equal on all ranks:
 * the communicator and the number of calls on it, the number of bytes, and, in
 * reductions, type and operation. Types that may differ between ranks are
 * packed. All else falls through to the library and is counted, and so do
 * arguments that it would refuse (check.c).
 */
#include "check.h"
#include "events.h"
#include "rules.h"
#include "types.h"
#include "view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A call on its way: what it moves, as plain bytes. */
struct moves {
    const struct call *call;
    struct seat seat;
    struct poise_coll *coll;
    uint64_t bytes; /* as checked */
    bool right;     /* its arguments, as far as that was found out */
    struct view in, out;
    enum poise_coll_type type; /* of reductions */
    enum poise_coll_op op;
};

struct row {
    check_fn check;
    /* Which buffers there are; only the root has the one that is `rooted`. */
    enum shape in, out;
    bool in_rooted, out_rooted;
    bool combines; /* plain values, which lie where they are */
    bool unknown;  /* only each rank knows how long its part is */
    int (*run)(struct moves *moves);
    int (*native)(const struct call *call);
};

/* ---- over trees ---------------------------------------------------------- */

static int run_barrier(struct moves *moves)
{
    return poise_coll_barrier(moves->coll);
}

static int run_bcast(struct moves *moves)
{
    bool mine = moves->seat.rank == moves->call->root;
    struct view view;
    int code = view_make(&view, &moves->call->in, ITEM, 1, moves->bytes, false);
    if (code == 0 && mine) {
        code = view_move(&view, true);
    }
    if (code == 0) {
        code = poise_coll_broadcast(moves->coll, moves->call->root, view.data,
                                    moves->bytes);
    }
    if (code == 0 && !mine) {
        code = view_move(&view, false);
    }
    view_free(&view);
    return code;
}

static const void *values_of(const struct call *call)
{
    return call->in.buffer == MPI_IN_PLACE ? call->out.buffer : call->in.buffer;
}

static void *result_of(const struct call *call)
{
    return (void *)(uintptr_t)call->out.buffer;
}

/* An allreduce over trees, or what a rule says. */
static int run_allreduce(struct moves *moves)
{
    const struct call *call = moves->call;
    const struct state *state = moves->seat.state;
    if (state->cond && rules_exist() &&
        rules_fit(call->out.number, moves->type, moves->op)) {
        return rules_allreduce(state->cond, call->site, moves->type, moves->op,
                               values_of(call), result_of(call));
    }
    return poise_coll_allreduce(moves->coll, values_of(call), result_of(call),
                                (size_t)call->out.number, moves->type,
                                moves->op);
}

static int run_reduce(struct moves *moves)
{
    const struct call *call = moves->call;
    return poise_coll_reduce(moves->coll, call->root, values_of(call),
                             result_of(call), (size_t)call->out.number,
                             moves->type, moves->op);
}

static int run_scan(struct moves *moves)
{
    const struct call *call = moves->call;
    return poise_coll_scan(moves->coll, values_of(call), result_of(call),
                           (size_t)call->out.number, moves->type, moves->op,
                           call->entry == EXSCAN);
}

static int run_reduce_scatter(struct moves *moves)
{
    const struct call *call = moves->call;
    uint64_t width = preload_width_of(call->out.type);
    size_t *counts = calloc((size_t)moves->seat.size, sizeof *counts);
    void *out = result_of(call), *apart = NULL;
    if (!counts) {
        return poise_error_set(ENOMEM, "reduce", NULL, NULL);
    }
    for (int i = 0; i < moves->seat.size; i++) {
        counts[i] = (size_t)(call->out.numbers ? call->out.numbers[i]
                                               : call->out.number);
    }
    uint64_t mine = counts[moves->seat.rank] * width;
    bool in_place = values_of(call) == out;
    if (in_place) {
        out = apart = malloc(mine + 1);
    }
    int code =
        !out && in_place
            ? poise_error_set(ENOMEM, "reduce", NULL, NULL)
            : poise_coll_reduce_scatter(moves->coll, values_of(call), out,
                                        counts, moves->type, moves->op);
    if (code == 0 && apart) {
        memcpy(result_of(call), apart, mine);
    }
    free(apart);
    free(counts);
    return code;
}

static int run_gather(struct moves *moves)
{
    return poise_coll_gather(moves->coll, moves->call->root, moves->in.data,
                             moves->out.data, moves->bytes);
}

static int run_scatter(struct moves *moves)
{
    return poise_coll_scatter(moves->coll, moves->call->root, moves->in.data,
                              moves->out.data, moves->bytes);
}

static int run_allgather(struct moves *moves)
{
    return poise_coll_allgather(moves->coll, moves->in.data, moves->out.data,
                                moves->bytes);
}

static int run_alltoall(struct moves *moves)
{
    return poise_coll_alltoall(moves->coll, moves->in.data, moves->out.data,
                               moves->bytes);
}

static int run_alltoallv(struct moves *moves)
{
    return poise_coll_alltoallv(moves->coll, moves->in.data, moves->in.blocks,
                                moves->out.data, moves->out.blocks);
}

static int run_gatherv(struct moves *moves)
{
    return poise_coll_gatherv(moves->coll, moves->call->root, moves->in.data,
                              moves->in.bytes, moves->out.data,
                              moves->out.blocks);
}

static int run_scatterv(struct moves *moves)
{
    return poise_coll_scatterv(moves->coll, moves->call->root, moves->in.data,
                               moves->in.blocks, moves->out.data,
                               moves->out.bytes);
}

static int run_allgatherv(struct moves *moves)
{
    return poise_coll_allgatherv(moves->coll, moves->in.data, moves->in.bytes,
                                 moves->out.data, moves->out.blocks);
}

/* ---- by the library ------------------------------------------------------ */

static int do_barrier(const struct call *c)
{
    return PMPI_Barrier(c->comm);
}

static int do_bcast(const struct call *c)
{
    return PMPI_Bcast((void *)(uintptr_t)c->in.buffer, c->in.number, c->in.type,
                      c->root, c->comm);
}

static int do_allreduce(const struct call *c)
{
    return PMPI_Allreduce(c->in.buffer, result_of(c), c->out.number,
                          c->out.type, c->op, c->comm);
}

static int do_reduce(const struct call *c)
{
    return PMPI_Reduce(c->in.buffer, result_of(c), c->out.number, c->out.type,
                       c->op, c->root, c->comm);
}

static int do_scan(const struct call *c)
{
    return PMPI_Scan(c->in.buffer, result_of(c), c->out.number, c->out.type,
                     c->op, c->comm);
}

static int do_exscan(const struct call *c)
{
    return PMPI_Exscan(c->in.buffer, result_of(c), c->out.number, c->out.type,
                       c->op, c->comm);
}

static int do_reduce_scatter(const struct call *c)
{
    return PMPI_Reduce_scatter(c->in.buffer, result_of(c), c->out.numbers,
                               c->out.type, c->op, c->comm);
}

static int do_reduce_scatter_block(const struct call *c)
{
    return PMPI_Reduce_scatter_block(c->in.buffer, result_of(c), c->out.number,
                                     c->out.type, c->op, c->comm);
}

static int do_gather(const struct call *c)
{
    return PMPI_Gather(c->in.buffer, c->in.number, c->in.type, result_of(c),
                       c->out.number, c->out.type, c->root, c->comm);
}

static int do_scatter(const struct call *c)
{
    return PMPI_Scatter(c->in.buffer, c->in.number, c->in.type, result_of(c),
                        c->out.number, c->out.type, c->root, c->comm);
}

static int do_allgather(const struct call *c)
{
    return PMPI_Allgather(c->in.buffer, c->in.number, c->in.type, result_of(c),
                          c->out.number, c->out.type, c->comm);
}

static int do_alltoall(const struct call *c)
{
    return PMPI_Alltoall(c->in.buffer, c->in.number, c->in.type, result_of(c),
                         c->out.number, c->out.type, c->comm);
}

static int do_alltoallv(const struct call *c)
{
    return PMPI_Alltoallv(c->in.buffer, c->in.numbers, c->in.places, c->in.type,
                          result_of(c), c->out.numbers, c->out.places,
                          c->out.type, c->comm);
}

static int do_gatherv(const struct call *c)
{
    return PMPI_Gatherv(c->in.buffer, c->in.number, c->in.type, result_of(c),
                        c->out.numbers, c->out.places, c->out.type, c->root,
                        c->comm);
}

static int do_scatterv(const struct call *c)
{
    return PMPI_Scatterv(c->in.buffer, c->in.numbers, c->in.places, c->in.type,
                         result_of(c), c->out.number, c->out.type, c->root,
                         c->comm);
}

static int do_allgatherv(const struct call *c)
{
    return PMPI_Allgatherv(c->in.buffer, c->in.number, c->in.type, result_of(c),
                           c->out.numbers, c->out.places, c->out.type, c->comm);
}

/* ---- the table ----------------------------------------------------------- */

static const struct row rows[SERVED] = {
    [BARRIER] = {.check = check_barrier,
                 .unknown = true,
                 .run = run_barrier,
                 .native = do_barrier},
    [BCAST] = {.check = check_bcast, .run = run_bcast, .native = do_bcast},
    [ALLREDUCE] = {.check = check_reduce,
                   .combines = true,
                   .run = run_allreduce,
                   .native = do_allreduce},
    [REDUCE] = {.check = check_reduce,
                .combines = true,
                .run = run_reduce,
                .native = do_reduce},
    [REDUCE_SCATTER] = {.check = check_reduce,
                        .combines = true,
                        .run = run_reduce_scatter,
                        .native = do_reduce_scatter},
    [REDUCE_SCATTER_BLOCK] = {.check = check_reduce,
                              .combines = true,
                              .run = run_reduce_scatter,
                              .native = do_reduce_scatter_block},
    [SCAN] = {.check = check_reduce,
              .combines = true,
              .run = run_scan,
              .native = do_scan},
    [EXSCAN] = {.check = check_reduce,
                .combines = true,
                .run = run_scan,
                .native = do_exscan},
    [GATHER] = {.check = check_items,
                .in = ITEM,
                .out = ITEMS,
                .out_rooted = true,
                .run = run_gather,
                .native = do_gather},
    [SCATTER] = {.check = check_items,
                 .in = ITEMS,
                 .out = ITEM,
                 .in_rooted = true,
                 .run = run_scatter,
                 .native = do_scatter},
    [ALLGATHER] = {.check = check_items,
                   .in = ITEM,
                   .out = ITEMS,
                   .run = run_allgather,
                   .native = do_allgather},
    [ALLTOALL] = {.check = check_alltoall,
                  .in = ITEMS,
                  .out = ITEMS,
                  .run = run_alltoall,
                  .native = do_alltoall},
    [ALLTOALLV] = {.check = check_alltoallv,
                   .in = BLOCKS,
                   .out = BLOCKS,
                   .unknown = true,
                   .run = run_alltoallv,
                   .native = do_alltoallv},
    [GATHERV] = {.check = check_blocks,
                 .in = ITEM,
                 .out = BLOCKS,
                 .out_rooted = true,
                 .unknown = true,
                 .run = run_gatherv,
                 .native = do_gatherv},
    [SCATTERV] = {.check = check_blocks,
                  .in = BLOCKS,
                  .out = ITEM,
                  .in_rooted = true,
                  .unknown = true,
                  .run = run_scatterv,
                  .native = do_scatterv},
    [ALLGATHERV] = {.check = check_blocks,
                    .in = ITEM,
                    .out = BLOCKS,
                    .run = run_allgatherv,
                    .native = do_allgatherv},
};

/* ---- whose turn it is ---------------------------------------------------- */

/* The same on all ranks. */
static bool can_combine(struct moves *moves)
{
    if (!preload_type_of(moves->call->out.type, &moves->type) ||
        !preload_op_of(moves->call->op, &moves->op)) {
        return false;
    }
    bool real = moves->type == POISE_FLOAT || moves->type == POISE_DOUBLE;
    return !real || moves->op <= POISE_OP_MAX;
}

/* What moves nothing needs no tree, and the library has still something to say
 * of it. */
static struct poise_coll *choose(const struct row *row, struct moves *moves)
{
    const struct call *call = moves->call;
    if (row->combines && !can_combine(moves)) {
        preload_count(call->entry, TYPE);
        return NULL;
    }
    bool right = row->check(&moves->seat, call, &moves->bytes);
    moves->right = right;
    if (call->right) {
        *call->right = right;
    }
    if (!right || (moves->bytes == 0 && !row->unknown)) {
        preload_count(call->entry, right ? EMPTY : WRONG);
        return NULL;
    }
    return preload_trees(call->entry, &moves->seat,
                         row->unknown ? 0 : moves->bytes);
}

/* ---- moving -------------------------------------------------------------- */

/* The side that has one item, if that is in place among all of the other's. */
static struct side item_among(const struct seat *seat, enum shape shape,
                              const struct side *all)
{
    int64_t at = shape == BLOCKS ? all->places[seat->rank]
                                 : (int64_t)seat->rank * all->number;
    return (struct side){.buffer = plain_at(all->buffer, at, all->type),
                         .number = shape == BLOCKS ? all->numbers[seat->rank]
                                                   : all->number,
                         .type = all->type};
}

/* Of what length the items of a side go. */
static uint64_t bytes_of(const struct row *row, const struct moves *moves,
                         enum shape shape, const struct side *side)
{
    bool by_blocks = row->in == BLOCKS || row->out == BLOCKS;
    return shape == ITEM && by_blocks ? view_own_bytes(side) : moves->bytes;
}

static int move(const struct row *row, struct moves *moves)
{
    const struct call *call = moves->call;
    const struct seat *seat = &moves->seat;
    bool has_in = !row->in_rooted || seat->rank == call->root;
    bool has_out = !row->out_rooted || seat->rank == call->root;
    struct side in = call->in, out = call->out;
    bool in_place = in.buffer == MPI_IN_PLACE;
    if (in_place && row->in == ITEM) {
        in = item_among(seat, row->out, &out);
    } else if (in_place) {
        in = out; /* overwritten: a copy */
    } else if (out.buffer == MPI_IN_PLACE) {
        out = item_among(seat, row->in, &in);
    }
    int code = view_make(&moves->in, &in, has_in ? row->in : NOTHING,
                         seat->size, bytes_of(row, moves, row->in, &in),
                         in_place && row->in != ITEM);
    if (code == 0) {
        code =
            view_make(&moves->out, &out, has_out ? row->out : NOTHING,
                      seat->size, bytes_of(row, moves, row->out, &out), false);
    }
    if (code == 0) {
        code = view_move(&moves->in, true);
    }
    if (code == 0) {
        code = row->run(moves);
    }
    if (code == 0) {
        code = view_move(&moves->out, false);
    }
    view_free(&moves->in);
    view_free(&moves->out);
    return code;
}

/* `sits`: what preload_sit said. */
static inline int serve_seated(const struct row *row, struct moves *moves,
                               bool sits)
{
    const struct call *call = moves->call;
    if (sits) {
        moves->coll = choose(row, moves);
    }
    if (!moves->coll) {
        return moves->seat.code ? moves->seat.code : row->native(call);
    }
    preload_inside++;
    bool moved = row->in != NOTHING;
    if (moved) {
        moves->in = moves->out = (struct view){0};
    }
    int code = moved ? move(row, moves) : row->run(moves);
    return preload_result(call->entry, &moves->seat, code);
}

/* What goes by between a tree's last step and the call's end is no time for so
 * few bytes. */
enum { CLOSE_BYTES = 256 };

/* What its trees record of a call, if there are any. */
static void set_mute(const struct moves *moves, bool is_mute)
{
    if (moves->seat.state->coll) {
        poise_coll_mute(moves->seat.state->coll, is_mute);
    }
}

/* A call of which it is noted that it was, at least: trees that are made in it
 * record what the next one does. Communicators of one rank were not looked at
 * closer. */
__attribute__((noinline)) static int
serve_noted(const struct row *row, struct moves *moves, bool sits, bool skips)
{
    const struct call *call = moves->call;
    struct state *state = moves->seat.state;
    struct poise_trace_ring *ring = skips ? NULL : poise_trace_ring();
    if (state) {
        set_mute(moves, skips);
    }
    uint64_t enter = poise_trace_enter(ring);
    int code = serve_seated(row, moves, sits);
    bool close = row->in == NOTHING && moves->bytes <= CLOSE_BYTES;
    uint64_t left = poise_trace_leave(ring, enter, close);
    if (state && skips) {
        events_skip(state->marks, moves->right && !state->inter);
    } else if (state) {
        if (moves->seat.size == 1 && !state->inter && code == MPI_SUCCESS) {
            moves->right = row->check(&moves->seat, call, &moves->bytes);
        }
        events_call(
            call->entry, state, moves->right,
            &(struct events_span){ring, enter, left, moves->bytes, code});
    }
    if (state) {
        set_mute(moves, state->marks && events_skips(state->marks));
    }
    return code;
}

/* Most calls leave nothing behind, with a trace and without: the same code. */
int preload_serve(const struct call *call)
{
    const struct row *row = &rows[call->entry];
    struct marks *marks = NULL;
    struct moves moves;
    moves.call = call;
    moves.seat = (struct seat){0};
    moves.coll = NULL;
    moves.bytes = 0;
    moves.right = false;
    bool sits = preload_sit(call->entry, call->comm, &moves.seat);
    if (poise_trace_is_on()) {
        marks = moves.seat.state ? moves.seat.state->marks : NULL;
        if (!marks || !events_idles(marks)) {
            return serve_noted(row, &moves, sits, marks && events_skips(marks));
        }
    }
    int code = serve_seated(row, &moves, sits);
    if (__builtin_expect(marks != NULL, 0)) {
        events_idled(marks, moves.right);
    }
    return code;
}
