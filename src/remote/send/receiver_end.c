/* The receiver: what is done when a directory, or all of them, was listed. */
#include "receiver.h"

#include <poise/remove.h>

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

static bool was_listed(const struct receiver *receiver,
                       const struct receiver_dir *dir, const char *name)
{
    uint64_t hash = poise_hash_bytes(name, strlen(name), receiver->seed);

    return dir->listed_names.len > 0 &&
           bsearch(&hash, dir->listed_names.data,
                   dir->listed_names.len / sizeof hash, sizeof hash, by_value);
}

static int delete_one(struct receiver *receiver, struct receiver_dir *dir,
                      int fd, const char *name)
{
    if (was_listed(receiver, dir, name)) {
        return 0;
    }
    if (!receiver->transfer->options.dry && poise_walk_remove(fd, name) < 0) {
        return receiver_report_problem(receiver, dir, name);
    }
    return receiver_report_action(receiver, dir, name, POISE_REMOTE_DELETED);
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

static bool is_deleting(const struct receiver *receiver,
                        const struct receiver_dir *dir)
{
    return receiver->transfer->options.remove && !dir->is_incomplete;
}

/* Whether somebody's temporary files may lie in it. To look for them the target
 * itself is read only where there is more to do than to give it attributes. */
static bool may_have_leftovers(const struct receiver *receiver,
                               const struct receiver_dir *dir)
{
    return !receiver->transfer->options.dry && !dir->is_new &&
           (dir->parent || dir->is_wanted);
}

static int clean_one(struct receiver *receiver, struct receiver_dir *dir,
                     int fd, const char *name)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return 0;
    }
    if (poise_walk_is_temporary(name)) {
        /* Nobody's, or somebody's who makes it just now, as this end may. */
        if (!receiver->transfer->options.dry) {
            poise_walk_remove_leftover(fd, name);
        }
        return 0;
    }
    return is_deleting(receiver, dir) ? delete_one(receiver, dir, fd, name) : 0;
}

int receiver_clean(struct receiver *receiver, struct receiver_dir *dir)
{
    struct poise_buf names = {0};
    bool deleting = is_deleting(receiver, dir);
    int fd, code;

    if (dir->failed || dir->is_absent ||
        !(deleting || may_have_leftovers(receiver, dir))) {
        return 0;
    }
    fd = code = receiver_dir_open(receiver, dir, &receiver->listed);
    if (fd >= 0) {
        code = read_names(fd, &names);
    }
    if (code < 0) {
        poise_buf_free(&names);
        if (receiver_is_fatal(code)) {
            return code;
        }
        return deleting ? receiver_report_problem(receiver, dir, "") : 0;
    }
    if (dir->listed_names.len > 0) {
        qsort(dir->listed_names.data, dir->listed_names.len / sizeof(uint64_t),
              sizeof(uint64_t), by_value);
    }
    code = 0;
    for (size_t at = 0; at < names.len && code == 0;
         at += strlen(names.data + at) + 1) {
        code = clean_one(receiver, dir, fd, names.data + at);
    }
    poise_buf_free(&names);
    return code;
}

/* ---- hard links --------------------------------------------------------- */

/* Open the directory of a path below the target; no link is followed. Its
 * last component in *name. */
static int open_of(const struct receiver *receiver, const char *path,
                   const char **name)
{
    int fd = dup(receiver->target_fd);
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

static int make_link(struct receiver *receiver,
                     const struct receiver_link *link)
{
    const struct poise_remote_options *options = &receiver->transfer->options;
    const char *name = NULL;
    int fd, from, code;

    code = fd = link->dir->is_absent
                    ? -ENOENT
                    : receiver_dir_open(receiver, link->dir, &receiver->listed);
    if (fd >= 0) {
        code = from = open_of(receiver, link->to, &name);
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
        return receiver_is_fatal(code)
                   ? code
                   : receiver_report_problem(receiver, link->dir, link->name);
    }
    return code ? receiver_report_action(receiver, link->dir, link->name,
                                         POISE_REMOTE_LINKED)
                : 0;
}

int receiver_links(struct receiver *receiver)
{
    int code = 0;

    while (receiver->links && receiver->links->after <= receiver->ended &&
           code == 0) {
        struct receiver_link *link = receiver->links;

        code = make_link(receiver, link);
        if (code == 0) {
            code = receiver_dir_drop(receiver, link->dir);
            receiver->links = link->next;
            receiver->last_link = link->next ? receiver->last_link : NULL;
            receiver_release(receiver, link->kept_bytes);
            free(link);
        }
    }
    return code;
}
