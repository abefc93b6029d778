/*
 * What the files of room wan share.
 *
 *   topology.c  the text of a topology
 *   tracefile.c latency and bandwidth over time
 *   link.c      when a packet is due, and those that wait: no system calls
 *   gateway.c   packets from one descriptor to another, at their time
 *   device.c    the network device of a host: a tunnel, or a pair
 *   host.c      namespaces: making a host, running a command on it
 *   door.c      running commands from one host on another
 *   testbed.c   a testbed's folder of state; up, down, open
 *   measure.c    measuring a real link
 */
#ifndef POISE_WAN_INTERNAL_H
#define POISE_WAN_INTERNAL_H

#include <poise/wan.h>

/* ---- links at work (link.c) --------------------------------------------- */

#define WAN_PACKET_BYTES 2048
/** The mark of topologies that give none: as routers have. */
#define WAN_QUEUE_LEAST ((uint64_t)256 << 10)

struct wan_packet {
    struct wan_packet *next;
    uint64_t due_ns, delay_ns;
    uint64_t unseen_ns; /* that it may have waited to be read */
    unsigned to;        /* host */
    unsigned len;
    unsigned char data[WAN_PACKET_BYTES];
};

/** One direction at work: a line that sends one packet after the other, and
 * the packets on their way, in order. */
struct wan_line {
    const struct poise_wan_link *link;
    uint64_t free_ns; /* when the line has sent what it was given */
    uint64_t last_due_ns;
    struct wan_packet *first, *last;
};

/** All lines, by when their first packet is due. */
struct wan_lines {
    struct wan_line *lines;          /* [count] */
    struct wan_line **heap;          /* [heap_count] */
    struct poise_wan_counts *counts; /* [count], borrowed */
    unsigned count, heap_count;
    struct wan_packet *unused;
    struct poise_rng rng;
    uint64_t start_ns;
    uint64_t unseen_ns; /* that packets may have waited which come now */
};

/** A line for each pair of sites of the topology, which must stay. */
int wan_lines_create(const struct poise_wan_topology *topology,
                     struct poise_wan_counts *counts, uint64_t now_ns,
                     uint64_t seed, struct wan_lines *out);
void wan_lines_free(struct wan_lines *lines);
/** A packet to fill in; goes back by wan_lines_put or wan_packet_done. NULL:
 * memory is short. */
struct wan_packet *wan_packet_new(struct wan_lines *lines);
void wan_packet_done(struct wan_lines *lines, struct wan_packet *packet);
/** A packet came in at `now_ns` for line `line`: whether it will arrive. */
bool wan_lines_put(struct wan_lines *lines, unsigned line, uint64_t now_ns,
                   struct wan_packet *packet);
/** When the next packet is due; UINT64_MAX: none. */
uint64_t wan_lines_due(const struct wan_lines *lines);
/** The next packet that is due by `now_ns`, or NULL. */
struct wan_packet *wan_lines_take(struct wan_lines *lines, uint64_t now_ns);

/* ---- the gateway (gateway.c) -------------------------------------------- */

/** The number of the host of an address, or UINT_MAX. */
unsigned wan_host_of(const struct poise_wan_topology *topology,
                     uint32_t address);
/**
 * Carry packets between `ports` ([topology->hosts] descriptors, non-blocking,
 * a whole IPv4 packet a read) until *stop
 * (__atomic access) is not 0. `counts` is [sites²].
 */
int wan_gateway_run(const struct poise_wan_topology *topology, const int *ports,
                    struct poise_wan_counts *counts, const int *stop);

/* ---- devices (device.c) ------------------------------------------------- */

/** What the device of a host is called. */
#define WAN_TUNNEL "e0"
/** What an error begins with where tunnels cannot be opened. */
#define WAN_OPEN_TUN "open /dev/net/tun"

/** Before each packet of a pair of Ethernet devices: receiver, sender, type;
 * the same for all packets that a host gets. */
#define WAN_FRAME_BYTES 14
extern const unsigned char wan_frame_in[WAN_FRAME_BYTES];

/** In a host: make its device and set up the network. The gateway's end, or -1
 * with errno and what was being done. */
int wan_device_open(uint32_t address, const char **doing);
/** Whether packets of that end have frames around them. */
bool wan_device_has_frames(int port);

/* ---- hosts (host.c) ----------------------------------------------------- */

/** A process that keeps the namespaces of a host, and its end of the tunnel.
 */
struct wan_host {
    pid_t pid;
    int tunnel;
};
/** `hosts_file` stands in for /etc/hosts there. */
int wan_host_create(const char *name, uint32_t address, const char *hosts_file,
                    struct wan_host *out);

/* ---- text --------------------------------------------------------------- */

/** -EINVAL with "PATH:LINE" as what is wrong. */
int wan_line_error(const char *path, unsigned line, const char *fmt, ...)
    POISE_PRINTF(3, 4);
/** The next word of *text, NUL-terminated in place, or NULL. */
char *wan_word(char **text);

#endif
