/*
 * Deques of variable-length records. A record is a head (length, footprint),
 * its bytes padded to 8, and a tail that repeats the head, so that it can be
 * taken from either end. All records lie in one buffer between `head` and
 * `tail`: appending, moving and giving away are plain copies of bytes.
 *
 * Nothing here is lock-free: a worker's `queue` is changed and read under that
 * worker's lock only. Its owner adds and takes at the tail (depth first); at
 * the head, where the oldest and probably largest tasks are, neighbours take
 * (worker_rob), the spill file (spill_segment) and other ranks, through the
 * communicator (steal_collect). Only the master of a central pool gives away
 * from the tail. Others read `queued` and `queued_bytes` without the lock:
 * hints of where to look, and for task_passive more than hints, see there.
 *
 * A worker's `added` and `sends` are its owner's alone, so adding a task costs
 * no lock; a commit appends them to what others can see.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct deque_mark {
    uint32_t len, footprint;
};

enum {
    DEQUE_OVERHEAD = 2 * sizeof(struct deque_mark),
    DEQUE_LEAST = 1024 /**< bytes of a buffer */
};

static inline size_t deque_size(size_t len)
{
    return DEQUE_OVERHEAD + ((len + 7) & ~(size_t)7);
}

void task_deque_free(struct task_deque *deque)
{
    free(deque->data);
    *deque = (struct task_deque){0};
}

static int deque_grow(struct task_deque *deque, size_t bytes)
{
    size_t used = deque->tail - deque->head;
    if (used + bytes <= deque->cap / 2) {
        memmove(deque->data, deque->data + deque->head, used);
        deque->head = 0;
        deque->tail = used;
        return 0;
    }
    size_t cap = deque->cap ? deque->cap : DEQUE_LEAST;
    while (cap - deque->head < used + bytes) {
        cap *= 2;
    }
    char *data = poise_realloc(deque->data, cap, 1);
    if (!data) {
        return -ENOMEM;
    }
    deque->data = data;
    deque->cap = cap;
    return 0;
}

int task_deque_reserve(struct task_deque *deque, size_t bytes)
{
    return deque->cap - deque->tail >= bytes ? 0 : deque_grow(deque, bytes);
}

/* Push a record of two parts. */
static int deque_push(struct task_deque *deque, const void *front,
                      size_t front_len, const void *data, size_t data_len,
                      size_t footprint)
{
    size_t len = front_len + data_len;
    if (len > INT32_MAX) {
        return poise_error_set(EMSGSIZE, "add a task", NULL,
                               "%zu bytes are too many", len);
    }
    size_t size = deque_size(len);
    int code = task_deque_reserve(deque, size);
    if (code < 0) {
        return code;
    }
    struct deque_mark mark = {(uint32_t)len, footprint > UINT32_MAX
                                                 ? UINT32_MAX
                                                 : (uint32_t)footprint};
    char *at = deque->data + deque->tail;
    memcpy(at, &mark, sizeof mark);
    memcpy(at + sizeof mark, front, front_len);
    if (data_len > 0) {
        memcpy(at + sizeof mark + front_len, data, data_len);
    }
    memcpy(at + size - sizeof mark, &mark, sizeof mark);
    deque->tail += size;
    deque->count++;
    deque->held += mark.footprint;
    return 0;
}

int task_deque_push(struct task_deque *deque, const void *data, size_t len,
                    size_t footprint)
{
    return deque_push(deque, "", 0, data, len, footprint);
}

int task_message_push(struct task_deque *deque, int rank, const void *data,
                      size_t len)
{
    uint64_t front = (uint64_t)rank;
    return deque_push(deque, &front, sizeof front, data, len, 0);
}

struct task_message task_message_of(const struct task_record *record)
{
    uint64_t rank;
    memcpy(&rank, record->data, sizeof rank);
    return (struct task_message){.rank = (int)rank,
                                 .data =
                                     (const char *)record->data + sizeof rank,
                                 .len = record->len - sizeof rank};
}

static struct task_record deque_record(const struct task_deque *deque,
                                       size_t at, struct deque_mark mark)
{
    return (struct task_record){deque->data + at + sizeof mark, mark.len,
                                mark.footprint};
}

bool task_deque_newest(const struct task_deque *deque, struct task_record *out)
{
    if (deque->count == 0) {
        return false;
    }
    struct deque_mark mark;
    memcpy(&mark, deque->data + deque->tail - sizeof mark, sizeof mark);
    *out = deque_record(deque, deque->tail - deque_size(mark.len), mark);
    return true;
}

bool task_deque_next(const struct task_deque *deque, size_t *at,
                     struct task_record *out)
{
    size_t from = deque->head + *at;
    if (from >= deque->tail) {
        return false;
    }
    struct deque_mark mark;
    memcpy(&mark, deque->data + from, sizeof mark);
    *out = deque_record(deque, from, mark);
    *at += deque_size(mark.len);
    return true;
}

bool task_deque_oldest(const struct task_deque *deque, struct task_record *out)
{
    size_t at = 0;
    return task_deque_next(deque, &at, out);
}

/* One record less; an empty deque starts at the front of its buffer again. */
static void deque_forget(struct task_deque *deque, size_t count, size_t held)
{
    deque->count -= count;
    deque->held -= held;
    if (deque->count == 0) {
        deque->head = deque->tail = 0;
    }
}

void task_deque_pop_newest(struct task_deque *deque)
{
    struct task_record record;
    if (task_deque_newest(deque, &record)) {
        deque->tail -= deque_size(record.len);
        deque_forget(deque, 1, record.footprint);
    }
}

void task_deque_pop_oldest(struct task_deque *deque)
{
    struct task_record record;
    if (task_deque_oldest(deque, &record)) {
        deque->head += deque_size(record.len);
        deque_forget(deque, 1, record.footprint);
    }
}

ssize_t task_deque_move(struct task_deque *from, struct task_deque *to,
                        size_t count, size_t bytes)
{
    size_t moved = 0;
    size_t held = 0;
    size_t at = 0;
    size_t end = 0;
    struct task_record record;
    while (moved < count && task_deque_next(from, &at, &record) &&
           (moved == 0 || at <= bytes)) {
        moved++;
        held += record.footprint;
        end = at;
    }
    if (moved == 0) {
        return 0;
    }
    int code = task_deque_reserve(to, end);
    if (code < 0) {
        return code;
    }
    memcpy(to->data + to->tail, from->data + from->head, end);
    to->tail += end;
    to->count += moved;
    to->held += held;
    from->head += end;
    deque_forget(from, moved, held);
    return (ssize_t)moved;
}

void task_deque_append(struct task_deque *from, struct task_deque *to)
{
    size_t bytes = from->tail - from->head;
    if (bytes == 0) {
        return;
    }
    memcpy(to->data + to->tail, from->data + from->head, bytes);
    to->tail += bytes;
    to->count += from->count;
    to->held += from->held;
    from->head += bytes;
    deque_forget(from, from->count, from->held);
}
