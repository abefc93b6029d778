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
 * The first write to a page costs, and splits a huge one. A context of which
 * more than half was written is not tracked for some time (`backoff`).
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
    all->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (wanted != POISE_VRANK_TRACK_FULL && all->pagemap >= 0) {
        all->uffd = dirty_open();
    }
    if (all->uffd >= 0) {
        works =
            dirty_probe(all) &&
            dirty_register(all->uffd, (void *)context_base,
                           (size_t)all->count * (size_t)all->plan.slot_bytes);
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

/* ---- what is written ---------------------------------------------------- */

/* Pages have to be written: with those before, if they are near and behind
 * `first`. */
static int plan_add(struct context *context, size_t from, size_t to,
                    size_t first)
{
    struct heap_extent *last =
        context->run_count > 0 ? &context->runs[context->run_count - 1] : NULL;
    size_t gap = DIRTY_GAP / CONTEXT_PAGE;

    if (last != NULL && last->from >= first && from - last->to <= gap) {
        stored_set(context, last->to, to, true);
        last->to = to;
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
    stored_set(context, from, to, true);
    context->runs[context->run_count++] =
        (struct heap_extent){.from = from, .to = to};
    return 0;
}

/* What the pages of a part of the heap that is in use are. */
static int plan_extent(const struct contexts *all, struct context *context,
                       const struct heap_extent *extent, size_t *touched,
                       size_t *written)
{
    uint64_t entries[DIRTY_ENTRIES];
    size_t first = extent->from / CONTEXT_PAGE, end = extent->to / CONTEXT_PAGE;
    int code = 0;

    for (size_t page = first; page < end && code == 0;) {
        size_t count = end - page < DIRTY_ENTRIES ? end - page : DIRTY_ENTRIES;
        dirty_look(all, context->heap.base + page * CONTEXT_PAGE, count,
                   entries);
        for (size_t i = 0; i < count && code == 0; i++, page++) {
            uint64_t entry = entries[i];
            if ((entry & (ENTRY_PRESENT | ENTRY_SWAPPED)) == 0) {
                stored_set(context, page, page + 1, false);
                continue;
            }
            ++*touched;
            if (!context->is_tracked || (entry & ENTRY_PROTECTED) == 0) {
                ++*written;
                code = plan_add(context, page, page + 1, first);
            }
        }
    }
    return code;
}

int dirty_plan(const struct contexts *all, struct context *context)
{
    size_t touched = 0, written = 0, at = 0;
    int count =
        heap_extents(&context->heap, &context->extents, &context->extent_room);
    int code = count < 0 ? count : 0;

    context->run_count = 0;
    for (int i = 0; i < count && code == 0; i++) {
        stored_set(context, at, context->extents[i].from / CONTEXT_PAGE, false);
        at = context->extents[i].to / CONTEXT_PAGE;
        code =
            plan_extent(all, context, &context->extents[i], &touched, &written);
    }
    stored_set(context, at, context->heap.bytes / CONTEXT_PAGE, false);
    if (context->is_tracked) {
        bool mostly = 2 * written > touched;
        context->backoff = !mostly ? 0
                           : context->backoff < DIRTY_BACKOFF_MOST
                               ? context->backoff + 1
                               : DIRTY_BACKOFF_MOST;
        context->backoff_left = mostly ? 1 << context->backoff : 0;
        context->is_split = mostly;
    }
    context->is_tracked = false;
    return code;
}

void poise_vrank_discard(void *data, size_t bytes)
{
    const struct context *self = contexts != NULL ? context_self() : NULL;
    uintptr_t from = ((uintptr_t)data + CONTEXT_PAGE - 1) & ~(CONTEXT_PAGE - 1);
    uintptr_t to = ((uintptr_t)data + bytes) & ~(CONTEXT_PAGE - 1);

    /* Threads of the program may use what stays in memory. */
    if (self != NULL && !self->keeps_resident && context_covers(data) &&
        context_of(data) == self && to > from &&
        to <= (uintptr_t)self->heap.base + self->heap.top) {
        madvise((void *)from, to - from, MADV_DONTNEED);
    }
}

void dirty_moved(const struct contexts *all, const struct context *context)
{
    /* What is moved is not watched any more. If it cannot be, the attempt to
     * protect it says so. */
    if (all->uffd >= 0) {
        dirty_register(all->uffd, context->heap.base, context->heap.bytes);
    }
}

void dirty_watch(const struct contexts *all, struct context *context)
{
    size_t from, to = 0, unit = context->heap.unit, done = 0, count = 0;
    size_t end = context->heap.bytes / CONTEXT_PAGE;
    bool works = all->uffd >= 0 && context->backoff_left == 0;

    context->backoff_left -= context->backoff_left > 0;
    /* Whole units: a huge page comes as a whole, and what is not stored of it
     * is zero unless it is written. */
    while (works && stored_next(context, &from, &to, end)) {
        size_t low = from * CONTEXT_PAGE / unit * unit;
        size_t high = (to * CONTEXT_PAGE + unit - 1) / unit * unit;
        low = low > done ? low : done;
        high = high < context->heap.reach ? high : context->heap.reach;
        if (high > low) {
            works = dirty_protect(all, context->heap.base + low, high - low);
            done = high;
        }
        count++;
    }
    /* One that was never on disk will be written as a whole. */
    context->is_tracked = works && count > 0;
}
