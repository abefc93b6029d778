/*
 * The walk where something cannot be read: unreadable, vanished and replaced
 * directories, mounts, and faults of every kind.
 */
#include "side.h"

#include "walk/engine/internal.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

/* ---- errors ------------------------------------------------------------- */

static void test_unreadable(void **state)
{
    (void)state;
    struct poise_walk_options options = side_options();
    struct poise_walk_result result;
    struct seen seen = {0};
    int fd = tree_dir(side_fd, "closed");
    tree_file(fd, "hidden");
    fchmod(fd, 0);
    fchmod(side_fd, 0755);
    uid_t uid = geteuid();
    assert_int_equal(uid == 0 ? seteuid(65534) : 0, 0);
    assert_int_equal(seen_walk(&options, &seen, &result), 0);
    assert_int_equal(uid == 0 ? seteuid(0) : 0, 0);
    assert_int_equal(result.errors, 1);
    assert_int_equal(seen.errors, 1);
    assert_int_equal(seen.last_error, EACCES);
    assert_int_equal(seen.paths.count, side_truth.count + 1);
    poise_walk_result_free(&result);
    seen_free(&seen);
    fchmod(fd, 0700);
    unlinkat(fd, "hidden", 0);
    close(fd);
    unlinkat(side_fd, "closed", AT_REMOVEDIR);
}

static int unlink_other(struct poise_walk_entry *entry, struct seen *seen)
{
    (void)seen;
    if (entry->depth == 1) {
        unlinkat(poise_walk_dirfd(entry), entry->name[0] == 'a' ? "b" : "a", 0);
    }
    return 0;
}

static void test_vanished(void **state)
{
    (void)state;
    char path[300];
    snprintf(path, sizeof path, "%s/vanishing", side_where);
    const char *root = path;
    struct poise_walk_options options = {
        .roots = &root, .root_count = 1, .statx_mask = STATX_BASIC_STATS};
    struct poise_walk_result result;
    struct seen seen = {.extra = unlink_other};
    int fd = tree_dir(side_fd, "vanishing");
    tree_file(fd, "a");
    tree_file(fd, "b");
    assert_int_equal(seen_walk(&options, &seen, &result), 0);
    assert_int_equal(result.errors, 1);
    assert_int_equal(seen.last_error, ENOENT);
    assert_int_equal(seen.paths.count, 2);
    poise_walk_result_free(&result);
    seen_free(&seen);
    tree_empty(fd);
    close(fd);
    unlinkat(side_fd, "vanishing", AT_REMOVEDIR);
}

static int swap_directory(struct poise_walk_entry *entry, struct seen *seen)
{
    (void)seen;
    if (strcmp(entry->name, "victim") == 0) {
        int fd = poise_walk_dirfd(entry);
        unlinkat(fd, "victim", AT_REMOVEDIR);
        symlinkat("../wide", fd, "victim");
    }
    return 0;
}

/* A directory that becomes a link before it is opened is not followed. */
static void test_replaced(void **state)
{
    (void)state;
    char path[300];
    snprintf(path, sizeof path, "%s/swapped", side_where);
    const char *root = path;
    struct poise_walk_options options = {.roots = &root, .root_count = 1};
    struct poise_walk_result result;
    struct seen seen = {.extra = swap_directory};
    int fd = tree_dir(side_fd, "swapped");
    close(tree_dir(fd, "victim"));
    assert_int_equal(seen_walk(&options, &seen, &result), 0);
    assert_int_equal(result.errors, 1);
    assert_int_equal(seen.paths.count, 2);
    poise_walk_result_free(&result);
    seen_free(&seen);
    tree_empty(fd);
    close(fd);
    unlinkat(side_fd, "swapped", AT_REMOVEDIR);
}

enum { CANNOT_MOUNT = 77 };

/* In a process of its own, whose mounts nobody else sees: `side_where` mounted
 * inside itself and another file system. What was wrong, as exit code. */
