/*
 * Ranks that run, wait and wake each other.
 *
 * A worker keeps its ready ranks in queues that only it touches. A rank that
 * yields or parks switches straight to the next one; the worker's own stack,
 * `engine`, is entered only when there is none, when a rank has ended, and when
 * the run is over.
 *
 * How a rank's `state` changes, atomically where there are several workers, and
 * what changes it:
 *
 *   RUNS   -> PARKED  the rank, in park
 *   RUNS   -> PERMIT  any thread, in unpark
 *   PERMIT -> RUNS    the rank, in park, which then returns at once
 *   PARKED -> RUNS    any thread, in unpark, which then puts it among the ready
 *   any    -> ENDED   the rank, at its end; it stays so
 *
 * So a wake-up is not lost: it comes before the rank is parked and leaves the
 * permit, or after and makes it ready. And a rank is in one queue at most: only
 * the one call that changed PARKED to RUNS puts it there, and may use `next`.
 * Both changes of unpark release, and park acquires, hence a rank sees after
 * park what was written before the unpark.
 *
 * A rank is PARKED before it has left its stack. Another worker that wakes it
 * then puts it into the inbox of its own worker, which looks there only after
 * the switch, or goes on with it without one.
 *
 * The inbox is a stack of ranks linked by `next`: others push by compare and
 * exchange, only the owner takes, and takes it whole, so that no rank is popped
 * while another push reads its link. `engine` in it means "look around".
 */
#include "internal.h"

#include <poise/trace.h>

#include <sched.h>
#include <time.h>

#if defined(__SANITIZE_THREAD__)
#define SCHED_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SCHED_TSAN 1
#endif
#endif
#include <pthread.h>
/* Of AddressSanitizer: there if this is compiled with it, or if it was loaded
 * for a program that is. */
extern void __sanitizer_start_switch_fiber(void **save, const void *bottom,
                                           size_t bytes) __attribute__((weak));
extern void __sanitizer_finish_switch_fiber(void *save, const void **bottom,
                                            size_t *bytes)
    __attribute__((weak));
#ifdef SCHED_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/** Switches after which a worker looks for messages and timers. */
#define SCHED_BUDGET 64
/** The same in time, where other processes may have sent something: a rank that
 * computes for long must not keep others from a message that has come. */
#define SCHED_LOOK_NS 20000
/** Polls that find nothing after which other processes get the processor: where
 * there are more of them than processors, what is polled for comes from one. */
#define SCHED_POLLS 64
/** Rounds in which a spin lock hopes before it gives up the processor; as many
 * in which it does so at once; then it sleeps. */
#define SCHED_SPINS 100
#define SCHED_SPIN_SLEEP_NS 50000

_Thread_local struct vrank_worker *vrank_here
    __attribute__((tls_model("initial-exec")));
bool vrank_concurrent;

/* The kernel's yield and not poise_yield, which would run another rank here:
 * this one may be half-way through a switch, or hold another lock. */
void vrank_spin_slow(struct vrank_spin *spin)
{
    for (int i = 0;; i++) {
        if (__atomic_load_n(&spin->held, __ATOMIC_RELAXED) == 0 &&
            __atomic_exchange_n(&spin->held, 1, __ATOMIC_ACQUIRE) == 0) {
            return;
        }
        if (i < SCHED_SPINS) {
            poise_pause();
        } else if (i < 2 * SCHED_SPINS) {
            sched_yield();
        } else {
            nanosleep(&(struct timespec){.tv_nsec = SCHED_SPIN_SLEEP_NS}, NULL);
        }
    }
}

/* ---- queues ------------------------------------------------------------- */

static void queue_push(struct vrank_queue *queue, struct vrank *rank)
{
    rank->next = NULL;
    if (queue->head == NULL) {
        queue->head = rank;
    } else {
        queue->tail->next = rank;
    }
    queue->tail = rank;
}

static void queue_push_front(struct vrank_queue *queue, struct vrank *rank)
{
    rank->next = queue->head;
    if (queue->head == NULL) {
        queue->tail = rank;
    }
    queue->head = rank;
}

