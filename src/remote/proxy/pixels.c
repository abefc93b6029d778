/* Pixels as a viewer wants them. Source: RFC 6143, 7.4, 7.7.5, 7.7.6. */
#include "internal.h"

#include <errno.h>
#include <string.h>

enum { MAPPED_RED = 7, MAPPED_GREEN = 7, MAPPED_BLUE = 3, COLOURS = 256 };

/* What follows from the rest. */
static void derive(struct proxy_format *format)
{
    uint32_t all = 0;

    for (int i = 0; i < 3; i++) {
        all |= format->max[i] << format->shift[i];
    }
    for (uint32_t i = 0; i < COLOURS; i++) {
        uint32_t *tables[] = {format->red, format->green, format->blue};
        for (int c = 0; c < 3; c++) {
            tables[c][i] = (i * format->max[c] + 127) / 255 << format->shift[c];
        }
    }
    format->plain = format->bytes == 4 && !format->big &&
                    format->max[0] == 255 && format->max[1] == 255 &&
                    format->max[2] == 255 && format->shift[0] == 16 &&
                    format->shift[1] == 8 && format->shift[2] == 0;
    format->tight = format->bytes == 4 && format->depth == 24 &&
                    format->max[0] == 255 && format->max[1] == 255 &&
                    format->max[2] == 255;
    format->compact = -1;
    if (format->bytes == 4 && format->depth <= 24) {
        if (all <= 0xffffff) {
            format->compact = format->big ? 1 : 0;
        } else if (!(all & 0xff)) {
            format->compact = format->big ? 0 : 1;
        }
    }
}

void proxy_format_default(struct proxy_format *out)
{
    *out = (struct proxy_format){
        .bytes = 4, .depth = 24, .max = {255, 255, 255}, .shift = {16, 8, 0}};
    derive(out);
}

int proxy_format_parse(const unsigned char *bytes, struct proxy_format *out)
{
    struct proxy_format made = {.bytes = bytes[0] / 8,
                                .depth = bytes[1],
                                .big = bytes[2] != 0,
                                .mapped = bytes[3] == 0};

    if (bytes[0] != 8 && bytes[0] != 16 && bytes[0] != 32) {
        return proxy_bad("a viewer wants pixels of a size that there is not");
    }
    if (made.mapped) {
        if (made.bytes != 1) {
            return proxy_bad("a viewer wants a palette for large pixels");
        }
        made.max[0] = MAPPED_RED;
        made.max[1] = MAPPED_GREEN;
        made.max[2] = MAPPED_BLUE;
        made.shift[1] = 3;
        made.shift[2] = 6;
    }
    for (int i = 0; i < 3 && !made.mapped; i++) {
        made.max[i] = proxy_u16(bytes + 4 + 2 * i);
        made.shift[i] = bytes[10 + i];
        if (made.shift[i] >= bytes[0] ||
            (uint64_t)made.max[i] << made.shift[i] >> bytes[0] != 0) {
            return proxy_bad("a viewer's colours do not fit into its pixels");
        }
    }
    derive(&made);
    *out = made;
    return 0;
}

void proxy_format_put(const struct proxy_format *format, struct poise_buf *out)
{
    poise_buf_putc(out, (char)(8 * format->bytes));
    poise_buf_putc(out, (char)format->depth);
    poise_buf_putc(out, format->big);
    poise_buf_putc(out, !format->mapped);
    for (int i = 0; i < 3; i++) {
        proxy_put_u16(out, format->max[i]);
    }
    for (int i = 0; i < 3; i++) {
        poise_buf_putc(out, (char)format->shift[i]);
    }
    poise_buf_append(out, "\0\0\0", 3);
}

void proxy_format_put_palette(struct poise_buf *out)
{
    poise_buf_append(out, "\1\0\0\0", 4);
    proxy_put_u16(out, COLOURS);
    for (uint32_t i = 0; i < COLOURS; i++) {
        proxy_put_u16(out, (i & MAPPED_RED) * 0xffff / MAPPED_RED);
        proxy_put_u16(out, (i >> 3 & MAPPED_GREEN) * 0xffff / MAPPED_GREEN);
        proxy_put_u16(out, (i >> 6 & MAPPED_BLUE) * 0xffff / MAPPED_BLUE);
    }
}

size_t proxy_pixel_bytes(const struct proxy_format *format,
                         enum proxy_pixel kind)
{
    bool three = (kind == PROXY_CPIXEL && format->compact >= 0) ||
                 (kind == PROXY_TPIXEL && format->tight);

    return three ? 3 : format->bytes;
}

static uint8_t *put_tight(const uint32_t *pixels, size_t count, uint8_t *to)
{
    for (size_t i = 0; i < count; i++) {
        *to++ = (uint8_t)(pixels[i] >> 16);
        *to++ = (uint8_t)(pixels[i] >> 8);
        *to++ = (uint8_t)pixels[i];
    }
    return to;
}

uint8_t *proxy_pixels_put(const struct proxy_format *format,
                          enum proxy_pixel kind, const uint32_t *pixels,
                          size_t count, uint8_t *to)
{
    size_t bytes = proxy_pixel_bytes(format, kind);
    unsigned skip = kind == PROXY_CPIXEL && format->compact > 0
                        ? (unsigned)format->compact
                        : 0;

    if (kind == PROXY_TPIXEL && format->tight) {
        return put_tight(pixels, count, to);
    }
    if (format->plain && bytes == 4) {
        memcpy(to, pixels, count * 4);
        return to + count * 4;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t value = format->red[pixels[i] >> 16 & 255] |
                         format->green[pixels[i] >> 8 & 255] |
                         format->blue[pixels[i] & 255];
        for (unsigned byte = 0; byte < bytes; byte++) {
            unsigned at = skip + byte;
            unsigned shift =
                format->big ? 8 * (format->bytes - 1U - at) : 8 * at;
            *to++ = (uint8_t)(value >> shift);
        }
    }
    return to;
}

int proxy_pixels_append(const struct proxy_format *format,
                        enum proxy_pixel kind, uint32_t width, uint32_t height,
                        const uint32_t *pixels, size_t stride,
                        struct poise_buf *out)
{
    size_t bytes = (size_t)width * height * proxy_pixel_bytes(format, kind);
    uint8_t *to = (uint8_t *)poise_buf_reserve(out, bytes + 1);

    if (!to) {
        return -ENOMEM;
    }
    for (uint32_t y = 0; y < height; y++) {
        to = proxy_pixels_put(format, kind, pixels + y * stride, width, to);
    }
    out->len += bytes;
    return 0;
}
