/* A node's process: what comes from others, and what goes to the map. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- from other nodes --------------------------------------------------- */

static bool head_key(const struct flow_server *server,
                     const struct flow_head *head, struct flow_key *out)
{
    const struct poise_flow_job *job = server->node->job;
    if (head->file >= job->file_count) {
        return false;
    }
    const struct poise_flow_chunk *shape = &job->files[head->file].shape;
    *out = (struct flow_key){head->file, head->version, head->place};
    return head->version >= shape->versions.from &&
           head->version < shape->versions.to &&
           head->place < flow_shape_places(shape);
}

static struct flow_made *link_made(struct flow_link *link)
{
    struct flow_made *made = link->in;
    link->in = NULL;
    return made ? made : flow_made_create(0);
}

/* A block that was asked for, or one too late. */
static int receive_block(struct flow_server *server, struct flow_link *link,
                         const struct flow_key *key)
{
    struct flow_node *node = server->node;
    struct flow_block *block = flow_block_find(node, key);
    struct flow_made *made = link_made(link);
    if (!made) {
        return -ENOMEM;
    }
    node->stats.fetched++;
    node->stats.fetched_bytes += made->len;
    if (!block) {
        free(made);
        return 0;
    }
    if (!block->made && flow_waiters(block)) {
        /* An idle processor had to wait for it. */
        bool miss = node->idle > 0 && flow_node_ready(node) == 0;
        server->tally[link->peer].misses += miss;
        server->tally[link->peer].hits += !miss;
    }
    return flow_block_write(node, key, made, NULL);
}

/* A block that is to be kept, for this node or for another one. */
static int receive_kept_block(struct flow_server *server,
                              struct flow_link *link,
                              const struct flow_key *key)
{
    struct flow_node *node = server->node;
    int64_t keep_to = (int64_t)link->head.extra - 1;
    struct flow_block *block = flow_block_get(node, key);
    struct flow_more *more = block ? flow_more_make(block) : NULL;
    struct flow_made *made = more ? link_made(link) : NULL;
    if (!made) {
        return -ENOMEM;
    }
    more->keep_to = keep_to > more->keep_to ? keep_to : more->keep_to;
    flow_block_hold(block);
    return flow_block_write(node, key, made, NULL);
}

static int receive_copy(struct flow_server *server, struct flow_link *link,
                        const struct flow_key *key)
{
    int code = receive_kept_block(server, link, key);
    if (code == 0) {
        server->owed[link->peer]++;
        server->owed_all++;
    }
    return code;
}

int flow_server_copied(struct flow_server *server)
{
    int code = 0;
    for (unsigned n = 0; code == 0 && server->owed_all > 0 && n < server->count;
         n++) {
        if (server->owed[n] > 0) {
            struct flow_item *item = flow_item_create(FLOW_COPIED, NULL, 0);
            if (item) {
                item->head.extra = server->owed[n];
            }
            server->owed_all -= server->owed[n];
            server->owed[n] = 0;
            code = flow_server_send(server, (uint16_t)n, item);
        }
    }
    return code;
}

static int receive_from_node(struct flow_server *server, struct flow_link *link)
{
    const struct flow_head *head = &link->head;
    struct flow_key key;
    if (head->kind == FLOW_COPIED) {
        server->copies_kept += head->extra;
        server->due = server->due || flow_server_line_is_complete(server);
        return 0;
    }
    if (head->kind == FLOW_HANDED) {
        return flow_server_handed(server, link->peer);
    }
    if (!head_key(server, head, &key)) {
        return poise_error_set(EPROTO, "serve node", NULL,
                               "it speaks of a block that cannot be");
    }
    switch ((enum flow_kind)head->kind) {
    case FLOW_FETCH:
        return flow_block_request(server->node, &key, link->peer);
    case FLOW_BLOCK:
        return receive_block(server, link, &key);
    case FLOW_PUT:
        return receive_kept_block(server, link, &key);
    case FLOW_COPY:
        return receive_copy(server, link, &key);
    default:
        return poise_error_set(EPROTO, "serve node", NULL,
                               "it sent a message of kind %u", head->kind);
    }
}

/* How many epochs a message is ahead of this node; negative: behind it. */
static int epochs_ahead(const struct flow_server *server,
                        const struct flow_head *head)
{
    return (int16_t)(uint16_t)(head->epoch - (uint16_t)server->epoch);
}

