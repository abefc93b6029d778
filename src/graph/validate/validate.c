/*
 * Is it a tree of a breadth-first search? The five checks of the Graph500
 * specification, against the list of edges as it was given: nothing that a
 * search works on is trusted.
 *
 * Levels are counted along the parents, so that a tree edge cannot span
 * anything but one level, unless depths are given to be compared. Threads do
 * not stop at a fault: of each check the lowest vertex or edge is reported,
 * except of cycles.
 *
 * Of several ranks each looks at all vertices, which is quick, and at its own
 * part of the edges, which are many; which tree edges they saw is brought
 * together at rank 0.
 */
#include "graph/memory/memory.h"

#include <poise/bfs.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { VALIDATE_BLOCK = 1 << 14 };
#define VALIDATE_NONE UINT64_MAX

struct validate {
    struct poise_world *world; /* NULL: the whole list is here */
    const struct poise_graph_edges *edges;
    uint64_t root;
    const int64_t *parents, *depths; /* depths may be NULL */
    unsigned threads;
    uint32_t *level;     /* POISE_GRAPH_NONE: unreached, or not known yet;
                            __atomic */
    uint64_t *confirmed; /* a bit for each vertex whose tree edge was seen;
                            __atomic */
    /* What the threads of a pass share; __atomic. */
    void (*look)(struct validate *v, uint64_t from, uint64_t to);
    uint64_t count, next;
    uint64_t lowest; /* vertex or edge with a fault, or VALIDATE_NONE */
    uint64_t reached, seen, loops;
};

