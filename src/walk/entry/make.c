/*
 * Making one entry whole: it is made beside its place under a temporary name,
 * gets its attributes, and then its own name by a rename. At every moment the
 * name leads to what was there before or to all of the new entry: where a
 * directory is in the way both change names at once, and what then has the
 * temporary one is removed. Only file systems that cannot exchange names
 * (renameat2) have a moment in between in which the name leads nowhere; what
 * fails there is undone.
 *
 * A crash leaves the entry that was there, and perhaps a temporary one
 * (POISE_WALK_TEMPORARY), which whoever comes next removes: a file is locked
 * from before anybody could take it for left over until it has its name
 * (make_begin and remove_leftover each look again once they have the lock).
 * Nothing is synced here.
 */
#include "internal.h"

#include <poise/remove.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum {
    HOLE_BYTES = 4096, /* zeros of this length and alignment become a hole */
    TRIES = 100,       /* names, before something is wrong */
    LEFT_S = 86400,    /* what cannot be locked and is as old was left */
};

static int failed(const char *doing, const char *name)
{
    return poise_error_set(errno, doing, name, NULL);
}

void make_name(char out[40])
{
    snprintf(out, 40, POISE_WALK_TEMPORARY "%016llx",
             (unsigned long long)poise_rng_next(poise_rng_current()));
}

/* Every change of a name: what it fails with, for tests, or does. */
static int change_name(int dirfd, const char *from, const char *to,
                       unsigned flags)
{
    int code = poise_fault_check(POISE_FAULT_RENAME);

    if (code == 0 && renameat2(dirfd, from, dirfd, to, flags) != 0) {
        code = errno;
    }
    return -code;
}

static int not_empty(const char *name)
{
    return poise_error_set(EISDIR, "replace", name,
                           "a directory that is not empty is in its place");
}

/* Remove the directory that had the name before; if it is full and was not to
 * be replaced all is as it was. `back` gives both their names again. */
static int remove_replaced(int dirfd, const char *name, const char *old,
                           bool replace, unsigned back)
{
    int code;

    if (replace) {
        return poise_walk_remove(dirfd, old);
    }
    if (unlinkat(dirfd, old, AT_REMOVEDIR) == 0) {
        return 0;
    }
    code = errno == ENOTEMPTY || errno == EEXIST
               ? not_empty(name)
               : poise_error_set(errno, "replace", name, NULL);
    (void)change_name(dirfd, old, name, back);
    return code;
}

/* Where names cannot be exchanged: the directory steps aside first. */
static int replace_aside(int dirfd, const char *temporary, const char *name,
                         bool replace)
{
    char aside[40];
    int code;

    if (!replace) {
        /* Empty, or nothing happens. */
        code = unlinkat(dirfd, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
        if (code == -ENOTEMPTY || code == -EEXIST) {
            return not_empty(name);
        }
        code = code < 0 ? code : change_name(dirfd, temporary, name, 0);
        return code < 0 ? poise_error_set(-code, "rename to", name, NULL) : 0;
    }
    make_name(aside);
    code = change_name(dirfd, name, aside, 0);
    if (code < 0) {
        return poise_error_set(-code, "replace", name, NULL);
    }
    code = change_name(dirfd, temporary, name, 0);
    if (code < 0) {
        (void)change_name(dirfd, aside, name, 0);
        return poise_error_set(-code, "rename to", name, NULL);
    }
    return remove_replaced(dirfd, name, aside, true, 0);
}

int make_in_place(int dirfd, const char *temporary, const char *name,
                  bool replace)
{
    int code = change_name(dirfd, temporary, name, 0);

    if (code == -EISDIR || code == -ENOTEMPTY || code == -EEXIST) {
        code = change_name(dirfd, temporary, name, RENAME_EXCHANGE);
        if (code == -EINVAL || code == -ENOSYS || code == -EOPNOTSUPP) {
            return replace_aside(dirfd, temporary, name, replace);
        }
        if (code == 0) {
            return remove_replaced(dirfd, name, temporary, replace,
                                   RENAME_EXCHANGE);
        }
    }
    return code < 0 ? poise_error_set(-code, "rename to", name, NULL) : 0;
}

int make_placed(int dirfd, const char *temporary, const char *name,
                const struct entry_taken *taken, bool *replaced)
{
    struct stat there;
    int code = 0, whole = 0;

    if (fstatat(dirfd, name, &there, AT_SYMLINK_NOFOLLOW) == 0) {
        whole = taken && taken->ask
                    ? taken->ask(dirfd, name, &there, taken->arg)
                    : 0;
        if (whole < 0) {
            return whole;
        }
        if (whole == 0 && S_ISDIR(there.st_mode)) {
            return poise_error_set(EISDIR, "replace", name,
                                   "a directory is in its place");
        }
        *replaced = true;
        return make_in_place(dirfd, temporary, name, whole == 1);
    }
    /* What appears in this moment stays. */
    code = change_name(dirfd, temporary, name, RENAME_NOREPLACE);
    if (code == -EINVAL || code == -ENOSYS || code == -EOPNOTSUPP) {
        code = change_name(dirfd, temporary, name, 0);
    }
    return code < 0 ? poise_error_set(-code, "rename to", name, NULL) : 0;
}

/* ---- what others left --------------------------------------------------- */

bool poise_walk_is_temporary(const char *name)
{
    size_t prefix = strlen(POISE_WALK_TEMPORARY);

    return strncmp(name, POISE_WALK_TEMPORARY, prefix) == 0 &&
           strlen(name) == prefix + 16 &&
           strspn(name + prefix, "0123456789abcdef") == 16;
}

static bool is_old(const struct stat *st)
{
    return time(NULL) - st->st_ctim.tv_sec > LEFT_S;
}

/* Whether nobody makes this file any more. */
static bool is_left(int fd, const struct stat *st)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return true;
    }
    return errno != EWOULDBLOCK && errno != EINTR && is_old(st);
}

