/* Collectives with neighbours that a rank has more than once: grids that are
 * periodic and one or two ranks wide, graphs with several edges between two
 * ranks, and with edges from a rank to itself. Open MPI 4.1 (nonblocking) and
 * MPICH 4.0 (v and w, and all in graphs) each get some of it wrong, so that
 * there is nobody to compare with: the program checks by the rule of MPI 4.1,
 * 8.6. Of a grid, what is sent to neighbour k comes from neighbour k ^ 1; of a
 * graph, the k-th edge to a rank is the k-th from it. */
#include "conform.h"

enum { MOST = 8, BLOCK = 2 };

/* A neighbour that a block comes from, and which of its blocks that is. */
struct edge {
    int from, block;
};

static MPI_Comm comm;
static int me, in, out, checks, wrong;
static struct edge edges[MOST];
static int sent[3 * MOST], got[3 * MOST];
static int lengths[MOST], places[MOST], back[MOST];

static int value(int from, int block, int i)
{
    return 100 * (from + 1) + 10 * block + i;
}

static void reset(void)
{
    for (int k = 0; k < MOST; k++) {
        lengths[k] = BLOCK;
        places[k] = 3 * k;
        back[k] = 3 * (in - 1 - k);
    }
    for (int i = 0; i < 3 * MOST; i++) {
        got[i] = -1;
    }
}

/* What is sent: by blocks one after the other, or with gaps. */
static void fill(int stride)
{
    reset();
    for (int i = 0; i < 3 * MOST; i++) {
        sent[i] = -2;
    }
    for (int k = 0; k < out; k++) {
        for (int i = 0; i < BLOCK; i++) {
            sent[stride * k + i] = value(me, k, i);
        }
    }
}

static void check(const char *what, const int *at, int stride, int same)
{
    checks++;
    for (int k = 0; k < in; k++) {
        for (int i = 0; i < BLOCK; i++) {
            int place = (at ? at[k] : stride * k) + i;
            int right =
                edges[k].from == MPI_PROC_NULL
                    ? -1
                    : value(edges[k].from, same ? 0 : edges[k].block, i);
            if (got[place] != right) {
                say("%s: from neighbour %d, which is rank %d, %d instead of "
                    "%d\n",
                    what, k, edges[k].from, got[place], right);
                wrong++;
            }
        }
    }
}

static void blocking(void)
{
    fill(BLOCK);
    MPI_Neighbor_allgather(sent, BLOCK, MPI_INT, got, BLOCK, MPI_INT, comm);
    check("MPI_Neighbor_allgather", NULL, BLOCK, 1);
    fill(BLOCK);
    MPI_Neighbor_allgatherv(sent, BLOCK, MPI_INT, got, lengths, back, MPI_INT,
                            comm);
    check("MPI_Neighbor_allgatherv", back, 0, 1);
    fill(BLOCK);
    MPI_Neighbor_alltoall(sent, BLOCK, MPI_INT, got, BLOCK, MPI_INT, comm);
    check("MPI_Neighbor_alltoall", NULL, BLOCK, 0);
    fill(3);
    MPI_Neighbor_alltoallv(sent, lengths, places, MPI_INT, got, lengths, back,
                           MPI_INT, comm);
    check("MPI_Neighbor_alltoallv", back, 0, 0);
}

