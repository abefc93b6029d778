/* Pictures into messages. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

struct poise_screen_encoder {
    struct poise_screen_codec_options options; /* none is 0; no method */
    struct codec_sender *sender; /* of a method of the engine, or NULL */
    struct poise_screen_picture
        wanted; /* until the engine's other end answers */
    struct poise_screen_picture
        shown;  /* at the other end, after all messages */
    bool begun; /* the other end has `shown` */
    struct poise_screen_picture before; /* the same, before this message */
    struct codec_blocks blocks;
    struct codec_rects rects; /* that differ, first all, then without copies */
    struct codec_rects changed; /* all of them */
    struct codec_copies copies;
    struct codec_motion *motion;
    struct codec_history history;
    struct codec_passing passing;
    struct codec_pixels pixels;
    struct codec_packer packer;
    struct poise_buf head, body;
    struct poise_buf pieces; /* of struct poise_screen_piece, when asked for */
    struct poise_screen_codec_stats stats;
};

static const struct poise_screen_method methods[] = {
    {"auto", "copies, history, and pixels by what they look like"},
    {"columns", "columns with rows chosen by content, by the engine"},
    {"tiles", "a raster that never moves, by the engine"},
    {"blocks", "columns and rows chosen by content, by the engine"},
    {"windows", "windows anywhere, by the engine"},
    {"gear", "what changed as bytes, cut in one dimension, by the engine"},
    {"zstd", "what changed, compressed"},
    {NULL, NULL},
};
enum { AUTO, GEAR = 5, ZSTD = 6, METHODS };

const struct poise_screen_method *poise_screen_methods(void)
{
    return methods;
}

/* Which one a text begins with. */
static int find_method(const char *text)
{
    size_t len = text ? strcspn(text, ",") : 0;
    for (int i = 0; i < METHODS; i++) {
        if (!text || (strlen(methods[i].name) == len &&
                      strncmp(methods[i].name, text, len) == 0)) {
            bool cuts = i != AUTO && i < GEAR;
            return !text || text[len] == '\0' || cuts
                       ? i
                       : poise_error_set(EINVAL, "send a screen by", text,
                                         "this method has no options");
        }
    }
    struct poise_buf names = {0};
    for (int i = 0; i < METHODS; i++) {
        poise_buf_printf(&names, "%s%s", i == 0 ? "" : ", ", methods[i].name);
    }
    int code = poise_error_set(EINVAL, "send a screen by", text,
                               "there are: %s", poise_buf_str(&names));
    poise_buf_free(&names);
    return code;
}

void poise_screen_encoder_destroy(struct poise_screen_encoder *encoder)
{
    if (encoder) {
        free(encoder->shown.pixels);
        free(encoder->before.pixels);
        free(encoder->blocks.marks);
        free(encoder->rects.rects);
        free(encoder->changed.rects);
        free(encoder->copies.copies);
        codec_motion_destroy(encoder->motion);
        codec_history_free(&encoder->history);
        free(encoder->passing.times);
        codec_pixels_free(&encoder->pixels);
        codec_sender_destroy(encoder->sender);
        free(encoder->wanted.pixels);
        ZSTD_freeCCtx(encoder->packer.zstd);
        poise_buf_free(&encoder->head);
        poise_buf_free(&encoder->body);
        poise_buf_free(&encoder->pieces);
        free(encoder);
    }
}

static int choose_method(struct poise_screen_encoder *encoder, const char *text)
{
    struct poise_dedup_grid_options grid = {.method = 0};
    int method = find_method(text);
    if (method < 0) {
        return method;
    }
    if (method == ZSTD) {
        encoder->options.without = ~0u;
    }
    if (method == AUTO || method == ZSTD) {
        return codec_motion_create(encoder->options.bits, &encoder->motion);
    }
    int code = method == GEAR ? 0 : poise_dedup_grid_parse(text, &grid);
    return code == 0 ? codec_sender_create(method == GEAR ? NULL : &grid,
                                           &encoder->options, &encoder->sender)
                     : code;
}

