/* A run: look at the data, make a plan, distribute, sort bucket by bucket. */
#include "extmem/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/** A bucket that does not shrink when it is split is not split for ever. */
#define MOST_ROUNDS 16

int sort_input_open(const char *path, const struct poise_sort_options *options,
                    struct poise_disk **disk, uint64_t *bytes)
{
    uint32_t item = sort_item_bytes(&options->type);
    struct stat st;
    int code = sort_type_check(&options->type);

    if (code == 0) {
        code = poise_disk_open(path, O_RDONLY, 0, &options->disk, disk);
    }
    if (code < 0) {
        return code;
    }
    if (fstat(poise_disk_fd(*disk), &st) != 0) {
        code = poise_error_set(errno, "look at", path, NULL);
    } else if (!S_ISREG(st.st_mode)) {
        code = poise_error_set(EINVAL, "read", path, "not a regular file");
    } else if ((uint64_t)st.st_size % item != 0) {
        code = poise_error_set(EINVAL, "read", path,
                               "%llu bytes are no multiple of the %u of an "
                               "item: %llu too many",
                               (unsigned long long)st.st_size, item,
                               (unsigned long long)st.st_size % item);
    }
    if (code < 0) {
        poise_disk_close(*disk);
        *disk = NULL;
        return code;
    }
    *bytes = (uint64_t)st.st_size;
    return 0;
}

/* One file by two names is one file. */
static int refuse_same(struct poise_disk *in, const char *out, bool in_place)
{
    struct stat a, b;

    if (in_place || fstat(poise_disk_fd(in), &a) != 0 || stat(out, &b) != 0 ||
        a.st_dev != b.st_dev || a.st_ino != b.st_ino) {
        return 0;
    }
    return poise_error_set(EINVAL, "write", out,
                           "it is the input, and --in-place is not given");
}

/* The mean length of lines, from a few looks. */
static int look_at_lines(struct sort_run *run, struct sort_census *census)
{
    enum { LOOK = 1 << 16, LOOKS = 8 };
    size_t room = LOOK + 2 * SORT_PAGE;
    uint64_t bounds[2] = {0, run->in_bytes}, seen = 0, lines = 0;
    struct sort_source whole = {.run = run, .bounds = bounds};
    char *memory = poise_huge_alloc(room);
    int code = memory ? 0 : -ENOMEM;

    for (unsigned i = 0; i < LOOKS && code == 0; i++) {
        struct sort_fetch fetch;

        code = sort_source_start(&whole, 0, run->in_bytes / LOOKS * i, LOOK,
                                 memory, &fetch);
        if (code == 0) {
            code = sort_source_finish(&fetch);
        }
        for (size_t j = 0; code == 0 && j < fetch.len; j++) {
            lines += fetch.data[j] == '\n';
        }
        seen += code == 0 ? fetch.len : 0;
    }
    poise_huge_free(memory, room);
    census->item_bytes = (double)seen / (lines > 0 ? (double)lines : 1);
    return code;
}

uint64_t sort_default_memory(void)
{
    const uint64_t least_kept = (uint64_t)6 << 20;
    uint64_t all = poise_memory_available();
    uint64_t kept = all / 10;

    if (kept < least_kept) {
        kept = all / 2 < least_kept ? all / 2 : least_kept;
    }
    return all - kept;
}

static int refuse_memory(const struct sort_run *run,
                         const struct sort_census *census, uint64_t memory)
{
    struct poise_buf least = {0}, have = {0};
    int code;

    poise_human_bytes(&least, sort_plan_least(run->options, census, 1));
    poise_human_bytes(&have, memory);
    code = poise_error_set(
        ENOMEM, "sort", poise_disk_path(run->in),
        "%s of memory are too little%s: at least %s", poise_buf_str(&have),
        run->world ? " for a process" : "", poise_buf_str(&least));
    poise_buf_free(&least);
    poise_buf_free(&have);
    return code;
}

static int search_plan(struct sort_run *run, uint64_t memory, unsigned lanes)
{
    const struct poise_sort_options *options = run->options;
    struct sort_census census = {.bytes = run->in_bytes,
                                 .processes = run->processes,
                                 .item_bytes = run->item_bytes,
                                 .least_item = run->item_bytes};
    uint64_t worth = run->in_bytes / run->processes / (256 << 10) + 1;
    int code = 0;

    if (run->shape == SORT_TEXT && run->in_bytes > 0) {
        code = look_at_lines(run, &census);
    }
    lanes = lanes < worth ? lanes : (unsigned)worth;
    while (code == 0 &&
           sort_plan_make(options, &census, memory, lanes, &run->plan) < 0) {
        if (--lanes == 0) {
            code = refuse_memory(run, &census, memory);
        }
    }
    return code;
}

