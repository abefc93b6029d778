/*
 * What is common in the life of a task, by processors that are inside, several
 * at a time: all it depends on, and all that depends on it, are own blocks.
 *
 * A version is opened by one of them: each task takes a reference to each block
 * that it needs, and enters its list of waiters unless that is closed. Who ends
 * a task closes the list and counts down what the waiters miss; who takes the
 * last one from that has a ready task. Then it gives back what the task held;
 * who gives back the last of a block frees it.
 *
 * A task that takes more is left as it was, to who has the node: everything is
 * looked at before anything is changed.
 */
#include "state.h"

#include <errno.h>
#include <stdlib.h>

/** Of blocks that a processor made or freed before it tells. */
#define BYTES_MOST 4096
/** Unused tasks that a processor keeps. */
#define UNUSED_MOST 64

/* ---- callbacks ---------------------------------------------------------- */

/* The dependencies of a block, on processor->list: 1, or all else. */
static int ask(struct flow_processor *processor, const struct flow_key *key,
               const struct poise_flow_address *address,
               enum poise_flow_direction direction)
{
    const struct flow_node *node = processor->node;
    const struct poise_flow_app *app = &node->job->app;
    processor->list.count = 0;
    processor->asker.tripped = false;
    processor->asker.address = *address;
    int code =
        app->depend(&processor->asker, address, flow_file(node, key->file),
                    direction, &processor->list, app->arg);
    return processor->asker.tripped ? -EAGAIN : code;
}

/* ---- small steps -------------------------------------------------------- */

/* Else the node is had, or a visitor has what is the processor's. */
static bool is_inside(const struct flow_processor *processor)
{
    return atomic_load_explicit(&processor->inside, memory_order_relaxed);
}

static void leave_slow(struct flow_processor *processor,
                       struct poise_flow_task *task)
{
    task->next = processor->slow;
    processor->slow = task;
}

void flow_task_is_ready(struct flow_processor *processor,
                        struct poise_flow_task *task)
{
    struct flow_node *node = processor->node;
    struct flow_heap *heap = node->careful ? &node->ready : &processor->heap;
    task->state = FLOW_READY;
    if (node->careful && node->idle > 0) {
        pthread_cond_signal(&node->work);
    }
    if (flow_heap_push(heap, task) < 0) {
        task->state = FLOW_WAITING;
        leave_slow(processor, task); /* where it fails with an error */
    }
    flow_ready_tell(processor);
}

/* It goes to who has its neighbours. From inside only that one touches its own
 * heap. */
static void ready(struct flow_processor *processor,
                  struct poise_flow_task *task)
{
    struct flow_processor *home = &processor->node->processors[task->home];
    task->ready_ns = processor->now_ns;
    if (home == processor || !is_inside(processor)) {
        flow_task_is_ready(home, task);
        return;
    }
    task->next = NULL; /* a look would get the line once more */
    while (!atomic_compare_exchange_weak_explicit(&home->given, &task->next,
                                                  task, memory_order_release,
                                                  memory_order_relaxed)) {
    }
    processor->gave = true;
}

/* A block that is EMPTY now. Its bytes. */
static uint64_t block_empty(struct flow_processor *processor,
                            struct flow_block *block)
{
    uint64_t len = block->made->len;
    block->made->next = processor->trash;
    processor->trash = block->made;
    processor->stats.freed++;
    if (block->newest > processor->forgot) {
        processor->forgot = block->newest;
    }
    if (block->more) {
        free(block->more->readers);
        free(block->more);
    }
    block->made = NULL;
    block->more = NULL;
    block->newest = -1;
    block->state = FLOW_UNSOUGHT;
    block->result = FLOW_NO_RESULT;
    atomic_store_explicit(&block->waiters, NULL, memory_order_relaxed);
    flow_row_emptied(block->row,
                     (unsigned)(processor - processor->node->processors));
    return len;
}

static uint64_t drop(struct flow_processor *processor, struct flow_block *block,
                     bool used)
{
    flow_line_fetch(block);
    return flow_life_drop(&block->life, used) ? block_empty(processor, block)
                                              : 0;
}

/* Seldom, where there are others: they would take that line from each other
 * with each task. */
