/* One message of updates: its rectangles, in turn. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

/* The count that a message has whose last rectangle says so. */
enum { UNTIL_LAST = 0xffff, RECTS_MOST = 1 << 20 };

static int add(struct screen_rects *rects, const struct poise_screen_rect *rect)
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

static bool is_inside(const struct poise_screen_picture *picture,
                      const struct poise_screen_rect *rect)
{
    return rect->x + rect->width <= picture->width &&
           rect->y + rect->height <= picture->height;
}

/* What lay in the picture before is gone, and so are its rectangles. */
static int resize(struct screen_decoder *decoder, uint32_t width,
                  uint32_t height, struct screen_rects *out)
{
    struct poise_screen_rect all = {0, 0, width, height};
    out->count = 0;
    out->resized = true;
    int code = screen_resize(decoder, width, height);
    code = code == 0 ? add(out, &all) : code;
    if (code < 0) {
        decoder->source->error = code;
    }
    return code;
}

/* An extended one says why it comes, in x, and in y whether it failed; it may
 * be of the size that there is. */
static bool is_resize(const struct screen_decoder *decoder, int32_t encoding,
                      const struct poise_screen_rect *rect)
{
    return encoding == SCREEN_DESKTOP_SIZE ||
           (decoder->relay && encoding == SCREEN_EXTENDED_SIZE &&
            rect->y == 0 &&
            (rect->width != decoder->picture.width ||
             rect->height != decoder->picture.height));
}

int screen_update(struct screen_decoder *decoder, struct screen_rects *out)
{
    struct screen_source *source = decoder->source;
    uint32_t count = (screen_skip(source, 1), screen_u16(source));
    uint32_t most = count == UNTIL_LAST ? RECTS_MOST : count;
    out->count = 0;
    out->resized = false;
    for (uint32_t i = 0; i < most && source->error == 0; i++) {
        struct poise_screen_rect rect;
        rect.x = screen_u16(source);
        rect.y = screen_u16(source);
        rect.width = screen_u16(source);
        rect.height = screen_u16(source);
        int32_t encoding = (int32_t)screen_u32(source);
        if (encoding == SCREEN_LAST_RECT || source->error != 0) {
            break;
        }
        if (is_resize(decoder, encoding, &rect)) {
            resize(decoder, rect.width, rect.height, out);
        }
        if (encoding < 0) {
            screen_pseudo(decoder, encoding, &rect);
            continue;
        }
        if (!is_inside(&decoder->picture, &rect)) {
            return screen_bad(source, "a rectangle lies outside of the screen");
        }
        /* A rectangle without pixels has none to be said. */
        if (screen_decode(decoder, encoding, &rect) == 0 &&
            add(out, &rect) < 0) {
            source->error = -ENOMEM;
        }
    }
    return source->error;
}
