/*
 * Shared inside room dedup/segment.
 *
 * What calls what: segmenter.c (the stream) -> one of the methods (static.c,
 * gear.c, manber.c, spring.c, multi.c, floats.c, over rabin.c and table.c).
 */
#ifndef POISE_DEDUP_SEGMENT_INTERNAL_H
#define POISE_DEDUP_SEGMENT_INTERNAL_H

#include <poise/core.h>

#include "segment.h"

/* ---- methods ------------------------------------------------------------ */

extern const struct poise_dedup_method dedup_overlapping, dedup_manber,
    dedup_spring, dedup_spring_fifo, dedup_multi;

/** The number of bits of which one in `average` values has none set. */
unsigned dedup_log2(uint32_t average);

/* ---- gear.c ------------------------------------------------------------- */

/** Hashes cover this many bytes. */
enum { DEDUP_GEAR_WINDOW = 16 };
/** The first position i >= from with (hash(i) & mask) == 0, where hash(i) is
 * over data[i - 15 .. i]; `len` if there is none. */
typedef size_t dedup_gear_scan(const unsigned char *data, size_t from,
                               size_t len, uint16_t mask);
dedup_gear_scan dedup_gear_scan_plain;
/** The fastest of this machine, or NULL. */
dedup_gear_scan *dedup_gear_simd(void);
/** What a byte counts: nibbles[0][low] ^ nibbles[1][high]. */
extern const uint16_t dedup_gear_nibbles[2][16];

/* How a content-defined method finds its cuts. */
struct dedup_gear {
    dedup_gear_scan *scan;
    uint32_t min, max;
    uint16_t mask;
    uint64_t second; /* further bits, of a hash over 32 bytes */
};
/** An `average` that 16 bits cannot select needs a second hash. */
void dedup_gear_init(struct dedup_gear *gear,
                     const struct poise_dedup_cut_options *options);
/** As `next` of a method. */
int dedup_gear_next(const struct dedup_gear *gear, const unsigned char *data,
                    size_t len, bool final, struct poise_dedup_cut *out);
/** Whether data[-32 .. 0) would end a segment by the second hash. */
bool dedup_gear_second(const unsigned char *data, uint64_t mask);

/* ---- rabin.c ------------------------------------------------------------ */

/** Rabin's fingerprints over a window: polynomials over GF(2) modulo an
 * irreducible one of degree 63. */
struct dedup_rabin {
    uint64_t append[256], drop[256];
    uint32_t window;
};
void dedup_rabin_init(struct dedup_rabin *rabin, uint32_t window);
/** The fingerprint of the window that ends before data[0]. */
uint64_t dedup_rabin_start(const struct dedup_rabin *rabin,
                           const unsigned char *data);
/** Of the window one byte further on: out leaves, in enters. */
static inline uint64_t dedup_rabin_slide(const struct dedup_rabin *rabin,
                                         uint64_t value, unsigned char out,
                                         unsigned char in)
{
    value ^= rabin->drop[out];
    return (value << 8 | in) ^ rabin->append[value >> 55];
}
/** One value in 2^bits is selected (bits from 1): by what all bits of it
 * have a say in. */
static inline bool dedup_rabin_selects(uint64_t value, unsigned bits)
{
    return value * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits) == 0;
}

#endif
