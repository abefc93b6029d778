/*
 * Room trace, sessions: files of several ranks become one stream in one time.
 * Other hosts are made by writing what their files would say: clocks that are
 * off and drift by known amounts, which the stream must undo within the bounds
 * that it states.
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <poise/trace_clock.h>
#include <poise/trace_session.h>

#include "../temporary.h"
#include "trace/internal.h"

static char scratch[TEMPORARY_BYTES];

static const char *path_of(const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, PATH_MAX, "%s/%s", scratch, name);
    return path;
}

#define SECOND UINT64_C(1000000000)
#define ORIGIN (10000 * SECOND) /* of the true time, by rank 0's clock */

/* A host whose clock shows ORIGIN + offset + t x (1 + drift) at true time
 * ORIGIN + t, and whose ticks begin anywhere. */
struct host {
    uint64_t ticks_at_origin;
    int64_t offset_ns; /* what is to be added to it to get rank 0's */
    double drift_ppm;
};

static uint64_t clock_of(const struct host *host, uint64_t t)
{
    return (uint64_t)((int64_t)(ORIGIN + t) - host->offset_ns +
                      (int64_t)((double)t * host->drift_ppm / 1e6));
}

static uint64_t ticks_of(const struct host *host, uint64_t t)
{
    return host->ticks_at_origin + clock_of(host, t) - clock_of(host, 0);
}

/* The file of a rank: ticks are ns of its own clock, as if its TSC ran at
 * 1 GHz. */
struct file {
    struct poise_trace *trace;
    struct poise_trace_ring *ring;
    const struct host *host;
};

static struct file make(const char *path, const struct host *host, int rank,
                        int size, uint64_t clock)
{
    struct file file = {.host = host};
    struct poise_trace_options options = {.session = {7, 7},
                                          .rank = rank,
                                          .size = size,
                                          .capacity = 256,
                                          .program = "test"};
    assert_int_equal(poise_trace_create(path, &options, &file.trace), 0);
    struct trace_head *head = file.trace->head;
    head->clock[0] = clock;
    head->clock[1] = 1;
    head->has_tsc = 1;
    head->tick_hz = SECOND;
    head->start_ticks = ticks_of(host, 0);
    snprintf(head->host, sizeof head->host, "host%d", (int)clock);
    struct trace_snapshot *table = trace_table(head, head->snapshots_at);
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t t = i * SECOND;
        table[i] = (struct trace_snapshot){
            .ticks = ticks_of(host, t),
            .ns = clock_of(host, t),
            .wall_ns = (int64_t)(ORIGIN + t),
            .done = 1,
        };
    }
    file.ring = poise_trace_claim(file.trace, "main");
    assert_non_null(file.ring);
    /* The claim was recorded at a real time. */
    struct poise_trace_event *event =
        (struct poise_trace_event *)(file.ring + 1);
    event->values[0] = ticks_of(host, 0);
    return file;
}

/* The snapshot of the real clocks at the end is no part of it. */
static void finish(struct file *file)
{
    file->trace->head->snapshots = TRACE_SNAPSHOTS;
    poise_trace_destroy(file->trace);
}

static void measured(struct file *file, uint64_t t, int64_t wrong_by,
                     uint64_t error)
{
    struct poise_trace_offset offset = {
        .at_ns = clock_of(file->host, t),
        .offset_ns = (int64_t)(ORIGIN + t - clock_of(file->host, t)) + wrong_by,
        .error_ns = error,
        .rounds = 10,
    };
    poise_trace_offset_add(file->trace, &offset);
}

static void at(struct file *file, uint64_t t, uint32_t kind, uint64_t sequence,
               uint64_t a)
{
    poise_trace_put(file->ring, kind, sequence, ticks_of(file->host, t), a, 0,
                    0);
}

static struct poise_trace_session *look(const char *const *paths, size_t count)
{
    struct poise_trace_session *session = NULL;
    assert_int_equal(poise_trace_session_open(paths, count, &session), 0);
    return session;
}

/* ---- times -------------------------------------------------------------- */

/* Three hosts, of which two are off by hours and drift: every true time comes
 * back within the stated error, and the stream is in the true order wherever
 * records are further apart than that. */
