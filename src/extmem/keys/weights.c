/*
 * What strxfrm(3) makes of ASCII texts at its first level, without calling it:
 * the weights of their characters, one behind the other. It spends its time on
 * levels that are hardly ever asked for.
 *
 * That weights stand by themselves is tried, not believed: on one text with all
 * pairs of printable characters and all threes of small letters. Languages that
 * take several letters for one (cs: ch, hu: dzs) fail it, and have no table.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = 32, LAST = 126, LEVEL_END = 1 };

/* The first level of a text: its bytes in *out, for free(); negative errno. */
static ssize_t first_level(locale_t locale, const char *text, char **out)
{
    size_t needed = strxfrm_l(NULL, text, 0, locale) + 1;
    char *to = poise_alloc(needed, 1), *end;

    if (!to) {
        return -ENOMEM;
    }
    strxfrm_l(to, text, needed, locale);
    end = memchr(to, LEVEL_END, needed);
    *out = to;
    return end ? end - to : (ssize_t)strlen(to);
}

static int take_weights(locale_t locale, struct keys_weights *weights)
{
    memset(weights->len, KEYS_NO_WEIGHT, sizeof weights->len);
    for (int c = FIRST; c <= LAST; c++) {
        const char text[2] = {(char)c, '\0'};
        char *level = NULL;
        ssize_t len = first_level(locale, text, &level);

        if (len >= 0 && (size_t)len <= sizeof weights->bytes[c]) {
            weights->len[c] = (unsigned char)len;
            memcpy(weights->bytes[c], level, (size_t)len);
        }
        free(level);
        if (len < 0) {
            return (int)len;
        }
    }
    return 0;
}

static void put_tries(const struct keys_weights *weights,
                      struct poise_buf *text)
{
    for (int a = FIRST; a <= LAST; a++) {
        for (int b = FIRST; b <= LAST; b++) {
            if (weights->len[a] != KEYS_NO_WEIGHT &&
                weights->len[b] != KEYS_NO_WEIGHT) {
                poise_buf_putc(text, (char)a);
                poise_buf_putc(text, (char)b);
            }
        }
    }
    for (int a = 0; a < 26 * 26 * 26; a++) {
        poise_buf_putc(text, (char)('a' + a / 26 / 26));
        poise_buf_putc(text, (char)('a' + a / 26 % 26));
        poise_buf_putc(text, (char)('a' + a % 26));
    }
    poise_buf_str(text);
}

/* 1: weights stand by themselves. */
static int try_weights(locale_t locale, const struct keys_weights *weights)
{
    struct poise_buf text = {0}, expected = {0};
    char *level = NULL;
    ssize_t len;
    int code = 0;

    put_tries(weights, &text);
    if (!keys_put_weights(weights, (const unsigned char *)text.data, text.len,
                          &expected) ||
        text.error || expected.error) {
        code = text.error ? text.error : expected.error;
    } else {
        len = first_level(locale, text.data, &level);
        code = len < 0 ? (int)len
                       : (size_t)len == expected.len &&
                             memcmp(level, expected.data, expected.len) == 0;
    }
    free(level);
    poise_buf_free(&text);
    poise_buf_free(&expected);
    return code;
}

int keys_weights_make(locale_t locale, struct keys_weights **out)
{
    struct keys_weights *weights = poise_alloc(1, sizeof *weights);
    int code = weights ? take_weights(locale, weights) : -ENOMEM;

    if (code == 0) {
        code = try_weights(locale, weights);
    }
    *out = code > 0 ? weights : NULL;
    if (code <= 0) {
        free(weights);
    }
    return code < 0 ? code : 0;
}

bool keys_put_weights(const struct keys_weights *weights,
                      const unsigned char *at, size_t len,
                      struct poise_buf *key)
{
    char *to = poise_buf_reserve(key, KEYS_MOST_WEIGHT * len + 1);
    char *begin = to;

    for (size_t i = 0; to && i < len; i++) {
        unsigned char some = weights->len[at[i]];

        if (some == KEYS_NO_WEIGHT) {
            return false;
        }
        memcpy(to, weights->bytes[at[i]], KEYS_MOST_WEIGHT);
        to += some;
    }
    key->len += to ? (size_t)(to - begin) : 0;
    return true;
}
