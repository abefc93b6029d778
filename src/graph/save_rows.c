/* Formats that list the neighbours of each vertex: METIS and GAP's .sg. */
#include "io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** Neighbours of each vertex, ascending, each once, without the vertex. */
struct rows {
    uint64_t *starts; /* vertices + 1 */
    uint32_t *ids;    /* of row v: from starts[v] on */
    uint64_t bytes;   /* of ids */
    uint64_t vertices;
    uint64_t *lengths; /* after duplicates are gone */
    uint64_t next;     /* rows handed out to be sorted; __atomic */
};

/** Which ends get which: (to) in the row of (from), the other way, or both. */
enum rows_way { ROWS_OUT = 1, ROWS_IN = 2 };

enum { ROWS_BLOCK = 1024 };

static void rows_free(struct rows *rows)
{
    free(rows->starts);
    free(rows->lengths);
    graph_pages_unmap(rows->ids, rows->bytes);
}

static void rows_count(const struct poise_graph_edges *edges, unsigned way,
                       uint64_t *starts)
{
    for (uint64_t i = 0; i < edges->count; i++) {
        uint32_t from = edges->ends[2 * i], to = edges->ends[2 * i + 1];
        if (from != to) {
            starts[from + 1] += (way & ROWS_OUT) != 0;
            starts[to + 1] += (way & ROWS_IN) != 0;
        }
    }
}

static void rows_fill(const struct poise_graph_edges *edges, unsigned way,
                      struct rows *rows)
{
    uint64_t *at = rows->lengths;
    for (uint64_t i = 0; i < edges->count; i++) {
        uint32_t from = edges->ends[2 * i], to = edges->ends[2 * i + 1];
        if (from != to && way & ROWS_OUT) {
            rows->ids[rows->starts[from] + at[from]++] = to;
        }
        if (from != to && way & ROWS_IN) {
            rows->ids[rows->starts[to] + at[to]++] = from;
        }
    }
}

