/*
 * The task pool in one process: commit and rest, threads that steal, order,
 * errors and interrupts, output and messages.
 */
#include "job.h"

static void test_run_counts(void **state)
{
    (void)state;
    struct tree_sum want = tree_count(&large_tree);
    for (unsigned threads = 1; threads <= 4; threads++) {
        for (unsigned slices = 0; slices < 3; slices++) {
            struct job job = job_of(large_tree);
            job.slices = slices;
            struct poise_pool_hooks hooks = job_hooks(&job);
            struct poise_pool_options options = {.threads = threads, .seed = 5};
            struct poise_pool *pool = NULL;
            assert_int_equal(job_go(&job, &hooks, &options, &pool), 0);
            assert_int_equal(job.committed.nodes, want.nodes);
            assert_int_equal(job.committed.ids, want.ids);
            assert_int_equal(job.broken, 0);
            const struct poise_pool_stats *stats = poise_pool_stats(pool);
            uint64_t tasks = 0;
            for (unsigned i = 0; i < stats->worker_count; i++) {
                tasks += stats->workers[i].tasks;
            }
            assert_int_equal(tasks, want.nodes);
            assert_int_equal(stats->tasks_queued, 0);
            assert_int_equal(stats->active_most, threads);
            poise_pool_destroy(pool);
        }
    }
}

/* A pool without any task ends at once; so does one whose only task adds
 * none. */
static void test_run_empty(void **state)
{
    (void)state;
    struct job job = job_of((struct tree){1, 0, 0, 0});
    struct poise_pool_hooks hooks = job_hooks(&job);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct poise_pool_options options = {.threads = threads};
        struct poise_pool *pool;
        assert_int_equal(poise_pool_create(NULL, &options, &hooks, &pool), 0);
        assert_int_equal(poise_pool_run(pool), 0);
        assert_int_equal(poise_pool_run(pool), -EINVAL);
        poise_pool_destroy(pool);
        assert_int_equal(job_go(&job, &hooks, &options, NULL), 0);
        assert_int_equal(job.committed.nodes, 1);
    }
}

static void test_many_tiny(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 300; i++) {
        struct tree tree = {i, i % 7, 2, 30};
        struct tree_sum want = tree_count(&tree);
        struct job job = job_of(tree);
        struct poise_pool_hooks hooks = job_hooks(&job);
        struct poise_pool_options options = {.threads = 1 + i % 4};
        assert_int_equal(job_go(&job, &hooks, &options, NULL), 0);
        assert_int_equal(job.committed.nodes, want.nodes);
    }
}

/* ---- order -------------------------------------------------------------- */

struct order {
    int seen[16], count;
};

static int order_run(struct poise_worker *worker, const void *task, size_t len,
                     void *arg)
{
    struct order *order = arg;
    int n;
    assert_int_equal(len, sizeof n);
    memcpy(&n, task, len);
    order->seen[order->count++] = n;
    int code = 0;
    if (n == 0) {
        /* Two commits: of each the first is the oldest. */
        for (int i = 1; i <= 4 && code == 0; i++) {
            code = poise_task_add(worker, &i, sizeof i, 0);
            if (i == 2) {
                code = poise_task_commit(worker, task, len);
            }
        }
    }
    return code;
}

/* Alone, a worker runs the newest first; the first added of a commit is the
 * oldest. */
static void test_order(void **state)
{
    (void)state;
    struct order order = {.count = 0};
    struct poise_pool_hooks hooks = {.run = order_run, .arg = &order};
    struct poise_pool *pool;
    int root = 0;
    assert_int_equal(poise_pool_create(NULL, NULL, &hooks, &pool), 0);
    assert_int_equal(poise_pool_add(pool, &root, sizeof root), 0);
    assert_int_equal(poise_pool_run(pool), 0);
    static const int want[] = {0, 4, 3, 2, 1};
    assert_int_equal(order.count, 5);
    assert_memory_equal(order.seen, want, sizeof want);
    poise_pool_destroy(pool);
}

/* ---- stopping ----------------------------------------------------------- */

/* The error of a worker thread is the caller's error. */
static void test_error(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct job job = job_of(large_tree);
        job.stop_at = 1000;
        job.stop_value = -EACCES;
        struct poise_pool_hooks hooks = job_hooks(&job);
        struct poise_pool_options options = {.threads = threads};
        assert_int_equal(job_go(&job, &hooks, &options, NULL), -EACCES);
        assert_string_equal(poise_error_last()->doing, "visit");
        assert_string_equal(poise_error_last()->what, "a node");
        assert_int_equal(poise_error_last()->code, EACCES);
    }
}

struct interrupted {
    struct job job;
    volatile int signal;
};

static int interrupted_run(struct poise_worker *worker, const void *task,
                           size_t len, void *arg)
{
    struct interrupted *it = arg;
    (void)task;
    (void)len;
    /* A task without an end, but for the poll. */
    __atomic_store_n((int *)&it->signal, 2, __ATOMIC_RELEASE);
    while (poise_task_poll(worker) == 0) {
        poise_sleep_ns(100000);
    }
    return 0;
}

