/*
 * Moving a file's bytes to another: inside the kernel where that is possible
 * and worth it, else through a buffer. Only data are moved, no holes.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 1 << 20,
    BUFFER_ALIGN = 4096,
    KERNEL_LEAST = 256 << 10, /* less than that goes through the buffer */
    KERNEL_MOST = 16 << 20,   /* in one call: between them a limit is kept */
};

static void pace(const struct entry_copier *copier, uint64_t bytes)
{
    if (copier->options.pace) {
        copier->options.pace(bytes, 0, copier->options.arg);
    }
}

static int need_buffer(struct entry_copier *copier, const char *name)
{
    if (!copier->buffer) {
        copier->buffer = aligned_alloc(BUFFER_ALIGN, BUFFER_BYTES);
    }
    return copier->buffer ? 0 : poise_error_set(ENOMEM, "copy", name, NULL);
}

/* ---- through the buffer -------------------------------------------------- */

/* Move up to a buffer of bytes; how many, 0 at the source's end. `hash` goes
 * on over them. */
static ssize_t move_buffer(struct entry_copier *copier,
                           const struct copy_move *move, uint64_t at,
                           uint64_t to, uint64_t *hash)
{
    size_t want = to - at < BUFFER_BYTES ? (size_t)(to - at) : BUFFER_BYTES;
    ssize_t got;
    int code;

    pace(copier, want);
    got = poise_file_pread(move->in, copier->buffer, want, at, move->name);
    if (got <= 0) {
        return got;
    }
    if (hash) {
        *hash = poise_hash_bytes(copier->buffer, (size_t)got, *hash);
    }
    code = poise_file_pwrite(move->out, copier->buffer, (size_t)got, at,
                             move->name);
    return code < 0 ? code : got;
}

/* Read back [from, to), of the disk and not of what was just written, and
 * compare its hash. */
static int verify(struct entry_copier *copier, const struct copy_move *move,
                  uint64_t from, uint64_t to, uint64_t wanted)
{
    uint64_t hash = 0;
    int code = poise_file_sync(move->out, move->name);

    posix_fadvise(move->out, (off_t)from, (off_t)(to - from),
                  POSIX_FADV_DONTNEED);
    for (uint64_t at = from; code == 0 && at < to;) {
        size_t want = to - at < BUFFER_BYTES ? (size_t)(to - at) : BUFFER_BYTES;
        ssize_t got =
            poise_file_pread(move->out, copier->buffer, want, at, move->name);

        if (got <= 0) {
            code = got < 0 ? (int)got : -EIO;
            break;
        }
        hash = poise_hash_bytes(copier->buffer, (size_t)got, hash);
        at += (size_t)got;
    }
    if (code == 0 && hash != wanted) {
        code = -EIO;
    }
    return code == -EIO ? poise_error_set(EIO, "verify", move->name,
                                          "what was read back differs from "
                                          "what was written")
                        : code;
}

static int move_by_buffer(struct entry_copier *copier,
                          const struct copy_move *move, uint64_t from,
                          uint64_t to, struct entry_copied *copied)
{
    bool checks = copier->options.verify;
    uint64_t hash = 0, at = from;
    ssize_t got = 1;

    if (need_buffer(copier, move->name) < 0) {
        return -ENOMEM;
    }
    while (at < to) {
        got = move_buffer(copier, move, at, to, checks ? &hash : NULL);
        if (got <= 0) {
            break;
        }
        at += (size_t)got;
        copied->bytes += (size_t)got;
    }
    if (got < 0) {
        return (int)got;
    }
    return checks && at > from ? verify(copier, move, from, at, hash) : 0;
}

/* ---- inside the kernel --------------------------------------------------- */

static bool is_unable(int error)
{
    return error == EXDEV || error == EINVAL || error == EOPNOTSUPP ||
           error == ENOSYS || error == EPERM || error == ENOTTY ||
           error == ETXTBSY || error == EBADF;
}

/* How far it came: the rest is the buffer's, which also finds out what is
 * wrong. Negative: a fault of a test. */
static int64_t move_in_kernel(struct entry_copier *copier,
                              const struct copy_move *move, uint64_t at,
                              uint64_t to, struct entry_copied *copied)
{
    while (at < to) {
        off_t in_at = (off_t)at, out_at = (off_t)at;
        size_t want = to - at < KERNEL_MOST ? (size_t)(to - at) : KERNEL_MOST;
        int code = poise_fault_check(POISE_FAULT_READ);
        ssize_t got;

        if (code) {
            return poise_error_set(code, "read", move->name, NULL);
        }
        code = poise_fault_check(POISE_FAULT_WRITE);
        if (code) {
            return poise_error_set(code, "write", move->name, NULL);
        }
        pace(copier, want);
        got = copy_file_range(move->in, &in_at, move->out, &out_at, want, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            copier->no_range = got == 0 || is_unable(errno);
            break;
        }
        at += (size_t)got;
        copied->bytes += (size_t)got;
    }
    return (int64_t)at;
}

/* ---- both ---------------------------------------------------------------- */

static int move_data(struct entry_copier *copier, const struct copy_move *move,
                     uint64_t from, uint64_t to, struct entry_copied *copied)
{
    int64_t at = (int64_t)from;

    if (to - from >= KERNEL_LEAST && !copier->no_range &&
        !copier->options.verify) {
        at = move_in_kernel(copier, move, from, to, copied);
    }
    if (at < 0 || (uint64_t)at == to) {
        return at < 0 ? (int)at : 0;
    }
    return move_by_buffer(copier, move, (uint64_t)at, to, copied);
}

int copy_move(struct entry_copier *copier, const struct copy_move *move,
              struct entry_copied *copied)
{
    uint64_t at = move->from;
    int code = 0;

    if (!move->sparse) {
        return at < move->to ? move_data(copier, move, at, move->to, copied)
                             : 0;
    }
    while (code == 0 && at < move->to) {
        off_t data = lseek(move->in, (off_t)at, SEEK_DATA), hole;

        if (data < 0 && errno == ENXIO) {
            break; /* no data behind it */
        }
        hole = data < 0 ? -1 : lseek(move->in, data, SEEK_HOLE);
        if (hole < 0) { /* it cannot say */
            return move_data(copier, move, at, move->to, copied);
        }
        if ((uint64_t)data >= move->to) {
            break;
        }
        at = (uint64_t)hole < move->to ? (uint64_t)hole : move->to;
        code = move_data(copier, move, (uint64_t)data, at, copied);
    }
    return code;
}

int copy_clone(struct entry_copier *copier, int in, int out, uint64_t size)
{
    if (copier->no_clone || copier->options.verify || size == 0) {
        return 0;
    }
    if (ioctl(out, FICLONE, in) == 0) {
        return 1;
    }
    copier->no_clone = is_unable(errno);
    return 0;
}