static void test_three_hosts(void **state)
{
    (void)state;
    enum { HOSTS = 3, EVENTS = 200 };
    const struct host hosts[HOSTS] = {
        {.ticks_at_origin = 5},
        {UINT64_C(1) << 60, (int64_t)(3600 * SECOND), 10},
        {SECOND, -(int64_t)(99 * SECOND), -12},
    };
    const int64_t wrong[HOSTS] = {0, 20000, -45000};
    const char *paths[HOSTS] = {path_of("a"), path_of("a.1"), path_of("a.2")};
    struct file files[HOSTS];
    for (int i = 0; i < HOSTS; i++) {
        files[i] = make(paths[i], &hosts[i], i, HOSTS, (uint64_t)i + 1);
        measured(&files[i], 0, wrong[i], i ? 50000 : 0);
        measured(&files[i], 2 * SECOND, -wrong[i], i ? 50000 : 0);
    }
    for (uint64_t n = 0; n < EVENTS; n++) {
        at(&files[n % HOSTS], (n + 1) * 5000000, POISE_TRACE_TOKEN, n, 0);
    }
    for (int i = 0; i < HOSTS; i++) {
        finish(&files[i]);
    }
    /* The others are found beside the first. */
    struct poise_trace_session *session = look(paths, 1);
    assert_int_equal(poise_trace_session_files(session), HOSTS);
    assert_int_equal(poise_trace_session_missing(session), 0);
    struct poise_trace_moment moment;
    uint64_t n = 0;
    int64_t start = 0;
    uint64_t error;
    assert_int_equal(poise_trace_session_time(
                         session, 0, hosts[0].ticks_at_origin, &start, &error),
                     0);
    while (poise_trace_session_next(session, &moment) > 0) {
        if (moment.event->collector == POISE_TRACE_TOKEN) {
            int64_t off = moment.ns - start - (int64_t)((n + 1) * 5000000);
            assert_int_equal(moment.event->sequence, n);
            assert_true(moment.error_ns <= 50000 + 15 * 2);
            assert_true((uint64_t)llabs(off) <= moment.error_ns + 2);
            assert_true((moment.file == 0) == (moment.error_ns == 0));
            n++;
        }
    }
    assert_int_equal(n, EVENTS);
    assert_int_equal(poise_trace_session_next(session, &moment), 0);
    poise_trace_session_rewind(session);
    assert_int_equal(poise_trace_session_next(session, &moment), 1);
    struct poise_trace_file file;
    assert_int_equal(poise_trace_session_file(session, 1, &file), 0);
    assert_int_equal(file.way, POISE_TRACE_MEASURED);
    assert_int_equal(file.measurements, 2);
    assert_true(file.error_ns > 0 && file.error_ns <= 50030);
    assert_true(file.drift_ppm - file.drift_error_ppm <= -10 &&
                file.drift_ppm + file.drift_error_ppm >= -10);
    assert_int_equal(poise_trace_session_file(session, 3, &file), -EINVAL);
    poise_trace_session_close(session);
    for (int i = 0; i < HOSTS; i++) {
        assert_int_equal(unlink(paths[i]), 0);
    }
}

/* A clock that drifts steadily and was compared well, three times: between two
 * of them its offset is on the straight line, much better than is promised, and
 * of each part it is the line of that part. */
static void test_drift(void **state)
{
    (void)state;
    const struct host hosts[2] = {{.ticks_at_origin = 1},
                                  {777, (int64_t)SECOND, 6}};
    const int64_t bent = 8000; /* of the offset, in the middle */
    const char *paths[2] = {path_of("d"), path_of("d.1")};
    struct file files[2];
    for (int i = 0; i < 2; i++) {
        files[i] = make(paths[i], &hosts[i], i, 2, (uint64_t)i + 1);
    }
    measured(&files[1], 0, 0, 100);
    measured(&files[1], SECOND, bent, 100);
    measured(&files[1], 2 * SECOND, 0, 100);
    for (int i = 0; i < 2; i++) {
        finish(&files[i]);
    }
    struct poise_trace_session *session = look(paths, 2);
    int64_t start, ns;
    uint64_t error;
    poise_trace_session_time(session, 0, ticks_of(&hosts[0], 0), &start,
                             &error);
    for (uint64_t t = 0; t <= 2 * SECOND; t += SECOND / 10) {
        int64_t part = (int64_t)(t < SECOND ? t : 2 * SECOND - t);
        int64_t right = (int64_t)t + bent * part / (int64_t)SECOND;
        poise_trace_session_time(session, 1, ticks_of(&hosts[1], t), &ns,
                                 &error);
        assert_true(llabs(ns - start - right) <= 200);
        assert_true(error >= 100 && error <= 15000);
    }
    poise_trace_session_close(session);
    assert_int_equal(unlink(paths[0]), 0);
    assert_int_equal(unlink(paths[1]), 0);
}

