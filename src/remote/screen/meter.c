/* What a session costs by ways to send it that know nothing of screens: what
 * every method has to be compared with. */
#include "internal.h"

#include <zstd.h>

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum {
    LEVEL = 3,
    WINDOW_LOG = 27, /* of zstd --long */
    OUT_BYTES = 1 << 16,
    RAW_PIXEL = 4,
    RAW_RECT = 12, /* place, size, encoding */
    RAW_STEP = 4   /* a message's head */
};

/* One stream that lasts as long as the session. */
struct stream {
    ZSTD_CCtx *zstd;
    uint64_t bytes, ns;
};

struct poise_screen_meter {
    struct stream rects, frames;
    struct poise_screen_picture before;
    struct poise_screen_costs costs;
    struct poise_buf pixels;
    uint8_t *out;
};

void poise_screen_meter_destroy(struct poise_screen_meter *meter)
{
    if (meter) {
        ZSTD_freeCCtx(meter->rects.zstd);
        ZSTD_freeCCtx(meter->frames.zstd);
        free(meter->before.pixels);
        poise_buf_free(&meter->pixels);
        free(meter->out);
        free(meter);
    }
}

static int begin(struct stream *stream)
{
    stream->zstd = ZSTD_createCCtx();
    if (!stream->zstd) {
        return -ENOMEM;
    }
    ZSTD_CCtx_setParameter(stream->zstd, ZSTD_c_compressionLevel, LEVEL);
    ZSTD_CCtx_setParameter(stream->zstd, ZSTD_c_enableLongDistanceMatching, 1);
    ZSTD_CCtx_setParameter(stream->zstd, ZSTD_c_windowLog, WINDOW_LOG);
    return 0;
}

int poise_screen_meter_create(struct poise_screen_meter **out)
{
    struct poise_screen_meter *meter = poise_alloc(1, sizeof *meter);
    if (!meter) {
        return -ENOMEM;
    }
    meter->out = poise_alloc(OUT_BYTES, 1);
    if (!meter->out || begin(&meter->rects) < 0 || begin(&meter->frames) < 0) {
        poise_screen_meter_destroy(meter);
        return poise_error_set(ENOMEM, "compress", NULL, NULL);
    }
    *out = meter;
    return 0;
}

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* All of `pixels`, as far as the other end can read it. */
static int put(struct poise_screen_meter *meter, struct stream *stream)
{
    ZSTD_inBuffer in = {meter->pixels.data, meter->pixels.len, 0};
    uint64_t begun = cpu_ns();
    size_t left;
    do {
        ZSTD_outBuffer out = {meter->out, OUT_BYTES, 0};
        left = ZSTD_compressStream2(stream->zstd, &out, &in, ZSTD_e_flush);
        if (ZSTD_isError(left)) {
            return poise_error_set(ENOMEM, "compress", NULL, "%s",
                                   ZSTD_getErrorName(left));
        }
        stream->bytes += out.pos;
    } while (left > 0);
    stream->ns += cpu_ns() - begun;
    return 0;
}

static int collect(struct poise_buf *to,
                   const struct poise_screen_picture *picture,
                   const struct poise_screen_rect *rect)
{
    enum { PIXEL = 3 };
    uint8_t *at = (uint8_t *)poise_buf_reserve(to, (size_t)rect->width *
                                                       rect->height * PIXEL);
    for (uint32_t y = 0; at && y < rect->height; y++) {
        const uint32_t *from =
            picture->pixels + (size_t)(rect->y + y) * picture->width + rect->x;
        for (uint32_t x = 0; x < rect->width; x++, at += PIXEL) {
            at[0] = (uint8_t)from[x];
            at[1] = (uint8_t)(from[x] >> 8);
            at[2] = (uint8_t)(from[x] >> 16);
        }
    }
    to->len += at ? (size_t)rect->width * rect->height * PIXEL : 0;
    return to->error;
}

/* The picture before, of the size of this one; black where it is new. */
static int keep_size(struct poise_screen_meter *meter,
                     const struct poise_screen_picture *picture, bool resized)
{
    if (!resized && meter->before.pixels) {
        return 0;
    }
    free(meter->before.pixels);
    meter->before = *picture;
    meter->before.pixels = poise_alloc(
        (size_t)picture->width * picture->height + 1, sizeof *picture->pixels);
    return meter->before.pixels ? 0 : -ENOMEM;
}

static uint64_t take_changes(struct poise_screen_meter *meter,
                             const struct poise_screen_picture *picture,
                             const struct poise_screen_rect *rect)
{
    uint64_t changed = 0;
    for (uint32_t y = rect->y; y < rect->y + rect->height; y++) {
        size_t at = (size_t)y * picture->width + rect->x;
        for (size_t i = at; i < at + rect->width; i++) {
            changed += picture->pixels[i] != meter->before.pixels[i];
            meter->before.pixels[i] = picture->pixels[i];
        }
    }
    return changed;
}

int poise_screen_meter_add(struct poise_screen_meter *meter,
                           const struct poise_screen_picture *picture,
                           const struct poise_screen_step *step)
{
    struct poise_screen_costs *costs = &meter->costs;
    struct poise_screen_rect all = {0, 0, picture->width, picture->height};
    int code = keep_size(meter, picture, step->resized);
    poise_buf_reset(&meter->pixels);
    for (size_t i = 0; i < step->rect_count && code == 0; i++) {
        const struct poise_screen_rect *rect = &step->rects[i];
        uint64_t pixels = (uint64_t)rect->width * rect->height;
        costs->pixels += pixels;
        costs->raw += pixels * RAW_PIXEL + RAW_RECT;
        costs->changed += take_changes(meter, picture, rect);
        code = collect(&meter->pixels, picture, rect);
    }
    costs->steps++;
    costs->rects += step->rect_count;
    costs->server += step->bytes;
    costs->raw += RAW_STEP;
    code = code == 0 ? put(meter, &meter->rects) : code;
    poise_buf_reset(&meter->pixels);
    code = code == 0 ? collect(&meter->pixels, picture, &all) : code;
    return code == 0 ? put(meter, &meter->frames) : code;
}

struct poise_screen_costs
poise_screen_meter_costs(const struct poise_screen_meter *meter)
{
    struct poise_screen_costs costs = meter->costs;
    costs.zstd = meter->rects.bytes;
    costs.zstd_ns = meter->rects.ns;
    costs.frames = meter->frames.bytes;
    costs.frames_ns = meter->frames.ns;
    return costs;
}
