/*
 * An agent: starts a host's nodes by fork when the map asks for them, and says
 * when one has ended. It lives as long as they do. When it loses the map
 * nothing can be asked of it any more; its nodes then end by themselves, or
 * find another map.
 */
#include "internal.h"

#include <poise/trace.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/** How often children are looked after; what is on the link is seen at once. */
#define TICK_MS 20
/** Nodes that were told to end have so long for it. */
#define END_NS UINT64_C(3000000000)

struct agent {
    const struct poise_flow_job *job;
    const struct poise_flow_options *options;
    const struct flow_contact *call;
    struct flow_link link;
    struct flow_self self;
    struct poise_buf children;  /**< struct child */
    struct flow_crash *crashes; /**< [POISE_FLOW_NODES_MOST], owned */
    bool stop;
    bool lost; /**< the map's link broke */
};

struct child {
    pid_t pid; /**< 0: ended */
    unsigned id;
};

static int say_ended(struct agent *agent, unsigned id)
{
    struct flow_item *item = flow_item_create(FLOW_ENDED, &agent->crashes[id],
                                              sizeof *agent->crashes);
    if (!item) {
        return -ENOMEM;
    }
    item->head.place = id;
    flow_queue_add(&agent->link.sending, item);
    return 0;
}

static int start_node(struct agent *agent, unsigned id)
{
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        return poise_error_set(errno, "start node", NULL, NULL);
    }
    if (pid == 0) {
        if (!agent->options->log) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
        }
        if (getppid() != parent) {
            _exit(1);
        }
        close(agent->link.fd);
        poise_trace_child((int)id + 1);
        int status = flow_server_run(agent->job, agent->options, id,
                                     agent->call, &agent->crashes[id]);
        poise_trace_stop(poise_trace_use(NULL));
        _exit(status);
    }
    const struct child child = {pid, id};
    return poise_buf_append(&agent->children, &child, sizeof child);
}

/* How many are left. Those that ended are told of. */
static size_t reap(struct agent *agent, int how)
{
    struct child *children = (struct child *)agent->children.data;
    size_t left = 0;
    for (size_t i = 0; i < agent->children.len / sizeof *children; i++) {
        int status = 0;
        if (children[i].pid > 0 &&
            waitpid(children[i].pid, &status, how) != 0) {
            flow_crash_note(&agent->crashes[children[i].id], status);
            children[i].pid = 0;
            (void)say_ended(agent, children[i].id);
        }
        left += children[i].pid > 0;
    }
    return left;
}

static int receive(struct agent *agent)
{
    int code;
    while (!agent->stop &&
           (code = flow_link_receive(&agent->link, &agent->self)) != 0) {
        const struct flow_head head = agent->link.head;
        if (code == -ENOMEM) {
            return code;
        }
        if (code < 0) {
            agent->lost = true;
            flow_link_close(&agent->link, NULL);
            return 0;
        }
        free(agent->link.in);
        agent->link.in = NULL;
        if (head.kind == FLOW_STOP) {
            agent->stop = true;
        } else if (head.kind != FLOW_SPAWN ||
                   head.place >= POISE_FLOW_NODES_MOST) {
            return poise_error_set(EPROTO, "serve map", NULL,
                                   "it sent a message of kind %u", head.kind);
        } else {
            code = start_node(agent, (unsigned)head.place);
            if (code < 0) {
                return code;
            }
        }
    }
    return 0;
}

static int serve(struct agent *agent)
{
    bool log = agent->options->log != NULL;
    int code = 0;
    while (code == 0 && !agent->stop && !(agent->lost && !log)) {
        struct flow_queue sent = {0};
        struct pollfd look = {.fd = agent->link.fd, .events = POLLIN};
        if (!agent->lost && flow_link_send(&agent->link, &sent) < 0) {
            agent->lost = true;
            flow_link_close(&agent->link, NULL);
        }
        flow_queue_clear(&sent, NULL);
        look.events |= agent->link.proved ? 0 : POLLOUT;
        poll(&look, agent->lost ? 0 : 1, TICK_MS);
        code = agent->lost ? 0 : receive(agent);
        if (reap(agent, WNOHANG) == 0 && agent->lost) {
            break; /* they found no other map, or were done */
        }
    }
    return code;
}

