/*
 * poise/graph.h - graphs from files or generators, breadth-first search by
 * direction-optimising kernels on threads and ranks, and what stands on it.
 *
 * The way through: edges (read or generated) -> poise_graph_build -> a search
 * handle -> poise_graph_bfs_run for each root. Vertices have *labels*, the
 * numbers 0..vertex_count-1 of the edge list; inside, the graph may renumber
 * them, which shows nowhere but in the speed.
 *
 * Where a function takes a world, it is collective over it and NULL stands for
 * this process alone; a graph or search made with a world uses it until it is
 * destroyed, on the thread that uses the world. All others are local.
 *
 * Self-loops and duplicate edges are allowed in every input: the search does
 * not see them, counts of input edges include them.
 *
 * Sources: numa-bfs (Cui et al., CLUSTER 2012); the Graph500 specification.
 */
#ifndef POISE_GRAPH_H
#define POISE_GRAPH_H

#include <poise/comm.h>
#include <poise/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Labels are below this: 32 bits, of which the last value is taken. */
#define POISE_GRAPH_MAX_VERTICES UINT64_C(0xffffffff)
/** "No such vertex" where labels are 32 bits wide. */
#define POISE_GRAPH_NONE UINT32_MAX

/** Called now and then while something long goes on, from the thread that
 * called: `done` of `total` units (bytes, edges). Negative stops the work with
 * that code. */
typedef int poise_graph_progress(const char *doing, uint64_t done,
                                 uint64_t total, void *arg);

/* ---- where processes stand ---------------------------------------------- */

/** Processes and memory on a machine of several NUMA domains. */
enum poise_graph_map {
    POISE_GRAPH_MAP_AUTO, /**< one domain: none; else domain where a node has
                               several ranks, interleave for a process alone */
    POISE_GRAPH_MAP_NONE, /**< as the system and the launcher have it */
    POISE_GRAPH_MAP_INTERLEAVE, /**< threads anywhere, pages in all in turn */
    POISE_GRAPH_MAP_DOMAIN, /**< each rank of a node in the next domain; of one
                                 domain each has its share of processors */
    POISE_GRAPH_MAPS
};
/** "auto", "none", "interleave", "domain"; NULL-terminated. */
POISE_API extern const char *const poise_graph_map_names[];

/**
 * Put the calling thread, and all that it makes from now on, where `map` says:
 * before edges are loaded, since memory lies where it is touched first. What a
 * launcher has bound already is only divided further. Local. Returns the number
 * of domains that this process could use, or -EPERM and the like where the
 * system refuses. Source: numa-bfs IV.C.
 */
POISE_API int poise_graph_place(struct poise_world *world,
                                enum poise_graph_map map);

/* ---- edges in memory ---------------------------------------------------- */

/** What vertices are called in a file; label -> name and back. */
struct poise_graph_names;

/**
 * A list of edges; with a world each rank holds a part of the whole list.
 * Zero-initialised is empty. `ends` is owned, memory of its own pages, so
 * that what was used can be given back piece by piece.
 */
struct poise_graph_edges {
    uint64_t vertex_count; /**< labels are below it; the same on all ranks */
    uint64_t count;        /**< edges, or arcs if directed */
    uint64_t capacity;
    uint32_t *ends; /**< edge i leads from ends[2 * i] to ends[2 * i + 1] */
    bool directed;
    struct poise_graph_names *names; /**< owned; NULL: names are labels */
};

/** Room for `capacity` edges in all; those that are there stay. -ENOMEM. */
POISE_API int poise_graph_edges_reserve(struct poise_graph_edges *edges,
                                        uint64_t capacity);
/** Append one edge and make vertex_count large enough. -ENOMEM, -EOVERFLOW. */
POISE_API int poise_graph_edges_add(struct poise_graph_edges *edges,
                                    uint64_t from, uint64_t to);
/** Back to zero-initialised. */
POISE_API void poise_graph_edges_free(struct poise_graph_edges *edges);

/** The name of a label, `len` bytes, borrowed; NULL if it has none. */
POISE_API const char *
poise_graph_names_of(const struct poise_graph_names *names, uint32_t label,
                     size_t *len);
/** The label of a name, or -ENOENT (no error set). */
POISE_API int64_t poise_graph_names_find(const struct poise_graph_names *names,
                                         const char *name, size_t len);
POISE_API void poise_graph_names_free(struct poise_graph_names *names);

/* ---- generators --------------------------------------------------------- */

