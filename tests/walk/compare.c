/*
 * Comparing trees, from within: data of files that changed since they were
 * looked at, names of linked files, and worlds of ranks. Everything else is
 * held against a recursion in Python: compare.py.
 */
#include "../ranks.h"
#include "../share.h"
#include "tree.h"
#include "walk/compare/internal.h"

static char where[256];
static int where_fd;

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

static void write_file(const char *name, char byte, size_t len)
{
    int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    char block[4096];
    assert_true(fd >= 0);
    memset(block, byte, sizeof block);
    for (size_t at = 0; at < len; at += sizeof block) {
        size_t n = len - at < sizeof block ? len - at : sizeof block;
        assert_int_equal(write(fd, block, n), n);
    }
    close(fd);
}

static void look(const char *name, struct statx *out)
{
    assert_int_equal(poise_file_statx(AT_FDCWD, name, 0, COMPARE_STATX, out),
                     0);
}

/* ---- data --------------------------------------------------------------- */

static struct {
    struct statx stx[2];
    uint64_t at;
    int same;
} content;

/* Compare "a" and "b" as they were looked at in `content`; a task that polls is
 * needed for large ones. */
static int content_task(struct poise_worker *worker, const void *task,
                        size_t len, void *arg)
{
    struct compare_worker *w = arg;
    struct compare_file files[2] = {
        {.dirfd = AT_FDCWD, .name = "a", .stx = &content.stx[0]},
        {.dirfd = AT_FDCWD, .name = "b", .stx = &content.stx[1]}};
    (void)task;
    (void)len;
    content.same = compare_content(w, worker, files, &content.at);
    return 0;
}

static int compare_as_seen(void)
{
    struct compare_worker w = {0};
    struct poise_pool_options options = {.threads = 1};
    struct poise_pool_hooks hooks = {.run = content_task, .arg = &w};
    struct poise_pool *pool;
    assert_int_equal(poise_pool_create(NULL, &options, &hooks, &pool), 0);
    assert_int_equal(poise_pool_add(pool, "x", 1), 0);
    assert_int_equal(poise_pool_run(pool), 0);
    poise_pool_destroy(pool);
    free(w.buffers[0]);
    free(w.buffers[1]);
    return content.same;
}

static void test_sizes(void **state)
{
    static const size_t sizes[] = {1,
                                   4095,
                                   COMPARE_BUFFER_BYTES - 1,
                                   COMPARE_BUFFER_BYTES,
                                   COMPARE_BUFFER_BYTES + 1,
                                   3 * COMPARE_BUFFER_BYTES};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_file("a", 'x', sizes[i]);
        write_file("b", 'x', sizes[i]);
        look("a", &content.stx[0]);
        look("b", &content.stx[1]);
        assert_int_equal(compare_as_seen(), 1);
        for (int end = 0; end < 2; end++) {
            off_t at = end ? (off_t)sizes[i] - 1 : (off_t)sizes[i] / 2;
            int fd = open("b", O_WRONLY);
            assert_int_equal(pwrite(fd, "y", 1, at), 1);
            look("b", &content.stx[1]);
            assert_int_equal(compare_as_seen(), 0);
            assert_int_equal(content.at, at);
            assert_int_equal(pwrite(fd, "x", 1, at), 1);
            close(fd);
        }
    }
    unlink("a");
    unlink("b");
}

/* What was looked at is no more what is read: looked at again. */
static void test_changed(void **state)
{
    static const size_t sizes[][2] = {
        {10, 10}, {10, 20}, {200000, 200000}, {200000, 100}, {100, 200000}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_file("a", 'x', sizes[i][1]);
        write_file("b", 'y', sizes[i][0]);
        look("a", &content.stx[0]);
        look("b", &content.stx[1]);
        content.stx[0].stx_size = sizes[i][0];
        content.stx[0].stx_ctime.tv_sec -= 10;
        content.stx[1].stx_ctime.tv_sec -= 10;
        write_file("b", 'x', sizes[i][1]);
        assert_int_equal(compare_as_seen(), 1);
        assert_int_equal(content.stx[1].stx_size, sizes[i][1]);
    }
    unlink("a");
    unlink("b");
}

