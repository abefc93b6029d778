/*
 * How memory is shared out. All numbers of buckets and all sizes of blocks are
 * tried, and the cheapest wins: few large buckets leave less memory for blocks
 * that need not go to the disk at all, and exceed the caches, many small ones
 * want many blocks and samples, and small blocks cost seeks.
 *
 * Costs are in bytes that are written to a disk and read again. They are
 * constants, so that runs on the same data can be compared; where each comes
 * from stands beside it (2 cores of a virtual machine, disk past the page
 * cache, 1.7 GB/s in and 3.4 out).
 */
#include "internal.h"

#include <poise/file.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LEAST_BLOCK = 4096,
    LEAST_PACKED = 16 << 10, /* what is packed takes whole pages, too */
    MOST_BLOCK = 1 << 20,
    LEAST_CHUNK = 16 << 10,
    MOST_CHUNK = 1 << 20,
    FEWEST_BUCKETS = 8, /* if not one: keys may have buckets of their own */
    MOST_BUCKETS = 4096,
    LEAST_BUCKET = 16 << 10,
};

/* So much larger than the mean a bucket may become; beyond it is parted once
 * more. Twelve reads of the sample fall into one (SAMPLES), each of a part of
 * its own of the data: of what `bench/run --case sort-parts` tries the largest
 * was 1.37 of the mean. */
#define SLACK 1.6
/* Where there is memory for it: of a few keys two may fall into one bucket. */
#define MUCH_SLACK 4.0
enum {
    SAMPLES = 12,
    /* A transfer, whatever its size: 39,000 of 4 KiB go each way in a second,
     * in which 1.7 to 3.4 GB do in large ones. */
    TRANSFER = 64 << 10,
    /* A program that packs a block: 1 ms until it is there and gone. */
    STARTED = 2 << 20,
    /* A read of the sample, 32 of which are on their way: 100 ms for 12,400. */
    SAMPLE = 16 << 10,
    /* A block that stays in memory: 256 MiB in blocks of 4 KiB took 6 ms. */
    TURN = 100,
    /* Buckets so large are sorted within the caches of a core, and... */
    CACHED = 1 << 20,
};
/* ...for each time that they are twice as large a byte costs so much more: of
 * 256 MiB of u32, in memory, buckets of 1, 4 and 19 MiB took 0.91, 1.06 and
 * 1.39 s of two cores. */
#define BEYOND_CACHE 0.125
/* The first touch of a byte of memory: the kernel zeroes it. 0.2 s for 700 MiB.
 */
#define TOUCH 0.2
/* Entries of a bucket: lines in it may be shorter than the mean. Buckets in
 * which they are much shorter are parted once more. */
#define ENTRIES_SLACK 1.3
/* Places of entries are 32 bits wide. */
#define MOST_BUCKET (UINT64_C(1) << 31)

static unsigned spare_blocks(size_t block)
{
    size_t n = (4 << 20) / block;

    return n < 4 ? 4 : n > 32 ? 32 : (unsigned)n;
}

static size_t second_pass(const struct sort_plan *plan)
{
    return 4 * plan->buffer +
           extmem_round_up(2 * plan->entries * sizeof(struct extmem_entry),
                           EXTMEM_PAGE);
}

/* Room for a bucket of `bytes`, gaps between the lanes' streams included. */
static void set_bucket(struct sort_plan *plan, bool has_entries,
                       double item_bytes, double bytes)
{
    double most = bytes < (double)MOST_BUCKET ? bytes : (double)MOST_BUCKET;

    /* A block at least: pieces of streams come in blocks. */
    most = most < (double)plan->block ? (double)plan->block : most;
    plan->bucket_limit = extmem_round_up((uint64_t)most, EXTMEM_PAGE) +
                         (size_t)plan->lanes * plan->processes * EXTMEM_PAGE;
    plan->entries =
        has_entries ? (size_t)(most / item_bytes * ENTRIES_SLACK) + 64 : 0;
    plan->buffer =
        plan->bucket_limit + 2 * EXTMEM_PAGE +
        extmem_round_up(plan->entries * plan->more_bytes, EXTMEM_PAGE);
}

