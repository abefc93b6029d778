/*
 * Room trace: rings are claimed, filled and read; readers in this thread,
 * beside a running writer, in another process, and of damaged files.
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
                                size_t capacity)
{
    struct poise_trace *trace = NULL;
    assert_int_equal(poise_trace_create(path, rings, capacity, &trace), 0);
    assert_non_null(trace);
    return trace;
}

static struct poise_trace_view *look(const char *path)
{
    struct poise_trace_view *view = NULL;
    assert_int_equal(poise_trace_open(path, &view), 0);
    return view;
}

/* Event n as every test here emits it: all fields follow from n. */
static void emit_nth(struct poise_trace_ring *ring, uint64_t n)
{
    poise_trace_emit(ring, POISE_TRACE_USER + (uint32_t)(n % 7), (uint32_t)n, n,
                     ~n);
}

static void expect_nth(const struct poise_trace_event *event, uint64_t n)
{
    assert_int_equal(event->kind, POISE_TRACE_USER + n % 7);
    assert_int_equal(event->extra, (uint32_t)n);
    assert_int_equal(event->a, n);
    assert_int_equal(event->b, ~n);
}

static void test_emit_and_read(void **state)
{
    (void)state;
    struct poise_trace *trace = make(NULL, 3, 100); /* 128 */
    struct poise_trace_view *view = NULL;
    assert_int_equal(poise_trace_view_of(trace, &view), 0);
    assert_int_equal(poise_trace_rings(view), 0);
    assert_int_equal(poise_trace_tick_hz(view), poise_clock_tick_hz());

    struct poise_trace_ring *ring = poise_trace_claim(trace, "worker 0");
    assert_non_null(ring);
    assert_int_equal(poise_trace_rings(view), 1);
    uint64_t before = poise_clock_ticks();
    for (uint64_t n = 0; n < 127; n++) {
        emit_nth(ring, n);
    }
    uint64_t after = poise_clock_ticks();

    struct poise_trace_event events[200];
    uint64_t next = 0;
    assert_int_equal(poise_trace_read(view, 0, 0, 200, events, &next), 127);
    assert_int_equal(next, 127);
    for (uint64_t n = 0; n < 127; n++) {
        expect_nth(&events[n], n);
        assert_true(events[n].ticks >= before && events[n].ticks <= after);
    }
    /* In pieces, and from the end. */
    assert_int_equal(poise_trace_read(view, 0, 120, 5, events, &next), 5);
    expect_nth(&events[0], 120);
    assert_int_equal(next, 125);
    assert_int_equal(poise_trace_read(view, 0, next, 5, events, &next), 2);
    assert_int_equal(poise_trace_read(view, 0, next, 5, events, &next), 0);
    assert_int_equal(next, 127);
    assert_int_equal(poise_trace_read(view, 0, 1000, 5, events, &next), 0);
    assert_int_equal(next, 1000);
    assert_int_equal(poise_trace_read(view, 0, 3, 0, events, &next), 0);
    assert_int_equal(next, 3);
    poise_trace_close(view);
    poise_trace_destroy(trace);
}

