/* The segmenter of float arrays, and segmenters in words. */
#include "data.h"
#include "dedup/segment/internal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct cuts {
    struct poise_dedup_joiner joiner;
    struct poise_buf joined;
    uint64_t shape;          /* hash over kind and place of all pieces */
    uint64_t element, line;  /* nothing is cut within, or goes over */
    uint64_t *known, *bytes; /* hashes of segments and their lengths */
    size_t count;
};

enum { SEGMENTS_MOST = 1 << 16 };

static int collect(const struct poise_dedup_piece *piece, void *arg)
{
    struct cuts *cuts = arg;
    uint64_t facts[3] = {piece->kind, piece->len, piece->place.x};
    uint64_t at = piece->place.x;

    cuts->shape = poise_hash_bytes(facts, sizeof facts, cuts->shape);
    assert_true(at % cuts->element == 0);
    if (piece->kind == POISE_DEDUP_SEGMENT && cuts->line) {
        assert_true(at / cuts->line == (at + piece->len - 1) / cuts->line);
    }
    if (cuts->known) {
        assert_true(cuts->count < SEGMENTS_MOST);
        cuts->bytes[cuts->count] = piece->len;
        cuts->known[cuts->count++] =
            poise_hash_bytes(piece->data, piece->len, 0);
    }
    return poise_dedup_join(&cuts->joiner, piece, &cuts->joined);
}

static void cut(const struct poise_dedup_cut_options *options,
                const unsigned char *data, size_t len, uint64_t feeds,
                struct cuts *cuts)
{
    struct poise_dedup_segmenter *segmenter;
    struct poise_rng rng;

    poise_rng_seed(&rng, feeds);
    assert_int_equal(poise_dedup_segmenter_create(&dedup_floats, options,
                                                  collect, cuts, &segmenter),
                     0);
    for (size_t at = 0; at < len;) {
        size_t n = feeds ? 1 + poise_rng_below(&rng, 40000) : len;
        n = n < len - at ? n : len - at;
        assert_int_equal(poise_dedup_segmenter_feed(segmenter, data + at, n),
                         0);
        at += n;
    }
    assert_int_equal(poise_dedup_segmenter_flush(segmenter), 0);
    poise_dedup_segmenter_destroy(segmenter);
}

/* Whatever the shape and the data, all comes out, no element is cut apart, no
 * segment goes over the end of a row that is as long as one. */
