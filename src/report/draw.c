/* What all drawings share: text, axes, legends, colours. */
#include "internal.h"

#include <string.h>

enum { SERIES_COLOURS = 10 };

void report_series_colour(struct poise_buf *out, size_t index)
{
    poise_buf_printf(out, "var(--s%zu)", index % SERIES_COLOURS);
}

void report_text(struct poise_buf *out, double x, double y, const char *anchor,
                 const char *text, size_t most)
{
    poise_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x,
                     y, anchor);
    if (report_width(text) > most) {
        poise_buf_puts(out, "<title>");
        report_escape(out, text);
        poise_buf_puts(out, "</title>");
    }
    report_escape_cut(out, text, most);
    poise_buf_puts(out, "</text>\n");
}

static void line(struct poise_buf *out, const char *class, double x1, double y1,
                 double x2, double y2)
{
    poise_buf_printf(out,
                     "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                     "y2=\"%.1f\"/>\n",
                     class, x1, y1, x2, y2);
}

void report_axis_y(struct poise_buf *out, const struct report_scale *scale,
                   double left, double right, double top, double bottom,
                   const char *title)
{
    for (unsigned i = 0; i < scale->tick_count; i++) {
        struct poise_buf text = {0};
        double y =
            bottom - report_scale_at(scale, scale->ticks[i]) * (bottom - top);

        line(out, "g", left, y, right, y);
        report_tick(&text, scale->ticks[i], scale->unit);
        report_text(out, left - 6, y + 4, "end", poise_buf_str(&text), 12);
        out->error = out->error ? out->error : text.error;
        poise_buf_free(&text);
    }
    line(out, "a", left, bottom, right, bottom);
    if (title) {
        report_text(out, 2, top - 10, "start", title, 60);
    }
}

void report_axis_x(struct poise_buf *out, const struct report_scale *scale,
                   double left, double right, double top, double bottom,
                   const char *title)
{
    for (unsigned i = 0; i < scale->tick_count; i++) {
        struct poise_buf text = {0};
        double x =
            left + report_scale_at(scale, scale->ticks[i]) * (right - left);

        line(out, "g", x, top, x, bottom);
        report_tick(&text, scale->ticks[i], scale->unit);
        double half =
            REPORT_CHAR / 2 * (double)report_width(poise_buf_str(&text));
        bool fits = x + half <= REPORT_WIDTH;
        report_text(out, fits ? x : REPORT_WIDTH, bottom + 15,
                    fits ? "middle" : "end", poise_buf_str(&text), 12);
        out->error = out->error ? out->error : text.error;
        poise_buf_free(&text);
    }
    if (title) {
        report_text(out, (left + right) / 2, bottom + 32, "middle", title, 90);
    }
}

double report_legend(struct poise_buf *out, const char *const *names,
                     size_t count, double y)
{
    enum { MOST = 40 };
    double x = 0, down = 0;

    /* What there is only one of the title names. */
    if (count < 2) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        size_t width = report_width(names[i] ? names[i] : "");
        double step =
            26 + REPORT_CHAR * (double)(width < MOST ? width : (size_t)MOST);

        if (x > 0 && x + step > REPORT_WIDTH) {
            x = 0;
            down += 18;
        }
        if (out) {
            poise_buf_printf(out,
                             "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" "
                             "height=\"11\" rx=\"2\" style=\"fill:",
                             x, y + down);
            report_series_colour(out, i);
            poise_buf_puts(out, "\"/>\n");
            report_text(out, x + 16, y + down + 10, "start",
                        names[i] ? names[i] : "", MOST);
        }
        x += step;
    }
    return down + 24;
}
