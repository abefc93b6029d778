/*
 * A program of 50 MB, most of which are constants: what bench/run looks at the
 * memory of many ranks with. Rank 0 prints KiB of its process, each page once
 * however often it is mapped.
 *
 * usage: vrank_big [PERCENT]     of the constants that each rank reads [100]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES 52428800
#define PAGE 4096

__asm__(".pushsection .rodata\n"
        ".balign 4096\n"
        "constants: .fill 52428800, 1, 0x5a\n"
        ".popsection\n");
extern const char constants[BYTES] __attribute__((visibility("hidden")));

int main(int argc, char **argv)
{
    int rank;
    long sum = 0, percent = argc > 1 ? atol(argv[1]) : 100;
    long end = BYTES / 100 * percent, pages = 0;
    char line[256];
    double kib = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (long i = 0; i < end; i += PAGE) {
        sum += constants[i];
        pages++;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        FILE *file = fopen("/proc/self/smaps_rollup", "r");
        while (file && fgets(line, sizeof line, file) &&
               sscanf(line, "Pss: %lf", &kib) != 1) {
        }
        printf("%.0f\n", kib);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return sum != pages * 0x5a;
}