static void test_overwritten(void **state)
{
    (void)state;
    struct poise_trace *trace = make(NULL, 1, 8);
    struct poise_trace_ring *ring = poise_trace_claim(trace, "w");
    struct poise_trace_view *view = NULL;
    assert_int_equal(poise_trace_view_of(trace, &view), 0);
    struct poise_trace_ring_info info;
    struct poise_trace_event events[16];
    uint64_t next = 0;
    for (uint64_t n = 0; n < 50; n++) {
        uint64_t lost = n < 8 ? 0 : n - 7;
        assert_int_equal(poise_trace_ring_info(view, 0, &info), 0);
        assert_int_equal(info.written, n);
        assert_int_equal(info.overwritten, lost);
        ssize_t got = poise_trace_read(view, 0, 0, 16, events, &next);
        assert_int_equal(got, n - lost);
        assert_int_equal(next, n);
        for (ssize_t i = 0; i < got; i++) {
            expect_nth(&events[i], lost + (uint64_t)i);
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
    assert_non_null(first);
    assert_non_null(second);
    assert_ptr_not_equal(first, second);
    for (int i = 0; i < 3; i++) {
        poise_error_clear();
        assert_null(poise_trace_claim(trace, "third"));
        assert_int_equal(poise_error_last()->code, ENOSPC);
        assert_string_equal(poise_error_last()->what, "third");
    }
    struct poise_trace_view *view = NULL;
    assert_int_equal(poise_trace_view_of(trace, &view), 0);
    assert_int_equal(poise_trace_rings(view), 2);
    struct poise_trace_ring_info info;
    assert_int_equal(poise_trace_ring_info(view, 0, &info), 0);
    assert_string_equal(info.name, "");
    assert_int_equal(info.pid, getpid());
    assert_int_equal(info.tid, gettid());
    assert_int_equal(poise_trace_ring_info(view, 1, &info), 0);
    assert_string_equal(info.name, "a name that is longer than the ");
    assert_int_equal(poise_trace_ring_info(view, 2, &info), -EINVAL);
    uint64_t next;
    assert_int_equal(poise_trace_read(view, 2, 0, 0, NULL, &next), -EINVAL);
    poise_trace_close(view);
    poise_trace_destroy(trace);
}

static void test_context(void **state)
{
    (void)state;
    struct poise_trace *trace = make(NULL, 1, 4);
    struct poise_trace_ring *ring = poise_trace_claim(trace, "w");
    assert_null(poise_trace_current());
    poise_trace_use(ring);
    assert_ptr_equal(poise_trace_current(), ring);
    struct poise_ctx *other = poise_ctx_create();
    struct poise_ctx *mine = poise_ctx_swap(other);
    assert_null(poise_trace_current());
    /* No ring: nothing happens. */
    poise_trace_emit(poise_trace_current(), POISE_TRACE_USER, 1, 2, 3);
    poise_ctx_swap(mine);
    assert_ptr_equal(poise_trace_current(), ring);
    assert_int_equal(ring->written, 0);
    poise_trace_use(NULL);
    poise_ctx_destroy(other);
    poise_trace_destroy(trace);
}

static void test_no_size(void **state)
{
    (void)state;
    struct poise_trace *trace = NULL;
    assert_int_equal(poise_trace_create(NULL, 0, 8, &trace), -EINVAL);
    assert_int_equal(poise_trace_create(NULL, 1, SIZE_MAX, &trace), -EINVAL);
    assert_int_equal(poise_trace_create(NULL, UINT_MAX, SIZE_MAX / 64, &trace),
                     -EINVAL);
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
    assert_int_equal(poise_trace_create(path, 1, 8, &trace), -EEXIST);
    assert_null(trace);
    /* The one that was there is untouched. */
    poise_trace_close(look(path));
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(unlink(path), 0);
}

/* ---- beside a running writer -------------------------------------------- */

struct race {
    struct poise_trace_ring *ring;
    uint64_t events;
};

static void *race_write(void *arg)
{
    struct race *race = arg;
    for (uint64_t n = 0; n < race->events; n++) {
        emit_nth(race->ring, n);
    }
    return NULL;
}

static void test_read_while_written(void **state)
{
    (void)state;
    struct poise_trace *trace = make(NULL, 1, 16);
    struct race race = {poise_trace_claim(trace, "w"), 300000};
    struct poise_trace_view *view = NULL;
    assert_int_equal(poise_trace_view_of(trace, &view), 0);
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, race_write, &race), 0);
    uint64_t next = 0;
    uint64_t seen = 0;
    while (next < race.events) {
        struct poise_trace_event events[16];
        uint64_t from = next;
        ssize_t got = poise_trace_read(view, 0, from, 16, events, &next);
        assert_true(got >= 0 && next >= from + (uint64_t)got);
        /* What comes is whole, without a gap, and ends where it says. */
        for (ssize_t i = 0; i < got; i++) {
            expect_nth(&events[i], next - (uint64_t)(got - i));
        }
        seen += (uint64_t)got;
    }
    pthread_join(writer, NULL);
    assert_true(seen >= 15 && seen <= race.events);
    poise_trace_close(view);
    poise_trace_destroy(trace);
}

/* A reader that has seen the count go past it must drop what it copied: play
 * the writer's part at the worst moment by hand. */
static void test_torn_event_is_dropped(void **state)
{
    (void)state;
    struct poise_trace *trace = make(NULL, 1, 4);
    struct poise_trace_ring *ring = poise_trace_claim(trace, "w");
    for (uint64_t n = 0; n < 4; n++) {
        emit_nth(ring, n);
    }
    /* The writer has begun event 4, in event 0's slot, not yet counted. */
    struct poise_trace_event *slots = (struct poise_trace_event *)(ring + 1);
    slots[0].a = 4;
    struct poise_trace_view *view = NULL;
    assert_int_equal(poise_trace_view_of(trace, &view), 0);
    struct poise_trace_event events[4];
    uint64_t next;
    assert_int_equal(poise_trace_read(view, 0, 0, 4, events, &next), 3);
    for (uint64_t i = 0; i < 3; i++) {
        expect_nth(&events[i], i + 1);
    }
    poise_trace_close(view);
    poise_trace_destroy(trace);
}

