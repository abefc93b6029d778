/*
 * Ranking with little memory. The file is cut into buckets of nodes that fit
 * memory. Every link is kept with that of its two ends which lies in the later
 * bucket. So when the last bucket is taken up, all links of its nodes are
 * known, and chains of its nodes can be bridged: the link from before the chain
 * to behind it is sent to an earlier bucket. When the first bucket was reached
 * the way is gone back: each node's rank is that of the node behind its chain,
 * which by then is known and was asked for, and the distance.
 *
 * While bucket b is handled on the way down, the pipe `links` of b is complete:
 * links are sent to earlier buckets only, by those handled before, and by the
 * first look. So is `answers` of b on the way up, by the same reason in the
 * other direction: a question goes from b's chain to an earlier bucket, which
 * answers when it is handled. `kept` of b holds two numbers a node, in order:
 * the distance to the end of its chain and the chain, or NO_CHAIN where the
 * list ends there.
 *
 * A pipe's blocks are freed as soon as they were read, for others to use.
 * Scratch files have no names and the output gets its name last: a crash leaves
 * nothing.
 *
 * Source: pems, algorithm 2.1 (Sibeyn), by buckets in place of nodes: streams
 * take the place of priority queues.
 */
#include "internal.h"
#include "pipes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOCAL_BITS = 24, /* a node's place in its bucket */
    NODE_BITS = 39,
    LEAST_BITS = 9, /* a bucket's nodes fill a page of the file */
    FLIGHTS = 16,
    LEAST_BLOCK = 4096,
    MOST_BLOCK = 256 << 10,
    GOOD_BLOCK = 64 << 10,
};

/** In place of a node: behind the last, before the first, and not known. */
#define NIL ((UINT64_C(1) << NODE_BITS) - 1)
#define HEAD (NIL - 1)
#define UNKNOWN RANK_NONE

struct node {
    uint64_t next, last; /* nodes, or the above */
    uint64_t out;        /* weight of the link to `next` */
    uint64_t in;         /* of that from `last`, if it came from elsewhere */
};
/** In `next` of a node whose chain was bridged. */
#define DONE (UINT64_C(1) << 63)
/** In place of a chain's number: its end is that of the list. */
#define NO_CHAIN UINT32_MAX

/** A link, as it is sent to one of its ends: a bit for whether the end is where
 * it begins, the place of that end in its bucket, the other end. */
struct link {
    uint64_t ends, weight;
};
#define OUTWARD (UINT64_C(1) << 63)

/** Asks for the rank of a node: its place, who asks for which chain. */
struct question {
    uint64_t all; /* place << 40 | chain << 16 | bucket */
};
struct answer {
    uint64_t chain, rank;
};
/** What is kept of two nodes while earlier buckets are handled. */
struct kept {
    uint64_t distance[2];
    uint32_t chain[2];
};

struct disk_job {
    struct rank_job *job;
    unsigned bits; /* of a bucket's nodes */
    uint64_t buckets;
    struct extmem_store store;
    struct extmem_blocks blocks;
    struct rank_pipes links, questions, kept, answers;
    char *arena; /* owned */
    size_t arena_bytes;
    char *nodes, *reading, *scanning; /* within it */
    uint64_t lists, greatest;
};

static uint64_t bucket_of(const struct disk_job *d, uint64_t node)
{
    return node >> d->bits;
}

static uint64_t place_of(const struct disk_job *d, uint64_t node)
{
    return node & ((UINT64_C(1) << d->bits) - 1);
}

static uint64_t bucket_nodes(const struct disk_job *d, uint64_t bucket)
{
    uint64_t left = d->job->count - (bucket << d->bits);

    return left < UINT64_C(1) << d->bits ? left : UINT64_C(1) << d->bits;
}

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

