/* Names of hosts and ports, and the sockets that they lead to. */
#include "link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/tcp.h> /* of netinet/tcp.h, with what is newer */

enum {
    FIELDS = 4,
    BACKLOG = 4096,   /* the system has a limit of its own */
    KEEP_IDLE_S = 15, /* silence, after which the other end is asked */
    KEEP_PROBES = 4,
    GIVE_UP_MS = 60000, /* bytes that are not acknowledged */
    /* What the kernel has not sent yet, for which all that follows waits: 20 ms
     * at the rate at which bytes arrive, within limits. */
    UNSENT_SHARE = 50,
    UNSENT_LEAST = 1 << 12,
    UNSENT_MOST = 1 << 18,
};

struct field {
    const char *at;
    size_t len;
};

static int bad(const char *text, const char *why)
{
    return poise_error_set(EINVAL, "use address", text, "%s", why);
}

/* Split at colons outside of brackets, which are taken off. The number of
 * fields, or 0 for what is no address. */
static int split(const char *text, struct field fields[FIELDS])
{
    int count = 0;

    for (const char *at = text;; at++) {
        struct field *field = &fields[count];

        if (count == FIELDS) {
            return 0;
        }
        if (*at == '[') {
            const char *end = strchr(at, ']');
            if (!end || (end[1] && end[1] != ':')) {
                return 0;
            }
            *field = (struct field){at + 1, (size_t)(end - at - 1)};
            at = end + 1;
        } else {
            *field = (struct field){at, strcspn(at, ":")};
            at += field->len;
        }
        count++;
        if (!*at) {
            return count;
        }
    }
}

static int take(const char *text, const struct field *host,
                const struct field *port, struct remote_name *out)
{
    static const struct field none = {"", 0};

    host = host ? host : &none;
    if (port->len == 0 || port->len >= sizeof out->port) {
        return bad(text, "it has no port");
    }
    if (host->len >= sizeof out->host) {
        return bad(text, "the host's name is too long");
    }
    memset(out, 0, sizeof *out);
    memcpy(out->host, host->at, host->len);
    memcpy(out->port, port->at, port->len);
    return 0;
}

int remote_name_parse(const char *text, struct remote_name *out)
{
    struct field fields[FIELDS];
    int count = split(text, fields);

    if (count != 1 && count != 2) {
        return bad(text, "it has to be [HOST:]PORT, with brackets around the "
                         "colons of an address");
    }
    return take(text, count == 2 ? &fields[0] : NULL, &fields[count - 1], out);
}

int remote_forward_parse(const char *text, struct remote_name *listen,
                         struct remote_name *target)
{
    struct field fields[FIELDS];
    int count = split(text, fields), err;

    if (count != 3 && count != 4) {
        return bad(text, "it has to be [ADDRESS:]PORT:HOST:PORT, with brackets "
                         "around the colons of an address");
    }
    err =
        take(text, count == 4 ? &fields[0] : NULL, &fields[count - 3], listen);
    return err < 0 ? err
                   : take(text, &fields[count - 2], &fields[count - 1], target);
}

void remote_name_put(const struct remote_name *name, struct poise_buf *out)
{
    const char *host = name->host[0] ? name->host : "127.0.0.1";

    poise_buf_printf(out, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host,
                     name->port);
}

/* ---- addresses ---------------------------------------------------------- */

int remote_resolve(const struct remote_name *name, bool listens,
                   struct remote_target *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = listens ? AI_PASSIVE : 0};
    struct addrinfo *found = NULL;
    struct poise_buf text = {0};
    int rc = getaddrinfo(name->host[0] ? name->host : "127.0.0.1", name->port,
                         &hints, &found);

    *out = (struct remote_target){0};
    remote_name_put(name, &text);
    if (rc != 0) {
        int code = rc == EAI_SYSTEM    ? errno
                   : rc == EAI_MEMORY  ? ENOMEM
                   : rc == EAI_SERVICE ? EINVAL
                                       : EADDRNOTAVAIL;
        poise_error_set(code, "find host", poise_buf_str(&text), "%s",
                        rc == EAI_SYSTEM ? strerror(code) : gai_strerror(rc));
        poise_buf_free(&text);
        return -code;
    }
    for (struct addrinfo *at = found; at && out->count < REMOTE_ADDRESSES;
         at = at->ai_next) {
        if (at->ai_addrlen <= sizeof out->at[0]) {
            memcpy(&out->at[out->count], at->ai_addr, at->ai_addrlen);
            out->len[out->count++] = at->ai_addrlen;
        }
    }
    freeaddrinfo(found);
    poise_buf_str(&text);
    if (text.error) {
        poise_buf_free(&text);
        return -ENOMEM;
    }
    out->text = text.data;
    return 0;
}

void remote_target_free(struct remote_target *target)
{
    free(target->text);
    *target = (struct remote_target){0};
}

static bool is_own(const struct sockaddr_storage *at)
{
    if (at->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)at;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    if (at->ss_family == AF_INET6) {
        const struct in6_addr *in =
            &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(in) ||
               (IN6_IS_ADDR_V4MAPPED(in) && in->s6_addr[12] == 127);
    }
    return false;
}

