/*
 * One regular file made from another; see entry.h for how, and when it has its
 * name.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum {
    TRIES = 3,           /* readings of a source that changes */
    TICK_NS = 10000000,  /* longer than the kernel's clock ticks */
    RECENT_S = 10,       /* no write(2) takes longer */
    LOOKS = 5,           /* for a moment without a write */
    METADATA_CALLS = 10, /* for the pace: of one file, both sides */
    NAMES = 100,         /* tried, before something is wrong */
};

void entry_copier_free(struct entry_copier *copier)
{
    free(copier->buffer);
    poise_buf_free(&copier->xattrs);
    copier->buffer = NULL;
}

/* ---- the source ---------------------------------------------------------- */

/* Whether it changed in this very tick: another change in it would not be
 * seen. */
static bool is_fresh(const struct statx *stx, const struct timespec *now)
{
    return stx->stx_ctime.tv_sec > now->tv_sec ||
           (stx->stx_ctime.tv_sec == now->tv_sec &&
            (long)stx->stx_ctime.tv_nsec >= now->tv_nsec);
}

static int look(const struct entry_source *source, struct statx *stx)
{
    int code =
        poise_file_statx(source->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, stx);

    return code < 0 ? poise_error_set(-code, "look at", source->name, NULL) : 0;
}

static bool is_same_change(const struct statx *a, const struct statx *b)
{
    return a->stx_size == b->stx_size &&
           memcmp(&a->stx_ctime, &b->stx_ctime, sizeof a->stx_ctime) == 0 &&
           memcmp(&a->stx_mtime, &b->stx_mtime, sizeof a->stx_mtime) == 0;
}

/*
 * Look at it in a moment without a write. One that goes on does not show: it
 * sets the times when it begins. But it holds the inode's lock, for which
 * SEEK_DATA waits (ext4, btrfs, tmpfs, FUSE; in XFS reading waits itself). If
 * the times are the same before and after that, and not of this very tick, no
 * write is under way, and one that begins later will show.
 */
static int look_settled(struct entry_source *source)
{
    const struct timespec tick = {.tv_nsec = TICK_NS};
    int code = 0;

    source->unsettled = true;
    for (int i = 0; i < LOOKS && code == 0 && source->unsettled; i++) {
        struct statx before;
        struct timespec now;

        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        code = look(source, &source->stx);
        if (code == 0 && is_fresh(&source->stx, &now)) {
            nanosleep(&tick, NULL);
        } else if (source->stx.stx_ctime.tv_sec + RECENT_S < now.tv_sec) {
            source->unsettled = false;
        } else if (code == 0) {
            before = source->stx;
            (void)lseek(source->fd, 0, SEEK_DATA);
            code = look(source, &source->stx);
            source->unsettled = !is_same_change(&before, &source->stx);
        }
    }
    return code;
}

