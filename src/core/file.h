/*
 * poise/file.h - files whose faults can be injected.
 *
 * Thin: retry on EINTR, complete short transfers, injectable, errors set with
 * the path. `dirfd` may be AT_FDCWD. All of them are safe in any thread.
 */
#ifndef POISE_FILE_H
#define POISE_FILE_H

#include <poise/base.h>

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

POISE_API int poise_file_open(int dirfd, const char *path, int flags,
                              mode_t mode);
/** Close; reports delayed write errors. `path` only names it in the error. */
POISE_API int poise_file_close(int fd, const char *path);
/** All `len` bytes, or the number up to the end of the file. */
POISE_API ssize_t poise_file_read(int fd, void *data, size_t len,
                                  const char *path);
POISE_API ssize_t poise_file_pread(int fd, void *data, size_t len,
                                   uint64_t offset, const char *path);
/** All `len` bytes or an error. */
POISE_API int poise_file_write(int fd, const void *data, size_t len,
                               const char *path);
int poise_file_pwrite(int fd, const void *data, size_t len, uint64_t offset,
                      const char *path);
int poise_file_sync(int fd, const char *path);

/** The descriptor of this process that `path` names, or -1: /dev/stdin,
 * /dev/stdout, /dev/stderr, /dev/fd/N, /proc/self/fd/N. To open such a name is
 * something else: a file then begins at its beginning, a socket is refused. */
POISE_API int poise_file_named_descriptor(const char *path);
/** Make `data` the contents of `path`, as <poise/output.h> finishes files: the
 * old file or the whole new one at every moment, and on the disk. 0,
 * `data->error`, or the error. */
POISE_API int poise_file_save(const char *path, const struct poise_buf *data);
/** Where temporary files belong: $TMPDIR, or /var/tmp. Do not free it. */
POISE_API const char *poise_file_temporary_folder(void);
/** A file without a name in `folder` (NULL: the above), for reading and
 * writing: nothing is left of it, however the process ends. `flags`: more for
 * open(), such as O_DIRECT. The descriptor, or an error. */
POISE_API int poise_file_nameless(const char *folder, int flags);

/** Wait until the readers of the pipes at stdout and stderr have taken what was
 * written there, at most three seconds. Call it before you abort a job: a
 * launcher (MPICH's) drops what it had not read by then. */
POISE_API void poise_file_drain_output(void);

/* The two calls of a walk's inner loop: bare but for the fault check, no
 * error is set (errno values are returned negative). */
struct statx;
ssize_t poise_file_getdents(int fd, void *buf, size_t len);
int poise_file_statx(int dirfd, const char *name, int flags, unsigned mask,
                     struct statx *out);

#ifdef __cplusplus
}
#endif

#endif
