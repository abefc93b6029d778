/*
 * Hubs, delegated: the rows of the vertices of the largest degrees are cut
 * among the ranks, each getting the neighbours that it owns. A hub in the
 * frontier of a level top-down is then expanded by all ranks at once, and its
 * neighbours need no message, since they are found by their owners. That
 * most arcs of a thin frontier leave hubs makes it worth the memory.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** So many of a rank's rows at most: each is a bit in what ranks send each
 * other level by level. */
#define HUBS_MAX_ROWS 4096
/** The part of all arcs that is held twice for it. */
#define HUBS_SHARE 4
/** A vertex is a hub if each rank gets so many neighbours on average. */
#define HUBS_MIN_DEGREE 8

/* How many of this rank's rows are hubs by the rules above. */
static uint64_t hubs_rows(const struct poise_graph *graph)
{
    const uint64_t *start = graph->out.start;
    uint64_t least = (uint64_t)graph->ranks * HUBS_MIN_DEGREE, rows = 0;
    while (rows < graph->local_count && rows < HUBS_MAX_ROWS &&
           start[rows + 1] - start[rows] >= least &&
           start[rows + 1] <= graph->out.arc_count / HUBS_SHARE) {
        rows++;
    }
    return rows;
}

/* The arcs of this rank's hubs, which may be fewer than `rows`: place of the
 * hub, place of the neighbour. */
static int hubs_arcs(const struct poise_graph *graph, uint64_t rows,
                     struct graph_arcs *arcs)
{
    const struct graph_rows *out = &graph->out;
    rows = rows < graph->local_count ? rows : graph->local_count;
    uint64_t count = out->start[rows], at = 0;
    arcs->ends = graph_pages_map(count * 8, graph->huge);
    if (!arcs->ends) {
        return -ENOMEM;
    }
    arcs->count = count;
    arcs->backward = true;
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t place = row * (uint64_t)graph->ranks + (uint64_t)graph->rank;
        for (uint64_t a = out->start[row]; a < out->start[row + 1]; a++) {
            arcs->ends[at++] = (uint32_t)place;
            arcs->ends[at++] = out->to[a];
        }
    }
    return 0;
}

/* From pairs (place of a neighbour of ours, place of the hub) to lists. */
static int hubs_list(const struct poise_graph *graph,
                     const struct poise_graph_edges *pairs,
                     struct graph_hubs *hubs)
{
    uint64_t count = hubs->rows * (uint64_t)graph->ranks;
    hubs->start = poise_alloc(count + 2, sizeof *hubs->start);
    hubs->to = graph_pages_map(pairs->count * 4, graph->huge);
    hubs->arc_count = pairs->count;
    if (!hubs->start || !hubs->to) {
        return -ENOMEM;
    }
    /* Counts two places on, which are the ends of lists while filling. */
    for (uint64_t i = 0; i < pairs->count; i++) {
        hubs->start[pairs->ends[2 * i + 1] + 2]++;
    }
    for (uint64_t h = 0; h < count; h++) {
        hubs->start[h + 2] += hubs->start[h + 1];
    }
    for (uint64_t i = 0; i < pairs->count; i++) {
        uint32_t place = pairs->ends[2 * i], hub = pairs->ends[2 * i + 1];
        hubs->to[hubs->start[hub + 1]++] = place / (uint32_t)graph->ranks;
    }
    return 0;
}

int graph_hubs_make(struct poise_graph *graph)
{
    struct graph_hubs *hubs = &graph->hubs;
    struct graph_arcs arcs = {0};
    struct poise_graph_edges pairs = {0};
    uint64_t rows = graph->dealt ? hubs_rows(graph) : 0;
    int code = poise_world_reduce(graph->world, POISE_MAX, &rows, 1);
    if (code < 0 || rows == 0) {
        return code;
    }
    hubs->rows = rows;
    code = poise_world_agree(graph->world, hubs_arcs(graph, rows, &arcs));
    if (code == 0) {
        code = graph_spread_arcs(graph, &arcs, &pairs);
    }
    if (code == 0) {
        code = hubs_list(graph, &pairs, hubs);
    }
    graph_pages_unmap(arcs.ends, arcs.count * 8);
    poise_graph_edges_free(&pairs);
    return code;
}

void graph_hubs_free(struct graph_hubs *hubs)
{
    free(hubs->start);
    graph_pages_unmap(hubs->to, hubs->arc_count * 4);
    *hubs = (struct graph_hubs){0};
}

uint64_t graph_hubs_bytes(const struct poise_graph *graph)
{
    const struct graph_hubs *hubs = &graph->hubs;
    return hubs->rows > 0
               ? hubs->rows * (uint64_t)graph->ranks * 8 + hubs->arc_count * 4
               : 0;
}
