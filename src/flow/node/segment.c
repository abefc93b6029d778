/*
 * Segments: which versions of a file are assigned, to whom, and how far this
 * node is with its own. A version of a segment is opened (tasks are made for
 * its blocks) when it comes within the window of the oldest one that is not
 * complete: so the memory for what is to be done is bounded, and so is what is
 * fetched ahead.
 */
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct flow_segment *flow_segment_of(const struct flow_node *node,
                                     uint32_t file, int64_t version)
{
    const struct flow_files *files = &node->files[file];
    for (uint32_t s = files->count; s-- > 0;) {
        struct flow_segment *segment = &files->segments[s];
        if (version >= segment->from) {
            return version < segment->to ? segment : NULL;
        }
    }
    return NULL;
}

uint16_t flow_owner(const struct flow_node *node, const struct flow_key *key)
{
    const struct flow_segment *segment =
        flow_segment_of(node, key->file, key->version);
    return segment ? segment->owner[key->place] : FLOW_NOBODY;
}

bool flow_is_mine(const struct flow_node *node, const struct flow_key *key)
{
    const struct flow_segment *segment =
        flow_segment_of(node, key->file, key->version);
    return segment && segment->own &&
           segment->own->index[key->place] != FLOW_NOT_MINE;
}

bool flow_is_done(const struct flow_node *node, const struct flow_key *key)
{
    const struct flow_segment *segment =
        flow_segment_of(node, key->file, key->version);
    if (!segment || !segment->own ||
        segment->own->index[key->place] == FLOW_NOT_MINE) {
        return false;
    }
    const struct flow_block *block = flow_row_block(node, key);
    return block ? flow_row_has_done(block)
                 : key->version < atomic_load_explicit(&segment->low,
                                                       memory_order_relaxed);
}

int64_t flow_file_low(const struct flow_node *node, uint32_t file)
{
    const struct flow_files *files = &node->files[file];
    int64_t low = flow_file(node, file)->versions.from;
    for (uint32_t s = 0; s < files->count; s++) {
        low = files->segments[s].low;
        if (low < files->segments[s].to) {
            break;
        }
    }
    return low == flow_file(node, file)->versions.to ? INT64_MAX : low;
}

/* Step over complete versions, and open what that allows. */
static int segment_advance(struct flow_node *node, struct flow_segment *segment)
{
    int64_t before = segment->low;
    while (segment->low < segment->to) {
        struct flow_row *row = flow_row_of(segment, segment->low);
        if (!segment->own ||
            (segment->own->count > 0 && (!row || row->left > 0))) {
            break;
        }
        if (row) {
            flow_row_slab_done(node, row);
            node->completed += row->own->count;
        }
        segment->low++;
    }
    if (segment->low > before && segment->low == segment->to) {
        pthread_cond_broadcast(&node->event);
    }
    return flow_segment_open(node, segment);
}

int flow_node_advance(struct flow_node *node)
{
    int code = 0;
    node->advance = false;
    for (uint32_t f = 0; f < node->job->file_count; f++) {
        struct flow_files *files = &node->files[f];
        for (uint32_t s = 0; code == 0 && s < files->count; s++) {
            code = segment_advance(node, &files->segments[s]);
        }
    }
    if (node->next_line >= 0 && !node->line_told &&
        flow_node_line_is_done(node)) {
        node->line_told = true;
        node->net->notify(node->net);
    }
    return code == 0 ? flow_block_resolve(node) : code;
}

int flow_mark_done(struct flow_node *node, const struct flow_key *key)
{
    struct flow_segment *segment =
        flow_segment_of(node, key->file, key->version);
    struct flow_row *row = flow_row_make(node, segment, key->version);
    if (!row) {
        return -ENOMEM;
    }
    row->plain = false;
    flow_row_set_done(flow_row_block(node, key));
    if (flow_row_done(row, segment->own->index[key->place])) {
        node->advance = true;
    }
    return 0;
}

/* ---- opening ------------------------------------------------------------ */

static int open_one(struct flow_node *node, const struct flow_key *key,
                    uint64_t preference)
{
    struct flow_block *block;
    if (flow_is_done(node, key)) {
        return 0;
    }
    block = flow_block_get(node, key);
    if (!block) {
        return -ENOMEM;
    }
    return block->made || block->task
               ? 0
               : flow_task_open(node, block, (uint32_t)preference);
}

