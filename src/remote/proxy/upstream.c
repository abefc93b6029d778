/*
 * A thread that follows a server for one viewer: it relays what they say to
 * each other about security, keeps one request for updates open, and hands what
 * changed to the thread that serves, which takes it when its link has room.
 *
 * The decoder's picture is the thread's own; after each update its rectangles
 * are copied into the one that is shared, so that nobody waits for a server
 * that is slow in the middle of one.
 */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SERVER_MS = 60000,         /* for the rest of a message */
    TO_SERVER_MOST = 16 << 20, /* bytes that it does not take */
    EVENTS_MOST = 16 << 20,    /* that nobody takes: texts are dropped */
    NUMBERS_MOST = SCREEN_ENCODINGS + 10,
};

struct follower {
    struct proxy_upstream *upstream;
    struct poise_screen_client *client;
    bool continuous_able, asked;
};

/* ---- for the thread that serves ----------------------------------------- */

static void signal_fd(int fd)
{
    uint64_t one = 1;
    ssize_t done = write(fd, &one, sizeof one);

    (void)done; /* it is full of signals already */
}

/* Behind the lock. */
static void put_event(struct proxy_upstream *upstream, enum proxy_message kind,
                      const void *data, size_t len)
{
    unsigned char head[8];

    poise_put_u32(head, kind);
    poise_put_u32(head + 4, (uint32_t)len);
    poise_buf_append(&upstream->events, head, sizeof head);
    poise_buf_append(&upstream->events, data, len);
    signal_fd(upstream->ready);
}

static int send_event(struct proxy_upstream *upstream, enum proxy_message kind,
                      const void *data, size_t len)
{
    int code;

    pthread_mutex_lock(&upstream->lock);
    if (upstream->events.len < EVENTS_MOST ||
        (kind != PROXY_PASSED && kind != PROXY_PSEUDO)) {
        put_event(upstream, kind, data, len);
    }
    code = upstream->events.error;
    pthread_mutex_unlock(&upstream->lock);
    return code;
}

/* ---- security: the thread waits for the viewer -------------------------- */

/* Until `flag`, which is behind the lock, is true. */
static int await_flag(struct proxy_upstream *upstream, const bool *flag)
{
    int code;

    pthread_mutex_lock(&upstream->lock);
    while (!*flag && !upstream->stop) {
        pthread_cond_wait(&upstream->told, &upstream->lock);
    }
    code = upstream->stop ? -ECANCELED : 0;
    pthread_mutex_unlock(&upstream->lock);
    return code;
}

static int opened(int fd, void *arg)
{
    struct follower *follower = arg;
    struct proxy_upstream *upstream = follower->upstream;
    int code;

    pthread_mutex_lock(&upstream->lock);
    upstream->fd = fd;
    code = upstream->stop ? -ECANCELED : 0;
    pthread_mutex_unlock(&upstream->lock);
    return code;
}

static int choose(const uint8_t *types, size_t count, void *arg)
{
    struct follower *follower = arg;
    struct proxy_upstream *upstream = follower->upstream;
    uint8_t kept[UINT8_MAX];
    size_t have = 0;
    struct poise_buf others = {0};
    int code;

    for (size_t i = 0; i < count; i++) {
        if (types[i] == SCREEN_SECURITY_NONE ||
            types[i] == SCREEN_SECURITY_VNC) {
            if (!memchr(kept, types[i], have)) {
                kept[have++] = types[i];
            }
        } else {
            poise_buf_printf(&others, "%s%u", others.len ? ", " : "", types[i]);
        }
    }
    if (others.len > 0) {
        struct poise_buf note = {0};
        poise_buf_printf(&note,
                         "left out of the server's offer: security of types "
                         "%s, which cannot be relayed",
                         poise_buf_str(&others));
        send_event(upstream, PROXY_NOTE, note.data, note.len);
        poise_buf_free(&note);
    }
    poise_buf_free(&others);
    if (have == 0) {
        return poise_error_set(EACCES, "use the screen", NULL,
                               "the server offers neither 'no security' nor "
                               "a password of VNC, and nothing else can be "
                               "relayed");
    }
    code = send_event(upstream, PROXY_TYPES, kept, have);
    code = code < 0 ? code : await_flag(upstream, &upstream->has_type);
    if (code == 0 && !memchr(kept, upstream->type, have)) {
        code = proxy_bad("a viewer chooses what was not offered");
    }
    return code < 0 ? code : upstream->type;
}

