/*
 * A host: a process in namespaces of its own (network, mounts, IPC, host name,
 * processes; users where we are not root), which keeps them alive. Its network
 * is a device whose other end it hands back. Commands join it by
 * setns.
 *
 * Between fork and exec, or the end, a child here calls only what may be
 * called there; what went wrong comes back through a socket as text.
 */
#include "wan/host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child says back: nothing went wrong, or at what, with errno. */
struct word {
    int code;
    char doing[60];
};

static int failed(struct word *word, const char *doing)
{
    word->code = errno ? errno : EIO;
    snprintf(word->doing, sizeof word->doing, "%s", doing);
    return -1;
}

static int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t done = fd < 0 ? -1 : write(fd, text, strlen(text));
    int code = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = code;
    return done < 0 ? -1 : 0;
}

/* ---- inside a new host -------------------------------------------------- */

/* Map root in the host to the user outside, as far as `mapped` does not say
 * that it is done. */
static int map_user(uid_t uid, gid_t gid, unsigned mapped, struct word *word)
{
    char text[64];
    snprintf(text, sizeof text, "0 %u 1", (unsigned)uid);
    if (!(mapped & WAN_USERS_MAPPED) &&
        write_text("/proc/self/uid_map", text) < 0) {
        return failed(word, "map users");
    }
    if (mapped & WAN_GROUPS_MAPPED) {
        return 0;
    }
    if (write_text("/proc/self/setgroups", "deny") < 0 && errno != ENOENT) {
        return failed(word, "map groups");
    }
    snprintf(text, sizeof text, "0 %u 1", (unsigned)gid);
    return write_text("/proc/self/gid_map", text) < 0
               ? failed(word, "map groups")
               : 0;
}

/* Wait until whoever makes the host has said which users are mapped. */
static enum wan_users await_users(uid_t uid, gid_t gid, int socket,
                                  struct word *word)
{
    unsigned mapped = 0;
    if (uid == 0) {
        return WAN_ROOT;
    }
    if (recv(socket, &mapped, sizeof mapped, 0) != (ssize_t)sizeof mapped) {
        _exit(1);
    }
    map_user(uid, gid, mapped, word);
    return mapped & WAN_GROUPS_MAPPED ? WAN_SEVERAL : WAN_ONE;
}

/* Send `word`, and a descriptor unless it is -1. */
static void send_word(int socket, const struct word *word, int fd)
{
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)word, sizeof *word};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
    }
    ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    (void)sent;
}

/* A host keeps no other descriptor of the process that made it. */
static void close_others(int keep)
{
    if (keep > 3) {
        close_range(3, (unsigned)keep - 1, 0);
    }
    close_range((unsigned)keep + 1, ~0U, 0);
}

static void host_main(const struct wan_wish *wish, uid_t uid, gid_t gid,
                      int socket)
{
    struct word word = {0};
    const char *doing;
    int tunnel = -1;
    /* The kernel kills this process when its parent dies: a crash leaves
     * nothing. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The first process of a host has to reap those that end there; the kernel
     * does so where SIGCHLD is ignored. */
    signal(SIGCHLD, SIG_IGN);
    close_others(socket);
    enum wan_users users = await_users(uid, gid, socket, &word);
    if (word.code == 0) {
        if (wan_mounts(wish->hosts_file, wish->resolv_file, users, &doing) ==
            0) {
            doing = "set the host name";
            if (sethostname(wish->name, strlen(wish->name)) == 0) {
                tunnel = wan_device_open(wish->address, &doing);
            }
        }
        if (tunnel < 0) {
            failed(&word, doing);
        }
    }
    send_word(socket, &word, tunnel);
    if (tunnel < 0) {
        _exit(1);
    }
    close(socket);
    close(tunnel);
    for (;;) {
        pause();
    }
}

/* ---- making one --------------------------------------------------------- */

static int hear(int socket, struct word *word, int *fd)
{
    char room[CMSG_SPACE(sizeof(int))];
    struct iovec part = {word, sizeof *word};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room,
                             .msg_controllen = sizeof room};
    ssize_t got;
    do {
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    *fd = -1;
    if (got != (ssize_t)sizeof *word) {
        return -EIO;
    }
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_type == SCM_RIGHTS) {
        memcpy(fd, CMSG_DATA(head), sizeof *fd);
    }
    return 0;
}

/* What to do about it, for the most likely reasons. */
static int creation_error(const char *name, const struct word *word)
{
    const char *help = "";
    if (strncmp(word->doing, WAN_OPEN_TUN, strlen(WAN_OPEN_TUN)) == 0) {
        help = word->code == EOPNOTSUPP
                   ? "; load the kernel module tun or veth, or pass the device "
                     "into the container"
                   : "; run as root, or give users access to the device";
    } else if (word->code == EPERM || word->code == EACCES) {
        help = "; run as root, or where user namespaces are allowed";
    }
    return poise_error_set(word->code, "make host", name, "cannot %s: %s%s",
                           word->doing, strerror(word->code), help);
}

