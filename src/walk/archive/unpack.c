/*
 * Compressed archives. Where a table of frames stands at the end, as Poise and
 * other programs of the seekable format write it, each frame is unpacked by
 * itself, by any thread. Else the file is one stream that is read through.
 *
 * Nothing that a file says is believed: the table has to fit the file, a frame
 * has to have the length that the table says, and memory is bounded: a frame of
 * the table by TAR_FRAME_MOST, the window of a stream by what zstd allows, too
 * (128 MiB).
 */
#include "internal.h"

#include <stdlib.h>
#include <zstd.h>

enum {
    FOOTER = 9, /* number of frames, flags, magic */
    HEAD = 8,   /* of the frame that is skipped */
    STREAM_BYTES = 256 << 10,
    WINDOW_LOG = 27,
};
static const uint32_t seekable = 0x8F92EAB1, skippable = 0x184D2A50,
                      table_magic = 0x184D2A5E, frame_magic = 0xFD2FB528;

struct frame {
    uint64_t at, packed_at; /* in the archive, in the file */
};
struct tar_frames {
    size_t count;
    struct frame frames[]; /* and one behind the last */
};

struct tar_unpacker {
    ZSTD_DCtx *context;
    struct poise_buf packed;
    uint64_t next;      /* stream: in the file, behind what `packed` holds */
    size_t used;        /* of `packed` */
    size_t hint;        /* 0: at the end of a frame */
    const char *broken; /* why nothing more can be unpacked */
};

static uint32_t get_u32(const char *from)
{
    const unsigned char *bytes = (const void *)from;
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

bool tar_is_packed(int fd, const char *path)
{
    char bytes[4];
    if (poise_file_pread(fd, bytes, sizeof bytes, 0, path) !=
        (ssize_t)sizeof bytes) {
        return false;
    }
    uint32_t magic = get_u32(bytes);
    return magic == frame_magic || (magic & ~15u) == skippable;
}

/* ---- the table ---------------------------------------------------------- */

void tar_frames_free(struct tar_frames *frames)
{
    free(frames);
}

/* Its rows, if they fit the file: 1, else 0. */
static int take_rows(const char *rows, uint64_t count, size_t row,
                     uint64_t packed_size, struct tar_frames *to)
{
    uint64_t at = 0, packed_at = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t packed = get_u32(rows + i * row);
        uint32_t plain = get_u32(rows + i * row + 4);
        if (plain > TAR_FRAME_MOST || packed > 2 * TAR_FRAME_MOST) {
            return 0;
        }
        to->frames[i] = (struct frame){at, packed_at};
        at += plain;
        packed_at += packed;
    }
    to->frames[count] = (struct frame){at, packed_at};
    to->count = (size_t)count;
    return packed_at == packed_size;
}

int tar_frames_read(int fd, uint64_t file_size, const char *path,
                    struct tar_frames **out, uint64_t *size)
{
    struct poise_buf rows = {0};
    struct tar_frames *frames = NULL;
    char end[FOOTER], head[HEAD];
    int code = 0;
    if (file_size < FOOTER + HEAD) {
        return 0;
    }
    ssize_t got =
        poise_file_pread(fd, end, sizeof end, file_size - sizeof end, path);
    if (got != (ssize_t)sizeof end || get_u32(end + 5) != seekable) {
        return got < 0 ? (int)got : 0;
    }
    uint64_t count = get_u32(end);
    size_t row = end[4] & 0x80 ? TAR_FRAME_ROW + 4 : TAR_FRAME_ROW;
    uint64_t bytes = count * row + FOOTER;
    if (count > TAR_FRAMES_MOST || bytes + HEAD > file_size || end[4] & 0x7f) {
        return 0;
    }
    uint64_t from = file_size - bytes - HEAD;
    got = poise_file_pread(fd, head, sizeof head, from, path);
    if (got != (ssize_t)sizeof head || get_u32(head) != table_magic ||
        get_u32(head + 4) != bytes) {
        return got < 0 ? (int)got : 0;
    }
    char *to = poise_buf_reserve(&rows, (size_t)(count * row) + 1);
    frames =
        to ? malloc(sizeof *frames + (count + 1) * sizeof(struct frame)) : NULL;
    if (!frames) {
        code = -ENOMEM;
    } else {
        got =
            poise_file_pread(fd, to, (size_t)(count * row), from + HEAD, path);
        code = got < 0 ? (int)got
               : (uint64_t)got != count * row
                   ? 0
                   : take_rows(to, count, row, from, frames);
    }
    poise_buf_free(&rows);
    if (code <= 0) {
        free(frames);
        return code;
    }
    *size = frames->frames[count].at;
    *out = frames;
    return 1;
}

/* ---- unpacking ---------------------------------------------------------- */

void tar_unpacker_reset(struct tar_unpacker *unpacker)
{
    if (unpacker) {
        ZSTD_DCtx_reset(unpacker->context, ZSTD_reset_session_only);
        poise_buf_reset(&unpacker->packed);
        unpacker->next = unpacker->used = unpacker->hint = 0;
        unpacker->broken = NULL;
    }
}

void tar_unpacker_free(struct tar_unpacker *unpacker)
{
    if (unpacker) {
        ZSTD_freeDCtx(unpacker->context);
        poise_buf_free(&unpacker->packed);
        free(unpacker);
    }
}

