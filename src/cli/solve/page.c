/* The report of poise solve: the plate, convergence, what each node did. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** Cells of a heat map to a side. */
#define CELLS_MOST 48
/** Maps of chunks that are drawn. */
#define CHUNKS_MOST 12

/* The plate in coarser cells, each the mean of some. */
static int add_plate(struct poise_page *page, const struct cli_plate *plate,
                     const char *title)
{
    size_t rows = plate->rows < CELLS_MOST ? (size_t)plate->rows : CELLS_MOST;
    size_t columns =
        plate->columns < CELLS_MOST ? (size_t)plate->columns : CELLS_MOST;
    double *values = poise_alloc(rows * columns, sizeof *values);
    if (!values) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < rows; i++) {
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
                                      .values = values,
                                      .row_count = rows,
                                      .column_count = columns,
                                      .kind = POISE_HEATMAP_LEVELS};
    int code = poise_page_heatmap(page, &map);
    free(values);
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

static int add_nodes(struct poise_page *page,
                     const struct poise_flow_stats *stats)
{
    static const char *const series[] = {"computing", "waiting for blocks",
                                         "waiting for memory"};
    unsigned count = stats->node_count;
    double *values = poise_alloc(3 * (size_t)count + 1, sizeof *values);
    const char **names = poise_alloc(count + 1, sizeof *names);
    struct poise_buf *texts = poise_alloc(count + 1, sizeof *texts);
    int code = values && names && texts ? 0 : -ENOMEM;
    for (unsigned n = 0; code == 0 && n < count; n++) {
        const struct poise_flow_node_stats *node = &stats->nodes[n];
        values[3 * n] = (double)node->compute_ns;
        values[3 * n + 1] = (double)(node->wait_ns - node->throttled_ns);
        values[3 * n + 2] = (double)node->throttled_ns;
        poise_buf_printf(&texts[n], "node %u: %llu blocks", n,
                         (unsigned long long)node->blocks);
        names[n] = poise_buf_str(&texts[n]);
    }
    const struct poise_stacks stacks = {.title = "Nodes",
                                        .x_label = "time",
                                        .rows = names,
                                        .series = series,
                                        .values = values,
                                        .row_count = count,
                                        .series_count = 3,
                                        .unit = POISE_UNIT_NS};
    if (code == 0) {
        code = poise_page_stacks(page, &stacks);
    }
    for (unsigned n = 0; texts && n < count; n++) {
        poise_buf_free(&texts[n]);
    }
    free(texts);
    free(names);
    free(values);
    return code;
}

static int add_progress(struct poise_page *page,
                        const struct poise_flow_stats *stats)
{
    size_t count = stats->mark_count;
    double *x = poise_alloc(2 * count + 1, sizeof *x);
    double *y = x + count;
    if (!x) {
        return -ENOMEM;
    }
    for (size_t m = 0; m < count; m++) {
        x[m] = (double)stats->marks[m].ns;
        y[m] = (double)stats->marks[m].version;
    }
    const struct poise_line line = {"complete versions", x, y, count};
    const struct poise_plot plot = {.title = "Progress",
                                    .x_label = "time",
                                    .y_label = "versions that are complete",
                                    .lines = &line,
                                    .line_count = 1,
                                    .x_unit = POISE_UNIT_NS};
    int code = count > 1 ? poise_page_plot(page, &plot) : 0;
    free(x);
    return code;
}

/* Who has which blocks, from one version on. */
static int add_chunks(struct poise_page *page,
                      const struct cli_solve_outcome *run,
                      const struct poise_flow_plan *plan)
{
    int64_t side = run->heat->block > 0 ? run->heat->block : 128;
    size_t rows = (size_t)((run->heat->rows - 1) / side + 1);
    size_t columns = (size_t)((run->heat->columns - 1) / side + 1);
    double *values = poise_alloc(rows * columns, sizeof *values);
    struct poise_buf title = {0};
    if (!values) {
        return -ENOMEM;
    }
    for (size_t p = 0; p < rows * columns; p++) {
        values[p] = plan->owner[p];
    }
    poise_buf_printf(&title, "Nodes of blocks, versions %lld to %lld",
                     (long long)plan->from, (long long)plan->to - 1);
    const struct poise_heatmap map = {.title = poise_buf_str(&title),
                                      .row_label = "row",
                                      .column_label = "column",
                                      .values = values,
                                      .row_count = rows,
                                      .column_count = columns,
                                      .kind = POISE_HEATMAP_CLASSES};
    int code = poise_page_heatmap(page, &map);
    poise_buf_free(&title);
    free(values);
    return code;
}

/* The chunks at first, and whenever others came (desyncfs, figure 7). */
static int add_all_chunks(struct poise_page *page,
                          const struct cli_solve_outcome *run)
{
    const struct poise_flow_stats *stats = run->stats;
    const struct poise_flow_plan *before = NULL;
    int64_t side = run->heat->block > 0 ? run->heat->block : 128;
    size_t places = (size_t)((run->heat->rows - 1) / side + 1) *
                    (size_t)((run->heat->columns - 1) / side + 1);
    int code = 0, drawn = 0;
    for (size_t p = 0; code == 0 && p < stats->plan_count; p++) {
        const struct poise_flow_plan *plan = &stats->plans[p];
        bool same = before && memcmp(before->owner, plan->owner,
                                     places * sizeof *plan->owner) == 0;
        if (plan->file == 0 && !same && drawn++ < CHUNKS_MOST) {
            code = add_chunks(page, run, plan);
            before = plan;
        }
    }
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
    code = code < 0 ? code : add_nodes(page, run->stats);
    code = code < 0 ? code : add_progress(page, run->stats);
    code = code < 0 ? code : cli_live_page(run->live, page);
    code = code < 0 ? code : add_all_chunks(page, run);
    code = code < 0 ? code : add_plate(page, run->before, "Before");
    code = code < 0 ? code : add_plate(page, run->after, "After");
    code = code < 0 ? code : poise_page_html(page, out);
    poise_page_destroy(page);
    return code;
}
