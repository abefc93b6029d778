/*
 * The search: which way to go from level to level, and what was found.
 *
 * Source: Beamer, Asanovic, Patterson: "Direction-Optimizing Breadth-First
 * Search"; numa-bfs II.A.
 */
#include "internal.h"

#include <poise/trace.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const poise_graph_method_names[] = {"hybrid", "top-down",
                                                "bottom-up", NULL};

/** Bottom-up once the arcs that leave the frontier are more than this
 * part of those not looked at yet, top-down again once the frontier shrinks
 * below that part of the vertices. */
#define BFS_ALPHA 15
#define BFS_BETA 18
#define BFS_CHUNK_WORDS 64
#define BFS_MAX_CHUNKS 4096

/* ---- making one --------------------------------------------------------- */

static uint64_t bfs_rows(const struct poise_graph_bfs *bfs)
{
    return bfs->graph->local_count;
}

/* Bitmaps: the rows that are none count as visited. */
static void bfs_fill_reset(struct poise_graph_bfs *bfs)
{
    for (uint64_t row = bfs_rows(bfs); row < bfs->words * 64; row++) {
        bfs->reset[row >> 6] |= UINT64_C(1) << (row & 63);
    }
}

static int bfs_alloc_threads(struct poise_graph_bfs *bfs)
{
    unsigned threads = graph_team_size(bfs->team);
    size_t bytes = threads * sizeof *bfs->tallies;
    bfs->pending = poise_alloc(threads, sizeof *bfs->pending);
    if (!bfs->pending) {
        return -ENOMEM;
    }
    bfs->tallies = graph_pages_map(bytes, false);
    if (!bfs->tallies) {
        return -ENOMEM;
    }
    for (unsigned t = 0; t < threads; t++) {
        bfs->pending[t] =
            poise_alloc((size_t)bfs->chunk_words * 64, sizeof **bfs->pending);
        if (!bfs->pending[t]) {
            return -ENOMEM;
        }
    }
    return 0;
}

/* For the finest one. */
static uint64_t bfs_summary_bytes(const struct poise_graph_bfs *bfs)
{
    return (bfs->frontier_words / 64 + 1) * 8;
}

static int bfs_alloc(struct poise_graph_bfs *bfs)
{
    bool huge = bfs->graph->huge;
    uint64_t rows = bfs_rows(bfs), bytes;
    bfs->words = (rows + 63) / 64;
    bfs->chunk_words = (uint32_t)(bfs->words / BFS_MAX_CHUNKS + 1);
    if (bfs->chunk_words < BFS_CHUNK_WORDS) {
        bfs->chunk_words = BFS_CHUNK_WORDS;
    }
    bytes = bfs->words * 8;
    bfs->queue = graph_pages_map(rows * 4, huge);
    bfs->visited = graph_pages_map(bytes, huge);
    bfs->reset = graph_pages_map(bytes, huge);
    bfs->frontier_words =
        bfs->graph->world
            ? bfs->graph->stride * (uint64_t)bfs->graph->ranks / 64
            : bfs->words;
    bfs->summary = graph_pages_map(bfs_summary_bytes(bfs), false);
    if (!bfs->queue || !bfs->visited || !bfs->reset || !bfs->summary) {
        return -ENOMEM;
    }
    if (bfs->options.level) {
        bfs->labels = graph_pages_map(rows * 4, huge);
        if (!bfs->labels) {
            return -ENOMEM;
        }
    }
    bfs_fill_reset(bfs);
    return bfs_alloc_threads(bfs);
}

/* What ranks of a node share, of one rank. */
static int bfs_alloc_alone(struct poise_graph_bfs *bfs)
{
    bool huge = bfs->graph->huge;
    bfs->parent = graph_pages_map(bfs_rows(bfs) * 4, huge);
    bfs->own[0] = graph_pages_map(bfs->words * 8, huge);
    bfs->own[1] = graph_pages_map(bfs->words * 8, huge);
    if (!bfs->parent || !bfs->own[0] || !bfs->own[1]) {
        return -ENOMEM;
    }
    bfs->parents_all = bfs->parent;
    bfs->frontier = bfs->own[0];
    bfs->next = bfs->own[1];
    return 0;
}

static int bfs_check_options(const struct poise_graph_bfs_options *options)
{
    unsigned g = options->ablation.granularity;
    if (g != 0 && (g < 64 || g > 4096 || (g & (g - 1)) != 0)) {
        return poise_error_set(EINVAL, "search a graph", NULL,
                               "granularity %u is not a power of two from 64 "
                               "to 4096",
                               g);
    }
    if (options->ablation.alpha < 0 || options->ablation.beta < 0) {
        return poise_error_set(EINVAL, "search a graph", NULL,
                               "alpha and beta are not negative");
    }
    return 0;
}

