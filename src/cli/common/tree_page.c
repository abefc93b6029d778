/* A run over a tree as a page of plots: what, how fast, by whom, what failed.
 */
#include "tree_page.h"

#include <poise/output.h>
#include <poise/report.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- while it runs ------------------------------------------------------- */

int cli_tree_page_begin(struct cli_tree_page *page, struct cli_job *job,
                        const char *path)
{
    bool beside;
    int code = 0;

    *page = (struct cli_tree_page){
        .path = path, .start_ns = poise_clock_ns(), .every_ns = 100000000};
    pthread_mutex_init(&page->lock, NULL);
    if (path && job->rank == 0) {
        code = poise_output_check(path, &beside);
    }
    return poise_world_agree(job->world, code);
}

void cli_tree_page_error(struct cli_tree_page *page,
                         const struct poise_error *err)
{
    if (!page->path) {
        return;
    }
    pthread_mutex_lock(&page->lock);
    if (page->error_count++ < CLI_TREE_ERRORS) {
        poise_error_format(err, &page->errors);
        poise_buf_putc(&page->errors, '\n');
    }
    pthread_mutex_unlock(&page->lock);
}

/* Where there are too many every other one stays. */
static void add_sample(struct cli_tree_page *page, uint64_t now, uint64_t done)
{
    size_t n = page->sample_count;

    if (n == CLI_TREE_SAMPLES) {
        for (n = 0; n < CLI_TREE_SAMPLES / 2; n++) {
            page->samples[n] = page->samples[2 * n + 1];
        }
        page->every_ns *= 2;
    }
    page->samples[n].at_ns = now;
    page->samples[n].done = done;
    page->sample_count = n + 1;
}

void cli_tree_page_progress(struct cli_tree_page *page,
                            const struct poise_pool_stats *stats)
{
    uint64_t now = poise_clock_ns() - page->start_ns;
    size_t n = page->sample_count;

    if (page->path &&
        (n == 0 || now >= page->samples[n - 1].at_ns + page->every_ns)) {
        add_sample(page, now, stats->sum.done);
    }
}

/* ---- sections ------------------------------------------------------------ */

static int put_figures(const struct cli_tree_figures *figures,
                       struct poise_page *page)
{
    static const char *const labels[] = {"entries", "time", "entries a second",
                                         "errors", "read"};
    double seconds = (double)figures->walk->wall_ns / 1e9;
    uint64_t entries = figures->walk->entries;
    struct poise_buf cells[5] = {{0}, {0}, {0}, {0}, {0}};
    const char *texts[5];
    size_t count = figures->bytes ? 5 : 4;
    int code = 0;

