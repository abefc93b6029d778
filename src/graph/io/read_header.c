/* Formats that say in front what follows: Matrix Market, DIMACS. */
#include "internal.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

enum { HEADER_WORDS = 6 };

/** A line of a header in words. */
struct header_line {
    const char *word[HEADER_WORDS];
    size_t len[HEADER_WORDS];
    unsigned count; /* may be more than are kept */
};

static void header_split(const char *at, size_t len, struct header_line *out)
{
    out->count = 0;
    if (len == 0) {
        return; /* `at` may be null, to which nothing can be added */
    }
    const char *end = at + len;
    for (;;) {
        while (at < end && (*at == ' ' || *at == '\t')) {
            at++;
        }
        if (at == end) {
            return;
        }
        const char *start = at;
        while (at < end && *at != ' ' && *at != '\t') {
            at++;
        }
        if (out->count < HEADER_WORDS) {
            out->word[out->count] = start;
            out->len[out->count] = (size_t)(at - start);
        }
        out->count++;
    }
}

static bool header_is(const struct header_line *line, unsigned i,
                      const char *word)
{
    return i < line->count && line->len[i] == strlen(word) &&
           strncasecmp(line->word[i], word, line->len[i]) == 0;
}

static bool header_number(const struct header_line *line, unsigned i,
                          uint64_t *value)
{
    const char *stop = i < line->count && i < HEADER_WORDS
                           ? graph_number(line->word[i], value)
                           : NULL;
    return stop && stop == line->word[i] + line->len[i];
}

/* The next line that is neither empty nor begins with `comment`. -EBADMSG at
 * the end of the file. */
static int header_next(struct graph_text *text, char comment,
                       struct header_line *out)
{
    const char *line;
    size_t len;
    int code;
    while ((code = graph_text_line(text, false, &line, &len)) > 0) {
        header_split(line, len, out);
        if (out->count > 0 && *out->word[0] != comment) {
            return 0;
        }
    }
    return code < 0 ? code
                    : poise_error_set(EBADMSG, "read graph", text->path,
                                      "the file ends within its header");
}

/* What the header promised, checked before and after. */
static int header_read_pairs(struct graph_load *load, struct graph_text *text,
                             uint64_t vertices, uint64_t edges)
{
    uint64_t found = 0;
    int code = graph_memory_check(
        "read graph", load->path, edges / (uint64_t)load->size, "edges",
        2 * sizeof(uint32_t), load->options->memory_bytes);
    if (code == 0 && vertices >= POISE_GRAPH_MAX_VERTICES) {
        code = graph_text_bad_header(
            text, "%llu vertices are more than %llu",
            (unsigned long long)vertices,
            (unsigned long long)POISE_GRAPH_MAX_VERTICES - 1);
    }
    text->parse = graph_parse_pairs;
    text->base = 1;
    text->limit = vertices;
    if (code == 0) {
        code = graph_text_run(text);
    }
    if (code == 0) {
        code = graph_text_collect(text, load->out);
        found = load->out->count;
    }
    code = graph_load_sum(load, code, &found);
    if (code == 0 && found != edges) {
        code = poise_error_set(
            EBADMSG, "read graph", load->path,
            "its header promises %llu edges, but %llu are there%s",
            (unsigned long long)edges, (unsigned long long)found,
            found < edges ? "; is it cut short?" : "");
    }
    load->out->vertex_count = vertices;
    return code;
}

/* ---- Matrix Market ------------------------------------------------------ */

/* The kinds of entries, and what follows two indices. */
static const struct {
    const char *name;
    enum graph_values values;
} mtx_fields[] = {
    {"pattern", GRAPH_VALUES_NONE},    {"real", GRAPH_VALUES_REAL},
    {"integer", GRAPH_VALUES_INTEGER}, {"double", GRAPH_VALUES_REAL},
    {"complex", GRAPH_VALUES_COMPLEX},
};
enum { MTX_GENERAL, MTX_SYMMETRIC, MTX_HERMITIAN, MTX_SKEW };
static const char *const mtx_symmetries[] = {"general", "symmetric",
                                             "hermitian", "skew-symmetric"};
enum {
    MTX_FIELDS = sizeof mtx_fields / sizeof *mtx_fields,
    MTX_SYMMETRIES = sizeof mtx_symmetries / sizeof *mtx_symmetries
};

/* The last two words: which of them go together is laid down, too. */
static int mtx_kind(struct graph_text *text, const struct header_line *words,
                    bool *directed)
{
    unsigned field = 0, symmetry = 0;
    while (field < MTX_FIELDS && !header_is(words, 3, mtx_fields[field].name)) {
        field++;
    }
    while (symmetry < MTX_SYMMETRIES &&
           !header_is(words, 4, mtx_symmetries[symmetry])) {
        symmetry++;
    }
    if (field == MTX_FIELDS || symmetry == MTX_SYMMETRIES) {
        return graph_text_bad_header(text,
                                     "unknown kind of entries or symmetry");
    }
    text->values = mtx_fields[field].values;
    text->no_loops = symmetry == MTX_SKEW;
    *directed = symmetry == MTX_GENERAL;
    if ((symmetry == MTX_HERMITIAN && text->values != GRAPH_VALUES_COMPLEX) ||
        (symmetry == MTX_SKEW && text->values == GRAPH_VALUES_NONE)) {
        return graph_text_bad_header(
            text, "there are no %s matrices of kind %s",
            mtx_symmetries[symmetry], mtx_fields[field].name);
    }
    return 0;
}

