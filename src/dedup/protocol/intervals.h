/*
 * got.h - groups that arrived, until they are delivered; of the room dedup,
 * for receiver.c, got.c and loose.c only.
 */
#ifndef POISE_DEDUP_GOT_H
#define POISE_DEDUP_GOT_H

#include "internal.h"

/* Why an item is not done: it was not looked for, it is not in the cache, it
 * was asked for. */
enum got_state { GOT_OPEN, GOT_MISSING, GOT_ASKED, GOT_DONE };

struct got_item {
    enum wire_op op;
    enum got_state state;
    bool own; /* from the cache: not to be added again */
    bool placed;
    bool is_residual; /* its data are, of an array, as the message has it */
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
struct got_update {
    uint32_t stream, element_bytes;
    uint32_t first, end; /* items */
    uint64_t sequence;
    uint64_t after; /* groups that have to be delivered before */
    bool is_shown;  /* delivered before it was proved */
    struct poise_buf places;
    struct poise_buf told; /* as it was told: that, too, is proved */
};

_Static_assert(sizeof(struct got_item) + 2 * sizeof(uint32_t) <=
                   WIRE_ITEM_WEIGHT,
               "an item takes no more than the sender counts for it");

struct wire_got {
    struct wire_got *next;
    uint64_t number;
    struct got_item *items;
    uint32_t count, cap;
    uint64_t bytes; /* charged to the receiver */
    uint32_t stream;
    bool placed, repaired, looked;
    bool stirred; /* something was supplied since updates were looked at */
    struct got_update *updates;
    uint32_t update_count, update_cap;
    uint32_t left;       /* pieces that the last update lacks */
    uint32_t hidden;     /* updates that were not delivered */
    uint64_t guessed;    /* bytes in items' guess */
    uint64_t guessed_at; /* when guesses were made last: 1 + groups finished */
    struct poise_dedup_place place; /* of the next item */
    unsigned char hash[POISE_DEDUP_GROUP_BYTES];
};

/** Where the last reference of a group led. */
struct got_cursor {
    bool is_known;
    uint64_t at;
};

/** `bytes` more that a group keeps; -EBADMSG if they are too many. */
int got_charge(struct wire_receiver *receiver, struct wire_got *group,
               uint64_t bytes);
enum poise_dedup_kind got_kind(const struct got_item *item);
/** One more segment's length. */
int got_len(struct got_item *item, size_t len);
/** Look up an item that is open: 1 if it is done, 0 if something is missing. */
int got_look_up(struct poise_dedup_peer *peer, struct got_item *item,
                struct got_cursor *cursor);
/** Follow a reference without its data. */
int got_follow(struct poise_dedup_peer *peer, const struct got_item *item,
               struct got_cursor *cursor);
/** Its bytes are about to be replaced; what was delivered of them is kept. */
void got_replace(const struct wire_got *group, struct got_item *item);

/* ---- loose.c ------------------------------------------------------------ */

/** An update begins in the group that is open. */
int got_loose_begin(struct poise_dedup_peer *peer,
                    struct poise_reader *message);
/** An item of the open group was taken in: it is a piece of an update, or of
 * the stream. */
int got_loose_count(struct poise_dedup_peer *peer, struct got_item *item);
/** Deliver what updates of a group can be. */
int got_loose_show(struct poise_dedup_peer *peer, struct wire_got *group);
/** The group is proved: deliver an update, or correct it. */
int got_loose_settle(struct poise_dedup_peer *peer, struct wire_got *group,
                     struct got_update *update);
void got_loose_free(struct wire_got *group);

#endif
