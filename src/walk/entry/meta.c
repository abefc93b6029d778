/*
 * Attributes of one entry: reading them, and giving them to another. Only what
 * differs is changed, so a second run over the same tree writes nothing, and
 * the return value says whether anything was changed.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { XATTR_LIST_MOST = 1 << 16, XATTR_VALUE_MOST = 1 << 16 };

static int failed(const char *doing, const char *name)
{
    return poise_error_set(errno, doing, name, NULL);
}

/* ---- extended attributes ------------------------------------------------ */

/* There are no *at() calls for them everywhere: a path through /proc. */
static int path_of(int dirfd, const char *name, struct poise_buf *out)
{
    if (dirfd != AT_FDCWD && name[0] != '/') {
        poise_buf_printf(out, "/proc/self/fd/%d/", dirfd);
    }
    poise_buf_puts(out, name);
    poise_buf_str(out);
    return out->error;
}

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Whether a name is one of those that go along. */
static bool is_kept(const char *name)
{
    if (begins(name, "user.") || begins(name, "system.posix_acl_")) {
        return true;
    }
    return geteuid() == 0 &&
           (strcmp(name, "security.capability") == 0 ||
            (begins(name, "trusted.") && !begins(name, "trusted.overlay.")));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Point at the kept ones of a list of names, sorted; their number. */
static size_t sort_names(const char *list, size_t len, const char **names)
{
    size_t count = 0;

    for (size_t at = 0; at < len; at += strlen(list + at) + 1) {
        if (is_kept(list + at)) {
            names[count++] = list + at;
        }
    }
    qsort(names, count, sizeof *names, by_name);
    return count;
}

static bool has_none(int code)
{
    return code == ENOTSUP || code == ENODATA || code == EPERM ||
           code == EACCES;
}

/* One name and its value. One that is gone meanwhile is left out. */
static int get_one(const char *path, const char *name, char *value,
                   struct poise_buf *out)
{
    ssize_t len = lgetxattr(path, name, value, XATTR_VALUE_MOST);

    if (len < 0) {
        return has_none(errno) ? 0 : failed("read attribute", name);
    }
    poise_buf_blob(out, name, strlen(name));
    return poise_buf_blob(out, value, (size_t)len);
}

static int get_listed(const char *path, const char *list, size_t len,
                      struct poise_buf *out)
{
    const char **names = poise_alloc(len, sizeof *names);
    char *value = poise_alloc(XATTR_VALUE_MOST, 1);
    int code = names && value ? 0 : -ENOMEM;
    size_t count = code == 0 ? sort_names(list, len, names) : 0;

    for (size_t i = 0; i < count && code == 0; i++) {
        code = get_one(path, names[i], value, out);
    }
    free(names);
    free(value);
    return code;
}

/* Append all that go along. */
static int get_xattrs(int dirfd, const char *name, struct poise_buf *out)
{
    struct poise_buf path = {0};
    char few[256], *list = few;
    int code = path_of(dirfd, name, &path);
    ssize_t len = code < 0 ? 0 : llistxattr(path.data, few, sizeof few);

    if (len < 0 && errno == ERANGE) {
        list = poise_alloc(XATTR_LIST_MOST, 1);
        code = list ? 0 : -ENOMEM;
        len = list ? llistxattr(path.data, list, XATTR_LIST_MOST) : 0;
    }
    if (len < 0) {
        code = has_none(errno) ? 0 : failed("list attributes of", name);
    }
    if (len > 0) {
        code = get_listed(path.data, list, (size_t)len, out);
    }
    if (list != few) {
        free(list);
    }
    poise_buf_free(&path);
    return code;
}

/* The name of the pair that `from` is at, as text in `name`; false at the
 * end. */
static bool next_pair(struct poise_reader *from, char name[XATTR_NAME_MAX + 1],
                      const void **value, size_t *len)
{
    size_t name_len;
    const void *text;

    if (poise_reader_left(from) == 0) {
        return false;
    }
    text = poise_reader_blob(from, &name_len);
    *value = poise_reader_blob(from, len);
    if (from->error || name_len > XATTR_NAME_MAX) {
        from->error = -EBADMSG;
        return false;
    }
    memcpy(name, text, name_len);
    name[name_len] = 0;
    return true;
}

/* Remove those of `had` that are not among `has`. */
static int drop_others(const char *path, struct poise_reader had,
                       struct poise_reader has)
{
    char name[XATTR_NAME_MAX + 1], other[XATTR_NAME_MAX + 1];
    const void *value;
    size_t len;
    int code = 0;

    while (code == 0 && next_pair(&had, name, &value, &len)) {
        struct poise_reader rest = has;
        bool found = false;

        while (!found && next_pair(&rest, other, &value, &len)) {
            found = strcmp(name, other) == 0;
        }
        if (!found && lremovexattr(path, name) != 0 && errno != ENODATA) {
            code = failed("remove attribute", name);
        }
    }
    return code;
}

static int set_xattrs(int dirfd, const char *name,
                      const struct poise_walk_meta *meta)
{
    struct poise_buf had = {0}, path = {0};
    struct poise_reader has = poise_reader_of(meta->xattrs, meta->xattrs_len);
    char key[XATTR_NAME_MAX + 1];
    const void *value;
    size_t len;
    int code = get_xattrs(dirfd, name, &had);

    if (code < 0 ||
        (had.len == meta->xattrs_len &&
         (had.len == 0 || memcmp(had.data, meta->xattrs, had.len) == 0))) {
        goto free_lists;
    }
    code = path_of(dirfd, name, &path);
    if (code == 0) {
        code = drop_others(path.data, poise_reader_of(had.data, had.len), has);
    }
    while (code == 0 && next_pair(&has, key, &value, &len)) {
        /* Not every user may set what the source has. */
        if (is_kept(key) && lsetxattr(path.data, key, value, len, 0) != 0) {
            code = failed("set attribute", key);
        }
    }
    code = code < 0 ? code : 1;
free_lists:
    poise_buf_free(&had);
    poise_buf_free(&path);
    return code;
}

/* ---- reading ------------------------------------------------------------ */

static int get_target(int dirfd, const char *name, struct poise_buf *out)
{
    char *to = poise_buf_reserve(out, PATH_MAX + 1);
    ssize_t len;

    if (!to) {
        return -ENOMEM;
    }
    len = readlinkat(dirfd, name, to, PATH_MAX);
    if (len < 0) {
        return failed("read link", name);
    }
    to[len] = 0;
    out->len += (size_t)len + 1;
    return 0;
}

static void from_statx(const struct statx *stx, struct poise_walk_meta *meta)
{
    *meta = (struct poise_walk_meta){
        .mode = stx->stx_mode,
        .uid = stx->stx_uid,
        .gid = stx->stx_gid,
        .mtime = {.tv_sec = stx->stx_mtime.tv_sec,
                  .tv_nsec = stx->stx_mtime.tv_nsec},
        .dev = makedev(stx->stx_dev_major, stx->stx_dev_minor),
        .ino = stx->stx_ino,
        .links = stx->stx_nlink,
    };
    if (S_ISREG(stx->stx_mode)) {
        meta->size = stx->stx_size;
        meta->sparse = stx->stx_blocks * 512 < stx->stx_size;
    }
    if (S_ISCHR(stx->stx_mode) || S_ISBLK(stx->stx_mode)) {
        meta->major = stx->stx_rdev_major;
        meta->minor = stx->stx_rdev_minor;
    }
}

int poise_walk_meta_get(int dirfd, const char *name, unsigned keep,
                        struct poise_walk_meta *meta, struct poise_buf *memory)
{
    struct poise_walk_meta got;
    struct statx stx;
    size_t target_len = 0;
    int code = poise_file_statx(dirfd, name, AT_SYMLINK_NOFOLLOW,
                                STATX_BASIC_STATS, &stx);

    poise_buf_reset(memory);
    if (code < 0) {
        return poise_error_set(-code, "look at", name, NULL);
    }
    from_statx(&stx, &got);
    if (S_ISLNK(got.mode)) {
        code = get_target(dirfd, name, memory);
        target_len = memory->len;
    } else if (keep & POISE_WALK_KEEP_XATTRS) {
        code = get_xattrs(dirfd, name, memory);
    }
    if (code < 0 || memory->error) {
        return code < 0 ? code : memory->error;
    }
    got.target = target_len ? memory->data : NULL;
    got.xattrs = memory->data ? memory->data + target_len : NULL;
    got.xattrs_len = memory->len - target_len;
    *meta = got;
    return 0;
}

/* ---- giving ------------------------------------------------------------- */

static int set_owner(int dirfd, const char *name, const struct statx *stx,
                     const struct poise_walk_meta *meta)
{
    bool is_root = geteuid() == 0;
    uid_t uid = is_root && stx->stx_uid != meta->uid ? meta->uid : (uid_t)-1;
    gid_t gid = stx->stx_gid != meta->gid ? meta->gid : (gid_t)-1;

    if (uid == (uid_t)-1 && gid == (gid_t)-1) {
        return 0;
    }
    if (fchownat(dirfd, name, uid, gid, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == EPERM && !is_root ? 0 : failed("give away", name);
    }
    return 1;
}

static int set_mode(int dirfd, const char *name, int fd,
                    const struct statx *stx, const struct poise_walk_meta *meta,
                    bool was_given)
{
    mode_t wanted = meta->mode & 07777;

    /* Giving a file away clears the set-user and set-group bits. */
    if (S_ISLNK(stx->stx_mode) ||
        (!was_given && (stx->stx_mode & 07777) == wanted)) {
        return 0;
    }
    if ((fd >= 0 ? fchmod(fd, wanted)
                 : fchmodat(dirfd, name, wanted, AT_SYMLINK_NOFOLLOW)) != 0) {
        return failed("set the mode of", name);
    }
    return 1;
}

static int set_times(int dirfd, const char *name, int fd,
                     const struct statx *stx,
                     const struct poise_walk_meta *meta)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, meta->mtime};

    if (stx->stx_mtime.tv_sec == meta->mtime.tv_sec &&
        stx->stx_mtime.tv_nsec == meta->mtime.tv_nsec) {
        return 0;
    }
    if ((fd >= 0 ? futimens(fd, times)
                 : utimensat(dirfd, name, times, AT_SYMLINK_NOFOLLOW)) != 0) {
        return failed("set the times of", name);
    }
    return 1;
}

