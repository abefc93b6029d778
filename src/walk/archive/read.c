/*
 * Reading archives: a thread reads ahead into its window, so that headers and
 * small members cost no system call each. Of what is compressed the window
 * holds what was unpacked last.
 */
#include "internal.h"

enum {
    AHEAD = 64 << 10, /* where one member follows the other */
    LEAST = 4 << 10,  /* elsewhere */
};

void tar_window_free(struct tar_window *window)
{
    poise_buf_free(&window->bytes);
    tar_unpacker_free(window->unpacker);
    *window = (struct tar_window){0};
}

void tar_window_reset(struct tar_window *window)
{
    poise_buf_reset(&window->bytes);
    window->at = window->wanted_to = 0;
    tar_unpacker_reset(window->unpacker);
}

static int cut_short(const struct tar_source *source, uint64_t at)
{
    return poise_error_set(EBADMSG, "read archive", source->path,
                           "cut short near byte %llu", (unsigned long long)at);
}

static int read_file(const struct tar_source *source, uint64_t offset,
                     void *data, size_t len)
{
    ssize_t got = poise_file_pread(source->fd, data, len, offset, source->path);
    return got < 0              ? (int)got
           : (size_t)got == len ? 0
                                : cut_short(source, offset + (size_t)got);
}

/* How many bytes the window has from `offset` on. */
static size_t has(const struct tar_window *window, uint64_t offset)
{
    return offset < window->at || offset - window->at >= window->bytes.len
               ? 0
               : window->bytes.len - (size_t)(offset - window->at);
}

/* The window begins at `offset` then, with `len` bytes, or more. */
static int fill(struct tar_source *source, uint64_t offset, size_t len)
{
    struct tar_window *window = source->window;
    uint64_t end = window->at + window->bytes.len;
    bool follows = offset >= end && offset - end < AHEAD && end > 0;
    size_t most = follows ? AHEAD : LEAST;
    if (offset < window->wanted_to && window->wanted_to - offset > most) {
        most = window->wanted_to - offset < TAR_WINDOW
                   ? (size_t)(window->wanted_to - offset)
                   : TAR_WINDOW;
    }
    most = len > most ? len : most;
    most =
        source->size - offset < most ? (size_t)(source->size - offset) : most;
    poise_buf_reset(&window->bytes);
    char *to = poise_buf_reserve(&window->bytes, most);
    int code = to ? read_file(source, offset, to, most) : -ENOMEM;
    window->at = offset;
    window->bytes.len = code < 0 ? 0 : most;
    return code;
}

int tar_read(struct tar_source *source, uint64_t offset, void *data, size_t len)
{
    struct tar_window *window = source->window;
    char *to = data;
    if (offset > source->size || len > source->size - offset) {
        return cut_short(source, offset);
    }
    if (source->fd < 0 && !source->packed) {
        memcpy(data, source->data + offset, len);
        return 0;
    }
    if (!source->packed &&
        (!window || (len > AHEAD && has(window, offset) < len))) {
        return read_file(source, offset, data, len);
    }
    while (len > 0) {
        size_t n = has(window, offset);
        if (n == 0) {
            int code = source->packed ? tar_unpack(source, offset)
                                      : fill(source, offset, len);
            if (code < 0) {
                return code;
            }
            continue;
        }
        n = n < len ? n : len;
        memcpy(to, window->bytes.data + (offset - window->at), n);
        to += n;
        offset += n;
        len -= n;
    }
    return 0;
}

const char *tar_look(struct tar_source *source, uint64_t offset, size_t len)
{
    struct tar_window *window = source->window;
    if (offset > source->size || len > source->size - offset || !window ||
        len > TAR_WINDOW || len == 0) {
        return NULL;
    }
    if (has(window, offset) < len) {
        int code = !source->packed       ? fill(source, offset, len)
                   : has(window, offset) ? -ENOENT
                                         : tar_unpack(source, offset);
        if (code < 0 || has(window, offset) < len) {
            return NULL;
        }
    }
    return window->bytes.data + (offset - window->at);
}
