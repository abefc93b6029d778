/*
 * One statistic in fixed memory: exact sums, and the newest values in the order
 * in which they came. To add one is a store, since it is done for each record;
 * the sums are made of a window at a time, the median is looked for when
 * somebody asks.
 *
 * Source: thesis 7.2, 4.3 (mean, minimum, maximum, deviation, median of a
 * window of 100).
 */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

/* Of so many ns, a quarter of a second, the squares of a window fit 64 bits. */
#define SHORT_MOST ((int64_t)1 << 28)

struct sums {
    int64_t least, most;
    wide sum, squares;
};

static struct sums sums_of(const int64_t *values, uint32_t count)
{
    struct sums sums = {.least = values[0], .most = values[0]};
    uint64_t sum = 0, squares = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t value = values[i];
        sums.least = value < sums.least ? value : sums.least;
        sums.most = value > sums.most ? value : sums.most;
        sum += (uint64_t)value;
        squares += (uint64_t)value * (uint64_t)value;
    }
    sums.sum = sum;
    sums.squares = squares;
    if (__builtin_expect(sums.most < SHORT_MOST, 1)) {
        return sums;
    }
    sums.sum = sums.squares = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t root =
            (uint64_t)(values[i] < MON_SQUARE_MOST ? values[i]
                                                   : MON_SQUARE_MOST);
        sums.sum += (uint64_t)values[i];
        sums.squares += (wide)root * root;
    }
    return sums;
}

void mon_statistic_fold(struct poise_monitor_statistic *statistic)
{
    uint32_t count = statistic->next - statistic->added;
    if (count == 0) {
        return;
    }
    struct sums sums = sums_of(&statistic->window[statistic->added], count);
    wide squares = ((wide)statistic->squares[1] << 64 | statistic->squares[0]) +
                   sums.squares;
    wide sum = (wide)statistic->sum + sums.sum;
    statistic->squares[0] = (uint64_t)squares;
    statistic->squares[1] = (uint64_t)(squares >> 64);
    statistic->sum = sum < INT64_MAX ? (int64_t)sum : INT64_MAX;
    if (statistic->count == 0 || sums.least < statistic->least) {
        statistic->least = sums.least;
    }
    statistic->most = sums.most > statistic->most ? sums.most : statistic->most;
    statistic->count += count;
    statistic->next %= POISE_MONITOR_WINDOW;
    statistic->added = statistic->next;
}

void poise_monitor_statistic_add(struct poise_monitor_statistic *statistic,
                                 int64_t ns)
{
    mon_statistic_add(statistic, ns);
    mon_statistic_fold(statistic);
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
