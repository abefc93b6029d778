/* Rectangles of pixels into the picture: raw, copied, RRE and Hextile. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

int screen_resize(struct screen_decoder *decoder, uint32_t width,
                  uint32_t height)
{
    struct poise_screen_picture next = {.width = width, .height = height};
    if ((uint64_t)width * height > SCREEN_MOST_PIXELS) {
        return poise_error_set(EFBIG, "show the screen", NULL,
                               "it has %u x %u pixels: at most %d are shown",
                               width, height, SCREEN_MOST_PIXELS);
    }
    next.pixels = poise_alloc((size_t)width * height + 1, sizeof *next.pixels);
    uint8_t *row = poise_alloc((size_t)width + 1, 4);
    if (!next.pixels || !row) {
        free(next.pixels);
        free(row);
        return -ENOMEM;
    }
    free(decoder->picture.pixels);
    free(decoder->row);
    decoder->picture = next;
    decoder->row = row;
    return 0;
}

void screen_decoder_free(struct screen_decoder *decoder)
{
    screen_inflate_free(&decoder->zrle);
    for (int i = 0; i < SCREEN_TIGHT_STREAMS; i++) {
        screen_inflate_free(&decoder->tight[i]);
    }
    free(decoder->picture.pixels);
    free(decoder->row);
}

void screen_fill(struct screen_decoder *decoder,
                 const struct poise_screen_rect *rect, uint32_t pixel)
{
    for (uint32_t y = 0; y < rect->height; y++) {
        uint32_t *row = screen_at(decoder, rect->x, rect->y + y);
        for (uint32_t x = 0; x < rect->width; x++) {
            row[x] = pixel;
        }
    }
}

static uint32_t read_pixel(struct screen_source *source)
{
    uint8_t bytes[4];
    screen_read(source, bytes, sizeof bytes);
    return screen_pixel(bytes);
}

static int decode_raw(struct screen_decoder *decoder,
                      const struct poise_screen_rect *rect)
{
    struct screen_source *source = decoder->source;
    for (uint32_t y = 0; y < rect->height && source->error == 0; y++) {
        uint32_t *row = screen_at(decoder, rect->x, rect->y + y);
        screen_read(source, decoder->row, (size_t)rect->width * 4);
        for (uint32_t x = 0; x < rect->width; x++) {
            row[x] = screen_pixel(decoder->row + (size_t)x * 4);
        }
    }
    return source->error;
}

/* The rectangles may overlap: rows are taken in the order that spares what is
 * still to be copied. */
static int decode_copy(struct screen_decoder *decoder,
                       const struct poise_screen_rect *rect)
{
    struct screen_source *source = decoder->source;
    uint32_t from_x = screen_u16(source), from_y = screen_u16(source);
    if (from_x + rect->width > decoder->picture.width ||
        from_y + rect->height > decoder->picture.height) {
        return screen_bad(source, "it copies from outside of the screen");
    }
    for (uint32_t i = 0; i < rect->height && source->error == 0; i++) {
        uint32_t y = from_y < rect->y ? rect->height - 1 - i : i;
        memmove(screen_at(decoder, rect->x, rect->y + y),
                screen_at(decoder, from_x, from_y + y),
                (size_t)rect->width * sizeof(uint32_t));
    }
    return source->error;
}

/* A part of a rectangle, in its coordinates, in the picture's; false: it lies
 * outside. */
static bool place(const struct poise_screen_rect *rect,
                  const struct poise_screen_rect *part,
                  struct poise_screen_rect *out)
{
    *out = (struct poise_screen_rect){rect->x + part->x, rect->y + part->y,
                                      part->width, part->height};
    return part->x + part->width <= rect->width &&
           part->y + part->height <= rect->height;
}

/* How often parts may cover their rectangle: servers paint each pixel once. */
enum { COVER_MOST = 4 };

