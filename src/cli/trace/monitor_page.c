/* A monitored run as one page: who waits where, in each operation. */
#include "monitor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Operations that have a section, those with the most time, and ranks that a
 * plot shows, those that cost most. */
enum { SECTIONS_MOST = 8, RANKS_MOST = 64, NAME_BYTES = 16, SPLIT_BYTES = 128 };

/* The ranks of an operation that are shown, with their names. */
struct shown {
    int count;
    int ranks[RANKS_MOST];
    char names[RANKS_MOST][NAME_BYTES];
    const char *rows[RANKS_MOST];
};

/* Those with the most lateness, in order of their numbers; of equals the first.
 */
static void choose(const struct poise_monitor_operation *operation,
                   struct shown *out)
{
    int64_t bound = -1;
    out->count = 0;
    /* Raise the bound until few enough are above it. */
    for (int above = operation->size; above > RANKS_MOST;) {
        int64_t next = INT64_MAX;
        above = 0;
        for (int i = 0; i < operation->size; i++) {
            int64_t late = operation->ranks[i].late_sum_ns;
            next = late > bound && late < next ? late : next;
        }
        bound = next;
        for (int i = 0; i < operation->size; i++) {
            above += operation->ranks[i].late_sum_ns > bound;
        }
    }
    for (int i = 0; i < operation->size && out->count < RANKS_MOST; i++) {
        if (operation->ranks[i].late_sum_ns >= bound) {
            snprintf(out->names[out->count], NAME_BYTES, "rank %d", i);
            out->rows[out->count] = out->names[out->count];
            out->ranks[out->count++] = i;
        }
    }
}

/* ---- plots -------------------------------------------------------------- */

static int add_waits(struct poise_page *page,
                     const struct poise_monitor_operation *operation,
                     const struct shown *shown)
{
    static const char *const series[] = {"waits for later ones",
                                         "leaves after the first"};
    double values[RANKS_MOST * 2];
    for (int i = 0; i < shown->count; i++) {
        const struct poise_monitor_rank *rank =
            &operation->ranks[shown->ranks[i]];
        values[2 * i] = poise_monitor_mean(&rank->arrival_wait);
        values[2 * i + 1] = poise_monitor_mean(&rank->departure_wait);
    }
    return poise_page_stacks(
        page, &(struct poise_stacks){.title = "Waits of a call, mean",
                                     .x_label = "time",
                                     .rows = shown->rows,
                                     .series = series,
                                     .values = values,
                                     .row_count = (size_t)shown->count,
                                     .series_count = 2,
                                     .unit = POISE_UNIT_NS});
}

/* Parts that are known of none have no place in the legend. */
static int add_split(struct poise_page *page, const struct monitor_run *run)
{
    static const char *const all[] = {"arrival", "reduce", "broadcast"};
    static const char *const some[] = {"arrival", "after"};
    double values[SECTIONS_MOST * 3];
    char names[SECTIONS_MOST][SPLIT_BYTES];
    const char *rows[SECTIONS_MOST];
    unsigned count = run->count < SECTIONS_MOST ? run->count : SECTIONS_MOST;
    size_t series = 2;
    for (unsigned i = 0; i < count; i++) {
        series = run->operations[i]->reduce.count > 0 ? 3 : series;
    }
    for (unsigned i = 0; i < count; i++) {
        const struct poise_monitor_operation *operation = run->operations[i];
        double *row = values + series * i;
        snprintf(names[i], SPLIT_BYTES, "%s, %s", operation->name,
                 operation->group_name);
        /* Where all are of one communicator that need not be said. */
        bool is_one = operation->group == run->operations[0]->group;
        rows[i] = i == 0 || is_one ? operation->name : names[i];
        row[0] = poise_monitor_mean(&operation->arrival);
        row[1] = poise_monitor_mean(&operation->reduce);
        row[series - 1] = poise_monitor_mean(&operation->broadcast);
    }
    return poise_page_stacks(
        page, &(struct poise_stacks){.title = "What a call is made of, mean",
                                     .x_label = "time",
                                     .rows = rows,
                                     .series = series == 3 ? all : some,
                                     .values = values,
                                     .row_count = count,
                                     .series_count = series,
                                     .unit = POISE_UNIT_NS});
}

