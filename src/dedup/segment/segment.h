/*
 * What the other rooms of dedup know of segmenters beside <poise/segment.h>:
 * batches of pieces, and the methods that the protocol names itself.
 */
#ifndef POISE_DEDUP_SEGMENT_SEGMENT_H
#define POISE_DEDUP_SEGMENT_SEGMENT_H

#include <poise/segment.h>

/* ---- methods ------------------------------------------------------------ */

extern const struct poise_dedup_method dedup_fixed, dedup_lbfs, dedup_gear,
    dedup_floats, dedup_auto;

/** The options with every default filled in and every limit kept. */
struct poise_dedup_cut_options
dedup_cut_defaults(const struct poise_dedup_cut_options *options,
                   uint32_t window);
/* ---- segmenter.c -------------------------------------------------------- */

/** From now on pieces are emitted up to DEDUP_BATCH at a time, by this. */
enum { DEDUP_BATCH = 64 };
void dedup_segmenter_batch(struct poise_dedup_segmenter *segmenter,
                           int (*emit)(const struct poise_dedup_piece *pieces,
                                       size_t count, void *arg));
/** Begin a new stream, whose pieces go to emit with this argument. What was
 * held back is lost. After an error the segmenter is as it was. */
int dedup_segmenter_restart(struct poise_dedup_segmenter *segmenter, void *arg);

/* ---- table.c ------------------------------------------------------------ */

/** A table of fixed size from 64-bit hashes to values; new entries push out
 * old ones of the same bucket. */
struct dedup_table {
    struct dedup_slot *slots;
    size_t mask;
};
int dedup_table_create(struct dedup_table *table, unsigned log2_slots);
void dedup_table_free(struct dedup_table *table);
/** The value, or UINT64_MAX. */
uint64_t dedup_table_get(const struct dedup_table *table, uint64_t hash);
void dedup_table_put(struct dedup_table *table, uint64_t hash, uint64_t value);

#endif
