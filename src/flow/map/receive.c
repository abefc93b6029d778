/* What nodes send to the map: who they are, how they are doing, results. */
#include "internal.h"

#include <errno.h>
#include <string.h>

#define ERRNO_MOST 4095
/** Over so long, at least, the speed of a node is measured: several reports. */
#define SPEED_NS UINT64_C(20000000)

int map_output(struct map *map, const struct flow_head *head, const void *data)
{
    const struct poise_flow_options *options = map->options;
    if (head->file >= map->job->file_count) {
        return poise_error_set(EPROTO, "accept result", NULL, "of no file");
    }
    const struct poise_flow_chunk *shape = &map->job->files[head->file].shape;
    uint64_t places = flow_shape_places(shape);
    if (head->version < shape->versions.from ||
        head->version >= shape->versions.to || head->place >= places) {
        return poise_error_set(EPROTO, "accept result", NULL, "of no block");
    }
    uint8_t **had =
        &map->files[head->file].had[head->version - shape->versions.from];
    if (!*had) {
        *had = poise_alloc((places + 7) / 8, 1);
    }
    if (!*had) {
        return -ENOMEM;
    }
    if ((*had)[head->place / 8] >> head->place % 8 & 1) {
        return 0;
    }
    (*had)[head->place / 8] |= (uint8_t)(1 << head->place % 8);
    int code = map_log_add(map, FLOW_OUTPUT, head, data, head->len);
    if (code < 0 || !options->output) {
        return code;
    }
    struct flow_key key = {head->file, head->version, head->place};
    struct poise_flow_address address;
    flow_shape_address(shape, &key, &address);
    poise_error_clear();
    code = options->output(&address, data, head->len, options->output_arg);
    return code < 0
               ? flow_callback_error(map->job, code, "hand out block", &address)
               : 0;
}

static int receive_output(struct map *map, struct flow_link *link)
{
    const struct flow_head kept = {.place = 1};
    int code =
        map_output(map, &link->head, link->in ? flow_made_data(link->in) : "");
    map->nodes[link->peer].results++;
    return code < 0 || map->log < 0
               ? code
               : map_send(link, FLOW_RESULT_KEPT, &kept, NULL, 0);
}

static int receive_failure(struct map *map, struct flow_link *link)
{
    const char *text[3] = {"run job", "", ""};
    const char *data = link->in ? flow_made_data(link->in) : "";
    size_t at = 0, len = link->in ? link->head.len : 0;
    (void)map;
    for (int i = 0; i < 3 && at < len; i++) {
        text[i] = data + at;
        at += strnlen(data + at, len - at) + 1;
    }
    if (len == 0 || data[len - 1] != '\0') {
        text[0] = "run job";
        text[1] = text[2] = "";
    }
    if (link->head.extra == 0 || link->head.extra > ERRNO_MOST) {
        return poise_error_set(EPROTO, text[0], text[1], "%s", text[2]);
    }
    return poise_error_set((int)link->head.extra, text[0], text[1], "%s",
                           text[2]);
}

int map_mark(struct map *map)
{
    const struct poise_flow_mark *marks = (const void *)map->marks.data;
    size_t count = map->marks.len / sizeof *marks;
    int64_t low = INT64_MAX, end = 0;
    for (uint32_t f = 0; f < map->job->file_count; f++) {
        int64_t to = map->job->files[f].shape.versions.to;
        end = to > end ? to : end;
        for (unsigned n = 0; n < map->count; n++) {
            const struct map_node *node = &map->nodes[n];
            if (node->alive && node->files[f].low < low) {
                low = node->files[f].low;
            }
        }
    }
    struct poise_flow_mark now = {poise_clock_ns() - map->started_ns,
                                  low < end ? low : end};
    if (!map->started ||
        now.version <= map->job->files[0].shape.versions.from ||
        (count > 0 && now.version <= marks[count - 1].version)) {
        return 0;
    }
    return poise_buf_append(&map->marks, &now, sizeof now);
}

