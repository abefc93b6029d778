/*
 * Option dereference: symbolic links are followed, so that an inode may be met
 * many times and directories may lie in each other. What counts is, as for GNU
 * du, the first time that it is met; so one thread goes, depth first, in the
 * order in which GNU du reads.
 *
 * The names of the directories on the way are in memory, but only the last few
 * of them are open. When the way leads back to one above them it is opened
 * again, from the nearest that is open; of those between, the ones at 1, 2, 4,
 * ... levels from it stay open, for the next such time.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLLOW_OPEN = 16 };

/* A directory on the way. */
struct level {
    struct poise_buf names; /* of its entries, each with its NUL */
    size_t next, path_len;
    size_t name; /* where its own name begins in the path */
    uint64_t dev, ino, tag;
    int fd; /* -1: closed */
};

struct seen {
    uint64_t dev, ino; /* ino + 1: zeroed is a free slot */
};

struct follow {
    struct du_run *run;
    struct du_space *space;
    struct level *levels;
    size_t depth, cap; /* levels in use */
    struct poise_buf path;
    struct seen *seen;
    size_t seen_count, seen_cap;
    unsigned root;
    uint64_t errors, entries;
};

/* ---- inodes that were counted ------------------------------------------- */

static struct seen *seen_slot(const struct follow *f, struct seen what)
{
    uint64_t hash = poise_hash_u64(what.ino ^ what.dev * 0x9e3779b97f4a7c15u);
    size_t i = hash & (f->seen_cap - 1);
    while (f->seen[i].ino != 0 &&
           (f->seen[i].ino != what.ino || f->seen[i].dev != what.dev)) {
        i = (i + 1) & (f->seen_cap - 1);
    }
    return &f->seen[i];
}

/* 1: it was new. */
static int see(struct follow *f, const struct statx *st)
{
    if (2 * f->seen_count >= f->seen_cap) {
        struct follow more = {.seen_cap = f->seen_cap ? 2 * f->seen_cap : 1024};
        more.seen = poise_alloc(more.seen_cap, sizeof *more.seen);
        if (!more.seen) {
            return -ENOMEM;
        }
        for (size_t i = 0; i < f->seen_cap; i++) {
            if (f->seen[i].ino != 0) {
                *seen_slot(&more, f->seen[i]) = f->seen[i];
            }
        }
        free(f->seen);
        f->seen = more.seen;
        f->seen_cap = more.seen_cap;
    }
    struct seen what = {.dev = du_dev(st), .ino = st->stx_ino + 1};
    struct seen *slot = seen_slot(f, what);
    if (slot->ino != 0) {
        return 0;
    }
    *slot = what;
    f->seen_count++;
    return 1;
}

/* ---- errors ------------------------------------------------------------- */

static int complain(struct follow *f, int code, const char *doing)
{
    const struct poise_walk_du_options *options = f->run->options;
    poise_error_set(-code, doing, poise_buf_str(&f->path), NULL);
    f->errors++;
    return options->error
               ? options->error(NULL, poise_error_last(), options->arg)
               : 0;
}

/* ---- directories on the way --------------------------------------------- */

