/* Graphs from lists of edges: see also order.c and rows.c. */
#include "io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const poise_graph_order_names[] = {"auto", "keep", "degree", NULL};

/** Bytes that building needs at its peak, for each edge and each label. */
#define BUILD_EDGE_BYTES 12
#define BUILD_LABEL_BYTES 32

/** What one build holds until it is done. */
struct build {
    const struct poise_graph_build_options *options;
    struct poise_graph_edges *edges;
    struct graph_team *team;
    struct graph_census census;
    struct poise_graph *graph;
};

static int build_enough_memory(const struct build *build)
{
    const struct poise_graph_edges *edges = build->edges;
    uint64_t per_edge = BUILD_EDGE_BYTES - (build->options->keep_edges ? 0 : 8);
    uint64_t available = graph_memory_left();
    uint64_t need =
        edges->count * per_edge + edges->vertex_count * BUILD_LABEL_BYTES;
    if (edges->count < UINT64_MAX / 64 && need <= available) {
        return 0;
    }
    return poise_error_set(
        ENOMEM, "build a graph", NULL,
        "%llu edges of %llu bytes and %llu vertices of %d bytes are %llu MiB "
        "more; %llu MiB are available",
        (unsigned long long)edges->count, (unsigned long long)per_edge,
        (unsigned long long)edges->vertex_count, BUILD_LABEL_BYTES,
        (unsigned long long)(need >> 20),
        (unsigned long long)(available >> 20));
}

static int build_progress(const struct build *build, const char *doing,
                          uint64_t done)
{
    const struct poise_graph_build_options *options = build->options;
    return options->progress ? options->progress(doing, done, 3, options->arg)
                             : 0;
}

/* Ends by label become ends by row. */
static int build_ends_at(struct build *build)
{
    struct poise_graph *graph = build->graph;
    if (!graph->label_of) {
        graph->ends_at = build->census.ends_at;
        build->census.ends_at = NULL;
        return 0;
    }
    graph->ends_at = graph_pages_map(graph->local_count * 4, graph->huge);
    if (!graph->ends_at) {
        return -ENOMEM;
    }
    for (uint64_t row = 0; row < graph->local_count; row++) {
        graph->ends_at[row] = build->census.ends_at[graph->label_of[row]];
    }
    return 0;
}

static int build_rows(struct build *build)
{
    struct poise_graph *graph = build->graph;
    bool directed = graph->info.directed, keep = build->options->keep_edges;
    struct graph_rows_plan plan = {
        .team = build->team,
        .arcs = {.ends = build->edges->ends,
                 .count = build->edges->count,
                 .place_of = graph->id_of,
                 .forward = true,
                 .backward = !directed,
                 .use_up = !keep && !directed},
        .ends_at = graph->ends_at,
        .row_count = graph->local_count,
        .step = 1,
        .max_place = graph->count > 0 ? (uint32_t)graph->count - 1 : 0,
        .huge = graph->huge,
    };
    int code = graph_rows_make(&plan, &graph->out);
    if (code < 0 || !directed) {
        return code;
    }
    uint32_t *heads_at = graph_pages_map(graph->local_count * 4, graph->huge);
    if (!heads_at) {
        return -ENOMEM;
    }
    for (uint64_t row = 0; row < graph->local_count; row++) {
        heads_at[row] =
            build->census.heads_at[graph_label(graph, (uint32_t)row)];
    }
    plan.ends_at = heads_at;
    plan.arcs.forward = false;
    plan.arcs.backward = true;
    plan.arcs.use_up = !keep;
    code = graph_rows_make(&plan, &graph->in);
    graph_pages_unmap(heads_at, graph->local_count * 4);
    return code;
}

static int build_number(struct build *build)
{
    struct poise_graph *graph = build->graph;
    struct graph_census *census = &build->census;
    enum poise_graph_order order = build->options->order;
    if (order == POISE_GRAPH_ORDER_AUTO) {
        order = graph_order_choose(census);
    }
    graph->info.order = order;
    graph->info.loop_count = census->loops;
    graph->info.max_degree = census->max_degree;
    graph->info.connected_count = census->connected;
    graph->count = graph->local_count = census->connected;
    graph->stride = graph_stride(graph->count);
    int code = graph_order_make(census, order, &graph->id_of, &graph->label_of);
    if (code == 0) {
        code = build_ends_at(build);
    }
    for (uint64_t row = 0; code == 0 && row < graph->local_count; row++) {
        graph->ends_count += graph->ends_at[row];
    }
    return code;
}

static int build_run(struct build *build)
{
    struct poise_graph *graph = build->graph;
    int code = graph->ranks > 1
                   ? poise_error_set(ENOTSUP, "build a graph", NULL,
                                     "it would be spread over ranks")
                   : build_enough_memory(build);
    if (code == 0) {
        code = graph_team_create(
            graph_team_threads(graph->world, build->options->threads),
            &build->team);
    }
    if (code == 0) {
        code = build_progress(build, "counting degrees", 0);
    }
    if (code == 0) {
        code = graph_census_take(build->team, build->edges, &build->census);
    }
    if (code == 0) {
        code = build_progress(build, "numbering vertices", 1);
    }
    if (code == 0) {
        code = build_number(build);
    }
    if (code == 0 && !graph->info.directed) {
        graph_census_free(&build->census);
    }
    if (code == 0) {
        code = build_progress(build, "sorting rows", 2);
    }
    if (code == 0) {
        code = build_rows(build);
    }
    if (code == 0) {
        code = build_progress(build, "sorting rows", 3);
    }
    graph_census_free(&build->census);
    graph_team_destroy(build->team);
    return code;
}

