/*
 * Radix sort for one type of element: included by radix.c, which defines
 * ELEMENT, KEY(element) and NAME(name). At most 2^32 - 1 elements.
 *
 * Arrays that exceed the cache are parted by their highest bits that differ;
 * within the cache elements are ordered by as many of those as tell most of
 * them apart, last digit first, and the few that are still equal by
 * insertion. Every step is stable.
 */

/** Elements of which two arrays stay in the second cache. */
#define CACHED ((size_t)(1 << 18) / sizeof(ELEMENT))

static void NAME(insert)(ELEMENT *a, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        ELEMENT x = a[i];
        size_t j = i;

        while (j > 0 && KEY(a[j - 1]) > KEY(x)) {
            a[j] = a[j - 1];
            j--;
        }
        a[j] = x;
    }
}

/* Bits that differ; *sorted: nothing is to be done. */
static uint64_t NAME(survey)(const ELEMENT *a, size_t count, bool *sorted)
{
    uint64_t first = KEY(a[0]), differ = 0, descents = 0;

    for (size_t i = 1; i < count; i++) {
        differ |= KEY(a[i]) ^ first;
        descents |= KEY(a[i]) < KEY(a[i - 1]);
    }
    *sorted = descents == 0;
    return differ;
}

/* From `from` to `to` by digit (key >> shift) & (2^bits - 1). `starts` has the
 * first place of each digit, and on return that of the next. */
static void NAME(scatter)(const ELEMENT *from, ELEMENT *to, size_t count,
                          unsigned shift, unsigned bits, uint32_t *starts)
{
    uint64_t mask = (UINT64_C(1) << bits) - 1;

    for (size_t i = 0; i < count; i++) {
        ELEMENT x = from[i];

        to[starts[KEY(x) >> shift & mask]++] = x;
    }
}

static void NAME(add_up)(uint32_t *counts, size_t digits)
{
    uint32_t sum = 0;

    for (size_t d = 0; d < digits; d++) {
        uint32_t n = counts[d];

        counts[d] = sum;
        sum += n;
    }
}

static void NAME(sort)(ELEMENT *a, ELEMENT *b, size_t count, bool into_b);

/* Elements of `a` are ordered by key >> shift: order those that are equal
 * there. */
static void NAME(settle)(ELEMENT *a, ELEMENT *b, size_t count, unsigned shift)
{
    size_t i = 0;

    while (i + 1 < count) {
        size_t end = i + 1;

        while (end < count && KEY(a[end]) >> shift == KEY(a[i]) >> shift) {
            end++;
        }
        if (end - i > 24) {
            NAME(sort)(a + i, b + i, end - i, false);
        } else if (end - i > 1) {
            NAME(insert)(a + i, end - i);
        }
        i = end;
    }
}

/* Two digits, last one first: from `a` to `b` and back. */
static void NAME(by_digits)(ELEMENT *a, ELEMENT *b, size_t count, unsigned top)
{
    enum { MOST = 11 };
    unsigned size = 64 - (unsigned)__builtin_clzll(count);
    unsigned wanted = top < size + 5 ? top : size + 5;
    unsigned high = (wanted + 1) / 2 < MOST ? (wanted + 1) / 2 : MOST;
    unsigned low = wanted - high < MOST ? wanted - high : MOST;
    unsigned shift = top - high - low;
    uint32_t counts[2][1 << MOST];

    memset(counts[0], 0, sizeof(uint32_t) << low);
    memset(counts[1], 0, sizeof(uint32_t) << high);
    for (size_t i = 0; i < count; i++) {
        uint64_t key = KEY(a[i]) >> shift;

        counts[0][key & ((1u << low) - 1)]++;
        counts[1][key >> low & ((1u << high) - 1)]++;
    }
    NAME(add_up)(counts[0], (size_t)1 << low);
    NAME(add_up)(counts[1], (size_t)1 << high);
    NAME(scatter)(a, b, count, shift, low, counts[0]);
    NAME(scatter)(b, a, count, shift + low, high, counts[1]);
    if (shift > 0) {
        NAME(settle)(a, b, count, shift);
    }
}

/* Part `a` by its highest bits into `b`, then sort each part. */
static void NAME(by_parts)(ELEMENT *a, ELEMENT *b, size_t count, unsigned top,
                           bool into_b)
{
    enum { LEAST = 6, MOST = 10 };
    unsigned size = 64 - (unsigned)__builtin_clzll(count / CACHED);
    unsigned bits = size + 1 < LEAST ? LEAST : size + 1;
    unsigned shift;
    uint32_t ends[1 << MOST];
    uint32_t at = 0;

    bits = bits > MOST ? MOST : bits;
    bits = bits > top ? top : bits;
    shift = top - bits;
    memset(ends, 0, sizeof(uint32_t) << bits);
    for (size_t i = 0; i < count; i++) {
        ends[KEY(a[i]) >> shift & ((1u << bits) - 1)]++;
    }
    NAME(add_up)(ends, (size_t)1 << bits);
    NAME(scatter)(a, b, count, shift, bits, ends);
    for (size_t d = 0; d < (size_t)1 << bits; d++) {
        if (ends[d] > at) {
            NAME(sort)(b + at, a + at, ends[d] - at, !into_b);
        }
        at = ends[d];
    }
}

static void NAME(sort)(ELEMENT *a, ELEMENT *b, size_t count, bool into_b)
{
    uint64_t differ;
    unsigned top;
    bool sorted;

    if (count <= 24) {
        NAME(insert)(a, count);
        sorted = true;
    } else {
        differ = NAME(survey)(a, count, &sorted);
        top = differ ? 64 - (unsigned)__builtin_clzll(differ) : 0;
        if (!sorted && count > CACHED) {
            NAME(by_parts)(a, b, count, top, into_b);
            return;
        }
        if (!sorted) {
            NAME(by_digits)(a, b, count, top);
        }
    }
    if (into_b) {
        memcpy(b, a, count * sizeof *a);
    }
}

#undef CACHED
#undef ELEMENT
#undef KEY
#undef NAME
