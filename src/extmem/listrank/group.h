/*
 * Processes that rank lists together, each with its part of the nodes in
 * memory: what they have in common (world.c), their messages (exchange.c),
 * walkers (walkers.c) and the list of walks (table.c).
 */
#ifndef POISE_LISTRANK_GROUP_H
#define POISE_LISTRANK_GROUP_H

#include "internal.h"

#include <string.h>

enum {
    /* Starts lie closer than in memory that is one's own: the longest walk goes
     * from process to process at nearly every step. */
    SPACING_BITS = 7,
    UNIT_BITS = 10,     /* parts are of whole pages of the output */
    AT_ONCE = 32,       /* walkers that are moved at a time */
    MOST_OUT = 1 << 16, /* of a process, anywhere */
    BATCH = 2048,       /* records in a message */
    WINDOW = 8,         /* messages of marks under way to each process */
    ID_BITS = 40,
    AHEAD = 32, /* records whose place is fetched before its turn */
};

enum {
    RANK_TAG_MARKS = EXTMEM_TAG_OWN, /* nodes that have a predecessor */
    RANK_TAG_WALKERS,
    RANK_TAG_ENDS, /* of walks, to where they began */
};

/** As in memory.c. */
struct node {
    uint64_t next, value;
};
#define START (UINT64_C(1) << 63)
#define SEEN (UINT64_C(1) << 62)
#define ID (SEEN - 1)

/** A walk's identity is the process that began it, and its number there. */
struct walk {
    uint64_t total, end; /* the walk that begins where it ended, or NONE */
};
struct walker {
    uint64_t at, sum, id;
};
struct walk_end {
    uint64_t id, total, end;
};

/** Records for one process that are not sent yet. */
struct outbox {
    char *data; /* owned */
    size_t used;
};
/** A message of walkers. */
struct arrival {
    struct arrival *next;
    struct poise_message message;
    size_t at;
};

struct rank_group {
    struct rank_job *job;
    struct extmem_peers peers;
    bool stop;                   /* something failed */
    uint64_t each, first, count; /* nodes of a process, and of this one */
    struct node *nodes;          /* owned, huge */
    uint64_t *followed;          /* owned, huge: as in memory.c */
    struct walk *walks;          /* owned */
    uint64_t chosen, walk_count; /* the first walks are from chosen nodes */
    uint64_t begun, ended;
    uint64_t next_chosen, next_head; /* where starts come from */
    struct outbox *walkers, *ends;   /* owned, for each process */
    struct arrival *arrivals, **last_arrival;
    char *buffer; /* owned, huge */
    uint64_t lists, greatest;
    bool fits; /* there is memory for all walks */
};

static inline uint64_t group_chosen_node(const struct rank_group *group,
                                         uint64_t i)
{
    uint64_t first = group->first + (i << SPACING_BITS);
    uint64_t left = group->first + group->count - first;
    uint64_t some = left < 1 << SPACING_BITS ? left : 1 << SPACING_BITS;

    return first + poise_hash_u64((first >> SPACING_BITS) + 1) % some;
}

static inline unsigned group_owner_of(const struct rank_group *group,
                                      uint64_t node)
{
    return (unsigned)(node / group->each);
}

static inline bool group_is_here(const struct rank_group *group, uint64_t node)
{
    return node - group->first < group->count;
}

/* ---- exchange.c --------------------------------------------------------- */

/** Send what waits for `dest` in its box. */
void group_flush(struct rank_group *group, struct outbox *boxes, unsigned dest,
                 int tag);
void group_flush_all(struct rank_group *group, struct outbox *boxes, int tag);

/** A record goes into the box, which goes when it is full. */
static inline void group_put(struct rank_group *group, struct outbox *boxes,
                             unsigned dest, int tag, const void *record,
                             size_t len)
{
    struct outbox *box = &boxes[dest];

    memcpy(box->data + box->used, record, len);
    box->used += len;
    if (box->used + len > BATCH * sizeof(struct walker)) {
        group_flush(group, boxes, dest, tag);
    }
}

/** A node of this process has a predecessor. */
static inline void group_mark(struct rank_group *group, uint64_t node)
{
    uint64_t place = node - group->first, bit = UINT64_C(1) << (place % 64);

    if (group->followed[place / 64] & bit) {
        rank_note(&group->job->wrong.twice, node);
    }
    group->followed[place / 64] |= bit;
}

static inline void group_fetch_mark(const struct rank_group *group,
                                    uint64_t node)
{
    if (group_is_here(group, node)) {
        __builtin_prefetch(&group->followed[(node - group->first) / 64], 1);
    }
}

/** Walks of this process have ended. */
void group_take_ends(struct rank_group *group,
                     const struct poise_message *message);
void group_drop_arrival(struct rank_group *group);
/** Take in what came; whether something did. */
bool group_receive(struct rank_group *group);
/** Send the last message to all, and receive until theirs have come. */
int group_end_exchange(struct rank_group *group);

/* ---- walkers.c ---------------------------------------------------------- */

/** From chosen nodes, as many others, and some more. */
uint64_t group_most_walks(uint64_t each);
/** Walks from chosen nodes, and from all others that no list leads to. */
int group_make_walks(struct rank_group *group);
/** All walks, to their ends; collective. */
int group_walk(struct rank_group *group);

/* ---- table.c ------------------------------------------------------------ */

/** All walks, where they are ranked: those of process i begin at bases[i]. */
struct walk_table {
    uint64_t *bases; /* owned */
    struct walk *walks;
    uint64_t count;
};

static inline uint64_t walk_index_of(const struct walk_table *table,
                                     uint64_t id)
{
    return table->bases[id >> ID_BITS] + (id & ((UINT64_C(1) << ID_BITS) - 1));
}

/* In place of walk.end, when the walk was ranked. */
#define RANKED (RANK_NONE - 1)
#define ON_WAY (RANK_NONE - 2)
#define CYCLE (RANK_NONE - 3)

/** Rank the walks in the first process, send them to all; collective. */
int group_rank_walks(struct rank_group *group, struct walk_table *table);

#endif
