/*
 * Record logs. The layout is in docs/formats.md. Each checksum is seeded with
 * the one before it, so that the last one proves the whole file: records cannot
 * be altered, left out, repeated or exchanged.
 *
 * Under its own name a log is whole at every moment: it is an output of
 * <poise/output.h>. Commit writes the end record, syncs the file, renames it
 * and syncs the folder, in this order. A crash before the rename leaves the
 * older file, if there was one; a crash after it leaves the one or the other,
 * both whole, since the contents were on the disk first.
 */

#include <poise/file.h>
#include <poise/log.h>
#include <poise/output.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_MAGIC_BYTES 8
#define LOG_HEADER_BYTES 24 /* magic, version u32, zero u32, checksum u64 */
#define LOG_RECORD_BYTES 16 /* type u32, length u32, checksum u64 */
#define LOG_END_BYTES 8     /* the end record's content: count u64 */
#define LOG_TYPE_END UINT32_MAX
#define LOG_BUFFER_BYTES ((size_t)64 << 10)

struct poise_log {
    char *path; /**< owned */
    struct poise_output *output;
    int error; /**< sticky */
    uint64_t records, bytes;
    uint64_t chain; /**< the last checksum */
    struct poise_buf pending;
};

struct poise_log_reader {
    char *path; /**< owned */
    int fd;
    uint64_t size;    /**< of the file */
    uint64_t at;      /**< offset of the next record's header */
    uint64_t records; /**< read so far */
    uint64_t chain;
    bool ended; /**< the end record was read */
    struct poise_buf data;
    uint64_t data_at; /**< file offset of data.data[0] */
};

/* The checksum of a record: over its type and length, then over its data. */
static uint64_t log_checksum(uint64_t chain, const unsigned char *header,
                             const void *data, size_t len)
{
    return poise_hash_bytes(data, len, poise_hash_bytes(header, 8, chain));
}

/* ---- writing ------------------------------------------------------------ */

static char *log_copy_path(const char *path)
{
    size_t bytes = strlen(path) + 1;
    char *copy = poise_alloc(bytes, 1);
    if (copy != NULL) {
        memcpy(copy, path, bytes);
    }
    return copy;
}

static int log_flush(struct poise_log *log)
{
    if (log->error == 0) {
        log->error =
            poise_file_write(poise_output_fd(log->output), log->pending.data,
                             log->pending.len, log->path);
        poise_buf_reset(&log->pending);
    }
    return log->error;
}

static int log_put(struct poise_log *log, const void *data, size_t len)
{
    if (log->pending.len + len > LOG_BUFFER_BYTES) {
        log_flush(log);
    }
    if (log->error == 0) {
        log->error = len > LOG_BUFFER_BYTES
                         ? poise_file_write(poise_output_fd(log->output), data,
                                            len, log->path)
                         : poise_buf_append(&log->pending, data, len);
    }
    if (log->error == 0) {
        log->bytes += len;
    }
    return log->error;
}

static int log_put_header(struct poise_log *log, const char *magic,
                          uint32_t version)
{
    unsigned char header[LOG_HEADER_BYTES] = {0};
    memcpy(header, magic, LOG_MAGIC_BYTES);
    poise_put_u32(header + 8, version);
    log->chain = poise_hash_bytes(header, 16, 0);
    poise_put_u64(header + 16, log->chain);
    return log_put(log, header, sizeof header);
}

int poise_log_create(const char *path, const char *magic, uint32_t version,
                     struct poise_log **out)
{
    struct poise_log *log = poise_alloc(1, sizeof *log);
    if (log == NULL) {
        return -ENOMEM;
    }
    const struct poise_output_options options = {.sequential = true};
    int code = -ENOMEM;
    log->path = log_copy_path(path);
    if (log->path == NULL ||
        poise_buf_reserve(&log->pending, LOG_BUFFER_BYTES) == NULL) {
        goto abort_log;
    }
    code = poise_output_open(path, &options, &log->output);
    if (code < 0) {
        goto abort_log;
    }
    code = log_put_header(log, magic, version);
    if (code != 0) {
        goto abort_log;
    }
    *out = log;
    return 0;
abort_log:
    poise_log_abort(log);
    return code;
}

