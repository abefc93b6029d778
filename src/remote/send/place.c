/*
 * Where paths lead that this end was given.
 *
 * A user's own mean what they mean to every program. Those of another end, if
 * this one is restricted to a directory, begin there, whether they begin with
 * a slash or not, and are walked component by component: none is "..", none is
 * a symbolic link, so that no rename and no link that is made meanwhile leads
 * out. (openat2 does the same where a sandbox lets it through; this does it
 * everywhere.)
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int remote_root_open(struct remote_transfer *transfer, const char *path)
{
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);

    transfer->root_fd = fd;
    transfer->is_restricted = fd >= 0;
    return fd < 0 ? fd : 0;
}

/* The next component, behind slashes and dots: its length, 0 at the end. */
static size_t next_part(const char **path)
{
    size_t len;

    do {
        *path += strspn(*path, "/");
        len = strcspn(*path, "/");
        if (len != 1 || **path != '.') {
            return len;
        }
        *path += len;
    } while (true);
}

/* Open a directory in one: `name` is freed unless it is not there, and returned
 * in *missing. */
static int enter(int fd, const char *part, size_t len, const char *path,
                 char **missing)
{
    char *name = strndup(part, len);
    int below =
        name ? poise_file_open(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0)
             : -ENOMEM;

    if (below == -ELOOP || below == -ENOTDIR) {
        poise_error_set(-below, "open", path,
                        "on the way is no directory, or a symbolic link, "
                        "which a restricted server does not follow");
    }
    if (below == -ENOENT) {
        *missing = name;
    } else {
        free(name);
    }
    return below;
}

/* From the root on; `place` is at the root, its own descriptor. */
static int walk(const char *path, struct remote_place *place)
{
    const char *at = path;
    size_t len;

    while ((len = next_part(&at)) > 0) {
        const char *rest = at + len;
        int below;

        if (len == 2 && at[0] == '.' && at[1] == '.') {
            return poise_error_set(EPERM, "open", path,
                                   "'..' is not for a restricted server");
        }
        if (!*rest) {
            place->name = at;
            return 0;
        }
        below = enter(place->fd, at, len, path, &place->own);
        if (below == -ENOENT && next_part(&rest) == 0) {
            /* "NAME/", which may be about to be made. */
            place->name = place->own;
            return 0;
        }
        if (below < 0) {
            return below;
        }
        close(place->fd);
        place->fd = below;
        at = rest;
    }
    return 0;
}

int remote_place_open(const struct remote_transfer *transfer, const char *path,
                      struct remote_place *place)
{
    int code;

    if (!transfer->is_restricted) {
        *place = (struct remote_place){AT_FDCWD, 0, *path ? path : ".", NULL};
        return 0;
    }
    *place = (struct remote_place){.follow = O_NOFOLLOW, .name = "."};
    place->fd = fcntl(transfer->root_fd, F_DUPFD_CLOEXEC, 0);
    if (place->fd < 0) {
        return poise_error_set(errno, "open", path, NULL);
    }
    code = walk(path, place);
    if (code < 0) {
        remote_place_close(place);
    }
    return code;
}

void remote_place_close(struct remote_place *place)
{
    if (place->fd != AT_FDCWD) {
        close(place->fd);
    }
    free(place->own);
    place->own = NULL;
}