int make_attributes(int dirfd, const char *name, int fd,
                    const struct poise_walk_meta *meta, unsigned keep)
{
    struct statx stx;
    int changed = 0;
    int code = poise_file_statx(dirfd, name, AT_SYMLINK_NOFOLLOW,
                                STATX_BASIC_STATS, &stx);
    int owner = 0;

    if (code < 0) {
        return poise_error_set(-code, "look at", name, NULL);
    }
    if ((stx.stx_mode ^ meta->mode) & S_IFMT) {
        return poise_error_set(EEXIST, "change", name,
                               "something else took its name");
    }
    if (keep & POISE_WALK_KEEP_OWNER) {
        owner = code = set_owner(dirfd, name, &stx, meta);
        changed |= code > 0;
    }
    if (code >= 0 && keep & POISE_WALK_KEEP_XATTRS && !S_ISLNK(stx.stx_mode)) {
        code = set_xattrs(dirfd, name, meta);
        changed |= code > 0;
    }
    if (code >= 0 && keep & POISE_WALK_KEEP_MODE) {
        /* An access list changes the mode as well. */
        code = set_mode(dirfd, name, fd, &stx, meta, owner > 0 || changed);
        changed |= code > 0;
    }
    if (code >= 0 && keep & POISE_WALK_KEEP_TIMES) {
        code = set_times(dirfd, name, fd, &stx, meta);
        changed |= code > 0;
    }
    return code < 0 ? code : changed;
}

int poise_walk_make_attributes(int dirfd, const char *name,
                               const struct poise_walk_meta *meta,
                               unsigned keep)
{
    return make_attributes(dirfd, name, -1, meta, keep);
}
