/* Tunnels: who may use one, and what one says who may not, or who lies. */
#include "tunnel_files.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- one who lies ------------------------------------------------------- */

struct liar {
    int fd;
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    struct poise_buf said, heard; /* messages; what a connection brought */
    size_t greeting;              /* bytes of it heard */
    uint64_t control_at;
    bool met, gone;
};

static int liar_deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                        void *arg)
{
    struct liar *liar = arg;

    if (stream == TUNNEL_CONTROL) {
        liar->met = true;
    }
    return poise_buf_append(stream == TUNNEL_CONTROL ? &liar->said
                                                     : &liar->heard,
                            piece->data, piece->len);
}

static void liar_init(struct liar *liar, uint16_t port)
{
    struct poise_dedup_peer_options options = {.deliver = liar_deliver,
                                               .arg = liar};

    memset(liar, 0, sizeof *liar);
    assert_int_equal(
        poise_dedup_store_open(NULL, &(struct poise_dedup_store_options){0},
                               &liar->store),
        0);
    options.store = liar->store;
    assert_int_equal(poise_dedup_peer_create(&options, &liar->peer), 0);
    liar->fd = side_connect(port);
}

static void liar_free(struct liar *liar)
{
    poise_dedup_peer_destroy(liar->peer);
    poise_dedup_store_close(liar->store);
    poise_buf_free(&liar->said);
    poise_buf_free(&liar->heard);
    close(liar->fd);
}

static void send_all(struct side *side, struct liar *liar, const void *data,
                     size_t len)
{
    struct side_timeout timeout = side_timeout();
    size_t done = 0;

    while (done < len && !liar->gone) {
        ssize_t put =
            send(liar->fd, (const char *)data + done, len - done, MSG_NOSIGNAL);
        if (put >= 0) {
            done += (size_t)put;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            liar->gone = true;
        }
        assert_int_equal(side_turn(side), 0);
        side_wait(&timeout);
    }
}

static void liar_greet(struct side *side, struct liar *liar)
{
    unsigned char greeting[16] = "POISETUN";

    poise_put_u64(greeting + 8, TUNNEL_VERSION);
    send_all(side, liar, greeting, sizeof greeting);
}

/* Hear what there is. */
static void liar_turn(struct side *side, struct liar *liar)
{
    unsigned char part[1 << 16];
    const void *out;
    size_t len = poise_dedup_peer_output(liar->peer, &out), skip;
    ssize_t received;

    send_all(side, liar, out, len);
    poise_dedup_peer_took(liar->peer, len);
    assert_int_equal(side_turn(side), 0);
    received = recv(liar->fd, part, sizeof part, 0);
    if (received == 0 ||
        (received < 0 && errno != EAGAIN && errno != ENOTCONN)) {
        liar->gone = true;
    }
    if (received > 0) {
        skip = 16 - liar->greeting;
        skip = skip < (size_t)received ? skip : (size_t)received;
        liar->greeting += skip;
        assert_int_equal(poise_dedup_peer_feed(liar->peer, part + skip,
                                               (size_t)received - skip),
                         0);
    }
}

static void liar_connect(struct side *side, struct liar *liar)
{
    struct side_timeout timeout = side_timeout();

    liar_greet(side, liar);
    while (!liar->met) {
        liar_turn(side, liar);
        side_wait(&timeout);
    }
}

static void put(struct liar *liar, uint32_t stream, const void *data,
                size_t len)
{
    struct poise_dedup_piece piece = {
        .kind = POISE_DEDUP_LITERAL,
        .data = data,
        .len = len,
        .place = {.width = (uint32_t)len, .height = 1}};

    if (stream == TUNNEL_CONTROL) {
        piece.place.x = liar->control_at;
        liar->control_at += len;
    }
    assert_int_equal(poise_dedup_peer_send_piece(liar->peer, stream, &piece),
                     0);
}

/* A message with these numbers; `text` may be NULL. */
static void say(struct liar *liar, int kind, unsigned count,
                const uint64_t *numbers, const char *text)
{
    struct poise_buf body = {0};

    poise_buf_append(&body, "\0\0", 2);
    poise_buf_putc(&body, (char)kind);
    for (unsigned i = 0; i < count; i++) {
        poise_buf_varint(&body, numbers[i]);
    }
    if (text) {
        poise_buf_blob(&body, text, strlen(text));
    }
    assert_int_equal(body.error, 0);
    body.data[0] = (char)(body.len - 2);
    put(liar, TUNNEL_CONTROL, body.data, body.len);
    poise_buf_free(&body);
}
#define SAY(liar, kind, text, ...)                                             \
    say(liar, kind, sizeof((uint64_t[]){__VA_ARGS__}) / 8,                     \
        (uint64_t[]){__VA_ARGS__}, text)

