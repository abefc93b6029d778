/*
 * A scope: rounds, in each of which all rings are filled, and of each ring is
 * taken what is not newer than the oldest end of a batch. So rings are merged
 * by time as far as that matters, at no more than two comparisons a record: a
 * ring is ahead of another by less than a batch. A ring that has nothing new is
 * not waited for.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { POLL_MOST = 100000 };

/* ---- made and freed ----------------------------------------------------- */

static char *copy_of(const char *text, int *code)
{
    char *copy = text ? strdup(text) : NULL;
    if (text && !copy) {
        *code = poise_error_set(ENOMEM, "read trace", text, NULL);
    }
    return copy;
}

int poise_scope_create(const char *path,
                       const struct poise_scope_options *options,
                       struct poise_scope **out)
{
    static const struct poise_scope_options none;
    struct poise_scope *scope = poise_alloc(1, sizeof *scope);
    int code = 0;
    if (!scope) {
        return -ENOMEM;
    }
    options = options ? options : &none;
    scope->first_ns = INT64_MAX;
    scope->last_ns = INT64_MIN;
    scope->share = options->share;
    scope->batch = options->helpers > 0 ? SCOPE_BATCH_HELPED : SCOPE_BATCH;
    scope->path = copy_of(path, &code);
    scope->host = copy_of(options->host, &code);
    scope->cluster = copy_of(options->cluster, &code);
    code = code == 0 ? scope_helpers_start(scope, options->helpers) : code;
    if (code < 0) {
        poise_scope_destroy(scope);
        return code;
    }
    *out = scope;
    return 0;
}

void poise_scope_destroy(struct poise_scope *scope)
{
    if (!scope) {
        return;
    }
    scope_helpers_end(scope);
    for (unsigned i = 0; i < scope->result_count; i++) {
        poise_trace_return(scope->result_rings[i]);
    }
    for (size_t i = 0; i < scope->ring_count; i++) {
        free(scope->rings[i]);
    }
    free(scope->rings);
    scope_close(scope);
    free(scope->path);
    free(scope->host);
    free(scope->cluster);
    free(scope);
}

/* ---- stages ------------------------------------------------------------- */

static int add_stage(struct scope_stage *stages, unsigned *count,
                     poise_scope_stage_fn *run, void *arg)
{
    if (*count == SCOPE_STAGES) {
        return poise_error_set(ENOSPC, "add a stage", NULL,
                               "the scope has %d already", SCOPE_STAGES);
    }
    stages[(*count)++] = (struct scope_stage){run, arg};
    return 0;
}

int poise_scope_leaf(struct poise_scope *scope, poise_scope_stage_fn *stage,
                     void *arg)
{
    return add_stage(scope->leaves, &scope->leaf_count, stage, arg);
}

int poise_scope_stage(struct poise_scope *scope, poise_scope_stage_fn *stage,
                      void *arg)
{
    return add_stage(scope->stages, &scope->stage_count, stage, arg);
}

size_t scope_run(const struct scope_stage *stages, unsigned count,
                 const struct poise_scope_from *from,
                 struct poise_trace_event *tuples, size_t left)
{
    for (unsigned i = 0; i < count && left > 0; i++) {
        size_t now = stages[i].run(from, tuples, left, stages[i].arg);
        left = now < left ? now : left;
    }
    return left;
}

/* ---- results ------------------------------------------------------------ */

int poise_scope_results(struct poise_scope *scope, struct poise_trace *trace,
                        unsigned rings)
{
    if (rings < 1 || rings > SCOPE_RESULT_RINGS || scope->results) {
        return poise_error_set(EINVAL, "make result rings", NULL,
                               "%u are not 1 to %d of one trace", rings,
                               SCOPE_RESULT_RINGS);
    }
    for (unsigned i = 0; i < rings; i++) {
        scope->result_rings[i] = poise_trace_claim(trace, "results");
        if (!scope->result_rings[i]) {
            return -poise_error_last()->code;
        }
        scope->result_count++;
    }
    scope->results = trace;
    return 0;
}

uint32_t poise_scope_collector(struct poise_scope *scope,
                               const struct poise_trace_place *place)
{
    return scope->results
               ? poise_trace_collector(scope->results, place) | SCOPE_OWN
               : 0;
}

/* What a collector of a file is in the trace of results; POISE_TRACE_NONE: the
 * file does not say any more what it was. */
