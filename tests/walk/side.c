/* Callbacks and a tree for the tests of the walk's engine. */
#include "side.h"

int seen_visit(struct poise_walk_entry *entry, void *arg)
{
    struct seen *seen = arg;
    struct poise_buf path = {0};
    const struct statx *stx;
    struct stat st;
    __atomic_fetch_add(&seen->count, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&seen->types[entry->type], 1, __ATOMIC_RELAXED);
    assert_int_equal(strlen(entry->name), entry->name_len);
    if (!seen->count_only) {
        assert_int_equal(poise_walk_path(entry, &path), 0);
        tree_list_add(&seen->paths, path.data, path.len);
        poise_buf_free(&path);
    }
    if (seen->stat && poise_walk_stat(entry, STATX_SIZE, &stx) == 0) {
        __atomic_fetch_add(&seen->bytes, stx->stx_size, __ATOMIC_RELAXED);
    }
    if (seen->dirfd) {
        assert_int_equal(fstatat(poise_walk_dirfd(entry), entry->name, &st,
                                 AT_SYMLINK_NOFOLLOW),
                         0);
    }
    if (seen->extra) {
        return seen->extra(entry, seen);
    }
    if (seen->stop && strcmp(entry->name, seen->stop) == 0) {
        return 42;
    }
    bool skip = seen->skip && strcmp(entry->name, seen->skip) == 0;
    return skip ? POISE_WALK_SKIP : POISE_WALK_ON;
}

int seen_leave(struct poise_walk_entry *entry, void *arg)
{
    struct seen *seen = arg;
    struct poise_buf path = {0};
    if (!seen->count_only) {
        assert_int_equal(poise_walk_path(entry, &path), 0);
        tree_list_add(&seen->left, path.data, path.len);
        poise_buf_free(&path);
    }
    return 0;
}

int seen_error(struct poise_worker *worker, const struct poise_error *err,
               void *arg)
{
    struct seen *seen = arg;
    (void)worker;
    __atomic_fetch_add(&seen->errors, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&seen->last_error, (unsigned)err->code, __ATOMIC_RELAXED);
    return 0;
}

int seen_walk(const struct poise_walk_options *options, struct seen *seen,
              struct poise_walk_result *result)
{
    struct poise_walk_hooks hooks = {.visit = seen_visit,
                                     .leave = seen_leave,
                                     .error = seen_error,
                                     .arg = seen};
    int code = poise_walk_run(NULL, options, &hooks, result);
    tree_list_sort(&seen->paths);
    return code;
}

void seen_free(struct seen *seen)
{
    tree_list_free(&seen->paths);
    tree_list_free(&seen->left);
}

char side_where[256];
int side_fd;
struct tree_list side_truth;

int side_set_up(void **state)
{
    (void)state;
    side_fd = tree_temporary(side_where);
    if (side_fd < 0) {
        return -1;
    }
    tree_nasty(side_fd);
    tree_flat(side_fd, "flat", 6000);
    tree_truth(side_where, &side_truth);
    return 0;
}

int side_tear_down(void **state)
{
    (void)state;
    tree_list_free(&side_truth);
    tree_empty(side_fd);
    close(side_fd);
    return rmdir(side_where);
}

static const char *const side_roots[] = {side_where};

struct poise_walk_options side_options(void)
{
    struct poise_walk_options options = {.roots = side_roots, .root_count = 1};
    options.pool.threads = 2;
    options.pool.seed = 1;
    return options;
}
