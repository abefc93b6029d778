/*
 * Spilling: when a rank holds more than it may, the older half of a worker's
 * queue is packed into segments of a file that has no name. Segments are a
 * stack; the newest comes back first, when the deques run dry. While a
 * checkpoint still reads segments, their space is not written again.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPILL_SEGMENT_BYTES ((size_t)256 << 10)

int task_spill_init(struct poise_pool *pool)
{
    pool->spill.fd = -1;
    return -pthread_mutex_init(&pool->spill.lock, NULL);
}

void task_spill_free(struct poise_pool *pool)
{
    if (pool->spill.fd >= 0) {
        close(pool->spill.fd);
    }
    free(pool->spill.segments);
    pthread_mutex_destroy(&pool->spill.lock);
}

typedef int (*task_pack_hook)(const void *task, size_t len,
                              struct poise_buf *out, void *arg);

static int pack_by(struct poise_pool *pool, task_pack_hook hook,
                   const struct task_record *record, struct poise_buf *out)
{
    poise_buf_varint(out, record->footprint);
    if (!hook) {
        return poise_buf_blob(out, record->data, record->len);
    }
    struct poise_buf packed = {0};
    int code = hook(record->data, record->len, &packed, pool->hooks.arg);
    if (code >= 0) {
        code = packed.error ? packed.error
                            : poise_buf_blob(out, packed.data, packed.len);
    }
    poise_buf_free(&packed);
    return code;
}

int task_pack(struct poise_pool *pool, const struct task_record *record,
              struct poise_buf *out)
{
    return pack_by(pool, pool->hooks.pack, record, out);
}

int task_pack_record(struct poise_pool *pool, const struct task_record *record,
                     struct poise_buf *out)
{
    task_pack_hook hook = pool->hooks.record;
    return pack_by(pool, hook ? hook : pool->hooks.pack, record, out);
}

ssize_t task_unpack(struct poise_pool *pool, const void *blobs, size_t len,
                    struct task_deque *queue, struct poise_buf *scratch)
{
    struct poise_reader reader = poise_reader_of(blobs, len);
    ssize_t count = 0;
    while (poise_reader_left(&reader) > 0) {
        size_t size;
        uint64_t footprint = poise_reader_varint(&reader);
        const void *bytes = poise_reader_blob(&reader, &size);
        if (reader.error) {
            return poise_error_set(EBADMSG, "unpack tasks", NULL,
                                   "they are cut short");
        }
        int code = 0;
        if (pool->hooks.unpack) {
            poise_buf_reset(scratch);
            code = pool->hooks.unpack(bytes, size, scratch, pool->hooks.arg);
            if (code >= 0 && scratch->error) {
                code = scratch->error;
            }
            bytes = scratch->data;
            size = scratch->len;
        }
        if (code >= 0) {
            code = task_deque_push(queue, bytes, size, footprint);
            if (code < 0 && pool->hooks.unpack && pool->hooks.drop) {
                pool->hooks.drop(bytes, size, pool->hooks.arg);
            }
        }
        if (code < 0) {
            return code;
        }
        count++;
    }
    return count;
}

/* ---- the file ----------------------------------------------------------- */

static int spill_open(struct poise_pool *pool)
{
    int fd = poise_file_nameless(pool->options.spill_dir, 0);
    if (fd >= 0) {
        pool->spill.fd = fd;
    }
    return fd < 0 ? fd : 0;
}

static int spill_write(struct poise_pool *pool, const struct poise_buf *bytes,
                       size_t count)
{
    struct task_spill *spill = &pool->spill;
    if (spill->count == spill->cap) {
        size_t cap = spill->cap ? spill->cap * 2 : 16;
        void *grown =
            poise_realloc(spill->segments, cap, sizeof *spill->segments);
        if (!grown) {
            return -ENOMEM;
        }
        spill->segments = grown;
        spill->cap = cap;
    }
    int code = spill->fd < 0 ? spill_open(pool) : 0;
    uint64_t offset = spill->end > spill->pinned ? spill->end : spill->pinned;
    if (code == 0) {
        code = poise_file_pwrite(spill->fd, bytes->data, bytes->len, offset,
                                 "file of queued tasks");
    }
    if (code < 0) {
        return code;
    }
    spill->segments[spill->count++] =
        (struct task_segment){offset, bytes->len, count};
    spill->end = offset + bytes->len;
    __atomic_fetch_add(&spill->tasks, count, __ATOMIC_RELAXED);
    __atomic_fetch_add(&spill->bytes, bytes->len, __ATOMIC_RELAXED);
    __atomic_fetch_add(&spill->tasks_now, count, __ATOMIC_RELAXED);
    __atomic_store_n(&spill->published, spill->count, __ATOMIC_SEQ_CST);
    return 0;
}

