/*
 * Progress: each rank now and then sends its parent in a binomial tree what it
 * and all ranks below it have done, so that rank 0 knows of all by few
 * messages. A later message makes the earlier ones void; any may be lost.
 */
#include "internal.h"

#include <string.h>

static void progress_own(struct poise_pool *pool, struct poise_pool_sum *sum)
{
    const struct poise_pool_stats *stats = poise_pool_stats(pool);
    const struct poise_pool_hooks *hooks = &pool->hooks;
    *sum = (struct poise_pool_sum){.done = hooks->done ? hooks->done(hooks->arg)
                                                       : 0,
                                   .tasks_queued = stats->tasks_queued,
                                   .active = stats->active};
}

static void progress_add_below(const struct poise_pool *pool,
                               struct poise_pool_sum *sum)
{
    for (int i = pool->rank + 1; i < pool->size; i++) {
        const struct poise_pool_sum *below = &pool->net.progress.below[i];
        sum->done += below->done;
        sum->tasks_queued += below->tasks_queued;
        sum->active += below->active;
    }
}

void task_progress_turn(struct poise_pool *pool, uint64_t now_ticks)
{
    bool sends = pool->size > 1 && pool->net.progress.shared &&
                 task_state(pool) == TASK_RUNNING;
    if (now_ticks < pool->next_progress || (!pool->hooks.progress && !sends)) {
        return;
    }
    pool->next_progress = now_ticks + pool->progress_ticks;
    struct poise_pool_sum *sum = &pool->stats.sum;
    progress_own(pool, sum);
    if (sends) {
        progress_add_below(pool, sum);
        if (pool->rank > 0) {
            task_send(pool, task_parent(pool->rank),
                      (struct task_head){.kind = TASK_PROGRESS}, sum,
                      sizeof *sum);
        }
    }
    if (pool->hooks.progress) {
        pool->hooks.progress(&pool->stats, pool->hooks.arg);
    }
}

void task_on_progress(struct poise_pool *pool, const struct task_arrival *in)
{
    if (in->len == sizeof(struct poise_pool_sum)) {
        memcpy(&pool->net.progress.below[in->source], in->body, in->len);
    }
}
