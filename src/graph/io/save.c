/* Writing graphs and trees: made in parallel, block by block, written in
 * order. */
#include "internal.h"

#include <poise/output.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { SAVE_ITEMS = 1 << 15 }; /* edges or vertices in a block of text */

int graph_save_open(struct graph_save *save, const char *path)
{
    const struct poise_output_options options = {.inputs = {save->input}};
    int code = poise_output_open(path, &options, &save->output);
    save->path = path;
    save->fd = code == 0 ? poise_output_fd(save->output) : -1;
    return code;
}

int graph_save_close(struct graph_save *save, int code)
{
    if (code == 0) {
        return poise_output_commit(save->output, false);
    }
    poise_output_abort(save->output);
    return code;
}

int graph_save_at(struct graph_save *save, uint64_t offset, const void *data,
                  size_t len)
{
    return poise_file_pwrite(save->fd, data, len, offset, save->path);
}

/* ---- blocks in order ---------------------------------------------------- */

struct save_job {
    struct graph_save *save;
    graph_save_block *make;
    void *arg;
    uint64_t blocks;
    uint64_t next; /* block to be made; __atomic */
    pthread_mutex_t lock;
    pthread_cond_t turn;
    uint64_t written; /* under the lock, like the rest */
    bool stop;
};

static int save_write_turn(struct save_job *job, unsigned thread,
                           const struct poise_buf *buf, uint64_t index,
                           int code)
{
    struct graph_save *save = job->save;
    pthread_mutex_lock(&job->lock);
    while (job->written != index && !job->stop) {
        pthread_cond_wait(&job->turn, &job->lock);
    }
    if (job->stop) {
        pthread_mutex_unlock(&job->lock);
        return code;
    }
    if (code == 0) {
        code = graph_save_at(save, save->offset, buf->data, buf->len);
        save->offset += buf->len;
    }
    if (code == 0 && thread == 0 && save->progress) {
        code = save->progress("write", index + 1, job->blocks, save->arg);
    }
    job->written++;
    job->stop = code < 0;
    pthread_cond_broadcast(&job->turn);
    pthread_mutex_unlock(&job->lock);
    return code;
}

static int save_part(unsigned thread, void *arg)
{
    struct save_job *job = arg;
    struct poise_buf buf = {0};
    int code = 0;
    while (code == 0) {
        uint64_t index = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
        if (index >= job->blocks) {
            break;
        }
        poise_buf_reset(&buf);
        code = job->make(index, &buf, job->arg);
        if (code == 0 && buf.error) {
            code =
                poise_error_set(ENOMEM, "write graph", job->save->path, NULL);
        }
        code = save_write_turn(job, thread, &buf, index, code);
        pthread_mutex_lock(&job->lock);
        bool stop = job->stop;
        pthread_mutex_unlock(&job->lock);
        if (stop) {
            break;
        }
    }
    poise_buf_free(&buf);
    return code;
}

int graph_save_blocks(struct graph_save *save, uint64_t blocks,
                      graph_save_block *make, void *arg)
{
    struct save_job job = {
        .save = save, .make = make, .arg = arg, .blocks = blocks};
    pthread_mutex_init(&job.lock, NULL);
    pthread_cond_init(&job.turn, NULL);
    int code = graph_parallel(save->threads, save_part, &job);
    pthread_cond_destroy(&job.turn);
    pthread_mutex_destroy(&job.lock);
    return code;
}

static uint64_t save_block_count(uint64_t items)
{
    return items / SAVE_ITEMS + (items % SAVE_ITEMS > 0);
}

/* ---- text --------------------------------------------------------------- */

/** How the pairs of a text format look. */
struct save_pairs {
    const struct poise_graph_edges *edges;
    const char *before, *between, *after;
    uint64_t base;
    bool lower; /* the larger first */
    char quote; /* names that hold this, or a quote, are quoted; NUL: none */
    const struct poise_graph_names *names;
};

char *graph_decimal(char *to, uint64_t value)
{
    char digits[GRAPH_DECIMAL];
    int n = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (n > 0) {
        *to++ = digits[--n];
    }
    return to;
}

static void save_vertex(const struct poise_graph_names *names, uint64_t base,
                        uint64_t label, struct poise_buf *buf)
{
    if (names) {
        size_t len;
        const char *name = poise_graph_names_of(names, (uint32_t)label, &len);
        poise_buf_append(buf, name, name ? len : 0);
        return;
    }
    char *to = poise_buf_reserve(buf, GRAPH_DECIMAL);
    if (to) {
        buf->len += (size_t)(graph_decimal(to, label + base) - to);
    }
}

