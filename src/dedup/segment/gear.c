/*
 * Gear hashes of 16 bits: h(i) = 2 h(i - 1) + g(data[i]). What a byte counts
 * has left after 16 more, so that a hash is a function of the last 16 bytes
 * and can be made for many positions at once (gear_simd.c).
 *
 * g is made of two tables of 16 entries, one for each half of the byte, which
 * fit the byte shuffles of every vector unit; all the code there is, plain or
 * not, cuts at the same places.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* poise_hash_u64(16 * table + i + 1) >> 48. */
const uint16_t dedup_gear_nibbles[2][16] = {
    {0x5692, 0xdbd2, 0x1e53, 0xb7a4, 0xb6bf, 0xd177, 0x12ae, 0xd56b, 0x826c,
     0x075c, 0x3462, 0x37be, 0xdcfa, 0x255c, 0x0392, 0xd984},
    {0x302b, 0xffcb, 0xe34a, 0x0eb9, 0xd633, 0xfd95, 0x378a, 0xd59e, 0xd7a9,
     0xe8a3, 0x3246, 0xdf89, 0x4f7a, 0x0724, 0x540f, 0xadfb},
};

size_t dedup_gear_scan_plain(const unsigned char *data, size_t from, size_t len,
                             uint16_t mask)
{
    unsigned hash = 0;

    for (size_t i = 0; i < DEDUP_GEAR_WINDOW - 1 && from < len; i++) {
        unsigned char byte =
            data[(ptrdiff_t)(from + i) - (DEDUP_GEAR_WINDOW - 1)];
        hash = hash << 1;
        hash += (unsigned)(dedup_gear_nibbles[0][byte & 15] ^
                           dedup_gear_nibbles[1][byte >> 4]);
    }
    for (size_t i = from; i < len; i++) {
        hash = hash << 1;
        hash += (unsigned)(dedup_gear_nibbles[0][data[i] & 15] ^
                           dedup_gear_nibbles[1][data[i] >> 4]);
        if ((hash & mask) == 0) {
            return i;
        }
    }
    return len;
}

/* ---- cuts --------------------------------------------------------------- */

enum {
    /* The lower a bit of the hash, the fewer bytes have a say in it: the
     * lowest that is used depends on six. */
    BITS_MOST = 11,
    SECOND_WINDOW = 32,
};

void dedup_gear_init(struct dedup_gear *gear,
                     const struct poise_dedup_cut_options *options)
{
    unsigned bits = dedup_log2(options->average);
    unsigned first = bits < BITS_MOST ? bits : BITS_MOST;

    gear->scan = dedup_gear_simd();
    gear->scan = gear->scan ? gear->scan : dedup_gear_scan_plain;
    gear->min = options->min;
    gear->max = options->max;
    gear->mask = (uint16_t)(0xffffU << (16 - first));
    gear->second = (UINT64_C(1) << (bits - first)) - 1;
}

bool dedup_gear_second(const unsigned char *data, uint64_t mask)
{
    return (poise_hash_bytes(data - SECOND_WINDOW, SECOND_WINDOW, 0) & mask) ==
           0;
}

int dedup_gear_next(const struct dedup_gear *gear, const unsigned char *data,
                    size_t len, bool final, struct poise_dedup_cut *out)
{
    size_t most = len < gear->max ? len : gear->max;
    size_t at = gear->min - 1;

    out->kind = POISE_DEDUP_SEGMENT;
    while (at < most) {
        at = gear->scan(data, at, most, gear->mask) + 1;
        if (at <= most &&
            (gear->second == 0 || dedup_gear_second(data + at, gear->second))) {
            out->len = at;
            return 1;
        }
    }
    if (len >= gear->max || final) {
        out->len = most;
        return 1;
    }
    return 0;
}

/* ---- the method --------------------------------------------------------- */

static int gear_create(const struct poise_dedup_cut_options *options,
                       void **state)
{
    struct poise_dedup_cut_options all =
        dedup_cut_defaults(options, DEDUP_GEAR_WINDOW);
    struct dedup_gear *gear = poise_alloc(1, sizeof *gear);

    if (!gear) {
        return -ENOMEM;
    }
    dedup_gear_init(gear, &all);
    *state = gear;
    return 0;
}

static int gear_next(void *state, const unsigned char *data, size_t len,
                     bool final, struct poise_dedup_cut *out)
{
    return dedup_gear_next(state, data, len, final, out);
}

const struct poise_dedup_method dedup_gear = {
    .version = POISE_DEDUP_METHOD_VERSION,
    .name = "gear",
    .summary = "cut where a gear hash of 16 bytes says so, fast",
    .create = gear_create,
    .destroy = free,
    .next = gear_next,
};

/* A caller that samples the data uses the method that was chosen instead of
 * this one. */
const struct poise_dedup_method dedup_auto = {
    .version = POISE_DEDUP_METHOD_VERSION,
    .name = "auto",
    .summary = "chosen by a sample of the data; without one, as gear",
    .create = gear_create,
    .destroy = free,
    .next = gear_next,
};
