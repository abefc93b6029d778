/*
 * A link to another end: ciphers, a greeting, then the wire, with messages in
 * one stream and a connection in each of the others.
 *
 * Numbers. The end that opens connections takes a stream that is free
 * at its side, and a new number (id) for each connection: CREDIT and RESET name
 * the number, so that one that crosses the end of its connection finds nothing,
 * and never the next connection of the same stream. The data of a stream need
 * no number: all streams of the wire are delivered in the order in which they
 * were sent, so all of the old connection, its end too, comes before OPEN, and
 * OPEN before what the new one sends.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    IN_FLIGHT_MOST = 16 << 20, /* bytes that are not acknowledged */
    CHUNK_LEAST = 1 << 13,     /* bytes of a connection at a time: where the
                                  link is slow, another one waits so long */
    CHUNK_MOST = TUNNEL_BUFFER,
    TURN_BYTES = 1 << 20, /* then others have their turn */
    MESSAGE_MOST = 1024,
    TEXT_MOST = 512,
    LITERAL_MOST = 16,      /* a shorter segment is not worth a fingerprint */
    LINK_S = 20,            /* until both ends know each other */
    REFUSED_S = 5,          /* until one that is too many was told so */
    OUTPUT_MOST = 96 << 20, /* bytes that the other end does not take */
    DECAY_NS = 100000000,
    CREDIT_BITS = 40,
};
static const char magic[] = "POISETUN";
static const char too_many_links[] = "it serves as many links as it may";

/* ---- beginning and end -------------------------------------------------- */

int tunnel_link_create(struct tunnel *tunnel, int fd, struct tunnel_link **out)
{
    struct tunnel_link *made = poise_alloc(1, sizeof *made);
    struct poise_buf name = {0};
    int code;

    if (!made) {
        return -ENOMEM;
    }
    made->tunnel = tunnel;
    made->opens = fd < 0;
    made->slot = -1;
    made->can_read = true; /* it may have spoken */
    made->chunk = CHUNK_LEAST;
    made->deadline_ns = poise_clock_ns() + LINK_S * UINT64_C(1000000000);
    if (fd < 0) {
        poise_buf_puts(&name, tunnel->via.text);
    } else {
        remote_peer_put(fd, &name);
        remote_source_of(fd, made->from);
    }
    poise_buf_str(&name);
    made->name = name.data;
    made->wire = (struct remote_link){
        .fd = fd,
        .to = made->opens ? &tunnel->via : NULL,
        .keys = made->opens ? tunnel->via_keys : tunnel->serve_keys,
        .host = made->opens ? tunnel->via_name.host : NULL,
        .name = name.data,
        .kind = "tunnel",
    };
    remote_link_greet(&made->wire, magic, TUNNEL_VERSION);
    code = name.error ? -ENOMEM : remote_link_begin(&made->wire);
    if (code == 0) {
        *out = made;
        return 0;
    }
    if (fd >= 0) {
        made->wire.fd = -1; /* still the caller's */
    }
    tunnel_link_destroy(made);
    return code;
}

void tunnel_link_destroy(struct tunnel_link *link)
{
    link->tunnel->stats.resets += link->count;
    while (link->count > 0) {
        tunnel_conn_destroy(link->conns[link->count - 1]);
    }
    free(link->conns);
    free(link->streams);
    poise_dedup_segmenter_destroy(link->spare);
    poise_dedup_peer_destroy(link->peer);
    tunnel_cache_put(link);
    remote_link_close(&link->wire);
    poise_buf_free(&link->control);
    poise_buf_free(&link->coming);
    free(link->name);
    free(link);
}

/* ---- what comes --------------------------------------------------------- */

/* More run than may: it is told, and then let go. */
static int refuse_link(struct tunnel_link *link)
{
    link->refused = true;
    link->deadline_ns = link->tunnel->now_ns + REFUSED_S * UINT64_C(1000000000);
    return tunnel_link_send(link, TUNNEL_RESET, 0, 0, too_many_links);
}

