/*
 * Checkpoints of the task pool: interrupted and killed jobs go on, on the same
 * and on other numbers of ranks, and count every node exactly once; what is
 * damaged is refused everywhere.
 */
#include <poise/checkpoint.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "task/internal.h"

#include "../temporary.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 8, MOST_WORKERS = 8 };
/** What poise_fault_arm takes for "the process kills itself there". */
enum { FAULT_KILLS = 4096 };

/** A task: the children of a node from the `from`-th on. */
struct item {
    uint32_t from, unused;
    struct tree_node node;
};

static size_t item_bytes(const struct item *item)
{
    return offsetof(struct item, node) + tree_bytes(&item->node);
}

/** One run over all ranks. */
enum { ENDING_NAP_NS = 5000000 };

struct job {
    struct tree tree;
    struct poise_pool_options options;
    struct poise_local_options local;
    int size;
    bool talks;
    uint64_t nap_ns;
    uint64_t interrupt_at; /**< nodes of this run; 0: never */
    int signal;            /**< atomic */
    uint64_t seen;         /**< nodes of this run; atomic */
    bool fresh;            /**< add the root */
    uint64_t sums[3]; /**< nodes, ids, received ids: of all ranks, at the end */
    uint64_t checkpoints, spilled;
    int settled, loaded;
};

struct side {
    struct job *job;
    struct poise_world *world;
    pthread_t thread;
    int code;
    uint64_t committed[3]; /**< of this rank; atomic */
    uint64_t private[MOST_WORKERS][3];
};

static void side_commit(struct poise_worker *worker, void *arg)
{
    struct side *side = arg;
    uint64_t *mine = side->private[poise_worker_index(worker)];
    for (int i = 0; i < 3; i++) {
        __atomic_fetch_add(&side->committed[i], mine[i], __ATOMIC_RELAXED);
        mine[i] = 0;
    }
}

static int side_save(struct poise_buf *out, void *arg)
{
    struct side *side = arg;
    for (int i = 0; i < 3; i++) {
        poise_buf_u64(out,
                      __atomic_load_n(&side->committed[i], __ATOMIC_RELAXED));
    }
    return out->error;
}

static int side_settle(void *arg)
{
    struct side *side = arg;
    struct poise_checkpoint_lock *lock;
    __atomic_fetch_add(&side->job->settled, 1, __ATOMIC_RELAXED);
    /* Nobody else can have the checkpoint while it is written. */
    assert_int_equal(task_checkpoint_lock(NULL, side->job->options.checkpoint,
                                          NULL, 0, &lock),
                     -EBUSY);
    return 0;
}

static int side_load(const void *saved, size_t len, int from_rank,
                     int from_size, void *arg)
{
    struct side *side = arg;
    struct poise_reader reader = poise_reader_of(saved, len);
    assert_true(from_rank < from_size);
    for (int i = 0; i < 3; i++) {
        side->committed[i] += poise_reader_u64(&reader);
    }
    __atomic_fetch_add(&side->job->loaded, 1, __ATOMIC_RELAXED);
    return reader.error;
}

static int side_receive(struct poise_worker *worker, int source,
                        const void *data, size_t len, void *arg)
{
    struct side *side = arg;
    uint64_t id;
    (void)source;
    assert_int_equal(len, sizeof id);
    memcpy(&id, data, len);
    side->private[poise_worker_index(worker)][2] += id;
    return 0;
}

static void side_count(struct side *side, struct poise_worker *worker,
                       const struct tree_node *node)
{
    struct job *job = side->job;
    uint64_t *mine = side->private[poise_worker_index(worker)];
    mine[0]++;
    mine[1] += node->id;
    uint64_t seen = __atomic_add_fetch(&job->seen, 1, __ATOMIC_RELAXED);
    if (job->interrupt_at > 0 && seen >= job->interrupt_at) {
        __atomic_store_n(&job->signal, 15, __ATOMIC_RELAXED);
    }
}

