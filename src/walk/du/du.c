/*
 * One du: what is asked for, the walk, and the report.
 */
#include "internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int on_error(struct poise_worker *worker, const struct poise_error *err,
                    void *arg)
{
    const struct poise_walk_du_options *options =
        ((struct du_run *)arg)->options;
    return options->error ? options->error(worker, err, options->arg) : 0;
}

static void on_progress(const struct poise_pool_stats *stats, void *arg)
{
    const struct poise_walk_du_options *options =
        ((struct du_run *)arg)->options;
    options->progress(stats, options->arg);
}

/* ---- operands ----------------------------------------------------------- */

/* What is walked for an operand: for a symbolic link that is followed "LINK/",
 * if it leads to a directory, so that paths below keep its name, else the name
 * of the file. Appended to `out` with its NUL. */
static int resolve_root(const char *root, struct poise_buf *out)
{
    struct stat here, there;
    char whole[PATH_MAX];
    const char *name = root;
    const char *slash = "";
    if (lstat(root, &here) == 0 && S_ISLNK(here.st_mode)) {
        if (stat(root, &there) != 0 || S_ISDIR(there.st_mode)) {
            slash = "/"; /* of one that leads nowhere this is no name either */
        } else if (realpath(root, whole)) {
            name = whole;
        }
    }
    poise_buf_puts(out, name);
    poise_buf_puts(out, slash);
    return poise_buf_putc(out, '\0');
}

/* On rank 0: names, and what they are, as bytes for all ranks. */
static int describe_roots(const struct du_run *run, struct poise_buf *out)
{
    const struct poise_walk_options *walk = &run->options->walk;
    struct poise_buf name = {0};
    for (size_t i = 0; i < walk->root_count; i++) {
        struct statx st = {0};
        poise_buf_reset(&name);
        bool excluded =
            du_excluded(run->options, walk->roots[i], strlen(walk->roots[i]));
        if (excluded) { /* whatever it is, and if it is not there */
            poise_buf_append(&name, "/", sizeof "/");
        } else if (run->options->dereference_roots) {
            resolve_root(walk->roots[i], &name);
        } else {
            poise_buf_append(&name, walk->roots[i], strlen(walk->roots[i]) + 1);
        }
        /* One that is left out counts for no other. */
        bool known = name.error == 0 && !excluded &&
                     poise_file_statx(AT_FDCWD, name.data, AT_SYMLINK_NOFOLLOW,
                                      STATX_INO, &st) == 0;
        poise_buf_blob(out, name.data, name.len);
        poise_buf_varint(out, known);
        poise_buf_varint(out, du_dev(&st));
        poise_buf_varint(out, st.stx_ino);
    }
    int code = name.error ? name.error : out->error;
    poise_buf_free(&name);
    return code;
}

/* Rank 0 looks at the operands, and sends all ranks what it saw. */
static int look_at_roots(struct du_run *run)
{
    struct poise_buf *memory = &run->name_memory;
    int code = run->rank == 0 ? describe_roots(run, memory) : 0;
    if (run->world) {
        code = poise_world_agree(run->world, code);
        if (code == 0) {
            code = poise_world_broadcast(run->world, 0, memory);
        }
    }
    struct poise_reader in = poise_reader_of(memory->data, memory->len);
    for (size_t i = 0; code == 0 && i < run->options->walk.root_count; i++) {
        size_t len;
        run->names[i] = poise_reader_blob(&in, &len);
        run->roots[i].known = poise_reader_varint(&in);
        run->roots[i].dev = poise_reader_varint(&in);
        run->roots[i].ino = poise_reader_varint(&in);
        code = in.error;
    }
    return code;
}

/* ---- the frame ---------------------------------------------------------- */

