/*
 * Parts of contexts that are away, under way from and to disk: each worker has
 * a few at a time, and some memory through which they go where what they are
 * copied from or to is not aligned as the disk wants it.
 *
 * Who starts one has the context busy; until it is over the context counts it
 * (parts), and does not come into memory. A worker never waits for a context
 * while it has parts of its own under way: contexts_wait ends them before.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What is on its way, and for reads where the bytes go that were wanted. */
struct flow_entry {
    struct poise_disk_transfer transfer;
    struct context *context;
    char *to; /* NULL: nowhere, or they are there already */
    size_t skip, bytes;
};

struct flow {
    char *memory; /* CONTEXT_BOUNCE, FLOW_BYTES for each entry; owned */
    struct flow_entry entries[FLOW_ENTRIES];
    unsigned first, count;
    int code; /* the first error since it was last finished */
};

int flow_begin(struct contexts *all)
{
    all->flows = poise_alloc((size_t)all->threads, sizeof *all->flows);
    return all->flows != NULL ? 0 : -ENOMEM;
}

void flow_end(struct contexts *all)
{
    for (int i = 0; all->flows != NULL && i < all->threads; i++) {
        struct flow *flow = &all->flows[i];
        for (; flow->count > 0; flow->count--, flow->first++) {
            poise_disk_wait(
                &flow->entries[flow->first % FLOW_ENTRIES].transfer);
        }
        poise_huge_free(flow->memory, CONTEXT_BOUNCE);
    }
    free(all->flows);
}

static struct flow *flow_here(const struct contexts *all)
{
    return &all->flows[vrank_here != NULL ? vrank_here->number : 0];
}

char *flow_memory(struct contexts *all)
{
    struct flow *flow = flow_here(all);

    if (flow->memory == NULL) {
        flow->memory = poise_huge_alloc(CONTEXT_BOUNCE);
    }
    return flow->memory;
}

bool flow_is_empty(const struct contexts *all)
{
    return flow_here(all)->count == 0;
}

/* The oldest is over. */
static void flow_reap(struct contexts *all, struct flow *flow)
{
    struct flow_entry *entry = &flow->entries[flow->first % FLOW_ENTRIES];
    size_t len = entry->transfer.len;
    const char *data = entry->transfer.data;
    ssize_t moved = poise_disk_wait(&entry->transfer);

    if (moved >= 0 && (size_t)moved != len) {
        moved = poise_error_set(EIO, "read a scratch file", NULL,
                                "it ends too early");
    }
    if (moved < 0) {
        flow->code = flow->code < 0 ? flow->code : (int)moved;
    } else if (entry->to != NULL) {
        memcpy(entry->to, data + entry->skip, entry->bytes);
    }
    flow->first++;
    flow->count--;
    if (__atomic_sub_fetch(&entry->context->parts, 1, __ATOMIC_ACQ_REL) == 0 &&
        all->threads > 1) {
        pthread_mutex_lock(&all->lock);
        pthread_cond_broadcast(&all->changed);
        pthread_mutex_unlock(&all->lock);
    }
}

int flow_finish(struct contexts *all)
{
    struct flow *flow = flow_here(all);
    int code;

    while (flow->count > 0) {
        flow_reap(all, flow);
    }
    code = flow->code;
    flow->code = 0;
    return code;
}

/* An entry and its memory; NULL: there is no memory. */
static struct flow_entry *flow_get(struct contexts *all, char **memory)
{
    struct flow *flow = flow_here(all);
    unsigned at;

    if (flow_memory(all) == NULL) {
        return NULL;
    }
    if (flow->count == FLOW_ENTRIES) {
        flow_reap(all, flow);
    }
    at = (flow->first + flow->count++) % FLOW_ENTRIES;
    *memory = flow->memory + at * FLOW_BYTES;
    return &flow->entries[at];
}

