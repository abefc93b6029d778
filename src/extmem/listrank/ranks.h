#pragma once

/*
 * Processes that rank lists together, each with its part of the nodes in
 * memory: what they have in common (rank_world.c), what they say to each other
 * (rank_talk.c), walkers (rank_walk.c) and the list of walks (rank_table.c).
 */
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

/** As in rank_memory.c. */
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
struct letter {
    struct letter *next;
    struct poise_message message;
    size_t at;
};

struct crew {
    struct rank_job *job;
    struct extmem_peers peers;
    bool stop;                   /* something failed */
    uint64_t each, first, count; /* nodes of a process, and of this one */
    struct node *nodes;          /* owned, huge */
    uint64_t *followed;          /* owned, huge: as in rank_memory.c */
    struct walk *walks;          /* owned */
    uint64_t chosen, walk_count; /* the first walks are from chosen nodes */
    uint64_t begun, ended;
    uint64_t next_chosen, next_head; /* where starts come from */
    struct outbox *walkers, *ends;   /* owned, for each process */
    struct letter *letters, **last_letter;
    char *buffer; /* owned, huge */
    uint64_t lists, greatest;
    bool fits; /* there is memory for all walks */
};

static inline uint64_t crew_chosen_node(const struct crew *crew, uint64_t i)
{
    uint64_t first = crew->first + (i << SPACING_BITS);
    uint64_t left = crew->first + crew->count - first;
    uint64_t some = left < 1 << SPACING_BITS ? left : 1 << SPACING_BITS;

    return first + poise_hash_u64((first >> SPACING_BITS) + 1) % some;
}

static inline unsigned crew_owner_of(const struct crew *crew, uint64_t node)
{
    return (unsigned)(node / crew->each);
}

static inline bool crew_is_here(const struct crew *crew, uint64_t node)
{
    return node - crew->first < crew->count;
}

/* ---- rank_talk.c -------------------------------------------------------- */

/** Send what waits for `dest` in its box. */
void crew_flush(struct crew *crew, struct outbox *boxes, unsigned dest,
                int tag);
void crew_flush_all(struct crew *crew, struct outbox *boxes, int tag);

/** A record goes into the box, which goes when it is full. */
static inline void crew_put(struct crew *crew, struct outbox *boxes,
                            unsigned dest, int tag, const void *record,
                            size_t len)
{
    struct outbox *box = &boxes[dest];

    memcpy(box->data + box->used, record, len);
    box->used += len;
    if (box->used + len > BATCH * sizeof(struct walker)) {
        crew_flush(crew, boxes, dest, tag);
    }
}

/** A node of this process has a predecessor. */
static inline void crew_mark(struct crew *crew, uint64_t node)
{
    uint64_t place = node - crew->first, bit = UINT64_C(1) << (place % 64);

    if (crew->followed[place / 64] & bit) {
        rank_note(&crew->job->wrong.twice, node);
    }
    crew->followed[place / 64] |= bit;
}

static inline void crew_fetch_mark(const struct crew *crew, uint64_t node)
{
    if (crew_is_here(crew, node)) {
        __builtin_prefetch(&crew->followed[(node - crew->first) / 64], 1);
    }
}

/** Walks of this process have ended. */
void crew_take_ends(struct crew *crew, const struct poise_message *message);
void crew_drop_letter(struct crew *crew);
/** Take in what came; whether something did. */
bool crew_hear(struct crew *crew);
/** Talk until all have nothing more to say. */
int crew_farewell(struct crew *crew);

/* ---- rank_walk.c -------------------------------------------------------- */

/** From chosen nodes, as many others, and some more. */
uint64_t crew_most_walks(uint64_t each);
/** Walks from chosen nodes, and from all others that no list leads to. */
int crew_make_walks(struct crew *crew);
/** All walks, to their ends; collective. */
int crew_walk(struct crew *crew);

/* ---- rank_table.c ------------------------------------------------------- */

/** All walks, where they are ranked: those of process i begin at bases[i]. */
struct crew_table {
    uint64_t *bases; /* owned */
    struct walk *walks;
    uint64_t count;
};

static inline uint64_t crew_index_of(const struct crew_table *table,
                                     uint64_t id)
{
    return table->bases[id >> ID_BITS] + (id & ((UINT64_C(1) << ID_BITS) - 1));
}

/* In place of walk.end, when the walk was ranked. */
#define RANKED (RANK_NONE - 1)
#define ON_WAY (RANK_NONE - 2)
#define CYCLE (RANK_NONE - 3)

/** Rank the walks in the first process and tell all; collective. */
int crew_rank_walks(struct crew *crew, struct crew_table *table);
