/* Numbers sorted by vectors of 512 bits, where the processor has them. */
#include "array.h"

#ifdef __x86_64__
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,popcnt,bmi,bmi2")))
#define VECTORS TARGET __attribute__((always_inline)) static inline

/* So many are sorted in registers: 4, 8 and 16 took the same within what runs
 * of one differ by; more spill. */
enum { MOST_VECTORS = 8 };

/* Lanes of whose number the bit is set. */
static inline unsigned lanes_with(unsigned bit)
{
    return bit == 8   ? 0xff00
           : bit == 4 ? 0xf0f0
           : bit == 2 ? 0xcccc
           : bit == 1 ? 0xaaaa
                      : 0;
}

/* Lanes of a vector of eight, those of a mask first: a byte each. */
#define BELOW(i) ((1 << (i)) - 1)
#define PLACE(low, i)                                                          \
    ((low) >> (i)&1                                                            \
         ? __builtin_popcount((low)&BELOW(i))                                  \
         : __builtin_popcount(low) + __builtin_popcount(~(low)&BELOW(i)))
#define LANE(low, i) (UINT64_C(i) << 8 * PLACE(low, i))
#define ONE(low)                                                               \
    LANE(low, 0) | LANE(low, 1) | LANE(low, 2) | LANE(low, 3) | LANE(low, 4) | \
        LANE(low, 5) | LANE(low, 6) | LANE(low, 7)
#define FOUR(low) ONE(low), ONE((low) + 1), ONE((low) + 2), ONE((low) + 3)
#define SIXTEEN(low)                                                           \
    FOUR(low), FOUR((low) + 4), FOUR((low) + 8), FOUR((low) + 12)
#define SIXTY(low)                                                             \
    SIXTEEN(low), SIXTEEN((low) + 16), SIXTEEN((low) + 32), SIXTEEN((low) + 48)
static const uint64_t apart[256] = {SIXTY(0), SIXTY(64), SIXTY(128),
                                    SIXTY(192)};

#define WORD uint32_t
#define LANES 16
#define MASK __mmask16
#define NUMBERS                                                                \
    _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define SPREAD(x) _mm512_set1_epi32((int)(x))
#define PERMUTE _mm512_permutexvar_epi32
#define MIN _mm512_min_epu32
#define MAX _mm512_max_epu32
#define MAX_WHERE _mm512_mask_max_epu32
#define LOAD _mm512_mask_loadu_epi32
#define STORE _mm512_mask_storeu_epi32
#define APART(low, lows, v)                                                    \
    _mm512_mask_expand_epi32(_mm512_maskz_compress_epi32(low, v),              \
                             (MASK)(0xffffu << (lows)),                        \
                             _mm512_maskz_compress_epi32((MASK) ~(low), v))
#define IS_LOW _mm512_cmple_epu32_mask
#define NAME(name) name##_32
#include "vector.h"

#define WORD uint64_t
#define LANES 8
#define MASK __mmask8
#define NUMBERS _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7)
#define SPREAD(x) _mm512_set1_epi64((long long)(x))
#define PERMUTE _mm512_permutexvar_epi64
#define MIN _mm512_min_epu64
#define MAX _mm512_max_epu64
#define MAX_WHERE _mm512_mask_max_epu64
#define LOAD _mm512_mask_loadu_epi64
#define STORE _mm512_mask_storeu_epi64
#define APART(low, lows, v)                                                    \
    PERMUTE(                                                                   \
        _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)&apart[low])),   \
        v)
#define IS_LOW _mm512_cmple_epu64_mask
#define NAME(name) name##_64
#include "vector.h"

bool extmem_vector_32(uint32_t *from, uint32_t *to, size_t count)
{
    bool has = __builtin_cpu_supports("avx512f");

    if (has) {
        quicksort_32(from, to, count);
    }
    return has;
}

bool extmem_vector_64(uint64_t *from, uint64_t *to, size_t count)
{
    bool has = __builtin_cpu_supports("avx512f");

    if (has) {
        quicksort_64(from, to, count);
    }
    return has;
}

#else

bool extmem_vector_32(uint32_t *from, uint32_t *to, size_t count)
{
    (void)from, (void)to, (void)count;
    return false;
}

bool extmem_vector_64(uint64_t *from, uint64_t *to, size_t count)
{
    (void)from, (void)to, (void)count;
    return false;
}

#endif
