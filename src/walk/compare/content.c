/*
 * The data of two files, read side by side.
 *
 * A file that is read by one call is taken as it was in that moment. Where
 * that does not do, or something differs, its times say whether it changed
 * meanwhile; then both are read again, a few times.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { TRIES = 3 };

bool compare_is_same_inode(const struct statx *a, const struct statx *b)
{
    return a->stx_ino == b->stx_ino && a->stx_dev_major == b->stx_dev_major &&
           a->stx_dev_minor == b->stx_dev_minor;
}

static bool is_unchanged(const struct statx *now, const struct statx *then)
{
    return now->stx_size == then->stx_size &&
           now->stx_mtime.tv_sec == then->stx_mtime.tv_sec &&
           now->stx_mtime.tv_nsec == then->stx_mtime.tv_nsec &&
           now->stx_ctime.tv_sec == then->stx_ctime.tv_sec &&
           now->stx_ctime.tv_nsec == then->stx_ctime.tv_nsec;
}

/* At least `expected` bytes from `from` on, or all that is left: how many. What
 * a call brings beyond them is kept: that saves one for each small file. */
static ssize_t read_block(int fd, char *buffer, uint64_t from, size_t expected)
{
    size_t got = 0;
    int code = poise_fault_check(POISE_FAULT_READ);
    if (code != 0) {
        return poise_error_set(code, "read", NULL, NULL);
    }
    while (got < expected) {
        ssize_t n = pread(fd, buffer + got, COMPARE_BUFFER_BYTES - got,
                          (off_t)(from + got));
        if (n == 0) {
            break;
        }
        if (n < 0 && errno != EINTR) {
            return poise_error_set(errno, "read", NULL, NULL);
        }
        got += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)got;
}

static uint64_t first_difference(const char *a, const char *b, size_t len)
{
    size_t i = 0;
    while (i < len && a[i] == b[i]) {
        i++;
    }
    return i;
}

static size_t block_of(uint64_t left)
{
    return left < COMPARE_BUFFER_BYTES ? (size_t)left : COMPARE_BUFFER_BYTES;
}

/* Of one file: how many bytes there are, and their hash. */
static int hash_range(struct compare_worker *w, struct poise_worker *worker,
                      int fd, uint64_t from, uint64_t len, uint64_t got[2])
{
    got[0] = got[1] = 0;
    do {
        size_t expected = block_of(len - got[0]);
        ssize_t n = read_block(fd, w->buffers[0], from + got[0], expected);
        if (n < 0) {
            return (int)n;
        }
        bool whole = (size_t)n >= expected;
        if (len - got[0] > expected && (size_t)n > expected) {
            n = (ssize_t)expected;
        }
        got[1] = poise_hash_bytes(w->buffers[0], (size_t)n, got[1]);
        got[0] += (uint64_t)n;
        w->bytes_read += (uint64_t)n;
        if (!whole) {
            break;
        }
        if (poise_task_poll(worker) != 0) {
            return -EINTR;
        }
    } while (got[0] < len);
    return 0;
}

static int compare_hashes(struct compare_worker *w, struct poise_worker *worker,
                          const int fds[2], uint64_t from, uint64_t len,
                          uint64_t *at)
{
    uint64_t got[2][2];
    for (int i = 0; i < 2; i++) {
        int code = hash_range(w, worker, fds[i], from, len, got[i]);
        if (code < 0) {
            return code;
        }
    }
    bool same = got[0][0] == got[1][0] && got[0][1] == got[1][1];
    *at = same ? from + got[0][0] : UINT64_MAX;
    return same && got[0][0] >= len;
}

int compare_range(struct compare_worker *w, struct poise_worker *worker,
                  const int fds[2], uint64_t from, uint64_t len, uint64_t *at)
{
    uint64_t done = 0;
    if (w->by_hash) {
        return compare_hashes(w, worker, fds, from, len, at);
    }
    for (;;) {
        ssize_t n[2] = {0};
        size_t expected = block_of(len - done);
        for (int i = 0; i < 2; i++) {
            n[i] = read_block(fds[i], w->buffers[i], from + done, expected);
            if (n[i] < 0) {
                return (int)n[i];
            }
            w->bytes_read += (uint64_t)n[i];
        }
        size_t least = (size_t)(n[0] < n[1] ? n[0] : n[1]);
        if (memcmp(w->buffers[0], w->buffers[1], least) != 0 || n[0] != n[1]) {
            *at = from + done +
                  first_difference(w->buffers[0], w->buffers[1], least);
            return 0;
        }
        done += least;
        if (least < expected || done >= len) {
            *at = from + done;
            return done >= len;
        }
        if (poise_task_poll(worker) != 0) {
            return -EINTR;
        }
    }
}

