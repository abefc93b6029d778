/*
 * The end of extracting: hard links once all files are there on all ranks, then
 * attributes of directories, since all is in them. Their order does not matter,
 * but that a directory which bars its owner comes after what is below it.
 */
#include "extract.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- one of them -----------------------------------------------------------
 */

static int put_link(struct extract *x, struct extract_worker *w,
                    const struct tar_member *m,
                    const struct extract_deferred *one)
{
    (void)one;
    struct tar_place from;
    const char *last, *target;
    tar_place_init(&from, x->root);
    int code = tar_place_name(m->name, &w->name);
    code = code < 0 ? code : tar_place_name(m->link, &w->link);
    if (code == 0 && (w->name.len == 0 || w->link.len == 0)) {
        code = poise_error_set(EINVAL, "link", m->name,
                               "it would be the destination itself");
    }
    int fd =
        code < 0 ? code : tar_place_open(&from, w->link.data, false, &target);
    int dirfd =
        fd < 0 ? fd : tar_place_open(&w->place, w->name.data, true, &last);
    struct entry_taken taken = extract_taken(w);
    struct stat st;
    code = dirfd < 0 ? dirfd : entry_make_link(fd, target, dirfd, last, &taken);
    if (code == -ENOENT) {
        code = poise_error_set(ENOENT, "link", m->name,
                               "it is a hard link to '%s', which is not "
                               "there: extract that, too",
                               m->link);
    }
    if (code == 0 && fstatat(dirfd, last, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        code = tar_place_clash(dirfd, last, st.st_ino, m->name);
    }
    tar_place_free(&from);
    return code < 0 ? code : 0;
}

/* A temporary entry that is no file and older than this run: nobody makes it
 * any more. */
static bool is_left(const struct extract *x, int dirfd, const char *name)
{
    struct stat st;
    return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) &&
           (st.st_ctim.tv_sec < x->begun.tv_sec ||
            (st.st_ctim.tv_sec == x->begun.tv_sec &&
             st.st_ctim.tv_nsec < x->begun.tv_nsec));
}

/* What a killed run left in a directory that was there before this one. */
static void sweep(const struct extract *x, int dirfd, const char *name)
{
    int fd =
        openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    if (!dir) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    while ((entry = readdir(dir))) {
        if (poise_walk_is_temporary(entry->d_name) &&
            poise_walk_remove_leftover(fd, entry->d_name) == 0 &&
            is_left(x, fd, entry->d_name)) {
            (void)unlinkat(fd, entry->d_name, 0);
        }
    }
    closedir(dir);
}

