/*
 * Wing mon, event scopes: stages, helpers, result rings, hosts and clusters,
 * what is left out where there is no time for it, and when a scope may run.
 * The oracle is what was put into the rings.
 */
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <poise/monitor.h>
#include <poise/scope.h>

#include "../temporary.h"

enum { RANKS = 5, CAPACITY = 2048 };

static char scratch[TEMPORARY_BYTES];

static struct rank {
    struct poise_trace *trace;
    struct poise_trace_ring *ring;
    uint32_t call;
    char path[PATH_MAX];
} ranks[RANKS];

static void make_ranks(void)
{
    for (int r = 0; r < RANKS; r++) {
        struct rank *rank = &ranks[r];
        struct poise_trace_options options = {
            .session = {19, 2}, .rank = r, .size = RANKS, .capacity = CAPACITY};
        struct poise_trace_place place = {.type = POISE_TRACE_CALL,
                                          .rank = r,
                                          .peer = -1,
                                          .group = 1,
                                          .size = RANKS,
                                          .name = "MPI_Allreduce",
                                          .group_name = "MPI_COMM_WORLD"};
        snprintf(rank->path, sizeof rank->path, r ? "%s/t.%d" : "%s/t", scratch,
                 r);
        assert_int_equal(poise_trace_create(rank->path, &options, &rank->trace),
                         0);
        rank->ring = poise_trace_claim(rank->trace, "rank");
        rank->call = poise_trace_collector(rank->trace, &place);
    }
}

static void end_ranks(void)
{
    for (int r = 0; r < RANKS; r++) {
        poise_trace_return(ranks[r].ring);
        poise_trace_destroy(ranks[r].trace);
        unlink(ranks[r].path);
    }
}

/* Calls from..to - 1 of all ranks; bytes: number modulo 7. */
static void put_calls(uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        for (int r = 0; r < RANKS; r++) {
            poise_trace_put(ranks[r].ring, ranks[r].call, i,
                            1000 * i + (uint64_t)r, 1000 * i + 500, i % 7, 0);
        }
    }
}

/* ---- stages ------------------------------------------------------------- */

static size_t keep_calls(const struct poise_scope_from *from,
                         struct poise_trace_event *tuples, size_t count,
                         void *arg)
{
    const uint64_t *bytes = arg;
    size_t left = 0;
    assert_true(from->helper < 4);
    for (size_t i = 0; i < count; i++) {
        if (tuples[i].collector >= POISE_TRACE_COLLECTOR &&
            tuples[i].values[2] == *bytes) {
            tuples[left++] = tuples[i];
        }
    }
    return left;
}

/* What it saw, and that it came in the order of each ring, and merged. */
struct sums {
    uint64_t count, sequences, last[RANKS];
    uint64_t newest;
    bool is_ordered;
};

static size_t add(const struct poise_scope_from *from,
                  struct poise_trace_event *tuples, size_t count, void *arg)
{
    struct sums *sums = arg;
    for (size_t i = 0; i < count; i++) {
        sums->count++;
        sums->sequences += tuples[i].sequence;
        sums->is_ordered =
            sums->is_ordered && tuples[i].sequence > sums->last[from->rank];
        sums->last[from->rank] = tuples[i].sequence;
    }
    return count;
}

static void poll_all(struct poise_scope *scope, bool final)
{
    int code;
    while ((code = poise_scope_poll(scope, final)) > 0) {
    }
    assert_int_equal(code, 0);
}

static void stages_see_each_tuple_once_with_and_without_helpers(void **state)
{
    (void)state;
    for (unsigned helpers = 0; helpers < 4; helpers++) {
        struct poise_scope_options options = {.helpers = helpers};
        struct poise_scope *scope = NULL;
        struct sums sums = {.is_ordered = true};
        uint64_t bytes = 3, count = 0, sequences = 0;
        make_ranks();
        assert_int_equal(poise_scope_create(ranks[0].path, &options, &scope),
                         0);
        assert_int_equal(poise_scope_leaf(scope, keep_calls, &bytes), 0);
        assert_int_equal(poise_scope_stage(scope, add, &sums), 0);
        for (uint64_t from = 1; from < 6000; from += 1500) {
            put_calls(from, from + 1500);
            poll_all(scope, from > 4000);
        }
        for (uint64_t i = 1; i < 6001; i++) {
            count += i % 7 == bytes ? RANKS : 0;
            sequences += i % 7 == bytes ? i * RANKS : 0;
        }
        assert_int_equal(sums.count, count);
        assert_int_equal(sums.sequences, sequences);
        assert_true(sums.is_ordered);
        struct poise_scope_source source;
        poise_scope_source(scope, &source);
        assert_int_equal(source.lost, 0);
        /* With the records of the rings' owners. */
        assert_int_equal(source.records, 6000 * RANKS + RANKS);
        poise_scope_destroy(scope);
        end_ranks();
    }
}

