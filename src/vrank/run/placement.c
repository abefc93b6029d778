/*
 * Which process holds which rank: see placement.h.
 *
 * By the graph of which rank sends to which: processes are filled one after the
 * other, each with the rank that talks most to those that it has, or with
 * consecutive ranks; then pairs of ranks change places as long as that keeps
 * traffic inside processes, Kernighan and Lin's way with the best partner of
 * each rank only. The better of the two is taken.
 */
#include "placement.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** What a message costs besides its bytes. */
#define PLACEMENT_MESSAGE_BYTES 1024
/** Rounds over all ranks; it hardly ever takes more than a few. */
#define PLACEMENT_ROUNDS 20

/* ---- shares ------------------------------------------------------------- */

void placement_shares(int count, int processes, const double *speeds,
                      int *share)
{
    int given = 0;
    for (int p = 0; p < processes; p++) {
        share[p] = count >= processes;
        given += share[p];
    }
    for (; given < count; given++) {
        int best = 0;
        for (int p = 1; p < processes; p++) {
            double own = (share[p] + 1) / (speeds != NULL ? speeds[p] : 1);
            double least =
                (share[best] + 1) / (speeds != NULL ? speeds[best] : 1);
            best = own < least ? p : best;
        }
        share[best]++;
    }
}

int placement_speeds(const char *text, int processes, double *speeds)
{
    const char *at = text;
    for (int p = 0; p < processes; p++) {
        char *end;
        speeds[p] = strtod(at, &end);
        bool is_last = p + 1 == processes;
        if (end == at || !(speeds[p] > 0) || speeds[p] > 1e9 ||
            *end != (is_last ? '\0' : ',')) {
            return poise_error_set(EINVAL, "place ranks by speeds", text,
                                   "it is no list of %d positive numbers, as "
                                   "1,1,2.5",
                                   processes);
        }
        at = end + 1;
    }
    return 0;
}

void placement_simple(enum poise_vrank_placement placement, int count,
                      int processes, const int *share, int *placed)
{
    int rank = 0;
    if (placement == POISE_VRANK_CYCLIC) {
        for (int turn = 0; rank < count; turn++) {
            for (int p = 0; p < processes && rank < count; p++) {
                if (turn < share[p]) {
                    placed[rank++] = p;
                }
            }
        }
        return;
    }
    for (int p = 0; p < processes; p++) {
        for (int i = 0; i < share[p] && rank < count; i++) {
            placed[rank++] = p;
        }
    }
}

/* ---- the graph ---------------------------------------------------------- */

/* Both directions of each edge: the neighbours of rank r are items first[r] up
 * to first[r + 1]. */
struct graph {
    int count;
    int *first, *neighbours;
    uint64_t *weights;
};

static void graph_free(struct graph *graph)
{
    free(graph->first);
    free(graph->neighbours);
    free(graph->weights);
}

static void graph_add(struct graph *graph, int *next, int from, int to,
                      uint64_t weight)
{
    int at = next[from]++;
    graph->neighbours[at] = to;
    graph->weights[at] = weight;
}

static int graph_make(const struct poise_vrank_profile *profile,
                      struct graph *out)
{
    size_t count = (size_t)profile->count, edges = (size_t)profile->edge_count;
    *out = (struct graph){.count = profile->count};
    out->first = poise_alloc(count + 1, sizeof *out->first);
    out->neighbours = poise_alloc(2 * edges + 1, sizeof *out->neighbours);
    out->weights = poise_alloc(2 * edges + 1, sizeof *out->weights);
    int *next = poise_alloc(count + 1, sizeof *next);
    if (out->first == NULL || out->neighbours == NULL || out->weights == NULL ||
        next == NULL) {
        free(next);
        graph_free(out);
        return -ENOMEM;
    }
    for (size_t e = 0; e < edges; e++) {
        out->first[profile->edges[e].from + 1]++;
        out->first[profile->edges[e].to + 1]++;
    }
    for (size_t r = 0; r < count; r++) {
        out->first[r + 1] += out->first[r];
        next[r] = out->first[r];
    }
    for (size_t e = 0; e < edges; e++) {
        const struct poise_vrank_profile_edge *edge = &profile->edges[e];
        uint64_t weight =
            edge->bytes + edge->messages * PLACEMENT_MESSAGE_BYTES;
        graph_add(out, next, edge->from, edge->to, weight);
        graph_add(out, next, edge->to, edge->from, weight);
    }
    free(next);
    return 0;
}