/* It must be let go. */
static void expect_gone(struct side *side, struct liar *liar)
{
    struct side_timeout timeout = side_timeout();
    unsigned before = side->problems;

    if (liar->met) {
        assert_int_equal(poise_dedup_peer_flush(liar->peer), 0);
    }
    while (!liar->gone) {
        liar_turn(side, liar);
        side_wait(&timeout);
    }
    while (side->problems == before) {
        assert_int_equal(side_turn(side), 0);
        side_wait(&timeout);
    }
    assert_int_equal(tunnel_stats(side->far).links, 0);
}

enum { LIES = 16 };

static void tell_lie(struct side *side, struct liar *liar, int which)
{
    static unsigned char much[POISE_DEDUP_SEGMENT_MOST];
    const char *to = side->server;

    if (which > 1 && which != 15) {
        SAY(liar, TUNNEL_LIMITS, NULL, 1 << 16);
    }
    switch (which) {
    case 0: /* before it said its limits */
        SAY(liar, TUNNEL_OPEN, to, 1, 1);
        break;
    case 1:
        SAY(liar, TUNNEL_LIMITS, NULL, 0);
        break;
    case 15: /* no stream but that of messages */
        SAY(liar, TUNNEL_LIMITS, NULL, 1 << 16, 1);
        break;
    case 2: /* twice */
        SAY(liar, TUNNEL_LIMITS, NULL, 1 << 16);
        break;
    case 3:
        SAY(liar, 9, NULL, 1);
        break;
    case 4: /* the stream of messages */
        SAY(liar, TUNNEL_OPEN, to, 1, 0);
        break;
    case 5:
        SAY(liar, TUNNEL_OPEN, to, 1, TUNNEL_STREAMS);
        break;
    case 6: /* a stream that is in use */
        SAY(liar, TUNNEL_OPEN, to, 1, 1);
        SAY(liar, TUNNEL_OPEN, to, 2, 1);
        break;
    case 7: /* a number that was used */
        SAY(liar, TUNNEL_OPEN, to, 1, 1);
        SAY(liar, TUNNEL_OPEN, to, 1, 2);
        break;
    case 8: /* cut short */
        SAY(liar, TUNNEL_OPEN, NULL, 1);
        break;
    case 9: /* data for nobody */
        put(liar, 7, "x", 1);
        break;
    case 10: /* an end for nobody */
        assert_int_equal(poise_dedup_peer_end(liar->peer, 7), 0);
        break;
    case 11: /* more than may come */
        SAY(liar, TUNNEL_OPEN, to, 1, 1);
        put(liar, 1, much, sizeof much);
        put(liar, 1, much, 1);
        break;
    case 12: /* no message is so short */
        put(liar, TUNNEL_CONTROL, "\0\0", 2);
        break;
    case 13: /* or so long */
        put(liar, TUNNEL_CONTROL, "\0\xff", 2);
        break;
    default:
        SAY(liar, TUNNEL_OPEN, to, 1, 1);
        SAY(liar, TUNNEL_CREDIT, NULL, 1, UINT64_MAX);
        break;
    }
}

static void test_lies(void **state)
{
    struct side side;

    (void)state;
    side_init(&side);
    assert_int_equal(side_start_far(&side), 0);
    for (int which = 0; which < LIES; which++) {
        struct liar liar;
        liar_init(&liar, side_port(side.far->listeners[0].fd));
        liar_connect(&side, &liar);
        tell_lie(&side, &liar, which);
        expect_gone(&side, &liar);
        liar_free(&liar);
    }
    side_free(&side);
}

/* What is late is no lie. */
static void test_late(void **state)
{
    struct side side;
    struct liar liar;
    struct side_timeout timeout = side_timeout();

    (void)state;
    side_init(&side);
    assert_int_equal(side_start_far(&side), 0);
    liar_init(&liar, side_port(side.far->listeners[0].fd));
    liar_connect(&side, &liar);
    SAY(&liar, TUNNEL_LIMITS, NULL, 1 << 16);
    SAY(&liar, TUNNEL_CREDIT, NULL, 77, 1000);
    SAY(&liar, TUNNEL_RESET, "", 78);
    SAY(&liar, TUNNEL_OPEN, side.server, 1, 200);
    put(&liar, 200, "hello", 5);
    assert_int_equal(poise_dedup_peer_flush(liar.peer), 0);
    while (liar.heard.len < 5) {
        liar_turn(&side, &liar);
        side_wait(&timeout);
        assert_false(liar.gone);
    }
    assert_memory_equal(liar.heard.data, "hello", 5);
    /* It is of those that do not say how many streams they know. */
    assert_int_equal(side.far->links->stream_end, TUNNEL_STREAMS_OLD);
    /* Someone else is not disturbed when it goes. */
    assert_int_equal(side_start_near(&side), 0);
    side_link(&side);
    assert_int_equal(tunnel_stats(side.far).links, 2);
    liar_free(&liar);
    struct side_client *client = side_client(&side, "x", 1);
    side_finish(&side);
    assert_int_equal(client->error, 0);
    assert_int_equal(client->received, 1);
    side_free(&side);
}

