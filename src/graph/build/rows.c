/*
 * From arcs in any order to sorted rows, in two steps that both stay within
 * the caches: arcs are first thrown into some hundred buckets of consecutive
 * rows, by way of a few lines of staging for each thread and bucket; then each
 * bucket by itself is sorted by row, its rows by neighbour.
 *
 * Memory: an arc takes 6 bytes in its bucket and 4 in its row. While buckets
 * fill, the list of edges is given back, while rows grow, the buckets are: for
 * an undirected graph at most about 12 bytes an edge (two arcs) in all.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_BUCKETS 256
#define ROWS_BUCKET_MIN_ARCS ((uint64_t)1 << 14)
/** A row within its bucket has 16 bits. */
#define ROWS_BUCKET_MAX_ROWS ((uint64_t)1 << 16)
/** Buckets begin at multiples of this. */
#define ROWS_GRAIN 64
#define ROWS_STAGED 32
#define ROWS_CHUNK_EDGES ((uint64_t)1 << 16)
#define ROWS_MAX_CHUNKS (GRAPH_TEAM_MAX_CHUNKS / 2)
/** Rows up to here are sorted by insertion, longer ones by radix. */
#define ROWS_INSERTION 32

struct rows_bucket {
    uint64_t row_from, row_to;
    uint64_t base, capacity; /**< in arcs */
    uint64_t fill;           /**< __atomic while buckets fill */
    uint64_t kept;           /**< after duplicates are gone */
};

struct rows_stage {
    uint16_t count;
    uint16_t low[ROWS_STAGED];
    uint32_t to[ROWS_STAGED];
};

struct rows_run {
    const struct graph_rows_plan *plan;
    struct graph_rows rows;
    uint64_t capacity;  /**< arcs, before loops and duplicates are gone */
    uint64_t max_row;   /**< arcs */
    uint32_t max_place; /**< for the number of radix passes */
    uint32_t buckets_count, chunks;
    struct rows_bucket *buckets;
    uint16_t *bucket_of;       /**< by row / ROWS_GRAIN */
    uint16_t *low;             /**< by bucket: row within it */
    uint32_t *head;            /**< by bucket: place of the neighbour */
    struct rows_stage *stages; /**< thread after thread */
    uint32_t *scratch;         /**< thread after thread: max_row arcs */
    uint64_t *counts;          /**< ... ROWS_BUCKET_MAX_ROWS */
};

/* ---- planning ----------------------------------------------------------- */

static uint64_t rows_bucket_target(const struct rows_run *run)
{
    uint64_t target = run->capacity / ROWS_BUCKETS;
    return target > ROWS_BUCKET_MIN_ARCS ? target : ROWS_BUCKET_MIN_ARCS;
}

/* Cut the rows into buckets; with `buckets` NULL only count them. */
static uint32_t rows_cut(struct rows_run *run, struct rows_bucket *buckets)
{
    const uint32_t *ends_at = run->plan->ends_at;
    uint64_t row_count = run->plan->row_count;
    uint64_t target = rows_bucket_target(run);
    uint32_t count = 0;
    uint64_t base = 0;
    for (uint64_t from = 0; from < row_count;) {
        uint64_t to = from, arcs = 0;
        while (to < row_count && arcs < target &&
               to - from < ROWS_BUCKET_MAX_ROWS) {
            uint64_t grain = to + ROWS_GRAIN;
            for (; to < grain && to < row_count; to++) {
                arcs += ends_at[to];
            }
            if (buckets) {
                run->bucket_of[(to - 1) / ROWS_GRAIN] = (uint16_t)count;
            }
        }
        if (buckets) {
            buckets[count] = (struct rows_bucket){
                .row_from = from, .row_to = to, .base = base, .capacity = arcs};
        }
        base += arcs;
        from = to;
        count++;
    }
    return count;
}

