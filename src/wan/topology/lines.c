/*
 * Files of lines that somebody else wrote, and that may be anything: a device
 * without an end, a picture. No line is longer than it needs to be, none has a
 * NUL, the whole is not endless; else the line is named.
 */
#include "wan/topology/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES ((size_t)1 << 16)
#define LINE_MOST 4096
/** Some hours of a packet each microsecond are less. */
#define FILE_MOST ((uint64_t)256 << 20)

struct text {
    const char *path;
    int (*take)(void *arg, char *text, const char *path, unsigned line);
    void *arg;
    unsigned line;
    uint64_t bytes;
    char *buffer; /* [BUFFER_BYTES + 1], owned */
    size_t len;
};

static int take_line(struct text *t, char *line, size_t len)
{
    t->line++;
    line[len] = '\0';
    if (memchr(line, '\0', len)) {
        return wan_line_error(t->path, t->line, "a NUL byte");
    }
    return len > LINE_MOST ? wan_line_error(t->path, t->line,
                                            "longer than %d bytes", LINE_MOST)
                           : t->take(t->arg, line, t->path, t->line);
}

/* Those that are whole; with `end` also what is left. */
static int take_lines(struct text *t, bool end)
{
    size_t at = 0;
    int code = 0;
    char *stop;
    while (code == 0 &&
           (stop = memchr(t->buffer + at, '\n', t->len - at)) != NULL) {
        code = take_line(t, t->buffer + at, (size_t)(stop - t->buffer) - at);
        at = (size_t)(stop - t->buffer) + 1;
    }
    bool over = end ? at < t->len : t->len - at > LINE_MOST;
    if (code == 0 && over) {
        return take_line(t, t->buffer + at, t->len - at);
    }
    memmove(t->buffer, t->buffer + at, t->len - at);
    t->len -= at;
    return code;
}

int wan_lines_read(const char *path,
                   int (*take)(void *arg, char *text, const char *path,
                               unsigned line),
                   void *arg)
{
    struct text t = {.path = path, .take = take, .arg = arg};
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    int code = fd < 0 ? fd : 0;
    ssize_t got = 1;
    if (code == 0 && !(t.buffer = poise_alloc(BUFFER_BYTES + 1, 1))) {
        code = -ENOMEM;
    }
    while (code == 0 && got > 0) {
        got = poise_file_read(fd, t.buffer + t.len, BUFFER_BYTES - t.len, path);
        t.len += got > 0 ? (size_t)got : 0;
        t.bytes += got > 0 ? (uint64_t)got : 0;
        code = got < 0 ? (int)got : take_lines(&t, got == 0);
        if (code == 0 && t.bytes > FILE_MOST) {
            code = wan_line_error(path, t.line, "longer than %llu MiB",
                                  (unsigned long long)(FILE_MOST >> 20));
        }
    }
    free(t.buffer);
    if (fd >= 0) {
        poise_file_close(fd, path);
    }
    return code;
}
