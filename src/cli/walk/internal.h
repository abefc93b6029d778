/* poise walk: what its summary, as text, JSON or a page, is made of. */
#ifndef POISE_CLI_WALK_H
#define POISE_CLI_WALK_H

#include "cli/common/job.h"

#include <poise/report.h>
#include <poise/survey.h>

/** A finished walk and how it was run. */
struct cli_walk_outcome {
    const char *const *roots;
    size_t root_count;
    const struct poise_walk_summary *summary;
    const struct poise_walk_result *result;
    const char *world_name;
    uint64_t startup_ns;
    int ranks;
    unsigned threads;
    const char *policy, *split;
    uint64_t seed; /**< 0: from the system */
    bool interrupted, stats;
};

int cli_walk_text(const struct cli_walk_outcome *walk, struct poise_buf *out);
int cli_walk_json(const struct cli_walk_outcome *walk, struct poise_buf *out);
/** The page's first section: what folders take of the disk. */
int cli_walk_tiles(const struct cli_walk_outcome *walk,
                   struct poise_page *page);
int cli_walk_page(const struct cli_walk_outcome *walk, struct poise_buf *out);

/** The name of a user, or its number. */
void cli_owner_name(uint32_t uid, struct poise_buf *out);
/** "up to 4 KiB": the upper limit of a bin of sizes or widths, exclusive. */
uint64_t cli_bin_limit(unsigned bin);
/** "1 day", the limit of a bin of ages; "older" for the last. */
void cli_age_label(unsigned bin, struct poise_buf *out);

#endif
