/*
 * The map: starts the nodes, assigns chunks, collects reports and results,
 * notices dead nodes. It runs in the thread that called poise_flow_run.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVENTS_MOST 256
#define TICK_MS 20
#define LOST_NS UINT64_C(5000000000)
/** The map sends to nodes at least so often. */
#define BEAT_NS UINT64_C(100000000)
/** The last node may be silent so many times as long. */
#define LAST_TIMEOUTS 20
_Static_assert(FLOW_STRANGER_NS > LAST_TIMEOUTS * LOST_NS,
               "the map hangs up on a node for which it waits");

/* ---- sending ------------------------------------------------------------ */

int map_send(struct flow_link *link, enum flow_kind kind,
             const struct flow_head *head, const void *data, size_t len)
{
    struct flow_item *item = flow_item_create(kind, data, len);
    if (!item) {
        return -ENOMEM;
    }
    item->head = *head;
    item->head.kind = kind;
    item->head.len = len;
    item->head.digest = 0;
    flow_queue_add(&link->sending, item);
    return 0;
}

int map_broadcast(struct map *map, enum flow_kind kind,
                  const struct flow_head *head, const void *data, size_t len)
{
    bool kept = kind == FLOW_START || kind == FLOW_PLAN || kind == FLOW_EPOCH ||
                kind == FLOW_JOIN;
    map->probing = map->probing && !kept;
    int logged = kept ? map_log_add(map, kind, head, data, len) : 0;
    if (logged < 0) {
        return logged;
    }
    for (unsigned n = 0; n < map->count; n++) {
        struct flow_link *link = map->nodes[n].link;
        if (!map->nodes[n].alive || !link || link->fd < 0) {
            continue;
        }
        int code = map_send(link, kind, head, data, len);
        if (code < 0) {
            return code;
        }
    }
    return 0;
}

static int fail(struct map *map, int code)
{
    return flow_failure_keep(&map->failure, code);
}

uint64_t map_lost_ns(const struct map *map)
{
    return map->options->lost_ns ? map->options->lost_ns : LOST_NS;
}

static int begin_anew(struct map *map);

/* ---- dead nodes -----------------------------------------------------------
 */

int map_inherit(struct map *map, unsigned dead)
{
    bool *alive = poise_alloc(map->count, sizeof *alive);
    if (!alive) {
        return -ENOMEM;
    }
    for (unsigned n = 0; n < map->count; n++) {
        alive[n] = map->nodes[n].alive;
        map->nodes[n].report.done = 0;
    }
    for (uint32_t f = 0; f < map->job->file_count; f++) {
        for (unsigned p = 0; p < map->files[f].plan_count; p++) {
            flow_partition_inherit(map->files[f].plans[p].owner,
                                   flow_shape_places(&map->job->files[f].shape),
                                   dead, alive, map->count);
        }
    }
    free(alive);
    return 0;
}

int map_declare_dead(struct map *map, struct map_node *node, const char *why)
{
    unsigned id = (unsigned)(node - map->nodes), left = 0;
    if (!node->alive || map->done) {
        return 0;
    }
    for (unsigned n = 0; n < map->count; n++) {
        left += n != id && map->nodes[n].alive;
    }
    if (map->inherited && left == 0) {
        return begin_anew(map); /* all that the dead map left is gone */
    }
    node->alive = false;
    if (left == 0) {
        return poise_error_set(EPIPE, "run job", NULL,
                               "node %u %s, and no other is left", id, why);
    }
    if (!map->started) {
        node->early = true; /* declared dead when the others have begun */
        return 0;
    }
    map->line = map_line_left(map);
    map->next_line = -1;
    struct poise_buf keepers = {0};
    if (map_line_keepers(map, &keepers) < 0) {
        poise_buf_free(&keepers);
        return -ENOMEM;
    }
    node->alive = true; /* it hears of it too, should it live */
    struct flow_head head = {
        .place = id, .version = map->line, .extra = ++map->epoch};
    map->deaths++;
    int code = map_broadcast(map, FLOW_EPOCH, &head, keepers.data, keepers.len);
    poise_buf_free(&keepers);
    node->alive = false;
    code = code == 0 ? map_inherit(map, id) : code;
    if (code < 0) {
        return code;
    }
    if (map->spares > 0) {
        map->spares--;
        return map_grow(map);
    }
    return 0;
}

