/* Screens through an encoder and a decoder: the same pixels, whatever changes,
 * and no message that makes the decoder do what it should not. */
#include "../share.h"
#include "remote/codec/internal.h"

#include <poise/core.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct pair {
    struct poise_screen_encoder *encoder;
    struct poise_screen_decoder *decoder;
    struct poise_screen_picture picture;
    struct poise_rng rng;
    bool fine; /* what is shown has cells of one pixel */
};

static void open_pair_of(struct pair *pair,
                         const struct poise_screen_codec_options *how,
                         uint32_t width, uint32_t height)
{
    struct poise_screen_codec_options options = *how;
    options.memory_bytes = 4 << 20;
    *pair = (struct pair){
        .picture = {calloc((size_t)width * height, 4), width, height}};
    poise_rng_seed(&pair->rng, 1);
    assert_int_equal(poise_screen_encoder_create(&options, &pair->encoder), 0);
    assert_int_equal(poise_screen_decoder_create(&options, &pair->decoder), 0);
}

static void open_pair(struct pair *pair, const char *method, uint32_t width,
                      uint32_t height)
{
    struct poise_screen_codec_options options = {.method = method};
    open_pair_of(pair, &options, width, height);
}

static void close_pair(struct pair *pair)
{
    poise_screen_encoder_destroy(pair->encoder);
    poise_screen_decoder_destroy(pair->decoder);
    free(pair->picture.pixels);
}

/* Carry what changed over; the other end must show it. The bytes that it took.
 */
static size_t carry(struct pair *pair, const struct poise_screen_rect *rects,
                    size_t count)
{
    struct poise_buf message = {0}, reply = {0};
    struct poise_screen_decoded shown;
    size_t bytes = 0;
    assert_int_equal(poise_screen_encode(pair->encoder, &pair->picture, rects,
                                         count, &message),
                     0);
    while (message.len > 0) {
        bytes += message.len;
        poise_buf_reset(&reply);
        assert_int_equal(poise_screen_decode(pair->decoder, message.data,
                                             message.len, &shown, &reply),
                         0);
        poise_buf_reset(&message);
        if (reply.len > 0) {
            assert_int_equal(poise_screen_encoder_reply(pair->encoder,
                                                        reply.data, reply.len,
                                                        &message),
                             0);
        }
        assert_int_equal(shown.picture->width, pair->picture.width);
        assert_int_equal(shown.picture->height, pair->picture.height);
        if (message.len == 0) {
            assert_memory_equal(shown.picture->pixels, pair->picture.pixels,
                                4 * (size_t)pair->picture.width *
                                    pair->picture.height);
        }
    }
    poise_buf_free(&message);
    poise_buf_free(&reply);
    return bytes;
}

static void draw(struct pair *pair, const struct poise_screen_rect *rect,
                 uint32_t colours)
{
    for (uint32_t y = rect->y; y < rect->y + rect->height; y++) {
        for (uint32_t x = rect->x; x < rect->x + rect->width; x++) {
            pair->picture.pixels[(size_t)y * pair->picture.width + x] =
                (uint32_t)poise_rng_below(&pair->rng, colours) * 0x1f3d5b &
                0xffffff;
        }
    }
}

static struct poise_screen_rect any_rect(struct pair *pair)
{
    struct poise_screen_rect rect;
    rect.x = (uint32_t)poise_rng_below(&pair->rng, pair->picture.width);
    rect.y = (uint32_t)poise_rng_below(&pair->rng, pair->picture.height);
    rect.width =
        1 + (uint32_t)poise_rng_below(&pair->rng, pair->picture.width - rect.x);
    rect.height = 1 + (uint32_t)poise_rng_below(&pair->rng,
                                                pair->picture.height - rect.y);
    return rect;
}

/* What is drawn at random arrives; what does not change costs nothing. */
static void test_random(void **state)
{
    struct pair pair;
    (void)state;
    for (const struct poise_screen_method *m = poise_screen_methods(); m->name;
         m++) {
        open_pair(&pair, m->name, 133, 71);
        assert_true(carry(&pair, NULL, 0) > 0);
        for (int i = 0; i < 60; i++) {
            struct poise_screen_rect rect = any_rect(&pair);
            draw(&pair, &rect, 1 + (uint32_t)i % 7 * 40);
            carry(&pair, i % 3 ? &rect : NULL, i % 3 ? 1 : 0);
            assert_int_equal(carry(&pair, NULL, 0), 0);
        }
        close_pair(&pair);
    }
}

