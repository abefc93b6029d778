/*
 * The task pool over a real MPI: started by tests/comm/mpi_run at several sizes
 * under each launcher. usage: pool CASE CHECKPOINT
 *
 *   all      every policy and split, ends, stops, errors, checkpoint and
 *            resume; says "ok N NAME"
 *   leave    run until interrupted, and leave a checkpoint
 *   resume   go on from it, on any number of ranks
 */
#include "tree.h"

#include <poise/checkpoint.h>
#include <poise/comm.h>
#include <poise/core.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 2, WORKERS_MOST = 8, STOP_VALUE = 40 };

static int failures;

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__,        \
                    poise_world_rank(world), #condition);                      \
            failures++;                                                        \
        }                                                                      \
    } while (0)

/** What a run does, and what came of it on this rank. */
struct job {
    struct poise_world *world;
    struct tree tree;
    struct poise_pool_options options;
    bool fresh; /**< from the root, not from a checkpoint */
    bool talks; /**< every node is sent to a rank, and emitted to rank 0 */
    /** After so many nodes of this rank: 0 never. */
    uint64_t stop_at, fail_at, interrupt_at;
    int signal;            /**< atomic */
    uint64_t seen;         /**< nodes of this rank; atomic */
    uint64_t committed[3]; /**< nodes, ids, received ids; atomic */
    uint64_t private[WORKERS_MOST][3];
    uint64_t delivered; /**< rank 0: sum of ids */
    char error[200];    /**< of the run, if it failed */
};

static void job_commit(struct poise_worker *worker, void *arg)
{
    struct job *job = arg;
    uint64_t *mine = job->private[poise_worker_index(worker)];
    for (int i = 0; i < 3; i++) {
        __atomic_fetch_add(&job->committed[i], mine[i], __ATOMIC_RELAXED);
        mine[i] = 0;
    }
}

static int job_save(struct poise_buf *out, void *arg)
{
    struct job *job = arg;
    for (int i = 0; i < 3; i++) {
        poise_buf_u64(out,
                      __atomic_load_n(&job->committed[i], __ATOMIC_RELAXED));
    }
    return out->error;
}

static int job_load(const void *saved, size_t len, int from_rank, int from_size,
                    void *arg)
{
    struct job *job = arg;
    struct poise_reader reader = poise_reader_of(saved, len);
    (void)from_rank;
    (void)from_size;
    for (int i = 0; i < 3; i++) {
        job->committed[i] += poise_reader_u64(&reader);
    }
    return reader.error;
}

static int job_receive(struct poise_worker *worker, int source,
                       const void *data, size_t len, void *arg)
{
    struct job *job = arg;
    uint64_t id;
    (void)source;
    if (len != sizeof id) {
        return poise_error_set(EPROTO, "test", "receive", NULL);
    }
    memcpy(&id, data, len);
    job->private[poise_worker_index(worker)][2] += id;
    return 0;
}

static int job_deliver(int source, const void *data, size_t len, void *arg)
{
    struct job *job = arg;
    uint64_t id;
    (void)source;
    if (len != sizeof id) {
        return poise_error_set(EPROTO, "test", "delivered", NULL);
    }
    memcpy(&id, data, len);
    job->delivered += id;
    return 0;
}

static int job_talk(struct poise_worker *worker, struct job *job, uint64_t id)
{
    unsigned size = (unsigned)poise_world_size(job->world);
    int code = poise_task_send(worker, (int)(id % size), &id, sizeof id);
    return code < 0 ? code : poise_task_emit(worker, &id, sizeof id);
}

static int job_run(struct poise_worker *worker, const void *task, size_t len,
                   void *arg)
{
    struct job *job = arg;
    struct tree_node node;
    memcpy(&node, task, len);
    uint64_t seen = __atomic_add_fetch(&job->seen, 1, __ATOMIC_RELAXED);
    if (job->interrupt_at > 0 && seen >= job->interrupt_at) {
        /* Nothing of this task is done before the interrupt is heard. */
        __atomic_store_n(&job->signal, 15, __ATOMIC_RELAXED);
        while (poise_task_poll(worker) == 0) {
            poise_sleep_ns(50000);
        }
        return poise_task_commit(worker, task, len);
    }
    if (job->fail_at > 0 && seen >= job->fail_at) {
        return poise_error_set(EDOM, "test", "a node", "it is the %s", "last");
    }
    if (job->stop_at > 0 && seen >= job->stop_at) {
        poise_task_stop(worker, STOP_VALUE + poise_world_rank(job->world));
    }
    uint64_t *mine = job->private[poise_worker_index(worker)];
    mine[0] += tree_intact(&node, len);
    mine[1] += node.id;
    int code = job->talks ? job_talk(worker, job, node.id) : 0;
    unsigned width = tree_width(&job->tree, &node);
    for (unsigned i = 0; i < width && code == 0; i++) {
        struct tree_node child = tree_child(&node, i);
        code = poise_task_add(worker, &child, tree_bytes(&child), 0);
    }
    return code;
}

/* Collective. */
static int job_go(struct job *job)
{
    struct poise_pool_hooks hooks = {.run = job_run,
                                     .commit = job_commit,
                                     .save = job_save,
                                     .load = job_load,
                                     .receive = job_receive,
                                     .deliver = job_deliver,
                                     .arg = job};
    struct poise_pool *pool;
    struct poise_buf text = {0};
    job->options.interrupt = &job->signal;
    int code = poise_pool_create(job->world, &job->options, &hooks, &pool);
    if (code < 0) {
        return code;
    }
    if (job->fresh && poise_world_rank(job->world) == 0) {
        struct tree_node root = tree_root(&job->tree);
        code = poise_pool_add(pool, &root, tree_bytes(&root));
    }
    code = code < 0 ? code : poise_pool_run(pool);
    poise_error_format(poise_error_last(), &text);
    snprintf(job->error, sizeof job->error, "%s", poise_buf_str(&text));
    poise_buf_free(&text);
    poise_pool_destroy(pool);
    return code;
}

