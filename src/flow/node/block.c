/*
 * The blocks that a node knows. One is freed when all that depends on it is
 * done: own blocks are counted down as they are computed, and another node
 * keeps a copy of its own for those that it computes, so that sending it once
 * is all that it is kept for.
 *
 * Here is what takes who has the node. Own blocks lie in rows (row.c) and are
 * most often written and freed inside (common.c); all others, and own ones that
 * are computed again, in a hash table.
 */
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** Versions beyond those that are open for which rows are made: other nodes are
 * that far ahead of this one, and not more. */
#define ROWS_AHEAD 8

const struct flow_more flow_no_more = {.keep_to = -1};
const struct flow_edge flow_closed_edge;

struct flow_key flow_block_key(const struct flow_block *block)
{
    const struct flow_row *row = block->row;
    return row ? (struct flow_key){row->file, row->version,
                                   row->own->mine[block - row->blocks]}
               : block->more->key;
}

struct flow_more *flow_more_make(struct flow_block *block)
{
    if (!block->more && (block->more = poise_alloc(1, sizeof *block->more))) {
        block->more->keep_to = -1;
    }
    return block->more;
}

void flow_block_take(struct flow_block *block)
{
    flow_life_set(&block->life, flow_life_word(&block->life) + FLOW_REF);
}

void flow_block_give(struct flow_block *block)
{
    flow_life_set(&block->life, flow_life_word(&block->life) - FLOW_REF);
}

void flow_block_hold(struct flow_block *block)
{
    flow_life_set(&block->life, flow_life_word(&block->life) | FLOW_LIFE_HELD);
}

void flow_block_untask(struct flow_block *block)
{
    block->task = NULL;
    flow_life_set(&block->life, flow_life_word(&block->life) & ~FLOW_LIFE_OPEN);
}

static void set_uses(struct flow_block *block, uint64_t uses)
{
    flow_life_set(&block->life,
                  (flow_life_word(&block->life) & ~FLOW_USES) + uses);
}

/* ---- the table ---------------------------------------------------------- */

static uint64_t key_hash(const struct flow_key *key)
{
    return poise_hash_u64(
        key->place + (uint64_t)key->version * UINT64_C(0x9e3779b97f4a7c15) +
        ((uint64_t)key->file << 56));
}

static bool in_use(const struct flow_block *block)
{
    return flow_life_word(&block->life) != FLOW_LIFE_EMPTY || block->more;
}

struct flow_block *flow_block_find(const struct flow_node *node,
                                   const struct flow_key *key)
{
    struct flow_block *block = flow_row_block(node, key);
    if (block && in_use(block)) {
        return block;
    }
    block = node->table[key_hash(key) & node->table_mask];
    while (block && !flow_key_same(&block->more->key, key)) {
        block = block->more->next;
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
            uint64_t at = key_hash(&b->more->key) & mask;
            next = b->more->next;
            b->more->next = table[at];
            table[at] = b;
        }
    }
    free(node->table);
    node->table = table;
    node->table_mask = mask;
    return 0;
}

static struct flow_block *table_add(struct flow_node *node,
                                    const struct flow_key *key)
{
    struct flow_block *block = node->unused_blocks;
    if (node->block_count > node->table_mask && table_grow(node) < 0) {
        return NULL;
    }
    if (block) {
        struct flow_more *more = block->more;
        node->unused_blocks = more->next;
        memset(block, 0, sizeof *block);
        *more = flow_no_more;
        block->more = more;
    } else {
        block = poise_alloc(1, sizeof *block);
        if (!block || !flow_more_make(block)) {
            free(block);
            return NULL;
        }
    }
    uint64_t at = key_hash(key) & node->table_mask;
    block->more->key = *key;
    block->more->next = node->table[at];
    node->table[at] = block;
    node->block_count++;
    return block;
}

