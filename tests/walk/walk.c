/*
 * The walk's engine in one process: against a plain recursion, with few
 * descriptors, deep and flat.
 */
#include "../share.h"
#include "side.h"

#include "walk/engine/internal.h"

#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/vfs.h>

static void check_walk(const struct poise_walk_options *options, bool stat)
{
    struct seen seen = {.stat = stat, .dirfd = true};
    struct poise_walk_result result;
    assert_int_equal(seen_walk(options, &seen, &result), 0);
    assert_true(tree_list_equal(&seen.paths, &side_truth));
    assert_int_equal(result.entries, side_truth.count);
    assert_int_equal(result.errors, 0);
    assert_int_equal(seen.errors, 0);
    poise_walk_result_free(&result);
    seen_free(&seen);
}

static void test_same_as_recursion(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads++) {
        for (int kind = 0; kind < 4; kind++) {
            struct poise_walk_options options = side_options();
            options.pool.threads = threads;
            options.statx_mask = kind & 1 ? STATX_BASIC_STATS : 0;
            options.one_file_system = kind & 2;
            options.descriptors = kind & 2 ? 1 : 0;
            check_walk(&options, kind == 2);
        }
    }
}

static void test_single_entries(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct poise_walk_options options = side_options();
        options.pool.threads = threads;
        options.statx_mask = threads == 2 ? STATX_BASIC_STATS : 0;
        tree_single_entries(true);
        check_walk(&options, false);
        tree_single_entries(false);
    }
}

static void test_spilled(void **state)
{
    (void)state;
    struct poise_walk_options options = side_options();
    options.pool.queue_bytes = 4096;
    check_walk(&options, false);
    tree_single_entries(true);
    check_walk(&options, false);
    tree_single_entries(false);
}

static void test_no_openat2(void **state)
{
    (void)state;
    /* The first calls are refused as a sandbox would: then without it. */
    struct poise_walk_options options = side_options();
    options.descriptors = 1;
    options.pool.threads = 1;
    struct seen seen = {0};
    poise_fault_arm(POISE_FAULT_OPEN, 2, ENOSYS, false);
    assert_int_equal(seen_walk(&options, &seen, NULL), 0);
    poise_fault_arm(POISE_FAULT_OPEN, 0, 0, false);
    assert_true(tree_list_equal(&seen.paths, &side_truth));
    assert_int_equal(seen.errors, 0);
    seen_free(&seen);
}

static void test_types(void **state)
{
    (void)state;
    struct poise_walk_options options = side_options();
    struct seen seen = {0};
    assert_int_equal(seen_walk(&options, &seen, NULL), 0);
    assert_int_equal(seen.types[DT_LNK], 3);
    assert_int_equal(seen.types[DT_FIFO], 1);
    assert_int_equal(seen.types[DT_UNKNOWN], 0);
    assert_int_equal(seen.types[DT_DIR] + seen.types[DT_REG] + 4,
                     side_truth.count);
    seen_free(&seen);
}

/* ---- answers and limits ------------------------------------------------- */

static size_t count_deeper(const struct tree_list *paths, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < paths->count; i++) {
        size_t depth = 0;
        for (const char *p = paths->items[i] + strlen(side_where); *p; p++) {
            depth += *p == '/';
        }
        n += depth > most;
    }
    return n;
}

static void test_depth(void **state)
{
    (void)state;
    for (uint32_t depth = 0; depth < 4; depth++) {
        struct poise_walk_options options = side_options();
        struct seen seen = {0};
        options.max_depth = depth;
        options.max_depth_is_zero = depth == 0;
        assert_int_equal(seen_walk(&options, &seen, NULL), 0);
        assert_int_equal(seen.paths.count,
                         side_truth.count - count_deeper(&side_truth, depth));
        assert_int_equal(count_deeper(&seen.paths, depth), 0);
        seen_free(&seen);
    }
}

static void test_skip_and_stop(void **state)
{
    (void)state;
    struct poise_walk_options options = side_options();
    struct seen seen = {.skip = "lopsided"};
    assert_int_equal(seen_walk(&options, &seen, NULL), 0);
    assert_int_equal(seen.paths.count, side_truth.count - 120);
    seen_free(&seen);
    struct seen stopped = {.stop = "level3"};
    assert_int_equal(seen_walk(&options, &stopped, NULL), 42);
    seen_free(&stopped);
}