/* Nobody compared the clocks: by the time of day, and that is said. */
static void test_unmeasured(void **state)
{
    (void)state;
    const struct host hosts[2] = {{.ticks_at_origin = 1},
                                  {777, (int64_t)(5 * SECOND), 0}};
    const char *paths[2] = {path_of("u"), path_of("u.1")};
    struct file files[2];
    for (int i = 0; i < 2; i++) {
        files[i] = make(paths[i], &hosts[i], i, 3, (uint64_t)i + 1);
        at(&files[i], 1000, POISE_TRACE_TOKEN, 0, 0);
        finish(&files[i]);
    }
    struct poise_trace_session *session = look(paths, 2);
    struct poise_trace_file file;
    assert_int_equal(poise_trace_session_missing(session), 1);
    assert_int_equal(poise_trace_session_file(session, 1, &file), 0);
    assert_int_equal(file.way, POISE_TRACE_WALL);
    assert_true(file.error_ns == POISE_TRACE_UNKNOWN);
    int64_t a, b;
    uint64_t error;
    poise_trace_session_time(session, 0, ticks_of(&hosts[0], 1000), &a, &error);
    poise_trace_session_time(session, 1, ticks_of(&hosts[1], 1000), &b, &error);
    assert_true(error == POISE_TRACE_UNKNOWN);
    assert_int_equal(a, b);
    poise_trace_session_close(session);
    assert_int_equal(unlink(paths[0]), 0);
    assert_int_equal(unlink(paths[1]), 0);
}

/* ---- causes ------------------------------------------------------------- */

/* Clocks that are wrong within their error put a reception before its sending:
 * the stream does not, nor what follows on that thread, and no latency is
 * negative. Where it is by more than the error, that is counted. */
static void test_no_negative_latency(void **state)
{
    (void)state;
    const struct host hosts[2] = {{.ticks_at_origin = 1},
                                  {.ticks_at_origin = 50}};
    for (int odd = 0; odd < 2; odd++) {
        const char *paths[2] = {path_of("n"), path_of("n.1")};
        struct file files[2];
        for (int i = 0; i < 2; i++) {
            files[i] = make(paths[i], &hosts[i], i, 2, (uint64_t)i + 1);
        }
        /* Rank 1's clock seems 40 us ahead of what it is: off by -40 us. */
        measured(&files[0], 0, 0, 0);
        measured(&files[1], 0, -40000, odd ? 10000 : 50000);
        at(&files[0], 1000000, POISE_TRACE_SEND, 1, 1);
        at(&files[1], 1020000, POISE_TRACE_RECEIVE, 1, 0);
        at(&files[1], 1021000, POISE_TRACE_SEND, 9, 0);
        at(&files[0], 1041000, POISE_TRACE_RECEIVE, 9, 1);
        at(&files[1], 1050000, POISE_TRACE_RECEIVE, 2, 0); /* sent by nobody */
        finish(&files[0]);
        finish(&files[1]);
        struct poise_trace_session *session = look(paths, 1);
        struct poise_trace_moment moment;
        const struct {
            uint32_t kind;
            unsigned file;
            uint64_t sequence;
        } expected[] = {{POISE_TRACE_SEND, 0, 1},
                        {POISE_TRACE_RECEIVE, 1, 1},
                        {POISE_TRACE_SEND, 1, 9},
                        {POISE_TRACE_RECEIVE, 1, 2},
                        {POISE_TRACE_RECEIVE, 0, 9}};
        size_t seen = 0;
        int64_t before = INT64_MIN;
        while (poise_trace_session_next(session, &moment) > 0) {
            assert_true(moment.ns >= before);
            before = moment.ns;
            if (moment.event->collector == POISE_TRACE_THREAD) {
                continue;
            }
            assert_int_equal(moment.event->collector, expected[seen].kind);
            assert_int_equal(moment.file, expected[seen].file);
            assert_int_equal(moment.event->sequence, expected[seen].sequence);
            assert_int_equal(moment.has_cause, seen == 1 || seen == 4);
            if (seen == 1) {
                assert_int_equal(moment.latency_ns, 0);
                assert_true(moment.held_ns > 19000 && moment.held_ns < 21000);
            }
            if (moment.has_cause) {
                /* The truth lies within the error (or it is contradicted). */
                assert_true(odd ||
                            moment.latency_ns + moment.latency_error_ns >=
                                20000);
            }
            seen++;
        }
        assert_int_equal(seen, 5);
        assert_int_equal(poise_trace_session_contradictions(session), odd);
        poise_trace_session_close(session);
        assert_int_equal(unlink(paths[0]), 0);
        assert_int_equal(unlink(paths[1]), 0);
    }
}

