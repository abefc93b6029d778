/* The tree that a search leaves: parents by label, depths. */
#include "internal.h"

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
        uint32_t up = id == POISE_GRAPH_NONE ? id : bfs->parents_all[id];
        parents[i - from] =
            up == POISE_GRAPH_NONE ? -1 : (int64_t)graph_label(graph, up);
    }
}

static void tree_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct tree_run *run = arg;
    struct graph_range range =
        graph_range_of(run->count, chunk, run->chunks, 64);
    (void)thread;
    run->labels(run->bfs, run->from + range.from, run->from + range.to,
                run->parents + range.from);
}

int bfs_finish_tree(struct poise_graph_bfs *bfs)
{
    if (bfs->parents_shared) {
        return 0;
    }
    tree_clear_unreached(bfs);
    int code = bfs->graph->world ? bfs_ranks_share_parents(bfs) : 0;
    bfs->parents_shared = code == 0;
    return code;
}

int bfs_write_parents(struct poise_graph_bfs *bfs, int64_t *parents)
{
    const struct poise_graph *graph = bfs->graph;
    struct tree_run run = {
        .bfs = bfs, .labels = bfs_labels_plain, .parents = parents};
    uint64_t ids = graph->stride * (uint64_t)graph->ranks;
    poise_graph_slice(graph, graph->rank, &run.from, &run.count);
    if (bfs->use_simd && graph->id_of && ids <= INT32_MAX &&
        bfs_labels_simd()) {
        run.labels = bfs_labels_simd();
    }
    uint64_t chunks = run.count / TREE_CHUNK_LABELS + 1;
    run.chunks =
        (uint32_t)(chunks < TREE_MAX_CHUNKS ? chunks : TREE_MAX_CHUNKS);
    int code = bfs_finish_tree(bfs);
    if (code < 0) {
        return code;
    }
    graph_team_run(bfs->team, tree_chunk, &run, run.chunks);
    if (bfs->root_id == POISE_GRAPH_NONE && bfs->root >= run.from &&
        bfs->root - run.from < run.count) {
        parents[bfs->root - run.from] = (int64_t)bfs->root;
    }
    return 0;
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
    return code < 0 ? code : bfs_write_parents(bfs, parents);
}

/* Depth of each id: up to the first ancestor whose depth is known, and down
 * again, so that each edge of the tree is used twice at most. */
static void tree_depths(const struct poise_graph_bfs *bfs, uint32_t *depth)
{
    const struct poise_graph *graph = bfs->graph;
    const uint32_t *parent = bfs->parents_all;
    uint64_t ids = graph->world ? graph->stride * (uint64_t)graph->ranks
                                : graph->local_count;
    for (uint64_t id = 0; id < ids; id++) {
        depth[id] = POISE_GRAPH_NONE;
    }
    depth[bfs->root_id] = 0;
    for (uint64_t id = 0; id < ids; id++) {
        uint32_t steps = 0, at = (uint32_t)id;
        if (graph_label(graph, at) == POISE_GRAPH_NONE ||
            parent[id] == POISE_GRAPH_NONE) {
            continue;
        }
        while (depth[at] == POISE_GRAPH_NONE) {
            at = parent[at];
            steps++;
        }
        steps += depth[at];
        for (at = (uint32_t)id; depth[at] == POISE_GRAPH_NONE; steps--) {
            depth[at] = steps;
            at = parent[at];
        }
    }
}

int poise_graph_bfs_depths(struct poise_graph_bfs *bfs, int64_t *depths)
{
    const struct poise_graph *graph = bfs->graph;
    uint64_t bytes = graph->stride * (uint64_t)graph->ranks * 4, first, count;
    int code = tree_check_ran(bfs);
    if (code == 0) {
        code = bfs_finish_tree(bfs);
    }
    if (code < 0) {
        return code;
    }
    uint32_t *depth = graph_pages_map(bytes, graph->huge);
    code = depth ? 0 : -ENOMEM;
    if (graph->world) {
        code = poise_world_agree(graph->world, code);
    }
    if (code < 0) {
        graph_pages_unmap(depth, bytes);
        return code;
    }
    bool isolated = bfs->root_id == POISE_GRAPH_NONE;
    if (!isolated) {
        tree_depths(bfs, depth);
    }
    poise_graph_slice(graph, graph->rank, &first, &count);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t id = graph_id(graph, first + i);
        bool in = !isolated && id != POISE_GRAPH_NONE &&
                  bfs->parents_all[id] != POISE_GRAPH_NONE;
        depths[i] = in ? (int64_t)depth[id] : -1;
        if (isolated && first + i == bfs->root) {
            depths[i] = 0;
        }
    }
    graph_pages_unmap(depth, bytes);
    return 0;
}
