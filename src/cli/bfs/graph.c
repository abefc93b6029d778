/* poise bfs: the graph that is searched, read or made, and the roots. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BFS_ROOTS 64

int cli_bfs_show(const char *doing, uint64_t done, uint64_t total, void *arg)
{
    static const char *const units[][2] = {
        {"read", NULL}, {"write", "blocks"}, {"searching", "searches"}};
    const char *unit = "steps";

    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        unit = strcmp(units[i][0], doing) == 0 ? units[i][1] : unit;
    }
    cli_meter_show(arg, doing, unit, done, total);
    return 0;
}

static struct poise_graph_kronecker kronecker(const struct cli_bfs_graph *graph)
{
    return (struct poise_graph_kronecker){
        .scale = (unsigned)graph->scale,
        .edge_factor = (uint64_t)graph->edge_factor,
        .seed1 = (uint64_t)graph->seed,
        .seed2 = graph->seed > 0 ? 3 : 0,
        .threads = (unsigned)graph->threads,
        .memory_bytes = graph->memory,
    };
}

int cli_bfs_edges(const struct cli_bfs_graph *graph, struct poise_world *world,
                  const char *path, struct cli_meter *meter,
                  struct poise_graph_edges *edges)
{
    struct poise_graph_load_options load = {
        .format = (enum poise_graph_format)graph->from,
        .directed = graph->directed,
        .names = graph->names,
        .threads = (unsigned)graph->threads,
        .memory_bytes = graph->memory,
        .progress = cli_bfs_show,
        .arg = meter,
    };
    struct poise_graph_kronecker generate = kronecker(graph);
    int code = path ? poise_graph_load(world, path, &load, edges)
                    : poise_graph_generate(world, &generate, edges);

    if (code == 0 && graph->undirected) {
        edges->directed = false;
    }
    return code;
}

/* Edges, then the graph; what validation needs stays in job->edges. */
int cli_bfs_get_graph(struct cli_bfs_job *job)
{
    const struct cli_bfs_values *values = job->values;
    struct poise_graph_edges edges = {0};
    struct poise_graph_build_options build = {
        .threads = (unsigned)values->graph.threads,
        .order = (enum poise_graph_order)values->order,
        .keep_edges = values->validate,
        .memory_bytes = values->graph.memory,
        .ablation.no_hubs = !values->hubs,
        .ablation.no_huge_pages = !values->huge_pages,
        .progress = cli_bfs_show,
        .arg = &job->meter,
    };
    uint64_t from = poise_clock_ns();
    int code = cli_bfs_edges(&values->graph, job->world, job->path, &job->meter,
                             &edges);

    job->generation_ns = poise_clock_ns() - from;
    if (code == 0) {
        job->graph_names = edges.names;
        edges.names = NULL;
        code = poise_graph_build(job->world, &edges, &build, &job->graph);
    }
    if (code == 0) {
        poise_graph_info(job->graph, &job->info);
    }
    job->edges = edges;
    cli_meter_wipe(&job->meter);
    return code;
}

/* ---- roots -------------------------------------------------------------- */

static int find_root(struct cli_bfs_job *job, const char *text, uint64_t *out)
{
    int64_t label;
    int code;

    if (job->graph_names) {
        label = poise_graph_names_find(job->graph_names, text, strlen(text));
        if (label < 0) {
            return poise_error_set(ENOENT, "search from", text,
                                   "the graph has no such vertex");
        }
        *out = (uint64_t)label;
        return 0;
    }
    code = poise_parse_int(text, 0, INT64_MAX, &label);
    if (code < 0) {
        return poise_error_set(EINVAL, "search from", text,
                               "vertices of this graph are numbers");
    }
    if ((uint64_t)label >= job->info.vertex_count) {
        return poise_error_set(ENOENT, "search from", text,
                               "the graph has %llu vertices, from 0 on",
                               (unsigned long long)job->info.vertex_count);
    }
    *out = (uint64_t)label;
    return 0;
}

/* The reference's keys: those of degree 0 and those that came before are left
 * out. */
static int draw_keys(struct cli_bfs_job *job, size_t want, uint64_t *roots)
{
    struct poise_graph_kronecker made = kronecker(&job->values->graph);
    uint64_t keys[BFS_ROOTS], degrees[BFS_ROOTS], next = 0;
    size_t count = 0;

    while (count < want && next < job->info.vertex_count) {
        int code = poise_graph_generate_keys(&made, next, BFS_ROOTS, keys);

        if (job->world) {
            code = poise_world_agree(job->world, code);
        }
        for (size_t i = 0; i < BFS_ROOTS && code == 0; i++) {
            degrees[i] = poise_graph_degree(job->graph, keys[i]);
        }
        if (code == 0 && job->world) {
            code =
                poise_world_reduce(job->world, POISE_SUM, degrees, BFS_ROOTS);
        }
        if (code < 0) {
            return code;
        }
        for (size_t i = 0; i < BFS_ROOTS && count < want; i++, next++) {
            bool seen = degrees[i] == 0 || next >= job->info.vertex_count;

            for (size_t j = 0; j < count && !seen; j++) {
                seen = roots[j] == keys[i];
            }
            if (!seen) {
                roots[count++] = keys[i];
            }
        }
    }
    job->run_count = count;
    return 0;
}

int cli_bfs_get_roots(struct cli_bfs_job *job)
{
    const struct cli_bfs_values *values = job->values;
    size_t named = values->root.count;
    size_t count = values->roots ? (size_t)values->roots
                   : job->path   ? 1
                                 : BFS_ROOTS;
    uint64_t *roots;
    int64_t drawn;
    int code = 0;

    count = named > 0 ? named : count;
    roots = poise_alloc(count, sizeof *roots);
    job->runs = poise_alloc(count, sizeof *job->runs);
    code = roots && job->runs ? 0 : -ENOMEM;
    if (job->world) {
        code = poise_world_agree(job->world, code);
    }
    if (code < 0) {
        free(roots);
        return code;
    }
    job->run_count = count;
    for (size_t i = 0; i < named && code == 0; i++) {
        code = find_root(job, values->root.items[i], &roots[i]);
    }
    if (named == 0 && !job->path) {
        code = draw_keys(job, count, roots);
    } else if (named == 0) {
        drawn = poise_graph_pick_roots(
            job->graph,
            values->graph.seed > 0 ? (uint64_t)values->graph.seed : 1, count,
            roots);
        code = drawn < 0 ? (int)drawn : 0;
        job->run_count = drawn > 0 ? (size_t)drawn : 0;
    }
    for (size_t i = 0; i < job->run_count; i++) {
        job->runs[i].root = roots[i];
    }
    free(roots);
    return code;
}
