/*
 * A slow file server, emulated below everybody: passes a tree through,
 * read-only, and delays every lookup and getattr. The kernel keeps names and
 * attributes for a second (clients of NFS keep them for 3 to 60), so an entry
 * costs one delay in a walk, and its directory none again soon after. Offsets
 * in directories are those of the tree below.
 *
 * usage: slowfs DELAY_US SOURCE MOUNTPOINT [FUSE OPTIONS]
 */
#define FUSE_USE_VERSION 35

#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES 32768
#define KEPT_SECONDS 1.0

struct entry {
    uint64_t ino;
    int64_t off;
    unsigned short reclen;
    unsigned char type;
    char name[];
};

/* An open directory. Reads of one handle come in parallel. */
struct handle {
    pthread_mutex_t lock;
    int fd;
};

static struct {
    int root;
    struct timespec delay;
} slow;

/* Paths come as "/a/b"; ours are relative to the root. */
static const char *below(const char *path)
{
    while (*path == '/') {
        path++;
    }
    return *path ? path : ".";
}

static int slow_getattr(const char *path, struct stat *out,
                        struct fuse_file_info *info)
{
    (void)info;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &slow.delay, NULL);
    return fstatat(slow.root, below(path), out, AT_SYMLINK_NOFOLLOW) ? -errno
                                                                     : 0;
}

static int slow_readlink(const char *path, char *out, size_t size)
{
    ssize_t len = readlinkat(slow.root, below(path), out, size - 1);
    if (len < 0) {
        return -errno;
    }
    out[len] = '\0';
    return 0;
}

static int slow_opendir(const char *path, struct fuse_file_info *info)
{
    struct handle *handle = malloc(sizeof *handle);
    if (!handle) {
        return -ENOMEM;
    }
    handle->fd = openat(slow.root, below(path),
                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (handle->fd < 0) {
        int code = -errno;
        free(handle);
        return code;
    }
    pthread_mutex_init(&handle->lock, NULL);
    info->fh = (uint64_t)(uintptr_t)handle;
    return 0;
}

static struct handle *handle_of(const struct fuse_file_info *info)
{
    return (struct handle *)(uintptr_t)info->fh;
}

static int slow_readdir(const char *path, void *buf, fuse_fill_dir_t fill,
                        off_t off, struct fuse_file_info *info,
                        enum fuse_readdir_flags flags)
{
    (void)path;
    (void)flags;
    struct handle *handle = handle_of(info);
    char names[BUFFER_BYTES] __attribute__((aligned(8)));
    int code = 0;
    pthread_mutex_lock(&handle->lock);
    if (lseek(handle->fd, off, SEEK_SET) < 0) {
        code = -errno;
    }
    for (int full = 0; !full && !code;) {
        long got = syscall(SYS_getdents64, handle->fd, names, sizeof names);
        if (got <= 0) {
            code = got < 0 ? -errno : 0;
            break;
        }
        for (long at = 0; at < got && !full;) {
            const struct entry *entry = (const struct entry *)(names + at);
            struct stat st = {.st_ino = entry->ino,
                              .st_mode = (mode_t)entry->type << 12};
            full = fill(buf, entry->name, &st, entry->off, 0);
            at += entry->reclen;
        }
    }
    pthread_mutex_unlock(&handle->lock);
    return code;
}

static int slow_releasedir(const char *path, struct fuse_file_info *info)
{
    (void)path;
    struct handle *handle = handle_of(info);
    close(handle->fd);
    pthread_mutex_destroy(&handle->lock);
    free(handle);
    return 0;
}

static int slow_open(const char *path, struct fuse_file_info *info)
{
    if ((info->flags & O_ACCMODE) != O_RDONLY) {
        return -EROFS;
    }
    int fd = openat(slow.root, below(path), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    info->fh = (uint64_t)fd;
    return 0;
}

static int slow_read(const char *path, char *out, size_t size, off_t off,
                     struct fuse_file_info *info)
{
    (void)path;
    ssize_t got = pread((int)info->fh, out, size, off);
    return got < 0 ? -errno : (int)got;
}

static int slow_release(const char *path, struct fuse_file_info *info)
{
    (void)path;
    close((int)info->fh);
    return 0;
}

static int slow_statfs(const char *path, struct statvfs *out)
{
    (void)path;
    return fstatvfs(slow.root, out) ? -errno : 0;
}

static void *slow_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
    /* Otherwise names come with attributes, for nothing. */
    conn->want &= ~(unsigned)(FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
    config->entry_timeout = KEPT_SECONDS;
    config->negative_timeout = 0;
    config->attr_timeout = KEPT_SECONDS;
    config->use_ino = 1;
    return NULL;
}

static const struct fuse_operations operations = {
    .init = slow_init,
    .getattr = slow_getattr,
    .readlink = slow_readlink,
    .opendir = slow_opendir,
    .readdir = slow_readdir,
    .releasedir = slow_releasedir,
    .open = slow_open,
    .read = slow_read,
    .release = slow_release,
    .statfs = slow_statfs,
};

int main(int argc, char **argv)
{
    char *end = NULL;
    long delay_us = argc > 3 ? strtol(argv[1], &end, 10) : -1;
    if (delay_us < 0 || !end || *end) {
        fprintf(stderr, "usage: slowfs DELAY_US SOURCE MOUNTPOINT "
                        "[FUSE OPTIONS]\n");
        return 2;
    }
    slow.delay.tv_sec = delay_us / 1000000;
    slow.delay.tv_nsec = delay_us % 1000000 * 1000;
    slow.root = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (slow.root < 0) {
        fprintf(stderr, "slowfs: cannot open directory '%s': %s\n", argv[2],
                strerror(errno));
        return 1;
    }
    /* A thread per call in flight: ours is the delay, not the queue. */
    char threads_option[] = "-omax_threads=128,max_idle_threads=128";
    char mount_option[] = "-oro,default_permissions,allow_other";
    char **options = calloc((size_t)argc + 4, sizeof *options);
    if (!options) {
        return 1;
    }
    int count = 0;
    options[count++] = argv[0];
    options[count++] = threads_option;
    options[count++] = mount_option;
    for (int i = 3; i < argc; i++) {
        options[count++] = argv[i];
    }
    options[count] = NULL;
    int code = fuse_main(count, options, &operations, NULL);
    free(options);
    return code;
}
