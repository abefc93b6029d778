/*
 * Spring and Wetherall: selected windows of what was sent are looked up, and
 * where one is found again the match is grown to both sides. What is between
 * matches is literal.
 *
 * The original keeps the last bytes of the stream. The other form, fit for a
 * cache of segments, keeps a block of fixed size around each selected window,
 * which limits how far a match can grow (thesis 8.5.3.2).
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 32,
    GAP_MOST = 4096,  /* longest literal */
    GROW_MOST = 4096, /* longest match of the original form */
    BLOCKS_LOG2 = 15,
    KEPT_BYTES = 4 << 20, /* of the stream, in the original form */
    TABLE_LOG2 = 18,
};

struct spring {
    struct dedup_rabin rabin;
    struct dedup_table table; /* of a window: its block, or where it ends */
    unsigned bits;
    size_t block, side; /* bytes of a block (0: original), beside a window */
    uint64_t seen;      /* bytes of the stream */
    uint64_t next;      /* block */
    uint64_t kept_from; /* what the first byte of `kept` is in the stream */
    size_t kept_len;
    unsigned char *kept; /* blocks, or up to twice KEPT_BYTES of the stream */
    /* The block that was found, which may be overwritten before it is used. */
    unsigned char found[POISE_DEDUP_HISTORY];
};

static void spring_destroy(void *state)
{
    struct spring *own = state;

    dedup_table_free(&own->table);
    free(own->kept);
    free(own);
}

static int spring_make(const struct poise_dedup_cut_options *options,
                       bool original, void **state)
{
    struct poise_dedup_cut_options all = dedup_cut_defaults(options, WINDOW);
    struct spring *own = poise_alloc(1, sizeof *own);
    unsigned bits = dedup_log2(all.average);
    size_t block = all.average;

    if (!own) {
        return -ENOMEM;
    }
    block = block > POISE_DEDUP_HISTORY ? POISE_DEDUP_HISTORY : block;
    block = block < all.window ? all.window : block;
    dedup_rabin_init(&own->rabin, all.window);
    /* Several windows in a segment's length. */
    own->bits = bits > 4 ? bits - 3 : 1;
    if (!original) {
        own->block = block;
        own->side = (block - all.window) / 2;
    }
    if (dedup_table_create(&own->table, TABLE_LOG2) < 0) {
        goto free_state;
    }
    own->kept =
        poise_alloc(original ? 2 * KEPT_BYTES : block << BLOCKS_LOG2, 1);
    if (!own->kept) {
        goto free_table;
    }
    *state = own;
    return 0;

free_table:
    dedup_table_free(&own->table);
free_state:
    free(own);
    return -ENOMEM;
}

static int spring_create(const struct poise_dedup_cut_options *options,
                         void **state)
{
    return spring_make(options, false, state);
}

static int spring_create_fifo(const struct poise_dedup_cut_options *options,
                              void **state)
{
    return spring_make(options, true, state);
}

/* ---- what is remembered ------------------------------------------------- */

/* Where in the stream data[0] lies is own->seen. */
static void remember_window(struct spring *own, const unsigned char *data,
                            ptrdiff_t end, uint64_t value)
{
    uint64_t index;

    if (own->block == 0) {
        dedup_table_put(&own->table, value, own->seen + (uint64_t)end);
        return;
    }
    index = dedup_table_get(&own->table, value);
    if (index == UINT64_MAX) {
        index = own->next++ & ((1 << BLOCKS_LOG2) - 1);
        dedup_table_put(&own->table, value, index);
    }
    memcpy(own->kept + index * own->block,
           data + end - (ptrdiff_t)(own->rabin.window + own->side), own->block);
}

static void keep(struct spring *own, const unsigned char *data, size_t len)
{
    if (own->kept_len + len > 2 * KEPT_BYTES) {
        memmove(own->kept, own->kept + own->kept_len - KEPT_BYTES, KEPT_BYTES);
        own->kept_len = KEPT_BYTES;
    }
    memcpy(own->kept + own->kept_len, data, len);
    own->kept_len += len;
    own->kept_from = own->seen + len - own->kept_len;
}

