/* What a viewer says: how long its messages are. Source: RFC 6143, 7.5, and the
 * community's rfbproto for fences, continuous updates, sizes and keys. */
#include "internal.h"

#include <errno.h>

enum {
    SET_FORMAT_BYTES = 20,
    ASK_BYTES = 10,
    KEY_BYTES = 8,
    HEAD = 8, /* of a cut text */
    FENCE_HEAD = 9,
    QEMU_BYTES = 12,
    QEMU_KEY = 0,
    SCREEN_BYTES = 16,
};

int proxy_bad(const char *why)
{
    return poise_error_set(EBADMSG, "understand the other side", NULL, "%s",
                           why);
}

void proxy_put_u16(struct poise_buf *out, uint32_t value)
{
    poise_buf_putc(out, (char)(value >> 8));
    poise_buf_putc(out, (char)value);
}

void proxy_put_u32(struct poise_buf *out, uint32_t value)
{
    proxy_put_u16(out, value >> 16);
    proxy_put_u16(out, value & 0xffff);
}

static int64_t cut_text_len(const unsigned char *data, size_t len)
{
    uint32_t text;

    if (len < HEAD) {
        return 0;
    }
    text = proxy_u32(data + 4);
    text = text > INT32_MAX ? 0 - text : text; /* an extended one */
    return text > SCREEN_CUT_TEXT_MOST
               ? proxy_bad("a viewer sends a text without end")
               : (int64_t)HEAD + text;
}

int64_t proxy_message_len(const unsigned char *data, size_t len)
{
    if (len == 0) {
        return 0;
    }
    switch (data[0]) {
    case PROXY_SET_FORMAT:
        return SET_FORMAT_BYTES;
    case PROXY_SET_ENCODINGS:
        return len < 4 ? 0 : 4 + 4 * (int64_t)proxy_u16(data + 2);
    case PROXY_ASK:
    case PROXY_CONTINUOUS:
        return ASK_BYTES;
    case PROXY_KEY:
        return KEY_BYTES;
    case PROXY_POINTER:
        return PROXY_POINTER_BYTES;
    case PROXY_CUT_TEXT:
        return cut_text_len(data, len);
    case PROXY_FENCE:
        return len < FENCE_HEAD ? 0
               : data[8] > SCREEN_FENCE_MOST
                   ? proxy_bad("a viewer's fence is too long")
                   : FENCE_HEAD + data[8];
    case PROXY_SET_SIZE:
        return len < HEAD ? 0 : HEAD + SCREEN_BYTES * (int64_t)data[6];
    case PROXY_QEMU:
        return len < 2               ? 0
               : data[1] == QEMU_KEY ? QEMU_BYTES
                                     : proxy_bad("a viewer sends a message "
                                                 "that nobody offered");
    default:
        return proxy_bad("a viewer sends a message that there is not");
    }
}

bool proxy_message_is_input(unsigned char type)
{
    return type == PROXY_KEY || type == PROXY_POINTER ||
           type == PROXY_CUT_TEXT || type == PROXY_SET_SIZE ||
           type == PROXY_QEMU;
}
