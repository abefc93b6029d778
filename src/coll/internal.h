/*
 * What the files of room coll share.
 *
 *   wait.c      waiting for a word of shared memory, among processes
 *   segment.c   memory that the ranks of a node share
 *   window.c    the shared allgather
 */
#ifndef POISE_COLL_INTERNAL_H
#define POISE_COLL_INTERNAL_H

#include <poise/coll.h>

/** What two ranks write lies this far apart. */
#define COLL_LINE 64

/* ---- memory of a node ---------------------------------------------------- */

/* The processes that share a segment, and how to notice that one died. */
struct coll_peer {
    int rank;  /* in the world */
    int pid;   /* its process */
    int pidfd; /* -1 until it is looked at */
};

struct coll_segment {
    void *base; /* zeroed memory, page-aligned */
    size_t bytes;
    int fd;                  /* -1 once sealed */
    int index, count;        /* which of the node's ranks I am, of how many */
    struct coll_peer *peers; /* [count], owned */
    /* More ranks than processors: spinning would only keep others off. */
    bool crowded;
};

/* `bytes` among my node's ranks; every rank of the world calls, bytes may
 * differ among nodes. Nothing is reserved yet. Collective; agrees. */
int coll_segment_create(struct poise_world *world, size_t bytes,
                        struct coll_segment *out);
/* Take the memory of [from, from + len) now, near this process. Local. */
int coll_segment_reserve(struct coll_segment *segment, size_t from, size_t len);
/* No more reservations: the file descriptor is not needed any more. */
void coll_segment_seal(struct coll_segment *segment);
void coll_segment_free(struct coll_segment *segment);
/* 0, or -EOWNERDEAD if a process that shares the segment is no more. */
int coll_segment_check(struct coll_segment *segment);

/* ---- waiting ------------------------------------------------------------- */

/* In shared memory: a number that only grows (and wraps). */
struct coll_word {
    uint32_t value, sleepers; /* __atomic access */
};

/* Called now and then while waiting, so that messages go on; may be NULL. */
typedef void (*coll_idle_fn)(void *arg);

/* What waits need to know; borrowed. */
struct coll_waiter {
    struct coll_segment *segment;
    coll_idle_fn idle;
    void *arg;
};

static inline bool coll_word_reached(const struct coll_word *word,
                                     uint32_t target)
{
    uint32_t value = __atomic_load_n(&word->value, __ATOMIC_ACQUIRE);
    return (int32_t)(value - target) >= 0;
}
/* Until the word reached `target`. 0 or -EOWNERDEAD. */
int coll_word_wait(const struct coll_waiter *waiter, struct coll_word *word,
                   uint32_t target);
/* Set it to `value` and wake who sleeps. */
void coll_word_set(struct coll_word *word, uint32_t value);
/* The same, adding one; returns the new value. */
uint32_t coll_word_add(struct coll_word *word);

/* A barrier among all ranks of a segment: zeroed memory in it. */
struct coll_gate {
    uint32_t arrived; /* __atomic access */
    char apart[COLL_LINE - sizeof(uint32_t)];
    struct coll_word open; /* how often it opened */
    char behind[COLL_LINE - sizeof(struct coll_word)];
};
/* `passed` is this rank's count of passes, 0 at first. */
int coll_gate_pass(const struct coll_waiter *waiter, struct coll_gate *gate,
                   uint32_t *passed);

#endif
