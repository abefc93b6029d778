/*
 * Waiting among processes. Where each rank has a processor, what is waited for
 * mostly comes while spinning. Where there are more ranks than processors
 * (measured: 8 ranks on 2), a rank that yields is back after the others had
 * their turn, at a third of the cost of sleeping and being woken; only a rank
 * that waits for long sleeps. A sleeper looks up now and then, whether those
 * that it waits for still live.
 *
 * Why no wake-up is lost: the writer stores the value and then reads
 * `sleepers`; the sleeper counts itself among them and then has the kernel
 * compare the value. All four are sequentially consistent, so one of the two
 * sees the other. coll_word_post gives up that order between its store and its
 * load, and so may overlook a rank that is just falling asleep; therefore every
 * sleep ends by itself, the first one soon.
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
/* A sleep without news; the first is short, see above. */
#define SLEEP_NS 50000000
#define NAP_NS 500000

/* Ranks that are threads of one process see the words at different addresses,
 * each through a mapping of its own, so the thread sanitizer does not see that
 * these order what they do to each other's memory. */
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
#define ORDER_BEFORE() __tsan_release((void *)(uintptr_t)&order)
#define ORDER_AFTER() __tsan_acquire((void *)(uintptr_t)&order)
#else
#define ORDER_BEFORE() ((void)0)
#define ORDER_AFTER() ((void)0)
#endif

/* Look after other things; negative if waiting makes no sense any more. */
static int look_around(const struct coll_waiter *waiter, bool for_failed)
{
    int code = waiter->idle ? waiter->idle(waiter->arg) : 0;
    if (code == 0 && for_failed) {
        code = coll_segment_check(waiter->segment);
    }
    return code;
}

/* Sleep until the word changes from `seen`, a signal comes or time is over. */
static bool word_sleep(struct coll_word *word, uint32_t seen, long ns)
{
    struct timespec ts = {.tv_nsec = ns};
    __atomic_fetch_add(&word->sleepers, 1, __ATOMIC_SEQ_CST);
    long woken =
        syscall(SYS_futex, &word->value, FUTEX_WAIT, seen, &ts, NULL, 0);
    bool late = woken != 0 && errno == ETIMEDOUT;
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
        /* A rank that is gone may have done its part before. */
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
    ORDER_AFTER();
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
    ORDER_BEFORE();
    __atomic_store_n(&word->value, value, __ATOMIC_SEQ_CST);
    wake(word);
}

void coll_word_post(struct coll_word *word, uint32_t value)
{
    ORDER_BEFORE();
    __atomic_store_n(&word->value, value, __ATOMIC_RELEASE);
    wake(word);
}

uint32_t coll_word_add(struct coll_word *word)
{
    ORDER_BEFORE();
    uint32_t value = __atomic_add_fetch(&word->value, 1, __ATOMIC_SEQ_CST);
    wake(word);
    return value;
}

int coll_barrier_pass(const struct coll_waiter *waiter,
                      struct coll_barrier *barrier, uint32_t count)
{
    /* It cannot open before I arrive. */
    uint32_t next = __atomic_load_n(&barrier->open.value, __ATOMIC_RELAXED) + 1;
    ORDER_BEFORE();
    if (__atomic_add_fetch(&barrier->arrived, 1, __ATOMIC_ACQ_REL) == count) {
        ORDER_AFTER();
        /* Nobody arrives again before it opens. */
        __atomic_store_n(&barrier->arrived, 0, __ATOMIC_RELAXED);
        coll_word_set(&barrier->open, next);
        return 0;
    }
    return coll_word_wait(waiter, &barrier->open, next);
}