static uint32_t name_of(struct poise_scope *scope, struct scope_file *file,
                        uint32_t collector)
{
    uint32_t slot = collector % SCOPE_COLLECTORS;
    struct poise_trace_place place;
    if (collector < POISE_TRACE_COLLECTOR) {
        return collector;
    }
    if (!file->names) {
        file->names = poise_alloc(1, sizeof *file->names);
    }
    if (!file->names) {
        return POISE_TRACE_NONE;
    }
    if (file->names->from[slot] != collector) {
        if (!poise_trace_place(file->view, collector, &place)) {
            return POISE_TRACE_NONE;
        }
        poise_trace_collector_end(scope->results, file->names->to[slot]);
        file->names->to[slot] = poise_trace_collector(scope->results, &place);
        file->names->from[slot] = collector;
    }
    return file->names->to[slot];
}

static void put(struct poise_scope *scope, const struct scope_ring *ring,
                const struct poise_trace_event *tuples, size_t count)
{
    struct scope_file *file = &scope->files[ring->from.file];
    struct poise_trace_ring *to =
        scope->result_rings[(unsigned)ring->from.rank % scope->result_count];
    for (size_t i = 0; i < count; i++) {
        const struct poise_trace_event *tuple = &tuples[i];
        uint32_t collector = tuple->collector & SCOPE_OWN
                                 ? tuple->collector & ~SCOPE_OWN
                                 : name_of(scope, file, tuple->collector);
        poise_trace_put(to, collector, tuple->sequence, tuple->values[0],
                        tuple->values[1], tuple->values[2], tuple->values[3]);
    }
}

/* ---- rounds ------------------------------------------------------------- */

static int add_ring(struct poise_scope *scope, unsigned number,
                    const struct poise_trace_cursor *cursor)
{
    struct scope_ring **rings = poise_realloc(
        scope->rings, scope->ring_count + 1, sizeof(struct scope_ring *));
    if (!rings) {
        return -ENOMEM;
    }
    scope->rings = rings;
    struct scope_ring *ring = poise_alloc(
        1, sizeof *ring + scope->batch * sizeof(struct poise_trace_event));
    if (!ring) {
        return -ENOMEM;
    }
    ring->cursor = *cursor;
    ring->from = (struct poise_scope_from){.scope = scope,
                                           .view = scope->files[number].view,
                                           .rank = (int)number,
                                           .file = number,
                                           .ring = (unsigned)scope->ring_count};
    rings[scope->ring_count++] = ring;
    return 0;
}

static int add_rings(struct poise_scope *scope, unsigned number)
{
    struct scope_file *file = &scope->files[number];
    unsigned count = poise_trace_rings(file->view);
    for (; file->rings < count; file->rings++) {
        struct poise_trace_cursor cursor;
        int code = poise_trace_cursor(file->view, file->rings, &cursor);
        if (code < 0) {
            return code;
        }
        if (cursor.ring->mask == 0) {
            break; /* not there yet */
        }
        code = add_ring(scope, number, &cursor);
        if (code < 0) {
            return code;
        }
    }
    return 0;
}

static int64_t time_at(const struct poise_scope *scope,
                       const struct scope_ring *ring, size_t at)
{
    uint64_t error;
    return scope_ns(&scope->files[ring->from.file].clock,
                    ring->events[at].values[0], &error);
}

/* The ring whose batch ends first, and when; NULL: there is nothing. */
static struct scope_ring *first_end(struct poise_scope *scope, int64_t *end)
{
    struct scope_ring *found = NULL;
    for (size_t i = 0; i < scope->ring_count; i++) {
        struct scope_ring *ring = scope->rings[i];
        if (ring->at == ring->count) {
            continue;
        }
        int64_t ns = time_at(scope, ring, ring->count - 1);
        if (!found || ns < *end) {
            found = ring;
            *end = ns;
        }
    }
    return found;
}

/* How far a ring's records are not newer. Calls that are inside others begin
 * later and lie before them: the order is that of the ring. */
