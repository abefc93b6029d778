/*
 * One connection of a user: what it sends goes into a stream of the wire, what
 * comes out of that goes to it. Each direction ends with one end of the
 * stream, after a message that says so if it was by an error.
 *
 * Credit. Of each connection the other end may send `granted` bytes more, and
 * this end `credit`; both begin with the window of LIMITS, and CREDIT adds to
 * them. What came is charged until it was written to the user's socket:
 *
 *     conn->exposed == conn->granted + (conn->out.len - conn->taken)
 *     link->exposed == the sum over the link's connections
 *
 * A byte that comes moves from granted to out, so only grant() makes exposed
 * grow, and only writing, or dropping what came, makes it shrink. grant() keeps
 * link->exposed below TUNNEL_BUDGET, but lets each connection have
 * TUNNEL_WINDOW whatever the others hold: a user that does not read cannot stop
 * the others. What waits for users of all links together is bounded, too
 * (TUNNEL_HELD_MOST): the connection whose bytes would be too many is reset.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    /* What is shorter is sent as it is: a reference costs as much. */
    TINY = 64,
    /* Someone may sit there and wait: held back no moment. */
    SMALL = 4096,
    /* More is likely to come; what is cut off is not found in the cache. */
    HOLD_NS = 1000000,
    OUT_KEPT = 1 << 18, /* memory that is kept for what comes */
};

int tunnel_conn_create(struct tunnel_link *link, uint32_t stream, uint64_t id,
                       int fd, struct tunnel_conn **out)
{
    struct tunnel_conn *made = poise_alloc(1, sizeof *made);

    if (!made) {
        return -ENOMEM;
    }
    made->link = link;
    made->stream = stream;
    made->id = id;
    if (tunnel_streams_add(made) < 0) {
        free(made);
        return -ENOMEM;
    }
    made->fd = fd;
    made->slot = -1;
    made->credit = link->window;
    made->granted = made->exposed = TUNNEL_WINDOW;
    link->exposed += TUNNEL_WINDOW;
    *out = made;
    return 0;
}

/* What came is dropped, and so is what comes. */
static void drop(struct tunnel_conn *conn)
{
    size_t left = conn->out.len - conn->taken;

    conn->exposed -= left;
    conn->link->exposed -= left;
    conn->link->tunnel->held -= left;
    poise_buf_free(&conn->out);
    conn->taken = 0;
}

void tunnel_conn_destroy(struct tunnel_conn *conn)
{
    struct tunnel_link *link = conn->link;

    if (conn->fd >= 0 && tunnel_conn_is_done(conn)) {
        remote_close_done(conn->fd);
    } else if (conn->fd >= 0) {
        remote_close_hard(conn->fd);
    }
    drop(conn);
    link->exposed -= conn->exposed;
    poise_dedup_segmenter_destroy(conn->segmenter);
    tunnel_streams_remove(conn);
    free(conn);
}

bool tunnel_conn_is_done(const struct tunnel_conn *conn)
{
    return conn->sent_end && conn->received_end && (conn->fd < 0 || conn->shut);
}

int tunnel_conn_abort(struct tunnel_conn *conn, const char *why)
{
    struct tunnel_link *link = conn->link;
    bool is_known = conn->reset || (conn->received_end && conn->sent_end);
    int code = 0;

    link->tunnel->stats.resets++;
    if (conn->fd >= 0) {
        remote_close_hard(conn->fd);
        conn->fd = -1;
    }
    drop(conn);
    poise_dedup_segmenter_destroy(conn->segmenter);
    conn->segmenter = NULL;
    conn->connecting = false;
    if (!is_known) {
        code =
            tunnel_link_send(link, TUNNEL_RESET, conn->id, 0, why ? why : "");
    }
    if (code == 0) {
        code = tunnel_link_hand_over(link);
    }
    if (code == 0 && !conn->sent_end) {
        conn->sent_end = true;
        tunnel_streams_release(conn);
        link->dirty = true;
        code = poise_dedup_peer_end(link->peer, conn->stream);
    }
    return code;
}

/* ---- to its target ------------------------------------------------------ */

int tunnel_conn_connect(struct tunnel_conn *conn)
{
    struct tunnel *tunnel = conn->link->tunnel;

    conn->is_new = false;
    if (!conn->target) {
        tunnel->stats.refused++;
        return tunnel_conn_abort(conn, conn->refusal
                                           ? conn->refusal
                                           : "it may not connect to there");
    }
    while (conn->tried < conn->target->count) {
        int fd = remote_connect(conn->target, conn->tried++);
        if (fd >= 0) {
            conn->fd = fd;
            conn->connecting = true;
            return 0;
        }
    }
    tunnel->stats.refused++;
    tunnel_problem(tunnel);
    return tunnel_conn_abort(conn, poise_error_last()->why);
}

