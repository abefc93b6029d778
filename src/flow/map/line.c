/*
 * Lines: versions to which all can go back when nodes die.
 *
 * The map asks for one line at a time, after a version that no node has reached
 * yet, so that none has freed what the line needs (it guesses that version from
 * how fast they were; one that was too fast says so, and the map guesses
 * farther). When all members said that their part is done, and copies of it are
 * with their keepers, the line is complete, and the ones before it are of no
 * use any more.
 *
 * How often: what a line costs, C, is measured, as processor time that nodes
 * spent on copies and wait for where they share processors. If nodes die once
 * in M on the average, the time between lines that loses least, by copying and
 * by computing again, is sqrt(2 C M) (Young 1974; Daly, A higher order estimate
 * of the optimum checkpoint interval, 2006, whose further terms matter only
 * where C is not far below M). Nobody knows M; a job that has run for a time t,
 * with d deaths, is taken for one in which t / (d + 1) passes between them: a
 * short one has little to lose, and is protected as if it were to die soon. But
 * copies take at most COST_MOST of the time, from the beginning on.
 */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** The share of the time that copies may take: of 3 %, for what is measured is
 * about two thirds of what they cost. The rest falls to the map, to caches, and
 * to threads that wait for locks. */
#define COST_MOST 0.02
/** Lines are no closer than nodes report; what they report is as old. */
#define CLOSEST_NS 10e6
/** How far ahead of the fastest node: first, and at most. */
#define LEAD_NS 4e6
#define LEAD_MOST_NS 1e9

static unsigned member_count(const struct map *map)
{
    unsigned count = 0;
    for (unsigned n = 0; n < map->count; n++) {
        count += map->nodes[n].alive;
    }
    return count;
}

static bool all_heard(const struct map *map)
{
    for (unsigned n = 0; n < map->count; n++) {
        if (map->nodes[n].alive && map->nodes[n].report.epoch != map->epoch) {
            return false;
        }
    }
    return true;
}

/* One that got SIGTERM, and was not told yet that it may go: NULL if none. */
static struct map_node *leaver(struct map *map)
{
    for (unsigned n = 0; n < map->count; n++) {
        if (map->nodes[n].alive && map->nodes[n].leaves) {
            return &map->nodes[n];
        }
    }
    return NULL;
}

double map_line_interval_ns(double cost_ns, double lived_ns, unsigned deaths)
{
    return fmax(sqrt(2 * cost_ns * lived_ns / (deaths + 1)), CLOSEST_NS);
}

bool map_line_pays(const struct map *map, double now_ns)
{
    double lived = now_ns - (double)map->started_ns;
    double cost = map->line_cost_ns;
    return map->line_spent_ns + cost <= COST_MOST * lived &&
           now_ns - (double)map->line_ns >=
               map_line_interval_ns(cost, lived, map->deaths);
}

static bool is_due(struct map *map)
{
    unsigned fixed = map->options->replicate;
    if (leaver(map)) {
        return true;
    }
    return fixed > 0 ? fixed != POISE_FLOW_REPLICATE_NEVER
                     : map_line_pays(map, (double)poise_clock_ns());
}

/* The version before which a node can draw no line, or need not: what it has
 * not freed, because somebody may still ask for it, says nothing of how far it
 * is.
 */
static int64_t reached(const struct map *map, const struct map_node *node)
{
    int64_t at = node->report.forgot;
    for (uint32_t f = 0; f < map->job->file_count; f++) {
        int64_t low = node->files ? node->files[f].low : 0;
        at = low < INT64_MAX && low - 1 > at ? low - 1 : at;
    }
    return at;
}

/* A version that no node is beyond when it hears of it; after the last line. */
static int64_t line_ahead(const struct map *map)
{
    double now = (double)poise_clock_ns(), farthest = 0;
    bool known = true;
    for (unsigned n = 0; n < map->count; n++) {
        const struct map_node *node = &map->nodes[n];
        double age = now - (double)node->reported_ns;
        double at = (double)reached(map, node) +
                    node->speed * (age + map->line_lead_ns);
        farthest = node->alive && at > farthest ? at : farthest;
        known &= !node->alive || node->speed > 0;
    }
    int64_t window = map->options->window ? map->options->window : 4;
    int64_t period = map->options->replicate, line;
    line = farthest < 1e18 ? (int64_t)farthest + (known ? 1 : window + 1)
                           : INT64_MAX / 2;
    line = line > map->line ? line : map->line + 1;
    return period > 0 && map->options->replicate != POISE_FLOW_REPLICATE_NEVER
               ? (line + period - 1) / period * period
               : line;
}

