/* Pictures, rectangles of them, and the blocks in which two of them differ. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

int codec_picture_resize(struct poise_screen_picture *picture, uint32_t width,
                         uint32_t height)
{
    uint64_t pixels = (uint64_t)width * height;
    if (pixels == 0 || pixels > CODEC_MOST_PIXELS) {
        return poise_error_set(EFBIG, "keep a picture", NULL,
                               "it has %u x %u pixels", width, height);
    }
    uint32_t *room = poise_alloc((size_t)pixels, sizeof *room);
    if (!room) {
        return -ENOMEM;
    }
    free(picture->pixels);
    *picture = (struct poise_screen_picture){room, width, height};
    return 0;
}

int codec_picture_crop(struct poise_screen_picture *picture, uint32_t width,
                       uint32_t height)
{
    struct poise_screen_picture old = *picture;
    picture->pixels = NULL;
    int code = codec_picture_resize(picture, width, height);
    if (code < 0) {
        *picture = old;
        return code;
    }
    width = width < old.width ? width : old.width;
    height = height < old.height ? height : old.height;
    for (uint32_t y = 0; y < height; y++) {
        memcpy(codec_at(picture, 0, y), codec_at(&old, 0, y),
               width * sizeof *old.pixels);
    }
    free(old.pixels);
    return 0;
}

bool codec_is_inside(const struct poise_screen_picture *picture,
                     const struct poise_screen_rect *rect)
{
    return rect->width > 0 && rect->height > 0 && rect->x < picture->width &&
           rect->y < picture->height &&
           rect->width <= picture->width - rect->x &&
           rect->height <= picture->height - rect->y;
}

void codec_picture_copy(struct poise_screen_picture *to,
                        const struct poise_screen_picture *from,
                        const struct poise_screen_rect *rect)
{
    for (uint32_t y = rect->y; y < rect->y + rect->height; y++) {
        memcpy(codec_at(to, rect->x, y), codec_at(from, rect->x, y),
               rect->width * sizeof *to->pixels);
    }
}

int codec_rects_add(struct codec_rects *rects,
                    const struct poise_screen_rect *rect)
{
    if (rects->count == rects->room) {
        size_t room = rects->room > 0 ? 2 * rects->room : 64;
        struct poise_screen_rect *more =
            poise_realloc(rects->rects, room, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        rects->rects = more;
        rects->room = room;
    }
    rects->rects[rects->count++] = *rect;
    return 0;
}

static bool row_is_same(const struct poise_screen_picture *from,
                        const struct poise_screen_picture *to,
                        const struct poise_screen_rect *rect, uint32_t y)
{
    return memcmp(codec_at(from, rect->x, y), codec_at(to, rect->x, y),
                  rect->width * sizeof *to->pixels) == 0;
}

void codec_rect_trim(const struct poise_screen_picture *from,
                     const struct poise_screen_picture *to,
                     struct poise_screen_rect *rect)
{
    while (rect->height > 1 && row_is_same(from, to, rect, rect->y)) {
        rect->y++;
        rect->height--;
    }
    while (rect->height > 1 &&
           row_is_same(from, to, rect, rect->y + rect->height - 1)) {
        rect->height--;
    }
    uint32_t left = rect->x + rect->width - 1, right = rect->x;
    for (uint32_t y = rect->y; y < rect->y + rect->height; y++) {
        const uint32_t *a = codec_at(from, 0, y), *b = codec_at(to, 0, y);
        uint32_t x = rect->x;
        while (x < left && a[x] == b[x]) {
            x++;
        }
        left = x;
        x = rect->x + rect->width - 1;
        while (x > right && a[x] == b[x]) {
            x--;
        }
        right = x;
    }
    rect->x = left;
    rect->width = right - left + 1;
}

int codec_blocks_resize(struct codec_blocks *blocks,
                        const struct poise_screen_picture *picture)
{
    uint32_t across = (picture->width + CODEC_BLOCK - 1) / CODEC_BLOCK;
    uint32_t down = (picture->height + CODEC_BLOCK - 1) / CODEC_BLOCK;
    uint8_t *marks = poise_alloc((size_t)across * down, 1);
    if (!marks) {
        return -ENOMEM;
    }
    free(blocks->marks);
    *blocks = (struct codec_blocks){marks, across, down};
    return 0;
}

/* Pixels that differ. */
static uint32_t compare_block(const uint32_t *from, const uint32_t *to,
                              uint32_t count)
{
    uint32_t differ = 0;
    if (count == CODEC_BLOCK) { /* a length that compilers can make wide */
        for (uint32_t i = 0; i < CODEC_BLOCK; i++) {
            differ += from[i] != to[i];
        }
        return differ;
    }
    for (uint32_t i = 0; i < count; i++) {
        differ += from[i] != to[i];
    }
    return differ;
}