/* Whether a file that begins with this name would be taken for another kind: a
 * byte-order mark, packed data, a graph of ours. */
static bool save_misleads(const char *name, size_t len)
{
    static const char *const marks[] = {"\xef\xbb\xbf",     "\xff\xfe",
                                        "\xfe\xff",         "\x1f\x8b",
                                        "\x28\xb5\x2f\xfd", GRAPH_BINARY_MAGIC};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t count = strlen(marks[i]);
        if (len >= count && memcmp(name, marks[i], count) == 0) {
            return true;
        }
    }
    return false;
}

/* A name as a field of CSV: where it must be, in quotes. */
static void save_quoted(const struct save_pairs *pairs, uint32_t label,
                        struct poise_buf *buf)
{
    size_t len;
    const char *name = poise_graph_names_of(pairs->names, label, &len);
    bool plain = name && !memchr(name, pairs->quote, len) &&
                 !memchr(name, '"', len) && !strchr("#% \t\f\v", name[0]) &&
                 !save_misleads(name, len);
    if (plain || !name) {
        poise_buf_append(buf, name, name ? len : 0);
        return;
    }
    poise_buf_putc(buf, '"');
    for (size_t i = 0; i < len; i++) {
        if (name[i] == '"') {
            poise_buf_putc(buf, '"');
        }
        poise_buf_putc(buf, name[i]);
    }
    poise_buf_putc(buf, '"');
}

static void save_end(const struct save_pairs *pairs, uint32_t label,
                     struct poise_buf *buf)
{
    if (pairs->names && pairs->quote) {
        save_quoted(pairs, label, buf);
    } else {
        save_vertex(pairs->names, pairs->base, label, buf);
    }
}

static int save_pairs_block(uint64_t index, struct poise_buf *buf, void *arg)
{
    const struct save_pairs *pairs = arg;
    const struct poise_graph_edges *edges = pairs->edges;
    uint64_t from = index * SAVE_ITEMS, to = from + SAVE_ITEMS;
    to = to < edges->count ? to : edges->count;
    for (uint64_t i = from; i < to; i++) {
        uint32_t a = edges->ends[2 * i], b = edges->ends[2 * i + 1];
        bool swap = pairs->lower && a < b;
        poise_buf_puts(buf, pairs->before);
        save_end(pairs, swap ? b : a, buf);
        poise_buf_puts(buf, pairs->between);
        save_end(pairs, swap ? a : b, buf);
        poise_buf_puts(buf, pairs->after);
    }
    return 0;
}

static int save_text(struct graph_save *save, struct poise_buf *head,
                     struct save_pairs *pairs)
{
    int code = head->error;
    if (code == 0) {
        code = graph_save_at(save, 0, head->data, head->len);
    }
    if (code == 0) {
        save->offset = head->len;
        code = graph_save_blocks(save, save_block_count(pairs->edges->count),
                                 save_pairs_block, pairs);
    }
    return code;
}

/* Names must come back as they went: nothing that parts fields or lines, and
 * none of `front` before them. */
static int save_check_names(const struct poise_graph_edges *edges,
                            const char *path, const char *parts,
                            const char *front)
{
    const size_t count = strlen(parts);
    for (uint64_t i = 0; i < graph_names_count(edges->names); i++) {
        size_t len;
        const char *name =
            poise_graph_names_of(edges->names, (uint32_t)i, &len);
        bool bad = len == 0 || strchr(front, name[0]) ||
                   (*front && save_misleads(name, len));
        for (size_t k = 0; k < len && !bad; k++) {
            bad = memchr(parts, name[k], count + 1) != NULL; /* NUL, too */
        }
        if (bad) {
            return poise_error_set(EINVAL, "write graph", path,
                                   "this format cannot hold the name '%.*s'",
                                   (int)(len < 40 ? len : 40), name);
        }
    }
    return 0;
}

static bool save_is_named(const char *path, const char *suffix)
{
    size_t len = strlen(path), end = strlen(suffix);
    return len > end && strcasecmp(path + len - end, suffix) == 0;
}

/* GAP's .el and .wel have no comments, and the latter weights. */
static int save_snap(const struct poise_graph_edges *edges,
                     struct graph_save *save)
{
    struct poise_buf head = {0};
    struct save_pairs pairs = {.edges = edges,
                               .before = "",
                               .between = "\t",
                               .after = "\n",
                               .names = edges->names};
    if (save_is_named(save->path, ".wel")) {
        pairs.after = "\t1\n";
    } else if (!save_is_named(save->path, ".el")) {
        poise_buf_printf(&head, "# %s graph\n# Nodes: %llu Edges: %llu\n",
                         edges->directed ? "Directed" : "Undirected",
                         (unsigned long long)edges->vertex_count,
                         (unsigned long long)edges->count);
    }
    int code = save_check_names(edges, save->path, " \t\r\n\f\v,", "#%\"");
    if (code == 0) {
        code = save_text(save, &head, &pairs);
    }
    poise_buf_free(&head);
    return code;
}