static int rows_alloc(struct rows_run *run)
{
    const struct graph_rows_plan *plan = run->plan;
    uint64_t rows = plan->row_count;
    unsigned threads = graph_team_size(plan->team);
    run->buckets_count = rows_cut(run, NULL);
    if (run->buckets_count > UINT16_MAX) {
        return poise_error_set(EOVERFLOW, "build a graph", NULL,
                               "%llu vertices for one rank are too many",
                               (unsigned long long)rows);
    }
    run->buckets = poise_alloc(run->buckets_count + 1, sizeof *run->buckets);
    run->bucket_of = poise_alloc(rows / ROWS_GRAIN + 1, sizeof *run->bucket_of);
    run->stages = poise_alloc((size_t)threads * (run->buckets_count + 1),
                              sizeof *run->stages);
    run->counts = poise_alloc((size_t)threads * ROWS_BUCKET_MAX_ROWS,
                              sizeof *run->counts);
    if (!run->buckets || !run->bucket_of || !run->stages || !run->counts) {
        return -ENOMEM;
    }
    run->scratch = graph_pages_map(threads * run->max_row * 4, false);
    run->low = graph_pages_map(run->capacity * 2, false);
    run->head = graph_pages_map(run->capacity * 4, false);
    run->rows.start = graph_pages_map((rows + 1) * 8, plan->huge);
    run->rows.to = graph_pages_map(run->capacity * 4, plan->huge);
    run->rows.first = graph_pages_map(rows * 4, plan->huge);
    if (!run->scratch || !run->low || !run->head || !run->rows.start ||
        !run->rows.to || !run->rows.first) {
        return -ENOMEM;
    }
    rows_cut(run, run->buckets);
    return 0;
}

static void rows_free_work(struct rows_run *run)
{
    unsigned threads = graph_team_size(run->plan->team);
    graph_pages_unmap(run->scratch, threads * run->max_row * 4);
    graph_pages_unmap(run->low, run->capacity * 2);
    graph_pages_unmap(run->head, run->capacity * 4);
    free(run->buckets);
    free(run->bucket_of);
    free(run->stages);
    free(run->counts);
}

/* ---- buckets ------------------------------------------------------------ */

static void rows_flush(struct rows_run *run, struct rows_stage *stage,
                       struct rows_bucket *bucket)
{
    uint64_t at = bucket->base + __atomic_fetch_add(&bucket->fill, stage->count,
                                                    __ATOMIC_RELAXED);
    memcpy(run->low + at, stage->low, stage->count * sizeof *stage->low);
    memcpy(run->head + at, stage->to, stage->count * sizeof *stage->to);
    stage->count = 0;
}

static inline void rows_throw(struct rows_run *run, struct rows_stage *stages,
                              uint32_t tail, uint32_t head)
{
    const struct graph_rows_plan *plan = run->plan;
    uint64_t row = tail - plan->first_place;
    if (plan->step > 1) {
        row /= plan->step;
    }
    uint16_t number = run->bucket_of[row / ROWS_GRAIN];
    struct rows_bucket *bucket = &run->buckets[number];
    struct rows_stage *stage = &stages[number];
    stage->low[stage->count] = (uint16_t)(row - bucket->row_from);
    stage->to[stage->count] = head;
    if (++stage->count == ROWS_STAGED) {
        rows_flush(run, stage, bucket);
    }
}

/* A loop is no arc, it is only counted. */
static void rows_count_loop(const struct graph_rows_plan *plan, uint32_t place)
{
    if (plan->loops_at && plan->arcs.forward && place != POISE_GRAPH_NONE) {
        uint64_t row = (place - plan->first_place) / plan->step;
        __atomic_fetch_add(&plan->loops_at[row], 1, __ATOMIC_RELAXED);
    }
}

