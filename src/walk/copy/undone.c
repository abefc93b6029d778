/*
 * What an interrupted copy did not do, as far as a short look tells: level by
 * level, what is at the source and not, or not the same, at the target. A
 * directory gets its times when all is in it, so one that has them is done.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOKS_MOST = 2000 }; /* at entries: on a slow server, seconds */

struct undone {
    const struct copy *copy;
    struct poise_copy_result *result;
    size_t root;
    unsigned looks;
    struct poise_buf queue; /* paths below the root, each ended by a 0 */
    size_t at;              /* in it: the next one */
};

static int add_line(struct undone *undone, const char *path, const char *name)
{
    struct poise_copy_result *result = undone->result;
    struct poise_buf line = {0};

    if (result->undone_count == POISE_COPY_LINES) {
        result->undone_more = true;
        return 0;
    }
    poise_buf_puts(&line, undone->copy->plan.targets[undone->root]);
    if (name[0]) {
        poise_buf_printf(&line, "/%s%s", path, path[0] ? "/" : "");
        poise_buf_puts(&line, name);
    }
    poise_buf_str(&line);
    if (line.error) {
        poise_buf_free(&line);
        return -ENOMEM;
    }
    result->undone[result->undone_count++] = line.data;
    return 0;
}

static bool is_done(const struct stat *st, const struct stat *there)
{
    return !((st->st_mode ^ there->st_mode) & S_IFMT) &&
           st->st_mtim.tv_sec == there->st_mtim.tv_sec &&
           st->st_mtim.tv_nsec == there->st_mtim.tv_nsec &&
           (!S_ISREG(st->st_mode) || st->st_size == there->st_size);
}

/* One entry of the directory `path`. */
static int look_at(struct undone *undone, const char *path, int from, int to,
                   const char *name)
{
    struct stat st, there = {0};

    undone->looks++;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0; /* it is gone */
    }
    if (fstatat(to, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
        is_done(&st, &there)) {
        return 0;
    }
    if (!S_ISDIR(st.st_mode) || !S_ISDIR(there.st_mode)) {
        return add_line(undone, path, name);
    }
    poise_buf_printf(&undone->queue, "%s%s", path, path[0] ? "/" : "");
    poise_buf_puts(&undone->queue, name);
    return poise_buf_putc(&undone->queue, 0);
}

static int open_at(const char *root, const char *path)
{
    int at = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = at < 0 ? -1 : copy_open_below(at, path, strlen(path));

    if (at >= 0) {
        close(at);
    }
    return fd;
}

static DIR *open_list(int at)
{
    int fd = at < 0 ? -1 : openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (!dir && fd >= 0) {
        close(fd);
    }
    return dir;
}

/* A directory that is at both ends, and not done. What cannot be read was
 * reported by the walk. */
static int look_in(struct undone *undone, const char *path)
{
    const struct copy *copy = undone->copy;
    int from = open_at(copy->options->walk.roots[undone->root], path);
    int to = open_at(copy->plan.places[undone->root], path);
    DIR *dir = to < 0 ? NULL : open_list(from);
    const struct dirent *d;
    int code = 0;

    while (dir && code == 0 && undone->looks < LOOKS_MOST &&
           (d = readdir(dir))) {
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0) {
            code = look_at(undone, path, from, to, d->d_name);
        }
    }
    if (dir) {
        closedir(dir);
    }
    if (from >= 0) {
        close(from);
    }
    if (to >= 0) {
        close(to);
    }
    return code;
}

static int look_at_root(struct undone *undone)
{
    const struct copy *copy = undone->copy;
    struct stat st, there;
    int code = 0;

    if (lstat(copy->options->walk.roots[undone->root], &st) != 0) {
        return 0;
    }
    if (lstat(copy->plan.places[undone->root], &there) != 0 ||
        (!S_ISDIR(st.st_mode) && !is_done(&st, &there))) {
        return add_line(undone, "", "");
    }
    if (!S_ISDIR(st.st_mode)) {
        return 0;
    }
    poise_buf_reset(&undone->queue);
    poise_buf_putc(&undone->queue, 0);
    for (undone->at = 0;
         code == 0 && !undone->queue.error && undone->at < undone->queue.len &&
         undone->looks < LOOKS_MOST && !undone->result->undone_more;) {
        /* The queue moves while it grows. */
        char *path = strdup(undone->queue.data + undone->at);

        code = path ? look_in(undone, path) : -ENOMEM;
        undone->at += path ? strlen(path) + 1 : 0;
        free(path);
    }
    undone->result->undone_more |= undone->at < undone->queue.len;
    return code < 0 ? code : undone->queue.error;
}

int copy_undone(const struct copy *copy, struct poise_copy_result *result)
{
    struct undone undone = {.copy = copy, .result = result};
    int code = 0;

    result->undone = poise_alloc(POISE_COPY_LINES, sizeof *result->undone);
    if (!result->undone) {
        return -ENOMEM;
    }
    for (; code == 0 && undone.root < copy->plan.count; undone.root++) {
        if (undone.looks >= LOOKS_MOST || result->undone_more) {
            result->undone_more = true;
            break;
        }
        code = look_at_root(&undone);
    }
    result->undone_more |= undone.looks >= LOOKS_MOST;
    poise_buf_free(&undone.queue);
    return code;
}