static int take_limits(struct tunnel_link *link, struct poise_reader *body)
{
    struct tunnel *tunnel = link->tunnel;
    uint64_t window = poise_reader_varint(body);
    uint64_t streams = poise_reader_left(body) > 0 ? poise_reader_varint(body)
                                                   : TUNNEL_STREAMS_OLD;

    if (body->error || link->window > 0 || window == 0 ||
        window >> CREDIT_BITS || streams < 2) {
        return remote_bad("it says senseless limits");
    }
    link->window = window;
    link->stream_end =
        (uint32_t)(streams < TUNNEL_STREAMS ? streams : TUNNEL_STREAMS);
    link->deadline_ns = 0;
    if (!link->opens && tunnel_has_too_many_links(tunnel)) {
        return refuse_link(link);
    }
    tunnel->stats.links_made++;
    if (link->opens) {
        tunnel->backoff_ns = 0;
    }
    tunnel_log(tunnel, "linked with %s", link->name);
    return 0;
}

static int take_open(struct tunnel_link *link, struct poise_reader *body)
{
    const struct tunnel *tunnel = link->tunnel;
    uint64_t id = poise_reader_varint(body);
    uint64_t stream = poise_reader_varint(body);
    size_t len = 0;
    const char *name = poise_reader_blob(body, &len);
    struct tunnel_conn *conn;
    int code;

    if (body->error || link->opens || link->window == 0 || id <= link->ids ||
        stream == TUNNEL_CONTROL || stream >= TUNNEL_STREAMS ||
        link->streams[stream]) {
        return remote_bad("it opens a connection that cannot be");
    }
    link->ids = id;
    code = tunnel_conn_create(link, (uint32_t)stream, id, -1, &conn);
    if (code < 0) {
        return code;
    }
    conn->is_new = true;
    conn->route = tunnel_route_of(link->tunnel, name, len);
    link->tunnel->stats.carried++;
    for (size_t i = 0; i < tunnel->allowed_count; i++) {
        const struct remote_target *target = &tunnel->allowed[i];
        if (strlen(target->text) == len &&
            memcmp(target->text, name, len) == 0) {
            conn->target = target;
        }
    }
    if (link->draining >= tunnel->draining_most) {
        conn->target = NULL;
        conn->refusal = "too many wait there for users who read slowly";
    } else if (tunnel->conns > tunnel->conns_most) {
        conn->target = NULL;
        conn->refusal = "too many are open there (ulimit -n)";
    }
    return 0;
}

static int take_credit(struct tunnel_link *link, struct poise_reader *body)
{
    struct tunnel_conn *conn =
        tunnel_streams_find(link, poise_reader_varint(body));
    uint64_t more = poise_reader_varint(body);

    /* It may be over here already. */
    if (conn && !body->error) {
        if (more >> CREDIT_BITS || (conn->credit + more) >> CREDIT_BITS) {
            return remote_bad("it says senseless limits");
        }
        conn->credit += more;
    }
    return 0;
}

static int take_reset(struct tunnel_link *link, struct poise_reader *body)
{
    struct tunnel *tunnel = link->tunnel;
    uint64_t id = poise_reader_varint(body);
    struct tunnel_conn *conn = tunnel_streams_find(link, id);
    size_t len = 0;
    const char *why = poise_reader_blob(body, &len);

    if (!body->error && (conn || id == 0)) {
        if (conn) {
            conn->reset = true;
        }
        if (len > 0 && len <= TEXT_MOST && link->opens) {
            tunnel->stats.refused++;
            poise_error_set(ECONNREFUSED, "open a connection through",
                            link->name, "it says: %.*s", (int)len, why);
            tunnel_problem(tunnel);
        }
    }
    return 0;
}

static int take_message(struct tunnel_link *link, struct poise_reader *body)
{
    enum tunnel_message kind = (enum tunnel_message) * body->pos++;
    int code;

    switch (kind) {
    case TUNNEL_LIMITS:
        code = take_limits(link, body);
        break;
    case TUNNEL_OPEN:
        code = take_open(link, body);
        break;
    case TUNNEL_CREDIT:
        code = take_credit(link, body);
        break;
    case TUNNEL_RESET:
        code = take_reset(link, body);
        break;
    default:
        return remote_bad("a message of unknown kind");
    }
    return code == 0 && body->error ? remote_bad("a message is cut short")
                                    : code;
}

