/*
 * Endpoints: an address and a port, as sockets, text and names have them. IPv4
 * addresses are kept as IPv6 has them (::ffff:A.B.C.D), and are IPv4 again
 * where a socket is made, so that it works where there is no IPv6.
 */
#include "link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/** A port that no packet is sent to: only the route is asked for. */
#define DISCARD_PORT 9

union socket_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
static const unsigned char nothing[16];

static bool is_v4(const struct flow_endpoint *at)
{
    return memcmp(at->ip, mapped, sizeof mapped) == 0;
}

static socklen_t address_of(const struct flow_endpoint *at,
                            union socket_address *out)
{
    *out = (union socket_address){0};
    if (is_v4(at)) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons(at->port);
        memcpy(&out->v4.sin_addr, at->ip + sizeof mapped, 4);
        return sizeof out->v4;
    }
    out->v6.sin6_family = AF_INET6;
    out->v6.sin6_port = htons(at->port);
    memcpy(&out->v6.sin6_addr, at->ip, sizeof at->ip);
    return sizeof out->v6;
}

static void endpoint_of(const union socket_address *address,
                        struct flow_endpoint *out)
{
    if (address->any.sa_family == AF_INET) {
        memcpy(out->ip, mapped, sizeof mapped);
        memcpy(out->ip + sizeof mapped, &address->v4.sin_addr, 4);
        out->port = ntohs(address->v4.sin_port);
    } else {
        memcpy(out->ip, &address->v6.sin6_addr, sizeof out->ip);
        out->port = ntohs(address->v6.sin6_port);
    }
}

static int failed(const char *doing, const struct flow_endpoint *at, int fd)
{
    char text[FLOW_ENDPOINT_TEXT];
    int code = errno;
    if (fd >= 0) {
        close(fd);
    }
    return poise_error_set(code, doing, flow_endpoint_text(at, text), NULL);
}

struct flow_endpoint flow_endpoint_loopback(void)
{
    struct flow_endpoint at = {.ip = {[12] = 127, [15] = 1}};
    memcpy(at.ip, mapped, sizeof mapped);
    return at;
}

bool flow_endpoint_is_loopback(const struct flow_endpoint *at)
{
    return is_v4(at) ? at->ip[12] == 127
                     : memcmp(at->ip, nothing, 15) == 0 && at->ip[15] == 1;
}

const char *flow_endpoint_text(const struct flow_endpoint *at,
                               char text[FLOW_ENDPOINT_TEXT])
{
    char ip[INET6_ADDRSTRLEN] = "";
    const unsigned char *from = is_v4(at) ? at->ip + sizeof mapped : at->ip;
    inet_ntop(is_v4(at) ? AF_INET : AF_INET6, from, ip, sizeof ip);
    snprintf(text, FLOW_ENDPOINT_TEXT, is_v4(at) ? "%s:%u" : "[%s]:%u", ip,
             at->port);
    return text;
}

int flow_endpoint_parse(const char *text, struct flow_endpoint *out)
{
    char ip[INET6_ADDRSTRLEN];
    bool bracket = text[0] == '[';
    const char *from = text + bracket;
    const char *end = strchr(from, bracket ? ']' : ':');
    size_t len = end ? (size_t)(end - from) : sizeof ip;
    struct flow_endpoint at = {.port = 0};
    if (len >= sizeof ip || (bracket && *++end != ':')) {
        return -EINVAL;
    }
    memcpy(ip, from, len);
    ip[len] = '\0';
    if (!bracket) {
        memcpy(at.ip, mapped, sizeof mapped);
    }
    char *rest;
    unsigned long port = strtoul(end + 1, &rest, 10);
    if (inet_pton(bracket ? AF_INET6 : AF_INET, ip,
                  bracket ? at.ip : at.ip + sizeof mapped) != 1 ||
        rest == end + 1 || *rest != '\0' || port > UINT16_MAX) {
        return -EINVAL;
    }
    at.port = (uint16_t)port;
    *out = at;
    return 0;
}

int flow_endpoint_resolve(const char *host, struct flow_endpoint *out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    union socket_address address = {0};
    int code = getaddrinfo(host, NULL, &hints, &list);
    if (code != 0) {
        return poise_error_set(code == EAI_SYSTEM ? errno : EADDRNOTAVAIL,
                               "find address of host", host, "%s",
                               gai_strerror(code));
    }
    memcpy(&address, list->ai_addr,
           list->ai_addrlen < sizeof address ? list->ai_addrlen
                                             : sizeof address);
    freeaddrinfo(list);
    endpoint_of(&address, out);
    return 0;
}

int flow_endpoint_route(const struct flow_endpoint *to,
                        struct flow_endpoint *out)
{
    union socket_address address;
    struct flow_endpoint at = *to;
    at.port = at.port ? at.port : DISCARD_PORT;
    socklen_t len = address_of(&at, &address);
    int fd = socket(address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, &address.any, len) < 0) {
        return failed("find a way to", to, fd);
    }
    len = sizeof address;
    if (getsockname(fd, &address.any, &len) < 0) {
        return failed("find a way to", to, fd);
    }
    close(fd);
    endpoint_of(&address, out);
    out->port = 0;
    return 0;
}

/* On all addresses: of both kinds where there is IPv6. */
static int socket_bound(const struct flow_endpoint *at)
{
    union socket_address address;
    struct flow_endpoint on = *at;
    int off = 0, fd;
    bool any = memcmp(at->ip, nothing, sizeof nothing) == 0;
    for (int i = 0; i < 2; i++) {
        socklen_t len = address_of(&on, &address);
        fd = socket(address.any.sa_family,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && any && i == 0) {
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        }
        if (fd >= 0 && bind(fd, &address.any, len) == 0) {
            return fd;
        }
        int code = errno;
        if (fd >= 0) {
            close(fd);
        }
        errno = code;
        if (!any || (code != EAFNOSUPPORT && code != EADDRNOTAVAIL)) {
            break;
        }
        memcpy(on.ip, mapped, sizeof mapped);
    }
    return -1;
}

int flow_listen(const struct flow_endpoint *at, int *out, uint16_t *port)
{
    union socket_address address = {0};
    struct flow_endpoint own;
    socklen_t len = sizeof address;
    int fd = socket_bound(at);
    if (fd < 0 || listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, &address.any, &len) < 0) {
        return failed("listen on", at, fd);
    }
    endpoint_of(&address, &own);
    *out = fd;
    *port = own.port;
    return 0;
}

int flow_connect(const struct flow_endpoint *to, int *out)
{
    union socket_address address;
    socklen_t len = address_of(to, &address);
    int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return failed("connect to", to, fd);
    }
    flow_socket_tune(fd);
    if (connect(fd, &address.any, len) < 0 && errno != EINPROGRESS) {
        return failed("connect to", to, fd);
    }
    *out = fd;
    return 0;
}
