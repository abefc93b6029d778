/*
 * What bench/vrank measures messages with: plain MPI, compiled with mpicc and
 * with poise cc. Rank 0 prints one figure.
 *
 *     vrank_mpi near BYTES     us one way between ranks 0 and 1
 *     vrank_mpi far BYTES      us one way between ranks 0 and SIZE / 2
 *     vrank_mpi stream BYTES   GB/s from rank 0 to SIZE / 2
 *     vrank_mpi allreduce      us for 8 bytes
 *     vrank_mpi copy BYTES     us to copy them within a rank
 *     vrank_mpi memory         KiB that the process of rank 0 takes
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
    qsort(seconds, BATCHES, sizeof *seconds, by_size);
    return seconds[BATCHES / 2];
}

static void copy(long count)
{
    for (long i = 0; i < count; i++) {
        memcpy(buffer, buffer + (size_t)WINDOW / 2 * (size_t)bytes,
               (size_t)bytes);
        __asm__ volatile("" : : "r"(buffer) : "memory");
    }
}

/* KiB of this process, each page once however often it is mapped. */
static double taken_kib(void)
{
    char line[256];
    double kib = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "Pss: %lf", &kib) == 1) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return kib;
}

static const struct mode {
    const char *name;
    void (*batch)(long count);
    int all;     /* ranks take part */
    double unit; /* of the figure, in s of a batch; 0: GB/s */
} modes[] = {{"near", pingpong, 0, 2e-6},       {"far", pingpong, 0, 2e-6},
             {"stream", stream, 0, 0},          {"copy", copy, 1, 1e-6},
             {"allreduce", allreduce, 1, 1e-6}, {NULL, NULL, 0, 0}};

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
    const struct mode *mode = modes;
    while (mode->name && strcmp(mode->name, what) != 0) {
        mode++;
    }
    MPI_Comm part;
    int in = mode->batch && (mode->all || rank == 0 || rank == peer);
    MPI_Comm_split(MPI_COMM_WORLD, in ? 0 : MPI_UNDEFINED, rank, &part);
    if (in) {
        double took = measure(mode->batch, part);
        if (rank == 0) {
            printf("%.4f\n", mode->unit > 0 ? took / mode->unit
                                            : WINDOW * bytes / took / 1e9);
        }
    } else if (rank == 0) {
        printf("%.0f\n", taken_kib());
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
