/*
 * A tunnel's messages and streams: the input is what one end of a link says
 * through the wire to the other, message by message, to an end that serves and
 * to one that has opened a connection. Whatever it is: an error or an answer,
 * and no more than may come waits.
 */
#include "../../fuzz/fuzz.h"

#include "remote/tunnel/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

struct scene {
    struct tunnel tunnel;
    struct tunnel_cache cache;
    struct remote_target target; /* it has no address: nothing is connected */
    struct tunnel_link *link;
    struct poise_dedup_store *store; /* of who speaks */
    struct poise_dedup_peer *speaker;
    int link_fd, user; /* the other sides of the link, and of a connection */
    uint64_t control_at, told;
};

static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    uint64_t *told = arg;

    check(stream < TUNNEL_STREAMS && piece->len > 0);
    *told += piece->len;
    return 0;
}

static struct poise_dedup_store *open_store(void)
{
    struct poise_dedup_store_options options = {.memory_bytes = 1 << 20,
                                                .bits = 16};
    struct poise_dedup_store *store;

    check(poise_dedup_store_open(NULL, &options, &store) == 0);
    return store;
}

static void make_pair(int *fds)
{
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                     fds) == 0);
}

static void open_scene(struct scene *scene, bool opens)
{
    static char text[] = "here:1";
    static const struct poise_remote_tunnel_options options;
    struct poise_dedup_peer_options peer = {.deliver = deliver,
                                            .arg = &scene->told};
    struct tunnel *tunnel = &scene->tunnel;
    int fds[2];

    tunnel->options = options;
    scene->cache.store = open_store();
    tunnel->caches = &scene->cache;
    tunnel->options.shared_cache = true;
    tunnel->buffer = malloc(TUNNEL_BUFFER);
    check(tunnel->buffer != NULL);
    tunnel->window_most = TUNNEL_WINDOW_MOST;
    tunnel->held_most = TUNNEL_HELD_MOST;
    tunnel->links_most = TUNNEL_LINKS;
    tunnel->unread_most = TUNNEL_UNREAD_MOST;
    tunnel->draining_most = TUNNEL_DRAINING;
    tunnel->conns_most = 16;
    scene->target.text = text;
    tunnel->allowed = &scene->target;
    tunnel->allowed_count = 1;
    make_pair(fds);
    scene->link_fd = fds[0];
    check(tunnel_link_create(tunnel, fds[1], &scene->link) == 0);
    scene->link->opens = opens;
    scene->user = -1;
    scene->store = peer.store = open_store();
    check(poise_dedup_peer_create(&peer, &scene->speaker) == 0);
}

static void close_scene(struct scene *scene)
{
    tunnel_link_destroy(scene->link);
    poise_dedup_peer_destroy(scene->speaker);
    poise_dedup_store_close(scene->store);
    poise_dedup_store_close(scene->cache.store);
    free(scene->tunnel.buffer);
    close(scene->link_fd);
    if (scene->user >= 0) {
        close(scene->user);
    }
}

/* A turn of the end; false when it gave up. */
static bool turn(struct scene *scene)
{
    struct tunnel_link *link = scene->link;
    int code;

    link->can_read = link->can_write = true;
    for (unsigned i = 0; i < link->count; i++) {
        link->conns[i]->can_read = link->conns[i]->can_write = true;
    }
    scene->tunnel.now_ns += 2000000;
    code = tunnel_link_turn(link);
    check(link->exposed <=
          TUNNEL_BUDGET +
              (uint64_t)(TUNNEL_STREAMS + TUNNEL_DRAINING) * TUNNEL_WINDOW);
    return code >= 0;
}

/* What it says; false when it makes no sense, which it must not. */
static void hear(struct scene *scene, size_t *greeting)
{
    static unsigned char part[1 << 16]; /* what it holds is not wanted */
    ssize_t received;

    while ((received = recv(scene->link_fd, part, sizeof part, 0)) > 0) {
        size_t skip = 16 - *greeting;
        skip = skip < (size_t)received ? skip : (size_t)received;
        *greeting += skip;
        check(poise_dedup_peer_feed(scene->speaker, part + skip,
                                    (size_t)received - skip) == 0);
    }
}

