/*
 * What a graph looks like inside, for the rooms that read one, and rows of
 * neighbours, which the writers of files make too.
 *
 * A vertex has three numbers. Its *label* is the caller's. Its *place* is its
 * position in the chosen order, isolated vertices left out: the largest
 * degree first, or as labelled. Its *id* also says which rank owns it: rank r's
 * vertices are the ids [r * stride, r * stride + local_count), r's *rows*
 * counted from 0. With one rank ids, places and rows are the same.
 */
#ifndef POISE_GRAPH_BUILD_H
#define POISE_GRAPH_BUILD_H

#include "graph/memory/memory.h"

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
    uint32_t *loops_at;   /**< NULL, or gets each row's loops (`forward`) */
    bool huge;
};
int graph_rows_make(const struct graph_rows_plan *plan, struct graph_rows *out);
void graph_rows_free(struct graph_rows *rows);
uint64_t graph_rows_bytes(const struct graph_rows *rows);

/** A vertex without a neighbour, and its loops. */
struct graph_loner {
    uint32_t label, loops;
};

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
    uint32_t *label_of;         /**< by id; NULL: ids are labels */
    uint32_t *id_of;            /**< by label; NONE: isolated. NULL: the same */
    uint32_t *ends_at;          /**< input edges' ends at each row, loops twice;
                                     directed: tails */
    uint64_t ends_count;        /**< their sum over all rows */
    uint32_t *loops_at;         /**< of which loops, each once; NULL: none */
    struct graph_loner *loners; /**< by label, of all ranks */
    uint64_t loner_count;
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

#endif