static int fail_at_empty(struct poise_walk_entry *entry, struct seen *seen)
{
    (void)seen;
    return strcmp(entry->name, "empty") == 0
               ? poise_error_set(EDOM, "test", entry->name, NULL)
               : 0;
}

static void test_visit_fails(void **state)
{
    (void)state;
    struct poise_walk_options options = side_options();
    struct seen seen = {.extra = fail_at_empty};
    assert_int_equal(seen_walk(&options, &seen, NULL), -EDOM);
    assert_int_equal(poise_error_last()->code, EDOM);
    seen_free(&seen);
}

static void test_roots(void **state)
{
    (void)state;
    char slash[300], file[300], link[300], link_slash[300], missing[300];
    snprintf(slash, sizeof slash, "%s/empty/", side_where);
    snprintf(file, sizeof file, "%s/-rf", side_where);
    snprintf(link, sizeof link, "%s/to-dir", side_where);
    snprintf(link_slash, sizeof link_slash, "%s/loop/", side_where);
    snprintf(missing, sizeof missing, "%s/missing", side_where);
    const char *roots[] = {slash, file, missing, link, link_slash, file};
    struct poise_walk_options options = side_options();
    struct poise_walk_result result;
    struct seen seen = {0};
    options.roots = roots;
    options.root_count = sizeof roots / sizeof *roots;
    options.max_depth = 1;
    assert_int_equal(seen_walk(&options, &seen, &result), 0);
    assert_int_equal(result.errors, 1);
    assert_int_equal(seen.last_error, ENOENT);
    size_t top =
        side_truth.count - count_deeper(&side_truth, 1); /* of link_slash */
    assert_int_equal(result.entries, 4 + top);
    size_t named = 0;
    for (size_t i = 0; i < seen.paths.count; i++) {
        named +=
            strncmp(seen.paths.items[i], link_slash, strlen(link_slash)) == 0;
        assert_null(strstr(seen.paths.items[i] + 1, "//"));
    }
    assert_int_equal(named, top);
    poise_walk_result_free(&result);
    seen_free(&seen);
}

static int tag_visit(struct poise_walk_entry *entry, struct seen *seen)
{
    /* Every directory gets its depth and root as a tag. */
    if (entry->type == DT_DIR) {
        poise_walk_tag_set(entry, 1000 + entry->depth);
    }
    if (entry->dir) {
        void **slot = poise_walk_dir_slot(entry->dir);
        __atomic_store_n(slot, seen, __ATOMIC_RELAXED);
        assert_int_equal(poise_walk_dir_tag(entry->dir),
                         1000 + entry->depth - 1);
        assert_int_equal(poise_walk_dir_depth(entry->dir) + 1, entry->depth);
        assert_true((poise_walk_dir_parent(entry->dir) == NULL) ==
                    (entry->depth == 1));
    }
    return 0;
}

static void test_tags(void **state)
{
    (void)state;
    for (int small = 0; small < 2; small++) {
        struct poise_walk_options options = side_options();
        struct seen seen = {.extra = tag_visit};
        options.pool.queue_bytes = small ? 4096 : 0;
        assert_int_equal(seen_walk(&options, &seen, NULL), 0);
        assert_int_equal(seen.count, side_truth.count);
        seen_free(&seen);
    }
}

static int on_piece(struct poise_worker *worker,
                    const struct poise_walk_dir *dir, uint64_t entries,
                    bool whole, void *arg)
{
    struct seen *seen = arg;
    struct poise_buf path = {0};
    (void)worker;
    assert_int_equal(poise_walk_dir_path(dir, &path), 0);
    tree_list_add(whole ? &seen->left : &seen->paths, path.data, path.len);
    poise_buf_free(&path);
    __atomic_fetch_add(&seen->count, entries, __ATOMIC_RELAXED);
    return 0;
}

/* The pieces of a directory add up, and one that is whole has no other. */
static void test_pieces(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 4; kind++) {
        struct poise_walk_options options = side_options();
        struct seen seen = {0};
        struct poise_walk_hooks hooks = {.piece = on_piece, .arg = &seen};
        options.pool.threads = 1 + kind;
        options.statx_mask = kind & 1 ? STATX_BASIC_STATS : 0;
        tree_single_entries(kind == 2);
        assert_int_equal(poise_walk_run(NULL, &options, &hooks, NULL), 0);
        tree_single_entries(false);
        assert_int_equal(seen.count, side_truth.count - 1);
        tree_list_sort(&seen.left);
        for (size_t i = 1; i < seen.left.count; i++) {
            assert_string_not_equal(seen.left.items[i - 1], seen.left.items[i]);
        }
        for (size_t i = 0; i < seen.paths.count; i++) {
            assert_null(bsearch(&seen.paths.items[i], seen.left.items,
                                seen.left.count, sizeof(char *), tree_compare));
        }
        assert_true(seen.left.count > 300);
        seen_free(&seen);
    }
}

