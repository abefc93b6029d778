/*
 * Where each source goes, by cp's rule, and whether it may go there. Rank 0
 * looks and decides before anything is made; the others are told.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- paths --------------------------------------------------------------- */

static size_t without_slashes(const char *path, size_t len)
{
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    return len;
}

/* Append the last component; nothing of "/", "." and "..", whose contents are
 * meant. */
static int put_base(struct poise_buf *out, const char *path)
{
    size_t len = without_slashes(path, strlen(path)), at = len;

    while (at > 0 && path[at - 1] != '/') {
        at--;
    }
    if (len - at == 0 || (len - at == 1 && path[at] == '.') ||
        (len - at == 2 && path[at] == '.' && path[at + 1] == '.')) {
        return 0;
    }
    if (out->len > 0 && out->data[out->len - 1] != '/') {
        poise_buf_putc(out, '/');
    }
    return poise_buf_append(out, path + at, len - at);
}

/* The directory in which `path` lies: "." if it does not say. */
static char *parent_of(const char *path)
{
    size_t len = without_slashes(path, strlen(path));

    while (len > 0 && path[len - 1] != '/') {
        len--;
    }
    return len == 0 ? strdup(".") : strndup(path, without_slashes(path, len));
}

static char *take(struct poise_buf *buf)
{
    char *text = buf->error ? NULL : strdup(poise_buf_str(buf));

    poise_buf_free(buf);
    return text;
}

/* ---- what may not be ----------------------------------------------------- */

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether the directory `path`, or what of its path exists, is `dir` or lies
 * below it. */
