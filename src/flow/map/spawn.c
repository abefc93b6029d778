/* Starting and ending the processes of nodes. */
#include "internal.h"

#include <poise/trace.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a node has of the map's: as long as it were open there, nobody would
 * see the map's end of a connection close. */
static void close_all(struct map *map)
{
    for (struct flow_link *link = map->links; link; link = link->next) {
        if (link->fd >= 0) {
            close(link->fd);
        }
    }
    for (unsigned n = 0; n < map->count; n++) {
        if (map->nodes[n].pidfd >= 0) {
            close(map->nodes[n].pidfd);
        }
    }
    if (map->log >= 0) {
        close(map->log);
    }
    close(map->listener);
    close(map->poll);
}

int map_spawn(struct map *map, unsigned id)
{
    struct map_node *node = &map->nodes[id];
    node->host = map_host_for(map, id);
    if (map->hosts && !map->hosts[node->host].local) {
        return map_host_spawn(map, id);
    }
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        return poise_error_set(errno, "start node", NULL, NULL);
    }
    if (pid == 0) {
        const struct flow_contact call = map_contact(map);
        if (map->log < 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
        }
        if (getppid() != parent) {
            _exit(1);
        }
        close_all(map);
        poise_trace_child((int)id + 1);
        int status = flow_server_run(map->job, map->options, id, &call,
                                     &map->crashes[id]);
        poise_trace_stop(poise_trace_use(NULL));
        _exit(status);
    }
    node->pid = pid;
    node->alive = true;
    return map_watch(map, node);
}

int map_watch(struct map *map, struct map_node *node)
{
    struct epoll_event event = {EPOLLIN, {.ptr = node}};
    if (node->pidfd >= 0) {
        close(node->pidfd);
    }
    node->pidfd = (int)syscall(SYS_pidfd_open, node->pid, 0);
    if (node->pidfd < 0 ||
        epoll_ctl(map->poll, EPOLL_CTL_ADD, node->pidfd, &event) < 0) {
        return poise_error_set(errno, "watch node", NULL, NULL);
    }
    return 0;
}

void map_watch_logged(struct map *map)
{
    for (unsigned n = 0; n < map->count; n++) {
        struct map_node *node = &map->nodes[n];
        if (node->alive && node->logged > 0) {
            node->pidfd = (int)syscall(SYS_pidfd_open, node->logged, 0);
            node->gone = node->pidfd < 0 && errno == ESRCH;
        }
    }
}

bool map_has_ended(const struct map_node *node)
{
    struct pollfd wait = {.fd = node->pidfd, .events = POLLIN};
    return node->gone || (node->pidfd >= 0 && poll(&wait, 1, 0) > 0);
}

void map_reap(struct map *map)
{
    /* Ending takes a process some time: so all of them at once. */
    for (unsigned n = 0; map->nodes && n < map->cap; n++) {
        if (map->nodes[n].pid > 0) {
            kill(map->nodes[n].pid, SIGKILL);
        }
    }
    for (unsigned n = 0; map->nodes && n < map->cap; n++) {
        struct map_node *node = &map->nodes[n];
        if (node->pid > 0) {
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

void map_leave(struct map *map)
{
    for (unsigned n = 0; map->nodes && n < map->cap; n++) {
        map->nodes[n].pid = 0;
    }
    for (unsigned h = 0; h < map->host_count; h++) {
        map->hosts[h].pid = 0; /* the agent has its nodes */
    }
    for (struct flow_link *link = map->links; link; link = link->next) {
        flow_link_close(link, NULL);
    }
}

int map_grow(struct map *map)
{
    if (map->count == map->cap) {
        return 0;
    }
    struct map_node *node = &map->nodes[map->count++];
    int code = map_spawn(map, map->count - 1);
    node->alive = false; /* from when it joins */
    return code;
}

int map_grow_by_plan(struct map *map)
{
    const struct poise_flow_options *options = map->options;
    bool due = false;
    int code = 0;
    for (unsigned n = 0; n < map->count && !map->grown; n++) {
        const struct map_node *node = &map->nodes[n];
        for (uint32_t f = 0; node->link && f < map->job->file_count; f++) {
            due |= node->files[f].low >= options->join_version;
        }
    }
    for (unsigned i = 0; due && code == 0 && i < options->join; i++) {
        code = map_grow(map);
    }
    map->grown |= due;
    return code;
}

struct flow_member *map_members(const struct map *map)
{
    struct flow_member *list = poise_alloc(map->count, sizeof *list);
    for (unsigned n = 0; list && n < map->count; n++) {
        const struct map_node *node = &map->nodes[n];
        list[n].at = node->alive ? node->at : (struct flow_endpoint){.port = 0};
        list[n].gone = node->joined && !node->alive;
    }
    return list;
}

int map_join(struct map *map, struct map_node *node)
{
    unsigned id = (unsigned)(node - map->nodes);
    struct flow_head head = {.version = map->line, .extra = map->epoch};
    struct flow_head word = {.place = id};
    int code = map_broadcast(map, FLOW_JOIN, &word, &node->at, sizeof node->at);
    map->next_line = -1; /* it may get blocks before that one */
    node->alive = node->joined = true;
    map->joins++;
    struct flow_member *list = map_members(map);
    if (code == 0) {
        code = list ? map_send(node->link, FLOW_START, &head, list,
                               map->count * sizeof *list)
                    : -ENOMEM;
    }
    free(list);
    for (uint32_t f = 0; f < map->job->file_count; f++) {
        uint64_t places = flow_shape_places(&map->job->files[f].shape);
        for (unsigned p = 0; code == 0 && p < map->files[f].plan_count; p++) {
            const struct map_plan *plan = &map->files[f].plans[p];
            struct flow_head of = {
                .file = f, .version = plan->from, .extra = (uint64_t)plan->to};
            struct poise_buf runs = {0};
            code = flow_plan_encode(NULL, plan->owner, places, &runs);
            code = code == 0 ? map_send(node->link, FLOW_PLAN, &of, runs.data,
                                        runs.len)
                             : code;
            poise_buf_free(&runs);
        }
    }
    return code;
}
