/*
 * Option post, and files in chunks, over kills and resumes: each directory is
 * left at least once, and in no run before anything below it, whatever carries
 * its tasks: other ranks (other numbers of them after a resume), files of
 * spilled tasks, checkpoints. A file in chunks takes the place of a directory
 * there, and a chunk that of an entry.
 */
#include "../ranks.h"
#include "side.h"

#include <poise/checkpoint.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { EVENTS_MOST = 100000, RANKS_MOST = 6, THREADS_MOST = 3 };

/* What happened, in order, over all runs of a job: shared with children. */
struct events {
    uint64_t count;           /* __atomic */
    uint64_t wrong_marks;     /* __atomic */
    uint32_t at[EVENTS_MOST]; /* index of the path * 4 + enum what */
    uint32_t chunk[EVENTS_MOST];
};

enum what { VISITED, LEFT, CHUNK };

struct job {
    struct poise_walk_options options;
    struct events *events;
    uint64_t kill_at; /* event; 0: never */
    uint64_t nap_ns;
};

/* Of the file that is worked on in chunks, in units of our own. */
enum { CHUNK_UNITS = 3, CHUNK_COUNT = 50, LENGTH = 3 * 49 + 1 };

static struct tree_list truth;
static size_t big; /* its index */
static char tree[256];
static const char *const roots[] = {tree};

/* ---- the tree ----------------------------------------------------------- */

static size_t truth_index(const char *path)
{
    const char **found = bsearch(&path, truth.items, truth.count,
                                 sizeof *truth.items, tree_compare);
    return found ? (size_t)(found - (const char **)truth.items) : SIZE_MAX;
}