/* Put it off until its epoch. */
static int receive_early(struct flow_server *server, struct flow_link *link)
{
    struct flow_early *early = poise_alloc(1, sizeof *early);
    if (!early) {
        return -ENOMEM;
    }
    *early = (struct flow_early){NULL, link->head, link->peer, link->in};
    link->in = NULL;
    *server->early_end = early;
    server->early_end = &early->next;
    return 0;
}

/* A node that was declared dead may still send, and nodes may say what has been
 * forgotten since. What they computed is right; else they are not heard. */
static int receive_in_epoch(struct flow_server *server, struct flow_link *link)
{
    int ahead = epochs_ahead(server, &link->head);
    if (link->head.kind != FLOW_BLOCK &&
        (ahead < 0 || !server->alive[link->peer])) {
        return 0;
    }
    return ahead > 0 ? receive_early(server, link)
                     : receive_from_node(server, link);
}

int flow_server_early(struct flow_server *server)
{
    struct flow_early *early = server->early, *next;
    int code = 0;
    server->early = NULL;
    server->early_end = &server->early;
    for (; early; early = next) {
        struct flow_link link = {.fd = -1,
                                 .peer = early->from,
                                 .head = early->head,
                                 .in = early->in};
        next = early->next;
        code = code == 0 ? receive_in_epoch(server, &link) : code;
        free(link.in);
        free(early);
    }
    return code;
}

/* ---- from the map ------------------------------------------------------- */

int flow_server_member(struct flow_server *server, unsigned id,
                       const struct flow_endpoint *at)
{
    server->count = id >= server->count ? id + 1 : server->count;
    if (server->out[id] || server->gone[id] || id == server->node->id) {
        return 0;
    }
    struct flow_link *link = poise_alloc(1, sizeof *link);
    if (!link) {
        return -ENOMEM;
    }
    link->fd = -1;
    link->peer = (uint16_t)id;
    server->out[id] = link;
    server->at[id] = *at;
    server->alive[id] = at->port != 0;
    if (server->alive[id] && flow_server_is_near(server, (uint16_t)id)) {
        atomic_fetch_add(&server->node->near, 1);
    }
    return 0;
}

static int receive_start(struct flow_server *server, struct flow_link *link)
{
    const struct flow_member *list = link->in ? flow_made_data(link->in) : NULL;
    unsigned count = (unsigned)(link->head.len / sizeof *list);
    int code = 0;
    if (server->member[server->node->id]) {
        return 0; /* another map says so once more */
    }
    count = count < POISE_FLOW_NODES_MOST ? count : POISE_FLOW_NODES_MOST;
    for (unsigned n = 0; code == 0 && n < count; n++) {
        server->gone[n] = list[n].gone;
        server->member[n] = list[n].at.port != 0;
        if (server->member[n]) {
            code = flow_server_member(server, n, &list[n].at);
            server->alive[n] = true;
        } else if (server->gone[n]) {
            server->alive[n] = false;
        }
    }
    server->epoch = link->head.extra;
    server->node->line = server->node->base = link->head.version;
    flow_server_tree(server);
    return code == 0 ? flow_server_early(server) : code;
}

static int receive_plan(struct flow_server *server, struct flow_link *link)
{
    const struct flow_head *head = &link->head;
    uint64_t places = flow_shape_places(flow_file(server->node, head->file));
    if (flow_segment_of(server->node, head->file, head->version)) {
        return 0; /* another map says so once more */
    }
    struct flow_segment segment = {
        .file = head->file, .from = head->version, .to = (int64_t)head->extra};
    const struct flow_segment *before =
        head->place > 0 ? flow_segment_of(server->node, head->file,
                                          (int64_t)head->place - 1)
                        : NULL;
    segment.owner = poise_alloc(places, sizeof *segment.owner);
    if (!segment.owner) {
        return -ENOMEM;
    }
    if ((head->place > 0 && !before) ||
        flow_plan_decode(before ? before->owner : NULL,
                         link->in ? flow_made_data(link->in) : "", head->len,
                         places, segment.owner) < 0) {
        free(segment.owner);
        return poise_error_set(EPROTO, "serve map", NULL,
                               "its plan makes no sense");
    }
    return flow_node_segment(server->node, &segment);
}

