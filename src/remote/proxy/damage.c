/* Which parts of a picture changed, in tiles. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int proxy_damage_resize(struct proxy_damage *damage, uint32_t width,
                        uint32_t height)
{
    uint32_t columns = (width + PROXY_TILE - 1) / PROXY_TILE;
    uint32_t rows = (height + PROXY_TILE - 1) / PROXY_TILE;
    size_t count = (size_t)columns * rows;
    uint8_t *tiles = poise_alloc(count + 1, 1);

    if (!tiles) {
        return -ENOMEM;
    }
    memset(tiles, 1, count);
    free(damage->tiles);
    *damage = (struct proxy_damage){width, height, columns, rows, tiles, count};
    return 0;
}

void proxy_damage_free(struct proxy_damage *damage)
{
    free(damage->tiles);
    *damage = (struct proxy_damage){0};
}

/* Tiles that a rectangle touches: from .. to-1. False: none. */
static bool find_tiles(const struct proxy_damage *damage,
                       const struct poise_screen_rect *rect,
                       struct poise_screen_rect *out)
{
    uint64_t right = (uint64_t)rect->x + rect->width;
    uint64_t bottom = (uint64_t)rect->y + rect->height;

    right = right < damage->width ? right : damage->width;
    bottom = bottom < damage->height ? bottom : damage->height;
    if (rect->x >= right || rect->y >= bottom) {
        return false;
    }
    out->x = rect->x / PROXY_TILE;
    out->y = rect->y / PROXY_TILE;
    out->width = (uint32_t)((right - 1) / PROXY_TILE) + 1 - out->x;
    out->height = (uint32_t)((bottom - 1) / PROXY_TILE) + 1 - out->y;
    return true;
}

void proxy_damage_add(struct proxy_damage *damage,
                      const struct poise_screen_rect *rect)
{
    struct poise_screen_rect tiles;

    if (!find_tiles(damage, rect, &tiles)) {
        return;
    }
    for (uint32_t y = tiles.y; y < tiles.y + tiles.height; y++) {
        uint8_t *row = damage->tiles + (size_t)y * damage->columns;
        for (uint32_t x = tiles.x; x < tiles.x + tiles.width; x++) {
            damage->count += !row[x];
            row[x] = 1;
        }
    }
}

bool proxy_damage_has(const struct proxy_damage *damage,
                      const struct poise_screen_rect *area)
{
    struct poise_screen_rect tiles;

    if (damage->count == 0 || !find_tiles(damage, area, &tiles)) {
        return false;
    }
    for (uint32_t y = tiles.y; y < tiles.y + tiles.height; y++) {
        const uint8_t *row = damage->tiles + (size_t)y * damage->columns;
        if (memchr(row + tiles.x, 1, tiles.width)) {
            return true;
        }
    }
    return false;
}

/* A rectangle of tiles that begins here, and is no more than may be; they are
 * forgotten. */
static struct poise_screen_rect cut(struct proxy_damage *damage, uint32_t x,
                                    uint32_t y,
                                    const struct poise_screen_rect *tiles)
{
    enum { TILES_MOST = PROXY_RECT_PIXELS / (PROXY_TILE * PROXY_TILE) };
    uint8_t *row = damage->tiles + (size_t)y * damage->columns;
    uint32_t width = 1, height = 1;

    while (x + width < tiles->x + tiles->width && row[x + width] &&
           width < TILES_MOST / 4) {
        width++;
    }
    while (y + height < tiles->y + tiles->height &&
           (height + 1) * width <= TILES_MOST) {
        const uint8_t *below = row + (size_t)height * damage->columns;
        if (memchr(below + x, 0, width)) {
            break;
        }
        height++;
    }
    for (uint32_t i = 0; i < height; i++) {
        memset(row + (size_t)i * damage->columns + x, 0, width);
    }
    damage->count -= (size_t)width * height;
    return (struct poise_screen_rect){x, y, width, height};
}

int proxy_damage_take(struct proxy_damage *damage,
                      const struct poise_screen_rect *area,
                      struct poise_buf *rects)
{
    struct poise_screen_rect tiles;

    if (damage->count == 0 || !find_tiles(damage, area, &tiles)) {
        return 0;
    }
    for (uint32_t y = tiles.y; y < tiles.y + tiles.height; y++) {
        for (uint32_t x = tiles.x; x < tiles.x + tiles.width; x++) {
            struct poise_screen_rect rect;
            uint32_t right, bottom;

            if (!damage->tiles[(size_t)y * damage->columns + x]) {
                continue;
            }
            rect = cut(damage, x, y, &tiles);
            right = (rect.x + rect.width) * PROXY_TILE;
            bottom = (rect.y + rect.height) * PROXY_TILE;
            right = right < damage->width ? right : damage->width;
            bottom = bottom < damage->height ? bottom : damage->height;
            rect.x *= PROXY_TILE;
            rect.y *= PROXY_TILE;
            rect.width = right - rect.x;
            rect.height = bottom - rect.y;
            poise_buf_append(rects, &rect, sizeof rect);
        }
    }
    return rects->error;
}
