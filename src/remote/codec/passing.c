/*
 * What is painted at the same place again and again, and never of use: a film.
 * Each block counts how often pixels were sent for it since something of it was
 * found elsewhere, or came again. What would come to half of the history by
 * itself is not kept there any more, so that a film in a corner does not drive
 * out what was shown beside it.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

int codec_passing_resize(struct codec_passing *passing,
                         const struct poise_screen_picture *picture)
{
    uint32_t across = (picture->width + CODEC_BLOCK - 1) / CODEC_BLOCK;
    uint32_t down = (picture->height + CODEC_BLOCK - 1) / CODEC_BLOCK;
    uint16_t *times = poise_alloc((size_t)across * down, sizeof *times);
    if (!times) {
        return -ENOMEM;
    }
    free(passing->times);
    *passing = (struct codec_passing){times, across, down};
    return 0;
}

/* The blocks that a rectangle touches: all in one row of the raster. */
static uint16_t *row_of(const struct codec_passing *passing,
                        const struct poise_screen_rect *rect, uint32_t row,
                        uint32_t *count)
{
    uint32_t first = rect->x / CODEC_BLOCK;
    *count = (rect->x + rect->width - 1) / CODEC_BLOCK - first + 1;
    return passing->times + (size_t)row * passing->across + first;
}

void codec_passing_forget(struct codec_passing *passing,
                          const struct poise_screen_rect *rect)
{
    uint32_t last = (rect->y + rect->height - 1) / CODEC_BLOCK, count;
    for (uint32_t row = rect->y / CODEC_BLOCK; row <= last; row++) {
        uint16_t *times = row_of(passing, rect, row, &count);
        memset(times, 0, count * sizeof *times);
    }
}

bool codec_passing_add(struct codec_passing *passing,
                       const struct poise_screen_rect *rect, uint64_t room)
{
    uint32_t last = (rect->y + rect->height - 1) / CODEC_BLOCK, count;
    uint64_t sum = 0, blocks = 0;
    for (uint32_t row = rect->y / CODEC_BLOCK; row <= last; row++) {
        uint16_t *times = row_of(passing, rect, row, &count);
        for (uint32_t i = 0; i < count; i++) {
            times[i] += times[i] < UINT16_MAX;
            sum += times[i];
        }
        blocks += count;
    }
    return sum * codec_area(rect) / blocks > room / 2;
}
