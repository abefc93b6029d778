/*
 * Tunnels and a peer that means it no good: before it has proved who it is
 * (anything, cut anywhere, and what the right one once said, said again), and
 * afterwards (it asks for more and more, and reads nothing).
 */
#include "tunnel_files.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SOAK_S = 60, HELLO_MOST = 4096 };

static uint64_t soak_seconds(void)
{
    const char *soak = getenv("POISE_TEST_SOAK");
    uint64_t seconds = soak ? strtoull(soak, NULL, 10) : 0;

    return soak && seconds < SOAK_S ? SOAK_S : seconds;
}

/* ---- before ------------------------------------------------------------- */

/* What a near end that has the secret says first. */
static size_t record_hello(struct side *side, unsigned char *hello)
{
    struct side_timeout timeout = side_timeout();
    struct poise_remote_tunnel_options options = side->near_options;
    char via[64];
    ssize_t got = 0;
    int fd = -1, listener;
    struct remote_target at;
    struct remote_name name;
    struct poise_buf where = {0};
    struct tunnel *near;

    assert_int_equal(remote_name_parse("127.0.0.1:0", &name), 0);
    assert_int_equal(remote_resolve(&name, true, &at), 0);
    listener = remote_listen(&at, &where);
    assert_true(listener >= 0);
    snprintf(via, sizeof via, "%s", poise_buf_str(&where));
    options.via = via;
    assert_int_equal(tunnel_create(&options, &near), 0);
    while (got <= 0) {
        assert_int_equal(tunnel_turn(near, 0), 0);
        fd = fd < 0 ? remote_accept(listener) : fd;
        got = fd < 0 ? 0 : recv(fd, hello, HELLO_MOST, 0);
        side_wait(&timeout);
    }
    tunnel_destroy(near);
    close(fd);
    close(listener);
    remote_target_free(&at);
    poise_buf_free(&where);
    return (size_t)got;
}

/* One visitor: anything, or the hello, whole or cut or changed; then silence,
 * more, or the end. */
static int visit(struct side *side, struct poise_rng *rng,
                 const unsigned char *hello, size_t len)
{
    unsigned char words[HELLO_MOST];
    size_t say = poise_rng_below(rng, len + 1);
    int fd = side_connect(side_port(side->far->listeners[0].fd));

    memcpy(words, hello, len);
    switch (poise_rng_below(rng, 4)) {
    case 0: /* as it was: a replay */
        say = len;
        break;
    case 1: /* a byte is another one */
        words[poise_rng_below(rng, len)] ^=
            (unsigned char)(1 + poise_rng_below(rng, 255));
        say = len;
        break;
    case 2: /* nothing that was ever said */
        for (size_t i = 0; i < say; i++) {
            words[i] = (unsigned char)poise_rng_below(rng, 256);
        }
        break;
    default: /* cut */
        break;
    }
    assert_int_equal(side_turn(side), 0);
    (void)!send(fd, words, say, MSG_NOSIGNAL);
    assert_int_equal(side_turn(side), 0);
    if (poise_rng_below(rng, 2)) {
        (void)!send(fd, words, len, MSG_NOSIGNAL);
    }
    if (poise_rng_below(rng, 3) == 0) {
        shutdown(fd, SHUT_WR);
    }
    return fd;
}

