/* Which of several things has each place of a grid, as patches of colour: in
 * neighbouring places the same thing is one patch. */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* More places a side could not be distinguished. */
enum { SIDE_MOST = 96, SERIES = 10, TOP = 56 };

/* The grid as it is drawn. */
struct grid {
    const struct poise_classes *from;
    size_t block; /* rows and columns that are one place */
    size_t rows, columns;
    uint16_t *of; /* owned */
    bool *done;   /* owned */
    size_t count; /* of classes: the largest and one more */
    size_t there; /* classes that there are */
    double left, side;
};

/* Places of one class: a rectangle. */
struct patch {
    size_t row, column, rows, columns;
    uint16_t class;
};

static int by_number(const void *a, const void *b)
{
    return *(const uint16_t *)a - *(const uint16_t *)b;
}

/* What most of a block are. `some` has room for it. */
static uint16_t commonest(const struct grid *grid, size_t row, size_t column,
                          uint16_t *some)
{
    const struct poise_classes *from = grid->from;
    size_t count = 0, most = 0, run = 0;
    uint16_t found = POISE_CLASS_NONE;

    for (size_t r = row * grid->block;
         r < (row + 1) * grid->block && r < from->row_count; r++) {
        for (size_t c = column * grid->block;
             c < (column + 1) * grid->block && c < from->column_count; c++) {
            some[count++] = from->of[r * from->column_count + c];
        }
    }
    qsort(some, count, sizeof *some, by_number);
    for (size_t i = 0; i < count; i++) {
        run = i > 0 && some[i] == some[i - 1] ? run + 1 : 1;
        if (run > most) {
            most = run;
            found = some[i];
        }
    }
    return found;
}

/* How many there are, before neighbours became one. */
static int count_classes(struct grid *grid)
{
    size_t places = grid->from->row_count * grid->from->column_count;
    bool *seen = poise_alloc(POISE_CLASS_NONE, sizeof *seen);

    if (!seen) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < places; i++) {
        uint16_t class = grid->from->of[i];

        if (class != POISE_CLASS_NONE) {
            grid->count = class >= grid->count ? class + 1U : grid->count;
            grid->there += !seen[class];
            seen[class] = true;
        }
    }
    free(seen);
    return 0;
}

static void grid_free(struct grid *grid)
{
    free(grid->of);
    free(grid->done);
}

static int grid_make(const struct poise_classes *from, struct grid *grid)
{
    size_t most = from->row_count > from->column_count ? from->row_count
                                                       : from->column_count;
    size_t block = (most + SIDE_MOST - 1) / SIDE_MOST;
    uint16_t *some;

    *grid = (struct grid){.from = from, .block = block ? block : 1};
    grid->rows = (from->row_count + grid->block - 1) / grid->block;
    grid->columns = (from->column_count + grid->block - 1) / grid->block;
    grid->of = poise_alloc(grid->rows * grid->columns + 1, sizeof *grid->of);
    grid->done =
        poise_alloc(grid->rows * grid->columns + 1, sizeof *grid->done);
    some = poise_alloc(grid->block * grid->block, sizeof *some);
    if (!grid->of || !grid->done || !some || count_classes(grid) < 0) {
        grid_free(grid);
        free(some);
        return -ENOMEM;
    }
    for (size_t i = 0; i < grid->rows * grid->columns; i++) {
        grid->of[i] =
            commonest(grid, i / grid->columns, i % grid->columns, some);
    }
    free(some);
    grid->left = 30 + REPORT_CHAR * (from->row_count > 1
                                         ? floor(log10((double)from->row_count))
                                         : 0);
    most = grid->rows > grid->columns ? grid->rows : grid->columns;
    grid->side =
        (grid->columns * 2 > grid->rows * 3 ? REPORT_WIDTH - grid->left - 8
                                            : 560) /
        (double)(most ? most : 1);
    grid->side = grid->side > 40 ? 40 : grid->side;
    return 0;
}

/* ---- patches ------------------------------------------------------------ */

static bool is_free(const struct grid *grid, size_t row, size_t column,
                    uint16_t class)
{
    size_t at = row * grid->columns + column;

    return grid->of[at] == class && !grid->done[at];
}

