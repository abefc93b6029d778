/*
 * Room trace: rings are claimed, filled and read; readers in this thread,
 * beside a running writer, in another process, and of damaged files. Threads,
 * signal handlers and forks: threads.c; several files: session.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <poise/trace.h>

#include "../temporary.h"
#include "trace/internal.h"

static char scratch[TEMPORARY_BYTES];

/* A path in the scratch folder; valid until the next call. */
static const char *path_of(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

static struct poise_trace *make(const char *path, unsigned rings,
                                unsigned capacity)
{
    struct poise_trace *trace = NULL;
    struct poise_trace_options options = {.rings_max = rings,
                                          .capacity = capacity};
    assert_int_equal(poise_trace_create(path, &options, &trace), 0);
    assert_non_null(trace);
    return trace;
}

static struct poise_trace_view *view_of(struct poise_trace *trace)
{
    struct poise_trace_view *view = NULL;
    assert_int_equal(poise_trace_view_of(trace, &view), 0);
    return view;
}

static struct poise_trace_view *look(const char *path)
{
    struct poise_trace_view *view = NULL;
    assert_int_equal(poise_trace_open(path, &view), 0);
    return view;
}

static struct poise_trace_cursor cursor_of(struct poise_trace_view *view,
                                           unsigned ring)
{
    struct poise_trace_cursor cursor;
    assert_int_equal(poise_trace_cursor(view, ring, &cursor), 0);
    return cursor;
}

/* A claim is recorded itself; record n of a ring, counted from 1 therefore, is
 * emitted so by every test here: all fields follow from n. */
static void emit_nth(struct poise_trace_ring *ring, uint64_t n)
{
    poise_trace_put(ring, POISE_TRACE_USER + (uint32_t)(n % 7), n,
                    poise_clock_ticks(), n * 3, ~n, n << 8);
}

static void expect_nth(const struct poise_trace_event *event, uint64_t n)
{
    assert_int_equal(event->stamp, (uint32_t)n + 1);
    if (n == 0) {
        assert_int_equal(event->collector, POISE_TRACE_THREAD);
        return;
    }
    assert_int_equal(event->collector, POISE_TRACE_USER + n % 7);
    assert_int_equal(event->sequence, n);
    assert_int_equal(event->values[1], n * 3);
    assert_int_equal(event->values[2], ~n);
    assert_int_equal(event->values[3], n << 8);
}

static void test_emit_and_read(void **state)
{
    (void)state;
    struct poise_trace *trace = make(NULL, 3, 100); /* 128 */
    struct poise_trace_view *view = view_of(trace);
    struct poise_trace_info info;
    assert_int_equal(poise_trace_rings(view), 0);
    poise_trace_info(view, &info);
    assert_int_equal(info.tick_hz, poise_clock_tick_hz());
    assert_int_equal(info.capacity, 128);

    struct poise_trace_ring *ring = poise_trace_claim(trace, "worker 0");
    assert_non_null(ring);
    assert_int_equal(poise_trace_rings(view), 1);
    uint64_t before = poise_clock_ticks();
    for (uint64_t n = 1; n < 128; n++) {
        emit_nth(ring, n);
    }
    uint64_t after = poise_clock_ticks();

    struct poise_trace_event events[200];
    struct poise_trace_cursor cursor = cursor_of(view, 0);
    assert_int_equal(poise_trace_read(&cursor, 0, events), 0);
    assert_int_equal(poise_trace_read(&cursor, 5, events), 5);
    assert_int_equal(cursor.next, 5);
    assert_int_equal(poise_trace_read(&cursor, 200, events + 5), 123);
    assert_int_equal(cursor.next, 128);
    for (uint64_t n = 0; n < 128; n++) {
        expect_nth(&events[n], n);
        assert_true(n == 0 || (events[n].values[0] >= before &&
                               events[n].values[0] <= after));
    }
    /* Nothing new, then something, also from a later place. */
    assert_int_equal(poise_trace_read(&cursor, 5, events), 0);
    emit_nth(ring, 128);
    emit_nth(ring, 129);
    cursor.next++;
    assert_int_equal(poise_trace_read(&cursor, 5, events), 1);
    expect_nth(&events[0], 129);
    assert_int_equal(cursor.lost, 0);
    poise_trace_close(view);
    poise_trace_destroy(trace);
}

static void test_overwritten(void **state)
{
    (void)state;
    struct poise_trace *trace = make(NULL, 1, 8);
    struct poise_trace_ring *ring = poise_trace_claim(trace, "w");
    struct poise_trace_view *view = view_of(trace);
    struct poise_trace_ring_info info;
    struct poise_trace_event events[16];
    for (uint64_t n = 1; n < 50; n++) {
        uint64_t lost = n <= 8 ? 0 : n - 8;
        struct poise_trace_cursor cursor = cursor_of(view, 0);
        assert_int_equal(poise_trace_ring_info(view, 0, &info), 0);
        assert_int_equal(info.written, n);
        assert_int_equal(info.overwritten, lost);
        size_t got = poise_trace_read(&cursor, 16, events);
        assert_int_equal(got, n - lost);
        assert_int_equal(cursor.next, n);
        assert_int_equal(cursor.lost, lost);
        assert_int_equal(cursor.read, got);
        for (size_t i = 0; i < got; i++) {
            expect_nth(&events[i], lost + i);
        }
        emit_nth(ring, n);
    }
    poise_trace_close(view);
    poise_trace_destroy(trace);
}

static void test_claim(void **state)
{
    (void)state;
    struct poise_trace *trace = make(NULL, 2, 1);
    struct poise_trace_ring *first = poise_trace_claim(trace, NULL);
    struct poise_trace_ring *second = poise_trace_claim(
        trace, "a name that is longer than the thirty-one bytes kept");
    struct poise_trace_view *view = view_of(trace);
    struct poise_trace_info about;
    assert_non_null(first);
    assert_non_null(second);
    assert_ptr_not_equal(first, second);
    for (uint64_t i = 1; i <= 3; i++) {
        poise_error_clear();
        assert_null(poise_trace_claim(trace, "third"));
        assert_int_equal(poise_error_last()->code, EAGAIN);
        assert_string_equal(poise_error_last()->what, "third");
        poise_trace_info(view, &about);
        assert_int_equal(about.refused, i);
    }
    assert_int_equal(poise_trace_rings(view), 2);
    struct poise_trace_ring_info info;
    char own[16];
    prctl(PR_GET_NAME, own);
    assert_int_equal(poise_trace_ring_info(view, 0, &info), 0);
    assert_string_equal(info.name, own);
    assert_int_equal(info.tid, gettid());
    assert_true(info.owned);
    assert_int_equal(poise_trace_ring_info(view, 1, &info), 0);
    assert_string_equal(info.name, "a name that is longer than the ");
    assert_int_equal(poise_trace_ring_info(view, 2, &info), -EINVAL);
    struct poise_trace_cursor cursor;
    assert_int_equal(poise_trace_cursor(view, 2, &cursor), -EINVAL);
    /* One that was given back is the next one's, who goes on behind. */
    emit_nth(second, 1);
    poise_trace_return(second);
    assert_int_equal(poise_trace_ring_info(view, 1, &info), 0);
    assert_false(info.owned);
    assert_ptr_equal(poise_trace_claim(trace, "next"), second);
    assert_int_equal(poise_trace_ring_info(view, 1, &info), 0);
    assert_string_equal(info.name, "next");
    assert_int_equal(info.owners, 2);
    assert_int_equal(info.written, 3);
    struct poise_trace_event events[2];
    cursor = cursor_of(view, 1);
    assert_int_equal(poise_trace_read(&cursor, 2, events), 2);
    expect_nth(&events[0], 1);
    assert_int_equal(events[1].collector, POISE_TRACE_THREAD);
    assert_int_equal(events[1].sequence, gettid());
    assert_int_equal(events[1].values[1], poise_trace_text("next"));
    poise_trace_close(view);
    poise_trace_destroy(trace);
}

static void test_no_size(void **state)
{
    (void)state;
    struct poise_trace *trace = NULL;
    struct poise_trace_options options = {.capacity = UINT_MAX};
    assert_int_equal(poise_trace_create(NULL, &options, &trace), -EINVAL);
    options = (struct poise_trace_options){.capacity = 1u << 31,
                                           .rings_max = UINT_MAX};
    assert_int_equal(poise_trace_create(NULL, &options, &trace), -EINVAL);
    assert_null(trace);
    poise_trace_destroy(NULL);
    poise_trace_close(NULL);
}

static void test_file_exists(void **state)
{
    (void)state;
    const char *path = path_of("exists");
    poise_trace_destroy(make(path, 1, 8));
    struct poise_trace *trace = NULL;
    assert_int_equal(poise_trace_create(path, NULL, &trace), -EEXIST);
    assert_null(trace);
    /* The one that was there is untouched. */
    poise_trace_close(look(path));
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(unlink(path), 0);
}

/* ---- what records mean -------------------------------------------------- */

static void test_types(void **state)
{
    (void)state;
    const char *path = path_of("types");
    struct poise_trace *trace = make(path, 1, 8);
    struct poise_trace_type type = {
        .name = "a name of more than 23 b",
        .sequence = "step",
        .values = {{POISE_TRACE_TIME, "begin"},
                   {POISE_TRACE_NS, "rest"},
                   {POISE_TRACE_BYTES, "a name of +"}},
    };
    type.values[2].name[11] = 'x'; /* no end: cut */
    int64_t id = poise_trace_define(trace, &type);
    assert_int_equal(id, POISE_TRACE_USER);
    assert_int_equal(poise_trace_define(trace, &type), id);
    type.sequence[0] = 'S';
    assert_int_equal(poise_trace_define(trace, &type), id + 1);
    type.values[0].unit = POISE_TRACE_COUNT;
    assert_int_equal(poise_trace_define(trace, &type), -EINVAL);
    type.values[0].unit = POISE_TRACE_TIME;
    type.values[3].unit = POISE_TRACE_UNITS;
    assert_int_equal(poise_trace_define(trace, &type), -EINVAL);
    type.values[3].unit = POISE_TRACE_UNUSED;
    for (int i = 2; i < 192; i++) {
        snprintf(type.name, sizeof type.name, "type %d", i);
        assert_int_equal(poise_trace_define(trace, &type),
                         POISE_TRACE_USER + i);
    }
    snprintf(type.name, sizeof type.name, "one too many");
    assert_int_equal(poise_trace_define(trace, &type), -ENOSPC);
    poise_trace_destroy(trace);

    /* All of it stands in the file. */
    struct poise_trace_view *view = look(path);
    assert_true(poise_trace_type(view, (uint32_t)id, &type));
    assert_string_equal(type.name, "a name of more than 23 ");
    assert_string_equal(type.sequence, "step");
    assert_string_equal(type.values[2].name, "a name of +");
    assert_int_equal(type.values[2].unit, POISE_TRACE_BYTES);
    for (uint32_t kind = 1; kind < POISE_TRACE_KINDS; kind++) {
        assert_true(poise_trace_type(view, kind, &type));
        assert_int_equal(type.values[0].unit, POISE_TRACE_TIME);
        assert_true(type.name[0]);
    }
    assert_false(poise_trace_type(view, 0, &type));
    assert_false(poise_trace_type(view, POISE_TRACE_KINDS, &type));
    assert_false(poise_trace_type(view, POISE_TRACE_USER + 192, &type));
    assert_false(poise_trace_type(view, UINT32_MAX, &type));
    poise_trace_close(view);
    assert_int_equal(unlink(path), 0);
}

static void test_collectors(void **state)
{
    (void)state;
    struct poise_trace *trace = make(NULL, 1, 8);
    struct poise_trace_view *view = view_of(trace);
    struct poise_trace_place place = {.type = POISE_TRACE_HOP,
                                      .parent = 77,
                                      .rank = 3,
                                      .peer = -1,
                                      .level = 2,
                                      .group = 99,
                                      .name = "up",
                                      .group_name = "tree"};
    uint32_t first = poise_trace_collector(trace, &place);
    struct poise_trace_place seen;
    struct poise_trace_type type;
    assert_true(first >= POISE_TRACE_COLLECTOR);
    assert_true(poise_trace_place(view, first, &seen));
    place.id = first;
    assert_memory_equal(&seen, &place, sizeof seen);
    assert_true(poise_trace_type(view, first, &type));
    assert_string_equal(type.name, "hop");
    /* As many as there is room for, then types alone; then again. */
    for (int i = 1; i < TRACE_PLACES; i++) {
        assert_true(poise_trace_collector(trace, &place) > first);
    }
    assert_int_equal(poise_trace_collector(trace, &place), POISE_TRACE_HOP);
    struct poise_trace_info info;
    poise_trace_info(view, &info);
    assert_int_equal(info.unplaced, 1);
    poise_trace_collector_end(trace, first);
    assert_true(poise_trace_place(view, first, &seen));
    uint32_t again = poise_trace_collector(trace, &place);
    assert_true(again >= POISE_TRACE_COLLECTOR && again != first);
    assert_false(poise_trace_place(view, first, &seen));
    poise_trace_collector_end(trace, first); /* not its own any more */
    assert_int_equal(poise_trace_collector(trace, &place), POISE_TRACE_HOP);
    /* Without a trace it is the type. */
    assert_int_equal(poise_trace_collector(NULL, &place), POISE_TRACE_HOP);
    poise_trace_collector_end(NULL, first);
    assert_true(poise_trace_place(view, POISE_TRACE_HOP, &seen));
    assert_string_equal(seen.name, "hop");
    poise_trace_close(view);
    poise_trace_destroy(trace);
}

/* ---- beside a running writer -------------------------------------------- */

struct race {
    struct poise_trace_ring *ring;
    uint64_t events;
};

static void *race_write(void *arg)
{
    struct race *race = arg;
    for (uint64_t n = 1; n < race->events; n++) {
        emit_nth(race->ring, n);
    }
    return NULL;
}

/* What comes is whole, in order, and accounts for everything that does not. */
static void test_read_while_written(void **state)
{
    (void)state;
    struct poise_trace *trace = make(NULL, 1, 16);
    struct race race = {poise_trace_claim(trace, "w"), 300000};
    struct poise_trace_view *view = view_of(trace);
    struct poise_trace_cursor cursor = cursor_of(view, 0);
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, race_write, &race), 0);
    while (cursor.next < race.events) {
        struct poise_trace_event events[16];
        uint64_t from = cursor.next;
        size_t got = poise_trace_read(&cursor, 16, events);
        assert_true(cursor.next >= from + got);
        assert_int_equal(cursor.next, cursor.read + cursor.lost);
        for (size_t i = 0; i < got; i++) {
            expect_nth(&events[i], cursor.next - (uint64_t)(got - i));
        }
    }
    pthread_join(writer, NULL);
    assert_int_equal(cursor.next, race.events);
    assert_true(cursor.read >= 16);
    assert_int_equal(cursor.unfinished, 0);
    poise_trace_close(view);
    poise_trace_destroy(trace);
}

