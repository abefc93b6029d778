/*
 * FILE.map: where the map is, for nodes whose map died. Written whole or not at
 * all; a reader that finds half of it, or none, looks again later.
 */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int contact_path(const char *log, struct poise_buf *out)
{
    poise_buf_puts(out, log);
    return poise_buf_puts(out, ".map");
}

int flow_contact_write(const char *log, const struct flow_contact *call)
{
    struct poise_buf path = {0}, text = {0};
    contact_path(log, &path);
    poise_buf_printf(&text, "%llu %llu %u\n", (unsigned long long)call->secret,
                     (unsigned long long)call->turn, call->port);
    int code =
        path.error ? path.error : poise_file_save(poise_buf_str(&path), &text);
    poise_buf_free(&path);
    poise_buf_free(&text);
    return code;
}

int flow_contact_read(const char *log, struct flow_contact *out)
{
    struct poise_buf path = {0};
    char text[80] = "", *end = text;
    contact_path(log, &path);
    int fd = path.error ? -1 : open(poise_buf_str(&path), O_RDONLY | O_CLOEXEC);
    poise_buf_free(&path);
    if (fd < 0) {
        return -ENOENT;
    }
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0 || !strchr(text, '\n')) {
        return -ENODATA;
    }
    out->secret = strtoull(end, &end, 10);
    out->turn = strtoull(end, &end, 10);
    out->port = (uint16_t)strtoul(end, &end, 10);
    return *end == '\n' ? 0 : -ENODATA;
}

void flow_contact_remove(const char *log)
{
    struct poise_buf path = {0};
    if (contact_path(log, &path) == 0) {
        unlink(poise_buf_str(&path));
    }
    poise_buf_free(&path);
}
