/*
 * Wing mon, what reads rings: files of several ranks that come late, are
 * written meanwhile, lap their reader, break off, or are of another session;
 * hops that belong to calls, and those that do not; clocks that are no TSC;
 * what TCP sent again.
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <poise/monitor.h>
#include <poise/monitor_system.h>
#include <poise/trace_session.h>

#include "../temporary.h"

static char scratch[TEMPORARY_BYTES];

enum { CAPACITY = 256 };

/* A rank: its file, ring and collectors. */
struct rank {
    struct poise_trace *trace;
    struct poise_trace_ring *ring;
    uint32_t call, hop;
    char path[PATH_MAX];
};

static struct rank make(const char *name, int rank, int size, uint64_t session)
{
    struct rank made = {0};
    struct poise_trace_options options = {.session = {session, 1},
                                          .rank = rank,
                                          .size = size,
                                          .capacity = CAPACITY};
    struct poise_trace_place place = {.type = POISE_TRACE_CALL,
                                      .rank = rank,
                                      .peer = -1,
                                      .group = 1,
                                      .size = (uint32_t)size,
                                      .name = "MPI_Allreduce",
                                      .group_name = "MPI_COMM_WORLD"};
    snprintf(made.path, sizeof made.path, rank ? "%s/%s.%d" : "%s/%s", scratch,
             name, rank);
    assert_int_equal(poise_trace_create(made.path, &options, &made.trace), 0);
    made.ring = poise_trace_claim(made.trace, "main");
    assert_non_null(made.ring);
    made.call = poise_trace_collector(made.trace, &place);
    place.type = POISE_TRACE_HOP;
    place.peer = rank - 1;
    made.hop = poise_trace_collector(made.trace, &place);
    return made;
}

static void end(struct rank *rank)
{
    poise_trace_return(rank->ring);
    poise_trace_destroy(rank->trace);
    unlink(rank->path);
}

static void call(struct rank *rank, uint64_t number, uint64_t enter,
                 uint64_t left)
{
    poise_trace_put(rank->ring, rank->call, number, enter, left, 8, 0);
}

/* ---- the reader --------------------------------------------------------- */

static struct poise_monitor *monitor;
static struct poise_monitor_reader *reader;

static void begin(const char *path)
{
    assert_int_equal(poise_monitor_create(NULL, &monitor), 0);
    assert_int_equal(poise_monitor_reader_create(monitor, path, &reader), 0);
}

static void leave(void)
{
    poise_monitor_reader_destroy(reader);
    poise_monitor_destroy(monitor);
}

static uint64_t calls_of(const char *name)
{
    for (unsigned i = 0; i < poise_monitor_operations(monitor); i++) {
        const struct poise_monitor_operation *operation =
            poise_monitor_operation(monitor, i);
        if (strcmp(operation->name, name) == 0) {
            return operation->calls;
        }
    }
    return 0;
}

static struct poise_monitor_source source(void)
{
    struct poise_monitor_source out;
    poise_monitor_reader_source(reader, &out);
    return out;
}

static void reads_while_it_is_written(void **state)
{
    (void)state;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/live", scratch);
    begin(path);
    assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
    struct rank first = make("live", 0, 2, 7);
    uint64_t now = poise_clock_ticks();
    call(&first, 1, now, now + 1500000);
    assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
    assert_int_equal(calls_of("MPI_Allreduce"), 0);
    struct rank second = make("live", 1, 2, 7);
    call(&second, 1, now + 1000000, now + 1500001);
    assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
    assert_int_equal(calls_of("MPI_Allreduce"), 1);
    for (uint64_t i = 2; i < 1000; i++) {
        call(&first, i, now + i * 3000000, now + i * 3000000 + 1500000);
        call(&second, i, now + i * 3000000 + 1000000,
             now + i * 3000000 + 1500001);
        if (i % 90 == 0) {
            assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
            assert_int_equal(calls_of("MPI_Allreduce"), i);
        }
    }
    assert_int_equal(poise_monitor_reader_poll(reader, true), 0);
    const struct poise_monitor_operation *operation =
        poise_monitor_operation(monitor, 0);
    assert_int_equal(operation->calls, 999);
    assert_int_equal(operation->ranks[1].last, 999);
    assert_int_equal(operation->ranks[1].caused, 999);
    /* A million ticks, in ns. */
    int64_t late = operation->ranks[1].late_sum_ns / 999;
    int64_t expected = (int64_t)poise_clock_ticks_to_ns(1000000);
    assert_in_range(late, expected - 2, expected + 2);
    struct poise_monitor_source read = source();
    assert_int_equal(read.files, 2);
    assert_int_equal(read.size, 2);
    assert_int_equal(read.lost, 0);
    assert_int_equal(read.running, 2);
    assert_true(read.one_clock);
    end(&first);
    end(&second);
    leave();
}

