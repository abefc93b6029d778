/*
 * A graph over several ranks: what is counted is added up, arcs go to the rank
 * that owns their tail, and rows learn ids instead of places.
 *
 * Each rank holds the whole table of labels and ids (8 bytes a vertex), and
 * the rows of its own vertices only.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPREAD_TAG 64
/** Edges that each rank deals out in one round. */
#define SPREAD_ROUND ((uint64_t)1 << 18)
#define SPREAD_BLOCK 8192
#define SPREAD_NEIGHBOUR (UINT64_C(1) << 40)

/* ---- counts ------------------------------------------------------------- */

static int spread_sum(struct poise_world *world, uint32_t *counts,
                      uint64_t *bits, uint64_t count)
{
    uint64_t block[SPREAD_BLOCK];
    int code = 0;
    for (uint64_t from = 0; code == 0 && from < count; from += SPREAD_BLOCK) {
        uint64_t left = count - from;
        size_t here = left < SPREAD_BLOCK ? (size_t)left : SPREAD_BLOCK;
        for (size_t i = 0; i < here; i++) {
            uint64_t v = from + i;
            bool has = bits && (bits[v >> 6] >> (v & 63) & 1);
            block[i] = counts[v] + (has ? SPREAD_NEIGHBOUR : 0);
        }
        code = poise_world_reduce(world, POISE_SUM, block, here);
        for (size_t i = 0; code == 0 && i < here; i++) {
            uint64_t v = from + i, sum = block[i] % SPREAD_NEIGHBOUR;
            counts[v] = (uint32_t)sum;
            if (sum > UINT32_MAX) {
                code = poise_error_set(EOVERFLOW, "build a graph", NULL,
                                       "a vertex has 2^32 or more edges");
            }
            if (bits && block[i] >= SPREAD_NEIGHBOUR) {
                bits[v >> 6] |= UINT64_C(1) << (v & 63);
            }
        }
    }
    return code;
}

int graph_spread_census(struct poise_world *world, struct graph_census *census)
{
    uint64_t n = census->vertex_count;
    int code = spread_sum(world, census->ends_at, census->has_neighbour, n);
    if (code == 0 && census->directed) {
        code = spread_sum(world, census->heads_at, NULL, n);
    }
    if (code == 0) {
        code = poise_world_reduce(world, POISE_SUM, &census->loops, 1);
    }
    if (code == 0) {
        graph_census_sum(census);
    }
    return code;
}

/* ---- arcs --------------------------------------------------------------- */

struct spread {
    const struct poise_graph *graph;
    const struct graph_arcs *arcs;
    struct poise_graph_edges *pairs; /**< of places: tail, head */
    struct poise_buf *outboxes;      /**< for each rank */
    uint64_t *sent;                  /**< to each rank, in this round */
    uint64_t at;                     /**< the next edge */
};

static int spread_put(struct spread *spread, uint32_t tail, uint32_t head)
{
    const uint32_t pair[2] = {tail, head};
    uint32_t owner = graph_owner(spread->graph, tail);
    return poise_buf_append(&spread->outboxes[owner], pair, sizeof pair);
}

/* Fill the outboxes with the arcs of the next edges. */
static int spread_fill(struct spread *spread)
{
    const struct graph_arcs *arcs = spread->arcs;
    uint64_t left = arcs->count - spread->at;
    uint64_t to = spread->at + (left < SPREAD_ROUND ? left : SPREAD_ROUND);
    int code = 0;
    for (uint64_t i = spread->at; code == 0 && i < to; i++) {
        uint32_t u = arcs->ends[2 * i], v = arcs->ends[2 * i + 1];
        bool loop = u == v;
        u = arcs->place_of ? arcs->place_of[u] : u;
        v = arcs->place_of ? arcs->place_of[v] : v;
        if (u == POISE_GRAPH_NONE) {
            continue; /* nothing but loops */
        }
        if (arcs->forward) {
            code = spread_put(spread, u, v);
        }
        if (code == 0 && arcs->backward && !loop) {
            code = spread_put(spread, v, u);
        }
    }
    if (arcs->use_up && to > spread->at) {
        graph_pages_drop(arcs->ends + 2 * spread->at, (to - spread->at) * 8);
    }
    spread->at = to;
    return code;
}

static int spread_keep(struct spread *spread, const void *data, size_t len)
{
    struct poise_graph_edges *pairs = spread->pairs;
    uint64_t count = pairs->count + len / 8;
    uint64_t grown = pairs->capacity + pairs->capacity / 4;
    int code = 0;
    if (count > pairs->capacity) {
        code = poise_graph_edges_reserve(pairs, count > grown ? count : grown);
    }
    if (code == 0 && len > 0) {
        memcpy(pairs->ends + 2 * pairs->count, data, len);
        pairs->count = count;
    }
    return code;
}

