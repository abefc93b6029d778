/*
 * Red-black successive over-relaxation on several sites, and three ways to know
 * in each iteration whether to go on: MPI's allreduce; one over Poise's trees,
 * which crosses the wide area once; and a conditional one, which in all but the
 * last iterations finds on its own site that the changes are large enough.
 *
 *     mpicc -O2 -o sor_sites sor_sites.c -lpoise -lm
 *     mpirun -n 4 ./sor_sites if heat
 *
 * Where the sites are, a file says that POISE_SITES names (lines: PATTERN of
 * host names, SITE). Source: latency-bandwidth-thesis 7.3.
 *
 * usage: sor_sites mpi|tree|if heat|tridiagonal|random [N [ITERATIONS]]
 */
#include <poise/coll.h>
#include <poise/conditional.h>
#include <poise/mpi.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON 0.01904 /* of the sum of all changes, for each of N rows */

static int rank, size, n, first, rows; /* rows of mine, borders apart */
static double *plate;
static struct poise_coll *coll;
static struct poise_coll_if *cond;

static void check(int code)
{
    if (code < 0) {
        fprintf(stderr, "sor_sites: %s\n", poise_error_last()->why);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static double *row(int i)
{
    return plate + (size_t)i * (size_t)(n + 2);
}

/* What the point in row i and column j begins with, on whichever rank. */
static double begin(const char *data, int i, int j)
{
    struct poise_rng rng;
    poise_rng_seed(&rng, (uint64_t)i * 100003 + (uint64_t)j);
    double any = (double)poise_rng_below(&rng, 10000);
    if (strcmp(data, "heat") == 0) {
        return i == 0 ? 27760 : -273.15;
    }
    return strcmp(data, "random") == 0 || abs(i - j) <= 3 ? any : 0;
}

static void exchange(void)
{
    int above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int below = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    MPI_Request requests[4];
    MPI_Status statuses[4];
    /* All at once: a row that comes from far is waited for once. */
    MPI_Irecv(row(rows + 1), n + 2, MPI_DOUBLE, below, 0, MPI_COMM_WORLD,
              &requests[0]);
    MPI_Irecv(row(0), n + 2, MPI_DOUBLE, above, 1, MPI_COMM_WORLD,
              &requests[1]);
    MPI_Isend(row(1), n + 2, MPI_DOUBLE, above, 0, MPI_COMM_WORLD,
              &requests[2]);
    MPI_Isend(row(rows), n + 2, MPI_DOUBLE, below, 1, MPI_COMM_WORLD,
              &requests[3]);
    MPI_Waitall(4, requests, statuses);
}

/* The points of one colour from those of the other; the sum of changes. */
static double relax(int colour, double omega)
{
    double changes = 0;
    for (int i = 1; i <= rows; i++) {
        double *here = row(i), *up = row(i - 1), *down = row(i + 1);
        for (int j = 1 + (first + i + colour) % 2; j <= n; j += 2) {
            double mean = 0.25 * (up[j] + down[j] + here[j - 1] + here[j + 1]);
            double change = omega * (mean - here[j]);
            here[j] += change;
            changes += fabs(change);
        }
    }
    return changes;
}

/* Whether the changes of all ranks together are still large. */
static bool go_on(double changes)
{
    double sum = 0;
    if (cond) {
        struct poise_coll_verdict verdict;
        check(poise_coll_allreduce_if(cond, &changes, &verdict));
        return verdict.truth;
    }
    if (coll) {
        check(poise_coll_allreduce(coll, &changes, &sum, 1, POISE_DOUBLE,
                                   POISE_OP_SUM));
    } else {
        MPI_Allreduce(&changes, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    return sum > EPSILON * n;
}

static void choose_way(const char *way, struct poise_world *world)
{
    const struct poise_coll_condition condition = {.type = POISE_DOUBLE,
                                                   .op = POISE_OP_SUM,
                                                   .test = POISE_TEST_GREATER,
                                                   .sign =
                                                       POISE_SIGN_NOT_NEGATIVE,
                                                   .real = EPSILON * n};
    if (strcmp(way, "tree") == 0) {
        check(poise_coll_create(world, NULL, &coll));
    } else if (strcmp(way, "if") == 0) {
        check(poise_coll_if_create(world, &condition, &cond));
    }
}

static void make_plate(const char *data)
{
    first = (int)((long)n * rank / size);
    rows = (int)((long)n * (rank + 1) / size) - first;
    plate = calloc((size_t)(rows + 2) * (size_t)(n + 2), sizeof *plate);
    if (plate == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < rows + 2; i++) {
        for (int j = 0; j < n + 2; j++) {
            row(i)[j] = begin(data, first + i, j);
        }
    }
}

/* How each site found its truths, as its first rank says. */
static void show_shares(const struct poise_world *world)
{
    struct poise_coll_if_stats stats = poise_coll_if_stats(cond);
    if (poise_world_is_root(world, POISE_LEVEL_SITE) && stats.calls > 0) {
        double calls = (double)stats.calls;
        fprintf(stderr,
                "site %d: %.1f %% locally, %.1f %% prefetched, %.1f %% by "
                "waiting\n",
                poise_world_placement(world, rank).site,
                100 * (double)stats.local / calls,
                100 * (double)stats.prefetched / calls,
                100 * (double)stats.waited / calls);
    }
}

int main(int argc, char **argv)
{
    struct poise_world *world;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    n = argc > 3 ? atoi(argv[3]) : 200;
    int iterations = argc > 4 ? atoi(argv[4]) : 1000, done = 0;
    if (argc < 3 || n < size || iterations < 1) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    check(poise_world_from_mpi(MPI_COMM_WORLD, &world));
    choose_way(argv[1], world);
    make_plate(argv[2]);
    double omega = 2 / (1 + sin(acos(-1) / (n + 1)));
    double start = MPI_Wtime(), sum = 0, all, changes;
    bool more = true;
    while (more && done < iterations) {
        exchange();
        changes = relax(0, omega);
        exchange();
        changes += relax(1, omega);
        more = go_on(changes);
        done++;
    }
    double took = MPI_Wtime() - start;
    for (int i = 1; i <= rows; i++) {
        for (int j = 1; j <= n; j++) {
            sum += row(i)[j];
        }
    }
    MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("mean %.6f after %d iterations%s\n", all / ((double)n * n), done,
               more ? "" : ", converged");
        fprintf(stderr, "%d ranks: %.3f ms an iteration\n", size,
                took * 1e3 / done);
    }
    if (cond) {
        show_shares(world);
    }
    poise_coll_if_destroy(cond);
    poise_coll_destroy(coll);
    poise_world_destroy(world);
    free(plate);
    MPI_Finalize();
    return 0;
}
