/* The report of poise solve: the plate, convergence, what each node did. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Cells of a heat map to a side. */
#define CELLS_MOST 48

/* What stands beside the rows, or above the columns, of a coarser plate: the
 * first of those that each is the mean of. The caller frees it. */
static const char **first_of_each(int64_t count, size_t drawn)
{
    enum { BYTES = 24 };
    const char **labels = poise_alloc(drawn, sizeof *labels + BYTES);
    char *text = (char *)(labels + drawn);
    for (size_t i = 0; labels && i < drawn; i++) {
        snprintf(text + i * BYTES, BYTES, "%lld",
                 (long long)(count * (int64_t)i / (int64_t)drawn));
        labels[i] = text + i * BYTES;
    }
    return labels;
}

/* The plate in coarser cells, each the mean of some. */
/* From the coldest cell to the warmest of both. */
static void find_range(const struct cli_solve_outcome *run, double *low,
                       double *high)
{
    const struct cli_plate *plates[] = {run->before, run->after};
    *low = *high = run->before->cells[0];
    for (int p = 0; p < 2; p++) {
        for (int64_t i = 0; i < plates[p]->rows * plates[p]->columns; i++) {
            double cell = plates[p]->cells[i];
            *low = cell < *low ? cell : *low;
            *high = cell > *high ? cell : *high;
        }
    }
}

static int add_plate(struct poise_page *page,
                     const struct cli_solve_outcome *run,
                     const struct cli_plate *plate, const char *title)
{
    size_t rows = plate->rows < CELLS_MOST ? (size_t)plate->rows : CELLS_MOST;
    size_t columns =
        plate->columns < CELLS_MOST ? (size_t)plate->columns : CELLS_MOST;
    double *values = poise_alloc(rows * columns, sizeof *values);
    const char **down = first_of_each(plate->rows, rows);
    const char **across = first_of_each(plate->columns, columns);
    int code = values && down && across ? 0 : -ENOMEM;
    double low, high;
    find_range(run, &low, &high);
    for (size_t i = 0; code == 0 && i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            int64_t top = plate->rows * (int64_t)i / (int64_t)rows;
            int64_t end = plate->rows * (int64_t)(i + 1) / (int64_t)rows;
            int64_t left = plate->columns * (int64_t)j / (int64_t)columns;
            int64_t right =
                plate->columns * (int64_t)(j + 1) / (int64_t)columns;
            double sum = 0;
            for (int64_t c = 0; c < (end - top) * (right - left); c++) {
                sum +=
                    plate->cells[(top + c / (right - left)) * plate->columns +
                                 left + c % (right - left)];
            }
            values[i * columns + j] =
                sum / (double)((end - top) * (right - left));
        }
    }
    const struct poise_heatmap map = {.title = title,
                                      .row_label = "row",
                                      .column_label = "column",
                                      .rows = down,
                                      .columns = across,
                                      .values = values,
                                      .row_count = rows,
                                      .column_count = columns,
                                      .kind = POISE_HEATMAP_LEVELS,
                                      .low = low,
                                      .high = high};
    code = code == 0 ? poise_page_heatmap(page, &map) : code;
    free(values);
    free(down);
    free(across);
    return code;
}

static int add_convergence(struct poise_page *page,
                           const struct cli_solve_outcome *run)
{
    size_t count = run->changes ? (size_t)run->heat->sweeps : 0, kept = 0;
    double *x = poise_alloc(2 * count + 1, sizeof *x);
    double *y = x + count;
    if (!x) {
        return -ENOMEM;
    }
    for (size_t s = 0; s < count; s++) {
        if (run->changes[s] > 0) { /* the axis is logarithmic */
            x[kept] = (double)(s + 1);
            y[kept++] = run->changes[s];
        }
    }
    const struct poise_line line = {"greatest change", x, y, kept};
    const struct poise_plot plot = {.title = "Convergence",
                                    .x_label = "sweep",
                                    .y_label = "greatest change of a cell",
                                    .lines = &line,
                                    .line_count = 1,
                                    .log_y = true};
    int code = kept > 1 ? poise_page_plot(page, &plot) : 0;
    free(x);
    return code;
}

static int add_figures(struct poise_page *page,
                       const struct cli_solve_outcome *run)
{
    static const char *const labels[] = {"time", "blocks", "last change",
                                         "new shares", "nodes given up"};
    enum { COUNT = sizeof labels / sizeof *labels };
    struct poise_buf cells[COUNT] = {0};
    const char *values[COUNT];
    poise_human_ns(&cells[0], run->stats->wall_ns);
    poise_human_count(&cells[1], run->stats->blocks);
    if (run->changes && run->heat->sweeps > 0) {
        poise_buf_printf(&cells[2], "%.3g",
                         run->changes[run->heat->sweeps - 1]);
    }
    poise_buf_decimal(&cells[3], run->stats->rechunkings);
    poise_buf_decimal(&cells[4], run->stats->deaths);
    for (int i = 0; i < COUNT; i++) {
        values[i] = poise_buf_str(&cells[i]);
    }
    int code = poise_page_figures(page, labels, values, COUNT);
    for (int i = 0; i < COUNT; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

int cli_solve_page(const struct cli_solve_outcome *run, struct poise_buf *out)
{
    struct poise_page *page;
    struct poise_buf subtitle = {0};
    int64_t side = run->heat->block > 0 ? run->heat->block : CLI_SOLVE_BLOCK;
    const struct poise_flow_chunk shape = {
        .dims = 2,
        .index = {{0, (run->heat->rows - 1) / side + 1},
                  {0, (run->heat->columns - 1) / side + 1}}};
    poise_buf_printf(&subtitle, "%s: %lld x %lld cells, %lld sweeps", run->in,
                     (long long)run->heat->rows, (long long)run->heat->columns,
                     (long long)run->heat->sweeps);
    int code =
        poise_page_create("poise solve", poise_buf_str(&subtitle), &page);
    poise_buf_free(&subtitle);
    if (code < 0) {
        return code;
    }
    code = add_figures(page, run);
    code = code < 0 ? code : add_convergence(page, run);
    code = code < 0 ? code : cli_flow_page(run->stats, page);
    code = code < 0 ? code : cli_live_page(run->live, page);
    code = code < 0 ? code : cli_flow_page_chunks(&shape, 0, run->stats, page);
    code = code < 0 ? code : add_plate(page, run, run->before, "Before");
    code = code < 0 ? code : add_plate(page, run, run->after, "After");
    code = code < 0
               ? code
               : poise_page_html(
                     page,
                     &(struct poise_page_run){
                         .checked = run->checked
                                        ? "one block of ten was computed twice "
                                          "and came out the same"
                                        : NULL},
                     out);
    poise_page_destroy(page);
    return code;
}
