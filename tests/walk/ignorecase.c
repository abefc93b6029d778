/*
 * A file system that ignores the case of names but keeps it, as far as a
 * program that uses *at() calls can tell: preloaded, it looks up each name in
 * the directories below $IGNORECASE as such a file system would, and passes on
 * the name that is stored. For tests, which can so do without mounting one.
 *
 * With $IGNORECASE_INODES set its inode numbers are those of a FUSE file system
 * that has none of its own: each spelling has another one, and directories list
 * none.
 */
#undef _FILE_OFFSET_BITS
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int real_openat(int dirfd, const char *name, int flags, mode_t mode)
{
    return (int)syscall(SYS_openat, dirfd, name, flags, mode);
}

static int is_below(int dirfd)
{
    const char *root = getenv("IGNORECASE");
    char link[40], path[PATH_MAX];
    ssize_t len;

    snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
    len = readlink(link, path, sizeof path);
    return root && dirfd >= 0 && len >= (ssize_t)strlen(root) &&
           strncmp(path, root, strlen(root)) == 0;
}

/* The stored name that equals `name`; `name` itself if there is none. */
static const char *fold(int dirfd, const char *name, char out[NAME_MAX + 1])
{
    const char *found = name;
    const struct dirent *d;
    DIR *dir;
    int fd;

    if (!name[0] || strchr(name, '/') || !is_below(dirfd)) {
        return name;
    }
    fd = real_openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    dir = fd < 0 ? NULL : fdopendir(fd);
    while (dir && (d = readdir(dir))) {
        if (strcasecmp(d->d_name, name) == 0) {
            found = strcpy(out, d->d_name);
            break;
        }
    }
    if (dir) {
        closedir(dir);
    }
    return found;
}

int mkdirat(int dirfd, const char *name, mode_t mode)
{
    char stored[NAME_MAX + 1];

    return (int)syscall(SYS_mkdirat, dirfd, fold(dirfd, name, stored), mode);
}

/* As programs with large files call them. */
int openat64(int dirfd, const char *name, int flags, ...)
{
    char stored[NAME_MAX + 1];
    va_list list;
    mode_t mode;

    va_start(list, flags);
    mode = va_arg(list, mode_t);
    va_end(list);
    return real_openat(dirfd, fold(dirfd, name, stored), flags, mode);
}

int fstatat64(int dirfd, const char *restrict name, struct stat64 *restrict st,
              int flags)
{
    char stored[NAME_MAX + 1];
    const char *found = fold(dirfd, name, stored);
    int result = (int)syscall(SYS_newfstatat, dirfd, found, st, flags);

    if (result == 0 && getenv("IGNORECASE_INODES") &&
        strcmp(found, name) != 0) {
        st->st_ino ^= (ino64_t)1 << 40;
    }
    return result;
}

struct dirent64 *readdir64(DIR *dir)
{
    static struct dirent64 *(*real)(DIR * dir);
    struct dirent64 *d;

    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "readdir64");
    }
    d = real(dir);
    if (d && getenv("IGNORECASE_INODES") && is_below(dirfd(dir))) {
        d->d_ino = 0xffffffff;
    }
    return d;
}

int statx(int dirfd, const char *restrict name, int flags, unsigned mask,
          struct statx *restrict stx)
{
    char stored[NAME_MAX + 1];

    return (int)syscall(SYS_statx, dirfd, fold(dirfd, name, stored), flags,
                        mask, stx);
}

int linkat(int from_fd, const char *from, int dirfd, const char *name,
           int flags)
{
    char a[NAME_MAX + 1], b[NAME_MAX + 1];

    return (int)syscall(SYS_linkat, from_fd, fold(from_fd, from, a), dirfd,
                        fold(dirfd, name, b), flags);
}

int symlinkat(const char *to, int dirfd, const char *name)
{
    char stored[NAME_MAX + 1];

    return (int)syscall(SYS_symlinkat, to, dirfd, fold(dirfd, name, stored));
}

int renameat2(int from_fd, const char *from, int dirfd, const char *name,
              unsigned flags)
{
    char a[NAME_MAX + 1], b[NAME_MAX + 1];

    return (int)syscall(SYS_renameat2, from_fd, fold(from_fd, from, a), dirfd,
                        fold(dirfd, name, b), flags);
}

int unlinkat(int dirfd, const char *name, int flags)
{
    char stored[NAME_MAX + 1];

    return (int)syscall(SYS_unlinkat, dirfd, fold(dirfd, name, stored), flags);
}
