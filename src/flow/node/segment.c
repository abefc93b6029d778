/*
 * Segments: which versions of a file are assigned, to whom, and how far this
 * node is with its own. A version of a segment is opened (tasks are made for
 * its blocks) when it comes within the window of the oldest one that is not
 * complete: so the memory for what is to be done is bounded, and so is what is
 * fetched ahead.
 */
#include "internal.h"

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

static bool bit_of(const struct flow_row *row, uint64_t place)
{
    return row->bits[place / 64] >> (place % 64) & 1;
}

bool flow_is_done(const struct flow_node *node, const struct flow_key *key)
{
    const struct flow_segment *segment =
        flow_segment_of(node, key->file, key->version);
    if (!segment || !segment->is_mine[key->place]) {
        return false;
    }
    const struct flow_row *row = segment->rows[key->version - segment->from];
    return key->version < segment->low || (row && bit_of(row, key->place));
}

bool flow_is_mine(const struct flow_node *node, const struct flow_key *key)
{
    const struct flow_segment *segment =
        flow_segment_of(node, key->file, key->version);
    return segment && segment->is_mine[key->place];
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
    for (; segment->low < segment->to; segment->low++) {
        struct flow_row **row = &segment->rows[segment->low - segment->from];
        if (segment->mine_count > 0 && (!*row || (*row)->left > 0)) {
            break;
        }
        free(*row);
        *row = NULL;
    }
    if (segment->low == before) {
        return 0;
    }
    if (segment->low == segment->to) {
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
    struct flow_row **row = &segment->rows[key->version - segment->from];
    if (!*row) {
        uint64_t places = flow_shape_places(flow_file(node, key->file));
        *row = poise_alloc(1, sizeof **row +
                                  (places + 63) / 64 * sizeof((*row)->bits[0]));
        if (!*row) {
            return -ENOMEM;
        }
        (*row)->left = segment->mine_count;
    }
    (*row)->bits[key->place / 64] |= UINT64_C(1) << key->place % 64;
    (*row)->left--;
    node->advance |= (*row)->left == 0;
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
        if (segment->owner[key.place] == node->id) {
            code = open_one(node, &key, preference++);
        }
    }
    app->done(iterator);
    return code;
}

int flow_segment_open(struct flow_node *node, struct flow_segment *segment)
{
    bool iterated = node->job->app.iterate != NULL;
    int64_t step = iterated ? node->window : 1;
    int code = 0;
    while (code == 0 && !node->inherits && segment->open_to < segment->to &&
           segment->open_to < segment->low + node->window) {
        int64_t to = segment->to - segment->open_to > step
                         ? segment->open_to + step
                         : segment->to;
        if (iterated) {
            code = open_iterated(node, segment, to);
        }
        while (code == 0 && segment->open_to < to) {
            struct flow_key key = {segment->file, segment->open_to, 0};
            for (uint64_t i = 0; code == 0 && i < segment->mine_count; i++) {
                key.place = segment->mine[i];
                /* Behind what the iterator named. */
                code = open_one(node, &key, iterated ? UINT32_MAX : i);
            }
            segment->open_to++;
        }
    }
    return code;
}

/* ---- taking over -------------------------------------------------------- */

/* Whether somebody else waits for a block of ours: 1, 0 or negative. */
static int is_border(struct flow_node *node, const struct flow_key *key)
{
    struct flow_key other;
    int code = flow_ask(node, key, POISE_FLOW_FORWARD);
    for (size_t i = 0; code > 0 && i < node->list.count; i++) {
        code = flow_key_of(node->job, &node->list.items[i], &other);
        if (code < 0) {
            return code;
        }
        uint16_t owner = flow_owner(node, &other);
        if (owner != node->id && owner != FLOW_NOBODY) {
            return 1;
        }
        code = 1;
    }
    return code < 0 ? code : 0;
}

