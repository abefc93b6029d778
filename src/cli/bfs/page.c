/* The report of poise bfs: one page of plots. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int add_figures(struct poise_page *page, const struct cli_bfs_job *job)
{
    static const char *const labels[] = {"searches", "harmonic mean", "median",
                                         "bytes per edge", "construction"};
    enum { COUNT = sizeof labels / sizeof *labels };
    struct poise_graph_figures f;
    struct poise_buf cells[COUNT] = {0};
    const char *values[COUNT];
    int code = cli_bfs_figures(job, CLI_BFS_TEPS, &f);
    double edges = (double)job->info.edge_count;

    poise_buf_decimal(&cells[0], job->run_count);
    poise_buf_printf(&cells[1], "%.0f Medges/s", f.harmonic_mean / 1e6);
    poise_buf_printf(&cells[2], "%.0f Medges/s", f.median / 1e6);
    poise_buf_printf(&cells[3], "%.1f",
                     edges > 0 ? (double)job->info.bytes / edges : 0);
    poise_human_ns(&cells[4], job->info.build_ns);
    for (int i = 0; i < COUNT; i++) {
        values[i] = poise_buf_str(&cells[i]);
    }
    if (code == 0) {
        code = poise_page_figures(page, labels, values, COUNT);
    }
    for (int i = 0; i < COUNT; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rates in order: their distribution over the roots. */
static int add_rates(struct poise_page *page, const struct cli_bfs_job *job)
{
    double *x = poise_alloc(2 * job->run_count + 1, sizeof *x);
    double *y = x ? x + job->run_count : NULL;
    int code;

    if (!x) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < job->run_count; i++) {
        const struct cli_bfs_run *run = &job->runs[i];

        x[i] = (double)(i + 1);
        y[i] = run->ns > 0 ? (double)run->edges / ((double)run->ns / 1e9) : 0;
    }
    qsort(y, job->run_count, sizeof *y, compare);
    struct poise_line line = {
        .label = "searches", .x = x, .y = y, .count = job->run_count};
    struct poise_plot plot = {
        .title = "Edges per second over the roots, in ascending order",
        .x_label = "search",
        .y_label = "edges per second",
        .lines = &line,
        .line_count = 1,
    };
    code = poise_page_plot(page, &plot);
    free(x);
    return code;
}

/* What a stack of one level is made of. */
enum { DOWN, UP, EXCHANGE, SWITCH, STALL, PARTS };

static double work_of(const struct cli_bfs_cost *cost)
{
    uint64_t rest = cost->exchange_ns + cost->switch_ns + cost->stall_ns;

    return cost->ns > rest ? (double)(cost->ns - rest) : 0;
}

static void split_level(const struct cli_bfs_level *level, double runs,
                        double parts[PARTS])
{
    const struct cli_bfs_cost cost = cli_bfs_level_cost(level);

    parts[DOWN] = work_of(&level->down) / runs;
    parts[UP] = work_of(&level->up) / runs;
    parts[EXCHANGE] = (double)cost.exchange_ns / runs;
    parts[SWITCH] = (double)cost.switch_ns / runs;
    parts[STALL] = (double)cost.stall_ns / runs;
}

static int add_levels(struct poise_page *page, const struct cli_bfs_job *job)
{
    static const char *const series[PARTS] = {
        "top-down", "bottom-up", "communication", "switch", "stall"};
    size_t count = job->level_count;
    double *values = poise_alloc((PARTS + 1) * count + 1, sizeof *values);
    const char **rows = poise_alloc(count + 1, sizeof *rows);
    char(*names)[24] = poise_alloc(count + 1, sizeof *names);
    double runs = job->run_count > 0 ? (double)job->run_count : 1;
    int code = values && rows && names ? 0 : -ENOMEM;

    if (code == 0) {
        double *sizes = values + PARTS * count;

        for (size_t i = 0; i < count; i++) {
            snprintf(names[i], sizeof names[i], "%zu", i);
            rows[i] = names[i];
            split_level(&job->levels[i], runs, values + PARTS * i);
            sizes[i] = (double)job->levels[i].frontier / runs;
        }
        struct poise_stacks stacks = {
            .title = "Time of each level, on average",
            .x_label = "time",
            .rows = rows,
            .series = series,
            .values = values,
            .row_count = count,
            .series_count = PARTS,
            .unit = POISE_UNIT_NS,
        };
        struct poise_bars bars = {
            .title = "Frontier of each level, on average",
            .x_label = "level",
            .y_label = "vertices",
            .labels = rows,
            .values = sizes,
            .count = count,
            .log_y = true,
        };
        code = poise_page_stacks(page, &stacks);
        code = code < 0 ? code : poise_page_bars(page, &bars);
    }
    free(values);
    free(rows);
    free(names);
    return code;
}

