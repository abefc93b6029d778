/*
 * Red-black successive over-relaxation: the temperature in a square plate, by
 * rows over the ranks, with a test for the end every so often. Plain MPI:
 *
 *     mpicc -O2 -o sor sor.c -lm     mpirun -n 4 ./sor
 *     poise cc -O2 -o sor sor.c -lm  poise run -n 2 -V 16 ./sor
 *
 * The boundary exchange is what many virtual ranks hide: while one waits for
 * a neighbour's row, another computes. Source: latency-bandwidth-thesis 7.4.
 *
 * usage: sor [N [ITERATIONS [EVERY]]]
 *
 * EVERY so many iterations all ranks agree on whether to go on [1]; 0: never,
 * so that nobody waits but for its neighbours.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size, n, rows; /* rows of mine, without the two borders */
static double *plate;

static double *row(int i)
{
    return plate + (size_t)i * (size_t)(n + 2);
}

/* My first and last row to the neighbours, theirs to me: all under way at once,
 * so that it takes the time of one message. */
static void exchange(void)
{
    int above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int below = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    MPI_Request requests[4];
    MPI_Status statuses[4];
    MPI_Irecv(row(0), n + 2, MPI_DOUBLE, above, 1, MPI_COMM_WORLD,
              &requests[0]);
    MPI_Irecv(row(rows + 1), n + 2, MPI_DOUBLE, below, 0, MPI_COMM_WORLD,
              &requests[1]);
    MPI_Isend(row(1), n + 2, MPI_DOUBLE, above, 0, MPI_COMM_WORLD,
              &requests[2]);
    MPI_Isend(row(rows), n + 2, MPI_DOUBLE, below, 1, MPI_COMM_WORLD,
              &requests[3]);
    MPI_Waitall(4, requests, statuses);
}

/* One half-step: the points of a colour from those of the other. */
static double relax(int colour, int first, double omega)
{
    double most = 0;
    for (int i = 1; i <= rows; i++) {
        double *here = row(i), *up = row(i - 1), *down = row(i + 1);
        for (int j = 1 + (first + i + colour) % 2; j <= n; j += 2) {
            double old = here[j];
            double mean = 0.25 * (up[j] + down[j] + here[j - 1] + here[j + 1]);
            here[j] = old + omega * (mean - old);
            most = fmax(most, fabs(here[j] - old));
        }
    }
    return most;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    n = argc > 1 ? atoi(argv[1]) : 400;
    int iterations = argc > 2 ? atoi(argv[2]) : 100;
    int every = argc > 3 ? atoi(argv[3]) : 1;
    if (n < 1 || iterations < 0 || every < 0) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int first = (int)((long)n * rank / size);
    rows = (int)((long)n * (rank + 1) / size) - first;
    plate = malloc((size_t)(rows + 2) * (size_t)(n + 2) * sizeof *plate);
    if (plate == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < rows + 2; i++) {
        for (int j = 0; j < n + 2; j++) {
            /* The upper edge is hot. */
            row(i)[j] = rank == 0 && i == 0 ? 100 : 0;
        }
    }
    double omega = 2 / (1 + sin(acos(-1) / (n + 1)));
    double change = 1, mine = 0, sum = 0, all;
    int done = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    while (done < iterations && change > 1e-6) {
        exchange();
        mine = relax(0, first, omega);
        exchange();
        mine = fmax(mine, relax(1, first, omega));
        done++;
        if (every > 0 && done % every == 0) {
            MPI_Allreduce(&mine, &change, 1, MPI_DOUBLE, MPI_MAX,
                          MPI_COMM_WORLD);
        }
    }
    MPI_Allreduce(&mine, &change, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    double took = MPI_Wtime() - start;
    for (int i = 1; i <= rows; i++) {
        for (int j = 1; j <= n; j++) {
            sum += row(i)[j];
        }
    }
    MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("mean %.6f after %d iterations, change %.3e\n",
               all / ((double)n * n), done, change);
        fprintf(stderr, "%d ranks: %.3f ms an iteration\n", size,
                took * 1e3 / (done > 0 ? done : 1));
    }
    free(plate);
    MPI_Finalize();
    return 0;
}
