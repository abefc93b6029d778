/* Buckets: what is common to both passes. */
#include "internal.h"

#include <stdlib.h>

void sort_bucket_free(struct sort_bucket *bucket)
{
    if (bucket->streams) {
        for (unsigned i = 0; i < bucket->stream_count; i++) {
            free(bucket->streams[i].spans);
        }
    }
    free(bucket->streams);
    free(bucket->totals);
    bucket->streams = NULL;
    bucket->totals = NULL;
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

int sort_bucket_release(const struct sort_bucket *bucket,
                        struct extmem_store *store)
{
    int code = 0;

    for (unsigned i = 0; i < bucket->stream_count; i++) {
        const struct sort_stream *stream = &bucket->streams[i];

        for (size_t j = 0; j < stream->count && code == 0; j++) {
            if (!stream->spans[j].memory) {
                code =
                    extmem_store_free_slots(store, &stream->spans[j].slot, 1);
            }
        }
    }
    return code;
}

bool sort_bucket_fits(const struct sort_run *run,
                      const struct sort_bucket *bucket)
{
    uint64_t bytes = 0;

    if (bucket->uniform) {
        return true;
    }
    for (unsigned i = 0; i < bucket->stream_count; i++) {
        bytes += extmem_round_up(bucket->streams[i].bytes, EXTMEM_PAGE);
    }
    return bytes <= run->plan.bucket_limit &&
           (run->plan.entries == 0 || bucket->items <= run->plan.entries);
}
