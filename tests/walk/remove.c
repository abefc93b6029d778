/*
 * Removing trees: all of them, on worlds of ranks; what stays and what is said
 * of it; somebody who puts links in the place of directories meanwhile.
 */
#include "../ranks.h"
#include "../share.h"
#include "tree.h"

#include <poise/remove.h>
#include <sys/resource.h>

static char where[256];
static int where_fd;

struct job {
    struct poise_remove_options options;
    const char *const *words; /* of a filter, which each rank has for itself */
    size_t word_count;
    struct poise_remove_result result;
    struct tree_list removed;
    unsigned errors; /* __atomic */
    char first[512]; /* the first error */
};

static int on_error(struct poise_worker *worker, const struct poise_error *err,
                    void *arg)
{
    struct job *job = arg;
    (void)worker;
    if (__atomic_fetch_add(&job->errors, 1, __ATOMIC_RELAXED) == 0) {
        snprintf(job->first, sizeof job->first, "%s: %s", err->what, err->why);
    }
    return 0;
}

static int on_removed(const char *path, size_t len, bool directory, void *arg)
{
    struct job *job = arg;
    (void)directory;
    tree_list_add(&job->removed, path, len);
    return 0;
}

static int remove_rank(struct poise_world *world, void *arg)
{
    struct job *job = arg;
    struct poise_remove_result result = {0};
    struct poise_remove_options options = job->options;
    if (job->words) {
        assert_int_equal(poise_walk_filter_parse(job->words, job->word_count,
                                                 &options.filter),
                         0);
    }
    int code = poise_remove_run(world, &options, &result);
    if (job->words) {
        poise_walk_filter_free(options.filter);
    }
    if (!world || poise_world_rank(world) == 0) {
        job->result = result;
        memset(&job->result.walk, 0, sizeof job->result.walk);
    }
    poise_remove_result_free(&result);
    return code;
}

/* Remove the paths, on that many ranks and threads; 0: without a world. */
static void job_run(struct job *job, const char *const *paths, size_t count,
                    int ranks, unsigned threads)
{
    int results[MOST_RANKS] = {0};
    job->options.walk.roots = paths;
    job->options.walk.root_count = count;
    job->options.walk.pool.threads = threads;
    job->options.walk.pool.policy = POISE_POLICY_HYBRID;
    job->options.error = on_error;
    job->options.removed = on_removed;
    job->options.arg = job;
    if (ranks == 0) {
        results[0] = remove_rank(NULL, job);
    } else {
        struct poise_local_options local = {0};
        assert_int_equal(run_all(ranks, &local, remove_rank, job, results), 0);
    }
    for (int r = 0; r < ranks || r == 0; r++) {
        assert_int_equal(results[r], 0);
    }
    tree_list_sort(&job->removed);
}

static bool is_there(const char *path)
{
    struct stat st;
    return fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int set_up(void **state)
{
    (void)state;
    where_fd = tree_temporary(where);
    return where_fd < 0 || chdir(where) != 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    close(where_fd);
    return chdir("/") != 0 || rmdir(where) != 0 ? -1 : 0;
}

static void make_tree(const char *name)
{
    int fd = tree_dir(AT_FDCWD, name);
    tree_nasty(fd);
    close(fd);
}

/* Everything goes, once, and is listed, on any number of ranks and threads. */
static void test_all(void **state)
{
    static const struct {
        int ranks;
        unsigned threads;
    } ways[] = {{0, 1}, {0, 4}, {1, 1}, {2, 2}, {4, 1}, {8, 1}};
    const char *paths[] = {"t//"};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct tree_list truth = {0};
        struct job job = {0};
        if (!in_share(i)) {
            continue;
        }
        make_tree("t");
        tree_truth("t", &truth);
        job_run(&job, paths, 1, ways[i].ranks, ways[i].threads);
        assert_false(is_there("t"));
        assert_true(tree_list_equal(&truth, &job.removed));
        assert_int_equal(job.result.files + job.result.directories,
                         truth.count);
        assert_int_equal(job.result.errors, 0);
        assert_int_equal(job.errors, 0);
        tree_list_free(&truth);
        tree_list_free(&job.removed);
    }
}

/* A dry run lists the same and changes nothing. */
static void test_dry_run(void **state)
{
    const char *paths[] = {"t"};
    struct tree_list truth = {0}, after = {0};
    struct job job = {.options.dry_run = true};
    (void)state;
    make_tree("t");
    tree_truth("t", &truth);
    job_run(&job, paths, 1, 2, 1);
    assert_true(tree_list_equal(&truth, &job.removed));
    tree_truth("t", &after);
    assert_true(tree_list_equal(&truth, &after));
    assert_int_equal(poise_walk_remove(AT_FDCWD, "t"), 0);
    assert_false(is_there("t"));
    tree_list_free(&truth);
    tree_list_free(&after);
    tree_list_free(&job.removed);
}

