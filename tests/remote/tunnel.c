/* Tunnels: what goes in comes out, whatever happens on the way. */
#include "tunnel_side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- addresses ---------------------------------------------------------- */

static void test_names(void **state)
{
    static const char *const bad[] = {
        "",    ":",     "a:b:c", "[::1",    "[::1]80",
        "::1", "host:", "[a]:",  "1:2:3:4", "1:2:3:4:5"};
    struct remote_name name, target;
    char longer[400];

    (void)state;
    assert_int_equal(remote_name_parse("80", &name), 0);
    assert_string_equal(name.host, "");
    assert_string_equal(name.port, "80");
    assert_int_equal(remote_name_parse("web:http", &name), 0);
    assert_string_equal(name.host, "web");
    assert_string_equal(name.port, "http");
    assert_int_equal(remote_name_parse("[fe80::1%eth0]:22", &name), 0);
    assert_string_equal(name.host, "fe80::1%eth0");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(remote_name_parse(bad[i], &name), -EINVAL);
    }
    memset(longer, 'x', sizeof longer);
    memcpy(longer + sizeof longer - 4, ":80", 4);
    assert_int_equal(remote_name_parse(longer, &name), -EINVAL);
    assert_int_equal(remote_forward_parse("1:a:2", &name, &target), 0);
    assert_string_equal(name.host, "");
    assert_string_equal(name.port, "1");
    assert_string_equal(target.host, "a");
    assert_string_equal(target.port, "2");
    assert_int_equal(remote_forward_parse("[::]:1:[::1]:2", &name, &target), 0);
    assert_string_equal(name.host, "::");
    assert_string_equal(target.host, "::1");
    assert_int_equal(remote_forward_parse("1:2", &name, &target), -EINVAL);
    assert_int_equal(remote_forward_parse("1:a:2:b:3", &name, &target),
                     -EINVAL);
}

/* Without a secret nothing but this machine is listened or connected to. */
static void test_beyond(void **state)
{
    static const char *const beyond[] = {"0.0.0.0:0", "[::]:0", "192.0.2.1:0"};
    struct side side;

    (void)state;
    side_init(&side);
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        side.far_options.serve = beyond[i];
        assert_int_equal(side_start_far(&side), -EINVAL);
        assert_non_null(strstr(poise_error_last()->why, "beyond"));
        side.near_options.via = beyond[i];
        assert_int_equal(side_start_near(&side), -EINVAL);
        assert_non_null(strstr(poise_error_last()->why, "beyond"));
    }
    side.near_options.via = "127.0.0.1:1";
    side.forwards[0] = "0.0.0.0:0:a:1";
    assert_int_equal(side_start_near(&side), -EINVAL);
    side.forwards[0] = side.forward;
    side.near_options.metrics = "0.0.0.0:0";
    assert_int_equal(side_start_near(&side), -EINVAL);
    side_free(&side);
}

static void test_senseless(void **state)
{
    struct side side;

    (void)state;
    side_init(&side);
    side.far_options.allow_count = 0;
    assert_int_equal(side_start_far(&side), -EINVAL);
    side.far_options.serve = NULL;
    assert_int_equal(side_start_far(&side), -EINVAL);
    side.far_options.allow_count = 1;
    assert_int_equal(side_start_far(&side), -EINVAL);
    side.near_options.forward_count = 0;
    side.near_options.via = "127.0.0.1:1";
    assert_int_equal(side_start_near(&side), -EINVAL);
    side.near_options.forward_count = 1;
    side.near_options.via = NULL;
    assert_int_equal(side_start_near(&side), -EINVAL);
    side.near_options.via = "127.0.0.1";
    side.forwards[0] = "1:2";
    assert_int_equal(side_start_near(&side), -EINVAL);
    side_free(&side);
}

