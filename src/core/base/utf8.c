/* UTF-8: how much of a text is valid. */
#include <poise/base.h>

/* Length of the valid UTF-8 character at `text`, 0 if there is none. The
 * bounds of the second byte keep out overlong forms, surrogates and what lies
 * above U+10FFFF (Unicode, table 3-7). */
static size_t utf8_char(const unsigned char *text, size_t len)
{
    unsigned char lead = text[0];
    unsigned char low = 0x80, high = 0xbf;
    size_t need;
    if (lead < 0x80) {
        return 1;
    } else if (lead >= 0xc2 && lead <= 0xdf) {
        need = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        need = 3;
        low = lead == 0xe0 ? 0xa0 : low;
        high = lead == 0xed ? 0x9f : high;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        need = 4;
        low = lead == 0xf0 ? 0x90 : low;
        high = lead == 0xf4 ? 0x8f : high;
    } else {
        return 0;
    }
    if (len < need || text[1] < low || text[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < need; i++) {
        if (text[i] < 0x80 || text[i] > 0xbf) {
            return 0;
        }
    }
    return need;
}

size_t poise_utf8_valid(const void *text, size_t len)
{
    const unsigned char *bytes = text;
    size_t at = 0;
    while (at < len) {
        size_t step = utf8_char(bytes + at, len - at);
        if (step == 0) {
            break;
        }
        at += step;
    }
    return at;
}
