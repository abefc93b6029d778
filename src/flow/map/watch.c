/* What the caller is told while a job runs. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

#define WATCH_NS UINT64_C(200000000)

/* All own blocks of a node below it are done, in all files. */
static int64_t version_of(const struct map *map, const struct map_node *node,
                          int64_t versions)
{
    int64_t low = versions;
    for (uint32_t f = 0; node->files && f < map->job->file_count; f++) {
        low = node->files[f].low < low ? node->files[f].low : low;
    }
    return low;
}

/* Places that the newest chunks gave to other nodes than the first ones. */
static uint64_t moved(const struct map *map)
{
    uint64_t count = 0;
    for (uint32_t f = 0; f < map->job->file_count; f++) {
        const struct map_file *file = &map->files[f];
        uint64_t places = flow_shape_places(&map->job->files[f].shape);
        for (uint64_t p = 0; file->plan_count > 1 && p < places; p++) {
            count += file->plans[0].owner[p] != file->owner[p];
        }
    }
    return count;
}

int map_tell(struct map *map, bool now)
{
    const struct poise_flow_options *options = map->options;
    uint64_t period = options->watch_ns ? options->watch_ns : WATCH_NS;
    uint64_t ns = options->watch ? poise_clock_ns() : 0;
    if (!options->watch || !map->started ||
        (!now && ns - map->watched_ns < period &&
         map->deaths == map->watched_deaths)) {
        return 0;
    }
    if (!map->watched) {
        map->watched = poise_alloc(map->cap, sizeof *map->watched);
    }
    if (!map->watched) {
        return -ENOMEM;
    }
    struct poise_flow_watch watch = {.ns = ns - map->started_ns,
                                     .version = INT64_MAX,
                                     .line = map->line,
                                     .moved = moved(map),
                                     .rechunkings = map->rechunkings,
                                     .deaths = map->deaths,
                                     .joins = map->joins,
                                     .count = map->count,
                                     .nodes = map->watched};
    for (uint32_t f = 0; f < map->job->file_count; f++) {
        int64_t to = map->job->files[f].shape.versions.to;
        watch.versions = to > watch.versions ? to : watch.versions;
    }
    for (unsigned n = 0; n < map->count; n++) {
        const struct map_node *node = &map->nodes[n];
        const struct poise_flow_node_stats *stats = &node->report.stats;
        int64_t at = version_of(map, node, watch.versions);
        map->watched[n] =
            (struct poise_flow_watched){.alive = node->alive,
                                        .joined = node->joined,
                                        .version = at,
                                        .blocks = stats->blocks,
                                        .redone = stats->redone,
                                        .fetched = stats->fetched,
                                        .fetched_bytes = stats->fetched_bytes};
        watch.blocks += stats->blocks;
        watch.version = node->alive && at < watch.version ? at : watch.version;
    }
    map->watched_ns = ns;
    map->watched_deaths = map->deaths;
    options->watch(&watch, options->watch_arg);
    return 0;
}
