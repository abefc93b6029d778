/* Graphs from lists of edges: see also order.c and rows.c. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const poise_graph_order_names[] = {"auto", "keep", "degree", NULL};

/** Bytes that building needs at its peak, for each edge and each label; where
 * arcs go to other ranks first, for each edge. */
#define BUILD_EDGE_BYTES 12
#define BUILD_SPREAD_BYTES 24
#define BUILD_LABEL_BYTES 32

/** What one build holds until it is done. */
struct build {
    const struct poise_graph_build_options *options;
    struct poise_graph_edges *edges;
    struct graph_team *team;
    struct graph_census census;
    uint32_t *place_of, *label_of; /**< of several ranks: by place */
    struct poise_graph *graph;
};

static int build_enough_memory(struct build *build)
{
    const struct poise_graph_edges *edges = build->edges;
    uint64_t per_edge =
        build->graph->world ? BUILD_SPREAD_BYTES : BUILD_EDGE_BYTES;
    per_edge -= build->options->keep_edges ? 0 : 8;
    uint64_t limit = build->options->memory_bytes, list = edges->count * 8;
    uint64_t available = limit == 0     ? graph_memory_left()
                         : limit > list ? limit - list
                                        : 0;
    uint64_t need =
        edges->count * per_edge + edges->vertex_count * BUILD_LABEL_BYTES;
    if (edges->count < UINT64_MAX / 64 && need <= available) {
        return 0;
    }
    struct poise_buf wanted = {0}, have = {0};
    poise_human_bytes(&wanted, need);
    poise_human_bytes(&have, available);
    poise_error_set(ENOMEM, "build a graph", NULL,
                    "%llu edges of %llu bytes and %llu vertices of %d bytes "
                    "are %s more; %s is %s",
                    (unsigned long long)edges->count,
                    (unsigned long long)per_edge,
                    (unsigned long long)edges->vertex_count, BUILD_LABEL_BYTES,
                    poise_buf_str(&wanted), poise_buf_str(&have),
                    limit > 0 ? "what the limit leaves beside the list of edges"
                              : "available");
    poise_buf_free(&wanted);
    poise_buf_free(&have);
    return -ENOMEM;
}

static int build_start(struct build *build)
{
    int code = build_enough_memory(build);
    if (code == 0) {
        code = graph_team_create(
            graph_team_threads(build->graph->world, build->options->threads),
            &build->team);
    }
    return code;
}

static int build_census(struct build *build)
{
    struct poise_graph *graph = build->graph;
    int code = graph_census_take(build->team, build->edges, &build->census);
    if (graph->world) {
        code = poise_world_agree(graph->world, code);
    }
    if (code == 0 && graph->world) {
        uint64_t sums[2] = {graph->info.edge_count, build->census.loops};
        code = poise_world_reduce(graph->world, POISE_SUM, sums, 2);
        graph->info.edge_count = sums[0];
        code =
            code < 0 ? code : graph_spread_census(graph->world, &build->census);
    }
    return code;
}

/* The label of a row, before labels go by ids. */
static uint32_t build_label(const struct build *build, uint64_t row)
{
    const struct poise_graph *graph = build->graph;
    const uint32_t *label_of = graph->world ? build->label_of : graph->label_of;
    uint64_t rank = (uint64_t)graph->rank;
    uint64_t place = graph->dealt ? row * (uint64_t)graph->ranks + rank
                                  : row + rank * graph->per_rank;
    return label_of ? label_of[place] : (uint32_t)place;
}

/* Vertices that have nothing but loops get no row: their loops are noted. */
static int build_loners(struct build *build)
{
    struct poise_graph *graph = build->graph;
    const struct graph_census *census = &build->census;
    uint64_t count = 0;
    for (int pass = 0; census->loops > 0 && pass < 2; pass++) {
        count = 0;
        for (uint64_t v = 0; v < census->vertex_count; v++) {
            bool has = census->has_neighbour[v >> 6] >> (v & 63) & 1;
            if (has || census->ends_at[v] == 0) {
                continue;
            }
            if (pass > 0) {
                graph->loners[count] = (struct graph_loner){
                    .label = (uint32_t)v,
                    .loops = census->ends_at[v] / (census->directed ? 1 : 2)};
            }
            count++;
        }
        if (pass == 0 && count > 0) {
            graph->loners = poise_alloc(count, sizeof *graph->loners);
        }
        if (!graph->loners) {
            return count > 0 ? -ENOMEM : 0;
        }
    }
    graph->loner_count = count;
    return 0;
}

