/*
 * Blocks that are packed on their way to the scratch files, where the disk is
 * slower than that. A lane fills a *slab*, a block of its own, with packed ones
 * of whatever bucket, each at a page's begin: the disk gets large writes, in
 * slots as of blocks that are not packed. What is read again is unpacked where
 * it has to lie. A block that gains too little goes to the disk as it is.
 *
 * Whether it pays a lane finds out while it works. A disk's rate by itself
 * would not tell: the first MiB may be quick ones, reads and writes may share
 * it or not, and there may be much to compute beside. What counts is how long a
 * lane waits for blocks to be written, and what packing one of them takes and
 * leaves.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

enum {
    /* To be moved, and memory of a lane: of less no part is worth a look. */
    LEAST_TO_MOVE = 64 << 20,
    LEAST_MEMORY = 8 << 20,
    LOOK = 8 << 20,   /* bytes written until the next look */
    LATER = 8 * LOOK, /* until the next trial, after one in vain */
    /* After so many blocks that gained too little only one in so many is tried.
     */
    MOST_MISSES = 8,
    TRY_AGAIN = 16,
};
/* What is saved must be so often what packing takes: it may be that something
 * else is waited for then. */
#define WORTH 1.5
/* Nanoseconds a byte: few data are packed and unpacked quicker than that. */
#define QUICKEST 1.0

/* ---- whether it pays ----------------------------------------------------- */

/* Pack a block and unpack it: nanoseconds a byte that this saves, if the disk
 * is waited for so long for each. It is written and read, as often. */
static int try_level(const struct sort_packing *packing, size_t block_bytes,
                     int level, char *block, size_t len, double waits,
                     double *gain)
{
    const struct extmem_packing how = {.level = level, .block = block_bytes};
    struct extmem_packer *packer;
    uint64_t begin;
    double left, took;
    ssize_t n;
    int code = extmem_packer_open(&how, &packer);

    if (code < 0) {
        return code;
    }
    begin = poise_clock_ns();
    n = extmem_pack(packer, block, len, packing->room, len);
    code = n < 0 ? (int)n : 0;
    if (n > 0) {
        code = extmem_unpack(packer, packing->room, (size_t)n, block, len);
    }
    took = (double)(poise_clock_ns() - begin) / (double)len;
    left = n > 0 ? (double)n / (double)len : 1;
    *gain = 2 * (1 - left) * waits - WORTH * took;
    extmem_packer_close(packer);
    return code;
}

/* See whether packing would pay by now, and begin with it. */
static int look(struct sort_packing *packing, const struct sort_run *run,
                const struct extmem_blocks *blocks, char *block, size_t len)
{
    static const int levels[] = {-3, 1};
    struct extmem_packing how = run->pack.packing;
    double most = 0, gain = 0;
    double waits = (double)(blocks->waited_ns - packing->waited_ns) /
                   (double)packing->bytes;
    int code = 0;

    packing->waited_ns = blocks->waited_ns;
    packing->bytes = 0;
    packing->next_trial = LOOK;
    if (2 * waits < WORTH * QUICKEST) {
        return 0;
    }
    packing->next_trial = LATER;
    for (size_t i = 0; i < 2 && code == 0; i++) {
        code = try_level(packing, run->plan.block, levels[i], block, len, waits,
                         &gain);
        if (code == 0 && gain > most) {
            most = gain;
            how.level = levels[i];
        }
    }
    if (code < 0 || most <= 0) {
        return code;
    }
    packing->tries = false;
    return extmem_packer_open(&how, &packing->packer);
}

int sort_pack_plan(struct sort_run *run)
{
    const struct poise_sort_options *options = run->options;
    struct sort_plan plain = run->plan;
    struct sort_pack *pack = &run->pack;

    pack->packing =
        (struct extmem_packing){.program = options->pack_program, .level = 1};
    pack->must = options->pack == POISE_SORT_PACK_ALWAYS ||
                 options->pack_program != NULL;
    pack->may = pack->must ||
                (options->pack == POISE_SORT_PACK_AUTO &&
                 plain.scratch_written >= LEAST_TO_MOVE &&
                 plain.memory / (plain.lanes + !plain.lanes) >= LEAST_MEMORY);
    if (run->world || plain.scratch_written <= 0) {
        pack->may = pack->must = false;
    }
    if (!pack->may) {
        return 0;
    }
    /* Not where there is no memory for it; fewer threads where it is a must. */
    if (sort_search_plan(run, plain.memory, plain.lanes) < 0 ||
        (run->plan.lanes < plain.lanes && !pack->must) ||
        run->plan.rounds > plain.rounds) {
        run->plan = plain;
        pack->may = pack->must = false;
    }
    pack->packing.block = run->plan.block;
    return 0;
}

/* ---- lanes --------------------------------------------------------------- */

int sort_unpacking_open(struct sort_packing *packing,
                        const struct sort_run *run, unsigned lane)
{
    *packing = (struct sort_packing){0};
    if (!run->pack.may) {
        return 0;
    }
    packing->room =
        sort_lane_memory(run, lane) + run->plan.local - run->plan.block;
    return extmem_packer_open(&run->pack.packing, &packing->packer);
}

