/*
 * Ranks that run, wait for the processor and wait for each other: see
 * profile.h.
 */
#include "profile.h"
#include "vrank/context/context.h"
#include "vrank/thread/rank.h"

#include <errno.h>
#include <stdlib.h>

#define PROFILE_EDGES 16
/* Of a rank's course, to begin with. */
#define PART_NS 100000

/* ---- where the time of a rank goes -------------------------------------- */

/* Two parts become one. */
static void course_fold(struct profile_course *course)
{
    for (size_t i = 0; i < PROFILE_PARTS; i++) {
        struct profile_times sum = {{0}};
        for (size_t k = 2 * i; k < 2 * i + 2 && k < PROFILE_PARTS; k++) {
            for (size_t t = 0; t < POISE_VRANK_TIMES; t++) {
                sum.ticks[t] += course->parts[k].ticks[t];
            }
        }
        course->parts[i] = sum;
    }
    course->length *= 2;
}

/* So was the rank from one moment to another, since the run began. */
static void course_add(struct profile_course *course, uint32_t state,
                       uint64_t from, uint64_t to)
{
    while (to > course->length * PROFILE_PARTS) {
        course_fold(course);
    }
    while (from < to) {
        size_t part = (size_t)(from / course->length);
        uint64_t end = (part + 1) * course->length;
        end = end < to ? end : to;
        course->parts[part].ticks[state] += end - from;
        from = end;
    }
}

void profile_touch(struct profile_rank *record, uint64_t now)
{
    uint64_t start = record->profile->start;
    /* Clocks of two processors may differ by a little. */
    if (record->course != NULL && now > record->since &&
        record->since >= start) {
        course_add(record->course, record->state, record->since - start,
                   now - start);
    }
    if (now > record->since) {
        record->times.ticks[record->state] += now - record->since;
        record->since = now;
    }
}

static void profile_move(struct profile_rank *record, enum poise_vrank_time to,
                         uint64_t now)
{
    profile_touch(record, now);
    record->state = to;
}

/* One rank more can run, or one less. */
static void profile_count(struct profile *profile, int change, uint64_t now)
{
    vrank_spin_lock(&profile->lock);
    int runnable = profile->runnable;
    /* A rank may be woken before its wait is noted. */
    runnable = runnable < 0                     ? 0
               : runnable > profile->rank_count ? profile->rank_count
                                                : runnable;
    if (now > profile->runnable_since) {
        profile->runnable_ticks[runnable] += now - profile->runnable_since;
        profile->runnable_since = now;
    }
    profile->runnable += change;
    vrank_spin_unlock(&profile->lock);
}

static struct profile_worker *worker_of(const struct profile *profile,
                                        const struct vrank *rank)
{
    return &profile->workers[rank->worker->number];
}

static void profile_pause(struct profile *profile, struct vrank *rank,
                          bool waits)
{
    struct profile_rank *record = rank->profile;
    uint64_t now = poise_clock_ticks();
    record->resumed = record->state;
    /* What it waited for is known when it is woken. */
    profile_move(record, waits ? POISE_VRANK_SYNC : POISE_VRANK_READY, now);
    if (waits) {
        record->network_then =
            worker_of(profile, rank)->idle_by[VRANK_BY_NETWORK];
        record->queued_then = worker_of(profile, rank)->idle_queued;
        profile_count(profile, -1, now);
    }
}

static void profile_post(struct profile *profile, struct vrank *rank,
                         enum vrank_cause cause)
{
    struct profile_rank *record = rank->profile;
    uint64_t now = poise_clock_ticks();
    record->woken = now;
    record->cause = cause;
    profile_count(profile, 1, now);
}

/* The worker is idle: bring its record up to now. */
static void profile_idle_to(struct profile_worker *record, uint64_t now)
{
    if (now > record->idle_since) {
        record->idle += now - record->idle_since;
        record->idle_pending += now - record->idle_since;
        record->idle_since = now;
    }
}

/* The same, where a rank has been woken or the wait is over: what of it the
 * thread spent in the kernel's run queue, others had the processor for, and it
 * waited for nothing else. */
static void profile_take_queued(struct profile_worker *record)
{
    int64_t queued_ns = counters_queued_ns(record);
    if (queued_ns < 0) {
        return;
    }
    uint64_t queued = poise_clock_ns_to_ticks((uint64_t)queued_ns);
    uint64_t taken =
        queued > record->queued_seen ? queued - record->queued_seen : 0;
    taken = taken < record->idle_pending ? taken : record->idle_pending;
    record->queued_seen = queued;
    record->idle_pending -= taken;
    record->idle_queued += taken;
}

/* A wait for another rank, of which `network` passed while no rank could run
 * before a message came: that is what was waited for in truth. */
static void profile_part(struct profile_rank *record, uint64_t waited,
                         uint64_t network)
{
    network = network < waited ? network : waited;
    record->times.ticks[POISE_VRANK_SYNC] -= network;
    record->times.ticks[POISE_VRANK_NETWORK] += network;
}