void map_forget(struct map *map)
{
    for (uint32_t f = 0; f < map->job->file_count; f++) {
        struct map_file *file = &map->files[f];
        for (unsigned p = 0; p < file->plan_count; p++) {
            free(file->plans[p].owner);
        }
        file->plan_count = 0;
    }
    for (unsigned n = 0; n < map->cap; n++) {
        map->nodes[n].alive = map->nodes[n].joined = false;
        map->nodes[n].early = false;
        map->nodes[n].logged = 0;
        map->nodes[n].of_log = false;
        map->nodes[n].at = (struct flow_endpoint){.port = 0};
    }
    map->count = map->options->nodes;
    map->line = map->next_line = map->sent_line = -1;
    map->epoch = 0;
    map->started = map->took_over = map->inherited = map->grown = false;
}

/* What there is of nodes ends here: their messages would be taken for those of
 * the nodes that get their numbers. */
static void drop_nodes(struct map *map)
{
    uint32_t files = map->job->file_count;
    map_hosts_close(map);
    map_reap(map);
    for (struct flow_link *link = map->links; link; link = link->next) {
        flow_link_close(link, NULL);
    }
    for (unsigned n = 0; n < map->cap; n++) {
        struct map_node *node = &map->nodes[n];
        node->link = NULL;
        node->gone = false;
        node->heard_ns = 0;
        node->silent_from = node->told_from = map->awake.ns;
        node->report = (struct flow_report){0};
        node->mark_ns = node->copied_ns = 0;
        node->speed = 0;
        node->leaves = node->lost = node->asks = false;
        node->results = node->messages = 0;
        memset(node->files, 0, files * sizeof *node->files);
        node->tally_count = 0;
        memset(node->rate, 0, files * sizeof *node->rate);
    }
    memset(map->tally, 0, map->cap * sizeof *map->tally);
    map->oldest = -1;
}

/* None of the nodes of a map that died came back, or all that did died. */
static int begin_anew(struct map *map)
{
    drop_nodes(map);
    map_forget(map);
    map->began_ns = poise_clock_ns();
    /* By it a node knows its map, and not one that died. */
    int code = flow_secret_draw(map->self.secret);
    code = code == 0 ? map_log_begin(map) : code;
    for (unsigned n = 0; code == 0 && n < map->count; n++) {
        code = map_spawn(map, n);
    }
    return code;
}

static unsigned alive_count(const struct map *map)
{
    unsigned alive = 0;
    for (unsigned n = 0; n < map->count; n++) {
        alive += map->nodes[n].alive;
    }
    return alive;
}

/* For how long a node was silent while the map listened, of the time that it
 * may be. One may not have come, or not have come back, at all. */
static uint64_t silence_of(const struct map *map, struct map_node *node,
                           uint64_t lost)
{
    if (node->link && node->heard_ns != node->link->heard_ns) {
        node->heard_ns = node->link->heard_ns;
        node->silent_from = map->awake.ns;
    }
    uint64_t itself = map->awake.ns - node->silent_from;
    uint64_t told = map->awake.ns - node->told_from;
    return told < itself && itself <= FLOW_ITSELF_TIMEOUTS * lost ? told
                                                                  : itself;
}

/* No node of the map before this one came back yet. */
static int look_for_any(struct map *map)
{
    bool left = false;
    for (unsigned n = 0; n < map->count; n++) {
        left |= map->nodes[n].alive && !map_has_ended(&map->nodes[n]);
    }
    return left && map->awake.ns <= map_lost_ns(map) ? 0 : begin_anew(map);
}