/* Nodes that heard that they are to end do so. */
static void end_children(struct agent *agent, bool at_once)
{
    const struct child *children;
    uint64_t until = poise_clock_ns() + END_NS;
    while (!at_once && reap(agent, WNOHANG) > 0 && poise_clock_ns() < until) {
        poise_sleep_ns(UINT64_C(2000000));
    }
    children = (const struct child *)agent->children.data;
    for (size_t i = 0; i < agent->children.len / sizeof *children; i++) {
        if (children[i].pid > 0) {
            kill(children[i].pid, SIGKILL);
        }
    }
    reap(agent, 0);
}

int flow_agent_serve(const struct poise_flow_job *job,
                     const struct poise_flow_options *options, unsigned index,
                     const struct flow_contact *call)
{
    struct agent agent = {.job = job,
                          .options = options,
                          .call = call,
                          .link = {.fd = -1, .known = true},
                          .self = {.node = FLOW_AGENTS + index,
                                   .build = flow_build(),
                                   .job = flow_job_fingerprint(job),
                                   .turn = call->turn}};
    memcpy(agent.self.secret, call->secret, sizeof call->secret);
    agent.crashes = flow_crashes_make(POISE_FLOW_NODES_MOST);
    int code =
        agent.crashes ? flow_link_greet(&agent.link, &agent.self) : -ENOMEM;
    if (code == 0) {
        code = flow_connect(&call->at, &agent.link.fd);
    }
    code = code == 0 ? serve(&agent) : code;
    if (code == 0 && !agent.stop && agent.children.len == 0) {
        char text[FLOW_ENDPOINT_TEXT];
        code = poise_error_set(ECONNRESET, "serve map at",
                               flow_endpoint_text(&call->at, text),
                               "it hung up, or cannot be reached");
    }
    end_children(&agent, code < 0 || !agent.stop);
    flow_link_close(&agent.link, NULL);
    poise_buf_free(&agent.children);
    flow_crashes_free(agent.crashes, POISE_FLOW_NODES_MOST);
    return code < 0 ? code : 1;
}

/* ---- what the map says first -------------------------------------------- */

static int read_line(int fd, char *line, size_t size)
{
    size_t got = 0;
    while (got + 1 < size && (got == 0 || line[got - 1] != '\n')) {
        ssize_t some = poise_file_read(fd, line + got, 1, "the map's line");
        if (some < 0) {
            return (int)some;
        }
        if (some == 0) {
            break;
        }
        got++;
    }
    line[got] = '\0';
    return 0;
}

static int serve_by_line(const struct poise_flow_job *job,
                         const struct poise_flow_options *options,
                         const char *line)
{
    struct flow_contact call;
    unsigned long long build;
    unsigned index;
    int used = 0;
    if (sscanf(line, FLOW_AGENT_WORDS " %16llx %u %n", &build, &index, &used) <
            2 ||
        used == 0) {
        return poise_error_set(EPROTO, "serve map", NULL,
                               "what came is no line of a map's; another "
                               "version of Poise may be there");
    }
    if (build != flow_build()) {
        return poise_error_set(EPROTO, "serve map", NULL,
                               "this host has another build of Poise than the "
                               "map's: results might differ");
    }
    if (flow_contact_parse(line + used, &call) < 0) {
        return poise_error_set(EPROTO, "serve map", NULL,
                               "its line is cut short");
    }
    return flow_agent_serve(job, options, index, &call);
}

static int serve_by_world(const struct poise_flow_job *job,
                          const struct poise_flow_options *options,
                          struct poise_world *world)
{
    char own[256] = "";
    struct poise_buf line = {0}, all = {0};
    struct flow_contact call;
    gethostname(own, sizeof own - 1);
    int code = poise_world_gather(world, 0, own, strlen(own) + 1, &all);
    int told = poise_world_broadcast(world, 0, &line);
    code = code == 0 ? told : code;
    if (code == 0 &&
        (line.len == 0 || flow_contact_parse(line.data, &call) < 0)) {
        code = poise_error_set(ECANCELED, "run job", NULL,
                               "the map on rank 0 could not begin");
    }
    poise_buf_free(&line);
    poise_buf_free(&all);
    return code < 0
               ? code
               : flow_agent_serve(job, options,
                                  (unsigned)poise_world_rank(world), &call);
}

int flow_agent_run(const struct poise_flow_job *job,
                   const struct poise_flow_options *options)
{
    const struct poise_flow_cluster *cluster = options->cluster;
    char line[256];
    if (cluster->world) {
        return serve_by_world(job, options, cluster->world);
    }
    int code = read_line(cluster->agent, line, sizeof line);
    return code < 0 ? code : serve_by_line(job, options, line);
}
