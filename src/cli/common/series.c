/* Numbers over time, phases and amounts on a command's page. */
#include "series.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* ---- over time ------------------------------------------------------------
 */

void cli_series_add(struct cli_series *series, uint64_t at_ns,
                    const uint64_t values[CLI_SERIES_VALUES])
{
    size_t n = series->count;

    if (n > 0 && at_ns < series->moments[n - 1].at_ns + series->every_ns) {
        return;
    }
    if (n == CLI_SERIES_MOST) {
        uint64_t span = series->moments[n - 1].at_ns;

        n = 0;
        for (size_t i = 0; i < CLI_SERIES_MOST; i += 2) {
            series->moments[n++] = series->moments[i];
        }
        series->every_ns = span / (CLI_SERIES_MOST / 2);
    }
    series->moments[n].at_ns = at_ns;
    memcpy(series->moments[n].values, values,
           CLI_SERIES_VALUES * sizeof *values);
    series->count = n + 1;
}

/* Steps, each from one moment to another: more could not be told apart. */
enum { STEPS_MOST = 60 };

/* How fast number k rose from one moment to another. */
static double rate(const struct cli_moment *from, const struct cli_moment *to,
                   size_t k)
{
    return to->at_ns > from->at_ns && to->values[k] > from->values[k]
               ? (double)(to->values[k] - from->values[k]) * 1e9 /
                     (double)(to->at_ns - from->at_ns)
               : 0;
}

int cli_series_rates(const struct cli_series *series, struct poise_page *page,
                     const char *title, const char *const *names, size_t count)
{
    double x[2 * STEPS_MOST], y[CLI_SERIES_VALUES][2 * STEPS_MOST];
    struct poise_line lines[CLI_SERIES_VALUES];
    size_t last = series->count > 0 ? series->count - 1 : 0;
    size_t steps = last < STEPS_MOST ? last : STEPS_MOST;

    for (size_t i = 0; i < steps; i++) {
        const struct cli_moment *from = &series->moments[i * last / steps];
        const struct cli_moment *to = &series->moments[(i + 1) * last / steps];

        x[2 * i] = (double)from->at_ns;
        x[2 * i + 1] = (double)to->at_ns;
        for (size_t k = 0; k < count; k++) {
            y[k][2 * i] = y[k][2 * i + 1] = rate(from, to, k);
        }
    }
    for (size_t k = 0; k < count; k++) {
        lines[k] = (struct poise_line){names[k], x, y[k], 2 * steps};
    }
    return steps < 2 ? 0
                     : poise_page_plot(page, &(struct poise_plot){
                                                 .title = title,
                                                 .x_label = "time",
                                                 .y_label = "per second",
                                                 .lines = lines,
                                                 .line_count = count,
                                                 .x_unit = POISE_UNIT_NS,
                                                 .y_unit = POISE_UNIT_BYTES});
}

int cli_series_ratio(const struct cli_series *series, struct poise_page *page,
                     const char *title, size_t whole, size_t part)
{
    double x[CLI_SERIES_MOST], y[CLI_SERIES_MOST];
    size_t points = 0;

    for (size_t i = 0; i < series->count; i++) {
        const struct cli_moment *now = &series->moments[i];

        if (now->values[part] > 0) {
            x[points] = (double)now->at_ns;
            y[points++] =
                (double)now->values[whole] / (double)now->values[part];
        }
    }
    return points < 2
               ? 0
               : poise_page_plot(
                     page, &(struct poise_plot){
                               .title = title,
                               .x_label = "time",
                               .y_label = "bytes for one on the wire",
                               .lines = &(struct poise_line){"", x, y, points},
                               .line_count = 1,
                               .x_unit = POISE_UNIT_NS});
}

/* ---- the whole ------------------------------------------------------------
 */

