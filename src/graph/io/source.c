/*
 * A file as a stream of bytes, unpacked where need be. What packs it shows in
 * its first bytes, whatever its name says.
 */
#include "internal.h"

#include <poise/parts.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { SOURCE_INPUT = 1 << 18 };
enum source_kind { SOURCE_PLAIN, SOURCE_GZIP, SOURCE_ZSTD };

struct graph_source {
    int fd;
    enum source_kind kind;
    char *path;
    char *input; /* packed bytes, or the first ones of a plain file */
    size_t at, len;
    uint64_t total, done;
    char head[GRAPH_SOURCE_HEAD]; /* the first bytes, unpacked */
    size_t head_at, head_len;
    bool is_stream;
    bool input_ended;
    bool within; /* a member of the packed file has begun, not ended */
    z_stream gzip;
    ZSTD_DStream *zstd;
};

static const unsigned char source_gzip_magic[] = {0x1f, 0x8b};
static const unsigned char source_zstd_magic[] = {0x28, 0xb5, 0x2f, 0xfd};

static int source_fill(struct graph_source *source)
{
    ssize_t n =
        poise_file_read(source->fd, source->input, SOURCE_INPUT, source->path);
    if (n < 0) {
        return (int)n;
    }
    source->at = 0;
    source->len = (size_t)n;
    source->done += (uint64_t)n;
    source->input_ended = n < SOURCE_INPUT;
    return 0;
}

static bool source_begins_with(const struct graph_source *source,
                               const unsigned char *magic, size_t len)
{
    return source->len - source->at >= len &&
           memcmp(source->input + source->at, magic, len) == 0;
}

static int source_start(struct graph_source *source)
{
    if (source_begins_with(source, source_gzip_magic,
                           sizeof source_gzip_magic)) {
        if (!poise_parts[POISE_PART_ZLIB].is_built) {
            return poise_part_missing(POISE_PART_ZLIB, "unpack", source->path);
        }
        source->kind = SOURCE_GZIP;
        /* 15 + 16: the largest window, a gzip header. */
        if (inflateInit2(&source->gzip, 15 + 16) != Z_OK) {
            return poise_error_set(ENOMEM, "unpack", source->path, NULL);
        }
    } else if (source_begins_with(source, source_zstd_magic,
                                  sizeof source_zstd_magic)) {
        source->kind = SOURCE_ZSTD;
        source->zstd = ZSTD_createDStream();
        if (!source->zstd) {
            return poise_error_set(ENOMEM, "unpack", source->path, NULL);
        }
    }
    return 0;
}

static ssize_t source_read(struct graph_source *source, void *data, size_t len);

/* A byte-order mark is no part of the text. */
static int source_skip_mark(struct graph_source *source)
{
    ssize_t n = source_read(source, source->head, 3);
    if (n < 0) {
        return (int)n;
    }
    source->head_len = (size_t)n;
    if (n >= 2 && (memcmp(source->head, "\xff\xfe", 2) == 0 ||
                   memcmp(source->head, "\xfe\xff", 2) == 0)) {
        return poise_error_set(EBADMSG, "read graph", source->path,
                               "it is text in UTF-16 or UTF-32; UTF-8 is "
                               "wanted (iconv converts it)");
    }
    if (n == 3 && memcmp(source->head, "\xef\xbb\xbf", 3) == 0) {
        source->head_len = 0;
    }
    return 0;
}

/* Whether the file at `fd` can be read at any place, from its beginning on. */
static bool source_is_whole(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           lseek(fd, 0, SEEK_CUR) == 0;
}

/* A file; or a descriptor of this process, from where it stands. */
static int source_open_path(const char *path)
{
    int fd = poise_file_named_descriptor(path);
    if (fd < 0 || source_is_whole(fd)) {
        return poise_file_open(AT_FDCWD, path, O_RDONLY, 0);
    }
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return fd < 0 ? poise_error_set(errno, "open", path, NULL) : fd;
}

static int source_one(const char *path, int readers)
{
    return poise_error_set(EINVAL, "read graph", path,
                           "it can be read once only, and %d processes would "
                           "read it: store it in a file, or start one process",
                           readers);
}

int graph_source_open(const char *path, int readers, struct graph_source **out)
{
    struct graph_source *source = poise_alloc(1, sizeof *source);
    struct stat st;
    if (!source) {
        return -ENOMEM;
    }
    int code = source->fd = source_open_path(path);
    if (code >= 0) {
        source->path = poise_alloc(strlen(path) + 1, 1);
        source->input = poise_alloc(SOURCE_INPUT, 1);
        code = source->path && source->input ? 0 : -ENOMEM;
    }
    if (code == 0) {
        memcpy(source->path, path, strlen(path));
        code = fstat(source->fd, &st) == 0
                   ? 0
                   : poise_error_set(errno, "look at", path, NULL);
    }
    if (code == 0) {
        source->is_stream = !source_is_whole(source->fd);
        source->total = source->is_stream ? 0 : (uint64_t)st.st_size;
        /* Before it is read: a launcher may never close what it gave others. */
        code = source->is_stream && readers > 1 ? source_one(path, readers)
                                                : source_fill(source);
    }
    if (code == 0) {
        code = source_start(source);
    }
    if (code == 0) {
        code = source_skip_mark(source);
    }
    if (code < 0) {
        graph_source_close(source);
        return code;
    }
    *out = source;
    return 0;
}