int poise_screen_encoder_create(
    const struct poise_screen_codec_options *options,
    struct poise_screen_encoder **out)
{
    static const struct poise_screen_codec_options none;
    struct poise_screen_encoder *encoder = poise_alloc(1, sizeof *encoder);
    if (!encoder) {
        return -ENOMEM;
    }
    options = options ? options : &none;
    encoder->options = *options;
    encoder->options.method = NULL;
    encoder->options.memory_bytes =
        options->memory_bytes ? options->memory_bytes : CODEC_MEMORY;
    encoder->options.level = options->level ? options->level : CODEC_LEVEL;
    int code = encoder->options.memory_bytes < CODEC_MEMORY_LEAST
                   ? poise_error_set(EINVAL, "send a screen", NULL,
                                     "it needs 64 KiB of history")
                   : choose_method(encoder, options->method);
    encoder->pixels.without = encoder->options.without;
    if (code < 0) {
        poise_screen_encoder_destroy(encoder);
        return code;
    }
    *out = encoder;
    return 0;
}

int poise_screen_encoder_reset(struct poise_screen_encoder *encoder)
{
    encoder->begun = false;
    return 0;
}

/* What both ends have at the beginning, but for the engine. */
static int begin_stream(struct poise_screen_encoder *encoder)
{
    uint64_t memory = encoder->options.memory_bytes;
    int code = codec_packer_begin(&encoder->packer, encoder->options.level,
                                  codec_window_bytes(memory));
    code = code == 0 ? codec_history_begin(&encoder->history,
                                           codec_history_room(memory))
                     : code;
    codec_motion_forget(encoder->motion);
    codec_pixels_begin(&encoder->pixels);
    return code;
}

static int begin(struct poise_screen_encoder *encoder,
                 const struct poise_screen_picture *picture)
{
    uint32_t width = picture->width, height = picture->height;
    int code = codec_picture_resize(&encoder->shown, width, height);
    code = code == 0 ? codec_picture_resize(encoder->sender ? &encoder->wanted
                                                            : &encoder->before,
                                            width, height)
                     : code;
    code = code == 0 ? codec_blocks_resize(&encoder->blocks, picture) : code;
    code = code == 0 ? codec_passing_resize(&encoder->passing, picture) : code;
    code = code < 0          ? code
           : encoder->sender ? codec_sender_begin(encoder->sender)
                             : begin_stream(encoder);
    poise_buf_putc(&encoder->head,
                   CODEC_BEGINS | (encoder->sender ? CODEC_ENGINE : 0));
    poise_buf_varint(&encoder->head, CODEC_VERSION);
    poise_buf_varint(&encoder->head, width);
    poise_buf_varint(&encoder->head, height);
    poise_buf_varint(&encoder->head, encoder->options.memory_bytes);
    poise_buf_varint(&encoder->head, encoder->options.bits);
    return code;
}

/* Another size: what was shown before is known on. */
static int go_on(struct poise_screen_encoder *encoder,
                 const struct poise_screen_picture *picture)
{
    uint32_t width = picture->width, height = picture->height;
    int code = codec_picture_crop(&encoder->shown, width, height);
    code =
        code == 0 ? codec_picture_crop(&encoder->before, width, height) : code;
    poise_buf_putc(&encoder->head, CODEC_RESIZED);
    poise_buf_varint(&encoder->head, width);
    poise_buf_varint(&encoder->head, height);
    code = code == 0 ? codec_passing_resize(&encoder->passing, picture) : code;
    return code == 0 ? codec_blocks_resize(&encoder->blocks, picture) : code;
}

/* What the message begins with. */
static int put_head(struct poise_screen_encoder *encoder,
                    const struct poise_screen_picture *picture, bool resized)
{
    int code = 0;
    poise_buf_reset(&encoder->head);
    if (!encoder->begun || (resized && encoder->sender)) {
        code = begin(encoder, picture);
    } else if (resized) {
        code = go_on(encoder, picture);
    } else {
        poise_buf_putc(&encoder->head, 0);
    }
    return code == 0 ? encoder->head.error : code;
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
    int code = codec_blocks_take(&encoder->blocks, &encoder->shown, picture,
                                 &encoder->rects);
    encoder->stats.difference_ns += cpu_ns() - begun;
    return code;
}

static void put_rect(struct poise_buf *out,
                     const struct poise_screen_rect *rect)
{
    poise_buf_varint(out, rect->x);
    poise_buf_varint(out, rect->y);
    poise_buf_varint(out, rect->width);
    poise_buf_varint(out, rect->height);
}

/* What of it is elsewhere. Then only what still differs is in the rectangles.
 */