/* Bytes that are no greeting, and none that are no wire. */
static void test_garbage(void **state)
{
    struct side side;
    unsigned char *noise = side_data(100000, 11);

    (void)state;
    side_init(&side);
    assert_int_equal(side_start_far(&side), 0);
    for (int which = 0; which < 3; which++) {
        struct liar liar;
        liar_init(&liar, side_port(side.far->listeners[0].fd));
        if (which == 0) {
            send_all(&side, &liar, "GET / HTTP/1.1\r\n\r\n", 18);
        } else {
            liar_greet(&side, &liar);
            send_all(&side, &liar, noise + which, 90000);
        }
        poise_dedup_peer_took(liar.peer, 1);
        struct side_timeout timeout = side_timeout();
        while (side.problems <= (unsigned)which) {
            assert_int_equal(side_turn(&side), 0);
            side_wait(&timeout);
        }
        assert_int_equal(tunnel_stats(side.far).links, 0);
        liar_free(&liar);
    }
    side_free(&side);
    free(noise);
}

/* ---- secrets ------------------------------------------------------------ */

static void save(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

/* Whether the two ends come together; if not, a problem was told. */
static bool do_connect(struct side *side)
{
    struct side_timeout timeout = side_timeout();
    struct side_client *client;
    unsigned before = side->problems;

    assert_int_equal(side_start_far(side), 0);
    assert_int_equal(side_start_near(side), 0);
    while (side->problems < before + 2) {
        assert_int_equal(side_turn(side), 0);
        side_wait(&timeout);
        if (side->near->via_link && side->near->via_link->window > 0) {
            client = side_client(side, "hello", 5);
            side_finish(side);
            assert_int_equal(client->error, 0);
            assert_int_equal(client->received, 5);
            return true;
        }
    }
    assert_int_equal(tunnel_stats(side->far).links_made, 0);
    assert_int_equal(tunnel_stats(side->far).peer.data_in, 0);
    return false;
}

static bool do_connect_with(const char *near_secret, const char *far_secret)
{
    struct side side;
    bool is_connected;

    side_init(&side);
    side.near_options.secret = near_secret;
    side.far_options.secret = far_secret;
    is_connected = do_connect(&side);
    side_free(&side);
    return is_connected;
}

static void test_secret(void **state)
{
    const char *one = files_path("one"), *other = files_path("other");
    const char *odd = files_path("odd");
    struct side side;
    struct stat st;

    (void)state;
    assert_int_equal(poise_remote_tunnel_secret(one), 0);
    assert_int_equal(poise_remote_tunnel_secret(other), 0);
    assert_int_equal(poise_remote_tunnel_secret(one), -EEXIST);
    assert_int_equal(stat(one, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_true(do_connect_with(one, one));
    assert_false(do_connect_with(one, other));
    assert_false(do_connect_with(NULL, one));
    assert_false(do_connect_with(one, NULL));
    side_init(&side);
    side.far_options.secret = odd;
    assert_int_equal(side_start_far(&side), -ENOENT);
    save(odd, "0123456789abcdef", 0600);
    assert_int_equal(side_start_far(&side), -EINVAL);
    save(odd, "0123456789abcdef0123456789abcdeg", 0600);
    assert_int_equal(side_start_far(&side), -EINVAL);
    save(odd, "0123456789abcdef0123456789abcdef", 0640);
    assert_int_equal(side_start_far(&side), -EPERM);
    save(odd, "0123456789abcdef0123456789ABCDEF\n", 0600);
    assert_int_equal(side_start_far(&side), 0);
    side_free(&side);
}

/* Who has no secret hears nothing but that it is not understood. */
static void test_silence(void **state)
{
    const char *secret = files_path("silence");
    unsigned char heard[4096];
    struct side side;
    struct side_timeout timeout = side_timeout();
    size_t total = 0;
    ssize_t received = -1;
    int fd;

    (void)state;
    assert_int_equal(poise_remote_tunnel_secret(secret), 0);
    side_init(&side);
    side.far_options.secret = secret;
    assert_int_equal(side_start_far(&side), 0);
    fd = side_connect(side_port(side.far->listeners[0].fd));
    for (int i = 0; i < 50; i++) {
        assert_int_equal(side_turn(&side), 0);
        assert_true(recv(fd, heard, sizeof heard, 0) < 0);
    }
    assert_int_equal(send(fd, "POISETUN\1\0\0\0\0\0\0\0", 16, MSG_NOSIGNAL),
                     16);
    while (received != 0 && !(received < 0 && errno == ECONNRESET)) {
        assert_int_equal(side_turn(&side), 0);
        received = recv(fd, heard, sizeof heard, 0);
        total += received > 0 ? (size_t)received : 0;
        side_wait(&timeout);
    }
    /* An alert of TLS. */
    assert_true(total <= 7);
    close(fd);
    side_free(&side);
}

/* ---- certificates ------------------------------------------------------- */

/* Each end with its certificate, and whose the near end wants to see. */
static bool do_connect_certified(const char *near, const char *near_key,
                                 const char *name)
{
    struct side side;
    bool is_connected;

    side_init(&side);
    files_set_cert(&side.far_options, "far.pem", "far.key", "ca.pem");
    files_set_cert(&side.near_options, near, near_key, "ca.pem");
    side.near_options.peer_name = name;
    is_connected = do_connect(&side);
    side_free(&side);
    return is_connected;
}

static void test_certificates(void **state)
{
    struct side side;

    (void)state;
    files_make_certs();
    /* By the address that it connects to, and by name. */
    assert_true(do_connect_certified("near.pem", "near.key", NULL));
    assert_true(do_connect_certified("near.pem", "near.key", "far.test"));
    assert_false(do_connect_certified("near.pem", "near.key", "other.test"));
    assert_false(do_connect_certified("alien.pem", "alien.key", NULL));
    side_init(&side);
    files_set_cert(&side.far_options, "far.pem", "near.key", "ca.pem");
    assert_int_equal(side_start_far(&side), -EINVAL);
    files_set_cert(&side.far_options, "far.pem", "far.key", "missing");
    assert_int_equal(side_start_far(&side), -EINVAL);
    side.far_options.ca = NULL;
    assert_int_equal(side_start_far(&side), -EINVAL);
    files_set_cert(&side.far_options, "far.pem", "far.key", "ca.pem");
    side.far_options.secret = files_path("ca.pem");
    assert_int_equal(side_start_far(&side), -EINVAL);
    side_free(&side);
    /* Which client it is can be asked for, too. */
    side_init(&side);
    files_set_cert(&side.far_options, "far.pem", "far.key", "ca.pem");
    files_set_cert(&side.near_options, "near.pem", "near.key", "ca.pem");
    side.far_options.peer_name = "someone.else";
    assert_false(do_connect(&side));
    side_free(&side);
}

/* ---- the page ----------------------------------------------------------- */

static const char *show(const struct poise_remote_tunnel_stats *stats,
                        const char *path, struct poise_buf *out, void *arg)
{
    (void)arg;
    poise_buf_printf(out, "links %u", stats->links);
    return strcmp(path, "/here") == 0 ? "text/plain" : NULL;
}

/* What it answers, up to the end of the connection. */
static void ask(struct side *side, const char *request, char *answer,
                size_t most)
{
    struct side_timeout timeout = side_timeout();
    int fd = side_connect(side_port(side->far->listeners[0].fd));
    size_t total = 0, asked = 0, len = strlen(request);

    for (ssize_t received = -1; received != 0;) {
        /* Byte by byte. */
        if (asked < len && send(fd, request + asked, 1, MSG_NOSIGNAL) == 1) {
            asked++;
        }
        assert_int_equal(side_turn(side), 0);
        received = recv(fd, answer + total, most - 1 - total, 0);
        total += received > 0 ? (size_t)received : 0;
        assert_true(received >= 0 || errno == EAGAIN || errno == ENOTCONN);
        side_wait(&timeout);
    }
    answer[total] = 0;
    close(fd);
}

static void test_page(void **state)
{
    struct side side;
    char answer[2000];

    (void)state;
    side_init(&side);
    side.far_options.metrics = "0";
    side.far_options.page = show;
    assert_int_equal(side_start_far(&side), 0);
    ask(&side, "GET /here?x HTTP/1.1\r\nHost: x\r\n\r\n", answer,
        sizeof answer);
    assert_int_equal(strncmp(answer, "HTTP/1.1 200 OK\r\n", 17), 0);
    assert_non_null(strstr(answer, "Content-Length: 7\r\n"));
    assert_non_null(strstr(answer, "\r\n\r\nlinks 0"));
    ask(&side, "GET /there HTTP/1.1\r\n\r\n", answer, sizeof answer);
    assert_int_equal(strncmp(answer, "HTTP/1.1 404", 12), 0);
    ask(&side, "POST /here HTTP/1.1\r\n\r\n", answer, sizeof answer);
    assert_int_equal(strncmp(answer, "HTTP/1.1 400", 12), 0);
    side_free(&side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lies),    cmocka_unit_test(test_late),
        cmocka_unit_test(test_garbage), cmocka_unit_test(test_secret),
        cmocka_unit_test(test_silence), cmocka_unit_test(test_certificates),
        cmocka_unit_test(test_page),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, files_make_folder,
                                  files_remove_folder);
}
