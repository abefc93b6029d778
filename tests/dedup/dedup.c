/* Segmenters, fingerprints and the model. */
#include <poise/dedup.h>
#include <poise/model.h>

#include "data.h"
#include "dedup/segment/internal.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* ---- cutting and joining ------------------------------------------------ */

struct cuts {
    struct poise_dedup_joiner joiner;
    struct poise_buf joined;
    uint64_t shape; /* hash over kind, length and place of all pieces */
    uint64_t pieces;
    bool with_hashes;
    uint64_t *hashes; /* of segments, in order */
    size_t count, cap;
};

static int collect(const struct poise_dedup_piece *piece, void *arg)
{
    struct cuts *cuts = arg;
    uint64_t facts[3] = {piece->kind, piece->len, piece->place.x};

    assert_true(piece->len > 0);
    assert_true(piece->len <= POISE_DEDUP_SEGMENT_MOST);
    if (piece->kind == POISE_DEDUP_FILL) {
        assert_true(piece->period > 0 && piece->period <= piece->len);
        for (size_t i = piece->period; i < piece->len; i++) {
            assert_int_equal(piece->data[i], piece->data[i - piece->period]);
        }
    }
    if (piece->kind == POISE_DEDUP_RANGE) {
        assert_true(piece->range.skip + piece->len <= piece->range.of_len);
        assert_memory_equal(piece->data, piece->range.of + piece->range.skip,
                            piece->len);
    }
    cuts->shape = poise_hash_bytes(facts, sizeof facts, cuts->shape);
    cuts->pieces++;
    if (cuts->with_hashes) {
        if (cuts->count == cuts->cap) {
            cuts->cap = 2 * cuts->cap + 1024;
            cuts->hashes =
                realloc(cuts->hashes, cuts->cap * sizeof *cuts->hashes);
            assert_non_null(cuts->hashes);
        }
        cuts->hashes[cuts->count++] =
            poise_hash_bytes(piece->data, piece->len, 0);
    }
    return poise_dedup_join(&cuts->joiner, piece, &cuts->joined);
}

static struct poise_dedup_cut_stats
cut(const struct poise_dedup_method *method,
    const struct poise_dedup_cut_options *options, const unsigned char *data,
    size_t len, uint64_t feeds, struct cuts *cuts)
{
    struct poise_dedup_segmenter *segmenter;
    struct poise_dedup_cut_stats stats;
    struct poise_rng rng;

    poise_rng_seed(&rng, feeds);
    assert_int_equal(poise_dedup_segmenter_create(method, options, collect,
                                                  cuts, &segmenter),
                     0);
    for (size_t at = 0; at < len;) {
        size_t n = feeds ? 1 + poise_rng_below(&rng, 30000) : len;
        n = n < len - at ? n : len - at;
        assert_int_equal(poise_dedup_segmenter_feed(segmenter, data + at, n),
                         0);
        at += n;
    }
    assert_int_equal(poise_dedup_segmenter_flush(segmenter), 0);
    stats = poise_dedup_segmenter_stats(segmenter);
    poise_dedup_segmenter_destroy(segmenter);
    return stats;
}

/* All that goes in comes out, and the cuts are the same however it comes. */
static void test_round_trip(void **state)
{
    enum { LEN = 300000 };
    static const uint32_t averages[] = {16, 256, 8192};

    (void)state;
    for (size_t m = 0; poise_dedup_methods()[m]; m++) {
        for (size_t a = 0; a < 3 * DATA_KINDS; a++) {
            const struct poise_dedup_method *method = poise_dedup_methods()[m];
            struct poise_dedup_cut_options options = {averages[a % 3]};
            unsigned char *data =
                data_make(LEN, (enum dedup_data)(a / 3), 7 + a);
            struct cuts whole = {0}, parts = {0};
            struct poise_dedup_cut_stats stats =
                cut(method, &options, data, LEN, 0, &whole);
            cut(method, &options, data, LEN, a + 1, &parts);
            assert_int_equal(whole.joined.len, LEN);
            assert_memory_equal(whole.joined.data, data, LEN);
            assert_memory_equal(parts.joined.data, data, LEN);
            assert_true(whole.shape == parts.shape);
            assert_int_equal(stats.bytes, LEN);
            assert_int_equal(stats.pieces, whole.pieces);
            assert_int_equal(stats.segment_bytes + stats.literal_bytes +
                                 stats.fill_bytes,
                             LEN);
            poise_buf_free(&whole.joined);
            poise_buf_free(&parts.joined);
            free(data);
        }
    }
}

