/* A connection to a server: what it shows, and the messages by which it
 * changes. */
#include "internal.h"

#include <poise/options.h>

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    UPDATE = 0,
    COLOURS = 1,
    BELL = 2,
    CUT_TEXT = 3,
    CUT_TEXT_MOST = 64 << 20,
    DISPLAYS = 100,
    FIRST_PORT = 5900,
    NAME_BYTES = 256,
    TIMEOUT_MS = 10000
};

struct poise_screen_client {
    struct screen_source source;
    struct screen_decoder decoder;
    struct screen_rects rects;
    char name[NAME_BYTES];
};

/* ---- addresses ----------------------------------------------------------- */

/* Host and port of an address; it is as in <poise/screen.h>. */
static int split(const char *address, char host[NI_MAXHOST],
                 char port[NI_MAXSERV])
{
    const char *from = address, *colon;
    bool display = true;
    if (*address == '[') {
        from = address + 1;
        colon = strchr(from, ']');
        if (!colon || colon[1] != ':') {
            return -EINVAL;
        }
        snprintf(host, NI_MAXHOST, "%.*s", (int)(colon - from), from);
        colon++;
    } else {
        colon = strchr(from, ':');
        if (!colon) {
            return -EINVAL;
        }
        snprintf(host, NI_MAXHOST, "%.*s", (int)(colon - from), from);
    }
    if (colon[1] == ':') {
        display = false;
        colon++;
    }
    int64_t number;
    if (poise_parse_int(colon + 1, 0, 65535, &number) < 0) {
        return -EINVAL;
    }
    number += display && number < DISPLAYS ? FIRST_PORT : 0;
    snprintf(port, NI_MAXSERV, "%lld", (long long)number);
    return 0;
}

/* Connected, or negative. */
static int connect_to(const struct addrinfo *to, uint32_t timeout_ms)
{
    int fd =
        socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1, error = 0;
    socklen_t len = sizeof error;
    if (fd < 0) {
        return -errno;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, to->ai_addr, to->ai_addrlen) < 0) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
        error = errno == EINPROGRESS ? 0 : errno;
        if (error == 0 && poll(&poll_fd, 1, (int)timeout_ms) <= 0) {
            error = ETIMEDOUT;
        } else if (error == 0) {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
        }
    }
    if (error != 0) {
        close(fd);
        return -error;
    }
    return fd;
}

static int dial(const char *address, uint32_t timeout_ms)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    if (split(address, host, port) < 0) {
        return poise_error_set(EINVAL, "use address", address,
                               "expected HOST:PORT or HOST:DISPLAY");
    }
    int code = getaddrinfo(*host ? host : NULL, port, &hints, &list);
    if (code != 0) {
        return poise_error_set(EHOSTUNREACH, "find", address, "%s",
                               gai_strerror(code));
    }
    int fd = -EHOSTUNREACH;
    for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
        fd = connect_to(at, timeout_ms);
    }
    freeaddrinfo(list);
    return fd >= 0 ? fd : poise_error_set(-fd, "connect to", address, NULL);
}

/* ---- the client ---------------------------------------------------------- */

void poise_screen_close(struct poise_screen_client *client)
{
    if (client) {
        if (client->source.fd >= 0) {
            close(client->source.fd);
        }
        screen_decoder_free(&client->decoder);
        free(client->rects.rects);
        free(client->source.buffer);
        free(client);
    }
}

static int begin(struct poise_screen_client *client,
                 const struct poise_screen_options *options,
                 const struct screen_encodings *encodings)
{
    uint32_t width, height;
    int code =
        screen_handshake(&client->source, options, client->decoder.relay,
                         &width, &height, client->name, sizeof client->name);
    code = code == 0 ? screen_resize(&client->decoder, width, height) : code;
    return code == 0 && encodings
               ? screen_send_encodings(&client->source, encodings)
               : code;
}

static const char all_encodings[] = "tight,zrle,hextile,rre,copyrect,raw";

