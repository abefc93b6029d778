/*
 * What collectives do now, while the program runs: on a terminal a table that
 * is drawn over the one before, else a line for each operation. What is shown
 * is of the time since the last showing, but for the counts of what was lost.
 */
#include "cli/common/redraw.h"
#include "monitor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** As often as one can read it. */
#define SHOW_NS 1000000000

/** Operations that are shown, those with the most time, and columns. */
enum { ROWS_MOST = 10, COLUMNS = 6 };

/* An operation's figures as they were shown last. */
struct before {
    uint64_t calls;
    int64_t inside_ns, arrival_ns, total_ns;
    uint64_t *last;   /* [size]: how often each rank was last */
    int64_t *late_ns; /* [size] */
};

/* What it did since then. */
struct row {
    const struct poise_monitor_operation *operation;
    uint64_t calls;
    int64_t inside_ns, arrival_ns, total_ns;
    int rank; /* most often last; -1: none was */
    uint64_t last;
    int64_t late_ns;
};

struct monitor_live {
    const struct poise_monitor *monitor;
    const struct poise_monitor_reader *reader;
    struct before *before; /* [count], as the monitor numbers operations */
    unsigned count;
    int64_t start_ns, shown_ns;
    struct cli_redraw redraw;
};

int monitor_live_create(const struct poise_monitor *monitor,
                        const struct poise_monitor_reader *reader, int color,
                        struct monitor_live **out)
{
    struct monitor_live *live = poise_alloc(1, sizeof *live);
    if (!live) {
        return -ENOMEM;
    }
    live->monitor = monitor;
    live->reader = reader;
    live->start_ns = live->shown_ns = (int64_t)poise_clock_ns();
    live->redraw = cli_redraw_open(color);
    *out = live;
    return 0;
}

void monitor_live_free(struct monitor_live *live)
{
    for (unsigned i = 0; live && i < live->count; i++) {
        free(live->before[i].last);
        free(live->before[i].late_ns);
    }
    free(live ? live->before : NULL);
    free(live);
}

/* ---- since the last time ------------------------------------------------ */

/* NULL: there is no memory for it. */
static struct before *before_of(struct monitor_live *live, unsigned number)
{
    const struct poise_monitor_operation *operation =
        poise_monitor_operation(live->monitor, number);
    size_t size = (size_t)operation->size;
    if (number < live->count) {
        return &live->before[number];
    }
    struct before *more = poise_realloc(live->before, number + 1, sizeof *more);
    if (!more) {
        return NULL;
    }
    live->before = more;
    more[number] = (struct before){
        .last = calloc(size, sizeof *more->last),
        .late_ns = calloc(size, sizeof *more->late_ns),
    };
    if (!more[number].last || !more[number].late_ns) {
        free(more[number].last);
        free(more[number].late_ns);
        return NULL;
    }
    live->count = number + 1;
    return &more[number];
}

static struct row row_of(const struct poise_monitor_operation *operation,
                         struct before *before)
{
    struct row row = {.operation = operation, .rank = -1};
    row.calls = operation->calls - before->calls;
    row.inside_ns = operation->inside_ns - before->inside_ns;
    row.arrival_ns = operation->arrival.sum - before->arrival_ns;
    row.total_ns = operation->total.sum - before->total_ns;
    before->calls = operation->calls;
    before->inside_ns = operation->inside_ns;
    before->arrival_ns = operation->arrival.sum;
    before->total_ns = operation->total.sum;
    for (int i = 0; i < operation->size; i++) {
        const struct poise_monitor_rank *rank = &operation->ranks[i];
        uint64_t last = rank->last - before->last[i];
        if (last > row.last) {
            row.rank = i;
            row.last = last;
            row.late_ns = rank->late_sum_ns - before->late_ns[i];
        }
        before->last[i] = rank->last;
        before->late_ns[i] = rank->late_sum_ns;
    }
    return row;
}

static int most_time(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    return (a->inside_ns < b->inside_ns) - (a->inside_ns > b->inside_ns);
}

/* Those that were called since; how many. */
static unsigned gather(struct monitor_live *live, struct row **out)
{
    unsigned all = poise_monitor_operations(live->monitor), count = 0;
    struct row *rows = poise_alloc(all + 1, sizeof *rows);
    for (unsigned i = 0; rows && i < all; i++) {
        struct before *before = before_of(live, i);
        if (!before) {
            break;
        }
        rows[count] = row_of(poise_monitor_operation(live->monitor, i), before);
        count += rows[count].calls > 0;
    }
    if (rows) {
        qsort(rows, count, sizeof *rows, most_time);
    }
    *out = rows;
    return count < ROWS_MOST ? count : ROWS_MOST;
}

/* ---- words -------------------------------------------------------------- */

static void put_rate(struct poise_buf *out, const struct row *row, int64_t ns)
{
    poise_human_count(out, (uint64_t)((double)row->calls * 1e9 / (double)ns));
}

static void put_mean(struct poise_buf *out, const struct row *row)
{
    poise_human_ns(out, (uint64_t)row->total_ns / row->calls);
}

static void put_arrival(struct poise_buf *out, const struct row *row)
{
    poise_buf_printf(out, "%.0f %%",
                     row->total_ns > 0
                         ? 100 * (double)row->arrival_ns / (double)row->total_ns
                         : 0);
}

