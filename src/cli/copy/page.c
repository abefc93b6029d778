/* A copy as a page of plots: what, how fast, by whom, and what failed. */
#include "cli/common/tree_page.h"
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

/* What was not done is not in it. */
static int counts_table(const struct cli_copy_outcome *copy,
                        struct poise_page *page)
{
    struct cli_tree_count counts[CLI_COPY_COUNTS + 1] = {0};
    size_t count = 0;

    for (size_t i = 0; i < CLI_COPY_COUNTS; i++) {
        uint64_t value = cli_copy_count(&copy->result->counts, i);

        if (value > 0) {
            counts[count++] = (struct cli_tree_count){cli_copy_words[i], value};
        }
    }
    return cli_tree_put_counts(page, counts);
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
    code = code
               ? code
               : cli_tree_put_sizes(page, "Files copied, by size",
                                    result->counts.sizes, POISE_COPY_SIZE_BINS);
    code = code ? code : errors_table(copy, page);
    code = code ? code : undone_table(copy, page);
    if (code == 0 && result->samples) {
        code = poise_page_section(page, "How fast", NULL);
        code = code ? code : speed(copy, true, page);
        code = code ? code : speed(copy, false, page);
    }
    if (code == 0 && result->walk.profiles) {
        code = cli_tree_put_times(page, &result->walk, "copying");
    }
    code =
        code
            ? code
            : poise_page_html(page,
                              &(struct poise_page_run){.checked = copy->checked,
                                                       .is_random = true,
                                                       .seed = copy->seed},
                              out);
    poise_page_destroy(page);
    return code;
}
