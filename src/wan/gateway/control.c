/*
 * Asking a gateway while it runs, by a socket in its testbed's folder, which is
 * this user's alone. One message is one request, and so is an answer: nothing,
 * if all is well, or what is wrong.
 *
 *   link A B TIME RATE ...  change a link, by a line as topologies have them
 *   capture A B             after the answer: all that comes to the end of
 *                           either direction, a message for each packet, with
 *                           the head that pcap files have before it
 *   missed                  of one that captures: a head without a packet,
 *                           after all that came before it was asked
 *
 * The gateway never waits: who does not read what was captured misses it, and
 * is told how much in the next head (its last word, which files do not have).
 */
#include "wan/gateway/gateway.h"
#include "wan/host/host.h"
#include "wan/link/link.h"
#include "wan/topology/topology.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* In files: the first four words. */
struct capture_head {
    uint32_t seconds, nanoseconds, kept, length;
    uint64_t missed;
};
#define HEAD_IN_FILE 16
#define ASK_MISSED "missed"

int wan_socket_address(const char *path, struct sockaddr_un *out)
{
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof out->sun_path) {
        return poise_error_set(ENAMETOOLONG, "make socket", path, NULL);
    }
    memcpy(out->sun_path, path, strlen(path));
    return 0;
}

/* ---- the gateway's side ---------------------------------------------------
 */

int wan_control_listen(const char *path)
{
    struct sockaddr_un address;
    int code = wan_socket_address(path, &address);
    if (code < 0) {
        return code;
    }
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(fd, WAN_ASKERS) < 0) {
        code = poise_error_set(errno, "make socket", path, NULL);
        if (fd >= 0) {
            close(fd);
        }
        return code;
    }
    return fd;
}

