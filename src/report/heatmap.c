/* A matrix as colours, its figures in a table; where the matrix is large a cell
 * stands for several neighbours. */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* More cells a side could not be distinguished. */
enum { CELLS_MOST = 128, LABEL_MOST = 14 };

/* The matrix as it is drawn. */
struct map {
    const struct poise_heatmap *from;
    size_t block; /* rows and columns that are one cell */
    size_t rows, columns;
    double *values; /* owned */
    double low, high;
    bool log, any;
    double left, top, cell; /* layout */
};

/* What one cell shows of all that fall into it. */
static double block_value(const struct map *map, size_t row, size_t column)
{
    const struct poise_heatmap *from = map->from;
    size_t count = 0;
    double sum = 0;

    for (size_t r = row * map->block;
         r < (row + 1) * map->block && r < from->row_count; r++) {
        for (size_t c = column * map->block;
             c < (column + 1) * map->block && c < from->column_count; c++) {
            double v = from->values[r * from->column_count + c];

            if (isfinite(v)) {
                sum += v;
                count++;
            }
        }
    }
    if (from->kind == POISE_HEATMAP_AMOUNTS) {
        return sum;
    }
    return count == 0 ? NAN : sum / (double)count;
}

static void fill_blocks(struct map *map)
{
    for (size_t i = 0; i < map->rows * map->columns; i++) {
        map->values[i] = block_value(map, i / map->columns, i % map->columns);
    }
}

static bool is_blank(const struct map *map, double value)
{
    return map->from->kind == POISE_HEATMAP_AMOUNTS ? !(value > 0)
                                                    : !isfinite(value);
}

/* Where the colours begin and end. */
static void find_range(struct map *map)
{
    size_t count = map->rows * map->columns;

    if (map->from->kind == POISE_HEATMAP_AMOUNTS) {
        map->any =
            report_range(map->values, count, true, &map->low, &map->high);
        map->log = map->any && map->high / map->low >= 30;
        map->low = map->log ? map->low : 0;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        double v = map->values[i];

        if (isfinite(v)) {
            map->low = !map->any || v < map->low ? v : map->low;
            map->high = !map->any || v > map->high ? v : map->high;
            map->any = true;
        }
    }
    if (map->from->high > map->from->low) {
        map->low = map->from->low;
        map->high = map->from->high;
    }
}

/* The label of a row or column: given, or its number, or "8-15" if summed. */
static void put_label(struct poise_buf *out, const char *const *labels,
                      size_t index, size_t block, size_t count)
{
    size_t first = index * block;
    size_t last = first + block - 1 < count ? first + block - 1 : count - 1;

    if (labels) {
        poise_buf_puts(out, labels[first] ? labels[first] : "");
    } else {
        poise_buf_printf(out, "%zu", first);
    }
    if (last > first) {
        poise_buf_puts(out, "\xe2\x80\x93");
        if (labels) {
            poise_buf_puts(out, labels[last] ? labels[last] : "");
        } else {
            poise_buf_printf(out, "%zu", last);
        }
    }
}

/* Viridis by nine points: equal steps look equal, also without colour. */
static unsigned colour_at(double at)
{
    static const unsigned char points[9][3] = {
        {68, 1, 84},    {71, 44, 122},  {59, 81, 139},
        {44, 113, 142}, {33, 144, 141}, {39, 173, 129},
        {92, 200, 99},  {170, 220, 50}, {253, 231, 37}};
    double scaled = (at < 0 ? 0 : at > 1 ? 1 : at) * 8;
    unsigned i = scaled >= 8 ? 7 : (unsigned)scaled;
    unsigned rgb = 0;

    for (unsigned k = 0; k < 3; k++) {
        double v =
            points[i][k] + (points[i + 1][k] - points[i][k]) * (scaled - i);

        rgb = rgb << 8 | (unsigned)lround(v);
    }
    return rgb;
}

static double place(const struct map *map, double value)
{
    if (map->high <= map->low) {
        return 1;
    }
    if (map->log) {
        return (log(value) - log(map->low)) / (log(map->high) - log(map->low));
    }
    return (value - map->low) / (map->high - map->low);
}