/* The first process makes the plan, for the least of what each of them has. */
static int make_plan(struct sort_run *run)
{
    const struct poise_sort_options *options = run->options;
    uint64_t shares[] = {sort_share_memory(run->world, options->memory_bytes),
                         sort_share_threads(run->world, options->threads)};
    int code =
        sort_same_size(run->world, poise_disk_path(run->in), run->in_bytes);

    if (code == 0) {
        code = sort_least(run->world, shares, 2);
    }
    if (code == 0 && run->rank == 0) {
        code = search_plan(run, shares[0], (unsigned)shares[1]);
    }
    code = sort_agree(run->world, code);
    return code < 0 ? code
                    : sort_tell_all(run->world, &run->plan, sizeof run->plan);
}

/* What the plan asks for: memory, scratch files, the output. */
static int open_all(struct sort_run *run, const char *out)
{
    struct poise_buf folder = {0};
    int code = sort_folder_of(out, &folder);

    run->arena = code == 0 ? poise_huge_alloc(run->plan.arena) : NULL;
    code = sort_agree(run->world, run->arena ? 0 : -ENOMEM);
    if (code < 0) {
        poise_buf_free(&folder);
        return code;
    }
    run->store.block_bytes = run->plan.block;
    run->store.resident =
        run->arena + run->plan.lanes * run->plan.local + run->plan.post;
    run->store.resident_blocks = run->plan.resident;
    /* The output first: what it takes is no longer free for scratch files. */
    code = sort_output_open_all(run->world, out, run->in_bytes,
                                &run->options->disk, &run->out);
    if (code == 0) {
        code = sort_store_open(&run->store, run->options,
                               poise_buf_str(&folder), run->plan.scratch_bytes);
    }
    poise_buf_free(&folder);
    return sort_agree(run->world, code);
}

/* Put the parts of bucket `i` in its place. */
static int replace(struct sort_buckets *buckets, size_t i,
                   struct sort_buckets *parts)
{
    size_t count = buckets->count - 1 + parts->count;
    struct sort_bucket *larger =
        poise_realloc(buckets->items, count, sizeof *larger);

    if (!larger) {
        return -ENOMEM;
    }
    buckets->items = larger;
    for (size_t j = 0; j < parts->count; j++) {
        parts->items[j].number = larger[i].number;
    }
    sort_bucket_free(&larger[i]);
    memmove(larger + i + parts->count, larger + i + 1,
            (buckets->count - i - 1) * sizeof *larger);
    memcpy(larger + i, parts->items, parts->count * sizeof *larger);
    buckets->count = count;
    free(parts->items);
    parts->items = NULL;
    parts->count = 0;
    return 0;
}

static int split(struct sort_run *run, struct sort_buckets *buckets, size_t i)
{
    struct sort_source source;
    struct sort_cuts cuts;
    struct sort_buckets parts = {0};
    int code = sort_source_open(run, &buckets->items[i], &source);

    if (code < 0) {
        return code;
    }
    code = sort_cuts_make(&source, run->plan.buckets, run->plan.sample_reads,
                          &cuts);
    if (code == 0) {
        code = sort_distribute(run, &source, &cuts, &parts);
        sort_cuts_free(&cuts);
    }
    sort_source_close(&source);
    if (code == 0) {
        code = sort_store_release(&run->store, &buckets->items[i]);
    }
    if (code == 0) {
        code = replace(buckets, i, &parts);
    }
    sort_buckets_free(&parts);
    run->result.splits++;
    return code;
}

/* Part what does not fit memory once more. */
static int split_large(struct sort_run *run, struct sort_buckets *buckets)
{
    int code = 0;
    bool again = true;

    for (int round = 0; again && code == 0; round++) {
        again = false;
        for (size_t i = 0; i < buckets->count && code == 0; i++) {
            struct sort_bucket *bucket = &buckets->items[i];

            if (sort_bucket_fits(run, bucket)) {
                continue;
            }
            if (round == MOST_ROUNDS) {
                return poise_error_set(
                    ENOMEM, "sort", poise_disk_path(run->in),
                    "%llu bytes cannot be parted so that they fit the memory",
                    (unsigned long long)bucket->bytes);
            }
            code = split(run, buckets, i);
            again = true;
        }
    }
    return code;
}

