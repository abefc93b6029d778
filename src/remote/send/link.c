/* Messages and data over a pair of descriptors. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    IN_FLIGHT_MOST = 16 << 20, /* bytes that are not acknowledged */
    OUTPUT_MOST = 1 << 19,     /* bytes that are not written */
    READ_BYTES = 1 << 17,
    TICK_MS = 200,
    /* For what an end that listens no more may have said, and has not arrived.
     */
    LAST_WORDS_S = 5,
};

/* ---- what comes --------------------------------------------------------- */

/* Hand over the whole messages of a stream. */
static int take_messages(struct remote_link *link, struct poise_buf *coming)
{
    struct poise_reader reader = poise_reader_of(coming->data, coming->len);
    size_t used = 0;
    int code = 0;

    while (code == 0 && poise_reader_left(&reader) > 0) {
        struct poise_reader body;
        uint64_t len = poise_reader_varint(&reader);

        if (reader.error && coming->len - used < 10) {
            break; /* the length is incomplete */
        }
        if (reader.error || len == 0 || len > REMOTE_MESSAGE_MOST) {
            return remote_bad("a message of impossible length");
        }
        if (len > poise_reader_left(&reader)) {
            break;
        }
        body = poise_reader_of(reader.pos + 1, (size_t)len - 1);
        code = link->take((enum remote_message)reader.pos[0], &body, link->arg);
        if (code == 0 && body.error) {
            code = remote_bad("a message is cut short");
        }
        reader.pos += len;
        used = (size_t)(reader.pos - (const unsigned char *)coming->data);
    }
    if (used > 0) {
        memmove(coming->data, coming->data + used, coming->len - used);
        coming->len -= used;
    }
    return code;
}

static int take_piece(struct remote_link *link, uint32_t stream,
                      const struct poise_dedup_piece *piece)
{
    struct poise_dedup_joiner *joiner;
    uint64_t before;
    size_t fresh;
    int code;

    if (stream >= REMOTE_STREAMS) {
        return remote_bad("a stream that there is not");
    }
    joiner = &link->joined[stream];
    before = joiner->at;
    if (stream != REMOTE_DATA) {
        code = poise_dedup_join(joiner, piece, &link->coming[stream]);
        return code < 0 ? code : take_messages(link, &link->coming[stream]);
    }
    code = poise_dedup_join(joiner, piece, NULL);
    fresh = (size_t)(joiner->at - before);
    return code < 0
               ? code
               : link->data(piece->data + piece->len - fresh, fresh, link->arg);
}

/* What goes wrong with what came is no fault of the wire, which is needed
 * still to say so. */
static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    struct remote_link *link = arg;

    if (link->failure == 0) {
        link->failure = take_piece(link, stream, piece);
    }
    return 0;
}

static int ended(uint32_t stream, void *arg)
{
    struct remote_link *link = arg;

    if (stream < REMOTE_STREAMS) {
        link->joined[stream].at = 0;
    }
    return 0;
}

/* ---- what goes ---------------------------------------------------------- */

static int say(struct poise_buf *to, enum remote_message kind,
               const struct poise_buf *body)
{
    size_t len = body ? body->len : 0;

    poise_buf_varint(to, len + 1);
    poise_buf_putc(to, (char)kind);
    if (len > 0) {
        poise_buf_append(to, body->data, len);
    }
    return body && body->error ? body->error : to->error;
}

int remote_link_say(struct remote_link *link, enum remote_message kind,
                    const struct poise_buf *body)
{
    return say(&link->talk, kind, body);
}

int remote_link_say_list(struct remote_link *link, enum remote_message kind,
                         const struct poise_buf *body)
{
    return say(&link->list, kind, body);
}