static void rows_throw_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct rows_run *run = arg;
    const struct graph_arcs *arcs = &run->plan->arcs;
    struct rows_stage *stages =
        run->stages + (size_t)thread * run->buckets_count;
    const uint32_t *place_of = arcs->place_of;
    struct graph_range range =
        graph_range_of(arcs->count, chunk, run->chunks, ROWS_CHUNK_EDGES / 8);
    for (uint64_t i = range.from; i < range.to; i++) {
        uint32_t u = arcs->ends[2 * i], v = arcs->ends[2 * i + 1];
        if (u == v) {
            rows_count_loop(run->plan, place_of ? place_of[u] : u);
            continue;
        }
        if (place_of) {
            u = place_of[u];
            v = place_of[v];
        }
        if (arcs->forward) {
            rows_throw(run, stages, u, v);
        }
        if (arcs->backward) {
            rows_throw(run, stages, v, u);
        }
    }
    if (arcs->use_up && range.to > range.from) {
        graph_pages_drop(arcs->ends + 2 * range.from,
                         (range.to - range.from) * 8);
    }
}

static void rows_throw_rest(struct rows_run *run)
{
    unsigned threads = graph_team_size(run->plan->team);
    for (unsigned t = 0; t < threads; t++) {
        for (uint32_t i = 0; i < run->buckets_count; i++) {
            struct rows_stage *stage =
                &run->stages[(size_t)t * run->buckets_count + i];
            rows_flush(run, stage, &run->buckets[i]);
        }
    }
}

/* ---- rows --------------------------------------------------------------- */

static void rows_insertion(uint32_t *row, uint64_t count)
{
    for (uint64_t i = 1; i < count; i++) {
        uint32_t value = row[i];
        uint64_t j = i;
        for (; j > 0 && row[j - 1] > value; j--) {
            row[j] = row[j - 1];
        }
        row[j] = value;
    }
}

/* Least significant byte first; `row` holds the result. */
static void rows_radix(uint32_t *row, uint64_t count, uint32_t *spare,
                       uint32_t most)
{
    uint32_t *from = row, *to = spare;
    for (unsigned shift = 0; shift < 32 && most >> shift > 0; shift += 8) {
        uint64_t at[256] = {0};
        for (uint64_t i = 0; i < count; i++) {
            at[from[i] >> shift & 255]++;
        }
        if (at[from[0] >> shift & 255] == count) {
            continue;
        }
        uint64_t next = 0;
        for (unsigned digit = 0; digit < 256; digit++) {
            uint64_t here = at[digit];
            at[digit] = next;
            next += here;
        }
        for (uint64_t i = 0; i < count; i++) {
            to[at[from[i] >> shift & 255]++] = from[i];
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != row) {
        memcpy(row, from, count * sizeof *row);
    }
}

/* Sort a row and move it down to `to` without duplicates; returns how many. */
static uint64_t rows_finish_row(const struct rows_run *run, uint32_t *row,
                                uint64_t count, uint32_t *spare, uint32_t *to)
{
    if (count <= ROWS_INSERTION) {
        rows_insertion(row, count);
    } else {
        rows_radix(row, count, spare, run->max_place);
    }
    uint64_t kept = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t value = row[i];
        if (kept == 0 || to[kept - 1] != value) {
            to[kept++] = value;
        }
    }
    return kept;
}

static void rows_finish_bucket(void *arg, unsigned thread, uint32_t chunk)
{
    struct rows_run *run = arg;
    struct rows_bucket *bucket = &run->buckets[chunk];
    uint64_t *counts = run->counts + (size_t)thread * ROWS_BUCKET_MAX_ROWS;
    uint32_t *spare = run->scratch + thread * run->max_row;
    const uint16_t *low = run->low + bucket->base;
    const uint32_t *head = run->head + bucket->base;
    uint32_t *to = run->rows.to + bucket->base;
    uint64_t rows = bucket->row_to - bucket->row_from;

    memset(counts, 0, rows * sizeof *counts);
    for (uint64_t i = 0; i < bucket->fill; i++) {
        counts[low[i]]++;
    }
    uint64_t at = 0;
    for (uint64_t r = 0; r < rows; r++) {
        uint64_t count = counts[r];
        run->rows.start[bucket->row_from + r] = at;
        counts[r] = at;
        at += count;
    }
    for (uint64_t i = 0; i < bucket->fill; i++) {
        to[counts[low[i]]++] = head[i];
    }
    graph_pages_drop(run->low + bucket->base, bucket->capacity * 2);
    graph_pages_drop(run->head + bucket->base, bucket->capacity * 4);
    uint64_t kept = 0;
    for (uint64_t r = 0; r < rows; r++) {
        uint64_t *start = &run->rows.start[bucket->row_from + r];
        uint64_t from = *start;
        *start = kept;
        kept +=
            rows_finish_row(run, to + from, counts[r] - from, spare, to + kept);
    }
    bucket->kept = kept;
}