/* Its place in its row, if it is an own one that was not there before. */
static int row_add(struct flow_node *node, const struct flow_key *key,
                   struct flow_block **out)
{
    struct flow_segment *segment =
        flow_segment_of(node, key->file, key->version);
    *out = NULL;
    if (!flow_is_mine(node, key) || flow_is_done(node, key) ||
        key->version < segment->low) {
        return 0;
    }
    if (key->version - segment->open_to >= node->window + ROWS_AHEAD) {
        return 0;
    }
    if (!flow_row_make(node, segment, key->version)) {
        return -ENOMEM;
    }
    *out = flow_row_block(node, key);
    /* It may be EMPTY once more. */
    (*out)->row->whole = (*out)->row->plain = false;
    return 0;
}

void flow_block_is_early(struct flow_node *node, struct flow_block *block)
{
    node->early += !block->early;
    block->early = true;
}

struct flow_block *flow_block_get(struct flow_node *node,
                                  const struct flow_key *key)
{
    struct flow_block *block = flow_block_find(node, key);
    if (block || row_add(node, key, &block) < 0) {
        return block;
    }
    if (!block && !(block = table_add(node, key))) {
        return NULL;
    }
    block->newest = -1;
    block->role = flow_owner(node, key) == node->id ? FLOW_OWN : FLOW_FOREIGN;
    if (!block->row && block->role == FLOW_OWN) {
        flow_block_is_early(node, block);
    }
    return block;
}

/* What it had is given back; one of a row is EMPTY. */
static void block_free(struct flow_node *node, struct flow_block *block)
{
    if (block->made) {
        block->made->next = node->trash;
        node->trash = block->made;
    }
    if (block->more) {
        free(block->more->readers);
    }
    if (!block->row) {
        block->more->next = node->unused_blocks;
        node->unused_blocks = block;
        return;
    }
    free(block->more);
    block->made = NULL;
    block->more = NULL;
    block->newest = -1;
    block->state = FLOW_UNSOUGHT;
    block->result = FLOW_NO_RESULT;
    block->orphaned = block->gone = false;
    atomic_store_explicit(&block->waiters, NULL, memory_order_relaxed);
    flow_life_set(&block->life, FLOW_LIFE_EMPTY);
    flow_row_emptied(block->row, 0);
}

static void table_remove(struct flow_node *node, struct flow_block *block)
{
    struct flow_block **at =
        &node->table[key_hash(&block->more->key) & node->table_mask];
    while (*at != block) {
        at = &(*at)->more->next;
    }
    *at = block->more->next;
    node->block_count--;
    node->early -= block->early;
    block->early = false;
}

/* For the newest line that is complete, or for the next one: of one between
 * them, which was given up, nothing is of use. */
static bool is_of_line(const struct flow_node *node,
                       const struct flow_block *block)
{
    int64_t to = flow_more_of(block)->keep_to;
    return to >= 0 && to >= node->line &&
           (to >= node->next_line ||
            flow_block_key(block).version <= node->line);
}

static bool is_kept(const struct flow_node *node,
                    const struct flow_block *block)
{
    return flow_more_of(block)->unsent > 0 || block->unresolved ||
           block->state == FLOW_SOUGHT || is_of_line(node, block);
}

void flow_block_release(struct flow_node *node, struct flow_block *block)
{
    uint64_t word = flow_life_word(&block->life);
    if (block->result == FLOW_RESULT_PENDING) {
        return;
    }
    if (!block->gone) {
        if (is_kept(node, block)) {
            return;
        }
        /* Also while tasks have it in hand: whoever gives it back last, inside,
         * frees it then. */
        word &= ~FLOW_LIFE_HELD;
        flow_life_set(&block->life, word);
    }
    if (flow_life_refs(word) > 0 || block->task) {
        return;
    }
    if (!block->gone) {
        if (flow_life_uses(word) > 0) {
            return;
        }
        if (block->role == FLOW_OWN && block->newest > node->forgot) {
            node->forgot = block->newest;
        }
        if (!block->row) {
            table_remove(node, block);
        }
    }
    if (block->made) {
        uint64_t most = node->options->memory_bytes;
        bool full = most > 0 && node->bytes > most;
        node->bytes -= block->made->len;
        node->stats.freed++;
        if (full && node->idle > 0 && node->bytes <= most) {
            pthread_cond_broadcast(&node->work);
        }
    }
    block_free(node, block);
}