/* ---- directories after their contents ----------------------------------- */

static size_t count_directories(int fd)
{
    size_t n = 1;
    DIR *dir = fdopendir(fd);
    struct dirent *d;
    while ((d = readdir(dir)) != NULL) {
        if (d->d_type == DT_DIR && strcmp(d->d_name, ".") != 0 &&
            strcmp(d->d_name, "..") != 0) {
            n += count_directories(
                openat(fd, d->d_name, O_RDONLY | O_DIRECTORY));
        }
    }
    closedir(dir);
    return n;
}

/* In the order of the calls, every directory is behind those below it. */
static void check_left(const struct tree_list *left)
{
    size_t expected =
        count_directories(open(side_where, O_RDONLY | O_DIRECTORY));
    assert_int_equal(left->count, expected);
    for (size_t i = 0; i < left->count; i++) {
        size_t len = strlen(left->items[i]);
        for (size_t k = i + 1; k < left->count; k++) {
            assert_false(strncmp(left->items[k], left->items[i], len) == 0 &&
                         left->items[k][len] == '/');
        }
    }
    assert_string_equal(left->items[left->count - 1], side_where);
}

static void test_post(void **state)
{
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        struct poise_walk_options options = side_options();
        struct seen seen = {0};
        options.post = true;
        options.pool.threads = kind < 3 ? 1 : 3;
        options.pool.queue_bytes = kind % 3 == 2 ? 4096 : 0;
        options.descriptors = 1;
        tree_single_entries(kind % 3 == 1);
        assert_int_equal(seen_walk(&options, &seen, NULL), 0);
        tree_single_entries(false);
        assert_true(tree_list_equal(&seen.paths, &side_truth));
        check_left(&seen.left);
        seen_free(&seen);
    }
}

/* A root that was begun, and a task of it, as bytes. */
static struct poise_walk_dir *pack_begun(struct walk *run, bool stays,
                                         struct poise_buf *packed)
{
    struct poise_walk_dir *dir = walk_dir_create(NULL, 0, "root", 4);
    struct walk_task task = {
        .dir = dir, .from = 1, .to = WALK_END, .kind = WALK_RANGE};
    dir->pending = 1;
    dir->begun = true;
    assert_int_equal(poise_pool_add(run->pool, &task, sizeof task), 0);
    assert_int_equal(walk_pack(run, &task, sizeof task, stays, packed), 0);
    return dir;
}

/* What was packed may be done before the original is dropped: another thread
 * reads the spill file as soon as it is written. */
static void test_post_before_drop(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct walk run = {
        .options = side_options(),
        .hooks = {.visit = seen_visit, .leave = seen_leave, .arg = &seen},
        .size = 1};
    struct poise_buf packed = {0};
    run.options.post = true;
    assert_int_equal(walk_begin(&run), 0);
    struct poise_walk_dir *dir = pack_begun(&run, false, &packed);
    uint64_t news[2] = {1, 6}; /* the first one that waits, and marks */
    assert_int_equal(walk_leave_notified(&run.workers[0], news, sizeof news),
                     0);
    assert_int_equal(seen.left.count, 1);
    assert_string_equal(seen.left.items[0], "root");
    assert_int_equal(poise_walk_marks(dir), 6);
    walk_leave_commit(&run.workers[0]);
    assert_int_equal(walk_leave_notified(&run.workers[0], news, sizeof news),
                     -EPROTO);
    poise_buf_free(&packed);
    walk_finish(&run); /* drops the original, which was never run */
    assert_int_equal(seen.left.count, 1);
    seen_free(&seen);
}

