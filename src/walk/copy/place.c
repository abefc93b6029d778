/* Where an entry goes: the directory below the counterpart, and the name. */
#include "internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = NAME_MAX + 1 };

/* A root's place is a path: the functions below want a directory and a name. */
static int place_root(struct copy_worker *w,
                      const struct poise_walk_entry *entry,
                      struct copy_place *out)
{
    const char *path = poise_walk_counterpart_name(entry);
    const char *slash = strrchr(path, '/');
    int fd;

    if (!slash) {
        *out = (struct copy_place){AT_FDCWD, path};
        return 0;
    }
    poise_buf_reset(&w->path);
    poise_buf_append(&w->path, path,
                     slash == path ? 1 : (size_t)(slash - path));
    fd = poise_file_open(AT_FDCWD, poise_buf_str(&w->path),
                         O_PATH | O_DIRECTORY, 0);
    if (fd < 0) {
        return fd == -ENOENT ? -ENOTDIR : fd;
    }
    w->parent_fd = fd;
    *out = (struct copy_place){fd, slash + 1};
    return 0;
}

int copy_place(struct copy_worker *w, const struct poise_walk_entry *entry,
               struct copy_place *out)
{
    int fd;

    if (!entry->dir) {
        return place_root(w, entry, out);
    }
    fd = poise_walk_counterpart_fd(entry);
    if (fd < 0) {
        return fd == -ENOTDIR || fd == -ENOENT ? -ENOENT : -ECANCELED;
    }
    *out = (struct copy_place){fd, entry->name};
    return 0;
}

void copy_place_end(struct copy_worker *w)
{
    if (w->parent_fd >= 0) {
        close(w->parent_fd);
        w->parent_fd = -1;
    }
}

int copy_relative_path(const struct copy *copy,
                       const struct poise_walk_entry *entry,
                       struct poise_buf *out)
{
    const char *root = copy->options->walk.roots[entry->root];
    size_t begin = out->len, skip = strlen(root);
    int code;

    if (!entry->dir) {
        return 0;
    }
    code = poise_walk_path(entry, out);
    if (code < 0 || out->error) {
        return code < 0 ? code : out->error;
    }
    /* Without the operand, and the slash that follows it if it has none. */
    skip += skip == 0 || root[skip - 1] != '/';
    memmove(out->data + begin, out->data + begin + skip,
            out->len - begin - skip);
    out->len -= skip;
    return 0;
}

int copy_place_path(const struct copy *copy,
                    const struct poise_walk_entry *entry, struct poise_buf *out)
{
    poise_buf_puts(out, copy->plan.targets[entry->root]);
    if (!entry->dir) {
        return out->error;
    }
    poise_buf_putc(out, '/');
    return copy_relative_path(copy, entry, out);
}

int copy_open_below(int fd, const char *path, size_t len)
{
    int at = openat(fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char name[PIECE_BYTES];

    while (at >= 0 && len > 0) {
        const char *slash = memchr(path, '/', len);
        size_t part = slash ? (size_t)(slash - path) : len;
        int next;

        if (part >= sizeof name) {
            close(at);
            return -ENAMETOOLONG;
        }
        memcpy(name, path, part);
        name[part] = 0;
        next = part == 0
                   ? dup(at)
                   : openat(at, name,
                            O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        next = next < 0 ? -errno : next;
        close(at);
        at = next;
        path += part + (slash != NULL);
        len -= part + (slash != NULL);
    }
    return at < 0 && at == -1 ? -errno : at;
}

/* ---- directories that a filter left out ---------------------------------- */

/* The mark on a directory that one of a depth, above it or itself, was made. As
 * they go up from leave to leave, they find it whichever rank has it. The
 * deepest share one. */
static uint64_t made_mark(size_t depth)
{
    enum { FIRST = 1, DEEPEST = 62 };

    return UINT64_C(1) << (FIRST + (depth < DEEPEST ? depth : DEEPEST));
}

bool copy_place_was_made(const struct poise_walk_entry *entry)
{
    const struct poise_walk_dir *self = poise_walk_self(entry);
    uint64_t marks = self ? poise_walk_marks(self) : 0;

    if (marks && entry->dir) {
        poise_walk_mark(entry->dir, marks);
    }
    return marks & made_mark(entry->depth);
}

/* Of a directory that is made, until all is in it: nobody else gives it, so
 * that a copy that was killed leaves word of what it made. */
#define BEGUN_MODE (S_ISVTX | 0700)

bool copy_place_is_begun(const struct copy_place *place)
{
    struct stat st;

    return fstatat(place->fd, place->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & ~(mode_t)(S_IFMT | S_ISGID)) == BEGUN_MODE;
}

/* From the root on: what is there is entered, the rest is made. */
int copy_place_make(struct copy_worker *w, const struct poise_walk_entry *entry)
{
    const char *place = w->copy->plan.places[entry->root];
    struct poise_walk_dir **line;
    size_t depth = 0;
    int fd = -1, code = 0;

    for (const struct poise_walk_dir *d = entry->dir; d;
         d = poise_walk_dir_parent(d)) {
        depth++;
    }
    line = poise_alloc(depth + 1, sizeof *line);
    if (!line) {
        return -ENOMEM;
    }
    for (struct poise_walk_dir *d = entry->dir; d;
         d = poise_walk_dir_parent(d)) {
        line[--depth] = d;
    }
    fd = AT_FDCWD;
    for (size_t i = 0; code == 0; i++) {
        const char *name = i == 0 ? place : poise_walk_dir_name(line[i]);
        int next;

        if (mkdirat(fd, name, BEGUN_MODE) == 0) {
            copy_count_directory(w);
            poise_walk_mark(entry->dir, made_mark(i));
        } else if (errno != EEXIST) {
            code = poise_error_set(errno, "make directory", name, NULL);
            break;
        }
        next = poise_file_open(fd, name,
                               O_PATH | O_DIRECTORY | (i ? O_NOFOLLOW : 0), 0);
        if (fd >= 0) {
            close(fd);
        }
        fd = next;
        code = next < 0 ? next : 0;
        if (line[i] == entry->dir) {
            break;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    free(line);
    return code;
}
