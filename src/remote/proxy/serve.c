/* The end that follows a server: links that come, and sessions. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    ACCEPTS = 16,   /* in a turn */
    FROM_MOST = 16, /* links of one address that did not say what they want */
    PAUSE_MS = 200,
};

/* ---- links that come ---------------------------------------------------- */

/* One too many: of the same address the oldest goes, if it has too many, or
 * else the oldest. */
static void make_room(struct proxy_serve *serve,
                      const unsigned char from[REMOTE_SOURCE_BYTES])
{
    struct proxy_arrival *oldest = NULL, *same = NULL;
    unsigned count = 0;

    for (struct proxy_arrival *at = serve->arrivals; at; at = at->next) {
        if (at->over) {
            continue;
        }
        oldest = at;
        if (memcmp(at->from, from, REMOTE_SOURCE_BYTES) == 0) {
            same = at;
            count++;
        }
    }
    if (count >= FROM_MOST) {
        same->over = true;
    } else if (serve->arrival_count >= PROXY_PENDING && oldest) {
        oldest->over = true;
    }
}

static int let_in(struct proxy_serve *serve, int fd)
{
    struct proxy_arrival *made = poise_alloc(1, sizeof *made);
    int code;

    if (!made) {
        return -ENOMEM;
    }
    remote_source_of(fd, made->from);
    make_room(serve, made->from);
    code = proxy_wire_create(fd, NULL, serve->keys, NULL, &made->wire);
    if (code < 0) {
        free(made);
        return code;
    }
    made->deadline_ns = serve->now_ns + PROXY_LINK_S * PROXY_SECOND_NS;
    made->next = serve->arrivals;
    serve->arrivals = made;
    serve->arrival_count++;
    return 0;
}

static void accept_links(struct proxy_serve *serve)
{
    for (int i = 0; i < ACCEPTS && serve->pause_ns <= serve->now_ns; i++) {
        int fd = remote_accept(serve->listener), code;

        if (fd == -EAGAIN) {
            return;
        }
        code = fd < 0 ? fd : let_in(serve, fd);
        if (code < 0) {
            proxy_problem(&serve->options);
            serve->pause_ns = serve->now_ns + PAUSE_MS * UINT64_C(1000000);
            if (fd >= 0) {
                close(fd);
            }
        }
    }
}

static struct proxy_session *find_session(const struct proxy_serve *serve,
                                          const unsigned char *token)
{
    for (struct proxy_session *at = serve->sessions; at; at = at->next) {
        /* Not for its time to tell how much was right: it is random, and long.
         */
        if (!at->over && memcmp(at->token, token, PROXY_TOKEN) == 0) {
            return at;
        }
    }
    return NULL;
}

static void refuse(struct proxy_arrival *arrival, const char *why)
{
    proxy_wire_put(arrival->wire, PROXY_REFUSE, why, strlen(why));
    proxy_wire_write(arrival->wire);
    arrival->over = true;
}

/* What it wants. */
static int take_first(struct proxy_serve *serve, struct proxy_arrival *arrival,
                      enum proxy_record kind, struct poise_reader *body)
{
    struct proxy_session *session = NULL;
    uint64_t received = 0;
    int code = 0;

    if (kind == PROXY_BEGIN) {
        code = proxy_session_create(serve, &session);
        if (code < 0) {
            refuse(arrival, "it can serve no more viewers now");
            proxy_problem(&serve->options);
            return 0;
        }
        proxy_log(&serve->options, "session %llu: a viewer by %s",
                  (unsigned long long)session->number, arrival->wire->name);
    } else if (kind == PROXY_RESUME && poise_reader_left(body) > PROXY_TOKEN) {
        session = find_session(serve, body->pos);
        body->pos += PROXY_TOKEN;
        received = poise_reader_varint(body);
        if (!session) {
            refuse(arrival, "the session is over");
            return 0;
        }
        proxy_log(&serve->options, "session %llu goes on by %s",
                  (unsigned long long)session->number, arrival->wire->name);
    } else {
        return proxy_bad("it does not say what it wants");
    }
    code = body->error
               ? proxy_bad("a record is cut short")
               : proxy_session_resume(serve, session, arrival->wire, received);
    if (code == 0) {
        arrival->wire = NULL;
        arrival->over = true;
    }
    return code;
}

