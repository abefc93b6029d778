/* Keys of a random sample, from which thresholds are chosen. */
#ifndef POISE_SORT_SAMPLE_H
#define POISE_SORT_SAMPLE_H

#include "internal.h"

enum { SORT_SAMPLES_AT_ONCE = 32 };

struct sort_sample {
    const struct sort_source *source;
    size_t look, stride;
    uint64_t reads;
    char *memory;
    struct extmem_fetch fetches[SORT_SAMPLES_AT_ONCE];
    struct sort_key *keys; /* `bytes` are offsets into the text */
    size_t count, room;
    struct poise_buf text, key;
};

/** About `reads` samples of sample->source, their keys in order. Collective if
 * it is shared: then the first process has those of all. */
int sort_sample_take(struct sort_sample *sample, uint64_t reads,
                     bool is_shared);
void sort_sample_free(struct sort_sample *sample);

#endif
