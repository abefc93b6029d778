/* Inputs of CSV: their headers read, columns found by name, the rest handed to
 * the sort as rows that end with NULs. */
#include "internal.h"

#include <poise/file.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char letters[] = "MRVbdfghinr";

/* ---- headers ------------------------------------------------------------ */

/* Read the first row of a file into `header`, and stand behind it. */
static int read_header(int fd, struct poise_csv *rows, struct poise_buf *header)
{
    enum { PIECE = 4096 };
    bool can_seek = lseek(fd, 0, SEEK_CUR) >= 0;
    ssize_t n = 1, taken;

    while (n > 0) {
        char *to = poise_buf_reserve(header, PIECE);

        /* Of a pipe no byte more than it takes. */
        n = to ? poise_file_read(fd, to, can_seek ? PIECE : 1, rows->path)
               : header->error;
        if (n <= 0) {
            break;
        }
        taken = poise_csv_read(rows, to, (size_t)n, 1);
        if (taken < 0) {
            return (int)taken;
        }
        header->len += (size_t)taken;
        if (to[taken - 1] == '\0') {
            to[taken - 1] = '\n';
            return taken < n && lseek(fd, taken - n, SEEK_CUR) < 0
                       ? poise_error_set(errno, "read", rows->path, NULL)
                       : 0;
        }
    }
    if (n == 0) {
        n = poise_csv_end(rows);
    }
    if (n == 0 && rows->columns == 0) {
        n = poise_error_set(EBADMSG, "read", rows->path,
                            "it is empty, and has no header");
    }
    return n < 0 ? (int)n : poise_buf_putc(header, '\n');
}

/* Without the mark with which some files begin, and without its end. */
static const char *bare(const struct poise_buf *header, size_t *len)
{
    static const size_t mark = sizeof POISE_CSV_MARK - 1;
    const char *row = header->data;

    *len = header->len - 1;
    *len -= *len > 0 && row[*len - 1] == '\r';
    if (*len >= mark && memcmp(row, POISE_CSV_MARK, mark) == 0) {
        row += mark;
        *len -= mark;
    }
    return row;
}

static bool is_same(const struct poise_buf *a, const struct poise_buf *b)
{
    size_t a_len, b_len;
    const char *a_row = bare(a, &a_len), *b_row = bare(b, &b_len);

    return a_len == b_len && memcmp(a_row, b_row, a_len) == 0;
}

static int open_input(struct cli_sort_csv *csv, size_t i, const char *path)
{
    struct cli_sort_table *table = &csv->tables[i];
    struct poise_buf header = {0};
    int code;

    table->rows = (struct poise_csv){.separator = csv->separator, .path = path};
    table->fd = poise_file_named_descriptor(path);
    if (table->fd < 0) {
        table->fd = poise_file_open(AT_FDCWD, path, O_RDONLY, 0);
        table->own = table->fd >= 0;
    }
    if (table->fd < 0) {
        return table->fd;
    }
    code =
        read_header(table->fd, &table->rows, i == 0 ? &csv->header : &header);
    if (code == 0 && i > 0 && !is_same(&header, &csv->header)) {
        code = poise_error_set(EBADMSG, "read", path,
                               "its header is not that of '%s'",
                               csv->tables[0].rows.path);
    }
    poise_buf_free(&header);
    poise_buf_printf(&table->name, "/dev/fd/%d", table->fd);
    poise_buf_str(&table->name);
    return code < 0 ? code : table->name.error;
}

/* ---- keys --------------------------------------------------------------- */

/* The name of column `i`, for poise_buf_free. */
static void column_name(const struct cli_sort_csv *csv, size_t i,
                        struct poise_buf *out)
{
    size_t len, from, to;
    const char *row = bare(&csv->header, &len);
    char *room;

    poise_csv_field(row, len, csv->separator, i, &from, &to);
    room = poise_buf_reserve(out, to - from + 1);
    if (room) {
        out->len += poise_csv_unquote(row + from, to - from, room);
    }
    poise_buf_str(out);
}

/* How many columns are called `name`, of `len` bytes; *out is the first. */
static size_t find_name(const struct cli_sort_csv *csv, const char *name,
                        size_t len, size_t *out)
{
    size_t found = 0;

    for (size_t i = 0; i < csv->tables[0].rows.columns; i++) {
        struct poise_buf column = {0};

        column_name(csv, i, &column);
        if (!column.error && column.len == len &&
            memcmp(column.data, name, len) == 0) {
            *out = found == 0 ? i : *out;
            found++;
        }
        poise_buf_free(&column);
    }
    return found;
}

