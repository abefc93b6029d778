/*
 * One removal: which operands are allowed, the walk, and what it came to.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- operands ----------------------------------------------------------- */

/* How long an operand is without the slashes it ends in. */
static size_t operand_len(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    return len;
}

static bool ends_in_dots(const char *path, size_t len)
{
    const char *last = path;
    for (const char *at = path; at < path + len; at++) {
        last = *at == '/' ? at + 1 : last;
    }
    size_t size = len - (size_t)(last - path);
    return (size == 1 || size == 2) && memcmp(last, "..", size) == 0;
}

static bool is_root(const struct stat *st)
{
    struct stat root;
    return stat("/", &root) == 0 && root.st_dev == st->st_dev &&
           root.st_ino == st->st_ino;
}

/* Whether the operand may be removed: 1, 0 if there is none, or why not. */
static int operand_check(const struct poise_remove_options *options,
                         const char *given, const char *path)
{
    struct stat st;
    if (ends_in_dots(path, strlen(path))) {
        return poise_error_set(EINVAL, "remove", given,
                               "'.' and '..' are refused");
    }
    if (fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT && options->force && path[0] != '\0') {
            return 0;
        }
        return poise_error_set(errno, "remove", given, NULL);
    }
    if (strlen(given) > strlen(path) && !S_ISDIR(st.st_mode)) {
        return poise_error_set(
            ENOTDIR, "remove", given,
            S_ISLNK(st.st_mode) ? "a symbolic link is not followed" : NULL);
    }
    if (!options->remove_root && is_root(&st)) {
        return poise_error_set(EPERM, "remove", given,
                               "it is the root of the file system");
    }
    return 1;
}

/* The operands, without slashes at their ends; those that are not allowed are
 * left out. The strings lie in `memory`. */
static int operands_check(struct remove_run *run, const char **roots,
                          size_t *count, struct poise_buf *memory,
                          uint64_t *errors)
{
    const struct poise_remove_options *options = run->options;
    struct poise_buf allowed = {0};
    int code = 0;
    size_t kept = 0;
    const char *at;

    for (size_t i = 0; i < *count; i++) {
        poise_buf_append(memory, roots[i], operand_len(roots[i]));
        poise_buf_putc(memory, '\0');
    }
    code = memory->error;
    at = memory->data;
    for (size_t i = 0; run->rank == 0 && i < *count && code == 0; i++) {
        int verdict = operand_check(options, roots[i], at);
        if (verdict < 0) {
            ++*errors;
            code = options->error
                       ? options->error(NULL, poise_error_last(), options->arg)
                       : 0;
        }
        poise_buf_putc(&allowed, verdict > 0);
        at += strlen(at) + 1;
    }
    code = code < 0 ? code : allowed.error;
    if (run->world) {
        code = poise_world_agree(run->world, code);
        if (code == 0) {
            code = poise_world_broadcast(run->world, 0, &allowed);
        }
    }
    at = memory->data;
    for (size_t i = 0; code == 0 && i < *count && i < allowed.len; i++) {
        if (allowed.data[i]) {
            roots[kept++] = at;
        }
        at += strlen(at) + 1;
    }
    *count = kept;
    poise_buf_free(&allowed);
    return code;
}

/* ---- the run ------------------------------------------------------------ */

static int sum_up(struct remove_run *run, struct remove_worker *w,
                  uint64_t sums[4])
{
    sums[0] += w->files;
    sums[1] += w->directories;
    sums[2] += w->kept;
    int code = remove_settle(run, w, NULL);
    sums[3] += w->errors;
    return code;
}

static void on_progress(const struct poise_pool_stats *stats, void *arg)
{
    const struct remove_run *run = arg;
    run->options->progress(stats, run->options->arg);
}

int remove_walk(struct remove_run *run, const struct poise_walk_options *walk,
                struct poise_remove_result *result)
{
    uint64_t sums[4] = {0};
    struct poise_walk_hooks hooks = {
        .visit = remove_visit,
        .leave = remove_leave,
        .error = remove_error,
        .piece = run->options->removed ? remove_piece : NULL,
        .deliver = run->options->removed ? remove_deliver : NULL,
        .progress = run->options->progress ? on_progress : NULL,
        .arg = run,
    };
    walk_spaces_init(&run->workers);
    int code = poise_walk_run(run->world, walk, &hooks, &result->walk);
    struct remove_worker *workers = run->workers.all;
    for (unsigned i = 0; i < run->workers.count; i++) {
        struct remove_worker *w = &workers[i];
        int settled = sum_up(run, w, sums);
        code = code == 0 ? settled : code;
        poise_buf_free(&w->held);
        poise_buf_free(&w->path);
        poise_buf_free(&w->lines);
    }
    walk_spaces_free(&run->workers);
    if (run->world) {
        int summed = poise_world_reduce(run->world, POISE_SUM, sums, 4);
        code = code == 0 ? summed : code;
    }
    result->files = sums[0];
    result->directories = sums[1];
    result->kept = sums[2];
    result->errors += sums[3];
    return code;
}

int poise_remove_run(struct poise_world *world,
                     const struct poise_remove_options *options,
                     struct poise_remove_result *result)
{
    struct remove_run run = {.options = options,
                             .world = world,
                             .rank = world ? poise_world_rank(world) : 0,
                             .size = world ? poise_world_size(world) : 1};
    struct poise_remove_result own = {0};
    struct poise_walk_options walk = options->walk;
    struct poise_buf memory = {0};
    int code = 0;

    if (walk.pool.checkpoint || walk.pool.resume) {
        return poise_error_set(EINVAL, "remove", NULL,
                               "a removal needs no checkpoints: run again it "
                               "goes on");
    }
    const char **roots =
        poise_alloc(walk.root_count ? walk.root_count : 1, sizeof *roots);
    code = roots ? 0 : -ENOMEM;
    code = world ? poise_world_agree(world, code) : code;
    if (code == 0) {
        for (size_t i = 0; i < walk.root_count; i++) {
            roots[i] = walk.roots[i];
        }
        code =
            operands_check(&run, roots, &walk.root_count, &memory, &own.errors);
    }
    if (code == 0 && world && options->filter) {
        code = poise_walk_filter_agree(options->filter, world);
    }
    walk.roots = roots;
    walk.statx_mask = 0;
    walk.max_depth = 0;
    walk.max_depth_is_zero = false;
    walk.post = true;
    walk.one_file_system = !options->enter_mounted;
    if (code == 0 && walk.root_count > 0) {
        code = remove_walk(&run, &walk, &own);
    }
    if (world) {
        /* What rank 0 refused. */
        uint64_t errors = own.errors;
        int spread = poise_world_reduce(world, POISE_MAX, &errors, 1);
        code = code == 0 ? spread : code;
        own.errors = errors;
    }
    free(roots);
    poise_buf_free(&memory);
    if (result) {
        *result = own;
    } else {
        poise_remove_result_free(&own);
    }
    return code;
}

void poise_remove_result_free(struct poise_remove_result *result)
{
    poise_walk_result_free(&result->walk);
}
