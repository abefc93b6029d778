/*
 * Top-down: each vertex of the frontier shows itself to its neighbours.
 *
 * Levels lie one behind the other in one queue. Small ones are expanded by the
 * calling thread alone, which turns a search in a graph of high diameter into
 * the plain loop over a queue that suits it.
 *
 * Who may write what while threads expand a level: a vertex belongs to the
 * thread whose atomic OR sets its bit in `visited`; that thread alone writes
 * its parent, and its place in the queue, which it reserves by an atomic add to
 * `tail`. No thread reads either before the team has finished the level, which
 * orders all that was written. So the order of a level, and of several possible
 * parents the one that is taken, may differ from run to run; which vertices are
 * found does not.
 */
#include "internal.h"

#include <string.h>

#define CHUNKS_PER_THREAD 16
#define MAX_CHUNK 256
#define MAX_CHUNK_ARCS 16384
#define STAGED 512
/** Rows and their bounds are fetched so many vertices ahead. */
#define ROWS_AHEAD 4

/** Up to so many vertices, their arcs are dealt out evenly. */
#define FEW_VERTICES 256

struct top_down {
    struct poise_graph_bfs *bfs;
    uint32_t chunks;
    uint64_t tail; /**< __atomic: end of the new level in the queue */
    uint64_t arcs[FEW_VERTICES + 1]; /**< of few vertices: those before each */
};

/* Vertices that a thread found, and who found them. */
struct found_rows {
    uint32_t rows[STAGED], parents[STAGED];
    uint64_t count;
};

static inline bool claim(uint64_t *visited, uint32_t row)
{
    uint64_t *word = &visited[row >> 6], bit = UINT64_C(1) << (row & 63);
    return !(__atomic_load_n(word, __ATOMIC_RELAXED) & bit) &&
           !(__atomic_fetch_or(word, bit, __ATOMIC_RELAXED) & bit);
}

/* Here and not where they are claimed: an atomic operation waits for all
 * stores before it, and these miss the caches. */
static void flush_found(struct top_down *run, struct found_rows *found,
                        struct bfs_tally *tally)
{
    struct poise_graph_bfs *bfs = run->bfs;
    const uint32_t *ends_at = bfs->graph->ends_at;
    uint64_t at =
        __atomic_fetch_add(&run->tail, found->count, __ATOMIC_RELAXED);
    memcpy(bfs->queue + at, found->rows, found->count * sizeof *found->rows);
    for (uint64_t i = 0; i < found->count; i++) {
        bfs->parent[found->rows[i]] = found->parents[i];
    }
    for (uint64_t i = 0; i < found->count; i++) {
        tally->scout += ends_at[found->rows[i]];
    }
    tally->found += found->count;
    found->count = 0;
}

static inline void expand_arcs(struct top_down *run, struct found_rows *found,
                               struct bfs_tally *tally, uint32_t u,
                               struct graph_range arcs)
{
    const uint32_t *to = run->bfs->graph->out.to;
    uint64_t *visited = run->bfs->visited;
    tally->edges += arcs.to - arcs.from;
    for (uint64_t a = arcs.from; a < arcs.to; a++) {
        uint32_t v = to[a];
        if (!claim(visited, v)) {
            continue;
        }
        found->rows[found->count] = v;
        found->parents[found->count] = u;
        if (++found->count == STAGED) {
            flush_found(run, found, tally);
        }
    }
}

static void expand_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct top_down *run = arg;
    struct poise_graph_bfs *bfs = run->bfs;
    const uint64_t *start = bfs->graph->out.start;
    const uint32_t *to = bfs->graph->out.to;
    const uint32_t *queue = bfs->queue + bfs->begin;
    struct found_rows found;
    struct graph_range range =
        graph_range_of(bfs->end - bfs->begin, chunk, run->chunks, 1);
    found.count = 0;
    for (uint64_t i = range.from; i < range.to; i++) {
        if (i + ROWS_AHEAD < range.to) {
            __builtin_prefetch(&to[start[queue[i + ROWS_AHEAD]]]);
        }
        uint32_t u = queue[i];
        expand_arcs(run, &found, &bfs->tallies[thread], u,
                    (struct graph_range){start[u], start[u + 1]});
    }
    flush_found(run, &found, &bfs->tallies[thread]);
}

/* The same for a part of the arcs of few vertices: one may be a hub that has
 * most of them. */
