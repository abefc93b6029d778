/* What a viewer says once it runs. */
#include "internal.h"

#include <errno.h>
#include <string.h>

#define FENCE_REQUEST (UINT32_C(1) << 31)
enum { FENCE_KNOWN = 7, FENCE_HEAD = 9, FENCE_FLAGS = 4 };

static const struct {
    int32_t encoding;
    uint64_t able;
} pseudos[PROXY_PSEUDOS] = {
    {SCREEN_CURSOR, PROXY_ABLE_CURSOR},
    {SCREEN_ALPHA_CURSOR, PROXY_ABLE_ALPHA_CURSOR},
    {SCREEN_DESKTOP_NAME, PROXY_ABLE_NAME},
    {SCREEN_LED_STATE, PROXY_ABLE_LED},
    {SCREEN_QEMU_KEYS, PROXY_ABLE_QEMU_KEYS},
    {SCREEN_EXTENDED_SIZE, PROXY_ABLE_EXTENDED_SIZE},
};

struct proxy_pseudo *proxy_pseudo_of(struct proxy_viewer *viewer,
                                     int32_t encoding)
{
    for (int i = 0; i < PROXY_PSEUDOS; i++) {
        if (pseudos[i].encoding == encoding) {
            return &viewer->pseudos[i];
        }
    }
    return NULL;
}

static int set_format(struct proxy_viewer *viewer, const unsigned char *bytes)
{
    int code = proxy_format_parse(bytes, &viewer->format);

    if (code == 0 && viewer->format.mapped) {
        proxy_format_put_palette(&viewer->out);
    }
    return code < 0 ? code : viewer->out.error;
}

/* What is new in what it understands is said to it, and to the server. */
static int set_able(struct proxy_viewer *viewer, uint64_t able)
{
    uint64_t fresh = able & ~viewer->able;
    struct poise_buf body = {0};
    int code = 0;

    for (int i = 0; i < PROXY_PSEUDOS; i++) {
        if (fresh & pseudos[i].able) {
            viewer->pseudos[i].due = viewer->pseudos[i].known;
        }
    }
    if (able != viewer->able) {
        viewer->able = able;
        poise_buf_varint(&body, able);
        code = body.error ? body.error
                          : proxy_channel_send(&viewer->channel, PROXY_ABLE,
                                               body.data, body.len);
        poise_buf_free(&body);
    }
    return code;
}

static int set_encodings(struct proxy_viewer *viewer, const unsigned char *data)
{
    uint32_t count = proxy_u16(data + 2);
    uint64_t able = 0;
    bool chosen = false;

    viewer->sizes = false;
    viewer->encoding = SCREEN_RAW;
    for (uint32_t i = 0; i < count; i++) {
        int32_t number = (int32_t)proxy_u32(data + 4 + (size_t)4 * i);

        if (!chosen && (number == SCREEN_TIGHT || number == SCREEN_ZRLE ||
                        number == SCREEN_HEXTILE || number == SCREEN_RAW)) {
            viewer->encoding = number;
            chosen = true;
        }
        for (int p = 0; p < PROXY_PSEUDOS; p++) {
            able |= pseudos[p].encoding == number ? pseudos[p].able : 0;
        }
        able |= number == SCREEN_EXTENDED_CLIPBOARD ? PROXY_ABLE_CLIPBOARD : 0;
        viewer->sizes |= number == SCREEN_DESKTOP_SIZE;
        if (number == SCREEN_FENCE && !viewer->fences) {
            viewer->fences = true;
            /* That is how a viewer learns that it may use them. */
            poise_buf_append(&viewer->out, "\xf8\0\0\0", 4);
            proxy_put_u32(&viewer->out, FENCE_REQUEST);
            poise_buf_putc(&viewer->out, 0);
        }
        if (number == SCREEN_CONTINUOUS && !viewer->continuous_able) {
            viewer->continuous_able = true;
            poise_buf_putc(&viewer->out, (char)SCREEN_END_OF_CONTINUOUS);
        }
    }
    return viewer->out.error ? viewer->out.error : set_able(viewer, able);
}