/** Graph500's Kronecker generator (A .57, B .19, C .19). */
struct poise_graph_kronecker {
    unsigned scale;        /**< 2^scale vertices, 1..31 */
    uint64_t edge_factor;  /**< edges for each vertex; 0: 16 */
    uint64_t seed1, seed2; /**< both 0: the reference's, 2 and 3 */
    unsigned threads;      /**< 0: one for each core of the process */
};

/**
 * This rank's part of the edges: consecutive blocks, in order of rank. The
 * whole list is the same for any number of ranks and threads. Collective.
 * `out` must be empty. -EINVAL, -ENOMEM (with the arithmetic).
 */
POISE_API int poise_graph_generate(struct poise_world *world,
                                   const struct poise_graph_kronecker *options,
                                   struct poise_graph_edges *out);

/**
 * The reference implementation's stream of search keys, from the `first` on:
 * take them in turn, leave out those that came before and those of degree 0,
 * give up after 2^scale. Local.
 */
POISE_API int
poise_graph_generate_keys(const struct poise_graph_kronecker *options,
                          uint64_t first, size_t count, uint64_t *keys);

/* ---- files -------------------------------------------------------------- */

enum poise_graph_format {
    POISE_GRAPH_FORMAT_AUTO, /**< by name and content */
    POISE_GRAPH_FORMAT_SNAP, /**< "FROM TO" lines, '#' or '%' comments; what
                                  follows on a line is not looked at */
    POISE_GRAPH_FORMAT_MTX,  /**< Matrix Market coordinate */
    POISE_GRAPH_FORMAT_METIS,
    POISE_GRAPH_FORMAT_DIMACS, /**< "a FROM TO W" or "e FROM TO" lines */
    POISE_GRAPH_FORMAT_GAP,    /**< GAP's serialised .sg */
    POISE_GRAPH_FORMAT_POISE,  /**< our own binary, docs/formats.md */
    POISE_GRAPH_FORMATS
};
/** "auto", "snap", ...; NULL-terminated, indexed by the enum. */
POISE_API extern const char *const poise_graph_format_names[];

struct poise_graph_load_options {
    enum poise_graph_format format;
    bool directed;    /**< for formats that do not say */
    bool names;       /**< take words for names even where all are numbers;
                           those too large or too far apart for labels always
                           are, in ascending order, others in that of their
                           first appearance */
    unsigned threads; /**< 0: one for each core of the process */
    /** Refuse what would need more; 0: what the machine has available. */
    uint64_t memory_bytes;
    poise_graph_progress *progress; /**< NULL: none */
    void *arg;
};

/**
 * Read a file, plain or compressed (gzip, Zstandard). With a world each rank
 * ends up with a part of the list. Collective. `out` must be empty. Errors
 * name the file and the line: -EBADMSG for malformed, out of range or cut
 * short, -ENOMEM for too large (with the arithmetic, before allocating).
 */
POISE_API int poise_graph_load(struct poise_world *world, const char *path,
                               const struct poise_graph_load_options *options,
                               struct poise_graph_edges *out);

struct poise_graph_save_options {
    enum poise_graph_format format; /**< AUTO: by the file's name */
    unsigned threads;
    poise_graph_progress *progress;
    void *arg;
};

/**
 * Write a list of edges; the file appears whole or not at all. Local: the whole
 * list must be here. METIS and GAP hold each edge once and no self-loops. Names
 * go into SNAP and POISE; beside the others a file PATH.names holds one a line,
 * the first that of label 0. -EINVAL: METIS holds undirected graphs only, SNAP
 * no names with blanks.
 */
POISE_API int poise_graph_save(const struct poise_graph_edges *edges,
                               const char *path,
                               const struct poise_graph_save_options *options);

/** The result of a search: for each label its parent and depth, -1 where
 * unreached. All borrowed. */
struct poise_graph_tree {
    uint64_t vertex_count;
    const int64_t *parents;
    const int64_t *depths;
    const struct poise_graph_names *names; /**< NULL: labels */
};

/** Write a tree. As text: a line VERTEX PARENT DEPTH for each vertex, by name,
 * the parent "-" where unreached. `binary`: a NumPy file (.npy) of a record
 * (parent, depth) of 64-bit integers for each label. Local. */
POISE_API int poise_graph_save_tree(const struct poise_graph_tree *tree,
                                    const char *path, bool binary,
                                    unsigned threads);

/* ---- graphs ------------------------------------------------------------- */