/* Connected, with nothing asked for unless there are `encodings`. */
static int create(const char *address,
                  const struct poise_screen_options *options,
                  const struct screen_relay *relay,
                  const struct screen_encodings *encodings,
                  struct poise_screen_client **out)
{
    struct poise_screen_client *client = poise_alloc(1, sizeof *client);
    if (!client) {
        return -ENOMEM;
    }
    struct screen_source *source = &client->source;
    source->fd = -1;
    source->timeout_ms = options->timeout_ms ? options->timeout_ms : TIMEOUT_MS;
    source->buffer = poise_alloc(SCREEN_SOURCE_BYTES, 1);
    source->at = source->end = source->buffer;
    client->decoder.source = source;
    client->decoder.relay = relay;
    int code = source->buffer ? dial(address, source->timeout_ms) : -ENOMEM;
    if (code >= 0) {
        source->fd = code;
        code = relay ? relay->opened(source->fd, relay->arg) : 0;
        code = code < 0 ? code : begin(client, options, encodings);
    }
    if (code < 0) {
        poise_screen_close(client);
        return code;
    }
    *out = client;
    return 0;
}

int poise_screen_connect(const char *address,
                         const struct poise_screen_options *options,
                         struct poise_screen_client **out)
{
    static const struct poise_screen_options usual;
    struct screen_encodings encodings;
    options = options ? options : &usual;
    int code = screen_read_encodings(
        options->encodings ? options->encodings : all_encodings, &encodings);
    encodings.level = options->level;
    return code == 0 ? create(address, options, NULL, &encodings, out) : code;
}

int screen_client_create(const char *address,
                         const struct poise_screen_options *options,
                         const struct screen_relay *relay,
                         struct poise_screen_client **out)
{
    return create(address, options, relay, NULL, out);
}

int screen_client_fd(const struct poise_screen_client *client)
{
    return client->source.fd;
}

bool screen_is_local(const char *address)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    return split(address, host, port) == 0 &&
           (!*host || strcmp(host, "localhost") == 0 ||
            strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0);
}

const struct poise_screen_picture *
poise_screen_picture(const struct poise_screen_client *client)
{
    return &client->decoder.picture;
}

const char *poise_screen_name(const struct poise_screen_client *client)
{
    return client->name;
}

int poise_screen_ask(struct poise_screen_client *client, bool incremental)
{
    uint32_t width = client->decoder.picture.width;
    uint32_t height = client->decoder.picture.height;
    uint8_t message[10] = {3,
                           incremental,
                           0,
                           0,
                           0,
                           0,
                           (uint8_t)(width >> 8),
                           (uint8_t)width,
                           (uint8_t)(height >> 8),
                           (uint8_t)height};
    return screen_send(&client->source, message, sizeof message);
}

/* A message that changes no pixels. */
static int pass_by(struct screen_source *source, uint8_t type)
{
    uint32_t len;
    switch (type) {
    case COLOURS: /* there is no palette in the format that we asked for */
        screen_skip(source, 3);
        return screen_skip(source, (uint64_t)screen_u16(source) * 6);
    case BELL:
        return source->error;
    case CUT_TEXT:
        screen_skip(source, 3);
        len = screen_u32(source);
        return len > CUT_TEXT_MOST
                   ? screen_bad(source, "it sends a text without end")
                   : screen_skip(source, len);
    default:
        return screen_bad(source, "there is no such message");
    }
}

int poise_screen_next(struct poise_screen_client *client, int timeout_ms,
                      struct poise_screen_update *out)
{
    struct screen_source *source = &client->source;
    for (;;) {
        int code = screen_wait(source, timeout_ms);
        if (code <= 0) {
            return code;
        }
        uint64_t before = source->read;
        uint8_t type = screen_u8(source);
        if (source->error == 0 && type == UPDATE) {
            code = screen_update(&client->decoder, &client->rects);
            *out = (struct poise_screen_update){
                .rects = client->rects.rects,
                .rect_count = client->rects.count,
                .resized = client->rects.resized,
                .bytes = source->read - before,
            };
            return code < 0 ? code : 1;
        }
        code = source->error != 0 ? source->error
               : client->decoder.relay
                   ? screen_pass_on(source, client->decoder.relay, type)
                   : pass_by(source, type);
        if (code < 0) {
            return code;
        }
    }
}
