/*
 * Messages over links that come and go. Each link carries records; those that
 * are messages are numbered by their order and kept until the other end says
 * that they came, so that the next link can go on where this one ended. Layout:
 * docs/vnc.md.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    PING_S = 2,     /* how often the other end is asked */
    PINGS_MOST = 5, /* without a word; then the link is done with */
    ACK_MS = 200,   /* until messages are acknowledged that nobody waits for */
    QUEUE_MS = 10,  /* that a frame may wait beside a round trip */
    HEAD_MOST = 11, /* bytes of a record's kind and length */
    COMPACT = 1 << 16,
    UNREAD_MOST = PROXY_RECORD_MOST + (1 << 20), /* bytes not taken */
};
static const char magic[] = "POISEVNC";

/* ---- a link ------------------------------------------------------------- */

int proxy_wire_create(int fd, const struct remote_target *to,
                      const struct remote_keys *keys, const char *host,
                      struct proxy_wire **out)
{
    struct proxy_wire *made = poise_alloc(1, sizeof *made);
    struct poise_buf name = {0};
    int code;

    if (!made) {
        return -ENOMEM;
    }
    if (fd < 0) {
        poise_buf_puts(&name, to->text);
    } else {
        remote_peer_put(fd, &name);
    }
    poise_buf_str(&name);
    made->name = name.data;
    made->slot = -1;
    made->can_read = true;
    made->link = (struct remote_link){
        .fd = fd,
        .to = to,
        .keys = keys,
        .host = host,
        .name = name.data,
        .kind = "proxy of a screen",
    };
    remote_link_greet(&made->link, magic, PROXY_VERSION);
    code = name.error ? -ENOMEM : remote_link_begin(&made->link);
    if (code < 0) {
        if (fd >= 0) {
            made->link.fd = -1; /* still the caller's */
        }
        proxy_wire_destroy(made);
        return code;
    }
    *out = made;
    return 0;
}

void proxy_wire_destroy(struct proxy_wire *wire)
{
    if (wire) {
        remote_link_close(&wire->link);
        poise_buf_free(&wire->in);
        poise_buf_free(&wire->out);
        free(wire->name);
        free(wire);
    }
}

/* What was taken of the buffer goes, now and then. */
static void compact(struct poise_buf *buf, size_t *at, uint64_t *base)
{
    if (*at == buf->len || (*at > COMPACT && *at > buf->len / 2)) {
        if (buf->len > *at) {
            memmove(buf->data, buf->data + *at, buf->len - *at);
        }
        buf->len -= *at;
        *base += *at;
        *at = 0;
    }
}

int proxy_wire_read(struct proxy_wire *wire, unsigned char *buffer)
{
    bool was_open = wire->link.state == REMOTE_OPEN;
    int code =
        remote_link_prepare(&wire->link, wire->can_read, wire->can_write);
    size_t total = 0;

    if (code <= 0 || (was_open && !wire->can_read && !wire->more)) {
        return code;
    }
    wire->more = false;
    compact(&wire->in, &wire->in_at, &wire->in_base);
    while (total < PROXY_TURN) {
        ssize_t got = remote_link_read(&wire->link, buffer, PROXY_BUFFER);

        if (got < 0 && got != -EAGAIN && total > 0) {
            break; /* what came before the end is looked at first */
        }
        if (got < 0) {
            return got == -EAGAIN ? 1 : (int)got;
        }
        total += (size_t)got;
        wire->heard = true;
        code = poise_buf_append(&wire->in, buffer, (size_t)got);
        if (code < 0) {
            return code;
        }
    }
    wire->more = true;
    return 1;
}

int proxy_wire_write(struct proxy_wire *wire)
{
    if (wire->link.state != REMOTE_OPEN) {
        return 0;
    }
    for (;;) {
        size_t left = wire->out.len - wire->out_at;
        ssize_t done;

        if (left == 0 && remote_link_has_greeted(&wire->link)) {
            break;
        }
        done = remote_link_write(
            &wire->link, left ? wire->out.data + wire->out_at : NULL, left);
        if (done < 0) {
            return done == -EAGAIN ? 0 : (int)done;
        }
        wire->out_at += (size_t)done;
    }
    compact(&wire->out, &wire->out_at, &wire->out_base);
    return wire->out.error;
}

short proxy_wire_events(const struct proxy_wire *wire)
{
    return remote_link_events(&wire->link, wire->out.len > wire->out_at);
}

