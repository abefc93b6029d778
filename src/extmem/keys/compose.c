/*
 * The key of a line: its fields found, each turned into bytes, one behind the
 * other, and at last the line itself.
 *
 * Texts end with 00h, and what they have of 00h and 01h is written 01h 01h and
 * 01h 02h, so that none is the begin of another. Texts of a locale that
 * collates are what strxfrm makes of them, piece by piece where there are NULs,
 * as GNU sort compares them: 00h 02h stands between pieces, 00h 01h at the end,
 * and an empty text is 00h 00h.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- where fields are --------------------------------------------------- */

/* One field further; with its separator or not. */
static const unsigned char *next_field(const struct poise_sort_keys *keys,
                                       const unsigned char *at,
                                       const unsigned char *end,
                                       bool and_separator)
{
    if (keys->separator != KEYS_NONE) {
        const unsigned char *found =
            at < end ? memchr(at, keys->separator, (size_t)(end - at)) : NULL;

        return found ? found + and_separator : end;
    }
    while (at < end && keys->blank[*at]) {
        at++;
    }
    while (at < end && !keys->blank[*at]) {
        at++;
    }
    return at;
}

static const unsigned char *field_begin(const struct poise_sort_keys *keys,
                                        const struct keys_field *field,
                                        struct keys_span line)
{
    const unsigned char *at = line.at;
    bool any = field->begin_field != KEYS_NO_FIELD;

    for (size_t i = 0; any && i < field->begin_field && at < line.end; i++) {
        at = next_field(keys, at, line.end, true);
    }
    while (field->skip_begin && at < line.end && keys->blank[*at]) {
        at++;
    }
    return field->begin_char < (size_t)(line.end - at) ? at + field->begin_char
                                                       : line.end;
}

static const unsigned char *field_end(const struct poise_sort_keys *keys,
                                      const struct keys_field *field,
                                      struct keys_span line)
{
    const unsigned char *at = line.at;
    size_t fields = field->end_field;

    if (fields == KEYS_NO_FIELD) {
        return line.end;
    }
    fields += field->end_char == 0;
    for (size_t i = 0; i < fields && at < line.end; i++) {
        at = next_field(keys, at, line.end,
                        i + 1 < fields || field->end_char > 0);
    }
    if (field->end_char == 0) {
        return at;
    }
    while (field->skip_end && at < line.end && keys->blank[*at]) {
        at++;
    }
    return field->end_char < (size_t)(line.end - at) ? at + field->end_char
                                                     : line.end;
}

/* ---- texts -------------------------------------------------------------- */

/* Without what the field ignores, and in capitals: into `to`, which has room.
 */
static size_t filter(const struct poise_sort_keys *keys,
                     const struct keys_field *field, struct keys_span text,
                     unsigned char *to)
{
    const bool *ignored = field->dictionary  ? keys->not_dictionary
                          : field->printable ? keys->not_printable
                                             : NULL;
    size_t n = 0;

    for (; text.at < text.end; text.at++) {
        if (!ignored || !ignored[*text.at]) {
            to[n++] = field->fold ? keys->upper[*text.at] : *text.at;
        }
    }
    return n;
}

/* The last of a key needs no end. */
static int put_bytes(struct keys_span text, bool is_last, struct poise_buf *key)
{
    size_t len = (size_t)(text.end - text.at);
    unsigned char *to;

    if (is_last) {
        return poise_buf_append(key, text.at, len);
    }
    to = (unsigned char *)poise_buf_reserve(key, 2 * len + 1);
    if (!to) {
        return key->error;
    }
    for (; text.at < text.end; text.at++) {
        unsigned char c = *text.at;

        *to = c;
        if (__builtin_expect(c <= 1, 0)) {
            *to++ = 1;
            *to = (unsigned char)(c + 1);
        }
        to++;
    }
    *to++ = 0;
    key->len = (size_t)((char *)to - key->data);
    return 0;
}

/* What strxfrm makes of a string. */
static int put_transformed(const struct poise_sort_keys *keys, const char *text,
                           size_t len, struct poise_buf *key)
{
    size_t room = 4 * len + 32, needed;

    for (;;) {
        char *to = poise_buf_reserve(key, room);

        if (!to) {
            return key->error;
        }
        needed = strxfrm_l(to, text, room, keys->locale);
        if (needed < room) {
            key->len += needed;
            return 0;
        }
        room = needed + 1;
    }
}

static int put_collated(const struct poise_sort_keys *keys,
                        struct keys_span text, struct poise_buf *key)
{
    size_t len = (size_t)(text.end - text.at);
    char some[512], *copy = some, *at, *end;
    int code = 0;

