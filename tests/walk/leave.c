/*
 * Option post over kills and resumes: each directory is left at least once, and
 * in no run before anything below it, whatever carries its tasks: other ranks
 * (other numbers of them after a resume), files of spilled tasks, checkpoints.
 */
#include "../ranks.h"
#include "side.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { EVENTS_MOST = 100000, RANKS_MOST = 6, THREADS_MOST = 3 };

/* What happened, in order, over all runs of a job: shared with children. */
struct events {
    uint64_t count;           /* __atomic */
    uint64_t wrong_marks;     /* __atomic */
    uint32_t at[EVENTS_MOST]; /* index of the path * 2 + 1 if it is left */
};

struct job {
    struct poise_walk_options options;
    struct events *events;
    uint64_t kill_at; /* event; 0: never */
    uint64_t nap_ns;
};

static struct tree_list truth;
static char tree[256];
static const char *const roots[] = {tree};

/* ---- the tree ----------------------------------------------------------- */

/* Directories in files and files in directories: wide, deep, and lopsided. */
static int set_up(void **state)
{
    (void)state;
    char name[32];
    int fd = tree_temporary(tree);
    if (fd < 0) {
        return -1;
    }
    int wide = tree_dir(fd, "wide");
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "d%d", i);
        int in = tree_dir(wide, name);
        for (int k = 0; k < i % 5; k++) {
            snprintf(name, sizeof name, "f%d", k);
            tree_file(in, name);
        }
        close(in);
    }
    int flat = tree_dir(fd, "flat");
    for (int i = 0; i < 150; i++) {
        snprintf(name, sizeof name, "f%d", i);
        tree_file(flat, name);
    }
    int deep = tree_dir(fd, "deep");
    tree_chain(deep, 30);
    close(deep);
    close(flat);
    close(wide);
    close(fd);
    tree_truth(tree, &truth);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tree_list_free(&truth);
    tree_remove(AT_FDCWD, tree);
    return 0;
}

static size_t truth_index(const char *path)
{
    const char **found = bsearch(&path, truth.items, truth.count,
                                 sizeof *truth.items, tree_compare);
    return found ? (size_t)(found - (const char **)truth.items) : SIZE_MAX;
}

static bool is_below(size_t index, size_t dir)
{
    size_t len = strlen(truth.items[dir]);
    return strncmp(truth.items[index], truth.items[dir], len) == 0 &&
           truth.items[index][len] == '/';
}

static bool is_child(size_t index, size_t dir)
{
    return is_below(index, dir) &&
           !strchr(truth.items[index] + strlen(truth.items[dir]) + 1, '/');
}

static bool is_directory(size_t index)
{
    struct stat st;
    return lstat(truth.items[index], &st) == 0 && S_ISDIR(st.st_mode);
}

/* ---- one run ------------------------------------------------------------ */

static uint64_t mark_of(size_t index)
{
    return UINT64_C(1) << index % 64;
}

static void happen(struct job *job, struct poise_walk_entry *entry, bool left)
{
    struct poise_buf path = {0};
    poise_walk_path(entry, &path);
    size_t index = truth_index(poise_buf_str(&path));
    poise_buf_free(&path);
    assert_int_not_equal(index, SIZE_MAX);
    uint64_t n = __atomic_fetch_add(&job->events->count, 1, __ATOMIC_SEQ_CST);
    assert_true(n < EVENTS_MOST);
    __atomic_store_n(&job->events->at[n], (uint32_t)(index * 2 + left),
                     __ATOMIC_SEQ_CST);
    if (n + 1 == job->kill_at) {
        kill(getpid(), SIGKILL);
    }
    if (entry->dir) {
        poise_walk_mark(entry->dir, mark_of(index));
    }
    if (left) {
        uint64_t marks = 0;
        for (size_t i = 0; i < truth.count; i++) {
            marks |= is_child(i, index) ? mark_of(i) : 0;
        }
        if (poise_walk_marks(poise_walk_self(entry)) != marks) {
            __atomic_fetch_add(&job->events->wrong_marks, 1, __ATOMIC_SEQ_CST);
        }
    }
    if (job->nap_ns > 0) {
        poise_sleep_ns(job->nap_ns);
    }
}

static int on_visit(struct poise_walk_entry *entry, void *arg)
{
    happen(arg, entry, false);
    return POISE_WALK_ON;
}

static int on_leave(struct poise_walk_entry *entry, void *arg)
{
    happen(arg, entry, true);
    return POISE_WALK_ON;
}

static int job_run(struct poise_world *world, void *arg)
{
    struct job *job = arg;
    struct poise_walk_hooks hooks = {
        .visit = on_visit, .leave = on_leave, .arg = arg};
    int code = poise_walk_run(world, &job->options, &hooks, NULL);
    if (code < 0) {
        const struct poise_error *error = poise_error_last();
        fprintf(stderr, "walk: %s: %s\n", error->doing, error->why);
    }
    return code;
}

