/*
 * Float arrays over time, as a numerical program writes them: a field stepped
 * by a finite-difference solver, each step appended whole to a file.
 *
 *     bench/fields wave|heat|window N FIRST STEPS EVERY FILE
 *
 * wave: the wave equation in a cube of N^3 float32, a pulse from the middle.
 * heat: the heat equation on a plate of N^2 float64, hot at its upper edge.
 * window: N^2 float32 of a plate of (N + 256)^2 with steady flow and noise, of
 * which the window slides by 37 rows and 53 columns from step to step.
 * FIRST and STEPS count what is written, EVERY so many steps of the solver.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
    size_t n;
    long first, steps, every;
    FILE *file;
};

static int put(const struct run *run, long step, const void *data, size_t len)
{
    return step >= run->first && fwrite(data, 1, len, run->file) != len;
}

static int wave(const struct run *run)
{
    size_t n = run->n, cells = n * n * n;
    float *now = calloc(cells, sizeof *now), *old = calloc(cells, sizeof *old);
    int failed = !now || !old;

    for (size_t i = 0; i < cells && !failed; i++) {
        double x = (double)(i % n) - (double)n / 2.3;
        double y = (double)(i / n % n) - (double)n / 2.1;
        double z = (double)(i / n / n) - (double)n / 1.9;
        now[i] = old[i] = (float)exp(-(x * x + y * y + z * z) / 72);
    }
    for (long s = 0; s < (run->first + run->steps) * run->every && !failed;
         s++) {
        float *swap;
        if (s % run->every == 0) {
            failed = put(run, s / run->every, now, cells * sizeof *now);
        }
        for (size_t z = 1; z + 1 < n; z++) {
            for (size_t y = 1; y + 1 < n; y++) {
                for (size_t x = 1; x + 1 < n; x++) {
                    size_t i = (z * n + y) * n + x;
                    float sum = now[i - 1] + now[i + 1] + now[i - n] +
                                now[i + n] + now[i - n * n] + now[i + n * n];
                    old[i] = 2 * now[i] - old[i] + .25F * (sum - 6 * now[i]);
                }
            }
        }
        swap = now;
        now = old;
        old = swap;
    }
    free(now);
    free(old);
    return failed;
}

static int heat(const struct run *run)
{
    size_t n = run->n, cells = n * n;
    double *now = calloc(cells, sizeof *now), *to = calloc(cells, sizeof *to);
    int failed = !now || !to;

    for (size_t x = 0; x < n && !failed; x++) {
        now[x] = to[x] = 100;
    }
    for (long s = 0; s < (run->first + run->steps) * run->every && !failed;
         s++) {
        double *swap;
        if (s % run->every == 0) {
            failed = put(run, s / run->every, now, cells * sizeof *now);
        }
        for (size_t y = 1; y + 1 < n; y++) {
            for (size_t x = 1; x + 1 < n; x++) {
                size_t i = y * n + x;
                to[i] = (now[i - 1] + now[i + 1] + now[i - n] + now[i + n]) / 4;
            }
        }
        swap = now;
        now = to;
        to = swap;
    }
    free(now);
    free(to);
    return failed;
}

static int window(const struct run *run)
{
    size_t n = run->n, wide = n + 53 * (size_t)(run->first + run->steps);
    size_t high = n + 37 * (size_t)(run->first + run->steps);
    float *field = calloc(wide * high, sizeof *field);
    int failed = !field;

    for (size_t i = 0; i < wide * high && !failed; i++) {
        double x = (double)(i % wide), y = (double)(i / wide);
        uint64_t seed = (i / wide << 32 | i % wide) + 1;
        seed = (seed ^ seed >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
        seed = (seed ^ seed >> 29) * UINT64_C(0x94d049bb133111eb);
        field[i] = (float)(sin(x / 61) + sin(x / 17) + 2 * sin(y / 47) +
                           (double)(seed >> 48) / 65536);
    }
    for (long s = 0; s < run->first + run->steps && !failed; s++) {
        for (size_t y = 0; y < n && !failed; y++) {
            const float *row = field + (y + 37 * (size_t)s) * wide;
            failed = put(run, s, row + 53 * s, n * sizeof *row);
        }
    }
    free(field);
    return failed;
}

int main(int argc, char **argv)
{
    struct run run;
    int failed;

    if (argc != 7) {
        return 2;
    }
    run = (struct run){strtoul(argv[2], NULL, 10), atol(argv[3]), atol(argv[4]),
                       atol(argv[5]), fopen(argv[6], "wb")};
    if (!run.file) {
        perror(argv[6]);
        return 1;
    }
    failed = strcmp(argv[1], "wave") == 0     ? wave(&run)
             : strcmp(argv[1], "heat") == 0   ? heat(&run)
             : strcmp(argv[1], "window") == 0 ? window(&run)
                                              : 2;
    failed |= fclose(run.file) != 0;
    if (failed) {
        fprintf(stderr, "bench/fields: %s: not written\n", argv[6]);
    }
    return failed;
}
