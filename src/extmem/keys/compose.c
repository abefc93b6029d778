/*
 * The key of a line: its fields found, each turned into bytes, one behind the
 * other, and at last the line itself.
 *
 * Texts end with 00h, and what they have of 00h and 01h is written 01h 01h and
 * * 01h 02h, so that none is the begin of another.
 *
 * In a locale that collates a key is a list of parts, each with two lengths
 * before it: bytes that memcmp orders, and, of texts, the text itself with a
 * NUL behind. The former are the first level of what strxfrm makes of it (up to
 * the first NUL that is in it) and 00h.
 */
#include "internal.h"

#include <poise/csv.h>

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

/* What strxfrm makes of a string, up to what ends a level of it. */
static int put_transformed(const struct poise_sort_keys *keys, const char *text,
                           size_t len, bool first_only, struct poise_buf *key)
{
    enum { LEVEL_END = 1 };
    size_t room = 4 * len + 32, needed;

    for (;;) {
        char *to = poise_buf_reserve(key, room), *end;

        if (!to) {
            return key->error;
        }
        needed = strxfrm_l(to, text, room, keys->locale);
        if (needed < room) {
            end = first_only ? memchr(to, LEVEL_END, needed) : NULL;
            key->len += end ? (size_t)(end - to) : needed;
            return 0;
        }
        room = needed + 1;
    }
}

/* The same of a text that may have NULs; of those it has, only what precedes
 * the first counts for its first level. */
static int put_levels(const struct poise_sort_keys *keys, struct keys_span text,
                      bool first_only, struct poise_buf *key)
{
    size_t len = (size_t)(text.end - text.at);
    char some[512], *copy = some, *at;
    int code = 0;

    if (first_only && keys->weights &&
        keys_put_weights(keys->weights, text.at, len, key)) {
        return poise_buf_putc(key, '\0');
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
    do {
        size_t piece = strlen(at);

        code = put_transformed(keys, at, piece, first_only, key);
        poise_buf_putc(key, '\0');
        at += piece + 1;
    } while (code == 0 && at <= copy + len && !first_only);
    if (copy != some) {
        free(copy);
    }
    return code < 0 ? code : key->error;
}

/* A number drawn for the text, then the text, should two have the same. */
static int put_random(const struct poise_sort_keys *keys, struct keys_span text,
                      struct poise_buf *key)
{
    struct poise_buf own = {0};
    int code = keys->collates ? put_levels(keys, text, false, &own)
                              : put_bytes(text, false, &own);
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
        return keys->collates ? put_levels(keys, text, true, key)
                              : put_bytes(text, is_last, key);
    }
}

static void turn(struct poise_buf *key, size_t from)
{
    for (size_t i = from; i < key->len; i++) {
        key->data[i] = (char)~key->data[i];
    }
}

/* ---- keys of locales ---------------------------------------------------- */

/** Before a part. */
struct head {
    uint32_t bytes; /* that memcmp orders */
    uint32_t text;  /* NO_TEXT, or how long the text is that follows */
};
#define NO_TEXT UINT32_MAX

/* A part: behind its bytes, which are there from `begin` on, its text. */
static int end_part(const struct keys_field *field, struct keys_span text,
                    size_t begin, struct poise_buf *key)
{
    bool is_text = keys_order_of(field) == KEYS_TEXT;
    struct head head = {.bytes = (uint32_t)(key->len - begin - sizeof head),
                        .text =
                            is_text ? (uint32_t)(text.end - text.at) : NO_TEXT};

    if (is_text) {
        poise_buf_append(key, text.at, head.text);
        poise_buf_putc(key, '\0');
    }
    if (key->error) {
        return key->error;
    }
    memcpy(key->data + begin, &head, sizeof head);
    return 0;
}

bool poise_sort_keys_collate(const struct poise_sort_keys *keys)
{
    return keys && keys->collates;
}

const unsigned char *poise_sort_keys_head(const struct poise_sort_keys *keys,
                                          const unsigned char *key, size_t len,
                                          size_t *head_len)
{
    struct head head;

    if (!poise_sort_keys_collate(keys)) {
        *head_len = len;
        return key;
    }
    memcpy(&head, key, sizeof head);
    *head_len = head.bytes;
    return key + sizeof head;
}