static int run_check(const struct du_run *run)
{
    const struct poise_pool_options *pool = &run->options->walk.pool;
    if (pool->checkpoint || pool->resume) {
        return poise_error_set(EINVAL, "count disk usage", NULL,
                               "du does not go together with checkpoints");
    }
    if (run->size > DU_RANKS_MOST) {
        return poise_error_set(EINVAL, "count disk usage", NULL,
                               "more than %d ranks", DU_RANKS_MOST);
    }
    return run->roots && run->names && run->spaces && run->space_counts
               ? 0
               : -ENOMEM;
}

static int do_walk(struct du_run *run, struct poise_walk_result *result)
{
    struct poise_walk_options walk = run->options->walk;
    walk.roots = run->names;
    walk.statx_mask |= run->mask;
    walk.post = false;
    struct poise_walk_hooks hooks = {
        .visit = du_on_visit, .error = on_error, .arg = run};
    if (run->options->progress) {
        hooks.progress = on_progress;
    }
    return poise_walk_run(run->world, &walk, &hooks, result);
}

/* One thread, on rank 0. */
static int do_follow(struct du_run *run, struct poise_walk_result *result)
{
    uint64_t start = poise_clock_ns(), totals[2] = {0};
    int code = run->rank == 0 ? du_follow(run, &totals[0], &totals[1]) : 0;
    if (run->world) {
        code = poise_world_agree(run->world, code);
        int reduced = poise_world_reduce(run->world, POISE_SUM, totals, 2);
        code = code == 0 ? reduced : code;
    }
    if (result) {
        *result =
            (struct poise_walk_result){.errors = totals[0],
                                       .entries = totals[1],
                                       .wall_ns = poise_clock_ns() - start,
                                       .size = run->size};
    }
    return code;
}

static unsigned mask_of(const struct poise_walk_du_options *options)
{
    unsigned mask = STATX_TYPE | STATX_NLINK | STATX_INO;
    if (!options->inodes) {
        mask |= options->apparent ? STATX_SIZE : STATX_BLOCKS;
    }
    return mask | (options->time == POISE_DU_MTIME   ? STATX_MTIME
                   : options->time == POISE_DU_ATIME ? STATX_ATIME
                   : options->time == POISE_DU_CTIME ? STATX_CTIME
                                                     : 0);
}

static void run_free(struct du_run *run)
{
    for (int r = 0; run->spaces && run->space_counts && r < run->size; r++) {
        du_spaces_free(run->spaces[r], run->space_counts[r]);
    }
    free(run->spaces);
    free(run->space_counts);
    free(run->roots);
    free(run->names);
    poise_buf_free(&run->name_memory);
    pthread_mutex_destroy(&run->lock);
}

int poise_walk_du(struct poise_world *world,
                  const struct poise_walk_du_options *options,
                  struct poise_walk_result *result)
{
    struct du_run run = {
        .options = options,
        .world = world,
        .rank = world ? poise_world_rank(world) : 0,
        .size = world ? poise_world_size(world) : 1,
        .depth_most = options->has_max_depth ? options->max_depth : UINT32_MAX,
        .match_roots = options->walk.root_count > 1 && !options->count_links,
        .mask = mask_of(options),
    };
    size_t roots = options->walk.root_count;
    pthread_mutex_init(&run.lock, NULL);
    run.roots = poise_alloc(roots ? roots : 1, sizeof *run.roots);
    run.names = poise_alloc(roots ? roots : 1, sizeof *run.names);
    run.spaces = poise_alloc((size_t)run.size, sizeof(struct du_space *));
    run.space_counts = poise_alloc((size_t)run.size, sizeof(unsigned));
    int code = run_check(&run);
    code = world ? poise_world_agree(world, code) : code;
    if (code == 0) {
        code = look_at_roots(&run);
    }
    if (code == 0) {
        code = options->dereference ? do_follow(&run, result)
                                    : do_walk(&run, result);
    }
    if (code == 0) {
        code = du_gather(&run);
    }
    if (code == 0) {
        code = run.rank == 0 ? du_report(&run) : 0;
        code = world ? poise_world_agree(world, code) : code;
    }
    run_free(&run);
    return code;
}