static int mtx_banner(struct graph_text *text, bool *directed)
{
    const char *line;
    size_t len;
    struct header_line words;
    int code = graph_text_line(text, false, &line, &len);
    if (code < 0) {
        return code;
    }
    header_split(line, code > 0 ? len : 0, &words);
    if (!header_is(&words, 0, "%%MatrixMarket") ||
        !header_is(&words, 1, "matrix")) {
        return graph_text_bad_header(text,
                                     "'%%%%MatrixMarket matrix ...' is wanted");
    }
    if (!header_is(&words, 2, "coordinate")) {
        return graph_text_bad_header(text,
                                     "only sparse matrices ('coordinate') are "
                                     "graphs");
    }
    if (words.count > 5) {
        return graph_text_bad_header(text, "more words than five");
    }
    return mtx_kind(text, &words, directed);
}

/* A comment in which LAGraph says of which type the entries are: it gives those
 * of kind integer a range, or makes them real. */
static int mtx_type(struct graph_text *text, const struct header_line *words)
{
    static const struct {
        const char *name;
        uint64_t most; /* 0: real numbers */
        bool is_signed;
    } types[] = {
        {"bool", 1, false},
        {"int8_t", INT8_MAX, true},
        {"int16_t", INT16_MAX, true},
        {"int32_t", INT32_MAX, true},
        {"int64_t", INT64_MAX, true},
        {"uint8_t", UINT8_MAX, false},
        {"uint16_t", UINT16_MAX, false},
        {"uint32_t", UINT32_MAX, false},
        {"uint64_t", UINT64_MAX, false},
        {"float", 0, true},
        {"double", 0, true},
    };
    enum { TYPES = sizeof types / sizeof *types };
    unsigned type = 0;
    while (type < TYPES && !header_is(words, 2, types[type].name)) {
        type++;
    }
    if (type == TYPES) {
        return graph_text_bad_header(text, "unknown type of GraphBLAS");
    }
    if (text->no_loops && !types[type].is_signed) {
        return graph_text_bad_header(text, "%s has no skew-symmetric matrices",
                                     types[type].name);
    }
    text->value_most = types[type].most;
    text->value_signed = types[type].is_signed;
    if (types[type].most == 0 && text->values == GRAPH_VALUES_INTEGER) {
        text->values = GRAPH_VALUES_REAL;
    }
    return 0;
}

/* From the banner to the line of sizes. */
static int mtx_sizes(struct graph_text *text, struct header_line *line)
{
    const char *next;
    size_t len;
    int code;
    while ((code = graph_text_line(text, false, &next, &len)) > 0) {
        header_split(next, len, line);
        if (header_is(line, 0, "%%GraphBLAS") && header_is(line, 1, "type")) {
            code = mtx_type(text, line);
            if (code < 0) {
                return code;
            }
        } else if (line->count > 0 && *line->word[0] != '%') {
            return 0;
        }
    }
    return code < 0 ? code
                    : poise_error_set(EBADMSG, "read graph", text->path,
                                      "the file ends within its header");
}

int graph_read_mtx(struct graph_load *load)
{
    struct graph_text text;
    struct header_line line;
    uint64_t rows = 0, columns = 0, entries = 0;
    int code = graph_load_text(load, &text);
    text.comments = "%";
    if (code == 0) {
        code = mtx_banner(&text, &load->out->directed);
    }
    if (code == 0) {
        code = mtx_sizes(&text, &line);
    }
    if (code == 0 && (line.count != 3 || !header_number(&line, 0, &rows) ||
                      !header_number(&line, 1, &columns) ||
                      !header_number(&line, 2, &entries))) {
        code = graph_text_bad_header(
            &text, "the numbers of rows, columns and entries are wanted");
    }
    if (code == 0 && rows != columns) {
        code = graph_text_bad_header(
            &text,
            "%llu rows and %llu columns: only a square matrix is a graph",
            (unsigned long long)rows, (unsigned long long)columns);
    }
    code = graph_agree(load->world, code);
    if (code == 0) {
        code = header_read_pairs(load, &text, rows, entries);
    }
    graph_text_close(&text);
    return code;
}

/* ---- DIMACS ------------------------------------------------------------- */

int graph_read_dimacs(struct graph_load *load)
{
    struct graph_text text;
    struct header_line line;
    uint64_t vertices = 0, edges = 0;
    int code = graph_load_text(load, &text);
    text.comments = "c";
    if (code == 0) {
        code = header_next(&text, 'c', &line);
    }
    if (code == 0) {
        bool arcs = header_is(&line, 1, "sp");
        bool known =
            arcs || header_is(&line, 1, "edge") || header_is(&line, 1, "col");
        if (line.count != 4 || !header_is(&line, 0, "p") || !known ||
            !header_number(&line, 2, &vertices) ||
            !header_number(&line, 3, &edges)) {
            code = graph_text_bad_header(
                &text, "'p sp VERTICES ARCS' or 'p edge VERTICES EDGES' is "
                       "wanted");
        }
        text.tag = arcs ? 'a' : 'e';
        /* Arcs have a length; beside edges stand what nodes are and where. */
        text.values = arcs ? GRAPH_VALUES_REAL : GRAPH_VALUES_NONE;
        text.comments = arcs ? "c" : "cndvx";
        load->out->directed = arcs;
    }
    code = graph_agree(load->world, code);
    if (code == 0) {
        code = header_read_pairs(load, &text, vertices, edges);
    }
    graph_text_close(&text);
    return code;
}