/* What comes back to where it waits is joined to it. */
static void test_post_joined(void **state)
{
    (void)state;
    struct walk run = {.options = side_options(), .size = 1};
    struct poise_buf packed = {0}, unpacked = {0};
    struct walk_task task;
    run.options.post = true;
    assert_int_equal(walk_begin(&run), 0);
    struct poise_walk_dir *dir = pack_begun(&run, false, &packed);
    assert_int_equal(run.waiting.count, 1);
    assert_int_equal(walk_unpack(&run, packed.data, packed.len, &unpacked), 0);
    memcpy(&task, unpacked.data, sizeof task);
    assert_ptr_equal(task.dir, dir);
    assert_int_equal(dir->pending, 1);
    assert_int_equal(run.waiting.count, 0);
    walk_dir_unref(&run.fds, task.dir);
    /* A child that nobody has begun goes along, and nothing of it stays. */
    struct poise_walk_dir *child = walk_dir_create(dir, 0, "child", 5);
    struct walk_task below = {.dir = child, .to = WALK_END, .kind = WALK_RANGE};
    child->pending = 1;
    dir->pending++;
    poise_buf_reset(&packed);
    poise_buf_reset(&unpacked);
    assert_int_equal(walk_pack(&run, &below, sizeof below, false, &packed), 0);
    walk_dir_unref(&run.fds, child);
    assert_int_equal(walk_unpack(&run, packed.data, packed.len, &unpacked), 0);
    memcpy(&task, unpacked.data, sizeof task);
    assert_ptr_equal(task.dir->parent, dir);
    assert_false(task.dir->copy);
    assert_int_equal(dir->pending, 2);
    assert_int_equal(run.waiting.count, 0);
    walk_dir_unref(&run.fds, task.dir);
    poise_buf_free(&packed);
    poise_buf_free(&unpacked);
    walk_finish(&run);
}

static void test_post_unentered(void **state)
{
    (void)state;
    struct poise_walk_options options = side_options();
    struct seen seen = {0};
    options.post = true;
    options.max_depth = 1;
    assert_int_equal(seen_walk(&options, &seen, NULL), 0);
    assert_int_equal(seen.left.count, seen.types[DT_DIR]);
    seen_free(&seen);
}

/* ---- deep and flat ------------------------------------------------------ */

static void check_deep(const char *root, int depth, bool post, bool metadata)
{
    struct poise_walk_options options = {
        .roots = &root, .root_count = 1, .post = post};
    struct poise_walk_result result;
    struct seen seen = {.count_only = true};
    options.statx_mask = metadata ? STATX_BASIC_STATS : 0;
    options.pool.threads = post ? 2 : 1;
    struct poise_walk_hooks hooks = {
        .visit = seen_visit, .error = seen_error, .arg = &seen};
    assert_int_equal(poise_walk_run(NULL, &options, &hooks, &result), 0);
    assert_int_equal(seen.errors, 0);
    assert_int_equal(seen.count, 1 + depth + depth / 100);
    poise_walk_result_free(&result);
}

static void test_deep_chain(void **state)
{
    (void)state;
    enum { DEPTH = 20000 };
    char path[256];
    struct rlimit before, few = {64, 64};
    int fd = tree_temporary(path);
    assert_true(fd >= 0);
    tree_chain(fd, DEPTH);
    getrlimit(RLIMIT_NOFILE, &before);
    few.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    check_deep(path, DEPTH, false, false);
    check_deep(path, DEPTH, true, true);
    setrlimit(RLIMIT_NOFILE, &before);
    close(fd);
    tree_remove(AT_FDCWD, path);
}

/* Cut the range of one directory at these positions, and read the parts. */
static void check_cuts(const char *root, uint64_t expected,
                       const uint64_t *cuts, unsigned count)
{
    struct poise_walk_options options = {
        .roots = &root, .root_count = 1, .max_depth = 1};
    struct seen seen = {0};
    struct walk run = {
        .options = options,
        .hooks = {.visit = seen_visit, .error = seen_error, .arg = &seen},
        .size = 1};
    assert_int_equal(walk_begin(&run), 0);
    struct poise_walk_dir *dir = walk_dir_create(NULL, 0, root, strlen(root));
    for (unsigned i = 0; i <= count; i++) {
        struct walk_task task = {.dir = dir,
                                 .from = i == 0 ? 0 : cuts[i - 1],
                                 .to = i == count ? WALK_END : cuts[i],
                                 .kind = WALK_RANGE};
        walk_dir_ref(dir);
        assert_int_equal(poise_pool_add(run.pool, &task, sizeof task), 0);
    }
    assert_int_equal(poise_pool_run(run.pool), 0);
    assert_int_equal(seen.errors, 0);
    tree_list_sort(&seen.paths);
    assert_int_equal(seen.paths.count, expected);
    for (size_t i = 1; i < seen.paths.count; i++) {
        assert_string_not_equal(seen.paths.items[i - 1], seen.paths.items[i]);
    }
    walk_dir_unref(&run.fds, dir);
    walk_finish(&run);
    seen_free(&seen);
}

