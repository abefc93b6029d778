/*
 * Tasks: one for each own block that is open. A task holds a reference to each
 * block that it depends on, be it here yet or not, and is ready when the last
 * one came.
 */
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of questions about dependencies in a row that are answered by 'not known'
 * although all that is asked for is there. */
#define ASKS_MOST 1000

int flow_ask(struct flow_node *node, const struct flow_key *key,
             enum poise_flow_direction direction)
{
    struct poise_flow_task *asker = &node->asker;
    const struct poise_flow_app *app = &node->job->app;
    struct poise_flow_address address;
    flow_shape_address(flow_file(node, key->file), key, &address);
    node->list.count = 0;
    asker->address = address;
    poise_error_clear();
    int code = app->depend(asker, &address, flow_file(node, key->file),
                           direction, &node->list, app->arg);
    flow_task_tidy(asker);
    if (code < 0) {
        return flow_callback_error(node->job, code,
                                   "ask for dependencies of block", &address);
    }
    return code > 0 ? 1 : 0;
}

/* ---- dependencies ------------------------------------------------------- */

static void edges_drop(struct poise_flow_task *task, bool done)
{
    struct flow_node *node = task->node;
    struct flow_edge *edges = task->edges, few[FLOW_FEW];
    uint32_t count = task->edge_count;
    if (edges == task->few) {
        memcpy(few, task->few, sizeof few);
        edges = few;
    }
    task->edges = task->few;
    task->edge_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct flow_block *block = edges[i].block;
        uint64_t word = flow_life_word(&block->life);
        word -= done && block->made && flow_life_uses(word) > 0 ? FLOW_USE : 0;
        flow_life_set(&block->life, word - FLOW_REF);
        flow_block_release(node, block);
    }
    if (edges != few) {
        free(edges);
    }
}

/* Depend on one more block; there is room for it. */
static int edge_add(struct poise_flow_task *task,
                    const struct poise_flow_address *on)
{
    struct flow_node *node = task->node;
    struct flow_edge *edge = &task->edges[task->edge_count];
    struct flow_key key;
    int code = flow_key_of(node->job, on, &key);
    if (code < 0) {
        return code;
    }
    struct flow_block *block = flow_block_get(node, &key);
    if (!block) {
        return -ENOMEM;
    }
    if (block == task->block) {
        return flow_error(node->job, ELOOP, "compute block", on,
                          "it depends on itself");
    }
    *edge = (struct flow_edge){task, NULL, block};
    task->edge_count++;
    flow_block_take(block);
    if (!block->made) {
        edge->next = flow_waiters(block);
        atomic_store_explicit(&block->waiters, edge, memory_order_relaxed);
        task->missing++;
        return flow_block_seek(node, block);
    }
    return 0;
}

/* Room for `count` edges. None waits: they may move. */
static int edges_reserve(struct poise_flow_task *task, size_t count)
{
    if (count <= FLOW_FEW && task->edges == task->few) {
        return 0;
    }
    struct flow_edge *edges = poise_alloc(count, sizeof *edges);
    if (!edges) {
        return -ENOMEM;
    }
    memcpy(edges, task->edges, task->edge_count * sizeof *edges);
    if (task->edges != task->few) {
        free(task->edges);
    }
    task->edges = edges;
    return 0;
}

static int edges_add(struct poise_flow_task *task,
                     const struct poise_flow_list *list)
{
    int code = edges_reserve(task, task->edge_count + list->count);
    task->in_rows = false;
    for (size_t i = 0; code == 0 && i < list->count; i++) {
        code = edge_add(task, &list->items[i]);
    }
    return code;
}

/* The processor that has the fewest tasks gets one that has no home; all are
 * outside. */
static int give(struct flow_node *node, struct poise_flow_task *task)
{
    struct flow_processor *best = &node->processors[task->home];
    for (unsigned p = 0; !task->block->row && p < node->threads; p++) {
        struct flow_processor *other = &node->processors[p];
        size_t count = other->heap.count + (other->current != NULL);
        if (count < best->heap.count + (best->current != NULL)) {
            best = other;
        }
    }
    int code = flow_heap_push(&best->heap, task);
    flow_ready_tell(best);
    return code;
}

