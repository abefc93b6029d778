/*
 * Parts of contexts that are swapped out, under way from and to disk: each
 * worker has a queue of a few, and some memory through which they go where what
 * they are copied from or to is not aligned as the disk wants it.
 *
 * A worker that starts one has the context busy; the context then counts it in
 * `parts`, and does not become resident until it is over. Only the same worker
 * ends it. A worker never waits for a context while it has transfers of its own
 * under way: contexts_wait ends them before, so that no two wait for each
 * other's.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What is on its way, and for reads where the bytes go that were wanted. */
struct transfer {
    struct poise_disk_transfer transfer;
    struct context *context;
    char *to; /* NULL: nowhere, or they are there already */
    size_t skip, bytes;
};

struct transfer_queue {
    char *memory; /* CONTEXT_BOUNCE, TRANSFER_BYTES for each entry; owned */
    struct transfer entries[TRANSFERS];
    unsigned first, count;
    int code; /* the first error since it was last finished */
};

int transfer_begin(struct contexts *all)
{
    all->queues = poise_alloc((size_t)all->threads, sizeof *all->queues);
    return all->queues != NULL ? 0 : -ENOMEM;
}

void transfer_end(struct contexts *all)
{
    for (int i = 0; all->queues != NULL && i < all->threads; i++) {
        struct transfer_queue *queue = &all->queues[i];
        for (; queue->count > 0; queue->count--, queue->first++) {
            poise_disk_wait(&queue->entries[queue->first % TRANSFERS].transfer);
        }
        poise_huge_free(queue->memory, CONTEXT_BOUNCE);
    }
    free(all->queues);
}

static struct transfer_queue *transfer_queue_here(const struct contexts *all)
{
    return &all->queues[vrank_here != NULL ? vrank_here->number : 0];
}

char *transfer_memory(struct contexts *all)
{
    struct transfer_queue *queue = transfer_queue_here(all);

    if (queue->memory == NULL) {
        queue->memory = poise_huge_alloc(CONTEXT_BOUNCE);
    }
    return queue->memory;
}

bool transfer_is_empty(const struct contexts *all)
{
    return transfer_queue_here(all)->count == 0;
}

/* The oldest is over. */
static void transfer_reap(struct contexts *all, struct transfer_queue *queue)
{
    struct transfer *entry = &queue->entries[queue->first % TRANSFERS];
    size_t len = entry->transfer.len;
    const char *data = entry->transfer.data;
    ssize_t moved = poise_disk_wait(&entry->transfer);

    if (moved >= 0 && (size_t)moved != len) {
        moved = poise_error_set(EIO, "read a scratch file", NULL,
                                "it ends too early");
    }
    if (moved < 0) {
        queue->code = queue->code < 0 ? queue->code : (int)moved;
    } else if (entry->to != NULL) {
        memcpy(entry->to, data + entry->skip, entry->bytes);
    }
    queue->first++;
    queue->count--;
    if (__atomic_sub_fetch(&entry->context->parts, 1, __ATOMIC_ACQ_REL) == 0 &&
        all->threads > 1) {
        pthread_mutex_lock(&all->lock);
        pthread_cond_broadcast(&all->changed);
        pthread_mutex_unlock(&all->lock);
    }
}

int transfer_finish(struct contexts *all)
{
    struct transfer_queue *queue = transfer_queue_here(all);
    int code;

    while (queue->count > 0) {
        transfer_reap(all, queue);
    }
    code = queue->code;
    queue->code = 0;
    return code;
}

/* An entry and its memory; NULL: there is no memory. */
static struct transfer *transfer_get(struct contexts *all, char **memory)
{
    struct transfer_queue *queue = transfer_queue_here(all);
    unsigned at;

    if (transfer_memory(all) == NULL) {
        return NULL;
    }
    if (queue->count == TRANSFERS) {
        transfer_reap(all, queue);
    }
    at = (queue->first + queue->count++) % TRANSFERS;
    *memory = queue->memory + at * TRANSFER_BYTES;
    return &queue->entries[at];
}

