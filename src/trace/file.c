/*
 * Making traces: the file, its head and its tables. Rings are added when they
 * are claimed (ring.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

_Static_assert(sizeof(struct poise_trace_event) == 48, "file format");
_Static_assert(sizeof(struct poise_trace_ring) == 128, "file format");
_Static_assert(sizeof(struct poise_trace_type) == 108, "file format");
_Static_assert(sizeof(struct trace_place) == 128, "file format");
_Static_assert(sizeof(struct trace_snapshot) == 32, "file format");
_Static_assert(sizeof(struct poise_trace_offset) == 32, "file format");
_Static_assert(sizeof(struct trace_head) == 520, "file format");

#define FILE_RINGS_MAX 16384
#define FILE_CAPACITY 16384

static uint64_t align(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

bool trace_layout(uint64_t rings_max, uint64_t capacity,
                  struct trace_layout *out)
{
    struct trace_layout layout;
    uint64_t total;
    layout.types_at = 4096;
    layout.places_at = align(
        layout.types_at + TRACE_TYPES * sizeof(struct poise_trace_type), 4096);
    layout.snapshots_at = align(
        layout.places_at + TRACE_PLACES * sizeof(struct trace_place), 4096);
    layout.offsets_at = align(
        layout.snapshots_at + TRACE_SNAPSHOTS * sizeof(struct trace_snapshot),
        4096);
    layout.head_bytes = align(
        layout.offsets_at + TRACE_OFFSETS * sizeof(struct poise_trace_offset),
        TRACE_ALIGN);
    if (rings_max == 0 || rings_max > UINT32_MAX || capacity < 2 ||
        capacity > UINT32_C(1) << 31 || (capacity & (capacity - 1)) != 0) {
        return false;
    }
    layout.ring_bytes = align(sizeof(struct poise_trace_ring) +
                                  capacity * sizeof(struct poise_trace_event),
                              TRACE_ALIGN);
    if (__builtin_mul_overflow(layout.ring_bytes, rings_max, &total) ||
        total > (uint64_t)PTRDIFF_MAX - layout.head_bytes) {
        return false;
    }
    *out = layout;
    return true;
}

/* A file of `bytes` bytes of zeroes, opened for mapping. */
static int make_file(const char *path, size_t bytes)
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

static void fill_types(struct trace_head *head)
{
    struct poise_trace_type *types = trace_table(head, head->types_at);
    for (uint32_t id = 1; id < POISE_TRACE_KINDS; id++) {
        types[id] = trace_types[id];
        types[id].id = id;
    }
}

static void fill_head(struct trace_head *head,
                      const struct trace_layout *layout,
                      const struct poise_trace_options *options,
                      uint64_t rings_max, uint64_t capacity)
{
    const char *program =
        options->program ? options->program : program_invocation_short_name;
    head->version = TRACE_VERSION;
    head->head_bytes = (uint32_t)layout->head_bytes;
    head->event_bytes = sizeof(struct poise_trace_event);
    head->ring_head_bytes = sizeof(struct poise_trace_ring);
    head->rings_max = (uint32_t)rings_max;
    head->capacity = capacity;
    head->ring_bytes = layout->ring_bytes;
    head->tick_hz = poise_clock_tick_hz();
    head->start_ticks = poise_clock_ticks();
    head->start_wall_ns = poise_clock_wall_ns();
    head->session[0] = options->session[0];
    head->session[1] = options->session[1];
    while (head->session[0] == 0 && head->session[1] == 0) {
        head->session[0] = poise_rng_next(poise_rng_current());
        head->session[1] = poise_rng_next(poise_rng_current());
    }
    poise_trace_clock_id(head->clock);
    head->rank = options->rank;
    head->size = options->size > 0 ? options->size : 1;
    head->pid = getpid();
    head->paused = options->paused;
    head->rate = options->rate;
    head->has_tsc = poise_clock_has_tsc;
    head->types_at = (uint32_t)layout->types_at;
    head->types_max = TRACE_TYPES;
    head->places_at = (uint32_t)layout->places_at;
    head->places_max = TRACE_PLACES;
    head->snapshots_at = (uint32_t)layout->snapshots_at;
    head->snapshots_max = TRACE_SNAPSHOTS;
    head->offsets_at = (uint32_t)layout->offsets_at;
    head->offsets_max = TRACE_OFFSETS;
    if (gethostname(head->host, sizeof head->host - 1)) {
        strcpy(head->host, "?");
    }
    strncpy(head->program, program, sizeof head->program - 1);
    fill_types(head);
}

