/*
 * Thresholds between buckets, from a random sample of the keys. A key that
 * fills a bucket by itself gets one of its own, which needs no sorting.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- thresholds --------------------------------------------------------- */

/* `before` is the part of the sample that does not pass it. */
static void add_threshold(struct sort_splitters *splitters,
                          const struct sort_key *key, bool after, double before)
{
    struct sort_threshold *threshold = &splitters->thresholds[splitters->count];

    splitters->uniform[splitters->count] = after;
    *threshold = (struct sort_threshold){.key = *key, .after = after};
    splitters->count++;
    splitters->before[splitters->count] = before;
}

/* The last key is the greatest there is: nothing lies behind it. */
static bool is_last(const struct sort_key *key, uint64_t greatest)
{
    return !key->bytes && key->window == greatest;
}

static double part(size_t i, size_t n)
{
    return (double)i / (double)n;
}

/* Cut the sample into about `aim` buckets, `most` at most; a key with half a
 * bucket's share or more stands by itself. False if there was no room for some
 * of those. */
static bool choose(struct sort_splitters *splitters,
                   const struct sort_sample *sample, uint32_t aim,
                   uint32_t most, uint64_t greatest)
{
    const struct sort_key *keys = sample->keys;
    size_t n = sample->count, i = 0;
    double share = (double)n / aim, target = share;

    memset(splitters->uniform, 0, most);
    splitters->count = 0;
    while (i < n) {
        size_t end = i + 1;

        while (end < n &&
               sort_key_compare(splitters->rules, &keys[i], &keys[end]) == 0) {
            end++;
        }
        if (splitters->count + 3 > most) {
            return false;
        }
        if (end - i > 1 && (double)(end - i) >= share / 2) {
            add_threshold(splitters, &keys[i], false, part(i, n));
            if (!is_last(&keys[i], greatest)) {
                add_threshold(splitters, &keys[i], true, part(end, n));
            } else {
                splitters->uniform[splitters->count] = true;
            }
            target = (double)end + share;
        } else if (i > 0 && (double)end > target) {
            add_threshold(splitters, &keys[i], false, part(i, n));
            while (target < (double)end) {
                target += share;
            }
        }
        i = end;
    }
    return true;
}

/* Numbers behind a threshold that is not passed by its own key are one more.
 */
static uint64_t passed_from(const struct sort_threshold *threshold)
{
    return threshold->key.window +
           (threshold->after && !threshold->key.bytes ? 1 : 0);
}

static void fill_tree(struct sort_splitters *splitters, size_t node,
                      uint32_t *next)
{
    if (node >= (size_t)1 << splitters->levels) {
        return;
    }
    fill_tree(splitters, 2 * node, next);
    splitters->tree[node] = *next < splitters->count
                                ? passed_from(&splitters->thresholds[*next])
                                : UINT64_MAX;
    (*next)++;
    fill_tree(splitters, 2 * node + 1, next);
}

static int make_tree(struct sort_splitters *splitters)
{
    uint32_t next = 0;

    splitters->levels = 0;
    while (((uint32_t)1 << splitters->levels) <= splitters->count) {
        splitters->levels++;
    }
    splitters->tree =
        poise_alloc((size_t)1 << splitters->levels, sizeof *splitters->tree);
    if (!splitters->tree) {
        return -ENOMEM;
    }
    fill_tree(splitters, 1, &next);
    return 0;
}

/* The table, if no cell has more thresholds than are passed quickly. */
static int make_cells(struct sort_splitters *splitters)
{
    enum { MOST = 3 };
    uint64_t *passed = poise_alloc(splitters->count + 2, sizeof *passed);
    uint16_t *cells = poise_alloc(SORT_CELLS + 2, sizeof *cells);
    uint32_t rank = 0;
    uint64_t span;
    bool pays = splitters->count > 0 && splitters->count < UINT16_MAX;

    splitters->passed = passed;
    splitters->cells = cells;
    if (!passed || !cells) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < splitters->count; i++) {
        passed[i] = passed_from(&splitters->thresholds[i]);
    }
    passed[splitters->count] = passed[splitters->count + 1] = UINT64_MAX;
    splitters->cell_base = passed[0];
    span = pays ? passed[splitters->count - 1] - passed[0] : 0;
    while (span >> splitters->cell_shift >= SORT_CELLS) {
        splitters->cell_shift++;
    }
    for (uint64_t i = 0; i < SORT_CELLS && pays; i++) {
        uint64_t begin = i << splitters->cell_shift;
        uint32_t before = rank;

        while (rank < splitters->count &&
               passed[rank] - splitters->cell_base <= begin) {
            rank++;
        }
        cells[i + 1] = (uint16_t)rank;
        pays = rank - before <= MOST;
    }
    cells[SORT_CELLS + 1] = (uint16_t)splitters->count;
    if (!pays) {
        free(cells);
        splitters->cells = NULL;
    }
    return 0;
}

