/* The taking end: what comes when a directory, or all, was told. */
#include "receiver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- deletions ---------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

static bool was_told(const struct take *take, const struct take_dir *dir,
                     const char *name)
{
    uint64_t hash = poise_hash_bytes(name, strlen(name), take->seed);

    return dir->told.len > 0 &&
           bsearch(&hash, dir->told.data, dir->told.len / sizeof hash,
                   sizeof hash, by_value);
}

static int delete_one(struct take *take, struct take_dir *dir, int fd,
                      const char *name)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        strcmp(name, take->making.temporary) == 0 ||
        was_told(take, dir, name)) {
        return 0;
    }
    if (!take->transfer->options.dry && poise_walk_remove(fd, name) < 0) {
        return take_problem(take, dir, name);
    }
    return take_deed(take, dir, name, POISE_REMOTE_DELETED);
}

/* The names first: what is deleted while a directory is read may hide
 * others. */
static int read_names(int fd, struct poise_buf *names)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = own < 0 ? NULL : fdopendir(own);
    const struct dirent *entry;
    int code = 0;

    if (!stream) {
        code = poise_error_set(errno, "read directory", NULL, NULL);
        if (own >= 0) {
            close(own);
        }
        return code;
    }
    errno = 0;
    while ((entry = readdir(stream))) {
        poise_buf_append(names, entry->d_name, strlen(entry->d_name) + 1);
        errno = 0;
    }
    code = errno ? poise_error_set(errno, "read directory", NULL, NULL)
                 : names->error;
    closedir(stream);
    return code;
}

int take_delete(struct take *take, struct take_dir *dir)
{
    struct poise_buf names = {0};
    int fd, code;

    if (!take->transfer->options.remove || dir->failed || dir->is_absent ||
        dir->is_incomplete) {
        return 0;
    }
    fd = code = take_dir_open(take, dir, &take->listed);
    if (fd >= 0) {
        code = read_names(fd, &names);
    }
    if (code < 0) {
        poise_buf_free(&names);
        return take_is_fatal(code) ? code : take_problem(take, dir, "");
    }
    if (dir->told.len > 0) {
        qsort(dir->told.data, dir->told.len / sizeof(uint64_t),
              sizeof(uint64_t), by_value);
    }
    code = 0;
    for (size_t at = 0; at < names.len && code == 0;
         at += strlen(names.data + at) + 1) {
        code = delete_one(take, dir, fd, names.data + at);
    }
    poise_buf_free(&names);
    return code;
}

/* ---- hard links --------------------------------------------------------- */

/* Open the directory of a path below the target; no link is followed. Its
 * last component in *name. */
static int open_of(const struct take *take, const char *path, const char **name)
{
    int fd = dup(take->target_fd);
    const char *slash;

    if (fd < 0) {
        return poise_error_set(errno, "open", path, NULL);
    }
    while ((slash = strchr(path, '/'))) {
        char part[REMOTE_NAME_MOST + 1];
        int below;

        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        below =
            poise_file_open(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
        close(fd);
        if (below < 0) {
            return below;
        }
        fd = below;
        path = slash + 1;
    }
    *name = path;
    return fd;
}

static bool is_same(int from, const char *name, int fd, const char *other)
{
    struct stat a, b;

    return fstatat(from, name, &a, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(fd, other, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int make_link(struct take *take, const struct take_link *link)
{
    const struct poise_remote_options *options = &take->transfer->options;
    const char *name = NULL;
    int fd, from, code;

    code = fd = link->dir->is_absent
                    ? -ENOENT
                    : take_dir_open(take, link->dir, &take->listed);
    if (fd >= 0) {
        code = from = open_of(take, link->to, &name);
        if (from >= 0) {
            code = options->dry
                       ? !is_same(from, name, fd, link->name)
                       : poise_walk_make_link(from, name, fd, link->name,
                                              options->remove);
            close(from);
        }
    }
    code = options->dry && code < 0 ? 1 : code;
    if (code < 0) {
        return take_is_fatal(code) ? code
                                   : take_problem(take, link->dir, link->name);
    }
    return code ? take_deed(take, link->dir, link->name, POISE_REMOTE_LINKED)
                : 0;
}

int take_links(struct take *take)
{
    int code = 0;

    while (take->links && code == 0) {
        struct take_link *link = take->links;

        code = make_link(take, link);
        if (code == 0) {
            code = take_dir_drop(take, link->dir);
            take->links = link->next;
            free(link);
        }
    }
    return code;
}
