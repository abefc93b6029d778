/*
 * The task pool over several ranks: worlds inside this process, with delays,
 * reordering and loss; policies, termination, streams, stops, statistics.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../share.h"
#include "task/internal.h"

#include "tree.h"

#include <errno.h>

enum { MOST_RANKS = 8, MOST_WORKERS = 16 };

/** What all ranks of a run share. */
struct job {
    struct tree tree;
    struct poise_pool_options options;
    struct poise_local_options local;
    uint64_t nodes, ids; /**< committed; atomic */
    uint64_t broken;
    uint64_t said, received; /**< sums of ids; atomic but for said */
    bool talks;
    uint64_t stop_at;
    int stop_value, stop_rank;
    uint64_t nap_ns; /**< per task */
    uint64_t lost_ns;
    uint64_t fail_send; /**< which, after the pool was made; 0: none */
    bool (*divert)(struct poise_pool *pool, int dest,
                   const struct poise_buf *message, void *arg);
    bool plain; /**< see struct task_token */
    int hold;   /**< tokens that overtake the diverted message */
    void (*check)(struct poise_pool *pool, struct job *job);
    uint64_t messages, given; /**< over all ranks; atomic */
    uint64_t last_said[MOST_RANKS];
    int size;
};

/** One rank of it. */
struct side {
    struct job *job;
    struct poise_world *world;
    pthread_t thread;
    int code;
    bool failed_create;
    struct {
        uint64_t nodes, ids, said;
    } private[MOST_WORKERS];
    uint64_t held; /**< for divert */
    struct poise_buf kept;
    int kept_dest, passed;
};

static void side_commit(struct poise_worker *worker, void *arg)
{
    struct side *side = arg;
    unsigned i = poise_worker_index(worker);
    __atomic_fetch_add(&side->job->nodes, side->private[i].nodes,
                       __ATOMIC_RELAXED);
    __atomic_fetch_add(&side->job->ids, side->private[i].ids, __ATOMIC_RELAXED);
    side->private[i].nodes = side->private[i].ids = 0;
}

static bool side_waits(const struct side *side, int rank)
{
    const struct job *job = side->job;
    if (job->stop_rank > 0) {
        return rank != job->stop_rank;
    }
    return job->divert && rank == 0 && side->kept.len == 0;
}

static int side_run(struct poise_worker *worker, const void *task, size_t len,
                    void *arg)
{
    struct side *side = arg;
    struct job *job = side->job;
    struct tree_node node;
    memcpy(&node, task, len);
    if (!tree_intact(&node, len)) {
        __atomic_fetch_add(&job->broken, 1, __ATOMIC_RELAXED);
    }
    unsigned index = poise_worker_index(worker);
    side->private[index].nodes++;
    side->private[index].ids += node.id;
    int rank = poise_world_rank(side->world);
    if (job->stop_at > 0 && (job->stop_rank < 0 || rank == job->stop_rank) &&
        __atomic_load_n(&job->nodes, __ATOMIC_RELAXED) >= job->stop_at) {
        if (job->stop_value < 0) {
            return poise_error_set(-job->stop_value, "visit", "a node", NULL);
        }
        poise_task_stop(worker, job->stop_value);
    }
    int code = 0;
    if (job->talks) {
        uint64_t number = side->private[index].said++;
        uint64_t piece[] = {node.id, number};
        code = poise_task_emit(worker, piece, sizeof piece);
        if (code == 0) {
            code = poise_task_send(worker, (int)(node.id % (unsigned)job->size),
                                   &node.id, sizeof node.id);
        }
    }
    /* Where it matters who gets what, the others wait for it. */
    while (node.depth > 0 && side_waits(side, rank) &&
           poise_task_poll(worker) == 0) {
        poise_sleep_ns(20000);
    }
    if (job->nap_ns > 0) {
        poise_sleep_ns(job->nap_ns);
    }
    unsigned width = tree_width(&job->tree, &node);
    for (unsigned i = 0; i < width && code == 0; i++) {
        struct tree_node child = tree_child(&node, i);
        code = poise_task_add(worker, &child, tree_bytes(&child), 0);
    }
    return code;
}

