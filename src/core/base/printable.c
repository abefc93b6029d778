/*
 * Texts of others, as a terminal may see them: names of files, words of peers,
 * lines of programs may hold sequences that move its cursor, rename its window
 * or make it type. What is neither UTF-8 nor printable is shown instead.
 */
#include <poise/base.h>

/* Whether the character at `text`, which is valid UTF-8, moves a terminal's
 * cursor or worse: C0, DEL and C1. */
static bool is_control(const unsigned char *text)
{
    return text[0] < 0x20 || text[0] == 0x7f ||
           (text[0] == 0xc2 && text[1] < 0xa0);
}

/* How many bytes from the begin on are harmless. */
static size_t harmless(const char *text, size_t len)
{
    size_t valid = poise_utf8_valid(text, len), plain = 0;
    while (plain < valid && !is_control((const unsigned char *)text + plain)) {
        plain++;
    }
    return plain;
}

int poise_buf_escape(struct poise_buf *buf, const char *text, size_t len)
{
    while (len > 0) {
        size_t plain = harmless(text, len);
        poise_buf_append(buf, text, plain);
        text += plain;
        len -= plain;
        if (len > 0) {
            poise_buf_printf(buf, "\\%03o", (unsigned char)*text);
            text++;
            len--;
        }
    }
    return buf->error;
}

void poise_text_mask(char *text, size_t len, const char *keep)
{
    while (len > 0) {
        size_t plain = harmless(text, len);
        text += plain;
        len -= plain;
        if (len > 0) {
            if (*text == '\0' || strchr(keep, *text) == NULL) {
                *text = '?';
            }
            text++;
            len--;
        }
    }
}