static size_t until(const struct poise_scope *scope,
                    const struct scope_ring *ring, int64_t end)
{
    size_t low = ring->at, high = ring->count;
    if (time_at(scope, ring, high - 1) <= end) {
        return high;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (time_at(scope, ring, middle) <= end) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void note_times(struct poise_scope *scope, const struct scope_ring *ring,
                       size_t last)
{
    int64_t first_ns = time_at(scope, ring, ring->at);
    int64_t last_ns = time_at(scope, ring, last - 1);
    scope->first_ns = first_ns < scope->first_ns ? first_ns : scope->first_ns;
    scope->last_ns = last_ns > scope->last_ns ? last_ns : scope->last_ns;
}

/* Give what a ring has up to `last` to the stages. */
static void take(struct poise_scope *scope, struct scope_ring *ring,
                 size_t last)
{
    struct poise_trace_event *tuples = &ring->events[ring->at];
    if (last == ring->at) {
        return;
    }
    note_times(scope, ring, last);
    ring->from.helper = 0;
    size_t count = scope_run(scope->stages, scope->stage_count, &ring->from,
                             tuples, last - ring->at);
    if (scope->results && count > 0) {
        put(scope, ring, tuples, count);
    }
    ring->at = last;
}

/* A round: 1, or 0 if no ring has anything new. */
static int take_round(struct poise_scope *scope, bool final)
{
    int64_t end = 0;
    scope_fill(scope, final);
    struct scope_ring *first = first_end(scope, &end);
    for (size_t i = 0; first && i < scope->ring_count; i++) {
        struct scope_ring *ring = scope->rings[i];
        if (ring->at < ring->count) {
            take(scope, ring,
                 ring == first ? ring->count : until(scope, ring, end));
        }
    }
    return first != NULL;
}

static uint64_t records_of(const struct poise_scope *scope)
{
    uint64_t records = 0;
    for (size_t i = 0; i < scope->ring_count; i++) {
        records += scope->rings[i]->cursor.read;
    }
    return records;
}

static int take_all(struct poise_scope *scope, bool final)
{
    uint64_t before = scope->records;
    int more = 1;
    while (more && scope->records - before < POLL_MOST) {
        more = take_round(scope, final);
        scope->records = records_of(scope);
    }
    return more;
}

static uint64_t cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* What a record costs is known by the last million of them. */
static int take_share(struct poise_scope *scope, bool final)
{
    enum { FORGET = 1 << 20 };
    uint64_t from = cpu_ns(), before = scope->records;
    if (!final) {
        scope_leave_out(scope);
    }
    int code = take_all(scope, final);
    scope->spent_ns += cpu_ns() - from;
    scope->spent_records += scope->records - before;
    if (scope->spent_records > FORGET) {
        scope->spent_records /= 2;
        scope->spent_ns /= 2;
    }
    return code;
}

int poise_scope_poll(struct poise_scope *scope, bool final)
{
    int code = scope_open(scope, final);
    if (code <= 0) {
        return code;
    }
    code = 0;
    for (int i = 0; i < scope->size && code == 0; i++) {
        const struct scope_file *file = &scope->files[i];
        code = file->view && !file->outside ? add_rings(scope, (unsigned)i) : 0;
    }
    if (code < 0) {
        return code;
    }
    return scope->share > 0 ? take_share(scope, final) : take_all(scope, final);
}

/* ---- asking ------------------------------------------------------------- */

static int64_t span_of(const struct poise_scope *scope)
{
    int64_t span = 0;
    if (scope->last_ns > scope->first_ns &&
        __builtin_sub_overflow(scope->last_ns, scope->first_ns, &span)) {
        span = INT64_MAX;
    }
    return span;
}

void poise_scope_source(const struct poise_scope *scope,
                        struct poise_scope_source *out)
{
    bool foreign;
    *out = (struct poise_scope_source){
        .size = scope->size,
        .records = scope->records,
        .waits = scope->waits,
        .timely = scope->timely,
        .span_ns = span_of(scope),
    };
    for (size_t i = 0; i < scope->ring_count; i++) {
        const struct scope_ring *ring = scope->rings[i];
        out->left_out += ring->left_out;
        out->skipped +=
            __atomic_load_n(&ring->cursor.ring->skipped, __ATOMIC_RELAXED);
        out->lost +=
            ring->cursor.lost + ring->cursor.unfinished - ring->left_out;
    }
    out->files = scope_files(scope, &foreign);
    out->one_clock = !foreign;
    for (int i = 0; i < scope->size; i++) {
        const struct scope_file *file = &scope->files[i];
        struct poise_trace_info info;
        if (!file->view) {
            continue;
        }
        poise_trace_info(file->view, &info);
        out->running += !info.ended;
        struct poise_trace_file known;
        if (file->clock.session &&
            poise_trace_session_file(file->clock.session, file->clock.file,
                                     &known) == 0 &&
            known.error_ns > out->error_ns) {
            out->error_ns = known.error_ns;
        }
    }
}