int wan_control_come(struct wan_control *control)
{
    struct ucred who;
    socklen_t len = sizeof who;
    int fd =
        accept4(control->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    unsigned number = 0;
    while (number < WAN_ASKERS && control->askers[number].fd >= 0) {
        number++;
    }
    if (fd < 0) {
        return -1;
    }
    if (number == WAN_ASKERS ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 ||
        who.uid != geteuid()) {
        close(fd);
        return -1;
    }
    control->askers[number] = (struct wan_asker){.fd = fd};
    return (int)number;
}

static void asker_end(struct wan_control *control, struct wan_asker *asker)
{
    close(asker->fd);
    asker->fd = -1;
    asker->captures = false;
    control->lines->tap = NULL;
    for (unsigned i = 0; i < WAN_ASKERS; i++) {
        if (control->askers[i].fd >= 0 && control->askers[i].captures) {
            control->lines->tap = wan_control_tap;
        }
    }
}

static int begin_capture(struct wan_control *control, struct wan_asker *asker,
                         char *words)
{
    const struct poise_wan_topology *t = control->topology;
    const char *names[] = {wan_word(&words), wan_word(&words)};
    unsigned sites[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        while (names[i] && sites[i] < t->count &&
               strcmp(t->sites[sites[i]].name, names[i]) != 0) {
            sites[i]++;
        }
        if (!names[i] || sites[i] == t->count) {
            return poise_error_set(EINVAL, "capture", names[i] ? names[i] : "",
                                   "no site '%s'", names[i] ? names[i] : "");
        }
    }
    asker->here = sites[0] * t->count + sites[1];
    asker->there = sites[1] * t->count + sites[0];
    if (sites[0] != sites[1] && !t->links[asker->here].set &&
        !t->links[asker->there].set) {
        return poise_error_set(EINVAL, "capture", names[0],
                               "no link leads from '%s' to '%s'", names[0],
                               names[1]);
    }
    asker->captures = true;
    control->lines->tap = wan_control_tap;
    control->lines->tap_arg = control;
    return 0;
}

/* How much was missed. Where there is no room for it, it is asked again. */
static void tell_missed(struct wan_control *control, struct wan_asker *asker)
{
    const struct capture_head head = {.missed = asker->missed};
    if (send(asker->fd, &head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
        errno != EAGAIN) {
        asker_end(control, asker);
    }
}

void wan_control_hear(struct wan_control *control, unsigned number)
{
    struct wan_asker *asker = &control->askers[number];
    char text[WAN_ASK_BYTES];
    ssize_t got = recv(asker->fd, text, sizeof text - 1, MSG_TRUNC);
    if (got < 0 && errno == EAGAIN) {
        return;
    }
    if (got <= 0 || got >= (ssize_t)sizeof text) {
        asker_end(control, asker);
        return;
    }
    text[got] = '\0';
    if (asker->captures && strcmp(text, ASK_MISSED) == 0) {
        tell_missed(control, asker);
        return;
    }
    int code;
    if (strncmp(text, "capture ", 8) == 0) {
        code = begin_capture(control, asker, text + 8);
    } else {
        code = wan_topology_change(control->topology, text);
        int changed = wan_lines_changed(control->lines);
        code = code < 0 ? code : changed;
    }
    const char *why = code < 0 ? poise_error_last()->why : "";
    if (send(asker->fd, why, strlen(why) + 1, MSG_NOSIGNAL) < 0) {
        asker_end(control, asker);
    }
}

void wan_control_tap(void *arg, unsigned line, const struct wan_packet *packet)
{
    struct wan_control *control = arg;
    struct capture_head head = {0};
    unsigned char *data = NULL;
    for (unsigned i = 0; i < WAN_ASKERS; i++) {
        struct wan_asker *asker = &control->askers[i];
        if (asker->fd < 0 || !asker->captures ||
            (line != asker->here && line != asker->there)) {
            continue;
        }
        if (!data) {
            /* When it was due, by the clock on the wall. */
            struct timespec wall;
            clock_gettime(CLOCK_REALTIME, &wall);
            int64_t ns = wall.tv_sec * INT64_C(1000000000) + wall.tv_nsec -
                         (int64_t)(poise_clock_ns() - packet->due_ns);
            data = control->buffer + WAN_SEGMENT_BYTES;
            head.seconds = (uint32_t)(ns / 1000000000);
            head.nanoseconds = (uint32_t)(ns % 1000000000);
            head.kept = head.length = wan_packet_flatten(packet, data);
        }
        head.missed = asker->missed;
        struct iovec parts[] = {{&head, sizeof head}, {data, head.kept}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        if (sendmsg(asker->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
            asker->missed++; /* one that is gone will be heard of */
        }
    }
}

/* ---- who asks ----------------------------------------------------------- */

static int unanswered(const struct poise_wan_testbed *testbed,
                      const char *doing, const char *what)
{
    return poise_error_set(ETIMEDOUT, doing, what,
                           wan_is_stopped(testbed->gateway)
                               ? "the gateway, process %lld, is stopped"
                               : "the gateway, process %lld, does not answer",
                           (long long)testbed->gateway);
}

/* Ask, and hear whether it is well: the socket, which stays open. */
static int ask(const struct poise_wan_testbed *testbed, const char *request,
               const char *doing)
{
    struct sockaddr_un address;
    struct poise_buf path = {0};
    char answer[1024];
    poise_buf_printf(&path, "%s/" WAN_CONTROL, testbed->folder);
    int code = path.error;
    if (code == 0) {
        code = wan_socket_address(poise_buf_str(&path), &address);
    }
    poise_buf_free(&path);
    if (code < 0) {
        return code;
    }
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const struct timeval most = {.tv_sec = WAN_STOPPED_S};
    ssize_t got = -1;
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    }
    if (fd >= 0 &&
        connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, request, strlen(request), MSG_NOSIGNAL) >= 0) {
        do { /* a stop ends a wait that has a limit, too */
            got = recv(fd, answer, sizeof answer - 1, 0);
        } while (got < 0 && errno == EINTR);
        errno = got == 0 ? ECONNRESET : errno;
    }
    if (got <= 0) {
        code = errno == EAGAIN ? unanswered(testbed, doing, request)
                               : poise_error_set(errno, doing, request, NULL);
    } else {
        answer[got] = '\0';
        code = answer[0] ? poise_error_set(EINVAL, doing, request, "%s", answer)
                         : 0;
    }
    if (code < 0 && fd >= 0) {
        close(fd);
    }
    return code < 0 ? code : fd;
}

int poise_wan_change(const struct poise_wan_testbed *testbed, const char *line)
{
    int fd = ask(testbed, line, "change");
    if (fd >= 0) {
        close(fd);
    }
    return fd < 0 ? fd : 0;
}

/* The head of a pcap file with nanoseconds; its packets begin with IP. */
static int capture_begin(int out)
{
    const uint32_t head[] = {0xa1b23c4d, 2 | 4 << 16, 0, 0, 262144, 101};
    return poise_file_write(out, head, sizeof head, "capture");
}

/* What a capture has heard. */
struct capture {
    const struct poise_wan_testbed *testbed;
    const char *from;
    int fd, out;
    unsigned silent; /* waits for nothing, in a row */
    bool asked;      /* since the last of them, how much was missed */
    bool ended;      /* and that is known: nothing from before is on its way */
    uint64_t missed;
    struct {
        struct capture_head head;
        unsigned char data[WAN_SEGMENT_BYTES];
    } message;
};

/* One message, if one comes within `wait_ms`. */
static int capture_hear(struct capture *c, int wait_ms)
{
    struct pollfd look = {.fd = c->fd, .events = POLLIN};
    if (poll(&look, 1, wait_ms) <= 0) {
        c->silent++;
        c->asked = false;
        return c->silent > WAN_STOPPED_S && wan_is_stopped(c->testbed->gateway)
                   ? unanswered(c->testbed, "capture packets of", c->from)
                   : 0;
    }
    c->silent = 0;
    ssize_t got = recv(c->fd, &c->message, sizeof c->message, 0);
    if (got < (ssize_t)sizeof c->message.head) {
        return poise_error_set(ECONNRESET, "capture packets of", c->from,
                               "the gateway is gone");
    }
    c->missed = c->message.head.missed;
    c->ended = c->message.head.kept == 0;
    /* The head, without its last word, just before the data. */
    unsigned char *at = c->message.data - HEAD_IN_FILE;
    memmove(at, &c->message.head, HEAD_IN_FILE);
    return c->ended ? 0
                    : poise_file_write(c->out, at,
                                       (size_t)got - sizeof c->message.head +
                                           HEAD_IN_FILE,
                                       "capture");
}

int poise_wan_capture(const struct poise_wan_testbed *testbed, const char *from,
                      const char *to, int out, const volatile int *stop,
                      uint64_t *missed)
{
    struct poise_buf request = {0};
    struct capture *c = poise_alloc(1, sizeof *c);
    *missed = 0;
    if (!c) {
        return -ENOMEM;
    }
    poise_buf_printf(&request, "capture %s %s", from, to);
    c->testbed = testbed;
    c->from = from;
    c->out = out;
    c->fd = request.error ? request.error
                          : ask(testbed, poise_buf_str(&request), "begin");
    int code = c->fd < 0 ? c->fd : capture_begin(out);
    /* What came before the stop is written, too, and what was missed is known:
     * the answer to the last question comes after all of it. */
    while (code == 0 && !c->ended) {
        if (*stop && !c->asked) {
            c->asked = true;
            if (send(c->fd, ASK_MISSED, strlen(ASK_MISSED), MSG_NOSIGNAL) < 0) {
                code = poise_error_set(errno, "capture packets of", from, NULL);
            }
        }
        code = code < 0 ? code : capture_hear(c, 1000);
    }
    *missed = c->missed;
    if (c->fd >= 0) {
        close(c->fd);
    }
    free(c);
    poise_buf_free(&request);
    return code;
}
