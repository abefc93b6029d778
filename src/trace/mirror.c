/*
 * A file made of a feed's bytes. Its first page must be a head in order, and
 * what the layout follows from never changes after that; all else of the head
 * is what readers of any file put up with. How many rings there are and whether
 * the writer ended is the mirror's own to say.
 */
#include "mirror.h"
#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_BYTES (UINT64_C(256) << 20)

struct poise_trace_mirror {
    char *path;
    uint64_t most_bytes;
    int fd; /* -1: no file yet */
    struct trace_head *head;
    struct trace_head first; /* as it was first */
    struct poise_trace_ring **rings;
    uint32_t ring_count;
    uint64_t records, lost;
    int failed;
};

int poise_trace_mirror_open(const char *path, uint64_t most_bytes,
                            struct poise_trace_mirror **out)
{
    struct poise_trace_mirror *mirror = poise_alloc(1, sizeof *mirror);
    char *copy = mirror ? strdup(path) : NULL;
    if (!copy) {
        free(mirror);
        return poise_error_set(ENOMEM, "copy trace", path, NULL);
    }
    *mirror = (struct poise_trace_mirror){.path = copy,
                                          .most_bytes = most_bytes ? most_bytes
                                                                   : MOST_BYTES,
                                          .fd = -1};
    *out = mirror;
    return 0;
}

void poise_trace_mirror_close(struct poise_trace_mirror *mirror)
{
    if (!mirror) {
        return;
    }
    for (uint32_t i = 0; i < mirror->ring_count; i++) {
        munmap(mirror->rings[i], mirror->first.ring_bytes);
    }
    if (mirror->head) {
        munmap(mirror->head, mirror->first.head_bytes);
    }
    if (mirror->fd >= 0) {
        close(mirror->fd);
    }
    free(mirror->rings);
    free(mirror->path);
    free(mirror);
}

void poise_trace_mirror_counts(const struct poise_trace_mirror *mirror,
                               uint64_t *records, uint64_t *lost)
{
    *records = mirror->records;
    *lost = mirror->lost;
}

bool poise_trace_mirror_ended(const struct poise_trace_mirror *mirror)
{
    return mirror->head &&
           __atomic_load_n(&mirror->head->ended, __ATOMIC_ACQUIRE) == 1;
}

static int refuse(const struct poise_trace_mirror *mirror, const char *what)
{
    return poise_error_set(EPROTO, "copy trace", mirror->path, "%s", what);
}

/* Memory of the file, from `at` on, that cannot run out later. */
static void *grow(struct poise_trace_mirror *mirror, uint64_t at,
                  uint64_t bytes)
{
    if (at + bytes > mirror->most_bytes) {
        poise_error_set(EFBIG, "copy trace", mirror->path,
                        "it is larger than %llu bytes",
                        (unsigned long long)mirror->most_bytes);
        return NULL;
    }
    int error = posix_fallocate(mirror->fd, (off_t)at, (off_t)bytes);
    void *map = error ? MAP_FAILED
                      : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                             mirror->fd, (off_t)at);
    if (map == MAP_FAILED) {
        poise_error_set(error ? error : errno, "copy trace", mirror->path,
                        NULL);
        return NULL;
    }
    return map;
}

/* ---- the head ----------------------------------------------------------- */

