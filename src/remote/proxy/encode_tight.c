/* Tight for viewers, without losses: one colour, a palette, or pixels. Source:
 * the community's rfbproto, 7.7.4. */
#include "internal.h"

#include <errno.h>

enum {
    FILL = 0x80,
    WITH_FILTER = 0x40,
    FILTER_PALETTE = 1,
    PLAIN_MOST = 12, /* bytes; fewer are not compressed */
    STREAM_PIXELS = 0,
    STREAM_MONO = 1,
    STREAM_PALETTE = 2,
    FIRST = 1, /* of the encoder's streams */
};

static void put_len(size_t len, struct poise_buf *out)
{
    poise_buf_putc(out, (char)((len & 127) | (len > 127 ? 128 : 0)));
    if (len > 127) {
        poise_buf_putc(out, (char)((len >> 7 & 127) | (len > 16383 ? 128 : 0)));
    }
    if (len > 16383) {
        poise_buf_putc(out, (char)(len >> 14));
    }
}

/* What is in the encoder's `plain`. */
static int put_data(struct proxy_encoder *encoder, unsigned stream,
                    struct poise_buf *out)
{
    int code;

    if (encoder->plain.len < PLAIN_MOST) {
        code = poise_buf_append(out, encoder->plain.data, encoder->plain.len);
        poise_buf_reset(&encoder->plain);
        return code;
    }
    code = proxy_deflate(encoder, FIRST + stream);
    if (code == 0) {
        put_len(encoder->packed.len, out);
        code = poise_buf_append(out, encoder->packed.data, encoder->packed.len);
    }
    return code;
}

static void put_places(const struct proxy_palette *palette, uint32_t width,
                       uint32_t height, const uint32_t *pixels, size_t stride,
                       struct poise_buf *plain)
{
    bool mono = palette->count == 2;

    for (uint32_t y = 0; y < height; y++) {
        const uint32_t *row = pixels + y * stride;
        unsigned byte = 0;
        for (uint32_t x = 0; x < width; x++) {
            unsigned place = proxy_palette_find(palette, row[x]);
            if (!mono) {
                poise_buf_putc(plain, (char)place);
                continue;
            }
            byte |= place << (7 - x % 8);
            if (x % 8 == 7 || x + 1 == width) {
                poise_buf_putc(plain, (char)byte);
                byte = 0;
            }
        }
    }
}

int proxy_encode_tight(struct proxy_encoder *encoder,
                       const struct proxy_format *format, uint32_t width,
                       uint32_t height, const uint32_t *pixels, size_t stride,
                       struct poise_buf *out)
{
    struct proxy_palette palette;
    /* Small pixels gain nothing by a palette. */
    bool has_few = proxy_palette_fill(&palette, format->bytes == 1 ? 1 : 256,
                                      width, height, pixels, stride);
    unsigned stream;
    int code;

    if (!has_few) {
        poise_buf_putc(out, STREAM_PIXELS << 4);
        code = proxy_pixels_append(format, PROXY_TPIXEL, width, height, pixels,
                                   stride, &encoder->plain);
        return code < 0 ? code : put_data(encoder, STREAM_PIXELS, out);
    }
    if (palette.count == 1) {
        poise_buf_putc(out, (char)FILL);
        return proxy_pixels_append(format, PROXY_TPIXEL, 1, 1, palette.colours,
                                   0, out);
    }
    stream = palette.count == 2 ? STREAM_MONO : STREAM_PALETTE;
    poise_buf_putc(out, (char)(WITH_FILTER | stream << 4));
    poise_buf_putc(out, FILTER_PALETTE);
    poise_buf_putc(out, (char)(palette.count - 1));
    code = proxy_pixels_append(format, PROXY_TPIXEL, palette.count, 1,
                               palette.colours, 0, out);
    put_places(&palette, width, height, pixels, stride, &encoder->plain);
    code = code < 0 ? code : encoder->plain.error;
    return code < 0 ? code : put_data(encoder, stream, out);
}