static void expand_chunk_arcs(void *arg, unsigned thread, uint32_t chunk)
{
    struct top_down *run = arg;
    struct poise_graph_bfs *bfs = run->bfs;
    const uint64_t *start = bfs->graph->out.start;
    const uint32_t *queue = bfs->queue + bfs->begin;
    uint64_t count = bfs->end - bfs->begin;
    struct found_rows found;
    struct graph_range range =
        graph_range_of(run->arcs[count], chunk, run->chunks, 1);
    found.count = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t from = run->arcs[i], to = run->arcs[i + 1];
        from = from > range.from ? from : range.from;
        to = to < range.to ? to : range.to;
        if (from < to) {
            uint64_t first = start[queue[i]] - run->arcs[i];
            expand_arcs(run, &found, &bfs->tallies[thread], queue[i],
                        (struct graph_range){first + from, first + to});
        }
    }
    flush_found(run, &found, &bfs->tallies[thread]);
}

static uint32_t chunk_count(const struct poise_graph_bfs *bfs, uint64_t count,
                            uint64_t most)
{
    uint64_t chunks = (uint64_t)graph_team_size(bfs->team) * CHUNKS_PER_THREAD;
    if (count / chunks > most) {
        chunks = count / most;
    }
    chunks = chunks < count ? chunks : count;
    return chunks < GRAPH_TEAM_MAX_CHUNKS ? (uint32_t)chunks
                                          : GRAPH_TEAM_MAX_CHUNKS;
}

void bfs_top_down(struct poise_graph_bfs *bfs, struct poise_graph_level *level)
{
    const uint64_t *start = bfs->graph->out.start;
    uint64_t count = bfs->end - bfs->begin;
    struct top_down run = {.bfs = bfs, .tail = bfs->end};
    if (count <= FEW_VERTICES) {
        for (uint64_t i = 0; i < count; i++) {
            uint32_t u = bfs->queue[bfs->begin + i];
            run.arcs[i + 1] = run.arcs[i] + start[u + 1] - start[u];
        }
        run.chunks = chunk_count(bfs, run.arcs[count], MAX_CHUNK_ARCS);
        graph_team_run(bfs->team, expand_chunk_arcs, &run, run.chunks);
    } else {
        run.chunks = chunk_count(bfs, count, MAX_CHUNK);
        graph_team_run(bfs->team, expand_chunk, &run, run.chunks);
    }
    struct bfs_tally sum = bfs_tally_take(bfs);
    level->found = sum.found;
    level->edges = sum.edges;
    bfs->scout = sum.scout;
    bfs->begin = bfs->end;
    bfs->end = run.tail;
}

/* Fetch the rows of the vertices [from, to) of the queue; returns the arcs
 * that leave them. */
static uint64_t fetch_rows(struct poise_graph_bfs *bfs, uint64_t from,
                           uint64_t to)
{
    const uint64_t *start = bfs->graph->out.start;
    const uint32_t *row = bfs->graph->out.to;
    uint64_t scout = 0;
    for (uint64_t i = from; i < to; i++) {
        uint32_t v = bfs->queue[i];
        scout += start[v + 1] - start[v];
        __builtin_prefetch(&row[start[v]]);
    }
    return scout;
}

void bfs_top_down_serial(struct poise_graph_bfs *bfs, bool once,
                         struct poise_graph_level *level)
{
    const uint64_t *start = bfs->graph->out.start;
    const uint32_t *to = bfs->graph->out.to;
    uint64_t *visited = bfs->visited;
    uint32_t *queue = bfs->queue, *parent = bfs->parent;
    uint64_t begin = bfs->begin, end = bfs->end, edges = 0;
    uint32_t levels = 0;
    do {
        uint64_t last_of_level = end;
        for (; begin < last_of_level; begin++) {
            uint32_t u = queue[begin];
            uint64_t last = start[u + 1];
            edges += last - start[u];
            for (uint64_t a = start[u]; a < last; a++) {
                uint32_t v = to[a];
                uint64_t word = visited[v >> 6];
                uint64_t bit = UINT64_C(1) << (v & 63);
                if (!(word & bit)) {
                    visited[v >> 6] = word | bit;
                    parent[v] = u;
                    queue[end++] = v;
                }
            }
        }
        levels++;
        bfs->scout = fetch_rows(bfs, begin, end);
    } while (!once && begin < end && bfs->scout <= BFS_SERIAL_EDGES);
    level->frontier = begin - bfs->begin;
    level->found = end - bfs->end;
    level->edges = edges;
    level->levels = levels;
    bfs->begin = begin;
    bfs->end = end;
}
