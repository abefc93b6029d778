/*
 * poise/store.h - segments of a cache: found, read and added.
 */
#ifndef POISE_STORE_H
#define POISE_STORE_H

#include <poise/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The fingerprint of data in this store, cut to its width. */
uint64_t poise_dedup_store_fingerprint(const struct poise_dedup_store *store,
                                       const void *data, size_t len);

/** Where the segment with this fingerprint lies: 1; 0 if there is none. */
int poise_dedup_store_find(struct poise_dedup_store *store,
                           uint64_t fingerprint, uint64_t *position);

struct poise_dedup_stored {
    const unsigned char *data; /**< borrowed until the store's next call */
    size_t len;
    uint64_t fingerprint;
};
/** The segment at a position: 1; 0 if it is there no more. */
int poise_dedup_store_read(struct poise_dedup_store *store, uint64_t position,
                           struct poise_dedup_stored *out);
/** The position `by` segments further on (or back) in the order in which they
 * came: 1; 0 if there is none. */
int poise_dedup_store_step(struct poise_dedup_store *store, uint64_t position,
                           int64_t by, uint64_t *out);
/** Add a segment of 1 to POISE_DEDUP_SEGMENT_MOST bytes; where it is known
 * already, that is its position. Another one with the same fingerprint is
 * found no more. */
int poise_dedup_store_add(struct poise_dedup_store *store, const void *data,
                          size_t len, uint64_t *position);
/** Hand what was added to the operating system: it outlives this process. */
int poise_dedup_store_flush(struct poise_dedup_store *store);

#ifdef __cplusplus
}
#endif

#endif