static int look_for_lost(struct map *map)
{
    int code = 0;
    flow_awake_look(&map->awake, map_lost_ns(map) / FLOW_AWAKE_LOOKS);
    if (map->took_over) {
        return look_for_any(map);
    }
    unsigned alive = alive_count(map);
    for (unsigned n = 0; code == 0 && n < map->count; n++) {
        struct map_node *node = &map->nodes[n];
        uint64_t lost = map_lost_ns(map);
        uint64_t silence = silence_of(map, node, lost);
        if (alive <= 1 || !map->started) {
            lost *= LAST_TIMEOUTS; /* no other could take over */
        }
        if (node->alive && !node->link && map_has_ended(node)) {
            code = map_declare_dead(map, node, "died");
            alive--;
        } else if (node->alive && silence > lost) {
            if (alive > 1) {
                map_lost_told(map, n);
            }
            code = map_declare_dead(map, node, "was silent for too long");
            map_host_silent(map, node);
            alive--;
        }
    }
    return code;
}

/* ---- what follows ------------------------------------------------------- */

static bool all_came(const struct map *map)
{
    bool came = true;
    for (unsigned n = 0; n < map->count; n++) {
        came &= !map->nodes[n].alive || map->nodes[n].at.port != 0;
    }
    return came;
}

/* What died before it began is a member that dies at once. */
static int bury_early(struct map *map)
{
    int code = 0;
    for (unsigned n = 0; code == 0 && n < map->count; n++) {
        struct map_node *node = &map->nodes[n];
        if (node->early) {
            node->early = false;
            node->alive = true;
            code = map_declare_dead(map, node, "died");
        }
    }
    return code;
}

static int start(struct map *map)
{
    struct flow_head head = {.version = map->line};
    struct flow_member *list = map_members(map);
    if (!list) {
        return -ENOMEM;
    }
    map->started = true;
    map->started_ns = map->line_ns = poise_clock_ns();
    map->passive_from = map->awake.ns;
    for (unsigned n = 0; n < map->count; n++) {
        if (map->nodes[n].link) {
            map->nodes[n].link->heard_ns = map->started_ns;
        }
        map->nodes[n].joined = true;
    }
    int code =
        map_broadcast(map, FLOW_START, &head, list, map->count * sizeof *list);
    free(list);
    code = code == 0 ? map_begin(map) : code;
    return code == 0 ? bury_early(map) : code;
}

/* To those who pass it on, and to such as talked to the map; a new probe to
 * all, for what was said before it has to come before it. */
static int say_state(struct map *map, const struct flow_head *head)
{
    bool all = map->probe != map->sent_probe;
    uint64_t position = 0;
    int code = 0;
    for (unsigned n = 0; code == 0 && n < map->count; n++) {
        struct map_node *node = &map->nodes[n];
        if (!node->alive) {
            continue;
        }
        bool first = flow_tree_parent(position++) < 0;
        if ((first || node->asks || all) && node->link && node->link->fd >= 0) {
            node->asks = false;
            code = map_send(node->link, FLOW_STATE, head, NULL, 0);
        }
    }
    return code;
}

/* The oldest version that can go on, and the newest line that is complete. */
static int send_state(struct map *map)
{
    int64_t oldest = INT64_MAX;
    for (unsigned n = 0; n < map->count; n++) {
        const struct flow_report *r = &map->nodes[n].report;
        int64_t own = r->epoch == map->epoch ? r->oldest : map->line + 1;
        oldest = map->nodes[n].alive && own < oldest ? own : oldest;
    }
    uint64_t now = poise_clock_ns(), least = map->count * FLOW_SHARE_NS;
    uint64_t beat = least > BEAT_NS ? least : BEAT_NS;
    if (now - map->sent_ns < least) {
        return 0;
    }
    if (map->line == map->sent_line && map->probe == map->sent_probe &&
        (oldest == map->oldest || map->options->memory_bytes == 0) &&
        now - map->sent_ns < beat) {
        return 0;
    }
    struct flow_head head = {.file = (uint32_t)map->self.turn,
                             .version = oldest,
                             .place = (uint64_t)(map->line + 1),
                             .extra = map->probe};
    int code = say_state(map, &head);
    map->sent_ns = now;
    map->sent_line = map->line;
    map->oldest = oldest;
    map->sent_probe = map->probe;
    return code;
}

