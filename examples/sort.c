/*
 * Sorting by regular samples: each rank sorts its keys, all agree on keys that
 * divide them into equal parts, and every rank gets one part from everybody.
 * Plain MPI:
 *
 *     mpicc -O2 -o sort sort.c     mpirun -n 4 ./sort
 *     poise cc -O2 -o sort sort.c  poise run -V 64 --memory 256M ./sort 1000000
 *
 * The second of these has more keys than memory: they are swapped to disk.
 * No rank gets more than twice its share and a little, also of keys that are
 * all equal, since a key that divides has a place in the whole, too.
 *
 * usage: sort [KEYS [random | equal | skewed]]
 *
 * KEYS is how many each rank has to begin with.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

/* A key, and where it comes from: no two are equal. */
struct sample {
    uint64_t key, place;
};

/* A program says what it does not need any more, where somebody listens. */
static void is_dead(uint64_t *keys, size_t count)
{
#ifdef POISE_VMPI
    poise_vrank_discard(keys, count * sizeof *keys);
#else
    (void)keys;
    (void)count;
#endif
}

static void *get(size_t count, size_t bytes)
{
    void *data = malloc((count + 1) * bytes);
    if (data == NULL) {
        fprintf(stderr, "rank %d: no memory for %zu items\n", rank, count);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return data;
}

static uint64_t make_key(uint64_t place, const char *kind)
{
    uint64_t x = place * UINT64_C(0x9e3779b97f4a7c15) + 1;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return *kind == 'e' ? 7 : *kind == 's' ? x >> (x & 63) : x;
}

/* By one byte after the other, from the last; `other` is room for as many. */
static void sort_keys(uint64_t *keys, uint64_t *other, size_t count)
{
    uint64_t *from = keys, *to = other;
    for (int shift = 0; shift < 64; shift += 8) {
        size_t starts[257] = {0};
        for (size_t i = 0; i < count; i++) {
            starts[(from[i] >> shift & 255) + 1]++;
        }
        if (count == 0 || starts[(from[0] >> shift & 255) + 1] == count) {
            continue;
        }
        for (int i = 0; i < 256; i++) {
            starts[i + 1] += starts[i];
        }
        for (size_t i = 0; i < count; i++) {
            to[starts[from[i] >> shift & 255]++] = from[i];
        }
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys) {
        memcpy(keys, from, count * sizeof *keys);
    }
}

static int compare(const void *a, const void *b)
{
    const struct sample *left = a, *right = b;
    int order = (left->key > right->key) - (left->key < right->key);
    return order != 0
               ? order
               : (left->place > right->place) - (left->place < right->place);
}

/* The size - 1 samples that divide all keys. */
static void divide(const uint64_t *keys, size_t count, struct sample *dividers)
{
    struct sample *mine = get((size_t)size, sizeof *mine);
    struct sample *all =
        rank == 0 ? get((size_t)size * (size_t)size, sizeof *all) : NULL;
    for (int i = 0; i < size; i++) {
        size_t at = count * (size_t)i / (size_t)size;
        mine[i].key = keys[at];
        mine[i].place = (uint64_t)rank * count + at;
    }
    MPI_Gather(mine, 2 * size, MPI_UINT64_T, all, 2 * size, MPI_UINT64_T, 0,
               MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(all, (size_t)size * (size_t)size, sizeof *all, compare);
        for (int i = 1; i < size; i++) {
            dividers[i - 1] = all[i * size + size / 2];
        }
    }
    MPI_Bcast(dividers, 2 * (size - 1), MPI_UINT64_T, 0, MPI_COMM_WORLD);
    free(all);
    free(mine);
}

/* How many of my sorted keys come before the divider. */
static size_t before(const uint64_t *keys, size_t count,
                     const struct sample *divider)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        struct sample here = {keys[middle], (uint64_t)rank * count + middle};
        if (compare(&here, divider) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Everybody's part of my keys, and mine of everybody's: how many I get. */
static size_t share(const uint64_t *keys, size_t count, int *send, int *recv,
                    int *send_at, int *recv_at)
{
    struct sample *dividers = get((size_t)size, sizeof *dividers);
    size_t at = 0;
    divide(keys, count, dividers);
    for (int i = 0; i < size; i++) {
        size_t end = i < size - 1 ? before(keys, count, &dividers[i]) : count;
        send_at[i] = (int)at;
        send[i] = (int)(end - at);
        at = end;
    }
    MPI_Alltoall(send, 1, MPI_INT, recv, 1, MPI_INT, MPI_COMM_WORLD);
    at = 0;
    for (int i = 0; i < size; i++) {
        recv_at[i] = (int)at;
        at += (size_t)recv[i];
    }
    free(dividers);
    return at;
}

/* Whether all are there and in order. */
static int is_right(const uint64_t *keys, size_t count, uint64_t sum)
{
    uint64_t mine[2] = {0, 0}, all[2], last = 0, edge = 0;
    int good = 1, all_good;
    for (size_t i = 0; i < count; i++) {
        good &= i == 0 || keys[i - 1] <= keys[i];
        mine[0] += keys[i];
    }
    mine[1] = sum;
    last = count > 0 ? keys[count - 1] : 0;
    /* The largest key of all ranks before. */
    MPI_Exscan(&last, &edge, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    good &= rank == 0 || count == 0 || edge <= keys[0];
    MPI_Allreduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    return all_good && all[0] == all[1];
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t count = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : 100000;
    const char *kind = argc > 2 ? argv[2] : "random";
    uint64_t *keys = get(count, sizeof *keys), sum = 0;
    uint64_t *other = get(count, sizeof *other);
    int *counts = get(4 * (size_t)size, sizeof *counts);
    int *send = counts, *recv = counts + size;
    int *send_at = recv + size, *recv_at = send_at + size;
    for (size_t i = 0; i < count; i++) {
        keys[i] = make_key((uint64_t)rank * count + i, kind);
        sum += keys[i];
    }
    sort_keys(keys, other, count);
    is_dead(other, count);
    size_t got =
        count > 0 ? share(keys, count, send, recv, send_at, recv_at) : 0;
    uint64_t *part = get(got, sizeof *part);
    if (count > 0) {
        MPI_Alltoallv(keys, send, send_at, MPI_UINT64_T, part, recv, recv_at,
                      MPI_UINT64_T, MPI_COMM_WORLD);
    }
    free(keys);
    free(other);
    other = get(got, sizeof *other);
    sort_keys(part, other, got);
    free(other);
    int good = is_right(part, got, sum);
    double mine = (double)got, most;
    MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%zu keys of %d ranks are %s; the largest part is %.2f of the "
               "mean\n",
               count * (size_t)size, size, good ? "sorted" : "WRONG",
               count > 0 ? most / (double)count : 1.0);
    }
    free(part);
    free(counts);
    MPI_Finalize();
    return good ? 0 : 1;
}
