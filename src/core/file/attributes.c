/*
 * What a file that replaces another takes over from it: owner, access list,
 * attributes, mode, in this order, so that at no moment somebody may read it
 * who may not read the old one.
 */
#include "file.h"

#include <poise/base.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char acl_name[] = "system.posix_acl_access";

bool output_has_acl(const char *path)
{
    return getxattr(path, acl_name, NULL, 0) > 0;
}

/* Those that speak of the old contents, which the kernel drops or makes anew
 * when a file is written to. */
static bool is_of_contents(const char *name)
{
    static const char *const names[] = {"security.capability", "security.ima",
                                        "security.evm"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The names, each ended by NUL. 0 or a negative errno; the text is to be
 * freed. */
static int list_names(int fd, char **out, size_t *len)
{
    *out = NULL;
    *len = 0;
    ssize_t room = flistxattr(fd, NULL, 0);
    if (room <= 0) {
        return room == 0 || errno == ENOTSUP || errno == ENOSYS ? 0 : -errno;
    }
    *out = poise_alloc((size_t)room, 1);
    ssize_t got = *out != NULL ? flistxattr(fd, *out, (size_t)room) : -1;
    if (got < 0) {
        return *out != NULL ? -errno : -ENOMEM;
    }
    *len = (size_t)got;
    return 0;
}

static int copy_one(int from, int to, const char *name)
{
    ssize_t room = fgetxattr(from, name, NULL, 0);
    char *value = room > 0 ? poise_alloc((size_t)room, 1) : NULL;
    int code = room < 0 ? -errno : room > 0 && value == NULL ? -ENOMEM : 0;
    if (code == 0) {
        ssize_t got = room > 0 ? fgetxattr(from, name, value, (size_t)room) : 0;
        if (got < 0 || fsetxattr(to, name, value, (size_t)got, 0) != 0) {
            code = -errno;
        }
    }
    free(value);
    return code;
}

static int copy_attributes(int from, int to)
{
    char *names;
    size_t len;
    bool has_acl = false;
    int code = list_names(from, &names, &len);
    for (size_t at = 0; at < len && code == 0; at += strlen(names + at) + 1) {
        has_acl |= strcmp(names + at, acl_name) == 0;
        code = is_of_contents(names + at) ? 0 : copy_one(from, to, names + at);
    }
    free(names);
    /* The folder's default list made one; the old file has none. */
    if (code == 0 && !has_acl && fremovexattr(to, acl_name) != 0 &&
        errno != ENODATA && errno != ENOTSUP && errno != ENOSYS) {
        code = -errno;
    }
    return code;
}

int output_take_over(int from, int to)
{
    struct stat old, made;
    if (fstat(from, &old) != 0 || fstat(to, &made) != 0) {
        return -errno;
    }
    if ((old.st_uid != made.st_uid || old.st_gid != made.st_gid) &&
        fchown(to, old.st_uid, old.st_gid) != 0) {
        return -errno;
    }
    int code = copy_attributes(from, to);
    if (code == 0 && fchmod(to, old.st_mode & (0777 | S_ISVTX)) != 0) {
        code = -errno;
    }
    return code;
}
