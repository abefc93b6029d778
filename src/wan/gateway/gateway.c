/*
 * Packets from one tunnel to another, at their time. There is one thread, so
 * there is one spinner, however many links there are: it sleeps until shortly
 * before the next packet is due, then looks at the clock and the tunnels in
 * turn.
 *
 * Half of the remaining delay comes from the processors themselves: one that
 * sleeps deeply needs a tenth of a millisecond and more until a process that
 * was waiting for a packet runs. While packets are under way the gateway asks
 * the kernel to keep the processors awake, where it may.
 *
 * A packet that comes while the gateway does not run waits in its port, and is
 * later than what is counted when it is delivered. How long that may have been
 * the kernel knows (how long the gateway was ready to run and did not), and a
 * stop shows by the signal that ended it; this, too, is counted as lateness.
 *
 * Source: latency-bandwidth-thesis 8.1, figure 2.
 */
#include "wan/gateway/gateway.h"
#include "wan/host/host.h"
#include "wan/link/link.h"
#include "wan/topology/topology.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/** A sleep ends this much too late at worst, on a machine that is not busy. */
#define GATEWAY_SPIN_NS UINT64_C(60000)
/** Look at *stop at least so often. */
#define GATEWAY_NAP_NS UINT64_C(100000000)
/** Packets taken from one tunnel before the clock is looked at again. */
#define GATEWAY_BURST 16
#define GATEWAY_EVENTS 64
/** Processors may sleep again after so long without a packet. */
#define GATEWAY_QUIET_NS UINT64_C(200000000)
/** An event that is no host's: the gateway was stopped, and goes on. */
#define GATEWAY_CONTINUED UINT_MAX
/** Somebody asks; askers follow, downwards. */
#define GATEWAY_ASKED (UINT_MAX - 1)

struct gateway {
    struct poise_wan_topology *topology;
    struct wan_control control;
    const int *ports;
    enum wan_port *kinds;  /* [topology->hosts], owned */
    unsigned char *buffer; /* one to read into, one to write from; owned */
    struct wan_lines lines;
    int epoll;
    int awake;         /* while it is open, no processor sleeps deeply; or -1 */
    uint64_t busy_ns;  /* when there was a packet last */
    int continued;     /* readable when a stop has ended; or -1 */
    int schedstat;     /* how long this process was ready and did not run; -1 */
    uint64_t unrun_ns; /* that, when it was looked at last */
    uint64_t waited_ns; /* when the last wait began */
};

/* The host that a packet is for; UINT_MAX if there is no such host. */
static unsigned gateway_route(const struct gateway *g, unsigned from,
                              const struct wan_segment *segment)
{
    unsigned char address[16];
    uint32_t four;
    bool six;
    if (!wan_segment_target(segment, &six, address)) {
        return UINT_MAX;
    }
    memcpy(&four, address, sizeof four);
    unsigned to = six ? wan_host_of_six(g->topology, address)
                      : wan_host_of(g->topology, ntohl(four));
    return to == from ? UINT_MAX : to;
}

/* What a host sent in one piece, without a frame, into g->buffer. */
static ssize_t gateway_take(const struct gateway *g, unsigned from,
                            unsigned char vnet[WAN_VNET_BYTES])
{
    unsigned char frame[WAN_FRAME_BYTES];
    struct iovec parts[] = {{NULL, 0}, {g->buffer, WAN_SEGMENT_BYTES}};
    memset(vnet, 0, WAN_VNET_BYTES);
    if (g->kinds[from] == WAN_FRAMED) {
        parts[0] = (struct iovec){frame, sizeof frame};
    } else if (g->kinds[from] == WAN_VNET) {
        parts[0] = (struct iovec){vnet, WAN_VNET_BYTES};
    }
    ssize_t got = readv(g->ports[from], parts, 2),
            head = (ssize_t)parts[0].iov_len;
    return got < head ? got < 0 ? got : 0 : got - head;
}

/* A receiver whose queue is full loses the packet, as on a wire. */
static void give_one(const struct gateway *g, const struct wan_packet *packet)
{
    unsigned char *whole = g->buffer + WAN_SEGMENT_BYTES;
    unsigned len = wan_packet_flatten(packet, whole);
    bool plain = g->kinds[packet->to] == WAN_PLAIN;
    const unsigned char *frame =
        packet->segment->six ? wan_frame_in_six : wan_frame_in;
    struct iovec parts[] = {{(void *)(uintptr_t)frame, WAN_FRAME_BYTES},
                            {whole, len}};
    ssize_t sent = writev(g->ports[packet->to], parts + plain, 2 - plain);
    (void)sent;
}

/* A run of packets, as one piece. */
static void give_run(const struct gateway *g, const struct wan_packet *first)
{
    const struct wan_segment *segment = first->segment;
    unsigned char vnet[WAN_VNET_BYTES], headers[WAN_HEADERS_BYTES];
    unsigned len = 0;
    for (const struct wan_packet *p = first; p; p = p->next) {
        len += p->len;
    }
    unsigned some = wan_segment_headers(segment, first->offset, len,
                                        first->marked, headers, vnet);
    unsigned from = segment->headers ? segment->headers + first->offset : some;
    struct iovec parts[] = {{vnet, sizeof vnet},
                            {headers, some},
                            {(void *)(uintptr_t)(segment->data + from),
                             segment->headers ? len : segment->len - some}};
    ssize_t sent = writev(g->ports[first->to], parts, 3);
    (void)sent;
}

