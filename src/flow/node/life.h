/*
 * The life of a block as one word, which all threads change by compare and
 * swap: who depends on it (uses), who has it in hand (references), and three
 * flags. Whoever takes the last of them away frees the block: the swap that
 * does so leaves EMPTY, so there is exactly one, and nobody can take a
 * reference to a block that is EMPTY.
 *
 *     EMPTY -> OPEN -> HERE with uses -> EMPTY
 *
 * Whoever touches a block first opens it, if its row says that all of it is to
 * be written: the processor whose task that is, or one whose own task needs it.
 *
 * Pure functions of the word; tests/flow/life.c walks all of them.
 */
#ifndef POISE_FLOW_LIFE_H
#define POISE_FLOW_LIFE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/** Uses and references are below 2^28 each: no list of dependencies that fits
 * into memory is longer. */
#define FLOW_USE UINT64_C(1)
#define FLOW_REF (UINT64_C(1) << 28)
#define FLOW_USES (FLOW_REF - 1)
#define FLOW_REFS (FLOW_USES << 28)
enum { FLOW_LIFE_SHIFT = 56 };
/** A task will write it, or still runs. */
#define FLOW_LIFE_OPEN (UINT64_C(1) << FLOW_LIFE_SHIFT)
/** It has its data. */
#define FLOW_LIFE_HERE (UINT64_C(2) << FLOW_LIFE_SHIFT)
/** Kept for a reason that only who has the node to itself knows: it is a result
 * that waits, others are to get it, a line is. */
#define FLOW_LIFE_HELD (UINT64_C(4) << FLOW_LIFE_SHIFT)
#define FLOW_LIFE_EMPTY UINT64_C(0)

typedef _Atomic uint64_t flow_life;

static inline uint64_t flow_life_uses(uint64_t word)
{
    return word & FLOW_USES;
}
static inline uint64_t flow_life_refs(uint64_t word)
{
    return (word & FLOW_REFS) / FLOW_REF;
}

/** Take a reference. False: nobody is to write the block, nor is it here. */
static inline bool flow_life_take(flow_life *life)
{
    uint64_t word = atomic_load_explicit(life, memory_order_relaxed);
    do {
        if (!(word & (FLOW_LIFE_OPEN | FLOW_LIFE_HERE))) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(
        life, &word, word + FLOW_REF, memory_order_acquire,
        memory_order_relaxed));
    return true;
}

/** The same, but a block that is EMPTY, and was not computed, is opened for
 * that. `is_done` says whether it was. The caller asks that once more: if it
 * was, and is not HERE, it may have been freed in between, and the reference is
 * to be given back to a block that nobody is to write any more; who has the
 * node sees to it. */
static inline bool flow_life_take_first(flow_life *life,
                                        bool (*is_done)(const void *of),
                                        const void *of)
{
    uint64_t word = atomic_load_explicit(life, memory_order_acquire);
    do {
        if (!(word & (FLOW_LIFE_OPEN | FLOW_LIFE_HERE)) &&
            (word != FLOW_LIFE_EMPTY || is_done(of))) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(
        life, &word,
        word == FLOW_LIFE_EMPTY ? FLOW_LIFE_OPEN + FLOW_REF : word + FLOW_REF,
        memory_order_acquire, memory_order_acquire));
    return true;
}

/** Open a block that has no task yet: others may have done so, and depend on
 * it. */
static inline void flow_life_open(flow_life *life)
{
    atomic_fetch_or_explicit(life, FLOW_LIFE_OPEN, memory_order_relaxed);
}

/** The task of an open block wrote it, and so many depend on it; the caller
 * has a reference now. */
static inline void flow_life_here(flow_life *life, uint64_t uses)
{
    atomic_fetch_add_explicit(
        life, FLOW_LIFE_HERE - FLOW_LIFE_OPEN + FLOW_REF + uses * FLOW_USE,
        memory_order_release);
}

/** Give back a reference, and a use if there is one and `used`. True: it was
 * the last thing that kept the block, which is EMPTY now: the caller frees
 * what it had. */
static inline bool flow_life_drop(flow_life *life, bool used)
{
    uint64_t word = atomic_load_explicit(life, memory_order_relaxed), next;
    do {
        next = word - FLOW_REF;
        next -= used && flow_life_uses(word) > 0 ? FLOW_USE : 0;
        next = next == FLOW_LIFE_HERE ? FLOW_LIFE_EMPTY : next;
    } while (!atomic_compare_exchange_weak_explicit(
        life, &word, next, memory_order_acq_rel, memory_order_relaxed));
    return next == FLOW_LIFE_EMPTY;
}

/* For who has the node to itself: as if the word were none of many. */

static inline uint64_t flow_life_word(const flow_life *life)
{
    return atomic_load_explicit(life, memory_order_relaxed);
}
static inline void flow_life_set(flow_life *life, uint64_t word)
{
    atomic_store_explicit(life, word, memory_order_relaxed);
}

#endif
