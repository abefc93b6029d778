/*
 * Reading traces, also while they are written and after their writer died.
 *
 * A reader trusts only the head, which it checked when it opened the trace, and
 * each ring's count. An event is whole when its slot cannot have been touched
 * while it was copied: event n's slot is next written for event n + capacity,
 * and a reader that sees a word of that one also sees written >= n + capacity,
 * since all of the writer's stores are releases.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

/* How often a reader that was lapped looks again. */
#define VIEW_ATTEMPTS 8

struct poise_trace_view {
    struct trace_head *head; /* mapped read-only, or a living trace's */
    size_t map_bytes;        /* 0: borrowed, not ours to unmap */
};

/* 0, or why this is no whole trace; `file_bytes` is what is there. */
static int view_check(const struct trace_head *head, uint64_t file_bytes,
                      const char *path)
{
    const char *doing = "read trace";
    if (file_bytes < sizeof head->magic) {
        return poise_error_set(EBADMSG, doing, path, "cut short in its head");
    }
    if (__atomic_load_n(&head->magic, __ATOMIC_ACQUIRE) != TRACE_MAGIC) {
        return poise_error_set(EPROTO, doing, path, "not a trace");
    }
    if (file_bytes < TRACE_HEAD_BYTES) {
        return poise_error_set(EBADMSG, doing, path, "cut short in its head");
    }
    if (head->version != TRACE_VERSION) {
        return poise_error_set(EPROTO, doing, path,
                               "version %u; this program knows %d",
                               head->version, TRACE_VERSION);
    }
    uint64_t ring_bytes = 0;
    size_t bytes = trace_layout(head->rings, head->capacity, &ring_bytes);
    if (bytes == 0 || head->head_bytes != TRACE_HEAD_BYTES ||
        head->event_bytes != sizeof(struct poise_trace_event) ||
        head->ring_head_bytes != sizeof(struct poise_trace_ring) ||
        head->ring_bytes != ring_bytes || head->tick_hz == 0) {
        return poise_error_set(EBADMSG, doing, path, "damaged head");
    }
    if (bytes > file_bytes) {
        return poise_error_set(EBADMSG, doing, path,
                               "cut short: %llu of %zu bytes",
                               (unsigned long long)file_bytes, bytes);
    }
    return 0;
}

/* Map the file of `fd` into `view` and check it. */
static int view_map(int fd, const char *path, struct poise_trace_view *view)
{
    struct stat status;
    if (fstat(fd, &status)) {
        return poise_error_set(errno, "read trace", path, NULL);
    }
    if (!S_ISREG(status.st_mode)) {
        return poise_error_set(EPROTO, "read trace", path, "not a file");
    }
    if (status.st_size == 0) {
        return poise_error_set(EBADMSG, "read trace", path, "it is empty");
    }
    size_t bytes = (size_t)status.st_size;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return poise_error_set(errno, "map", path, NULL);
    }
    int code = view_check(map, bytes, path);
    if (code) {
        munmap(map, bytes);
        return code;
    }
    view->head = map;
    view->map_bytes = bytes;
    return 0;
}

int poise_trace_open(const char *path, struct poise_trace_view **out)
{
    struct poise_trace_view *view = poise_alloc(1, sizeof *view);
    if (!view) {
        return -ENOMEM;
    }
    /* Not to hang on a FIFO. */
    int fd =
        poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    int code = fd;
    if (fd >= 0) {
        code = view_map(fd, path, view);
        close(fd);
    }
    if (code < 0) {
        free(view);
        return code;
    }
    *out = view;
    return 0;
}

int poise_trace_view_of(struct poise_trace *trace,
                        struct poise_trace_view **out)
{
    struct poise_trace_view *view = poise_alloc(1, sizeof *view);
    if (!view) {
        return -ENOMEM;
    }
    view->head = trace->head;
    *out = view;
    return 0;
}

void poise_trace_close(struct poise_trace_view *view)
{
    if (view) {
        if (view->map_bytes) {
            munmap(view->head, view->map_bytes);
        }
        free(view);
    }
}

uint64_t poise_trace_tick_hz(const struct poise_trace_view *view)
{
    return view->head->tick_hz;
}

