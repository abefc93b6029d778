/*
 * Access to contexts from outside: to one that is resident, as to any memory,
 * while it is pinned; to a part of one that is swapped out, on disk
 * (transfer.c).
 *
 * A little that is written to one that is swapped out is kept as a pending
 * write, and put in when the context comes: small parts, and the ends of larger
 * ones that fill no page. A part that touches a pending write makes pages of
 * it, which go to disk. A pending write is newer than what is on disk, and of
 * two that overlap the one further behind in the list; so where they overlap
 * (pending_overlap) their order is kept, and they are not joined.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A smaller write to a context that is swapped out is kept until it comes. */
#define CONTEXT_DEFERRED ((size_t)16 << 10)
/* Less memory beside contexts is not counted. */
#define CONTEXT_TAKEN ((size_t)64 << 10)

void pending_free(struct contexts *all, struct context *context)
{
    while (context->pending != NULL) {
        struct pending_write *next = context->pending->next;
        all->pending_bytes -= context->pending->room;
        all->used_bytes -= context->pending->room;
        free(context->pending);
        context->pending = next;
    }
    context->pending_end = &context->pending;
    context->pending_overlap = false;
}

struct context *context_pin(const void *ptr)
{
    struct contexts *all = contexts;

    if (!context_covers(ptr)) {
        return NULL;
    }
    struct context *context = context_of(ptr);
    if (context == context_self()) {
        return NULL;
    }
    pthread_mutex_lock(&all->lock);
    context_open(all, context, false);
    pthread_mutex_unlock(&all->lock);
    return context;
}