/* Who is to keep whose blocks. */
static int choose_keepers(struct map *map)
{
    uint32_t *host = map->hosts ? poise_alloc(map->count, sizeof *host) : NULL;
    if (map->hosts && !host) {
        return -ENOMEM;
    }
    memset(map->next_kept, 0, sizeof map->next_kept);
    for (unsigned n = 0; n < map->count; n++) {
        map->next_kept[n].member = map->nodes[n].alive;
        if (host) {
            host[n] = map->hosts[map->nodes[n].host].machine;
        }
    }
    int code = flow_partition_keepers(map->next_kept, host, map->count);
    free(host);
    return code;
}

static int line_ask(struct map *map)
{
    int64_t end = 0;
    struct flow_head head = {.version = line_ahead(map),
                             .place = (uint64_t)(map->line + 1)};
    for (uint32_t f = 0; f < map->job->file_count; f++) {
        int64_t to = map->job->files[f].shape.versions.to;
        end = to > end ? to : end;
    }
    if (head.version >= end - 1) {
        return 0; /* nothing comes after it */
    }
    map->next_line = head.version;
    map->line_ns = poise_clock_ns();
    map->probing = false;
    int code = choose_keepers(map);
    for (unsigned n = 0; code == 0 && n < map->count; n++) {
        struct map_node *node = &map->nodes[n];
        node->lines += node->alive && node->leaves;
        if (node->alive && node->link && node->link->fd >= 0) {
            code = map_send(node->link, FLOW_LINE, &head, map->next_kept[n].by,
                            sizeof map->next_kept[n].by);
        }
    }
    return code;
}

/* What the last line cost counts as much as all before. Nodes are processes of
 * one machine: together they cannot have more than its processors. */
static void measure(struct map *map)
{
    double most = 0, sum = 0;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    for (unsigned n = 0; n < map->count; n++) {
        struct map_node *node = &map->nodes[n];
        double cost = (double)node->report.copy_ns - (double)node->copied_ns;
        node->copied_ns = node->report.copy_ns;
        most = node->alive && cost > most ? cost : most;
        sum += node->alive && cost > 0 ? cost : 0;
    }
    most = fmax(most, sum / (double)(cpus > 0 ? cpus : 1));
    map->line_spent_ns += most;
    map->line_cost_ns =
        map->line_cost_ns > 0 ? (map->line_cost_ns + most) / 2 : most;
}

static int line_complete(struct map *map)
{
    struct flow_head head = {.version = map->next_line};
    measure(map);
    map->line = map->next_line;
    map->next_line = -1;
    map->lines++;
    map->line_lead_ns = fmax(map->line_lead_ns * 3 / 4, LEAD_NS);
    memcpy(map->line_kept, map->next_kept, sizeof map->line_kept);
    int code = map_log_add(map, FLOW_LINE, &head, map->line_kept,
                           map->count * sizeof *map->line_kept);
    struct map_node *leaving = leaver(map);
    if (code < 0 || !leaving || leaving->lines == 0) {
        return code;
    }
    return map_declare_dead(map, leaving, "left");
}

int map_line(struct map *map)
{
    bool complete = true;
    if (member_count(map) < 2 || !all_heard(map)) {
        return 0;
    }
    if (map->next_line < 0) {
        return is_due(map) ? line_ask(map) : 0;
    }
    for (unsigned n = 0; n < map->count; n++) {
        const struct map_node *node = &map->nodes[n];
        if (node->alive && node->report.missed == map->next_line) {
            map->line_lead_ns =
                fmin(fmax(map->line_lead_ns, LEAD_NS) * 2, LEAD_MOST_NS);
            map->next_line = -1;
            return line_ask(map);
        }
        complete &= !node->alive || (node->report.line == map->next_line &&
                                     map_has_results(node));
    }
    return complete ? line_complete(map) : 0;
}

int map_line_keepers(const struct map *map, struct poise_buf *out)
{
    int code = 0;
    for (unsigned d = 0; code == 0 && map->line >= 0 && d < map->count; d++) {
        const struct flow_kept *kept = &map->line_kept[d];
        for (unsigned i = 0; i < FLOW_COPIES && code == 0 && kept->member &&
                             !map->nodes[d].alive;
             i++) {
            uint16_t by = kept->by[i];
            if (by < map->count && map->nodes[by].alive) {
                code = poise_buf_append(out, &by, sizeof by);
            }
        }
    }
    return code;
}

int64_t map_line_left(const struct map *map)
{
    for (unsigned d = 0; d < map->count; d++) {
        const struct flow_kept *kept = &map->line_kept[d];
        bool left = !kept->member || map->nodes[d].alive;
        for (unsigned i = 0; i < FLOW_COPIES; i++) {
            left |= kept->by[i] < map->count && map->nodes[kept->by[i]].alive;
        }
        if (!left) {
            return -1;
        }
    }
    return map->line;
}