#define CLAIMERS 4

static void *claim_some(void *arg)
{
    struct poise_trace *trace = arg;
    for (int i = 0; i < 8; i++) {
        struct poise_trace_ring *ring = poise_trace_claim(trace, "racer");
        if (!ring) {
            return NULL;
        }
        emit_nth(ring, 0);
    }
    return NULL;
}

static void test_claim_by_many(void **state)
{
    (void)state;
    struct poise_trace *trace = make(NULL, 8 * CLAIMERS - 5, 2);
    pthread_t threads[CLAIMERS];
    for (int i = 0; i < CLAIMERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, claim_some, trace),
                         0);
    }
    for (int i = 0; i < CLAIMERS; i++) {
        pthread_join(threads[i], NULL);
    }
    struct poise_trace_view *view = NULL;
    assert_int_equal(poise_trace_view_of(trace, &view), 0);
    assert_int_equal(poise_trace_rings(view), 8 * CLAIMERS - 5);
    for (unsigned i = 0; i < 8 * CLAIMERS - 5; i++) {
        struct poise_trace_ring_info info;
        assert_int_equal(poise_trace_ring_info(view, i, &info), 0);
        /* Nobody else got it. */
        assert_int_equal(info.written, 1);
    }
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
        if (poise_trace_create(path, 2, 64, &trace)) {
            _exit(1);
        }
        struct poise_trace_ring *ring = poise_trace_claim(trace, "doomed");
        for (uint64_t n = 0;; n++) {
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

    struct poise_trace_view *dead = look(path);
    assert_int_equal(poise_trace_rings(dead), 1);
    struct poise_trace_ring_info info;
    assert_int_equal(poise_trace_ring_info(dead, 0, &info), 0);
    assert_string_equal(info.name, "doomed");
    assert_int_equal(info.pid, child);
    assert_true(info.written > 1000);
    struct poise_trace_event events[64];
    uint64_t next;
    assert_int_equal(poise_trace_read(dead, 0, 0, 64, events, &next), 63);
    assert_int_equal(next, info.written);
    for (uint64_t i = 0; i < 63; i++) {
        expect_nth(&events[i], next - 63 + i);
    }
    assert_int_equal(poise_trace_read(living, 0, 0, 64, events, &next), 63);
    poise_trace_close(living);
    poise_trace_close(dead);
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
    poise_trace_destroy(make(path, 2, 4));
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, TRACE_HEAD_BYTES + 2 * (64 + 4 * 32));
    poise_trace_close(look(path));
    for (off_t len = status.st_size - 1; len >= 0; len--) {
        assert_int_equal(truncate(path, len), 0);
        expect_refused(path, -EBADMSG);
    }
    assert_int_equal(unlink(path), 0);
}

/* Flip every byte of the head that means something. */
static void test_damaged_head(void **state)
{
    (void)state;
    const char *path = path_of("damaged");
    poise_trace_destroy(make(path, 1, 4));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (off_t at = 0; at < (off_t)offsetof(struct trace_head, tick_hz); at++) {
        if (at >= (off_t)offsetof(struct trace_head, taken) &&
            at < (off_t)offsetof(struct trace_head, capacity)) {
            continue; /* how many rings were given out: any number will do */
        }
        unsigned char byte;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x81;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        bool is_identity = at < (off_t)offsetof(struct trace_head, head_bytes);
        expect_refused(path, is_identity ? -EPROTO : -EBADMSG);
        byte ^= 0x81;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    poise_trace_close(look(path));
    close(fd);
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
        assert_int_equal(poise_trace_create(path, 1, 8, &trace),
                         -faults[i].code);
        poise_fault_arm(faults[i].kind, 0, 0, false);
        assert_null(trace);
        assert_int_equal(poise_error_last()->code, faults[i].code);
        assert_int_equal(access(path, F_OK), -1);
    }
    struct poise_trace *trace = make(path, 1, 8);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_emit_and_read),
        cmocka_unit_test(test_overwritten),
        cmocka_unit_test(test_claim),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_no_size),
        cmocka_unit_test(test_file_exists),
        cmocka_unit_test(test_read_while_written),
        cmocka_unit_test(test_torn_event_is_dropped),
        cmocka_unit_test(test_claim_by_many),
        cmocka_unit_test(test_killed_writer),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_damaged_head),
        cmocka_unit_test(test_not_a_trace),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
