/*
 * What tasks send: pieces of output for rank 0, and messages for the hook
 * receive of a rank.
 *
 * Pieces wait on their rank until there is enough for a message, or time has
 * passed. A rank may have STREAM_WINDOW_BYTES under way that rank 0 has not yet
 * delivered and credited. Messages are numbered, and rank 0 delivers those of
 * each rank in their order.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_MESSAGE_BYTES ((size_t)64 << 10)
#define STREAM_WINDOW_BYTES (8 * (uint64_t)STREAM_MESSAGE_BYTES)
/** Pieces held back here before emit blocks. */
#define STREAM_HELD_BYTES (8 * STREAM_MESSAGE_BYTES)
#define STREAM_DELAY_NS UINT64_C(20000000)
#define STREAM_NAP_NS UINT64_C(2000000)

/** A message that overtook another. */
struct stream_early {
    struct stream_early *next;
    uint64_t sequence;
    size_t len;
    char bytes[];
};

/** From one rank. */
struct task_inflow {
    uint64_t next;            /**< sequence expected */
    uint64_t taken, credited; /**< bytes */
    struct stream_early *early;
};

int task_stream_init(struct poise_pool *pool)
{
    struct task_stream *stream = &pool->net.stream;
    pthread_mutex_init(&stream->lock, NULL);
    stream->from = poise_alloc((size_t)pool->size, sizeof *stream->from);
    return stream->from ? 0 : -ENOMEM;
}

void task_stream_free(struct poise_pool *pool)
{
    struct task_stream *stream = &pool->net.stream;
    for (int i = 0; stream->from && i < pool->size; i++) {
        while (stream->from[i].early) {
            struct stream_early *early = stream->from[i].early;
            stream->from[i].early = early->next;
            free(early);
        }
    }
    free(stream->from);
    task_deque_free(&stream->pieces);
    pthread_mutex_destroy(&stream->lock);
}

bool task_stream_empty(struct poise_pool *pool)
{
    return __atomic_load_n(&pool->net.stream.held, __ATOMIC_SEQ_CST) == 0;
}

/* ---- delivering --------------------------------------------------------- */

int task_deliver(struct poise_pool *pool, int source, const void *data,
                 size_t len)
{
    pthread_mutex_lock(&pool->deliver_lock);
    int code = pool->hooks.deliver
                   ? pool->hooks.deliver(source, data, len, pool->hooks.arg)
                   : 0;
    pthread_mutex_unlock(&pool->deliver_lock);
    return code;
}

static void stream_deliver(struct poise_pool *pool, int source,
                           const void *blobs, size_t len)
{
    struct task_inflow *from = &pool->net.stream.from[source];
    struct poise_reader reader = poise_reader_of(blobs, len);
    int code = 0;
    while (code >= 0 && poise_reader_left(&reader) > 0 && !reader.error) {
        size_t size;
        const void *piece = poise_reader_blob(&reader, &size);
        code = task_deliver(pool, source, piece, size);
    }
    from->next++;
    from->taken += len;
    if (code < 0) {
        task_stop(pool, code);
    }
}

static void stream_keep(struct poise_pool *pool, const struct task_arrival *in)
{
    struct task_inflow *from = &pool->net.stream.from[in->source];
    struct stream_early *early = poise_alloc(1, sizeof *early + in->len);
    if (!early) {
        task_stop(pool, -ENOMEM);
        return;
    }
    early->sequence = in->head.a;
    early->len = in->len;
    memcpy(early->bytes, in->body, in->len);
    early->next = from->early;
    from->early = early;
}

/* The kept message whose turn it is, taken off the list, or NULL. */
static struct stream_early *stream_next(struct task_inflow *from)
{
    struct stream_early **link = &from->early;
    while (*link && (*link)->sequence != from->next) {
        link = &(*link)->next;
    }
    struct stream_early *found = *link;
    if (found) {
        *link = found->next;
    }
    return found;
}

void task_on_emit(struct poise_pool *pool, const struct task_arrival *in)
{
    struct task_inflow *from = &pool->net.stream.from[in->source];
    if (in->head.a != from->next) {
        stream_keep(pool, in);
        return;
    }
    stream_deliver(pool, in->source, in->body, in->len);
    struct stream_early *early;
    while ((early = stream_next(from))) {
        stream_deliver(pool, in->source, early->bytes, early->len);
        free(early);
    }
    if (from->taken - from->credited >= STREAM_WINDOW_BYTES / 4) {
        from->credited = from->taken;
        task_send(pool, in->source,
                  (struct task_head){.kind = TASK_CREDIT, .a = from->taken},
                  NULL, 0);
    }
}

void task_on_credit(struct poise_pool *pool, const struct task_arrival *in)
{
    struct task_stream *stream = &pool->net.stream;
    if (in->head.a > stream->acknowledged) {
        stream->acknowledged = in->head.a;
    }
}

/* ---- sending ------------------------------------------------------------ */

