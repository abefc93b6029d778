/*
 * Shared by the benchmarks of small tasks (flow_grain, flow_grain_mpi): the
 * patterns of Task Bench, a task's work, and METG, the smallest size at which
 * half of the time is work.
 */
#ifndef POISE_BENCH_GRAIN_H
#define POISE_BENCH_GRAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    GRAIN_POINTS = 16, /**< sizes of tasks, each twice the one before */
    GRAIN_MULTIPLIER = 5,
    GRAIN_MOST = 4, /**< dependencies of a task */
    GRAIN_VERSIONS_LEAST = 64
};
/** Work of one run, on one core. */
#define GRAIN_RUN_NS 100e6

enum grain_pattern {
    GRAIN_TRIVIAL,
    GRAIN_STENCIL,
    GRAIN_SWEEP,
    GRAIN_FFT,
    GRAIN_TREE,
    GRAIN_RANDOM,
    GRAIN_PATTERNS
};

struct grain {
    int pattern;            /**< enum grain_pattern */
    int64_t width;          /**< a power of two */
    int64_t inverse;        /**< of GRAIN_MULTIPLIER, modulo width */
    uint64_t rounds;        /**< of work in a task */
    int64_t versions_least; /**< of the smallest tasks */
};

/** A dependency. */
struct grain_at {
    int64_t version, x;
};

/** By its name and a width. False: there is no such pattern, or width. */
static inline bool grain_init(struct grain *grain, const char *name,
                              int64_t width)
{
    static const char *const names[] = {"trivial", "stencil", "sweep",
                                        "fft",     "tree",    "random"};
    *grain = (struct grain){.pattern = -1, .width = width};
    for (int p = 0; p < GRAIN_PATTERNS; p++) {
        grain->pattern = strcmp(names[p], name) ? grain->pattern : p;
    }
    if (grain->pattern < 0 || width < 1 || (width & (width - 1))) {
        return false;
    }
    while (width > 1 && grain->inverse * GRAIN_MULTIPLIER % width != 1) {
        grain->inverse++;
    }
    return true;
}

/* What moves the places of a version about. */
static inline int64_t grain_shift(int64_t version, int64_t width)
{
    uint64_t z = (uint64_t)version + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (int64_t)((z ^ z >> 31) % (uint64_t)width);
}

/* The second dependency of fft and random. False: it is the first one. */
static inline bool grain_other(const struct grain *grain, int64_t version,
                               int64_t x, bool forward, int64_t *out)
{
    int64_t w = grain->width, to = version + (forward ? 1 : 0);
    int bits = 0;
    while (INT64_C(1) << (bits + 1) <= w) {
        bits++;
    }
    if (grain->pattern == GRAIN_FFT) {
        *out = bits > 0 ? x ^ INT64_C(1) << (to % bits) : x;
    } else if (forward) {
        *out = ((x - grain_shift(to, w) + w) * grain->inverse) % w;
    } else {
        *out = (x * GRAIN_MULTIPLIER + grain_shift(to, w)) % w;
    }
    return *out != x;
}

/** What task x of a version needs, or (`forward`) what needs it, of `versions`
 * that there are: how many. */
static inline int grain_list(const struct grain *grain, int64_t version,
                             int64_t x, bool forward, int64_t versions,
                             struct grain_at out[GRAIN_MOST])
{
    int64_t by = forward ? 1 : -1, y, next = version + by;
    int count = 0;
    if (grain->pattern == GRAIN_SWEEP && x + by >= 0 && x + by < grain->width) {
        out[count++] = (struct grain_at){version, x + by};
    }
    if (next < 0 || next >= versions) {
        return count;
    }
    if (grain->pattern == GRAIN_TREE) {
        for (int64_t i = 0; forward && i < 2; i++) {
            if (2 * x + i < grain->width) {
                out[count++] = (struct grain_at){next, 2 * x + i};
            }
        }
        if (!forward) {
            out[count++] = (struct grain_at){next, x / 2};
        }
        return count;
    }
    out[count++] = (struct grain_at){next, x};
    for (int64_t side = -1; grain->pattern == GRAIN_STENCIL && side <= 1;
         side += 2) {
        if (x + side >= 0 && x + side < grain->width) {
            out[count++] = (struct grain_at){next, x + side};
        }
    }
    if (grain->pattern >= GRAIN_FFT &&
        grain_other(grain, version, x, forward, &y)) {
        out[count++] = (struct grain_at){next, y};
    }
    return count;
}

static inline uint64_t grain_work(uint64_t rounds, uint64_t value)
{
    for (uint64_t r = 0; r < rounds; r++) {
        value = value * UINT64_C(6364136223846793005) + 1442695040888963407;
        __asm__ volatile("" : "+r"(value));
    }
    return value;
}

static inline double grain_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds of one round. */
static inline double grain_round_ns(void)
{
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        double began = grain_now_ns();
        grain_work(1000000, (uint64_t)i);
        double took = (grain_now_ns() - began) / 1e6;
        best = took < best ? took : best;
    }
    return best;
}

/* So many versions that the work is enough for a time, but not for long. */
static inline int64_t grain_versions(const struct grain *grain, double size_ns)
{
    double enough = GRAIN_RUN_NS / (size_ns * (double)grain->width);
    int64_t versions = enough < (double)grain->versions_least
                           ? (int64_t)enough
                           : grain->versions_least;
    return versions < GRAIN_VERSIONS_LEAST ? GRAIN_VERSIONS_LEAST : versions;
}

/**
 * All sizes, the largest first: `run` computes so many versions, and says how
 * long a task took of a thread, in nanoseconds; 0 or negative. With `tells`
 * prints a line for each: microseconds of work in a task, microseconds that it
 * took, the share of the time that is work. `metg_ns` is -1 if it is smaller
 * than the smallest.
 */
static inline int grain_measure(struct grain *grain, double round_ns,
                                bool tells,
                                int (*run)(struct grain *, int64_t versions,
                                           double *task_ns, void *arg),
                                void *arg, double *metg_ns)
{
    double before = 0, before_size = 0;
    int code = 0;
    *metg_ns = -1;
    for (int i = GRAIN_POINTS; code == 0 && i-- > 0;) {
        double task_ns = 1, size;
        grain->rounds = UINT64_C(16) << i;
        size = (double)grain->rounds * round_ns;
        code = run(grain, grain_versions(grain, size), &task_ns, arg);
        double share = code == 0 ? size / task_ns : 0;
        if (tells) {
            printf("%.3f %.3f %.3f\n", size / 1e3, task_ns / 1e3, share);
        }
        if (*metg_ns < 0 && share < 0.5 && before >= 0.5) {
            /* Between two sizes, by the straight line. */
            *metg_ns = before_size -
                       (before_size - size) * (before - 0.5) / (before - share);
        }
        before = share;
        before_size = size;
    }
    return code;
}

#endif
