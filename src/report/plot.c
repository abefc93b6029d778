/* Plots: lines over a numeric x, both axes linear or logarithmic. */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { LEFT = 62, RIGHT = REPORT_WIDTH - 16, HEIGHT = 240, MARKED = 60 };

static const char *text_of(const char *text)
{
    return text ? text : "";
}

/* The range of x or y over all lines. */
static bool range(const struct poise_plot *plot, bool of_x, double *low,
                  double *high)
{
    bool any = false;

    for (size_t i = 0; i < plot->line_count; i++) {
        const struct poise_line *line = &plot->lines[i];
        double l = 0, h = 0;

        if (!report_range(of_x ? line->x : line->y, line->count,
                          of_x ? plot->log_x : plot->log_y, &l, &h)) {
            continue;
        }
        *low = any && *low < l ? *low : l;
        *high = any && *high > h ? *high : h;
        any = true;
    }
    return any;
}

struct frame {
    struct report_scale x, y;
    double top, bottom;
};

static bool point(const struct frame *frame, double x, double y, double *px,
                  double *py)
{
    if (!isfinite(x) || !isfinite(y) || (frame->x.log && x <= 0) ||
        (frame->y.log && y <= 0)) {
        return false;
    }
    *px = LEFT + report_scale_at(&frame->x, x) * (RIGHT - LEFT);
    *py = frame->bottom -
          report_scale_at(&frame->y, y) * (frame->bottom - frame->top);
    return true;
}

static void draw_line(struct poise_buf *out, const struct frame *frame,
                      const struct poise_line *line, size_t index)
{
    bool down = false; /* the pen */

    poise_buf_puts(out, "<path class=\"l\" style=\"stroke:");
    report_series_colour(out, index);
    poise_buf_puts(out, "\" d=\"");
    for (size_t i = 0; i < line->count; i++) {
        double x, y;

        if (point(frame, line->x[i], line->y[i], &x, &y)) {
            poise_buf_printf(out, "%c%.1f %.1f", down ? 'L' : 'M', x, y);
            down = true;
        } else {
            down = false;
        }
    }
    poise_buf_puts(out, "\"><title>");
    report_escape(out, line->label);
    poise_buf_puts(out, "</title></path>\n");
}

static void draw_points(struct poise_buf *out, const struct poise_plot *plot,
                        const struct frame *frame, size_t index)
{
    const struct poise_line *line = &plot->lines[index];

    for (size_t i = 0; line->count <= MARKED && i < line->count; i++) {
        double x, y;

        if (!point(frame, line->x[i], line->y[i], &x, &y)) {
            continue;
        }
        poise_buf_printf(out,
                         "<circle class=\"c\" cx=\"%.1f\" cy=\"%.1f\" "
                         "r=\"3.5\" style=\"fill:",
                         x, y);
        report_series_colour(out, index);
        poise_buf_puts(out, "\"><title>");
        report_escape(out, line->label);
        poise_buf_puts(out, ": ");
        report_value(out, line->x[i], plot->x_unit);
        poise_buf_puts(out, ", ");
        report_value(out, line->y[i], plot->y_unit);
        poise_buf_puts(out, "</title></circle>\n");
    }
}

void report_plot_numbers(struct poise_page *page, const struct poise_plot *plot)
{
    struct poise_buf *out = &page->body;

    for (size_t i = 0; i < plot->line_count; i++) {
        const struct poise_line *line = &plot->lines[i];

        for (size_t k = 0; k < line->count; k++) {
            poise_buf_puts(out, "<tr><td>");
            report_escape(out, line->label);
            poise_buf_puts(out, "</td><td class=\"r\">");
            report_value(out, line->x[k], plot->x_unit);
            poise_buf_puts(out, "</td><td class=\"r\">");
            report_value(out, line->y[k], plot->y_unit);
            poise_buf_puts(out, "</td></tr>\n");
        }
    }
}

int poise_page_plot(struct poise_page *page, const struct poise_plot *plot)
{
    const char *heads[] = {"", text_of(plot->x_label), text_of(plot->y_label)};
    const char **names = poise_alloc(plot->line_count, sizeof *names);
    double x_low = 0, x_high = 0, y_low = 0, y_high = 0;
    struct frame frame;
    size_t start;
    int code;

    if (!names) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < plot->line_count; i++) {
        names[i] = plot->lines[i].label;
    }
    range(plot, true, &x_low, &x_high);
    range(plot, false, &y_low, &y_high);
    frame.x = report_scale_make(x_low, x_high, plot->x_unit, plot->log_x);
    frame.y = report_scale_make(y_low, y_high, plot->y_unit, plot->log_y);
    frame.top = 30 + report_legend(NULL, names, plot->line_count, 0);
    frame.bottom = frame.top + HEIGHT;
    start = report_begin(page, plot->title, text_of(plot->y_label),
                         frame.bottom + 40);
    report_legend(&page->body, names, plot->line_count, 2);
    report_axis_y(&page->body, &frame.y, LEFT, RIGHT, frame.top, frame.bottom,
                  plot->y_label);
    report_axis_x(&page->body, &frame.x, LEFT, RIGHT, frame.top, frame.bottom,
                  plot->x_label);
    for (size_t i = 0; i < plot->line_count; i++) {
        draw_line(&page->body, &frame, &plot->lines[i], i);
        draw_points(&page->body, plot, &frame, i);
    }
    report_numbers(page, heads, 3);
    report_plot_numbers(page, plot);
    code = report_end(page, start);
    free(names);
    return code;
}
