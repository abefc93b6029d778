/*
 * poise bfs: what its files share. bfs.c reads the command line and leads;
 * graph.c, search.c, model.c do the work on a job; print.c and page.c show it.
 */
#ifndef POISE_CLI_BFS_H
#define POISE_CLI_BFS_H

#include "cli/common/common.h"
#include "cli/common/redraw.h"

#include <poise/bfs.h>

/** Which graph: of a file, or one that is made. */
struct cli_bfs_graph {
    int from;
    int64_t scale, edge_factor, seed, threads;
    uint64_t memory;
    bool directed, undirected, names;
};

#define CLI_BFS_FILE_OPTIONS(type, member)                                     \
    {POISE_OPTION_FLAG, .name = "directed",                                    \
     .help = "edges of an edge list lead one way only",                        \
     .offset = offsetof(type, member.directed)},                               \
        {POISE_OPTION_FLAG, .name = "undirected",                              \
         .help = "all edges lead both ways, whatever the file says",           \
         .offset = offsetof(type, member.undirected)},                         \
        {POISE_OPTION_FLAG, .name = "names",                                   \
         .help = "treat the words of an edge list as names even if they are "  \
                 "numbers",                                                    \
         .offset = offsetof(type, member.names)},                              \
    {                                                                          \
        POISE_OPTION_BYTES, .name = "memory", .arg = "SIZE",                   \
                            .help = "refuse graphs that need more memory "     \
                                    "than this (default: what "                \
                                    "is available)",                           \
                            .offset = offsetof(type, member.memory)            \
    }

#define CLI_BFS_SCALE_OPTIONS(type, member, file)                              \
    {POISE_OPTION_INT,                                                         \
     .name = "scale",                                                          \
     .arg = "S",                                                               \
     .help = "the Graph500 graph of 2^S vertices; no " file " then",           \
     .offset = offsetof(type, member.scale),                                   \
     .min = 1,                                                                 \
     .max = 31},                                                               \
    {                                                                          \
        POISE_OPTION_INT,                                                      \
            .name = "edgefactor", .arg = "N",                                  \
            .help = "edges for each of its vertices (default: 16)",            \
            .offset = offsetof(type, member.edge_factor), .min = 1,            \
            .max = 1 << 20                                                     \
    }

/** Options that say how a file is read mean nothing with --scale. */
#define CLI_BFS_ABOUT_FILES                                                    \
    "--from, --directed and --names are about files, not about --scale"
static inline bool cli_bfs_about_files(const struct cli_bfs_graph *graph)
{
    return graph->from != 0 || graph->directed || graph->names;
}

/** A poise_graph_progress: `arg` is a struct cli_meter. */
int cli_bfs_show(const char *doing, uint64_t done, uint64_t total, void *arg);
/** Get it: `path`, or the one that is made where that is NULL. */
int cli_bfs_edges(const struct cli_bfs_graph *graph, struct poise_world *world,
                  const char *path, struct cli_meter *meter,
                  struct poise_graph_edges *edges);

struct cli_bfs_values {
    struct cli_common common;
    struct cli_bfs_graph graph;
    int order, method, exchange, map;
    int64_t roots, alpha, beta, granularity;
    struct poise_strings root, model, ablation;
    const char *output, *report;
    bool fuse, hubs, simd, first, labels, sparse, summary, huge_pages;
    bool validate, count_loops, binary, components, levels, json, progress;
};

/** One search. */
struct cli_bfs_run {
    uint64_t root, reached, edges, ns, parents_ns, validate_ns;
    uint64_t loops; /**< are in `edges` only with --count-loops */
    uint32_t depth;
    bool validated;
    enum poise_graph_fault fault;
    uint64_t fault_at;
};

/** What the steps of one depth cost that went one way. Times are of the
 * average rank, bytes of all. */
struct cli_bfs_cost {
    uint64_t count, ns, exchange_ns, switch_ns, stall_ns, bytes;
};

/** Sums over the searches for one depth; the last stands for all deeper. */
#define CLI_BFS_LEVELS 64
struct cli_bfs_level {
    uint64_t levels, frontier, found, edges;
    struct cli_bfs_cost down, up;
};

/** Of both ways. */
static inline struct cli_bfs_cost
cli_bfs_level_cost(const struct cli_bfs_level *level)
{
    const struct cli_bfs_cost *down = &level->down, *up = &level->up;

    return (struct cli_bfs_cost){
        .count = down->count + up->count,
        .ns = down->ns + up->ns,
        .exchange_ns = down->exchange_ns + up->exchange_ns,
        .switch_ns = down->switch_ns + up->switch_ns,
        .stall_ns = down->stall_ns + up->stall_ns,
        .bytes = down->bytes + up->bytes,
    };
}

/** --model: a machine, and sums over the searches for each exchange. */
struct cli_bfs_model {
    struct poise_graph_machine machine;
    struct poise_graph_forecast sums[POISE_GRAPH_EXCHANGES];
};

struct cli_bfs_job {
    const struct cli_bfs_values *values;
    const char *path;          /**< NULL: --scale */
    struct poise_world *world; /**< NULL: alone */
    int rank, ranks;
    struct cli_meter meter;
    struct poise_graph_edges edges; /**< for validation */
    struct poise_graph_names *graph_names;
    struct poise_graph *graph;
    struct poise_graph_info info;
    struct poise_graph_bfs *bfs;
    uint64_t generation_ns;
    struct cli_bfs_run *runs;
    size_t run_count, invalid;
    int64_t *parents, *depths; /**< of all labels; where they were not gathered
                                    only this rank's slice counts */
    struct cli_bfs_level levels[CLI_BFS_LEVELS];
    size_t level_count;
    struct cli_bfs_model *models; /**< as many as --model was given */
    int64_t components, diameter; /**< --components */
    uint64_t diameter_ends[2];
};

/** Edges, then the graph; what validation needs stays in job->edges.
 * Collective, without agreement on the code, as the next three. */
int cli_bfs_get_graph(struct cli_bfs_job *job);
/** job->runs, one for each root that is named or drawn. */
int cli_bfs_get_roots(struct cli_bfs_job *job);
/** A search from each of them. */
int cli_bfs_search_all(struct cli_bfs_job *job);
/** --components: behind all that is timed. */
int cli_bfs_look_around(struct cli_bfs_job *job);

/** Figures over the searches: seconds, edges, edges per second, seconds of
 * validation. -ENOMEM. */
enum cli_bfs_quantity {
    CLI_BFS_TIME,
    CLI_BFS_NEDGE,
    CLI_BFS_TEPS,
    CLI_BFS_VALIDATE
};
int cli_bfs_figures(const struct cli_bfs_job *job,
                    enum cli_bfs_quantity quantity,
                    struct poise_graph_figures *out);
/** --model: "KEY=VALUE,..." of one machine; of all that were given; the
 * forecasts of one search more; and what they come to. */
int cli_bfs_model_parse(const char *text, struct poise_graph_machine *out);
int cli_bfs_model_create(struct cli_bfs_job *job);
int cli_bfs_model_add(struct cli_bfs_job *job,
                      const struct poise_graph_bfs_result *result);
void cli_bfs_model_json(const struct cli_bfs_job *job, struct poise_json *json);
int cli_bfs_model_text(const struct cli_bfs_job *job, struct poise_buf *out);
/** The results, as the options ask for them. */
int cli_bfs_print(const struct cli_bfs_job *job);
int cli_bfs_report(const struct cli_bfs_job *job, const char *path);

#endif
