/* The giving end's files: one after the other, as the other end wants them. */
#include "sender.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { HOLE_LEAST = 1 << 16 /* shorter ones are sent as zeros */ };

/* Descriptor of the directory, kept for the files that follow. */
static int dir_fd(struct give *give, struct give_dir *dir)
{
    int fd;

    if (!dir) {
        return AT_FDCWD;
    }
    if (give->opened == dir) {
        return give->opened_fd;
    }
    fd = give_dir_open(dir);
    if (fd < 0) {
        return fd;
    }
    if (give->opened) {
        close(give->opened_fd);
        give_dir_drop(give->opened);
    }
    dir->refs++;
    give->opened = dir;
    give->opened_fd = fd;
    return fd;
}

static int64_t changed_ns(const struct stat *st)
{
    return (int64_t)((uint64_t)st->st_ctim.tv_sec * UINT64_C(1000000000) +
                     (uint64_t)st->st_ctim.tv_nsec);
}

static int say_end(struct give *give, unsigned status)
{
    struct give_file *file = &give->file;
    struct poise_buf body = {0};
    int code;

    poise_buf_varint(&body, status);
    poise_buf_varint(&body, file->at);
    poise_buf_u64(&body, file->hash);
    code = remote_link_say(&give->transfer->link, REMOTE_FILE_END, &body);
    poise_buf_free(&body);
    return code;
}

static int open_file(struct give *give, const struct give_want *want)
{
    struct give_file *file = &give->file;
    struct stat st;
    int dir = dir_fd(give, want->dir);
    /* It may have become a pipe meanwhile, which must not be waited for. */
    int fd = dir < 0 && dir != AT_FDCWD
                 ? dir
                 : poise_file_open(dir, want->name,
                                   O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);

    if (fd < 0) {
        return fd;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return poise_error_set(EINVAL, "send", want->name,
                               "it is no regular file any more");
    }
    file->fd = fd;
    file->open = true;
    file->size = (uint64_t)st.st_size;
    file->sparse = (uint64_t)st.st_blocks * 512 < file->size;
    file->extent_end = file->sparse ? 0 : file->size;
    file->changed_ns = changed_ns(&st);
    return 0;
}

/* Begin with the next file; one that cannot be had is told at once. */
static int begin(struct give *give)
{
    struct give_want *want = give->first;
    struct give_file *file = &give->file;
    int code = 0;

    give->first = want->next;
    give->last = give->first ? give->last : NULL;
    give->unresolved--;
    file->at = file->bytes = file->hash = 0;
    file->filled = 0;
    file->failed = false;
    poise_buf_reset(&file->path);
    if (want->dir) {
        code = give_dir_path(want->dir, &file->path);
    }
    poise_buf_puts(&file->path, want->name);
    poise_buf_str(&file->path);
    if (file->path.error) {
        code = file->path.error;
    } else if (code == 0 && open_file(give, want) < 0) {
        code = remote_problem(give->transfer, file->path.data);
        code = code < 0 ? code : say_end(give, REMOTE_FILE_LACKS);
    } else if (code == 0) {
        code = remote_link_say(&give->transfer->link, REMOTE_FILE, NULL);
    }
    give_dir_drop(want->dir);
    free(want);
    return code;
}

static void hash_block(struct give_file *file)
{
    if (file->filled > 0) {
        file->hash = remote_hash(file->hash, file->block, file->filled);
        file->filled = 0;
    }
}

/* Where data go on, and how far: a long hole is told as such. */
static int find_extent(struct give *give)
{
    struct give_file *file = &give->file;
    off_t data = lseek(file->fd, (off_t)file->at, SEEK_DATA), hole;
    struct poise_buf body = {0};
    uint64_t len;
    int code;

    if (data < 0 && errno != ENXIO) {
        file->extent_end = file->size;
        return 0;
    }
    len = (data < 0 || (uint64_t)data > file->size ? file->size
                                                   : (uint64_t)data) -
          file->at;
    hole = data < 0 ? -1 : lseek(file->fd, data, SEEK_HOLE);
    file->extent_end =
        hole < 0 || (uint64_t)hole > file->size ? file->size : (uint64_t)hole;
    if (len < HOLE_LEAST) {
        return 0;
    }
    code = remote_link_end(&give->transfer->link);
    hash_block(file);
    file->hash = remote_hash(file->hash, &len, sizeof len);
    file->at += len;
    poise_buf_varint(&body, len);
    if (code == 0) {
        code = remote_link_say(&give->transfer->link, REMOTE_HOLE, &body);
    }
    poise_buf_free(&body);
    return code;
}

/* All was read, or as much as there is. */
static int finish(struct give *give)
{
    struct give_file *file = &give->file;
    struct stat st;
    int code = remote_link_end(&give->transfer->link);
    bool changed = fstat(file->fd, &st) != 0 ||
                   changed_ns(&st) != file->changed_ns ||
                   (uint64_t)st.st_size != file->size;

    hash_block(file);
    close(file->fd);
    file->open = false;
    if (code == 0 && !file->failed && changed) {
        poise_error_set(EAGAIN, "send", file->path.data,
                        "it changed while it was read; send it again");
        code = remote_problem(give->transfer, file->path.data);
    }
    if (code == 0) {
        code = say_end(give, file->failed ? REMOTE_FILE_LACKS : REMOTE_FILE_IS);
    }
    return code;
}

static int send_part(struct give *give)
{
    struct give_file *file = &give->file;
    uint64_t left;
    size_t len = REMOTE_BLOCK - file->filled;
    ssize_t got;
    int code = 0;

    if (file->at >= file->extent_end && file->at < file->size) {
        code = find_extent(give);
    }
    if (code < 0 || file->at >= file->size) {
        return code < 0 ? code : finish(give);
    }
    left = file->extent_end > file->at ? file->extent_end - file->at
                                       : file->size - file->at;
    len = len < left ? len : (size_t)left;
    got = poise_file_pread(file->fd, file->block + file->filled, len, file->at,
                           file->path.data);
    if (got <= 0) {
        /* Shorter than it was, or it cannot be read. */
        file->failed = got < 0;
        code = got < 0 ? remote_problem(give->transfer, file->path.data) : 0;
        return code < 0 ? code : finish(give);
    }
    code = remote_link_put(&give->transfer->link, file->block + file->filled,
                           (size_t)got);
    file->at += (uint64_t)got;
    file->bytes += (uint64_t)got;
    file->filled += (size_t)got;
    give->transfer->stats.file_bytes += (uint64_t)got;
    if (file->filled == REMOTE_BLOCK) {
        hash_block(file);
    }
    return code < 0 || file->at < file->size ? code : finish(give);
}

int give_files(struct give *give, bool *more)
{
    struct give_file *file = &give->file;

    *more = file->open || give->first;
    if (!file->block) {
        file->block = poise_alloc(REMOTE_BLOCK, 1);
        if (!file->block) {
            return -ENOMEM;
        }
    }
    if (file->open) {
        return send_part(give);
    }
    return give->first ? begin(give) : 0;
}

void give_files_free(struct give *give)
{
    if (give->file.open) {
        close(give->file.fd);
    }
    if (give->opened) {
        close(give->opened_fd);
        give_dir_drop(give->opened);
    }
    while (give->first) {
        struct give_want *next = give->first->next;
        give_dir_drop(give->first->dir);
        free(give->first);
        give->first = next;
    }
    free(give->file.block);
    poise_buf_free(&give->file.path);
}
