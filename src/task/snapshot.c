/*
 * Consistent snapshots after Lai and Yang, for worlds where messages overtake
 * each other. Each message carries how many snapshots its sender had taken.
 *
 *  - A rank takes snapshot n when it hears of it: at the latest when a message
 *    with a number of n arrives, before it handles that message. So nothing
 *    that was sent after a snapshot is part of the receiver's.
 *  - A basic message with a smaller number than the receiver's was sent before
 *    the sender's snapshot and arrives after the receiver's: it belongs to
 *    neither rank's state, and is added to the receiver's part (and handled
 *    like any other).
 *  - At its snapshot each rank reports to rank 0 how many basic messages it
 *    ever sent and received, and then each late one. When all ranks have
 *    reported and both sums are equal, no message from before the snapshot is
 *    under way, so every part is complete. Reports only add up: their order
 *    does not matter. Snapshot n + 1 begins after n is written, so a late
 *    message is late for one snapshot only.
 *
 * Nobody stops working. Only the communicator takes snapshots: it holds all
 * worker locks while it copies, and whatever it has itself taken out of a queue
 * is sent, or in another queue, before it comes here.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void snapshot_lock(struct poise_pool *pool)
{
    for (unsigned i = 0; i < pool->worker_count + pool->dedicated; i++) {
        pthread_mutex_lock(&pool->workers[i].lock);
    }
}

static void snapshot_unlock(struct poise_pool *pool)
{
    for (unsigned i = pool->worker_count + pool->dedicated; i > 0; i--) {
        pthread_mutex_unlock(&pool->workers[i - 1].lock);
    }
}

void task_part_free(struct task_part *part)
{
    poise_buf_free(&part->saved);
    poise_buf_free(&part->tasks);
    poise_buf_free(&part->messages);
    poise_buf_free(&part->pieces);
    free(part->segments);
    *part = (struct task_part){0};
}

static void snapshot_message(struct task_part *part, int dest, int source,
                             const void *data, size_t len)
{
    poise_buf_u64(&part->messages, (uint64_t)dest);
    poise_buf_u64(&part->messages, (uint64_t)source);
    poise_buf_blob(&part->messages, data, len);
}

/* What one worker holds. */
static int snapshot_worker(struct poise_pool *pool, struct poise_worker *worker,
                           struct task_part *part)
{
    const struct task_running *running = &worker->running;
    struct task_record record = {running->rest.data, running->rest.len, 0};
    size_t at = 0;
    int code = 0;
    while (code >= 0 && task_deque_next(&worker->queue, &at, &record)) {
        code = task_pack_record(pool, &record, &part->tasks);
    }
    record = (struct task_record){running->rest.data, running->rest.len, 0};
    if (code >= 0 && running->kind == TASK_TASK) {
        code = task_pack_record(pool, &record, &part->tasks);
    } else if (running->kind == TASK_RECEIVE) {
        snapshot_message(part, pool->rank, running->source, record.data,
                         record.len);
    }
    return code;
}

/* What is not yet delivered: messages, here and on their way out, and
 * output. */
static void snapshot_undelivered(struct poise_pool *pool,
                                 struct task_part *part)
{
    struct task_record record;
    size_t at = 0;
    pthread_mutex_lock(&pool->inbox_lock);
    while (task_deque_next(&pool->inbox, &at, &record)) {
        struct task_message message = task_message_of(&record);
        snapshot_message(part, pool->rank, message.rank, message.data,
                         message.len);
    }
    pthread_mutex_unlock(&pool->inbox_lock);
    if (pool->size == 1) {
        return;
    }
    at = 0;
    pthread_mutex_lock(&pool->net.outbox_lock);
    while (task_deque_next(&pool->net.outbox, &at, &record)) {
        struct task_message message = task_message_of(&record);
        snapshot_message(part, message.rank, pool->rank, message.data,
                         message.len);
    }
    pthread_mutex_unlock(&pool->net.outbox_lock);
    task_stream_copy(pool, &part->pieces);
}

/* The segments of the spill, whose space stays untouched until the part is
 * written. */
static int snapshot_segments(struct poise_pool *pool, struct task_part *part)
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

static int snapshot_copy(struct poise_pool *pool, struct task_part *part)
{
    int code = 0;
    snapshot_lock(pool);
    for (unsigned i = 0; code >= 0 && i < pool->worker_count + pool->dedicated;
         i++) {
        code = snapshot_worker(pool, &pool->workers[i], part);
    }
    snapshot_undelivered(pool, part);
    if (code >= 0) {
        code = snapshot_segments(pool, part);
    }
    if (code >= 0 && pool->hooks.save) {
        code = pool->hooks.save(&part->saved, pool->hooks.arg);
    }
    snapshot_unlock(pool);
    if (code >= 0 && (part->saved.error || part->tasks.error ||
                      part->messages.error || part->pieces.error)) {
        code = -ENOMEM;
    }
    return code;
}

void task_snapshot_take(struct poise_pool *pool, uint64_t number)
{
    struct task_snapshot *snapshot = &pool->snapshot;
    snapshot->number = number;
    if (task_state(pool) != TASK_RUNNING) {
        return;
    }
    task_part_free(&snapshot->part);
    int code = snapshot_copy(pool, &snapshot->part);
    if (code < 0) {
        task_stop(pool, code);
        return;
    }
    task_snapshot_report(pool, snapshot->basic_sent, snapshot->basic_received,
                         false);
}

/* A message from before the snapshot. */
void task_snapshot_late(struct poise_pool *pool, const struct task_arrival *in)
{
    struct task_part *part = &pool->snapshot.part;
    struct poise_reader reader = poise_reader_of(in->body, in->len);
    switch (in->head.kind) {
    case TASK_GIVE:
    case TASK_RETURN:
        poise_buf_append(&part->tasks, in->body, in->len);
        break;
    case TASK_SEND:
        while (poise_reader_left(&reader) > 0 && !reader.error) {
            size_t len;
            const void *bytes = poise_reader_blob(&reader, &len);
            snapshot_message(part, pool->rank, in->source, bytes, len);
        }
        break;
    case TASK_EMIT:
        poise_buf_append(&part->pieces, in->body, in->len);
        break;
    }
    if (part->tasks.error || part->messages.error || part->pieces.error) {
        task_stop(pool, -ENOMEM);
    }
    task_snapshot_report(pool, 0, 1, true);
}