static int side_run(struct poise_worker *worker, const void *task, size_t len,
                    void *arg)
{
    struct side *side = arg;
    struct job *job = side->job;
    struct item item;
    int code = 0;
    memcpy(&item, task, len);
    assert_int_equal(len, item_bytes(&item));
    if (job->nap_ns > 0) {
        /* Where it is to be interrupted, not all may be done before it is. */
        bool ends = __atomic_load_n(&job->signal, __ATOMIC_RELAXED) != 0;
        poise_sleep_ns(ends ? ENDING_NAP_NS : job->nap_ns);
    }
    if (item.from == 0) {
        side_count(side, worker, &item.node);
        if (job->talks) {
            code = poise_task_send(worker,
                                   (int)(item.node.id % (unsigned)job->size),
                                   &item.node.id, sizeof item.node.id);
        }
    }
    unsigned width = tree_width(&job->tree, &item.node);
    while (item.from < width && code == 0) {
        struct item child = {.node = tree_child(&item.node, item.from)};
        code = poise_task_add(worker, &child, item_bytes(&child), 0);
        item.from++;
        /* What is left of this task, now and then. */
        if (code == 0 && item.from % 3 == 0) {
            code = poise_task_commit(worker, &item, item_bytes(&item));
        }
        if (code == 0 && poise_task_poll(worker) != 0) {
            return poise_task_commit(worker, &item, item_bytes(&item));
        }
    }
    return code;
}

static void *side_main(void *arg)
{
    struct side *side = arg;
    struct job *job = side->job;
    struct poise_pool_hooks hooks = {.run = side_run,
                                     .commit = side_commit,
                                     .save = side_save,
                                     .settle = side_settle,
                                     .load = side_load,
                                     .receive = side_receive,
                                     .arg = side};
    struct poise_pool *pool;
    side->code = poise_pool_create(side->world, &job->options, &hooks, &pool);
    if (side->code < 0) {
        return NULL;
    }
    if (job->fresh && poise_world_rank(side->world) == 0) {
        struct item root = {.node = tree_root(&job->tree)};
        side->code = poise_pool_add(pool, &root, item_bytes(&root));
    }
    side->code = poise_pool_run(pool);
    if (poise_world_rank(side->world) == 0) {
        job->checkpoints = poise_pool_stats(pool)->checkpoints;
    }
    __atomic_fetch_add(&job->spilled, poise_pool_stats(pool)->spilled_tasks,
                       __ATOMIC_RELAXED);
    poise_pool_destroy(pool);
    return NULL;
}

static int job_go(struct job *job)
{
    struct poise_world *worlds[MOST_RANKS];
    struct side *sides = poise_alloc(MOST_RANKS, sizeof *sides);
    job->signal = 0;
    job->seen = 0;
    job->options.interrupt = &job->signal;
    memset(job->sums, 0, sizeof job->sums);
    assert_int_equal(poise_world_create_local(job->size, &job->local, worlds),
                     0);
    for (int i = 0; i < job->size; i++) {
        sides[i].job = job;
        sides[i].world = worlds[i];
        assert_int_equal(
            pthread_create(&sides[i].thread, NULL, side_main, &sides[i]), 0);
    }
    for (int i = 0; i < job->size; i++) {
        pthread_join(sides[i].thread, NULL);
    }
    int code = sides[0].code;
    for (int i = 0; i < job->size; i++) {
        assert_int_equal(sides[i].code, code);
        poise_world_destroy(worlds[i]);
        for (int k = 0; k < 3; k++) {
            job->sums[k] += sides[i].committed[k];
        }
    }
    free(sides);
    return code;
}

static char folder[TEMPORARY_BYTES];
static char record[TEMPORARY_MORE];

static int folder_make(void **state)
{
    (void)state;
    if (!mkdtemp(temporary_name(folder, "checkpoint"))) {
        return -1;
    }
    snprintf(record, sizeof record, "%s/walk.ck", folder);
    return 0;
}

/* How many files there are, but for what killed processes had not finished
 * writing (hidden, under names of their own). */
static unsigned folder_files(bool remove)
{
    char command[TEMPORARY_MORE + 8];
    unsigned count = 0;
    snprintf(command, sizeof command, "ls %s | wc -l", folder);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%u", &count), 1);
    pclose(pipe);
    if (remove) {
        snprintf(command, sizeof command, "find %s -mindepth 1 -delete",
                 folder);
        assert_int_equal(system(command), 0);
    }
    return count;
}

static int folder_remove(void **state)
{
    (void)state;
    folder_files(true);
    return rmdir(folder);
}

static const struct tree tree = {3, 150, 6, 14};

static struct job job_of(int size)
{
    struct job job = {.tree = tree, .size = size, .fresh = true};
    job.options.policy = POISE_POLICY_NEAR;
    job.options.split = POISE_SPLIT_HALF;
    job.options.checkpoint = record;
    job.options.checkpoint_ns = 1000000;
    job.options.job = "a job";
    job.options.job_bytes = 5;
    return job;
}