static int answer(const uint8_t challenge[SCREEN_CHALLENGE_BYTES],
                  uint8_t reply[SCREEN_CHALLENGE_BYTES], void *arg)
{
    struct follower *follower = arg;
    struct proxy_upstream *upstream = follower->upstream;
    int code = send_event(upstream, PROXY_CHALLENGE, challenge,
                          SCREEN_CHALLENGE_BYTES);

    code = code < 0 ? code : await_flag(upstream, &upstream->has_answer);
    if (code == 0) {
        memcpy(reply, upstream->answer, SCREEN_CHALLENGE_BYTES);
    }
    return code;
}

static int shared(void *arg)
{
    struct follower *follower = arg;
    struct proxy_upstream *upstream = follower->upstream;
    int code = send_event(upstream, PROXY_WELCOME, NULL, 0);

    code = code < 0 ? code : await_flag(upstream, &upstream->has_shared);
    return code < 0 ? code : upstream->shared;
}

/* ---- to the server ------------------------------------------------------ */

/* Behind the lock: what can be written. */
static int write_some(struct proxy_upstream *upstream)
{
    struct poise_buf *out = &upstream->to_server;
    size_t at = 0;

    while (upstream->fd >= 0 && at < out->len) {
        ssize_t done = send(upstream->fd, out->data + at, out->len - at,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0 && errno != EAGAIN && errno != EINTR) {
            return poise_error_set(errno, "write to the server", NULL, NULL);
        }
        if (done < 0) {
            break;
        }
        at += (size_t)done;
    }
    if (at > 0) {
        out->len -= at;
        memmove(out->data, out->data + at, out->len);
    }
    return out->error ? out->error
           : out->len > TO_SERVER_MOST
               ? poise_error_set(ENOBUFS, "write to the server", NULL,
                                 "it takes nothing")
               : 0;
}

/* Behind the lock. */
static int tell_server(struct proxy_upstream *upstream, const void *data,
                       size_t len)
{
    poise_buf_append(&upstream->to_server, data, len);
    return write_some(upstream);
}

/* Behind the lock. All of it: what changed (1), whatever (0), or from now on
 * (the message that switches continuous updates on). */
static int ask_server(struct follower *follower, unsigned char type, bool flag)
{
    const struct poise_screen_picture *picture =
        poise_screen_picture(follower->client);
    struct poise_buf message = {0};
    int code;

    poise_buf_putc(&message, (char)type);
    poise_buf_putc(&message, flag);
    proxy_put_u32(&message, 0);
    proxy_put_u16(&message, picture->width);
    proxy_put_u16(&message, picture->height);
    code = message.error
               ? message.error
               : tell_server(follower->upstream, message.data, message.len);
    poise_buf_free(&message);
    return code;
}

/* Behind the lock: which encodings, by what the viewer understands. */
static int send_encodings(struct follower *follower)
{
    static const struct {
        uint64_t able;
        int32_t number;
    } known[] = {
        {PROXY_ABLE_CURSOR, SCREEN_CURSOR},
        {PROXY_ABLE_ALPHA_CURSOR, SCREEN_ALPHA_CURSOR},
        {PROXY_ABLE_NAME, SCREEN_DESKTOP_NAME},
        {PROXY_ABLE_LED, SCREEN_LED_STATE},
        {PROXY_ABLE_QEMU_KEYS, SCREEN_QEMU_KEYS},
        {PROXY_ABLE_EXTENDED_SIZE, SCREEN_EXTENDED_SIZE},
        {PROXY_ABLE_CLIPBOARD, SCREEN_EXTENDED_CLIPBOARD},
    };
    struct proxy_upstream *upstream = follower->upstream;
    const char *names = upstream->options->encodings;
    int32_t numbers[NUMBERS_MOST + sizeof known / sizeof *known];
    struct poise_buf message = {0};
    size_t count;
    int code;

    if (!names) {
        names = screen_is_local(upstream->options->server)
                    ? "copyrect,raw"
                    : "copyrect,tight,zrle,hextile,rre,raw";
    }
    code = screen_encodings_parse(names, numbers, &count);
    if (code < 0) {
        return code;
    }
    numbers[count++] = SCREEN_DESKTOP_SIZE;
    numbers[count++] = SCREEN_LAST_RECT;
    numbers[count++] = SCREEN_FENCE;
    numbers[count++] = SCREEN_CONTINUOUS;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (upstream->able & known[i].able) {
            numbers[count++] = known[i].number;
        }
    }
    upstream->able_changed = false;
    code = screen_encodings_put(numbers, count, &message);
    code = code < 0 ? code : tell_server(upstream, message.data, message.len);
    poise_buf_free(&message);
    return code;
}