/** How vertices are numbered inside. */
enum poise_graph_order {
    POISE_GRAPH_ORDER_AUTO,   /**< by the shape: degree if skewed, else as is */
    POISE_GRAPH_ORDER_KEEP,   /**< as labelled */
    POISE_GRAPH_ORDER_DEGREE, /**< the largest degree first */
    POISE_GRAPH_ORDERS
};
/** "auto", "keep", "degree"; NULL-terminated, indexed by the enum. */
POISE_API extern const char *const poise_graph_order_names[];

/** Switches for measurements: what each idea of the construction is worth.
 * Zero is the default, and the best that is known. */
struct poise_graph_build_ablation {
    bool no_huge_pages; /**< pages of the usual size only */
    /** Of several ranks: let the owner of a hub alone expand it; else ranks
     * share the work, for a quarter of the arcs more in memory. */
    bool no_hubs;
};

struct poise_graph_build_options {
    unsigned threads; /**< 0: one for each core of the process */
    enum poise_graph_order order;
    /** Leave the list of edges alone; else it is used up: its memory is given
     * back while the graph grows, and the list is empty afterwards. */
    bool keep_edges;
    struct poise_graph_build_ablation ablation;
    poise_graph_progress *progress; /**< NULL: none */
    void *arg;
};

/** A graph in memory, ready to be searched; of several ranks each holds the
 * rows of its vertices. Read-only: any number of threads and searches. */
struct poise_graph;

/**
 * Build a graph from (the parts of) a list of edges. Collective. -ENOMEM,
 * -EINVAL (a label not below vertex_count), -EOVERFLOW (more than 2^32
 * edges' ends at one vertex). After an error the list is empty, unless
 * keep_edges was given.
 */
POISE_API int poise_graph_build(struct poise_world *world,
                                struct poise_graph_edges *edges,
                                const struct poise_graph_build_options *options,
                                struct poise_graph **out);
POISE_API void poise_graph_destroy(struct poise_graph *graph);

/** Counts are of the whole graph, memory and times of this rank. */
struct poise_graph_info {
    uint64_t vertex_count;    /**< labels, isolated ones too */
    uint64_t connected_count; /**< vertices with a neighbour */
    uint64_t edge_count;      /**< of the input, loops and duplicates too */
    uint64_t arc_count;       /**< kept: each edge twice unless directed */
    uint64_t loop_count;      /**< self-loops in the input */
    uint64_t max_degree;
    bool directed;
    enum poise_graph_order order; /**< KEEP or DEGREE */
    uint64_t bytes;               /**< held by the graph */
    uint64_t build_ns;
};
POISE_API void poise_graph_info(const struct poise_graph *graph,
                                struct poise_graph_info *out);

/** Labels whose results are on `rank`: [first, first + count). Alone: all. */
POISE_API void poise_graph_slice(const struct poise_graph *graph, int rank,
                                 uint64_t *first, uint64_t *count);

/** Different neighbours (out-neighbours if directed) of a vertex, itself not
 * counted; of a vertex of another rank, or out of range, 0. */
POISE_API uint64_t poise_graph_degree(const struct poise_graph *graph,
                                      uint64_t label);

/**
 * Up to `count` different vertices with a neighbour, drawn by `seed`, in
 * drawing order; returns how many there were to draw. The same on all ranks
 * for any number of them. Collective.
 */
POISE_API int64_t poise_graph_pick_roots(const struct poise_graph *graph,
                                         uint64_t seed, size_t count,
                                         uint64_t *roots);

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
    POISE_GRAPH_EXCHANGE_SHARED_IN,  /**< one in_queue a node: no broadcast */
    POISE_GRAPH_EXCHANGE_SHARED_ALL, /**< out_queue too: no gather */
    POISE_GRAPH_EXCHANGE_PARALLEL,   /**< and everybody takes part */
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
    double gate_s;             /**< a barrier within a node; 0: 1 us */
    enum poise_graph_exchange exchange;
};

/** A search on it, by the model: nothing of this was measured. */
struct poise_graph_forecast {
    double seconds, compute_s, exchange_s; /**< the first is the others' sum */
    double edges;                /**< traversed, of the larger graph */
    double up_bytes, down_bytes; /**< of all ranks, in bottom-up and top-down
                                      levels; the latter at most */
    double up_s;                 /**< exchanges of bitmaps, of exchange_s */
    unsigned up_exchanges;       /**< how many these are */
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
    enum poise_graph_fault fault; /**< the first found */
    uint64_t vertex, other;       /**< where: ends of the edge, or child and
                                       parent */
    uint64_t reached, edges;      /**< as in poise_graph_bfs_result */
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
