/* Messages into pictures. Nothing of them is believed. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

struct poise_screen_decoder {
    uint64_t memory_bytes;
    struct poise_screen_picture picture;
    struct codec_rects rects;
    struct codec_unpacker unpacker;
    struct poise_buf body;
    bool begun;
};

static int bad(const char *why)
{
    return poise_error_set(EBADMSG, "understand a screen's message", NULL, "%s",
                           why);
}

int poise_screen_decoder_create(
    const struct poise_screen_codec_options *options,
    struct poise_screen_decoder **out)
{
    struct poise_screen_decoder *decoder = poise_alloc(1, sizeof *decoder);
    if (!decoder) {
        return -ENOMEM;
    }
    decoder->memory_bytes =
        options && options->memory_bytes ? options->memory_bytes : CODEC_MEMORY;
    *out = decoder;
    return 0;
}

void poise_screen_decoder_destroy(struct poise_screen_decoder *decoder)
{
    if (decoder) {
        free(decoder->picture.pixels);
        free(decoder->rects.rects);
        ZSTD_freeDCtx(decoder->unpacker.zstd);
        poise_buf_free(&decoder->body);
        free(decoder);
    }
}

static int begin(struct poise_screen_decoder *decoder,
                 struct poise_reader *message)
{
    uint64_t version = poise_reader_varint(message);
    uint64_t width = poise_reader_varint(message);
    uint64_t height = poise_reader_varint(message);
    uint64_t memory = poise_reader_varint(message);
    if (message->error || width > CODEC_MOST_PIXELS ||
        height > CODEC_MOST_PIXELS) {
        return bad("its beginning is damaged");
    }
    if (version != CODEC_VERSION) {
        return bad("it is of another version of Poise");
    }
    if (memory > decoder->memory_bytes) {
        return poise_error_set(
            EFBIG, "show a screen", NULL,
            "the other end wants %llu bytes of history, and %llu are allowed",
            (unsigned long long)memory,
            (unsigned long long)decoder->memory_bytes);
    }
    int code = codec_picture_resize(&decoder->picture, (uint32_t)width,
                                    (uint32_t)height);
    return code == 0 ? codec_unpacker_begin(&decoder->unpacker, memory) : code;
}

static int take_pixels(struct poise_screen_decoder *decoder,
                       struct poise_reader *body)
{
    uint64_t place[4];
    for (int i = 0; i < 4; i++) {
        place[i] = poise_reader_varint(body);
        if (place[i] > CODEC_MOST_PIXELS) {
            return bad("a rectangle lies outside of the screen");
        }
    }
    struct poise_screen_rect rect = {(uint32_t)place[0], (uint32_t)place[1],
                                     (uint32_t)place[2], (uint32_t)place[3]};
    if (!codec_is_inside(&decoder->picture, &rect)) {
        return bad("a rectangle lies outside of the screen");
    }
    if (3 * codec_area(&rect) > poise_reader_left(body)) {
        return bad("pixels are missing");
    }
    for (uint32_t y = rect.y; y < rect.y + rect.height; y++) {
        uint32_t *to = codec_at(&decoder->picture, rect.x, y);
        for (uint32_t x = 0; x < rect.width; x++, body->pos += 3) {
            to[x] = (uint32_t)body->pos[2] << 16 | (uint32_t)body->pos[1] << 8 |
                    body->pos[0];
        }
    }
    return codec_rects_add(&decoder->rects, &rect);
}

int poise_screen_decode(struct poise_screen_decoder *decoder,
                        const void *message, size_t len,
                        struct poise_screen_decoded *out,
                        struct poise_buf *reply)
{
    struct poise_reader reader = poise_reader_of(message, len);
    (void)reply;
    if (len == 0 || (!decoder->begun && !(reader.pos[0] & CODEC_BEGINS))) {
        return bad("it does not begin a screen");
    }
    bool anew = *reader.pos++ & CODEC_BEGINS;
    int code = anew ? begin(decoder, &reader) : 0;
    decoder->begun = false;
    decoder->rects.count = 0;
    poise_buf_reset(&decoder->body);
    size_t most =
        8 * (size_t)decoder->picture.width * decoder->picture.height + 65536;
    code = code == 0 ? codec_unpacker_take(&decoder->unpacker, reader.pos,
                                           poise_reader_left(&reader), most,
                                           &decoder->body)
                     : code;
    struct poise_reader body =
        poise_reader_of(decoder->body.data, decoder->body.len);
    while (code == 0 && poise_reader_left(&body) > 0) {
        code = take_pixels(decoder, &body);
    }
    if (code == 0 && anew) {
        struct poise_screen_rect all = {0, 0, decoder->picture.width,
                                        decoder->picture.height};
        decoder->rects.count = 0;
        code = codec_rects_add(&decoder->rects, &all);
    }
    if (code < 0) {
        return code;
    }
    decoder->begun = true;
    *out = (struct poise_screen_decoded){
        &decoder->picture, decoder->rects.rects, decoder->rects.count, anew};
    return 0;
}
