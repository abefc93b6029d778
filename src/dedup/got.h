/*
 * got.h - groups that arrived, until they are delivered; of the room dedup,
 * for receiver.c, got.c and loose.c only.
 */
#ifndef POISE_DEDUP_GOT_H
#define POISE_DEDUP_GOT_H

#include "wire.h"

/* Why an item is not done: it was not looked for, it is not in the cache, it
 * was asked for. */
enum got_state { GOT_OPEN, GOT_MISSING, GOT_ASKED, GOT_DONE };

struct got_item {
    enum wire_op op;
    enum got_state state;
    bool own; /* from the cache: not to be added again */
    bool placed;
    uint32_t stream, count; /* of segments in a run, or of a delta's base */
    uint64_t print;
    int64_t skip;
    uint32_t period;
    struct poise_dedup_place place;
    struct poise_buf data; /* what it stands for; before, a delta's steps */
    struct poise_buf lens; /* uint32_t of each segment */
};

struct wire_got {
    struct wire_got *next;
    uint64_t number;
    struct got_item *items;
    uint32_t count, cap;
    uint64_t bytes; /* charged to the receiver */
    uint32_t stream;
    bool placed, repaired, looked;
    struct poise_dedup_place place; /* of the next item */
    unsigned char hash[POISE_DEDUP_GROUP_BYTES];
};

/** Where the last reference of a group led. */
struct got_cursor {
    bool is_known;
    uint64_t at;
};

/** One more segment's length. */
int got_len(struct got_item *item, size_t len);
/** Look up an item that is open: 1 if it is done, 0 if something is missing. */
int got_look_up(struct poise_dedup_peer *peer, struct got_item *item,
                struct got_cursor *cursor);

#endif
