/*
 * FILE.map: where the map is, for nodes whose map died. Written whole or not at
 * all; a reader that finds half of it, or none, looks again later.
 */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int contact_path(const char *log, struct poise_buf *out)
{
    poise_buf_puts(out, log);
    return poise_buf_puts(out, ".map");
}

int flow_contact_text(const struct flow_contact *call, struct poise_buf *out)
{
    char at[FLOW_ENDPOINT_TEXT];
    for (size_t i = 0; i < sizeof call->secret; i++) {
        poise_buf_printf(out, "%02x", call->secret[i]);
    }
    return poise_buf_printf(out, " %llu %s\n", (unsigned long long)call->turn,
                            flow_endpoint_text(&call->at, at));
}

static int digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

int flow_contact_parse(const char *text, struct flow_contact *out)
{
    struct flow_contact call = {.turn = 0};
    char at[FLOW_ENDPOINT_TEXT], *end;
    for (size_t i = 0; i < sizeof call.secret; i++, text += 2) {
        int high = digit(text[0]), low = high < 0 ? -1 : digit(text[1]);
        if (low < 0) {
            return -ENODATA;
        }
        call.secret[i] = (unsigned char)(high << 4 | low);
    }
    call.turn = strtoull(text, &end, 10);
    size_t len = *end == ' ' ? strcspn(end + 1, "\n") : 0;
    if (len == 0 || len >= sizeof at || end[1 + len] != '\n') {
        return -ENODATA;
    }
    memcpy(at, end + 1, len);
    at[len] = '\0';
    if (flow_endpoint_parse(at, &call.at) < 0) {
        return -ENODATA;
    }
    *out = call;
    return 0;
}

int flow_contact_write(const char *log, const struct flow_contact *call)
{
    struct poise_buf path = {0}, text = {0};
    contact_path(log, &path);
    int code = flow_contact_text(call, &text);
    code = path.error ? path.error : code;
    if (code == 0) {
        /* What replaces a file has its mode. */
        int fd = poise_file_open(AT_FDCWD, poise_buf_str(&path),
                                 O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0 && fchmod(fd, 0600) < 0) {
            code = poise_error_set(errno, "keep from others",
                                   poise_buf_str(&path), NULL);
        }
        code = fd < 0 ? fd : code;
        if (fd >= 0) {
            close(fd);
        }
    }
    code = code == 0 ? poise_file_save(poise_buf_str(&path), &text) : code;
    poise_buf_free(&path);
    poise_buf_free(&text);
    return code;
}

int flow_contact_read(const char *log, struct flow_contact *out)
{
    struct poise_buf path = {0};
    char text[160] = "";
    contact_path(log, &path);
    int fd = path.error ? -1 : open(poise_buf_str(&path), O_RDONLY | O_CLOEXEC);
    poise_buf_free(&path);
    if (fd < 0) {
        return -ENOENT;
    }
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    return got > 0 ? flow_contact_parse(text, out) : -ENODATA;
}

void flow_contact_remove(const char *log)
{
    struct poise_buf path = {0};
    if (contact_path(log, &path) == 0) {
        unlink(poise_buf_str(&path));
    }
    poise_buf_free(&path);
}
