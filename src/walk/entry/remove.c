/*
 * Removing an entry with all that is below it, without recursion: open
 * directories are a stack, the lowest of them is emptied first.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* A directory that is being emptied. */
struct level {
    DIR *dir;
    char *name; /* in the one above */
};

static int failed(const char *doing, const char *name)
{
    return poise_error_set(errno, doing, name, NULL);
}

static int enter(int dirfd, const char *name, struct poise_buf *levels)
{
    struct level level = {0};
    int fd =
        poise_file_open(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);

    if (fd < 0) {
        return fd;
    }
    level.dir = fdopendir(fd);
    level.name = strdup(name);
    if (!level.dir || !level.name ||
        poise_buf_append(levels, &level, sizeof level) < 0) {
        if (level.dir) {
            closedir(level.dir);
        } else {
            close(fd);
        }
        free(level.name);
        return poise_error_set(ENOMEM, "remove", name, NULL);
    }
    return 0;
}

/* Remove what is no directory, or an empty one; -EISDIR if it is a full
 * one. */
static int remove_one(int dirfd, const char *name)
{
    if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }
    if (errno == EISDIR || errno == EPERM) {
        int code = errno;
        if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
            return 0;
        }
        if (errno == ENOTEMPTY || errno == EEXIST || errno == EACCES) {
            return -EISDIR;
        }
        errno = errno == ENOTDIR ? code : errno;
    }
    return failed("remove", name);
}

static struct level *top_of(struct poise_buf *levels)
{
    return (struct level *)(void *)(levels->data + levels->len) - 1;
}

static void drop(struct poise_buf *levels)
{
    closedir(top_of(levels)->dir);
    free(top_of(levels)->name);
    levels->len -= sizeof(struct level);
}

/* The next thing to do in the lowest directory. */
static int step(int outside, struct poise_buf *levels)
{
    struct level *top = top_of(levels);
    const struct dirent *entry;
    int fd = dirfd(top->dir), code;

    errno = 0;
    entry = readdir(top->dir);
    if (entry) {
        if (strcmp(entry->d_name, ".") == 0 ||
            strcmp(entry->d_name, "..") == 0) {
            return 0;
        }
        code = remove_one(fd, entry->d_name);
        return code == -EISDIR ? enter(fd, entry->d_name, levels) : code;
    }
    if (errno) {
        return failed("read directory", top->name);
    }
    fd = levels->len > sizeof *top ? dirfd((top - 1)->dir) : outside;
    if (unlinkat(fd, top->name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        return failed("remove", top->name);
    }
    drop(levels);
    return 0;
}

int poise_walk_remove(int dirfd, const char *name)
{
    struct poise_buf levels = {0};
    int code = remove_one(dirfd, name);

    if (code == -EISDIR) {
        code = enter(dirfd, name, &levels);
    }
    while (code == 0 && levels.len > 0) {
        code = step(dirfd, &levels);
    }
    while (levels.len > 0) {
        drop(&levels);
    }
    poise_buf_free(&levels);
    return code;
}
