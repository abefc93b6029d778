/* Kinds of items: their names, their keys, and numbers that compare as
 * unsigned ones. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {
    [POISE_SORT_U32] = "u32",       [POISE_SORT_I32] = "i32",
    [POISE_SORT_U64] = "u64",       [POISE_SORT_I64] = "i64",
    [POISE_SORT_F32] = "f32",       [POISE_SORT_F64] = "f64",
    [POISE_SORT_RECORD] = "record", [POISE_SORT_LINES] = "lines",
};

const char *poise_sort_kind_name(enum poise_sort_kind kind)
{
    return kind_names[kind];
}

/* Bytes of a number; 0 for other kinds. */
static uint32_t number_bytes(enum poise_sort_kind kind)
{
    switch (kind) {
    case POISE_SORT_U32:
    case POISE_SORT_I32:
    case POISE_SORT_F32:
        return 4;
    case POISE_SORT_U64:
    case POISE_SORT_I64:
    case POISE_SORT_F64:
        return 8;
    default:
        return 0;
    }
}

static int parse_kind(const char *text, enum poise_sort_kind *out)
{
    for (int i = 0; i < POISE_SORT_RECORD; i++) {
        if (strcmp(text, kind_names[i]) == 0) {
            *out = (enum poise_sort_kind)i;
            return 0;
        }
    }
    return -EINVAL;
}

/* A whole number and the character behind it. */
static bool parse_part(const char **at, uint32_t *out, char *stop)
{
    char *end;
    unsigned long long n;

    if (**at < '0' || **at > '9') {
        return false;
    }
    errno = 0;
    n = strtoull(*at, &end, 10);
    if (errno != 0 || n > (1u << 30)) {
        return false;
    }
    *out = (uint32_t)n;
    *stop = *end;
    *at = end + (*end != '\0');
    return true;
}

/* "OFFSET,KEYLEN" or "OFFSET:KIND". */
static int parse_key(const char *text, struct poise_sort_type *out)
{
    const char *at = text;
    char stop;

    if (!parse_part(&at, &out->key_offset, &stop)) {
        return -EINVAL;
    }
    if (stop == ':') {
        if (parse_kind(at, &out->key_kind) < 0) {
            return -EINVAL;
        }
        out->key_bytes = number_bytes(out->key_kind);
        return 0;
    }
    out->key_kind = POISE_SORT_RECORD;
    if (stop != ',' || !parse_part(&at, &out->key_bytes, &stop) ||
        stop != '\0') {
        return -EINVAL;
    }
    return 0;
}

/* "LEN" or "LEN,OFFSET,KEYLEN". */
static int parse_record(const char *text, struct poise_sort_type *out)
{
    const char *at = text;
    char stop;

    if (!parse_part(&at, &out->record_bytes, &stop)) {
        return -EINVAL;
    }
    out->key_kind = POISE_SORT_RECORD;
    out->key_bytes = out->record_bytes;
    return stop == '\0' ? 0 : stop == ',' ? parse_key(at, out) : -EINVAL;
}

int sort_type_check(const struct poise_sort_type *type)
{
    if (type->kind != POISE_SORT_RECORD) {
        return 0;
    }
    if (type->keys && type->record_bytes > 0) {
        return 0;
    }
    if (type->record_bytes == 0 || type->key_bytes == 0) {
        return poise_error_set(EINVAL, "sort records", NULL,
                               "the record or its key has no bytes");
    }
    if ((uint64_t)type->key_offset + type->key_bytes > type->record_bytes) {
        return poise_error_set(
            EINVAL, "sort records", NULL,
            "a key at bytes %u to %llu reaches past the end of a record of "
            "%u bytes",
            type->key_offset,
            (unsigned long long)type->key_offset + type->key_bytes - 1,
            type->record_bytes);
    }
    return 0;
}

int poise_sort_type_parse(const char *type, const char *key,
                          struct poise_sort_type *out)
{
    struct poise_sort_type parsed = {0};
    int code;

    if (strncmp(type, "record:", 7) == 0) {
        parsed.kind = POISE_SORT_RECORD;
        code = parse_record(type + 7, &parsed);
    } else if (strcmp(type, "lines") == 0) {
        parsed.kind = POISE_SORT_LINES;
        code = 0;
    } else {
        code = parse_kind(type, &parsed.kind);
    }
    if (code < 0) {
        return poise_error_set(EINVAL, "use type", type,
                               "expected u32, i32, u64, i64, f32, f64, lines, "
                               "record:LEN or record:LEN,OFFSET,KEYLEN");
    }
    if (key && parsed.kind != POISE_SORT_RECORD) {
        return poise_error_set(EINVAL, "use key", key,
                               "only records have keys within them");
    }
    if (key && parse_key(key, &parsed) < 0) {
        return poise_error_set(EINVAL, "use key", key,
                               "expected OFFSET,KEYLEN or OFFSET:KIND with a "
                               "kind of number");
    }
    code = sort_type_check(&parsed);
    if (code == 0) {
        *out = parsed;
    }
    return code;
}

/* ---- records of several keys -------------------------------------------- */