/* ---- what moves, and what comes again ------------------------------------ */

/* A part of a large picture of cells of 7 x 5 pixels, the same for the same
 * place. */
static void show(struct pair *pair, uint32_t x, uint32_t y)
{
    for (uint32_t j = 0; j < pair->picture.height; j++) {
        for (uint32_t i = 0; i < pair->picture.width; i++) {
            uint64_t cell = pair->fine
                                ? (uint64_t)(x + i) << 32 | (y + j)
                                : (uint64_t)((x + i) / 7) << 32 | (y + j) / 5;
            pair->picture.pixels[(size_t)j * pair->picture.width + i] =
                (uint32_t)poise_hash_u64(cell) & 0xff00ff;
        }
    }
}

/* A step in any direction costs what comes into sight, and something seen
 * before next to nothing. */
static void test_motion(void **state)
{
    static const struct {
        uint32_t x, y, most; /* bytes */
    } steps[] = {{200, 230, 1800}, {200, 200, 200},   {224, 200, 1300},
                 {211, 219, 2500}, {600, 800, 15000}, {200, 200, 400},
                 {600, 800, 400}};
    struct pair pair;
    (void)state;
    open_pair(&pair, NULL, 320, 240);
    show(&pair, 200, 200);
    size_t whole = carry(&pair, NULL, 0);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        show(&pair, steps[i].x, steps[i].y);
        size_t bytes = carry(&pair, NULL, 0);
        if (bytes > steps[i].most) {
            fail_msg("step %zu took %zu bytes of %u, the picture %zu", i, bytes,
                     steps[i].most, whole);
        }
    }
    struct poise_screen_codec_stats stats =
        poise_screen_encoder_stats(pair.encoder);
    assert_true(stats.copied + stats.recalled > 300000);
    close_pair(&pair);
}

/* What is left out to measure it changes what is sent, and nothing else. */
static void test_without(void **state)
{
    static const unsigned parts[] = {0, 1, 2, 4, 8, 16, 3, ~0u};
    uint64_t least = 0;
    (void)state;
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        struct poise_screen_codec_options how = {.without = parts[p]};
        struct pair pair;
        open_pair_of(&pair, &how, 200, 150);
        pair.fine = true;
        for (uint32_t i = 0; i < 8; i++) {
            show(&pair, 100 + 100 * (i % 3 == 2), 100 + 30 * i);
            carry(&pair, NULL, 0);
        }
        struct poise_screen_codec_stats stats =
            poise_screen_encoder_stats(pair.encoder);
        least = p == 0 ? stats.coded : least;
        assert_int_equal(stats.copied == 0, parts[p] & 1);
        assert_int_equal(stats.recalled == 0, parts[p] >> 1 & 1);
        if ((parts[p] & 3) == 3) {
            assert_true(stats.coded > 2 * least);
        }
        close_pair(&pair);
    }
}

/* ---- fingerprints that are alike ----------------------------------------- */

/* With fingerprints of 8 bits, which collide all the time, what arrives is
 * right when nothing is left to be said. */
static void test_collisions(void **state)
{
    uint64_t corrected = 0;
    (void)state;
    for (const struct poise_screen_method *m = poise_screen_methods(); m->name;
         m++) {
        for (int phases = 1; phases <= 2; phases++) {
            struct poise_screen_codec_options how = {
                .method = m->name, .bits = 8, .two_phase = phases == 2};
            struct pair pair;
            open_pair_of(&pair, &how, 240, 180);
            for (uint32_t i = 0; i < 12; i++) {
                show(&pair, 100 + i * i % 5 * 40, 100 + i % 4 * 60);
                carry(&pair, NULL, 0);
            }
            corrected += poise_screen_encoder_stats(pair.encoder).corrected;
            close_pair(&pair);
        }
    }
    assert_true(corrected > 10);
}

/* The decoder's answers come late: corrections of one picture when others were
 * shown. Whatever the order, once it is quiet the picture is right. */
