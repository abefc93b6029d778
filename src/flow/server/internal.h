/* A node's process: what its one thread that sends and receives knows. */
#ifndef POISE_FLOW_SERVER_INTERNAL_H
#define POISE_FLOW_SERVER_INTERNAL_H

#include "flow/link/ring.h"
#include "flow/node/state.h"
#include "flow/server/server.h"

#include <stdatomic.h>

/** A message of an epoch that this node has not heard of yet. */
struct flow_early {
    struct flow_early *next;
    struct flow_head head;
    uint16_t from;
    struct flow_made *in; /**< owned */
};

/** Memory shared with another node, for what goes there. */
struct flow_ring_to {
    struct flow_ring *out; /**< owned; NULL: none */
    bool tried;            /**< since the link to it was opened */
};
/** ... and for what comes from one. */
struct flow_ring_from {
    struct flow_ring_from *next; /**< of those made before */
    struct flow_ring *ring;      /**< owned */
    uint16_t peer;
    const struct flow_link *link; /**< over which it was offered */
    atomic_bool closed; /**< not looked at any more; freed at the end */
};

struct flow_server {
    struct flow_net net; /**< first */
    struct flow_node *node;
    int poll, wake, listener;
    int term;                /**< a descriptor that SIGTERM makes readable */
    struct flow_self self;   /**< its turn: of the map that it knows */
    struct flow_endpoint to; /**< where that is */
    struct flow_awake awake;
    uint64_t map_heard_ns;    /**< the link's when it was last looked at */
    uint64_t map_silent_from; /**< by awake */
    uint64_t looked_ns;       /**< when it looked for another map last */
    uint64_t orphan_ns;       /**< since then it has none; 0: it has */
    bool rests; /**< a link waits before its end is called again */
    /** Results that the map did not say it keeps: linked by next_output. */
    struct flow_block *unacknowledged, *unacknowledged_last;
    struct flow_link map;
    struct flow_link **out;   /**< [POISE_FLOW_NODES_MOST], to other nodes */
    struct flow_link *in;     /**< from other nodes */
    struct flow_endpoint *at; /**< [POISE_FLOW_NODES_MOST] */
    /** [POISE_FLOW_NODES_MOST] Nodes to which messages go. */
    bool *alive;
    /** [POISE_FLOW_NODES_MOST] Nodes that have a part in what all nodes compute
     * for themselves: as the map says, not as newcomers do, which may be
     * quicker.
     */
    bool *member;
    bool *gone;     /**< [POISE_FLOW_NODES_MOST] Nodes declared dead. */
    unsigned count; /**< nodes that there ever were */
    /** Nodes to whom something may be to be sent, each once: [posted_count],
     * changed by who has the node, shortened by the thread of the sockets. */
    uint16_t *posted; /**< [POISE_FLOW_NODES_MOST] */
    unsigned posted_count;
    bool *is_posted;          /**< [POISE_FLOW_NODES_MOST] */
    struct flow_tally *tally; /**< [POISE_FLOW_NODES_MOST], by the other */
    struct flow_tally *told;  /**< the same, as the map knows them */
    struct flow_file_report *files;    /**< [file_count] */
    uint64_t probe;                    /**< the map's newest */
    uint64_t copies_sent, copies_kept; /**< since the last epoch began */
    uint64_t copies_bytes;             /**< of these, not known to be sent */
    uint32_t *owed; /**< [POISE_FLOW_NODES_MOST] copies that came of a node,
                         which was not told so yet, and of all nodes: */
    uint32_t owed_all;
    uint16_t keepers[FLOW_COPIES];
    unsigned keeper_count;
    uint32_t keepers_turn; /**< counts changes of them */
    /** What was said between nodes, as much work as so many bytes are, and how
     * much of that about copies. */
    uint64_t said, said_of_copies;
    uint64_t epoch;
    bool *handed; /**< [POISE_FLOW_NODES_MOST]: not awaited */
    struct flow_early *early, **early_end;
    struct flow_ring_to *rings; /**< [POISE_FLOW_NODES_MOST], by the other */
    _Atomic(struct flow_ring_from *) ring_list;
    atomic_bool looks;       /**< processors look at these */
    atomic_bool looks_guard; /**< somebody changes that, or the list */
    uint16_t parent; /**< who talks for this node; FLOW_NOBODY: itself */
    uint16_t children[FLOW_FAN]; /**< those that it talks for */
    unsigned child_count;
    struct poise_buf relayed; /**< what they said: entries */
    uint64_t relayed_ns;      /**< when the first of these came */
    uint64_t itself_ns;       /**< when it talked itself last */
    uint64_t report_turn;     /**< of the last report */
    uint64_t results;         /**< that were sent to this map */
    bool woken;               /**< the wake descriptor is written */
    atomic_bool due;          /**< a report is */
    atomic_bool rested;       /**< ... but not soon */
    bool failed;              /**< the map was informed */
    bool leaves;              /**< SIGTERM came, and the map knows */
    bool ended;
    uint64_t reported_ns;
};

