/*
 * Shared inside room remote/tunnel.
 *
 * tunnel.c holds everything together and waits; link.c is one link to another
 * end: it speaks through the wire, over a socket of room remote/link; streams.c
 * has its connections, and connection.c carries one of them for a user;
 * pending.c is the budget of those who have not proved who they are; caches.c
 * keeps those of each other end apart; page.c serves the page of figures. One
 * thread does it all, nothing blocks. Layout of the messages: docs/tunnel.md.
 */
#ifndef POISE_REMOTE_TUNNEL_INTERNAL_H
#define POISE_REMOTE_TUNNEL_INTERNAL_H

#include <poise/store.h>
#include <poise/tunnel.h>

#include "remote/common/common.h"
#include "remote/link/link.h"

#include <poll.h>

enum {
    TUNNEL_VERSION = 1,
    TUNNEL_CONTROL = 0,                   /* the stream of messages */
    TUNNEL_STREAMS = POISE_DEDUP_STREAMS, /* others carry a connection each */
    TUNNEL_STREAMS_OLD = 256, /* of an end that does not say how many */
    TUNNEL_DRAINING = 1024,   /* connections of a link that need no stream */
    TUNNEL_LINKS = 64,        /* that are served at a time */
    /* Besides them, of those who did not prove who they are: in all, and of one
     * address. */
    TUNNEL_PENDING = 128,
    TUNNEL_PENDING_FROM = 32,
    TUNNEL_ACCEPTS = 16, /* in a turn: all of these are heard before others */
    /* Lines about them in so much time. */
    TUNNEL_STRANGERS_TOLD = 16,
    TUNNEL_DESCRIPTORS = 128,     /* that are for other things: the cache */
    TUNNEL_CACHE_DESCRIPTORS = 8, /* of each other end, where they are apart */
    TUNNEL_PAGES = 16,            /* requests for the page at a time */
    TUNNEL_WINDOW = 1 << 16, /* bytes of a connection that may come unasked */
    TUNNEL_WINDOW_MOST = 4 << 20,  /* ... and when it was taken so far */
    TUNNEL_BUDGET = 32 << 20,      /* of all connections of a link */
    TUNNEL_HELD_MOST = 256 << 20,  /* of all links, that users did not read */
    TUNNEL_UNREAD_MOST = 32 << 20, /* of a link, that the other end did not */
};
#define TUNNEL_STRANGERS_NS UINT64_C(10000000000)

enum tunnel_message {
    TUNNEL_LIMITS = 1,
    TUNNEL_OPEN,
    TUNNEL_CREDIT,
    TUNNEL_RESET,
};

/* ---- route.c ------------------------------------------------------------ */

struct tunnel;

/** How this end cuts what connections to a target carry. */
struct tunnel_route {
    char *target; /* owned: as remote_name_put says it; NULL: any */
    const struct poise_dedup_method *method;
    struct poise_dedup_cut_options cut;
    bool samples;            /* it is to be chosen */
    struct poise_buf sample; /* by what came so far */
};
/** Those that the options name, and the usual one. */
int tunnel_routes_create(struct tunnel *tunnel);
void tunnel_routes_free(struct tunnel *tunnel);
/** For a target: that with its name, or the last one for any, or gear. */
struct tunnel_route *tunnel_route_of(struct tunnel *tunnel, const char *target,
                                     size_t len);
/** Add data that a connection carried. When there is enough, choose. */
int tunnel_route_sample(struct tunnel_route *route, const void *data,
                        size_t len);

/* ---- connection.c ------------------------------------------------------- */

struct tunnel_link;

/** A connection of a user, at one of the two ends. */
struct tunnel_conn {
    struct tunnel_link *link;
    uint32_t stream;
    uint64_t id; /* of its kind never used again on this link */
    int fd;      /* -1: it is gone, what comes for it is dropped */
    int slot;    /* among those that are waited for; -1: none */
    bool can_read, can_write;
    bool is_new; /* to be connected to its target, NULL: which is not allowed */
    bool connecting;
    const struct remote_target *target;
    const char *refusal; /* why there is none; NULL: it is not allowed */
    unsigned tried;      /* addresses of it */

    /* To the other end. */
    bool sent_end;
    uint64_t sent_at, credit;
    struct tunnel_route *route;
    struct poise_dedup_segmenter *segmenter; /* what it holds back */
    bool early;                              /* made before it was chosen how */
    size_t held;                             /* bytes put into it */
    bool drained;                            /* nothing more was there */
    uint64_t read_ns;
    uint64_t recent; /* bytes of late */

    /* From the other end. */
    bool received_end, shut, reset;
    bool too_much; /* came for all of them: this one has to go */
    struct poise_dedup_joiner joined;
    struct poise_buf out;
    size_t taken;     /* of out */
    uint64_t granted; /* bytes that may come still */
    uint64_t exposed; /* these, and those of out */
};

/** A connection on a stream that is free; takes `fd` if it succeeds. */
int tunnel_conn_create(struct tunnel_link *link, uint32_t stream, uint64_t id,
                       int fd, struct tunnel_conn **out);