/* What a scope lets pass a second one reads, by the same names; what lies in
 * its result rings too long is overwritten, and counted there. */
static void results_are_read_by_a_further_scope(void **state)
{
    (void)state;
    struct poise_scope *first = NULL, *second = NULL;
    struct poise_trace *results = NULL;
    struct poise_trace_options options = {.capacity = 256};
    struct poise_scope_source source;
    struct sums sums = {.is_ordered = true};
    uint64_t bytes = 0;
    char path[PATH_MAX];
    make_ranks();
    snprintf(path, sizeof path, "%s/results", scratch);
    assert_int_equal(poise_trace_create(path, &options, &results), 0);
    assert_int_equal(poise_scope_create(ranks[0].path, NULL, &first), 0);
    assert_int_equal(poise_scope_leaf(first, keep_calls, &bytes), 0);
    assert_int_equal(poise_scope_results(first, results, 0), -EINVAL);
    assert_int_equal(poise_scope_results(first, results, 2), 0);
    put_calls(1, 701);
    poll_all(first, true);
    struct poise_trace_view *view = NULL;
    assert_int_equal(poise_trace_open(path, &view), 0);
    assert_int_equal(poise_trace_rings(view), 2);
    poise_trace_close(view);
    assert_int_equal(poise_scope_create(path, NULL, &second), 0);
    assert_int_equal(poise_scope_leaf(second, keep_calls, &bytes), 0);
    assert_int_equal(poise_scope_stage(second, add, &sums), 0);
    poll_all(second, true);
    poise_scope_source(second, &source);
    /* Ranks 0, 2, 4 share a ring: 100 of each and its owner's record. */
    assert_int_equal(source.lost, 301 - 256);
    assert_int_equal(sums.count, 500 - (301 - 256 - 1));
    poise_scope_destroy(second);
    poise_scope_destroy(first);
    poise_trace_destroy(results);
    unlink(path);
    end_ranks();
}

/* ---- the monitor over a scope of one's own ------------------------------- */

static void what_comes_too_fast_is_left_out_of_all_ranks(void **state)
{
    (void)state;
    struct poise_scope_options options = {.share = 1};
    struct poise_scope *scope = NULL;
    struct poise_monitor *monitor = NULL;
    struct poise_monitor_reader *reader = NULL;
    struct poise_monitor_source source = {0};
    struct poise_monitor_missing missing;
    uint64_t written = 0, polls = 0;
    make_ranks();
    assert_int_equal(poise_scope_create(ranks[0].path, &options, &scope), 0);
    assert_int_equal(poise_monitor_create(NULL, &monitor), 0);
    assert_int_equal(poise_monitor_reader_over(monitor, scope, &reader), 0);
    /* However slow the machine is: until there was no time. */
    for (; polls < 40 || source.left_out == 0; polls++) {
        put_calls(1 + polls * 1000, 1001 + polls * 1000);
        written += 1000 * RANKS;
        assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
        poise_monitor_reader_source(reader, &source);
    }
    assert_int_equal(poise_monitor_reader_poll(reader, true), 0);
    poise_monitor_missing(monitor, &missing);
    const struct poise_monitor_operation *operation =
        poise_monitor_operation(monitor, 0);
    /* Each record was read, or left out; of each call all parts or none, but
     * of one where each gap ends. */
    assert_int_equal(source.records + source.left_out, written + RANKS);
    assert_int_equal(source.lost, 0);
    assert_int_equal(missing.left_out, source.left_out);
    assert_in_range(source.records - operation->calls * RANKS - RANKS,
                    missing.incomplete, missing.incomplete * (RANKS - 1));
    assert_in_range(missing.incomplete, 0, polls);
    assert_true(operation->calls > polls * 100);
    poise_monitor_reader_destroy(reader);
    poise_monitor_destroy(monitor);
    poise_scope_destroy(scope);
    end_ranks();
}

/* Twenty thousand calls take no more memory than the first two thousand. (The
 * sanitizers' allocators do not say what is in use.) */
static void memory_does_not_grow_with_the_run(void **state)
{
    (void)state;
    struct poise_monitor *monitor = NULL;
    struct poise_monitor_reader *reader = NULL;
    size_t before = mallinfo2().uordblks, early = 0;
    make_ranks();
    assert_int_equal(poise_monitor_create(NULL, &monitor), 0);
    assert_int_equal(
        poise_monitor_reader_create(monitor, ranks[0].path, &reader), 0);
    for (uint64_t i = 0; i < 20; i++) {
        put_calls(1 + i * 1000, 1001 + i * 1000);
        assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
        early = i == 1 ? mallinfo2().uordblks : early;
    }
    assert_int_equal(poise_monitor_operation(monitor, 0)->calls, 20000);
    assert_int_equal(mallinfo2().uordblks, early);
    assert_true(early - before < 2 << 20);
    poise_monitor_reader_destroy(reader);
    poise_monitor_destroy(monitor);
    end_ranks();
}

