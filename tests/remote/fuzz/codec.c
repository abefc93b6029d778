/*
 * What an end that shows a screen hears, behind its compression. The input is a
 * byte of sizes, and then bodies, each behind two bytes of length, of which the
 * highest bit says that the screen has another size before it, and a byte of
 * sizes follows. Whatever they say: an error, or a picture, and rectangles that
 * lie in it.
 */
#include "../../fuzz/fuzz.h"

#include "remote/codec/internal.h"

#include <stdlib.h>

enum { MEMORY = 1 << 18, BODIES_MOST = 32, RESIZED = 1 << 15 };

static void check(bool good)
{
    if (!good) {
        abort();
    }
}

static void put_head(unsigned flags, unsigned sizes, struct poise_buf *out)
{
    poise_buf_reset(out);
    poise_buf_putc(out, (char)flags);
    if (flags & CODEC_BEGINS) {
        poise_buf_varint(out, CODEC_VERSION);
    }
    if (flags) {
        poise_buf_varint(out, 1 + 9 * (sizes & 15));
        poise_buf_varint(out, 1 + 7 * (sizes >> 4 & 15));
    }
    if (flags & CODEC_BEGINS) {
        poise_buf_varint(out, MEMORY);
        poise_buf_varint(out, 0);
    }
}

static int show(struct poise_screen_decoder *decoder,
                const struct poise_buf *message)
{
    struct poise_screen_decoded shown;
    struct poise_buf reply = {0};
    int code = poise_screen_decode(decoder, message->data, message->len, &shown,
                                   &reply);
    for (size_t i = 0; code == 0 && i < shown.rect_count; i++) {
        check(codec_is_inside(shown.picture, &shown.rects[i]));
    }
    poise_buf_free(&reply);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct poise_screen_codec_options options = {.memory_bytes = MEMORY};
    struct poise_screen_decoder *decoder;
    struct codec_packer packer = {NULL};
    struct poise_buf message = {0};
    size_t at = 1;
    int code = 0;

    if (len == 0) {
        return 0;
    }
    check(poise_screen_decoder_create(&options, &decoder) == 0);
    check(codec_packer_begin(&packer, 1, codec_window_bytes(MEMORY)) == 0);
    for (int i = 0; i < BODIES_MOST && at + 2 <= len && code == 0; i++) {
        unsigned head = (unsigned)data[at] << 8 | data[at + 1];
        size_t body = head & (RESIZED - 1);
        unsigned sizes = data[0];
        unsigned flags = i == 0           ? CODEC_BEGINS
                         : head & RESIZED ? CODEC_RESIZED
                                          : 0;
        at += 2;
        if (flags == CODEC_RESIZED && at < len) {
            sizes = data[at++];
        }
        body = body < len - at ? body : len - at;
        put_head(flags, sizes, &message);
        check(codec_packer_put(&packer, data + at, body, &message) == 0);
        code = show(decoder, &message);
        at += body;
    }
    poise_buf_free(&message);
    ZSTD_freeCCtx(packer.zstd);
    poise_screen_decoder_destroy(decoder);
    return 0;
}