static int task_ready(struct poise_flow_task *task)
{
    struct flow_node *node = task->node;
    task->state = FLOW_READY;
    task->ready_ns = node->now_ns;
    if (node->careful && node->idle > 0) {
        pthread_cond_signal(&node->work);
    }
    return node->careful ? flow_heap_push(&node->ready, task)
                         : give(node, task);
}

int flow_task_ask(struct poise_flow_task *task)
{
    struct flow_node *node = task->node;
    for (unsigned round = 0; round < ASKS_MOST; round++) {
        edges_drop(task, false);
        struct flow_key key = flow_block_key(task->block);
        int code = flow_ask(node, &key, POISE_FLOW_BACKWARD);
        if (code < 0) {
            return code;
        }
        task->known = code > 0;
        if (!task->known && node->list.count == 0) {
            break;
        }
        code = edges_add(task, &node->list);
        if (code < 0 || task->missing > 0) {
            return code;
        }
        if (task->known) {
            return task_ready(task);
        }
    }
    return flow_error(node->job, EPROTO, "ask for dependencies of block",
                      &task->address,
                      "they stay unknown though nothing is missing");
}

int flow_task_met(struct poise_flow_task *task)
{
    if (--task->missing > 0) {
        return 0;
    }
    return task->known ? task_ready(task) : flow_task_ask(task);
}

/* ---- their life --------------------------------------------------------- */

void flow_task_init(struct poise_flow_task *task, struct flow_node *node,
                    struct flow_block *block, const struct flow_key *key,
                    uint32_t preference)
{
    task->node = node;
    task->block = block;
    task->edges = task->few;
    task->redo = flow_is_done(node, key);
    task->preference = preference;
    task->home = block && block->row
                     ? block->row->own->home[block - block->row->blocks]
                     : 0;
    task->state = FLOW_WAITING;
    task->known = task->abandoned = task->in_rows = false;
    task->processor = NULL;
    task->edge_count = 0;
    atomic_store_explicit(&task->missing, 0, memory_order_relaxed);
    flow_shape_address(flow_file(node, key->file), key, &task->address);
}

int flow_task_open(struct flow_node *node, struct flow_block *block,
                   uint32_t preference)
{
    struct poise_flow_task *task = node->unused;
    struct flow_key key = flow_block_key(block);
    if (task) {
        node->unused = task->next;
    } else {
        task = flow_aligned(sizeof *task);
    }
    if (!task) {
        return -ENOMEM;
    }
    int code = flow_block_become(node, block, FLOW_OPEN);
    if (code < 0) {
        free(task);
        return code;
    }
    flow_task_init(task, node, block, &key, preference);
    block->task = task;
    flow_life_set(&block->life, flow_life_word(&block->life) | FLOW_LIFE_OPEN);
    if (block->row) {
        block->row->whole = false; /* it may be EMPTY once more */
    }
    return flow_task_ask(task);
}

/* What one call of compute left, but for references. */
static void call_clear(struct poise_flow_task *task)
{
    while (task->made) {
        struct flow_made *made = task->made;
        task->made = made->next;
        free(made);
    }
    for (uint32_t i = 0; i < task->written_count; i++) {
        free(task->written[i].made);
    }
    if (task->written != &task->one) {
        free(task->written);
    }
    free(task->views);
    free(task->more.items);
    task->written = NULL;
    task->views = NULL;
    task->written_count = task->written_cap = 0;
    task->view_count = task->view_cap = 0;
    task->more = (struct poise_flow_list){0};
}

void flow_task_tidy(struct poise_flow_task *task)
{
    for (uint32_t i = 0; i < task->view_count; i++) {
        flow_block_give(task->views[i]);
        flow_block_release(task->node, task->views[i]);
    }
    call_clear(task);
}

void flow_task_clear(struct poise_flow_task *task)
{
    call_clear(task);
    if (task->edges != task->few) {
        free(task->edges);
    }
    task->edges = task->few;
    task->edge_count = 0;
}

void flow_task_free(struct poise_flow_task *task)
{
    flow_task_tidy(task);
    edges_drop(task, false);
    if (!task->of_slab) {
        task->next = task->node->unused;
        task->node->unused = task;
    }
}

