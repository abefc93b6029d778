/* Runs: by the map, or in the calling process alone, with threads. */
#include "internal.h"

#include "flow/job/lists.h"

#include <errno.h>
#include <stdlib.h>

const char *const poise_flow_policy_names[] = {"rate", "misses", NULL};

void poise_flow_stats_free(struct poise_flow_stats *stats)
{
    for (size_t p = 0; p < stats->plan_count; p++) {
        free(stats->plans[p].owner);
    }
    free(stats->plans);
    free(stats->marks);
    free(stats->nodes);
    *stats = (struct poise_flow_stats){0};
}

static uint64_t count_blocks(const struct poise_flow_job *job)
{
    uint64_t count = 0;
    for (uint32_t f = 0; f < job->file_count; f++) {
        const struct poise_flow_chunk *shape = &job->files[f].shape;
        const struct poise_flow_range versions = flow_shape_versions(shape);
        count +=
            flow_shape_places(shape) * (uint64_t)(versions.to - versions.from);
    }
    return count;
}

static unsigned slots_of(const struct poise_flow_cluster *cluster)
{
    unsigned slots =
        cluster->world ? (unsigned)poise_world_size(cluster->world) : 0;
    for (size_t h = 0; cluster->hosts && h < cluster->hosts->count; h++) {
        slots += cluster->hosts->items[h].slots;
    }
    return slots;
}

static bool is_agent(const struct poise_flow_cluster *cluster)
{
    return cluster &&
           (cluster->agent >= 0 ||
            (cluster->world && poise_world_rank(cluster->world) > 0));
}

/* What fills the last stage of a file (flow/job/stages.c). */
static int fill(struct poise_flow_task *task,
                const struct poise_flow_address *block)
{
    void *nothing = poise_flow_make(task, 0);
    return nothing ? poise_flow_write(task, block, nothing, 0) : -ENOMEM;
}

/* A job whose lists are complete. */
static int run_whole(const struct poise_flow_job *job,
                     const struct poise_flow_options *options,
                     struct poise_flow_stats *stats)
{
    const struct poise_flow_cluster *cluster = options->cluster;
    unsigned nodes = options->nodes;
    unsigned slots = cluster && cluster->agent < 0 ? slots_of(cluster) : nodes;
    int code = flow_job_check(job, nodes > 0 ? nodes : POISE_FLOW_NODES_MOST);
    if (code == 0 && nodes > slots) {
        code = poise_error_set(EINVAL, "run job", NULL,
                               "%u nodes, and the hosts have room for %u",
                               nodes, slots);
    }
    return code < 0            ? code
           : is_agent(cluster) ? flow_agent_run(job, options)
           : nodes > 0         ? flow_map_run(job, options, stats)
                               : flow_alone_run(job, options, stats);
}

int poise_flow_run(const struct poise_flow_job *job,
                   const struct poise_flow_options *given,
                   struct poise_flow_stats *out)
{
    struct poise_flow_options options =
        given ? *given : (struct poise_flow_options){0};
    struct poise_flow_stats stats = {0};
    struct flow_lists lists;
    bool seen = flow_lists_needed(job);
    uint64_t began = poise_clock_ns();
    const struct poise_flow_cluster *cluster = options.cluster;
    if (cluster && cluster->agent < 0 && options.nodes == 0) {
        options.nodes = slots_of(cluster);
    }
    if (options.nodes > POISE_FLOW_NODES_MOST ||
        options.spares > POISE_FLOW_NODES_MOST ||
        options.join > POISE_FLOW_NODES_MOST ||
        options.nodes + options.spares + options.join > POISE_FLOW_NODES_MOST) {
        return poise_error_set(EINVAL, "run job", NULL, "more than %d nodes",
                               POISE_FLOW_NODES_MOST);
    }
    int code = seen ? flow_lists_make(job, &options, &lists) : 0;
    lists.fill = fill;
    if (code == 0) {
        code = run_whole(seen ? &lists.job : job, &options, &stats);
    }
    stats.blocks = code == 0 ? count_blocks(job) : 0;
    if (seen) {
        flow_lists_free(&lists);
    }
    stats.wall_ns = poise_clock_ns() - began;
    if (out && code == 0) {
        *out = stats;
    } else {
        poise_flow_stats_free(&stats);
    }
    return code;
}
