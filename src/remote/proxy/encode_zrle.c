/* ZRLE for viewers: tiles of one colour, of a small palette, or of pixels.
 * Source: RFC 6143, 7.7.6. */
#include "internal.h"

#include <errno.h>

enum { TILE = 64, PACKED_MOST = 16, SOLID = 1, STREAM = 0 };

static void put_packed(const struct proxy_palette *palette, uint32_t width,
                       uint32_t height, const uint32_t *pixels, size_t stride,
                       struct poise_buf *plain)
{
    unsigned bits = palette->count > 4 ? 4 : palette->count > 2 ? 2 : 1;

    for (uint32_t y = 0; y < height; y++) {
        const uint32_t *row = pixels + y * stride;
        unsigned byte = 0, left = 8;
        for (uint32_t x = 0; x < width; x++) {
            left -= bits;
            byte |= proxy_palette_find(palette, row[x]) << left;
            if (left == 0 || x + 1 == width) {
                poise_buf_putc(plain, (char)byte);
                byte = 0;
                left = 8;
            }
        }
    }
}

static int put_tile(const struct proxy_format *format, uint32_t width,
                    uint32_t height, const uint32_t *pixels, size_t stride,
                    struct poise_buf *plain)
{
    struct proxy_palette palette;

    if (!proxy_palette_fill(&palette, PACKED_MOST, width, height, pixels,
                            stride)) {
        poise_buf_putc(plain, 0);
        return proxy_pixels_append(format, PROXY_CPIXEL, width, height, pixels,
                                   stride, plain);
    }
    poise_buf_putc(plain, palette.count == 1 ? SOLID : (char)palette.count);
    proxy_pixels_append(format, PROXY_CPIXEL, palette.count, 1, palette.colours,
                        0, plain);
    if (palette.count > 1) {
        put_packed(&palette, width, height, pixels, stride, plain);
    }
    return plain->error;
}

int proxy_encode_zrle(struct proxy_encoder *encoder,
                      const struct proxy_format *format, uint32_t width,
                      uint32_t height, const uint32_t *pixels, size_t stride,
                      struct poise_buf *out)
{
    int code = 0;

    for (uint32_t y = 0; y < height && code == 0; y += TILE) {
        for (uint32_t x = 0; x < width && code == 0; x += TILE) {
            code = put_tile(format, width - x < TILE ? width - x : TILE,
                            height - y < TILE ? height - y : TILE,
                            pixels + y * stride + x, stride, &encoder->plain);
        }
    }
    code = code < 0 ? code : proxy_deflate(encoder, STREAM);
    if (code == 0) {
        proxy_put_u32(out, (uint32_t)encoder->packed.len);
        code = poise_buf_append(out, encoder->packed.data, encoder->packed.len);
    }
    return code;
}