int flow_server_state(struct flow_server *server, const struct flow_head *head)
{
    struct flow_node *node = server->node;
    int64_t line = (int64_t)(head->place - 1);
    if (head->version > node->oldest) {
        pthread_cond_broadcast(&node->work);
    }
    node->oldest = head->version;
    server->due = server->due || server->probe != head->extra;
    server->probe = head->extra;
    if (line > node->line) {
        node->line = line;
        node->next_line = node->next_line > line ? node->next_line : -1;
        flow_block_sweep(node);
    }
    return 0;
}

/* The map keeps results: this node need not any more. */
static void receive_kept(struct flow_server *server, uint64_t count)
{
    while (count-- > 0 && server->unacknowledged) {
        struct flow_block *block = server->unacknowledged;
        server->unacknowledged = block->more->next_output;
        server->unacknowledged_last =
            server->unacknowledged ? server->unacknowledged_last : NULL;
        flow_node_output_done(server->node, block);
    }
}

/* Whether a message of the map makes sense: it may come from somebody who has
 * the map's port, after the map. */
static bool map_makes_sense(const struct flow_server *server,
                            const struct flow_link *link)
{
    const struct flow_head *head = &link->head;
    const struct poise_flow_job *job = server->node->job;
    const struct poise_flow_chunk *shape;
    switch ((enum flow_kind)head->kind) {
    case FLOW_START:
        return head->len % sizeof(struct flow_member) == 0;
    case FLOW_PLAN:
        if (head->file >= job->file_count) {
            return false;
        }
        shape = &job->files[head->file].shape;
        return head->version >= shape->versions.from &&
               (int64_t)head->extra <= shape->versions.to &&
               head->version < (int64_t)head->extra;
    case FLOW_EPOCH:
        return head->place < POISE_FLOW_NODES_MOST && head->version >= -1 &&
               head->version < INT64_MAX && head->len % sizeof(uint16_t) == 0;
    case FLOW_LINE:
        return head->len == FLOW_COPIES * sizeof(uint16_t) && link->in;
    case FLOW_JOIN:
        return head->place < POISE_FLOW_NODES_MOST &&
               head->len == sizeof(struct flow_endpoint) && link->in;
    default:
        return true;
    }
}

static int receive_from_map(struct flow_server *server, struct flow_link *link)
{
    int code;
    if (!map_makes_sense(server, link)) {
        return poise_error_set(EPROTO, "serve map", NULL,
                               "what it says of nodes or blocks cannot be");
    }
    switch ((enum flow_kind)link->head.kind) {
    case FLOW_START:
        return receive_start(server, link);
    case FLOW_PLAN:
        return receive_plan(server, link);
    case FLOW_STATE:
        code = flow_server_state(server, &link->head);
        return code == 0 ? flow_server_pass_state(server, &link->head) : code;
    case FLOW_JOIN:
        return flow_server_join(server, &link->head, flow_made_data(link->in));
    case FLOW_EPOCH:
        return flow_server_epoch(server, &link->head,
                                 link->in ? flow_made_data(link->in) : NULL);
    case FLOW_LINE:
        return flow_server_line(server, &link->head, flow_made_data(link->in));
    case FLOW_RESULT_KEPT:
        receive_kept(server, link->head.place);
        return 0;
    case FLOW_STOP:
        server->ended = true;
        return 0;
    default:
        return poise_error_set(EPROTO, "serve map", NULL,
                               "it sent a message of kind %u", link->head.kind);
    }
}

int flow_server_receive(struct flow_server *server, struct flow_link *link)
{
    const struct flow_head *head = &link->head;
    if (link == &server->map) {
        return receive_from_map(server, link);
    }
    if (head->kind == FLOW_HELLO) {
        if (head->place >= POISE_FLOW_NODES_MOST || head->extra == 0) {
            flow_link_close(link, server->node);
            return 0;
        }
        link->known = true;
        link->peer = (uint16_t)head->place;
        /* A newcomer may be here before the map's word of it. */
        return flow_server_member(server, link->peer, &link->at);
    }
    if (head->kind == FLOW_REPORT) {
        return flow_server_relay_report(server, link);
    }
    if (head->kind == FLOW_STATE) {
        return flow_server_relay_state(server, link);
    }
    server->tally[link->peer].received++;
    flow_server_count(server, head);
    /* Of the link, in whatever epoch. */
    if (head->kind == FLOW_RING) {
        return flow_server_ring_offered(server, link);
    }
    if (head->kind == FLOW_KNOCK) {
        return flow_server_ring_receive(&server->net);
    }
    return receive_in_epoch(server, link);
}