/* Of a lane, while it throws items into buckets: blocks of its own process's,
 * and, if there are others, of theirs. */
static size_t first_pass(const struct sort_plan *plan)
{
    size_t own = (plan->buckets + plan->spare_blocks) * plan->block;

    if (plan->processes > 1) {
        own += plan->spare_blocks * plan->block + EXTMEM_PAGE +
               (plan->buckets + plan->spare_blocks) * SORT_PACKET_HEAD;
    }
    return extmem_reader_bytes(plan->chunk) + own;
}

/* What others send: copies on their way out and in, which the world holds, and
 * blocks that are written. */
static uint64_t set_inbox(struct sort_plan *plan)
{
    enum { MOST_ON_THEIR_WAY = 512 << 10 };
    uint64_t others = plan->processes - 1;

    plan->inbox = 0;
    plan->window = 0;
    if (others == 0) {
        return 0;
    }
    plan->window = (unsigned)(MOST_ON_THEIR_WAY / plan->block / others);
    plan->window = plan->window < 1 ? 1 : plan->window > 16 ? 16 : plan->window;
    plan->inbox = (plan->spare_blocks + 1) * plan->block;
    return plan->inbox + 2 * others * plan->window * plan->block;
}

/* What is not moved costs, too, of `bytes` that are in buckets of `mean`. */
static double in_memory(const struct sort_plan *plan, double bytes, double mean)
{
    double cost = (double)plan->buckets * SAMPLES * SAMPLE;

    cost += (double)plan->resident * TURN;
    cost += TOUCH * ((double)plan->local * plan->lanes +
                     (double)plan->resident * (double)plan->block);
    for (; mean > CACHED; mean /= 2) {
        cost += BEYOND_CACHE * bytes;
    }
    return cost;
}

/* Room for the buckets of the second pass in a lane's memory, and how often all
 * are parted once more until they fit; false: they never do. */
static bool fit_buckets(const struct sort_census *census, bool has_entries,
                        uint64_t lane, struct sort_plan *plan)
{
    double mean = (double)census->bytes / plan->buckets;
    unsigned streams = plan->lanes * plan->processes;
    /* Four buffers, and entries. */
    double times =
        4 + (has_entries ? 2 * ENTRIES_SLACK * sizeof(struct extmem_entry) /
                               census->item_bytes
                         : 0);
    double fits = ((double)lane - 64 * sizeof(struct extmem_entry) -
                   (4.0 * streams + 20) * EXTMEM_PAGE) /
                  times;

    plan->rounds = 0;
    set_bucket(plan, has_entries, census->item_bytes,
               plan->buckets == 1 ? (double)census->bytes + 8
                                  : mean * plan->slack);
    if (second_pass(plan) <= lane) {
        return true;
    }
    if (fits < LEAST_BUCKET || plan->buckets == 1) {
        return false;
    }
    set_bucket(plan, has_entries, census->item_bytes, fits);
    for (; mean * SLACK > fits; mean /= plan->buckets) {
        plan->rounds++;
    }
    return second_pass(plan) <= lane;
}

/* What will be moved, each process's share of it. */
static void forecast(const struct sort_census *census, struct sort_plan *plan)
{
    double share = (double)census->bytes / plan->processes;
    double stays = (double)plan->resident * (double)plan->block;
    double away = stays < share ? share - stays : 0;
    /* The ends of streams take whole pages. */
    double ends = (double)plan->lanes * plan->buckets * EXTMEM_PAGE / 2;

    plan->scratch_written = away > 0 ? away + ends : 0;
    plan->scratch_read = plan->scratch_written;
    /* What was parted once more is all on disk. */
    plan->scratch_written += plan->rounds * share;
    plan->scratch_read += plan->rounds * share * (1 + 1.0 / SORT_SAMPLE_PART);
}

