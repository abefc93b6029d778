/* Nodes: their life, and what is settled after each step. */
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_FIRST 256

static int processors_create(struct flow_node *node)
{
    uint32_t files = node->job->file_count;
    node->processors = flow_aligned(node->threads * sizeof node->processors[0]);
    int code = node->processors ? 0 : -ENOMEM;
    for (unsigned p = 0; code == 0 && p < node->threads; p++) {
        struct flow_processor *processor = &node->processors[p];
        processor->node = node;
        processor->forgot = -1;
        processor->now_ns = node->now_ns;
        processor->asker = (struct poise_flow_task){
            .node = node, .state = FLOW_ASKING, .hurried = true};
        processor->asker.edges = processor->asker.few;
        processor->parts = flow_aligned(files * sizeof *processor->parts);
        code = processor->parts ? 0 : -ENOMEM;
        for (uint32_t f = 0; code == 0 && f < files; f++) {
            processor->parts[f].newest = -1;
        }
    }
    return code;
}

static void processors_free(struct flow_node *node)
{
    for (unsigned p = 0; node->processors && p < node->threads; p++) {
        struct flow_processor *processor = &node->processors[p];
        while (processor->unused) {
            struct poise_flow_task *next = processor->unused->next;
            free(processor->unused);
            processor->unused = next;
        }
        for (unsigned i = 0; i < FLOW_SPARE_SIZES; i++) {
            flow_trash_free(processor->spare[i]);
        }
        flow_trash_free(processor->trash);
        free(processor->heap.items);
        free(processor->list.items);
        free(processor->parts);
    }
    free(node->processors);
}