/* Close the gaps that loops and duplicates left between buckets. */
static int rows_compact(struct rows_run *run)
{
    struct graph_rows *rows = &run->rows;
    uint64_t next = 0;
    for (uint32_t i = 0; i < run->buckets_count; i++) {
        struct rows_bucket *bucket = &run->buckets[i];
        if (next != bucket->base) {
            memmove(rows->to + next, rows->to + bucket->base,
                    bucket->kept * sizeof *rows->to);
        }
        bucket->base = next;
        next += bucket->kept;
    }
    rows->start[rows->row_count] = next;
    rows->arc_count = next;
    uint32_t *to =
        graph_pages_remap(rows->to, run->capacity * 4, next * sizeof *to);
    if (!to) {
        return -ENOMEM;
    }
    rows->to = to;
    return 0;
}

static uint64_t rows_place(const struct graph_rows_plan *plan, uint64_t row)
{
    return plan->first_place + row * plan->step;
}

static void rows_first_bucket(void *arg, unsigned thread, uint32_t chunk)
{
    struct rows_run *run = arg;
    const struct rows_bucket *bucket = &run->buckets[chunk];
    struct graph_rows *rows = &run->rows;
    uint64_t end = bucket->base + bucket->kept;
    (void)thread;
    uint64_t more_to = 0;
    for (uint64_t r = bucket->row_to; r-- > bucket->row_from;) {
        uint64_t start = rows->start[r] + bucket->base;
        rows->start[r] = start;
        rows->first[r] =
            start < end ? rows->to[start] : (uint32_t)rows_place(run->plan, r);
        if (end - start > 1 && more_to == 0) {
            more_to = r + 1;
        }
        end = start;
    }
    uint64_t most = __atomic_load_n(&rows->more_to, __ATOMIC_RELAXED);
    while (more_to > most &&
           !__atomic_compare_exchange_n(&rows->more_to, &most, more_to, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

int graph_rows_make(const struct graph_rows_plan *plan, struct graph_rows *out)
{
    struct rows_run run = {.plan = plan};
    run.rows.row_count = plan->row_count;
    for (uint64_t r = 0; r < plan->row_count; r++) {
        uint32_t ends = plan->ends_at[r];
        run.capacity += ends;
        run.max_row = ends > run.max_row ? ends : run.max_row;
    }
    run.max_place = plan->max_place;
    uint64_t chunks = plan->arcs.count / ROWS_CHUNK_EDGES + 1;
    run.chunks =
        (uint32_t)(chunks < ROWS_MAX_CHUNKS ? chunks : ROWS_MAX_CHUNKS);
    int code = rows_alloc(&run);
    if (code == 0) {
        graph_team_run(plan->team, rows_throw_chunk, &run, run.chunks);
        rows_throw_rest(&run);
        graph_team_run(plan->team, rows_finish_bucket, &run, run.buckets_count);
        code = rows_compact(&run);
    }
    if (code == 0) {
        graph_team_run(plan->team, rows_first_bucket, &run, run.buckets_count);
        *out = run.rows;
    } else {
        run.rows.arc_count = run.capacity;
        graph_rows_free(&run.rows);
    }
    rows_free_work(&run);
    return code;
}

void graph_rows_free(struct graph_rows *rows)
{
    graph_pages_unmap(rows->start, (rows->row_count + 1) * 8);
    graph_pages_unmap(rows->to, rows->arc_count * 4);
    graph_pages_unmap(rows->first, rows->row_count * 4);
    *rows = (struct graph_rows){0};
}

uint64_t graph_rows_bytes(const struct graph_rows *rows)
{
    return rows->row_count * 12 + rows->arc_count * 4;
}
