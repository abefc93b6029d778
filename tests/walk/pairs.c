/*
 * Counterparts: a tree together with one of the same names elsewhere, in one
 * process and on several ranks, with few descriptors, and deep.
 */
#include "../ranks.h"
#include "side.h"

#include <fcntl.h>
#include <sys/resource.h>

/* What the callbacks need: where the counterpart lies, and what they met. */
struct pairs {
    struct poise_walk_options options;
    const char *there;
    uint64_t same, missing, not_there, bad, errors; /* __atomic */
    uint64_t left;                                  /* __atomic */
    bool make; /* copy what is visited instead of comparing it */
};

static void count(uint64_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* Whether the entry's counterpart is what lies under the same path there. */
static bool is_same(const struct poise_walk_entry *entry,
                    const struct pairs *pairs, int fd)
{
    struct poise_buf path = {0}, other = {0};
    struct stat by_pair, by_path;
    poise_walk_path(entry, &path);
    poise_buf_puts(&other, pairs->there);
    poise_buf_puts(&other, poise_buf_str(&path) + strlen(side_where));
    bool same = fstatat(fd, poise_walk_counterpart_name(entry), &by_pair,
                        AT_SYMLINK_NOFOLLOW) == 0 &&
                lstat(poise_buf_str(&other), &by_path) == 0 &&
                by_pair.st_ino == by_path.st_ino &&
                by_pair.st_dev == by_path.st_dev;
    poise_buf_free(&path);
    poise_buf_free(&other);
    return same;
}

static bool make(const struct poise_walk_entry *entry, int fd)
{
    const char *name = poise_walk_counterpart_name(entry);
    if (entry->type == DT_DIR) {
        return mkdirat(fd, name, 0755) == 0;
    }
    int file = openat(fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (file >= 0) {
        close(file);
    }
    return file >= 0;
}

static int on_visit(struct poise_walk_entry *entry, void *arg)
{
    struct pairs *pairs = arg;
    int fd = poise_walk_counterpart_fd(entry);
    if (fd == -ENOENT) {
        count(&pairs->missing);
    } else if (fd == -ENOTDIR) {
        count(&pairs->not_there);
    } else if (pairs->make) {
        count(make(entry, fd) ? &pairs->same : &pairs->bad);
    } else {
        /* The second time it must be the same descriptor. */
        bool same = fd == poise_walk_counterpart_fd(entry);
        count(same && is_same(entry, pairs, fd) ? &pairs->same : &pairs->bad);
    }
    return POISE_WALK_ON;
}

static int on_leave(struct poise_walk_entry *entry, void *arg)
{
    struct pairs *pairs = arg;
    struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = entry->depth}};
    struct stat st;
    if (fstatat(poise_walk_dirfd(entry), entry->name, &st, 0) == 0 &&
        utimensat(poise_walk_counterpart_fd(entry),
                  poise_walk_counterpart_name(entry), times,
                  AT_SYMLINK_NOFOLLOW) == 0) {
        count(&pairs->left);
    }
    return 0;
}

static int on_error(struct poise_worker *worker, const struct poise_error *err,
                    void *arg)
{
    struct pairs *pairs = arg;
    (void)worker;
    (void)err;
    count(&pairs->errors);
    return 0;
}

static int pairs_run(struct poise_world *world, void *arg)
{
    struct pairs *pairs = arg;
    struct poise_walk_hooks hooks = {.visit = on_visit,
                                     .leave =
                                         pairs->options.post ? on_leave : NULL,
                                     .error = on_error,
                                     .arg = arg};
    return poise_walk_run(world, &pairs->options, &hooks, NULL);
}

/* ---- a copy of the tree, with some of it missing ------------------------ */

static char twin_where[256];
static const char *twin_roots[] = {twin_where};

/* The subtree `name` below `from`, by its names and types, below `to`. */
static void twin_copy(int from, int to)
{
    DIR *dir = fdopendir(openat(from, ".", O_RDONLY | O_DIRECTORY));
    struct dirent *d;
    while ((d = readdir(dir))) {
        struct stat st;
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) {
            continue;
        }
        fstatat(from, d->d_name, &st, AT_SYMLINK_NOFOLLOW);
        if (S_ISDIR(st.st_mode)) {
            int in = openat(from, d->d_name, O_RDONLY | O_DIRECTORY);
            int out = tree_dir(to, d->d_name);
            twin_copy(in, out);
            close(in);
            close(out);
        } else {
            tree_file(to, d->d_name);
        }
    }
    closedir(dir);
}

