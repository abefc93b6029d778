/*
 * Access to contexts from outside: to one that is present, as to any memory;
 * to a part of one that is away, on disk. A little for one that is away is
 * kept, and put in when it comes.
 */
#include "context_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Less than this for a context that is away is kept until it comes. */
#define CONTEXT_NOTE ((size_t)16 << 10)

void notes_free(struct contexts *all, struct context *context)
{
    while (context->notes != NULL) {
        struct context_note *next = context->notes->next;
        all->note_bytes -= context->notes->bytes;
        free(context->notes);
        context->notes = next;
    }
    context->notes_end = &context->notes;
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
    context_need(all, context);
    context->pins++;
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
    if (--context->pins == 0) {
        pthread_cond_broadcast(&all->changed);
    }
    pthread_mutex_unlock(&all->lock);
}

/* Memory of the calling worker for what goes to and from disk; NULL: none, the
 * job ends. */
static char *context_bounce(struct contexts *all)
{
    int worker = vrank_here != NULL ? vrank_here->number : 0;

    if (all->bounces[worker] == NULL) {
        all->bounces[worker] = poise_huge_alloc(CONTEXT_BOUNCE);
    }
    return all->bounces[worker];
}

/* Read pages of a context that is away and busy; those that are not on disk
 * are zero. */
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

/* Read or write pages of a context that is away and busy. */
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
    char *bounce = context_bounce(all);
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

/* Read or write part of a context that is away and busy: whole pages go by
 * themselves where both sides are aligned alike, the rest is copied. */
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

static bool note_meets(const struct context_note *note, size_t offset,
                       size_t bytes)
{
    return note->offset < offset + bytes && offset < note->offset + note->bytes;
}

/* Keep bytes for a context that is away and busy: whether there is room. */
static bool part_note(struct contexts *all, struct context *context,
                      size_t offset, const char *data, size_t bytes)
{
    pthread_mutex_lock(&all->lock);
    bool fits = all->note_bytes + bytes <= all->plan.message_bytes;
    all->note_bytes += fits ? bytes : 0;
    pthread_mutex_unlock(&all->lock);
    struct context_note *note =
        fits ? poise_realloc(NULL, sizeof *note + bytes, 1) : NULL;
    if (note == NULL) {
        pthread_mutex_lock(&all->lock);
        all->note_bytes -= fits ? bytes : 0;
        pthread_mutex_unlock(&all->lock);
        return false;
    }
    note->next = NULL;
    note->offset = offset;
    note->bytes = bytes;
    memcpy(note->data, data, bytes);
    *context->notes_end = note;
    context->notes_end = &note->next;
    return true;
}

static int part_write(struct contexts *all, struct context *context,
                      size_t offset, char *data, size_t bytes)
{
    int code = 0;

    bool meets = false;

    for (const struct context_note *note = context->notes;
         note != NULL && !meets; note = note->next) {
        meets = note_meets(note, offset, bytes);
    }
    if ((bytes < CONTEXT_NOTE || meets) &&
        part_note(all, context, offset, data, bytes)) {
        return 0;
    }
    /* What is kept is older: it goes first. */
    for (struct context_note *note = meets ? context->notes : NULL;
         note != NULL && code == 0; note = note->next) {
        code =
            part_go(all, context, note->offset, note->data, note->bytes, true);
    }
    if (meets) {
        pthread_mutex_lock(&all->lock);
        notes_free(all, context);
        pthread_mutex_unlock(&all->lock);
    }
    return code == 0 ? part_go(all, context, offset, data, bytes, true) : code;
}

static int part_read(struct contexts *all, struct context *context,
                     size_t offset, char *data, size_t bytes)
{
    int code = part_go(all, context, offset, data, bytes, false);

    for (const struct context_note *note = context->notes;
         note != NULL && code == 0; note = note->next) {
        if (note_meets(note, offset, bytes)) {
            size_t low = note->offset > offset ? note->offset : offset;
            size_t end = note->offset + note->bytes;
            size_t high = end < offset + bytes ? end : offset + bytes;
            memcpy(data + (low - offset), note->data + (low - note->offset),
                   high - low);
        }
    }
    return code;
}

/* Copy between memory that is there and a context, wherever that is. */
static void part_copy(struct context *context, char *there, char *data,
                      size_t bytes, bool is_write)
{
    struct contexts *all = contexts;
    size_t offset = (size_t)(there - context->heap.base);
    uint64_t before = poise_clock_ns();
    int code = 0;

    pthread_mutex_lock(&all->lock);
    while (context->busy) {
        contexts_wait(all);
    }
    bool away = context->state == CONTEXT_AWAY;
    bool present = context->state == CONTEXT_PRESENT;
    context->busy = away;
    context->pins += present;
    context->last_use = present ? ++all->clock : context->last_use;
    pthread_mutex_unlock(&all->lock);
    if (present) {
        memcpy(is_write ? there : data, is_write ? data : there, bytes);
        context_unpin(context);
        return;
    }
    if (away) {
        code = is_write ? part_write(all, context, offset, data, bytes)
                        : part_read(all, context, offset, data, bytes);
        if (code < 0) {
            context_fail();
        }
    }
    pthread_mutex_lock(&all->lock);
    context_count(all, context, POISE_VRANK_PARTS, bytes, before);
    *(is_write ? &all->sums.written_parts : &all->sums.read_parts) += bytes;
    if (away) {
        context_free_up(all, context);
    }
    pthread_mutex_unlock(&all->lock);
}

void context_copy(void *to, const void *from, size_t bytes)
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
            part_copy(target, (char *)to + done, between, now, true);
            done += now;
        }
    }
}
