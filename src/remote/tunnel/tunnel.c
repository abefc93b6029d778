/*
 * One end of a tunnel: what listens, the links, the page of figures, and the
 * loop that waits for all of them. What each wants to wait for is asked anew
 * in each turn, so that nothing has to be kept in step.
 */
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)
enum {
    TICK_S = 1,
    SAVE_S = 5, /* after which the cache is handed to the system */
    PAUSE_MS = 200,
    BACKOFF_FIRST_MS = 200,
    BACKOFF_MOST_MS = 10000,
    LINE_MOST = 512,
};

/* ---- what users are shown ----------------------------------------------- */

void tunnel_problem(const struct tunnel *tunnel)
{
    if (tunnel->options.problem) {
        tunnel->options.problem(poise_error_last(), tunnel->options.arg);
    }
}

void tunnel_log(const struct tunnel *tunnel, const char *fmt, ...)
{
    char line[LINE_MOST];
    va_list args;

    if (tunnel->options.log) {
        va_start(args, fmt);
        vsnprintf(line, sizeof line, fmt, args);
        va_end(args);
        tunnel->options.log(line, tunnel->options.arg);
    }
}

static void add_peer(struct poise_dedup_peer_stats *sum,
                     const struct poise_dedup_peer *peer)
{
    struct poise_dedup_peer_stats more = poise_dedup_peer_stats(peer);

    sum->data_out += more.data_out;
    sum->data_in += more.data_in;
    sum->wire_out += more.wire_out;
    sum->wire_in += more.wire_in;
    sum->groups += more.groups;
    sum->repairs += more.repairs;
    sum->requests += more.requests;
    sum->by_run += more.by_run;
    sum->by_fingerprint += more.by_fingerprint;
    sum->by_delta += more.by_delta;
    sum->by_data += more.by_data;
    sum->by_fill += more.by_fill;
    sum->by_residual += more.by_residual;
    sum->cache_errors += more.cache_errors;
}

/* What went through a link. */
static void add_link(struct poise_remote_tunnel_stats *stats,
                     const struct tunnel_link *link)
{
    uint64_t out, in;

    remote_link_bytes(&link->wire, &out, &in);
    stats->link_out_bytes += out;
    stats->link_in_bytes += in;
    if (link->peer) {
        add_peer(&stats->peer, link->peer);
    }
}

struct poise_remote_tunnel_stats tunnel_stats(const struct tunnel *tunnel)
{
    struct poise_remote_tunnel_stats stats = tunnel->stats;

    stats.up_ns = poise_clock_ns() - tunnel->start_ns;
    tunnel_caches_count(tunnel, &stats);
    for (struct tunnel_link *at = tunnel->links; at; at = at->next) {
        stats.links += at->window > 0;
        stats.connections += at->count;
        add_link(&stats, at);
    }
    return stats;
}

/* ---- opening ------------------------------------------------------------ */

/* Only this machine may connect to what is not enciphered. */
static int check_open(const struct remote_target *target,
                      const struct remote_keys *keys, const char *doing)
{
    return keys || remote_is_loopback(target)
               ? 0
               : poise_error_set(EINVAL, doing, target->text,
                                 "it is beyond this machine, and there is "
                                 "neither a secret nor a certificate");
}

/* Where the other end is now. */
static int resolve_via(struct tunnel *tunnel)
{
    int code;

    remote_target_free(&tunnel->via);
    code = remote_resolve(&tunnel->via_name, false, &tunnel->via);
    return code < 0 ? code
                    : check_open(&tunnel->via, tunnel->via_keys, "connect to");
}