static int finish_connecting(struct tunnel_conn *conn)
{
    int code = remote_connected(conn->fd);

    if (code == 0) {
        conn->connecting = false;
        remote_guard(conn->fd);
        return 0;
    }
    poise_error_set(-code, "connect to", conn->target->text, NULL);
    close(conn->fd);
    conn->fd = -1;
    return tunnel_conn_connect(conn);
}

short tunnel_conn_events(const struct tunnel_conn *conn)
{
    bool wants_write = conn->connecting || conn->taken < conn->out.len;
    bool wants_read = !conn->connecting && !conn->sent_end &&
                      conn->credit > 0 && tunnel_link_has_room(conn->link);

    return conn->fd < 0 ? 0
                        : (short)((wants_write ? POLLOUT : 0) |
                                  (wants_read ? POLLIN : 0));
}

/* ---- from the other end ------------------------------------------------- */

int tunnel_conn_take(struct tunnel_conn *conn,
                     const struct poise_dedup_piece *piece)
{
    uint64_t before = conn->joined.at;
    size_t fresh;
    int code = poise_dedup_join(&conn->joined, piece, NULL);

    if (code < 0) {
        return code;
    }
    fresh = (size_t)(conn->joined.at - before);
    if (fresh > conn->granted) {
        return remote_bad("it sends more than it may");
    }
    conn->granted -= fresh;
    conn->too_much |=
        conn->link->tunnel->held + fresh > conn->link->tunnel->held_most;
    if (conn->reset || conn->too_much || (conn->fd < 0 && conn->sent_end)) {
        conn->exposed -= fresh;
        conn->link->exposed -= fresh;
        return 0;
    }
    conn->link->tunnel->held += fresh;
    return poise_buf_append(&conn->out, piece->data + piece->len - fresh,
                            fresh);
}

/* Let more come: as much as keeps a far link busy, while all connections
 * together have that much. */
static int grant(struct tunnel_conn *conn)
{
    struct tunnel_link *link = conn->link;
    uint64_t target = TUNNEL_BUDGET / link->count, least, more, left;
    uint64_t most = link->tunnel->window_most;

    target = target < most ? target : most;
    target = target > TUNNEL_WINDOW ? target : TUNNEL_WINDOW;
    if (conn->received_end || conn->exposed >= target) {
        return 0;
    }
    more = target - conn->exposed;
    left = link->exposed < TUNNEL_BUDGET ? TUNNEL_BUDGET - link->exposed : 0;
    least = conn->exposed < TUNNEL_WINDOW ? TUNNEL_WINDOW - conn->exposed : 0;
    if (more > left) {
        more = left > least ? left : least;
    }
    if (more == 0 || (more < target / 4 && conn->granted > TUNNEL_WINDOW / 2)) {
        return 0;
    }
    conn->granted += more;
    conn->exposed += more;
    link->exposed += more;
    return tunnel_link_send(link, TUNNEL_CREDIT, conn->id, more, NULL);
}

/* Some of what came went on: -EAGAIN when no more can now. */
static int write_some(struct tunnel_conn *conn)
{
    int code = poise_fault_check(POISE_FAULT_SEND);
    ssize_t done = code ? -1
                        : send(conn->fd, conn->out.data + conn->taken,
                               conn->out.len - conn->taken, MSG_NOSIGNAL);

    if (done < 0) {
        code = code ? code : errno;
        return code == EINTR ? -EAGAIN : -code;
    }
    conn->taken += (size_t)done;
    conn->exposed -= (size_t)done;
    conn->link->exposed -= (size_t)done;
    conn->link->tunnel->held -= (size_t)done;
    return 0;
}

/* What was handed on needs no room. */
static void tidy(struct tunnel_conn *conn)
{
    if (conn->taken < conn->out.len) {
        if (conn->taken > conn->out.len / 2) {
            conn->out.len -= conn->taken;
            memmove(conn->out.data, conn->out.data + conn->taken,
                    conn->out.len);
            conn->taken = 0;
        }
        return;
    }
    conn->taken = 0;
    if (conn->out.cap > OUT_KEPT) {
        poise_buf_free(&conn->out);
    } else {
        poise_buf_reset(&conn->out);
    }
}

