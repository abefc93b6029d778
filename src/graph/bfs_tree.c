/* The tree that a search leaves: parents by label, depths. */
#include "bfs.h"

#include <errno.h>

#define TREE_CHUNK_LABELS 8192
#define TREE_MAX_CHUNKS 4096

struct tree_run {
    struct poise_graph_bfs *bfs;
    bfs_labels *labels;
    int64_t *parents;
    uint64_t from, count;
    uint32_t chunks;
};

/* What bottom-up left in the parents of unreached rows is no parent. */
static void tree_clear_unreached(struct poise_graph_bfs *bfs)
{
    for (uint64_t w = 0; w < bfs->words; w++) {
        for (uint64_t bits = ~bfs->visited[w]; bits; bits &= bits - 1) {
            bfs->parent[w * 64 + (unsigned)__builtin_ctzll(bits)] =
                POISE_GRAPH_NONE;
        }
    }
}

void bfs_labels_plain(const struct poise_graph_bfs *bfs, uint64_t from,
                      uint64_t to, int64_t *parents)
{
    const struct poise_graph *graph = bfs->graph;
    for (uint64_t i = from; i < to; i++) {
        uint32_t id = graph_id(graph, i);
        uint32_t up = id == POISE_GRAPH_NONE ? id : bfs->parent[id];
        parents[i] =
            up == POISE_GRAPH_NONE ? -1 : (int64_t)graph_label(graph, up);
    }
}

static void tree_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct tree_run *run = arg;
    struct graph_range range =
        graph_range_of(run->count, chunk, run->chunks, 64);
    (void)thread;
    run->labels(run->bfs, range.from, range.to, run->parents);
}

void bfs_write_parents(struct poise_graph_bfs *bfs, int64_t *parents)
{
    const struct poise_graph *graph = bfs->graph;
    struct tree_run run = {.bfs = bfs,
                           .labels = bfs_labels_plain,
                           .parents = parents,
                           .count = graph->info.vertex_count};
    if (bfs->use_simd && graph->id_of && graph->count <= INT32_MAX &&
        bfs_labels_simd()) {
        run.labels = bfs_labels_simd();
    }
    uint64_t chunks = run.count / TREE_CHUNK_LABELS + 1;
    run.chunks =
        (uint32_t)(chunks < TREE_MAX_CHUNKS ? chunks : TREE_MAX_CHUNKS);
    tree_clear_unreached(bfs);
    graph_team_run(bfs->team, tree_chunk, &run, run.chunks);
    if (bfs->root_id == POISE_GRAPH_NONE) {
        parents[bfs->root] = (int64_t)bfs->root;
    }
}

static int tree_check_ran(const struct poise_graph_bfs *bfs)
{
    return bfs->ran ? 0
                    : poise_error_set(EINVAL, "look at a search tree", NULL,
                                      "no search has ended well");
}

int poise_graph_bfs_parents(struct poise_graph_bfs *bfs, int64_t *parents)
{
    int code = tree_check_ran(bfs);
    if (code == 0) {
        bfs_write_parents(bfs, parents);
    }
    return code;
}

/* Depth of each row: up to the first ancestor whose depth is known, and down
 * again, so that each edge of the tree is used twice at most. */
static void tree_depths(const struct poise_graph_bfs *bfs, uint32_t *depth)
{
    uint64_t rows = bfs->graph->local_count;
    for (uint64_t row = 0; row < rows; row++) {
        depth[row] = POISE_GRAPH_NONE;
    }
    depth[bfs->root_id] = 0;
    for (uint64_t row = 0; row < rows; row++) {
        uint32_t steps = 0, at = (uint32_t)row;
        if (bfs->parent[row] == POISE_GRAPH_NONE) {
            continue;
        }
        while (depth[at] == POISE_GRAPH_NONE) {
            at = bfs->parent[at];
            steps++;
        }
        steps += depth[at];
        for (at = (uint32_t)row; depth[at] == POISE_GRAPH_NONE; steps--) {
            depth[at] = steps;
            at = bfs->parent[at];
        }
    }
}

int poise_graph_bfs_depths(struct poise_graph_bfs *bfs, int64_t *depths)
{
    const struct poise_graph *graph = bfs->graph;
    uint64_t rows = graph->local_count;
    int code = tree_check_ran(bfs);
    if (code < 0) {
        return code;
    }
    uint32_t *depth = graph_pages_map(rows * 4, graph->huge);
    if (!depth) {
        return -ENOMEM;
    }
    tree_clear_unreached(bfs);
    if (bfs->root_id != POISE_GRAPH_NONE) {
        tree_depths(bfs, depth);
    }
    for (uint64_t i = 0; i < graph->info.vertex_count; i++) {
        uint32_t id = graph_id(graph, i);
        bool in = bfs->root_id != POISE_GRAPH_NONE && id != POISE_GRAPH_NONE &&
                  bfs->parent[id] != POISE_GRAPH_NONE;
        depths[i] = in ? (int64_t)depth[id] : -1;
    }
    if (bfs->root_id == POISE_GRAPH_NONE) {
        depths[bfs->root] = 0;
    }
    graph_pages_unmap(depth, rows * 4);
    return 0;
}