static int follow_up(struct map *map)
{
    int code = look_for_lost(map);
    if (code == 0 && !map->started) {
        return all_came(map) ? start(map) : 0;
    }
    if (code == 0) {
        code = map_mark(map);
    }
    if (code == 0) {
        code = map_grow_by_plan(map);
    }
    if (code == 0) {
        code = map_adapt(map);
    }
    if (code == 0) {
        code = map_line(map);
    }
    if (code == 0) {
        code = send_state(map);
    }
    return code == 0 ? map_detect_termination(map) : code;
}

/* ---- the loop ----------------------------------------------------------- */

static int accept_all(struct map *map)
{
    int code = 1;
    for (int i = 0; code > 0 && i < FLOW_ACCEPTS_MOST; i++) {
        code = flow_link_accept(map->listener, &map->links,
                                map->cap + FLOW_STRANGERS_MOST);
        struct epoll_event event = {EPOLLIN, {.ptr = map->links}};
        if (code > 0 &&
            epoll_ctl(map->poll, EPOLL_CTL_ADD, map->links->fd, &event) < 0) {
            return poise_error_set(errno, "watch node", NULL, NULL);
        }
    }
    return code < 0 ? code : 0;
}

/* Its process may have ended; that is heard later. */
static int hung_up(struct map *map, unsigned id, int how)
{
    int code = map_crashed(map, id, &map->crashes[id]);
    return code < 0
               ? code
               : map_declare_dead(
                     map, &map->nodes[id],
                     how == -EBADMSG ? "sent bytes that were damaged on the way"
                                     : "hung up");
}

static int read_link(struct map *map, struct flow_link *link)
{
    int code = 1;
    for (int i = 0;
         (i < EVENTS_MOST || flow_link_has(link)) && code > 0 && link->fd >= 0;
         i++) {
        link->enough = i >= EVENTS_MOST;
        code = flow_link_receive(link, &map->self);
        if (code == -ENOMEM) {
            return code;
        }
        if (code < 0) {
            bool known = link->known;
            flow_link_close(link, NULL);
            if (link->agent > 0) {
                return map_host_lost(map, link);
            }
            return known ? hung_up(map, link->peer, code) : 0;
        }
        if (code > 0) {
            code = map_receive(map, link);
            free(link->in);
            link->in = NULL;
            if (code < 0) {
                return code;
            }
            code = !link->drained || flow_link_has(link);
        }
    }
    return 0;
}

static int serve_event(struct map *map, void *source)
{
    if (source == &map->listener) {
        return accept_all(map);
    }
    struct map_node *node = source;
    if (node >= map->nodes && node < map->nodes + map->cap) {
        if (node->pid == 0 || !map_has_ended(node)) {
            return 0; /* it was of one that had this number before */
        }
        epoll_ctl(map->poll, EPOLL_CTL_DEL, node->pidfd, NULL);
        unsigned id = (unsigned)(node - map->nodes);
        int status = 0;
        waitpid(node->pid, &status, 0);
        node->pid = 0;
        flow_crash_note(&map->crashes[id], status);
        int code = map_crashed(map, id, &map->crashes[id]);
        return code < 0 ? code : map_declare_dead(map, node, "died");
    }
    struct map_host *host = source;
    if (map->hosts && host >= map->hosts &&
        host < map->hosts + map->host_count) {
        return map_host_ended(map, host);
    }
    struct flow_link *link = source;
    return link->fd >= 0 ? read_link(map, link) : 0;
}

void map_flush(struct map *map)
{
    for (struct flow_link *link = map->links; link; link = link->next) {
        struct flow_queue sent = {0};
        if (link->fd < 0 || !link->sending.first) {
            continue;
        }
        int state = flow_link_send(link, &sent);
        flow_queue_clear(&sent, NULL);
        struct epoll_event event = {EPOLLIN | (state == 0 ? EPOLLOUT : 0),
                                    {.ptr = link}};
        if (state >= 0 && link->polled_out != (state == 0)) {
            epoll_ctl(map->poll, EPOLL_CTL_MOD, link->fd, &event);
            link->polled_out = state == 0;
        }
    }
}