/* Also how fast it is: between reports that are not too close, for two of them
 * may have waited together. */
static void report_take(struct map_node *node, const char *data)
{
    uint64_t now = poise_clock_ns(), epoch = node->report.epoch;
    memcpy(&node->report, data, sizeof node->report);
    int64_t at = node->report.forgot;
    node->reported_ns = now;
    if (node->report.epoch == epoch && node->mark_ns > 0 && at >= node->mark &&
        now - node->mark_ns < SPEED_NS) {
        return;
    }
    if (node->report.epoch == epoch && node->mark_ns > 0 && at > node->mark) {
        node->speed = (double)(at - node->mark) / (double)(now - node->mark_ns);
    }
    node->mark = at;
    node->mark_ns = now;
}

/* Where a peer is, or would be. */
static unsigned tally_at(const struct map_node *node, unsigned peer)
{
    unsigned low = 0, high = node->tally_count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (node->tallies[middle].peer < peer) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct flow_tally map_tally_of(const struct map_node *node, unsigned peer)
{
    unsigned at = tally_at(node, peer);
    return at < node->tally_count && node->tallies[at].peer == peer
               ? node->tallies[at].tally
               : (struct flow_tally){0};
}

struct flow_tally *map_tally_make(struct map_node *node, unsigned peer)
{
    unsigned at = tally_at(node, peer);
    if (at < node->tally_count && node->tallies[at].peer == peer) {
        return &node->tallies[at].tally;
    }
    if (node->tally_count == node->tally_cap) {
        unsigned cap = node->tally_cap ? 2 * node->tally_cap : 8;
        struct flow_tally_of *list =
            poise_realloc(node->tallies, cap, sizeof *list);
        if (!list) {
            return NULL;
        }
        node->tallies = list;
        node->tally_cap = cap;
    }
    memmove(&node->tallies[at + 1], &node->tallies[at],
            (node->tally_count - at) * sizeof *node->tallies);
    node->tallies[at] = (struct flow_tally_of){.peer = peer};
    node->tally_count++;
    return &node->tallies[at].tally;
}

bool map_has_results(const struct map_node *node)
{
    return node->results >= node->report.results;
}

/* What the map knows is of that report or of older ones, and counts only grow:
 * so none is behind if their sum is not. */
bool map_has_tallies(const struct map_node *node)
{
    return node->messages == node->report.messages;
}

static int bad_report(const char *why)
{
    return poise_error_set(EPROTO, "read report", NULL, "%s", why);
}

/* What a node counted of others. Two reports may have gone different ways: so
 * what is greater is newer. */
static int take_tallies(struct map *map, struct map_node *node,
                        const char *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct flow_tally_of of;
        memcpy(&of, data + i * sizeof of, sizeof of);
        if (of.peer >= map->count) {
            return bad_report("it counts messages of no node");
        }
        struct flow_tally *known = map_tally_make(node, (unsigned)of.peer);
        if (!known) {
            return -ENOMEM;
        }
        const struct flow_tally before = *known, *now = &of.tally;
        known->hits = now->hits > before.hits ? now->hits : before.hits;
        known->misses =
            now->misses > before.misses ? now->misses : before.misses;
        known->sent = now->sent > before.sent ? now->sent : before.sent;
        known->received =
            now->received > before.received ? now->received : before.received;
        map->tally[of.peer].hits += known->hits - before.hits;
        map->tally[of.peer].misses += known->misses - before.misses;
        node->messages += known->sent - before.sent;
        node->messages += known->received - before.received;
    }
    return 0;
}

