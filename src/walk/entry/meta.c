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

/* What has them, as these calls want it: there are no *at() calls for them
 * everywhere, so a path through /proc. One that ends in a descriptor's number
 * leads to what that has open, even a link, and no further. */
struct bearer {
    int fd; /* -1, or opened for more than O_PATH: then it is all that is used
             */
    char *path;
    bool is_open;
    struct poise_buf memory;
};

static int name_bearer(int dirfd, const char *name, struct bearer *bearer)
{
    *bearer = (struct bearer){.fd = -1};
    if (dirfd != AT_FDCWD && name[0] != '/') {
        poise_buf_printf(&bearer->memory, "/proc/self/fd/%d/", dirfd);
    }
    poise_buf_puts(&bearer->memory, name);
    poise_buf_str(&bearer->memory);
    bearer->path = bearer->memory.data;
    return bearer->memory.error;
}

static ssize_t list_names(const struct bearer *of, char *list, size_t size)
{
    return of->fd >= 0   ? flistxattr(of->fd, list, size)
           : of->is_open ? listxattr(of->path, list, size)
                         : llistxattr(of->path, list, size);
}

static ssize_t get_value(const struct bearer *of, const char *name, char *value)
{
    return of->fd >= 0   ? fgetxattr(of->fd, name, value, XATTR_VALUE_MOST)
           : of->is_open ? getxattr(of->path, name, value, XATTR_VALUE_MOST)
                         : lgetxattr(of->path, name, value, XATTR_VALUE_MOST);
}

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Whether a name is one of those that go along: whoever sends it, no other one
 * is ever set. */
