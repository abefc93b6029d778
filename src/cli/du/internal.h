/*
 * How poise du writes amounts and times: as GNU du does.
 */
#ifndef POISE_CLI_DU_INTERNAL_H
#define POISE_CLI_DU_INTERNAL_H

#include <poise/comm.h>
#include <poise/core.h>
#include <poise/options.h>

#include <time.h>

/** How amounts are written. */
struct du_scale {
    uint64_t block;     /**< 0: for people */
    unsigned base;      /**< 1024 or 1000, for people */
    const char *suffix; /**< behind each amount: "-BK" prints "4K" */
};

/** GNU's SIZE: a number, a unit, or both; a bare unit is printed, too. NULL:
 * what DU_BLOCK_SIZE, BLOCK_SIZE, BLOCKSIZE or POSIXLY_CORRECT in the
 * environment say, else 1024. -EINVAL. */
int du_scale_of(const char *text, struct du_scale *out);
void du_put_amount(struct poise_buf *out, const struct du_scale *scale,
                   uint64_t amount);

/** GNU's threshold: a size, or "-" and a size. -EINVAL. */
int du_threshold_of(const char *text, int64_t *out);

/** The format of a time style (NULL: that of TIME_STYLE in the environment,
 * else long-iso), for du_put_time; it may point into `style`. -EINVAL. */
int du_time_format(const char *style, const char **format);
/** A time as strftime writes it, with %N for nanoseconds. Local time. */
void du_put_time(struct poise_buf *out, const char *format,
                 struct timespec time);

/** Operands and patterns, from the command line and from files. */
struct du_lists {
    const char *const *given; /**< operands */
    size_t given_count;
    const char *files0_from; /**< more of them, or NULL */
    const struct poise_strings *patterns, *pattern_files;
    /* What becomes of them, on all ranks: */
    const char **roots, **exclude;
    size_t root_count, exclude_count;
    uint64_t bad; /**< rank 0: names that made no sense, and were told */
    char *memory;
    size_t bytes;
};
/** Fill in what is missing. Collective; free it in any case. */
int du_lists_get(struct poise_world *world, struct du_lists *lists);
void du_lists_free(struct du_lists *lists);

#endif