static void test_fault_content(void **state)
{
    (void)state;
    write_file("a", 'x', 300000);
    write_file("b", 'x', 300000);
    look("a", &content.stx[0]);
    look("b", &content.stx[1]);
    for (int k = 1; k <= 6; k++) {
        poise_fault_arm(POISE_FAULT_READ, (uint64_t)k, EIO, false);
        assert_int_equal(compare_as_seen(), -EIO);
        poise_fault_arm(POISE_FAULT_READ, 0, 0, false);
    }
    for (int k = 1; k <= 2; k++) {
        poise_fault_arm(POISE_FAULT_OPEN, (uint64_t)k, EACCES, false);
        assert_int_equal(compare_as_seen(), -EACCES);
        poise_fault_arm(POISE_FAULT_OPEN, 0, 0, false);
    }
    assert_int_equal(compare_as_seen(), 1);
    unlink("a");
    unlink("b");
}

/* ---- ranks -------------------------------------------------------------- */

struct job {
    struct poise_compare_options options;
    struct poise_compare_result result;
    struct tree_list found;
    int (*difference)(const struct poise_difference *d, void *arg);
};

static int on_difference(const struct poise_difference *d, void *arg)
{
    struct job *job = arg;
    char line[600];
    int len = snprintf(line, sizeof line, "%u %.*s %s", d->kinds,
                       (int)d->path_len, d->path, d->other);
    tree_list_add(&job->found, line, (size_t)len);
    return 0;
}

static int compare_rank(struct poise_world *world, void *arg)
{
    struct job *job = arg;
    struct poise_compare_result result = {0};
    int code = poise_compare_run(world, &job->options, &result);
    if (!world || poise_world_rank(world) == 0) {
        job->result = result;
        memset(&job->result.walk, 0, sizeof job->result.walk);
    }
    poise_compare_result_free(&result);
    return code;
}

static void job_run(struct job *job, int ranks, unsigned threads)
{
    int results[MOST_RANKS] = {0};
    job->options.a = "t";
    job->options.b = "u";
    job->options.metadata = POISE_COMPARE_METADATA & ~POISE_DIFFERS_TIMES;
    job->options.walk.pool.threads = threads;
    job->options.walk.pool.policy = POISE_POLICY_HYBRID;
    job->options.difference = job->difference ? job->difference : on_difference;
    job->options.arg = job;
    if (ranks == 0) {
        results[0] = compare_rank(NULL, job);
    } else {
        struct poise_local_options local = {0};
        assert_int_equal(run_all(ranks, &local, compare_rank, job, results), 0);
    }
    for (int r = 0; r < ranks || r == 0; r++) {
        assert_int_equal(results[r], 0);
    }
    tree_list_sort(&job->found);
}

/* The same on any number of ranks and threads. */
static void test_ranks(void **state)
{
    static const char *const trees[] = {"t", "u"};
    static const char *const want[] = {"1 wide/sub007 ", "16 lopsided ",
                                       "2 wide/new ",    "256 hard -rf",
                                       "4 dangling ",    "8 loop "};
    static const struct {
        int ranks;
        unsigned threads;
    } ways[] = {{0, 1}, {0, 4}, {1, 2}, {2, 2}, {4, 1}, {8, 1}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        int fd = tree_dir(AT_FDCWD, trees[i]);
        tree_nasty(fd);
        close(fd);
    }
    assert_int_equal(rename("u/wide/sub007", "u/wide/new"), 0);
    assert_int_equal(chmod("u/lopsided", 0700), 0);
    unlink("u/hard");
    tree_file(AT_FDCWD, "u/hard");
    unlink("u/dangling");
    tree_file(AT_FDCWD, "u/dangling");
    unlink("u/loop");
    symlink("..", "u/loop");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct job job = {0};
        struct tree_list wanted = {0};
        for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
            tree_list_add(&wanted, want[k], strlen(want[k]));
        }
        tree_list_sort(&wanted);
        if (in_share(i)) {
            job_run(&job, ways[i].ranks, ways[i].threads);
            assert_true(tree_list_equal(&wanted, &job.found));
            assert_int_equal(job.result.differences, wanted.count);
            assert_int_equal(job.result.errors, 0);
            tree_list_free(&job.found);
            job = (struct job){.options.first_only = true};
            job_run(&job, ways[i].ranks, ways[i].threads);
            assert_true(job.result.differences > 0);
        }
        tree_list_free(&job.found);
        tree_list_free(&wanted);
    }
    tree_remove(AT_FDCWD, "t");
    tree_remove(AT_FDCWD, "u");
}