static void what_laps_the_reader_is_counted(void **state)
{
    (void)state;
    struct rank only = make("laps", 0, 1, 7);
    begin(only.path);
    for (uint64_t i = 1; i <= 1000; i++) {
        call(&only, i, i, i + 1);
    }
    assert_int_equal(poise_monitor_reader_poll(reader, true), 0);
    /* With the record of the ring's owner. */
    assert_int_equal(source().lost, 1001 - CAPACITY);
    assert_int_equal(source().records, CAPACITY);
    assert_int_equal(calls_of("MPI_Allreduce"), CAPACITY);
    struct poise_monitor_missing missing;
    poise_monitor_missing(monitor, &missing);
    assert_int_equal(missing.lost, 1001 - CAPACITY);
    end(&only);
    leave();
}

/* The second rank dies in its third call. */
static void what_broke_off_is_read_up_to_there(void **state)
{
    (void)state;
    struct rank ranks[] = {make("dies", 0, 2, 7), make("dies", 1, 2, 7)};
    for (uint64_t i = 1; i <= 5; i++) {
        call(&ranks[0], i, 10 * i, 10 * i + 5);
        if (i < 3) {
            call(&ranks[1], i, 10 * i, 10 * i + 5);
        }
    }
    poise_trace_reserve(ranks[1].ring);
    begin(ranks[0].path);
    assert_int_equal(poise_monitor_reader_poll(reader, true), 0);
    assert_int_equal(calls_of("MPI_Allreduce"), 2);
    assert_int_equal(source().lost, 1);
    assert_int_equal(source().running, 2);
    struct poise_monitor_missing missing;
    poise_monitor_missing(monitor, &missing);
    assert_int_equal(missing.incomplete, 3);
    end(&ranks[0]);
    end(&ranks[1]);
    leave();
}

static void hop(struct rank *rank, uint64_t number, uint64_t enter)
{
    poise_trace_put(rank->ring, rank->hop, number, enter, enter + 2, enter + 4,
                    enter + 6);
}

static void hops_belong_to_the_call_around_them(void **state)
{
    (void)state;
    struct rank only = make("hops", 0, 1, 7);
    begin(only.path);
    hop(&only, 1, 105);
    call(&only, 1, 100, 120); /* has it */
    call(&only, 2, 130, 140); /* has none */
    hop(&only, 2, 150);       /* of no call */
    call(&only, 3, 160, 170);
    hop(&only, 3, 181);
    hop(&only, 4, 190);
    call(&only, 4, 180, 200); /* has two: none is its own */
    hop(&only, 5, 210);
    assert_int_equal(poise_monitor_reader_poll(reader, true), 0);
    assert_int_equal(calls_of("MPI_Allreduce"), 4);
    assert_int_equal(calls_of("(tree)"), 4);
    for (unsigned i = 0; i < poise_monitor_operations(monitor); i++) {
        const struct poise_monitor_operation *operation =
            poise_monitor_operation(monitor, i);
        bool is_tree = strcmp(operation->name, "(tree)") == 0;
        assert_int_equal(operation->reduce.count, is_tree ? 4 : 1);
        assert_non_null(operation->wrappers);
    }
    end(&only);
    leave();
}

