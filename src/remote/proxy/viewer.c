/*
 * A viewer, until it runs: its socket, its version and security, which the
 * server decides through the other proxy; and its connection to that, which is
 * made again when it breaks.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SHAKE_S = 300, /* somebody types a password */
    KEEP_MS = 300000,
    BACKOFF_MS = 200,
    BACKOFF_MOST_MS = 2000,
    CONNECT_S = 5,
    ANSWER_S = 60,
    VERSION_BYTES = 12,
    PASSED_MOST = 16 << 20, /* bytes that wait for it */
    IN_MOST = PROXY_INPUT_MOST,
};
static const char version[] = "RFB 003.008\n";

int proxy_viewer_create(struct proxy_view *view, int fd, bool socket,
                        bool beyond, struct proxy_viewer **out)
{
    struct poise_screen_codec_options codec = {.two_phase =
                                                   view->options.two_phase};
    struct proxy_viewer *made = poise_alloc(1, sizeof *made);
    int code;

    if (!made) {
        return -ENOMEM;
    }
    code = poise_screen_decoder_create(&codec, &made->decoder);
    if (code < 0) {
        free(made);
        return code;
    }
    made->fd = fd;
    made->slot = -1;
    made->number = ++view->numbers;
    made->socket.on = socket;
    made->socket.beyond = beyond;
    made->channel.pad_bytes = view->options.pad_bytes;
    made->deadline_ns = view->now_ns + SHAKE_S * PROXY_SECOND_NS;
    made->retry_ns = 1;
    made->encoding = SCREEN_RAW;
    proxy_format_default(&made->format);
    remote_no_delay(fd);
    if (!socket) {
        poise_buf_append(&made->out, version, VERSION_BYTES);
    }
    made->next = view->viewers;
    view->viewers = made;
    view->viewer_count++;
    view->stats.sessions++;
    *out = made;
    return 0;
}

static void count_link(struct proxy_view *view, const struct proxy_wire *wire)
{
    uint64_t out, in;

    if (wire) {
        remote_link_bytes(&wire->link, &out, &in);
        view->stats.link_out_bytes += out;
        view->stats.link_in_bytes += in;
    }
}

void proxy_viewer_destroy(struct proxy_view *view, struct proxy_viewer *viewer)
{
    if (viewer->channel.is_up) {
        proxy_wire_put(viewer->channel.wire, PROXY_BYE, NULL, 0);
        proxy_wire_write(viewer->channel.wire);
    }
    count_link(view, viewer->channel.wire);
    view->stats.viewer_out_bytes += viewer->bytes_out;
    proxy_channel_free(&viewer->channel);
    poise_screen_decoder_destroy(viewer->decoder);
    proxy_damage_free(&viewer->damage);
    proxy_encoder_free(&viewer->encoder);
    for (int i = 0; i < PROXY_PSEUDOS; i++) {
        poise_buf_free(&viewer->pseudos[i].data);
    }
    poise_buf_free(&viewer->raw);
    poise_buf_free(&viewer->in);
    poise_buf_free(&viewer->out);
    poise_buf_free(&viewer->framed);
    poise_buf_free(&viewer->rects);
    poise_buf_free(&viewer->reply);
    poise_buf_free(&viewer->black);
    poise_buf_free(&viewer->failure);
    close(viewer->fd);
    free(viewer);
    view->viewer_count--;
}

static void put_reason(struct proxy_viewer *viewer, const char *why)
{
    proxy_put_u32(&viewer->out, (uint32_t)strlen(why));
    poise_buf_puts(&viewer->out, why);
}

void proxy_viewer_fail(struct proxy_viewer *viewer, const char *why)
{
    if (viewer->state == PROXY_VIEWER_VERSION) {
        /* How it can be told depends on its version. */
        if (viewer->failure.len == 0) {
            poise_buf_puts(&viewer->failure, why);
        }
        return;
    }
    switch (viewer->state) {
    case PROXY_VIEWER_OFFER:
        if (viewer->minor == 3) {
            proxy_put_u32(&viewer->out, 0);
        } else {
            poise_buf_putc(&viewer->out, 0);
        }
        put_reason(viewer, why);
        break;
    case PROXY_VIEWER_SERVER:
    case PROXY_VIEWER_ANSWER:
        if (!viewer->welcome && (viewer->minor == 8 || viewer->challenged)) {
            proxy_put_u32(&viewer->out, 1);
        }
        if (!viewer->welcome && viewer->minor == 8) {
            put_reason(viewer, why);
        }
        break;
    default:
        break;
    }
    viewer->state = PROXY_VIEWER_ENDING;
}

