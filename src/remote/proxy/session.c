/* A viewer's session at the server's side: what its thread found goes over its
 * link, pixels when the link has room for them. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { KEEP_MS = 300000, HEAD = 8, KEPT_MOST = 16 << 20 };

int proxy_session_create(struct proxy_serve *serve, struct proxy_session **out)
{
    struct poise_screen_codec_options codec = {.method = serve->options.method,
                                               .level = serve->options.level};
    struct proxy_session *made;
    int code;

    if (serve->session_count >= PROXY_SESSIONS) {
        return poise_error_set(EUSERS, "serve one more viewer", NULL,
                               "there are %u", serve->session_count);
    }
    made = poise_alloc(1, sizeof *made);
    if (!made) {
        return -ENOMEM;
    }
    made->channel.pad_bytes = serve->options.pad_bytes;
    if (getrandom(made->token, sizeof made->token, 0) !=
        (ssize_t)sizeof made->token) {
        code = poise_error_set(errno, "name a session", NULL, NULL);
        goto free_made;
    }
    code = poise_screen_encoder_create(&codec, &made->encoder);
    if (code < 0) {
        goto free_made;
    }
    code =
        proxy_upstream_create(&serve->options, serve->ready, &made->upstream);
    if (code < 0) {
        goto destroy_encoder;
    }
    made->number = ++serve->numbers;
    made->next = serve->sessions;
    serve->sessions = made;
    serve->session_count++;
    serve->stats.sessions++;
    *out = made;
    return 0;
destroy_encoder:
    poise_screen_encoder_destroy(made->encoder);
free_made:
    free(made);
    return code;
}

static void count_link(struct poise_remote_vnc_stats *stats,
                       const struct proxy_wire *wire)
{
    uint64_t out, in;

    if (wire) {
        remote_link_bytes(&wire->link, &out, &in);
        stats->link_out_bytes += out;
        stats->link_in_bytes += in;
    }
}

void proxy_session_destroy(struct proxy_serve *serve,
                           struct proxy_session *session)
{
    count_link(&serve->stats, session->channel.wire);
    proxy_upstream_stop(session->upstream);
    session->upstream->next = serve->leaving;
    serve->leaving = session->upstream;
    poise_screen_encoder_destroy(session->encoder);
    proxy_channel_free(&session->channel);
    poise_buf_free(&session->events);
    poise_buf_free(&session->rects);
    poise_buf_free(&session->message);
    free(session);
    serve->session_count--;
}

int proxy_session_resume(struct proxy_serve *serve,
                         struct proxy_session *session, struct proxy_wire *wire,
                         uint64_t received)
{
    struct poise_buf body = {0};
    int code;

    poise_buf_append(&body, session->token, sizeof session->token);
    poise_buf_varint(&body, session->channel.received);
    proxy_wire_put(wire, PROXY_ACCEPT, body.data, body.len);
    code = body.error;
    poise_buf_free(&body);
    if (code == 0 && session->channel.wire) {
        count_link(&serve->stats, session->channel.wire);
        serve->stats.links_lost++;
    }
    code = code < 0 ? code
                    : proxy_channel_resume(&session->channel, wire, received);
    session->lost_ns = 0;
    return code;
}

/* ---- what comes over the link ------------------------------------------- */

static int send_screen(struct proxy_serve *serve, struct proxy_session *session)
{
    int code;

    if (session->message.len == 0) {
        return session->message.error;
    }
    code = proxy_channel_send(&session->channel, PROXY_SCREEN,
                              session->message.data, session->message.len);
    proxy_channel_mark_frame(&session->channel, serve->now_ns);
    serve->stats.updates++;
    poise_buf_reset(&session->message);
    return code;
}

static int take_message(struct proxy_serve *serve,
                        struct proxy_session *session,
                        struct poise_reader *body)
{
    enum proxy_message kind;
    int code;

    if (poise_reader_left(body) < 1) {
        return proxy_bad("a message is empty");
    }
    kind = (enum proxy_message) * body->pos++;
    session->channel.received++;
    if (kind != PROXY_REPLY) {
        return proxy_upstream_take(session->upstream, kind, body);
    }
    poise_buf_reset(&session->message);
    code =
        poise_screen_encoder_reply(session->encoder, body->pos,
                                   poise_reader_left(body), &session->message);
    return code < 0 ? code : send_screen(serve, session);
}

static int take_records(struct proxy_serve *serve,
                        struct proxy_session *session)
{
    struct proxy_channel *channel = &session->channel;
    int code = proxy_wire_read(channel->wire, serve->buffer);

    while (code > 0) {
        enum proxy_record kind;
        struct poise_reader body;

        code = proxy_wire_take(channel->wire, PROXY_INPUT_MOST, &kind, &body);
        if (code <= 0) {
            return code;
        }
        if (kind == PROXY_MESSAGE) {
            code = take_message(serve, session, &body);
        } else {
            code = proxy_channel_record(channel, kind, &body, serve->now_ns);
            session->over |= code == 1;
        }
        code = code < 0 ? code : !session->over;
    }
    return code;
}

