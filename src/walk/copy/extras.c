/*
 * What is at the target and not at the source: of a mirror, which has nothing
 * else; and what killed copies left under temporary names.
 */
#include "internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static DIR *open_list(int fd, const char *name)
{
    int list =
        poise_file_open(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    DIR *dir = list < 0 ? NULL : fdopendir(list);

    if (!dir && list >= 0) {
        close(list);
    }
    return dir;
}

static bool is_dots(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* What somebody is making at this moment stays. */
static int remove_left(int fd, const char *name)
{
    struct stat st;

    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0;
    }
    return S_ISREG(st.st_mode) ? poise_walk_remove_leftover(fd, name)
                               : poise_walk_remove(fd, name);
}

static bool is_missing(int from, const char *name)
{
    struct stat st;

    return fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) != 0 &&
           errno == ENOENT;
}

static int remove_extra(struct copy_worker *w, struct poise_walk_entry *entry,
                        int fd, const char *name)
{
    int code = copy_say(w, POISE_COPY_DELETED, entry, name);

    if (code == 0 && !w->copy->options->dry) {
        code = poise_walk_remove(fd, name);
        code = code < 0 ? copy_failed(w, entry, code) : 0;
    }
    w->counts.deleted++;
    return code;
}

/* One name of the target's directory `fd`; `from` is the source's, or -1. */
static int look_at(struct copy_worker *w, struct poise_walk_entry *entry,
                   int fd, int from, const char *name)
{
    const struct poise_copy_options *options = w->copy->options;
    char own[40];

    copy_links_name(w->copy, own);
    if (is_dots(name) || strcmp(name, own) == 0) {
        return 0;
    }
    if (poise_walk_is_temporary(name) && options->resume && !options->dry) {
        int code;

        if (entry_chunks_is_left(fd, name)) {
            w->left = true;
            return 0;
        }
        code = remove_left(fd, name);
        return code < 0 ? copy_failed(w, entry, code) : 0;
    }
    if (options->remove && from >= 0 && is_missing(from, name)) {
        return remove_extra(w, entry, fd, name);
    }
    return 0;
}

int copy_extras(struct copy_worker *w, struct poise_walk_entry *entry,
                const struct copy_place *place)
{
    int above = poise_walk_dirfd(entry), from = -1, code = 0;
    DIR *dir = open_list(place->fd, place->name);
    const struct dirent *d;

    w->left = false;
    if (!dir) {
        return copy_failed(w, entry, -EIO);
    }
    if (w->copy->options->remove && (above >= 0 || above == AT_FDCWD)) {
        from = openat(above, entry->name,
                      O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    while (code == 0 && (d = readdir(dir))) {
        code = look_at(w, entry, dirfd(dir), from, d->d_name);
    }
    closedir(dir);
    if (from >= 0) {
        close(from);
    }
    return code;
}

int copy_extras_left(struct copy_worker *w, struct poise_walk_entry *entry,
                     const struct copy_place *place)
{
    DIR *dir = open_list(place->fd, place->name);
    const struct dirent *d;
    int code = dir ? 0 : copy_failed(w, entry, -EIO);

    while (dir && code == 0 && (d = readdir(dir))) {
        if (poise_walk_is_temporary(d->d_name) &&
            entry_chunks_is_left(dirfd(dir), d->d_name)) {
            code = remove_left(dirfd(dir), d->d_name);
            code = code < 0 ? copy_failed(w, entry, code) : 0;
        }
    }
    if (dir) {
        closedir(dir);
    }
    return code;
}

void copy_extras_home(struct copy *copy)
{
    int home =
        poise_file_open(AT_FDCWD, copy->plan.home, O_PATH | O_DIRECTORY, 0);
    DIR *dir = home < 0 ? NULL : open_list(home, ".");
    const struct dirent *d;

    while (dir && (d = readdir(dir))) {
        struct stat st;

        if (poise_walk_is_temporary(d->d_name) &&
            fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(st.st_mode)) {
            (void)poise_walk_remove(dirfd(dir), d->d_name);
        }
    }
    if (dir) {
        closedir(dir);
    }
    if (home >= 0) {
        close(home);
    }
}
