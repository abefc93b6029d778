/*
 * Hosts: one agent on each, which a remote shell or a launcher started, and
 * which starts that host's nodes by fork. So a host costs one connection of ssh
 * and reads a job's input once, however many nodes it has.
 *
 * An agent knows the map by a line: which host it is, and how the map is
 * reached, with the job's secret. From a remote shell it comes by standard
 * input, from a launcher by a broadcast; never by a command line, which
 * everybody on a host may read. Then it is a peer like others: both ends prove
 * themselves, and of another build or with another input it is refused.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MOST 64
/** Agents that were told to end have so long for it. */
#define END_NS UINT64_C(5000000000)
#define LOOK_NS UINT64_C(5000000)

extern char **environ;

uint64_t map_machine(void)
{
    char boot[64] = "";
    struct stat space = {0};
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, boot, sizeof boot) : 0;
    if (fd >= 0) {
        close(fd);
    }
    stat("/proc/self/ns/pid", &space);
    return poise_hash_bytes(boot, got > 0 ? (size_t)got : 0,
                            poise_hash_u64(space.st_ino));
}

/* ---- addresses ---------------------------------------------------------- */

/* How a host reaches this one, and whether it is this one. */
static int look_at_host(struct map_host *host, struct flow_endpoint *own)
{
    struct flow_endpoint at;
    int code = flow_endpoint_resolve(host->name, &at);
    code = code == 0 ? flow_endpoint_route(&at, own) : code;
    host->local = code == 0 && (memcmp(own->ip, at.ip, sizeof at.ip) == 0 ||
                                flow_endpoint_is_loopback(&at));
    return code;
}

/* Where the map is found: where others than this host find it, if there are
 * any. */
static int choose_address(struct map *map)
{
    const struct poise_flow_cluster *cluster = map->options->cluster;
    bool chosen = false;
    for (unsigned h = 0; h < map->host_count; h++) {
        struct map_host *host = &map->hosts[h];
        struct flow_endpoint own;
        int code = look_at_host(host, &own);
        if (code < 0) {
            return code;
        }
        if (!chosen && !flow_endpoint_is_loopback(&own)) {
            chosen = !host->local;
            map->self.at = own;
        }
        if (cluster->world) {
            host->local = h == 0;
        } else if (cluster->rsh) {
            host->local = false;
        }
    }
    return 0;
}

static int hosts_make(struct map *map, unsigned count)
{
    map->hosts = poise_alloc(count, sizeof *map->hosts);
    map->host_count = map->hosts ? count : 0;
    for (unsigned h = 0; h < map->host_count; h++) {
        map->hosts[h].pidfd = -1;
        map->hosts[h].slots = 1;
    }
    return map->hosts ? 0 : -ENOMEM;
}

/* Those of all ranks. */
static int hosts_of_world(struct map *map)
{
    const struct poise_world *world = map->options->cluster->world;
    char *at = map->names.data;
    int code = hosts_make(map, (unsigned)poise_world_size(world));
    for (unsigned h = 0; code == 0 && h < map->host_count; h++) {
        map->hosts[h].name = at;
        at += strlen(at) + 1;
    }
    return code;
}

int map_hosts_gather(struct map *map)
{
    struct poise_world *world =
        map->options->cluster ? map->options->cluster->world : NULL;
    struct poise_buf all = {0}, *names = &map->names;
    char own[256] = "";
    if (!world) {
        return 0;
    }
    gethostname(own, sizeof own - 1);
    int code = poise_world_gather(world, 0, own, strlen(own) + 1, &all);
    struct poise_reader reader = poise_reader_of(all.data, all.len);
    for (int r = 0; code == 0 && r < poise_world_size(world); r++) {
        size_t len = 0;
        const void *name = poise_reader_blob(&reader, &len);
        code = reader.error ? reader.error
                            : poise_buf_append(names, name ? name : "", len);
    }
    poise_buf_free(&all);
    return code;
}

static bool same_site(const struct map_host *a, const struct map_host *b)
{
    return strcmp(a->site ? a->site : "", b->site ? b->site : "") == 0;
}

/* Which nodes are on another host, or site, than the one before. Nodes that
 * come later (spares) may be anywhere. */