static int set_up(void **state)
{
    if (side_set_up(state) != 0) {
        return -1;
    }
    int fd = tree_temporary(twin_where);
    twin_copy(side_fd, fd);
    close(fd);
    return fd < 0;
}

static int tear_down(void **state)
{
    tree_remove(AT_FDCWD, twin_where);
    return side_tear_down(state);
}

static struct pairs side_pairs(void)
{
    struct pairs pairs = {.options = side_options(), .there = twin_where};
    pairs.options.counterparts = twin_roots;
    return pairs;
}

static void check_all_same(const struct pairs *pairs)
{
    assert_int_equal(pairs->same, side_truth.count);
    assert_int_equal(pairs->missing + pairs->not_there + pairs->bad, 0);
    assert_int_equal(pairs->errors, 0);
}

static void test_same_names(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct pairs pairs = side_pairs();
        pairs.options.pool.threads = threads;
        pairs.options.descriptors = threads == 2 ? 1 : 0;
        pairs.options.pool.queue_bytes = threads == 3 ? 4096 : 0;
        tree_single_entries(threads == 3);
        assert_int_equal(pairs_run(NULL, &pairs), 0);
        tree_single_entries(false);
        check_all_same(&pairs);
    }
}

static void test_other_ranks(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size += 2) {
        struct pairs pairs = side_pairs();
        int codes[MOST_RANKS];
        pairs.options.pool.policy =
            size == 2 ? POISE_POLICY_CENTRAL : POISE_POLICY_NEAR;
        pairs.options.descriptors = 1;
        assert_int_equal(run_all(size, NULL, pairs_run, &pairs, codes), 0);
        assert_int_equal(codes[0], 0);
        check_all_same(&pairs);
    }
}

static void test_no_openat2(void **state)
{
    (void)state;
    struct pairs pairs = side_pairs();
    pairs.options.descriptors = 1;
    pairs.options.pool.threads = 1;
    poise_fault_arm(POISE_FAULT_OPEN, 3, ENOSYS, false);
    assert_int_equal(pairs_run(NULL, &pairs), 0);
    poise_fault_arm(POISE_FAULT_OPEN, 0, 0, false);
    check_all_same(&pairs);
}

/* An entry `name` of the copy becomes something else while `test` runs. */
static struct pairs with_changed(const char *name, const char *link_to,
                                 bool openat2)
{
    struct pairs pairs = side_pairs();
    int fd = open(twin_where, O_RDONLY | O_DIRECTORY);
    pairs.options.pool.threads = 1;
    assert_int_equal(renameat(fd, name, fd, "aside"), 0);
    if (link_to) {
        assert_int_equal(symlinkat(link_to, fd, name), 0);
    }
    if (!openat2) {
        poise_fault_arm(POISE_FAULT_OPEN, 3, ENOSYS, false);
    }
    assert_int_equal(pairs_run(NULL, &pairs), 0);
    poise_fault_arm(POISE_FAULT_OPEN, 0, 0, false);
    unlinkat(fd, name, 0);
    assert_int_equal(renameat(fd, "aside", fd, name), 0);
    close(fd);
    return pairs;
}

static void test_not_there(void **state)
{
    (void)state;
    for (int openat2 = 0; openat2 < 2; openat2++) {
        /* 120 entries below; the directory itself is missing, too. */
        struct pairs pairs = with_changed("lopsided", NULL, openat2);
        assert_int_equal(pairs.missing, 120);
        assert_int_equal(pairs.bad, 1);
        assert_int_equal(pairs.not_there + pairs.errors, 0);
        /* A link to the very directory is not followed. */
        pairs = with_changed("lopsided", "aside", openat2);
        assert_int_equal(pairs.not_there, 120);
        assert_int_equal(pairs.missing + pairs.bad + pairs.errors, 0);
        assert_int_equal(pairs.same, side_truth.count - 120);
    }
    struct pairs pairs = side_pairs();
    static const char *nowhere[] = {"/nonexistent"};
    pairs.options.counterparts = nowhere;
    assert_int_equal(pairs_run(NULL, &pairs), 0);
    assert_int_equal(pairs.missing, side_truth.count - 1); /* but the root */
    assert_int_equal(pairs.errors, 0);
}

