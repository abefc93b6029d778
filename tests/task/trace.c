/*
 * What the threads of a pool record: each of them in a ring of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poise/core.h>
#include <poise/task.h>
#include <poise/trace.h>

#include <stdio.h>
#include <string.h>

enum { THREADS = 3, TASKS = 50 };

struct crowd {
    unsigned inside; /**< workers that have begun their first task; atomic */
    bool seen[THREADS];
};

/* Nobody goes on before every thread has a task. */
static int run_together(struct poise_worker *worker, const void *task,
                        size_t len, void *arg)
{
    struct crowd *crowd = arg;
    unsigned mine = poise_worker_index(worker);
    (void)task;
    (void)len;
    poise_trace_event(POISE_TRACE_USER, 0, 0, mine, 0);
    if (!crowd->seen[mine]) {
        crowd->seen[mine] = true;
        __atomic_fetch_add(&crowd->inside, 1, __ATOMIC_SEQ_CST);
    }
    while (__atomic_load_n(&crowd->inside, __ATOMIC_SEQ_CST) < THREADS) {
        poise_sleep_ns(10000);
    }
    return 0;
}

static void run_crowd(struct poise_pool **out)
{
    static struct crowd crowd;
    crowd = (struct crowd){0};
    struct poise_pool_hooks hooks = {.run = run_together, .arg = &crowd};
    struct poise_pool_options options = {.threads = THREADS, .seed = 1};
    assert_int_equal(poise_pool_create(NULL, &options, &hooks, out), 0);
    for (int i = 0; i < TASKS; i++) {
        assert_int_equal(poise_pool_add(*out, &i, sizeof i), 0);
    }
    assert_int_equal(poise_pool_run(*out), 0);
}

/* The events of one kind in a ring; all of them are by worker *who. */
static uint64_t count_kind(struct poise_trace_view *view, unsigned ring,
                           uint32_t kind, unsigned *who)
{
    struct poise_trace_event events[1024];
    struct poise_trace_cursor cursor;
    uint64_t count = 0;
    assert_int_equal(poise_trace_cursor(view, ring, &cursor), 0);
    size_t got = poise_trace_read(&cursor, 1024, events);
    assert_true(got > 0 && got < 1024);
    for (size_t i = 0; i < got; i++) {
        if (events[i].collector == kind) {
            if (count++ == 0) {
                *who = (unsigned)events[i].values[2];
            }
            assert_int_equal(events[i].values[2], *who);
        }
    }
    return count;
}

static struct poise_trace *begin(unsigned rings, struct poise_trace_view **view)
{
    struct poise_trace *trace;
    struct poise_trace_options options = {.rings_max = rings, .capacity = 1024};
    assert_int_equal(poise_trace_create(NULL, &options, &trace), 0);
    assert_int_equal(poise_trace_view_of(trace, view), 0);
    poise_trace_use(trace);
    return trace;
}

static void test_ring_per_thread(void **state)
{
    (void)state;
    struct poise_trace_view *view;
    struct poise_pool *pool;
    struct poise_trace *trace = begin(0, &view);
    poise_trace_name("caller");
    run_crowd(&pool);
    const struct poise_pool_stats *stats = poise_pool_stats(pool);
    assert_int_equal(poise_trace_rings(view), THREADS);
    bool seen[THREADS] = {false};
    for (unsigned i = 0; i < THREADS; i++) {
        struct poise_trace_ring_info info;
        unsigned who = THREADS;
        char want[32];
        uint64_t tasks = count_kind(view, i, POISE_TRACE_TASK_BEGIN, &who);
        assert_true(who < THREADS);
        assert_false(seen[who]);
        seen[who] = true;
        assert_int_equal(tasks, stats->workers[who].tasks);
        assert_int_equal(count_kind(view, i, POISE_TRACE_TASK_END, &who),
                         tasks);
        assert_int_equal(count_kind(view, i, POISE_TRACE_USER, &who), tasks);
        assert_int_equal(poise_trace_ring_info(view, i, &info), 0);
        snprintf(want, sizeof want, who == 0 ? "caller" : "worker %u", who);
        assert_string_equal(info.name, want);
    }
    poise_trace_use(NULL);
    poise_trace_close(view);
    poise_pool_destroy(pool);
    poise_trace_destroy(trace);
}

/* With fewer rings than threads all work is done, some of it unrecorded. */
static void test_too_few_rings(void **state)
{
    (void)state;
    struct poise_trace_view *view;
    struct poise_pool *pool;
    uint64_t tasks = 0;
    struct poise_trace *trace = begin(1, &view);
    run_crowd(&pool);
    const struct poise_pool_stats *stats = poise_pool_stats(pool);
    for (unsigned i = 0; i < stats->worker_count; i++) {
        tasks += stats->workers[i].tasks;
    }
    assert_int_equal(tasks, TASKS);
    assert_int_equal(poise_trace_rings(view), 1);
    poise_trace_use(NULL);
    poise_trace_close(view);
    poise_pool_destroy(pool);
    poise_trace_destroy(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_per_thread),
        cmocka_unit_test(test_too_few_rings),
    };
    return cmocka_run_group_tests_name("task_trace", tests, NULL, NULL);
}
