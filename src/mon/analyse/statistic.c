/*
 * One statistic in fixed memory: exact sums, and the newest values in the order
 * in which they came. To add one is a handful of instructions, since it is done
 * for each record; the median is looked for when somebody asks.
 *
 * Source: thesis 7.2, 4.3 (mean, minimum, maximum, deviation, median of a
 * window of 100).
 */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void poise_monitor_statistic_add(struct poise_monitor_statistic *statistic,
                                 int64_t ns)
{
    mon_statistic_add(statistic, ns);
}

double poise_monitor_mean(const struct poise_monitor_statistic *statistic)
{
    return statistic->count > 0
               ? (double)statistic->sum / (double)statistic->count
               : 0;
}

/* In long double: of 1 s +- 100 ns the squares differ in the 15th digit. */
double poise_monitor_deviation(const struct poise_monitor_statistic *statistic)
{
    if (statistic->count == 0) {
        return 0;
    }
    long double count = (long double)statistic->count;
    long double mean = (long double)statistic->sum / count;
    long double squares = ldexpl((long double)statistic->squares[1], 64) +
                          (long double)statistic->squares[0];
    long double variance = squares / count - mean * mean;
    return variance > 0 ? (double)sqrtl(variance) : 0;
}

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

int64_t poise_monitor_median(const struct poise_monitor_statistic *statistic)
{
    int64_t sorted[POISE_MONITOR_WINDOW];
    size_t count = statistic->count < POISE_MONITOR_WINDOW
                       ? (size_t)statistic->count
                       : POISE_MONITOR_WINDOW;
    if (count == 0) {
        return 0;
    }
    memcpy(sorted, statistic->window, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    return sorted[(count - 1) / 2];
}