void graph_source_close(struct graph_source *source)
{
    if (!source) {
        return;
    }
    if (source->kind == SOURCE_GZIP) {
        inflateEnd(&source->gzip);
    }
    ZSTD_freeDStream(source->zstd);
    if (source->fd >= 0) {
        poise_file_close(source->fd, source->path);
    }
    free(source->input);
    free(source->path);
    free(source);
}

static int source_bad(const struct graph_source *source, const char *why)
{
    return poise_error_set(EBADMSG, "unpack", source->path, "%s",
                           why ? why : "the packed data are altered");
}

/* Make sure that there is packed input: 1, or 0 at the end of the file. */
static int source_more(struct graph_source *source)
{
    if (source->at == source->len && !source->input_ended) {
        int code = source_fill(source);
        if (code < 0) {
            return code;
        }
    }
    if (source->at < source->len) {
        return 1;
    }
    return source->within ? source_bad(source, "the file is cut short") : 0;
}

/* Unpack into [data, data + len): how many bytes came out. */
static ssize_t source_gunzip(struct graph_source *source, char *data,
                             size_t len)
{
    z_stream *z = &source->gzip;
    if (!source->within && (unsigned char)source->input[source->at] != 0x1f) {
        return source_bad(source, "something else follows the packed data");
    }
    source->within = true;
    z->next_in = (unsigned char *)source->input + source->at;
    z->avail_in = (unsigned)(source->len - source->at);
    z->next_out = (unsigned char *)data;
    z->avail_out = len > UINT32_MAX / 2 ? UINT32_MAX / 2 : (unsigned)len;
    int code = inflate(z, Z_NO_FLUSH);
    if (code == Z_MEM_ERROR) {
        return poise_error_set(ENOMEM, "unpack", source->path, NULL);
    }
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
        return source_bad(source, z->msg);
    }
    source->at = source->len - z->avail_in;
    if (code == Z_STREAM_END) {
        source->within = false;
        inflateReset(z); /* another member may follow */
    }
    return (char *)z->next_out - data;
}

static ssize_t source_unzstd(struct graph_source *source, char *data,
                             size_t len)
{
    ZSTD_inBuffer in = {source->input, source->len, source->at};
    ZSTD_outBuffer out = {data, len, 0};
    size_t left = ZSTD_decompressStream(source->zstd, &out, &in);
    if (ZSTD_isError(left)) {
        return source_bad(source, ZSTD_getErrorName(left));
    }
    source->at = in.pos;
    source->within = left != 0;
    return (ssize_t)out.pos;
}

static ssize_t source_unpack(struct graph_source *source, char *data,
                             size_t len)
{
    size_t done = 0;
    while (done < len) {
        int more = source_more(source);
        if (more <= 0) {
            return more < 0 ? more : (ssize_t)done;
        }
        ssize_t n = source->kind == SOURCE_GZIP
                        ? source_gunzip(source, data + done, len - done)
                        : source_unzstd(source, data + done, len - done);
        if (n < 0) {
            return n;
        }
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static ssize_t source_read(struct graph_source *source, void *data, size_t len)
{
    if (source->kind != SOURCE_PLAIN) {
        return source_unpack(source, data, len);
    }
    size_t first = source->len - source->at;
    if (first > len) {
        first = len;
    }
    memcpy(data, source->input + source->at, first);
    source->at += first;
    if (first == len || source->input_ended) {
        return (ssize_t)first;
    }
    ssize_t n = poise_file_read(source->fd, (char *)data + first, len - first,
                                source->path);
    if (n < 0) {
        return n;
    }
    source->done += (uint64_t)n;
    source->input_ended = (size_t)n < len - first;
    return (ssize_t)first + n;
}

ssize_t graph_source_read(struct graph_source *source, void *data, size_t len)
{
    size_t first = source->head_len - source->head_at;
    if (first > len) {
        first = len;
    }
    memcpy(data, source->head + source->head_at, first);
    source->head_at += first;
    ssize_t n = source_read(source, (char *)data + first, len - first);
    return n < 0 ? n : (ssize_t)first + n;
}

ssize_t graph_source_peek(struct graph_source *source, const char **head)
{
    ssize_t n = source_read(source, source->head + source->head_len,
                            sizeof source->head - source->head_len);
    if (n < 0) {
        return n;
    }
    source->head_len += (size_t)n;
    *head = source->head;
    return (ssize_t)source->head_len;
}

bool graph_source_is_stream(const struct graph_source *source)
{
    return source->is_stream;
}

bool graph_source_is_packed(const struct graph_source *source)
{
    return source->kind != SOURCE_PLAIN;
}

uint64_t graph_source_total(const struct graph_source *source)
{
    return source->total;
}

uint64_t graph_source_done(const struct graph_source *source)
{
    return source->done;
}