void proxy_wire_put(struct proxy_wire *wire, enum proxy_record kind,
                    const void *data, size_t len)
{
    poise_buf_putc(&wire->out, (char)kind);
    poise_buf_blob(&wire->out, data, len);
}

int proxy_wire_take(struct proxy_wire *wire, size_t most,
                    enum proxy_record *kind, struct poise_reader *body)
{
    size_t have = wire->in.len - wire->in_at;
    struct poise_reader reader;
    uint64_t len;

    if (have < 2) {
        return 0;
    }
    reader = poise_reader_of(wire->in.data + wire->in_at, have);
    *kind = (enum proxy_record) * reader.pos++;
    len = poise_reader_varint(&reader);
    if (reader.error) {
        return have < HEAD_MOST ? 0 : proxy_bad("a record has no length");
    }
    if (len > most) {
        return proxy_bad("a record is too long");
    }
    if (len > poise_reader_left(&reader)) {
        return 0;
    }
    *body = poise_reader_of(reader.pos, (size_t)len);
    wire->in_at += have - poise_reader_left(&reader) + (size_t)len;
    return 1;
}

/* ---- a channel ---------------------------------------------------------- */

void proxy_channel_drop(struct proxy_channel *channel)
{
    proxy_wire_destroy(channel->wire);
    channel->wire = NULL;
    channel->is_up = false;
    channel->frame_count = 0;
}

void proxy_channel_free(struct proxy_channel *channel)
{
    proxy_channel_drop(channel);
    poise_buf_free(&channel->kept);
}

/* Messages that came are kept no longer. */
static int forget(struct proxy_channel *channel, uint64_t received)
{
    struct poise_reader reader =
        poise_reader_of(channel->kept.data, channel->kept.len);
    unsigned gone = 0;

    if (received < channel->first || received > channel->next) {
        return proxy_bad("it acknowledges what it cannot");
    }
    for (; channel->first < received; channel->first++) {
        size_t len;
        reader.pos++;
        poise_reader_blob(&reader, &len);
    }
    channel->kept.len = poise_reader_left(&reader);
    if (channel->kept.len > 0) {
        memmove(channel->kept.data, reader.pos, channel->kept.len);
    }
    while (gone < channel->frame_count &&
           channel->frames[gone].number < received) {
        gone++;
    }
    channel->frame_count -= gone;
    memmove(channel->frames, channel->frames + gone,
            channel->frame_count * sizeof *channel->frames);
    return 0;
}

int proxy_channel_resume(struct proxy_channel *channel, struct proxy_wire *wire,
                         uint64_t received)
{
    uint64_t now = poise_clock_ns();
    int code = forget(channel, received);

    if (code < 0) {
        return code;
    }
    if (channel->wire != wire) {
        proxy_channel_drop(channel);
    }
    channel->wire = wire;
    channel->is_up = true;
    channel->frame_count = 0;
    channel->acked = channel->received;
    channel->pings = 0;
    channel->rtt_ns = 0; /* the way may be another one */
    channel->ping_ns = 0;
    channel->ack_ns = 0;
    if (channel->kept.len > 0) {
        /* All of it is one frame, which the next one waits for. */
        channel->frames[channel->frame_count++] =
            (struct proxy_frame){channel->next - 1, now};
    }
    return poise_buf_append(&wire->out, channel->kept.data, channel->kept.len);
}

int proxy_channel_send(struct proxy_channel *channel, enum proxy_message kind,
                       const void *data, size_t len)
{
    size_t at = channel->kept.len;

    poise_buf_putc(&channel->kept, PROXY_MESSAGE);
    poise_buf_varint(&channel->kept, len + 1);
    poise_buf_putc(&channel->kept, (char)kind);
    poise_buf_append(&channel->kept, data, len);
    if (channel->kept.error) {
        return channel->kept.error;
    }
    channel->next++;
    return channel->is_up
               ? poise_buf_append(&channel->wire->out, channel->kept.data + at,
                                  channel->kept.len - at)
               : 0;
}

void proxy_channel_mark_frame(struct proxy_channel *channel, uint64_t now)
{
    if (channel->frame_count < PROXY_FRAMES) {
        channel->frames[channel->frame_count++] =
            (struct proxy_frame){channel->next - 1, now};
    }
}

/* What waits in the network is seen by its age: a frame that is older than two
 * round trips has waited for one behind others. */
