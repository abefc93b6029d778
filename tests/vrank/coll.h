/*
 * What the tests of collectives share: data that says whose it is, and calling
 * both the blocking and the non-blocking function.
 */
#ifndef POISE_TESTS_VRANK_COLL_H
#define POISE_TESTS_VRANK_COLL_H

#include "run.h"

#define MOST 700

static const int counts[] = {0, 1, 2, 7, 16, 17, MOST};
#define COUNTS (int)(sizeof counts / sizeof counts[0])

/* What rank `r` has at `i`, in round `k`. */
static inline int value(int r, int i, int k)
{
    return (r * 1009 + i * 31 + k * 7) % 100003;
}

static inline void fill(int *data, int count, int r, int k)
{
    for (int i = 0; i < count; i++) {
        data[i] = value(r, i, k);
    }
}

static inline int *ints(size_t count)
{
    int *made = malloc((count + 1) * sizeof(int));
    CHECK(made != NULL);
    memset(made, 0xee, (count + 1) * sizeof(int));
    return made;
}

/* Do it now, or begin it, do something else and wait. */
#define BOTH(now, name, ...)                                                   \
    do {                                                                       \
        if (now) {                                                             \
            CHECK(MPI_##name(__VA_ARGS__) == MPI_SUCCESS);                     \
        } else {                                                               \
            MPI_Request request_;                                              \
            CHECK(MPI_I##name(__VA_ARGS__, &request_) == MPI_SUCCESS);         \
            vrank_yield();                                                     \
            CHECK(MPI_Wait(&request_, MPI_STATUS_IGNORE) == MPI_SUCCESS);      \
        }                                                                      \
    } while (0)
/* The names of the non-blocking ones are not all in capitals. */
#define MPI_IBcast MPI_Ibcast
#define MPI_IGather MPI_Igather
#define MPI_IGatherv MPI_Igatherv
#define MPI_IScatter MPI_Iscatter
#define MPI_IScatterv MPI_Iscatterv
#define MPI_IAllgather MPI_Iallgather
#define MPI_IAllgatherv MPI_Iallgatherv
#define MPI_IAlltoall MPI_Ialltoall
#define MPI_IAlltoallv MPI_Ialltoallv
#define MPI_IAlltoallw MPI_Ialltoallw
#define MPI_IReduce MPI_Ireduce
#define MPI_IAllreduce MPI_Iallreduce
#define MPI_IReduce_scatter MPI_Ireduce_scatter
#define MPI_IReduce_scatter_block MPI_Ireduce_scatter_block
#define MPI_IScan MPI_Iscan
#define MPI_IExscan MPI_Iexscan
#define MPI_INeighbor_allgather MPI_Ineighbor_allgather
#define MPI_INeighbor_alltoall MPI_Ineighbor_alltoall

#define COMM MPI_COMM_WORLD

/* Rank r has r % 5 * scale elements, placed with a gap of one. */
struct spread {
    int *lengths, *places, total;
};

static inline struct spread spread_of(int size, int scale)
{
    struct spread spread = {ints((size_t)size), ints((size_t)size), 0};

    for (int r = 0; r < size; r++) {
        spread.lengths[r] = r % 5 * scale;
        spread.places[r] = spread.total + 1;
        spread.total += spread.lengths[r] + 1;
    }
    return spread;
}

static inline void spread_free(struct spread *spread)
{
    free(spread->lengths);
    free(spread->places);
}

#endif