int wan_host_create(const struct wan_wish *wish, struct wan_host *out)
{
    const char *name = wish->name;
    unsigned long flags = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC |
                          CLONE_NEWUTS | CLONE_NEWPID | SIGCHLD;
    uid_t uid = geteuid();
    gid_t gid = getegid();
    struct word word = {0};
    int sockets[2];
    if (uid != 0) {
        flags |= CLONE_NEWUSER;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
        return poise_error_set(errno, "make host", name, NULL);
    }
    pid_t pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, 0);
    if (pid == 0) {
        host_main(wish, uid, gid, sockets[1]);
    }
    int code = pid < 0 ? -errno : 0;
    close(sockets[1]);
    if (pid < 0) {
        word.code = -code;
        snprintf(word.doing, sizeof word.doing, "make namespaces");
        creation_error(name, &word);
    } else {
        unsigned mapped = uid ? wan_users_map(pid, uid, gid) : 0;
        ssize_t sent =
            uid ? send(sockets[0], &mapped, sizeof mapped, MSG_NOSIGNAL) : 0;
        (void)sent; /* a host that died is heard of */
        code = hear(sockets[0], &word, &out->tunnel);
        if (code < 0) {
            poise_error_set(EIO, "make host", name, "its process died");
        } else if (out->tunnel < 0) {
            code = creation_error(name, &word);
        }
    }
    close(sockets[0]);
    if (code < 0 && pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    out->pid = pid;
    return code;
}

/* ---- running something there -------------------------------------------- */

/* Users first: the others belong to them. */
static const char *const spaces[] = {"user", "ipc", "uts", "net", "pid", "mnt"};
enum { SPACES = sizeof spaces / sizeof *spaces };

static int spaces_open(int64_t pid, int fds[SPACES], const char *host)
{
    for (int i = 0; i < SPACES; i++) {
        char path[64], mine[64];
        struct stat theirs, own;
        snprintf(path, sizeof path, "/proc/%lld/ns/%s", (long long)pid,
                 spaces[i]);
        snprintf(mine, sizeof mine, "/proc/self/ns/%s", spaces[i]);
        fds[i] = open(path, O_RDONLY | O_CLOEXEC);
        if (fds[i] < 0) {
            int code = errno;
            while (i-- > 0) {
                close(fds[i]);
            }
            return poise_error_set(code, "join host", host, NULL);
        }
        /* One's own user namespace cannot be joined again. */
        if (i == 0 && fstat(fds[0], &theirs) == 0 && stat(mine, &own) == 0 &&
            theirs.st_ino == own.st_ino) {
            close(fds[0]);
            fds[0] = -1;
        }
    }
    return 0;
}

bool wan_is_stopped(int64_t pid)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) {
        close(fd);
    }
    if (len <= 0) {
        return false;
    }
    text[len] = '\0';
    /* The name, which may hold anything, is in brackets. */
    const char *state = strrchr(text, ')');
    return state && strncmp(state, ") T", 3) == 0;
}

/* What ends a command other than itself. */
struct limits {
    unsigned timeout_s; /* how long it may take, once it was told to end */
    int64_t gateway;    /* whose stop ends it; 0: nobody's */
    bool was_stopped;   /* that was why */
};

/* For how long the gateway has been stopped, from `*since_ns` on. */
static bool stopped_too_long(const struct limits *limits, uint64_t now_ns,
                             uint64_t *since_ns)
{
    if (limits->gateway == 0 || !wan_is_stopped(limits->gateway)) {
        *since_ns = UINT64_MAX;
    } else if (*since_ns == UINT64_MAX) {
        *since_ns = now_ns;
    }
    return *since_ns != UINT64_MAX &&
           now_ns - *since_ns >= WAN_STOPPED_S * UINT64_C(1000000000);
}