static void validate_blame(struct validate *v, uint64_t index)
{
    uint64_t lowest = __atomic_load_n(&v->lowest, __ATOMIC_RELAXED);
    while (index < lowest &&
           !__atomic_compare_exchange_n(&v->lowest, &lowest, index, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static int validate_part(unsigned thread, void *arg)
{
    struct validate *v = arg;
    (void)thread;
    for (;;) {
        uint64_t from =
            __atomic_fetch_add(&v->next, VALIDATE_BLOCK, __ATOMIC_RELAXED);
        if (from >= v->count) {
            return 0;
        }
        uint64_t left = v->count - from;
        v->look(v, from,
                from + (left < VALIDATE_BLOCK ? left : VALIDATE_BLOCK));
    }
}

/* Look at all of `count` vertices or edges; the lowest with a fault. */
static int validate_pass(struct validate *v,
                         void (*look)(struct validate *v, uint64_t from,
                                      uint64_t to),
                         uint64_t count, uint64_t *lowest)
{
    v->look = look;
    v->count = count;
    v->next = 0;
    v->lowest = VALIDATE_NONE;
    int code = graph_parallel(v->threads, validate_part, v);
    *lowest = v->lowest;
    return code;
}

static uint32_t validate_level(const struct validate *v, uint64_t vertex)
{
    return __atomic_load_n(&v->level[vertex], __ATOMIC_RELAXED);
}

/* ---- parents that are no labels ----------------------------------------- */

static void validate_range(struct validate *v, uint64_t from, uint64_t to)
{
    const int64_t most = (int64_t)v->edges->vertex_count;
    for (uint64_t i = from; i < to; i++) {
        if (v->parents[i] < -1 || v->parents[i] >= most) {
            validate_blame(v, i);
            return;
        }
    }
}

/* ---- 1: a tree ---------------------------------------------------------- */

/* Climb from a vertex to one whose level is known, then write the levels on
 * the way down. Several threads may climb the same way and write the same. */
static bool validate_climb(struct validate *v, uint64_t vertex)
{
    const uint64_t most = v->edges->vertex_count;
    uint64_t at = vertex, steps = 0;
    uint32_t level;
    while ((level = validate_level(v, at)) == POISE_GRAPH_NONE) {
        if (v->parents[at] < 0 || ++steps > most ||
            (steps % VALIDATE_BLOCK == 0 &&
             __atomic_load_n(&v->lowest, __ATOMIC_RELAXED) != VALIDATE_NONE)) {
            return false; /* hangs on nothing, or on itself */
        }
        at = (uint64_t)v->parents[at];
    }
    uint64_t depth = level + steps;
    for (at = vertex; steps > 0; steps--, depth--) {
        __atomic_store_n(&v->level[at], (uint32_t)depth, __ATOMIC_RELAXED);
        at = (uint64_t)v->parents[at];
    }
    return true;
}

static void validate_tree(struct validate *v, uint64_t from, uint64_t to)
{
    uint64_t reached = 0;
    for (uint64_t i = from; i < to; i++) {
        if (v->parents[i] >= 0) {
            reached++;
            if (!validate_climb(v, i)) {
                validate_blame(v, i);
                return;
            }
        }
    }
    __atomic_fetch_add(&v->reached, reached, __ATOMIC_RELAXED);
}

/* ---- 2: tree edges span one level --------------------------------------- */

static void validate_depths(struct validate *v, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        uint32_t level = validate_level(v, i);
        int64_t depth = level == POISE_GRAPH_NONE ? -1 : (int64_t)level;
        if (v->depths[i] != depth) {
            validate_blame(v, i);
            return;
        }
    }
}

/* ---- 3 and 4: edges of the graph ---------------------------------------- */

static void validate_confirm(struct validate *v, uint64_t child,
                             uint64_t parent)
{
    uint64_t *word = &v->confirmed[child / 64];
    uint64_t bit = UINT64_C(1) << child % 64;
    if (v->parents[child] == (int64_t)parent &&
        !(__atomic_load_n(word, __ATOMIC_RELAXED) & bit)) {
        __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
    }
}

/* Whether an edge between these levels can be; a directed one leads down by
 * one level at most, but up by any number. */
static enum poise_graph_fault validate_edge(const struct validate *v,
                                            uint32_t from, uint32_t to)
{
    const bool directed = v->edges->directed;
    if (from == POISE_GRAPH_NONE || to == POISE_GRAPH_NONE) {
        return from == to || (directed && from == POISE_GRAPH_NONE)
                   ? POISE_GRAPH_VALID
                   : POISE_GRAPH_FAULT_REACH;
    }
    if (to > (uint64_t)from + 1 || (!directed && from > (uint64_t)to + 1)) {
        return POISE_GRAPH_FAULT_SPAN;
    }
    return POISE_GRAPH_VALID;
}

static void validate_edges(struct validate *v, uint64_t from, uint64_t to)
{
    const uint32_t *ends = v->edges->ends;
    const uint64_t most = v->edges->vertex_count;
    const bool directed = v->edges->directed;
    uint64_t seen = 0, loops = 0;
    for (uint64_t i = from; i < to; i++) {
        const uint64_t a = ends[2 * i], b = ends[2 * i + 1];
        if (a >= most || b >= most) {
            validate_blame(v, i);
            break;
        }
        const uint32_t above = v->level[a], below = v->level[b];
        if (validate_edge(v, above, below) != POISE_GRAPH_VALID) {
            validate_blame(v, i);
            break;
        }
        seen += above != POISE_GRAPH_NONE;
        loops += above != POISE_GRAPH_NONE && a == b;
        if (above == POISE_GRAPH_NONE || below == POISE_GRAPH_NONE) {
            continue;
        }
        if (below == above + 1) {
            validate_confirm(v, b, a);
        } else if (above == below + 1 && !directed) {
            validate_confirm(v, a, b);
        }
    }
    __atomic_fetch_add(&v->seen, seen, __ATOMIC_RELAXED);
    __atomic_fetch_add(&v->loops, loops, __ATOMIC_RELAXED);
}

/* ---- 5: tree edges are edges of the graph ------------------------------- */

static void validate_confirmed(struct validate *v, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        if (v->parents[i] >= 0 && i != v->root &&
            !(v->confirmed[i / 64] >> i % 64 & 1)) {
            validate_blame(v, i);
            return;
        }
    }
}

/* ---- all of them -------------------------------------------------------- */

static void validate_fault(const struct validate *v,
                           enum poise_graph_fault fault, uint64_t vertex,
                           struct poise_graph_verdict *verdict)
{
    verdict->fault = fault;
    verdict->vertex = vertex;
    verdict->other = (uint64_t)v->parents[vertex];
}

/* The checks of vertices and their parents. */
static int validate_vertices(struct validate *v,
                             struct poise_graph_verdict *verdict)
{
    const uint64_t count = v->edges->vertex_count;
    uint64_t lowest;
    int code = validate_pass(v, validate_range, count, &lowest);
    if (code == 0 && lowest != VALIDATE_NONE) {
        validate_fault(v, POISE_GRAPH_FAULT_RANGE, lowest, verdict);
        return 1;
    }
    if (code == 0 && v->parents[v->root] != (int64_t)v->root) {
        validate_fault(v, POISE_GRAPH_FAULT_TREE, v->root, verdict);
        return 1;
    }
    v->level[v->root] = 0;
    if (code == 0) {
        code = validate_pass(v, validate_tree, count, &lowest);
    }
    if (code == 0 && lowest != VALIDATE_NONE) {
        validate_fault(v, POISE_GRAPH_FAULT_TREE, lowest, verdict);
        return 1;
    }
    if (code == 0 && v->depths) {
        code = validate_pass(v, validate_depths, count, &lowest);
        if (code == 0 && lowest != VALIDATE_NONE) {
            validate_fault(v, POISE_GRAPH_FAULT_LEVELS, lowest, verdict);
            return 1;
        }
    }
    return code;
}

/* The edges that this rank has. */
static int validate_list(struct validate *v,
                         struct poise_graph_verdict *verdict)
{
    const struct poise_graph_edges *edges = v->edges;
    uint64_t lowest;
    int code = validate_pass(v, validate_edges, edges->count, &lowest);
    if (code < 0 || lowest == VALIDATE_NONE) {
        return code;
    }
    verdict->vertex = edges->ends[2 * lowest];
    verdict->other = edges->ends[2 * lowest + 1];
    if (verdict->vertex >= edges->vertex_count ||
        verdict->other >= edges->vertex_count) {
        return poise_error_set(EINVAL, "validate a search", NULL,
                               "edge %llu has an end that is not below %llu",
                               (unsigned long long)lowest,
                               (unsigned long long)edges->vertex_count);
    }
    verdict->fault =
        validate_edge(v, v->level[verdict->vertex], v->level[verdict->other]);
    return 1;
}

/* Tree edges that any rank has seen are confirmed: at rank 0. */
static int validate_gather(struct validate *v)
{
    const size_t words = v->edges->vertex_count / 64 + 1;
    struct poise_buf all = {0};
    int code = poise_world_gather(v->world, 0, v->confirmed,
                                  words * sizeof *v->confirmed, &all);
    struct poise_reader reader = poise_reader_of(all.data, all.len);
    while (code == 0 && poise_reader_left(&reader) > 0) {
        size_t len;
        const char *theirs = poise_reader_blob(&reader, &len);
        for (size_t w = 0; theirs && w < words && w < len / 8; w++) {
            uint64_t bits;
            memcpy(&bits, theirs + w * sizeof bits, sizeof bits);
            v->confirmed[w] |= bits;
        }
    }
    poise_buf_free(&all);
    return code;
}

static int validate_tree_edges(struct validate *v,
                               struct poise_graph_verdict *verdict)
{
    uint64_t lowest = VALIDATE_NONE;
    int code = v->world ? validate_gather(v) : 0;
    if (code == 0 && (!v->world || poise_world_rank(v->world) == 0)) {
        code = validate_pass(v, validate_confirmed, v->edges->vertex_count,
                             &lowest);
    }
    if (code == 0 && lowest != VALIDATE_NONE) {
        validate_fault(v, POISE_GRAPH_FAULT_EDGE, lowest, verdict);
        return 1;
    }
    return code;
}

/* With several ranks: one verdict, of the lowest that found a fault. */
static int validate_agree(const struct validate *v, int code,
                          struct poise_graph_verdict *verdict)
{
    struct poise_buf sent = {0};
    if (!v->world) {
        return code;
    }
    const uint64_t rank = (uint64_t)poise_world_rank(v->world);
    uint64_t first = code > 0 ? rank : VALIDATE_NONE;
    code = poise_world_agree(v->world, code < 0 ? code : 0);
    if (code == 0) {
        code = poise_world_reduce(v->world, POISE_MIN, &first, 1);
    }
    if (code < 0 || first == VALIDATE_NONE) {
        return code;
    }
    code =
        first == rank ? poise_buf_append(&sent, verdict, sizeof *verdict) : 0;
    code = poise_world_agree(v->world, code);
    if (code == 0) {
        code = poise_world_broadcast(v->world, (int)first, &sent);
    }
    if (code == 0) {
        memcpy(verdict, sent.data, sizeof *verdict);
    }
    poise_buf_free(&sent);
    return code < 0 ? code : 1;
}

static int validate_start(struct validate *v)
{
    const uint64_t count = v->edges->vertex_count;
    if (v->root >= count) {
        return poise_error_set(
            EINVAL, "validate a search", NULL, "root %llu is not below %llu",
            (unsigned long long)v->root, (unsigned long long)count);
    }
    v->level = graph_pages_map(count * sizeof *v->level, true);
    v->confirmed = poise_alloc(count / 64 + 1, sizeof *v->confirmed);
    if (!v->level || !v->confirmed) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < count; i++) {
        v->level[i] = POISE_GRAPH_NONE;
    }
    return 0;
}