static void put_last(struct poise_buf *out, const struct row *row)
{
    if (row->rank < 0) {
        poise_buf_puts(out, "-");
        return;
    }
    poise_buf_printf(out, "%d in %.0f %% by ", row->rank,
                     100 * (double)row->last / (double)row->calls);
    poise_human_ns(out, (uint64_t)row->late_ns / row->last);
}

static void put_name(struct poise_buf *out, const char *name)
{
    poise_buf_escape(out, name, strlen(name));
}

static void put_count(struct poise_buf *out, uint64_t count, const char *what)
{
    poise_human_count(out, count);
    poise_buf_printf(out, " %s%s", what, count == 1 ? "" : "s");
}

static void put_head(const struct monitor_live *live, int64_t now,
                     struct poise_buf *out)
{
    struct poise_monitor_source source;
    struct poise_monitor_missing missing;
    poise_monitor_reader_source(live->reader, &source);
    poise_monitor_missing(live->monitor, &missing);
    poise_human_ns(out, (uint64_t)(now - live->start_ns));
    if (source.size == 0) {
        poise_buf_puts(out, ": no rank has begun to record\n");
        return;
    }
    poise_buf_puts(out, ": ");
    put_count(out, (uint64_t)source.size, "rank");
    poise_buf_puts(out, ", ");
    put_count(out, source.records, "record");
    poise_buf_puts(out, ", ");
    poise_human_count(out, missing.lost);
    poise_buf_puts(out, " lost, ");
    put_count(out,
              missing.incomplete - missing.pending + missing.unplaced +
                  missing.mismatched,
              "call");
    poise_buf_puts(out, " left out\n");
}

/* A line for each: what others read. */
static void put_lines(const struct row *rows, unsigned count, int64_t ns,
                      struct poise_buf *out)
{
    for (unsigned i = 0; i < count; i++) {
        poise_buf_puts(out, "  ");
        put_name(out, rows[i].operation->name);
        poise_buf_puts(out, " on ");
        put_name(out, rows[i].operation->group_name);
        poise_buf_puts(out, ": ");
        put_rate(out, &rows[i], ns);
        poise_buf_puts(out, " calls/s of ");
        put_mean(out, &rows[i]);
        poise_buf_puts(out, ", arrival ");
        put_arrival(out, &rows[i]);
        poise_buf_puts(out, ", last rank ");
        put_last(out, &rows[i]);
        poise_buf_puts(out, "\n");
    }
}

static int put_row(struct poise_table *table, const struct row *row, int64_t ns)
{
    struct poise_buf cells[COLUMNS] = {0};
    const char *text[COLUMNS];
    put_name(&cells[0], row->operation->name);
    put_last(&cells[1], row);
    put_arrival(&cells[2], row);
    put_rate(&cells[3], row, ns);
    put_mean(&cells[4], row);
    put_name(&cells[5], row->operation->group_name);
    for (int i = 0; i < COLUMNS; i++) {
        text[i] = poise_buf_str(&cells[i]);
    }
    int code = poise_table_row(table, text);
    for (int i = 0; i < COLUMNS; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

/* A narrow terminal cuts what is least asked for. */
static void put_table(const struct row *rows, unsigned count, int64_t ns,
                      struct poise_buf *out)
{
    static const struct poise_column columns[COLUMNS] = {
        {"operation", POISE_ALIGN_LEFT},  {"last rank now", POISE_ALIGN_LEFT},
        {"arrival", POISE_ALIGN_RIGHT},   {"calls/s", POISE_ALIGN_RIGHT},
        {"mean call", POISE_ALIGN_RIGHT}, {"communicator", POISE_ALIGN_LEFT}};
    struct poise_table *table;
    int code = poise_table_create(columns, COLUMNS, &table);
    for (unsigned i = 0; code == 0 && i < count; i++) {
        code = put_row(table, &rows[i], ns);
    }
    if (code == 0) {
        poise_table_text(table, out);
        poise_table_destroy(table);
    }
}

/* ---- the terminal ------------------------------------------------------- */

/* The second line is the table's head. */
static const char *style(unsigned line, const char *text, size_t len)
{
    (void)text;
    (void)len;
    return line == 1 ? "1" : NULL;
}

void monitor_live_look(struct monitor_live *live)
{
    int64_t now = (int64_t)poise_clock_ns();
    if (now - live->shown_ns < SHOW_NS) {
        return;
    }
    struct row *rows;
    struct poise_buf text = {0}, out = {0};
    unsigned count = gather(live, &rows);
    put_head(live, now, &text);
    if (live->redraw.redraws) {
        put_table(rows, count, now - live->shown_ns, &text);
        cli_redraw_put(&live->redraw, &text, style, &out);
    } else {
        put_lines(rows, count, now - live->shown_ns, &text);
        poise_buf_append(&out, text.data, text.len);
    }
    out.error = out.error ? out.error : text.error;
    cli_redraw_write(&out);
    poise_buf_free(&text);
    free(rows);
    live->shown_ns = now;
}

void monitor_live_end(struct monitor_live *live)
{
    struct poise_buf out = {0};
    cli_redraw_wipe(&live->redraw, &out);
    cli_redraw_write(&out);
}
