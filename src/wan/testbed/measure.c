/*
 * Measuring a real link, over UDP. A probe is a small packet that comes back at
 * once: half of the least round trip is the latency. A train is many large
 * packets, sent one after the other; the answering end says how many arrived
 * and how long it took from the first to the last, which gives the rate of the
 * slowest part of the way.
 *
 * A packet: kind, number, count, as 32-bit words in network order; padding.
 */
#include <poise/core.h>
#include <poise/wan.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RECORD_PROBE = 0x504f5731, RECORD_TRAIN, RECORD_ARRIVED };
enum {
    RECORD_PROBES = 8,   /* small packets a sample */
    RECORD_LARGE = 1400, /* bytes of a packet of a train */
    RECORD_HEADERS = 28, /* of IPv4 and UDP, which take time, too */
    RECORD_TRAIN_MOST = 1024,
    RECORD_ANSWER_MS = 2000,
};

struct record_packet {
    uint32_t kind, number, count;
    uint32_t span_us; /* ARRIVED: from the first to the last */
    char padding[RECORD_LARGE - 16];
};

static int resolve(const char *host, const char *port, bool listen,
                   struct addrinfo **out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM,
                             .ai_flags = listen ? AI_PASSIVE : 0};
    int code = getaddrinfo(host, port, &hints, out);
    return code ? poise_error_set(EINVAL, "find", host ? host : port, "%s",
                                  gai_strerror(code))
                : 0;
}

/* ---- the answering end -------------------------------------------------- */

/* A train that is coming in. */
struct train {
    uint32_t number, arrived;
    uint64_t first_ns, last_ns;
};

static void answer_one(int fd, struct train *train,
                       struct record_packet *packet, ssize_t len,
                       const struct sockaddr_storage *from, socklen_t from_len)
{
    uint64_t now = poise_clock_ns();
    if (ntohl(packet->kind) == RECORD_PROBE) {
        sendto(fd, packet, (size_t)len, 0, (const struct sockaddr *)from,
               from_len);
        return;
    }
    if (ntohl(packet->kind) != RECORD_TRAIN) {
        return;
    }
    if (train->number != packet->number || train->arrived == 0) {
        *train = (struct train){.number = packet->number, .first_ns = now};
    }
    train->arrived++;
    train->last_ns = now;
    /* A short packet ends a train. */
    if (len < RECORD_LARGE) {
        struct record_packet answer = {.kind = htonl(RECORD_ARRIVED),
                                       .number = packet->number};
        answer.count = htonl(train->arrived);
        answer.span_us =
            htonl((uint32_t)((train->last_ns - train->first_ns) / 1000));
        sendto(fd, &answer, 16, 0, (const struct sockaddr *)from, from_len);
        train->arrived = 0;
    }
}