static void add_bytes(struct flow_processor *processor, int64_t more)
{
    processor->bytes += more;
    if (processor->node->threads == 1 || processor->bytes > BYTES_MOST ||
        processor->bytes < -BYTES_MOST) {
        flow_node_add_bytes(processor->node, processor->bytes);
        processor->bytes = 0;
    }
}

/* Only it writes that. */
static void raise_to(_Atomic int64_t *most, int64_t value)
{
    if (value > atomic_load_explicit(most, memory_order_relaxed)) {
        atomic_store_explicit(most, value, memory_order_relaxed);
    }
}

/* ---- opening ------------------------------------------------------------ */

static bool edges_reserve(struct poise_flow_task *task, size_t count)
{
    if (count > FLOW_FEW) {
        struct flow_edge *edges = poise_alloc(count, sizeof *edges);
        if (!edges) {
            return false;
        }
        task->edges = edges;
    }
    return true;
}

static bool is_done(const void *of)
{
    return flow_row_has_done(of);
}

static bool block_take(struct flow_processor *processor,
                       struct flow_block *block)
{
    flow_line_fetch(block);
    if (!block->row->whole) {
        return flow_life_take(&block->life);
    }
    if (!flow_life_take_first(&block->life, is_done, block)) {
        return false;
    }
    if (!(flow_life_word(&block->life) & FLOW_LIFE_HERE) && is_done(block)) {
        add_bytes(processor, -(int64_t)drop(processor, block, false));
        return false;
    }
    return true;
}

/* Reference what is on the list. False: not all of it is an own block that will
 * be written or is here. */
static bool edges_take(struct flow_processor *processor,
                       struct poise_flow_task *task)
{
    struct flow_node *node = processor->node;
    const struct poise_flow_list *list = &processor->list;
    struct flow_key key;
    size_t taken = 0;
    if (!edges_reserve(task, list->count)) {
        return false;
    }
    for (size_t i = 0; i < list->count; i++) {
        task->edges[i].block =
            flow_key_of(node->job, &list->items[i], &key) == 0
                ? flow_row_block(node, &key)
                : NULL;
        if (task->edges[i].block) {
            flow_line_fetch(task->edges[i].block);
        }
    }
    for (; taken < list->count; taken++) {
        struct flow_block *block = task->edges[taken].block;
        if (!block || block == task->block || !block_take(processor, block)) {
            break;
        }
        task->edges[taken] = (struct flow_edge){task, NULL, block};
    }
    if (taken == list->count) {
        task->edge_count = (uint32_t)taken;
        task->in_rows = true;
        return true;
    }
    while (taken > 0) {
        struct flow_block *block = task->edges[--taken].block;
        add_bytes(processor, -(int64_t)drop(processor, block, false));
    }
    if (task->edges != task->few) {
        free(task->edges);
        task->edges = task->few;
    }
    return false;
}

/* Wait for it. False: it is here. */
static bool edge_wait(struct flow_edge *edge)
{
    _Atomic(struct flow_edge *) *at = &edge->block->waiters;
    flow_line_fetch(edge->block);
    struct flow_edge *first = atomic_load_explicit(at, memory_order_acquire);
    do {
        if (first == flow_closed()) {
            return false;
        }
        edge->next = first;
    } while (!atomic_compare_exchange_weak_explicit(
        at, &first, edge, memory_order_release, memory_order_acquire));
    return true;
}

static void task_ask(struct flow_processor *processor,
                     struct poise_flow_task *task, const struct flow_key *key)
{
    uint32_t here = 1; /* until all of its edges wait */
    if (ask(processor, key, &task->address, POISE_FLOW_BACKWARD) <= 0 ||
        !edges_take(processor, task)) {
        leave_slow(processor, task);
        return;
    }
    task->known = true;
    atomic_store_explicit(&task->missing, task->edge_count + 1,
                          memory_order_relaxed);
    for (uint32_t i = 0; i < task->edge_count; i++) {
        here += !edge_wait(&task->edges[i]);
    }
    if (atomic_fetch_sub_explicit(&task->missing, here, memory_order_acq_rel) ==
        here) {
        ready(processor, task);
    }
}

static void block_begin(struct flow_block *block, struct poise_flow_task *task)
{
    block->task = task;
    block->state = FLOW_OPEN;
    block->role = FLOW_OWN;
    flow_life_open(&block->life);
}

