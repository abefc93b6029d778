/*
 * Components of undirected graphs: one search from a vertex of the largest
 * degree finds the giant one, if there is one; the others, small and many, are
 * joined by union-find over the rows that are left. Of several ranks each
 * joins its own rows, and rank after rank adds its joins to those before.
 */
#include "graph/build/build.h"
#include "graph/search/search.h"

#include <errno.h>
#include <string.h>

/* The root of the tree of v; paths are halved on the way. Roots are the least
 * ids of their trees. */
static uint32_t root_of(uint32_t *links, uint32_t v)
{
    while (links[v] != v) {
        links[v] = links[links[v]];
        v = links[v];
    }
    return v;
}

static void join(uint32_t *links, uint32_t a, uint32_t b)
{
    a = root_of(links, a);
    b = root_of(links, b);
    if (a < b) {
        links[b] = a;
    } else {
        links[a] = b;
    }
}

/* Join this rank's rows with their neighbours, but for those that `whole` says
 * are all one already. */
static void join_rows(const struct poise_graph_bfs *bfs, bool searched,
                      uint32_t *links)
{
    const struct poise_graph *graph = bfs_graph(bfs);
    const uint32_t *parents = searched ? bfs_parents_by_row(bfs) : NULL;
    uint32_t base = graph_base(graph);
    for (uint64_t row = 0; row < graph->local_count; row++) {
        if (parents && parents[row] != POISE_GRAPH_NONE) {
            join(links, base + (uint32_t)row, parents[row]);
            continue;
        }
        uint64_t last = graph->out.start[row + 1];
        for (uint64_t a = graph->out.start[row]; a < last; a++) {
            join(links, base + (uint32_t)row, graph->out.to[a]);
        }
    }
}

/* Bring the joins of all ranks together: pairs of ids that are joined, of each
 * rank, at rank 0, which hands the result out. */
static int merge_ranks(const struct poise_graph *graph, uint32_t *links,
                       uint64_t ids)
{
    struct poise_buf all = {0}, result = {0};
    int code =
        poise_world_gather(graph->world, 0, links, ids * sizeof *links, &all);
    if (code == 0 && graph->rank == 0) {
        struct poise_reader reader = poise_reader_of(all.data, all.len);
        for (int r = 0; r < graph->ranks; r++) {
            size_t len;
            const char *theirs = poise_reader_blob(&reader, &len);
            for (uint64_t id = 0; theirs && id < len / 4; id++) {
                uint32_t other;
                memcpy(&other, theirs + id * 4, 4);
                join(links, (uint32_t)id, other);
            }
        }
        code =
            ids > 0 ? poise_buf_append(&result, links, ids * sizeof *links) : 0;
    }
    poise_buf_free(&all);
    code = poise_world_agree(graph->world, code);
    if (code == 0) {
        code = poise_world_broadcast(graph->world, 0, &result);
    }
    if (code == 0 && ids > 0) {
        memcpy(links, result.data, ids * sizeof *links);
    }
    poise_buf_free(&result);
    return code;
}

/* The vertex of the largest degree, if that is this rank's first. */
static int search_giant(struct poise_graph_bfs *bfs)
{
    struct poise_graph_bfs_result result;
    const struct poise_graph *graph = bfs_graph(bfs);
    uint64_t root = 0;
    if (graph->count == 0 || graph->info.directed) {
        return 0;
    }
    /* Id 0 is the first place: with that order, of the largest degree. */
    root = graph_label(graph, 0);
    int code = poise_graph_bfs_run(bfs, root, &result);
    if (code == 0) {
        code = bfs_finish_tree(bfs);
    }
    return code < 0 ? code : 1;
}

/* Least labels of the trees, and how many there are. */
static int64_t name_components(const struct poise_graph *graph, uint32_t *links,
                               uint32_t *least, uint64_t *components)
{
    uint64_t first, count, trees = 0;
    int64_t isolated = 0;
    poise_graph_slice(graph, graph->rank, &first, &count);
    for (uint64_t v = 0; v < graph->info.vertex_count; v++) {
        uint32_t id = graph_id(graph, v);
        uint32_t root = id == POISE_GRAPH_NONE ? id : root_of(links, id);
        uint64_t name = v;
        if (root == POISE_GRAPH_NONE) {
            isolated++;
        } else if (least[root] == POISE_GRAPH_NONE) {
            /* Labels ascend: the first that comes is the least. */
            least[root] = (uint32_t)v;
            trees++;
        } else {
            name = least[root];
        }
        if (v >= first && v - first < count) {
            components[v - first] = name;
        }
    }
    return isolated + (int64_t)trees;
}

int64_t poise_graph_components(struct poise_graph_bfs *bfs,
                               uint64_t *components)
{
    const struct poise_graph *graph = bfs_graph(bfs);
    uint64_t ids = graph->stride * (uint64_t)graph->ranks;
    uint32_t *links = graph_pages_map(ids * 4, graph->huge);
    uint32_t *least = graph_pages_map(ids * 4, graph->huge);
    int64_t result = 0;
    int code = links && least ? 0 : -ENOMEM;
    if (graph->world) {
        code = poise_world_agree(graph->world, code);
    }
    int searched = code == 0 ? search_giant(bfs) : code;
    if (searched >= 0) {
        for (uint64_t id = 0; id < ids; id++) {
            links[id] = (uint32_t)id;
            least[id] = POISE_GRAPH_NONE;
        }
        join_rows(bfs, searched > 0, links);
        code = graph->world ? merge_ranks(graph, links, ids) : 0;
        result =
            code < 0 ? code : name_components(graph, links, least, components);
    } else {
        result = searched;
    }
    graph_pages_unmap(links, ids * 4);
    graph_pages_unmap(least, ids * 4);
    return result;
}
