/* Collectives that move data, with and without lengths of their own. */
#include "conform.h"

enum { MOST = 64 };

static int a[MOST], b[MOST], lengths[8], places[8], bytes[8];

static void fill(int *data, int base)
{
    for (int i = 0; i < MOST; i++) {
        data[i] = base * 100 + i;
    }
}

static void reset(void)
{
    fill(a, rank + 1);
    for (int i = 0; i < MOST; i++) {
        b[i] = -1;
    }
}

static void plain(void)
{
    reset();
    MPI_Bcast(a, 5, MPI_INT, size - 1, MPI_COMM_WORLD);
    say_ints("bcast", a, 6);
    reset();
    MPI_Gather(a, 3, MPI_INT, b, 3, MPI_INT, 1 % size, MPI_COMM_WORLD);
    say_ints("gather", b, 3 * size + 1);
    reset();
    MPI_Scatter(a, 2, MPI_INT, b, 2, MPI_INT, 0, MPI_COMM_WORLD);
    say_ints("scatter", b, 3);
    MPI_Allgather(a, 2, MPI_INT, b, 2, MPI_INT, MPI_COMM_WORLD);
    say_ints("allgather", b, 2 * size + 1);
    MPI_Alltoall(a, 2, MPI_INT, b, 2, MPI_INT, MPI_COMM_WORLD);
    say_ints("alltoall", b, 2 * size + 1);
}

static void in_place(void)
{
    reset();
    MPI_Gather(rank == 0 ? MPI_IN_PLACE : a, 2, MPI_INT, rank == 0 ? a : NULL,
               2, MPI_INT, 0, MPI_COMM_WORLD);
    say_ints("gather in place", a, 2 * size);
    reset();
    MPI_Scatter(rank == 0 ? a : NULL, 2, MPI_INT, rank == 0 ? MPI_IN_PLACE : b,
                2, MPI_INT, 0, MPI_COMM_WORLD);
    say_ints("scatter in place", b, 3);
    reset();
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, 3, MPI_INT,
                  MPI_COMM_WORLD);
    say_ints("allgather in place", a, 3 * size + 1);
    reset();
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, 3, MPI_INT,
                 MPI_COMM_WORLD);
    say_ints("alltoall in place", a, 3 * size + 1);
}

static void with_lengths(void)
{
    for (int r = 0; r < size; r++) {
        lengths[r] = r % 3;
        places[r] = 4 * r + 1;
    }
    reset();
    MPI_Gatherv(a, lengths[rank], MPI_INT, b, lengths, places, MPI_INT, 0,
                MPI_COMM_WORLD);
    say_ints("gatherv", b, 4 * size + 2);
    reset();
    MPI_Scatterv(a, lengths, places, MPI_INT, b, lengths[rank], MPI_INT, 0,
                 MPI_COMM_WORLD);
    say_ints("scatterv", b, 4);
    reset();
    MPI_Allgatherv(a, lengths[rank], MPI_INT, b, lengths, places, MPI_INT,
                   MPI_COMM_WORLD);
    say_ints("allgatherv", b, 4 * size + 2);
    for (int r = 0; r < size; r++) {
        lengths[r] = (rank + r) % 3;
    }
    reset();
    MPI_Alltoallv(a, lengths, places, MPI_INT, b, lengths, places, MPI_INT,
                  MPI_COMM_WORLD);
    say_ints("alltoallv", b, 4 * size + 2);
}

/* Columns of a matrix become rows. */
static void with_types(void)
{
    MPI_Datatype column, types[8];

    MPI_Type_vector(3, 1, 8, MPI_INT, &column);
    MPI_Type_create_resized(column, 0, sizeof(int), &types[0]);
    MPI_Type_free(&column);
    column = types[0];
    MPI_Type_commit(&column);
    reset();
    MPI_Bcast(a, 2, column, 0, MPI_COMM_WORLD);
    say_ints("bcast of columns", a, 24);
    MPI_Gather(a, 1, column, b, 3, MPI_INT, 0, MPI_COMM_WORLD);
    say_ints("gather of columns", b, 3 * size + 1);
    for (int r = 0; r < size; r++) {
        types[r] = r % 2 ? column : MPI_INT;
        lengths[r] = r % 2 ? 1 : 3;
        bytes[r] = 8 * r;
    }
    reset();
    for (int r = 0; r < size; r++) {
        places[r] = r * 12;
    }
    MPI_Datatype plain_types[8];
    int plain_lengths[8];
    for (int r = 0; r < size; r++) {
        plain_types[r] = MPI_INT;
        plain_lengths[r] = 3;
    }
    MPI_Alltoallw(a, lengths, bytes, types, b, plain_lengths, places,
                  plain_types, MPI_COMM_WORLD);
    say_ints("alltoallw", b, 3 * size + 1);
    MPI_Type_free(&column);
}

static void later(void)
{
    MPI_Request requests[4];
    int c[MOST], d[MOST];

    reset();
    fill(c, rank + 50);
    fill(d, 0);
    MPI_Ibcast(c, 4, MPI_INT, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Iallgather(a, 2, MPI_INT, b, 2, MPI_INT, MPI_COMM_WORLD, &requests[1]);
    MPI_Ialltoall(a, 1, MPI_INT, d, 1, MPI_INT, MPI_COMM_WORLD, &requests[2]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    say_ints("ibcast", c, 5);
    say_ints("iallgather", b, 2 * size + 1);
    say_ints("ialltoall", d, size + 1);
    reset();
    MPI_Igather(a, 2, MPI_INT, b, 2, MPI_INT, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Iscatter(a, 2, MPI_INT, c, 2, MPI_INT, size - 1, MPI_COMM_WORLD,
                 &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    say_ints("igather", b, 2 * size + 1);
    say_ints("iscatter", c, 3);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    plain();
    in_place();
    with_lengths();
    with_types();
    later();
    return end();
}