static int side_deliver(int source, const void *data, size_t len, void *arg)
{
    struct side *side = arg;
    uint64_t piece[2];
    assert_int_equal(len, sizeof piece);
    memcpy(piece, data, len);
    side->job->said += piece[0];
    /* With one worker a rank the pieces come in their order. */
    if (side->job->options.threads <= 1) {
        assert_int_equal(piece[1], side->job->last_said[source]++);
    }
    return 0;
}

static int side_receive(struct poise_worker *worker, int source,
                        const void *data, size_t len, void *arg)
{
    struct side *side = arg;
    (void)worker;
    (void)source;
    uint64_t id;
    assert_int_equal(len, sizeof id);
    memcpy(&id, data, len);
    __atomic_fetch_add(&side->job->received, id, __ATOMIC_RELAXED);
    return 0;
}

static void side_check(struct side *side, struct poise_pool *pool)
{
    const struct poise_pool_stats *stats = poise_pool_stats(pool);
    for (int i = 0; i < stats->size; i++) {
        __atomic_fetch_add(&side->job->messages, stats->messages[i],
                           __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&side->job->given, stats->tasks_given, __ATOMIC_RELAXED);
    if (side->job->check) {
        side->job->check(pool, side->job);
    }
}

static void *side_main(void *arg)
{
    struct side *side = arg;
    struct job *job = side->job;
    struct poise_pool_hooks hooks = {.run = side_run,
                                     .commit = side_commit,
                                     .deliver = side_deliver,
                                     .receive = side_receive,
                                     .arg = side};
    struct poise_pool *pool;
    side->code = poise_pool_create(side->world, &job->options, &hooks, &pool);
    if (side->code < 0) {
        side->failed_create = true;
        return NULL;
    }
    if (poise_world_rank(side->world) == 0) {
        struct tree_node root = tree_root(&job->tree);
        side->code = poise_pool_add(pool, &root, tree_bytes(&root));
    }
    if (job->lost_ns > 0) {
        pool->net.lost_ns = job->lost_ns;
    }
    if (job->fail_send > 0 && poise_world_rank(side->world) == 0) {
        poise_fault_arm(POISE_FAULT_SEND, job->fail_send, EIO, false);
    }
    pool->net.token.plain = job->plain;
    pool->net.divert = job->divert;
    pool->net.divert_arg = side;
    side->code = poise_pool_run(pool);
    side_check(side, pool);
    poise_pool_destroy(pool);
    return NULL;
}

/* All ranks, one thread each; returns rank 0's code, which is everybody's. */
static int job_go(struct job *job, int size)
{
    struct poise_world *worlds[MOST_RANKS];
    struct side *sides = poise_alloc(MOST_RANKS, sizeof *sides);
    job->size = size;
    job->nodes = job->ids = 0;
    assert_int_equal(poise_world_create_local(size, &job->local, worlds), 0);
    for (int i = 0; i < size; i++) {
        sides[i].job = job;
        sides[i].world = worlds[i];
        assert_int_equal(
            pthread_create(&sides[i].thread, NULL, side_main, &sides[i]), 0);
    }
    int code = 0;
    for (int i = 0; i < size; i++) {
        pthread_join(sides[i].thread, NULL);
        poise_world_destroy(worlds[i]);
        poise_buf_free(&sides[i].kept);
        if (i == 0) {
            code = sides[0].code;
        } else {
            assert_int_equal(sides[i].code, code);
        }
    }
    free(sides);
    return code;
}

static void job_expect(struct job *job, int size)
{
    struct tree_sum want = tree_count(&job->tree);
    assert_int_equal(job_go(job, size), 0);
    assert_int_equal(job->nodes, want.nodes);
    assert_int_equal(job->ids, want.ids);
    assert_int_equal(job->broken, 0);
}

static const struct tree small_tree = {1, 60, 5, 15};
static const struct tree medium_tree = {3, 400, 8, 11};

static void test_policies(void **state)
{
    (void)state;
    for (int policy = 0; poise_policy_names[policy]; policy++) {
        for (int split = 0; poise_split_names[split]; split++) {
            for (int size = 1; size <= 8; size += size < 3 ? 1 : 5) {
                struct job job = {.tree = small_tree};
                job.options.policy = (enum poise_policy)policy;
                job.options.split = (enum poise_split)split;
                job.options.threads = 2;
                job_expect(&job, size);
            }
        }
    }
}

static void test_delayed_and_reordered(void **state)
{
    (void)state;
    for (int policy = 0; poise_policy_names[policy]; policy++) {
        struct job job = {.tree = {5, 30, 4, 20}};
        job.options.policy = (enum poise_policy)policy;
        job.options.threads = 1 + (unsigned)policy % 2;
        job.options.batch = 3;
        job.local = (struct poise_local_options){
            .delay_max_ns = 300000, .reorder = true, .seed = (uint64_t)policy};
        job_expect(&job, 4);
    }
}

static void test_topology(void **state)
{
    (void)state;
    for (int size = 5; size <= 8; size++) {
        struct job job = {.tree = medium_tree};
        job.options.policy = POISE_POLICY_NEAR;
        job.options.split = POISE_SPLIT_HALF;
        job.local.topology = "2x2x2";
        job_expect(&job, size);
    }
}

static void test_queue_spills(void **state)
{
    (void)state;
    struct job job = {.tree = medium_tree};
    job.options.policy = POISE_POLICY_RANDOM;
    job.options.queue_bytes = 4000;
    job_expect(&job, 3);
}

static void test_streams(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct job job = {.tree = medium_tree, .talks = true};
        struct tree_sum want = tree_count(&job.tree);
        job.options.policy = POISE_POLICY_HYBRID;
        job.options.threads = threads;
        job.local = (struct poise_local_options){
            .delay_max_ns = 200000, .reorder = true, .seed = threads};
        job_expect(&job, 3);
        assert_int_equal(job.said, want.ids);
        assert_int_equal(job.received, want.ids);
    }
}

