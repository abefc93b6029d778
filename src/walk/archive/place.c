/*
 * Where members go: below the destination and nowhere else. Directories on the
 * way are opened one by one, by descriptors, and never through a symbolic link:
 * whoever puts one there, the archive or somebody else meanwhile, gets an
 * error.
 */
#include "internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

void tar_place_free(struct tar_place *place)
{
    if (place->fd >= 0) {
        close(place->fd);
    }
    poise_buf_free(&place->path);
    poise_buf_free(&place->implied);
}

int tar_place_name(const char *name, struct poise_buf *out)
{
    poise_buf_reset(out);
    for (const char *at = name; *at;) {
        size_t len = strcspn(at, "/");
        if (len == 2 && memcmp(at, "..", 2) == 0) {
            return poise_error_set(EINVAL, "extract", name,
                                   "a name with '..' is refused");
        }
        if (len > 0 && !(len == 1 && at[0] == '.')) {
            if (out->len > 0) {
                poise_buf_putc(out, '/');
            }
            poise_buf_append(out, at, len);
        }
        at += len;
        at += strspn(at, "/");
    }
    if (name[0] == '\0') {
        return poise_error_set(EINVAL, "extract", name, "it has no name");
    }
    poise_buf_str(out);
    return out->error;
}

int tar_place_clash(int dirfd, const char *name, uint64_t ino, const char *path)
{
    char other[NAME_MAX + 1];
    if (!entry_other_spelling(dirfd, name, ino, other)) {
        return 0;
    }
    return poise_error_set(EEXIST, "extract", path,
                           "the target ignores the case of letters, and has "
                           "'%s' in its place",
                           other);
}

/* Whether a directory that was opened has the name by which it was. As long as
 * nothing shows that the file system knows the case of letters. */
static int check_spelling(struct tar_place *place, int at, int fd,
                          const char *name, const char *path)
{
    struct stat st;
    char other[NAME_MAX + 1];
    if (place->case_matters || fstat(fd, &st) != 0) {
        return 0;
    }
    if (entry_is_only_spelling(at, name)) {
        place->case_matters = true;
        return 0;
    }
    if (!entry_other_spelling(at, name, st.st_ino, other)) {
        return 0;
    }
    return poise_error_set(EEXIST, "enter directory", path,
                           "the target ignores the case of letters, and has "
                           "'%s' in its place",
                           other);
}

/* One directory further; takes over nothing. The descriptor, or negative. */
static int step(struct tar_place *place, int at, const char *name,
                const char *path, size_t path_len, bool make)
{
    int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(at, name, flags);
    if (fd < 0 && errno == ENOENT && make) {
        if (mkdirat(at, name, 0700) == 0) {
            poise_buf_append(&place->implied, path, path_len);
            poise_buf_putc(&place->implied, '\0');
        }
        fd = openat(at, name, flags);
    }
    if (fd >= 0) {
        int code = check_spelling(place, at, fd, name, path);
        if (code < 0) {
            close(fd);
        }
        return code < 0 ? code : fd;
    }
    struct stat st;
    bool link = (errno == ELOOP || errno == ENOTDIR) &&
                fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISLNK(st.st_mode);
    return poise_error_set(errno, "enter directory", path, link ? "%s" : NULL,
                           "a symbolic link is in its place");
}

int tar_place_open(struct tar_place *place, char *name, bool make,
                   const char **last)
{
    char *slash = strrchr(name, '/');
    size_t len = slash ? (size_t)(slash - name) : 0;
    *last = slash ? slash + 1 : name;
    if (len == 0) {
        return place->root;
    }
    if (place->fd >= 0 && place->path.len == len &&
        memcmp(place->path.data, name, len) == 0) {
        return place->fd;
    }
    int at = place->root;
    for (size_t from = 0; from < len;) {
        size_t to = from + strcspn(name + from, "/");
        char saved = name[to];
        name[to] = '\0';
        int fd = step(place, at, name + from, name, to, make);
        name[to] = saved;
        if (at != place->root) {
            close(at);
        }
        if (fd < 0) {
            return fd;
        }
        at = fd;
        from = to + 1;
    }
    if (place->fd >= 0) {
        close(place->fd);
    }
    place->fd = at;
    place->serial++;
    poise_buf_reset(&place->path);
    if (poise_buf_append(&place->path, name, len) < 0) {
        close(place->fd);
        place->fd = -1;
        return -ENOMEM;
    }
    return at;
}
