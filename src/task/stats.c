/*
 * What the pool did: kept in counters of their one writer each, put together
 * when somebody asks.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

int task_stats_init(struct poise_pool *pool)
{
    struct poise_pool_stats *stats = &pool->stats;
    stats->rank = pool->rank;
    stats->size = pool->size;
    stats->worker_count = pool->worker_count + pool->dedicated;
    stats->messages = poise_alloc((size_t)pool->size, sizeof(uint64_t));
    stats->bytes = poise_alloc((size_t)pool->size, sizeof(uint64_t));
    stats->workers = poise_alloc(stats->worker_count, sizeof(*stats->workers));
    if (!stats->messages || !stats->bytes || !stats->workers) {
        return -ENOMEM;
    }
    return 0;
}

static uint64_t stats_load(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void stats_of_worker(const struct poise_worker *worker, uint64_t now,
                            struct poise_worker_stats *out)
{
    uint64_t begin = stats_load(&worker->begin_ticks);
    uint64_t end = stats_load(&worker->end_ticks);
    uint64_t idle = stats_load(&worker->idle_ticks);
    uint64_t comm = stats_load(&worker->comm_ticks);
    uint64_t all = begin == 0 ? 0 : (end ? end : now) - begin;
    uint64_t rest = idle + comm;
    out->tasks = stats_load(&worker->tasks);
    out->stolen = stats_load(&worker->stolen);
    out->idle_ns = poise_clock_ticks_to_ns(idle);
    out->comm_ns = poise_clock_ticks_to_ns(comm);
    out->busy_ns = poise_clock_ticks_to_ns(all > rest ? all - rest : 0);
    for (int i = 0; i < 8; i++) {
        out->account_ns[i] =
            poise_clock_ticks_to_ns(stats_load(&worker->account_ticks[i]));
    }
}

void task_stats_refresh(struct poise_pool *pool)
{
    struct poise_pool_stats *stats = &pool->stats;
    uint64_t now = poise_clock_ticks();
    stats->tasks_queued = __atomic_load_n(&pool->told_count, __ATOMIC_RELAXED) +
                          stats_load(&pool->spill.tasks_now);
    for (unsigned i = 0; i < stats->worker_count; i++) {
        const struct poise_worker *worker = &pool->workers[i];
        stats_of_worker(worker, now, &stats->workers[i]);
        stats->tasks_queued +=
            __atomic_load_n(&worker->queued, __ATOMIC_RELAXED);
    }
    stats->spilled_tasks = stats_load(&pool->spill.tasks);
    stats->spilled_bytes = stats_load(&pool->spill.bytes);
    stats->active = __atomic_load_n(&pool->target, __ATOMIC_RELAXED);
    if (stats->active > stats->active_most) {
        stats->active_most = stats->active;
    }
    if (pool->start_ticks != 0 && task_state(pool) == TASK_RUNNING) {
        stats->wall_ns = poise_clock_ticks_to_ns(now - pool->start_ticks);
    }
}

const struct poise_pool_stats *poise_pool_stats(struct poise_pool *pool)
{
    task_stats_refresh(pool);
    return &pool->stats;
}