/* The node's places, those first that others wait for. */
static int segment_order(struct flow_node *node, struct flow_segment *segment)
{
    uint64_t places = flow_shape_places(flow_file(node, segment->file));
    uint64_t front = 0, back = 0;
    uint64_t *inner = poise_alloc(places, sizeof *inner);
    free(segment->mine);
    free(segment->is_mine);
    segment->mine = poise_alloc(places, sizeof *segment->mine);
    segment->is_mine = poise_alloc(places, sizeof *segment->is_mine);
    int code = inner && segment->mine && segment->is_mine ? 0 : -ENOMEM;
    for (uint64_t p = 0; code >= 0 && p < places; p++) {
        struct flow_key key = {segment->file, segment->from, p};
        if (segment->owner[p] != node->id) {
            continue;
        }
        segment->is_mine[p] = true;
        code = node->net ? is_border(node, &key) : 0;
        if (code > 0) {
            segment->mine[front++] = p;
        } else {
            inner[back++] = p;
        }
    }
    for (uint64_t i = 0; code >= 0 && i < back; i++) {
        segment->mine[front + i] = inner[i];
    }
    segment->mine_count = front + back;
    free(inner);
    return code < 0 ? code : 0;
}

/* Blocks that nobody was known to own are looked for once more. */
static int seek_unowned(struct flow_node *node, uint32_t file)
{
    int code = 0;
    for (uint64_t i = 0; code == 0 && i <= node->table_mask; i++) {
        for (struct flow_block *b = node->table[i]; code == 0 && b;
             b = b->next) {
            if (b->key.file == file && b->waiters) {
                code = flow_block_seek(node, b);
            }
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
    in->mine = NULL;
    in->is_mine = NULL;
    in->rows = poise_alloc((size_t)(in->to - in->from), sizeof *in->rows);
    int code = in->rows ? segment_insert(node, in, &segment) : -ENOMEM;
    if (code < 0) {
        flow_segment_free(in);
        return code;
    }
    code = segment_order(node, segment);
    if (code == 0) {
        code = seek_unowned(node, segment->file);
    }
    code = code == 0 ? flow_block_adopt(node, segment) : code;
    code = code == 0 ? flow_block_resolve(node) : code;
    if (code == 0) {
        code = segment->mine_count > 0 ? flow_segment_open(node, segment)
                                       : segment_advance(node, segment);
    }
    return code == 0 ? flow_node_settle(node) : code;
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
    node->line_told = false;
    node->next_line = line;
    if (node->forgot > line || line <= node->line) {
        node->missed = line;
        node->next_line = -1;
        return 0;
    }
    for (uint64_t i = 0; code == 0 && i <= node->table_mask; i++) {
        for (struct flow_block *b = node->table[i]; code == 0 && b;
             b = b->next) {
            code = b->made ? flow_block_keep(node, b) : 0;
        }
    }
    return code;
}

/* What of a segment was done after the line is not any more; nor is it known
 * whose it is. */
static void segment_rollback(struct flow_node *node,
                             struct flow_segment *segment, int64_t line)
{
    uint64_t places = flow_shape_places(flow_file(node, segment->file));
    int64_t low = line < segment->from ? segment->from
                  : line < segment->to ? line + 1
                                       : segment->to;
    for (int64_t v = segment->from; v < segment->to; v++) {
        struct flow_row **row = &segment->rows[v - segment->from];
        uint64_t left = v < segment->low ? 0
                        : *row           ? (*row)->left
                                         : segment->mine_count;
        node->stats.redone += v >= low ? segment->mine_count - left : 0;
        free(*row);
        *row = NULL;
    }
    segment->low = segment->open_to = low;
    segment->mine_count = 0;
    memset(segment->is_mine, 0, places * sizeof *segment->is_mine);
}

void flow_node_rollback(struct flow_node *node, int64_t line)
{
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
            code = segment->mine_count > 0 ? flow_segment_open(node, segment)
                                           : segment_advance(node, segment);
        }
    }
    return code;
}