struct flow_block *flow_walk_next(const struct flow_node *node,
                                  struct flow_walk *walk)
{
    struct flow_block *block;
    if (!walk->row && !walk->in_table) {
        walk->row = node->rows;
        walk->in_table = !walk->row;
    }
    while (walk->row) {
        while (walk->at < walk->row->own->count) {
            block = &walk->row->blocks[walk->at++];
            if (in_use(block)) {
                return block;
            }
        }
        walk->at = 0;
        walk->row = walk->row->next;
        walk->in_table = !walk->row;
    }
    while (!walk->next && walk->bucket <= node->table_mask) {
        walk->next = node->table[walk->bucket++];
    }
    block = walk->next;
    if (block) {
        walk->next = block->more->next;
    }
    return block;
}

static void block_clear(struct flow_node *node, struct flow_block *block)
{
    struct poise_flow_task *task = block->task;
    if (task) {
        flow_task_clear(task);
        if (!task->of_slab) {
            free(task);
        }
    }
    block_free(node, block);
}

void flow_block_clear(struct flow_node *node)
{
    struct flow_walk walk = {0};
    struct flow_block *block;
    while (node->table && (block = flow_walk_next(node, &walk))) {
        block_clear(node, block);
    }
    for (struct flow_row *row = node->gone_rows; row; row = row->next) {
        for (uint32_t i = 0; i < row->own->count; i++) {
            block_clear(node, &row->blocks[i]);
        }
    }
    while (node->unused_blocks) {
        struct flow_block *next = node->unused_blocks->more->next;
        free(node->unused_blocks->more);
        free(node->unused_blocks);
        node->unused_blocks = next;
    }
    flow_rows_clear(node);
    flow_trash_free(flow_node_trash(node));
    free(node->table);
    node->table = NULL;
    node->block_count = 0;
}

void flow_block_sweep(struct flow_node *node)
{
    struct flow_walk walk = {0};
    struct flow_block *block;
    while ((block = flow_walk_next(node, &walk))) {
        if (flow_more_of(block)->keep_to >= 0) {
            flow_block_release(node, block);
        }
    }
}

/* Who needs it, or has it, is forgotten; of what is right nothing is lost. */
static void block_rollback(struct flow_node *node, struct flow_block *block,
                           int64_t line)
{
    struct flow_key key = flow_block_key(block);
    bool stays = block->made && key.version <= line &&
                 flow_more_of(block)->keep_to >= line;
    set_uses(block, 0);
    block->unresolved = false;
    if (block->more) {
        /* Copies on their way are not kept. */
        block->more->unsent = block->more->reader_count = 0;
        block->more->copied = 0;
    }
    if (stays) {
        return;
    }
    if (block->row && key.version <= line) {
        /* Its row stays, and so does it while somebody has it in hand. */
        block->newest = -1;
        flow_block_release(node, block);
        return;
    }
    if (!block->row) {
        table_remove(node, block);
    }
    block->gone = true;
    flow_block_release(node, block);
}