/* Whole messages, each after two bytes of its length. */
static int take_control(struct tunnel_link *link)
{
    struct poise_buf *coming = &link->coming;
    struct poise_reader reader = poise_reader_of(coming->data, coming->len);
    size_t used = 0;
    int code = 0;

    while (code == 0 && poise_reader_left(&reader) >= 2) {
        size_t len = (size_t)(reader.pos[0] | reader.pos[1] << 8);
        struct poise_reader body;

        if (len == 0 || len > MESSAGE_MOST) {
            return remote_bad("a message of impossible length");
        }
        if (len + 2 > poise_reader_left(&reader)) {
            break;
        }
        body = poise_reader_of(reader.pos + 2, len);
        code = take_message(link, &body);
        reader.pos += len + 2;
        used += len + 2;
    }
    if (used > 0) {
        coming->len -= used;
        memmove(coming->data, coming->data + used, coming->len);
    }
    return code;
}

static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    struct tunnel_link *link = arg;
    int code;

    if (stream != TUNNEL_CONTROL) {
        struct tunnel_conn *conn = link->streams[stream];
        return conn && !conn->received_end
                   ? tunnel_conn_take(conn, piece)
                   : remote_bad("data of a connection that there is not");
    }
    code = poise_dedup_join(&link->joined, piece, &link->coming);
    return code < 0 ? code : take_control(link);
}

static int ended(uint32_t stream, void *arg)
{
    struct tunnel_link *link = arg;
    struct tunnel_conn *conn = link->streams[stream];

    if (!conn || conn->received_end) {
        return remote_bad("the end of a connection that there is not");
    }
    conn->received_end = true;
    tunnel_streams_release(conn);
    return 0;
}

/* ---- what goes ---------------------------------------------------------- */

int tunnel_link_send(struct tunnel_link *link, enum tunnel_message kind,
                     uint64_t first, uint64_t second, const char *text)
{
    struct poise_buf *control = &link->control;
    size_t at = control->len, len;

    poise_buf_append(control, "\0\0", 2);
    poise_buf_putc(control, (char)kind);
    poise_buf_varint(control, first);
    if (kind != TUNNEL_RESET) {
        poise_buf_varint(control, second);
    }
    if (text) {
        len = strlen(text);
        poise_buf_blob(control, text, len < TEXT_MOST ? len : TEXT_MOST);
    }
    if (!control->error) {
        len = control->len - at - 2;
        control->data[at] = (char)(len & 255);
        control->data[at + 1] = (char)(len >> 8);
    }
    return control->error;
}

int tunnel_link_hand_over(struct tunnel_link *link)
{
    bool any = link->control.len > 0;
    int code =
        remote_messages_send(link->peer, &link->control, &link->control_at);

    if (code == 0 && any) {
        link->met = link->dirty = true;
    }
    /* Nothing can be said before the other end said hello. */
    return code == -EAGAIN && !link->met ? 0 : code;
}

int tunnel_link_emit(const struct poise_dedup_piece *piece, void *arg)
{
    struct tunnel_link *link = arg;
    struct tunnel_conn *conn = link->feeding;
    struct poise_dedup_piece placed = *piece;

    if (piece->kind == POISE_DEDUP_SEGMENT && piece->len < LITERAL_MOST) {
        placed.kind = POISE_DEDUP_LITERAL;
    }
    /* Segmenters go from one connection to another. */
    placed.place.x = conn->sent_at;
    conn->sent_at += piece->len;
    return poise_dedup_peer_send_piece(link->peer, conn->stream, &placed);
}

bool tunnel_link_has_room(const struct tunnel_link *link)
{
    const void *data;

    return remote_link_has_greeted(&link->wire) &&
           poise_dedup_peer_output(link->peer, &data) == 0 &&
           poise_dedup_peer_in_flight(link->peer) < IN_FLIGHT_MOST;
}

bool tunnel_link_is_up(const struct tunnel_link *link)
{
    return link->window > 0;
}

