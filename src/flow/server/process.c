/*
 * A node's process: processors compute, this thread sends and receives. Each
 * pair of nodes has two connections, one for what each of them sends.
 *
 * Any thread that holds the node's lock may put a message into a link's queue;
 * only this thread moves it to `sending` and touches the socket. No message is
 * left lying: `woken` and the wake descriptor change together, under the lock,
 * and after each wake-up all queues are looked at, so a message that is queued
 * behind that look finds `woken` false and writes the descriptor.
 */
#include "internal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define EVENTS_MOST 64
#define LOST_NS UINT64_C(5000000000)
#define ORPHAN_NS UINT64_C(60000000000)
/** Where a map is silent, look whether there is another one so often. */
#define CONTACT_NS UINT64_C(200000000)
/** Without a map, look for another one so often. */
#define LOOK_MS 20
/* Where processors said that they look at rings, the thread of the sockets does
 * so, too, after so long. */
#define RING_MS 1
/* So long after a link broke its end is not called again: a dead process is
 * refused at once, and the map takes longer to say that it is dead. */
#define AGAIN_NS (LOOK_MS * UINT64_C(1000000))

/* ---- links -------------------------------------------------------------- */

static void poll_for(struct flow_server *server, struct flow_link *link,
                     int how, bool out)
{
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0),
                                .data.ptr = link};
    epoll_ctl(server->poll, how, link->fd, &event);
    link->polled_out = out;
}

static int link_open(struct flow_server *server, struct flow_link *link,
                     const struct flow_endpoint *to)
{
    server->self.began = server->member[server->node->id];
    int code = flow_link_greet(link, &server->self);
    if (code == 0) {
        code = flow_connect(to, &link->fd);
    }
    if (code < 0) {
        return code;
    }
    link->known = true;
    link->heard_ns = poise_clock_ns();
    poll_for(server, link, EPOLL_CTL_ADD, true);
    return 0;
}

int flow_server_reseek(struct flow_server *server, uint16_t peer)
{
    struct flow_node *node = server->node;
    int code = 0;
    struct flow_walk walk = {0};
    struct flow_block *block;
    while (code == 0 && (block = flow_walk_next(node, &walk))) {
        const struct flow_more *more = flow_more_of(block);
        struct flow_key key = flow_block_key(block);
        bool asked = flow_waiters(block) != NULL;
        for (uint32_t r = 0; r < more->reader_count; r++) {
            asked |= more->readers[r].asked;
        }
        if (asked &&
            (block->state == FLOW_UNSOUGHT || block->state == FLOW_REQUESTED) &&
            (peer == FLOW_NOBODY || flow_owner(node, &key) == peer)) {
            code = flow_block_become(node, block, FLOW_SOUGHT);
        }
    }
    return code;
}

/* A connection to or from a node broke; what was on its way is asked for
 * again, unless the map says that the node is gone. */
static void link_broke(struct flow_server *server, struct flow_link *link)
{
    flow_link_close(link, server->node);
    if (link == &server->map) {
        server->ended = !server->node->options->log;
        server->orphan_ns = poise_clock_ns();
        return;
    }
    link->broke_ns = poise_clock_ns();
    flow_server_tell_anew(server); /* a report may be lost */
    int code = link->known ? flow_server_ring_broke(server, link) : 0;
    if (link->known && server->alive[link->peer]) {
        code = code == 0 ? flow_server_reseek(server, link->peer) : code;
        code = code == 0 ? flow_node_settle(server->node) : code;
    }
    if (code < 0) {
        flow_node_fail(server->node, code);
    }
}

static int link_accept(struct flow_server *server)
{
    const struct poise_flow_options *options = server->node->options;
    unsigned most =
        options->nodes + options->spares + options->join + FLOW_STRANGERS_MOST;
    int code = 1;
    for (int i = 0; code > 0 && i < FLOW_ACCEPTS_MOST; i++) {
        code = flow_link_accept(server->listener, &server->in, most);
        if (code > 0) {
            poll_for(server, server->in, EPOLL_CTL_ADD, false);
        }
    }
    return code < 0 ? code : 0;
}

/* A message came: handle it, and those that came with it. The node is had.
 * `count`: of this turn. */
