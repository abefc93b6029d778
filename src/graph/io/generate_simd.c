/*
 * The Graph500 generator by AVX2: eight edges at once, four in each vector of
 * 64-bit lanes, whose products of 32-bit numbers it needs.
 */
#include "generate.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
enum { SIMD_HALVES = 2 };

/* The numbers of eight edges, the newest first. */
struct simd_state {
    __m256i z[GEN_ORDER][SIMD_HALVES];
};

AVX2 static inline __m256i simd_all(uint64_t x)
{
    return _mm256_set1_epi64x((long long)x);
}

/* x mod 2^31 - 1 for x below 2^62. */
AVX2 static inline __m256i simd_mod(__m256i x)
{
    const __m256i modulus = simd_all(GEN_MODULUS);
    x = _mm256_add_epi64(_mm256_and_si256(x, modulus),
                         _mm256_srli_epi64(x, 31));
    return x;
}

/* The same for x below 2^32, in full: what is left is below the modulus. */
AVX2 static inline __m256i simd_reduce(__m256i x)
{
    return _mm256_min_epu32(x, _mm256_sub_epi32(x, simd_all(GEN_MODULUS)));
}

/* Eight edges on. */
AVX2 static void simd_advance(const struct gen_matrix *matrix,
                              struct simd_state *state)
{
    struct simd_state next;
    for (int i = 0; i < GEN_ORDER; i++) {
        for (int h = 0; h < SIMD_HALVES; h++) {
            __m256i sum = _mm256_setzero_si256();
            for (int k = 0; k < GEN_ORDER; k++) {
                __m256i product =
                    _mm256_mul_epu32(simd_all(matrix->m[i][k]), state->z[k][h]);
                sum = _mm256_add_epi64(sum, simd_mod(product));
            }
            next.z[i][h] = simd_reduce(simd_mod(sum));
        }
    }
    *state = next;
}

/** Four edges in the making, and whether a number must be drawn again. */
struct simd_edges {
    __m256i from, to, again;
};

/* gen_descend for four edges: conditions are -1 or 0 in the low halves. */
AVX2 static inline void simd_descend(struct simd_edges *edges, __m256i draw)
{
    const __m256i shares = simd_all(GEN_SHARES);
    /* By multiplication: floor(draw / 10000). */
    __m256i whole = _mm256_srli_epi64(
        _mm256_mul_epu32(draw, simd_all(UINT64_C(3518437209))), 45);
    __m256i share = _mm256_sub_epi32(draw, _mm256_mul_epu32(whole, shares));
    __m256i above = _mm256_cmpgt_epi32(simd_all(GEN_B), share);
    __m256i below = _mm256_andnot_si256(
        above, _mm256_cmpgt_epi32(simd_all(GEN_B + GEN_C), share));
    __m256i last =
        _mm256_cmpgt_epi32(share, simd_all(GEN_A + GEN_B + GEN_C - 1));
    __m256i flip =
        _mm256_and_si256(below, _mm256_cmpeq_epi32(edges->from, edges->to));
    __m256i from = _mm256_or_si256(last, _mm256_andnot_si256(flip, below));
    __m256i to = _mm256_or_si256(last, _mm256_or_si256(above, flip));
    edges->from =
        _mm256_sub_epi32(_mm256_add_epi32(edges->from, edges->from), from);
    edges->to = _mm256_sub_epi32(_mm256_add_epi32(edges->to, edges->to), to);
    edges->again = _mm256_or_si256(
        edges->again, _mm256_cmpgt_epi32(simd_all(GEN_LEAST), draw));
}

AVX2 static inline __m256i simd_swap(__m256i x, int bits, uint32_t mask)
{
    const __m256i low = _mm256_set1_epi32((int)mask);
    return _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(x, bits), low),
                           _mm256_slli_epi32(_mm256_and_si256(x, low), bits));
}

/* The bits of each of eight numbers in the opposite order. */
AVX2 static inline __m256i simd_reverse(__m256i x)
{
    const __m256i bytes =
        _mm256_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12,
                         3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
    x = _mm256_shuffle_epi8(x, bytes);
    x = simd_swap(x, 4, 0x0f0f0f0fU);
    x = simd_swap(x, 2, 0x33333333U);
    return simd_swap(x, 1, 0x55555555U);
}