static int compare_bytes(const unsigned char *a, size_t a_len,
                         const unsigned char *b, size_t b_len)
{
    size_t least = a_len < b_len ? a_len : b_len;
    int order = least > 0 ? memcmp(a, b, least) : 0;

    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

/* As GNU sort does: what ends at a NUL comes first. */
static int compare_texts(const struct poise_sort_keys *keys,
                         const unsigned char *a, size_t a_len,
                         const unsigned char *b, size_t b_len)
{
    const char *x = (const char *)a, *x_end = x + a_len;
    const char *y = (const char *)b, *y_end = y + b_len;

    if (a_len == 0 || b_len == 0) {
        return (a_len > 0) - (b_len > 0);
    }
    if (a_len == b_len && memcmp(a, b, a_len) == 0) {
        return 0;
    }
    for (;;) {
        int order = strcoll_l(x, y, keys->locale);

        if (order != 0) {
            return order;
        }
        x += strlen(x) + 1;
        y += strlen(y) + 1;
        if (x > x_end || y > y_end) {
            return (y > y_end) - (x > x_end);
        }
    }
}

int poise_sort_keys_compare(const struct poise_sort_keys *keys,
                            const unsigned char *a, size_t a_len,
                            const unsigned char *b, size_t b_len)
{
    const unsigned char *a_end = a + a_len, *b_end = b + b_len;

    if (!poise_sort_keys_collate(keys)) {
        return compare_bytes(a, a_len, b, b_len);
    }
    for (size_t i = 0; a < a_end && b < b_end; i++) {
        bool reverse =
            i < keys->count ? keys->fields[i].reverse : keys->whole_reverse;
        struct head x, y;
        int order;

        memcpy(&x, a, sizeof x);
        memcpy(&y, b, sizeof y);
        a += sizeof x;
        b += sizeof y;
        order = compare_bytes(a, x.bytes, b, y.bytes);
        a += x.bytes;
        b += y.bytes;
        if (order == 0 && x.text != NO_TEXT) {
            order = compare_texts(keys, a, x.text, b, y.text);
            order = reverse ? -order : order;
        }
        if (order != 0) {
            return order;
        }
        a += x.text != NO_TEXT ? x.text + 1 : 0;
        b += y.text != NO_TEXT ? y.text + 1 : 0;
    }
    return 0;
}

/* ---- all ---------------------------------------------------------------- */

/* The text of a field, ordered; at the key's end. */
static int put_part(const struct poise_sort_keys *keys,
                    const struct keys_field *field, struct keys_span text,
                    bool is_last, struct poise_buf *key)
{
    static const struct head none;
    size_t begin = key->len, bytes;
    int code;

    if (keys->collates) {
        poise_buf_append(key, &none, sizeof none);
    }
    bytes = key->len;
    code = put_order(keys, field, text, is_last && !field->reverse, key);
    if (field->reverse) {
        turn(key, bytes);
    }
    return code == 0 && keys->collates ? end_part(field, text, begin, key)
                                       : code;
}

struct keys_span keys_find(const struct poise_sort_keys *keys,
                           const struct keys_field *field,
                           struct keys_span line)
{
    return (struct keys_span){field_begin(keys, field, line),
                              field_end(keys, field, line)};
}

/* A field of CSV: quotes are around it. */
static struct keys_span find_column(const struct poise_sort_keys *keys,
                                    const struct keys_field *field,
                                    struct keys_span line)
{
    size_t i = field->begin_field == KEYS_NO_FIELD ? 0 : field->begin_field;
    size_t from, to;

    poise_csv_field((const char *)line.at, (size_t)(line.end - line.at),
                    (char)keys->separator, i, &from, &to);
    return (struct keys_span){line.at + from, line.at + to};
}

static struct keys_span find_field(const struct poise_sort_keys *keys,
                                   const struct keys_field *field,
                                   struct keys_span line)
{
    struct keys_span text;

    if (keys->csv) {
        return find_column(keys, field, line);
    }
    text = keys_find(keys, field, line);
    text.end = text.end < text.at ? text.at : text.end;
    return text;
}

void poise_sort_keys_span(const struct poise_sort_keys *keys, size_t i,
                          const unsigned char *line, size_t len, size_t *from,
                          size_t *to)
{
    struct keys_span text = find_field(keys, &keys->fields[i],
                                       (struct keys_span){line, line + len});

    *from = (size_t)(text.at - line);
    *to = (size_t)(text.end - line);
}

static int put_field(const struct poise_sort_keys *keys,
                     const struct keys_field *field, struct keys_span line,
                     bool is_last, struct poise_buf *key)
{
    struct keys_span text = find_field(keys, field, line);
    bool quoted = keys->csv && text.at < text.end && *text.at == '"';
    bool filters = field->dictionary || field->printable || field->fold;
    unsigned char some[512], *copy = some;
    int code;

    if (quoted || filters) {
        if ((size_t)(text.end - text.at) > sizeof some) {
            copy = poise_alloc((size_t)(text.end - text.at), 1);
        }
        if (!copy) {
            return -ENOMEM;
        }
        if (quoted) {
            text.end = copy + poise_csv_unquote((const char *)text.at,
                                                (size_t)(text.end - text.at),
                                                (char *)copy);
            text.at = copy;
        }
        if (filters) {
            text.end = copy + filter(keys, field, text, copy);
            text.at = copy;
        }
    }
    code = put_part(keys, field, text, is_last, key);
    if (copy != some) {
        free(copy);
    }
    return code;
}

int poise_sort_keys_append(const struct poise_sort_keys *keys,
                           const unsigned char *line, size_t len,
                           struct poise_buf *key)
{
    const struct keys_field whole = {.reverse = keys->whole_reverse};
    struct keys_span text = {line, line + len};
    int code = 0;

    if (keys->parts) {
        return keys_put_parts(keys, line, key);
    }
    for (size_t i = 0; i < keys->count && code == 0; i++) {
        code = put_field(keys, &keys->fields[i], text,
                         i + 1 == keys->count && !keys->whole, key);
    }
    if (code == 0 && keys->whole) {
        code = put_part(keys, &whole, text, true, key);
    }
    return code < 0 ? code : key->error;
}
