/*
 * A run: look at the data, make a plan, distribute, sort bucket by bucket.
 *
 * Where the data are: before the first pass in the input, which is only read.
 * After it each item is once in the streams of its bucket: in resident blocks,
 * in slots of the scratch files, or, of buckets of equal numbers, as a count.
 * After the second pass it is once in the output (but for those that `unique`
 * drops), which gets its name when all
 * processes have written their part, and not before. Until then a failure or a
 * crash leaves the input, and the output's old file if there was one.
 */
#include "internal.h"

#include <poise/trace.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** A bucket that does not shrink when it is split is not split for ever. */
#define MOST_ROUNDS 16

int sort_input_open(struct sort_run *run, const char *path, const char *out)
{
    const struct poise_sort_options *options = run->options;
    const char ending = sort_ending(&run->type);
    const struct extmem_input input = {
        .path = path,
        .ending = run->shape == SORT_TEXT ? &ending : NULL,
        .item_bytes = run->item_bytes,
        .world = run->world,
        .folders = options->scratch,
        .folder_count = options->scratch_count,
        .out = out,
        .filter = options->filter,
        .filter_arg = options->filter_arg,
        .together = run->together,
        .disk = &options->disk,
    };
    int code = sort_type_check(&options->type);

    if (code == 0) {
        code = extmem_inputs_open(&input, options->more, options->more_count,
                                  &run->in);
    }
    run->path = path;
    run->in_bytes = run->in.bytes;
    return code;
}

/* One file by two names is one file. */
static int refuse_same(const struct extmem_inputs *in, const char *out,
                       bool in_place)
{
    return in_place || !extmem_inputs_have(in, out)
               ? 0
               : poise_error_set(EINVAL, "write", out,
                                 "it is the input, and --in-place is not "
                                 "given");
}

/* The mean length of lines, from a few looks. */
static int look_at_lines(struct sort_run *run, struct sort_census *census)
{
    enum { LEAST = 1 << 14, MOST = 1 << 16, LOOKS = 8, PART = 64 };
    uint64_t look = run->in_bytes / (LOOKS * PART);
    uint64_t seen = 0, lines = 0;
    size_t room = MOST + 2 * EXTMEM_PAGE;
    char *memory = poise_huge_alloc(room), ending = sort_ending(&run->type);
    int code = memory ? 0 : -ENOMEM;

    /* All of what is small; else what matters little. */
    look = look < LEAST ? LEAST : look;
    look = look > MOST || run->in_bytes <= LOOKS * MOST ? MOST : look;
    for (unsigned i = 0; i < LOOKS && code == 0; i++) {
        struct extmem_fetch fetch;
        uint64_t at = run->in_bytes / LOOKS * i, left = run->in_bytes - at;

        extmem_inputs_fetch(&run->in, at, left < look ? left : look, memory,
                            &fetch);
        code = extmem_fetch_finish(&fetch);
        for (size_t j = 0; code == 0 && j < fetch.len; j++) {
            lines += fetch.data[j] == ending;
        }
        seen += code == 0 ? fetch.len : 0;
    }
    poise_huge_free(memory, room);
    census->item_bytes = (double)seen / (lines > 0 ? (double)lines : 1);
    return code;
}

static int refuse_memory(const struct sort_run *run,
                         const struct sort_census *census, uint64_t memory)
{
    struct poise_buf least = {0}, have = {0};
    int code;

    poise_human_bytes(&least, sort_plan_least(run->options, census, 1));
    poise_human_bytes(&have, memory);
    code = poise_error_set(
        ENOMEM, "sort", run->path, "%s of memory are too little%s: at least %s",
        poise_buf_str(&have), run->world ? " for a process" : "",
        poise_buf_str(&least));
    poise_buf_free(&least);
    poise_buf_free(&have);
    return code;
}

