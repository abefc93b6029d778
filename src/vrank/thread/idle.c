/*
 * A worker without a rank that can run: it waits to be woken, or finds that
 * nothing will ever happen again.
 *
 * No wake-up is lost: a worker sets `idle` and then looks into its inbox;
 * others put something into the inbox and then look at `idle`, all of it
 * sequentially consistent. So either the worker sees what was put there, or
 * the other sees that it has to signal the event, whose count the worker took
 * before (`seen`).
 *
 * Deadlock is found by worker 0 alone. A worker is *blocked*, and counted as
 * such under a lock, from when it found nothing to run and has no timer until
 * its wait is over, or for ever once it has left its loop. What it is woken
 * for stays in its inbox as long as it is blocked, since it empties the inbox
 * later, as it looks around. Ranks wake each other only while they run, hence
 * on a worker that is not blocked. So when all workers are blocked and, under
 * the lock, all inboxes are empty, no rank of this process can run and none
 * will be woken by another one; MPI then knows about the other processes. A
 * worker that is the last to be blocked wakes worker 0, so that it looks.
 */
#include "internal.h"

/* Some ten microseconds. */
#define IDLE_SPINS 400

/* This worker is blocked: whether all are, and no inbox holds anything. */
static bool idle_block(struct vrank_engine *engine)
{
    vrank_spin_lock(&engine->blocked_lock);
    engine->blocked++;
    bool all = engine->blocked == engine->job.threads;
    for (int i = 0; i < engine->job.threads && all; i++) {
        all = !sched_inbox_filled(&engine->workers[i]);
    }
    vrank_spin_unlock(&engine->blocked_lock);
    return all;
}

static void idle_unblock(struct vrank_engine *engine)
{
    vrank_spin_lock(&engine->blocked_lock);
    engine->blocked--;
    vrank_spin_unlock(&engine->blocked_lock);
}

void idle_exited(void)
{
    idle_block(vrank_engine);
}

static void idle_sleep(struct vrank_worker *worker, uint32_t seen,
                       uint64_t due_ns)
{
    const struct vrank_job *job = &vrank_engine->job;
    uint64_t timeout_ns = UINT64_MAX;
    if (due_ns != UINT64_MAX) {
        uint64_t now_ns = poise_clock_ns();
        timeout_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    }
    if (worker->number == 0 && job->mpi != NULL && job->mpi->idle != NULL) {
        job->mpi->idle(timeout_ns, job->arg);
    } else {
        poise_event_wait(&worker->event, seen, timeout_ns);
    }
}

/* Whether everything stands still for ever. Worker 0 asks MPI; others leave
 * that to it. */
static bool idle_is_deadlock(struct vrank_worker *worker)
{
    struct vrank_engine *engine = vrank_engine;
    const struct vrank_job *job = &engine->job;
    if (worker->number != 0) {
        engine_wake(&engine->workers[0]);
        return false;
    }
    /* Where all ranks have ended those of other processes may wait. */
    return job->mpi != NULL && job->mpi->is_deadlock != NULL
               ? job->mpi->is_deadlock(job->arg) == 1
               : engine_left(engine) > 0;
}

/* Ranks of two workers that wait for each other in turn would wake a sleeping
 * thread each time, which takes longer than what they do: look around for a
 * while first. Not where worker 0 has other processes to look after. */
static bool idle_spin(const struct vrank_worker *worker)
{
    if (!vrank_concurrent || vrank_engine->job.processes > 1) {
        return false;
    }
    for (int i = 0; i < IDLE_SPINS; i++) {
        if (sched_inbox_filled(worker)) {
            return true;
        }
        poise_pause();
    }
    return false;
}

void idle_wait(struct vrank_worker *worker)
{
    if (idle_spin(worker)) {
        return;
    }
    struct vrank_engine *engine = vrank_engine;
    uint64_t due_ns =
        worker->timer_count > 0 ? worker->timers[0]->deadline_ns : UINT64_MAX;
    uint32_t seen = poise_event_seen(&worker->event);
    __atomic_store_n(&worker->idle, 1, __ATOMIC_SEQ_CST);
    if (!sched_inbox_filled(worker)) {
        bool is_blocked = due_ns == UINT64_MAX;
        if (is_blocked && idle_block(engine) && idle_is_deadlock(worker)) {
            deadlock_report();
        } else {
            idle_sleep(worker, seen, due_ns);
        }
        if (is_blocked) {
            idle_unblock(engine);
        }
    }
    __atomic_store_n(&worker->idle, 0, __ATOMIC_SEQ_CST);
}
