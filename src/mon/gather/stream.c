/* Bytes from and to the other end, within a time. */
#include "internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

/* DSCP LE (RFC 8622) in the upper six bits. */
enum { BEHIND = 1 << 2 };

void gather_behind(int fd)
{
    int value = BEHIND;
    if (setsockopt(fd, IPPROTO_IP, IP_TOS, &value, sizeof value) < 0) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof value);
    }
}

/* 1: it is ready; -ETIMEDOUT. */
static int wait_for(int fd, short events, uint64_t until_ns)
{
    for (;;) {
        int64_t left =
            until_ns ? (int64_t)(until_ns - poise_clock_ns()) / 1000000 : -1;
        struct pollfd poll_fd = {.fd = fd, .events = events};
        if (until_ns && left <= 0) {
            left = poise_clock_ns() >= until_ns ? 0 : 1;
        }
        int count = poll(&poll_fd, 1, (int)(left > 1000000 ? 1000000 : left));
        if (count > 0) {
            return 1;
        }
        if (count < 0 && errno != EINTR) {
            return poise_error_set(errno, "gather", NULL, NULL);
        }
        if (count == 0 && until_ns && poise_clock_ns() >= until_ns) {
            return poise_error_set(ETIMEDOUT, "gather", NULL,
                                   "no answer in time");
        }
    }
}

int gather_read(int fd, void *data, size_t len, uint64_t timeout_ns)
{
    uint64_t until = timeout_ns ? poise_clock_ns() + timeout_ns : 0;
    for (size_t got = 0; got < len;) {
        int code = wait_for(fd, POLLIN, until);
        if (code < 0) {
            return code;
        }
        ssize_t count = read(fd, (char *)data + got, len - got);
        if (count < 0 && errno != EINTR && errno != EAGAIN) {
            return poise_error_set(errno, "gather", NULL, NULL);
        }
        if (count == 0) {
            return got == 0 ? 0
                            : poise_error_set(EPROTO, "gather", NULL,
                                              "it is cut short");
        }
        got += count > 0 ? (size_t)count : 0;
    }
    return 1;
}

/* To a pipe that nobody reads any more: an error, not a signal. */
static ssize_t write_quietly(int fd, const void *data, size_t len)
{
    ssize_t count = send(fd, data, len, MSG_NOSIGNAL);
    if (count >= 0 || errno != ENOTSOCK) {
        return count;
    }
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    sigpending(&pending);
    count = write(fd, data, len);
    int error = errno;
    if (count < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE)) {
        sigtimedwait(&pipe, NULL, &(struct timespec){0, 0});
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return count;
}

int gather_write(int fd, const void *data, size_t len, uint64_t timeout_ns)
{
    uint64_t until = timeout_ns ? poise_clock_ns() + timeout_ns : 0;
    for (size_t done = 0; done < len;) {
        int code = wait_for(fd, POLLOUT, until);
        if (code < 0) {
            return code;
        }
        /* A pipe takes at most this at once without waiting. */
        size_t part = len - done < 4096 ? len - done : 4096;
        ssize_t count = write_quietly(fd, (const char *)data + done, part);
        if (count < 0 && errno != EINTR && errno != EAGAIN) {
            return poise_error_set(errno, "gather", NULL, NULL);
        }
        done += count > 0 ? (size_t)count : 0;
    }
    return 1;
}