static struct job job_resumed(int size)
{
    struct job job = job_of(size);
    job.fresh = false;
    job.options.resume = record;
    return job;
}

static void expect_whole(const struct job *job)
{
    struct tree_sum want = tree_count(&job->tree);
    assert_int_equal(job->sums[0], want.nodes);
    assert_int_equal(job->sums[1], want.ids);
    if (job->talks) {
        assert_int_equal(job->sums[2], want.ids);
    }
}

/* Checkpoints while it runs change nothing, and leave one set of files. */
static void test_undisturbed(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size += 3) {
        struct job job = job_of(size);
        job.talks = true;
        job.nap_ns = 20000;
        job.options.threads = size == 1 ? 2 : 1;
        assert_int_equal(job_go(&job), 0);
        expect_whole(&job);
        assert_true(job.checkpoints > 0);
        assert_true(job.settled >= (int)job.checkpoints * size);
        assert_int_equal(folder_files(false), size + 1);
        struct poise_buf text = {0};
        assert_int_equal(poise_pool_checkpoint_job(record, &text), 0);
        assert_int_equal(text.len, 5);
        assert_memory_equal(text.data, "a job", 5);
        poise_buf_free(&text);
        assert_int_equal(poise_pool_checkpoint_remove(record), 0);
        assert_int_equal(folder_files(false), 0);
    }
}

/* Interrupted again and again, each time on another number of ranks. */
static void test_interrupted(void **state)
{
    (void)state;
    static const int sizes[] = {3, 2, 4, 1, 1, 5, 3};
    for (int policy = 0; poise_policy_names[policy]; policy++) {
        int code = -EINTR;
        unsigned runs = 0;
        for (int i = 0; code == -EINTR; i = (i + 1) % 7) {
            struct job job =
                runs == 0 ? job_of(sizes[i]) : job_resumed(sizes[i]);
            job.options.policy = (enum poise_policy)policy;
            job.options.threads = 1 + (unsigned)i % 2;
            job.options.checkpoint_ns = UINT64_C(3600000000000); /* never */
            job.interrupt_at = 60;
            job.nap_ns = 20000;
            job.local = (struct poise_local_options){
                .delay_max_ns = 100000, .reorder = true, .seed = runs + 1};
            code = job_go(&job);
            if (code == 0) {
                expect_whole(&job);
            } else {
                assert_int_equal(code, -EINTR);
                assert_int_equal(job.checkpoints, 1);
                assert_int_equal(folder_files(false), job.size + 1);
            }
            runs++;
            assert_true(runs < 200);
        }
        assert_true(runs > 2);
        folder_files(true);
    }
}

/* Messages to other ranks are part of the job. */
static void test_messages(void **state)
{
    (void)state;
    int code = -EINTR;
    for (unsigned runs = 0; code == -EINTR; runs++) {
        struct job job = runs == 0 ? job_of(3) : job_resumed(3);
        job.talks = true;
        job.interrupt_at = 100;
        job.nap_ns = 10000;
        job.local = (struct poise_local_options){
            .delay_max_ns = 300000, .reorder = true, .seed = runs};
        code = job_go(&job);
        if (code == 0) {
            expect_whole(&job);
            assert_true(runs > 1);
        }
    }
    folder_files(true);
}

/* Most of the queue is in the spill file when the cut is made. */
static void test_spilled(void **state)
{
    (void)state;
    int code = -EINTR;
    for (unsigned runs = 0; code == -EINTR; runs++) {
        struct job job = runs == 0 ? job_of(2) : job_resumed(1 + runs % 3);
        job.options.queue_bytes = 3000;
        job.options.spill_dir = folder;
        job.nap_ns = 5000;
        job.interrupt_at = 200;
        code = job_go(&job);
        if (runs == 0) {
            assert_true(job.spilled > 50);
        }
        if (code == 0) {
            expect_whole(&job);
            assert_true(runs > 0);
        }
    }
    folder_files(true);
}

/* ---- killed ------------------------------------------------------------- */

/* In a process of its own, which kills itself at the k-th call. Whether it
 * died. */