static bool is_row_free(const struct grid *grid, const struct patch *patch,
                        size_t row)
{
    for (size_t c = 0; c < patch->columns; c++) {
        if (!is_free(grid, row, patch->column + c, patch->class)) {
            return false;
        }
    }
    return true;
}

/* The next rectangle, from *at on, in the order of its first places; false:
 * there is none. Beforehand nothing is done, *at is 0. */
static bool next_patch(struct grid *grid, size_t *at, struct patch *out)
{
    size_t places = grid->rows * grid->columns;

    while (*at < places &&
           (grid->done[*at] || grid->of[*at] == POISE_CLASS_NONE)) {
        (*at)++;
    }
    if (*at == places) {
        return false;
    }
    *out = (struct patch){*at / grid->columns, *at % grid->columns, 1, 0,
                          grid->of[*at]};
    while (out->column + out->columns < grid->columns &&
           is_free(grid, out->row, out->column + out->columns, out->class)) {
        out->columns++;
    }
    while (out->row + out->rows < grid->rows &&
           is_row_free(grid, out, out->row + out->rows)) {
        out->rows++;
    }
    for (size_t i = 0; i < out->rows * out->columns; i++) {
        grid->done[(out->row + i / out->columns) * grid->columns + out->column +
                   i % out->columns] = true;
    }
    return true;
}

static void patches_begin(struct grid *grid, size_t *at)
{
    *at = 0;
    for (size_t i = 0; i < grid->rows * grid->columns; i++) {
        grid->done[i] = false;
    }
}

/* ---- the drawing -------------------------------------------------------- */

/* Colours of series while they do; then hues far from each other. */
static void put_colour(struct poise_buf *out, const struct grid *grid,
                       uint16_t class)
{
    static const int light[] = {46, 60, 72};

    if (grid->count <= SERIES) {
        report_series_colour(out, class);
    } else {
        poise_buf_printf(out, "hsl(%.0f 55%% %d%%)", fmod(class * 137.508, 360),
                         light[class % 3]);
    }
}

/* "3-7": numbers of rows or columns. */
static void put_range(struct poise_buf *out, const struct grid *grid,
                      size_t first, size_t count, size_t total)
{
    size_t from = first * grid->block;
    size_t to = (first + count) * grid->block;

    to = to < total ? to : total;
    poise_buf_printf(out, to - from > 1 ? "%zu\xe2\x80\x93%zu" : "%zu", from,
                     to - 1);
}

static void put_class(struct poise_buf *out, const struct grid *grid,
                      uint16_t class)
{
    report_escape(out, grid->from->name);
    poise_buf_printf(out, "%s%u", grid->from->name ? " " : "", class);
}

static void draw_patch(struct poise_buf *out, const struct grid *grid,
                       const struct patch *patch)
{
    double x = grid->left + grid->side * (double)patch->column;
    double y = TOP + grid->side * (double)patch->row;
    double wide = grid->side * (double)patch->columns;
    double high = grid->side * (double)patch->rows;
    double gap = grid->side > 8 ? 1 : 0;
    int digits = snprintf(NULL, 0, "%u", patch->class);

    poise_buf_printf(out,
                     "<rect class=\"c\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                     "height=\"%.2f\" style=\"fill:",
                     x, y, wide - gap, high - gap);
    put_colour(out, grid, patch->class);
    poise_buf_puts(out, "\"><title>");
    report_escape(out, grid->from->row_label);
    poise_buf_putc(out, ' ');
    put_range(out, grid, patch->row, patch->rows, grid->from->row_count);
    poise_buf_puts(out, ", ");
    report_escape(out, grid->from->column_label);
    poise_buf_putc(out, ' ');
    put_range(out, grid, patch->column, patch->columns,
              grid->from->column_count);
    poise_buf_puts(out, grid->block > 1 ? ": mostly " : ": ");
    put_class(out, grid, patch->class);
    poise_buf_puts(out, "</title></rect>\n");
    if (high >= 15 && wide >= REPORT_CHAR * (digits + 1)) {
        poise_buf_printf(out,
                         "<text class=\"n\" x=\"%.1f\" y=\"%.1f\" "
                         "text-anchor=\"middle\">%u</text>\n",
                         x + wide / 2, y + high / 2 + 4, patch->class);
    }
}