int entry_source_open(int dirfd, const char *name, struct entry_source *source)
{
    int code;

    *source = (struct entry_source){.name = name};
    source->fd = poise_file_open(
        dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (source->fd < 0) {
        code = source->fd;
        source->fd = -1;
        return code;
    }
    code = look_settled(source);
    if (code == 0 && !S_ISREG(source->stx.stx_mode)) {
        code = -ENXIO;
    }
    if (code < 0) {
        entry_source_close(source);
    }
    return code;
}

void entry_source_close(struct entry_source *source)
{
    if (source->fd >= 0) {
        close(source->fd);
        source->fd = -1;
    }
}

int entry_source_check(struct entry_source *source)
{
    const struct statx *was = &source->stx;
    struct statx now;
    int code = look(source, &now);

    if (code < 0) {
        return code;
    }
    if (is_same_change(&now, was)) {
        return 0;
    }
    code = look_settled(source);
    return code < 0 ? code : 1;
}

/* ---- the target ---------------------------------------------------------- */

static int open_nameless(struct entry_copier *copier,
                         struct entry_target *target, mode_t mode)
{
    int code;

    if (copier->no_nameless) {
        return -EOPNOTSUPP;
    }
    code = poise_file_open(target->dirfd, ".", O_RDWR | O_TMPFILE, mode);
    if (code == -EOPNOTSUPP || code == -EISDIR || code == -EINVAL ||
        code == -ENOENT) {
        copier->no_nameless = code != -ENOENT;
        return -EOPNOTSUPP;
    }
    target->fd = code;
    target->asked = mode;
    return code < 0 ? code : 0;
}

static int open_named(struct entry_target *target, mode_t mode)
{
    int tries = 0, code;

    do {
        make_name(target->temporary);
        code = poise_file_open(target->dirfd, target->temporary,
                               O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    } while (code == -EEXIST && ++tries < NAMES);
    if (code < 0) {
        target->temporary[0] = 0;
        return poise_error_set(-code, "make", target->name, NULL);
    }
    target->fd = code;
    target->asked = mode;
    /* Nobody takes it for left over. */
    (void)flock(target->fd, LOCK_EX | LOCK_NB);
    return 0;
}

/* In a folder that nobody sees: under its name. */
static int open_direct(struct entry_target *target, mode_t mode)
{
    int code = poise_file_open(target->dirfd, target->name,
                               O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode);

    target->fd = code;
    target->asked = mode;
    target->has_name = code >= 0;
    return code < 0 ? code : 0;
}

/* Who does not see it may see no more of it than of the source. */
static int open_target(struct entry_copier *copier, struct entry_target *target,
                       const struct poise_walk_meta *meta)
{
    /* Attributes take a right to write. */
    mode_t mode = (meta->mode & 0777) | (meta->xattrs_len > 0 ? 0200 : 0);
    int code = -EEXIST;

    if (copier->options.direct) {
        code = open_direct(target, mode & 0700);
    }
    if (code == -EEXIST) {
        code = open_nameless(copier, target, mode);
    }
    if (code == -EOPNOTSUPP) {
        code = open_named(target, 0600);
    }
    return code < 0 ? poise_error_set(-code, "make", target->name, NULL) : 0;
}

static void drop_target(struct entry_target *target)
{
    if (target->fd >= 0) {
        close(target->fd);
    }
    if (target->temporary[0]) {
        unlinkat(target->dirfd, target->temporary, 0);
    } else if (target->has_name) {
        unlinkat(target->dirfd, target->name, 0);
    }
    target->fd = -1;
    target->temporary[0] = 0;
    target->has_name = false;
}

/* Give the nameless file a name; -EEXIST, not recorded. */
static int link_nameless(struct entry_copier *copier,
                         const struct entry_target *target, const char *name)
{
    int code = poise_fault_check(POISE_FAULT_RENAME);
    char path[40];

    if (code) {
        return -code;
    }
    if (!copier->no_empty_path) {
        if (linkat(target->fd, "", target->dirfd, name, AT_EMPTY_PATH) == 0) {
            return 0;
        }
        if (errno != ENOENT && errno != EINVAL) {
            return -errno;
        }
        copier->no_empty_path = true; /* it takes a capability */
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", target->fd);
    return linkat(AT_FDCWD, path, target->dirfd, name, AT_SYMLINK_FOLLOW) == 0
               ? 0
               : -errno;
}

static int name_target(struct entry_copier *copier, struct entry_target *target,
                       const struct entry_taken *taken,
                       struct entry_copied *copied)
{
    int code;

    if (target->has_name) {
        return 0;
    }
    if (!target->temporary[0]) {
        code = link_nameless(copier, target, target->name);
        if (code != -EEXIST) {
            return code < 0 ? poise_error_set(-code, "name", target->name, NULL)
                            : 0;
        }
        make_name(target->temporary);
        code = link_nameless(copier, target, target->temporary);
        if (code < 0) {
            target->temporary[0] = 0;
            return poise_error_set(-code, "name", target->name, NULL);
        }
    }
    code = make_placed(target->dirfd, target->temporary, target->name, taken,
                       &copied->replaced);
    if (code >= 0) {
        target->temporary[0] = 0;
        target->has_name = true;
    }
    return code;
}

/* ---- a whole file -------------------------------------------------------- */

/* The file, made just now, has its data: all but its name. */
static int finish_target(struct entry_copier *copier,
                         const struct entry_target *target,
                         const struct poise_walk_meta *meta,
                         struct entry_copied *copied)
{
    int code = make_attributes_new(copier, target->name, target->fd,
                                   target->asked, meta, &copied->refused);

    return code < 0 ? code
                    : poise_walk_sync(copier->options.sync, POISE_SYNC_AT_FILE,
                                      target->fd, target->name);
}

int entry_target_open(struct entry_copier *copier, int dirfd, const char *name,
                      const struct poise_walk_meta *meta,
                      struct entry_target *target)
{
    *target = (struct entry_target){.fd = -1, .dirfd = dirfd, .name = name};
    return open_target(copier, target, meta);
}

/* Complete: it gets its name. */
static int close_target(struct entry_copier *copier,
                        struct entry_target *target,
                        const struct entry_taken *taken,
                        struct entry_copied *copied)
{
    int code = name_target(copier, target, taken, copied);

    if (code == 0) {
        int fd = target->fd;

        target->fd = -1;
        code = poise_file_close(fd, target->name);
        target->has_name = false; /* no more ours to remove */
    }
    return code;
}

int entry_target_commit(struct entry_copier *copier,
                        struct entry_target *target,
                        const struct poise_walk_meta *meta,
                        const struct entry_taken *taken,
                        struct entry_copied *copied)
{
    int code = finish_target(copier, target, meta, copied);

    code = code < 0 ? code : close_target(copier, target, taken, copied);
    drop_target(target);
    return code < 0 ? code : 0;
}

void entry_target_drop(struct entry_target *target)
{
    drop_target(target);
}

static int fill_target(struct entry_copier *copier,
                       const struct entry_source *source,
                       const struct entry_target *target,
                       const struct poise_walk_meta *meta,
                       struct entry_copied *copied)
{
    struct copy_move move = {
        .in = source->fd,
        .out = target->fd,
        .name = source->name,
        .to = meta->size,
        .sparse = meta->sparse,
    };

    if (copy_clone(copier, source->fd, target->fd, meta->size)) {
        copied->cloned += meta->size;
        copied->bytes += meta->size;
        return 0;
    }
    if (copier->only_clone) {
        return -EXDEV;
    }
    if (meta->sparse && ftruncate(target->fd, (off_t)meta->size) != 0) {
        return poise_error_set(errno, "set the length of", target->name, NULL);
    }
    return copy_move(copier, &move, copied);
}

/* What is known of one file system may not hold for the next. */
void copy_see_source(struct entry_copier *copier, const struct statx *stx)
{
    uint64_t dev = makedev(stx->stx_dev_major, stx->stx_dev_minor);

    if (dev != copier->dev) {
        copier->dev = dev;
        copier->no_clone = copier->no_range = false;
    }
}

/* Once: 0, 1 if the source changed, or the error. */
static int copy_once(struct entry_copier *copier, struct entry_source *source,
                     struct entry_target *target,
                     const struct entry_taken *taken,
                     struct entry_copied *copied)
{
    struct poise_walk_meta meta;
    int code;

    if (source->unsettled) {
        code = look_settled(source);
        return code < 0 ? code : 1;
    }
    code = entry_meta_of(source->fd, source->name, &source->stx,
                         copier->options.keep, &meta, &copier->xattrs);
    if (code == 0) {
        code = open_target(copier, target, &meta);
    }
    if (code == 0) {
        code = fill_target(copier, source, target, &meta, copied);
    }
    if (code == 0) {
        code = entry_source_check(source);
    }
    if (code == 0) {
        code = finish_target(copier, target, &meta, copied);
    }
    return code == 0 ? close_target(copier, target, taken, copied) : code;
}

int entry_copy(struct entry_copier *copier, struct entry_source *source,
               int dirfd, const char *name, const struct entry_taken *taken,
               struct entry_copied *copied)
{
    struct entry_target target = {.fd = -1, .dirfd = dirfd, .name = name};
    int code = 1;

    copy_see_source(copier, &source->stx);
    if (copier->options.pace) {
        copier->options.pace(0, METADATA_CALLS, copier->options.arg);
    }
    for (int tries = 0; code == 1 && tries < TRIES; tries++) {
        code = copy_once(copier, source, &target, taken, copied);
        drop_target(&target);
        copied->retries += code == 1;
    }
    return code == 1 ? poise_error_set(EBUSY, "copy", name,
                                       "it changed each of the %d times while "
                                       "it was read",
                                       TRIES)
                     : code;
}

int entry_clone(struct entry_copier *copier, struct entry_source *source,
                int dirfd, const char *name, const struct entry_taken *taken,
                struct entry_copied *copied)
{
    int code;

    copy_see_source(copier, &source->stx);
    if (copier->no_clone || copier->options.verify) {
        return 0;
    }
    copier->only_clone = true;
    code = entry_copy(copier, source, dirfd, name, taken, copied);
    copier->only_clone = false;
    return code == 0 ? 1 : code == -EXDEV ? 0 : code;
}