/* Directories in files and files in directories: wide, deep, and lopsided. */
static int set_up(void **state)
{
    (void)state;
    char name[32], path[300];
    int fd = tree_temporary(tree);
    if (fd < 0) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/deep/big", tree);
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
    tree_file(deep, "big");
    tree_chain(deep, 30);
    close(deep);
    close(flat);
    close(wide);
    close(fd);
    tree_truth(tree, &truth);
    big = truth_index(path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tree_list_free(&truth);
    tree_remove(AT_FDCWD, tree);
    return 0;
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

static void happen(struct job *job, struct poise_walk_entry *entry,
                   enum what what, uint64_t chunk)
{
    struct poise_buf path = {0};
    poise_walk_path(entry, &path);
    size_t index = truth_index(poise_buf_str(&path));
    poise_buf_free(&path);
    assert_int_not_equal(index, SIZE_MAX);
    uint64_t n = __atomic_fetch_add(&job->events->count, 1, __ATOMIC_SEQ_CST);
    assert_true(n < EVENTS_MOST);
    __atomic_store_n(&job->events->chunk[n], (uint32_t)chunk, __ATOMIC_SEQ_CST);
    __atomic_store_n(&job->events->at[n], (uint32_t)(index * 4 + what),
                     __ATOMIC_SEQ_CST);
    if (n + 1 == job->kill_at) {
        kill(getpid(), SIGKILL);
    }
    if (what == CHUNK) {
        poise_walk_mark(poise_walk_self(entry), mark_of(chunk));
    } else if (entry->dir) {
        poise_walk_mark(entry->dir, mark_of(index));
    }
    if (what == LEFT) {
        uint64_t marks = index == big ? (UINT64_C(1) << CHUNK_COUNT) - 1 : 0;
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
    happen(arg, entry, VISITED, 0);
    if (strcmp(entry->name, "big") == 0) {
        poise_walk_tag_set(entry, 4711);
        poise_walk_chunks_set(entry, LENGTH);
    }
    return POISE_WALK_ON;
}

static int on_chunk(struct poise_walk_entry *entry, uint64_t offset,
                    uint64_t length, void *arg)
{
    uint64_t left = LENGTH - offset;
    assert_int_equal(offset % CHUNK_UNITS, 0);
    assert_int_equal(length, left < CHUNK_UNITS ? left : CHUNK_UNITS);
    assert_int_equal(entry->type, DT_REG);
    assert_int_equal(poise_walk_dir_tag(poise_walk_self(entry)), 4711);
    assert_int_equal(faccessat(poise_walk_dirfd(entry), entry->name, R_OK, 0),
                     0);
    happen(arg, entry, CHUNK, offset / CHUNK_UNITS);
    return POISE_WALK_ON;
}

static int on_leave(struct poise_walk_entry *entry, void *arg)
{
    happen(arg, entry, LEFT, 0);
    return POISE_WALK_ON;
}

static int job_run(struct poise_world *world, void *arg)
{
    struct job *job = arg;
    struct poise_walk_hooks hooks = {
        .visit = on_visit, .leave = on_leave, .chunk = on_chunk, .arg = arg};
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
    job.options.chunk_bytes = CHUNK_UNITS;
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

static bool is_part(const struct events *events, uint64_t event, size_t dir)
{
    uint32_t at = events->at[event];
    return is_below(at / 4, dir) || (at / 4 == dir && at % 4 == CHUNK);
}

/* In the events of one run nothing comes after the leaving of what it is part
 * of. */
static void check_order(const struct events *events, uint64_t from)
{
    static const char *const words[] = {"visited", "left", "worked on"};
    for (uint64_t i = from; i < events->count; i++) {
        size_t dir = events->at[i] / 4;
        bool left = events->at[i] % 4 == LEFT;
        for (uint64_t k = i + 1; left && k < events->count; k++) {
            if (is_part(events, k, dir)) {
                fail_msg("'%s' was left before '%s' was %s", truth.items[dir],
                         truth.items[events->at[k] / 4],
                         words[events->at[k] % 4]);
            }
        }
    }
}

/* Over all runs everything was visited, and left if it is a directory or the
 * big file, whose chunks were all worked on; if nothing was killed, once. */
static void check_all(const struct events *events, bool once)
{
    unsigned *seen = calloc(truth.count * 4, sizeof *seen);
    unsigned chunks[CHUNK_COUNT] = {0};
    assert_int_equal(events->wrong_marks, 0);
    for (uint64_t i = 0; i < events->count; i++) {
        seen[events->at[i]]++;
        if (events->at[i] % 4 == CHUNK) {
            chunks[events->chunk[i]]++;
        }
    }
    for (size_t i = 0; i < truth.count; i++) {
        const unsigned *of = &seen[i * 4];
        bool leaves = i == big || is_directory(i);
        bool none = of[VISITED] == 0 || (of[LEFT] == 0 && leaves);
        bool twice = of[VISITED] > 1 || of[LEFT] > leaves;
        if (none || (once && twice)) {
            fail_msg("'%s': visited %u times, left %u times", truth.items[i],
                     of[VISITED], of[LEFT]);
        }
    }
    for (unsigned i = 0; i < CHUNK_COUNT; i++) {
        if (chunks[i] == 0 || (once && chunks[i] > 1)) {
            fail_msg("chunk %u: %u times", i, chunks[i]);
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

/* ---- chunks ------------------------------------------------------------- */

/* A huge file that several work on: by whom, and how it ends. */
struct huge {
    uint64_t chunks[64];          /* by rank * 8 + worker; __atomic */
    uint64_t bytes, left, length; /* __atomic */
    uint64_t skip_at, stop_at, ordered;
};

struct huge_member {
    struct poise_walk_options options;
    struct huge *huge;
    unsigned rank;
};

static int huge_visit(struct poise_walk_entry *entry, void *arg)
{
    struct huge_member *me = arg;
    if (strcmp(entry->name, "big") == 0) {
        poise_walk_chunks_set(entry, me->huge->length);
    }
    return POISE_WALK_ON;
}

static int huge_chunk(struct poise_walk_entry *entry, uint64_t offset,
                      uint64_t length, void *arg)
{
    struct huge *huge = ((struct huge_member *)arg)->huge;
    unsigned who = ((struct huge_member *)arg)->rank * 8 +
                   poise_worker_index(entry->worker);
    __atomic_fetch_add(&huge->chunks[who], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&huge->bytes, length, __ATOMIC_RELAXED);
    poise_sleep_ns(200000);
    if (huge->stop_at != 0 && offset >= huge->stop_at) {
        return 9;
    }
    return huge->skip_at != 0 && offset >= huge->skip_at ? POISE_WALK_SKIP
                                                         : POISE_WALK_ON;
}

static int huge_leave(struct poise_walk_entry *entry, void *arg)
{
    struct huge *huge = ((struct huge_member *)arg)->huge;
    if (entry->type == DT_REG) {
        __atomic_fetch_add(&huge->left, 1, __ATOMIC_RELAXED);
    }
    return 0;
}

static int huge_run(struct poise_world *world, void *arg)
{
    struct huge_member me = *(struct huge_member *)arg;
    me.rank = world ? (unsigned)poise_world_rank(world) : 0;
    struct poise_walk_hooks hooks = {.visit = huge_visit,
                                     .chunk = huge_chunk,
                                     .leave = huge_leave,
                                     .arg = &me};
    return poise_walk_run(world, &me.options, &hooks, NULL);
}

static struct huge_member huge_member(struct huge *huge, unsigned threads)
{
    struct huge_member me = {.huge = huge};
    me.options = (struct poise_walk_options){
        .roots = roots, .root_count = 1, .post = true};
    me.options.chunk_bytes = 1 << 20;
    me.options.pool.policy = POISE_POLICY_HYBRID;
    me.options.pool.threads = threads;
    huge->length = (UINT64_C(200) << 20) + 1;
    return me;
}

static unsigned huge_workers(const struct huge *huge)
{
    unsigned n = 0;
    for (unsigned i = 0; i < 64; i++) {
        n += huge->chunks[i] > 0;
    }
    return n;
}

static void test_huge_file(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size *= 2) {
        struct huge huge = {0};
        struct huge_member me = huge_member(&huge, size == 4 ? 1 : 2);
        int codes[MOST_RANKS];
        assert_int_equal(run_all(size, NULL, huge_run, &me, codes), 0);
        assert_int_equal(codes[0], 0);
        assert_int_equal(huge.bytes, huge.length);
        assert_int_equal(huge.left, 1);
        assert_true(huge_workers(&huge) >= 2);
    }
}

static void test_chunk_answers(void **state)
{
    (void)state;
    struct huge huge = {0};
    struct huge_member me = huge_member(&huge, 1);
    huge.skip_at = 100 << 20;
    assert_int_equal(huge_run(NULL, &me), 0);
    assert_int_equal(huge.bytes, 101 << 20);
    assert_int_equal(huge.left, 1);
    huge = (struct huge){.length = huge.length, .stop_at = 50 << 20};
    assert_int_equal(huge_run(NULL, &me), 9);
    assert_int_equal(huge.bytes, 51 << 20);
    assert_int_equal(huge.left, 0);
    huge = (struct huge){0}; /* no bytes: left, without a chunk */
    assert_int_equal(huge_run(NULL, &me), 0);
    assert_int_equal(huge.left, 1);
    assert_int_equal(huge_workers(&huge), 0);
    me.options.post = false;
    assert_int_equal(huge_run(NULL, &me), -EINVAL);
}

/* The operand itself. */
static void test_chunk_root(void **state)
{
    (void)state;
    char path[300];
    const char *root = path;
    struct huge huge = {0};
    struct huge_member me = huge_member(&huge, 2);
    snprintf(path, sizeof path, "%s/deep", tree);
    assert_int_equal(chdir(path), 0);
    snprintf(path, sizeof path, "big");
    me.options.roots = &root;
    huge.length = 5 << 20;
    assert_int_equal(huge_run(NULL, &me), 0);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(huge.bytes, huge.length);
    assert_int_equal(huge.left, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_huge_file),
        cmocka_unit_test(test_chunk_answers),
        cmocka_unit_test(test_chunk_root),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
