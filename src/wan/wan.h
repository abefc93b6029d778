/*
 * poise/wan.h - several clusters, far from each other, on one machine.
 *
 * A topology names sites, the hosts of each, and the links between sites:
 * latency, bandwidth, jitter, loss, for each direction separately, constant or
 * from a trace over time. A testbed makes each host a set of namespaces
 * (network, mounts, IPC, host name, processes) whose only way out is one
 * process, the gateway: by a tunnel device (TUN), or, where none can be opened,
 * by a pair of virtual Ethernet devices. The gateway carries every packet, and
 * holds it back as its link demands. It knows nothing but packets, so any
 * program runs unchanged. No kernel module such as netem is needed.
 *
 * Source: latency-bandwidth-thesis 8.1 (the Longcut emulator), at packet level.
 */
#ifndef POISE_WAN_H
#define POISE_WAN_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- topologies -----------------------------------------------------------
 *
 * A text of lines; '#' begins a comment. RATE is bits a second ("10Mbit",
 * "1.5Gbit"), TIME a duration with its unit ("17.5ms"), or 0:
 *
 *   site NAME HOSTS [lan TIME RATE [MORE]]
 *   router NAME               no hosts: links that several sites share end here
 *   link SITE SITE TIME RATE [MORE]
 *   link SITE -> SITE ...     the same, one way only (the later line counts)
 *   default TIME RATE [MORE]  all pairs of sites that no line joins
 *   seed N                    what chance follows: the same, the same losses
 *   outside                   hosts reach the real network, past all links
 *
 * TIME is one-way; RATE may be "unlimited". MORE, in any order:
 *
 *   jitter TIME            up to so much more (or the standard deviation)
 *   distribution NAME      uniform, normal, pareto or paretonormal, as netem's
 *   order any              jitter lets packets overtake ("kept": usual)
 *   reorder N%             so many do not wait for the latency
 *   loss N%                each by itself
 *   gemodel P,R[,H[,K]]    in bursts (Gilbert, Elliott): the chance that a
 *                          packet begins a bad time, ends one, is lost in one
 *                          (100%), is lost in a good one (0%)
 *   duplicate N%, corrupt N%  come twice; have one bit changed
 *   queue SIZE             what more waits for the line is dropped
 *   qdisc NAME             fifo, codel or fq_codel, which mark or drop
 *   trace FILE             latency and rate over time, see below
 *   mahimahi FILE          when a packet may go, in Mahimahi's format
 *
 * Without "lan", hosts of a site reach each other at once; with it each host
 * has a port of RATE, which all that it sends passes, and one for what it gets.
 * Sites that no link joins are joined by the shortest way over routers.
 */

struct poise_wan_trace;

struct poise_wan_deliveries;

/** What jitter is drawn from. All but the first are around the latency, with
 * the jitter as standard deviation. */
enum poise_wan_distribution {
    POISE_WAN_UNIFORM, /**< in [0, jitter], added */
    POISE_WAN_NORMAL,
    POISE_WAN_PARETO,      /**< of shape 3, as netem's */
    POISE_WAN_PARETONORMAL /**< a quarter normal, three quarters Pareto */
};

/** Who waits for the line. Source: RFC 8289, RFC 8290. */
enum poise_wan_qdisc {
    POISE_WAN_FIFO,
    POISE_WAN_CODEL,   /**< drops or marks when all have waited over 5 ms */
    POISE_WAN_FQ_CODEL /**< one such queue for each flow, in turn */
};

/** One direction of a link. Zero-initialised is at once and without limit. */
struct poise_wan_link {
    uint64_t latency_ns;
    uint64_t jitter_ns;
    enum poise_wan_distribution distribution;
    bool any_order;           /**< jitter may change the order of packets */
    uint64_t bits_per_second; /**< 0: without limit */
    uint64_t queue_bytes;     /**< what more waits for the line is dropped */
    enum poise_wan_qdisc qdisc;
    /** Probabilities in [0, 1]. */
    double loss, reorder, duplicate, corrupt;
    /** Bursty loss: begin a bad time, end it, lost in it, lost else; all 0:
     * none. */
    double bad, good, bad_loss, good_loss;
    /** Latency and bandwidth over time, in place of the two above; owned by
     * the topology; NULL: constant. */
    struct poise_wan_trace *trace;
    /** When packets may go, in place of the bandwidth; owned likewise. */
    struct poise_wan_deliveries *deliveries;
    bool set; /**< a line of the topology sets it */
};

struct poise_wan_site {
    char *name;                /**< owned */
    unsigned hosts;            /**< 0: a router */
    struct poise_wan_link lan; /**< between its hosts */
};

/** Zero-initialised is empty. Free with poise_wan_topology_free. */
struct poise_wan_topology {
    struct poise_wan_site *sites; /**< [count], owned */
    unsigned count;
    struct poise_wan_link *links; /**< [from * count + to], owned */
    unsigned char *next; /**< [from * count + to], owned: the first site or
                              router on the way */
    unsigned hosts;      /**< of all sites */
    uint64_t seed;       /**< 0: none was given */
    bool outside;        /**< hosts have a way out to the real network */
};