/* Ends by label become ends by row. */
static int build_ends_at(struct build *build)
{
    struct poise_graph *graph = build->graph;
    struct graph_census *census = &build->census;
    int code = build_loners(build);
    if (code < 0) {
        return code;
    }
    if (census->loops > 0) {
        graph->loops_at = graph_pages_map(graph->local_count * 4, false);
        if (!graph->loops_at) {
            return -ENOMEM;
        }
    }
    for (uint64_t v = 0; v < census->vertex_count; v++) {
        bool has = census->has_neighbour[v >> 6] >> (v & 63) & 1;
        graph->ends_count += has ? census->ends_at[v] : 0;
    }
    if (!graph->world && !graph->label_of) {
        graph->ends_at = census->ends_at;
        census->ends_at = NULL;
    } else {
        graph->ends_at = graph_pages_map(graph->local_count * 4, graph->huge);
        if (!graph->ends_at) {
            return -ENOMEM;
        }
        for (uint64_t row = 0; row < graph->local_count; row++) {
            graph->ends_at[row] = census->ends_at[build_label(build, row)];
        }
    }
    if (!census->directed) {
        graph_census_free(census);
    }
    return 0;
}

/* Who owns what. */
static void build_deal(struct poise_graph *graph)
{
    uint64_t ranks = (uint64_t)graph->ranks, rank = (uint64_t)graph->rank;
    uint64_t per = (graph->count + ranks - 1) / ranks;
    graph->dealt = ranks > 1 && graph->info.order == POISE_GRAPH_ORDER_DEGREE;
    graph->per_rank = per > 0 ? per : 1;
    graph->stride = graph_stride(per);
    if (graph->dealt) {
        graph->local_count = (graph->count + ranks - 1 - rank) / ranks;
    } else {
        uint64_t from = rank * per < graph->count ? rank * per : graph->count;
        uint64_t left = graph->count - from;
        graph->local_count = left < per ? left : per;
    }
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
    graph->count = census->connected;
    build_deal(graph);
    int code = 0;
    if (graph->stride * (uint64_t)graph->ranks > POISE_GRAPH_NONE) {
        code = poise_error_set(EOVERFLOW, "build a graph", NULL,
                               "%llu vertices with edges are too many",
                               (unsigned long long)graph->count);
    }
    uint32_t **places = graph->world ? &build->place_of : &graph->id_of;
    uint32_t **labels = graph->world ? &build->label_of : &graph->label_of;
    return code < 0 ? code : graph_order_make(census, order, places, labels);
}

/* Rows of arcs, which lie with their owners by now. */
static int build_rows_of(struct build *build, struct graph_arcs arcs,
                         const uint32_t *ends_at, struct graph_rows *out)
{
    const struct poise_graph *graph = build->graph;
    uint64_t rank = (uint64_t)graph->rank;
    struct graph_rows_plan plan = {
        .team = build->team,
        .arcs = arcs,
        .ends_at = ends_at,
        .row_count = graph->local_count,
        .first_place = graph->dealt ? rank : rank * graph->per_rank,
        .step = graph->dealt ? (uint32_t)graph->ranks : 1,
        .max_place = graph->count > 0 ? (uint32_t)graph->count - 1 : 0,
        .loops_at = graph->loops_at,
        .huge = graph->huge,
    };
    return graph_rows_make(&plan, out);
}

/* With several ranks: first to the owners. */
static int build_spread_rows(struct build *build, struct graph_arcs arcs,
                             const uint32_t *ends_at, struct graph_rows *out)
{
    struct poise_graph *graph = build->graph;
    struct poise_graph_edges pairs = {0};
    int code = graph_spread_arcs(graph, &arcs, &pairs);
    if (code == 0) {
        arcs = (struct graph_arcs){.ends = pairs.ends,
                                   .count = pairs.count,
                                   .forward = true,
                                   .use_up = true};
        code = build_rows_of(build, arcs, ends_at, out);
    }
    poise_graph_edges_free(&pairs);
    return code;
}

static int build_rows(struct build *build)
{
    struct poise_graph *graph = build->graph;
    bool directed = graph->info.directed, keep = build->options->keep_edges;
    uint64_t labels_bytes = graph->info.vertex_count * 4;
    uint32_t *heads_at = NULL;
    int (*make)(struct build *, struct graph_arcs, const uint32_t *,
                struct graph_rows *) =
        graph->world ? build_spread_rows : build_rows_of;
    struct graph_arcs arcs = {.ends = build->edges->ends,
                              .count = build->edges->count,
                              .place_of =
                                  graph->world ? build->place_of : graph->id_of,
                              .forward = true,
                              .backward = !directed,
                              .use_up = !keep && !directed};
    if (!directed) {
        return make(build, arcs, graph->ends_at, &graph->out);
    }
    /* Heads by row: of all labels, since only the rows' are used. */
    heads_at = graph_pages_map(labels_bytes, graph->huge);
    int code = heads_at ? 0 : -ENOMEM;
    if (graph->world) {
        code = poise_world_agree(graph->world, code);
    }
    for (uint64_t row = 0; code == 0 && row < graph->local_count; row++) {
        heads_at[row] = build->census.heads_at[build_label(build, row)];
    }
    if (code == 0) {
        code = make(build, arcs, graph->ends_at, &graph->out);
    }
    if (code == 0) {
        arcs.forward = false;
        arcs.backward = true;
        arcs.use_up = !keep;
        code = make(build, arcs, heads_at, &graph->in);
    }
    graph_pages_unmap(heads_at, labels_bytes);
    return code;
}