static struct job job_of(struct poise_world *world, struct tree tree)
{
    struct job job = {.world = world, .tree = tree, .fresh = true};
    job.options.policy = POISE_POLICY_HYBRID;
    job.options.split = POISE_SPLIT_HALF;
    job.options.threads = 1;
    job.options.seed = 3;
    return job;
}

/* Every node once, over all ranks. */
static void check_sums(struct job *job)
{
    struct poise_world *world = job->world;
    struct tree_sum want = tree_count(&job->tree);
    uint64_t sums[3];
    memcpy(sums, job->committed, sizeof sums);
    CHECK(poise_world_reduce(world, POISE_SUM, sums, 3) == 0);
    CHECK(sums[0] == want.nodes);
    CHECK(sums[1] == want.ids);
    CHECK(sums[2] == (job->talks ? want.ids : 0));
}

/* All ranks returned the same. */
static void check_alike(struct poise_world *world, int code)
{
    uint64_t range[2] = {(uint64_t)(int64_t)code, ~(uint64_t)(int64_t)code};
    CHECK(poise_world_reduce(world, POISE_MIN, range, 2) == 0);
    CHECK(range[0] == ~range[1]);
}

/* ---- cases -------------------------------------------------------------- */

static const struct tree small_tree = {1, 40, 4, 18};
static const struct tree medium_tree = {3, 200, 6, 14};

static void policies(struct poise_world *world)
{
    for (int i = 0; i < 10; i++) {
        struct job job = job_of(world, medium_tree);
        job.options.policy = (enum poise_policy)(i / 2);
        job.options.split = (enum poise_split)(i % 2);
        job.options.threads = i / 2 == POISE_POLICY_HYBRID ? THREADS : 1;
        job.options.batch = 4;
        job.talks = i % 2;
        CHECK(job_go(&job) == 0);
        check_sums(&job);
        if (job.talks && poise_world_rank(world) == 0) {
            CHECK(job.delivered == tree_count(&medium_tree).ids);
        }
    }
}

/* Trees of a few nodes end while messages are still under way. */
static void ends(struct poise_world *world)
{
    for (unsigned i = 0; i < 12; i++) {
        struct job job = job_of(world, (struct tree){i, i % 5, 2, 40});
        job.options.policy = (enum poise_policy)(i % 5);
        job.talks = i % 2;
        CHECK(job_go(&job) == 0);
        check_sums(&job);
    }
}

static void stops(struct poise_world *world)
{
    struct job job = job_of(world, medium_tree);
    job.stop_at = 50;
    int code = job_go(&job);
    CHECK(code >= STOP_VALUE && code < STOP_VALUE + poise_world_size(world));
    check_alike(world, code);
    job = job_of(world, medium_tree);
    job.fail_at = 50;
    code = job_go(&job);
    CHECK(code == -EDOM);
    CHECK(strstr(job.error, "'a node': it is the last"));
}

/* Interrupted with a last checkpoint; what is left is done by the next run. */
static void leave(struct poise_world *world, const char *checkpoint)
{
    struct job job = job_of(world, medium_tree);
    job.options.checkpoint = checkpoint;
    job.talks = true;
    job.interrupt_at = 30;
    CHECK(job_go(&job) == -EINTR);
}

static void resume(struct poise_world *world, const char *checkpoint)
{
    struct job job = job_of(world, medium_tree);
    job.options.resume = checkpoint;
    job.fresh = false;
    job.talks = true;
    CHECK(job_go(&job) == 0);
    check_sums(&job);
    if (poise_world_rank(world) == 0) {
        CHECK(poise_pool_checkpoint_remove(checkpoint) == 0);
    }
}

/* A cut every millisecond changes nothing. */
static void cuts(struct poise_world *world, const char *checkpoint)
{
    struct job job = job_of(world, small_tree);
    job.options.checkpoint = checkpoint;
    job.options.checkpoint_ns = 1000000;
    job.options.threads = THREADS;
    job.talks = true;
    CHECK(job_go(&job) == 0);
    check_sums(&job);
    if (poise_world_rank(world) == 0) {
        poise_pool_checkpoint_remove(checkpoint);
    }
}

static void run_all(struct poise_world *world, const char *checkpoint)
{
    policies(world);
    ends(world);
    stops(world);
    cuts(world, checkpoint);
    leave(world, checkpoint);
    resume(world, checkpoint);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct poise_world *world, const char *checkpoint);
    } cases[] = {{"all", run_all}, {"leave", leave}, {"resume", resume}};
    struct poise_world *world;
    if (argc != 3 || poise_world_create(NULL, &world) < 0) {
        return 2;
    }
    bool known = false;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            known = true;
            cases[i].run(world, argv[2]);
        }
    }
    uint64_t all = (uint64_t)failures + !known;
    CHECK(poise_world_reduce(world, POISE_SUM, &all, 1) == 0);
    if (poise_world_rank(world) == 0 && all == 0) {
        printf("ok %d %s\n", poise_world_size(world), poise_world_name(world));
    }
    poise_world_destroy(world);
    return all ? 1 : 0;
}
