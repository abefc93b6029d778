/* A profile as a page: the tables, and bars for what is seen at a glance. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const time_titles[POISE_VRANK_TIMES] = {
    "computing", "in MPI", "ready", "network", "sync.", "asleep", "disk"};

/* One bar for each rank, or for as many as one can look at. */
static int page_ranks(struct poise_page *page,
                      const struct poise_vrank_profile *profile)
{
    enum { MOST = 64, LABEL = 24 };
    int rows = profile->count < MOST ? profile->count : MOST;
    const char *labels[MOST];
    char texts[MOST][LABEL];
    double *values =
        poise_alloc((size_t)rows * POISE_VRANK_TIMES, sizeof *values);

    if (!values) {
        return -ENOMEM;
    }
    for (int i = 0; i < rows; i++) {
        /* Spread over all of them. */
        int rank = (int)((int64_t)i * profile->count / rows);
        snprintf(texts[i], LABEL, "rank %d", rank);
        labels[i] = texts[i];
        for (int t = 0; t < POISE_VRANK_TIMES; t++) {
            values[i * POISE_VRANK_TIMES + t] =
                (double)profile->ranks[rank].ns[t];
        }
    }
    struct poise_stacks stacks = {.title = "Time of each rank",
                                  .x_label = "time",
                                  .rows = labels,
                                  .series = time_titles,
                                  .values = values,
                                  .row_count = (size_t)rows,
                                  .series_count = POISE_VRANK_TIMES,
                                  .unit = POISE_UNIT_NS};
    int code = poise_page_stacks(page, &stacks);
    free(values);
    return code;
}

/* Who did what when, as far as was kept. */
static int page_course(struct poise_page *page,
                       const struct poise_vrank_profile *profile)
{
    enum { MOST = 64, LABEL = 24 };
    size_t count = (size_t)profile->slice_count, rows = 0;
    struct poise_span *spans = poise_alloc(count + 1, sizeof *spans);
    const char *labels[MOST];
    char texts[MOST][LABEL];
    int rank = -1;

    if (!spans) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        const struct poise_vrank_profile_slice *slice = &profile->slices[i];

        if (slice->rank != rank && rows == MOST) {
            count = i;
            break;
        }
        if (slice->rank != rank) {
            rank = slice->rank;
            snprintf(texts[rows], LABEL, "rank %d", rank);
            labels[rows] = texts[rows];
            rows++;
        }
        spans[i] =
            (struct poise_span){rows - 1, slice->what, (double)slice->from_ns,
                                (double)slice->to_ns};
    }
    struct poise_buf text = {0};
    poise_buf_puts(&text, "The colour is what a rank did for most of each "
                          "moment; the terms are explained below.");
    if (rows < (size_t)profile->count) {
        poise_buf_printf(&text, " %zu of the %d ranks are shown.", rows,
                         profile->count);
    }
    int code = text.error;
    if (code == 0) {
        code = poise_page_section(page, "What the ranks did when",
                                  poise_buf_str(&text));
    }
    poise_buf_free(&text);
    if (code == 0) {
        code = poise_page_spans(
            page, &(struct poise_spans){.title = "Ranks over time",
                                        .x_label = "time",
                                        .rows = labels,
                                        .series = time_titles,
                                        .spans = spans,
                                        .row_count = rows,
                                        .series_count = POISE_VRANK_TIMES,
                                        .count = count,
                                        .unit = POISE_UNIT_NS});
    }
    free(spans);
    return code;
}

/* The side of the matrix that is drawn, and how many ranks a row stands for. */
enum { SIDE_MOST = 128, SIDE_LABEL = 32 };
struct matrix {
    int side, each;
    double *bytes;       /* [side][side] */
    const char **labels; /* [side], which point into: */
    char (*texts)[SIDE_LABEL];
};

static int matrix_make(const struct poise_vrank_profile *profile,
                       struct matrix *out)
{
    int each = (profile->count + SIDE_MOST - 1) / SIDE_MOST;
    int side = (profile->count + each - 1) / each;
    size_t cells = (size_t)side * (size_t)side;

    *out = (struct matrix){
        .side = side,
        .each = each,
        .bytes = poise_alloc(cells, sizeof *out->bytes),
        .labels = poise_alloc((size_t)side, sizeof *out->labels),
        .texts = poise_alloc((size_t)side, sizeof *out->texts)};
    if (!out->bytes || !out->labels || !out->texts) {
        return -ENOMEM;
    }
    for (int i = 0; i < side; i++) {
        int last = (i + 1) * each < profile->count ? (i + 1) * each - 1
                                                   : profile->count - 1;
        if (last > i * each) {
            snprintf(out->texts[i], SIDE_LABEL, "%d\xe2\x80\x93%d", i * each,
                     last);
        } else {
            snprintf(out->texts[i], SIDE_LABEL, "%d", last);
        }
        out->labels[i] = out->texts[i];
    }
    for (int e = 0; e < profile->edge_count; e++) {
        const struct poise_vrank_profile_edge *edge = &profile->edges[e];

        out->bytes[edge->from / each * side + edge->to / each] +=
            (double)edge->bytes;
    }
    return 0;
}

static void matrix_free(struct matrix *matrix)
{
    free(matrix->bytes);
    free(matrix->labels);
    free(matrix->texts);
}

/* Who sent how much to whom. Of many ranks neighbours share a place, so that it
 * stays as small as can be looked at. */