/* The blocks of some versions, in the order of the program's iterator. */
static int open_iterated(struct flow_node *node, struct flow_segment *segment,
                         int64_t to)
{
    const struct poise_flow_app *app = &node->job->app;
    const struct poise_flow_chunk *shape = flow_file(node, segment->file);
    struct poise_flow_chunk chunk = *shape;
    struct poise_flow_address address = {0};
    struct flow_key key;
    uint64_t preference = 0;
    int code = 0;
    chunk.file = segment->file;
    chunk.versions = (struct poise_flow_range){segment->open_to, to};
    void *iterator = app->iterate(&chunk, app->arg);
    if (!iterator) {
        return poise_error_set(ENOMEM, "iterate over file",
                               node->job->files[segment->file].name, NULL);
    }
    while (code == 0 && app->next(iterator, &address)) {
        address.file = segment->file;
        if (!flow_shape_holds(&chunk, &address)) {
            continue;
        }
        key = (struct flow_key){segment->file, address.version,
                                flow_shape_place(shape, &address)};
        if (segment->own->index[key.place] != FLOW_NOT_MINE) {
            code = open_one(node, &key, preference++);
        }
    }
    app->done(iterator);
    return code;
}

/* ... and those that it left out, behind them. */
static int open_rest(struct flow_node *node, struct flow_segment *segment,
                     int64_t to)
{
    int code = 0;
    while (code == 0 && segment->open_to < to) {
        struct flow_key key = {segment->file, segment->open_to, 0};
        for (uint32_t i = 0; code == 0 && i < segment->own->count; i++) {
            key.place = segment->own->mine[i];
            code = open_one(node, &key, UINT32_MAX);
        }
        segment->open_to++;
    }
    return code;
}

/* A task of which more than is common is to be asked; one without a block
 * stands for an address. */
static int slow_one(struct flow_node *node, struct poise_flow_task *task)
{
    const struct poise_flow_address *address = &task->address;
    if (task->block) {
        return flow_task_ask(task);
    }
    struct flow_key key = {
        address->file, address->version,
        flow_shape_place(flow_file(node, address->file), address)};
    return open_one(node, &key, task->preference);
}

int flow_slow(struct flow_node *node)
{
    int code = 0;
    for (unsigned p = 0; p < node->threads; p++) {
        struct poise_flow_task **list = &node->processors[p].slow;
        while (code == 0 && *list) {
            struct poise_flow_task *task = *list;
            *list = task->next;
            code = slow_one(node, task);
        }
    }
    return code;
}

int flow_segment_open(struct flow_node *node, struct flow_segment *segment)
{
    bool iterated = node->job->app.iterate != NULL;
    int64_t step = iterated ? node->window : 1;
    int code = 0;
    while (code == 0 && segment->own && segment->own->count > 0 &&
           segment->open_to < segment->to &&
           segment->open_to < segment->low + node->window) {
        int64_t to = segment->to - segment->open_to > step
                         ? segment->open_to + step
                         : segment->to;
        if (iterated) {
            code = open_iterated(node, segment, to);
            code = code == 0 ? open_rest(node, segment, to) : code;
            continue;
        }
        node->processors[0].now_ns = node->now_ns;
        code = flow_open_row(&node->processors[0], segment, segment->open_to);
        segment->open_to += code == 0;
        code = code == 0 ? flow_slow(node) : code;
    }
    return code;
}

/* ---- taking over -------------------------------------------------------- */

/* Which processor is to compute a place. As many neighbouring places for each:
 * what they share then lies where two of them meet. */
static uint16_t home_of(const struct flow_node *node,
                        const struct flow_own *own, uint64_t place)
{
    return (uint16_t)((uint64_t)own->index[place] * node->threads / own->count);
}

/* Whether another node, or another processor, waits for a block of ours: 1, 0
 * or negative. Places have their rank as index. */
static int is_border(struct flow_node *node, const struct flow_own *own,
                     const struct flow_key *key)
{
    struct flow_key other;
    uint16_t home = home_of(node, own, key->place);
    int code = flow_ask(node, key, POISE_FLOW_FORWARD);
    for (size_t i = 0; code > 0 && i < node->list.count; i++) {
        code = flow_key_of(node->job, &node->list.items[i], &other);
        if (code < 0) {
            return code;
        }
        uint16_t owner = flow_owner(node, &other);
        if (owner != FLOW_NOBODY &&
            (owner != node->id || (other.file == key->file &&
                                   own->index[other.place] != FLOW_NOT_MINE &&
                                   home_of(node, own, other.place) != home))) {
            return 1;
        }
        code = 1;
    }
    return code < 0 ? code : 0;
}