/* One segment of at most `most` records, which leave the queue only once they
 * are in the file. */
static ssize_t spill_segment(struct poise_worker *worker, size_t most)
{
    struct poise_pool *pool = worker->pool;
    struct poise_buf bytes = {0};
    struct task_record record;
    size_t at = 0;
    size_t count = 0;
    int code = 0;
    while (code >= 0 && count < most && bytes.len < SPILL_SEGMENT_BYTES &&
           task_deque_next(&worker->queue, &at, &record)) {
        code = task_pack(pool, &record, &bytes);
        count++;
    }
    if (code >= 0) {
        pthread_mutex_lock(&pool->spill.lock);
        code = spill_write(pool, &bytes, count);
        pthread_mutex_unlock(&pool->spill.lock);
    }
    poise_buf_free(&bytes);
    for (size_t i = 0; code >= 0 && i < count; i++) {
        task_deque_oldest(&worker->queue, &record);
        if (pool->hooks.drop) {
            pool->hooks.drop(record.data, record.len, pool->hooks.arg);
        }
        task_deque_pop_oldest(&worker->queue);
    }
    return code < 0 ? code : (ssize_t)count;
}

int task_spill_check(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    size_t limit = pool->options.queue_bytes;
    size_t mine = task_deque_bytes(&worker->queue);
    /* Only who holds a fair part looks at the others. */
    unsigned all = pool->worker_count + pool->dedicated;
    if (mine * all <= limit) {
        return 0;
    }
    size_t sum = mine;
    for (unsigned i = 0; i < all; i++) {
        if (i != worker->index) {
            sum += __atomic_load_n(&pool->workers[i].queued_bytes,
                                   __ATOMIC_RELAXED);
        }
    }
    size_t most = sum <= limit ? 0 : worker->queue.count / 2;
    while (most > 0) {
        ssize_t moved = spill_segment(worker, most);
        if (moved < 0) {
            return (int)moved;
        }
        most -= (size_t)moved;
    }
    return 0;
}

/* Under the worker's and the spill's lock. */
static int spill_read(struct poise_worker *worker)
{
    struct poise_pool *pool = worker->pool;
    struct task_spill *spill = &pool->spill;
    const struct task_segment *segment = &spill->segments[spill->count - 1];
    struct poise_buf scratch = {0};
    struct task_deque got = {0};
    char *bytes = poise_alloc(segment->bytes, 1);
    ssize_t count =
        bytes ? poise_file_pread(spill->fd, bytes, segment->bytes,
                                 segment->offset, "file of queued tasks")
              : -ENOMEM;
    if (count >= 0 && (uint64_t)count < segment->bytes) {
        count = poise_error_set(EIO, "read", "file of queued tasks",
                                "it is cut short");
    }
    if (count >= 0) {
        count = task_unpack(pool, bytes, segment->bytes, &got, &scratch);
    }
    if (count >= 0) {
        int code = task_deque_reserve(&worker->queue, got.tail - got.head);
        count = code < 0 ? code : count;
    }
    if (count >= 0) {
        task_deque_append(&got, &worker->queue);
        spill->end = segment->offset;
        spill->count--;
        __atomic_fetch_sub(&spill->tasks_now, segment->count, __ATOMIC_RELAXED);
        __atomic_store_n(&spill->published, spill->count, __ATOMIC_SEQ_CST);
    }
    task_deque_drop(pool, &got);
    poise_buf_free(&scratch);
    free(bytes);
    return count < 0 ? (int)count : 1;
}

int task_spill_load(struct poise_worker *worker)
{
    struct task_spill *spill = &worker->pool->spill;
    if (__atomic_load_n(&spill->published, __ATOMIC_SEQ_CST) == 0) {
        return 0;
    }
    int code = 0;
    pthread_mutex_lock(&worker->lock);
    pthread_mutex_lock(&spill->lock);
    if (spill->count > 0) {
        code = spill_read(worker);
        task_queue_publish(worker);
    }
    pthread_mutex_unlock(&spill->lock);
    pthread_mutex_unlock(&worker->lock);
    if (code < 0) {
        task_stop(worker->pool, code);
    }
    return code;
}
