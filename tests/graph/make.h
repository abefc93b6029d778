/*
 * Graphs for the tests, and what a search in them must say, by the plainest
 * code: a queue over an array of edges sorted by tail.
 */
#ifndef TEST_GRAPH_MAKE_H
#define TEST_GRAPH_MAKE_H

#include <poise/bfs.h>

#include <stdlib.h>
#include <string.h>

static inline void make_add(struct poise_graph_edges *edges, uint64_t u,
                            uint64_t v)
{
    assert_int_equal(poise_graph_edges_add(edges, u, v), 0);
}

/* Labels in a random order: nothing may depend on neighbours being near. */
static inline uint32_t *make_shuffle(uint32_t n, uint64_t seed)
{
    struct poise_rng rng;
    uint32_t *labels = calloc(n ? n : 1, sizeof *labels);
    assert_non_null(labels);
    poise_rng_seed(&rng, seed);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = (uint32_t)poise_rng_below(&rng, i + 1);
        labels[i] = labels[j];
        labels[j] = i;
    }
    return labels;
}

/* R-MAT by the Graph500 parameters: skewed, with isolated vertices, loops and
 * duplicates. */
static inline void make_skewed(struct poise_graph_edges *edges, unsigned scale,
                               uint64_t count, uint64_t seed)
{
    struct poise_rng rng;
    uint32_t *labels = make_shuffle(1u << scale, seed + 1);
    poise_rng_seed(&rng, seed);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t u = 0, v = 0;
        for (unsigned bit = 0; bit < scale; bit++) {
            uint64_t draw = poise_rng_below(&rng, 100);
            u = 2 * u + (draw >= 76);
            v = 2 * v + ((draw >= 57 && draw < 76) || draw >= 95);
        }
        make_add(edges, labels[u], labels[v]);
    }
    edges->vertex_count = UINT64_C(1) << scale;
    free(labels);
}

static inline void make_uniform(struct poise_graph_edges *edges, uint32_t n,
                                uint64_t count, uint64_t seed)
{
    struct poise_rng rng;
    poise_rng_seed(&rng, seed);
    for (uint64_t i = 0; i < count; i++) {
        make_add(edges, poise_rng_below(&rng, n), poise_rng_below(&rng, n));
    }
    edges->vertex_count = n;
}

static inline void make_path(struct poise_graph_edges *edges, uint32_t n)
{
    for (uint32_t i = 0; i + 1 < n; i++) {
        make_add(edges, i, i + 1);
    }
    edges->vertex_count = n;
}

static inline void make_star(struct poise_graph_edges *edges, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i != n / 2) {
            make_add(edges, i, n / 2);
        }
    }
    edges->vertex_count = n;
}

static inline void make_grid(struct poise_graph_edges *edges, uint32_t side)
{
    for (uint32_t y = 0; y < side; y++) {
        for (uint32_t x = 0; x < side; x++) {
            uint32_t at = y * side + x;
            if (x + 1 < side) {
                make_add(edges, at, at + 1);
            }
            if (y + 1 < side) {
                make_add(edges, at, at + side);
            }
        }
    }
    edges->vertex_count = (uint64_t)side * side;
}

/* Two rings that do not touch, and some vertices beside them. */
static inline void make_two(struct poise_graph_edges *edges, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        make_add(edges, i, (i + 1) % n);
        make_add(edges, n + i, n + (i + 2) % n);
    }
    edges->vertex_count = 2 * n + 5;
}

/* ---- the reference ------------------------------------------------------ */

struct oracle {
    uint64_t n, *start;
    uint32_t *to;
    bool directed;
    const uint32_t *ends; /**< a copy of the edges */
    uint64_t count;
};

static inline struct oracle oracle_of(const struct poise_graph_edges *edges)
{
    struct oracle o = {.n = edges->vertex_count,
                       .directed = edges->directed,
                       .count = edges->count};
    uint64_t arcs = edges->count * (edges->directed ? 1 : 2);
    uint32_t *ends = malloc(edges->count * 8 + 1);
    o.start = calloc(o.n + 2, sizeof *o.start);
    o.to = calloc(arcs + 1, sizeof *o.to);
    assert_true(ends && o.start && o.to);
    if (edges->count > 0) {
        memcpy(ends, edges->ends, edges->count * 8);
    }
    o.ends = ends;
    for (uint64_t i = 0; i < edges->count; i++) {
        o.start[ends[2 * i] + 2]++;
        o.start[ends[2 * i + 1] + 2] += !o.directed;
    }
    for (uint64_t v = 0; v < o.n; v++) {
        o.start[v + 2] += o.start[v + 1];
    }
    for (uint64_t i = 0; i < edges->count; i++) {
        uint32_t u = ends[2 * i], v = ends[2 * i + 1];
        o.to[o.start[u + 1]++] = v;
        if (!o.directed) {
            o.to[o.start[v + 1]++] = u;
        }
    }
    return o;
}

static inline void oracle_free(struct oracle *o)
{
    free(o->start);
    free(o->to);
    free((void *)o->ends);
}

struct oracle_answer {
    int64_t *depths;
    uint64_t reached, edges, loops, depth;
};

static inline struct oracle_answer oracle_search(const struct oracle *o,
                                                 uint64_t root)
{
    struct oracle_answer a = {.reached = 1};
    uint32_t *queue = calloc(o->n + 1, sizeof *queue);
    a.depths = calloc(o->n + 1, sizeof *a.depths);
    assert_true(queue && a.depths);
    memset(a.depths, -1, o->n * sizeof *a.depths);
    a.depths[root] = 0;
    queue[0] = (uint32_t)root;
    for (uint64_t at = 0; at < a.reached; at++) {
        uint32_t u = queue[at];
        a.depth = (uint64_t)a.depths[u];
        for (uint64_t i = o->start[u]; i < o->start[u + 1]; i++) {
            uint32_t v = o->to[i];
            if (a.depths[v] < 0) {
                a.depths[v] = a.depths[u] + 1;
                queue[a.reached++] = v;
            }
        }
    }
    for (uint64_t i = 0; i < o->count; i++) {
        bool in = a.depths[o->ends[2 * i]] >= 0;
        a.edges += in;
        a.loops += in && o->ends[2 * i] == o->ends[2 * i + 1];
    }
    free(queue);
    return a;
}

static inline bool oracle_has_edge(const struct oracle *o, uint64_t u,
                                   uint64_t v)
{
    for (uint64_t i = o->start[u]; i < o->start[u + 1]; i++) {
        if (o->to[i] == v) {
            return true;
        }
    }
    return false;
}

/* Whether parents are those of a shortest-path tree. */
static inline void oracle_check(const struct oracle *o,
                                const struct oracle_answer *a, uint64_t root,
                                const int64_t *parents)
{
    for (uint64_t v = 0; v < o->n; v++) {
        if (a->depths[v] < 0) {
            assert_int_equal(parents[v], -1);
        } else if (v == root) {
            assert_int_equal(parents[v], root);
        } else {
            assert_in_range(parents[v], 0, o->n - 1);
            uint64_t up = (uint64_t)parents[v];
            assert_int_equal(a->depths[up] + 1, a->depths[v]);
            /* The child's row is the shorter one as a rule. */
            assert_true(o->directed ? oracle_has_edge(o, up, v)
                                    : oracle_has_edge(o, v, up));
        }
    }
}

#endif