static int is_inside(const char *path, const struct stat *dir)
{
    char *above = strdup(path);
    int fd = -1, found = 0;
    struct stat st, last = {0};

    while (above && (fd = open(above, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) {
        char *next = parent_of(above);

        if (next && strcmp(next, above) == 0) {
            free(next);
            break;
        }
        free(above);
        above = next;
    }
    free(above);
    while (fd >= 0 && fstat(fd, &st) == 0 && !found &&
           !(last.st_ino && is_same(&st, &last))) {
        int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

        found = is_same(&st, dir);
        last = st;
        close(fd);
        fd = up;
    }
    if (fd >= 0) {
        close(fd);
    }
    return found;
}

static int refuse(const char *what, const char *why)
{
    return poise_error_set(EINVAL, "copy", what, "%s", why);
}

static int check_one(const struct poise_copy_options *options,
                     const char *source, const char *target)
{
    struct stat from, to;

    if (lstat(source, &from) != 0) {
        return 0; /* the walk says so */
    }
    if (!S_ISDIR(from.st_mode)) {
        return lstat(target, &to) == 0 && is_same(&from, &to)
                   ? refuse(source, "it is the target itself")
                   : 0;
    }
    if (is_inside(target, &from)) {
        return refuse(source, "the target is inside it");
    }
    if (options->remove && stat(target, &to) == 0 && S_ISDIR(to.st_mode) &&
        is_inside(source, &to)) {
        return refuse(source, "it lies in the target, where what is not among "
                              "the sources would be deleted");
    }
    return 0;
}

static int check_plan(const struct poise_copy_options *options,
                      const struct copy_plan *plan)
{
    int code = 0;

    for (size_t i = 0; i < plan->count && code == 0; i++) {
        code = check_one(options, options->walk.roots[i], plan->targets[i]);
        for (size_t k = 0; k < i && code == 0; k++) {
            if (strcmp(plan->targets[k], plan->targets[i]) == 0) {
                code = poise_error_set(EINVAL, "copy", options->walk.roots[i],
                                       "it would have the same name as '%s'",
                                       options->walk.roots[k]);
            }
        }
    }
    return code;
}

/* ---- the plan ------------------------------------------------------------ */

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Of an atomic copy: beside the target, and always the same for it, so that a
 * resumed one finds it. */
static int hidden_place(const struct poise_copy_options *options,
                        const char *target, char **out)
{
    struct poise_buf place = {0};
    size_t len = without_slashes(target, strlen(target)), at = len;
    struct stat st;

    while (at > 0 && target[at - 1] != '/') {
        at--;
    }
    if (lstat(target, &st) == 0) {
        return poise_error_set(EEXIST, "make", target,
                               "--atomic makes what is not there yet");
    }
    poise_buf_append(&place, target, at);
    poise_buf_printf(
        &place, POISE_WALK_TEMPORARY "%016llx",
        (unsigned long long)poise_hash_bytes(target + at, len - at, 1));
    *out = take(&place);
    if (*out && !options->resume && lstat(*out, &st) == 0) {
        return poise_error_set(EEXIST, "make", *out,
                               "an earlier --atomic left it: --resume goes on "
                               "with it");
    }
    return *out ? 0 : -ENOMEM;
}

static bool ends_in_slash(const char *path)
{
    size_t len = strlen(path);

    return len > 0 && path[len - 1] == '/';
}

static int plan_one(const struct poise_copy_options *options, bool into,
                    size_t i, struct copy_plan *plan)
{
    struct poise_buf target = {0};
    size_t len = without_slashes(options->target, strlen(options->target));

    poise_buf_append(&target, options->target, len);
    if (into) {
        put_base(&target, options->walk.roots[i]);
    }
    plan->targets[i] = take(&target);
    if (!plan->targets[i]) {
        return -ENOMEM;
    }
    if (options->atomic) {
        return hidden_place(options, plan->targets[i], &plan->places[i]);
    }
    plan->places[i] = strdup(plan->targets[i]);
    return plan->places[i] ? 0 : -ENOMEM;
}

static int decide(const struct poise_copy_options *options,
                  struct copy_plan *plan)
{
    const struct poise_walk_options *walk = &options->walk;
    bool there = is_directory(options->target);
    bool into = there && !options->target_is_name;
    struct stat st;
    int code = 0;

    if (options->target[0] == 0) {
        return poise_error_set(ENOENT, "copy to", "", NULL);
    }
    if (walk->root_count > 1 && !into) {
        bool missing = !there && lstat(options->target, &st) != 0;
        return poise_error_set(
            missing ? errno : ENOTDIR, "copy several sources to",
            options->target,
            missing ? "there is no such directory; make it first" : NULL);
    }
    if (!there && ends_in_slash(options->target) &&
        lstat(walk->roots[0], &st) == 0 && !S_ISDIR(st.st_mode)) {
        return poise_error_set(ENOTDIR, "copy to", options->target, NULL);
    }
    for (size_t i = 0; i < walk->root_count && code == 0; i++) {
        code = plan_one(options, into, i, plan);
    }
    if (code == 0) {
        code = check_plan(options, plan);
    }
    if (code == 0) {
        /* One directory: in it, since its own may take no new names. */
        bool one = walk->root_count == 1 && lstat(walk->roots[0], &st) == 0 &&
                   S_ISDIR(st.st_mode);

        plan->home = one     ? strdup(plan->places[0])
                     : there ? strdup(options->target)
                             : parent_of(options->target);
        plan->id = poise_rng_next(poise_rng_current());
    }
    return code < 0 ? code : plan->home ? 0 : -ENOMEM;
}

/* ---- telling the others -------------------------------------------------- */

static void pack(const struct copy_plan *plan, struct poise_buf *out)
{
    for (size_t i = 0; i < plan->count; i++) {
        poise_buf_blob(out, plan->targets[i], strlen(plan->targets[i]));
        poise_buf_blob(out, plan->places[i], strlen(plan->places[i]));
    }
    poise_buf_blob(out, plan->home, strlen(plan->home));
    poise_buf_u64(out, plan->id);
}

static char *unpack_text(struct poise_reader *in)
{
    size_t len;
    const char *text = poise_reader_blob(in, &len);

    return text ? strndup(text, len) : NULL;
}

static int unpack(struct copy_plan *plan, const struct poise_buf *packed)
{
    struct poise_reader in = poise_reader_of(packed->data, packed->len);
    bool whole = true;

    for (size_t i = 0; i < plan->count; i++) {
        plan->targets[i] = unpack_text(&in);
        plan->places[i] = unpack_text(&in);
        whole = whole && plan->targets[i] && plan->places[i];
    }
    plan->home = unpack_text(&in);
    plan->id = poise_reader_u64(&in);
    return whole && plan->home && !in.error ? 0 : -ENOMEM;
}

int copy_plan(struct poise_world *world,
              const struct poise_copy_options *options, struct copy_plan *plan)
{
    bool is_first = !world || poise_world_rank(world) == 0;
    struct poise_buf packed = {0};
    int code = 0;

    plan->count = options->walk.root_count;
    plan->targets = poise_alloc(plan->count + 1, sizeof *plan->targets);
    plan->places = poise_alloc(plan->count + 1, sizeof *plan->places);
    code = plan->targets && plan->places ? 0 : -ENOMEM;
    if (code == 0 && is_first) {
        code = decide(options, plan);
    }
    if (!world) {
        return code;
    }
    code = poise_world_agree(world, code);
    if (code == 0 && is_first) {
        pack(plan, &packed);
    }
    if (code == 0) {
        code = poise_world_broadcast(world, 0, &packed);
    }
    if (code == 0 && !is_first) {
        code = unpack(plan, &packed);
    }
    poise_buf_free(&packed);
    return poise_world_agree(world, code);
}

void copy_plan_free(struct copy_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        free(plan->targets ? plan->targets[i] : NULL);
        free(plan->places ? plan->places[i] : NULL);
    }
    free(plan->targets);
    free(plan->places);
    free(plan->home);
}
