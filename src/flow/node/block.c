/*
 * The blocks that a node knows. One is freed when all that depends on it is
 * done: own blocks are counted down as they are computed, and another node
 * keeps a copy of its own for those that it computes, so that sending it once
 * is all that it is kept for.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---------------------------------------------------------- */

static uint64_t key_hash(const struct flow_key *key)
{
    return poise_hash_u64(
        key->place + (uint64_t)key->version * UINT64_C(0x9e3779b97f4a7c15) +
        ((uint64_t)key->file << 56));
}

struct flow_block *flow_block_find(const struct flow_node *node,
                                   const struct flow_key *key)
{
    struct flow_block *block = node->table[key_hash(key) & node->table_mask];
    while (block && !flow_key_same(&block->key, key)) {
        block = block->next;
    }
    return block;
}

static int table_grow(struct flow_node *node)
{
    uint64_t mask = 2 * node->table_mask + 1;
    struct flow_block **table =
        poise_alloc(mask + 1, sizeof(struct flow_block *));
    if (!table) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i <= node->table_mask; i++) {
        for (struct flow_block *b = node->table[i], *next; b; b = next) {
            uint64_t at = key_hash(&b->key) & mask;
            next = b->next;
            b->next = table[at];
            table[at] = b;
        }
    }
    free(node->table);
    node->table = table;
    node->table_mask = mask;
    return 0;
}

struct flow_block *flow_block_get(struct flow_node *node,
                                  const struct flow_key *key)
{
    struct flow_block *block = flow_block_find(node, key);
    if (block) {
        return block;
    }
    if (node->block_count > node->table_mask && table_grow(node) < 0) {
        return NULL;
    }
    block = node->unused_blocks;
    if (block) {
        node->unused_blocks = block->next;
        memset(block, 0, sizeof *block);
    } else {
        block = poise_alloc(1, sizeof *block);
    }
    if (!block) {
        return NULL;
    }
    uint64_t at = key_hash(key) & node->table_mask;
    block->key = *key;
    block->keep_to = block->newest = -1;
    block->role = flow_owner(node, key) == node->id ? FLOW_OWN : FLOW_FOREIGN;
    block->next = node->table[at];
    node->table[at] = block;
    node->block_count++;
    return block;
}

static void block_free(struct flow_node *node, struct flow_block *block)
{
    if (block->made) {
        block->made->next = node->trash;
        node->trash = block->made;
    }
    free(block->readers);
    block->next = node->unused_blocks;
    node->unused_blocks = block;
}

void flow_block_release(struct flow_node *node, struct flow_block *block)
{
    bool kept = block->keep_to >= 0 && block->keep_to >= node->line;
    if (block->refs > 0 || block->task ||
        block->result == FLOW_RESULT_PENDING ||
        (!block->gone &&
         (block->uses > 0 || block->unsent > 0 || block->unresolved ||
          block->state == FLOW_SOUGHT || kept))) {
        return;
    }
    if (!block->gone) {
        struct flow_block **at =
            &node->table[key_hash(&block->key) & node->table_mask];
        while (*at != block) {
            at = &(*at)->next;
        }
        *at = block->next;
        node->block_count--;
        if (block->role == FLOW_OWN && block->newest > node->forgot) {
            node->forgot = block->newest;
        }
    }
    if (block->made) {
        bool full = node->options->memory_bytes > 0 &&
                    node->bytes > node->options->memory_bytes;
        node->bytes -= block->made->len;
        node->stats.freed++;
        if (full && node->idle > 0 &&
            node->bytes <= node->options->memory_bytes) {
            pthread_cond_broadcast(&node->work);
        }
    }
    block_free(node, block);
}

void flow_block_clear(struct flow_node *node)
{
    for (uint64_t i = 0; node->table && i <= node->table_mask; i++) {
        while (node->table[i]) {
            struct flow_block *block = node->table[i];
            node->table[i] = block->next;
            if (block->task) {
                flow_task_tidy(block->task);
                if (block->task->edges != block->task->few) {
                    free(block->task->edges);
                }
                free(block->task);
            }
            block_free(node, block);
        }
    }
    while (node->unused_blocks) {
        struct flow_block *block = node->unused_blocks;
        node->unused_blocks = block->next;
        free(block);
    }
    flow_trash_free(flow_node_trash(node));
    free(node->table);
    node->table = NULL;
    node->block_count = 0;
}