static void check_late(uint64_t seed, bool two_phase)
{
    enum { LATE = 64, FRAMES = 20 };
    struct poise_screen_codec_options how = {
        .method = "columns,width=16,min=4", .bits = 8, .two_phase = two_phase};
    struct poise_buf messages[LATE] = {{0}}, replies[LATE] = {{0}};
    size_t sent = 0, shown = 0, answered = 0, heard = 0;
    struct poise_screen_decoded picture = {0};
    struct pair pair;
    open_pair_of(&pair, &how, 240, 180);
    poise_rng_seed(&pair.rng, seed);
    for (int frame = 0, rest = 0; rest < 200; rest += frame == FRAMES) {
        uint64_t what = poise_rng_below(&pair.rng, frame < FRAMES ? 4 : 3);
        struct poise_buf *to = &messages[sent % LATE];
        poise_buf_reset(to);
        if (what == 3 && sent - shown < LATE - 1) {
            show(&pair, (uint32_t)poise_rng_below(&pair.rng, 3) * 40,
                 (uint32_t)poise_rng_below(&pair.rng, 5) * 37);
            assert_int_equal(
                poise_screen_encode(pair.encoder, &pair.picture, NULL, 0, to),
                0);
            frame++;
            sent += to->len > 0;
        } else if (what > 0 && shown < sent && answered - heard < LATE - 1) {
            struct poise_buf *from = &messages[shown++ % LATE];
            struct poise_buf *reply = &replies[answered % LATE];
            poise_buf_reset(reply);
            assert_int_equal(poise_screen_decode(pair.decoder, from->data,
                                                 from->len, &picture, reply),
                             0);
            answered += reply->len > 0;
        } else if (heard < answered && sent - shown < LATE - 1) {
            struct poise_buf *reply = &replies[heard++ % LATE];
            assert_int_equal(poise_screen_encoder_reply(
                                 pair.encoder, reply->data, reply->len, to),
                             0);
            sent += to->len > 0;
        }
    }
    assert_int_equal(sent, shown);
    assert_int_equal(answered, heard);
    assert_memory_equal(picture.picture->pixels, pair.picture.pixels,
                        4 * (size_t)240 * 180);
    for (int i = 0; i < LATE; i++) {
        poise_buf_free(&messages[i]);
        poise_buf_free(&replies[i]);
    }
    close_pair(&pair);
}

static void test_late(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) {
        if (in_share(seed)) {
            check_late(seed, seed & 1);
        }
    }
}

/* A correction that is older than what was painted since is dropped, pixel by
 * pixel. */
static void test_order(void **state)
{
    struct poise_screen_picture picture = {calloc(4, 4), 4, 1};
    unsigned char later[6] = {1, 1, 1, 1, 1, 1},
                  older[9] = {7, 7, 7, 7, 7, 7, 7, 7, 7};
    struct poise_dedup_piece piece = {
        .data = later, .len = 6, .place = {1, 0, 2, 1}};
    struct codec_rects rects = {0};
    struct codec_receiver *receiver;
    (void)state;
    assert_int_equal(
        codec_receiver_create(1 << 20, 0, true, &picture, &rects, &receiver),
        0);
    assert_int_equal(codec_receiver_paint(receiver, &piece, 9), 0);
    piece = (struct poise_dedup_piece){
        .data = older, .len = 9, .place = {0, 0, 3, 1}};
    assert_int_equal(codec_receiver_paint(receiver, &piece, 8), 0);
    assert_int_equal(picture.pixels[0], 0x070707);
    assert_int_equal(picture.pixels[1], 0x010101);
    assert_int_equal(picture.pixels[2], 0x010101);
    assert_int_equal(codec_receiver_paint(receiver, &piece, 10), 0);
    assert_int_equal(picture.pixels[1], 0x070707);
    piece.place.x = 2;
    assert_int_equal(codec_receiver_paint(receiver, &piece, 11), -EBADMSG);
    piece.place = (struct poise_dedup_place){0, 0, 2, 1};
    assert_int_equal(codec_receiver_paint(receiver, &piece, 11), -EBADMSG);
    codec_receiver_destroy(receiver);
    free(rects.rects);
    free(picture.pixels);
}

/* ---- what goes wrong ----------------------------------------------------- */