/* The file is mapped at `trace->head`: remember which it is, so that space for
 * rings is never reserved in another that got its descriptor. */
static int remember_file(struct poise_trace *trace, int fd, const char *path)
{
    struct stat status;
    if (fstat(fd, &status)) {
        return poise_error_set(errno, "create a trace", path, NULL);
    }
    trace->fd = fd;
    trace->device = status.st_dev;
    trace->inode = status.st_ino;
    trace->pid = getpid();
    return 0;
}

static uint64_t round_up(uint64_t capacity)
{
    uint64_t power = 2;
    while (power && power < capacity) {
        power <<= 1;
    }
    return power;
}

static int map_file(struct poise_trace *trace, int fd, size_t head_bytes,
                    const char *path)
{
    void *map =
        mmap(NULL, head_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return poise_error_set(errno, "map", path, NULL);
    }
    trace->head = map;
    return remember_file(trace, fd, path);
}

int poise_trace_create(const char *path,
                       const struct poise_trace_options *options,
                       struct poise_trace **out)
{
    static uint64_t numbers;
    const struct poise_trace_options none = {0};
    options = options ? options : &none;
    uint64_t capacity =
        round_up(options->capacity ? options->capacity : FILE_CAPACITY);
    uint64_t rings_max =
        options->rings_max ? options->rings_max : FILE_RINGS_MAX;
    struct trace_layout layout;
    if (!trace_layout(rings_max, capacity, &layout)) {
        return poise_error_set(EINVAL, "create a trace", path,
                               "%llu rings of %llu records is no possible size",
                               (unsigned long long)rings_max,
                               (unsigned long long)capacity);
    }
    int fd = -1, code = -ENOMEM;
    struct poise_trace *trace = poise_alloc(1, sizeof *trace);
    struct poise_trace_ring **rings =
        poise_alloc(rings_max, sizeof(struct poise_trace_ring *));
    if (!trace || !rings) {
        goto free_trace;
    }
    trace->path = path ? strdup(path) : NULL;
    if (path && !trace->path) {
        poise_error_set(ENOMEM, "create a trace", path, NULL);
        goto free_trace;
    }
    code = fd = make_file(path, layout.head_bytes);
    if (code < 0) {
        goto free_trace;
    }
    code = map_file(trace, fd, layout.head_bytes, path);
    if (code < 0) {
        goto unlink_file;
    }
    trace->rings = rings;
    trace->number = __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
    fill_head(trace->head, &layout, options, rings_max, capacity);
    poise_trace_snapshot(trace);
    __atomic_store_n(&trace->head->magic, TRACE_MAGIC, __ATOMIC_RELEASE);
    *out = trace;
    return 0;

unlink_file:
    close(fd);
    if (path) {
        unlink(path);
    }
free_trace:
    if (trace) {
        free(trace->path);
    }
    free(rings);
    free(trace);
    return code;
}

static void end(struct poise_trace *trace)
{
    /* A child of fork only lets go of it. */
    if (trace->pid == getpid()) {
        trace_snapshot(trace, TRACE_SNAPSHOTS);
        __atomic_store_n(&trace->head->ended, 1, __ATOMIC_RELEASE);
    }
}

void poise_trace_stop(struct poise_trace *trace)
{
    /* Global: what is kept for ever should not look lost. */
    static struct poise_trace *stopped;
    if (!trace) {
        return;
    }
    if (__atomic_load_n(&poise_trace_in_force, __ATOMIC_RELAXED) == trace) {
        poise_trace_use(NULL);
    }
    end(trace);
    trace->stopped = __atomic_exchange_n(&stopped, trace, __ATOMIC_ACQ_REL);
}

void poise_trace_destroy(struct poise_trace *trace)
{
    if (!trace) {
        return;
    }
    struct trace_head *head = trace->head;
    uint64_t ring_bytes = head->ring_bytes;
    end(trace);
    for (uint32_t i = 0; i < head->rings_max && i < trace->made; i++) {
        if (trace->rings[i]) {
            munmap(trace->rings[i], ring_bytes);
        }
    }
    struct stat status;
    if (fstat(trace->fd, &status) == 0 && status.st_dev == trace->device &&
        status.st_ino == trace->inode) {
        close(trace->fd);
    }
    munmap(head, head->head_bytes);
    free(trace->rings);
    free(trace->path);
    free(trace);
}
