/* The figures that Graph500 wants of a sample. */
#include <poise/bfs.h>

#include <math.h>
#include <stdlib.h>

static int figures_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A quantile of sorted values, between two of them where it falls there: as
 * the reference code has it. */
static double figures_quantile(const double *values, size_t count, double share)
{
    double at = share * (double)(count - 1);
    size_t below = (size_t)at;
    double part = at - (double)below;
    if (below + 1 >= count) {
        return values[count - 1];
    }
    return values[below] * (1 - part) + values[below + 1] * part;
}

static double figures_deviation(const double *values, size_t count, double mean,
                                bool inverse)
{
    double sum = 0;
    if (count < 2) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        double off = (inverse ? 1 / values[i] : values[i]) - mean;
        sum += off * off;
    }
    return sqrt(sum / (double)(count - 1));
}

struct poise_graph_figures poise_graph_figures_of(double *values, size_t count)
{
    struct poise_graph_figures out = {0};
    double sum = 0, inverse = 0;
    if (count == 0) {
        return out;
    }
    qsort(values, count, sizeof *values, figures_compare);
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
        inverse += 1 / values[i];
    }
    out.min = values[0];
    out.max = values[count - 1];
    out.first_quartile = figures_quantile(values, count, 0.25);
    out.median = figures_quantile(values, count, 0.5);
    out.third_quartile = figures_quantile(values, count, 0.75);
    out.mean = sum / (double)count;
    out.deviation = figures_deviation(values, count, out.mean, false);
    out.harmonic_mean = (double)count / inverse;
    if (count > 1) {
        /* Norris, "The standard errors of the geometric and harmonic means":
         * the specification's source. */
        double mean = inverse / (double)count;
        out.harmonic_deviation = figures_deviation(values, count, mean, true) /
                                 (mean * mean * sqrt((double)count - 1));
    }
    return out;
}