/* Its task is one of the row's. False: it needs none, or was left. */
static bool block_open(struct flow_processor *processor, struct flow_row *row,
                       uint32_t i)
{
    struct flow_node *node = processor->node;
    struct flow_block *block = &row->blocks[i];
    struct poise_flow_task *task = &row->slab->tasks[i];
    struct flow_key key = {row->file, row->version, row->own->mine[i]};
    bool is_new =
        flow_life_word(&block->life) == FLOW_LIFE_EMPTY && !block->more;
    if (flow_row_has_done(block)) {
        return false;
    }
    if (!is_new || (node->early > 0 && flow_block_find(node, &key))) {
        flow_task_init(task, node, NULL, &key, i);
        leave_slow(processor, task);
        return false;
    }
    block_begin(block, task);
    return true;
}

void flow_open_share(struct flow_processor *processor,
                     const struct flow_share *share)
{
    struct flow_row *row = share->row;
    struct flow_slab *slab = share->slab;
    uint16_t home = share->home;
    bool whole = row->whole;
    if (whole) {
        flow_row_share(row, home);
    }
    /* After the last one the row may be complete, and its slab another's. */
    uint32_t left = share->asks;
    for (uint32_t i = 0; left > 0; i++) {
        if (row->own->home[i] == home && (whole || slab->asks[i])) {
            struct flow_key key = {row->file, row->version, row->own->mine[i]};
            left--;
            if (whole) {
                block_begin(&row->blocks[i], &slab->tasks[i]);
            }
            flow_task_init(&slab->tasks[i], processor->node, &row->blocks[i],
                           &key, i);
            task_ask(processor, &slab->tasks[i], &key);
        }
    }
}

void flow_open_shares(struct flow_processor *processor,
                      struct flow_share *shares)
{
    while (shares) {
        const struct flow_share *share = shares;
        shares = shares->next; /* which may be another's when it is open */
        flow_open_share(processor, share);
    }
}

/* Have another one ask for its share itself: so what its tasks are made of
 * stays in its cache. */
static void share_give(struct flow_processor *processor,
                       struct flow_processor *to, struct flow_share *share)
{
    share->next = NULL;
    while (!atomic_compare_exchange_weak_explicit(&to->shares, &share->next,
                                                  share, memory_order_release,
                                                  memory_order_relaxed)) {
    }
    processor->gave = true;
}

int flow_open_row(struct flow_processor *processor,
                  struct flow_segment *segment, int64_t version)
{
    struct flow_node *node = processor->node;
    struct flow_row *row = flow_row_whole(node, segment, version);
    if (!row) {
        return -ENOMEM;
    }
    struct flow_slab *slab = row->slab;
    struct flow_share *own = NULL;
    for (unsigned p = 0; p < node->threads; p++) {
        slab->shares[p] = (struct flow_share){NULL,
                                              row,
                                              slab,
                                              &row->of_home[p],
                                              row->whole ? row->own->of[p] : 0,
                                              (uint16_t)p};
    }
    /* All are open before one is asked for: they may need each other. */
    for (uint32_t i = 0; !row->whole && i < row->own->count; i++) {
        slab->asks[i] = block_open(processor, row, i);
        slab->shares[row->own->home[i]].asks += slab->asks[i];
    }
    for (unsigned p = 0; p < node->threads; p++) {
        struct flow_share *share = &slab->shares[p];
        struct flow_processor *home = &node->processors[p];
        if (share->asks == 0) {
            continue;
        }
        if (home != processor && is_inside(processor) && !node->careful) {
            share_give(processor, home, share);
        } else {
            share->next = own;
            own = share;
        }
    }
    flow_open_shares(processor, own);
    return 0;
}

/* ---- versions ----------------------------------------------------------- */

static void segment_step(struct flow_processor *processor,
                         struct flow_segment *segment)
{
    struct flow_node *node = processor->node;
    int64_t low = atomic_load_explicit(&segment->low, memory_order_relaxed);
    if (!segment->own || segment->own->count == 0 || low == segment->to) {
        return;
    }
    while (low < segment->to) {
        struct flow_row *row = flow_row_of(segment, low);
        if (!row || atomic_load_explicit(&row->left, memory_order_acquire)) {
            break;
        }
        flow_row_slab_done(node, row);
        node->completed += row->own->count;
        atomic_store_explicit(&segment->low, ++low, memory_order_relaxed);
    }
    processor->completes |= low == segment->to;
    while (!node->job->app.iterate && segment->open_to < segment->to &&
           segment->open_to < low + node->window) {
        if (flow_open_row(processor, segment, segment->open_to) < 0) {
            processor->settles = true;
            break;
        }
        segment->open_to++;
    }
}

