/*
 * Progress over ranks: rank 0 learns what all of them have done.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poise/comm.h>
#include <poise/core.h>
#include <poise/task.h>

#include <pthread.h>

enum { RANKS = 5, DONE = 1000, TIMEOUT_NS = 2000000000 };

struct shared {
    bool seen;          /**< rank 0 saw the whole sum; atomic */
    unsigned calls;     /**< of hook progress; atomic */
    uint64_t most_done; /**< ever seen; rank 0's */
};

struct side {
    struct shared *shared;
    struct poise_world *world;
    pthread_t thread;
    bool asks;
    int code;
};

static uint64_t whole(void)
{
    return RANKS * DONE + RANKS * (RANKS - 1) / 2;
}

static uint64_t done(void *arg)
{
    const struct side *side = arg;
    return DONE + (uint64_t)poise_world_rank(side->world);
}

static void progress(const struct poise_pool_stats *stats, void *arg)
{
    const struct side *side = arg;
    struct shared *shared = side->shared;
    __atomic_fetch_add(&shared->calls, 1, __ATOMIC_SEQ_CST);
    shared->most_done = stats->sum.done;
    if (stats->sum.done == whole() && stats->sum.active >= RANKS) {
        __atomic_store_n(&shared->seen, true, __ATOMIC_SEQ_CST);
    }
}

/* A task lasts until rank 0 has seen everything; where it is not to, until two
 * calls could have come. */
static int run(struct poise_worker *worker, const void *task, size_t len,
               void *arg)
{
    const struct side *side = arg;
    uint64_t begin = poise_clock_ns();
    uint64_t timeout = side->asks ? 10 * (uint64_t)TIMEOUT_NS : 250000000;
    (void)task;
    (void)len;
    while (!__atomic_load_n(&side->shared->seen, __ATOMIC_SEQ_CST) &&
           poise_clock_ns() - begin < timeout && poise_task_poll(worker) == 0) {
        poise_sleep_ns(100000);
    }
    return 0;
}

static void *side_main(void *arg)
{
    struct side *side = arg;
    struct poise_pool_hooks hooks = {.run = run, .done = done, .arg = side};
    struct poise_pool_options options = {.policy = POISE_POLICY_CENTRAL,
                                         .seed = 1};
    struct poise_pool *pool;
    /* Only rank 0 shows it: the others hear from it that they are asked. */
    if (poise_world_rank(side->world) == 0) {
        hooks.progress = progress;
    }
    side->code = poise_pool_create(side->world, &options, &hooks, &pool);
    if (side->code < 0) {
        return NULL;
    }
    if (poise_world_rank(side->world) == 0) {
        side->code = poise_pool_add(pool, "task", 4);
    }
    side->code = poise_pool_run(pool);
    poise_pool_destroy(pool);
    return NULL;
}

static struct shared go(void)
{
    static const struct poise_local_options local = {0};
    struct poise_world *worlds[RANKS];
    struct side sides[RANKS];
    struct shared shared = {0};
    assert_int_equal(poise_world_create_local(RANKS, &local, worlds), 0);
    for (int i = 0; i < RANKS; i++) {
        sides[i] =
            (struct side){.shared = &shared, .world = worlds[i], .asks = true};
        assert_int_equal(
            pthread_create(&sides[i].thread, NULL, side_main, &sides[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(sides[i].thread, NULL);
        poise_world_destroy(worlds[i]);
        assert_int_equal(sides[i].code, 0);
    }
    return shared;
}

static void test_sum_of_all_ranks(void **state)
{
    (void)state;
    struct shared shared = go();
    assert_int_equal(shared.most_done, whole());
    assert_true(shared.seen);
}

/* One process: its own figures. */
static void test_alone(void **state)
{
    (void)state;
    struct shared shared = {0};
    struct side side = {.shared = &shared, .asks = true};
    struct poise_world *world;
    static const struct poise_local_options local = {0};
    assert_int_equal(poise_world_create_local(1, &local, &world), 0);
    side.world = world;
    struct poise_pool_hooks hooks = {
        .run = run, .done = done, .progress = progress, .arg = &side};
    struct poise_pool_options options = {.threads = 2, .seed = 1};
    struct poise_pool *pool;
    assert_int_equal(poise_pool_create(NULL, &options, &hooks, &pool), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(poise_pool_add(pool, "task", 4), 0);
    }
    side.asks = false; /* not so patient: it never sees five ranks */
    assert_int_equal(poise_pool_run(pool), 0);
    assert_true(shared.calls > 0);
    assert_int_equal(shared.most_done, DONE);
    poise_pool_destroy(pool);
    poise_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum_of_all_ranks),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests_name("task_progress", tests, NULL, NULL);
}
