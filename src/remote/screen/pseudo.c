/* What a server says beside pixels: cursors, names, clipboards, fences. It is
 * read to its end, within bounds, and handed to a relay as it came. */
#include "internal.h"

#include <errno.h>

enum {
    COLOURS = 1,
    CURSOR_MOST = 1024, /* pixels in a row, and rows */
    NAME_MOST = 1 << 16,
    LAYOUT_BYTES = 4, /* before the screens of one */
    SCREEN_BYTES = 16,
    CUT_TEXT_HEAD = 7,
    CUT_TEXT_LONGEST = 64 << 20, /* that is read at all */
};

/* `len` bytes more. */
static int gather(struct screen_source *source, size_t len,
                  struct poise_buf *out)
{
    uint8_t bytes[4096];
    while (len > 0 && source->error == 0) {
        size_t step = len < sizeof bytes ? len : sizeof bytes;
        screen_read(source, bytes, step);
        poise_buf_append(out, bytes, step);
        len -= step;
    }
    if (source->error == 0 && out->error) {
        source->error = -ENOMEM;
    }
    return source->error;
}

static uint32_t last_u32(const struct poise_buf *buf)
{
    const uint8_t *at = (const uint8_t *)buf->data + buf->len - 4;
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 |
           (uint32_t)at[2] << 8 | at[3];
}

static int read_cursor(struct screen_source *source, int32_t encoding,
                       const struct poise_screen_rect *rect,
                       struct poise_buf *out)
{
    size_t pixels = (size_t)rect->width * rect->height;
    if (rect->width > CURSOR_MOST || rect->height > CURSOR_MOST) {
        return screen_bad(source, "its cursor is too large");
    }
    if (encoding == SCREEN_CURSOR) {
        return gather(source,
                      pixels * 4 + (size_t)(rect->width + 7) / 8 * rect->height,
                      out);
    }
    int code = gather(source, 4, out);
    if (code == 0 && last_u32(out) != SCREEN_RAW) {
        return screen_bad(source, "its cursor has an encoding of its own");
    }
    return code == 0 ? gather(source, pixels * 4, out) : code;
}

static int read_layout(struct screen_source *source, struct poise_buf *out)
{
    int code = gather(source, LAYOUT_BYTES, out);
    return code == 0 ? gather(source,
                              (uint8_t)out->data[0] * (size_t)SCREEN_BYTES, out)
                     : code;
}

static int read_name(struct screen_source *source, struct poise_buf *out)
{
    int code = gather(source, 4, out);
    uint32_t len = code == 0 ? last_u32(out) : 0;
    return len > NAME_MOST ? screen_bad(source, "its name has no end")
                           : gather(source, len, out);
}

static int read_pseudo(struct screen_source *source, int32_t encoding,
                       const struct poise_screen_rect *rect,
                       struct poise_buf *out)
{
    switch (encoding) {
    case SCREEN_DESKTOP_SIZE:
    case SCREEN_QEMU_KEYS:
        return source->error;
    case SCREEN_CURSOR:
    case SCREEN_ALPHA_CURSOR:
        return read_cursor(source, encoding, rect, out);
    case SCREEN_LED_STATE:
        return gather(source, 1, out);
    case SCREEN_DESKTOP_NAME:
        return read_name(source, out);
    case SCREEN_EXTENDED_SIZE:
        return read_layout(source, out);
    default:
        return screen_bad(source, "it uses an encoding that nobody asked for");
    }
}

int screen_pseudo(struct screen_decoder *decoder, int32_t encoding,
                  const struct poise_screen_rect *rect)
{
    struct screen_source *source = decoder->source;
    const struct screen_relay *relay = decoder->relay;
    struct poise_buf data = {0};
    if (!relay) {
        return encoding == SCREEN_DESKTOP_SIZE
                   ? source->error
                   : screen_bad(source,
                                "it uses an encoding that nobody asked for");
    }
    int code = read_pseudo(source, encoding, rect, &data);
    if (code == 0) {
        code = relay->pseudo(encoding, rect, data.data, data.len, relay->arg);
        source->error = code < 0 ? code : 0;
    }
    poise_buf_free(&data);
    return source->error;
}

/* ---- messages ------------------------------------------------------------ */

/* Three bytes, a length, and as many; negative: an extended one. Too long a
 * text is read and dropped. */
static int read_cut_text(struct screen_source *source, struct poise_buf *out,
                         bool *drop)
{
    int code = gather(source, CUT_TEXT_HEAD, out);
    uint32_t len = code == 0 ? last_u32(out) : 0;
    if (len > INT32_MAX) {
        len = 0 - len;
    }
    *drop = len > SCREEN_CUT_TEXT_MOST;
    return len > CUT_TEXT_LONGEST
               ? screen_bad(source, "it sends a text without end")
           : *drop ? screen_skip(source, len)
                   : gather(source, len, out);
}

static int read_fence(struct screen_source *source, struct poise_buf *out)
{
    enum { FLAGS = 4 };
    screen_skip(source, 3);
    int code = gather(source, FLAGS, out);
    uint8_t len = code == 0 ? screen_u8(source) : 0;
    return len > SCREEN_FENCE_MOST ? screen_bad(source, "its fence is too long")
                                   : gather(source, len, out);
}

int screen_pass_on(struct screen_source *source,
                   const struct screen_relay *relay, uint8_t type)
{
    struct poise_buf data = {0};
    bool drop = false;
    int code = source->error;
    switch (type) {
    case COLOURS: /* there is no palette in the format that we asked for */
        screen_skip(source, 3);
        code = screen_skip(source, (uint64_t)screen_u16(source) * 6);
        drop = true;
        break;
    case SCREEN_BELL:
    case SCREEN_END_OF_CONTINUOUS:
        break;
    case SCREEN_CUT_TEXT:
        code = read_cut_text(source, &data, &drop);
        break;
    case SCREEN_FENCE_MESSAGE:
        code = read_fence(source, &data);
        break;
    default:
        code = screen_bad(source, "there is no such message");
    }
    if (code == 0 && !drop) {
        code = relay->message(type, data.data, data.len, relay->arg);
        source->error = code < 0 ? code : source->error;
    }
    poise_buf_free(&data);
    return source->error;
}
