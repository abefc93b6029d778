/*
 * System calls on files: completed, retried, made to fail on demand, and
 * reported with their path.
 */

#include "file.h"

#include <poise/core.h>
#include <poise/file.h>
#include <poise/output.h>

#include "core/base/fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int poise_file_open(int dirfd, const char *path, int flags, mode_t mode)
{
    int code = fault_test(POISE_FAULT_OPEN);
    while (code == 0) {
        int fd = openat(dirfd, path, flags | O_CLOEXEC, mode);
        if (fd >= 0) {
            return fd;
        }
        if (errno != EINTR) {
            code = errno;
        }
    }
    return poise_error_set(code, "open", path, NULL);
}

int poise_file_close(int fd, const char *path)
{
    /* On Linux the descriptor is gone after EINTR too: never close again. */
    if (close(fd) != 0 && errno != EINTR) {
        return poise_error_set(errno, "close", path, NULL);
    }
    return 0;
}

/** One system call that moves bytes; `offset` is ignored by the plain ones. */
typedef ssize_t file_transfer(int fd, char *data, size_t len, uint64_t offset);

static ssize_t file_read_once(int fd, char *data, size_t len, uint64_t offset)
{
    (void)offset;
    return read(fd, data, len);
}

static ssize_t file_pread_once(int fd, char *data, size_t len, uint64_t offset)
{
    return pread(fd, data, len, (off_t)offset);
}

static ssize_t file_write_once(int fd, char *data, size_t len, uint64_t offset)
{
    (void)offset;
    return write(fd, data, len);
}

static ssize_t file_pwrite_once(int fd, char *data, size_t len, uint64_t offset)
{
    return pwrite(fd, data, len, (off_t)offset);
}

/* Repeat `once` until all of `len` is moved or it moves nothing. Returns the
 * bytes moved, or a negative errno value that is not yet recorded. */
static ssize_t file_repeat(file_transfer *once, enum poise_fault kind, int fd,
                           char *data, size_t len, uint64_t offset)
{
    size_t done = 0;
    if (len > SSIZE_MAX || offset > INT64_MAX - len) {
        return -EINVAL;
    }
    while (done < len) {
        int code = fault_test(kind);
        if (code != 0) {
            return -code;
        }
        ssize_t n = once(fd, data + done, len - done, offset + done);
        if (n == 0) {
            break;
        }
        if (n > 0) {
            done += (size_t)n;
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return (ssize_t)done;
}

static ssize_t file_get(file_transfer *once, int fd, void *data, size_t len,
                        uint64_t offset, const char *path)
{
    ssize_t n = file_repeat(once, POISE_FAULT_READ, fd, data, len, offset);
    return n < 0 ? poise_error_set((int)-n, "read", path, NULL) : n;
}

static int file_put(file_transfer *once, int fd, const void *data, size_t len,
                    uint64_t offset, const char *path)
{
    /* The writers above do not write to memory. */
    ssize_t n =
        file_repeat(once, POISE_FAULT_WRITE, fd, (char *)data, len, offset);
    if (n < 0) {
        return poise_error_set((int)-n, "write", path, NULL);
    }
    if ((size_t)n < len) {
        return poise_error_set(EIO, "write", path,
                               "only %zd of %zu bytes were accepted", n, len);
    }
    return 0;
}

ssize_t poise_file_read(int fd, void *data, size_t len, const char *path)
{
    return file_get(file_read_once, fd, data, len, 0, path);
}

ssize_t poise_file_pread(int fd, void *data, size_t len, uint64_t offset,
                         const char *path)
{
    return file_get(file_pread_once, fd, data, len, offset, path);
}

int poise_file_write(int fd, const void *data, size_t len, const char *path)
{
    return file_put(file_write_once, fd, data, len, 0, path);
}

int poise_file_pwrite(int fd, const void *data, size_t len, uint64_t offset,
                      const char *path)
{
    return file_put(file_pwrite_once, fd, data, len, offset, path);
}

static int file_sync_code(int fd)
{
    int code = fault_test(POISE_FAULT_SYNC);
    while (code == 0 && fsync(fd) != 0) {
        if (errno != EINTR) {
            code = errno;
        }
    }
    return code;
}

int poise_file_sync(int fd, const char *path)
{
    int code = file_sync_code(fd);
    return code != 0 ? poise_error_set(code, "sync", path, NULL) : 0;
}

int file_sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct poise_buf dir = {0};
    if (slash == NULL) {
        poise_buf_putc(&dir, '.');
    } else {
        poise_buf_append(&dir, path, (size_t)(slash - path) + 1);
    }
    const char *name = poise_buf_str(&dir);
    int result = dir.error;
    if (result == 0) {
        result = poise_file_open(AT_FDCWD, name, O_RDONLY | O_DIRECTORY, 0);
    }
    if (result >= 0) {
        int fd = result;
        int code = file_sync_code(fd);
        close(fd);
        /* Some file systems cannot sync a directory: then there is nothing
         * that could be done for it. */
        bool failed = code != 0 && code != EINVAL && code != ENOTSUP;
        result =
            failed ? poise_error_set(code, "sync directory", name, NULL) : 0;
    }
    poise_buf_free(&dir);
    return result;
}

/* ---- whole files -------------------------------------------------------- */

int poise_file_save(const char *path, const struct poise_buf *data)
{
    const struct poise_output_options options = {.sequential = true};
    struct poise_output *output;
    if (data->error != 0) {
        return data->error;
    }
    int code = poise_output_open(path, &options, &output);
    if (code < 0) {
        return code;
    }
    code =
        poise_file_write(poise_output_fd(output), data->data, data->len, path);
    if (code < 0) {
        poise_output_abort(output);
        return code;
    }
    return poise_output_commit(output, true);
}

int poise_file_named_descriptor(const char *path)
{
    static const char *const names[] = {"/dev/stdin", "/dev/stdout",
                                        "/dev/stderr"};
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(path, names[i]) == 0) {
            return i;
        }
    }
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        size_t len = strlen(folders[i]);
        if (strncmp(path, folders[i], len) == 0) {
            char *end;
            long number = strtol(path + len, &end, 10);
            bool is_number = path[len] >= '0' && path[len] <= '9' && !*end;
            return is_number && number <= INT_MAX ? (int)number : -1;
        }
    }
    return -1;
}

