/*
 * Fingerprints of all windows of a row: polynomials modulo 2^32,
 * after Karp and Rabin, down by rolling and across by doubling: a sum over n
 * columns, and the one n columns further on, make one over 2 n. Eight at a time
 * where the processor can.
 *
 * Source: thesis 8.5.3.7.
 */
#include "internal.h"

#include <poise/grid.h>

#include <string.h>

/* Odd multipliers: of the golden ratio, and primes of xxHash. */
#define ACROSS 0x9e3779b1u
#define DOWN 0x85ebca77u
#define MIX 0xc2b2ae3du

enum { LANES = 8 };
typedef uint32_t lanes __attribute__((vector_size(LANES * sizeof(uint32_t))));

#define LOAD(from)                                                             \
    (__extension__({                                                           \
        lanes lanes_;                                                          \
        memcpy(&lanes_, (from), sizeof lanes_);                                \
        lanes_;                                                                \
    }))

static inline uint32_t window_power(uint32_t base, unsigned exponent)
{
    uint32_t result = 1;
    while (exponent-- > 0) {
        result *= base;
    }
    return result;
}

/* The same code with and without AVX2. */
static inline __attribute__((always_inline)) void
window_roll_down(uint32_t *sums, const uint32_t *row, const uint32_t *gone,
                 size_t count)
{
    const uint32_t last = window_power(DOWN, POISE_DEDUP_WINDOW_HIGH);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        lanes sum = LOAD(sums + i) * DOWN + LOAD(row + i);
        if (gone) {
            sum -= LOAD(gone + i) * last;
        }
        memcpy(sums + i, &sum, sizeof sum);
    }
    for (; i < count; i++) {
        sums[i] = sums[i] * DOWN + row[i] - (gone ? gone[i] * last : 0);
    }
}

static inline __attribute__((always_inline)) void
window_sum_across(uint32_t *line, const uint32_t *from, size_t count,
                  unsigned n, uint32_t shift, uint32_t mix)
{
    size_t i = 0;
    for (; i + LANES + n <= count; i += LANES) {
        lanes sum = (LOAD(from + i) * shift + LOAD(from + i + n)) * mix;
        memcpy(line + i, &sum, sizeof sum);
    }
    for (; i + n < count; i++) {
        line[i] = (from[i] * shift + from[i + n]) * mix;
    }
}

static inline __attribute__((always_inline)) size_t
window_choose(uint32_t *line, const uint32_t *sums, size_t count,
              uint32_t *chosen)
{
    const unsigned shift = 32 - POISE_DEDUP_WINDOW_BITS;
    size_t found = 0, end = count - POISE_DEDUP_WINDOW_WIDE + 1, i = 0;
    window_sum_across(line, sums, count, 1, ACROSS, 1);
    window_sum_across(line, line, count - 1, 2, window_power(ACROSS, 2), 1);
    window_sum_across(line, line, count - 3, 4, window_power(ACROSS, 4), 1);
    window_sum_across(line, line, count - 7, 8, window_power(ACROSS, 8), MIX);
    for (; i + LANES <= end; i += LANES) {
        lanes is = (lanes)(LOAD(line + i) >> shift == 0);
        uint64_t any[LANES / 2];
        memcpy(any, &is, sizeof any);
        if ((any[0] | any[1] | any[2] | any[3]) == 0) {
            continue;
        }
        for (size_t k = i; k < i + LANES; k++) {
            chosen[found] = (uint32_t)k;
            found += line[k] >> shift == 0;
        }
    }
    for (; i < end; i++) {
        chosen[found] = (uint32_t)i;
        found += line[i] >> shift == 0;
    }
    return found;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void
window_roll_down_avx2(uint32_t *sums, const uint32_t *row, const uint32_t *gone,
                      size_t count)
{
    window_roll_down(sums, row, gone, count);
}
__attribute__((target("avx2"))) static size_t
window_choose_avx2(uint32_t *line, const uint32_t *sums, size_t count,
                   uint32_t *chosen)
{
    return window_choose(line, sums, count, chosen);
}
#define HAS_AVX2 __builtin_cpu_supports("avx2")
#else
#define window_roll_down_avx2 window_roll_down
#define window_choose_avx2 window_choose
#define HAS_AVX2 0
#endif

void poise_dedup_window_roll(uint32_t *sums, const uint32_t *row,
                             const uint32_t *gone, size_t count)
{
    if (HAS_AVX2) {
        window_roll_down_avx2(sums, row, gone, count);
    } else {
        window_roll_down(sums, row, gone, count);
    }
}

size_t poise_dedup_window_choose(uint32_t *fingerprints, const uint32_t *sums,
                                 size_t count, uint32_t *chosen)
{
    if (count < POISE_DEDUP_WINDOW_WIDE) {
        return 0;
    }
    return HAS_AVX2 ? window_choose_avx2(fingerprints, sums, count, chosen)
                    : window_choose(fingerprints, sums, count, chosen);
}
