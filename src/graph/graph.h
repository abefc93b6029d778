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

#include <poise/base.h>
#include <poise/comm.h>

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
    /** Refuse what would need more; 0: than the machine has available. */
    uint64_t memory_bytes;
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
    POISE_GRAPH_FORMAT_CSV,    /**< RFC 4180: the first two fields of a record;
                                    '#' or '%' comments */
    POISE_GRAPH_FORMAT_TSV,    /**< the same with tabs and without quotes */
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
    const char *input; /**< where the edges come from: whom that is not
                            readable to a new file is not, either; NULL:
                            nowhere */
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
    const char *input; /**< as of poise_graph_save_options */
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
    /** Refuse a graph that would need more to be built, its list of edges
     * included; 0: than the machine has available. */
    uint64_t memory_bytes;
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

#ifdef __cplusplus
}
#endif

#endif