static int add_listener(struct tunnel *tunnel, enum tunnel_listener_kind kind,
                        const struct remote_name *name,
                        const struct remote_keys *keys, char *target)
{
    static const char *const words[] = {"forwards %s to %s%s",
                                        "serves at %s%s%s",
                                        "shows figures at http://%s/%s%s"};
    struct tunnel_listener *made = &tunnel->listeners[tunnel->listener_count];
    struct remote_target at;
    struct poise_buf where = {0};
    int code = remote_resolve(name, true, &at);

    if (code < 0) {
        free(target);
        return code;
    }
    code = check_open(&at, keys, "listen at");
    if (code == 0) {
        code = remote_listen(&at, &where);
    }
    remote_target_free(&at);
    if (code < 0) {
        free(target);
    } else {
        *made = (struct tunnel_listener){
            .kind = kind, .fd = code, .slot = -1, .target = target};
        tunnel->listener_count++;
        tunnel_log(tunnel, words[kind], poise_buf_str(&where),
                   target ? target : "", "");
    }
    poise_buf_free(&where);
    return code < 0 ? code : 0;
}

static int open_forward(struct tunnel *tunnel, const char *text)
{
    struct remote_name listen, target;
    struct poise_buf to = {0};
    int code = remote_forward_parse(text, &listen, &target);

    if (code < 0) {
        return code;
    }
    remote_name_put(&target, &to);
    poise_buf_str(&to);
    if (to.error) {
        poise_buf_free(&to);
        return -ENOMEM;
    }
    return add_listener(tunnel, TUNNEL_FORWARDS, &listen, tunnel->via_keys,
                        to.data);
}

static int open_other(struct tunnel *tunnel, enum tunnel_listener_kind kind,
                      const char *text, const struct remote_keys *keys)
{
    struct remote_name name;
    int code = remote_name_parse(text, &name);

    return code < 0 ? code : add_listener(tunnel, kind, &name, keys, NULL);
}

static int resolve_allowed(struct tunnel *tunnel)
{
    const struct poise_remote_tunnel_options *options = &tunnel->options;

    tunnel->allowed =
        poise_alloc(options->allow_count + 1, sizeof *tunnel->allowed);
    if (!tunnel->allowed) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < options->allow_count; i++) {
        struct remote_name name;
        int code = remote_name_parse(options->allow[i], &name);

        if (code == 0) {
            code = remote_resolve(&name, false, &tunnel->allowed[i]);
        }
        if (code < 0) {
            return code;
        }
        tunnel->allowed_count++;
    }
    return 0;
}

static int check_options(const struct poise_remote_tunnel_options *options)
{
    if (!options->via != !options->forward_count) {
        return poise_error_set(EINVAL, "make a tunnel", NULL,
                               options->via ? "nothing is to be forwarded"
                                            : "forward through what?");
    }
    if (!options->serve != !options->allow_count) {
        return poise_error_set(EINVAL, "make a tunnel", NULL,
                               options->serve
                                   ? "nothing is allowed to those it serves"
                                   : "allowed to whom? it serves nobody");
    }
    return options->via || options->serve
               ? 0
               : poise_error_set(EINVAL, "make a tunnel", NULL,
                                 "to where, or for whom?");
}

static int open_all(struct tunnel *tunnel)
{
    const struct poise_remote_tunnel_options *options = &tunnel->options;
    struct remote_key_files files = {
        .secret = options->secret,
        .cert = options->cert,
        .key = options->key,
        .ca = options->ca,
        .peer_name = options->peer_name,
    };
    int code = resolve_allowed(tunnel);

    if (code == 0 && options->serve) {
        code = remote_keys_create(&files, true, &tunnel->serve_keys);
    }
    if (code == 0 && options->via) {
        code = remote_keys_create(&files, false, &tunnel->via_keys);
        code = code < 0 ? code
                        : remote_name_parse(options->via, &tunnel->via_name);
        if (code == 0 && !tunnel->via_keys) {
            /* Wrong for good, unlike a name that is not known now. */
            code = resolve_via(tunnel);
        }
    }
    code = code < 0 ? code : tunnel_caches_open(tunnel);
    if (code == 0 && options->metrics) {
        code = open_other(tunnel, TUNNEL_METRICS, options->metrics, NULL);
    }
    if (code == 0 && options->serve) {
        code = open_other(tunnel, TUNNEL_SERVES, options->serve,
                          tunnel->serve_keys);
    }
    for (size_t i = 0; i < options->forward_count && code == 0; i++) {
        code = open_forward(tunnel, options->forwards[i]);
    }
    return code;
}

