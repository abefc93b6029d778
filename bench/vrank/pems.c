/*
 * What bench/vrank/pems_cases.py runs in little memory: a plain MPI program
 * whose ranks hold more than fits.
 *
 *   pems alltoallv BYTES ROUNDS [barrier]
 *   pems touch BYTES ROUNDS PART contiguous|scattered
 *   pems sweep BYTES ROUNDS
 *   pems scatter BYTES ROUNDS
 *   pems allreduce BYTES ROUNDS
 *
 * alltoallv: all send BYTES together, a round; or only meet. Send and receive
 * buffers are written before and read after, either way. touch: each rank has
 * BYTES, and a round writes a byte in one page of PART. sweep: each rank has
 * BYTES, a round changes all of them and passes 64 KiB on to the next rank.
 * scatter: the same, but a round changes words at random, four for each page.
 * allreduce: each rank has BYTES, and a round adds up 8 bytes on its stack.
 *
 * Prints JSON: seconds of all rounds, nanoseconds that all ranks wrote in them
 * (touch), and whether the data were right at the end.
 */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, PASSED = 1 << 16 };

static int rank, size;

static void *allocate(size_t bytes)
{
    void *at = malloc(bytes);

    if (at == NULL) {
        fprintf(stderr, "pems: no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
        exit(1);
    }
    return at;
}

/* ---- alltoallv ---------------------------------------------------------- */

struct exchange {
    uint64_t *out, *in;
    int *out_counts, *in_counts, *out_at, *in_at;
    size_t out_words, in_words;
};

/* Words from one to the other: not all alike. */
static int words_of(size_t bytes, int from, int to)
{
    int mean = (int)(bytes / sizeof(uint64_t) / (size_t)size / (size_t)size);

    return mean + ((from + 2 * to) % 3 - 1) * (mean / 8);
}

static uint64_t word_of(int from, int to, int round, uint64_t i)
{
    return (uint64_t)from << 48 ^ (uint64_t)to << 32 ^ (uint64_t)round << 24 ^
           i;
}

static void exchange_make(struct exchange *x, size_t bytes)
{
    size_t counts = (size_t)size * sizeof(int);

    *x = (struct exchange){.out_counts = allocate(counts),
                           .in_counts = allocate(counts),
                           .out_at = allocate(counts),
                           .in_at = allocate(counts)};
    for (int i = 0; i < size; i++) {
        x->out_at[i] = (int)x->out_words;
        x->in_at[i] = (int)x->in_words;
        x->out_counts[i] = words_of(bytes, rank, i);
        x->in_counts[i] = words_of(bytes, i, rank);
        x->out_words += (size_t)x->out_counts[i];
        x->in_words += (size_t)x->in_counts[i];
    }
    x->out = allocate(x->out_words * sizeof *x->out);
    x->in = allocate(x->in_words * sizeof *x->in);
}

static void exchange_write(const struct exchange *x, int round)
{
    for (int to = 0; to < size; to++) {
        for (int i = 0; i < x->out_counts[to]; i++) {
            x->out[x->out_at[to] + i] = word_of(rank, to, round, (uint64_t)i);
        }
    }
    memset(x->in, round + 1, x->in_words * sizeof *x->in);
}

/* Whether all that came is right; if nothing was sent, what was there. */
static int exchange_read(const struct exchange *x, int round, int is_sent)
{
    uint64_t wrong = 0, there;

    memset(&there, round + 1, sizeof there);
    for (int from = 0; from < size; from++) {
        for (int i = 0; i < x->in_counts[from]; i++) {
            uint64_t want =
                is_sent ? word_of(from, rank, round, (uint64_t)i) : there;

            wrong |= x->in[x->in_at[from] + i] ^ want;
        }
    }
    return wrong == 0;
}

static int run_alltoallv(size_t bytes, int rounds, int is_sent, double *begin)
{
    struct exchange x;
    int good = 1;

    exchange_make(&x, bytes);
    exchange_write(&x, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    *begin = MPI_Wtime();
    for (int round = 0; round < rounds; round++) {
        exchange_write(&x, round);
        if (is_sent) {
            MPI_Alltoallv(x.out, x.out_counts, x.out_at, MPI_UINT64_T, x.in,
                          x.in_counts, x.in_at, MPI_UINT64_T, MPI_COMM_WORLD);
        } else {
            MPI_Barrier(MPI_COMM_WORLD);
        }
        good &= exchange_read(&x, round, is_sent);
    }
    return good;
}

/* ---- touch and sweep ---------------------------------------------------- */

static uint64_t *data_make(size_t words)
{
    uint64_t *data = allocate(words * sizeof *data);

    for (size_t i = 0; i < words; i++) {
        data[i] = (uint64_t)rank + i * 2654435761u;
    }
    return data;
}

static int run_touch(size_t bytes, int rounds, size_t part, int is_scattered,
                     double *begin, double *writing)
{
    unsigned char *data = (unsigned char *)data_make(bytes / 8);
    size_t count = bytes / PAGE / part, step = is_scattered ? part : 1;
    int good = 1;

    for (size_t i = 0; i < count; i++) {
        data[i * step * PAGE] = 0;
    }
    /* Twice: then all is on disk, and has come from there. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    *begin = MPI_Wtime();
    for (int round = 0; round < rounds; round++) {
        double before = MPI_Wtime();

        for (size_t i = 0; i < count; i++) {
            data[i * step * PAGE]++;
        }
        *writing += MPI_Wtime() - before;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (size_t i = 0; i < count; i++) {
        good &= data[i * step * PAGE] == rounds % 256;
    }
    return good;
}

static int run_sweep(size_t bytes, int rounds, double *begin)
{
    size_t words = bytes / 8, passed = PASSED / 8;
    uint64_t *data = data_make(words), *came = allocate(PASSED);
    int next = (rank + 1) % size, last = (rank + size - 1) % size, good = 1;

    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    *begin = MPI_Wtime();
    for (int round = 1; round <= rounds; round++) {
        for (size_t i = 0; i < words; i++) {
            data[i] += 7;
        }
        MPI_Sendrecv(data, (int)passed, MPI_UINT64_T, next, 1, came,
                     (int)passed, MPI_UINT64_T, last, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (size_t i = 0; i < passed; i++) {
            good &= came[i] ==
                    (uint64_t)last + i * 2654435761u + 7 * (uint64_t)round;
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (size_t i = 0; i < words; i++) {
        good &=
            data[i] == (uint64_t)rank + i * 2654435761u + 7 * (uint64_t)rounds;
    }
    return good;
}

static uint64_t random_of(uint64_t i)
{
    i *= UINT64_C(0x9e3779b97f4a7c15);
    i = (i ^ i >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return i ^ i >> 32;
}

static int run_scatter(size_t bytes, int rounds, double *begin)
{
    size_t words = bytes / 8, count = bytes / PAGE * 4, passed = PASSED / 8;
    uint64_t *data = data_make(words), *came = allocate(PASSED);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    uint64_t changed = 0;

    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    *begin = MPI_Wtime();
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < count; i++) {
            data[random_of(i + (size_t)round * count) % words]++;
        }
        MPI_Sendrecv(data, (int)passed, MPI_UINT64_T, next, 1, came,
                     (int)passed, MPI_UINT64_T, last, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (size_t i = 0; i < words; i++) {
        changed += data[i] - ((uint64_t)rank + i * 2654435761u);
    }
    return changed == (uint64_t)rounds * count;
}

static int run_allreduce(size_t bytes, int rounds, double *begin, double *end)
{
    double *data = (double *)data_make(bytes / 8), mine, sum;
    int good = data != NULL;

    /* What was written before is on disk by then; and what comes behind, ranks
     * are not yet at. */
    for (int round = -100; round < rounds + 2; round++) {
        *end = round == rounds ? MPI_Wtime() : *end;
        *begin = round == 0 ? MPI_Wtime() : *begin;
        mine = rank + round;
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        good &= sum == (double)size * round + size * (size - 1) / 2;
    }
    return good;
}

/* What all ranks found, told by the first: in one call, since each may bring in
 * all contexts. */
static void tell(const double mine[static 4])
{
    double *all = allocate((size_t)size * 4 * sizeof *all);
    double begin = mine[0], end = mine[1], writing = 0, good = 1;

    MPI_Gather(mine, 4, MPI_DOUBLE, all, 4, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < size; i++) {
        begin = all[4 * i] < begin ? all[4 * i] : begin;
        end = all[4 * i + 1] > end ? all[4 * i + 1] : end;
        writing += all[4 * i + 2];
        good = all[4 * i + 3] < good ? all[4 * i + 3] : good;
    }
    if (rank == 0) {
        printf("{\"seconds\": %.6f, \"writing_ns\": %.0f, \"good\": %s}\n",
               end - begin, writing * 1e9, good > 0 ? "true" : "false");
    }
    free(all);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 3 ? argv[1] : "";
    size_t bytes = argc > 3 ? strtoull(argv[2], NULL, 10) : 0;
    int rounds = argc > 3 ? atoi(argv[3]) : 0, good = 0;
    double begin = 0, end = 0, writing = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(mode, "alltoallv") == 0) {
        good = run_alltoallv(bytes, rounds, argc == 4, &begin);
    } else if (strcmp(mode, "touch") == 0 && argc == 6 && atoi(argv[4]) > 0) {
        good = run_touch(bytes, rounds, (size_t)atoi(argv[4]),
                         strcmp(argv[5], "scattered") == 0, &begin, &writing);
    } else if (strcmp(mode, "sweep") == 0) {
        good = run_sweep(bytes, rounds, &begin);
    } else if (strcmp(mode, "scatter") == 0) {
        good = run_scatter(bytes, rounds, &begin);
    } else if (strcmp(mode, "allreduce") == 0) {
        good = run_allreduce(bytes, rounds, &begin, &end);
    } else {
        fprintf(stderr,
                "usage: pems alltoallv|touch|sweep|scatter|allreduce BYTES "
                "ROUNDS ...\n");
    }
    end = end > 0 ? end : MPI_Wtime();
    tell((double[4]){begin, end, writing, good});
    MPI_Finalize();
    return good ? 0 : 1;
}
