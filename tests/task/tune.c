/*
 * How many tasks are in flight: what the controller decides, and that workers
 * which come and go lose no task.
 */
#include "../share.h"
#include "job.h"

/* How fast and how busy a machine is with `active` tasks in flight. */
struct model {
    double wait_share;    /**< of a task's time, with one in flight */
    unsigned cores, deep; /**< more than `deep` at once gain nothing */
};

static struct task_sample model_sample(const struct model *model,
                                       unsigned active)
{
    double parallel = active < model->deep ? active : model->deep;
    double work = 1 - model->wait_share;
    double rate = parallel; /* tasks of a millisecond each, per millisecond */
    double load = rate * work;
    if (load > model->cores) {
        rate = model->cores / work;
        load = parallel - rate * model->wait_share;
    }
    return (struct task_sample){.wall_ns = 10000000,
                                .cpu_ns = (uint64_t)(rate * work * 10000000),
                                .steps = (uint64_t)(rate * 1000),
                                .load = load};
}

static unsigned model_run(const struct model *model, struct task_tune *tune,
                          int samples)
{
    for (int i = 0; i < samples; i++) {
        struct task_sample sample = model_sample(model, tune->target);
        task_tune_step(tune, &sample);
    }
    return tune->target;
}

static void test_tune(void **state)
{
    (void)state;
    struct task_tune tune;
    /* Cold: the processor has little to do. 8 within 30 ms. */
    struct model cold = {0.95, 2, 64};
    task_tune_init(&tune, 2, 64, 2);
    assert_true(model_run(&cold, &tune, 3) >= 8);
    /* As many as keep the cores busy, in the end. */
    assert_in_range(model_run(&cold, &tune, 2000), 32, 64);
    /* The caches have become warm: noticed within two seconds. */
    struct model warm = {0.0, 2, 64};
    assert_int_equal(model_run(&warm, &tune, 200), 2);
    assert_int_equal(model_run(&warm, &tune, 1000), 2);
    /* A disk that does four things at once: no more than that pays. */
    struct model disk = {0.99, 2, 4};
    task_tune_init(&tune, 2, 64, 2);
    assert_in_range(model_run(&disk, &tune, 20), 4, 8);
    unsigned long sum = 0;
    for (int i = 0; i < 1000; i++) {
        sum += model_run(&disk, &tune, 1);
    }
    assert_true(sum < 5 * 1000);
    /* The server has got slower: fewer do. */
    disk.deep = 2;
    model_run(&disk, &tune, 3000);
    assert_in_range(tune.target, 2, 4);
    /* Without work for all of them more are no use. */
    task_tune_init(&tune, 2, 64, 2);
    for (int i = 0; i < 100; i++) {
        struct task_sample sample = {
            .wall_ns = 10000000, .steps = 10, .load = 0.1, .starved = true};
        assert_int_equal(task_tune_step(&tune, &sample), 2);
    }
}

struct sleepers {
    unsigned tasks, ran;
};

static int sleeper_run(struct poise_worker *worker, const void *task,
                       size_t len, void *arg)
{
    struct sleepers *sleepers = arg;
    int code = 0;
    (void)len;
    if (*(const char *)task == 'r') {
        for (unsigned i = 0; i < sleepers->tasks && code == 0; i++) {
            code = poise_task_add(worker, "l", 1, 0);
        }
        return code;
    }
    poise_sleep_ns(1000000);
    __atomic_fetch_add(&sleepers->ran, 1, __ATOMIC_RELAXED);
    return 0;
}

/* Workers come into being and go again; every task runs once. */
static void test_tuned_run(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct sleepers sleepers = {.tasks = 1500};
        struct poise_pool_hooks hooks = {.run = sleeper_run, .arg = &sleepers};
        struct poise_pool_options options = {.threads = threads,
                                             .threads_max = 16};
        struct poise_pool *pool;
        assert_int_equal(poise_pool_create(NULL, &options, &hooks, &pool), 0);
        assert_int_equal(poise_pool_workers(pool), 16);
        assert_int_equal(poise_pool_add(pool, "r", 1), 0);
        assert_int_equal(poise_pool_run(pool), 0);
        assert_int_equal(sleepers.ran, sleepers.tasks);
        assert_true(poise_pool_stats(pool)->active_most > threads);
        poise_pool_destroy(pool);
    }
}

/* Whatever the controller decides, and however often, no task is lost. */
static void *fidget(void *arg)
{
    struct poise_pool *pool = arg;
    for (unsigned i = 0; !__atomic_load_n(&pool->tune_over, __ATOMIC_SEQ_CST);
         i++) {
        __atomic_store_n(&pool->target, 1 + i % 4, __ATOMIC_SEQ_CST);
        poise_event_signal(&pool->unpark);
        poise_sleep_ns(20000);
    }
    return NULL;
}

static void parking_runs(struct tree tree, int runs)
{
    struct tree_sum want = tree_count(&tree);
    for (int i = 0; i < runs; i++) {
        if (!in_share((size_t)i)) {
            continue;
        }
        struct job job = job_of(tree);
        struct poise_pool_hooks hooks = job_hooks(&job);
        struct poise_pool_options options = {.threads = 4};
        struct tree_node root = tree_root(&job.tree);
        struct poise_pool *pool;
        pthread_t thread;
        assert_int_equal(poise_pool_create(NULL, &options, &hooks, &pool), 0);
        assert_int_equal(poise_pool_add(pool, &root, tree_bytes(&root)), 0);
        assert_int_equal(pthread_create(&thread, NULL, fidget, pool), 0);
        assert_int_equal(poise_pool_run(pool), 0);
        __atomic_store_n(&pool->tune_over, true, __ATOMIC_SEQ_CST);
        pthread_join(thread, NULL);
        assert_int_equal(job.committed.nodes, want.nodes);
        assert_int_equal(job.committed.ids, want.ids);
        poise_pool_destroy(pool);
    }
}

/* Much to do, and little: long chains, where most workers idle. */
static void test_parking(void **state)
{
    (void)state;
    parking_runs(large_tree, 10);
    parking_runs((struct tree){11, 300, 1, 99}, 100);
}

/* A worker that parks hands its tasks only to one that runs, not to one that is
 * not yet woken or started because the target has just risen: such tasks were
 * lost if no other worker was busy then. */
static void test_parking_alone(void **state)
{
    (void)state;
    struct job job = job_of(large_tree);
    struct poise_pool_hooks hooks = job_hooks(&job);
    struct poise_pool_options options = {.threads = 3};
    struct tree_node root = tree_root(&job.tree);
    struct poise_pool *pool;
    assert_int_equal(poise_pool_create(NULL, &options, &hooks, &pool), 0);
    struct poise_worker *last = &pool->workers[2];
    assert_int_equal(task_deque_push(&last->queue, &root, tree_bytes(&root), 0),
                     0);
    pool->target = 2;
    pool->busy = 1;
    for (int i = 0; i < 20; i++) {
        assert_false(task_park(last));
        assert_int_equal(last->queue.count, 1);
        assert_int_equal(task_state(pool), TASK_RUNNING);
    }
    assert_int_equal(pool->busy, 1);
    poise_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tune),
        cmocka_unit_test(test_tuned_run),
        cmocka_unit_test(test_parking),
        cmocka_unit_test(test_parking_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
