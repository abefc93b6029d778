/*
 * The search over several ranks: each expands its own rows.
 *
 * Bottom-up, the frontier is an array that the ranks of a node share (in_queue
 * and out_queue of the paper are two copies of it, by turns), so that within a
 * node the exchange is a barrier. Top-down, a rank that finds another rank's
 * vertex notifies its owner, once. Counts travel in a shared array of their
 * own.
 *
 * Who writes what: a rank writes its own part of each window only, which is the
 * part of its rows, and all of its own visited, queue and sent. Others read its
 * part after poise_coll_window_exchange, which everybody calls; bits and
 * control have two copies, so that what a rank writes for the next exchange is
 * not what slower ranks still read of the last one. parents has one: it is
 * written during the levels, exchanged when the tree is asked for, and
 * overwritten only after bfs_ranks_start, which waits for all.
 *
 * No rank waits for one that failed: every rank comes to every exchange of a
 * level, with its code in control->failed, until bfs_ranks_sum shows a failure
 * to all of them. A rank that ends a run with a failure abandons the windows,
 * so that exchanges to which others still come fail.
 *
 * Source: numa-bfs III.A, III.B.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const poise_graph_exchange_names[] = {
    "auto", "private", "leader", "shared-in", "shared-all", "parallel", NULL};

#define RANKS_TAG 65
#define RANKS_SUMS 3
/** Rows are fetched so many vertices ahead. */
#define RANKS_AHEAD 4
/** Looks for a message before waiting for one. */
#define RANKS_LOOKS 2000

/** A rank's part of the control window; behind it, for each rank, whether a
 * message is on its way there, and then the bits of the rank's hubs that are
 * in its list. */
struct ranks_control {
    uint64_t failed; /**< this rank cannot go on */
    uint64_t sums[RANKS_SUMS];
    uint64_t sends[];
};

static uint64_t ranks_ids(const struct poise_graph_bfs *bfs)
{
    return bfs->graph->stride * (uint64_t)bfs->graph->ranks;
}

static enum poise_coll_sharing ranks_sharing(enum poise_graph_exchange exchange)
{
    switch (exchange) {
    case POISE_GRAPH_EXCHANGE_PRIVATE:
        return POISE_COLL_PRIVATE;
    case POISE_GRAPH_EXCHANGE_LEADER:
        return POISE_COLL_PRIVATE_LEADER;
    case POISE_GRAPH_EXCHANGE_SHARED_IN:
    case POISE_GRAPH_EXCHANGE_SHARED_ALL:
        return POISE_COLL_SHARED_LEADER;
    default:
        return POISE_COLL_SHARED_PARALLEL;
    }
}

/* Whether each rank has the frontier for itself. */
static bool ranks_private(const struct poise_graph_bfs *bfs)
{
    return bfs->options.ablation.exchange == POISE_GRAPH_EXCHANGE_PRIVATE ||
           bfs->options.ablation.exchange == POISE_GRAPH_EXCHANGE_LEADER;
}

static int ranks_window(struct poise_graph_bfs *bfs, size_t part_bytes,
                        const struct poise_coll_window_options *options,
                        struct poise_coll_window **out)
{
    const struct poise_graph *graph = bfs->graph;
    size_t *parts = poise_alloc((size_t)graph->ranks, sizeof *parts);
    int code = poise_world_agree(graph->world, parts ? 0 : -ENOMEM);
    for (int r = 0; code == 0 && r < graph->ranks; r++) {
        parts[r] = part_bytes;
    }
    if (code == 0) {
        code = poise_coll_window_create(graph->world, parts, options, out);
    }
    free(parts);
    return code;
}

static size_t ranks_hub_words(const struct poise_graph_bfs *bfs)
{
    return (bfs->graph->hubs.rows + 63) / 64;
}

static size_t ranks_control_bytes(const struct poise_graph_bfs *bfs)
{
    size_t words = (size_t)bfs->graph->ranks + ranks_hub_words(bfs);
    size_t bytes = sizeof(struct ranks_control) + words * sizeof(uint64_t);
    /* Parts of different ranks in different cache lines. */
    return (bytes + GRAPH_CACHE_LINE - 1) / GRAPH_CACHE_LINE * GRAPH_CACHE_LINE;
}

