/*
 * From fingerprints to positions, in memory of fixed size. Full, it drops what
 * is no more, and if that is not enough, every second fingerprint.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

int dedup_index_create(struct dedup_index *index, size_t memory_bytes)
{
    size_t cells = 1024;

    while (2 * cells * sizeof *index->cells <= memory_bytes) {
        cells *= 2;
    }
    index->cells = poise_alloc(cells, sizeof *index->cells);
    if (!index->cells) {
        return -ENOMEM;
    }
    index->mask = cells - 1;
    index->used = 0;
    index->sampling = 0;
    return 0;
}

void dedup_index_free(struct dedup_index *index)
{
    free(index->cells);
    index->cells = NULL;
}

bool dedup_index_is_full(const struct dedup_index *index)
{
    return index->used > index->mask - index->mask / 4;
}

bool dedup_index_keeps(const struct dedup_index *index, uint64_t fingerprint)
{
    /* By bits that have no say in where a cell lies. */
    return poise_hash_u64(fingerprint) >> 32 >> (32 - index->sampling) == 0;
}

/* The cell of a fingerprint, or the empty one where it would lie. */
static struct dedup_cell *cell_of(const struct dedup_index *index,
                                  uint64_t fingerprint)
{
    size_t at = (size_t)poise_hash_u64(fingerprint) & index->mask;

    while (index->cells[at].position != 0 &&
           index->cells[at].fingerprint != fingerprint) {
        at = (at + 1) & index->mask;
    }
    return &index->cells[at];
}

uint64_t dedup_index_get(const struct dedup_index *index, uint64_t fingerprint)
{
    return cell_of(index, fingerprint)->position - 1;
}

void dedup_index_put(struct dedup_index *index, uint64_t fingerprint,
                     uint64_t position)
{
    struct dedup_cell *cell;

    if (!dedup_index_keeps(index, fingerprint)) {
        return;
    }
    cell = cell_of(index, fingerprint);
    /* One cell stays empty, or no search would end. */
    if (cell->position == 0 && index->used == index->mask) {
        return;
    }
    index->used += cell->position == 0;
    *cell = (struct dedup_cell){fingerprint, position + 1};
}

int dedup_index_sweep(struct dedup_index *index, unsigned sampling,
                      bool (*alive)(uint64_t position, const void *arg),
                      const void *arg)
{
    struct dedup_index swept = {.mask = index->mask, .sampling = sampling};

    swept.cells = poise_alloc(index->mask + 1, sizeof *swept.cells);
    if (!swept.cells) {
        return -ENOMEM;
    }
    for (size_t i = 0; i <= index->mask; i++) {
        const struct dedup_cell *cell = &index->cells[i];
        if (cell->position != 0 && alive(cell->position - 1, arg)) {
            dedup_index_put(&swept, cell->fingerprint, cell->position - 1);
        }
    }
    free(index->cells);
    *index = swept;
    return 0;
}