static int validate_run(struct validate *v, struct poise_graph_verdict *out)
{
    static int (*const steps[])(struct validate * v,
                                struct poise_graph_verdict * verdict) = {
        validate_vertices, validate_list, validate_tree_edges};
    struct poise_graph_verdict verdict = {.fault = POISE_GRAPH_VALID};
    int code = validate_agree(v, validate_start(v), &verdict);
    for (size_t i = 0; code == 0 && i < sizeof steps / sizeof *steps; i++) {
        code = validate_agree(v, steps[i](v, &verdict), &verdict);
    }
    uint64_t seen[2] = {v->seen, v->loops};
    if (code >= 0 && v->world) {
        int step = poise_world_reduce(v->world, POISE_SUM, seen, 2);
        code = step < 0 ? step : code;
    }
    graph_pages_unmap(v->level, v->edges->vertex_count * sizeof *v->level);
    free(v->confirmed);
    if (code < 0) {
        return code;
    }
    verdict.reached = v->reached;
    verdict.edges = seen[0];
    verdict.loops = seen[1];
    *out = verdict;
    return 0;
}

int poise_graph_validate_ranks(struct poise_world *world,
                               const struct poise_graph_edges *edges,
                               uint64_t root, const int64_t *parents,
                               const int64_t *depths, unsigned threads,
                               struct poise_graph_verdict *out)
{
    struct validate v = {.world = world && poise_world_size(world) > 1 ? world
                                                                       : NULL,
                         .edges = edges,
                         .root = root,
                         .parents = parents,
                         .depths = depths,
                         .threads = graph_team_threads(world, threads)};
    return validate_run(&v, out);
}

int poise_graph_validate_depths(const struct poise_graph_edges *edges,
                                uint64_t root, const int64_t *parents,
                                const int64_t *depths, unsigned threads,
                                struct poise_graph_verdict *out)
{
    struct validate v = {.edges = edges,
                         .root = root,
                         .parents = parents,
                         .depths = depths,
                         .threads = graph_threads(threads)};
    return validate_run(&v, out);
}

int poise_graph_validate(const struct poise_graph_edges *edges, uint64_t root,
                         const int64_t *parents, unsigned threads,
                         struct poise_graph_verdict *out)
{
    return poise_graph_validate_depths(edges, root, parents, NULL, threads,
                                       out);
}
