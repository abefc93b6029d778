/*
 * A worker: takes a task, runs it, publishes what it did. In the common case
 * a task costs one turn of the worker's own lock, which commits the last task
 * and takes the next. Out of work it takes the oldest half of a neighbour's
 * deque, then what was spilled, then waits.
 *
 * Commit. What a running task does is private (results since the last commit,
 * `added`, `sends`) until worker_commit makes all of it part of the job at
 * once, under the worker's lock, together with the new `rest` of the task. So
 * under all worker locks {committed results, queues, rests, inbox, outbox,
 * spill} is the whole job, each piece of work exactly once.
 *
 * When it is over. `busy` counts the workers that may hold or make tasks. A
 * worker leaves it only when its own queue, the inbox and the spill are empty,
 * and enters it before it takes anything; a queue other than the communicator's
 * is filled by busy workers only, and one that hands its queue over stays until
 * the other is busy. So busy == 0 means that no worker has anything; what is
 * queued then came from other ranks, and the communicator, which put it there,
 * is also the one that asks (task_passive).
 *
 * No wake-up is lost. A worker that goes to sleep reads the event's number,
 * counts itself in `asleep`, and then looks for work once more; a thread that
 * makes work visible stores `queued` first and then looks at `asleep`. All four
 * are sequentially consistent, so one of the two sees the other: the sleeper
 * finds the work, or the event is signalled after its number was read and the
 * wait returns at once. In the same way the communicator stores `comm_asleep`
 * and then compares the event's number, and task_signal changes the number and
 * then looks at `comm_asleep`.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** Most that one theft moves inside a rank. */
#define WORKER_STEAL_BYTES ((size_t)256 << 10)
/** Looks for work before going to sleep. */
#define WORKER_SPINS 64
#define WORKER_NAP_NS UINT64_C(200000000)

void task_queue_publish(struct poise_worker *worker)
{
    __atomic_store_n(&worker->queued_bytes, task_deque_bytes(&worker->queue),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&worker->queued, worker->queue.count, __ATOMIC_SEQ_CST);
}

bool task_work_visible(struct poise_pool *pool)
{
    unsigned all = pool->worker_count + pool->dedicated;
    for (unsigned i = 0; i < all; i++) {
        if (__atomic_load_n(&pool->workers[i].queued, __ATOMIC_SEQ_CST) > 0) {
            return true;
        }
    }
    return __atomic_load_n(&pool->inbox_count, __ATOMIC_SEQ_CST) > 0 ||
           __atomic_load_n(&pool->spill.published, __ATOMIC_SEQ_CST) > 0;
}

void task_signal(struct poise_pool *pool)
{
    poise_event_signal(&pool->work);
    if (pool->world && __atomic_load_n(&pool->comm_asleep, __ATOMIC_SEQ_CST)) {
        poise_world_wake(pool->world);
    }
}

static void worker_signal(struct poise_pool *pool)
{
    if (__atomic_load_n(&pool->asleep, __ATOMIC_SEQ_CST) > 0) {
        task_signal(pool);
    }
}

void task_deque_drop(struct poise_pool *pool, struct task_deque *deque)
{
    struct task_record record;
    size_t at = 0;
    while (pool->hooks.drop && task_deque_next(deque, &at, &record)) {
        pool->hooks.drop(record.data, record.len, pool->hooks.arg);
    }
    task_deque_free(deque);
}

/* ---- messages for the hook receive -------------------------------------- */

int task_inbox_push(struct poise_pool *pool, int source, const void *data,
                    size_t len)
{
    pthread_mutex_lock(&pool->inbox_lock);
    int code = task_message_push(&pool->inbox, source, data, len);
    __atomic_store_n(&pool->inbox_count, pool->inbox.count, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&pool->inbox_lock);
    return code;
}

/* Make `bytes` what the worker runs; under its lock. */
static int worker_set_running(struct poise_worker *worker, enum task_kind kind,
                              const void *data, size_t len)
{
    struct task_running *running = &worker->running;
    poise_buf_reset(&worker->task);
    poise_buf_reset(&running->rest);
    /* A task of no bytes, too, deserves an address. */
    if (!poise_buf_reserve(&worker->task, len + 1) ||
        !poise_buf_reserve(&running->rest, len + 1)) {
        return -ENOMEM;
    }
    poise_buf_append(&worker->task, data, len);
    poise_buf_append(&running->rest, data, len);
    running->kind = kind;
    return 0;
}

