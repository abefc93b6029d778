/*
 * What the files of room wan share.
 *
 *   topology.c  the text of a topology
 *   place.c     hosts: numbers, names, addresses
 *   tracefile.c latency and bandwidth over time
 *   lines.c     files of lines
 *   mahimahi.c  opportunities to deliver a packet
 *   segment.c   what hosts send in one piece, and the packets in it
 *   queue.c     who waits for a line, and who is dropped
 *   effects.c   chance: loss, jitter, order, copies, wrong bits
 *   counts.c    how late packets were
 *   link.c      when a packet is due, and those that wait: no system calls
 *   events.c    packets as events of a trace
 *   control.c   asking a gateway: other links, what goes over one
 *   gateway.c   packets from one descriptor to another, at their time
 *   device.c    the network device of a host: a tunnel, or a pair
 *   mounts.c    the mounts of a host
 *   users.c     users of a host where we are not root
 *   outside.c   a way out to the real network
 *   host.c      namespaces: making a host, running a command on it
 *   door.c      running commands from one host on another
 *   testbed.c   a testbed's folder of state; up, down, open
 *   measure.c    measuring a real link
 */
#ifndef POISE_WAN_INTERNAL_H
#define POISE_WAN_INTERNAL_H

#include <poise/trace.h>
#include <poise/wan.h>

/* ---- packets (segment.c) ------------------------------------------------- */

/** As much as a host hands over at once. */
#define WAN_SEGMENT_BYTES (65536 + 256)
/** Headers of a packet: of IP and of TCP, both at their longest. */
#define WAN_HEADERS_BYTES 128
/** What the kernel says of a packet: struct virtio_net_hdr. */
#define WAN_VNET_BYTES 10

/** What a host sent in one piece: one packet, or many of one TCP connection,
 * as network cards take them (segmentation offload). */
struct wan_segment {
    unsigned refs;
    unsigned len;     /* of data */
    unsigned headers; /* bytes of them in data; 0: not looked at */
    unsigned mss;  /* bytes of each packet behind the headers; 0: one packet */
    unsigned flow; /* a hash of addresses and ports */
    bool six;      /* IPv6 */
    bool ecn;      /* its sender understands marks */
    unsigned char vnet[WAN_VNET_BYTES];
    unsigned char data[];
};

/** One packet: some bytes of a segment. */
struct wan_packet {
    struct wan_packet *next, *side; /* where it waits; after wan_lines_take: the
                                       next one of a run */
    struct wan_segment *segment;
    unsigned offset, len; /* behind the headers */
    unsigned bytes;       /* with them */
    unsigned from, to;    /* hosts */
    unsigned at;          /* site or router */
    unsigned char stage;
    bool marked; /* congestion was met */
    uint64_t order;
    uint64_t due_ns;
    uint64_t wire_ns; /* that it took the last line */
    uint64_t number;  /* among those of its line */
    uint64_t queued_ns, entered_ns;
    uint64_t unseen_ns; /* that it may have waited to be read */
};

/* ---- counts (counts.c) --------------------------------------------------- */

/** A packet came that late. */
void wan_counts_late(struct poise_wan_counts *counts, uint64_t late_ns);

/* ---- packets --------------------------------------------------------------
 */

/** A segment of `len` bytes, to be filled in, with one reference; NULL: memory
 * is short. */
struct wan_segment *wan_segment_new(unsigned len);
void wan_segment_drop(struct wan_segment *segment);
/** Look at what is in it, once data and vnet are there. Whoever sent it is not
 * believed: what makes no sense stays one packet. */
void wan_segment_look(struct wan_segment *segment);
/** Where it goes; false: no IP packet. */
bool wan_segment_target(const struct wan_segment *segment, bool *six,
                        unsigned char address[16]);
/**
 * Headers for `len` bytes from `offset` on: packets of the segment that follow
 * each other, as one. `vnet` gets what the kernel has to know. Their length.
 */
unsigned wan_segment_headers(const struct wan_segment *segment, unsigned offset,
                             unsigned len, bool marked,
                             unsigned char out[WAN_HEADERS_BYTES],
                             unsigned char vnet[WAN_VNET_BYTES]);
/** One packet as it would be on a wire, with its checksum; at most
 * WAN_SEGMENT_BYTES. Its length. */