/* Hand to the wire what was said; nothing before the other end said hello. */
static int settle(struct remote_link *link)
{
    bool any = link->talk.len > 0;
    int code = remote_messages_send(link->peer, &link->talk, &link->talked);

    if (code == -EAGAIN && !link->met) {
        return 0;
    }
    if (code == 0 && any) {
        link->met = link->dirty = true;
    }
    if (code == 0 && link->met && link->list.len > 0) {
        code = poise_dedup_peer_send(link->peer, REMOTE_LIST, link->list.data,
                                     link->list.len);
        poise_buf_reset(&link->list);
        link->dirty = true;
    }
    return code;
}

int remote_link_put(struct remote_link *link, const void *data, size_t len)
{
    int code = settle(link);

    link->dirty = true;
    return code < 0 ? code
                    : poise_dedup_peer_send(link->peer, REMOTE_DATA, data, len);
}

int remote_link_end(struct remote_link *link)
{
    int code = settle(link);

    link->dirty = true;
    return code < 0 ? code : poise_dedup_peer_end(link->peer, REMOTE_DATA);
}

int remote_link_flush(struct remote_link *link)
{
    int code = settle(link);

    if (code == 0 && link->dirty) {
        code = poise_dedup_peer_flush(link->peer);
        link->dirty = false;
    }
    return code;
}

bool remote_link_has_room(const struct remote_link *link)
{
    const void *data;

    return link->met &&
           poise_dedup_peer_in_flight(link->peer) < IN_FLIGHT_MOST &&
           poise_dedup_peer_output(link->peer, &data) < OUTPUT_MOST;
}

/* ---- moving bytes ------------------------------------------------------- */

/* What it said before it ceased to listen may say why. */
static void set_broken(struct remote_link *link)
{
    link->broken = true;
    link->heard_ns = poise_clock_ns();
}

static int write_some(struct remote_link *link)
{
    const void *data;
    size_t len = poise_dedup_peer_output(link->peer, &data);
    ssize_t done;
    int code;

    if (len == 0) {
        return 0;
    }
    if (link->broken) {
        poise_dedup_peer_took(link->peer, len);
        return 0;
    }
    code = poise_fault_check(POISE_FAULT_SEND);
    done = code ? -1 : write(link->out, data, len);
    if (done >= 0) {
        poise_dedup_peer_took(link->peer, (size_t)done);
        return 0;
    }
    code = code ? code : errno;
    if (code == EAGAIN || code == EINTR) {
        return 0;
    }
    if (code == EPIPE || code == ECONNRESET) {
        set_broken(link);
        return 0;
    }
    return poise_error_set(code, "write to the other end", NULL, NULL);
}

static int read_some(struct remote_link *link)
{
    int code = poise_fault_check(POISE_FAULT_READ);
    ssize_t got = code ? -1 : read(link->in, link->buffer, READ_BYTES);

    if (got > 0) {
        link->heard_ns = poise_clock_ns();
        code = poise_dedup_peer_feed(link->peer, link->buffer, (size_t)got);
        return code < 0 ? code : link->failure;
    }
    code = code ? code : errno;
    if (got == 0 || code == ECONNRESET) {
        link->closed = true;
        return 0;
    }
    return code == EAGAIN || code == EINTR
               ? 0
               : poise_error_set(code, "read from the other end", NULL, NULL);
}

static void tick(struct remote_link *link)
{
    uint64_t now = poise_clock_ns();

    if (link->tick && now - link->ticked_ns >= TICK_MS * UINT64_C(1000000)) {
        link->ticked_ns = now;
        link->tick(link->tick_arg);
    }
}

int remote_link_await(struct remote_link *link, struct pollfd *fds,
                      size_t count, bool wait)
{
    int code = poll(fds, count, wait ? TICK_MS : 0);

    tick(link);
    if (link->stop && *link->stop) {
        return poise_error_set(EINTR, "go on", NULL, "it was interrupted");
    }
    return code < 0 && errno != EINTR
               ? poise_error_set(errno, "wait for the other end", NULL, NULL)
               : 0;
}