static int create(struct poise_trace_mirror *mirror,
                  const struct trace_head *head)
{
    mirror->fd = poise_file_open(AT_FDCWD, mirror->path,
                                 O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (mirror->fd < 0) {
        return mirror->fd;
    }
    mirror->head = grow(mirror, 0, head->head_bytes);
    return mirror->head ? 0 : -poise_error_last()->code;
}

static bool is_same(const struct trace_head *a, const struct trace_head *b)
{
    return a->rings_max == b->rings_max && a->capacity == b->capacity &&
           a->rank == b->rank && a->size == b->size &&
           memcmp(a->session, b->session, sizeof a->session) == 0;
}

/* What the mirror says for itself, put into a first page. */
static void own(const struct poise_trace_mirror *mirror,
                struct trace_head *head)
{
    head->magic = mirror->head ? mirror->head->magic : 0;
    head->rings = mirror->ring_count;
    head->ended = mirror->head ? mirror->head->ended : 0;
}

static int put_page(struct poise_trace_mirror *mirror, uint32_t index,
                    const void *bytes, size_t len)
{
    _Alignas(8) unsigned char page[MIRROR_PAGE_BYTES];
    struct trace_head *head = (struct trace_head *)page;
    if (len != sizeof page || (!mirror->head && index != 0) ||
        (mirror->head && index >= mirror->first.head_bytes / sizeof page)) {
        return refuse(mirror, "a page of its head is out of place");
    }
    memcpy(page, bytes, sizeof page);
    if (index == 0) {
        if (head->magic != TRACE_MAGIC || head->version != TRACE_VERSION ||
            !trace_is_head(head) ||
            (mirror->head && !is_same(head, &mirror->first))) {
            return refuse(mirror, "its head is damaged");
        }
        if (!mirror->head) {
            int code = create(mirror, head);
            if (code < 0) {
                return code;
            }
            mirror->first = *head;
        }
        own(mirror, head);
    }
    trace_word *to =
        (trace_word *)((char *)mirror->head + (size_t)index * sizeof page);
    const trace_word *from = (const trace_word *)page;
    for (size_t i = 0; i < sizeof page / sizeof *to; i++) {
        __atomic_store_n(&to[i], from[i], __ATOMIC_RELEASE);
    }
    return 0;
}

/* ---- rings -------------------------------------------------------------- */

static int add_ring(struct poise_trace_mirror *mirror)
{
    struct poise_trace_ring **rings =
        poise_realloc(mirror->rings, mirror->ring_count + 1,
                      sizeof(struct poise_trace_ring *));
    if (!rings) {
        return -ENOMEM;
    }
    mirror->rings = rings;
    struct poise_trace_ring *ring =
        grow(mirror,
             mirror->first.head_bytes +
                 mirror->ring_count * mirror->first.ring_bytes,
             mirror->first.ring_bytes);
    if (!ring) {
        return -poise_error_last()->code;
    }
    ring->index = mirror->ring_count;
    rings[mirror->ring_count++] = ring;
    __atomic_store_n(&ring->mask, mirror->first.capacity - 1, __ATOMIC_RELEASE);
    __atomic_store_n(&mirror->head->rings, mirror->ring_count,
                     __ATOMIC_RELEASE);
    return 0;
}

/* Rings that nothing was recorded in lie between them, empty. */
static int put_ring(struct poise_trace_mirror *mirror, uint32_t index,
                    const void *bytes, size_t len)
{
    struct poise_trace_ring head;
    if (len != sizeof head || index >= mirror->first.rings_max) {
        return refuse(mirror, "the head of a ring is out of place");
    }
    while (mirror->ring_count <= index) {
        int code = add_ring(mirror);
        if (code < 0) {
            return code;
        }
    }
    memcpy(&head, bytes, sizeof head);
    struct poise_trace_ring *ring = mirror->rings[index];
    __atomic_store_n(&ring->owner, head.owner, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->owners, head.owners, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->tid, head.tid, __ATOMIC_RELAXED);
    for (size_t i = 0; i < sizeof ring->name - 1; i++) {
        __atomic_store_n(&ring->name[i], head.name[i], __ATOMIC_RELAXED);
    }
    return 0;
}

static void put_record(struct poise_trace_ring *ring,
                       const struct poise_trace_event *from)
{
    uint64_t n = __atomic_fetch_add(&ring->reserved, 1, __ATOMIC_ACQ_REL);
    struct poise_trace_event *to =
        (struct poise_trace_event *)(ring + 1) + (n & ring->mask);
    __atomic_store_n(&to->collector, from->collector, __ATOMIC_RELEASE);
    __atomic_store_n(&to->sequence, from->sequence, __ATOMIC_RELEASE);
    for (int i = 0; i < POISE_TRACE_VALUES; i++) {
        __atomic_store_n(&to->values[i], from->values[i], __ATOMIC_RELEASE);
    }
    __atomic_store_n(&to->stamp, (uint32_t)n + 1, __ATOMIC_RELEASE);
}

static int put_records(struct poise_trace_mirror *mirror, uint32_t index,
                       const unsigned char *bytes, size_t len)
{
    struct poise_trace_event event;
    if (len % sizeof event != 0 || index >= mirror->ring_count) {
        return refuse(mirror, "records are out of place");
    }
    for (size_t at = 0; at < len; at += sizeof event) {
        memcpy(&event, bytes + at, sizeof event);
        put_record(mirror->rings[index], &event);
    }
    mirror->records += len / sizeof event;
    return 0;
}

/* ---- chunks ------------------------------------------------------------- */

static int put_chunk(struct poise_trace_mirror *mirror,
                     const struct mirror_chunk *chunk,
                     const unsigned char *bytes)
{
    if (chunk->kind == MIRROR_PAGE) {
        return put_page(mirror, chunk->index, bytes, chunk->bytes);
    }
    if (!mirror->head) {
        return refuse(mirror, "it does not begin with its head");
    }
    switch (chunk->kind) {
    case MIRROR_READY:
        __atomic_store_n(&mirror->head->magic, TRACE_MAGIC, __ATOMIC_RELEASE);
        return 0;
    case MIRROR_RING:
        return put_ring(mirror, chunk->index, bytes, chunk->bytes);
    case MIRROR_RECORDS:
        return put_records(mirror, chunk->index, bytes, chunk->bytes);
    case MIRROR_LOST:
        if (chunk->bytes != sizeof mirror->lost) {
            return refuse(mirror, "a count is out of place");
        }
        memcpy(&mirror->lost, bytes, sizeof mirror->lost);
        return 0;
    case MIRROR_ENDED:
        __atomic_store_n(&mirror->head->ended, 1, __ATOMIC_RELEASE);
        return 0;
    default:
        return refuse(mirror, "there is no such part of a trace");
    }
}

int poise_trace_mirror_put(struct poise_trace_mirror *mirror, const void *bytes,
                           size_t len)
{
    const unsigned char *from = bytes;
    struct mirror_chunk chunk;
    for (size_t at = 0; at < len && mirror->failed == 0;) {
        if (len - at < sizeof chunk) {
            mirror->failed = refuse(mirror, "it is cut short");
            break;
        }
        memcpy(&chunk, from + at, sizeof chunk);
        at += sizeof chunk;
        if (chunk.bytes > len - at) {
            mirror->failed = refuse(mirror, "it is cut short");
            break;
        }
        mirror->failed = put_chunk(mirror, &chunk, from + at);
        at += chunk.bytes;
    }
    return mirror->failed;
}