static int serve(struct map *map)
{
    struct epoll_event events[EVENTS_MOST];
    int code = 0;
    while (code == 0 && !map->done) {
        int count = epoll_wait(map->poll, events, EVENTS_MOST, TICK_MS);
        for (int i = 0; code == 0 && i < count; i++) {
            code = serve_event(map, events[i].data.ptr);
        }
        flow_links_tidy(&map->links);
        if (code == 0) {
            code = follow_up(map);
        }
        code = code == 0 ? map_tell(map, map->done) : code;
        code = code == 0 ? map_log_hold(map) : code;
        if (code != -ESTALE) {
            map_flush(map);
        }
    }
    return code;
}

static void map_free(struct map *map)
{
    map_hosts_close(map);
    map_reap(map);
    while (map->links) {
        struct flow_link *next = map->links->next;
        flow_link_close(map->links, NULL);
        free(map->links);
        map->links = next;
    }
    for (unsigned n = 0; map->nodes && n < map->cap; n++) {
        free(map->nodes[n].files);
        free(map->nodes[n].tallies);
        free(map->nodes[n].rate);
    }
    for (uint32_t f = 0; map->files && f < map->job->file_count; f++) {
        const struct poise_flow_range *versions =
            &map->job->files[f].shape.versions;
        for (int64_t v = 0;
             map->files[f].had && v < versions->to - versions->from; v++) {
            free(map->files[f].had[v]);
        }
        free(map->files[f].had);
        for (unsigned p = 0; p < map->files[f].plan_count; p++) {
            free(map->files[f].plans[p].owner);
        }
        free(map->files[f].plans);
    }
    poise_buf_free(&map->marks);
    free(map->files);
    free(map->nodes);
    free(map->tally);
    free(map->watched);
    flow_crashes_free(map->crashes, map->cap);
    map_election_close(map->election);
    poise_buf_free(&map->log_path);
    free(map->hosts);
    free(map->borders);
    poise_buf_free(&map->names);
    flow_failure_free(&map->failure);
    if (map->poll >= 0) {
        close(map->poll);
    }
    if (map->log >= 0) {
        close(map->log);
    }
    if (map->listener >= 0) {
        close(map->listener);
    }
}

/* Descriptors: as many as there may be links and processes, if that is allowed
 * (else what lacks one says so). Nodes have those limits, too. */
