/*
 * Rings: messages from one node to another one of the same host, in memory that
 * they share, beside the socket between them. Whoever writes makes the memory
 * and offers it over the socket, when both have proved who they are; the other
 * end finds it by the offer, if it can: in a container of its own, or as
 * another user, it cannot, and all goes over the socket.
 *
 * One thread at a time writes, and one reads. Nothing that the other end writes
 * is believed: a message that makes no sense breaks the ring.
 */
#ifndef POISE_FLOW_RING_H
#define POISE_FLOW_RING_H

#include "link.h"

/** The longest payload: larger blocks are far more work than a system call. */
#define FLOW_RING_LONGEST 4096

/** How to find a ring. */
struct flow_ring_offer {
    uint64_t token[2];
    uint32_t process;
    int32_t descriptor;
};

struct flow_ring;
/** New memory, to write into. 0, or negative without an error set: there is
 * none. */
int flow_ring_create(struct flow_ring **out, struct flow_ring_offer *offer);
/** The other end of an offer, to read from. The same. */
int flow_ring_open(const struct flow_ring_offer *offer, struct flow_ring **out);
/** NULL is allowed. */
void flow_ring_close(struct flow_ring *ring);

/** Write a message with its payload, of head->len bytes. False: the other end
 * did not open it yet, or there is no room. */
bool flow_ring_put(struct flow_ring *ring, const struct flow_head *head,
                   const void *data);
/** Whether the other end gave it up: then it may not have read what was written
 * last. */
bool flow_ring_is_over(const struct flow_ring *ring);
/** After that: whether the other end is to be told, as it does not look. */
bool flow_ring_knocks(struct flow_ring *ring);

/** Whether a message is there. */
bool flow_ring_has(const struct flow_ring *ring);
/** Take it: 1; 0: there is none; -EPROTO: it makes no sense, -ENOMEM. Without a
 * payload `made` is NULL. */
int flow_ring_take(struct flow_ring *ring, struct flow_head *head,
                   struct flow_made **made);
/** Say that this end takes no more: it has to look once more after that. */
void flow_ring_end(struct flow_ring *ring);
/** Say that this end looks for messages by itself, or does not: then it has to
 * look once more. */
void flow_ring_look(struct flow_ring *ring, bool looks);

#endif
