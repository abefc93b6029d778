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
    SAVE_MS = 2000, /* after which the cache is handed to the system */
    /* For the final message of an end that does not read any more.
     */
    FINAL_MESSAGE_S = 5,
};

/* ---- what comes --------------------------------------------------------- */

/* Hand over the whole messages of a stream. */
static int take_messages(struct remote_channel *channel,
                         struct poise_buf *coming)
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
        code = channel->on_message((enum remote_message)reader.pos[0], &body,
                                   channel->arg);
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

static int take_piece(struct remote_channel *channel, uint32_t stream,
                      const struct poise_dedup_piece *piece)
{
    struct poise_dedup_joiner *joiner;
    uint64_t before;
    size_t fresh;
    int code;

    if (stream >= REMOTE_STREAMS) {
        return remote_bad("a stream that there is not");
    }
    joiner = &channel->joined[stream];
    before = joiner->at;
    if (stream != REMOTE_DATA) {
        code = poise_dedup_join(joiner, piece, &channel->coming[stream]);
        return code < 0 ? code
                        : take_messages(channel, &channel->coming[stream]);
    }
    code = poise_dedup_join(joiner, piece, NULL);
    fresh = (size_t)(joiner->at - before);
    return code < 0 ? code
                    : channel->on_data(piece->data + piece->len - fresh, fresh,
                                       channel->arg);
}

/* What goes wrong with what came is no fault of the wire, which is needed
 * still to say so. */
static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    struct remote_channel *channel = arg;

    if (channel->failure == 0 && !channel->ignores) {
        channel->failure = take_piece(channel, stream, piece);
    }
    return 0;
}