static void draw_labels(struct poise_buf *out, const struct grid *grid,
                        bool rows)
{
    size_t total = rows ? grid->from->row_count : grid->from->column_count;
    size_t count = rows ? grid->rows : grid->columns;
    double digits = total > 1 ? floor(log10((double)total)) + 1 : 1;
    size_t every =
        (size_t)ceil((rows ? 13 : REPORT_CHAR * (digits + 1)) / grid->side);

    for (size_t i = 0; i < count; i += every ? every : 1) {
        double at = grid->side * ((double)i + 0.5);

        poise_buf_printf(
            out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%zu</text>\n",
            rows ? grid->left - 6 : grid->left + at,
            rows ? TOP + at + 4 : TOP - 6, rows ? "end" : "middle",
            i * grid->block);
    }
}

/* What the colours mean; of many, that the patches have numbers. */
static void draw_key(struct poise_buf *out, const struct grid *grid)
{
    struct poise_buf text = {0};
    double x = REPORT_WIDTH;

    if (grid->block > 1) {
        poise_buf_printf(&text, "each place: %zu \xc3\x97 %zu; ", grid->block,
                         grid->block);
    }
    poise_buf_decimal(&text, grid->there);
    poise_buf_putc(&text, ' ');
    poise_buf_puts(&text, grid->from->name ? grid->from->name : "class");
    poise_buf_puts(&text, grid->there == 1                       ? ""
                          : grid->from->name || grid->count == 0 ? "s"
                                                                 : "es");
    report_text(out, x, 14, "end", poise_buf_str(&text), 60);
    out->error = out->error ? out->error : text.error;
    poise_buf_free(&text);
    if (grid->there < 2 || grid->count > SERIES) {
        return;
    }
    for (size_t i = grid->count; i-- > 0;) {
        x -= 26 + REPORT_CHAR;
        poise_buf_printf(out,
                         "<rect x=\"%.1f\" y=\"20\" width=\"11\" height=\"11\" "
                         "rx=\"2\" style=\"fill:",
                         x);
        report_series_colour(out, i);
        poise_buf_printf(out, "\"/>\n<text x=\"%.1f\" y=\"30\">%zu</text>\n",
                         x + 15, i);
    }
}

int poise_page_classes(struct poise_page *page,
                       const struct poise_classes *classes)
{
    const char *heads[] = {classes->row_label, classes->column_label,
                           classes->name ? classes->name : ""};
    struct poise_buf *out = &page->body;
    struct patch patch;
    struct grid grid;
    size_t start, at;
    int code = grid_make(classes, &grid);

    if (code < 0) {
        return code;
    }
    start = report_begin(page, classes->title, classes->name,
                         TOP + grid.side * (double)grid.rows + 8);
    report_text(out, 2, 14, "start", classes->row_label, 50);
    report_text(out, grid.left, TOP - 22, "start", classes->column_label, 50);
    poise_buf_printf(out,
                     "<rect class=\"e\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" "
                     "height=\"%.1f\"/>\n",
                     grid.left, TOP, grid.side * (double)grid.columns,
                     grid.side * (double)grid.rows);
    draw_key(out, &grid);
    draw_labels(out, &grid, true);
    draw_labels(out, &grid, false);
    for (patches_begin(&grid, &at); next_patch(&grid, &at, &patch);) {
        draw_patch(out, &grid, &patch);
    }
    report_numbers(page, heads, 3);
    for (patches_begin(&grid, &at); next_patch(&grid, &at, &patch);) {
        poise_buf_puts(out, "<tr><td>");
        put_range(out, &grid, patch.row, patch.rows, classes->row_count);
        poise_buf_puts(out, "</td><td class=\"r\">");
        put_range(out, &grid, patch.column, patch.columns,
                  classes->column_count);
        poise_buf_printf(out, "</td><td class=\"r\">%u</td></tr>\n",
                         patch.class);
    }
    grid_free(&grid);
    return report_end(page, start);
}