/* ---- the handshake ------------------------------------------------------ */

/* The version is known, and so is what the server offers. */
static int make_offer(struct proxy_viewer *viewer)
{
    unsigned char type = viewer->offer[0];

    if (viewer->minor > 3) {
        poise_buf_putc(&viewer->out, (char)viewer->offer_count);
        poise_buf_append(&viewer->out, viewer->offer, viewer->offer_count);
        viewer->state = PROXY_VIEWER_TYPE;
        return viewer->out.error;
    }
    /* The proxy chooses for it: none, if that is offered. */
    if (memchr(viewer->offer, SCREEN_SECURITY_NONE, viewer->offer_count)) {
        type = SCREEN_SECURITY_NONE;
    }
    proxy_put_u32(&viewer->out, type);
    viewer->state = PROXY_VIEWER_SERVER;
    return proxy_channel_send(&viewer->channel, PROXY_TYPE, &type, 1);
}

static int take_version(struct proxy_viewer *viewer, const unsigned char *data)
{
    int minor;

    if (memcmp(data, "RFB 003.", 8) != 0 || data[11] != '\n') {
        return proxy_bad("it is no viewer of RFB 3");
    }
    minor = (data[8] - '0') * 100 + (data[9] - '0') * 10 + data[10] - '0';
    viewer->minor = minor >= 8 ? 8 : minor == 7 ? 7 : 3;
    viewer->state = PROXY_VIEWER_OFFER;
    if (viewer->failure.len > 0) {
        proxy_viewer_fail(viewer, poise_buf_str(&viewer->failure));
        return 0;
    }
    return viewer->has_offer ? make_offer(viewer) : 0;
}

/* Bytes taken; 0: more are needed; negative. */
static int64_t take_bytes(struct proxy_viewer *viewer,
                          const unsigned char *data, size_t len)
{
    int64_t need;
    int code;

    switch (viewer->state) {
    case PROXY_VIEWER_VERSION:
        if (len < VERSION_BYTES) {
            return 0;
        }
        code = take_version(viewer, data);
        return code < 0 ? code : VERSION_BYTES;
    case PROXY_VIEWER_TYPE:
        viewer->state = PROXY_VIEWER_SERVER;
        code = memchr(viewer->offer, data[0], viewer->offer_count)
                   ? proxy_channel_send(&viewer->channel, PROXY_TYPE, data, 1)
                   : proxy_bad("a viewer chooses what was not offered");
        return code < 0 ? code : 1;
    case PROXY_VIEWER_ANSWER:
        if (len < SCREEN_CHALLENGE_BYTES) {
            return 0;
        }
        viewer->state = PROXY_VIEWER_SERVER;
        code = proxy_channel_send(&viewer->channel, PROXY_ANSWER, data,
                                  SCREEN_CHALLENGE_BYTES);
        return code < 0 ? code : SCREEN_CHALLENGE_BYTES;
    case PROXY_VIEWER_INIT:
        viewer->state = PROXY_VIEWER_SERVER;
        code = proxy_channel_send(&viewer->channel, PROXY_SHARED, data, 1);
        return code < 0 ? code : 1;
    case PROXY_VIEWER_RUNNING:
        need = proxy_message_len(data, len);
        if (need <= 0 || (size_t)need > len) {
            return need < 0 ? need : 0;
        }
        code = proxy_viewer_message(viewer, data, (size_t)need);
        return code < 0 ? code : need;
    default:
        return 0;
    }
}

/* ---- the server's side -------------------------------------------------- */

static int take_welcome(struct proxy_viewer *viewer)
{
    if (viewer->state != PROXY_VIEWER_SERVER) {
        return proxy_bad("the server goes on before the viewer does");
    }
    /* Without security only 3.8 says how it went. */
    if (viewer->minor == 8 || viewer->challenged) {
        proxy_put_u32(&viewer->out, 0);
    }
    viewer->welcome = true;
    viewer->state = PROXY_VIEWER_INIT;
    return viewer->out.error;
}

