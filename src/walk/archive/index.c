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
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = {'P', 'O', 'I', 'S', 'E', 'A', 'I', 'X'};
enum {
    INDEX_VERSION = 3,
    INDEX_OLD = 2, /* is read, too */
    READ_BYTES = 64 << 10,
    HEAD_MOST = 16 << 20,  /* with the most parts */
    PIECE_MOST = 64 << 20, /* some lines; a name may be long */
};

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

uint64_t tar_hash_join(uint64_t hash, uint64_t number, uint64_t chunk_hash)
{
    char bytes[8];
    if (number == 0) {
        return chunk_hash;
    }
    poise_put_u64(bytes, chunk_hash);
    return poise_hash_bytes(bytes, sizeof bytes, hash);
}

uint64_t tar_hash(const void *bytes, size_t len)
{
    const char *from = bytes;
    uint64_t hash = 0, number = 0;
    for (size_t at = 0; at < len; at += TAR_CHUNK) {
        size_t n = len - at < TAR_CHUNK ? len - at : TAR_CHUNK;
        hash = tar_hash_join(hash, number++, tar_hash_chunk(from + at, n));
    }
    return hash;
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

/* ---- writing ------------------------------------------------------------ */

static int put_piece(struct tar_index_file *file, const void *data, size_t len)
{
    file->hash = poise_hash_bytes(data, len, file->hash);
    return poise_file_write(poise_output_fd(file->output), data, len,
                            file->path);
}

int tar_index_begin(struct tar_index_file *file, const char *path, uint64_t id,
                    const uint64_t *sizes, unsigned parts)
{
    const struct poise_output_options options = {
        .tag = poise_hash_bytes(path, strlen(path), 1) | 1};
    struct poise_buf head = {0};
    *file = (struct tar_index_file){.path = path};
    int code = poise_output_open(path, &options, &file->output);
    if (code < 0) {
        return code;
    }
    poise_buf_append(&head, magic, sizeof magic);
    poise_buf_varint(&head, INDEX_VERSION);
    poise_buf_u64(&head, id);
    poise_buf_varint(&head, parts);
    for (unsigned i = 0; i < parts; i++) {
        poise_buf_varint(&head, sizes[i]);
    }
    code = head.error ? head.error : put_piece(file, head.data, head.len);
    poise_buf_free(&head);
    return code;
}

int tar_index_piece(struct tar_index_file *file, const void *lines, size_t len)
{
    int code = poise_buf_u64(&file->lens, len);
    file->pieces++;
    return code < 0 ? code : put_piece(file, lines, len);
}

int tar_index_end(struct tar_index_file *file, bool sync, int code)
{
    /* Pieces are hashed one by one: where they end is said, too. */
    poise_buf_u64(&file->lens, file->pieces);
    poise_buf_u64(&file->lens, file->hash);
    code = code < 0 ? code : file->lens.error;
    if (code == 0) {
        code = poise_file_write(poise_output_fd(file->output), file->lens.data,
                                file->lens.len, file->path);
    }
    poise_buf_free(&file->lens);
    if (code < 0) {
        poise_output_abort(file->output);
        return code;
    }
    return poise_output_commit(file->output, sync);
}

/* ---- reading ------------------------------------------------------------ */

static int damaged(const char *path)
{
    return poise_error_set(EBADMSG, "read index", path,
                           "it is damaged; without it the parts are read "
                           "through");
}

/* More of the file behind what `out` holds, which begins at `at`. */
static int read_more(const struct tar_index *index, uint64_t at,
                     struct poise_buf *out, size_t len)
{
    char *to = poise_buf_reserve(out, len);
    ssize_t got =
        to ? poise_file_pread(index->fd, to, len, at + out->len, index->path)
           : -ENOMEM;
    out->len += got > 0 ? (size_t)got : 0;
    return got < 0 ? (int)got : got > 0;
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
    index->version = (unsigned)version;
    if (!in->error && version != INDEX_VERSION && version != INDEX_OLD) {
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

/* The whole head, however many parts there are; *hash is its. */
static int read_whole_head(struct tar_index *index, uint64_t *hash)
{
    struct poise_buf head = {0};
    int code, more;
    do {
        more = read_more(index, 0, &head, head.len ? head.len : READ_BYTES);
        struct poise_reader in = poise_reader_of(head.data, head.len);
        free(index->sizes);
        index->sizes = NULL;
        code = more < 0 ? more : read_head(&in, index, index->path);
        index->lines_at = head.len - poise_reader_left(&in);
    } while (code == -EBADMSG && more > 0 && head.len < HEAD_MOST);
    if (code == 0) {
        *hash = poise_hash_bytes(head.data, index->lines_at, 0);
    }
    poise_buf_free(&head);
    return code;
}

/* A piece's length, of those at the end. */
static int piece_len(const struct tar_index *index, uint64_t piece,
                     uint64_t *out)
{
    char bytes[8];
    ssize_t got = poise_file_pread(index->fd, bytes, sizeof bytes,
                                   index->lens_at + 8 * piece, index->path);
    *out = got == (ssize_t)sizeof bytes ? poise_get_u64(bytes) : 0;
    return got < 0 ? (int)got : *out > PIECE_MOST ? damaged(index->path) : 0;
}

/* The piece at *at, and where the next one is. */
static int read_piece(const struct tar_index *index, uint64_t piece,
                      uint64_t *at, struct poise_buf *out)
{
    uint64_t len = 0;
    int code = piece_len(index, piece, &len);
    if (code == 0 && len > index->lens_at - *at) {
        code = damaged(index->path);
    }
    poise_buf_reset(out);
    while (code == 0 && out->len < len) {
        int more = read_more(index, *at, out, (size_t)len - out->len);
        code = more > 0 ? 0 : more < 0 ? more : damaged(index->path);
    }
    *at += len;
    return code;
}

/* Whether the pieces hash to what the end says. */
static int check_hash(struct tar_index *index, uint64_t hash)
{
    struct stat st;
    struct poise_buf piece = {0};
    char end[16];
    if (fstat(index->fd, &st) != 0 ||
        (uint64_t)st.st_size < index->lines_at + sizeof end) {
        return damaged(index->path);
    }
    uint64_t rest = (uint64_t)st.st_size - index->lines_at - sizeof end;
    uint64_t at = index->lines_at;
    ssize_t got =
        poise_file_pread(index->fd, end, sizeof end,
                         (uint64_t)st.st_size - sizeof end, index->path);
    index->pieces = poise_get_u64(end);
    if (got < 0 || index->pieces > rest / 8) {
        return got < 0 ? (int)got : damaged(index->path);
    }
    index->lens_at = index->lines_at + rest - 8 * index->pieces;
    int code = 0;
    for (uint64_t i = 0; i < index->pieces && code == 0; i++) {
        code = read_piece(index, i, &at, &piece);
        hash = code < 0 ? hash : poise_hash_bytes(piece.data, piece.len, hash);
    }
    poise_buf_free(&piece);
    return code < 0 ? code
           : at == index->lens_at && hash == poise_get_u64(end + 8)
               ? 0
               : damaged(index->path);
}

int tar_index_read(const char *path, struct tar_index *index)
{
    uint64_t hash = 0;
    *index = (struct tar_index){0};
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        return 0;
    }
    index->path = strdup(path);
    if (!index->path) {
        return -ENOMEM;
    }
    int code = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (code >= 0) {
        index->fd = code;
        code = read_whole_head(index, &hash);
        code = code < 0 ? code : check_hash(index, hash);
    }
    return code < 0 ? code : 1;
}

void tar_index_free(struct tar_index *index)
{
    if (index->fd > 0) {
        close(index->fd);
    }
    free(index->path);
    free(index->sizes);
    *index = (struct tar_index){0};
}

static int each_line(const struct tar_index *index,
                     const struct poise_buf *piece,
                     int (*each)(unsigned part, const struct tar_entry *entry,
                                 const char *name, size_t len, void *arg),
                     void *arg)
{
    struct poise_reader in = poise_reader_of(piece->data, piece->len);
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
            return poise_error_set(EBADMSG, "read index", index->path,
                                   "its lines make no sense");
        }
        code = each((unsigned)part, &entry, name, len, arg);
    }
    return code;
}

int tar_index_each(const struct tar_index *index,
                   int (*each)(unsigned part, const struct tar_entry *entry,
                               const char *name, size_t len, void *arg),
                   void *arg)
{
    struct poise_buf piece = {0};
    uint64_t at = index->lines_at;
    int code = 0;
    for (uint64_t i = 0; i < index->pieces && code == 0; i++) {
        code = read_piece(index, i, &at, &piece);
        code = code < 0 ? code : each_line(index, &piece, each, arg);
    }
    poise_buf_free(&piece);
    return code;
}