static int own_alloc(const struct flow_node *node, uint64_t places,
                     struct flow_own **out)
{
    struct flow_own *own =
        poise_alloc(1, sizeof *own + places * sizeof own->index[0]);
    if (!own) {
        return -ENOMEM;
    }
    own->refs = 1;
    own->mine = poise_alloc(places, sizeof *own->mine);
    own->home = poise_alloc(places, sizeof *own->home);
    own->of = poise_alloc(node->threads, sizeof *own->of);
    if (!own->mine || !own->home || !own->of) {
        flow_own_drop(own);
        return -ENOMEM;
    }
    *out = own;
    return 0;
}

/* Those that others wait for, and then all others, behind each other in
 * own->mine. */
static int own_order(struct flow_node *node, const struct flow_segment *segment,
                     struct flow_own *own, uint64_t places, uint64_t *inner)
{
    bool asks = node->net || node->threads > 1;
    uint64_t back = 0, front = 0;
    int code = 0;
    for (uint64_t p = 0; code >= 0 && p < places; p++) {
        struct flow_key key = {segment->file, segment->from, p};
        if (own->index[p] == FLOW_NOT_MINE) {
            continue;
        }
        code = asks ? is_border(node, own, &key) : 0;
        if (code > 0) {
            own->mine[front++] = p;
        } else {
            inner[back++] = p;
        }
    }
    for (uint64_t i = 0; code >= 0 && i < back; i++) {
        own->mine[front++] = inner[i];
    }
    return code;
}

/* The node's places, those first that others wait for. */
static int segment_order(struct flow_node *node, struct flow_segment *segment)
{
    uint64_t places = flow_shape_places(flow_file(node, segment->file));
    struct flow_own *own = NULL;
    uint64_t *inner = poise_alloc(places, sizeof *inner);
    int code = inner ? own_alloc(node, places, &own) : -ENOMEM;
    for (uint64_t p = 0; code >= 0 && p < places; p++) {
        own->index[p] =
            segment->owner[p] == node->id ? own->count++ : FLOW_NOT_MINE;
    }
    code = code == 0 ? own_order(node, segment, own, places, inner) : code;
    free(inner);
    if (code < 0) {
        flow_own_drop(own);
        return code;
    }
    for (uint32_t i = 0; i < own->count; i++) {
        own->home[i] = home_of(node, own, own->mine[i]);
        own->of[own->home[i]]++;
    }
    for (uint32_t i = 0; i < own->count; i++) {
        own->index[own->mine[i]] = i;
    }
    flow_own_drop(segment->own);
    segment->own = own;
    return 0;
}

/* Blocks that nobody was known to own are looked for once more; those of them
 * that are this node's now stay in the table. */
static int seek_unowned(struct flow_node *node,
                        const struct flow_segment *segment)
{
    struct flow_walk walk = {0};
    struct flow_block *block;
    int code = 0;
    while (code == 0 && (block = flow_walk_next(node, &walk))) {
        struct flow_key key = flow_block_key(block);
        if (key.file != segment->file) {
            continue;
        }
        if (!block->row && key.version >= segment->from &&
            key.version < segment->to && flow_is_mine(node, &key)) {
            flow_block_is_early(node, block);
        }
        if (flow_waiters(block)) {
            code = flow_block_seek(node, block);
        }
    }
    return code;
}

static int segment_insert(struct flow_node *node, struct flow_segment *in,
                          struct flow_segment **out)
{
    struct flow_files *files = &node->files[in->file];
    uint32_t at = files->count;
    if (files->count == files->cap) {
        uint32_t cap = files->cap ? 2 * files->cap : 4;
        struct flow_segment *segments =
            poise_realloc(files->segments, cap, sizeof *segments);
        if (!segments) {
            return -ENOMEM;
        }
        files->segments = segments;
        files->cap = cap;
    }
    while (at > 0 && files->segments[at - 1].from > in->from) {
        files->segments[at] = files->segments[at - 1];
        at--;
    }
    files->segments[at] = *in;
    files->count++;
    *out = &files->segments[at];
    return 0;
}