/* Messages that were damaged are refused, or show something; nothing else. */
static void test_damaged(void **state)
{
    struct poise_screen_decoded shown;
    struct poise_buf messages[6] = {{0}}, reply = {0};
    struct pair pair;
    (void)state;
    open_pair(&pair, NULL, 120, 90);
    for (uint32_t i = 0; i < 6; i++) {
        show(&pair, 10 * i, 20 * i);
        assert_int_equal(poise_screen_encode(pair.encoder, &pair.picture, NULL,
                                             0, &messages[i]),
                         0);
    }
    for (size_t round = 0; round < 200; round++) {
        struct poise_screen_decoder *decoder;
        uint64_t bad = poise_rng_below(&pair.rng, 6);
        if (!in_share(round)) {
            continue;
        }
        assert_int_equal(poise_screen_decoder_create(NULL, &decoder), 0);
        int code = 0;
        for (uint64_t i = 0; i < 6 && code == 0; i++) {
            struct poise_buf copy = {0};
            poise_buf_append(&copy, messages[i].data, messages[i].len);
            uint64_t at = poise_rng_below(&pair.rng, copy.len);
            if (i == bad && round % 2) {
                copy.data[at] ^= (char)(1 << poise_rng_below(&pair.rng, 8));
            } else if (i == bad) {
                copy.len = at;
            }
            code = poise_screen_decode(decoder, copy.data, copy.len, &shown,
                                       &reply);
            assert_true(code == 0 || code == -EBADMSG || code == -EFBIG);
            poise_buf_free(&copy);
        }
        poise_screen_decoder_destroy(decoder);
    }
    for (int i = 0; i < 6; i++) {
        poise_buf_free(&messages[i]);
    }
    poise_buf_free(&reply);
    close_pair(&pair);
}

/* Memory that is not there: an error, then all goes on with a reset. */
static void test_no_memory(void **state)
{
    static const char *const names[] = {"auto", "columns", "gear"};
    (void)state;
    for (size_t m = 0; m < 3; m++) {
        for (uint64_t k = 1;; k += 1 + k / 16) {
            struct poise_screen_codec_options how = {.method = names[m],
                                                     .memory_bytes = 1 << 20};
            struct poise_screen_trial *trial = NULL;
            struct pair pair = {.picture = {calloc(100 * 80, 4), 100, 80}};
            struct poise_screen_step step = {.rect_count = 0};
            int code = 0;
            poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
            code = poise_screen_trial_create(&how, &trial);
            for (uint32_t i = 0; i < 3 && code == 0; i++) {
                struct poise_screen_rect all = {0, 0, 100, 80};
                show(&pair, 0, 7 * i);
                step.rects = &all;
                step.rect_count = 1;
                code = poise_screen_trial_add(trial, &pair.picture, &step);
            }
            bool was_reached = poise_fault_calls(POISE_FAULT_ALLOC) >= k;
            poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
            poise_screen_trial_destroy(trial);
            free(pair.picture.pixels);
            if (!was_reached) {
                assert_int_equal(code, 0);
                break;
            }
            if (code != -ENOMEM && code != 0) {
                fail_msg("%s, %d: %d", names[m], (int)k, code);
            }
        }
    }
}

/* ---- links --------------------------------------------------------------- */

/* By hand: 1000 bytes take 10 ms at 100,000 a second. */
static void test_link(void **state)
{
    const struct poise_screen_link link = {.delay_us = 5000,
                                           .bytes_per_s = 100000};
    const struct poise_screen_trial_step steps[] = {
        {.at_us = 0, .bytes = 1000},
        {.at_us = 4000, .bytes = 1000, .encode_ns = 1000000},
        {.at_us = 100000, .bytes = 100, .rounds = 1, .decode_ns = 2000000}};
    uint64_t us[3];
    (void)state;
    poise_screen_link_model(&link, steps, 3, us);
    assert_int_equal(us[0], 15000);
    assert_int_equal(us[1], 21000);
    assert_int_equal(us[2], 1000 + 15000 + 2000);
}

/* Another size, and an end that forgot everything. */
static void test_anew(void **state)
{
    struct pair pair;
    (void)state;
    open_pair(&pair, NULL, 90, 40);
    struct poise_screen_rect all = {0, 0, 90, 40};
    draw(&pair, &all, 1000);
    carry(&pair, NULL, 0);
    pair.picture.width = 40;
    pair.picture.height = 90;
    carry(&pair, NULL, 0);
    poise_screen_decoder_destroy(pair.decoder);
    assert_int_equal(poise_screen_decoder_create(NULL, &pair.decoder), 0);
    assert_int_equal(poise_screen_encoder_reset(pair.encoder), 0);
    assert_true(carry(&pair, NULL, 0) > 0);
    struct poise_screen_rect outside = {10, 10, 31, 81};
    assert_int_equal(carry(&pair, &outside, 1), 0);
    close_pair(&pair);
}

/* A screen that becomes larger, and as it was: what was shown before is known
 * on, and what it did not change costs nothing. */
