/* Rectangles for viewers: raw and Hextile, and what the others share. */
#include "internal.h"

#include <poise/parts.h>

#include <errno.h>
#include <string.h>

enum {
    TILE = 16,
    TILE_RAW = 1,
    TILE_BACKGROUND = 2,
    TILE_FOREGROUND = 4,
    TILE_PARTS = 8,
    PARTS_MOST = 255,
    DEFLATE_LEVEL = 1, /* the viewer is near */
};

void proxy_encoder_free(struct proxy_encoder *encoder)
{
    for (int i = 0; i < PROXY_DEFLATES; i++) {
        if (encoder->begun[i]) {
            deflateEnd(&encoder->streams[i]);
        }
    }
    poise_buf_free(&encoder->plain);
    poise_buf_free(&encoder->packed);
    *encoder = (struct proxy_encoder){0};
}

int proxy_deflate(struct proxy_encoder *encoder, unsigned stream)
{
    z_stream *z = &encoder->streams[stream];
    struct poise_buf *packed = &encoder->packed;
    int rc;

    if (!poise_parts[POISE_PART_ZLIB].is_built) {
        return poise_part_missing(POISE_PART_ZLIB, "pack", "the screen");
    }
    if (!encoder->begun[stream]) {
        if (deflateInit(z, DEFLATE_LEVEL) != Z_OK) {
            return -ENOMEM;
        }
        encoder->begun[stream] = true;
    }
    poise_buf_reset(packed);
    z->next_in = (unsigned char *)encoder->plain.data;
    z->avail_in = (uInt)encoder->plain.len;
    do {
        uInt room = 1 << 16;
        z->next_out = (unsigned char *)poise_buf_reserve(packed, room);
        if (!z->next_out) {
            return -ENOMEM;
        }
        z->avail_out = room;
        rc = deflate(z, Z_SYNC_FLUSH);
        packed->len += room - z->avail_out;
    } while (rc == Z_OK && z->avail_out == 0);
    poise_buf_reset(&encoder->plain);
    return rc == Z_OK || rc == Z_BUF_ERROR ? 0 : -EIO;
}

/* ---- colours ------------------------------------------------------------ */

static unsigned slot_of(const struct proxy_palette *palette, uint32_t colour)
{
    enum { SLOTS = sizeof palette->slots / sizeof *palette->slots };
    unsigned slot = (unsigned)(poise_hash_u64(colour) % SLOTS);

    while (palette->slots[slot] &&
           palette->colours[palette->slots[slot] - 1] != colour) {
        slot = (slot + 1) % SLOTS;
    }
    return slot;
}

bool proxy_palette_fill(struct proxy_palette *palette, unsigned most,
                        uint32_t width, uint32_t height, const uint32_t *pixels,
                        size_t stride)
{
    palette->count = 0;
    memset(palette->slots, 0, sizeof palette->slots);
    for (uint32_t y = 0; y < height; y++) {
        const uint32_t *row = pixels + y * stride;
        for (uint32_t x = 0; x < width; x++) {
            unsigned slot;
            if (x > 0 && row[x] == row[x - 1]) {
                continue;
            }
            slot = slot_of(palette, row[x]);
            if (palette->slots[slot]) {
                continue;
            }
            if (palette->count == most) {
                return false;
            }
            palette->colours[palette->count++] = row[x];
            palette->slots[slot] = (uint16_t)palette->count;
        }
    }
    return true;
}

unsigned proxy_palette_find(const struct proxy_palette *palette,
                            uint32_t colour)
{
    return palette->slots[slot_of(palette, colour)] - 1U;
}

/* ---- raw and Hextile ---------------------------------------------------- */

static void put_pixel(const struct proxy_format *format, uint32_t colour,
                      struct poise_buf *out)
{
    uint8_t bytes[4];

    proxy_pixels_put(format, PROXY_PIXEL, &colour, 1, bytes);
    poise_buf_append(out, bytes, format->bytes);
}

/* Runs of the second colour, as parts: false if there are too many, or they
 * take more than the pixels. */
static bool put_parts(const struct proxy_format *format, uint32_t width,
                      uint32_t height, const uint32_t *pixels, size_t stride,
                      uint32_t colour, struct poise_buf *out)
{
    size_t at = out->len;
    unsigned count = 0;

    poise_buf_putc(out, 0);
    for (uint32_t y = 0; y < height; y++) {
        const uint32_t *row = pixels + y * stride;
        for (uint32_t x = 0; x < width; x++) {
            uint32_t from = x;
            if (row[x] != colour) {
                continue;
            }
            while (x + 1 < width && row[x + 1] == colour) {
                x++;
            }
            if (++count > PARTS_MOST) {
                return false;
            }
            poise_buf_putc(out, (char)(from << 4 | y));
            poise_buf_putc(out, (char)((x - from) << 4));
        }
    }
    if (!out->error) {
        out->data[at] = (char)count;
    }
    return out->len - at < (size_t)width * height * format->bytes;
}

static int put_tile(const struct proxy_format *format, uint32_t width,
                    uint32_t height, const uint32_t *pixels, size_t stride,
                    struct poise_buf *out)
{
    struct proxy_palette palette;
    size_t at = out->len;

    if (proxy_palette_fill(&palette, 2, width, height, pixels, stride)) {
        bool two = palette.count == 2;
        poise_buf_putc(out, (char)(TILE_BACKGROUND |
                                   (two ? TILE_FOREGROUND | TILE_PARTS : 0)));
        put_pixel(format, palette.colours[0], out);
        if (!two) {
            return out->error;
        }
        put_pixel(format, palette.colours[1], out);
        if (put_parts(format, width, height, pixels, stride, palette.colours[1],
                      out)) {
            return out->error;
        }
        out->len = at;
    }
    poise_buf_putc(out, TILE_RAW);
    return proxy_pixels_append(format, PROXY_PIXEL, width, height, pixels,
                               stride, out);
}

static int put_hextile(const struct proxy_format *format, uint32_t width,
                       uint32_t height, const uint32_t *pixels, size_t stride,
                       struct poise_buf *out)
{
    int code = 0;

    for (uint32_t y = 0; y < height && code == 0; y += TILE) {
        for (uint32_t x = 0; x < width && code == 0; x += TILE) {
            code = put_tile(format, width - x < TILE ? width - x : TILE,
                            height - y < TILE ? height - y : TILE,
                            pixels + y * stride + x, stride, out);
        }
    }
    return code;
}

int proxy_encode(struct proxy_encoder *encoder, int32_t encoding,
                 const struct proxy_format *format,
                 const struct poise_screen_rect *rect, const uint32_t *pixels,
                 size_t stride, struct poise_buf *out)
{
    uint32_t width = rect->width, height = rect->height;

    proxy_put_u16(out, rect->x);
    proxy_put_u16(out, rect->y);
    proxy_put_u16(out, width);
    proxy_put_u16(out, height);
    proxy_put_u32(out, (uint32_t)encoding);
    switch (encoding) {
    case SCREEN_HEXTILE:
        return put_hextile(format, width, height, pixels, stride, out);
    case SCREEN_ZRLE:
        return proxy_encode_zrle(encoder, format, width, height, pixels, stride,
                                 out);
    case SCREEN_TIGHT:
        return proxy_encode_tight(encoder, format, width, height, pixels,
                                  stride, out);
    default:
        return proxy_pixels_append(format, PROXY_PIXEL, width, height, pixels,
                                   stride, out);
    }
}
