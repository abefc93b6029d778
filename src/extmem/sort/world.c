/* What the processes of a sort agree on. All of it is collective. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- buckets ------------------------------------------------------------ */

/* What all ranks have of each bucket, rank by rank. */
static int gather_bytes(struct sort_run *run,
                        const struct sort_buckets *buckets,
                        struct poise_buf *out)
{
    uint64_t *mine = poise_alloc(buckets->count, sizeof *mine);
    int code = mine ? 0 : -ENOMEM;

    for (size_t i = 0; i < buckets->count && code == 0; i++) {
        mine[i] = buckets->items[i].bytes;
    }
    code = extmem_agree(run->world, code);
    if (code == 0) {
        code = poise_world_gather(run->world, 0, mine,
                                  buckets->count * sizeof *mine, out);
        code = extmem_agree(run->world, code);
    }
    if (code == 0) {
        code =
            extmem_agree(run->world, poise_world_broadcast(run->world, 0, out));
    }
    free(mine);
    return code;
}

static int set_bytes(struct sort_run *run, struct sort_buckets *buckets,
                     const struct poise_buf *all)
{
    struct poise_reader reader = poise_reader_of(all->data, all->len);

    run->writer_count = (uint32_t)buckets->count;
    run->writers = poise_alloc(buckets->count, sizeof *run->writers);
    if (!run->writers) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < buckets->count; i++) {
        buckets->items[i].all_bytes = 0;
        run->writers[i] = SORT_NOBODY;
    }
    for (unsigned rank = 0; rank < run->processes; rank++) {
        size_t len;
        const char *bytes = poise_reader_blob(&reader, &len);

        if (reader.error || len != buckets->count * sizeof(uint64_t)) {
            return poise_error_set(EPROTO, "sort", NULL,
                                   "rank %u has other buckets", rank);
        }
        for (size_t i = 0; i < buckets->count; i++) {
            struct sort_bucket *bucket = &buckets->items[i];
            uint64_t some;

            memcpy(&some, bytes + i * sizeof some, sizeof some);
            if (some > 0 && run->writers[i] == SORT_NOBODY) {
                run->writers[i] = rank;
            }
            bucket->all_bytes += some;
            bucket->bytes_before += rank < run->rank ? some : 0;
        }
    }
    return 0;
}

int sort_count_all(struct sort_run *run, struct sort_buckets *buckets)
{
    struct poise_buf all = {0};
    int code;

    if (!run->world) {
        return 0;
    }
    code = gather_bytes(run, buckets, &all);
    if (code == 0) {
        code = set_bytes(run, buckets, &all);
    }
    poise_buf_free(&all);
    return extmem_agree(run->world, code);
}

int sort_result_all(struct poise_world *world, struct poise_sort_result *all)
{
    uint64_t mean = all->mean_bytes * all->buckets;
    uint64_t *sums[] = {
        &all->items_in,
        &all->items_out,
        &all->bytes_out,
        &all->read_bytes,
        &all->written_bytes,
        &all->scratch_bytes,
        &all->memory_bytes,
        &all->buckets,
        &all->splits,
        &all->checksum,
        &mean,
    };
    uint64_t *most[] = {&all->largest_bytes, &all->sample_ns,
                        &all->distribute_ns, &all->sort_ns};
    enum {
        SUMS = sizeof sums / sizeof *sums,
        MOST = sizeof most / sizeof *most
    };
    uint64_t values[SUMS], peaks[MOST];
    int code;

    if (!world) {
        return 0;
    }
    for (int i = 0; i < SUMS; i++) {
        values[i] = *sums[i];
    }
    for (int i = 0; i < MOST; i++) {
        peaks[i] = *most[i];
    }
    code =
        extmem_agree(world, poise_world_reduce(world, POISE_SUM, values, SUMS));
    if (code == 0) {
        code = extmem_agree(world,
                            poise_world_reduce(world, POISE_MAX, peaks, MOST));
    }
    for (int i = 0; i < SUMS && code == 0; i++) {
        *sums[i] = values[i];
    }
    for (int i = 0; i < MOST && code == 0; i++) {
        *most[i] = peaks[i];
    }
    all->mean_bytes = all->buckets > 0 ? mean / all->buckets : 0;
    return code;
}