uint64_t poise_trace_start_ticks(const struct poise_trace_view *view)
{
    return view->head->start_ticks;
}

unsigned poise_trace_rings(const struct poise_trace_view *view)
{
    unsigned count = 0;
    while (count < view->head->rings &&
           __atomic_load_n(&trace_ring_at(view->head, count)->claimed,
                           __ATOMIC_ACQUIRE)) {
        count++;
    }
    return count;
}

/* The ring, or NULL with the error set. */
static struct poise_trace_ring *view_ring(const struct poise_trace_view *view,
                                          unsigned ring)
{
    if (ring >= view->head->rings ||
        !__atomic_load_n(&trace_ring_at(view->head, ring)->claimed,
                         __ATOMIC_ACQUIRE)) {
        poise_error_set(EINVAL, "read trace", NULL, "it has no ring %u", ring);
        return NULL;
    }
    return trace_ring_at(view->head, ring);
}

/* The oldest event that can be whole when `written` have been emitted: the
 * slot behind the newest may be in the writer's hands. */
static uint64_t view_oldest(const struct poise_trace_view *view,
                            uint64_t written)
{
    uint64_t capacity = view->head->capacity;
    return written >= capacity ? written - capacity + 1 : 0;
}

int poise_trace_ring_info(const struct poise_trace_view *view, unsigned ring,
                          struct poise_trace_ring_info *out)
{
    struct poise_trace_ring *from = view_ring(view, ring);
    if (!from) {
        return -EINVAL;
    }
    memcpy(out->name, from->name, sizeof out->name);
    out->name[sizeof out->name - 1] = '\0';
    out->written = __atomic_load_n(&from->written, __ATOMIC_ACQUIRE);
    out->overwritten = view_oldest(view, out->written);
    out->pid = from->pid;
    out->tid = from->tid;
    return 0;
}

/* Events [first, first + count) into `events`, whole or torn. */
static void view_copy(const struct poise_trace_view *view,
                      struct poise_trace_ring *ring, uint64_t first,
                      size_t count, struct poise_trace_event *events)
{
    uint64_t mask = view->head->capacity - 1;
    struct poise_trace_event *slots = (struct poise_trace_event *)(ring + 1);
    for (size_t i = 0; i < count; i++) {
        struct poise_trace_event *slot = &slots[(first + i) & mask];
        events[i].ticks = __atomic_load_n(&slot->ticks, __ATOMIC_ACQUIRE);
        events[i].kind = __atomic_load_n(&slot->kind, __ATOMIC_ACQUIRE);
        events[i].extra = __atomic_load_n(&slot->extra, __ATOMIC_ACQUIRE);
        events[i].a = __atomic_load_n(&slot->a, __ATOMIC_ACQUIRE);
        events[i].b = __atomic_load_n(&slot->b, __ATOMIC_ACQUIRE);
    }
}

ssize_t poise_trace_read(const struct poise_trace_view *view, unsigned ring,
                         uint64_t from, size_t max,
                         struct poise_trace_event *events, uint64_t *next)
{
    struct poise_trace_ring *source = view_ring(view, ring);
    if (!source) {
        return -EINVAL;
    }
    uint64_t written = __atomic_load_n(&source->written, __ATOMIC_ACQUIRE);
    for (int attempt = 0; attempt < VIEW_ATTEMPTS; attempt++) {
        uint64_t oldest = view_oldest(view, written);
        uint64_t first = from > oldest ? from : oldest;
        if (max == 0 || first >= written) {
            break;
        }
        size_t count = written - first < max ? (size_t)(written - first) : max;
        view_copy(view, source, first, count, events);
        written = __atomic_load_n(&source->written, __ATOMIC_ACQUIRE);
        oldest = view_oldest(view, written);
        uint64_t end = first + count;
        if (oldest < end) {
            size_t lost = oldest > first ? (size_t)(oldest - first) : 0;
            memmove(events, events + lost, (count - lost) * sizeof *events);
            *next = end;
            return (ssize_t)(count - lost);
        }
        from = end;
    }
    *next = from;
    return 0;
}
