/*
 * The processes of a world that share memory with this one, and what is in it.
 *
 * Each process has a segment: an anonymous file, without a name that a crash
 * could leave behind, which the others open through /proc. It holds one ring
 * from each of them, and a doorbell for when its owner sleeps. Two processes
 * share if each could open the other's segment and finds there what the other
 * said; all other processes are reached by MPI alone.
 */
#ifndef POISE_COMM_SHARE_H
#define POISE_COMM_SHARE_H

#include "internal.h"
#include "ring.h"

#include <poise/wire.h>

/*
 * Rung for its owner by a process that sends to it, if the owner sleeps. No
 * ring is lost: the sender publishes its message (a full barrier) and then
 * reads `asleep`; the owner sets `asleep` (another), reads `rung` before that,
 * looks at its rings once more and only then sleeps on `rung`. One of the two
 * sees the other, and a ring in between changes `rung`, so that the owner does
 * not sleep.
 */
struct comm_doorbell {
    uint32_t rung;   /* atomic: how often; a futex */
    uint32_t asleep; /* atomic: or about to */
};

/* The beginning of a segment. */
struct comm_segment {
    struct comm_doorbell doorbell;
    uint64_t cookie; /* the owner's own number */
    char rest[COMM_LINE - 16];
};

/* A message for a ring that was full. */
struct comm_backlog {
    struct comm_backlog *next;
    enum comm_ring_kind kind;
    size_t len;
    char data[];
};

/* Another process that this one shares memory with. */
struct comm_peer {
    int rank, pid;
    bool reads_me; /* it may read my memory, */
    bool readable; /* and I its */
    struct comm_segment *segment;
    size_t segment_bytes;
    struct comm_ring_writer to;
    struct comm_ring_reader from;
    struct comm_backlog *oldest, *newest; /* not yet in the ring */
};

struct comm_share {
    struct comm_segment *segment; /* my own; NULL: I share with no process */
    size_t segment_bytes;
    struct comm_peer *peers; /* [count] */
    int count;
    int size;
    int *peer_of; /* [size of the world]: index, or -1 */
};

/* Collective: finds out which processes share. It is no error if none does. The
 * environment variable POISE_WIRE is read, see poise_wire_create. */
int comm_share_create(struct poise_world *world, struct comm_share *out);
void comm_share_free(struct comm_share *share);

/* Copy `len` bytes at `address` of a peer that is readable. Negative errno. */
int comm_share_read(const struct comm_peer *peer, uint64_t address, void *data,
                    size_t len);

/* Whether the owner of a doorbell sleeps. After a full barrier. */
static inline bool comm_doorbell_is_needed(struct comm_doorbell *doorbell)
{
    return __atomic_load_n(&doorbell->asleep, __ATOMIC_SEQ_CST) != 0;
}
void comm_doorbell_ring(struct comm_doorbell *doorbell);
/* Say that its owner is about to sleep: it looks around once more, then calls
 * comm_doorbell_wait with what this returned, or comm_doorbell_cancel. */
uint32_t comm_doorbell_prepare(struct comm_doorbell *doorbell);
void comm_doorbell_wait(struct comm_doorbell *doorbell, uint32_t seen,
                        uint64_t timeout_ns);
void comm_doorbell_cancel(struct comm_doorbell *doorbell);

#endif
