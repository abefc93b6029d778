/*
 * Users of a host where we are not root. The kernel lets anybody map one user,
 * himself, who is root on the host then. Servers that change users (sshd,
 * nginx) need more: those that the administrator gave this user in /etc/subuid
 * and /etc/subgid, which the programs newuidmap and newgidmap may map
 * (Debian's package uidmap; containers without root use them, too).
 */
#include "wan/host/host.h"

#include <fcntl.h>
#include <pwd.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/** All that usual programs know. */
#define USERS_MOST 65535

/* The first range that a file gives to a user, by name or number: its length,
 * or 0. */
static unsigned range_of(const char *path, const char *name, unsigned uid,
                         unsigned *first)
{
    char line[512], number[16];
    unsigned count = 0;
    FILE *file = fopen(path, "re");
    snprintf(number, sizeof number, "%u", uid);
    while (file && count == 0 && fgets(line, sizeof line, file)) {
        unsigned begin, length;
        char *colon = strchr(line, ':');
        if (!colon) {
            continue;
        }
        *colon = '\0';
        if ((strcmp(line, name) == 0 || strcmp(line, number) == 0) &&
            sscanf(colon + 1, "%u:%u", &begin, &length) == 2) {
            *first = begin;
            count = length < USERS_MOST ? length : USERS_MOST;
        }
    }
    if (file) {
        fclose(file);
    }
    return count;
}

/* Run newuidmap or newgidmap: whether it did. */
static bool run_map(const char *program, pid_t pid, unsigned own,
                    unsigned first, unsigned count)
{
    char words[7][16];
    char *argv[9] = {(char *)(uintptr_t)program};
    const unsigned numbers[] = {(unsigned)pid, 0, own, 1, 1, first, count};
    posix_spawn_file_actions_t files;
    pid_t child;
    int status = -1;
    for (int i = 0; i < 7; i++) {
        snprintf(words[i], sizeof words[i], "%u", numbers[i]);
        argv[i + 1] = words[i];
    }
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    int code = posix_spawnp(&child, program, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    return code == 0 && waitpid(child, &status, 0) == child && status == 0;
}

unsigned wan_users_map(pid_t pid, uid_t uid, gid_t gid)
{
    const struct passwd *user = getpwuid(uid);
    const char *name = user ? user->pw_name : "";
    unsigned first_user = 0, first_group = 0;
    unsigned users = range_of("/etc/subuid", name, uid, &first_user);
    unsigned groups = range_of("/etc/subgid", name, uid, &first_group);
    if (users == 0 || groups == 0 ||
        !run_map("newuidmap", pid, uid, first_user, users)) {
        return 0;
    }
    return WAN_USERS_MAPPED |
           (run_map("newgidmap", pid, gid, first_group, groups)
                ? WAN_GROUPS_MAPPED
                : 0);
}

int poise_wan_host_users(const struct poise_wan_testbed *testbed, unsigned host,
                         uint64_t *users)
{
    char path[64], text[4096] = "";
    unsigned long long inside, outside, length;
    int used, at = 0;
    snprintf(path, sizeof path, "/proc/%lld/uid_map",
             (long long)testbed->hosts[host].pid);
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    ssize_t got = poise_file_read(fd, text, sizeof text - 1, path);
    poise_file_close(fd, path);
    *users = 0;
    while (got > 0 && sscanf(text + at, "%llu %llu %llu%n", &inside, &outside,
                             &length, &used) == 3) {
        *users += length;
        at += used;
    }
    return got < 0 ? (int)got : 0;
}
