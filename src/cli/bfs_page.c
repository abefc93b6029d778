/* The report of poise bfs: one page of plots. */
#include "bfs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int add_figures(struct poise_page *page, const struct cli_bfs_job *job)
{
    static const char *const labels[] = {"searches", "harmonic mean", "median",
                                         "bytes an edge", "construction"};
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

static void split_level(const struct cli_bfs_level *level, double runs,
                        double parts[PARTS])
{
    uint64_t rest = level->exchange_ns + level->switch_ns + level->stall_ns;
    double work = level->ns > rest ? (double)(level->ns - rest) : 0;
    double up = level->count > 0 ? (double)level->up / (double)level->count : 0;

    parts[DOWN] = work * (1 - up) / runs;
    parts[UP] = work * up / runs;
    parts[EXCHANGE] = (double)level->exchange_ns / runs;
    parts[SWITCH] = (double)level->switch_ns / runs;
    parts[STALL] = (double)level->stall_ns / runs;
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
            .title = "Time of each level, on average (numa-bfs, figure 11)",
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

int cli_bfs_report(const struct cli_bfs_job *job, const char *path)
{
    struct poise_buf html = {0}, subtitle = {0};
    struct poise_page *page = NULL;
    int code;

    if (job->path) {
        poise_buf_puts(&subtitle, job->path);
    } else {
        poise_buf_printf(&subtitle, "Graph500, scale %lld",
                         (long long)job->values->scale);
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
    if (code == 0) {
        code = poise_page_html(page, &html);
    }
    if (code == 0) {
        code = poise_file_save(path, &html);
    }
    poise_page_destroy(page);
    poise_buf_free(&html);
    poise_buf_free(&subtitle);
    return code;
}
