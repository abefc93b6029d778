/* Methods over Rabin's fingerprints: Manber's windows, and the anchors of
 * LBFS. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

struct windows {
    struct dedup_rabin rabin;
    unsigned bits;
    uint32_t min, max;
    uint64_t seen; /* bytes, up to the length of the history */
};

static struct windows *create(const struct poise_dedup_cut_options *all)
{
    struct windows *own = poise_alloc(1, sizeof *own);

    if (own) {
        dedup_rabin_init(&own->rabin, all->window);
        own->bits = dedup_log2(all->average);
        own->bits = own->bits ? own->bits : 1;
        own->min = all->min;
        own->max = all->max;
    }
    return own;
}

/* ---- Manber ------------------------------------------------------------- */

/* Longest literal between windows. */
enum { GAP_MOST = 4096 };

static int manber_create(const struct poise_dedup_cut_options *options,
                         void **state)
{
    struct poise_dedup_cut_options all = dedup_cut_defaults(options, 0);

    if (all.window == 0) {
        all.window = all.average < POISE_DEDUP_HISTORY ? all.average
                                                       : POISE_DEDUP_HISTORY;
    }
    *state = create(&all);
    return *state ? 0 : -ENOMEM;
}

static void manber_took(struct windows *own, const struct poise_dedup_cut *cut)
{
    if (own->seen < POISE_DEDUP_HISTORY) {
        own->seen += cut->len - cut->back;
    }
}

/* The segments are the selected windows; they may overlap, up to seven eighths
 * (in constant data all windows are selected, or none). */
static int manber_next(void *state, const unsigned char *data, size_t len,
                       bool final, struct poise_dedup_cut *out)
{
    struct windows *own = state;
    size_t window = own->rabin.window;
    size_t least = own->seen < window ? window : window / 8 + 1;
    size_t most = GAP_MOST + window, end = least;
    uint64_t value;
    bool found = false;

    if (len < most && !final) {
        return 0;
    }
    most = len < most ? len : most;
    if (end <= most) {
        value = dedup_rabin_start(&own->rabin, data + end);
        while (!(found = dedup_rabin_selects(value, own->bits)) && end < most) {
            value = dedup_rabin_slide(&own->rabin, value,
                                      data[(ptrdiff_t)end - (ptrdiff_t)window],
                                      data[end]);
            end++;
        }
    }
    *out = (struct poise_dedup_cut){.kind = POISE_DEDUP_LITERAL};
    if (found && end <= window) {
        out->kind = POISE_DEDUP_SEGMENT;
        out->len = window;
        out->back = window - end;
    } else if (found) {
        out->len = end - window;
    } else {
        out->len = len < GAP_MOST ? len : GAP_MOST;
    }
    manber_took(own, out);
    return 1;
}

const struct poise_dedup_method dedup_manber = {
    .version = POISE_DEDUP_METHOD_VERSION,
    .name = "manber",
    .summary = "windows that Rabin's fingerprint selects; not all is covered",
    .meta_bytes = 1,
    .create = manber_create,
    .destroy = free,
    .next = manber_next,
};

/* ---- LBFS --------------------------------------------------------------- */

enum { LBFS_WINDOW = 48 };

static int lbfs_create(const struct poise_dedup_cut_options *options,
                       void **state)
{
    struct poise_dedup_cut_options all =
        dedup_cut_defaults(options, LBFS_WINDOW);

    *state = create(&all);
    return *state ? 0 : -ENOMEM;
}

static int lbfs_next(void *state, const unsigned char *data, size_t len,
                     bool final, struct poise_dedup_cut *out)
{
    struct windows *own = state;
    size_t window = own->rabin.window;
    size_t most = len < own->max ? len : own->max, end = own->min;
    uint64_t value;

    out->kind = POISE_DEDUP_SEGMENT;
    if (end < most) {
        value = dedup_rabin_start(&own->rabin, data + end);
        while (!dedup_rabin_selects(value, own->bits) && end < most) {
            value = dedup_rabin_slide(&own->rabin, value,
                                      data[(ptrdiff_t)end - (ptrdiff_t)window],
                                      data[end]);
            end++;
        }
        if (end < most) {
            out->len = end;
            return 1;
        }
    }
    if (len < own->max && !final) {
        return 0;
    }
    out->len = most;
    return 1;
}

const struct poise_dedup_method dedup_lbfs = {
    .version = POISE_DEDUP_METHOD_VERSION,
    .name = "lbfs",
    .summary = "cut where Rabin's fingerprint of 48 bytes says so",
    .create = lbfs_create,
    .destroy = free,
    .next = lbfs_next,
};
