/*
 * What the protocol knows of a cache beside <poise/cache.h>: where segments lie
 * without reading their data, and what both ends' caches have in common.
 */
#ifndef POISE_DEDUP_CACHE_STORE_H
#define POISE_DEDUP_CACHE_STORE_H

#include <poise/cache.h>

struct dedup_entry {
    uint64_t fingerprint; /* all 64 bits */
    uint32_t offset, len;
    unsigned char digest[POISE_DEDUP_DIGEST_BYTES];
};

/** Of a segment's bytes, and so the same in every cache: an index that is full
 * keeps those with the least, and two ends the same ones. */
static inline uint64_t
dedup_rank(const unsigned char digest[POISE_DEDUP_DIGEST_BYTES])
{
    return (uint64_t)digest[0] << 8 | digest[1];
}
/** The store's key: it stays where it is. */
const struct poise_dedup_key *
dedup_store_key(const struct poise_dedup_store *store);
/** Whether the index is too small for all that the store has: a segment may be
 * there and not be found. */
bool dedup_store_is_sampled(const struct poise_dedup_store *store);
/** How many segments on from one position another is, if both are there, that
 * is at most `most`, and back only in the same container. */
bool dedup_store_distance(const struct poise_dedup_store *store, uint64_t from,
                          uint64_t to, int64_t most, int64_t *out);
/** What is known of the segment at a position, without its data, which are the
 * borrower's until the store's next call: 1; 0 if it is there no more. */
int dedup_store_entry(struct poise_dedup_store *store, uint64_t position,
                      const struct dedup_entry **out);
/** Whether the segment at a position is this one: 1. By its digest, if its
 * data are not in memory. */
int dedup_store_is(struct poise_dedup_store *store, uint64_t position,
                   const void *data, size_t len);
/** Whether a cache that was given the same finds a segment of this fingerprint,
 * all 64 bits, at this position: not by which containers happen to be in
 * memory. */
bool dedup_store_names(struct poise_dedup_store *store, uint64_t fingerprint,
                       uint64_t position);
/** The fingerprint of data, all 64 bits, which will be looked for soon: the
 * index's memory is asked for meanwhile. */
uint64_t dedup_store_expect(const struct poise_dedup_store *store,
                            const void *data, size_t len);
/** As poise_dedup_store_add, with the fingerprint, all 64 bits, which the
 * caller knows already: 1 if the segment is new, 0 if it was there at `since`
 * or behind it. In front of that it does not count: it is added once more, and
 * found where it came last, so that two caches that are given the same from
 * `since` on are alike from there on, whatever they held before. */
int dedup_store_add(struct poise_dedup_store *store, uint64_t fingerprint,
                    const void *data, size_t len, uint64_t since,
                    uint64_t *position);

#endif
