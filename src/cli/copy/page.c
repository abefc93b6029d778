/* A copy as a page of plots: what, how fast, by whom, and what failed. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- figures and tables -------------------------------------------------- */

static int figures(const struct cli_copy_outcome *copy, struct poise_page *page)
{
    static const char *const labels[] = {"files", "data", "time", "speed",
                                         "errors"};
    const struct poise_copy_result *result = copy->result;
    double seconds = (double)result->walk.wall_ns / 1e9;
    struct poise_buf cells[5] = {{0}, {0}, {0}, {0}, {0}};
    const char *texts[5];
    int code = 0;

    poise_human_count(&cells[0], result->counts.files);
    poise_human_bytes(&cells[1], result->counts.bytes);
    poise_human_ns(&cells[2], result->walk.wall_ns);
    poise_human_bytes(
        &cells[3],
        seconds > 0 ? (uint64_t)((double)result->counts.bytes / seconds) : 0);
    poise_buf_puts(&cells[3], "/s");
    poise_human_count(&cells[4], result->walk.errors);
    for (int i = 0; i < 5; i++) {
        texts[i] = poise_buf_str(&cells[i]);
        code = code ? code : cells[i].error;
    }
    code = code ? code : poise_page_figures(page, labels, texts, 5);
    for (int i = 0; i < 5; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

static int counts_table(const struct cli_copy_outcome *copy,
                        struct poise_page *page)
{
    static const struct poise_column columns[] = {{"number", POISE_ALIGN_RIGHT},
                                                  {"of", POISE_ALIGN_LEFT}};
    struct poise_table *table;
    int code = poise_table_create(columns, 2, &table);

    if (code < 0) {
        return code;
    }
    for (size_t i = 0; i < CLI_COPY_COUNTS && code == 0; i++) {
        uint64_t count = cli_copy_count(&copy->result->counts, i);
        char number[24];

        if (count > 0) {
            snprintf(number, sizeof number, "%llu", (unsigned long long)count);
            code = poise_table_row(table,
                                   (const char *[]){number, cli_copy_words[i]});
        }
    }
    code = code ? code : poise_page_table(page, table);
    poise_table_destroy(table);
    return code;
}

/* The first errors of each rank. */
static int errors_table(const struct cli_copy_outcome *copy,
                        struct poise_page *page)
{
    static const struct poise_column columns[] = {{"rank", POISE_ALIGN_RIGHT},
                                                  {"what", POISE_ALIGN_LEFT}};
    const struct poise_copy_result *result = copy->result;
    struct poise_table *table;
    int code;

    if (result->message_count == 0) {
        return 0;
    }
    code = poise_page_section(page, "What failed",
                              "The first of them, of each rank.");
    code = code ? code : poise_table_create(columns, 2, &table);
    if (code < 0) {
        return code;
    }
    for (size_t i = 0; code == 0 && i < result->message_count; i++) {
        char rank[16];

        snprintf(rank, sizeof rank, "%d", result->message_ranks[i]);
        code =
            poise_table_row(table, (const char *[]){rank, result->messages[i]});
    }
    code = code ? code : poise_page_table(page, table);
    poise_table_destroy(table);
    return code;
}

/* What an interrupted copy left to do. */
static int undone_table(const struct cli_copy_outcome *copy,
                        struct poise_page *page)
{
    static const struct poise_column columns[] = {{"path", POISE_ALIGN_LEFT}};
    const struct poise_copy_result *result = copy->result;
    struct poise_table *table;
    int code;

    if (result->undone_count == 0) {
        return 0;
    }
    code = poise_page_section(
        page, "What is not done",
        result->undone_more ? "Some of it: -n --resume lists all." : NULL);
    code = code ? code : poise_table_create(columns, 1, &table);
    if (code < 0) {
        return code;
    }
    for (size_t i = 0; code == 0 && i < result->undone_count; i++) {
        struct poise_buf name = {0};

        poise_buf_escape(&name, result->undone[i], strlen(result->undone[i]));
        code = poise_table_row(table, (const char *[]){poise_buf_str(&name)});
        poise_buf_free(&name);
    }
    code = code ? code : poise_page_table(page, table);
    poise_table_destroy(table);
    return code;
}

static int sizes(const struct cli_copy_outcome *copy, struct poise_page *page)
{
    const uint64_t *bins = copy->result->counts.sizes;
    const char *labels[POISE_COPY_SIZE_BINS];
    struct poise_buf texts[POISE_COPY_SIZE_BINS];
    double values[POISE_COPY_SIZE_BINS];
    size_t last = 0;
    int code;

    memset(texts, 0, sizeof texts);
    for (size_t i = 0; i < POISE_COPY_SIZE_BINS; i++) {
        last = bins[i] ? i : last;
        values[i] = (double)bins[i];
        if (i == 0) {
            poise_buf_puts(&texts[i], "0");
        } else {
            poise_human_bytes(&texts[i], UINT64_C(1) << i);
        }
        labels[i] = poise_buf_str(&texts[i]);
    }
    code = poise_page_bars(
        page, &(struct poise_bars){.title = "Files copied, by size",
                                   .x_label = "smaller than",
                                   .y_label = "files",
                                   .labels = labels,
                                   .values = values,
                                   .count = last + 1,
                                   .unit = POISE_UNIT_COUNT,
                                   .log_y = true});
    for (size_t i = 0; i < POISE_COPY_SIZE_BINS; i++) {
        poise_buf_free(&texts[i]);
    }
    return code;
}

/* ---- over the time ------------------------------------------------------- */

/* Points of one rank: between each two samples, so much a second. */
static size_t rates(const struct poise_copy_sample *samples, size_t count,
                    bool bytes, double *x, double *y)
{
    size_t points = 0;

    for (size_t i = 1; i < count; i++) {
        uint64_t ns = samples[i].at_ns - samples[i - 1].at_ns;
        uint64_t done = bytes ? samples[i].bytes - samples[i - 1].bytes
                              : samples[i].files - samples[i - 1].files;

        if (ns > 0) {
            x[points] = (double)samples[i].at_ns;
            y[points++] = (double)done * 1e9 / (double)ns;
        }
    }
    return points;
}

static int speed(const struct cli_copy_outcome *copy, bool bytes,
                 struct poise_page *page)
{
    enum { MOST = 16 }; /* lines that can be told apart */
    const struct poise_copy_result *result = copy->result;
    size_t ranks =
        (size_t)result->walk.size < MOST ? (size_t)result->walk.size : MOST;
    size_t each = POISE_COPY_SAMPLES;
    double *x = poise_alloc(ranks * each, sizeof *x);
    double *y = poise_alloc(ranks * each, sizeof *y);
    struct poise_line lines[MOST];
    char names[MOST][24];
    int code = x && y ? 0 : -ENOMEM;
    size_t drawn = 0;

    for (size_t r = 0; r < ranks && code == 0; r++) {
        size_t n = rates(result->samples + r * each, result->sample_counts[r],
                         bytes, x + r * each, y + r * each);

        if (n > 1) {
            snprintf(names[drawn], sizeof names[drawn], "rank %zu", r);
            lines[drawn] = (struct poise_line){names[drawn], x + r * each,
                                               y + r * each, n};
            drawn++;
        }
    }
    if (code == 0 && drawn > 0) {
        code = poise_page_plot(
            page, &(struct poise_plot){
                      .title = bytes ? "Bytes per second" : "Files per second",
                      .x_label = "time",
                      .y_label = bytes ? "bytes/s" : "files/s",
                      .lines = lines,
                      .line_count = drawn,
                      .x_unit = POISE_UNIT_NS,
                      .y_unit = bytes ? POISE_UNIT_BYTES : POISE_UNIT_COUNT});
    }
    free(x);
    free(y);
    return code;
}

/* Where the time of each rank went. */
static int times(const struct cli_copy_outcome *copy, struct poise_page *page)
{
    enum { SERIES = 4, MOST = 256 };
    static const char *const series[SERIES] = {"listing directories", "copying",
                                               "communication", "idle"};
    const struct poise_walk_result *walk = &copy->result->walk;
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

/* ---- the page ------------------------------------------------------------ */

static int create(const struct cli_copy_outcome *copy, struct poise_page **page)
{
    struct poise_buf title = {0}, under = {0};
    int ranks = copy->result->walk.size, code;

    poise_buf_printf(&title, "Copy of %s", copy->roots[0]);
    if (copy->root_count > 1) {
        poise_buf_printf(&title, " and %zu more", copy->root_count - 1);
    }
    poise_buf_printf(&title, " to %s", copy->target);
    poise_buf_printf(&under, "%s, %d rank%s of %u thread%s%s", copy->world_name,
                     ranks, ranks == 1 ? "" : "s", copy->threads,
                     copy->threads == 1 ? "" : "s",
                     copy->code < 0 ? "; incomplete" : "");
    code = title.error ? title.error : under.error;
    if (code == 0) {
        code = poise_page_create(poise_buf_str(&title), poise_buf_str(&under),
                                 page);
    }
    poise_buf_free(&title);
    poise_buf_free(&under);
    return code;
}

int cli_copy_page(const struct cli_copy_outcome *copy, struct poise_buf *out)
{
    const struct poise_copy_result *result = copy->result;
    struct poise_page *page;
    int code = create(copy, &page);

    if (code < 0) {
        return code;
    }
    code = figures(copy, page);
    code = code ? code : poise_page_section(page, "What was copied", NULL);
    code = code ? code : counts_table(copy, page);
    code = code ? code : sizes(copy, page);
    code = code ? code : errors_table(copy, page);
    code = code ? code : undone_table(copy, page);
    if (code == 0 && result->samples) {
        code = poise_page_section(page, "How fast", NULL);
        code = code ? code : speed(copy, true, page);
        code = code ? code : speed(copy, false, page);
    }
    if (code == 0 && result->walk.profiles) {
        code = poise_page_section(page, "Where the time went", NULL);
        code = code ? code : times(copy, page);
    }
    code = code ? code : poise_page_html(page, out);
    poise_page_destroy(page);
    return code;
}