int cli_page_phases(struct poise_page *page, const struct cli_phase *phases,
                    size_t count)
{
    enum { MOST = 8 };
    static const char *const series[] = {""};
    const char *names[MOST];
    struct poise_span spans[MOST];
    size_t drawn = 0;
    double at = 0;

    for (size_t i = 0; i < count && drawn < MOST; i++) {
        if (phases[i].ns > 0) {
            names[drawn] = phases[i].name;
            spans[drawn] =
                (struct poise_span){drawn, 0, at, at + (double)phases[i].ns};
            at += (double)phases[i].ns;
            drawn++;
        }
    }
    return drawn == 0 ? 0
                      : poise_page_spans(
                            page, &(struct poise_spans){.title = "Phases",
                                                        .x_label = "time",
                                                        .rows = names,
                                                        .series = series,
                                                        .spans = spans,
                                                        .row_count = drawn,
                                                        .series_count = 1,
                                                        .count = drawn,
                                                        .unit = POISE_UNIT_NS});
}

int cli_page_amounts(struct poise_page *page, const char *title,
                     const struct cli_amount *amounts, size_t count,
                     enum poise_unit unit)
{
    enum { MOST = 16 };
    static const char *const series[] = {""};
    const char *rows[MOST];
    double values[MOST];
    size_t drawn = 0;

    for (size_t i = 0; i < count && drawn < MOST; i++) {
        if (amounts[i].value > 0) {
            rows[drawn] = amounts[i].label;
            values[drawn++] = (double)amounts[i].value;
        }
    }
    return poise_page_stacks(page, &(struct poise_stacks){.title = title,
                                                          .rows = rows,
                                                          .series = series,
                                                          .values = values,
                                                          .row_count = drawn,
                                                          .series_count = 1,
                                                          .unit = unit});
}

int cli_page_counts(struct poise_page *page, const struct cli_amount *counts,
                    size_t count)
{
    static const struct poise_column columns[] = {
        {"what", POISE_ALIGN_LEFT}, {"how many", POISE_ALIGN_RIGHT}};
    struct poise_table *table;
    int code = poise_table_create(columns, 2, &table);

    for (size_t i = 0; i < count && code == 0; i++) {
        struct poise_buf text = {0};

        if (counts[i].value > 0) {
            poise_human_count(&text, counts[i].value);
            code = poise_table_row(
                table, (const char *[]){counts[i].label, poise_buf_str(&text)});
        }
        poise_buf_free(&text);
    }
    if (code == 0) {
        code = poise_page_table(page, table);
        poise_table_destroy(table);
    }
    return code;
}

struct poise_buf *cli_figure(struct cli_figures *figures, const char *label)
{
    figures->labels[figures->count] = label;
    return &figures->texts[figures->count++];
}

void cli_figures_free(struct cli_figures *figures)
{
    for (size_t i = 0; i < figures->count; i++) {
        poise_buf_free(&figures->texts[i]);
    }
    figures->count = 0;
}

int cli_page_figures(struct poise_page *page, struct cli_figures *figures)
{
    const char *values[CLI_FIGURES_MOST];
    int code = 0;

    for (size_t i = 0; i < figures->count; i++) {
        values[i] = poise_buf_str(&figures->texts[i]);
        code = code ? code : figures->texts[i].error;
    }
    code = code ? code
                : poise_page_figures(page, figures->labels, values,
                                     figures->count);
    cli_figures_free(figures);
    return code;
}

int cli_page_save(struct poise_page *page, const struct poise_page_run *run,
                  const char *path, int code)
{
    struct poise_buf html = {0};

    code = code ? code : poise_page_html(page, run, &html);
    code = code ? code : poise_file_save(path, &html);
    poise_buf_free(&html);
    poise_page_destroy(page);
    return code;
}

int cli_page_check(const char *name, const char *path)
{
    bool beside;

    return path && strcmp(path, "-") != 0 &&
                   poise_output_check(path, &beside) < 0
               ? cli_fail(name, -EIO)
               : CLI_DONE;
}

uint64_t cli_memory_peak(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0
               ? (uint64_t)usage.ru_maxrss * 1024
               : 0;
}
