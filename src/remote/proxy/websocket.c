/*
 * What browsers speak: the request that begins a WebSocket, and its frames.
 * Source: RFC 6455.
 *
 * A page of any site may ask a browser to connect to this machine. The browser
 * says whose page it is (Origin), so only pages of the address that they
 * connect to are served, and where only this machine may connect those of this
 * machine: an address that a name of somebody else leads to is refused by its
 * name (Host).
 */
#include "internal.h"

#include <openssl/evp.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    KEY_MOST = 64,
    SHA1_BYTES = 20,
    BASE64_BYTES = 28,
    NAME_MOST = 256,
    OP_CONTINUED = 0,
    OP_BINARY = 2,
    OP_CLOSE = 8,
    OP_PING = 9,
    OP_PONG = 10,
    CONTROL_MOST = 125,
    FRAME_MOST = 8 << 20,
};

/* The value of a header, without blanks around it; false: there is none, or two
 * of them. */
static bool find_header(const char *head, const char *name, char *to,
                        size_t room)
{
    size_t len = strlen(name);
    bool found = false;

    for (const char *at = strstr(head, "\r\n"); at; at = strstr(at, "\r\n")) {
        size_t value;
        at += 2;
        if (strncasecmp(at, name, len) != 0 || at[len] != ':') {
            continue;
        }
        at += len + 1;
        at += strspn(at, " \t");
        value = strcspn(at, "\r\n");
        while (value > 0 && (at[value - 1] == ' ' || at[value - 1] == '\t')) {
            value--;
        }
        if (found || value >= room) {
            return false;
        }
        memcpy(to, at, value);
        to[value] = 0;
        found = true;
    }
    return found;
}

/* A host's name of this machine, with or without a port. */
static bool is_local(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t len = strlen(names[i]);
        if (strncasecmp(host, names[i], len) == 0 &&
            (!host[len] || host[len] == ':')) {
            return true;
        }
    }
    return false;
}

/* Whether a page may connect; programs that are no browsers say nothing. */
static bool may_connect(const struct proxy_socket *socket, const char *head)
{
    char host[NAME_MOST], origin[NAME_MOST];
    const char *from;

    if (!find_header(head, "Host", host, sizeof host) ||
        (!socket->beyond && !is_local(host))) {
        return false;
    }
    if (!strcasestr(head, "\r\norigin:")) {
        return true;
    }
    if (!find_header(head, "Origin", origin, sizeof origin)) {
        return false;
    }
    from = strstr(origin, "://");
    return from && (strcasecmp(from + 3, host) == 0 ||
                    (!socket->beyond && is_local(from + 3)));
}