/* A line of two fields for each edge, without a header, which would turn
 * numbers into names. */
static int save_fields(const struct poise_graph_edges *edges,
                       struct graph_save *save, const struct save_pairs *as,
                       const char *parts, const char *front)
{
    struct poise_buf head = {0};
    struct save_pairs pairs = *as;
    int code = save_check_names(edges, save->path, parts, front);

    pairs.edges = edges;
    pairs.names = edges->names;
    return code < 0 ? code : save_text(save, &head, &pairs);
}

/* RFC 4180. */
static int save_csv(const struct poise_graph_edges *edges,
                    struct graph_save *save)
{
    const struct save_pairs pairs = {
        .before = "", .between = ",", .after = "\n", .quote = ','};
    return save_fields(edges, save, &pairs, "\r\n", "");
}

static int save_tsv(const struct poise_graph_edges *edges,
                    struct graph_save *save)
{
    const struct save_pairs pairs = {
        .before = "", .between = "\t", .after = "\n"};
    return save_fields(edges, save, &pairs, "\t\r\n", "#%");
}

static int save_mtx(const struct poise_graph_edges *edges,
                    struct graph_save *save)
{
    struct poise_buf head = {0};
    struct save_pairs pairs = {.edges = edges,
                               .before = "",
                               .between = " ",
                               .after = "\n",
                               .base = 1,
                               .lower = !edges->directed};
    poise_buf_printf(&head,
                     "%%%%MatrixMarket matrix coordinate pattern %s\n"
                     "%llu %llu %llu\n",
                     edges->directed ? "general" : "symmetric",
                     (unsigned long long)edges->vertex_count,
                     (unsigned long long)edges->vertex_count,
                     (unsigned long long)edges->count);
    int code = save_text(save, &head, &pairs);
    poise_buf_free(&head);
    return code;
}

static int save_dimacs(const struct poise_graph_edges *edges,
                       struct graph_save *save)
{
    struct poise_buf head = {0};
    struct save_pairs pairs = {.edges = edges,
                               .before = edges->directed ? "a " : "e ",
                               .between = " ",
                               .after = edges->directed ? " 1\n" : "\n",
                               .base = 1};
    poise_buf_printf(&head, "p %s %llu %llu\n", edges->directed ? "sp" : "edge",
                     (unsigned long long)edges->vertex_count,
                     (unsigned long long)edges->count);
    int code = save_text(save, &head, &pairs);
    poise_buf_free(&head);
    return code;
}

/* ---- names and trees ---------------------------------------------------- */

static int save_names_block(uint64_t index, struct poise_buf *buf, void *arg)
{
    const struct poise_graph_names *names = arg;
    uint64_t from = index * SAVE_ITEMS, to = from + SAVE_ITEMS;
    uint64_t count = graph_names_count(names);
    for (uint64_t i = from; i < to && i < count; i++) {
        save_vertex(names, 0, i, buf);
        poise_buf_putc(buf, '\n');
    }
    return 0;
}

/* The names that the format cannot hold go into a file of their own. */
static int save_names_beside(const struct poise_graph_edges *edges,
                             const char *path, const char *input,
                             unsigned threads)
{
    struct graph_save save = {.threads = threads, .fd = -1, .input = input};
    struct poise_buf name = {0};
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) {
        return poise_error_set(EINVAL, "write graph", path,
                               "its names need a file beside it, and it is no "
                               "regular file");
    }
    poise_buf_printf(&name, "%s.names", path);
    int code = graph_save_open(&save, poise_buf_str(&name));
    if (code == 0) {
        code = graph_save_blocks(
            &save, save_block_count(graph_names_count(edges->names)),
            save_names_block, edges->names);
    }
    code = graph_save_close(&save, code);
    poise_buf_free(&name);
    return code;
}

