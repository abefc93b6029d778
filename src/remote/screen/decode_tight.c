/*
 * Tight, without its lossy parts, for which we do not ask: one colour, or
 * pixels that are plain, have a palette, or are differences from a prediction,
 * through one of four streams of zlib. Source: the RFB protocol as the
 * community keeps it, 7.7.5.
 */
#include "internal.h"

#include <stdlib.h>

enum {
    PIXEL = 3,
    PLAIN_MOST = 11, /* bytes that are not compressed */
    KIND_FILL = 8,
    KIND_JPEG = 9,
    HAS_FILTER = 4,
    FILTER_COPY = 0,
    FILTER_PALETTE = 1,
    FILTER_GRADIENT = 2,
    WIDTH_MOST = 2048 /* of a rectangle with differences */
};

/* Where bytes of a rectangle come from: the source, or a stream. */
struct bytes {
    struct screen_source *source;
    struct screen_part *part; /* NULL: they are few, and not compressed */
};

static int take(const struct bytes *bytes, void *to, size_t len)
{
    return bytes->part ? screen_part_read(bytes->part, to, len)
                       : screen_read(bytes->source, to, len);
}

/* Seven bits a byte, three bytes at most. */
static uint32_t read_length(struct screen_source *source)
{
    uint8_t byte = screen_u8(source);
    uint32_t length = byte & 0x7f;
    if (byte & 0x80) {
        byte = screen_u8(source);
        length |= (uint32_t)(byte & 0x7f) << 7;
        if (byte & 0x80) {
            length |= (uint32_t)screen_u8(source) << 14;
        }
    }
    return length;
}

static int decode_copy(struct screen_decoder *decoder,
                       const struct poise_screen_rect *rect,
                       const struct bytes *bytes)
{
    for (uint32_t y = 0; y < rect->height; y++) {
        uint32_t *to = screen_at(decoder, rect->x, rect->y + y);
        take(bytes, decoder->row, (size_t)rect->width * PIXEL);
        for (uint32_t x = 0; x < rect->width; x++) {
            to[x] = screen_pixel_tight(decoder->row + (size_t)x * PIXEL);
        }
    }
    return bytes->source->error;
}

struct palette {
    uint32_t colours[256];
    unsigned count;
};

static int decode_palette(struct screen_decoder *decoder,
                          const struct poise_screen_rect *rect,
                          const struct bytes *bytes,
                          const struct palette *palette)
{
    bool bits = palette->count <= 2;
    size_t len = bits ? ((size_t)rect->width + 7) / 8 : rect->width;
    for (uint32_t y = 0; y < rect->height; y++) {
        uint32_t *to = screen_at(decoder, rect->x, rect->y + y);
        take(bytes, decoder->row, len);
        for (uint32_t x = 0; x < rect->width; x++) {
            unsigned index =
                bits ? decoder->row[x / 8] >> (7 - x % 8) & 1 : decoder->row[x];
            if (index >= palette->count) {
                return screen_bad(bytes->source,
                                  "a pixel has a colour that no palette has");
            }
            to[x] = palette->colours[index];
        }
    }
    return bytes->source->error;
}

/* left + above - above left, within a byte. */
static uint8_t predict(uint8_t left, uint8_t above, uint8_t corner)
{
    int value = (int)left + above - corner;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static int decode_gradient(struct screen_decoder *decoder,
                           const struct poise_screen_rect *rect,
                           const struct bytes *bytes)
{
    uint8_t above[(WIDTH_MOST + 1) * PIXEL] = {0}, here[sizeof above] = {0};
    if (rect->width > WIDTH_MOST) {
        return screen_bad(bytes->source, "a rectangle is too wide");
    }
    for (uint32_t y = 0; y < rect->height; y++) {
        uint32_t *to = screen_at(decoder, rect->x, rect->y + y);
        take(bytes, decoder->row, (size_t)rect->width * PIXEL);
        /* Pixel 0 is what lies left of the rectangle: black. */
        for (size_t i = PIXEL; i < ((size_t)rect->width + 1) * PIXEL; i++) {
            here[i] =
                (uint8_t)(decoder->row[i - PIXEL] +
                          predict(here[i - PIXEL], above[i], above[i - PIXEL]));
        }
        for (uint32_t x = 0; x < rect->width; x++) {
            to[x] = screen_pixel_tight(here + ((size_t)x + 1) * PIXEL);
        }
        memcpy(above, here, sizeof above);
    }
    return bytes->source->error;
}

/* ---- what follows the first byte ----------------------------------------- */

static int read_palette(struct screen_source *source, struct palette *out)
{
    out->count = (unsigned)screen_u8(source) + 1;
    for (unsigned i = 0; i < out->count; i++) {
        uint8_t bytes[PIXEL];
        screen_read(source, bytes, sizeof bytes);
        out->colours[i] = screen_pixel_tight(bytes);
    }
    return source->error;
}

static size_t bytes_of(const struct poise_screen_rect *rect, uint8_t filter,
                       const struct palette *palette)
{
    size_t row = (size_t)rect->width * PIXEL;
    if (filter == FILTER_PALETTE) {
        row = palette->count <= 2 ? ((size_t)rect->width + 7) / 8 : rect->width;
    }
    return row * rect->height;
}

static int decode_filtered(struct screen_decoder *decoder,
                           const struct poise_screen_rect *rect,
                           const struct bytes *bytes, uint8_t filter,
                           const struct palette *palette)
{
    return filter == FILTER_PALETTE
               ? decode_palette(decoder, rect, bytes, palette)
           : filter == FILTER_GRADIENT ? decode_gradient(decoder, rect, bytes)
                                       : decode_copy(decoder, rect, bytes);
}

static int decode_basic(struct screen_decoder *decoder,
                        const struct poise_screen_rect *rect, uint8_t kind)
{
    struct screen_source *source = decoder->source;
    struct bytes bytes = {.source = source};
    struct palette palette = {0};
    struct screen_part part;
    uint8_t filter = kind & HAS_FILTER ? screen_u8(source) : FILTER_COPY;
    if (filter > FILTER_GRADIENT) {
        return screen_bad(source, "there is no such filter of Tight");
    }
    if (filter == FILTER_PALETTE && read_palette(source, &palette) < 0) {
        return source->error;
    }
    if (bytes_of(rect, filter, &palette) <= PLAIN_MOST) {
        return decode_filtered(decoder, rect, &bytes, filter, &palette);
    }
    uint32_t len = read_length(source);
    bytes.part = &part;
    int code = screen_part_begin(&part, source, &decoder->tight[kind & 3], len);
    code = code == 0 ? decode_filtered(decoder, rect, &bytes, filter, &palette)
                     : code;
    return code == 0 ? screen_part_end(&part) : code;
}

int screen_decode_tight(struct screen_decoder *decoder,
                        const struct poise_screen_rect *rect)
{
    struct screen_source *source = decoder->source;
    uint8_t control = screen_u8(source), kind = control >> 4;
    for (int i = 0; i < SCREEN_TIGHT_STREAMS; i++) {
        if (control >> i & 1) {
            screen_inflate_free(&decoder->tight[i]);
        }
    }
    if (kind == KIND_FILL) {
        uint8_t bytes[PIXEL];
        screen_read(source, bytes, sizeof bytes);
        screen_fill(decoder, rect, screen_pixel_tight(bytes));
        return source->error;
    }
    if (kind >= KIND_FILL) {
        return screen_bad(source, kind == KIND_JPEG
                                      ? "it sends pictures with losses, for "
                                        "which nobody asked"
                                      : "there is no such kind of Tight");
    }
    return decode_basic(decoder, rect, kind);
}
