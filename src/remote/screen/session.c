/*
 * A session of updates in a file: a head, steps, an end.
 *
 *     head  "poise-screen 1\n"
 *     step  varint: bytes of the body, which is zstd of
 *             varint  time in us, bytes that the server sent, width, height
 *             varint  1 if the size is new; number of rectangles
 *             each    varint x, y, width, height; width * height pixels of 3
 *                     bytes (blue, green, red), as they are after the step
 *     end   a step's length of 0, u64 number of steps, u64 hash of the picture
 *
 * A reader believes nothing: sizes are bounded, rectangles lie in the picture,
 * and a file without an end is cut off.
 */
#include "internal.h"

#include <zstd.h>

#include <poise/file.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char head[] = "poise-screen 1\n";

enum {
    HEAD_BYTES = sizeof head - 1,
    PIXEL = 3,
    LEVEL = 3,
    READ_BYTES = 1 << 16,
    RECTS_MOST = 1 << 20,
    /* Of a step before it is compressed: all pixels, and some rectangles. */
    BODY_MOST = SCREEN_MOST_PIXELS * PIXEL + (32 << 20),
    END_BYTES = 16
};

uint64_t poise_screen_hash(const struct poise_screen_picture *picture)
{
    uint64_t size = (uint64_t)picture->width << 32 | picture->height;
    return poise_hash_bytes(picture->pixels,
                            (size_t)picture->width * picture->height *
                                sizeof *picture->pixels,
                            size);
}

static void put_pixel(uint8_t *to, uint32_t pixel)
{
    to[0] = (uint8_t)pixel;
    to[1] = (uint8_t)(pixel >> 8);
    to[2] = (uint8_t)(pixel >> 16);
}

/* ---- writing ------------------------------------------------------------- */

struct poise_screen_writer {
    int fd;
    char *path;
    struct poise_buf body, packed;
    ZSTD_CCtx *zstd;
    uint64_t steps;
};

void poise_screen_writer_abort(struct poise_screen_writer *writer)
{
    if (writer) {
        ZSTD_freeCCtx(writer->zstd);
        poise_buf_free(&writer->body);
        poise_buf_free(&writer->packed);
        free(writer->path);
        free(writer);
    }
}

int poise_screen_writer_create(int fd, const char *path,
                               struct poise_screen_writer **out)
{
    struct poise_screen_writer *writer = poise_alloc(1, sizeof *writer);
    int code = -ENOMEM;
    if (!writer) {
        return code;
    }
    writer->fd = fd;
    writer->path = strdup(path);
    writer->zstd = ZSTD_createCCtx();
    if (writer->path && writer->zstd) {
        code = poise_file_write(fd, head, HEAD_BYTES, path);
    }
    if (code < 0) {
        poise_screen_writer_abort(writer);
        return code;
    }
    *out = writer;
    return 0;
}

static void put_rect(struct poise_buf *body,
                     const struct poise_screen_picture *picture,
                     const struct poise_screen_rect *rect)
{
    size_t row = (size_t)rect->width * PIXEL;
    poise_buf_varint(body, rect->x);
    poise_buf_varint(body, rect->y);
    poise_buf_varint(body, rect->width);
    poise_buf_varint(body, rect->height);
    for (uint32_t y = 0; y < rect->height; y++) {
        const uint32_t *from =
            picture->pixels + (size_t)(rect->y + y) * picture->width + rect->x;
        uint8_t *to = (uint8_t *)poise_buf_reserve(body, row);
        for (uint32_t x = 0; to && x < rect->width; x++) {
            put_pixel(to + (size_t)x * PIXEL, from[x]);
        }
        body->len += to ? row : 0;
    }
}

/* Where rectangles overlap much all of the picture is less. */
static void put_rects(struct poise_buf *body,
                      const struct poise_screen_picture *picture,
                      const struct poise_screen_step *step)
{
    struct poise_screen_rect all = {0, 0, picture->width, picture->height};
    uint64_t pixels = 0;
    for (size_t i = 0; i < step->rect_count; i++) {
        pixels += (uint64_t)step->rects[i].width * step->rects[i].height;
    }
    bool whole = pixels > (uint64_t)all.width * all.height;
    const struct poise_screen_rect *rects = whole ? &all : step->rects;
    size_t count = whole ? 1 : step->rect_count;
    poise_buf_varint(body, count);
    for (size_t i = 0; i < count; i++) {
        put_rect(body, picture, &rects[i]);
    }
}

/* The body, compressed, behind its length. */
static int put_body(struct poise_screen_writer *writer)
{
    size_t most = ZSTD_compressBound(writer->body.len);
    poise_buf_reset(&writer->packed);
    char *to = poise_buf_reserve(&writer->packed, most);
    if (!to || writer->body.error) {
        return -ENOMEM;
    }
    size_t len = ZSTD_compressCCtx(writer->zstd, to, most, writer->body.data,
                                   writer->body.len, LEVEL);
    if (ZSTD_isError(len)) {
        return poise_error_set(EIO, "compress", writer->path, "%s",
                               ZSTD_getErrorName(len));
    }
    poise_buf_reset(&writer->body);
    int code = poise_buf_varint(&writer->body, len);
    code = code == 0 ? poise_file_write(writer->fd, writer->body.data,
                                        writer->body.len, writer->path)
                     : code;
    return code == 0 ? poise_file_write(writer->fd, to, len, writer->path)
                     : code;
}

