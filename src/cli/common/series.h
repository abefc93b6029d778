/*
 * What a command's page (--report) shows of a run that moves many bytes: how
 * far it was at which moment, which phases it had, what was planned and what
 * came of it. Commands give names and numbers.
 */
#ifndef POISE_CLI_SERIES_H
#define POISE_CLI_SERIES_H

#include "common.h"

enum { CLI_SERIES_MOST = 256, CLI_SERIES_VALUES = 4, CLI_FIGURES_MOST = 12 };

/** Numbers that only rise, at moments of a run. Zero: none yet; with a count of
 * 1: zeros at the begin. */
struct cli_series {
    uint64_t every_ns; /**< moments are at least that far apart */
    size_t count;
    struct cli_moment {
        uint64_t at_ns, values[CLI_SERIES_VALUES];
    } moments[CLI_SERIES_MOST];
};
/** Keep it, unless the last one is too near; where there are too many every
 * second one is dropped. One thread at a time. */
void cli_series_add(struct cli_series *series, uint64_t at_ns,
                    const uint64_t values[CLI_SERIES_VALUES]);
/** A line for each of the first `count` numbers: how fast it rose. Nothing
 * where there are too few moments. */
int cli_series_rates(const struct cli_series *series, struct poise_page *page,
                     const char *title, const char *const *names, size_t count);
/** One line: number `part` for number `whole`, of all up to each moment. */
int cli_series_ratio(const struct cli_series *series, struct poise_page *page,
                     const char *title, size_t whole, size_t part);

/** Phases one after the other; those of no time are left out. */
struct cli_phase {
    const char *name;
    uint64_t ns;
};
int cli_page_phases(struct poise_page *page, const struct cli_phase *phases,
                    size_t count);

/** What there is of something: bars, or a table; those that are 0 left out. */
struct cli_amount {
    const char *label;
    uint64_t value;
};
int cli_page_amounts(struct poise_page *page, const char *title,
                     const struct cli_amount *amounts, size_t count,
                     enum poise_unit unit);
int cli_page_counts(struct poise_page *page, const struct cli_amount *counts,
                    size_t count);

/** The first row of a page: labels and what stands under them. */
struct cli_figures {
    size_t count;
    const char *labels[CLI_FIGURES_MOST];
    struct poise_buf texts[CLI_FIGURES_MOST];
};
/** The text of the next one, to be appended to. */
struct poise_buf *cli_figure(struct cli_figures *figures, const char *label);
/** Put them on the page, and free them. */
int cli_page_figures(struct poise_page *page, struct cli_figures *figures);
/** Free them without. */
void cli_figures_free(struct cli_figures *figures);

/** Write the page to `path` if `code` is 0, and destroy it (may be NULL): 0, or
 * the error, which is set. */
int cli_page_save(struct poise_page *page, const struct poise_page_run *run,
                  const char *path, int code);

/** Whether a page can be written there: 0, or the exit code with the error
 * printed. What is written only at the end of a long run shall not fail only
 * then. NULL: 0. */
int cli_page_check(const char *name, const char *path);

/** The most memory that this process had so far. */
uint64_t cli_memory_peak(void);

#endif