/* Hand out the outboxes; how many come here from others. A rank that runs short
 * goes on, so that no rank waits for it, or for what it did not send. */
static int spread_send(struct spread *spread, int code, uint64_t *missing)
{
    const struct poise_graph *graph = spread->graph;
    for (int r = 0; r < graph->ranks; r++) {
        struct poise_buf *outbox = &spread->outboxes[r];
        bool here = r == graph->rank;
        int step = here ? spread_keep(spread, outbox->data, outbox->len)
                        : poise_world_send(graph->world, r, SPREAD_TAG,
                                           outbox->data, outbox->len);
        spread->sent[r] = !here && step == 0;
        code = code < 0 ? code : step;
        poise_buf_reset(outbox);
    }
    int step = poise_world_reduce(graph->world, POISE_SUM, spread->sent,
                                  (size_t)graph->ranks);
    *missing = step < 0 ? 0 : spread->sent[graph->rank];
    return code < 0 ? code : step;
}

/* One round. */
static int spread_swap(struct spread *spread, int code)
{
    const struct poise_graph *graph = spread->graph;
    uint64_t missing;
    code = spread_send(spread, code, &missing);
    while (missing > 0) {
        struct poise_message message;
        int received = poise_world_receive(graph->world, &message);
        if (received < 0) {
            code = code < 0 ? code : received;
            break;
        }
        if (received == 0) {
            poise_world_wait(graph->world, UINT64_MAX);
            continue;
        }
        int step = spread_keep(spread, message.data, message.len);
        code = code < 0 ? code : step;
        poise_message_free(&message);
        missing--;
    }
    return poise_world_agree(graph->world, code);
}

int graph_spread_arcs(const struct poise_graph *graph,
                      const struct graph_arcs *arcs,
                      struct poise_graph_edges *pairs)
{
    struct spread spread = {.graph = graph, .arcs = arcs, .pairs = pairs};
    uint64_t rounds = (arcs->count + SPREAD_ROUND - 1) / SPREAD_ROUND;
    spread.outboxes =
        poise_alloc((size_t)graph->ranks, sizeof *spread.outboxes);
    spread.sent = poise_alloc((size_t)graph->ranks, sizeof *spread.sent);
    int code = poise_world_agree(graph->world,
                                 spread.outboxes && spread.sent ? 0 : -ENOMEM);
    if (code == 0) {
        code = poise_world_reduce(graph->world, POISE_MAX, &rounds, 1);
    }
    for (uint64_t i = 0; code == 0 && i < rounds; i++) {
        code = spread_swap(&spread, spread_fill(&spread));
    }
    for (int r = 0; spread.outboxes && r < graph->ranks; r++) {
        poise_buf_free(&spread.outboxes[r]);
    }
    free(spread.outboxes);
    free(spread.sent);
    return code;
}

/* ---- ids ---------------------------------------------------------------- */

void graph_spread_rows(const struct poise_graph *graph, struct graph_rows *rows)
{
    for (uint64_t a = 0; a < rows->arc_count; a++) {
        rows->to[a] = graph_id_of_place(graph, rows->to[a]);
    }
    for (uint64_t row = 0; row < rows->row_count; row++) {
        rows->first[row] = graph_id_of_place(graph, rows->first[row]);
    }
}

int graph_spread_ids(struct poise_graph *graph, uint32_t *place_of,
                     uint32_t *label_of)
{
    uint64_t labels = graph->info.vertex_count;
    uint64_t ids = graph->stride * (uint64_t)graph->ranks;
    graph->id_of = place_of ? place_of : graph_pages_map(labels * 4, true);
    graph->label_of = graph_pages_map(ids * 4, true);
    if (!graph->id_of || !graph->label_of) {
        return -ENOMEM;
    }
    for (uint64_t id = 0; id < ids; id++) {
        graph->label_of[id] = POISE_GRAPH_NONE;
    }
    for (uint64_t v = 0; v < labels; v++) {
        uint32_t place = place_of ? place_of[v] : (uint32_t)v;
        uint32_t id =
            place == POISE_GRAPH_NONE ? place : graph_id_of_place(graph, place);
        graph->id_of[v] = id;
        if (id != POISE_GRAPH_NONE) {
            graph->label_of[id] = (uint32_t)v;
        }
    }
    graph_pages_unmap(label_of, graph_stride(graph->count) * 4);
    return 0;
}
