/*
 * How vertices are numbered. A skewed graph is put in order of degree: its few
 * hubs then share cache lines, in the bitmaps as in the arrays, and a vertex
 * that looks for a parent meets them first. On a flat graph that order would
 * only tear neighbours apart. Vertices without a neighbour get no number.
 *
 * Degrees are those of the input: duplicates count, which changes little.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

#define CENSUS_CHUNK_EDGES ((uint64_t)1 << 16)
#define CENSUS_MAX_CHUNKS 4096
/** Degrees up to here are sorted by counting, the few above by comparing. */
#define ORDER_COUNTED 65536
/** The graph is skewed if this part of the vertices, those of the largest
 * degrees, has more than that part of the ends. */
#define ORDER_TOP_PART 64
#define ORDER_TOP_SHARE 8

struct census_run {
    struct graph_census *census;
    const struct poise_graph_edges *edges;
    uint32_t chunks;
    uint64_t loops;    /**< __atomic */
    uint32_t range_at; /**< __atomic: 1 once a label was out of range */
    uint64_t bad;      /**< that label */
    uint32_t overflow; /**< __atomic: a count came round to 0 */
};

static inline void census_mark(uint64_t *bits, uint32_t v)
{
    uint64_t bit = UINT64_C(1) << (v & 63);
    if (!(__atomic_load_n(&bits[v >> 6], __ATOMIC_RELAXED) & bit)) {
        __atomic_fetch_or(&bits[v >> 6], bit, __ATOMIC_RELAXED);
    }
}

static void census_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct census_run *run = arg;
    struct graph_census *census = run->census;
    const uint32_t *ends = run->edges->ends;
    uint32_t *tails = census->ends_at;
    uint32_t *heads = census->directed ? census->heads_at : tails;
    uint64_t loops = 0;
    struct graph_range range =
        graph_range_of(run->edges->count, chunk, run->chunks, 1);
    (void)thread;
    for (uint64_t i = range.from; i < range.to; i++) {
        uint32_t u = ends[2 * i], v = ends[2 * i + 1];
        if (u >= census->vertex_count || v >= census->vertex_count) {
            if (__atomic_exchange_n(&run->range_at, 1, __ATOMIC_ACQ_REL) == 0) {
                run->bad = u >= census->vertex_count ? u : v;
            }
            return;
        }
        uint32_t a = __atomic_add_fetch(&tails[u], 1, __ATOMIC_RELAXED);
        uint32_t b = __atomic_add_fetch(&heads[v], 1, __ATOMIC_RELAXED);
        if (a == 0 || b == 0) {
            __atomic_store_n(&run->overflow, 1, __ATOMIC_RELAXED);
        }
        if (u == v) {
            loops++;
            continue;
        }
        census_mark(census->has_neighbour, u);
        census_mark(census->has_neighbour, v);
    }
    __atomic_fetch_add(&run->loops, loops, __ATOMIC_RELAXED);
}

static uint64_t census_words(uint64_t vertex_count)
{
    return (vertex_count + 63) / 64;
}

static int census_alloc(struct graph_census *census)
{
    uint64_t bytes = census->vertex_count * sizeof(uint32_t);
    census->ends_at = graph_pages_map(bytes, true);
    census->has_neighbour =
        graph_pages_map(census_words(census->vertex_count) * 8, false);
    if (!census->ends_at || !census->has_neighbour) {
        return -ENOMEM;
    }
    if (census->directed) {
        census->heads_at = graph_pages_map(bytes, true);
    }
    return !census->directed || census->heads_at ? 0 : -ENOMEM;
}

static inline uint64_t census_degree(const struct graph_census *census,
                                     uint64_t v)
{
    return (uint64_t)census->ends_at[v] +
           (census->directed ? census->heads_at[v] : 0);
}

void graph_census_sum(struct graph_census *census)
{
    uint64_t connected = 0, most = 0;
    for (uint64_t i = 0; i < census_words(census->vertex_count); i++) {
        connected += (uint64_t)__builtin_popcountll(census->has_neighbour[i]);
    }
    for (uint64_t v = 0; v < census->vertex_count; v++) {
        uint64_t degree = census_degree(census, v);
        most = degree > most ? degree : most;
    }
    census->connected = connected;
    census->max_degree = most;
}

int graph_census_take(struct graph_team *team,
                      const struct poise_graph_edges *edges,
                      struct graph_census *out)
{
    struct graph_census census = {.vertex_count = edges->vertex_count,
                                  .directed = edges->directed};
    struct census_run run = {.census = &census, .edges = edges};
    int code = census_alloc(&census);
    if (code < 0) {
        goto free_census;
    }
    uint64_t chunks = edges->count / CENSUS_CHUNK_EDGES + 1;
    run.chunks =
        (uint32_t)(chunks < CENSUS_MAX_CHUNKS ? chunks : CENSUS_MAX_CHUNKS);
    graph_team_run(team, census_chunk, &run, run.chunks);
    if (run.range_at) {
        code = poise_error_set(
            EINVAL, "build a graph", NULL,
            "label %llu is not below the number of vertices, %llu",
            (unsigned long long)run.bad,
            (unsigned long long)edges->vertex_count);
        goto free_census;
    }
    if (run.overflow) {
        code = poise_error_set(EOVERFLOW, "build a graph", NULL,
                               "a vertex has 2^32 or more edges");
        goto free_census;
    }
    census.loops = run.loops;
    graph_census_sum(&census);
    *out = census;
    return 0;

free_census:
    graph_census_free(&census);
    return code;
}

