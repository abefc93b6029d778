/*
 * Bitmaps that are nearly empty, on their way between nodes: the distances from
 * one set bit to the next, as numbers of variable length. Bit i of a block is
 * bit i % 8 of its byte i / 8.
 */
#include "internal.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define SPARSE_MOST_A_BIT 10

/* Bits [8 * at, 8 * at + 64) of the block, zeroes behind its end. */
static uint64_t sparse_word(const char *data, size_t bytes, size_t at)
{
    uint64_t word = 0;
    memcpy(&word, data + at, bytes - at < 8 ? bytes - at : 8);
    return le64toh(word);
}

/* Dense ones are found out early: at the latest after `most` bits. */
static size_t sparse_count(const char *data, size_t bytes, size_t most)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes && count <= most; at += 8) {
        count += (size_t)__builtin_popcountll(sparse_word(data, bytes, at));
    }
    return count;
}

static inline char *sparse_put(char *to, uint64_t value)
{
    for (; value >= 128; value >>= 7) {
        *to++ = (char)(value | 128);
    }
    *to++ = (char)value;
    return to;
}

bool coll_sparse_pack(const void *block, size_t bytes, struct poise_buf *out)
{
    const char *data = block;
    size_t most = bytes / COLL_SPARSE_BYTES_A_BIT;
    size_t count = sparse_count(data, bytes, most);
    poise_buf_reset(out);
    if (bytes == 0 || count > most) {
        return false;
    }
    if (count == 0) {
        return true;
    }
    char *to = poise_buf_reserve(out, count * SPARSE_MOST_A_BIT);
    if (!to) {
        return false;
    }
    uint64_t next = 0;
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = sparse_word(data, bytes, at);
        for (; word; word &= word - 1) {
            uint64_t bit = 8 * at + (unsigned)__builtin_ctzll(word);
            to = sparse_put(to, bit - next);
            next = bit + 1;
        }
    }
    out->len = (size_t)(to - out->data);
    return true;
}

int coll_sparse_unpack(const void *packed, size_t len, void *block,
                       size_t bytes)
{
    struct poise_reader reader = poise_reader_of(packed, len);
    uint64_t next = 0, bits = 8 * (uint64_t)bytes;
    unsigned char *data = block;
    memset(data, 0, bytes);
    while (poise_reader_left(&reader) > 0) {
        uint64_t gap = poise_reader_varint(&reader);
        if (reader.error < 0 || gap >= bits - next) {
            return poise_error_set(EPROTO, "read positions of bits", NULL,
                                   "they are cut off, or behind the end");
        }
        next += gap;
        data[next / 8] |= (unsigned char)(1u << (next % 8));
        next++;
    }
    return 0;
}
