/* Nodes: their life, and what is settled after each step. */
#include "internal.h"

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
    pthread_mutexattr_t spins;
    pthread_mutexattr_init(&spins);
    pthread_mutexattr_settype(&spins, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&node->lock, &spins);
    pthread_mutexattr_destroy(&spins);
    pthread_cond_init(&node->work, NULL);
    pthread_cond_init(&node->event, NULL);
    node->job = job;
    node->options = options;
    node->id = id;
    node->window = options->window ? options->window : 4;
    node->threads = options->threads ? options->threads : 1;
    node->now_ns = poise_clock_ns();
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