unsigned wan_packet_flatten(const struct wan_packet *packet,
                            unsigned char *out);

/* ---- queues (queue.c) ---------------------------------------------------- */

#define WAN_FLOWS 1024
/** The mark of topologies that give none: as routers have. */
#define WAN_QUEUE_LEAST ((uint64_t)256 << 10)

struct wan_codel {
    uint64_t above_ns, next_ns; /* 0: not above the target */
    unsigned count, last_count;
    bool dropping;
};

struct wan_flow {
    struct wan_packet *first, *last;
    struct wan_flow *next; /* in its list */
    int64_t deficit;
    uint64_t bytes;
    struct wan_codel codel;
    bool listed;
};

/** Packets that wait for a line. */
struct wan_queue {
    enum poise_wan_qdisc qdisc;
    uint64_t bytes, most_bytes;
    unsigned packets;
    struct wan_flow *flows; /* [1] or [WAN_FLOWS] */
    struct wan_flow *fresh, *fresh_last, *old, *old_last;
};

int wan_queue_create(enum poise_wan_qdisc qdisc, struct wan_queue **out);
/** All that waits is appended to *left. */
void wan_queue_free(struct wan_queue *queue, struct wan_packet **left);
/** The packet waits; those that must go for it are appended to *dropped, it
 * may be one of them. */
void wan_queue_put(struct wan_queue *queue, uint64_t now_ns,
                   struct wan_packet *packet, struct wan_packet **dropped);
/** Whose turn it is at `now_ns`; NULL: nobody's. */
struct wan_packet *wan_queue_take(struct wan_queue *queue, uint64_t now_ns,
                                  struct wan_packet **dropped);

/* ---- links at work (link.c) --------------------------------------------- */

/** What the gateway holds at most; beyond it packets are dropped. */
#define WAN_HELD_MOST ((uint64_t)512 << 20)
/** Packets that came in one piece leave in one piece if they are due within
 * such a time; so do those of network cards. */
#define WAN_TOGETHER_NS UINT64_C(20000)

/** Each has a stream of chances of its own, so that one does not shift another.
 */
enum {
    WAN_LOSS,
    WAN_BURST,
    WAN_JITTER,
    WAN_REORDER,
    WAN_TWICE,
    WAN_CORRUPT,
    WAN_CHANCES
};

/** One direction at work: a line that sends one packet after the other, and
 * the packets on their way. */
struct wan_line {
    const struct poise_wan_link *link;
    struct poise_wan_counts *counts;
    bool port;        /* of a host: only the rate and the queue count */
    bool lan;         /* of a site: all but those */
    uint64_t free_ns; /* when the line has sent what it was given */
    uint64_t last_due_ns;
    struct wan_packet *first, *last; /* in order */
    struct wan_packet *heap;         /* those that may overtake */
    struct wan_queue *queue; /* those that wait; NULL: they are on their way,
                                with the time when their turn will be */
    uint64_t hold_ns;        /* wait for more of a run until then */
    uint64_t taken, left;    /* of the deliveries; bytes of the last */
    uint64_t key_ns;         /* when something happens next */
    unsigned place;          /* in the heap of lines; UINT_MAX: nothing will */
    bool bad;                /* in a burst of losses */
    uint64_t came;           /* packets, so far */
    uint32_t packets, drops; /* collectors, where a trace is in force */
    struct poise_rng rng[WAN_CHANCES];
};

/** All lines, by when something happens on them. */
struct wan_lines {
    const struct poise_wan_topology *topology;
    struct wan_line
        *lines; /* between sites and routers, and the LANs: [sites²];
                   then two ports for each host: out, in */
    struct wan_line **heap;          /* [heap_count] */
    struct poise_wan_counts *counts; /* [sites²], borrowed */
    unsigned *site_of;               /* [hosts] */
    unsigned sites, count, heap_count;
    struct wan_packet *unused;
    uint64_t held_bytes, order;
    uint64_t start_ns;
    uint64_t unseen_ns; /* that packets may have waited which come now */
    /* What comes to the end of a line is shown there, if it is not NULL. */
    void (*tap)(void *arg, unsigned line, const struct wan_packet *packet);
    void *tap_arg;
};

/** Lines for all that the topology has, which must stay. `seed` is for
 * topologies without one. */
