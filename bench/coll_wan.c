/*
 * Allreduces of 8 bytes among sites that are far from each other: the MPI's,
 * over a tree with one root, over MagPIe's, and a conditional one that the own
 * site can decide. Milliseconds, the median over calls of the slowest rank;
 * then the same with some milliseconds of computation between calls, which is
 * sleep here, since the ranks are more than the processors.
 *
 * usage: mpirun -n N coll_wan_MPI [CALLS [COMPUTE_MS]]     (POISE_SITES)
 */
#include <poise/coll.h>
#include <poise/mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CALLS 1000

static struct poise_world *world;
static struct poise_coll *coll;
static struct poise_coll_if *cond;

static void check(int code)
{
    if (code < 0) {
        fprintf(stderr, "coll_wan: %s\n", poise_error_last()->why);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void by_mpi(void)
{
    double mine = 1, sum;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void by_tree(void)
{
    double mine = 1, sum;
    check(
        poise_coll_allreduce(coll, &mine, &sum, 1, POISE_DOUBLE, POISE_OP_SUM));
}

static void by_condition(void)
{
    double mine = 1;
    struct poise_coll_verdict verdict;
    check(poise_coll_allreduce_if(cond, &mine, &verdict));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, void (*step)(void), int calls,
                    double compute_ms)
{
    double times[MOST_CALLS], worst[MOST_CALLS], begun;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 3; i++) {
        step();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), took, mean;
    for (int i = 0; i < calls; i++) {
        if (compute_ms > 0) {
            poise_sleep_ns((uint64_t)(compute_ms * 1e6));
        }
        begun = MPI_Wtime();
        step();
        times[i] = (MPI_Wtime() - begun) * 1e3;
    }
    took = (MPI_Wtime() - start) * 1e3 / calls;
    MPI_Reduce(times, worst, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&took, &mean, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(worst, (size_t)calls, sizeof(*worst), by_value);
        printf("%-12s %5.1f %9.3f %9.3f %9.3f\n", name, compute_ms,
               worst[calls / 2], worst[calls - 1], mean);
        fflush(stdout);
    }
}

static void with_tree(const char *shape, int calls, double compute_ms)
{
    struct poise_coll_tree *tree;
    check(poise_coll_tree_make(world, shape, &tree));
    struct poise_coll_options options = {.tree = tree};
    check(poise_coll_create(world, &options, &coll));
    poise_coll_tree_free(tree);
    measure(shape, by_tree, calls, compute_ms);
    poise_coll_destroy(coll);
}

int main(int argc, char **argv)
{
    const struct poise_coll_condition condition = {.type = POISE_DOUBLE,
                                                   .op = POISE_OP_SUM,
                                                   .test = POISE_TEST_GREATER,
                                                   .sign =
                                                       POISE_SIGN_NOT_NEGATIVE,
                                                   .real = 0.5};
    MPI_Init(&argc, &argv);
    int calls = argc > 1 ? atoi(argv[1]) : 50;
    calls = calls < 1 || calls > MOST_CALLS ? 50 : calls;
    double compute_ms = argc > 2 ? atof(argv[2]) : 30;
    check(poise_world_from_mpi(MPI_COMM_WORLD, &world));
    if (poise_world_rank(world) == 0) {
        printf("%s, %d ranks\n%-12s %5s %9s %9s %9s\n", poise_world_name(world),
               poise_world_size(world), "way", "C ms", "median ms", "worst ms",
               "whole ms");
    }
    for (int round = 0; round < 2; round++) {
        double ms = round == 0 ? 0 : compute_ms;
        measure("mpi", by_mpi, calls, ms);
        with_tree("site", calls, ms);
        with_tree("magpie", calls, ms);
        check(poise_coll_if_create(world, &condition, &cond));
        measure("conditional", by_condition, calls, ms);
        poise_coll_if_destroy(cond);
    }
    poise_world_destroy(world);
    MPI_Finalize();
    return 0;
}
