/*
 * A lower bound of the diameter: search, go on from the deepest vertex found,
 * until the depth grows no more.
 */
#include "graph/build/build.h"
#include "graph/search/search.h"

#include <errno.h>

/* The deepest vertex of the last run: of equal ones the least label. */
static int deepest(struct poise_graph_bfs *bfs, int64_t *depths, uint32_t depth,
                   uint64_t *out)
{
    const struct poise_graph *graph = bfs_graph(bfs);
    uint64_t first, count, found = UINT64_MAX;
    int code = poise_graph_bfs_depths(bfs, depths);
    poise_graph_slice(graph, graph->rank, &first, &count);
    for (uint64_t i = 0; code == 0 && i < count; i++) {
        if (depths[i] == (int64_t)depth) {
            found = first + i;
            break;
        }
    }
    if (graph->world) {
        code = poise_world_agree(graph->world, code);
        if (code == 0) {
            code = poise_world_reduce(graph->world, POISE_MIN, &found, 1);
        }
    }
    *out = found;
    return code;
}

int64_t poise_graph_diameter(struct poise_graph_bfs *bfs, uint64_t start,
                             uint64_t ends[2])
{
    const struct poise_graph *graph = bfs_graph(bfs);
    uint64_t first, count, from = start, best_ends[2] = {start, start};
    int64_t best = -1;
    if (graph->info.directed) {
        return poise_error_set(EINVAL, "bound the diameter", NULL,
                               "the graph is directed");
    }
    poise_graph_slice(graph, graph->rank, &first, &count);
    int64_t *depths = graph_pages_map(count * 8, graph->huge);
    int code = depths ? 0 : -ENOMEM;
    if (graph->world) {
        code = poise_world_agree(graph->world, code);
    }
    while (code == 0) {
        struct poise_graph_bfs_result result;
        uint64_t to;
        code = poise_graph_bfs_run(bfs, from, &result);
        if (code < 0 || (int64_t)result.depth <= best) {
            break;
        }
        best = result.depth;
        code = deepest(bfs, depths, result.depth, &to);
        best_ends[0] = from;
        best_ends[1] = to;
        from = to;
    }
    graph_pages_unmap(depths, count * 8);
    if (code < 0) {
        return code;
    }
    ends[0] = best_ends[0];
    ends[1] = best_ends[1];
    return best;
}