static void note_buckets(struct sort_run *run,
                         const struct sort_buckets *buckets)
{
    struct poise_sort_result *result = &run->result;
    uint64_t mean = 0;

    for (size_t i = 0; i < buckets->count; i++) {
        const struct sort_bucket *bucket = &buckets->items[i];

        result->items_in += bucket->items;
        result->bytes_out += bucket->bytes;
        result->buckets += bucket->items > 0;
        if (!bucket->uniform) {
            mean += bucket->bytes;
            result->largest_bytes = bucket->bytes > result->largest_bytes
                                        ? bucket->bytes
                                        : result->largest_bytes;
        }
    }
    result->items_out = result->items_in;
    result->mean_bytes = result->buckets > 0 ? mean / result->buckets : 0;
}

static int passes(struct sort_run *run)
{
    struct sort_buckets buckets = {0};
    struct sort_source source = {0};
    struct sort_cuts cuts;
    uint64_t begin = poise_clock_ns(), sampled = begin, distributed = begin;
    int code = sort_agree(run->world, sort_source_open(run, NULL, &source));

    if (code < 0) {
        sort_source_close(&source);
        return code;
    }
    code = sort_cuts_make(&source, run->plan.buckets, run->plan.sample_reads,
                          &cuts);
    sampled = poise_clock_ns();
    if (code == 0) {
        code = sort_distribute(run, &source, &cuts, &buckets);
        sort_cuts_free(&cuts);
    }
    sort_source_close(&source);
    if (code == 0) {
        code = sort_count_all(run, &buckets);
    }
    if (code == 0) {
        code = sort_agree(run->world, split_large(run, &buckets));
    }
    distributed = poise_clock_ns();
    if (code == 0) {
        note_buckets(run, &buckets);
        code = sort_agree(run->world, sort_finish(run, &buckets));
    }
    sort_buckets_free(&buckets);
    run->result.sample_ns = sampled - begin;
    run->result.distribute_ns = distributed - sampled;
    run->result.sort_ns = poise_clock_ns() - distributed;
    return code;
}

static void note_disks(struct sort_run *run)
{
    struct poise_sort_result *result = &run->result;
    struct poise_disk *out = sort_output_disk(run->out);
    uint64_t read, written;

    poise_disk_count(run->in, &result->read_bytes, &written);
    poise_disk_count(out, &read, &result->written_bytes);
    result->direct_in = poise_disk_is_direct(run->in);
    result->direct_out = poise_disk_is_direct(out);
    result->direct_scratch = true;
    for (size_t i = 0; i < run->store.disk_count; i++) {
        struct poise_disk *disk = run->store.disks[i];

        poise_disk_count(disk, &read, &written);
        result->read_bytes += read;
        result->written_bytes += written;
        result->scratch_bytes += written;
        result->direct_scratch &= poise_disk_is_direct(disk);
    }
    result->engine = poise_disk_engine_name(run->in);
    result->bytes_in = run->in_bytes;
    result->memory_bytes = run->plan.memory;
    result->block_bytes = run->plan.block;
    result->threads = run->plan.lanes;
    result->processes = run->processes;
}

int poise_sort_run(const char *in, const char *out,
                   const struct poise_sort_options *options,
                   struct poise_sort_result *result)
{
    struct sort_run run = {
        .options = options,
        .type = options->type,
        .shape = sort_shape_of(&options->type),
        .item_bytes = sort_item_bytes(&options->type),
        .world = sort_world(options->world),
        .processes = 1,
    };
    int code;

    if (run.world) {
        run.rank = (unsigned)poise_world_rank(run.world);
        run.processes = (unsigned)poise_world_size(run.world);
    }
    code = sort_input_open(in, options, &run.in, &run.in_bytes);
    if (code == 0) {
        code = refuse_same(run.in, out, options->in_place);
    }
    code = sort_agree(run.world, code);
    if (code == 0) {
        code = make_plan(&run);
    }
    if (code == 0) {
        code = open_all(&run, out);
    }
    if (code == 0) {
        code = passes(&run);
    }
    if (code == 0) {
        note_disks(&run);
        code = sort_result_all(run.world, &run.result);
    }
    if (code == 0) {
        code = sort_output_commit_all(run.world, run.out, run.result.bytes_out,
                                      options->sync);
        run.out = NULL;
    }
    sort_output_abort(run.out);
    free(run.writers);
    sort_store_close(&run.store);
    poise_huge_free(run.arena, run.plan.arena);
    poise_disk_close(run.in);
    if (code == 0 && result) {
        *result = run.result;
    }
    return code;
}
