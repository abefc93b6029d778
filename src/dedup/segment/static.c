/* Segments of one size: in a fixed grid, and at any offset where one that was
 * seen before lies (as rsync finds them). */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

/* ---- fixed -------------------------------------------------------------- */

static int fixed_create(const struct poise_dedup_cut_options *options,
                        void **state)
{
    size_t *size = poise_alloc(1, sizeof *size);

    if (!size) {
        return -ENOMEM;
    }
    *size = dedup_cut_defaults(options, 0).average;
    *state = size;
    return 0;
}

static int fixed_next(void *state, const unsigned char *data, size_t len,
                      bool final, struct poise_dedup_cut *out)
{
    const size_t *size = state;

    (void)data;
    if (len < *size && !final) {
        return 0;
    }
    out->kind = POISE_DEDUP_SEGMENT;
    out->len = len < *size ? len : *size;
    return 1;
}

const struct poise_dedup_method dedup_fixed = {
    .version = POISE_DEDUP_METHOD_VERSION,
    .name = "fixed",
    .summary = "segments of one size, side by side",
    .create = fixed_create,
    .destroy = free,
    .next = fixed_next,
};

/* ---- overlapping static ------------------------------------------------- */

enum { KNOWN_LOG2 = 18 };

struct overlapping {
    size_t size;
    struct dedup_rabin rabin; /* over a whole segment */
    struct dedup_table known; /* fingerprints of segments that were cut */
};

static void overlapping_destroy(void *state)
{
    struct overlapping *own = state;

    dedup_table_free(&own->known);
    free(own);
}

static int overlapping_create(const struct poise_dedup_cut_options *options,
                              void **state)
{
    struct overlapping *own = poise_alloc(1, sizeof *own);

    if (!own) {
        return -ENOMEM;
    }
    own->size = dedup_cut_defaults(options, 0).average;
    dedup_rabin_init(&own->rabin, (uint32_t)own->size);
    if (dedup_table_create(&own->known, KNOWN_LOG2) < 0) {
        free(own);
        return -ENOMEM;
    }
    *state = own;
    return 0;
}

static int overlapping_next(void *state, const unsigned char *data, size_t len,
                            bool final, struct poise_dedup_cut *out)
{
    struct overlapping *own = state;
    size_t size = own->size, at = 0;
    uint64_t first, value;

    if (len < 2 * size && !final) {
        return 0;
    }
    out->kind = POISE_DEDUP_SEGMENT;
    if (len < size) {
        out->len = len;
        return 1;
    }
    first = value = dedup_rabin_start(&own->rabin, data + size);
    while (at < size && dedup_table_get(&own->known, value) == UINT64_MAX) {
        if (at + size >= len) {
            at = size;
            break;
        }
        value =
            dedup_rabin_slide(&own->rabin, value, data[at], data[at + size]);
        at++;
    }
    if (at == 0 || at == size) {
        dedup_table_put(&own->known, first, 0);
        out->len = size;
        return 1;
    }
    /* Little that stands before a known segment is not worth a fingerprint. */
    out->kind = at < size / 4 ? POISE_DEDUP_LITERAL : POISE_DEDUP_SEGMENT;
    out->len = at;
    return 1;
}

const struct poise_dedup_method dedup_overlapping = {
    .version = POISE_DEDUP_METHOD_VERSION,
    .name = "overlapping",
    .summary = "segments of one size, wherever one was seen before",
    .create = overlapping_create,
    .destroy = overlapping_destroy,
    .next = overlapping_next,
};
