/*
 * The walk in an order: one worker reads and visits all, depth first, each
 * directory's entries as the directory has them or by name.
 *
 * The order of directories is that of fts(3) as GNU find uses it: at most
 * 100,000 entries are read at a time, before anything of them is visited, and
 * where there are more than 10,000 of them they are sorted by inode, but on
 * file systems where that gains nothing. What callbacks do below a directory is
 * seen there, since it is read when its turn comes.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef CIFS_SUPER_MAGIC
#define CIFS_SUPER_MAGIC 0xFF534D42
#endif

enum {
    ORDERED_BATCH = 100000, /* entries read at a time, unless sorted by name */
    ORDERED_SORT = 10000,   /* more are sorted by inode */
    ORDERED_COMMIT = 256,   /* entries between commits, for progress */
};

/* A directory on the way to the entry in hand. */
struct ordered_level {
    struct poise_walk_dir *dir; /* one reference */
    struct poise_buf records;   /* of dirent64, as the kernel packs them */
    size_t *entries;            /* where in `records`, in order of visits */
    size_t count, at;
    uint64_t next; /* position of the next batch; WALK_END: there is none */
};

struct ordered {
    struct walk_worker *w;
    struct ordered_level *levels;
    size_t depth, cap;
    unsigned fresh; /* entries since the last commit */
};

static const struct dirent64 *level_entry(const struct ordered_level *level,
                                          size_t index)
{
    return (const void *)(level->records.data + level->entries[index]);
}

/* ---- reading ------------------------------------------------------------ */

