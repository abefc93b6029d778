/* The sender's files: one after the other, as the receiver wants them. */
#include "sender.h"

#include <poise/trace.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { HOLE_LEAST = 1 << 16 /* shorter ones are sent as zeros */ };

/* Descriptor of the directory, kept for the files that follow. */
static int dir_fd(struct sender *sender, struct sender_dir *dir)
{
    int fd;

    if (sender->opened == dir) {
        return sender->opened_fd;
    }
    fd = sender_dir_open(sender->transfer, dir);
    if (fd < 0) {
        return fd;
    }
    if (sender->opened) {
        close(sender->opened_fd);
        sender_dir_drop(sender->opened);
    }
    dir->refs++;
    sender->opened = dir;
    sender->opened_fd = fd;
    return fd;
}

static int64_t changed_ns(const struct stat *st)
{
    return (int64_t)((uint64_t)st->st_ctim.tv_sec * UINT64_C(1000000000) +
                     (uint64_t)st->st_ctim.tv_nsec);
}

static int say_end(struct sender *sender, unsigned status)
{
    struct sender_file *file = &sender->file;
    struct poise_buf body = {0};
    int code;

    poise_buf_varint(&body, status);
    poise_buf_varint(&body, file->at);
    poise_buf_u64(&body, file->hash);
    code =
        remote_channel_send(&sender->transfer->channel, REMOTE_FILE_END, &body);
    poise_buf_free(&body);
    return code;
}

static int open_file(struct sender *sender, const struct sender_want *want)
{
    struct sender_file *file = &sender->file;
    struct remote_place place = {.name = want->name};
    struct stat st;
    int fd, code = 0;

    if (want->dir) {
        code = place.fd = dir_fd(sender, want->dir);
    } else {
        code = remote_place_open(sender->transfer, want->name, &place);
    }
    if (code < 0) {
        return code;
    }
    /* It may have become a pipe meanwhile, which must not be waited for. */
    fd = poise_file_open(place.fd, place.name,
                         O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (!want->dir) {
        remote_place_close(&place);
    }
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

/* Begin with the next file; one that cannot be had is reported at once. */
static int begin(struct sender *sender)
{
    struct sender_want *want = sender->first;
    struct sender_file *file = &sender->file;
    int code = 0;

    sender->first = want->next;
    sender->last = sender->first ? sender->last : NULL;
    sender->unresolved--;
    sender->kept_bytes -= want->kept_bytes;
    file->at = file->bytes = file->hash = 0;
    file->filled = 0;
    file->failed = false;
    file->began = poise_trace_ticks(poise_trace_ring());
    poise_buf_reset(&file->path);
    if (want->dir) {
        code = sender_dir_path(want->dir, &file->path);
    }
    poise_buf_puts(&file->path, want->name);
    poise_buf_str(&file->path);
    if (file->path.error) {
        code = file->path.error;
    } else if (code == 0 && open_file(sender, want) < 0) {
        code = remote_report_problem(sender->transfer, file->path.data);
        code = code < 0 ? code : say_end(sender, REMOTE_FILE_LACKS);
    } else if (code == 0) {
        code =
            remote_channel_send(&sender->transfer->channel, REMOTE_FILE, NULL);
    }
    sender_dir_drop(want->dir);
    free(want);
    return code;
}

static void hash_block(struct sender_file *file)
{
    if (file->filled > 0) {
        file->hash = remote_hash(file->hash, file->block, file->filled);
        file->filled = 0;
    }
}

/* Where data go on, and how far: a long hole is sent as such. */
static int find_extent(struct sender *sender)
{
    struct sender_file *file = &sender->file;
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
    code = remote_channel_end_data(&sender->transfer->channel);
    hash_block(file);
    file->hash = remote_hash(file->hash, &len, sizeof len);
    file->at += len;
    poise_buf_varint(&body, len);
    if (code == 0) {
        code =
            remote_channel_send(&sender->transfer->channel, REMOTE_HOLE, &body);
    }
    poise_buf_free(&body);
    return code;
}

/* All was read, or as much as there is. */
static int finish(struct sender *sender)
{
    struct sender_file *file = &sender->file;
    struct stat st;
    int code = remote_channel_end_data(&sender->transfer->channel);
    bool changed = fstat(file->fd, &st) != 0 ||
                   changed_ns(&st) != file->changed_ns ||
                   (uint64_t)st.st_size != file->size;

    hash_block(file);
    close(file->fd);
    file->open = false;
    if (code == 0 && !file->failed && changed) {
        poise_error_set(EAGAIN, "send", file->path.data,
                        "it changed while it was read; send it again");
        code = remote_report_problem(sender->transfer, file->path.data);
    }
    if (code == 0) {
        code =
            say_end(sender, file->failed ? REMOTE_FILE_LACKS : REMOTE_FILE_IS);
    }
    if (file->began != 0) {
        struct poise_trace_ring *ring = poise_trace_ring();
        poise_trace_put(ring, POISE_TRACE_FILE, file->number++, file->began,
                        poise_trace_ticks(ring), file->bytes, (uint64_t)-code);
    }
    return code;
}

static int send_part(struct sender *sender)
{
    struct sender_file *file = &sender->file;
    uint64_t left;
    size_t len = REMOTE_BLOCK - file->filled;
    ssize_t bytes_read;
    int code = 0;

    if (file->at >= file->extent_end && file->at < file->size) {
        code = find_extent(sender);
    }
    if (code < 0 || file->at >= file->size) {
        return code < 0 ? code : finish(sender);
    }
    left = file->extent_end > file->at ? file->extent_end - file->at
                                       : file->size - file->at;
    len = len < left ? len : (size_t)left;
    bytes_read = poise_file_pread(file->fd, file->block + file->filled, len,
                                  file->at, file->path.data);
    if (bytes_read <= 0) {
        /* Shorter than it was, or it cannot be read. */
        file->failed = bytes_read < 0;
        code = bytes_read < 0
                   ? remote_report_problem(sender->transfer, file->path.data)
                   : 0;
        return code < 0 ? code : finish(sender);
    }
    code = remote_channel_send_data(&sender->transfer->channel,
                                    file->block + file->filled,
                                    (size_t)bytes_read);
    file->at += (uint64_t)bytes_read;
    file->bytes += (uint64_t)bytes_read;
    file->filled += (size_t)bytes_read;
    sender->transfer->stats.file_bytes += (uint64_t)bytes_read;
    if (file->filled == REMOTE_BLOCK) {
        hash_block(file);
    }
    return code < 0 || file->at < file->size ? code : finish(sender);
}

int sender_files(struct sender *sender, bool *more)
{
    struct sender_file *file = &sender->file;

    *more = file->open || sender->first;
    if (!file->block) {
        file->block = poise_alloc(REMOTE_BLOCK, 1);
        if (!file->block) {
            return -ENOMEM;
        }
    }
    if (file->open) {
        return send_part(sender);
    }
    return sender->first ? begin(sender) : 0;
}

void sender_files_free(struct sender *sender)
{
    if (sender->file.open) {
        close(sender->file.fd);
    }
    if (sender->opened) {
        close(sender->opened_fd);
        sender_dir_drop(sender->opened);
    }
    while (sender->first) {
        struct sender_want *next = sender->first->next;
        sender_dir_drop(sender->first->dir);
        free(sender->first);
        sender->first = next;
    }
    free(sender->file.block);
    poise_buf_free(&sender->file.path);
}
