/*
 * Quicksort of numbers by vectors of 512 bits, for one width: included by
 * vector.c, which defines WORD, LANES, NAME(name) and the instructions of that
 * width.
 *
 * Parting goes from one array to the other: the numbers up to the pivot to the
 * begin of the place there, the others to its end. What is left of a few
 * vectors is sorted in registers, by bitonic networks. Source: Blacher, Giesen,
 * Sanders, Wassenberg, "Vectorized and performance-portable Quicksort" (arXiv
 * 2205.05982), with the second array, which is there anyway, in place of its
 * care for what is overwritten.
 */

/* Lanes i and i ^ distance change places unless the lesser one is where bit
 * `distance` of i is that of `run`. */
VECTORS __m512i NAME(exchange)(__m512i v, unsigned distance, unsigned run)
{
    __m512i at = _mm512_xor_si512(NUMBERS, SPREAD((WORD)distance));
    __m512i other = PERMUTE(at, v);
    MASK greater = (MASK)(lanes_with(distance) ^ lanes_with(run));

    return MAX_WHERE(MIN(v, other), greater, v, other);
}

/* Ascending, of a vector that ascends and then descends, or the other way
 * round. */
VECTORS __m512i NAME(merge_lanes)(__m512i v)
{
#pragma GCC unroll 4
    for (unsigned distance = LANES / 2; distance > 0; distance /= 2) {
        v = NAME(exchange)(v, distance, 0);
    }
    return v;
}

VECTORS __m512i NAME(sort_lanes)(__m512i v)
{
    v = NAME(exchange)(v, 1, 2);
    v = NAME(exchange)(v, 2, 4);
    v = NAME(exchange)(v, 1, 4);
#if LANES == 16
    v = NAME(exchange)(v, 4, 8);
    v = NAME(exchange)(v, 2, 8);
    v = NAME(exchange)(v, 1, 8);
#endif
    return NAME(merge_lanes)(v);
}

/* `count` vectors, a power of 2, which ascend and then descend, or the other
 * way round. */
VECTORS void NAME(merge_vectors)(__m512i *v, unsigned count)
{
#pragma GCC unroll 4
    for (unsigned distance = count / 2; distance > 0; distance /= 2) {
#pragma GCC unroll 16
        for (unsigned i = 0; i < count; i++) {
            if ((i & distance) == 0) {
                __m512i a = v[i], b = v[i + distance];

                v[i] = MIN(a, b);
                v[i + distance] = MAX(a, b);
            }
        }
    }
#pragma GCC unroll 16
    for (unsigned i = 0; i < count; i++) {
        v[i] = NAME(merge_lanes)(v[i]);
    }
}

/* Two halves that ascend. */
VECTORS void NAME(merge_halves)(__m512i *v, unsigned count)
{
    const __m512i back = _mm512_xor_si512(NUMBERS, SPREAD(LANES - 1));

#pragma GCC unroll 8
    for (unsigned i = 0; i < count / 2; i++) {
        __m512i a = v[i], b = PERMUTE(back, v[count - 1 - i]);

        v[i] = MIN(a, b);
        v[count - 1 - i] = MAX(a, b);
    }
    NAME(merge_vectors)(v, count / 2);
    NAME(merge_vectors)(v + count / 2, count / 2);
}

/* So many lanes, or all. */
VECTORS MASK NAME(first)(size_t count)
{
    return count < LANES ? (MASK)((1u << count) - 1) : (MASK)-1;
}

/* Fewer numbers than `vectors` have lanes: from `from` to `to`. */
VECTORS void NAME(sort_some)(const WORD *from, WORD *to, size_t count,
                             unsigned vectors)
{
    __m512i v[MOST_VECTORS];

#pragma GCC unroll 16
    for (unsigned i = 0; i < vectors; i++) {
        size_t at = (size_t)i * LANES;
        MASK mask = NAME(first)(at < count ? count - at : 0);

        v[i] = NAME(sort_lanes)(LOAD(SPREAD((WORD)-1), mask, from + at));
    }
#pragma GCC unroll 4
    for (unsigned some = 2; some <= vectors; some *= 2) {
#pragma GCC unroll 8
        for (unsigned i = 0; i < vectors; i += some) {
            NAME(merge_halves)(v + i, some);
        }
    }
#pragma GCC unroll 16
    for (unsigned i = 0; i < vectors; i++) {
        size_t at = (size_t)i * LANES;
        MASK mask = NAME(first)(at < count ? count - at : 0);

        STORE(to + at, mask, v[i]);
    }
}