static int on_chunk_difference(const struct poise_difference *d, void *arg)
{
    struct job *job = arg;
    char line[100];
    int len = snprintf(line, sizeof line, "%u %.*s %lld", d->kinds,
                       (int)d->path_len, d->path, (long long)d->at);
    tree_list_add(&job->found, line, (size_t)len);
    return 0;
}

static void put_byte(const char *name, off_t at)
{
    int fd = open(name, O_WRONLY);
    assert_int_equal(pwrite(fd, "y", 1, at), 1);
    close(fd);
}

/* Large files in chunks: the first byte that differs is found wherever it is,
 * and what differs besides is told with it, once. */
static void test_chunks(void **state)
{
    static const struct {
        int ranks;
        unsigned threads;
    } ways[] = {{0, 1}, {0, 4}, {2, 2}, {3, 1}};
    enum { CHUNK = 4096, LEN = 40 * CHUNK + 7 };
    (void)state;
    assert_int_equal(mkdir("t", 0755) | mkdir("u", 0755), 0);
    for (int i = 0; i < 6; i++) {
        char name[2][8];
        for (int k = 0; k < 2; k++) {
            snprintf(name[k], sizeof name[k], "%c/%d", "tu"[k], i);
            write_file(name[k], 'x', LEN);
        }
        if (i > 0 && i < 5) {
            put_byte(name[1], i == 1 ? 0 : i == 2 ? LEN - 1 : i * 9 * CHUNK);
            put_byte(name[1], LEN - 1);
        }
        if (i >= 4) {
            chmod(name[1], 0600);
        }
    }
    for (size_t i = 0; i < 2 * sizeof ways / sizeof *ways; i++) {
        static const char *const want[2][5] = {
            {"8 1 0", "8 2 163846", "8 3 110592", "24 4 147456", "16 5 0"},
            {"8 1 -1", "8 2 -1", "8 3 -1", "24 4 -1", "16 5 0"}};
        struct job job = {.options.walk.chunk_bytes = CHUNK,
                          .options.content =
                              i % 2 ? POISE_COMPARE_HASH : POISE_COMPARE_BYTES};
        struct tree_list wanted = {0};
        for (size_t k = 0; k < 5; k++) {
            tree_list_add(&wanted, want[i % 2][k], strlen(want[i % 2][k]));
        }
        tree_list_sort(&wanted);
        job.difference = on_chunk_difference;
        job_run(&job, ways[i / 2].ranks, ways[i / 2].threads);
        assert_true(tree_list_equal(&wanted, &job.found));
        assert_int_equal(job.result.errors, 0);
        assert_int_equal(job.result.compared, 7);
        tree_list_free(&job.found);
        tree_list_free(&wanted);
    }
    /* A read error is one error, whatever chunk it was in. */
    for (int k = 1; k <= 3; k++) {
        struct job job = {.options.walk.chunk_bytes = CHUNK,
                          .difference = on_chunk_difference};
        poise_fault_arm(POISE_FAULT_READ, (uint64_t)k * 20, EIO, true);
        job_run(&job, 0, 1);
        poise_fault_arm(POISE_FAULT_READ, 0, 0, false);
        assert_true(job.result.errors >= 1 && job.result.errors <= 6);
        tree_list_free(&job.found);
    }
    tree_remove(AT_FDCWD, "t");
    tree_remove(AT_FDCWD, "u");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),         cmocka_unit_test(test_changed),
        cmocka_unit_test(test_fault_content), cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_chunks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
