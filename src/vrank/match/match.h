/*
 * Matching of messages with receives, by MPI's rules: a receive takes the
 * earliest message that fits, a message the earliest receive that fits.
 *
 * Entries are parts of the structures that wait, owned by the rooms that put
 * them in. Nothing here allocates but the growing of tables, which may fail
 * without harm; nothing locks: a mailbox is guarded by its owner.
 */
#ifndef POISE_VRANK_MATCH_H
#define POISE_VRANK_MATCH_H

#include <poise/core.h>

/* In a receive: any source, any tag. */
#define VRANK_MATCH_ANY (-1)

/* What a receive asks for, and what a message carries. */
struct vrank_envelope {
    uint64_t context; /* of the communicator, and the plane */
    int source, tag;
    uint64_t id; /* of a message: no other has it; does not matter here */
};

struct vrank_entry {
    struct vrank_entry *next, *prev; /* in its bucket, oldest first */
    struct vrank_envelope envelope;
    uint32_t hash;
    uint64_t order; /* among receives */
};

/* A message that no receive has asked for yet. */
struct vrank_arrival {
    struct vrank_entry entry;
    struct vrank_arrival *next, *prev; /* of all, oldest first */
};

struct vrank_bucket {
    struct vrank_entry *head, *tail;
};

#define VRANK_MATCH_BUCKETS 16

struct vrank_table {
    struct vrank_bucket *buckets; /* owned if not `few` */
    uint32_t mask;
    uint32_t count;
    struct vrank_bucket few[VRANK_MATCH_BUCKETS];
};

/* What has arrived for one rank, and what it waits for. */
struct vrank_mailbox {
    /* A receive that waits alone is not in the table: the usual case. */
    struct vrank_entry *alone;
    struct vrank_table posted, arrived;
    uint32_t kinds[4]; /* posted receives: by source and tag, any source, any
                          tag, anything */
    uint64_t order;
    struct vrank_arrival *oldest, *newest;
};

void vrank_mailbox_init(struct vrank_mailbox *box);
/* Entries that are left stay their owners'. */
void vrank_mailbox_free(struct vrank_mailbox *box);

/* What follows has its usual case inline, with nothing or one receive that
 * waits; the functions named _more do the rest. */

static inline bool vrank_match_fits(const struct vrank_envelope *wanted,
                                    const struct vrank_envelope *envelope)
{
    return wanted->context == envelope->context &&
           (wanted->source == VRANK_MATCH_ANY ||
            wanted->source == envelope->source) &&
           (wanted->tag == VRANK_MATCH_ANY || wanted->tag == envelope->tag);
}

void vrank_match_post_more(struct vrank_mailbox *box,
                           struct vrank_entry *entry);
/* A receive waits: `entry` must stay until it is matched or removed. */
static inline void vrank_match_post(struct vrank_mailbox *box,
                                    struct vrank_entry *entry,
                                    const struct vrank_envelope *wanted)
{
    entry->envelope = *wanted;
    if (!box->alone && box->posted.count == 0) {
        box->alone = entry;
    } else {
        vrank_match_post_more(box, entry);
    }
}
/* Whether it was there still, and is no more. */
bool vrank_match_cancel(struct vrank_mailbox *box, struct vrank_entry *entry);
struct vrank_entry *
vrank_match_arrive_more(struct vrank_mailbox *box,
                        const struct vrank_envelope *envelope);
/* The receive that takes a message, removed; NULL if none waits for it. */
static inline struct vrank_entry *
vrank_match_arrive(struct vrank_mailbox *box,
                   const struct vrank_envelope *envelope)
{
    struct vrank_entry *alone = box->alone;
    if (!alone) {
        return box->posted.count > 0 ? vrank_match_arrive_more(box, envelope)
                                     : NULL;
    }
    if (!vrank_match_fits(&alone->envelope, envelope)) {
        return NULL;
    }
    box->alone = NULL;
    return alone;
}

/* Keep a message that vrank_match_arrive found no receive for. */
void vrank_match_keep(struct vrank_mailbox *box, struct vrank_arrival *arrival,
                      const struct vrank_envelope *envelope);
struct vrank_arrival *
vrank_match_find_more(const struct vrank_mailbox *box,
                      const struct vrank_envelope *wanted);
/* The message that a receive takes, still there; NULL if there is none. */
static inline struct vrank_arrival *
vrank_match_find(const struct vrank_mailbox *box,
                 const struct vrank_envelope *wanted)
{
    return box->oldest ? vrank_match_find_more(box, wanted) : NULL;
}
void vrank_match_remove(struct vrank_mailbox *box,
                        struct vrank_arrival *arrival);

#endif
