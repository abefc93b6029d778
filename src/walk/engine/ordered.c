/*
 * The walk in an order: one worker visits all, depth first, each directory's
 * entries as listing.c has them. What callbacks do below a directory is seen
 * there, since it is read when its turn comes; or before, by the threads of
 * ahead.c, which knows when that is the same.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ORDERED_COMMIT = 256 /* entries between commits, for progress */ };

/* A directory on the way to the entry in hand. */
struct ordered_level {
    struct poise_walk_dir *dir; /* one reference */
    struct walk_listing listing;
    size_t at;                /* the next entry of it */
    struct walk_place *place; /* what is read ahead below it; NULL: nothing */
    struct statx *stats;      /* [listing.count], read ahead; NULL: none */
    uint64_t changes;         /* that stats and listing know of */
};

struct ordered {
    struct walk_worker *w;
    struct ordered_level *levels;
    size_t depth, cap;
    unsigned fresh;           /* entries since the last commit */
    struct walk_ahead *ahead; /* NULL: nothing is read ahead */
};

/* ---- reading ------------------------------------------------------------ */

/* Fill the level with its next batch; `fd` stands where that begins. */
static int level_read(struct ordered *o, struct ordered_level *level, int fd)
{
    struct walk_worker *w = o->w;
    bool by_name = w->walk->options.order == POISE_WALK_ORDER_NAME;
    uint64_t start = poise_clock_ticks();
    int failed;
    level->at = 0;
    int code = walk_listing_read(&level->listing, fd, by_name, SIZE_MAX,
                                 w->buffer, &failed);
    w->profile.readdir += poise_clock_ticks() - start;
    if (code == 0 && failed < 0) {
        code = walk_report(w, failed, "read directory", level->dir, NULL, NULL);
    }
    return code;
}

/* Open the directory of the level: its descriptor, for the cache to keep, or
 * -1 if it is not to be read, with *code what ends the walk. */
static int level_open(struct ordered *o, struct ordered_level *level, int *code)
{
    struct walk_worker *w = o->w;
    struct poise_walk_dir *dir = level->dir;
    struct stat st;
    bool crossed, known = dir->verified;
    int fd = walk_fd_open(&w->walk->fds, dir, &w->chain, &crossed);
    if (fd >= 0 && fstat(fd, &st) != 0) {
        close(fd);
        fd = -errno;
    }
    if (fd < 0) {
        *code = walk_report(w, fd, "open directory", dir, NULL, NULL);
        return -1;
    }
    bool foreign = w->walk->options.one_file_system && !known && dir->parent &&
                   st.st_dev != dir->parent->dev;
    if (!foreign && crossed && dir->parent &&
        walk_is_loop(w, dir->parent, st.st_dev, st.st_ino)) {
        *code = walk_report(w, -ELOOP, "enter directory", dir, NULL,
                            "it is mounted inside itself (file system loop)");
        foreign = true;
    }
    if (foreign) {
        close(fd);
        return -1;
    }
    dir->dev = st.st_dev;
    dir->ino = st.st_ino;
    dir->verified = true;
    return fd;
}

/* What was read ahead of the directory of the level; false: nothing of use. */
static bool level_use(struct ordered *o, struct ordered_level *level,
                      struct walk_node *node)
{
    struct walk_found found;
    struct poise_walk_dir *dir = level->dir;
    if (!node || !walk_ahead_use(o->ahead, node, o->w, dir, &found)) {
        return false;
    }
    dir->dev = found.dev;
    dir->ino = found.ino;
    dir->verified = true;
    level->listing = found.listing;
    level->stats = found.stats;
    level->changes = found.changes;
    level->place = found.place;
    walk_fd_publish(&o->w->walk->fds, dir, found.fd);
    walk_fd_unpin(dir);
    return true;
}

/* Open and read the directory of the level. */
static int level_begin(struct ordered *o, struct ordered_level *level)
{
    uint64_t start = poise_clock_ticks();
    int code = 0;
    level->changes = o->w->walk->changes;
    int fd = level_open(o, level, &code);
    if (fd < 0) {
        return code;
    }
    code = level_read(o, level, fd);
    int open = walk_fd_publish(&o->w->walk->fds, level->dir, fd);
    walk_fd_unpin(level->dir);
    if (open != fd) {
        close(fd);
    }
    if (o->ahead && code == 0) {
        walk_ahead_took(o->ahead, poise_clock_ticks() - start);
        level->place = walk_ahead_enter(o->ahead, level->dir, &level->listing);
    }
    return code;
}

/* The first batch of a directory that is entered; takes over the reference, and
 * what was read ahead. */
static int ordered_push(struct ordered *o, struct poise_walk_dir *dir,
                        struct walk_node *node)
{
    if (o->depth == o->cap) {
        size_t cap = o->cap ? 2 * o->cap : 32;
        void *levels = poise_realloc(o->levels, cap, sizeof *o->levels);
        if (!levels) {
            walk_ahead_drop(o->ahead, node);
            walk_dir_unref(&o->w->walk->fds, dir);
            return -ENOMEM;
        }
        o->levels = levels;
        o->cap = cap;
    }
    struct ordered_level *level = &o->levels[o->depth++];
    *level = (struct ordered_level){.dir = dir, .listing = {.next = WALK_END}};
    o->w->prefix_of = NULL;
    return level_use(o, level, node) ? 0 : level_begin(o, level);
}