/* A stream that is flushed goes on. */
static void test_flush(void **state)
{
    struct poise_dedup_segmenter *segmenter;
    struct cuts cuts = {0};

    (void)state;
    assert_int_equal(poise_dedup_segmenter_create(&dedup_gear, NULL, collect,
                                                  &cuts, &segmenter),
                     0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(poise_dedup_segmenter_feed(segmenter, "word ", 5), 0);
        assert_int_equal(poise_dedup_segmenter_flush(segmenter), 0);
        assert_int_equal(cuts.joined.len, 5 * (i + 1));
    }
    assert_int_equal(cuts.pieces, 100);
    poise_dedup_segmenter_destroy(segmenter);
    poise_buf_free(&cuts.joined);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Pieces of the second that are not in the first. */
static size_t fresh(struct cuts *first, const struct cuts *second)
{
    size_t count = 0;

    qsort(first->hashes, first->count, sizeof *first->hashes, compare);
    for (size_t i = 0; i < second->count; i++) {
        count += !bsearch(&second->hashes[i], first->hashes, first->count,
                          sizeof *first->hashes, compare);
    }
    return count;
}

/* One byte inserted at the start changes at most two segments, and the mean
 * length is near what was asked for. */
static void test_content_defined(void **state)
{
    enum { LEN = 1 << 20 };
    static const struct poise_dedup_method *const methods[] = {&dedup_gear,
                                                               &dedup_lbfs};
    static const uint32_t averages[] = {32, 256, 1024, 8192};

    (void)state;
    for (size_t m = 0; m < 8; m++) {
        struct poise_dedup_cut_options options = {averages[m / 2]};
        unsigned char *data = data_make(LEN, DATA_RANDOM, 3 + m);
        unsigned char *shifted = malloc(LEN + 1);
        struct cuts before = {.with_hashes = true};
        struct cuts after = {.with_hashes = true};
        struct poise_dedup_cut_stats stats;
        double mean;

        assert_non_null(shifted);
        shifted[0] = 'x';
        memcpy(shifted + 1, data, LEN);
        stats = cut(methods[m % 2], &options, data, LEN, 0, &before);
        cut(methods[m % 2], &options, shifted, LEN + 1, 0, &after);
        assert_in_range(fresh(&before, &after), 0, 2);
        mean = (double)stats.segment_bytes / (double)stats.segments;
        assert_true(mean > options.average && mean < 1.4 * options.average);
        assert_true(poise_dedup_coverage(&stats) == 1);
        free(before.hashes);
        free(after.hashes);
        poise_buf_free(&before.joined);
        poise_buf_free(&after.joined);
        free(data);
        free(shifted);
    }
}

/* What follows a shift is found again at any offset. */
static void test_found_again(void **state)
{
    enum { LEN = 1 << 19, SHIFT = 77 };
    static const struct poise_dedup_method *const methods[] = {
        &dedup_overlapping, &dedup_spring, &dedup_spring_fifo, &dedup_multi};

    (void)state;
    for (size_t m = 0; m < 4; m++) {
        unsigned char *data = malloc(2 * LEN + SHIFT);
        unsigned char *half = data_make(LEN, DATA_RANDOM, 5);
        struct cuts cuts = {.with_hashes = true};
        struct poise_dedup_cut_stats stats;
        uint64_t found = 0;

        assert_non_null(data);
        memcpy(data, half, LEN);
        memset(data + LEN, 'x', SHIFT);
        memcpy(data + LEN + SHIFT, half, LEN);
        stats = cut(methods[m], NULL, data, 2 * LEN + SHIFT, 0, &cuts);
        if (methods[m] == &dedup_overlapping) {
            qsort(cuts.hashes, cuts.count, sizeof *cuts.hashes, compare);
            for (size_t i = 1; i < cuts.count; i++) {
                found += 256 * (cuts.hashes[i] == cuts.hashes[i - 1]);
            }
        } else if (methods[m] == &dedup_multi) {
            /* Few large ones instead of many small ones. */
            found = stats.segments < LEN / 256 * 5 / 4 ? LEN : 0;
        } else {
            found = stats.segment_bytes;
        }
        assert_in_range(found, LEN * 7 / 10, LEN + SHIFT);
        free(cuts.hashes);
        poise_buf_free(&cuts.joined);
        free(data);
        free(half);
    }
}

static void test_runs(void **state)
{
    enum { LEN = 1 << 20 };

    (void)state;
    for (size_t m = 0; poise_dedup_methods()[m]; m++) {
        for (enum dedup_data kind = DATA_ZEROS; kind <= DATA_PERIOD; kind++) {
            unsigned char *data = data_make(LEN, kind, 1);
            struct poise_dedup_cut_options plain = {.plain_runs = true};
            struct cuts cuts = {0}, other = {0};
            struct poise_dedup_cut_stats stats =
                cut(poise_dedup_methods()[m], NULL, data, LEN, 0, &cuts);
            assert_int_equal(stats.fill_bytes, LEN);
            assert_in_range(stats.pieces, 1, 16);
            stats = cut(poise_dedup_methods()[m], &plain, data, LEN, 0, &other);
            assert_int_equal(stats.fill_bytes, 0);
            poise_buf_free(&cuts.joined);
            poise_buf_free(&other.joined);
            free(data);
        }
    }
}

static void test_join_gap(void **state)
{
    struct poise_dedup_joiner joiner = {10};
    struct poise_dedup_piece piece = {.data = (const unsigned char *)"abcdef",
                                      .len = 6,
                                      .place = {11, 0, 6, 1}};
    struct poise_buf out = {0};

    (void)state;
    assert_int_equal(poise_dedup_join(&joiner, &piece, &out), -EBADMSG);
    piece.place.x = 8;
    assert_int_equal(poise_dedup_join(&joiner, &piece, &out), 0);
    assert_int_equal(out.len, 4);
    assert_memory_equal(out.data, "cdef", 4);
    piece.place.x = 0;
    assert_int_equal(poise_dedup_join(&joiner, &piece, &out), -EBADMSG);
    poise_buf_free(&out);
}

/* ---- hashes ------------------------------------------------------------- */

static void test_gear_simd(void **state)
{
    enum { LEN = 5000, BEFORE = 64 };
    dedup_gear_scan *simd = dedup_gear_simd();
    struct poise_rng rng;

    (void)state;
    if (!simd) {
        skip();
    }
    poise_rng_seed(&rng, 9);
    for (int round = 0; round < 20000; round++) {
        static unsigned char data[BEFORE + LEN]; /* kept off the stack */
        if (round % 500 == 0) {
            data_fill(data, sizeof data, (enum dedup_data)(round / 500 % 5),
                      &rng);
        }
        size_t from = poise_rng_below(&rng, LEN);
        size_t len = from + poise_rng_below(&rng, LEN - from + 1);
        uint16_t mask = (uint16_t)(0xffffU << (16 - poise_rng_below(&rng, 13)));
        assert_int_equal(simd(data + BEFORE, from, len, mask),
                         dedup_gear_scan_plain(data + BEFORE, from, len, mask));
    }
}

static void test_rabin(void **state)
{
    enum { LEN = 2000 };
    unsigned char *data = data_make(LEN, DATA_RANDOM, 4);
    static struct dedup_rabin rabin; /* kept off the stack */

    (void)state;
    for (uint32_t window = 1; window <= 256; window += 51) {
        uint64_t value;
        dedup_rabin_init(&rabin, window);
        value = dedup_rabin_start(&rabin, data + 256);
        for (size_t end = 256; end < LEN; end++) {
            value =
                dedup_rabin_slide(&rabin, value, data[end - window], data[end]);
            assert_true(value == dedup_rabin_start(&rabin, data + end + 1));
            assert_true(value >> 63 == 0);
        }
    }
    free(data);
}

static void test_fingerprint(void **state)
{
    /* What CPython's SipHash-1-3 makes of the bytes 0, 1, 2, ... with the key
     * 0: PYTHONHASHSEED=0 python3 -c 'print(hex(hash(bytes(range(9)))))'. */
    static const struct {
        size_t len;
        uint64_t value;
    } expected[] = {
        {1, UINT64_C(0x68a914128e01e473)},   {7, UINT64_C(0x2f098ab0c751325a)},
        {8, UINT64_C(0xead411e67ebe2eea)},   {9, UINT64_C(0x75927f9d95124362)},
        {31, UINT64_C(0x169739443111d49b)},  {64, UINT64_C(0x75e05fd5bbc870c6)},
        {255, UINT64_C(0x5dc1f93ea135eb43)},
    };
    static const struct poise_dedup_key zero;
    struct poise_dedup_key key, other;
    unsigned char data[255];
    uint64_t seen[40];

    (void)state;
    for (unsigned i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)i;
    }
    for (unsigned i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_true(poise_dedup_fingerprint(&zero, data, expected[i].len) ==
                    expected[i].value);
    }
    memcpy(key.bytes, data, sizeof key.bytes);
    assert_int_equal(poise_dedup_key_make(&other), 0);
    for (unsigned i = 0; i < 40; i++) {
        seen[i] = poise_dedup_fingerprint(&key, data, i);
        assert_true(seen[i] != poise_dedup_fingerprint(&other, data, i));
        for (unsigned k = 0; k < i; k++) {
            assert_true(seen[k] != seen[i]);
        }
    }
    assert_int_equal(poise_dedup_short(UINT64_C(0x1234567890abcdef), 40),
                     0x7890abcdef);
}

