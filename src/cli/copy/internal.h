/* poise copy: what its page is made of. */
#ifndef POISE_CLI_COPY_H
#define POISE_CLI_COPY_H

#include "cli/common/job.h"

#include <poise/copy.h>

enum { CLI_COPY_COUNTS = 12 };

/** The counts, in the order of cli_copy_count, as JSON and people call them. */
extern const char *const cli_copy_keys[CLI_COPY_COUNTS];
extern const char *const cli_copy_words[CLI_COPY_COUNTS];
uint64_t cli_copy_count(const struct poise_copy_counts *counts, size_t i);

/** A finished copy and how it was run. */
struct cli_copy_outcome {
    const char *const *roots;
    size_t root_count;
    const char *target;
    const struct poise_copy_result *result;
    const char *world_name;
    unsigned threads;
    const char *checked; /**< what was, of the copy; NULL: nothing */
    uint64_t seed;       /**< 0: from the system */
    int code;            /**< of poise_copy_run */
};

/** A page: what was copied, how fast over the time and by whom, what failed. */
int cli_copy_page(const struct cli_copy_outcome *copy, struct poise_buf *out);

#endif