static int build_finish(struct build *build)
{
    struct poise_graph *graph = build->graph;
    if (!graph->world) {
        return 0;
    }
    uint32_t *place_of = build->place_of, *label_of = build->label_of;
    build->place_of = build->label_of = NULL;
    int code = build->options->ablation.no_hubs ? 0 : graph_hubs_make(graph);
    graph_spread_rows(graph, &graph->out);
    graph_spread_rows(graph, &graph->in);
    int step = graph_spread_ids(graph, place_of, label_of);
    return code < 0 ? code : step;
}

static const struct build_step {
    const char *doing;
    int (*run)(struct build *build);
} build_steps[] = {
    {"counting degrees", build_start},    {"counting degrees", build_census},
    {"numbering vertices", build_number}, {"numbering vertices", build_ends_at},
    {"sorting rows", build_rows},         {"sorting rows", build_finish},
};
#define BUILD_STEPS (sizeof build_steps / sizeof *build_steps)

static int build_run(struct build *build)
{
    const struct poise_graph_build_options *options = build->options;
    struct poise_graph *graph = build->graph;
    int code = 0;
    for (size_t i = 0; code == 0 && i < BUILD_STEPS; i++) {
        if (options->progress) {
            code = options->progress(build_steps[i].doing, i, BUILD_STEPS,
                                     options->arg);
        }
        if (code == 0) {
            code = build_steps[i].run(build);
        }
        if (graph->world) {
            code = poise_world_agree(graph->world, code);
        }
    }
    if (code == 0 && options->progress) {
        code = options->progress("sorting rows", BUILD_STEPS, BUILD_STEPS,
                                 options->arg);
    }
    graph_pages_unmap(build->place_of, graph->info.vertex_count * 4);
    graph_pages_unmap(build->label_of, graph_stride(graph->count) * 4);
    graph_census_free(&build->census);
    graph_team_destroy(build->team);
    return code;
}

/* A world of the graph's own: its messages meet no others. */
static int build_join(struct poise_graph *graph, struct poise_world *world)
{
    graph->ranks = 1;
    if (!world || poise_world_size(world) == 1) {
        return 0;
    }
    graph->ranks = poise_world_size(world);
    graph->rank = poise_world_rank(world);
    return poise_world_split(world, POISE_LEVEL_WORLD, &graph->world);
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
    if (world) {
        code = poise_world_agree(world, code);
    }
    if (code == 0) {
        graph->huge = !build.options->ablation.no_huge_pages;
        graph->info = (struct poise_graph_info){
            .vertex_count = edges->vertex_count,
            .edge_count = edges->count,
            .directed = edges->directed,
        };
        build.graph = graph;
        code = build_join(graph, world);
    }
    if (code == 0) {
        code = build_run(&build);
    }
    uint64_t arcs = graph ? graph->out.arc_count : 0;
    if (code == 0 && graph->world) {
        code = poise_world_reduce(graph->world, POISE_SUM, &arcs, 1);
    }
    if (!build.options->keep_edges) {
        poise_graph_edges_free(edges);
    }
    if (code < 0) {
        poise_graph_destroy(graph);
        return code;
    }
    graph->info.arc_count = arcs;
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
    graph_pages_unmap(graph->loops_at, graph->local_count * 4);
    free(graph->loners);
    graph_rows_free(&graph->out);
    graph_rows_free(&graph->in);
    graph_hubs_free(&graph->hubs);
    poise_world_destroy(graph->world);
    free(graph);
}

/* ---- questions ---------------------------------------------------------- */

static uint64_t graph_bytes(const struct poise_graph *graph)
{
    uint64_t bytes = graph_rows_bytes(&graph->out) +
                     graph_rows_bytes(&graph->in) + graph->local_count * 4 +
                     graph_hubs_bytes(graph);
    bytes += graph->label_of ? graph->stride * (uint64_t)graph->ranks * 4 : 0;
    bytes += graph->id_of ? graph->info.vertex_count * 4 : 0;
    bytes += graph->loops_at ? graph->local_count * 4 : 0;
    bytes += graph->loner_count * sizeof *graph->loners;
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
    uint64_t first = graph_base(graph);
    if (id == POISE_GRAPH_NONE || id < first ||
        id - first >= graph->local_count) {
        return 0;
    }
    const uint64_t *start = &graph->out.start[id - first];
    return start[1] - start[0];
}

/* ---- roots -------------------------------------------------------------- */

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
