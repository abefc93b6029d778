/* Buckets: what is common to both passes. */
#include "internal.h"

#include <errno.h>
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
            /* Others may lie in the slot of a packed one. */
            if (!stream->spans[j].memory && stream->spans[j].packed == 0) {
                code =
                    extmem_store_free_slots(store, &stream->spans[j].slot, 1);
            }
        }
    }
    return code;
}

static void start_read(struct extmem_store *store, const struct sort_span *span,
                       char *data, uint64_t bytes,
                       struct poise_disk_transfer *transfer)
{
    uint64_t place;
    struct poise_disk *disk =
        extmem_store_place(store, span->slot, span->at, &place);

    *transfer = (struct poise_disk_transfer){
        .data = data,
        .len = extmem_round_up(bytes, EXTMEM_PAGE),
        .offset = place,
    };
    poise_disk_start(disk, transfer);
}

void sort_span_read(struct extmem_store *store, const struct sort_span *span,
                    char *data, struct poise_disk_transfer *transfer)
{
    start_read(store, span, data, span->packed > 0 ? span->packed : span->bytes,
               transfer);
}

/* Whether `b` lies behind `a`, on one disk, as it will in memory. */
static bool is_behind(const struct extmem_store *store,
                      const struct sort_span *a, const struct sort_span *b)
{
    return (store->scratch.within || store->disk_count == 1) && !b->memory &&
           a->packed == 0 && b->packed == 0 && b->slot == a->slot + 1 &&
           a->bytes == store->block_bytes;
}

size_t sort_spans_read(struct extmem_store *store,
                       const struct sort_span *spans, size_t count, char *data,
                       struct poise_disk_transfer *transfer)
{
    enum { MOST = 1 << 20 };
    uint64_t bytes = spans->bytes;
    size_t n = 1;

    while (n < count && is_behind(store, &spans[n - 1], &spans[n]) &&
           bytes + spans[n].bytes <= MOST) {
        bytes += spans[n++].bytes;
    }
    start_read(store, spans, data, spans->packed > 0 ? spans->packed : bytes,
               transfer);
    return n;
}

int sort_span_check(const struct sort_span *span, const void *block)
{
    return span->check == 0 || span->check == sort_check_of(block, span->bytes)
               ? 0
               : poise_error_set(EBADMSG, "read a scratch file", NULL,
                                 "it does not hold what was written there");
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

/* ---- when only the first items are wanted ------------------------------- */

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
