/*
 * What an interrupted copy did not do, as far as a short look tells: level by
 * level, what is at the source and not, or not the same, at the target. A
 * directory gets its times when all is in it, so one that has them is done, but
 * for names of files that were being copied under another one: those are noted
 * by the ranks that met them, and come first.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOKS_MOST = 2000 }; /* at entries: on a slow server, seconds */

struct undone {
    struct copy *copy;
    struct poise_copy_result *result;
    size_t root;
    unsigned looks;
    struct poise_buf queue; /* paths below the root, each ended by a 0 */
    size_t at;              /* in it: the next one */
    struct poise_buf lines; /* this rank's: blobs */
    unsigned line_count;
    bool more;
};

static bool is_listed(const struct poise_copy_result *result, const char *line)
{
    for (size_t i = 0; i < result->undone_count; i++) {
        if (strcmp(result->undone[i], line) == 0) {
            return true;
        }
    }
    return false;
}

/* Each once. */
static int list(struct poise_copy_result *result, const char *text, size_t len)
{
    char *line = strndup(text, len);

    if (!line) {
        return -ENOMEM;
    }
    if (is_listed(result, line)) {
        free(line);
    } else if (result->undone_count == POISE_COPY_LINES) {
        result->undone_more = true;
        free(line);
    } else {
        result->undone[result->undone_count++] = line;
    }
    return 0;
}

static int put_path(const struct undone *undone, const char *path,
                    const char *name, struct poise_buf *out)
{
    poise_buf_puts(out, undone->copy->plan.targets[undone->root]);
    if (name[0]) {
        poise_buf_printf(out, "/%s%s", path, path[0] ? "/" : "");
        poise_buf_puts(out, name);
    }
    return out->error;
}

static int add_line(struct undone *undone, const char *path, const char *name)
{
    struct poise_buf line = {0};
    int code = put_path(undone, path, name, &line);

    code = code < 0 ? code : list(undone->result, line.data, line.len);
    poise_buf_free(&line);
    return code;
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

/* ---- names that were to be linked -----------------------------------------
 */

/* Whether what is at the source is not at the target, or not the same. */
static bool is_missing(const struct undone *undone, const char *path,
                       const char *name)
{
    const struct copy *copy = undone->copy;
    int from = open_at(copy->options->walk.roots[undone->root], path);
    int to = open_at(copy->plan.places[undone->root], path);
    struct stat st, there;
    bool missing =
        from >= 0 && fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        (to < 0 || fstatat(to, name, &there, AT_SYMLINK_NOFOLLOW) != 0 ||
         !is_done(&st, &there));

    if (from >= 0) {
        close(from);
    }
    if (to >= 0) {
        close(to);
    }
    return missing;
}

static int look_at_note(struct copy *copy, const struct copy_note *note,
                        void *arg)
{
    struct undone *undone = arg;
    char *slash = strrchr(note->path, '/');
    const char *path = slash ? note->path : "";
    const char *name = slash ? slash + 1 : note->path;
    struct poise_buf line = {0};

    (void)copy;
    if (slash) {
        *slash = 0;
    }
    if (undone->looks++ == LOOKS_MOST ||
        undone->line_count == POISE_COPY_LINES) {
        undone->more = true;
        return 1;
    }
    undone->root = (size_t)note->root;
    /* A root itself is looked at in any case. */
    if (name[0] && is_missing(undone, path, name)) {
        put_path(undone, path, name, &line);
        poise_buf_blob(&undone->lines, line.data, line.len);
        poise_buf_free(&line);
        undone->line_count++;
    }
    return undone->lines.error;
}

/* What rank 0 gathered: of each rank a blob of blobs. */
static int list_gathered(struct undone *undone, const struct poise_buf *all)
{
    struct poise_reader in = poise_reader_of(all->data, all->len);
    int code = 0;

    while (code == 0 && poise_reader_left(&in) > 0) {
        size_t len = 0;
        const void *blob = poise_reader_blob(&in, &len);
        struct poise_reader mine = poise_reader_of(blob, blob ? len : 0);

        undone->result->undone_more |= poise_reader_varint(&mine) != 0;
        while (code == 0 && !mine.error && poise_reader_left(&mine) > 0) {
            const char *line = poise_reader_blob(&mine, &len);

            code = line ? list(undone->result, line, len) : -EBADMSG;
        }
    }
    return code;
}

/* Collective. */
static int look_at_notes(struct undone *undone)
{
    struct poise_world *world = undone->copy->world;
    struct poise_buf mine = {0}, all = {0};
    int looked = copy_links_each(undone->copy, look_at_note, undone), code;

    poise_buf_varint(&mine, undone->more || looked < 0);
    poise_buf_append(&mine, undone->lines.data, undone->lines.len);
    code = world ? poise_world_gather(world, 0, mine.data, mine.len, &all)
                 : poise_buf_blob(&all, mine.data, mine.len);
    if (code == 0 && undone->copy->rank == 0) {
        code = list_gathered(undone, &all);
    }
    poise_buf_free(&undone->lines);
    poise_buf_free(&mine);
    poise_buf_free(&all);
    return code;
}

int copy_undone(struct copy *copy, struct poise_copy_result *result)
{
    struct undone undone = {.copy = copy, .result = result};
    int code = 0;

    if (copy->rank == 0) {
        result->undone = poise_alloc(POISE_COPY_LINES, sizeof *result->undone);
        code = result->undone ? 0 : -ENOMEM;
    }
    if (copy->world) {
        code = poise_world_agree(copy->world, code);
    }
    code = code < 0 ? code : look_at_notes(&undone);
    if (code < 0 || copy->rank != 0) {
        return code;
    }
    undone.looks = 0;
    for (undone.root = 0; code == 0 && undone.root < copy->plan.count;
         undone.root++) {
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