static int part_of(const struct poise_sort_type *type, const char *key,
                   struct poise_sort_part *part)
{
    static const unsigned char kinds[] = {
        [POISE_SORT_U32] = POISE_SORT_PART_UNSIGNED,
        [POISE_SORT_I32] = POISE_SORT_PART_SIGNED,
        [POISE_SORT_F32] = POISE_SORT_PART_FLOATING,
        [POISE_SORT_U64] = POISE_SORT_PART_UNSIGNED,
        [POISE_SORT_I64] = POISE_SORT_PART_SIGNED,
        [POISE_SORT_F64] = POISE_SORT_PART_FLOATING,
        [POISE_SORT_RECORD] = POISE_SORT_PART_BYTES,
    };
    struct poise_sort_type one = *type;
    size_t len = strlen(key);
    char text[64];
    int code;

    *part = (struct poise_sort_part){.reverse = len > 0 && key[len - 1] == 'r'};
    len -= part->reverse;
    snprintf(text, sizeof text, "%.*s", (int)(len < 63 ? len : 63), key);
    if (len > 63 || parse_key(text, &one) < 0) {
        return poise_error_set(EINVAL, "use key", key,
                               "expected OFFSET,KEYLEN or OFFSET:KIND with a "
                               "kind of number, and r behind it for the "
                               "greatest first");
    }
    code = sort_type_check(&one);
    part->offset = one.key_offset;
    part->bytes = one.key_bytes;
    part->kind = kinds[one.key_kind];
    return code;
}

static int read_parts(const struct poise_sort_type *type,
                      const char *const *keys, size_t count,
                      struct poise_sort_part **out)
{
    struct poise_sort_part *parts;
    int code = 0;

    if (type->kind != POISE_SORT_RECORD) {
        return poise_error_set(EINVAL, "use key", count > 0 ? keys[0] : "",
                               "only records have keys within them");
    }
    parts = poise_alloc(count, sizeof *parts);
    if (!parts) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        code = part_of(type, keys[i], &parts[i]);
    }
    if (code < 0) {
        free(parts);
        return code;
    }
    *out = parts;
    return 0;
}

int poise_sort_record_keys(struct poise_sort_type *type,
                           const char *const *keys, size_t count,
                           struct poise_sort_keys **out)
{
    struct poise_sort_part *parts = NULL;
    int code = read_parts(type, keys, count, &parts);

    *out = NULL;
    if (code < 0) {
        return code;
    }
    if (count == 1 && !parts[0].reverse) {
        /* Compared where it lies. */
        code = parse_key(keys[0], type);
    } else {
        code = poise_sort_keys_of_parts(parts, count, out);
        type->keys = *out;
    }
    free(parts);
    return code;
}

int poise_sort_record_sums(const struct poise_sort_type *type,
                           const char *const *fields, size_t count,
                           struct poise_sort_keys **out)
{
    struct poise_sort_part *parts = NULL;
    int code = read_parts(type, fields, count, &parts);

    *out = NULL;
    for (size_t i = 0; i < count && code == 0; i++) {
        if (parts[i].kind == POISE_SORT_PART_BYTES) {
            code = poise_error_set(EINVAL, "add up", fields[i],
                                   "expected OFFSET:KIND with a kind of "
                                   "number");
        }
    }
    if (code == 0) {
        code = poise_sort_keys_of_parts(parts, count, out);
    }
    free(parts);
    return code;
}

enum sort_shape sort_shape_of(const struct poise_sort_type *type)
{
    if (type->kind == POISE_SORT_LINES) {
        return SORT_TEXT;
    }
    if (type->kind == POISE_SORT_RECORD) {
        return SORT_RECORDS;
    }
    return number_bytes(type->kind) == 4 ? SORT_WORDS_32 : SORT_WORDS_64;
}

uint32_t sort_item_bytes(const struct poise_sort_type *type)
{
    if (type->kind == POISE_SORT_LINES) {
        return 1;
    }
    return type->kind == POISE_SORT_RECORD ? type->record_bytes
                                           : number_bytes(type->kind);
}

/* ---- numbers -------------------------------------------------------------
 *
 * Signed ones get their sign bit turned. Of floating ones that are negative
 * all bits are turned: the greater their magnitude the smaller they are.
 */

#define TOP_32 UINT32_C(0x80000000)
#define TOP_64 UINT64_C(0x8000000000000000)

static inline uint32_t float_up_32(uint32_t x)
{
    return x ^ ((uint32_t)((int32_t)x >> 31) | TOP_32);
}

static inline uint32_t float_down_32(uint32_t x)
{
    return x ^ ((uint32_t)((int32_t)~x >> 31) | TOP_32);
}

static inline uint64_t float_up_64(uint64_t x)
{
    return x ^ ((uint64_t)((int64_t)x >> 63) | TOP_64);
}

static inline uint64_t float_down_64(uint64_t x)
{
    return x ^ ((uint64_t)((int64_t)~x >> 63) | TOP_64);
}

