/*
 * Links between processes: messages over a stream socket, queued without
 * copying what they carry. Shared by nodes and the map.
 */
#ifndef POISE_FLOW_LINK_H
#define POISE_FLOW_LINK_H

#include <poise/core.h>

#include "flow/job/job.h"

/** What poise_flow_make gives out: the data begin FLOW_MADE_BYTES further. */
struct flow_made {
    struct flow_made *next;
    size_t len;
    size_t cap; /**< bytes that there are: `len`, or more */
};
#define FLOW_MADE_BYTES 64
struct flow_made *flow_made_create(size_t len);
static inline void *flow_made_data(struct flow_made *made)
{
    return (char *)made + FLOW_MADE_BYTES;
}

/** Where a process listens. */
struct flow_endpoint {
    unsigned char ip[16]; /**< IPv6, or IPv4 as ::ffff:A.B.C.D; 0: all */
    uint16_t port;        /**< 0: none */
};
/** Bytes of one as text. */
#define FLOW_ENDPOINT_TEXT 64
/** 127.0.0.1, without a port. */
struct flow_endpoint flow_endpoint_loopback(void);
bool flow_endpoint_is_loopback(const struct flow_endpoint *at);
/** As A.B.C.D:PORT or [IPV6]:PORT; returns `text`. */
const char *flow_endpoint_text(const struct flow_endpoint *at,
                               char text[FLOW_ENDPOINT_TEXT]);
/** Back again. 0 or -EINVAL, without an error set. */
int flow_endpoint_parse(const char *text, struct flow_endpoint *out);
/** The first address of a host's name, without a port. 0, or negative with the
 * error set. */
int flow_endpoint_resolve(const char *host, struct flow_endpoint *out);
/** Which address of this host packets to `to` come from, without a port. 0, or
 * negative with the error set. */
int flow_endpoint_route(const struct flow_endpoint *to,
                        struct flow_endpoint *out);

/** What a message is. */
enum flow_kind {
    FLOW_HELLO,  /**< who called has proved itself (proof.c): `place` its
                    number, `file` not 0 if it was started, `extra` not 0 if it
                    is of the same build and job */
    FLOW_START,  /**< map: payload: struct flow_member by node; `extra` the
                    epoch, `version` the line */
    FLOW_PLAN,   /**< map: a segment; payload: its owners (job/plan.c), as what
                    differs from the segment that begins at version `place` - 1,
                    or of nothing if that is 0 */
    FLOW_JOIN,   /**< map: a new node `place`; payload: its endpoint */
    FLOW_EPOCH,  /**< map: node `place` is dead, epoch `extra`, line
                    `version`; payload: the numbers, 16 bits each, of those who
                    may keep blocks of the dead, and hand them over */
    FLOW_STATE,  /**< map: `version` the oldest that can go on, `place` the
                    line, `extra` the probe that is to be answered, `file` the
                    map's turn; nodes pass it on, but for the probe (relay.c) */
    FLOW_STOP,   /**< map: end; `extra` is not 0 if all is done */
    FLOW_REPORT, /**< node: how it is doing, and others by it (relay.c);
                    payload: entries of flow_entry_put, each of one struct
                    flow_report and what follows it */
    FLOW_FAIL,   /**< node: its error; `extra` the code, payload: words */
    FLOW_SEEK,   /**< node: which node owns this? */
    FLOW_OUTPUT, /**< node: a result */
    FLOW_FETCH,  /**< node to node: send me this block, when it exists */
    FLOW_BLOCK,  /**< node to node: what was wanted */
    FLOW_PUT,    /**< node to node: what was written for you; `extra` 1 + the
                    line to which it is to be kept */
    FLOW_COPY,   /**< node to node: keep this for me; `extra` as above */
    FLOW_COPIED, /**< node to node: `extra` copies came */
    FLOW_HANDED, /**< node to node: all for its epoch was put */
    FLOW_RESULT_KEPT, /**< map: it keeps `place` more results */
    /* In the map's log only, beside some of the above. */
    FLOW_BEGUN,   /**< `extra` the job's fingerprint; payload: its secret */
    FLOW_PROCESS, /**< node `place` is process `extra` (0: no child of the
                     map's) of machine `version` */
    FLOW_LINE,    /**< map: copy what is needed after version `version`, to the
                     nodes that the payload names, [FLOW_COPIES], 16 bits each;
                     `place` is 1 + the newest line that is complete: one asked
                     for since then is given up; in the log: that is done,
                     payload: struct flow_kept by node */
    FLOW_LEAVE,   /**< node: it is to end, and would have its blocks handed over
                     before */
    FLOW_WELCOME, /**< the other end's answer to a hello, and ... */
    FLOW_PROOF,   /**< ... what is said to that (proof.c) */
    FLOW_SPAWN,   /**< map to agent: start node `place` */
    FLOW_ENDED,   /**< agent: node `place` has; payload: struct flow_crash */
    FLOW_LONG,    /**< node: it has computed a block for `extra` ns */
    FLOW_RING,    /**< node to node: memory to share (ring.h); payload: struct
                       flow_ring_offer */
    FLOW_KNOCK,   /**< node to node: there is something in it */
    FLOW_KINDS
};