int tunnel_conn_write(struct tunnel_conn *conn)
{
    int code = 0;

    if (conn->is_new && !conn->reset && !conn->too_much) {
        return tunnel_conn_connect(conn);
    }
    if ((conn->reset || conn->too_much) && (conn->fd >= 0 || !conn->sent_end)) {
        return tunnel_conn_abort(
            conn,
            conn->reset ? NULL : "too much waits for users who read slowly");
    }
    if (conn->fd < 0) {
        return 0;
    }
    if (conn->connecting) {
        return conn->can_write ? finish_connecting(conn) : 0;
    }
    while (conn->taken < conn->out.len && code == 0) {
        code = write_some(conn);
    }
    if (code < 0 && code != -EAGAIN) {
        return tunnel_conn_abort(conn, NULL);
    }
    tidy(conn);
    if (conn->received_end && conn->out.len == 0 && !conn->shut) {
        conn->shut = true;
        shutdown(conn->fd, SHUT_WR);
    }
    return grant(conn);
}

/* ---- to the other end --------------------------------------------------- */

int tunnel_conn_flush(struct tunnel_conn *conn)
{
    struct tunnel_link *link = conn->link;
    int code;

    if (!conn->segmenter) {
        return 0;
    }
    link->feeding = conn;
    link->dirty = true;
    code = poise_dedup_segmenter_flush(conn->segmenter);
    conn->held = 0;
    if (code == 0 && conn->route != &link->tunnel->default_route &&
        conn->early == conn->route->samples) {
        /* It may know where in an array it is. */
        return 0;
    }
    /* It holds nothing now: the next connection may have it. */
    if (code < 0 || link->spare ||
        conn->route != &link->tunnel->default_route) {
        poise_dedup_segmenter_destroy(conn->segmenter);
    } else {
        link->spare = conn->segmenter;
    }
    conn->segmenter = NULL;
    return code;
}

static int send_end(struct tunnel_conn *conn)
{
    int code = tunnel_conn_flush(conn);

    conn->sent_end = true;
    tunnel_streams_release(conn);
    conn->link->dirty = true;
    return code < 0 ? code
                    : poise_dedup_peer_end(conn->link->peer, conn->stream);
}

static int send_bytes(struct tunnel_conn *conn, const unsigned char *data,
                      size_t len)
{
    struct tunnel_link *link = conn->link;
    int code = 0;

    link->feeding = conn;
    link->dirty = true;
    if (!conn->segmenter && len < TINY && conn->drained) {
        struct poise_dedup_piece piece = {
            .kind = POISE_DEDUP_LITERAL,
            .data = data,
            .len = len,
            .place = {.width = (uint32_t)len, .height = 1}};
        return tunnel_link_emit(&piece, link);
    }
    if (!conn->segmenter && link->spare &&
        conn->route == &link->tunnel->default_route) {
        conn->segmenter = link->spare;
        link->spare = NULL;
    } else if (!conn->segmenter) {
        conn->early = conn->route->samples;
        code = poise_dedup_segmenter_create(conn->route->method,
                                            &conn->route->cut, tunnel_link_emit,
                                            link, &conn->segmenter);
    }
    code = code < 0 ? code : tunnel_route_sample(conn->route, data, len);
    if (code == 0) {
        code = poise_dedup_segmenter_feed(conn->segmenter, data, len);
        conn->held += len;
    }
    return code == 0 && conn->drained && conn->held <= SMALL
               ? tunnel_conn_flush(conn)
               : code;
}

int tunnel_conn_read(struct tunnel_conn *conn, size_t most)
{
    struct tunnel *tunnel = conn->link->tunnel;
    int code = poise_fault_check(POISE_FAULT_READ), err;
    ssize_t bytes_read;

    most = most < conn->credit ? most : (size_t)conn->credit;
    bytes_read = code ? -1 : recv(conn->fd, tunnel->buffer, most, 0);
    if (bytes_read < 0) {
        code = code ? code : errno;
        conn->drained = true;
        conn->can_read = false;
        return code == EAGAIN || code == EINTR ? 0
                                               : tunnel_conn_abort(conn, NULL);
    }
    err = tunnel_link_hand_over(conn->link);
    if (err < 0) {
        return err;
    }
    if (bytes_read == 0) {
        conn->can_read = false;
        return send_end(conn);
    }
    conn->drained = (size_t)bytes_read < most;
    conn->can_read = !conn->drained;
    conn->credit -= (uint64_t)bytes_read;
    conn->recent += (uint64_t)bytes_read;
    conn->read_ns = tunnel->now_ns;
    return send_bytes(conn, tunnel->buffer, (size_t)bytes_read);
}

uint64_t tunnel_conn_due(const struct tunnel_conn *conn)
{
    bool is_waiting = conn->drained || conn->credit == 0;

    return conn->held > 0 && is_waiting ? conn->read_ns + HOLD_NS : 0;
}
