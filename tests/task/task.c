/*
 * The task pool in one process: deques, commit and rest, threads that steal,
 * spilling, stopping, errors; and everything again with memory that fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "task/internal.h"

#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* ---- deques ------------------------------------------------------------- */

/* Against a plain list: random pushes, pops at both ends, and moves. */
static void test_deque_model(void **state)
{
    (void)state;
    enum { MOST = 4096 };
    static struct {
        size_t len;
        unsigned char fill;
    } model[MOST * 4];
    size_t head = MOST * 2, tail = MOST * 2;
    struct task_deque deque = {0}, other = {0};
    struct poise_rng rng;
    poise_rng_seed(&rng, 7);
    char bytes[300];
    for (int step = 0; step < 60000; step++) {
        uint64_t what = poise_rng_below(&rng, 10);
        struct task_record record;
        if (what < 5 && tail - head < MOST && tail < MOST * 4) {
            size_t len = poise_rng_below(&rng, sizeof bytes);
            unsigned char fill = (unsigned char)poise_rng_next(&rng);
            memset(bytes, fill, len);
            assert_int_equal(task_deque_push(&deque, bytes, len, len), 0);
            model[tail].len = len;
            model[tail++].fill = fill;
        } else if (what < 7) {
            assert_int_equal(task_deque_newest(&deque, &record), tail > head);
            if (tail > head) {
                tail--;
                assert_int_equal(record.len, model[tail].len);
                for (size_t i = 0; i < record.len; i++) {
                    assert_int_equal(((const unsigned char *)record.data)[i],
                                     model[tail].fill);
                }
                assert_int_equal((uintptr_t)record.data % 8, 0);
                task_deque_pop_newest(&deque);
            }
        } else if (what < 9) {
            assert_int_equal(task_deque_oldest(&deque, &record), tail > head);
            if (tail > head) {
                assert_int_equal(record.len, model[head].len);
                assert_int_equal(record.footprint, model[head].len);
                head++;
                task_deque_pop_oldest(&deque);
            }
        } else {
            /* Away and back again: the same order. */
            size_t all = deque.count;
            assert_int_equal(task_deque_move(&deque, &other, all, SIZE_MAX),
                             all);
            assert_int_equal(deque.count, 0);
            assert_int_equal(deque.held, 0);
            assert_int_equal(task_deque_reserve(&deque, other.tail), 0);
            task_deque_append(&other, &deque);
        }
        assert_int_equal(deque.count, tail - head);
        if (head == tail) {
            head = tail = MOST * 2;
        }
    }
    task_deque_free(&deque);
    task_deque_free(&other);
}

static void test_deque_moves_by_bytes(void **state)
{
    (void)state;
    struct task_deque from = {0}, to = {0};
    char bytes[100] = {0};
    for (int i = 0; i < 10; i++) {
        assert_int_equal(task_deque_push(&from, bytes, 100, 5), 0);
    }
    /* At least one, however little was allowed. */
    assert_int_equal(task_deque_move(&from, &to, 10, 1), 1);
    /* A record takes 16 + 104 bytes. */
    assert_int_equal(task_deque_move(&from, &to, 10, 360), 3);
    assert_int_equal(to.held, 20);
    assert_int_equal(from.held, 30);
    assert_int_equal(from.count, 6);
    task_deque_free(&from);
    task_deque_free(&to);
}

/* ---- running trees ------------------------------------------------------ */

/** One run: what the workers counted, committed and not. */
struct job {
    struct tree tree;
    struct tree_sum committed; /**< atomic */
    struct tree_sum private[8];
    int broken;       /**< tasks that were not intact */
    unsigned slices;  /**< commit this often inside a task */
    uint64_t stop_at; /**< node count at which to stop; 0: never */
    int stop_value;   /**< its value; negative: an error */
    uint64_t live;    /**< boxes in existence (box_ functions) */
    uint64_t delivered;
    uint64_t received;
};

