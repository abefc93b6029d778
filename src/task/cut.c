/*
 * Consistent cuts (Lai-Yang): every message carries the number of its
 * sender's last cut. A rank takes its cut when it hears of a new one, at the
 * latest before it handles a message sent behind it; a message sent before
 * the cut that arrives behind it belongs to the cut. Rank 0 compares how many
 * were sent and how many have arrived, and so knows when all are accounted
 * for. Nobody stops working; a cut holds the worker locks while it copies.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void cut_lock(struct poise_pool *pool)
{
    for (unsigned i = 0; i < pool->worker_count + pool->dedicated; i++) {
        pthread_mutex_lock(&pool->workers[i].lock);
    }
}

static void cut_unlock(struct poise_pool *pool)
{
    for (unsigned i = pool->worker_count + pool->dedicated; i > 0; i--) {
        pthread_mutex_unlock(&pool->workers[i - 1].lock);
    }
}

void task_part_free(struct task_part *part)
{
    poise_buf_free(&part->saved);
    poise_buf_free(&part->tasks);
    poise_buf_free(&part->told);
    poise_buf_free(&part->pieces);
    free(part->segments);
    *part = (struct task_part){0};
}

static void cut_told(struct task_part *part, int dest, int source,
                     const void *data, size_t len)
{
    poise_buf_u64(&part->told, (uint64_t)dest);
    poise_buf_u64(&part->told, (uint64_t)source);
    poise_buf_blob(&part->told, data, len);
}

/* What one worker holds. */
static int cut_worker(struct poise_pool *pool, struct poise_worker *worker,
                      struct task_part *part)
{
    const struct task_running *running = &worker->running;
    struct task_record record = {running->rest.data, running->rest.len, 0};
    size_t at = 0;
    int code = 0;
    while (code >= 0 && task_deque_next(&worker->queue, &at, &record)) {
        code = task_pack(pool, &record, &part->tasks);
    }
    record = (struct task_record){running->rest.data, running->rest.len, 0};
    if (code >= 0 && running->kind == TASK_TASK) {
        code = task_pack(pool, &record, &part->tasks);
    } else if (running->kind == TASK_TOLD) {
        cut_told(part, pool->rank, running->source, record.data, record.len);
    }
    return code;
}

/* Messages not yet delivered: told ones, here and on their way out, and
 * output. */
static void cut_messages(struct poise_pool *pool, struct task_part *part)
{
    struct task_record record;
    size_t at = 0;
    pthread_mutex_lock(&pool->told_lock);
    while (task_deque_next(&pool->told, &at, &record)) {
        struct poise_reader reader = poise_reader_of(record.data, record.len);
        int source = (int)poise_reader_u64(&reader);
        cut_told(part, pool->rank, source, reader.pos,
                 poise_reader_left(&reader));
    }
    pthread_mutex_unlock(&pool->told_lock);
    if (pool->size == 1) {
        return;
    }
    at = 0;
    pthread_mutex_lock(&pool->net.outbox_lock);
    while (task_deque_next(&pool->net.outbox, &at, &record)) {
        struct poise_reader reader = poise_reader_of(record.data, record.len);
        int dest = (int)poise_reader_u64(&reader);
        cut_told(part, dest, pool->rank, reader.pos,
                 poise_reader_left(&reader));
    }
    pthread_mutex_unlock(&pool->net.outbox_lock);
    task_stream_copy(pool, &part->pieces);
}

/* The segments of the spill, whose space stays untouched until the part is
 * written. */
static int cut_segments(struct poise_pool *pool, struct task_part *part)
{
    struct task_spill *spill = &pool->spill;
    int code = 0;
    pthread_mutex_lock(&spill->lock);
    if (spill->count > 0) {
        part->segments = poise_alloc(spill->count, sizeof *part->segments);
        code = part->segments ? 0 : -ENOMEM;
    }
    if (code == 0 && spill->count > 0) {
        memcpy(part->segments, spill->segments,
               spill->count * sizeof *part->segments);
        part->segment_count = spill->count;
        spill->pinned = spill->end;
    }
    pthread_mutex_unlock(&spill->lock);
    return code;
}

static int cut_copy(struct poise_pool *pool, struct task_part *part)
{
    int code = 0;
    cut_lock(pool);
    for (unsigned i = 0; code >= 0 && i < pool->worker_count + pool->dedicated;
         i++) {
        code = cut_worker(pool, &pool->workers[i], part);
    }
    cut_messages(pool, part);
    if (code >= 0) {
        code = cut_segments(pool, part);
    }
    if (code >= 0 && pool->hooks.save) {
        code = pool->hooks.save(&part->saved, pool->hooks.arg);
    }
    cut_unlock(pool);
    if (code >= 0 && (part->saved.error || part->tasks.error ||
                      part->told.error || part->pieces.error)) {
        code = -ENOMEM;
    }
    return code;
}

void task_cut_take(struct poise_pool *pool, uint64_t number)
{
    struct task_cut *cut = &pool->cut;
    cut->number = number;
    if (task_state(pool) != TASK_RUNNING) {
        return;
    }
    task_part_free(&cut->part);
    int code = cut_copy(pool, &cut->part);
    if (code < 0) {
        task_stop(pool, code);
        return;
    }
    task_cut_report(pool, cut->basic_sent, cut->basic_received, false);
}

/* A message from before the cut. */
void task_cut_late(struct poise_pool *pool, const struct task_arrival *in)
{
    struct task_part *part = &pool->cut.part;
    struct poise_reader reader = poise_reader_of(in->body, in->len);
    switch (in->head.kind) {
    case TASK_GIVE:
    case TASK_RETURN:
        poise_buf_append(&part->tasks, in->body, in->len);
        break;
    case TASK_TELL:
        while (poise_reader_left(&reader) > 0 && !reader.error) {
            size_t len;
            const void *bytes = poise_reader_blob(&reader, &len);
            cut_told(part, pool->rank, in->source, bytes, len);
        }
        break;
    case TASK_EMIT:
        poise_buf_append(&part->pieces, in->body, in->len);
        break;
    }
    if (part->tasks.error || part->told.error || part->pieces.error) {
        task_stop(pool, -ENOMEM);
    }
    task_cut_report(pool, 0, 1, true);
}
