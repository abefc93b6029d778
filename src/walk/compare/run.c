/*
 * One comparison: both operands, both walks in one pool, and what it came to.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

const char *const poise_compare_content_names[] = {"bytes", "hash", "size",
                                                   NULL};

/* ---- operands ----------------------------------------------------------- */

/* An operand as the walk is given it: a directory ends in a slash, which also
 * follows a symbolic link to one. 0, or the error. */
static int operand(const char *path, struct poise_buf *out)
{
    struct stat st;
    poise_buf_puts(out, path);
    if (path[0] == '\0' || fstatat(AT_FDCWD, path, &st, 0) != 0) {
        int code = path[0] == '\0' ? ENOENT : errno;
        /* A link that leads nowhere is an entry, too. */
        if (path[0] == '\0' ||
            fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            return poise_error_set(code, "look at", path, NULL);
        }
    } else if (S_ISDIR(st.st_mode) && path[strlen(path) - 1] != '/') {
        poise_buf_putc(out, '/');
    }
    poise_buf_str(out);
    return out->error;
}

/* ---- hooks -------------------------------------------------------------- */

static int on_piece(struct poise_worker *worker,
                    const struct poise_walk_dir *dir, uint64_t entries,
                    bool whole, void *arg)
{
    struct compare_worker *w = compare_worker(arg, worker);
    (void)dir;
    (void)entries;
    (void)whole;
    return w ? compare_flush(w, worker) : -ENOMEM;
}

static int on_error(struct poise_worker *worker, const struct poise_error *err,
                    void *arg)
{
    struct compare_run *run = arg;
    struct compare_worker *w = compare_worker(run, worker);
    (void)err;
    return w ? compare_failed(run, w, worker) : -ENOMEM;
}

static void on_progress(const struct poise_pool_stats *stats, void *arg)
{
    const struct compare_run *run = arg;
    run->options->progress(stats, run->options->arg);
}

/* ---- results ------------------------------------------------------------ */

static void workers_free(struct compare_run *run)
{
    struct compare_worker *all = run->workers.all;
    for (unsigned i = 0; i < run->workers.count; i++) {
        struct compare_worker *w = &all[i];
        for (int k = 0; k < 2; k++) {
            free(w->buffers[k]);
            poise_buf_free(&w->attributes[k]);
        }
        free(w->names);
        poise_buf_free(&w->records);
        poise_buf_free(&w->path);
    }
    walk_spaces_free(&run->workers);
}

/* On rank 0: what was gathered. Collective. */
static int sum_up(struct compare_run *run, struct poise_compare_result *result)
{
    enum {
        OWN = 3,
        SIZES = OWN + 1 + POISE_DIFFERS_KINDS,
        ALL = SIZES + POISE_COMPARE_SIZE_BINS
    };
    uint64_t sums[ALL] = {0};
    int code = 0;
    const struct compare_worker *all = run->workers.all;
    for (unsigned i = 0; i < run->workers.count; i++) {
        sums[0] += all[i].compared;
        sums[1] += all[i].bytes_read;
        sums[2] += all[i].errors;
        run->differences += all[i].differences;
        for (int k = 0; k < POISE_DIFFERS_KINDS; k++) {
            run->kinds[k] += all[i].kinds[k];
        }
        for (int k = 0; k < POISE_COMPARE_SIZE_BINS; k++) {
            sums[SIZES + k] += all[i].sizes[k];
        }
    }
    sums[0] += run->matched;
    sums[OWN] = run->differences;
    memcpy(sums + OWN + 1, run->kinds, sizeof run->kinds);
    if (run->world) {
        code = poise_world_reduce(run->world, POISE_SUM, sums, ALL);
    }
    result->compared = sums[0];
    result->bytes_read = sums[1];
    result->errors = sums[2];
    result->differences = sums[OWN];
    memcpy(result->kinds, sums + OWN + 1, sizeof result->kinds);
    memcpy(result->sizes, sums + SIZES, sizeof result->sizes);
    return code;
}