void graph_census_free(struct graph_census *census)
{
    uint64_t bytes = census->vertex_count * sizeof(uint32_t);
    graph_pages_unmap(census->ends_at, bytes);
    graph_pages_unmap(census->heads_at, bytes);
    graph_pages_unmap(census->has_neighbour,
                      census_words(census->vertex_count) * 8);
    *census = (struct graph_census){0};
}

/* ---- the order ---------------------------------------------------------- */

/* How many connected vertices have each degree; all above ORDER_COUNTED
 * together in the last place. */
static void order_histogram(const struct graph_census *census,
                            uint64_t counts[ORDER_COUNTED + 1])
{
    for (uint64_t v = 0; v < census->vertex_count; v++) {
        if (census->has_neighbour[v >> 6] >> (v & 63) & 1) {
            uint64_t degree = census_degree(census, v);
            counts[degree < ORDER_COUNTED ? degree : ORDER_COUNTED]++;
        }
    }
}

enum poise_graph_order graph_order_choose(const struct graph_census *census)
{
    enum poise_graph_order order = POISE_GRAPH_ORDER_KEEP;
    uint64_t *counts = calloc(ORDER_COUNTED + 1, sizeof *counts);
    if (!counts) {
        return order; /* correct, if slower */
    }
    order_histogram(census, counts);
    uint64_t ends = 0;
    for (uint64_t v = 0; v < census->vertex_count; v++) {
        ends += census_degree(census, v);
    }
    uint64_t left = census->connected / ORDER_TOP_PART, top = 0;
    for (uint64_t degree = ORDER_COUNTED; degree > 0 && left > 0; degree--) {
        uint64_t taken = counts[degree] < left ? counts[degree] : left;
        top += taken * degree;
        left -= taken;
    }
    if (top / ORDER_TOP_SHARE > ends / ORDER_TOP_PART) {
        order = POISE_GRAPH_ORDER_DEGREE;
    }
    free(counts);
    return order;
}

static int order_compare(const void *a, const void *b, void *arg)
{
    const struct graph_census *census = arg;
    uint32_t v = *(const uint32_t *)a, w = *(const uint32_t *)b;
    uint64_t x = census_degree(census, v), y = census_degree(census, w);
    return x != y ? (x < y) - (x > y) : (v > w) - (v < w);
}

/* The largest degree first; of equal ones the lowest label. */
static int order_by_degree(const struct graph_census *census,
                           uint32_t *label_of)
{
    uint64_t *at = poise_alloc(ORDER_COUNTED + 1, sizeof *at);
    if (!at) {
        return -ENOMEM;
    }
    order_histogram(census, at);
    uint64_t huge = at[ORDER_COUNTED], next = 0;
    for (uint64_t degree = ORDER_COUNTED + 1; degree-- > 0;) {
        uint64_t count = at[degree];
        at[degree] = next;
        next += count;
    }
    for (uint64_t v = 0; v < census->vertex_count; v++) {
        if (census->has_neighbour[v >> 6] >> (v & 63) & 1) {
            uint64_t degree = census_degree(census, v);
            degree = degree < ORDER_COUNTED ? degree : ORDER_COUNTED;
            label_of[at[degree]++] = (uint32_t)v;
        }
    }
    qsort_r(label_of, huge, sizeof *label_of, order_compare, (void *)census);
    free(at);
    return 0;
}

static void order_keep(const struct graph_census *census, uint32_t *label_of)
{
    uint64_t next = 0;
    for (uint64_t v = 0; v < census->vertex_count; v++) {
        if (census->has_neighbour[v >> 6] >> (v & 63) & 1) {
            label_of[next++] = (uint32_t)v;
        }
    }
}

int graph_order_make(const struct graph_census *census,
                     enum poise_graph_order order, uint32_t **place_of,
                     uint32_t **label_of)
{
    uint64_t labels_bytes = census->vertex_count * sizeof(uint32_t);
    uint64_t places_bytes = graph_stride(census->connected) * 4;
    int code = 0;
    if (order == POISE_GRAPH_ORDER_KEEP &&
        census->connected == census->vertex_count) {
        *place_of = *label_of = NULL;
        return 0;
    }
    uint32_t *places = graph_pages_map(labels_bytes, true);
    uint32_t *labels = places ? graph_pages_map(places_bytes, true) : NULL;
    if (!labels) {
        code = -ENOMEM;
    } else if (order == POISE_GRAPH_ORDER_DEGREE) {
        code = order_by_degree(census, labels);
    } else {
        order_keep(census, labels);
    }
    if (code < 0) {
        graph_pages_unmap(places, labels_bytes);
        graph_pages_unmap(labels, places_bytes);
        return code;
    }
    for (uint64_t v = 0; v < census->vertex_count; v++) {
        places[v] = POISE_GRAPH_NONE;
    }
    for (uint64_t p = 0; p < census->connected; p++) {
        places[labels[p]] = (uint32_t)p;
    }
    *place_of = places;
    *label_of = labels;
    return 0;
}