static bool run_killed(enum poise_fault kind, uint64_t k, bool resume, int size)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct job job = resume ? job_resumed(size) : job_of(size);
        job.nap_ns = 20000;
        poise_fault_arm(kind, k, FAULT_KILLS, false);
        int code = job_go(&job);
        struct tree_sum want = tree_count(&job.tree);
        _exit(code == 0 && job.sums[0] == want.nodes && job.sums[1] == want.ids
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    return WIFSIGNALED(status);
}

/* Death at every step: before each open, write, sync and rename of the first
 * checkpoints, in the first run and again in the second. */
static void test_killed(void **state)
{
    (void)state;
    static const enum poise_fault kinds[] = {
        POISE_FAULT_OPEN, POISE_FAULT_WRITE, POISE_FAULT_SYNC,
        POISE_FAULT_RENAME};
    uint64_t most = getenv("POISE_TEST_SOAK") ? 60 : 12;
    unsigned deaths = 0;
    for (int kind = 0; kind < 4; kind++) {
        for (uint64_t k = 1; k <= most; k++) {
            bool died = run_killed(kinds[kind], k, false, 2);
            deaths += died;
            if (died && access(record, F_OK) == 0) {
                deaths += run_killed(kinds[kind], most + 3 - k, true, 3);
            }
            bool resume = access(record, F_OK) == 0;
            struct job job = resume ? job_resumed(1 + (int)(k % 4))
                                    : job_of(1 + (int)(k % 4));
            assert_int_equal(job_go(&job), 0);
            expect_whole(&job);
            folder_files(true);
        }
    }
    assert_true(deaths > 10);
}

/* ---- damage ------------------------------------------------------------- */

static void make_checkpoint(int size)
{
    struct job job = job_of(size);
    job.interrupt_at = 100;
    job.nap_ns = 10000;
    job.options.checkpoint_ns = UINT64_C(1000000000000);
    assert_int_equal(job_go(&job), -EINTR);
}

static void flip(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    fputc(byte ^ 0x20, file);
    fclose(file);
}

static long size_of(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    fclose(file);
    return size;
}

/* Refused on all ranks, with nothing run and nothing loaded. */
static void expect_refused(int code)
{
    struct job job = job_resumed(2);
    job.options.checkpoint = NULL;
    int got = job_go(&job);
    if (code == 0) {
        assert_true(got == -EBADMSG || got == -EPROTO);
    } else {
        assert_int_equal(got, code);
    }
    assert_int_equal(job.seen, 0);
    assert_int_equal(job.loaded, 0);
}

static void test_damaged(void **state)
{
    (void)state;
    char part[TEMPORARY_MORE + 32];
    make_checkpoint(3);
    snprintf(part, sizeof part, "%s.1.1", record);
    const char *files[] = {record, part};
    for (int i = 0; i < 2; i++) {
        long size = size_of(files[i]);
        for (long at = 0; at < size; at += 1 + size / 40) {
            flip(files[i], at);
            expect_refused(0);
            flip(files[i], at);
        }
    }
    /* A part of another checkpoint, whole in itself. */
    char other[TEMPORARY_MORE + 8];
    snprintf(other, sizeof other, "%s.1.2", record);
    char away[TEMPORARY_MORE + 64];
    snprintf(away, sizeof away, "%s.away", part);
    assert_int_equal(rename(part, away), 0);
    expect_refused(-ENOENT);
    assert_int_equal(link(other, part), 0);
    expect_refused(-EBADMSG);
    assert_int_equal(unlink(part), 0);
    assert_int_equal(rename(away, part), 0);
    struct job job = job_resumed(2);
    job.options.job = "b job";
    assert_int_equal(job_go(&job), -EINVAL);
    job.options.job = "a job";
    assert_int_equal(job_go(&job), 0);
    expect_whole(&job);
    folder_files(true);
}

/* The disk is full: an error, and the checkpoint before is still good. */
static void test_full_disk(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= 9; k += 2) {
        make_checkpoint(2);
        struct job job = job_resumed(2);
        job.nap_ns = 20000;
        poise_fault_arm(POISE_FAULT_WRITE, k, ENOSPC, true);
        assert_int_equal(job_go(&job), -ENOSPC);
        poise_fault_arm(POISE_FAULT_WRITE, 0, 0, false);
        struct job again = job_resumed(3);
        assert_int_equal(job_go(&again), 0);
        expect_whole(&again);
        folder_files(true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_undisturbed), cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_messages),    cmocka_unit_test(test_spilled),
        cmocka_unit_test(test_killed),      cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