/* Two messages that cannot both have arrived before they were sent: the stream
 * ends all the same. */
static void test_circle(void **state)
{
    (void)state;
    const struct host host = {.ticks_at_origin = 1};
    const char *paths[2] = {path_of("c"), path_of("c.1")};
    struct file files[2];
    for (int i = 0; i < 2; i++) {
        files[i] = make(paths[i], &host, i, 2, 1);
        at(&files[i], 1000, POISE_TRACE_RECEIVE, 1, (uint64_t)(1 - i));
        at(&files[i], 2000, POISE_TRACE_SEND, 1, (uint64_t)(1 - i));
        finish(&files[i]);
    }
    struct poise_trace_session *session = look(paths, 1);
    struct poise_trace_moment moment;
    unsigned seen = 0;
    while (poise_trace_session_next(session, &moment) > 0) {
        seen++;
    }
    assert_int_equal(seen, 6);
    poise_trace_session_close(session);
    assert_int_equal(unlink(paths[0]), 0);
    assert_int_equal(unlink(paths[1]), 0);
}

/* ---- comparing clocks --------------------------------------------------- */

static void test_offsets(void **state)
{
    (void)state;
    struct poise_trace_offset offset;
    /* The other clock is 1000 behind; ways of 10 and 30, then 40 and 5. */
    const struct poise_trace_round rounds[] = {
        {.sent = 5000, .received = 4010, .answered = 4012, .returned = 5042},
        {.sent = 6000, .received = 5040, .answered = 5041, .returned = 6046},
    };
    assert_int_equal(poise_trace_offset_from(rounds, 1, &offset), 0);
    assert_int_equal(offset.offset_ns, 1010);
    assert_int_equal(offset.error_ns, 20);
    /* Together they bound it from both sides: [990, 1005]. */
    assert_int_equal(poise_trace_offset_from(rounds, 2, &offset), 0);
    assert_int_equal(offset.offset_ns, 997);
    assert_true(offset.error_ns == 8 || offset.error_ns == 7);
    assert_int_equal(offset.rounds, 2);
    assert_int_equal(poise_trace_offset_from(rounds, 0, &offset), -EINVAL);
    const struct poise_trace_round odd = {
        .sent = 5000, .received = 4010, .answered = 4012, .returned = 4900};
    assert_int_equal(poise_trace_offset_from(&odd, 1, &offset), -ERANGE);
    /* A drift between rounds: the one that was fastest counts. */
    const struct poise_trace_round drift[] = {
        rounds[0],
        {.sent = 9000, .received = 7000, .answered = 7001, .returned = 9100},
    };
    assert_int_equal(poise_trace_offset_from(drift, 2, &offset), 0);
    assert_int_equal(offset.offset_ns, 1010);
}

