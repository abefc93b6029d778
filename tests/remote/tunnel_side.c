/* See tunnel_side.h. */
#include "tunnel_side.h"
#include "../slowness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PORTION = 1 << 16, LITTLE = 1000 };

struct side_timeout side_timeout(void)
{
    return (struct side_timeout){poise_clock_ns() + slowness_s(SIDE_WAIT_S) *
                                                        UINT64_C(1000000000)};
}

void side_wait(const struct side_timeout *timeout)
{
    if (poise_clock_ns() > timeout->until_ns) {
        fail_msg("it takes for ever");
    }
}

uint16_t side_port(int fd)
{
    struct sockaddr_in at = {0};
    socklen_t len = sizeof at;

    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    return ntohs(at.sin_port);
}

void side_make_small(int fd)
{
    int bytes = 1 << 15;

    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

int side_connect(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    side_make_small(fd);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        assert_int_equal(errno, EINPROGRESS);
    }
    return fd;
}

unsigned char *side_data(size_t len, uint64_t seed)
{
    unsigned char *data = malloc(len + 8);
    struct poise_rng rng;
    size_t done = 0;

    assert_non_null(data);
    poise_rng_seed(&rng, seed);
    while (done < len) {
        size_t back = done > 5000 ? poise_rng_below(&rng, done - 4000) : 0;
        size_t part = 1 + poise_rng_below(&rng, 3000);
        part = part < len - done ? part : len - done;
        if (back > 0 && poise_rng_below(&rng, 2)) {
            memmove(data + done, data + back, part);
        } else {
            for (size_t i = 0; i < part; i++) {
                data[done + i] = (unsigned char)poise_rng_below(&rng, 256);
            }
        }
        done += part;
    }
    return data;
}

/* ---- the server --------------------------------------------------------- */

static void echo_close(struct side_echo *echo)
{
    close(echo->fd);
    free(echo->data);
    *echo = (struct side_echo){.fd = -1};
}

static void echo_turn(struct side_echo *echo)
{
    ssize_t received;

    if (!echo->heard_all && echo->len == 0) {
        received = recv(echo->fd, echo->data, PORTION, 0);
        if (received == 0) {
            echo->heard_all = true;
        } else if (received > 0) {
            echo->len = (size_t)received;
        } else if (errno != EAGAIN) {
            echo_close(echo);
            return;
        }
    }
    while (echo->taken < echo->len) {
        received = send(echo->fd, echo->data + echo->taken,
                        echo->len - echo->taken, MSG_NOSIGNAL);
        if (received < 0 && errno != EAGAIN) {
            echo_close(echo);
            return;
        }
        if (received < 0) {
            return;
        }
        echo->taken += (size_t)received;
    }
    echo->taken = echo->len = 0;
    if (echo->heard_all) {
        echo_close(echo);
    }
}

static void server_turn(struct side *side)
{
    for (size_t i = 0; i < 2 * SIDE_CLIENTS; i++) {
        struct side_echo *echo = &side->echoes[i];
        if (echo->fd < 0) {
            echo->fd = accept4(side->listener, NULL, NULL,
                               SOCK_NONBLOCK | SOCK_CLOEXEC);
            echo->data = echo->fd >= 0 ? malloc(PORTION) : NULL;
        }
        if (echo->fd >= 0) {
            echo_turn(echo);
        }
    }
}

/* ---- clients ------------------------------------------------------------ */

struct side_client *side_client(struct side *side, const void *data, size_t len)
{
    for (size_t i = 0; i < SIDE_CLIENTS; i++) {
        struct side_client *client = &side->clients[i];
        if (client->fd < 0) {
            *client = (struct side_client){.data = data, .len = len};
            client->fd = side_connect(side_port(
                side->near ? side->near->listeners[0].fd : side->listener));
            return client;
        }
    }
    fail_msg("too many clients");
    return NULL;
}

void side_client_close(struct side_client *client)
{
    if (client->fd >= 0) {
        close(client->fd);
    }
    client->fd = -1;
}

static void client_hear(struct side_client *client)
{
    unsigned char part[PORTION];
    ssize_t received =
        recv(client->fd, part, client->slow ? LITTLE : sizeof part, 0);

    if (received > 0) {
        if (client->received + (size_t)received > client->len ||
            memcmp(part, client->data + client->received, (size_t)received) !=
                0) {
            client->wrong = true;
        }
        client->received += (size_t)received;
    } else if (received == 0) {
        client->ended = true;
    } else if (errno != EAGAIN && errno != ENOTCONN) {
        client->error = errno;
    }
}