static int take_entry(struct map *map, uint64_t id,
                      const struct poise_buf *words)
{
    struct flow_report report;
    size_t files = map->job->file_count * sizeof(struct flow_file_report);
    size_t fixed = sizeof report + files;
    if (id >= map->count) {
        return bad_report("it is of no node");
    }
    struct map_node *node = &map->nodes[id];
    if (words->len < fixed) {
        return bad_report("it is too short");
    }
    memcpy(&report, words->data, sizeof report);
    if (!node->alive || report.map != map->self.turn) {
        return 0; /* it was under way when that changed */
    }
    if (report.waits.file != UINT32_MAX &&
        (report.waits.file >= map->job->file_count ||
         !flow_shape_holds(&map->job->files[report.waits.file].shape,
                           &report.waits))) {
        return bad_report("it waits for a block that cannot be");
    }
    if (report.turn > node->report.turn) {
        report_take(node, words->data);
        memcpy(node->files, words->data + sizeof report, files);
    }
    return take_tallies(map, node, words->data + fixed,
                        (words->len - fixed) / sizeof(struct flow_tally_of));
}

/* Of the node at the other end, and of those that it talks for. */
static int receive_report(struct map *map, struct flow_link *link)
{
    const char *at = link->in ? flow_made_data(link->in) : "";
    const char *end = at + (link->in ? link->head.len : 0);
    struct poise_buf words = {0};
    uint64_t id = 0;
    int code = 0, more;
    map->reports++;
    map->report_bytes += sizeof link->head + link->head.len;
    map->nodes[link->peer].asks = true;
    while (code == 0 && (more = flow_entry_get(&at, end, &id, &words)) != 0) {
        code = more == -ENOMEM ? more
               : more < 0      ? bad_report("it is cut short")
                               : take_entry(map, id, &words);
        if (code == 0) {
            map->nodes[id].told_from = map->awake.ns;
        }
    }
    poise_buf_free(&words);
    return code;
}

/* A node of the map before this one. If it was declared dead it will hear so.
 * That map may have died before the node could begin: all that it missed is in
 * the log, unless it came later than the others. */
static int readmit(struct map *map, struct map_node *node, bool began)
{
    if (!began && node->link->peer >= map->options->nodes) {
        return map_declare_dead(map, node, "had not begun");
    }
    map->took_over = map->took_over && !node->alive;
    node->pid = node->logged;
    if (node->pid > 0 && map_watch(map, node) < 0) {
        node->pid = 0;
        return map_declare_dead(map, node, "died");
    }
    int code = map_log_resend(map, node->link);
    return code == 0 && node->lost ? map_host_heard(map, node) : code;
}

static int receive_hello(struct map *map, struct flow_link *link)
{
    const struct flow_head *head = &link->head;
    if (head->place >= FLOW_AGENTS) {
        return map_host_came(map, link);
    }
    if (head->place >= map->count || map->nodes[head->place].link) {
        flow_link_close(link, NULL); /* one too many */
        return 0;
    }
    link->known = true;
    link->peer = (uint16_t)head->place;
    map->nodes[link->peer].link = link;
    struct map_node *node = &map->nodes[link->peer];
    node->at = link->at;
    if (node->of_log) {
        return readmit(map, node, head->file != 0);
    }
    struct flow_head process = {.place = head->place,
                                .version = (int64_t)map_machine(),
                                .extra = (uint64_t)node->pid};
    int code = map_log_add(map, FLOW_PROCESS, &process, NULL, 0);
    if (code == 0 && map->started) {
        return map_join(map, node);
    }
    if (node->early) { /* it was only silent */
        node->early = false;
        node->alive = true;
    }
    return code;
}

int map_receive(struct map *map, struct flow_link *link)
{
    if (link->agent > 0) {
        return map_host_receive(map, link);
    }
    switch ((enum flow_kind)link->head.kind) {
    case FLOW_HELLO:
        return receive_hello(map, link);
    case FLOW_REPORT:
        return receive_report(map, link);
    case FLOW_OUTPUT:
        return receive_output(map, link);
    case FLOW_FAIL:
        return receive_failure(map, link);
    case FLOW_SEEK:
        return 0; /* plans go out as reports come */
    case FLOW_LONG:
        map_long(map, link->peer, &link->head);
        return 0;
    case FLOW_LEAVE:
        map->nodes[link->peer].leaves = true;
        return 0;
    default:
        return poise_error_set(EPROTO, "serve node", NULL,
                               "it sent a message of kind %u", link->head.kind);
    }
}
