/*
 * An MPI program whose messages have to be found in its trace: each rank prints
 * nothing, and the numbers of messages and bytes from each rank to each are
 * known. usage: p2p ROUNDS MICROSECONDS     (rank 1 sends so much later)
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void work(long us)
{
    struct timespec now, until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += us * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < until.tv_sec ||
             (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec));
}

int main(int argc, char **argv)
{
    int rank, size, rounds = argc > 2 ? atoi(argv[1]) : 0;
    char in[4][256], out[256] = {0};
    MPI_Request requests[4];
    MPI_Comm back;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* The same ranks the other way round. */
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &back);
    for (int i = 0; i < rounds && size == 3; i++) {
        /* 1 sends late to 0: 8 bytes. */
        if (rank == 1) {
            work(atol(argv[2]));
            MPI_Send(out, 8, MPI_CHAR, 0, 7, MPI_COMM_WORLD);
        } else if (rank == 0) {
            MPI_Recv(in[0], 8, MPI_CHAR, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        }
        /* All to all others, 16 bytes to the next, 32 to the one behind it, by
         * other tags; received in the other order. */
        MPI_Irecv(in[0], 32, MPI_CHAR, (rank + 1) % 3, 2, MPI_COMM_WORLD,
                  &requests[0]);
        MPI_Irecv(in[1], 16, MPI_CHAR, (rank + 2) % 3, 1, MPI_COMM_WORLD,
                  &requests[1]);
        MPI_Isend(out, 16, MPI_CHAR, (rank + 1) % 3, 1, MPI_COMM_WORLD,
                  &requests[2]);
        MPI_Isend(out, 32, MPI_CHAR, (rank + 2) % 3, 2, MPI_COMM_WORLD,
                  &requests[3]);
        if (i % 2) {
            MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        } else {
            int done = 0, index, some, places[4];
            MPI_Waitany(4, requests, &index, MPI_STATUS_IGNORE);
            for (done = 1; done < 4; done += some) {
                MPI_Waitsome(4, requests, &some, places, MPI_STATUSES_IGNORE);
            }
        }
        /* Round the ring, backwards: 64 bytes to rank - 1. */
        MPI_Sendrecv(out, 64, MPI_CHAR, (2 - rank + 1) % 3, 7, in[2], 64,
                     MPI_CHAR, (2 - rank + 2) % 3, 7, back, MPI_STATUS_IGNORE);
        MPI_Send(out, 1, MPI_CHAR, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    }
    MPI_Comm_free(&back);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