static struct poise_screen_rect read_area(const unsigned char *data)
{
    return (struct poise_screen_rect){proxy_u16(data), proxy_u16(data + 2),
                                      proxy_u16(data + 4), proxy_u16(data + 6)};
}

static void ask(struct proxy_viewer *viewer, const unsigned char *data)
{
    struct poise_screen_rect area = read_area(data + 2);

    if (!data[1]) {
        proxy_damage_add(&viewer->damage, &area);
        viewer->repeat = true;
    }
    if (viewer->asked) {
        /* Both are answered by one update. */
        struct poise_screen_rect *old = &viewer->area;
        uint32_t right = area.x + area.width, bottom = area.y + area.height;
        uint32_t old_right = old->x + old->width;
        uint32_t old_bottom = old->y + old->height;
        area.x = area.x < old->x ? area.x : old->x;
        area.y = area.y < old->y ? area.y : old->y;
        area.width = (right > old_right ? right : old_right) - area.x;
        area.height = (bottom > old_bottom ? bottom : old_bottom) - area.y;
    }
    viewer->asked = true;
    viewer->area = area;
}

static int answer_fence(struct proxy_viewer *viewer, const unsigned char *data)
{
    uint32_t flags = proxy_u32(data + 4);

    if (!(flags & FENCE_REQUEST)) {
        return 0;
    }
    poise_buf_append(&viewer->out, "\xf8\0\0\0", 4);
    proxy_put_u32(&viewer->out, flags & FENCE_KNOWN);
    poise_buf_append(&viewer->out, data + FENCE_HEAD - 1, 1 + (size_t)data[8]);
    return viewer->out.error;
}

/* Motions go now and then, the last one of those that came; what is pressed
 * goes at once, behind the motion before it. */
static int take_pointer(struct proxy_viewer *viewer, const unsigned char *data)
{
    int code;

    if (data[1] == viewer->buttons) {
        memcpy(viewer->motion, data, PROXY_POINTER_BYTES);
        viewer->moved = true;
        return 0;
    }
    code = proxy_viewer_move(viewer, true, viewer->moved_ns);
    viewer->buttons = data[1];
    return code < 0 ? code
                    : proxy_channel_send(&viewer->channel, PROXY_INPUT, data,
                                         PROXY_POINTER_BYTES);
}

uint64_t proxy_viewer_move_due(const struct proxy_viewer *viewer)
{
    return viewer->moved && viewer->channel.is_up
               ? viewer->moved_ns + PROXY_MOTION_MS * UINT64_C(1000000)
               : 0;
}

int proxy_viewer_move(struct proxy_viewer *viewer, bool once, uint64_t now)
{
    uint64_t due = proxy_viewer_move_due(viewer);

    if (!viewer->moved || (!once && (due == 0 || due > now))) {
        return 0;
    }
    viewer->moved = false;
    viewer->moved_ns = now;
    return proxy_channel_send(&viewer->channel, PROXY_INPUT, viewer->motion,
                              PROXY_POINTER_BYTES);
}

int proxy_viewer_message(struct proxy_viewer *viewer, const unsigned char *data,
                         size_t len)
{
    int code;

    switch (data[0]) {
    case PROXY_SET_FORMAT:
        return set_format(viewer, data + 4);
    case PROXY_SET_ENCODINGS:
        return set_encodings(viewer, data);
    case PROXY_ASK:
        ask(viewer, data);
        return 0;
    case PROXY_CONTINUOUS:
        viewer->continuous = data[1] != 0;
        viewer->stream_area = read_area(data + 2);
        return viewer->continuous
                   ? 0
                   : poise_buf_putc(&viewer->out,
                                    (char)SCREEN_END_OF_CONTINUOUS);
    case PROXY_FENCE:
        return answer_fence(viewer, data);
    case PROXY_POINTER:
        return take_pointer(viewer, data);
    default:
        code = proxy_viewer_move(viewer, true, viewer->moved_ns);
        return code < 0 ? code
                        : proxy_channel_send(&viewer->channel, PROXY_INPUT,
                                             data, len);
    }
}