void context_unpin(struct context *context)
{
    struct contexts *all = contexts;

    if (context == NULL) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    context_close(all, context, false);
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

/* Read pages of a context that is swapped out and busy; those that are not on
 * disk are zero. */
static int part_load(struct contexts *all, struct context *context,
                     size_t offset, char *data, size_t bytes)
{
    struct context_batch batch = {0};
    size_t end = (offset + bytes) / CONTEXT_PAGE, from;
    size_t to = offset / CONTEXT_PAGE, done = to;

    while (stored_next(context, &from, &to, end)) {
        memset(data + (done * CONTEXT_PAGE - offset), 0,
               (from - done) * CONTEXT_PAGE);
        context_disk_add(all->disk, &batch, context->index, from * CONTEXT_PAGE,
                         data + (from * CONTEXT_PAGE - offset),
                         (to - from) * CONTEXT_PAGE, false);
        done = to;
    }
    memset(data + (done * CONTEXT_PAGE - offset), 0,
           (end - done) * CONTEXT_PAGE);
    return context_disk_finish(&batch);
}

/* Read or write pages of a context that is swapped out and busy. */
static int part_move(struct contexts *all, struct context *context,
                     size_t offset, char *data, size_t bytes, bool is_write)
{
    struct context_batch batch = {0};

    if (!is_write) {
        return part_load(all, context, offset, data, bytes);
    }
    context_disk_add(all->disk, &batch, context->index, offset, data, bytes,
                     true);
    stored_set(context, offset / CONTEXT_PAGE, (offset + bytes) / CONTEXT_PAGE,
               true);
    return context_disk_finish(&batch);
}

/* The same with bytes: pages that are written in part are read before. At most
 * CONTEXT_BOUNCE - 2 pages. */
static int part_bounce(struct contexts *all, struct context *context,
                       size_t offset, char *data, size_t bytes, bool is_write)
{
    char *bounce = transfer_memory(all);
    size_t from = offset & ~(CONTEXT_PAGE - 1);
    size_t to = (offset + bytes + CONTEXT_PAGE - 1) & ~(CONTEXT_PAGE - 1);
    size_t last = to - CONTEXT_PAGE;
    int code = bounce != NULL ? 0 : -ENOMEM;

    if (code == 0 && !is_write) {
        code = part_move(all, context, from, bounce, to - from, false);
        if (code == 0) {
            memcpy(data, bounce + (offset - from), bytes);
        }
        return code;
    }
    if (code == 0 && (from != offset || to - from == CONTEXT_PAGE)) {
        code = part_move(all, context, from, bounce, CONTEXT_PAGE, false);
    }
    if (code == 0 && to != offset + bytes && last != from) {
        code = part_move(all, context, last, bounce + (last - from),
                         CONTEXT_PAGE, false);
    }
    if (code == 0) {
        memcpy(bounce + (offset - from), data, bytes);
        code = part_move(all, context, from, bounce, to - from, true);
    }
    return code;
}

/* Read or write part of a context that is swapped out and busy: whole pages go
 * by themselves where both sides are aligned alike, the rest is copied. */
static int part_go(struct contexts *all, struct context *context, size_t offset,
                   char *data, size_t bytes, bool is_write)
{
    size_t most = CONTEXT_BOUNCE - 2 * CONTEXT_PAGE;
    bool alike = (offset - (uintptr_t)data) % CONTEXT_PAGE == 0;
    int code = 0;

    while (bytes > 0 && code == 0) {
        size_t into = offset % CONTEXT_PAGE, now;
        if (alike && into == 0 && bytes >= CONTEXT_PAGE) {
            now = bytes & ~(CONTEXT_PAGE - 1);
            code = part_move(all, context, offset, data, now, is_write);
        } else {
            now = bytes < most ? bytes : most;
            if (alike && into > 0 && now > CONTEXT_PAGE - into) {
                now = CONTEXT_PAGE - into;
            }
            code = part_bounce(all, context, offset, data, now, is_write);
        }
        offset += now;
        data += now;
        bytes -= now;
    }
    return code;
}

static bool pending_meets(const struct pending_write *write, size_t offset,
                          size_t bytes)
{
    return write->offset < offset + bytes &&
           offset < write->offset + write->bytes;
}

/* Reserve memory for pending writes, or release it: whether there is so much.
 */
static bool pending_reserve(struct contexts *all, size_t bytes)
{
    pthread_mutex_lock(&all->lock);
    bool fits = all->pending_bytes + bytes <= all->plan.message_bytes;
    if (fits) {
        /* What was lent of it, contexts give back. */
        all->pending_bytes += bytes;
        fits = contexts_room(all, NULL, NULL, bytes, false);
        all->pending_bytes -= fits ? 0 : bytes;
    }
    pthread_mutex_unlock(&all->lock);
    return fits;
}

static void pending_release(struct contexts *all, size_t bytes)
{
    pthread_mutex_lock(&all->lock);
    all->pending_bytes -= bytes;
    all->used_bytes -= bytes;
    pthread_mutex_unlock(&all->lock);
}

bool context_buffer_reserve(size_t bytes)
{
    return contexts != NULL && pending_reserve(contexts, bytes);
}

void context_buffer_release(size_t bytes)
{
    if (contexts != NULL && bytes > 0) {
        pending_release(contexts, bytes);
    }
}

void context_memory_take(size_t bytes)
{
    struct contexts *all = contexts;

    if (all == NULL || bytes < CONTEXT_TAKEN) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    /* It waits for nobody, who might wait for it: where not enough can go at
     * once the caller has it all the same, and others go later. */
    if (!contexts_room(all, NULL, NULL, bytes, false)) {
        all->used_bytes += bytes;
    }
    all->taken_bytes += bytes;
    pthread_mutex_unlock(&all->lock);
}

void context_memory_give(size_t bytes)
{
    struct contexts *all = contexts;

    if (all == NULL || bytes < CONTEXT_TAKEN) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    all->taken_bytes -= bytes;
    all->used_bytes -= bytes;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

/* Keep bytes for a context that is swapped out and busy: whether there is room.
 */
static bool part_defer(struct contexts *all, struct context *context,
                       size_t offset, const char *data, size_t bytes)
{
    bool fits = pending_reserve(all, bytes);
    struct pending_write *write =
        fits ? poise_realloc(NULL, sizeof *write + bytes, 1) : NULL;

    if (write == NULL) {
        pending_release(all, fits ? bytes : 0);
        return false;
    }
    *write =
        (struct pending_write){.offset = offset, .bytes = bytes, .room = bytes};
    memcpy(write->data, data, bytes);
    *context->pending_end = write;
    context->pending_end = &write->next;
    return true;
}

/* The link to the pending write that ends, or begins, at `offset`; NULL: there
 * is none, or some overlap and must stay in their order. */
static struct pending_write **pending_beside(struct context *context,
                                             size_t offset, bool ends)
{
    struct pending_write **link = &context->pending;

    while (*link != NULL &&
           (*link)->offset + (ends ? (*link)->bytes : 0) != offset) {
        link = &(*link)->next;
    }
    return *link != NULL && !context->pending_overlap ? link : NULL;
}

static void pending_remove(struct contexts *all, struct context *context,
                           struct pending_write **link)
{
    struct pending_write *write = *link;

    *link = write->next;
    if (context->pending_end == &write->next) {
        context->pending_end = link;
    }
    pending_release(all, write->room);
    free(write);
}

/* Add bytes to the pending write at whose end they belong: whether there is
 * one, and room. */
static bool pending_extend(struct contexts *all, struct context *context,
                           struct pending_write **link, const char *data,
                           size_t bytes)
{
    struct pending_write *write = link != NULL ? *link : NULL;
    size_t room;

    if (write == NULL || write->bytes + bytes > TRANSFER_BYTES) {
        return false;
    }
    room = write->room;
    while (room < write->bytes + bytes) {
        room = 2 * room < TRANSFER_BYTES ? 2 * room : TRANSFER_BYTES;
    }
    if (room > write->room) {
        size_t more = room - write->room;
        bool last = context->pending_end == &write->next;
        if (!pending_reserve(all, more)) {
            return false;
        }
        write = poise_realloc(write, sizeof *write + room, 1);
        if (write == NULL) {
            pending_release(all, more);
            return false;
        }
        write->room = room;
        *link = write;
        context->pending_end = last ? &write->next : context->pending_end;
    }
    memcpy(write->data + write->bytes, data, bytes);
    write->bytes += bytes;
    return true;
}

/* What a part takes from a pending write that begins or ends with it: the rest
 * of a page, so that all of that is known. Nothing, where that is not so. */
static struct write_part pending_piece(struct pending_write *const *link,
                                       size_t from, size_t to)
{
    const struct pending_write *write = link != NULL ? *link : NULL;

    if (from == to || write == NULL || write->offset > from ||
        write->offset + write->bytes < to) {
        return (struct write_part){.offset = from};
    }
    return (struct write_part){.offset = from,
                               .bytes = to - from,
                               .data = write->data + (from - write->offset)};
}

/* The bytes from..to of a pending write are on disk now; they are its first or
 * its last. */
static void pending_trim(struct contexts *all, struct context *context,
                         struct pending_write **link, size_t from, size_t to)
{
    struct pending_write *write = *link;

    if (to - from == write->bytes) {
        pending_remove(all, context, link);
        return;
    }
    if (from == write->offset) {
        write->offset = to;
        memmove(write->data, write->data + (to - from),
                write->bytes - (to - from));
    }
    write->bytes -= to - from;
}

/* Write a part that is larger than pages: those that are known as a whole go
 * to disk, and what is at its ends is kept. False: there is no room for that.
 * *code: what went wrong. */
static bool part_pages(struct contexts *all, struct context *context,
                       const struct write_part *part, int *code)
{
    size_t mask = CONTEXT_PAGE - 1, offset = part->offset;
    size_t end = offset + part->bytes;
    size_t low = offset & ~mask, high = (end + mask) & ~mask;
    struct pending_write **before = pending_beside(context, offset, true);
    struct pending_write **after = pending_beside(context, end, false);
    struct write_part parts[] = {*part, pending_piece(before, low, offset),
                                 pending_piece(after, end, high)};

    low = parts[1].bytes > 0 ? low : (offset + mask) & ~mask;
    high = parts[2].bytes > 0 ? high : end & ~mask;
    if (low > offset &&
        !part_defer(all, context, offset, part->data, low - offset)) {
        return false;
    }
    if (high < end && !part_defer(all, context, high,
                                  part->data + (high - offset), end - high)) {
        /* What was kept before stays: it is right, too. */
        return false;
    }
    *code = transfer_write(all, context, low, high, parts, 3);
    /* The later one first: then the other's link is still right. */
    if (parts[2].bytes > 0) {
        after = pending_beside(context, end, false);
        pending_trim(all, context, after, end, high);
    }
    if (parts[1].bytes > 0) {
        before = pending_beside(context, offset, true);
        pending_trim(all, context, before, low, offset);
    }
    return true;
}

/* A pending write that has become large goes to disk, but for its ends. */
static int pending_spill(struct contexts *all, struct context *context,
                         struct pending_write **link)
{
    struct pending_write *write = *link;
    struct write_part part = {
        .offset = write->offset, .bytes = write->bytes, .data = write->data};
    int code = 0;

    *link = write->next;
    if (context->pending_end == &write->next) {
        context->pending_end = link;
    }
    if (!part_pages(all, context, &part, &code)) {
        /* Its first bytes may be kept twice now. */
        context->pending_overlap = true;
        write->next = NULL;
        *context->pending_end = write;
        context->pending_end = &write->next;
        return 0;
    }
    /* Its pages may be on their way from where it is. */
    int finished = transfer_finish(all);
    pending_release(all, write->room);
    free(write);
    return code == 0 ? finished : code;
}

/* Write what is kept for a context, and forget it. */
static int pending_flush(struct contexts *all, struct context *context)
{
    int code = 0;

    for (struct pending_write *write = context->pending;
         write != NULL && code == 0; write = write->next) {
        code = part_go(all, context, write->offset, write->data, write->bytes,
                       true);
    }
    pthread_mutex_lock(&all->lock);
    pending_free(all, context);
    pthread_mutex_unlock(&all->lock);
    return code;
}

/* Nothing of a context that is busy is under way any more. */
static int part_alone(struct contexts *all, struct context *context)
{
    int code = transfer_finish(all);

    pthread_mutex_lock(&all->lock);
    contexts_wait_parts(all, context);
    pthread_mutex_unlock(&all->lock);
    return code;
}

static bool pending_overlap(const struct context *context, size_t offset,
                            size_t bytes)
{
    const struct pending_write *write = context->pending;

    while (write != NULL && !pending_meets(write, offset, bytes)) {
        write = write->next;
    }
    return write != NULL;
}

static int part_write(struct contexts *all, struct context *context,
                      size_t offset, char *data, size_t bytes)
{
    bool meets = pending_overlap(context, offset, bytes);
    const struct write_part part = {
        .offset = offset, .bytes = bytes, .data = data};
    int code = 0;

    if (bytes < CONTEXT_DEFERRED || meets) {
        struct pending_write **before =
            meets ? NULL : pending_beside(context, offset, true);
        if (pending_extend(all, context, before, data, bytes)) {
            return (*before)->bytes < TRANSFER_BYTES - CONTEXT_DEFERRED
                       ? 0
                       : pending_spill(all, context, before);
        }
        context->pending_overlap |= meets;
        if (part_defer(all, context, offset, data, bytes)) {
            return 0;
        }
    } else if (part_pages(all, context, &part, &code)) {
        return code;
    }
    code = part_alone(all, context);
    /* What is kept is older: it goes first. */
    if (code == 0 && pending_overlap(context, offset, bytes)) {
        code = pending_flush(all, context);
    }
    return code == 0 ? part_go(all, context, offset, data, bytes, true) : code;
}

/* Whether all pages of a part are on disk, and nothing of it is kept. */
static bool part_is_stored(const struct context *context, size_t offset,
                           size_t bytes)
{
    size_t first = offset / CONTEXT_PAGE, from, to = first;
    size_t end = (offset + bytes + CONTEXT_PAGE - 1) / CONTEXT_PAGE;

    return !pending_overlap(context, offset, bytes) &&
           stored_next(context, &from, &to, end) && from == first && to == end;
}

static int part_read(struct contexts *all, struct context *context,
                     size_t offset, char *data, size_t bytes)
{
    if (part_is_stored(context, offset, bytes)) {
        return transfer_read(all, context, offset, data, bytes);
    }
    int code = part_alone(all, context);
    code = code == 0 ? part_go(all, context, offset, data, bytes, false) : code;
    for (const struct pending_write *write = context->pending;
         write != NULL && code == 0; write = write->next) {
        if (pending_meets(write, offset, bytes)) {
            size_t low = write->offset > offset ? write->offset : offset;
            size_t end = write->offset + write->bytes;
            size_t high = end < offset + bytes ? end : offset + bytes;
            memcpy(data + (low - offset), write->data + (low - write->offset),
                   high - low);
        }
    }
    return code;
}

/* Part of a context that is not open and not in memory, and that the caller has
 * busy. */
static void part_away(struct context *context, size_t offset, char *data,
                      size_t bytes, bool is_write)
{
    struct contexts *all = contexts;
    uint64_t before = poise_clock_ns();
    int code = 0;

    pthread_mutex_unlock(&all->lock);
    if (is_write) {
        code = extents_expose(all, context, offset, bytes);
        code = code == 0 ? part_write(all, context, offset, data, bytes) : code;
    } else {
        code = part_read(all, context, offset, data, bytes);
    }
    if (code < 0) {
        context_fail();
    }
    pthread_mutex_lock(&all->lock);
    context_count(all, context, POISE_VRANK_PARTS, bytes, before);
    *(is_write ? &all->sums.written_parts : &all->sums.read_parts) += bytes;
}

/* Part of a context that is in memory, and held by the caller; what was visited
 * of it may grow. Under the lock, which is let go meanwhile. */
static void part_here(struct contexts *all, struct context *context,
                      size_t offset, char *data, size_t bytes, bool is_write)
{
    char *place = context->heap.base + offset;
    size_t end = offset + bytes;

    pthread_mutex_unlock(&all->lock);
    memcpy(is_write ? place : data, is_write ? data : place, bytes);
    pthread_mutex_lock(&all->lock);
    for (size_t at = offset / all->extent_bytes; at * all->extent_bytes < end;
         at++) {
        context_visit(all, context, at, offset, end);
    }
}

/* How many of the bytes are alike: in memory, or not. */
static size_t part_alike(const struct contexts *all,
                         const struct context *context, size_t offset,
                         size_t bytes, bool *here)
{
    size_t at = offset / all->extent_bytes, end = offset + bytes;

    *here = extent_is_near(&context->extents[at]);
    do {
        at++;
    } while (at * all->extent_bytes < end &&
             extent_is_near(&context->extents[at]) == *here);
    return at * all->extent_bytes < end ? at * all->extent_bytes - offset
                                        : bytes;
}

/* Copy between memory and a context, wherever that is; where it is not in
 * memory, this only begins, and transfer_finish ends it. */
static void part_copy(struct context *context, char *place, char *data,
                      size_t bytes, bool is_write)
{
    struct contexts *all = contexts;
    size_t offset = (size_t)(place - context->heap.base), now;
    bool here;

    pthread_mutex_lock(&all->lock);
    for (; bytes > 0; offset += now, data += now, bytes -= now) {
        while (context->busy || quick_claim(all, context)) {
            if (context->busy) {
                contexts_wait(all);
            }
        }
        now = bytes;
        if (context->is_retired) {
            break;
        }
        if (context->opens > 0) {
            context->opens++;
            pthread_mutex_unlock(&all->lock);
            place = context->heap.base + offset;
            memcpy(is_write ? place : data, is_write ? data : place, now);
            pthread_mutex_lock(&all->lock);
            context_close(all, context, false);
            pthread_cond_broadcast(&all->changed);
            continue;
        }
        now = part_alike(all, context, offset, bytes, &here);
        if (here) {
            context->holds++;
            part_here(all, context, offset, data, now, is_write);
            if (--context->holds == 0) {
                pthread_cond_broadcast(&all->changed);
            }
        } else {
            context_occupy(all, context);
            part_away(context, offset, data, now, is_write);
            context_free_up(all, context);
        }
    }
    pthread_mutex_unlock(&all->lock);
}

void context_copy_async(void *to, const void *from, size_t bytes)
{
    struct context *self = context_self();
    struct context *target = context_covers(to) ? context_of(to) : NULL;
    struct context *source = context_covers(from) ? context_of(from) : NULL;

    target = target == self ? NULL : target;
    source = source == self ? NULL : source;
    if (target == NULL && source == NULL) {
        memcpy(to, from, bytes);
    } else if (source == NULL) {
        part_copy(target, to, (char *)(uintptr_t)from, bytes, true);
    } else if (target == NULL) {
        part_copy(source, (char *)(uintptr_t)from, to, bytes, false);
    } else {
        /* Never two that are busy. */
        char between[4096];
        for (size_t done = 0; done < bytes;) {
            size_t now =
                bytes - done < sizeof between ? bytes - done : sizeof between;
            part_copy(source, (char *)(uintptr_t)from + done, between, now,
                      false);
            context_copy_wait();
            part_copy(target, (char *)to + done, between, now, true);
            context_copy_wait();
            done += now;
        }
    }
}

void context_copy_wait(void)
{
    struct contexts *all = contexts;

    if (all == NULL || transfer_is_empty(all)) {
        return;
    }
    uint64_t before = poise_clock_ns();
    struct context *self = context_self();
    if (transfer_finish(all) < 0) {
        context_fail();
    }
    pthread_mutex_lock(&all->lock);
    if (self != NULL) {
        context_count(all, self, POISE_VRANK_PARTS, 0, before);
    }
    pthread_mutex_unlock(&all->lock);
}

void context_copy(void *to, const void *from, size_t bytes)
{
    context_copy_async(to, from, bytes);
    context_copy_wait();
}
