/*
 * A link to another end: ciphers, a greeting, then the wire, with messages in
 * one stream and a connection in each of the others.
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
    LITERAL_MOST = 16, /* a shorter segment is not worth a fingerprint */
    LINK_S = 20,       /* until both ends know each other */
    DECAY_NS = 100000000,
    CREDIT_BITS = 40,
};
static const char magic[] = "POISETUN";

/* ---- beginning and end -------------------------------------------------- */

static int start_connecting(struct tunnel_trunk *trunk)
{
    struct tunnel *tunnel = trunk->tunnel;
    int code = -EADDRNOTAVAIL;

    while (trunk->tried < tunnel->via.count) {
        code = tunnel_connect(&tunnel->via, trunk->tried++);
        if (code >= 0) {
            trunk->fd = code;
            return 0;
        }
    }
    return code;
}

static int start_shaking(struct tunnel_trunk *trunk)
{
    const struct tunnel *tunnel = trunk->tunnel;
    const struct tunnel_keys *keys =
        trunk->opens ? tunnel->via_keys : tunnel->serve_keys;

    tunnel_watch(trunk->fd);
    trunk->state = TUNNEL_SHAKING;
    return keys ? tunnel_tls_create(keys, trunk->fd,
                                    trunk->opens ? tunnel->via_name.host : NULL,
                                    &trunk->tls)
                : 0;
}

int tunnel_trunk_create(struct tunnel *tunnel, int fd,
                        struct tunnel_trunk **out)
{
    struct tunnel_trunk *made = poise_alloc(1, sizeof *made);
    struct poise_buf name = {0};
    int code;

    if (!made) {
        return -ENOMEM;
    }
    made->tunnel = tunnel;
    made->opens = fd < 0;
    made->fd = fd;
    made->slot = -1;
    made->chunk = CHUNK_LEAST;
    made->deadline_ns = poise_clock_ns() + LINK_S * UINT64_C(1000000000);
    memcpy(made->greeting, magic, sizeof magic - 1);
    poise_put_u64(made->greeting + sizeof magic - 1, TUNNEL_VERSION);
    if (fd < 0) {
        poise_buf_puts(&name, tunnel->via.text);
        code = start_connecting(made);
    } else {
        tunnel_peer_put(fd, &name);
        code = start_shaking(made);
    }
    poise_buf_str(&name);
    made->name = name.data;
    if (code == 0 && !name.error) {
        *out = made;
        return 0;
    }
    if (fd >= 0) {
        made->fd = -1; /* still the caller's */
    }
    tunnel_trunk_destroy(made);
    return code < 0 ? code : -ENOMEM;
}

void tunnel_trunk_destroy(struct tunnel_trunk *trunk)
{
    trunk->tunnel->stats.resets += trunk->count;
    for (uint32_t i = 0; i < TUNNEL_STREAMS; i++) {
        if (trunk->conns[i]) {
            tunnel_conn_destroy(trunk->conns[i]);
        }
    }
    poise_dedup_segmenter_destroy(trunk->spare);
    poise_dedup_peer_destroy(trunk->peer);
    tunnel_tls_destroy(trunk->tls);
    if (trunk->fd >= 0) {
        close(trunk->fd);
    }
    poise_buf_free(&trunk->talk);
    poise_buf_free(&trunk->coming);
    free(trunk->name);
    free(trunk);
}

/* ---- what comes --------------------------------------------------------- */

static struct tunnel_conn *find_conn(const struct tunnel_trunk *trunk,
                                     uint64_t id)
{
    for (uint32_t i = 1; i < TUNNEL_STREAMS; i++) {
        if (trunk->conns[i] && trunk->conns[i]->id == id) {
            return trunk->conns[i];
        }
    }
    return NULL;
}

static int take_limits(struct tunnel_trunk *trunk, struct poise_reader *body)
{
    struct tunnel *tunnel = trunk->tunnel;
    uint64_t window = poise_reader_varint(body);

    if (body->error || trunk->window > 0 || window == 0 ||
        window >> CREDIT_BITS) {
        return remote_bad("it says senseless limits");
    }
    trunk->window = window;
    trunk->deadline_ns = 0;
    tunnel->stats.links_made++;
    if (trunk->opens) {
        tunnel->backoff_ns = 0;
    }
    tunnel_tell(tunnel, "linked with %s", trunk->name);
    return 0;
}

