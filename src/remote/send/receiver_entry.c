/* The receiver, entry by entry: what is there already, what it can make at
 * once, what it wants. */
#include "receiver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { WANTS_MOST = 1 << 16 };

/* ---- directories -------------------------------------------------------- */

static int keep_meta(struct receiver *receiver, struct receiver_dir *dir,
                     const struct poise_walk_meta *meta)
{
    int code = poise_buf_append(&dir->memory, meta->xattrs, meta->xattrs_len);

    if (code == 0) {
        code = receiver_keep(receiver, meta->xattrs_len);
    }
    dir->meta = *meta;
    dir->meta.xattrs = dir->memory.data;
    dir->has_meta = true;
    return code;
}

static bool is_directory(int fd, const char *name)
{
    struct stat st;

    return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
}

/* Make it, if it has to be. Without it nothing below it can be. */
static int make_directory(struct receiver *receiver, struct receiver_dir *dir,
                          struct receiver_dir *made)
{
    int fd, code;

    if (dir->failed || !*made->name) {
        made->failed = dir->failed;
        made->is_absent = dir->is_absent;
        return 0;
    }
    if (receiver->transfer->options.dry) {
        fd = dir->is_absent
                 ? -1
                 : receiver_dir_open(receiver, dir, &receiver->listed);
        made->is_absent = fd < 0 || !is_directory(fd, made->name);
        return made->is_absent
                   ? receiver_report_action(receiver, dir, made->name,
                                            POISE_REMOTE_MADE)
                   : 0;
    }
    code = fd = receiver_dir_open(receiver, dir, &receiver->listed);
    if (fd >= 0) {
        code = poise_walk_make_directory(fd, made->name,
                                         receiver->transfer->options.keep &
                                                 POISE_WALK_KEEP_MODE
                                             ? 0700
                                             : (made->meta.mode & 0777) | 0700);
    }
    if (code < 0) {
        made->failed = true;
        return receiver_report_problem(receiver, dir, made->name);
    }
    made->is_new = code > 0;
    return code ? receiver_report_action(receiver, dir, made->name,
                                         POISE_REMOTE_MADE)
                : 0;
}

static int take_directory(struct receiver *receiver, struct receiver_dir *dir,
                          const char *name, const struct poise_walk_meta *meta)
{
    struct receiver_dir *made = receiver_dir_make(dir, name);
    int code;

    if (!made) {
        return -ENOMEM;
    }
    if (poise_buf_append(&receiver->below, &made, sizeof made) < 0) {
        receiver_dir_drop(receiver, made);
        return -ENOMEM;
    }
    code = keep_meta(receiver, made, meta);
    return code < 0 ? code : make_directory(receiver, dir, made);
}

/* ---- files -------------------------------------------------------------- */

static int want(struct receiver *receiver, struct receiver_dir *dir,
                const char *name, const struct poise_walk_meta *meta)
{
    size_t len = strlen(name) + 1;
    struct receiver_want *made;
    int code;

    if (receiver->transfer->options.dry) {
        return receiver_report_action(receiver, dir, name, POISE_REMOTE_SENT);
    }
    if (++receiver->wants > WANTS_MOST) {
        return remote_bad("it does not wait for answers");
    }
    made = poise_alloc(1, sizeof *made + len);
    if (!made) {
        return -ENOMEM;
    }
    memcpy(made->name, name, len);
    made->meta = *meta;
    if (meta->xattrs_len > 0) {
        made->xattrs = poise_alloc(meta->xattrs_len, 1);
        if (!made->xattrs) {
            free(made);
            return -ENOMEM;
        }
        memcpy(made->xattrs, meta->xattrs, meta->xattrs_len);
    }
    made->meta.xattrs = made->xattrs;
    made->dir = dir;
    dir->is_wanted = true;
    dir->refs++;
    *(receiver->last ? &receiver->last->next : &receiver->first) = made;
    receiver->last = made;
    receiver->wanted++;
    code = receiver_keep(receiver, meta->xattrs_len);
    return code < 0 ? code : 1;
}

static int add_link(struct receiver *receiver, struct receiver_dir *dir,
                    const char *name, const struct remote_entry *entry)
{
    size_t len = strlen(name) + 1;
    size_t bytes = sizeof(struct receiver_link) + len + entry->same_len + 1;
    struct receiver_link *link;
    int code = receiver_check_link(receiver, entry);

    if (code == 0) {
        code = receiver_keep(receiver, bytes);
    }
    if (code < 0) {
        return code;
    }
    link = poise_alloc(1, bytes);
    if (!link) {
        return -ENOMEM;
    }
    memcpy(link->name, name, len);
    memcpy(link->name + len, entry->same, entry->same_len);
    link->to = link->name + len;
    link->dir = dir;
    link->after = receiver->wanted;
    link->kept_bytes = bytes;
    *(receiver->last_link ? &receiver->last_link->next : &receiver->links) =
        link;
    receiver->last_link = link;
    dir->refs++;
    return 0;
}

/* ---- what is there already ---------------------------------------------- */

static bool is_same_time(const struct stat *st,
                         const struct poise_walk_meta *meta)
{
    return st->st_mtim.tv_sec == meta->mtime.tv_sec &&
           st->st_mtim.tv_nsec == meta->mtime.tv_nsec;
}

static bool is_same_link(int fd, const char *name, const char *target)
{
    char has[REMOTE_NAME_MOST + 1];
    ssize_t len = readlinkat(fd, name, has, sizeof has);

    return len > 0 && (size_t)len == strlen(target) &&
           memcmp(has, target, (size_t)len) == 0;
}

