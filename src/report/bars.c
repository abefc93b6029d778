/* Bars over bins, and stacked bars by row. */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { LABEL_MOST = 16, LEFT = 62, RIGHT = REPORT_WIDTH - 8, TOP = 28 };

static const char *text_of(const char *text)
{
    return text ? text : "";
}

/* "LABEL: VALUE" as the tooltip of the element that is open. */
static void tooltip(struct poise_buf *out, const char *label, double value,
                    enum poise_unit unit)
{
    poise_buf_puts(out, "<title>");
    report_escape(out, label);
    poise_buf_puts(out, ": ");
    report_value(out, value, unit);
    poise_buf_puts(out, "</title>");
}

static size_t widest(const char *const *labels, size_t count, size_t most)
{
    size_t width = 1;

    for (size_t i = 0; i < count && width < most; i++) {
        size_t w = report_width(text_of(labels[i]));

        width = w > width ? w : width;
    }
    return width < most ? width : most;
}

/* How the labels under the bins are laid out. */
struct bins {
    double width; /* of a bin */
    bool slanted;
    size_t every; /* label every so many bins */
    double below; /* height they take */
};

static struct bins bins_layout(const struct poise_bars *bars)
{
    size_t count = bars->count ? bars->count : 1;
    struct bins bins = {(RIGHT - LEFT) / (double)count, false, 1, 20};
    double label = (double)(widest(bars->labels, bars->count, LABEL_MOST) + 1) *
                   REPORT_CHAR;

    if (label > bins.width && bars->count <= 36) {
        bins.slanted = true;
        bins.below = 12 + label * 0.65;
        label = 16;
    }
    if (label > bins.width) {
        bins.every = (size_t)ceil(label / bins.width);
    }
    return bins;
}

static void bin_label(struct poise_buf *out, const struct bins *bins, double x,
                      double y, const char *label)
{
    if (!bins->slanted) {
        report_text(out, x, y + 15, "middle", label, LABEL_MOST);
        return;
    }
    poise_buf_printf(out, "<g transform=\"translate(%.1f %.1f) rotate(-40)\">",
                     x + 4, y + 13);
    report_text(out, 0, 0, "end", label, LABEL_MOST);
    poise_buf_puts(out, "</g>\n");
}

static void draw_bars(struct poise_buf *out, const struct poise_bars *bars,
                      const struct report_scale *scale, const struct bins *bins,
                      double bottom)
{
    double gap = bins->width > 6 ? 2 : bins->width > 2 ? 0.5 : 0;

    for (size_t i = 0; i < bars->count; i++) {
        double value = bars->values[i];
        double x = LEFT + bins->width * (double)i;
        double height = report_scale_at(scale, value) * (bottom - TOP);
        bool drawn = isfinite(value) && value > 0;

        if (drawn) {
            height = height < 1 ? 1 : height;
            poise_buf_printf(out,
                             "<rect class=\"b\" x=\"%.2f\" y=\"%.1f\" "
                             "width=\"%.2f\" height=\"%.1f\">",
                             x + gap / 2, bottom - height, bins->width - gap,
                             height);
            tooltip(out, text_of(bars->labels[i]), value, bars->unit);
            poise_buf_puts(out, "</rect>\n");
        }
        if (i % bins->every == 0) {
            bin_label(out, bins, x + bins->width / 2, bottom,
                      text_of(bars->labels[i]));
        }
    }
}

int poise_page_bars(struct poise_page *page, const struct poise_bars *bars)
{
    struct bins bins = bins_layout(bars);
    double bottom = TOP + 200;
    double low = 0, high = 0;
    const char *heads[] = {text_of(bars->x_label), text_of(bars->y_label)};
    struct report_scale scale;
    size_t start;

    report_range(bars->values, bars->count, bars->log_y, &low, &high);
    /* Bars stand on zero: what is below it is not drawn, but in the table. */
    scale = report_scale_make(low < 0 ? 0 : low, high < 0 ? 0 : high,
                              bars->unit, bars->log_y);
    start = report_begin(page, bars->title, text_of(bars->y_label),
                         bottom + bins.below + (bars->x_label ? 22 : 4));
    report_axis_y(&page->body, &scale, LEFT, RIGHT, TOP, bottom, bars->y_label);
    draw_bars(&page->body, bars, &scale, &bins, bottom);
    if (bars->x_label) {
        report_text(&page->body, (LEFT + RIGHT) / 2.0, bottom + bins.below + 16,
                    "middle", bars->x_label, 90);
    }
    report_numbers(page, heads, 2);
    for (size_t i = 0; i < bars->count; i++) {
        poise_buf_puts(&page->body, "<tr><td>");
        report_escape(&page->body, bars->labels[i]);
        poise_buf_puts(&page->body, "</td><td class=\"r\">");
        report_value(&page->body, bars->values[i], bars->unit);
        poise_buf_puts(&page->body, "</td></tr>\n");
    }
    return report_end(page, start);
}