void flow_block_sweep(struct flow_node *node)
{
    for (uint64_t i = 0; i <= node->table_mask; i++) {
        for (struct flow_block *b = node->table[i], *next; b; b = next) {
            next = b->next;
            if (b->keep_to >= 0) {
                flow_block_release(node, b);
            }
        }
    }
}

void flow_block_rollback(struct flow_node *node, int64_t line)
{
    node->seeking = node->unresolved = NULL;
    for (uint64_t i = 0; i <= node->table_mask; i++) {
        struct flow_block **at = &node->table[i];
        while (*at) {
            struct flow_block *block = *at;
            block->uses = block->unsent = block->reader_count = 0;
            block->unresolved = false;
            block->copied = 0; /* copies on their way are not kept */
            if (block->made && block->key.version <= line &&
                block->keep_to >= line) {
                at = &block->next;
                continue;
            }
            *at = block->next;
            node->block_count--;
            block->gone = true;
            flow_block_release(node, block);
        }
    }
}

int flow_block_become(struct flow_node *node, struct flow_block *block,
                      enum flow_block_state state)
{
#define TO(state) (1U << (state))
    static const unsigned allowed[FLOW_BLOCK_STATES] = {
        [FLOW_UNSOUGHT] = TO(FLOW_SOUGHT) | TO(FLOW_OPEN) | TO(FLOW_HERE),
        [FLOW_SOUGHT] = TO(FLOW_UNSOUGHT) | TO(FLOW_REQUESTED) | TO(FLOW_OPEN) |
                        TO(FLOW_HERE),
        [FLOW_REQUESTED] = TO(FLOW_SOUGHT) | TO(FLOW_OPEN) | TO(FLOW_HERE),
        [FLOW_OPEN] = TO(FLOW_HERE),
    };
    if (!(allowed[block->state] & TO(state))) {
        return poise_error_set(EPROTO, "change state of block", NULL,
                               "from %d to %d", (int)block->state, (int)state);
    }
#undef TO
    if (block->state == FLOW_SOUGHT) {
        *block->seeking_at = block->next_seeking;
        if (block->next_seeking) {
            block->next_seeking->seeking_at = block->seeking_at;
        }
    }
    if (state == FLOW_SOUGHT) {
        block->next_seeking = node->seeking;
        block->seeking_at = &node->seeking;
        if (node->seeking) {
            node->seeking->seeking_at = &block->next_seeking;
        }
        node->seeking = block;
    }
    block->state = state;
    return 0;
}

int flow_block_seek(struct flow_node *node, struct flow_block *block)
{
    return block->state == FLOW_UNSOUGHT
               ? flow_block_become(node, block, FLOW_SOUGHT)
               : 0;
}

/* ---- readers and dependents --------------------------------------------- */

/* The entry of a node among the readers, made if need be; NULL: no memory. */
static struct flow_reader *reader_of(struct flow_block *block, uint16_t node)
{
    for (uint32_t i = 0; i < block->reader_count; i++) {
        if (block->readers[i].node == node) {
            return &block->readers[i];
        }
    }
    if (block->reader_count == block->reader_cap) {
        uint32_t cap = block->reader_cap ? 2 * block->reader_cap : 2;
        struct flow_reader *readers =
            poise_realloc(block->readers, cap, sizeof *readers);
        if (!readers) {
            return NULL;
        }
        block->readers = readers;
        block->reader_cap = cap;
    }
    block->unsent++;
    block->readers[block->reader_count] = (struct flow_reader){.node = node};
    return &block->readers[block->reader_count++];
}

static int reader_send(struct flow_node *node, struct flow_block *block,
                       struct flow_reader *reader)
{
    if (!reader->sent) {
        reader->sent = true;
        block->unsent--;
    }
    reader->asked = false;
    return node->net->send(node->net, reader->node, block);
}

int flow_block_request(struct flow_node *node, const struct flow_key *key,
                       uint16_t from)
{
    struct flow_block *block = flow_block_get(node, key);
    struct flow_reader *reader = block ? reader_of(block, from) : NULL;
    if (!reader) {
        return -ENOMEM;
    }
    if (block->made) {
        int code = reader_send(node, block, reader);
        flow_block_release(node, block);
        return code;
    }
    if (reader->sent) {
        reader->sent = false;
        block->unsent++;
    }
    reader->asked = true;
    return flow_block_seek(node, block);
}

