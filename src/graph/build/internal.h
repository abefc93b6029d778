/*
 * Shared by the steps of building a graph: census, numbering, spreading arcs
 * over the ranks, hubs.
 */
#ifndef POISE_GRAPH_BUILD_INTERNAL_H
#define POISE_GRAPH_BUILD_INTERNAL_H

#include <poise/core.h>

#include "graph/build/build.h"

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

/** What one look at the edges shows; arrays are by label. */
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
