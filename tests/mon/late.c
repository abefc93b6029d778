/*
 * An MPI program that knows nothing of Poise: allreduces, before each of which
 * one rank computes for longer, and by its own clock the times around each.
 *
 * usage: late CALLS RANK MICROSECONDS OUT     (writes OUT.R: enter, left in ns)
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <mpi.h>

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv)
{
    int rank, calls = argc > 4 ? atoi(argv[1]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    long long *times = calloc((size_t)calls * 2 + 1, sizeof *times);
    if (!times || calls < 1) {
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    for (int i = 0; i < calls; i++) {
        double mine = rank, sum = 0;
        if (rank == atoi(argv[2])) {
            long long until = now() + atoi(argv[3]) * 1000LL;
            while (now() < until) {
            }
        }
        times[2 * i] = now();
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        times[2 * i + 1] = now();
    }
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", argv[4], rank);
    FILE *file = fopen(path, "w");
    for (int i = 0; file && i < calls; i++) {
        fprintf(file, "%lld %lld\n", times[2 * i], times[2 * i + 1]);
    }
    int bad = !file || fclose(file) != 0;
    free(times);
    MPI_Finalize();
    return bad;
}