static void job_commit(struct poise_worker *worker, void *arg)
{
    struct job *job = arg;
    struct tree_sum *mine = &job->private[poise_worker_index(worker)];
    __atomic_fetch_add(&job->committed.nodes, mine->nodes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&job->committed.ids, mine->ids, __ATOMIC_RELAXED);
    *mine = (struct tree_sum){0};
}

static int job_visit(struct poise_worker *worker, struct job *job,
                     const struct tree_node *node, size_t len)
{
    struct tree_sum *mine = &job->private[poise_worker_index(worker)];
    mine->nodes++;
    mine->ids += node->id;
    if (!tree_intact(node, len)) {
        __atomic_fetch_add(&job->broken, 1, __ATOMIC_RELAXED);
    }
    return 0;
}

static int job_add_children(struct poise_worker *worker, struct job *job,
                            const struct tree_node *node)
{
    unsigned width = tree_width(&job->tree, node);
    int code = 0;
    for (unsigned i = 0; i < width && code == 0; i++) {
        struct tree_node child = tree_child(node, i);
        code = poise_task_add(worker, &child, tree_bytes(&child), 0);
        if (code == 0 && job->slices > 0 && i % job->slices == 0) {
            code = poise_task_commit(worker, node, tree_bytes(node));
        }
    }
    return code;
}

static int job_run(struct poise_worker *worker, const void *task, size_t len,
                   void *arg)
{
    struct job *job = arg;
    struct tree_node node;
    memcpy(&node, task, len);
    job_visit(worker, job, &node, len);
    if (job->stop_at > 0 && __atomic_load_n(&job->committed.nodes,
                                            __ATOMIC_RELAXED) >= job->stop_at) {
        if (job->stop_value < 0) {
            return poise_error_set(-job->stop_value, "visit", "a node", NULL);
        }
        poise_task_stop(worker, job->stop_value);
    }
    return job_add_children(worker, job, &node);
}

static struct poise_pool_hooks job_hooks(struct job *job)
{
    return (struct poise_pool_hooks){
        .run = job_run, .commit = job_commit, .arg = job};
}

static int job_go(struct job *job, const struct poise_pool_hooks *hooks,
                  const struct poise_pool_options *options,
                  struct poise_pool **out)
{
    struct poise_pool *pool;
    struct tree_node root = tree_root(&job->tree);
    job->committed = (struct tree_sum){0};
    memset(job->private, 0, sizeof job->private);
    int code = poise_pool_create(NULL, options, hooks, &pool);
    if (code < 0) {
        return code;
    }
    code = poise_pool_add(pool, &root, tree_bytes(&root));
    if (code == 0) {
        code = poise_pool_run(pool);
    }
    if (out) {
        *out = pool;
    } else {
        poise_pool_destroy(pool);
    }
    return code;
}

static struct job job_of(struct tree tree)
{
    return (struct job){.tree = tree};
}

static const struct tree small_tree = {1, 100, 5, 18};
static const struct tree large_tree = {3, 2000, 8, 12};

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

/* ---- tasks that refer to memory ----------------------------------------- */

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

/* ---- stopping ----------------------------------------------------------- */

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

/* ---- tasks in flight ---------------------------------------------------- */

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

/* Who parks hands its tasks to nobody who does not run: a worker not yet woken,
 * or not yet started, when the target has just risen. They were lost if nobody
 * else was busy then. */
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

/* ---- memory that fails -------------------------------------------------- */

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
        cmocka_unit_test(test_deque_model),
        cmocka_unit_test(test_deque_moves_by_bytes),
        cmocka_unit_test(test_run_counts),
        cmocka_unit_test(test_run_empty),
        cmocka_unit_test(test_many_tiny),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_spill),
        cmocka_unit_test(test_spill_full_disk),
        cmocka_unit_test(test_spill_no_directory),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_talk),
        cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_tune),
        cmocka_unit_test(test_tuned_run),
        cmocka_unit_test(test_parking),
        cmocka_unit_test(test_parking_alone),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