/* How many connections this process may have: one descriptor each. */
static unsigned count_descriptors(const struct tunnel *tunnel)
{
    uint64_t others = TUNNEL_DESCRIPTORS + TUNNEL_LINKS + TUNNEL_PENDING +
                      TUNNEL_PAGES + tunnel->options.forward_count +
                      tunnel_caches_descriptors(tunnel);
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
        limit.rlim_cur > UINT_MAX / 2) {
        return UINT_MAX / 2;
    }
    return (unsigned)(limit.rlim_cur > 2 * others ? limit.rlim_cur - others
                                                  : limit.rlim_cur / 2);
}

int tunnel_create(const struct poise_remote_tunnel_options *options,
                  struct tunnel **out)
{
    struct tunnel *made;
    int code = check_options(options);

    if (code < 0) {
        return code;
    }
    made = poise_alloc(1, sizeof *made);
    if (!made) {
        return -ENOMEM;
    }
    made->options = *options;
    made->start_ns = made->now_ns = made->saved_ns = poise_clock_ns();
    made->retry_ns = made->start_ns;
    made->window_most = TUNNEL_WINDOW_MOST;
    made->held_most = TUNNEL_HELD_MOST;
    made->links_most = TUNNEL_LINKS;
    made->unread_most = TUNNEL_UNREAD_MOST;
    made->draining_most = TUNNEL_DRAINING;
    made->conns_most = count_descriptors(made);
    made->buffer = poise_alloc(TUNNEL_BUFFER, 1);
    made->listeners =
        poise_alloc(options->forward_count + 2, sizeof *made->listeners);
    code =
        made->buffer && made->listeners ? tunnel_routes_create(made) : -ENOMEM;
    code = code < 0 ? code : open_all(made);
    if (code < 0) {
        tunnel_destroy(made);
        return code;
    }
    *out = made;
    return 0;
}

void tunnel_destroy(struct tunnel *tunnel)
{
    while (tunnel->links) {
        struct tunnel_link *next = tunnel->links->next;
        tunnel_link_destroy(tunnel->links);
        tunnel->links = next;
    }
    while (tunnel->pages) {
        struct tunnel_page *next = tunnel->pages->next;
        tunnel_page_destroy(tunnel->pages);
        tunnel->pages = next;
    }
    for (size_t i = 0; i < tunnel->listener_count; i++) {
        close(tunnel->listeners[i].fd);
        free(tunnel->listeners[i].target);
    }
    for (size_t i = 0; i < tunnel->allowed_count; i++) {
        remote_target_free(&tunnel->allowed[i]);
    }
    remote_target_free(&tunnel->via);
    remote_keys_destroy(tunnel->serve_keys);
    remote_keys_destroy(tunnel->via_keys);
    tunnel_caches_close(tunnel);
    tunnel_routes_free(tunnel);
    free(tunnel->allowed);
    free(tunnel->listeners);
    free(tunnel->buffer);
    poise_buf_free(&tunnel->fds);
    free(tunnel);
}

/* ---- the link that this end makes --------------------------------------- */

static int connect_via(struct tunnel *tunnel)
{
    struct tunnel_link *made;
    int code = resolve_via(tunnel);

    if (code == 0) {
        code = tunnel_link_create(tunnel, -1, &made);
    }
    if (code == 0) {
        made->next = tunnel->links;
        tunnel->links = tunnel->via_link = made;
    }
    return code;
}

