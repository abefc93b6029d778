/*
 * Access to contexts from outside: to one that is present, as to any memory;
 * to a part of one that is away, on disk (context_flow.c). A little for one
 * that is away is kept, and put in when it comes: small parts, and the ends of
 * larger ones that fill no page. What comes to lie beside what is kept makes
 * pages of it, which are written.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Less than this for a context that is away is kept until it comes. */
#define CONTEXT_NOTE ((size_t)16 << 10)

void notes_free(struct contexts *all, struct context *context)
{
    while (context->notes != NULL) {
        struct context_note *next = context->notes->next;
        all->note_bytes -= context->notes->room;
        free(context->notes);
        context->notes = next;
    }
    context->notes_end = &context->notes;
    context->notes_meet = false;
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
    char *bounce = flow_memory(all);
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

/* Take or give back memory for notes: whether there is so much. */
static bool note_take(struct contexts *all, size_t bytes)
{
    pthread_mutex_lock(&all->lock);
    bool fits = all->note_bytes + bytes <= all->plan.message_bytes;
    all->note_bytes += fits ? bytes : 0;
    pthread_mutex_unlock(&all->lock);
    return fits;
}

static void note_give(struct contexts *all, size_t bytes)
{
    pthread_mutex_lock(&all->lock);
    all->note_bytes -= bytes;
    pthread_mutex_unlock(&all->lock);
}

bool context_keep(size_t bytes)
{
    return contexts != NULL && note_take(contexts, bytes);
}

void context_unkeep(size_t bytes)
{
    if (contexts != NULL && bytes > 0) {
        note_give(contexts, bytes);
    }
}

/* Keep bytes for a context that is away and busy: whether there is room. */
static bool part_note(struct contexts *all, struct context *context,
                      size_t offset, const char *data, size_t bytes)
{
    bool fits = note_take(all, bytes);
    struct context_note *note =
        fits ? poise_realloc(NULL, sizeof *note + bytes, 1) : NULL;

    if (note == NULL) {
        note_give(all, fits ? bytes : 0);
        return false;
    }
    *note =
        (struct context_note){.offset = offset, .bytes = bytes, .room = bytes};
    memcpy(note->data, data, bytes);
    *context->notes_end = note;
    context->notes_end = &note->next;
    return true;
}

/* The link to the note that ends, or begins, at `offset`; NULL: there is none,
 * or some overlap and must stay in their order. */
static struct context_note **note_beside(struct context *context, size_t offset,
                                         bool ends)
{
    struct context_note **link = &context->notes;

    while (*link != NULL &&
           (*link)->offset + (ends ? (*link)->bytes : 0) != offset) {
        link = &(*link)->next;
    }
    return *link != NULL && !context->notes_meet ? link : NULL;
}

static void note_remove(struct contexts *all, struct context *context,
                        struct context_note **link)
{
    struct context_note *note = *link;

    *link = note->next;
    if (context->notes_end == &note->next) {
        context->notes_end = link;
    }
    note_give(all, note->room);
    free(note);
}

/* Add bytes to the note at whose end they belong: whether there is one, and
 * room. */
static bool note_extend(struct contexts *all, struct context *context,
                        struct context_note **link, const char *data,
                        size_t bytes)
{
    struct context_note *note = link != NULL ? *link : NULL;
    size_t room;

    if (note == NULL || note->bytes + bytes > FLOW_BYTES) {
        return false;
    }
    room = note->room;
    while (room < note->bytes + bytes) {
        room = 2 * room < FLOW_BYTES ? 2 * room : FLOW_BYTES;
    }
    if (room > note->room) {
        size_t more = room - note->room;
        bool last = context->notes_end == &note->next;
        if (!note_take(all, more)) {
            return false;
        }
        note = poise_realloc(note, sizeof *note + room, 1);
        if (note == NULL) {
            note_give(all, more);
            return false;
        }
        note->room = room;
        *link = note;
        context->notes_end = last ? &note->next : context->notes_end;
    }
    memcpy(note->data + note->bytes, data, bytes);
    note->bytes += bytes;
    return true;
}

/* What a write takes from a note that begins or ends with it: the rest of a
 * page, so that all of that is known. Nothing, where that is not so. */
static struct flow_part note_piece(struct context_note *const *link,
                                   size_t from, size_t to)
{
    const struct context_note *note = link != NULL ? *link : NULL;

    if (from == to || note == NULL || note->offset > from ||
        note->offset + note->bytes < to) {
        return (struct flow_part){.offset = from};
    }
    return (struct flow_part){.offset = from,
                              .bytes = to - from,
                              .data = note->data + (from - note->offset)};
}

/* The bytes from..to of a note are on disk now; they are its first or its
 * last. */
static void note_cut(struct contexts *all, struct context *context,
                     struct context_note **link, size_t from, size_t to)
{
    struct context_note *note = *link;

    if (to - from == note->bytes) {
        note_remove(all, context, link);
        return;
    }
    if (from == note->offset) {
        note->offset = to;
        memmove(note->data, note->data + (to - from),
                note->bytes - (to - from));
    }
    note->bytes -= to - from;
}

/* Write a part that is larger than pages: those that are known as a whole go
 * to disk, and what is at its ends is kept. False: there is no room for that.
 * *code: what went wrong. */
static bool part_pages(struct contexts *all, struct context *context,
                       const struct flow_part *part, int *code)
{
    size_t mask = CONTEXT_PAGE - 1, offset = part->offset;
    size_t end = offset + part->bytes;
    size_t low = offset & ~mask, high = (end + mask) & ~mask;
    struct context_note **before = note_beside(context, offset, true);
    struct context_note **after = note_beside(context, end, false);
    struct flow_part parts[] = {*part, note_piece(before, low, offset),
                                note_piece(after, end, high)};

    low = parts[1].bytes > 0 ? low : (offset + mask) & ~mask;
    high = parts[2].bytes > 0 ? high : end & ~mask;
    if (low > offset &&
        !part_note(all, context, offset, part->data, low - offset)) {
        return false;
    }
    if (high < end && !part_note(all, context, high,
                                 part->data + (high - offset), end - high)) {
        /* What was kept before stays: it is right, too. */
        return false;
    }
    *code = flow_write(all, context, low, high, parts, 3);
    /* The later one first: then the other's link is still right. */
    if (parts[2].bytes > 0) {
        after = note_beside(context, end, false);
        note_cut(all, context, after, end, high);
    }
    if (parts[1].bytes > 0) {
        before = note_beside(context, offset, true);
        note_cut(all, context, before, low, offset);
    }
    return true;
}

/* A note that has become large goes to disk, but for its ends. */
static int note_spill(struct contexts *all, struct context *context,
                      struct context_note **link)
{
    struct context_note *note = *link;
    struct flow_part part = {
        .offset = note->offset, .bytes = note->bytes, .data = note->data};
    int code = 0;

    *link = note->next;
    if (context->notes_end == &note->next) {
        context->notes_end = link;
    }
    if (!part_pages(all, context, &part, &code)) {
        /* Its first bytes may be kept twice now. */
        context->notes_meet = true;
        note->next = NULL;
        *context->notes_end = note;
        context->notes_end = &note->next;
        return 0;
    }
    /* Its pages may be on their way from where it is. */
    int finished = flow_finish(all);
    note_give(all, note->room);
    free(note);
    return code == 0 ? finished : code;
}

/* Write what is kept for a context, and forget it. */
static int notes_write(struct contexts *all, struct context *context)
{
    int code = 0;

    for (struct context_note *note = context->notes; note != NULL && code == 0;
         note = note->next) {
        code =
            part_go(all, context, note->offset, note->data, note->bytes, true);
    }
    pthread_mutex_lock(&all->lock);
    notes_free(all, context);
    pthread_mutex_unlock(&all->lock);
    return code;
}

/* Nothing of a context that is busy is under way any more. */
static int part_alone(struct contexts *all, struct context *context)
{
    int code = flow_finish(all);

    pthread_mutex_lock(&all->lock);
    contexts_wait_parts(all, context);
    pthread_mutex_unlock(&all->lock);
    return code;
}

static bool notes_meet(const struct context *context, size_t offset,
                       size_t bytes)
{
    const struct context_note *note = context->notes;

    while (note != NULL && !note_meets(note, offset, bytes)) {
        note = note->next;
    }
    return note != NULL;
}

static int part_write(struct contexts *all, struct context *context,
                      size_t offset, char *data, size_t bytes)
{
    bool meets = notes_meet(context, offset, bytes);
    const struct flow_part part = {
        .offset = offset, .bytes = bytes, .data = data};
    int code = 0;

    if (bytes < CONTEXT_NOTE || meets) {
        struct context_note **before =
            meets ? NULL : note_beside(context, offset, true);
        if (note_extend(all, context, before, data, bytes)) {
            return (*before)->bytes < FLOW_BYTES - CONTEXT_NOTE
                       ? 0
                       : note_spill(all, context, before);
        }
        context->notes_meet |= meets;
        if (part_note(all, context, offset, data, bytes)) {
            return 0;
        }
    } else if (part_pages(all, context, &part, &code)) {
        return code;
    }
    code = part_alone(all, context);
    /* What is kept is older: it goes first. */
    if (code == 0 && notes_meet(context, offset, bytes)) {
        code = notes_write(all, context);
    }
    return code == 0 ? part_go(all, context, offset, data, bytes, true) : code;
}

/* Whether all pages of a part are on disk, and nothing of it is kept. */
static bool part_is_stored(const struct context *context, size_t offset,
                           size_t bytes)
{
    size_t first = offset / CONTEXT_PAGE, from, to = first;
    size_t end = (offset + bytes + CONTEXT_PAGE - 1) / CONTEXT_PAGE;

    return !notes_meet(context, offset, bytes) &&
           stored_next(context, &from, &to, end) && from == first && to == end;
}

static int part_read(struct contexts *all, struct context *context,
                     size_t offset, char *data, size_t bytes)
{
    if (part_is_stored(context, offset, bytes)) {
        return flow_read(all, context, offset, data, bytes);
    }
    int code = part_alone(all, context);
    code = code == 0 ? part_go(all, context, offset, data, bytes, false) : code;
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

/* Copy between memory that is there and a context, wherever that is; where it
 * is away, this only begins, and flow_finish ends it. */
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

void context_copy_later(void *to, const void *from, size_t bytes)
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
            context_settle();
            part_copy(target, (char *)to + done, between, now, true);
            context_settle();
            done += now;
        }
    }
}

void context_settle(void)
{
    struct contexts *all = contexts;

    if (all == NULL || flow_is_empty(all)) {
        return;
    }
    uint64_t before = poise_clock_ns();
    struct context *self = context_self();
    if (flow_finish(all) < 0) {
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
    context_copy_later(to, from, bytes);
    context_settle();
}
