/* Tunnels: many who are strangers, many connections, and more than there may
 * be. */
#include "tunnel_files.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

/* Time does not help. */
static void stop_clocks(const struct tunnel *tunnel)
{
    for (struct tunnel_link *at = tunnel->links; at; at = at->next) {
        at->deadline_ns += at->deadline_ns > 0 ? UINT64_C(3600000000000) : 0;
    }
}

/* ---- strangers ---------------------------------------------------------- */

/* Connected from this address, as far as the kernel is concerned. */
static int come_from(const char *address, uint16_t port)
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(inet_pton(AF_INET, address, &own.sin_addr), 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        assert_int_equal(errno, EINPROGRESS);
    }
    return fd;
}

/* Turns until all who knock were let in, or turned away. */
static void let_in(struct side *side)
{
    struct side_timeout timeout = side_timeout();
    const struct tunnel_link *before = NULL;

    /* Sixteen in a turn, and each turn of the list has another first. */
    for (int same = 0; same < 20; same++) {
        assert_int_equal(side_turn(side), 0);
        stop_clocks(side->far);
        if (side->far->links != before) {
            same = 0;
        }
        before = side->far->links;
        side_wait(&timeout);
    }
}

enum { STRANGERS = 90 };

/* `count` strangers from an address, each with its first words, if any. */
static void crowd(struct side *side, int *fds, size_t count,
                  const char *address, const char *words)
{
    uint16_t port = side_port(side->far->listeners[0].fd);

    for (size_t i = 0; i < count; i++) {
        fds[i] = come_from(address, port);
        assert_int_equal(side_turn(side), 0);
        if (words) {
            (void)!send(fds[i], words, strlen(words), MSG_NOSIGNAL);
        }
    }
    let_in(side);
}

static void go(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        close(fds[i]);
    }
}

/* Those who say nothing, from the own address, do not keep out who can prove
 * who he is; nor do those who begin and do not go on, from another one. */
static void test_strangers(void **state)
{
    static const struct {
        const char *address, *words;
    } kinds[] = {{"127.0.0.1", NULL}, {"127.0.0.9", "\x16\x03\x01\x02"}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct side side;
        int fds[STRANGERS];

        side_init(&side);
        files_set_secret(&side);
        assert_int_equal(side_start_far(&side), 0);
        crowd(&side, fds, STRANGERS, kinds[i].address, kinds[i].words);
        stop_clocks(side.far);
        assert_int_equal(side_start_near(&side), 0);
        side_link(&side);
        struct side_client *client = side_client(&side, "hello", 5);
        side_finish(&side);
        assert_int_equal(client->error, 0);
        assert_int_equal(client->received, 5);
        go(fds, STRANGERS);
        side_free(&side);
    }
}

/* ---- many connections --------------------------------------------------- */

/* Users at both ends, each with a word of its own. */
struct pairs {
    struct side *side;
    size_t count, accepted;
    int *near, *far;
};

static void pairs_make(struct pairs *pairs, struct side *side, size_t count)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    *pairs = (struct pairs){.side = side, .count = count};
    pairs->near = calloc(count, sizeof *pairs->near);
    pairs->far = calloc(count, sizeof *pairs->far);
    assert_true(pairs->near && pairs->far);
    assert_int_equal(listen(side->listener, 4096), 0);
}

static void pairs_free(struct pairs *pairs)
{
    go(pairs->near, pairs->count);
    go(pairs->far, pairs->accepted);
    free(pairs->near);
    free(pairs->far);
}

/* Only the ends: users do nothing by themselves. */
static void turn_ends(struct side *side)
{
    assert_int_equal(tunnel_turn(side->near, 0), 0);
    assert_int_equal(tunnel_turn(side->far, 0), 0);
}

static void open_near(struct pairs *pairs, size_t i)
{
    pairs->near[i] =
        side_connect(side_port(pairs->side->near->listeners[0].fd));
}

/* Turns until this connection is there at the other end. */
static void accept_far(struct pairs *pairs)
{
    struct side_timeout timeout = side_timeout();
    int fd;

    while ((fd = accept4(pairs->side->listener, NULL, NULL,
                         SOCK_NONBLOCK | SOCK_CLOEXEC)) < 0) {
        turn_ends(pairs->side);
        if (tunnel_stats(pairs->side->far).links_lost > 0) {
            fail_msg("%s", pairs->side->last_problem);
        }
        side_wait(&timeout);
    }
    pairs->far[pairs->accepted++] = fd;
}