/* Connections do not wait for a link that is not there. */
static void turn_away(const struct tunnel *tunnel)
{
    for (size_t i = 0; i < tunnel->listener_count; i++) {
        const struct tunnel_listener *listener = &tunnel->listeners[i];
        int fd = 0;

        while (listener->kind == TUNNEL_FORWARDS && fd >= 0) {
            fd = remote_accept(listener->fd);
            if (fd >= 0) {
                remote_close_hard(fd);
            }
        }
    }
}

/* The link is lost, or could not be made: try again later. The reason is
 * reported once until it is there again. */
static void lose_via_link(struct tunnel *tunnel)
{
    uint64_t twice = 2 * tunnel->backoff_ns;
    uint64_t most = BACKOFF_MOST_MS * UINT64_C(1000000);

    if (tunnel->backoff_ns == 0) {
        tunnel_problem(tunnel);
        twice = BACKOFF_FIRST_MS * UINT64_C(1000000);
    }
    tunnel->backoff_ns = twice < most ? twice : most;
    tunnel->retry_ns = tunnel->now_ns + tunnel->backoff_ns;
    tunnel->via_link = NULL;
    turn_away(tunnel);
}

/* ---- waiting ------------------------------------------------------------ */

static void sooner(uint64_t *due, uint64_t at)
{
    if (at > 0 && at < *due) {
        *due = at;
    }
}

/* Among what is waited for; nothing, if there are no events. */
static void want(struct tunnel *tunnel, int fd, short events, int *slot)
{
    struct pollfd pollfd = {.fd = fd, .events = events};

    *slot = -1;
    if (events != 0 && fd >= 0) {
        *slot = (int)(tunnel->fds.len / sizeof pollfd);
        poise_buf_append(&tunnel->fds, &pollfd, sizeof pollfd);
    }
}

static bool may_accept(const struct tunnel *tunnel,
                       const struct tunnel_listener *listener)
{
    return listener->pause_ns <= tunnel->now_ns &&
           (listener->kind != TUNNEL_FORWARDS ||
            (tunnel->via_link && tunnel_link_is_up(tunnel->via_link)));
}

/* Ask all of them; the time when something is to be done anyway. */
static uint64_t collect(struct tunnel *tunnel)
{
    uint64_t due = UINT64_MAX;

    poise_buf_reset(&tunnel->fds);
    for (size_t i = 0; i < tunnel->listener_count; i++) {
        struct tunnel_listener *at = &tunnel->listeners[i];
        want(tunnel, at->fd, may_accept(tunnel, at) ? POLLIN : 0, &at->slot);
        sooner(&due, at->pause_ns > tunnel->now_ns ? at->pause_ns : 0);
    }
    for (struct tunnel_link *at = tunnel->links; at; at = at->next) {
        want(tunnel, at->wire.fd, tunnel_link_events(at), &at->slot);
        sooner(&due, tunnel_link_due(at));
        for (unsigned i = 0; i < at->count; i++) {
            struct tunnel_conn *conn = at->conns[i];
            want(tunnel, conn->fd, tunnel_conn_events(conn), &conn->slot);
            /* It begins. */
            sooner(&due, conn->is_new ? 1 : 0);
        }
    }
    for (struct tunnel_page *at = tunnel->pages; at; at = at->next) {
        want(tunnel, at->fd, at->out.len > 0 ? POLLOUT : POLLIN, &at->slot);
        sooner(&due, at->deadline_ns);
    }
    if (tunnel->options.via && !tunnel->via_link) {
        sooner(&due, tunnel->retry_ns);
    }
    return due;
}

/* What poll found of a slot. */
static short found(const struct tunnel *tunnel, int slot, short *asked)
{
    const struct pollfd *fds = (const void *)tunnel->fds.data;

    *asked = slot >= 0 ? fds[slot].events : 0;
    return slot >= 0 ? fds[slot].revents : 0;
}