static int bfs_init(struct poise_graph_bfs *bfs)
{
    const struct poise_graph *graph = bfs->graph;
    if (bfs->options.ablation.alpha == 0) {
        bfs->options.ablation.alpha = BFS_ALPHA;
    }
    if (bfs->options.ablation.beta == 0) {
        bfs->options.ablation.beta = BFS_BETA;
    }
    bfs->use_simd = !bfs->options.ablation.no_simd;
    int code = bfs_check_options(&bfs->options);
    if (code == 0) {
        code = graph_team_create(
            graph_team_threads(graph->world, bfs->options.threads), &bfs->team);
    }
    if (code == 0) {
        code = bfs_alloc(bfs);
    }
    return code;
}

int poise_graph_bfs_create(const struct poise_graph *graph,
                           const struct poise_graph_bfs_options *options,
                           struct poise_graph_bfs **out)
{
    struct poise_graph_bfs *bfs = poise_alloc(1, sizeof *bfs);
    int code = bfs ? 0 : -ENOMEM;
    if (bfs) {
        bfs->graph = graph;
        bfs->options = options ? *options : (struct poise_graph_bfs_options){0};
        code = bfs_init(bfs);
    }
    if (graph->world) {
        code = poise_world_agree(graph->world, code);
    }
    if (code == 0) {
        code = graph->world ? bfs_ranks_create(bfs) : bfs_alloc_alone(bfs);
    }
    if (code < 0) {
        poise_graph_bfs_destroy(bfs);
        return code;
    }
    *out = bfs;
    return 0;
}

void poise_graph_bfs_destroy(struct poise_graph_bfs *bfs)
{
    if (!bfs) {
        return;
    }
    uint64_t rows = bfs_rows(bfs), bytes = bfs->words * 8;
    unsigned threads = bfs->team ? graph_team_size(bfs->team) : 0;
    if (bfs->graph->world) {
        bfs_ranks_destroy(bfs);
    } else {
        graph_pages_unmap(bfs->parent, rows * 4);
        graph_pages_unmap(bfs->own[0], bytes);
        graph_pages_unmap(bfs->own[1], bytes);
    }
    graph_pages_unmap(bfs->queue, rows * 4);
    graph_pages_unmap(bfs->visited, bytes);
    graph_pages_unmap(bfs->reset, bytes);
    graph_pages_unmap(bfs->summary, bfs_summary_bytes(bfs));
    graph_pages_unmap(bfs->labels, rows * 4);
    graph_pages_unmap(bfs->tallies, threads * sizeof *bfs->tallies);
    for (unsigned t = 0; bfs->pending && t < threads; t++) {
        free(bfs->pending[t]);
    }
    free(bfs->pending);
    free(bfs->levels);
    graph_team_destroy(bfs->team);
    free(bfs);
}

const struct poise_graph *bfs_graph(const struct poise_graph_bfs *bfs)
{
    return bfs->graph;
}

const uint32_t *bfs_parents_by_row(const struct poise_graph_bfs *bfs)
{
    return bfs->parent;
}

struct bfs_tally bfs_tally_take(struct poise_graph_bfs *bfs)
{
    struct bfs_tally sum = {0};
    for (unsigned t = 0; t < graph_team_size(bfs->team); t++) {
        struct bfs_tally *tally = &bfs->tallies[t];
        sum.found += tally->found;
        sum.scout += tally->scout;
        sum.edges += tally->edges;
        *tally = (struct bfs_tally){0};
    }
    return sum;
}

/* ---- one run ------------------------------------------------------------ */

static void bfs_start(struct poise_graph_bfs *bfs, uint64_t root)
{
    const struct poise_graph *graph = bfs->graph;
    uint32_t base = graph_base(graph);
    bfs->root = root;
    bfs->root_id = graph_id(graph, root);
    bfs->level_count = 0;
    bfs->depth = 0;
    bfs->reached = 1;
    bfs->begin = bfs->end = 0;
    bfs->in_bits = false;
    bfs->listed = false;
    bfs->edges_left = graph->ends_count;
    bfs->frontier_count = 0;
    bfs->ran = true;
    bfs->parents_shared = false;
    bfs->scout = 0;
    memcpy(bfs->visited, bfs->reset, bfs->words * sizeof *bfs->visited);
    if (bfs->root_id == POISE_GRAPH_NONE) {
        return;
    }
    bfs->frontier_count = 1;
    if (bfs->root_id >= base && bfs->root_id - base < graph->local_count) {
        uint32_t row = bfs->root_id - base;
        bfs->visited[row >> 6] |= UINT64_C(1) << (row & 63);
        bfs->parent[row] = bfs->root_id;
        bfs->queue[bfs->end++] = row;
        bfs->scout = graph->ends_at[row];
    }
}