/* What the next version is made of. */
static void next_fetch(const struct flow_node *node)
{
    if (node->threads > 1 && node->spare_rows) {
        flow_line_fetch(node->spare_rows);
        flow_line_fetch(&node->spare_rows->left);
    }
    if (node->threads > 1 && node->slabs) {
        flow_line_fetch(node->slabs->shares);
    }
}

void flow_advance(struct flow_processor *processor)
{
    struct flow_node *node = processor->node;
    atomic_store(&node->advance, true);
    while (atomic_load(&node->advance) &&
           !atomic_exchange(&node->advancing, true)) {
        atomic_store(&node->advance, false);
        for (uint32_t f = 0; f < node->job->file_count; f++) {
            struct flow_files *files = &node->files[f];
            for (uint32_t s = 0; s < files->count; s++) {
                segment_step(processor, &files->segments[s]);
            }
        }
        processor->settles |= node->completed >= node->completed_most;
        next_fetch(node);
        atomic_store(&node->advancing, false);
    }
    processor->settles |= node->job->app.iterate || node->unresolved ||
                          (node->next_line >= 0 && !node->line_told &&
                           flow_node_line_is_done(node));
}

/* ---- ending ------------------------------------------------------------- */

/* Whether a call of compute did what is common. */
static bool is_common(const struct flow_node *node,
                      const struct poise_flow_task *task,
                      const struct flow_key *key)
{
    const struct flow_block *block = task->block;
    if (node->careful || task->abandoned || task->redo ||
        task->written_count != 1 || task->view_count > 0 ||
        task->more.count > 0 || task->made || !block->row || block->more ||
        !flow_key_same(&task->written[0].key, key) ||
        (flow_life_word(&block->life) & (FLOW_LIFE_HELD | FLOW_LIFE_HERE))) {
        return false;
    }
    for (uint32_t i = 0; !task->in_rows && i < task->edge_count; i++) {
        if (!task->edges[i].block->row) {
            return false;
        }
    }
    return true;
}

/* Whether a block that depends on one that was not here until now was computed
 * already. In a row that is plain there is none, and nobody looks at blocks
 * that others are about to change. */
static bool is_dependent_done(const struct flow_node *node,
                              const struct flow_key *key)
{
    const struct flow_segment *segment =
        flow_segment_of(node, key->file, key->version);
    const struct flow_row *row = flow_row_of(segment, key->version);
    return !(row && row->plain) && flow_is_done(node, key);
}

/* How many own blocks depend on it. False: others do, or nobody knows. */
static bool count_uses(struct flow_processor *processor,
                       const struct poise_flow_task *task,
                       const struct flow_key *key, uint64_t *uses,
                       int64_t *newest)
{
    const struct flow_node *node = processor->node;
    const struct poise_flow_app *app = &node->job->app;
    const struct poise_flow_list *list = &processor->list;
    struct flow_key other;
    *uses = 0;
    *newest = -1;
    if (ask(processor, key, &task->address, POISE_FLOW_FORWARD) <= 0 ||
        list->count == 0) {
        return false;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (flow_key_of(node->job, &list->items[i], &other) < 0 ||
            !flow_is_mine(node, &other)) {
            return false;
        }
        *newest = other.version > *newest ? other.version : *newest;
        *uses += other.version > node->base && !is_dependent_done(node, &other);
    }
    return !app->is_result ||
           !app->is_result(&task->address, flow_file(node, key->file),
                           app->arg);
}