/* ---- stacks ------------------------------------------------------------- */

/* What counts of a share: nothing below zero, nothing that is no number. */
static double share(double value)
{
    return isfinite(value) && value > 0 ? value : 0;
}

static double row_total(const struct poise_stacks *stacks, size_t row)
{
    double total = 0;

    for (size_t i = 0; i < stacks->series_count; i++) {
        total += share(stacks->values[row * stacks->series_count + i]);
    }
    return total;
}

struct rows {
    double left, top, height, pitch;
    size_t every, label_most;
};

static void draw_row(struct poise_buf *out, const struct poise_stacks *stacks,
                     const struct report_scale *scale, const struct rows *rows,
                     size_t row)
{
    double y = rows->top + rows->pitch * (double)row;
    double sum = 0;

    if (row % rows->every == 0) {
        report_text(out, rows->left - 6, y + rows->height / 2 + 4, "end",
                    text_of(stacks->rows[row]), rows->label_most);
    }
    for (size_t i = 0; i < stacks->series_count; i++) {
        double value = share(stacks->values[row * stacks->series_count + i]);
        double from = report_scale_at(scale, sum);
        double to = report_scale_at(scale, sum + value);

        sum += value;
        if (value <= 0) {
            continue;
        }
        poise_buf_printf(out,
                         "<rect class=\"c\" x=\"%.2f\" y=\"%.2f\" "
                         "width=\"%.2f\" height=\"%.2f\" style=\"fill:",
                         rows->left + from * (RIGHT - rows->left), y,
                         (to - from) * (RIGHT - rows->left), rows->height);
        report_series_colour(out, i);
        poise_buf_puts(out, "\"><title>");
        report_escape(out, stacks->rows[row]);
        poise_buf_puts(out, *text_of(stacks->series[i]) ? ", " : "");
        report_escape(out, stacks->series[i]);
        poise_buf_puts(out, ": ");
        report_value(out, value, stacks->unit);
        poise_buf_puts(out, "</title></rect>\n");
    }
}

static struct rows rows_layout(const struct poise_stacks *stacks)
{
    struct rows rows = {.label_most = 24, .every = 1};
    size_t count = stacks->row_count ? stacks->row_count : 1;
    size_t label = widest(stacks->rows, stacks->row_count, rows.label_most);

    /* All of it is to be seen at once on a tall screen. */
    rows.pitch = 832.0 / (double)count;
    rows.pitch = rows.pitch > 24 ? 24 : rows.pitch < 2.5 ? 2.5 : rows.pitch;
    rows.height = rows.pitch > 8 ? rows.pitch - 4 : rows.pitch;
    rows.every = (size_t)ceil(13 / rows.pitch);
    rows.left = 14 + REPORT_CHAR * (double)label;
    rows.top = 8 + report_legend(NULL, stacks->series, stacks->series_count, 0);
    return rows;
}

static void stack_numbers(struct poise_page *page,
                          const struct poise_stacks *stacks)
{
    for (size_t row = 0; row < stacks->row_count; row++) {
        poise_buf_puts(&page->body, "<tr><td>");
        report_escape(&page->body, stacks->rows[row]);
        poise_buf_puts(&page->body, "</td>");
        for (size_t i = 0; i < stacks->series_count; i++) {
            poise_buf_puts(&page->body, "<td class=\"r\">");
            report_value(&page->body,
                         stacks->values[row * stacks->series_count + i],
                         stacks->unit);
            poise_buf_puts(&page->body, "</td>");
        }
        poise_buf_puts(&page->body, "</tr>\n");
    }
}

int poise_page_stacks(struct poise_page *page,
                      const struct poise_stacks *stacks)
{
    struct rows rows = rows_layout(stacks);
    double bottom = rows.top + rows.pitch * (double)stacks->row_count;
    const char **heads = poise_alloc(stacks->series_count + 1, sizeof *heads);
    struct report_scale scale;
    double most = 0;
    size_t start;
    int code;

    if (!heads) {
        return -ENOMEM;
    }
    heads[0] = "";
    for (size_t i = 0; i < stacks->series_count; i++) {
        heads[i + 1] = stacks->series[i];
    }
    for (size_t row = 0; row < stacks->row_count; row++) {
        double total = row_total(stacks, row);

        most = total > most ? total : most;
    }
    scale = report_scale_make(0, most, stacks->unit, false);
    start = report_begin(page, stacks->title, text_of(stacks->x_label),
                         bottom + (stacks->x_label ? 40 : 22));
    report_legend(&page->body, stacks->series, stacks->series_count, 2);
    report_axis_x(&page->body, &scale, rows.left, RIGHT, rows.top, bottom,
                  stacks->x_label);
    for (size_t row = 0; row < stacks->row_count; row++) {
        draw_row(&page->body, stacks, &scale, &rows, row);
    }
    report_numbers(page, heads, stacks->series_count + 1);
    stack_numbers(page, stacks);
    code = report_end(page, start);
    free(heads);
    return code;
}