/* Beside what lies in a lane's memory. */
static uint64_t pack_bytes(const struct sort_census *census,
                           const struct sort_plan *plan)
{
    struct extmem_packing packing;

    if (!census->packs) {
        return 0;
    }
    packing = *census->packs;
    packing.block = plan->block;
    return plan->lanes * (uint64_t)extmem_packer_bytes(&packing);
}

/* The rest of a plan of which lanes, chunk, buckets and block are set. Its
 * cost, negative if it does not fit. */
static double plan_rest(const struct sort_census *census, bool has_entries,
                        uint64_t usable, struct sort_plan *plan)
{
    double turn = TRANSFER;
    uint64_t lane, left, stay, inbox, share = census->bytes / plan->processes;
    double mean = (double)census->bytes / plan->buckets, moved;
    size_t first;

    plan->spare_blocks = spare_blocks(plan->block);
    inbox = set_inbox(plan) + pack_bytes(census, plan);
    if (inbox > usable) {
        return -1;
    }
    usable -= inbox;
    lane = usable / plan->lanes;
    first = first_pass(plan);
    if (first > lane || !fit_buckets(census, has_entries, lane, plan)) {
        return -1;
    }
    plan->local = first > second_pass(plan) ? first : second_pass(plan);
    plan->local = extmem_round_up(plan->local, EXTMEM_PAGE) +
                  (census->packs ? plan->block : 0);
    if (plan->local > lane) {
        return -1;
    }
    /* What the second pass takes more the first one reads ahead with. */
    plan->reading = plan->local - (census->packs ? plan->block : 0) -
                    (first - extmem_reader_bytes(plan->chunk));
    plan->reading = plan->reading / EXTMEM_PAGE * EXTMEM_PAGE;
    left = usable - plan->local * plan->lanes;
    /* Each stream's last block is not full. */
    stay = share / plan->block + 1 + (uint64_t)plan->lanes * plan->buckets;
    plan->resident = left / plan->block < stay ? left / plan->block : stay;
    plan->scratch_bytes = (stay - plan->resident) * plan->block;
    forecast(census, plan);
    moved = (plan->scratch_written + plan->scratch_read) / 2;
    if (plan->rounds > 0) {
        mean = (double)plan->bucket_limit;
    }
    if (census->packs && census->packs->program) {
        turn += STARTED;
    }
    return 1 + moved * (1 + turn / (double)plan->block) +
           in_memory(plan, (double)share, mean);
}

static void plan_search(const struct sort_census *census, bool has_entries,
                        uint64_t usable, struct sort_plan *plan)
{
    struct sort_plan best = {0}, tried = *plan;
    double least = -1;
    uint32_t fewest =
        census->bytes > (4u << 20) ? 8 * plan->lanes * plan->processes : 1;

    for (uint32_t n = fewest; n <= MOST_BUCKETS;
         n = n < FEWEST_BUCKETS ? FEWEST_BUCKETS : n + n / 4) {
        for (size_t block = census->packs ? LEAST_PACKED : LEAST_BLOCK;
             block <= MOST_BLOCK; block *= 2) {
            double cost;

            tried.buckets = n;
            tried.block = block;
            cost = plan_rest(census, has_entries, usable, &tried);
            if (cost >= 0 && (least < 0 || cost < least)) {
                least = cost;
                best = tried;
            }
        }
    }
    *plan = best;
    tried = best;
    tried.slack = MUCH_SLACK;
    if (best.buckets > 0 &&
        plan_rest(census, has_entries, usable, &tried) >= 0 &&
        tried.resident == best.resident && tried.rounds == best.rounds) {
        *plan = tried;
    }
}