int wan_lines_create(const struct poise_wan_topology *topology,
                     struct poise_wan_counts *counts, uint64_t now_ns,
                     uint64_t seed, struct wan_lines *out);
void wan_lines_free(struct wan_lines *lines);
/** The links of the topology may have changed: go on with them. What is on its
 * way stays so. */
int wan_lines_changed(struct wan_lines *lines);
/**
 * A segment came in at `now_ns` from one host for another; the reference is
 * taken over. Its packets go their ways one by one, as far as memory reaches:
 * the rest is dropped.
 */
void wan_lines_put(struct wan_lines *lines, uint64_t now_ns, unsigned from,
                   unsigned to, struct wan_segment *segment);
/** When there is something to do next; UINT64_MAX: nothing. */
uint64_t wan_lines_due(const struct wan_lines *lines);
/** The next packets that have arrived by `now_ns`: a run of one segment's, or
 * one, or NULL. They go back by wan_packets_done. */
struct wan_packet *wan_lines_take(struct wan_lines *lines, uint64_t now_ns);
void wan_packets_done(struct wan_lines *lines, struct wan_packet *packets);

/* What is recorded where a trace is in force (events.c); `begin` once all lines
 * are there. */
int wan_events_begin(struct wan_lines *lines);
/** It has passed the line, and is due. */
void wan_event_packet(const struct wan_line *line,
                      const struct wan_packet *packet);
/** It is gone; `why` has at most eight letters. */
void wan_event_drop(const struct wan_line *line,
                    const struct wan_packet *packet, const char *why);

/* What happens by chance to the next packet of a line (effects.c). */
bool wan_effect_lost(struct wan_line *line);
uint64_t wan_effect_latency(struct wan_line *line, uint64_t latency_ns);
bool wan_effect_reordered(struct wan_line *line);
bool wan_effect_twice(struct wan_line *line);
/** It may get a wrong bit; false: memory is short. */
bool wan_effect_corrupt(struct wan_line *line, struct wan_packet *packet);

/** When a packet of `bytes` that wants to go at `begin_ns`, in nanoseconds from
 * the start, has gone (mahimahi.c). */
uint64_t wan_deliveries_next(const struct poise_wan_deliveries *deliveries,
                             struct wan_line *line, uint64_t begin_ns,
                             uint64_t bytes);

/* ---- the gateway (gateway.c) -------------------------------------------- */

/** The same as poise_wan_topology_parse; no_files: none are opened for it. */
int wan_topology_parse(const char *text, size_t len, const char *path,
                       bool no_files, struct poise_wan_topology *out);
/** Change a link by a line "link ...", which is written into. -EINVAL: what is
 * wrong, and nothing has changed, but for the first of two directions. */
int wan_topology_change(struct poise_wan_topology *topology, char *line);

/* ---- asking the gateway (control.c) ----------------------------------------
 */

/** The socket of a testbed's folder that its gateway listens to. */
#define WAN_CONTROL "control"
/** Who may ask at a time. */
#define WAN_ASKERS 16
#define WAN_ASK_BYTES 4096

struct wan_control {
    struct poise_wan_topology *topology;
    struct wan_lines *lines;
    int listener; /* or -1 */
    struct wan_asker {
        int fd;        /* or -1 */
        bool captures; /* packets of two lines */
        unsigned here, there;
        uint64_t missed; /* since it did not read in time */
    } askers[WAN_ASKERS];
    unsigned char *buffer; /* [2 * WAN_SEGMENT_BYTES], borrowed */
};
/** Listen; its descriptor, non-blocking. */
int wan_control_listen(const char *path);
/** Someone came: the number of the asker, whose fd is to be watched; or -1. */
int wan_control_come(struct wan_control *control);
/** An asker says something, or is gone. */
void wan_control_hear(struct wan_control *control, unsigned number);
/** A packet came to the end of a line: for those that capture. */
void wan_control_tap(void *control, unsigned line,
                     const struct wan_packet *packet);

/** The number of the host of an address, or UINT_MAX. */
unsigned wan_host_of(const struct poise_wan_topology *topology,
                     uint32_t address);
/** IPv6 addresses are fd77::SITE:HOST. */
#define WAN_NETWORK_SIX 0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
unsigned wan_host_of_six(const struct poise_wan_topology *topology,
                         const unsigned char address[16]);
