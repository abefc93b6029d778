/*
 * An MPI program that knows nothing of Poise: it goes on while the sum of what
 * its ranks give is large, as solvers do, and reduces other things meanwhile.
 * Prints how often it went round, and the end's value, on rank 0.
 *
 * usage: mpi_loop [different|negative|integer]
 *   different  the last rank asks at another place than the others
 *   negative   the last rank gives a value below 0 once
 *   integer    the most of integers is asked for
 */
#include <mpi.h>

#include <stdio.h>
#include <string.h>

static int rank, size;

/* Above 1 on the first rank's site alone for all but the last rounds. */
static double given(int round)
{
    double value = 64;
    for (int i = 0; i < round; i++) {
        value /= 2;
    }
    return value * (rank + 1);
}

__attribute__((noinline)) static double total(double mine)
{
    double sum = -1;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum + 0.0;
}

__attribute__((noinline)) static double total_elsewhere(double mine)
{
    double sum = -2;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum + 1e-300;
}

static int count_down(void)
{
    long mine, most = 1;
    int rounds = 0;
    for (; most > 0; rounds++) {
        mine = 20 - rounds - rank;
        MPI_Allreduce(&mine, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    }
    return rounds;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = 0, ranks = 0, one = 1;
    double sum = 1;
    if (strcmp(how, "integer") == 0) {
        rounds = count_down();
    }
    while (strcmp(how, "integer") != 0 && sum > 0.001) {
        double mine = given(rounds);
        int is_last = rank == size - 1 && rounds == 2;
        if (is_last && strcmp(how, "negative") == 0) {
            mine = -mine;
        }
        sum = is_last && strcmp(how, "different") == 0 ? total_elsewhere(mine)
                                                       : total(mine);
        rounds++;
        MPI_Allreduce(&one, &ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (ranks != size || rounds > 1000) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    /* The whole, however the loop found its end. */
    double exact = total_elsewhere(given(rounds));
    if (rank == 0) {
        printf("%d rounds, %.17g\n", rounds, exact);
    }
    MPI_Finalize();
    return 0;
}