static void test_hasher(void **state)
{
    static const unsigned char abc[] = {
        0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41,
        0x40, 0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3};
    unsigned char out[POISE_DEDUP_GROUP_BYTES];
    struct poise_dedup_hasher *hasher;

    (void)state;
    assert_int_equal(poise_dedup_hasher_create(&hasher), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(poise_dedup_hasher_update(hasher, "a", 1), 0);
        assert_int_equal(poise_dedup_hasher_update(hasher, "bc", 2), 0);
        assert_int_equal(poise_dedup_hasher_final(hasher, out), 0);
        assert_memory_equal(out, abc, sizeof out);
    }
    poise_dedup_hasher_destroy(hasher);
}

/* The figures that the thesis gives for its default parameters (4.2.2.2). */
static void test_model(void **state)
{
    struct poise_dedup_model model = {.data_bytes = 100e9,
                                      .redundancy = 0.75,
                                      .segment_bytes = 32,
                                      .bits = 32,
                                      .group_bits = 160,
                                      .group_segments = 20};
    struct poise_dedup_forecast four = poise_dedup_model_run(&model), five;

    (void)state;
    model.bits = 40;
    five = poise_dedup_model_run(&model);
    assert_true(four.collision_bytes > 40e9 && four.collision_bytes < 55e9);
    assert_true(five.collision_bytes > .15e9 && five.collision_bytes < .25e9);
    assert_true(five.ratio > four.ratio);
    assert_true(fabs(five.fingerprint_bytes - 18.75e9) < 1e6);
    poise_dedup_model_choose(&model);
    assert_int_equal(model.bits, 40);
    assert_in_range(model.group_segments, 20, 100);
    /* "about 35 GB": below, four bytes do best. */
    model.data_bytes = 1e9;
    poise_dedup_model_choose(&model);
    assert_in_range(model.bits, 24, 32);
    model = (struct poise_dedup_model){100e9, .75, 32, 40, 160, 20, 0};
    assert_true(poise_dedup_model_break_even(&model, 160, 16, 1024) == 1024);
}

