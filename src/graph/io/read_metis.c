/*
 * METIS: a header, then one row of neighbours for each vertex, each edge in
 * the rows of both its ends. The number of a row is known only when all rows
 * before are counted, so blocks number their own rows and are put right
 * afterwards.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool metis_is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static const char *metis_blanks(const char *at, const char *end)
{
    while (at < end && metis_is_blank(*at)) {
        at++;
    }
    return at;
}

/* One row: its neighbours are appended as (row, neighbour). */
static int metis_row(struct graph_block *block, const char *at, const char *end)
{
    const struct graph_text *text = block->text;
    struct graph_segment *segment = block->segment;
    uint32_t *out = block->out32 + 2 * segment->count;
    unsigned skip = text->skip, place = 0;
    for (at = metis_blanks(at, end); at < end; at = metis_blanks(at, end)) {
        uint64_t value;
        const char *start = at, *stop = graph_number(at, &value);
        if (!stop || stop == at || (stop < end && !metis_is_blank(*stop))) {
            return graph_text_bad(block, segment->lines,
                                  "'%.*s' is not a number",
                                  graph_token_width(at, end), at);
        }
        at = stop;
        if (skip > 0) {
            skip--;
            continue;
        }
        if (place > 0 && value == 0) {
            return graph_text_bad(block, segment->lines,
                                  "an edge of weight 0; weights are positive");
        }
        if (place == 0) {
            if (value - 1 >= text->limit) {
                return graph_text_bad(block, segment->lines,
                                      "neighbour %.*s is not within 1 and %llu",
                                      graph_token_width(start, end), start,
                                      (unsigned long long)text->limit);
            }
            *out++ = (uint32_t)segment->rows;
            *out++ = (uint32_t)(value - 1);
            segment->count++;
        }
        place = (place + 1) % text->stride;
    }
    if (skip > 0 && skip < text->skip) {
        return graph_text_bad(block, segment->lines,
                              "%u of the numbers before the neighbours are "
                              "missing",
                              skip);
    }
    if (place != 0) {
        return graph_text_bad(block, segment->lines,
                              "the last neighbour has no weight");
    }
    return 0;
}

static int metis_parse(struct graph_block *block)
{
    struct graph_segment *segment = block->segment;
    segment->lines = segment->rows = segment->last = segment->empty = 0;
    for (const char *at = block->at, *end; at < block->end; at = end + 1) {
        end = memchr(at, '\n', (size_t)(block->end - at));
        segment->lines++;
        const char *stop = end > at && end[-1] == '\r' ? end - 1 : end;
        const char *start = metis_blanks(at, stop);
        if (*start == '%' && start < stop) {
            continue;
        }
        int code = metis_row(block, at, stop);
        if (code < 0) {
            return code;
        }
        segment->rows++;
        if (start < stop) {
            segment->last = segment->rows;
            segment->most = segment->lines; /* the line of that row */
        } else if (segment->empty == 0) {
            segment->empty = segment->rows;
            segment->empty_line = segment->lines;
        }
    }
    return 0;
}

/** What the segments are put right with. */
struct metis_fix {
    struct graph_segment *next;
    uint64_t row; /* of the next segment's first */
    pthread_mutex_t *lock;
    uint64_t balance, loops; /* __atomic */
};

/* Keep each edge once, in the row of its smaller end. An edge that stands in
 * one row only leaves `balance` (almost certainly) other than zero. */
static void metis_fix_segment(struct metis_fix *fix,
                              struct graph_segment *segment, uint64_t row)
{
    uint32_t *ends = segment->pairs;
    uint64_t kept = 0, balance = 0, loops = 0;
    for (uint64_t i = 0; i < segment->count; i++) {
        uint64_t from = ends[2 * i] + row, to = ends[2 * i + 1];
        if (from < to) {
            balance += poise_hash_u64((from << 32 | to) + 1);
        } else if (from > to) {
            balance -= poise_hash_u64((to << 32 | from) + 1);
            continue;
        } else {
            loops++;
        }
        ends[2 * kept] = (uint32_t)from;
        ends[2 * kept + 1] = (uint32_t)to;
        kept++;
    }
    segment->count = kept;
    __atomic_fetch_add(&fix->balance, balance, __ATOMIC_RELAXED);
    __atomic_fetch_add(&fix->loops, loops, __ATOMIC_RELAXED);
}

static int metis_fix_part(unsigned thread, void *arg)
{
    struct metis_fix *fix = arg;
    (void)thread;
    for (;;) {
        pthread_mutex_lock(fix->lock);
        struct graph_segment *segment = fix->next;
        uint64_t row = fix->row;
        if (segment) {
            fix->next = segment->next;
            fix->row += segment->rows;
        }
        pthread_mutex_unlock(fix->lock);
        if (!segment) {
            return 0;
        }
        metis_fix_segment(fix, segment, row);
    }
}