static int page_matrix(struct poise_page *page,
                       const struct poise_vrank_profile *profile)
{
    struct poise_buf text = {0};
    struct matrix matrix;
    int code = matrix_make(profile, &matrix);

    poise_buf_puts(&text, "Bytes of point-to-point messages from each rank to "
                          "each other. Collectives are not in it.");
    if (matrix.each > 1) {
        poise_buf_printf(&text, " Each row and column stands for %d ranks.",
                         matrix.each);
    }
    code = code == 0 ? text.error : code;
    if (code == 0) {
        code =
            poise_page_section(page, "Who sends to whom", poise_buf_str(&text));
    }
    if (code == 0) {
        code = poise_page_heatmap(
            page, &(struct poise_heatmap){.title = "Bytes sent",
                                          .row_label = "from rank",
                                          .column_label = "to rank",
                                          .rows = matrix.labels,
                                          .columns = matrix.labels,
                                          .values = matrix.bytes,
                                          .row_count = (size_t)matrix.side,
                                          .column_count = (size_t)matrix.side,
                                          .unit = POISE_UNIT_BYTES,
                                          .kind = POISE_HEATMAP_AMOUNTS});
    }
    matrix_free(&matrix);
    poise_buf_free(&text);
    return code;
}

/* Up to so many ranks a bar for each number; of more, bars for 4 to 7, 8 to 15
 * and so on. */
static int page_parallelism(struct poise_page *page,
                            const struct poise_vrank_profile *profile)
{
    enum { MOST = 33, LABEL = 32 };
    bool doubles = profile->ranks_most >= MOST;
    const char *labels[MOST];
    char texts[MOST][LABEL];
    double values[MOST] = {0};
    size_t count = 0;

    for (int first = 0, last; first <= profile->ranks_most; first = last + 1) {
        last = doubles && first >= 4 ? 2 * first - 1 : first;
        last = last < profile->ranks_most ? last : profile->ranks_most;
        for (int i = first; i <= last; i++) {
            values[count] += (double)profile->runnable_ns[i];
        }
        if (last > first) {
            snprintf(texts[count], LABEL, "%d\xe2\x80\x93%d", first, last);
        } else {
            snprintf(texts[count], LABEL, "%d", first);
        }
        labels[count] = texts[count];
        count++;
    }
    struct poise_bars bars = {.title = "How many ranks could run",
                              .x_label = "ranks of a process",
                              .y_label = "time",
                              .labels = labels,
                              .values = values,
                              .count = count,
                              .unit = POISE_UNIT_NS};
    return poise_page_bars(page, &bars);
}

static int page_head(struct poise_page *page,
                     const struct poise_vrank_profile *profile)
{
    enum { FIGURES = 4, BYTES = 32 };
    static const char *const labels[FIGURES] = {"time", "processor busy",
                                                "idle", "system"};
    char texts[FIGURES][BYTES];
    const char *values[FIGURES];
    struct cli_profile_sum sum;
    struct poise_buf time = {0};

    cli_profile_add_up(profile, &sum);
    double wall = sum.wall_ns > 0 ? (double)sum.wall_ns : 1;
    poise_human_ns(&time, profile->wall_ns);
    snprintf(texts[0], BYTES, "%s", poise_buf_str(&time));
    snprintf(texts[1], BYTES, "%.1f %%", 100 * (double)sum.busy_ns / wall);
    snprintf(texts[2], BYTES, "%.1f %%", 100 * (double)sum.idle_ns / wall);
    snprintf(texts[3], BYTES, "%.1f %%",
             100 * (double)sum.kernel[POISE_VRANK_SYSTEM_NS] / wall);
    poise_buf_free(&time);
    for (int i = 0; i < FIGURES; i++) {
        values[i] = texts[i];
    }
    return poise_page_figures(page, labels, values, FIGURES);
}

/* The pictures that belong to the first two tables. */
static int page_picture(struct poise_page *page, int table,
                        const struct poise_vrank_profile *profile)
{
    switch (table) {
    case 0:
        return page_ranks(page, profile);
    case 1:
        return page_parallelism(page, profile);
    default:
        return 0;
    }
}

int cli_profile_page(const struct poise_vrank_profile *profile,
                     const struct poise_vrank_profile *against,
                     const char *program, const char *checked,
                     struct poise_buf *out)
{
    struct cli_profile_table tables[CLI_PROFILE_TABLES];
    struct poise_buf title = {0}, head = {0};
    struct poise_page *page = NULL;
    int count =
        cli_profile_tables(profile, against, CLI_PROFILE_PAGE_ROWS, tables);

    if (count < 0) {
        return count;
    }
    poise_buf_printf(&title, "Profile of %s", program);
    cli_profile_head(profile, &head);
    int code =
        poise_page_create(poise_buf_str(&title), poise_buf_str(&head), &page);
    if (code == 0) {
        code = page_head(page, profile);
    }
    if (code == 0 && profile->slice_count > 0) {
        code = page_course(page, profile);
    }
    if (code == 0 && profile->edge_count > 0) {
        code = page_matrix(page, profile);
    }
    for (int i = 0; i < count && code == 0; i++) {
        code = poise_page_section(page, tables[i].title, tables[i].text);
        if (code == 0) {
            code = page_picture(page, i, profile);
        }
        if (code == 0) {
            code = poise_page_table(page, tables[i].table);
        }
    }
    if (code == 0) {
        code = poise_page_html(
            page, &(struct poise_page_run){.checked = checked}, out);
    }
    poise_page_destroy(page);
    cli_profile_tables_free(tables, count);
    poise_buf_free(&title);
    poise_buf_free(&head);
    return code;
}
