/*
 * One inventory of all ranks' parts, and how a binary one is read. Text and
 * binary parts are copied by their ranks to where they belong in one file;
 * SQLite's are imported by rank 0. The file gets its name when it is whole.
 */
#include "internal.h"

#include <poise/output.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char magic[8] = {'P', 'O', 'I', 'S', 'E', 'I', 'N', 'V'};
enum { VERSION = 2, HEAD_BYTES = 16, COPY_BYTES = 256 * 1024 };

static void binary_head(char head[HEAD_BYTES])
{
    memcpy(head, magic, sizeof magic);
    poise_put_u64(head + sizeof magic, VERSION);
}

/* Of version 1, too: its rows are those of version 2 that have the bit of atime
 * not set. */
static bool is_head(const char head[HEAD_BYTES])
{
    uint64_t version = poise_get_u64(head + sizeof magic);
    return memcmp(head, magic, sizeof magic) == 0 && version >= 1 &&
           version <= VERSION;
}

int walk_inventory_read(const char *path,
                        int (*each)(const struct walk_row *row, void *arg),
                        void *arg)
{
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    char head[HEAD_BYTES];
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t got = poise_file_pread(fd, head, sizeof head, 0, path);
    int code = got < 0 ? (int)got : 0;
    if (code == 0 && (got < HEAD_BYTES || !is_head(head))) {
        code = poise_error_set(EPROTO, "read inventory", path,
                               "it is not a binary inventory of version 1 to "
                               "%d",
                               VERSION);
    }
    struct walk_blocks blocks = {.fd = fd,
                                 .path = path,
                                 .offset = HEAD_BYTES,
                                 .end = size < 0 ? 0 : (uint64_t)size};
    code = code < 0 ? code : walk_blocks_each(&blocks, each, arg);
    if (code == 0 && (!blocks.ended || blocks.offset != blocks.end)) {
        code = poise_error_set(EBADMSG, "read inventory", path,
                               blocks.ended ? "bytes follow its end"
                                            : "its end is missing");
    }
    close(fd);
    return code;
}

/* ---- putting parts together --------------------------------------------- */