/* ---- tables ------------------------------------------------------------- */

static int add_cells(struct poise_table *table, struct poise_buf *cells,
                     size_t count)
{
    const char *text[8];
    for (size_t i = 0; i < count; i++) {
        text[i] = poise_buf_str(&cells[i]);
    }
    int code = poise_table_row(table, text);
    for (size_t i = 0; i < count; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

static int add_worst(struct poise_page *page,
                     const struct poise_monitor_operation *operation)
{
    static const struct poise_column columns[] = {
        {"longest calls", POISE_ALIGN_RIGHT}, {"at", POISE_ALIGN_RIGHT},
        {"time", POISE_ALIGN_RIGHT},          {"arrival", POISE_ALIGN_RIGHT},
        {"reduce", POISE_ALIGN_RIGHT},        {"broadcast", POISE_ALIGN_RIGHT},
        {"cause", POISE_ALIGN_LEFT},          {"rank", POISE_ALIGN_RIGHT}};
    struct poise_table *table;
    int code = poise_table_create(columns, 8, &table);
    for (unsigned i = 0; code == 0 && i < operation->worst_count; i++) {
        const struct poise_monitor_worst *worst = &operation->worst[i];
        struct poise_buf cells[8] = {0};
        poise_buf_decimal(&cells[0], worst->sequence);
        poise_buf_printf(&cells[1], "%.6f s", (double)worst->start_ns / 1e9);
        poise_human_ns(&cells[2], (uint64_t)worst->total_ns);
        poise_human_ns(&cells[3], (uint64_t)worst->verdict.arrival_ns);
        poise_human_ns(&cells[4], (uint64_t)worst->verdict.reduce_ns);
        poise_human_ns(&cells[5], (uint64_t)worst->verdict.broadcast_ns);
        poise_buf_puts(&cells[6], monitor_causes[worst->verdict.cause]);
        poise_buf_printf(&cells[7], "%d", worst->verdict.rank);
        code = add_cells(table, cells, 8);
    }
    if (code == 0) {
        code = poise_page_table(page, table);
        poise_table_destroy(table);
    }
    return code;
}

/* Whose lateness cost most first: of many ranks, those below are not seen
 * without a look for them. `order` has room for all shown. */
static void order_late(const struct poise_monitor_operation *operation,
                       const struct shown *shown, int *order)
{
    for (int i = 0; i < shown->count; i++) {
        int64_t late = operation->ranks[shown->ranks[i]].late_sum_ns;
        int at = i;
        while (at > 0 &&
               operation->ranks[shown->ranks[order[at - 1]]].late_sum_ns <
                   late) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}

static int add_order(struct poise_page *page,
                     const struct poise_monitor_operation *operation,
                     const struct shown *shown)
{
    static const struct poise_column columns[] = {
        {"order of arrival", POISE_ALIGN_LEFT},
        {"mean place", POISE_ALIGN_RIGHT},
        {"first", POISE_ALIGN_RIGHT},
        {"last", POISE_ALIGN_RIGHT},
        {"late by, mean", POISE_ALIGN_RIGHT},
        {"at most", POISE_ALIGN_RIGHT},
        {"blamed", POISE_ALIGN_RIGHT}};
    struct poise_table *table;
    int order[sizeof shown->ranks / sizeof *shown->ranks];
    int code = poise_table_create(columns, 7, &table);
    order_late(operation, shown, order);
    for (int i = 0; code == 0 && i < shown->count; i++) {
        const struct poise_monitor_rank *rank =
            &operation->ranks[shown->ranks[order[i]]];
        struct poise_buf cells[7] = {0};
        poise_buf_puts(&cells[0], shown->names[order[i]]);
        poise_buf_printf(&cells[1], "%.2f",
                         (double)rank->order_sum / (double)operation->ordered);
        poise_human_count(&cells[2], rank->first);
        poise_human_count(&cells[3], rank->last);
        if (rank->last > 0) {
            poise_human_ns(&cells[4], (uint64_t)rank->late_sum_ns / rank->last);
            poise_human_ns(&cells[5], (uint64_t)rank->late_most_ns);
        }
        poise_human_count(&cells[6], rank->caused);
        code = add_cells(table, cells, 7);
    }
    if (code == 0) {
        code = poise_page_table(page, table);
        poise_table_destroy(table);
    }
    return code;
}

/* ---- the page ----------------------------------------------------------- */

static int add_operation(struct poise_page *page,
                         const struct poise_monitor_operation *operation,
                         const struct monitor_details *details)
{
    struct shown shown;
    struct poise_buf title = {0}, text = {0};
    choose(operation, &shown);
    poise_buf_printf(&title, "%s on %s", operation->name,
                     operation->group_name);
    poise_human_count(&text, operation->calls);
    poise_buf_printf(&text, " calls of %d ranks", operation->size);
    if (shown.count < operation->size) {
        poise_buf_printf(&text,
                         ", of which the %d that were late for longest "
                         "are shown",
                         shown.count);
    }
    int code =
        poise_page_section(page, poise_buf_str(&title), poise_buf_str(&text));
    poise_buf_free(&title);
    poise_buf_free(&text);
    code = code < 0 ? code : monitor_paths_draw(page, operation);
    code = code < 0 ? code : add_order(page, operation, &shown);
    code = code < 0 ? code : add_waits(page, operation, &shown);
    code = code < 0 ? code : monitor_details_waits(details, operation, page);
    code = code < 0 ? code : add_worst(page, operation);
    return code < 0 ? code : monitor_details_longest(details, operation, page);
}

static int add_figures(struct poise_page *page, const struct monitor_run *run)
{
    static const char *const labels[] = {"ranks", "run", "records",
                                         "records lost", "calls left out"};
    struct poise_buf values[5] = {0};
    const char *text[5];
    poise_human_count(&values[0], (uint64_t)run->source.size);
    poise_human_ns(&values[1], (uint64_t)run->source.span_ns);
    poise_human_count(&values[2], run->source.records);
    poise_human_count(&values[3], run->missing.lost);
    poise_human_count(&values[4],
                      run->missing.incomplete + run->missing.mismatched);
    for (int i = 0; i < 5; i++) {
        text[i] = poise_buf_str(&values[i]);
    }
    int code = poise_page_figures(page, labels, text, 5);
    for (int i = 0; i < 5; i++) {
        poise_buf_free(&values[i]);
    }
    return code;
}

/* What there is to know, before what it is known by. */
static int add_verdict(struct poise_page *page, const struct monitor_run *run)
{
    struct poise_buf text = {0};
    monitor_put_late(run, &text);
    int code = text.error;
    if (code == 0) {
        code = poise_page_section(page, "Who is late",
                                  text.len > 0 ? poise_buf_str(&text)
                                               : "Nobody was waited for.");
    }
    poise_buf_free(&text);
    return code;
}

int monitor_page(const struct monitor_run *run,
                 const struct monitor_details *details, struct poise_buf *out)
{
    struct poise_page *page;
    int code = poise_page_create("Collectives of a run",
                                 "Where the time of collectives went", &page);
    if (code < 0) {
        return code;
    }
    code = add_figures(page, run);
    code = code < 0 ? code : add_verdict(page, run);
    if (code == 0 && run->count > 0) {
        code = add_split(page, run);
    }
    for (unsigned i = 0; code == 0 && i < run->count && i < SECTIONS_MOST;
         i++) {
        code = add_operation(page, run->operations[i], details);
    }
    if (code == 0 && run->messages) {
        code = monitor_messages_draw(run->messages, run->source.size, page);
    }
    code = code < 0 ? code : monitor_paths_overlay(page, run);
    if (code == 0) {
        code = poise_page_html(page, &(struct poise_page_run){0}, out);
    }
    poise_page_destroy(page);
    return code;
}
