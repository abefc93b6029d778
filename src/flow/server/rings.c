/*
 * A node's process: rings to and from other nodes of this host. What blocks
 * take goes through them, written by the thread that made a block, or needs it,
 * and read by one that computes, between two tasks; all else over sockets. Both
 * may overtake each other: a block is right whenever it comes, and who asked
 * for one is known until it is sent.
 *
 * Who computes long tasks, or sleeps, does not look: then a message over the
 * socket says that there is something, and the thread of the sockets reads it.
 * That one looks, too, now and then, as long as others said they would: a short
 * task can be followed by a long one.
 */
#include "internal.h"

#include <poise/wait.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ------------------------------------------------------------ */

/* Both listen where the map reaches them: on one address, they are on one
 * host. */
bool flow_server_is_near(const struct flow_server *server, uint16_t to)
{
    return memcmp(server->at[to].ip, server->self.at.ip,
                  sizeof server->self.at.ip) == 0;
}

static int offer(struct flow_server *server, uint16_t to)
{
    struct flow_ring_offer what;
    server->rings[to].tried = true;
    if (server->node->options->sockets || !flow_server_is_near(server, to) ||
        flow_ring_create(&server->rings[to].out, &what) < 0) {
        return 0;
    }
    return flow_server_send(server, to,
                            flow_item_create(FLOW_RING, &what, sizeof what));
}

int flow_server_ring_put(struct flow_server *server, uint16_t to,
                         struct flow_head *head, const void *data)
{
    struct flow_ring_to *ring = &server->rings[to];
    if (!server->alive[to]) {
        return 0;
    }
    if (!ring->tried) {
        int code = offer(server, to);
        if (code < 0) {
            return code;
        }
    }
    head->epoch = (uint16_t)server->epoch;
    if (!ring->out || !flow_ring_put(ring->out, head, data) ||
        flow_ring_is_over(ring->out)) {
        return 0; /* to come twice does no harm */
    }
    server->tally[to].sent++;
    flow_server_count(server, head);
    if (flow_ring_knocks(ring->out)) {
        int code =
            flow_server_send(server, to, flow_item_create(FLOW_KNOCK, NULL, 0));
        return code < 0 ? code : 1;
    }
    return 1;
}

/* ---- reading ------------------------------------------------------------ */

/* What rings say of `looks` is what it is. Held for a few stores. */
static void guard(struct flow_server *server)
{
    while (atomic_exchange(&server->looks_guard, true)) {
        poise_pause();
    }
}
static void unguard(struct flow_server *server)
{
    atomic_store(&server->looks_guard, false);
}

static int ring_read(struct flow_server *server, struct flow_ring_from *from)
{
    struct flow_link link = {.fd = -1, .peer = from->peer};
    int code = 0;
    while (code == 0 && !atomic_load(&from->closed) &&
           (code = flow_ring_take(from->ring, &link.head, &link.in)) > 0) {
        if (link.head.kind != FLOW_FETCH && link.head.kind != FLOW_BLOCK) {
            code = -EPROTO;
        } else {
            code = flow_server_receive(server, &link);
        }
        free(link.in);
        link.in = NULL;
    }
    if (code == -EPROTO) {
        atomic_store(&from->closed, true);
        return poise_error_set(EPROTO, "serve node", NULL,
                               "what it wrote into shared memory is no "
                               "message");
    }
    return code;
}

/* What lies in it is still right; what is written later, its writer sees that
 * nobody takes it. */
static int ring_end(struct flow_server *server, struct flow_ring_from *from)
{
    int code = 0;
    if (!atomic_load(&from->closed)) {
        flow_ring_end(from->ring);
        code = ring_read(server, from);
        atomic_store(&from->closed, true);
    }
    return code;
}

int flow_server_ring_broke(struct flow_server *server,
                           const struct flow_link *link)
{
    int code = 0;
    if (link == server->out[link->peer]) {
        flow_ring_close(server->rings[link->peer].out);
        server->rings[link->peer] = (struct flow_ring_to){NULL, false};
        return 0;
    }
    for (struct flow_ring_from *from = atomic_load(&server->ring_list);
         code == 0 && from; from = from->next) {
        code = from->link == link ? ring_end(server, from) : 0;
    }
    return code;
}

int flow_server_ring_offered(struct flow_server *server,
                             const struct flow_link *link)
{
    struct flow_ring_offer what;
    struct flow_ring_from *from;
    if (!link->in || link->head.len != sizeof what) {
        return poise_error_set(EPROTO, "serve node", NULL,
                               "it offers memory that cannot be");
    }
    memcpy(&what, flow_made_data(link->in), sizeof what);
    from = poise_alloc(1, sizeof *from);
    if (!from) {
        return -ENOMEM;
    }
    if (flow_ring_open(&what, &from->ring) < 0) {
        free(from);
        return 0; /* it will see that nobody opened it */
    }
    from->peer = link->peer;
    from->link = link;
    from->next = atomic_load(&server->ring_list);
    guard(server);
    flow_ring_look(from->ring, atomic_load(&server->looks));
    atomic_store(&server->ring_list, from);
    unguard(server);
    return 0;
}

bool flow_server_ring_due(struct flow_net *net)
{
    const struct flow_server *server = (const struct flow_server *)net;
    for (struct flow_ring_from *from = atomic_load(&server->ring_list); from;
         from = from->next) {
        if (flow_ring_has(from->ring) && !atomic_load(&from->closed)) {
            return true;
        }
    }
    return false;
}

int flow_server_ring_receive(struct flow_net *net)
{
    struct flow_server *server = (struct flow_server *)net;
    int code = 0;
    for (struct flow_ring_from *from = atomic_load(&server->ring_list);
         code == 0 && from; from = from->next) {
        code = ring_read(server, from);
    }
    return code;
}

bool flow_server_ring_look(struct flow_net *net, bool looks)
{
    struct flow_server *server = (struct flow_server *)net;
    if (atomic_load(&server->looks) != looks) {
        guard(server);
        atomic_store(&server->looks, looks);
        for (struct flow_ring_from *from = atomic_load(&server->ring_list);
             from; from = from->next) {
            flow_ring_look(from->ring, looks);
        }
        unguard(server);
    }
    return atomic_load(&server->ring_list) != NULL;
}

void flow_server_rings_free(struct flow_server *server)
{
    struct flow_ring_from *from = atomic_load(&server->ring_list), *next;
    for (unsigned n = 0; server->rings && n < POISE_FLOW_NODES_MOST; n++) {
        flow_ring_close(server->rings[n].out);
    }
    for (; from; from = next) {
        next = from->next;
        flow_ring_close(from->ring);
        free(from);
    }
    free(server->rings);
}