static void client_turn(struct side_client *client)
{
    if (client->sent < client->len) {
        size_t left = client->len - client->sent;
        ssize_t done = send(client->fd, client->data + client->sent,
                            left < PORTION ? left : PORTION, MSG_NOSIGNAL);
        if (done >= 0) {
            client->sent += (size_t)done;
        } else if (errno != EAGAIN && errno != ENOTCONN) {
            client->error = errno;
        }
    } else if (!client->shut && !client->deaf) {
        client->shut = shutdown(client->fd, SHUT_WR) == 0;
        if (!client->shut && errno != ENOTCONN) {
            client->error = errno;
        }
    }
    if (!client->deaf) {
        client_hear(client);
    }
    if (client->error || client->ended) {
        side_client_close(client);
    }
}

/* ---- everybody ---------------------------------------------------------- */

static void on_problem(const struct poise_error *err, void *arg)
{
    struct side *side = arg;
    struct poise_buf text = {0};

    side->problems++;
    poise_error_format(err, &text);
    snprintf(side->last_problem, sizeof side->last_problem, "%s",
             poise_buf_str(&text));
    poise_buf_free(&text);
}

void side_init(struct side *side)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    memset(side, 0, sizeof *side);
    for (size_t i = 0; i < 2 * SIDE_CLIENTS; i++) {
        side->echoes[i].fd = -1;
    }
    for (size_t i = 0; i < SIDE_CLIENTS; i++) {
        side->clients[i].fd = -1;
    }
    side->listener =
        socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(side->listener >= 0);
    side_make_small(side->listener);
    assert_int_equal(bind(side->listener, (struct sockaddr *)&at, sizeof at),
                     0);
    assert_int_equal(listen(side->listener, 64), 0);
    snprintf(side->server, sizeof side->server, "127.0.0.1:%u",
             side_port(side->listener));
    snprintf(side->forward, sizeof side->forward, "0:%s", side->server);
    side->forwards[0] = side->forward;
    side->allow[0] = side->server;
    side->far_options = (struct poise_remote_tunnel_options){
        .serve = "0",
        .allow = side->allow,
        .allow_count = 1,
        .cache = "",
        .problem = on_problem,
        .arg = side,
    };
    side->near_options = (struct poise_remote_tunnel_options){
        .forwards = side->forwards,
        .forward_count = 1,
        .via = side->via,
        .cache = "",
        .problem = on_problem,
        .arg = side,
    };
}

void side_free(struct side *side)
{
    for (size_t i = 0; i < SIDE_CLIENTS; i++) {
        side_client_close(&side->clients[i]);
    }
    for (size_t i = 0; i < 2 * SIDE_CLIENTS; i++) {
        if (side->echoes[i].fd >= 0) {
            echo_close(&side->echoes[i]);
        }
    }
    if (side->near) {
        tunnel_destroy(side->near);
    }
    if (side->far) {
        tunnel_destroy(side->far);
    }
    close(side->listener);
}

int side_start_far(struct side *side)
{
    int code = tunnel_create(&side->far_options, &side->far);

    if (code == 0) {
        snprintf(side->via, sizeof side->via, "127.0.0.1:%u",
                 side_port(side->far->listeners[0].fd));
    } else {
        side->far = NULL;
    }
    return code;
}

int side_start_near(struct side *side)
{
    int code = tunnel_create(&side->near_options, &side->near);

    if (code < 0) {
        side->near = NULL;
    }
    return code;
}

/* What is tried again later is tried again now. */
static void hurry(struct tunnel *tunnel)
{
    tunnel->retry_ns = 0;
    for (size_t i = 0; i < tunnel->listener_count; i++) {
        tunnel->listeners[i].pause_ns = 0;
    }
}

/* Nobody sleeps: on a busy machine each nap takes long. */
int side_turn(struct side *side)
{
    int code = 0;

    if (side->near) {
        hurry(side->near);
        code = tunnel_turn(side->near, 0);
    }
    if (code == 0 && side->far) {
        hurry(side->far);
        code = tunnel_turn(side->far, 0);
    }
    server_turn(side);
    for (size_t i = 0; i < SIDE_CLIENTS; i++) {
        if (side->clients[i].fd >= 0) {
            client_turn(&side->clients[i]);
        }
    }
    return code;
}

void side_link(struct side *side)
{
    struct side_timeout timeout = side_timeout();

    while (!side->near->via_link || side->near->via_link->window == 0) {
        assert_int_equal(side_turn(side), 0);
        side_wait(&timeout);
    }
}

void side_finish(struct side *side)
{
    struct side_timeout timeout = side_timeout();

    for (size_t i = 0; i < SIDE_CLIENTS; i++) {
        while (side->clients[i].fd >= 0) {
            assert_int_equal(side_turn(side), 0);
            side_wait(&timeout);
        }
    }
}
