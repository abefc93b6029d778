/*
 * A program that began MPI itself, and makes a world of Poise beside it: what
 * it receives from whomever, whatever the tag, is its own, and its error
 * handler stays.
 */
#include <poise/comm.h>

#include <mpi.h>
#include <stdio.h>

static int fail(const char *what)
{
    fprintf(stderr, "beside: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

/* Messages of Poise's, while a receive of the program's waits. */
static int exchange(struct poise_world *world, int rank, int size)
{
    struct poise_message message;
    int dest = (rank + 1) % size, got = 0;
    if (poise_world_send(world, dest, 1, &rank, sizeof rank) < 0) {
        return -1;
    }
    while (got == 0) {
        got = poise_world_receive(world, &message);
    }
    if (got < 0) {
        return -1;
    }
    poise_message_free(&message);
    return poise_world_barrier(world);
}

int main(int argc, char **argv)
{
    struct poise_world *world;
    MPI_Errhandler handler;
    MPI_Request request;
    MPI_Status status;
    int rank, size, mine = 1000, got = -1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (poise_world_create(NULL, &world) < 0) {
        return fail("no world");
    }
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
    if (handler != MPI_ERRORS_ARE_FATAL) {
        return fail("the error handler of MPI_COMM_WORLD is another");
    }
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
              &request);
    if (poise_world_size(world) != size || exchange(world, rank, size) < 0) {
        return fail("the world does not work");
    }
    MPI_Send(&mine, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD);
    MPI_Wait(&request, &status);
    if (got != mine || status.MPI_TAG != 7) {
        return fail("another's message was received");
    }
    poise_world_destroy(world);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        puts("each its own");
    }
    MPI_Finalize();
    return 0;
}