bool proxy_channel_has_room(const struct proxy_channel *channel, uint64_t now)
{
    return channel->is_up && channel->wire->out.len == channel->wire->out_at &&
           channel->frame_count < PROXY_FRAMES &&
           (channel->frame_count == 0 ||
            now - channel->frames[0].sent_ns <
                2 * channel->rtt_ns + QUEUE_MS * UINT64_C(1000000));
}

size_t proxy_channel_kept(const struct proxy_channel *channel)
{
    return channel->kept.len;
}

int proxy_channel_record(struct proxy_channel *channel, enum proxy_record kind,
                         struct poise_reader *body, uint64_t now)
{
    uint64_t value;

    switch (kind) {
    case PROXY_ACK:
        value = poise_reader_varint(body);
        return body->error ? proxy_bad("a record is cut short")
                           : forget(channel, value);
    case PROXY_PING:
        if (poise_reader_left(body) != sizeof value) {
            return proxy_bad("a question of another length");
        }
        if (channel->wire->out.len - channel->wire->out_at > UNREAD_MOST) {
            return proxy_bad("it asks again and again and takes nothing");
        }
        proxy_wire_put(channel->wire, PROXY_PONG, body->pos, sizeof value);
        return 0;
    case PROXY_PONG:
        value = poise_reader_u64(body);
        if (!body->error && value <= now &&
            (channel->rtt_ns == 0 || now - value < channel->rtt_ns)) {
            channel->rtt_ns = now - value;
        }
        return 0;
    case PROXY_PAD:
        return 0;
    case PROXY_BYE:
        return 1;
    default:
        return proxy_bad("a record of unknown kind");
    }
}

static void ask(struct proxy_channel *channel, uint64_t now)
{
    unsigned char bytes[8];

    poise_put_u64(bytes, now);
    proxy_wire_put(channel->wire, PROXY_PING, bytes, sizeof bytes);
    channel->ping_ns = now;
    channel->pings++;
}

static void acknowledge(struct proxy_channel *channel)
{
    struct poise_buf count = {0};

    poise_buf_varint(&count, channel->received);
    proxy_wire_put(channel->wire, PROXY_ACK, count.data, count.len);
    poise_buf_free(&count);
    channel->acked = channel->received;
    channel->ack_ns = 0;
}

/* Fill up with zeros, in records of two bytes and more. */
static void pad(struct proxy_wire *wire, uint64_t size)
{
    enum { PIECE = 120 };
    static const unsigned char zeros[PIECE];
    uint64_t end = wire->out_base + wire->out.len;
    uint64_t left = (size - end % size) % size;

    left += left == 1 ? size : 0;
    while (left > 0) {
        uint64_t piece = left < PIECE ? left : PIECE;
        piece -= left - piece == 1;
        proxy_wire_put(wire, PROXY_PAD, zeros, (size_t)piece - 2);
        left -= piece;
    }
}

int proxy_channel_flush(struct proxy_channel *channel, bool at_once,
                        uint64_t now)
{
    struct proxy_wire *wire = channel->wire;

    if (!channel->is_up) {
        return proxy_wire_write(wire);
    }
    if (channel->received > channel->acked && channel->ack_ns == 0) {
        channel->ack_ns = now + ACK_MS * UINT64_C(1000000);
    }
    if (channel->received > channel->acked &&
        (at_once || channel->ack_ns <= now)) {
        acknowledge(channel);
    }
    if (wire->heard) {
        /* Also a part of a record, which may take long. */
        channel->pings = 0;
        wire->heard = false;
    }
    if (now - channel->ping_ns > PING_S * PROXY_SECOND_NS) {
        /* Counted, not timed: a process that stood still has not listened. */
        if (channel->pings == PINGS_MOST) {
            return poise_error_set(ETIMEDOUT, "go on with", wire->name,
                                   "it says nothing");
        }
        ask(channel, now);
    }
    if (channel->pad_bytes > 0) {
        pad(wire, channel->pad_bytes);
    }
    return wire->out.error ? wire->out.error : proxy_wire_write(wire);
}

uint64_t proxy_channel_due(const struct proxy_channel *channel)
{
    uint64_t due = 0;

    if (channel->wire && channel->wire->more) {
        return 1;
    }
    if (channel->is_up) {
        due = channel->ping_ns + PING_S * PROXY_SECOND_NS;
        if (channel->ack_ns > 0 && channel->ack_ns < due) {
            due = channel->ack_ns;
        }
    }
    return due;
}