static void test_before(void **state)
{
    enum { VISITORS = 100, STAY = 60 };
    struct side side;
    struct poise_rng rng;
    unsigned char hello[HELLO_MOST];
    int fds[STAY];
    uint64_t seconds = soak_seconds(), seed = 1, until;
    size_t len;

    (void)state;
    side_init(&side);
    files_set_secret(&side);
    side.near_options.via = side.via;
    assert_int_equal(side_start_far(&side), 0);
    len = record_hello(&side, hello);
    if (seconds > 0) {
        seed = poise_clock_ns();
        print_message("seed %llu\n", (unsigned long long)seed);
    }
    poise_rng_seed(&rng, seed);
    for (size_t i = 0; i < STAY; i++) {
        fds[i] = -1;
    }
    until = poise_clock_ns() + seconds * UINT64_C(1000000000);
    for (size_t i = 0; i < VISITORS || poise_clock_ns() < until; i++) {
        if (fds[i % STAY] >= 0) {
            close(fds[i % STAY]);
        }
        fds[i % STAY] = visit(&side, &rng, hello, len);
        assert_int_equal(tunnel_stats(side.far).links_made, 0);
    }
    assert_int_equal(tunnel_stats(side.far).peer.data_in, 0);
    /* And all the while the right one would have been let in. */
    assert_int_equal(side_start_near(&side), 0);
    side_link(&side);
    struct side_client *client = side_client(&side, "hello", 5);
    side_finish(&side);
    assert_int_equal(client->received, 5);
    for (size_t i = 0; i < STAY; i++) {
        close(fds[i]);
    }
    side_free(&side);
}

/* ---- afterwards --------------------------------------------------------- */

struct peer {
    int fd;
    struct poise_dedup_store *store;
    struct poise_dedup_peer *wire;
    size_t greeted;
    uint64_t control_at;
    bool met, gone;
};

static int on_piece(uint32_t stream, const struct poise_dedup_piece *piece,
                    void *arg)
{
    struct peer *peer = arg;

    (void)piece;
    peer->met |= stream == TUNNEL_CONTROL;
    return 0;
}

static void give(struct side *side, struct peer *peer, const void *data,
                 size_t len)
{
    struct side_timeout timeout = side_timeout();
    const char *from = data;

    while (len > 0 && !peer->gone) {
        ssize_t done = send(peer->fd, from, len, MSG_NOSIGNAL);
        if (done > 0) {
            from += done;
            len -= (size_t)done;
        }
        peer->gone = done < 0 && errno != EAGAIN;
        assert_int_equal(side_turn(side), 0);
        side_wait(&timeout);
    }
}

/* Send all that was said. */
static void push(struct side *side, struct peer *peer)
{
    const void *data;
    size_t len;

    assert_int_equal(poise_dedup_peer_flush(peer->wire), 0);
    while ((len = poise_dedup_peer_output(peer->wire, &data)) > 0 &&
           !peer->gone) {
        give(side, peer, data, len);
        poise_dedup_peer_took(peer->wire, len);
    }
}

static void say(struct peer *peer, int kind, uint64_t first, uint64_t second,
                const char *text)
{
    struct poise_buf body = {0};
    struct poise_dedup_piece piece = {.kind = POISE_DEDUP_LITERAL};

    poise_buf_append(&body, "\0\0", 2);
    poise_buf_putc(&body, (char)kind);
    poise_buf_varint(&body, first);
    poise_buf_varint(&body, second);
    if (text) {
        poise_buf_blob(&body, text, strlen(text));
    }
    assert_int_equal(body.error, 0);
    body.data[0] = (char)(body.len - 2);
    piece.data = (const unsigned char *)body.data;
    piece.len = body.len;
    piece.place = (struct poise_dedup_place){
        .x = peer->control_at, .width = (uint32_t)body.len, .height = 1};
    peer->control_at += body.len;
    assert_int_equal(
        poise_dedup_peer_send_piece(peer->wire, TUNNEL_CONTROL, &piece), 0);
    poise_buf_free(&body);
}