#define EACH(from, to, count, x, value)                                        \
    for (size_t i = 0; i < (count); i++) {                                     \
        __typeof__(*(from)) x = (from)[i];                                     \
                                                                               \
        (to)[i] = (value);                                                     \
    }

static void convert_32(enum poise_sort_kind kind, bool up, const uint32_t *from,
                       uint32_t *to, size_t count)
{
    if (kind == POISE_SORT_I32) {
        EACH(from, to, count, x, x ^ TOP_32)
    } else if (kind == POISE_SORT_F32 && up) {
        EACH(from, to, count, x, float_up_32(x))
    } else if (kind == POISE_SORT_F32) {
        EACH(from, to, count, x, float_down_32(x))
    } else if (to != from) {
        memcpy(to, from, count * sizeof *to);
    }
}

static void convert_64(enum poise_sort_kind kind, bool up, const uint64_t *from,
                       uint64_t *to, size_t count)
{
    if (kind == POISE_SORT_I64) {
        EACH(from, to, count, x, x ^ TOP_64)
    } else if (kind == POISE_SORT_F64 && up) {
        EACH(from, to, count, x, float_up_64(x))
    } else if (kind == POISE_SORT_F64) {
        EACH(from, to, count, x, float_down_64(x))
    } else if (to != from) {
        memcpy(to, from, count * sizeof *to);
    }
}

void sort_encode(enum poise_sort_kind kind, const void *from, void *to,
                 size_t count)
{
    if (number_bytes(kind) == 4) {
        convert_32(kind, true, from, to, count);
    } else {
        convert_64(kind, true, from, to, count);
    }
}

void sort_decode(enum poise_sort_kind kind, const void *from, void *to,
                 size_t count)
{
    if (number_bytes(kind) == 4) {
        convert_32(kind, false, from, to, count);
    } else {
        convert_64(kind, false, from, to, count);
    }
}

uint64_t sort_number_at(enum poise_sort_kind kind, const void *at)
{
    if (number_bytes(kind) == 4) {
        uint32_t x;

        memcpy(&x, at, sizeof x);
        convert_32(kind, true, &x, &x, 1);
        return x;
    } else {
        uint64_t x;

        memcpy(&x, at, sizeof x);
        convert_64(kind, true, &x, &x, 1);
        return x;
    }
}

/* ---- keys --------------------------------------------------------------- */

uint64_t sort_window(const unsigned char *at, size_t len)
{
    uint64_t x = 0;

    if (len >= 8) {
        memcpy(&x, at, 8);
        return __builtin_bswap64(x);
    }
    for (size_t i = 0; i < len; i++) {
        x |= (uint64_t)at[i] << (56 - 8 * i);
    }
    return x;
}

/* Its place is never NULL, as that of no number is. */
static struct sort_key made_key(const struct poise_sort_type *type,
                                const unsigned char *line, size_t len,
                                struct poise_buf *room)
{
    struct sort_key key = {0};
    const unsigned char *head;
    size_t head_len;
    int code;

    poise_buf_reset(room);
    poise_buf_reserve(room, 1);
    code = poise_sort_keys_append(type->keys, line, len, room);
    if (code < 0 || room->error) {
        room->error = code < 0 ? code : room->error;
        key.bytes = line;
        return key;
    }
    key.bytes = (const unsigned char *)room->data;
    key.len = (uint32_t)room->len;
    head = poise_sort_keys_head(type->keys, key.bytes, room->len, &head_len);
    key.window = sort_window(head, head_len);
    return key;
}

struct sort_key sort_key_of(const struct poise_sort_type *type,
                            const unsigned char *item, size_t len,
                            struct poise_buf *room)
{
    struct sort_key key = {0};

    if (type->keys) {
        return made_key(type, item, len, room);
    }
    if (type->kind == POISE_SORT_LINES) {
        key.bytes = item;
        key.len = (uint32_t)len;
    } else if (type->kind != POISE_SORT_RECORD) {
        key.window = sort_number_at(type->kind, item);
        if (type->reverse) {
            key.window = number_bytes(type->kind) == 4 ? (uint32_t)~key.window
                                                       : ~key.window;
        }
        return key;
    } else if (type->key_kind != POISE_SORT_RECORD) {
        key.window = sort_number_at(type->key_kind, item + type->key_offset);
        return key;
    } else {
        key.bytes = item + type->key_offset;
        key.len = type->key_bytes;
    }
    key.window = sort_window(key.bytes, key.len);
    return key;
}

int sort_key_compare(const struct poise_sort_keys *keys,
                     const struct sort_key *a, const struct sort_key *b)
{
    if (a->window != b->window) {
        return a->window < b->window ? -1 : 1;
    }
    return a->bytes ? poise_sort_keys_compare(keys, a->bytes, a->len, b->bytes,
                                              b->len)
                    : 0;
}

uint64_t sort_item_hash(const void *item, size_t len)
{
    if (len == 4 || len == 8) {
        uint64_t x = 0;

        memcpy(&x, item, len);
        return poise_hash_u64(x + UINT64_C(0x9e3779b97f4a7c15));
    }
    return poise_hash_bytes(item, len, 0);
}