AVX2 static inline __m256i simd_scramble(const struct gen *gen, __m256i v)
{
    const __m128i drop = _mm_cvtsi32_si128(32 - (int)gen->scale);
    const uint64_t *s = gen->scramble;
    v = _mm256_add_epi32(v, _mm256_set1_epi32((int)(uint32_t)(s[0] + s[1])));
    v = _mm256_mullo_epi32(
        v, _mm256_set1_epi32((int)(uint32_t)(s[0] | GEN_SCRAMBLE0)));
    v = _mm256_srl_epi32(simd_reverse(v), drop);
    v = _mm256_mullo_epi32(
        v, _mm256_set1_epi32((int)(uint32_t)(s[1] | GEN_SCRAMBLE1)));
    return _mm256_srl_epi32(simd_reverse(v), drop);
}

/* The pairs of eight edges; those of which a number must be drawn again are
 * made one by one. */
AVX2 static void simd_eight(const struct gen *gen, uint64_t index,
                            const struct simd_state *state, __m256i pairs[2])
{
    __m256i z[GEN_ORDER + GEN_MAX_SCALE][SIMD_HALVES];
    struct simd_edges edges[SIMD_HALVES];
    for (int h = 0; h < SIMD_HALVES; h++) {
        edges[h].from = edges[h].to = edges[h].again = _mm256_setzero_si256();
        for (int i = 0; i < GEN_ORDER; i++) {
            z[GEN_ORDER - 1 - i][h] = state->z[i][h];
        }
    }
    for (unsigned level = 0; level < gen->scale; level++) {
        for (int h = 0; h < SIMD_HALVES; h++) {
            __m256i sum = _mm256_add_epi64(
                _mm256_mul_epu32(z[level + 4][h], simd_all(GEN_X)),
                _mm256_mul_epu32(z[level][h], simd_all(GEN_Y)));
            __m256i next = simd_reduce(simd_mod(sum));
            z[level + GEN_ORDER][h] = next;
            simd_descend(&edges[h], next);
        }
    }
    for (int h = 0; h < SIMD_HALVES; h++) {
        pairs[h] =
            _mm256_or_si256(edges[h].from, _mm256_slli_epi64(edges[h].to, 32));
        unsigned again = (unsigned)_mm256_movemask_epi8(edges[h].again);
        uint32_t ends[8];
        if (__builtin_expect(again == 0, 1)) {
            continue;
        }
        _mm256_storeu_si256((void *)ends, pairs[h]);
        for (unsigned i = 0; i < 4; i++) {
            if (again >> (8 * i) & 1) {
                struct gen_edge edge =
                    gen_one(gen->scale, gen_skip(gen, &gen->seed,
                                                 index + 4 * (unsigned)h + i));
                ends[2 * i] = edge.from;
                ends[2 * i + 1] = edge.to;
            }
        }
        pairs[h] = _mm256_loadu_si256((const void *)ends);
    }
}

AVX2 static void simd_range(const struct gen *gen, uint64_t first,
                            uint64_t count, uint32_t *ends)
{
    struct simd_state state;
    uint64_t z[GEN_ORDER][GEN_LANES];
    for (unsigned lane = 0; lane < GEN_LANES; lane++) {
        struct gen_state one = gen_skip(gen, &gen->seed, first + lane);
        for (int i = 0; i < GEN_ORDER; i++) {
            z[i][lane] = one.z[i];
        }
    }
    for (int i = 0; i < GEN_ORDER; i++) {
        for (int h = 0; h < SIMD_HALVES; h++) {
            state.z[i][h] = _mm256_loadu_si256((const void *)&z[i][4 * h]);
        }
    }
    for (uint64_t done = 0; done < count; done += GEN_LANES) {
        __m256i pairs[SIMD_HALVES];
        uint32_t out[2 * GEN_LANES];
        uint64_t left = count - done;
        uint32_t *to = left >= GEN_LANES ? ends + 2 * done : out;
        simd_eight(gen, first + done, &state, pairs);
        for (int h = 0; h < SIMD_HALVES; h++) {
            _mm256_storeu_si256((void *)(to + 8 * h),
                                simd_scramble(gen, pairs[h]));
        }
        if (to == out) {
            memcpy(ends + 2 * done, out, left * 2 * sizeof *out);
        }
        /* A^(8 x 2^64) */
        simd_advance(&gen->power[3], &state);
    }
}

gen_range *gen_range_simd(void)
{
    return __builtin_cpu_supports("avx2") ? simd_range : NULL;
}

#else

gen_range *gen_range_simd(void)
{
    return NULL;
}

#endif