static void greet(struct side *side, struct peer *peer)
{
    struct poise_dedup_peer_options options = {.deliver = on_piece,
                                               .arg = peer};
    struct side_timeout timeout = side_timeout();
    unsigned char part[4096] = "POISETUN";

    *peer = (struct peer){.fd = -1};
    assert_int_equal(
        poise_dedup_store_open(NULL, &(struct poise_dedup_store_options){0},
                               &peer->store),
        0);
    options.store = peer->store;
    assert_int_equal(poise_dedup_peer_create(&options, &peer->wire), 0);
    peer->fd = side_connect(side_port(side->far->listeners[0].fd));
    poise_put_u64(part + 8, TUNNEL_VERSION);
    give(side, peer, part, 16);
    while (!peer->met) {
        ssize_t got;
        const void *data;
        size_t len = poise_dedup_peer_output(peer->wire, &data), skip;
        give(side, peer, data, len);
        poise_dedup_peer_took(peer->wire, len);
        assert_int_equal(side_turn(side), 0);
        got = recv(peer->fd, part, sizeof part, 0);
        if (got > 0) {
            skip = 16 - peer->greeted;
            skip = skip < (size_t)got ? skip : (size_t)got;
            peer->greeted += skip;
            assert_int_equal(poise_dedup_peer_feed(peer->wire, part + skip,
                                                   (size_t)got - skip),
                             0);
        }
        side_wait(&timeout);
    }
    say(peer, TUNNEL_LIMITS, 1 << 16, TUNNEL_STREAMS, NULL);
    push(side, peer);
}

static void part_with(struct peer *peer)
{
    poise_dedup_peer_destroy(peer->wire);
    poise_dedup_store_close(peer->store);
    close(peer->fd);
}

/* It makes the other end say no, again and again, and reads nothing of it. */
static void test_reads_nothing(void **state)
{
    enum { MOST = 1 << 20, AT_ONCE = 500, ROUNDS = 60 };
    struct side side;
    struct peer peer;
    uint64_t id = 0, worst = 0;

    (void)state;
    side_init(&side);
    assert_int_equal(side_start_far(&side), 0);
    side.far->unread_most = MOST;
    greet(&side, &peer);
    for (int round = 0; round < ROUNDS && !peer.gone; round++) {
        for (uint32_t stream = 1; stream <= AT_ONCE; stream++) {
            say(&peer, TUNNEL_OPEN, ++id, stream, "nowhere:1");
            assert_int_equal(poise_dedup_peer_end(peer.wire, stream), 0);
        }
        push(&side, &peer);
        for (int i = 0; i < 4 && side.far->links; i++) {
            uint64_t now = poise_dedup_peer_in_flight(side.far->links->peer);
            worst = now > worst ? now : worst;
            assert_int_equal(side_turn(&side), 0);
        }
        peer.gone |= !side.far->links;
    }
    assert_true(peer.gone);
    assert_non_null(strstr(side.last_problem, "more and more"));
    assert_true(worst < 2 * MOST);
    part_with(&peer);
    side_free(&side);
}

/* Messages that cost nothing to say, of numbers that there are not: looking
 * them up must cost as little. All streams are open meanwhile. */
static void test_nonsense(void **state)
{
    enum { OPEN = 400, MANY = 20000 };
    struct side side;
    struct peer peer;
    struct side_timeout timeout = side_timeout();

    (void)state;
    side_init(&side);
    assert_int_equal(side_start_far(&side), 0);
    side.far->conns_most = 0; /* none of them is connected */
    greet(&side, &peer);
    for (uint32_t i = 1; i <= OPEN; i++) {
        say(&peer, TUNNEL_OPEN, i, i, side.server);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        say(&peer, i % 2 ? TUNNEL_CREDIT : TUNNEL_RESET, OPEN + 1 + i % 1000,
            i % 2 ? UINT64_MAX : 0, i % 2 ? NULL : "");
    }
    push(&side, &peer);
    while (tunnel_stats(side.far).connections < OPEN) {
        assert_int_equal(side_turn(&side), 0);
        side_wait(&timeout);
        assert_false(peer.gone);
    }
    for (int i = 0; i < 20; i++) {
        assert_int_equal(side_turn(&side), 0);
    }
    assert_int_equal(tunnel_stats(side.far).links, 1);
    part_with(&peer);
    side_free(&side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before),
        cmocka_unit_test(test_reads_nothing),
        cmocka_unit_test(test_nonsense),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, files_make_folder,
                                  files_remove_folder);
}
