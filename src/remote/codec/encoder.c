/* Pictures into messages. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

struct poise_screen_encoder {
    const struct poise_screen_method *method;
    uint64_t memory_bytes;
    int level;
    struct poise_screen_picture
        shown;  /* at the other end, after all messages */
    bool begun; /* the other end has `shown` */
    struct codec_blocks blocks;
    struct codec_rects rects;
    struct codec_packer packer;
    struct poise_buf head, body;
    struct poise_screen_codec_stats stats;
};

static const struct poise_screen_method methods[] = {
    {"auto", "the best that is known, by content"},
    {NULL, NULL},
};

const struct poise_screen_method *poise_screen_methods(void)
{
    return methods;
}

static const struct poise_screen_method *find_method(const char *name)
{
    for (const struct poise_screen_method *m = methods; m->name; m++) {
        if (!name || strcmp(m->name, name) == 0) {
            return m;
        }
    }
    struct poise_buf names = {0};
    for (const struct poise_screen_method *m = methods; m->name; m++) {
        poise_buf_printf(&names, "%s%s", m == methods ? "" : ", ", m->name);
    }
    poise_error_set(EINVAL, "send a screen by", name, "there are: %s",
                    poise_buf_str(&names));
    poise_buf_free(&names);
    return NULL;
}

void poise_screen_encoder_destroy(struct poise_screen_encoder *encoder)
{
    if (encoder) {
        free(encoder->shown.pixels);
        free(encoder->blocks.marks);
        free(encoder->rects.rects);
        ZSTD_freeCCtx(encoder->packer.zstd);
        poise_buf_free(&encoder->head);
        poise_buf_free(&encoder->body);
        free(encoder);
    }
}

int poise_screen_encoder_create(
    const struct poise_screen_codec_options *options,
    struct poise_screen_encoder **out)
{
    static const struct poise_screen_codec_options none;
    options = options ? options : &none;
    const struct poise_screen_method *method = find_method(options->method);
    if (!method) {
        return -EINVAL;
    }
    struct poise_screen_encoder *encoder = poise_alloc(1, sizeof *encoder);
    if (!encoder) {
        return -ENOMEM;
    }
    encoder->method = method;
    encoder->memory_bytes =
        options->memory_bytes ? options->memory_bytes : CODEC_MEMORY;
    encoder->level = options->level ? options->level : CODEC_LEVEL;
    *out = encoder;
    return 0;
}

int poise_screen_encoder_reset(struct poise_screen_encoder *encoder)
{
    encoder->begun = false;
    return 0;
}

static int begin(struct poise_screen_encoder *encoder,
                 const struct poise_screen_picture *picture)
{
    int code =
        codec_picture_resize(&encoder->shown, picture->width, picture->height);
    code = code == 0 ? codec_blocks_resize(&encoder->blocks, picture) : code;
    code = code == 0 ? codec_packer_begin(&encoder->packer, encoder->level,
                                          encoder->memory_bytes)
                     : code;
    poise_buf_putc(&encoder->head, CODEC_BEGINS);
    poise_buf_varint(&encoder->head, CODEC_VERSION);
    poise_buf_varint(&encoder->head, picture->width);
    poise_buf_varint(&encoder->head, picture->height);
    poise_buf_varint(&encoder->head, encoder->memory_bytes);
    return code;
}

static int put_pixels(struct poise_screen_encoder *encoder,
                      const struct poise_screen_picture *picture,
                      const struct poise_screen_rect *rect)
{
    poise_buf_varint(&encoder->body, rect->x);
    poise_buf_varint(&encoder->body, rect->y);
    poise_buf_varint(&encoder->body, rect->width);
    poise_buf_varint(&encoder->body, rect->height);
    for (uint32_t y = rect->y; y < rect->y + rect->height; y++) {
        const uint32_t *from = codec_at(picture, rect->x, y);
        uint8_t *to = (uint8_t *)poise_buf_reserve(&encoder->body,
                                                   3 * (size_t)rect->width);
        if (!to) {
            return -ENOMEM;
        }
        for (uint32_t x = 0; x < rect->width; x++, to += 3) {
            to[0] = (uint8_t)from[x];
            to[1] = (uint8_t)(from[x] >> 8);
            to[2] = (uint8_t)(from[x] >> 16);
        }
        encoder->body.len += 3 * (size_t)rect->width;
        memcpy(codec_at(&encoder->shown, rect->x, y), from,
               4 * (size_t)rect->width);
    }
    return encoder->body.error;
}

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* What changed, into encoder->rects. */
static int difference(struct poise_screen_encoder *encoder,
                      const struct poise_screen_picture *picture,
                      const struct poise_screen_rect *rects, size_t count)
{
    uint64_t begun = cpu_ns();
    for (size_t i = 0; i < count; i++) {
        if (!codec_is_inside(picture, &rects[i])) {
            continue;
        }
        encoder->stats.looked += codec_area(&rects[i]);
        encoder->stats.changed += codec_blocks_compare(
            &encoder->blocks, &encoder->shown, picture, &rects[i]);
    }
    int code = codec_blocks_take(&encoder->blocks, picture, &encoder->rects);
    encoder->stats.difference_ns += cpu_ns() - begun;
    return code;
}

int poise_screen_encode(struct poise_screen_encoder *encoder,
                        const struct poise_screen_picture *picture,
                        const struct poise_screen_rect *rects,
                        size_t rect_count, struct poise_buf *out)
{
    struct poise_screen_rect all = {0, 0, picture->width, picture->height};
    size_t was = out->len;
    bool anew = !encoder->begun || picture->width != encoder->shown.width ||
                picture->height != encoder->shown.height;
    poise_buf_reset(&encoder->head);
    poise_buf_reset(&encoder->body);
    encoder->begun = false;
    int code = anew ? begin(encoder, picture) : 0;
    if (!anew) {
        poise_buf_putc(&encoder->head, 0);
    }
    if (code == 0 && (anew || !rects)) {
        code = difference(encoder, picture, &all, 1);
    } else if (code == 0) {
        code = difference(encoder, picture, rects, rect_count);
    }
    for (size_t i = 0; i < encoder->rects.count && code == 0; i++) {
        code = put_pixels(encoder, picture, &encoder->rects.rects[i]);
        encoder->stats.coded += codec_area(&encoder->rects.rects[i]);
    }
    if (code == 0 && (anew || encoder->rects.count > 0)) {
        uint64_t begun = cpu_ns();
        code = poise_buf_append(out, encoder->head.data, encoder->head.len);
        code = code == 0
                   ? codec_packer_put(&encoder->packer, encoder->body.data,
                                      encoder->body.len, out)
                   : code;
        encoder->stats.compress_ns += cpu_ns() - begun;
        encoder->stats.updates++;
        encoder->stats.plain_bytes += encoder->body.len;
        encoder->stats.sent_bytes += out->len - was;
    }
    encoder->begun = code == 0;
    return code;
}

int poise_screen_encoder_reply(struct poise_screen_encoder *encoder,
                               const void *data, size_t len,
                               struct poise_buf *out)
{
    (void)data;
    (void)out;
    encoder->stats.reply_bytes += len;
    return len == 0 ? 0
                    : poise_error_set(EBADMSG, "understand a reply", NULL,
                                      "there is nothing to answer");
}

struct poise_screen_codec_stats
poise_screen_encoder_stats(const struct poise_screen_encoder *encoder)
{
    return encoder->stats;
}