static int refuse_name(const struct cli_sort_csv *csv, const char *name)
{
    struct poise_buf all = {0};
    int code;

    for (size_t i = 0; i < csv->tables[0].rows.columns && i < 20; i++) {
        poise_buf_puts(&all, i == 0 ? "" : ", ");
        column_name(csv, i, &all);
    }
    code = poise_error_set(EINVAL, "sort by", name,
                           "there is no such column: there are %s",
                           all.error ? "others" : poise_buf_str(&all));
    poise_buf_free(&all);
    return code;
}

/* A comma where a colon belongs. */
static bool has_comma(const struct cli_sort_csv *csv, const char *name)
{
    const char *comma = strrchr(name, ',');
    size_t column;

    return comma && comma[1] != '\0' &&
           strspn(comma + 1, letters) == strlen(comma + 1) &&
           find_name(csv, name, (size_t)(comma - name), &column) > 0;
}

/* NAME[:LETTERS], or a number in its place, into a word of -k. */
static int put_key(const struct cli_sort_csv *csv, const char *name,
                   struct poise_buf *word)
{
    size_t len = strlen(name), column = 0;
    const char *colon = strrchr(name, ':');
    size_t found = find_name(csv, name, len, &column);
    char *end;

    if (found == 0 && colon &&
        strspn(colon + 1, letters) == strlen(colon + 1)) {
        len = (size_t)(colon - name);
        found = find_name(csv, name, len, &column);
    } else {
        colon = NULL;
    }
    if (found > 1) {
        return poise_error_set(EINVAL, "sort by", name,
                               "%zu columns are called so: give its number",
                               found);
    }
    if (found == 0) {
        unsigned long number = strtoul(name, &end, 10);

        if (has_comma(csv, name)) {
            return poise_error_set(EINVAL, "sort by", name,
                                   "letters stand behind a colon: "
                                   "-k NAME:LETTERS");
        }
        if (*name < '0' || *name > '9' || end != name + len || number == 0 ||
            number > csv->tables[0].rows.columns) {
            return refuse_name(csv, name);
        }
        column = number - 1;
    }
    poise_buf_printf(word, "%zu%s,%zu", column + 1, colon ? colon + 1 : "",
                     column + 1);
    poise_buf_str(word);
    return word->error;
}

/* ---- all ---------------------------------------------------------------- */

int cli_sort_csv_filter(void *arg, char *data, size_t len)
{
    struct cli_sort_csv *csv = arg;
    struct poise_csv *rows = &csv->tables[csv->now].rows;
    ssize_t n;

    if (len == 0) {
        csv->now++;
        return poise_csv_end(rows);
    }
    n = poise_csv_read(rows, data, len, 0);
    return n < 0 ? (int)n : 0;
}

int cli_sort_csv_open(struct cli_sort_csv *csv, struct poise_strings *inputs,
                      struct poise_strings *keys)
{
    int code = 0;

    csv->tables = poise_alloc(inputs->count, sizeof *csv->tables);
    csv->words = poise_alloc(keys->count + 1, sizeof *csv->words);
    if (!csv->tables || !csv->words) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < inputs->count && code == 0; i++) {
        csv->table_count++;
        code = open_input(csv, i, inputs->items[i]);
        inputs->items[i] = csv->tables[i].name.data;
    }
    for (size_t i = 0; i < keys->count && code == 0; i++) {
        csv->word_count++;
        code = put_key(csv, keys->items[i], &csv->words[i]);
        keys->items[i] = csv->words[i].data;
    }
    return code;
}

void cli_sort_csv_close(struct cli_sort_csv *csv)
{
    for (size_t i = 0; i < csv->table_count; i++) {
        if (csv->tables[i].own) {
            close(csv->tables[i].fd);
        }
        poise_buf_free(&csv->tables[i].name);
    }
    for (size_t i = 0; i < csv->word_count; i++) {
        poise_buf_free(&csv->words[i]);
    }
    free(csv->tables);
    free(csv->words);
    poise_buf_free(&csv->header);
}
