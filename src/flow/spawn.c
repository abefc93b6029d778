/* Starting and ending the processes of nodes. */
#include "map.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int map_spawn(struct map *map, unsigned id)
{
    struct map_node *node = &map->nodes[id];
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        return poise_error_set(errno, "start node", NULL, NULL);
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        close(map->listener);
        close(map->poll);
        _exit(flow_server_run(map->job, map->options, id, map->port,
                              map->secret));
    }
    node->pid = pid;
    node->alive = true;
    node->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct epoll_event event = {EPOLLIN, {.ptr = node}};
    if (node->pidfd < 0 ||
        epoll_ctl(map->poll, EPOLL_CTL_ADD, node->pidfd, &event) < 0) {
        return poise_error_set(errno, "watch node", NULL, NULL);
    }
    return 0;
}

void map_reap(struct map *map)
{
    for (unsigned n = 0; n < map->count; n++) {
        struct map_node *node = &map->nodes[n];
        if (node->pid > 0) {
            kill(node->pid, SIGKILL);
            while (waitpid(node->pid, NULL, 0) < 0 && errno == EINTR) {
            }
            node->pid = 0;
        }
        if (node->pidfd >= 0) {
            close(node->pidfd);
            node->pidfd = -1;
        }
    }
}
