/*
 * poise/window.h - the shared allgather.
 *
 * A window is an array of bytes, one part of it from each rank, that all ranks
 * of a node see in one copy. Each rank writes its own part where it lies; an
 * exchange makes the parts of other nodes appear too.
 *
 * Source: numa-bfs III.A (sharing), III.B (parallel allgather).
 */
#ifndef POISE_WINDOW_H
#define POISE_WINDOW_H

#include <poise/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_coll_window;

/** Which memory is shared, and which ranks exchange with other nodes. */
enum poise_coll_sharing {
    /** One copy per node; all ranks of a node exchange with other nodes, each
     * for a colour of the parts: "par allgather", figure 7. */
    POISE_COLL_SHARED_PARALLEL,
    /** One copy per node; the lowest rank of each node exchanges: figure 5b.
     */
    POISE_COLL_SHARED_LEADER,
    /** A copy per rank; parts to the node's lowest rank, exchange, and back:
     * the three steps of figure 5a. A baseline. */
    POISE_COLL_PRIVATE_LEADER,
    /** A copy per rank, a ring over all ranks. A baseline. */
    POISE_COLL_PRIVATE,
};

struct poise_coll_window_options {
    enum poise_coll_sharing sharing;
    /** 1 (0 means 1) or 2. With one copy nobody may write to its part before
     * all ranks of the node are done with reading the whole. With two, parts
     * are written into the next copy while the current one is read, and an
     * exchange swaps them: no other synchronisation is needed. */
    int copies;
    /** The parts are bitmaps: what goes between nodes, of which all but a few
     * bits are zero, goes as the positions of these. */
    bool sparse;
};

/** Time and bytes of this rank's exchanges so far. */
struct poise_coll_window_stats {
    uint64_t exchanges;
    uint64_t gather_ns;  /**< until the node's parts are all written */
    uint64_t between_ns; /**< exchange with other nodes */
    uint64_t spread_ns;  /**< until the node has all parts */
    uint64_t sent_bytes; /**< in messages, by this rank */
};

/**
 * `part_bytes[r]` is the length of rank r's part, the same array on all ranks;
 * parts lie one behind the other, in order of ranks, without gaps. The memory
 * is zeroed, and taken at once (each part near its rank, where the machine has
 * NUMA domains): what is missing shows here. `options` may be NULL. Owned by
 * the caller.
 *
 * Collective; the world must outlive the window. -ENOSPC, -ENOMEM: not enough
 * memory. -EPROTO: ranks differ in the lengths or the options.
 */
POISE_API int
poise_coll_window_create(struct poise_world *world, const size_t *part_bytes,
                         const struct poise_coll_window_options *options,
                         struct poise_coll_window **out);
/** Collective. NULL is allowed. */
POISE_API void poise_coll_window_destroy(struct poise_coll_window *window);

/** Where I write my part, for the next exchange. With two copies it moves with
 * each exchange, and holds what it held two exchanges ago. */
POISE_API void *poise_coll_window_part(struct poise_coll_window *window);
/** Where rank r's part begins in the whole. */
POISE_API size_t
poise_coll_window_offset(const struct poise_coll_window *window, int rank);
/** All parts as of the last exchange; read-only. With two copies it moves with
 * each exchange. Zeroes before the first. */
POISE_API const void *
poise_coll_window_whole(const struct poise_coll_window *window);
/** The length of the whole. */
POISE_API size_t
poise_coll_window_bytes(const struct poise_coll_window *window);

/**
 * My part is written; return when all parts are there. Collective, and a
 * barrier for the ranks of a node. An error (a rank died, out of memory) is
 * seen by the rank that it befalls, which abandons the window; others learn of
 * it in this exchange or the next. The window is of no more use then.
 */
POISE_API int poise_coll_window_exchange(struct poise_coll_window *window);

/** I exchange no more: a rank that waits for me in an exchange, now or later,
 * gets -ECANCELED. Local; again is allowed. */
POISE_API void poise_coll_window_abandon(struct poise_coll_window *window);

/** Copy `data` (my part's length) into my part, exchange, and give the whole,
 * which is read in place. Collective. */
POISE_API int poise_coll_allgather_shared(struct poise_coll_window *window,
                                          const void *data, const void **whole);

POISE_API struct poise_coll_window_stats
poise_coll_window_stats(const struct poise_coll_window *window);

#ifdef __cplusplus
}
#endif

#endif
