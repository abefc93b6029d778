/* A node's process: what the node's threads ask for, all but rings (rings.c).
 * They put messages into queues and wake the thread that sends them. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/** Reports that are not due by time are at least so far apart. */
#define REPORT_LEAST_NS UINT64_C(2000000)
/** Reports that nobody waits for are that many times as rare: who waits for
 * other nodes may do so before each block, and that is news only if all do. */
#define REST_TIMES 4
#define REPORT_NS UINT64_C(50000000)
/** A message is as much work as the copying of so many bytes: a few
 * microseconds of locks, queues and system calls, at some GB/s. */
#define MESSAGE_BYTES 8192
/** So many bytes of copies are sent at once: more than what a wake-up costs. */
#define COPIES_BYTES 262144

static void server_wake(struct flow_server *server)
{
    if (!server->woken) {
        uint64_t one = 1;
        server->woken = true;
        ssize_t put = write(server->wake, &one, sizeof one);
        (void)put; /* the counter cannot overflow: it is 0 or 1 */
    }
}

/* Whoever looks at queues next sends it. 1: it was put there; 0: to nobody. */
static int put_into_queue(struct flow_server *server, uint16_t to,
                          struct flow_item *item)
{
    if (!item) {
        return -ENOMEM;
    }
    if (to == FLOW_NOBODY) {
        flow_queue_add(&server->map.queue, item);
    } else if (!server->alive[to]) {
        flow_item_free(item, server->node);
        return 0;
    } else {
        item->head.epoch = (uint16_t)server->epoch;
        flow_queue_add(&server->out[to]->queue, item);
        if (!server->is_posted[to]) {
            server->is_posted[to] = true;
            server->posted[server->posted_count++] = to;
        }
    }
    return 1;
}

/* The same, of a message that both ends count. */
static int put_counted(struct flow_server *server, uint16_t to,
                       struct flow_item *item)
{
    if (item && to != FLOW_NOBODY && server->alive[to]) {
        server->tally[to].sent++;
        flow_server_count(server, &item->head);
    }
    return put_into_queue(server, to, item);
}

static int woken_for(struct flow_server *server, int code)
{
    if (code > 0) {
        server_wake(server);
    }
    return code < 0 ? code : 0;
}

int flow_server_send(struct flow_server *server, uint16_t to,
                     struct flow_item *item)
{
    return woken_for(server, put_counted(server, to, item));
}

int flow_server_post(struct flow_server *server, uint16_t to,
                     struct flow_item *item)
{
    return woken_for(server, put_into_queue(server, to, item));
}

void flow_server_count(struct flow_server *server, const struct flow_head *head)
{
    uint64_t work = head->len + MESSAGE_BYTES;
    server->said += work;
    if (head->kind == FLOW_COPY || head->kind == FLOW_COPIED) {
        server->said_of_copies += work;
    }
}

static struct flow_item *item_of(enum flow_kind kind,
                                 const struct flow_key *key)
{
    struct flow_item *item = flow_item_create(kind, NULL, 0);
    if (item) {
        item->head.file = key->file;
        item->head.version = key->version;
        item->head.place = key->place;
    }
    return item;
}

static int net_fetch(struct flow_net *net, uint16_t owner,
                     const struct flow_key *key)
{
    struct flow_server *server = (struct flow_server *)net;
    struct flow_head head = {.kind = FLOW_FETCH,
                             .file = key->file,
                             .version = key->version,
                             .place = key->place};
    int code = flow_server_ring_put(server, owner, &head, NULL);
    return code == 0 ? flow_server_send(server, owner, item_of(FLOW_FETCH, key))
           : code < 0 ? code
                      : 0;
}

/* The node is had. */
static void item_release(struct flow_item *item, void *owner)
{
    struct flow_node *node = owner;
    flow_block_give(item->block);
    if (item->head.kind == FLOW_OUTPUT && !node->options->log) {
        flow_node_output_done(node, item->block);
    } else {
        flow_block_release(node, item->block);
    }
}

struct flow_item *flow_server_item(enum flow_kind kind,
                                   struct flow_block *block)
{
    struct flow_key key = flow_block_key(block);
    struct flow_item *item = item_of(kind, &key);
    if (item) {
        item->block = block;
        item->release = item_release;
        item->data = flow_made_data(block->made);
        item->head.len = block->made->len;
        flow_block_take(block);
    }
    return item;
}

static int net_send(struct flow_net *net, uint16_t to, struct flow_block *block)
{
    struct flow_server *server = (struct flow_server *)net;
    struct flow_key key = flow_block_key(block);
    struct flow_head head = {.kind = FLOW_BLOCK,
                             .file = key.file,
                             .version = key.version,
                             .place = key.place,
                             .len = block->made->len};
    int code =
        flow_server_ring_put(server, to, &head, flow_made_data(block->made));
    return code == 0  ? flow_server_send(server, to,
                                         flow_server_item(FLOW_BLOCK, block))
           : code < 0 ? code
                      : 0;
}