/* What a rank exchanges with those that are in a process. */
static uint64_t graph_ties(const struct graph *graph, const int *placed,
                           int rank, int process)
{
    uint64_t ties = 0;
    for (int i = graph->first[rank]; i < graph->first[rank + 1]; i++) {
        int other = graph->neighbours[i];
        if (other != rank && placed[other] == process) {
            ties += graph->weights[i];
        }
    }
    return ties;
}

/* What two ranks exchange. */
static uint64_t graph_between(const struct graph *graph, int a, int b)
{
    uint64_t weight = 0;
    for (int i = graph->first[a]; i < graph->first[a + 1]; i++) {
        weight += graph->neighbours[i] == b ? graph->weights[i] : 0;
    }
    return weight;
}

/* Fill the processes in order: *ties is room for a number for each rank. */
static void graph_grow(const struct graph *graph, int processes,
                       const int *share, int *placed, uint64_t *ties)
{
    for (int r = 0; r < graph->count; r++) {
        placed[r] = -1;
    }
    for (int p = 0; p < processes; p++) {
        memset(ties, 0, (size_t)graph->count * sizeof *ties);
        for (int i = 0; i < share[p]; i++) {
            int best = -1;
            for (int r = 0; r < graph->count; r++) {
                if (placed[r] < 0 && (best < 0 || ties[r] > ties[best])) {
                    best = r;
                }
            }
            if (best < 0) {
                return;
            }
            placed[best] = p;
            for (int e = graph->first[best]; e < graph->first[best + 1]; e++) {
                ties[graph->neighbours[e]] += graph->weights[e];
            }
        }
    }
}

/* Give `rank` the place of the rank that both gain most by; whether there was
 * one. */
static bool graph_swap(const struct graph *graph, int *placed, int rank)
{
    int own = placed[rank], best = -1;
    int64_t most = 0;
    int64_t stay = (int64_t)graph_ties(graph, placed, rank, own);
    /* Only where it has a neighbour can it gain. */
    for (int i = graph->first[rank]; i < graph->first[rank + 1]; i++) {
        int process = placed[graph->neighbours[i]];
        if (process == own) {
            continue;
        }
        int64_t gain = (int64_t)graph_ties(graph, placed, rank, process) - stay;
        for (int other = 0; gain > most && other < graph->count; other++) {
            if (placed[other] != process) {
                continue;
            }
            int64_t both = gain +
                           (int64_t)graph_ties(graph, placed, other, own) -
                           (int64_t)graph_ties(graph, placed, other, process) -
                           2 * (int64_t)graph_between(graph, rank, other);
            if (both > most) {
                most = both;
                best = other;
            }
        }
    }
    if (best >= 0) {
        placed[rank] = placed[best];
        placed[best] = own;
    }
    return best >= 0;
}

static void graph_refine(const struct graph *graph, int *placed)
{
    bool more = true;
    for (int round = 0; round < PLACEMENT_ROUNDS && more; round++) {
        more = false;
        for (int r = 0; r < graph->count; r++) {
            more |= graph_swap(graph, placed, r);
        }
    }
}

/* What passes between processes, twice. */
static uint64_t graph_cut(const struct graph *graph, const int *placed)
{
    uint64_t cut = 0;
    for (int r = 0; r < graph->count; r++) {
        for (int i = graph->first[r]; i < graph->first[r + 1]; i++) {
            bool is_cut = placed[graph->neighbours[i]] != placed[r];
            cut += is_cut ? graph->weights[i] : 0;
        }
    }
    return cut;
}

int placement_graph(const struct poise_vrank_profile *profile, int processes,
                    const int *share, int *placed)
{
    struct graph graph;
    int code = graph_make(profile, &graph);
    if (code < 0) {
        return code;
    }
    size_t count = (size_t)graph.count;
    uint64_t *ties = poise_alloc(count, sizeof *ties);
    int *grown = poise_alloc(count, sizeof *grown);
    if (ties != NULL && grown != NULL) {
        /* Programs often number their ranks well. */
        placement_simple(POISE_VRANK_BLOCK, graph.count, processes, share,
                         placed);
        graph_refine(&graph, placed);
        graph_grow(&graph, processes, share, grown, ties);
        graph_refine(&graph, grown);
        if (graph_cut(&graph, grown) < graph_cut(&graph, placed)) {
            memcpy(placed, grown, count * sizeof *placed);
        }
    } else {
        code = -ENOMEM;
    }
    free(ties);
    free(grown);
    graph_free(&graph);
    return code;
}
