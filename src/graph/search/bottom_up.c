/*
 * Bottom-up: each vertex without a parent looks for one in the frontier.
 *
 * First neighbours lie in an array of their own and are all looked at before
 * anything else, 64 vertices at a time and without a branch on the outcome: in
 * a graph ordered by degree they are hubs, and most vertices need no second
 * look. The rows of the others are fetched ahead of their turn. Words of the
 * bitmaps have one writer each, so that nothing here is atomic.
 */
#include "internal.h"

#include <string.h>

/** By itself, a summary is used for frontiers that are not in the
 * caches anyway: below that it was measured to cost more than it saves. */
#define SUMMARY_MIN_BYTES ((uint64_t)16 << 20)
#define MIN_GRANULARITY 64
#define MAX_GRANULARITY 4096
/** Rows are fetched so many vertices ahead. */
#define ROWS_AHEAD 16

struct bottom_up {
    struct poise_graph_bfs *bfs;
    bfs_first64 *first64;
    uint32_t chunks;
    uint64_t tail; /**< __atomic: of the list */
};

static inline bool has_bit(const uint64_t *bits, uint32_t id)
{
    return bits[id >> 6] >> (id & 63) & 1;
}

/* In the frontier? The summary, if there is one, is asked first. */
static inline bool is_in_frontier(const struct poise_graph_bfs *bfs,
                                  uint32_t id)
{
    if (bfs->summary_shift > 0 &&
        !has_bit(bfs->summary, id >> bfs->summary_shift)) {
        return false;
    }
    return has_bit(bfs->frontier, id);
}

uint64_t bfs_first64_plain(uint64_t todo, const uint32_t *first,
                           const uint64_t *frontier, uint32_t *parent)
{
    uint64_t found = 0;
    while (todo) {
        unsigned i = (unsigned)__builtin_ctzll(todo);
        uint32_t u = first[i];
        uint64_t hit = frontier[u >> 6] >> (u & 63) & 1;
        found |= hit << i;
        parent[i] = hit ? u : parent[i];
        todo &= todo - 1;
    }
    return found;
}

/* The same as bfs_first64_plain by way of the summary. */
static uint64_t first64_by_summary(const struct poise_graph_bfs *bfs,
                                   uint64_t todo, const uint32_t *first,
                                   uint32_t *parent)
{
    uint64_t found = 0;
    for (; todo; todo &= todo - 1) {
        unsigned i = (unsigned)__builtin_ctzll(todo);
        if (is_in_frontier(bfs, first[i])) {
            found |= UINT64_C(1) << i;
            parent[i] = first[i];
        }
    }
    return found;
}

/* Look through the rest of the rows of `pending`; returns the arcs seen. */
static uint64_t search_rest(struct bottom_up *run, const uint32_t *pending,
                            uint32_t count)
{
    struct poise_graph_bfs *bfs = run->bfs;
    const struct graph_rows *in = graph_in_rows(bfs->graph);
    uint64_t skip = bfs->options.ablation.no_first ? 0 : 1, edges = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i + ROWS_AHEAD < count) {
            __builtin_prefetch(&in->to[in->start[pending[i + ROWS_AHEAD]] + 1]);
        }
        uint32_t v = pending[i];
        uint64_t from = in->start[v] + skip, to = in->start[v + 1];
        uint64_t a = from;
        while (a < to && !is_in_frontier(bfs, in->to[a])) {
            a++;
        }
        if (a < to) {
            bfs->parent[v] = in->to[a];
            bfs->next[v >> 6] |= UINT64_C(1) << (v & 63);
            a++;
        }
        edges += a - from;
    }
    return edges;
}

/* Put the bits of `misses` behind the `count` rows in `pending`. */
static inline uint32_t list_bits(uint64_t misses, uint64_t word,
                                 uint32_t *pending, uint32_t count)
{
    while (misses) {
        pending[count++] =
            (uint32_t)(word * 64 + (unsigned)__builtin_ctzll(misses));
        misses &= misses - 1;
    }
    return count;
}

static void search_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct bottom_up *run = arg;
    struct poise_graph_bfs *bfs = run->bfs;
    const struct graph_rows *in = graph_in_rows(bfs->graph);
    uint32_t *pending = bfs->pending[thread];
    struct bfs_tally *tally = &bfs->tallies[thread];
    bool use_first = !bfs->options.ablation.no_first;
    uint64_t more_to = use_first ? in->more_to : in->row_count;
    uint64_t edges = 0, found = 0;
    uint64_t from = (uint64_t)chunk * bfs->chunk_words;
    uint64_t to = from + bfs->chunk_words;
    uint32_t count = 0;
    to = to < bfs->words ? to : bfs->words;
    for (uint64_t w = from; w < to; w++) {
        uint64_t todo = ~bfs->visited[w], hits = 0;
        if (todo && use_first) {
            hits = bfs->summary_shift > 0
                       ? first64_by_summary(bfs, todo, in->first + w * 64,
                                            bfs->parent + w * 64)
                       : run->first64(todo, in->first + w * 64, bfs->frontier,
                                      bfs->parent + w * 64);
            edges += (uint64_t)__builtin_popcountll(todo);
        }
        bfs->next[w] = hits;
        if (w * 64 < more_to) {
            count = list_bits(todo & ~hits, w, pending, count);
        }
    }
    edges += search_rest(run, pending, count);
    for (uint64_t w = from; w < to; w++) {
        bfs->visited[w] |= bfs->next[w];
        found += (uint64_t)__builtin_popcountll(bfs->next[w]);
    }
    tally->found += found;
    tally->edges += edges;
}