/* A reader that sees its slot taken again must drop what it copied: play the
 * writer's part at the worst moment by hand. */
static void test_torn_record_is_dropped(void **state)
{
    (void)state;
    struct poise_trace *trace = make(NULL, 1, 4);
    struct poise_trace_ring *ring = poise_trace_claim(trace, "w");
    for (uint64_t n = 1; n < 4; n++) {
        emit_nth(ring, n);
    }
    /* The writer has begun record 4, in 0's slot. */
    struct poise_trace_event *slots = (struct poise_trace_event *)(ring + 1);
    assert_int_equal(poise_trace_reserve(ring), 4);
    slots[0].values[1] = 4;
    struct poise_trace_view *view = view_of(trace);
    struct poise_trace_cursor cursor = cursor_of(view, 0);
    struct poise_trace_event events[4];
    assert_int_equal(poise_trace_read(&cursor, 4, events), 3);
    assert_int_equal(cursor.lost, 1);
    for (uint64_t i = 0; i < 3; i++) {
        expect_nth(&events[i], i + 1);
    }
    /* Unfinished: read no further, unless nobody is there to finish it. */
    emit_nth(ring, 5);
    assert_int_equal(poise_trace_read(&cursor, 4, events), 0);
    assert_int_equal(cursor.next, 4);
    cursor.final = true;
    assert_int_equal(poise_trace_read(&cursor, 4, events), 1);
    expect_nth(&events[0], 5);
    assert_int_equal(cursor.unfinished, 1);
    assert_int_equal(cursor.next,
                     cursor.read + cursor.lost + cursor.unfinished);
    poise_trace_close(view);
    poise_trace_destroy(trace);
}

