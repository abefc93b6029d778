/*
 * The noise benchmark: times of every iteration are kept, and looked at when
 * all is over.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 16 /* of the matrices: they stay in the first cache */
#define PROBES 200

struct matrices {
    double a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
};

static void multiply(struct matrices *m)
{
    for (int i = 0; i < SIDE; i++) {
        for (int j = 0; j < SIDE; j++) {
            double sum = 0;
            for (int k = 0; k < SIDE; k++) {
                sum += m->a[i][k] * m->b[k][j];
            }
            m->c[i][j] = sum;
        }
    }
    /* What comes next depends on it: no multiplication can be left out. */
    m->a[0][0] = m->c[SIDE - 1][SIDE - 1] * 1e-3;
}

static void compute(struct matrices *m, uint64_t times)
{
    for (uint64_t i = 0; i < times; i++) {
        multiply(m);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Multiplications that take `quantum_ns` undisturbed: from the least time of
 * several runs. */
static uint64_t calibrate(struct matrices *m, uint64_t quantum_ns)
{
    enum { TIMES = 64 };
    uint64_t least = UINT64_MAX;
    for (int probe = 0; probe < 100; probe++) {
        uint64_t begun = poise_clock_ns();
        compute(m, TIMES);
        uint64_t took = poise_clock_ns() - begun;
        least = took < least ? took : least;
    }
    least += least == 0;
    uint64_t times =
        quantum_ns / least * TIMES + quantum_ns % least * TIMES / least;
    return times > 0 ? times : 1;
}

void coll_noise_mark(const double *times, size_t count,
                     const uint64_t *thresholds_ns, uint8_t *late,
                     double *space)
{
    memcpy(space, times, count * sizeof *times);
    qsort(space, count, sizeof *space, by_value);
    double median = space[count / 2];
    for (size_t t = 0; t < POISE_NOISE_THRESHOLDS; t++) {
        for (size_t i = 0; i < count; i++) {
            late[t * count + i] = times[i] - median > (double)thresholds_ns[t];
        }
    }
}

/* The mean of an allreduce by itself, the same on all ranks. */
static int probe_allreduce(struct poise_coll *coll, uint64_t *out_ns)
{
    double value = 1, sum, took = 0;
    int code = poise_coll_barrier(coll);
    uint64_t begun = poise_clock_ns();
    for (int i = 0; i < PROBES && code == 0; i++) {
        code = poise_coll_allreduce(coll, &value, &sum, 1, POISE_DOUBLE,
                                    POISE_OP_SUM);
    }
    took = (double)(poise_clock_ns() - begun) / PROBES;
    if (code == 0) {
        code = poise_coll_allreduce(coll, &took, &took, 1, POISE_DOUBLE,
                                    POISE_OP_MAX);
    }
    *out_ns = (uint64_t)took;
    return code;
}

static int iterate(struct poise_coll *coll,
                   const struct poise_coll_noise_options *options,
                   uint64_t quantum_ns, double *times)
{
    struct matrices m;
    size_t count = options->iterations;
    for (int i = 0; i < SIDE * SIDE; i++) {
        m.a[i / SIDE][i % SIDE] = i % 7;
        m.b[i / SIDE][i % SIDE] = 1.0 / (i + 1);
    }
    uint64_t work = calibrate(&m, quantum_ns);
    int code = poise_coll_barrier(coll);
    for (size_t i = 0; i < count && code == 0; i++) {
        double value = 1, sum;
        uint64_t begun = poise_clock_ns();
        compute(&m, work);
        uint64_t computed = poise_clock_ns();
        if (options->allreduce) {
            code = poise_coll_allreduce(coll, &value, &sum, 1, POISE_DOUBLE,
                                        POISE_OP_SUM);
        }
        uint64_t met = options->allreduce ? poise_clock_ns() : computed;
        times[POISE_NOISE_COMPUTATION * count + i] = (double)(computed - begun);
        times[POISE_NOISE_ALLREDUCE * count + i] = (double)(met - computed);
        times[POISE_NOISE_ITERATION * count + i] = (double)(met - begun);
    }
    return code;
}

/* Mean, deviation and delays of one row, over all ranks. */
static int sum_up(struct poise_coll *coll, const double *times, size_t count,
                  const struct poise_coll_noise *noise, uint8_t *late,
                  double *space, struct poise_coll_noise_row *out)
{
    double sums[2] = {0};
    double all = (double)count * coll->size;
    for (size_t i = 0; i < count; i++) {
        sums[0] += times[i];
    }
    int code =
        poise_coll_allreduce(coll, sums, sums, 1, POISE_DOUBLE, POISE_OP_SUM);
    double mean = sums[0] / all;
    for (size_t i = 0; i < count; i++) {
        sums[1] += (times[i] - mean) * (times[i] - mean);
    }
    if (code == 0) {
        code = poise_coll_allreduce(coll, &sums[1], &sums[1], 1, POISE_DOUBLE,
                                    POISE_OP_SUM);
    }
    coll_noise_mark(times, count, noise->thresholds_ns, late, space);
    if (code == 0) {
        code = poise_coll_allreduce(coll, late, late,
                                    count * POISE_NOISE_THRESHOLDS, POISE_UINT8,
                                    POISE_OP_MAX);
    }
    out->mean_ns = mean;
    out->deviation_ns = __builtin_sqrt(sums[1] / all);
    for (size_t t = 0; t < POISE_NOISE_THRESHOLDS; t++) {
        out->delayed[t] = 0;
        for (size_t i = 0; i < count; i++) {
            out->delayed[t] += late[t * count + i];
        }
    }
    return code;
}

int poise_coll_noise(struct poise_coll *coll,
                     const struct poise_coll_noise_options *options,
                     struct poise_coll_noise *out)
{
    struct poise_coll_noise noise = {
        .thresholds_ns = {0, 2000000, 5000000, 10000000}};
    size_t count = options->iterations;
    if (count == 0) {
        return poise_error_set(EINVAL, "measure noise", NULL,
                               "there are no iterations");
    }
    double *times = poise_alloc(count, (POISE_NOISE_ROWS + 1) * sizeof(double));
    uint8_t *late = poise_alloc(count, POISE_NOISE_THRESHOLDS);
    int32_t code = times && late ? 0 : -ENOMEM;
    int failed =
        poise_coll_allreduce(coll, &code, &code, 1, POISE_INT32, POISE_OP_MIN);
    failed = failed < 0 ? failed : code;
    if (failed == 0) {
        failed = probe_allreduce(coll, &noise.thresholds_ns[0]);
    }
    noise.quantum_ns =
        options->quantum_ns ? options->quantum_ns : noise.thresholds_ns[0];
    if (failed == 0) {
        failed = iterate(coll, options, noise.quantum_ns, times);
    }
    for (size_t row = 0; row < POISE_NOISE_ROWS && failed == 0; row++) {
        failed = sum_up(coll, times + row * count, count, &noise, late,
                        times + POISE_NOISE_ROWS * count, &noise.rows[row]);
    }
    free(times);
    free(late);
    if (failed == 0) {
        *out = noise;
    }
    return failed;
}
