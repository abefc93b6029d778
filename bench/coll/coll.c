/*
 * Collectives of the MPI that this is compiled against, and Poise's on the same
 * ranks, in turn: median and least time of batches, in microseconds. Each
 * iteration works on another part of its buffer, so that no cache flatters.
 *
 * usage: mpirun -n N bench_coll_MPI [BATCHES [BATCH_MS]]
 */
#include <poise/coll.h>
#include <poise/mpi.h>
#include <poise/window.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BATCHES 101
#define MIB ((size_t)1 << 20)
#define SPREAD 4 /* parts of a buffer that take turns */

struct bench {
    struct poise_coll *coll;
    struct poise_coll_window *window;
    int rank, size;
    size_t bytes; /* of the vector, or from each rank */
    char *in, *out;
};

typedef void (*step_fn)(struct bench *bench, unsigned i);

static char *part_of(const struct bench *bench, char *buffer, unsigned i)
{
    return buffer + i % SPREAD * bench->bytes;
}

static void check(int code)
{
    if (code != 0) {
        fprintf(stderr, "bench_coll: %s\n", poise_error_last()->why);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void mpi_barrier(struct bench *bench, unsigned i)
{
    (void)bench;
    (void)i;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void our_barrier(struct bench *bench, unsigned i)
{
    (void)i;
    check(poise_coll_barrier(bench->coll));
}

static void mpi_allreduce(struct bench *bench, unsigned i)
{
    MPI_Allreduce(part_of(bench, bench->in, i), part_of(bench, bench->out, i),
                  (int)(bench->bytes / 8), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void our_allreduce(struct bench *bench, unsigned i)
{
    check(poise_coll_allreduce(bench->coll, part_of(bench, bench->in, i),
                               part_of(bench, bench->out, i), bench->bytes / 8,
                               POISE_DOUBLE, POISE_OP_SUM));
}

static void mpi_bcast(struct bench *bench, unsigned i)
{
    MPI_Bcast(part_of(bench, bench->in, i), (int)bench->bytes, MPI_BYTE, 0,
              MPI_COMM_WORLD);
}

static void our_bcast(struct bench *bench, unsigned i)
{
    check(poise_coll_broadcast(bench->coll, 0, part_of(bench, bench->in, i),
                               bench->bytes));
}

static void mpi_allgather(struct bench *bench, unsigned i)
{
    MPI_Allgather(part_of(bench, bench->in, i), (int)bench->bytes, MPI_BYTE,
                  bench->out, (int)bench->bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void our_allgather(struct bench *bench, unsigned i)
{
    check(poise_coll_allgather(bench->coll, part_of(bench, bench->in, i),
                               bench->out, bench->bytes));
}

static void mpi_alltoall(struct bench *bench, unsigned i)
{
    int each = (int)(bench->bytes / (size_t)bench->size);
    MPI_Alltoall(part_of(bench, bench->in, i), each, MPI_BYTE, bench->out, each,
                 MPI_BYTE, MPI_COMM_WORLD);
}

static void our_alltoall(struct bench *bench, unsigned i)
{
    check(poise_coll_alltoall(bench->coll, part_of(bench, bench->in, i),
                              bench->out, bench->bytes / (size_t)bench->size));
}

/* Written into the window, read in place. */
static void our_window(struct bench *bench, unsigned i)
{
    const void *whole;
    check(poise_coll_allgather_shared(bench->window,
                                      part_of(bench, bench->in, i), &whole));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double batch(struct bench *bench, step_fn step, unsigned iterations)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (unsigned i = 0; i < iterations; i++) {
        step(bench, i);
    }
    double mine = (MPI_Wtime() - begun) / iterations, most;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most * 1e6;
}

/* Iterations of about `ms`. */
static unsigned calibrate(struct bench *bench, step_fn step, double ms)
{
    double us = batch(bench, step, 3);
    double first = ms * 1000 / us;
    us = batch(bench, step,
               first < 1      ? 1
               : first > 1000 ? 1000
                              : (unsigned)first);
    double count = ms * 1000 / us;
    return count < 1 ? 1 : count > 1e6 ? 1000000 : (unsigned)count;
}

static void compare(struct bench *bench, const char *name, step_fn theirs,
                    step_fn ours, int batches, double ms)
{
    double times[2][MOST_BATCHES];
    unsigned counts[2] = {calibrate(bench, theirs, ms),
                          calibrate(bench, ours, ms)};
    for (int i = 0; i < batches; i++) {
        times[0][i] = batch(bench, theirs, counts[0]);
        times[1][i] = batch(bench, ours, counts[1]);
    }
    for (int side = 0; side < 2; side++) {
        qsort(times[side], (size_t)batches, sizeof(double), by_value);
    }
    if (bench->rank == 0) {
        double a = times[0][batches / 2], b = times[1][batches / 2];
        printf("%-12s %9zu  mpi %10.2f (%.2f)  poise %10.2f (%.2f)  "
               "poise/mpi %.3f\n",
               name, bench->bytes, a, times[0][0], b, times[1][0], b / a);
        fflush(stdout);
    }
}

static void make_window(struct bench *bench, struct poise_world *world)
{
    size_t *lengths = calloc((size_t)bench->size, sizeof *lengths);
    for (int rank = 0; rank < bench->size; rank++) {
        lengths[rank] = bench->bytes;
    }
    check(poise_coll_window_create(world, lengths, NULL, &bench->window));
    free(lengths);
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    struct poise_world *world;
    MPI_Init(&argc, &argv);
    int batches = argc > 1 ? atoi(argv[1]) : 9;
    double ms = argc > 2 ? atof(argv[2]) : 20;
    batches = batches < 1 || batches > MOST_BATCHES ? 9 : batches;
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.size);
    check(poise_world_from_mpi(MPI_COMM_WORLD, &world));
    check(poise_coll_create(world, NULL, &bench.coll));
    size_t part = 64 * MIB / (size_t)bench.size;
    bench.in = calloc(SPREAD, part > MIB ? part : MIB);
    bench.out = calloc(1, 64 * MIB + (size_t)bench.size);
    if (!bench.in || !bench.out) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (bench.rank == 0) {
        printf("%s, %d ranks, us: median (least) of %d batches of %.0f ms\n",
               poise_world_name(world), bench.size, batches, ms);
    }
    static const size_t lengths[] = {8, 4096, 64 << 10, MIB};
    compare(&bench, "barrier", mpi_barrier, our_barrier, batches, ms);
    for (int i = 0; i < 4; i++) {
        bench.bytes = lengths[i];
        compare(&bench, "allreduce", mpi_allreduce, our_allreduce, batches, ms);
        compare(&bench, "bcast", mpi_bcast, our_bcast, batches, ms);
        if (i > 0) {
            compare(&bench, "alltoall", mpi_alltoall, our_alltoall, batches,
                    ms);
        }
    }
    compare(&bench, "allgather", mpi_allgather, our_allgather, batches, ms);
    bench.bytes = part;
    make_window(&bench, world);
    compare(&bench, "window", mpi_allgather, our_window, batches, ms);
    poise_coll_window_destroy(bench.window);
    poise_coll_destroy(bench.coll);
    poise_world_destroy(world);
    free(bench.in);
    free(bench.out);
    MPI_Finalize();
    return 0;
}