/* Until the child ends; what comes for us goes to it. */
static int await(pid_t child, struct limits *limits)
{
    sigset_t set;
    siginfo_t info;
    uint64_t deadline = UINT64_MAX, stopped_ns = UINT64_MAX;
    int status = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    while (waitpid(child, &status, WNOHANG) == 0) {
        const struct timespec second = {.tv_sec = 1};
        int signal_number = sigtimedwait(&set, &info, &second);
        uint64_t now = poise_clock_ns();
        bool tell = signal_number > 0 && signal_number != SIGCHLD;
        if (!limits->was_stopped &&
            stopped_too_long(limits, now, &stopped_ns)) {
            limits->was_stopped = tell = true;
            signal_number = SIGTERM;
        }
        if (tell) {
            kill(child, signal_number);
            if (limits->timeout_s && deadline == UINT64_MAX) {
                deadline = now + limits->timeout_s * UINT64_C(1000000000);
            }
        }
        if (now >= deadline) {
            kill(child, SIGKILL);
        }
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* The kernel's, which the C library does not declare. */
struct sched_words {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

void wan_short_slices(void)
{
    /* From Linux 6.12 on; the least that it accepts. Who asks for short slices
     * gets the processor sooner when it wakes up, and not more of it. */
    struct sched_words words = {.size = sizeof words, .runtime = 100000};
    if (syscall(SYS_sched_getattr, 0, &words, (unsigned)sizeof words, 0) == 0 &&
        words.policy == SCHED_OTHER) {
        words.runtime = 100000;
        syscall(SYS_sched_setattr, 0, &words, 0);
    }
}

/* In a child: join, fork once more (so as to be in the new process space), run.
 * The process that waits outside learns of a failure by the socket, which a
 * successful exec closes. */
static void exec_main(const int fds[SPACES], char *const *argv,
                      char *const *environment, int socket,
                      const sigset_t *before)
{
    struct word word = {0};
    char cwd[4096];
    bool here = getcwd(cwd, sizeof cwd) != NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < SPACES; i++) {
        if (fds[i] >= 0 && setns(fds[i], 0) < 0) {
            failed(&word, "join its namespaces");
            send_word(socket, &word, -1);
            _exit(125);
        }
    }
    pid_t child = fork();
    if (child == 0) {
        /* A signal that kills the outer process is meant for the command. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigprocmask(SIG_SETMASK, before, NULL);
        wan_short_slices();
        if (here && chdir(cwd) < 0) {
            failed(&word, "enter the working directory");
        } else {
            execvpe(argv[0], argv, environment);
            failed(&word, "run it");
        }
        send_word(socket, &word, -1);
        _exit(word.code == ENOENT ? 127 : 126);
    }
    if (child < 0) {
        failed(&word, "fork");
        send_word(socket, &word, -1);
        _exit(125);
    }
    close(socket);
    _exit(await(child, &(struct limits){0}));
}

/* That of this process, and what tells events of one host's clock from
 * another's (poise/trace.h), since all of them have the same kernel. The last
 * entry is owned. */
static char **environment_of(const char *host)
{
    static const char name[] = "POISE_TRACE_CLOCK=";
    size_t count = 0;
    char *own = NULL;
    while (environ[count]) {
        count++;
    }
    char **out = poise_alloc(count + 2, sizeof *out);
    if (!out || asprintf(&own, "%s%s", name, host) < 0) {
        free(out);
        return NULL;
    }
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(environ[i], name, sizeof name - 1) != 0) {
            out[kept++] = environ[i];
        }
    }
    out[kept] = own;
    return out;
}

static void environment_free(char **environment)
{
    size_t count = 0;
    while (environment && environment[count]) {
        count++;
    }
    if (count > 0) {
        free(environment[count - 1]);
    }
    free(environment);
}

int poise_wan_exec(const struct poise_wan_testbed *testbed, unsigned host,
                   char *const *argv, unsigned timeout_s, int *status)
{
    const struct poise_wan_host_state *there = &testbed->hosts[host];
    int fds[SPACES], sockets[2], nothing = -1;
    /* Where the parent ignored SIGCHLD, this process would not learn of a
     * child's end. */
    struct sigaction heed = {.sa_handler = SIG_DFL}, heeded;
    sigset_t blocked, before;
    struct word word = {0};
    char **environment = environment_of(there->name);
    int code =
        environment ? spaces_open(there->pid, fds, there->name) : -ENOMEM;
    if (code < 0) {
        environment_free(environment);
        return code;
    }
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    sigaddset(&blocked, SIGCHLD);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
        code = poise_error_set(errno, "run on host", there->name, NULL);
        goto close_spaces;
    }
    sigprocmask(SIG_BLOCK, &blocked, &before);
    sigaction(SIGCHLD, &heed, &heeded);
    pid_t child = fork();
    if (child == 0) {
        close(sockets[0]);
        exec_main(fds, argv, environment, sockets[1], &before);
    }
    code = child < 0 ? poise_error_set(errno, "run on host", there->name, NULL)
                     : 0;
    close(sockets[1]);
    if (code == 0) {
        struct limits limits = {.timeout_s = timeout_s,
                                .gateway = timeout_s ? testbed->gateway : 0};
        *status = await(child, &limits);
        if (limits.was_stopped) {
            code = poise_error_set(ETIMEDOUT, "run", argv[0],
                                   "the gateway of the testbed, process %lld, "
                                   "has been stopped for %d s",
                                   (long long)testbed->gateway, WAN_STOPPED_S);
        }
        /* Nothing to hear: all went well. */
        if (hear(sockets[0], &word, &nothing) == 0 && word.code) {
            code = poise_error_set(word.code, "run", argv[0],
                                   "cannot %s on host '%s': %s", word.doing,
                                   there->name, strerror(word.code));
        }
    }
    close(sockets[0]);
    sigaction(SIGCHLD, &heeded, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
close_spaces:
    environment_free(environment);
    for (int i = 0; i < SPACES; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    return code;
}
