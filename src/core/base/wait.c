/*
 * Waiting. A thread that waits spins for a few microseconds where another
 * processor could bring the news meanwhile, and then sleeps in the kernel; in a
 * context with a yield hook it calls that instead, in a loop.
 */
#include <poise/wait.h>

#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAIT_NS_PER_S UINT64_C(1000000000)
/** Pauses before sleeping: 1 to 3 us, by the processor. */
#define WAIT_SPINS 64
/** Rounds of a backoff that spin, and that yield the processor after them. */
#define BACKOFF_SPIN_ROUNDS 8
#define BACKOFF_YIELD_ROUNDS 16
#define BACKOFF_MIN_NS UINT64_C(20000)
#define BACKOFF_MAX_NS UINT64_C(1000000)

/* Whether anything can happen while this thread spins. */
static bool wait_may_spin(void)
{
    static int processors; /* global: a property of the process; atomic */
    int count = __atomic_load_n(&processors, __ATOMIC_RELAXED);
    if (count == 0) {
        cpu_set_t set;
        /* Fails where there are more than CPU_SETSIZE processors. */
        count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                            : CPU_SETSIZE;
        __atomic_store_n(&processors, count, __ATOMIC_RELAXED);
    }
    return count > 1;
}

static uint64_t wait_deadline(uint64_t timeout_ns)
{
    uint64_t deadline_ns;
    if (__builtin_add_overflow(poise_clock_ns(), timeout_ns, &deadline_ns)) {
        return UINT64_MAX;
    }
    return deadline_ns;
}

static struct timespec wait_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / WAIT_NS_PER_S),
                             .tv_nsec = (long)(ns % WAIT_NS_PER_S)};
}

static bool wait_yield(void)
{
    struct poise_ctx *ctx = poise_ctx_current();
    if (ctx->yield == NULL) {
        return false;
    }
    ctx->yield(ctx->yield_arg);
    return true;
}

static bool event_happened(struct poise_event *event, uint32_t seen)
{
    return poise_event_seen(event) != seen;
}

/* Sleep until the word changes, a signal comes or the time is over. */
static int event_sleep(struct poise_event *event, uint32_t seen,
                       uint64_t timeout_ns)
{
    struct timespec ts = wait_timespec(timeout_ns);
    /* The signaller increments `sequence` and then looks at `waiters`; here
     * it is the other way round, the kernel comparing the word: one of the
     * two sees the other. */
    __atomic_fetch_add(&event->waiters, 1, __ATOMIC_SEQ_CST);
    long woken = syscall(SYS_futex, &event->sequence, FUTEX_WAIT_PRIVATE, seen,
                         timeout_ns == UINT64_MAX ? NULL : &ts, NULL, 0);
    bool late = woken != 0 && errno == ETIMEDOUT;
    __atomic_fetch_sub(&event->waiters, 1, __ATOMIC_RELAXED);
    return late && !event_happened(event, seen) ? -ETIMEDOUT : 0;
}

int poise_event_wait(struct poise_event *event, uint32_t seen,
                     uint64_t timeout_ns)
{
    if (event_happened(event, seen)) {
        return 0;
    }
    if (timeout_ns == 0) {
        return -ETIMEDOUT;
    }
    if (poise_ctx_current()->yield != NULL) {
        uint64_t deadline_ns = wait_deadline(timeout_ns);
        while (wait_yield() && !event_happened(event, seen)) {
            if (poise_clock_ns() >= deadline_ns) {
                return -ETIMEDOUT;
            }
        }
        return 0;
    }
    if (wait_may_spin()) {
        for (int i = 0; i < WAIT_SPINS; i++) {
            poise_pause();
            if (event_happened(event, seen)) {
                return 0;
            }
        }
    }
    return event_sleep(event, seen, timeout_ns);
}

void poise_event_signal(struct poise_event *event)
{
    __atomic_fetch_add(&event->sequence, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&event->waiters, __ATOMIC_SEQ_CST) != 0) {
        syscall(SYS_futex, &event->sequence, FUTEX_WAKE_PRIVATE, INT_MAX, NULL,
                NULL, 0);
    }
}

void poise_backoff_wait(struct poise_backoff *backoff)
{
    unsigned round = backoff->rounds;
    if (round < UINT_MAX) {
        backoff->rounds++;
    }
    if (round < BACKOFF_SPIN_ROUNDS && wait_may_spin()) {
        for (unsigned i = 0; i < 1u << round; i++) {
            poise_pause();
        }
        return;
    }
    if (round < BACKOFF_YIELD_ROUNDS) {
        poise_yield();
        return;
    }
    uint64_t ns = backoff->min_ns > 0 ? backoff->min_ns : BACKOFF_MIN_NS;
    uint64_t most_ns = backoff->max_ns > 0 ? backoff->max_ns : BACKOFF_MAX_NS;
    for (unsigned i = BACKOFF_YIELD_ROUNDS; i < round && ns < most_ns; i++) {
        ns = ns > most_ns / 2 ? most_ns : ns * 2;
    }
    poise_sleep_ns(ns < most_ns ? ns : most_ns);
}

bool poise_yield(void)
{
    if (wait_yield()) {
        return true;
    }
    sched_yield();
    return false;
}

void poise_sleep_ns(uint64_t ns)
{
    uint64_t deadline_ns = wait_deadline(ns);
    while (poise_clock_ns() < deadline_ns && wait_yield()) {
    }
    struct timespec until = wait_timespec(deadline_ns);
    while (poise_clock_ns() < deadline_ns &&
           clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) ==
               EINTR) {
    }
}
