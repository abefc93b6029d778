/*
 * Gear hashes by AVX2, 32 positions at a time. A hash over n bytes and the one
 * n positions before make the hash over 2 n: four steps lead from what single
 * bytes count to hashes over 16.
 *
 * Positions 0-7 and 16-23 lie in one vector of 16-bit lanes, 8-15 and 24-31 in
 * the other, as unpacking bytes leaves them: the eight positions before those
 * of the second are then in the first already, half by half.
 */
#include "internal.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
enum { BLOCK = 32 };

/* The tables of gear.c as vectors: low and high bytes. */
struct simd_tables {
    __m256i low[2], high[2];
};

AVX2 static inline __m256i both(__m128i half)
{
    return _mm256_broadcastsi128_si256(half);
}

AVX2 static inline struct simd_tables simd_load_tables(void)
{
    struct simd_tables tables;
    const __m128i bytes = _mm_set1_epi16(0xff);

    for (int t = 0; t < 2; t++) {
        const uint16_t *from = dedup_gear_nibbles[t];
        __m128i a = _mm_loadu_si128((const void *)from);
        __m128i b = _mm_loadu_si128((const void *)(from + 8));
        tables.low[t] = both(
            _mm_packus_epi16(_mm_and_si128(a, bytes), _mm_and_si128(b, bytes)));
        tables.high[t] =
            both(_mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8)));
    }
    return tables;
}

/* Hashes of 32 positions. */
struct simd_hashes {
    __m256i first, second;
};

/* What single bytes count. */
AVX2 static inline struct simd_hashes
simd_bytes(const struct simd_tables *tables, const unsigned char *data)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i bytes = _mm256_loadu_si256((const void *)data);
    __m256i a = _mm256_and_si256(bytes, nibble);
    __m256i b = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
    __m256i low = _mm256_xor_si256(_mm256_shuffle_epi8(tables->low[0], a),
                                   _mm256_shuffle_epi8(tables->low[1], b));
    __m256i high = _mm256_xor_si256(_mm256_shuffle_epi8(tables->high[0], a),
                                    _mm256_shuffle_epi8(tables->high[1], b));
    return (struct simd_hashes){_mm256_unpacklo_epi8(low, high),
                                _mm256_unpackhi_epi8(low, high)};
}

/* h + (h, n positions before) * 2^n; `past` are the 32 positions before. */
#define SIMD_STEP(h, past, n)                                                  \
    (__extension__({                                                           \
        __m256i before_ =                                                      \
            _mm256_permute2x128_si256((past).second, (h).second, 0x21);        \
        __m256i a_ =                                                           \
            _mm256_alignr_epi8((h).first, before_, (16 - 2 * (n)) & 15);       \
        __m256i b_ =                                                           \
            _mm256_alignr_epi8((h).second, (h).first, (16 - 2 * (n)) & 15);    \
        if ((n) == 8) {                                                        \
            a_ = before_;                                                      \
            b_ = (h).first;                                                    \
        }                                                                      \
        (struct simd_hashes){                                                  \
            _mm256_add_epi16((h).first, _mm256_slli_epi16(a_, (n))),           \
            _mm256_add_epi16((h).second, _mm256_slli_epi16(b_, (n)))};         \
    }))

/* Hashes over 1, 2, 4 and 8 bytes of the block before. */
struct simd_past {
    struct simd_hashes one, two, four, eight;
};

AVX2 static inline struct simd_hashes
simd_block(const struct simd_tables *tables, const unsigned char *data,
           struct simd_past *past)
{
    struct simd_past now;
    struct simd_hashes sixteen;

    now.one = simd_bytes(tables, data);
    now.two = SIMD_STEP(now.one, past->one, 1);
    now.four = SIMD_STEP(now.two, past->two, 2);
    now.eight = SIMD_STEP(now.four, past->four, 4);
    sixteen = SIMD_STEP(now.eight, past->eight, 8);
    *past = now;
    return sixteen;
}

AVX2 static size_t simd_scan(const unsigned char *data, size_t from, size_t len,
                             uint16_t mask)
{
    const __m256i masks = _mm256_set1_epi16((short)mask);
    const __m256i zero = _mm256_setzero_si256();
    const struct simd_tables tables = simd_load_tables();
    struct simd_past past = {
        {zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};

    if (len < BLOCK || from > len - BLOCK) {
        return dedup_gear_scan_plain(data, from, len, mask);
    }
    /* Only the last bytes of the block before matter, all within the history:
     * what they were hashed with is gone after 16 more. */
    simd_block(&tables, data + from - BLOCK, &past);
    for (; from <= len - BLOCK; from += BLOCK) {
        struct simd_hashes h = simd_block(&tables, data + from, &past);
        __m256i a = _mm256_cmpeq_epi16(_mm256_and_si256(h.first, masks), zero);
        __m256i b = _mm256_cmpeq_epi16(_mm256_and_si256(h.second, masks), zero);
        unsigned found =
            (unsigned)_mm256_movemask_epi8(_mm256_packs_epi16(a, b));
        if (found != 0) {
            return from + (unsigned)__builtin_ctz(found);
        }
    }
    return dedup_gear_scan_plain(data, from, len, mask);
}

dedup_gear_scan *dedup_gear_simd(void)
{
    return __builtin_cpu_supports("avx2") ? simd_scan : NULL;
}

#else

dedup_gear_scan *dedup_gear_simd(void)
{
    return NULL;
}

#endif
