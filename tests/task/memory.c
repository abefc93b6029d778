/*
 * Tasks that refer to memory: packed and dropped where they are spilled, the
 * pool stops, or any one allocation fails.
 */
#include "job.h"

#include <fcntl.h>
#include <unistd.h>

/* A task is a pointer to a box; the box holds the node. */
static void *box_make(struct job *job, const struct tree_node *node)
{
    struct tree_node *box = poise_alloc(1, sizeof *box);
    if (box) {
        memcpy(box, node, tree_bytes(node));
        __atomic_fetch_add(&job->live, 1, __ATOMIC_RELAXED);
    }
    return box;
}

static void box_drop(const void *task, size_t len, void *arg)
{
    struct job *job = arg;
    void *box;
    assert_int_equal(len, sizeof box);
    memcpy(&box, task, sizeof box);
    free(box);
    __atomic_fetch_sub(&job->live, 1, __ATOMIC_RELAXED);
}

static int box_pack(const void *task, size_t len, struct poise_buf *out,
                    void *arg)
{
    (void)len;
    (void)arg;
    struct tree_node *box;
    memcpy(&box, task, sizeof box);
    return poise_buf_append(out, box, tree_bytes(box));
}

static int box_unpack(const void *packed, size_t len, struct poise_buf *out,
                      void *arg)
{
    struct tree_node node;
    memcpy(&node, packed, len);
    void *box = box_make(arg, &node);
    if (!box) {
        return -ENOMEM;
    }
    int code = poise_buf_append(out, &box, sizeof box);
    if (code < 0) {
        box_drop(&box, sizeof box, arg);
    }
    return code;
}

static int box_run(struct poise_worker *worker, const void *task, size_t len,
                   void *arg)
{
    struct job *job = arg;
    struct tree_node *box;
    memcpy(&box, task, sizeof box);
    job_visit(worker, job, box, tree_bytes(box));
    unsigned width = tree_width(&job->tree, box);
    int code = 0;
    for (unsigned i = 0; i < width && code == 0; i++) {
        struct tree_node child = tree_child(box, i);
        void *made = box_make(job, &child);
        code = made ? poise_task_add(worker, &made, sizeof made,
                                     sizeof(struct tree_node))
                    : -ENOMEM;
        if (code < 0 && made) {
            box_drop(&made, sizeof made, job);
        }
    }
    if (job->stop_at > 0 && code == 0 &&
        __atomic_load_n(&job->committed.nodes, __ATOMIC_RELAXED) >=
            job->stop_at) {
        poise_task_stop(worker, job->stop_value);
    }
    /* Nothing of the task may be looked at by others when it is released. */
    if (code == 0) {
        code = poise_task_commit(worker, NULL, 0);
    }
    box_drop(task, len, arg);
    return code;
}

static int box_go(struct job *job, const struct poise_pool_options *options,
                  struct poise_pool **out)
{
    struct poise_pool_hooks hooks = {.run = box_run,
                                     .pack = box_pack,
                                     .unpack = box_unpack,
                                     .drop = box_drop,
                                     .commit = job_commit,
                                     .arg = job};
    struct poise_pool *pool = NULL;
    struct tree_node root = tree_root(&job->tree);
    job->committed = (struct tree_sum){0};
    memset(job->private, 0, sizeof job->private);
    *out = NULL;
    int code = poise_pool_create(NULL, options, &hooks, &pool);
    if (code < 0) {
        return code;
    }
    void *box = box_make(job, &root);
    code = box ? poise_pool_add(pool, &box, sizeof box) : -ENOMEM;
    if (code < 0 && box && poise_pool_stats(pool)->tasks_queued == 0) {
        box_drop(&box, sizeof box, job);
    }
    if (code == 0) {
        code = poise_pool_run(pool);
    }
    *out = pool;
    return code;
}

/* A queue far too small: most tasks go through the file, and come back. */
static void test_spill(void **state)
{
    (void)state;
    struct tree_sum want = tree_count(&large_tree);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct job job = job_of(large_tree);
        struct poise_pool_options options = {.threads = threads,
                                             .queue_bytes = 20000};
        struct poise_pool *pool;
        assert_int_equal(box_go(&job, &options, &pool), 0);
        assert_int_equal(job.committed.nodes, want.nodes);
        assert_int_equal(job.committed.ids, want.ids);
        assert_int_equal(job.broken, 0);
        assert_true(poise_pool_stats(pool)->spilled_tasks > 500);
        assert_true(poise_pool_stats(pool)->spilled_bytes > 10000);
        poise_pool_destroy(pool);
        assert_int_equal(job.live, 0);
    }
}

static void test_spill_full_disk(void **state)
{
    (void)state;
    struct job job = job_of(large_tree);
    struct poise_pool_options options = {.threads = 2, .queue_bytes = 20000};
    struct poise_pool *pool;
    poise_fault_arm(POISE_FAULT_WRITE, 3, ENOSPC, true);
    assert_int_equal(box_go(&job, &options, &pool), -ENOSPC);
    poise_fault_arm(POISE_FAULT_WRITE, 0, 0, false);
    assert_string_equal(poise_error_last()->what, "file of queued tasks");
    poise_pool_destroy(pool);
    assert_int_equal(job.live, 0);
}

static void test_spill_no_directory(void **state)
{
    (void)state;
    struct job job = job_of(large_tree);
    struct poise_pool_options options = {.queue_bytes = 20000,
                                         .spill_dir = "/nonexistent/here"};
    struct poise_pool *pool;
    assert_int_equal(box_go(&job, &options, &pool), -ENOENT);
    poise_pool_destroy(pool);
    assert_int_equal(job.live, 0);
}

static void test_stop(void **state)
{
    (void)state;
    uint64_t all = tree_count(&large_tree).nodes;
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct job job = job_of(large_tree);
        job.stop_at = all / 2;
        job.stop_value = 17;
        struct poise_pool_options options = {.threads = threads};
        struct poise_pool *pool;
        assert_int_equal(box_go(&job, &options, &pool), 17);
        assert_in_range(job.committed.nodes, all / 2, all - 1);
        poise_pool_destroy(pool);
        assert_int_equal(job.live, 0);
    }
}

/* Every single allocation fails in turn: an error, no leak, no crash, and
 * never a wrong count. */
static void test_faults(void **state)
{
    (void)state;
    struct tree tree = {11, 60, 5, 15};
    struct tree_sum want = tree_count(&tree);
    for (unsigned threads = 1; threads <= 2; threads++) {
        int fine = 0;
        for (uint64_t k = 1; fine < 1 && k < 100000; k++) {
            struct job job = job_of(tree);
            struct poise_pool_options options = {.threads = threads,
                                                 .queue_bytes = 3000};
            struct poise_pool *pool;
            poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
            int code = box_go(&job, &options, &pool);
            uint64_t calls = poise_fault_calls(POISE_FAULT_ALLOC);
            poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
            poise_pool_destroy(pool);
            assert_int_equal(job.live, 0);
            if (code == 0) {
                assert_int_equal(job.committed.nodes, want.nodes);
                fine += calls < k;
            } else {
                assert_int_equal(code, -ENOMEM);
            }
        }
        assert_int_equal(fine, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spill),
        cmocka_unit_test(test_spill_full_disk),
        cmocka_unit_test(test_spill_no_directory),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