int poise_walk_remove_leftover(int dirfd, const char *name)
{
    bool left = false;
    struct stat st;
    int fd;

    if (!poise_walk_is_temporary(name) ||
        fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0;
    }
    if (S_ISDIR(st.st_mode)) {
        return is_old(&st) && poise_walk_remove(dirfd, name) == 0;
    }
    if (!S_ISREG(st.st_mode)) {
        left = is_old(&st);
        return left && unlinkat(dirfd, name, 0) == 0;
    }
    fd = openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    left = is_left(fd, &st) && unlinkat(dirfd, name, 0) == 0;
    close(fd);
    return left;
}

/* ---- regular files ------------------------------------------------------ */

/* Whether it is this process' own now: nobody took it for left over in the
 * moment before. */
static bool is_own(int fd)
{
    struct stat st;

    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return false;
    }
    return fstat(fd, &st) != 0 || st.st_nlink > 0;
}

/* Make one of a name that there is not. */
static int open_temporary(int dirfd, const char *name, mode_t mode)
{
    int fd = poise_file_open(dirfd, name,
                             O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode);

    if (fd >= 0 && !is_own(fd)) {
        close(fd);
        fd = -EEXIST;
    }
    return fd;
}

static int begin(struct poise_walk_making *making, int dirfd, const char *name,
                 mode_t mode, bool sparse)
{
    int tries = 0, fd;

    do {
        make_name(making->temporary);
        fd = open_temporary(dirfd, making->temporary, mode);
    } while (fd == -EEXIST && ++tries < TRIES);
    if (fd < 0) {
        making->temporary[0] = 0;
        return poise_error_set(-fd, "make", name, NULL);
    }
    making->fd = fd;
    making->dirfd = dirfd;
    making->name = name;
    making->at = 0;
    making->sparse = sparse;
    return 0;
}

int poise_walk_make_begin(struct poise_walk_making *making, int dirfd,
                          const char *name, bool sparse)
{
    return begin(making, dirfd, name, 0600, sparse);
}

int poise_walk_make_begin_plain(struct poise_walk_making *making, int dirfd,
                                const char *name, mode_t mode, bool sparse)
{
    struct stat st;
    bool is_there = fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    S_ISREG(st.st_mode);
    /* Never wider than the file that it replaces, or than it will be. */
    int code = begin(making, dirfd, name,
                     is_there ? 0600 : (mode & 0777) | 0600, sparse);

    if (code == 0 && is_there && fchmod(making->fd, st.st_mode & 0777) != 0) {
        code = failed("set the mode of", name);
        poise_walk_make_abort(making);
    }
    return code;
}