int sort_search_plan(struct sort_run *run, uint64_t memory, unsigned lanes)
{
    const struct poise_sort_options *options = run->options;
    struct sort_census census = {.bytes = run->in_bytes,
                                 .processes = run->processes,
                                 .item_bytes = run->item_bytes,
                                 .least_item = run->item_bytes,
                                 .more_bytes = options->count ? 8 : 0,
                                 .packs =
                                     run->pack.may ? &run->pack.packing : NULL};
    uint64_t worth = run->in_bytes / run->processes / (256 << 10) + 1;
    int code = 0;

    if (run->shape == SORT_TEXT && run->in_bytes > 0) {
        code = look_at_lines(run, &census);
    }
    lanes = lanes < worth ? lanes : (unsigned)worth;
    run->plan.lanes = 0;
    /* Fewer threads have more memory each: they are chosen where they need not
     * part buckets so often. */
    for (; code == 0 && lanes > 0; lanes--) {
        struct sort_plan plan;

        if (sort_plan_make(options, &census, memory, lanes, &plan) == 0 &&
            (run->plan.lanes == 0 || plan.rounds < run->plan.rounds)) {
            run->plan = plan;
        }
    }
    return code < 0              ? code
           : run->plan.lanes > 0 ? 0
                                 : refuse_memory(run, &census, memory);
}

/* The first process makes the plan, for the least of what each of them has. */
static int make_plan(struct sort_run *run)
{
    const struct poise_sort_options *options = run->options;
    uint64_t shares[] = {extmem_share_memory(run->world, options->memory_bytes),
                         extmem_share_threads(run->world, options->threads)};
    int code = extmem_same_size(run->world, run->path, run->in_bytes);

    if (code == 0) {
        code = extmem_least(run->world, shares, 2);
    }
    if (code == 0 && run->rank == 0) {
        code = sort_search_plan(run, shares[0], (unsigned)shares[1]);
    }
    code = extmem_agree(run->world, code);
    return code < 0
               ? code
               : extmem_broadcast(run->world, &run->plan, sizeof run->plan);
}

/* Room to ask for: of lines of which few are wanted none, their length is not
 * known. */
static uint64_t output_bytes(const struct sort_run *run)
{
    uint64_t head = run->options->head;

    if (head == 0 || head >= run->in_bytes / run->item_bytes) {
        return run->in_bytes + run->options->header_bytes;
    }
    return run->shape == SORT_TEXT ? 0 : head * run->item_bytes;
}

/* Whether scratch is put where the output will be: that asks for no second file
 * as large, which would take longer to write, and to give back. Not where the
 * user names other places, where others write the output too, or when it may
 * become longer than the input. */
static bool lends_output(const struct sort_run *run)
{
    return !run->world && run->options->scratch_count == 0 && !run->pack.must &&
           !sort_has_totals(run) && run->plan.scratch_bytes > 0 &&
           output_bytes(run) >= run->in_bytes;
}

/* Room in the output for its own bytes and for the scratch blocks, which end
 * with it: so they are as far behind what will be written as can be. One part
 * of so many more, for what the sample does not tell. */
static void share_output(struct sort_run *run, struct extmem_scratch *scratch)
{
    enum { LEAST_MORE = 4, MORE_PART = 32 };
    uint64_t block = run->plan.block;
    uint64_t own = output_bytes(run) / block + 1;
    uint64_t slots = run->plan.scratch_bytes / block;

    scratch->within_slots = own > slots ? own : slots;
    scratch->within_slots += LEAST_MORE + scratch->within_slots / MORE_PART;
    run->first_home = scratch->within_slots - slots;
}

