/* Queries of poise trace run: asked while the program runs, shown at its end.
 */
#include "monitor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Rows of a table; what is more is in JSON. */
enum { ROWS_MOST = 32, CELLS = 16 };

int monitor_queries_create(const struct poise_strings *texts,
                           struct poise_monitor *monitor,
                           const struct poise_scope *scope,
                           struct monitor_queries *out)
{
    *out = (struct monitor_queries){.texts = texts};
    out->queries = poise_alloc(texts->count + 1, sizeof(struct poise_query *));
    if (!out->queries) {
        return -ENOMEM;
    }
    for (; out->count < texts->count; out->count++) {
        struct poise_query **query = &out->queries[out->count];
        int code = poise_query_parse(texts->items[out->count], query);
        if (code == 0) {
            code = poise_query_watch(*query, monitor, scope);
        }
        if (code < 0) {
            poise_query_destroy(*query);
            return code;
        }
    }
    return 0;
}

void monitor_queries_free(struct monitor_queries *queries)
{
    for (size_t i = 0; i < queries->count; i++) {
        poise_query_destroy(queries->queries[i]);
    }
    free(queries->queries);
}

/* ---- text --------------------------------------------------------------- */

/* What names are of durations. */
static bool is_time(const char *column)
{
    static const char *const times[] = {"time", "wait", "depart", "late"};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        const char *found = strstr(column, times[i]);
        if (found && found > column && found[-1] == '(') {
            return true;
        }
    }
    return false;
}

static void put_value(const struct poise_query *query, unsigned row,
                      unsigned summary, struct poise_buf *out)
{
    double value = poise_query_value(query, row, summary);
    unsigned column = poise_query_keys(query) + summary;
    if (is_time(poise_query_column(query, column)) && value >= 0) {
        poise_human_ns(out, (uint64_t)(value + 0.5));
    } else {
        poise_buf_printf(out, "%.6g", value);
    }
}

static int put_row(const struct poise_query *query, unsigned row,
                   struct poise_table *table)
{
    struct poise_buf cells[CELLS] = {0};
    const char *texts[CELLS];
    unsigned keys = poise_query_keys(query),
             columns = poise_query_columns(query);
    for (unsigned i = 0; i < columns; i++) {
        int64_t number;
        const char *word =
            i < keys ? poise_query_key(query, row, i, &number) : NULL;
        if (i >= keys) {
            put_value(query, row, i - keys, &cells[i]);
        } else if (word) {
            poise_buf_escape(&cells[i], word, strlen(word));
        } else {
            poise_buf_printf(&cells[i], "%lld", (long long)number);
        }
        texts[i] = poise_buf_str(&cells[i]);
    }
    int code = poise_table_row(table, texts);
    for (unsigned i = 0; i < columns; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

/* Rows by their first summary, the largest first. */
static unsigned *order_of(const struct poise_query *query)
{
    unsigned count = poise_query_rows(query);
    unsigned *order = poise_alloc((size_t)count + 1, sizeof *order);
    for (unsigned i = 0; order && i < count; i++) {
        unsigned at = i;
        for (; at > 0 && poise_query_value(query, order[at - 1], 0) <
                             poise_query_value(query, i, 0);
             at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return order;
}

static int put_table(const struct poise_query *query, struct poise_buf *out)
{
    struct poise_column columns[CELLS];
    struct poise_table *table = NULL;
    unsigned *order = order_of(query), rows = poise_query_rows(query);
    for (unsigned i = 0; i < poise_query_columns(query); i++) {
        columns[i] = (struct poise_column){
            poise_query_column(query, i),
            i < poise_query_keys(query) ? POISE_ALIGN_LEFT : POISE_ALIGN_RIGHT};
    }
    int code =
        order ? poise_table_create(columns, poise_query_columns(query), &table)
              : -ENOMEM;
    for (unsigned i = 0; code == 0 && i < rows && i < ROWS_MOST; i++) {
        code = put_row(query, order[i], table);
    }
    code = code == 0 ? poise_table_text(table, out) : code;
    if (code == 0 && rows > ROWS_MOST) {
        poise_buf_printf(out, "(%u more rows: --json)\n", rows - ROWS_MOST);
    }
    poise_table_destroy(table);
    free(order);
    return code;
}

int monitor_queries_text(const struct monitor_queries *queries,
                         struct poise_buf *out)
{
    int code = 0;
    for (size_t i = 0; i < queries->count && code == 0; i++) {
        uint64_t matched, left_out;
        poise_query_counts(queries->queries[i], &matched, &left_out);
        poise_buf_puts(out, "\n");
        poise_buf_escape(out, queries->texts->items[i],
                         strlen(queries->texts->items[i]));
        poise_buf_puts(out, "\n");
        code = put_table(queries->queries[i], out);
        if (left_out > 0) {
            poise_buf_printf(out, "(%llu of %llu found no row)\n",
                             (unsigned long long)left_out,
                             (unsigned long long)matched);
        }
    }
    return code;
}

/* ---- JSON --------------------------------------------------------------- */

static void put_json(const struct poise_query *query, struct poise_json *json)
{
    unsigned keys = poise_query_keys(query);
    poise_json_array(json, "rows");
    for (unsigned row = 0; row < poise_query_rows(query); row++) {
        poise_json_object(json, NULL);
        for (unsigned i = 0; i < poise_query_columns(query); i++) {
            const char *name = poise_query_column(query, i);
            int64_t number;
            const char *word =
                i < keys ? poise_query_key(query, row, i, &number) : NULL;
            if (word) {
                poise_json_bytes(json, name, word, strlen(word));
            } else if (i < keys) {
                poise_json_i64(json, name, number);
            } else {
                poise_json_double(json, name,
                                  poise_query_value(query, row, i - keys));
            }
        }
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
}

void monitor_queries_json(const struct monitor_queries *queries,
                          struct poise_json *json)
{
    poise_json_array(json, "queries");
    for (size_t i = 0; i < queries->count; i++) {
        uint64_t matched, left_out;
        poise_query_counts(queries->queries[i], &matched, &left_out);
        poise_json_object(json, NULL);
        poise_json_string(json, "query", queries->texts->items[i]);
        poise_json_u64(json, "matched", matched);
        poise_json_u64(json, "left_out", left_out);
        put_json(queries->queries[i], json);
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
}
