/*
 * How memory is shared out. All numbers of buckets and all sizes of blocks are
 * tried, and what moves the fewest bytes wins: few large buckets leave less
 * memory for blocks that need not go to the disk at all, many small ones want
 * many blocks, and small blocks cost seeks.
 */
#include "internal.h"

#include <errno.h>

enum {
    LEAST_BLOCK = 4096,
    MOST_BLOCK = 1 << 20,
    LEAST_CHUNK = 16 << 10,
    MOST_CHUNK = 1 << 20,
    FEWEST_BUCKETS = 8, /* if not one: keys may have buckets of their own */
    MOST_BUCKETS = 4096,
    LEAST_BUCKET = 16 << 10,
};

/* Of a bucket that may become as large: samples are samples. */
#define SLACK 1.6
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
           extmem_round_up(2 * plan->entries * sizeof(struct sort_entry),
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
    plan->buffer = plan->bucket_limit + 2 * EXTMEM_PAGE;
    plan->entries = has_entries ? (size_t)(most / item_bytes * 1.3) + 64 : 0;
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

/* The rest of a plan of which lanes, chunk, buckets and block are set. Its
 * cost in bytes moved, negative if it does not fit. */
static double plan_rest(const struct sort_census *census, bool has_entries,
                        uint64_t usable, struct sort_plan *plan)
{
    double bytes = (double)census->bytes, moved, rounds = 0;
    double mean = bytes / plan->buckets;
    unsigned streams = plan->lanes * plan->processes;
    uint64_t lane, left, stay, inbox, share = census->bytes / plan->processes;
    size_t first;

    plan->spare_blocks = spare_blocks(plan->block);
    inbox = set_inbox(plan);
    if (inbox > usable) {
        return -1;
    }
    usable -= inbox;
    lane = usable / plan->lanes;
    first = first_pass(plan);
    if (first > lane) {
        return -1;
    }
    set_bucket(plan, has_entries, census->item_bytes,
               plan->buckets == 1 ? bytes + 8 : mean * SLACK);
    if (second_pass(plan) > lane) {
        /* Buckets that are larger will have to be parted once more. */
        double times = 4 + (has_entries ? 2.6 * sizeof(struct sort_entry) /
                                              census->item_bytes
                                        : 0);
        double fits = ((double)lane - 64 * sizeof(struct sort_entry) -
                       (4.0 * streams + 16) * EXTMEM_PAGE) /
                      times;

        if (fits < LEAST_BUCKET || plan->buckets == 1) {
            return -1;
        }
        set_bucket(plan, has_entries, census->item_bytes, fits);
        rounds = 1;
        if (second_pass(plan) > lane) {
            return -1;
        }
    }
    plan->local = first > second_pass(plan) ? first : second_pass(plan);
    plan->local = extmem_round_up(plan->local, EXTMEM_PAGE);
    if (plan->local > lane) {
        return -1;
    }
    left = usable - plan->local * plan->lanes;
    /* Each stream's last block is not full. */
    stay = share / plan->block + 1 + (uint64_t)plan->lanes * plan->buckets;
    plan->resident = left / plan->block < stay ? left / plan->block : stay;
    plan->scratch_bytes = (stay - plan->resident) * plan->block;
    bytes = (double)share;
    moved = plan->scratch_bytes < share ? (double)plan->scratch_bytes : bytes;
    moved += rounds * bytes;
    return 1 + moved * (1 + 65536.0 / (double)plan->block) +
           bytes / 2000 * plan->buckets / 16;
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
        for (size_t block = LEAST_BLOCK; block <= MOST_BLOCK; block *= 2) {
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
}

int sort_plan_make(const struct poise_sort_options *options,
                   const struct sort_census *census, uint64_t memory,
                   unsigned lanes, struct sort_plan *plan)
{
    enum sort_shape shape = sort_shape_of(&options->type);
    bool has_entries = shape == SORT_RECORDS || shape == SORT_TEXT;
    /* Samples, lists of blocks and stacks take some, too. */
    uint64_t usable = memory - memory / 32, reads, most_reads;
    struct sort_plan made = {.memory = memory,
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
    reads = census->bytes / (4 * 2 * EXTMEM_PAGE) + 1;
    most_reads = (uint64_t)made.buckets * 12;
    reads = reads < most_reads ? reads : most_reads;
    made.sample_reads = made.buckets == 1 ? 0 : reads;
    *plan = made;
    return 0;
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