/* Positions that the directory itself gave, one in so many. */
static unsigned known_positions(const char *path, unsigned every,
                                uint64_t *cuts, unsigned most)
{
    char *buffer = malloc(WALK_BUFFER_BYTES);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unsigned n = 0, seen = 0;
    ssize_t len;
    while ((len = poise_file_getdents(fd, buffer, WALK_BUFFER_BYTES)) > 0) {
        for (ssize_t pos = 0; pos < len;) {
            const struct dirent64 *d = (const void *)(buffer + pos);
            pos += d->d_reclen;
            if (++seen % every == 0 && n < most &&
                (uint64_t)d->d_off < WALK_END) {
                cuts[n++] = (uint64_t)d->d_off;
            }
        }
    }
    close(fd);
    free(buffer);
    return n;
}

static bool on_hashed_file_system(void)
{
    struct statfs fs;
    return fstatfs(side_fd, &fs) == 0 && fs.f_type == EXT4_SUPER_MAGIC;
}

static void test_cuts(void **state)
{
    enum { MOST = 1000 };
    static uint64_t cuts[MOST];
    static const struct {
        const char *dir;
        uint64_t entries;
    } dirs[] = {{"flat", 6000}, {"lopsided", 3}, {"empty", 0}};
    char path[300];
    struct poise_rng rng;
    (void)state;
    poise_rng_seed(&rng, 5);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", side_where, dirs[i].dir);
        for (unsigned every = 1; every < 4000; every = every * 7 + 1) {
            if (!in_share(every + (unsigned)i)) {
                continue;
            }
            unsigned n = known_positions(path, every, cuts, MOST);
            check_cuts(path, dirs[i].entries, cuts, n);
        }
        for (unsigned n = 1; on_hashed_file_system() && n <= MOST;
             n += n < 20 ? 1 : 490) {
            uint64_t step = WALK_END / (n + 1);
            for (unsigned k = 0; k < n; k++) {
                cuts[k] = step * k + 1 + poise_rng_below(&rng, step);
            }
            if (in_share(n + (unsigned)i)) {
                check_cuts(path, dirs[i].entries, cuts, n);
            }
        }
    }
}

static int slow_visit(struct poise_walk_entry *entry, struct seen *seen)
{
    (void)seen;
    if (entry->depth == 1) {
        poise_sleep_ns(50000);
    }
    return 0;
}

/* One directory, several workers: each has its part of it. */
static void test_flat_is_shared(void **state)
{
    (void)state;
    char path[300];
    snprintf(path, sizeof path, "%s/flat", side_where);
    const char *root = path;
    for (int metadata = 0; metadata < 2; metadata++) {
        struct poise_walk_options options = {.roots = &root, .root_count = 1};
        struct poise_walk_result result;
        struct seen seen = {.extra = slow_visit};
        options.pool.threads = 4;
        options.statx_mask = metadata ? STATX_BASIC_STATS : 0;
        assert_int_equal(seen_walk(&options, &seen, &result), 0);
        assert_int_equal(seen.paths.count, 6001);
        assert_non_null(result.stats);
        for (size_t i = 1; i < seen.paths.count; i++) {
            assert_string_not_equal(seen.paths.items[i - 1],
                                    seen.paths.items[i]);
        }
        for (unsigned i = 0; i < 4; i++) {
            assert_true(result.stats[0].workers[i].tasks > 0);
        }
        poise_walk_result_free(&result);
        seen_free(&seen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_recursion),
        cmocka_unit_test(test_single_entries),
        cmocka_unit_test(test_spilled),
        cmocka_unit_test(test_no_openat2),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_skip_and_stop),
        cmocka_unit_test(test_visit_fails),
        cmocka_unit_test(test_roots),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_post),
        cmocka_unit_test(test_post_before_drop),
        cmocka_unit_test(test_post_joined),
        cmocka_unit_test(test_post_unentered),
        cmocka_unit_test(test_deep_chain),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_flat_is_shared),
    };
    return cmocka_run_group_tests_name("walk", tests, side_set_up,
                                       side_tear_down);
}
