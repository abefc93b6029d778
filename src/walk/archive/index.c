/*
 * The index beside an archive: which members are where, and what they hash to.
 *
 * "POISEAIX", version, the archive's number, number of parts, their sizes; a
 * line for each member; XXH3-64 of all before it. A line: varints part, offset,
 * bytes; hash (8 bytes); type (1 byte); varint length of the name; the name.
 */
#include "internal.h"

#include <poise/output.h>

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static const char magic[8] = {'P', 'O', 'I', 'S', 'E', 'A', 'I', 'X'};
enum { INDEX_VERSION = 2 };

int tar_name(struct poise_buf *out, const char *archive, const char *end)
{
    poise_buf_reset(out);
    poise_buf_puts(out, archive);
    poise_buf_puts(out, end);
    poise_buf_str(out);
    return out->error;
}

int tar_part_name(struct poise_buf *out, const char *archive, unsigned part,
                  unsigned parts)
{
    poise_buf_reset(out);
    poise_buf_puts(out, archive);
    if (parts > 1) {
        poise_buf_printf(out, ".%u", part);
    }
    poise_buf_str(out);
    return out->error;
}

void tar_index_put(struct poise_buf *out, unsigned part,
                   const struct tar_entry *entry, const char *name)
{
    poise_buf_varint(out, part);
    poise_buf_varint(out, entry->offset);
    poise_buf_varint(out, entry->bytes);
    poise_buf_u64(out, entry->hash);
    poise_buf_putc(out, entry->type);
    poise_buf_blob(out, name, strlen(name));
}

int tar_index_write(const char *path, const struct poise_buf *lines,
                    size_t count, uint64_t id, const uint64_t *sizes,
                    unsigned parts, bool sync)
{
    struct poise_output *output = NULL;
    struct poise_buf head = {0};
    uint64_t hash = 0;
    int code = poise_output_open(path, NULL, &output);
    if (code < 0) {
        return code;
    }
    int fd = poise_output_fd(output);
    poise_buf_append(&head, magic, sizeof magic);
    poise_buf_varint(&head, INDEX_VERSION);
    poise_buf_u64(&head, id);
    poise_buf_varint(&head, parts);
    for (unsigned i = 0; i < parts; i++) {
        poise_buf_varint(&head, sizes[i]);
    }
    code = head.error;
    for (size_t i = 0; i <= count && code == 0; i++) {
        const struct poise_buf *piece = i == 0 ? &head : &lines[i - 1];
        if (piece->len > 0) {
            hash = poise_hash_bytes(piece->data, piece->len, hash);
            code = poise_file_write(fd, piece->data, piece->len, path);
        }
    }
    /* Pieces are hashed one by one: where they end is said, too. */
    poise_buf_reset(&head);
    for (size_t i = 0; i < count; i++) {
        poise_buf_u64(&head, lines[i].len);
    }
    poise_buf_u64(&head, count);
    poise_buf_u64(&head, hash);
    code = code < 0 ? code : head.error;
    if (code == 0) {
        code = poise_file_write(fd, head.data, head.len, path);
    }
    poise_buf_free(&head);
    if (code < 0) {
        poise_output_abort(output);
        return code;
    }
    return poise_output_commit(output, sync);
}

/* ---- reading ------------------------------------------------------------ */

static int damaged(const char *path)
{
    return poise_error_set(EBADMSG, "read index", path,
                           "it is damaged; without it the parts are read "
                           "through");
}

static int slurp(const char *path, struct poise_buf *out)
{
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    ssize_t got = fd < 0 ? fd : 1;
    while (got > 0) {
        char *to = poise_buf_reserve(out, TAR_CHUNK);
        got = to ? poise_file_read(fd, to, TAR_CHUNK, path) : -ENOMEM;
        out->len += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    return (int)got;
}

/* The head; where lines begin is what is left in `in`. */
static int read_head(struct poise_reader *in, struct tar_index *index,
                     const char *path)
{
    if (poise_reader_left(in) < sizeof magic ||
        memcmp(in->pos, magic, sizeof magic) != 0) {
        return damaged(path);
    }
    in->pos += sizeof magic;
    uint64_t version = poise_reader_varint(in);
    if (!in->error && version != INDEX_VERSION) {
        return poise_error_set(EBADMSG, "read index", path,
                               "it is of version %llu, not %d",
                               (unsigned long long)version, INDEX_VERSION);
    }
    index->id = poise_reader_u64(in);
    uint64_t parts = poise_reader_varint(in);
    if (in->error || parts == 0 || parts > TAR_PARTS_MOST) {
        return damaged(path);
    }
    index->parts = (unsigned)parts;
    index->sizes = poise_alloc(parts, sizeof *index->sizes);
    for (unsigned i = 0; index->sizes && i < parts; i++) {
        index->sizes[i] = poise_reader_varint(in);
    }
    return !index->sizes ? -ENOMEM : in->error ? damaged(path) : 0;
}

/* Whether the pieces hash to what the end says. */
static bool check_hash(struct tar_index *index)
{
    const char *data = index->bytes.data;
    size_t len = index->bytes.len, at = index->lines_at;
    if (len < at + 16) {
        return false;
    }
    uint64_t count = poise_get_u64(data + len - 16);
    uint64_t hash = poise_hash_bytes(data, at, 0);
    if (count > (len - at - 16) / 8) {
        return false;
    }
    const char *lens = data + len - 16 - 8 * count;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t piece = poise_get_u64(lens + 8 * i);
        if (piece > (size_t)(lens - data) - at) {
            return false;
        }
        if (piece > 0) {
            hash = poise_hash_bytes(data + at, piece, hash);
        }
        at += piece;
    }
    index->lines_end = at;
    return data + at == lens && hash == poise_get_u64(data + len - 8);
}

int tar_index_read(const char *path, struct tar_index *index)
{
    *index = (struct tar_index){0};
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        return 0;
    }
    int code = slurp(path, &index->bytes);
    struct poise_reader in =
        poise_reader_of(index->bytes.data, index->bytes.len);
    code = code < 0 ? code : read_head(&in, index, path);
    if (code == 0) {
        index->lines_at = index->bytes.len - poise_reader_left(&in);
        code = check_hash(index) ? 0 : damaged(path);
    }
    return code < 0 ? code : 1;
}

void tar_index_free(struct tar_index *index)
{
    poise_buf_free(&index->bytes);
    free(index->sizes);
    *index = (struct tar_index){0};
}

int tar_index_each(const struct tar_index *index,
                   int (*each)(unsigned part, const struct tar_entry *entry,
                               const char *name, size_t len, void *arg),
                   void *arg)
{
    struct poise_reader in =
        poise_reader_of(index->bytes.data + index->lines_at,
                        index->lines_end - index->lines_at);
    int code = 0;
    while (poise_reader_left(&in) > 0 && code == 0) {
        uint64_t part = poise_reader_varint(&in);
        struct tar_entry entry = {.offset = poise_reader_varint(&in)};
        entry.bytes = poise_reader_varint(&in);
        entry.hash = poise_reader_u64(&in);
        if (poise_reader_left(&in) > 0) {
            entry.type = (char)*in.pos++;
        }
        size_t len;
        const char *name = poise_reader_blob(&in, &len);
        if (!name || in.error || part >= index->parts) {
            return poise_error_set(EBADMSG, "read index", NULL,
                                   "its lines make no sense");
        }
        code = each((unsigned)part, &entry, name, len, arg);
    }
    return code;
}
