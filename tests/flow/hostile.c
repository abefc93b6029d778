/*
 * Room flow among people who mean it no good: strangers at the ports of a node
 * and of the map, who have not the job's secret, and a map, or a node, that has
 * it and says what cannot be.
 */
#include "../slowness.h"
#include "common.h"

#include "flow/link/link.h"
#include "flow/server/server.h"

#include <poise/core.h>

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define WAIT_S 60
#define SOAK_S 60 /* POISE_TEST_SOAK may say more */

/* ---- sockets ------------------------------------------------------------ */

static int come(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval most = {.tv_sec = (time_t)slowness_s(WAIT_S)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* Whether all of it was taken. */
static bool put(int fd, const void *data, size_t len)
{
    return send(fd, data, len, MSG_NOSIGNAL) == (ssize_t)len;
}

/* Whether it came; it does not, where the other end hung up. */
static bool get(int fd, void *data, size_t len)
{
    char *to = data;
    for (size_t done = 0; done < len;) {
        ssize_t got = recv(fd, to + done, len - done, 0);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            fail_msg("it takes for ever");
        }
        if (got < 0 && errno == EINTR) {
            continue; /* stopped, and gone on */
        }
        if (got <= 0) {
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

static bool say(int fd, const struct flow_head *given, const void *data)
{
    struct flow_head head = *given;
    head.digest = flow_digest(&head, data);
    return put(fd, &head, sizeof head) &&
           (head.len == 0 || put(fd, data, head.len));
}

/* The next message's head; its payload is thrown away. */
static bool hear(int fd, struct flow_head *head)
{
    char part[256];
    if (!get(fd, head, sizeof *head)) {
        return false;
    }
    for (uint64_t left = head->len; left > 0;) {
        size_t some = left < sizeof part ? left : sizeof part;
        if (!get(fd, part, some)) {
            return false;
        }
        left -= some;
    }
    return true;
}

/* Until a message of this kind, or until it hangs up: false. */
static bool await(int fd, enum flow_kind kind)
{
    struct flow_head head;
    while (hear(fd, &head)) {
        if (head.kind == kind) {
            return true;
        }
    }
    return false;
}

/* ---- who has the secret -------------------------------------------------- */

static struct flow_self self_of(uint32_t node, const struct mix *mix)
{
    return (struct flow_self){.secret = "of this test",
                              .build = flow_build(),
                              .job = flow_job_fingerprint(&mix->job),
                              .turn = 1,
                              .node = node};
}

/* Both ends of a link prove what they are; `called`: this one speaks first.
 * Whether the other end did. */
static bool prove(int fd, const struct flow_self *self, bool called,
                  struct flow_link *link)
{
    *link = (struct flow_link){.fd = fd};
    struct flow_queue sent = {0};
    int code = called ? flow_link_greet(link, self) : 0;
    while (code >= 0 && !link->proved) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        code = flow_link_send(link, &sent);
        if (code >= 0) {
            assert_int_equal(poll(&look, 1, (int)slowness_s(WAIT_S) * 1000), 1);
            code = flow_link_receive(link, self);
        }
    }
    flow_handshake_free(link);
    return code >= 0;
}

/* ---- a node, of which this process is the map ---------------------------- */

struct scene {
    struct mix mix;
    struct flow_self self;
    struct poise_flow_options options;
    int listener, map; /* the map's end of the link */
    uint16_t port;     /* of the node */
    pid_t node;
};

static void scene_open_of(struct scene *scene, unsigned nodes)
{
    struct flow_contact call = {.turn = 1, .at = flow_endpoint_loopback()};
    struct timeval most = {.tv_sec = (time_t)slowness_s(WAIT_S)};
    struct flow_link link;
    *scene = (struct scene){.options = {.nodes = nodes, .window = 2}};
    mix_init(&scene->mix, MIX_STENCIL, 1, 4, 5);
    scene->self = self_of(0, &scene->mix);
    memcpy(call.secret, scene->self.secret, sizeof call.secret);
    assert_int_equal(flow_listen(&call.at, &scene->listener, &call.at.port), 0);
    scene->node = fork();
    assert_true(scene->node >= 0);
    if (scene->node == 0) {
        /* The test's handlers are not for this process. */
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        signal(SIGFPE, SIG_DFL);
        alarm(slowness_s(WAIT_S));
        close(scene->listener);
        _exit(
            flow_server_run(&scene->mix.job, &scene->options, 0, &call, NULL));
    }
    struct pollfd look = {.fd = scene->listener, .events = POLLIN};
    assert_int_equal(poll(&look, 1, (int)slowness_s(WAIT_S) * 1000), 1);
    scene->map = accept4(scene->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(scene->map >= 0);
    setsockopt(scene->map, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    assert_true(prove(scene->map, &scene->self, false, &link));
    assert_true(flow_endpoint_is_loopback(&link.at));
    scene->port = link.at.port;
}

static void scene_open(struct scene *scene)
{
    scene_open_of(scene, 1);
}

/* The node has nobody left, and ends: by itself. */
static void scene_close(struct scene *scene, const char *what)
{
    int status = 0;
    close(scene->map);
    assert_int_equal(waitpid(scene->node, &status, 0), scene->node);
    if (!WIFEXITED(status)) {
        fail_msg("%s: signal %d", what, WTERMSIG(status));
    }
    close(scene->listener);
    mix_free(&scene->mix);
}

static void start(struct scene *scene)
{
    struct flow_member list[1] = {{.at = flow_endpoint_loopback()}};
    list[0].at.port = scene->port;
    struct flow_head head = {
        .kind = FLOW_START, .version = -1, .len = sizeof list};
    assert_true(say(scene->map, &head, list));
}

/* It begins, computes all that it is given, and reports. */
static void expect_well(struct scene *scene)
{
    static const char owner[] = {0, 4, 0}; /* all four are node 0's */
    struct flow_head plan = {
        .kind = FLOW_PLAN, .extra = 5, .len = sizeof owner};
    start(scene);
    assert_true(say(scene->map, &plan, owner));
    assert_true(await(scene->map, FLOW_OUTPUT));
    assert_true(await(scene->map, FLOW_REPORT));
}

/* ---- tests -------------------------------------------------------------- */

/* In all processes of the test: how often a node looked without waiting. */
static atomic_uint *looks;

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms)
{
    if (looks && timeout_ms == 0) {
        atomic_fetch_add(looks, 1);
    }
    return epoll_pwait(fd, events, most, timeout_ms, NULL);
}

/* A node that was not told to begin waits, and does not ask again and again. */
static void test_idle(void **state)
{
    struct scene scene;
    (void)state;
    looks = mmap(NULL, sizeof *looks, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(looks != MAP_FAILED);
    scene_open(&scene);
    poise_sleep_ns(200 * MS);
    assert_int_equal(atomic_load(looks), 0);
    expect_well(&scene);
    scene_close(&scene, "idle");
    munmap(looks, sizeof *looks);
    looks = NULL;
}

/* A node that hangs up, as long as the map does not say that it is dead, is
 * called again and again, but with a pause in between. */
static void test_hangs_up(void **state)
{
    enum { CALLS = 8, PAUSE_MS = 20 };
    static const char owner[] = {0, 2, 0, 0, 2, 1}; /* two each */
    struct flow_member list[2] = {{.at = flow_endpoint_loopback()},
                                  {.at = flow_endpoint_loopback()}};
    struct flow_head head = {
        .kind = FLOW_START, .version = -1, .len = sizeof list};
    struct flow_head plan = {
        .kind = FLOW_PLAN, .extra = 5, .len = sizeof owner};
    struct scene scene;
    int listener;
    uint64_t began = 0;
    (void)state;
    scene_open_of(&scene, 2);
    list[0].at.port = scene.port;
    assert_int_equal(flow_listen(&list[1].at, &listener, &list[1].at.port), 0);
    assert_true(say(scene.map, &head, list));
    assert_true(say(scene.map, &plan, owner));
    for (int i = 0; i < CALLS; i++) {
        struct pollfd look = {.fd = listener, .events = POLLIN};
        assert_int_equal(poll(&look, 1, (int)slowness_s(WAIT_S) * 1000), 1);
        close(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
        began = i == 0 ? poise_clock_ns() : began;
    }
    /* The first call may have waited to be accepted. */
    assert_true(poise_clock_ns() - began >= (CALLS - 2) * PAUSE_MS * MS);
    close(listener);
    scene_close(&scene, "hangs up");
}

/* Whatever bit of a message is another one when it comes, it is told from what
 * was said, and the message does not count. */
static void test_damage(void **state)
{
    static const char data[24] = "of a block, as it was";
    struct flow_head head = {
        .kind = FLOW_BLOCK, .version = 3, .place = 7, .len = sizeof data};
    char wire[sizeof head + sizeof data];
    (void)state;
    head.digest = flow_digest(&head, data);
    for (unsigned bit = 0; bit <= 8 * sizeof wire; bit++) {
        int fds[2];
        struct flow_link link = {.proved = true};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        memcpy(wire, &head, sizeof head);
        memcpy(wire + sizeof head, data, sizeof data);
        if (bit < 8 * sizeof wire) {
            wire[bit / 8] = (char)(wire[bit / 8] ^ 1 << bit % 8);
        }
        assert_true(put(fds[0], wire, sizeof wire));
        close(fds[0]);
        link.fd = fds[1];
        int code = flow_link_receive(&link, NULL);
        if (bit == 8 * sizeof wire) {
            assert_int_equal(code, 1);
            assert_memory_equal(flow_made_data(link.in), data, sizeof data);
        } else {
            /* Of another length, or kind, it may be cut short, or none. */
            assert_true(code == -EBADMSG || code == -ECONNRESET ||
                        code == -EPROTO);
        }
        flow_link_close(&link, NULL);
    }
}

/* Messages behind each other come out one after the other, wherever the wire
 * has cut them in two. */
static void test_cut_anywhere(void **state)
{
    static const uint32_t lens[] = {0, 5, 20000, 7, 0, 300};
    enum { COUNT = sizeof lens / sizeof *lens };
    static char wire[COUNT * sizeof(struct flow_head) + 20312], data[20000];
    size_t len = 0;
    (void)state;
    for (unsigned i = 0; i < COUNT; i++) {
        struct flow_head head = {
            .kind = FLOW_BLOCK, .place = i, .len = lens[i]};
        memset(data, (int)i, lens[i]);
        head.digest = flow_digest(&head, data);
        memcpy(wire + len, &head, sizeof head);
        memcpy(wire + len + sizeof head, data, lens[i]);
        len += sizeof head + lens[i];
    }
    assert_int_equal(len, sizeof wire);
    for (size_t cut = 0; cut < len; cut += cut < 400 ? 1 : 97) {
        int fds[2];
        struct flow_link link = {.proved = true};
        unsigned came = 0;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        link.fd = fds[1];
        for (int part = 0; part < 2; part++) {
            assert_true(
                put(fds[0], wire + (part ? cut : 0), part ? len - cut : cut));
            while (flow_link_receive(&link, NULL) == 1) {
                assert_int_equal(link.head.place, came);
                assert_int_equal(link.head.len, lens[came]);
                came++;
                free(link.in);
                link.in = NULL;
            }
            assert_false(flow_link_has(&link));
        }
        assert_int_equal(came, COUNT);
        close(fds[0]);
        assert_int_equal(flow_link_receive(&link, NULL), -ECONNRESET);
        flow_link_close(&link, NULL);
    }
}

/* What strangers say at a port; the kind of each is `which`. */
static void be_strange(int fd, unsigned which)
{
    static const char garbage[64] = "GET / HTTP/1.1\r\n\r\n\xff\xff\xff\xff";
    static const struct flow_greeting hello = {.magic = "poiflow",
                                               .order = FLOW_ORDER};
    static const char proof[sizeof hello + FLOW_CODE_BYTES];
    struct flow_head head = {.kind = FLOW_HELLO, .len = sizeof hello};
    switch (which % 8) {
    case 0: /* nothing */
        break;
    case 1:
        (void)put(fd, garbage, sizeof garbage);
        break;
    case 2: /* a hello with a payload that never ends */
        head.len = UINT64_C(1) << 63;
        (void)put(fd, &head, sizeof head);
        break;
    case 3: /* no secret */
        (void)say(fd, &head, &hello);
        head = (struct flow_head){.kind = FLOW_PROOF, .len = sizeof proof};
        (void)say(fd, &head, proof);
        break;
    case 4: /* no hello */
        head.kind = FLOW_PUT;
        head.len = 100;
        (void)put(fd, &head, sizeof head);
        break;
    case 5: /* half of one */
        (void)put(fd, &head, sizeof head / 2);
        break;
    case 6: /* another order of bytes */
        head.kind = __builtin_bswap16(FLOW_HELLO);
        head.len = __builtin_bswap64(head.len);
        (void)put(fd, &head, sizeof head);
        break;
    default: /* never a proof, and orders before one */
        (void)say(fd, &head, &hello);
        head = (struct flow_head){.kind = FLOW_STOP};
        (void)say(fd, &head, NULL);
        break;
    }
}

static bool is_closed(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

enum { STRANGERS = 140 };

/* None of them disturbs the node, and of those who say nothing, or not all,
 * there are only so many at a time. */
static void test_strangers(void **state)
{
    struct scene scene;
    int fds[STRANGERS];
    unsigned open = STRANGERS;
    (void)state;
    scene_open(&scene);
    for (unsigned i = 0; i < STRANGERS; i++) {
        fds[i] = come(scene.port);
        be_strange(fds[i], i);
        /* Some go at once. */
        if (i % 11 == 10) {
            close(fds[i]);
            fds[i] = come(scene.port);
        }
    }
    expect_well(&scene);
    uint64_t until = poise_clock_ns() + slowness_s(WAIT_S) * 1000 * MS;
    while (open > FLOW_STRANGERS_MOST + 1) {
        open = 0;
        for (unsigned i = 0; i < STRANGERS; i++) {
            open += !is_closed(fds[i]);
        }
        assert_true(poise_clock_ns() < until);
        poise_sleep_ns(MS);
    }
    for (unsigned i = 0; i < STRANGERS; i++) {
        close(fds[i]);
    }
    scene_close(&scene, "strangers");
}

/* The node's report that answers a probe: of when it has handled all that was
 * said before. */
static struct flow_report answer(struct scene *scene, uint64_t probe)
{
    struct flow_head head = {
        .kind = FLOW_STATE, .version = -1, .extra = probe, .file = 1};
    struct flow_report report = {.turn = 0};
    assert_true(say(scene->map, &head, NULL));
    while (report.probe != probe) {
        char data[4096];
        struct poise_buf words = {0};
        uint64_t node;
        const char *at = data;
        assert_true(get(scene->map, &head, sizeof head) &&
                    head.len <= sizeof data && get(scene->map, data, head.len));
        if (head.kind == FLOW_REPORT) {
            assert_int_equal(
                flow_entry_get(&at, data + head.len, &node, &words), 1);
            assert_true(words.len >= sizeof report);
            memcpy(&report, words.data, sizeof report);
        }
        poise_buf_free(&words);
    }
    return report;
}

/* What was kept for a line is freed when it is given up for another one, but
 * not if it is complete, also where the map's state did not say so yet. */
static void test_line_given_up(void **state)
{
    static const char owner[] = {0, 4, 0}; /* all four are node 0's */
    const uint16_t by[FLOW_COPIES] = {FLOW_NOBODY, FLOW_NOBODY};
    (void)state;
    for (unsigned complete = 0; complete < 2; complete++) {
        struct flow_head plan = {
            .kind = FLOW_PLAN, .extra = 3, .len = sizeof owner};
        struct flow_head line = {
            .kind = FLOW_LINE, .version = 1, .len = sizeof by};
        struct flow_report report;
        uint64_t probe = 1;
        struct scene scene;
        scene_open(&scene);
        start(&scene);
        assert_true(say(scene.map, &line, by));
        assert_true(say(scene.map, &plan, owner));
        do {
            report = answer(&scene, probe++);
        } while (report.line != 1);
        assert_int_equal(report.stats.freed, 4); /* those of version 0 */
        line.version = 3;
        line.place = complete ? 2 : 0;
        assert_true(say(scene.map, &line, by));
        report = answer(&scene, probe);
        assert_int_equal(report.known_line, complete ? 1 : -1);
        assert_int_equal(report.stats.freed, complete ? 4 : 8);
        scene_close(&scene, "line given up");
    }
}

/* A proof holds on its own link only, for the job's secret only, and nothing
 * goes to an end that has none. */
static void test_proofs(void **state)
{
    struct scene scene;
    struct flow_link link;
    (void)state;
    scene_open(&scene);
    struct flow_self self = self_of(1, &scene.mix);
    int good = come(scene.port), bad = come(scene.port);
    assert_true(prove(good, &self, true, &link));
    assert_int_equal(link.turn, 1);
    self.secret[31] ^= 1;
    /* It answers, but its code is not that of this secret. */
    assert_false(prove(bad, &self, true, &link));
    close(bad);
    /* Who answers with another secret gets nothing: no order of a false map. */
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    self.secret[31] ^= 1;
    struct flow_link called = {.fd = pair[0]}, came = {.fd = pair[1]};
    struct flow_self other = self;
    struct flow_queue sent = {0};
    struct flow_head stop = {.kind = FLOW_STOP};
    char left;
    other.secret[0] ^= 1;
    assert_int_equal(flow_link_greet(&called, &self), 0);
    struct flow_item *item = flow_item_create(FLOW_PUT, "blocks", 6);
    flow_queue_add(&called.sending, item);
    assert_int_equal(flow_link_send(&called, &sent), 1);
    assert_null(sent.first);
    assert_int_equal(flow_link_receive(&came, &other), 0);
    (void)put(pair[1], &stop, sizeof stop);
    assert_int_equal(flow_link_receive(&called, &self), -EPROTO);
    assert_false(called.proved);
    assert_int_equal(flow_link_send(&called, &sent), 1);
    assert_null(sent.first);
    assert_int_equal(recv(pair[1], &left, 1, MSG_DONTWAIT), -1);
    flow_link_close(&called, NULL);
    flow_link_close(&came, NULL);
    expect_well(&scene);
    close(good);
    scene_close(&scene, "proofs");
}

/* Addresses as text, and back; what is none. */
static void test_endpoints(void **state)
{
    static const char *const good[] = {"127.0.0.1:80", "10.1.2.3:65535",
                                       "[::1]:7", "[fd77::12:3]:40000"};
    static const char *const bad[] = {
        "",         "host:1",     "1.2.3.4", "1.2.3.4:",  "1.2.3.4:65536",
        "[::1]",    "[::1:7",     "::1:7",   "[1.2.3]:1", "1.2.3.4:1x",
        "[fd77]:1", "1.2.3.4.5:1"};
    char text[FLOW_ENDPOINT_TEXT];
    struct flow_endpoint at, own;
    (void)state;
    for (unsigned i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(flow_endpoint_parse(good[i], &at), 0);
        assert_string_equal(flow_endpoint_text(&at, text), good[i]);
    }
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(flow_endpoint_parse(bad[i], &at), -EINVAL);
    }
    assert_int_equal(flow_endpoint_resolve("localhost", &at), 0);
    assert_true(flow_endpoint_is_loopback(&at));
    assert_int_equal(flow_endpoint_route(&at, &own), 0);
    assert_true(flow_endpoint_is_loopback(&own));
    assert_true(flow_endpoint_resolve("no such host.invalid", &at) < 0);
}

/* The map's secret is known, and what it says cannot be. */
static void test_map_lies(void **state)
{
    static const struct flow_head lies[] = {
        {.kind = FLOW_PLAN, .file = 99, .extra = 5, .len = 8},
        {.kind = FLOW_PLAN, .file = UINT32_MAX, .extra = 5, .len = 8},
        {.kind = FLOW_PLAN, .extra = 5, .len = 2}, /* no runs */
        {.kind = FLOW_PLAN, .extra = 5, .len = 512},
        {.kind = FLOW_PLAN, .extra = 5},                       /* empty */
        {.kind = FLOW_PLAN, .place = 1, .extra = 5, .len = 8}, /* of what? */
        {.kind = FLOW_EPOCH, .place = 1, .extra = 1, .len = 3},
        {.kind = FLOW_PLAN, .version = 3, .extra = 2, .len = 8},
        {.kind = FLOW_PLAN, .version = -7, .extra = 2, .len = 8},
        {.kind = FLOW_PLAN, .extra = UINT64_C(1) << 62, .len = 8},
        {.kind = FLOW_EPOCH, .place = POISE_FLOW_NODES_MOST, .extra = 1},
        {.kind = FLOW_EPOCH, .place = UINT64_MAX, .extra = 1},
        {.kind = FLOW_JOIN, .place = 1, .extra = 1},
        {.kind = FLOW_JOIN, .place = UINT32_MAX, .len = 18},
        {.kind = FLOW_START, .len = 3},
        {.kind = FLOW_REPORT},
        {.kind = FLOW_KINDS + 7},
        {.kind = FLOW_STATE, .len = UINT64_C(1) << 63},
        {.kind = FLOW_STATE, .len = UINT64_C(1) << 50},
        {.kind = FLOW_HELLO, .len = sizeof(struct flow_greeting)},
    };
    char payload[512];
    (void)state;
    memset(payload, 0xff, sizeof payload);
    for (unsigned i = 0; i < sizeof lies / sizeof *lies + 1; i++) {
        struct scene scene;
        /* The last is a plan whose owners are no nodes. */
        struct flow_head head = {.kind = FLOW_PLAN, .extra = 5, .len = 8};
        char what[20];
        snprintf(what, sizeof what, "lie %u", i);
        scene_open(&scene);
        start(&scene);
        head = i < sizeof lies / sizeof *lies ? lies[i] : head;
        (void)put(scene.map, &head, sizeof head);
        if (head.len > 0 && head.len <= sizeof payload) {
            (void)put(scene.map, payload, head.len);
        }
        /* It says so, or it goes. */
        (void)await(scene.map, FLOW_FAIL);
        scene_close(&scene, what);
    }
}

/* ---- anything at all ---------------------------------------------------- */

static uint64_t one_of(struct poise_rng *rng, const uint64_t *of, size_t count)
{
    return of[poise_rng_below(rng, count)];
}

static void draw(struct poise_rng *rng, struct flow_head *head)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       2,
                                       3,
                                       4,
                                       5,
                                       7,
                                       1023,
                                       1024,
                                       UINT32_MAX,
                                       UINT64_C(1) << 40,
                                       UINT64_C(1) << 63,
                                       UINT64_MAX,
                                       UINT64_MAX - 1};
    static const uint64_t lens[] = {0, 0, 0, 1, 4, 8, 16, 100, 300};
    enum { NUMBERS = sizeof numbers / sizeof *numbers };
    head->kind = (uint32_t)poise_rng_below(rng, FLOW_KINDS + 1);
    head->file =
        poise_rng_below(rng, 8) ? 0 : (uint32_t)one_of(rng, numbers, NUMBERS);
    head->version = (int64_t)one_of(rng, numbers, NUMBERS);
    head->place = one_of(rng, numbers, NUMBERS);
    head->extra = one_of(rng, numbers, NUMBERS);
    head->len = one_of(rng, lens, sizeof lens / sizeof *lens);
}

/* The map and a node, who both have the secret, say anything. */
static void talk(uint64_t seed)
{
    enum { MESSAGES = 60 };
    struct scene scene;
    struct poise_rng rng;
    struct flow_link link;
    char payload[300], what[40];
    int node;
    poise_rng_seed(&rng, seed);
    snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
    scene_open(&scene);
    node = come(scene.port);
    if (poise_rng_below(&rng, 4)) {
        start(&scene);
    }
    const struct flow_self self = self_of(1, &scene.mix);
    assert_true(prove(node, &self, true, &link));
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct flow_head head;
        int to = poise_rng_below(&rng, 2) ? node : scene.map;
        draw(&rng, &head);
        for (size_t b = 0; b < sizeof payload; b++) {
            payload[b] =
                (char)(poise_rng_below(&rng, 3) ? 0 : poise_rng_next(&rng));
        }
        if (!say(to, &head, payload)) {
            break;
        }
    }
    close(node);
    shutdown(scene.map, SHUT_WR);
    (void)await(scene.map, FLOW_KINDS); /* until it hangs up */
    scene_close(&scene, what);
}

static void test_anything(void **state)
{
    const char *soak = getenv("POISE_TEST_SOAK");
    uint64_t seconds = soak ? strtoull(soak, NULL, 10) : 0;
    seconds = soak && seconds < SOAK_S ? SOAK_S : seconds;
    uint64_t from = 1, until = poise_clock_ns() + seconds * 1000 * MS;
    (void)state;
    if (seconds > 0) {
        from = poise_clock_ns();
        print_message("seeds from %llu on\n", (unsigned long long)from);
    }
    for (uint64_t i = 0; i < 12 || poise_clock_ns() < until; i++) {
        talk(from + i);
    }
}

/* ---- the map ------------------------------------------------------------ */

/* The job goes on until all strangers are there. */
static int spoil_waits(struct mix *mix, struct poise_flow_task *task,
                       const struct poise_flow_address *block, uint64_t *value)
{
    const atomic_bool *there = mix->spoil_arg;
    (void)task;
    (void)value;
    while (block->version == 5 && !atomic_load(there)) {
        poise_sleep_ns(MS);
    }
    return 0;
}

/* Strangers at the map's port, while a job goes on. */
static void test_map_strangers(void **state)
{
    struct mix mix;
    atomic_bool *there = mmap(NULL, sizeof *there, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct flow_contact call = {0};
    char log[4096];
    int fds[STRANGERS], status = 0;
    (void)state;
    mix_init(&mix, MIX_STENCIL, 1, 8, 20);
    assert_true(there != MAP_FAILED);
    mix.sleep_ns = 4 * MS;
    mix.spoil = spoil_waits;
    mix.spoil_arg = there;
    snprintf(log, sizeof log, "%s/poise-flow-hostile-%d.log",
             poise_file_temporary_folder(), (int)getpid());
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct poise_flow_options options = {.nodes = 2, .log = log};
        _exit(mix_run(&mix, &options, NULL) < 0);
    }
    while (flow_contact_read(log, &call) < 0) {
        poise_sleep_ns(MS);
    }
    for (unsigned i = 0; i < STRANGERS; i++) {
        fds[i] = -1;
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons(call.at.port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fds[i], (struct sockaddr *)&at, sizeof at), 0);
        be_strange(fds[i], i);
    }
    atomic_store(there, true);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    for (unsigned i = 0; i < STRANGERS; i++) {
        close(fds[i]);
    }
    munmap(there, sizeof *there);
    mix_free(&mix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_hangs_up),
        cmocka_unit_test(test_endpoints),
        cmocka_unit_test(test_proofs),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_line_given_up),
        cmocka_unit_test(test_map_lies),
        cmocka_unit_test(test_anything),
        cmocka_unit_test(test_map_strangers),
    };
    /* Gigabytes are asked for here because a message says so, of which nothing
     * is touched: not even to fill it (MALLOC_PERTURB_). */
    mallopt(M_PERTURB, 0);
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
