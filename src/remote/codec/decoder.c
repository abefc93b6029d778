/* Messages into pictures. Nothing of them is believed. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

/* What a body may unpack to: planes, and what is said of rectangles. */
enum { BODY_BYTES_PIXEL = 8, BODY_BYTES = 1 << 16 };

struct poise_screen_decoder {
    uint64_t memory_bytes;
    bool two_phase;
    struct codec_receiver *receiver; /* of a method of the engine, or NULL */
    struct poise_screen_picture picture;
    struct poise_screen_picture before;
    struct codec_rects rects;
    struct codec_history history;
    struct codec_pixels pixels;
    struct codec_unpacker unpacker;
    struct poise_buf body;
    uint64_t left; /* pixels that what follows may have */
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
    decoder->two_phase = options && options->two_phase;
    *out = decoder;
    return 0;
}

void poise_screen_decoder_destroy(struct poise_screen_decoder *decoder)
{
    if (decoder) {
        free(decoder->picture.pixels);
        free(decoder->before.pixels);
        free(decoder->rects.rects);
        codec_receiver_destroy(decoder->receiver);
        codec_history_free(&decoder->history);
        codec_pixels_free(&decoder->pixels);
        ZSTD_freeDCtx(decoder->unpacker.zstd);
        poise_buf_free(&decoder->body);
        free(decoder);
    }
}

static int begin_stream(struct poise_screen_decoder *decoder, uint64_t memory)
{
    int code = codec_picture_resize(&decoder->before, decoder->picture.width,
                                    decoder->picture.height);
    code = code == 0 ? codec_history_begin(&decoder->history,
                                           codec_history_room(memory))
                     : code;
    codec_pixels_begin(&decoder->pixels);
    return code == 0 ? codec_unpacker_begin(&decoder->unpacker,
                                            codec_window_bytes(memory))
                     : code;
}