int sort_packing_open(struct sort_packing *packing, const struct sort_run *run,
                      unsigned lane)
{
    int code = sort_unpacking_open(packing, run, lane);

    if (code == 0 && run->pack.may && !run->pack.must) {
        extmem_packer_close(packing->packer);
        packing->packer = NULL;
        packing->tries = true;
        packing->next_trial = LOOK;
    }
    return code;
}

void sort_packing_close(struct sort_packing *packing)
{
    extmem_packer_close(packing->packer);
    packing->packer = NULL;
}

int sort_packing_flush(struct sort_packing *packing,
                       struct extmem_blocks *blocks)
{
    char *slab = packing->slab;

    packing->slab = NULL;
    return slab ? extmem_block_write(blocks, slab, packing->slot,
                                     packing->filled)
                : 0;
}

/* Room for `bytes` in a slab. */
static int slab_begin(struct sort_packing *packing, struct sort_run *run,
                      struct extmem_blocks *blocks, size_t bytes)
{
    int code = 0;

    if (packing->slab && packing->filled + bytes > run->plan.block) {
        code = sort_packing_flush(packing, blocks);
    }
    if (code < 0 || packing->slab) {
        return code;
    }
    code = extmem_store_slot(&run->store, &packing->slot);
    if (code == 0) {
        code = extmem_block_take(blocks, &packing->slab);
    }
    packing->filled = 0;
    return code;
}

int sort_packing_put(struct sort_packing *packing, struct sort_run *run,
                     struct extmem_blocks *blocks, char *block,
                     struct sort_span *span)
{
    /* A quarter less, in whole pages. */
    size_t most = span->bytes / 4 * 3 / EXTMEM_PAGE * EXTMEM_PAGE, whole;
    ssize_t n = 0;
    uint32_t check;
    int code = 0;

    if (packing->tries) {
        packing->bytes += span->bytes;
        if (packing->bytes >= packing->next_trial && most > 0) {
            code = look(packing, run, blocks, block, span->bytes);
        }
    }
    if (code < 0 || !packing->packer) {
        return code;
    }
    if (most > 0 &&
        (packing->misses < MOST_MISSES || packing->misses % TRY_AGAIN == 0)) {
        n = extmem_pack(packing->packer, block, span->bytes, packing->room,
                        most);
    }
    packing->misses = n > 0 ? 0 : packing->misses + 1;
    if (n <= 0) {
        return (int)n;
    }
    whole = extmem_round_up((uint64_t)n, EXTMEM_PAGE);
    memset(packing->room + n, 0, whole - (size_t)n);
    check = sort_check_of(block, span->bytes);
    extmem_block_free(blocks, block);
    code = slab_begin(packing, run, blocks, whole);
    if (code < 0) {
        return code;
    }
    memcpy(packing->slab + packing->filled, packing->room, whole);
    span->slot = packing->slot;
    span->at = (uint32_t)packing->filled;
    span->packed = (uint32_t)n;
    span->check = check;
    packing->filled += whole;
    __atomic_fetch_add(&run->pack.bytes, span->bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&run->pack.packed_bytes, whole, __ATOMIC_RELAXED);
    return 1;
}

int sort_packing_take(struct sort_packing *packing,
                      const struct sort_span *span, char *data)
{
    int code;

    memcpy(packing->room, data, span->packed);
    code = extmem_unpack(packing->packer, packing->room, span->packed, data,
                         span->bytes);
    return code < 0 ? code : sort_span_check(span, data);
}

/* ---- buckets that are parted once more ---------------------------------- */

/* One block; `block` is memory for it. */
static int unpack_span(struct sort_run *run, struct sort_packing *packing,
                       char *block, struct sort_span *span)
{
    struct extmem_store *store = &run->store;
    struct poise_disk_transfer transfer;
    ssize_t n;
    int code;

    sort_span_read(store, span, block, &transfer);
    n = poise_disk_wait(&transfer);
    code = n < 0 ? (int)n : sort_packing_take(packing, span, block);
    if (code == 0) {
        code = extmem_store_slot(store, &span->slot);
    }
    if (code < 0) {
        return code;
    }
    span->packed = 0;
    span->at = 0;
    extmem_store_move(store, true, span->slot, block, span->bytes, &transfer);
    n = poise_disk_wait(&transfer);
    return n < 0 ? (int)n : 0;
}

int sort_bucket_unpack(struct sort_run *run, struct sort_bucket *bucket)
{
    struct sort_packing packing;
    int code;

    if (run->pack.bytes == 0) {
        return 0;
    }
    code = sort_unpacking_open(&packing, run, 0);
    for (unsigned i = 0; i < bucket->stream_count && code == 0; i++) {
        const struct sort_stream *stream = &bucket->streams[i];

        for (size_t j = 0; j < stream->count && code == 0; j++) {
            if (stream->spans[j].packed > 0) {
                /* Lanes do nothing now: their memory is free. */
                code = unpack_span(run, &packing, sort_lane_memory(run, 0),
                                   &stream->spans[j]);
            }
        }
    }
    sort_packing_close(&packing);
    return code;
}
