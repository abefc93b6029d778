/* Shared by the parts of poise bfs. */
#ifndef POISE_CLI_BFS_H
#define POISE_CLI_BFS_H

#include "internal.h"

#include <poise/graph.h>

struct cli_bfs_values {
    struct cli_common common;
    int from, order, method, exchange, map;
    int64_t scale, edge_factor, seed, roots, threads, alpha, beta, granularity;
    uint64_t memory;
    struct poise_strings root;
    const char *output, *report, *model;
    bool directed, undirected, names, fuse, hubs, simd, first, labels, validate;
    bool binary, components, levels, json, progress;
};

/** One search. */
struct cli_bfs_run {
    uint64_t root, reached, edges, ns, parents_ns, validate_ns;
    uint32_t depth;
    bool validated;
    enum poise_graph_fault fault;
    uint64_t fault_at;
};

/** Sums over the searches for one depth; the last stands for all deeper. Times
 * are of the average rank, bytes of all. */
#define CLI_BFS_LEVELS 64
struct cli_bfs_level {
    uint64_t count, up, levels, frontier, found, edges;
    uint64_t ns, exchange_ns, switch_ns, stall_ns, bytes;
};

struct cli_bfs_job {
    const struct cli_bfs_values *values;
    const char *path;          /**< NULL: --scale */
    struct poise_world *world; /**< NULL: alone */
    int rank, ranks;
    bool progress;
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
    struct poise_graph_machine machine; /**< --model, and sums over runs */
    struct poise_graph_forecast forecasts[POISE_GRAPH_EXCHANGES];
    int64_t components, diameter; /**< --components */
    uint64_t diameter_ends[2];
};

static inline struct poise_graph_kronecker
cli_bfs_kronecker(const struct cli_bfs_values *values)
{
    return (struct poise_graph_kronecker){
        .scale = (unsigned)values->scale,
        .edge_factor = (uint64_t)values->edge_factor,
        .seed1 = (uint64_t)values->seed,
        .seed2 = values->seed > 0 ? 3 : 0,
        .threads = (unsigned)values->threads,
    };
}

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
/** --model: "KEY=VALUE,..."; the forecasts of one search more; and what they
 * come to. */
int cli_bfs_model_parse(const char *text, struct poise_graph_machine *out);
int cli_bfs_model_add(struct cli_bfs_job *job,
                      const struct poise_graph_bfs_result *result);
void cli_bfs_model_json(const struct cli_bfs_job *job, struct poise_json *json);
int cli_bfs_model_text(const struct cli_bfs_job *job, struct poise_buf *out);
/** The results, as the options ask for them. */
int cli_bfs_print(const struct cli_bfs_job *job);
int cli_bfs_report(const struct cli_bfs_job *job, const char *path);

#endif