static bool bfs_goes_bottom_up(const struct poise_graph_bfs *bfs, bool grows)
{
    const struct poise_graph_bfs_options *options = &bfs->options;
    if (options->method != POISE_GRAPH_HYBRID) {
        return options->method == POISE_GRAPH_BOTTOM_UP;
    }
    if (bfs->in_bits) {
        return grows || (double)bfs->frontier_count * options->ablation.beta >=
                            (double)bfs->graph->count;
    }
    return (double)bfs->scout * options->ablation.alpha >
           (double)bfs->edges_left;
}

static int bfs_reserve_level(struct poise_graph_bfs *bfs)
{
    if (bfs->level_count == bfs->level_capacity) {
        size_t capacity = bfs->level_capacity ? 2 * bfs->level_capacity : 64;
        struct poise_graph_level *levels =
            poise_realloc(bfs->levels, capacity, sizeof *levels);
        if (!levels) {
            return -ENOMEM;
        }
        bfs->levels = levels;
        bfs->level_capacity = capacity;
    }
    return 0;
}

static int bfs_report_level(struct poise_graph_bfs *bfs,
                            const struct poise_graph_level *level)
{
    const struct poise_graph_bfs_options *options = &bfs->options;
    uint32_t base = graph_base(bfs->graph);
    uint64_t count = 0;
    if (!options->level) {
        return 0;
    }
    for (uint64_t i = bfs->begin; !bfs->in_bits && i < bfs->end; i++) {
        bfs->labels[count++] = graph_label(bfs->graph, base + bfs->queue[i]);
    }
    for (uint64_t w = 0; bfs->in_bits && w < bfs->words; w++) {
        for (uint64_t bits = bfs_own_bits(bfs)[w]; bits; bits &= bits - 1) {
            uint32_t row = (uint32_t)(w * 64 + (unsigned)__builtin_ctzll(bits));
            bfs->labels[count++] = graph_label(bfs->graph, base + row);
        }
    }
    return options->level(level, bfs->labels, count, options->arg);
}

static int bfs_switch(struct poise_graph_bfs *bfs, bool bottom_up,
                      struct poise_graph_level *level)
{
    uint64_t from = poise_clock_ns(), before = level->exchange_ns;
    int code = 0;
    if (bottom_up) {
        code = bfs_to_bits(bfs, level);
    } else {
        bfs_to_list(bfs);
    }
    level->switch_ns = poise_clock_ns() - from - (level->exchange_ns - before);
    return code;
}

/* `code`: what befell this rank before; of several ranks all learn of it. */
static int bfs_step_bottom_up(struct poise_graph_bfs *bfs, int code,
                              struct poise_graph_level *level)
{
    bfs_bottom_up(bfs, level);
    int step = bfs_advance(bfs, level);
    code = code < 0 ? code : step;
    if (bfs->graph->world) {
        uint64_t sums[2] = {level->found, level->edges};
        code = bfs_ranks_sum(bfs, code, sums, 2);
        level->found = sums[0];
        level->edges = sums[1];
    }
    bfs->frontier_count = level->found;
    return code;
}

static int bfs_step_top_down(struct poise_graph_bfs *bfs, int code,
                             struct poise_graph_level *level)
{
    const struct poise_graph_bfs_options *options = &bfs->options;
    if (bfs->graph->world) {
        code = bfs_ranks_top_down(bfs, code, level);
        bfs->frontier_count = level->found;
    } else {
        if (options->ablation.no_fuse || bfs->scout > BFS_SERIAL_EDGES) {
            bfs_top_down(bfs, level);
        } else {
            bfs_top_down_serial(bfs, options->level != NULL, level);
        }
        bfs->frontier_count = bfs->end - bfs->begin;
    }
    bfs->edges_left -=
        level->edges < bfs->edges_left ? level->edges : bfs->edges_left;
    return code;
}

/* One level, or several small ones. */
static int bfs_step(struct poise_graph_bfs *bfs, bool bottom_up)
{
    struct poise_graph_level level = {.level = bfs->depth,
                                      .levels = 1,
                                      .bottom_up = bottom_up,
                                      .frontier = bfs->frontier_count};
    struct poise_trace_ring *ring = poise_trace_ring();
    uint64_t ticks = poise_trace_ticks(ring), from = poise_clock_ns();
    int code = bfs_reserve_level(bfs);
    int step =
        bottom_up != bfs->in_bits ? bfs_switch(bfs, bottom_up, &level) : 0;
    code = code < 0 ? code : step;
    code = bottom_up ? bfs_step_bottom_up(bfs, code, &level)
                     : bfs_step_top_down(bfs, code, &level);
    if (code < 0) {
        return code;
    }
    level.ns = poise_clock_ns() - from;
    poise_trace_put(ring, POISE_TRACE_LEVEL, level.level, ticks,
                    poise_trace_ticks(ring), level.frontier, level.edges);
    bfs->reached += level.found;
    bfs->depth += level.levels;
    bfs->levels[bfs->level_count++] = level;
    return bfs_report_level(bfs, &level);
}

