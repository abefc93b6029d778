/*
 * Prefix sums of an array that is cut into blocks, one a rank: each rank adds
 * up its block, MPI_Exscan tells it the sum of all blocks before, and it adds
 * once more from there. Plain MPI:
 *
 *     mpicc -O2 -o prefix prefix.c     mpirun -n 4 ./prefix
 *     poise cc -O2 -o prefix prefix.c  poise run -V 64 --memory 256M ./prefix
 *
 * usage: prefix [--check] [N [SEED]]
 *
 * N values are drawn from SEED; sums are modulo 2^64. What is printed does not
 * depend on the number of ranks. With --check rank 0 adds up everything alone,
 * too, and the program ends with 1 where the two differ.
 *
 * The coarse-grained algorithm that others begin with (W. Hillis, G. Steele:
 * Data Parallel Algorithms, CACM 29, 1986, has the fine-grained one, which is
 * what an MPI_Exscan does among its ranks): one round of communication, with 8
 * bytes a rank, and two passes over N / ranks values.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static uint64_t mix(uint64_t x)
{
    x = (x + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Value `at` of the array. */
static uint64_t draw(uint64_t at, uint64_t seed)
{
    return mix(at ^ mix(seed));
}

/* What one sum adds to the checksum: it is to be there, and in its place. */
static uint64_t weigh(uint64_t at, uint64_t sum)
{
    return mix(at ^ mix(sum));
}

/* Turns values into the sums of all up to and with each, from `sum` on. */
static void add_up(uint64_t *values, uint64_t count, uint64_t sum)
{
    for (uint64_t i = 0; i < count; i++) {
        sum += values[i];
        values[i] = sum;
    }
}

/* The prefix sums of the array whose block each rank has. */
static void prefix_sums(uint64_t *values, uint64_t count)
{
    uint64_t mine = 0, before = 0;
    for (uint64_t i = 0; i < count; i++) {
        mine += values[i];
    }
    MPI_Exscan(&mine, &before, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        before = 0; /* MPI leaves it undefined */
    }
    add_up(values, count, before);
}

/* The same by one rank, value after value. */
static uint64_t alone(uint64_t n, uint64_t seed)
{
    uint64_t sum = 0, checksum = 0;
    for (uint64_t i = 0; i < n; i++) {
        sum += draw(i, seed);
        checksum += weigh(i, sum);
    }
    return checksum;
}

static int number(const char *text, uint64_t *value)
{
    char *end;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int check = argc > 1 && strcmp(argv[1], "--check") == 0, good = 1;
    argc -= check;
    argv += check;
    uint64_t n = 1000000, seed = 1;
    if (argc > 3 || (argc > 1 && !number(argv[1], &n)) ||
        (argc > 2 && !number(argv[2], &seed))) {
        if (rank == 0) {
            fprintf(stderr, "usage: prefix [--check] [N [SEED]]\n");
        }
        MPI_Finalize();
        return 2;
    }
    uint64_t block = n / (uint64_t)size + 1, first = block * (uint64_t)rank;
    uint64_t count = first >= n ? 0 : n - first < block ? n - first : block;
    uint64_t *values = malloc((count + 1) * sizeof *values);
    if (values == NULL) {
        fprintf(stderr, "rank %d: no memory for its block\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (uint64_t i = 0; i < count; i++) {
        values[i] = draw(first + i, seed);
    }
    prefix_sums(values, count);
    uint64_t mine = 0, checksum = 0;
    for (uint64_t i = 0; i < count; i++) {
        mine += weigh(first + i, values[i]);
    }
    free(values);
    MPI_Reduce(&mine, &checksum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        good = !check || checksum == alone(n, seed);
        printf("%llu prefix sums, checksum %016llx%s\n", (unsigned long long)n,
               (unsigned long long)checksum, good ? "" : ": WRONG");
    }
    MPI_Bcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return good ? 0 : 1;
}
