/*
 * The first look and the way down: from the last bucket to the first, the
 * chains of a bucket's nodes are bridged by links between earlier ones.
 */
#include "disk.h"

#include <errno.h>

/* ---- the first look ----------------------------------------------------- */

/* Send `node` its link to (OUTWARD) or from `other`. */
static int send_link(struct disk_job *d, uint64_t node, uint64_t outward,
                     uint64_t other, uint64_t weight)
{
    struct link link = {
        .ends = outward | place_of(d, node) << NODE_BITS | other,
        .weight = weight,
    };

    return rank_pipe_put(&d->links, bucket_of(d, node), &link);
}

/* Links into later buckets are sent to those. */
static int send_later_links(struct disk_job *d, uint64_t first,
                            const uint64_t *successors, const uint64_t *weights,
                            size_t count)
{
    int code = 0;

    for (size_t i = 0; i < count && code == 0; i++) {
        uint64_t node = first + i, next = successors[i];

        if (rank_is_last(node, next)) {
            d->lists++;
        } else if (next >= d->job->count) {
            rank_note(&d->job->wrong.past, node);
        } else if (bucket_of(d, next) > bucket_of(d, node)) {
            code = send_link(d, next, 0, node, weights ? weights[i] : 1);
        }
    }
    return code;
}

int disk_first_look(struct disk_job *d)
{
    struct rank_scan scan;
    const uint64_t *successors, *weights;
    uint64_t first;
    size_t count;
    int code = 0;

    rank_scan_open(&scan, d->job, 0, d->job->count, d->scanning);
    while (code == 0 && (code = rank_scan_next(&scan, &first, &successors,
                                               &weights, &count)) > 0) {
        rank_note_passed(d->job, count);
        code = send_later_links(d, first, successors, weights, count);
    }
    rank_scan_close(&scan);
    return code;
}

/* ---- the way down ------------------------------------------------------- */

/* The nodes of a bucket as the file has them. Links to later ones come as
 * messages. */
static int read_nodes(struct disk_job *d, uint64_t bucket, struct node *nodes)
{
    uint64_t from = bucket << d->bits, to = from + bucket_nodes(d, bucket);
    const uint64_t *successors, *weights;
    struct rank_scan scan;
    uint64_t first;
    size_t count;
    int code = 0;

    rank_scan_open(&scan, d->job, from, to, d->scanning);
    while (code == 0 && (code = rank_scan_next(&scan, &first, &successors,
                                               &weights, &count)) > 0) {
        struct node *node = nodes + (first - from);

        for (size_t i = 0; i < count; i++, node++) {
            uint64_t next = successors[i];

            *node = (struct node){.next = next, .last = UNKNOWN};
            if (rank_is_last(first + i, next)) {
                node->next = NIL;
            } else if (bucket_of(d, next) > bucket) {
                node->next = UNKNOWN;
            } else {
                node->out = weights ? weights[i] : 1;
            }
        }
        code = 0;
    }
    rank_scan_close(&scan);
    return code;
}

/* The node has another predecessor. */
static void set_last(struct disk_job *d, struct node *nodes, uint64_t node,
                     uint64_t last, uint64_t weight)
{
    struct node *at = &nodes[place_of(d, node)];

    if (at->last != UNKNOWN) {
        rank_note(&d->job->wrong.twice, node);
        return;
    }
    at->last = last;
    at->in = weight;
}

static void take_links(struct disk_job *d, uint64_t bucket, struct node *nodes,
                       const struct link *links, size_t count)
{
    enum { AHEAD = 16 };
    uint64_t places = (UINT64_C(1) << LOCAL_BITS) - 1;

    for (size_t i = 0; i < count; i++) {
        uint64_t ends = links[i].ends;
        uint64_t place = ends >> NODE_BITS & places, other = ends & NIL;

        if (i + AHEAD < count) {
            uint64_t ahead = links[i + AHEAD].ends >> NODE_BITS & places;

            __builtin_prefetch(&nodes[ahead], 1);
        }
        if (ends & OUTWARD) {
            nodes[place].next = other;
            nodes[place].out = links[i].weight;
        } else {
            set_last(d, nodes, (bucket << d->bits) + place, other,
                     links[i].weight);
        }
    }
}

static int receive_links(struct disk_job *d, uint64_t bucket,
                         struct node *nodes)
{
    struct rank_drain drain;
    const void *links;
    size_t count;
    int code = rank_drain_open(&drain, &d->links, bucket, d->reading), closed;

    while (code == 0 && (code = rank_drain_next(&drain, &links, &count)) > 0) {
        take_links(d, bucket, nodes, links, count);
        code = 0;
    }
    closed = rank_drain_close(&drain);
    return code < 0 ? code : closed;
}

