/*
 * What has to be written of a context that goes, and read of one that comes.
 *
 * Of each page it is known whether it lies on disk (`stored`); one that does
 * not is zero. The kernel shows which pages were ever touched (pagemap): what
 * was not, and what the heap gave back, is neither written nor read. Where the
 * kernel can (userfaultfd's asynchronous write protection, Linux 6.7), it also
 * shows which were written since the context came in, by the program or by the
 * kernel on its behalf. The others are on disk already.
 *
 * The order is what makes this safe: a context that has come in is protected
 * while it is still busy, before its rank or anything else can write to it
 * (dirty_watch), and looked at when it is busy again, after their last write
 * (dirty_plan). A page that is not seen to be protected counts as written, so
 * whatever undoes the protection (moved pages, a mapping of the program's, a
 * kernel that fails) costs a transfer and never data.
 *
 * The first write to a page costs, and splits a huge one. An extent of which
 * more than three quarters were written is not tracked for some time
 * (`backoff`).
 *
 * Soft-dirty bits are not used: some kernels lose them. Nor is a handler of
 * SIGSEGV: system calls into protected pages would fail.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Headers may be older than the kernel. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define DIRTY_WP_ASYNC (UINT64_C(1) << 15)
/* Of an entry of pagemap. */
#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_SWAPPED (UINT64_C(1) << 62)
#define ENTRY_FILE (UINT64_C(1) << 61) /* not anonymous */
#define ENTRY_PROTECTED (UINT64_C(1) << 57)
/* Less than this between two pages that are written is written with them. */
#define DIRTY_GAP ((size_t)64 << 10)
/* Entries that are looked at together. */
#define DIRTY_ENTRIES 512
/* At most 2^DIRTY_BACKOFF_MOST times is a context not tracked. */
#define DIRTY_BACKOFF_MOST 5

/* ---- the kernel --------------------------------------------------------- */

/* Entries of pagemap; where there is none, as if all had been written. */
static void dirty_look(const struct contexts *all, const char *from,
                       size_t count, uint64_t *out)
{
    size_t bytes = count * sizeof *out;
    off_t at = (off_t)((uintptr_t)from / CONTEXT_PAGE * sizeof *out);

    if (all->pagemap < 0 ||
        pread(all->pagemap, out, bytes, at) != (ssize_t)bytes) {
        for (size_t i = 0; i < count; i++) {
            out[i] = ENTRY_PRESENT;
        }
    }
}

