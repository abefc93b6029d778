/* Chunks by hand for poise solve. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *path, *at;
    unsigned line;
};

static int wrong(const struct reader *reader)
{
    return poise_error_set(EINVAL, "read", reader->path,
                           "line %u is not NODE ROWS COLUMNS [VERSIONS]",
                           reader->line);
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

static int read_chunk(struct reader *reader, uint64_t versions,
                      struct poise_flow_part *out)
{
    int64_t node = 0;
    *out = (struct poise_flow_part){
        .chunk = {.dims = 2, .versions = {0, (int64_t)versions}}};
    int code = read_number(reader, &node);
    for (int d = 0; code == 0 && d < 2; d++) {
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

int cli_chunks_read(const char *path, uint64_t versions, struct poise_buf *out)
{
    struct poise_buf text = {0};
    struct poise_flow_part part;
    int code = cli_text_read(path, &text);
    struct reader reader = {path, poise_buf_str(&text), 1};
    while (code == 0 && *reader.at) {
        skip_blanks(&reader);
        if (*reader.at == '#') {
            reader.at += strcspn(reader.at, "\n");
        } else if (*reader.at != '\n' && *reader.at) {
            code = read_chunk(&reader, versions, &part);
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