/* Loops of a vertex without a neighbour. */
static uint64_t bfs_loner_loops(const struct poise_graph *graph, uint64_t label)
{
    uint64_t from = 0, to = graph->loner_count;
    while (from < to) {
        uint64_t middle = from + (to - from) / 2;
        if (graph->loners[middle].label < label) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from < graph->loner_count && graph->loners[from].label == label
               ? graph->loners[from].loops
               : 0;
}

/* Loops at the vertices of this rank that were reached. */
static uint64_t bfs_count_loops(const struct poise_graph_bfs *bfs)
{
    const struct poise_graph *graph = bfs->graph;
    uint64_t sum = 0;
    for (uint64_t w = 0; graph->loops_at && w < bfs->words; w++) {
        for (uint64_t bits = bfs->visited[w] & ~bfs->reset[w]; bits;
             bits &= bits - 1) {
            sum += graph->loops_at[w * 64 + (unsigned)__builtin_ctzll(bits)];
        }
    }
    return sum;
}

/* Input edges among the reached vertices; outside the time that counts. */
static int bfs_count_edges(struct poise_graph_bfs *bfs,
                           struct poise_graph_bfs_result *out)
{
    const struct poise_graph *graph = bfs->graph;
    bool most = !graph->world && bfs->reached > graph->count / 2;
    uint64_t sum = 0;
    int code = 0;
    if (bfs->root_id == POISE_GRAPH_NONE) {
        out->edges = out->loops = bfs_loner_loops(graph, bfs->root);
        return 0;
    }
    for (uint64_t w = 0; w < bfs->words; w++) {
        uint64_t bits =
            most ? ~bfs->visited[w] : bfs->visited[w] & ~bfs->reset[w];
        for (; bits; bits &= bits - 1) {
            sum += graph->ends_at[w * 64 + (unsigned)__builtin_ctzll(bits)];
        }
    }
    sum = most ? graph->ends_count - sum : sum;
    uint64_t sums[2] = {sum, bfs_count_loops(bfs)};
    if (graph->world) {
        code = bfs_ranks_sum(bfs, 0, sums, 2);
    }
    out->edges = graph->info.directed ? sums[0] : sums[0] / 2;
    out->loops = sums[1];
    return code;
}

static int bfs_levels(struct poise_graph_bfs *bfs)
{
    uint64_t before = 0;
    int code = 0;
    if (bfs->graph->world) {
        bfs_ranks_show_hubs(bfs);
        code = bfs_ranks_sum(bfs, 0, &bfs->scout, 1);
    }
    while (code == 0 && bfs->frontier_count > 0) {
        bool bottom_up = bfs_goes_bottom_up(bfs, bfs->frontier_count > before);
        before = bfs->frontier_count;
        code = bfs_step(bfs, bottom_up);
    }
    return code;
}

int poise_graph_bfs_run(struct poise_graph_bfs *bfs, uint64_t root,
                        struct poise_graph_bfs_result *out)
{
    if (root >= bfs->graph->info.vertex_count) {
        return poise_error_set(
            EINVAL, "search a graph", NULL,
            "root %llu is not below the number of vertices, %llu",
            (unsigned long long)root,
            (unsigned long long)bfs->graph->info.vertex_count);
    }
    struct poise_graph_bfs_result result = {.root = root};
    int code = bfs->graph->world ? bfs_ranks_start(bfs) : 0;
    uint64_t from = poise_clock_ns();
    if (code == 0) {
        bfs_start(bfs, root);
        code = bfs_levels(bfs);
    }
    if (code == 0 && bfs->options.parents) {
        uint64_t at = poise_clock_ns();
        code = bfs_write_parents(bfs, bfs->options.parents);
        result.parents_ns = poise_clock_ns() - at;
    }
    result.ns = poise_clock_ns() - from;
    if (code == 0) {
        code = bfs_count_edges(bfs, &result);
    }
    if (code < 0) {
        bfs->ran = false;
        if (bfs->graph->world) {
            bfs_ranks_leave(bfs);
        }
        return code;
    }
    result.reached = bfs->reached;
    result.depth = bfs->depth > 0 ? bfs->depth - 1 : 0;
    result.levels = bfs->levels;
    result.level_count = bfs->level_count;
    *out = result;
    return 0;
}