/* The same for a file of the right size: as rsync has it, its content, if that
 * is compared, then nothing, then its time. */
static int is_same_file(struct receiver *receiver, int fd, const char *name,
                        const struct stat *st, const struct remote_entry *entry)
{
    const struct poise_remote_options *options = &receiver->transfer->options;
    unsigned char digest[REMOTE_DIGEST_BYTES];
    int code;

    if (!options->checksum) {
        return !options->ignore_times && is_same_time(st, &entry->meta);
    }
    if (!entry->digest) {
        return false;
    }
    code = remote_digest(receiver->transfer, fd, name, digest);
    if (code == -ENOMEM || code == -EINTR) {
        return code;
    }
    /* One that cannot be read is replaced. */
    return code == 0 && memcmp(digest, entry->digest, sizeof digest) == 0;
}

/* Whether what has the name is, but for its attributes, what is to be there. */
static int is_there(struct receiver *receiver, int fd, const char *name,
                    const struct remote_entry *entry,
                    const struct poise_walk_meta *meta)
{
    struct stat st;

    if (fd < 0 || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        (st.st_mode ^ meta->mode) & S_IFMT) {
        return false;
    }
    if (S_ISREG(meta->mode)) {
        return (uint64_t)st.st_size == meta->size
                   ? is_same_file(receiver, fd, name, &st, entry)
                   : false;
    }
    if (S_ISLNK(meta->mode)) {
        return is_same_link(fd, name, meta->target);
    }
    return !(S_ISCHR(meta->mode) || S_ISBLK(meta->mode)) ||
           st.st_rdev == makedev(meta->major, meta->minor);
}

/* 1: it is there, and has its attributes now. */
static int take_there(struct receiver *receiver, struct receiver_dir *dir,
                      int fd, const char *name,
                      const struct remote_entry *entry,
                      const struct poise_walk_meta *meta)
{
    const struct poise_remote_options *options = &receiver->transfer->options;
    int code = is_there(receiver, fd, name, entry, meta);

    if (code <= 0) {
        return code;
    }
    if (options->dry) {
        return 1;
    }
    code = poise_walk_make_attributes(fd, name, meta, options->keep);
    if (code < 0) {
        code = receiver_report_problem(receiver, dir, name);
    } else if (code > 0) {
        code =
            receiver_report_action(receiver, dir, name, POISE_REMOTE_CHANGED);
    }
    return code < 0 ? code : 1;
}

static int take_special(struct receiver *receiver, struct receiver_dir *dir,
                        int fd, const char *name,
                        const struct poise_walk_meta *meta)
{
    const struct poise_remote_options *options = &receiver->transfer->options;

    if (!options->dry && poise_walk_make_special(fd, name, meta, options->keep,
                                                 options->remove) < 0) {
        return receiver_report_problem(receiver, dir, name);
    }
    return receiver_report_action(receiver, dir, name, POISE_REMOTE_MADE);
}

/* All but directories. */
static int take_other(struct receiver *receiver, struct receiver_dir *dir,
                      const char *name, const struct remote_entry *entry,
                      const struct poise_walk_meta *meta)
{
    int fd = dir->is_absent
                 ? -1
                 : receiver_dir_open(receiver, dir, &receiver->listed);
    int code;

    if (fd < 0 && !dir->is_absent) {
        dir->failed = true;
        return receiver_is_fatal(fd)
                   ? fd
                   : receiver_report_problem(receiver, dir, "");
    }
    if (entry->same_len > 0) {
        return add_link(receiver, dir, name, entry);
    }
    code = take_there(receiver, dir, fd, name, entry, meta);
    if (code != 0) {
        return code < 0 ? code : 0;
    }
    return S_ISREG(meta->mode) ? want(receiver, dir, name, meta)
                               : take_special(receiver, dir, fd, name, meta);
}

static int remember(struct receiver *receiver, struct receiver_dir *dir,
                    const char *name)
{
    uint64_t hash = poise_hash_bytes(name, strlen(name), receiver->seed);

    return receiver->transfer->options.remove
               ? poise_buf_append(&dir->listed_names, &hash, sizeof hash)
               : 0;
}

int receiver_entry(struct receiver *receiver, struct receiver_dir *dir,
                   const struct remote_entry *entry)
{
    char name[REMOTE_NAME_MOST + 1], target[REMOTE_NAME_MOST + 1];
    struct poise_walk_meta meta = entry->meta;
    int code;

    code = receiver_check_entry(receiver, dir, entry);
    if (code < 0) {
        return code;
    }
    memcpy(name, entry->name, entry->name_len);
    name[entry->name_len] = 0;
    if (receiver->rename && dir == receiver->top) {
        snprintf(name, sizeof name, "%s", receiver->rename);
    }
    if (entry->target_len > 0) {
        memcpy(target, entry->target, entry->target_len);
        target[entry->target_len] = 0;
        meta.target = target;
    }
    receiver->transfer->stats.entries++;
    code = remember(receiver, dir, name);
    if (code == 0 && entry->is_first) {
        code = receiver_add_first(receiver, dir, name);
    }
    if (code < 0) {
        return code;
    }
    if (S_ISDIR(meta.mode)) {
        return take_directory(receiver, dir, name, &meta);
    }
    return dir->failed ? 0 : take_other(receiver, dir, name, entry, &meta);
}