static size_t label_width(const char *const *labels, size_t count)
{
    size_t width = count > 0 ? (size_t)log10((double)count) + 1 : 1;

    for (size_t i = 0; labels && i < count; i++) {
        size_t w = report_width(labels[i] ? labels[i] : "");

        width = w > width ? w : width;
    }
    return width < LABEL_MOST ? width : LABEL_MOST;
}

static int map_make(const struct poise_heatmap *from, struct map *map)
{
    size_t most = from->row_count > from->column_count ? from->row_count
                                                       : from->column_count;
    size_t block = (most + CELLS_MOST - 1) / CELLS_MOST;
    double room, cell;

    *map = (struct map){.from = from, .block = block ? block : 1};
    map->rows = (from->row_count + map->block - 1) / map->block;
    map->columns = (from->column_count + map->block - 1) / map->block;
    map->values = poise_alloc(map->rows * map->columns, sizeof *map->values);
    if (!map->values) {
        return -ENOMEM;
    }
    fill_blocks(map);
    find_range(map);
    map->left =
        22 + REPORT_CHAR * (double)label_width(from->rows, from->row_count);
    map->top = 56;
    room = REPORT_WIDTH - map->left - 8;
    most = map->rows > map->columns ? map->rows : map->columns;
    cell = (room < 560 ? room : 560) / (double)(most ? most : 1);
    map->cell = cell > 40 ? 40 : cell;
    return 0;
}

static void draw_labels(struct poise_buf *out, const struct map *map, bool rows)
{
    const struct poise_heatmap *from = map->from;
    const char *const *labels = rows ? from->rows : from->columns;
    size_t total = rows ? from->row_count : from->column_count;
    size_t count = rows ? map->rows : map->columns;
    double need = rows ? 13 : REPORT_CHAR * (1 + label_width(labels, total));
    size_t every = (size_t)ceil(need / map->cell);

    for (size_t i = 0; i < count; i += every ? every : 1) {
        struct poise_buf text = {0};
        double at = map->cell * ((double)i + 0.5);

        /* Only the first of a block: the range would not fit. */
        put_label(&text, labels, i * map->block, 1, total);
        if (rows) {
            report_text(out, map->left - 6, map->top + at + 4, "end",
                        poise_buf_str(&text), LABEL_MOST);
        } else {
            report_text(out, map->left + at, map->top - 6, "middle",
                        poise_buf_str(&text), LABEL_MOST);
        }
        out->error = out->error ? out->error : text.error;
        poise_buf_free(&text);
    }
}

/* "3 to 5: 1.5 MiB" */
static void cell_title(struct poise_buf *out, const struct map *map, size_t r,
                       size_t c)
{
    const struct poise_heatmap *from = map->from;
    struct poise_buf text = {0};

    put_label(&text, from->rows, r, map->block, from->row_count);
    poise_buf_puts(&text, " \xe2\x86\x92 ");
    put_label(&text, from->columns, c, map->block, from->column_count);
    report_escape(out, poise_buf_str(&text));
    poise_buf_puts(out, ": ");
    report_value(out, map->values[r * map->columns + c], from->unit);
    out->error = out->error ? out->error : text.error;
    poise_buf_free(&text);
}

static void draw_cells(struct poise_buf *out, const struct map *map)
{
    /* What is measured at many places has no gaps between them. */
    double gap =
        map->from->kind == POISE_HEATMAP_AMOUNTS && map->cell > 8 ? 1 : 0;

    poise_buf_printf(out,
                     "<rect class=\"e\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                     "height=\"%.1f\"/>\n",
                     map->left, map->top, map->cell * (double)map->columns,
                     map->cell * (double)map->rows);
    for (size_t i = 0; i < map->rows * map->columns; i++) {
        size_t r = i / map->columns, c = i % map->columns;

        if (is_blank(map, map->values[i])) {
            continue;
        }
        poise_buf_printf(out,
                         "<rect class=\"c\" x=\"%.2f\" y=\"%.2f\" "
                         "width=\"%.2f\" height=\"%.2f\" fill=\"#%06x\">"
                         "<title>",
                         map->left + map->cell * (double)c,
                         map->top + map->cell * (double)r, map->cell - gap,
                         map->cell - gap,
                         colour_at(place(map, map->values[i])));
        cell_title(out, map, r, c);
        poise_buf_puts(out, "</title></rect>\n");
    }
}

