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

void tar_place_init(struct tar_place *place, int root)
{
    *place = (struct tar_place){
        .root = root, .here = {.fd = -1}, .above = {.fd = -1}};
}

static void forget(struct tar_opened *opened)
{
    if (opened->fd >= 0) {
        close(opened->fd);
    }
    opened->fd = -1;
}

void tar_place_free(struct tar_place *place)
{
    forget(&place->here);
    forget(&place->above);
    poise_buf_free(&place->here.path);
    poise_buf_free(&place->above.path);
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

/* How much of a path of `len` bytes leads to the opened directory: all of it,
 * or less if that is on the way; 0: nothing. */
static size_t leads(const struct tar_opened *opened, const char *name,
                    size_t len)
{
    size_t has = opened->path.len;
    return opened->fd >= 0 && has <= len &&
                   memcmp(opened->path.data, name, has) == 0 &&
                   (has == len || name[has] == '/')
               ? has
               : 0;
}

static int remember(struct tar_place *place, struct tar_opened *opened, int fd,
                    const char *name, size_t len)
{
    forget(opened);
    poise_buf_reset(&opened->path);
    if (poise_buf_append(&opened->path, name, len) < 0) {
        close(fd);
        return -ENOMEM;
    }
    opened->fd = fd;
    opened->serial = ++place->opened;
    return 0;
}

/* Open it from `from` bytes of its path on, which lead to `at`: this and what
 * holds it are remembered. */
static int go_down(struct tar_place *place, char *name, size_t len, int at,
                   size_t from, bool make)
{
    int above = at, code = 0;
    size_t above_len = from;
    while (from < len) {
        size_t begin = from ? from + 1 : 0;
        size_t to = begin + strcspn(name + begin, "/");
        char saved = name[to];
        name[to] = '\0';
        int fd = step(place, at, name + begin, name, to, make);
        name[to] = saved;
        if (above != at && above != place->root && above != place->here.fd &&
            above != place->above.fd) {
            close(above);
        }
        above = at;
        above_len = from;
        at = fd;
        from = to;
        if (fd < 0) {
            len = 0;
        }
    }
    if (above == place->here.fd && above >= 0) {
        struct tar_opened other = place->above;
        place->above = place->here;
        place->here = other;
    } else if (above != place->above.fd && above != place->root) {
        code = remember(place, &place->above, above, name, above_len);
    }
    if (at < 0) {
        return at;
    }
    int kept = remember(place, &place->here, at, name, len);
    return kept < 0 ? kept : code;
}

int tar_place_open(struct tar_place *place, char *name, bool make,
                   const char **last)
{
    char *slash = strrchr(name, '/');
    size_t len = slash ? (size_t)(slash - name) : 0;
    *last = slash ? slash + 1 : name;
    place->serial = 0;
    if (len == 0) {
        return place->root;
    }
    size_t here = leads(&place->here, name, len);
    size_t above = leads(&place->above, name, len);
    struct tar_opened *nearest = here >= above ? &place->here : &place->above;
    size_t from = here >= above ? here : above;
    if (from < len) {
        int code = go_down(place, name, len, from ? nearest->fd : place->root,
                           from, make);
        if (code < 0) {
            return code;
        }
        nearest = &place->here;
    }
    place->serial = nearest->serial;
    return nearest->fd;
}