static bool is_zero(const unsigned char *data, size_t len)
{
    return len == 0 || (data[0] == 0 && memcmp(data, data + 1, len - 1) == 0);
}

/* The bytes up to the next place where a hole could begin or end. */
static size_t to_boundary(uint64_t at, size_t left)
{
    size_t len = HOLE_BYTES - (size_t)(at % HOLE_BYTES);

    return len < left ? len : left;
}

static int put(struct poise_walk_making *making, const void *data, size_t len)
{
    int code =
        poise_file_pwrite(making->fd, data, len, making->at, making->name);

    making->at += code < 0 ? 0 : len;
    return code;
}

int poise_walk_make_data(struct poise_walk_making *making, const void *data,
                         size_t len)
{
    const unsigned char *from = data;
    size_t done = 0;
    int code = 0;

    if (!making->sparse) {
        return put(making, data, len);
    }
    while (done < len && code == 0) {
        size_t full = 0, zero = 0;

        while (done + full < len) {
            size_t next = to_boundary(making->at + full, len - done - full);
            if (is_zero(from + done + full, next)) {
                zero = next;
                break;
            }
            full += next;
        }
        code = full ? put(making, from + done, full) : 0;
        making->at += code < 0 ? 0 : zero;
        done += full + zero;
    }
    return code;
}

int poise_walk_make_hole(struct poise_walk_making *making, uint64_t len)
{
    if (len > INT64_MAX - making->at) {
        return poise_error_set(EFBIG, "write", making->name, NULL);
    }
    making->at += len;
    return 0;
}

void poise_walk_make_abort(struct poise_walk_making *making)
{
    if (making->temporary[0]) {
        close(making->fd);
        unlinkat(making->dirfd, making->temporary, 0);
        making->temporary[0] = 0;
    }
}

int poise_walk_make_commit(struct poise_walk_making *making,
                           const struct poise_walk_meta *meta, unsigned keep,
                           bool replace)
{
    /* What is closed is locked still. */
    int lock = fcntl(making->fd, F_DUPFD_CLOEXEC, 0), code = 0;

    /* What ends in a hole is longer than what was written. */
    if (ftruncate(making->fd, (off_t)making->at) != 0) {
        code = failed("set the length of", making->name);
    }
    if (code == 0) {
        code = make_attributes(making->dirfd, making->temporary, making->fd,
                               meta, keep, NULL);
    }
    if (code >= 0) {
        code = poise_file_close(making->fd, making->name);
        making->fd = -1;
    }
    if (code >= 0) {
        code = make_in_place(making->dirfd, making->temporary, making->name,
                             replace);
    }
    if (making->fd >= 0) {
        close(making->fd);
    }
    if (code < 0) {
        unlinkat(making->dirfd, making->temporary, 0);
    }
    if (lock >= 0) {
        close(lock);
    }
    making->temporary[0] = 0;
    return code < 0 ? code : 0;
}

/* ---- everything else ---------------------------------------------------- */

static int create_special(int dirfd, const char *name,
                          const struct poise_walk_meta *meta, mode_t mode)
{
    int code = poise_fault_check(POISE_FAULT_OPEN);

    if (code) {
        return -code;
    }
    if (S_ISLNK(meta->mode)) {
        if (!meta->target) {
            return -EINVAL;
        }
        return symlinkat(meta->target, dirfd, name) == 0 ? 0 : -errno;
    }
    if (S_ISREG(meta->mode) || S_ISDIR(meta->mode)) {
        return -EINVAL;
    }
    return mknodat(dirfd, name, (meta->mode & S_IFMT) | mode,
                   makedev(meta->major, meta->minor)) == 0
               ? 0
               : -errno;
}

/* Under a temporary name, with its attributes. */
static int make_special(int dirfd, const char *name, char temporary[40],
                        const struct poise_walk_meta *meta, unsigned keep,
                        unsigned *refused)
{
    int tries = 0, code;

    do {
        make_name(temporary);
        code = create_special(dirfd, temporary, meta,
                              keep & POISE_WALK_KEEP_MODE ? 0600
                                                          : meta->mode & 0777);
    } while (code == -EEXIST && ++tries < TRIES);
    if (code < 0) {
        return poise_error_set(-code, "make", name, NULL);
    }
    code = make_attributes(dirfd, temporary, -1, meta, keep, refused);
    if (code < 0) {
        unlinkat(dirfd, temporary, 0);
    }
    return code;
}

