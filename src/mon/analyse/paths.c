/*
 * The ways through a tree. Groups are led by their first member, and paths come
 * in the order of their times, the slowest first: so the leaders are the same
 * whatever the order of ranks.
 */
#include "internal.h"

#include <poise/monitor_paths.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Differences up to this share of the leader's time are none. */
#define ALIKE (1.0 / 8)

static bool is_known(const struct poise_monitor_operation *operation, int rank)
{
    return operation->wrappers && rank >= 0 && rank < operation->size &&
           operation->wrappers[rank].calls > 0;
}

/* Ranks from here to a root; 0: there is none, but a circle or a gap. */
static int length_of(const struct poise_monitor_operation *operation, int leaf)
{
    int at = leaf;
    for (int length = 1; length <= operation->size; length++) {
        if (!is_known(operation, at)) {
            return 0;
        }
        if (operation->wrappers[at].parent < 0) {
            return length;
        }
        at = operation->wrappers[at].parent;
    }
    return 0;
}

static void put(struct poise_monitor_step *out, int max, int at, int rank,
                enum poise_monitor_stage stage, double mean_ns)
{
    if (at < max) {
        out[at] = (struct poise_monitor_step){rank, stage, mean_ns};
    }
}

/* What happens on the way back stands as far from the end as what happens on
 * the way up from the beginning. */
int poise_monitor_steps(const struct poise_monitor_operation *operation,
                        int leaf, struct poise_monitor_step *out, int max)
{
    int length = length_of(operation, leaf);
    int count = length > 0 ? 6 * length - 4 : 0, at = leaf;
    for (int i = 0; i < length; i++) {
        const struct poise_monitor_wrapper *wrapper = &operation->wrappers[at];
        int first = 3 * i, last = count - 1 - 3 * i;
        put(out, max, first, at, POISE_MONITOR_DOWN,
            poise_monitor_mean(&wrapper->down));
        put(out, max, last, at, POISE_MONITOR_UP,
            poise_monitor_mean(&wrapper->up));
        if (wrapper->parent >= 0) {
            double way = poise_monitor_mean(&wrapper->two_way) / 2;
            put(out, max, first + 1, at, POISE_MONITOR_NETWORK, way);
            put(out, max, first + 2, at, POISE_MONITOR_ARRIVAL_WAIT,
                poise_monitor_mean(&wrapper->arrival_wait));
            put(out, max, last - 1, at, POISE_MONITOR_DEPARTURE_WAIT,
                poise_monitor_mean(&wrapper->departure_wait));
            put(out, max, last - 2, at, POISE_MONITOR_NETWORK, way);
        }
        at = wrapper->parent;
    }
    return count;
}

/* ---- groups ------------------------------------------------------------- */

static double total(const struct poise_monitor_path *path)
{
    double sum = 0;
    for (int i = 0; i < POISE_MONITOR_STAGES; i++) {
        sum += path->stage_ns[i];
    }
    return sum;
}

static int compare(const void *left, const void *right)
{
    const struct poise_monitor_path *a = left, *b = right;
    double x = total(a), y = total(b);
    return x < y ? 1 : x > y ? -1 : (a->leaf > b->leaf) - (a->leaf < b->leaf);
}

/* The largest difference of a stage, as a share of the leader's time. */
static double distance(const struct poise_monitor_path *leader,
                       const struct poise_monitor_path *path)
{
    double most = 0, whole = total(leader);
    for (int i = 0; i < POISE_MONITOR_STAGES; i++) {
        most = fmax(most, fabs(leader->stage_ns[i] - path->stage_ns[i]));
    }
    return whole > 0 ? most / whole : 0;
}

static void join(const struct poise_monitor_path *path,
                 struct poise_monitor_path *groups, int *count, int max)
{
    int nearest = -1;
    double least = INFINITY;
    for (int i = 0; i < *count; i++) {
        double far = distance(&groups[i], path);
        bool is_alike = groups[i].length == path->length && far <= ALIKE;
        /* Where there is room for no more, any will do. */
        if ((is_alike || *count == max) && far < least) {
            nearest = i;
            least = far;
        }
    }
    if (nearest >= 0) {
        groups[nearest].count++;
    } else if (*count < max) {
        groups[(*count)++] = *path;
    }
}

static struct poise_monitor_path
path_of(const struct poise_monitor_operation *operation, int leaf)
{
    struct poise_monitor_path path = {
        .leaf = leaf, .length = length_of(operation, leaf), .count = 1};
    for (int at = leaf, i = 0; i < path.length; i++) {
        const struct poise_monitor_wrapper *wrapper = &operation->wrappers[at];
        path.stage_ns[POISE_MONITOR_DOWN] += poise_monitor_mean(&wrapper->down);
        path.stage_ns[POISE_MONITOR_UP] += poise_monitor_mean(&wrapper->up);
        if (wrapper->parent >= 0) {
            path.stage_ns[POISE_MONITOR_NETWORK] +=
                poise_monitor_mean(&wrapper->two_way);
            path.stage_ns[POISE_MONITOR_ARRIVAL_WAIT] +=
                poise_monitor_mean(&wrapper->arrival_wait);
            path.stage_ns[POISE_MONITOR_DEPARTURE_WAIT] +=
                poise_monitor_mean(&wrapper->departure_wait);
        }
        at = wrapper->parent;
    }
    return path;
}

int poise_monitor_paths(const struct poise_monitor_operation *operation,
                        struct poise_monitor_path *out, int max)
{
    int size = operation->size, paths = 0, count = 0;
    if (!operation->wrappers || max < 1) {
        return 0;
    }
    struct poise_monitor_path *all = poise_alloc((size_t)size, sizeof *all);
    bool *is_joined = poise_alloc((size_t)size, sizeof *is_joined);
    if (!all || !is_joined) {
        free(all);
        free(is_joined);
        return -ENOMEM;
    }
    for (int i = 0; i < size; i++) {
        int parent = operation->wrappers[i].parent;
        if (is_known(operation, i) && parent >= 0 && parent < size) {
            is_joined[parent] = true;
        }
    }
    for (int i = 0; i < size; i++) {
        if (!is_joined[i] && length_of(operation, i) > 0) {
            all[paths++] = path_of(operation, i);
        }
    }
    qsort(all, (size_t)paths, sizeof *all, compare);
    for (int i = 0; i < paths; i++) {
        join(&all[i], out, &count, max);
    }
    free(all);
    free(is_joined);
    return count;
}
