/*
 * Who of a world shares memory with this process, and what is in it.
 *
 * Each process has a box: an anonymous file, without a name that a crash could
 * leave behind, which the others open through /proc. It holds one ring from
 * each of them, and a bell for when its owner sleeps. Two processes share if
 * each could open the other's box and finds there what was told; everybody
 * else is reached by MPI alone.
 */
#ifndef POISE_COMM_SHARE_H
#define POISE_COMM_SHARE_H

#include "internal.h"
#include "ring.h"

/* Rung for its owner by whoever sends to him, if he sleeps. */
struct comm_bell {
    uint32_t rung;   /* atomic: how often; a futex */
    uint32_t asleep; /* atomic: or about to */
};

/* The beginning of a box. */
struct comm_box {
    struct comm_bell bell;
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
struct comm_mate {
    int rank, pid;
    bool reads_me; /* it may read my memory, */
    bool readable; /* and I its */
    struct comm_box *box;
    size_t box_bytes;
    struct comm_ring_writer to;
    struct comm_ring_reader from;
    struct comm_backlog *oldest, *newest; /* not yet in the ring */
};

struct comm_share {
    struct comm_box *box; /* my own; NULL: I share with nobody */
    size_t box_bytes;
    struct comm_mate *mates; /* [count] */
    int count;
    int size;
    int *mate_of; /* [size of the world]: index, or -1 */
};

/* Collective: finds out who shares. That nobody does is no error. The
 * environment variable POISE_WIRE is read, see poise_wire_create. */
int comm_share_create(struct poise_world *world, struct comm_share *out);
void comm_share_free(struct comm_share *share);

/* Copy `len` bytes at `address` of a mate that is readable. Negative errno. */
int comm_share_read(const struct comm_mate *mate, uint64_t address, void *data,
                    size_t len);

/* Wake the owner of a bell if he sleeps. After a full barrier. */
static inline bool comm_bell_is_needed(struct comm_bell *bell)
{
    return __atomic_load_n(&bell->asleep, __ATOMIC_SEQ_CST) != 0;
}
void comm_bell_ring(struct comm_bell *bell);
/* Say that its owner is about to sleep: he looks around once more, then calls
 * comm_bell_wait with what this returned, or comm_bell_stay. */
uint32_t comm_bell_doze(struct comm_bell *bell);
void comm_bell_wait(struct comm_bell *bell, uint32_t seen, uint64_t timeout_ns);
void comm_bell_stay(struct comm_bell *bell);

#endif
