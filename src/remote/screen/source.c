/* Bytes from a server, in order, and to it. An error sticks. */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static int fail(struct screen_source *source, int code)
{
    source->error = code;
    source->at = source->end;
    return code;
}

int screen_bad(struct screen_source *source, const char *why)
{
    if (source->error == 0) {
        fail(source, poise_error_set(EBADMSG, "understand the server", NULL,
                                     "%s", why));
    }
    return source->error;
}

int screen_wait(struct screen_source *source, int timeout_ms)
{
    if (source->error != 0 || source->at < source->end) {
        return source->error != 0 ? source->error : 1;
    }
    struct pollfd poll_fd = {.fd = source->fd, .events = POLLIN};
    int ready = source->fd < 0 ? 1 : poll(&poll_fd, 1, timeout_ms);
    if (ready < 0 && errno != EINTR) {
        return fail(source,
                    poise_error_set(errno, "wait for the server", NULL, NULL));
    }
    return ready > 0;
}

/* At least one byte more. */
static int fill(struct screen_source *source)
{
    if (source->fd < 0) {
        return screen_bad(source, "it ends in the middle of a message");
    }
    for (;;) {
        ssize_t got = recv(source->fd, source->buffer, SCREEN_SOURCE_BYTES, 0);
        if (got > 0) {
            source->at = source->buffer;
            source->end = source->buffer + got;
            return 0;
        }
        if (got == 0) {
            return fail(source,
                        poise_error_set(ECONNRESET, "read from the server",
                                        NULL, "it closed the connection"));
        }
        if (errno != EAGAIN && errno != EINTR) {
            return fail(source, poise_error_set(errno, "read from the server",
                                                NULL, NULL));
        }
        struct pollfd poll_fd = {.fd = source->fd, .events = POLLIN};
        int ready = poll(&poll_fd, 1, (int)source->timeout_ms);
        if (ready == 0) {
            return fail(source,
                        poise_error_set(ETIMEDOUT, "read from the server", NULL,
                                        "nothing came for %u ms",
                                        source->timeout_ms));
        }
        if (ready < 0 && errno != EINTR) {
            return fail(source, poise_error_set(errno, "wait for the server",
                                                NULL, NULL));
        }
    }
}

int screen_read(struct screen_source *source, void *to, size_t len)
{
    uint8_t *at = to;
    while (len > 0) {
        size_t have = (size_t)(source->end - source->at);
        if (source->error != 0 || (have == 0 && fill(source) < 0)) {
            memset(at, 0, len);
            return source->error;
        }
        have = (size_t)(source->end - source->at);
        size_t step = len < have ? len : have;
        memcpy(at, source->at, step);
        source->at += step;
        source->read += step;
        at += step;
        len -= step;
    }
    return source->error;
}

uint8_t screen_u8(struct screen_source *source)
{
    uint8_t value;
    screen_read(source, &value, 1);
    return value;
}

uint16_t screen_u16(struct screen_source *source)
{
    uint8_t bytes[2];
    screen_read(source, bytes, sizeof bytes);
    return (uint16_t)(bytes[0] << 8 | bytes[1]);
}

uint32_t screen_u32(struct screen_source *source)
{
    uint8_t bytes[4];
    screen_read(source, bytes, sizeof bytes);
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 |
           (uint32_t)bytes[2] << 8 | bytes[3];
}

int screen_skip(struct screen_source *source, uint64_t len)
{
    uint8_t room[4096];
    while (len > 0 && source->error == 0) {
        size_t step = len < sizeof room ? (size_t)len : sizeof room;
        screen_read(source, room, step);
        len -= step;
    }
    return source->error;
}

int screen_send(struct screen_source *source, const void *data, size_t len)
{
    const uint8_t *at = data;
    while (len > 0 && source->error == 0) {
        ssize_t sent = send(source->fd, at, len, MSG_NOSIGNAL);
        if (sent > 0) {
            at += sent;
            len -= (size_t)sent;
            continue;
        }
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            return fail(source, poise_error_set(errno, "write to the server",
                                                NULL, NULL));
        }
        struct pollfd poll_fd = {.fd = source->fd, .events = POLLOUT};
        if (poll(&poll_fd, 1, (int)source->timeout_ms) == 0) {
            return fail(source,
                        poise_error_set(ETIMEDOUT, "write to the server", NULL,
                                        "it takes nothing"));
        }
    }
    return source->error;
}