static int borders_make(struct map *map)
{
    map->borders = poise_alloc(map->cap, sizeof *map->borders);
    for (unsigned n = 1; map->borders && n < map->options->nodes; n++) {
        const struct map_host *before = &map->hosts[map_host_for(map, n - 1)];
        const struct map_host *host = &map->hosts[map_host_for(map, n)];
        map->borders[n] = !same_site(before, host) ? FLOW_OTHER_SITE
                          : strcmp(before->name, host->name) != 0
                              ? FLOW_OTHER_HOST
                              : FLOW_BESIDE;
    }
    return map->borders ? 0 : -ENOMEM;
}

int map_hosts_open(struct map *map)
{
    const struct poise_flow_cluster *cluster = map->options->cluster;
    struct epoll_event event = {EPOLLIN, {.ptr = &map->listener}};
    struct flow_endpoint on = {.port = 0};
    int code = 0;
    map->self.at = flow_endpoint_loopback();
    if (cluster && cluster->world) {
        code = hosts_of_world(map);
    } else if (cluster && cluster->hosts) {
        code = hosts_make(map, (unsigned)cluster->hosts->count);
        for (unsigned h = 0; code == 0 && h < map->host_count; h++) {
            map->hosts[h].name = cluster->hosts->items[h].name;
            map->hosts[h].slots = cluster->hosts->items[h].slots;
            map->hosts[h].site = cluster->hosts->items[h].site;
        }
    }
    for (unsigned h = 0; code == 0 && h < map->host_count; h++) {
        const char *name = map->hosts[h].name;
        map->hosts[h].machine =
            (uint32_t)poise_hash_bytes(name, strlen(name), 0);
    }
    code = code == 0 && map->hosts ? borders_make(map) : code;
    code = code == 0 ? choose_address(map) : code;
    if (flow_endpoint_is_loopback(&map->self.at)) {
        on = map->self.at;
    }
    if (code == 0) {
        code = flow_listen(&on, &map->listener, &map->self.at.port);
    }
    if (code == 0 &&
        epoll_ctl(map->poll, EPOLL_CTL_ADD, map->listener, &event) < 0) {
        code = poise_error_set(errno, "start map", NULL, NULL);
    }
    return code;
}

int map_hosts_tell(struct map *map, int code)
{
    const struct poise_flow_cluster *cluster = map->options->cluster;
    const struct flow_contact call = map_contact(map);
    struct poise_buf line = {0};
    if (!cluster || !cluster->world) {
        return code;
    }
    if (code == 0) {
        code = flow_contact_text(&call, &line);
        poise_buf_putc(&line, '\0');
    }
    int told = poise_world_broadcast(cluster->world, 0, &line);
    poise_buf_free(&line);
    return code < 0 ? code : told;
}

static void notice(const struct map *map, const struct map_host *host,
                   const char *what)
{
    struct poise_buf words = {0};
    poise_buf_printf(&words, "host '%s' %s", host->name, what);
    if (map->options->notice && poise_buf_str(&words)) {
        map->options->notice(poise_buf_str(&words), map->options->notice_arg);
    }
    poise_buf_free(&words);
}

/* ---- starting ----------------------------------------------------------- */

unsigned map_host_for(const struct map *map, unsigned id)
{
    unsigned best = 0, slots = 0;
    for (unsigned h = 0; h < map->host_count; h++) {
        slots += map->hosts[h].slots;
        if (id < slots) {
            return h;
        }
    }
    /* One more: where there are the fewest for what there is room for. */
    double least = 0;
    for (unsigned h = 0; h < map->host_count; h++) {
        const struct map_host *host = &map->hosts[h];
        unsigned alive = 0;
        for (unsigned n = 0; n < map->count; n++) {
            alive += map->nodes[n].alive && map->nodes[n].host == h;
        }
        double load = (double)alive / host->slots;
        bool there = (host->local || host->link) && !host->away;
        if (there && (least == 0 || load + 1 < least)) {
            least = load + 1;
            best = h;
        }
    }
    return best;
}

/* Words parted by blanks. `text` is changed. */
static int rsh_words(char *text, char *name, char *command, char **words)
{
    char *at = NULL;
    unsigned count = 0;
    for (char *word = strtok_r(text, " \t", &at); word;
         word = strtok_r(NULL, " \t", &at)) {
        if (count == WORDS_MOST - 3) {
            return poise_error_set(E2BIG, "use the remote shell", text, NULL);
        }
        words[count++] = word;
    }
    if (count == 0) {
        return poise_error_set(EINVAL, "use the remote shell", "",
                               "it has no name");
    }
    words[count++] = name;
    words[count++] = command;
    words[count] = NULL;
    return 0;
}