static int do_walk(struct compare_run *run, struct poise_compare_result *result)
{
    const char *const roots[] = {run->roots[0], run->roots[1]};
    const char *const counterparts[] = {run->roots[1], run->roots[0]};
    struct poise_walk_options walk = run->options->walk;
    struct poise_walk_hooks hooks = {
        .visit = compare_visit,
        .leave = compare_leave,
        .chunk = compare_chunk,
        .piece = on_piece,
        .error = on_error,
        .deliver = compare_deliver,
        .progress = run->options->progress ? on_progress : NULL,
        .arg = run,
    };
    walk.roots = roots;
    walk.counterparts = counterparts;
    walk.root_count = 2;
    walk.statx_mask = 0;
    walk.post =
        !run->is_inventory && run->options->content != POISE_COMPARE_SIZE;
    walk.max_depth = 0;
    walk.max_depth_is_zero = false;
    if (run->is_inventory) {
        hooks.visit = compare_visit_listed;
        walk.roots = roots + 1;
        walk.counterparts = NULL;
        walk.root_count = 1;
        walk.statx_mask = COMPARE_STATX;
    }
    int code = poise_walk_run(run->world, &walk, &hooks, &result->walk);
    bool stopped = code == POISE_WALK_STOP;
    if (stopped) {
        code = 0;
    }
    /* Of what was not seen, nothing can be said. */
    if (code == 0 && run->links && !stopped) {
        code = compare_links_check(run->links, run);
    }
    if (code == 0 && run->inventory && !stopped) {
        code = compare_inventory_check(run);
    }
    if (run->world) {
        code = poise_world_agree(run->world, code);
    }
    return code;
}

/* A is an inventory if it begins like one, and B is a directory. Collective. */
static int inventory_open(struct compare_run *run)
{
    const char *a = run->roots[0], *b = run->roots[1];
    int code = 0;
    run->is_inventory = a[0] && a[strlen(a) - 1] != '/' &&
                        b[strlen(b) - 1] == '/' &&
                        compare_inventory_kind(a) != COMPARE_NO_INVENTORY;
    if (run->is_inventory && run->options->filter) {
        code = poise_error_set(EINVAL, "compare with", a,
                               "the tests of find cannot be asked of an "
                               "inventory");
    } else if (run->is_inventory && run->rank == 0) {
        code = compare_inventory_open(a, &run->inventory);
    }
    return run->world ? poise_world_agree(run->world, code) : code;
}

int poise_compare_run(struct poise_world *world,
                      const struct poise_compare_options *options,
                      struct poise_compare_result *result)
{
    struct compare_run run = {.options = options,
                              .world = world,
                              .rank = world ? poise_world_rank(world) : 0,
                              .size = world ? poise_world_size(world) : 1};
    struct poise_compare_result own = {0};
    struct poise_buf roots[2] = {{0}, {0}};
    const struct poise_pool_options *pool = &options->walk.pool;
    int code = 0;

    if (pool->checkpoint || pool->resume) {
        return poise_error_set(EINVAL, "compare", NULL,
                               "a comparison knows no checkpoints");
    }
    walk_spaces_init(&run.workers);
    for (int i = 0; i < 2 && code == 0; i++) {
        code = operand(i == 0 ? options->a : options->b, &roots[i]);
        run.roots[i] = roots[i].data;
    }
    if (world) {
        code = poise_world_agree(world, code);
        if (code == 0 && options->filter) {
            code = poise_walk_filter_agree(options->filter, world);
        }
    }
    if (code == 0) {
        code = inventory_open(&run);
    }
    if (code == 0) {
        code = do_walk(&run, &own);
        int summed = sum_up(&run, &own);
        code = code == 0 ? summed : code;
    }
    compare_links_destroy(run.links);
    compare_inventory_close(run.inventory);
    workers_free(&run);
    poise_buf_free(&roots[0]);
    poise_buf_free(&roots[1]);
    if (result) {
        *result = own;
    } else {
        poise_compare_result_free(&own);
    }
    return code;
}

void poise_compare_result_free(struct poise_compare_result *result)
{
    poise_walk_result_free(&result->walk);
}