static int link_handle(struct flow_server *server, struct flow_link *link,
                       unsigned *count)
{
    int code = 0, more;
    server->node->now_ns = poise_clock_ns();
    do {
        /* Orders of the newest map that it knows, and of no older one. */
        bool older = link == &server->map && link->turn < server->self.turn;
        code = older ? 0 : flow_server_receive(server, link);
        free(link->in);
        link->in = NULL;
        link->enough = ++*count >= EVENTS_MOST;
        more = code == 0 && flow_link_has(link)
                   ? flow_link_receive(link, &server->self)
                   : 0;
    } while (more > 0);
    if (more == -ENOMEM) {
        return more;
    }
    if (more < 0) {
        link_broke(server, link);
    }
    return code == 0 ? flow_node_settle(server->node) : code;
}

/* What a child says goes on as it came (relay.c): nobody has to stop for it. */
static bool is_passed_on(const struct flow_server *server,
                         const struct flow_link *link)
{
    return link != &server->map && link->head.kind == FLOW_REPORT;
}

/* All messages that are there, or some of them: others have their turn. */
static int link_read(struct flow_server *server, struct flow_link *link)
{
    unsigned count = 0;
    int code = 0;
    link->enough = false;
    while (code == 0 && (count < EVENTS_MOST || flow_link_has(link)) &&
           link->fd >= 0) {
        int came = flow_link_receive(link, &server->self);
        if (came == 0) {
            return 0;
        }
        if (came > 0 && is_passed_on(server, link)) {
            code = flow_server_relay_report(server, link);
            free(link->in);
            link->in = NULL;
            link->enough = ++count >= EVENTS_MOST;
        } else {
            flow_node_lock(server->node);
            if (came > 0) {
                code = link_handle(server, link, &count);
            } else if (came == -ENOMEM) {
                code = came;
            } else {
                link_broke(server, link);
            }
            flow_node_unlock(server->node);
        }
        if (link->drained && !flow_link_has(link)) {
            return code;
        }
    }
    return code;
}

static int link_flush(struct flow_server *server, struct flow_link *link,
                      const struct flow_endpoint *to)
{
    struct flow_queue sent = {0};
    struct flow_node *node = server->node;
    /* Queues are added to by who has the node: its mutex is enough here. */
    pthread_mutex_lock(&node->lock);
    if (link->queue.first) {
        if (link->sending.last) {
            link->sending.last->next = link->queue.first;
        } else {
            link->sending.first = link->queue.first;
        }
        link->sending.last = link->queue.last;
        link->queue = (struct flow_queue){0};
    }
    pthread_mutex_unlock(&node->lock);
    if (!link->sending.first && !flow_handshake_queue(link)) {
        return 0;
    }
    if (link->fd < 0 && link->broke_ns &&
        poise_clock_ns() - link->broke_ns < AGAIN_NS) {
        server->rests = true;
        return 0;
    }
    int code = link->fd < 0 ? link_open(server, link, to) : 0;
    int state = code == 0 ? flow_link_send(link, &sent) : -ECONNRESET;
    flow_node_lock(node);
    flow_queue_clear(&sent, node);
    if (state < 0) {
        link_broke(server, link);
    } else if (link->polled_out != (state == 0)) {
        poll_for(server, link, EPOLL_CTL_MOD, state == 0);
    }
    flow_node_unlock(node);
    return code == -ENOMEM ? code : 0;
}

static bool has_to_send(struct flow_link *link)
{
    return link->queue.first || link->sending.first ||
           flow_handshake_queue(link);
}

/* There may be a link to each of very many nodes: only those are looked at for
 * which there is something. */
static int flush_all(struct flow_server *server)
{
    unsigned kept = 0;
    server->rests = false;
    int code =
        server->orphan_ns ? 0 : link_flush(server, &server->map, &server->to);
    pthread_mutex_lock(&server->node->lock);
    unsigned count = server->posted_count;
    pthread_mutex_unlock(&server->node->lock);
    for (unsigned i = 0; code == 0 && i < count; i++) {
        unsigned n = server->posted[i];
        if (server->alive[n]) {
            code = link_flush(server, server->out[n], &server->at[n]);
        }
    }
    pthread_mutex_lock(&server->node->lock);
    for (unsigned i = 0; i < server->posted_count; i++) {
        uint16_t n = server->posted[i];
        server->is_posted[n] = server->alive[n] && has_to_send(server->out[n]);
        server->posted[kept] = n;
        kept += server->is_posted[n];
    }
    server->posted_count = kept;
    pthread_mutex_unlock(&server->node->lock);
    return code;
}