static bool is_kept(const char *name)
{
    if (begins(name, "user.") || strcmp(name, "system.posix_acl_access") == 0 ||
        strcmp(name, "system.posix_acl_default") == 0) {
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
static int get_one(const struct bearer *of, const char *name, char *value,
                   struct poise_buf *out)
{
    ssize_t len = get_value(of, name, value);

    if (len < 0) {
        return has_none(errno) ? 0 : failed("read attribute", name);
    }
    poise_buf_blob(out, name, strlen(name));
    return poise_buf_blob(out, value, (size_t)len);
}

static int get_listed(const struct bearer *of, const char *list, size_t len,
                      struct poise_buf *out)
{
    const char **names = poise_alloc(len, sizeof *names);
    char *value = poise_alloc(XATTR_VALUE_MOST, 1);
    int code = names && value ? 0 : -ENOMEM;
    size_t count = code == 0 ? sort_names(list, len, names) : 0;

    for (size_t i = 0; i < count && code == 0; i++) {
        code = get_one(of, names[i], value, out);
    }
    free(names);
    free(value);
    return code;
}

/* Append all that go along. */
static int get_xattrs(const struct bearer *of, const char *name,
                      struct poise_buf *out)
{
    char few[256], *list = few;
    ssize_t len = list_names(of, few, sizeof few);
    int code = 0;

    if (len < 0 && errno == ERANGE) {
        list = poise_alloc(XATTR_LIST_MOST, 1);
        code = list ? 0 : -ENOMEM;
        len = list ? list_names(of, list, XATTR_LIST_MOST) : 0;
    }
    if (len < 0) {
        code = has_none(errno) ? 0 : failed("list attributes of", name);
    }
    if (len > 0) {
        code = get_listed(of, list, (size_t)len, out);
    }
    if (list != few) {
        free(list);
    }
    return code;
}

/* A pair of name, as text, and value. */
struct pair {
    char name[XATTR_NAME_MAX + 1];
    const void *value;
    size_t len;
    bool is_there; /* else the end was reached */
};

/* The next pair that may be set. */
static void next_pair(struct poise_reader *from, struct pair *pair)
{
    do {
        size_t name_len = 0;
        const void *text = NULL;

        pair->is_there = poise_reader_left(from) > 0;
        if (pair->is_there) {
            text = poise_reader_blob(from, &name_len);
            pair->value = poise_reader_blob(from, &pair->len);
        }
        if (from->error || name_len > XATTR_NAME_MAX) {
            from->error = -EBADMSG;
            pair->is_there = false;
        }
        if (pair->is_there) {
            memcpy(pair->name, text, name_len);
            pair->name[name_len] = 0;
        }
    } while (pair->is_there && !is_kept(pair->name));
}

/* 1, 0 if it was gone already, -ENOTSUP unrecorded, or the error. */
static int remove_value(const struct bearer *of, const char *name)
{
    int code =
        of->fd >= 0 ? fremovexattr(of->fd, name) : removexattr(of->path, name);

    if (code != 0 && errno != ENODATA) {
        return errno == ENOTSUP ? -ENOTSUP : failed("remove attribute", name);
    }
    return 1;
}

static int set_value(const struct bearer *of, const struct pair *pair)
{
    int code = of->fd >= 0
                   ? fsetxattr(of->fd, pair->name, pair->value, pair->len, 0)
                   : setxattr(of->path, pair->name, pair->value, pair->len, 0);

    if (code != 0) {
        return errno == ENOTSUP ? -ENOTSUP
                                : failed("set attribute", pair->name);
    }
    return 1;
}

/* One step along the names that it has and those that it is to have, both in
 * order: 1 if that changed something. */
static int change_one(const struct bearer *of, struct poise_reader *from_had,
                      struct pair *had, struct poise_reader *from_has,
                      struct pair *has)
{
    int order = !had->is_there   ? 1
                : !has->is_there ? -1
                                 : strcmp(had->name, has->name);
    int code = 0;

    if (order < 0) {
        code = remove_value(of, had->name);
    } else if (order > 0 || had->len != has->len ||
               memcmp(had->value, has->value, has->len) != 0) {
        code = set_value(of, has);
    }
    if (order <= 0) {
        next_pair(from_had, had);
    }
    if (order >= 0) {
        next_pair(from_has, has);
    }
    return code;
}

/* 1 if any was changed. What the file system does not take is in `refused`,
 * and an error where that is NULL. */
static int set_xattrs(const struct bearer *of, const char *name,
                      const struct poise_walk_meta *meta, unsigned *refused)
{
    struct poise_buf all = {0};
    struct poise_reader from_had,
        from_has = poise_reader_of(meta->xattrs, meta->xattrs_len);
    struct pair had, has;
    int code, changed = 0;

    code = get_xattrs(of, name, &all);
    from_had = poise_reader_of(all.data, all.len);
    if (code == 0) {
        next_pair(&from_had, &had);
        next_pair(&from_has, &has);
    }
    while (code >= 0 && (had.is_there || has.is_there)) {
        code = change_one(of, &from_had, &had, &from_has, &has);
        changed |= code > 0;
        if (code == -ENOTSUP && refused) {
            *refused |= POISE_WALK_KEEP_XATTRS;
            code = 0;
        } else if (code == -ENOTSUP) {
            code = poise_error_set(ENOTSUP, "set attributes of", name, NULL);
        }
    }
    if (code >= 0 && from_has.error) {
        code = poise_error_set(EBADMSG, "set attributes of", name, NULL);
    }
    poise_buf_free(&all);
    return code < 0 ? code : changed;
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
        .atime = {.tv_sec = stx->stx_atime.tv_sec,
                  .tv_nsec = stx->stx_atime.tv_nsec},
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
    struct bearer bearer;
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
    }
    /* Only root's are on links. */
    if (code == 0 && keep & POISE_WALK_KEEP_XATTRS &&
        (!S_ISLNK(got.mode) || geteuid() == 0)) {
        code = name_bearer(dirfd, name, &bearer);
        code = code < 0 ? code : get_xattrs(&bearer, name, memory);
        poise_buf_free(&bearer.memory);
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

int entry_meta_of(int fd, const char *name, const struct statx *stx,
                  unsigned keep, struct poise_walk_meta *meta,
                  struct poise_buf *memory)
{
    struct bearer bearer = {.fd = fd, .is_open = true};
    int code = 0;

    from_statx(stx, meta);
    poise_buf_reset(memory);
    if (keep & POISE_WALK_KEEP_XATTRS) {
        code = get_xattrs(&bearer, name, memory);
    }
    meta->xattrs = memory->data;
    meta->xattrs_len = memory->len;
    return code < 0 ? code : memory->error;
}

/* ---- giving ------------------------------------------------------------- */

enum { REFUSED_USER = 1, REFUSED_GROUP = 2 };

/* What is given attributes: by its descriptor, so that all go to one and the
 * same inode, whoever puts something else under its name meanwhile. */
struct recipient {
    int fd;
    bool is_path; /* opened by O_PATH */
    bool is_new;  /* made just now: it needs times in any case, and */
    bool is_bare; /* has no extended attributes */
    const char *name;
    struct statx stx;
};

static int change_mode(const struct recipient *to, mode_t mode)
{
    char path[40];

    if (!to->is_path) {
        return fchmod(to->fd, mode);
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", to->fd);
    return chmod(path, mode);
}

static int change_times(const struct recipient *to,
                        const struct timespec times[2])
{
    char path[40];

    if (!to->is_path) {
        return futimens(to->fd, times);
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", to->fd);
    return utimensat(AT_FDCWD, path, times, 0);
}

/* What could not be given is in `refused`. */
static int set_owner(const struct recipient *to,
                     const struct poise_walk_meta *meta, unsigned *refused)
{
    bool other_user = to->stx.stx_uid != meta->uid;
    bool may = other_user && geteuid() == 0;
    uid_t uid = may ? meta->uid : (uid_t)-1;
    gid_t gid = to->stx.stx_gid != meta->gid ? meta->gid : (gid_t)-1;

    if (other_user && !may) {
        *refused |= REFUSED_USER;
    }
    if (uid == (uid_t)-1 && gid == (gid_t)-1) {
        return 0;
    }
    if (fchownat(to->fd, "", uid, gid, AT_EMPTY_PATH) != 0) {
        if (errno != EPERM) {
            return failed("give away", to->name);
        }
        *refused |= (uid != (uid_t)-1 ? REFUSED_USER : 0) |
                    (gid != (gid_t)-1 ? REFUSED_GROUP : 0);
        return 0;
    }
    return 1;
}

/* `refused`: of a user or a group that could not be given nobody gets the
 * rights. */
static int set_mode(const struct recipient *to,
                    const struct poise_walk_meta *meta, bool was_given,
                    unsigned refused)
{
    mode_t wanted = meta->mode & 07777;

    wanted &= ~(refused & REFUSED_USER ? (mode_t)S_ISUID : 0);
    wanted &= ~(refused & REFUSED_GROUP ? (mode_t)S_ISGID : 0);
    /* Giving a file away clears the set-user and set-group bits. */
    if (S_ISLNK(to->stx.stx_mode) ||
        (!was_given && (to->stx.stx_mode & 07777) == wanted)) {
        return 0;
    }
    if (change_mode(to, wanted) != 0) {
        return failed("set the mode of", to->name);
    }
    return 1;
}

static bool is_same_time(const struct statx_timestamp *a,
                         const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && (long)a->tv_nsec == b->tv_nsec;
}

static int set_times(const struct recipient *to,
                     const struct poise_walk_meta *meta, unsigned keep)
{
    bool both = keep & POISE_WALK_KEEP_ATIME;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, meta->mtime};

    if (both) {
        times[0] = meta->atime;
    }
    if (!to->is_new && is_same_time(&to->stx.stx_mtime, &meta->mtime) &&
        (!both || is_same_time(&to->stx.stx_atime, &meta->atime))) {
        return 0;
    }
    if (change_times(to, times) != 0) {
        return failed("set the times of", to->name);
    }
    return 1;
}

static int give_xattrs(struct recipient *to, const struct poise_walk_meta *meta,
                       unsigned *refused)
{
    char path[40];
    struct bearer bearer = {
        .fd = to->is_path ? -1 : to->fd, .path = path, .is_open = true};

    if ((S_ISLNK(meta->mode) && geteuid() != 0) ||
        (to->is_bare && meta->xattrs_len == 0)) {
        return 0;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", to->fd);
    return set_xattrs(&bearer, to->name, meta, refused);
}

static int look_at_recipient(struct recipient *to)
{
    int code = poise_file_statx(to->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS,
                                &to->stx);

    return code < 0 ? poise_error_set(-code, "look at", to->name, NULL) : 0;
}

/* What is different from to->stx. */
static int give(struct recipient *to, const struct poise_walk_meta *meta,
                unsigned keep, unsigned *refused)
{
    unsigned owner_refused = 0;
    int code = 0, changed = 0, owner = 0;

    if ((to->stx.stx_mode ^ meta->mode) & S_IFMT) {
        return poise_error_set(EEXIST, "change", to->name,
                               "something else took its name");
    }
    if (keep & POISE_WALK_KEEP_OWNER) {
        owner = code = set_owner(to, meta, &owner_refused);
        changed |= code > 0;
    }
    if (code >= 0 && keep & POISE_WALK_KEEP_XATTRS) {
        code = give_xattrs(to, meta, refused);
        changed |= code > 0;
    }
    if (code >= 0 && keep & POISE_WALK_KEEP_MODE) {
        /* An access list changes the mode as well. */
        code = set_mode(to, meta, owner > 0 || changed, owner_refused);
        changed |= code > 0;
    }
    if (code >= 0 && keep & POISE_WALK_KEEP_TIMES) {
        code = set_times(to, meta, keep);
        changed |= code > 0;
    }
    if (refused && owner_refused) {
        *refused |= POISE_WALK_KEEP_OWNER;
    }
    return code < 0 ? code : changed;
}

int make_attributes(int dirfd, const char *name, int fd,
                    const struct poise_walk_meta *meta, unsigned keep,
                    unsigned *refused)
{
    struct recipient to = {.fd = fd, .is_path = fd < 0, .name = name};
    int code;

    if (fd < 0) {
        to.fd = poise_file_open(dirfd, name, O_PATH | O_NOFOLLOW, 0);
    }
    if (to.fd < 0) {
        return poise_error_set(-to.fd, "look at", name, NULL);
    }
    code = look_at_recipient(&to);
    code = code < 0 ? code : give(&to, meta, keep, refused);
    if (fd < 0) {
        close(to.fd);
    }
    return code;
}

/* What the first file in a directory has from birth the next ones have, too. */
static int learn_birth(struct recipient *to, struct entry_copier *copier,
                       mode_t asked)
{
    struct entry_birth *birth = &copier->birth;
    int code = look_at_recipient(to);

    birth->place = 0;
    if (code == 0) {
        *birth = (struct entry_birth){
            .place = copier->place,
            .asked = asked,
            .mode = to->stx.stx_mode,
            .uid = to->stx.stx_uid,
            .gid = to->stx.stx_gid,
            .plain = copier->options.keep & POISE_WALK_KEEP_XATTRS &&
                     flistxattr(to->fd, NULL, 0) == 0,
        };
    }
    return code;
}

int make_attributes_new(struct entry_copier *copier, const char *name, int fd,
                        mode_t asked, const struct poise_walk_meta *meta,
                        unsigned *refused)
{
    const struct entry_birth *birth = &copier->birth;
    struct recipient to = {.fd = fd, .name = name, .is_new = true};
    int code = 0;

    if (copier->place != 0 && birth->place == copier->place &&
        birth->asked == asked) {
        to.stx.stx_mode = (uint16_t)birth->mode;
        to.stx.stx_uid = birth->uid;
        to.stx.stx_gid = birth->gid;
    } else {
        code = learn_birth(&to, copier, asked);
    }
    to.is_bare = birth->plain;
    return code < 0 ? code : give(&to, meta, copier->options.keep, refused);
}

int poise_walk_make_attributes(int dirfd, const char *name,
                               const struct poise_walk_meta *meta,
                               unsigned keep)
{
    return make_attributes(dirfd, name, -1, meta, keep, NULL);
}
