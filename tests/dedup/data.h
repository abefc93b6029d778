/* Data for the tests of room dedup: the same on every machine. */
#ifndef DEDUP_DATA_H
#define DEDUP_DATA_H

#include <poise/core.h>

#include <stdlib.h>
#include <string.h>

enum dedup_data {
    DATA_RANDOM,
    DATA_WORDS, /* of a small vocabulary, with line ends */
    DATA_ZEROS,
    DATA_PERIOD, /* of twelve bytes */
    DATA_MIXED,  /* stretches of all of them, some of them repeated */
    DATA_KINDS
};

static inline void data_words(unsigned char *to, size_t len,
                              struct poise_rng *rng)
{
    for (size_t i = 0; i < len;) {
        struct poise_rng word;
        poise_rng_seed(&word, poise_rng_below(rng, 500));
        size_t letters = 2 + poise_rng_below(&word, 8);
        for (size_t k = 0; k < letters && i < len; k++) {
            to[i++] = (unsigned char)('a' + poise_rng_below(&word, 26));
        }
        if (i < len) {
            to[i++] = poise_rng_below(rng, 9) == 0 ? '\n' : ' ';
        }
    }
}

static inline void data_fill(unsigned char *to, size_t len,
                             enum dedup_data kind, struct poise_rng *rng)
{
    switch (kind) {
    case DATA_RANDOM:
        for (size_t i = 0; i < len; i++) {
            to[i] = (unsigned char)(poise_rng_next(rng) >> 40);
        }
        break;
    case DATA_WORDS:
        data_words(to, len, rng);
        break;
    case DATA_ZEROS:
        memset(to, 0, len);
        break;
    case DATA_PERIOD:
        for (size_t i = 0; i < len; i++) {
            to[i] = (unsigned char)"abcdefghijkl"[i % 12];
        }
        break;
    default:
        for (size_t at = 0; at < len;) {
            size_t n = 1 + poise_rng_below(rng, 20000);
            n = n < len - at ? n : len - at;
            if (at > 0 && poise_rng_below(rng, 2) == 0) {
                size_t from = poise_rng_below(rng, at);
                n = n < at - from ? n : at - from;
                memcpy(to + at, to + from, n);
            } else {
                data_fill(to + at, n,
                          (enum dedup_data)poise_rng_below(rng, DATA_MIXED),
                          rng);
            }
            at += n;
        }
        break;
    }
}

/* Owned by the caller. */
static inline unsigned char *data_make(size_t len, enum dedup_data kind,
                                       uint64_t seed)
{
    struct poise_rng rng;
    unsigned char *data = malloc(len + 1);

    poise_rng_seed(&rng, seed);
    if (data) {
        data_fill(data, len, kind, &rng);
    }
    return data;
}

#endif
