/*
 * The walk over worlds of several ranks (in this process): every entry once,
 * directories after their contents, checkpoint and resume on another number
 * of ranks, and a tree that changes meanwhile.
 */
#include "../ranks.h"
#include "side.h"

#include <poise/checkpoint.h>

#include <signal.h>
#include <sys/wait.h>

enum { RANKS_MOST = 8, WORKERS_MOST = 4 };

static uint64_t truth_sum;

static uint64_t path_hash(const char *path, size_t len)
{
    return poise_hash_bytes(path, len, 1);
}

static int set_up(void **state)
{
    int code = side_set_up(state);
    for (size_t i = 0; i < side_truth.count; i++) {
        const char *path = side_truth.items[i];
        truth_sum += path_hash(path, strlen(path));
    }
    return code;
}

/* ---- a world of threads ------------------------------------------------- */

struct job;

struct member {
    struct job *job;
    struct poise_walk_result result;
    /* Accumulators as a user would have them: since the last commit, and
     * committed (under the worker's lock). */
    struct {
        uint64_t count, sum;
        uint64_t committed_count, committed_sum;
    } workers[WORKERS_MOST];
    uint64_t loaded_count, loaded_sum;
};

struct job {
    struct poise_walk_options options;
    bool single; /* entries as tasks */
    int size;
    struct tree_list paths, left;
    uint64_t visited; /* __atomic */
    uint64_t errors;  /* __atomic */
    uint64_t interrupt_at, kill_at, stop_at;
    int interrupt;
    struct member members[RANKS_MOST];
};

static int on_visit(struct poise_walk_entry *entry, void *arg)
{
    struct member *me = arg;
    struct job *job = me->job;
    struct poise_buf path = {0};
    unsigned i = poise_worker_index(entry->worker);
    assert_true(i < WORKERS_MOST);
    poise_walk_path(entry, &path);
    me->workers[i].count++;
    me->workers[i].sum += path_hash(path.data, path.len);
    tree_list_add(&job->paths, path.data, path.len);
    poise_buf_free(&path);
    if (entry->type == DT_DIR) {
        poise_walk_tag_set(entry, entry->depth + 1);
    }
    if (entry->dir) {
        assert_int_equal(poise_walk_dir_tag(entry->dir), entry->depth);
    }
    uint64_t n = __atomic_add_fetch(&job->visited, 1, __ATOMIC_RELAXED);
    if (n == job->interrupt_at) {
        __atomic_store_n(&job->interrupt, SIGINT, __ATOMIC_RELAXED);
    }
    if (n == job->kill_at) {
        kill(getpid(), SIGKILL);
    }
    return n == job->stop_at ? 7 : POISE_WALK_ON;
}

static int on_leave(struct poise_walk_entry *entry, void *arg)
{
    struct member *me = arg;
    struct poise_buf path = {0};
    poise_walk_path(entry, &path);
    tree_list_add(&me->job->left, path.data, path.len);
    poise_buf_free(&path);
    return 0;
}

static int on_error(struct poise_worker *worker, const struct poise_error *err,
                    void *arg)
{
    struct member *me = arg;
    (void)worker;
    (void)err;
    __atomic_fetch_add(&me->job->errors, 1, __ATOMIC_RELAXED);
    return 0;
}

static void on_commit(struct poise_worker *worker, void *arg)
{
    struct member *me = arg;
    unsigned i = poise_worker_index(worker);
    me->workers[i].committed_count += me->workers[i].count;
    me->workers[i].committed_sum += me->workers[i].sum;
    me->workers[i].count = me->workers[i].sum = 0;
}

static void member_totals(const struct member *me, uint64_t *count,
                          uint64_t *sum)
{
    *count = me->loaded_count;
    *sum = me->loaded_sum;
    for (int i = 0; i < WORKERS_MOST; i++) {
        *count += me->workers[i].committed_count;
        *sum += me->workers[i].committed_sum;
    }
}