/* What the plan asks for: memory, scratch files, the output. */
static int open_all(struct sort_run *run, const char *out)
{
    const struct poise_output_options output = {
        .inputs = {run->path},
        .more = run->options->more,
        .more_count = run->options->more_count,
    };
    struct extmem_scratch scratch = {
        .folders = run->options->scratch,
        .folder_count = run->options->scratch_count,
        /* What is packed takes less: how much shows only then. */
        .need_bytes = run->pack.must ? 0 : run->plan.scratch_bytes,
        .disk = &run->options->disk,
    };
    uint64_t bytes = output_bytes(run);
    int code;

    run->arena = poise_huge_alloc(run->plan.arena);
    code = extmem_agree(run->world, run->arena ? 0 : -ENOMEM);
    if (code < 0) {
        return code;
    }
    run->store.block_bytes = run->plan.block;
    run->resident =
        run->arena + run->plan.lanes * run->plan.local + run->plan.inbox;
    run->resident_blocks = run->plan.resident;
    if (lends_output(run)) {
        share_output(run, &scratch);
        bytes = scratch.within_slots * run->plan.block;
    }
    /* The output first: what it takes is no longer free for scratch files. */
    code = extmem_output_open_all(run->world, out, bytes, &output,
                                  &run->options->disk, &run->out);
    if (code == 0) {
        scratch.default_folder = extmem_output_folder(run->out);
        scratch.within =
            scratch.within_slots > 0 ? extmem_output_disk(run->out) : NULL;
        code = extmem_store_open(&run->store, &scratch);
    }
    return extmem_agree(run->world, code);
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

/* Twice as many as it takes: they are not all alike, and one that is too large
 * is read and written once more. */
static uint32_t parts_of(const struct sort_run *run,
                         const struct sort_bucket *bucket)
{
    enum { FEWEST = 8 };
    const struct sort_plan *plan = &run->plan;
    uint64_t wanted = bucket->bytes / plan->bucket_limit;

    if (plan->entries > 0 && bucket->items / plan->entries > wanted) {
        wanted = bucket->items / plan->entries;
    }
    wanted = wanted * 2 + FEWEST;
    return wanted < plan->buckets ? (uint32_t)wanted : plan->buckets;
}

static int split(struct sort_run *run, struct sort_buckets *buckets, size_t i)
{
    struct sort_source source;
    struct sort_splitters splitters;
    struct sort_buckets parts = {0};
    uint32_t count = parts_of(run, &buckets->items[i]);
    uint64_t reads =
        sort_plan_sample(buckets->items[i].bytes, count, SORT_SAMPLE_PART);
    int code = sort_bucket_unpack(run, &buckets->items[i]);

    if (code == 0) {
        code = sort_source_open(run, &buckets->items[i], &source);
    }
    if (code < 0) {
        return code;
    }
    /* Of what is in order already a read is one place only. */
    code = buckets->items[i].stuck
               ? sort_splitters_pivot(&source, &splitters)
               : sort_splitters_make(&source, count,
                                     reads > count ? reads : count, &splitters);
    if (code == 0) {
        code = sort_distribute(run, &source, &splitters, &parts);
        sort_splitters_free(&splitters);
    }
    for (size_t j = 0; j < parts.count; j++) {
        parts.items[j].stuck =
            run->shape == SORT_TEXT &&
            parts.items[j].items > buckets->items[i].items / 2;
    }
    sort_source_close(&source);
    if (code == 0) {
        code = sort_bucket_release(&buckets->items[i], &run->store);
    }
    if (code == 0) {
        code = replace(buckets, i, &parts);
    }
    sort_buckets_free(&parts);
    run->result.splits++;
    return code;
}

/* Part bucket `i`, and of its parts those behind the first one, until they fit;
 * *is_parted if there was one to part. */
static int split_one(struct sort_run *run, struct sort_buckets *buckets,
                     size_t i, bool is_last_round, bool *is_parted)
{
    size_t behind = buckets->count - i - 1;
    int code = 0;

    for (; i + behind < buckets->count && code == 0; i++) {
        struct sort_bucket *bucket = &buckets->items[i];

        if (sort_bucket_fits(run, bucket)) {
            continue;
        }
        if (is_last_round) {
            return poise_error_set(
                ENOMEM, "sort", run->path,
                "%llu bytes cannot be parted so that they fit the memory",
                (unsigned long long)bucket->bytes);
        }
        code = split(run, buckets, i);
        *is_parted = true;
    }
    return code;
}

/* Part what does not fit memory once more. The last one first: where scratch is
 * in the output, the parts of one take the room of those behind it. */
static int split_large(struct sort_run *run, struct sort_buckets *buckets)
{
    int code = 0;
    bool again = true;

    for (int round = 0; again && code == 0; round++) {
        again = false;
        for (size_t i = buckets->count; i-- > 0 && code == 0;) {
            code = split_one(run, buckets, i, round == MOST_ROUNDS, &again);
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
    result->items_in += run->left_out;
    result->mean_bytes = result->buckets > 0 ? mean / result->buckets : 0;
}

/* Passes as they are recorded. */
enum { PASS_SAMPLE, PASS_DISTRIBUTE, PASS_FINISH };

static uint64_t record_pass(const struct sort_run *run, uint64_t pass,
                            uint64_t began)
{
    struct poise_trace_ring *ring = poise_trace_ring();
    uint64_t now = poise_trace_ticks(ring);
    poise_trace_put(ring, POISE_TRACE_PASS, pass, began ? began : now, now,
                    run->result.items_in, run->result.bytes_in);
    return now;
}

static int passes(struct sort_run *run)
{
    struct sort_buckets buckets = {0};
    struct sort_source source = {0};
    struct sort_splitters splitters;
    uint64_t begin = poise_clock_ns(), sampled = begin, distributed = begin;
    uint64_t ticks = poise_trace_ticks(poise_trace_ring());
    int code = extmem_agree(run->world, sort_source_open(run, NULL, &source));

    if (code < 0) {
        sort_source_close(&source);
        return code;
    }
    code = sort_splitters_make(&source, run->plan.buckets,
                               run->plan.sample_reads, &splitters);
    sampled = poise_clock_ns();
    ticks = record_pass(run, PASS_SAMPLE, ticks);
    if (code == 0) {
        code = sort_distribute(run, &source, &splitters, &buckets);
        sort_splitters_free(&splitters);
    }
    sort_source_close(&source);
    if (code == 0 && run->options->head > 0 && !run->options->unique) {
        sort_cut_buckets(&buckets, run->options->head, run);
    }
    if (code == 0) {
        code = sort_count_all(run, &buckets);
    }
    if (code == 0) {
        code = extmem_agree(run->world, split_large(run, &buckets));
    }
    distributed = poise_clock_ns();
    ticks = record_pass(run, PASS_DISTRIBUTE, ticks);
    if (code == 0) {
        note_buckets(run, &buckets);
        code = extmem_agree(run->world, sort_finish(run, &buckets));
    }
    record_pass(run, PASS_FINISH, ticks);
    sort_buckets_free(&buckets);
    run->result.sample_ns = sampled - begin;
    run->result.distribute_ns = distributed - sampled;
    run->result.sort_ns = poise_clock_ns() - distributed;
    return code;
}

static void note_disks(struct sort_run *run)
{
    struct poise_sort_result *result = &run->result;
    struct poise_disk *out = extmem_output_disk(run->out);
    struct poise_sort_forecast forecast;
    uint64_t read, written, copied, back;

    sort_forecast_of(run, &forecast);
    result->planned_read_bytes = forecast.read_bytes;
    result->planned_written_bytes = forecast.written_bytes;
    extmem_inputs_count(&run->in, &result->read_bytes, &copied,
                        &result->direct_in);
    poise_disk_count(out, &back, &result->written_bytes);
    result->direct_out = poise_disk_is_direct(out);
    result->direct_scratch = !run->store.scratch.within || result->direct_out;
    for (size_t i = 0; i < run->store.disk_count; i++) {
        result->direct_scratch &= poise_disk_is_direct(run->store.disks[i]);
    }
    extmem_store_count(&run->store, &read, &written);
    /* What had to be copied was planned, too. */
    result->planned_read_bytes += copied;
    result->planned_written_bytes += copied;
    written += copied;
    result->read_bytes += read + back;
    result->written_bytes += written;
    result->scratch_bytes += written + run->written_before;
    result->in_output = run->store.scratch.within != NULL;
    result->packed_bytes = run->pack.packed_bytes;
    result->unpacked_bytes = run->pack.bytes;
    result->engine = poise_disk_engine_name(out);
    result->bytes_in = run->in_bytes;
    result->memory_bytes = run->plan.memory;
    result->block_bytes = run->plan.block;
    result->threads = run->plan.lanes;
    result->processes = run->processes;
}

/* What does not go together. */
static int refuse_options(const struct sort_run *run, const char *in)
{
    const struct poise_sort_options *options = run->options;
    bool totals = sort_has_totals(run);

    if (run->world && (options->head > 0 || totals || options->filter ||
                       options->header_bytes > 0)) {
        return poise_error_set(EINVAL, "sort", in,
                               "one process finds the first items, adds up, "
                               "and sorts CSV, not %u",
                               run->processes);
    }
    if (totals && (!options->unique || run->shape <= SORT_WORDS_64 ||
                   poise_sort_keys_count(options->sums) > SORT_MOST_SUMS)) {
        return poise_error_set(EINVAL, "sort", in,
                               "of lines and records that are unique 8 fields "
                               "at most are added up");
    }
    return 0;
}

/* For who looks how far it is. */
static void expect(const struct sort_run *run)
{
    struct poise_sort_progress *progress = run->options->progress;
    uint64_t share = run->in_bytes / run->processes;

    if (progress) {
        __atomic_store_n(&progress->total_bytes, share * (2 + run->plan.rounds),
                         __ATOMIC_RELAXED);
    }
}

void sort_note_passed(const struct sort_run *run, uint64_t bytes)
{
    struct poise_sort_progress *progress = run->options->progress;

    if (progress) {
        __atomic_fetch_add(&progress->passed_bytes, bytes, __ATOMIC_RELAXED);
    }
}

/* 1: there were too few descriptors, and nothing is lost yet. */
static int run_once(struct sort_run *run, const char *in, const char *out)
{
    const struct poise_sort_options *options = run->options;
    int code = sort_input_open(run, in, out);

    if (code == 0) {
        code = refuse_same(&run->in, out, options->in_place);
    }
    if (code == 0) {
        code = refuse_options(run, in);
    }
    code = extmem_agree(run->world, code);
    if (code == 0) {
        code = make_plan(run);
    }
    if (code == 0) {
        code = sort_pack_plan(run);
    }
    if (code == 0) {
        expect(run);
        code = open_all(run, out);
        if (code == -EMFILE && run->in.count > 1 && !run->world &&
            extmem_inputs_can_close(&run->in)) {
            code = 1;
        }
    }
    if (code == 0) {
        code = passes(run);
    }
    if (code == 0) {
        note_disks(run);
        code = sort_result_all(run->world, &run->result);
    }
    if (code == 0) {
        code = extmem_output_commit_all(
            run->world, run->out, run->result.bytes_out + options->header_bytes,
            options->sync);
        run->out = NULL;
    }
    extmem_output_abort(run->out);
    free(run->writers);
    extmem_store_close(&run->store);
    poise_huge_free(run->arena, run->plan.arena);
    extmem_inputs_close(&run->in);
    return code;
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
        .world = extmem_world(options->world),
        .processes = 1,
    };
    struct sort_run again;
    int code;

    if (run.world) {
        run.rank = (unsigned)poise_world_rank(run.world);
        run.processes = (unsigned)poise_world_size(run.world);
    }
    again = run;
    code = run_once(&run, in, out);
    if (code > 0) {
        again.together = true;
        run = again;
        code = run_once(&run, in, out);
    }
    if (code == 0 && result) {
        *result = run.result;
    }
    return code;
}
