/*
 * What opens trace files: any bytes are a file of a session, or two (the first
 * byte says where the second begins). A valid head is put where the bytes are
 * to matter behind it; then each ring, type and collector is asked for, and the
 * stream is gone through, which must end, never go back in time, and account
 * for every record.
 */
#include "../../fuzz/fuzz.h"

#include "trace/internal.h"

#include <poise/trace_session.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RING_CAPACITY 8

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* A whole file of one ring, over which `data` is laid: pairs of an offset (3
 * bytes) and 8 bytes. */
static int make(const uint8_t *data, size_t len, int rank, char *path,
                size_t path_bytes)
{
    struct trace_layout layout;
    check(trace_layout(4, RING_CAPACITY, &layout));
    size_t bytes = layout.head_bytes + layout.ring_bytes;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    check(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(map != MAP_FAILED);
    struct trace_head *head = (struct trace_head *)(void *)map;
    *head = (struct trace_head){.magic = TRACE_MAGIC,
                                .version = TRACE_VERSION,
                                .head_bytes = (uint32_t)layout.head_bytes,
                                .event_bytes = 48,
                                .ring_head_bytes = 128,
                                .rings = 1,
                                .rings_max = 4,
                                .capacity = RING_CAPACITY,
                                .ring_bytes = layout.ring_bytes,
                                .tick_hz = 1000000000,
                                .session = {1, 2},
                                .clock = {(uint64_t)rank, 0},
                                .rank = rank,
                                .size = 2,
                                .has_tsc = 1,
                                .types_at = (uint32_t)layout.types_at,
                                .types_max = TRACE_TYPES,
                                .places_at = (uint32_t)layout.places_at,
                                .places_max = TRACE_PLACES,
                                .snapshots_at = (uint32_t)layout.snapshots_at,
                                .snapshots_max = TRACE_SNAPSHOTS,
                                .offsets_at = (uint32_t)layout.offsets_at,
                                .offsets_max = TRACE_OFFSETS};
    struct poise_trace_type *types = trace_table(head, head->types_at);
    for (uint32_t id = 1; id < POISE_TRACE_KINDS; id++) {
        types[id] = trace_types[id];
        types[id].id = id;
    }
    struct poise_trace_ring *ring =
        (struct poise_trace_ring *)(void *)(map + layout.head_bytes);
    ring->mask = RING_CAPACITY - 1;
    ring->reserved = RING_CAPACITY;
    struct poise_trace_event *events = (struct poise_trace_event *)(ring + 1);
    for (uint32_t i = 0; i < RING_CAPACITY; i++) {
        events[i].collector =
            (i + (uint32_t)rank) % 2 ? POISE_TRACE_SEND : POISE_TRACE_RECEIVE;
        events[i].stamp = i + 1;
        events[i].sequence = i / 2;
        events[i].values[0] = i * 1000;
        events[i].values[1] = (uint64_t)(1 - rank);
    }
    for (; len >= 11; data += 11, len -= 11) {
        /* Half of them into the ring, where most is to be misread. */
        size_t at = data[0] | (size_t)data[1] << 8;
        at = data[2] & 1 ? layout.head_bytes + at % 600
                         : (at | (size_t)(data[2] >> 1) << 16) % (bytes - 8);
        memcpy(map + at, data + 3, 8);
    }
    munmap(map, bytes);
    snprintf(path, path_bytes, "/proc/self/fd/%d", fd);
    return fd;
}

static void ask(struct poise_trace_view *view)
{
    struct poise_trace_type type;
    struct poise_trace_place place;
    for (unsigned i = 0; i < poise_trace_rings(view); i++) {
        struct poise_trace_cursor cursor;
        struct poise_trace_event events[3];
        struct poise_trace_ring_info info;
        check(poise_trace_ring_info(view, i, &info) == 0);
        check(memchr(info.name, '\0', sizeof info.name) != NULL);
        check(poise_trace_cursor(view, i, &cursor) == 0);
        cursor.final = true;
        while (poise_trace_read(&cursor, 3, events) > 0) {
            poise_trace_type(view, events[0].collector, &type);
            poise_trace_place(view, events[0].collector, &place);
        }
        check(cursor.next == cursor.read + cursor.lost + cursor.unfinished);
        check(cursor.next == info.written);
        check(cursor.read <= RING_CAPACITY);
    }
    for (uint32_t id = 0; id < 1300; id++) {
        if (poise_trace_type(view, id, &type)) {
            check(memchr(type.name, '\0', sizeof type.name) != NULL);
        }
    }
}

static void go_through(struct poise_trace_session *session)
{
    struct poise_trace_moment moment;
    int64_t before = INT64_MIN;
    uint64_t count = 0, records = 0;
    for (unsigned i = 0; i < poise_trace_session_files(session); i++) {
        struct poise_trace_file file;
        check(poise_trace_session_file(session, i, &file) == 0);
        records += file.records;
        ask(file.view);
    }
    while (poise_trace_session_next(session, &moment) > 0) {
        check(moment.ns >= before);
        before = moment.ns;
        count++;
    }
    check(count == records);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char paths[2][64];
    const char *names[2] = {paths[0], paths[1]};
    struct poise_trace_session *session = NULL;
    if (len < 1) {
        return 0;
    }
    size_t cut = data[0] % len;
    int fds[2] = {
        make(data + 1, cut, 0, paths[0], sizeof paths[0]),
        make(data + 1 + cut, len - 1 - cut, 1, paths[1], sizeof paths[1])};
    if (poise_trace_session_open(names, 2, &session) == 0) {
        go_through(session);
        poise_trace_session_close(session);
    }
    close(fds[0]);
    /* The bytes themselves, too. */
    fds[0] = memfd_create("fuzz", MFD_CLOEXEC);
    check(fds[0] >= 0 && write(fds[0], data, len) == (ssize_t)len);
    struct poise_trace_view *view = NULL;
    snprintf(paths[0], sizeof paths[0], "/proc/self/fd/%d", fds[0]);
    if (poise_trace_open(paths[0], &view) == 0) {
        poise_trace_close(view);
    }
    close(fds[0]);
    close(fds[1]);
    return 0;
}