static int on_save(struct poise_buf *out, void *arg)
{
    uint64_t count, sum;
    member_totals(arg, &count, &sum);
    poise_buf_u64(out, count);
    return poise_buf_u64(out, sum);
}

static int on_load(const void *saved, size_t len, int from_rank, int from_size,
                   void *arg)
{
    struct member *me = arg;
    struct poise_reader in = poise_reader_of(saved, len);
    assert_true(from_rank < from_size);
    me->loaded_count += poise_reader_u64(&in);
    me->loaded_sum += poise_reader_u64(&in);
    return in.error;
}

static int member_run(struct poise_world *world, void *arg)
{
    struct job *job = arg;
    struct member *me = &job->members[poise_world_rank(world)];
    struct poise_walk_hooks hooks = {.visit = on_visit,
                                     .leave = on_leave,
                                     .error = on_error,
                                     .commit = on_commit,
                                     .save = on_save,
                                     .load = on_load,
                                     .arg = me};
    return poise_walk_run(world, &job->options, &hooks, &me->result);
}

/* Run the job on `size` ranks; returns what all of them returned. */
static int job_run(struct job *job, int size,
                   const struct poise_local_options *local)
{
    int codes[MOST_RANKS];
    job->size = size;
    job->options.pool.interrupt = &job->interrupt;
    tree_single_entries(job->single);
    for (int r = 0; r < size; r++) {
        job->members[r] = (struct member){.job = job};
    }
    assert_int_equal(run_all(size, local, member_run, job, codes), 0);
    for (int r = 1; r < size; r++) {
        assert_int_equal(codes[r], codes[0]);
    }
    tree_list_sort(&job->paths);
    return codes[0];
}

static void job_free(struct job *job)
{
    for (int r = 0; r < job->size; r++) {
        poise_walk_result_free(&job->members[r].result);
    }
    tree_list_free(&job->paths);
    tree_list_free(&job->left);
}

static const char *const roots[] = {side_where};

static struct job plain_job(void)
{
    struct job job = {.options = {.roots = roots, .root_count = 1}};
    job.options.pool.policy = POISE_POLICY_NEAR;
    job.options.pool.threads = 1;
    job.options.pool.seed = 7;
    return job;
}

/* ---- tests -------------------------------------------------------------- */

/* Policy, split, ranks, threads, metadata, post, entry by entry. */
static const struct {
    enum poise_policy policy;
    enum poise_split split;
    int size, threads;
    bool metadata, post, single;
    size_t queue_bytes;
} covers[] = {
    {POISE_POLICY_NEAR, POISE_SPLIT_HALF, 1, 2, false, true, false, 0},
    {POISE_POLICY_NEAR, POISE_SPLIT_RANDOM, 2, 1, false, false, false, 0},
    {POISE_POLICY_NEAR, POISE_SPLIT_HALF, 4, 1, true, true, false, 4096},
    {POISE_POLICY_RANDOM, POISE_SPLIT_HALF, 3, 1, true, false, false, 0},
    {POISE_POLICY_RANDOM, POISE_SPLIT_RANDOM, 8, 1, false, true, false, 0},
    {POISE_POLICY_HYBRID, POISE_SPLIT_HALF, 2, 2, true, true, false, 0},
    {POISE_POLICY_HYBRID, POISE_SPLIT_RANDOM, 4, 3, false, false, false, 4096},
    {POISE_POLICY_CENTRAL, POISE_SPLIT_HALF, 2, 1, false, false, true, 0},
    {POISE_POLICY_CENTRAL, POISE_SPLIT_HALF, 4, 1, true, true, false, 0},
    {POISE_POLICY_CENTRAL_KEEP, POISE_SPLIT_HALF, 3, 1, false, true, false, 0},
};

static void check_left(const struct job *job, size_t directories)
{
    assert_int_equal(job->left.count, directories);
    for (size_t i = 0; i < job->left.count; i++) {
        size_t len = strlen(job->left.items[i]);
        for (size_t k = i + 1; k < job->left.count; k++) {
            assert_false(strncmp(job->left.items[k], job->left.items[i], len) ==
                             0 &&
                         job->left.items[k][len] == '/');
        }
    }
}

