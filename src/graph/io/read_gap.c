/*
 * GAP's serialised graphs (.sg, and .wsg with weights): a flag, the numbers of
 * neighbours and of vertices, where each row begins, and the rows, of 32-bit
 * ids; of directed graphs the rows of in-neighbours follow. Native byte order.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    GAP_HEADER = 17,
    GAP_ROWS = 1 << 14, /* rows that a thread takes at a time */
    GAP_PIECE = 1 << 16 /* neighbours read at a time */
};

struct gap {
    const struct graph_load *load;
    int fd;
    bool directed;
    uint64_t vertices, entries;
    unsigned entry_bytes;
    uint64_t first, ranges; /* this rank's ranges of rows */
    uint64_t *counts;       /* edges of each of them, then where they go */
    uint32_t *ends;         /* NULL while they are counted */
    uint64_t next;          /* __atomic */
    uint64_t balance;       /* __atomic */
};

static int gap_bad(const struct gap *gap, const char *why)
{
    return poise_error_set(EBADMSG, "read graph", gap->load->path, "%s", why);
}

static int64_t gap_i64(const unsigned char *at)
{
    int64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* What a file of that many rows and neighbours has: bytes, or 0. */
static uint64_t gap_size(bool directed, int64_t vertices, int64_t entries,
                         unsigned entry_bytes)
{
    uint64_t rows, neighbours, bytes;
    if (vertices < 0 || entries < 0 ||
        __builtin_mul_overflow((uint64_t)vertices + 1, 8, &rows) ||
        __builtin_mul_overflow((uint64_t)entries, entry_bytes, &neighbours) ||
        __builtin_add_overflow(rows, neighbours, &bytes) ||
        __builtin_mul_overflow(bytes, directed ? 2 : 1, &bytes) ||
        __builtin_add_overflow(bytes, GAP_HEADER, &bytes)) {
        return 0;
    }
    return bytes;
}

static int gap_open(struct gap *gap)
{
    unsigned char header[GAP_HEADER];
    struct stat st;
    if (fstat(gap->fd, &st) != 0) {
        return poise_error_set(errno, "look at", gap->load->path, NULL);
    }
    ssize_t n =
        poise_file_pread(gap->fd, header, sizeof header, 0, gap->load->path);
    if (n < 0) {
        return (int)n;
    }
    if (n < (ssize_t)sizeof header || header[0] > 1) {
        return gap_bad(gap, "not a serialised graph of GAP (.sg)");
    }
    const uint64_t size = (uint64_t)st.st_size;
    const int64_t entries = gap_i64(header + 1), vertices = gap_i64(header + 9);
    const int64_t swapped_entries =
        (int64_t)__builtin_bswap64((uint64_t)entries);
    const int64_t swapped = (int64_t)__builtin_bswap64((uint64_t)vertices);
    gap->directed = header[0];
    for (gap->entry_bytes = 4; gap->entry_bytes <= 8; gap->entry_bytes += 4) {
        if (gap_size(gap->directed, vertices, entries, gap->entry_bytes) ==
            size) {
            break;
        }
        if (gap_size(gap->directed, swapped, swapped_entries,
                     gap->entry_bytes) == size) {
            return gap_bad(gap,
                           "it was written on a machine of other byte order");
        }
    }
    if (gap->entry_bytes > 8) {
        return poise_error_set(
            EBADMSG, "read graph", gap->load->path,
            "its header promises %lld vertices and %lld neighbours, which %llu "
            "bytes cannot hold exactly; is it cut short?",
            (long long)vertices, (long long)entries, (unsigned long long)size);
    }
    if ((uint64_t)vertices >= POISE_GRAPH_MAX_VERTICES) {
        return gap_bad(gap, "it has more vertices than 2^32 - 2");
    }
    gap->vertices = (uint64_t)vertices;
    gap->entries = (uint64_t)entries;
    return 0;
}

static int gap_pread(const struct gap *gap, void *data, size_t len,
                     uint64_t offset)
{
    ssize_t n = poise_file_pread(gap->fd, data, len, offset, gap->load->path);
    if (n >= 0 && (size_t)n < len) {
        return gap_bad(gap, "the file is cut short");
    }
    return n < 0 ? (int)n : 0;
}

/** What a thread needs. */
struct gap_scratch {
    uint64_t starts[GAP_ROWS + 1];
    unsigned char piece[GAP_PIECE * 8];
};

/* The starts of rows [row, row + count), checked. */
static int gap_starts(const struct gap *gap, struct gap_scratch *scratch,
                      uint64_t row, uint64_t count)
{
    const uint64_t *starts = scratch->starts;
    int code = gap_pread(gap, scratch->starts, (count + 1) * sizeof *starts,
                         GAP_HEADER + row * sizeof *starts);
    if (code < 0) {
        return code;
    }
    bool good = (row > 0 || starts[0] == 0) && starts[count] <= gap->entries &&
                (row + count < gap->vertices || starts[count] == gap->entries);
    for (uint64_t i = 0; i < count && good; i++) {
        good = starts[i] <= starts[i + 1];
    }
    return good ? 0 : gap_bad(gap, "its rows do not begin one after the other");
}

/* The rows [row, row + count): count their edges, or write them to `ends`. An
 * undirected edge stands in both rows and is kept once. */
static int gap_rows(struct gap *gap, struct gap_scratch *scratch, uint64_t row,
                    uint64_t count, uint32_t *ends, uint64_t *kept)
{
    const uint64_t *starts = scratch->starts;
    uint64_t balance = 0, n = 0, i = 0;
    int code = gap_starts(gap, scratch, row, count);
    for (uint64_t at = starts[0]; code == 0 && at < starts[count];) {
        uint64_t left = starts[count] - at;
        uint64_t some = left < GAP_PIECE ? left : GAP_PIECE;
        code = gap_pread(gap, scratch->piece, some * gap->entry_bytes,
                         GAP_HEADER + (gap->vertices + 1) * 8 +
                             at * gap->entry_bytes);
        for (uint64_t k = 0; k < some && code == 0; k++, at++) {
            uint32_t id;
            memcpy(&id, scratch->piece + k * gap->entry_bytes, sizeof id);
            while (starts[i + 1] <= at) {
                i++;
            }
            if (id >= gap->vertices) {
                code = poise_error_set(
                    EBADMSG, "read graph", gap->load->path,
                    "neighbour %u of vertex %llu is not below %llu", id,
                    (unsigned long long)(row + i),
                    (unsigned long long)gap->vertices);
                break;
            }
            uint64_t from = row + i,
                     hash = poise_hash_u64(
                         from < id ? (from << 32 | id) + 1
                                   : ((uint64_t)id << 32 | from) + 1);
            balance += from < id ? hash : from > id ? 0 - hash : 0;
            if (gap->directed || from <= id) {
                if (ends) {
                    ends[2 * n] = (uint32_t)from;
                    ends[2 * n + 1] = id;
                }
                n++;
            }
        }
    }
    *kept = n;
    __atomic_fetch_add(&gap->balance, balance, __ATOMIC_RELAXED);
    return code;
}

static int gap_part(unsigned thread, void *arg)
{
    struct gap *gap = arg;
    struct gap_scratch *scratch = poise_alloc(1, sizeof *scratch);
    int code = scratch ? 0 : -ENOMEM;
    (void)thread;
    while (code == 0) {
        uint64_t i = __atomic_fetch_add(&gap->next, 1, __ATOMIC_RELAXED);
        if (i >= gap->ranges) {
            break;
        }
        uint64_t row = (gap->first + i) * GAP_ROWS, kept;
        uint64_t left = gap->vertices - row;
        code =
            gap_rows(gap, scratch, row, left < GAP_ROWS ? left : GAP_ROWS,
                     gap->ends ? gap->ends + 2 * gap->counts[i] : NULL, &kept);
        if (!gap->ends) {
            gap->counts[i] = kept;
        }
    }
    free(scratch);
    return code;
}

static int gap_read(struct gap *gap)
{
    const struct poise_graph_load_options *options = gap->load->options;
    struct poise_graph_edges *out = gap->load->out;
    gap->counts = poise_alloc(gap->ranges, sizeof *gap->counts);
    if (!gap->counts) {
        return -ENOMEM;
    }
    int code = graph_parallel(options->threads, gap_part, gap);
    uint64_t count = 0;
    for (uint64_t i = 0; i < gap->ranges; i++) {
        uint64_t kept = gap->counts[i];
        gap->counts[i] = count;
        count += kept;
    }
    if (code == 0) {
        code = graph_memory_check("read graph", gap->load->path, count, "edges",
                                  2 * sizeof(uint32_t), options->memory_bytes);
    }
    if (code == 0) {
        code = graph_edges_alloc(out, count);
    }
    if (code == 0 && count > 0) {
        gap->ends = out->ends;
        gap->next = 0;
        gap->balance = 0;
        code = graph_parallel(options->threads, gap_part, gap);
    }
    if (code == 0) {
        out->count = count;
    }
    return code;
}

int graph_read_gap(struct graph_load *load)
{
    struct gap gap = {.load = load, .fd = load->fd};
    int code = gap_open(&gap);
    if (code == 0) {
        struct poise_graph_edges *out = load->out;
        graph_share(load->world, (gap.vertices + GAP_ROWS - 1) / GAP_ROWS,
                    &gap.first, &gap.ranges);
        out->vertex_count = gap.vertices;
        out->directed = gap.directed;
        code = gap.vertices == 0 && gap.entries > 0
                   ? gap_bad(&gap, "neighbours, but no vertex")
                   : gap_read(&gap);
    }
    code = graph_load_sum(load, code, &gap.balance);
    if (code == 0 && !gap.directed && gap.balance != 0) {
        code = gap_bad(&gap, "it says that it is undirected, but some edge "
                             "leads one way only");
    }
    free(gap.counts);
    return code;
}
