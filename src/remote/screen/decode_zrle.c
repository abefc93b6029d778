/* ZRLE: tiles of 64 x 64 pixels, plain, with a palette, or in runs, in one
 * stream of zlib. Source: RFC 6143, 7.7.6. */
#include "internal.h"

enum { TILE = 64, PIXEL = 3, PALETTE_MOST = 127, RUNS = 128 };

struct tile {
    struct screen_decoder *decoder;
    struct screen_part *part;
    struct poise_screen_rect at;
    uint32_t palette[PALETTE_MOST];
    unsigned colours;
};

static uint32_t read_pixel(struct screen_part *part)
{
    uint8_t bytes[PIXEL];
    screen_part_read(part, bytes, sizeof bytes);
    return screen_pixel(bytes);
}

static int bad(const struct tile *tile, const char *why)
{
    return screen_bad(tile->part->source, why);
}

static int decode_plain(struct tile *tile)
{
    uint8_t row[TILE * PIXEL];
    for (uint32_t y = 0; y < tile->at.height; y++) {
        uint32_t *to = screen_at(tile->decoder, tile->at.x, tile->at.y + y);
        screen_part_read(tile->part, row, (size_t)tile->at.width * PIXEL);
        for (uint32_t x = 0; x < tile->at.width; x++) {
            to[x] = screen_pixel(row + (size_t)x * PIXEL);
        }
    }
    return tile->part->source->error;
}

static int decode_packed(struct tile *tile)
{
    unsigned bits = tile->colours > 4 ? 4 : tile->colours > 2 ? 2 : 1;
    size_t bytes = (tile->at.width * bits + 7) / 8;
    uint8_t row[TILE / 2];
    for (uint32_t y = 0; y < tile->at.height; y++) {
        uint32_t *to = screen_at(tile->decoder, tile->at.x, tile->at.y + y);
        screen_part_read(tile->part, row, bytes);
        for (uint32_t x = 0; x < tile->at.width; x++) {
            unsigned shift = 8 - bits - x * bits % 8;
            unsigned index = row[x * bits / 8] >> shift & ((1U << bits) - 1);
            if (index >= tile->colours) {
                return bad(tile, "a pixel has a colour that no palette has");
            }
            to[x] = tile->palette[index];
        }
    }
    return tile->part->source->error;
}

static uint32_t read_run(struct tile *tile)
{
    uint32_t length = 1;
    uint8_t byte;
    do {
        screen_part_read(tile->part, &byte, 1);
        length += byte;
    } while (byte == 255 && length <= TILE * TILE);
    return length;
}

/* The next run's colour and length. */
static int next_run(struct tile *tile, uint32_t *pixel, uint32_t *length)
{
    uint8_t index;
    if (tile->colours == 0) {
        *pixel = read_pixel(tile->part);
        *length = read_run(tile);
        return 0;
    }
    screen_part_read(tile->part, &index, 1);
    *length = index & RUNS ? read_run(tile) : 1;
    index &= RUNS - 1;
    if (index >= tile->colours) {
        return bad(tile, "a run has a colour that no palette has");
    }
    *pixel = tile->palette[index];
    return 0;
}

static int decode_runs(struct tile *tile)
{
    uint32_t most = tile->at.width * tile->at.height, pixel = 0, length = 0;
    for (uint32_t done = 0; done < most; done += length) {
        if (next_run(tile, &pixel, &length) < 0 ||
            tile->part->source->error != 0) {
            return tile->part->source->error;
        }
        if (length > most - done) {
            return bad(tile, "a run is longer than its tile");
        }
        for (uint32_t i = done; i < done + length; i++) {
            *screen_at(tile->decoder, tile->at.x + i % tile->at.width,
                       tile->at.y + i / tile->at.width) = pixel;
        }
    }
    return tile->part->source->error;
}

static int decode_tile(struct tile *tile)
{
    uint8_t kind;
    if (screen_part_read(tile->part, &kind, 1) < 0) {
        return tile->part->source->error;
    }
    if (kind == 0) {
        return decode_plain(tile);
    }
    if ((kind > 16 && kind < RUNS) || kind == RUNS + 1) {
        return bad(tile, "there is no such kind of tile");
    }
    tile->colours = kind & (RUNS - 1);
    for (unsigned i = 0; i < tile->colours; i++) {
        tile->palette[i] = read_pixel(tile->part);
    }
    if (kind == 1) {
        screen_fill(tile->decoder, &tile->at, tile->palette[0]);
        return tile->part->source->error;
    }
    return kind & RUNS ? decode_runs(tile) : decode_packed(tile);
}

int screen_decode_zrle(struct screen_decoder *decoder,
                       const struct poise_screen_rect *rect)
{
    struct screen_part part;
    uint32_t len = screen_u32(decoder->source);
    int code = screen_part_begin(&part, decoder->source, &decoder->zrle, len);
    for (uint32_t y = 0; y < rect->height; y += TILE) {
        for (uint32_t x = 0; x < rect->width && code == 0; x += TILE) {
            uint32_t width = rect->width - x, height = rect->height - y;
            struct tile tile = {.decoder = decoder,
                                .part = &part,
                                .at = {rect->x + x, rect->y + y,
                                       width < TILE ? width : TILE,
                                       height < TILE ? height : TILE}};
            code = decode_tile(&tile);
        }
    }
    return code == 0 ? screen_part_end(&part) : code;
}