/** Before each message, in the byte order of the machine. */
struct flow_head {
    uint16_t kind;
    uint16_t epoch; /**< between nodes: the sender's, its low bits */
    uint32_t file;
    int64_t version;
    uint64_t place, extra, len; /**< `len` bytes of payload follow */
    uint64_t digest; /**< of all that, and of the payload; 0: not made yet */
};
/** What a head's digest is to be. */
uint64_t flow_digest(const struct flow_head *head, const void *data);

/** A message in a queue. */
struct flow_item {
    struct flow_item *next;
    struct flow_head head;
    const void *data;         /**< head.len bytes, in one of: */
    struct flow_block *block; /**< the sender's, referenced until it is sent */
    /** Gives back `block`; `owner` is what the queue is cleared with. */
    void (*release)(struct flow_item *item, void *owner);
    struct flow_made *made; /**< owned */
    size_t sent;            /**< bytes of head and data */
    char small[];           /**< else */
};

struct flow_queue {
    struct flow_item *first, *last;
};

/* ---- who is at the other end (proof.c) ---------------------------------- */

#define FLOW_SECRET_BYTES 32
#define FLOW_CODE_BYTES 32
/** As it stands in memory it says the order of bytes. */
#define FLOW_ORDER UINT32_C(0x01020304)

/** Agents count from this number on. */
#define FLOW_AGENTS (UINT32_C(1) << 20)

/** Who one is, to others, and what one can prove it by. */
struct flow_self {
    unsigned char secret[FLOW_SECRET_BYTES];
    uint64_t build, job; /**< flow_build, flow_job_fingerprint */
    uint64_t turn;       /**< the map's: which map it is; a node's: whose */
    struct flow_endpoint at;
    uint32_t node;  /**< number */
    uint32_t began; /**< not 0 if it was started */
};

/** What is said of it at the beginning of a link, and part of what codes are
 * made of: no room between members. */
struct flow_greeting {
    char magic[8];
    uint32_t order, node;
    uint64_t build, job, turn;
    unsigned char nonce[16];
    struct flow_endpoint at;
    uint16_t began;
    uint32_t zero;
};

/** What this process was built from, as a number: 64 bits of a hash. */
uint64_t flow_build(void);
/** A new one, from the system. 0, or negative with the error set. */
int flow_secret_draw(unsigned char secret[FLOW_SECRET_BYTES]);
struct flow_link;
/** Greet the other end of a new connection: what is sent before it has proved
 * itself waits. 0 or negative. */
int flow_link_greet(struct flow_link *link, const struct flow_self *self);
/** For link.c: the bytes that link->head may have behind it now (SIZE_MAX: it
 * may not come), and handling it: 1, 0 or negative, as flow_link_receive. */
size_t flow_handshake_bytes(const struct flow_link *link);
int flow_link_shake(struct flow_link *link, const struct flow_self *self);
/** What of it is to be sent, before all else; NULL: nothing. */
struct flow_queue *flow_handshake_queue(struct flow_link *link);
/** Forget it. */
void flow_handshake_free(struct flow_link *link);

/** Silence counts only while one listens oneself: a process that was stopped,
 * or got no processor, must not mistake what it did not hear for a death. So
 * this clock goes on by `most` at most each time it is looked at. */
struct flow_awake {
    uint64_t ns;
    uint64_t looked_ns; /**< 0: not yet */
};
void flow_awake_look(struct flow_awake *awake, uint64_t most);
/** Looks in the time after which something is given up, at least. */
#define FLOW_AWAKE_LOOKS 8

/** One socket. Senders put items into `queue` (nodes: with their lock held),
 * and only the thread of the socket touches the rest. */