/* Start what does not cross a stripe. */
static void flow_start(struct contexts *all, struct context *context,
                       struct flow_entry *entry, size_t offset, char *data,
                       size_t bytes, bool is_write)
{
    entry->context = context;
    __atomic_add_fetch(&context->parts, 1, __ATOMIC_RELAXED);
    context_disk_start(all->disk, &entry->transfer, context->index, offset,
                       data, bytes, is_write);
}

/* As many whole pages as can go from page `offset` on by themselves, at most
 * `bytes`; less than a page: none. */
static size_t flow_direct(size_t offset, size_t bytes)
{
    size_t stripe = CONTEXT_STRIPE - offset % CONTEXT_STRIPE;

    return (bytes < stripe ? bytes : stripe) & ~(CONTEXT_PAGE - 1);
}

/* The same through memory: to which byte, of pages from `low` on. */
static size_t flow_bounced(size_t low, size_t end)
{
    size_t most = low - low % CONTEXT_STRIPE + CONTEXT_STRIPE;

    most = most < low + FLOW_BYTES ? most : low + FLOW_BYTES;
    return most < end ? most : end;
}

int flow_read(struct contexts *all, struct context *context, size_t offset,
              char *data, size_t bytes)
{
    bool alike = (offset - (uintptr_t)data) % CONTEXT_PAGE == 0;
    size_t end = offset + bytes;

    while (offset < end) {
        size_t into = offset % CONTEXT_PAGE, now = 0;
        char *memory;
        struct flow_entry *entry = flow_get(all, &memory);
        if (entry == NULL) {
            return -ENOMEM;
        }
        if (alike && into == 0) {
            now = flow_direct(offset, end - offset);
        }
        if (now > 0) {
            entry->to = NULL;
            flow_start(all, context, entry, offset, data, now, false);
        } else {
            size_t low = offset - into;
            now = flow_bounced(low, end) - offset;
            if (alike && into > 0 && now > CONTEXT_PAGE - into) {
                now = CONTEXT_PAGE - into;
            }
            entry->to = data;
            entry->skip = into;
            entry->bytes = now;
            flow_start(all, context, entry, low, memory,
                       (into + now + CONTEXT_PAGE - 1) & ~(CONTEXT_PAGE - 1),
                       false);
        }
        offset += now;
        data += now;
    }
    return 0;
}

/* Those of part's bytes that lie in from..to, which begins at `out`. */
static void flow_lay(const struct flow_part *part, size_t from, size_t to,
                     char *out)
{
    size_t low = part->offset > from ? part->offset : from;
    size_t end = part->offset + part->bytes, high = end < to ? end : to;

    if (low < high) {
        memcpy(out + (low - from), part->data + (low - part->offset),
               high - low);
    }
}

int flow_write(struct contexts *all, struct context *context, size_t low,
               size_t high, const struct flow_part *parts, int count)
{
    /* The first may be as large as it likes, the others are small. */
    const struct flow_part *whole = &parts[0];
    bool alike = (whole->offset - (uintptr_t)whole->data) % CONTEXT_PAGE == 0;
    size_t at = low, end = whole->offset + whole->bytes;

    while (at < high) {
        char *memory;
        struct flow_entry *entry = flow_get(all, &memory);
        size_t now = 0;
        if (entry == NULL) {
            return -ENOMEM;
        }
        entry->to = NULL;
        if (alike && at >= whole->offset && at < end) {
            now = flow_direct(at, end - at);
        }
        if (now > 0) {
            char *data = (char *)(uintptr_t)whole->data + (at - whole->offset);
            flow_start(all, context, entry, at, data, now, true);
        } else {
            now = alike ? CONTEXT_PAGE : flow_bounced(at, high) - at;
            for (int i = 0; i < count; i++) {
                flow_lay(&parts[i], at, at + now, memory);
            }
            flow_start(all, context, entry, at, memory, now, true);
        }
        at += now;
    }
    stored_set(context, low / CONTEXT_PAGE, high / CONTEXT_PAGE, true);
    return 0;
}
