/* Chunks by hand, for solve and desync run. */
#include "flow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES 65536

struct reader {
    const char *path, *at;
    unsigned line;
    const struct poise_flow_chunk *shape; /* of the file that is cut */
};

static int wrong(const struct reader *reader)
{
    return poise_error_set(EINVAL, "read", reader->path,
                           "line %u is not NODE%s [VERSIONS]", reader->line,
                           reader->shape->dims == 2 ? " ROWS COLUMNS"
                           : reader->shape->dims == 1
                               ? " RANGE"
                               : " and a range for each dimension");
}

static void skip_blanks(struct reader *reader)
{
    while (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r') {
        reader->at++;
    }
}

static int read_number(struct reader *reader, int64_t *out)
{
    char *end;
    if (*reader->at < '0' || *reader->at > '9') {
        return wrong(reader);
    }
    errno = 0;
    *out = strtoll(reader->at, &end, 10);
    reader->at = end;
    return errno ? wrong(reader) : 0;
}

static int read_range(struct reader *reader, struct poise_flow_range *out)
{
    skip_blanks(reader);
    int code = read_number(reader, &out->from);
    if (code == 0 && *reader->at != '-') {
        code = wrong(reader);
    }
    if (code == 0) {
        reader->at++;
        code = read_number(reader, &out->to);
    }
    return code;
}

static int read_chunk(struct reader *reader, struct poise_flow_part *out)
{
    int64_t node = 0;
    *out = (struct poise_flow_part){
        .chunk = {.dims = reader->shape->dims,
                  .versions = reader->shape->versions}};
    if (out->chunk.versions.to == 0) {
        out->chunk.versions.to = 1;
    }
    int code = read_number(reader, &node);
    for (unsigned d = 0; code == 0 && d < reader->shape->dims; d++) {
        code = read_range(reader, &out->chunk.index[d]);
    }
    skip_blanks(reader);
    if (code == 0 && *reader->at >= '0' && *reader->at <= '9') {
        code = read_range(reader, &out->chunk.versions);
        skip_blanks(reader);
    }
    if (code == 0 &&
        (node >= POISE_FLOW_NODES_MOST || !strchr("\n", *reader->at))) {
        code = wrong(reader);
    }
    out->node = (unsigned)node;
    return code;
}

int cli_text_read(const char *path, struct poise_buf *out)
{
    ssize_t count = 1;
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    while (count > 0) {
        char *room = poise_buf_reserve(out, READ_BYTES);
        count = room ? poise_file_read(fd, room, READ_BYTES, path) : -ENOMEM;
        out->len += count > 0 ? (size_t)count : 0;
    }
    poise_file_close(fd, path);
    /* Numbers are parsed up to a 0. */
    return count < 0 ? (int)count : poise_buf_putc(out, '\0');
}

int cli_chunks_read(const char *path, const struct poise_flow_chunk *shape,
                    struct poise_buf *out)
{
    struct poise_buf text = {0};
    struct poise_flow_part part;
    int code = cli_text_read(path, &text);
    struct reader reader = {path, poise_buf_str(&text), 1, shape};
    while (code == 0 && *reader.at) {
        skip_blanks(&reader);
        if (*reader.at == '#') {
            reader.at += strcspn(reader.at, "\n");
        } else if (*reader.at != '\n' && *reader.at) {
            code = read_chunk(&reader, &part);
            code = code == 0 ? poise_buf_append(out, &part, sizeof part) : code;
        }
        if (*reader.at == '\n') {
            reader.at++;
            reader.line++;
        }
    }
    if (code == 0 && out->len == 0) {
        code = poise_error_set(EINVAL, "read", path, "it has no chunk");
    }
    poise_buf_free(&text);
    return code;
}