static int take_ready(struct proxy_viewer *viewer, struct poise_reader *body)
{
    uint64_t width = poise_reader_varint(body);
    uint64_t height = poise_reader_varint(body);
    size_t name = poise_reader_left(body);

    if (viewer->state != PROXY_VIEWER_SERVER || body->error || width > 65535 ||
        height > 65535 || width * height > SCREEN_MOST_PIXELS) {
        return proxy_bad("it begins with a senseless screen");
    }
    viewer->width = (uint32_t)width;
    viewer->height = (uint32_t)height;
    proxy_put_u16(&viewer->out, viewer->width);
    proxy_put_u16(&viewer->out, viewer->height);
    proxy_format_put(&viewer->format, &viewer->out);
    proxy_put_u32(&viewer->out, (uint32_t)name);
    poise_buf_append(&viewer->out, body->pos, name);
    viewer->state = PROXY_VIEWER_RUNNING;
    viewer->deadline_ns = 0;
    return viewer->out.error
               ? viewer->out.error
               : proxy_damage_resize(&viewer->damage, viewer->width,
                                     viewer->height);
}

static int take_picture(struct proxy_viewer *viewer, struct poise_reader *body)
{
    struct poise_screen_decoded got;
    int code;

    poise_buf_reset(&viewer->reply);
    code = poise_screen_decode(viewer->decoder, body->pos,
                               poise_reader_left(body), &got, &viewer->reply);
    if (code < 0) {
        return code;
    }
    if (viewer->reply.len > 0) {
        code = proxy_channel_send(&viewer->channel, PROXY_REPLY,
                                  viewer->reply.data, viewer->reply.len);
    }
    viewer->picture = got.picture;
    if (got.resized) {
        code = code < 0 ? code : proxy_viewer_resized(viewer);
    }
    for (size_t i = 0; i < got.rect_count; i++) {
        proxy_damage_add(&viewer->damage, &got.rects[i]);
    }
    return code;
}

static int take_pseudo(struct proxy_viewer *viewer, struct poise_reader *body)
{
    struct proxy_pseudo *pseudo;
    struct poise_screen_rect rect;
    int32_t encoding;

    if (poise_reader_left(body) < 4) {
        return proxy_bad("a message is cut short");
    }
    encoding = (int32_t)poise_get_u32(body->pos);
    body->pos += 4;
    rect.x = (uint32_t)poise_reader_varint(body);
    rect.y = (uint32_t)poise_reader_varint(body);
    rect.width = (uint32_t)poise_reader_varint(body);
    rect.height = (uint32_t)poise_reader_varint(body);
    pseudo = proxy_pseudo_of(viewer, encoding);
    if (body->error || !pseudo || rect.x > 65535 || rect.y > 65535 ||
        rect.width > 65535 || rect.height > 65535) {
        return proxy_bad("it shows what there is not");
    }
    if (encoding == SCREEN_CURSOR &&
        poise_reader_left(body) !=
            (size_t)rect.width * rect.height * 4 +
                (size_t)(rect.width + 7) / 8 * rect.height) {
        return proxy_bad("its cursor is of another size");
    }
    pseudo->known = pseudo->due = true;
    pseudo->rect = rect;
    poise_buf_reset(&pseudo->data);
    return poise_buf_append(&pseudo->data, body->pos, poise_reader_left(body));
}

static int take_offer(struct proxy_viewer *viewer, struct poise_reader *body)
{
    size_t len = poise_reader_left(body);

    if (viewer->has_offer || len == 0 || len > sizeof viewer->offer) {
        return proxy_bad("it offers what it cannot");
    }
    memcpy(viewer->offer, body->pos, len);
    viewer->offer_count = len;
    viewer->has_offer = true;
    return viewer->state == PROXY_VIEWER_OFFER ? make_offer(viewer) : 0;
}

static int take_challenge(struct proxy_viewer *viewer,
                          struct poise_reader *body)
{
    if (viewer->state != PROXY_VIEWER_SERVER ||
        poise_reader_left(body) != SCREEN_CHALLENGE_BYTES) {
        return proxy_bad("a challenge that nobody expects");
    }
    viewer->state = PROXY_VIEWER_ANSWER;
    viewer->challenged = true;
    return poise_buf_append(&viewer->out, body->pos, SCREEN_CHALLENGE_BYTES);
}

int proxy_viewer_take(struct proxy_view *view, struct proxy_viewer *viewer,
                      enum proxy_message kind, struct poise_reader *body)
{
    struct poise_buf text = {0};

