/*
 * Operands out of a file: names, each ended by a NUL, as find -print0 writes
 * them. Read by rank 0 for all.
 */
#ifndef POISE_CLI_NAMES_H
#define POISE_CLI_NAMES_H

#include "job.h"

struct cli_names {
    const char **items; /**< owned array of strings in `text` */
    size_t count;
    uint64_t empty; /**< names of no length, which were reported */
    struct poise_buf text;
};

/** Read the names in `path`, "-": standard input. Collective over the job; its
 * name is used in reports. Negative errno, recorded, and nothing to free. */
int cli_names_read(const struct cli_job *job, const char *path,
                   struct cli_names *out);
void cli_names_free(struct cli_names *names);

#endif
