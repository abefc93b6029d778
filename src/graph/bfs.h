/*
 * poise/bfs.h - breadth-first search of a graph, and what stands on it:
 * validation, a model of larger machines, components, the diameter.
 *
 * A search handle keeps threads and memory for one root after the other.
 * Worlds, labels, threads: as in poise/graph.h.
 *
 * Sources: numa-bfs (Cui et al., CLUSTER 2012); Beamer, Asanovic, Patterson:
 * "Direction-Optimizing Breadth-First Search"; the Graph500 specification.
 */
#ifndef POISE_BFS_H
#define POISE_BFS_H

#include <poise/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- breadth-first search ----------------------------------------------- */

enum poise_graph_method {
    POISE_GRAPH_HYBRID, /**< switches by alpha and beta */
    POISE_GRAPH_TOP_DOWN,
    POISE_GRAPH_BOTTOM_UP,
    POISE_GRAPH_METHODS
};
/** "hybrid", "top-down", "bottom-up"; NULL-terminated. */
POISE_API extern const char *const poise_graph_method_names[];

/** How ranks exchange the frontier bottom-up. Source: numa-bfs III.A, III.B. */
enum poise_graph_exchange {
    POISE_GRAPH_EXCHANGE_AUTO,    /**< the best: parallel */
    POISE_GRAPH_EXCHANGE_PRIVATE, /**< allgather into a copy of each process */
    POISE_GRAPH_EXCHANGE_LEADER, /**< gather, allgather of leaders, broadcast */
    POISE_GRAPH_EXCHANGE_SHARED_IN,  /**< one in_queue for a node: no broadcast
                                      */
    POISE_GRAPH_EXCHANGE_SHARED_ALL, /**< out_queue too: no gather */
    POISE_GRAPH_EXCHANGE_PARALLEL,   /**< and all ranks take part */
    POISE_GRAPH_EXCHANGES
};
/** "auto", "private", "leader", "shared-in", "shared-all", "parallel". */
POISE_API extern const char *const poise_graph_exchange_names[];

/** One level of a search, or a run of small ones. Counts are of the whole
 * graph, times of this rank. */
struct poise_graph_level {
    uint32_t level;  /**< depth of the frontier; the root's is 0 */
    uint32_t levels; /**< how many this entry stands for, most often 1 */
    bool bottom_up;
    uint64_t frontier;    /**< vertices that were expanded */
    uint64_t found;       /**< vertices that were new */
    uint64_t edges;       /**< arcs looked at */
    uint64_t ns;          /**< in all */
    uint64_t exchange_ns; /**< of which: messages and bitmaps */
    uint64_t switch_ns;   /**< of which: list to bitmap, or back */
    uint64_t stall_ns;    /**< of which: waiting for other ranks */
    uint64_t bytes;       /**< sent to other ranks */
    unsigned granularity; /**< vertices a bit of the summary; 0: none */
};

/** Switches for measurements: what each idea of the search is worth. Zero is
 * the default, and the best that is known. Results are the same with all. */
struct poise_graph_bfs_ablation {
    enum poise_graph_exchange exchange;
    /** When the hybrid method changes direction; 0: tuned ones. Bottom-up once
     * more than 1/alpha of the arcs left leave the frontier, top-down again
     * once it shrinks below 1/beta of the vertices. */
    double alpha, beta;
    unsigned granularity; /**< 64..4096, a power of two; 0: by the density */
    bool no_summary;      /**< look into the frontier's bitmap itself */
    bool no_fuse;         /**< every level by all threads, however small */
    bool no_simd;         /**< portable code only */
    bool no_first;        /**< take first neighbours from the rows */
    /** Send bitmaps between nodes as they are, however few bits of a shared one
     * are set. */
    bool no_sparse;
};

struct poise_graph_bfs_options {
    unsigned threads; /**< 0: one for each core of the process */
    enum poise_graph_method method;
    struct poise_graph_bfs_ablation ablation;
    /** Write parents by label within each run: one for each label of this
     * rank's slice, -1 where unreached. Borrowed; NULL: ask afterwards. */
    int64_t *parents;
    /**
     * Called after each level of each run, on all ranks: negative stops the
     * search with that code (give the same on all ranks). `found` holds the
     * labels that were found on this rank, at depth level->level + 1, in no
     * order, borrowed. NULL: levels are not interrupted.
     */
    int (*level)(const struct poise_graph_level *level, const uint32_t *found,
                 size_t count, void *arg);
    void *arg;
};

/** A search: its threads and memory, for one root after the other. */
struct poise_graph_bfs;

/** Collective over the graph's world. -EINVAL, -ENOMEM, -EAGAIN. */
POISE_API int
poise_graph_bfs_create(const struct poise_graph *graph,
                       const struct poise_graph_bfs_options *options,
                       struct poise_graph_bfs **out);
/** Collective. */
POISE_API void poise_graph_bfs_destroy(struct poise_graph_bfs *bfs);

/** One run. Counts are of the whole graph, times of this rank. */
struct poise_graph_bfs_result {
    uint64_t root;
    uint64_t reached;    /**< vertices, the root too */
    uint64_t edges;      /**< input edges (loops and duplicates too) among them;
                              directed: arcs that leave them */
    uint64_t loops;      /**< of which lead from a vertex to itself */
    uint32_t depth;      /**< of the deepest: the root's eccentricity */
    uint64_t ns;         /**< in all */
    uint64_t parents_ns; /**< of which: parents to labels (options.parents) */
    const struct poise_graph_level *levels; /**< owned by the search, valid */
    size_t level_count;                     /**< until the next run */
};

