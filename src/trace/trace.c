/*
 * Making traces and giving out their rings. Emitting is inline, in the
 * header; reading is in view.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

_Static_assert(sizeof(struct poise_trace_event) == 32, "file format");
_Static_assert(sizeof(struct poise_trace_ring) == 64, "file format");
_Static_assert(sizeof(struct trace_head) <= TRACE_HEAD_BYTES, "file format");

size_t trace_layout(uint64_t rings, uint64_t capacity, uint64_t *ring_bytes)
{
    uint64_t bytes = 0;
    uint64_t total = 0;
    if (rings == 0 || rings > UINT32_MAX || capacity < 2 ||
        (capacity & (capacity - 1)) != 0 ||
        __builtin_mul_overflow(capacity, sizeof(struct poise_trace_event),
                               &bytes) ||
        __builtin_add_overflow(bytes, sizeof(struct poise_trace_ring),
                               &bytes) ||
        __builtin_mul_overflow(bytes, rings, &total) ||
        __builtin_add_overflow(total, TRACE_HEAD_BYTES, &total) ||
        total > (uint64_t)PTRDIFF_MAX) {
        return 0;
    }
    *ring_bytes = bytes;
    return (size_t)total;
}

/* The smallest power of two that is at least `capacity` and 2; 0: none. */
static uint64_t trace_round_up(size_t capacity)
{
    uint64_t power = 2;
    while (power && power < capacity) {
        power <<= 1;
    }
    return power;
}

/* A file of `bytes` bytes of zeroes, opened for mapping. */
static int trace_make_file(const char *path, size_t bytes)
{
    int fd;
    int code;
    if (path) {
        fd = poise_file_open(AT_FDCWD, path,
                             O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) {
            return fd;
        }
        /* Space that is missing must show here, not as SIGBUS later. */
        code = poise_fault_check(POISE_FAULT_WRITE);
        if (code == 0) {
            code = posix_fallocate(fd, 0, (off_t)bytes);
        }
    } else {
        fd = memfd_create("poise-trace", MFD_CLOEXEC);
        if (fd < 0) {
            return poise_error_set(errno, "create a trace", NULL, NULL);
        }
        code = ftruncate(fd, (off_t)bytes) ? errno : 0;
    }
    if (code) {
        close(fd);
        if (path) {
            unlink(path);
        }
        return poise_error_set(code, "reserve space for the trace", path, NULL);
    }
    return fd;
}

static void trace_fill_head(struct trace_head *head, unsigned rings,
                            uint64_t capacity, uint64_t ring_bytes)
{
    head->version = TRACE_VERSION;
    head->head_bytes = TRACE_HEAD_BYTES;
    head->event_bytes = sizeof(struct poise_trace_event);
    head->ring_head_bytes = sizeof(struct poise_trace_ring);
    head->rings = rings;
    head->capacity = capacity;
    head->ring_bytes = ring_bytes;
    head->tick_hz = poise_clock_tick_hz();
    head->start_ticks = poise_clock_ticks();
    head->start_wall_ns = poise_clock_wall_ns();
    for (unsigned i = 0; i < rings; i++) {
        trace_ring_at(head, i)->mask = capacity - 1;
    }
    __atomic_store_n(&head->magic, TRACE_MAGIC, __ATOMIC_RELEASE);
}

int poise_trace_create(const char *path, unsigned rings, size_t capacity,
                       struct poise_trace **out)
{
    uint64_t power = trace_round_up(capacity);
    uint64_t ring_bytes = 0;
    size_t map_bytes = trace_layout(rings, power, &ring_bytes);
    if (map_bytes == 0) {
        return poise_error_set(EINVAL, "create a trace", path,
                               "%u rings of %zu events is no possible size",
                               rings, capacity);
    }
    struct poise_trace *trace = poise_alloc(1, sizeof *trace);
    if (!trace) {
        return -ENOMEM;
    }
    int code = 0;
    int fd = trace_make_file(path, map_bytes);
    if (fd < 0) {
        code = fd;
        goto free_trace;
    }
    void *map =
        mmap(NULL, map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    code = map == MAP_FAILED ? poise_error_set(errno, "map", path, NULL) : 0;
    /* The mapping keeps the file alive. */
    close(fd);
    if (code) {
        goto unlink_file;
    }
    trace->head = map;
    trace->map_bytes = map_bytes;
    trace_fill_head(trace->head, rings, power, ring_bytes);
    *out = trace;
    return 0;

unlink_file:
    if (path) {
        unlink(path);
    }
free_trace:
    free(trace);
    return code;
}

void poise_trace_destroy(struct poise_trace *trace)
{
    if (trace) {
        munmap(trace->head, trace->map_bytes);
        free(trace);
    }
}

struct poise_trace_ring *poise_trace_claim(struct poise_trace *trace,
                                           const char *name)
{
    struct trace_head *head = trace->head;
    uint32_t mine = __atomic_load_n(&head->taken, __ATOMIC_RELAXED);
    do {
        if (mine >= head->rings) {
            poise_error_set(ENOSPC, "claim a trace ring", name,
                            "all %u are taken", head->rings);
            return NULL;
        }
    } while (!__atomic_compare_exchange_n(&head->taken, &mine, mine + 1, true,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    struct poise_trace_ring *ring = trace_ring_at(head, mine);
    size_t len = name ? strnlen(name, sizeof ring->name - 1) : 0;
    if (len) {
        memcpy(ring->name, name, len);
    }
    ring->pid = getpid();
    ring->tid = gettid();
    __atomic_store_n(&ring->claimed, 1, __ATOMIC_RELEASE);
    return ring;
}

void poise_trace_use(struct poise_trace_ring *ring)
{
    poise_ctx_put(POISE_CTX_TRACE, ring);
}

struct poise_trace_ring *poise_trace_current(void)
{
    return poise_ctx_get(POISE_CTX_TRACE);
}
