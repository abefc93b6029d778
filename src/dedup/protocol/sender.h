/*
 * The parts of the sender: for sender.c (how each piece is sent),
 * sender_group.c (the group being made), sender_write.c (messages that wait for
 * more of their kind) and sender_repair.c (what the receiver answers).
 */
#ifndef POISE_DEDUP_PROTOCOL_SENDER_H
#define POISE_DEDUP_PROTOCOL_SENDER_H

#include "internal.h"

enum {
    HIT_RATE_FULL = 256,
    HIT_RATE_SHARE = 16, /* of which one segment is worth one */
    HIT_RATE_ENOUGH = 128,
};

/* ---- sender_group.c ----------------------------------------------------- */

/** Begin a group, unless one is open. */
int wire_group_open(struct poise_dedup_peer *peer);
/** How many elements of `each` bytes a buffer holds. */
uint32_t wire_count(const struct poise_buf *buf, size_t each);
/** Put a piece's bytes into the group. */
int wire_group_add_bytes(struct wire_sent *group,
                         const struct poise_dedup_piece *piece);
/** One more item: what was added since `offset` of the data, and since `first`
 * of the lengths. */
int wire_group_add_item(struct wire_sent *group, enum wire_item_kind kind,
                        uint32_t offset, uint32_t first);
/** Close the group if it is full, unless an update is being sent. */
int wire_group_close_full(struct poise_dedup_peer *peer);
/** A group that is done with. */
void wire_group_put_spare(struct wire_sender *sender, struct wire_sent *group);

/** A segment that goes in another way than by a reference: into the own cache,
 * as the receiver does it, unless this connection brought it already. What
 * comes of it later is then found in the receiver's order. `print`: all 64
 * bits. */
int wire_sender_keep(struct poise_dedup_peer *peer, uint64_t print,
                     const void *data, size_t len);

/* ---- sender_write.c ----------------------------------------------------- */

/** Whether one of the two caches may not find all that it has. */
bool wire_may_not_find(const struct poise_dedup_peer *peer);
/** Hold a run, missing segments or fingerprints; what was held of another kind
 * is written. */
int wire_hold(struct poise_dedup_peer *peer, enum wire_held what);
/** Write what is held. */
int wire_write_held(struct poise_dedup_peer *peer);

#endif
