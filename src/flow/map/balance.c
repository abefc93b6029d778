/*
 * Which node computes what of the next versions of a file: by measured rates,
 * or, as in desyncfs 4.2, by bisection on the rate of misses.
 */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/** What a change has to gain at least: else layouts would wander about for
 * nothing, and neighbours with them. */
#define GAIN_LEAST 0.98
/** Rates that differ by less are of the same speed. */
#define SPEED_SAME 1.25
/** What a miss rate of 0 weighs: a node that never makes others wait has work
 * too. */
#define MISS_FLOOR 0.1

int map_plan_keep(struct map *map, uint32_t file, int64_t from, int64_t to,
                  uint16_t *owner)
{
    struct map_file *f = &map->files[file];
    if (f->plan_count == f->plan_cap) {
        unsigned cap = f->plan_cap ? 2 * f->plan_cap : 4;
        struct map_plan *plans = poise_realloc(f->plans, cap, sizeof *plans);
        if (!plans) {
            free(owner);
            return -ENOMEM;
        }
        f->plans = plans;
        f->plan_cap = cap;
    }
    f->plans[f->plan_count++] = (struct map_plan){from, to, owner};
    f->from = from;
    f->to = to;
    f->owner = owner;
    return 0;
}

int map_plan_add(struct map *map, uint32_t file, int64_t from, int64_t to,
                 uint16_t *owner)
{
    uint64_t places = flow_shape_places(&map->job->files[file].shape);
    const struct map_file *f = &map->files[file];
    struct flow_head head = {
        .file = file, .version = from, .extra = (uint64_t)to};
    const uint16_t *before = f->plan_count > 0 ? f->owner : NULL;
    struct poise_buf runs = {0};
    head.place = before ? (uint64_t)f->from + 1 : 0;
    int code = flow_plan_encode(before, owner, places, &runs);
    if (code < 0) {
        free(owner);
        return code;
    }
    code = map_plan_keep(map, file, from, to, owner);
    if (code == 0) {
        map->plan_bytes += runs.len;
        code = map_broadcast(map, FLOW_PLAN, &head, runs.data, runs.len);
    }
    poise_buf_free(&runs);
    return code;
}

const uint16_t *map_plan_at(const struct map *map, uint32_t file, int64_t from)
{
    const struct map_file *f = &map->files[file];
    for (unsigned p = 0; p < f->plan_count; p++) {
        if (f->plans[p].from == from) {
            return f->plans[p].owner;
        }
    }
    return NULL;
}

/* Blocks per nanosecond of one node, by the newest segment. Few blocks say
 * little: one may have waited for a processor, and the next one made up for
 * that. So as long as there are less than half as many as of the segment
 * before, that one counts for the rest. 0: nothing is known. */
static double rate_of(const struct flow_file_report *r)
{
    double blocks = (double)r->blocks, ns = (double)r->compute_ns;
    double before = (double)r->blocks_before;
    if (blocks < before / 2) {
        ns += (before / 2 - blocks) * (double)r->before_ns / before;
        blocks = before / 2;
    }
    return blocks > 0 && ns > 0 ? blocks / ns : 0;
}

/* What was measured twice is believed more than what was measured once, unless
 * the speed is another one. */
static double rate_mean(double before, double now)
{
    bool same = now < SPEED_SAME * before && before < SPEED_SAME * now;
    return same ? (before + now) / 2 : now;
}

/* Blocks per nanosecond of each node; one that was not measured counts as
 * the mean of the others. Whether any was measured. */
static bool rates_of(struct map *map, uint32_t file, double *rates)
{
    double sum = 0;
    unsigned known = 0;
    for (unsigned n = 0; n < map->count; n++) {
        struct map_node *node = &map->nodes[n];
        const struct flow_file_report *r =
            node->files ? &node->files[file] : NULL;
        double rate = r ? rate_of(r) : 0;
        if (rate > 0) {
            node->rate[file] = rate_mean(node->rate[file], rate);
        }
        rates[n] = node->alive ? node->rate[file] : 0;
        sum += rates[n];
        known += rates[n] > 0;
    }
    for (unsigned n = 0; n < map->count; n++) {
        if (map->nodes[n].alive && rates[n] <= 0) {
            rates[n] = known > 0 ? sum / known : 1;
        }
    }
    return known > 0;
}

/* How long a version takes with these numbers of blocks. */
static double time_of(const double *rates, const uint64_t *counts,
                      unsigned nodes)
{
    double most = 0;
    for (unsigned n = 0; n < nodes; n++) {
        double time = counts[n] == 0 ? 0
                      : rates[n] > 0 ? (double)counts[n] / rates[n]
                                     : HUGE_VAL;
        most = time > most ? time : most;
    }
    return most;
}