/* ---- the loop ----------------------------------------------------------- */

static int until_report_ms(const struct flow_server *server)
{
    uint64_t now = poise_clock_ns();
    if (server->orphan_ns || !server->member[server->node->id]) {
        return LOOK_MS; /* nobody waits for a report */
    }
    uint64_t at = server->reported_ns + flow_server_period_ns(server);
    return at <= now ? 0 : (int)((at - now + 999999) / 1000000);
}

/* SIGTERM: what this node has is handed over, if the map lives and there is
 * time for it; the map ends this node then. */
static int server_leave(struct flow_server *server)
{
    struct signalfd_siginfo info;
    if (read(server->term, &info, sizeof info) < 0) {
        return 0;
    }
    if (server->leaves || server->orphan_ns) {
        server->ended = true;
        return 0;
    }
    server->leaves = true;
    flow_node_lock(server->node);
    int code = flow_server_send(server, FLOW_NOBODY,
                                flow_item_create(FLOW_LEAVE, NULL, 0));
    flow_node_unlock(server->node);
    return code;
}

static int serve_event(struct flow_server *server, struct flow_link *link)
{
    if (link == (struct flow_link *)&server->listener) {
        return link_accept(server);
    }
    if (link == (struct flow_link *)&server->term) {
        return server_leave(server);
    }
    if (link == (struct flow_link *)&server->wake) {
        uint64_t count;
        pthread_mutex_lock(&server->node->lock);
        ssize_t got = read(server->wake, &count, sizeof count);
        (void)got;
        server->woken = false;
        pthread_mutex_unlock(&server->node->lock);
        return 0;
    }
    return link->fd >= 0 ? link_read(server, link) : 0;
}

/* Whether a map has taken over; whether to wait for one any longer. */
static int look_for_map(struct flow_server *server)
{
    const struct poise_flow_options *options = server->node->options;
    uint64_t now = poise_clock_ns();
    uint64_t lost = options->lost_ns ? options->lost_ns : LOST_NS;
    struct flow_contact call;
    lost *= FLOW_MAP_TIMEOUTS;
    flow_awake_look(&server->awake, lost / FLOW_AWAKE_LOOKS);
    if (server->ended) {
        return 0; /* without a log no other map comes */
    }
    if (!server->orphan_ns) {
        if (server->map_heard_ns != server->map.heard_ns) {
            server->map_heard_ns = server->map.heard_ns;
            server->map_silent_from = server->awake.ns;
        }
        if (server->member[server->node->id] &&
            server->awake.ns - server->map_silent_from > lost) {
            link_broke(server, &server->map);
        } else if (options->log && server->member[server->node->id] &&
                   server->awake.ns - server->map_silent_from >
                       lost / FLOW_MAP_TIMEOUTS &&
                   now - server->looked_ns > CONTACT_NS) {
            server->looked_ns = now;
            /* It may have been stopped, or cut off, and another one elected. */
            if (flow_contact_read(options->log, &call) == 0 &&
                call.turn > server->self.turn) {
                link_broke(server, &server->map);
            }
        }
        return 0;
    }
    if (flow_contact_read(options->log, &call) < 0 ||
        memcmp(call.secret, server->self.secret, sizeof call.secret) != 0 ||
        call.turn <= server->self.turn) {
        uint64_t most = options->orphan_ns ? options->orphan_ns : ORPHAN_NS;
        server->ended = now - server->orphan_ns > most;
        return 0;
    }
    server->self.turn = call.turn;
    flow_server_tell_anew(server);
    server->to = call.at;
    int code = link_open(server, &server->map, &server->to);
    if (code == 0) {
        server->orphan_ns = 0;
        server->failed = false;
        server->due = true;
        code = flow_server_resend_results(server);
    }
    return code == -ENOMEM ? code : 0; /* or that map died, too */
}

