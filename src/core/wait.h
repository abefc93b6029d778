/*
 * poise/wait.h - waiting: events, spinning, backing off, sleeping; the same
 * calls in kernel threads and in user-level ones, whose scheduler sets a hook
 * (poise_ctx_set_yield).
 */
#ifndef POISE_WAIT_H
#define POISE_WAIT_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Something that happens again and again and can be waited for. Threads:
 * any number may wait and signal. Zero-initialised is ready for use.
 *
 *     uint32_t seen = poise_event_seen(&ev);
 *     if (!condition)
 *         poise_event_wait(&ev, seen, timeout_ns);
 */
struct poise_event {
    uint32_t sequence, waiters; /**< __atomic access only */
};
static inline uint32_t poise_event_seen(struct poise_event *event)
{
    return __atomic_load_n(&event->sequence, __ATOMIC_ACQUIRE);
}
/** Wait until the event was signalled since `seen` or the time is over:
 * spins briefly, then sleeps on a futex, or calls the context's yield hook
 * in a loop. UINT64_MAX waits for ever. 0, or -ETIMEDOUT (no error set). May
 * return 0 early, as after a signal handler ran: look at the condition (and
 * at the handler's flag), then wait again. */
POISE_API int poise_event_wait(struct poise_event *event, uint32_t seen,
                               uint64_t timeout_ns);
/** Wake all waiters; cheap (no system call) when there is none. */
POISE_API void poise_event_signal(struct poise_event *event);

/** Let the processor know that the caller spins: some tens of nanoseconds. */
static inline void poise_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#else
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
}

/** Polling what cannot be waited for: first spins, then yields
 * the processor, then sleeps for times that double from min_ns to max_ns. */
struct poise_backoff {
    uint64_t min_ns, max_ns; /**< 0: 20 us and 1 ms */
    unsigned rounds;         /**< set to 0 when something happened */
};
void poise_backoff_wait(struct poise_backoff *backoff);
/** Let another thread run: call the context's hook, or yield the processor.
 * Returns whether there was a hook (a thread that has one must not block in the
 * kernel).
 */
POISE_API bool poise_yield(void);
/** Sleep, or yield until the time is over if the context has a hook. */
POISE_API void poise_sleep_ns(uint64_t ns);

#ifdef __cplusplus
}
#endif

#endif
