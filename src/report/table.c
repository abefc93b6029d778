/* Tables of text cells: aligned text, Markdown, HTML. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char *copy(const char *text)
{
    size_t len = strlen(text) + 1;
    char *to = poise_alloc(len, 1);

    return to ? memcpy(to, text, len) : NULL;
}

int poise_table_create(const struct poise_column *columns, size_t count,
                       struct poise_table **out)
{
    struct poise_table *table = poise_alloc(1, sizeof *table);

    if (!table) {
        return -ENOMEM;
    }
    table->columns = poise_alloc(count, sizeof *table->columns);
    if (!table->columns) {
        goto destroy_table;
    }
    for (size_t i = 0; i < count; i++) {
        table->columns[i] = columns[i];
        table->columns[i].title = copy(columns[i].title);
        table->column_count++;
        if (!table->columns[i].title) {
            goto destroy_table;
        }
    }
    *out = table;
    return 0;

destroy_table:
    poise_table_destroy(table);
    return -ENOMEM;
}

void poise_table_destroy(struct poise_table *table)
{
    if (!table) {
        return;
    }
    for (size_t i = 0; i < table->row_count * table->column_count; i++) {
        free(table->cells[i]);
    }
    for (size_t i = 0; i < table->column_count; i++) {
        free((char *)(uintptr_t)table->columns[i].title);
    }
    free(table->cells);
    free(table->columns);
    free(table);
}

int poise_table_row(struct poise_table *table, const char *const *cells)
{
    size_t count = table->column_count;
    char **row;

    if (table->row_count == table->row_capacity) {
        size_t capacity = table->row_capacity * 2 + 8;
        char **all = poise_realloc(table->cells, capacity,
                                   (count ? count : 1) * sizeof *all);

        if (!all) {
            return -ENOMEM;
        }
        table->cells = all;
        table->row_capacity = capacity;
    }
    row = table->cells + table->row_count * count;
    for (size_t i = 0; i < count; i++) {
        row[i] = cells[i] ? copy(cells[i]) : NULL;
        if (cells[i] && !row[i]) {
            while (i-- > 0) {
                free(row[i]);
            }
            return -ENOMEM;
        }
    }
    table->row_count++;
    return 0;
}

static const char *cell(const struct poise_table *table, size_t row,
                        size_t column)
{
    const char *text = table->cells[row * table->column_count + column];

    return text ? text : "";
}

static void put_blanks(struct poise_buf *out, size_t count)
{
    poise_buf_printf(out, "%*s", (int)count, "");
}

/* One cell of a line of text; what would break the line becomes '?'. */
static void put_cell(struct poise_buf *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        poise_buf_putc(out, c < 0x20 || c == 0x7f ? '?' : *text);
    }
}

static size_t column_width(const struct poise_table *table, size_t column)
{
    size_t width = report_width(table->columns[column].title);

    for (size_t row = 0; row < table->row_count; row++) {
        size_t w = report_width(cell(table, row, column));

        width = w > width ? w : width;
    }
    return width;
}

/* `row` SIZE_MAX is the header. */
static void text_line(const struct poise_table *table, size_t row,
                      const size_t *widths, struct poise_buf *out)
{
    size_t owed = 0; /* blanks, written only if something follows */

    for (size_t i = 0; i < table->column_count; i++) {
        const char *text =
            row == SIZE_MAX ? table->columns[i].title : cell(table, row, i);
        size_t space = widths[i] - report_width(text);
        bool right = table->columns[i].align == POISE_ALIGN_RIGHT;

        owed += right ? space : 0;
        if (*text) {
            put_blanks(out, owed);
            owed = 0;
        }
        put_cell(out, text);
        owed += (right ? 0 : space) + 2;
    }
    poise_buf_putc(out, '\n');
}

int poise_table_text(const struct poise_table *table, struct poise_buf *out)
{
    size_t *widths = poise_alloc(table->column_count, sizeof *widths);
    int code;

    if (!widths) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < table->column_count; i++) {
        widths[i] = column_width(table, i);
    }
    text_line(table, SIZE_MAX, widths, out);
    for (size_t row = 0; row < table->row_count; row++) {
        text_line(table, row, widths, out);
    }
    code = out->error;
    free(widths);
    return code;
}

static void markdown_cell(struct poise_buf *out, const char *text)
{
    poise_buf_putc(out, ' ');
    for (; *text; text++) {
        if (*text == '|' || *text == '\\') {
            poise_buf_putc(out, '\\');
        }
        poise_buf_putc(out, (unsigned char)*text < 0x20 ? ' ' : *text);
    }
    poise_buf_puts(out, " |");
}

int poise_table_markdown(const struct poise_table *table, struct poise_buf *out)
{
    poise_buf_putc(out, '|');
    for (size_t i = 0; i < table->column_count; i++) {
        markdown_cell(out, table->columns[i].title);
    }
    poise_buf_puts(out, "\n|");
    for (size_t i = 0; i < table->column_count; i++) {
        bool right = table->columns[i].align == POISE_ALIGN_RIGHT;

        poise_buf_puts(out, right ? " ---: |" : " --- |");
    }
    poise_buf_putc(out, '\n');
    for (size_t row = 0; row < table->row_count; row++) {
        poise_buf_putc(out, '|');
        for (size_t i = 0; i < table->column_count; i++) {
            markdown_cell(out, cell(table, row, i));
        }
        poise_buf_putc(out, '\n');
    }
    return out->error;
}

int poise_page_table(struct poise_page *page, const struct poise_table *table)
{
    struct poise_buf *out = &page->body;
    size_t start = out->len;

    poise_buf_puts(out, "<div class=\"scroll\"><table>\n<thead><tr>");
    for (size_t i = 0; i < table->column_count; i++) {
        bool right = table->columns[i].align == POISE_ALIGN_RIGHT;

        poise_buf_printf(out, "<th%s scope=\"col\">",
                         right ? " class=\"r\"" : "");
        report_escape(out, table->columns[i].title);
        poise_buf_puts(out, "</th>");
    }
    poise_buf_puts(out, "</tr></thead>\n<tbody>\n");
    for (size_t row = 0; row < table->row_count; row++) {
        poise_buf_puts(out, "<tr>");
        for (size_t i = 0; i < table->column_count; i++) {
            bool right = table->columns[i].align == POISE_ALIGN_RIGHT;

            poise_buf_puts(out, right ? "<td class=\"r\">" : "<td>");
            report_escape(out, cell(table, row, i));
            poise_buf_puts(out, "</td>");
        }
        poise_buf_puts(out, "</tr>\n");
    }
    poise_buf_puts(out, "</tbody></table></div>\n");
    return report_finish(page, start);
}