/* Time of access is left as it is, where that is allowed. */
static int open_file(struct compare_worker *w, struct compare_file *file)
{
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    int code = poise_fault_check(POISE_FAULT_OPEN);
    int fd = -1;
    if (code == 0) {
        fd = openat(file->dirfd, file->name,
                    flags | (w->without_noatime ? 0 : O_NOATIME));
    }
    if (code == 0 && fd < 0 && errno == EPERM && !w->without_noatime) {
        w->without_noatime = true;
        fd = openat(file->dirfd, file->name, flags);
    }
    if (fd < 0) {
        return poise_error_set(code ? code : errno, "open", NULL, NULL);
    }
    if (file->asked) {
        file->has_attributes = flistxattr(fd, NULL, 0) > 0;
        file->is_known = true;
    }
    return fd;
}

/* Whether neither changed since it was looked at; looks again. 1, 0, negative.
 */
static int look_again(struct compare_file files[2], const int fds[2])
{
    int same = 1;
    for (int i = 0; i < 2; i++) {
        struct statx now;
        int code =
            poise_file_statx(fds[i], "", AT_EMPTY_PATH, COMPARE_STATX, &now);
        if (code < 0) {
            return poise_error_set(-code, "look at", NULL, NULL);
        }
        same &= is_unchanged(&now, files[i].stx);
        *files[i].stx = now;
    }
    return same;
}

/* Read both and say what came out, or -EAGAIN. */
static int try_content(struct compare_worker *w, struct poise_worker *worker,
                       struct compare_file files[2], const int fds[2],
                       uint64_t *at)
{
    uint64_t size = files[0].stx->stx_size;
    if (files[1].stx->stx_size != size) {
        *at = size < files[1].stx->stx_size ? size : files[1].stx->stx_size;
        return 0;
    }
    int same = compare_range(w, worker, fds, 0, size, at);
    if (same == 1 && *at != size) {
        same = 0; /* both are longer now */
    }
    if (same < 0 || (same == 1 && size < COMPARE_BUFFER_BYTES)) {
        return same;
    }
    int unchanged = look_again(files, fds);
    if (unchanged == 0) {
        return -EAGAIN;
    }
    return unchanged < 0 ? unchanged : same;
}

int compare_open(struct compare_worker *w, struct compare_file files[2],
                 int fds[2])
{
    int code = 0;
    fds[0] = fds[1] = -1;
    for (int i = 0; i < 2 && code == 0; i++) {
        if (!w->buffers[i]) {
            w->buffers[i] = poise_alloc(1, COMPARE_BUFFER_BYTES);
        }
        code = w->buffers[i] ? 0 : -ENOMEM;
        fds[i] = code == 0 ? open_file(w, &files[i]) : -1;
        code = code == 0 && fds[i] < 0 ? fds[i] : code;
    }
    if (code < 0) {
        compare_close(fds);
    }
    return code;
}

void compare_close(const int fds[2])
{
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

int compare_content(struct compare_worker *w, struct poise_worker *worker,
                    struct compare_file files[2], uint64_t *at)
{
    int fds[2];
    if (compare_is_same_inode(files[0].stx, files[1].stx) ||
        (files[0].stx->stx_size == 0 && files[1].stx->stx_size == 0)) {
        return 1;
    }
    int code = compare_open(w, files, fds);
    if (code < 0) {
        return code;
    }
    code = -EAGAIN;
    for (int i = 0; i < TRIES && code == -EAGAIN; i++) {
        code = try_content(w, worker, files, fds, at);
    }
    compare_close(fds);
    if (code == -EAGAIN) {
        return poise_error_set(EBUSY, "compare", NULL,
                               "it changed while it was read");
    }
    return code;
}
