/*
 * Switches that move nothing. A rank that waits and goes on over and over, an
 * allreduce in a loop, touches nothing of its context: then a switch must not
 * cost a lock, nor a look at what was touched.
 *
 * A worker is quick from the end of a slow switch on, whose rank needs nothing
 * next, until anybody wants to know what is in memory (quick_stop). Ranks that
 * are `quick` are resumed and suspended without the lock. So the worker has a
 * lease for all that any of them may touch, and one of them at a time may use
 * it: what two of them touched before it is noticed is bounded by the time
 * until the worker looks (QUICK_NS). It asks the kernel for nothing but whether
 * its thread had page faults since. If not, nothing came; if so, it is slow
 * again, and all that ran are looked at. Nothing but the count of the memory
 * rests on that: a context that ran is `unseen`, and before anything is done
 * with it its pages are looked at themselves.
 *
 * A quick switch is some loads and stores between quick_enter and quick_leave.
 * Who stops a worker forbids them all (`claims`), has the kernel put a barrier
 * into all threads (membarrier), and waits until it is not inside.
 */
#include "internal.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What may be touched unnoticed for so long is little: at 20 GB/s a megabyte.
 */
#define QUICK_NS 50000

/* Contexts that ran and were not looked at, of a worker. */
enum { QUICK_RAN = 128 };

struct quick {
    int inside;              /* atomic */
    bool on;                 /* changes under the lock */
    struct context *running; /* by a quick switch, or NULL */
    uint64_t lease;          /* of the budget */
    uint64_t until;          /* ticks: when to look next */
    long faults;             /* of the thread, the last time */
    int ran_count;
    struct context *ran[QUICK_RAN]; /* since then */
} __attribute__((aligned(64)));

/* ---- between worker and others ------------------------------------------ */

/* What is stored before is seen by who has had quick_barrier, and what is
 * loaded behind is what that stored. */
static inline void quick_gate(struct contexts *all)
{
#ifdef __SANITIZE_THREAD__
    __atomic_add_fetch(&all->gates, 1, __ATOMIC_ACQ_REL);
#else
    (void)all;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
}

static void quick_barrier(struct contexts *all)
{
#ifdef __SANITIZE_THREAD__
    __atomic_add_fetch(&all->gates, 1, __ATOMIC_ACQ_REL);
#else
    (void)all;
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
#endif
}

static inline void quick_leave(struct quick *quick)
{
    __atomic_store_n(&quick->inside, 0, __ATOMIC_RELEASE);
}

static inline bool quick_enter(struct contexts *all, struct quick *quick)
{
    __atomic_store_n(&quick->inside, 1, __ATOMIC_RELAXED);
    quick_gate(all);
    if (__builtin_expect(__atomic_load_n(&all->claims, __ATOMIC_ACQUIRE) == 0,
                         1)) {
        return true;
    }
    quick_leave(quick);
    return false;
}

/* ---- begin and end ------------------------------------------------------ */

int quick_begin(struct contexts *all)
{
    /* Each look at everything is what these are for. */
    if (all->always || all->whole ||
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0,
                0) != 0) {
        return 0;
    }
    size_t bytes = (size_t)all->threads * sizeof *all->quicks;
    all->quicks = poise_fault_check(POISE_FAULT_ALLOC) == 0
                      ? aligned_alloc(__alignof__(struct quick), bytes)
                      : NULL;
    if (all->quicks == NULL) {
        return poise_error_set(ENOMEM, "allocate memory", NULL, NULL);
    }
    memset(all->quicks, 0, bytes);
    all->quick_ticks = poise_clock_ns_to_ticks(QUICK_NS);
    return 0;
}

void quick_end(struct contexts *all)
{
    free(all->quicks);
}

static struct quick *quick_here(const struct contexts *all)
{
    return all->quicks != NULL && vrank_here != NULL
               ? &all->quicks[vrank_here->number]
               : NULL;
}

/* ---- quick switches ----------------------------------------------------- */

bool quick_resume(struct contexts *all, struct context *context)
{
    struct quick *quick = quick_here(all);

    if (quick == NULL || !quick_enter(all, quick)) {
        return false;
    }
    bool can = quick->on && context->quick && context->need <= quick->lease;
    if (can) {
        quick->running = context;
        context->active = true;
    }
    quick_leave(quick);
    return can;
}

static long quick_faults(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_THREAD, &usage) == 0
               ? usage.ru_minflt + usage.ru_majflt
               : -1;
}