static void spread(struct tunnel *tunnel)
{
    short asked;

    for (size_t i = 0; i < tunnel->listener_count; i++) {
        struct tunnel_listener *at = &tunnel->listeners[i];
        at->can_read = found(tunnel, at->slot, &asked) != 0;
    }
    for (struct tunnel_link *at = tunnel->links; at; at = at->next) {
        short is = found(tunnel, at->slot, &asked);
        at->can_read = is & (POLLIN | POLLHUP | POLLERR);
        at->can_write = is != 0 && (asked & POLLOUT);
        for (unsigned i = 0; i < at->count; i++) {
            struct tunnel_conn *conn = at->conns[i];
            is = found(tunnel, conn->slot, &asked);
            conn->can_read =
                (asked & POLLIN) && (is & (POLLIN | POLLHUP | POLLERR));
            conn->can_write = is & (POLLOUT | POLLHUP | POLLERR);
            conn->drained |= (asked & POLLIN) && !conn->can_read;
        }
    }
    for (struct tunnel_page *at = tunnel->pages; at; at = at->next) {
        short is = found(tunnel, at->slot, &asked);
        at->can_read = is != 0 && (asked & POLLIN);
        at->can_write = is != 0 && (asked & POLLOUT);
    }
}

static int await(struct tunnel *tunnel, uint64_t most_ns)
{
    uint64_t due = collect(tunnel), now = poise_clock_ns(), left;
    struct timespec time;
    int code;

    if (tunnel->fds.error) {
        return -ENOMEM;
    }
    left = due <= now ? 0 : due - now;
    left = left < most_ns ? left : most_ns;
    time = (struct timespec){.tv_sec = (time_t)(left / SECOND_NS),
                             .tv_nsec = (long)(left % SECOND_NS)};
    code = ppoll((struct pollfd *)(void *)tunnel->fds.data,
                 tunnel->fds.len / sizeof(struct pollfd), &time, NULL);
    if (code < 0 && errno != EINTR) {
        return poise_error_set(errno, "wait for connections", NULL, NULL);
    }
    if (code < 0) {
        /* Nothing is known of any of them. */
        struct pollfd *fds = (void *)tunnel->fds.data;
        for (size_t i = 0; i < tunnel->fds.len / sizeof *fds; i++) {
            fds[i].revents = 0;
        }
    }
    tunnel->now_ns = poise_clock_ns();
    spread(tunnel);
    return 0;
}

/* ---- a turn ------------------------------------------------------------- */

/* A program connected. Takes `fd` if it succeeds. */
static int let_in(struct tunnel *tunnel, const struct tunnel_listener *listener,
                  int fd)
{
    struct tunnel_link *link;
    int code;

    switch (listener->kind) {
    case TUNNEL_FORWARDS:
        return tunnel_link_open(tunnel->via_link, fd, listener->target);
    case TUNNEL_METRICS:
        return tunnel_page_create(tunnel, fd);
    default:
        code = tunnel_link_create(tunnel, fd, &link);
        if (code == 0) {
            link->next = tunnel->links;
            tunnel->links = link;
            tunnel_pending_admit(tunnel, link);
        }
        return code;
    }
}

/* Said once of each row of them. */
static void refuse(struct tunnel *tunnel, struct tunnel_listener *listener,
                   int fd, int code)
{
    if (!listener->is_refusing) {
        tunnel_problem(tunnel);
    }
    listener->is_refusing = true;
    if (fd >= 0) {
        remote_close_hard(fd);
        tunnel->stats.refused += listener->kind == TUNNEL_FORWARDS;
    }
    if (code != -EUSERS) {
        /* There may be room again soon. */
        listener->pause_ns = tunnel->now_ns + PAUSE_MS * UINT64_C(1000000);
    }
}