static int accept_key(const char *key, char out[BASE64_BYTES + 1])
{
    static const char end[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    unsigned char hash[EVP_MAX_MD_SIZE];
    char text[KEY_MOST + sizeof end];
    unsigned len = 0;
    int all = snprintf(text, sizeof text, "%s%s", key, end);

    if (EVP_Digest(text, (size_t)all, hash, &len, EVP_sha1(), NULL) != 1 ||
        len != SHA1_BYTES) {
        return poise_error_set(ENOTSUP, "answer a browser", NULL,
                               "OpenSSL has no SHA-1 here");
    }
    EVP_EncodeBlock((unsigned char *)out, hash, SHA1_BYTES);
    return 0;
}

static int refuse(struct poise_buf *out, const char *status, const char *why)
{
    poise_buf_printf(out,
                     "HTTP/1.1 %s\r\nConnection: close\r\n"
                     "Content-Type: text/plain\r\n\r\n%s\n",
                     status, why);
    return poise_error_set(EBADMSG, "serve a browser", NULL, "%s", why);
}

static int shake(struct proxy_socket *socket, const char *head,
                 struct poise_buf *out)
{
    char key[KEY_MOST], value[NAME_MOST], accepted[BASE64_BYTES + 1];
    int code;

    if (strncmp(head, "GET ", 4) != 0 ||
        !find_header(head, "Upgrade", value, sizeof value) ||
        strcasecmp(value, "websocket") != 0 ||
        !find_header(head, "Sec-WebSocket-Version", value, sizeof value) ||
        strcmp(value, "13") != 0 ||
        !find_header(head, "Sec-WebSocket-Key", key, sizeof key)) {
        return refuse(out, "400 Bad Request",
                      "this port speaks WebSocket, to VNC viewers in browsers");
    }
    if (!may_connect(socket, head)) {
        return refuse(out, "403 Forbidden",
                      "pages of that address may not connect to this one");
    }
    code = accept_key(key, accepted);
    if (code < 0) {
        return code;
    }
    poise_buf_printf(out,
                     "HTTP/1.1 101 Switching Protocols\r\n"
                     "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                     "Sec-WebSocket-Accept: %s\r\n",
                     accepted);
    if (find_header(head, "Sec-WebSocket-Protocol", value, sizeof value) &&
        strstr(value, "binary")) {
        poise_buf_puts(out, "Sec-WebSocket-Protocol: binary\r\n");
    }
    socket->begun = true;
    return poise_buf_puts(out, "\r\n");
}

/* ---- frames ------------------------------------------------------------- */

static void put_frame(unsigned op, const void *data, size_t len,
                      struct poise_buf *out)
{
    poise_buf_putc(out, (char)(0x80 | op));
    if (len < 126) {
        poise_buf_putc(out, (char)len);
    } else if (len < 1 << 16) {
        poise_buf_putc(out, 126);
        proxy_put_u16(out, (uint32_t)len);
    } else {
        poise_buf_putc(out, 127);
        proxy_put_u32(out, (uint32_t)((uint64_t)len >> 32));
        proxy_put_u32(out, (uint32_t)len);
    }
    poise_buf_append(out, data, len);
}

void proxy_socket_put(const void *data, size_t len, struct poise_buf *out)
{
    put_frame(OP_BINARY, data, len, out);
}

static int take_frame(struct proxy_socket *socket, unsigned op,
                      const char *data, size_t len, struct poise_buf *plain,
                      struct poise_buf *out)
{
    switch (op) {
    case OP_CONTINUED:
    case OP_BINARY:
        return poise_buf_append(plain, data, len);
    case OP_CLOSE:
        put_frame(OP_CLOSE, data, len < 2 ? 0 : 2, out);
        socket->closed = true;
        return out->error;
    case OP_PING:
        put_frame(OP_PONG, data, len, out);
        return out->error;
    case OP_PONG:
        return 0;
    default:
        return proxy_bad("a browser sends a frame of another kind");
    }
}

/* One frame at the beginning of `raw`: the bytes that it takes, 0: it is not
 * all there. */
static int64_t take_one(struct proxy_socket *socket, char *raw, size_t have,
                        struct poise_buf *plain, struct poise_buf *out)
{
    enum { MASK = 4 };
    const unsigned char *at = (const unsigned char *)raw;
    size_t head = 2 + MASK;
    uint64_t len;
    unsigned op;
    int code;

    if (have < head) {
        return 0;
    }
    op = at[0] & 15;
    len = at[1] & 127;
    if (!(at[1] & 128) || (at[0] & 0x70)) {
        return proxy_bad("a browser's frame is not masked");
    }
    head += len == 126 ? 2 : len == 127 ? 8 : 0;
    if (have < head) {
        return 0;
    }
    if (len == 126) {
        len = proxy_u16(at + 2);
    } else if (len == 127) {
        len = (uint64_t)proxy_u32(at + 2) << 32 | proxy_u32(at + 6);
    }
    if (len > FRAME_MOST || (op >= OP_CLOSE && len > CONTROL_MOST)) {
        return proxy_bad("a browser's frame is too long");
    }
    if (have < head + len) {
        return 0;
    }
    for (uint64_t i = 0; i < len; i++) {
        raw[head + i] ^= raw[head - MASK + i % MASK];
    }
    code = take_frame(socket, op, raw + head, (size_t)len, plain, out);
    return code < 0 ? code : (int64_t)(head + len);
}

int proxy_socket_take(struct proxy_socket *socket, struct poise_buf *raw,
                      struct poise_buf *plain, struct poise_buf *out)
{
    size_t at = 0;
    int64_t took = 1;

    if (!socket->begun) {
        const char *head = poise_buf_str(raw), *end = strstr(head, "\r\n\r\n");
        int code;

        if (!end) {
            return raw->len > PROXY_SOCKET_HEAD_MOST
                       ? refuse(out, "431 Request Header Fields Too Large",
                                "its request has no end")
                       : 0;
        }
        at = (size_t)(end - head) + 4;
        raw->data[at - 2] = 0; /* what is behind is no header */
        code = shake(socket, head, out);
        if (code < 0) {
            return code;
        }
    }
    while (took > 0 && !socket->closed) {
        took = take_one(socket, raw->data + at, raw->len - at, plain, out);
        at += took > 0 ? (size_t)took : 0;
    }
    raw->len -= at;
    memmove(raw->data, raw->data + at, raw->len);
    return took < 0 ? (int)took : 0;
}
