/* Screens through an encoder and a decoder: the same pixels, whatever changes,
 * and no message that makes the decoder do what it should not. */
#include <poise/codec.h>

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
};

static void open_pair(struct pair *pair, const char *method, uint32_t width,
                      uint32_t height)
{
    struct poise_screen_codec_options options = {.method = method,
                                                 .memory_bytes = 4 << 20};
    *pair = (struct pair){
        .picture = {calloc((size_t)width * height, 4), width, height}};
    poise_rng_seed(&pair->rng, 1);
    assert_int_equal(poise_screen_encoder_create(&options, &pair->encoder), 0);
    assert_int_equal(poise_screen_decoder_create(&options, &pair->decoder), 0);
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
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_anew),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