    switch (kind) {
    case PROXY_TYPES:
        return take_offer(viewer, body);
    case PROXY_CHALLENGE:
        return take_challenge(viewer, body);
    case PROXY_WELCOME:
        return take_welcome(viewer);
    case PROXY_READY:
        return take_ready(viewer, body);
    case PROXY_SCREEN:
        return take_picture(viewer, body);
    case PROXY_PSEUDO:
        return take_pseudo(viewer, body);
    case PROXY_PASSED:
        if (viewer->out.len + viewer->framed.len > PASSED_MOST) {
            return 0; /* it reads nothing, and misses a text */
        }
        return viewer->state == PROXY_VIEWER_RUNNING
                   ? poise_buf_append(&viewer->out, body->pos,
                                      poise_reader_left(body))
                   : proxy_bad("it speaks before it begins");
    case PROXY_NOTE:
    case PROXY_FAILED:
        poise_buf_append(&text, body->pos, poise_reader_left(body));
        poise_buf_str(&text);
        if (text.len > 0 && !text.error) {
            poise_text_mask(text.data, text.len, "");
            proxy_log(&view->options, "viewer %llu: the other end says: %s",
                      (unsigned long long)viewer->number, text.data);
        }
        if (kind == PROXY_FAILED) {
            proxy_viewer_fail(viewer, text.error ? "" : text.data);
        }
        poise_buf_free(&text);
        return viewer->out.error;
    default:
        return proxy_bad("a message of unknown kind");
    }
}

/* ---- the link ----------------------------------------------------------- */

static int begin_link(struct proxy_view *view, struct proxy_viewer *viewer)
{
    struct proxy_channel *channel = &viewer->channel;
    struct poise_buf body = {0};
    int code;

    if (viewer->backoff_ns > 0) {
        /* Its address may be another one by now. */
        remote_target_free(&view->via);
        code = remote_resolve(&view->via_name, false, &view->via);
        if (code < 0) {
            return code;
        }
    }
    code = proxy_wire_create(-1, &view->via, view->keys, view->via_name.host,
                             &channel->wire);
    if (code < 0) {
        return code;
    }
    channel->begun_ns = view->now_ns;
    if (viewer->has_token) {
        poise_buf_append(&body, viewer->token, PROXY_TOKEN);
        poise_buf_varint(&body, channel->received);
        proxy_wire_put(channel->wire, PROXY_RESUME, body.data, body.len);
    } else {
        proxy_wire_put(channel->wire, PROXY_BEGIN, NULL, 0);
    }
    poise_buf_free(&body);
    return 0;
}

static void lose_link(struct proxy_view *view, struct proxy_viewer *viewer)
{
    uint64_t twice = 2 * viewer->backoff_ns;
    uint64_t most = BACKOFF_MOST_MS * UINT64_C(1000000);

    if (!viewer->told_lost) {
        proxy_problem(&view->options);
        viewer->told_lost = true;
    }
    if (viewer->lost_ns == 0) {
        viewer->lost_ns = view->now_ns;
        view->stats.links_lost += viewer->channel.is_up;
    }
    count_link(view, viewer->channel.wire);
    proxy_channel_drop(&viewer->channel);
    twice = twice ? twice : BACKOFF_MS * UINT64_C(1000000);
    viewer->backoff_ns = twice < most ? twice : most;
    viewer->retry_ns = view->now_ns + viewer->backoff_ns;
}

static int take_accept(struct proxy_view *view, struct proxy_viewer *viewer,
                       struct poise_reader *body)
{
    struct proxy_channel *channel = &viewer->channel;
    uint64_t received;

    if (channel->is_up || poise_reader_left(body) <= PROXY_TOKEN ||
        (viewer->has_token &&
         memcmp(viewer->token, body->pos, PROXY_TOKEN) != 0)) {
        return proxy_bad("it goes on with another session");
    }
    memcpy(viewer->token, body->pos, PROXY_TOKEN);
    viewer->has_token = true;
    body->pos += PROXY_TOKEN;
    received = poise_reader_varint(body);
    if (body->error) {
        return proxy_bad("a record is cut short");
    }
    if (viewer->lost_ns > 0) {
        proxy_log(&view->options, "viewer %llu: linked again",
                  (unsigned long long)viewer->number);
    }
    viewer->backoff_ns = viewer->lost_ns = 0;
    viewer->told_lost = false;
    return proxy_channel_resume(channel, channel->wire, received);
}