static int mounted_walks(void)
{
    char loop[300], other[300];
    snprintf(loop, sizeof loop, "%s/mounts/loop", side_where);
    snprintf(other, sizeof other, "%s/mounts/other", side_where);
    if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) !=
            0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(side_where, loop, NULL, MS_BIND, NULL) != 0 ||
        mount("none", other, "tmpfs", 0, NULL) != 0) {
        return CANNOT_MOUNT;
    }
    int fd = open(other, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(tree_dir(fd, "inside"));
    close(fd);
    for (int kind = 0; kind < 4; kind++) {
        struct poise_walk_options options = side_options();
        struct poise_walk_result result;
        struct seen seen = {.count_only = true};
        options.statx_mask = kind & 1 ? STATX_BASIC_STATS : 0;
        options.one_file_system = kind & 2;
        size_t below = options.one_file_system ? 0 : 1;
        if (seen_walk(&options, &seen, &result) != 0) {
            return 1;
        }
        /* The loop is reported and not entered; on the same file system it
         * is a loop too. */
        if (result.errors != 1 || seen.last_error != ELOOP) {
            return 2;
        }
        if (seen.count != side_truth.count + 3 + below) {
            return 3;
        }
        poise_walk_result_free(&result);
    }
    return 0;
}

static void test_mounts(void **state)
{
    (void)state;
    int fd = tree_dir(side_fd, "mounts"), status;
    close(tree_dir(fd, "loop"));
    close(tree_dir(fd, "other"));
    pid_t pid = fork();
    if (pid == 0) {
        _exit(mounted_walks());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    tree_empty(fd);
    close(fd);
    unlinkat(side_fd, "mounts", AT_REMOVEDIR);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CANNOT_MOUNT) {
        skip(); /* a container that allows no mounts at all */
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_io_faults(void **state)
{
    (void)state;
    static const enum poise_fault kinds[] = {
        POISE_FAULT_OPEN, POISE_FAULT_GETDENTS, POISE_FAULT_STAT};
    for (int i = 0; i < 3; i++) {
        for (uint64_t k = 1; k < 400; k += k < 20 ? 1 : 53) {
            struct poise_walk_options options = side_options();
            struct poise_walk_result result;
            struct seen seen = {.count_only = true};
            options.statx_mask = STATX_BASIC_STATS;
            options.pool.threads = 1 + k % 2;
            options.descriptors = 1;
            poise_fault_arm(kinds[i], k, EIO, false);
            int code = seen_walk(&options, &seen, &result);
            poise_fault_arm(kinds[i], 0, 0, false);
            assert_int_equal(code, 0);
            assert_int_equal(result.errors, 1);
            assert_int_equal(result.errors, seen.errors);
            assert_int_equal(seen.last_error, EIO);
            assert_true(result.entries <= side_truth.count);
            poise_walk_result_free(&result);
        }
    }
}

static void test_memory_faults(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (uint64_t k = 1; k < 400; k += k < 60 ? 1 : 37) {
        struct poise_walk_options options = side_options();
        struct poise_walk_result result = {0};
        struct seen seen = {.count_only = true};
        options.pool.threads = 1 + k % 2;
        options.post = k % 3 == 0;
        tree_single_entries(k % 5 == 0);
        options.pool.queue_bytes = k % 2 ? 4096 : 0;
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        int code = seen_walk(&options, &seen, &result);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        tree_single_entries(false);
        failed += code == -ENOMEM;
        assert_true(code == -ENOMEM ||
                    (code == 0 &&
                     (seen.count == side_truth.count || seen.errors == 1)));
        poise_walk_result_free(&result);
    }
    assert_true(failed > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unreadable), cmocka_unit_test(test_vanished),
        cmocka_unit_test(test_replaced),   cmocka_unit_test(test_mounts),
        cmocka_unit_test(test_io_faults),  cmocka_unit_test(test_memory_faults),
    };
    return cmocka_run_group_tests_name("walk_errors", tests, side_set_up,
                                       side_tear_down);
}
