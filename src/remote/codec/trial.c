/* A session through an encoder and a decoder, every picture compared; and how
 * long its updates would take over a link. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

struct poise_screen_trial {
    struct poise_screen_encoder *encoder;
    struct poise_screen_decoder *decoder;
    struct poise_screen_trial_step *steps; /* owned */
    size_t count, room;
    uint64_t heights[16];
    struct poise_screen_decoded shown; /* after all messages */
    struct poise_buf message, reply;
};

void poise_screen_trial_destroy(struct poise_screen_trial *trial)
{
    if (trial) {
        poise_screen_encoder_destroy(trial->encoder);
        poise_screen_decoder_destroy(trial->decoder);
        free(trial->steps);
        poise_buf_free(&trial->message);
        poise_buf_free(&trial->reply);
        free(trial);
    }
}

int poise_screen_trial_create(const struct poise_screen_codec_options *options,
                              struct poise_screen_trial **out)
{
    struct poise_screen_trial *trial = poise_alloc(1, sizeof *trial);
    if (!trial) {
        return -ENOMEM;
    }
    int code = poise_screen_encoder_create(options, &trial->encoder);
    code = code == 0 ? poise_screen_decoder_create(options, &trial->decoder)
                     : code;
    if (code < 0) {
        poise_screen_trial_destroy(trial);
        return code;
    }
    *out = trial;
    return 0;
}

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Messages there and back, until nothing is left to be said. */
static int carry(struct poise_screen_trial *trial,
                 struct poise_screen_trial_step *step)
{
    int code = 0;
    while (code == 0 && trial->message.len > 0) {
        uint64_t begun = cpu_ns();
        step->bytes += trial->message.len;
        poise_buf_reset(&trial->reply);
        code = poise_screen_decode(trial->decoder, trial->message.data,
                                   trial->message.len, &trial->shown,
                                   &trial->reply);
        step->decode_ns += cpu_ns() - begun;
        step->reply_bytes += trial->reply.len;
        poise_buf_reset(&trial->message);
        begun = cpu_ns();
        code =
            code == 0
                ? poise_screen_encoder_reply(trial->encoder, trial->reply.data,
                                             trial->reply.len, &trial->message)
                : code;
        step->encode_ns += cpu_ns() - begun;
        step->rounds += trial->message.len > 0;
    }
    return code;
}

static int add_step(struct poise_screen_trial *trial,
                    const struct poise_screen_trial_step *step)
{
    if (trial->count == trial->room) {
        size_t room = trial->room ? 2 * trial->room : 256;
        struct poise_screen_trial_step *more =
            poise_realloc(trial->steps, room, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        trial->steps = more;
        trial->room = room;
    }
    trial->steps[trial->count++] = *step;
    return 0;
}

static int count_heights(struct poise_screen_trial *trial)
{
    const struct poise_screen_piece *pieces;
    size_t count;
    int code = poise_screen_encoder_pieces(trial->encoder, &pieces, &count);
    for (size_t i = 0; code == 0 && i < count; i++) {
        unsigned bits = 31 - (unsigned)__builtin_clz(pieces[i].rect.height);
        trial->heights[bits < 15 ? bits : 15] +=
            pieces[i].kind == POISE_SCREEN_SEGMENT;
    }
    return code;
}

int poise_screen_trial_add(struct poise_screen_trial *trial,
                           const struct poise_screen_picture *picture,
                           const struct poise_screen_step *step)
{
    struct poise_screen_trial_step now = {.at_us = step->at_us};
    size_t bytes =
        (size_t)picture->width * picture->height * sizeof *picture->pixels;
    for (size_t i = 0; i < step->rect_count; i++) {
        now.pixels += codec_area(&step->rects[i]);
    }
    poise_buf_reset(&trial->message);
    uint64_t begun = cpu_ns();
    int code = poise_screen_encode(trial->encoder, picture, step->rects,
                                   step->rect_count, &trial->message);
    now.encode_ns = cpu_ns() - begun;
    code = code == 0 ? count_heights(trial) : code;
    code = code == 0 ? carry(trial, &now) : code;
    const struct poise_screen_picture *is = trial->shown.picture;
    if (code == 0 &&
        (!is || is->width != picture->width || is->height != picture->height ||
         memcmp(is->pixels, picture->pixels, bytes) != 0)) {
        code = poise_error_set(EILSEQ, "carry a screen", NULL,
                               "update %zu shows other pixels", trial->count);
    }
    return code == 0 ? add_step(trial, &now) : code;
}

struct poise_screen_trial_result
poise_screen_trial_result(const struct poise_screen_trial *trial)
{
    struct poise_screen_trial_result result = {
        .stats = poise_screen_encoder_stats(trial->encoder),
        .steps = trial->steps,
        .count = trial->count};
    memcpy(result.heights, trial->heights, sizeof result.heights);
    return result;
}

int poise_screen_trial_pieces(struct poise_screen_trial *trial,
                              const struct poise_screen_piece **pieces,
                              size_t *count)
{
    return poise_screen_encoder_pieces(trial->encoder, pieces, count);
}

void poise_screen_link_model(const struct poise_screen_link *link,
                             const struct poise_screen_trial_step *steps,
                             size_t count, uint64_t *out_us)
{
    double free_us = 0; /* when the link has sent all that came before */
    for (size_t i = 0; i < count; i++) {
        const struct poise_screen_trial_step *step = &steps[i];
        double ready = (double)step->at_us + (double)step->encode_ns / 1e3;
        double begun = ready > free_us ? ready : free_us;
        double sent = link->bytes_per_s > 0 ? (double)step->bytes * 1e6 /
                                                  (double)link->bytes_per_s
                                            : 0;
        free_us = begun + sent;
        double done = free_us +
                      (double)link->delay_us * (1 + 2.0 * step->rounds) +
                      (double)step->decode_ns / 1e3;
        out_us[i] = (uint64_t)(done - (double)step->at_us);
    }
}