static void gateway_give(const struct gateway *g,
                         const struct wan_packet *packets)
{
    if (g->kinds[packets->to] == WAN_VNET) {
        give_run(g, packets);
        return;
    }
    for (const struct wan_packet *p = packets; p; p = p->next) {
        give_one(g, p);
    }
}

/* Take in what waits at one tunnel, at most a burst. */
static void gateway_read(struct gateway *g, unsigned from)
{
    unsigned char vnet[WAN_VNET_BYTES];
    for (int i = 0; i < GATEWAY_BURST; i++) {
        ssize_t got = gateway_take(g, from, vnet);
        if (got <= 0) {
            return; /* EIO: a host that is just going down. */
        }
        /* Where memory is short the packet is lost, as on a wire. */
        struct wan_segment *segment = wan_segment_new((unsigned)got);
        if (!segment) {
            continue;
        }
        memcpy(segment->vnet, vnet, sizeof vnet);
        memcpy(segment->data, g->buffer, (size_t)got);
        wan_segment_look(segment);
        unsigned to = gateway_route(g, from, segment);
        if (to == UINT_MAX) {
            wan_segment_drop(segment);
        } else {
            wan_lines_put(&g->lines, poise_clock_ns(), from, to, segment);
        }
    }
}

static void gateway_deliver(struct gateway *g)
{
    struct wan_packet *packets;
    while ((packets = wan_lines_take(&g->lines, poise_clock_ns()))) {
        gateway_give(g, packets);
        wan_packets_done(&g->lines, packets);
    }
}

/* How long this process was ready to run and did not, since the last call. */
static uint64_t gateway_unrun(struct gateway *g)
{
    char text[128];
    unsigned long long run, unrun;
    ssize_t len =
        g->schedstat < 0 ? -1 : pread(g->schedstat, text, sizeof text - 1, 0);
    if (len <= 0) {
        return 0;
    }
    text[len] = '\0';
    if (sscanf(text, "%llu %llu", &run, &unrun) != 2) {
        return 0;
    }
    uint64_t more = (uint64_t)unrun - g->unrun_ns;
    g->unrun_ns = (uint64_t)unrun;
    return more;
}

/* Whether a stop ended, by the events. */
static bool gateway_was_stopped(const struct gateway *g,
                                const struct epoll_event *events, int count)
{
    struct signalfd_siginfo info;
    bool stopped = false;
    for (int i = 0; i < count; i++) {
        if (events[i].data.u32 == GATEWAY_CONTINUED) {
            stopped = read(g->continued, &info, sizeof info) > 0;
        }
    }
    return stopped;
}

/* A wait of at most `allowed` ended: how long what came may have waited. */
static void gateway_look(struct gateway *g, const struct epoll_event *events,
                         int count, uint64_t allowed)
{
    uint64_t passed = poise_clock_ns() - g->waited_ns;
    uint64_t unseen = passed > allowed ? passed - allowed : 0;
    if (allowed > 0 || count > 0) {
        uint64_t unrun = gateway_unrun(g);
        unseen = unrun > unseen ? unrun : unseen;
    }
    if (gateway_was_stopped(g, events, count)) {
        unseen = passed;
    }
    g->lines.unseen_ns = unseen;
}

/* Until packets come in, or shortly before one is due. */
static int gateway_wait(struct gateway *g, struct epoll_event *events)
{
    uint64_t now = poise_clock_ns(), due = wan_lines_due(&g->lines);
    uint64_t left = due == UINT64_MAX ? GATEWAY_NAP_NS
                    : due <= now + GATEWAY_SPIN_NS
                        ? 0
                        : due - now - GATEWAY_SPIN_NS;
    if (left > GATEWAY_NAP_NS) {
        left = GATEWAY_NAP_NS;
    }
    struct timespec timeout = {.tv_nsec = (long)left};
    int count = epoll_pwait2(g->epoll, events, GATEWAY_EVENTS, &timeout, NULL);
    if (count < 0 && errno == EINTR) {
        count = 0;
    }
    if (count >= 0) {
        gateway_look(g, events, count, left);
        g->waited_ns = poise_clock_ns();
    }
    return count;
}

/* Whether processors may sleep deeply, by whether there are packets. The
 * kernel's promise holds for as long as the file is open. */
static void gateway_stay_awake(struct gateway *g, bool packets)
{
    static const int32_t latency_us = 0;
    uint64_t now = poise_clock_ns();
    if (packets) {
        g->busy_ns = now;
    }
    if (packets && g->awake < 0) {
        /* Only root may: others live with it. */
        g->awake = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
        if (g->awake >= 0 &&
            write(g->awake, &latency_us, sizeof latency_us) < 0) {
            close(g->awake);
            g->awake = -1;
        }
    } else if (g->awake >= 0 && now - g->busy_ns > GATEWAY_QUIET_NS) {
        close(g->awake);
        g->awake = -1;
    }
}