/* What is refused stays, one error each, and the rest goes. */
static void test_refused(void **state)
{
    const char *paths[] = {"t/.",   "..", "t/d/../", "none",
                           "link/", "",   "file/",   "gone"};
    const char *roots[] = {"/", "/..", "//", "/../", "/tmp/.."};
    struct job job = {.options.dry_run = true};
    (void)state;
    job_run(&job, roots, sizeof roots / sizeof *roots, 0, 1);
    assert_int_equal(job.errors, 5);
    assert_int_equal(job.removed.count, 0);
    job = (struct job){0};
    mkdir("t", 0755);
    mkdir("t/d", 0755);
    mkdir("gone", 0755);
    symlink("t", "link");
    tree_file(AT_FDCWD, "file");
    job_run(&job, paths, sizeof paths / sizeof *paths, 2, 1);
    assert_int_equal(job.errors, 7);
    assert_int_equal(job.result.errors, 7);
    assert_true(is_there("t/d") && is_there("link") && is_there("file"));
    assert_false(is_there("gone"));
    tree_list_free(&job.removed);

    const char *rest[] = {"link", "file", "none", "t"};
    job = (struct job){.options.force = true};
    job_run(&job, rest, 4, 0, 1);
    assert_int_equal(job.errors, 0);
    assert_false(is_there("t") || is_there("link") || is_there("file"));
    tree_list_free(&job.removed);
}

/* The k-th name cannot be removed: one error, it stays with the directories
 * above it, the rest goes. Run again, all goes. */
static void test_fault_unlink(void **state)
{
    const char *paths[] = {"t"};
    (void)state;
    for (uint64_t k = 1; k < 400; k += 97) {
        for (int ranks = 0; ranks < 4; ranks += 3) {
            struct job job = {0};
            struct tree_list left = {0};
            make_tree("t");
            poise_fault_arm(POISE_FAULT_UNLINK, k, EACCES, false);
            job_run(&job, paths, 1, ranks, ranks > 1 ? 1 : 2);
            poise_fault_arm(POISE_FAULT_UNLINK, 0, 0, false);
            assert_int_equal(job.errors, 1);
            assert_int_equal(job.result.errors, 1);
            assert_non_null(strstr(job.first, "t/"));
            assert_non_null(strstr(job.first, strerror(EACCES)));
            tree_truth("t", &left);
            /* A chain of names: what could not go, and all above it. */
            for (size_t i = 1; i < left.count; i++) {
                size_t len = strlen(left.items[i - 1]);
                assert_memory_equal(left.items[i], left.items[i - 1], len);
                assert_int_equal(left.items[i][len], '/');
            }
            tree_list_free(&left);
            tree_list_free(&job.removed);
            job = (struct job){0};
            job_run(&job, paths, 1, 0, 1);
            assert_false(is_there("t"));
            tree_list_free(&job.removed);
        }
    }
}

/* Directories that cannot be opened: the empty ones go all the same. */
static void test_fault_open(void **state)
{
    const char *paths[] = {"t"};
    struct job job = {0};
    (void)state;
    mkdir("t", 0755);
    mkdir("t/empty", 0755);
    poise_fault_arm(POISE_FAULT_OPEN, 2, EACCES, false);
    job_run(&job, paths, 1, 0, 1);
    poise_fault_arm(POISE_FAULT_OPEN, 0, 0, false);
    assert_int_equal(job.errors, 0);
    assert_false(is_there("t"));
    tree_list_free(&job.removed);

    job = (struct job){0};
    mkdir("t", 0755);
    mkdir("t/full", 0755);
    tree_file(AT_FDCWD, "t/full/file");
    poise_fault_arm(POISE_FAULT_OPEN, 2, EACCES, false);
    job_run(&job, paths, 1, 0, 1);
    poise_fault_arm(POISE_FAULT_OPEN, 0, 0, false);
    assert_int_equal(job.errors, 1);
    assert_non_null(strstr(job.first, "t/full"));
    assert_true(is_there("t/full/file"));
    tree_list_free(&job.removed);
    assert_int_equal(poise_walk_remove(AT_FDCWD, "t"), 0);
}

/* ---- filters ------------------------------------------------------------ */

