/*
 * Top-down: each vertex of the frontier shows itself to its neighbours.
 *
 * Levels lie one behind the other in one queue. Small ones are expanded by the
 * calling thread alone, which turns a search in a graph of high diameter into
 * the plain loop over a queue that suits it.
 */
#include "bfs.h"

#include <string.h>

#define DOWN_CHUNKS_PER_THREAD 16
#define DOWN_MAX_CHUNK 256
#define DOWN_STAGED 512
/** Rows and their bounds are fetched so many vertices ahead. */
#define DOWN_AHEAD 4

struct down_run {
    struct poise_graph_bfs *bfs;
    uint32_t chunks;
    uint64_t tail; /**< __atomic: end of the new level in the queue */
};

static inline bool down_claim(uint64_t *visited, uint32_t row)
{
    uint64_t *word = &visited[row >> 6], bit = UINT64_C(1) << (row & 63);
    return !(__atomic_load_n(word, __ATOMIC_RELAXED) & bit) &&
           !(__atomic_fetch_or(word, bit, __ATOMIC_RELAXED) & bit);
}

static void down_flush(struct down_run *run, const uint32_t *staged,
                       uint64_t count)
{
    uint64_t at = __atomic_fetch_add(&run->tail, count, __ATOMIC_RELAXED);
    memcpy(run->bfs->queue + at, staged, count * sizeof *staged);
}

static void down_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct down_run *run = arg;
    struct poise_graph_bfs *bfs = run->bfs;
    const uint64_t *start = bfs->graph->out.start;
    const uint32_t *to = bfs->graph->out.to;
    struct bfs_tally *tally = &bfs->tallies[thread];
    uint32_t staged[DOWN_STAGED];
    uint64_t count = 0, scout = 0, edges = 0, found = 0;
    struct graph_range range =
        graph_range_of(bfs->end - bfs->begin, chunk, run->chunks, 1);
    const uint32_t *queue = bfs->queue + bfs->begin;
    for (uint64_t i = range.from; i < range.to; i++) {
        uint32_t u = queue[i];
        if (i + DOWN_AHEAD < range.to) {
            __builtin_prefetch(&to[start[queue[i + DOWN_AHEAD]]]);
        }
        uint64_t last = start[u + 1];
        edges += last - start[u];
        for (uint64_t a = start[u]; a < last; a++) {
            uint32_t v = to[a];
            if (!down_claim(bfs->visited, v)) {
                continue;
            }
            bfs->parent[v] = u;
            scout += start[v + 1] - start[v];
            staged[count++] = v;
            if (count == DOWN_STAGED) {
                down_flush(run, staged, count);
                found += count;
                count = 0;
            }
        }
    }
    if (count > 0) {
        down_flush(run, staged, count);
        found += count;
    }
    tally->found += found;
    tally->scout += scout;
    tally->edges += edges;
}

void bfs_top_down(struct poise_graph_bfs *bfs, struct poise_graph_level *level)
{
    uint64_t count = bfs->end - bfs->begin;
    uint64_t chunks =
        (uint64_t)graph_team_size(bfs->team) * DOWN_CHUNKS_PER_THREAD;
    if (count / chunks > DOWN_MAX_CHUNK) {
        chunks = count / DOWN_MAX_CHUNK;
    }
    chunks = chunks < count ? chunks : count;
    struct down_run run = {.bfs = bfs,
                           .chunks = chunks < GRAPH_TEAM_MAX_CHUNKS
                                         ? (uint32_t)chunks
                                         : GRAPH_TEAM_MAX_CHUNKS,
                           .tail = bfs->end};
    graph_team_run(bfs->team, down_chunk, &run, run.chunks);
    struct bfs_tally sum = bfs_tally_take(bfs);
    level->found = sum.found;
    level->edges = sum.edges;
    bfs->scout = sum.scout;
    bfs->begin = bfs->end;
    bfs->end = run.tail;
}

void bfs_top_down_serial(struct poise_graph_bfs *bfs, bool once,
                         struct poise_graph_level *level)
{
    const uint64_t *start = bfs->graph->out.start;
    const uint32_t *to = bfs->graph->out.to;
    uint64_t *visited = bfs->visited;
    uint32_t *queue = bfs->queue, *parent = bfs->parent;
    uint64_t begin = bfs->begin, end = bfs->end, scout = bfs->scout;
    uint32_t levels = 0;
    do {
        uint64_t last_of_level = end;
        level->edges += scout;
        scout = 0;
        for (; begin < last_of_level; begin++) {
            uint32_t u = queue[begin];
            uint64_t last = start[u + 1];
            for (uint64_t a = start[u]; a < last; a++) {
                uint32_t v = to[a];
                uint64_t *word = &visited[v >> 6];
                uint64_t bit = UINT64_C(1) << (v & 63);
                if (*word & bit) {
                    continue;
                }
                *word |= bit;
                parent[v] = u;
                scout += start[v + 1] - start[v];
                queue[end++] = v;
            }
        }
        levels++;
    } while (!once && begin < end && scout <= BFS_SERIAL_EDGES);
    level->frontier = begin - bfs->begin;
    level->found = end - bfs->end;
    level->levels = levels;
    bfs->begin = begin;
    bfs->end = end;
    bfs->scout = scout;
}