/* What the thresholds point to outlives the sample. */
static int keep_keys(struct sort_splitters *splitters)
{
    poise_buf_putc(&splitters->keys, '\0');
    for (uint32_t i = 0; i < splitters->count; i++) {
        const struct sort_key *key = &splitters->thresholds[i].key;

        if (key->bytes) {
            poise_buf_append(&splitters->keys, key->bytes, key->len);
        }
    }
    if (splitters->keys.error) {
        return splitters->keys.error;
    }
    for (uint32_t i = 0, at = 1; i < splitters->count; i++) {
        struct sort_key *key = &splitters->thresholds[i].key;

        if (key->bytes) {
            key->bytes = (const unsigned char *)splitters->keys.data + at;
            at += key->len;
        }
    }
    return 0;
}

/* Thresholds as they travel, with offsets for addresses. */
static int cuts_write(const struct sort_splitters *splitters,
                      struct poise_buf *out)
{
    poise_buf_u64(out, splitters->count);
    for (uint32_t i = 0; i < splitters->count; i++) {
        struct sort_threshold threshold = splitters->thresholds[i];

        if (threshold.key.bytes) {
            threshold.key.bytes =
                (const unsigned char *)(size_t)((const char *)
                                                    threshold.key.bytes -
                                                splitters->keys.data);
        }
        poise_buf_blob(out, &threshold, sizeof threshold);
    }
    poise_buf_blob(out, splitters->uniform, splitters->count + 1);
    return poise_buf_blob(out, splitters->keys.data, splitters->keys.len);
}

static int cuts_read(struct sort_splitters *splitters,
                     const struct poise_buf *in, uint32_t most)
{
    struct poise_reader reader = poise_reader_of(in->data, in->len);
    uint64_t count = poise_reader_u64(&reader);
    bool is_damaged = reader.error || count >= most;
    const char *keys;
    size_t len;

    splitters->count = is_damaged ? 0 : (uint32_t)count;
    for (uint32_t i = 0; i < splitters->count && !is_damaged; i++) {
        const void *one = poise_reader_blob(&reader, &len);

        is_damaged = reader.error || len != sizeof splitters->thresholds[i];
        if (!is_damaged) {
            memcpy(&splitters->thresholds[i], one, len);
        }
    }
    keys = poise_reader_blob(&reader, &len);
    is_damaged |= reader.error || len != splitters->count + 1;
    if (!is_damaged) {
        memcpy(splitters->uniform, keys, len);
    }
    keys = poise_reader_blob(&reader, &len);
    if (is_damaged || reader.error) {
        splitters->count = 0;
        return poise_error_set(EPROTO, "sort", NULL, "thresholds are damaged");
    }
    poise_buf_reset(&splitters->keys);
    if (poise_buf_append(&splitters->keys, keys, len) < 0) {
        return splitters->keys.error;
    }
    for (uint32_t i = 0; i < splitters->count; i++) {
        struct sort_key *key = &splitters->thresholds[i].key;

        if (key->bytes) {
            key->bytes = (const unsigned char *)splitters->keys.data +
                         (size_t)key->bytes;
        }
    }
    return 0;
}

/* The first process's thresholds to all. */
static int cuts_broadcast(struct sort_splitters *splitters,
                          const struct sort_run *run, uint32_t most)
{
    struct poise_buf buf = {0};
    int code = run->rank == 0 ? cuts_write(splitters, &buf) : 0;

    code = extmem_agree(run->world, code);
    if (code == 0) {
        code = poise_world_broadcast(run->world, 0, &buf);
    }
    if (code == 0 && run->rank > 0) {
        code = cuts_read(splitters, &buf, most);
    }
    poise_buf_free(&buf);
    return extmem_agree(run->world, code);
}

static int cuts_choose(struct sort_splitters *splitters,
                       const struct sort_sample *sample, uint32_t buckets)
{
    uint64_t greatest =
        sample->source->run->shape == SORT_WORDS_32 ? UINT32_MAX : UINT64_MAX;

    /* Keys that stand by themselves add buckets: aim lower until all fit. */
    if (buckets > 2 && sample->count > 0) {
        uint32_t aim = buckets - 2;

        while (!choose(splitters, sample, aim, buckets, greatest) && aim > 2) {
            aim -= aim / 16 + 1;
        }
    }
    return keep_keys(splitters);
}

int sort_splitters_make(const struct sort_source *source, uint32_t buckets,
                        uint64_t reads, struct sort_splitters *out)
{
    const struct sort_run *run = source->run;
    struct sort_splitters splitters = {0};
    struct sort_sample sample = {.source = source};
    bool is_shared = run->world && !source->bucket;
    int code = 0;

    splitters.rules = run->type.keys;
    splitters.thresholds = poise_alloc(buckets, sizeof *splitters.thresholds);
    splitters.uniform = poise_alloc(buckets, sizeof *splitters.uniform);
    splitters.before = poise_alloc(buckets, sizeof *splitters.before);
    if (!splitters.thresholds || !splitters.uniform || !splitters.before) {
        code = -ENOMEM;
    }
    code = is_shared ? extmem_agree(run->world, code) : code;
    if (code == 0 && reads > 0) {
        code = sort_sample_take(&sample, reads, is_shared);
    }
    if (code == 0 && (!is_shared || run->rank == 0)) {
        code = cuts_choose(&splitters, &sample, buckets);
    }
    if (is_shared) {
        code = extmem_agree(run->world, code);
        code = code < 0 ? code : cuts_broadcast(&splitters, run, buckets);
    }
    if (code == 0) {
        code = make_tree(&splitters);
    }
    if (code == 0) {
        code = make_cells(&splitters);
    }
    sort_sample_free(&sample);
    code = is_shared ? extmem_agree(run->world, code) : code;
    if (code < 0) {
        sort_splitters_free(&splitters);
        return code;
    }
    *out = splitters;
    return 0;
}