int sort_plan_make(const struct poise_sort_options *options,
                   const struct sort_census *census, uint64_t memory,
                   unsigned lanes, struct sort_plan *plan)
{
    enum sort_shape shape = sort_shape_of(&options->type);
    bool has_entries = shape == SORT_RECORDS || shape == SORT_TEXT;
    /* Samples, lists of blocks and stacks take some, too. */
    uint64_t usable = memory - memory / 32;
    struct sort_plan made = {.memory = memory,
                             .slack = SLACK,
                             .more_bytes = census->more_bytes,
                             .lanes = lanes,
                             .processes =
                                 census->processes > 1 ? census->processes : 1};

    made.chunk = LEAST_CHUNK;
    while (made.chunk < MOST_CHUNK &&
           made.chunk * EXTMEM_AHEAD * 32 * lanes <= usable) {
        made.chunk *= 2;
    }
    plan_search(census, has_entries, usable, &made);
    if (made.buckets == 0 || made.bucket_limit < census->least_item) {
        return -ENOMEM;
    }
    made.arena = made.local * lanes + made.inbox + made.resident * made.block;
    /* A quarter of the data at most, which matters for small ones only. */
    made.sample_reads = made.buckets == 1
                            ? 0
                            : sort_plan_sample(census->bytes, made.buckets, 4);
    *plan = made;
    return 0;
}

uint64_t sort_plan_sample(uint64_t bytes, uint32_t buckets, uint64_t part)
{
    uint64_t reads = bytes / (part * 2 * EXTMEM_PAGE) + 1;
    uint64_t most = (uint64_t)buckets * SAMPLES;

    return reads < most ? reads : most;
}

