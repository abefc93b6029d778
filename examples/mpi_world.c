/*
 * A Poise world inside an MPI program: half the ranks in one communicator,
 * half in another, each of them a world of its own; then all of them in one.
 *
 *     mpicc mpi_world.c $(pkg-config --cflags --libs poise) -o mpi_world
 *     mpirun -n 4 ./mpi_world
 */
#include <poise/mpi.h>

#include <stdio.h>

static int fail(void)
{
    struct poise_buf text = {0};
    poise_error_format(poise_error_last(), &text);
    fprintf(stderr, "mpi_world: %s\n", poise_buf_str(&text));
    poise_buf_free(&text);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

/* Add up the world ranks of those in `comm`, and say so on its rank 0. */
static int add_up(MPI_Comm comm, const char *what)
{
    struct poise_world *world;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    uint64_t sum = (uint64_t)rank;
    if (poise_world_from_mpi(comm, &world) < 0 ||
        poise_world_reduce(world, POISE_SUM, &sum, 1) < 0) {
        return fail();
    }
    if (poise_world_rank(world) == 0) {
        printf("%s: %d ranks of %s, sum %llu\n", what, poise_world_size(world),
               poise_world_name(world), (unsigned long long)sum);
    }
    poise_world_destroy(world);
    return 0;
}

int main(int argc, char **argv)
{
    int level, rank;
    MPI_Comm half;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    int err = add_up(half, rank % 2 ? "odd" : "even");
    err = err ? err : add_up(MPI_COMM_WORLD, "all");
    MPI_Comm_free(&half);
    MPI_Finalize();
    return err;
}
