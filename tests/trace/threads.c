/*
 * Room trace, the calling thread's ring: threads of any origin and number,
 * rings that come back, signal handlers that record, forks, a trace that ends
 * while others record.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <poise/trace.h>

static struct poise_trace *begin(unsigned rings, unsigned capacity,
                                 struct poise_trace_view **view)
{
    struct poise_trace *trace = NULL;
    struct poise_trace_options options = {.rings_max = rings,
                                          .capacity = capacity};
    assert_int_equal(poise_trace_create(NULL, &options, &trace), 0);
    assert_int_equal(poise_trace_view_of(trace, view), 0);
    assert_null(poise_trace_use(trace));
    return trace;
}

static void end(struct poise_trace *trace, struct poise_trace_view *view)
{
    assert_ptr_equal(poise_trace_use(NULL), trace);
    poise_trace_close(view);
    poise_trace_destroy(trace);
}

/* All records of all rings: how many of a collector, and the sum of their
 * sequence numbers. */
struct sum {
    uint64_t count, sequences, lost, unfinished;
};

static struct sum sum_of(struct poise_trace_view *view, uint32_t collector)
{
    struct sum sum = {0};
    for (unsigned i = 0; i < poise_trace_rings(view); i++) {
        struct poise_trace_cursor cursor;
        struct poise_trace_event events[64];
        size_t got;
        assert_int_equal(poise_trace_cursor(view, i, &cursor), 0);
        cursor.final = true;
        while ((got = poise_trace_read(&cursor, 64, events)) > 0) {
            for (size_t k = 0; k < got; k++) {
                if (events[k].collector == collector) {
                    sum.count++;
                    sum.sequences += events[k].sequence;
                }
            }
        }
        sum.lost += cursor.lost;
        sum.unfinished += cursor.unfinished;
    }
    return sum;
}

static void test_off(void **state)
{
    (void)state;
    assert_false(poise_trace_is_on());
    assert_null(poise_trace_ring());
    assert_int_equal(poise_trace_ticks(NULL), 0);
    poise_trace_event(POISE_TRACE_TOKEN, 1, 2, 3, 4);
    poise_trace_put(NULL, POISE_TRACE_TOKEN, 1, 2, 3, 4, 5);
    poise_trace_name("nobody");
}

static void test_own_ring(void **state)
{
    (void)state;
    struct poise_trace_view *view;
    struct poise_trace *trace = begin(4, 16, &view);
    struct poise_trace_ring_info info;
    struct poise_trace_ring *mine = poise_trace_ring();
    assert_non_null(mine);
    assert_ptr_equal(poise_trace_ring(), mine);
    poise_trace_event(POISE_TRACE_TOKEN, 7, 1, 2, 3);
    assert_int_equal(sum_of(view, POISE_TRACE_TOKEN).sequences, 7);
    poise_trace_name("renamed");
    assert_int_equal(poise_trace_ring_info(view, 0, &info), 0);
    assert_string_equal(info.name, "renamed");
    assert_int_equal(info.owners, 1);
    end(trace, view);
    /* Another trace, another ring, and none in between. */
    assert_null(poise_trace_ring());
    trace = begin(4, 16, &view);
    poise_trace_event(POISE_TRACE_TOKEN, 8, 1, 2, 3);
    assert_int_equal(sum_of(view, POISE_TRACE_TOKEN).sequences, 8);
    end(trace, view);
}

/* ---- many threads ------------------------------------------------------- */

static void *record_once(void *arg)
{
    poise_trace_event(POISE_TRACE_USER, (uintptr_t)arg, 0, 0, 0);
    return NULL;
}

/* One after another, more than there are rings at a time: they come back, and
 * no record of the threads that are gone is lost to it. */
