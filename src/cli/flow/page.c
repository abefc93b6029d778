/* What reports of solve and desync run share: what each node did, progress, who
 * computed what. */
#include "flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** Maps of chunks that are drawn. */
#define CHUNKS_MOST 12

static int add_nodes(struct poise_page *page,
                     const struct poise_flow_stats *stats)
{
    static const char *const series[] = {"computing", "waiting for blocks",
                                         "waiting for memory"};
    unsigned count = stats->node_count;
    size_t kinds = 2;
    for (unsigned n = 0; n < count; n++) {
        kinds = stats->nodes[n].throttled_ns > 0 ? 3 : kinds;
    }
    double *values = poise_alloc(kinds * count + 1, sizeof *values);
    const char **names = poise_alloc(count + 1, sizeof *names);
    struct poise_buf *texts = poise_alloc(count + 1, sizeof *texts);
    int code = values && names && texts ? 0 : -ENOMEM;
    for (unsigned n = 0; code == 0 && n < count; n++) {
        const struct poise_flow_node_stats *node = &stats->nodes[n];
        double *all = values + kinds * n;
        all[0] = (double)node->compute_ns;
        all[1] = (double)(node->wait_ns - node->throttled_ns);
        if (kinds > 2) {
            all[2] = (double)node->throttled_ns;
        }
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
                                        .series_count = kinds,
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

int cli_flow_page(const struct poise_flow_stats *stats, struct poise_page *page)
{
    int code = add_nodes(page, stats);
    return code < 0 ? code : add_progress(page, stats);
}

/* ---- chunks ------------------------------------------------------------- */

/** A version's places as rows and columns. */
struct sheet {
    size_t rows, columns;
};

/* The first index counts rows, all others columns. */
static struct sheet sheet_of(const struct poise_flow_chunk *shape)
{
    struct sheet sheet = {1, 1};
    for (unsigned d = 0; d < shape->dims; d++) {
        size_t count = (size_t)(shape->index[d].to - shape->index[d].from);
        size_t *side = d == 0 && shape->dims > 1 ? &sheet.rows : &sheet.columns;
        *side *= count;
    }
    return sheet;
}

/* Who has which blocks, from one version on. */
static int add_chunks(struct poise_page *page, const struct sheet *sheet,
                      const struct poise_flow_plan *plan)
{
    struct poise_buf title = {0};
    poise_buf_printf(&title, "Nodes of blocks, versions %lld to %lld",
                     (long long)plan->from, (long long)plan->to - 1);
    const struct poise_classes map = {.title = poise_buf_str(&title),
                                      .row_label = "row",
                                      .column_label = "column",
                                      .name = "node",
                                      .of = plan->owner,
                                      .row_count = sheet->rows,
                                      .column_count = sheet->columns};
    int code = poise_page_classes(page, &map);
    poise_buf_free(&title);
    return code;
}

int cli_flow_page_chunks(const struct poise_flow_chunk *shape, uint32_t file,
                         const struct poise_flow_stats *stats,
                         struct poise_page *page)
{
    const struct sheet sheet = sheet_of(shape);
    const struct poise_flow_plan *before = NULL;
    size_t bytes = sheet.rows * sheet.columns * sizeof *before->owner;
    int code = 0, drawn = 0;
    for (size_t p = 0; code == 0 && p < stats->plan_count; p++) {
        const struct poise_flow_plan *plan = &stats->plans[p];
        bool same = before && memcmp(before->owner, plan->owner, bytes) == 0;
        if (plan->file == file && !same && drawn++ < CHUNKS_MOST) {
            code = add_chunks(page, &sheet, plan);
            before = plan;
        }
    }
    return code;
}
