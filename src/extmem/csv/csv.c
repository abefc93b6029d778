/* Rows of CSV: read as a stream, byte by byte; a field of one found again. */
#include <poise/csv.h>

#include <errno.h>
#include <string.h>

enum { MARK_BYTES = sizeof POISE_CSV_MARK - 1 };

/* The line that is read, from 1 on. */
static unsigned long long at_line(const struct poise_csv *csv)
{
    return (unsigned long long)csv->line + 1;
}

static int end_row(struct poise_csv *csv)
{
    uint64_t fields = csv->fields + 1;

    csv->columns = csv->columns ? csv->columns : fields;
    if (fields != csv->columns) {
        return poise_error_set(EBADMSG, "read", csv->path,
                               "the row that ends in line %llu has %llu "
                               "field%s, and the header %llu",
                               at_line(csv), (unsigned long long)fields,
                               fields == 1 ? "" : "s",
                               (unsigned long long)csv->columns);
    }
    csv->fields = 0;
    csv->state = POISE_CSV_BEGIN;
    csv->any = false;
    return 0;
}

static int refuse_behind(const struct poise_csv *csv)
{
    return poise_error_set(EBADMSG, "read", csv->path,
                           "line %llu: something stands behind the quotes of "
                           "a field",
                           at_line(csv));
}

/* One byte, which is not within quotes. */
static int read_plain(struct poise_csv *csv, char *at)
{
    bool is_quoted =
        csv->state == POISE_CSV_BEHIND || csv->state == POISE_CSV_RETURN;

    if (*at == '\n') {
        int code = end_row(csv);

        csv->line++;
        *at = '\0';
        return code;
    }
    csv->any = true;
    if (*at == csv->separator && csv->state != POISE_CSV_RETURN) {
        csv->fields++;
        csv->state = POISE_CSV_BEGIN;
    } else if (*at == '"' && csv->state == POISE_CSV_BEGIN) {
        csv->state = POISE_CSV_QUOTED;
        csv->quoted = csv->line + 1;
    } else if (*at == '"' && csv->state == POISE_CSV_BEHIND) {
        csv->state = POISE_CSV_QUOTED;
    } else if (*at == '\r' && csv->state == POISE_CSV_BEHIND) {
        csv->state = POISE_CSV_RETURN;
    } else if (is_quoted) {
        return refuse_behind(csv);
    } else {
        csv->state = POISE_CSV_PLAIN;
    }
    return 0;
}

/* Whether a byte is of the mark at the begin. If it is not what came before it,
 * which looked so, is of the first field. */
static bool is_mark(struct poise_csv *csv, char at)
{
    if (csv->any || csv->line > 0 || csv->mark == MARK_BYTES) {
        return false;
    }
    if (at == POISE_CSV_MARK[csv->mark]) {
        csv->mark++;
        return true;
    }
    if (csv->mark > 0) {
        csv->any = true;
        csv->state = POISE_CSV_PLAIN;
    }
    csv->mark = MARK_BYTES;
    return false;
}

ssize_t poise_csv_read(struct poise_csv *csv, char *data, size_t len,
                       uint64_t rows)
{
    uint64_t left = rows;
    int code = 0;

    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\0') {
            return poise_error_set(EBADMSG, "read", csv->path,
                                   "there is a NUL in line %llu", at_line(csv));
        }
        if (is_mark(csv, data[i])) {
            continue;
        }
        if (csv->state != POISE_CSV_QUOTED) {
            code = read_plain(csv, &data[i]);
            if (code < 0) {
                return code;
            }
            if (data[i] == '\0' && --left == 0 && rows > 0) {
                return (ssize_t)i + 1;
            }
            continue;
        }
        csv->line += data[i] == '\n';
        csv->state = data[i] == '"' ? POISE_CSV_BEHIND : POISE_CSV_QUOTED;
    }
    return (ssize_t)len;
}

int poise_csv_end(struct poise_csv *csv)
{
    if (csv->state == POISE_CSV_QUOTED) {
        return poise_error_set(EBADMSG, "read", csv->path,
                               "the quotes that begin in line %llu have no end",
                               (unsigned long long)csv->quoted);
    }
    /* A part of the mark alone is a field. */
    return csv->any || csv->mark % MARK_BYTES > 0 ? end_row(csv) : 0;
}

void poise_csv_field(const char *row, size_t len, char separator, size_t i,
                     size_t *from, size_t *to)
{
    size_t at = 0, end = 0;

    for (size_t n = 0;; n++) {
        bool quoted = at < len && row[at] == '"';

        for (end = at + quoted; end < len && (quoted || row[end] != separator);
             end++) {
            quoted ^= row[end] == '"' && row[at] == '"';
        }
        if (n == i || end >= len) {
            at = n == i ? at : len;
            break;
        }
        at = end + 1;
    }
    *from = at;
    *to = end;
    /* Of a row that ends with CR LF. */
    if (end == len && end > at && row[end - 1] == '\r') {
        *to = end - 1;
    }
}

size_t poise_csv_unquote(const char *field, size_t len, char *to)
{
    size_t n = 0, end = len;

    if (len == 0 || field[0] != '"') {
        memmove(to, field, len);
        return len;
    }
    end -= len > 1 && field[len - 1] == '"';
    for (size_t i = 1; i < end; i++) {
        to[n++] = field[i];
        i += field[i] == '"';
    }
    return n;
}
