/* Shared by bench/dedup/wire.c (the ends, the segmenter) and
 * bench/dedup/wire_cache.c. */
#ifndef BENCH_WIRE_H
#define BENCH_WIRE_H

#include <poise/dedup.h>

#include <stdio.h>
#include <string.h>

struct bench_how {
    const struct poise_dedup_method *method;
    struct poise_dedup_cut_options cut;
    uint32_t bits, container;
    int level;
    uint64_t memory;
    bool forgets;
    const char *sender, *receiver; /* folders of caches, or NULL */
};

struct bench_bytes {
    unsigned char *data;
    size_t len;
};

/* Say why; 1. */
int bench_fail(const char *what);
/* Map a file; -1 after words. */
int bench_read(const char *path, struct bench_bytes *out);
/* Let the system forget what it holds of a cache. */
void bench_chill(const char *folder);
/* `bench/wire cache`: what happens in a cache while files come. */
int bench_cache(const struct bench_how *how, char **paths, int count);

#endif
