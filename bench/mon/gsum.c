/*
 * The thesis' benchmarks for monitors (7.2, 5), as an MPI program that knows
 * nothing of Poise: allreduces, on several communicators in turn, and with as
 * long a computation before each (compute-gsum). Where the preload records,
 * blocks of calls without it, with it, and without it again take turns, in each
 * of the six orders alike often, so that all see the same machine; the third
 * kind is there for a comparison of two things that are the same.
 *
 * usage: gsum ROUNDS US COMMUNICATORS HALF [BYTES [SETTLE]]
 *
 * A block takes some US microseconds. SETTLE go before each, unmeasured, in
 * which a monitor that lags behind catches up. Rank 0 prints ns a call off and
 * on;
 * by how many per cent on is slower than off, and half the width of the 95 %
 * interval; the same of the third kind, which is 0 but for chance. Of each
 * round's ratios the mean without the fifth at either end, and its interval by
 * the winsorized variance (Yuen 1974): the machine does other things now and
 * then. Last the slow-down of the sums of all rounds, which has those in it.
 */
#include <mpi.h>

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_COMMS = 8, MOST_VALUES = 1 << 20 };

static MPI_Comm comms[MOST_COMMS];
static int comm_count, calls, values;
static double in[MOST_VALUES], out[MOST_VALUES];
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
    double sum = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double from = MPI_Wtime();
    for (int i = 0; i < count; i++) {
        sum += compute(work);
        MPI_Allreduce(in, out, values, MPI_DOUBLE, MPI_SUM,
                      comms[i % comm_count]);
    }
    double took = (MPI_Wtime() - from) * 1e9 / count;
    return sum < 0 ? 0 : took;
}

/* So many calls of that length as take some ns: the same on all ranks. */
static int calls_in(double ns, double call)
{
    double most = 1e9;
    int count = ns < call ? 1 : ns > most * call ? (int)most : (int)(ns / call);
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return count;
}

/* ns a call: the least of a few blocks. */
static double call_ns(void)
{
    double call = block(20);
    for (int i = 0; i < 5; i++) {
        double again = block(calls_in(1e6, call));
        call = again < call ? again : call;
    }
    return call;
}

/* As many steps as take as long as a call: half of the time is computing. */
static void calibrate(void)
{
    double call = call_ns(), from = MPI_Wtime();
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

enum { OFF, ON, AGAIN, KINDS };

static int compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* Mean of the middle three fifths, and 1.96 of its standard errors. */
static void middle(double *ratios, int count, double *mean, double *error)
{
    int cut = count / 5, left = count - 2 * cut;
    double sum = 0, all = 0, squares = 0;
    qsort(ratios, (size_t)count, sizeof *ratios, compare);
    for (int i = cut; i < count - cut; i++) {
        sum += ratios[i];
    }
    for (int i = 0; i < count; i++) {
        int at = i < cut ? cut : i >= count - cut ? count - cut - 1 : i;
        all += ratios[at];
    }
    for (int i = 0; i < count; i++) {
        int at = i < cut ? cut : i >= count - cut ? count - cut - 1 : i;
        squares += (ratios[at] - all / count) * (ratios[at] - all / count);
    }
    *mean = 100 * (exp(sum / left) - 1);
    *error = 196 * sqrt(squares / left / (left - 1));
}

static void measure(int rounds, int settle, int rank)
{
    static const int orders[6][KINDS] = {{OFF, ON, AGAIN}, {AGAIN, ON, OFF},
                                         {ON, OFF, AGAIN}, {ON, AGAIN, OFF},
                                         {OFF, AGAIN, ON}, {AGAIN, OFF, ON}};
    double sums[KINDS] = {0}, mean, error;
    double *on = malloc(2 * (size_t)rounds * sizeof *on), *again = on + rounds;
    if (!on) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int r = 0; r < rounds; r++) {
        double ns[KINDS];
        for (int i = 0; i < KINDS; i++) {
            int kind = orders[r % 6][i];
            record(kind == ON);
            block(settle);
            ns[kind] = block(calls);
        }
        for (int i = 0; i < KINDS; i++) {
            sums[i] += ns[i] / rounds;
        }
        on[r] = log(ns[ON] / ns[OFF]);
        again[r] = log(ns[AGAIN] / ns[OFF]);
    }
    if (rank == 0) {
        printf("%.1f %.1f", sums[OFF], sums[ON]);
        middle(on, rounds, &mean, &error);
        printf(" %.2f %.2f", mean, error);
        middle(again, rounds, &mean, &error);
        printf(" %.2f %.2f %.2f\n", mean, error,
               100 * (2 * sums[ON] / (sums[OFF] + sums[AGAIN]) - 1));
    }
    free(on);
}

int main(int argc, char **argv)
{
    int rank, rounds = argc >= 5 ? atoi(argv[1]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double us = argc >= 5 ? atof(argv[2]) : 0;
    comm_count = argc >= 5 ? atoi(argv[3]) : 0;
    values = argc > 5 ? atoi(argv[5]) / 8 : 1;
    double settle = argc > 6 ? atof(argv[6]) : 50;
    if (rounds < 6 || us <= 0 || comm_count < 1 || comm_count > MOST_COMMS ||
        values < 1 || values > MOST_VALUES || settle < 0) {
        fprintf(stderr, "usage: gsum ROUNDS US COMMUNICATORS HALF "
                        "[BYTES [SETTLE]]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    *(void **)&use = dlsym(RTLD_DEFAULT, "poise_trace_use");
    trace = use ? use(NULL) : NULL;
    for (int i = 0; i < comm_count; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    }
    if (atoi(argv[4])) {
        calibrate();
    }
    double call = call_ns();
    calls = calls_in(us * 1000, call);
    measure(rounds, calls_in(settle * 1000, call), rank);
    record(1);
    for (int i = 0; i < comm_count; i++) {
        MPI_Comm_free(&comms[i]);
    }
    MPI_Finalize();
    return 0;
}