static struct vrank *queue_pop(struct vrank_queue *queue)
{
    struct vrank *rank = queue->head;
    if (rank != NULL) {
        queue->head = rank->next;
    }
    return rank;
}

static struct vrank *sched_pop(struct vrank_worker *worker)
{
    struct vrank *rank = queue_pop(&worker->ready[0]);
    return rank != NULL ? rank : queue_pop(&worker->ready[1]);
}

/* sched_ready where there is more to it than the queue. */
static __attribute__((noinline)) void
sched_ready_watched(struct vrank_worker *worker, struct vrank *rank)
{
    const struct vrank_job *job = &vrank_engine->job;
    enum poise_vrank_policy policy = job->policy;
    if (worker->watch & VRANK_WATCH_PROFILE) {
        job->profile_ops->wake(job->profile, rank,
                               (enum vrank_cause)worker->cause);
    }
    if (policy == POISE_VRANK_UNBLOCKED) {
        queue_push_front(&worker->ready[1], rank);
    } else if (policy == POISE_VRANK_PRIORITY && rank->is_urgent) {
        queue_push(&worker->ready[0], rank);
    } else if (rank->context != NULL && policy != POISE_VRANK_PRIORITY &&
               job->swap->is_resident(rank->context)) {
        /* Before another takes its place in memory. */
        queue_push(&worker->ready[0], rank);
    } else {
        queue_push(&worker->ready[1], rank);
    }
}

/* A rank of this worker was woken. */
static inline void sched_ready(struct vrank_worker *worker, struct vrank *rank)
{
    worker->wakes++;
    if (__builtin_expect((worker->watch & VRANK_WATCH_READY) != 0, 0)) {
        sched_ready_watched(worker, rank);
    } else {
        queue_push(&worker->ready[1], rank);
    }
}

void vrank_prioritize(struct vrank *rank)
{
    if (vrank_engine->job.urgent == NULL) {
        rank->is_urgent = true;
    }
}

/* ---- serialisation ------------------------------------------------------ */

/* Wait until few enough other workers compute. */
static void sched_take_turn(struct vrank_worker *worker)
{
    struct vrank_engine *engine = vrank_engine;
    if ((worker->watch & VRANK_WATCH_TURN) != 0 ||
        engine->job.policy != POISE_VRANK_SERIAL ||
        engine->job.threads <= engine->job.serial) {
        return;
    }
    __atomic_fetch_add(&engine->turn_waiters, 1, __ATOMIC_SEQ_CST);
    for (;;) {
        uint32_t seen = poise_event_seen(&engine->turn_event);
        uint32_t taken =
            __atomic_load_n(&engine->workers_computing, __ATOMIC_SEQ_CST);
        while (taken < (uint32_t)engine->job.serial &&
               !__atomic_compare_exchange_n(&engine->workers_computing, &taken,
                                            taken + 1, false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_SEQ_CST)) {
        }
        if (taken < (uint32_t)engine->job.serial) {
            break;
        }
        poise_event_wait(&engine->turn_event, seen, UINT64_MAX);
    }
    __atomic_fetch_sub(&engine->turn_waiters, 1, __ATOMIC_SEQ_CST);
    worker->watch |= VRANK_WATCH_TURN;
}

static void sched_end_turn(struct vrank_worker *worker)
{
    struct vrank_engine *engine = vrank_engine;
    if (worker->watch & VRANK_WATCH_TURN) {
        worker->watch &= ~(uint32_t)VRANK_WATCH_TURN;
        __atomic_fetch_sub(&engine->workers_computing, 1, __ATOMIC_SEQ_CST);
        poise_event_signal(&engine->turn_event);
    }
}

/* Whether another worker should have its turn before the next rank of this
 * one. */
static bool sched_must_pass(const struct vrank_worker *worker)
{
    return (worker->watch & VRANK_WATCH_TURN) != 0 &&
           __atomic_load_n(&vrank_engine->turn_waiters, __ATOMIC_RELAXED) > 0;
}