static void test_interrupt(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct interrupted it = {.signal = 0};
        struct poise_pool_hooks hooks = {.run = interrupted_run, .arg = &it};
        struct poise_pool_options options = {.threads = threads,
                                             .interrupt = &it.signal};
        struct poise_pool *pool;
        assert_int_equal(poise_pool_create(NULL, &options, &hooks, &pool), 0);
        assert_int_equal(poise_pool_add(pool, "x", 1), 0);
        assert_int_equal(poise_pool_run(pool), -EINTR);
        poise_pool_destroy(pool);
    }
}

/* ---- emit and send ------------------------------------------------------ */

static int talk_deliver(int source, const void *data, size_t len, void *arg)
{
    struct job *job = arg;
    uint64_t id;
    assert_int_equal(source, 0);
    assert_int_equal(len, sizeof id);
    memcpy(&id, data, len);
    /* One at a time: no atomics needed. */
    job->delivered += id;
    return 0;
}

static int talk_receive(struct poise_worker *worker, int source,
                        const void *data, size_t len, void *arg)
{
    struct job *job = arg;
    assert_int_equal(source, 0);
    uint64_t id;
    assert_int_equal(len, sizeof id);
    memcpy(&id, data, len);
    __atomic_fetch_add(&job->received, id, __ATOMIC_RELAXED);
    /* A message may make tasks. */
    if (id % 16 == 0) {
        struct tree_node leaf = {.id = 16, .depth = UINT32_MAX};
        while (tree_width(&job->tree, &leaf) > 0) {
            leaf.id++;
        }
        leaf.fill = 0;
        return poise_task_add(worker, &leaf, tree_bytes(&leaf), 0);
    }
    return 0;
}

static int talk_run(struct poise_worker *worker, const void *task, size_t len,
                    void *arg)
{
    struct job *job = arg;
    struct tree_node node;
    memcpy(&node, task, len);
    if (node.depth == UINT32_MAX) {
        return 0;
    }
    int code = poise_task_emit(worker, &node.id, sizeof node.id);
    if (code == 0) {
        code = poise_task_send(worker, 0, &node.id, sizeof node.id);
    }
    job_visit(worker, job, &node, len);
    return code < 0 ? code : job_add_children(worker, job, &node);
}

static void test_talk(void **state)
{
    (void)state;
    struct tree_sum want = tree_count(&small_tree);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct job job = job_of(small_tree);
        struct poise_pool_hooks hooks = job_hooks(&job);
        hooks.run = talk_run;
        hooks.deliver = talk_deliver;
        hooks.receive = talk_receive;
        struct poise_pool_options options = {.threads = threads};
        assert_int_equal(job_go(&job, &hooks, &options, NULL), 0);
        assert_int_equal(job.committed.nodes, want.nodes);
        assert_int_equal(job.delivered, want.ids);
        assert_int_equal(job.received, want.ids);
    }
}

/* ---- wanted ------------------------------------------------------------- */

struct waits {
    int ran, wanted;
};

/* The first task holds a worker until somebody is out of work, then splits. */
static int wanted_run(struct poise_worker *worker, const void *task, size_t len,
                      void *arg)
{
    struct waits *waits = arg;
    (void)len;
    __atomic_fetch_add(&waits->ran, 1, __ATOMIC_RELAXED);
    if (*(const char *)task != 'a') {
        return 0;
    }
    while (!poise_task_wanted(worker)) {
        poise_sleep_ns(1000);
    }
    __atomic_fetch_add(&waits->wanted, 1, __ATOMIC_RELAXED);
    int code = poise_task_add(worker, "b", 1, 0);
    if (code == 0) {
        code = poise_task_commit(worker, "a", 1);
    }
    /* The other one takes it while this one still runs. */
    while (code == 0 && __atomic_load_n(&waits->ran, __ATOMIC_RELAXED) < 2) {
        poise_sleep_ns(1000);
    }
    return code;
}

static void test_wanted(void **state)
{
    (void)state;
    struct waits waits = {0};
    struct poise_pool_hooks hooks = {.run = wanted_run, .arg = &waits};
    struct poise_pool_options options = {.threads = 2};
    struct poise_pool *pool;
    assert_int_equal(poise_pool_create(NULL, &options, &hooks, &pool), 0);
    assert_int_equal(poise_pool_add(pool, "a", 1), 0);
    assert_int_equal(poise_pool_run(pool), 0);
    assert_int_equal(waits.wanted, 1);
    assert_int_equal(waits.ran, 2);
    const struct poise_pool_stats *stats = poise_pool_stats(pool);
    assert_true(stats->workers[0].stolen + stats->workers[1].stolen >= 1);
    poise_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_counts), cmocka_unit_test(test_run_empty),
        cmocka_unit_test(test_many_tiny),  cmocka_unit_test(test_order),
        cmocka_unit_test(test_error),      cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_talk),       cmocka_unit_test(test_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
