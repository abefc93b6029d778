/*
 * Shared by the files of ranking with little memory: disk.c says how it goes.
 */
#ifndef POISE_LISTRANK_DISK_H
#define POISE_LISTRANK_DISK_H

#include "internal.h"
#include "pipes.h"

enum {
    LOCAL_BITS = 24, /* a node's place in its bucket */
    NODE_BITS = 39,
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

/** Asks for the rank of a node: its place, the chain and the bucket that ask.
 */
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

static inline uint64_t bucket_of(const struct disk_job *d, uint64_t node)
{
    return node >> d->bits;
}

static inline uint64_t place_of(const struct disk_job *d, uint64_t node)
{
    return node & ((UINT64_C(1) << d->bits) - 1);
}

static inline uint64_t bucket_nodes(const struct disk_job *d, uint64_t bucket)
{
    uint64_t left = d->job->count - (bucket << d->bits);

    return left < UINT64_C(1) << d->bits ? left : UINT64_C(1) << d->bits;
}

/** The first look at the file: links into later buckets are sent to those. */
int disk_first_look(struct disk_job *d);
/** From the last bucket to the first: bridge chains (disk_down.c). */
int disk_go_down(struct disk_job *d);
/** From the first bucket to the last: rank and write (disk_up.c). */
int disk_go_up(struct disk_job *d);

#endif
