/*
 * Our own file of edges: ids of as few bytes as the number of vertices needs,
 * in blocks with a checksum each, little-endian. Layout: docs/formats.md.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    BINARY_HEADER = 64,
    BINARY_BLOCK = 1 << 17, /* edges */
    BINARY_VERSION = 1,
    BINARY_DIRECTED = 1, /* flags */
    BINARY_NAMES = 2,
};
#define BINARY_MARK UINT32_C(0x01020304)

struct binary {
    const char *path;
    int fd;
    uint64_t flags, vertices, edges, name_bytes;
    unsigned id_bytes;
    uint64_t blocks;  /* of edges */
    uint64_t *hashes; /* of each block; then of the names, if there are any */
};

static void binary_put(unsigned char *to, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        to[i] = (unsigned char)(value >> (8 * i));
    }
}

static uint64_t binary_get(const unsigned char *from, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)from[i] << (8 * i);
    }
    return value;
}

static uint64_t binary_hash_count(const struct binary *file)
{
    return file->blocks + (file->flags & BINARY_NAMES ? 1 : 0);
}

/* The table of hashes and its own hash follow the header. */
static uint64_t binary_data_offset(const struct binary *file)
{
    return BINARY_HEADER + 8 * (binary_hash_count(file) + 1);
}

static uint64_t binary_block_edges(const struct binary *file, uint64_t block)
{
    uint64_t left = file->edges - block * BINARY_BLOCK;
    return left < BINARY_BLOCK ? left : BINARY_BLOCK;
}

static uint64_t binary_block_offset(const struct binary *file, uint64_t block)
{
    return binary_data_offset(file) + block * BINARY_BLOCK * 2 * file->id_bytes;
}

static void binary_init(struct binary *file)
{
    file->id_bytes = 1;
    while (file->id_bytes < 4 && file->vertices > 1ULL << 8 * file->id_bytes) {
        file->id_bytes++;
    }
    file->blocks =
        file->edges / BINARY_BLOCK + (file->edges % BINARY_BLOCK > 0);
}

/* ---- writing ------------------------------------------------------------ */

struct binary_save {
    struct binary file;
    const struct poise_graph_edges *edges;
};

static int binary_encode(uint64_t block, struct poise_buf *buf, void *arg)
{
    struct binary_save *save = arg;
    struct binary *file = &save->file;
    const unsigned bytes = file->id_bytes;
    uint64_t ids = 2 * binary_block_edges(file, block);
    const uint32_t *ends = save->edges->ends + 2 * block * BINARY_BLOCK;
    unsigned char *to = (unsigned char *)poise_buf_reserve(buf, ids * bytes);
    if (!to) {
        return poise_error_set(ENOMEM, "write graph", file->path, NULL);
    }
    for (uint64_t i = 0; i < ids; i++) {
        binary_put(to + i * bytes, ends[i], bytes);
    }
    buf->len += ids * bytes;
    file->hashes[block] = poise_hash_bytes(to, ids * bytes, 0);
    return 0;
}

static int binary_encode_names(struct binary *file,
                               const struct poise_graph_names *names,
                               struct poise_buf *buf)
{
    const uint64_t *starts = graph_names_starts(names);
    for (uint64_t i = 0; i < file->vertices; i++) {
        poise_buf_varint(buf, starts[i + 1] - starts[i]);
    }
    poise_buf_append(buf, graph_names_text(names), starts[file->vertices]);
    if (buf->error) {
        return poise_error_set(ENOMEM, "write graph", file->path, NULL);
    }
    file->name_bytes = buf->len;
    file->hashes[file->blocks] = poise_hash_bytes(buf->data, buf->len, 0);
    return 0;
}

static int binary_write_front(struct binary *file, struct graph_save *save)
{
    uint64_t count = binary_hash_count(file);
    size_t bytes = BINARY_HEADER + 8 * (count + 1);
    unsigned char *front = poise_alloc(bytes, 1);
    if (!front) {
        return -ENOMEM;
    }
    memcpy(front, GRAPH_BINARY_MAGIC, 8);
    binary_put(front + 8, BINARY_MARK, 4);
    binary_put(front + 12, BINARY_VERSION, 4);
    binary_put(front + 16, file->flags, 8);
    binary_put(front + 24, file->vertices, 8);
    binary_put(front + 32, file->edges, 8);
    binary_put(front + 40, file->id_bytes, 8);
    binary_put(front + 48, file->name_bytes, 8);
    binary_put(front + 56, poise_hash_bytes(front, 56, 0), 8);
    for (uint64_t i = 0; i < count; i++) {
        binary_put(front + BINARY_HEADER + 8 * i, file->hashes[i], 8);
    }
    binary_put(front + bytes - 8,
               poise_hash_bytes(front + BINARY_HEADER, 8 * count, 0), 8);
    int code = graph_save_at(save, 0, front, bytes);
    free(front);
    return code;
}