/* ---- files that do not belong together ---------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    const struct host host = {.ticks_at_origin = 1};
    const char *paths[3] = {path_of("r"), path_of("other"), path_of("same")};
    struct file files[3];
    for (int i = 0; i < 3; i++) {
        files[i] = make(paths[i], &host, 0, 1, 1);
        files[i].trace->head->session[0] += i == 1;
        finish(&files[i]);
    }
    struct poise_trace_session *session = NULL;
    assert_int_equal(poise_trace_session_open(paths, 2, &session), -EINVAL);
    assert_non_null(strstr(poise_error_last()->why, "another session"));
    const char *twice[2] = {paths[0], paths[2]};
    assert_int_equal(poise_trace_session_open(twice, 2, &session), -EINVAL);
    assert_non_null(strstr(poise_error_last()->why, "same rank"));
    assert_int_equal(poise_trace_session_open(paths, 0, &session), -EINVAL);
    const char *absent[2] = {paths[0], path_of("absent")};
    assert_int_equal(poise_trace_session_open(absent, 2, &session), -ENOENT);
    assert_null(session);
    poise_trace_session_close(NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(unlink(paths[i]), 0);
    }
}

static void test_faults(void **state)
{
    (void)state;
    const struct host host = {.ticks_at_origin = 1};
    const char *paths[2] = {path_of("f"), path_of("f.1")};
    for (int i = 0; i < 2; i++) {
        struct file file = make(paths[i], &host, i, 2, 1);
        at(&file, 1000, POISE_TRACE_SEND, 1, (uint64_t)(1 - i));
        finish(&file);
    }
    int code = -ENOMEM;
    for (uint64_t k = 1; code == -ENOMEM; k++) {
        struct poise_trace_session *session = NULL;
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        code = poise_trace_session_open(paths, 1, &session);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        assert_true(code == -ENOMEM || k > 10);
        assert_true((code == 0) == (session != NULL));
        poise_trace_session_close(session);
    }
    assert_int_equal(code, 0);
    assert_int_equal(unlink(paths[0]), 0);
    assert_int_equal(unlink(paths[1]), 0);
}

static int make_scratch(void **state)
{
    (void)state;
    return mkdtemp(temporary_name(scratch, "session")) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return rmdir(scratch);
}

/* A call, and two parts of it that are recorded. */
static void parts_begin_and_end_with_their_call(void **state)
{
    (void)state;
    struct poise_trace *trace;
    assert_int_equal(poise_trace_create(NULL, NULL, &trace), 0);
    struct poise_trace_ring *ring = poise_trace_claim(trace, "calls");
    uint64_t before = poise_clock_ticks();
    uint64_t enter = poise_trace_enter(ring);
    assert_true(enter >= before);
    assert_int_equal(ring->inside, enter);
    assert_int_equal(poise_trace_begin(ring), enter);
    poise_trace_end(ring, enter + 1);
    assert_int_equal(poise_trace_begin(ring), enter + 1);
    poise_trace_end(ring, enter + 2);
    assert_int_equal(poise_trace_leave(ring, enter, true), enter + 2);
    assert_int_equal(ring->inside, 0);
    /* With nothing around it a part is as long as it is. */
    poise_trace_end(ring, 1);
    assert_true(poise_trace_begin(ring) > enter);
    /* And a call without parts, or with something behind them. */
    enter = poise_trace_enter(ring);
    assert_true(poise_trace_leave(ring, enter, true) >= enter);
    enter = poise_trace_enter(ring);
    poise_trace_begin(ring);
    poise_trace_end(ring, enter + (UINT64_C(1) << 40));
    assert_true(poise_trace_leave(ring, enter, false) <
                enter + (UINT64_C(1) << 40));
    assert_int_equal(poise_trace_enter(NULL), 0);
    assert_int_equal(poise_trace_leave(NULL, 0, true), 0);
    assert_int_equal(poise_trace_begin(NULL), 0);
    poise_trace_end(NULL, 1);
    poise_trace_destroy(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_begin_and_end_with_their_call),
        cmocka_unit_test(test_three_hosts),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_unmeasured),
        cmocka_unit_test(test_no_negative_latency),
        cmocka_unit_test(test_circle),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