enum { POISE_WAN_SITES_MOST = 200, POISE_WAN_HOSTS_MOST = 250 };

/**
 * Read a topology; trace files are looked for beside `path`. -EINVAL: the
 * error names file and line (an unknown site, two sites of one name, a pair
 * of sites without a link, ...). `out` is only written on success.
 */
int poise_wan_topology_read(const char *path, struct poise_wan_topology *out);
/** The same from `len` bytes of text, which is called `path` in errors. */
int poise_wan_topology_parse(const char *text, size_t len, const char *path,
                             struct poise_wan_topology *out);
void poise_wan_topology_free(struct poise_wan_topology *topology);

/** Hosts are numbered over all sites in order. The site of one. */
unsigned poise_wan_site_of(const struct poise_wan_topology *topology,
                           unsigned host);
/** Its name, the site's and a number from 0 ("oslo0"); appended to `out`. */
int poise_wan_host_name(const struct poise_wan_topology *topology,
                        unsigned host, struct poise_buf *out);
/** Its IPv4 address in host byte order: 10.77.SITE.HOST, both from 1. */
uint32_t poise_wan_host_address(const struct poise_wan_topology *topology,
                                unsigned host);
/** The link from one host to another, of the topology or of the site; NULL:
 * several, over routers. */
const struct poise_wan_link *
poise_wan_link_of(const struct poise_wan_topology *topology, unsigned from,
                  unsigned to);

/**
 * Deal out ranks over hosts: slots[i] of them to host i ([topology->hosts]).
 * Each host gets as many as every other, and what is left over (all, where
 * ranks are fewer than hosts) goes to sites in turn, one host of each after the
 * other. So no site has two ranks more than another that has room for them.
 */
POISE_API void poise_wan_deal(const struct poise_wan_topology *topology,
                              uint64_t ranks, uint64_t *slots);

/** "10Mbit", "1.5Gbit", "64kbit", or bits: a rate, not 0. -EINVAL. */
int poise_wan_parse_rate(const char *text, uint64_t *out);

/* ---- traces of links --------------------------------------------------------
 *
 * Lines "SECONDS LATENCY RATE": from that moment on. The first is at 0; after
 * the last line's moment the trace begins again.
 */

struct poise_wan_sample {
    uint64_t at_ns, latency_ns, bits_per_second;
};
int poise_wan_trace_read(const char *path, struct poise_wan_trace **out);
void poise_wan_trace_free(struct poise_wan_trace *trace);
/** The values that hold `since_ns` after the start. */
struct poise_wan_sample poise_wan_trace_at(const struct poise_wan_trace *trace,
                                           uint64_t since_ns);

/**
 * Opportunities to deliver a packet, as Mahimahi records them: a file of
 * milliseconds since the start, ascending, one a line, each for 1,504 bytes;
 * after the last one's moment it begins again.
 */
int poise_wan_deliveries_read(const char *path,
                              struct poise_wan_deliveries **out);
void poise_wan_deliveries_free(struct poise_wan_deliveries *deliveries);

/* ---- a testbed that runs ------------------------------------------------ */

enum { POISE_WAN_LATE_STEPS = 97 };

/** How a testbed is doing: one line of counters per direction. Written by the
 * gateway, in a file that others map; __atomic access. */
struct poise_wan_counts {
    uint64_t packets, bytes;        /**< delivered */
    uint64_t dropped, lost;         /**< queue full; by the link's loss */
    uint64_t late_ns, late_most_ns; /**< behind the due time: sum, worst.
                                         What a packet may have waited before
                                         the gateway saw it is a part of it */
    uint64_t delay_ns;              /**< that the link demanded of them: sum */
    /** How many packets were how late: less than 1 us; then four for each
     * doubling, see poise_wan_late. */
    uint32_t late[POISE_WAN_LATE_STEPS];
};

enum { POISE_WAN_LATE_PERCENT = 10 }; /**< usual limit of lateness */
/** How late packets were on average between two readings of counts: late_ns
 * over delay_ns, in percent. 0 where the link demands no delay: at once can be
 * kept by nobody. */
POISE_API double poise_wan_lateness(const struct poise_wan_counts *before,
                                    const struct poise_wan_counts *after);

/** How late at most `share` (such as 0.99) of the packets between two readings
 * were, in ns; up to a quarter more than it was. 0: there was none. */
POISE_API uint64_t poise_wan_late(const struct poise_wan_counts *before,
                                  const struct poise_wan_counts *after,
                                  double share);
/** Read counts while they are written. */
POISE_API void poise_wan_counts_read(const struct poise_wan_counts *counts,
                                     struct poise_wan_counts *out);

struct poise_wan_host_state {
    char *name;
    uint32_t address;
    int64_t pid; /**< of its first process */
};

/** Files of the testbed's folder whose names begin like this belong to a
 * command that runs a job on the testbed. They are removed when it is taken
 * down. */
#define POISE_WAN_AGENT "agent-"