/* Windows whose block ends in data[0..taken). */
static void remember(struct spring *own, const unsigned char *data,
                     size_t taken)
{
    ptrdiff_t window = (ptrdiff_t)own->rabin.window;
    ptrdiff_t side = (ptrdiff_t)own->side;
    ptrdiff_t end = 1 - side, last = (ptrdiff_t)taken - side;
    uint64_t value = dedup_rabin_start(&own->rabin, data + end);

    if (own->block == 0) {
        /* In the stream, but for runs, which this method does not see. */
        keep(own, data, taken);
    }
    for (; end <= last; end++) {
        if (dedup_rabin_selects(value, own->bits) &&
            end - window - side + (ptrdiff_t)own->seen >= 0) {
            remember_window(own, data, end, value);
        }
        if (end < last) {
            value = dedup_rabin_slide(&own->rabin, value, data[end - window],
                                      data[end]);
        }
    }
    own->seen += taken;
}

/* ---- what is found ------------------------------------------------------ */

/* The bytes around a remembered window: it begins `skip` bytes into them. */
static bool source_of(const struct spring *own, uint64_t where,
                      struct poise_dedup_range *out)
{
    size_t window = own->rabin.window;

    if (own->block > 0) {
        out->of = own->kept + where * own->block;
        out->of_len = own->block;
        out->skip = own->side;
        return true;
    }
    if (where < own->kept_from + window ||
        where > own->kept_from + own->kept_len) {
        return false;
    }
    out->of = own->kept;
    out->of_len = own->kept_len;
    out->skip = (size_t)(where - window - own->kept_from);
    return true;
}

/* Grow the match of data[at .. at + window). */
static bool grow(const struct spring *own, const unsigned char *data,
                 size_t len, size_t at, struct poise_dedup_range *range,
                 size_t *start, size_t *size)
{
    size_t window = own->rabin.window, left = 0, right = window;

    if (memcmp(data + at, range->of + range->skip, window) != 0) {
        return false;
    }
    while (left < at && left < range->skip && left + window < GROW_MOST &&
           data[at - left - 1] == range->of[range->skip - left - 1]) {
        left++;
    }
    while (at + right < len && range->skip + right < range->of_len &&
           left + right < GROW_MOST &&
           data[at + right] == range->of[range->skip + right]) {
        right++;
    }
    range->skip -= left;
    *start = at - left;
    *size = left + right;
    return true;
}

static bool find(const struct spring *own, const unsigned char *data,
                 size_t len, size_t most, size_t *start,
                 struct poise_dedup_cut *out)
{
    size_t window = own->rabin.window, end = window;
    uint64_t value;

    if (end > most) {
        return false;
    }
    value = dedup_rabin_start(&own->rabin, data + end);
    for (;; end++) {
        if (dedup_rabin_selects(value, own->bits)) {
            uint64_t where = dedup_table_get(&own->table, value);
            if (where != UINT64_MAX && source_of(own, where, &out->range) &&
                grow(own, data, len, end - window, &out->range, start,
                     &out->len)) {
                return true;
            }
        }
        if (end == most) {
            return false;
        }
        value = dedup_rabin_slide(&own->rabin, value, data[end - window],
                                  data[end]);
    }
}

static int spring_next(void *state, const unsigned char *data, size_t len,
                       bool final, struct poise_dedup_cut *out)
{
    struct spring *own = state;
    size_t most = GAP_MOST + own->rabin.window, start = 0;

    if (len < most + GROW_MOST && !final) {
        return 0;
    }
    most = len < most ? len : most;
    if (find(own, data, len, most, &start, out) && start == 0) {
        out->kind = POISE_DEDUP_RANGE;
        if (own->block > 0) {
            memcpy(own->found, out->range.of, own->block);
            out->range.of = own->found;
        } else {
            out->range = (struct poise_dedup_range){data, out->len, 0};
        }
    } else {
        out->kind = POISE_DEDUP_LITERAL;
        out->len = start > 0 ? start : len < GAP_MOST ? len : GAP_MOST;
    }
    remember(own, data, out->len);
    return 1;
}

const struct poise_dedup_method dedup_spring = {
    .version = POISE_DEDUP_METHOD_VERSION,
    .name = "spring",
    .summary = "matches grown from windows, within blocks of a cache",
    .meta_bytes = 2,
    .create = spring_create,
    .destroy = spring_destroy,
    .next = spring_next,
};

const struct poise_dedup_method dedup_spring_fifo = {
    .version = POISE_DEDUP_METHOD_VERSION,
    .name = "spring-fifo",
    .summary = "the same within the last 4 MiB of the stream",
    .meta_bytes = 2,
    .create = spring_create_fifo,
    .destroy = spring_destroy,
    .next = spring_next,
};