static void answer(struct tunnel *tunnel, struct tunnel_listener *listener)
{
    for (int i = 0; i < TUNNEL_ACCEPTS && may_accept(tunnel, listener); i++) {
        int fd = remote_accept(listener->fd), code;

        if (fd == -EAGAIN) {
            return;
        }
        code = fd < 0 ? fd : let_in(tunnel, listener, fd);
        if (code < 0) {
            refuse(tunnel, listener, fd, code);
        } else {
            listener->is_refusing = false;
        }
    }
}

/* Links that are lost go, and their connections with them. */
static void sweep(struct tunnel *tunnel)
{
    for (struct tunnel_link **at = &tunnel->links; *at;) {
        struct tunnel_link *link = *at;

        if (!link->lost) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        add_link(&tunnel->stats, link);
        tunnel->stats.links_lost += link->window > 0 && !link->refused;
        tunnel_link_destroy(link);
    }
    for (struct tunnel_page **at = &tunnel->pages; *at;) {
        struct tunnel_page *page = *at;

        if (page->over) {
            *at = page->next;
            tunnel_page_destroy(page);
        } else {
            at = &page->next;
        }
    }
}

static void save(struct tunnel *tunnel)
{
    if (tunnel->now_ns - tunnel->saved_ns > SAVE_S * SECOND_NS) {
        tunnel->saved_ns = tunnel->now_ns;
        tunnel_caches_save(tunnel);
    }
}

static void turn_link(struct tunnel *tunnel, struct tunnel_link *link)
{
    int code;

    if (link->lost && link != tunnel->via_link) {
        return; /* it was said why */
    }
    code = link->lost ? -ENOMEM : tunnel_link_turn(link);

    if (link->cache) {
        link->cache->is_changed |= link->count > 0;
    }
    if (code == 0) {
        return;
    }
    link->lost = true;
    if (link == tunnel->via_link) {
        lose_via_link(tunnel);
    } else if (link->window > 0) {
        tunnel_problem(tunnel);
    } else {
        tunnel_stranger_problem(tunnel);
    }
}

int tunnel_turn(struct tunnel *tunnel, uint64_t most_ns)
{
    int code = await(tunnel, most_ns);

    if (code < 0) {
        return code;
    }
    if (tunnel->options.via && !tunnel->via_link &&
        tunnel->retry_ns <= tunnel->now_ns && connect_via(tunnel) < 0) {
        lose_via_link(tunnel);
    }
    for (size_t i = 0; i < tunnel->listener_count; i++) {
        if (tunnel->listeners[i].can_read) {
            answer(tunnel, &tunnel->listeners[i]);
        }
    }
    for (struct tunnel_link *at = tunnel->links; at; at = at->next) {
        turn_link(tunnel, at);
    }
    for (struct tunnel_page *at = tunnel->pages; at; at = at->next) {
        tunnel_page_turn(tunnel, at);
    }
    sweep(tunnel);
    save(tunnel);
    if (tunnel->now_ns > tunnel->strangers_ns) {
        tunnel_strangers_tell(tunnel);
    }
    return 0;
}

int poise_remote_tunnel_secret(const char *path)
{
    return remote_secret_make(path);
}

int poise_remote_tunnel(const struct poise_remote_tunnel_options *options,
                        struct poise_remote_tunnel_stats *stats)
{
    struct tunnel *tunnel;
    uint64_t next = 0;
    int code = tunnel_create(options, &tunnel);

    *stats = (struct poise_remote_tunnel_stats){0};
    if (code < 0) {
        return code;
    }
    while (code == 0 && !(options->stop && *options->stop)) {
        code = tunnel_turn(tunnel, TICK_S * SECOND_NS);
        if (options->progress && tunnel->now_ns >= next) {
            next = tunnel->now_ns + SECOND_NS / 5;
            *stats = tunnel_stats(tunnel);
            options->progress(stats, options->arg);
        }
    }
    *stats = tunnel_stats(tunnel);
    if (options->progress) {
        options->progress(stats, options->arg);
    }
    tunnel_destroy(tunnel);
    return code;
}