/* The counterpart itself may be a link. */
static void test_linked_root(void **state)
{
    (void)state;
    struct pairs pairs = side_pairs();
    char link[300];
    const char *roots[] = {link};
    snprintf(link, sizeof link, "%s/../pairs-link-%d", twin_where, getpid());
    assert_int_equal(symlink(twin_where, link), 0);
    pairs.options.counterparts = roots;
    assert_int_equal(pairs_run(NULL, &pairs), 0);
    unlink(link);
    /* The root is the link, all else what is below the directory. */
    assert_int_equal(pairs.same, side_truth.count - 1);
    assert_int_equal(pairs.bad, 1);
}

/* Errors other than that nothing is there are counted and reported. */
static void test_errors(void **state)
{
    (void)state;
    struct pairs pairs = side_pairs();
    pairs.options.pool.threads = 1;
    poise_fault_arm(POISE_FAULT_OPEN, 2, EIO, false);
    assert_int_equal(pairs_run(NULL, &pairs), 0);
    poise_fault_arm(POISE_FAULT_OPEN, 0, 0, false);
    assert_int_equal(pairs.errors, 1);
    assert_int_equal(pairs.bad, 1);
    assert_int_equal(pairs.same, side_truth.count - 1);
}

/* ---- deep --------------------------------------------------------------- */

/* With names so long that one call opens few of them. */
static void chain(int root, int depth)
{
    char name[201];
    int at = dup(root);
    memset(name, 'd', sizeof name - 1);
    name[sizeof name - 1] = 0;
    for (int i = 0; i < depth; i++) {
        int next = tree_dir(at, name);
        if (i % 100 == 0) {
            tree_file(next, "f");
        }
        close(at);
        at = next;
    }
    close(at);
}

/* A chain is copied and its times are set from below, with 64 descriptors, of
 * which workers that might be added hold some; then it is compared. What was
 * closed is opened again, but not much of it: from below, each step would
 * otherwise begin at the top. */
static void test_deep_copy(void **state)
{
    (void)state;
    int depth = getenv("POISE_TEST_SOAK") ? 20000 : 400;
    char from[256], to[256], copy[300];
    const char *root = from, *there = copy;
    struct rlimit before, few = {64, 64};
    int fd = tree_temporary(from);
    close(tree_temporary(to));
    snprintf(copy, sizeof copy, "%s/copy", to);
    chain(fd, depth);
    getrlimit(RLIMIT_NOFILE, &before);
    few.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct pairs pairs = {.options = {.roots = &root,
                                      .root_count = 1,
                                      .counterparts = &there,
                                      .post = true,
                                      .pool.threads = 2,
                                      .pool.threads_max = 32},
                          .make = true};
    poise_fault_arm(POISE_FAULT_OPEN, UINT64_MAX, EIO, false);
    assert_int_equal(pairs_run(NULL, &pairs), 0);
    assert_in_range(poise_fault_calls(POISE_FAULT_OPEN), depth,
                    depth * (5 + depth / 300));
    poise_fault_arm(POISE_FAULT_OPEN, 0, 0, false);
    assert_int_equal(pairs.bad + pairs.missing + pairs.not_there, 0);
    assert_int_equal(pairs.errors, 0);
    assert_int_equal(pairs.same, 1 + depth + depth / 100);
    assert_int_equal(pairs.left, 1 + depth);
    setrlimit(RLIMIT_NOFILE, &before);
    struct seen seen = {.count_only = true};
    struct poise_walk_options again = {.roots = &there, .root_count = 1};
    again.pool.threads = 1;
    assert_int_equal(seen_walk(&again, &seen, NULL), 0);
    assert_int_equal(seen.count, 1 + depth + depth / 100);
    close(fd);
    tree_remove(AT_FDCWD, from);
    tree_remove(AT_FDCWD, to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_names),  cmocka_unit_test(test_other_ranks),
        cmocka_unit_test(test_no_openat2),  cmocka_unit_test(test_not_there),
        cmocka_unit_test(test_linked_root), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_deep_copy),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
