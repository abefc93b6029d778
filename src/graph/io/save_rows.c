/* Formats that list the neighbours of each vertex: METIS and GAP's .sg. */
#include "internal.h"

#include "graph/build/build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** Which ends get which: (to) in the row of (from), the other way, or both. */
enum rows_way { ROWS_OUT = 1, ROWS_IN = 2 };

enum { ROWS_BLOCK = 1024 }; /* rows made into text at a time */

/* How many ends each row gets, loops and duplicates too. */
static int rows_count_ends(const struct poise_graph_edges *edges, unsigned way,
                           uint32_t *ends_at)
{
    for (uint64_t i = 0; i < edges->count; i++) {
        uint32_t from = edges->ends[2 * i], to = edges->ends[2 * i + 1];
        bool over = (way & ROWS_OUT && ++ends_at[from] == 0) ||
                    (way & ROWS_IN && ++ends_at[to] == 0);
        if (over) {
            return poise_error_set(EOVERFLOW, "write graph", NULL,
                                   "a vertex has more than 2^32 neighbours");
        }
    }
    return 0;
}

/* Neighbours of each vertex, ascending, each once, without the vertex. */
static int rows_build(const struct poise_graph_edges *edges, unsigned way,
                      unsigned threads, struct graph_rows *rows)
{
    const uint64_t count = edges->vertex_count;
    struct graph_team *team = NULL;
    uint32_t *ends_at = graph_pages_map(count * sizeof *ends_at, true);
    int code = ends_at ? rows_count_ends(edges, way, ends_at) : -ENOMEM;
    if (code == 0) {
        code = graph_team_create(graph_threads(threads), &team);
    }
    if (code == 0) {
        struct graph_rows_plan plan = {
            .team = team,
            .arcs = {.ends = edges->ends,
                     .count = edges->count,
                     .forward = way & ROWS_OUT,
                     .backward = way & ROWS_IN},
            .ends_at = ends_at,
            .row_count = count,
            .step = 1,
            .max_place = count > 0 ? (uint32_t)(count - 1) : 0,
            .huge = true};
        code = graph_rows_make(&plan, rows);
        graph_team_destroy(team);
    }
    graph_pages_unmap(ends_at, count * sizeof *ends_at);
    return code;
}

static uint64_t rows_blocks(const struct graph_rows *rows)
{
    return rows->row_count / ROWS_BLOCK + (rows->row_count % ROWS_BLOCK > 0);
}

/* The rows of a block: [from, to). */
static void rows_of_block(const struct graph_rows *rows, uint64_t index,
                          uint64_t *from, uint64_t *to)
{
    *from = index * ROWS_BLOCK;
    *to = *from + ROWS_BLOCK;
    *to = *to < rows->row_count ? *to : rows->row_count;
}

/* ---- METIS -------------------------------------------------------------- */

static int metis_block(uint64_t index, struct poise_buf *buf, void *arg)
{
    const struct graph_rows *rows = arg;
    uint64_t from, to;
    rows_of_block(rows, index, &from, &to);
    for (uint64_t v = from; v < to; v++) {
        for (uint64_t i = rows->start[v]; i < rows->start[v + 1]; i++) {
            char *room = poise_buf_reserve(buf, GRAPH_DECIMAL + 1);
            if (!room) {
                return poise_error_set(ENOMEM, "write graph", NULL, NULL);
            }
            char *end = graph_decimal(room, (uint64_t)rows->to[i] + 1);
            *end++ = i + 1 < rows->start[v + 1] ? ' ' : '\n';
            buf->len += (size_t)(end - room);
        }
        if (rows->start[v] == rows->start[v + 1]) {
            poise_buf_putc(buf, '\n');
        }
    }
    return 0;
}

int graph_save_metis(const struct poise_graph_edges *edges,
                     struct graph_save *save)
{
    struct graph_rows rows = {0};
    struct poise_buf head = {0};
    if (edges->directed) {
        return poise_error_set(EINVAL, "write graph", save->path,
                               "METIS holds undirected graphs only");
    }
    int code = rows_build(edges, ROWS_OUT | ROWS_IN, save->threads, &rows);
    if (code < 0) {
        return code;
    }
    poise_buf_printf(&head, "%llu %llu\n", (unsigned long long)rows.row_count,
                     (unsigned long long)rows.arc_count / 2);
    code = head.error ? poise_error_set(ENOMEM, "write graph", NULL, NULL)
                      : graph_save_at(save, 0, head.data, head.len);
    if (code == 0) {
        save->offset = head.len;
        code = graph_save_blocks(save, rows_blocks(&rows), metis_block, &rows);
    }
    poise_buf_free(&head);
    graph_rows_free(&rows);
    return code;
}

/* ---- GAP ---------------------------------------------------------------- */

static int gap_block(uint64_t index, struct poise_buf *buf, void *arg)
{
    const struct graph_rows *rows = arg;
    uint64_t from, to;
    rows_of_block(rows, index, &from, &to);
    poise_buf_append(buf, rows->to + rows->start[from],
                     (rows->start[to] - rows->start[from]) * sizeof *rows->to);
    return 0;
}

static int gap_save_rows(struct graph_save *save,
                         const struct poise_graph_edges *edges, unsigned way,
                         bool header)
{
    struct graph_rows rows = {0};
    int code = rows_build(edges, way, save->threads, &rows);
    if (code < 0) {
        return code;
    }
    if (header) {
        unsigned char front[17] = {edges->directed};
        uint64_t numbers[2] = {rows.arc_count, rows.row_count};
        memcpy(front + 1, numbers, sizeof numbers);
        code = graph_save_at(save, 0, front, sizeof front);
        save->offset = sizeof front;
    }
    if (code == 0) {
        size_t bytes = (rows.row_count + 1) * sizeof *rows.start;
        code = graph_save_at(save, save->offset, rows.start, bytes);
        save->offset += bytes;
    }
    if (code == 0) {
        code = graph_save_blocks(save, rows_blocks(&rows), gap_block, &rows);
    }
    graph_rows_free(&rows);
    return code;
}

int graph_save_gap(const struct poise_graph_edges *edges,
                   struct graph_save *save)
{
    if (edges->vertex_count > INT32_MAX) {
        return poise_error_set(EINVAL, "write graph", save->path,
                               "GAP's ids have 31 bits");
    }
    if (!edges->directed) {
        return gap_save_rows(save, edges, ROWS_OUT | ROWS_IN, true);
    }
    int code = gap_save_rows(save, edges, ROWS_OUT, true);
    return code < 0 ? code : gap_save_rows(save, edges, ROWS_IN, false);
}
