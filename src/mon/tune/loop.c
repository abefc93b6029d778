/*
 * Calls to tune by: one after the other, and each rank's hops of them, read
 * from its ring, brought into rank 0's time and gathered there. This is done
 * between trials, so that it holds no call up.
 *
 * Broadcasts and reductions to a root do not wait for each other: one after the
 * other they would overlap, and what a call takes would not be seen. So all
 * ranks begin each of them at a time that rank 0 names, by its clock.
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

/* Clocks are compared anew after so long: until then they drift apart by less
 * than the comparison was wrong by. */
#define COMPARE_NS UINT64_C(5000000000)
/* The shortest time from one call's beginning to the next one's. */
#define SPACE_NS UINT64_C(200000)

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
    size_t bytes_max;
    char *in, *out; /* [bytes_max + 8]; of an allgather as many for each rank */
    enum poise_tune_operation operation;
    struct poise_trace_offset offset; /* of rank 0's clock */
    uint64_t compared_ns;             /* when, by rank 0's; 0: never */
    uint64_t space_ns; /* rank 0: from one call's beginning to the next one's */
};

/* What rank 0 says at the beginning of a trial. */
struct plan {
    bool compare; /* the clocks */
    uint64_t space_ns;
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
        loop->bytes_max = bytes_max;
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

int poise_tune_loop_operation(struct poise_tune_loop *loop,
                              enum poise_tune_operation operation)
{
    char *out = loop->out;
    int code = 0;
    if (operation == POISE_TUNE_ALLGATHER) {
        out = poise_alloc(loop->bytes_max + 8,
                          (size_t)poise_world_size(loop->world));
        code = out ? 0 : -ENOMEM;
    }
    code = poise_world_agree(loop->world, code);
    if (code == 0 && out != loop->out) {
        free(loop->out);
        loop->out = out;
    } else if (out != loop->out) {
        free(out);
    }
    if (code == 0) {
        loop->operation = operation;
    }
    return code;
}

/* ---- calls ----------------------------------------------------------------
 */

static const char *const operation_names[POISE_TUNE_OPERATIONS] = {
    "allreduce", "barrier", "allgather", "broadcast", "reduce"};

const char *poise_tune_operation_name(enum poise_tune_operation operation)
{
    return operation_names[operation];
}

bool poise_tune_operation_is_one_way(enum poise_tune_operation operation)
{
    return operation >= POISE_TUNE_BROADCAST;
}

static int make_call(struct poise_tune_loop *loop,
                     enum poise_tune_operation operation, size_t bytes)
{
    bool words = bytes >= 8 && bytes % 8 == 0;
    size_t count = words ? bytes / 8 : bytes;
    enum poise_coll_type type = words ? POISE_DOUBLE : POISE_UINT8;
    enum poise_coll_op op = words ? POISE_OP_SUM : POISE_OP_MAX;
    switch (operation) {
    case POISE_TUNE_BARRIER:
        return poise_coll_barrier(loop->coll);
    case POISE_TUNE_ALLGATHER:
        return poise_coll_allgather(loop->coll, loop->in, loop->out, bytes);
    case POISE_TUNE_BROADCAST:
        return poise_coll_broadcast(loop->coll, 0, loop->in, bytes);
    case POISE_TUNE_REDUCE:
        return poise_coll_reduce(loop->coll, 0, loop->in, loop->out, count,
                                 type, op);
    default:
        return poise_coll_allreduce(loop->coll, loop->in, loop->out, count,
                                    type, op);
    }
}

/* By these a new tree comes into use. */
static int make_warm_calls(struct poise_tune_loop *loop, size_t bytes)
{
    bool one_way = poise_tune_operation_is_one_way(loop->operation);
    enum poise_tune_operation operation =
        one_way ? POISE_TUNE_BARRIER : loop->operation;
    uint64_t since = poise_clock_ns();
    int code = 0;
    for (int i = 0; i < WARM_CALLS && code == 0; i++) {
        code = make_call(loop, operation, bytes);
    }
    if (loop->space_ns == 0) {
        loop->space_ns = SPACE_NS + 4 * (poise_clock_ns() - since) / WARM_CALLS;
    }
    return code;
}

/* Until rank 0's clock shows `ns`, but not for longer than `most_ns`, whatever
 * it is taken to show; the last part awake. */
static void wait_until(const struct poise_tune_loop *loop, uint64_t ns,
                       uint64_t most_ns)
{
    uint64_t since = poise_clock_ns(), now = since;
    int64_t left;
    while ((left = (int64_t)(ns - now) - loop->offset.offset_ns) > 0 &&
           now - since < most_ns) {
        if (left > 200000) {
            poise_world_wait(loop->world, (uint64_t)left - 100000);
        }
        now = poise_clock_ns();
    }
}

/* `start`: of the first call, by rank 0's clock. */
static int make_calls(struct poise_tune_loop *loop, size_t bytes, int calls,
                      uint64_t start, uint64_t space_ns)
{
    bool one_way = poise_tune_operation_is_one_way(loop->operation);
    int code = 0;
    for (int i = 0; i < calls && code == 0; i++) {
        if (one_way) {
            wait_until(loop, start + (uint64_t)i * space_ns, 4 * space_ns);
        }
        code = make_call(loop, loop->operation, bytes);
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

/* From the last arrival to the last departure. */
static double latency_of(const struct poise_monitor_span *spans, int size)
{
    int64_t came = INT64_MIN, left = INT64_MIN;
    for (int rank = 0; rank < size; rank++) {
        came = spans[rank].enter_ns > came ? spans[rank].enter_ns : came;
        left = spans[rank].left_ns > left ? spans[rank].left_ns : left;
    }
    return (double)(left - came);
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
    double all =
        (double)(verdict.arrival_ns + verdict.reduce_ns + verdict.broadcast_ns);
    out->longest_ns = all > out->longest_ns ? all : out->longest_ns;
    out->latency_ns += latency_of(spans, size);
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

/* Rank 0 says whether clocks are compared, and when calls begin. */
static int make_plan(struct poise_tune_loop *loop, int code, struct plan *plan)
{
    struct poise_buf word = {0};
    uint64_t now = poise_clock_ns();
    *plan = (struct plan){loop->compared_ns == 0 ||
                              now - loop->compared_ns > COMPARE_NS,
                          loop->space_ns};
    poise_buf_u64(&word, plan->compare);
    poise_buf_u64(&word, plan->space_ns);
    code = poise_world_agree(loop->world, code < 0 ? code : word.error);
    if (code == 0) {
        code = poise_world_broadcast(loop->world, 0, &word);
    }
    if (code == 0) {
        struct poise_reader reader = poise_reader_of(word.data, word.len);
        plan->compare = poise_reader_u64(&reader) != 0;
        plan->space_ns = poise_reader_u64(&reader);
    }
    poise_buf_free(&word);
    if (code == 0 && plan->compare) {
        code = poise_world_compare_clocks(loop->world, &loop->offset);
        loop->compared_ns = poise_clock_ns();
    }
    return code;
}

/* When the first call is to begin: late enough that all know. */
static int name_start(struct poise_tune_loop *loop, uint64_t space_ns,
                      uint64_t *start)
{
    struct poise_buf word = {0};
    poise_buf_u64(&word, poise_clock_ns() + 2 * space_ns);
    int code = poise_world_agree(loop->world, word.error);
    if (code == 0) {
        code = poise_world_broadcast(loop->world, 0, &word);
    }
    if (code == 0) {
        struct poise_reader reader = poise_reader_of(word.data, word.len);
        *start = poise_reader_u64(&reader);
    }
    poise_buf_free(&word);
    return code;
}

/* Twice as long as the longest call, for the next trial. */
static void learn_space(struct poise_tune_loop *loop,
                        const struct poise_tune_shares *shares)
{
    uint64_t wanted = 2 * (uint64_t)shares->longest_ns;
    if (shares->calls > 0) {
        loop->space_ns = wanted > SPACE_NS ? wanted : SPACE_NS;
    }
}

/* What this rank's calls left goes to rank 0; of calls that failed nothing. */
static int gather_records(struct poise_tune_loop *loop, int code, int calls,
                          struct poise_buf *all)
{
    struct record *records = poise_alloc((size_t)calls, sizeof *records);
    code = code < 0 ? code : records ? 0 : -ENOMEM;
    if (code == 0) {
        int count = read_ring(loop, records, calls);
        set_times(records, count, &loop->offset);
    }
    code = poise_world_agree(loop->world, code);
    if (code == 0) {
        code = poise_world_gather(loop->world, 0, records,
                                  (size_t)calls * sizeof *records, all);
    }
    free(records);
    return code;
}

int poise_tune_loop_trial(struct poise_tune_loop *loop, size_t bytes, int calls,
                          struct poise_tuner *tuner,
                          struct poise_tune_shares *out)
{
    struct poise_world *world = loop->world;
    struct poise_buf all = {0};
    struct plan plan;
    uint64_t start = 0;
    *out = (struct poise_tune_shares){0};
    int code = make_plan(loop, make_warm_calls(loop, bytes), &plan);
    if (code == 0 && poise_tune_operation_is_one_way(loop->operation)) {
        code = name_start(loop, plan.space_ns, &start);
    }
    if (code == 0) {
        read_ring(loop, NULL, 0);
        uint64_t since = poise_clock_ns();
        code = make_calls(loop, bytes, calls, start, plan.space_ns);
        out->call_ns = (double)(poise_clock_ns() - since) / calls;
    }
    code = gather_records(loop, code, calls, &all);
    if (code == 0 && poise_world_rank(world) == 0) {
        code = add_calls(&all, poise_world_size(world), calls, tuner, out);
        learn_space(loop, out);
    }
    poise_buf_free(&all);
    return poise_world_agree(world, code);
}