/* A node that is known to have no successor within its bucket. */
static bool ends_chain(const struct disk_job *d, uint64_t bucket, uint64_t next)
{
    return next == NIL || next == UNKNOWN || bucket_of(d, next) < bucket;
}

static void set_inner_links(struct disk_job *d, uint64_t bucket,
                            struct node *nodes)
{
    enum { AHEAD = 16 };
    uint64_t count = bucket_nodes(d, bucket);

    for (uint64_t i = 0; i < count; i++) {
        if (i + AHEAD < count &&
            !ends_chain(d, bucket, nodes[i + AHEAD].next)) {
            __builtin_prefetch(&nodes[place_of(d, nodes[i + AHEAD].next)], 1);
        }
        if (!ends_chain(d, bucket, nodes[i].next)) {
            set_last(d, nodes, nodes[i].next, (bucket << d->bits) + i, 0);
        }
    }
}

/* The link that takes a chain's place: from before node `begin` to `next`. */
static int bridge(struct disk_job *d, const struct node *begin, uint64_t next,
                  uint64_t distance)
{
    uint64_t last = begin->last == UNKNOWN ? HEAD : begin->last;

    distance += begin->in;
    if (last == HEAD) {
        /* So that a second predecessor of `next` is seen. */
        return next == NIL ? 0 : send_link(d, next, 0, HEAD, 0);
    }
    if (next == NIL || bucket_of(d, last) >= bucket_of(d, next)) {
        return send_link(d, last, OUTWARD, next, distance);
    }
    return send_link(d, next, 0, last, distance);
}

static bool is_within(const struct disk_job *d, uint64_t bucket, uint64_t node)
{
    return node != UNKNOWN && node != HEAD && bucket_of(d, node) == bucket;
}

/* From a chain's end to its begin: distances to what is behind it. */
static int walk_chain(struct disk_job *d, uint64_t bucket, struct node *nodes,
                      struct node *end, uint32_t *chains)
{
    uint64_t next = end->next == UNKNOWN ? NIL : end->next;
    uint64_t distance = 0;
    uint32_t chain = next == NIL ? NO_CHAIN : (*chains)++;
    struct node *node = end;
    int code = 0;

    if (chain != NO_CHAIN) {
        struct question question = {.all = place_of(d, next) << 40 |
                                           (uint64_t)chain << 16 | bucket};

        code = rank_pipe_put(&d->questions, bucket_of(d, next), &question);
    }
    for (;;) {
        distance += node->out;
        node->out = distance;
        node->next = DONE | chain;
        if (!is_within(d, bucket, node->last)) {
            break;
        }
        node = &nodes[place_of(d, node->last)];
    }
    return code < 0 ? code : bridge(d, node, next, distance);
}

static int bridge_chains(struct disk_job *d, uint64_t bucket,
                         struct node *nodes)
{
    uint64_t count = bucket_nodes(d, bucket);
    uint32_t chains = 0;
    int code = 0;

    for (uint64_t i = 0; i < count && code == 0; i++) {
        uint64_t next = nodes[i].next;

        if (next == UNKNOWN ||
            (!(next & DONE) && ends_chain(d, bucket, next))) {
            code = walk_chain(d, bucket, nodes, &nodes[i], &chains);
        }
    }
    return code;
}

/* Distances and chains for the way up. */
static int keep_nodes(struct disk_job *d, uint64_t bucket,
                      const struct node *nodes)
{
    uint64_t count = bucket_nodes(d, bucket);
    int code = 0;

    for (uint64_t i = 0; i < count && code == 0; i += 2) {
        struct kept kept = {.chain = {NO_CHAIN, NO_CHAIN}};

        for (uint64_t j = 0; j < 2 && i + j < count; j++) {
            const struct node *node = &nodes[i + j];

            if (!(node->next & DONE)) {
                rank_note(&d->job->wrong.cycle, (bucket << d->bits) + i + j);
            }
            kept.distance[j] = node->out;
            kept.chain[j] = (uint32_t)node->next;
        }
        code = rank_pipe_put(&d->kept, bucket, &kept);
    }
    return code;
}

int disk_go_down(struct disk_job *d)
{
    struct node *nodes = (struct node *)(void *)d->nodes;
    int code = 0;

    for (uint64_t bucket = d->buckets; bucket-- > 0 && code == 0;) {
        rank_note_passed(d->job, bucket_nodes(d, bucket));
        code = read_nodes(d, bucket, nodes);
        if (code == 0) {
            code = receive_links(d, bucket, nodes);
        }
        if (code == 0) {
            set_inner_links(d, bucket, nodes);
            code = bridge_chains(d, bucket, nodes);
        }
        if (code == 0) {
            code = keep_nodes(d, bucket, nodes);
        }
    }
    return code;
}
