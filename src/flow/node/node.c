/* Nodes: their life, their processors, and what is settled after each step. */
#include "internal.h"

#include <poise/trace.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_FIRST 256

int flow_node_create(const struct poise_flow_job *job,
                     const struct poise_flow_options *options, unsigned id,
                     struct flow_node **out)
{
    struct flow_node *node = poise_alloc(1, sizeof *node);
    if (!node) {
        return -ENOMEM;
    }
    pthread_mutex_init(&node->lock, NULL);
    pthread_cond_init(&node->work, NULL);
    pthread_cond_init(&node->event, NULL);
    node->job = job;
    node->options = options;
    node->id = id;
    node->window = options->window ? options->window : 4;
    node->asker = (struct poise_flow_task){.node = node, .state = FLOW_ASKING};
    node->asker.edges = node->asker.few;
    node->oldest = INT64_MAX;
    node->oldest_running = INT64_MAX;
    node->open_end = &node->open;
    node->line = node->next_line = node->missed = -1;
    node->forgot = node->base = -1;
    node->table_mask = TABLE_FIRST - 1;
    node->table = poise_alloc(TABLE_FIRST, sizeof(struct flow_block *));
    node->files = poise_alloc(job->file_count, sizeof *node->files);
    if (!node->table || !node->files) {
        flow_node_destroy(node);
        return -ENOMEM;
    }
    for (uint32_t f = 0; f < job->file_count; f++) {
        node->files[f].newest = -1;
    }
    *out = node;
    return 0;
}

void flow_node_destroy(struct flow_node *node)
{
    if (!node) {
        return;
    }
    for (size_t i = 0; i < node->ready.count; i++) {
        if (node->ready.items[i]->state == FLOW_DROPPED) {
            free(node->ready.items[i]);
        }
    }
    flow_block_clear(node);
    while (node->unused) {
        struct poise_flow_task *next = node->unused->next;
        free(node->unused);
        node->unused = next;
    }
    for (uint32_t f = 0; node->files && f < node->job->file_count; f++) {
        for (uint32_t s = 0; s < node->files[f].count; s++) {
            flow_segment_free(&node->files[f].segments[s]);
        }
        free(node->files[f].segments);
    }
    free(node->ready.items);
    free(node->files);
    free(node->list.items);
    flow_failure_free(&node->failure);
    pthread_cond_destroy(&node->event);
    pthread_cond_destroy(&node->work);
    pthread_mutex_destroy(&node->lock);
    free(node);
}

int flow_node_fail(struct flow_node *node, int code)
{
    flow_failure_keep(&node->failure, code);
    node->stop = true;
    pthread_cond_broadcast(&node->work);
    pthread_cond_broadcast(&node->event);
    if (node->net) {
        node->net->notify(node->net);
    }
    return code;
}

bool flow_node_is_done(const struct flow_node *node)
{
    for (uint32_t f = 0; f < node->job->file_count; f++) {
        const struct poise_flow_range *versions = &flow_file(node, f)->versions;
        int64_t to = versions->from;
        for (uint32_t s = 0; s < node->files[f].count; s++) {
            const struct flow_segment *segment = &node->files[f].segments[s];
            if (segment->low < segment->to) {
                return false;
            }
            to = segment->to > to ? segment->to : to;
        }
        if (to < versions->to) {
            return false; /* more is given out, or on its way here */
        }
    }
    return true;
}

bool flow_node_is_stuck(const struct flow_node *node,
                        struct poise_flow_address *out)
{
    if (node->running > 0 || node->ready.count > 0 || node->seeking) {
        return false;
    }
    *out = (struct poise_flow_address){.file = UINT32_MAX};
    if (node->open) {
        *out = node->open->address; /* the first one of those that wait */
    }
    return true;
}

struct flow_block *flow_node_output(struct flow_node *node)
{
    struct flow_block *block = node->outputs;
    if (block) {
        node->outputs = block->next_output;
        node->outputs_last = node->outputs ? node->outputs_last : NULL;
    }
    return block;
}

void flow_node_output_done(struct flow_node *node, struct flow_block *block)
{
    block->result = FLOW_RESULT_DELIVERED;
    flow_block_release(node, block);
}

/* ---- settling ----------------------------------------------------------- */

/* Find the provider of a block. */
static int seek_one(struct flow_node *node, struct flow_block *block)
{
    uint16_t owner = flow_owner(node, &block->key);
    if (owner == node->id && !node->inherits) {
        /* Somebody waits for it: first in its version. */
        return flow_task_open(node, block, 0);
    }
    if (owner == node->id) {
        /* Looked for again when it is taken over. */
        return flow_block_become(node, block, FLOW_UNSOUGHT);
    }
    if (owner == FLOW_NOBODY) {
        int code = flow_block_become(node, block, FLOW_UNSOUGHT);
        return code < 0 ? code
                        : node->net->seek(node->net, block->key.file,
                                          block->key.version);
    }
    int code = flow_block_become(node, block, FLOW_REQUESTED);
    return code < 0 ? code : node->net->fetch(node->net, owner, &block->key);
}

