/*
 * Sorting arrays in memory: numbers, and entries of a number and what it stands
 * for. Two arrays of one size: what `from` holds is lost.
 */
#ifndef POISE_EXTMEM_ARRAY_H
#define POISE_EXTMEM_ARRAY_H

#include <poise/base.h>

/** What stands for a record or line while its bucket is sorted. */
struct extmem_entry {
    uint64_t key;
    uint32_t at;  /**< offset in the bucket's buffer */
    uint32_t len; /**< of lines: without newline */
};

/** Sort `count` numbers of `from` into `to`, by the quickest way that the
 * processor has. */
void extmem_sort_32(uint32_t *from, uint32_t *to, size_t count);
void extmem_sort_64(uint64_t *from, uint64_t *to, size_t count);
/** By radix, on any processor; into `to` or in place. */
void extmem_radix_32(uint32_t *from, uint32_t *to, size_t count, bool into_to);
void extmem_radix_64(uint64_t *from, uint64_t *to, size_t count, bool into_to);
/** By vectors (vector.c); false: the processor lacks them, nothing was done. */
bool extmem_vector_32(uint32_t *from, uint32_t *to, size_t count);
bool extmem_vector_64(uint64_t *from, uint64_t *to, size_t count);
/** Entries, by entry.key alone; in place, `spare` being as large. Stable. */
void extmem_sort_entries_in(struct extmem_entry *entries,
                            struct extmem_entry *spare, size_t count);

#endif
