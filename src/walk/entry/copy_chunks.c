/*
 * One regular file made by several: chunks of it, in any order, under a
 * temporary name, and its own name when all are there.
 *
 * Until then the temporary file is longer than its data. From the next multiple
 * of NOTES_ALIGN on it has a note for each chunk, written when that is there,
 * and at its very end what it is a copy of. So a copy that was cut off goes on
 * with the chunks that are missing. A note of data that were synced holds for
 * ever; another one on the machine that wrote it, and until that is started
 * again, since then data that were on their way to the disk may be lost.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

enum {
    NOTES_ALIGN = 4096,
    NOTE_BYTES = 8,
    END_WORDS = 5, /* mark, tag, size, bytes of a chunk, hash of these */
    END_BYTES = 8 * END_WORDS,
};
#define END_MARK UINT64_C(0x4b48434553494f50) /* "POISECHK" */

/* ---- notes --------------------------------------------------------------- */

static uint64_t notes_at(uint64_t size)
{
    return (size + NOTES_ALIGN - 1) / NOTES_ALIGN * NOTES_ALIGN;
}

/* How long the file is with its notes; 0: too long. */
static uint64_t length_with_notes(uint64_t size, uint64_t chunk_bytes)
{
    return size > INT64_MAX / 2 || chunk_bytes == 0
               ? 0
               : notes_at(size) +
                     (size + chunk_bytes - 1) / chunk_bytes * NOTE_BYTES +
                     END_BYTES;
}

static void put_end(uint64_t tag, uint64_t size, uint64_t chunk_bytes,
                    unsigned char out[END_BYTES])
{
    const uint64_t words[] = {END_MARK, tag, size, chunk_bytes};

    for (size_t i = 0; i < END_WORDS - 1; i++) {
        poise_put_u64(out + 8 * i, words[i]);
    }
    poise_put_u64(out + 8 * (END_WORDS - 1),
                  poise_hash_bytes(out, 8 * (END_WORDS - 1), 0));
}

/* Whether the file `fd` has notes at all: what its end says of it, too. */
static bool has_end(int fd, unsigned char end[END_BYTES])
{
    unsigned char again[END_BYTES];
    struct stat st;

    if (fstat(fd, &st) != 0 || st.st_size < END_BYTES ||
        pread(fd, end, END_BYTES, st.st_size - END_BYTES) != END_BYTES) {
        return false;
    }
    put_end(poise_get_u64(end + 8), poise_get_u64(end + 16),
            poise_get_u64(end + 24), again);
    return memcmp(end, again, END_BYTES) == 0 &&
           length_with_notes(poise_get_u64(end + 16),
                             poise_get_u64(end + 24)) == (uint64_t)st.st_size;
}

/* Whether it has notes, and they are of this source and of such chunks. */
static bool has_notes(int fd, const struct entry_source *source,
                      const struct entry_chunks *chunks)
{
    unsigned char end[END_BYTES], wanted[END_BYTES];

    put_end(chunks->tag, source->stx.stx_size, chunks->bytes, wanted);
    return has_end(fd, end) && memcmp(end, wanted, END_BYTES) == 0;
}

static uint64_t boot;

/* Of this machine, since it was started: random where that is not known. */
static void read_boot(void)
{
    char id[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, id, sizeof id);

    boot = got > 0 ? poise_hash_bytes(id, (size_t)got, 1)
                   : poise_rng_next(poise_rng_current());
    boot |= 1; /* 0 stands for synced data */
    if (fd >= 0) {
        close(fd);
    }
}

static uint64_t note_of(const struct entry_chunks *chunks, uint64_t offset,
                        bool synced)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t words[3] = {chunks->tag, offset, 0};

    pthread_once(&once, read_boot);
    words[2] = synced ? 0 : boot;
    return poise_hash_bytes(words, sizeof words, 2);
}

static off_t note_at(const struct entry_source *source,
                     const struct entry_chunks *chunks, uint64_t offset)
{
    return (off_t)(notes_at(source->stx.stx_size) +
                   offset / chunks->bytes * NOTE_BYTES);
}

/* Whether that chunk is there. */
static bool is_noted(int fd, const struct entry_source *source,
                     const struct entry_chunks *chunks, uint64_t offset)
{
    unsigned char note[NOTE_BYTES];

    if (pread(fd, note, sizeof note, note_at(source, chunks, offset)) !=
        NOTE_BYTES) {
        return false;
    }
    return poise_get_u64(note) == note_of(chunks, offset, true) ||
           poise_get_u64(note) == note_of(chunks, offset, false);
}

/* Its data are there, and were closed without an error: note it. */
static int put_note(const struct entry_source *source,
                    const struct entry_chunks *chunks, uint64_t offset,
                    bool synced)
{
    unsigned char note[NOTE_BYTES];
    int fd = poise_file_open(chunks->dirfd, chunks->temporary,
                             O_WRONLY | O_NOFOLLOW, 0);
    int code = fd;

    poise_put_u64(note, note_of(chunks, offset, synced));
    if (fd >= 0) {
        code = poise_file_pwrite(fd, note, sizeof note,
                                 (uint64_t)note_at(source, chunks, offset),
                                 source->name);
        close(fd); /* a note that is lost does no harm */
    }
    return code;
}

bool entry_chunks_is_left(int dirfd, const char *name)
{
    unsigned char end[END_BYTES];
    int fd =
        openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool is = fd >= 0 && has_end(fd, end);

    if (fd >= 0) {
        close(fd);
    }
    return is;
}

/* ---- beginning ----------------------------------------------------------- */