static int take_record(struct proxy_view *view, struct proxy_viewer *viewer,
                       enum proxy_record kind, struct poise_reader *body)
{
    struct proxy_channel *channel = &viewer->channel;

    if (kind == PROXY_ACCEPT) {
        return take_accept(view, viewer, body);
    }
    if (kind == PROXY_REFUSE || (kind == PROXY_BYE && channel->is_up)) {
        proxy_log(&view->options, "viewer %llu: the other end: %.*s",
                  (unsigned long long)viewer->number,
                  kind == PROXY_BYE ? 9 : (int)poise_reader_left(body),
                  kind == PROXY_BYE ? "it is over" : (const char *)body->pos);
        proxy_viewer_fail(viewer, "the other end of the link ended it");
        return 0;
    }
    if (!channel->is_up) {
        return proxy_bad("it speaks before it accepts");
    }
    if (kind != PROXY_MESSAGE) {
        return proxy_channel_record(channel, kind, body, view->now_ns);
    }
    if (poise_reader_left(body) < 1) {
        return proxy_bad("a message is empty");
    }
    channel->received++;
    return proxy_viewer_take(view, viewer, (enum proxy_message) * body->pos++,
                             body);
}

/* Where a viewer has no session yet, its only link decides: a machine that
 * takes connections may be slow to answer. One that has tries again. */
static unsigned link_timeout_s(const struct proxy_viewer *viewer)
{
    bool is_slow = !viewer->has_token &&
                   viewer->channel.wire->link.state != REMOTE_CONNECTING;
    return is_slow ? ANSWER_S : CONNECT_S;
}

static int turn_link(struct proxy_view *view, struct proxy_viewer *viewer)
{
    struct proxy_channel *channel = &viewer->channel;
    int code;

    if (!channel->wire) {
        if (viewer->retry_ns > view->now_ns) {
            return 0;
        }
        code = begin_link(view, viewer);
        if (code < 0) {
            return code;
        }
    }
    code = proxy_wire_read(channel->wire, view->buffer);
    if (code >= 0 && !channel->is_up &&
        view->now_ns - channel->begun_ns >
            link_timeout_s(viewer) * PROXY_SECOND_NS) {
        return poise_error_set(ETIMEDOUT, "connect to", channel->wire->name,
                               "it did not answer for %u s",
                               link_timeout_s(viewer));
    }
    while (code > 0 && viewer->state != PROXY_VIEWER_ENDING) {
        enum proxy_record kind;
        struct poise_reader body;

        code = proxy_wire_take(channel->wire, PROXY_RECORD_MOST, &kind, &body);
        if (code > 0) {
            int took = take_record(view, viewer, kind, &body);
            code = took < 0 ? took : 1;
        }
    }
    return code < 0 ? code : 0;
}

/* ---- its socket --------------------------------------------------------- */

static bool may_read(const struct proxy_viewer *viewer)
{
    return viewer->state != PROXY_VIEWER_ENDING &&
           proxy_channel_kept(&viewer->channel) < PROXY_KEPT_MOST &&
           viewer->out.len < PROXY_KEPT_MOST;
}

static int read_some(struct proxy_view *view, struct proxy_viewer *viewer)
{
    struct poise_buf *to = viewer->socket.on ? &viewer->raw : &viewer->in;
    ssize_t got = recv(viewer->fd, view->buffer, PROXY_BUFFER, MSG_DONTWAIT);

    if (got < 0) {
        return errno == EAGAIN || errno == EINTR
                   ? 0
                   : poise_error_set(errno, "read from a viewer", NULL, NULL);
    }
    if (got == 0) {
        viewer->over = true;
        return 0;
    }
    if (viewer->in.len + viewer->raw.len > IN_MOST) {
        return proxy_bad("a viewer's message has no end");
    }
    return poise_buf_append(to, view->buffer, (size_t)got);
}

static int read_viewer(struct proxy_view *view, struct proxy_viewer *viewer)
{
    size_t at = 0;
    int64_t took = 1;
    int code = viewer->can_read ? read_some(view, viewer) : 0;

    if (code == 0 && viewer->socket.on && viewer->raw.len > 0) {
        bool begun = viewer->socket.begun;
        code = proxy_socket_take(&viewer->socket, &viewer->raw, &viewer->in,
                                 &viewer->framed);
        if (code == 0 && viewer->socket.begun && !begun) {
            poise_buf_append(&viewer->out, version, VERSION_BYTES);
        }
        viewer->over |= viewer->socket.closed;
    }
    while (code == 0 && took > 0 && at < viewer->in.len && may_read(viewer)) {
        took = take_bytes(viewer, (unsigned char *)viewer->in.data + at,
                          viewer->in.len - at);
        at += took > 0 ? (size_t)took : 0;
    }
    if (at > 0) {
        viewer->in.len -= at;
        memmove(viewer->in.data, viewer->in.data + at, viewer->in.len);
    }
    return code < 0 ? code : took < 0 ? (int)took : 0;
}

