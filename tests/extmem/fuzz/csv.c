/*
 * Tables of CSV: the first byte says the separator and how the rest, the text,
 * is cut into pieces. What the reader says of it and the fields that are found
 * in its rows are those of a second reader, which has the text as a whole and
 * follows the grammar of RFC 4180.
 */
#include "../../fuzz/fuzz.h"

#include <poise/csv.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* ---- the second reader --------------------------------------------------- */

struct text {
    const char *at, *end;
    char separator;
};

/* A field in quotes: what stands in them, into `to`. False: it has no end, or
 * one with something behind it. */
static bool read_quoted(struct text *text, struct poise_buf *to)
{
    for (text->at++; text->at < text->end; text->at++) {
        if (*text->at == '"' && text->at + 1 < text->end &&
            text->at[1] == '"') {
            text->at++;
        } else if (*text->at == '"') {
            break;
        }
        poise_buf_putc(to, *text->at);
    }
    if (text->at == text->end) {
        return false;
    }
    text->at++;
    if (text->at < text->end && *text->at == '\r' && text->separator != '\r') {
        text->at++;
        return text->at == text->end || *text->at == '\n';
    }
    return text->at == text->end || *text->at == '\n' ||
           *text->at == text->separator;
}

/* Whether there is a field; *is_last: of its row. */
static bool read_field(struct text *text, struct poise_buf *to, bool *is_last)
{
    const char *from = text->at;

    to->len = 0;
    if (text->at < text->end && *text->at == '"') {
        if (!read_quoted(text, to)) {
            return false;
        }
    } else {
        while (text->at < text->end && *text->at != '\n' &&
               *text->at != text->separator) {
            text->at++;
        }
        poise_buf_append(to, from, (size_t)(text->at - from));
        *is_last = text->at == text->end || *text->at == '\n';
        to->len -= *is_last && to->len > 0 && to->data[to->len - 1] == '\r';
    }
    *is_last = text->at == text->end || *text->at == '\n';
    text->at += text->at < text->end;
    return true;
}

/* ---- both --------------------------------------------------------------- */

/* As it was handed out: `row` without its NUL. */
static void check_field(const char *row, size_t len, char separator, size_t i,
                        const struct poise_buf *is)
{
    size_t from, to, n;
    char *room;

    poise_csv_field(row, len, separator, i, &from, &to);
    check(from <= to && to <= len);
    room = malloc(to - from + 1);
    check(room);
    n = poise_csv_unquote(row + from, to - from, room);
    check(n == is->len && (n == 0 || memcmp(room, is->data, n) == 0));
    free(room);
}

/* The rows of `text` as the second reader has them, beside those that were
 * handed out (NULL: the text was refused); whether it is a table. */
static bool read_all(struct text text, const char *rows, uint64_t *count)
{
    const char *begin = text.at;
    struct poise_buf field = {0};
    size_t columns = 0;
    bool is_good = true;

    *count = 0;
    while (text.at < text.end && is_good) {
        const char *row = rows ? rows + (text.at - begin) : NULL;
        size_t fields = 0;

        for (bool is_last = false; !is_last && is_good; fields++) {
            is_good = read_field(&text, &field, &is_last);
            if (is_good && row) {
                check_field(row, strlen(row), text.separator, fields, &field);
            }
        }
        columns = columns ? columns : fields;
        is_good = is_good && fields == columns;
        ++*count;
    }
    poise_buf_free(&field);
    return is_good;
}

/* Read in pieces, of what `seed` says; how many rows, or an
 * error. */
static int64_t read_pieces(char *data, size_t len, char separator,
                           unsigned seed, uint64_t *columns)
{
    struct poise_csv csv = {.separator = separator, .path = "input"};
    int64_t rows = 0;
    bool by_row = seed % 2;

    for (size_t at = 0; at < len;) {
        size_t most = seed % 7 + 1, piece = most < len - at ? most : len - at;
        ssize_t n = poise_csv_read(&csv, data + at, piece, by_row);

        if (n < 0) {
            check(n == -EBADMSG && poise_error_last()->code == EBADMSG);
            return n;
        }
        check(n > 0 && (size_t)n <= piece);
        check((size_t)n == piece || (by_row && data[at + (size_t)n - 1] == 0));
        for (size_t i = at; i < at + (size_t)n; i++) {
            rows += data[i] == '\0';
        }
        at += (size_t)n;
        seed = seed * 5 + 1;
    }
    if (poise_csv_end(&csv) < 0) {
        return -EBADMSG;
    }
    *columns = csv.columns;
    return rows + (len > 0 && data[len - 1] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char separators[] = ",,,;\t| ";
    struct text text;
    uint64_t count, columns = 0;
    int64_t rows;
    char *copy;
    size_t mark;
    bool is_table;

    if (len == 0) {
        return 0;
    }
    text.separator = separators[*data % (sizeof separators - 1)];
    text.at = (const char *)data + 1;
    text.end = (const char *)data + len;
    mark = len > 3 && memcmp(text.at, POISE_CSV_MARK, 3) == 0 ? 3 : 0;
    copy = malloc(len);
    check(copy);
    memcpy(copy, text.at, len - 1);
    copy[len - 1] = '\0';
    rows = read_pieces(copy, len - 1, text.separator, *data / 8u + 1, &columns);
    is_table = !memchr(text.at, '\0', len - 1);
    text.at += mark;
    is_table =
        read_all(text, rows < 0 ? NULL : copy + mark, &count) && is_table;
    check(is_table == (rows >= 0));
    check(rows < 0 || (uint64_t)rows == count || (mark && len == 4));
    /* The header is the first row, if there is any. */
    check(rows < 0 || (columns > 0) == (count > 0));
    free(copy);
    return 0;
}