static void slow_remove(struct poise_flow_task **list,
                        const struct poise_flow_task *task)
{
    while (*list && *list != task) {
        list = &(*list)->next;
    }
    if (*list) {
        *list = task->next;
    }
}

void flow_task_drop(struct poise_flow_task *task)
{
    struct flow_node *node = task->node;
    if (task->state == FLOW_RUNNING) {
        task->redo = true; /* its dependencies are counted down already */
        if (task->of_slab) {
            task->block->row->keeps_slab = true;
        }
        return;
    }
    for (uint32_t i = 0; i < task->edge_count; i++) {
        struct flow_block *block = task->edges[i].block;
        struct flow_edge *edge = flow_waiters(block), *before = NULL;
        while (edge && edge != &task->edges[i]) {
            before = edge;
            edge = edge->next;
        }
        if (edge && before) {
            before->next = edge->next;
        } else if (edge) {
            atomic_store_explicit(&block->waiters, edge->next,
                                  memory_order_relaxed);
        }
    }
    if (task->state == FLOW_READY) {
        flow_heap_remove(task);
    }
    for (unsigned p = 0; p < node->threads; p++) {
        slow_remove(&node->processors[p].slow, task);
    }
    flow_block_untask(task->block);
    flow_task_free(task);
}

void flow_task_rollback(struct flow_node *node)
{
    struct poise_flow_task *all = NULL;
    struct flow_walk walk = {0};
    struct flow_block *block;
    node->ready.count = 0;
    for (unsigned p = 0; p < node->threads; p++) {
        node->processors[p].heap.count = 0;
        node->processors[p].slow = NULL;
    }
    /* First all, and then what they hold: that may be freed by it. */
    while ((block = flow_walk_next(node, &walk))) {
        struct poise_flow_task *task = block->task;
        if (task && task->state == FLOW_RUNNING) {
            task->abandoned = true;
        } else if (task) {
            task->next = all;
            all = task;
        }
    }
    while (all) {
        struct poise_flow_task *task = all;
        all = task->next;
        block = task->block;
        flow_block_untask(block);
        flow_task_free(task);
        flow_block_release(node, block);
    }
}

/* It ran while all went back to a line. */
static int task_forget(struct poise_flow_task *task)
{
    struct flow_block *block = task->block;
    struct flow_node *node = task->node;
    flow_block_untask(block);
    flow_task_free(task);
    flow_block_release(node, block);
    return 0;
}

/* It read blocks that were not there: they are dependencies now. */
static int task_again(struct poise_flow_task *task)
{
    struct poise_flow_list more = task->more;
    task->more = (struct poise_flow_list){0};
    flow_task_tidy(task);
    task->state = FLOW_WAITING;
    int code = edges_add(task, &more);
    free(more.items);
    return code == 0 && task->missing == 0 ? task_ready(task) : code;
}

static bool wrote_own(const struct poise_flow_task *task)
{
    struct flow_key own = flow_block_key(task->block);
    for (uint32_t i = 0; i < task->written_count; i++) {
        if (flow_key_same(&task->written[i].key, &own)) {
            return true;
        }
    }
    return false;
}

int flow_task_end(struct poise_flow_task *task, int code)
{
    struct flow_node *node = task->node;
    struct flow_block *block = task->block;
    if (task->abandoned) {
        return task_forget(task);
    }
    if (code == -EAGAIN && task->more.count > 0) {
        return task_again(task);
    }
    if (code < 0) {
        return flow_callback_error(node->job, code, "compute block",
                                   &task->address);
    }
    if (!wrote_own(task)) {
        return flow_error(node->job, ENODATA, "compute block", &task->address,
                          "the callback did not write it");
    }
    for (uint32_t i = 0; code == 0 && i < task->written_count; i++) {
        struct flow_made *made = task->written[i].made;
        task->written[i].made = NULL;
        code = flow_block_write(node, &task->written[i].key, made, task);
    }
    if (code < 0) {
        return code;
    }
    node->stats.blocks++;
    node->stats.redone += task->redo;
    node->stats.unforeseen += task->redo;
    flow_block_untask(block);
    edges_drop(task, !task->redo);
    flow_task_free(task);
    flow_block_release(node, block);
    return 0;
}