/* ---- temporary files ---------------------------------------------------- */

const char *poise_file_temporary_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder != NULL && *folder != '\0' ? folder : "/var/tmp";
}

/* Where the file system knows no files without names: a name for an instant.
 */
static int file_open_unlinked(const char *folder, int flags)
{
    struct poise_buf name = {0};
    poise_buf_printf(&name, "%s/.poise-%d-%016llx", folder, (int)getpid(),
                     (unsigned long long)poise_rng_next(poise_rng_current()));
    const char *path = poise_buf_str(&name);
    int fd = name.error;
    if (fd == 0) {
        fd = open(path, flags | O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        fd = fd < 0 ? -errno : fd;
    }
    if (fd >= 0 && unlink(path) != 0) {
        int code = -errno;
        close(fd);
        fd = code;
    }
    poise_buf_free(&name);
    return fd;
}

int poise_file_nameless(const char *folder, int flags)
{
    folder = folder != NULL ? folder : poise_file_temporary_folder();
    int fd = -fault_test(POISE_FAULT_OPEN);
    if (fd == 0) {
        fd = open(folder, flags | O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        fd = fd < 0 ? -errno : fd;
    }
    if (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -EINVAL) {
        fd = file_open_unlinked(folder, flags);
    }
    return fd < 0
               ? poise_error_set(-fd, "make a temporary file in", folder, NULL)
               : fd;
}

/* What a pipe at `fd` holds that was not read yet. */
static int file_unread(int fd)
{
    struct stat st;
    int bytes = 0;
    return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) &&
                   ioctl(fd, FIONREAD, &bytes) == 0
               ? bytes
               : 0;
}

void poise_file_drain_output(void)
{
    for (int ms = 0; ms < 3000; ms++) {
        if (file_unread(STDOUT_FILENO) + file_unread(STDERR_FILENO) == 0) {
            return;
        }
        usleep(1000);
    }
}

ssize_t poise_file_getdents(int fd, void *buf, size_t len)
{
    int code = fault_test(POISE_FAULT_GETDENTS);
    if (code != 0) {
        return -code;
    }
    long n;
    do {
        n = syscall(SYS_getdents64, fd, buf, len);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

int poise_file_statx(int dirfd, const char *name, int flags, unsigned mask,
                     struct statx *out)
{
    int code = fault_test(POISE_FAULT_STAT);
    if (code != 0) {
        return -code;
    }
    int result;
    do {
        result = statx(dirfd, name, flags, mask, out);
    } while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : 0;
}
