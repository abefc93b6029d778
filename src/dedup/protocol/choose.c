/*
 * Which segmenter suits some data: each of a handful cuts a sample, and what
 * would be sent is counted: references, what segments cost beside their bytes,
 * and what is new, compressed. What is known is what the cache has, or what
 * came earlier in the sample.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    USUAL = 256,
    RUN_BYTES = 8, /* a reference where a run begins */
    LEN_BYTES = 2,
    PACK_LEVEL = 1,
    WORTH = 33, /* a candidate has to be better by one part in so many */
};

struct candidate {
    const struct poise_dedup_method *method;
    uint32_t average, element;
};

/* The first is what is taken where nothing is much better. */
static const struct candidate candidates[] = {
    {&dedup_gear, 256, 0},    {&dedup_gear, 64, 0},     {&dedup_gear, 1024, 0},
    {&dedup_gear, 4096, 0},   {&dedup_fixed, 256, 0},   {&dedup_fixed, 1024, 0},
    {&dedup_lbfs, 256, 0},    {&dedup_floats, 256, 4},  {&dedup_floats, 256, 8},
    {&dedup_floats, 1024, 4}, {&dedup_floats, 1024, 8},
};

/* One of them at work. */
struct trial {
    struct poise_dedup_store *store;
    struct dedup_table known; /* number of a segment by its hash */
    uint64_t number;          /* of the next */
    uint64_t next;            /* that would go on with the run */
    uint64_t place;           /* of the last one in the store */
    enum { RUN_NONE, RUN_OWN, RUN_STORE } run;
    ZSTD_CCtx *packer;
    struct wire_residual residual; /* what is new of an array */
    struct poise_buf held;
    size_t held_offset;
    uint64_t cost;
};

/* Compress what is new, in one stream. */
static int pack(struct trial *trial, const void *data, size_t len,
                ZSTD_EndDirective how)
{
    unsigned char out[1 << 12];
    ZSTD_inBuffer in = {data, len, 0};
    size_t left;

    do {
        ZSTD_outBuffer to = {out, sizeof out, 0};
        left = ZSTD_compressStream2(trial->packer, &to, &in, how);
        trial->cost += to.pos;
    } while (!ZSTD_isError(left) &&
             (in.pos < in.size || (how == ZSTD_e_end && left > 0)));
    return ZSTD_isError(left)
               ? poise_error_set(EIO, "compress with", "Zstandard", "%s",
                                 ZSTD_getErrorName(left))
               : 0;
}

/* What is new and was held to be coded together. */
static int settle(struct trial *trial)
{
    struct poise_buf made = {0}, *data = &trial->held;
    size_t len = data->len - trial->held_offset;
    int code = len ? wire_residual_try(&trial->residual, data,
                                       trial->held_offset, len, &made)
                   : 0;

    if (code > 0) {
        trial->cost += made.len;
    } else if (code == 0 && len > 0) {
        code =
            pack(trial, data->data + trial->held_offset, len, ZSTD_e_continue);
    }
    poise_buf_free(&made);
    if (data->len >= WIRE_GROUP_BYTES) {
        poise_buf_reset(data);
    }
    trial->held_offset = data->len;
    return code < 0 ? code : 0;
}

static int take_new(struct trial *trial, const struct poise_dedup_piece *piece)
{
    int code = 0;

    if (trial->held.len - trial->held_offset + piece->len > WIRE_MISS_MOST) {
        code = settle(trial);
    }
    wire_grid_of(piece->array, &trial->residual.grid);
    trial->cost += LEN_BYTES;
    return code < 0 ? code
                    : poise_buf_append(&trial->held, piece->data, piece->len);
}

/* Known in the cache: 1, and whether it goes on with a run. */
static int find_stored(struct trial *trial,
                       const struct poise_dedup_piece *piece, bool *goes_on)
{
    uint64_t at;
    int code;

    if (!trial->store) {
        return 0;
    }
    code = poise_dedup_store_find(
        trial->store,
        poise_dedup_store_fingerprint(trial->store, piece->data, piece->len),
        &at);
    if (code == 1) {
        *goes_on = trial->run == RUN_STORE && at == trial->place + 1;
        trial->run = RUN_STORE;
        trial->place = at;
    }
    return code;
}

