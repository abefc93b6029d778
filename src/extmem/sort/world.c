/* What the processes of a sort agree on. All of it is collective. */
#include "extmem/internal.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct poise_world *sort_world(struct poise_world *world)
{
    return world && poise_world_size(world) > 1 ? world : NULL;
}

int sort_agree(struct poise_world *world, int code)
{
    int agreed;

    if (!world) {
        return code;
    }
    agreed = poise_world_agree(world, code == -ECANCELED ? 0 : code);
    return agreed < 0 ? agreed : code;
}

/* ---- shares ------------------------------------------------------------- */

static unsigned ranks_here(struct poise_world *world)
{
    const int *ranks;

    return world ? (unsigned)poise_world_group(world, POISE_LEVEL_NODE, &ranks)
                 : 1;
}

uint64_t sort_share_memory(struct poise_world *world, uint64_t memory_bytes)
{
    uint64_t all = memory_bytes ? memory_bytes : sort_default_memory();

    return all / ranks_here(world);
}

unsigned sort_share_threads(struct poise_world *world, unsigned threads)
{
    enum { MOST = 256 };
    cpu_set_t set;
    unsigned n = threads;

    if (n == 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        unsigned share = (unsigned)(online > 0 ? online : 1);

        share /= ranks_here(world);
        n = sched_getaffinity(0, sizeof set, &set) == 0
                ? (unsigned)CPU_COUNT(&set)
                : 1;
        /* Some launchers give each process its processors, some do not. */
        n = world && share < n ? share : n;
    }
    return n < 1 ? 1 : n > MOST ? MOST : n;
}

/* ---- numbers ------------------------------------------------------------ */

int sort_least(struct poise_world *world, uint64_t *values, size_t count)
{
    int code = world ? poise_world_reduce(world, POISE_MIN, values, count) : 0;

    return sort_agree(world, code);
}

int sort_same_size(struct poise_world *world, const char *path, uint64_t bytes)
{
    /* The greatest is the least of what is missing to the end. */
    uint64_t sizes[2] = {bytes, UINT64_MAX - bytes};
    int code = sort_least(world, sizes, 2);

    if (code == 0 && sizes[0] != UINT64_MAX - sizes[1]) {
        code = poise_error_set(EINVAL, "read", path,
                               "it is not the same file for all processes: "
                               "some see %llu bytes, others %llu",
                               (unsigned long long)sizes[0],
                               (unsigned long long)(UINT64_MAX - sizes[1]));
    }
    return code;
}

int sort_tell_all(struct poise_world *world, void *data, size_t len)
{
    struct poise_buf buf = {0};
    int code = 0;

    if (!world) {
        return 0;
    }
    if (poise_world_rank(world) == 0) {
        poise_buf_append(&buf, data, len);
    }
    code = poise_world_broadcast(world, 0, &buf);
    if (code == 0 && buf.len != len) {
        code = poise_error_set(EPROTO, "sort", NULL,
                               "the processes are not the same program");
    }
    if (code == 0) {
        memcpy(data, buf.data, len);
    }
    poise_buf_free(&buf);
    return sort_agree(world, code);
}

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
    code = sort_agree(run->world, code);
    if (code == 0) {
        code = poise_world_gather(run->world, 0, mine,
                                  buckets->count * sizeof *mine, out);
        code = sort_agree(run->world, code);
    }
    if (code == 0) {
        code =
            sort_agree(run->world, poise_world_broadcast(run->world, 0, out));
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
    return sort_agree(run->world, code);
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
        sort_agree(world, poise_world_reduce(world, POISE_SUM, values, SUMS));
    if (code == 0) {
        code = sort_agree(world,
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
