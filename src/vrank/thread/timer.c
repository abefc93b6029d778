/*
 * Ranks that wait until a time: a binary heap per worker, by deadline. A rank
 * knows its place in it, so that one that is woken earlier is taken out. There
 * is room for all ranks of the worker from the start.
 */
#include "internal.h"

static void timer_set(struct vrank_worker *worker, int at, struct vrank *rank)
{
    worker->timers[at] = rank;
    rank->timer = at;
}

/* Let `rank` rise from `at` as far as it has to. Returns where it stays. */
static int timer_rise(struct vrank_worker *worker, int at, struct vrank *rank)
{
    while (at > 0) {
        int above = (at - 1) / 2;
        if (worker->timers[above]->deadline_ns <= rank->deadline_ns) {
            break;
        }
        timer_set(worker, at, worker->timers[above]);
        at = above;
    }
    return at;
}

static int timer_sink(struct vrank_worker *worker, int at, struct vrank *rank)
{
    for (;;) {
        int below = 2 * at + 1;
        if (below >= worker->timer_count) {
            return at;
        }
        struct vrank **timers = worker->timers;
        if (below + 1 < worker->timer_count &&
            timers[below + 1]->deadline_ns < timers[below]->deadline_ns) {
            below++;
        }
        if (rank->deadline_ns <= timers[below]->deadline_ns) {
            return at;
        }
        timer_set(worker, at, timers[below]);
        at = below;
    }
}

void timer_add(struct vrank_worker *worker, struct vrank *rank)
{
    timer_set(worker, timer_rise(worker, worker->timer_count++, rank), rank);
}

void timer_remove(struct vrank_worker *worker, struct vrank *rank)
{
    int at = rank->timer;
    if (at < 0) {
        return;
    }
    rank->timer = -1;
    struct vrank *last = worker->timers[--worker->timer_count];
    if (last != rank) {
        at = timer_sink(worker, at, last);
        timer_set(worker, timer_rise(worker, at, last), last);
    }
}

uint64_t timer_fire(struct vrank_worker *worker)
{
    if (worker->timer_count == 0) {
        return UINT64_MAX;
    }
    uint64_t now_ns = poise_clock_ns();
    while (worker->timer_count > 0) {
        struct vrank *first = worker->timers[0];
        if (first->deadline_ns > now_ns) {
            return first->deadline_ns;
        }
        timer_remove(worker, first);
        vrank_unpark(first);
    }
    return UINT64_MAX;
}