/* Start what does not cross a stripe. */
static void transfer_start(struct contexts *all, struct context *context,
                           struct transfer *entry, size_t offset, char *data,
                           size_t bytes, bool is_write)
{
    entry->context = context;
    __atomic_add_fetch(&context->parts, 1, __ATOMIC_RELAXED);
    context_disk_start(all->disk, &entry->transfer, context->index, offset,
                       data, bytes, is_write);
}

/* As many whole pages as can go from page `offset` on by themselves, at most
 * `bytes`; less than a page: none. */
static size_t transfer_direct(size_t offset, size_t bytes)
{
    size_t stripe = CONTEXT_STRIPE - offset % CONTEXT_STRIPE;

    return (bytes < stripe ? bytes : stripe) & ~(CONTEXT_PAGE - 1);
}

/* The same through memory: to which byte, of pages from `low` on. */
static size_t transfer_bounced(size_t low, size_t end)
{
    size_t most = low - low % CONTEXT_STRIPE + CONTEXT_STRIPE;

    most = most < low + TRANSFER_BYTES ? most : low + TRANSFER_BYTES;
    return most < end ? most : end;
}

int transfer_read(struct contexts *all, struct context *context, size_t offset,
                  char *data, size_t bytes)
{
    bool alike = (offset - (uintptr_t)data) % CONTEXT_PAGE == 0;
    size_t end = offset + bytes;

    while (offset < end) {
        size_t into = offset % CONTEXT_PAGE, now = 0;
        char *memory;
        struct transfer *entry = transfer_get(all, &memory);
        if (entry == NULL) {
            return -ENOMEM;
        }
        if (alike && into == 0) {
            now = transfer_direct(offset, end - offset);
        }
        if (now > 0) {
            entry->to = NULL;
            transfer_start(all, context, entry, offset, data, now, false);
        } else {
            size_t low = offset - into;
            now = transfer_bounced(low, end) - offset;
            if (alike && into > 0 && now > CONTEXT_PAGE - into) {
                now = CONTEXT_PAGE - into;
            }
            entry->to = data;
            entry->skip = into;
            entry->bytes = now;
            transfer_start(
                all, context, entry, low, memory,
                (into + now + CONTEXT_PAGE - 1) & ~(CONTEXT_PAGE - 1), false);
        }
        offset += now;
        data += now;
    }
    return 0;
}

/* Those of part's bytes that lie in from..to, which begins at `out`. */
static void transfer_lay(const struct write_part *part, size_t from, size_t to,
                         char *out)
{
    size_t low = part->offset > from ? part->offset : from;
    size_t end = part->offset + part->bytes, high = end < to ? end : to;

    if (low < high) {
        memcpy(out + (low - from), part->data + (low - part->offset),
               high - low);
    }
}

int transfer_write(struct contexts *all, struct context *context, size_t low,
                   size_t high, const struct write_part *parts, int count)
{
    /* The first may be as large as it likes, the others are small. */
    const struct write_part *whole = &parts[0];
    bool alike = (whole->offset - (uintptr_t)whole->data) % CONTEXT_PAGE == 0;
    size_t at = low, end = whole->offset + whole->bytes;

    while (at < high) {
        char *memory;
        struct transfer *entry = transfer_get(all, &memory);
        size_t now = 0;
        if (entry == NULL) {
            return -ENOMEM;
        }
        entry->to = NULL;
        if (alike && at >= whole->offset && at < end) {
            now = transfer_direct(at, end - at);
        }
        if (now > 0) {
            char *data = (char *)(uintptr_t)whole->data + (at - whole->offset);
            transfer_start(all, context, entry, at, data, now, true);
        } else {
            now = alike ? CONTEXT_PAGE : transfer_bounced(at, high) - at;
            for (int i = 0; i < count; i++) {
                transfer_lay(&parts[i], at, at + now, memory);
            }
            transfer_start(all, context, entry, at, memory, now, true);
        }
        at += now;
    }
    stored_set(context, low / CONTEXT_PAGE, high / CONTEXT_PAGE, true);
    return 0;
}