    if (len == 0) {
        return poise_buf_append(key, "\0\0", 2);
    }
    if (len >= sizeof some) {
        copy = poise_alloc(len + 1, 1);
        if (!copy) {
            return -ENOMEM;
        }
    }
    memcpy(copy, text.at, len);
    copy[len] = '\0';
    at = copy;
    end = copy + len;
    while (code == 0) {
        size_t piece = strlen(at);

        code = put_transformed(keys, at, piece, key);
        at += piece;
        if (at == end) {
            break;
        }
        poise_buf_append(key, "\0\2", 2);
        at++;
    }
    poise_buf_append(key, "\0\1", 2);
    if (copy != some) {
        free(copy);
    }
    return code < 0 ? code : key->error;
}

static int put_text(const struct poise_sort_keys *keys, struct keys_span text,
                    bool is_last, struct poise_buf *key)
{
    return keys->collates ? put_collated(keys, text, key)
                          : put_bytes(text, is_last, key);
}

/* A number drawn for the text, then the text, should two have the same. */
static int put_random(const struct poise_sort_keys *keys, struct keys_span text,
                      struct poise_buf *key)
{
    struct poise_buf own = {0};
    int code = put_text(keys, text, false, &own);
    uint64_t drawn[2];

    if (code == 0) {
        drawn[0] = poise_hash_bytes(own.data, own.len, keys->seed[0]);
        drawn[1] = poise_hash_bytes(own.data, own.len, keys->seed[1]);
        poise_buf_append(key, drawn, sizeof drawn);
        code = poise_buf_append(key, own.data, own.len);
    }
    poise_buf_free(&own);
    return code;
}

/* ---- fields ------------------------------------------------------------- */

enum keys_order keys_order_of(const struct keys_field *field)
{
    return field->numeric   ? KEYS_NUMERIC
           : field->general ? KEYS_GENERAL
           : field->human   ? KEYS_HUMAN
           : field->month   ? KEYS_MONTH
           : field->random  ? KEYS_RANDOM
           : field->version ? KEYS_VERSION
                            : KEYS_TEXT;
}

static int put_order(const struct poise_sort_keys *keys,
                     const struct keys_field *field, struct keys_span text,
                     bool is_last, struct poise_buf *key)
{
    switch (keys_order_of(field)) {
    case KEYS_NUMERIC:
        return keys_put_number(keys, text, key);
    case KEYS_GENERAL:
        return keys_put_general(keys, text, key);
    case KEYS_HUMAN:
        return keys_put_human(keys, text, key);
    case KEYS_MONTH:
        return keys_put_month(keys, text, key);
    case KEYS_RANDOM:
        return put_random(keys, text, key);
    case KEYS_VERSION:
        return keys_put_version(text, key);
    default:
        return put_text(keys, text, is_last, key);
    }
}

static void turn(struct poise_buf *key, size_t from)
{
    for (size_t i = from; i < key->len; i++) {
        key->data[i] = (char)~key->data[i];
    }
}

static int put_field(const struct poise_sort_keys *keys,
                     const struct keys_field *field, struct keys_span line,
                     bool is_last, struct poise_buf *key)
{
    struct keys_span text = {field_begin(keys, field, line),
                             field_end(keys, field, line)};
    unsigned char some[512], *copy = some;
    size_t begin = key->len;
    int code;

    text.end = text.end < text.at ? text.at : text.end;
    if (field->dictionary || field->printable || field->fold) {
        if ((size_t)(text.end - text.at) > sizeof some) {
            copy = poise_alloc((size_t)(text.end - text.at), 1);
        }
        if (!copy) {
            return -ENOMEM;
        }
        text.end = copy + filter(keys, field, text, copy);
        text.at = copy;
    }
    code = put_order(keys, field, text, is_last && !field->reverse, key);
    if (copy != some) {
        free(copy);
    }
    if (field->reverse) {
        turn(key, begin);
    }
    return code;
}

int poise_sort_keys_append(const struct poise_sort_keys *keys,
                           const unsigned char *line, size_t len,
                           struct poise_buf *key)
{
    struct keys_span text = {line, line + len};
    int code = 0;

    for (size_t i = 0; i < keys->count && code == 0; i++) {
        code = put_field(keys, &keys->fields[i], text,
                         i + 1 == keys->count && !keys->whole, key);
    }
    if (code == 0 && keys->whole) {
        size_t begin = key->len;

        code = put_text(keys, text, !keys->whole_reverse, key);
        if (keys->whole_reverse) {
            turn(key, begin);
        }
    }
    return code < 0 ? code : key->error;
}
