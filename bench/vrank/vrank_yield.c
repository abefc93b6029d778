/*
 * What a switch between virtual ranks costs: N ranks on one thread that yield
 * in turn, in nanoseconds of processor time per yield (scheduler and queue
 * included).
 *
 * usage: vrank_yield [REPETITIONS]
 */
#include "vrank/thread/thread.h"

#include <stdio.h>
#include <stdlib.h>

enum { YIELDS = 4000000 };

struct round {
    int each;
    uint64_t start_ns, end_ns;
};

static int body(struct vrank *rank, void *arg)
{
    struct round *round = arg;
    if (vrank_number(rank) == 0) {
        round->start_ns = poise_clock_cpu_ns();
    }
    for (int i = 0; i < round->each; i++) {
        vrank_yield();
    }
    round->end_ns = poise_clock_cpu_ns();
    return 0;
}

static double one(int ranks)
{
    struct round round = {.each = YIELDS / ranks};
    struct vrank_job job = {
        .count = ranks, .stack_bytes = 64 << 10, .body = body, .arg = &round};
    struct vrank_outcome out;
    if (vrank_run_job(&job, &out) < 0) {
        exit(1);
    }
    return (double)(round.end_ns - round.start_ns) / YIELDS;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const int ranks[] = {2, 64, 1024, 16384};
    enum { MOST = 99 };
    int repetitions = argc > 1 ? atoi(argv[1]) : 5;
    double ns[MOST];
    if (repetitions < 1 || repetitions > MOST) {
        return 2;
    }
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        for (int r = 0; r < repetitions; r++) {
            ns[r] = one(ranks[i]);
        }
        qsort(ns, (size_t)repetitions, sizeof *ns, compare);
        printf("%6d ranks: %6.1f ns a yield (%.1f to %.1f)\n", ranks[i],
               ns[repetitions / 2], ns[0], ns[repetitions - 1]);
    }
    return 0;
}
