/*
 * Arrays of floats: segments begin and end between elements and never go over
 * the end of a row, so that a block which moved by rows, planes or steps of
 * time, or stayed while others changed, is made of the same segments. Within a
 * row they end where the last two elements say so: a window that slid sideways
 * finds them again, too.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct floats {
    uint32_t element;  /* bytes */
    uint32_t min, max; /* bytes of a segment, multiples of it */
    uint64_t line;     /* bytes at whose multiples one ends; 0: none */
    uint64_t at;       /* bytes since the last of these, or at all */
    unsigned bits;     /* one place in 2^bits is an end */
};

/* Rows that are shorter than a segment are taken together, by planes and so
 * on. */
static uint64_t line_of(const struct poise_dedup_cut_options *options,
                        uint32_t element, uint32_t average)
{
    uint64_t line = element;

    for (size_t i = POISE_DEDUP_DIMENSIONS; i-- > 0;) {
        uint64_t extent = options->shape[i] ? options->shape[i] : 1;
        if (__builtin_mul_overflow(line, extent, &line)) {
            return 0;
        }
        if (line >= average) {
            return line;
        }
    }
    return line > element ? line : 0;
}

static uint32_t whole(uint32_t bytes, uint32_t element)
{
    return bytes < element ? element : bytes / element * element;
}

static int floats_create(const struct poise_dedup_cut_options *options,
                         void **state)
{
    struct poise_dedup_cut_options all = dedup_cut_defaults(options, 0);
    uint32_t element = all.element ? all.element : 4;
    struct floats *own;

    if (element != 4 && element != 8) {
        return poise_error_set(EINVAL, "cut floats", NULL,
                               "elements have 4 or 8 bytes, not %u", element);
    }
    own = poise_alloc(1, sizeof *own);
    if (!own) {
        return -ENOMEM;
    }
    own->element = element;
    own->min = whole(all.min, element);
    own->max = whole(all.max, element);
    own->line = line_of(&all, element, all.average);
    own->bits = dedup_log2(all.average / element);
    *state = own;
    return 0;
}

/* So many bytes are cut off. */
static void floats_skip(void *state, size_t len)
{
    struct floats *own = state;

    own->at += len;
    own->at %= own->line ? own->line : own->element;
}

/* The element that ends before `at`. */
static uint64_t element_before(const struct floats *own,
                               const unsigned char *at)
{
    uint64_t wide;
    uint32_t narrow;

    if (own->element == 8) {
        memcpy(&wide, at - 8, 8);
        return wide;
    }
    memcpy(&narrow, at - 4, 4);
    return narrow;
}

static bool is_end(const struct floats *own, const unsigned char *at)
{
    uint64_t last = element_before(own, at);
    uint64_t before = element_before(own, at - own->element);
    uint64_t mixed = (last + before * UINT64_C(0x9e3779b97f4a7c15)) *
                     UINT64_C(0xd6e8feb86659fd93);

    /* Where all are the same none says more than the others. */
    return last != before && (own->bits == 0 || mixed >> (64 - own->bits) == 0);
}

static int floats_next(void *state, const unsigned char *data, size_t len,
                       bool final, struct poise_dedup_cut *out)
{
    struct floats *own = state;
    /* As far as an element that is here in part. */
    size_t first = own->element - (size_t)(own->at % own->element);
    size_t most = own->max - own->element + first, end;

    if (own->line && own->line - own->at < most) {
        most = (size_t)(own->line - own->at);
    }
    out->kind = POISE_DEDUP_SEGMENT;
    end = first;
    while (end < own->min) {
        end += own->element;
    }
    /* What would be left of a row is no segment of its own. */
    while (end + own->min <= most && end <= len && !is_end(own, data + end)) {
        end += own->element;
    }
    end = end + own->min <= most ? end : most;
    if (end > len) {
        if (!final) {
            return 0;
        }
        end = len;
    }
    floats_skip(own, end);
    out->len = end;
    return 1;
}

const struct poise_dedup_method dedup_floats = {
    .version = POISE_DEDUP_METHOD_VERSION,
    .name = "floats",
    .summary = "whole elements of an array, cut at the ends of its rows",
    .create = floats_create,
    .destroy = free,
    .next = floats_next,
    .skip = floats_skip,
};