/** Search from the vertex of label `root`; isolated is allowed. Collective.
 * -EINVAL: no such label. What one rank cannot do (-ENOMEM) ends the search on
 * all, elsewhere with -ECANCELED; it is of no more use then. */
POISE_API int poise_graph_bfs_run(struct poise_graph_bfs *bfs, uint64_t root,
                                  struct poise_graph_bfs_result *out);

/** Parents of the last run, for each label of this rank's slice: -1 where
 * unreached, the root its own. Collective. */
POISE_API int poise_graph_bfs_parents(struct poise_graph_bfs *bfs,
                                      int64_t *parents);
/** The same for depths. Collective. */
POISE_API int poise_graph_bfs_depths(struct poise_graph_bfs *bfs,
                                     int64_t *depths);

/* ---- a model of larger machines ----------------------------------------- */

/** A machine of equal nodes. */
struct poise_graph_machine {
    unsigned nodes, sockets;   /**< and processes on each node */
    double latency_s;          /**< of a message between nodes */
    double node_bytes_per_s;   /**< from a node to others, at most */
    double stream_bytes_per_s; /**< ... by one of its processes; 0: the same */
    double copy_bytes_per_s;   /**< within a node's memory; 0: 8e9 */
    double barrier_s;          /**< a barrier within a node; 0: 1 us */
    enum poise_graph_exchange exchange;
};

/** A search on it, by the model: nothing of this was measured. */
struct poise_graph_forecast {
    double seconds, compute_s, exchange_s; /**< the first is the others' sum */
    double edges; /**< traversed, of the larger graph */
    double bottom_up_bytes, top_down_bytes; /**< of all ranks, in bottom-up and
                                      top-down levels; the latter at most */
    double bottom_up_s;           /**< exchanges of bitmaps, of exchange_s */
    unsigned bottom_up_exchanges; /**< how many these are */
};

/**
 * What the search `measured` would take on a machine where the graph grows with
 * the processes: each has as much of it as each rank here. Computation is as
 * measured, exchanges are computed: numa-bfs (1) for private queues, (2) for
 * shared ones. Local. -EINVAL.
 */
POISE_API int
poise_graph_forecast(const struct poise_graph *graph,
                     const struct poise_graph_bfs_result *measured,
                     const struct poise_graph_machine *machine,
                     struct poise_graph_forecast *out);

/* ---- validation --------------------------------------------------------- */

/** The five checks of the Graph500 specification. */
enum poise_graph_fault {
    POISE_GRAPH_VALID,
    POISE_GRAPH_FAULT_TREE,   /**< 1: cycles, or a root with another parent */
    POISE_GRAPH_FAULT_LEVELS, /**< 2: a tree edge that spans not one level */
    POISE_GRAPH_FAULT_SPAN,   /**< 3: an edge that spans more than one level */
    POISE_GRAPH_FAULT_REACH,  /**< 4: an edge half inside the tree */
    POISE_GRAPH_FAULT_EDGE,   /**< 5: a tree edge that is not in the graph */
    POISE_GRAPH_FAULT_RANGE,  /**< a parent that is no label */
};

struct poise_graph_verdict {
    enum poise_graph_fault fault;   /**< the first found */
    uint64_t vertex, other;         /**< where: ends of the edge, or child and
                                         parent */
    uint64_t reached, edges, loops; /**< as in poise_graph_bfs_result */
};

/**
 * Check parents (for each label, -1 where unreached) against the list of
 * edges. Levels are counted along the parents. Local: both must be whole. 0
 * with the verdict, whatever it is; -EINVAL: no such root, or a list with
 * labels out of range; -ENOMEM.
 */
POISE_API int poise_graph_validate(const struct poise_graph_edges *edges,
                                   uint64_t root, const int64_t *parents,
                                   unsigned threads,
                                   struct poise_graph_verdict *out);
/** The same, and that `depths` (NULL: none; -1 where unreached) are these
 * levels: without them there is no POISE_GRAPH_FAULT_LEVELS. */
POISE_API int poise_graph_validate_depths(const struct poise_graph_edges *edges,
                                          uint64_t root, const int64_t *parents,
                                          const int64_t *depths,
                                          unsigned threads,
                                          struct poise_graph_verdict *out);
/** The same where each rank has a part of the edges, and all of parents and
 * depths. Collective: all get one verdict. `world` NULL: alone. */
POISE_API int poise_graph_validate_ranks(struct poise_world *world,
                                         const struct poise_graph_edges *edges,
                                         uint64_t root, const int64_t *parents,
                                         const int64_t *depths,
                                         unsigned threads,
                                         struct poise_graph_verdict *out);

/* ---- what stands on the search ------------------------------------------ */

/**
 * For each label of this rank's slice the smallest label of its (weakly)
 * connected component; returns the number of components, isolated vertices
 * too. Collective.
 */
POISE_API int64_t poise_graph_components(struct poise_graph_bfs *bfs,
                                         uint64_t *components);

/** A lower bound of the diameter of the component of `start`: from the
 * deepest vertex found search again, until the depth grows no more. `ends`
 * receives the two labels so far apart. Undirected graphs. Collective. */
POISE_API int64_t poise_graph_diameter(struct poise_graph_bfs *bfs,
                                       uint64_t start, uint64_t ends[2]);

/** Graph500's figures of a sample. `deviation` is of the sample (n - 1); the
 * harmonic ones as the specification has them, for rates. */
struct poise_graph_figures {
    double min, first_quartile, median, third_quartile, max;
    double mean, deviation, harmonic_mean, harmonic_deviation;
};
/** Of `count` values above 0; sorts them. count 0 gives zeros. */
POISE_API struct poise_graph_figures poise_graph_figures_of(double *values,
                                                            size_t count);

#ifdef __cplusplus
}
#endif

#endif