static void a_collector_that_is_gone_is_counted(void **state)
{
    (void)state;
    struct rank only = make("gone", 0, 1, 7);
    begin(only.path);
    poise_trace_put(only.ring, only.call + 77, 1, 1, 2, 3, 4);
    poise_trace_put(only.ring, POISE_TRACE_CALL, 1, 1, 2, 3, 4);
    poise_trace_put(only.ring, POISE_TRACE_TOKEN, 1, 1, 2, 3, 4);
    assert_int_equal(poise_monitor_reader_poll(reader, true), 0);
    assert_int_equal(source().nameless, 2);
    end(&only);
    leave();
}

static void files_must_be_of_one_session(void **state)
{
    (void)state;
    struct rank first = make("mixed", 0, 2, 7), other = make("mixed", 1, 2, 8);
    begin(first.path);
    assert_int_equal(poise_monitor_reader_poll(reader, false), -EINVAL);
    leave();
    begin(other.path);
    assert_int_equal(poise_monitor_reader_poll(reader, false), -EINVAL);
    leave();
    end(&first);
    end(&other);
    begin(first.path);
    assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
    assert_int_equal(poise_monitor_reader_poll(reader, true), -ENOENT);
    leave();
    FILE *file = fopen(first.path, "w");
    assert_non_null(file);
    fputs("not a trace, not even a little", file);
    fclose(file);
    begin(first.path);
    assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
    assert_int_equal(poise_monitor_reader_poll(reader, true), -EPROTO);
    leave();
    unlink(first.path);
}

static void a_size_that_none_has_is_refused(void **state)
{
    (void)state;
    struct rank first = make("huge", 0, INT32_MAX, 7);
    begin(first.path);
    assert_int_equal(poise_monitor_reader_poll(reader, false), -EINVAL);
    leave();
    end(&first);
}

/* POISE_TRACE_CLOCK makes this another host's; nobody compared the clocks. */
static void other_clocks_are_waited_for_and_doubted(void **state)
{
    (void)state;
    struct rank first = make("clocks", 0, 2, 7);
    setenv("POISE_TRACE_CLOCK", "elsewhere", 1);
    begin(first.path);
    uint64_t now = poise_clock_ticks();
    call(&first, 1, now, now + 100);
    assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
    struct rank second = make("clocks", 1, 2, 7);
    unsetenv("POISE_TRACE_CLOCK");
    call(&second, 1, now + 50, now + 100);
    assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
    assert_int_equal(poise_monitor_reader_poll(reader, true), 0);
    assert_int_equal(calls_of("MPI_Allreduce"), 1);
    assert_int_equal(poise_monitor_operation(monitor, 0)->uncertain, 1);
    assert_false(source().one_clock);
    assert_true(source().error_ns == POISE_TRACE_UNKNOWN);
    end(&first);
    end(&second);
    leave();
}

/* ---- no invariant TSC --------------------------------------------------- */

/* In a process of its own, which has not used its clock yet. 0: all is right;
 * else which part is not. */
static int look_without_tsc(void)
{
    char path[PATH_MAX];
    struct timespec late = {.tv_nsec = 3000000};
    struct poise_trace_view *view;
    struct poise_trace_info info;
    poise_clock_has_tsc = false;
    snprintf(path, sizeof path, "%s/plain", scratch);
    struct rank first = make("plain", 0, 2, 9), second = make("plain", 1, 2, 9);
    for (uint64_t number = 1; number <= 3; number++) {
        uint64_t enter = poise_clock_ticks();
        nanosleep(&late, NULL);
        uint64_t last = poise_clock_ticks();
        call(&second, number, last, poise_clock_ticks());
        call(&first, number, enter, poise_clock_ticks());
    }
    if (poise_trace_open(path, &view) < 0) {
        return 1;
    }
    poise_trace_info(view, &info);
    poise_trace_close(view);
    if (info.has_tsc || info.tick_hz != UINT64_C(1000000000)) {
        return 2;
    }
    begin(path);
    int code = poise_monitor_reader_poll(reader, true);
    const struct poise_monitor_operation *operation =
        poise_monitor_operation(monitor, 0);
    if (code < 0 || !operation || operation->calls != 3) {
        return 3;
    }
    if (operation->ranks[1].last != 3 ||
        operation->arrival.least < late.tv_nsec ||
        operation->broadcast.least < 0 || !source().one_clock) {
        return 4;
    }
    leave();
    end(&first);
    end(&second);
    return 0;
}