int flow_node_settle(struct flow_node *node)
{
    int code = 0;
    while (code == 0 && (node->seeking || node->advance)) {
        code = node->advance ? flow_node_advance(node)
                             : seek_one(node, node->seeking);
    }
    return code;
}

/* ---- processors --------------------------------------------------------- */

/* Whether a task may run although memory is short: only the oldest versions
 * may, which nobody else has to wait for. */
static bool has_room(const struct flow_node *node,
                     const struct poise_flow_task *task)
{
    uint64_t most = node->options->memory_bytes;
    int64_t version = task->address.version;
    if (most == 0 || node->bytes <= most) {
        return true;
    }
    return version <= node->oldest && version <= node->oldest_running;
}

static struct poise_flow_task *task_next(struct flow_node *node)
{
    while (node->ready.count > 0) {
        struct poise_flow_task *task = node->ready.items[0];
        if (task->state == FLOW_DROPPED) {
            flow_task_free(flow_heap_pop(&node->ready));
            continue;
        }
        return has_room(node, task) ? flow_heap_pop(&node->ready) : NULL;
    }
    return NULL;
}

/* A block of a version as one number: 20 bits of each of its indices. */
static uint64_t block_number(const struct poise_flow_address *address)
{
    uint64_t number = 0;
    for (int i = 0; i < POISE_FLOW_DIMS_MOST; i++) {
        number = number << 20 | ((uint64_t)address->index[i] & 0xfffff);
    }
    return number;
}

/* One task, from ready to done. */
static int task_run(struct flow_node *node, struct poise_flow_task *task)
{
    const struct poise_flow_app *app = &node->job->app;
    const struct poise_flow_chunk *shape = flow_file(node, task->address.file);
    task->state = FLOW_RUNNING;
    node->running++;
    if (task->address.version < node->oldest_running) {
        node->oldest_running = task->address.version;
    }
    pthread_mutex_unlock(&node->lock);

    struct poise_trace_ring *ring = poise_trace_ring();
    uint64_t ticks = poise_trace_ticks(ring), began = poise_clock_ns();
    poise_error_clear();
    int code = app->compute(task, &task->address, shape, app->arg);
    uint64_t took = poise_clock_ns() - began;
    poise_trace_put(ring, POISE_TRACE_BLOCK, (uint64_t)task->address.version,
                    ticks, poise_trace_ticks(ring),
                    block_number(&task->address), (uint64_t)-code);
    if (code == 0 && node->options->check > 0) {
        code = flow_check_compute(task);
    }

    pthread_mutex_lock(&node->lock);
    node->stats.compute_ns += took;
    if (--node->running == 0) {
        node->oldest_running = INT64_MAX;
    }
    if (code == 0 && node->options->check > 0) {
        code = flow_check_lists(node, task);
    }
    if (node->net && code == 0 && !task->abandoned) {
        node->net->computed(node->net, &task->block->key, took);
    }
    code = flow_task_end(task, code);
    if (code < 0) {
        flow_task_tidy(task);
    }
    return code == 0 ? flow_node_settle(node) : code;
}

/* Nothing can be done now. */
static int task_wait(struct flow_node *node)
{
    struct poise_flow_address stuck;
    bool throttled = node->ready.count > 0;
    if (!node->net && !flow_node_is_done(node) &&
        flow_node_is_stuck(node, &stuck)) {
        return flow_explain(node->job, node, &stuck);
    }
    uint64_t began = poise_clock_ns();
    node->idle++;
    if (node->net && node->running == 0) {
        node->net->notify(node->net);
    }
    pthread_cond_wait(&node->work, &node->lock);
    node->idle--;
    uint64_t waited = poise_clock_ns() - began;
    node->stats.wait_ns += waited;
    node->stats.throttled_ns += throttled ? waited : 0;
    return 0;
}

void flow_node_work(struct flow_node *node)
{
    pthread_mutex_lock(&node->lock);
    while (!node->stop) {
        struct poise_flow_task *task = task_next(node);
        int code = task ? task_run(node, task) : task_wait(node);
        if (code < 0) {
            flow_node_fail(node, code);
        } else if (task && node->idle > 0 && node->ready.count > 0) {
            pthread_cond_signal(&node->work); /* there may be room now */
        }
    }
    pthread_mutex_unlock(&node->lock);
}