static void test_round_trip(void **state)
{
    struct poise_rng rng;

    (void)state;
    poise_rng_seed(&rng, 17);
    for (int round = 0; round < 60; round++) {
        struct poise_dedup_cut_options options = {
            .average = 8U << poise_rng_below(&rng, 9),
            .element = poise_rng_below(&rng, 2) ? 4 : 8,
        };
        struct cuts whole = {.element = options.element}, parts;
        size_t len = poise_rng_below(&rng, 200000);
        unsigned char *data = data_make(
            len, (enum dedup_data)poise_rng_below(&rng, DATA_KINDS), 3);
        size_t dimensions = poise_rng_below(&rng, POISE_DEDUP_DIMENSIONS + 1);

        for (size_t i = 0; i < dimensions; i++) {
            options.shape[i] = 1 + (uint32_t)poise_rng_below(&rng, 900);
        }
        if (dimensions > 0) {
            uint64_t row = options.shape[dimensions - 1] * options.element;
            whole.line = row >= options.average ? row : 0;
        }
        parts = whole;
        cut(&options, data, len, 0, &whole);
        cut(&options, data, len, 1 + (uint64_t)round, &parts);
        assert_int_equal(whole.joined.len, len);
        assert_int_equal(parts.joined.len, len);
        if (len > 0) {
            assert_memory_equal(whole.joined.data, data, len);
            assert_memory_equal(parts.joined.data, data, len);
        }
        assert_true(whole.shape == parts.shape);
        poise_buf_free(&whole.joined);
        poise_buf_free(&parts.joined);
        free(data);
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static struct cuts cut_all(const struct poise_dedup_cut_options *options,
                           const unsigned char *data, size_t len)
{
    struct cuts cuts = {
        .element = options->element,
        .known = malloc(SEGMENTS_MOST * sizeof(uint64_t)),
        .bytes = malloc(SEGMENTS_MOST * sizeof(uint64_t)),
    };

    assert_non_null(cuts.known);
    assert_non_null(cuts.bytes);
    cut(options, data, len, 0, &cuts);
    return cuts;
}

static void cuts_free(struct cuts *cuts)
{
    poise_buf_free(&cuts->joined);
    free(cuts->known);
    free(cuts->bytes);
}

/* Bytes of segments of the second that the first has not. */
static uint64_t fresh(const struct poise_dedup_cut_options *options,
                      const unsigned char *before, const unsigned char *after,
                      size_t len)
{
    struct cuts first = cut_all(options, before, len);
    struct cuts second = cut_all(options, after, len);
    uint64_t bytes = 0;

    qsort(first.known, first.count, sizeof *first.known, compare);
    for (size_t i = 0; i < second.count; i++) {
        if (!bsearch(&second.known[i], first.known, first.count,
                     sizeof *first.known, compare)) {
            bytes += second.bytes[i];
        }
    }
    cuts_free(&first);
    cuts_free(&second);
    return bytes;
}

/* A block of 6 x 40 x 50 x 60 elements out of a larger one. */
enum { STEPS = 6, PLANES = 20, ROWS = 30, COLUMNS = 200, MARGIN = 8 };

static size_t take_block(const unsigned char *field, size_t element,
                         const size_t from[4], unsigned char *to)
{
    size_t row = COLUMNS * element, wide = (COLUMNS + MARGIN) * element;
    size_t len = 0;

    for (size_t t = 0; t < STEPS; t++) {
        for (size_t z = 0; z < PLANES; z++) {
            for (size_t y = 0; y < ROWS; y++, len += row) {
                size_t at = (t + from[0]) * (PLANES + MARGIN) + z + from[1];
                at = (at * (ROWS + MARGIN) + y + from[2]) * wide;
                memcpy(to + len, field + at + from[3] * element, row);
            }
        }
    }
    return len;
}

/* What moved by steps, planes, rows or columns is found but for its edge. */
static void test_moved(void **state)
{
    enum {
        CELLS = (STEPS + MARGIN) * (PLANES + MARGIN) * (ROWS + MARGIN) *
                (COLUMNS + MARGIN),
        BLOCK = STEPS * PLANES * ROWS * COLUMNS,
    };
    static const size_t moves[][4] = {
        {1}, {0, 2}, {0, 0, 3}, {0, 0, 0, 5}, {1, 1, 1, 1}};
    /* Shares of the block that are new, and for its columns of segments that
     * have another beginning or end. */
    static const double shares[] = {1. / 6, 2. / 20, 3. / 30, .5, .8};

    (void)state;
    for (uint32_t element = 4; element <= 8; element += 4) {
        unsigned char *field =
            data_make((size_t)CELLS * element, DATA_RANDOM, 5);
        unsigned char *before = malloc((size_t)BLOCK * element);
        unsigned char *after = malloc((size_t)BLOCK * element);
        struct poise_dedup_cut_options options = {
            .average = 32 * element,
            .element = element,
            .shape = {PLANES, ROWS, COLUMNS},
        };

        assert_non_null(before);
        assert_non_null(after);
        for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
            size_t len =
                take_block(field, element, (const size_t[4]){0}, before);
            take_block(field, element, moves[i], after);
            uint64_t bytes = fresh(&options, before, after, len);
            assert_true((double)bytes <= shares[i] * (double)len + .5);
            assert_true(bytes > 0);
        }
        free(field);
        free(before);
        free(after);
    }
}

/* A block within the array that changes costs the segments that it touches. */
static void test_changed(void **state)
{
    enum { ROW = 512, LEN = 256 * ROW * 4 };
    struct poise_dedup_cut_options options = {
        .average = 256, .element = 4, .shape = {256, ROW}};
    unsigned char *before = data_make(LEN, DATA_RANDOM, 6);
    unsigned char *after = data_make(LEN, DATA_RANDOM, 6);
    uint64_t bytes;

    (void)state;
    for (size_t y = 100; y < 110; y++) {
        for (size_t x = 50 * 4; x < 60 * 4; x++) {
            after[y * ROW * 4 + x] ^= 0x55;
        }
    }
    bytes = fresh(&options, before, after, LEN);
    assert_true(bytes >= 10 * 40);
    assert_true(bytes <= 10 * 2 * 8 * 256);
    free(before);
    free(after);
}

static void test_parse(void **state)
{
    static const char *const wrong[] = {
        "floats,shape=",
        "floats,shape=3x",
        "floats,shape=3x0",
        "floats,shape=1x2x3x4x5x6",
        "floats,element=5",
        "gear,size=4",
        "gear,size=64K",
        "gear,",
        "geer",
        "gear,shape=-3",
        "floats,shape=3y4",
    };
    const struct poise_dedup_method *method = NULL;
    struct poise_dedup_cut_options options = {.average = 7};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(poise_dedup_cut_parse(wrong[i], &method, &options),
                         -EINVAL);
        assert_null(method);
        assert_int_equal(options.average, 7);
    }
    assert_int_equal(poise_dedup_cut_parse("gear", &method, &options), 0);
    assert_ptr_equal(method, &dedup_gear);
    assert_int_equal(options.average, 0);
    assert_int_equal(options.element, 0);
    assert_int_equal(
        poise_dedup_cut_parse("floats,size=1K,shape=200x300x4,element=8",
                              &method, &options),
        0);
    assert_ptr_equal(method, &dedup_floats);
    assert_int_equal(options.average, 1024);
    assert_int_equal(options.element, 8);
    assert_int_equal(options.shape[0], 200);
    assert_int_equal(options.shape[2], 4);
    assert_int_equal(options.shape[3], 0);
    for (uint64_t k = 1;; k++) {
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        int code = poise_dedup_cut_parse("floats", &method, &options);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        if (code == 0) {
            assert_true(k > 1);
            break;
        }
        assert_int_equal(code, -ENOMEM);
    }
    assert_int_equal(options.element, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_moved),
        cmocka_unit_test(test_changed),
        cmocka_unit_test(test_parse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
