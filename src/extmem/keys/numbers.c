/*
 * Numbers as bytes: a zero is 80h; a positive number is how many digits it has
 * before the point, then the digits, two in a byte, from the first that is not
 * zero to the last; a negative one is that with all bits turned. Nothing is
 * rounded, however long they are.
 */
#include "internal.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct keys_span keys_trim(const struct poise_sort_keys *keys,
                           struct keys_span text)
{
    while (text.at < text.end && keys->blank[*text.at]) {
        text.at++;
    }
    return text;
}

int keys_put_count(struct poise_buf *key, unsigned base, unsigned most,
                   size_t count)
{
    unsigned char bytes[9];

    if (count < most) {
        return poise_buf_putc(key, (char)(base + count));
    }
    bytes[0] = (unsigned char)(base + most);
    for (int i = 0; i < 8; i++) {
        bytes[i + 1] = (unsigned char)((uint64_t)count >> (56 - 8 * i));
    }
    return poise_buf_append(key, bytes, sizeof bytes);
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

/* ---- decimal numbers ---------------------------------------------------- */

/* Where its digits are. */
struct decimal {
    bool negative;
    struct keys_span whole, fraction; /* the former with separators */
    size_t digits;                    /* of `whole` */
};

static struct decimal read_decimal(const struct poise_sort_keys *keys,
                                   struct keys_span text)
{
    struct decimal number = {.negative = keys_peek(&text, text.at) == '-'};
    const unsigned char *at = text.at + number.negative;

    while (keys_peek(&text, at) == '0' ||
           keys_peek(&text, at) == keys->thousands) {
        at++;
    }
    number.whole.at = at;
    while (is_digit(keys_peek(&text, at))) {
        number.digits++;
        at++;
        while (keys_peek(&text, at) == keys->thousands) {
            at++;
        }
    }
    number.whole.end = at;
    number.fraction.at = number.fraction.end = at;
    if (keys_peek(&text, at) == keys->point) {
        number.fraction.at = ++at;
        while (is_digit(keys_peek(&text, at))) {
            at++;
        }
        number.fraction.end = at;
    }
    while (number.fraction.end > number.fraction.at &&
           number.fraction.end[-1] == '0') {
        number.fraction.end--;
    }
    return number;
}

/* Pairs of digits, and where the last one is that has any. */
struct pairs {
    unsigned char *to, *last;
    unsigned first;
    bool half;
};

static void put_digits(struct pairs *pairs, struct keys_span digits)
{
    for (const unsigned char *at = digits.at; at < digits.end; at++) {
        unsigned digit = (unsigned)*at - '0';

        if (!is_digit(*at)) {
            continue;
        }
        if (!pairs->half) {
            pairs->first = digit;
        } else {
            *pairs->to++ = (unsigned char)(1 + 10 * pairs->first + digit);
            if (pairs->first + digit > 0) {
                pairs->last = pairs->to;
            }
        }
        pairs->half = !pairs->half;
    }
}

int keys_put_number(const struct poise_sort_keys *keys, struct keys_span text,
                    struct poise_buf *key)
{
    enum { ZERO = 0x80, POSITIVE = 0x81, MOST = 63 };
    struct decimal number = read_decimal(keys, keys_trim(keys, text));
    struct pairs pairs = {0};
    size_t begin = key->len, room;

    if (number.digits == 0 && number.fraction.at == number.fraction.end) {
        return poise_buf_putc(key, (char)ZERO);
    }
    keys_put_count(key, POSITIVE, MOST, number.digits);
    room =
        number.digits + (size_t)(number.fraction.end - number.fraction.at) + 2;
    pairs.to = (unsigned char *)poise_buf_reserve(key, room);
    if (!pairs.to) {
        return key->error;
    }
    pairs.last = pairs.to;
    put_digits(&pairs, number.whole);
    put_digits(&pairs, number.fraction);
    if (pairs.half) {
        put_digits(&pairs, (struct keys_span){(const unsigned char *)"0",
                                              (const unsigned char *)"0" + 1});
    }
    *pairs.last++ = 0;
    key->len = (size_t)((char *)pairs.last - key->data);
    for (size_t i = begin; number.negative && i < key->len; i++) {
        key->data[i] = (char)~key->data[i];
    }
    return 0;
}

/* ---- with units --------------------------------------------------------- */

/* Over the digits of a number, behind its sign; where it ends. A separator or a
 * point without a digit behind it ends the number. *most is the greatest digit;
 * *separated: what ends it is a separator. */
static const unsigned char *skip_number(const struct poise_sort_keys *keys,
                                        struct keys_span text, int *most,
                                        bool *separated)
{
    const unsigned char *at = text.at;
    int c;

    *most = 0;
    *separated = false;
    while (is_digit(c = keys_peek(&text, at))) {
        *most = c > *most ? c : *most;
        at++;
        *separated = keys_peek(&text, at) == keys->thousands;
        at += *separated;
    }
    if (*separated) {
        return at - 1;
    }
    if (keys_peek(&text, at) == keys->point) {
        at++;
        while (is_digit(c = keys_peek(&text, at))) {
            *most = c > *most ? c : *most;
            at++;
        }
    }
    return at;
}

static struct keys_span behind_sign(struct keys_span text)
{
    text.at += keys_peek(&text, text.at) == '-';
    return text;
}

/* How great a unit is; 0: it is none. */
static int order_of(int c)
{
    static const char units[] = "KMGTPEZY";
    const char *unit = c > 0 ? strchr(units, c == 'k' ? 'K' : c) : NULL;

    return unit ? (int)(unit - units) + 1 : 0;
}

/* That of the unit behind a number: 0 without one, or of a zero. */
static int unit_of(const struct poise_sort_keys *keys, struct keys_span text)
{
    bool negative = keys_peek(&text, text.at) == '-', separated;
    int most, order;
    const unsigned char *at =
        skip_number(keys, behind_sign(text), &most, &separated);

    order = most > '0' && !separated ? order_of(keys_peek(&text, at)) : 0;
    return negative ? -order : order;
}

const unsigned char *keys_number_end(const struct poise_sort_keys *keys,
                                     struct keys_span text, bool and_unit)
{
    bool separated;
    int most;
    const unsigned char *at =
        skip_number(keys, behind_sign(text), &most, &separated);

    return most < '0' ? text.at
                      : at + (and_unit && order_of(keys_peek(&text, at)) > 0);
}

int keys_put_human(const struct poise_sort_keys *keys, struct keys_span text,
                   struct poise_buf *key)
{
    text = keys_trim(keys, text);
    poise_buf_putc(key, (char)(0x80 + unit_of(keys, text)));
    return keys_put_number(keys, text, key);
}

/* ---- floating numbers --------------------------------------------------- */

/* A positive one: its exponent, then its fraction. */
static void put_magnitude(long double x, unsigned char *to)
{
    int exponent = 0;
    long double fraction = isinf(x) ? 0 : frexpl(x, &exponent);
    uint64_t parts[3];

    /* Exponents of all formats fit 16 bits. */
    parts[0] = isinf(x) ? UINT16_MAX : x == 0 ? 0 : (uint64_t)exponent + 32768;
    for (int i = 1; i < 3; i++) {
        fraction *= 0x1p64L;
        parts[i] = (uint64_t)fraction;
        fraction -= (long double)parts[i];
    }
    to[0] = (unsigned char)(parts[0] >> 8);
    to[1] = (unsigned char)parts[0];
    for (int i = 0; i < 16; i++) {
        to[2 + i] = (unsigned char)(parts[1 + i / 8] >> (56 - i % 8 * 8));
    }
}

static int put_floating(long double x, struct poise_buf *key)
{
    enum { NOT_A_NUMBER = 1, NEGATIVE = 2, POSITIVE = 3, BYTES = 19 };
    unsigned char bytes[BYTES] = {NOT_A_NUMBER};

    if (isnan(x)) {
        /* By what stands in memory, as GNU sort does. */
        _Static_assert(sizeof x < BYTES, "NaNs fit");
        memcpy(bytes + 1, &x, LDBL_MANT_DIG == 64 ? 10 : sizeof x);
        return poise_buf_append(key, bytes, BYTES);
    }
    put_magnitude(x < 0 ? -x : x, bytes + 1);
    bytes[0] = x < 0 ? NEGATIVE : POSITIVE;
    for (int i = 1; x < 0 && i < BYTES; i++) {
        bytes[i] = (unsigned char)~bytes[i];
    }
    return poise_buf_append(key, bytes, BYTES);
}

/* What strtold makes of a text; *end is how much of it that is. */
static int read_floating(const struct poise_sort_keys *keys,
                         struct keys_span text, long double *x, size_t *end)
{
    size_t len = (size_t)(text.end - text.at);
    char some[128], *copy = some, *at;

    if (len >= sizeof some) {
        copy = poise_alloc(len + 1, 1);
        if (!copy) {
            return -ENOMEM;
        }
    }
    memcpy(copy, text.at, len);
    copy[len] = '\0';
    *x = keys->locale ? strtold_l(copy, &at, keys->locale) : strtold(copy, &at);
    *end = (size_t)(at - copy);
    if (copy != some) {
        free(copy);
    }
    return 0;
}

int keys_put_general(const struct poise_sort_keys *keys, struct keys_span text,
                     struct poise_buf *key)
{
    long double x;
    size_t end;
    int code = read_floating(keys, text, &x, &end);

    if (code < 0) {
        return code;
    }
    return end == 0 ? poise_buf_putc(key, 0) : put_floating(x, key);
}

const unsigned char *keys_general_end(const struct poise_sort_keys *keys,
                                      struct keys_span text)
{
    long double x;
    size_t end = 0;

    return read_floating(keys, text, &x, &end) < 0 ? text.at : text.at + end;
}

/* ---- months ------------------------------------------------------------- */

/* The number of a month, from 1 on, and where its name ends; 0: it is none. */
static int month_of(const struct poise_sort_keys *keys, struct keys_span text,
                    const unsigned char **end)
{
    *end = text.at;
    for (int i = 0; i < KEYS_MONTHS; i++) {
        const char *name = keys->months[i];
        const unsigned char *at = text.at;

        while (*name && at < text.end &&
               keys->upper[*at] == (unsigned char)*name) {
            at++;
            name++;
        }
        if (!*name) {
            *end = at;
            return i + 1;
        }
    }
    return 0;
}

int keys_put_month(const struct poise_sort_keys *keys, struct keys_span text,
                   struct poise_buf *key)
{
    const unsigned char *end;

    text = keys_trim(keys, text);
    return poise_buf_putc(key, (char)month_of(keys, text, &end));
}

const unsigned char *keys_month_end(const struct poise_sort_keys *keys,
                                    struct keys_span text)
{
    const unsigned char *end;

    month_of(keys, text, &end);
    return end;
}