/* A killed run's, of the same file: whether it can be gone on with. */
static bool take_up(const struct entry_source *source,
                    const struct entry_chunks *chunks)
{
    int fd = openat(chunks->dirfd, chunks->temporary,
                    O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    bool may = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
               st.st_uid == geteuid() && st.st_nlink == 1 &&
               (st.st_mode & 07777) == 0600 && has_notes(fd, source, chunks);

    if (fd >= 0) {
        close(fd);
    }
    return may;
}

/* As long as it will be, with notes if it can have some. */
static int set_length(int fd, const struct entry_source *source,
                      const struct entry_chunks *chunks)
{
    uint64_t size = source->stx.stx_size;
    uint64_t length = length_with_notes(size, chunks->bytes);
    unsigned char end[END_BYTES];

    if (length > 0 && ftruncate(fd, (off_t)length) == 0) {
        put_end(chunks->tag, size, chunks->bytes, end);
        return poise_file_pwrite(fd, end, sizeof end, length - END_BYTES,
                                 source->name);
    }
    return ftruncate(fd, (off_t)size) == 0
               ? 0
               : poise_error_set(errno, "set the length of", source->name,
                                 NULL);
}

int entry_chunks_begin(const struct entry_source *source,
                       const struct entry_chunks *chunks, bool resume)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, code;
    int fd = poise_file_open(chunks->dirfd, chunks->temporary, flags, 0600);

    if (fd == -EEXIST && resume && take_up(source, chunks)) {
        return 0;
    }
    if (fd == -EEXIST) {
        unlinkat(chunks->dirfd, chunks->temporary, 0);
        fd = poise_file_open(chunks->dirfd, chunks->temporary, flags, 0600);
    }
    if (fd < 0) {
        return poise_error_set(-fd, "make", source->name, NULL);
    }
    code = set_length(fd, source, chunks);
    if (code < 0) {
        close(fd);
        unlinkat(chunks->dirfd, chunks->temporary, 0);
        return code;
    }
    return poise_file_close(fd, source->name);
}

bool entry_is_one_writer(int dirfd)
{
    static const long alone[] = {
        TMPFS_MAGIC,
        RAMFS_MAGIC,
        EXT4_SUPER_MAGIC,
        XFS_SUPER_MAGIC,
        (long)BTRFS_SUPER_MAGIC,
        (long)F2FS_SUPER_MAGIC,
        OVERLAYFS_SUPER_MAGIC,
    };
    struct statfs fs;
    int code = dirfd == AT_FDCWD ? statfs(".", &fs) : fstatfs(dirfd, &fs);

    for (size_t i = 0; code == 0 && i < sizeof alone / sizeof *alone; i++) {
        if ((long)fs.f_type == alone[i]) {
            return true;
        }
    }
    return false;
}

/* ---- one of them, and the end -------------------------------------------- */

static bool is_sparse(const struct statx *stx)
{
    return stx->stx_blocks * 512 < stx->stx_size;
}

int entry_chunk(struct entry_copier *copier, const struct entry_source *source,
                const struct entry_chunks *chunks, uint64_t offset,
                uint64_t length, struct entry_copied *copied)
{
    bool synced = copier->options.sync == POISE_SYNC_FILE, notes;
    struct copy_move move = {
        .in = source->fd,
        .out = poise_file_open(chunks->dirfd, chunks->temporary,
                               O_RDWR | O_NOFOLLOW, 0),
        .name = source->name,
        .from = offset,
        .to = offset + length,
        .sparse = is_sparse(&source->stx),
    };
    int code;

    if (move.out < 0) {
        return poise_error_set(-move.out, "write", source->name, NULL);
    }
    notes = has_notes(move.out, source, chunks);
    if (notes && !copier->options.verify &&
        is_noted(move.out, source, chunks, offset)) {
        copied->resumed += length;
        close(move.out);
        return 0;
    }
    copy_see_source(copier, &source->stx);
    code = copy_move(copier, &move, copied);
    if (code == 0 && synced) {
        code = poise_file_sync(move.out, source->name);
    }
    if (code < 0) {
        close(move.out);
        return code;
    }
    code = poise_file_close(move.out, source->name);
    return code == 0 && notes ? put_note(source, chunks, offset, synced) : code;
}

static int finish(struct entry_copier *copier,
                  const struct entry_source *source, int fd, const char *name,
                  struct entry_copied *copied)
{
    struct poise_walk_meta meta;
    int code = ftruncate(fd, (off_t)source->stx.stx_size) == 0
                   ? 0
                   : poise_error_set(errno, "set the length of", name, NULL);

    if (code == 0) {
        code = entry_meta_of(source->fd, source->name, &source->stx,
                             copier->options.keep, &meta, &copier->xattrs);
    }
    if (code == 0) {
        code = make_attributes(-1, name, fd, &meta, copier->options.keep,
                               &copied->refused);
    }
    return code < 0 ? code
                    : poise_walk_sync(copier->options.sync, POISE_SYNC_AT_FILE,
                                      fd, name);
}

int entry_chunks_commit(struct entry_copier *copier,
                        const struct entry_source *source,
                        const struct entry_chunks *chunks, const char *name,
                        const struct entry_taken *taken,
                        struct entry_copied *copied)
{
    int fd = poise_file_open(chunks->dirfd, chunks->temporary,
                             O_RDWR | O_NOFOLLOW, 0);
    int code = fd < 0 ? poise_error_set(-fd, "finish", name, NULL) : 0;

    if (code == 0) {
        code = finish(copier, source, fd, name, copied);
    }
    if (code == 0) {
        code = make_placed(chunks->dirfd, chunks->temporary, name, taken,
                           &copied->replaced);
    }
    if (code < 0) {
        unlinkat(chunks->dirfd, chunks->temporary, 0);
    }
    if (fd >= 0) {
        int closed = poise_file_close(fd, name);

        code = code < 0 ? code : closed;
    }
    return code < 0 ? code : 0;
}
