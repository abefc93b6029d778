/* Which format a file has, and how ranks share it. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *const poise_graph_format_names[] = {
    "auto", "snap",  "mtx", "metis", "dimacs",
    "gap",  "poise", "csv", "tsv",   NULL};

static bool load_ends_with(const char *path, size_t len, const char *suffix)
{
    size_t n = strlen(suffix);
    return len > n && strncasecmp(path + len - n, suffix, n) == 0;
}

enum poise_graph_format graph_format_of_name(const char *path)
{
    static const struct {
        const char *suffix;
        enum poise_graph_format format;
    } known[] = {
        {".mtx", POISE_GRAPH_FORMAT_MTX},
        {".mm", POISE_GRAPH_FORMAT_MTX},
        {".graph", POISE_GRAPH_FORMAT_METIS},
        {".metis", POISE_GRAPH_FORMAT_METIS},
        {".gr", POISE_GRAPH_FORMAT_DIMACS},
        {".dimacs", POISE_GRAPH_FORMAT_DIMACS},
        {".col", POISE_GRAPH_FORMAT_DIMACS},
        {".sg", POISE_GRAPH_FORMAT_GAP},
        {".wsg", POISE_GRAPH_FORMAT_GAP},
        {".pg", POISE_GRAPH_FORMAT_POISE},
        {".el", POISE_GRAPH_FORMAT_SNAP},
        {".wel", POISE_GRAPH_FORMAT_SNAP},
        {".txt", POISE_GRAPH_FORMAT_SNAP},
        {".csv", POISE_GRAPH_FORMAT_CSV},
        {".tsv", POISE_GRAPH_FORMAT_TSV},
    };
    size_t len = strlen(path);
    if (load_ends_with(path, len, ".gz")) {
        len -= 3;
    } else if (load_ends_with(path, len, ".zst")) {
        len -= 4;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (load_ends_with(path, len, known[i].suffix)) {
            return known[i].format;
        }
    }
    return POISE_GRAPH_FORMAT_AUTO;
}

/* By its first bytes, unpacked; then by its name; else an edge list. */
static int load_format(struct graph_load *load, enum poise_graph_format *format)
{
    static const char banner[] = "%%MatrixMarket";
    char head[GRAPH_SOURCE_HEAD + 1] = "";
    const char *first;
    ssize_t n = graph_source_peek(load->source, &first);
    if (n < 0) {
        return (int)n;
    }
    memcpy(head, first, (size_t)n);
    *format = graph_format_of_name(load->path);
    if (strncasecmp(head, banner, strlen(banner)) == 0) {
        *format = POISE_GRAPH_FORMAT_MTX;
    } else if (memcmp(head, GRAPH_BINARY_MAGIC, 8) == 0) {
        *format = POISE_GRAPH_FORMAT_POISE;
    } else if (*format == POISE_GRAPH_FORMAT_AUTO) {
        bool dimacs = strncmp(head, "p sp ", 5) == 0 ||
                      strncmp(head, "p edge ", 7) == 0 ||
                      strncmp(head, "c ", 2) == 0;
        *format = dimacs ? POISE_GRAPH_FORMAT_DIMACS : POISE_GRAPH_FORMAT_SNAP;
    }
    return 0;
}

/* Binary formats are read at many places: what is packed, or can be read once
 * only, goes into a temporary file. */
static int load_copy(struct graph_load *load)
{
    enum { BYTES = 1 << 18 };
    const char *folder = poise_file_temporary_folder();
    char *data = poise_alloc(BYTES, 1);
    int code = data ? poise_file_nameless(folder, 0) : -ENOMEM;
    ssize_t n = BYTES;
    load->fd = code;
    while (code >= 0 && n == BYTES) {
        n = graph_source_read(load->source, data, BYTES);
        code = n < 0 ? (int)n
                     : poise_file_write(load->fd, data, (size_t)n,
                                        "a temporary file");
        if (n >= 0 && code < 0) {
            code = poise_error_set(-code, "write a temporary file in", folder,
                                   NULL);
        }
    }
    free(data);
    return code < 0 ? code : 0;
}