/* At most MOST_VECTORS of them. */
TARGET static void NAME(sort_few)(const WORD *from, WORD *to, size_t count)
{
    if (count <= LANES) {
        NAME(sort_some)(from, to, count, 1);
    } else if (count <= 2 * LANES) {
        NAME(sort_some)(from, to, count, 2);
    } else if (count <= 4 * LANES) {
        NAME(sort_some)(from, to, count, 4);
    } else {
        NAME(sort_some)(from, to, count, MOST_VECTORS);
    }
}

/* About the median: that of some from all over. */
TARGET static WORD NAME(pivot_of)(const WORD *from, size_t count)
{
    WORD some[4 * LANES];
    size_t looks = count > 64 * LANES ? 4 * LANES : LANES;

    for (size_t i = 0; i < looks; i++) {
        some[i] = from[count / looks * i + count / looks / 2];
    }
    NAME(sort_few)(some, some, looks);
    return some[looks / 2 - 1];
}

/* Numbers of `from` up to `pivot` to the begin of `to`, the others to its end;
 * how many the former are. What is free of `to` is as large as what is left of
 * `from`: whole vectors are stored at both its ends while neither reaches what
 * the other has put. */
TARGET static size_t NAME(part)(const WORD *from, WORD *to, size_t count,
                                WORD pivot)
{
    const __m512i cut = SPREAD(pivot);
    WORD *begin = to, *end = to + count;
    const WORD *last = from + count;

    while (last - from >= 2 * LANES) {
        __m512i v = _mm512_loadu_si512(from);
        MASK low = IS_LOW(v, cut);
        unsigned lows = (unsigned)__builtin_popcount(low);

        v = APART(low, lows, v);
        _mm512_storeu_si512(begin, v);
        _mm512_storeu_si512(end - LANES, v);
        begin += lows;
        end -= LANES - lows;
        from += LANES;
    }
    while (from < last) {
        MASK here = NAME(first)((size_t)(last - from));
        __m512i v = LOAD(cut, here, from);
        MASK low = IS_LOW(v, cut) & here;
        unsigned lows = (unsigned)__builtin_popcount(low);
        unsigned all = (unsigned)__builtin_popcount(here);

        /* What is not there is not low, and so behind it all. */
        v = APART(low, lows, v);
        STORE(begin, NAME(first)(lows), v);
        STORE(end - all, (MASK)(here & ~NAME(first)(lows)), v);
        begin += lows;
        end -= all - lows;
        from += LANES;
    }
    return (size_t)(begin - to);
}

static void NAME(fill)(WORD *to, size_t count, WORD x)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = x;
    }
}

/* Numbers of `a` into `b`, or in place, the other array being lost. After
 * `turns` partings that were not even it is left to the radix sort. */
TARGET static void NAME(sort_parts)(WORD *a, WORD *b, size_t count, bool into_b,
                                    unsigned turns)
{
    while (count > (size_t)MOST_VECTORS * LANES) {
        WORD pivot = NAME(pivot_of)(a, count);
        size_t low = NAME(part)(a, b, count, pivot);

        if (turns-- == 0) {
            NAME(extmem_radix)(b, a, count, !into_b);
            return;
        }
        if (low == count && pivot > 0) {
            /* It is the greatest: it stands behind what is less. */
            low = NAME(part)(b, a, count, pivot - 1);
            NAME(fill)(into_b ? b + low : a + low, count - low, pivot);
            count = low;
            continue;
        }
        if (low == count) {
            NAME(fill)(into_b ? b : a, count, pivot);
            return;
        }
        NAME(sort_parts)(b + low, a + low, count - low, !into_b, turns);
        /* What is left has changed its place. */
        NAME(sort_parts)(b, a, low, !into_b, turns);
        return;
    }
    NAME(sort_few)(a, into_b ? b : a, count);
}

TARGET static void NAME(quicksort)(WORD *from, WORD *to, size_t count)
{
    NAME(sort_parts)
    (from, to, count, true, 2 * (64 - (unsigned)__builtin_clzll(count | 1)));
}

#undef WORD
#undef LANES
#undef MASK
#undef NUMBERS
#undef SPREAD
#undef PERMUTE
#undef MIN
#undef MAX
#undef MAX_WHERE
#undef LOAD
#undef STORE
#undef APART
#undef IS_LOW
#undef NAME