uint64_t codec_blocks_compare(struct codec_blocks *blocks,
                              const struct poise_screen_picture *from,
                              const struct poise_screen_picture *to,
                              const struct poise_screen_rect *rect)
{
    uint64_t differ = 0;
    uint32_t end = rect->x + rect->width;
    for (uint32_t y = rect->y; y < rect->y + rect->height; y++) {
        const uint32_t *a = codec_at(from, 0, y), *b = codec_at(to, 0, y);
        uint8_t *marks =
            blocks->marks + (size_t)(y / CODEC_BLOCK) * blocks->across;
        if (memcmp(a + rect->x, b + rect->x, 4 * (size_t)rect->width) == 0) {
            continue;
        }
        for (uint32_t x = rect->x; x < end;) {
            uint32_t next = (x / CODEC_BLOCK + 1) * CODEC_BLOCK;
            uint32_t count = (next < end ? next : end) - x;
            uint32_t here = compare_block(a + x, b + x, count);
            marks[x / CODEC_BLOCK] |= here > 0;
            differ += here;
            x += count;
        }
    }
    return differ;
}

/* Take marks from (x, y) to the right, and down while the whole width is
 * marked. */
static struct poise_screen_rect take_one(struct codec_blocks *blocks,
                                         uint32_t x, uint32_t y)
{
    uint8_t *row = blocks->marks + (size_t)y * blocks->across;
    uint32_t end = x, down = y;
    while (end < blocks->across && row[end]) {
        end++;
    }
    while (down < blocks->down &&
           !memchr(blocks->marks + (size_t)down * blocks->across + x, 0,
                   end - x)) {
        memset(blocks->marks + (size_t)down * blocks->across + x, 0, end - x);
        down++;
    }
    return (struct poise_screen_rect){x * CODEC_BLOCK, y * CODEC_BLOCK,
                                      (end - x) * CODEC_BLOCK,
                                      (down - y) * CODEC_BLOCK};
}

int codec_blocks_take(struct codec_blocks *blocks,
                      const struct poise_screen_picture *from,
                      const struct poise_screen_picture *to,
                      struct codec_rects *out)
{
    out->count = 0;
    for (uint32_t y = 0; y < blocks->down; y++) {
        const uint8_t *row = blocks->marks + (size_t)y * blocks->across;
        for (uint32_t x = 0; x < blocks->across; x++) {
            const uint8_t *next = memchr(row + x, 1, blocks->across - x);
            if (!next) {
                break;
            }
            x = (uint32_t)(next - row);
            struct poise_screen_rect rect = take_one(blocks, x, y);
            if (rect.width > to->width - rect.x) {
                rect.width = to->width - rect.x;
            }
            if (rect.height > to->height - rect.y) {
                rect.height = to->height - rect.y;
            }
            codec_rect_trim(from, to, &rect);
            if (codec_rects_add(out, &rect) < 0) {
                return -ENOMEM;
            }
        }
    }
    return 0;
}