/* What processors left in rings, though they said that they look. */
static int rings_serve(struct flow_server *server)
{
    struct flow_net *net = &server->net;
    if (!net->due(net)) {
        return 0;
    }
    net->look(net, false);
    server->node->now_ns = poise_clock_ns();
    int code = net->receive(net);
    return code == 0 ? flow_node_settle(server->node) : code;
}

static void serve(struct flow_server *server)
{
    struct epoll_event events[EVENTS_MOST];
    while (!server->ended) {
        int wait_ms = until_report_ms(server);
        int relay_ms = flow_server_relay_ms(server);
        wait_ms = relay_ms < wait_ms ? relay_ms : wait_ms;
        wait_ms = server->rests && wait_ms > LOOK_MS ? LOOK_MS : wait_ms;
        if (wait_ms > RING_MS && atomic_load(&server->looks) &&
            atomic_load(&server->ring_list)) {
            wait_ms = RING_MS;
        }
        int count = epoll_wait(server->poll, events, EVENTS_MOST, wait_ms);
        int code = 0;
        for (int i = 0; code == 0 && i < count; i++) {
            code = serve_event(server, events[i].data.ptr);
        }
        flow_links_tidy(&server->in);
        flow_node_lock(server->node);
        code = code == 0 ? rings_serve(server) : code;
        code = code == 0 ? flow_server_copied(server) : code;
        code = code == 0 ? look_for_map(server) : code;
        if (code == 0 && until_report_ms(server) == 0) {
            code = flow_server_report(server);
        } else if (code == 0 && flow_server_relay_ms(server) == 0) {
            code = flow_server_relay(server);
        }
        if (code < 0) {
            flow_node_fail(server->node, code);
            flow_server_report(server);
        }
        struct flow_made *trash = flow_node_trash(server->node);
        flow_node_unlock(server->node);
        flow_trash_free(trash);
        if (flush_all(server) < 0) {
            break; /* not even memory to say so: the map sees the end */
        }
    }
}

static void *processor(void *arg)
{
    flow_node_work(arg);
    return NULL;
}

static void server_free(struct flow_server *server)
{
    struct flow_link *next;
    flow_link_close(&server->map, server->node);
    for (unsigned n = 0; server->out && n < POISE_FLOW_NODES_MOST; n++) {
        if (server->out[n]) {
            flow_link_close(server->out[n], server->node);
            free(server->out[n]);
        }
    }
    for (struct flow_link *link = server->in; link; link = next) {
        next = link->next;
        flow_link_close(link, server->node);
        free(link);
    }
    while (server->early) {
        struct flow_early *early = server->early;
        server->early = early->next;
        free(early->in);
        free(early);
    }
    close(server->poll);
    close(server->wake);
    close(server->term);
    close(server->listener);
    flow_node_destroy(server->node);
    flow_server_rings_free(server);
    free(server->out);
    free(server->at);
    free(server->alive);
    free(server->member);
    free(server->gone);
    free(server->handed);
    free(server->posted);
    free(server->is_posted);
    free(server->tally);
    free(server->told);
    free(server->owed);
    free(server->files);
    poise_buf_free(&server->relayed);
    free(server);
}

/* SIGTERM is read as a message; no thread of the process gets it otherwise. */
static int term_open(struct flow_server *server)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    errno = pthread_sigmask(SIG_BLOCK, &set, NULL);
    server->term =
        errno == 0 ? signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK) : -1;
    return server->term;
}

/* Where others reach this node: on the address by which it reaches the map. */
static int server_listen(struct flow_server *server,
                         const struct flow_contact *call)
{
    struct flow_self *self = &server->self;
    memcpy(self->secret, call->secret, sizeof self->secret);
    self->turn = call->turn;
    self->build = flow_build();
    self->job = flow_job_fingerprint(server->node->job);
    self->node = server->node->id;
    server->to = call->at;
    int code = flow_endpoint_route(&call->at, &self->at);
    return code == 0 ? flow_listen(&self->at, &server->listener, &self->at.port)
                     : code;
}

