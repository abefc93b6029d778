/*
 * Extents: the parts of a context that come and go by themselves. See
 * internal.h for their states and what changes them.
 *
 * All of this is done by the thread that has the context busy, while nobody may
 * touch it (extents_look: while nobody does), so that no page changes under it.
 *
 * What is away is mapped from its place in the scratch file, for the kernel to
 * serve what was not expected. The file is written past the page cache, which
 * drops what it holds of that; what the kernel has read of the file is newer
 * than that, never older.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static size_t extent_offset(const struct contexts *all, size_t at)
{
    return at * all->extent_bytes;
}

/* Up to where: the last may be shorter. */
static size_t extent_end(const struct contexts *all,
                         const struct context *context, size_t at)
{
    size_t end = extent_offset(all, at + 1);

    return end < context->heap.bytes ? end : context->heap.bytes;
}

bool extent_is_framed(const struct contexts *all, const struct context *context,
                      size_t at)
{
    /* The first of a heap has small pages: see heaps_advise. */
    return extent_offset(all, at + 1) <= context->heap.bytes &&
           (at > 0 || context->heap.unit < CONTEXT_HUGE);
}

uint64_t extent_charge(const struct contexts *all,
                       const struct context *context, size_t at)
{
    size_t from = extent_offset(all, at), reach = context->heap.reach;
    uint64_t bytes = reach > from ? reach - from : 0;

    /* Of a frame, all. */
    return bytes < all->extent_bytes && !extent_is_framed(all, context, at)
               ? bytes
               : all->extent_bytes;
}

/* Whether any page of it is stored. */
static bool extent_is_stored(const struct contexts *all,
                             const struct context *context, size_t at)
{
    size_t from, to = extent_offset(all, at) / CONTEXT_PAGE;

    return stored_next(context, &from, &to,
                       extent_end(all, context, at) / CONTEXT_PAGE);
}