static void test_stops(void **state)
{
    (void)state;
    for (int policy = 0; poise_policy_names[policy]; policy++) {
        for (int rank = -1; rank < 3; rank += 2) {
            struct job job = {.tree = medium_tree, .stop_rank = rank};
            job.options.policy = (enum poise_policy)policy;
            job.stop_at = rank < 0 ? 200 : 1;
            job.nap_ns = 20000;
            job.stop_value = 5;
            assert_int_equal(job_go(&job, 3), 5);
            job.stop_value = -EACCES;
            assert_int_equal(job_go(&job, 3), -EACCES);
        }
    }
}

static void test_interrupt(void **state)
{
    (void)state;
    static int signal;
    __atomic_store_n(&signal, 15, __ATOMIC_RELAXED);
    struct job job = {.tree = medium_tree, .nap_ns = 100000};
    job.options.policy = POISE_POLICY_NEAR;
    job.options.interrupt = &signal;
    assert_int_equal(job_go(&job, 3), -EINTR);
}

static void test_many_tiny(void **state)
{
    (void)state;
    unsigned most = getenv("POISE_TEST_SOAK") ? 10000 : 200;
    for (unsigned i = 0; i < most; i++) {
        /* Ranks go round by eight. */
        if (!in_share(i + i / 8)) {
            continue;
        }
        struct job job = {.tree = {i, i % 9, 2, 40}};
        job.options.policy = (enum poise_policy)(i % 5);
        job.options.split = (enum poise_split)(i / 5 % 2);
        job.options.threads = 1 + i % 3;
        job_expect(&job, 1 + (int)(i % 8));
    }
}

/* ---- termination -------------------------------------------------------- */

/* The channel keeps the first message with tasks that rank 0 gives away until
 * rank 0 has sent so many tokens: the same schedule in every run. */
static bool divert_late(struct poise_pool *pool, int dest,
                        const struct poise_buf *message, void *arg)
{
    struct side *side = arg;
    struct task_head head;
    memcpy(&head, message->data, sizeof head);
    if (pool->rank != 0) {
        return false;
    }
    if (head.kind == TASK_GIVE && side->kept.len == 0 && side->passed == 0) {
        poise_buf_append(&side->kept, message->data, message->len);
        side->kept_dest = dest;
        return true;
    }
    if (head.kind == TASK_TOKEN && ++side->passed == side->job->hold &&
        side->kept.len > 0) {
        task_net_post(pool, side->kept_dest, side->kept.data, side->kept.len);
    }
    return false;
}