struct flow_link {
    int fd; /**< -1: closed */
    uint16_t peer;
    bool known;              /**< whose it is */
    unsigned agent;          /**< 1 + which host's agent; 0: a node, or map */
    bool proved;             /**< the other end is who it says (proof.c) */
    bool polled_out;         /**< epoll is asked for room to send */
    struct flow_queue queue; /**< to be sent */
    struct flow_queue sending;
    struct flow_head head; /**< what is being received */
    size_t got;            /**< bytes of head and payload */
    struct flow_made *in;  /**< the payload, owned */
    /** What came behind that: `ahead_len` bytes from `ahead_at` on; owned. */
    char *ahead;
    size_t ahead_at, ahead_len;
    bool drained; /**< when it was read last the socket had no more */
    bool enough;  /**< set by who reads it: nothing is to be read ahead, others
                       have their turn */
    uint64_t heard_ns;
    struct flow_awake strange; /**< for how long it is one that came unknown */
    uint64_t broke_ns;         /**< of a node: when it broke; 0: it never did */
    struct flow_handshake *shake; /**< owned; NULL: none goes on */
    struct flow_endpoint at;      /**< where who called listens, if proved */
    uint64_t turn;                /**< of who was called, if proved */
    struct flow_link *next;
};

/** A socket that listens on an address, on a port that the system chooses if it
 * names none, and the port. 0, or negative with the error set. */
int flow_listen(const struct flow_endpoint *at, int *fd, uint16_t *port);
/** A connection: non-blocking. 0, or negative with the error set. */
int flow_connect(const struct flow_endpoint *to, int *fd);
/** Make it non-blocking, and send at once. */
void flow_socket_tune(int fd);

/** A message with a payload that is copied (len may be 0). NULL: no memory. */
struct flow_item *flow_item_create(enum flow_kind kind, const void *data,
                                   size_t len);
void flow_queue_add(struct flow_queue *queue, struct flow_item *item);
/** Free all items. `owner` goes to their release; a node's holds its lock. */
void flow_queue_clear(struct flow_queue *queue, void *owner);
/** Free one that was sent; the same holds. */
void flow_item_free(struct flow_item *item, void *owner);

/**
 * Send what is in link->sending as far as the socket takes it; items that are
 * sent go to `sent`. 1: all sent, 0: the socket is full, negative: the link is
 * broken (no error set).
 */
int flow_link_send(struct flow_link *link, struct flow_queue *sent);
/** Who connected and did not say hello yet is a stranger, and has so long for
 * it, while this process listens (struct flow_awake): longer than the map waits
 * for one that is to come, for it may be stopped, or cut off, meanwhile. */
#define FLOW_STRANGER_NS UINT64_C(120000000000)
/** How many strangers there may be besides as many as there are nodes. */
#define FLOW_STRANGERS_MOST 64
/** Connections that are accepted before those that came are heard. */
#define FLOW_ACCEPTS_MOST 16
/** Accept one connection, if there is one, as the first of `links`: 1, 0 or
 * negative. If there are more than `most` strangers, or no descriptor is left,
 * the oldest of them is closed. */
int flow_link_accept(int listener, struct flow_link **links, unsigned most);
/** Close strangers whose time is over, and free those that are closed: when
 * nobody points at them. */
void flow_links_tidy(struct flow_link **links);
/** Receive as much as there is, at most one message: 1 and link->head and
 * link->in are it, 0: nothing whole yet, negative: broken or closed
 * (-ECONNRESET), damaged on its way (-EBADMSG: not its digest), or -ENOMEM
 * with the error set. What ends say to prove
 * themselves is handled; of it FLOW_HELLO comes out, when who called has done
 * so. */
int flow_link_receive(struct flow_link *link, const struct flow_self *self);
/** Whether the next message is here already, all or the begin of it: then
 * receive it, for of what is here the socket says nothing more. */
bool flow_link_has(const struct flow_link *link);
void flow_link_close(struct flow_link *link, void *owner);

/** A report is some 10 us of work for the map (`bench/run --case flow-many`), a
 * word of its state to a node as much. So that all of them together leave it
 * time, nothing is said more often than so, times how many nodes there are. */
#define FLOW_SHARE_NS UINT64_C(20000)

/** Nodes beyond the first FLOW_FAN do not talk to the map of how they are doing
 * but to another node, which talks for FLOW_FAN others at most, as members are
 * numbered: so the map has as many to talk to, and each word goes over as many
 * nodes as the logarithm of their number to the base of that. */