static int take_open(struct tunnel_trunk *trunk, struct poise_reader *body)
{
    const struct tunnel *tunnel = trunk->tunnel;
    uint64_t id = poise_reader_varint(body);
    uint64_t stream = poise_reader_varint(body);
    size_t len = 0;
    const char *name = poise_reader_blob(body, &len);
    struct tunnel_conn *conn;
    int code;

    if (body->error || trunk->opens || trunk->window == 0 || id <= trunk->ids ||
        stream == TUNNEL_TALK || stream >= TUNNEL_STREAMS ||
        trunk->conns[stream]) {
        return remote_bad("it opens a connection that cannot be");
    }
    trunk->ids = id;
    code = tunnel_conn_create(trunk, (uint32_t)stream, id, -1, &conn);
    if (code < 0) {
        return code;
    }
    conn->fresh = true;
    conn->way = tunnel_way_of(trunk->tunnel, name, len);
    trunk->tunnel->stats.carried++;
    for (size_t i = 0; i < tunnel->allowed_count; i++) {
        const struct tunnel_target *target = &tunnel->allowed[i];
        if (strlen(target->text) == len &&
            memcmp(target->text, name, len) == 0) {
            conn->target = target;
        }
    }
    return 0;
}

static int take_credit(struct tunnel_trunk *trunk, struct poise_reader *body)
{
    struct tunnel_conn *conn = find_conn(trunk, poise_reader_varint(body));
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

static int take_reset(struct tunnel_trunk *trunk, struct poise_reader *body)
{
    struct tunnel *tunnel = trunk->tunnel;
    struct tunnel_conn *conn = find_conn(trunk, poise_reader_varint(body));
    size_t len = 0;
    const char *why = poise_reader_blob(body, &len);

    if (conn && !body->error) {
        conn->reset = true;
        if (len > 0 && len <= TEXT_MOST && trunk->opens) {
            tunnel->stats.refused++;
            poise_error_set(ECONNREFUSED, "open a connection through",
                            trunk->name, "it says: %.*s", (int)len, why);
            tunnel_problem(tunnel);
        }
    }
    return 0;
}

static int take_message(struct tunnel_trunk *trunk, struct poise_reader *body)
{
    enum tunnel_message kind = (enum tunnel_message) * body->pos++;
    int code;

    switch (kind) {
    case TUNNEL_LIMITS:
        code = take_limits(trunk, body);
        break;
    case TUNNEL_OPEN:
        code = take_open(trunk, body);
        break;
    case TUNNEL_CREDIT:
        code = take_credit(trunk, body);
        break;
    case TUNNEL_RESET:
        code = take_reset(trunk, body);
        break;
    default:
        return remote_bad("a message of unknown kind");
    }
    return code == 0 && body->error ? remote_bad("a message is cut short")
                                    : code;
}

/* Whole messages, each after two bytes of its length. */
static int take_talk(struct tunnel_trunk *trunk)
{
    struct poise_buf *coming = &trunk->coming;
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
        code = take_message(trunk, &body);
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
    struct tunnel_trunk *trunk = arg;
    int code;

    if (stream != TUNNEL_TALK) {
        struct tunnel_conn *conn = trunk->conns[stream];
        return conn && !conn->got_end
                   ? tunnel_conn_take(conn, piece)
                   : remote_bad("data of a connection that there is not");
    }
    code = poise_dedup_join(&trunk->joined, piece, &trunk->coming);
    return code < 0 ? code : take_talk(trunk);
}

static int ended(uint32_t stream, void *arg)
{
    struct tunnel_trunk *trunk = arg;
    struct tunnel_conn *conn = trunk->conns[stream];

    if (!conn || conn->got_end) {
        return remote_bad("the end of a connection that there is not");
    }
    conn->got_end = true;
    return 0;
}

/* ---- what goes ---------------------------------------------------------- */

int tunnel_trunk_say(struct tunnel_trunk *trunk, enum tunnel_message kind,
                     uint64_t first, uint64_t second, const char *text)
{
    struct poise_buf *talk = &trunk->talk;
    size_t at = talk->len, len;

    poise_buf_append(talk, "\0\0", 2);
    poise_buf_putc(talk, (char)kind);
    poise_buf_varint(talk, first);
    if (kind == TUNNEL_OPEN || kind == TUNNEL_CREDIT) {
        poise_buf_varint(talk, second);
    }
    if (text) {
        len = strlen(text);
        poise_buf_blob(talk, text, len < TEXT_MOST ? len : TEXT_MOST);
    }
    if (!talk->error) {
        len = talk->len - at - 2;
        talk->data[at] = (char)(len & 255);
        talk->data[at + 1] = (char)(len >> 8);
    }
    return talk->error;
}

int tunnel_trunk_settle(struct tunnel_trunk *trunk)
{
    bool any = trunk->talk.len > 0;
    int code = remote_messages_send(trunk->peer, &trunk->talk, &trunk->talked);

    if (code == 0 && any) {
        trunk->met = trunk->dirty = true;
    }
    /* Nothing can be said before the other end said hello. */
    return code == -EAGAIN && !trunk->met ? 0 : code;
}

int tunnel_trunk_emit(const struct poise_dedup_piece *piece, void *arg)
{
    struct tunnel_trunk *trunk = arg;
    struct tunnel_conn *conn = trunk->feeding;
    struct poise_dedup_piece placed = *piece;

    if (piece->kind == POISE_DEDUP_SEGMENT && piece->len < LITERAL_MOST) {
        placed.kind = POISE_DEDUP_LITERAL;
    }
    /* Segmenters go from one connection to another. */
    placed.place.x = conn->sent_at;
    conn->sent_at += piece->len;
    return poise_dedup_peer_send_piece(trunk->peer, conn->stream, &placed);
}

bool tunnel_trunk_has_room(const struct tunnel_trunk *trunk)
{
    const void *data;

    return trunk->greeted == sizeof trunk->greeting &&
           poise_dedup_peer_output(trunk->peer, &data) == 0 &&
           poise_dedup_peer_in_flight(trunk->peer) < IN_FLIGHT_MOST;
}

bool tunnel_trunk_has_stream(const struct tunnel_trunk *trunk)
{
    return trunk->window > 0 && trunk->count < TUNNEL_STREAMS - 1;
}

int tunnel_trunk_open(struct tunnel_trunk *trunk, int fd, const char *target)
{
    struct tunnel_conn *conn;
    uint32_t stream = 1;
    int code;

    while (trunk->conns[stream]) {
        stream++;
    }
    code = tunnel_conn_create(trunk, stream, ++trunk->ids, fd, &conn);
    if (code < 0) {
        return code;
    }
    conn->way = tunnel_way_of(trunk->tunnel, target, strlen(target));
    trunk->tunnel->stats.carried++;
    tunnel_guard(fd);
    code = tunnel_trunk_say(trunk, TUNNEL_OPEN, conn->id, stream, target);
    if (code < 0) {
        /* The link is lost with it. */
        trunk->lost = true;
    }
    return 0;
}

/* ---- moving bytes ------------------------------------------------------- */

static ssize_t link_read(struct tunnel_trunk *trunk)
{
    unsigned char *buffer = trunk->tunnel->buffer;
    int code = poise_fault_check(POISE_FAULT_READ);
    ssize_t got;

    if (!code && trunk->tls) {
        return tunnel_tls_read(trunk->tls, buffer, TUNNEL_BUFFER);
    }
    got = code ? -1 : recv(trunk->fd, buffer, TUNNEL_BUFFER, 0);
    code = code ? code : errno;
    return got >= 0 ? got
           : code == EAGAIN || code == EINTR
               ? -EAGAIN
               : poise_error_set(code, "read from the other end", trunk->name,
                                 NULL);
}

static ssize_t link_write(struct tunnel_trunk *trunk, const void *data,
                          size_t len)
{
    int code = poise_fault_check(POISE_FAULT_SEND);
    ssize_t done;

    if (!code && tunnel_is_full(trunk->fd, &trunk->busy)) {
        return -EAGAIN;
    }
    if (!code && trunk->tls) {
        return tunnel_tls_write(trunk->tls, data, len);
    }
    done = code ? -1 : send(trunk->fd, data, len, MSG_NOSIGNAL);
    code = code ? code : errno;
    return done >= 0 ? done
           : code == EAGAIN || code == EINTR
               ? -EAGAIN
               : poise_error_set(code, "write to the other end", trunk->name,
                                 NULL);
}

/* All that can be; 1 if something is left. */
static int write_link(struct tunnel_trunk *trunk)
{
    for (;;) {
        const void *data;
        size_t len = sizeof trunk->greeting - trunk->greeted;
        bool is_greeting = len > 0;
        ssize_t done;

        if (is_greeting) {
            data = trunk->greeting + trunk->greeted;
        } else {
            len = poise_dedup_peer_output(trunk->peer, &data);
        }
        if (len == 0) {
            return 0;
        }
        done = link_write(trunk, data, len);
        if (done < 0) {
            return done == -EAGAIN ? 1 : (int)done;
        }
        trunk->out_bytes += (uint64_t)done;
        if (is_greeting) {
            trunk->greeted += (size_t)done;
        } else {
            poise_dedup_peer_took(trunk->peer, (size_t)done);
        }
    }
}

/* Write what there is, and when all is written, what is held back: it would
 * only have waited. 1 if the link is full. */
static int pump(struct tunnel_trunk *trunk)
{
    for (;;) {
        int code = tunnel_trunk_settle(trunk);

        if (code == 0) {
            code = write_link(trunk);
        }
        if (code != 0 || !trunk->dirty) {
            return code;
        }
        trunk->dirty = false;
        code = poise_dedup_peer_flush(trunk->peer);
        if (code < 0) {
            return code;
        }
    }
}

/* Bytes of the link: the greeting, then the wire. */
static int take_bytes(struct tunnel_trunk *trunk, const unsigned char *data,
                      size_t len)
{
    for (; len > 0 && trunk->heard < sizeof trunk->greeting; len--) {
        if (*data++ != trunk->greeting[trunk->heard++]) {
            return poise_error_set(
                EPROTO, "understand the other end", trunk->name,
                trunk->heard > sizeof magic - 1
                    ? "it is of another version"
                    : "it is no tunnel, or its keys are others");
        }
    }
    return len > 0 ? poise_dedup_peer_feed(trunk->peer, data, len) : 0;
}

static int read_link(struct tunnel_trunk *trunk)
{
    size_t total = 0;

    trunk->more = false;
    while (total < TURN_BYTES) {
        ssize_t got = link_read(trunk);
        int code;

        if (got == -EAGAIN) {
            return 0;
        }
        if (got <= 0) {
            return got < 0 ? (int)got
                           : poise_error_set(ECONNRESET, "go on with",
                                             trunk->name, "it is gone");
        }
        total += (size_t)got;
        trunk->in_bytes += (uint64_t)got;
        code = take_bytes(trunk, trunk->tunnel->buffer, (size_t)got);
        if (code < 0) {
            return code;
        }
    }
    trunk->more = true;
    return 0;
}

/* ---- connections -------------------------------------------------------- */

/* Whoever sent least of late goes first. */
static struct tunnel_conn *pick(struct tunnel_trunk *trunk)
{
    struct tunnel_conn *best = NULL;

    for (uint32_t i = 1; i < TUNNEL_STREAMS; i++) {
        struct tunnel_conn *conn = trunk->conns[i];
        if (conn && conn->can_read && conn->fd >= 0 && !conn->connecting &&
            !conn->sent_end && conn->credit > 0 &&
            (!best || conn->recent < best->recent)) {
            best = conn;
        }
    }
    return best;
}

static void decay(struct tunnel_trunk *trunk)
{
    uint64_t now = trunk->tunnel->now_ns;

    if (now - trunk->decayed_ns < DECAY_NS) {
        return;
    }
    trunk->decayed_ns = now;
    for (uint32_t i = 1; i < TUNNEL_STREAMS; i++) {
        if (trunk->conns[i]) {
            trunk->conns[i]->recent /= 2;
        }
    }
}

/* From connections to the link while it takes it. */
static int carry(struct tunnel_trunk *trunk)
{
    size_t total = 0;
    int code = pump(trunk);

    decay(trunk);
    while (code == 0 && total < TURN_BYTES && tunnel_trunk_has_room(trunk)) {
        struct tunnel_conn *conn = pick(trunk);

        if (!conn) {
            return 0;
        }
        total += trunk->chunk;
        code = tunnel_conn_read(conn, trunk->chunk);
        if (code == 0) {
            code = pump(trunk);
        }
        if (code == 0 && trunk->chunk < CHUNK_MOST) {
            trunk->chunk *= 2;
        } else if (code == 1 && trunk->chunk > CHUNK_LEAST &&
                   trunk->chunk > trunk->busy) {
            trunk->chunk /= 2;
        }
    }
    return code < 0 ? code : 0;
}

/* Hand on what came, and let go what is over. */
static int serve(struct tunnel_trunk *trunk)
{
    uint64_t now = trunk->tunnel->now_ns;

    for (uint32_t i = 1; i < TUNNEL_STREAMS; i++) {
        struct tunnel_conn *conn = trunk->conns[i];
        uint64_t due;
        int code;

        if (!conn) {
            continue;
        }
        code = tunnel_conn_write(conn);
        due = tunnel_conn_due(conn);
        if (code == 0 && due > 0 && due <= now) {
            code = tunnel_conn_flush(conn);
        }
        if (code < 0) {
            return code;
        }
        if (tunnel_conn_is_done(conn)) {
            tunnel_conn_destroy(conn);
        }
    }
    return 0;
}

/* ---- a turn ------------------------------------------------------------- */

static int run(struct tunnel_trunk *trunk)
{
    struct poise_dedup_peer_options options = {
        .store = trunk->tunnel->store,
        .level = trunk->tunnel->options.level,
        .deliver = deliver,
        .ended = ended,
        .arg = trunk,
    };
    int code = poise_dedup_peer_create(&options, &trunk->peer);

    trunk->state = TUNNEL_RUNNING;
    /* Ciphers may have taken in more than they needed. */
    trunk->more = true;
    return code < 0
               ? code
               : tunnel_trunk_say(trunk, TUNNEL_LIMITS, TUNNEL_WINDOW, 0, NULL);
}

static int finish_connecting(struct tunnel_trunk *trunk)
{
    int code = tunnel_connected(trunk->fd);

    if (code == 0) {
        return start_shaking(trunk);
    }
    close(trunk->fd);
    trunk->fd = -1;
    poise_error_set(-code, "connect to", trunk->name, NULL);
    return trunk->tried < trunk->tunnel->via.count ? start_connecting(trunk)
                                                   : code;
}

/* What comes before the wire: 1 if it is there. */
static int prepare(struct tunnel_trunk *trunk)
{
    int code = 0;

    if (trunk->state == TUNNEL_CONNECTING && trunk->can_write) {
        code = finish_connecting(trunk);
    }
    if (code == 0 && trunk->state == TUNNEL_SHAKING) {
        code = trunk->tls ? tunnel_tls_shake(trunk->tls) : 1;
        if (code == 1) {
            code = run(trunk);
        }
    }
    if (code == 0 && trunk->deadline_ns > 0 &&
        trunk->tunnel->now_ns > trunk->deadline_ns) {
        return poise_error_set(ETIMEDOUT, "meet", trunk->name,
                               "it says nothing");
    }
    return code < 0 ? code : trunk->state == TUNNEL_RUNNING;
}

int tunnel_trunk_turn(struct tunnel_trunk *trunk)
{
    int code = prepare(trunk);

    if (code <= 0) {
        return code;
    }
    code = trunk->can_read || trunk->more ? read_link(trunk) : 0;
    if (code == 0) {
        code = serve(trunk);
    }
    return code < 0 ? code : carry(trunk);
}

short tunnel_trunk_events(const struct tunnel_trunk *trunk)
{
    const void *data;
    bool wants_write = trunk->tls && tunnel_tls_wants_write(trunk->tls);

    if (trunk->state == TUNNEL_CONNECTING) {
        return POLLOUT;
    }
    if (trunk->peer && (trunk->greeted < sizeof trunk->greeting ||
                        poise_dedup_peer_output(trunk->peer, &data) > 0)) {
        wants_write = true;
    }
    return (short)(POLLIN | (wants_write ? POLLOUT : 0));
}

uint64_t tunnel_trunk_due(const struct tunnel_trunk *trunk)
{
    uint64_t due = trunk->more ? 1 : trunk->deadline_ns;

    for (uint32_t i = 1; i < TUNNEL_STREAMS; i++) {
        uint64_t at = trunk->conns[i] ? tunnel_conn_due(trunk->conns[i]) : 0;
        if (at > 0 && (due == 0 || at < due)) {
            due = at;
        }
    }
    return due;
}

void tunnel_trunk_bytes(const struct tunnel_trunk *trunk, uint64_t *out,
                        uint64_t *in)
{
    *out = trunk->out_bytes;
    *in = trunk->in_bytes;
    if (trunk->tls) {
        tunnel_tls_bytes(trunk->tls, out, in);
    }
}