/* From now on, notice what is written. */
static bool dirty_protect(const struct contexts *all, char *from, size_t bytes)
{
    struct uffdio_writeprotect what = {
        .range = {.start = (uintptr_t)from, .len = bytes},
        .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    return ioctl(all->uffd, UFFDIO_WRITEPROTECT, &what) == 0;
}

static bool dirty_register(int uffd, void *from, size_t bytes)
{
    struct uffdio_register what = {
        .range = {.start = (uintptr_t)from, .len = bytes},
        .mode = UFFDIO_REGISTER_MODE_WP};
    return ioctl(uffd, UFFDIO_REGISTER, &what) == 0;
}

/* Whether the page is seen to be written, or not, as it should be. */
static bool probe_is(const struct contexts *all, const char *page, bool written)
{
    uint64_t entry = 0;
    dirty_look(all, page, 1, &entry);
    return (entry & ENTRY_PRESENT) != 0 &&
           ((entry & ENTRY_PROTECTED) == 0) == written;
}

/* By what the kernel does, not by what it says: a page that is written by this
 * thread, and one by a system call. */
static bool dirty_probe(const struct contexts *all)
{
    int pipe_fds[2];
    size_t bytes = 2 * CONTEXT_PAGE;
    char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool works = false;

    if (pages == MAP_FAILED) {
        return false;
    }
    if (pipe2(pipe_fds, O_CLOEXEC) == 0) {
        char *other = pages + CONTEXT_PAGE;
        memset(pages, 1, bytes);
        works = dirty_register(all->uffd, pages, bytes) &&
                dirty_protect(all, pages, bytes) &&
                probe_is(all, pages, false) && probe_is(all, other, false);
        if (works) {
            *(volatile char *)pages = 2;
            works = probe_is(all, pages, true) && probe_is(all, other, false) &&
                    write(pipe_fds[1], "x", 1) == 1 &&
                    read(pipe_fds[0], other, 1) == 1 &&
                    probe_is(all, other, true) && *other == 'x';
        }
        close(pipe_fds[0]);
        close(pipe_fds[1]);
    }
    munmap(pages, bytes);
    return works;
}

/* A descriptor, or -1. */
static int dirty_open(void)
{
    struct uffdio_api api = {.api = UFFD_API, .features = DIRTY_WP_ASYNC};
    int uffd = (int)syscall(SYS_userfaultfd,
                            O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

    if (uffd >= 0 && ioctl(uffd, UFFDIO_API, &api) != 0) {
        close(uffd);
        uffd = -1;
    }
    return uffd;
}

int dirty_begin(struct contexts *all, enum poise_vrank_tracking wanted)
{
    bool works = false;

    all->uffd = -1;
    all->scans = true;
    all->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (wanted != POISE_VRANK_TRACK_FULL && all->pagemap >= 0) {
        all->uffd = dirty_open();
    }
    if (all->uffd >= 0) {
        works = dirty_probe(all);
    }
    if (!works && all->uffd >= 0) {
        close(all->uffd);
        all->uffd = -1;
    }
    if (!works && wanted == POISE_VRANK_TRACK_ASYNC_WP) {
        return poise_error_set(ENOTSUP, "notice what ranks write", NULL,
                               "this kernel, or this machine, has no "
                               "asynchronous write protection");
    }
    return 0;
}

void dirty_end(struct contexts *all)
{
    if (all->uffd >= 0) {
        close(all->uffd);
    }
    if (all->pagemap >= 0) {
        close(all->pagemap);
    }
}

/* ---- pages on disk ------------------------------------------------------ */

bool stored_get(const struct context *context, size_t page)
{
    return (context->stored[page / 64] >> page % 64 & 1) != 0;
}

void stored_set(struct context *context, size_t from, size_t to, bool stored)
{
    for (size_t page = from; page < to; page++) {
        uint64_t bit = UINT64_C(1) << page % 64;
        if (page % 64 == 0 && to - page >= 64) {
            context->stored[page / 64] = stored ? UINT64_MAX : 0;
            page += 63;
        } else if (stored) {
            context->stored[page / 64] |= bit;
        } else {
            context->stored[page / 64] &= ~bit;
        }
    }
}

bool stored_next(const struct context *context, size_t *from, size_t *to,
                 size_t end)
{
    size_t page = *to;

    while (page < end && !stored_get(context, page)) {
        page += page % 64 == 0 && context->stored[page / 64] == 0 ? 64 : 1;
    }
    if (page >= end) {
        return false;
    }
    *from = page;
    while (page < end && stored_get(context, page)) {
        page +=
            page % 64 == 0 && context->stored[page / 64] == UINT64_MAX ? 64 : 1;
    }
    *to = page < end ? page : end;
    return true;
}

/* ---- what is there ------------------------------------------------------ */

/* Of Linux 6.7's ioctl of pagemap, which skips what is empty. */
struct dirty_region {
    uint64_t start, end, categories;
};
struct dirty_scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define DIRTY_SCAN _IOWR('f', 16, struct dirty_scan)
#define SCAN_PRESENT (UINT64_C(1) << 3)
#define SCAN_SWAPPED (UINT64_C(1) << 4)
#define SCAN_PFNZERO (UINT64_C(1) << 5)
enum { SCAN_REGIONS = 64 };

/* Pages from..to, of the context, are there. */
static void count_add(const struct contexts *all, struct context *context,
                      size_t from, size_t to)
{
    size_t each = all->extent_bytes / CONTEXT_PAGE;

    while (from < to) {
        size_t end = (from / each + 1) * each;
        end = end < to ? end : to;
        context->extents[from / each].seen += (uint32_t)(end - from);
        from = end;
    }
}

/* False: the kernel cannot. Zero pages that all share do not count. */
static bool count_scan(const struct contexts *all, struct context *context,
                       uint64_t start, uint64_t end)
{
    struct dirty_region regions[SCAN_REGIONS];
    uint64_t base = (uint64_t)(uintptr_t)context->heap.base;
    struct dirty_scan scan = {.size = sizeof scan,
                              .end = end,
                              .vec = (uint64_t)(uintptr_t)regions,
                              .vec_len = SCAN_REGIONS,
                              .category_inverted = SCAN_PFNZERO,
                              .category_mask = SCAN_PFNZERO,
                              .category_anyof_mask =
                                  SCAN_PRESENT | SCAN_SWAPPED,
                              .return_mask = SCAN_PRESENT | SCAN_SWAPPED};

    while (start < end) {
        scan.start = start;
        int count = ioctl(all->pagemap, DIRTY_SCAN, &scan);
        if (count < 0) {
            return false;
        }
        for (int i = 0; i < count; i++) {
            count_add(all, context, (regions[i].start - base) / CONTEXT_PAGE,
                      (regions[i].end - base) / CONTEXT_PAGE);
        }
        start = scan.walk_end;
    }
    return true;
}

void dirty_count(const struct contexts *all, struct context *context,
                 size_t first, size_t end)
{
    uint64_t entries[DIRTY_ENTRIES];
    const char *base = context->heap.base;
    size_t from = first * all->extent_bytes, to = end * all->extent_bytes;

    to = to < context->heap.bytes ? to : context->heap.bytes;
    if (all->scans && count_scan(all, context, (uintptr_t)base + from,
                                 (uintptr_t)base + to)) {
        return;
    }
    /* It may have been found out half-way. */
    for (size_t at = first; at < end; at++) {
        context->extents[at].seen = 0;
    }
    for (size_t page = from / CONTEXT_PAGE; page < to / CONTEXT_PAGE;) {
        size_t left = to / CONTEXT_PAGE - page;
        size_t count = left < DIRTY_ENTRIES ? left : DIRTY_ENTRIES;
        dirty_look(all, base + page * CONTEXT_PAGE, count, entries);
        for (size_t i = 0; i < count; i++, page++) {
            if ((entries[i] & (ENTRY_PRESENT | ENTRY_SWAPPED)) != 0) {
                count_add(all, context, page, page + 1);
            }
        }
    }
}

/* ---- what is written ---------------------------------------------------- */

/* Pages have to be written: with those before, if they are at most `gap` away
 * and behind `first`. */
static int plan_add(struct context *context, size_t page, size_t first,
                    size_t gap)
{
    struct heap_extent *last =
        context->run_count > 0 ? &context->runs[context->run_count - 1] : NULL;

    if (last != NULL && last->from >= first && page - last->to <= gap) {
        stored_set(context, last->to, page + 1, true);
        last->to = page + 1;
        return 0;
    }
    if (context->run_count == context->run_room) {
        size_t room = 2 * context->run_room + 16;
        struct heap_extent *runs =
            poise_realloc(context->runs, room, sizeof *runs);
        if (runs == NULL) {
            return -ENOMEM;
        }
        context->runs = runs;
        context->run_room = room;
    }
    stored_set(context, page, page + 1, true);
    context->runs[context->run_count++] =
        (struct heap_extent){.from = page, .to = page + 1};
    return 0;
}

/* What the pages first..end of an extent are, which are in use. */
static int plan_range(const struct contexts *all, struct context *context,
                      const struct extent *extent, size_t first, size_t end,
                      size_t *touched, size_t *written)
{
    bool visited = extent->state == EXTENT_VISITED;
    /* What is between two pages of a file need not come for this. */
    size_t gap = visited ? 0 : DIRTY_GAP / CONTEXT_PAGE;
    uint64_t clean = visited              ? ENTRY_FILE
                     : extent->is_tracked ? ENTRY_PROTECTED
                                          : 0;
    uint64_t entries[DIRTY_ENTRIES];
    int code = 0;

    for (size_t page = first; page < end && code == 0;) {
        size_t count = end - page < DIRTY_ENTRIES ? end - page : DIRTY_ENTRIES;
        dirty_look(all, context->heap.base + page * CONTEXT_PAGE, count,
                   entries);
        for (size_t i = 0; i < count && code == 0; i++, page++) {
            uint64_t entry = entries[i];
            if ((entry & (ENTRY_PRESENT | ENTRY_SWAPPED)) == 0) {
                if (!visited) {
                    stored_set(context, page, page + 1, false);
                }
                continue;
            }
            ++*touched;
            if ((entry & clean) == 0) {
                ++*written;
                code = plan_add(context, page, first, gap);
            }
        }
    }
    return code;
}

int dirty_range(const struct context *context, size_t offset)
{
    int first = 0, end = context->range_count;

    while (first < end) {
        int middle = first + (end - first) / 2;
        if (context->ranges[middle].to > offset) {
            end = middle;
        } else {
            first = middle + 1;
        }
    }
    return first;
}

int dirty_plan(const struct contexts *all, struct context *context, size_t at)
{
    struct extent *extent = &context->extents[at];
    size_t each = all->extent_bytes, low = at * each, high = low + each;
    size_t touched = 0, written = 0;
    int first = dirty_range(context, low), code = 0;

    for (; first < context->range_count && code == 0 &&
           context->ranges[first].from < high;
         first++) {
        const struct heap_extent *range = &context->ranges[first];
        size_t from = range->from > low ? range->from : low;
        size_t to = range->to < high ? range->to : high;
        code = plan_range(all, context, extent, from / CONTEXT_PAGE,
                          to / CONTEXT_PAGE, &touched, &written);
    }
    if (extent->state == EXTENT_RESIDENT && extent->is_tracked) {
        /* At 2 GB/s to write a page takes a third longer than a first write to
         * one that is watched. */
        bool mostly = 4 * written > 3 * touched;
        extent->is_split = 2 * written > touched;
        extent->backoff = !mostly ? 0
                          : extent->backoff < DIRTY_BACKOFF_MOST
                              ? (uint8_t)(extent->backoff + 1)
                              : DIRTY_BACKOFF_MOST;
        extent->backoff_left = (uint8_t)(mostly ? 1 << extent->backoff : 0);
    }
    return code;
}

void poise_vrank_discard(void *data, size_t bytes)
{
    struct context *self = contexts != NULL ? context_self() : NULL;
    uintptr_t from = ((uintptr_t)data + CONTEXT_PAGE - 1) & ~(CONTEXT_PAGE - 1);
    uintptr_t to = ((uintptr_t)data + bytes) & ~(CONTEXT_PAGE - 1);

    /* Threads of the program may use what stays in memory. */
    if (self != NULL && !self->keeps_resident && context_covers(data) &&
        context_of(data) == self && to > from &&
        to <= (uintptr_t)self->heap.base + self->heap.top) {
        uintptr_t base = (uintptr_t)self->heap.base;
        madvise((void *)from, to - from, MADV_DONTNEED);
        stored_set(self, (from - base) / CONTEXT_PAGE,
                   (to - base) / CONTEXT_PAGE, false);
    }
}

void dirty_watch(const struct contexts *all, struct context *context, size_t at)
{
    struct extent *extent = &context->extents[at];
    size_t from = at * all->extent_bytes;
    char *place = context->heap.base + from;
    size_t bytes = all->extent_bytes < context->heap.bytes - from
                       ? all->extent_bytes
                       : context->heap.bytes - from;

    extent->is_tracked = extent->is_split = false;
    if (extent->backoff_left > 0) {
        extent->backoff_left--;
    } else if (all->uffd >= 0) {
        /* A new mapping is not watched. If it cannot be, all of it counts as
         * written. */
        extent->is_tracked = dirty_register(all->uffd, place, bytes) &&
                             dirty_protect(all, place, bytes);
    }
}
