/*
 * A way out to the real network, for topologies that ask for one: in each host
 * a second device, behind which slirp4netns does what the host asks for with
 * sockets of this user, outside. So nothing is changed on the machine, no
 * rights are needed that containers of users do not have, too, nothing is left
 * after a crash, and testbeds with the same addresses do not meet. What goes
 * that way does not pass the gateway, so no link holds it back. Nothing comes
 * in, and servers on the machine's loopback stay out of reach.
 */
#include "wan/host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "slirp4netns"
#define DEVICE "out0"
/** It takes some milliseconds. */
#define READY_MS 20000

/* Start slirp4netns; it ends when the other end of `exit_end` is closed. An
 * errno value. */
static int spawn(pid_t host, int ready, int exit_end, int words, pid_t *pid)
{
    char program[] = PROGRAM, device[] = DEVICE, configure[] = "--configure",
         mtu[] = "--mtu=1500", loopback[] = "--disable-host-loopback";
    char option[32], end_option[32], number[16];
    char *argv[] = {program,    configure, mtu,    loopback, option,
                    end_option, number,    device, NULL};
    posix_spawn_file_actions_t files;
    snprintf(option, sizeof option, "--ready-fd=%d", ready);
    snprintf(end_option, sizeof end_option, "--exit-fd=%d", exit_end);
    snprintf(number, sizeof number, "%d", (int)host);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, words, 2);
    /* Onto themselves: so they stay open. */
    posix_spawn_file_actions_adddup2(&files, ready, ready);
    posix_spawn_file_actions_adddup2(&files, exit_end, exit_end);
    int code = posix_spawnp(pid, PROGRAM, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    return code;
}

/* What it said, as one line. */
static const char *words_of(int fd, char *room, size_t size)
{
    size_t len = 0;
    ssize_t got;
    while (len < size - 1 && (got = read(fd, room + len, size - 1 - len)) > 0) {
        len += (size_t)got;
    }
    while (len > 0 && room[len - 1] == '\n') {
        len--;
    }
    room[len] = '\0';
    for (char *at = room; (at = strchr(at, '\n'));) {
        *at = ';';
    }
    return room;
}

/* Start it and wait until it is ready. */
static int start(const char *name, pid_t host, int exit_end, const int ready[2],
                 const int words[2])
{
    char text[300], yes = 0;
    pid_t pid = -1;
    int code = spawn(host, ready[1], exit_end, words[1], &pid);
    close(ready[1]);
    close(words[1]);
    struct pollfd look = {.fd = ready[0], .events = POLLIN};
    if (code == ENOENT) {
        return poise_error_set(
            ENOTSUP, "make a way out of host", name,
            "there is no program " PROGRAM " (Debian: " PROGRAM
            "); install it, or leave 'outside' out of the topology");
    }
    if (code > 0) {
        return poise_error_set(code, "make a way out of host", name,
                               "cannot run " PROGRAM ": %s", strerror(code));
    }
    if (poll(&look, 1, READY_MS) > 0 && read(ready[0], &yes, 1) == 1) {
        return 0;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return poise_error_set(EIO, "make a way out of host", name,
                           PROGRAM " failed: %s",
                           words_of(words[0], text, sizeof text));
}

int wan_outside_open(const char *name, pid_t host)
{
    /* The end that is written to stays open for as long as the gateway lives:
     * that it is closed ends the program. */
    int ready[2], words[2], ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0 || pipe2(ready, O_CLOEXEC) < 0 ||
        pipe2(words, O_CLOEXEC) < 0) {
        /* This process ends for it, and so do they. */
        return poise_error_set(errno, "make a way out of host", name, NULL);
    }
    int code = start(name, host, ends[0], ready, words);
    close(ends[0]);
    close(ready[0]);
    close(words[0]);
    return code;
}