/* Whether nothing came since this worker looked. */
static __attribute__((noinline)) bool quick_look(const struct contexts *all,
                                                 struct quick *quick)
{
    if (quick_faults() != quick->faults) {
        return false;
    }
    for (int i = 0; i < quick->ran_count; i++) {
        quick->ran[i]->ran = false;
    }
    quick->ran_count = 0;
    quick->until = poise_clock_ticks() + all->quick_ticks;
    return true;
}

bool quick_suspend(struct contexts *all, struct context *context)
{
    struct quick *quick = quick_here(all);
    const struct heap *heap = &context->heap;

    if (quick == NULL || !quick_enter(all, quick)) {
        return false;
    }
    bool can =
        quick->on && quick->running == context &&
        heap->changes == context->range_changes &&
        heap->drops == context->range_drops &&
        ((poise_clock_ticks() < quick->until && quick->ran_count < QUICK_RAN) ||
         quick_look(all, quick)) &&
        phase_skip(context);
    if (can) {
        context->unseen = true;
        if (!context->ran) {
            context->ran = true;
            quick->ran[quick->ran_count++] = context;
        }
        context->active = false;
        quick->running = NULL;
    }
    quick_leave(quick);
    return can;
}

/* ---- under the lock ----------------------------------------------------- */

void quick_allow(struct contexts *all, struct context *context)
{
    struct quick *quick = quick_here(all);
    uint64_t most = context_most(context);

    if (quick == NULL || context->keeps_resident || context->opens > 0 ||
        context->pending != NULL || !phase_is_empty(context)) {
        return;
    }
    context->need = most > context->held ? most - context->held : 0;
    context->worker = vrank_here->number;
    context->quick = true;
    if (context->need > quick->lease) {
        all->used_bytes += context->need - quick->lease;
        all->leased_bytes += context->need - quick->lease;
        quick->lease = context->need;
    }
    if (quick->ran_count == 0) {
        quick->faults = quick_faults();
        quick->until = poise_clock_ticks() + all->quick_ticks;
    }
    quick->on = true;
}

/* Its pages are looked at, if it may have touched some. Whether the lock was
 * let go for that. */
static bool quick_see(struct contexts *all, struct context *context)
{
    if (!context->unseen || context->busy || context->opens > 0 ||
        context->is_retired) {
        return false;
    }
    context_occupy(all, context);
    context_see(all, context);
    context_enlist(all, context);
    context_free_up(all, context);
    return true;
}

/* The rank that runs has its context open as any other does. */
static void quick_open(struct contexts *all, struct quick *quick)
{
    struct context *context = quick->running;

    quick->running = NULL;
    if (context != NULL) {
        context_unlist(all, context);
        context->quick = false;
        context->opens++;
        all->open_count++;
        context->lease = context->need;
        quick->lease -= context->need;
    }
}

/* Whether the lock was let go. */
static bool quick_stop_one(struct contexts *all, struct quick *quick)
{
    bool own = quick == quick_here(all), let_go = false;

    if (!quick->on) {
        return false;
    }
    if (!own) {
        __atomic_store_n(&all->claims, 1, __ATOMIC_RELAXED);
        quick_barrier(all);
        while (__atomic_load_n(&quick->inside, __ATOMIC_ACQUIRE) != 0) {
            sched_yield();
        }
    }
    quick->on = false;
    quick_open(all, quick);
    all->used_bytes -= quick->lease;
    all->leased_bytes -= quick->lease;
    quick->lease = 0;
    if (!own) {
        __atomic_store_n(&all->claims, 0, __ATOMIC_RELEASE);
    } else if (quick_look(all, quick)) {
        return false;
    }
    /* The worker may be quick again whenever the lock is let go. */
    while (!quick->on && quick->ran_count > 0) {
        struct context *context = quick->ran[--quick->ran_count];
        context->ran = false;
        let_go |= quick_see(all, context);
    }
    return let_go;
}

bool quick_stop(struct contexts *all)
{
    bool any = false;

    for (int i = 0; all->quicks != NULL && i < all->threads; i++) {
        any |= all->quicks[i].on;
        quick_stop_one(all, &all->quicks[i]);
    }
    return any;
}

void quick_drain(struct contexts *all)
{
    struct quick *quick = quick_here(all);

    if (quick != NULL && quick->on && quick->ran_count > 0) {
        quick_look(all, quick);
    }
}

bool quick_claim(struct contexts *all, struct context *context)
{
    bool let_go = false;

    while (context->quick) {
        struct quick *quick = &all->quicks[context->worker];
        let_go |= quick_stop_one(all, quick);
        if (!quick->on) {
            context->quick = false;
        }
    }
    return quick_see(all, context) || let_go;
}

void quick_stop_here(struct contexts *all)
{
    struct quick *quick = quick_here(all);

    if (quick != NULL) {
        quick_stop_one(all, quick);
    }
}