static void drain_user(struct scene *scene)
{
    static unsigned char part[1 << 16];

    while (scene->user >= 0 && recv(scene->user, part, sizeof part, 0) > 0) {
    }
}

static bool carry(struct scene *scene, size_t *greeting)
{
    const void *data;
    size_t len;

    check(poise_dedup_peer_flush(scene->speaker) == 0);
    while ((len = poise_dedup_peer_output(scene->speaker, &data)) > 0) {
        ssize_t done = send(scene->link_fd, data, len, MSG_NOSIGNAL);
        if (done > 0) {
            poise_dedup_peer_took(scene->speaker, (size_t)done);
        }
        if (!turn(scene)) {
            return false;
        }
        hear(scene, greeting);
        drain_user(scene);
    }
    return turn(scene);
}

static void put(struct scene *scene, uint32_t stream, const uint8_t *data,
                size_t len)
{
    struct poise_dedup_piece piece = {
        .kind = len > 24 ? POISE_DEDUP_SEGMENT : POISE_DEDUP_LITERAL,
        .data = data,
        .len = len,
        .place = {.width = (uint32_t)len, .height = 1}};

    if (stream == TUNNEL_CONTROL) {
        piece.kind = POISE_DEDUP_LITERAL;
        piece.place.x = scene->control_at;
        scene->control_at += len;
    }
    check(poise_dedup_peer_send_piece(scene->speaker, stream, &piece) == 0);
}

/* A connection that this end has opened. */
static void open_user(struct scene *scene)
{
    int fds[2];

    if (scene->user < 0 && tunnel_link_is_up(scene->link)) {
        make_pair(fds);
        scene->user = fds[0];
        check(tunnel_link_open(scene->link, fds[1], "here:1") == 0);
    }
}

/* A byte says what comes next: a message (its length is put before it), bytes
 * of messages as they are, data or the end of a stream, an own connection. */
static size_t say(struct scene *scene, const uint8_t *data, size_t len)
{
    unsigned what = data[0] >> 5, stream = data[0] & 31;
    size_t part = len > 1 ? data[1] : 0;
    uint8_t message[258];

    part = len < 2 ? 0 : part < len - 2 ? part : len - 2;
    if (what == 7) {
        open_user(scene);
        return 1;
    }
    if (what == 6) {
        check(poise_dedup_peer_end(scene->speaker, stream) == 0);
        return 1;
    }
    if (part > 0 && what < 3) {
        message[0] = (uint8_t)part;
        message[1] = 0;
        memcpy(message + 2, data + 2, part);
        put(scene, TUNNEL_CONTROL, message, part + 2);
    } else if (part > 0) {
        put(scene, what == 3 ? TUNNEL_CONTROL : stream, data + 2, part);
    }
    return part + (len > 1 ? 2 : 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct scene scene = {0};
    size_t greeting = 0, at = 1;
    unsigned char hello[16] = "POISETUN";
    bool goes;

    if (len == 0 || len > 1 << 14) {
        return 0;
    }
    open_scene(&scene, data[0] & 1);
    poise_put_u64(hello + 8, TUNNEL_VERSION);
    check(send(scene.link_fd, hello, sizeof hello, MSG_NOSIGNAL) == 16);
    /* Nothing can be said before both said hello. */
    goes = turn(&scene);
    check(goes);
    hear(&scene, &greeting);
    while (goes && at < len) {
        at += say(&scene, data + at, len - at);
        /* Several in one block, or each in its own. */
        goes = (data[0] & 2) || carry(&scene, &greeting);
    }
    if (goes) {
        carry(&scene, &greeting);
    }
    close_scene(&scene);
    return 0;
}
