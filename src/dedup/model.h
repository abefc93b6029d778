/*
 * poise/model.h - what sending each byte once would cost (equation 1).
 */
#ifndef POISE_MODEL_H
#define POISE_MODEL_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_dedup_model {
    double data_bytes;       /**< S */
    double redundancy;       /**< R / S, from 0 to 1 */
    double segment_bytes;    /**< s */
    unsigned bits;           /**< k: of an optimistic fingerprint */
    unsigned group_bits;     /**< l: of a conservative one; 0: one level */
    unsigned group_segments; /**< p: segments that it covers */
    double message_bytes;    /**< of a segment's messages beside these; the
                                  paper's equation has none */
};
struct poise_dedup_forecast {
    double fresh_bytes, fingerprint_bytes, collision_bytes;
    double ratio; /**< S / their sum */
};
/** Source: thesis equation 1 (equation 2 of 8.4). */
POISE_API struct poise_dedup_forecast
poise_dedup_model_run(const struct poise_dedup_model *model);
/** Choose bits (a multiple of 8 from 16 to 64) and group_segments (1 to 256)
 * so that the ratio is best. */
POISE_API void poise_dedup_model_choose(struct poise_dedup_model *model);
/** The segment size between `low` and `high` from which on two levels lose
 * against one with `single_bits`; 0 if they never win, `high` if always. */
POISE_API double
poise_dedup_model_break_even(const struct poise_dedup_model *model,
                             unsigned single_bits, double low, double high);

#ifdef __cplusplus
}
#endif

#endif