static int net_put(struct flow_net *net, uint16_t owner,
                   const struct flow_key *key, struct flow_made *made)
{
    struct flow_server *server = (struct flow_server *)net;
    struct flow_item *item = item_of(FLOW_PUT, key);
    if (!item) {
        free(made);
        return -ENOMEM;
    }
    item->made = made;
    item->data = flow_made_data(made);
    item->head.len = made->len;
    return flow_server_send(server, owner, item);
}

static int net_copy(struct flow_net *net, struct flow_block *block)
{
    struct flow_server *server = (struct flow_server *)net;
    int code = 0;
    struct flow_more *more = flow_more_make(block);
    if (!more) {
        return -ENOMEM;
    }
    if (more->copied == server->keepers_turn) {
        return 0;
    }
    for (unsigned i = 0; code == 0 && i < server->keeper_count; i++) {
        struct flow_item *item = flow_server_item(FLOW_COPY, block);
        if (item) {
            item->head.extra = (uint64_t)more->keep_to + 1;
            server->copies_sent++;
            server->copies_bytes += item->head.len;
        }
        code = put_counted(server, server->keepers[i], item);
        code = code < 0 ? code : 0;
    }
    /* Nobody waits for a part of a line: the thread that sends is woken when
     * all of it is there, and not for each block. */
    if (server->copies_bytes > COPIES_BYTES || server->node->line_told) {
        server->copies_bytes = 0;
        server_wake(server);
    }
    /* Else the next line may need it as well, and it is to be kept longer. */
    more->copied = block->newest < INT64_MAX ? server->keepers_turn : 0;
    return code;
}

static int net_seek(struct flow_net *net, uint32_t file, int64_t version)
{
    struct flow_server *server = (struct flow_server *)net;
    struct flow_key key = {file, version, 0};
    return flow_server_send(server, FLOW_NOBODY, item_of(FLOW_SEEK, &key));
}

static void net_computed(struct flow_net *net, uint32_t number, int64_t segment,
                         uint64_t blocks, uint64_t took_ns)
{
    struct flow_server *server = (struct flow_server *)net;
    struct flow_file_report *file = &server->files[number];
    if (segment > file->segment) {
        if (file->blocks > 0) {
            file->blocks_before = file->blocks;
            file->before_ns = file->compute_ns;
        }
        file->segment = segment;
        file->blocks = file->compute_ns = 0;
    }
    if (segment == file->segment) {
        file->blocks += blocks;
        file->compute_ns += took_ns;
    }
}

static void net_notify(struct flow_net *net)
{
    struct flow_server *server = (struct flow_server *)net;
    if (!atomic_exchange(&server->due, true)) {
        server_wake(server); /* else it was woken, and has not reported yet */
    }
}

uint64_t flow_server_least_ns(const struct flow_server *server)
{
    uint64_t least = server->count * FLOW_SHARE_NS;
    return least > REPORT_LEAST_NS ? least : REPORT_LEAST_NS;
}

static uint64_t report_ns(const struct flow_server *server)
{
    uint64_t period = server->node->options->report_ns;
    uint64_t least = REST_TIMES * server->count * FLOW_SHARE_NS;
    period = period ? period : REPORT_NS;
    return period > least ? period : least;
}

uint64_t flow_server_period_ns(const struct flow_server *server)
{
    uint64_t least = flow_server_least_ns(server), most = report_ns(server);
    uint64_t soon = server->due      ? least
                    : server->rested ? REST_TIMES * least
                                     : UINT64_MAX;
    most = most < soon ? most : soon;
    return most > least ? most : least;
}

/* All that was given out to this node is done. */
static bool has_nothing(const struct flow_node *node)
{
    for (uint32_t f = 0; f < node->job->file_count; f++) {
        for (uint32_t s = 0; s < node->files[f].count; s++) {
            const struct flow_segment *segment = &node->files[f].segments[s];
            if (segment->low < segment->to) {
                return false;
            }
        }
    }
    return true;
}

/* The map has something to give it, or to allow it; or it is told with others
 * of its kind. */
static void net_rest(struct flow_net *net)
{
    struct flow_server *server = (struct flow_server *)net;
    if (server->node->options->memory_bytes > 0 || has_nothing(server->node)) {
        net_notify(net);
    } else if (REST_TIMES * flow_server_least_ns(server) < report_ns(server) &&
               !atomic_exchange(&server->rested, true)) {
        server_wake(server);
    }
}

void flow_server_net_open(struct flow_server *server)
{
    server->net = (struct flow_net){net_fetch,
                                    net_send,
                                    net_put,
                                    net_seek,
                                    net_copy,
                                    net_computed,
                                    net_notify,
                                    net_rest,
                                    flow_server_ring_due,
                                    flow_server_ring_receive,
                                    flow_server_ring_look};
}