static bool ordered_is_dots(const char *name)
{
    return name[0] == '.' &&
           (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/* Take over the records of one call; true: the batch is full. */
static bool level_take(struct ordered_level *level, const char *buffer,
                       size_t len, size_t most)
{
    for (size_t pos = 0; pos < len;) {
        const struct dirent64 *d = (const void *)(buffer + pos);
        pos += d->d_reclen;
        if (ordered_is_dots(d->d_name)) {
            continue;
        }
        poise_buf_append(&level->records, d, d->d_reclen);
        if (++level->count == most) {
            level->next = (uint64_t)d->d_off;
            return true;
        }
    }
    return false;
}

static int compare_inodes(const void *a, const void *b, void *records)
{
    const size_t *x = a, *y = b;
    const struct dirent64 *p = (const void *)((char *)records + *x);
    const struct dirent64 *q = (const void *)((char *)records + *y);
    if (p->d_ino != q->d_ino) {
        return p->d_ino < q->d_ino ? -1 : 1;
    }
    return (*x > *y) - (*x < *y);
}

static int compare_names(const void *a, const void *b, void *records)
{
    const size_t *x = a, *y = b;
    const struct dirent64 *p = (const void *)((char *)records + *x);
    const struct dirent64 *q = (const void *)((char *)records + *y);
    int order = strcoll(p->d_name, q->d_name);
    return order != 0 ? order : strcmp(p->d_name, q->d_name);
}

static bool sorting_pays(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0) {
        return true;
    }
    unsigned type = (unsigned)fs.f_type;
    return type != TMPFS_MAGIC && type != NFS_SUPER_MAGIC &&
           type != (unsigned)CIFS_SUPER_MAGIC;
}

static int level_sort(const struct ordered *o, struct ordered_level *level,
                      int fd)
{
    bool by_name = o->w->walk->options.order == POISE_WALK_ORDER_NAME;
    free(level->entries);
    level->entries = poise_alloc(level->count + 1, sizeof *level->entries);
    if (!level->entries) {
        return -ENOMEM;
    }
    size_t n = 0;
    for (size_t pos = 0; n < level->count; n++) {
        const struct dirent64 *d = (const void *)(level->records.data + pos);
        level->entries[n] = pos;
        pos += d->d_reclen;
    }
    if (by_name || (n > ORDERED_SORT && sorting_pays(fd))) {
        qsort_r(level->entries, n, sizeof *level->entries,
                by_name ? compare_names : compare_inodes, level->records.data);
    }
    return 0;
}

/* Fill the level with its next batch; `fd` stands where that begins. */
static int level_read(struct ordered *o, struct ordered_level *level, int fd)
{
    struct walk_worker *w = o->w;
    bool by_name = w->walk->options.order == POISE_WALK_ORDER_NAME;
    size_t most = by_name ? SIZE_MAX : ORDERED_BATCH;
    uint64_t start = poise_clock_ticks();
    ssize_t n;
    poise_buf_reset(&level->records);
    level->count = level->at = 0;
    level->next = WALK_END;
    do {
        n = poise_file_getdents(fd, w->buffer, WALK_BUFFER_BYTES);
    } while (n > 0 && !level_take(level, w->buffer, (size_t)n, most));
    w->profile.readdir += poise_clock_ticks() - start;
    if (level->records.error) {
        return level->records.error;
    }
    if (n < 0 && n != -ENOENT) { /* -ENOENT: removed while it was open */
        int code =
            walk_report(w, (int)n, "read directory", level->dir, NULL, NULL);
        if (code != 0) {
            return code;
        }
    }
    return level_sort(o, level, fd);
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

/* The first batch of a directory that is entered; takes over the reference. */
static int ordered_push(struct ordered *o, struct poise_walk_dir *dir)
{
    if (o->depth == o->cap) {
        size_t cap = o->cap ? 2 * o->cap : 32;
        void *levels = poise_realloc(o->levels, cap, sizeof *o->levels);
        if (!levels) {
            walk_dir_unref(&o->w->walk->fds, dir);
            return -ENOMEM;
        }
        o->levels = levels;
        o->cap = cap;
    }
    struct ordered_level *level = &o->levels[o->depth++];
    *level = (struct ordered_level){.dir = dir, .next = WALK_END};
    o->w->prefix_of = NULL;
    int code = 0;
    int fd = level_open(o, level, &code);
    if (fd < 0) {
        return code;
    }
    code = level_read(o, level, fd);
    int open = walk_fd_publish(&o->w->walk->fds, dir, fd);
    walk_fd_unpin(dir);
    if (open != fd) {
        close(fd);
    }
    return code;
}

/* A directory of more than one batch: the next one. */
static int ordered_continue(struct ordered *o, struct ordered_level *level)
{
    struct walk_worker *w = o->w;
    struct walk_fds *fds = &w->walk->fds;
    uint64_t from = level->next;
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
        level->next = WALK_END;
        return walk_report(w, fd, "read directory", level->dir, NULL, NULL);
    }
    int code = level_read(o, level, fd);
    close(fd);
    return code;
}

static void level_free(struct ordered *o, struct ordered_level *level)
{
    poise_buf_free(&level->records);
    free(level->entries);
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
    const struct dirent64 *d = level_entry(level, level->at++);
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
    if (!child) {
        return code;
    }
    if (code != 0) {
        walk_dir_unref(&w->walk->fds, child);
        return code;
    }
    return ordered_push(o, child);
}

/* Everything below an operand. */
static int ordered_tree(struct ordered *o, struct poise_walk_dir *root,
                        const void *task, size_t len)
{
    int code = ordered_push(o, root);
    while (code == 0 && o->depth > 0) {
        struct ordered_level *level = &o->levels[o->depth - 1];
        if (level->at < level->count) {
            code = ordered_entry(o, level);
            code = code == 0 ? ordered_pause(o, task, len) : code;
        } else if (level->next != WALK_END) {
            code = ordered_continue(o, level);
        } else {
            code = ordered_pop(o);
        }
    }
    return code;
}

int walk_run_ordered(struct walk_worker *w, const void *task, size_t len)
{
    struct ordered o = {.w = w};
    int code = 0;
    for (unsigned i = 0; i < w->walk->options.root_count && code == 0; i++) {
        struct poise_walk_dir *root;
        w->prefix_of = NULL;
        code = walk_look_at_root(w, i, &root);
        if (code == 0 && root) {
            code = ordered_tree(&o, root, task, len);
        }
    }
    while (o.depth > 0) {
        level_free(&o, &o.levels[--o.depth]);
    }
    free(o.levels);
    return code == 1 ? 0 : code;
}
