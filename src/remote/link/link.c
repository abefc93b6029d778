/* A socket to another end, from the name that it is connected to until bytes of
 * the program go over it. */
#include "link.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

void remote_link_greet(struct remote_link *link, const char *magic,
                       uint64_t version)
{
    memcpy(link->greeting, magic, REMOTE_MAGIC);
    poise_put_u64(link->greeting + REMOTE_MAGIC, version);
}

static int start_connecting(struct remote_link *link)
{
    int code = -EADDRNOTAVAIL;

    while (link->tried < link->to->count) {
        code = remote_connect(link->to, link->tried++);
        if (code >= 0) {
            link->fd = code;
            return 0;
        }
    }
    return code;
}

static int start_shaking(struct remote_link *link)
{
    remote_watch(link->fd);
    link->state = REMOTE_SHAKING;
    return link->keys
               ? remote_tls_create(link->keys, link->fd, link->host, &link->tls)
               : 0;
}

int remote_link_begin(struct remote_link *link)
{
    return link->fd < 0 ? start_connecting(link) : start_shaking(link);
}

static int finish_connecting(struct remote_link *link)
{
    int code = remote_connected(link->fd);

    if (code == 0) {
        return start_shaking(link);
    }
    close(link->fd);
    link->fd = -1;
    poise_error_set(-code, "connect to", link->name, NULL);
    return link->tried < link->to->count ? start_connecting(link) : code;
}

int remote_link_prepare(struct remote_link *link, bool can_read, bool can_write)
{
    int code = 0;

    if (link->state == REMOTE_CONNECTING && can_write) {
        code = finish_connecting(link);
    }
    if (code == 0 && link->state == REMOTE_SHAKING && (can_read || can_write)) {
        code = link->tls ? remote_tls_shake(link->tls) : 1;
        link->state = code == 1 ? REMOTE_OPEN : link->state;
    }
    return code < 0 ? code : link->state == REMOTE_OPEN;
}

void remote_link_close(struct remote_link *link)
{
    remote_tls_destroy(link->tls);
    link->tls = NULL;
    if (link->fd >= 0) {
        close(link->fd);
    }
    link->fd = -1;
}

bool remote_link_has_greeted(const struct remote_link *link)
{
    return link->greeted == sizeof link->greeting;
}

/* ---- moving bytes ------------------------------------------------------- */

static ssize_t socket_read(struct remote_link *link, void *data, size_t len)
{
    int code = poise_fault_check(POISE_FAULT_READ);
    ssize_t bytes_read;

    if (!code && link->tls) {
        return remote_tls_read(link->tls, data, len);
    }
    bytes_read = code ? -1 : recv(link->fd, data, len, 0);
    code = code ? code : errno;
    return bytes_read >= 0 ? bytes_read
           : code == EAGAIN || code == EINTR
               ? -EAGAIN
               : poise_error_set(code, "read from the other end", link->name,
                                 NULL);
}

static ssize_t socket_write(struct remote_link *link, const void *data,
                            size_t len)
{
    int code = poise_fault_check(POISE_FAULT_SEND);
    ssize_t done;

    if (!code && remote_is_full(link->fd, &link->busy)) {
        return -EAGAIN;
    }
    if (!code && link->tls) {
        return remote_tls_write(link->tls, data, len);
    }
    done = code ? -1 : send(link->fd, data, len, MSG_NOSIGNAL);
    code = code ? code : errno;
    return done >= 0 ? done
           : code == EAGAIN || code == EINTR
               ? -EAGAIN
               : poise_error_set(code, "write to the other end", link->name,
                                 NULL);
}

/* How many of the bytes are of the greeting. */
static ssize_t hear(struct remote_link *link, const unsigned char *data,
                    size_t len)
{
    size_t at = 0;

    for (; at < len && link->heard < sizeof link->greeting; at++) {
        if (data[at] != link->greeting[link->heard++]) {
            return poise_error_set(EPROTO, "understand the other end",
                                   link->name,
                                   link->heard > REMOTE_MAGIC
                                       ? "it is of another version"
                                       : "it is no %s, or its keys are others",
                                   link->kind);
        }
    }
    return (ssize_t)at;
}

ssize_t remote_link_read(struct remote_link *link, void *data, size_t len)
{
    ssize_t bytes_read = socket_read(link, data, len), greeting;

    if (bytes_read <= 0) {
        return bytes_read < 0 ? bytes_read
                              : poise_error_set(ECONNRESET, "go on with",
                                                link->name, "it is gone");
    }
    link->in_bytes += (uint64_t)bytes_read;
    greeting = hear(link, data, (size_t)bytes_read);
    if (greeting > 0) {
        bytes_read -= greeting;
        memmove(data, (unsigned char *)data + greeting, (size_t)bytes_read);
    }
    return greeting < 0 ? greeting : bytes_read;
}

ssize_t remote_link_write(struct remote_link *link, const void *data,
                          size_t len)
{
    ssize_t done;

    while (!remote_link_has_greeted(link)) {
        done = socket_write(link, link->greeting + link->greeted,
                            sizeof link->greeting - link->greeted);
        if (done < 0) {
            return done;
        }
        link->greeted += (size_t)done;
        link->out_bytes += (uint64_t)done;
    }
    if (len == 0) {
        return 0;
    }
    done = socket_write(link, data, len);
    link->out_bytes += done > 0 ? (uint64_t)done : 0;
    return done;
}

short remote_link_events(const struct remote_link *link, bool wants)
{
    if (link->state == REMOTE_CONNECTING) {
        return POLLOUT;
    }
    if ((link->tls && remote_tls_wants_write(link->tls)) ||
        (link->state == REMOTE_OPEN &&
         (wants || !remote_link_has_greeted(link)))) {
        return POLLIN | POLLOUT;
    }
    return POLLIN;
}

void remote_link_bytes(const struct remote_link *link, uint64_t *out,
                       uint64_t *in)
{
    *out = link->out_bytes;
    *in = link->in_bytes;
    if (link->tls) {
        remote_tls_bytes(link->tls, out, in);
    }
}