/* ---- from the server ---------------------------------------------------- */

static int take_pseudo(int32_t encoding, const struct poise_screen_rect *rect,
                       const void *data, size_t len, void *arg)
{
    struct follower *follower = arg;
    struct poise_buf body = {0};
    unsigned char number[4];
    int code;

    if (encoding == SCREEN_DESKTOP_SIZE) {
        return 0; /* the picture says it */
    }
    poise_put_u32(number, (uint32_t)encoding);
    poise_buf_append(&body, number, sizeof number);
    poise_buf_varint(&body, rect->x);
    poise_buf_varint(&body, rect->y);
    poise_buf_varint(&body, rect->width);
    poise_buf_varint(&body, rect->height);
    poise_buf_append(&body, data, len);
    code = body.error ? body.error
                      : send_event(follower->upstream, PROXY_PSEUDO, body.data,
                                   body.len);
    poise_buf_free(&body);
    return code;
}

/* Come to the fence: it asked to hear so. What we said and did is in order
 * anyway. */
static int answer_fence(struct proxy_upstream *upstream,
                        const unsigned char *data, size_t len)
{
    enum { FLAGS = 4 };
    const uint32_t request = UINT32_C(1) << 31, known = 7;
    uint32_t flags = proxy_u32(data);
    struct poise_buf message = {0};
    int code;

    if (!(flags & request)) {
        return 0;
    }
    poise_buf_append(&message, "\xf8\0\0\0", 4);
    proxy_put_u32(&message, flags & known);
    poise_buf_putc(&message, (char)(len - FLAGS));
    poise_buf_append(&message, data + FLAGS, len - FLAGS);
    pthread_mutex_lock(&upstream->lock);
    code = message.error ? message.error
                         : tell_server(upstream, message.data, message.len);
    pthread_mutex_unlock(&upstream->lock);
    poise_buf_free(&message);
    return code;
}

static int take_message(enum screen_message type, const void *data, size_t len,
                        void *arg)
{
    struct follower *follower = arg;
    struct proxy_upstream *upstream = follower->upstream;
    struct poise_buf message = {0};
    int code = 0;

    switch (type) {
    case SCREEN_FENCE_MESSAGE:
        return answer_fence(upstream, data, len);
    case SCREEN_END_OF_CONTINUOUS:
        if (!follower->continuous_able) {
            follower->continuous_able = true;
            pthread_mutex_lock(&upstream->lock);
            code = ask_server(follower, PROXY_CONTINUOUS, true);
            pthread_mutex_unlock(&upstream->lock);
        }
        return code;
    default:
        poise_buf_putc(&message, (char)type);
        poise_buf_append(&message, data, len);
        code = message.error ? message.error
                             : send_event(upstream, PROXY_PASSED, message.data,
                                          message.len);
        poise_buf_free(&message);
        return code;
    }
}

/* The shared picture becomes as the server's is: behind the lock. */
static int copy_picture(struct follower *follower,
                        const struct poise_screen_update *update)
{
    struct proxy_upstream *upstream = follower->upstream;
    const struct poise_screen_picture *from =
        poise_screen_picture(follower->client);
    struct poise_screen_picture *to = &upstream->picture;

    if (to->width != from->width || to->height != from->height || !to->pixels) {
        size_t count = (size_t)from->width * from->height;
        uint32_t *pixels = poise_alloc(count + 1, sizeof *pixels);
        int code = pixels ? proxy_damage_resize(&upstream->damage, from->width,
                                                from->height)
                          : -ENOMEM;
        if (code < 0) {
            free(pixels);
            return code;
        }
        memcpy(pixels, from->pixels, count * sizeof *pixels);
        free(to->pixels);
        *to = (struct poise_screen_picture){pixels, from->width, from->height};
        return 0;
    }
    for (size_t i = 0; i < update->rect_count; i++) {
        const struct poise_screen_rect *rect = &update->rects[i];
        size_t at = (size_t)rect->y * to->width + rect->x;
        for (uint32_t y = 0; y < rect->height; y++, at += to->width) {
            memcpy(to->pixels + at, from->pixels + at,
                   rect->width * sizeof *to->pixels);
        }
        proxy_damage_add(&upstream->damage, rect);
    }
    return 0;
}

