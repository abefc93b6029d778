/*
 * Waiting among processes. Where each rank has a processor, what is waited for
 * mostly comes while spinning. Where there are more ranks than processors
 * (measured: 8 ranks on 2), a rank that yields is back after the others had
 * their turn, at a third of the cost of sleeping and being woken; only who
 * waits for long sleeps. A sleeper looks up now and then, whether those that
 * it waits for still live.
 */
#include "coll/window/wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS 2000 /* pauses: 20 to 100 us */
#define SPINS_CROWDED 20
#define YIELDS 100
/* A sleep without news; the first is short, since who posts a word may have
 * overlooked who was just falling asleep. */
#define SLEEP_NS 50000000
#define NAP_NS 500000

/* Ranks that are threads of one process see the words at different addresses,
 * each through a mapping of its own, so the thread sanitizer does not see that
 * these order what they do to each other's memory: it is told. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WAIT_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define WAIT_TSAN 1
#endif
#if defined(WAIT_TSAN)
#include <sanitizer/tsan_interface.h>
static const char order;
#define TELL_BEFORE() __tsan_release((void *)(uintptr_t)&order)
#define TELL_AFTER() __tsan_acquire((void *)(uintptr_t)&order)
#else
#define TELL_BEFORE() ((void)0)
#define TELL_AFTER() ((void)0)
#endif

/* Look after other things; negative if waiting makes no sense any more. */
static int look_around(const struct coll_waiter *waiter, bool for_the_dead)
{
    int code = waiter->idle ? waiter->idle(waiter->arg) : 0;
    if (code == 0 && for_the_dead) {
        code = coll_segment_check(waiter->segment);
    }
    return code;
}

/* Sleep until the word changes from `seen`, a signal comes or time is over. */
static bool word_sleep(struct coll_word *word, uint32_t seen, long ns)
{
    struct timespec ts = {.tv_nsec = ns};
    /* Who sets it stores the value and then looks for sleepers; here it is the
     * other way round, the kernel comparing: one of the two sees the other. */
    __atomic_fetch_add(&word->sleepers, 1, __ATOMIC_SEQ_CST);
    long rc = syscall(SYS_futex, &word->value, FUTEX_WAIT, seen, &ts, NULL, 0);
    bool late = rc != 0 && errno == ETIMEDOUT;
    __atomic_fetch_sub(&word->sleepers, 1, __ATOMIC_RELAXED);
    return late;
}

/* The slow half: yield, then sleep. */
static int wait_long(const struct coll_waiter *waiter, struct coll_word *word,
                     uint32_t target)
{
    bool hooked = false;
    int code = 0;
    for (unsigned i = 1; i < YIELDS || hooked; i++) {
        hooked = poise_yield();
        if (coll_word_reached(word, target)) {
            return 0;
        }
        if (i % 16 == 0) {
            code = look_around(waiter, i % 4096 == 0);
        }
        /* Whoever is gone may have done its part before. */
        if (code < 0 && !coll_word_reached(word, target)) {
            return code;
        }
    }
    for (long ns = NAP_NS;; ns = SLEEP_NS) {
        uint32_t seen = __atomic_load_n(&word->value, __ATOMIC_ACQUIRE);
        if ((int32_t)(seen - target) >= 0) {
            return 0;
        }
        if (word_sleep(word, seen, ns)) {
            code = look_around(waiter, true);
        }
        if (code < 0 && !coll_word_reached(word, target)) {
            return code;
        }
    }
}

int coll_word_wait(const struct coll_waiter *waiter, struct coll_word *word,
                   uint32_t target)
{
    int spins = waiter->segment->crowded ? SPINS_CROWDED : SPINS;
    bool reached = coll_word_reached(word, target);
    for (int i = 1; i < spins && !reached; i++) {
        poise_pause();
        reached = coll_word_reached(word, target);
    }
    int code = reached ? 0 : wait_long(waiter, word, target);
    TELL_AFTER();
    return code;
}

static void wake(struct coll_word *word)
{
    if (__atomic_load_n(&word->sleepers, __ATOMIC_SEQ_CST) != 0) {
        syscall(SYS_futex, &word->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

void coll_word_set(struct coll_word *word, uint32_t value)
{
    TELL_BEFORE();
    __atomic_store_n(&word->value, value, __ATOMIC_SEQ_CST);
    wake(word);
}

void coll_word_post(struct coll_word *word, uint32_t value)
{
    TELL_BEFORE();
    __atomic_store_n(&word->value, value, __ATOMIC_RELEASE);
    wake(word);
}

uint32_t coll_word_add(struct coll_word *word)
{
    TELL_BEFORE();
    uint32_t value = __atomic_add_fetch(&word->value, 1, __ATOMIC_SEQ_CST);
    wake(word);
    return value;
}

int coll_gate_pass(const struct coll_waiter *waiter, struct coll_gate *gate,
                   uint32_t count)
{
    /* It cannot open before I arrive. */
    uint32_t next = __atomic_load_n(&gate->open.value, __ATOMIC_RELAXED) + 1;
    TELL_BEFORE();
    if (__atomic_add_fetch(&gate->arrived, 1, __ATOMIC_ACQ_REL) == count) {
        TELL_AFTER();
        /* Nobody arrives again before it opens. */
        __atomic_store_n(&gate->arrived, 0, __ATOMIC_RELAXED);
        coll_word_set(&gate->open, next);
        return 0;
    }
    return coll_word_wait(waiter, &gate->open, next);
}