/* The oldest message for the hook receive becomes the running task. */
static bool worker_take_message(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    if (__atomic_load_n(&pool->inbox_count, __ATOMIC_SEQ_CST) == 0) {
        return false;
    }
    struct task_record record;
    int code = -ENOENT;
    pthread_mutex_lock(&worker->lock);
    pthread_mutex_lock(&pool->inbox_lock);
    if (task_deque_oldest(&pool->inbox, &record)) {
        struct task_message message = task_message_of(&record);
        worker->running.source = message.rank;
        code =
            worker_set_running(worker, TASK_RECEIVE, message.data, message.len);
        if (code == 0) {
            task_deque_pop_oldest(&pool->inbox);
            __atomic_store_n(&pool->inbox_count, pool->inbox.count,
                             __ATOMIC_SEQ_CST);
        }
    }
    pthread_mutex_unlock(&pool->inbox_lock);
    pthread_mutex_unlock(&worker->lock);
    if (code < 0 && code != -ENOENT) {
        task_stop(pool, code);
    }
    return code == 0;
}

/* ---- committing and taking ---------------------------------------------- */

/* Send what was to be sent since the last commit; under the worker's lock. */
static int worker_publish_sends(struct poise_worker *worker)
{
    struct task_record record;
    size_t at = 0;
    int code = 0;
    while (code == 0 && task_deque_next(&worker->sends, &at, &record)) {
        struct task_message message = task_message_of(&record);
        code = task_outbox_push(worker->pool, message.rank, message.data,
                                message.len);
    }
    worker->sends.head = worker->sends.tail = worker->sends.count = 0;
    return code;
}

/* Make everything since the last commit part of the job, at once. Under the
 * worker's lock. A failure may leave half of it done: the pool is stopped
 * before the lock is released, so that no snapshot of that half becomes a
 * checkpoint.
 */
static int worker_commit(struct poise_worker *worker, const void *rest,
                         size_t len)
{
    struct poise_pool *pool = worker->pool;
    struct task_running *running = &worker->running;
    int code = 0;
    if (rest) {
        poise_buf_reset(&running->rest);
        code = poise_buf_append(&running->rest, rest, len);
    }
    size_t bytes = worker->added.tail - worker->added.head;
    if (code == 0 && bytes > 0) {
        code = task_deque_reserve(&worker->queue, bytes);
    }
    if (code == 0 && worker->sends.count > 0) {
        code = worker_publish_sends(worker);
    }
    if (code < 0) {
        return code;
    }
    if (pool->hooks.commit) {
        pool->hooks.commit(worker, pool->hooks.arg);
    }
    running->kind = rest ? TASK_TASK : TASK_NONE;
    task_count(&worker->steps, 1);
    if (bytes > 0) {
        task_deque_append(&worker->added, &worker->queue);
        code = task_spill_check(worker);
        task_queue_publish(worker);
    }
    return code;
}

/* The newest task of the own deque becomes the running one; under the lock. */
static int worker_take(struct poise_worker *worker)
{
    struct task_record record;
    if (!task_deque_newest(&worker->queue, &record)) {
        return 0;
    }
    int code = worker_set_running(worker, TASK_TASK, record.data, record.len);
    if (code < 0) {
        return code;
    }
    task_deque_pop_newest(&worker->queue);
    task_queue_publish(worker);
    return 1;
}

/* After run(): commit, and take the next task in the same turn of the lock,
 * unless something else comes first. Whether there is one. */
static bool worker_finish(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    pthread_mutex_lock(&worker->lock);
    bool pushed = worker->added.count > 0;
    worker->barren = pushed ? 0 : worker->barren + 1;
    int code = worker_commit(worker, NULL, 0);
    if (code == 0 && !pool->hands_back && !pool->master &&
        __atomic_load_n(&pool->inbox_count, __ATOMIC_RELAXED) == 0 &&
        worker->index < __atomic_load_n(&pool->target, __ATOMIC_RELAXED)) {
        code = worker_take(worker);
    }
    if (code < 0) {
        task_stop(pool, code);
    }
    pthread_mutex_unlock(&worker->lock);
    if (code >= 0 && pushed) {
        worker_signal(pool);
    }
    return code > 0;
}

