/* Messages between processes of one machine that share a cache. */
#include "sharing.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 16, NAME_BYTES = 64 };
static const char name[] = "socket";

/* By way of the folder's descriptor: its path may be longer than an address. */
static struct sockaddr_un address_of(int dirfd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s",
             dirfd, name);
    return address;
}

static int make_socket(void)
{
    int code = poise_fault_check(POISE_FAULT_OPEN);
    int fd = code ? -1
                  : socket(AF_UNIX,
                           SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return fd >= 0 ? fd
                   : poise_error_set(code ? code : errno, "make a socket", name,
                                     NULL);
}

int cache_listen(int dirfd, int *fd)
{
    struct sockaddr_un address = address_of(dirfd);
    int made = make_socket();

    if (made < 0) {
        return made;
    }
    /* Its listener has died: the lock says so. */
    unlinkat(dirfd, name, 0);
    if (fchmod(made, 0600) < 0 ||
        bind(made, (const struct sockaddr *)&address, sizeof address) < 0 ||
        listen(made, BACKLOG) < 0) {
        int code = poise_error_set(errno, "listen", name, NULL);
        close(made);
        return code;
    }
    *fd = made;
    return 0;
}

int cache_connect(int dirfd, int *fd)
{
    struct sockaddr_un address = address_of(dirfd);
    int made = make_socket();

    if (made < 0) {
        return made;
    }
    if (connect(made, (const struct sockaddr *)&address, sizeof address) < 0) {
        int code = poise_error_set(errno, "connect", name, NULL);
        close(made);
        return code;
    }
    *fd = made;
    return 0;
}

bool cache_is_same_user(int fd)
{
    struct ucred cred;
    socklen_t len = sizeof cred;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
           len == sizeof cred && cred.uid == geteuid();
}

int cache_send(int fd, const void *data, size_t len, int pass)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int code = poise_fault_check(POISE_FAULT_SEND);
    ssize_t done;

    if (pass >= 0) {
        struct cmsghdr *head;
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &pass, sizeof pass);
    }
    do {
        done = code ? -1 : sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (done < 0 && !code && errno == EINTR);
    return done >= 0
               ? 0
               : poise_error_set(code ? code : errno, "write", name, NULL);
}

/* The descriptor that came with a message; more than one is not kept. */
static int take_descriptor(struct msghdr *message)
{
    int passed = -1;

    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head;
         head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= head->cmsg_len;
             i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            if (passed >= 0) {
                close(fd);
            } else {
                passed = fd;
            }
        }
    }
    return passed;
}

static int await(int fd, uint64_t wait_ns)
{
    uint64_t begun = poise_clock_ns(), gone = 0;

    do {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        int code =
            poll(&poller, 1, (int)((wait_ns - gone) / UINT64_C(1000000)));
        if (code > 0) {
            return 0;
        }
        if (code < 0 && errno != EINTR) {
            return poise_error_set(errno, "wait", name, NULL);
        }
        gone = poise_clock_ns() - begun;
    } while (gone < wait_ns);
    return poise_error_set(ETIMEDOUT, "wait", name, "there is no answer");
}

ssize_t cache_receive(int fd, void *data, size_t cap, uint64_t wait_ns,
                      int *passed)
{
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = data, .iov_len = cap};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    int code = poise_fault_check(POISE_FAULT_READ), err;
    ssize_t bytes_read;

    *passed = -1;
    do {
        bytes_read = code ? -1 : recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
        if (bytes_read < 0 && !code && errno == EAGAIN && wait_ns > 0) {
            err = await(fd, wait_ns);
            if (err < 0) {
                return err;
            }
            errno = EINTR;
        }
    } while (bytes_read < 0 && !code && errno == EINTR);
    if (bytes_read < 0) {
        return poise_error_set(code ? code : errno, "read", name, NULL);
    }
    *passed = take_descriptor(&message);
    if (message.msg_flags & MSG_TRUNC) {
        if (*passed >= 0) {
            close(*passed);
            *passed = -1;
        }
        return poise_error_set(EBADMSG, "read", name, "a message is too long");
    }
    return bytes_read;
}