/* ---- of another process, and after its death ---------------------------- */

static void test_killed_writer(void **state)
{
    (void)state;
    const char *path = path_of("killed");
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct poise_trace *trace = NULL;
        struct poise_trace_options options = {.capacity = 64};
        if (poise_trace_create(path, &options, &trace)) {
            _exit(1);
        }
        struct poise_trace_ring *ring = poise_trace_claim(trace, "doomed");
        for (uint64_t n = 1;; n++) {
            emit_nth(ring, n);
            if (n == 1000 && write(ready[1], "x", 1) != 1) {
                _exit(1);
            }
        }
    }
    close(ready[1]);
    char x;
    assert_int_equal(read(ready[0], &x, 1), 1);
    close(ready[0]);
    struct poise_trace_view *living = look(path);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    struct poise_trace_view *views[] = {look(path), living};
    for (int i = 0; i < 2; i++) {
        struct poise_trace_info about;
        poise_trace_info(views[i], &about);
        assert_false(about.ended);
        assert_int_equal(about.pid, child);
        assert_int_equal(poise_trace_rings(views[i]), 1);
        struct poise_trace_ring_info info;
        assert_int_equal(poise_trace_ring_info(views[i], 0, &info), 0);
        assert_string_equal(info.name, "doomed");
        assert_int_equal(info.tid, child);
        assert_true(info.written > 1000);
        struct poise_trace_event events[64];
        struct poise_trace_cursor cursor = cursor_of(views[i], 0);
        cursor.final = true;
        size_t got = poise_trace_read(&cursor, 64, events);
        assert_true(got == 64 || got == 63);
        for (size_t k = 0; k < got; k++) {
            expect_nth(&events[k], info.written - 64 + k);
        }
        assert_int_equal(poise_trace_read(&cursor, 64, events), 0);
        assert_int_equal(cursor.next, info.written);
        assert_int_equal(got + cursor.unfinished, 64);
        assert_int_equal(cursor.lost, info.written - 64);
        poise_trace_close(views[i]);
    }
    assert_int_equal(unlink(path), 0);
}

