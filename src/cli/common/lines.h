/*
 * Lines on stdout while a walk is under way: names of entries, with what a
 * command puts around them. A command's own state begins with struct cli_lines,
 * and is the `arg` of the walk's hooks.
 */
#ifndef POISE_CLI_LINES_H
#define POISE_CLI_LINES_H

#include "job.h"
#include "tree_page.h"

struct cli_lines {
    struct cli_job *job;
    struct poise_buf out; /**< not written yet */
    bool terminal;        /**< stdout is one: names must not steer it */
    bool null_ended;      /**< lines end with NUL, and names are as they are */
    struct cli_tree_page *page; /**< NULL: none; is told of errors, progress */
};

/** Append a name. */
void cli_lines_put(struct cli_lines *lines, const char *name, size_t len);
/** End the line; write if there is much. 0 or negative errno. */
int cli_lines_end(struct cli_lines *lines);
/** Write what is there to stdout. 0 or negative errno. */
int cli_lines_write(struct cli_lines *lines);

/** cli_error_hook and cli_progress_hook, for an `arg` that begins with struct
 * cli_lines. A line of progress is drawn where the job says so. */
int cli_lines_error(struct poise_worker *worker, const struct poise_error *err,
                    void *arg);
void cli_lines_progress(const struct poise_pool_stats *stats, void *arg);

#endif