static size_t truth_directories(void)
{
    size_t n = 0;
    struct stat st;
    for (size_t i = 0; i < side_truth.count; i++) {
        n += lstat(side_truth.items[i], &st) == 0 && S_ISDIR(st.st_mode);
    }
    return n;
}

static void test_every_entry_once(void **state)
{
    (void)state;
    size_t directories = truth_directories();
    for (size_t i = 0; i < sizeof covers / sizeof *covers; i++) {
        struct job job = plain_job();
        job.options.pool.policy = covers[i].policy;
        job.options.pool.split = covers[i].split;
        job.options.pool.threads = (unsigned)covers[i].threads;
        job.options.pool.queue_bytes = covers[i].queue_bytes;
        job.options.statx_mask = covers[i].metadata ? STATX_BASIC_STATS : 0;
        job.options.post = covers[i].post;
        job.single = covers[i].single;
        job.options.descriptors = covers[i].size == 3 ? 1 : 0;
        assert_int_equal(job_run(&job, covers[i].size, NULL), 0);
        assert_true(tree_list_equal(&job.paths, &side_truth));
        assert_int_equal(job.errors, 0);
        const struct poise_walk_result *result = &job.members[0].result;
        assert_int_equal(result->entries, side_truth.count);
        assert_int_equal(result->errors, 0);
        assert_int_equal(result->size, covers[i].size);
        assert_non_null(result->stats);
        assert_non_null(result->profiles);
        if (covers[i].post) {
            check_left(&job, directories);
        }
        job_free(&job);
    }
}

static void test_late_messages(void **state)
{
    (void)state;
    struct poise_local_options local = {
        .delay_max_ns = 300000, .reorder = true, .seed = 3};
    struct job job = plain_job();
    job.options.post = true;
    assert_int_equal(job_run(&job, 4, &local), 0);
    assert_true(tree_list_equal(&job.paths, &side_truth));
    check_left(&job, truth_directories());
    job_free(&job);
}

/* Any way of running over a lopsided tree: a queue that holds a task or two, so
 * that they are spilled and read back by whoever comes first; more threads than
 * processors, some of them parked; ranks that hear late of one another. */
static void random_job(struct job *job, struct poise_local_options *local,
                       struct poise_rng *rng, bool post)
{
    struct poise_pool_options *pool = &job->options.pool;
    pool->policy = (enum poise_policy)poise_rng_below(rng, 5);
    pool->split = (enum poise_split)poise_rng_below(rng, 2);
    pool->batch = 1 + poise_rng_below(rng, 8);
    pool->threads = 1 + (unsigned)poise_rng_below(rng, WORKERS_MOST);
    pool->threads_max = (unsigned)poise_rng_below(rng, WORKERS_MOST + 1);
    pool->queue_bytes =
        poise_rng_below(rng, 3) ? 1 + poise_rng_below(rng, 2000) : 0;
    pool->seed = 1 + poise_rng_below(rng, 1 << 20);
    job->options.post = post;
    job->single = poise_rng_below(rng, 3) == 0;
    job->options.statx_mask = poise_rng_below(rng, 2) ? STATX_BASIC_STATS : 0;
    job->options.descriptors = (unsigned)poise_rng_below(rng, 2);
    local->delay_max_ns =
        poise_rng_below(rng, 2) ? poise_rng_below(rng, 100000) : 0;
    local->reorder = poise_rng_below(rng, 2);
    local->seed = pool->seed;
}