/* What a segment costs, for the map. False: the one before was not counted. */
static bool count_part(struct flow_processor *processor,
                       const struct flow_key *key, uint64_t took_ns)
{
    const struct flow_node *node = processor->node;
    struct flow_part *part = &processor->parts[key->file];
    const struct flow_segment *segment =
        flow_segment_of(node, key->file, key->version);
    if (!node->net || !segment ||
        key->version == flow_file(node, key->file)->versions.from) {
        return true; /* made of nothing, it says nothing of what comes later */
    }
    if (part->segment != segment->from && part->blocks > 0) {
        return false;
    }
    part->segment = segment->from;
    part->blocks++;
    part->ns += took_ns;
    return true;
}

void flow_end_fetch(const struct poise_flow_task *task)
{
    flow_line_fetch(task->block);
    for (uint32_t i = 0; i < task->edge_count && i < FLOW_FEW; i++) {
        flow_line_fetch(task->edges[i].block);
    }
}

/* Those that wait for its block: when it ends, it changes what they miss. The
 * first line of a task is in front of its first edges. */
static void waiters_fetch(const struct poise_flow_task *task)
{
    const struct flow_edge *edge = flow_waiters(task->block);
    if (edge) {
        flow_line_fetch(edge);
        flow_line_fetch((const char *)edge - FLOW_LINE_BYTES);
    }
}

void flow_end_fetch_soon(const struct flow_processor *processor,
                         const struct poise_flow_task *task)
{
    const struct flow_row *row = task->block->row;
    waiters_fetch(task);
    if (row && atomic_load_explicit(&row->of_home[task->home].blocks,
                                    memory_order_relaxed) == 1) {
        flow_line_fetch(&row->left); /* it is the last one of this home */
    }
    if (processor->heap.count > 0) {
        flow_end_fetch(processor->heap.items[0]);
    }
}

/* Wake those that waited for it. */
static void close_waiters(struct flow_processor *processor,
                          struct flow_block *block)
{
    struct flow_edge *edge = atomic_exchange_explicit(
        &block->waiters, flow_closed(), memory_order_acq_rel);
    while (edge) {
        struct flow_edge *next = edge->next;
        struct poise_flow_task *task = edge->task;
        if (atomic_fetch_sub_explicit(&task->missing, 1,
                                      memory_order_acq_rel) == 1) {
            if (task->known) {
                ready(processor, task);
            } else {
                leave_slow(processor, task);
            }
        }
        edge = next;
    }
}

static void task_put_away(struct flow_processor *processor,
                          struct poise_flow_task *task)
{
    if (task->edges != task->few) {
        free(task->edges);
    }
    if (task->written != &task->one) {
        free(task->written);
    }
    free(task->views);
    free(task->more.items);
    task->edges = task->few;
    task->edge_count = 0;
    task->written = NULL;
    task->views = NULL;
    task->written_count = task->written_cap = task->view_cap = 0;
    task->more = (struct poise_flow_list){0};
    if (task->of_slab) {
        return;
    }
    if (processor->unused_count == UNUSED_MOST) {
        free(task);
        return;
    }
    task->next = processor->unused;
    processor->unused = task;
    processor->unused_count++;
}

bool flow_end(struct flow_processor *processor, struct poise_flow_task *task,
              int code, uint64_t took_ns)
{
    struct flow_node *node = processor->node;
    struct flow_block *block = task->block;
    struct flow_key key = flow_block_key(block);
    struct flow_row *row = block->row;
    uint64_t uses, more, less = 0;
    int64_t newest;
    if (code != 0 || !is_common(node, task, &key) ||
        !count_uses(processor, task, &key, &uses, &newest) ||
        (key.version <= node->next_line && newest > node->next_line) ||
        !count_part(processor, &key, took_ns)) {
        return false;
    }
    block->made = task->written[0].made;
    block->newest = newest;
    block->state = FLOW_HERE;
    block->task = NULL;
    more = block->made->len;
    flow_row_set_done(block);
    raise_to(&processor->parts[key.file].newest, key.version);
    flow_life_here(&block->life, uses);
    close_waiters(processor, block);
    for (uint32_t i = 0; i < task->edge_count; i++) {
        less += drop(processor, task->edges[i].block, true);
    }
    less += drop(processor, block, false);
    add_bytes(processor, (int64_t)(more - less));
    processor->stats.blocks++;
    processor->stats.compute_ns += took_ns;
    task_put_away(processor, task);
    processor->current = NULL;
    if (flow_row_done(row, (uint32_t)(block - row->blocks))) {
        flow_advance(processor);
    }
    return true;
}
