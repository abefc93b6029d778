/* What a viewer is told of the screen when it asks, and something changed. */
#include "internal.h"

#include <errno.h>
#include <string.h>

enum { RECTS_MOST = 60000, LAYOUT_BYTES = 4, SCREEN_BYTES = 16 };

int proxy_viewer_resized(struct proxy_viewer *viewer)
{
    struct poise_screen_rect all = {0, 0, viewer->width, viewer->height};

    /* Of a viewer that cannot be told, the part that it has. */
    proxy_damage_add(&viewer->damage, &all);
    return 0;
}

static void put_head(struct poise_buf *out,
                     const struct poise_screen_rect *rect, int32_t encoding)
{
    proxy_put_u16(out, rect->x);
    proxy_put_u16(out, rect->y);
    proxy_put_u16(out, rect->width);
    proxy_put_u16(out, rect->height);
    proxy_put_u32(out, (uint32_t)encoding);
}

/* ---- sizes -------------------------------------------------------------- */

static void put_layout(const struct proxy_pseudo *layout, uint32_t width,
                       uint32_t height, struct poise_buf *out)
{
    if (layout->rect.width == width && layout->rect.height == height &&
        layout->data.len >= LAYOUT_BYTES + SCREEN_BYTES) {
        poise_buf_append(out, layout->data.data, layout->data.len);
        return;
    }
    poise_buf_append(out, "\1\0\0\0", LAYOUT_BYTES);
    proxy_put_u32(out, 0);
    proxy_put_u32(out, 0);
    proxy_put_u16(out, width);
    proxy_put_u16(out, height);
    proxy_put_u32(out, 0);
}

/* The screen's size, if the viewer is to hear it: 1. */
static int put_size(struct proxy_viewer *viewer)
{
    const struct poise_screen_picture *picture = viewer->picture;
    struct proxy_pseudo *layout = proxy_pseudo_of(viewer, SCREEN_EXTENDED_SIZE);
    struct poise_screen_rect rect = {0, 0, picture->width, picture->height};
    bool differs =
        picture->width != viewer->width || picture->height != viewer->height;
    bool extended = layout->known && (viewer->able & PROXY_ABLE_EXTENDED_SIZE);
    bool failed = layout->rect.y != 0;

    if (extended && layout->due &&
        (failed || (layout->rect.width == picture->width &&
                    layout->rect.height == picture->height))) {
        rect.x = layout->rect.x;
        rect.y = layout->rect.y;
        layout->due = false;
    } else if (!differs || !(extended || viewer->sizes)) {
        return 0;
    }
    put_head(&viewer->out, &rect,
             extended ? SCREEN_EXTENDED_SIZE : SCREEN_DESKTOP_SIZE);
    if (extended) {
        put_layout(layout, picture->width, picture->height, &viewer->out);
    }
    if (differs) {
        int code = proxy_damage_resize(&viewer->damage, picture->width,
                                       picture->height);
        if (code < 0) {
            return code;
        }
        viewer->width = picture->width;
        viewer->height = picture->height;
    }
    return 1;
}

/* ---- what is no pixels -------------------------------------------------- */

/* Its pixels become the viewer's, its mask stays. */
static void put_cursor(const struct proxy_viewer *viewer,
                       const struct proxy_pseudo *cursor, struct poise_buf *out)
{
    size_t count = (size_t)cursor->rect.width * cursor->rect.height;
    size_t bytes = count * viewer->format.bytes;
    uint8_t *to = (uint8_t *)poise_buf_reserve(out, bytes + 1);

    if (!to) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = poise_get_u32(cursor->data.data + 4 * i) & 0xffffff;
        to = proxy_pixels_put(&viewer->format, PROXY_PIXEL, &pixel, 1, to);
    }
    out->len += bytes;
    poise_buf_append(out, cursor->data.data + 4 * count,
                     cursor->data.len - 4 * count);
}