int graph_save_poise(const struct poise_graph_edges *edges,
                     struct graph_save *save)
{
    struct binary_save binary = {
        .edges = edges,
        .file = {.path = save->path,
                 .flags = (edges->directed ? BINARY_DIRECTED : 0) |
                          (edges->names ? BINARY_NAMES : 0),
                 .vertices = edges->vertex_count,
                 .edges = edges->count}};
    struct binary *file = &binary.file;
    struct poise_buf names = {0};
    binary_init(file);
    file->hashes = poise_alloc(binary_hash_count(file), sizeof *file->hashes);
    if (!file->hashes) {
        return -ENOMEM;
    }
    save->offset = binary_data_offset(file);
    int code = graph_save_blocks(save, file->blocks, binary_encode, &binary);
    if (code == 0 && edges->names) {
        code = binary_encode_names(file, edges->names, &names);
        if (code == 0) {
            code = graph_save_at(save, save->offset, names.data, names.len);
        }
    }
    if (code == 0) {
        code = binary_write_front(file, save);
    }
    poise_buf_free(&names);
    free(file->hashes);
    return code;
}

/* ---- reading ------------------------------------------------------------ */

static int binary_bad(const struct binary *file, const char *why)
{
    return poise_error_set(EBADMSG, "read graph", file->path, "%s", why);
}

static int binary_pread(const struct binary *file, void *data, size_t len,
                        uint64_t offset)
{
    ssize_t n = poise_file_pread(file->fd, data, len, offset, file->path);
    if (n >= 0 && (size_t)n < len) {
        return binary_bad(file, "the file is cut short");
    }
    return n < 0 ? (int)n : 0;
}

static int binary_check_header(struct binary *file, const unsigned char *header)
{
    if (memcmp(header, GRAPH_BINARY_MAGIC, 8) != 0) {
        return binary_bad(file, "not a graph of Poise");
    }
    uint64_t mark = binary_get(header + 8, 4);
    if (mark == __builtin_bswap32(BINARY_MARK)) {
        return binary_bad(file,
                          "it was written on a machine of other byte order");
    }
    if (mark != BINARY_MARK ||
        binary_get(header + 56, 8) != poise_hash_bytes(header, 56, 0)) {
        return binary_bad(file, "its header is altered");
    }
    if (binary_get(header + 12, 4) > BINARY_VERSION) {
        return poise_error_set(EPROTO, "read graph", file->path,
                               "it is of version %llu; this program knows %d",
                               (unsigned long long)binary_get(header + 12, 4),
                               BINARY_VERSION);
    }
    file->flags = binary_get(header + 16, 8);
    file->vertices = binary_get(header + 24, 8);
    file->edges = binary_get(header + 32, 8);
    file->name_bytes = binary_get(header + 48, 8);
    /* The sizes below cannot overflow then. */
    if (file->vertices > POISE_GRAPH_MAX_VERTICES ||
        file->edges > UINT64_MAX >> 8 || file->name_bytes > UINT64_MAX >> 8) {
        return binary_bad(file, "its header has sizes that cannot be");
    }
    binary_init(file);
    if (binary_get(header + 40, 8) != file->id_bytes) {
        return binary_bad(file, "its header contradicts itself");
    }
    return 0;
}

static int binary_open(struct binary *file)
{
    unsigned char header[BINARY_HEADER];
    struct stat st;
    int code = binary_pread(file, header, sizeof header, 0);
    if (code == 0) {
        code = binary_check_header(file, header);
    }
    if (code < 0) {
        return code;
    }
    if (fstat(file->fd, &st) != 0) {
        return poise_error_set(errno, "look at", file->path, NULL);
    }
    uint64_t bytes = binary_data_offset(file) +
                     file->edges * 2 * file->id_bytes + file->name_bytes;
    if ((uint64_t)st.st_size != bytes) {
        return poise_error_set(
            EBADMSG, "read graph", file->path,
            "%llu bytes are wanted, %llu are there; is it cut short?",
            (unsigned long long)bytes, (unsigned long long)st.st_size);
    }
    return 0;
}

static int binary_read_table(struct binary *file)
{
    uint64_t count = binary_hash_count(file);
    unsigned char *table = poise_alloc(count + 1, 8);
    file->hashes = poise_alloc(count, sizeof *file->hashes);
    int code = table && file->hashes ? 0 : -ENOMEM;
    if (code == 0) {
        code = binary_pread(file, table, 8 * (count + 1), BINARY_HEADER);
    }
    if (code == 0 && binary_get(table + 8 * count, 8) !=
                         poise_hash_bytes(table, 8 * count, 0)) {
        code = binary_bad(file, "its table of checksums is altered");
    }
    for (uint64_t i = 0; i < count && code == 0; i++) {
        file->hashes[i] = binary_get(table + 8 * i, 8);
    }
    free(table);
    return code;
}

struct binary_load {
    struct binary file;
    uint64_t first, blocks; /* this rank's */
    uint32_t *ends;
    uint64_t next; /* __atomic */
};