/* One message of whole pieces; under the lock. */
static void stream_send(struct poise_pool *pool)
{
    struct task_stream *stream = &pool->net.stream;
    struct poise_buf *packed = &pool->net.packed;
    struct task_record piece;
    poise_buf_reset(packed);
    while (
        task_deque_oldest(&stream->pieces, &piece) &&
        (packed->len == 0 || packed->len + piece.len < STREAM_MESSAGE_BYTES)) {
        poise_buf_blob(packed, piece.data, piece.len);
        task_deque_pop_oldest(&stream->pieces);
    }
    if (packed->error) {
        task_stop(pool, -ENOMEM);
        return;
    }
    task_send(pool, 0,
              (struct task_head){.kind = TASK_EMIT, .a = stream->sequence++},
              packed->data, packed->len);
    stream->sent += packed->len;
}

void task_stream_turn(struct poise_pool *pool)
{
    struct task_stream *stream = &pool->net.stream;
    size_t held = __atomic_load_n(&stream->held, __ATOMIC_SEQ_CST);
    if (held == 0 || task_state(pool) != TASK_RUNNING) {
        return;
    }
    bool due =
        held >= STREAM_MESSAGE_BYTES / 2 ||
        __atomic_load_n(&pool->busy, __ATOMIC_SEQ_CST) == 0 ||
        poise_clock_ns() - __atomic_load_n(&stream->since, __ATOMIC_RELAXED) >=
            STREAM_DELAY_NS;
    pthread_mutex_lock(&stream->lock);
    while (due && stream->pieces.count > 0 &&
           stream->sent - stream->acknowledged < STREAM_WINDOW_BYTES) {
        stream_send(pool);
    }
    __atomic_store_n(&stream->held, task_deque_bytes(&stream->pieces),
                     __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&stream->lock);
    poise_event_signal(&stream->drained);
}

/* Wait until there is room; the communicator makes it. */
static void stream_wait(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    struct task_stream *stream = &pool->net.stream;
    while (__atomic_load_n(&stream->held, __ATOMIC_SEQ_CST) >=
           STREAM_HELD_BYTES) {
        if (task_state(pool) != TASK_RUNNING) {
            return; /* the run is over, and so is its output */
        }
        uint32_t seen = poise_event_seen(&stream->drained);
        if (worker->communicates) {
            task_turn(pool);
            if (__atomic_load_n(&stream->held, __ATOMIC_SEQ_CST) >=
                STREAM_HELD_BYTES) {
                poise_world_wait(pool->world, STREAM_NAP_NS);
            }
        } else {
            poise_world_wake(pool->world);
            poise_event_wait(&stream->drained, seen, STREAM_NAP_NS);
        }
    }
}

int task_stream_push(struct poise_pool *pool, const void *data, size_t len)
{
    struct task_stream *stream = &pool->net.stream;
    pthread_mutex_lock(&stream->lock);
    if (stream->pieces.count == 0) {
        __atomic_store_n(&stream->since, poise_clock_ns(), __ATOMIC_RELAXED);
    }
    int code = task_deque_push(&stream->pieces, data, len, 0);
    __atomic_store_n(&stream->held, task_deque_bytes(&stream->pieces),
                     __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&stream->lock);
    return code;
}

int poise_task_emit(struct poise_worker *worker, const void *data, size_t len)
{
    struct poise_pool *pool = worker->pool;
    if (pool->rank == 0) {
        return task_deliver(pool, 0, data, len);
    }
    stream_wait(worker);
    return task_stream_push(pool, data, len);
}

void task_stream_copy(struct poise_pool *pool, struct poise_buf *out)
{
    struct task_stream *stream = &pool->net.stream;
    struct task_record piece;
    size_t at = 0;
    pthread_mutex_lock(&stream->lock);
    while (task_deque_next(&stream->pieces, &at, &piece)) {
        poise_buf_blob(out, piece.data, piece.len);
    }
    pthread_mutex_unlock(&stream->lock);
    for (int i = 0; i < pool->size; i++) {
        const struct stream_early *early = stream->from[i].early;
        for (; early; early = early->next) {
            poise_buf_append(out, early->bytes, early->len);
        }
    }
}

/* ---- messages for the hook receive -------------------------------------- */

int task_outbox_push(struct poise_pool *pool, int dest, const void *data,
                     size_t len)
{
    if (dest == pool->rank) {
        return task_inbox_push(pool, dest, data, len);
    }
    struct task_net *net = &pool->net;
    pthread_mutex_lock(&net->outbox_lock);
    int code = task_message_push(&net->outbox, dest, data, len);
    __atomic_store_n(&net->outbox_count, net->outbox.count, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&net->outbox_lock);
    if (code == 0 && __atomic_load_n(&pool->comm_asleep, __ATOMIC_SEQ_CST)) {
        poise_world_wake(pool->world);
    }
    return code;
}

void task_on_send(struct poise_pool *pool, const struct task_arrival *in)
{
    struct poise_reader reader = poise_reader_of(in->body, in->len);
    int code = 0;
    while (code == 0 && poise_reader_left(&reader) > 0 && !reader.error) {
        size_t size;
        const void *bytes = poise_reader_blob(&reader, &size);
        code = task_inbox_push(pool, in->source, bytes, size);
    }
    if (code < 0) {
        task_stop(pool, code);
    } else if (__atomic_load_n(&pool->asleep, __ATOMIC_SEQ_CST) > 0) {
        poise_event_signal(&pool->work);
    }
}