static void expect_word(struct pairs *pairs, int from, int to, uint32_t word)
{
    struct side_timeout timeout = side_timeout();
    uint32_t heard;

    assert_int_equal(send(from, &word, sizeof word, MSG_NOSIGNAL), sizeof word);
    while (recv(to, &heard, sizeof heard, 0) != sizeof heard) {
        turn_ends(pairs->side);
        side_wait(&timeout);
    }
    assert_int_equal(heard, word);
}

/* As many as no link could carry before. */
static void test_hundreds(void **state)
{
    enum { COUNT = 400 };
    struct side side;
    struct pairs pairs;

    (void)state;
    side_init(&side);
    assert_int_equal(side_start_far(&side), 0);
    assert_int_equal(side_start_near(&side), 0);
    side_link(&side);
    pairs_make(&pairs, &side, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        open_near(&pairs, i);
        accept_far(&pairs);
    }
    assert_int_equal(tunnel_stats(side.near).connections, COUNT);
    for (size_t i = 0; i < COUNT; i += 7) {
        expect_word(&pairs, pairs.near[i], pairs.far[i], (uint32_t)i);
        expect_word(&pairs, pairs.far[i], pairs.near[i], (uint32_t)~i);
    }
    pairs_free(&pairs);
    side_free(&side);
}

/* ---- more than there may be --------------------------------------------- */

/* An end and a beginning of `count` connections that are carried. */
static void begin(struct pairs *pairs, struct side *side, size_t count,
                  size_t carried)
{
    side_init(side);
    assert_int_equal(side_start_far(side), 0);
    assert_int_equal(side_start_near(side), 0);
    side_link(side);
    pairs_make(pairs, side, count);
    for (size_t i = 0; i < carried; i++) {
        open_near(pairs, i);
        accept_far(pairs);
    }
}

/* It is refused at once, and the near end says why. */
static void expect_refusal(struct pairs *pairs, size_t i, const char *why)
{
    struct side_timeout timeout = side_timeout();
    char byte;

    open_near(pairs, i);
    while (recv(pairs->near[i], &byte, 1, 0) < 0 && errno != ECONNRESET) {
        turn_ends(pairs->side);
        side_wait(&timeout);
    }
    assert_int_equal(errno, ECONNRESET);
    while (!strstr(pairs->side->last_problem, why)) {
        turn_ends(pairs->side);
        side_wait(&timeout);
    }
    /* Others are as they were. */
    expect_word(pairs, pairs->near[1], pairs->far[1], (uint32_t)i);
    expect_word(pairs, pairs->far[1], pairs->near[1], (uint32_t)i);
}

static void test_refused(void **state)
{
    struct side side;
    struct pairs pairs;

    (void)state;
    begin(&pairs, &side, 6, 2);
    side.near->conns_most = 2;
    expect_refusal(&pairs, 2, "ulimit");
    side.near->conns_most = 9;
    /* There is room again. */
    open_near(&pairs, 3);
    accept_far(&pairs);
    expect_word(&pairs, pairs.near[3], pairs.far[2], 5);
    side.near->via_link->stream_end = 4;
    expect_refusal(&pairs, 4, "no link has more");
    side.near->via_link->stream_end = 9;
    side.far->conns_most = 3;
    expect_refusal(&pairs, 5, "it says: too many are open there");
    assert_int_equal(tunnel_stats(side.near).links_lost, 0);
    pairs_free(&pairs);
    side_free(&side);
}

/* One link more than is served. */
static void test_links(void **state)
{
    struct side side;
    struct tunnel *first;
    struct side_timeout timeout = side_timeout();

    (void)state;
    side_init(&side);
    assert_int_equal(side_start_far(&side), 0);
    side.far->links_most = 1;
    assert_int_equal(side_start_near(&side), 0);
    side_link(&side);
    first = side.near;
    assert_int_equal(side_start_near(&side), 0);
    while (!strstr(side.last_problem, "as many links as it may")) {
        assert_int_equal(side_turn(&side), 0);
        side_wait(&timeout);
    }
    /* It is told, and comes again when there is room. */
    tunnel_destroy(first);
    side_link(&side);
    while (tunnel_stats(side.far).links != 1) {
        assert_int_equal(side_turn(&side), 0);
        side_wait(&timeout);
    }
    side_free(&side);
}