/* ---- the inbox ---------------------------------------------------------- */

bool sched_inbox_filled(const struct vrank_worker *worker)
{
    return __atomic_load_n(&worker->inbox, __ATOMIC_SEQ_CST) != NULL;
}

void sched_inbox_push(struct vrank_worker *worker, struct vrank *rank)
{
    struct vrank *head = __atomic_load_n(&worker->inbox, __ATOMIC_RELAXED);
    do {
        rank->next = head;
    } while (!__atomic_compare_exchange_n(&worker->inbox, &head, rank, true,
                                          __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    /* See idle.c: the worker looks in the other order. */
    if (__atomic_load_n(&worker->idle, __ATOMIC_SEQ_CST) != 0) {
        const struct vrank_job *job = &vrank_engine->job;
        if (worker->number == 0 && job->mpi != NULL && job->mpi->wake != NULL) {
            job->mpi->wake(job->arg);
        } else {
            poise_event_signal(&worker->event);
        }
    }
}

/* Take everything out of the inbox, oldest first. */
static void sched_inbox_take(struct vrank_worker *worker)
{
    struct vrank *newest =
        __atomic_exchange_n(&worker->inbox, NULL, __ATOMIC_ACQUIRE);
    struct vrank *oldest = NULL;
    while (newest != NULL) {
        struct vrank *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct vrank *next = oldest->next;
        if (oldest == &worker->engine) {
            __atomic_store_n(&oldest->state, VRANK_RUNS, __ATOMIC_RELEASE);
        } else {
            sched_ready(worker, oldest);
        }
        oldest = next;
    }
}

/* Take in what others have woken, fire timers, make progress. */
static void sched_attend(struct vrank_worker *worker)
{
    const struct vrank_job *job = &vrank_engine->job;
    /* Coscheduling: look for messages before any computation. */
    worker->budget = job->policy == POISE_VRANK_COSCHEDULE ? 1 : SCHED_BUDGET;
    if (worker->watch & VRANK_WATCH_CLOCK) {
        worker->look_due =
            poise_clock_ticks() + poise_clock_ns_to_ticks(SCHED_LOOK_NS);
    }
    if (worker->number == 0 && job->mpi != NULL && job->mpi->progress != NULL) {
        worker->cause = VRANK_BY_NETWORK;
        job->mpi->progress(job->arg);
    }
    if (worker->timer_count > 0) {
        uint64_t wakes = worker->wakes;
        worker->cause = VRANK_BY_TIME;
        timer_fire(worker);
        worker->wakes = wakes;
    }
    worker->cause = VRANK_BY_RANK;
    if (sched_inbox_filled(worker)) {
        sched_inbox_take(worker);
    }
    if (worker->polls != worker->polls_seen) {
        poll_look(worker);
    }
}

/* ---- switching ---------------------------------------------------------- */

/* On a new stack and after every jump. */
static void sched_arrive(struct vrank *rank)
{
    if (__builtin_expect(__sanitizer_finish_switch_fiber != NULL, 0)) {
        __sanitizer_finish_switch_fiber(rank->fake_stack, NULL, NULL);
    }
}

/* That `from` ran, and whether it waits now. */
static __attribute__((noinline)) void sched_record(struct vrank_worker *worker,
                                                   const struct vrank *from)
{
    uint64_t now = poise_clock_ticks();
    if (from != &worker->engine && worker->slice_ticks != 0) {
        poise_trace_put(poise_trace_ring(), POISE_TRACE_RUN,
                        (uint64_t)from->number, worker->slice_ticks, now,
                        from->why != NULL, 0);
    }
    worker->slice_ticks = now;
}

/* `told` is a constant wherever this is inlined: the two questions whether
 * AddressSanitizer is there would cost a tenth of a switch. */
static inline __attribute__((always_inline)) void
sched_jump(struct vrank_worker *worker, struct vrank *from, struct vrank *to,
           bool told)
{
    from->saved_errno = *worker->errno_at;
    from->exceptions = *worker->exceptions_at;
    poise_ctx_swap(to->ctx);
    worker->running = to;
    worker->switches++;
    if (told) {
        __sanitizer_start_switch_fiber(
            worker->leaving == from ? NULL : &from->fake_stack, to->stack,
            to->stack_bytes);
    }
#ifdef SCHED_TSAN
    __tsan_switch_to_fiber(to->fiber, 0);
#endif
    vrank_jump(&from->sp, to->sp);
    if (told) {
        sched_arrive(from);
    }
    *worker->errno_at = from->saved_errno;
    *worker->exceptions_at = from->exceptions;
}

static __attribute__((noinline)) void
sched_switch(struct vrank_worker *worker, struct vrank *from, struct vrank *to)
{
    if ((worker->watch & VRANK_WATCH_TRACE) != 0) {
        sched_record(worker, from);
    }
    if ((worker->watch & VRANK_WATCH_FIBERS) != 0) {
        sched_jump(worker, from, to, true);
    } else {
        sched_jump(worker, from, to, false);
    }
}

static void sched_entry(void)
{
    struct vrank_worker *worker = vrank_here;
    struct vrank *self = worker->running;
    sched_arrive(self);
    *worker->errno_at = 0;
    *worker->exceptions_at = (struct vrank_exceptions){0};
    engine_rank_main(self);
    sched_leave(worker);
}

void vrank_waited_for_disk(uint64_t ns)
{
    struct vrank_worker *worker = vrank_here;
    const struct vrank_job *job = &vrank_engine->job;
    if (worker != NULL && (worker->watch & VRANK_WATCH_PROFILE) != 0 &&
        worker->running != &worker->engine) {
        job->profile_ops->disk(job->profile, worker->running, ns);
    }
}

_Noreturn void sched_leave(struct vrank_worker *worker)
{
    struct vrank *self = worker->running;
    const struct vrank_job *job = &vrank_engine->job;
    if (self->context != NULL) {
        job->swap->retire(self->context);
    }
    if (worker->watch & VRANK_WATCH_PROFILE) {
        job->profile_ops->finish(job->profile, self);
    }
    __atomic_store_n(&self->state, VRANK_ENDED, __ATOMIC_RELEASE);
    worker->left--;
    worker->leaving = self;
    sched_switch(worker, self, &worker->engine);
    __builtin_unreachable();
}

/* sched_next where it is watched, or other workers want their turn. */
static __attribute__((noinline)) void
sched_next_watched(struct vrank_worker *worker, struct vrank *self)
{
    const struct vrank_job *job = &vrank_engine->job;
    bool profiled = (worker->watch & VRANK_WATCH_PROFILE) != 0;
    if (profiled) {
        job->profile_ops->pause(job->profile, self, self->why != NULL);
    }
    if (--worker->budget == 0 ||
        __atomic_load_n(&worker->inbox, __ATOMIC_RELAXED) != NULL ||
        ((worker->watch & VRANK_WATCH_CLOCK) != 0 &&
         poise_clock_ticks() >= worker->look_due)) {
        sched_attend(worker);
    }
    bool halted = __atomic_load_n(&vrank_engine->halted, __ATOMIC_RELAXED) != 0;
    struct vrank *next =
        halted || sched_must_pass(worker) ? NULL : sched_pop(worker);
    if (next == NULL) {
        next = &worker->engine;
    } else if (profiled) {
        job->profile_ops->resume(job->profile, next);
    }
    if (next != self) {
        sched_switch(worker, self, next);
    }
}

/* Leave the processor to the next rank; back when `self` was chosen again. */
static inline void sched_switch_next(struct vrank_worker *worker,
                                     struct vrank *self)
{
    if (__builtin_expect((worker->watch & VRANK_WATCH_NEXT) != 0, 0)) {
        sched_next_watched(worker, self);
        return;
    }
    if (__builtin_expect(
            --worker->budget == 0 ||
                __atomic_load_n(&worker->inbox, __ATOMIC_RELAXED) != NULL,
            0)) {
        sched_attend(worker);
        if (__atomic_load_n(&vrank_engine->halted, __ATOMIC_RELAXED) != 0) {
            sched_switch(worker, self, &worker->engine);
            return;
        }
    }
    struct vrank *next = sched_pop(worker);
    if (next == NULL) {
        next = &worker->engine;
    }
    if (next != self) {
        /* Of thousands of ranks each has its stack in another place of memory,
         * whose address takes long to translate: begin one rank ahead. */
        const struct vrank *after = worker->ready[1].head;
        if (after != NULL) {
            __builtin_prefetch(after->sp, 1);
        }
        sched_jump(worker, self, next, false);
    }
}

/* While this rank runs the context of the next may come. */
static void sched_prefetch_next(const struct vrank_worker *worker)
{
    const struct vrank *next = worker->ready[0].head;

    next = next != NULL ? next : worker->ready[1].head;
    if (next != NULL && next->context != NULL) {
        vrank_engine->job.swap->prefetch(next->context);
    }
}

/* The same with the rank's context, which may go to disk meanwhile. */
static __attribute__((noinline)) void
sched_next_swapped(struct vrank_worker *worker, struct vrank *self)
{
    const struct vrank_swap_ops *swap = vrank_engine->job.swap;
    swap->suspend(self->context);
    sched_switch_next(worker, self);
    swap->resume(self->context);
    sched_prefetch_next(worker);
}

static inline void sched_next(struct vrank_worker *worker, struct vrank *self)
{
    if (__builtin_expect(self->context != NULL, 0)) {
        sched_next_swapped(worker, self);
    } else {
        sched_switch_next(worker, self);
    }
}

_Noreturn void sched_stop(struct vrank_worker *worker)
{
    for (;;) {
        sched_switch(worker, worker->running, &worker->engine);
    }
}

void vrank_yield(void)
{
    struct vrank_worker *worker = vrank_here;
    if (worker == NULL || worker->running == &worker->engine) {
        return;
    }
    struct vrank *self = worker->running;
    queue_push(&worker->ready[1], self);
    sched_next(worker, self);
}

void vrank_poll(const char *why)
{
    struct vrank_worker *worker = vrank_here;
    if (worker != NULL) {
        worker->polls++;
        worker->poll_why = why;
        if (worker->polls % SCHED_POLLS == 0) {
            sched_yield();
        }
    }
    vrank_yield();
}

void vrank_polled(void)
{
    if (vrank_here != NULL) {
        vrank_here->wakes++;
    }
}

/* Take the permit that is there, or else say that the rank waits. */
static bool sched_take_permit(struct vrank *self)
{
    uint32_t was = VRANK_RUNS;
    if (!vrank_concurrent) {
        was = self->state;
        self->state = was == VRANK_PERMIT ? VRANK_RUNS : VRANK_PARKED;
        return was == VRANK_PERMIT;
    }
    if (__atomic_compare_exchange_n(&self->state, &was, VRANK_PARKED, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        return false;
    }
    /* An exchange: what the rank looks at next must be read after this, or a
     * permit written in between was overwritten and what it was for, not seen.
     */
    __atomic_exchange_n(&self->state, VRANK_RUNS, __ATOMIC_ACQ_REL);
    return true;
}

void vrank_park(const char *why)
{
    struct vrank_worker *worker = vrank_here;
    struct vrank *self = worker->running;
    if (sched_take_permit(self)) {
        return;
    }
    self->why = why;
    sched_next(worker, self);
    self->why = NULL;
}

void vrank_park_until(const char *why, uint64_t deadline_ns)
{
    struct vrank_worker *worker = vrank_here;
    struct vrank *self = worker->running;
    if (sched_take_permit(self)) {
        return;
    }
    self->why = why;
    self->deadline_ns = deadline_ns;
    timer_add(worker, self);
    sched_next(worker, self);
    timer_remove(worker, self);
    self->why = NULL;
}

void vrank_unpark(struct vrank *rank)
{
    struct vrank_worker *worker = rank->worker;
    if (!vrank_concurrent) {
        if (rank->state == VRANK_PARKED) {
            rank->state = VRANK_RUNS;
            sched_ready(worker, rank);
        } else if (rank->state == VRANK_RUNS) {
            rank->state = VRANK_PERMIT;
        }
        return;
    }
    uint32_t was = __atomic_load_n(&rank->state, __ATOMIC_RELAXED);
    uint32_t now;
    do {
        if (was == VRANK_ENDED) {
            return;
        }
        /* A permit that is there is written again: the rank that takes it must
         * see what the caller did before. */
        now = was == VRANK_PARKED ? VRANK_RUNS : VRANK_PERMIT;
    } while (!__atomic_compare_exchange_n(&rank->state, &was, now, true,
                                          __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    if (now == VRANK_PERMIT) {
        return;
    }
    if (worker == vrank_here) {
        sched_ready(worker, rank);
    } else {
        const struct vrank_job *job = &vrank_engine->job;
        if (job->profile_ops != NULL) {
            job->profile_ops->post(job->profile, rank,
                                   vrank_here != NULL
                                       ? (enum vrank_cause)vrank_here->cause
                                       : VRANK_BY_RANK);
        }
        sched_inbox_push(worker, rank);
    }
}

/* ---- a worker's life ---------------------------------------------------- */

void sched_rank_init(struct vrank *rank, struct vrank_worker *worker, void *top)
{
    rank->worker = worker;
    rank->timer = -1;
    rank->sp = vrank_prepare(top, sched_entry);
#ifdef SCHED_TSAN
    rank->fiber = __tsan_create_fiber(0);
#endif
    queue_push(&worker->ready[1], rank);
    worker->left++;
}

void sched_rank_free(struct vrank *rank)
{
#ifdef SCHED_TSAN
    if (rank->fiber != NULL) {
        __tsan_destroy_fiber(rank->fiber);
        rank->fiber = NULL;
    }
#endif
    poise_ctx_destroy(rank->ctx);
    rank->ctx = NULL;
}

/* The kernel thread as the context that ranks are entered from. */
static void sched_enter(struct vrank_worker *worker)
{
    struct vrank *engine = &worker->engine;
    engine->number = -1;
    pthread_attr_t attr;
    if (poise_trace_is_on()) {
        worker->watch |= VRANK_WATCH_TRACE;
    }
    if (__sanitizer_start_switch_fiber != NULL) {
        worker->watch |= VRANK_WATCH_FIBERS;
        if (pthread_getattr_np(pthread_self(), &attr) == 0) {
            pthread_attr_getstack(&attr, &engine->stack, &engine->stack_bytes);
            pthread_attr_destroy(&attr);
        }
    }
#ifdef SCHED_TSAN
    engine->fiber = __tsan_get_current_fiber();
#endif
    worker->running = engine;
    vrank_here = worker;
}

void sched_worker_run(struct vrank_worker *worker)
{
    const struct vrank_job *job = &vrank_engine->job;
    sched_enter(worker);
    while (__atomic_load_n(&vrank_engine->halted, __ATOMIC_ACQUIRE) == 0) {
        sched_attend(worker);
        struct vrank *next = sched_pop(worker);
        if (next != NULL) {
            sched_take_turn(worker);
            if (worker->watch & VRANK_WATCH_PROFILE) {
                job->profile_ops->resume(job->profile, next);
            }
            sched_switch(worker, &worker->engine, next);
            if (worker->leaving != NULL) {
                sched_rank_free(worker->leaving);
                worker->leaving = NULL;
            }
            sched_end_turn(worker);
        } else if (engine_done(worker)) {
            break;
        } else {
            worker->cause = VRANK_BY_NETWORK;
            if (job->profile_ops != NULL) {
                job->profile_ops->worker_idle(job->profile, worker->number,
                                              true);
            }
            idle_wait(worker);
            if (job->profile_ops != NULL) {
                job->profile_ops->worker_idle(job->profile, worker->number,
                                              false);
            }
        }
    }
    vrank_here = NULL;
}