static void worker_run(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    const struct poise_pool_hooks *hooks = &pool->hooks;
    int code = 0;
    task_count(&worker->tasks, 1);
    poise_trace_event(POISE_TRACE_TASK_BEGIN, worker->tasks, worker->task.len,
                      worker->index, 0);
    if (worker->running.kind == TASK_TASK) {
        code =
            hooks->run(worker, worker->task.data, worker->task.len, hooks->arg);
    } else if (hooks->receive) {
        code = hooks->receive(worker, worker->running.source, worker->task.data,
                              worker->task.len, hooks->arg);
    }
    poise_trace_event(POISE_TRACE_TASK_END, worker->tasks, 0, worker->index, 0);
    if (code < 0) {
        task_stop(pool, code);
    }
}

bool task_inbox_run(struct poise_worker *worker)
{
    if (task_state(worker->pool) != TASK_RUNNING ||
        !worker_take_message(worker)) {
        return false;
    }
    worker_run(worker);
    worker_finish(worker);
    return true;
}

/* ---- finding work ------------------------------------------------------- */

/* Take the older half of the victim's deque: how many, or -EBUSY. Both locks
 * are held, the second one by trylock (so no order can be violated), and thus
 * nothing is ever outside all deques, where a snapshot would miss it. */
static ssize_t worker_rob(struct poise_worker *worker,
                          struct poise_worker *victim)
{
    ssize_t got = -EBUSY;
    pthread_mutex_lock(&worker->lock);
    if (pthread_mutex_trylock(&victim->lock) == 0) {
        got =
            task_deque_move(&victim->queue, &worker->queue,
                            (victim->queue.count + 1) / 2, WORKER_STEAL_BYTES);
        task_queue_publish(victim);
        task_queue_publish(worker);
        pthread_mutex_unlock(&victim->lock);
    }
    pthread_mutex_unlock(&worker->lock);
    return got;
}

static bool worker_steal(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    unsigned all = pool->worker_count + pool->dedicated;
    if (all == 1) {
        return false;
    }
    unsigned start = (unsigned)poise_rng_below(&worker->rng, all);
    worker->barred = false;
    for (unsigned i = 0; i < all; i++) {
        struct poise_worker *victim = &pool->workers[(start + i) % all];
        if (victim == worker ||
            __atomic_load_n(&victim->queued, __ATOMIC_SEQ_CST) == 0) {
            continue;
        }
        ssize_t got = worker_rob(worker, victim);
        if (got == -EBUSY) {
            worker->barred = true;
            continue;
        }
        if (got < 0) {
            task_stop(pool, (int)got);
            return false;
        }
        if (got > 0) {
            task_count(&worker->stolen, (uint64_t)got);
            return true;
        }
    }
    return false;
}

/* Something from the own deque, the neighbours or the file becomes the
 * running task. */
static bool worker_find(struct poise_worker *worker)
{
    if (worker_take_message(worker)) {
        return true;
    }
    do {
        pthread_mutex_lock(&worker->lock);
        int code = worker_take(worker);
        pthread_mutex_unlock(&worker->lock);
        if (code < 0) {
            task_stop(worker->pool, code);
            return false;
        }
        if (code > 0) {
            return true;
        }
    } while (worker_steal(worker) || task_spill_load(worker) > 0);
    return false;
}

/* There is work, but under the lock of a thread that may not even be running:
 * let it run, and stay busy, since to come back at once is not to be idle. */
static void worker_stand_back(struct poise_worker *worker)
{
    uint64_t began = poise_clock_ticks();
    poise_yield();
    task_count(&worker->idle_ticks, poise_clock_ticks() - began);
}

/* Wait for something to do. The communicator goes on looking around. */
static void worker_wait(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    for (int i = 0; i < WORKER_SPINS; i++) {
        if (task_work_visible(pool) || task_state(pool) != TASK_RUNNING) {
            return;
        }
        poise_pause();
    }
    for (;;) {
        if (worker->communicates) {
            task_turn(pool);
        }
        uint32_t seen = poise_event_seen(&pool->work);
        __atomic_fetch_add(&pool->asleep, 1, __ATOMIC_SEQ_CST);
        bool stay =
            !task_work_visible(pool) && task_state(pool) == TASK_RUNNING;
        if (stay && worker->communicates) {
            task_comm_wait(pool, seen);
        } else if (stay) {
            poise_event_wait(&pool->work, seen, WORKER_NAP_NS);
        }
        __atomic_fetch_sub(&pool->asleep, 1, __ATOMIC_SEQ_CST);
        if (!stay) {
            return;
        }
    }
}