/* What tells of times in which this process did not run. Where it cannot be had
 * they are not counted. */
static void gateway_watch_itself(struct gateway *g)
{
    sigset_t set;
    struct epoll_event event = {.events = EPOLLIN,
                                .data.u32 = GATEWAY_CONTINUED};
    sigemptyset(&set);
    sigaddset(&set, SIGCONT);
    g->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    gateway_unrun(g);
    g->waited_ns = poise_clock_ns();
    /* A stop ends all the same. */
    if (sigprocmask(SIG_BLOCK, &set, NULL) == 0) {
        g->continued = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    }
    if (g->continued >= 0 &&
        epoll_ctl(g->epoll, EPOLL_CTL_ADD, g->continued, &event) < 0) {
        close(g->continued);
        g->continued = -1;
    }
}

static int gateway_open(struct gateway *g)
{
    g->kinds = poise_alloc(g->topology->hosts, sizeof *g->kinds);
    g->buffer = poise_alloc(2, WAN_SEGMENT_BYTES);
    if (!g->kinds || !g->buffer) {
        return -ENOMEM;
    }
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (g->epoll < 0) {
        return poise_error_set(errno, "watch tunnels", NULL, NULL);
    }
    for (unsigned i = 0; i < g->topology->hosts; i++) {
        g->kinds[i] = wan_device_kind(g->ports[i]);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(g->epoll, EPOLL_CTL_ADD, g->ports[i], &event) < 0) {
            return poise_error_set(errno, "watch a tunnel", NULL, NULL);
        }
    }
    struct epoll_event asked = {.events = EPOLLIN, .data.u32 = GATEWAY_ASKED};
    if (g->control.listener >= 0 &&
        epoll_ctl(g->epoll, EPOLL_CTL_ADD, g->control.listener, &asked) < 0) {
        return poise_error_set(errno, "watch the control socket", NULL, NULL);
    }
    gateway_watch_itself(g);
    return 0;
}

/* Somebody came who has something to ask. */
static void gateway_admit(struct gateway *g)
{
    int number = wan_control_come(&g->control);
    if (number < 0) {
        return;
    }
    struct epoll_event event = {
        .events = EPOLLIN, .data.u32 = GATEWAY_ASKED - 1 - (unsigned)number};
    if (epoll_ctl(g->epoll, EPOLL_CTL_ADD, g->control.askers[number].fd,
                  &event) < 0) {
        close(g->control.askers[number].fd);
        g->control.askers[number].fd = -1;
    }
}

static void gateway_heed(struct gateway *g, unsigned event)
{
    if (event == GATEWAY_ASKED) {
        gateway_admit(g);
    } else if (event != GATEWAY_CONTINUED) {
        if (event >= GATEWAY_ASKED - WAN_ASKERS) {
            wan_control_hear(&g->control, GATEWAY_ASKED - 1 - event);
        } else {
            gateway_read(g, event);
        }
        gateway_deliver(g);
    }
}

static void gateway_close(struct gateway *g)
{
    const int fds[] = {g->epoll, g->awake, g->continued, g->schedstat};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    for (unsigned i = 0; i < WAN_ASKERS; i++) {
        if (g->control.askers[i].fd >= 0) {
            close(g->control.askers[i].fd);
        }
    }
    free(g->kinds);
    free(g->buffer);
    wan_lines_free(&g->lines);
}

int wan_gateway_run(struct poise_wan_topology *topology, const int *ports,
                    int listener, struct poise_wan_counts *counts,
                    const int *stop)
{
    struct gateway g = {
        .topology = topology,
        .ports = ports,
        .epoll = -1,
        .awake = -1,
        .continued = -1,
        .schedstat = -1,
        .control = {.topology = topology, .listener = listener},
    };
    struct epoll_event events[GATEWAY_EVENTS];
    for (unsigned i = 0; i < WAN_ASKERS; i++) {
        g.control.askers[i].fd = -1;
    }
    int code = wan_lines_create(topology, counts, poise_clock_ns(),
                                poise_rng_next(poise_rng_current()), &g.lines);
    if (code == 0) {
        code = gateway_open(&g);
    }
    g.control.lines = &g.lines;
    g.control.buffer = g.buffer;
    /* Sleeps end within a microsecond or so of their time, not fifty. */
    prctl(PR_SET_TIMERSLACK, 1UL);
    while (code == 0 && !__atomic_load_n(stop, __ATOMIC_RELAXED)) {
        int count = gateway_wait(&g, events);
        if (count < 0) {
            code = poise_error_set(errno, "watch tunnels", NULL, NULL);
        }
        gateway_deliver(&g);
        gateway_stay_awake(&g,
                           count > 0 || wan_lines_due(&g.lines) != UINT64_MAX);
        for (int i = 0; code == 0 && i < count; i++) {
            gateway_heed(&g, events[i].data.u32);
        }
    }
    gateway_close(&g);
    return code;
}