/* A directory of more than one batch: the next one. */
static int ordered_continue(struct ordered *o, struct ordered_level *level)
{
    struct walk_worker *w = o->w;
    struct walk_fds *fds = &w->walk->fds;
    uint64_t from = level->listing.next;
    walk_ahead_leave(o->ahead, level->place);
    level->place = NULL;
    free(level->stats);
    level->stats = NULL;
    level->changes = w->walk->changes;
    int pinned = walk_fd_pin(fds, level->dir, &w->chain);
    int fd = pinned < 0 ? pinned : walk_fd_again(fds, pinned);
    if (pinned >= 0) {
        walk_fd_unpin(level->dir);
    }
    if (fd >= 0 && lseek(fd, (off_t)from, SEEK_SET) < 0) {
        close(fd);
        fd = -errno;
    }
    if (fd < 0) {
        level->listing.next = WALK_END;
        return walk_report(w, fd, "read directory", level->dir, NULL, NULL);
    }
    int code = level_read(o, level, fd);
    close(fd);
    if (o->ahead && code == 0) {
        level->place = walk_ahead_enter(o->ahead, level->dir, &level->listing);
    }
    return code;
}

static void level_free(struct ordered *o, struct ordered_level *level)
{
    walk_ahead_leave(o->ahead, level->place);
    free(level->stats);
    walk_listing_free(&level->listing);
    walk_dir_unref(&o->w->walk->fds, level->dir);
}

/* All of the top directory was visited. */
static int ordered_pop(struct ordered *o)
{
    struct ordered_level *level = &o->levels[o->depth - 1];
    int code = 0;
    o->w->prefix_of = NULL;
    if (o->w->walk->options.post) {
        code = walk_leave_done(o->w, level->dir);
    }
    level_free(o, level);
    o->depth--;
    return code;
}

/* ---- visiting ----------------------------------------------------------- */

/* Now and then: let the pool look at signals and show progress. 1: it stops. */
static int ordered_pause(struct ordered *o, const void *task, size_t len)
{
    if (poise_task_poll(o->w->worker) != 0) {
        return 1;
    }
    if (++o->fresh < ORDERED_COMMIT) {
        return 0;
    }
    o->fresh = 0;
    return poise_task_commit(o->w->worker, task, len);
}

static int ordered_entry(struct ordered *o, struct ordered_level *level)
{
    struct walk_worker *w = o->w;
    size_t at = level->at++;
    const struct dirent64 *d = walk_listing_entry(&level->listing, at);
    struct walk_view view = {.entry = {.name = d->d_name,
                                       .name_len = strlen(d->d_name),
                                       .dir = level->dir,
                                       .root = level->dir->root,
                                       .depth = level->dir->depth + 1,
                                       .type = d->d_type,
                                       .ino = d->d_ino,
                                       .worker = w->worker},
                             .w = w,
                             .fd = -1,
                             .prefixed = true,
                             .stx = &w->stx};
    struct poise_walk_dir *child = NULL;
    struct walk_node *node = NULL;
    if (level->stats && level->changes == w->walk->changes) {
        view.stx = &level->stats[at];
        view.ready = level->stats[at].stx_mask;
    } else if (d->d_type == DT_DIR && level->changes != w->walk->changes &&
               walk_view_stat(&view, STATX_TYPE) == 0) {
        /* What was a directory may be a link by now: GNU find looks, too. */
        view.entry.type = walk_type_of(view.stx->stx_mode);
    }
    int code = walk_prepare(&view, d->d_type);
    if (code == 0) {
        int answer = walk_visit(&view);
        if (answer == POISE_WALK_ON && view.entry.type == DT_DIR) {
            code = walk_enter_any(&view, &child);
        } else {
            code = answer == POISE_WALK_SKIP ? 0 : answer;
        }
    } else if (code == 1) {
        code = w->verdict; /* gone, or not to be visited: reported */
    }
    walk_view_end(&view);
    if (level->place && view.entry.type == DT_DIR) {
        node = walk_ahead_take(o->ahead, level->place, at);
    }
    if (child && code == 0) {
        return ordered_push(o, child, node);
    }
    walk_ahead_drop(o->ahead, node);
    walk_dir_unref(&w->walk->fds, child);
    return code;
}

/* Everything below an operand. */
static int ordered_tree(struct ordered *o, struct poise_walk_dir *root,
                        const void *task, size_t len)
{
    int code = ordered_push(o, root, NULL);
    while (code == 0 && o->depth > 0) {
        struct ordered_level *level = &o->levels[o->depth - 1];
        if (level->at < level->listing.count) {
            code = ordered_entry(o, level);
            code = code == 0 ? ordered_pause(o, task, len) : code;
        } else if (level->listing.next != WALK_END) {
            code = ordered_continue(o, level);
        } else {
            code = ordered_pop(o);
        }
    }
    return code;
}

int walk_run_ordered(struct walk_worker *w, const void *task, size_t len)
{
    struct ordered o = {.w = w, .ahead = walk_ahead_create(w->walk)};
    int code = 0;
    for (unsigned i = 0; i < w->walk->options.root_count && code == 0; i++) {
        struct poise_walk_dir *root;
        w->prefix_of = NULL;
        code = walk_look_at_root(w, i, &root);
        if (code == 0 && root) {
            code = ordered_tree(&o, root, task, len);
        }
    }
    walk_ahead_stop(o.ahead);
    while (o.depth > 0) {
        level_free(&o, &o.levels[--o.depth]);
    }
    free(o.levels);
    walk_ahead_destroy(o.ahead);
    return code == 1 ? 0 : code;
}