static int log_put_record(struct poise_log *log, uint32_t type,
                          const void *data, size_t len)
{
    unsigned char header[LOG_RECORD_BYTES];
    poise_put_u32(header, type);
    poise_put_u32(header + 4, (uint32_t)len);
    log->chain = log_checksum(log->chain, header, data, len);
    poise_put_u64(header + 8, log->chain);
    log_put(log, header, sizeof header);
    return log_put(log, data, len);
}

int poise_log_append(struct poise_log *log, uint32_t type, const void *data,
                     size_t len)
{
    if (log->error != 0) {
        return log->error;
    }
    if (type == LOG_TYPE_END || len > UINT32_MAX) {
        return poise_error_set(EINVAL, "append a record to", log->path,
                               "type %" PRIu32 " with %zu bytes is not allowed",
                               type, len);
    }
    log->records++;
    return log_put_record(log, type, data, len);
}

uint64_t poise_log_bytes(const struct poise_log *log)
{
    return log->bytes;
}

void poise_log_abort(struct poise_log *log)
{
    if (log != NULL) {
        poise_output_abort(log->output);
        poise_buf_free(&log->pending);
        free(log->path);
        free(log);
    }
}

int poise_log_commit(struct poise_log *log)
{
    unsigned char count[LOG_END_BYTES];
    poise_put_u64(count, log->records);
    if (log->error == 0) {
        log_put_record(log, LOG_TYPE_END, count, sizeof count);
    }
    int code = log_flush(log);
    if (code == 0) {
        code = poise_output_commit(log->output, true);
        log->output = NULL;
    }
    poise_log_abort(log);
    return code;
}

/* ---- reading ------------------------------------------------------------ */

static int log_bad(const struct poise_log_reader *reader, const char *why)
{
    return poise_error_set(EBADMSG, "read", reader->path, "%s at byte %" PRIu64,
                           why, reader->at);
}

/* Make the file's bytes [from, from + len) available; they exist by its size.
 * NULL with *code set when that fails. */
static const unsigned char *log_bytes(struct poise_log_reader *reader,
                                      uint64_t from, size_t len, int *code)
{
    struct poise_buf *data = &reader->data;
    if (from < reader->data_at || from + len > reader->data_at + data->len) {
        uint64_t left = reader->size - from;
        size_t want = len > LOG_BUFFER_BYTES ? len : LOG_BUFFER_BYTES;
        if (want > left) {
            want = (size_t)left;
        }
        poise_buf_reset(data);
        if (poise_buf_reserve(data, want) == NULL) {
            *code = data->error;
            return NULL;
        }
        ssize_t n =
            poise_file_pread(reader->fd, data->data, want, from, reader->path);
        if (n < 0 || (size_t)n < len) {
            *code = n < 0 ? (int)n : log_bad(reader, "the file was truncated");
            return NULL;
        }
        data->len = (size_t)n;
        reader->data_at = from;
    }
    return (const unsigned char *)data->data + (from - reader->data_at);
}

static int log_check_header(struct poise_log_reader *reader, const char *magic,
                            uint32_t max_version)
{
    int code = 0;
    reader->at = 0;
    reader->records = 0;
    reader->ended = false;
    if (reader->size < LOG_HEADER_BYTES) {
        return log_bad(reader, "no complete header");
    }
    const unsigned char *header = log_bytes(reader, 0, LOG_HEADER_BYTES, &code);
    if (header == NULL) {
        return code;
    }
    reader->chain = poise_get_u64(header + 16);
    if (poise_hash_bytes(header, 16, 0) != reader->chain) {
        return log_bad(reader, "not a log of Poise, or a damaged header");
    }
    if (memcmp(header, magic, LOG_MAGIC_BYTES) != 0) {
        return poise_error_set(EPROTO, "read", reader->path,
                               "it is a log of another kind, %.8s, not %.8s",
                               (const char *)header, magic);
    }
    uint32_t version = poise_get_u32(header + 8);
    if (version > max_version || poise_get_u32(header + 12) != 0) {
        return poise_error_set(EPROTO, "read", reader->path,
                               "it has version %" PRIu32
                               ", this program reads up to %" PRIu32,
                               version, max_version);
    }
    reader->at = LOG_HEADER_BYTES;
    return 0;
}