int poise_screen_writer_add(struct poise_screen_writer *writer,
                            const struct poise_screen_picture *picture,
                            const struct poise_screen_step *step)
{
    struct poise_buf *body = &writer->body;
    poise_buf_reset(body);
    poise_buf_varint(body, step->at_us);
    poise_buf_varint(body, step->bytes);
    poise_buf_varint(body, picture->width);
    poise_buf_varint(body, picture->height);
    poise_buf_varint(body, step->resized || writer->steps == 0);
    put_rects(body, picture, step);
    writer->steps++;
    return put_body(writer);
}

int poise_screen_writer_end(struct poise_screen_writer *writer,
                            const struct poise_screen_picture *picture)
{
    struct poise_buf *body = &writer->body;
    poise_buf_reset(body);
    poise_buf_varint(body, 0);
    poise_buf_u64(body, writer->steps);
    poise_buf_u64(body, picture ? poise_screen_hash(picture) : 0);
    int code = body->error ? body->error
                           : poise_file_write(writer->fd, body->data, body->len,
                                              writer->path);
    poise_screen_writer_abort(writer);
    return code;
}

/* ---- reading ------------------------------------------------------------- */

struct poise_screen_reader {
    int fd;
    uint64_t total; /* of the file; 0: a pipe */
    char *path;
    uint64_t offset; /* of what comes next */
    uint8_t *in;
    size_t at, end; /* of `in` */
    struct poise_buf packed, body;
    struct poise_screen_picture picture;
    struct poise_screen_rect *rects;
    size_t rect_room;
    uint64_t steps;
};

static int bad(const struct poise_screen_reader *reader, const char *why)
{
    return poise_error_set(EBADMSG, "read the session", reader->path,
                           "%s at byte %llu", why,
                           (unsigned long long)reader->offset);
}

static int take(struct poise_screen_reader *reader, void *to, size_t len)
{
    uint8_t *out = to;
    while (len > 0) {
        if (reader->at == reader->end) {
            ssize_t got = poise_file_read(reader->fd, reader->in, READ_BYTES,
                                          reader->path);
            if (got <= 0) {
                return got < 0 ? (int)got : bad(reader, "it is cut off");
            }
            reader->at = 0;
            reader->end = (size_t)got;
        }
        size_t have = reader->end - reader->at;
        size_t step = len < have ? len : have;
        memcpy(out, reader->in + reader->at, step);
        reader->at += step;
        reader->offset += step;
        out += step;
        len -= step;
    }
    return 0;
}

static int take_length(struct poise_screen_reader *reader, uint64_t *out)
{
    uint8_t bytes[10];
    size_t count = 0;
    do {
        if (count == sizeof bytes) {
            return bad(reader, "a length is wrong");
        }
        int code = take(reader, &bytes[count], 1);
        if (code < 0) {
            return code;
        }
    } while (bytes[count++] & 0x80);
    struct poise_reader number = poise_reader_of(bytes, count);
    *out = poise_reader_varint(&number);
    return number.error ? bad(reader, "a length is wrong") : 0;
}

void poise_screen_reader_close(struct poise_screen_reader *reader)
{
    if (reader) {
        if (reader->fd >= 0) {
            close(reader->fd);
        }
        free(reader->path);
        free(reader->in);
        poise_buf_free(&reader->packed);
        poise_buf_free(&reader->body);
        free(reader->picture.pixels);
        free(reader->rects);
        free(reader);
    }
}