/* Each end cuts as it was told for where connections go. */
static void test_ways(void **state)
{
    static const char *const wrong[] = {"geer", "web=gear",
                                        "web:80=", "web:80=gear,size=1",
                                        "floats,element=6"};
    static const char *const right[] = {
        "gear,size=64", "web:80=floats,shape=3x4", "[::1]:80=lbfs", "auto"};
    struct side side;

    (void)state;
    side_init(&side);
    side.near_options.via = "127.0.0.1:1";
    side.near_options.segmenter_count = 1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        side.near_options.segmenters = wrong + i;
        assert_int_equal(side_start_near(&side), -EINVAL);
    }
    side.near_options.segmenters = right;
    side.near_options.segmenter_count = sizeof right / sizeof *right;
    struct tunnel tunnel = {.options = side.near_options};
    assert_int_equal(tunnel_routes_create(&tunnel), 0);
    assert_ptr_equal(tunnel_route_of(&tunnel, "web:80", 6), &tunnel.routes[1]);
    assert_int_equal(tunnel.routes[1].cut.shape[1], 4);
    assert_ptr_equal(tunnel_route_of(&tunnel, "[::1]:80", 8),
                     &tunnel.routes[2]);
    assert_ptr_equal(tunnel_route_of(&tunnel, "web:8", 5), &tunnel.routes[3]);
    assert_true(tunnel.routes[3].samples && !tunnel.routes[0].samples);
    tunnel.route_count = 1;
    assert_ptr_equal(tunnel_route_of(&tunnel, "web:8", 5), &tunnel.routes[0]);
    tunnel.route_count = sizeof right / sizeof *right;
    tunnel_routes_free(&tunnel);
    side_free(&side);
}

/* ---- what it is for ----------------------------------------------------- */

static void start(struct side *side)
{
    side_init(side);
    assert_int_equal(side_start_far(side), 0);
    assert_int_equal(side_start_near(side), 0);
}

static void check_all_well(const struct side *side)
{
    for (size_t i = 0; i < SIDE_CLIENTS; i++) {
        const struct side_client *client = &side->clients[i];
        assert_int_equal(client->error, 0);
        assert_false(client->wrong);
        assert_int_equal(client->received, client->len);
    }
}

/* Turns until both ends have let go all connections. */
static void settle(struct side *side)
{
    struct side_timeout timeout = side_timeout();

    while (tunnel_stats(side->near).connections > 0 ||
           tunnel_stats(side->far).connections > 0) {
        assert_int_equal(side_turn(side), 0);
        side_wait(&timeout);
    }
}

static void test_many(void **state)
{
    static const size_t lens[] = {0, 1, 63, 64, 4096, 5000, 300000, 1};
    enum { MOST = 300000 };
    struct side side;
    unsigned char *data = side_data(MOST, 5);
    struct poise_remote_tunnel_stats stats;

    (void)state;
    start(&side);
    for (size_t i = 0; i < SIDE_CLIENTS; i++) {
        struct side_client *client = side_client(
            &side, data + i, lens[i % (sizeof lens / sizeof *lens)]);
        client->slow = i % 5 == 0 && client->len < 10000;
        client->len = client->len == MOST ? MOST - i : client->len;
    }
    side_finish(&side);
    check_all_well(&side);
    settle(&side);
    stats = tunnel_stats(side.near);
    assert_int_equal(stats.carried, SIDE_CLIENTS);
    assert_int_equal(stats.resets, 0);
    assert_int_equal(stats.links_made, 1);
    assert_int_equal(stats.peer.data_out, tunnel_stats(side.far).peer.data_in);
    /* All but the first of the long ones are known. */
    assert_true(stats.link_out_bytes < 2 * (uint64_t)MOST);
    assert_int_equal(side.near->via_link->exposed, 0);
    side_free(&side);
    free(data);
}

/* A byte comes back without another one pushing it. */
/* Arrays of floats, by a segmenter for the port and by one that is chosen. */
static void test_floats(void **state)
{
    enum { CELLS = 140000, LEN = CELLS * 8 };
    static double field[CELLS], other[CELLS]; /* kept off the stack */

    (void)state;
    for (size_t i = 0; i < CELLS; i++) {
        other[i] = 5 + cos((double)(i % 200) / 17) + sin((double)i / 7000);
        field[i] = 3 + sin((double)(i % 200) / 20) + cos((double)i / 9000);
    }
    for (int chosen = 0; chosen < 2; chosen++) {
        struct side side;
        char here[160];
        const char *near = here, *far = "auto";
        struct poise_remote_tunnel_stats stats;

        side_init(&side);
        snprintf(here, sizeof here, "%s=floats,shape=400x200,element=8",
                 side.server);
        near = chosen ? "auto" : here;
        side.near_options.segmenters = &near;
        side.far_options.segmenters = &far;
        side.near_options.segmenter_count = 1;
        side.far_options.segmenter_count = 1;
        assert_int_equal(side_start_far(&side), 0);
        assert_int_equal(side_start_near(&side), 0);
        /* What was said to one is known to the next; the second half is new. */
        side_client(&side, field, LEN / 2);
        side_finish(&side);
        side_client(&side, field, LEN - 5);
        side_finish(&side);
        side_client(&side, other, LEN / 4);
        side_finish(&side);
        check_all_well(&side);
        stats = tunnel_stats(side.near);
        assert_true(stats.peer.by_residual > 0);

        if (!chosen) {
            assert_true(stats.link_out_bytes < LEN);
        }
        settle(&side);
        side_free(&side);
    }
}