/* The system's clock is the next best. */
static void a_node_without_invariant_tsc_is_read(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(look_without_tsc());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- the network --------------------------------------------------------- */

/* As the preload records it: `again` segments since the last time. */
static void tcp(struct rank *rank, uint64_t connection, uint64_t at,
                uint64_t again, uint64_t rtt_ns)
{
    struct poise_trace_type type = {.name = "tcp",
                                    .values = {{POISE_TRACE_TIME, "at"}}};
    int64_t number = poise_trace_define(rank->trace, &type);
    assert_true(number >= POISE_TRACE_USER);
    poise_trace_put(rank->ring, (uint32_t)number, connection, at, again, rtt_ns,
                    1000000);
}

static void segments_that_were_sent_again_are_found(void **state)
{
    (void)state;
    struct poise_monitor_system *system;
    struct poise_scope *scope;
    struct poise_monitor_connection found[3];
    struct rank first = make("tcp", 0, 2, 11), second = make("tcp", 1, 2, 11);
    uint64_t now = poise_clock_ticks(), ms = poise_clock_tick_hz() / 1000;
    assert_int_equal(poise_monitor_create(NULL, &monitor), 0);
    assert_int_equal(poise_scope_create(first.path, NULL, &scope), 0);
    assert_int_equal(poise_monitor_system_create(monitor, first.path, &system),
                     0);
    assert_int_equal(poise_monitor_system_scope(system, scope), 0);
    assert_int_equal(poise_monitor_reader_over(monitor, scope, &reader), 0);
    for (uint64_t i = 1; i <= 100; i++) {
        uint64_t enter = now + i * 50 * ms, left = enter + 10 * ms;
        if (i == 1) {
            tcp(&first, 5, left, 0, 2000000);
        }
        if (i % 10 == 0) {
            tcp(&second, 5, left, 2, 3000000);
        }
        if (i == 7) {
            tcp(&first, 9, left, 1, 3000000); /* whose other end is silent */
        }
        call(&first, i, enter, left);
        call(&second, i, enter, left);
    }
    /* Between calls: of a connection, but nobody waited for it in a call. */
    tcp(&first, 5, now + 10000 * ms, 1, 2000000);
    poise_monitor_system_look(system);
    assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
    assert_int_equal(poise_monitor_reader_poll(reader, true), 0);
    assert_int_equal(calls_of("MPI_Allreduce"), 100);
    struct poise_monitor_resent resent = poise_monitor_system_resent(
        system, poise_monitor_operation(monitor, 0));
    assert_int_equal(resent.calls, 11);
    assert_int_equal(resent.segments, 21);
    assert_in_range(resent.inside_ns, 219000000, 221000000);
    assert_int_equal(poise_monitor_system_connections(system, found, 3), 2);
    assert_int_equal(found[0].ranks[0] + found[0].ranks[1], 1);
    int end_1 = found[0].ranks[1] == 1;
    assert_int_equal(found[0].again[end_1], 20);
    assert_int_equal(found[0].again[!end_1], 1);
    assert_int_equal(found[0].least_rtt_ns, 1000000);
    assert_int_equal(found[1].ranks[0], 0);
    assert_int_equal(found[1].ranks[1], -1);
    assert_int_equal(found[1].again[0], 1);
    poise_monitor_reader_destroy(reader);
    poise_monitor_system_destroy(system);
    poise_scope_destroy(scope);
    poise_monitor_destroy(monitor);
    end(&second);
    end(&first);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(temporary_name(scratch, "mon")) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_without_invariant_tsc_is_read),
        cmocka_unit_test(reads_while_it_is_written),
        cmocka_unit_test(what_laps_the_reader_is_counted),
        cmocka_unit_test(what_broke_off_is_read_up_to_there),
        cmocka_unit_test(hops_belong_to_the_call_around_them),
        cmocka_unit_test(a_collector_that_is_gone_is_counted),
        cmocka_unit_test(files_must_be_of_one_session),
        cmocka_unit_test(a_size_that_none_has_is_refused),
        cmocka_unit_test(other_clocks_are_waited_for_and_doubted),
        cmocka_unit_test(segments_that_were_sent_again_are_found),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
