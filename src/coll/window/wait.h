/*
 * Waiting for a word of shared memory, among processes (wait.c).
 */
#ifndef POISE_COLL_WINDOW_WAIT_H
#define POISE_COLL_WINDOW_WAIT_H

#include <poise/core.h>

#include "coll/window/segment.h"

/* In shared memory: a number that only grows (and wraps). */
struct coll_word {
    uint32_t value, sleepers; /* __atomic access */
};

/* Called now and then while waiting, so that messages go on; may be NULL. A
 * negative result ends the wait. */
typedef int (*coll_idle_fn)(void *arg);

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
/* Set it to `value` and wake the sleepers. */
void coll_word_set(struct coll_word *word, uint32_t value);
/* The same without waiting until others see it, which is a good part of a short
 * call; a rank that falls asleep at this very moment finds it a little later.
 */
void coll_word_post(struct coll_word *word, uint32_t value);
/* The same, adding one; returns the new value. */
uint32_t coll_word_add(struct coll_word *word);

/* A barrier among all ranks of a segment: zeroed memory in it. */
struct coll_barrier {
    uint32_t arrived; /* __atomic access */
    char apart[COLL_LINE - sizeof(uint32_t)];
    struct coll_word open; /* how often it opened */
    char behind[COLL_LINE - sizeof(struct coll_word)];
};
/* Wait until `count` ranks have come. */
int coll_barrier_pass(const struct coll_waiter *waiter,
                      struct coll_barrier *barrier, uint32_t count);

#endif