/* The next record, its place and sums checked. 1, or 0 after the end record,
 * or negative. */
static int log_step(struct poise_log_reader *reader, uint32_t *type,
                    const unsigned char **data, size_t *len)
{
    int code = 0;
    if (reader->ended) {
        return 0;
    }
    uint64_t left = reader->size - reader->at;
    if (left < LOG_RECORD_BYTES) {
        return log_bad(reader, "the file ends too early");
    }
    const unsigned char *record =
        log_bytes(reader, reader->at, LOG_RECORD_BYTES, &code);
    if (record == NULL) {
        return code;
    }
    size_t size = poise_get_u32(record + 4);
    if (size > left - LOG_RECORD_BYTES) {
        return log_bad(reader, "a record does not fit the file");
    }
    record = log_bytes(reader, reader->at, LOG_RECORD_BYTES + size, &code);
    if (record == NULL) {
        return code;
    }
    const unsigned char *content = record + LOG_RECORD_BYTES;
    uint64_t sum = log_checksum(reader->chain, record, content, size);
    if (sum != poise_get_u64(record + 8)) {
        return log_bad(reader, "a record has a wrong checksum");
    }
    if (poise_get_u32(record) == LOG_TYPE_END) {
        if (size != LOG_END_BYTES ||
            poise_get_u64(content) != reader->records ||
            reader->at + LOG_RECORD_BYTES + size != reader->size) {
            return log_bad(reader, "the end record does not fit the file");
        }
        reader->ended = true;
        return 0;
    }
    reader->chain = sum;
    reader->records++;
    reader->at += LOG_RECORD_BYTES + size;
    *type = poise_get_u32(record);
    *data = content;
    *len = size;
    return 1;
}

static int log_open_file(struct poise_log_reader *reader, const char *path)
{
    reader->path = log_copy_path(path);
    if (reader->path == NULL) {
        return -ENOMEM;
    }
    int code = poise_file_open(AT_FDCWD, path, O_RDONLY, 0);
    if (code < 0) {
        return code;
    }
    reader->fd = code;
    struct stat st;
    if (fstat(reader->fd, &st) != 0) {
        return poise_error_set(errno, "read", path, NULL);
    }
    if (!S_ISREG(st.st_mode)) {
        return poise_error_set(EINVAL, "read", path, "not a regular file");
    }
    reader->size = (uint64_t)st.st_size;
    return 0;
}

int poise_log_open(const char *path, const char *magic, uint32_t max_version,
                   struct poise_log_reader **out)
{
    struct poise_log_reader *reader = poise_alloc(1, sizeof *reader);
    if (reader == NULL) {
        return -ENOMEM;
    }
    reader->fd = -1;
    int code = log_open_file(reader, path);
    if (code == 0) {
        code = log_check_header(reader, magic, max_version);
    }
    /* Once over all of it, then back to the start. */
    uint32_t type;
    const unsigned char *data;
    size_t len;
    if (code == 0) {
        do {
            code = log_step(reader, &type, &data, &len);
        } while (code > 0);
    }
    if (code == 0) {
        code = log_check_header(reader, magic, max_version);
    }
    if (code != 0) {
        poise_log_close(reader);
        return code;
    }
    *out = reader;
    return 0;
}

int poise_log_next(struct poise_log_reader *reader, uint32_t *type,
                   const void **data, size_t *len)
{
    uint32_t record_type = 0;
    const unsigned char *content = NULL;
    size_t size = 0;
    int code = log_step(reader, &record_type, &content, &size);
    if (code == 1) {
        *type = record_type;
        *data = content;
        *len = size;
    }
    return code;
}

void poise_log_close(struct poise_log_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    if (reader->fd >= 0) {
        close(reader->fd);
    }
    poise_buf_free(&reader->data);
    free(reader->path);
    free(reader);
}