static int begin(struct poise_screen_decoder *decoder, bool engine,
                 struct poise_reader *message)
{
    uint64_t version = poise_reader_varint(message);
    uint64_t width = poise_reader_varint(message);
    uint64_t height = poise_reader_varint(message);
    uint64_t memory = poise_reader_varint(message);
    uint64_t bits = poise_reader_varint(message);
    if (message->error || width > CODEC_MOST_PIXELS ||
        height > CODEC_MOST_PIXELS || memory < CODEC_MEMORY_LEAST ||
        bits > 64) {
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
    codec_receiver_destroy(decoder->receiver);
    decoder->receiver = NULL;
    int code = codec_picture_resize(&decoder->picture, (uint32_t)width,
                                    (uint32_t)height);
    if (code == 0 && engine) {
        return codec_receiver_create(memory, (unsigned)bits, decoder->two_phase,
                                     &decoder->picture, &decoder->rects,
                                     &decoder->receiver);
    }
    return code == 0 ? begin_stream(decoder, memory) : code;
}

/* Another size, and nothing else is. */
static int go_on(struct poise_screen_decoder *decoder,
                 struct poise_reader *message)
{
    uint64_t width = poise_reader_varint(message);
    uint64_t height = poise_reader_varint(message);
    if (message->error || width > CODEC_MOST_PIXELS ||
        height > CODEC_MOST_PIXELS) {
        return bad("its size is damaged");
    }
    int code = codec_picture_crop(&decoder->picture, (uint32_t)width,
                                  (uint32_t)height);
    return code == 0 ? codec_picture_crop(&decoder->before, (uint32_t)width,
                                          (uint32_t)height)
                     : code;
}

static uint64_t area_of(const struct poise_screen_decoder *decoder)
{
    return (uint64_t)decoder->picture.width * decoder->picture.height;
}

static int take_rect(struct poise_screen_decoder *decoder,
                     struct poise_reader *body, struct poise_screen_rect *out)
{
    uint64_t place[4];
    for (int i = 0; i < 4; i++) {
        place[i] = poise_reader_varint(body);
        if (place[i] > CODEC_MOST_PIXELS) {
            return bad("a rectangle lies outside of the screen");
        }
    }
    *out = (struct poise_screen_rect){(uint32_t)place[0], (uint32_t)place[1],
                                      (uint32_t)place[2], (uint32_t)place[3]};
    if (!codec_is_inside(&decoder->picture, out)) {
        return bad("a rectangle lies outside of the screen");
    }
    if (codec_area(out) > decoder->left) {
        return bad("it paints the screen too often");
    }
    decoder->left -= codec_area(out);
    return codec_rects_add(&decoder->rects, out);
}

static int take_copy(struct poise_screen_decoder *decoder,
                     struct poise_reader *body)
{
    uint64_t back = poise_reader_varint(body);
    struct codec_copy copy = {.patch = CODEC_BEFORE};
    struct poise_screen_picture from = decoder->before;
    int code = take_rect(decoder, body, &copy.to);
    uint64_t x = poise_reader_varint(body), y = poise_reader_varint(body);
    if (code < 0) {
        return code;
    }
    if (back > 0) {
        if (back > decoder->history.end - decoder->history.first) {
            return bad("a copy is of what is there no more");
        }
        copy.patch = decoder->history.end - back;
        from = codec_history_patch(&decoder->history, copy.patch);
    }
    if (body->error || x > from.width || y > from.height) {
        return bad("a copy is of what lies outside");
    }
    copy.x = (uint32_t)x;
    copy.y = (uint32_t)y;
    struct poise_screen_rect source = {copy.x, copy.y, copy.to.width,
                                       copy.to.height};
    if (!codec_is_inside(&from, &source)) {
        return bad("a copy is of what lies outside");
    }
    codec_copy_apply(&copy, &decoder->before, &decoder->history,
                     &decoder->picture);
    return 0;
}

static int take_copies(struct poise_screen_decoder *decoder,
                       struct poise_reader *body)
{
    uint64_t count = poise_reader_varint(body);
    decoder->left = area_of(decoder) * CODEC_COPIED_MOST;
    int code = body->error;
    for (; count > 0 && code == 0; count--) {
        code = take_copy(decoder, body);
    }
    return code;
}

static int take_pixels(struct poise_screen_decoder *decoder,
                       struct poise_reader *body)
{
    uint64_t count = poise_reader_varint(body);
    decoder->left = area_of(decoder) * CODEC_CODED_MOST;
    size_t first = decoder->rects.count;
    struct poise_screen_rect rect;
    int code = body->error;
    for (uint64_t i = 0; i < count && code == 0; i++) {
        code = take_rect(decoder, body, &rect);
    }
    for (size_t i = first; i < decoder->rects.count && code == 0; i++) {
        bool passing = false;
        rect = decoder->rects.rects[i];
        code = codec_pixels_get(&decoder->pixels, body, &rect,
                                &decoder->picture, &passing);
        if (code == 0 && !passing) {
            codec_history_add(&decoder->history, &decoder->picture, &rect);
        }
    }
    return code;
}

/* Copies and pixels. */
static int take_changes(struct poise_screen_decoder *decoder,
                        const struct poise_reader *message)
{
    size_t most = BODY_BYTES_PIXEL * (size_t)area_of(decoder) + BODY_BYTES;
    poise_buf_reset(&decoder->body);
    int code =
        codec_unpacker_take(&decoder->unpacker, message->pos,
                            poise_reader_left(message), most, &decoder->body);
    struct poise_reader body =
        poise_reader_of(decoder->body.data, decoder->body.len);
    code = code == 0 ? take_copies(decoder, &body) : code;
    code = code == 0 ? take_pixels(decoder, &body) : code;
    if (code == 0 && poise_reader_left(&body) > 0) {
        code = bad("something follows its end");
    }
    for (size_t i = 0; i < decoder->rects.count && code == 0; i++) {
        codec_picture_copy(&decoder->before, &decoder->picture,
                           &decoder->rects.rects[i]);
    }
    return code;
}

/* The engine's, behind a byte of flags of its own where it begins. */
static int take_pieces(struct poise_screen_decoder *decoder,
                       struct poise_reader *message, bool anew,
                       struct poise_buf *reply)
{
    if (anew &&
        (poise_reader_left(message) == 0 || *message->pos++ != CODEC_ENGINE)) {
        return bad("it does not begin a screen");
    }
    return codec_receiver_feed(decoder->receiver, message->pos,
                               poise_reader_left(message), reply);
}

int poise_screen_decode(struct poise_screen_decoder *decoder,
                        const void *message, size_t len,
                        struct poise_screen_decoded *out,
                        struct poise_buf *reply)
{
    struct poise_reader reader = poise_reader_of(message, len);
    if (len == 0) {
        return bad("it is empty");
    }
    int flags = *reader.pos++;
    bool anew = flags & CODEC_BEGINS, engine = flags & CODEC_ENGINE;
    bool resized = flags & CODEC_RESIZED;
    if (flags > CODEC_FLAGS || (resized && (anew || engine)) ||
        (!anew && (!decoder->begun || engine != (decoder->receiver != NULL)))) {
        return bad("it does not begin a screen, or goes on with another one");
    }
    decoder->begun = false;
    decoder->rects.count = 0;
    int code = anew      ? begin(decoder, engine, &reader)
               : resized ? go_on(decoder, &reader)
                         : 0;
    code = code < 0 ? code
           : engine ? take_pieces(decoder, &reader, anew, reply)
                    : take_changes(decoder, &reader);
    if (code == 0 && (anew || resized)) {
        struct poise_screen_rect all = {0, 0, decoder->picture.width,
                                        decoder->picture.height};
        decoder->rects.count = 0;
        code = codec_rects_add(&decoder->rects, &all);
    }
    if (code < 0) {
        return code;
    }
    decoder->begun = true;
    *out =
        (struct poise_screen_decoded){&decoder->picture, decoder->rects.rects,
                                      decoder->rects.count, anew || resized};
    return 0;
}
