/*
 * Shared inside room graph: memory in pages of its own, teams of threads, and
 * what a graph looks like inside.
 *
 * A vertex has three numbers. Its *label* is the caller's. Its *place* is its
 * position in the chosen order, isolated vertices left out: the largest
 * degree first, or as labelled. Its *id* says also who owns it: rank r's
 * vertices are the ids [r * stride, r * stride + local_count), r's *rows*
 * counted from 0. With one rank ids, places and rows are the same.
 */
#ifndef POISE_GRAPH_INTERNAL_H
#define POISE_GRAPH_INTERNAL_H

#include <poise/graph.h>

/* ---- memory in pages (pages.c) ------------------------------------------ */

/** `bytes` of zeroed memory in pages of its own, huge ones where `huge` and
 * the kernel has them; NULL with the error set. */
void *graph_pages_map(uint64_t bytes, bool huge);
/** Resize, moving if need be; NULL with the error set, `memory` is kept. */
void *graph_pages_remap(void *memory, uint64_t old_bytes, uint64_t bytes);
void graph_pages_unmap(void *memory, uint64_t bytes);
/** Give back the whole pages within [memory, memory + bytes): they read as
 * zeros from now on. */
void graph_pages_drop(void *memory, uint64_t bytes);

/* ---- teams of threads (team.c) ---------------------------------------------
 *
 * The caller and its helpers run the chunks of one piece of work after the
 * other. A helper that the system does not run holds nobody up, unless it was
 * interrupted inside a chunk.
 */
struct graph_team;
/** One chunk; `thread` is below the size of the team. */
typedef void graph_work(void *arg, unsigned thread, uint32_t chunk);
#define GRAPH_TEAM_MAX_CHUNKS (UINT32_C(1) << 22)
/** What one thread had better not share with the others. */
#define GRAPH_CACHE_LINE 64

/** `threads` counts the caller. -EAGAIN, -ENOMEM. */
int graph_team_create(unsigned threads, struct graph_team **out);
void graph_team_destroy(struct graph_team *team);
unsigned graph_team_size(const struct graph_team *team);
/** Run chunks 0..chunks-1 (at most GRAPH_TEAM_MAX_CHUNKS), each once; returns
 * when all are done. What was written before is seen inside, and so on. */
void graph_team_run(struct graph_team *team, graph_work *work, void *arg,
                    uint32_t chunks);
/** `requested`, or if 0 one thread for each core that is this process's. */
unsigned graph_team_threads(struct poise_world *world, unsigned requested);

/** Chunk `chunk` of `chunks` of [0, count), cut at multiples of `align`. */
struct graph_range {
    uint64_t from, to;
};
struct graph_range graph_range_of(uint64_t count, uint32_t chunk,
                                  uint32_t chunks, uint64_t align);

/** A small file of /proc or /sys as text; false if it cannot be read, which is
 * no error (limits.c). */
bool graph_small_file(const char *path, char *text, size_t size);

/* ---- rows (rows.c) ------------------------------------------------------ */

/** Neighbours of some vertices: row v is to[start[v]..start[v + 1]), ascending
 * by place, so that hubs come first. */
struct graph_rows {
    uint64_t row_count, arc_count;
    uint64_t *start; /**< row_count + 1 */
    uint32_t *to;
    uint32_t *first;  /**< to[start[v]]; of an empty row the place of v, which
                           is in no frontier while v wants a parent */
    uint64_t more_to; /**< rows from here on have at most one neighbour */
};

/** Where arcs come from. */
struct graph_arcs {
    uint32_t *ends; /**< pairs */
    uint64_t count;
    const uint32_t *place_of; /**< of the labels in `ends`; NULL: places */
    bool forward, backward;   /**< ends[0] -> ends[1], and the other way */
    bool use_up;              /**< give the pages of `ends` back meanwhile */
};

/** Make rows of arcs, without loops and duplicates. Place p has the row
 * (p - first_place) / step.
 * `ends_at` holds for each row at least as many arcs as it gets. */
struct graph_rows_plan {
    struct graph_team *team;
    struct graph_arcs arcs;
    const uint32_t *ends_at;
    uint64_t row_count;
    uint64_t first_place; /**< of row 0 */
    uint32_t step;        /**< places from row to row */
    uint32_t max_place;   /**< of all places */
    bool huge;
};
int graph_rows_make(const struct graph_rows_plan *plan, struct graph_rows *out);
void graph_rows_free(struct graph_rows *rows);
uint64_t graph_rows_bytes(const struct graph_rows *rows);

/** Rows of the vertices of the largest degrees, cut among the ranks
 * (hubs.c). */
