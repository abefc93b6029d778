/*
 * The page of a command over trees (--report): how far it was at which moment,
 * what failed, which rank did how much. Commands add their figures.
 */
#ifndef POISE_CLI_TREE_PAGE_H
#define POISE_CLI_TREE_PAGE_H

#include "job.h"

#include <poise/report.h>

#include <pthread.h>

enum { CLI_TREE_SAMPLES = 512, CLI_TREE_ERRORS = 100, CLI_TREE_COUNTS = 16 };

struct cli_tree_page {
    const char *path; /**< NULL: none is wanted, and nothing kept */
    pthread_mutex_t lock;
    struct poise_buf errors; /**< the first of them, of this process */
    unsigned error_count;
    uint64_t start_ns, every_ns;
    struct {
        uint64_t at_ns, done; /**< of all ranks */
    } samples[CLI_TREE_SAMPLES];
    size_t sample_count;
};

/** What a command has to say. */
struct cli_tree_figures {
    const char *title, *done; /**< "Files removed", ... in sections */
    struct cli_tree_count {
        const char *label; /**< NULL: the end */
        uint64_t value;
    } counts[CLI_TREE_COUNTS];
    uint64_t bytes;        /**< read; 0: it is not told */
    const uint64_t *sizes; /**< files of [0] no, [i] less than 2^i bytes */
    size_t size_bins;
    const struct poise_walk_result *walk;
    bool whole;
};

/** Begin: whether FILE can be written is known before anything is done.
 * Collective; 0, or the error, which is printed. */
int cli_tree_page_begin(struct cli_tree_page *page, struct cli_job *job,
                        const char *path);
void cli_tree_page_error(struct cli_tree_page *page,
                         const struct poise_error *err);
void cli_tree_page_progress(struct cli_tree_page *page,
                            const struct poise_pool_stats *stats);
/** Write it, on rank 0, and free it: 0, or the error, recorded. */
int cli_tree_page_end(struct cli_tree_page *page, const struct cli_job *job,
                      const struct cli_tree_figures *figures);

/* ---- parts of it, for a command that has a page of its own --------------- */

/** A table of counts. */
int cli_tree_put_counts(struct poise_page *page,
                        const struct cli_tree_count *counts);
/** Files by size: of [0] no, [i] less than 2^i bytes. */
int cli_tree_put_sizes(struct poise_page *page, const char *title,
                       const uint64_t *sizes, size_t bins);
/** Where the time of each rank went; `entries`: what visits are called. */
int cli_tree_put_times(struct poise_page *page,
                       const struct poise_walk_result *walk,
                       const char *entries);

#endif