static int put_attributes(struct extract *x, struct extract_worker *w,
                          const struct tar_member *m,
                          const struct extract_deferred *one)
{
    const char *last;
    int code = tar_place_name(m->name, &w->name);
    if (code < 0) {
        return code;
    }
    if (w->name.len == 0) {
        code = poise_walk_make_attributes(x->root, ".", &m->meta, x->keep);
        return code < 0 ? code : 0;
    }
    int dirfd = tar_place_open(&w->place, w->name.data, false, &last);
    if (dirfd < 0) {
        return dirfd;
    }
    struct stat st;
    if (fstatat(dirfd, last, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(st.st_mode)) {
        return poise_error_set(ENOTDIR, "set attributes of", m->name, NULL);
    }
    if (one->was_there) {
        sweep(x, dirfd, last);
    }
    code = poise_walk_make_attributes(dirfd, last, &m->meta, x->keep);
    if (code >= 0 && x->options->sync == POISE_SYNC_FILE) {
        int fd = poise_file_open(dirfd, last, O_PATH | O_NOFOLLOW, 0);
        code = fd < 0 ? fd
                      : poise_walk_sync(x->options->sync,
                                        POISE_SYNC_AT_DIRECTORY, fd, m->name);
        if (fd >= 0) {
            close(fd);
        }
    }
    return code < 0 ? code : 0;
}

/* At once, or later if its owner could not go through it then. */
static int put_open(struct extract *x, struct extract_worker *w,
                    const struct tar_member *m,
                    const struct extract_deferred *one)
{
    if (one->depth > 0 && (m->meta.mode & S_IRWXU) != S_IRWXU) {
        return poise_buf_append(&x->closed, one, sizeof *one);
    }
    return put_attributes(x, w, m, one);
}

/* ---- all that waited ---------------------------------------------------- */

int extract_agree(struct extract *x, int code)
{
    return x->world ? poise_world_agree(x->world, code) : code;
}

typedef int putting(struct extract *x, struct extract_worker *w,
                    const struct tar_member *m,
                    const struct extract_deferred *one);

static int put_one(struct extract *x, const struct extract_deferred *one,
                   putting *put)
{
    struct extract_worker *w = &x->workers[0];
    struct tar_source *source;
    struct tar_member m;
    int code = extract_source(x, w, one->part, &source);
    w->window.wanted_to = 0;
    code = code < 0 ? code : tar_next(source, one->offset, &m, &w->memory);
    code = code > 0 ? put(x, w, &m, one) : code;
    return code < 0 ? extract_failed(x, NULL, code) : 0;
}

static int put_each(struct extract *x, const struct tar_spool *spool,
                    putting *put)
{
    struct poise_buf block = {0};
    uint64_t at = 0;
    int code = 1;
    while (code > 0) {
        code = tar_spool_next(spool, &at, &block);
        for (size_t i = 0; i < block.len && code > 0;
             i += sizeof(struct extract_deferred)) {
            struct extract_deferred one;
            memcpy(&one, block.data + i, sizeof one);
            int done = put_one(x, &one, put);
            code = done < 0 ? done : code;
        }
    }
    poise_buf_free(&block);
    return code;
}

/* Directories that no member is for get what the umask leaves. */
static void open_implied(struct extract_worker *w)
{
    const struct poise_buf *implied = &w->place.implied;
    mode_t mask = umask(0);
    umask(mask);
    for (size_t at = 0; at < implied->len;) {
        const char *last, *name = implied->data + at;
        size_t len = strlen(name);
        if (tar_place_name(name, &w->name) == 0) {
            int dirfd = tar_place_open(&w->place, w->name.data, false, &last);
            if (dirfd >= 0) {
                (void)!fchmodat(dirfd, last, 0777 & ~mask, AT_SYMLINK_NOFOLLOW);
            }
        }
        at += len + 1;
    }
}

static int by_depth(const void *va, const void *vb)
{
    const struct extract_deferred *a = va, *b = vb;
    return (a->depth < b->depth) - (a->depth > b->depth);
}

/* Directories that bar their owner, the deepest first: on all ranks those of
 * one depth before the next. Collective. */
static int put_closed(struct extract *x)
{
    struct extract_deferred *items = (void *)x->closed.data;
    size_t count = x->closed.len / sizeof *items, next = 0;
    uint64_t deepest = 0;
    int code = x->closed.error;
    if (count > 0) {
        qsort(items, count, sizeof *items, by_depth);
        deepest = items[0].depth + 1;
    }
    code = extract_agree(x, code);
    if (code == 0 && x->world) {
        code = poise_world_reduce(x->world, POISE_MAX, &deepest, 1);
    }
    for (; deepest > 0 && code == 0; deepest--) {
        while (next < count && items[next].depth + 1 == deepest && code == 0) {
            code = put_one(x, &items[next++], put_attributes);
        }
        code = extract_agree(x, code);
    }
    return code;
}

/* What can be synced at the end is. */
static int sync_end(struct extract *x)
{
    const char *path = x->options->destination;
    enum poise_sync policy = x->options->sync;
    int code = poise_walk_sync(policy, POISE_SYNC_AT_DIRECTORY, x->root, path);
    if (code < 0 || policy != POISE_SYNC_TREE) {
        return code;
    }
    int fd = poise_file_open(x->root, ".", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) {
        return fd;
    }
    code = poise_walk_sync(policy, POISE_SYNC_AT_END, fd, path);
    close(fd);
    return code;
}

static int flush(struct extract *x)
{
    int code = 0;
    for (unsigned i = 0; i < x->worker_count && code == 0; i++) {
        code = tar_spool_put(&x->links, &x->workers[i].links);
        code = code < 0 ? code : tar_spool_put(&x->dirs, &x->workers[i].dirs);
    }
    return code;
}

int extract_finish(struct extract *x)
{
    int code = extract_agree(x, flush(x));
    code = code < 0 ? code : put_each(x, &x->links, put_link);
    code = extract_agree(x, code);
    if (code < 0) {
        return code;
    }
    if (x->was_there && x->rank == 0) {
        sweep(x, x->root, ".");
    }
    for (unsigned i = 0; i < x->worker_count; i++) {
        open_implied(&x->workers[i]);
    }
    code = extract_agree(x, put_each(x, &x->dirs, put_open));
    code = code < 0 ? code : put_closed(x);
    code = code < 0 ? code : sync_end(x);
    return extract_agree(x, code);
}