static int take_update(struct follower *follower,
                       const struct poise_screen_update *update)
{
    struct proxy_upstream *upstream = follower->upstream;
    int code;

    pthread_mutex_lock(&upstream->lock);
    code = copy_picture(follower, update);
    signal_fd(upstream->ready);
    if (code == 0 && follower->continuous_able && update->resized) {
        code = ask_server(follower, PROXY_CONTINUOUS, true);
    }
    if (code == 0 && (!follower->continuous_able || update->resized)) {
        /* One request is open all the time. */
        code = ask_server(follower, PROXY_ASK, !update->resized);
    }
    pthread_mutex_unlock(&upstream->lock);
    return code;
}

/* ---- the thread --------------------------------------------------------- */

/* Until the server says something, or there is something to write. */
static int await_server(struct follower *follower)
{
    struct proxy_upstream *upstream = follower->upstream;
    struct pollfd fds[2] = {
        {.fd = screen_client_fd(follower->client), .events = POLLIN},
        {.fd = upstream->wake, .events = POLLIN},
    };
    uint64_t signals;
    int code = 0;

    pthread_mutex_lock(&upstream->lock);
    if (upstream->to_server.len > 0) {
        fds[0].events |= POLLOUT;
    }
    pthread_mutex_unlock(&upstream->lock);
    if (poll(fds, 2, -1) < 0 && errno != EINTR) {
        return poise_error_set(errno, "wait for the server", NULL, NULL);
    }
    if (fds[1].revents & POLLIN) {
        ssize_t got = read(upstream->wake, &signals, sizeof signals);
        (void)got; /* it only wakes */
    }
    pthread_mutex_lock(&upstream->lock);
    code = upstream->stop ? -ECANCELED : write_some(upstream);
    if (code == 0 && upstream->able_changed) {
        code = send_encodings(follower);
    }
    pthread_mutex_unlock(&upstream->lock);
    return code;
}

/* The server is content: say what its screen is. */
static int begin(struct follower *follower)
{
    struct proxy_upstream *upstream = follower->upstream;
    const struct poise_screen_picture *picture =
        poise_screen_picture(follower->client);
    const char *name = poise_screen_name(follower->client);
    struct poise_buf body = {0};
    int code;

    poise_buf_varint(&body, picture->width);
    poise_buf_varint(&body, picture->height);
    poise_buf_puts(&body, name);
    code = body.error ? body.error
                      : send_event(upstream, PROXY_READY, body.data, body.len);
    poise_buf_free(&body);
    pthread_mutex_lock(&upstream->lock);
    upstream->running = true;
    code = code < 0 ? code : send_encodings(follower);
    code = code < 0 ? code : ask_server(follower, PROXY_ASK, false);
    pthread_mutex_unlock(&upstream->lock);
    return code;
}

static int follow(struct follower *follower)
{
    int code = begin(follower);

    while (code == 0) {
        struct poise_screen_update update;

        code = poise_screen_next(follower->client, 0, &update);
        if (code > 0) {
            code = take_update(follower, &update);
        } else if (code == 0) {
            code = await_server(follower);
        }
    }
    return code;
}

static void *run(void *arg)
{
    struct proxy_upstream *upstream = arg;
    struct follower follower = {.upstream = upstream};
    struct screen_relay relay = {
        .opened = opened,
        .choose = choose,
        .answer = answer,
        .shared = shared,
        .pseudo = take_pseudo,
        .message = take_message,
        .arg = &follower,
    };
    struct poise_screen_options how = {.timeout_ms = SERVER_MS};
    struct poise_buf why = {0};
    int code = screen_client_create(upstream->options->server, &how, &relay,
                                    &follower.client);

    if (code == 0) {
        follow(&follower);
    }
    poise_error_format(poise_error_last(), &why);
    /* A socket that fails to open is closed before this: nobody shuts down
     * another one that has its number, since only `stop` does. */
    pthread_mutex_lock(&upstream->lock);
    upstream->fd = -1;
    put_event(upstream, PROXY_FAILED, why.data, why.len);
    upstream->over = true;
    pthread_mutex_unlock(&upstream->lock);
    poise_buf_free(&why);
    poise_screen_close(follower.client);
    poise_error_clear();
    return NULL;
}