static int server_create(const struct poise_flow_job *job,
                         const struct poise_flow_options *options, unsigned id,
                         const struct flow_contact *call,
                         struct flow_server **out)
{
    struct flow_server *server = poise_alloc(1, sizeof *server);
    if (!server) {
        return -ENOMEM;
    }
    flow_server_net_open(server);
    server->map.fd = server->poll = server->wake = server->listener = -1;
    server->term = -1;
    server->early_end = &server->early;
    server->map.peer = server->parent = FLOW_NOBODY;
    server->out = poise_alloc(POISE_FLOW_NODES_MOST, sizeof(void *));
    server->at = poise_alloc(POISE_FLOW_NODES_MOST, sizeof *server->at);
    server->alive = poise_alloc(POISE_FLOW_NODES_MOST, sizeof(bool));
    server->member = poise_alloc(POISE_FLOW_NODES_MOST, sizeof(bool));
    server->gone = poise_alloc(POISE_FLOW_NODES_MOST, sizeof(bool));
    server->handed = poise_alloc(POISE_FLOW_NODES_MOST, sizeof(bool));
    server->posted = poise_alloc(POISE_FLOW_NODES_MOST, sizeof(uint16_t));
    server->is_posted = poise_alloc(POISE_FLOW_NODES_MOST, sizeof(bool));
    server->tally = poise_alloc(POISE_FLOW_NODES_MOST, sizeof *server->tally);
    server->told = poise_alloc(POISE_FLOW_NODES_MOST, sizeof *server->told);
    server->owed = poise_alloc(POISE_FLOW_NODES_MOST, sizeof *server->owed);
    server->rings = poise_alloc(POISE_FLOW_NODES_MOST, sizeof *server->rings);
    server->files = poise_alloc(job->file_count, sizeof *server->files);
    int code = server->out && server->at && server->alive && server->member &&
                       server->gone && server->handed && server->posted &&
                       server->is_posted && server->tally && server->told &&
                       server->owed && server->rings && server->files
                   ? flow_node_create(job, options, id, &server->node)
                   : -ENOMEM;
    if (code == 0) {
        code = server_listen(server, call);
    }
    if (code == 0) {
        server->node->net = &server->net;
        server->node->oldest = -1;
        server->poll = epoll_create1(EPOLL_CLOEXEC);
        server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        struct epoll_event wake = {EPOLLIN, {.ptr = &server->wake}};
        struct epoll_event comes = {EPOLLIN, {.ptr = &server->listener}};
        struct epoll_event term = {EPOLLIN, {.ptr = &server->term}};
        if (server->poll < 0 || server->wake < 0 || term_open(server) < 0 ||
            epoll_ctl(server->poll, EPOLL_CTL_ADD, server->term, &term) < 0 ||
            epoll_ctl(server->poll, EPOLL_CTL_ADD, server->wake, &wake) < 0 ||
            epoll_ctl(server->poll, EPOLL_CTL_ADD, server->listener, &comes) <
                0) {
            code = poise_error_set(errno, "start node", NULL, NULL);
        }
    }
    if (code < 0 && server->node) {
        server_free(server);
    }
    *out = server;
    return code;
}

int flow_server_run(const struct poise_flow_job *job,
                    const struct poise_flow_options *options, unsigned id,
                    const struct flow_contact *call, struct flow_crash *crash)
{
    unsigned count = options->threads ? options->threads : 1, made = 0;
    struct flow_server *server;
    pthread_t *threads = poise_alloc(count, sizeof *threads);
    if (!threads || server_create(job, options, id, call, &server) < 0) {
        return 1;
    }
    if (crash) {
        flow_watch_crashes(server->node, crash);
    }
    bool started = link_open(server, &server->map, &server->to) == 0;
    while (started && made < count &&
           pthread_create(&threads[made], NULL, processor, server->node) == 0) {
        made++;
    }
    if (made == count) {
        serve(server);
    }
    flow_node_lock(server->node);
    server->node->stop = true;
    pthread_cond_broadcast(&server->node->work);
    flow_node_unlock(server->node);
    for (unsigned i = 0; i < made; i++) {
        pthread_join(threads[i], NULL);
    }
    free(threads);
    server_free(server);
    return made == count ? 0 : 1;
}
