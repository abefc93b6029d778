/* Small multiples: a small drawing for each line, all with the same axes, with
 * the others pale behind it. */
#include "internal.h"

#include <errno.h>
#include <math.h>

enum { ACROSS = 4, GAP = 14, HEIGHT = 84, HEAD = 20, LEFT = 54, FOOT = 26 };

/** The frame of all, and of one. */
struct cell {
    struct report_scale x, y;
    double left, width, top;
};

/* The range of x or y over all lines. */
static void range(const struct poise_plot *plot, bool of_x, double *low,
                  double *high)
{
    bool any = false;
    for (size_t i = 0; i < plot->line_count; i++) {
        const struct poise_line *line = &plot->lines[i];
        double l, h;
        if (report_range(of_x ? line->x : line->y, line->count, false, &l,
                         &h)) {
            *low = any && *low < l ? *low : l;
            *high = any && *high > h ? *high : h;
            any = true;
        }
    }
}

static void draw_line(struct poise_buf *out, const struct cell *cell,
                      const struct poise_line *line, const char *class)
{
    char pen = 'M';
    poise_buf_printf(out, "<path class=\"%s\" d=\"", class);
    for (size_t i = 0; i < line->count; i++) {
        if (isfinite(line->x[i]) && isfinite(line->y[i])) {
            poise_buf_printf(
                out, "%c%.1f %.1f", pen,
                cell->left +
                    report_scale_at(&cell->x, line->x[i]) * cell->width,
                cell->top + HEAD +
                    (1 - report_scale_at(&cell->y, line->y[i])) * HEIGHT);
            pen = 'L';
        } else {
            pen = 'M';
        }
    }
    poise_buf_puts(out, "\"><title>");
    report_escape(out, line->label);
    poise_buf_puts(out, "</title></path>\n");
}

static void put_tick(struct poise_buf *out, const struct poise_plot *plot,
                     double value, double y)
{
    struct poise_buf text = {0};
    report_tick(&text, value, plot->y_unit);
    report_text(out, LEFT - 6, y + 4, "end", poise_buf_str(&text), 8);
    poise_buf_free(&text);
}

/* The line that is named beside the zero. */
static double high_tick(const struct cell *cell)
{
    const struct report_scale *y = &cell->y;
    return y->tick_count > 0 ? y->ticks[y->tick_count - 1] : y->high;
}

static void draw_cell(struct poise_buf *out, const struct poise_plot *plot,
                      const struct cell *cell, size_t index)
{
    const struct poise_line *line = &plot->lines[index];
    report_text(out, cell->left, cell->top + 12, "start", line->label,
                (size_t)(cell->width / REPORT_CHAR));
    poise_buf_printf(out, "<path class=\"a\" d=\"M%.1f %.1fH%.1f\"/>\n",
                     cell->left, cell->top + HEAD + HEIGHT,
                     cell->left + cell->width);
    for (size_t i = 0; i < plot->line_count; i++) {
        if (i != index) {
            draw_line(out, cell, &plot->lines[i], "p");
        }
    }
    draw_line(out, cell, line, "o");
}

int poise_page_multiples(struct poise_page *page, const struct poise_plot *plot)
{
    const char *x_label = plot->x_label ? plot->x_label : "";
    const char *y_label = plot->y_label ? plot->y_label : "";
    const char *heads[] = {"", x_label, y_label};
    double x_low = 0, x_high = 0, y_low = 0, y_high = 0;
    size_t rows = (plot->line_count + ACROSS - 1) / ACROSS;
    double height = (double)rows * (HEAD + HEIGHT + GAP);
    struct cell cell = {.width = (REPORT_WIDTH - LEFT - (ACROSS - 1) * GAP) /
                                 ACROSS};
    range(plot, true, &x_low, &x_high);
    range(plot, false, &y_low, &y_high);
    cell.x = report_scale_make(x_low, x_high, plot->x_unit, false);
    cell.y = report_scale_make(y_low, y_high, plot->y_unit, false);
    size_t start = report_begin(page, plot->title, y_label, height + FOOT);
    struct poise_buf *out = &page->body;
    double top = high_tick(&cell);
    double at = report_scale_at(&cell.y, top);
    for (size_t i = 0; i < plot->line_count; i++) {
        cell.left = LEFT + (double)(i % ACROSS) * (cell.width + GAP);
        cell.top = (double)(i / ACROSS) * (HEAD + HEIGHT + GAP);
        draw_cell(out, plot, &cell, i);
        if (i % ACROSS == 0) {
            double down = cell.top + HEAD + HEIGHT;
            put_tick(out, plot, top, down - at * HEIGHT);
            put_tick(out, plot, 0, down);
        }
    }
    struct poise_buf words = {0};
    poise_buf_printf(&words, "across: %s, 0 to ", x_label);
    report_value(&words, cell.x.high, plot->x_unit);
    poise_buf_printf(&words, "; up: %s; pale: the others", y_label);
    report_text(out, LEFT, height + 12, "start", poise_buf_str(&words), 110);
    poise_buf_free(&words);
    report_numbers(page, heads, 3);
    report_plot_numbers(page, plot);
    return report_end(page, start);
}