int tunnel_link_open(struct tunnel_link *link, int fd, const char *target)
{
    const struct tunnel *tunnel = link->tunnel;
    struct tunnel_conn *conn;
    uint32_t stream = tunnel_streams_next(link);
    int code;

    if (tunnel->conns >= tunnel->conns_most) {
        return poise_error_set(EUSERS, "carry one more connection to", target,
                               "%u are open, and the limit of this process "
                               "for files allows no more (ulimit -n)",
                               tunnel->conns);
    }
    if (stream == 0) {
        return poise_error_set(EUSERS, "carry one more connection to", target,
                               "%u are open, and no link has more",
                               link->count);
    }
    code = tunnel_conn_create(link, stream, link->ids + 1, fd, &conn);
    if (code < 0) {
        return code;
    }
    link->ids++;
    link->last_stream = stream;
    conn->route = tunnel_route_of(link->tunnel, target, strlen(target));
    link->tunnel->stats.carried++;
    remote_guard(fd);
    code = tunnel_link_send(link, TUNNEL_OPEN, conn->id, stream, target);
    if (code < 0) {
        /* The link is lost with it. */
        link->lost = true;
    }
    return 0;
}

/* ---- moving bytes ------------------------------------------------------- */

/* All that can be; 1 if something is left. */
static int write_link(struct tunnel_link *link)
{
    for (;;) {
        const void *data;
        size_t len = poise_dedup_peer_output(link->peer, &data);
        ssize_t done;

        if (len == 0 && remote_link_has_greeted(&link->wire)) {
            return 0;
        }
        done = remote_link_write(&link->wire, data, len);
        if (done < 0) {
            return done == -EAGAIN ? 1 : (int)done;
        }
        poise_dedup_peer_took(link->peer, (size_t)done);
    }
}

/* Write what there is, and when all is written, what is held back: it would
 * only have waited. 1 if the link is full. */
static int pump(struct tunnel_link *link)
{
    for (;;) {
        int code = tunnel_link_hand_over(link);

        if (code == 0) {
            code = write_link(link);
        }
        if (code != 0 || !link->dirty) {
            return code;
        }
        link->dirty = false;
        code = poise_dedup_peer_flush(link->peer);
        if (code < 0) {
            return code;
        }
    }
}

static int read_link(struct tunnel_link *link)
{
    size_t total = 0;

    link->more = false;
    while (total < TURN_BYTES) {
        unsigned char *buffer = link->tunnel->buffer;
        ssize_t bytes_read =
            remote_link_read(&link->wire, buffer, TUNNEL_BUFFER);
        int code;

        if (bytes_read < 0) {
            return bytes_read == -EAGAIN ? 0 : (int)bytes_read;
        }
        total += (size_t)bytes_read;
        code = bytes_read > 0 ? poise_dedup_peer_feed(link->peer, buffer,
                                                      (size_t)bytes_read)
                              : 0;
        if (code < 0) {
            return code;
        }
    }
    link->more = true;
    return 0;
}

/* ---- connections -------------------------------------------------------- */

/* The connection that sent least of late goes first. */
static struct tunnel_conn *pick(struct tunnel_link *link)
{
    struct tunnel_conn *best = NULL;

    for (unsigned i = 0; i < link->count; i++) {
        struct tunnel_conn *conn = link->conns[i];
        if (conn->can_read && conn->fd >= 0 && !conn->connecting &&
            !conn->sent_end && conn->credit > 0 &&
            (!best || conn->recent < best->recent)) {
            best = conn;
        }
    }
    return best;
}

static void decay(struct tunnel_link *link)
{
    uint64_t now = link->tunnel->now_ns;

    if (now - link->decayed_ns < DECAY_NS) {
        return;
    }
    link->decayed_ns = now;
    for (unsigned i = 0; i < link->count; i++) {
        link->conns[i]->recent /= 2;
    }
}

/* From connections to the link while it takes it. */
static int carry(struct tunnel_link *link)
{
    size_t total = 0;
    int code = pump(link);

    decay(link);
    while (code == 0 && total < TURN_BYTES && tunnel_link_has_room(link)) {
        struct tunnel_conn *conn = pick(link);

        if (!conn) {
            return 0;
        }
        total += link->chunk;
        code = tunnel_conn_read(conn, link->chunk);
        if (code == 0) {
            code = pump(link);
        }
        if (code == 0 && link->chunk < CHUNK_MOST) {
            link->chunk *= 2;
        } else if (code == 1 && link->chunk > CHUNK_LEAST &&
                   link->chunk > link->wire.busy) {
            link->chunk /= 2;
        }
    }
    return code < 0 ? code : 0;
}