/* Count one dependent of a block that is here. 1: whose it is is not known. */
static int count_dependent(struct flow_node *node, struct flow_block *block,
                           const struct flow_key *key)
{
    uint16_t owner = flow_owner(node, key);
    if (owner == FLOW_NOBODY) {
        return 1;
    }
    if (key->version <= node->base) {
        return 0; /* done before all went back to that line */
    }
    if (owner == node->id) {
        block->uses += !flow_is_done(node, key);
    } else if (block->role == FLOW_OWN && !reader_of(block, owner)) {
        return -ENOMEM;
    }
    return 0;
}

static bool is_result(const struct flow_node *node,
                      const struct flow_block *block, int known)
{
    const struct poise_flow_app *app = &node->job->app;
    const struct poise_flow_chunk *shape = flow_file(node, block->key.file);
    struct poise_flow_address address;
    if (block->role != FLOW_OWN || block->result != FLOW_NO_RESULT) {
        return false;
    }
    if (known > 0 && node->list.count == 0) {
        return true;
    }
    flow_shape_address(shape, &block->key, &address);
    return app->is_result && app->is_result(&address, shape, app->arg);
}

static void output_add(struct flow_node *node, struct flow_block *block)
{
    block->result = FLOW_RESULT_PENDING;
    block->next_output = NULL;
    if (node->outputs_last) {
        node->outputs_last->next_output = block;
    } else {
        node->outputs = block;
    }
    node->outputs_last = block;
    pthread_cond_broadcast(&node->event);
    if (node->net) {
        node->net->notify(node->net);
    }
}

/* Up to a line, what versions after it need is kept until a line after those is
 * complete, and so are copies of it elsewhere: from there the work of dead
 * nodes is done again. */
int flow_block_keep(struct flow_node *node, struct flow_block *block)
{
    if (!node->net || block->role != FLOW_OWN ||
        block->key.version > node->next_line ||
        block->newest <= node->next_line) {
        return 0;
    }
    int64_t to =
        block->newest < INT64_MAX ? block->newest - 1 : node->next_line;
    block->keep_to = to > block->keep_to ? to : block->keep_to;
    return node->net->copy(node->net, block);
}

/* Find out who depends on a block: all for which it is kept. */
static int block_forward(struct flow_node *node, struct flow_block *block)
{
    struct flow_key key;
    int64_t newest = -1;
    int known = flow_ask(node, &block->key, POISE_FLOW_FORWARD);
    int code = known < 0 ? known : 0;
    bool open_ended = known == 0;
    block->uses = 0;
    for (size_t i = 0; code >= 0 && known > 0 && i < node->list.count; i++) {
        code = flow_key_of(node->job, &node->list.items[i], &key);
        if (code == 0) {
            code = count_dependent(node, block, &key);
            open_ended |= code > 0;
            newest = key.version > newest ? key.version : newest;
        }
    }
    if (code < 0) {
        return code;
    }
    if (is_result(node, block, known)) {
        output_add(node, block);
    }
    if (open_ended && !block->unresolved) {
        block->unresolved = true;
        block->next_unresolved = node->unresolved;
        node->unresolved = block;
    }
    block->newest = known > 0 ? newest : INT64_MAX;
    return flow_block_keep(node, block);
}

int flow_block_resolve(struct flow_node *node)
{
    struct flow_block *list = node->unresolved;
    int code = 0;
    node->unresolved = NULL;
    while (list) {
        struct flow_block *block = list;
        list = block->next_unresolved;
        block->unresolved = false;
        if (code == 0) {
            code = block_forward(node, block);
            flow_block_release(node, block);
        }
    }
    return code;
}

/* ---- writing ------------------------------------------------------------ */

/* It is this node's now. */
static int adopt(struct flow_node *node, struct flow_block *block)
{
    if (block->role != FLOW_FOREIGN || !flow_is_mine(node, &block->key)) {
        return 0;
    }
    block->role = FLOW_OWN;
    return flow_is_done(node, &block->key) ? 0
                                           : flow_mark_done(node, &block->key);
}

static bool is_adopted(const struct flow_block *block,
                       const struct flow_segment *of)
{
    return block->made &&
           (!of ||
            (block->key.file == of->file && block->key.version >= of->from &&
             block->key.version < of->to && of->is_mine[block->key.place]));
}

