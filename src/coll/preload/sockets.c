/*
 * What the kernel counts of this process' TCP connections, behind calls that
 * took long: segments that were sent again are records, in the ring of the
 * call, before its own. Whose sockets they are nobody has to say: the MPI's, or
 * those of trees. The two ends of a connection have one number, so that a
 * reader puts them together.
 */
#include "events.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

/* Descriptors that are looked at, and connections of which something is kept;
 * looks in a second, at most. A look takes a microsecond a connection, a search
 * of all descriptors 0.2 ms. */
enum { DESCRIPTORS = 1024, CONNECTIONS = 256, LOOKS = 20 };
/* Calls that take less are not worth a look. */
#define SLOW_US 1000

/* An end of a connection. */
struct end {
    unsigned char address[16];
    uint16_t port;
    uint16_t family;
};

struct connection {
    int fd;
    uint64_t id;    /* alike at both ends */
    uint64_t again; /* segments, as recorded */
    uint64_t rtt_us;
};

uint64_t sockets_slow = UINT64_MAX;

/* A preload has no handle to keep these in. */
static struct {
    bool busy;                 /* a thread looks; __atomic */
    struct poise_trace *trace; /* that knows the type */
    uint32_t type;
    uint64_t looked, searched; /* ticks */
    struct connection connections[CONNECTIONS];
    int count;
} sockets;

void sockets_begin(void)
{
    sockets_slow = poise_clock_ns_to_ticks(SLOW_US * UINT64_C(1000));
}

/* ---- connections --------------------------------------------------------- */

static void name_end(const struct sockaddr_storage *from, struct end *out)
{
    *out = (struct end){.family = from->ss_family};
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;
        memcpy(out->address, &in->sin_addr, sizeof in->sin_addr);
        out->port = in->sin_port;
    } else if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)from;
        memcpy(out->address, &in->sin6_addr, sizeof in->sin6_addr);
        out->port = in->sin6_port;
    }
}

/* The number of a connection to another host; 0: it is none. */
static uint64_t id_of(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
    struct end ends[2];
    if (getsockname(fd, (struct sockaddr *)&here, &here_bytes) != 0 ||
        getpeername(fd, (struct sockaddr *)&there, &there_bytes) != 0 ||
        (here.ss_family != AF_INET && here.ss_family != AF_INET6)) {
        return 0;
    }
    name_end(&here, &ends[0]);
    name_end(&there, &ends[1]);
    int order =
        memcmp(ends[0].address, ends[1].address, sizeof ends[0].address);
    if (order == 0) {
        return 0; /* within this host */
    }
    if (order > 0) {
        struct end first = ends[1];
        ends[1] = ends[0];
        ends[0] = first;
    }
    return poise_hash_bytes(ends, sizeof ends, 0) | 1;
}

static bool ask(int fd, struct tcp_info *out)
{
    socklen_t bytes = sizeof *out;
    *out = (struct tcp_info){0};
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, out, &bytes) == 0;
}

/* What was known of connections that are still there stays. */
static void search(void)
{
    struct connection before[CONNECTIONS];
    int count = sockets.count;
    memcpy(before, sockets.connections, (size_t)count * sizeof *before);
    sockets.count = 0;
    for (int fd = 0; fd < DESCRIPTORS && sockets.count < CONNECTIONS; fd++) {
        struct tcp_info info;
        uint64_t id = ask(fd, &info) ? id_of(fd) : 0;
        if (id == 0) {
            continue;
        }
        struct connection *found = &sockets.connections[sockets.count++];
        *found = (struct connection){.fd = fd, .id = id};
        for (int i = 0; i < count; i++) {
            if (before[i].id == id) {
                found->again = before[i].again;
                found->rtt_us = before[i].rtt_us;
            }
        }
    }
}

/* ---- records ------------------------------------------------------------- */

static bool know_type(void)
{
    static const struct poise_trace_type type = {
        .name = "tcp",
        .sequence = "connection",
        .values = {{POISE_TRACE_TIME, "at"},
                   {POISE_TRACE_COUNT, "again"},
                   {POISE_TRACE_NS, "round_trip"},
                   {POISE_TRACE_NS, "least"}}};
    struct poise_trace *trace =
        __atomic_load_n(&poise_trace_in_force, __ATOMIC_RELAXED);
    if (trace && sockets.trace != trace) {
        int64_t number = poise_trace_define(trace, &type);
        sockets.trace = trace;
        sockets.type = number > 0 ? (uint32_t)number : 0;
        sockets.count = 0; /* all are new to it */
    }
    return trace && sockets.type != 0;
}

/* The first look at a connection is a record, too: it says whose it is. */
static void record(struct connection *connection, struct poise_trace_ring *ring,
                   uint64_t ticks)
{
    struct tcp_info info;
    if (!ask(connection->fd, &info)) {
        return;
    }
    uint64_t rtt = info.tcpi_rtt, again = info.tcpi_total_retrans;
    bool other = rtt > 2 * connection->rtt_us || 2 * rtt < connection->rtt_us;
    if (again == connection->again && !other) {
        return;
    }
    poise_trace_put(ring, sockets.type, connection->id, ticks,
                    again > connection->again ? again - connection->again : 0,
                    rtt * 1000, (uint64_t)info.tcpi_min_rtt * 1000);
    connection->again = again;
    connection->rtt_us = rtt;
}

void sockets_look(struct poise_trace_ring *ring, uint64_t ticks)
{
    uint64_t second = sockets_slow * (1000000 / SLOW_US);
    if (__atomic_exchange_n(&sockets.busy, true, __ATOMIC_ACQUIRE)) {
        return;
    }
    if (ticks - sockets.looked >= second / LOOKS && know_type()) {
        if (sockets.count == 0 || ticks - sockets.searched >= second) {
            search();
            sockets.searched = ticks;
        }
        for (int i = 0; i < sockets.count; i++) {
            record(&sockets.connections[i], ring, ticks);
        }
        sockets.looked = ticks;
    }
    __atomic_store_n(&sockets.busy, false, __ATOMIC_RELEASE);
}