/* Where `next` and the frontier are from now on. */
static void ranks_place(struct poise_graph_bfs *bfs)
{
    struct bfs_ranks *ranks = &bfs->ranks;
    bfs->frontier = poise_coll_window_whole(ranks->bits);
    bfs->next = ranks->private_next ? ranks->private_next
                                    : poise_coll_window_part(ranks->bits);
}

static int ranks_alloc(struct poise_graph_bfs *bfs)
{
    struct bfs_ranks *ranks = &bfs->ranks;
    ranks->outboxes =
        poise_alloc((size_t)bfs->graph->ranks, sizeof *ranks->outboxes);
    ranks->sent = graph_pages_map(ranks_ids(bfs) / 8, bfs->graph->huge);
    if (!ranks->outboxes || !ranks->sent) {
        return -ENOMEM;
    }
    if (bfs->options.ablation.exchange == POISE_GRAPH_EXCHANGE_SHARED_IN) {
        ranks->private_next =
            graph_pages_map(bfs->graph->stride / 8, bfs->graph->huge);
        return ranks->private_next ? 0 : -ENOMEM;
    }
    return 0;
}

int bfs_ranks_create(struct poise_graph_bfs *bfs)
{
    struct bfs_ranks *ranks = &bfs->ranks;
    const struct poise_graph *graph = bfs->graph;
    size_t stride = graph->stride;
    int code = poise_world_agree(graph->world, ranks_alloc(bfs));
    if (code == 0) {
        const struct poise_coll_window_options options = {
            .sharing = ranks_sharing(bfs->options.ablation.exchange),
            .copies = 2,
            /* Private queues are the paper's baseline. */
            .sparse = !bfs->options.ablation.no_sparse && !ranks_private(bfs),
        };
        code = ranks_window(bfs, stride / 8, &options, &ranks->bits);
    }
    if (code == 0) {
        code = ranks_window(bfs, stride * 4, NULL, &ranks->parents);
    }
    if (code == 0) {
        const struct poise_coll_window_options options = {.copies = 2};
        code = ranks_window(bfs, ranks_control_bytes(bfs), &options,
                            &ranks->control);
    }
    if (code == 0) {
        bfs->parent = poise_coll_window_part(ranks->parents);
        bfs->parents_all = poise_coll_window_whole(ranks->parents);
        ranks_place(bfs);
    }
    return code;
}

void bfs_ranks_destroy(struct poise_graph_bfs *bfs)
{
    struct bfs_ranks *ranks = &bfs->ranks;
    poise_coll_window_destroy(ranks->control);
    poise_coll_window_destroy(ranks->parents);
    poise_coll_window_destroy(ranks->bits);
    for (int r = 0; ranks->outboxes && r < bfs->graph->ranks; r++) {
        poise_buf_free(&ranks->outboxes[r]);
    }
    free(ranks->outboxes);
    graph_pages_unmap(ranks->sent, ranks_ids(bfs) / 8);
    graph_pages_unmap(ranks->private_next, bfs->graph->stride / 8);
}

/* ---- exchanges ---------------------------------------------------------- */

static struct ranks_control *ranks_control_part(struct poise_graph_bfs *bfs)
{
    return poise_coll_window_part(bfs->ranks.control);
}

static const struct ranks_control *
ranks_control_of(const struct poise_graph_bfs *bfs, int rank)
{
    const char *whole = poise_coll_window_whole(bfs->ranks.control);
    return (const void *)(whole + (size_t)rank * ranks_control_bytes(bfs));
}

void bfs_ranks_show_hubs(struct poise_graph_bfs *bfs)
{
    uint64_t rows = bfs->graph->hubs.rows;
    uint64_t *bits = ranks_control_part(bfs)->sends + bfs->graph->ranks;
    memset(bits, 0, ranks_hub_words(bfs) * sizeof *bits);
    for (uint64_t i = bfs->begin; rows > 0 && i < bfs->end; i++) {
        uint32_t row = bfs->queue[i];
        if (row < rows) {
            bits[row >> 6] |= UINT64_C(1) << (row & 63);
        }
    }
}