static void it_runs_when_ranks_wait(void **state)
{
    (void)state;
    struct poise_scope *scope = NULL;
    struct poise_scope_source source;
    make_ranks();
    put_calls(1, 2);
    assert_int_equal(poise_scope_create(ranks[0].path, NULL, &scope), 0);
    poll_all(scope, false);
    /* Nobody ever was inside, nothing is new. */
    assert_false(poise_scope_wait(scope, POISE_SCOPE_CONTRIBUTED, 0));
    assert_false(poise_scope_wait(scope, POISE_SCOPE_RELEASED, 0));
    assert_true(poise_scope_wait(scope, POISE_SCOPE_ALWAYS, 0));
    for (int r = 0; r < RANKS; r++) {
        assert_false(poise_scope_wait(scope, POISE_SCOPE_RELEASED, 0));
        poise_trace_enter(ranks[r].ring);
    }
    assert_true(poise_scope_wait(scope, POISE_SCOPE_CONTRIBUTED, 0));
    assert_false(poise_scope_wait(scope, POISE_SCOPE_RELEASED, 0));
    put_calls(2, 3);
    poise_trace_leave(ranks[0].ring, 0, false);
    assert_false(poise_scope_wait(scope, POISE_SCOPE_CONTRIBUTED, 0));
    assert_false(poise_scope_wait(scope, POISE_SCOPE_RELEASED, 100000));
    for (int r = 1; r < RANKS; r++) {
        poise_trace_leave(ranks[r].ring, 0, false);
    }
    assert_true(poise_scope_wait(scope, POISE_SCOPE_RELEASED, 0));
    /* A ring that is half full is read in any case. */
    poise_trace_enter(ranks[1].ring);
    put_calls(3, CAPACITY / 2 + 10);
    assert_false(poise_scope_wait(scope, POISE_SCOPE_RELEASED, UINT64_MAX));
    poise_scope_source(scope, &source);
    assert_int_equal(source.timely, 3);
    assert_int_equal(source.waits, 14);
    poise_scope_destroy(scope);
    end_ranks();
}

/* ---- hosts, clusters, wrong use ------------------------------------------ */

static void scopes_know_hosts_and_clusters(void **state)
{
    (void)state;
    char host[256], *dot;
    struct poise_scope *scope = NULL;
    struct sums sums = {.is_ordered = true};
    make_ranks();
    put_calls(1, 11);
    assert_int_equal(poise_scope_create(ranks[0].path, NULL, &scope), 0);
    assert_int_equal(poise_scope_unit(scope, POISE_SCOPE_HOST, 0), -1);
    poll_all(scope, true);
    assert_int_equal(poise_scope_unit(scope, POISE_SCOPE_RANK, 3), 3);
    assert_int_equal(poise_scope_unit(scope, POISE_SCOPE_HOST, 3), 0);
    assert_int_equal(poise_scope_unit(scope, POISE_SCOPE_CLUSTER, 3), 0);
    assert_int_equal(poise_scope_unit(scope, POISE_SCOPE_HOST, RANKS), -1);
    assert_null(poise_scope_unit_name(scope, POISE_SCOPE_HOST, 1));
    assert_null(poise_scope_unit_name(scope, POISE_SCOPE_ALL, 0));
    snprintf(host, sizeof host, "%s",
             poise_scope_unit_name(scope, POISE_SCOPE_HOST, 0));
    dot = strchr(host, '.');
    assert_string_equal(poise_scope_unit_name(scope, POISE_SCOPE_CLUSTER, 0),
                        dot ? dot + 1 : "");
    poise_scope_destroy(scope);
    struct poise_scope_options other = {.host = "some other host"};
    assert_int_equal(poise_scope_create(ranks[0].path, &other, &scope), 0);
    assert_int_equal(poise_scope_stage(scope, add, &sums), 0);
    poll_all(scope, true);
    assert_int_equal(sums.count, 0);
    for (int i = 1; i < 16; i++) {
        assert_int_equal(poise_scope_stage(scope, add, &sums), 0);
    }
    assert_int_equal(poise_scope_stage(scope, add, &sums), -ENOSPC);
    assert_int_equal(poise_scope_collector(scope, NULL), 0);
    poise_scope_destroy(scope);
    end_ranks();
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(temporary_name(scratch, "scope")) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_see_each_tuple_once_with_and_without_helpers),
        cmocka_unit_test(results_are_read_by_a_further_scope),
        cmocka_unit_test(what_comes_too_fast_is_left_out_of_all_ranks),
        cmocka_unit_test(memory_does_not_grow_with_the_run),
        cmocka_unit_test(it_runs_when_ranks_wait),
        cmocka_unit_test(scopes_know_hosts_and_clusters),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