static int decode_rre(struct screen_decoder *decoder,
                      const struct poise_screen_rect *rect)
{
    struct screen_source *source = decoder->source;
    uint32_t count = screen_u32(source);
    uint64_t left = (uint64_t)rect->width * rect->height * COVER_MOST;
    screen_fill(decoder, rect, read_pixel(source));
    for (uint32_t i = 0; i < count && source->error == 0; i++) {
        uint32_t pixel = read_pixel(source);
        struct poise_screen_rect part, at;
        part.x = screen_u16(source);
        part.y = screen_u16(source);
        part.width = screen_u16(source);
        part.height = screen_u16(source);
        uint64_t area = (uint64_t)part.width * part.height + 1;
        if (!place(rect, &part, &at)) {
            return screen_bad(source, "a part lies outside of its rectangle");
        }
        if (area > left) {
            return screen_bad(source,
                              "it paints the same pixels again and again");
        }
        left -= area;
        screen_fill(decoder, &at, pixel);
    }
    return source->error;
}

/* ---- Hextile ------------------------------------------------------------- */

enum {
    TILE = 16,
    TILE_RAW = 1,
    TILE_BACKGROUND = 2,
    TILE_FOREGROUND = 4,
    TILE_PARTS = 8,
    TILE_COLOURED = 16
};

struct colours {
    uint32_t background, foreground;
};

static int decode_parts(struct screen_decoder *decoder,
                        const struct poise_screen_rect *tile, uint8_t kind,
                        uint32_t foreground)
{
    struct screen_source *source = decoder->source;
    uint8_t count = screen_u8(source);
    for (uint8_t i = 0; i < count && source->error == 0; i++) {
        uint32_t pixel = kind & TILE_COLOURED ? read_pixel(source) : foreground;
        uint8_t from = screen_u8(source), size = screen_u8(source);
        struct poise_screen_rect at,
            part = {(uint32_t)from >> 4, from & 15, ((uint32_t)size >> 4) + 1,
                    (uint32_t)(size & 15) + 1};
        if (!place(tile, &part, &at)) {
            return screen_bad(source, "a part lies outside of its tile");
        }
        screen_fill(decoder, &at, pixel);
    }
    return source->error;
}

static int decode_tile(struct screen_decoder *decoder,
                       const struct poise_screen_rect *tile,
                       struct colours *colours)
{
    struct screen_source *source = decoder->source;
    uint8_t kind = screen_u8(source);
    if (kind & TILE_RAW) {
        return decode_raw(decoder, tile);
    }
    if (kind & TILE_BACKGROUND) {
        colours->background = read_pixel(source);
    }
    if (kind & TILE_FOREGROUND) {
        colours->foreground = read_pixel(source);
    }
    screen_fill(decoder, tile, colours->background);
    return kind & TILE_PARTS
               ? decode_parts(decoder, tile, kind, colours->foreground)
               : source->error;
}

static int decode_hextile(struct screen_decoder *decoder,
                          const struct poise_screen_rect *rect)
{
    struct colours colours = {0};
    int code = decoder->source->error;
    for (uint32_t y = 0; y < rect->height; y += TILE) {
        for (uint32_t x = 0; x < rect->width && code == 0; x += TILE) {
            uint32_t width = rect->width - x, height = rect->height - y;
            struct poise_screen_rect tile = {rect->x + x, rect->y + y,
                                             width < TILE ? width : TILE,
                                             height < TILE ? height : TILE};
            code = decode_tile(decoder, &tile, &colours);
        }
    }
    return code;
}

int screen_decode(struct screen_decoder *decoder, int32_t encoding,
                  const struct poise_screen_rect *rect)
{
    switch (encoding) {
    case SCREEN_RAW:
        return decode_raw(decoder, rect);
    case SCREEN_COPYRECT:
        return decode_copy(decoder, rect);
    case SCREEN_RRE:
        return decode_rre(decoder, rect);
    case SCREEN_HEXTILE:
        return decode_hextile(decoder, rect);
    case SCREEN_ZRLE:
        return screen_decode_zrle(decoder, rect);
    case SCREEN_TIGHT:
        return screen_decode_tight(decoder, rect);
    default:
        return screen_bad(decoder->source,
                          "it uses an encoding that nobody asked for");
    }
}