int poise_wan_answer(const char *port)
{
    struct addrinfo *address = NULL;
    struct train train = {0};
    int code = resolve(NULL, port, true, &address);
    if (code < 0) {
        return code;
    }
    int fd = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, address->ai_addr, address->ai_addrlen) < 0) {
        code = poise_error_set(errno, "listen on port", port, NULL);
    }
    freeaddrinfo(address);
    while (code == 0) {
        struct record_packet packet;
        struct sockaddr_storage from;
        socklen_t from_len = sizeof from;
        ssize_t got = recvfrom(fd, &packet, sizeof packet, 0,
                               (struct sockaddr *)&from, &from_len);
        if (got < 0 && errno == EINTR) {
            break;
        }
        if (got >= 16) {
            answer_one(fd, &train, &packet, got, &from, from_len);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return code;
}

/* ---- the measuring end -------------------------------------------------- */

/* The next packet of that kind and number; 0 if none comes in time. */
static int hear(int fd, uint32_t kind, uint32_t number,
                struct record_packet *out)
{
    uint64_t until = poise_clock_ns() + (uint64_t)RECORD_ANSWER_MS * 1000000;
    for (;;) {
        uint64_t now = poise_clock_ns();
        struct pollfd look = {.fd = fd, .events = POLLIN};
        int left = now >= until ? 0 : (int)((until - now + 999999) / 1000000);
        if (left == 0 || poll(&look, 1, left) == 0) {
            return 0;
        }
        ssize_t got = recv(fd, out, sizeof *out, 0);
        if (got < 0 && errno != EINTR && errno != EAGAIN) {
            return -errno;
        }
        if (got >= 16 && ntohl(out->kind) == kind &&
            ntohl(out->number) == number) {
            return 1;
        }
    }
}

/* Half of the least round trip of some probes; 0: no answer. */
static int measure_latency(int fd, uint32_t *number, uint64_t *out_ns)
{
    struct record_packet packet = {0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < RECORD_PROBES; i++) {
        packet.kind = htonl(RECORD_PROBE);
        packet.number = htonl(++*number);
        uint64_t began = poise_clock_ns();
        if (send(fd, &packet, 16, 0) < 0) {
            return -errno;
        }
        int code = hear(fd, RECORD_PROBE, *number, &packet);
        uint64_t took = poise_clock_ns() - began;
        if (code < 0) {
            return code;
        }
        if (code > 0 && took < least) {
            least = took;
        }
    }
    *out_ns = least / 2;
    return least != UINT64_MAX;
}

static int measure_rate(int fd, uint32_t *number, unsigned train, uint64_t *out)
{
    struct record_packet packet = {.kind = htonl(RECORD_TRAIN)};
    packet.number = htonl(++*number);
    for (unsigned i = 0; i < train; i++) {
        size_t len = i + 1 < train ? RECORD_LARGE : RECORD_LARGE - 1;
        if (send(fd, &packet, len, 0) < 0 && errno != ENOBUFS &&
            errno != EAGAIN) {
            return -errno;
        }
    }
    int code = hear(fd, RECORD_ARRIVED, *number, &packet);
    uint32_t arrived = ntohl(packet.count), span = ntohl(packet.span_us);
    if (code <= 0 || arrived < 2 || arrived > train) {
        return code < 0 ? code : 0;
    }
    /* The first packet starts the clock: one fewer passed meanwhile. */
    *out = (uint64_t)((double)(arrived - 1) * (RECORD_LARGE + RECORD_HEADERS) *
                      8e6 / (span ? span : 1));
    return 1;
}

static int no_answer(const char *host, const char *port)
{
    return poise_error_set(ETIMEDOUT, "measure the link to", host,
                           "nobody answers on UDP port %s; run "
                           "'poise wan record --answer %s' there",
                           port, port);
}

int poise_wan_record(const char *host, const char *port,
                     const struct poise_wan_record_options *options,
                     struct poise_buf *out)
{
    uint64_t length = options->for_ns ? options->for_ns : UINT64_C(60000000000);
    uint64_t every =
        options->interval_ns ? options->interval_ns : UINT64_C(1000000000);
    unsigned train = options->train ? options->train : 32;
    struct addrinfo *address = NULL;
    uint32_t number = 0;
    if (train < 2 || train > RECORD_TRAIN_MOST) {
        return poise_error_set(EINVAL, "measure with a train of packets", NULL,
                               "2 to %d packets", RECORD_TRAIN_MOST);
    }
    int code = resolve(host, port, false, &address);
    if (code < 0) {
        return code;
    }
    int fd = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, address->ai_addr, address->ai_addrlen) < 0) {
        code = poise_error_set(errno, "reach", host, NULL);
    }
    freeaddrinfo(address);
    uint64_t start = poise_clock_ns(), rate = 0, latency = 0;
    while (code == 0) {
        uint64_t now = poise_clock_ns() - start;
        code = measure_latency(fd, &number, &latency);
        if (code > 0) {
            code = measure_rate(fd, &number, train, &rate);
        }
        if (code <= 0) {
            code =
                code == 0 || code == -ECONNREFUSED
                    ? no_answer(host, port)
                    : poise_error_set(-code, "measure the link to", host, NULL);
            break;
        }
        bool first = number <= RECORD_PROBES + 1;
        code = poise_buf_printf(
            out, "%.3f %lluns %llubit\n", first ? 0 : (double)now / 1e9,
            (unsigned long long)latency, (unsigned long long)rate);
        if (poise_clock_ns() - start + every > length) {
            break;
        }
        uint64_t next = now + every, passed = poise_clock_ns() - start;
        poise_sleep_ns(next > passed ? next - passed : 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    return code;
}