static void test_resized(void **state)
{
    struct poise_screen_codec_options how = {.level = 9};
    struct pair pair;
    (void)state;
    open_pair_of(&pair, &how, 400, 300);
    uint32_t *large = pair.picture.pixels;
    pair.picture.width = 320;
    pair.picture.height = 240;
    pair.fine = true;
    show(&pair, 200, 200);
    size_t whole = carry(&pair, NULL, 0);
    show(&pair, 900, 900);
    carry(&pair, NULL, 0);
    pair.picture.width = 400;
    pair.picture.height = 300;
    show(&pair, 900, 900); /* the old part stays where it was */
    size_t grown = carry(&pair, NULL, 0);
    show(&pair, 200, 200); /* seen before it grew, but for its edges */
    size_t again = carry(&pair, NULL, 0);
    assert_true(grown < whole * 3 / 4 && again < whole * 3 / 4);
    pair.picture.width = 320;
    pair.picture.height = 240;
    show(&pair, 900, 900);
    assert_true(carry(&pair, NULL, 0) < whole / 10);
    show(&pair, 200, 200);
    assert_true(carry(&pair, NULL, 0) < whole / 10);
    pair.picture.pixels = large;
    close_pair(&pair);
}

/* A film beside a picture does not drive what was shown before out of the
 * history. */
static void test_film(void **state)
{
    static const struct poise_screen_rect corner = {200, 160, 100, 64};
    struct pair pair;
    (void)state;
    open_pair(&pair, NULL, 300, 224);
    pair.fine = true;
    show(&pair, 200, 200);
    size_t whole = carry(&pair, NULL, 0);
    show(&pair, 900, 900);
    carry(&pair, NULL, 0);
    for (int frame = 0; frame < 200; frame++) { /* twice what it has room for */
        draw(&pair, &corner, 1 << 24);
        carry(&pair, &corner, 1);
    }
    struct poise_screen_codec_stats was =
        poise_screen_encoder_stats(pair.encoder);
    show(&pair, 200, 200);
    assert_true(carry(&pair, NULL, 0) < whole / 10);
    struct poise_screen_codec_stats is =
        poise_screen_encoder_stats(pair.encoder);
    assert_true(is.recalled - was.recalled > 60000);
    close_pair(&pair);
}

/* A noisy picture of greys is told by what it differs from its neighbours: of 5
 * bits for each pixel, not of 8. So is one of a map of colours. */
static void test_green(void **state)
{
    struct pair pair;
    (void)state;
    for (int map = 0; map < 2; map++) {
        open_pair(&pair, NULL, 200, 150);
        for (uint32_t i = 0; i < 200 * 150; i++) {
            uint32_t v = i % 200 / 2 + i / 200 / 2 +
                         (uint32_t)poise_rng_below(&pair.rng, 8);
            pair.picture.pixels[i] =
                map ? (v * v / 256) << 16 | v << 8 | (255 - v) : v * 0x10101;
        }
        assert_true(carry(&pair, NULL, 0) < 200 * 150 * 5 / 8);
        close_pair(&pair);
    }
}

/* Wrong use is named. */
static void test_wrong(void **state)
{
    struct poise_screen_codec_options options = {.method = "best"};
    struct poise_screen_encoder *encoder = NULL;
    struct pair pair;
    struct poise_screen_decoded shown;
    struct poise_buf message = {0}, reply = {0};
    (void)state;
    assert_int_equal(poise_screen_encoder_create(&options, &encoder), -EINVAL);
    open_pair(&pair, NULL, 50, 50);
    poise_screen_decoder_destroy(pair.decoder);
    options = (struct poise_screen_codec_options){.memory_bytes = 1 << 20};
    assert_int_equal(poise_screen_decoder_create(&options, &pair.decoder), 0);
    assert_int_equal(
        poise_screen_encode(pair.encoder, &pair.picture, NULL, 0, &message), 0);
    assert_int_equal(poise_screen_decode(pair.decoder, message.data,
                                         message.len, &shown, &reply),
                     -EFBIG);
    assert_int_equal(
        poise_screen_decode(pair.decoder, "\0abc", 4, &shown, &reply),
        -EBADMSG);
    poise_buf_free(&message);
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),  cmocka_unit_test(test_motion),
        cmocka_unit_test(test_without), cmocka_unit_test(test_collisions),
        cmocka_unit_test(test_late),    cmocka_unit_test(test_order),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_link),    cmocka_unit_test(test_anew),
        cmocka_unit_test(test_wrong),   cmocka_unit_test(test_resized),
        cmocka_unit_test(test_film),    cmocka_unit_test(test_green),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
