/* When only the first items are wanted: what need not be kept. */
#include "internal.h"

#include <stdlib.h>

void sort_cut_note(struct sort_cut *cut, uint32_t i, uint32_t count,
                   uint64_t items)
{
    uint32_t last = __atomic_load_n(&cut->last, __ATOMIC_RELAXED);
    uint64_t sum = 0;

    __atomic_fetch_add(&cut->counts[i], items, __ATOMIC_RELAXED);
    for (uint32_t j = 0; j < last && j < count; j++) {
        sum += __atomic_load_n(&cut->counts[j], __ATOMIC_RELAXED);
        if (sum >= cut->wanted) {
            /* Counts only grow: a later look finds no later bucket. */
            while (j < last && !__atomic_compare_exchange_n(
                                   &cut->last, &last, j, false,
                                   __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            }
            return;
        }
    }
}

void sort_cut_buckets(struct sort_buckets *buckets, uint64_t wanted,
                      struct sort_run *run)
{
    uint64_t before = 0;

    for (size_t i = 0; i < buckets->count; i++) {
        struct sort_bucket *bucket = &buckets->items[i];
        uint64_t items = bucket->items;

        if (before >= wanted) {
            run->left_out += items;
            sort_bucket_release(bucket, &run->store);
            sort_bucket_free(bucket);
            bucket->stream_count = 0;
            bucket->bytes = bucket->items = bucket->all_bytes = 0;
        }
        before += items;
    }
}