static void test_random_runs(void **state)
{
    (void)state;
    static char lopsided[300];
    static const char *const small[] = {lopsided};
    struct tree_list expected = {0};
    struct poise_rng rng;
    unsigned rounds = getenv("POISE_TEST_SOAK") ? 5000 : 30;
    size_t directories = 0;
    snprintf(lopsided, sizeof lopsided, "%s/lopsided", side_where);
    tree_truth(lopsided, &expected);
    for (size_t i = 0; i < expected.count; i++) {
        struct stat st;
        directories +=
            lstat(expected.items[i], &st) == 0 && S_ISDIR(st.st_mode);
    }
    poise_rng_seed(&rng, rounds);
    for (unsigned round = 0; round < rounds; round++) {
        struct poise_local_options local = {0};
        struct job job = plain_job();
        bool post = round % 4 > 0;
        int size = (int)(round % 5);
        random_job(&job, &local, &rng, post);
        job.options.roots = small;
        assert_int_equal(job_run(&job, size > 0 ? size : 1, &local), 0);
        assert_true(tree_list_equal(&job.paths, &expected));
        assert_int_equal(job.errors, 0);
        if (post) {
            check_left(&job, directories);
        }
        job_free(&job);
    }
    tree_list_free(&expected);
}

static void test_stop_everywhere(void **state)
{
    (void)state;
    struct job job = plain_job();
    job.stop_at = 2000;
    assert_int_equal(job_run(&job, 3, NULL), 7);
    job_free(&job);
}

/* ---- checkpoint and resume ---------------------------------------------- */

static void check_totals(const struct job *job)
{
    uint64_t count = 0, sum = 0;
    for (int r = 0; r < job->size; r++) {
        uint64_t c, s;
        member_totals(&job->members[r], &c, &s);
        count += c;
        sum += s;
    }
    assert_int_equal(count, side_truth.count);
    assert_int_equal(sum, truth_sum);
    assert_int_equal(job->members[0].result.entries, side_truth.count);
}

static struct job checkpoint_job(const char *path, int single)
{
    struct job job = plain_job();
    job.options.pool.checkpoint = path;
    job.options.pool.checkpoint_ns = 500000;
    job.options.pool.job = "who asks";
    job.options.pool.job_bytes = 8;
    job.options.statx_mask = STATX_BASIC_STATS;
    job.single = single;
    return job;
}

/* Resume from `path` if there is one, and compare with the side_truth. */
static void check_resumed(const char *path, int size, int single)
{
    struct job job = checkpoint_job(path, single);
    struct poise_buf who = {0};
    if (access(path, F_OK) == 0) {
        assert_int_equal(poise_walk_checkpoint_job(path, &who), 0);
        assert_int_equal(who.len, 8);
        assert_memory_equal(who.data, "who asks", 8);
        poise_buf_free(&who);
        job.options.pool.resume = path;
    }
    assert_int_equal(job_run(&job, size, NULL), 0);
    check_totals(&job);
    job_free(&job);
    poise_pool_checkpoint_remove(path);
}

static void test_interrupted(void **state)
{
    (void)state;
    char path[300];
    char dir[256];
    int fd = tree_temporary(dir);
    snprintf(path, sizeof path, "%s/checkpoint", dir);
    for (int i = 0; i < 6; i++) {
        struct job job = checkpoint_job(path, i == 5);
        job.interrupt_at = 1 + (uint64_t)i * 900;
        int code = job_run(&job, 1 + i % 4, NULL);
        assert_true(code == -EINTR || code == 0);
        job_free(&job);
        if (code == -EINTR) {
            assert_int_equal(access(path, F_OK), 0);
            check_resumed(path, 1 + (i + 2) % 4, i == 5);
        }
    }
    close(fd);
    tree_remove(AT_FDCWD, dir);
}