static int ended(uint32_t stream, void *arg)
{
    struct remote_channel *channel = arg;

    if (stream < REMOTE_STREAMS) {
        channel->joined[stream].at = 0;
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

int remote_channel_send(struct remote_channel *channel,
                        enum remote_message kind, const struct poise_buf *body)
{
    return say(&channel->control, kind, body);
}

int remote_channel_send_list(struct remote_channel *channel,
                             enum remote_message kind,
                             const struct poise_buf *body)
{
    return say(&channel->list, kind, body);
}

/* Hand messages over to the wire; nothing before the other end's hello has
 * come. */
static int settle(struct remote_channel *channel)
{
    bool any = channel->control.len > 0;
    int code = remote_messages_send(channel->peer, &channel->control,
                                    &channel->control_at);

    if (code == -EAGAIN && !channel->met) {
        return 0;
    }
    if (code == 0 && any) {
        channel->met = channel->dirty = true;
    }
    if (code == 0 && channel->met && channel->list.len > 0) {
        code = poise_dedup_peer_send(channel->peer, REMOTE_LIST,
                                     channel->list.data, channel->list.len);
        poise_buf_reset(&channel->list);
        channel->dirty = true;
    }
    return code;
}

int remote_channel_send_data(struct remote_channel *channel, const void *data,
                             size_t len)
{
    int code = settle(channel);

    channel->dirty = true;
    return code < 0
               ? code
               : poise_dedup_peer_send(channel->peer, REMOTE_DATA, data, len);
}

int remote_channel_end_data(struct remote_channel *channel)
{
    int code = settle(channel);

    channel->dirty = true;
    return code < 0 ? code : poise_dedup_peer_end(channel->peer, REMOTE_DATA);
}

int remote_channel_flush(struct remote_channel *channel)
{
    int code = settle(channel);

    if (code == 0 && channel->dirty) {
        code = poise_dedup_peer_flush(channel->peer);
        channel->dirty = false;
    }
    return code;
}

bool remote_channel_has_room(const struct remote_channel *channel)
{
    const void *data;

    return channel->met &&
           poise_dedup_peer_in_flight(channel->peer) < IN_FLIGHT_MOST &&
           poise_dedup_peer_output(channel->peer, &data) < OUTPUT_MOST;
}

/* ---- moving bytes ------------------------------------------------------- */

/* A message that it sent before may say why. */
static void set_broken(struct remote_channel *channel)
{
    channel->broken = true;
    channel->heard_ns = poise_clock_ns();
}

static int write_some(struct remote_channel *channel)
{
    const void *data;
    size_t len = poise_dedup_peer_output(channel->peer, &data);
    ssize_t done;
    int code;

    if (len == 0) {
        return 0;
    }
    if (channel->broken) {
        poise_dedup_peer_took(channel->peer, len);
        return 0;
    }
    code = poise_fault_check(POISE_FAULT_SEND);
    done = code ? -1 : write(channel->out, data, len);
    if (done >= 0) {
        poise_dedup_peer_took(channel->peer, (size_t)done);
        return 0;
    }
    code = code ? code : errno;
    if (code == EAGAIN || code == EINTR) {
        return 0;
    }
    if (code == EPIPE || code == ECONNRESET) {
        set_broken(channel);
        return 0;
    }
    return poise_error_set(code, "write to the other end", NULL, NULL);
}

static int read_some(struct remote_channel *channel)
{
    int code = poise_fault_check(POISE_FAULT_READ);
    ssize_t bytes_read =
        code ? -1 : read(channel->in, channel->buffer, READ_BYTES);

    if (bytes_read > 0) {
        channel->heard_ns = poise_clock_ns();
        code = poise_dedup_peer_feed(channel->peer, channel->buffer,
                                     (size_t)bytes_read);
        return code < 0 ? code : channel->failure;
    }
    code = code ? code : errno;
    if (bytes_read == 0 || code == ECONNRESET) {
        channel->closed = true;
        return 0;
    }
    return code == EAGAIN || code == EINTR
               ? 0
               : poise_error_set(code, "read from the other end", NULL, NULL);
}

int remote_channel_write(struct remote_channel *channel)
{
    int code = remote_channel_flush(channel);

    return code < 0 ? code : write_some(channel);
}

static void tick(struct remote_channel *channel)
{
    uint64_t now = poise_clock_ns();

    if (now - channel->saved_ns >= SAVE_MS * UINT64_C(1000000)) {
        channel->saved_ns = now;
        if (poise_dedup_store_flush(channel->store) < 0) {
            poise_error_clear(); /* it costs bytes, not the transfer */
        }
    }
    if (channel->tick &&
        now - channel->ticked_ns >= TICK_MS * UINT64_C(1000000)) {
        channel->ticked_ns = now;
        channel->tick(channel->tick_arg);
    }
}

int remote_channel_wait(struct remote_channel *channel, struct pollfd *fds,
                        size_t count, bool wait)
{
    int code = poll(fds, count, wait ? TICK_MS : 0);

    tick(channel);
    if (channel->stop && *channel->stop) {
        return poise_error_set(EINTR, "go on", NULL, "it was interrupted");
    }
    return code < 0 && errno != EINTR
               ? poise_error_set(errno, "wait for the other end", NULL, NULL)
               : 0;
}

int remote_channel_handle(struct remote_channel *channel,
                          const struct pollfd fds[2], bool wait)
{
    bool any = fds[0].revents || fds[1].revents;

    if (!any && channel->broken &&
        poise_clock_ns() - channel->heard_ns >
            FINAL_MESSAGE_S * UINT64_C(1000000000)) {
        return poise_error_set(EPIPE, "go on", NULL,
                               "the other end does not read any more");
    }
    if (!any && wait && channel->silence_ns > 0 &&
        poise_clock_ns() - channel->heard_ns > channel->silence_ns) {
        return poise_error_set(ETIMEDOUT, "hear the other end", NULL,
                               "nothing comes from it any more");
    }
    if (fds[1].events == 0 && fds[1].revents) {
        set_broken(channel);
    }
    return fds[0].revents ? read_some(channel) : 0;
}

int remote_channel_hand_over(struct remote_channel *channel)
{
    return settle(channel);
}

int remote_channel_prepare(struct remote_channel *channel, struct pollfd fds[2])
{
    const void *data;
    int code = settle(channel);

    if (code == 0) {
        code = write_some(channel);
    }
    if (code < 0) {
        return code;
    }
    fds[0] = (struct pollfd){.fd = channel->in, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = -1};
    if (channel->closed) {
        return poise_error_set(ECONNRESET, "go on", NULL,
                               "the other end is gone");
    }
    if (!channel->broken) {
        /* Without events, an error: an end that has nothing to send for long
         * would not learn that the other end is gone. */
        fds[1].fd = channel->out;
        fds[1].events =
            poise_dedup_peer_output(channel->peer, &data) > 0 ? POLLOUT : 0;
    }
    return 0;
}

int remote_channel_turn(struct remote_channel *channel, bool wait)
{
    struct pollfd fds[2];
    int code = wait ? settle(channel) : 0;

    if (code == 0 && wait) {
        /* Nothing that is to be written may come while this sleeps. */
        code = poise_dedup_peer_wait(channel->peer);
    }
    if (code == 0) {
        code = remote_channel_prepare(channel, fds);
    }
    if (code == 0) {
        code = remote_channel_wait(channel, fds, 2, wait);
    }
    return code < 0 ? code : remote_channel_handle(channel, fds, wait);
}

int remote_channel_drain(struct remote_channel *channel)
{
    const void *data;
    int code = remote_channel_flush(channel);

    while (code == 0 && !channel->closed && !channel->broken &&
           poise_dedup_peer_output(channel->peer, &data) > 0) {
        code = remote_channel_turn(channel, true);
        code = code < 0 ? code : poise_dedup_peer_wait(channel->peer);
    }
    return code;
}

int remote_channel_open(struct remote_channel *channel, int level,
                        const char *segmenter)
{
    struct poise_dedup_peer_options options = {.store = channel->store,
                                               .level = level,
                                               .cut_stream = REMOTE_DATA,
                                               .packs_in_thread = true,
                                               .pad_bytes = channel->pad_bytes,
                                               .deliver = deliver,
                                               .ended = ended,
                                               .is_leader = channel->is_leader,
                                               .arg = channel};
    int fds[2] = {channel->in, channel->out};

    if (segmenter) {
        int code =
            poise_dedup_cut_parse(segmenter, &options.method, &options.cut);
        if (code < 0) {
            return code;
        }
    }
    if (channel->leader) {
        options.leader = channel->leader->peer;
    }
    for (int i = 0; i < 2 && !channel->is_leader; i++) {
        int flags = fcntl(fds[i], F_GETFL);
        if (flags < 0 || fcntl(fds[i], F_SETFL, flags | O_NONBLOCK) < 0) {
            return poise_error_set(errno, "use the connection", NULL, NULL);
        }
    }
    channel->heard_ns = channel->ticked_ns = channel->saved_ns =
        poise_clock_ns();
    channel->buffer = poise_alloc(REMOTE_BLOCK, 1);
    return channel->buffer ? poise_dedup_peer_create(&options, &channel->peer)
                           : -ENOMEM;
}

void remote_channel_ignore(struct remote_channel *channel)
{
    channel->ignores = true;
    channel->failure = 0;
}

void remote_channel_close(struct remote_channel *channel)
{
    poise_dedup_peer_destroy(channel->peer);
    channel->peer = NULL;
    for (int i = 0; i < REMOTE_STREAMS; i++) {
        poise_buf_free(&channel->coming[i]);
    }
    poise_buf_free(&channel->control);
    poise_buf_free(&channel->list);
    free(channel->buffer);
    channel->buffer = NULL;
}
