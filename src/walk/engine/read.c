/*
 * The inner loop: one task reads a range of one directory.
 *
 * Positions are cookies: the d_off of an entry is where the next one begins.
 * A reader owns [at, to); it shrinks from below as entries are visited, and
 * from above when a part is split off for an idle worker. Children become tasks
 * at commits, so nothing is allocated for what is not a directory.
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

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

enum {
    READ_STAT_SAMPLE = 16, /* one statx of so many is timed */
    /* The least worth giving away: entries that only need to be read, that
     * need metadata, and that are slow to visit. */
    READ_LEAST_NAMES = 1024,
    READ_LEAST_STAT = 64,
    READ_LEAST_SLOW = 2,
};

struct walk_reader {
    struct walk_worker *w;
    struct poise_walk_dir *dir;
    int fd;
    bool cached;        /* fd is the cache's, pinned; else our own */
    bool first;         /* no entry of [at, to) was seen yet */
    bool slow;          /* an entry takes long: look at the clock each time */
    bool known;         /* the file system was asked for: */
    bool ordered;       /* positions ascend */
    bool hashed;        /* positions are hashes, evenly spread */
    uint64_t at, to;    /* what is left */
    uint64_t base;      /* position where the buffer begins */
    size_t pos, len;    /* in the worker's buffer */
    unsigned countdown; /* entries until the next look at the clock */
    unsigned fresh;     /* records since the last commit */
    uint64_t names;     /* entries since the last call of `piece` */
    bool whole;         /* nothing of the directory was, or goes, elsewhere */
    uint64_t looked_at;
    struct walk_view view;
};

static const struct dirent64 *read_record(const struct walk_reader *r,
                                          size_t pos)
{
    return (const void *)(r->w->buffer + pos);
}

int walk_add_task(struct walk_worker *w, const struct walk_task *task)
{
    int code = poise_task_add(w->worker, task, sizeof *task,
                              walk_dir_bytes(task->dir));
    if (code < 0) {
        walk_dir_unref(&w->walk->fds, task->dir);
    }
    return code;
}

struct walk_task walk_task_of(struct poise_walk_dir *child)
{
    bool file = child->type != DT_DIR;
    return (struct walk_task){.dir = child,
                              .to = file ? child->length : WALK_END,
                              .kind = file ? WALK_CHUNKS : WALK_RANGE};
}

/* ---- opening ------------------------------------------------------------ */

bool walk_is_loop(struct walk_worker *w, struct poise_walk_dir *dir,
                  uint64_t dev, uint64_t ino)
{
    for (struct poise_walk_dir *a = dir; a; a = a->parent) {
        struct stat other;
        if (a->verified) {
            if (a->ino == ino && a->dev == dev) {
                return true;
            }
            continue;
        }
        int fd = walk_fd_pin(&w->walk->fds, a, &w->chain);
        if (fd < 0) {
            continue;
        }
        bool same = fstat(fd, &other) == 0 && other.st_ino == ino &&
                    other.st_dev == dev;
        walk_fd_unpin(a);
        if (same) {
            return true;
        }
    }
    return false;
}

/* At the start of a directory: 1 if it is not to be entered after all. */
static int read_check_entry(struct walk_reader *r, bool crossed)
{
    /* With metadata, other file systems were kept out by the visit. */
    bool one = r->w->walk->options.one_file_system && !r->dir->verified;
    struct stat st;
    if (!r->dir->parent || (!one && !crossed)) {
        return 0;
    }
    if (fstat(r->fd, &st) != 0) {
        return -errno;
    }
    if (one && st.st_dev != r->dir->dev) {
        return 1;
    }
    if (crossed && walk_is_loop(r->w, r->dir->parent, st.st_dev, st.st_ino)) {
        walk_report(r->w, -ELOOP, "enter directory", r->dir, NULL,
                    "it is mounted inside itself (file system loop)");
        return 1;
    }
    return 0;
}

/* What is known of the file system's positions. Asked only when a directory
 * is shared. */