/* All that can be; a browser's in frames. */
static int write_viewer(struct proxy_viewer *viewer)
{
    struct poise_buf *from = &viewer->out;

    if (viewer->socket.on) {
        if (viewer->out.len > 0) {
            proxy_socket_put(viewer->out.data, viewer->out.len,
                             &viewer->framed);
            poise_buf_reset(&viewer->out);
        }
        from = &viewer->framed;
    }
    while (viewer->out_at < from->len) {
        ssize_t done =
            send(viewer->fd, from->data + viewer->out_at,
                 from->len - viewer->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0) {
            return errno == EAGAIN || errno == EINTR
                       ? from->error
                       : poise_error_set(errno, "write to a viewer", NULL,
                                         NULL);
        }
        viewer->out_at += (size_t)done;
        viewer->bytes_out += (uint64_t)done;
    }
    poise_buf_reset(from);
    viewer->out_at = 0;
    return from->error;
}

static size_t unwritten(const struct proxy_viewer *viewer)
{
    return viewer->out.len + viewer->framed.len - viewer->out_at;
}

static int check_times(struct proxy_view *view, struct proxy_viewer *viewer)
{
    uint64_t keep = view->options.keep_ms ? view->options.keep_ms : KEEP_MS;

    if (viewer->deadline_ns > 0 && view->now_ns > viewer->deadline_ns) {
        return poise_error_set(ETIMEDOUT, "wait for a viewer", NULL,
                               "after %d s it did not begin", SHAKE_S);
    }
    if (viewer->lost_ns > 0 && viewer->state != PROXY_VIEWER_ENDING &&
        (view->now_ns - viewer->lost_ns > keep * UINT64_C(1000000) ||
         !viewer->has_token)) {
        proxy_viewer_fail(viewer,
                          "the other end of the link cannot be reached, or "
                          "has another secret");
    }
    return 0;
}

void proxy_viewer_turn(struct proxy_view *view, struct proxy_viewer *viewer)
{
    int code = 0;

    if (viewer->state != PROXY_VIEWER_ENDING) {
        code = turn_link(view, viewer);
        if (code == -EBADMSG || code == -ENOMEM) {
            goto failed;
        }
        if (code < 0) {
            lose_link(view, viewer);
        }
    }
    code = check_times(view, viewer);
    code = code < 0 ? code : read_viewer(view, viewer);
    code = code < 0 ? code : proxy_viewer_move(viewer, false, view->now_ns);
    if (code == 0 && viewer->state == PROXY_VIEWER_RUNNING &&
        unwritten(viewer) == 0) {
        code = proxy_viewer_update(viewer, &view->stats);
    }
    if (code == 0 && (viewer->can_write || unwritten(viewer) > 0)) {
        code = write_viewer(viewer);
    }
    if (code < 0) {
        goto failed;
    }
    if (viewer->channel.wire &&
        proxy_channel_flush(&viewer->channel, true, view->now_ns) < 0) {
        lose_link(view, viewer);
    }
    viewer->over |=
        viewer->state == PROXY_VIEWER_ENDING && unwritten(viewer) == 0;
    return;
failed:
    write_viewer(viewer);
    proxy_problem(&view->options);
    viewer->over = true;
}

short proxy_viewer_events(const struct proxy_viewer *viewer)
{
    return (short)((may_read(viewer) ? POLLIN : 0) |
                   (unwritten(viewer) > 0 ? POLLOUT : 0));
}

uint64_t proxy_viewer_due(const struct proxy_viewer *viewer)
{
    uint64_t due = viewer->deadline_ns;

    if (viewer->state == PROXY_VIEWER_ENDING) {
        return due;
    }
    if (viewer->channel.wire) {
        proxy_sooner(&due, proxy_channel_due(&viewer->channel));
    } else {
        proxy_sooner(&due, viewer->retry_ns);
    }
    proxy_sooner(&due, proxy_viewer_move_due(viewer));
    return due;
}