/* First all of them are done, and then their dependents are counted: a block is
 * not kept for one that is here itself. */
int flow_block_adopt(struct flow_node *node, const struct flow_segment *of)
{
    int code = 0;
    for (uint64_t i = 0; code == 0 && i <= node->table_mask; i++) {
        for (struct flow_block *b = node->table[i]; code == 0 && b;
             b = b->next) {
            code = is_adopted(b, of) ? adopt(node, b) : 0;
        }
    }
    for (uint64_t i = 0; code == 0 && i <= node->table_mask; i++) {
        for (struct flow_block *b = node->table[i], *next; code == 0 && b;
             b = next) {
            next = b->next;
            if (is_adopted(b, of)) {
                code = block_forward(node, b);
                flow_block_release(node, b);
            }
        }
    }
    return code;
}

/* What a block needed that was written by another one's compute: it is not
 * needed for it any more. */
static int retire(struct flow_node *node, const struct flow_key *key)
{
    struct flow_key other;
    int code = flow_ask(node, key, POISE_FLOW_BACKWARD);
    for (size_t i = 0; code > 0 && i < node->list.count; i++) {
        code = flow_key_of(node->job, &node->list.items[i], &other);
        struct flow_block *block =
            code == 0 ? flow_block_find(node, &other) : NULL;
        if (block && block->made && block->uses > 0) {
            block->uses--;
            flow_block_release(node, block);
        }
        code = code < 0 ? code : 1;
    }
    return code < 0 ? code : 0;
}

/* A second value for an address. */
static int write_again(struct flow_node *node, struct flow_block *block,
                       struct flow_made *made)
{
    bool same = block->made->len == made->len &&
                memcmp(flow_made_data(block->made), flow_made_data(made),
                       made->len) == 0;
    free(made);
    if (!same) {
        struct poise_flow_address address;
        flow_shape_address(flow_file(node, block->key.file), &block->key,
                           &address);
        return flow_error(node->job, EEXIST, "write block", &address,
                          "it was written before, with other bytes");
    }
    return 0;
}

/* Wake the tasks and send to the nodes that waited. */
static int notify_waiters(struct flow_node *node, struct flow_block *block)
{
    struct flow_edge *waiters = block->waiters;
    int code = 0;
    block->waiters = NULL;
    while (code == 0 && waiters) {
        struct flow_edge *edge = waiters;
        waiters = edge->next;
        code = flow_task_met(edge->task);
    }
    for (uint32_t i = 0; code == 0 && i < block->reader_count; i++) {
        if (block->readers[i].asked) {
            code = reader_send(node, block, &block->readers[i]);
        }
    }
    return code;
}

int flow_block_write(struct flow_node *node, const struct flow_key *key,
                     struct flow_made *made, struct poise_flow_task *task)
{
    uint16_t owner = flow_owner(node, key);
    bool mine = owner == node->id && flow_is_mine(node, key);
    bool done = mine && flow_is_done(node, key);
    bool aside =
        mine && !done && (!task || !flow_key_same(key, &task->block->key));
    if (task && owner != node->id && owner != FLOW_NOBODY) {
        return node->net->put(node->net, owner, key, made);
    }
    struct flow_block *block = flow_block_get(node, key);
    if (!block) {
        free(made);
        return -ENOMEM;
    }
    if (block->made) {
        return write_again(node, block, made);
    }
    block->made = made;
    block->role = done ? FLOW_OWN_AGAIN : mine ? FLOW_OWN : FLOW_FOREIGN;
    node->bytes += made->len;
    if (node->bytes > node->stats.peak_bytes) {
        node->stats.peak_bytes = node->bytes;
    }
    if (key->version > node->files[key->file].newest) {
        node->files[key->file].newest = key->version;
    }
    block->refs++;
    int code = flow_block_become(node, block, FLOW_HERE);
    if (block->task && block->task != task) {
        flow_task_drop(block->task);
    }
    if (code == 0 && aside) {
        code = retire(node, key);
    }
    if (code == 0) {
        code = block_forward(node, block);
    }
    if (code == 0) {
        code = notify_waiters(node, block);
    }
    if (code == 0 && mine && !done) {
        code = flow_mark_done(node, key);
    }
    block->refs--;
    flow_block_release(node, block);
    return code;
}
