/* Collectives that are begun and completed later: the ones with lengths and
 * types of their own, and reductions. */
#include "conform.h"

enum { MOST = 64 };

static int a[MOST], b[MOST], c[MOST], d[MOST];
static int lengths[8], places[8], bytes[8];
static MPI_Request requests[4];

static void fill(int *data, int base, int step)
{
    for (int i = 0; i < MOST; i++) {
        data[i] = base + step * i;
    }
}

static void reset(void)
{
    fill(a, 100 * (rank + 1), 1);
    fill(b, -1, 0);
    fill(c, -2, 0);
    fill(d, -3, 0);
    for (int r = 0; r < size; r++) {
        lengths[r] = r % 3;
        places[r] = 4 * r + 1;
        bytes[r] = 16 * r;
    }
}

/* They overlap, and are completed in another order than begun. */
static void with_lengths(void)
{
    int back[8];
    reset();
    for (int r = 0; r < size; r++) {
        back[r] = (rank + r) % 3;
    }
    MPI_Igatherv(a, lengths[rank], MPI_INT, b, lengths, places, MPI_INT,
                 size - 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Iallgatherv(a, lengths[rank], MPI_INT, c, lengths, places, MPI_INT,
                    MPI_COMM_WORLD, &requests[1]);
    MPI_Ialltoallv(a, back, places, MPI_INT, d, back, places, MPI_INT,
                   MPI_COMM_WORLD, &requests[2]);
    for (int i = 2; i >= 0; i--) {
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    }
    say_ints("igatherv", b, 4 * size + 2);
    say_ints("iallgatherv", c, 4 * size + 2);
    say_ints("ialltoallv", d, 4 * size + 2);
    reset();
    MPI_Iscatterv(a, lengths, places, MPI_INT, b, lengths[rank], MPI_INT, 0,
                  MPI_COMM_WORLD, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    say_ints("iscatterv", b, 4);
}

static void with_types(void)
{
    MPI_Datatype gaps, sent[8], received[8];
    int ones[8], threes[8];
    reset();
    MPI_Type_vector(3, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    for (int r = 0; r < size; r++) {
        sent[r] = (rank + r) % 2 ? gaps : MPI_INT;
        ones[r] = (rank + r) % 2 ? 1 : 3;
        received[r] = MPI_INT;
        threes[r] = 3;
    }
    MPI_Ialltoallw(a, ones, bytes, sent, b, threes, bytes, received,
                   MPI_COMM_WORLD, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    say_ints("ialltoallw", b, 4 * size);
    MPI_Type_free(&gaps);
}

static void combined(void)
{
    int flag = 0;
    reset();
    MPI_Ireduce(a, b, 4, MPI_INT, MPI_SUM, 1 % size, MPI_COMM_WORLD,
                &requests[0]);
    MPI_Iscan(a, c, 4, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &requests[1]);
    MPI_Iexscan(a, d, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[2]);
    while (!flag) {
        MPI_Testall(3, requests, &flag, MPI_STATUSES_IGNORE);
    }
    say_ints("ireduce", b, rank == 1 % size ? 5 : 0);
    say_ints("iscan", c, 5);
    say_ints("iexscan", d, rank > 0 ? 5 : 0);
    reset();
    for (int r = 0; r < size; r++) {
        lengths[r] = r + 1;
    }
    MPI_Ireduce_scatter(a, b, lengths, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                        &requests[0]);
    MPI_Ireduce_scatter_block(a, c, 2, MPI_INT, MPI_BXOR, MPI_COMM_WORLD,
                              &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    say_ints("ireduce_scatter", b, rank + 2);
    say_ints("ireduce_scatter_block", c, 3);
}

static void in_place(void)
{
    reset();
    MPI_Ireduce(rank == 0 ? MPI_IN_PLACE : a, rank == 0 ? a : NULL, 3, MPI_INT,
                MPI_PROD, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    say_ints("ireduce in place", a, 4);
    reset();
    MPI_Iscan(MPI_IN_PLACE, a, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
              &requests[0]);
    fill(b, rank, 2);
    MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, lengths, places,
                    MPI_INT, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    say_ints("iscan in place", a, 4);
    for (int r = 0; r < size; r++) {
        say_ints("iallgatherv in place", b + places[r], lengths[r]);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    with_lengths();
    with_types();
    combined();
    in_place();
    return end();
}
