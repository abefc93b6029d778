/*
 * Packets, and what links do to them: for the rooms of wing wan.
 *
 *   segment.c   what hosts send in one piece, and the packets in it
 *   queue.c     who waits for a line, and who is dropped
 *   effects.c   chance: loss, jitter, order, copies, wrong bits
 *   counts.c    how late packets were
 *   events.c    packets as events of a trace
 *   link.c      when a packet is due, and those that wait: no system calls
 */
#ifndef POISE_WAN_LINK_H
#define POISE_WAN_LINK_H

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

#endif