static void profile_wake(struct profile *profile, struct vrank *rank,
                         enum vrank_cause by)
{
    static const enum poise_vrank_time waits[VRANK_CAUSES] = {
        [VRANK_BY_RANK] = POISE_VRANK_SYNC,
        [VRANK_BY_NETWORK] = POISE_VRANK_NETWORK,
        [VRANK_BY_TIME] = POISE_VRANK_SLEEPING};
    struct profile_rank *record = rank->profile;
    struct profile_worker *idle = worker_of(profile, rank);
    uint64_t now = record->woken, since = record->since;
    uint32_t cause = record->cause;
    if (now == 0) {
        now = poise_clock_ticks();
        cause = by;
        profile_count(profile, 1, now);
    }
    record->woken = 0;
    if (idle->is_idle) {
        profile_idle_to(idle, now);
        profile_take_queued(idle);
        idle->idle_ended = true;
        idle->idle_cause = cause;
    }
    idle->idle_by[cause] += idle->idle_pending;
    idle->idle_pending = 0;
    record->state = waits[cause];
    profile_move(record, POISE_VRANK_READY, now);
    uint64_t waited = record->since - since;
    uint64_t queued = idle->idle_queued - record->queued_then;
    queued = queued < waited ? queued : waited;
    record->times.ticks[waits[cause]] -= queued;
    record->times.ticks[POISE_VRANK_READY] += queued;
    if (cause == VRANK_BY_RANK) {
        profile_part(record, waited - queued,
                     idle->idle_by[VRANK_BY_NETWORK] - record->network_then);
    }
}

static void profile_resume(struct profile *profile, struct vrank *rank)
{
    (void)profile;
    struct profile_rank *record = rank->profile;
    profile_move(record, (enum poise_vrank_time)record->resumed,
                 poise_clock_ticks());
    record->switches++;
}

/* What it did until then is told from the waiting. */
static void profile_disk(struct profile *profile, struct vrank *rank,
                         uint64_t ns)
{
    (void)profile;
    struct profile_rank *record = rank->profile;
    uint64_t now = poise_clock_ticks(), waited = poise_clock_ns_to_ticks(ns);
    uint32_t state = record->state;
    if (state != POISE_VRANK_COMPUTING && state != POISE_VRANK_CALLING) {
        return; /* it waits for something, and its thread does so meanwhile */
    }
    if (waited < now) {
        profile_touch(record, now - waited);
    }
    record->state = POISE_VRANK_DISK;
    profile_touch(record, now);
    record->state = state;
}

static void profile_finish(struct profile *profile, struct vrank *rank)
{
    struct profile_rank *record = rank->profile;
    uint64_t now = poise_clock_ticks();
    profile_touch(record, now);
    profile_count(profile, -1, now);
    context_moved(rank->context, record->moved);
}

/* ---- workers ------------------------------------------------------------ */

static void profile_worker_idle(struct profile *profile, int worker, bool idle)
{
    struct profile_worker *record = &profile->workers[worker];
    uint64_t now = poise_clock_ticks();
    if (idle) {
        int64_t queued_ns = counters_queued_ns(record);
        record->idle_since = now;
        record->idle_ended = false;
        record->queued_seen =
            poise_clock_ns_to_ticks(queued_ns > 0 ? (uint64_t)queued_ns : 0);
    } else {
        profile_idle_to(record, now);
        profile_take_queued(record);
    }
    /* A rank was woken before the wait was over. */
    if (!idle && record->idle_ended) {
        record->idle_by[record->idle_cause] += record->idle_pending;
        record->idle_pending = 0;
    }
    record->is_idle = idle;
}

static void profile_worker_begin(struct profile *profile, int worker)
{
    struct profile_worker *record = &profile->workers[worker];
    counters_begin(profile, record);
    record->start = poise_clock_ticks();
}

static void profile_worker_end(struct profile *profile, int worker,
                               uint64_t switches)
{
    struct profile_worker *record = &profile->workers[worker];
    record->end = poise_clock_ticks();
    record->switches = switches;
    counters_end(record);
}

/* ---- messages ----------------------------------------------------------- */

static struct profile_edge *edge_place(struct profile_edge *edges,
                                       uint32_t mask, int dest)
{
    uint32_t at = (uint32_t)poise_hash_u64((uint64_t)dest) & mask;
    while (edges[at].dest >= 0 && edges[at].dest != dest) {
        at = (at + 1) & mask;
    }
    return &edges[at];
}

static struct profile_edge *edges_make(uint32_t count)
{
    struct profile_edge *edges = poise_alloc(count, sizeof *edges);
    for (uint32_t i = 0; edges != NULL && i < count; i++) {
        edges[i].dest = -1;
    }
    return edges;
}