static void test_interactive(void **state)
{
    static const unsigned char keys[] = "echo hello\n";
    struct side side;
    struct side_client *client;

    (void)state;
    start(&side);
    client = side_client(&side, keys, 0);
    client->deaf = true;
    for (size_t i = 0; i < sizeof keys; i++) {
        struct side_timeout timeout = side_timeout();
        client->len = i + 1;
        while (client->sent <= i) {
            assert_int_equal(side_turn(&side), 0);
            side_wait(&timeout);
        }
        client->deaf = false;
        client->shut = true; /* it has more to say */
        while (client->received <= i) {
            assert_int_equal(side_turn(&side), 0);
            side_wait(&timeout);
        }
        client->deaf = true;
    }
    assert_false(client->wrong);
    client->deaf = client->shut = false;
    side_finish(&side);
    assert_int_equal(client->error, 0);
    side_free(&side);
}

/* What nobody reads waits where it comes from, and others go on. */
static void test_slow_reader(void **state)
{
    enum { WINDOW = 1 << 17, MANY = 8 << 20, FEW = 100000 };
    struct side side;
    unsigned char *data = malloc(MANY), *part = side_data(FEW, 6);
    struct side_client *deaf, *other;
    struct side_timeout timeout = side_timeout();
    uint64_t before = 1, now = 0;

    (void)state;
    assert_non_null(data);
    for (size_t at = 0; at < MANY; at += FEW) {
        memcpy(data + at, part, MANY - at < FEW ? MANY - at : FEW);
    }
    start(&side);
    side_make_small(side.near->listeners[0].fd);
    side.near->window_most = side.far->window_most = WINDOW;
    deaf = side_client(&side, data, MANY);
    deaf->deaf = true;
    /* Until it gets rid of nothing any more. */
    for (int idle = 0; idle < 5000;) {
        assert_int_equal(side_turn(&side), 0);
        now = deaf->sent;
        idle = now == before && now > 0 ? idle + 1 : 0;
        before = now;
        side_wait(&timeout);
        assert_true(!side.near->via_link ||
                    side.near->via_link->exposed <= WINDOW);
    }
    assert_true(deaf->sent < MANY);
    other = side_client(&side, data, FEW);
    while (other->fd >= 0) {
        assert_int_equal(side_turn(&side), 0);
        side_wait(&timeout);
    }
    assert_int_equal(other->received, FEW);
    assert_int_equal(other->error, 0);
    deaf->deaf = false;
    side_finish(&side);
    check_all_well(&side);
    side_free(&side);
    free(data);
    free(part);
}

/* An error at one end is one at the other, and no end of data. */
static void test_reset(void **state)
{
    struct side side;
    struct side_client *client;
    struct side_timeout timeout = side_timeout();
    static unsigned char data[1000];

    (void)state;
    start(&side);
    client = side_client(&side, data, sizeof data);
    client->shut = true;
    while (client->received < sizeof data) {
        assert_int_equal(side_turn(&side), 0);
        side_wait(&timeout);
    }
    for (size_t i = 0; i < 2 * SIDE_CLIENTS; i++) {
        if (side.echoes[i].fd >= 0) {
            remote_close_hard(side.echoes[i].fd);
            free(side.echoes[i].data);
            side.echoes[i] = (struct side_echo){.fd = -1};
        }
    }
    side_finish(&side);
    assert_int_equal(client->error, ECONNRESET);
    settle(&side);
    assert_int_equal(tunnel_stats(side.near).resets, 1);
    assert_int_equal(tunnel_stats(side.far).resets, 1);
    side_free(&side);
}

/* A port at which nobody listens, nor can begin to. */
static void test_nobody(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct side side;
    struct side_client *client;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    side_init(&side);
    snprintf(side.server, sizeof side.server, "127.0.0.1:%u", side_port(fd));
    snprintf(side.forward, sizeof side.forward, "0:%s", side.server);
    assert_int_equal(side_start_far(&side), 0);
    assert_int_equal(side_start_near(&side), 0);
    client = side_client(&side, "x", 1);
    side_finish(&side);
    assert_int_equal(client->error, ECONNRESET);
    assert_non_null(strstr(side.last_problem, "refused"));
    assert_int_equal(tunnel_stats(side.far).refused, 1);
    side_free(&side);
    close(fd);
}

