/*
 * Shared by the commands about virtual ranks (run.c, advise.c): profiles as
 * tables and as a page.
 */
#ifndef POISE_CLI_RUN_H
#define POISE_CLI_RUN_H

#include "cli/common/common.h"

#include <poise/vrank.h>

/**
 * Run the command line argv of `poise run` as `processes` processes, by the
 * launcher of an MPI; *status: what the job ended with, POISE_VRANK_FAILED
 * where the launcher did not start it. Dies of a signal that ended the job,
 * passed on to the launcher. Negative errno, with the error set.
 */
int cli_launch(int64_t processes, int argc, char **argv, int *status);
/** In a process of such a job: it begins; it ends with `status`, also called in
 * a handler of a signal. Elsewhere nothing happens. */
void cli_launch_begins(void);
void cli_launch_ends(int status);

/** One table of a profile. */
struct cli_profile_table {
    const char *title;
    const char *text; /**< what it tells, in a sentence or two; may be NULL */
    bool needs_text;  /**< not to be understood without, on terminals too */
    struct poise_table *table;
};
/** All there may be. */
enum { CLI_PROFILE_TABLES = 10 };

/** Ranks, calls and phases in tables on a terminal; pages have more. */
enum { CLI_PROFILE_ROWS = 16, CLI_PROFILE_PAGE_ROWS = 256 };

/** The tables of a profile, with at most `rows` rows about single ranks or
 * phases each. `against`, a profile of the same program with one rank for each
 * processor, may be NULL. Returns how many; destroy each table. Negative: none
 * were made. */
int cli_profile_tables(const struct poise_vrank_profile *profile,
                       const struct poise_vrank_profile *against, int rows,
                       struct cli_profile_table *out);
void cli_profile_tables_free(struct cli_profile_table *tables, int count);

/** One line: how the job was run, and how long it took. */
void cli_profile_head(const struct poise_vrank_profile *profile,
                      struct poise_buf *out);
/** All tables as text. 0 or negative. */
int cli_profile_text(const struct poise_vrank_profile *profile,
                     const struct poise_vrank_profile *against,
                     struct poise_buf *out);
/** The page; `checked` is what was, of the run, or NULL. 0 or negative. */
int cli_profile_page(const struct poise_vrank_profile *profile,
                     const struct poise_vrank_profile *against,
                     const char *program, const char *checked,
                     struct poise_buf *out);

/** What the workers of a profile have in all. */
struct cli_profile_sum {
    uint64_t wall_ns; /**< of all workers together */
    uint64_t idle_ns, busy_ns, switches;
    int64_t kernel[POISE_VRANK_KERNELS];
    int64_t counters[POISE_VRANK_COUNTERS]; /**< -1: not available */
    uint64_t ns[POISE_VRANK_TIMES];         /**< of all ranks */
    uint64_t rank_ns;                       /**< their sum */
    uint64_t collective_ns;                 /**< ranks waited in collectives */
};
void cli_profile_add_up(const struct poise_vrank_profile *profile,
                        struct cli_profile_sum *out);

#endif