/* One busy worker less; the last one looks whether it is over. */
static void worker_leave(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    int busy = __atomic_sub_fetch(&pool->busy, 1, __ATOMIC_SEQ_CST);
    if (busy == 0 && pool->size == 1) {
        task_set_state(pool, TASK_ENDED);
    } else if (pool->size > 1 && !worker->communicates &&
               __atomic_load_n(&pool->comm_asleep, __ATOMIC_SEQ_CST)) {
        poise_world_wake(pool->world);
    }
}

static void worker_idle(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    __atomic_store_n(&worker->idle, true, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&worker->queued, __ATOMIC_SEQ_CST) > 0) {
        /* A worker that parks has just handed over its queue. */
        __atomic_store_n(&worker->idle, false, __ATOMIC_SEQ_CST);
        return;
    }
    uint64_t began = poise_clock_ticks();
    uint64_t comm_before = worker->comm_ticks;
    poise_trace_event(POISE_TRACE_IDLE_BEGIN, 0, 0, worker->index, 0);
    __atomic_fetch_add(&pool->hungry, 1, __ATOMIC_SEQ_CST);
    worker_leave(worker);
    worker_wait(worker);
    __atomic_fetch_add(&pool->busy, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&worker->idle, false, __ATOMIC_SEQ_CST);
    __atomic_fetch_sub(&pool->hungry, 1, __ATOMIC_SEQ_CST);
    poise_trace_event(POISE_TRACE_IDLE_END, 0, 0, worker->index, 0);
    task_count(&worker->idle_ticks, poise_clock_ticks() - began -
                                        (worker->comm_ticks - comm_before));
}

static bool worker_beyond(const struct poise_worker *worker)
{
    return worker->index >=
           __atomic_load_n(&worker->pool->target, __ATOMIC_SEQ_CST);
}

/* Move the whole queue to a worker that stays. True when it is empty, and then
 * the worker is parked: from now on no worker hands anything to it. The other
 * must be seen busy with what it got before this one may leave, or no busy
 * worker would answer for these tasks. It must not be parked itself, which it
 * may be whatever its number (the target may just have risen), nor one that was
 * never started. */
static bool worker_hand_over(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    unsigned target = __atomic_load_n(&pool->target, __ATOMIC_SEQ_CST);
    struct poise_worker *heir =
        &pool->workers[poise_rng_below(&worker->rng, target)];
    ssize_t moved = 0;
    bool empty;
    pthread_mutex_lock(&worker->lock);
    if (worker->queue.count > 0 && heir != worker &&
        pthread_mutex_trylock(&heir->lock) == 0) {
        if (!heir->parked) {
            moved = task_deque_move(&worker->queue, &heir->queue, SIZE_MAX,
                                    SIZE_MAX);
            task_queue_publish(worker);
            task_queue_publish(heir);
        }
        pthread_mutex_unlock(&heir->lock);
    }
    empty = worker->queue.count == 0;
    worker->parked = empty;
    pthread_mutex_unlock(&worker->lock);
    if (moved < 0) {
        task_stop(pool, (int)moved);
    }
    if (moved > 0) {
        task_signal(pool);
    }
    while (moved > 0 && task_state(pool) == TASK_RUNNING &&
           __atomic_load_n(&heir->idle, __ATOMIC_SEQ_CST) &&
           __atomic_load_n(&heir->queued, __ATOMIC_SEQ_CST) > 0) {
        poise_sleep_ns(50000);
    }
    return empty;
}

/* The worker counts as busy: others may hand tasks to it. */
static void worker_unpark(struct poise_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    worker->parked = false;
    pthread_mutex_unlock(&worker->lock);
}

