/*
 * Shared by the parts of the search.
 *
 * Rows are this rank's vertices; with one rank rows and ids are the same. A
 * *frontier* is known as a list of rows (top-down) or as a bitmap of ids
 * (bottom-up), never both.
 */
#ifndef POISE_GRAPH_SEARCH_INTERNAL_H
#define POISE_GRAPH_SEARCH_INTERNAL_H

#include "graph/build/build.h"
#include "graph/search/search.h"

#include <poise/window.h>

/** A list with no more arcs than this is not worth waking helpers for. */
#define BFS_SERIAL_EDGES 4096

/** What one thread did in one step; a cache line of its own. */
struct bfs_tally {
    _Alignas(GRAPH_CACHE_LINE) uint64_t found; /**< vertices */
    uint64_t scout; /**< arcs that leave them (top-down only) */
    uint64_t edges; /**< arcs looked at */
};

/** Memory that the ranks of a node share, and what goes between ranks. */
struct bfs_ranks {
    struct poise_coll_window *bits, *parents, *control;
    uint64_t *private_next; /**< POISE_GRAPH_EXCHANGE_SHARED_IN: out_queue */
    uint64_t *sent;         /**< bits by id: the owner knows of them */
    struct poise_buf *outboxes; /**< for each rank: pairs of ids, child and
                                 parent */
};

struct poise_graph_bfs {
    const struct poise_graph *graph;
    struct poise_graph_bfs_options options;
    struct graph_team *team;
    struct bfs_tally *tallies; /**< one for each thread */
    uint32_t **pending;        /**< of each thread: rows of a chunk */

    uint32_t *parent; /**< by row: the id; what visited says is valid */
    const uint32_t *parents_all; /**< by id, for a tree that is done */
    bool parents_shared;
    uint64_t *visited;        /**< bits by row; those behind the last are set */
    uint64_t *reset;          /**< what visited starts with */
    const uint64_t *frontier; /**< bits by id */
    uint64_t *next;           /**< bits by row */
    uint64_t *own[2];         /**< with one rank: both in turn */
    uint64_t words;           /**< of a bitmap by row */
    uint64_t frontier_words;  /**< of one by id */
    uint64_t *summary;        /**< a bit for 2^summary_shift of the frontier */
    unsigned summary_shift;   /**< 0: no summary at this level */
    struct bfs_ranks ranks;
    uint32_t chunk_words; /**< of a bottom-up chunk */

    uint32_t *queue;     /**< rows, level after level; one place more */
    uint64_t begin, end; /**< the current level in the queue */

    bool listed;  /**< `queue` is what `frontier` says, turned into a list */
    bool in_bits; /**< the frontier is in `frontier`, not in `queue` */
    uint64_t frontier_count, scout;
    uint64_t edges_left; /**< arcs of vertices not yet in a frontier */
    uint64_t reached;
    uint32_t depth; /**< of the frontier */
    uint64_t root;
    uint32_t root_id;

    struct poise_graph_level *levels;
    size_t level_count, level_capacity;
    uint32_t *labels; /**< for the hook */
    bool use_simd;
    bool ran;
};

/** Expand the list: one level, by all threads. */
void bfs_top_down(struct poise_graph_bfs *bfs, struct poise_graph_level *level);
/** Expand lists by the calling thread alone, level after level, while they
 * stay small; at least one level, with `once` just one. */
void bfs_top_down_serial(struct poise_graph_bfs *bfs, bool once,
                         struct poise_graph_level *level);
/** Expand the bitmap: one level; what was found here is in `next`. */
void bfs_bottom_up(struct poise_graph_bfs *bfs,
                   struct poise_graph_level *level);
/** `next` is complete: it becomes the frontier. With ranks collective. */
int bfs_advance(struct poise_graph_bfs *bfs, struct poise_graph_level *level);
/** This rank's part of the frontier. */
static inline const uint64_t *bfs_own_bits(const struct poise_graph_bfs *bfs)
{
    return bfs->frontier + graph_base(bfs->graph) / 64;
}
/** List to bitmap, and back. The bitmap of a list stays until the next turn.
 */
int bfs_to_bits(struct poise_graph_bfs *bfs, struct poise_graph_level *level);
void bfs_to_list(struct poise_graph_bfs *bfs);

/** Take the sums of the threads' tallies and clear them. */
struct bfs_tally bfs_tally_take(struct poise_graph_bfs *bfs);

/** First neighbours of 64 rows at once: bit i of the result is set if bit i
 * of `todo` is and first[i] is in the frontier; parent[i] is then that. */
typedef uint64_t bfs_first64(uint64_t todo, const uint32_t *first,
                             const uint64_t *frontier, uint32_t *parent);
bfs_first64 bfs_first64_plain;
/** NULL where the processor cannot. */
bfs_first64 *bfs_first64_simd(void);

/** parents[i - from] for labels i in [from, to): the labels of their parents.
 */
void bfs_labels_plain(const struct poise_graph_bfs *bfs, uint64_t from,
                      uint64_t to, int64_t *parents);
typedef void bfs_labels(const struct poise_graph_bfs *bfs, uint64_t from,
                        uint64_t to, int64_t *parents);
bfs_labels *bfs_labels_simd(void);
/** Those of this rank's slice, by all threads. Collective. */
int bfs_write_parents(struct poise_graph_bfs *bfs, int64_t *parents);

/* ---- several ranks (ranks.c) ---------------------------------------- */

/** Takes the place of this rank's own frontier, next and parent. Collective.
 */
int bfs_ranks_create(struct poise_graph_bfs *bfs);
void bfs_ranks_destroy(struct poise_graph_bfs *bfs);
/** This rank cannot go on: the others do not wait for it. */
void bfs_ranks_leave(struct poise_graph_bfs *bfs);
/** All ranks are there; what the last run left may be overwritten. */
int bfs_ranks_start(struct poise_graph_bfs *bfs);
/** The parts of all ranks' `next` become the frontier. */
int bfs_ranks_exchange(struct poise_graph_bfs *bfs,
                       struct poise_graph_level *level);
/** Show the others which hubs are in this rank's list, with the next sum. */
void bfs_ranks_show_hubs(struct poise_graph_bfs *bfs);
/** Add up over the ranks, or fail on all of them: with `code`, if it is
 * negative here, and -ECANCELED where it is not. */
int bfs_ranks_sum(struct poise_graph_bfs *bfs, int code, uint64_t *values,
                  size_t count);
/** One level top-down, on the calling thread; sums are in `level` and bfs.
 * `code` as in bfs_ranks_sum. */
int bfs_ranks_top_down(struct poise_graph_bfs *bfs, int code,
                       struct poise_graph_level *level);
/** Make parents_all whole, if it is not. */
int bfs_ranks_share_parents(struct poise_graph_bfs *bfs);

#endif
