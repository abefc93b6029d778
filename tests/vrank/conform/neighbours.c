/* Collectives with the neighbours of a graph, blocking and not: each rank
 * sends to the next and to the one after, by lengths and types of its own. */
#include "conform.h"

enum { MOST = 24 };

static MPI_Comm comm;
static int mine[MOST], got[MOST];

static void reset(void)
{
    for (int i = 0; i < MOST; i++) {
        mine[i] = 100 * (rank + 1) + i;
        got[i] = -1;
    }
}

static void make(void)
{
    int sources[2], destinations[2];
    for (int k = 0; k < 2; k++) {
        sources[k] = (rank + size - 1 - k) % size;
        destinations[k] = (rank + 1 + k) % size;
    }
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, MPI_UNWEIGHTED,
                                   2, destinations, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &comm);
}

static void finish(MPI_Request *request)
{
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

static void gathered(void)
{
    MPI_Request request;
    /* From rank r come r % 3 + 1 numbers. */
    int lengths[2], places[2] = {6, 1};
    for (int k = 0; k < 2; k++) {
        lengths[k] = (rank + size - 1 - k) % size % 3 + 1;
    }
    reset();
    MPI_Ineighbor_allgather(mine, 2, MPI_INT, got, 2, MPI_INT, comm, &request);
    finish(&request);
    say_ints("ineighbor_allgather", got, 5);
    reset();
    MPI_Neighbor_allgatherv(mine, rank % 3 + 1, MPI_INT, got, lengths, places,
                            MPI_INT, comm);
    say_ints("neighbor_allgatherv", got, 12);
    reset();
    MPI_Ineighbor_allgatherv(mine, rank % 3 + 1, MPI_INT, got, lengths, places,
                             MPI_INT, comm, &request);
    finish(&request);
    say_ints("ineighbor_allgatherv", got, 12);
}

static void exchanged(void)
{
    MPI_Request request;
    /* To the next one number, to the one after three. */
    int lengths[2] = {1, 3}, places[2] = {2, 5}, back[2] = {7, 0};
    reset();
    MPI_Ineighbor_alltoall(mine, 2, MPI_INT, got, 2, MPI_INT, comm, &request);
    finish(&request);
    say_ints("ineighbor_alltoall", got, 5);
    reset();
    MPI_Neighbor_alltoallv(mine, lengths, places, MPI_INT, got, lengths, back,
                           MPI_INT, comm);
    say_ints("neighbor_alltoallv", got, 12);
    reset();
    MPI_Ineighbor_alltoallv(mine, lengths, back, MPI_INT, got, lengths, places,
                            MPI_INT, comm, &request);
    finish(&request);
    say_ints("ineighbor_alltoallv", got, 12);
}

static void of_types(void)
{
    MPI_Request request;
    MPI_Datatype gaps, sent[2], received[2] = {MPI_INT, MPI_INT};
    int ones[2] = {1, 2}, counts[2] = {3, 2};
    MPI_Aint places[2] = {4, 40}, back[2] = {20, 0};
    MPI_Type_vector(3, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    sent[0] = gaps;
    sent[1] = MPI_INT;
    reset();
    MPI_Neighbor_alltoallw(mine, ones, places, sent, got, counts, back,
                           received, comm);
    say_ints("neighbor_alltoallw", got, 10);
    reset();
    MPI_Ineighbor_alltoallw(mine, ones, back, sent, got, counts, places,
                            received, comm, &request);
    finish(&request);
    say_ints("ineighbor_alltoallw", got, 14);
    MPI_Type_free(&gaps);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    make();
    gathered();
    exchanged();
    of_types();
    MPI_Comm_free(&comm);
    return end();
}