/* Bytes that users do not read are bounded: who brings one more is reset. */
static void test_too_much(void **state)
{
    enum { LEN = 300000 };
    struct side side;
    struct pairs pairs;
    struct side_timeout timeout = side_timeout();
    unsigned char *data = side_data(LEN, 22);
    size_t sent = 0;
    ssize_t done = 0;

    (void)state;
    begin(&pairs, &side, 2, 2);
    side.far->held_most = LEN / 2;
    side_make_small(pairs.far[1]);
    side_make_small(side.far->links->conns[1]->fd);
    while (done >= 0 || errno == EAGAIN) {
        done = send(pairs.near[1], data + sent, LEN - sent, MSG_NOSIGNAL);
        sent += done > 0 ? (size_t)done : 0;
        sent = sent < LEN ? sent : 0;
        turn_ends(&side);
        assert_true(side.far->held <= LEN / 2);
        side_wait(&timeout);
    }
    while (!strstr(side.last_problem, "read slowly")) {
        turn_ends(&side);
        side_wait(&timeout);
    }
    assert_int_equal(side.far->held, 0);
    expect_word(&pairs, pairs.near[0], pairs.far[0], 1);
    pairs_free(&pairs);
    side_free(&side);
    free(data);
}

/* ---- numbers of streams ------------------------------------------------- */

/* A connection is over on the link, but its user is slow to read what came; the
 * next one on its stream does not disturb it. */
static void test_draining(void **state)
{
    enum { LEN = 400000 };
    struct side side;
    struct pairs pairs;
    struct side_timeout timeout = side_timeout();
    unsigned char *data = side_data(LEN, 21), *heard = malloc(LEN);
    size_t sent = 0, received = 0;
    char byte;

    (void)state;
    assert_non_null(heard);
    side_init(&side);
    assert_int_equal(side_start_far(&side), 0);
    assert_int_equal(side_start_near(&side), 0);
    side_link(&side);
    pairs_make(&pairs, &side, 3);
    open_near(&pairs, 0);
    accept_far(&pairs);
    /* The far user says that it is done, and reads nothing. */
    side_make_small(pairs.far[0]);
    side_make_small(side.far->links->conns[0]->fd);
    shutdown(pairs.far[0], SHUT_WR);
    while (sent < LEN) {
        ssize_t done =
            send(pairs.near[0], data + sent, LEN - sent, MSG_NOSIGNAL);
        sent += done > 0 ? (size_t)done : 0;
        turn_ends(&side);
        side_wait(&timeout);
    }
    shutdown(pairs.near[0], SHUT_WR);
    while (tunnel_stats(side.near).connections > 0 ||
           recv(pairs.near[0], &byte, 1, MSG_PEEK) != 0) {
        turn_ends(&side);
        side_wait(&timeout);
    }
    for (int i = 0; i < 20; i++) {
        turn_ends(&side);
    }
    assert_int_equal(tunnel_stats(side.far).connections, 1);
    /* The stream itself, which would have rested. */
    side.near->via_link->last_stream = 0;
    open_near(&pairs, 1);
    accept_far(&pairs);
    expect_word(&pairs, pairs.near[1], pairs.far[1], 77);
    assert_int_equal(tunnel_stats(side.far).connections, 2);
    side.far->draining_most = 1;
    expect_refusal(&pairs, 2, "users who read slowly");
    while (received < LEN) {
        ssize_t done = recv(pairs.far[0], heard + received, LEN - received, 0);
        assert_true(done > 0 || (done < 0 && errno == EAGAIN));
        received += done > 0 ? (size_t)done : 0;
        turn_ends(&side);
        side_wait(&timeout);
    }
    assert_memory_equal(heard, data, LEN);
    assert_int_equal(side.problems, 1);
    pairs_free(&pairs);
    side_free(&side);
    free(data);
    free(heard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strangers), cmocka_unit_test(test_hundreds),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_links),
        cmocka_unit_test(test_too_much),  cmocka_unit_test(test_draining),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, files_make_folder,
                                  files_remove_folder);
}
