/*
 * One statistic in fixed memory: Welford's sums, and a sliding window whose
 * places are kept in the order of their values, so that the median is read off.
 *
 * Source: thesis 7.2, 4.3 (mean, minimum, maximum, deviation, median of a
 * window of 100).
 */
#include "internal.h"

#include <math.h>
#include <string.h>

static unsigned filled(const struct poise_monitor_statistic *statistic)
{
    return statistic->count < POISE_MONITOR_WINDOW ? (unsigned)statistic->count
                                                   : POISE_MONITOR_WINDOW;
}

/* Put place `at` where `ns` belongs among `count` others. */
static void insert(struct poise_monitor_statistic *statistic, unsigned count,
                   uint8_t at, int64_t ns)
{
    unsigned low = 0, high = count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (statistic->window[statistic->order[middle]] <= ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    memmove(&statistic->order[low + 1], &statistic->order[low], count - low);
    statistic->order[low] = at;
    statistic->window[at] = ns;
}

static void take_out(struct poise_monitor_statistic *statistic, uint8_t at)
{
    uint8_t *found = memchr(statistic->order, at, POISE_MONITOR_WINDOW);
    size_t behind =
        (size_t)(&statistic->order[POISE_MONITOR_WINDOW - 1] - found);
    memmove(found, found + 1, behind);
}

void poise_monitor_statistic_add(struct poise_monitor_statistic *statistic,
                                 int64_t ns)
{
    ns = ns > 0 ? ns : 0;
    unsigned count = filled(statistic);
    uint8_t at = (uint8_t)(statistic->count % POISE_MONITOR_WINDOW);
    if (count == POISE_MONITOR_WINDOW) {
        take_out(statistic, at);
        count--;
    }
    insert(statistic, count, at, ns);
    bool is_first = statistic->count++ == 0;
    double before = (double)ns - statistic->mean;
    statistic->mean += before / (double)statistic->count;
    statistic->squares += before * ((double)ns - statistic->mean);
    statistic->least =
        is_first || ns < statistic->least ? ns : statistic->least;
    statistic->most = ns > statistic->most ? ns : statistic->most;
    if (__builtin_add_overflow(statistic->sum, ns, &statistic->sum)) {
        statistic->sum = INT64_MAX;
    }
}

double poise_monitor_deviation(const struct poise_monitor_statistic *statistic)
{
    return statistic->count > 0
               ? sqrt(statistic->squares / (double)statistic->count)
               : 0;
}

int64_t poise_monitor_median(const struct poise_monitor_statistic *statistic)
{
    unsigned count = filled(statistic);
    return count > 0 ? statistic->window[statistic->order[(count - 1) / 2]] : 0;
}