static void read_identify(struct walk_reader *r)
{
    struct statfs fs;
    if (r->known) {
        return;
    }
    r->known = true;
    if (fstatfs(r->fd, &fs) == 0) {
        long type = (long)fs.f_type;
        /* Not tmpfs: since Linux 6.14 its positions descend. */
        r->ordered = type == EXT4_SUPER_MAGIC || type == XFS_SUPER_MAGIC ||
                     type == (long)BTRFS_SUPER_MAGIC;
        r->hashed = type == EXT4_SUPER_MAGIC;
    }
}

static int read_seek(struct walk_reader *r)
{
    if (r->at != 0 && lseek(r->fd, (off_t)r->at, SEEK_SET) < 0) {
        return -errno;
    }
    if (r->to != WALK_END) {
        read_identify(r);
    }
    return 0;
}

/* Get a descriptor that stands at r->at. 1: do not enter. */
static int read_open(struct walk_reader *r)
{
    struct walk_fds *fds = &r->w->walk->fds;
    bool crossed = false;
    int fd = r->at != 0 ? walk_fd_try_pin(r->dir) : -1;
    if (fd >= 0) {
        uint64_t at = r->at;
        if (__atomic_compare_exchange_n(&r->dir->read_at, &at, WALK_NOWHERE,
                                        false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            r->fd = fd; /* left for us by the reader of the part before */
            r->cached = true;
            if (r->to != WALK_END) {
                read_identify(r);
            }
            return 0;
        }
        r->fd = walk_fd_again(fds, fd);
        walk_fd_unpin(r->dir);
    } else {
        r->fd = walk_fd_open(fds, r->dir, &r->w->chain, &crossed);
    }
    if (r->fd < 0) {
        return r->fd;
    }
    int code = r->at == 0 ? read_check_entry(r, crossed) : 0;
    return code != 0 ? code : read_seek(r);
}

static void read_close(struct walk_reader *r)
{
    walk_view_end(&r->view);
    if (r->cached) {
        walk_fd_unpin(r->dir);
    } else if (r->fd >= 0) {
        close(r->fd);
    }
}

/* ---- commits, and sharing what is left ---------------------------------- */

static bool read_buffer_full(const struct walk_reader *r)
{
    return r->len > WALK_BUFFER_BYTES - WALK_RECORD_MOST;
}

/* Whether the range ends at or before this position. */
static bool read_is_end(const struct walk_reader *r, uint64_t position)
{
    return position == r->to || position == WALK_END ||
           (r->ordered && position > r->to);
}

/* Entries of the range from `pos` on that are in the buffer, and the position
 * behind them. */
static size_t read_count(const struct walk_reader *r, size_t pos,
                         uint64_t *behind)
{
    size_t n = 0;
    *behind = r->at;
    while (pos < r->len && !read_is_end(r, *behind)) {
        const struct dirent64 *d = read_record(r, pos);
        *behind = (uint64_t)d->d_off;
        pos += d->d_reclen;
        n++;
    }
    return n;
}

/* Keep the descriptor for the children, and for the task that goes on reading.
 */
static void read_publish(struct walk_reader *r)
{
    if (r->cached) {
        return;
    }
    int fd = walk_fd_publish(&r->w->walk->fds, r->dir, r->fd);
    if (fd == r->fd) {
        r->cached = true;
    } else {
        walk_fd_unpin(r->dir);
    }
}

/* Make [cut, to) a task of its own. */
static int read_split(struct walk_reader *r, uint64_t cut)
{
    walk_dir_ref(r->dir);
    if (r->w->walk->options.post) {
        __atomic_fetch_add(&r->dir->pending, 1, __ATOMIC_RELAXED);
    }
    struct walk_task upper = {
        .dir = r->dir, .from = cut, .to = r->to, .kind = WALK_RANGE};
    int code = walk_add_task(r->w, &upper);
    if (code == 0) {
        r->to = cut;
        r->whole = false;
    }
    return code;
}

/* Turn the children seen so far into tasks. Where more follows than this
 * buffer, that goes below them in the queue: depth first keeps it short. */
static int read_add_children(struct walk_reader *r, uint64_t behind)
{
    struct walk_worker *w = r->w;
    unsigned i = 0;
    int code = 0;
    if (w->child_count == 0) {
        return 0;
    }
    read_publish(r);
    if (read_buffer_full(r) && !read_is_end(r, behind)) {
        code = read_split(r, behind);
        if (code == 0 && r->cached) {
            __atomic_store_n(&r->dir->read_at, behind, __ATOMIC_RELEASE);
        }
    }
    for (; i < w->child_count && code == 0; i++) {
        struct walk_task task = walk_task_of(w->children[i]);
        code = walk_add_task(w, &task);
    }
    for (; i < w->child_count; i++) {
        walk_dir_unref(&w->walk->fds, w->children[i]);
    }
    w->child_count = 0;
    return code;
}

/* Call the hook piece: so much was read. */
static int read_report_piece(struct walk_reader *r)
{
    struct walk_worker *w = r->w;
    if (!w->walk->hooks.piece || (r->names == 0 && !r->whole)) {
        return 0;
    }
    int code = w->walk->hooks.piece(w->worker, r->dir, r->names, r->whole,
                                    w->walk->hooks.arg);
    r->names = 0;
    if (code < 0) {
        w->verdict = code;
    }
    return code;
}

/* In the middle of a range: all entries before r->at are done. */
static int read_commit(struct walk_reader *r, uint64_t now)
{
    struct walk_worker *w = r->w;
    uint64_t behind;
    int code = 0;
    if (w->child_count > 0) {
        read_count(r, r->pos, &behind);
        code = read_add_children(r, behind);
    }
    if (code == 0) {
        r->whole = false;
        code = read_report_piece(r);
    }
    if (code == 0) {
        struct walk_task rest = {
            .dir = r->dir, .from = r->at, .to = r->to, .kind = WALK_RANGE};
        code = poise_task_commit(w->worker, &rest, sizeof rest);
    }
    r->fresh = 0;
    w->committed_at = now;
    return code;
}

/* Where to split a range of hashes: `left` entries are in the buffer, and by
 * their density about `beyond` behind it, up to r->to. 0: not worth it. */
static uint64_t read_hash_split(const struct walk_reader *r, size_t left,
                                uint64_t behind, size_t least)
{
    uint64_t ignored;
    size_t all = read_count(r, 0, &ignored);
    double span = (double)(r->to - behind);
    double beyond = span * (double)all / (double)(behind - r->base);
    if (beyond < (double)left || beyond + (double)left < 2.0 * (double)least) {
        return 0;
    }
    double keep = (beyond - (double)left) / 2 / beyond;
    return behind + (uint64_t)(span * keep);
}

/* A thread or rank is out of work: where to split what is left, 0 if not at
 * all. */
static uint64_t read_choose_split(struct walk_reader *r)
{
    const struct poise_walk_options *options = &r->w->walk->options;
    uint64_t behind, cut = 0;
    read_identify(r);
    size_t left = read_count(r, r->pos, &behind);
    bool more = read_buffer_full(r) && !read_is_end(r, behind);
    size_t least = r->slow               ? READ_LEAST_SLOW
                   : options->statx_mask ? READ_LEAST_STAT
                                         : READ_LEAST_NAMES;
    if (more && r->hashed && behind >> 33 != 0 && behind > r->base) {
        cut = read_hash_split(r, left, behind, least);
    } else if (more) {
        cut = behind; /* how much that is, is not known */
    }
    if (cut == 0 && left >= 2 * least) {
        size_t pos = r->pos;
        for (size_t n = left / 2; n > 0; n--) {
            cut = (uint64_t)read_record(r, pos)->d_off;
            pos += read_record(r, pos)->d_reclen;
        }
    }
    bool inside = r->ordered ? cut > r->at && cut < r->to : cut != r->to;
    return inside ? cut : 0;
}

static int read_share(struct walk_reader *r, uint64_t now)
{
    struct walk_worker *w = r->w;
    if (w->child_count == 0 && !w->walk->single_entries) {
        if (now - w->split_at < w->walk->split_ticks) {
            return 0; /* the last part may not have been found yet */
        }
        uint64_t cut = read_choose_split(r);
        if (cut == 0) {
            return 0;
        }
        int code = read_split(r, cut);
        if (code < 0) {
            return code;
        }
        w->split_at = now;
    }
    return read_commit(r, now);
}

/* Now and then: communicate, share, commit. 1: return early. */
static int read_pause(struct walk_reader *r)
{
    struct walk_worker *w = r->w;
    const struct walk *walk = w->walk;
    uint64_t now = poise_clock_ticks();
    bool metadata = walk->options.statx_mask != 0;
    r->slow = now - r->looked_at > walk->slow_ticks * (r->slow ? 1 : 16);
    r->looked_at = now;
    r->countdown = r->slow ? 1 : WALK_CHECK_ENTRIES;
    if (now - w->polled_at > walk->poll_ticks) {
        w->polled_at = now;
        if (poise_task_poll(w->worker) != 0) {
            int code = read_commit(r, now);
            return code < 0 ? code : 1;
        }
    }
    if (poise_task_wanted(w->worker)) {
        return read_share(r, now);
    }
    if ((metadata && r->fresh >= WALK_COMMIT_ENTRIES) ||
        now - w->committed_at > walk->commit_ticks) {
        return read_commit(r, now);
    }
    return 0;
}

/* ---- entries ------------------------------------------------------------ */

static int read_enter(struct walk_view *view, struct poise_walk_dir **child)
{
    struct walk_worker *w = view->w;
    const struct poise_walk_options *options = &w->walk->options;
    const struct poise_walk_entry *entry = &view->entry;
    bool known = view->have != 0 && (view->stx->stx_mask & STATX_INO) != 0;
    uint64_t dev =
        known ? makedev(view->stx->stx_dev_major, view->stx->stx_dev_minor) : 0;
    *child = NULL;
    if (options->max_depth_is_zero ||
        (options->max_depth != 0 && entry->depth >= options->max_depth) ||
        (options->one_file_system && known && entry->dir &&
         dev != entry->dir->dev)) {
        return options->post ? walk_leave_unentered(view) : 0;
    }
    struct poise_walk_dir *dir =
        walk_dir_create(entry->dir, entry->root, entry->name, entry->name_len);
    if (!dir) {
        return -ENOMEM;
    }
    dir->tag = view->tag;
    dir->linked = view->linked;
    dir->ino = known ? view->stx->stx_ino : entry->ino;
    dir->verified = known;
    if (known) {
        dir->dev = dev;
    }
    if (options->post) {
        dir->pending = 1;
        if (dir->parent) {
            __atomic_fetch_add(&dir->parent->pending, 1, __ATOMIC_RELAXED);
        }
    }
    *child = dir;
    return 0;
}

static int read_enter_chunks(struct walk_view *view,
                             struct poise_walk_dir **child)
{
    const struct poise_walk_entry *entry = &view->entry;
    *child = NULL;
    view->chunked = false;
    if (entry->type == DT_DIR) {
        return 0;
    }
    struct poise_walk_dir *file =
        walk_dir_create(entry->dir, entry->root, entry->name, entry->name_len);
    if (!file) {
        return -ENOMEM;
    }
    file->tag = view->tag;
    file->ino = entry->ino;
    file->type = entry->type;
    file->length = view->length;
    file->alone = view->alone;
    file->pending = 1;
    if (file->parent) {
        __atomic_fetch_add(&file->parent->pending, 1, __ATOMIC_RELAXED);
    }
    *child = file;
    return 0;
}

/* Metadata ahead of the visit; 1 if the entry is gone or unreadable. */
static int read_stat(struct walk_view *view, unsigned mask)
{
    struct walk_worker *w = view->w;
    int code;
    if (w->sampled++ % READ_STAT_SAMPLE == 0) {
        uint64_t start = poise_clock_ticks();
        code = walk_view_stat(view, mask);
        w->profile.stat += (poise_clock_ticks() - start) * READ_STAT_SAMPLE;
    } else {
        code = walk_view_stat(view, mask);
    }
    if (code < 0) {
        code = walk_report(w, code, "access", view->entry.dir, view->entry.name,
                           NULL);
        return code != 0 ? code : 1;
    }
    view->entry.type = walk_type_of(view->stx->stx_mode);
    return 0;
}

/* Links were followed on the way to this directory: whether it is one of those
 * above it, which is reported. */
static bool read_followed_loop(struct walk_view *view)
{
    const struct statx *stx = view->stx;
    if (!walk_is_loop(view->w, view->entry.dir,
                      makedev(stx->stx_dev_major, stx->stx_dev_minor),
                      stx->stx_ino)) {
        return false;
    }
    walk_report(view->w, -ELOOP, "enter", view->entry.dir, view->entry.name,
                "it is a directory above it again (file system loop)");
    return true;
}

int walk_prepare(struct walk_view *view, unsigned char d_type)
{
    const struct poise_walk_options *options = &view->w->walk->options;
    unsigned mask = options->statx_mask;
    bool follow = options->follow == POISE_WALK_FOLLOW_ALL;
    if (follow &&
        (d_type == DT_LNK || d_type == DT_DIR || d_type == DT_UNKNOWN)) {
        mask |= STATX_INO; /* what loops are known by */
    }
    if (mask == 0 && d_type != DT_UNKNOWN) {
        return 0;
    }
    int code = read_stat(view, mask | STATX_TYPE);
    if (code != 0 || !follow) {
        return code;
    }
    view->linked = view->entry.dir->linked || d_type != DT_DIR;
    return view->entry.type == DT_DIR && view->linked &&
           read_followed_loop(view);
}

/* The paper's central scheme: every entry is an item of work. */
static int read_add_entry(struct walk_reader *r)
{
    const struct poise_walk_entry *entry = &r->view.entry;
    struct walk_worker *w = r->w;
    struct walk_task task = {.dir = r->dir,
                             .from = entry->ino,
                             .kind = WALK_ENTRY,
                             .root = entry->type};
    poise_buf_reset(&w->packed);
    poise_buf_append(&w->packed, &task, sizeof task);
    int code = poise_buf_append(&w->packed, entry->name, entry->name_len + 1);
    if (code < 0) {
        return code;
    }
    read_publish(r);
    code = poise_task_add(w->worker, w->packed.data, w->packed.len, 0);
    if (code == 0) {
        walk_dir_ref(r->dir);
        if (w->walk->options.post) {
            __atomic_fetch_add(&r->dir->pending, 1, __ATOMIC_RELAXED);
        }
    }
    return code;
}

int walk_enter_any(struct walk_view *view, struct poise_walk_dir **child)
{
    bool directory = view->entry.type == DT_DIR;
    return directory ? read_enter(view, child) : read_enter_chunks(view, child);
}

/* One entry: 0, or what ends the walk. */
static int read_entry(struct walk_reader *r, const struct dirent64 *d)
{
    struct walk_worker *w = r->w;
    struct walk_view *view = &r->view;
    view->entry.name = d->d_name;
    view->entry.name_len = strlen(d->d_name);
    view->entry.type = d->d_type;
    view->entry.ino = d->d_ino;
    view->tag = 0;
    view->have = 0;
    if (w->walk->single_entries) {
        return read_add_entry(r);
    }
    int code = walk_prepare(view, d->d_type);
    if (code != 0) {
        return code > 0 && !w->verdict ? 0 : w->verdict;
    }
    int answer = walk_visit(view);
    if (answer != POISE_WALK_ON) {
        view->chunked = false;
        return answer == POISE_WALK_SKIP ? 0 : answer;
    }
    if (view->entry.type != DT_DIR && !view->chunked) {
        return w->verdict;
    }
    struct poise_walk_dir *child;
    code = walk_enter_any(view, &child);
    if (child) {
        w->children[w->child_count++] = child;
    }
    return code;
}

/* The first entry of a range that was split at any hash: its own position is
 * not known. If the next range begins with it, it belongs there. */
static bool read_is_ours(struct walk_reader *r, const struct dirent64 *d)
{
    _Alignas(8) char memory[2 * WALK_RECORD_MOST + 80];
    if ((uint64_t)d->d_off <= r->to ||
        lseek(r->fd, (off_t)r->to, SEEK_SET) < 0 ||
        poise_file_getdents(r->fd, memory, sizeof memory) <= 0) {
        return true;
    }
    const struct dirent64 *next = (const void *)memory;
    return next->d_ino != d->d_ino || strcmp(next->d_name, d->d_name) != 0;
}

static bool read_is_dots(const char *name)
{
    return name[0] == '.' &&
           (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/* Visit what is in the buffer: 0 at its end, 1 to return early, or what ends
 * the walk. */
static int read_entries(struct walk_reader *r)
{
    int code = 0;
    while (r->pos < r->len && code == 0 && !read_is_end(r, r->at)) {
        const struct dirent64 *d = read_record(r, r->pos);
        if (r->first && r->ordered && r->to != WALK_END &&
            !read_is_ours(r, d)) {
            r->at = r->to;
            break;
        }
        r->first = false;
        r->pos += d->d_reclen;
        if (!read_is_dots(d->d_name)) {
            r->names++;
            code = read_entry(r, d);
        }
        r->at = (uint64_t)d->d_off;
        r->fresh++;
        if (--r->countdown == 0 && code == 0) {
            code = read_pause(r);
        }
    }
    return code;
}

/* Get more entries into the buffer: 1, or 0 at the end of the range. */
static int read_fill(struct walk_reader *r)
{
    struct walk_worker *w = r->w;
    if (read_is_end(r, r->at)) {
        return 0;
    }
    if (r->len == 0 || read_buffer_full(r)) {
        if (w->child_count > 0) {
            return 0; /* the children first: see read_add_children */
        }
        if (r->len > 0) {
            int code = read_commit(r, poise_clock_ticks());
            if (code < 0) {
                return code;
            }
        }
        r->pos = r->len = 0;
        r->base = r->at;
    }
    uint64_t start = poise_clock_ticks();
    ssize_t n = poise_file_getdents(r->fd, w->buffer + r->len,
                                    WALK_BUFFER_BYTES - r->len);
    w->profile.readdir += poise_clock_ticks() - start;
    if (n == -ENOENT) {
        n = 0; /* removed while it was open: it has no more entries */
    }
    if (n < 0) {
        int code = walk_report(w, (int)n, "read directory", r->dir, NULL, NULL);
        return code;
    }
    r->len += (size_t)n;
    return n > 0;
}

/* 0 at the end of the range, 1 to return early, or what ends the walk. */
static int read_range(struct walk_reader *r)
{
    uint64_t opening = poise_clock_ticks();
    int code = read_open(r);
    r->w->profile.readdir += poise_clock_ticks() - opening;
    if (code < 0) {
        return walk_report(r->w, code, "open directory", r->dir, NULL, NULL);
    }
    if (code > 0) {
        return r->w->verdict;
    }
    r->view.fd = r->fd;
    while ((code = read_fill(r)) > 0) {
        uint64_t start = poise_clock_ticks();
        code = read_entries(r);
        r->w->profile.visit += poise_clock_ticks() - start;
        if (code != 0) {
            break;
        }
    }
    code = code == 0 ? read_add_children(r, r->at) : code;
    return code == 0 ? read_report_piece(r) : code;
}

int walk_read(struct walk_worker *w, const struct walk_task *task)
{
    struct poise_walk_dir *dir = task->dir;
    struct walk_reader r = {
        .w = w,
        .dir = dir,
        .fd = -1,
        .first = true,
        .at = task->from,
        .to = task->to,
        .whole = task->from == 0 && task->to == WALK_END,
        .countdown = WALK_CHECK_ENTRIES,
        .looked_at = poise_clock_ticks(),
        .view = {.entry = {.dir = dir,
                           .root = dir->root,
                           .depth = dir->depth + 1,
                           .worker = w->worker},
                 .w = w,
                 .fd = -1,
                 .prefixed = true,
                 .stx = &w->stx},
    };
    w->prefix_of = NULL;
    w->committed_at = r.looked_at;
    __atomic_store_n(&dir->begun, true, __ATOMIC_RELEASE);
    int code = read_range(&r);
    for (; w->child_count > 0; w->child_count--) {
        walk_dir_unref(&w->walk->fds, w->children[w->child_count - 1]);
    }
    read_close(&r);
    if (code == 0 && w->walk->options.post) {
        code = walk_leave_done(w, dir);
    }
    w->done = dir;
    return code == 1 ? 0 : code;
}