int flow_node_segment(struct flow_node *node, struct flow_segment *in)
{
    struct flow_segment *segment;
    in->low = in->from;
    in->open_to = in->from;
    in->own = NULL;
    in->rows = poise_alloc((size_t)(in->to - in->from), sizeof *in->rows);
    int code = in->rows ? segment_insert(node, in, &segment) : -ENOMEM;
    if (code < 0) {
        flow_segment_clear(in);
        flow_segment_free(in);
        return code;
    }
    code = segment_order(node, segment);
    if (code == 0) {
        code = seek_unowned(node, segment);
    }
    code = code == 0 ? flow_block_adopt(node, segment) : code;
    code = code == 0 ? flow_block_resolve(node) : code;
    if (code == 0) {
        code = segment->own->count > 0 ? flow_segment_open(node, segment)
                                       : segment_advance(node, segment);
    }
    return code == 0 ? flow_node_settle(node) : code;
}

void flow_segment_clear(struct flow_segment *segment)
{
    flow_own_drop(segment->own);
    free(segment->rows);
    segment->own = NULL;
    segment->rows = NULL;
}

/* ---- lines, and going back to them --------------------------------------- */

bool flow_node_line_is_done(const struct flow_node *node)
{
    for (uint32_t f = 0; f < node->job->file_count; f++) {
        if (flow_file_low(node, f) <= node->next_line) {
            return false;
        }
    }
    return node->next_line >= 0;
}

int flow_node_line(struct flow_node *node, int64_t line)
{
    int code = 0;
    flow_node_count(node);
    node->line_told = false;
    node->next_line = line;
    if (node->forgot > line || line <= node->line) {
        node->missed = line;
        node->next_line = -1;
        return 0;
    }
    struct flow_walk walk = {0};
    struct flow_block *block;
    while (code == 0 && (block = flow_walk_next(node, &walk))) {
        code = block->made ? flow_block_keep(node, block) : 0;
    }
    flow_block_sweep(node); /* the line asked for before may be given up */
    return code;
}

/* What of a segment was done after the line is not any more; nor is it known
 * whose it is. */
static void segment_rollback(struct flow_node *node,
                             struct flow_segment *segment, int64_t line)
{
    uint64_t count = segment->own ? segment->own->count : 0;
    int64_t low = line < segment->from ? segment->from
                  : line < segment->to ? line + 1
                                       : segment->to;
    for (int64_t v = low; v < segment->to; v++) {
        const struct flow_row *row = flow_row_of(segment, v);
        uint64_t left = v < segment->low ? 0
                        : row            ? flow_row_left(node, row)
                                         : count;
        node->stats.redone += count - left;
    }
    flow_rows_rollback(node, segment, line);
    flow_own_drop(segment->own);
    segment->own = NULL;
    segment->low = segment->open_to = low;
}

void flow_node_rollback(struct flow_node *node, int64_t line)
{
    flow_node_count(node);
    node->inherits = true;
    node->advance = false;
    node->line = node->base = node->forgot = line;
    node->next_line = node->missed = -1;
    node->oldest = -1; /* until the map says what it is now */
    flow_task_rollback(node);
    flow_block_rollback(node, line);
    for (uint32_t f = 0; f < node->job->file_count; f++) {
        for (uint32_t s = 0; s < node->files[f].count; s++) {
            segment_rollback(node, &node->files[f].segments[s], line);
        }
    }
}

int flow_node_inherit(struct flow_node *node)
{
    int code = 0;
    node->inherits = false;
    for (uint32_t f = 0; f < node->job->file_count; f++) {
        struct flow_files *files = &node->files[f];
        for (uint32_t s = 0; code == 0 && s < files->count; s++) {
            code = segment_order(node, &files->segments[s]);
        }
    }
    code = code == 0 ? flow_block_adopt(node, NULL) : code;
    for (uint32_t f = 0; f < node->job->file_count; f++) {
        struct flow_files *files = &node->files[f];
        for (uint32_t s = 0; code == 0 && s < files->count; s++) {
            struct flow_segment *segment = &files->segments[s];
            code = segment->own->count > 0 ? flow_segment_open(node, segment)
                                           : segment_advance(node, segment);
        }
    }
    return code;
}
