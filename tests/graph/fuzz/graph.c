/*
 * Graph files of any bytes. The first byte says which format they are taken
 * for and how; hardly any mutation keeps the checksums of our own format
 * right, so that these are repaired where a bit of it says so. What was read is
 * written as CSV and read again, where another one does.
 *
 * POISE_FUZZ_FORMAT=N: all are taken for format N, to fuzz one reader.
 */
#include "../../fuzz/fuzz.h"

#include "graph/io/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* Whatever is in the file: a clear code, or edges between its vertices whose
 * names lead back to them. */
static void check_edges(const struct poise_graph_edges *edges)
{
    check(edges->vertex_count > 0);
    for (uint64_t i = 0; i < 2 * edges->count; i++) {
        check(edges->ends[i] < edges->vertex_count);
    }
    for (uint64_t i = 0; edges->names && i < edges->vertex_count; i++) {
        size_t len;
        const char *name =
            poise_graph_names_of(edges->names, (uint32_t)i, &len);
        check(name != NULL);
        check(poise_graph_names_find(edges->names, name, len) == (int64_t)i);
    }
}

static void end_text(const struct poise_graph_edges *edges, uint64_t end,
                     struct poise_buf *out)
{
    size_t len;
    const char *name =
        poise_graph_names_of(edges->names, edges->ends[end], &len);
    poise_buf_reset(out);
    if (name) {
        poise_buf_append(out, name, len);
    } else {
        poise_buf_decimal(out, edges->ends[end]);
    }
}

/* What was read can be written as CSV, unless a name has what a field cannot
 * hold, and then says the same. */
static void check_fields(const struct poise_graph_edges *edges)
{
    char path[64];
    struct poise_graph_edges back = {0};
    struct poise_graph_load_options options = {
        .threads = 1, .directed = edges->directed, .names = edges->names};
    struct poise_buf one = {0}, two = {0};
    snprintf(path, sizeof path, "/tmp/poise-fuzz-%ld.csv", (long)getpid());
    int code = edges->count > 0 ? poise_graph_save(edges, path, NULL) : -EINVAL;
    check(code == 0 || code == -EINVAL);
    if (code == 0) {
        check(poise_graph_load(NULL, path, &options, &back) == 0);
        check(back.count == edges->count);
        unlink(path);
    }
    for (uint64_t i = 0; i < 2 * back.count; i++) {
        end_text(edges, i, &one);
        end_text(&back, i, &two);
        check(one.len == two.len && memcmp(one.data, two.data, one.len) == 0);
    }
    poise_buf_free(&one);
    poise_buf_free(&two);
    poise_graph_edges_free(&back);
}

static void put_u64(uint8_t *to, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

/* Checksums of a file of one block, with names or without. */
static void repair(uint8_t *data, size_t len)
{
    if (len < 64) {
        return;
    }
    memcpy(data, GRAPH_BINARY_MAGIC, 8);
    put_u64(data + 56, poise_hash_bytes(data, 56, 0));
    uint64_t edges = data[32], id_bytes = data[40], names = data[16] >> 1 & 1;
    size_t table = 8 * ((edges > 0) + names);
    size_t body = 64 + table + 8, block = 2 * edges * id_bytes;
    if (len < body + block) {
        return;
    }
    size_t at = 64;
    if (edges > 0) {
        put_u64(data + at, poise_hash_bytes(data + body, block, 0));
        at += 8;
    }
    if (names) {
        put_u64(data + at,
                poise_hash_bytes(data + body + block, len - body - block, 0));
    }
    put_u64(data + 64 + table, poise_hash_bytes(data + 64, table, 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len == 0) {
        return 0;
    }
    const uint8_t how = data[0];
    const char *only = getenv("POISE_FUZZ_FORMAT");
    unsigned format = only ? (unsigned)atoi(only) : (how & 7u) + (how >> 3 & 8);
    struct poise_graph_load_options options = {
        .format = (enum poise_graph_format)(format % POISE_GRAPH_FORMATS),
        .names = how & 8,
        .directed = how & 16,
        .threads = 1,
        .memory_bytes = 64 << 20,
    };
    uint8_t *copy = malloc(len);
    check(copy != NULL);
    memcpy(copy, data + 1, len - 1);
    if (how & 32) {
        repair(copy, len - 1);
    }
    char path[64];
    int fd = memfd_create("fuzz_graph", MFD_CLOEXEC);
    check(fd >= 0 && poise_file_write(fd, copy, len - 1, "memfd") == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct poise_graph_edges edges = {0};
    int code = poise_graph_load(NULL, path, &options, &edges);
    check(code == 0 || code == -EBADMSG || code == -EPROTO || code == -ENOMEM);
    if (code == 0) {
        check_edges(&edges);
    }
    if (code == 0 && how & 128 && edges.count < 10000) {
        check_fields(&edges);
    }
    poise_graph_edges_free(&edges);
    close(fd);
    free(copy);
    return 0;
}