/* The remote shell, with a pipe as its standard input that holds the line. */
static int shell_start(struct map_host *host, char **words,
                       const struct poise_buf *line)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) < 0) {
        return poise_error_set(errno, "start agent on", host->name, NULL);
    }
    /* Some hundred bytes fit into a pipe. It has a reader, this process: the
     * shell may be gone before it has read. */
    int code = poise_file_write(pipes[1], line->data, line->len, host->name);
    close(pipes[1]);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_adddup2(&actions, pipes[0], STDIN_FILENO);
    int failed = code == 0 ? posix_spawnp(&host->pid, words[0], &actions,
                                          &attributes, words, environ)
                           : 0;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[0]);
    if (failed != 0) {
        host->pid = 0;
        code = poise_error_set(failed, "run remote shell", words[0], NULL);
    }
    return code;
}

static int agent_start(struct map *map, struct map_host *host)
{
    const struct poise_flow_cluster *cluster = map->options->cluster;
    const struct flow_contact call = map_contact(map);
    struct poise_buf line = {0}, shell = {0}, name = {0}, command = {0};
    char *words[WORDS_MOST];
    poise_buf_puts(&shell, cluster->rsh ? cluster->rsh : "ssh");
    poise_buf_puts(&name, host->name);
    poise_buf_puts(&command, cluster->command ? cluster->command : "");
    poise_buf_printf(&line, FLOW_AGENT_WORDS " %016llx %u ",
                     (unsigned long long)map->self.build,
                     (unsigned)(host - map->hosts));
    flow_contact_text(&call, &line);
    bool whole = *poise_buf_str(&shell) && poise_buf_str(&name) &&
                 poise_buf_str(&command); /* each with its 0 */
    int code =
        !whole || line.error || shell.error || name.error || command.error
            ? -ENOMEM
            : rsh_words(shell.data, name.data, command.data, words);
    code = code == 0 ? shell_start(host, words, &line) : code;
    if (code == 0) {
        struct epoll_event event = {EPOLLIN, {.ptr = host}};
        host->pidfd = (int)syscall(SYS_pidfd_open, host->pid, 0);
        if (host->pidfd < 0 ||
            epoll_ctl(map->poll, EPOLL_CTL_ADD, host->pidfd, &event) < 0) {
            code = poise_error_set(errno, "watch agent on", host->name, NULL);
        }
    }
    poise_buf_free(&line);
    poise_buf_free(&shell);
    poise_buf_free(&name);
    poise_buf_free(&command);
    return code;
}

int map_host_spawn(struct map *map, unsigned id)
{
    const struct poise_flow_cluster *cluster = map->options->cluster;
    struct map_node *node = &map->nodes[id];
    struct map_host *host = &map->hosts[node->host];
    const struct flow_head head = {.place = id};
    node->alive = true;
    node->pid = 0;
    node->wanted = !host->link;
    if (host->link) {
        return map_send(host->link, FLOW_SPAWN, &head, NULL, 0);
    }
    return host->pid > 0 || cluster->world ? 0 : agent_start(map, host);
}

/* ---- what agents say ---------------------------------------------------- */

static int refused(const struct map_host *host)
{
    return poise_error_set(EPROTO, "run job on host", host->name,
                           "there is another build of Poise, or other input");
}

int map_host_came(struct map *map, struct flow_link *link)
{
    uint64_t index = link->head.place - FLOW_AGENTS;
    if (index >= map->host_count || map->hosts[index].link) {
        flow_link_close(link, NULL);
        return 0;
    }
    struct map_host *host = &map->hosts[index];
    if (link->head.extra == 0) {
        return refused(host);
    }
    int code = 0;
    link->known = host->called = true;
    link->peer = FLOW_NOBODY;
    link->agent = (unsigned)index + 1;
    host->link = link;
    for (unsigned n = 0; code == 0 && n < map->count; n++) {
        struct map_node *node = &map->nodes[n];
        const struct flow_head head = {.place = n};
        if (node->wanted && node->host == index) {
            node->wanted = false;
            code = map_send(link, FLOW_SPAWN, &head, NULL, 0);
        }
    }
    return code;
}

