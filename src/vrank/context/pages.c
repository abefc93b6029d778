/*
 * The pages of a context that has gone, for one that comes: they are moved to
 * its addresses (mremap), which costs next to nothing. Pages from the kernel
 * would be zeroed first, and take longer than the disk.
 *
 * A context that has gone and still has its pages is a victim; it is busy until
 * they were taken or dropped.
 */
#include "internal.h"

#include <string.h>
#include <sys/mman.h>

/* Where pages are small, that many bytes without data are given back, and
 * fewer are zeroed. */
#define PAGES_GAP ((size_t)16 << 10)

void pages_drop(struct context *context)
{
    struct heap *heap = &context->heap;

    madvise(heap->base, heap->bytes, MADV_DONTNEED);
    mprotect(heap->base, heap->bytes, PROT_NONE);
}

/* The source stays mapped, and is empty: Linux 5.7. */
static bool pages_move(char *from, char *to, size_t bytes)
{
    return bytes == 0 ||
           mremap(from, bytes, bytes,
                  MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                  to) != MAP_FAILED;
}

/* Make from..to zero: whole units go, the rest is written. */
static void pages_zero(char *base, size_t from, size_t to, size_t unit)
{
    size_t low = (from + unit - 1) / unit * unit, high = to / unit * unit;

    if (low >= high) {
        memset(base + from, 0, to - from);
        return;
    }
    memset(base + from, 0, low - from);
    madvise(base + low, high - low, MADV_DONTNEED);
    memset(base + high, 0, to - high);
}

/* The same, of which part may have huge pages. A unit of which something will
 * be read stays whole. */
static void pages_clear(const struct heap *heap, size_t from, size_t to)
{
    size_t small = heap->unit == CONTEXT_HUGE ? CONTEXT_HUGE : heap->bytes;
    size_t split = from > small ? from : small;

    split = split < to ? split : to;
    if (from < split) {
        pages_zero(heap->base, from, split, PAGES_GAP);
    }
    if (split < to) {
        pages_zero(heap->base, split, to, heap->unit);
    }
}

/* Moving may leave nothing at all where they should have come to: if the
 * program has given a part of its heap another nature (madvise, mlock). */
static bool pages_make(const struct heap *heap)
{
    void *at =
        mmap(heap->base, heap->bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

    if (at != MAP_FAILED) {
        pages_advise(heap);
    }
    return at != MAP_FAILED;
}

void pages_advise(const struct heap *heap)
{
    bool huge = heap->unit == CONTEXT_HUGE;

    madvise(heap->base, heap->bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (huge) {
        /* Of a context that stays small, no more than it has. */
        madvise(heap->base, CONTEXT_HUGE, MADV_NOHUGEPAGE);
    }
}

bool pages_take(const struct contexts *all, struct context *context,
                struct context *victim)
{
    struct heap *heap = &context->heap;
    char *source = victim->heap.base;
    /* Where pages are huge the first are not: that is a mapping of its own. */
    size_t first = heap->unit == CONTEXT_HUGE ? CONTEXT_HUGE : 0;
    size_t from, to = 0, done = 0;
    bool moved =
        pages_move(source, heap->base, first) &&
        pages_move(source + first, heap->base + first, heap->bytes - first);
    bool there =
        moved ? mprotect(heap->base, heap->bytes, PROT_READ | PROT_WRITE) == 0
              : pages_make(heap);

    pages_drop(victim);
    context->is_split = victim->is_split;
    victim->is_split = false;
    if (!there) {
        return false;
    }
    while (moved &&
           stored_next(context, &from, &to, heap->bytes / CONTEXT_PAGE)) {
        pages_clear(heap, done, from * CONTEXT_PAGE);
        done = to * CONTEXT_PAGE;
    }
    if (moved) {
        pages_clear(heap, done, heap->bytes);
    }
    dirty_moved(all, context);
    return true;
}