static int load_binary(struct graph_load *load)
{
    if (graph_source_is_stream(load->source) ||
        graph_source_is_packed(load->source)) {
        return load_copy(load);
    }
    load->fd = poise_file_open(AT_FDCWD, load->path, O_RDONLY, 0);
    return load->fd < 0 ? load->fd : 0;
}

/* What is no plain file is opened only once: a pipe would lose bytes. */
static int load_open(struct graph_load *load, enum poise_graph_format *format)
{
    int code = graph_source_open(load->path, load->size, &load->source);
    if (code == 0 && *format == POISE_GRAPH_FORMAT_AUTO) {
        code = load_format(load, format);
    }
    if (code == 0 && (*format == POISE_GRAPH_FORMAT_GAP ||
                      *format == POISE_GRAPH_FORMAT_POISE)) {
        code = load_binary(load);
    }
    return code;
}

static void load_close(struct graph_load *load)
{
    graph_source_close(load->source);
    if (load->fd >= 0) {
        poise_file_close(load->fd, load->path);
    }
}

int graph_load_text(struct graph_load *load, struct graph_text *text)
{
    int code = 0;
    if (!load->source) {
        code = graph_source_open(load->path, load->size, &load->source);
    }
    graph_text_open(text, load->source, load->path, load->options);
    load->source = NULL;
    text->rank = load->rank;
    text->size = load->size;
    return code;
}

static int load_reduce(const struct graph_load *load, enum poise_reduce op,
                       int code, uint64_t *value)
{
    code = graph_agree(load->world, code);
    if (code == 0 && load->world) {
        code = poise_world_reduce(load->world, op, value, 1);
    }
    return code;
}

int graph_load_sum(const struct graph_load *load, int code, uint64_t *value)
{
    return load_reduce(load, POISE_SUM, code, value);
}

int graph_load_max(const struct graph_load *load, int code, uint64_t *value)
{
    return load_reduce(load, POISE_MAX, code, value);
}

void graph_load_keep_share(const struct graph_load *load)
{
    struct poise_graph_edges *edges = load->out;
    uint64_t first, count;
    graph_share(load->world, edges->count, &first, &count);
    if (count == edges->count) {
        return;
    }
    const uint64_t each = 2 * sizeof *edges->ends;
    if (count > 0) {
        memmove(edges->ends, edges->ends + 2 * first, count * each);
    }
    graph_pages_drop(edges->ends + 2 * count, (edges->count - count) * each);
    edges->count = count;
}

int poise_graph_load(struct poise_world *world, const char *path,
                     const struct poise_graph_load_options *options,
                     struct poise_graph_edges *out)
{
    static int (*const readers[])(struct graph_load * load) = {
        [POISE_GRAPH_FORMAT_SNAP] = graph_read_snap,
        [POISE_GRAPH_FORMAT_MTX] = graph_read_mtx,
        [POISE_GRAPH_FORMAT_METIS] = graph_read_metis,
        [POISE_GRAPH_FORMAT_DIMACS] = graph_read_dimacs,
        [POISE_GRAPH_FORMAT_GAP] = graph_read_gap,
        [POISE_GRAPH_FORMAT_POISE] = graph_read_poise,
        [POISE_GRAPH_FORMAT_CSV] = graph_read_csv,
        [POISE_GRAPH_FORMAT_TSV] = graph_read_tsv,
    };
    struct poise_graph_load_options none = {0};
    struct poise_graph_edges edges = {0};
    struct graph_load load = {
        .path = path,
        .options = options ? options : &none,
        .world = world,
        .rank = world ? poise_world_rank(world) : 0,
        .size = world ? poise_world_size(world) : 1,
        .fd = -1,
        .out = &edges,
    };
    enum poise_graph_format format = load.options->format;
    int code = graph_agree(world, load_open(&load, &format));
    if (code == 0) {
        code = graph_agree(world, readers[format](&load));
    }
    load_close(&load);
    if (code == 0 && edges.vertex_count == 0) {
        code = poise_error_set(EBADMSG, "read graph", path,
                               "there is no vertex in it");
    }
    if (code < 0) {
        poise_graph_edges_free(&edges);
        return code;
    }
    *out = edges;
    return 0;
}