static uint32_t chunk_count(const struct poise_graph_bfs *bfs)
{
    return (uint32_t)((bfs->words + bfs->chunk_words - 1) / bfs->chunk_words);
}

/* ---- the summary -------------------------------------------------------- */

/* So coarse that about a third of the summary is still zero. */
static unsigned choose_granularity(const struct poise_graph_bfs *bfs)
{
    const struct poise_graph_bfs_options *options = &bfs->options;
    unsigned granularity = MAX_GRANULARITY;
    if (options->ablation.no_summary || options->ablation.granularity > 0) {
        return options->ablation.no_summary ? 0 : options->ablation.granularity;
    }
    if (bfs->frontier_words * 8 < SUMMARY_MIN_BYTES) {
        return 0;
    }
    double density = (double)bfs->frontier_count / (double)bfs->graph->count;
    while (granularity >= MIN_GRANULARITY &&
           (double)granularity * density > 1) {
        granularity /= 2;
    }
    return granularity >= MIN_GRANULARITY ? granularity : 0;
}

/* A word of the summary stands for 64 * granularity vertices. */
static void summarise_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct bottom_up *run = arg;
    struct poise_graph_bfs *bfs = run->bfs;
    uint64_t words_a_bit = UINT64_C(1) << (bfs->summary_shift - 6);
    uint64_t summary_words =
        (bfs->frontier_words + 64 * words_a_bit - 1) / (64 * words_a_bit);
    struct graph_range range =
        graph_range_of(summary_words, chunk, run->chunks, 8);
    (void)thread;
    for (uint64_t s = range.from; s < range.to; s++) {
        uint64_t at = s * 64 * words_a_bit, bits = 0;
        for (unsigned bit = 0; bit < 64; bit++) {
            uint64_t any = 0;
            for (uint64_t w = 0; w < words_a_bit; w++, at++) {
                any |= at < bfs->frontier_words ? bfs->frontier[at] : 0;
            }
            bits |= (uint64_t)(any != 0) << bit;
        }
        bfs->summary[s] = bits;
    }
}

static void summarise(struct poise_graph_bfs *bfs, struct bottom_up *run,
                      struct poise_graph_level *level)
{
    unsigned granularity = choose_granularity(bfs);
    bfs->summary_shift =
        granularity > 0 ? (unsigned)__builtin_ctz(granularity) : 0;
    level->granularity = granularity;
    if (granularity > 0) {
        run->chunks = 4 * graph_team_size(bfs->team);
        graph_team_run(bfs->team, summarise_chunk, run, run->chunks);
    }
}

void bfs_bottom_up(struct poise_graph_bfs *bfs, struct poise_graph_level *level)
{
    bfs_first64 *simd = bfs->use_simd ? bfs_first64_simd() : NULL;
    struct bottom_up run = {.bfs = bfs,
                            .first64 = simd ? simd : bfs_first64_plain};
    summarise(bfs, &run, level);
    graph_team_run(bfs->team, search_chunk, &run, chunk_count(bfs));
    struct bfs_tally sum = bfs_tally_take(bfs);
    level->found = sum.found;
    level->edges = sum.edges;
}

int bfs_advance(struct poise_graph_bfs *bfs, struct poise_graph_level *level)
{
    if (bfs->graph->world) {
        return bfs_ranks_exchange(bfs, level);
    }
    bfs->frontier = bfs->next;
    bfs->next = bfs->own[bfs->next == bfs->own[0]];
    return 0;
}

/* ---- list and bitmap ---------------------------------------------------- */

int bfs_to_bits(struct poise_graph_bfs *bfs, struct poise_graph_level *level)
{
    memset(bfs->next, 0, bfs->words * sizeof *bfs->next);
    for (uint64_t i = bfs->begin; i < bfs->end; i++) {
        uint32_t row = bfs->queue[i];
        bfs->next[row >> 6] |= UINT64_C(1) << (row & 63);
    }
    bfs->in_bits = true;
    return bfs_advance(bfs, level);
}

static void list_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct bottom_up *run = arg;
    struct poise_graph_bfs *bfs = run->bfs;
    uint32_t *pending = bfs->pending[thread];
    const uint64_t *start = bfs->graph->out.start;
    uint64_t from = (uint64_t)chunk * bfs->chunk_words;
    uint64_t to = from + bfs->chunk_words;
    uint64_t scout = 0;
    uint32_t count = 0;
    to = to < bfs->words ? to : bfs->words;
    for (uint64_t w = from; w < to; w++) {
        count = list_bits(bfs_own_bits(bfs)[w], w, pending, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        scout += start[pending[i] + 1] - start[pending[i]];
    }
    uint64_t at = __atomic_fetch_add(&run->tail, count, __ATOMIC_RELAXED);
    memcpy(bfs->queue + at, pending, count * sizeof *pending);
    bfs->tallies[thread].scout += scout;
}

void bfs_to_list(struct poise_graph_bfs *bfs)
{
    struct bottom_up run = {.bfs = bfs};
    graph_team_run(bfs->team, list_chunk, &run, chunk_count(bfs));
    bfs->begin = 0;
    bfs->end = run.tail;
    bfs->scout = bfs_tally_take(bfs).scout;
    bfs->in_bits = false;
    bfs->listed = true;
}