/* ---- by one line -------------------------------------------------------- */

struct pivot {
    const struct poise_sort_type *type;
    struct sort_key key;
    struct poise_buf room, line;
};

/* The first one is all that is wanted. */
static int take_pivot(void *arg, const unsigned char *item, size_t len)
{
    struct pivot *pivot = arg;

    poise_buf_append(&pivot->line, item, len);
    poise_buf_str(&pivot->line);
    if (pivot->line.error) {
        return pivot->line.error;
    }
    pivot->key =
        sort_key_of(pivot->type, (const unsigned char *)pivot->line.data, len,
                    &pivot->room);
    return pivot->room.error ? pivot->room.error : 1;
}

/* The first line of a source, however long; 1 if there is one. */
static int find_pivot(const struct sort_source *source, struct pivot *pivot)
{
    enum { CHUNK = 16 << 10 };
    const struct sort_run *run = source->run;
    char *memory = poise_huge_alloc(extmem_reader_bytes(CHUNK));
    int code = memory ? 0 : -ENOMEM;

    for (unsigned i = 0; i < run->plan.lanes && code == 0; i++) {
        struct extmem_part part = sort_source_part(source, i);
        struct extmem_reader reader;
        struct sort_cutter cutter = {.ending = sort_ending(&run->type),
                                     .item = take_pivot,
                                     .arg = pivot};
        const char *data;
        size_t len;

        extmem_reader_open(&reader, &part, memory, extmem_reader_bytes(CHUNK),
                           CHUNK);
        while (code == 0 &&
               (code = extmem_reader_next(&reader, &data, &len)) > 0) {
            code = sort_cutter_feed(&cutter, data, len);
        }
        extmem_reader_close(&reader);
        poise_buf_free(&cutter.carry);
    }
    poise_huge_free(memory, extmem_reader_bytes(CHUNK));
    return code;
}

int sort_splitters_pivot(const struct sort_source *source,
                         struct sort_splitters *out)
{
    struct sort_splitters splitters = {.rules = source->run->type.keys};
    struct pivot pivot = {.type = &source->run->type};
    int code = find_pivot(source, &pivot);

    if (code == 0) {
        code = poise_error_set(EIO, "sort", NULL, "there is no whole line");
    }
    splitters.thresholds = poise_alloc(2, sizeof *splitters.thresholds);
    splitters.uniform = poise_alloc(3, sizeof *splitters.uniform);
    splitters.before = poise_alloc(3, sizeof *splitters.before);
    if (code > 0 &&
        (!splitters.thresholds || !splitters.uniform || !splitters.before)) {
        code = -ENOMEM;
    }
    if (code > 0) {
        add_threshold(&splitters, &pivot.key, false, 0);
        add_threshold(&splitters, &pivot.key, true, 0);
        code = keep_keys(&splitters);
    }
    if (code == 0) {
        code = make_tree(&splitters);
    }
    if (code == 0) {
        code = make_cells(&splitters);
    }
    poise_buf_free(&pivot.room);
    poise_buf_free(&pivot.line);
    if (code < 0) {
        sort_splitters_free(&splitters);
        return code;
    }
    *out = splitters;
    return 0;
}

void sort_splitters_free(struct sort_splitters *splitters)
{
    free(splitters->thresholds);
    free(splitters->uniform);
    free(splitters->before);
    free(splitters->tree);
    free(splitters->cells);
    free(splitters->passed);
    poise_buf_free(&splitters->keys);
}

/* How many nodes of the tree are <= x. */
static uint32_t tree_rank(const struct sort_splitters *splitters, uint64_t x)
{
    uint64_t node = 1;
    uint32_t rank;

    for (unsigned level = 0; level < splitters->levels; level++) {
        node = 2 * node + (splitters->tree[node] <= x);
    }
    rank = (uint32_t)(node - ((uint64_t)1 << splitters->levels));
    return rank < splitters->count ? rank : splitters->count;
}

uint32_t sort_splitters_find(const struct sort_splitters *splitters,
                             const struct sort_key *key)
{
    uint32_t high = tree_rank(splitters, key->window), low;

    if (!key->bytes || high == 0 ||
        splitters->thresholds[high - 1].key.window != key->window) {
        return high;
    }
    /* Windows that are equal: whole keys decide. */
    low = key->window > 0 ? tree_rank(splitters, key->window - 1) : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct sort_threshold *threshold = &splitters->thresholds[middle];
        int order = sort_key_compare(splitters->rules, key, &threshold->key);

        if (order > 0 || (order == 0 && !threshold->after)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}