static void limit_raise(unsigned wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < wanted) {
        limit.rlim_cur =
            wanted < limit.rlim_max ? (rlim_t)wanted : limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int map_make(struct map *map)
{
    const struct poise_flow_options *options = map->options;
    unsigned count = options->nodes + options->spares + options->join;
    /* Each node of a host that was silent may come back, once. */
    count += options->cluster ? options->nodes : 0;
    count = count < POISE_FLOW_NODES_MOST ? count : POISE_FLOW_NODES_MOST;
    size_t files = map->job->file_count;
    map->cap = count;
    map->count = options->nodes;
    map->spares = options->spares;
    map->nodes = poise_alloc(count, sizeof *map->nodes);
    map->files = poise_alloc(files, sizeof *map->files);
    map->tally = poise_alloc(count, sizeof *map->tally);
    map->crashes = flow_crashes_make(count);
    if (!map->nodes || !map->files || !map->tally || !map->crashes) {
        free(map->nodes);
        map->nodes = NULL;
        return -ENOMEM;
    }
    for (unsigned n = 0; n < count; n++) {
        map->nodes[n].pidfd = -1;
    }
    for (unsigned n = 0; n < count; n++) {
        struct map_node *node = &map->nodes[n];
        node->files = poise_alloc(files, sizeof *node->files);
        node->rate = poise_alloc(files, sizeof *node->rate);
        if (!node->files || !node->rate) {
            return -ENOMEM;
        }
    }
    for (size_t f = 0; f < files; f++) {
        const struct poise_flow_range *versions =
            &map->job->files[f].shape.versions;
        map->files[f].had = poise_alloc((size_t)(versions->to - versions->from),
                                        sizeof(uint8_t *));
        if (!map->files[f].had) {
            return -ENOMEM;
        }
    }
    limit_raise(3 * count + FLOW_STRANGERS_MOST);
    map->poll = epoll_create1(EPOLL_CLOEXEC);
    if (map->poll < 0) {
        return poise_error_set(errno, "start map", NULL, NULL);
    }
    map->self.build = flow_build();
    map->self.job = flow_job_fingerprint(map->job);
    map->self.node = FLOW_NOBODY;
    int code = flow_secret_draw(map->self.secret);
    return code == 0 ? map_hosts_open(map) : code;
}

/* The plans are the caller's from here on. */
static int fill_plans(struct map *map, struct poise_flow_stats *stats)
{
    size_t count = 0;
    for (uint32_t f = 0; f < map->job->file_count; f++) {
        count += map->files[f].plan_count;
    }
    stats->plans = poise_alloc(count, sizeof *stats->plans);
    if (!stats->plans) {
        return -ENOMEM;
    }
    for (uint32_t f = 0; f < map->job->file_count; f++) {
        for (unsigned p = 0; p < map->files[f].plan_count; p++) {
            const struct map_plan *plan = &map->files[f].plans[p];
            stats->plans[stats->plan_count++] =
                (struct poise_flow_plan){f, plan->from, plan->to, plan->owner};
        }
        map->files[f].plan_count = 0;
    }
    return 0;
}

static int fill_stats(struct map *map, struct poise_flow_stats *stats)
{
    size_t marks = map->marks.len / sizeof *stats->marks;
    stats->nodes = poise_alloc(map->count, sizeof *stats->nodes);
    stats->marks = poise_alloc(marks + 1, sizeof *stats->marks);
    if (!stats->nodes || !stats->marks) {
        return -ENOMEM;
    }
    memcpy(stats->marks, map->marks.data ? map->marks.data : "",
           map->marks.len);
    stats->mark_count = marks;
    stats->node_count = map->count;
    stats->rechunkings = map->rechunkings;
    stats->deaths = map->deaths;
    stats->joins = map->joins;
    stats->lines = map->lines;
    stats->plan_bytes = map->plan_bytes;
    stats->report_bytes = map->report_bytes;
    stats->reports = map->reports;
    stats->start_ns = map->started_ns - map->began_ns;
    for (unsigned n = 0; n < map->count; n++) {
        stats->nodes[n] = map->nodes[n].report.stats;
    }
    for (unsigned k = 0; k < map->count; k++) {
        const struct map_node *node = &map->nodes[k];
        for (unsigned i = 0; i < node->tally_count; i++) {
            const struct flow_tally_of *of = &node->tallies[i];
            stats->nodes[of->peer].hits += of->tally.hits;
            stats->nodes[of->peer].misses += of->tally.misses;
        }
    }
    return fill_plans(map, stats);
}

int flow_map_run(const struct poise_flow_job *job,
                 const struct poise_flow_options *options,
                 struct poise_flow_stats *stats)
{
    struct map map = {.job = job,
                      .options = options,
                      .log = -1,
                      .poll = -1,
                      .listener = -1,
                      .began_ns = poise_clock_ns(),
                      .oldest = -1,
                      .line = -1,
                      .sent_line = -1,
                      .next_line = -1};
    int code = map_hosts_gather(&map);
    code = code == 0 ? map_make(&map) : code;
    if (code == 0) {
        code = map_log_open(&map);
    }
    code = map_hosts_tell(&map, code);
    for (unsigned n = 0; code == 0 && !map.took_over && n < map.count; n++) {
        code = map_spawn(&map, n);
    }
    if (code == 0) {
        code = serve(&map);
        int ended = code == -ESTALE ? 0 : map_log_end(&map);
        code = code == 0 ? ended : code;
    }
    if (code == 0) {
        code = fill_stats(&map, stats);
    }
    if (code == -ESTALE) {
        map_leave(&map);
    }
    if (code < 0) {
        fail(&map, code);
        map_election_close(map.election);
        map.election = NULL;
        map_reap(&map);
        code = flow_failure_set(&map.failure);
    }
    map_free(&map);
    return code;
}