/** Fill server->net: how the node reaches others (net.c). */
void flow_server_net_open(struct flow_server *server);
/** Put a message into the queue of a node, or of the map (FLOW_NOBODY), and
 * wake the server. The lock is held. Takes over the item; NULL: -ENOMEM. */
int flow_server_send(struct flow_server *server, uint16_t to,
                     struct flow_item *item);
/** The same, of what is no message between nodes: nobody counts it. */
int flow_server_post(struct flow_server *server, uint16_t to,
                     struct flow_item *item);
/** A message that carries a block, which it references. NULL: no memory. */
struct flow_item *flow_server_item(enum flow_kind kind,
                                   struct flow_block *block);
/** Handle what came on a link. The lock is held. 0 or negative. */
int flow_server_receive(struct flow_server *server, struct flow_link *link);
/** The results that may not have come to the map once more, to another one. */
int flow_server_resend_results(struct flow_server *server);
/** Tell the map of blocks that have been computed for long. The lock is held.
 */
int flow_watch_long(struct flow_server *server);
/** Results go to the map; so does a report, if one is due. */
int flow_server_report(struct flow_server *server);
/* Whom this node talks to (relay.c). The lock is held. */

/** Members are others: find out who talks for this node, and for whom it does.
 */
void flow_server_tree(struct flow_server *server);
/** All that the map knows of what this node counted is to be said anew: some of
 * it may have been lost on its way. */
void flow_server_tell_anew(struct flow_server *server);
/** Reports that are not due by time are at least so far apart. */
uint64_t flow_server_least_ns(const struct flow_server *server);
/** The next report is to follow so long after the last one. */
uint64_t flow_server_period_ns(const struct flow_server *server);
/** When what others said is to go on, if this node has nothing to say before;
 * and let it. */
int flow_server_relay_ms(const struct flow_server *server);
int flow_server_relay(struct flow_server *server);
/** Add what this node has to say, and send it with what others said to whom it
 * talks to. */
int flow_server_say(struct flow_server *server, const struct poise_buf *report);
/** A child says how it is, and others by it. */
int flow_server_relay_report(struct flow_server *server,
                             const struct flow_link *link);
/** The map's word came from another node. */
int flow_server_relay_state(struct flow_server *server,
                            const struct flow_link *link);
/** ... or from itself: to the children. */
int flow_server_pass_state(struct flow_server *server,
                           const struct flow_head *head);
/** The map's word (receive.c). */
int flow_server_state(struct flow_server *server, const struct flow_head *head);

/** Look again for all blocks that `peer` (FLOW_NOBODY: anybody) was asked for.
 */
int flow_server_reseek(struct flow_server *server, uint16_t peer);

/** A node is declared dead: forget it, forward what was kept for it, and take
 * over what falls to this one (recover.c). `keep`: those who may keep some of
 * that, as many as the head says. The lock is held. */
int flow_server_epoch(struct flow_server *server, const struct flow_head *head,
                      const uint16_t *keep);
/** Somebody handed over all that it kept. */
int flow_server_handed(struct flow_server *server, uint16_t from);
/** The map wants a line, with copies on those nodes. */
int flow_server_line(struct flow_server *server, const struct flow_head *head,
                     const uint16_t by[FLOW_COPIES]);
/** Tell others that their copies came. */
int flow_server_copied(struct flow_server *server);
/** Whether this node has done its part of it. */
bool flow_server_line_is_complete(const struct flow_server *server);
/** Handle what was put off until this epoch. */
int flow_server_early(struct flow_server *server);
/** Whether a node is on this host, too. */
bool flow_server_is_near(const struct flow_server *server, uint16_t to);
/** Write a message into the memory that is shared with a node: 1; 0: there is
 * none, or no room; negative. The node is had. */
int flow_server_ring_put(struct flow_server *server, uint16_t to,
                         struct flow_head *head, const void *data);
/** A link to or from a node broke. 0 or negative. */
int flow_server_ring_broke(struct flow_server *server,
                           const struct flow_link *link);
/** A node offers memory. */
int flow_server_ring_offered(struct flow_server *server,
                             const struct flow_link *link);
/** Of struct flow_net. */
bool flow_server_ring_due(struct flow_net *net);
int flow_server_ring_receive(struct flow_net *net);
bool flow_server_ring_look(struct flow_net *net, bool looks);
void flow_server_rings_free(struct flow_server *server);
/** Count a message between nodes. */
void flow_server_count(struct flow_server *server,
                       const struct flow_head *head);
/** A newcomer. The lock is held. */
int flow_server_join(struct flow_server *server, const struct flow_head *head,
                     const struct flow_endpoint *at);
/** Know of a node, by where it listens. */
int flow_server_member(struct flow_server *server, unsigned id,
                       const struct flow_endpoint *at);

#endif
