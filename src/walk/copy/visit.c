/*
 * The hooks of the walk: directories are made when they are met, everything
 * else is copied, and directories get their attributes when all is in them.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what all of it needs ------------------------------------------------ */

int copy_say(struct copy_worker *w, enum poise_copy_action action,
             const struct poise_walk_entry *entry, const char *name)
{
    struct poise_buf line = {0};
    int code;

    if (!w->copy->options->said) {
        return 0;
    }
    poise_buf_putc(&line, (char)action);
    code = copy_place_path(w->copy, entry, &line);
    if (code == 0 && name) {
        poise_buf_putc(&line, '/');
        code = poise_buf_puts(&line, name);
    }
    if (code == 0) {
        code = poise_task_emit(entry->worker, line.data, line.len);
    }
    poise_buf_free(&line);
    return code;
}

void copy_refused(struct copy_worker *w, const struct poise_walk_entry *entry,
                  unsigned refused)
{
    struct copy *copy = w->copy;
    struct poise_buf path = {0};

    w->counts.refused_owner += (refused & POISE_WALK_KEEP_OWNER) != 0;
    w->counts.refused_xattrs += (refused & POISE_WALK_KEEP_XATTRS) != 0;
    if (!refused || __atomic_load_n(&copy->refused, __ATOMIC_RELAXED)) {
        return;
    }
    pthread_mutex_lock(&copy->lock);
    if (!copy->refused && copy_place_path(copy, entry, &path) == 0) {
        __atomic_store_n(&copy->refused, strdup(poise_buf_str(&path)),
                         __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&copy->lock);
    poise_buf_free(&path);
}

/* Whether what was being done was done to the source. */
static bool is_of_source(const char *doing)
{
    static const char *const words[] = {
        "open",    "read",      "read attribute",    "copy",
        "look at", "read link", "list attributes of"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(doing, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

void copy_name_error(struct copy_worker *w,
                     const struct poise_walk_entry *entry)
{
    const struct poise_error *err = poise_error_last();
    const char *target = w->copy->plan.targets[entry->root];
    const char *slash = strrchr(target, '/');
    bool is_own = strcmp(err->what, entry->name) == 0 ||
                  (!entry->dir && slash && strcmp(err->what, slash + 1) == 0);
    struct poise_buf path = {0}, texts = {0};
    size_t why;

    if (!err->what[0] || err->what[0] == '/' ||
        (!is_own && (entry->type != DT_DIR || !entry->dir))) {
        return;
    }
    if (is_own && is_of_source(err->doing)) {
        poise_walk_path(entry, &path);
    } else {
        copy_place_path(w->copy, entry, &path);
    }
    if (!is_own) {
        poise_buf_printf(&path, "/%s", err->what);
    }
    poise_buf_append(&texts, err->doing, strlen(err->doing) + 1);
    why = texts.len;
    poise_buf_append(&texts, err->why, strlen(err->why) + 1);
    poise_buf_str(&path);
    if (!path.error && !texts.error) {
        poise_error_set(err->code, texts.data, path.data, "%s",
                        texts.data + why);
    }
    poise_buf_free(&path);
    poise_buf_free(&texts);
}

int copy_failed(struct copy_worker *w, const struct poise_walk_entry *entry,
                int code)
{
    if (code != -ECANCELED && code != -ENOMEM) {
        copy_name_error(w, entry);
    }
    if (code == -ENOSPC || code == -EDQUOT || code == -ENOMEM ||
        code == -EROFS) {
        return code;
    }
    w->counts.failed++;
    if (code != -ECANCELED) {
        walk_entry_failed(entry);
    }
    return 0;
}

static void pace_metadata(struct copy_worker *w)
{
    if (w->copier.options.pace) {
        w->copier.options.pace(0, COPY_METADATA_CALLS, w->copier.options.arg);
    }
}

/* ---- directories --------------------------------------------------------- */

/* Something has the name: 1 if it is a directory that can be used, 0 if the
 * name is free now. */
static int use_directory(struct copy_worker *w, const struct copy_place *place)
{
    struct stat there;
    int code;

    if (fstatat(place->fd, place->name, &there, AT_SYMLINK_NOFOLLOW) != 0) {
        return poise_error_set(errno, "look at", place->name, NULL);
    }
    code = copy_clash(w, place->fd, place->name, &there);
    if (code < 0) {
        return code;
    }
    if (S_ISDIR(there.st_mode)) {
        if ((there.st_mode & 0700) != 0700 && geteuid() == there.st_uid) {
            /* If this fails, so will what needs it. */
            (void)!fchmodat(place->fd, place->name,
                            (there.st_mode & 07777) | 0700, 0);
        }
        return 1;
    }
    if (!w->copy->options->remove) {
        return poise_error_set(ENOTDIR, "replace", place->name,
                               "something else is in the place of a directory "
                               "(--delete replaces it)");
    }
    return unlinkat(place->fd, place->name, 0) == 0
               ? 0
               : poise_error_set(errno, "replace", place->name, NULL);
}

/* 1 if it was there. */
static int make_directory(struct copy_worker *w, const struct copy_place *place)
{
    int code = poise_fault_check(POISE_FAULT_OPEN);

    for (int tries = 0; code == 0 && tries < 2; tries++) {
        if (mkdirat(place->fd, place->name, 0700) == 0) {
            return 0;
        }
        code = errno;
        if (code == EEXIST) {
            code = use_directory(w, place);
            if (code != 0) {
                return code;
            }
        }
    }
    return poise_error_set(code ? code : EEXIST, "make directory", place->name,
                           NULL);
}

static bool is_directory(const struct copy_place *place)
{
    struct stat st;

    return place->name &&
           fstatat(place->fd, place->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
}

/* What of a directory that was there does not stay. */
static int clear_directory(struct copy_worker *w,
                           struct poise_walk_entry *entry,
                           const struct copy_place *place)
{
    const struct poise_copy_options *options = w->copy->options;

    return options->remove || options->resume ? copy_extras(w, entry, place)
                                              : 0;
}

/* What tells a directory from all others, for entry_copier.place. */
static uint64_t new_tag(struct copy *copy)
{
    return (uint64_t)(copy->rank + 1) << COPY_TAG_SHIFT |
           __atomic_fetch_add(&copy->tags, 1, __ATOMIC_RELAXED);
}

/* The source's, from before it is read; what is made in the target does not
 * change it. No more than that is lost if it fails. */
static void set_access_time(struct copy_worker *w,
                            const struct copy_place *place,
                            struct timespec atime)
{
    struct timespec times[2] = {atime, {.tv_nsec = UTIME_OMIT}};

    if (w->copy->keep & POISE_WALK_KEEP_ATIME) {
        (void)utimensat(place->fd, place->name, times, AT_SYMLINK_NOFOLLOW);
    }
}

/* Whether it was there and the filter did not ask for it: it stays as it is. */
static bool is_others(struct copy_worker *w,
                      const struct poise_walk_entry *entry)
{
    const struct poise_walk_dir *self = poise_walk_self(entry);

    return w->copy->options->filter && self && !poise_walk_dir_tag(self) &&
           !copy_place_was_made(entry);
}

/* The place's name is NULL where its directory is not there. */
static int visit_directory(struct copy_worker *w,
                           struct poise_walk_entry *entry,
                           const struct copy_place *place)
{
    const struct statx *stx;
    struct timespec atime;
    int was_there, code;

    pace_metadata(w);
    if (w->copy->options->dry) {
        was_there = is_directory(place);
        w->counts.directories += !was_there;
        return was_there ? clear_directory(w, entry, place)
                         : copy_say(w, POISE_COPY_MADE, entry, NULL);
    }
    code = poise_walk_stat(entry, STATX_BASIC_STATS, &stx);
    if (code < 0) {
        return POISE_WALK_SKIP; /* counted and reported by the walk */
    }
    atime = (struct timespec){stx->stx_atime.tv_sec, stx->stx_atime.tv_nsec};
    was_there = make_directory(w, place);
    if (was_there < 0) {
        code = copy_failed(w, entry, was_there);
        return code < 0 ? code : POISE_WALK_SKIP;
    }
    w->counts.unfinished += !w->copy->options->filter;
    w->left = false;
    if (was_there) {
        code = clear_directory(w, entry, place);
    } else {
        copy_count_directory(w);
        code = copy_say(w, POISE_COPY_MADE, entry, NULL);
    }
    poise_walk_tag_set(entry, new_tag(w->copy) | (w->left ? COPY_TAG_LEFT : 0));
    set_access_time(w, place, atime);
    return code;
}

static int leave_directory(struct copy_worker *w,
                           struct poise_walk_entry *entry,
                           const struct copy_place *place)
{
    const struct poise_copy_options *options = w->copy->options;
    const struct poise_walk_dir *self = poise_walk_self(entry);
    struct poise_walk_meta meta;
    unsigned refused = 0;
    int from, code, fd;

    pace_metadata(w);
    if (self && poise_walk_dir_tag(self) & COPY_TAG_LEFT) {
        code = copy_extras_left(w, entry, place);
        if (code < 0) {
            return code;
        }
    }
    from = poise_walk_dirfd(entry);
    if (from < 0 && from != AT_FDCWD) {
        return 0; /* counted and reported by the walk */
    }
    code = poise_walk_meta_get(from, entry->name, w->copy->keep, &meta,
                               &w->memory);
    if (code == 0) {
        code = entry_make_attributes(place->fd, place->name, &meta,
                                     w->copy->keep & ~POISE_WALK_KEEP_ATIME,
                                     &refused);
    }
    copy_refused(w, entry, refused);
    if (code >= 0 && options->sync == POISE_SYNC_FILE) {
        fd = code = poise_file_open(place->fd, place->name,
                                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
        if (fd >= 0) {
            code = poise_walk_sync(options->sync, POISE_SYNC_AT_DIRECTORY, fd,
                                   entry->name);
            close(fd);
        }
    }
    return code < 0 ? copy_failed(w, entry, code) : 0;
}

/* ---- links, pipes, devices ----------------------------------------------- */

static int make_special(struct copy_worker *w, struct poise_walk_entry *entry,
                        const struct copy_place *place, int from)
{
    struct entry_taken taken = {.ask = copy_ask, .arg = w};
    struct poise_walk_meta meta;
    unsigned refused = 0;
    int code = poise_walk_meta_get(from, entry->name, w->copy->keep, &meta,
                                   &w->memory);

    if (code == 0) {
        code = entry_make_special(place->fd, place->name, &meta, w->copy->keep,
                                  &taken, &refused);
    }
    if (code < 0) {
        return copy_failed(w, entry, code);
    }
    copy_refused(w, entry, refused);
    w->counts.symlinks += S_ISLNK(meta.mode);
    w->counts.specials += !S_ISLNK(meta.mode);
    return copy_say(w, POISE_COPY_MADE, entry, NULL);
}

static bool is_same_target(int from, const char *name,
                           const struct copy_place *place)
{
    char a[PATH_MAX], b[PATH_MAX];
    ssize_t n = readlinkat(from, name, a, sizeof a);

    return n >= 0 && readlinkat(place->fd, place->name, b, sizeof b) == n &&
           memcmp(a, b, (size_t)n) == 0;
}

static bool special_is_there(struct copy_worker *w,
                             struct poise_walk_entry *entry, int from,
                             const struct copy_place *place,
                             const struct statx *stx)
{
    struct stat there;

    return place->name &&
           (w->copy->options->resume || w->copy->options->update) &&
           fstatat(place->fd, place->name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           copy_is_done(w->copy, stx, &there) &&
           (!S_ISLNK(there.st_mode) || w->copy->options->update ||
            is_same_target(from, entry->name, place));
}

static int visit_special(struct copy_worker *w, struct poise_walk_entry *entry,
                         const struct copy_place *place)
{
    const struct statx *stx;
    int from = poise_walk_dirfd(entry), link = COPY_LINK_FIRST, code;
    bool is_there;

    pace_metadata(w);
    if ((from < 0 && from != AT_FDCWD) ||
        poise_walk_stat(entry, STATX_BASIC_STATS, &stx) < 0) {
        return 0; /* counted and reported by the walk */
    }
    is_there = special_is_there(w, entry, from, place, stx);
    w->counts.skipped += is_there;
    if (w->copy->options->dry) {
        w->counts.symlinks += !is_there && S_ISLNK(stx->stx_mode);
        w->counts.specials += !is_there && !S_ISLNK(stx->stx_mode);
        return is_there ? 0 : copy_say(w, POISE_COPY_MADE, entry, NULL);
    }
    if (stx->stx_nlink > 1) {
        link = copy_link(w, entry, place, stx);
        if (link < 0 || link != COPY_LINK_FIRST) {
            return link < 0 ? copy_failed(w, entry, link) : 0;
        }
    }
    code = is_there ? 0 : make_special(w, entry, place, from);
    if (code == 0 && stx->stx_nlink > 1) {
        code = copy_link_add(w, place, stx);
        code = code < 0 ? copy_failed(w, entry, code) : 0;
    }
    return code;
}

/* ---- the hooks ----------------------------------------------------------- */

/* Whether the filter lets it through: 1, 0, or what ends the walk. */
static int is_wanted(struct copy_worker *w, struct poise_walk_entry *entry)
{
    int code = w->copy->options->filter
                   ? poise_walk_filter_match(w->copy->options->filter, entry)
                   : 1;

    return code < 0 && code != -ENOMEM ? 0 : code;
}

/* Where it goes; directories above it are made if a filter left them out. */
static int find_place(struct copy_worker *w, struct poise_walk_entry *entry,
                      struct copy_place *place)
{
    int code = copy_place(w, entry, place);

    if (code == -ENOENT && w->copy->options->dry) {
        *place = (struct copy_place){.fd = -1};
        return 0;
    }
    if (code == -ENOENT && w->copy->options->filter) {
        code = copy_place_make(w, entry);
        code = code < 0 ? code : copy_place(w, entry, place);
    }
    if (code == -ENOENT) {
        code = poise_error_set(ENOENT, "copy", entry->name,
                               "its directory at the target is gone");
    }
    return code;
}

static int visit_wanted(struct copy_worker *w, struct poise_walk_entry *entry)
{
    struct copy_place place;
    int code = find_place(w, entry, &place);

    if (code < 0) {
        code = copy_failed(w, entry, code);
        code = code < 0 ? code : POISE_WALK_SKIP;
    } else if (entry->type == DT_DIR) {
        code = visit_directory(w, entry, &place);
    } else if (entry->type == DT_REG) {
        code = copy_file(w, entry, &place);
    } else {
        code = visit_special(w, entry, &place);
    }
    copy_place_end(w);
    return code;
}

int copy_visit(struct poise_walk_entry *entry, void *arg)
{
    struct copy_worker *w = copy_worker(arg, entry->worker);
    int code;

    if (!w) {
        return -ENOMEM;
    }
    w->entry = entry;
    code = is_wanted(w, entry);
    return code > 0 ? visit_wanted(w, entry) : code;
}

int copy_leave(struct poise_walk_entry *entry, void *arg)
{
    struct copy_worker *w = copy_worker(arg, entry->worker);
    struct copy_place place;
    bool others;
    int code;

    if (!w) {
        return -ENOMEM;
    }
    if (w->copy->options->dry) {
        return 0;
    }
    w->entry = entry;
    if (entry->type != DT_DIR) {
        return copy_chunks_leave(w, entry);
    }
    others = is_others(w, entry);
    code = copy_place(w, entry, &place);
    if (others && code != -ENOMEM &&
        (code < 0 || !copy_place_is_begun(&place))) {
        code = 0;
    } else if (code == 0 && is_directory(&place)) {
        code = leave_directory(w, entry, &place);
        w->counts.unfinished -= !w->copy->options->filter;
    } else if (code == -ENOENT) {
        code = 0; /* of a filter */
    } else if (code < 0) {
        code = copy_failed(w, entry, code);
    }
    copy_place_end(w);
    return code;
}
