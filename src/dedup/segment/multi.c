/* Two resolutions: a large segment if it was seen before, else its parts. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

enum { COARSER = 16, KNOWN_LOG2 = 18 };

struct multi {
    struct dedup_gear fine, coarse;
    struct dedup_table known; /* large segments by their hash */
    size_t parts;             /* bytes left of one that is cut finely */
};

static void multi_destroy(void *state)
{
    struct multi *own = state;

    dedup_table_free(&own->known);
    free(own);
}

static int multi_create(const struct poise_dedup_cut_options *options,
                        void **state)
{
    struct poise_dedup_cut_options fine =
        dedup_cut_defaults(options, DEDUP_GEAR_WINDOW);
    struct poise_dedup_cut_options coarse = {.average = COARSER * fine.average};
    struct multi *own = poise_alloc(1, sizeof *own);

    if (!own) {
        return -ENOMEM;
    }
    if (coarse.average > POISE_DEDUP_SEGMENT_MOST / 4) {
        coarse.average = POISE_DEDUP_SEGMENT_MOST / 4;
    }
    coarse = dedup_cut_defaults(&coarse, DEDUP_GEAR_WINDOW);
    dedup_gear_init(&own->fine, &fine);
    dedup_gear_init(&own->coarse, &coarse);
    if (dedup_table_create(&own->known, KNOWN_LOG2) < 0) {
        free(own);
        return -ENOMEM;
    }
    *state = own;
    return 0;
}

static int multi_next(void *state, const unsigned char *data, size_t len,
                      bool final, struct poise_dedup_cut *out)
{
    struct multi *own = state;
    int found;

    if (own->parts == 0) {
        uint64_t hash;
        found = dedup_gear_next(&own->coarse, data, len, final, out);
        if (found <= 0) {
            return found;
        }
        hash = poise_hash_bytes(data, out->len, 0);
        if (dedup_table_get(&own->known, hash) != UINT64_MAX) {
            return 1;
        }
        dedup_table_put(&own->known, hash, 0);
        own->parts = out->len;
    }
    /* All of it is here: its end was found, or a run came between. */
    if (own->parts < len) {
        len = own->parts;
        final = true;
    } else if (own->parts == len) {
        final = true;
    }
    found = dedup_gear_next(&own->fine, data, len, final, out);
    if (found > 0) {
        own->parts -= out->len;
    }
    return found;
}

const struct poise_dedup_method dedup_multi = {
    .version = POISE_DEDUP_METHOD_VERSION,
    .name = "multi",
    .summary = "16 times larger segments where they were seen before",
    .create = multi_create,
    .destroy = multi_destroy,
    .next = multi_next,
};