bool remote_is_loopback(const struct remote_target *target)
{
    for (unsigned i = 0; i < target->count; i++) {
        if (!is_own(&target->at[i])) {
            return false;
        }
    }
    return target->count > 0;
}

static void put_address(const struct sockaddr_storage *at, socklen_t len,
                        struct poise_buf *out)
{
    struct remote_name name;

    if (getnameinfo((const struct sockaddr *)at, len, name.host,
                    sizeof name.host, name.port, sizeof name.port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
        remote_name_put(&name, out);
    } else {
        poise_buf_puts(out, "somewhere");
    }
}

void remote_peer_put(int fd, struct poise_buf *out)
{
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;

    getpeername(fd, (struct sockaddr *)&at, &len);
    put_address(&at, len, out);
}

void remote_source_of(int fd, unsigned char out[REMOTE_SOURCE_BYTES])
{
    enum { NETWORK = 8, MAPPED = 12 };
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;

    memset(out, 0, REMOTE_SOURCE_BYTES);
    getpeername(fd, (struct sockaddr *)&at, &len);
    if (at.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)&at;
        memcpy(out + MAPPED, &in->sin_addr, sizeof in->sin_addr);
    } else if (at.ss_family == AF_INET6) {
        const struct in6_addr *in =
            &((const struct sockaddr_in6 *)(const void *)&at)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(in)) {
            memcpy(out + MAPPED, in->s6_addr + MAPPED,
                   REMOTE_SOURCE_BYTES - MAPPED);
        } else {
            memcpy(out, in->s6_addr, NETWORK);
        }
    }
}

/* ---- sockets ------------------------------------------------------------ */

static int new_socket(int family)
{
    int code = poise_fault_check(POISE_FAULT_OPEN);
    int fd =
        code ? -1
             : socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd >= 0 ? fd : -(code ? code : errno);
}

int remote_listen(const struct remote_target *target, struct poise_buf *where)
{
    int one = 1, code = EADDRNOTAVAIL;

    for (unsigned i = 0; i < target->count; i++) {
        const struct sockaddr_storage *at = &target->at[i];
        struct sockaddr_storage bytes_read = {0};
        socklen_t len = sizeof bytes_read;
        int fd = new_socket(at->ss_family);
        if (fd < 0) {
            code = -fd;
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, (const struct sockaddr *)at, target->len[i]) == 0 &&
            listen(fd, BACKLOG) == 0 &&
            getsockname(fd, (struct sockaddr *)&bytes_read, &len) == 0) {
            put_address(&bytes_read, len, where);
            return fd;
        }
        code = errno;
        close(fd);
    }
    return poise_error_set(code, "listen at", target->text, NULL);
}

int remote_connect(const struct remote_target *target, unsigned number)
{
    const struct sockaddr_storage *at = &target->at[number];
    int fd = new_socket(at->ss_family), code;

    if (fd < 0) {
        return poise_error_set(-fd, "connect to", target->text, NULL);
    }
    if (connect(fd, (const struct sockaddr *)at, target->len[number]) == 0 ||
        errno == EINPROGRESS || errno == EINTR) {
        return fd;
    }
    code = errno;
    close(fd);
    return poise_error_set(code, "connect to", target->text, NULL);
}

int remote_connected(int fd)
{
    int code = 0;
    socklen_t len = sizeof code;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &len) != 0) {
        return -errno;
    }
    return -code;
}

int remote_accept(int fd)
{
    int code = poise_fault_check(POISE_FAULT_OPEN);
    int bytes_read =
        code ? -1 : accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (bytes_read >= 0) {
        return bytes_read;
    }
    code = code ? code : errno;
    /* A connection that was closed before it was accepted is no error. */
    if (code == EAGAIN || code == EINTR || code == ECONNABORTED) {
        return -EAGAIN;
    }
    return poise_error_set(code, "accept a connection", NULL, NULL);
}

void remote_guard(int fd)
{
    struct linger now = {.l_onoff = 1};

    remote_no_delay(fd);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

void remote_close_hard(int fd)
{
    remote_guard(fd);
    close(fd);
}

void remote_close_done(int fd)
{
    struct linger later = {.l_onoff = 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &later, sizeof later);
    close(fd);
}

void remote_no_delay(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

bool remote_is_full(int fd, size_t *busy)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    uint64_t most;
    int wake;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0) {
        return false;
    }
    most = info.tcpi_delivery_rate / UNSENT_SHARE;
    most = most > UNSENT_LEAST ? most : UNSENT_LEAST;
    most = most < UNSENT_MOST ? most : UNSENT_MOST;
    *busy = (size_t)most;
    /* The kernel wakes us at half of this; it may take a segment of 64 KiB more
     * before it says no, so it is not left to that. */
    wake = (int)(2 * most);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &wake, sizeof wake);
    return info.tcpi_notsent_bytes >= most;
}

void remote_watch(int fd)
{
    int one = 1, idle = KEEP_IDLE_S, probes = KEEP_PROBES, ms = GIVE_UP_MS;

    remote_no_delay(fd);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}