static int copy_plain(int from, uint64_t at, int to, uint64_t offset,
                      uint64_t bytes, const struct walk_part *part,
                      const char *output)
{
    char *buffer = poise_alloc(1, COPY_BYTES);
    if (!buffer) {
        return -ENOMEM;
    }
    int code = 0;
    while (bytes && code == 0) {
        size_t want = bytes < COPY_BYTES ? (size_t)bytes : COPY_BYTES;
        ssize_t got = poise_file_pread(from, buffer, want, at, part->path);
        if (got <= 0) {
            code = got < 0 ? (int)got
                           : poise_error_set(EBADMSG, "copy", part->path,
                                             "it became shorter");
            break;
        }
        code = poise_file_pwrite(to, buffer, (size_t)got, offset, output);
        at += (uint64_t)got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    free(buffer);
    return code;
}

/* In the kernel where it can, else by hand from where it stopped. */
static int copy_part(const struct walk_part *part, int to, uint64_t offset,
                     const char *output)
{
    int from = poise_file_open(AT_FDCWD, part->path, O_RDONLY | O_CLOEXEC, 0);
    if (from < 0) {
        return from;
    }
    loff_t at = 0, out = (loff_t)offset;
    while ((uint64_t)at < part->bytes) {
        ssize_t n = copy_file_range(from, &at, to, &out,
                                    (size_t)(part->bytes - (uint64_t)at), 0);
        if (n <= 0) {
            break;
        }
    }
    int code = copy_plain(from, (uint64_t)at, to, (uint64_t)out,
                          part->bytes - (uint64_t)at, part, output);
    close(from);
    return code;
}

/* Hashes of a part's blocks, for the end block. */
static int ignore_row(const struct walk_row *row, void *arg)
{
    (void)row;
    (void)arg;
    return 0;
}

static int check_part(const struct walk_part *part, uint64_t *hash)
{
    int fd = poise_file_open(AT_FDCWD, part->path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    struct walk_blocks blocks = {
        .fd = fd, .path = part->path, .end = part->bytes, .hash = *hash};
    int code = walk_blocks_each(&blocks, ignore_row, NULL);
    close(fd);
    *hash = blocks.hash;
    return code;
}

static int put_head(const struct walk_inventory *inv, int fd, uint64_t *bytes)
{
    char head[HEAD_BYTES];
    binary_head(head);
    bool binary = inv->format == POISE_WALK_BINARY;
    const char *data = binary ? head : walk_csv_header;
    *bytes = binary                          ? HEAD_BYTES
             : inv->format == POISE_WALK_CSV ? strlen(walk_csv_header)
                                             : 0;
    return fd < 0 ? 0
                  : poise_file_pwrite(fd, data, (size_t)*bytes, 0, inv->output);
}

static int put_end(const struct walk_inventory *inv, int fd, uint64_t offset,
                   const uint64_t sums[3])
{
    if (inv->format != POISE_WALK_BINARY) {
        return 0;
    }
    struct poise_buf end = {0};
    char head[WALK_BLOCK_HEAD];
    for (int i = 0; i < 3; i++) {
        poise_buf_u64(&end, sums[i]);
    }
    int code = end.error;
    if (code == 0) {
        walk_block_head(head, end.data, end.len, 0);
        code = poise_file_pwrite(fd, head, sizeof head, offset, inv->output);
        code = code < 0 ? code
                        : poise_file_pwrite(fd, end.data, end.len,
                                            offset + sizeof head, inv->output);
    }
    poise_buf_free(&end);
    return code;
}

struct joining {
    int rank, size;
    uint64_t offset;  /* where this rank's parts begin */
    uint64_t total;   /* where they end on all ranks */
    uint64_t sums[3]; /* rows, blocks, hash: over all ranks */
};

/* Who writes where. Collective. */
static int plan(struct poise_world *world, const struct walk_inventory *inv,
                struct joining *join)
{
    uint64_t bytes = 0;
    int code = 0;
    join->rank = world ? poise_world_rank(world) : 0;
    join->size = world ? poise_world_size(world) : 1;
    for (size_t i = 0; i < inv->part_count && code == 0; i++) {
        bytes += inv->parts[i].bytes;
        join->sums[0] += inv->parts[i].rows;
        join->sums[1] += inv->parts[i].blocks;
        if (inv->format == POISE_WALK_BINARY) {
            code = check_part(&inv->parts[i], &join->sums[2]);
        }
    }
    put_head(inv, -1, &join->offset);
    join->total = join->offset + bytes;
    if (!world) {
        return code;
    }
    uint64_t *all = poise_alloc((size_t)join->size, sizeof *all);
    code = poise_world_agree(world, code < 0 ? code : all ? 0 : -ENOMEM);
    if (code == 0) {
        all[join->rank] = bytes;
        code = poise_world_reduce(world, POISE_SUM, all, (size_t)join->size);
    }
    code =
        code < 0 ? code : poise_world_reduce(world, POISE_SUM, join->sums, 3);
    join->total = join->offset;
    for (int i = 0; code == 0 && i < join->size; i++) {
        join->offset += i < join->rank ? all[i] : 0;
        join->total += all[i];
    }
    free(all);
    return code;
}

static int agree(struct poise_world *world, int code)
{
    return world ? poise_world_agree(world, code) : code;
}

/* Header and parts, each rank its own; then the end. Collective. */
static int join_parts(struct poise_world *world, struct walk_inventory *inv,
                      const char *temporary)
{
    struct joining join = {0};
    int code = plan(world, inv, &join);
    if (code < 0) {
        return code;
    }
    int fd = poise_file_open(AT_FDCWD, temporary, O_WRONLY | O_CLOEXEC, 0);
    code = fd < 0 ? fd : 0;
    if (code == 0 && join.rank == 0) {
        uint64_t ignored;
        code = put_head(inv, fd, &ignored);
        code = code < 0 ? code : put_end(inv, fd, join.total, join.sums);
    }
    code = agree(world, code);
    for (size_t i = 0; i < inv->part_count && code == 0; i++) {
        code = copy_part(&inv->parts[i], fd, join.offset, inv->output);
        join.offset += inv->parts[i].bytes;
    }
    code = code < 0 ? code : poise_file_sync(fd, inv->output);
    if (fd >= 0) {
        int closed = poise_file_close(fd, inv->output);
        code = code < 0 ? code : closed;
    }
    return agree(world, code);
}

/* ---- SQLite: rank 0 imports everybody's --------------------------------- */

static int list_parts(const struct poise_buf *gathered, int size,
                      struct walk_part **out, size_t *count)
{
    struct poise_reader in = poise_reader_of(gathered->data, gathered->len);
    struct walk_part *parts = NULL;
    size_t cap = 0;
    for (int rank = 0; rank < size; rank++) {
        size_t len = 0;
        const void *bytes = poise_reader_blob(&in, &len);
        struct poise_reader mine = poise_reader_of(bytes, len);
        while (poise_reader_left(&mine)) {
            struct walk_part *more =
                poise_realloc(parts, cap + 1, sizeof *parts);
            if (!more) {
                break;
            }
            parts = more;
            size_t path_len = 0;
            const char *path = poise_reader_blob(&mine, &path_len);
            parts[cap].path = poise_alloc(path_len + 1, 1);
            if (!parts[cap].path) {
                break;
            }
            memcpy(parts[cap].path, path, path_len);
            parts[cap++].bytes = poise_reader_varint(&mine);
        }
        if (mine.error || poise_reader_left(&mine)) {
            in.error = -ENOMEM;
        }
    }
    *out = parts;
    *count = cap;
    return in.error;
}

static int import_parts(struct poise_world *world, struct walk_inventory *inv,
                        const char *temporary)
{
    struct poise_buf mine = {0}, all = {0};
    for (size_t i = 0; i < inv->part_count; i++) {
        poise_buf_blob(&mine, inv->parts[i].path, strlen(inv->parts[i].path));
        poise_buf_varint(&mine, inv->parts[i].bytes);
    }
    int code = agree(world, mine.error);
    if (!world && code == 0) {
        code = walk_sqlite_write(temporary, inv->parts, inv->part_count);
    } else if (code == 0) {
        code = poise_world_gather(world, 0, mine.data, mine.len, &all);
        if (code == 0 && poise_world_rank(world) == 0) {
            struct walk_part *parts = NULL;
            size_t count = 0;
            code = list_parts(&all, poise_world_size(world), &parts, &count);
            code = code < 0 ? code : walk_sqlite_write(temporary, parts, count);
            for (size_t i = 0; i < count; i++) {
                free(parts[i].path);
            }
            free(parts);
        }
        code = agree(world, code);
    }
    poise_buf_free(&mine);
    poise_buf_free(&all);
    return code;
}

/* Rank 0 begins the file and says how it is called meanwhile. Collective. */
static int begin_output(struct poise_world *world, const char *path,
                        uint64_t token, struct poise_output **output,
                        struct poise_buf *name)
{
    const struct poise_output_options options = {.named = true, .tag = token};
    int code = 0;
    if (!world || poise_world_rank(world) == 0) {
        code = poise_output_open(path, &options, output);
        if (code == 0) {
            code = poise_buf_puts(name, poise_output_name(*output));
        }
    }
    code = agree(world, code);
    if (code == 0 && world) {
        code = agree(world, poise_world_broadcast(world, 0, name));
    }
    return code;
}

int walk_inventory_finish(struct poise_world *world, struct walk_inventory *inv,
                          uint64_t token)
{
    struct poise_output *output = NULL;
    struct poise_buf name = {0};
    int code = begin_output(world, inv->output, token, &output, &name);
    if (code == 0) {
        code = (inv->format == POISE_WALK_SQLITE ? import_parts : join_parts)(
            world, inv, poise_buf_str(&name));
    }
    if (code == 0 && output) {
        code = poise_output_commit(output, true);
        output = NULL;
    }
    poise_output_abort(output);
    poise_buf_free(&name);
    return agree(world, code);
}