static int count_piece(const struct poise_dedup_piece *piece, void *arg)
{
    struct trial *trial = arg;
    uint64_t hash, number;
    bool goes_on = false;
    int code;

    if (piece->kind == POISE_DEDUP_FILL) {
        trial->cost += RUN_BYTES + piece->period;
        return settle(trial);
    }
    code = find_stored(trial, piece, &goes_on);
    if (code < 0) {
        return code;
    }
    hash = poise_hash_bytes(piece->data, piece->len, 0);
    number = dedup_table_get(&trial->known, hash);
    if (code == 0 && number != UINT64_MAX) {
        goes_on = trial->run == RUN_OWN && number == trial->next;
        trial->run = RUN_OWN;
        trial->next = number + 1;
        code = 1;
    }
    if (number == UINT64_MAX) {
        dedup_table_put(&trial->known, hash, trial->number);
    }
    trial->number++;
    if (code == 0) {
        trial->run = RUN_NONE;
        return take_new(trial, piece);
    }
    trial->cost += goes_on ? 0 : RUN_BYTES;
    return settle(trial);
}

static unsigned log2_slots(size_t len, uint32_t average)
{
    unsigned bits = 10;

    while (bits < 20 && ((size_t)1 << bits) * average < 4 * len) {
        bits++;
    }
    return bits;
}

/* What a candidate would send. */
static int try_one(struct poise_dedup_store *store, const void *sample,
                   size_t len, const struct poise_dedup_method *method,
                   const struct poise_dedup_cut_options *cut, uint64_t *cost)
{
    struct trial trial = {.store = store, .packer = ZSTD_createCCtx()};
    struct poise_dedup_segmenter *segmenter = NULL;
    int code = trial.packer ? dedup_table_create(&trial.known,
                                                 log2_slots(len, cut->average))
                            : poise_error_set(ENOMEM, "use", "Zstandard", NULL);

    if (code == 0) {
        ZSTD_CCtx_setParameter(trial.packer, ZSTD_c_compressionLevel,
                               PACK_LEVEL);
        code = poise_dedup_segmenter_create(method, cut, count_piece, &trial,
                                            &segmenter);
    }
    code = code < 0 ? code : poise_dedup_segmenter_feed(segmenter, sample, len);
    code = code < 0 ? code : poise_dedup_segmenter_flush(segmenter);
    code = code < 0 ? code : settle(&trial);
    code = code < 0 ? code : pack(&trial, NULL, 0, ZSTD_e_end);
    if (code == 0) {
        *cost = trial.cost + poise_dedup_segmenter_stats(segmenter).meta_bytes;
    }
    poise_dedup_segmenter_destroy(segmenter);
    dedup_table_free(&trial.known);
    poise_buf_free(&trial.held);
    ZSTD_freeCCtx(trial.residual.judge);
    ZSTD_freeCCtx(trial.packer);
    return code;
}

/* As `wanted` says, and what a candidate is. */
static struct poise_dedup_cut_options
cut_of(const struct candidate *candidate,
       const struct poise_dedup_cut_options *wanted)
{
    struct poise_dedup_cut_options cut = {0};

    if (wanted) {
        cut = *wanted;
    }
    cut.average = cut.average ? cut.average : candidate->average;
    cut.element = candidate->element;
    return cut;
}

/* Whether to try it where some things are given. */
static bool is_wanted(const struct candidate *candidate,
                      const struct poise_dedup_cut_options *wanted)
{
    return !wanted || ((!wanted->average || candidate->average == USUAL) &&
                       (!wanted->element || !candidate->element ||
                        wanted->element == candidate->element));
}

int poise_dedup_choose(struct poise_dedup_store *store, const void *sample,
                       size_t len, const struct poise_dedup_cut_options *wanted,
                       struct poise_dedup_choice *out)
{
    struct poise_dedup_choice best = {0};
    size_t most = len < POISE_DEDUP_SAMPLE ? len : POISE_DEDUP_SAMPLE;

    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        const struct candidate *candidate = &candidates[i];
        struct poise_dedup_cut_options cut = cut_of(candidate, wanted);
        uint64_t cost = 0;
        int code;
        if (!is_wanted(candidate, wanted)) {
            continue;
        }
        code = try_one(store, sample, most, candidate->method, &cut, &cost);
        if (code < 0) {
            return code;
        }
        if (!best.method || cost < best.cost - best.cost / WORTH) {
            best = (struct poise_dedup_choice){candidate->method, cut, cost};
        }
    }
    *out = best;
    return 0;
}
