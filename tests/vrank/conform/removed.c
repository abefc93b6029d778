/* Names that MPI-3 removed. MPICH still has them, Open MPI does not. */
#include "conform.h"

struct record {
    char letter;
    double number;
    int count;
};

static void records(void)
{
    struct record mine = {(char)('a' + rank), rank * 1.5, rank * 7}, got;
    int lengths[3] = {1, 1, 1};
    MPI_Aint places[3], base, extent, lower, upper;
    MPI_Datatype types[3] = {MPI_CHAR, MPI_DOUBLE, MPI_INT}, type;

    MPI_Address(&mine, &base);
    MPI_Address(&mine.letter, &places[0]);
    MPI_Address(&mine.number, &places[1]);
    MPI_Address(&mine.count, &places[2]);
    for (int i = 0; i < 3; i++) {
        places[i] -= base;
    }
    MPI_Type_struct(3, lengths, places, types, &type);
    MPI_Type_commit(&type);
    MPI_Type_extent(type, &extent);
    MPI_Type_lb(type, &lower);
    MPI_Type_ub(type, &upper);
    say("record: extent %ld from %ld to %ld\n", (long)extent, (long)lower,
        (long)upper);
    MPI_Sendrecv(&mine, 1, type, (rank + 1) % size, 0, &got, 1, type,
                 (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    say("got %c %g %d\n", got.letter, got.number, got.count);
    MPI_Type_free(&type);
}

static void gaps(void)
{
    int data[12], got[12], lengths[2] = {1, 2};
    MPI_Aint places[2] = {4, 24}, extent;
    MPI_Datatype type;

    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 12; i++) {
            data[i] = 10 * rank + i;
            got[i] = -1;
        }
        if (k == 0) {
            MPI_Type_hvector(2, 2, 24, MPI_INT, &type);
        } else {
            MPI_Type_hindexed(2, lengths, places, MPI_INT, &type);
        }
        MPI_Type_commit(&type);
        MPI_Type_extent(type, &extent);
        MPI_Sendrecv(data, 1, type, rank, 0, got, 1, type, rank, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        say("gaps: extent %ld\n", (long)extent);
        say_ints("gaps", got, 12);
        MPI_Type_free(&type);
    }
}

static int handled;

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    MPI_Error_class(*code, &handled);
}

static void errors(void)
{
    MPI_Errhandler mine, before, now;
    int value = 0;

    MPI_Errhandler_get(MPI_COMM_WORLD, &before);
    MPI_Errhandler_create(handler, &mine);
    MPI_Errhandler_set(MPI_COMM_WORLD, mine);
    MPI_Errhandler_get(MPI_COMM_WORLD, &now);
    say("set %d, fatal before %d\n", now == mine,
        before == MPI_ERRORS_ARE_FATAL);
    MPI_Send(&value, 1, MPI_INT, size + 1, 0, MPI_COMM_WORLD);
    say("handled %d\n", handled == MPI_ERR_RANK);
    MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&mine);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    records();
    gaps();
    errors();
    return end();
}