int poise_graph_build(struct poise_world *world,
                      struct poise_graph_edges *edges,
                      const struct poise_graph_build_options *options,
                      struct poise_graph **out)
{
    static const struct poise_graph_build_options defaults;
    struct build build = {.options = options ? options : &defaults,
                          .edges = edges};
    uint64_t from = poise_clock_ns();
    struct poise_graph *graph = poise_alloc(1, sizeof *graph);
    int code = graph ? 0 : -ENOMEM;
    if (code == 0) {
        graph->world = world;
        graph->ranks = world ? poise_world_size(world) : 1;
        graph->rank = world ? poise_world_rank(world) : 0;
        graph->huge = !build.options->no_huge_pages;
        graph->info = (struct poise_graph_info){
            .vertex_count = edges->vertex_count,
            .edge_count = edges->count,
            .directed = edges->directed,
        };
        build.graph = graph;
        code = build_run(&build);
    }
    if (!build.options->keep_edges) {
        poise_graph_edges_free(edges);
    }
    if (code < 0) {
        poise_graph_destroy(graph);
        return code;
    }
    graph->info.arc_count = graph->out.arc_count;
    graph->info.build_ns = poise_clock_ns() - from;
    *out = graph;
    return 0;
}

void poise_graph_destroy(struct poise_graph *graph)
{
    if (!graph) {
        return;
    }
    graph_pages_unmap(graph->label_of,
                      graph->stride * (uint64_t)graph->ranks * 4);
    graph_pages_unmap(graph->id_of, graph->info.vertex_count * 4);
    graph_pages_unmap(graph->ends_at, graph->local_count * 4);
    graph_rows_free(&graph->out);
    graph_rows_free(&graph->in);
    free(graph);
}

/* ---- questions -------------------------------------------------------------
 */

static uint64_t graph_bytes(const struct poise_graph *graph)
{
    uint64_t bytes = graph_rows_bytes(&graph->out) +
                     graph_rows_bytes(&graph->in) + graph->local_count * 4;
    bytes += graph->label_of ? graph->count * 4 : 0;
    bytes += graph->id_of ? graph->info.vertex_count * 4 : 0;
    return bytes;
}

void poise_graph_info(const struct poise_graph *graph,
                      struct poise_graph_info *out)
{
    *out = graph->info;
    out->bytes = graph_bytes(graph);
}

void poise_graph_slice(const struct poise_graph *graph, int rank,
                       uint64_t *first, uint64_t *count)
{
    struct graph_range range = graph_range_of(
        graph->info.vertex_count, (uint32_t)rank, (uint32_t)graph->ranks, 1);
    *first = range.from;
    *count = range.to - range.from;
}

uint64_t poise_graph_degree(const struct poise_graph *graph, uint64_t label)
{
    uint32_t id = label < graph->info.vertex_count ? graph_id(graph, label)
                                                   : POISE_GRAPH_NONE;
    uint64_t first = graph->stride * (uint64_t)graph->rank;
    if (id == POISE_GRAPH_NONE || id < first ||
        id - first >= graph->local_count) {
        return 0;
    }
    const uint64_t *start = &graph->out.start[id - first];
    return start[1] - start[0];
}

/* ---- roots -----------------------------------------------------------------
 */

/* `count` different numbers below `limit`, in the order drawn. */
static void roots_draw(uint64_t seed, uint64_t limit, size_t count,
                       uint64_t *out)
{
    struct poise_rng rng;
    poise_rng_seed(&rng, seed);
    for (size_t i = 0; i < count; i++) {
        /* Floyd's: a number that is taken already stands for the last. */
        uint64_t last = limit - count + i;
        uint64_t draw = poise_rng_below(&rng, last + 1);
        for (size_t j = 0; j < i; j++) {
            if (out[j] == draw) {
                draw = last;
                break;
            }
        }
        out[i] = draw;
    }
}

struct root {
    uint64_t number;
    size_t at;
};

static int root_compare(const void *a, const void *b)
{
    const struct root *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

int64_t poise_graph_pick_roots(const struct poise_graph *graph, uint64_t seed,
                               size_t count, uint64_t *roots)
{
    uint64_t connected = graph->count;
    if (count > connected) {
        count = connected;
    }
    struct root *sorted = poise_alloc(count + 1, sizeof *sorted);
    if (!sorted) {
        return -ENOMEM;
    }
    roots_draw(seed, connected, count, roots);
    for (size_t i = 0; i < count; i++) {
        sorted[i] = (struct root){roots[i], i};
    }
    qsort(sorted, count, sizeof *sorted, root_compare);
    /* Numbers count connected vertices in order of label, so that they name
     * the same vertices whatever the order inside. */
    uint64_t number = 0;
    size_t next = 0;
    for (uint64_t label = 0; next < count && label < graph->info.vertex_count;
         label++) {
        if (graph_id(graph, label) == POISE_GRAPH_NONE) {
            continue;
        }
        if (sorted[next].number == number) {
            roots[sorted[next++].at] = label;
        }
        number++;
    }
    free(sorted);
    return (int64_t)count;
}
