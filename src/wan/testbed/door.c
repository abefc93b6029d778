/*
 * A door between hosts, for launchers: a process on one host cannot see those
 * of another, so it asks a process outside, through a Unix socket that all
 * hosts see, to run a command there with its own standard files.
 *
 * A request: three descriptors and, in one message, the host and the words,
 * NUL-terminated each. The answer: a 32-bit exit status. A hang-up ends the
 * command.
 *
 * Who asks is of this user. Whatever else comes than one whole request is
 * hung up on: nothing of it is run. So is who says nothing for a while, and who
 * is one too many.
 */
#include <poise/core.h>
#include <poise/wan.h>

#include "wan/gateway/gateway.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define DOOR_REQUEST_BYTES 65536
#define DOOR_WORDS 512
#define DOOR_FAILED 125
/** Until a visitor has said what it wants. */
#define DOOR_SILENT_S 20
/** More commands at a time than there may be hosts. */
#define DOOR_VISITORS_MOST 512
/** Before the next visitor, where there is no room for one. */
#define DOOR_NAP_NS UINT64_C(10000000)

struct request {
    char bytes[DOOR_REQUEST_BYTES];
    size_t len;
    int files[3];
};

/* ---- outside ------------------------------------------------------------ */

/* Words, all whole and not too many, and the first names a host. */
static bool request_makes_sense(const struct request *request)
{
    size_t count = 0;
    for (size_t at = 0; at < request->len; at++) {
        count += request->bytes[at] == '\0';
    }
    return request->len > 0 && request->bytes[request->len - 1] == '\0' &&
           count >= 2 && count <= DOOR_WORDS && request->bytes[0] != '\0';
}

static bool visitor_is_own(int fd)
{
    struct ucred who;
    socklen_t len = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
           who.uid == geteuid();
}

/* Descriptors that came stay clear of those that they will be. */
static bool files_move(int files[3])
{
    for (int i = 0; i < 3; i++) {
        files[i] = fcntl(files[i], F_DUPFD_CLOEXEC, 3);
        if (files[i] < 0) {
            return false;
        }
    }
    return true;
}

static bool request_take(int fd, struct request *out)
{
    char room[CMSG_SPACE(sizeof out->files)];
    struct timeval most = {.tv_sec = DOOR_SILENT_S};
    struct iovec part = {out->bytes, sizeof out->bytes};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room,
                             .msg_controllen = sizeof room};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    if (!visitor_is_own(fd)) {
        return false;
    }
    ssize_t got;
    do { /* with a limit of time it ends when this process was stopped */
        got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    struct cmsghdr *head = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (!head || head->cmsg_level != SOL_SOCKET ||
        head->cmsg_type != SCM_RIGHTS ||
        head->cmsg_len != CMSG_LEN(sizeof out->files) ||
        (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        return false;
    }
    memcpy(out->files, CMSG_DATA(head), sizeof out->files);
    out->len = (size_t)got;
    return request_makes_sense(out) && files_move(out->files);
}

/* The command itself, in a process of its own. */
static int request_run(const struct poise_wan_testbed *testbed,
                       struct request *request)
{
    char *words[DOOR_WORDS + 1];
    size_t count = 0;
    int status = DOOR_FAILED;
    for (size_t at = 0; at < request->len;
         at += strlen(request->bytes + at) + 1) {
        words[count++] = request->bytes + at;
    }
    words[count] = NULL;
    for (int i = 0; i < 3; i++) {
        dup2(request->files[i], i);
    }
    int host = count > 1 ? poise_wan_find_host(testbed, words[0]) : -1;
    if (host < 0 ||
        poise_wan_exec(testbed, (unsigned)host, words + 1, 0, &status) < 0) {
        return DOOR_FAILED;
    }
    return status;
}

/* One visitor, in a process of its own: run, and watch for a hang-up. */
static void door_serve_one(const struct poise_wan_testbed *testbed, int fd)
{
    struct request request;
    int status = DOOR_FAILED << 8;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_DFL);
    if (!request_take(fd, &request)) {
        _exit(1);
    }
    pid_t runner = fork();
    if (runner == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fd);
        _exit(request_run(testbed, &request));
    }
    int ended = runner > 0 ? (int)syscall(SYS_pidfd_open, runner, 0) : -1;
    struct pollfd look[2] = {{.fd = ended, .events = POLLIN},
                             {.fd = fd, .events = POLLIN | POLLRDHUP}};
    while (ended >= 0 && poll(look, 2, -1) < 0 && errno == EINTR) {
    }
    if (look[1].revents && !(look[0].revents & POLLIN)) {
        kill(runner, SIGKILL);
    }
    if (runner > 0) {
        waitpid(runner, &status, 0);
    }
    uint32_t answer = WIFSIGNALED(status) ? 128 + (uint32_t)WTERMSIG(status)
                                          : (uint32_t)WEXITSTATUS(status);
    ssize_t sent = send(fd, &answer, sizeof answer, MSG_NOSIGNAL);
    (void)sent;
    _exit(0);
}

