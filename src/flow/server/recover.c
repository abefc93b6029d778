/*
 * What a node does when another one is declared dead, and before it, so that
 * little is lost.
 *
 * Every now and then the map asks for a line (map/line.c): up to that version
 * all is to be done, and of that, what later versions need is to be with its
 * owner and with FLOW_COPIES more nodes, its keepers. When all nodes have said
 * so the line is complete, and what was kept for the one before is freed.
 *
 * The map numbers deaths (epochs) and sends them to all in one order, with the
 * line to go back to; from that alone each node computes which places fall to
 * whom, so all agree without another message. All of them forget what is after
 * the line, and compute it again: with the same counts of uses as the first
 * time, so that it is freed as it is used and fits into the same memory; and
 * what is lost is bounded by what was done since the line. A node that kept
 * copies for the dead one sends them to the new owners and then FLOW_HANDED to
 * every member: on the same connection, which keeps that order. Who may have
 * such copies follows from the members of the line, and the map says so with
 * the epoch: two nodes for each that died since. A node begins again when all
 * of these handed over (node->inherits is false again), so no copy of what it
 * takes over comes too late to be found. If another node dies meanwhile, a new
 * epoch begins, and with it the waiting.
 *
 * Each message between nodes has its sender's epoch. One of an epoch that this
 * node has not heard of yet is put off until it has (`early`). Of an older one
 * only blocks count, which are right at all times; what others asked for, or
 * wanted to have kept, they ask for again.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines -------------------------------------------------------------- */

int flow_server_line(struct flow_server *server, const struct flow_head *head,
                     const uint16_t by[FLOW_COPIES])
{
    int64_t line = head->version, complete = (int64_t)(head->place - 1);
    uint16_t keepers[FLOW_COPIES];
    unsigned count = 0;
    for (unsigned i = 0; i < FLOW_COPIES; i++) {
        if (by[i] < server->count && server->member[by[i]]) {
            keepers[count++] = by[i];
        }
    }
    if (count != server->keeper_count ||
        memcmp(keepers, server->keepers, count * sizeof *keepers) != 0) {
        memcpy(server->keepers, keepers, count * sizeof *keepers);
        server->keeper_count = count;
        server->keepers_turn++;
    }
    /* It may not have come as the map's state yet. */
    if (complete > server->node->line) {
        server->node->line = complete;
    }
    int code = flow_node_line(server->node, line);
    server->due = server->due || server->node->missed == line ||
                  flow_node_line_is_done(server->node);
    return code;
}

bool flow_server_line_is_complete(const struct flow_server *server)
{
    return !server->node->inherits &&
           server->copies_kept == server->copies_sent &&
           flow_node_line_is_done(server->node);
}

/* ---- what the dead node leaves ------------------------------------------- */

/* Its blocks of which this node keeps copies. They remain orphans as long as
 * they are kept: if another node dies before their new owner got them, he does
 * not hear what was sent in the epoch before. */
static void mark_orphans(struct flow_node *node, uint16_t dead)
{
    struct flow_walk walk = {0};
    struct flow_block *block;
    while ((block = flow_walk_next(node, &walk))) {
        struct flow_key key = flow_block_key(block);
        block->orphaned |= flow_owner(node, &key) == dead;
    }
}

/* They go to their new owners. */
static int send_orphans(struct flow_server *server)
{
    struct flow_node *node = server->node;
    int code = 0;
    struct flow_walk walk = {0};
    struct flow_block *block;
    while (code == 0 && (block = flow_walk_next(node, &walk))) {
        struct flow_key key = flow_block_key(block);
        uint16_t owner = flow_owner(node, &key);
        if (!block->orphaned || owner == node->id || owner == FLOW_NOBODY) {
            continue;
        }
        struct flow_item *item = flow_server_item(FLOW_PUT, block);
        if (item) {
            item->head.extra = (uint64_t)flow_more_of(block)->keep_to + 1;
        }
        code = flow_server_send(server, owner, item);
    }
    return code;
}

static int send_handed(struct flow_server *server)
{
    int code = 0;
    for (unsigned n = 0; code == 0 && n < server->count; n++) {
        if (server->member[n] && n != server->node->id) {
            code = flow_server_send(server, (uint16_t)n,
                                    flow_item_create(FLOW_HANDED, NULL, 0));
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

static int inherit_if_all_handed(struct flow_server *server)
{
    if (!server->node->inherits || !all_handed(server)) {
        return 0;
    }
    int code = flow_node_inherit(server->node);
    if (code == 0) {
        code = flow_server_reseek(server, FLOW_NOBODY);
    }
    code = code == 0 ? flow_node_settle(server->node) : code;
    server->due = true;
    return code;
}

int flow_server_handed(struct flow_server *server, uint16_t from)
{
    server->handed[from] = true;
    return inherit_if_all_handed(server);
}

/* Whether this node is among those who may; the others are awaited. */
static bool await_keepers(struct flow_server *server, const uint16_t *keep,
                          size_t count)
{
    bool own = false;
    memset(server->handed, 1, server->count * sizeof *server->handed);
    for (size_t i = 0; i < count; i++) {
        own |= keep[i] == server->node->id;
        if (keep[i] < server->count) {
            server->handed[keep[i]] = false;
        }
    }
    return own;
}

int flow_server_epoch(struct flow_server *server, const struct flow_head *head,
                      const uint16_t *keep)
{
    struct flow_node *node = server->node;
    uint16_t dead = (uint16_t)head->place;
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
    flow_server_tree(server);
    server->copies_sent = server->copies_kept = 0;
    /* Of the epoch before nobody counts them any more. */
    memset(server->owed, 0, server->count * sizeof *server->owed);
    server->owed_all = 0;
    if (server->out[dead]) {
        flow_link_close(server->out[dead], node);
    }
    flow_node_rollback(node, head->version);
    mark_orphans(node, dead);
    for (uint32_t f = 0; f < node->job->file_count; f++) {
        uint64_t places = flow_shape_places(flow_file(node, f));
        for (uint32_t s = 0; s < node->files[f].count; s++) {
            flow_partition_inherit(node->files[f].segments[s].owner, places,
                                   dead, server->member, server->count);
        }
    }
    int code = send_orphans(server);
    if (await_keepers(server, keep, head->len / sizeof *keep) && code == 0) {
        code = send_handed(server);
    }
    code = code == 0 ? flow_server_early(server) : code;
    return code == 0 ? inherit_if_all_handed(server) : code;
}

/* ---- newcomers ---------------------------------------------------------- */

int flow_server_join(struct flow_server *server, const struct flow_head *head,
                     const struct flow_endpoint *at)
{
    if (server->member[head->place] || server->gone[head->place]) {
        return 0; /* another map says so once more */
    }
    int code = flow_server_member(server, (unsigned)head->place, at);
    if (code < 0) {
        return code;
    }
    server->member[head->place] = true;
    flow_server_tree(server);
    /* It has no part in an epoch that began before it came. */
    server->handed[head->place] = true;
    return 0;
}