/* ---- to the map --------------------------------------------------------- */

static int send_output(struct flow_server *server, struct flow_block *block)
{
    server->results++;
    return flow_server_send(server, FLOW_NOBODY,
                            flow_server_item(FLOW_OUTPUT, block));
}

int flow_server_resend_results(struct flow_server *server)
{
    int code = 0;
    server->results = 0;
    for (struct flow_block *b = server->unacknowledged; code == 0 && b;
         b = b->more->next_output) {
        code = send_output(server, b);
    }
    return code;
}

static int report_outputs(struct flow_server *server)
{
    struct flow_block *block;
    int code = 0;
    while (code == 0 && (block = flow_node_output(server->node))) {
        if (server->node->options->log) {
            block->more->next_output = NULL;
            if (server->unacknowledged_last) {
                server->unacknowledged_last->more->next_output = block;
            } else {
                server->unacknowledged = block;
            }
            server->unacknowledged_last = block;
        }
        code = send_output(server, block);
    }
    return code;
}

static int report_failure(struct flow_server *server)
{
    struct flow_failure *failure = &server->node->failure;
    struct poise_buf words = {0};
    poise_buf_append(&words, poise_buf_str(&failure->doing),
                     failure->doing.len + 1);
    poise_buf_append(&words, poise_buf_str(&failure->what),
                     failure->what.len + 1);
    poise_buf_append(&words, poise_buf_str(&failure->why),
                     failure->why.len + 1);
    struct flow_item *item =
        flow_item_create(FLOW_FAIL, words.data, words.error ? 0 : words.len);
    poise_buf_free(&words);
    if (item) {
        item->head.extra = (uint64_t)-failure->code;
        server->failed = true;
    }
    return flow_server_send(server, FLOW_NOBODY, item);
}

/* What copies cost of the time of this thread, which sends and receives all. */
static uint64_t copies_ns(const struct flow_server *server)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    double ns = (double)used.tv_sec * 1e9 + (double)used.tv_nsec;
    return server->said > 0 ? (uint64_t)(ns * (double)server->said_of_copies /
                                         (double)server->said)
                            : 0;
}

static void fill_report(struct flow_server *server, struct flow_report *out)
{
    struct flow_node *node = server->node;
    flow_node_count(node);
    *out = (struct flow_report){
        .turn = server->report_turn + 1,
        .map = server->self.turn,
        .results = server->results,
        .oldest = flow_node_oldest(node),
        .done = !node->inherits && flow_node_is_done(node),
        .epoch = server->epoch,
        .probe = server->probe,
        .line = flow_server_line_is_complete(server) ? node->next_line : -1,
        .missed = node->missed,
        .forgot = node->forgot,
        .known_line = node->line,
        .copy_ns = copies_ns(server),
        .stats = node->stats};
    for (uint32_t f = 0; f < node->job->file_count; f++) {
        server->files[f].low = flow_file_low(node, f);
    }
    out->stuck = flow_node_is_stuck(node, &out->waits);
}

int flow_server_report(struct flow_server *server)
{
    struct flow_node *node = server->node;
    struct poise_buf text = {0};
    struct flow_report report;
    server->reported_ns = poise_clock_ns();
    if (node->failure.code < 0) {
        return server->failed ? 0 : report_failure(server);
    }
    server->due = server->rested = false;
    int code = report_outputs(server);
    code = code == 0 ? flow_watch_long(server) : code;
    if (code < 0) {
        return code;
    }
    fill_report(server, &report);
    for (unsigned n = 0; n < server->count; n++) {
        report.messages += server->tally[n].sent + server->tally[n].received;
    }
    poise_buf_append(&text, &report, sizeof report);
    poise_buf_append(&text, server->files,
                     node->job->file_count * sizeof *server->files);
    for (unsigned n = 0; n < server->count; n++) {
        struct flow_tally_of of = {n, server->tally[n]};
        if (memcmp(&server->told[n], &of.tally, sizeof of.tally) != 0) {
            server->told[n] = of.tally;
            poise_buf_append(&text, &of, sizeof of);
        }
    }
    code = flow_server_say(server, &text);
    poise_buf_free(&text);
    return code;
}