/* As many rows as vertices; more are allowed if they are empty. */
static int metis_check_rows(struct graph_text *text, uint64_t *entries)
{
    uint64_t rows = 0;
    *entries = 0;
    for (struct graph_segment *s = text->first; s; s = s->next) {
        if (s->last > 0 && rows + s->last > text->limit) {
            return graph_text_bad_segment(
                text, s, s->most, "row %llu, but there are %llu vertices",
                (unsigned long long)(rows + s->last),
                (unsigned long long)text->limit);
        }
        if (text->skip > 0 && s->empty > 0 && rows + s->empty <= text->limit) {
            return graph_text_bad_segment(
                text, s, s->empty_line,
                "%u of the numbers before the neighbours are missing",
                text->skip);
        }
        rows += s->rows;
        *entries += s->count;
    }
    if (rows < text->limit) {
        return poise_error_set(
            EBADMSG, "read graph", text->path,
            "its header promises %llu vertices, but %llu rows are there",
            (unsigned long long)text->limit, (unsigned long long)rows);
    }
    return 0;
}

static int metis_read(struct graph_load *load, struct graph_text *text,
                      uint64_t edges)
{
    uint64_t entries = 0;
    int code = graph_text_run(text);
    if (code == 0) {
        code = metis_check_rows(text, &entries);
    }
    if (code < 0) {
        return code;
    }
    struct metis_fix fix = {.next = text->first, .lock = &text->lock};
    code = graph_parallel(load->options->threads, metis_fix_part, &fix);
    if (code < 0) {
        return code;
    }
    if (entries != 2 * edges && entries + fix.loops != 2 * edges) {
        return poise_error_set(
            EBADMSG, "read graph", load->path,
            "its header promises %llu edges, so %llu neighbours, but %llu are "
            "there",
            (unsigned long long)edges, (unsigned long long)(2 * edges),
            (unsigned long long)entries);
    }
    if (fix.balance != 0) {
        return poise_error_set(EBADMSG, "read graph", load->path,
                               "some edge stands in the row of one of its ends "
                               "only");
    }
    return graph_text_collect(text, load->out);
}

/* "VERTICES EDGES [FORMAT [WEIGHTS]]": the digits of FORMAT say whether there
 * are sizes of vertices, weights of vertices and weights of edges. */
static int metis_header(struct graph_text *text, uint64_t *vertices,
                        uint64_t *edges)
{
    const char *line;
    size_t len;
    uint64_t number[4] = {0, 0, 0, 1};
    unsigned count = 0;
    int code;
    do {
        code = graph_text_line(text, false, &line, &len);
        if (code <= 0) {
            return code < 0 ? code
                            : poise_error_set(EBADMSG, "read graph", text->path,
                                              "the file has no header");
        }
    } while (len > 0 && line[0] == '%');
    const char *end = line + len, *at = metis_blanks(line, end);
    while (at < end && count < 4) {
        const char *stop = graph_number(at, &number[count++]);
        if (!stop || stop == at || stop > end) {
            count = 0;
            break;
        }
        at = metis_blanks(stop, end);
    }
    if (count < 2 || at < end || number[2] > 111 || number[2] % 10 > 1 ||
        number[2] / 10 % 10 > 1 || number[3] < 1 || number[3] > 1000 ||
        (count == 4 && number[2] / 10 % 10 == 0)) {
        return graph_text_bad_header(
            text, "'VERTICES EDGES [FORMAT [WEIGHTS]]' is wanted");
    }
    *vertices = number[0];
    *edges = number[1];
    text->skip =
        (unsigned)(number[2] / 100 + (number[2] / 10 % 10 ? number[3] : 0));
    text->stride = number[2] % 10 ? 2 : 1;
    return 0;
}

int graph_read_metis(struct graph_load *load)
{
    struct graph_text text;
    uint64_t edges = 0;
    int code = graph_load_text(load, &text);
    text.parse = metis_parse;
    text.least_bytes = 2;
    text.long_lines = true;
    text.size = 1; /* the number of a row needs all rows before it */
    text.rank = 0;
    if (code == 0) {
        code = metis_header(&text, &text.limit, &edges);
    }
    if (code == 0 && text.limit >= POISE_GRAPH_MAX_VERTICES) {
        code = graph_text_bad_header(
            &text, "%llu vertices are more than %llu",
            (unsigned long long)text.limit,
            (unsigned long long)POISE_GRAPH_MAX_VERTICES - 1);
    }
    if (code == 0) {
        /* Both directions stand in memory for a while. */
        code = graph_memory_check("read graph", load->path, edges, "edges",
                                  4 * sizeof(uint32_t),
                                  load->options->memory_bytes);
    }
    if (code == 0) {
        code = metis_read(load, &text, edges);
    }
    load->out->vertex_count = text.limit;
    load->out->directed = false;
    code = graph_agree(load->world, code);
    if (code == 0) {
        graph_load_keep_share(load);
    }
    graph_text_close(&text);
    return code;
}
