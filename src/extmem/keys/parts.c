/*
 * Keys of records: fields at fixed places, numbers or bytes, each turned into
 * bytes that memcmp orders, of the same length in all records.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int poise_sort_keys_of_parts(const struct poise_sort_part *parts, size_t count,
                             struct poise_sort_keys **out)
{
    struct poise_sort_keys *keys = poise_alloc(1, sizeof *keys);

    if (!keys) {
        return -ENOMEM;
    }
    keys->parts = poise_alloc(count, sizeof *keys->parts);
    if (!keys->parts) {
        free(keys);
        return -ENOMEM;
    }
    memcpy(keys->parts, parts, count * sizeof *parts);
    keys->part_count = count;
    *out = keys;
    return 0;
}

/* An unsigned number of the same order, its first byte the highest. */
static uint64_t number_at(const struct poise_sort_part *part,
                          const unsigned char *at)
{
    uint64_t top = UINT64_C(1) << (8 * part->bytes - 1), x = 0;
    uint32_t small;

    if (part->bytes == 4) {
        memcpy(&small, at, sizeof small);
        x = small;
    } else {
        memcpy(&x, at, sizeof x);
    }
    if (part->kind == POISE_SORT_PART_SIGNED ||
        (part->kind == POISE_SORT_PART_FLOATING && !(x & top))) {
        x ^= top;
    } else if (part->kind == POISE_SORT_PART_FLOATING) {
        x = ~x;
    }
    return __builtin_bswap64(x) >> (64 - 8 * part->bytes);
}

int keys_put_parts(const struct poise_sort_keys *keys,
                   const unsigned char *record, struct poise_buf *key)
{
    for (size_t i = 0; i < keys->part_count; i++) {
        const struct poise_sort_part *part = &keys->parts[i];
        size_t from = key->len;

        if (part->kind == POISE_SORT_PART_BYTES) {
            poise_buf_append(key, record + part->offset, part->bytes);
        } else {
            uint64_t number = number_at(part, record + part->offset);

            poise_buf_append(key, &number, part->bytes);
        }
        for (; part->reverse && from < key->len; from++) {
            key->data[from] = (char)~key->data[from];
        }
    }
    return key->error;
}

size_t poise_sort_keys_count(const struct poise_sort_keys *keys)
{
    return !keys ? 0 : keys->parts ? keys->part_count : keys->count;
}

const struct poise_sort_part *
poise_sort_keys_part(const struct poise_sort_keys *keys, size_t i)
{
    return keys->parts ? &keys->parts[i] : NULL;
}