int proxy_upstream_create(const struct poise_remote_vnc_options *options,
                          int ready, struct proxy_upstream **out)
{
    struct proxy_upstream *made = poise_alloc(1, sizeof *made);
    int code;

    if (!made) {
        return -ENOMEM;
    }
    made->options = options;
    made->ready = ready;
    made->fd = -1;
    made->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->wake < 0) {
        code = poise_error_set(errno, "follow", options->server, NULL);
        goto free_made;
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->told, NULL);
    code = pthread_create(&made->thread, NULL, run, made);
    if (code == 0) {
        *out = made;
        return 0;
    }
    code = poise_error_set(code, "start a thread for", options->server, NULL);
    pthread_cond_destroy(&made->told);
    pthread_mutex_destroy(&made->lock);
    close(made->wake);
free_made:
    free(made);
    return code;
}

void proxy_upstream_stop(struct proxy_upstream *upstream)
{
    pthread_mutex_lock(&upstream->lock);
    upstream->stop = true;
    if (upstream->fd >= 0) {
        shutdown(upstream->fd, SHUT_RDWR);
    }
    pthread_cond_broadcast(&upstream->told);
    pthread_mutex_unlock(&upstream->lock);
    signal_fd(upstream->wake);
}

bool proxy_upstream_is_over(struct proxy_upstream *upstream)
{
    bool over;

    pthread_mutex_lock(&upstream->lock);
    over = upstream->over;
    pthread_mutex_unlock(&upstream->lock);
    return over;
}

void proxy_upstream_destroy(struct proxy_upstream *upstream)
{
    if (!upstream) {
        return;
    }
    proxy_upstream_stop(upstream);
    pthread_join(upstream->thread, NULL);
    pthread_cond_destroy(&upstream->told);
    pthread_mutex_destroy(&upstream->lock);
    close(upstream->wake);
    proxy_damage_free(&upstream->damage);
    free(upstream->picture.pixels);
    poise_buf_free(&upstream->to_server);
    poise_buf_free(&upstream->events);
    free(upstream);
}

/* ---- what the viewer's side says ---------------------------------------- */

/* Behind the lock. Whole messages of a viewer, of those that a server may
 * have. */
static int take_input(struct proxy_upstream *upstream,
                      const struct poise_reader *body)
{
    const unsigned char *at = body->pos;
    size_t left = poise_reader_left(body);
    int code;

    while (left > 0) {
        int64_t len = proxy_message_len(at, left);

        if (len <= 0 || (size_t)len > left || !proxy_message_is_input(at[0])) {
            return proxy_bad("it passes on what is no input");
        }
        at += len;
        left -= (size_t)len;
    }
    code = upstream->running
               ? tell_server(upstream, body->pos, poise_reader_left(body))
               : 0;
    if (code == 0 && upstream->to_server.len > 0) {
        signal_fd(upstream->wake);
    }
    /* A server that is gone is the thread's to tell. */
    return code == -ENOBUFS || code == -ENOMEM ? code : 0;
}

static int take_locked(struct proxy_upstream *upstream, enum proxy_message kind,
                       struct poise_reader *body)
{
    size_t len = poise_reader_left(body);
    const unsigned char *data = body->pos;

    switch (kind) {
    case PROXY_TYPE:
        if (len != 1 || upstream->has_type) {
            return proxy_bad("it chooses twice");
        }
        upstream->type = data[0];
        upstream->has_type = true;
        return 0;
    case PROXY_ANSWER:
        if (len != SCREEN_CHALLENGE_BYTES || upstream->has_answer) {
            return proxy_bad("it answers twice");
        }
        memcpy(upstream->answer, data, len);
        upstream->has_answer = true;
        return 0;
    case PROXY_SHARED:
        if (len != 1 || upstream->has_shared) {
            return proxy_bad("it begins twice");
        }
        upstream->shared = data[0] != 0;
        upstream->has_shared = true;
        return 0;
    case PROXY_ABLE:
        upstream->able = poise_reader_varint(body);
        upstream->able_changed = upstream->running;
        signal_fd(upstream->wake);
        return body->error ? proxy_bad("a message is cut short") : 0;
    case PROXY_INPUT:
        return take_input(upstream, body);
    default:
        return proxy_bad("a message of unknown kind");
    }
}

int proxy_upstream_take(struct proxy_upstream *upstream,
                        enum proxy_message kind, struct poise_reader *body)
{
    int code;

    pthread_mutex_lock(&upstream->lock);
    code = take_locked(upstream, kind, body);
    pthread_cond_broadcast(&upstream->told);
    pthread_mutex_unlock(&upstream->lock);
    return code;
}
