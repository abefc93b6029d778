/*
 * The thesis' benchmarks for monitors (7.2, 5), as an MPI program that knows
 * nothing of Poise: allreduces of 8 bytes, on several communicators in turn,
 * and with as long a computation before each (compute-gsum). Where the preload
 * records, blocks of calls with recording on and off take turns (on, off, off,
 * on), so that both see the same machine.
 *
 * usage: gsum ROUNDS CALLS COMMUNICATORS HALF
 *
 * Rank 0 prints ns a call off and on, the slow-down in per cent, and half the
 * width of its 95 % interval.
 */
#include <mpi.h>

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_COMMS = 8 };

static MPI_Comm comms[MOST_COMMS];
static int comm_count, calls;
static long work; /* steps of computation before each call */

static double compute(long steps)
{
    double value = 1;
    for (long i = 0; i < steps; i++) {
        value = value * 1.0000001 + 1e-9;
        __asm__ volatile("" : "+x"(value));
    }
    return value;
}

/* ns a call of one block. */
static double block(int count)
{
    double in = 1, out = 0, sum = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double from = MPI_Wtime();
    for (int i = 0; i < count; i++) {
        sum += compute(work);
        MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, comms[i % comm_count]);
    }
    double took = (MPI_Wtime() - from) * 1e9 / count;
    return sum < 0 ? 0 : took;
}

/* As many steps as take as long as a call: half of the time is computing. */
static void calibrate(void)
{
    double call = block(calls), from = MPI_Wtime();
    for (int i = 0; i < 3; i++) {
        double again = block(calls);
        call = again < call ? again : call;
    }
    from = MPI_Wtime();
    compute(10000000);
    work = (long)(call / ((MPI_Wtime() - from) * 1e9 / 1e7)) + 1;
    MPI_Bcast(&work, 1, MPI_LONG, 0, MPI_COMM_WORLD);
}

static void *(*use)(void *);
static void *trace;

static void record(int on)
{
    if (use && trace) {
        use(on ? trace : NULL);
    }
}

int main(int argc, char **argv)
{
    static const int order[4] = {1, 0, 0, 1};
    int rank, rounds = argc == 5 ? atoi(argv[1]) : 0;
    double sums[2] = {0}, mean = 0, squares = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    calls = argc == 5 ? atoi(argv[2]) : 0;
    comm_count = argc == 5 ? atoi(argv[3]) : 0;
    if (rounds < 2 || calls < 1 || comm_count < 1 || comm_count > MOST_COMMS) {
        fprintf(stderr, "usage: gsum ROUNDS CALLS COMMUNICATORS HALF\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    *(void **)&use = dlsym(RTLD_DEFAULT, "poise_trace_use");
    trace = use ? use(NULL) : NULL;
    for (int i = 0; i < comm_count; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    }
    block(calls);
    if (atoi(argv[4])) {
        calibrate();
    }
    for (int r = 1; r <= rounds; r++) {
        double ns[2] = {0};
        for (int i = 0; i < 4; i++) {
            record(order[i]);
            ns[order[i]] += block(calls) / 2;
        }
        double ratio = log(ns[1] / ns[0]), before = ratio - mean;
        sums[0] += ns[0];
        sums[1] += ns[1];
        mean += before / r;
        squares += before * (ratio - mean);
    }
    record(1);
    if (rank == 0) {
        printf("%.1f %.1f %.2f %.2f\n", sums[0] / rounds, sums[1] / rounds,
               100 * (exp(mean) - 1),
               196 * sqrt(squares / (rounds - 1) / rounds));
    }
    for (int i = 0; i < comm_count; i++) {
        MPI_Comm_free(&comms[i]);
    }
    MPI_Finalize();
    return 0;
}