/* ---- methods of users, failures ----------------------------------------- */

static void test_user_method(void **state)
{
    const struct poise_dedup_method *method;
    struct poise_dedup_segmenter *segmenter;
    struct poise_dedup_cut_options wrong = {13};
    struct cuts cuts = {0};
    char path[4096];

    (void)state;
    assert_null(poise_dedup_method_find("geer"));
    assert_non_null(strstr(poise_error_last()->why, "gear"));
    assert_null(poise_dedup_method_find("/nowhere/at-all.so"));
    assert_ptr_equal(poise_dedup_method_find("lbfs"), &dedup_lbfs);
    snprintf(path, sizeof path, "%s/tests/libdedup_user.so",
             getenv("POISE_BACKEND_DIR"));
    method = poise_dedup_method_find(path);
    assert_non_null(method);
    cut(method, &(struct poise_dedup_cut_options){0},
        (const unsigned char *)"one\ntwo\nthree", 13, 0, &cuts);
    assert_int_equal(cuts.pieces, 3);
    assert_int_equal(cuts.joined.len, 13);
    assert_int_equal(poise_dedup_segmenter_create(method, &wrong, collect,
                                                  &cuts, &segmenter),
                     0);
    assert_int_equal(poise_dedup_segmenter_feed(segmenter, "a\nb", 3), 0);
    assert_int_equal(poise_dedup_segmenter_flush(segmenter), -EPROTO);
    poise_dedup_segmenter_destroy(segmenter);
    poise_buf_free(&cuts.joined);
}

static void test_no_memory(void **state)
{
    (void)state;
    for (size_t m = 0; poise_dedup_methods()[m]; m++) {
        for (uint64_t k = 1;; k++) {
            struct poise_dedup_segmenter *segmenter = NULL;
            poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
            int code = poise_dedup_segmenter_create(
                poise_dedup_methods()[m], NULL, collect, NULL, &segmenter);
            poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
            if (code == 0) {
                poise_dedup_segmenter_destroy(segmenter);
                assert_true(k > 2);
                break;
            }
            assert_int_equal(code, -ENOMEM);
            assert_null(segmenter);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_flush),
        cmocka_unit_test(test_content_defined),
        cmocka_unit_test(test_found_again),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_join_gap),
        cmocka_unit_test(test_gear_simd),
        cmocka_unit_test(test_rabin),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_hasher),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_user_method),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