static void test_message_in_flight(void **state)
{
    (void)state;
    struct job job = {.tree = {9, 40, 2, 10}, .nap_ns = 100000};
    struct tree_sum want = tree_count(&job.tree);
    job.options.policy = POISE_POLICY_NEAR;
    job.divert = divert_late;
    job.hold = 5;
    job_expect(&job, 3);
    assert_true(job.given > 0);
    /* The paper's rule sees everybody idle, and ends without those tasks. */
    job.plain = true;
    job.hold = 1000;
    job.given = 0;
    assert_int_equal(job_go(&job, 3), 0);
    assert_true(job.given > 0);
    assert_true(job.nodes < want.nodes);
}

static void test_lost_messages(void **state)
{
    (void)state;
    int lost = 0;
    for (unsigned seed = 0; seed < 6; seed++) {
        struct job job = {.tree = small_tree, .lost_ns = 150000000};
        struct tree_sum want = tree_count(&job.tree);
        job.nap_ns = 20000;
        job.options.policy = POISE_POLICY_RANDOM;
        job.local = (struct poise_local_options){.drop = 0.1, .seed = seed};
        int code = job_go(&job, 3);
        if (code == 0) {
            assert_int_equal(job.nodes, want.nodes);
            assert_int_equal(job.ids, want.ids);
        } else {
            assert_int_equal(code, -EPROTO);
            lost++;
        }
    }
    print_message("%d of 6 runs lost tasks\n", lost);
}

/* A message that cannot be sent is an error on all ranks; the next run works
 * as if nothing had been. */
static void test_failing_sends(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= 40; k++) {
        struct job job = {.tree = small_tree, .lost_ns = 100000000};
        job.nap_ns = 10000;
        job.options.policy = (enum poise_policy)(k % 5);
        job.fail_send = k;
        int code = job_go(&job, 3);
        bool struck = poise_fault_calls(POISE_FAULT_SEND) >= k;
        poise_fault_arm(POISE_FAULT_SEND, 0, 0, false);
        assert_int_equal(code, struck ? -EIO : 0);
    }
}

/* ---- messages and figures ----------------------------------------------- */

static void test_few_messages(void **state)
{
    (void)state;
    uint64_t counts[5];
    for (int policy = 0; poise_policy_names[policy]; policy++) {
        struct job job = {.tree = {4, 1000, 6, 15}};
        job.options.policy = (enum poise_policy)policy;
        job.options.split = POISE_SPLIT_HALF;
        job_expect(&job, 4);
        counts[policy] = job.messages;
    }
    print_message("central %llu keep %llu random %llu near %llu hybrid %llu\n",
                  (unsigned long long)counts[0], (unsigned long long)counts[1],
                  (unsigned long long)counts[2], (unsigned long long)counts[3],
                  (unsigned long long)counts[4]);
    assert_true(counts[POISE_POLICY_NEAR] * 10 < counts[POISE_POLICY_CENTRAL]);
    assert_true(counts[POISE_POLICY_HYBRID] * 10 <
                counts[POISE_POLICY_CENTRAL]);
}

static void check_stats(struct poise_pool *pool, struct job *job)
{
    struct poise_pool_stats *all = NULL;
    assert_int_equal(poise_pool_stats_gather(pool, &all), 0);
    if (pool->rank != 0) {
        assert_null(all);
        return;
    }
    uint64_t tasks = 0, got = 0, given = 0;
    for (int i = 0; i < pool->size; i++) {
        assert_int_equal(all[i].rank, i);
        assert_int_equal(all[i].size, pool->size);
        assert_int_equal(all[i].messages[i], 0);
        for (unsigned w = 0; w < all[i].worker_count; w++) {
            tasks += all[i].workers[w].tasks;
        }
        got += all[i].steal_got;
        given += all[i].tasks_given;
    }
    assert_int_equal(tasks, tree_count(&job->tree).nodes);
    assert_true(got > 0);
    assert_true(given >= got);
    poise_pool_stats_free(all, pool->size);
}

static void test_stats(void **state)
{
    (void)state;
    struct job job = {.tree = medium_tree, .check = check_stats};
    job.nap_ns = 10000;
    job.options.policy = POISE_POLICY_NEAR;
    job_expect(&job, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_delayed_and_reordered),
        cmocka_unit_test(test_topology),
        cmocka_unit_test(test_queue_spills),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_many_tiny),
        cmocka_unit_test(test_message_in_flight),
        cmocka_unit_test(test_lost_messages),
        cmocka_unit_test(test_failing_sends),
        cmocka_unit_test(test_few_messages),
        cmocka_unit_test(test_stats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