/* Open a level by its own name in the one above, which is open. */
static int open_level(struct follow *f, size_t index)
{
    struct level *level = &f->levels[index];
    int at = index > 0 ? f->levels[index - 1].fd : AT_FDCWD;
    char *end = f->path.data + level->path_len, saved = *end;
    *end = '\0';
    int fd = poise_file_open(at, f->path.data + level->name,
                             O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
    *end = saved;
    level->fd = fd < 0 ? -1 : fd;
    return fd < 0 ? fd : 0;
}

/* The way leads back to the last level: open it again with those above. */
static int reopen_last(struct follow *f)
{
    size_t first = f->depth;
    while (first > 0 && f->levels[first - 1].fd < 0) {
        first--;
    }
    for (size_t i = first; i < f->depth; i++) {
        int code = open_level(f, i);
        if (code < 0) {
            return code;
        }
        size_t above = f->depth - i; /* levels, of the one before */
        if (i > first && above > FOLLOW_OPEN && (above & (above - 1)) != 0) {
            close(f->levels[i - 1].fd);
            f->levels[i - 1].fd = -1;
        }
    }
    return 0;
}

static void leave_level(struct follow *f)
{
    struct level *level = &f->levels[--f->depth];
    poise_buf_free(&level->names);
    if (level->fd >= 0) {
        close(level->fd);
    }
}

/* Enter the directory that the path names: `name` is where its name begins. */
static int enter(struct follow *f, size_t name, const struct statx *st,
                 uint64_t tag)
{
    if (f->depth == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 64;
        struct level *more = poise_realloc(f->levels, cap, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        f->levels = more;
        f->cap = cap;
    }
    f->levels[f->depth++] = (struct level){.path_len = f->path.len,
                                           .name = name,
                                           .dev = du_dev(st),
                                           .ino = st->stx_ino,
                                           .tag = tag,
                                           .fd = -1};
    struct level *level = &f->levels[f->depth - 1];
    int code = open_level(f, f->depth - 1);
    if (code < 0) {
        leave_level(f);
        return complain(f, code, "open directory");
    }
    code = du_order_names(level->fd, &level->names);
    if (f->depth > FOLLOW_OPEN && f->levels[f->depth - FOLLOW_OPEN].fd >= 0) {
        close(f->levels[f->depth - FOLLOW_OPEN].fd);
        f->levels[f->depth - FOLLOW_OPEN].fd = -1;
    }
    return code == 0         ? 0
           : code == -ENOMEM ? code
                             : complain(f, code, "read directory");
}

/* ---- entries ------------------------------------------------------------ */

/* With every link counted: whether a directory is one that it lies in. */
static bool is_cycle(const struct follow *f, const struct statx *st)
{
    for (size_t i = 0; i < f->depth; i++) {
        if (f->levels[i].ino == st->stx_ino && f->levels[i].dev == du_dev(st)) {
            return true;
        }
    }
    return false;
}

/* 1: it counts, and *st is what it is. */
static int look(struct follow *f, size_t name, struct statx *st)
{
    const struct poise_walk_du_options *options = f->run->options;
    const char *path = poise_buf_str(&f->path);
    int at = f->depth > 0 ? f->levels[f->depth - 1].fd : AT_FDCWD;
    if (f->path.error) {
        return f->path.error; /* the path is none then */
    }
    if (du_excluded(options, path, f->path.len)) {
        return 0;
    }
    f->entries++;
    int code = poise_file_statx(at, path + name, 0, f->run->mask, st);
    if (code < 0) {
        return complain(f, code, "access");
    }
    if (options->walk.one_file_system && f->depth > 0 &&
        du_dev(st) != f->levels[0].dev) {
        return 0;
    }
    if (!options->count_links) {
        return see(f, st);
    }
    return !S_ISDIR(st->stx_mode) || !is_cycle(f, st);
}

/* The entry that the path names, from `name` on. */
static int visit(struct follow *f, size_t name)
{
    struct statx st;
    struct du_item item = {.root = f->root, .depth = (uint32_t)f->depth};
    int code = look(f, name, &st);
    if (code <= 0) {
        return code;
    }
    item.name = f->path.data + name;
    item.name_len = f->path.len - name;
    item.tag = f->depth > 0 ? f->levels[f->depth - 1].tag : 0;
    if (!S_ISDIR(st.stx_mode)) {
        return du_visit_file(f->run, f->space, &item, &st);
    }
    uint64_t tag;
    code = du_visit_directory(f->run, f->space, &item, &st, &tag);
    return code < 0 ? code : enter(f, name, &st, tag);
}

static int step(struct follow *f)
{
    struct level *level = &f->levels[f->depth - 1];
    f->path.len = level->path_len;
    if (level->next >= level->names.len) {
        leave_level(f);
        return 0;
    }
    if (level->fd < 0) {
        poise_buf_str(&f->path);
        int code = f->path.error ? f->path.error : reopen_last(f);
        if (code == -ENOMEM) {
            return code;
        }
        if (code < 0) {
            code = complain(f, code, "open directory");
            leave_level(f);
            return code;
        }
    }
    const char *name = level->names.data + level->next;
    level->next += strlen(name) + 1;
    if (f->path.len == 0 || f->path.data[f->path.len - 1] != '/') {
        poise_buf_putc(&f->path, '/');
    }
    size_t at = f->path.len;
    int code = poise_buf_puts(&f->path, name);
    return code < 0 ? code : visit(f, at);
}

int du_follow(struct du_run *run, uint64_t *errors, uint64_t *entries)
{
    const struct poise_walk_options *walk = &run->options->walk;
    struct follow f = {.run = run, .space = du_space_of(run, 0, 1)};
    int code = f.space ? 0 : -ENOMEM;
    for (; f.root < walk->root_count && code >= 0; f.root++) {
        poise_buf_reset(&f.path);
        code = poise_buf_puts(&f.path, walk->roots[f.root]);
        if (code == 0) {
            code = visit(&f, 0);
        }
        while (f.depth > 0 && code >= 0) {
            code = step(&f);
            if (walk->pool.interrupt && *walk->pool.interrupt) {
                code = -EINTR;
            }
        }
    }
    while (f.depth > 0) {
        leave_level(&f);
    }
    free(f.levels);
    free(f.seen);
    poise_buf_free(&f.path);
    *errors = f.errors;
    *entries = f.entries;
    return code < 0 ? code : 0;
}