/* How many rectangles. */
static unsigned put_pseudos(struct proxy_viewer *viewer)
{
    static const struct {
        int32_t encoding;
        uint64_t able;
    } kinds[] = {
        {SCREEN_CURSOR, PROXY_ABLE_CURSOR},
        {SCREEN_ALPHA_CURSOR, PROXY_ABLE_ALPHA_CURSOR},
        {SCREEN_DESKTOP_NAME, PROXY_ABLE_NAME},
        {SCREEN_LED_STATE, PROXY_ABLE_LED},
        {SCREEN_QEMU_KEYS, PROXY_ABLE_QEMU_KEYS},
    };
    unsigned count = 0;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct proxy_pseudo *pseudo =
            proxy_pseudo_of(viewer, kinds[i].encoding);
        if (!pseudo->due || !(viewer->able & kinds[i].able)) {
            continue;
        }
        pseudo->due = false;
        put_head(&viewer->out, &pseudo->rect, kinds[i].encoding);
        if (kinds[i].encoding == SCREEN_CURSOR) {
            put_cursor(viewer, pseudo, &viewer->out);
        } else {
            poise_buf_append(&viewer->out, pseudo->data.data, pseudo->data.len);
        }
        count++;
    }
    return count;
}

/* ---- pixels ------------------------------------------------------------- */

/* What lies outside of the picture is black. */
static int put_beyond(struct proxy_viewer *viewer,
                      const struct poise_screen_rect *rect)
{
    const struct poise_screen_picture *picture = viewer->picture;
    size_t row = rect->width * sizeof(uint32_t);
    char *to;

    poise_buf_reset(&viewer->black);
    to = poise_buf_reserve(&viewer->black, row * rect->height + 1);
    if (!to) {
        return -ENOMEM;
    }
    memset(to, 0, row * rect->height);
    for (uint32_t y = rect->y; y < rect->y + rect->height; y++, to += row) {
        if (y < picture->height && rect->x < picture->width) {
            uint32_t there = picture->width - rect->x;
            memcpy(to, picture->pixels + (size_t)y * picture->width + rect->x,
                   (there < rect->width ? there : rect->width) *
                       sizeof(uint32_t));
        }
    }
    return proxy_encode(&viewer->encoder, viewer->encoding, &viewer->format,
                        rect, (const uint32_t *)(void *)viewer->black.data,
                        rect->width, &viewer->out);
}

/* How many rectangles, or negative. */
static int put_pixels(struct proxy_viewer *viewer, uint64_t *pixels)
{
    const struct poise_screen_picture *picture = viewer->picture;
    const struct poise_screen_rect *rects;
    size_t count, done;
    int code = 0;

    poise_buf_reset(&viewer->rects);
    if (viewer->asked) {
        code =
            proxy_damage_take(&viewer->damage, &viewer->area, &viewer->rects);
    }
    if (code == 0 && viewer->continuous) {
        code = proxy_damage_take(&viewer->damage, &viewer->stream_area,
                                 &viewer->rects);
    }
    rects = (const struct poise_screen_rect *)(void *)viewer->rects.data;
    count = viewer->rects.len / sizeof *rects;
    done = count < RECTS_MOST ? count : RECTS_MOST;
    for (size_t i = done; i < count; i++) {
        proxy_damage_add(&viewer->damage, &rects[i]);
    }
    for (size_t i = 0; i < done && code == 0; i++) {
        const struct poise_screen_rect *rect = &rects[i];
        if (rect->x + rect->width > picture->width ||
            rect->y + rect->height > picture->height) {
            code = put_beyond(viewer, rect);
            continue;
        }
        code = proxy_encode(
            &viewer->encoder, viewer->encoding, &viewer->format, rect,
            picture->pixels + (size_t)rect->y * picture->width + rect->x,
            picture->width, &viewer->out);
        *pixels += (uint64_t)rect->width * rect->height;
    }
    return code < 0 ? code : (int)done;
}

int proxy_viewer_update(struct proxy_viewer *viewer,
                        struct poise_remote_vnc_stats *stats)
{
    struct poise_buf *out = &viewer->out;
    size_t at = out->len;
    int sized, code = 0;
    unsigned count;

    if (!viewer->picture || !(viewer->asked || viewer->continuous)) {
        return 0;
    }
    poise_buf_append(out, "\0\0\0\0", 4);
    sized = put_size(viewer);
    count = sized > 0 ? 1 : put_pseudos(viewer);
    if (sized == 0) {
        code = put_pixels(viewer, &stats->pixels);
        count += code > 0 ? (unsigned)code : 0;
    }
    if (sized < 0 || code < 0 || out->error) {
        return sized < 0 ? sized : code < 0 ? code : out->error;
    }
    if (count == 0 && !viewer->repeat) {
        out->len = at;
        return 0;
    }
    out->data[at + 2] = (char)(count >> 8);
    out->data[at + 3] = (char)count;
    viewer->asked = viewer->repeat = false;
    stats->updates++;
    return 0;
}