/** Free it, with its socket closed hard if it is not done. It leaves
 * link->conns. */
void tunnel_conn_destroy(struct tunnel_conn *conn);
/** Begin, or go on, to connect it to its target. */
int tunnel_conn_connect(struct tunnel_conn *conn);
/** What it waits for, as in poll. */
short tunnel_conn_events(const struct tunnel_conn *conn);
/** Hand on what came, and its end. */
int tunnel_conn_write(struct tunnel_conn *conn);
/** Send a portion of up to `most` bytes. */
int tunnel_conn_read(struct tunnel_conn *conn, size_t most);
/** When what is held back is to go: 0 for never. */
uint64_t tunnel_conn_due(const struct tunnel_conn *conn);
/** Hold nothing back. */
int tunnel_conn_flush(struct tunnel_conn *conn);
/** What came for it; called by the wire. */
int tunnel_conn_take(struct tunnel_conn *conn,
                     const struct poise_dedup_piece *piece);
/** Whether both directions are over and handed on. */
bool tunnel_conn_is_done(const struct tunnel_conn *conn);
/** It failed here, or there if `reset`: say so, and let go. `why` is for the
 * user at the other end, or NULL. */
int tunnel_conn_abort(struct tunnel_conn *conn, const char *why);

/* ---- streams.c ---------------------------------------------------------- */

/** Once the link runs. */
int tunnel_streams_create(struct tunnel_link *link);
/** Its number is above those before, its stream free. */
int tunnel_streams_add(struct tunnel_conn *conn);
void tunnel_streams_remove(struct tunnel_conn *conn);
/** The connection with this number, or NULL. */
struct tunnel_conn *tunnel_streams_find(const struct tunnel_link *link,
                                        uint64_t id);
/** One of its directions ended: if it was the last, its stream is free. */
void tunnel_streams_release(struct tunnel_conn *conn);
/** A stream that is free and rested, or 0. */
uint32_t tunnel_streams_next(struct tunnel_link *link);

/* ---- pending.c ---------------------------------------------------------- */

/** A link was accepted: if it is one too many, another one has to go. */
void tunnel_pending_admit(struct tunnel *tunnel,
                          const struct tunnel_link *link);
/** Whether more links run than may. */
bool tunnel_has_too_many_links(const struct tunnel *tunnel);
/** Report the last error, of one who did not prove who he is; not each, if they
 * are many. */
void tunnel_stranger_problem(struct tunnel *tunnel);
/** Report how many were not reported. */
void tunnel_strangers_tell(struct tunnel *tunnel);

/* ---- caches.c ----------------------------------------------------------- */

/** The cache for one other end, or for all. */
struct tunnel_cache {
    struct tunnel_cache *next; /* that was taken before */
    char part[REMOTE_PART_BYTES];
    struct poise_dedup_store *store;
    unsigned links;  /* that use it */
    bool is_changed; /* since it was flushed */
};

/** Open what is known to be needed: it is said now what is wrong with it. */
int tunnel_caches_open(struct tunnel *tunnel);
/** The cache of a link whose other end has proved who it is: link->cache,
 * opened if need be. */
int tunnel_cache_take(struct tunnel_link *link);
/** The link's peer is gone. */
void tunnel_cache_put(struct tunnel_link *link);
/** What is new in them is to outlive this process. */
void tunnel_caches_save(struct tunnel *tunnel);
/** Add those that are open. */
void tunnel_caches_count(const struct tunnel *tunnel,
                         struct poise_remote_tunnel_stats *stats);
/** How many descriptors they may take beside TUNNEL_DESCRIPTORS. */
unsigned tunnel_caches_descriptors(const struct tunnel *tunnel);
void tunnel_caches_close(struct tunnel *tunnel);

/* ---- link.c ------------------------------------------------------------- */

/** A link to another end. */
struct tunnel_link {
    struct tunnel *tunnel;
    struct tunnel_link *next;
    char *name; /* of the other end, in words */
    unsigned char from[REMOTE_SOURCE_BYTES];
    struct remote_link wire; /* what carries it */
    bool opens;              /* this end opens connections */
    bool lost;               /* to be freed */
    bool refused;            /* to be lost, when the other end was told why */
    int slot;
    bool can_read, can_write;
    bool more; /* bytes may be there that poll does not see */
    uint64_t deadline_ns;

    struct tunnel_cache *cache; /* once it runs */
    struct poise_dedup_peer *peer;
    bool met, dirty;
    size_t chunk;        /* bytes that are read at a time */
    uint64_t decayed_ns; /* what was `recent` */
    struct poise_buf control, coming;
    struct poise_dedup_joiner joined;
    uint64_t control_at;

