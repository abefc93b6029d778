/*
 * Wing mon, live: threads as ranks, one of which is delayed before each call,
 * while another thread reads their rings. Each call's verdict is held to the
 * times that the threads noted themselves: what really happened counts, not
 * what was meant to, so a thread that the system kept from running is late.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <poise/monitor.h>
#include <poise/trace.h>

#include "../temporary.h"

enum { RANKS = 4, CALLS = 200, LATE = 2, DELAY_NS = 50000 };

static char scratch[TEMPORARY_BYTES];
static pthread_barrier_t barrier;

struct rank {
    int number;
    struct poise_trace *trace;
    char path[TEMPORARY_MORE];
    /* __atomic: the ring that orders them is mapped twice, which the thread
     * sanitizer cannot know. */
    uint64_t enter[CALLS], left[CALLS];
};
static struct rank ranks[RANKS];

/* ---- the ranks ---------------------------------------------------------- */

static void make(struct rank *rank, int number)
{
    struct poise_trace_options options = {
        .session = {19, 4}, .rank = number, .size = RANKS, .capacity = 1024};
    rank->number = number;
    snprintf(rank->path, sizeof rank->path, number ? "%s/t.%d" : "%s/t",
             scratch, number);
    assert_int_equal(poise_trace_create(rank->path, &options, &rank->trace), 0);
}

static void *run(void *arg)
{
    struct rank *rank = arg;
    struct poise_trace_place place = {.type = POISE_TRACE_CALL,
                                      .rank = rank->number,
                                      .peer = -1,
                                      .size = RANKS,
                                      .group = 1,
                                      .name = "barrier"};
    struct poise_trace_ring *ring = poise_trace_claim(rank->trace, "rank");
    uint32_t collector = poise_trace_collector(rank->trace, &place);
    uint64_t delay = poise_clock_ns_to_ticks(DELAY_NS);
    for (int i = 0; i < CALLS; i++) {
        uint64_t begin = poise_clock_ticks();
        while (rank->number == LATE && poise_clock_ticks() - begin < delay) {
        }
        uint64_t enter = poise_clock_ticks();
        pthread_barrier_wait(&barrier);
        uint64_t left = poise_clock_ticks();
        __atomic_store_n(&rank->enter[i], enter, __ATOMIC_RELAXED);
        __atomic_store_n(&rank->left[i], left, __ATOMIC_RELAXED);
        poise_trace_put(ring, collector, (uint64_t)i + 1, enter, left, 0, 0);
    }
    poise_trace_return(ring);
    return NULL;
}

/* ---- what the monitor says of them -------------------------------------- */

/* Below this the rounding of ticks to ns decides. */
enum { CLOSE_TICKS = 20 };

struct counts {
    uint64_t calls, late, named;
};

static void check(const struct poise_monitor_operation *operation,
                  const struct poise_monitor_span *spans,
                  const struct poise_monitor_verdict *verdict, void *arg)
{
    struct counts *counts = arg;
    size_t call = (size_t)spans[0].sequence - 1;
    uint64_t last = 0, before = 0, first = UINT64_MAX, left = 0;
    int who = -1;
    for (int i = 0; i < RANKS; i++) {
        uint64_t enter =
            __atomic_load_n(&ranks[i].enter[call], __ATOMIC_RELAXED);
        uint64_t end = __atomic_load_n(&ranks[i].left[call], __ATOMIC_RELAXED);
        before = enter > last ? last : enter > before ? enter : before;
        who = enter > last ? i : who;
        last = enter > last ? enter : last;
        first = enter < first ? enter : first;
        left = end > left ? end : left;
    }
    assert_int_equal(operation->size, RANKS);
    counts->calls++;
    if (last - before > CLOSE_TICKS) {
        assert_int_equal(verdict->last, who);
    }
    if (who == LATE && last - first > left - last + CLOSE_TICKS) {
        counts->late++;
        counts->named +=
            verdict->cause == POISE_MONITOR_ARRIVAL && verdict->rank == LATE;
    }
}

static void the_delayed_rank_is_named_while_it_runs(void **state)
{
    (void)state;
    struct poise_monitor *monitor = NULL;
    struct poise_monitor_reader *reader = NULL;
    struct poise_monitor_missing missing;
    struct counts counts = {0};
    pthread_t threads[RANKS];
    assert_int_equal(pthread_barrier_init(&barrier, NULL, RANKS), 0);
    for (int i = 0; i < RANKS; i++) {
        make(&ranks[i], i);
    }
    assert_int_equal(poise_monitor_create(NULL, &monitor), 0);
    assert_int_equal(
        poise_monitor_reader_create(monitor, ranks[0].path, &reader), 0);
    poise_monitor_on_call(monitor, check, &counts);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run, &ranks[i]), 0);
    }
    while (counts.calls < CALLS / 2) {
        assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
        usleep(1000);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(poise_monitor_reader_poll(reader, true), 0);
    poise_monitor_missing(monitor, &missing);
    assert_int_equal(missing.lost + missing.incomplete + missing.unplaced, 0);
    assert_int_equal(counts.calls, CALLS);
    print_message("rank %d was late in %d of %d calls, and named in %d\n", LATE,
                  (int)counts.late, CALLS, (int)counts.named);
    assert_true(counts.named * 100 >= counts.late * 99);
    poise_monitor_reader_destroy(reader);
    poise_monitor_destroy(monitor);
    for (int i = 0; i < RANKS; i++) {
        poise_trace_destroy(ranks[i].trace);
        unlink(ranks[i].path);
    }
    pthread_barrier_destroy(&barrier);
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
        cmocka_unit_test(the_delayed_rank_is_named_while_it_runs),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