int map_host_receive(struct map *map, struct flow_link *link)
{
    const struct flow_head *head = &link->head;
    struct flow_crash crash = {.number = 0};
    if (head->kind != FLOW_ENDED || head->place >= map->count) {
        return poise_error_set(EPROTO, "serve agent",
                               map->hosts[link->agent - 1].name,
                               "it sent a message of kind %u", head->kind);
    }
    struct map_node *node = &map->nodes[head->place];
    if (node->host != link->agent - 1) {
        return 0;
    }
    if (head->len == sizeof crash && link->in) {
        memcpy(&crash, flow_made_data(link->in), sizeof crash);
    }
    int code = map_crashed(map, (unsigned)head->place, &crash);
    return code < 0     ? code
           : node->lost ? map_host_heard(map, node)
                        : map_declare_dead(map, node, "died");
}

/* ---- hosts that fall silent, and come back ------------------------------- */

void map_host_silent(struct map *map, struct map_node *node)
{
    struct map_host *host = map->hosts ? &map->hosts[node->host] : NULL;
    bool others = false;
    if (!host || node->alive) {
        return; /* or all began anew */
    }
    node->lost = true;
    for (unsigned n = 0; n < map->count; n++) {
        others |= map->nodes[n].alive && map->nodes[n].host == node->host;
    }
    if (!others && !host->away) {
        host->away = true;
        notice(map, host, "is not heard any more: others compute its part");
    }
}

int map_host_heard(struct map *map, struct map_node *node)
{
    struct map_host *host = &map->hosts[node->host];
    if (host->away) {
        host->away = false;
        notice(map, host, "is heard again: its nodes come back");
    }
    node->lost = false;
    return map_grow(map);
}

/* Its nodes that did not come yet will not come. */
int map_host_lost(struct map *map, struct flow_link *link)
{
    struct map_host *host = &map->hosts[link->agent - 1];
    unsigned index = link->agent - 1;
    int code = 0;
    host->link = NULL;
    for (unsigned n = 0; code == 0 && n < map->count; n++) {
        struct map_node *node = &map->nodes[n];
        if (node->host == index && node->alive && !node->link) {
            code = map_declare_dead(map, node, "lost its host's agent");
        }
    }
    return code;
}

int map_host_ended(struct map *map, struct map_host *host)
{
    int status = 0;
    if (host->pid == 0 || waitpid(host->pid, &status, WNOHANG) == 0) {
        return 0;
    }
    epoll_ctl(map->poll, EPOLL_CTL_DEL, host->pidfd, NULL);
    close(host->pidfd);
    host->pidfd = -1;
    host->pid = 0;
    if (host->called) {
        return 0; /* its link, and its nodes', say what is left of it */
    }
    if (map->started) {
        notice(map, host, "cannot be used again: its agent did not call");
        return 0; /* others have its part */
    }
    return poise_error_set(
        EHOSTUNREACH, "start nodes on host", host->name,
        WIFEXITED(status)
            ? "the remote shell, or what it started, ended with status %d "
              "before it called"
            : "the remote shell was ended by signal %d",
        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

/* ---- the end ------------------------------------------------------------ */

static bool any_left(const struct map *map)
{
    bool left = false;
    for (unsigned h = 0; h < map->host_count; h++) {
        struct map_host *host = &map->hosts[h];
        if (host->pid > 0 && waitpid(host->pid, NULL, WNOHANG) != 0) {
            host->pid = 0;
        }
        left |= host->pid > 0;
    }
    for (const struct flow_link *link = map->links; link; link = link->next) {
        left |= link->fd >= 0 && link->proved && link->sending.first;
    }
    return left;
}

void map_hosts_close(struct map *map)
{
    const struct flow_head stop = {.extra = map->done};
    if (!map->hosts) {
        return;
    }
    for (struct flow_link *link = map->links; link; link = link->next) {
        if (link->fd >= 0 && link->known) {
            (void)map_send(link, FLOW_STOP, &stop, NULL, 0);
        } else {
            flow_link_close(link, NULL); /* an agent that was refused */
        }
    }
    uint64_t until = poise_clock_ns() + END_NS;
    do {
        map_flush(map);
        poise_sleep_ns(LOOK_NS);
    } while (any_left(map) && poise_clock_ns() < until);
    for (unsigned h = 0; h < map->host_count; h++) {
        struct map_host *host = &map->hosts[h];
        if (host->pid > 0) {
            kill(host->pid, SIGTERM);
            while (waitpid(host->pid, NULL, 0) < 0 && errno == EINTR) {
            }
        }
        if (host->pidfd >= 0) {
            close(host->pidfd);
        }
        host->pid = 0;
        host->pidfd = -1;
        host->link = NULL;
        host->called = host->away = false;
    }
}