static void turn_arrival(struct proxy_serve *serve,
                         struct proxy_arrival *arrival)
{
    enum proxy_record kind;
    struct poise_reader body;
    int code = proxy_wire_read(arrival->wire, serve->buffer);

    if (code > 0) {
        code = proxy_wire_take(arrival->wire, PROXY_TOKEN + 16, &kind, &body);
    }
    if (code > 0) {
        code = take_first(serve, arrival, kind, &body);
    }
    if (code == 0 && arrival->wire && !arrival->over) {
        code = proxy_wire_write(arrival->wire);
    }
    if (code == 0 && !arrival->over && serve->now_ns > arrival->deadline_ns) {
        code = poise_error_set(ETIMEDOUT, "meet", arrival->wire->name,
                               "after %d s it did not say what it wants",
                               PROXY_LINK_S);
    }
    if (code < 0) {
        proxy_problem(&serve->options);
        arrival->over = true;
    }
}

/* ---- a turn ------------------------------------------------------------- */

static uint64_t collect(struct proxy_serve *serve)
{
    uint64_t due = 0;

    poise_buf_reset(&serve->fds);
    proxy_want(&serve->fds, serve->listener,
               serve->pause_ns <= serve->now_ns ? POLLIN : 0,
               &serve->listener_slot);
    proxy_sooner(&due, serve->pause_ns > serve->now_ns ? serve->pause_ns : 0);
    proxy_want(&serve->fds, serve->ready, POLLIN, &serve->ready_slot);
    for (struct proxy_arrival *at = serve->arrivals; at; at = at->next) {
        proxy_want(&serve->fds, at->wire->link.fd, proxy_wire_events(at->wire),
                   &at->wire->slot);
        proxy_sooner(&due, at->deadline_ns);
    }
    for (struct proxy_session *at = serve->sessions; at; at = at->next) {
        if (at->channel.wire) {
            proxy_want(&serve->fds, at->channel.wire->link.fd,
                       proxy_wire_events(at->channel.wire),
                       &at->channel.wire->slot);
        }
        proxy_sooner(&due, proxy_channel_due(&at->channel));
    }
    return due;
}

static void spread(const struct poise_buf *fds, struct proxy_wire *wire)
{
    if (wire) {
        short is = proxy_found(fds, wire->slot);
        wire->can_read = is & (POLLIN | POLLHUP | POLLERR);
        wire->can_write = is & (POLLOUT | POLLHUP | POLLERR);
    }
}

static void sweep(struct proxy_serve *serve)
{
    for (struct proxy_arrival **at = &serve->arrivals; *at;) {
        struct proxy_arrival *arrival = *at;
        if (!arrival->over) {
            at = &arrival->next;
            continue;
        }
        *at = arrival->next;
        proxy_wire_destroy(arrival->wire);
        free(arrival);
        serve->arrival_count--;
    }
    for (struct proxy_session **at = &serve->sessions; *at;) {
        struct proxy_session *session = *at;
        if (!session->over) {
            at = &session->next;
            continue;
        }
        *at = session->next;
        proxy_log(&serve->options, "session %llu is over",
                  (unsigned long long)session->number);
        proxy_session_destroy(serve, session);
    }
    for (struct proxy_upstream **at = &serve->leaving; *at;) {
        struct proxy_upstream *upstream = *at;
        if (!proxy_upstream_is_over(upstream)) {
            at = &upstream->next;
            continue;
        }
        *at = upstream->next;
        proxy_upstream_destroy(upstream);
    }
}