/* Hand on what came, and let go what is over. */
static int serve(struct tunnel_link *link)
{
    uint64_t now = link->tunnel->now_ns;

    for (unsigned i = 0; i < link->count;) {
        struct tunnel_conn *conn = link->conns[i];
        uint64_t due;
        int code;

        code = tunnel_conn_write(conn);
        due = tunnel_conn_due(conn);
        if (code == 0 && due > 0 && due <= now) {
            code = tunnel_conn_flush(conn);
        }
        if (code < 0) {
            return code;
        }
        if (tunnel_conn_is_done(conn)) {
            tunnel_conn_destroy(conn); /* the next one is here now */
        } else {
            i++;
        }
    }
    return 0;
}

/* ---- a turn ------------------------------------------------------------- */

static int run(struct tunnel_link *link)
{
    struct poise_dedup_peer_options options = {
        .level = link->tunnel->options.level,
        .pad_bytes = link->tunnel->options.pad_bytes,
        .deliver = deliver,
        .ended = ended,
        .arg = link,
    };
    int code = tunnel_streams_create(link);

    code = code < 0 ? code : tunnel_cache_take(link);
    if (code == 0) {
        options.store = link->cache->store;
        code = poise_dedup_peer_create(&options, &link->peer);
    }
    /* Ciphers may have taken in more than they needed. */
    link->more = true;
    return code < 0 ? code
                    : tunnel_link_send(link, TUNNEL_LIMITS, TUNNEL_WINDOW,
                                       TUNNEL_STREAMS, NULL);
}

/* What comes before the wire: 1 if it is there. */
static int prepare(struct tunnel_link *link)
{
    int code =
        remote_link_prepare(&link->wire, link->can_read, link->can_write);

    if (code == 1 && !link->peer) {
        code = run(link);
    } else if (code == 1) {
        code = 0;
    }
    if (code == 0 && link->deadline_ns > 0 &&
        link->tunnel->now_ns > link->deadline_ns) {
        return link->refused
                   ? poise_error_set(EUSERS, "serve", link->name,
                                     too_many_links)
                   : poise_error_set(ETIMEDOUT, "meet", link->name,
                                     "after %d s it did not say all of its "
                                     "greeting",
                                     LINK_S);
    }
    return code < 0 ? code : link->peer != NULL;
}

/* What it asks for and does not take: its own connections wait for their bytes
 * to be read, so this is never more of one that keeps the rules. */
static int check_output(const struct tunnel_link *link)
{
    const void *data;

    return poise_dedup_peer_in_flight(link->peer) <=
                       link->tunnel->unread_most &&
                   poise_dedup_peer_output(link->peer, &data) < OUTPUT_MOST
               ? 0
               : remote_bad("it lets us say more and more and takes nothing");
}

int tunnel_link_turn(struct tunnel_link *link)
{
    int code = prepare(link);

    if (code <= 0) {
        return code;
    }
    if (link->refused) {
        code = pump(link);
        return code != 0 ? (code < 0 ? code : 0)
                         : poise_error_set(EUSERS, "serve", link->name,
                                           too_many_links);
    }
    code = link->can_read || link->more ? read_link(link) : 0;
    code = code < 0 ? code : check_output(link);
    if (code == 0) {
        code = serve(link);
    }
    return code < 0 ? code : carry(link);
}

short tunnel_link_events(const struct tunnel_link *link)
{
    const void *data;

    return remote_link_events(
        &link->wire,
        link->peer && poise_dedup_peer_output(link->peer, &data) > 0);
}

uint64_t tunnel_link_due(const struct tunnel_link *link)
{
    uint64_t due = link->more ? 1 : link->deadline_ns;

    for (unsigned i = 0; i < link->count; i++) {
        uint64_t at = tunnel_conn_due(link->conns[i]);
        if (at > 0 && (due == 0 || at < due)) {
            due = at;
        }
    }
    return due;
}