/* Rings that were added when the file was open already. */
static void test_growing_file(void **state)
{
    (void)state;
    const char *path = path_of("growing");
    struct poise_trace *trace = make(path, 40, 4);
    struct poise_trace_view *view = look(path);
    assert_int_equal(poise_trace_rings(view), 0);
    for (unsigned i = 0; i < 40; i++) {
        struct poise_trace_ring *ring = poise_trace_claim(trace, "w");
        emit_nth(ring, 1);
        assert_int_equal(poise_trace_rings(view), i + 1);
        for (unsigned k = 0; k <= i; k += 13) {
            struct poise_trace_cursor cursor = cursor_of(view, k);
            struct poise_trace_event events[4];
            assert_int_equal(poise_trace_read(&cursor, 4, events), 2);
            expect_nth(&events[1], 1);
        }
    }
    poise_trace_close(view);
    poise_trace_destroy(trace);
    assert_int_equal(unlink(path), 0);
}

/* ---- bad files ---------------------------------------------------------- */

static void expect_refused(const char *path, int code)
{
    struct poise_trace_view *view = NULL;
    assert_int_equal(poise_trace_open(path, &view), code);
    assert_null(view);
    assert_int_equal(poise_error_last()->code, -code);
    assert_string_equal(poise_error_last()->what, path);
}