/* Any way of running. */
static struct job random_job(struct poise_rng *rng, const char *checkpoint,
                             struct poise_local_options *local)
{
    struct job job = {.options = {.roots = roots, .root_count = 1}};
    struct poise_pool_options *pool = &job.options.pool;
    job.options.post = true;
    job.options.descriptors = (unsigned)poise_rng_below(rng, 2);
    job.nap_ns = poise_rng_below(rng, 60000);
    pool->policy = (enum poise_policy)poise_rng_below(rng, 5);
    pool->split = (enum poise_split)poise_rng_below(rng, 2);
    pool->threads = 1 + (unsigned)poise_rng_below(rng, THREADS_MOST);
    pool->queue_bytes =
        poise_rng_below(rng, 2) ? 1 + poise_rng_below(rng, 2000) : 0;
    pool->seed = 1 + poise_rng_below(rng, 1 << 20);
    pool->checkpoint = checkpoint;
    pool->checkpoint_ns = 1 + poise_rng_below(rng, 2000000);
    *local = (struct poise_local_options){
        .delay_max_ns =
            poise_rng_below(rng, 2) ? poise_rng_below(rng, 100000) : 0,
        .reorder = poise_rng_below(rng, 2),
        .seed = pool->seed};
    return job;
}

/* In the events of one run nothing comes after the directory it is below. */
static void check_order(const struct events *events, uint64_t from)
{
    for (uint64_t i = from; i < events->count; i++) {
        size_t dir = events->at[i] / 2;
        for (uint64_t k = i + 1; events->at[i] % 2 && k < events->count; k++) {
            if (is_below(events->at[k] / 2, dir)) {
                fail_msg("'%s' was left before '%s' was %s", truth.items[dir],
                         truth.items[events->at[k] / 2],
                         events->at[k] % 2 ? "left" : "visited");
            }
        }
    }
}

/* Over all runs everything was visited, and left if it is a directory; if
 * nothing was killed, once. */
static void check_all(const struct events *events, bool once)
{
    unsigned *seen = calloc(truth.count * 2, sizeof *seen);
    assert_int_equal(events->wrong_marks, 0);
    for (uint64_t i = 0; i < events->count; i++) {
        seen[events->at[i]]++;
    }
    for (size_t i = 0; i < truth.count; i++) {
        bool directory = is_directory(i);
        if (seen[i * 2] == 0 || (seen[i * 2 + 1] == 0 && directory) ||
            (once && seen[i * 2] + seen[i * 2 + 1] != 1U + directory)) {
            fail_msg("'%s': visited %u times, left %u times", truth.items[i],
                     seen[i * 2], seen[i * 2 + 1]);
        }
    }
    free(seen);
}

/* ---- rounds ------------------------------------------------------------- */

static int random_size(struct poise_rng *rng)
{
    return 1 + (int)poise_rng_below(rng, RANKS_MOST);
}

/* A run that is killed at some event, in a process of its own; whether it
 * was. */
static bool killed_run(struct job *job, int size,
                       const struct poise_local_options *local, bool single)
{
    pid_t pid = fork();
    if (pid == 0) {
        int codes[MOST_RANKS];
        tree_single_entries(single);
        run_all(size, local, job_run, job, codes);
        _exit(codes[0] == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status)) {
        assert_int_equal(WEXITSTATUS(status), 0);
        return false;
    }
    assert_int_equal(WTERMSIG(status), SIGKILL);
    return true;
}

/* A job of several runs, all of them but the last one killed: how many of them
 * were resumed. */
static unsigned round_of_kills(struct poise_rng *rng, struct events *events,
                               const char *checkpoint)
{
    unsigned resumed = 0;
    unsigned kills = (unsigned)poise_rng_below(rng, 4);
    bool single = poise_rng_below(rng, 4) == 0;
    bool killed = true;
    memset(events, 0, sizeof *events);
    for (unsigned run = 0; killed; run++) {
        struct poise_local_options local;
        struct job job = random_job(rng, checkpoint, &local);
        uint64_t from = events->count;
        job.events = events;
        job.options.pool.resume =
            access(checkpoint, F_OK) == 0 ? checkpoint : NULL;
        resumed += job.options.pool.resume != NULL;
        if (run < kills) {
            job.kill_at = from + 1 + poise_rng_below(rng, truth.count);
        }
        killed = killed_run(&job, random_size(rng), &local, single);
        check_order(events, from);
    }
    check_all(events, kills == 0);
    poise_pool_checkpoint_remove(checkpoint);
    return resumed;
}

static void test_killed(void **state)
{
    (void)state;
    char dir[256], checkpoint[300];
    struct poise_rng rng;
    unsigned rounds = getenv("POISE_TEST_SOAK") ? 200 : 12;
    unsigned resumed = 0;
    struct events *events = mmap(NULL, sizeof *events, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(events, MAP_FAILED);
    close(tree_temporary(dir));
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint", dir);
    poise_rng_seed(&rng, rounds);
    for (unsigned round = 0; round < rounds; round++) {
        resumed += round_of_kills(&rng, events, checkpoint);
    }
    assert_int_not_equal(resumed, 0);
    munmap(events, sizeof *events);
    tree_remove(AT_FDCWD, dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