static void test_threads_come_and_go(void **state)
{
    (void)state;
    enum { THREADS = 200 };
    struct poise_trace_view *view;
    struct poise_trace *trace = begin(3, 1024, &view);
    struct poise_trace_info info;
    for (uintptr_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, record_once, (void *)i),
                         0);
        pthread_join(thread, NULL);
    }
    struct sum sum = sum_of(view, POISE_TRACE_USER);
    assert_int_equal(sum.count, THREADS);
    assert_int_equal(sum.sequences, THREADS * (THREADS - 1) / 2);
    assert_int_equal(sum_of(view, POISE_TRACE_THREAD).count, THREADS);
    assert_true(poise_trace_rings(view) <= 3);
    poise_trace_info(view, &info);
    assert_int_equal(info.refused, 0);
    end(trace, view);
}

struct crowd {
    pthread_barrier_t all;
};

static void *record_together(void *arg)
{
    struct crowd *crowd = arg;
    poise_trace_event(POISE_TRACE_USER, 1, 0, 0, 0);
    pthread_barrier_wait(&crowd->all);
    poise_trace_event(POISE_TRACE_USER, 1, 0, 0, 0);
    return NULL;
}

static unsigned run_crowd(struct poise_trace_view *view, unsigned threads)
{
    struct crowd crowd;
    pthread_t *ids = calloc(threads, sizeof *ids);
    pthread_barrier_init(&crowd.all, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        assert_int_equal(pthread_create(&ids[i], NULL, record_together, &crowd),
                         0);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
    pthread_barrier_destroy(&crowd.all);
    free(ids);
    return poise_trace_rings(view);
}

/* At the same time: each has a ring; a second crowd takes over those of the
 * first. */
static void test_threads_together(void **state)
{
    (void)state;
    enum { THREADS = 40 };
    struct poise_trace_view *view;
    struct poise_trace *trace = begin(0, 64, &view);
    assert_int_equal(run_crowd(view, THREADS), THREADS);
    assert_int_equal(sum_of(view, POISE_TRACE_USER).count, 2 * THREADS);
    assert_true(run_crowd(view, THREADS) < 2 * THREADS);
    assert_int_equal(sum_of(view, POISE_TRACE_USER).count, 4 * THREADS);
    end(trace, view);
}

/* Fewer rings than threads: those without are counted, and work on. */
static void test_too_few_rings(void **state)
{
    (void)state;
    enum { THREADS = 8, RINGS = 3 };
    struct poise_trace_view *view;
    struct poise_trace *trace = begin(RINGS, 64, &view);
    struct poise_trace_info info;
    assert_int_equal(run_crowd(view, THREADS), RINGS);
    poise_trace_info(view, &info);
    assert_int_equal(info.refused, THREADS - RINGS);
    assert_int_equal(sum_of(view, POISE_TRACE_USER).count, 2 * RINGS);
    end(trace, view);
}

/* ---- signal handlers ---------------------------------------------------- */

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
    (void)number;
    poise_trace_event(POISE_TRACE_USER + 1, 1, 0, 0, 0);
    handled++;
}

static void *interrupt(void *arg)
{
    pthread_t *target = arg;
    for (int i = 0; i < 2000; i++) {
        pthread_kill(*target, SIGUSR1);
        sched_yield();
    }
    __atomic_store_n(target, 0, __ATOMIC_RELEASE);
    return NULL;
}

/* Signals hit a thread that records as fast as it can, also while it claims
 * its ring: every record of both arrives, once. */
static void test_signals(void **state)
{
    (void)state;
    struct poise_trace_view *view;
    struct poise_trace *trace = begin(4, 1u << 20, &view);
    struct sigaction action = {.sa_handler = on_signal}, before;
    pthread_t self = pthread_self(), thread;
    uint64_t count = 0;
    handled = 0;
    sigaction(SIGUSR1, &action, &before);
    assert_int_equal(pthread_create(&thread, NULL, interrupt, &self), 0);
    while (__atomic_load_n(&self, __ATOMIC_ACQUIRE) != 0) {
        for (int i = 0; i < 100 && count < 900000; i++) {
            count++;
            poise_trace_event(POISE_TRACE_USER, count, 0, 0, 0);
        }
    }
    pthread_join(thread, NULL);
    sigaction(SIGUSR1, &before, NULL);
    struct sum own = sum_of(view, POISE_TRACE_USER);
    struct sum theirs = sum_of(view, POISE_TRACE_USER + 1);
    assert_true(handled > 0);
    assert_int_equal(own.lost + own.unfinished, 0);
    assert_int_equal(own.count, count);
    assert_int_equal(own.sequences, count * (count + 1) / 2);
    assert_int_equal(theirs.count, handled);
    end(trace, view);
}

