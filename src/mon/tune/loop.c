/*
 * Calls to tune by: allreduces one after the other, and each rank's hops of
 * them, read from its ring, brought into rank 0's time and gathered there. This
 * is done between trials, so that it holds no call up.
 */
#include "internal.h"

#include <poise/coll.h>
#include <poise/trace.h>
#include <poise/world_clock.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM_CALLS = 2, BATCH = 64 };

/* A rank's hop of a call as it is gathered; ns of rank 0's clock. */
struct record {
    uint64_t sequence;
    int64_t enter, arrived, released, left;
    uint64_t error_ns;
    int32_t parent;
    uint32_t is_whole;
};

struct poise_tune_loop {
    struct poise_world *world;
    struct poise_coll *coll;
    struct poise_trace *trace; /* NULL: another one is in force */
    struct poise_trace_view *view;
    struct poise_trace_cursor cursor;
    bool has_cursor;
    char *in, *out; /* [bytes_max] */
};

/* ---- making and ending ----------------------------------------------------
 */

static int begin_trace(struct poise_tune_loop *loop)
{
    struct poise_trace *trace =
        __atomic_load_n(&poise_trace_in_force, __ATOMIC_ACQUIRE);
    int code = 0;
    if (!trace) {
        struct poise_trace_options options = {
            .rank = poise_world_rank(loop->world),
            .size = poise_world_size(loop->world)};
        code = poise_trace_create(NULL, &options, &loop->trace);
        trace = loop->trace;
    }
    if (code == 0) {
        code = poise_trace_view_of(trace, &loop->view);
    }
    /* One that is in force stays so, beside other ranks of this process. */
    if (code == 0 && loop->trace) {
        poise_trace_use(loop->trace);
    }
    return code;
}

int poise_tune_loop_create(struct poise_world *world,
                           const struct poise_coll_tree *tree, size_t bytes_max,
                           struct poise_tune_loop **out)
{
    struct poise_tune_loop *loop = poise_alloc(1, sizeof *loop);
    struct poise_coll_options options = {.tree = tree,
                                         .piece_bytes = bytes_max};
    int code = loop ? 0 : -ENOMEM;
    if (code == 0) {
        loop->world = world;
        loop->in = poise_alloc(bytes_max + 8, 1);
        loop->out = poise_alloc(bytes_max + 8, 1);
        code = loop->in && loop->out ? begin_trace(loop) : -ENOMEM;
    }
    code = poise_world_agree(world, code);
    if (code == 0) {
        code = poise_coll_create(world, &options, &loop->coll);
    }
    if (code < 0) {
        poise_tune_loop_destroy(loop);
        return code;
    }
    *out = loop;
    return 0;
}

void poise_tune_loop_destroy(struct poise_tune_loop *loop)
{
    if (!loop) {
        return;
    }
    poise_coll_destroy(loop->coll);
    poise_trace_close(loop->view);
    if (loop->trace) {
        poise_trace_use(NULL);
        poise_trace_destroy(loop->trace);
    }
    free(loop->in);
    free(loop->out);
    free(loop);
}

int poise_tune_loop_use(struct poise_tune_loop *loop,
                        const struct poise_coll_tree *tree)
{
    return poise_coll_propose(loop->coll, tree);
}

const struct poise_coll_tree *
poise_tune_loop_tree(const struct poise_tune_loop *loop)
{
    return poise_coll_tree_of(loop->coll);
}

/* ---- calls ----------------------------------------------------------------
 */

static int make_calls(struct poise_tune_loop *loop, size_t bytes, int calls)
{
    bool words = bytes >= 8 && bytes % 8 == 0;
    int code = 0;
    for (int i = 0; i < calls && code == 0; i++) {
        code = poise_coll_allreduce(loop->coll, loop->in, loop->out,
                                    words ? bytes / 8 : bytes,
                                    words ? POISE_DOUBLE : POISE_UINT8,
                                    words ? POISE_OP_SUM : POISE_OP_MAX);
    }
    return code;
}

/* ---- records --------------------------------------------------------------
 */

/* This thread's ring, which is there since its first record. */
static void find_ring(struct poise_tune_loop *loop)
{
    unsigned rings = poise_trace_rings(loop->view);
    for (unsigned i = 0; i < rings && !loop->has_cursor; i++) {
        struct poise_trace_ring_info info;
        if (poise_trace_ring_info(loop->view, i, &info) == 0 && info.owned &&
            info.tid == (int32_t)gettid()) {
            loop->has_cursor =
                poise_trace_cursor(loop->view, i, &loop->cursor) == 0;
        }
    }
}

/* Read the ring up to its end, and keep the hops, `max` at most, the first
 * ones; `records` NULL: none. */