static void test_cut_short(void **state)
{
    (void)state;
    const char *path = path_of("short");
    struct poise_trace *trace = make(path, 2, 4);
    poise_trace_claim(trace, "w");
    poise_trace_destroy(trace);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    poise_trace_close(look(path));
    const off_t lengths[] = {status.st_size - 1,
                             status.st_size - (off_t)TRACE_ALIGN,
                             status.st_size - (off_t)TRACE_ALIGN - 1,
                             4096,
                             511,
                             8,
                             7,
                             1,
                             0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_int_equal(truncate(path, lengths[i]), 0);
        expect_refused(path, -EBADMSG);
    }
    assert_int_equal(unlink(path), 0);
}

/* Flip every byte of the head that says where something is. */
static void test_damaged_head(void **state)
{
    (void)state;
    const char *path = path_of("damaged");
    poise_trace_destroy(make(path, 1, 4));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (off_t at = 0; at < (off_t)offsetof(struct trace_head, snapshots);
         at++) {
        if ((at >= (off_t)offsetof(struct trace_head, rings_max) &&
             at < (off_t)offsetof(struct trace_head, capacity)) ||
            (at >= (off_t)offsetof(struct trace_head, tick_hz) &&
             at < (off_t)offsetof(struct trace_head, has_tsc))) {
            continue; /* any number will do, or nearly any */
        }
        unsigned char byte;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x82;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        bool is_identity = at < (off_t)offsetof(struct trace_head, head_bytes);
        expect_refused(path, is_identity ? -EPROTO : -EBADMSG);
        byte ^= 0x82;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    poise_trace_close(look(path));
    close(fd);
    assert_int_equal(unlink(path), 0);
}

/* A file of the first version: named, not guessed at. */
static void test_old_version(void **state)
{
    (void)state;
    const char *path = path_of("old");
    const struct {
        uint64_t magic;
        uint32_t version, head_bytes, event_bytes, ring_head_bytes;
    } head = {TRACE_MAGIC, 1, 4096, 32, 64};
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(pwrite(fd, &head, sizeof head, 0), sizeof head);
    assert_int_equal(ftruncate(fd, 8192), 0);
    close(fd);
    expect_refused(path, -EPROTO);
    assert_non_null(strstr(poise_error_last()->why, "version 1"));
    assert_int_equal(unlink(path), 0);
}

static void test_not_a_trace(void **state)
{
    (void)state;
    expect_refused(path_of("absent"), -ENOENT);
    expect_refused(scratch, -EPROTO);
    const char *path = path_of("fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(path, -EPROTO);
    assert_int_equal(unlink(path), 0);
    path = path_of("text");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("just some text that is no trace\n", file);
    fclose(file);
    expect_refused(path, -EPROTO);
    assert_int_equal(unlink(path), 0);
}

/* ---- faults ------------------------------------------------------------- */

static void test_faults(void **state)
{
    (void)state;
    const char *path = path_of("faulty");
    const struct {
        enum poise_fault kind;
        int code;
    } faults[] = {{POISE_FAULT_ALLOC, ENOMEM},
                  {POISE_FAULT_OPEN, EACCES},
                  {POISE_FAULT_WRITE, ENOSPC}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct poise_trace *trace = NULL;
        poise_fault_arm(faults[i].kind, 1, faults[i].code, false);
        assert_int_equal(poise_trace_create(path, NULL, &trace),
                         -faults[i].code);
        poise_fault_arm(faults[i].kind, 0, 0, false);
        assert_null(trace);
        assert_int_equal(poise_error_last()->code, faults[i].code);
        assert_int_equal(access(path, F_OK), -1);
    }
    struct poise_trace *trace = make(path, 2, 8);
    struct poise_trace_view *view = NULL;
    for (size_t i = 0; i < 2; i++) {
        poise_fault_arm(faults[i].kind, 1, faults[i].code, false);
        assert_int_equal(poise_trace_open(path, &view), -faults[i].code);
        poise_fault_arm(faults[i].kind, 0, 0, false);
        assert_null(view);
    }
    poise_fault_arm(POISE_FAULT_ALLOC, 1, ENOMEM, false);
    assert_int_equal(poise_trace_view_of(trace, &view), -ENOMEM);
    poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
    assert_null(view);
    poise_trace_destroy(trace);
    assert_int_equal(unlink(path), 0);
}

/* The disk is full when a thread comes: it is told and counted, the file is
 * whole, and later ones get rings when there is space again. */
static void test_full_disk(void **state)
{
    (void)state;
    const char *path = path_of("full");
    struct poise_trace *trace = make(path, 8, 8);
    assert_non_null(poise_trace_claim(trace, "first"));
    poise_fault_arm(POISE_FAULT_WRITE, 1, ENOSPC, true);
    assert_null(poise_trace_claim(trace, "second"));
    poise_fault_arm(POISE_FAULT_WRITE, 0, 0, false);
    assert_int_equal(poise_error_last()->code, ENOSPC);
    assert_string_equal(poise_error_last()->what, "second");
    struct poise_trace_ring *third = poise_trace_claim(trace, "third");
    assert_non_null(third);
    emit_nth(third, 1);
    struct poise_trace_view *view = look(path);
    struct poise_trace_info info;
    struct poise_trace_ring_info ring;
    poise_trace_info(view, &info);
    assert_int_equal(info.refused, 1);
    assert_int_equal(poise_trace_rings(view), 3);
    assert_int_equal(poise_trace_ring_info(view, 1, &ring), 0);
    assert_int_equal(ring.written, 0);
    assert_int_equal(poise_trace_ring_info(view, 2, &ring), 0);
    assert_string_equal(ring.name, "third");
    poise_trace_close(view);
    poise_trace_destroy(trace);
    assert_int_equal(unlink(path), 0);
}

/* A program that closes all descriptors: what comes to stand at the trace's
 * number is not touched. */
static void test_closed_descriptor(void **state)
{
    (void)state;
    const char *path = path_of("closed");
    struct poise_trace *trace = make(path, 8, 8);
    struct stat before, after;
    int other = memfd_create("other", MFD_CLOEXEC);
    assert_int_equal(dup2(other, trace->fd), trace->fd);
    assert_int_equal(fstat(other, &before), 0);
    assert_null(poise_trace_claim(trace, "w"));
    assert_int_equal(poise_error_last()->code, EBADF);
    int fd = trace->fd;
    poise_trace_destroy(trace);
    assert_int_equal(fstat(fd, &after), 0); /* not closed */
    assert_int_equal(before.st_size, after.st_size);
    close(fd);
    close(other);
    assert_int_equal(unlink(path), 0);
}

static int make_scratch(void **state)
{
    (void)state;
    return mkdtemp(temporary_name(scratch, "trace")) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return rmdir(scratch);
}

/* Others stop a trace and let it go on; it is as it was for whoever reads. */
static void test_pause(void **state)
{
    (void)state;
    char path[TEMPORARY_BYTES];
    int fd = mkstemp(temporary_name(path, "pause"));
    struct poise_trace *trace;
    struct poise_trace_info info;
    struct poise_trace_view *view;
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    assert_int_equal(
        poise_trace_create(path, &(struct poise_trace_options){.paused = true},
                           &trace),
        0);
    struct poise_trace *before = poise_trace_use(trace);
    assert_null(poise_trace_ring());
    poise_trace_event(POISE_TRACE_TOKEN, 1, 0, 0, 0);
    assert_int_equal(poise_trace_pause(path, false), 1);
    assert_int_equal(poise_trace_pause(path, false), 0);
    assert_non_null(poise_trace_ring());
    poise_trace_event(POISE_TRACE_TOKEN, 2, 0, 0, 0);
    assert_int_equal(poise_trace_pause(path, true), 0);
    poise_trace_event(POISE_TRACE_TOKEN, 3, 0, 0, 0);
    assert_int_equal(poise_trace_open(path, &view), 0);
    poise_trace_info(view, &info);
    assert_true(info.paused && !info.ended);
    /* The ring's owner, and the one record. */
    struct poise_trace_ring_info ring;
    assert_int_equal(poise_trace_rings(view), 1);
    assert_int_equal(poise_trace_ring_info(view, 0, &ring), 0);
    assert_int_equal(ring.written, 2);
    poise_trace_close(view);
    poise_trace_use(before);
    poise_trace_destroy(trace);
    assert_int_equal(poise_trace_pause(path, false), -ESRCH);
    unlink(path);
    assert_int_equal(poise_trace_pause(path, false), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_emit_and_read),
        cmocka_unit_test(test_overwritten),
        cmocka_unit_test(test_claim),
        cmocka_unit_test(test_no_size),
        cmocka_unit_test(test_file_exists),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_collectors),
        cmocka_unit_test(test_read_while_written),
        cmocka_unit_test(test_torn_record_is_dropped),
        cmocka_unit_test(test_killed_writer),
        cmocka_unit_test(test_growing_file),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_damaged_head),
        cmocka_unit_test(test_old_version),
        cmocka_unit_test(test_not_a_trace),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_closed_descriptor),
        cmocka_unit_test(test_pause),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