/** That of the host of an IPv4 address. */
void wan_address_six(uint32_t address, unsigned char out[16]);
/**
 * Carry packets between `ports` ([topology->hosts] descriptors, non-blocking,
 * a whole packet a read) until *stop
 * (__atomic access) is not 0. `counts` is [sites²]. Who asks at `listener`
 * (wan_control_listen, or -1) is answered.
 */
int wan_gateway_run(struct poise_wan_topology *topology, const int *ports,
                    int listener, struct poise_wan_counts *counts,
                    const int *stop);

/* ---- devices (device.c) ------------------------------------------------- */

/** What the device of a host is called. */
#define WAN_TUNNEL "e0"
/** What an error begins with where tunnels cannot be opened. */
#define WAN_OPEN_TUN "open /dev/net/tun"

/** Before each packet of a pair of Ethernet devices: receiver, sender, type;
 * the same for all packets that a host gets. */
#define WAN_FRAME_BYTES 14
extern const unsigned char wan_frame_in[WAN_FRAME_BYTES],
    wan_frame_in_six[WAN_FRAME_BYTES];

/** In a host: make its device and set up the network. The gateway's end, or -1
 * with errno and what was being done. */
int wan_device_open(uint32_t address, const char **doing);
/** What is around the packets of an end. */
enum wan_port { WAN_PLAIN, WAN_FRAMED, WAN_VNET };
enum wan_port wan_device_kind(int port);

/* ---- users (users.c) and mounts (mounts.c) of a host ---------------------
 */

/** Who there is on a host: all; the one who made it, who is root there; he and
 * those of his /etc/subuid. */
enum wan_users { WAN_ROOT, WAN_ONE, WAN_SEVERAL };
enum { WAN_USERS_MAPPED = 1, WAN_GROUPS_MAPPED = 2 };
/** Map users and groups of a process that is in a user namespace of its own, as
 * far as this user may: what was mapped. */
unsigned wan_users_map(pid_t pid, uid_t uid, gid_t gid);
/** In a host: -1 with errno and what was being done. `resolv_file` stands in
 * for /etc/resolv.conf, if it is not NULL. */
int wan_mounts(const char *hosts_file, const char *resolv_file,
               enum wan_users users, const char **doing);

/* ---- a way out (outside.c) ---------------------------------------------- */

/** What names are asked for there. */
#define WAN_OUTSIDE_RESOLV "nameserver 10.0.2.3\n"
/** Give a host a way out, which ends with the calling process; so does a
 * process that gets an error, with what it has opened. -ENOTSUP: what it takes
 * is not installed. */
int wan_outside_open(const char *name, pid_t host);

/* ---- hosts (host.c) ----------------------------------------------------- */

/** A process that keeps the namespaces of a host, and its end of the tunnel.
 */
struct wan_host {
    pid_t pid;
    int tunnel;
};
/** How a host shall be. */
struct wan_wish {
    const char *name;
    uint32_t address;
    const char *hosts_file;  /* stands in for /etc/hosts there */
    const char *resolv_file; /* and this for /etc/resolv.conf; or NULL */
};
int wan_host_create(const struct wan_wish *wish, struct wan_host *out);

/** Who waits for a stopped gateway gives up after so long. */
#define WAN_STOPPED_S 5
/** Whether a process is stopped (SIGSTOP), not by a debugger. */
bool wan_is_stopped(int64_t pid);

/** This thread, and what it starts, needs the processor soon and not for long:
 * a kernel that can then lets others wait (host.c). */
void wan_short_slices(void);

/* ---- text --------------------------------------------------------------- */

/** -EINVAL with "PATH:LINE" as what is wrong. */
int wan_line_error(const char *path, unsigned line, const char *fmt, ...)
    POISE_PRINTF(3, 4);
/** Give each line of a file to `take`, without its end, to be written into,
 * until it returns an error. -EINVAL also where a line has a NUL or over 4 KiB,
 * or the file over 256 MiB: with "PATH:LINE". */
int wan_lines_read(const char *path,
                   int (*take)(void *arg, char *text, const char *path,
                               unsigned line),
                   void *arg);
/** The next word of *text, NUL-terminated in place, or NULL. */
char *wan_word(char **text);

#endif