static bool edges_grow(struct profile_rank *record)
{
    uint32_t count =
        record->edges != NULL ? 2 * (record->edge_mask + 1) : PROFILE_EDGES;
    struct profile_edge *edges = edges_make(count);
    if (edges == NULL) {
        return false;
    }
    for (uint32_t i = 0; record->edges != NULL && i <= record->edge_mask; i++) {
        if (record->edges[i].dest >= 0) {
            *edge_place(edges, count - 1, record->edges[i].dest) =
                record->edges[i];
        }
    }
    free(record->edges);
    record->edges = edges;
    record->edge_mask = count - 1;
    return true;
}

void profile_message(const struct vrank *rank, int dest, size_t bytes)
{
    struct profile_rank *record = rank->profile;
    record->sizes[bytes < 1024       ? POISE_VRANK_SMALL
                  : bytes <= 1 << 20 ? POISE_VRANK_MEDIUM
                                     : POISE_VRANK_LARGE]++;
    if ((record->edges == NULL || record->edge_count * 2 > record->edge_mask) &&
        !edges_grow(record)) {
        /* A graph with a hole is no reason to end the job. */
        return;
    }
    struct profile_edge *edge =
        edge_place(record->edges, record->edge_mask, dest);
    if (edge->dest < 0) {
        edge->dest = dest;
        record->edge_count++;
    }
    edge->messages++;
    edge->bytes += bytes;
}

/* ---- a run -------------------------------------------------------------- */

static int profile_make_ranks(struct profile *profile,
                              struct vrank *const *ranks)
{
    /* As many of all as one can look at. */
    int every = (profile->count + PROFILE_SHOWN - 1) / PROFILE_SHOWN;
    for (int i = 0; i < profile->rank_count; i++) {
        struct profile_rank *record = &profile->ranks[i];
        *record = (struct profile_rank){.profile = profile,
                                        .state = POISE_VRANK_READY,
                                        .resumed = POISE_VRANK_COMPUTING,
                                        .since = profile->start,
                                        .phase_call = -1,
                                        .number = ranks[i]->number,
                                        .worker = ranks[i]->worker->number};
        record->calls =
            poise_alloc((size_t)profile->call_count + 1, sizeof *record->calls);
        record->phases = poise_alloc(PROFILE_PHASES, sizeof *record->phases);
        if (record->calls == NULL || record->phases == NULL) {
            return -ENOMEM;
        }
        if (ranks[i]->number % every == 0) {
            record->course = poise_alloc(1, sizeof *record->course);
            if (record->course == NULL) {
                return -ENOMEM;
            }
            record->course->length = poise_clock_ns_to_ticks(PART_NS);
        }
        ranks[i]->profile = record;
    }
    return 0;
}

static int profile_begin(struct profile *profile, const struct vrank_job *job)
{
    struct vrank *const *ranks;
    size_t count = (size_t)vrank_locals(&ranks);
    profile->count = job->count;
    profile->processes = job->processes;
    profile->process = job->process;
    profile->threads = job->threads;
    profile->policy = poise_vrank_policy_names[job->policy];
    profile->placement = poise_vrank_placement_names[job->placement];
    profile->rank_count = (int)count;
    profile->worker_count = job->threads;
    profile->ranks = poise_alloc(count + 1, sizeof *profile->ranks);
    profile->workers =
        poise_alloc((size_t)job->threads, sizeof *profile->workers);
    profile->runnable_ticks =
        poise_alloc(count + 1, sizeof *profile->runnable_ticks);
    if (profile->ranks == NULL || profile->workers == NULL ||
        profile->runnable_ticks == NULL) {
        return -ENOMEM;
    }
    /* Calibrated once, which takes time. */
    poise_clock_tick_hz();
    profile->start_ns = poise_clock_ns();
    profile->start = poise_clock_ticks();
    profile->runnable = profile->rank_count;
    profile->runnable_since = profile->start;
    return profile_make_ranks(profile, ranks);
}

static void profile_end(struct profile *profile)
{
    profile->end = poise_clock_ticks();
    profile->end_ns = poise_clock_ns();
    if (profile->end > profile->runnable_since) {
        int runnable = profile->runnable > 0 ? profile->runnable : 0;
        profile->runnable_ticks[runnable] +=
            profile->end - profile->runnable_since;
    }
}

const struct vrank_profile_ops profile_ops = {
    .begin = profile_begin,
    .end = profile_end,
    .worker_begin = profile_worker_begin,
    .worker_end = profile_worker_end,
    .worker_idle = profile_worker_idle,
    .pause = profile_pause,
    .post = profile_post,
    .wake = profile_wake,
    .resume = profile_resume,
    .disk = profile_disk,
    .finish = profile_finish,
};

void profile_free(struct profile *profile)
{
    for (int i = 0; profile->ranks != NULL && i < profile->rank_count; i++) {
        free(profile->ranks[i].calls);
        free(profile->ranks[i].phases);
        free(profile->ranks[i].edges);
        free(profile->ranks[i].course);
    }
    for (int i = 0; i < profile->call_count; i++) {
        free((char *)(uintptr_t)profile->names[i]);
    }
    free(profile->ranks);
    free(profile->workers);
    free(profile->runnable_ticks);
}