/* ---- what goes ---------------------------------------------------------- */

/* What the thread found beside pixels. */
static int send_events(struct proxy_serve *serve, struct proxy_session *session)
{
    struct poise_buf *events = &session->events, other;
    struct proxy_upstream *upstream = session->upstream;
    size_t at = 0;
    int code;

    if (proxy_channel_kept(&session->channel) > KEPT_MOST) {
        return 0; /* they wait, and become no more than may */
    }
    poise_buf_reset(events);
    pthread_mutex_lock(&upstream->lock);
    other = upstream->events;
    upstream->events = *events;
    *events = other;
    pthread_mutex_unlock(&upstream->lock);
    code = events->error;
    while (code == 0 && at < events->len) {
        const char *data = events->data + at;
        enum proxy_message kind = (enum proxy_message)poise_get_u32(data);
        size_t len = poise_get_u32(data + 4);

        if (kind == PROXY_FAILED) {
            session->told = true;
            session->lost_ns =
                session->lost_ns ? session->lost_ns : serve->now_ns;
            proxy_log(&serve->options, "session %llu: %.*s",
                      (unsigned long long)session->number, (int)len,
                      data + HEAD);
        }
        code = proxy_channel_send(&session->channel, kind, data + HEAD, len);
        at += HEAD + len;
    }
    return code;
}

/* All that changed since the last time, as one message of the codec. */
static int send_picture(struct proxy_serve *serve,
                        struct proxy_session *session)
{
    struct proxy_upstream *upstream = session->upstream;
    struct poise_buf *rects = &session->rects;
    int code = 0;

    poise_buf_reset(rects);
    poise_buf_reset(&session->message);
    pthread_mutex_lock(&upstream->lock);
    if (upstream->picture.pixels && upstream->damage.count > 0) {
        struct poise_screen_rect all = {0, 0, upstream->picture.width,
                                        upstream->picture.height};
        code = proxy_damage_take(&upstream->damage, &all, rects);
        if (code == 0) {
            code = poise_screen_encode(
                session->encoder, &upstream->picture,
                (const struct poise_screen_rect *)(void *)rects->data,
                rects->len / sizeof all, &session->message);
        }
    }
    pthread_mutex_unlock(&upstream->lock);
    return code < 0 ? code : send_screen(serve, session);
}

static bool has_damage(struct proxy_upstream *upstream)
{
    bool found;

    pthread_mutex_lock(&upstream->lock);
    found = upstream->picture.pixels && upstream->damage.count > 0;
    pthread_mutex_unlock(&upstream->lock);
    return found;
}

/* The session is over, whatever its link does. */
static void fail(struct proxy_serve *serve, struct proxy_session *session)
{
    proxy_problem(&serve->options);
    if (session->channel.is_up) {
        struct poise_buf why = {0};
        poise_error_format(poise_error_last(), &why);
        proxy_channel_send(&session->channel, PROXY_FAILED, why.data, why.len);
        proxy_channel_flush(&session->channel, true, serve->now_ns);
        poise_buf_free(&why);
    }
    session->over = true;
}

static void drop_link(struct proxy_serve *serve, struct proxy_session *session)
{
    proxy_problem(&serve->options);
    proxy_log(&serve->options, "session %llu waits for another link",
              (unsigned long long)session->number);
    count_link(&serve->stats, session->channel.wire);
    serve->stats.links_lost++;
    session->lost_ns = serve->now_ns;
    proxy_channel_drop(&session->channel);
}

void proxy_session_turn(struct proxy_serve *serve,
                        struct proxy_session *session)
{
    struct proxy_channel *channel = &session->channel;
    uint64_t keep = session->told            ? 10000
                    : serve->options.keep_ms ? serve->options.keep_ms
                                             : KEEP_MS;
    int code = channel->wire ? take_records(serve, session) : 0;

    if (code == -EBADMSG || code == -ENOMEM || code == -ENOBUFS) {
        fail(serve, session);
        return;
    }
    if (code < 0) {
        drop_link(serve, session);
    }
    if (session->over) {
        return;
    }
    code = send_events(serve, session);
    if (code == 0 && proxy_channel_has_room(channel, serve->now_ns) &&
        has_damage(session->upstream)) {
        code = send_picture(serve, session);
    }
    if (code < 0) {
        fail(serve, session);
        return;
    }
    if (channel->wire &&
        proxy_channel_flush(channel, false, serve->now_ns) < 0) {
        drop_link(serve, session);
    }
    if (session->told && channel->is_up && proxy_channel_kept(channel) == 0) {
        session->over = true;
    }
    if (session->lost_ns > 0 &&
        serve->now_ns - session->lost_ns > keep * UINT64_C(1000000)) {
        session->over = true;
    }
}