void flow_block_rollback(struct flow_node *node, int64_t line)
{
    struct flow_walk walk = {0};
    struct flow_block *block;
    node->seeking = node->unresolved = NULL;
    while ((block = flow_walk_next(node, &walk))) {
        block_rollback(node, block, line);
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
    if (state == FLOW_SOUGHT && !flow_more_make(block)) {
        return -ENOMEM;
    }
    struct flow_more *more = block->more;
    if (block->state == FLOW_SOUGHT) {
        *more->seeking_at = more->next_seeking;
        if (more->next_seeking) {
            more->next_seeking->more->seeking_at = more->seeking_at;
        }
    }
    if (state == FLOW_SOUGHT) {
        more->next_seeking = node->seeking;
        more->seeking_at = &node->seeking;
        if (node->seeking) {
            node->seeking->more->seeking_at = &more->next_seeking;
        }
        node->seeking = block;
        flow_block_hold(block);
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
    struct flow_more *more = flow_more_make(block);
    for (uint32_t i = 0; more && i < more->reader_count; i++) {
        if (more->readers[i].node == node) {
            return &more->readers[i];
        }
    }
    if (more && more->reader_count == more->reader_cap) {
        uint32_t cap = more->reader_cap ? 2 * more->reader_cap : 2;
        struct flow_reader *readers =
            poise_realloc(more->readers, cap, sizeof *readers);
        if (!readers) {
            return NULL;
        }
        more->readers = readers;
        more->reader_cap = cap;
    }
    if (!more) {
        return NULL;
    }
    more->unsent++;
    flow_block_hold(block);
    more->readers[more->reader_count] = (struct flow_reader){.node = node};
    return &more->readers[more->reader_count++];
}

static int reader_send(struct flow_node *node, struct flow_block *block,
                       struct flow_reader *reader)
{
    if (!reader->sent) {
        reader->sent = true;
        block->more->unsent--;
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
        block->more->unsent++;
        flow_block_hold(block);
    }
    reader->asked = true;
    return flow_block_seek(node, block);
}

/* Count one dependent of a block that is here. 1: whose it is is not known. */
static int count_dependent(struct flow_node *node, struct flow_block *block,
                           const struct flow_key *key)
{
    uint64_t word = flow_life_word(&block->life);
    uint16_t owner = flow_owner(node, key);
    if (owner == FLOW_NOBODY) {
        return 1;
    }
    if (key->version <= node->base) {
        return 0; /* done before all went back to that line */
    }
    if (owner == node->id) {
        flow_life_set(&block->life, word + !flow_is_done(node, key));
    } else if (block->role == FLOW_OWN && !reader_of(block, owner)) {
        return -ENOMEM;
    }
    return 0;
}

static bool is_result(const struct flow_node *node,
                      const struct flow_block *block, int known)
{
    const struct poise_flow_app *app = &node->job->app;
    struct flow_key key = flow_block_key(block);
    const struct poise_flow_chunk *shape = flow_file(node, key.file);
    struct poise_flow_address address;
    if (block->role != FLOW_OWN || block->result != FLOW_NO_RESULT) {
        return false;
    }
    if (known > 0 && node->list.count == 0) {
        return true;
    }
    flow_shape_address(shape, &key, &address);
    return app->is_result && app->is_result(&address, shape, app->arg);
}

static int output_add(struct flow_node *node, struct flow_block *block)
{
    if (!flow_more_make(block)) {
        return -ENOMEM;
    }
    block->result = FLOW_RESULT_PENDING;
    block->more->next_output = NULL;
    flow_block_hold(block);
    if (node->outputs_last) {
        node->outputs_last->more->next_output = block;
    } else {
        node->outputs = block;
    }
    node->outputs_last = block;
    pthread_cond_broadcast(&node->event);
    if (node->net) {
        node->net->notify(node->net);
    }
    return 0;
}

/* Up to a line, what versions after it need is kept until a line after those is
 * complete, and so are copies of it elsewhere: from there the work of dead
 * nodes is done again. */
int flow_block_keep(struct flow_node *node, struct flow_block *block)
{
    if (!node->net || block->role != FLOW_OWN ||
        flow_block_key(block).version > node->next_line ||
        block->newest <= node->next_line) {
        return 0;
    }
    struct flow_more *more = flow_more_make(block);
    if (!more) {
        return -ENOMEM;
    }
    int64_t to =
        block->newest < INT64_MAX ? block->newest - 1 : node->next_line;
    more->keep_to = to > more->keep_to ? to : more->keep_to;
    flow_block_hold(block);
    return node->net->copy(node->net, block);
}

/* Find out who depends on a block: all for which it is kept. */
static int block_forward(struct flow_node *node, struct flow_block *block)
{
    struct flow_key key = flow_block_key(block);
    int64_t newest = -1;
    int known = flow_ask(node, &key, POISE_FLOW_FORWARD);
    int code = known < 0 ? known : 0;
    bool open_ended = known == 0;
    set_uses(block, 0);
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
    if (is_result(node, block, known) && output_add(node, block) < 0) {
        return -ENOMEM;
    }
    if (open_ended && !block->unresolved) {
        if (!flow_more_make(block)) {
            return -ENOMEM;
        }
        block->unresolved = true;
        block->more->next_unresolved = node->unresolved;
        node->unresolved = block;
        flow_block_hold(block);
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
        list = block->more->next_unresolved;
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
    struct flow_key key = flow_block_key(block);
    if (block->role != FLOW_FOREIGN || !flow_is_mine(node, &key)) {
        return 0;
    }
    block->role = FLOW_OWN;
    return flow_is_done(node, &key) ? 0 : flow_mark_done(node, &key);
}

static bool is_adopted(const struct flow_block *block,
                       const struct flow_segment *of)
{
    struct flow_key key = flow_block_key(block);
    return block->made &&
           (!of || (key.file == of->file && key.version >= of->from &&
                    key.version < of->to &&
                    of->own->index[key.place] != FLOW_NOT_MINE));
}

/* First all of them are done, and then their dependents are counted: a block is
 * not kept for one that is here itself. */
int flow_block_adopt(struct flow_node *node, const struct flow_segment *of)
{
    int code = 0;
    struct flow_walk all = {0}, again = {0};
    struct flow_block *block;
    while (code == 0 && (block = flow_walk_next(node, &all))) {
        code = is_adopted(block, of) ? adopt(node, block) : 0;
    }
    while (code == 0 && (block = flow_walk_next(node, &again))) {
        if (is_adopted(block, of)) {
            code = block_forward(node, block);
            flow_block_release(node, block);
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
        uint64_t word = block ? flow_life_word(&block->life) : 0;
        if (block && block->made && flow_life_uses(word) > 0) {
            flow_life_set(&block->life, word - FLOW_USE);
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
        struct flow_key key = flow_block_key(block);
        flow_shape_address(flow_file(node, key.file), &key, &address);
        return flow_error(node->job, EEXIST, "write block", &address,
                          "it was written before, with other bytes");
    }
    return 0;
}

/* Wake the tasks and send to the nodes that waited. */
static int notify_waiters(struct flow_node *node, struct flow_block *block)
{
    struct flow_edge *waiters = atomic_exchange_explicit(
        &block->waiters, flow_closed(), memory_order_acq_rel);
    int code = 0;
    while (code == 0 && waiters) {
        struct flow_edge *edge = waiters;
        waiters = edge->next;
        code = flow_task_met(edge->task);
    }
    struct flow_more *more = block->more;
    for (uint32_t i = 0; code == 0 && more && i < more->reader_count; i++) {
        if (more->readers[i].asked) {
            code = reader_send(node, block, &more->readers[i]);
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
    struct flow_key of_task = task ? flow_block_key(task->block) : *key;
    bool aside = mine && !done && (!task || !flow_key_same(key, &of_task));
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
    flow_node_add_bytes(node, (int64_t)made->len);
    if (key->version > node->files[key->file].newest) {
        node->files[key->file].newest = key->version;
    }
    flow_life_set(&block->life,
                  (flow_life_word(&block->life) | FLOW_LIFE_HERE) + FLOW_REF);
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
    flow_block_give(block);
    flow_block_release(node, block);
    return code;
}
