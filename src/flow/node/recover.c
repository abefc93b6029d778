/*
 * What a node does when another one is declared dead.
 *
 * The map numbers deaths (epochs) and sends them to all in one order; from that
 * alone each node computes which places fall to whom, so all agree without
 * another message. A node that kept copies for the dead one sends them to the
 * new owners and then FLOW_HANDED, with the epoch, to every member: on the same
 * connection, which keeps that order. A new owner begins when every member
 * handed over (node->inherits is false again), so no copy of what it takes over
 * comes too late to be found. If another node dies meanwhile, a new epoch
 * begins, and with it the waiting; a FLOW_HANDED of an epoch that this node has
 * not heard of yet is remembered (`early`).
 *
 * New owners begin after the last version that is complete everywhere (the
 * line). What they then need of blocks that were freed long ago is computed
 * again by its owners, from what is kept since the line.
 */
#include "process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint16_t flow_server_buddy(const struct flow_server *server)
{
    for (unsigned i = 1; i < server->count; i++) {
        unsigned n = (server->node->id + i) % server->count;
        if (server->member[n]) {
            return (uint16_t)n;
        }
    }
    return FLOW_NOBODY;
}

/* ---- what the dead node leaves ----------------------------------------------
 */

/* It is not waited for any more; what was to go there need not. */
static void forget_reader(struct flow_block *block, uint16_t dead)
{
    for (uint32_t r = 0; r < block->reader_count; r++) {
        if (block->readers[r].node == dead) {
            block->unsent -= !block->readers[r].sent;
            block->readers[r] = block->readers[--block->reader_count];
            return;
        }
    }
}

/* Copies that were kept for it go to the new owners; own blocks that it kept
 * go to another node. */
static int forward_copy(struct flow_server *server, struct flow_block *block,
                        uint16_t dead_buddy)
{
    struct flow_node *node = server->node;
    uint16_t owner = flow_owner(node, &block->key);
    bool kept =
        block->made && block->keep_to >= 0 && block->keep_to >= node->line;
    if (!kept) {
        return 0;
    }
    if (owner == node->id) {
        return block->role != FLOW_FOREIGN && dead_buddy != FLOW_NOBODY
                   ? server->net.copy(&server->net, block)
                   : 0;
    }
    if (owner == FLOW_NOBODY) {
        return 0;
    }
    struct flow_item *item = flow_server_item(FLOW_PUT, block);
    if (item) {
        item->head.extra = (uint64_t)block->keep_to + 1;
    }
    return flow_server_send(server, owner, item);
}

static int sweep_blocks(struct flow_server *server, uint16_t dead,
                        uint16_t dead_buddy)
{
    struct flow_node *node = server->node;
    int code = 0;
    for (uint64_t i = 0; code == 0 && i <= node->table_mask; i++) {
        for (struct flow_block *b = node->table[i]; code == 0 && b;
             b = b->next) {
            forget_reader(b, dead);
            code = forward_copy(server, b, dead_buddy);
        }
    }
    return code;
}

static int send_handed(struct flow_server *server)
{
    int code = 0;
    for (unsigned n = 0; code == 0 && n < server->count; n++) {
        if (server->member[n] && n != server->node->id) {
            struct flow_item *item = flow_item_create(FLOW_HANDED, NULL, 0);
            if (!item) {
                return -ENOMEM;
            }
            item->head.extra = server->epoch;
            code = flow_server_send(server, (uint16_t)n, item);
        }
    }
    return code;
}

/* ---- taking over -------------------------------------------------------- */

static bool all_handed(const struct flow_server *server)
{
    for (unsigned n = 0; n < server->count; n++) {
        if (server->member[n] && n != server->node->id && !server->handed[n]) {
            return false;
        }
    }
    return true;
}

static int inherit(struct flow_server *server)
{
    server->inherits = false;
    int code = flow_node_inherit(server->node);
    if (code == 0) {
        code = flow_server_reseek(server, FLOW_NOBODY);
    }
    code = code == 0 ? flow_node_settle(server->node) : code;
    server->due = true;
    return code;
}

int flow_server_handed(struct flow_server *server, uint16_t from,
                       uint64_t epoch)
{
    if (epoch > server->epoch) {
        /* It heard of a death before this node did. */
        server->early[from] = epoch;
        return 0;
    }
    if (epoch == server->epoch) {
        server->handed[from] = true;
    }
    return server->inherits && all_handed(server) ? inherit(server) : 0;
}

int flow_server_epoch(struct flow_server *server, const struct flow_head *head)
{
    struct flow_node *node = server->node;
    uint16_t dead = (uint16_t)head->place;
    uint16_t buddy = flow_server_buddy(server);
    if (head->extra <= server->epoch) {
        return 0; /* another map says so once more */
    }
    if (dead == node->id) {
        server->ended = true; /* this node was declared dead */
        return 0;
    }
    server->alive[dead] = server->member[dead] = false;
    server->gone[dead] = true;
    server->epoch = head->extra;
    server->inherits = true;
    node->inherits = true;
    if (head->version > node->line) {
        node->line = head->version;
    }
    if (server->out[dead]) {
        flow_link_close(server->out[dead], node);
    }
    for (uint32_t f = 0; f < node->job->file_count; f++) {
        uint64_t places = flow_shape_places(flow_file(node, f));
        for (uint32_t s = 0; s < node->files[f].count; s++) {
            flow_partition_inherit(node->files[f].segments[s].owner, places,
                                   dead, server->member, server->count);
        }
    }
    if (buddy == dead) {
        server->copies_sent = server->copies_kept = 0;
    }
    int code = sweep_blocks(server, dead, buddy == dead ? dead : FLOW_NOBODY);
    if (code == 0) {
        code = send_handed(server);
    }
    for (unsigned n = 0; n < server->count; n++) {
        server->handed[n] = server->early[n] >= server->epoch;
    }
    return code == 0 && all_handed(server) ? inherit(server) : code;
}

/* ---- newcomers ---------------------------------------------------------- */

/* Another node keeps copies for this one from now on. */
static int copy_again(struct flow_server *server)
{
    struct flow_node *node = server->node;
    int code = 0;
    server->copies_sent = server->copies_kept = 0;
    for (uint64_t i = 0; code == 0 && i <= node->table_mask; i++) {
        for (struct flow_block *b = node->table[i]; code == 0 && b;
             b = b->next) {
            if (b->role != FLOW_FOREIGN && b->made && b->copied &&
                b->keep_to >= node->line) {
                code = server->net.copy(&server->net, b);
            }
        }
    }
    return code;
}

int flow_server_join(struct flow_server *server, const struct flow_head *head)
{
    uint16_t buddy = flow_server_buddy(server);
    if (server->member[head->place] || server->gone[head->place]) {
        return 0; /* another map says so once more */
    }
    int code = flow_server_member(server, (unsigned)head->place,
                                  (uint16_t)head->extra);
    if (code < 0) {
        return code;
    }
    server->member[head->place] = true;
    /* It has no part in an epoch that began before it came. */
    server->handed[head->place] = true;
    return flow_server_buddy(server) == buddy ? 0 : copy_again(server);
}