/** The file of a testbed's folder that says which site a host is of, as
 * POISE_SITES wants it (poise_world_create). Hosts see it, too. */
#define POISE_WAN_SITES "sites"

/** A testbed as others see it. */
struct poise_wan_testbed {
    struct poise_wan_topology topology;
    struct poise_wan_host_state *hosts;    /**< [topology.hosts] */
    const struct poise_wan_counts *counts; /**< [sites * sites], mapped; the
                                                diagonal: within sites */
    size_t map_bytes;
    char *folder;    /**< where its files are; hosts see it too */
    int64_t gateway; /**< its process id */
    bool alive;      /**< the gateway runs; else a crash left this behind */
    bool stopped;    /**< it is there, but stopped (SIGSTOP) */
};

/**
 * Make the testbed called `name` and return when all its hosts are there. The
 * gateway stays behind as a process of its own; where the environment has
 * POISE_TRACE it records packets there (<poise/trace.h>). -EEXIST: one of that
 * name is up. -ENOTSUP or -EPERM: what is missing, and how to get it.
 */
POISE_API int poise_wan_up(const char *name, const char *topology_path);
/** Take it down, also what a crash left. -ENOENT: there is none. */
POISE_API int poise_wan_down(const char *name);
/** Open it to look at it. -ENOENT: there is none. */
POISE_API int poise_wan_open(const char *name, struct poise_wan_testbed **out);
POISE_API void poise_wan_close(struct poise_wan_testbed *testbed);
/** The number of a host by its name, its address or its number; -ENOENT. */
POISE_API int poise_wan_find_host(const struct poise_wan_testbed *testbed,
                                  const char *name);

/**
 * Run a command on a host and wait for it: its exit status, or 128 + the signal
 * that ended it, in *status. SIGINT, SIGTERM and SIGHUP are passed on; a
 * command that has not ended `timeout_s` seconds later is killed (0: never).
 * Where that is not 0, a gateway that stays stopped for 5 s ends the command,
 * too: -ETIMEDOUT. Else negative: it could not be started (-ENOENT: no such
 * command).
 */
POISE_API int poise_wan_exec(const struct poise_wan_testbed *testbed,
                             unsigned host, char *const *argv,
                             unsigned timeout_s, int *status);

/**
 * Hosts do not see each other's processes: what runs on one of them starts
 * commands on another, as launchers do, through a door. Open one as a socket
 * at `path`, served by a process *door of its own; close ends what still runs.
 */
POISE_API int poise_wan_door_open(const struct poise_wan_testbed *testbed,
                                  const char *path, int64_t *door);
POISE_API void poise_wan_door_close(const char *path, int64_t door);
/** On a host: run `argv` on `host` (its name or address) with this process's
 * standard files; its exit status in *status. */
POISE_API int poise_wan_door_ask(const char *path, const char *host,
                                 char *const *argv, int *status);

/**
 * Change a link of a testbed that is up, by a line as topologies have them
 * ("link near far 30ms 1Mbit loss 2%"), without files. What is on its way stays
 * so. -EINVAL: what is wrong with it, or there is no such link. -ETIMEDOUT: the
 * gateway does not answer.
 */
POISE_API int poise_wan_change(const struct poise_wan_testbed *testbed,
                               const char *line);
/**
 * Write what comes to the end of a link, in both directions, to `out` as a pcap
 * file, until *stop is not 0 (looked at each second, and when a signal comes).
 * `from` and `to` are sites or routers; the same one twice: its LAN. *missed:
 * packets that came faster than they could be written. -ETIMEDOUT: the gateway
 * does not answer, or stays stopped.
 */
POISE_API int poise_wan_capture(const struct poise_wan_testbed *testbed,
                                const char *from, const char *to, int out,
                                const volatile int *stop, uint64_t *missed);

/** How many users there are on a host: 1 where they could not be mapped (see
 * newuidmap(1)), and then servers that change users fail there. */
POISE_API int poise_wan_host_users(const struct poise_wan_testbed *testbed,
                                   unsigned host, uint64_t *users);

/** Bytes that a host has sent into its tunnel, by the kernel's counters. */
POISE_API int poise_wan_host_sent(const struct poise_wan_testbed *testbed,
                                  unsigned host, uint64_t *bytes);

/* ---- measuring a real link ---------------------------------------------- */

/** Answer poise_wan_record on a UDP port, until a signal comes. */
POISE_API int poise_wan_answer(const char *port);
struct poise_wan_record_options {
    uint64_t for_ns;      /**< how long to measure; 0: 60 s */
    uint64_t interval_ns; /**< between two samples; 0: 1 s */
    unsigned train;       /**< packets of a bandwidth probe; 0: 32 */
};
/**
 * Measure the link to `host`:`port`, where poise_wan_answer runs, and append a
 * trace to `out`: half the least round trip of some small packets, and the rate
 * at which a train of large ones arrives. -ETIMEDOUT: no answer.
 */
POISE_API int poise_wan_record(const char *host, const char *port,
                               const struct poise_wan_record_options *options,
                               struct poise_buf *out);

#ifdef __cplusplus
}
#endif

#endif