int poise_walk_make_special(int dirfd, const char *name,
                            const struct poise_walk_meta *meta, unsigned keep,
                            bool replace)
{
    char temporary[40];
    int code = make_special(dirfd, name, temporary, meta, keep, NULL);

    if (code < 0) {
        return code;
    }
    code = make_in_place(dirfd, temporary, name, replace);
    if (code < 0) {
        unlinkat(dirfd, temporary, 0);
    }
    return code < 0 ? code : 0;
}

int entry_make_special(int dirfd, const char *name,
                       const struct poise_walk_meta *meta, unsigned keep,
                       const struct entry_taken *taken, unsigned *refused)
{
    bool replaced = false;
    char temporary[40];
    int code = make_special(dirfd, name, temporary, meta, keep, refused);

    if (code < 0) {
        return code;
    }
    code = make_placed(dirfd, temporary, name, taken, &replaced);
    if (code < 0) {
        unlinkat(dirfd, temporary, 0);
    }
    return code;
}

int entry_make_attributes(int dirfd, const char *name,
                          const struct poise_walk_meta *meta, unsigned keep,
                          unsigned *refused)
{
    return make_attributes(dirfd, name, -1, meta, keep, refused);
}

static bool is_same(int from_dirfd, const char *from, int dirfd,
                    const char *name)
{
    struct stat a, b;

    return fstatat(from_dirfd, from, &a, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(dirfd, name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* It is still there where nothing could be made of it, and where its inode had
 * the name already, which is_same does not see if a file system has an inode
 * for each spelling of a name. */
static void drop_link(int dirfd, const char *temporary)
{
    (void)!unlinkat(dirfd, temporary, 0);
}

int poise_walk_make_link(int from_dirfd, const char *from, int dirfd,
                         const char *name, bool replace)
{
    char temporary[40];
    int code;

    if (linkat(from_dirfd, from, dirfd, name, 0) == 0) {
        return 1;
    }
    if (errno != EEXIST) {
        return failed("link", name);
    }
    /* To rename one link over another does nothing and keeps both. */
    if (is_same(from_dirfd, from, dirfd, name)) {
        return 0;
    }
    make_name(temporary);
    if (linkat(from_dirfd, from, dirfd, temporary, 0) != 0) {
        return failed("link", name);
    }
    code = make_in_place(dirfd, temporary, name, replace);
    drop_link(dirfd, temporary);
    return code < 0 ? code : 1;
}

int entry_make_link(int from_dirfd, const char *from, int dirfd,
                    const char *name, const struct entry_taken *taken)
{
    bool replaced = false;
    char temporary[40];
    int code;

    if (linkat(from_dirfd, from, dirfd, name, 0) == 0) {
        return 1;
    }
    if (errno != EEXIST) {
        return errno == ENOENT ? -ENOENT : failed("link", name);
    }
    if (is_same(from_dirfd, from, dirfd, name)) {
        return 0;
    }
    make_name(temporary);
    if (linkat(from_dirfd, from, dirfd, temporary, 0) != 0) {
        return failed("link", name);
    }
    code = make_placed(dirfd, temporary, name, taken, &replaced);
    drop_link(dirfd, temporary);
    return code < 0 ? code : 1;
}

int poise_walk_make_directory(int dirfd, const char *name, mode_t mode)
{
    int code = poise_fault_check(POISE_FAULT_OPEN);
    struct stat st;

    for (int tries = 0; code == 0 && tries < 2; tries++) {
        if (mkdirat(dirfd, name, mode) == 0) {
            return 1;
        }
        code = errno == EEXIST ? 0 : errno;
        if (code == 0 && fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
            code = errno;
        }
        if (code == 0 && S_ISDIR(st.st_mode)) {
            if ((st.st_mode & 0700) != 0700 && geteuid() == st.st_uid) {
                /* If this fails, so will what needs it. */
                (void)!fchmodat(dirfd, name, (st.st_mode & 07777) | 0700,
                                AT_SYMLINK_NOFOLLOW);
            }
            return 0;
        }
        if (code == 0 && unlinkat(dirfd, name, 0) != 0) {
            code = errno;
        }
    }
    return poise_error_set(code ? code : EEXIST, "make directory", name, NULL);
}