static void door_serve(const struct poise_wan_testbed *testbed, int listener)
{
    unsigned visitors = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_DFL);
    for (;;) {
        pid_t pid = -1;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        while (visitors > 0 && waitpid(-1, NULL, WNOHANG) > 0) {
            visitors--;
        }
        if (fd < 0 && (errno == EBADF || errno == EINVAL)) {
            _exit(1);
        }
        if (fd >= 0 && visitors < DOOR_VISITORS_MOST) {
            pid = fork();
        }
        if (pid == 0) {
            close(listener);
            door_serve_one(testbed, fd);
        }
        visitors += pid > 0;
        if (fd >= 0) {
            close(fd);
        }
        if (pid < 0) {
            poise_sleep_ns(DOOR_NAP_NS);
        }
    }
}

int poise_wan_door_open(const struct poise_wan_testbed *testbed,
                        const char *path, int64_t *door)
{
    struct sockaddr_un address;
    int code = wan_socket_address(path, &address);
    if (code < 0) {
        return code;
    }
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0 ||
        bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(listener, 128) < 0) {
        code = poise_error_set(errno, "make socket", path, NULL);
    }
    pid_t pid = code == 0 ? fork() : -1;
    if (pid == 0) {
        door_serve(testbed, listener);
    }
    if (code == 0 && pid < 0) {
        code = poise_error_set(errno, "serve socket", path, NULL);
    }
    if (listener >= 0) {
        close(listener);
    }
    *door = pid;
    return code;
}

void poise_wan_door_close(const char *path, int64_t door)
{
    if (door > 0) {
        kill((pid_t)door, SIGKILL);
        waitpid((pid_t)door, NULL, 0);
    }
    unlink(path);
}

/* ---- inside ------------------------------------------------------------- */

int poise_wan_door_ask(const char *path, const char *host, char *const *argv,
                       int *status)
{
    struct sockaddr_un address;
    struct poise_buf words = {0};
    int files[3] = {0, 1, 2};
    char room[CMSG_SPACE(sizeof files)] = {0};
    uint32_t answer = 0;
    int code = wan_socket_address(path, &address);
    poise_buf_append(&words, host, strlen(host) + 1);
    size_t count = 1;
    for (; argv[count - 1]; count++) {
        poise_buf_append(&words, argv[count - 1], strlen(argv[count - 1]) + 1);
    }
    if (code == 0) {
        code = words.error;
    }
    if (code == 0 && (count > DOOR_WORDS || words.len > DOOR_REQUEST_BYTES)) {
        code = poise_error_set(E2BIG, "run on host", host, NULL);
    }
    struct iovec part = {words.data, words.len};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room,
                             .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof files);
    memcpy(CMSG_DATA(head), files, sizeof files);
    int fd = code == 0 ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) : -1;
    errno = 0;
    if (code == 0 &&
        (fd < 0 ||
         connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
         sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ||
         recv(fd, &answer, sizeof answer, 0) != (ssize_t)sizeof answer)) {
        code = poise_error_set(errno ? errno : EIO, "run on host", host, NULL);
    }
    if (fd >= 0) {
        close(fd);
    }
    poise_buf_free(&words);
    *status = (int)answer;
    return code;
}