static int rows_compare(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int rows_sort_part(unsigned thread, void *arg)
{
    struct rows *rows = arg;
    (void)thread;
    for (;;) {
        uint64_t from =
            __atomic_fetch_add(&rows->next, ROWS_BLOCK, __ATOMIC_RELAXED);
        if (from >= rows->vertices) {
            return 0;
        }
        uint64_t to = from + ROWS_BLOCK;
        for (uint64_t v = from; v < to && v < rows->vertices; v++) {
            uint32_t *ids = rows->ids + rows->starts[v];
            uint64_t kept = 0;
            qsort(ids, rows->lengths[v], sizeof *ids, rows_compare);
            for (uint64_t i = 0; i < rows->lengths[v]; i++) {
                if (i == 0 || ids[i] != ids[i - 1]) {
                    ids[kept++] = ids[i];
                }
            }
            rows->lengths[v] = kept;
        }
    }
}

static int rows_build(const struct poise_graph_edges *edges, unsigned way,
                      unsigned threads, struct rows *rows)
{
    memset(rows, 0, sizeof *rows);
    rows->vertices = edges->vertex_count;
    rows->starts = poise_alloc(rows->vertices + 1, sizeof *rows->starts);
    rows->lengths = poise_alloc(rows->vertices, sizeof *rows->lengths);
    if (!rows->starts || !rows->lengths) {
        return -ENOMEM;
    }
    rows_count(edges, way, rows->starts);
    for (uint64_t v = 0; v < rows->vertices; v++) {
        rows->starts[v + 1] += rows->starts[v];
    }
    rows->bytes = rows->starts[rows->vertices] * sizeof *rows->ids;
    rows->ids = graph_pages_map(rows->bytes, true);
    if (!rows->ids) {
        return -ENOMEM;
    }
    rows_fill(edges, way, rows);
    return graph_parallel(threads, rows_sort_part, rows);
}

static uint64_t rows_total(const struct rows *rows)
{
    uint64_t total = 0;
    for (uint64_t v = 0; v < rows->vertices; v++) {
        total += rows->lengths[v];
    }
    return total;
}

static uint64_t rows_blocks(const struct rows *rows)
{
    return rows->vertices / ROWS_BLOCK + (rows->vertices % ROWS_BLOCK > 0);
}

/* ---- METIS ----------------------------------------------------------------
 */

static int metis_block(uint64_t index, struct poise_buf *buf, void *arg)
{
    const struct rows *rows = arg;
    uint64_t from = index * ROWS_BLOCK, to = from + ROWS_BLOCK;
    for (uint64_t v = from; v < to && v < rows->vertices; v++) {
        const uint32_t *ids = rows->ids + rows->starts[v];
        for (uint64_t i = 0; i < rows->lengths[v]; i++) {
            if (i > 0) {
                poise_buf_putc(buf, ' ');
            }
            poise_buf_decimal(buf, (uint64_t)ids[i] + 1);
        }
        poise_buf_putc(buf, '\n');
    }
    return 0;
}

int graph_save_metis(const struct poise_graph_edges *edges,
                     struct graph_save *save)
{
    struct rows rows;
    struct poise_buf head = {0};
    if (edges->directed) {
        return poise_error_set(EINVAL, "write graph", save->path,
                               "METIS holds undirected graphs only");
    }
    int code = rows_build(edges, ROWS_OUT | ROWS_IN, save->threads, &rows);
    if (code == 0) {
        poise_buf_printf(&head, "%llu %llu\n",
                         (unsigned long long)rows.vertices,
                         (unsigned long long)rows_total(&rows) / 2);
        code = head.error;
    }
    if (code == 0) {
        code = graph_save_at(save, 0, head.data, head.len);
    }
    if (code == 0) {
        save->offset = head.len;
        code = graph_save_blocks(save, rows_blocks(&rows), metis_block, &rows);
    }
    poise_buf_free(&head);
    rows_free(&rows);
    return code;
}

/* ---- GAP ------------------------------------------------------------------
 */

static int gap_block(uint64_t index, struct poise_buf *buf, void *arg)
{
    const struct rows *rows = arg;
    uint64_t from = index * ROWS_BLOCK, to = from + ROWS_BLOCK;
    for (uint64_t v = from; v < to && v < rows->vertices; v++) {
        poise_buf_append(buf, rows->ids + rows->starts[v],
                         rows->lengths[v] * sizeof *rows->ids);
    }
    return 0;
}

/* Where rows start once duplicates are gone; `starts` of the rows stays. */
static int gap_save_starts(struct graph_save *save, const struct rows *rows)
{
    uint64_t *starts = poise_alloc(rows->vertices + 1, sizeof *starts);
    if (!starts) {
        return -ENOMEM;
    }
    for (uint64_t v = 0; v < rows->vertices; v++) {
        starts[v + 1] = starts[v] + rows->lengths[v];
    }
    int code = graph_save_at(save, save->offset, starts,
                             (rows->vertices + 1) * sizeof *starts);
    save->offset += (rows->vertices + 1) * sizeof *starts;
    free(starts);
    return code;
}

static int gap_save_rows(struct graph_save *save,
                         const struct poise_graph_edges *edges, unsigned way,
                         bool header)
{
    struct rows rows;
    int code = rows_build(edges, way, save->threads, &rows);
    if (code == 0 && header) {
        unsigned char front[17] = {edges->directed};
        uint64_t numbers[2] = {rows_total(&rows), rows.vertices};
        memcpy(front + 1, numbers, sizeof numbers);
        code = graph_save_at(save, 0, front, sizeof front);
        save->offset = sizeof front;
    }
    if (code == 0) {
        code = gap_save_starts(save, &rows);
    }
    if (code == 0) {
        code = graph_save_blocks(save, rows_blocks(&rows), gap_block, &rows);
    }
    rows_free(&rows);
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