/* From low to high with figures at both ends and in the middle. */
static void draw_legend(struct poise_buf *out, const struct map *map)
{
    enum { STEPS = 32, WIDE = 6 };
    double x0 = REPORT_WIDTH - 8 - STEPS * WIDE;

    if (!map->any) {
        report_text(out, REPORT_WIDTH - 8, 14, "end",
                    map->from->kind == POISE_HEATMAP_AMOUNTS ? "all zero"
                                                             : "no values",
                    20);
        return;
    }
    for (unsigned i = 0; i < STEPS; i++) {
        poise_buf_printf(out,
                         "<rect x=\"%.1f\" y=\"4\" width=\"%d.5\" "
                         "height=\"10\" fill=\"#%06x\"/>\n",
                         x0 + i * WIDE, WIDE, colour_at(i / (STEPS - 1.0)));
    }
    for (unsigned i = 0; i < 3; i++) {
        struct poise_buf text = {0};
        double value = i == 0     ? map->low
                       : i == 2   ? map->high
                       : map->log ? sqrt(map->low * map->high)
                                  : (map->low + map->high) / 2;
        static const char *const anchors[] = {"start", "middle", "end"};

        report_value(&text, value, map->from->unit);
        report_text(out, x0 + STEPS * WIDE * i / 2.0, 27, anchors[i],
                    poise_buf_str(&text), 16);
        out->error = out->error ? out->error : text.error;
        poise_buf_free(&text);
    }
}

static void map_numbers(struct poise_page *page, const struct map *map)
{
    struct poise_buf *out = &page->body;

    for (size_t r = 0; r < map->rows; r++) {
        struct poise_buf text = {0};

        put_label(&text, map->from->rows, r, map->block, map->from->row_count);
        poise_buf_puts(out, "<tr><td>");
        report_escape(out, poise_buf_str(&text));
        poise_buf_puts(out, "</td>");
        for (size_t c = 0; c < map->columns; c++) {
            poise_buf_puts(out, "<td class=\"r\">");
            report_value(out, map->values[r * map->columns + c],
                         map->from->unit);
            poise_buf_puts(out, "</td>");
        }
        poise_buf_puts(out, "</tr>\n");
        out->error = out->error ? out->error : text.error;
        poise_buf_free(&text);
    }
}

static void map_heads(struct poise_page *page, const struct map *map)
{
    struct poise_buf *out = &page->body;

    poise_buf_puts(out, "<tr><th></th>");
    for (size_t c = 0; c < map->columns; c++) {
        struct poise_buf text = {0};

        put_label(&text, map->from->columns, c, map->block,
                  map->from->column_count);
        poise_buf_puts(out, "<th class=\"r\">");
        report_escape(out, poise_buf_str(&text));
        poise_buf_puts(out, "</th>");
        out->error = out->error ? out->error : text.error;
        poise_buf_free(&text);
    }
    poise_buf_puts(out, "</tr>\n");
}

int poise_page_heatmap(struct poise_page *page, const struct poise_heatmap *map)
{
    struct map drawn;
    const char *head = map->row_label ? map->row_label : "";
    size_t start;
    int code = map_make(map, &drawn);

    if (code < 0) {
        return code;
    }
    start = report_begin(page, map->title, head,
                         drawn.top + drawn.cell * (double)drawn.rows + 8);
    if (map->row_label) {
        report_text(&page->body, 2, 14, "start", map->row_label, 50);
    }
    if (map->column_label) {
        report_text(&page->body, drawn.left, drawn.top - 22, "start",
                    map->column_label, 50);
    }
    draw_legend(&page->body, &drawn);
    draw_labels(&page->body, &drawn, true);
    draw_labels(&page->body, &drawn, false);
    draw_cells(&page->body, &drawn);
    report_numbers(page, &head, 1);
    map_heads(page, &drawn);
    map_numbers(page, &drawn);
    code = report_end(page, start);
    free(drawn.values);
    return code;
}