static int put_copies(struct poise_screen_encoder *encoder,
                      const struct poise_screen_picture *picture)
{
    struct codec_copies *copies = &encoder->copies;
    struct codec_scene scene = {&encoder->before, picture,
                                &encoder->shown,  &encoder->history,
                                &encoder->rects,  encoder->options.without};
    uint64_t begun = cpu_ns();
    int code = codec_motion_find(encoder->motion, &scene, copies);
    poise_buf_varint(&encoder->body, copies->count);
    for (size_t i = 0; i < copies->count; i++) {
        const struct codec_copy *copy = &copies->copies[i];
        bool before = copy->patch == CODEC_BEFORE;
        poise_buf_varint(&encoder->body,
                         before ? 0 : encoder->history.end - copy->patch);
        put_rect(&encoder->body, &copy->to);
        poise_buf_varint(&encoder->body, copy->x);
        poise_buf_varint(&encoder->body, copy->y);
        struct poise_screen_rect used = copy->to;
        if (before) {
            used.x = copy->x;
            used.y = copy->y;
        }
        codec_passing_forget(&encoder->passing, &used);
        *(before ? &encoder->stats.copied : &encoder->stats.recalled) +=
            codec_area(&copy->to);
    }
    encoder->changed.count = 0;
    for (size_t i = 0; i < encoder->rects.count && code == 0; i++) {
        code = codec_rects_add(&encoder->changed, &encoder->rects.rects[i]);
    }
    if (code == 0 && copies->count > 0) {
        /* Copies are true: they make nothing wrong that was right. */
        for (size_t i = 0; i < encoder->changed.count; i++) {
            codec_blocks_compare(&encoder->blocks, &encoder->shown, picture,
                                 &encoder->changed.rects[i]);
        }
        code = codec_blocks_take(&encoder->blocks, &encoder->shown, picture,
                                 &encoder->rects);
    }
    encoder->stats.segment_ns += cpu_ns() - begun;
    return code;
}

static int remember(struct poise_screen_encoder *encoder,
                    const struct poise_screen_picture *picture,
                    const struct poise_screen_rect *rect)
{
    return codec_history_add(&encoder->history, picture, rect) &&
                   !(encoder->options.without & POISE_SCREEN_WITHOUT_HISTORY)
               ? codec_motion_learn(encoder->motion, picture, rect,
                                    &encoder->history)
               : 0;
}

static int put_pixels(struct poise_screen_encoder *encoder,
                      const struct poise_screen_picture *picture)
{
    int code = 0;
    uint64_t begun = cpu_ns();
    poise_buf_varint(&encoder->body, encoder->rects.count);
    encoder->pixels.area = encoder->pixels.rects = 0;
    for (size_t i = 0; i < encoder->rects.count; i++) {
        put_rect(&encoder->body, &encoder->rects.rects[i]);
        encoder->pixels.area += codec_area(&encoder->rects.rects[i]);
    }
    for (size_t i = 0; i < encoder->rects.count && code == 0; i++) {
        const struct poise_screen_rect *rect = &encoder->rects.rects[i];
        bool often =
            codec_passing_add(&encoder->passing, rect, encoder->history.room);
        bool passing = often;
        code = codec_pixels_put(&encoder->pixels, picture, rect, &passing,
                                &encoder->body);
        if (often && !passing) {
            codec_passing_forget(&encoder->passing, rect);
        }
        if (code == 0 && !passing) {
            code = remember(encoder, picture, rect);
        }
        codec_picture_copy(&encoder->shown, picture, rect);
        encoder->stats.coded += codec_area(rect);
    }
    encoder->stats.compress_ns += cpu_ns() - begun;
    return code;
}

/* The message, of which all is known. */
static int pack(struct poise_screen_encoder *encoder, struct poise_buf *out)
{
    uint64_t begun = cpu_ns();
    int code = poise_buf_append(out, encoder->head.data, encoder->head.len);
    code = code == 0 ? encoder->body.error : code;
    code = code == 0 ? codec_packer_put(&encoder->packer, encoder->body.data,
                                        encoder->body.len, out)
                     : code;
    encoder->stats.compress_ns += cpu_ns() - begun;
    encoder->stats.updates++;
    encoder->stats.plain_bytes += encoder->body.len;
    return code;
}

/* By copies and pixels. */
static int put_changes(struct poise_screen_encoder *encoder,
                       const struct poise_screen_picture *picture,
                       struct poise_buf *out)
{
    int code = put_copies(encoder, picture);
    code = code == 0 ? put_pixels(encoder, picture) : code;
    code = code == 0 ? pack(encoder, out) : code;
    for (size_t i = 0; i < encoder->changed.count; i++) {
        codec_picture_copy(&encoder->before, picture,
                           &encoder->changed.rects[i]);
    }
    return code;
}