static int first_look(struct disk_job *d)
{
    struct rank_scan scan;
    const uint64_t *successors, *weights;
    uint64_t first;
    size_t count;
    int code = 0;

    rank_scan_open(&scan, d->job, 0, d->job->count, d->scanning);
    while (code == 0 && (code = rank_scan_next(&scan, &first, &successors,
                                               &weights, &count)) > 0) {
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

static int go_down(struct disk_job *d)
{
    struct node *nodes = (struct node *)(void *)d->nodes;
    int code = 0;

    for (uint64_t bucket = d->buckets; bucket-- > 0 && code == 0;) {
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

/* ---- the way up --------------------------------------------------------- */

/* The ranks of what lies behind a bucket's chains. */
static int receive_answers(struct disk_job *d, uint64_t bucket, uint64_t *ends)
{
    struct rank_drain drain;
    const void *messages;
    size_t count;
    int code = rank_drain_open(&drain, &d->answers, bucket, d->reading), closed;

    while (code == 0 &&
           (code = rank_drain_next(&drain, &messages, &count)) > 0) {
        const struct answer *answers = messages;

        for (size_t i = 0; i < count; i++) {
            ends[answers[i].chain] = answers[i].rank;
        }
        code = 0;
    }
    closed = rank_drain_close(&drain);
    return code < 0 ? code : closed;
}

static int rank_nodes(struct disk_job *d, uint64_t bucket, const uint64_t *ends,
                      uint64_t *ranks)
{
    enum { AHEAD = 16 };
    struct rank_drain drain;
    const void *messages;
    size_t count;
    int code = rank_drain_open(&drain, &d->kept, bucket, d->reading), closed;

    while (code == 0 &&
           (code = rank_drain_next(&drain, &messages, &count)) > 0) {
        const struct kept *kept = messages;

        for (size_t i = 0; i < count; i++) {
            for (int j = 0; j < 2; j++) {
                uint32_t chain = kept[i].chain[j];
                uint64_t rank = kept[i].distance[j];

                if (i + AHEAD < count && kept[i + AHEAD].chain[j] != NO_CHAIN) {
                    __builtin_prefetch(&ends[kept[i + AHEAD].chain[j]]);
                }
                rank += chain == NO_CHAIN ? 0 : ends[chain];
                *ranks++ = rank;
                d->greatest = rank > d->greatest ? rank : d->greatest;
            }
        }
        code = 0;
    }
    closed = rank_drain_close(&drain);
    return code < 0 ? code : closed;
}

static int answer_questions(struct disk_job *d, uint64_t bucket,
                            const uint64_t *ranks)
{
    enum { AHEAD = 16 };
    struct rank_drain drain;
    const void *messages;
    size_t count;
    int code = rank_drain_open(&drain, &d->questions, bucket, d->reading),
        closed;

    while (code == 0 &&
           (code = rank_drain_next(&drain, &messages, &count)) > 0) {
        const struct question *questions = messages;

        code = 0;
        for (size_t i = 0; i < count && code == 0; i++) {
            uint64_t all = questions[i].all;
            struct answer answer = {.chain = all >> 16 & 0xffffff,
                                    .rank = ranks[all >> 40]};

            if (i + AHEAD < count) {
                __builtin_prefetch(&ranks[questions[i + AHEAD].all >> 40]);
            }
            code = rank_pipe_put(&d->answers, all & 0xffff, &answer);
        }
    }
    closed = rank_drain_close(&drain);
    return code < 0 ? code : closed;
}

static int go_up(struct disk_job *d)
{
    size_t bytes = (size_t)8 << d->bits;
    uint64_t *ends = (uint64_t *)(void *)(d->nodes + 2 * bytes);
    struct extmem_writes writes = {0};
    int code = 0, last;

    for (uint64_t bucket = 0; bucket < d->buckets && code == 0; bucket++) {
        char *ranks = d->nodes + bucket % 2 * bytes;

        code = receive_answers(d, bucket, ends);
        if (code == 0) {
            code = rank_nodes(d, bucket, ends, (uint64_t *)(void *)ranks);
        }
        if (code == 0) {
            code = extmem_output_put(d->job->out, ranks,
                                     bucket_nodes(d, bucket) * 8,
                                     (bucket << d->bits) * 8, &writes);
        }
        if (code == 0) {
            code = answer_questions(d, bucket,
                                    (const uint64_t *)(const void *)ranks);
        }
    }
    last = extmem_writes_wait(&writes);
    return code < 0 ? code : last;
}

/* ---- memory ------------------------------------------------------------- */

static uint64_t bucket_count(const struct disk_job *d)
{
    return (d->job->count + (UINT64_C(1) << d->bits) - 1) >> d->bits;
}

/* Blocks: for each bucket one of links or answers and one of questions; one
 * of nodes that are kept for each of them; those on their way. */
static size_t block_count(uint64_t buckets)
{
    return 3 * buckets + FLIGHTS + 1;
}

static uint64_t arena_of(const struct disk_job *d, size_t block)
{
    uint64_t buckets = bucket_count(d);

    return ((uint64_t)sizeof(struct node) << d->bits) +
           (block_count(buckets) + RANK_AHEAD) * block +
           rank_scan_bytes(d->job);
}

/* Lists of slots and pipes, besides the arena. */
static uint64_t rest_of(const struct disk_job *d, size_t block)
{
    return d->job->count / block * 64 * 8 + bucket_count(d) * 4 * 40 +
           (256 << 10);
}

static bool fits(const struct disk_job *d, size_t block, uint64_t memory)
{
    return bucket_count(d) < 1 << 16 &&
           arena_of(d, block) + rest_of(d, block) <= memory;
}

/* The largest buckets with good blocks, or else the largest blocks. */
static size_t choose(struct disk_job *d, uint64_t memory)
{
    static const size_t least_blocks[] = {GOOD_BLOCK, LEAST_BLOCK};

    for (int i = 0; i < 2; i++) {
        for (unsigned bits = LOCAL_BITS; bits >= LEAST_BITS; bits--) {
            d->bits = bits;
            if (bits > LEAST_BITS && bucket_count(d) == 1) {
                continue;
            }
            for (size_t block = MOST_BLOCK; block >= least_blocks[i];
                 block /= 2) {
                if (fits(d, block, memory)) {
                    return block;
                }
            }
        }
    }
    return 0;
}

static int refuse_memory(struct disk_job *d)
{
    struct poise_buf have = {0}, least = {0};
    uint64_t low = d->job->memory, high = low;
    int code;

    do {
        high *= 2;
    } while (choose(d, high) == 0);
    while (high - low > EXTMEM_PAGE) {
        uint64_t middle = low + (high - low) / 2;

        if (choose(d, middle) == 0) {
            low = middle;
        } else {
            high = middle;
        }
    }
    poise_human_bytes(&have, d->job->memory);
    poise_human_bytes(&least, high);
    code = poise_error_set(ENOMEM, "rank", d->job->path,
                           "%s of memory are too little: at least %s",
                           poise_buf_str(&have), poise_buf_str(&least));
    poise_buf_free(&have);
    poise_buf_free(&least);
    return code;
}

static int plan(struct disk_job *d)
{
    size_t block = choose(d, d->job->memory), count;

    if (block == 0) {
        return refuse_memory(d);
    }
    d->buckets = bucket_count(d);
    d->store.block_bytes = block;
    d->arena_bytes = arena_of(d, block);
    d->arena = poise_huge_alloc(d->arena_bytes);
    if (!d->arena) {
        return -ENOMEM;
    }
    d->nodes = d->arena;
    d->scanning = d->nodes + (sizeof(struct node) << d->bits);
    d->reading = d->scanning + rank_scan_bytes(d->job);
    count = block_count(d->buckets);
    return extmem_blocks_open(&d->blocks, &d->store,
                              d->reading + RANK_AHEAD * block, count, FLIGHTS);
}

/* ---- all ---------------------------------------------------------------- */

static int open_pipes(struct disk_job *d)
{
    int code =
        rank_pipes_open(&d->links, &d->blocks, d->buckets, sizeof(struct link));

    if (code == 0) {
        code = rank_pipes_open(&d->questions, &d->blocks, d->buckets,
                               sizeof(struct question));
    }
    if (code == 0) {
        code = rank_pipes_open(&d->kept, &d->blocks, d->buckets,
                               sizeof(struct kept));
    }
    if (code == 0) {
        code = rank_pipes_open(&d->answers, &d->blocks, d->buckets,
                               sizeof(struct answer));
    }
    return code;
}

static int run(struct disk_job *d)
{
    struct rank_job *job = d->job;
    uint64_t begin = poise_clock_ns(), looked = begin, down = begin;
    int code = first_look(d);

    looked = poise_clock_ns();
    if (code == 0 && job->wrong.past == RANK_NONE) {
        code = go_down(d);
    }
    down = poise_clock_ns();
    if (code == 0 && job->wrong.past == RANK_NONE &&
        job->wrong.twice == RANK_NONE && job->wrong.cycle == RANK_NONE) {
        code = go_up(d);
    }
    job->result.read_ns = looked - begin;
    job->result.walk_ns = down - looked;
    job->result.write_ns = poise_clock_ns() - down;
    return code;
}

static void note(struct disk_job *d)
{
    struct poise_listrank_result *result = &d->job->result;
    uint64_t read, written;

    extmem_store_count(&d->store, &read, &written);
    result->read_bytes += read;
    result->written_bytes += written;
    result->scratch_bytes += written;
    result->lists = d->lists;
    result->greatest = d->greatest;
    result->buckets = d->buckets;
}

int rank_on_disk(struct rank_job *job, const char *folder)
{
    struct disk_job d = {.job = job};
    /* Nodes that are kept and answers are there together; before, links that
     * are left and questions are less. */
    struct extmem_scratch scratch = {
        .folders = job->options->scratch,
        .folder_count = job->options->scratch_count,
        .default_folder = folder,
        .need_bytes =
            job->count * (sizeof(struct kept) / 2 + sizeof(struct answer)),
        .disk = &job->options->disk,
    };
    int code = plan(&d);

    if (code == 0) {
        code = extmem_store_open(&d.store, &scratch);
    }
    if (code == 0) {
        code = open_pipes(&d);
    }
    if (code == 0) {
        code = run(&d);
    }
    if (code == 0) {
        note(&d);
    }
    rank_pipes_close(&d.links);
    rank_pipes_close(&d.questions);
    rank_pipes_close(&d.kept);
    rank_pipes_close(&d.answers);
    extmem_blocks_close(&d.blocks);
    extmem_store_close(&d.store);
    poise_huge_free(d.arena, d.arena_bytes);
    return code;
}
