/*
 * Versions, in the order of GNU's filevercmp: without the endings of files'
 * names first, then with them. Texts and numbers take turns; of texts, '~'
 * comes before the end, then letters, then all else.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(int c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

enum { TILDE = 1, NUMBER = 2, LETTER = 3, OTHER = LETTER + 52 };

/* A character that is no digit: their order in one byte. */
static unsigned char rank_of(int c)
{
    int rank = OTHER + c;

    if (c == '~') {
        return TILDE;
    }
    if (is_letter(c)) {
        return (unsigned char)(LETTER + (c <= 'Z' ? c - 'A' : c - 'a' + 26));
    }
    /* What went before has its own places. */
    rank -= c > '9' ? 10 : 0;
    rank -= c > 'Z' ? 26 : 0;
    rank -= c > 'z' ? 26 : 0;
    rank -= c > '~' ? 1 : 0;
    return (unsigned char)rank;
}

/* The end is a number that is zero, and then NUMBER for good. */
static int put_parts(struct keys_span text, struct poise_buf *key)
{
    const unsigned char *at = text.at;
    size_t len = (size_t)(text.end - text.at);
    /* A number of one digit takes three: NUMBER, its length, it. */
    unsigned char *to = (unsigned char *)poise_buf_reserve(key, 3 * len + 32);

    if (!to) {
        return key->error;
    }
    do {
        size_t digits;

        while (at < text.end && !is_digit(*at)) {
            *to++ = rank_of(*at++);
        }
        while (at < text.end && *at == '0') {
            at++;
        }
        for (digits = 0; is_digit(keys_peek(&text, at + digits)); digits++) {
        }
        *to++ = NUMBER;
        key->len = (size_t)((char *)to - key->data);
        keys_put_count(key, 0, 250, digits);
        to = (unsigned char *)key->data + key->len;
        memcpy(to, at, digits);
        to += digits;
        at += digits;
    } while (at < text.end);
    *to++ = NUMBER;
    key->len = (size_t)((char *)to - key->data);
    return 0;
}

/* The text without (\.[A-Za-z~][A-Za-z0-9~]*)* at its end. */
static struct keys_span without_endings(struct keys_span text)
{
    const unsigned char *at = text.at, *end = at;

    for (;;) {
        end = at;
        while (keys_peek(&text, at) == '.' &&
               (is_letter(keys_peek(&text, at + 1)) ||
                keys_peek(&text, at + 1) == '~')) {
            for (at += 2; at < text.end &&
                          (is_letter(*at) || is_digit(*at) || *at == '~');
                 at++) {
            }
        }
        if (at >= text.end) {
            return (struct keys_span){text.at, end};
        }
        at++;
    }
}

int keys_put_version(struct keys_span text, struct poise_buf *key)
{
    enum { EMPTY, DOT, DOT_DOT, HIDDEN, PLAIN };
    size_t len = (size_t)(text.end - text.at);
    int kind = PLAIN;

    if (len == 0) {
        kind = EMPTY;
    } else if (*text.at == '.') {
        kind = len == 1                        ? DOT
               : len == 2 && text.at[1] == '.' ? DOT_DOT
                                               : HIDDEN;
    }
    poise_buf_putc(key, (char)kind);
    if (kind >= HIDDEN) {
        put_parts(without_endings(text), key);
        put_parts(text, key);
    }
    return key->error;
}