    struct tunnel_conn **conns;   /* [count] of [cap] */
    struct tunnel_conn **streams; /* [TUNNEL_STREAMS] */
    unsigned count, cap, draining;
    uint32_t stream_end, last_stream; /* all are below; of the last OPEN */
    uint64_t ids;
    uint64_t window;  /* of the other end; 0: it did not say yet */
    uint64_t exposed; /* of all connections */
    struct poise_dedup_segmenter *spare; /* holds nothing */
    struct tunnel_conn *feeding;
};

/** Over a connected socket, or over one to `tunnel->via` that is to be made
 * (-1). Takes `fd` if it succeeds. */
int tunnel_link_create(struct tunnel *tunnel, int fd, struct tunnel_link **out);
void tunnel_link_destroy(struct tunnel_link *link);
short tunnel_link_events(const struct tunnel_link *link);
/** When it has to be looked at again whatever happens: 0 for never. */
uint64_t tunnel_link_due(const struct tunnel_link *link);
/** Do what can be done; negative: the link is lost. */
int tunnel_link_turn(struct tunnel_link *link);
/** Whether the link takes more: it has nothing left to write. */
bool tunnel_link_has_room(const struct tunnel_link *link);
/** Whether the link is there and connections can be opened. */
bool tunnel_link_is_up(const struct tunnel_link *link);
/** Carry an accepted connection to `target`; takes `fd` if it succeeds.
 * -EUSERS: there are too many. */
int tunnel_link_open(struct tunnel_link *link, int fd, const char *target);
/** Append a message; `text` may be NULL. */
int tunnel_link_send(struct tunnel_link *link, enum tunnel_message kind,
                     uint64_t first, uint64_t second, const char *text);
/** Hand the messages so far to the wire. */
int tunnel_link_hand_over(struct tunnel_link *link);
/** Send a piece of the connection `link->feeding`; a segmenter's `emit`. */
int tunnel_link_emit(const struct poise_dedup_piece *piece, void *arg);

/* ---- page.c ------------------------------------------------------------- */

struct tunnel_page {
    struct tunnel_page *next;
    int fd, slot;
    bool can_read, can_write, over;
    uint64_t deadline_ns;
    struct poise_buf in, out;
    size_t taken;
};
/** Takes `fd`. */
int tunnel_page_create(struct tunnel *tunnel, int fd);
void tunnel_page_destroy(struct tunnel_page *page);
void tunnel_page_turn(struct tunnel *tunnel, struct tunnel_page *page);

/* ---- tunnel.c ----------------------------------------------------------- */

enum tunnel_listener_kind { TUNNEL_FORWARDS, TUNNEL_SERVES, TUNNEL_METRICS };

struct tunnel_listener {
    enum tunnel_listener_kind kind;
    int fd, slot;
    bool can_read;
    uint64_t pause_ns; /* until then it accepts nothing */
    bool is_refusing;  /* the last one could not be let in */
    char *target;      /* of what it forwards; owned */
};

struct tunnel {
    struct poise_remote_tunnel_options options;
    struct tunnel_cache *caches; /* that was taken last first */
    struct tunnel_listener *listeners;
    size_t listener_count;
    struct remote_target *allowed;
    size_t allowed_count;
    struct tunnel_route default_route, *routes;
    size_t route_count;
    struct remote_keys *serve_keys, *via_keys;
    struct remote_name via_name;
    struct remote_target via; /* resolved again for each attempt */
    struct tunnel_link *links;
    struct tunnel_link *via_link; /* the one to `via`, or NULL */
    uint64_t retry_ns, backoff_ns;
    struct tunnel_page *pages;
    struct poise_buf fds;               /* struct pollfd */
    unsigned char *buffer;              /* TUNNEL_BUFFER bytes, for reads */
    uint64_t window_most;               /* TUNNEL_WINDOW_MOST */
    uint64_t held;                      /* bytes that users did not read yet */
    uint64_t held_most;                 /* TUNNEL_HELD_MOST */
    unsigned links_most, draining_most; /* TUNNEL_LINKS, TUNNEL_DRAINING */
    uint64_t unread_most;               /* TUNNEL_UNREAD_MOST */
    unsigned conns, conns_most;         /* of all links; by RLIMIT_NOFILE */
    uint64_t strangers_ns;              /* until then these are counted: */
    unsigned strangers_told, strangers_silent;
    uint64_t now_ns, start_ns, saved_ns;
    struct poise_remote_tunnel_stats stats; /* of what is over */
};
enum { TUNNEL_BUFFER = 1 << 17 };

/** Open all that listens; connect. */
int tunnel_create(const struct poise_remote_tunnel_options *options,
                  struct tunnel **out);
void tunnel_destroy(struct tunnel *tunnel);
/** Wait for at most so long, do what can be done. Links that break are no
 * errors. */
int tunnel_turn(struct tunnel *tunnel, uint64_t most_ns);
struct poise_remote_tunnel_stats tunnel_stats(const struct tunnel *tunnel);
/** Report the last error to the user. */
void tunnel_problem(const struct tunnel *tunnel);
void tunnel_log(const struct tunnel *tunnel, const char *fmt, ...)
    POISE_PRINTF(2, 3);

#endif