/* Relative names lead elsewhere from another directory: refused, in words. */
static void test_resumed_elsewhere(void **state)
{
    (void)state;
    static const char *const here[] = {"."};
    char path[300], dir[256], before[4096];
    int fd = tree_temporary(dir);
    struct poise_buf who = {0};
    assert_non_null(getcwd(before, sizeof before));
    snprintf(path, sizeof path, "%s/checkpoint", dir);
    for (int relative = 0; relative < 2; relative++) {
        struct job job = checkpoint_job(path, 0);
        job.options.roots = relative ? here : roots;
        job.options.resume_here = !relative;
        job.interrupt_at = 50;
        assert_int_equal(chdir(side_where), 0);
        assert_int_equal(job_run(&job, 2, NULL), -EINTR);
        job_free(&job);
        assert_int_equal(chdir("/"), 0);
        job = checkpoint_job(path, 0);
        job.options.roots = relative ? here : roots;
        job.options.pool.resume = path;
        assert_int_equal(job_run(&job, 1, NULL), -EINVAL);
        assert_int_equal(job.visited, 0);
        job_free(&job);
        assert_int_equal(poise_walk_checkpoint_job(path, &who), -EINVAL);
        assert_non_null(strstr(poise_error_last()->why, side_where));
        assert_int_equal(chdir(side_where), 0);
        job = checkpoint_job(path, 0);
        job.options.roots = relative ? here : roots;
        job.options.pool.resume = path;
        assert_int_equal(job_run(&job, 3, NULL), 0);
        assert_int_equal(job.members[0].result.entries, side_truth.count);
        job_free(&job);
        assert_int_equal(poise_pool_checkpoint_remove(path), 0);
    }
    assert_int_equal(chdir(before), 0);
    poise_buf_free(&who);
    close(fd);
    tree_remove(AT_FDCWD, dir);
}

static void test_killed(void **state)
{
    (void)state;
    char path[300];
    char dir[256];
    int fd = tree_temporary(dir);
    snprintf(path, sizeof path, "%s/checkpoint", dir);
    for (int i = 0; i < 4; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct job job = checkpoint_job(path, 0);
            job.kill_at = 1000 + (uint64_t)i * 1100;
            job_run(&job, 1 + i, NULL);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        check_resumed(path, 4 - i, 0);
    }
    close(fd);
    tree_remove(AT_FDCWD, dir);
}

/* ---- a tree that changes ------------------------------------------------ */

static int storm_over; /* __atomic */

static void *storm(void *arg)
{
    int fd = *(int *)arg;
    char name[64], other[64];
    struct poise_rng rng;
    poise_rng_seed(&rng, 11);
    while (!__atomic_load_n(&storm_over, __ATOMIC_RELAXED)) {
        unsigned i = (unsigned)poise_rng_below(&rng, 200);
        snprintf(name, sizeof name, "flat/storm%u", i);
        snprintf(other, sizeof other, "wide/storm%u", i);
        switch (poise_rng_below(&rng, 5)) {
        case 0:
            tree_file(fd, name);
            break;
        case 1:
            unlinkat(fd, name, 0);
            break;
        case 2:
            mkdirat(fd, other, 0755);
            break;
        case 3:
            unlinkat(fd, other, AT_REMOVEDIR);
            break;
        default:
            renameat(fd, name, fd, other);
            break;
        }
    }
    return NULL;
}

static void test_storm(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, storm, &side_fd), 0);
    for (int i = 0; i < 6; i++) {
        struct job job = plain_job();
        job.options.pool.threads = i % 2 ? 3 : 1;
        job.options.pool.policy =
            i % 2 ? POISE_POLICY_HYBRID : POISE_POLICY_NEAR;
        job.options.statx_mask = i % 3 ? STATX_BASIC_STATS : 0;
        assert_int_equal(job_run(&job, 1 + i % 3, NULL), 0);
        size_t k = 0;
        for (size_t n = 0; n < job.paths.count; n++) {
            if (strstr(job.paths.items[n], "/storm")) {
                continue; /* may be seen or not, even under two names */
            }
            assert_true(k < side_truth.count);
            assert_string_equal(job.paths.items[n], side_truth.items[k]);
            k++;
        }
        assert_int_equal(k, side_truth.count);
        job_free(&job);
    }
    __atomic_store_n(&storm_over, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_entry_once),
        cmocka_unit_test(test_late_messages),
        cmocka_unit_test(test_random_runs),
        cmocka_unit_test(test_stop_everywhere),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_resumed_elsewhere),
        cmocka_unit_test(test_storm),
    };
    return cmocka_run_group_tests(tests, set_up, side_tear_down);
}