int remote_link_heed(struct remote_link *link, const struct pollfd fds[2],
                     bool wait)
{
    bool any = fds[0].revents || fds[1].revents;

    if (!any && link->broken &&
        poise_clock_ns() - link->heard_ns >
            LAST_WORDS_S * UINT64_C(1000000000)) {
        return poise_error_set(EPIPE, "go on", NULL,
                               "the other end listens no more");
    }
    if (!any && wait && link->silence_ns > 0 &&
        poise_clock_ns() - link->heard_ns > link->silence_ns) {
        return poise_error_set(ETIMEDOUT, "hear the other end", NULL,
                               "it says nothing any more");
    }
    if (fds[1].events == 0 && fds[1].revents) {
        set_broken(link);
    }
    return fds[0].revents ? read_some(link) : 0;
}

int remote_link_settle(struct remote_link *link)
{
    return settle(link);
}

int remote_link_ready(struct remote_link *link, struct pollfd fds[2])
{
    const void *data;
    int code = settle(link);

    if (code == 0) {
        code = write_some(link);
    }
    if (code < 0) {
        return code;
    }
    fds[0] = (struct pollfd){.fd = link->in, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = -1};
    if (link->closed) {
        return poise_error_set(ECONNRESET, "go on", NULL,
                               "the other end is gone");
    }
    if (!link->broken) {
        /* Without events, an error: who has nothing to say for long would not
         * learn that nobody listens. */
        fds[1].fd = link->out;
        fds[1].events =
            poise_dedup_peer_output(link->peer, &data) > 0 ? POLLOUT : 0;
    }
    return 0;
}

int remote_link_turn(struct remote_link *link, bool wait)
{
    struct pollfd fds[2];
    int code = wait ? settle(link) : 0;

    if (code == 0 && wait) {
        /* Nothing that is to be written may come while this sleeps. */
        code = poise_dedup_peer_wait(link->peer);
    }
    if (code == 0) {
        code = remote_link_ready(link, fds);
    }
    if (code == 0) {
        code = remote_link_await(link, fds, 2, wait);
    }
    return code < 0 ? code : remote_link_heed(link, fds, wait);
}

int remote_link_drain(struct remote_link *link)
{
    const void *data;
    int code = remote_link_flush(link);

    while (code == 0 && !link->closed && !link->broken &&
           poise_dedup_peer_output(link->peer, &data) > 0) {
        code = remote_link_turn(link, true);
        code = code < 0 ? code : poise_dedup_peer_wait(link->peer);
    }
    return code;
}

int remote_link_open(struct remote_link *link, int level, const char *segmenter)
{
    struct poise_dedup_peer_options options = {.store = link->store,
                                               .level = level,
                                               .cut_stream = REMOTE_DATA,
                                               .packs_in_thread = true,
                                               .deliver = deliver,
                                               .ended = ended,
                                               .is_leader = link->leads,
                                               .arg = link};
    int fds[2] = {link->in, link->out};

    if (segmenter) {
        int code =
            poise_dedup_cut_parse(segmenter, &options.method, &options.cut);
        if (code < 0) {
            return code;
        }
    }
    if (link->follows) {
        options.leader = link->follows->peer;
    }
    for (int i = 0; i < 2 && !link->leads; i++) {
        int flags = fcntl(fds[i], F_GETFL);
        if (flags < 0 || fcntl(fds[i], F_SETFL, flags | O_NONBLOCK) < 0) {
            return poise_error_set(errno, "use the connection", NULL, NULL);
        }
    }
    link->heard_ns = link->ticked_ns = poise_clock_ns();
    link->buffer = poise_alloc(REMOTE_BLOCK, 1);
    return link->buffer ? poise_dedup_peer_create(&options, &link->peer)
                        : -ENOMEM;
}

void remote_link_close(struct remote_link *link)
{
    poise_dedup_peer_destroy(link->peer);
    link->peer = NULL;
    for (int i = 0; i < REMOTE_STREAMS; i++) {
        poise_buf_free(&link->coming[i]);
    }
    poise_buf_free(&link->talk);
    poise_buf_free(&link->list);
    free(link->buffer);
    link->buffer = NULL;
}
