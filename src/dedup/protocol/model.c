/* Equation 1: what two levels of fingerprints send. */
#include <poise/dedup.h>
#include <poise/model.h>

#include <math.h>

struct poise_dedup_forecast
poise_dedup_model_run(const struct poise_dedup_model *model)
{
    double fresh = model->data_bytes * (1 - model->redundancy);
    double segments = model->data_bytes / model->segment_bytes;
    double cached = fresh / model->segment_bytes;
    double group = model->group_segments > 0 ? model->group_segments : 1;
    double each = model->bits / 8.0 + model->message_bytes;
    struct poise_dedup_forecast out = {.fresh_bytes = fresh};

    if (model->group_bits > 0) {
        each += model->group_bits / 8.0 / group;
        /* The sum of i / 2^k over all segments that were inserted; each of
         * these collisions costs a group. */
        out.collision_bytes = group * model->segment_bytes * cached *
                              (cached + 1) / 2 * exp2(-(double)model->bits);
    }
    out.fingerprint_bytes = segments * each;
    out.ratio = model->data_bytes /
                (out.fresh_bytes + out.fingerprint_bytes + out.collision_bytes);
    return out;
}

void poise_dedup_model_choose(struct poise_dedup_model *model)
{
    struct poise_dedup_model best = *model;
    double ratio = 0;

    for (unsigned bits = 16; bits <= 64; bits += 8) {
        for (unsigned group = 1; group <= 256; group++) {
            struct poise_dedup_model try = *model;
            double now;
            try.bits = bits;
            try.group_segments = group;
            now = poise_dedup_model_run(&try).ratio;
            if (now > ratio) {
                ratio = now;
                best = try;
            }
        }
    }
    *model = best;
}

double poise_dedup_model_break_even(const struct poise_dedup_model *model,
                                    unsigned single_bits, double low,
                                    double high)
{
    /* Steps of one per cent: two levels win up to some size, if at all. */
    const double step = 1.01;
    double found = 0;

    for (double size = low; size <= high; size *= step) {
        struct poise_dedup_model two = *model, one = *model;
        two.segment_bytes = one.segment_bytes = size;
        one.bits = single_bits;
        one.group_bits = 0;
        if (poise_dedup_model_run(&two).ratio >
            poise_dedup_model_run(&one).ratio) {
            found = size;
        }
    }
    return found * step > high ? high : found;
}
