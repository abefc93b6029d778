/* What is added up of items with equal keys. */
#ifndef POISE_SORT_TOTAL_H
#define POISE_SORT_TOTAL_H

#include "internal.h"

/** 38 digits. */
__extension__ typedef __int128 sort_wide;
__extension__ typedef unsigned __int128 sort_wide_unsigned;

enum { SORT_MOST_SUMS = 8 };

/** A sum: of lines units of 10^-scale, of records units of 1 or `floating`. */
struct sort_sum {
    sort_wide units;
    unsigned scale;
    double floating;
};

struct sort_total {
    uint64_t items;
    struct sort_sum sums[SORT_MOST_SUMS];
};

/** Whether items change: they are counted, or fields of them added up. */
static inline bool sort_has_totals(const struct sort_run *run)
{
    return run->options->count || run->options->sums;
}
/** Add an item (a line without its end). -ERANGE with the error set. */
int sort_total_add(const struct sort_run *run, struct sort_total *total,
                   const unsigned char *item, size_t len);
int sort_total_merge(const struct sort_run *run, struct sort_total *total,
                     const struct sort_total *other);
/** Append the item that stands for all of them: its count, its fields. */
int sort_total_put(const struct sort_run *run, const struct sort_total *total,
                   const unsigned char *item, size_t len,
                   struct poise_buf *out);

#endif
