/* What was sent before: a ring of rectangles, the same at both ends. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

int codec_history_begin(struct codec_history *history, uint64_t room)
{
    if (room != history->room || !history->ring) {
        codec_history_free(history);
        history->ring = poise_alloc((size_t)room, sizeof *history->ring);
        history->patches = poise_alloc(CODEC_PATCHES, sizeof *history->patches);
    }
    history->room = room;
    history->next = 0;
    history->first = history->end = 0;
    return history->ring && history->patches ? 0 : -ENOMEM;
}

void codec_history_free(struct codec_history *history)
{
    free(history->ring);
    free(history->patches);
    *history = (struct codec_history){0};
}

static struct codec_patch *patch_at(const struct codec_history *history,
                                    uint64_t number)
{
    return &history->patches[number % CODEC_PATCHES];
}

bool codec_history_add(struct codec_history *history,
                       const struct poise_screen_picture *picture,
                       const struct poise_screen_rect *rect)
{
    uint64_t area = codec_area(rect);
    if (area < CODEC_PATCH_LEAST || area > history->room / 2) {
        return false;
    }
    uint64_t at = history->next;
    if (at % history->room + area > history->room) {
        at += history->room - at % history->room; /* no patch lies across */
    }
    while (history->first < history->end &&
           (patch_at(history, history->first)->at + history->room < at + area ||
            history->end - history->first == CODEC_PATCHES)) {
        history->first++;
    }
    uint32_t *to = history->ring + at % history->room;
    for (uint32_t y = 0; y < rect->height; y++, to += rect->width) {
        memcpy(to, codec_at(picture, rect->x, rect->y + y),
               sizeof *to * rect->width);
    }
    *patch_at(history, history->end++) =
        (struct codec_patch){at, rect->width, rect->height};
    history->next = at + area;
    return true;
}

struct poise_screen_picture
codec_history_patch(const struct codec_history *history, uint64_t number)
{
    const struct codec_patch *patch = patch_at(history, number);
    return (struct poise_screen_picture){
        history->ring + patch->at % history->room, patch->width, patch->height};
}

bool codec_history_find(const struct codec_history *history, uint64_t at,
                        uint64_t *number)
{
    uint64_t low = history->first, high = history->end;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (patch_at(history, middle)->at <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == history->first) {
        return false;
    }
    const struct codec_patch *patch = patch_at(history, low - 1);
    *number = low - 1;
    return at - patch->at < (uint64_t)patch->width * patch->height;
}
