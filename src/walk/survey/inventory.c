/*
 * The inventory while the walk runs: rows of each worker, and the part file
 * of this rank. Rows of SQLite and binary inventories are coded in blocks,
 * those of CSV and JSON are finished lines.
 */
#include "internal.h"

#include <poise/parts.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLUSH_BYTES = 64 * 1024 };

static bool in_blocks(const struct walk_inventory *inv)
{
    return inv->format == POISE_WALK_SQLITE || inv->format == POISE_WALK_BINARY;
}

int walk_inventory_open(struct walk_inventory *inv, char *part_path)
{
    if (inv->format == POISE_WALK_SQLITE &&
        !poise_parts[POISE_PART_SQLITE].is_built) {
        free(part_path);
        return poise_part_missing(POISE_PART_SQLITE, "write inventory",
                                  inv->output);
    }
    inv->parts = poise_alloc(1, sizeof *inv->parts);
    if (!inv->parts) {
        free(part_path);
        return -ENOMEM;
    }
    inv->parts[0].path = part_path;
    inv->part_count = 1;
    inv->fd = poise_file_open(AT_FDCWD, part_path,
                              O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return inv->fd < 0 ? inv->fd : 0;
}

void walk_inventory_close(struct walk_inventory *inv)
{
    if (inv->fd >= 0) {
        close(inv->fd);
    }
    inv->fd = -1;
    for (size_t i = 0; i < inv->part_count; i++) {
        free(inv->parts[i].path);
    }
    free(inv->parts);
    inv->parts = NULL;
    inv->part_count = 0;
}

void walk_rows_free(struct walk_rows *rows)
{
    poise_buf_free(&rows->delta);
    poise_buf_free(&rows->committed);
    poise_buf_free(&rows->prefix);
    poise_buf_free(&rows->path);
    walk_row_state_free(&rows->state);
}

/* The path of the entry; that of its directory is kept for the next one. */
static int path_of(struct walk_rows *rows, const struct walk_row *row,
                   const struct poise_walk_entry *entry)
{
    poise_buf_reset(&rows->path);
    if (!entry->dir || !row->dir) {
        return poise_walk_path(entry, &rows->path);
    }
    if (row->dir != rows->prefix_dir) {
        poise_buf_reset(&rows->prefix);
        rows->prefix_dir = 0;
        int code = poise_walk_path(entry, &rows->prefix);
        if (code < 0) {
            return code;
        }
        rows->prefix.len -= row->name_len;
        rows->prefix_dir = row->dir;
    }
    poise_buf_append(&rows->path, rows->prefix.data, rows->prefix.len);
    return poise_buf_append(&rows->path, row->name, row->name_len);
}

int walk_rows_add(struct walk_inventory *inv, struct walk_rows *rows,
                  const struct walk_row *row,
                  const struct poise_walk_entry *entry)
{
    rows->delta_rows++;
    if (in_blocks(inv)) {
        return walk_row_encode(&rows->state, row, &rows->delta);
    }
    int code = path_of(rows, row, entry);
    if (code < 0) {
        return code;
    }
    return (inv->format == POISE_WALK_CSV ? walk_csv_line : walk_json_line)(
        &rows->delta, row, rows->path.data, rows->path.len);
}

int walk_rows_commit(struct walk_rows *rows)
{
    if (rows->delta.error) {
        return rows->delta.error;
    }
    if (rows->delta.len) {
        poise_buf_append(&rows->committed, rows->delta.data, rows->delta.len);
    }
    poise_buf_reset(&rows->delta);
    rows->committed_rows += rows->delta_rows;
    rows->delta_rows = 0;
    return rows->committed.error;
}

/* Append to the own part: a block, or lines. */
static int write_rows(struct walk_inventory *inv, const void *data, size_t len,
                      uint64_t rows)
{
    struct walk_part *part = &inv->parts[0];
    uint64_t at = part->bytes;
    int code = 0;
    if (in_blocks(inv)) {
        char head[WALK_BLOCK_HEAD];
        walk_block_head(head, data, len, (uint32_t)rows);
        code = poise_file_pwrite(inv->fd, head, sizeof head, at, inv->output);
        at += sizeof head;
    }
    code = code < 0 ? code
                    : poise_file_pwrite(inv->fd, data, len, at, inv->output);
    if (code == 0) {
        part->bytes = at + len;
        part->rows += rows;
        part->blocks++;
    }
    return code;
}

int walk_rows_flush(struct walk_inventory *inv, struct walk_rows *rows,
                    bool all)
{
    struct poise_buf *committed = &rows->committed;
    if (committed->error) {
        return committed->error;
    }
    if (!committed->len || (!all && committed->len < FLUSH_BYTES)) {
        return 0;
    }
    pthread_mutex_lock(&inv->lock);
    int code =
        write_rows(inv, committed->data, committed->len, rows->committed_rows);
    if (code == 0) {
        poise_buf_reset(committed);
        rows->committed_rows = 0;
        walk_row_state_reset(&rows->state);
    }
    pthread_mutex_unlock(&inv->lock);
    return code;
}

/* ---- checkpoints -------------------------------------------------------- */

int walk_inventory_save(struct walk_inventory *inv,
                        struct walk_rows *const *rows, size_t count,
                        struct poise_buf *out)
{
    pthread_mutex_lock(&inv->lock);
    poise_buf_varint(out, inv->part_count);
    for (size_t i = 0; i < inv->part_count; i++) {
        const struct walk_part *part = &inv->parts[i];
        poise_buf_blob(out, part->path, strlen(part->path));
        poise_buf_varint(out, part->bytes);
        poise_buf_varint(out, part->rows);
        poise_buf_varint(out, part->blocks);
    }
    int code = 0;
    poise_buf_varint(out, count);
    for (size_t i = 0; i < count; i++) {
        code = code < 0 ? code : rows[i]->committed.error;
        poise_buf_varint(out, rows[i]->committed_rows);
        poise_buf_blob(out, rows[i]->committed.data, rows[i]->committed.len);
    }
    pthread_mutex_unlock(&inv->lock);
    return code < 0 ? code : out->error;
}

int walk_inventory_settle(struct walk_inventory *inv)
{
    return poise_file_sync(inv->fd, inv->output);
}

/* What came behind the checkpoint did not happen. */
static int adopt(struct walk_inventory *inv, struct walk_part *part)
{
    int fd = poise_file_open(AT_FDCWD, part->path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    int code = 0;
    off_t size = lseek(fd, 0, SEEK_END);
    if (size < 0 || (uint64_t)size < part->bytes) {
        code = poise_error_set(EBADMSG, "resume the inventory", part->path,
                               "it is shorter than the checkpoint says");
    } else if (ftruncate(fd, (off_t)part->bytes) != 0) {
        code = poise_error_set(errno, "truncate", part->path, NULL);
    }
    close(fd);
    struct walk_part *parts =
        code < 0
            ? NULL
            : poise_realloc(inv->parts, inv->part_count + 1, sizeof *parts);
    if (!parts) {
        return code < 0 ? code : -ENOMEM;
    }
    inv->parts = parts;
    parts[inv->part_count++] = *part;
    return 0;
}

static int load_part(struct walk_inventory *inv, struct poise_reader *in)
{
    size_t len = 0;
    const char *path = poise_reader_blob(in, &len);
    struct walk_part part = {0};
    part.bytes = poise_reader_varint(in);
    part.rows = poise_reader_varint(in);
    part.blocks = poise_reader_varint(in);
    if (in->error) {
        return in->error;
    }
    part.path = poise_alloc(len + 1, 1);
    if (!part.path) {
        return -ENOMEM;
    }
    memcpy(part.path, path, len);
    int code = adopt(inv, &part);
    if (code < 0) {
        free(part.path);
    }
    return code;
}

/* Rows that were committed but not yet written go into our own part. */
int walk_inventory_load(struct walk_inventory *inv, struct poise_reader *in)
{
    int code = 0;
    uint64_t parts = poise_reader_varint(in);
    for (uint64_t i = 0; i < parts && code == 0; i++) {
        code = load_part(inv, in);
    }
    uint64_t tails = code < 0 ? 0 : poise_reader_varint(in);
    for (uint64_t i = 0; i < tails && code == 0; i++) {
        uint64_t rows = poise_reader_varint(in);
        size_t len = 0;
        const void *data = poise_reader_blob(in, &len);
        code = in->error || !len ? in->error : write_rows(inv, data, len, rows);
    }
    return code < 0 ? code : in->error;
}