static int read_ring(struct poise_tune_loop *loop, struct record *records,
                     int max)
{
    struct poise_trace_event events[BATCH];
    struct poise_trace_place place = {0};
    uint32_t collector = 0;
    size_t got;
    int count = 0;
    if (!loop->has_cursor) {
        find_ring(loop);
    }
    while (loop->has_cursor &&
           (got = poise_trace_read(&loop->cursor, BATCH, events)) > 0) {
        for (size_t i = 0; i < got && records; i++) {
            const uint64_t *values = events[i].values;
            if (events[i].collector != collector) {
                collector = events[i].collector;
                place.type = POISE_TRACE_NONE;
                poise_trace_place(loop->view, collector, &place);
            }
            if (place.type == POISE_TRACE_HOP && count < max) {
                records[count++] =
                    (struct record){.sequence = events[i].sequence,
                                    .enter = (int64_t)values[0],
                                    .arrived = (int64_t)values[1],
                                    .released = (int64_t)values[2],
                                    .left = (int64_t)values[3],
                                    .parent = place.peer,
                                    .is_whole = 1};
            }
        }
    }
    return count;
}

/* Ticks as ns of rank 0's clock: by what both clocks say now. */
static void set_times(struct record *records, int count,
                      const struct poise_trace_offset *offset)
{
    uint64_t ticks = poise_clock_ticks();
    int64_t now = (int64_t)poise_clock_ns() + offset->offset_ns;
    for (int i = 0; i < count; i++) {
        int64_t *times[] = {&records[i].enter, &records[i].arrived,
                            &records[i].released, &records[i].left};
        for (int k = 0; k < 4; k++) {
            uint64_t ago = ticks - (uint64_t)*times[k];
            *times[k] = now - (int64_t)poise_clock_ticks_to_ns(ago);
        }
        records[i].error_ns = offset->error_ns;
    }
}

/* A call whose parts are there: rank R's is `calls` * R records behind the
 * first. */
static void add_call(const struct record *records, int calls, int size,
                     struct poise_monitor_span *spans,
                     struct poise_tuner *tuner, struct poise_tune_shares *out)
{
    struct poise_monitor_verdict verdict;
    for (int rank = 0; rank < size; rank++) {
        const struct record *record = &records[(size_t)rank * (size_t)calls];
        if (!record->is_whole || record->sequence != records->sequence) {
            return;
        }
        spans[rank] = (struct poise_monitor_span){
            .group = 1,
            .sequence = record->sequence,
            .rank = rank,
            .enter_ns = record->enter,
            .left_ns = record->left,
            .error_ns = record->error_ns,
            .clock = record->error_ns > 0 ? (uint32_t)rank + 1 : 0,
            .has_hop = true,
            .parent = record->parent,
            .arrived_ns = record->arrived,
            .released_ns = record->released};
    }
    poise_monitor_blame(spans, size, &verdict);
    out->calls++;
    out->arrival_ns += (double)verdict.arrival_ns;
    out->reduce_ns += (double)verdict.reduce_ns;
    out->broadcast_ns += (double)verdict.broadcast_ns;
    if (tuner) {
        poise_tuner_add(tuner, spans);
    }
}

/* On rank 0: what all ranks sent. */
static int add_calls(const struct poise_buf *all, int size, int calls,
                     struct poise_tuner *tuner, struct poise_tune_shares *out)
{
    size_t count = (size_t)calls;
    /* Blobs may lie at any address. */
    struct record *records = poise_alloc((size_t)size * count, sizeof *records);
    struct poise_monitor_span *spans = poise_alloc((size_t)size, sizeof *spans);
    struct poise_reader reader = poise_reader_of(all->data, all->len);
    int code = records && spans ? 0 : -ENOMEM;
    for (int rank = 0; rank < size && code == 0; rank++) {
        size_t len;
        const void *blob = poise_reader_blob(&reader, &len);
        if (!blob || len != count * sizeof *records) {
            code = poise_error_set(EBADMSG, "tune a tree", NULL,
                                   "rank %d sent no records", rank);
        } else {
            memcpy(&records[(size_t)rank * count], blob, len);
        }
    }
    for (int call = 0; call < calls && code == 0; call++) {
        add_call(&records[call], calls, size, spans, tuner, out);
    }
    free(records);
    free(spans);
    return code;
}

int poise_tune_loop_trial(struct poise_tune_loop *loop, size_t bytes, int calls,
                          struct poise_tuner *tuner,
                          struct poise_tune_shares *out)
{
    struct poise_world *world = loop->world;
    struct poise_trace_offset offset = {0};
    struct poise_buf all = {0};
    struct record *records = poise_alloc((size_t)calls, sizeof *records);
    *out = (struct poise_tune_shares){0};
    int code = poise_world_agree(world, records ? 0 : -ENOMEM);
    if (code == 0) {
        code = make_calls(loop, bytes, WARM_CALLS);
        read_ring(loop, NULL, 0);
    }
    if (code == 0) {
        uint64_t since = poise_clock_ns();
        code = make_calls(loop, bytes, calls);
        out->call_ns = (double)(poise_clock_ns() - since) / calls;
    }
    code = poise_world_agree(world, code);
    if (code == 0) {
        code = poise_world_compare_clocks(world, &offset);
    }
    if (code == 0) {
        int count = read_ring(loop, records, calls);
        set_times(records, count, &offset);
        code = poise_world_gather(world, 0, records,
                                  (size_t)calls * sizeof *records, &all);
    }
    if (code == 0 && poise_world_rank(world) == 0) {
        code = add_calls(&all, poise_world_size(world), calls, tuner, out);
    }
    poise_buf_free(&all);
    free(records);
    return poise_world_agree(world, code);
}
