/*
 * Ranks that do nothing but ask whether something has come: to the counting of
 * messages they are busy, so that a deadlock among them is not noticed. The
 * user is warned after some seconds, once.
 *
 * A worker's ranks only poll while none of them is woken, but by a timer, no
 * poll finds anything, and they either sleep most of the time or hardly use the
 * processor between one poll and the next.
 */
#include "internal.h"

#define POLL_TIMEOUT_NS UINT64_C(5000000000)
/** Looks until the time is over. */
#define POLL_LOOKS 5
/** What a poll may take: more, and something is computed between them. */
#define POLL_COST_NS 2000

static uint64_t poll_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Whether the other workers have nothing to do, or do nothing but this. */
static bool poll_everywhere(void)
{
    for (int i = 0; i < vrank_engine->job.threads; i++) {
        struct vrank_worker *worker = &vrank_engine->workers[i];
        if (__atomic_load_n(&worker->poll_since_ns, __ATOMIC_RELAXED) == 0 &&
            __atomic_load_n(&worker->idle, __ATOMIC_RELAXED) == 0) {
            return false;
        }
    }
    return true;
}

static void poll_warn(const struct vrank_worker *worker, uint64_t since_ns)
{
    vrank_say_once(
        VRANK_ONCE_POLLING,
        "for %.1f seconds the virtual ranks of %s have only polled (%s) or "
        "waited, and nothing has come; a deadlock among ranks that poll "
        "is not noticed",
        (double)(poise_clock_ns() - since_ns) / 1e9,
        vrank_processes() > 1 ? "a process" : "this job", worker->poll_why);
}

void poll_look(struct vrank_worker *worker)
{
    uint64_t now = poise_clock_ticks();
    if (now < worker->poll_due) {
        return;
    }
    uint64_t timeout_ns = vrank_engine->job.poll_timeout_ns;
    timeout_ns = timeout_ns > 0 ? timeout_ns : POLL_TIMEOUT_NS;
    uint64_t look_ns = timeout_ns / POLL_LOOKS;
    uint64_t polls = worker->polls - worker->polls_seen;
    uint64_t cpu_ns = poll_cpu_ns(), used_ns = cpu_ns - worker->poll_cpu_ns;
    bool only = worker->poll_due != 0 && worker->wakes == worker->polls_wakes &&
                (used_ns / polls < POLL_COST_NS || used_ns < look_ns / 5);
    worker->polls_seen = worker->polls;
    worker->polls_wakes = worker->wakes;
    worker->poll_cpu_ns = cpu_ns;
    worker->poll_due = now + poise_clock_ns_to_ticks(look_ns);
    /* Looks count, too: much time may pass in which nobody runs. */
    worker->poll_looks = only ? worker->poll_looks + 1 : 0;
    uint64_t now_ns = poise_clock_ns(), since_ns = worker->poll_since_ns;
    if (!only || since_ns == 0) {
        since_ns = only ? now_ns - look_ns : 0;
        __atomic_store_n(&worker->poll_since_ns, since_ns, __ATOMIC_RELAXED);
    }
    if (since_ns != 0 && worker->poll_looks >= POLL_LOOKS &&
        now_ns - since_ns >= timeout_ns && poll_everywhere()) {
        poll_warn(worker, since_ns);
    }
}
