/*
 * What bench/vrank measures messages with: plain MPI, compiled with mpicc and
 * with poise cc. Rank 0 prints one figure.
 *
 *     vrank_mpi near BYTES     us one way between ranks 0 and 1
 *     vrank_mpi far BYTES      us one way between ranks 0 and SIZE / 2
 *     vrank_mpi stream BYTES   GB/s from rank 0 to SIZE / 2
 *     vrank_mpi allreduce      us for 8 bytes
 *     vrank_mpi memory         KiB of a process that are its own, all told
 *
 * Receives are for any source and any tag. Each figure is the median of
 * several batches; the ranks that take no part wait in a barrier.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCHES 15
#define BATCH_S 0.02
#define WINDOW 16

static int rank, size, peer, bytes;
static char *buffer;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void pingpong(long count)
{
    for (long i = 0; i < count; i++) {
        if (rank == 0) {
            MPI_Send(buffer, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
        }
        MPI_Recv(buffer, bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank != 0) {
            MPI_Send(buffer, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
}

/* `count` windows of messages one way, each answered by an empty one. */
static void stream(long count)
{
    MPI_Request requests[WINDOW];
    MPI_Status statuses[WINDOW];
    for (long i = 0; i < count; i++) {
        for (int j = 0; j < WINDOW; j++) {
            char *at = buffer + (size_t)j * (size_t)bytes;
            if (rank == 0) {
                MPI_Isend(at, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD,
                          &requests[j]);
            } else {
                MPI_Irecv(at, bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                          MPI_COMM_WORLD, &requests[j]);
            }
        }
        MPI_Waitall(WINDOW, requests, statuses);
        if (rank == 0) {
            MPI_Recv(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        } else {
            MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
        }
    }
}

static void allreduce(long count)
{
    double mine = rank, sum;
    for (long i = 0; i < count; i++) {
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
}

/* Seconds that each of a batch takes; only those that take part call this. */
static double measure(void (*batch)(long count), MPI_Comm comm)
{
    double seconds[BATCHES], took = 0;
    long count = 1;
    while (took < BATCH_S) {
        double begun = MPI_Wtime();
        batch(count);
        took = MPI_Wtime() - begun;
        MPI_Bcast(&took, 1, MPI_DOUBLE, 0, comm);
        count = took < BATCH_S ? count * 2 : count;
    }
    for (int i = 0; i < BATCHES; i++) {
        MPI_Barrier(comm);
        double begun = MPI_Wtime();
        batch(count);
        seconds[i] = (MPI_Wtime() - begun) / (double)count;
    }
    qsort(seconds, BATCHES, sizeof(*seconds), by_size);
    return seconds[BATCHES / 2];
}

/* Of this process, in KiB: what would be free if it ended. */
static double own_kib(void)
{
    char line[256];
    double sum = 0, kib;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "Private_Dirty: %lf", &kib) == 1 ||
            sscanf(line, "Private_Clean: %lf", &kib) == 1) {
            sum += kib;
        }
    }
    if (file) {
        fclose(file);
    }
    return sum;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *what = argc > 1 ? argv[1] : "";
    bytes = argc > 2 ? atoi(argv[2]) : 0;
    buffer = malloc((size_t)bytes * WINDOW + 1);
    memset(buffer, rank, (size_t)bytes * WINDOW + 1);
    peer = strcmp(what, "near") == 0 ? 1 : size / 2;
    int all = strcmp(what, "allreduce") == 0;
    MPI_Comm part;
    int in = all || rank == 0 || rank == peer;
    MPI_Comm_split(MPI_COMM_WORLD, in ? 0 : MPI_UNDEFINED, rank, &part);
    if (strcmp(what, "memory") == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            printf("%.0f\n", own_kib());
        }
    } else if (in) {
        double took = measure(all                           ? allreduce
                              : strcmp(what, "stream") == 0 ? stream
                                                            : pingpong,
                              part);
        if (rank == 0) {
            printf("%.4f\n", all ? took * 1e6
                             : strcmp(what, "stream") == 0
                                 ? WINDOW * bytes / took / 1e9
                                 : took / 2 * 1e6);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
