/* A job in the calling process alone: threads compute, this one hands out. */
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void *processor(void *arg)
{
    flow_node_work(arg);
    return NULL;
}

/* All segments of a file, as if the first ones held to its end; everything is
 * node 0's. */
static int segments_alone(struct flow_node *node, uint32_t file)
{
    struct poise_buf list = {0};
    int64_t end = flow_file(node, file)->versions.to;
    uint64_t places = flow_shape_places(flow_file(node, file));
    int code = flow_job_segments(node->job, file, 1, NULL, &list);
    struct flow_segment *segments = (struct flow_segment *)list.data;
    size_t count = list.len / sizeof *segments, taken = 0;
    if (code == 0) {
        segments[count - 1].to = end;
    }
    for (; taken < count && code == 0; taken++) {
        memset(segments[taken].owner, 0, places * sizeof(uint16_t));
        node->now_ns = poise_clock_ns();
        code = flow_node_segment(node, &segments[taken]);
    }
    for (; taken < count; taken++) {
        flow_segment_free(&segments[taken]);
    }
    poise_buf_free(&list);
    return code;
}

/* How far it is: the map is not there to say. The node is had. */
static void tell_alone(struct flow_node *node, uint64_t ns)
{
    const struct poise_flow_options *options = node->options;
    struct poise_flow_watch watch = {
        .ns = ns, .version = INT64_MAX, .line = -1, .count = 1};
    flow_node_count(node);
    for (uint32_t f = 0; f < node->job->file_count; f++) {
        int64_t low = flow_file_low(node, f);
        int64_t to = node->job->files[f].shape.versions.to;
        watch.versions = to > watch.versions ? to : watch.versions;
        watch.version = low < watch.version ? low : watch.version;
    }
    if (watch.version > watch.versions) {
        watch.version = watch.versions;
    }
    struct poise_flow_watched one = {.alive = true,
                                     .joined = true,
                                     .version = watch.version,
                                     .blocks = node->stats.blocks};
    watch.blocks = one.blocks;
    watch.nodes = &one;
    flow_node_unlock(node);
    options->watch(&watch, options->watch_arg);
    flow_node_lock(node);
}

/* Wait until there is something to do, or to tell. */
static void wait_alone(struct flow_node *node, uint64_t begin_ns)
{
    const struct poise_flow_options *options = node->options;
    if (options->watch) {
        tell_alone(node, poise_clock_ns() - begin_ns);
        if (!node->stop && !node->outputs && !flow_node_is_done(node)) {
            flow_node_wait_ns(node, &node->event,
                              options->watch_ns ? options->watch_ns
                                                : UINT64_C(200000000));
        }
    } else {
        flow_node_wait(node, &node->event);
    }
}

/* Hand out results until all is done. The node is had. */
static void serve_alone(struct flow_node *node)
{
    const struct poise_flow_options *options = node->options;
    uint64_t begin_ns = poise_clock_ns();
    while (!node->stop) {
        struct flow_block *block = flow_node_output(node);
        if (!block && flow_node_is_done(node)) {
            break;
        }
        if (!block) {
            wait_alone(node, begin_ns);
            continue;
        }
        int code = 0;
        if (options->output) {
            struct poise_flow_address address;
            struct flow_key key = flow_block_key(block);
            flow_shape_address(flow_file(node, key.file), &key, &address);
            flow_node_unlock(node);
            poise_error_clear();
            code = options->output(&address, flow_made_data(block->made),
                                   block->made->len, options->output_arg);
            if (code < 0) {
                flow_callback_error(node->job, code, "hand out block",
                                    &address);
            }
            flow_node_lock(node);
        }
        flow_node_output_done(node, block);
        if (code < 0) {
            flow_node_fail(node, code);
        }
    }
    if (options->watch) {
        tell_alone(node, poise_clock_ns() - begin_ns);
    }
    node->stop = true;
    pthread_cond_broadcast(&node->work);
}

int flow_alone_run(const struct poise_flow_job *job,
                   const struct poise_flow_options *options,
                   struct poise_flow_stats *stats)
{
    unsigned count = options->threads ? options->threads : 1, made = 0;
    struct flow_node *node = NULL;
    pthread_t *threads = poise_alloc(count, sizeof *threads);
    stats->nodes = poise_alloc(1, sizeof *stats->nodes);
    int code = threads && stats->nodes ? 0 : -ENOMEM;
    if (code == 0) {
        code = flow_node_create(job, options, 0, &node);
    }
    for (uint32_t f = 0; code == 0 && f < job->file_count; f++) {
        code = segments_alone(node, f);
    }
    for (; code == 0 && made < count; made++) {
        int failed = pthread_create(&threads[made], NULL, processor, node);
        if (failed) {
            code = poise_error_set(failed, "start thread", NULL, NULL);
            break;
        }
    }
    if (node) {
        flow_node_lock(node);
        if (code < 0) {
            flow_node_fail(node, code);
        }
        serve_alone(node);
        flow_node_unlock(node);
    }
    for (unsigned i = 0; i < made; i++) {
        pthread_join(threads[i], NULL);
    }
    if (node) {
        code = node->failure.code < 0 ? flow_failure_set(&node->failure) : 0;
        flow_node_count(node);
        stats->node_count = 1;
        stats->nodes[0] = node->stats;
    }
    flow_node_destroy(node);
    free(threads);
    return code;
}
