/* A session for people: its ranks, its threads, its collectors, its events. */
#include "trace.h"

#include <errno.h>
#include <string.h>

enum { COLUMNS_MOST = 11 };

/* A row of cells that buffers hold, which are emptied. */
static int add_row(struct poise_table *table, struct poise_buf *cells,
                   size_t count)
{
    const char *text[COLUMNS_MOST];
    int code;

    for (size_t i = 0; i < count; i++) {
        text[i] = poise_buf_str(&cells[i]);
    }
    code = poise_table_row(table, text);
    for (size_t i = 0; i < count; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

static int finish(struct poise_table *table, int code, struct poise_buf *out)
{
    code = code < 0 ? code : poise_table_text(table, out);
    poise_table_destroy(table);
    return code;
}

/* ---- ranks -------------------------------------------------------------- */

static const char *const way_names[] = {
    [POISE_TRACE_SAME] = "rank 0's",
    [POISE_TRACE_MEASURED] = "measured",
    [POISE_TRACE_WALL] = "time of day",
};

static int file_row(const struct poise_trace_file *file,
                    struct poise_table *table)
{
    struct poise_buf cells[COLUMNS_MOST] = {0};

    poise_buf_printf(&cells[0], "%d", file->info.rank);
    poise_buf_puts(&cells[1], file->info.host);
    poise_buf_printf(&cells[2], "%d", file->info.pid);
    poise_buf_puts(&cells[3], way_names[file->way]);
    if (file->way != POISE_TRACE_SAME) {
        poise_buf_printf(&cells[4], "%+.3f us", (double)file->offset_ns / 1e3);
        if (file->error_ns == POISE_TRACE_UNKNOWN) {
            poise_buf_puts(&cells[5], "unknown");
        } else {
            poise_human_ns(&cells[5], file->error_ns);
        }
        if (file->drift_error_ppm > 0) {
            poise_buf_printf(&cells[6], "%.1f +- %.1f ppm", file->drift_ppm,
                             file->drift_error_ppm);
        } else {
            poise_buf_puts(&cells[6], "-");
        }
    } else {
        poise_buf_puts(&cells[4], "0");
        poise_buf_puts(&cells[5], "0");
        poise_buf_puts(&cells[6], "-");
    }
    poise_human_count(&cells[7], file->records);
    poise_human_count(&cells[8], file->lost);
    return add_row(table, cells, 9);
}

static int text_files(const struct trace_show *show, struct poise_buf *out)
{
    static const struct poise_column columns[] = {
        {"rank", POISE_ALIGN_RIGHT},    {"host", POISE_ALIGN_LEFT},
        {"process", POISE_ALIGN_RIGHT}, {"clock", POISE_ALIGN_LEFT},
        {"offset", POISE_ALIGN_RIGHT},  {"error at most", POISE_ALIGN_RIGHT},
        {"drift", POISE_ALIGN_RIGHT},   {"events", POISE_ALIGN_RIGHT},
        {"lost", POISE_ALIGN_RIGHT},
    };
    struct poise_table *table;
    int code =
        poise_table_create(columns, sizeof columns / sizeof *columns, &table);

    if (code < 0) {
        return code;
    }
    for (unsigned i = 0; code == 0 && i < show->file_count; i++) {
        code = file_row(&show->files[i], table);
    }
    return finish(table, code, out);
}

/* ---- threads ------------------------------------------------------------ */

static int ring_row(const struct trace_show *show,
                    const struct trace_ring *ring, struct poise_table *table)
{
    struct poise_buf cells[COLUMNS_MOST] = {0};
    struct poise_buf *cell = cells;

    if (show->file_count > 1) {
        poise_buf_printf(cell++, "%d", show->files[ring->file].info.rank);
    }
    poise_buf_escape(cell++, ring->info.name, strlen(ring->info.name));
    poise_buf_printf(cell++, "%d", ring->info.tid); /* an id, not a count */
    poise_human_count(cell++, ring->info.written);
    poise_human_count(cell++, ring->lost);
    poise_human_count(cell++, ring->tasks);
    poise_human_ns(cell++, (uint64_t)ring->idle_ns);
    poise_human_count(cell++, ring->sent);
    poise_human_count(cell++, ring->sent_bytes);
    poise_human_count(cell++, ring->received);
    return add_row(table, cells, (size_t)(cell - cells));
}

static int text_rings(const struct trace_show *show, struct poise_buf *out)
{
    static const struct poise_column columns[] = {
        {"rank", POISE_ALIGN_RIGHT},   {"ring", POISE_ALIGN_LEFT},
        {"thread", POISE_ALIGN_RIGHT}, {"events", POISE_ALIGN_RIGHT},
        {"lost", POISE_ALIGN_RIGHT},   {"tasks", POISE_ALIGN_RIGHT},
        {"idle", POISE_ALIGN_RIGHT},   {"sent", POISE_ALIGN_RIGHT},
        {"bytes", POISE_ALIGN_RIGHT},  {"received", POISE_ALIGN_RIGHT},
    };
    size_t skip = show->file_count > 1 ? 0 : 1;
    struct poise_table *table;
    int code = poise_table_create(
        columns + skip, sizeof columns / sizeof *columns - skip, &table);

    if (code < 0) {
        return code;
    }
    for (unsigned i = 0; code == 0 && i < show->ring_count; i++) {
        code = ring_row(show, &show->rings[i], table);
    }
    return finish(table, code, out);
}

/* ---- collectors --------------------------------------------------------- */

static int span_row(const struct trace_span *span, struct poise_table *table)
{
    struct poise_buf cells[COLUMNS_MOST] = {0};

    poise_buf_escape(&cells[0], span->type, strlen(span->type));
    poise_buf_escape(&cells[1], span->name, strlen(span->name));
    if (span->group[0]) {
        poise_buf_puts(&cells[1], span->name[0] ? " of " : "");
        poise_buf_escape(&cells[1], span->group, strlen(span->group));
    }
    poise_human_count(&cells[2], span->count);
    poise_human_ns(&cells[3], span->sum_ns / span->timed);
    poise_human_ns(&cells[4], span->most_ns);
    poise_human_ns(&cells[5], span->sum_ns);
    return add_row(table, cells, 6);
}

/* Those that take time. */
static int text_spans(const struct trace_show *show, struct poise_buf *out)
{
    static const struct poise_column columns[] = {
        {"what", POISE_ALIGN_LEFT},   {"of", POISE_ALIGN_LEFT},
        {"times", POISE_ALIGN_RIGHT}, {"mean", POISE_ALIGN_RIGHT},
        {"most", POISE_ALIGN_RIGHT},  {"in all", POISE_ALIGN_RIGHT},
    };
    struct poise_table *table;
    unsigned rows = 0;
    int code =
        poise_table_create(columns, sizeof columns / sizeof *columns, &table);

    if (code < 0) {
        return code;
    }
    for (size_t i = 0; code == 0 && i < show->span_count; i++) {
        if (show->spans[i].timed > 0) {
            code = span_row(&show->spans[i], table);
            rows++;
        }
    }
    if (rows == 0) {
        poise_table_destroy(table);
        return code;
    }
    poise_buf_putc(out, '\n');
    return finish(table, code, out);
}

int trace_text(const struct trace_show *show, struct poise_buf *out)
{
    int code = 0;

    if (show->file_count > 1) {
        code = text_files(show, out);
        poise_buf_putc(out, '\n');
    }
    if (code == 0) {
        code = text_rings(show, out);
    }
    if (code == 0) {
        code = text_spans(show, out);
    }
    return code < 0 ? code : out->error;
}

/* ---- events ------------------------------------------------------------- */

static void event_fields(const struct trace_show *show,
                         const struct poise_trace_moment *moment,
                         struct poise_buf *out)
{
    const struct poise_trace_view *view = show->files[moment->file].view;
    const struct poise_trace_event *event = moment->event;
    struct poise_trace_type type;
    struct poise_trace_place place;

    if (!poise_trace_type(view, event->collector, &type)) {
        poise_buf_printf(out, " %llu", (unsigned long long)event->sequence);
        for (int i = 1; i < POISE_TRACE_VALUES; i++) {
            poise_buf_printf(out, " %llu",
                             (unsigned long long)event->values[i]);
        }
        return;
    }
    if (event->collector >= POISE_TRACE_COLLECTOR &&
        poise_trace_place(view, event->collector, &place)) {
        poise_buf_puts(out, " ");
        poise_buf_escape(out, place.name, strlen(place.name));
        if (place.group_name[0]) {
            poise_buf_puts(out, " of ");
            poise_buf_escape(out, place.group_name, strlen(place.group_name));
        }
    }
    if (type.sequence[0]) {
        poise_buf_puts(out, " ");
        poise_buf_escape(out, type.sequence, strlen(type.sequence));
        poise_buf_printf(out, "=%llu", (unsigned long long)event->sequence);
    }
    for (int i = 1; i < POISE_TRACE_VALUES; i++) {
        if (type.values[i].unit != POISE_TRACE_UNUSED) {
            poise_buf_puts(out, " ");
            poise_buf_escape(out, type.values[i].name,
                             strlen(type.values[i].name));
            poise_buf_puts(out, "=");
            trace_value(show, moment, type.values[i].unit, event->values[i],
                        out);
        }
    }
}

static void event_line(const struct trace_show *show,
                       const struct poise_trace_moment *moment,
                       struct poise_buf *out)
{
    struct poise_buf name = {0};
    char type[24];

    poise_buf_printf(out, "%12.3f us", (double)moment->ns / 1e3);
    if (!show->one_clock && moment->error_ns == POISE_TRACE_UNKNOWN) {
        poise_buf_puts(out, "  +-        ?");
    } else if (!show->one_clock) {
        poise_buf_printf(out, "  +-%9.3f", (double)moment->error_ns / 1e3);
    }
    if (show->file_count > 1) {
        poise_buf_printf(out, "  %3d", show->files[moment->file].info.rank);
    }
    poise_buf_escape(&name, moment->name, strlen(moment->name));
    trace_type_name(show, moment, type);
    poise_buf_printf(out, "  %-10s  ", poise_buf_str(&name));
    poise_buf_reset(&name);
    poise_buf_escape(&name, type, strlen(type));
    poise_buf_printf(out, "%-13s", poise_buf_str(&name));
    event_fields(show, moment, out);
    if (moment->has_cause) {
        poise_buf_printf(out, " latency=%.3f",
                         (double)moment->latency_ns / 1e3);
        if (moment->latency_error_ns == POISE_TRACE_UNKNOWN) {
            poise_buf_puts(out, "+-?");
        } else if (moment->latency_error_ns > 0) {
            poise_buf_printf(out, "+-%.3f",
                             (double)moment->latency_error_ns / 1e3);
        }
    }
    poise_buf_putc(out, '\n');
    poise_buf_free(&name);
}

int trace_text_events(struct trace_show *show, struct poise_buf *out)
{
    struct poise_trace_moment moment;
    int code = 0;

    if (show->file_count > 1) {
        code = text_files(show, out);
        poise_buf_putc(out, '\n');
    }
    poise_trace_session_rewind(show->session);
    while (code == 0 && poise_trace_session_next(show->session, &moment) > 0) {
        event_line(show, &moment, out);
    }
    return code < 0 ? code : out->error;
}
