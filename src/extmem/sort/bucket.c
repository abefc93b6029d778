/* Buckets: what is common to both passes. */
#include "extmem/internal.h"

#include <stdlib.h>

void sort_bucket_free(struct sort_bucket *bucket)
{
    if (bucket->streams) {
        for (unsigned i = 0; i < bucket->stream_count; i++) {
            free(bucket->streams[i].spans);
        }
    }
    free(bucket->streams);
    bucket->streams = NULL;
}

void sort_buckets_free(struct sort_buckets *buckets)
{
    for (size_t i = 0; i < buckets->count; i++) {
        sort_bucket_free(&buckets->items[i]);
    }
    free(buckets->items);
    buckets->items = NULL;
    buckets->count = 0;
}

bool sort_bucket_fits(const struct sort_run *run,
                      const struct sort_bucket *bucket)
{
    uint64_t bytes = 0;

    if (bucket->uniform) {
        return true;
    }
    for (unsigned i = 0; i < bucket->stream_count; i++) {
        bytes += sort_round_up(bucket->streams[i].bytes, SORT_PAGE);
    }
    return bytes <= run->plan.bucket_limit &&
           (run->plan.entries == 0 || bucket->items <= run->plan.entries);
}