bool task_park(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    if (!worker_hand_over(worker)) {
        return false;
    }
    if (__atomic_load_n(&pool->inbox_count, __ATOMIC_SEQ_CST) > 0 ||
        __atomic_load_n(&pool->spill.published, __ATOMIC_SEQ_CST) > 0) {
        worker_unpark(worker);
        return false;
    }
    uint64_t began = poise_clock_ticks();
    worker_leave(worker);
    while (worker_beyond(worker) && task_state(pool) == TASK_RUNNING) {
        uint32_t seen = poise_event_seen(&pool->unpark);
        if (worker_beyond(worker) && task_state(pool) == TASK_RUNNING) {
            poise_event_wait(&pool->unpark, seen, WORKER_NAP_NS);
        }
    }
    __atomic_fetch_add(&pool->busy, 1, __ATOMIC_SEQ_CST);
    worker_unpark(worker);
    task_count(&worker->idle_ticks, poise_clock_ticks() - began);
    return true;
}

static void *worker_main(void *arg)
{
    const struct poise_worker *worker = arg;
    char name[32];
    snprintf(name, sizeof name, "worker %u", worker->index);
    poise_trace_name(name);
    task_worker_loop(arg);
    return NULL;
}

int task_worker_start(struct poise_worker *worker)
{
    __atomic_fetch_add(&worker->pool->busy, 1, __ATOMIC_SEQ_CST);
    int code = pthread_create(&worker->thread, NULL, worker_main, worker);
    worker->started = code == 0;
    if (code) {
        worker_leave(worker);
    }
    return -code;
}

void task_worker_loop(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    bool have = false;
    __atomic_store_n(&worker->thread_id, gettid(), __ATOMIC_RELAXED);
    __atomic_store_n(&worker->begin_ticks, poise_clock_ticks(),
                     __ATOMIC_RELAXED);
    worker_unpark(worker);
    for (;;) {
        task_turn_if_due(worker);
        if (task_state(pool) != TASK_RUNNING) {
            break;
        }
        if (!have && worker_beyond(worker) && task_park(worker)) {
            continue;
        }
        if (have || worker_find(worker)) {
            size_t before = pool->hands_back ? worker->queue.count : 0;
            worker_run(worker);
            have = worker_finish(worker);
            if (pool->hands_back) {
                task_hand_back(worker, before);
            }
        } else if (worker->barred) {
            worker_stand_back(worker);
        } else {
            worker_idle(worker);
        }
    }
    if (have && pool->hooks.drop) {
        pool->hooks.drop(worker->task.data, worker->task.len, pool->hooks.arg);
    }
    __atomic_store_n(&worker->end_ticks, poise_clock_ticks(), __ATOMIC_RELAXED);
}

/* ---- what callbacks use ------------------------------------------------- */

unsigned poise_worker_index(const struct poise_worker *worker)
{
    return worker->index;
}

struct poise_pool *poise_worker_pool(struct poise_worker *worker)
{
    return worker->pool;
}

int poise_task_add(struct poise_worker *worker, const void *task, size_t len,
                   size_t footprint_bytes)
{
    return task_deque_push(&worker->added, task, len, footprint_bytes);
}

int poise_task_commit(struct poise_worker *worker, const void *rest, size_t len)
{
    pthread_mutex_lock(&worker->lock);
    bool pushed = worker->added.count > 0;
    int code = worker_commit(worker, rest, len);
    if (code < 0) {
        task_stop(worker->pool, code);
    }
    pthread_mutex_unlock(&worker->lock);
    if (code >= 0 && pushed) {
        worker_signal(worker->pool);
    }
    return code;
}

int poise_task_poll(struct poise_worker *worker)
{
    task_count(&worker->steps, 1);
    task_turn_if_due(worker);
    return task_state(worker->pool) != TASK_RUNNING;
}

bool poise_task_wanted(const struct poise_worker *worker)
{
    return __atomic_load_n(&worker->pool->hungry, __ATOMIC_RELAXED) > 0;
}

void poise_task_stop(struct poise_worker *worker, int value)
{
    task_stop(worker->pool, value);
}

int poise_task_send(struct poise_worker *worker, int rank, const void *data,
                    size_t len)
{
    if (rank < 0 || rank >= worker->pool->size) {
        return poise_error_set(EINVAL, "send a message", NULL, "no rank %d",
                               rank);
    }
    return task_message_push(&worker->sends, rank, data, len);
}

void poise_task_account(struct poise_worker *worker, unsigned category,
                        uint64_t ticks)
{
    if (category < 8) {
        task_count(&worker->account_ticks[category], ticks);
    }
}