    poise_human_count(&cells[0], entries);
    poise_human_ns(&cells[1], figures->walk->wall_ns);
    poise_human_count(&cells[2],
                      seconds > 0 ? (uint64_t)((double)entries / seconds) : 0);
    poise_human_count(&cells[3], figures->walk->errors);
    poise_human_bytes(&cells[4], figures->bytes);
    for (size_t i = 0; i < 5; i++) {
        texts[i] = poise_buf_str(&cells[i]);
        code = code ? code : cells[i].error;
    }
    code = code ? code : poise_page_figures(page, labels, texts, count);
    for (size_t i = 0; i < 5; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

int cli_tree_put_counts(struct poise_page *page,
                        const struct cli_tree_count *counts)
{
    static const struct poise_column columns[] = {{"number", POISE_ALIGN_RIGHT},
                                                  {"of", POISE_ALIGN_LEFT}};
    struct poise_table *table;
    int code = poise_table_create(columns, 2, &table);

    if (code < 0) {
        return code;
    }
    for (size_t i = 0; counts[i].label && code == 0; i++) {
        struct poise_buf number = {0};

        poise_human_count(&number, counts[i].value);
        code = number.error;
        if (code == 0) {
            code =
                poise_table_row(table, (const char *[]){poise_buf_str(&number),
                                                        counts[i].label});
        }
        poise_buf_free(&number);
    }
    code = code ? code : poise_page_table(page, table);
    poise_table_destroy(table);
    return code;
}

int cli_tree_put_sizes(struct poise_page *page, const char *title,
                       const uint64_t *sizes, size_t bins)
{
    enum { MOST = 64 };
    const char *labels[MOST];
    struct poise_buf texts[MOST];
    double values[MOST];
    size_t last = 0;
    int code;

    memset(texts, 0, sizeof texts);
    bins = bins < MOST ? bins : MOST;
    for (size_t i = 0; i < bins; i++) {
        last = sizes[i] ? i : last;
        values[i] = (double)sizes[i];
        if (i == 0) {
            poise_buf_puts(&texts[i], "0");
        } else {
            poise_human_bytes(&texts[i], UINT64_C(1) << i);
        }
        labels[i] = poise_buf_str(&texts[i]);
    }
    code = poise_page_bars(page, &(struct poise_bars){.title = title,
                                                      .x_label = "smaller than",
                                                      .y_label = "files",
                                                      .labels = labels,
                                                      .values = values,
                                                      .count = last + 1,
                                                      .unit = POISE_UNIT_COUNT,
                                                      .log_y = true});
    for (size_t i = 0; i < bins; i++) {
        poise_buf_free(&texts[i]);
    }
    return code;
}

static int put_errors(const struct cli_tree_page *run, struct poise_page *page)
{
    static const struct poise_column columns[] = {{"what", POISE_ALIGN_LEFT}};
    char *text =
        run->errors.len ? strndup(run->errors.data, run->errors.len) : NULL;
    struct poise_table *table;
    char *rest = text, *line;
    int code;

    if (!text) {
        return 0;
    }
    code = poise_page_section(page, "What failed",
                              "The first of them, of the first process.");
    code = code ? code : poise_table_create(columns, 1, &table);
    if (code < 0) {
        free(text);
        return code;
    }
    while (code == 0 && (line = strsep(&rest, "\n"))) {
        code = line[0] ? poise_table_row(table, (const char *[]){line}) : 0;
    }
    code = code ? code : poise_page_table(page, table);
    poise_table_destroy(table);
    free(text);
    return code;
}

static int put_speed(const struct cli_tree_page *run, struct poise_page *page)
{
    double *x = poise_alloc(CLI_TREE_SAMPLES, sizeof *x);
    double *y = poise_alloc(CLI_TREE_SAMPLES, sizeof *y);
    size_t points = 0;
    int code = x && y ? 0 : -ENOMEM;

    for (size_t i = 1; code == 0 && i < run->sample_count; i++) {
        uint64_t ns = run->samples[i].at_ns - run->samples[i - 1].at_ns;

        if (ns > 0) {
            x[points] = (double)run->samples[i].at_ns;
            y[points++] =
                (double)(run->samples[i].done - run->samples[i - 1].done) *
                1e9 / (double)ns;
        }
    }
    if (code == 0 && points > 1) {
        code = poise_page_section(page, "How fast", NULL);
        code = code ? code
                    : poise_page_plot(
                          page, &(struct poise_plot){
                                    .title = "Entries per second, of all ranks",
                                    .x_label = "time",
                                    .y_label = "entries/s",
                                    .lines = &(struct poise_line){"all ranks",
                                                                  x, y, points},
                                    .line_count = 1,
                                    .x_unit = POISE_UNIT_NS,
                                    .y_unit = POISE_UNIT_COUNT});
    }
    free(x);
    free(y);
    return code;
}

int cli_tree_put_times(struct poise_page *page,
                       const struct poise_walk_result *walk,
                       const char *entries)
{
    enum { SERIES = 4, MOST = 256 };
    const char *const series[SERIES] = {"listing directories", entries,
                                        "communication", "idle"};
    size_t ranks = (size_t)walk->size < MOST ? (size_t)walk->size : MOST;
    double *values = poise_alloc(ranks * SERIES, sizeof *values);
    char(*names)[24] = poise_alloc(ranks, sizeof *names);
    const char **labels = poise_alloc(ranks, sizeof *labels);
    int code = values && names && labels ? 0 : -ENOMEM;

    for (size_t r = 0; code == 0 && r < ranks; r++) {
        const struct poise_walk_profile *p = &walk->profiles[r];

        snprintf(names[r], sizeof names[r], "rank %zu", r);
        labels[r] = names[r];
        values[r * SERIES] = (double)p->readdir_ns;
        values[r * SERIES + 1] =
            (double)(p->visit_ns + p->stat_ns + p->other_ns);
        values[r * SERIES + 2] = (double)p->comm_ns;
        values[r * SERIES + 3] = (double)p->idle_ns;
    }
    code = code ? code : poise_page_section(page, "Where the time went", NULL);
    if (code == 0) {
        code = poise_page_stacks(
            page, &(struct poise_stacks){"Time of each rank, all threads added",
                                         "time", labels, series, values, ranks,
                                         SERIES, POISE_UNIT_NS});
    }
    free(values);
    free(names);
    free(labels);
    return code;
}

static int put_tasks(const struct poise_walk_result *walk,
                     struct poise_page *page)
{
    static const struct poise_column columns[] = {
        {"rank", POISE_ALIGN_RIGHT},
        {"tasks", POISE_ALIGN_RIGHT},
        {"given to other ranks", POISE_ALIGN_RIGHT},
        {"most workers at a time", POISE_ALIGN_RIGHT}};
    struct poise_table *table;
    int code = poise_table_create(columns, 4, &table);

    if (code < 0) {
        return code;
    }
    for (int r = 0; r < walk->size && code == 0; r++) {
        const struct poise_pool_stats *stats = &walk->stats[r];
        uint64_t tasks = 0;
        char cells[4][24];

        for (unsigned i = 0; i < stats->worker_count; i++) {
            tasks += stats->workers[i].tasks;
        }
        snprintf(cells[0], sizeof cells[0], "%d", r);
        snprintf(cells[1], sizeof cells[1], "%llu", (unsigned long long)tasks);
        snprintf(cells[2], sizeof cells[2], "%llu",
                 (unsigned long long)stats->tasks_given);
        snprintf(cells[3], sizeof cells[3], "%u", stats->active_most);
        code = poise_table_row(
            table, (const char *[]){cells[0], cells[1], cells[2], cells[3]});
    }
    code = code ? code : poise_page_table(page, table);
    poise_table_destroy(table);
    return code;
}

/* ---- the page ------------------------------------------------------------ */

static int fill(const struct cli_tree_page *run,
                const struct cli_tree_figures *figures, struct poise_page *page)
{
    int code = put_figures(figures, page);

    code = code ? code : poise_page_section(page, figures->done, NULL);
    code = code ? code : cli_tree_put_counts(page, figures->counts);
    if (code == 0 && figures->sizes) {
        code = cli_tree_put_sizes(page, "Files, by size", figures->sizes,
                                  figures->size_bins);
    }
    code = code ? code : put_errors(run, page);
    code = code ? code : put_speed(run, page);
    if (code == 0 && figures->walk->profiles && figures->walk->stats) {
        code = cli_tree_put_times(page, figures->walk, "entries");
        code = code ? code : put_tasks(figures->walk, page);
    }
    return code;
}

static int write_page(const struct cli_tree_page *run,
                      const struct cli_job *job,
                      const struct cli_tree_figures *figures)
{
    struct poise_buf under = {0}, html = {0};
    struct poise_page *page = NULL;
    int ranks = job->size, code;

    poise_buf_printf(&under, "%s, %d rank%s%s", poise_world_name(job->world),
                     ranks, ranks == 1 ? "" : "s",
                     figures->whole ? "" : "; incomplete");
    code = under.error ? under.error
                       : poise_page_create(figures->title,
                                           poise_buf_str(&under), &page);
    if (code == 0) {
        code = fill(run, figures, page);
        code = code ? code
                    : poise_page_html(page,
                                      &(struct poise_page_run){
                                          .is_random = true, .seed = job->seed},
                                      &html);
        poise_page_destroy(page);
    }
    code = code ? code : poise_file_save(run->path, &html);
    poise_buf_free(&under);
    poise_buf_free(&html);
    return code;
}

int cli_tree_page_end(struct cli_tree_page *page, const struct cli_job *job,
                      const struct cli_tree_figures *figures)
{
    int code = 0;

    if (page->path && job->rank == 0 && figures->walk->size > 0) {
        add_sample(page, poise_clock_ns() - page->start_ns,
                   figures->walk->entries);
        code = write_page(page, job, figures);
    }
    poise_buf_free(&page->errors);
    pthread_mutex_destroy(&page->lock);
    return code;
}