#define FLOW_FAN 16
/** The position among members of who talks for the one at `position`; -1: the
 * map listens itself. It is lower, also by others' counts, so nothing goes in a
 * circle. */
static inline int64_t flow_tree_parent(uint64_t position)
{
    return position < FLOW_FAN ? -1 : (int64_t)(position / FLOW_FAN) - 1;
}
/** ... and those that it talks for begin at. */
static inline uint64_t flow_tree_children(uint64_t position)
{
    return FLOW_FAN * (position + 1);
}

/** What one node says, for somebody who passes it on: `bytes` (a multiple of 8)
 * as numbers that take few bytes where they are small, or little below 0. */
int flow_entry_put(struct poise_buf *out, uint64_t node, const void *words,
                   size_t bytes);
/** The entry at *at, which moves behind it: 1, and `words` (as they were put),
 * 0 at `end`, -EBADMSG if there is none (no error set), -ENOMEM. */
int flow_entry_get(const char **at, const char *end, uint64_t *node,
                   struct poise_buf *words);

/** A node that talks by another one also talks to the map itself, so many times
 * in the time after which it would be declared dead, and is answered: else
 * nobody would know whether their connection is cut ... */
#define FLOW_ITSELF_PARTS 2
/** ... as it is taken for when the map hears of it by others only, for so many
 * times that time. */
#define FLOW_ITSELF_TIMEOUTS 2

/** A map that was silent for so many times the time after which a node is
 * declared dead is gone: no result of this node will be accepted. One that was
 * stopped for a minute is not. */
#define FLOW_MAP_TIMEOUTS 24

/** What a newcomer learns of each number. A node that is gone never comes back;
 * one that is neither here nor gone may be on its way. */
struct flow_member {
    struct flow_endpoint at; /**< port 0: it is no member */
    uint16_t gone;           /**< it was declared dead */
};

/** What a node counts for each other one. */
struct flow_tally {
    uint32_t hits, misses;   /**< its blocks that came in time, and others */
    uint64_t sent, received; /**< messages to it and from it */
};

/** What a node reports to the map. */
struct flow_report {
    uint64_t turn;      /**< counts those of this node: an older one may come
                             later, by another way */
    uint64_t map;       /**< the map's turn */
    uint64_t results;   /**< that were sent to that map before: they may come
                             later, by another way */
    uint64_t messages;  /**< that it counted, to and from all others: tallies of
                             some may not have come */
    int64_t oldest;     /**< version of its oldest task that can go on */
    int64_t line;       /**< up to the line asked for all is done, results were
                             sent, copies came: that line, else -1 */
    int64_t missed;     /**< a line that it was told of too late, else -1 */
    int64_t forgot;     /**< greatest version for which blocks were needed that
                             are freed: no line can be before it */
    int64_t known_line; /**< what the map said of it last */
    uint64_t copy_ns;   /**< processor time spent on copies */
    uint32_t done;      /**< all its part of all versions is */
    uint32_t stuck;     /**< nothing goes on until something comes */
    uint32_t throttled;
    uint64_t epoch;
    uint64_t probe;                  /**< the last one that came */
    struct poise_flow_address waits; /**< when stuck */
    struct poise_flow_node_stats stats;
};
/** ... then for each file a struct flow_file_report, and for each other node
 * whose tally is another one than was told: */
struct flow_tally_of {
    uint64_t peer;
    struct flow_tally tally;
};
/** Of each file: */
struct flow_file_report {
    int64_t low;         /**< all own blocks below are done */
    uint64_t blocks;     /**< computed of the newest segment that was begun */
    uint64_t compute_ns; /**< for them */
    int64_t segment;     /**< its first version */
    uint64_t blocks_before, before_ns; /**< the same of the one before it */
};

/** How to reach a map; `turn` counts those that took over. */
struct flow_contact {
    unsigned char secret[FLOW_SECRET_BYTES];
    uint64_t turn;
    struct flow_endpoint at;
};
/** One line of text, with its newline, and back: 0 or -ENODATA. */
int flow_contact_text(const struct flow_contact *call, struct poise_buf *out);
int flow_contact_parse(const char *text, struct flow_contact *out);
/** FILE.map: written by the map, looked at by nodes without one; nobody else
 * may read it. 0 or negative; reading sets no error. */
int flow_contact_write(const char *log, const struct flow_contact *call);
int flow_contact_read(const char *log, struct flow_contact *out);
void flow_contact_remove(const char *log);

#endif