static struct tar_unpacker *unpacker_create(void)
{
    struct tar_unpacker *unpacker = poise_alloc(1, sizeof *unpacker);
    if (unpacker) {
        *unpacker = (struct tar_unpacker){.context = ZSTD_createDCtx()};
        if (!unpacker->context ||
            ZSTD_isError(ZSTD_DCtx_setParameter(
                unpacker->context, ZSTD_d_windowLogMax, WINDOW_LOG))) {
            tar_unpacker_free(unpacker);
            unpacker = NULL;
        }
    }
    return unpacker;
}

static int damaged(const struct tar_source *source, uint64_t at,
                   const char *why)
{
    return poise_error_set(EBADMSG, "read archive", source->path,
                           "its compressed data are damaged near byte %llu of "
                           "the archive: %s",
                           (unsigned long long)at, why);
}

/* The frame that holds `offset`; the last of those that begin there. */
static size_t frame_of(const struct tar_frames *frames, uint64_t offset)
{
    size_t low = 0, high = frames->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (frames->frames[middle].at <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - 1;
}

uint64_t tar_frame_end(const struct tar_source *source, uint64_t offset)
{
    return source->frames->frames[frame_of(source->frames, offset) + 1].at;
}

static int unpack_frame(struct tar_source *source, uint64_t offset)
{
    struct tar_window *window = source->window;
    struct tar_unpacker *unpacker = window->unpacker;
    const struct frame *frame =
        &source->frames->frames[frame_of(source->frames, offset)];
    size_t plain = (size_t)(frame[1].at - frame->at);
    size_t packed = (size_t)(frame[1].packed_at - frame->packed_at);
    poise_buf_reset(&window->bytes);
    poise_buf_reset(&unpacker->packed);
    char *to = poise_buf_reserve(&window->bytes, plain + 1);
    char *from = poise_buf_reserve(&unpacker->packed, packed + 1);
    if (!to || !from) {
        return -ENOMEM;
    }
    ssize_t read = poise_file_pread(source->fd, from, packed, frame->packed_at,
                                    source->path);
    if (read != (ssize_t)packed) {
        return read < 0 ? (int)read : damaged(source, offset, "cut short");
    }
    size_t got =
        ZSTD_decompressDCtx(unpacker->context, to, plain, from, packed);
    if (ZSTD_isError(got) || got != plain || plain == 0) {
        return damaged(source, offset,
                       ZSTD_isError(got) ? ZSTD_getErrorName(got)
                                         : "a frame has another length than "
                                           "its table says");
    }
    window->at = frame->at;
    window->bytes.len = plain;
    return 0;
}

/* More of the file: 1, 0 at its end. */
static int stream_read(struct tar_source *source)
{
    struct tar_unpacker *unpacker = source->window->unpacker;
    poise_buf_reset(&unpacker->packed);
    unpacker->used = 0;
    char *to = poise_buf_reserve(&unpacker->packed, STREAM_BYTES);
    ssize_t got = to ? poise_file_pread(source->fd, to, STREAM_BYTES,
                                        unpacker->next, source->path)
                     : -ENOMEM;
    if (got > 0) {
        unpacker->packed.len = (size_t)got;
        unpacker->next += (size_t)got;
    }
    return got < 0 ? (int)got : got > 0;
}

/* What comes next, as one window; the size is known at the end. */
static int stream_next(struct tar_source *source)
{
    struct tar_window *window = source->window;
    struct tar_unpacker *unpacker = window->unpacker;
    uint64_t at = window->at + window->bytes.len;
    poise_buf_reset(&window->bytes);
    window->at = at;
    char *to = poise_buf_reserve(&window->bytes, STREAM_BYTES);
    ZSTD_outBuffer out = {to, to ? STREAM_BYTES : 0, 0};
    int code = to ? 1 : -ENOMEM;
    while (code > 0 && out.pos < out.size && !unpacker->broken) {
        if (unpacker->used == unpacker->packed.len) {
            code = stream_read(source);
            if (code <= 0) {
                break;
            }
        }
        ZSTD_inBuffer in = {unpacker->packed.data, unpacker->packed.len,
                            unpacker->used};
        unpacker->hint = ZSTD_decompressStream(unpacker->context, &out, &in);
        unpacker->used = in.pos;
        if (ZSTD_isError(unpacker->hint)) {
            unpacker->broken = ZSTD_getErrorName(unpacker->hint);
        }
    }
    window->bytes.len = out.pos;
    if (code < 0 || out.pos > 0) {
        return code < 0 ? code : 0;
    }
    source->size = at; /* nothing more comes */
    return unpacker->broken ? damaged(source, at, unpacker->broken)
           : unpacker->hint ? damaged(source, at, "cut short")
                            : 0;
}

int tar_unpack(struct tar_source *source, uint64_t offset)
{
    struct tar_window *window = source->window;
    if (!window->unpacker) {
        window->unpacker = unpacker_create();
        if (!window->unpacker) {
            return -ENOMEM;
        }
    }
    if (source->frames) {
        int code = unpack_frame(source, offset);
        window->bytes.len = code < 0 ? 0 : window->bytes.len;
        return code;
    }
    int code = 0;
    while (code == 0 && offset >= window->at + window->bytes.len &&
           offset < source->size) {
        code = stream_next(source);
    }
    if (code == 0 && (offset < window->at || offset >= source->size)) {
        code = poise_error_set(EBADMSG, "read archive", source->path,
                               "cut short near byte %llu",
                               (unsigned long long)offset);
    }
    return code;
}