int flow_node_create(const struct poise_flow_job *job,
                     const struct poise_flow_options *options, unsigned id,
                     struct flow_node **out)
{
    struct flow_node *node = flow_aligned(sizeof *node);
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
    node->rows_end = &node->rows;
    node->careful = options->memory_bytes > 0 || options->check > 0;
    node->line = node->next_line = node->missed = -1;
    node->forgot = node->base = -1;
    node->table_mask = TABLE_FIRST - 1;
    node->table = poise_alloc(TABLE_FIRST, sizeof(struct flow_block *));
    node->files = poise_alloc(job->file_count, sizeof *node->files);
    if (!node->table || !node->files || processors_create(node) < 0) {
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
    flow_block_clear(node);
    while (node->unused) {
        struct poise_flow_task *next = node->unused->next;
        free(node->unused);
        node->unused = next;
    }
    for (uint32_t f = 0; node->files && f < node->job->file_count; f++) {
        for (uint32_t s = 0; s < node->files[f].count; s++) {
            flow_segment_clear(&node->files[f].segments[s]);
            flow_segment_free(&node->files[f].segments[s]);
        }
        free(node->files[f].segments);
    }
    processors_free(node);
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

/* A block of a segment that an open task is to write, of its oldest version
 * that has one: none is opened before the oldest that is not complete. */
static const struct flow_block *
waits_in_segment(const struct flow_segment *segment)
{
    for (int64_t v = segment->low; v < segment->open_to; v++) {
        const struct flow_row *row = flow_row_of(segment, v);
        for (uint32_t i = 0; row && row->left > 0 && i < row->own->count; i++) {
            if (row->blocks[i].task) {
                return &row->blocks[i];
            }
        }
    }
    return NULL;
}

/* A block that an open task is to write. */
static const struct flow_block *waits_longest(const struct flow_node *node)
{
    struct flow_walk rest = {.in_table = true};
    const struct flow_block *block = NULL;
    for (uint32_t f = 0; f < node->job->file_count; f++) {
        const struct flow_files *files = &node->files[f];
        for (uint32_t s = 0; s < files->count; s++) {
            block = waits_in_segment(&files->segments[s]);
            if (block) {
                return block;
            }
        }
    }
    do {
        block = flow_walk_next(node, &rest);
    } while (block && !block->task);
    return block;
}

bool flow_node_is_stuck(const struct flow_node *node,
                        struct poise_flow_address *out)
{
    if (flow_node_is_running(node) || flow_node_ready(node) > 0 ||
        node->seeking) {
        return false;
    }
    *out = (struct poise_flow_address){.file = UINT32_MAX};
    const struct flow_block *block = waits_longest(node);
    if (block) {
        *out = block->task->address;
    }
    return true;
}

bool flow_node_is_running(const struct flow_node *node)
{
    for (unsigned p = 0; p < node->threads; p++) {
        const struct flow_processor *processor = &node->processors[p];
        if (processor->current || processor->slow || processor->settles) {
            return true;
        }
    }
    return false;
}

size_t flow_node_ready(const struct flow_node *node)
{
    size_t count = node->ready.count;
    for (unsigned p = 0; p < node->threads; p++) {
        count += node->processors[p].heap.count;
    }
    return count;
}

static int64_t oldest_of(const struct flow_heap *heap, int64_t oldest)
{
    return heap->count > 0 && heap->items[0]->address.version < oldest
               ? heap->items[0]->address.version
               : oldest;
}

int64_t flow_node_oldest(const struct flow_node *node)
{
    int64_t oldest = oldest_of(&node->ready, INT64_MAX);
    for (unsigned p = 0; p < node->threads; p++) {
        const struct flow_processor *processor = &node->processors[p];
        oldest = oldest_of(&processor->heap, oldest);
        if (processor->current &&
            processor->current->address.version < oldest) {
            oldest = processor->current->address.version;
        }
    }
    return oldest;
}

void flow_node_add_bytes(struct flow_node *node, int64_t more)
{
    uint64_t now = atomic_fetch_add_explicit(&node->bytes, (uint64_t)more,
                                             memory_order_relaxed) +
                   (uint64_t)more;
    uint64_t peak =
        atomic_load_explicit(&node->peak_bytes, memory_order_relaxed);
    while (more > 0 && now > peak &&
           !atomic_compare_exchange_weak_explicit(&node->peak_bytes, &peak, now,
                                                  memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

void flow_node_count(struct flow_node *node)
{
    for (unsigned p = 0; p < node->threads; p++) {
        struct flow_processor *processor = &node->processors[p];
        struct poise_flow_node_stats *stats = &processor->stats;
        node->stats.blocks += stats->blocks;
        node->stats.freed += stats->freed;
        node->stats.compute_ns += stats->compute_ns;
        node->stats.wait_ns += stats->wait_ns;
        node->stats.throttled_ns += stats->throttled_ns;
        *stats = (struct poise_flow_node_stats){0};
        node->forgot =
            processor->forgot > node->forgot ? processor->forgot : node->forgot;
        processor->forgot = -1;
        flow_node_add_bytes(node, processor->bytes);
        processor->bytes = 0;
        for (uint32_t f = 0; node->net && f < node->job->file_count; f++) {
            struct flow_part *part = &processor->parts[f];
            if (part->blocks > 0) {
                node->net->computed(node->net, f, part->segment, part->blocks,
                                    part->ns);
            }
            part->segment = 0;
            part->blocks = part->ns = 0;
        }
    }
    node->stats.peak_bytes = node->peak_bytes;
}

struct flow_block *flow_node_output(struct flow_node *node)
{
    struct flow_block *block = node->outputs;
    if (block) {
        node->outputs = block->more->next_output;
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
    struct flow_key key = flow_block_key(block);
    uint16_t owner = flow_owner(node, &key);
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
                        : node->net->seek(node->net, key.file, key.version);
    }
    int code = flow_block_become(node, block, FLOW_REQUESTED);
    return code < 0 ? code : node->net->fetch(node->net, owner, &key);
}

int flow_node_settle(struct flow_node *node)
{
    int code = flow_slow(node);
    while (code == 0 && (node->seeking || node->advance)) {
        code = node->advance ? flow_node_advance(node)
                             : seek_one(node, node->seeking);
    }
    if (code == 0 && node->completed >= node->completed_most) {
        flow_rows_sweep(node);
    }
    return code;
}