static int binary_decode(const struct binary_load *load, uint64_t block,
                         unsigned char *data)
{
    const struct binary *file = &load->file;
    const unsigned bytes = file->id_bytes;
    uint64_t ids = 2 * binary_block_edges(file, block);
    uint32_t *ends = load->ends + 2 * (block - load->first) * BINARY_BLOCK;
    uint32_t most = 0;
    int code =
        binary_pread(file, data, ids * bytes, binary_block_offset(file, block));
    if (code < 0) {
        return code;
    }
    if (poise_hash_bytes(data, ids * bytes, 0) != file->hashes[block]) {
        return poise_error_set(
            EBADMSG, "read graph", file->path,
            "edges from %llu on are altered (their checksum is wrong)",
            (unsigned long long)(block * BINARY_BLOCK));
    }
    for (uint64_t i = 0; i < ids; i++) {
        uint32_t id = (uint32_t)binary_get(data + i * bytes, bytes);
        most = id > most ? id : most;
        ends[i] = id;
    }
    if (ids > 0 && most >= file->vertices) {
        return poise_error_set(EBADMSG, "read graph", file->path,
                               "vertex %u is not below %llu", most,
                               (unsigned long long)file->vertices);
    }
    return 0;
}

static int binary_part(unsigned thread, void *arg)
{
    struct binary_load *load = arg;
    unsigned char *data = poise_alloc(BINARY_BLOCK, 2 * load->file.id_bytes);
    int code = data ? 0 : -ENOMEM;
    (void)thread;
    while (code == 0) {
        uint64_t i = __atomic_fetch_add(&load->next, 1, __ATOMIC_RELAXED);
        if (i >= load->blocks) {
            break;
        }
        code = binary_decode(load, load->first + i, data);
    }
    free(data);
    return code;
}

static int binary_decode_names(const struct binary *file,
                               const unsigned char *data,
                               struct poise_graph_names *names)
{
    struct poise_reader lengths = poise_reader_of(data, file->name_bytes);
    uint64_t text = 0;
    for (uint64_t i = 0; i < file->vertices; i++) {
        uint64_t len = poise_reader_varint(&lengths);
        if (lengths.error || len > file->name_bytes - text) {
            return binary_bad(file, "its names contradict each other");
        }
        text += len;
    }
    if (poise_reader_left(&lengths) != text) {
        return binary_bad(file, "its names contradict each other");
    }
    const char *at = (const char *)lengths.pos;
    lengths = poise_reader_of(data, file->name_bytes);
    for (uint64_t i = 0; i < file->vertices; i++) {
        uint64_t len = poise_reader_varint(&lengths);
        uint32_t label;
        int code = graph_names_add(names, at, len, &label);
        if (code < 0) {
            return code;
        }
        if (label != i) {
            return binary_bad(file, "two vertices have the same name");
        }
        at += len;
    }
    return 0;
}

static int binary_read_names(const struct binary *file, uint64_t limit,
                             struct poise_graph_names **out)
{
    int code = graph_memory_check("read graph", file->path, file->name_bytes,
                                  "names' bytes", 2, limit);
    if (code < 0) {
        return code;
    }
    struct poise_graph_names *names = graph_names_create();
    unsigned char *data = poise_alloc(file->name_bytes, 1);
    code = names && data ? 0 : -ENOMEM;
    if (code == 0) {
        code = binary_pread(file, data, file->name_bytes,
                            binary_data_offset(file) +
                                file->edges * 2 * file->id_bytes);
    }
    if (code == 0 && poise_hash_bytes(data, file->name_bytes, 0) !=
                         file->hashes[file->blocks]) {
        code = binary_bad(file, "its names are altered");
    }
    if (code == 0) {
        code = binary_decode_names(file, data, names);
    }
    free(data);
    if (code < 0) {
        poise_graph_names_free(names);
        return code;
    }
    *out = names;
    return 0;
}

static int binary_read_edges(struct graph_load *load,
                             struct binary_load *binary)
{
    struct poise_graph_edges *out = load->out;
    uint64_t from, to;
    graph_share(load->world, binary->file.blocks, &binary->first,
                &binary->blocks);
    from = binary->first * BINARY_BLOCK;
    to = from + binary->blocks * BINARY_BLOCK;
    if (to > binary->file.edges) {
        to = binary->file.edges;
    }
    uint64_t count = to > from ? to - from : 0;
    int code =
        graph_memory_check("read graph", load->path, count, "edges",
                           2 * sizeof *out->ends, load->options->memory_bytes);
    if (code == 0) {
        code = graph_edges_alloc(out, count);
    }
    if (code == 0) {
        binary->ends = out->ends;
        code = graph_parallel(load->options->threads, binary_part, binary);
    }
    if (code == 0) {
        out->count = count;
        out->vertex_count = binary->file.vertices;
        out->directed = binary->file.flags & BINARY_DIRECTED;
    }
    return code;
}

int graph_read_poise(struct graph_load *load)
{
    struct binary_load binary = {.file = {.path = load->path, .fd = load->fd}};
    int code = binary_open(&binary.file);
    if (code == 0) {
        code = binary_read_table(&binary.file);
    }
    if (code == 0) {
        code = binary_read_edges(load, &binary);
    }
    if (code == 0 && binary.file.flags & BINARY_NAMES) {
        code = binary_read_names(&binary.file, load->options->memory_bytes,
                                 &load->out->names);
    }
    free(binary.file.hashes);
    return code;
}