static void test_filter(void **state)
{
    static const char *const words[] = {"-name", "*.old", "-o", "-type", "d"};
    const char *paths[] = {"t"};
    (void)state;
    for (int ranks = 0; ranks < 4; ranks++) {
        struct job job = {0};
        mkdir("t", 0755);
        mkdir("t/goes", 0755);
        tree_file(AT_FDCWD, "t/goes/1.old");
        mkdir("t/stays", 0755);
        mkdir("t/stays/goes", 0755);
        tree_file(AT_FDCWD, "t/stays/2.old");
        tree_file(AT_FDCWD, "t/stays/new");
        job.words = words;
        job.word_count = 5;
        job_run(&job, paths, 1, ranks, 1);
        assert_int_equal(job.errors, 0);
        assert_int_equal(job.result.files, 2);
        assert_int_equal(job.result.directories, 2);
        assert_int_equal(job.result.kept, 1);
        assert_false(is_there("t/goes") || is_there("t/stays/goes"));
        assert_true(is_there("t/stays/new"));
        tree_list_free(&job.removed);
        assert_int_equal(poise_walk_remove(AT_FDCWD, "t"), 0);
    }
}

/* ---- others ------------------------------------------------------------- */

struct swapper {
    int stop; /* __atomic */
};

/* A directory of the tree is a link to what is outside, again and again. */
static void *swap(void *arg)
{
    struct swapper *swapper = arg;
    while (!__atomic_load_n(&swapper->stop, __ATOMIC_RELAXED)) {
        for (int i = 0; i < 20; i++) {
            char dir[32], aside[32];
            snprintf(dir, sizeof dir, "t/%d", i);
            snprintf(aside, sizeof aside, "aside/%d", i);
            if (rename(dir, aside) == 0) {
                symlink("../outside", dir);
                sched_yield();
                unlink(dir);
                rename(aside, dir);
            }
        }
    }
    return NULL;
}

static void test_swapped_for_links(void **state)
{
    const char *paths[] = {"t"};
    (void)state;
    mkdir("outside", 0755);
    tree_file(AT_FDCWD, "outside/precious");
    for (int round = 0; round < (is_light() ? 2 : 6); round++) {
        struct swapper swapper = {0};
        struct job job = {0};
        pthread_t thread;
        char name[64];
        mkdir("t", 0755);
        mkdir("aside", 0755);
        for (int i = 0; i < 20; i++) {
            snprintf(name, sizeof name, "t/%d", i);
            mkdir(name, 0755);
            snprintf(name, sizeof name, "t/%d/precious", i);
            tree_file(AT_FDCWD, name);
        }
        assert_int_equal(pthread_create(&thread, NULL, swap, &swapper), 0);
        job_run(&job, paths, 1, 0, 2);
        __atomic_store_n(&swapper.stop, 1, __ATOMIC_RELAXED);
        pthread_join(thread, NULL);
        assert_true(is_there("outside/precious"));
        tree_list_free(&job.removed);
        assert_int_equal(poise_walk_remove(AT_FDCWD, "t"), 0);
        assert_int_equal(poise_walk_remove(AT_FDCWD, "aside"), 0);
    }
    assert_int_equal(poise_walk_remove(AT_FDCWD, "outside"), 0);
}

/* Deeper than there are descriptors, and than a path may be long. */
static void test_deep(void **state)
{
    struct rlimit old, few;
    const char *paths[] = {"t"};
    struct job job = {0};
    (void)state;
    int fd = tree_dir(AT_FDCWD, "t");
    tree_chain(fd, 1200);
    close(fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = old;
    few.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    job_run(&job, paths, 1, 0, 2);
    assert_int_equal(job.result.directories, 1201);
    assert_int_equal(job.errors, 0);
    tree_list_free(&job.removed);
    fd = tree_dir(AT_FDCWD, "t");
    tree_chain(fd, 300);
    close(fd);
    assert_int_equal(poise_walk_remove(where_fd, "t"), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_false(is_there("t"));
}

/* One entry of a directory: what fails is said, and the rest is gone. */
static void test_fault_one(void **state)
{
    (void)state;
    for (uint64_t k = 1; k < 5; k++) {
        mkdir("t", 0755);
        mkdir("t/d", 0755);
        tree_file(AT_FDCWD, "t/d/1");
        tree_file(AT_FDCWD, "t/2");
        poise_fault_arm(POISE_FAULT_UNLINK, k, EROFS, false);
        assert_int_equal(poise_walk_remove(where_fd, "t"), -EROFS);
        poise_fault_arm(POISE_FAULT_UNLINK, 0, 0, false);
        assert_int_equal(poise_error_last()->code, EROFS);
        assert_true(is_there("t"));
        assert_int_equal(poise_walk_remove(where_fd, "t"), 0);
        assert_false(is_there("t"));
    }
    assert_int_equal(poise_walk_remove(where_fd, "t"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_dry_run),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_fault_unlink),
        cmocka_unit_test(test_fault_open),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_swapped_for_links),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_fault_one),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