static int by_rate(struct map *map, uint32_t file, uint16_t *owner,
                   bool *changed)
{
    const struct poise_flow_chunk *shape = &map->job->files[file].shape;
    uint64_t places = flow_shape_places(shape);
    double *rates = poise_alloc(map->count, sizeof *rates);
    uint64_t *counts = poise_alloc(2 * map->count, sizeof *counts);
    int code = rates && counts ? 0 : -ENOMEM;
    if (code == 0 && rates_of(map, file, rates)) {
        uint64_t *now = counts + map->count;
        for (uint64_t p = 0; p < places; p++) {
            now[map->files[file].owner[p]]++;
        }
        flow_partition_counts(rates, map->count, places, counts);
        *changed = time_of(rates, counts, map->count) <
                   GAIN_LEAST * time_of(rates, now, map->count);
        if (*changed) {
            code = flow_partition_bisect(shape, counts, map->count,
                                         map->borders, owner);
        }
    }
    free(rates);
    free(counts);
    return code;
}

static int by_misses(struct map *map, uint32_t file, uint16_t *owner,
                     bool *changed)
{
    const struct poise_flow_chunk *shape = &map->job->files[file].shape;
    uint64_t places = flow_shape_places(shape);
    double *weight = poise_alloc(places, sizeof *weight);
    bool *in = poise_alloc(map->count, sizeof *in);
    int code = weight && in ? 0 : -ENOMEM;
    for (uint64_t p = 0; code == 0 && p < places; p++) {
        const struct flow_tally *t = &map->tally[map->files[file].owner[p]];
        uint32_t all = t->hits + t->misses;
        weight[p] = MISS_FLOOR + (all > 0 ? (double)t->misses / all : 0);
    }
    for (unsigned n = 0; code == 0 && n < map->count; n++) {
        in[n] = map->nodes[n].alive;
    }
    if (code == 0) {
        code = flow_partition_weighted(shape, weight, in, map->count, owner);
        *changed =
            memcmp(owner, map->files[file].owner, places * sizeof *owner) != 0;
    }
    free(weight);
    free(in);
    return code;
}

int map_assign(struct map *map, uint32_t file)
{
    struct map_file *f = &map->files[file];
    int64_t end = map->job->files[file].shape.versions.to;
    int64_t adapt = map->job->files[file].adapt;
    uint64_t places = flow_shape_places(&map->job->files[file].shape);
    uint16_t *owner = poise_alloc(places, sizeof *owner);
    bool changed = false;
    if (!owner) {
        return -ENOMEM;
    }
    int code = map->options->policy == POISE_FLOW_BY_MISSES
                   ? by_misses(map, file, owner, &changed)
                   : by_rate(map, file, owner, &changed);
    if (code == 0 && !changed) {
        memcpy(owner, f->owner, places * sizeof *owner);
    }
    if (code < 0) {
        free(owner);
        return code;
    }
    map->rechunkings += changed;
    memset(map->tally, 0, map->count * sizeof *map->tally);
    return map_plan_add(map, file, f->to,
                        adapt > 0 && adapt < end - f->to ? f->to + adapt : end,
                        owner);
}

static bool has_part(const struct map *map, uint32_t file, unsigned node)
{
    uint64_t places = flow_shape_places(&map->job->files[file].shape);
    for (uint64_t p = 0; p < places; p++) {
        if (map->files[file].owner[p] == node) {
            return true;
        }
    }
    return false;
}

/* How far the fastest node is that has a part in what was given out last: who
 * has none is beyond it at once, and would have all the rest given out. */
static int64_t farthest_of(const struct map *map, uint32_t file)
{
    const struct map_file *f = &map->files[file];
    int64_t farthest = map->job->files[file].shape.versions.from;
    for (unsigned n = 0; n < map->count; n++) {
        const struct map_node *node = &map->nodes[n];
        int64_t low = node->alive && node->files ? node->files[file].low : 0;
        if (low > farthest && (low < f->to || has_part(map, file, n))) {
            farthest = low;
        }
    }
    return farthest;
}

int map_adapt(struct map *map)
{
    int64_t ahead = map->options->window ? map->options->window : 4;
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < map->job->file_count; i++) {
        const struct map_file *f = &map->files[i];
        int64_t margin = ahead + 1 < (f->to - f->from + 1) / 2
                             ? ahead + 1
                             : (f->to - f->from + 1) / 2;
        if (f->to < map->job->files[i].shape.versions.to &&
            farthest_of(map, i) + margin >= f->to) {
            code = map_assign(map, i);
        }
    }
    return code;
}

int map_begin(struct map *map)
{
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < map->job->file_count; i++) {
        struct poise_buf list = {0};
        code = flow_job_segments(map->job, i, map->count, map->borders, &list);
        struct flow_segment *segments = (struct flow_segment *)list.data;
        for (size_t s = 0; s < list.len / sizeof *segments; s++) {
            bool known = map->files[i].plan_count > 0 &&
                         segments[s].from < map->files[i].to;
            if (code < 0 || known) {
                flow_segment_free(&segments[s]);
                continue;
            }
            code = map_plan_add(map, i, segments[s].from, segments[s].to,
                                segments[s].owner);
        }
        poise_buf_free(&list);
    }
    return code;
}