uint64_t sort_plan_least(const struct poise_sort_options *options,
                         const struct sort_census *census, unsigned lanes)
{
    struct sort_plan plan;
    uint64_t low = 0, high = 1 << 16;

    while (high < UINT64_C(1) << 50 &&
           sort_plan_make(options, census, high, lanes, &plan) < 0) {
        low = high;
        high *= 2;
    }
    while (high - low > EXTMEM_PAGE) {
        uint64_t middle = low + (high - low) / 2;

        if (sort_plan_make(options, census, middle, lanes, &plan) < 0) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return high;
}

/* ---- what a plan comes to ------------------------------------------------ */

void sort_forecast_of(const struct sort_run *run,
                      struct poise_sort_forecast *forecast)
{
    const struct sort_plan *plan = &run->plan;
    double bytes = (double)run->in_bytes, all = plan->processes;
    /* A look, wherever it begins, is of two pages. */
    double sample = (double)plan->sample_reads * 2 * EXTMEM_PAGE;

    *forecast = (struct poise_sort_forecast){
        .bytes_in = run->in_bytes,
        .read_bytes = (uint64_t)(bytes + sample + all * plan->scratch_read),
        .written_bytes = (uint64_t)(bytes + all * plan->scratch_written),
        .scratch_bytes = plan->scratch_bytes * plan->processes,
        .memory_bytes = plan->memory,
        .block_bytes = plan->block,
        .buckets = plan->buckets,
        .rounds = plan->rounds,
        .threads = plan->lanes,
        .processes = plan->processes,
    };
}

/* ---- how fast the disk is ----------------------------------------------- */

enum { PROBE = 1 << 20, PROBES = 16 };

/* Nanoseconds a byte of as many transfers as `bytes` has room for, spread over
 * it; 0 if there is none. What is moved is of no interest: all have the same
 * memory. */
static int probe(struct poise_disk *disk, bool is_write, uint64_t bytes,
                 char *memory, double *out)
{
    struct poise_disk_transfer transfers[PROBES];
    uint64_t count = bytes / PROBE < PROBES ? bytes / PROBE : PROBES;
    uint64_t begin = poise_clock_ns();
    int code = 0;

    for (uint64_t i = 0; i < count; i++) {
        transfers[i] = (struct poise_disk_transfer){
            .data = memory,
            .len = PROBE,
            .offset = bytes / count * i / EXTMEM_PAGE * EXTMEM_PAGE,
            .is_write = is_write,
        };
        poise_disk_start(disk, &transfers[i]);
    }
    for (uint64_t i = 0; i < count; i++) {
        ssize_t n = poise_disk_wait(&transfers[i]);

        code = code < 0 ? code : n < 0 ? (int)n : 0;
    }
    *out = count > 0
               ? (double)(poise_clock_ns() - begin) / ((double)count * PROBE)
               : 0;
    return code;
}

/* A folder for scratch, or that of the output. */
static int open_scratch(const struct poise_sort_options *options,
                        const char *out, struct poise_disk **disk)
{
    const char *slash = out ? strrchr(out, '/') : NULL;
    struct poise_buf folder = {0};
    bool is_beside = false;
    int code = 0;

    if (options->scratch_count > 0) {
        poise_buf_puts(&folder, options->scratch[0]);
    } else if (out) {
        code = poise_output_check(out, &is_beside);
    }
    if (is_beside && slash) {
        poise_buf_append(&folder, out, (size_t)(slash - out) + 1);
    } else if (is_beside) {
        poise_buf_puts(&folder, ".");
    } else if (folder.len == 0) {
        poise_buf_puts(&folder, poise_file_temporary_folder());
    }
    if (code == 0) {
        code = folder.error ? folder.error
                            : poise_disk_scratch(poise_buf_str(&folder),
                                                 &options->disk, disk);
    }
    poise_buf_free(&folder);
    return code;
}

static int measure(const struct sort_run *run, const char *out,
                   struct poise_sort_forecast *forecast)
{
    char *memory = poise_huge_alloc(PROBE);
    struct poise_disk *scratch = NULL;
    double in = 0, to = 0;
    int code = memory ? 0 : -ENOMEM;

    if (code == 0 && run->in.count > 0) {
        uint64_t first = run->in.begins[1] - run->in.begins[0];

        code = probe(run->in.disks[0], false, first, memory, &in);
    }
    if (code == 0 && in > 0) {
        code = open_scratch(run->options, out, &scratch);
    }
    if (code == 0 && in > 0) {
        code = probe(scratch, true, (uint64_t)PROBE * PROBES, memory, &to);
    }
    poise_disk_close(scratch);
    poise_huge_free(memory, PROBE);
    forecast->disk_seconds = (in * (double)forecast->read_bytes +
                              to * (double)forecast->written_bytes) /
                             1e9;
    return code;
}

/* ---- all ---------------------------------------------------------------- */

/* What is read once only would be gone. */
static int refuse_streams(const char *path)
{
    int fd = poise_file_named_descriptor(path);
    struct stat st;

    if ((fd < 0 ? stat(path, &st) : fstat(fd, &st)) != 0) {
        return poise_error_set(errno, "look at", path, NULL);
    }
    return S_ISREG(st.st_mode)
               ? 0
               : poise_error_set(ESPIPE, "plan", path,
                                 "it is no file: how much there is of it shows "
                                 "when it is read");
}

int poise_sort_plan(const char *in, const char *out,
                    const struct poise_sort_options *options,
                    struct poise_sort_forecast *forecast)
{
    struct poise_world *world = extmem_world(options->world);
    struct poise_sort_options alone = *options;
    struct sort_run run = {
        .options = &alone,
        .type = options->type,
        .shape = sort_shape_of(&options->type),
        .item_bytes = sort_item_bytes(&options->type),
        .processes = world ? (unsigned)poise_world_size(world) : 1,
    };
    int code = refuse_streams(in);

    alone.world = NULL;
    /* What is filtered is copied first; it is looked at as it is. */
    if (options->filter) {
        alone.filter = NULL;
        run.type.zero_ended = run.type.newlines = false;
    }
    for (size_t i = 0; i < options->more_count && code == 0; i++) {
        code = refuse_streams(options->more[i]);
    }
    if (code == 0) {
        code = sort_input_open(&run, in, out);
    }
    if (code == 0) {
        code = sort_search_plan(
            &run,
            extmem_share_memory(NULL, options->memory_bytes) / run.processes,
            extmem_share_threads(NULL, options->threads));
    }
    if (code == 0) {
        sort_forecast_of(&run, forecast);
        if (options->filter) {
            forecast->read_bytes += run.in_bytes;
            forecast->written_bytes += run.in_bytes;
            forecast->scratch_bytes += run.in_bytes;
        }
        code = measure(&run, out, forecast);
    }
    extmem_inputs_close(&run.in);
    return code;
}