static int turn(struct proxy_serve *serve)
{
    uint64_t due = collect(serve), signals;
    int code = proxy_await(&serve->fds, due);

    if (code < 0) {
        return code;
    }
    serve->now_ns = poise_clock_ns();
    for (struct proxy_arrival *at = serve->arrivals; at; at = at->next) {
        spread(&serve->fds, at->wire);
    }
    for (struct proxy_session *at = serve->sessions; at; at = at->next) {
        spread(&serve->fds, at->channel.wire);
    }
    if (proxy_found(&serve->fds, serve->ready_slot)) {
        ssize_t got = read(serve->ready, &signals, sizeof signals);
        (void)got; /* it only wakes */
    }
    if (proxy_found(&serve->fds, serve->listener_slot)) {
        accept_links(serve);
    }
    for (struct proxy_arrival *at = serve->arrivals; at; at = at->next) {
        if (!at->over) {
            turn_arrival(serve, at);
        }
    }
    for (struct proxy_session *at = serve->sessions; at; at = at->next) {
        if (!at->over) {
            proxy_session_turn(serve, at);
        }
    }
    sweep(serve);
    return 0;
}

static void close_all(struct proxy_serve *serve)
{
    for (struct proxy_arrival *at = serve->arrivals; at; at = at->next) {
        at->over = true;
    }
    for (struct proxy_session *at = serve->sessions; at; at = at->next) {
        at->over = true;
        if (at->channel.is_up) {
            proxy_wire_put(at->channel.wire, PROXY_BYE, NULL, 0);
            proxy_wire_write(at->channel.wire);
        }
    }
    sweep(serve);
    while (serve->leaving) {
        struct proxy_upstream *next = serve->leaving->next;
        proxy_upstream_destroy(serve->leaving);
        serve->leaving = next;
    }
    if (serve->listener >= 0) {
        close(serve->listener);
    }
    if (serve->ready >= 0) {
        close(serve->ready);
    }
    remote_keys_destroy(serve->keys);
    poise_buf_free(&serve->fds);
    free(serve->buffer);
}

/* What is wrong with the options is said before anybody connects. */
static int open_all(struct proxy_serve *serve)
{
    const struct poise_remote_vnc_options *options = &serve->options;
    struct poise_screen_codec_options codec = {.method = options->method,
                                               .level = options->level};
    struct poise_screen_encoder *encoder;
    int32_t numbers[SCREEN_ENCODINGS];
    size_t count;
    bool beyond;
    int code = poise_screen_encoder_create(&codec, &encoder);

    if (code < 0) {
        return code;
    }
    poise_screen_encoder_destroy(encoder);
    code = options->encodings
               ? screen_encodings_parse(options->encodings, numbers, &count)
               : 0;
    code = code < 0 ? code : proxy_keys_create(options, true, &serve->keys);
    if (code < 0) {
        return code;
    }
    serve->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (serve->ready < 0) {
        return poise_error_set(errno, "follow", options->server, NULL);
    }
    code = proxy_listen(options, serve->keys, options->serve,
                        "waits for the other proxy", &beyond);
    serve->listener = code;
    return code < 0 ? code : 0;
}

int poise_remote_vnc_serve(const struct poise_remote_vnc_options *options,
                           struct poise_remote_vnc_stats *stats)
{
    struct proxy_serve serve = {
        .options = *options, .listener = -1, .ready = -1};
    int code;

    *stats = (struct poise_remote_vnc_stats){0};
    serve.now_ns = poise_clock_ns();
    serve.buffer = poise_alloc(PROXY_BUFFER, 1);
    code = serve.buffer ? open_all(&serve) : -ENOMEM;
    while (code == 0 && !(options->stop && *options->stop)) {
        code = turn(&serve);
    }
    serve.stats.now = serve.session_count;
    close_all(&serve);
    *stats = serve.stats;
    return code;
}
