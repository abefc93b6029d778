/*
 * Groups that arrived, until they are delivered: for receiver.c, resolve.c and
 * unordered.c.
 */
#ifndef POISE_DEDUP_PROTOCOL_RECEIVED_H
#define POISE_DEDUP_PROTOCOL_RECEIVED_H

#include "internal.h"

/* Why an item is not done: it was not looked for; it is not in the cache, or
 * not where it should be, though it may be elsewhere; it was asked for. */
enum item_state {
    ITEM_OPEN,
    ITEM_MISSING,
    ITEM_MOVED,
    ITEM_REQUESTED,
    ITEM_DONE
};

struct received_item {
    enum wire_op op;
    enum item_state state;
    bool own; /* from the cache: not to be added again */
    bool placed;
    bool is_residual; /* its data are, of an array, as the message has it */
    bool is_supplied; /* it is not what a reference led to */
    /* Its fingerprints came: where `lens` is 0 the segment is asked for. */
    bool has_gaps;
    uint32_t stream, count; /* of segments in a run, or of a delta's base */
    uint64_t print;
    int64_t skip;
    uint32_t period;
    struct poise_dedup_place place;
    struct poise_buf data;  /* what it stands for; before, a delta's steps */
    struct poise_buf lens;  /* uint32_t of each segment */
    uint32_t update;        /* that it is of, from 1; 0: none */
    uint32_t at, pieces;    /* its pieces in the update */
    struct poise_buf guess; /* what they were, or will be, delivered as, if
                               that is not in data */
};

/** Some items that belong together. */
struct received_update {
    uint32_t stream, element_bytes;
    uint32_t first, end; /* items */
    uint64_t sequence;
    uint64_t after; /* groups that have to be delivered before */
    bool is_shown;  /* delivered before it was proved */
    struct poise_buf places;
    struct poise_buf header; /* as it came: that, too, is proved */
};

_Static_assert(sizeof(struct received_item) + 2 * sizeof(uint32_t) <=
                   WIRE_ITEM_WEIGHT,
               "an item takes no more than the sender counts for it");

struct wire_received {
    struct wire_received *next;
    uint64_t number;
    struct received_item *items;
    uint32_t count, cap;
    uint64_t bytes; /* charged to the receiver */
    uint32_t stream;
    bool placed, looked;
    /* Its hash was wrong: what was looked up was asked for, all was. */
    bool is_doubted, is_repaired;
    bool stirred; /* something was supplied since updates were looked at */
    struct received_update *updates;
    uint32_t update_count, update_cap;
    uint32_t left;       /* pieces that the last update lacks */
    uint32_t hidden;     /* updates that were not delivered */
    uint64_t guessed;    /* bytes in items' guess */
    uint64_t guessed_at; /* when guesses were made last: 1 + groups finished */
    struct poise_dedup_place place; /* of the next item */
    unsigned char hash[POISE_DEDUP_GROUP_BYTES];
};

/** Where the last reference of a group led. */
struct received_cursor {
    bool is_known;
    bool has_led; /* to something, if not to all of it */
    uint64_t at;
};

/** `bytes` more that a group keeps; -EBADMSG if they are too many. */
int received_charge(struct wire_receiver *receiver, struct wire_received *group,
                    uint64_t bytes);
enum poise_dedup_kind received_kind(const struct received_item *item);
/** One more segment's length. */
int received_len(struct received_item *item, size_t len);
/** Look up an item that is open: 1 if it is done, 0 if something is missing. */
int received_resolve(struct poise_dedup_peer *peer, struct received_item *item,
                     struct received_cursor *cursor);
/** Follow a reference without its data. */
int received_follow(struct poise_dedup_peer *peer,
                    const struct received_item *item,
                    struct received_cursor *cursor);
/** Its bytes are about to be replaced; what was delivered of them is kept. */
void received_replace(const struct wire_received *group,
                      struct received_item *item);

/* ---- receiver_repair.c -------------------------------------------------- */

/** Ask for items that are missing, or moved. */
int received_ask(struct poise_dedup_peer *peer, struct wire_received *group);
/** The group's hash is wrong: ask for what may be the reason. -EBADMSG if all
 * of it was asked for already. */
int received_ask_again(struct poise_dedup_peer *peer,
                       struct wire_received *group);
/** Lengths of segments, and their sum, of a message. */
int received_take_lens(struct poise_reader *message, struct poise_buf *lens,
                       size_t *sum);
int received_take_bytes(struct poise_reader *message, size_t len,
                        struct poise_buf *out);

/* ---- unordered.c ------------------------------------------------------------
 */

/** An update begins in the group that is open. */
int received_update_begin(struct poise_dedup_peer *peer,
                          struct poise_reader *message);
/** An item of the open group was taken in: it is a piece of an update, or of
 * the stream. */
int received_update_count(struct poise_dedup_peer *peer,
                          struct received_item *item);
/** Deliver what updates of a group can be. */
int received_update_show(struct poise_dedup_peer *peer,
                         struct wire_received *group);
/** The group is proved: deliver an update, or correct it. */
int received_update_settle(struct poise_dedup_peer *peer,
                           struct wire_received *group,
                           struct received_update *update);
void received_updates_free(struct wire_received *group);

#endif