struct graph_hubs {
    uint64_t rows;   /**< of each rank: the first so many of its rows */
    uint64_t *start; /**< by place: to[start[p]..start[p + 1]) */
    uint32_t *to;    /**< those of its neighbours that are this rank's rows */
    uint64_t arc_count;
};

/* ---- graphs ------------------------------------------------------------- */

struct poise_graph {
    struct poise_world *world; /**< owned; NULL: alone */
    int rank, ranks;
    struct poise_graph_info info;
    uint64_t count;       /**< vertices with a neighbour, of all ranks */
    uint64_t local_count; /**< of which ours: rows */
    uint64_t stride;      /**< ids from rank to rank, a multiple of 4096 */
    bool dealt;           /**< place p belongs to rank p % ranks... */
    uint64_t per_rank;    /**< ... else to rank p / per_rank */
    bool huge;
    uint32_t *label_of;        /**< by id; NULL: ids are labels */
    uint32_t *id_of;           /**< by label; NONE: isolated. NULL: the same */
    uint32_t *ends_at;         /**< input edges' ends at each row, loops twice;
                                    directed: tails */
    uint64_t ends_count;       /**< their sum over all rows */
    struct graph_rows out, in; /**< `in` is empty unless directed */
    struct graph_hubs hubs;    /**< of several ranks, ordered by degree */
};

/** Ids from rank to rank for so many rows. */
static inline uint64_t graph_stride(uint64_t rows)
{
    return (rows + 4095) / 4096 * 4096;
}
static inline const struct graph_rows *
graph_in_rows(const struct poise_graph *graph)
{
    return graph->info.directed ? &graph->in : &graph->out;
}
static inline uint32_t graph_label(const struct poise_graph *graph, uint32_t id)
{
    return graph->label_of ? graph->label_of[id] : id;
}
static inline uint32_t graph_id(const struct poise_graph *graph, uint64_t label)
{
    return graph->id_of ? graph->id_of[label] : (uint32_t)label;
}

static inline uint32_t graph_owner(const struct poise_graph *graph,
                                   uint32_t place)
{
    return graph->dealt ? place % (uint32_t)graph->ranks
                        : (uint32_t)(place / graph->per_rank);
}
static inline uint32_t graph_id_of_place(const struct poise_graph *graph,
                                         uint32_t place)
{
    uint32_t owner = graph_owner(graph, place);
    uint64_t row = graph->dealt ? place / (uint32_t)graph->ranks
                                : place - owner * graph->per_rank;
    return (uint32_t)(owner * graph->stride + row);
}
/** The id of row 0. */
static inline uint32_t graph_base(const struct poise_graph *graph)
{
    return (uint32_t)(graph->stride * (uint64_t)graph->rank);
}

/* ---- several ranks (spread.c) ------------------------------------------- */

struct graph_census;
/** Add up what the ranks counted. Collective. */
int graph_spread_census(struct poise_world *world, struct graph_census *census);
/** Bring all arcs to the owners of their tails: pairs of places. Collective;
 * ranks agree on the code. */
int graph_spread_arcs(const struct poise_graph *graph,
                      const struct graph_arcs *arcs,
                      struct poise_graph_edges *pairs);
/** From places to the tables of the graph, which owns both arrays then. */
int graph_spread_ids(struct poise_graph *graph, uint32_t *place_of,
                     uint32_t *label_of);
/** Neighbours by id instead of place. */
void graph_spread_rows(const struct poise_graph *graph,
                       struct graph_rows *rows);

/* ---- delegated hubs (hubs.c) -------------------------------------------- */

/** While neighbours are places yet. Collective; ranks may differ in the code.
 */
int graph_hubs_make(struct poise_graph *graph);
void graph_hubs_free(struct graph_hubs *hubs);
uint64_t graph_hubs_bytes(const struct poise_graph *graph);

/* ---- numbering (order.c) ------------------------------------------------ */

/** What one look at the edges tells; arrays are by label. */
struct graph_census {
    uint32_t *ends_at;       /**< edges' ends (directed: tails), loops too */
    uint32_t *heads_at;      /**< directed only */
    uint64_t *has_neighbour; /**< bits */
    uint64_t vertex_count, loops, connected, max_degree;
    bool directed;
};
/** Count the ends. -EINVAL: a label out of range; -EOVERFLOW. */
int graph_census_take(struct graph_team *team,
                      const struct poise_graph_edges *edges,
                      struct graph_census *out);
/** From the arrays the sums; take does so. */
void graph_census_sum(struct graph_census *census);
void graph_census_free(struct graph_census *census);
/** The order that suits the shape. */
enum poise_graph_order graph_order_choose(const struct graph_census *census);
/** Number the connected vertices. Both arrays are NULL where places are
 * labels. */
int graph_order_make(const struct graph_census *census,
                     enum poise_graph_order order, uint32_t **place_of,
                     uint32_t **label_of);

#endif