static int begin(struct poise_screen_reader *reader)
{
    char found[HEAD_BYTES];
    int fd = poise_file_open(AT_FDCWD, reader->path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    struct stat st;
    reader->fd = fd;
    reader->total =
        fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    int code = take(reader, found, sizeof found);
    return code == 0 && memcmp(found, head, HEAD_BYTES) != 0
               ? poise_error_set(EBADMSG, "read", reader->path,
                                 "it is no session of a screen")
               : code;
}

int poise_screen_reader_open(const char *path, struct poise_screen_reader **out)
{
    struct poise_screen_reader *reader = poise_alloc(1, sizeof *reader);
    if (!reader) {
        return -ENOMEM;
    }
    reader->fd = -1;
    reader->path = strdup(path);
    reader->in = poise_alloc(READ_BYTES, 1);
    int code = reader->path && reader->in ? begin(reader) : -ENOMEM;
    if (code < 0) {
        poise_screen_reader_close(reader);
        return code;
    }
    *out = reader;
    return 0;
}

uint64_t poise_screen_reader_at(const struct poise_screen_reader *reader,
                                uint64_t *total)
{
    *total = reader->total;
    return reader->offset;
}

const struct poise_screen_picture *
poise_screen_reader_picture(const struct poise_screen_reader *reader)
{
    return &reader->picture;
}

/* The body of a step, as it was before it was compressed. */
static int take_body(struct poise_screen_reader *reader, uint64_t len)
{
    if (len > ZSTD_compressBound(BODY_MOST)) {
        return bad(reader, "a step is too long");
    }
    poise_buf_reset(&reader->packed);
    poise_buf_reset(&reader->body);
    char *packed = poise_buf_reserve(&reader->packed, len);
    int code = packed ? take(reader, packed, len) : -ENOMEM;
    if (code < 0) {
        return code;
    }
    unsigned long long whole = ZSTD_getFrameContentSize(packed, len);
    if (whole > BODY_MOST) { /* errors are larger */
        return bad(reader, "a step is damaged");
    }
    char *body = poise_buf_reserve(&reader->body, whole);
    if (!body) {
        return -ENOMEM;
    }
    size_t got = ZSTD_decompress(body, whole, packed, len);
    if (ZSTD_isError(got) || got != whole) {
        return bad(reader, "a step is damaged");
    }
    reader->body.len = got;
    return 0;
}

static int resize(struct poise_screen_reader *reader, uint64_t width,
                  uint64_t height)
{
    if (width > UINT16_MAX || height > UINT16_MAX ||
        width * height > SCREEN_MOST_PIXELS) {
        return bad(reader, "a screen is too large");
    }
    uint32_t *pixels = poise_alloc(width * height + 1, sizeof *pixels);
    if (!pixels) {
        return -ENOMEM;
    }
    free(reader->picture.pixels);
    reader->picture = (struct poise_screen_picture){pixels, (uint32_t)width,
                                                    (uint32_t)height};
    return 0;
}

static int take_rect(struct poise_screen_reader *reader,
                     struct poise_reader *body, struct poise_screen_rect *out)
{
    uint64_t x = poise_reader_varint(body), y = poise_reader_varint(body);
    uint64_t width = poise_reader_varint(body);
    uint64_t height = poise_reader_varint(body);
    const struct poise_screen_picture *picture = &reader->picture;
    if (body->error || width > picture->width || x > picture->width - width ||
        height > picture->height || y > picture->height - height ||
        width * height * PIXEL > poise_reader_left(body)) {
        return bad(reader, "a step is damaged");
    }
    *out = (struct poise_screen_rect){(uint32_t)x, (uint32_t)y, (uint32_t)width,
                                      (uint32_t)height};
    for (uint32_t i = 0; i < height; i++) {
        uint32_t *to = picture->pixels + (y + i) * picture->width + x;
        for (uint32_t k = 0; k < width; k++, body->pos += PIXEL) {
            to[k] = screen_pixel(body->pos);
        }
    }
    return 0;
}

static int take_rects(struct poise_screen_reader *reader,
                      struct poise_reader *body, uint64_t count)
{
    if (body->error || count > RECTS_MOST) {
        return bad(reader, "a step is damaged");
    }
    if (count > reader->rect_room) {
        struct poise_screen_rect *more =
            poise_realloc(reader->rects, count, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        reader->rects = more;
        reader->rect_room = count;
    }
    int code = 0;
    for (uint64_t i = 0; i < count && code == 0; i++) {
        code = take_rect(reader, body, &reader->rects[i]);
    }
    return code == 0 && poise_reader_left(body) > 0
               ? bad(reader, "a step is damaged")
               : code;
}

static int take_end(struct poise_screen_reader *reader)
{
    uint8_t end[END_BYTES], more;
    int code = take(reader, end, sizeof end);
    if (code < 0) {
        return code;
    }
    if (poise_get_u64(end) != reader->steps ||
        (reader->steps > 0 &&
         poise_get_u64(end + 8) != poise_screen_hash(&reader->picture))) {
        return bad(reader, "the last picture is not the one that was written");
    }
    if (reader->at < reader->end ||
        poise_file_read(reader->fd, &more, 1, reader->path) > 0) {
        return bad(reader, "something follows its end");
    }
    return 0;
}

int poise_screen_reader_next(struct poise_screen_reader *reader,
                             struct poise_screen_step *out)
{
    uint64_t len = 0;
    int code = take_length(reader, &len);
    if (code == 0 && len == 0) {
        return take_end(reader);
    }
    code = code == 0 ? take_body(reader, len) : code;
    if (code < 0) {
        return code;
    }
    struct poise_reader body =
        poise_reader_of(reader->body.data, reader->body.len);
    struct poise_screen_step step = {0};
    step.at_us = poise_reader_varint(&body);
    step.bytes = poise_reader_varint(&body);
    uint64_t width = poise_reader_varint(&body);
    uint64_t height = poise_reader_varint(&body);
    step.resized = poise_reader_varint(&body) != 0;
    step.rect_count = poise_reader_varint(&body);
    bool same =
        width == reader->picture.width && height == reader->picture.height;
    if (step.resized) {
        code = resize(reader, width, height);
    } else if (body.error || !same || reader->steps == 0) {
        code = bad(reader, "a step is damaged");
    }
    code = code == 0 ? take_rects(reader, &body, step.rect_count) : code;
    if (code < 0) {
        return code;
    }
    reader->steps++;
    step.rects = reader->rects;
    *out = step;
    return 1;
}