/* Memory in its place, of which no page is there. */
static int extent_map(const struct contexts *all, const struct context *context,
                      size_t at)
{
    const struct heap *heap = &context->heap;
    size_t from = extent_offset(all, at);
    size_t bytes = extent_end(all, context, at) - from;
    bool huge = heap->unit == CONTEXT_HUGE && at > 0;

    if (mmap(heap->base + from, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED) {
        return poise_error_set(errno, "bring a context into memory", NULL,
                               NULL);
    }
    madvise(heap->base + from, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    /* See frame.c. */
    madvise(heap->base + from, bytes,
            at % 2 == 1 ? MADV_SEQUENTIAL : MADV_NORMAL);
    return 0;
}

/* Its place in the scratch file, or, if nothing is stored, memory. */
static int extent_leave(const struct contexts *all, struct context *context,
                        size_t at, bool stored)
{
    struct extent *extent = &context->extents[at];
    size_t from = extent_offset(all, at);
    int code = stored ? context_disk_map(all->disk, context->index, from,
                                         context->heap.base + from,
                                         extent_end(all, context, at) - from,
                                         MAP_PRIVATE)
                      : extent_map(all, context, at);

    extent->state = stored ? EXTENT_AWAY : EXTENT_FRESH;
    extent->pages = 0;
    return code;
}

/* ---- what was touched --------------------------------------------------- */

/* What the heap uses, where that has changed; the rest is not stored. */
static int look_ranges(const struct contexts *all, struct context *context)
{
    size_t at = 0, used = context->extent_count * all->extent_bytes;
    int count =
        heap_extents(&context->heap, &context->ranges, &context->range_room);

    if (count < 0) {
        return count;
    }
    context->range_count = count;
    context->range_changes = context->heap.changes;
    for (int i = 0; i < count; i++) {
        stored_set(context, at, context->ranges[i].from / CONTEXT_PAGE, false);
        at = context->ranges[i].to / CONTEXT_PAGE;
    }
    used = used < context->heap.bytes ? used : context->heap.bytes;
    stored_set(context, at, used / CONTEXT_PAGE, false);
    return 0;
}

/* Bytes of an extent that the heap uses. */
static size_t look_used(const struct contexts *all,
                        const struct context *context, size_t at)
{
    size_t low = extent_offset(all, at), high = extent_end(all, context, at);
    size_t used = 0;

    for (int i = dirty_range(context, low);
         i < context->range_count && context->ranges[i].from < high; i++) {
        const struct heap_extent *range = &context->ranges[i];
        used += (range->to < high ? range->to : high) -
                (range->from > low ? range->from : low);
    }
    return used;
}

/* What the kernel pages and the heap has given back is fresh again, if the file
 * can forget it; the rest is counted. */
static int look_shared(const struct contexts *all, struct context *context)
{
    int code = 0;

    context->shared = 0;
    for (size_t at = 0;
         context->shares > 0 && at < context->extent_count && code == 0; at++) {
        size_t used;
        if (context->extents[at].state != EXTENT_SHARED) {
            continue;
        }
        used = look_used(all, context, at);
        if (used == 0 &&
            madvise(context->heap.base + extent_offset(all, at),
                    extent_end(all, context, at) - extent_offset(all, at),
                    MADV_REMOVE) == 0) {
            context->shares--;
            code = extent_leave(all, context, at, false);
        }
        context->shared += used;
    }
    return code;
}

/* What became of one, of which `seen` pages are there; *faults: those that the
 * kernel has brought. */
static int look_one(const struct contexts *all, struct context *context,
                    size_t at, bool changed, uint64_t *faults)
{
    struct extent *extent = &context->extents[at];
    size_t seen = extent->seen;

    switch ((enum extent_state)extent->state) {
    case EXTENT_FRESH:
    case EXTENT_RESIDENT:
        if (seen > 0 && extent->state == EXTENT_FRESH) {
            extent->is_tracked = false;
            extent->is_scattered = true;
            phase_note(context, at);
        } else if (seen == 0) {
            stored_set(context, extent_offset(all, at) / CONTEXT_PAGE,
                       extent_end(all, context, at) / CONTEXT_PAGE, false);
        }
        extent->state = seen > 0 ? EXTENT_RESIDENT : EXTENT_FRESH;
        extent->pages =
            seen > 0
                ? (uint32_t)(extent_charge(all, context, at) / CONTEXT_PAGE)
                : 0;
        break;
    case EXTENT_AWAY:
    case EXTENT_VISITED:
        if (seen > extent->pages) {
            phase_note(context, at);
            *faults += seen - extent->pages;
        }
        if (seen == 0 && changed && !extent_is_stored(all, context, at)) {
            return extent_leave(all, context, at, false);
        }
        extent->state = seen > 0 ? EXTENT_VISITED : EXTENT_AWAY;
        extent->pages = (uint32_t)seen;
        break;
    case EXTENT_SHARED:
        break;
    }
    return 0;
}

/* Whether its pages have to be counted. What is RESIDENT stays so, unless pages
 * were given back. */
static bool look_counts(const struct extent *extent, bool changed)
{
    return extent->state == EXTENT_RESIDENT ? changed
                                            : extent->state != EXTENT_SHARED;
}

int extents_look(struct contexts *all, struct context *context, uint64_t *held,
                 uint64_t *faults)
{
    size_t count =
        (context->heap.reach + all->extent_bytes - 1) / all->extent_bytes;
    bool changed = context->heap.drops != context->range_drops;
    int code = 0;

    /* Also where the heap does not reach any more. */
    count = count > context->extent_count ? count : context->extent_count;
    context->extent_count = count;
    if (context->heap.changes != context->range_changes) {
        code = look_ranges(all, context);
        code = code == 0 ? look_shared(all, context) : code;
    }
    context->range_drops = context->heap.drops;
    *held = *faults = 0;
    for (size_t at = 0; at < count && code == 0;) {
        struct extent *extents = context->extents;
        size_t end = at;
        while (end < count && look_counts(&extents[end], changed)) {
            extents[end++].seen = 0;
        }
        if (end > at) {
            dirty_count(all, context, at, end);
        }
        for (; at < end && code == 0; at++) {
            code = look_one(all, context, at, changed, faults);
            *held += (uint64_t)extents[at].pages * CONTEXT_PAGE;
        }
        if (at < count && code == 0) {
            extents[at].pages =
                extents[at].state == EXTENT_SHARED
                    ? 0
                    : (uint32_t)(extent_charge(all, context, at) /
                                 CONTEXT_PAGE);
            *held += (uint64_t)extents[at].pages * CONTEXT_PAGE;
            at++;
        }
    }
    return code;
}

/* Whether no page of a FRESH extent was touched since it was looked at. */
static bool share_is_fresh(const struct contexts *all, struct context *context,
                           size_t at)
{
    struct extent *extent = &context->extents[at];

    if (extent->state != EXTENT_FRESH) {
        return false;
    }
    extent->seen = 0;
    dirty_count(all, context, at, at + 1);
    return extent->seen == 0;
}

int extents_share(struct contexts *all, struct context *context, uint64_t bytes)
{
    const struct heap *heap = &context->heap;
    size_t at = (heap->reach + all->extent_bytes - 1) / all->extent_bytes;
    int code;

    context->extent_count =
        at > context->extent_count ? at : context->extent_count;
    code = look_ranges(all, context);
    code = code == 0 ? look_shared(all, context) : code;
    while (at-- > 0 && code == 0 && heap->held > bytes + context->shared) {
        size_t from = extent_offset(all, at), used;
        if (!share_is_fresh(all, context, at)) {
            continue;
        }
        used = look_used(all, context, at);
        if (used > 0) {
            /* Where there is no space a touch would kill. */
            if (!context_disk_reserve(all->disk, context->index, from,
                                      extent_end(all, context, at) - from)) {
                break;
            }
            code = context_disk_map(
                all->disk, context->index, from, heap->base + from,
                extent_end(all, context, at) - from, MAP_SHARED);
            context->extents[at].state = EXTENT_SHARED;
            context->shared += used;
            context->shares++;
        }
    }
    return code;
}

void extents_forget(const struct contexts *all, const struct context *context)
{
    for (size_t at = 0; context->shares > 0 && at < context->extent_count;
         at++) {
        size_t from = extent_offset(all, at);
        if (context->extents[at].state == EXTENT_SHARED) {
            madvise(context->heap.base + from,
                    extent_end(all, context, at) - from, MADV_REMOVE);
        }
    }
}

int extents_expose(struct contexts *all, struct context *context, size_t offset,
                   size_t bytes)
{
    size_t end = (offset + bytes - 1) / all->extent_bytes;
    int code = 0;

    if (end >= context->extent_count) {
        context->extent_count = end + 1;
    }
    for (size_t at = offset / all->extent_bytes; at <= end && code == 0; at++) {
        if (context->extents[at].state == EXTENT_FRESH) {
            code = extent_leave(all, context, at, true);
        }
    }
    return code;
}

/* ---- out and in --------------------------------------------------------- */

int extents_write(struct contexts *all, struct context *context,
                  const struct extent_list *list, uint64_t *bytes)
{
    struct context_batch batch = {0};
    const struct heap *heap = &context->heap;
    int code = 0;

    context->run_count = 0;
    for (int i = 0; i < list->count && code == 0; i++) {
        code = dirty_plan(all, context, list->at[i]);
    }
    for (size_t i = 0; i < context->run_count && code == 0; i++) {
        size_t from = context->runs[i].from * CONTEXT_PAGE;
        size_t now = context->runs[i].to * CONTEXT_PAGE - from;
        *bytes += now;
        context_disk_add(all->disk, &batch, context->index, from,
                         heap->base + from, now, true);
    }
    int finished = context_disk_finish(&batch);
    return code == 0 ? finished : code;
}

/* Whether the memory of one that goes is worth keeping. Huge pages that
 * tracking has split are not, as fresh ones are huge again; nor are scattered
 * ones, where there are others. */
static bool drop_keeps(const struct contexts *all, const struct extent *extent)
{
    bool split = extent->is_split && all->extent_bytes >= CONTEXT_HUGE;

    return !split && !(extent->is_scattered && all->frames.group > 0);
}

int extents_drop(struct contexts *all, struct context *context,
                 struct extent_list *list)
{
    int code = 0;

    for (int i = 0; i < list->count && code == 0; i++) {
        size_t at = list->at[i], from = extent_offset(all, at);
        size_t bytes = extent_end(all, context, at) - from;
        struct extent *extent = &context->extents[at];
        char *place = context->heap.base + from;
        if (extent->state == EXTENT_VISITED) {
            madvise(place, bytes, MADV_DONTNEED);
            context_disk_forget(all->disk, context->index, from, bytes);
            extent->state = EXTENT_AWAY;
            extent->pages = 0;
            continue;
        }
        if (list->slots[i] >= 0 && drop_keeps(all, extent)) {
            list->warm[i] = frame_take(all, list->slots[i], place);
        }
        code =
            extent_leave(all, context, at, extent_is_stored(all, context, at));
    }
    return code;
}

/* Where an extent is read to. */
static int bring_target(const struct contexts *all,
                        const struct context *context, size_t at, int slot,
                        char **out)
{
    int code = slot < 0 ? extent_map(all, context, at) : 0;

    *out = slot < 0 ? context->heap.base + extent_offset(all, at)
                    : frame_at(all, slot);
    return code;
}

/* Begin to read one; what is not stored is zero. */
static void bring_read(struct contexts *all, const struct context *context,
                       struct context_batch *batch, size_t at, int slot,
                       char *target, uint64_t *bytes)
{
    size_t first = extent_offset(all, at) / CONTEXT_PAGE;
    size_t end = extent_end(all, context, at) / CONTEXT_PAGE;
    size_t from, to = first, done = first;

    while (stored_next(context, &from, &to, end)) {
        size_t now = (to - from) * CONTEXT_PAGE;
        if (slot >= 0) {
            memset(target + (done - first) * CONTEXT_PAGE, 0,
                   (from - done) * CONTEXT_PAGE);
        }
        context_disk_add(all->disk, batch, context->index, from * CONTEXT_PAGE,
                         target + (from - first) * CONTEXT_PAGE, now, false);
        *bytes += now;
        done = to;
    }
    if (slot >= 0) {
        memset(target + (done - first) * CONTEXT_PAGE, 0,
               (end - done) * CONTEXT_PAGE);
    }
}

int extents_bring(struct contexts *all, struct context *context,
                  const struct extent_list *list, uint64_t *bytes)
{
    struct context_batch batch = {0};
    int code = 0, finished;

    for (int i = 0; i < list->count && code == 0; i++) {
        char *target;
        code = bring_target(all, context, list->at[i], list->slots[i], &target);
        if (code == 0) {
            bring_read(all, context, &batch, list->at[i], list->slots[i],
                       target, bytes);
        }
    }
    finished = context_disk_finish(&batch);
    code = code == 0 ? finished : code;
    for (int i = 0; i < list->count && code == 0; i++) {
        size_t at = list->at[i];
        struct extent *extent = &context->extents[at];
        char *place = context->heap.base + extent_offset(all, at);
        if (list->slots[i] >= 0) {
            code = frame_place(all, list->slots[i], place, at % 2 == 1);
        }
        extent->state = EXTENT_RESIDENT;
        extent->is_scattered = list->slots[i] < 0 || !list->warm[i];
        extent->pages =
            (uint32_t)(extent_charge(all, context, at) / CONTEXT_PAGE);
        dirty_watch(all, context, at);
    }
    return code;
}