/* Word `word` of the hubs of `rank` that are in the list of this level. */
static uint64_t ranks_hubs_of(const struct poise_graph_bfs *bfs, int rank,
                              size_t word)
{
    const struct poise_graph *graph = bfs->graph;
    if (!bfs->listed) {
        return ranks_control_of(bfs, rank)->sends[(size_t)graph->ranks + word];
    }
    uint64_t bits = bfs->frontier[(uint64_t)rank * graph->stride / 64 + word];
    uint64_t left = graph->hubs.rows - 64 * word;
    return left < 64 ? bits & ((UINT64_C(1) << left) - 1) : bits;
}

int bfs_ranks_sum(struct poise_graph_bfs *bfs, int code, uint64_t *values,
                  size_t count)
{
    struct ranks_control *mine = ranks_control_part(bfs);
    uint64_t failed = 0;
    memcpy(mine->sums, values, count * sizeof *values);
    mine->failed = code < 0;
    int step = poise_coll_window_exchange(bfs->ranks.control);
    if (code < 0 || step < 0) {
        return code < 0 ? code : step;
    }
    memset(values, 0, count * sizeof *values);
    for (int r = 0; r < bfs->graph->ranks; r++) {
        const struct ranks_control *control = ranks_control_of(bfs, r);
        failed += control->failed;
        for (size_t i = 0; i < count; i++) {
            values[i] += control->sums[i];
        }
    }
    if (failed > 0) {
        return poise_error_set(ECANCELED, "search a graph", NULL,
                               "another rank could not go on");
    }
    return 0;
}

void bfs_ranks_leave(struct poise_graph_bfs *bfs)
{
    poise_coll_window_abandon(bfs->ranks.bits);
    poise_coll_window_abandon(bfs->ranks.parents);
    poise_coll_window_abandon(bfs->ranks.control);
}

int bfs_ranks_start(struct poise_graph_bfs *bfs)
{
    uint64_t nothing = 0;
    memset(bfs->ranks.sent, 0, ranks_ids(bfs) / 8);
    return bfs_ranks_sum(bfs, 0, &nothing, 1);
}

/* Vertices of a frontier are known to their owners: no more messages. */
static void ranks_mark_known(struct poise_graph_bfs *bfs)
{
    uint64_t *sent = bfs->ranks.sent;
    for (uint64_t w = 0; w < bfs->frontier_words; w++) {
        sent[w] |= bfs->frontier[w];
    }
}

/* Ranks that share no memory would count the time that a message waits for its
 * sender as a part of the exchange: all synchronise before it, too. What the
 * control window shows then is of no use to anybody, and not looked at. */
static int ranks_synchronise(struct poise_graph_bfs *bfs, uint64_t *waited_ns)
{
    uint64_t from = poise_clock_ns();
    int code =
        ranks_private(bfs) ? poise_coll_window_exchange(bfs->ranks.control) : 0;
    *waited_ns = poise_clock_ns() - from;
    return code;
}

int bfs_ranks_exchange(struct poise_graph_bfs *bfs,
                       struct poise_graph_level *level)
{
    struct bfs_ranks *ranks = &bfs->ranks;
    struct poise_coll_window_stats before =
        poise_coll_window_stats(ranks->bits);
    uint64_t stall, from = poise_clock_ns();
    int code = ranks_synchronise(bfs, &stall);
    if (code < 0) {
        return code;
    }
    if (ranks->private_next) {
        memcpy(poise_coll_window_part(ranks->bits), ranks->private_next,
               bfs->graph->stride / 8);
    }
    code = poise_coll_window_exchange(ranks->bits);
    if (code < 0) {
        return code;
    }
    struct poise_coll_window_stats after = poise_coll_window_stats(ranks->bits);
    stall += ranks_private(bfs) ? 0 : after.gather_ns - before.gather_ns;
    uint64_t all = poise_clock_ns() - from;
    level->stall_ns += stall;
    level->exchange_ns += all > stall ? all - stall : 0;
    level->bytes += after.sent_bytes - before.sent_bytes;
    ranks_place(bfs);
    if (bfs->options.method != POISE_GRAPH_BOTTOM_UP) {
        ranks_mark_known(bfs);
    }
    return 0;
}