/* Speed over nodes, as the model has it: weak scaling. */
static int add_models(struct poise_page *page, const struct cli_bfs_job *job)
{
    enum { EXCHANGES = POISE_GRAPH_EXCHANGES - POISE_GRAPH_EXCHANGE_PRIVATE };
    size_t count = job->values->model.count;
    double *x = poise_alloc((EXCHANGES + 1) * count, sizeof *x);
    struct poise_line lines[EXCHANGES];
    int code;

    if (!x) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        x[i] = job->models[i].machine.nodes;
    }
    for (size_t e = 0; e < EXCHANGES; e++) {
        size_t exchange = e + POISE_GRAPH_EXCHANGE_PRIVATE;
        double *y = x + (e + 1) * count;

        for (size_t i = 0; i < count; i++) {
            const struct poise_graph_forecast *sum =
                &job->models[i].sums[exchange];

            y[i] = sum->seconds > 0 ? sum->edges / sum->seconds : 0;
        }
        lines[e] =
            (struct poise_line){.label = poise_graph_exchange_names[exchange],
                                .x = x,
                                .y = y,
                                .count = count};
    }
    struct poise_plot plot = {
        .title = "Larger machines, the graph grows with them: by the model, "
                 "not measured",
        .x_label = "nodes",
        .y_label = "edges per second",
        .lines = lines,
        .line_count = EXCHANGES,
    };
    code = poise_page_plot(page, &plot);
    free(x);
    return code;
}

/* What was found of the searches by the five rules of Graph500. */
static int page_html(const struct cli_bfs_job *job, struct poise_page *page,
                     struct poise_buf *html)
{
    struct poise_buf checked = {0};
    size_t count = 0;
    int code;

    for (size_t i = 0; i < job->run_count; i++) {
        count += job->runs[i].validated ? 1 : 0;
    }
    poise_buf_printf(&checked,
                     "%zu of %zu searches by the five rules of Graph500: %zu "
                     "wrong",
                     count, job->run_count, job->invalid);
    const struct poise_page_run run = {
        .checked = count > 0 ? poise_buf_str(&checked) : NULL,
        .seed = job->values->graph.seed > 0 ? (uint64_t)job->values->graph.seed
                : job->path                 ? 0
                                            : 2};
    code = checked.error ? checked.error : poise_page_html(page, &run, html);
    poise_buf_free(&checked);
    return code;
}

int cli_bfs_report(const struct cli_bfs_job *job, const char *path)
{
    struct poise_buf html = {0}, subtitle = {0};
    struct poise_page *page = NULL;
    int code;

    if (job->path) {
        poise_buf_puts(&subtitle, job->path);
    } else {
        poise_buf_printf(&subtitle, "Graph500, scale %lld",
                         (long long)job->values->graph.scale);
    }
    poise_buf_printf(&subtitle, ", %d process%s", job->ranks,
                     job->ranks == 1 ? "" : "es");
    code = poise_page_create("Breadth-first search", poise_buf_str(&subtitle),
                             &page);
    if (code == 0) {
        code = add_figures(page, job);
    }
    if (code == 0) {
        code = poise_page_section(page, "Searches", NULL);
    }
    if (code == 0 && job->run_count > 1) {
        code = add_rates(page, job);
    }
    if (code == 0 && job->level_count > 0) {
        code = add_levels(page, job);
    }
    if (code == 0 && job->values->model.count > 1) {
        code = add_models(page, job);
    }
    if (code == 0) {
        code = page_html(job, page, &html);
    }
    if (code == 0) {
        code = poise_file_save(path, &html);
    }
    poise_page_destroy(page);
    poise_buf_free(&html);
    poise_buf_free(&subtitle);
    return code;
}