/* A handler between the two halves of a record, by hand: its own record is
 * whole, and the reader waits for the other. */
static void test_handler_in_between(void **state)
{
    (void)state;
    struct poise_trace_view *view;
    struct poise_trace *trace = begin(1, 16, &view);
    struct poise_trace_ring *ring = poise_trace_ring();
    uint64_t n = poise_trace_reserve(ring);
    poise_trace_event(POISE_TRACE_USER + 1, 5, 0, 0, 0);
    struct poise_trace_cursor cursor;
    struct poise_trace_event events[4];
    assert_int_equal(poise_trace_cursor(view, 0, &cursor), 0);
    assert_int_equal(poise_trace_read(&cursor, 4, events), 1);
    assert_int_equal(poise_trace_read(&cursor, 4, events), 0);
    struct poise_trace_event *slot = (struct poise_trace_event *)(ring + 1) + n;
    slot->collector = POISE_TRACE_USER;
    slot->sequence = 4;
    __atomic_store_n(&slot->stamp, (uint32_t)n + 1, __ATOMIC_RELEASE);
    assert_int_equal(poise_trace_read(&cursor, 4, events), 2);
    assert_int_equal(events[0].sequence, 4);
    assert_int_equal(events[1].sequence, 5);
    end(trace, view);
}

/* ---- forks -------------------------------------------------------------- */

static void test_fork(void **state)
{
    (void)state;
    struct poise_trace_view *view;
    struct poise_trace *trace = begin(4, 64, &view);
    poise_trace_event(POISE_TRACE_USER, 1, 0, 0, 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct poise_trace *mine = NULL;
        bool off = !poise_trace_is_on() && !poise_trace_ring();
        poise_trace_event(POISE_TRACE_USER, 1, 0, 0, 0);
        poise_trace_destroy(trace); /* lets go of it, no more */
        off = off && poise_trace_create(NULL, NULL, &mine) == 0;
        poise_trace_use(mine);
        poise_trace_event(POISE_TRACE_USER, 1, 0, 0, 0);
        _exit(off && poise_trace_ring() ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(sum_of(view, POISE_TRACE_USER).count, 1);
    struct poise_trace_info info;
    poise_trace_info(view, &info);
    assert_false(info.ended);
    end(trace, view);
}

/* ---- the end ------------------------------------------------------------ */

static void *record_until(void *arg)
{
    while (!__atomic_load_n((bool *)arg, __ATOMIC_RELAXED)) {
        poise_trace_event(POISE_TRACE_USER, 1, 0, 0, 0);
    }
    return NULL;
}

/* Traces begin and stop while a thread records all the time. */
static void test_stop(void **state)
{
    (void)state;
    bool over = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, record_until, &over), 0);
    for (int i = 0; i < 20; i++) {
        struct poise_trace_view *view;
        struct poise_trace_info info;
        struct poise_trace *trace = begin(0, 16, &view);
        while (poise_trace_rings(view) == 0) {
            sched_yield();
        }
        poise_trace_stop(trace);
        assert_false(poise_trace_is_on());
        poise_trace_info(view, &info);
        assert_true(info.ended);
        poise_trace_close(view);
    }
    __atomic_store_n(&over, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_own_ring),
        cmocka_unit_test(test_threads_come_and_go),
        cmocka_unit_test(test_threads_together),
        cmocka_unit_test(test_too_few_rings),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_handler_in_between),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