/* By the engine, as soon as the other end has answered. */
static int put_pieces(struct poise_screen_encoder *encoder,
                      const struct poise_screen_picture *picture,
                      struct poise_buf *out)
{
    struct poise_screen_rect all = {0, 0, picture->width, picture->height};
    struct codec_change change = {&encoder->shown, picture, &encoder->rects};
    if (!codec_sender_is_ready(encoder->sender)) {
        codec_picture_copy(&encoder->wanted, picture, &all);
        return 0;
    }
    uint64_t begun = cpu_ns();
    int code = codec_sender_put(encoder->sender, &change, &encoder->stats);
    code = code == 0 ? codec_sender_output(encoder->sender, out) : code;
    encoder->stats.segment_ns += cpu_ns() - begun;
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
    poise_buf_reset(&encoder->body);
    int code = put_head(encoder, picture, anew);
    encoder->begun = false;
    if (code == 0 && anew && encoder->sender) {
        poise_buf_append(out, encoder->head.data, encoder->head.len);
        code = codec_sender_output(encoder->sender, out);
    }
    if (code == 0) {
        code = anew || !rects ? difference(encoder, picture, &all, 1)
                              : difference(encoder, picture, rects, rect_count);
    }
    if (code == 0 && (anew || encoder->rects.count > 0)) {
        code = encoder->sender ? put_pieces(encoder, picture, out)
                               : put_changes(encoder, picture, out);
    }
    encoder->stats.sent_bytes += out->len - was;
    encoder->begun = code == 0;
    return code;
}

int poise_screen_encoder_reply(struct poise_screen_encoder *encoder,
                               const void *data, size_t len,
                               struct poise_buf *out)
{
    struct poise_screen_rect all = {0, 0, encoder->shown.width,
                                    encoder->shown.height};
    size_t was = out->len;
    encoder->stats.reply_bytes += len;
    if (len == 0) {
        return 0;
    }
    if (!encoder->sender || !encoder->begun) {
        return poise_error_set(EBADMSG, "understand a reply", NULL,
                               "there is nothing to answer");
    }
    bool first = !codec_sender_is_ready(encoder->sender);
    int code = codec_sender_feed(encoder->sender, data, len);
    if (code == 0 && first) {
        code = difference(encoder, &encoder->wanted, &all, 1);
        code = code == 0 ? put_pieces(encoder, &encoder->wanted, out) : code;
    }
    code = code == 0 ? codec_sender_output(encoder->sender, out) : code;
    encoder->stats.sent_bytes += out->len - was;
    encoder->begun = code == 0;
    return code;
}

struct poise_screen_codec_stats
poise_screen_encoder_stats(const struct poise_screen_encoder *encoder)
{
    struct poise_screen_codec_stats stats = encoder->stats;
    if (encoder->sender) {
        codec_sender_count(encoder->sender, &stats);
    }
    return stats;
}

static void add_piece(struct poise_screen_encoder *encoder,
                      enum poise_screen_piece_kind kind,
                      const struct poise_screen_rect *rect)
{
    struct poise_screen_piece piece = {*rect, kind};
    poise_buf_append(&encoder->pieces, &piece, sizeof piece);
}

int poise_screen_encoder_pieces(struct poise_screen_encoder *encoder,
                                const struct poise_screen_piece **pieces,
                                size_t *count)
{
    poise_buf_reset(&encoder->pieces);
    for (size_t i = 0; i < encoder->copies.count; i++) {
        const struct codec_copy *copy = &encoder->copies.copies[i];
        add_piece(encoder,
                  copy->patch == CODEC_BEFORE ? POISE_SCREEN_COPIED
                                              : POISE_SCREEN_RECALLED,
                  &copy->to);
    }
    struct poise_dedup_grid_cuts cuts = {0};
    if (encoder->sender) {
        cuts = codec_sender_cuts(encoder->sender);
    }
    for (size_t i = 0; i < cuts.count; i++) {
        const struct poise_dedup_place *place = &cuts.places[i];
        struct poise_screen_rect rect = {(uint32_t)place->x, place->y,
                                         place->width, place->height};
        add_piece(encoder,
                  i < cuts.likely ? POISE_SCREEN_SEGMENT : POISE_SCREEN_CODED,
                  &rect);
    }
    for (size_t i = 0; cuts.count == 0 && i < encoder->rects.count; i++) {
        add_piece(encoder, POISE_SCREEN_CODED, &encoder->rects.rects[i]);
    }
    *pieces =
        (const struct poise_screen_piece *)(const void *)encoder->pieces.data;
    *count = encoder->pieces.len / sizeof **pieces;
    return encoder->pieces.error;
}
