/* The inner loops by AVX2: eight vertices at once. */
#include "internal.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,popcnt")))
/** With fewer vertices than this in a word, one at a time is faster. */
#define SIMD_MIN 12

/* Which of eight ids are in the frontier: as sign bits. */
AVX2 static inline __m256i simd_in(const uint64_t *frontier, __m256i ids)
{
    __m256i words = _mm256_i32gather_epi32((const int *)(const void *)frontier,
                                           _mm256_srli_epi32(ids, 5), 4);
    __m256i low = _mm256_and_si256(ids, _mm256_set1_epi32(31));
    __m256i shift = _mm256_sub_epi32(_mm256_set1_epi32(31), low);
    return _mm256_sllv_epi32(words, shift);
}

AVX2 static uint64_t simd_first64(uint64_t todo, const uint32_t *first,
                                  const uint64_t *frontier, uint32_t *parent)
{
    if (__builtin_popcountll(todo) < SIMD_MIN) {
        return bfs_first64_plain(todo, first, frontier, parent);
    }
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    uint64_t found = 0;
    for (unsigned i = 0; i < 64; i += 8) {
        int mask = (int)(todo >> i & 255);
        if (mask == 0) {
            continue;
        }
        __m256i ids = _mm256_loadu_si256((const void *)(first + i));
        __m256i hit = simd_in(frontier, ids);
        if (mask == 255) {
            /* All of them want one; what misses are given does not count. */
            _mm256_storeu_si256((void *)(parent + i), ids);
        } else {
            __m256i wanted = _mm256_and_si256(_mm256_set1_epi32(mask), bits);
            hit = _mm256_and_si256(hit, _mm256_cmpeq_epi32(wanted, bits));
            __m256 old = _mm256_loadu_ps((const void *)(parent + i));
            __m256 new = _mm256_blendv_ps(old, _mm256_castsi256_ps(ids),
                                          _mm256_castsi256_ps(hit));
            _mm256_storeu_ps((void *)(parent + i), new);
        }
        found |=
            (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(hit))
            << i;
    }
    return found;
}

bfs_first64 *bfs_first64_simd(void)
{
    return __builtin_cpu_supports("avx2") ? simd_first64 : NULL;
}

/* Four 32-bit labels as 64-bit ones, those that are NONE as -1; past the
 * caches, since the caller may look at them much later. */
AVX2 static inline void simd_store(int64_t *out, __m128i labels)
{
    __m128i none = _mm_cmpeq_epi32(labels, _mm_set1_epi32(-1));
    _mm_stream_si128((void *)out, _mm_unpacklo_epi32(labels, none));
    _mm_stream_si128((void *)(out + 2), _mm_unpackhi_epi32(labels, none));
}

/* Labels whose parents are fetched ahead of their turn. */
#define SIMD_AHEAD 128

AVX2 static inline void simd_fetch(const struct poise_graph_bfs *bfs,
                                   const uint32_t *ids)
{
    for (unsigned i = 0; i < 8; i++) {
        uint32_t id = ids[i] == POISE_GRAPH_NONE ? 0 : ids[i];
        __builtin_prefetch(&bfs->parents_all[id]);
    }
}

/* Parents of unreached vertices are NONE here. Gathers take signed indices:
 * for graphs of less than 2^31 vertices. */
AVX2 static void simd_labels(const struct poise_graph_bfs *bfs, uint64_t from,
                             uint64_t to, int64_t *parents)
{
    const struct poise_graph *graph = bfs->graph;
    const __m256i all = _mm256_set1_epi32(-1);
    const int *parent = (const void *)bfs->parents_all;
    const int *label_of = (const void *)graph->label_of;
    uint64_t i = from;
    if ((uintptr_t)parents % 16 != 0) {
        bfs_labels_plain(bfs, from, to, parents);
        return;
    }
    for (; i + 8 <= to; i += 8) {
        if (i + SIMD_AHEAD + 8 <= to) {
            simd_fetch(bfs, graph->id_of + i + SIMD_AHEAD);
        }
        __m256i ids = _mm256_loadu_si256((const void *)(graph->id_of + i));
        __m256i some = _mm256_xor_si256(_mm256_cmpeq_epi32(ids, all), all);
        __m256i up = _mm256_mask_i32gather_epi32(all, parent, ids, some, 4);
        some = _mm256_xor_si256(_mm256_cmpeq_epi32(up, all), all);
        __m256i labels =
            _mm256_mask_i32gather_epi32(all, label_of, up, some, 4);
        simd_store(parents + (i - from), _mm256_castsi256_si128(labels));
        simd_store(parents + (i - from) + 4,
                   _mm256_extracti128_si256(labels, 1));
    }
    bfs_labels_plain(bfs, i, to, parents + (i - from));
    _mm_sfence();
}

bfs_labels *bfs_labels_simd(void)
{
    return __builtin_cpu_supports("avx2") ? simd_labels : NULL;
}

#else

bfs_first64 *bfs_first64_simd(void)
{
    return NULL;
}

bfs_labels *bfs_labels_simd(void)
{
    return NULL;
}

#endif