int bfs_ranks_share_parents(struct poise_graph_bfs *bfs)
{
    int code = poise_coll_window_exchange(bfs->ranks.parents);
    if (code < 0) {
        bfs_ranks_leave(bfs);
    }
    return code;
}

/* ---- top-down ----------------------------------------------------------- */

static inline void ranks_claim(struct poise_graph_bfs *bfs, uint32_t row,
                               uint32_t parent)
{
    uint64_t *word = &bfs->visited[row >> 6], bit = UINT64_C(1) << (row & 63);
    if (!(*word & bit)) {
        *word |= bit;
        bfs->parent[row] = parent;
        bfs->queue[bfs->end++] = row;
    }
}

/* Notify the owner of `child`, once in a search. */
static inline int ranks_notify(struct poise_graph_bfs *bfs, uint32_t child,
                               uint32_t parent)
{
    uint64_t *word = &bfs->ranks.sent[child >> 6];
    uint64_t bit = UINT64_C(1) << (child & 63);
    const uint32_t pair[2] = {child, parent};
    if (*word & bit) {
        return 0;
    }
    *word |= bit;
    struct poise_buf *outbox = &bfs->ranks.outboxes[child / bfs->graph->stride];
    if (outbox->cap - outbox->len < sizeof pair) {
        return poise_buf_append(outbox, pair, sizeof pair);
    }
    memcpy(outbox->data + outbox->len, pair, sizeof pair);
    outbox->len += sizeof pair;
    return 0;
}

/* What this rank owns of the neighbours of all hubs in the frontier. */
static void ranks_expand_hubs(struct poise_graph_bfs *bfs,
                              struct poise_graph_level *level)
{
    const struct poise_graph *graph = bfs->graph;
    const struct graph_hubs *hubs = &graph->hubs;
    uint64_t ranks = (uint64_t)graph->ranks;
    for (size_t word = 0; word < ranks_hub_words(bfs); word++) {
        for (int r = 0; r < graph->ranks; r++) {
            uint64_t bits = ranks_hubs_of(bfs, r, word);
            for (; bits; bits &= bits - 1) {
                uint64_t row = 64 * word + (unsigned)__builtin_ctzll(bits);
                uint64_t place = row * ranks + (uint64_t)r;
                uint32_t id = (uint32_t)((uint64_t)r * graph->stride + row);
                uint64_t last = hubs->start[place + 1];
                /* All know of it. */
                bfs->ranks.sent[id >> 6] |= UINT64_C(1) << (id & 63);
                level->edges += last - hubs->start[place];
                for (uint64_t a = hubs->start[place]; a < last; a++) {
                    ranks_claim(bfs, hubs->to[a], id);
                }
            }
        }
    }
}

static int ranks_expand(struct poise_graph_bfs *bfs,
                        struct poise_graph_level *level)
{
    const struct graph_rows *out = &bfs->graph->out;
    uint32_t base = graph_base(bfs->graph);
    uint64_t last_of_level = bfs->end, hubs = bfs->graph->hubs.rows;
    int code = 0;
    ranks_expand_hubs(bfs, level);
    for (; bfs->begin < last_of_level; bfs->begin++) {
        uint32_t u = bfs->queue[bfs->begin];
        uint64_t last = out->start[u + 1];
        if (bfs->begin + RANKS_AHEAD < last_of_level) {
            uint32_t ahead = bfs->queue[bfs->begin + RANKS_AHEAD];
            __builtin_prefetch(&out->to[out->start[ahead]]);
        }
        if (u < hubs) {
            continue;
        }
        level->edges += last - out->start[u];
        for (uint64_t a = out->start[u]; a < last; a++) {
            uint32_t v = out->to[a];
            if (v - base < bfs->graph->local_count) {
                ranks_claim(bfs, v - base, base + u);
            } else {
                int step = ranks_notify(bfs, v, base + u);
                code = code < 0 ? code : step;
            }
        }
    }
    return code;
}

