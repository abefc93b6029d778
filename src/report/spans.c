/* Who did what from when to when: bars over time, a row for each. */
#include "internal.h"

#include <errno.h>
#include <math.h>

enum { LABEL_MOST = 24, RIGHT = REPORT_WIDTH - 8 };

struct rows {
    double left, top, pitch, height;
    size_t every;
};

static struct rows lay_out(const struct poise_spans *spans)
{
    size_t count = spans->row_count ? spans->row_count : 1, widest = 1;
    struct rows rows;

    for (size_t i = 0; i < spans->row_count; i++) {
        size_t width = report_width(spans->rows[i]);

        widest = width > widest ? width : widest;
    }
    widest = widest < LABEL_MOST ? widest : LABEL_MOST;
    rows.pitch = 832.0 / (double)count;
    rows.pitch = rows.pitch > 20 ? 20 : rows.pitch < 2.5 ? 2.5 : rows.pitch;
    rows.height = rows.pitch > 8 ? rows.pitch - 3 : rows.pitch;
    rows.every = (size_t)ceil(13 / rows.pitch);
    rows.left = 14 + REPORT_CHAR * (double)widest;
    rows.top = 8 + report_legend(NULL, spans->series, spans->series_count, 0);
    return rows;
}

static void draw_span(struct poise_buf *out, const struct poise_spans *spans,
                      const struct rows *rows, const struct report_scale *scale,
                      const struct poise_span *span)
{
    if (!isfinite(span->from) || !isfinite(span->to)) {
        return;
    }

    double from = report_scale_at(scale, span->from);
    double to = report_scale_at(scale, span->to);
    double width = (to - from) * (RIGHT - rows->left);

    poise_buf_printf(out,
                     "<rect class=\"c\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                     "height=\"%.2f\" style=\"fill:",
                     rows->left + from * (RIGHT - rows->left),
                     rows->top + rows->pitch * (double)span->row,
                     width < 0.5 ? 0.5 : width, rows->height);
    report_series_colour(out, span->series);
    poise_buf_puts(out, "\"><title>");
    report_escape(out, spans->rows[span->row]);
    poise_buf_puts(out, *spans->series[span->series] ? ", " : "");
    report_escape(out, spans->series[span->series]);
    poise_buf_puts(out, ": ");
    report_value(out, span->to - span->from, spans->unit);
    poise_buf_puts(out, ", from ");
    report_value(out, span->from, spans->unit);
    poise_buf_puts(out, " on</title></rect>\n");
}

static void span_numbers(struct poise_page *page,
                         const struct poise_spans *spans)
{
    for (size_t i = 0; i < spans->count; i++) {
        const struct poise_span *span = &spans->spans[i];

        poise_buf_puts(&page->body, "<tr><td>");
        report_escape(&page->body, spans->rows[span->row]);
        poise_buf_puts(&page->body, "</td><td class=\"r\">");
        report_escape(&page->body, spans->series[span->series]);
        poise_buf_puts(&page->body, "</td><td class=\"r\">");
        report_value(&page->body, span->from, spans->unit);
        poise_buf_puts(&page->body, "</td><td class=\"r\">");
        report_value(&page->body, span->to, spans->unit);
        poise_buf_puts(&page->body, "</td></tr>\n");
    }
}

int poise_page_spans(struct poise_page *page, const struct poise_spans *spans)
{
    static const char *const heads[] = {"", "", "from", "to"};
    struct rows rows = lay_out(spans);
    double bottom = rows.top + rows.pitch * (double)spans->row_count;
    struct report_scale scale;
    double most = 0;
    size_t start;

    for (size_t i = 0; i < spans->count; i++) {
        if (spans->spans[i].row >= spans->row_count ||
            spans->spans[i].series >= spans->series_count) {
            return poise_error_set(EINVAL, "draw", spans->title,
                                   "a span has no row or series");
        }
        double to = spans->spans[i].to;

        most = isfinite(to) && to > most ? to : most;
    }
    scale = report_scale_make(0, most, spans->unit, false);
    start = report_begin(page, spans->title, spans->x_label, bottom + 40);
    report_legend(&page->body, spans->series, spans->series_count, 2);
    report_axis_x(&page->body, &scale, rows.left, RIGHT, rows.top, bottom,
                  spans->x_label);
    for (size_t i = 0; i < spans->row_count; i += rows.every) {
        report_text(&page->body, rows.left - 6,
                    rows.top + rows.pitch * (double)i + rows.height / 2 + 4,
                    "end", spans->rows[i], LABEL_MOST);
    }
    for (size_t i = 0; i < spans->count; i++) {
        draw_span(&page->body, spans, &rows, &scale, &spans->spans[i]);
    }
    report_numbers(page, heads, 4);
    span_numbers(page, spans);
    return report_end(page, start);
}
