/*
 * What the pool did: kept in counters of their one writer each, put together
 * when they are asked for.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int task_stats_init(struct poise_pool *pool)
{
    struct poise_pool_stats *stats = &pool->stats;
    stats->rank = pool->rank;
    stats->size = pool->size;
    stats->worker_count = pool->worker_count + pool->dedicated;
    stats->messages = poise_alloc((size_t)pool->size, sizeof(uint64_t));
    stats->bytes = poise_alloc((size_t)pool->size, sizeof(uint64_t));
    stats->workers = poise_alloc(stats->worker_count, sizeof *stats->workers);
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
    stats->tasks_queued =
        __atomic_load_n(&pool->inbox_count, __ATOMIC_RELAXED) +
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
    stats->active_most = __atomic_load_n(&pool->target_most, __ATOMIC_RELAXED);
    if (pool->start_ticks != 0 && task_state(pool) == TASK_RUNNING) {
        stats->wall_ns = poise_clock_ticks_to_ns(now - pool->start_ticks);
    }
}

const struct poise_pool_stats *poise_pool_stats(struct poise_pool *pool)
{
    task_stats_refresh(pool);
    return &pool->stats;
}

/* ---- of all ranks ------------------------------------------------------- */

/* The plain counters, in the order in which they travel. */
static void stats_fields(struct poise_pool_stats *stats, uint64_t *fields[9])
{
    uint64_t *all[9] = {
        &stats->steal_asked,   &stats->steal_got,    &stats->steal_refused,
        &stats->tasks_given,   &stats->tasks_queued, &stats->spilled_tasks,
        &stats->spilled_bytes, &stats->token_rounds, &stats->checkpoints};
    for (int i = 0; i < 9; i++) {
        fields[i] = all[i];
    }
}

static int stats_pack(struct poise_pool_stats *stats, struct poise_buf *out)
{
    uint64_t *fields[9];
    stats_fields(stats, fields);
    poise_buf_u64(out, (uint64_t)stats->size);
    poise_buf_u64(out, stats->worker_count);
    poise_buf_u64(out, stats->active);
    poise_buf_u64(out, stats->active_most);
    poise_buf_u64(out, stats->wall_ns);
    for (int i = 0; i < 9; i++) {
        poise_buf_u64(out, *fields[i]);
    }
    size_t size = (size_t)stats->size * sizeof(uint64_t);
    poise_buf_append(out, stats->messages, size);
    poise_buf_append(out, stats->bytes, size);
    return poise_buf_append(out, stats->workers,
                            stats->worker_count * sizeof *stats->workers);
}

static void stats_take(struct poise_reader *reader, void *out, size_t len)
{
    if (poise_reader_left(reader) < len) {
        reader->error = -EBADMSG;
        return;
    }
    memcpy(out, reader->pos, len);
    reader->pos += len;
}

static int stats_unpack(const void *data, size_t len, int rank,
                        struct poise_pool_stats *out)
{
    struct poise_reader reader = poise_reader_of(data, len);
    uint64_t *fields[9];
    stats_fields(out, fields);
    out->rank = rank;
    out->size = (int)poise_reader_u64(&reader);
    out->worker_count = (unsigned)poise_reader_u64(&reader);
    out->active = (unsigned)poise_reader_u64(&reader);
    out->active_most = (unsigned)poise_reader_u64(&reader);
    out->wall_ns = poise_reader_u64(&reader);
    for (int i = 0; i < 9; i++) {
        *fields[i] = poise_reader_u64(&reader);
    }
    size_t size = (size_t)out->size;
    out->messages = poise_alloc(size, sizeof(uint64_t));
    out->bytes = poise_alloc(size, sizeof(uint64_t));
    out->workers = poise_alloc(out->worker_count, sizeof *out->workers);
    if (!out->messages || !out->bytes || !out->workers) {
        return -ENOMEM;
    }
    stats_take(&reader, out->messages, size * sizeof(uint64_t));
    stats_take(&reader, out->bytes, size * sizeof(uint64_t));
    stats_take(&reader, out->workers, out->worker_count * sizeof *out->workers);
    return reader.error;
}

int poise_pool_stats_gather(struct poise_pool *pool,
                            struct poise_pool_stats **out)
{
    struct poise_buf mine = {0};
    struct poise_buf all = {0};
    struct poise_pool_stats *list = NULL;
    task_stats_refresh(pool);
    int code = stats_pack(&pool->stats, &mine);
    if (pool->size == 1) {
        code = code < 0 ? code : poise_buf_blob(&all, mine.data, mine.len);
    } else {
        code = poise_world_agree(pool->world, code);
        code = code < 0 ? code
                        : poise_world_gather(pool->world, 0, mine.data,
                                             mine.len, &all);
    }
    if (code == 0 && pool->rank == 0) {
        struct poise_reader reader = poise_reader_of(all.data, all.len);
        list = poise_alloc((size_t)pool->size, sizeof *list);
        code = list ? 0 : -ENOMEM;
        for (int i = 0; code == 0 && i < pool->size; i++) {
            size_t len;
            const void *blob = poise_reader_blob(&reader, &len);
            code = blob ? stats_unpack(blob, len, i, &list[i]) : -EBADMSG;
        }
    }
    code = pool->size == 1 ? code : poise_world_agree(pool->world, code);
    poise_buf_free(&mine);
    poise_buf_free(&all);
    if (code < 0) {
        poise_pool_stats_free(list, pool->size);
        return code;
    }
    *out = list;
    return 0;
}

void poise_pool_stats_free(struct poise_pool_stats *all, int size)
{
    for (int i = 0; all && i < size; i++) {
        free(all[i].messages);
        free(all[i].bytes);
        free(all[i].workers);
    }
    free(all);
}