/* Send the outboxes that hold something; how many come here from others. */
static int ranks_send(struct poise_graph_bfs *bfs,
                      struct poise_graph_level *level, uint64_t *expected)
{
    const struct poise_graph *graph = bfs->graph;
    struct ranks_control *mine = ranks_control_part(bfs);
    int code = 0;
    for (int r = 0; r < graph->ranks; r++) {
        struct poise_buf *outbox = &bfs->ranks.outboxes[r];
        int step = outbox->len > 0
                       ? poise_world_send(graph->world, r, RANKS_TAG,
                                          outbox->data, outbox->len)
                       : 0;
        /* What was not sent is not waited for. */
        mine->sends[r] = outbox->len > 0 && step == 0;
        level->bytes += outbox->len;
        code = code < 0 ? code : step;
        poise_buf_reset(outbox);
    }
    int step = poise_coll_window_exchange(bfs->ranks.control);
    if (step < 0) {
        return step;
    }
    *expected = 0;
    for (int r = 0; r < graph->ranks; r++) {
        *expected += ranks_control_of(bfs, r)->sends[graph->rank];
    }
    return code;
}

static int ranks_take(struct poise_graph_bfs *bfs,
                      const struct poise_message *message)
{
    const uint32_t *pairs = message->data;
    uint32_t base = graph_base(bfs->graph);
    for (size_t i = 0; i < message->len / 8; i++) {
        uint32_t row = pairs[2 * i] - base;
        if (row >= bfs->graph->local_count) {
            return poise_error_set(EPROTO, "search a graph", NULL,
                                   "rank %d sent a vertex that is not here",
                                   message->source);
        }
        ranks_claim(bfs, row, pairs[2 * i + 1]);
    }
    return 0;
}

static int ranks_receive(struct poise_graph_bfs *bfs, uint64_t expected)
{
    struct poise_world *world = bfs->graph->world;
    unsigned looks = 0;
    int code = 0;
    while (expected > 0) {
        struct poise_message message;
        int received = poise_world_receive(world, &message);
        if (received < 0) {
            return received;
        }
        if (received == 0) {
            if (++looks > RANKS_LOOKS) {
                poise_world_wait(world, UINT64_MAX);
            }
            continue;
        }
        int step = ranks_take(bfs, &message);
        code = code < 0 ? code : step;
        poise_message_free(&message);
        expected--;
        looks = 0;
    }
    /* Sends complete as others receive; what is left goes on by itself. */
    while (poise_world_unsent(world) > 0) {
        struct poise_message message;
        if (poise_world_receive(world, &message) > 0) {
            poise_message_free(&message);
            return poise_error_set(EPROTO, "search a graph", NULL,
                                   "a message came that was not announced");
        }
    }
    return code;
}

int bfs_ranks_top_down(struct poise_graph_bfs *bfs, int code,
                       struct poise_graph_level *level)
{
    const uint32_t *ends_at = bfs->graph->ends_at;
    uint64_t expected = 0;
    int step = ranks_expand(bfs, level);
    code = code < 0 ? code : step;
    uint64_t from = poise_clock_ns();
    step = ranks_send(bfs, level, &expected);
    code = code < 0 ? code : step;
    step = ranks_receive(bfs, expected);
    code = code < 0 ? code : step;
    uint64_t sums[RANKS_SUMS] = {bfs->end - bfs->begin, 0, level->edges};
    for (uint64_t i = bfs->begin; i < bfs->end; i++) {
        sums[1] += ends_at[bfs->queue[i]];
    }
    bfs->listed = false;
    bfs_ranks_show_hubs(bfs);
    code = bfs_ranks_sum(bfs, code, sums, RANKS_SUMS);
    level->exchange_ns += poise_clock_ns() - from;
    level->found = sums[0];
    bfs->scout = sums[1];
    level->edges = sums[2];
    return code;
}