static void nonblocking(void)
{
    MPI_Request request;

    fill(BLOCK);
    MPI_Ineighbor_allgather(sent, BLOCK, MPI_INT, got, BLOCK, MPI_INT, comm,
                            &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("MPI_Ineighbor_allgather", NULL, BLOCK, 1);
    fill(BLOCK);
    MPI_Ineighbor_allgatherv(sent, BLOCK, MPI_INT, got, lengths, back, MPI_INT,
                             comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("MPI_Ineighbor_allgatherv", back, 0, 1);
    fill(BLOCK);
    MPI_Ineighbor_alltoall(sent, BLOCK, MPI_INT, got, BLOCK, MPI_INT, comm,
                           &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("MPI_Ineighbor_alltoall", NULL, BLOCK, 0);
    fill(3);
    MPI_Ineighbor_alltoallv(sent, lengths, places, MPI_INT, got, lengths, back,
                            MPI_INT, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("MPI_Ineighbor_alltoallv", back, 0, 0);
}

static void of_types(void)
{
    MPI_Request request;
    MPI_Datatype types[MOST];
    MPI_Aint from[MOST], to[MOST];

    fill(3);
    for (int k = 0; k < MOST; k++) {
        types[k] = MPI_INT;
        from[k] = (MPI_Aint)sizeof(int) * places[k];
        to[k] = (MPI_Aint)sizeof(int) * back[k];
    }
    MPI_Neighbor_alltoallw(sent, lengths, from, types, got, lengths, to, types,
                           comm);
    check("MPI_Neighbor_alltoallw", back, 0, 0);
    fill(3);
    MPI_Ineighbor_alltoallw(sent, lengths, from, types, got, lengths, to, types,
                            comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("MPI_Ineighbor_alltoallw", back, 0, 0);
}

/* Started twice, as persistent ones are for. */
static void run_twice(MPI_Request *request, const char *what, const int *at,
                      int stride, int same)
{
    for (int i = 0; i < 2; i++) {
        fill(stride == 0 && !same ? 3 : BLOCK);
        MPI_Start(request);
        MPI_Wait(request, MPI_STATUS_IGNORE);
        check(what, at, stride, same);
    }
    MPI_Request_free(request);
}

static void persistent(void)
{
    MPI_Request request;
    MPI_Datatype types[MOST];
    MPI_Aint from[MOST], to[MOST];

    reset();
    for (int k = 0; k < MOST; k++) {
        types[k] = MPI_INT;
        from[k] = (MPI_Aint)sizeof(int) * places[k];
        to[k] = (MPI_Aint)sizeof(int) * back[k];
    }
    MPI_Neighbor_allgather_init(sent, BLOCK, MPI_INT, got, BLOCK, MPI_INT, comm,
                                MPI_INFO_NULL, &request);
    run_twice(&request, "MPI_Neighbor_allgather_init", NULL, BLOCK, 1);
    MPI_Neighbor_allgatherv_init(sent, BLOCK, MPI_INT, got, lengths, back,
                                 MPI_INT, comm, MPI_INFO_NULL, &request);
    run_twice(&request, "MPI_Neighbor_allgatherv_init", back, 0, 1);
    MPI_Neighbor_alltoall_init(sent, BLOCK, MPI_INT, got, BLOCK, MPI_INT, comm,
                               MPI_INFO_NULL, &request);
    run_twice(&request, "MPI_Neighbor_alltoall_init", NULL, BLOCK, 0);
    MPI_Neighbor_alltoallv_init(sent, lengths, places, MPI_INT, got, lengths,
                                back, MPI_INT, comm, MPI_INFO_NULL, &request);
    run_twice(&request, "MPI_Neighbor_alltoallv_init", back, 0, 0);
    MPI_Neighbor_alltoallw_init(sent, lengths, from, types, got, lengths, to,
                                types, comm, MPI_INFO_NULL, &request);
    run_twice(&request, "MPI_Neighbor_alltoallw_init", back, 0, 0);
}

static void all(const char *what)
{
    int before = wrong;

    blocking();
    nonblocking();
    of_types();
    persistent();
    if (wrong > before) {
        say("... in %s\n", what);
    }
    MPI_Comm_free(&comm);
}

static void grid(const char *what, int dims, const int *shape, int periodic)
{
    int periods[3] = {periodic, periodic, periodic};

    MPI_Cart_create(MPI_COMM_WORLD, dims, shape, periods, 0, &comm);
    if (comm == MPI_COMM_NULL) {
        return;
    }
    MPI_Comm_rank(comm, &me);
    in = out = 2 * dims;
    for (int d = 0; d < dims; d++) {
        int *down = &edges[2 * d].from, *up = &edges[2 * d + 1].from;
        MPI_Cart_shift(comm, d, 1, down, up);
        edges[2 * d].block = 2 * d + 1;
        edges[2 * d + 1].block = 2 * d;
    }
    all(what);
}

/* Who has no neighbours may pass arrays of nothing. */
static void alone(void)
{
    int nothing = -1, to = 1, from = 0;
    MPI_Datatype none = MPI_DATATYPE_NULL;
    MPI_Aint far = -1;

    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, rank == 1, &from, &to,
                                   rank == 0, &to, &to, MPI_INFO_NULL, 0,
                                   &comm);
    if (rank < 2) {
        MPI_Datatype type = MPI_INT;
        MPI_Aint place = 0;
        int one = 1, zero = 0;
        sent[0] = 7;
        MPI_Neighbor_alltoallv(sent, &one, &zero, MPI_INT, got, &one, &zero,
                               MPI_INT, comm);
        MPI_Neighbor_alltoallw(sent, &one, &place, &type, got, &one, &place,
                               &type, comm);
        say("from the only neighbour: %d\n", rank == 1 ? got[0] : 0);
    } else {
        MPI_Neighbor_alltoallv(NULL, &nothing, &nothing, MPI_INT, NULL,
                               &nothing, &nothing, MPI_INT, comm);
        MPI_Neighbor_alltoallw(NULL, &nothing, &far, &none, NULL, &nothing,
                               &far, &none, comm);
    }
    MPI_Comm_free(&comm);
}

static void set_edges(int count, const struct edge *which)
{
    me = rank;
    in = out = count;
    memcpy(edges, which, (size_t)count * sizeof *which);
}

static void graphs(void)
{
    int last = (rank + size - 1) % size, next = (rank + 1) % size;
    int loops[3] = {rank, rank, rank};
    /* To the next, to itself, to the next again, to the one before. */
    int to[4] = {next, rank, next, last}, from[4] = {last, last, rank, next};
    /* 0 and 1 are joined three times, 2 is twice its own. */
    int index[4] = {3, 6, 9, 10}, ends[10] = {1, 1, 1, 0, 0, 0, 2, 2, 3, 2};
    const struct edge known[4][3] = {{{1, 0}, {1, 1}, {1, 2}},
                                     {{0, 0}, {0, 1}, {0, 2}},
                                     {{2, 0}, {2, 1}, {3, 0}},
                                     {{2, 2}}};

    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 4, from, to, 4, to, from,
                                   MPI_INFO_NULL, 0, &comm);
    set_edges(4, (struct edge[]){{last, 0}, {last, 2}, {rank, 1}, {next, 3}});
    all("a graph with two edges to the next");
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 3, loops, loops, 3, loops,
                                   loops, MPI_INFO_NULL, 0, &comm);
    set_edges(3, (struct edge[]){{rank, 0}, {rank, 1}, {rank, 2}});
    all("a graph of loops");
    MPI_Graph_create(MPI_COMM_WORLD, 4, index, ends, 0, &comm);
    set_edges(rank == 3 ? 1 : 3, known[rank]);
    all("a graph that all know");
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    grid("a ring of 1", 1, (int[]){1}, 1);
    grid("a ring of 2", 1, (int[]){2}, 1);
    grid("a row of 2", 1, (int[]){2}, 0);
    grid("a ring of 3", 1, (int[]){3}, 1);
    grid("1 x 1", 2, (int[]){1, 1}, 1);
    grid("2 x 2", 2, (int[]){2, 2}, 1);
    grid("4 x 1", 2, (int[]){4, 1}, 1);
    grid("2 x 1 x 2", 3, (int[]){2, 1, 2}, 1);
    graphs();
    alone();
    say("%d checks, %d wrong\n", checks, wrong);
    return end();
}