static int save_tree_text(uint64_t index, struct poise_buf *buf, void *arg)
{
    const struct poise_graph_tree *tree = arg;
    uint64_t from = index * SAVE_ITEMS, to = from + SAVE_ITEMS;
    to = to < tree->vertex_count ? to : tree->vertex_count;
    for (uint64_t v = from; v < to; v++) {
        save_vertex(tree->names, 0, v, buf);
        poise_buf_putc(buf, '\t');
        if (tree->parents[v] < 0) {
            poise_buf_puts(buf, "-\t-1\n");
            continue;
        }
        save_vertex(tree->names, 0, (uint64_t)tree->parents[v], buf);
        poise_buf_putc(buf, '\t');
        save_vertex(NULL, 0, (uint64_t)tree->depths[v], buf);
        poise_buf_putc(buf, '\n');
    }
    return 0;
}

static int save_tree_binary(uint64_t index, struct poise_buf *buf, void *arg)
{
    const struct poise_graph_tree *tree = arg;
    uint64_t from = index * SAVE_ITEMS, to = from + SAVE_ITEMS;
    to = to < tree->vertex_count ? to : tree->vertex_count;
    unsigned char *at =
        (unsigned char *)poise_buf_reserve(buf, 16 * (to - from));
    for (uint64_t v = from; v < to && at; v++, at += 16) {
        poise_put_u64(at, (uint64_t)tree->parents[v]);
        poise_put_u64(at + 8, (uint64_t)tree->depths[v]);
    }
    buf->len += at ? 16 * (to - from) : 0;
    return 0;
}

/* The header of a .npy file: padded so that the data begin at a multiple of
 * 64. */
static int save_npy_header(struct graph_save *save, uint64_t count)
{
    enum { NPY_HEADER = 128 };
    char text[NPY_HEADER + 1];
    int len = snprintf(text, sizeof text,
                       "\x93NUMPY\x01%c\x76%c{'descr': [('parent', '<i8'), "
                       "('depth', '<i8')], 'fortran_order': False, 'shape': "
                       "(%llu,), }",
                       0, 0, (unsigned long long)count);
    memset(text + len, ' ', (size_t)(NPY_HEADER - len));
    text[NPY_HEADER - 1] = '\n';
    save->offset = NPY_HEADER;
    return graph_save_at(save, 0, text, NPY_HEADER);
}

int poise_graph_save_tree(const struct poise_graph_tree *tree, const char *path,
                          bool binary, unsigned threads)
{
    struct graph_save save = {
        .threads = threads, .fd = -1, .input = tree->input};
    struct poise_graph_tree copy = *tree;
    int code = graph_save_open(&save, path);
    if (code == 0 && binary) {
        code = save_npy_header(&save, tree->vertex_count);
    }
    if (code == 0) {
        code = graph_save_blocks(&save, save_block_count(tree->vertex_count),
                                 binary ? save_tree_binary : save_tree_text,
                                 &copy);
    }
    return graph_save_close(&save, code);
}

static bool save_holds_names(enum poise_graph_format format)
{
    return format == POISE_GRAPH_FORMAT_SNAP ||
           format == POISE_GRAPH_FORMAT_POISE ||
           format == POISE_GRAPH_FORMAT_CSV || format == POISE_GRAPH_FORMAT_TSV;
}

int poise_graph_save(const struct poise_graph_edges *edges, const char *path,
                     const struct poise_graph_save_options *options)
{
    static int (*const writers[])(const struct poise_graph_edges *edges,
                                  struct graph_save *save) = {
        [POISE_GRAPH_FORMAT_SNAP] = save_snap,
        [POISE_GRAPH_FORMAT_MTX] = save_mtx,
        [POISE_GRAPH_FORMAT_METIS] = graph_save_metis,
        [POISE_GRAPH_FORMAT_DIMACS] = save_dimacs,
        [POISE_GRAPH_FORMAT_GAP] = graph_save_gap,
        [POISE_GRAPH_FORMAT_POISE] = graph_save_poise,
        [POISE_GRAPH_FORMAT_CSV] = save_csv,
        [POISE_GRAPH_FORMAT_TSV] = save_tsv,
    };
    struct poise_graph_save_options none = {0};
    options = options ? options : &none;
    struct graph_save save = {.fd = -1,
                              .threads = options->threads,
                              .input = options->input,
                              .progress = options->progress,
                              .arg = options->arg};
    enum poise_graph_format format = options->format;
    if (format == POISE_GRAPH_FORMAT_AUTO) {
        format = graph_format_of_name(path);
    }
    if (format == POISE_GRAPH_FORMAT_AUTO) {
        return poise_error_set(EINVAL, "write graph", path,
                               "its name does not say in which format");
    }
    int code = graph_save_open(&save, path);
    if (code == 0) {
        code = writers[format](edges, &save);
    }
    code = graph_save_close(&save, code);
    if (code == 0 && edges->names && !save_holds_names(format)) {
        code = save_names_beside(edges, path, options->input, options->threads);
    }
    return code;
}