/* What is not allowed is not connected to. */
static void test_not_allowed(void **state)
{
    struct side side;
    struct side_client *client;

    (void)state;
    side_init(&side);
    side.allow[0] = "127.0.0.1:1";
    assert_int_equal(side_start_far(&side), 0);
    assert_int_equal(side_start_near(&side), 0);
    client = side_client(&side, "x", 1);
    side_finish(&side);
    assert_int_equal(client->error, ECONNRESET);
    assert_non_null(strstr(side.last_problem, "may not"));
    assert_int_equal(tunnel_stats(side.far).refused, 1);
    side_free(&side);
}

/* ---- what goes wrong ---------------------------------------------------- */

/* The other end goes and comes again: connections break, new ones work. */
static void test_reconnect(void **state)
{
    enum { LEN = 1 << 20 };
    struct side side;
    unsigned char *data = side_data(LEN, 7);
    struct side_client *client;

    (void)state;
    start(&side);
    for (int round = 0; round < 3; round++) {
        struct side_timeout timeout = side_timeout();
        side_link(&side);
        client = side_client(&side, data, LEN);
        while (client->received < 100000) {
            assert_int_equal(side_turn(&side), 0);
            side_wait(&timeout);
        }
        if (round == 1) {
            /* The link breaks, the other end stays. */
            assert_int_equal(shutdown(side.near->via_link->wire.fd, SHUT_RDWR),
                             0);
        } else {
            tunnel_destroy(side.far);
            side.far = NULL;
        }
        side_finish(&side);
        assert_true(client->error != 0);
        assert_false(client->wrong);
        if (!side.far) {
            /* Its address is another one now. */
            assert_int_equal(side_start_far(&side), 0);
            assert_int_equal(remote_name_parse(side.via, &side.near->via_name),
                             0);
        }
        side_link(&side);
        client = side_client(&side, data, LEN);
        side_finish(&side);
        assert_int_equal(client->error, 0);
        assert_int_equal(client->received, LEN);
        assert_false(client->wrong);
    }
    assert_int_equal(tunnel_stats(side.near).links_lost, 3);
    assert_int_equal(tunnel_stats(side.near).links_made, 4);
    side_free(&side);
    free(data);
}

/* The k-th call fails: what arrives is right as far as it goes, and what comes
 * then arrives whole. 1 once no call failed any more. */
static int try_fault(enum poise_fault kind, uint64_t k, int code,
                     const unsigned char *data, size_t len)
{
    struct side side;
    struct side_client *client;
    uint64_t calls;
    int err;

    side_init(&side);
    poise_fault_arm(kind, k, code, false);
    err = side_start_far(&side);
    if (err == 0) {
        err = side_start_near(&side);
    }
    if (err == 0) {
        struct side_timeout timeout = side_timeout();
        client = side_client(&side, data, len);
        while (client->fd >= 0 && err == 0) {
            err = side_turn(&side);
            side_wait(&timeout);
        }
        assert_false(client->wrong);
        assert_true(err < 0 || client->error || client->received == len);
    }
    calls = poise_fault_calls(kind);
    poise_fault_arm(kind, 0, 0, false);
    if (err == 0) {
        client = side_client(&side, data, len);
        side_finish(&side);
        if (client->error) {
            /* The link was still to break. */
            side_link(&side);
            client = side_client(&side, data, len);
            side_finish(&side);
        }
        assert_int_equal(client->error, 0);
        assert_int_equal(client->received, len);
        assert_false(client->wrong);
    }
    side_free(&side);
    return calls < k;
}

static void test_faults(void **state)
{
    enum { LEN = 30000 };
    unsigned char *data = side_data(LEN, 8);
    uint64_t k;

    (void)state;
    for (k = 1; !try_fault(POISE_FAULT_READ, k, ECONNRESET, data, LEN); k++) {
        assert_true(k < 1000);
    }
    for (k = 1; !try_fault(POISE_FAULT_SEND, k, EPIPE, data, LEN); k++) {
        assert_true(k < 1000);
    }
    for (k = 1; !try_fault(POISE_FAULT_OPEN, k, EMFILE, data, LEN); k++) {
        assert_true(k < 1000);
    }
    for (k = 1; !try_fault(POISE_FAULT_ALLOC, k, ENOMEM, data, LEN);
         k += 1 + k / 32) {
        assert_true(k < 10000);
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),       cmocka_unit_test(test_beyond),
        cmocka_unit_test(test_senseless),   cmocka_unit_test(test_ways),
        cmocka_unit_test(test_floats),      cmocka_unit_test(test_many),
        cmocka_unit_test(test_interactive), cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_reset),       cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_not_allowed), cmocka_unit_test(test_reconnect),
        cmocka_unit_test(test_faults),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
