/* Grids and graphs, and collectives with neighbours. */
#include "conform.h"

static void shapes(void)
{
    for (int nodes = 1; nodes < 40; nodes++) {
        int two[2] = {0, 0}, fixed[3] = {0, 1, 0};
        MPI_Dims_create(nodes, 2, two);
        MPI_Dims_create(nodes, 3, fixed);
        say("%d: %d %d, %d %d %d\n", nodes, two[0], two[1], fixed[0], fixed[1],
            fixed[2]);
    }
}

static void grid(int wrap)
{
    int dims[2] = {2, 2}, periods[2] = {wrap, 0}, coords[2], remain[2] = {1, 0};
    int from, to, kind, got[4], mine[4], part_size, part_rank, shape[2];
    MPI_Comm comm, part;

    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &comm);
    if (comm == MPI_COMM_NULL) {
        say("not in the grid\n");
        return;
    }
    MPI_Topo_test(comm, &kind);
    say("grid %d\n", kind == MPI_CART);
    MPI_Cart_get(comm, 2, shape, periods, coords);
    say("at %d %d of %d %d\n", coords[0], coords[1], shape[0], shape[1]);
    for (int d = 0; d < 2; d++) {
        for (int step = -1; step < 3; step++) {
            MPI_Cart_shift(comm, d, step, &from, &to);
            say("shift %d %d: %d %d\n", d, step,
                from == MPI_PROC_NULL ? -1 : from,
                to == MPI_PROC_NULL ? -1 : to);
        }
    }
    int dimensions = -1, where[2] = {-1, -1}, number = -1;
    MPI_Cartdim_get(comm, &dimensions);
    for (int r = 0; r < 4; r++) {
        MPI_Cart_coords(comm, r, 2, where);
        MPI_Cart_rank(comm, where, &number);
        say("%d of %d dimensions: at %d %d is %d\n", r, dimensions, where[0],
            where[1], number);
    }
    where[0] = wrap ? -1 : 1;
    where[1] = 0;
    MPI_Cart_rank(comm, where, &number);
    say("at %d %d is %d\n", where[0], where[1], number);
    MPI_Cart_map(MPI_COMM_WORLD, 2, dims, periods, &number);
    say("mapped %d\n", number == rank);
    MPI_Cart_sub(comm, remain, &part);
    MPI_Comm_size(part, &part_size);
    MPI_Comm_rank(part, &part_rank);
    say("part %d of %d\n", part_rank, part_size);
    for (int i = 0; i < 4; i++) {
        mine[i] = 10 * rank + i;
        got[i] = -1;
    }
    MPI_Neighbor_allgather(mine, 1, MPI_INT, got, 1, MPI_INT, comm);
    say_ints("neighbours", got, 4);
    MPI_Comm_free(&part);
    MPI_Comm_free(&comm);
}

static void ring(void)
{
    int dims[1], periods[1] = {1}, mine[2], got[2];
    MPI_Comm comm;

    dims[0] = size;
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &comm);
    mine[0] = 100 + rank;
    mine[1] = 200 + rank;
    MPI_Neighbor_alltoall(mine, 1, MPI_INT, got, 1, MPI_INT, comm);
    if (size > 2) {
        say_ints("around", got, 2);
    }
    MPI_Comm_free(&comm);
}

/* A star: everybody knows rank 0. */
static void graph(void)
{
    int index[8], edges[16], count, nodes, all, list[8];
    MPI_Comm comm;

    for (int r = 0; r < size; r++) {
        index[r] = size - 1 + r;
        if (r > 0) {
            edges[r - 1] = r;
            edges[size - 2 + r] = 0;
        }
    }
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &comm);
    MPI_Graphdims_get(comm, &nodes, &all);
    MPI_Graph_neighbors_count(comm, rank, &count);
    MPI_Graph_neighbors(comm, rank, count, list);
    int ends[8], found[16], number = -1;
    MPI_Graph_get(comm, nodes, all, ends, found);
    say_ints("ends", ends, nodes);
    say_ints("edges", found, all);
    MPI_Graph_map(MPI_COMM_WORLD, size, index, edges, &number);
    say("mapped %d\n", number == rank);
    say("graph of %d and %d\n", nodes, all);
    say_ints("neighbours", list, count);
    MPI_Comm_free(&comm);
}

/* Each sends to the next and the one after, by two ways of saying so. */
static void arrows(void)
{
    int sources[2], destinations[2], degree = 2, in, out, weighted;
    int from[4], to[4], got[4] = {-1, -1, -1, -1}, mine[2];
    MPI_Comm comm;

    for (int k = 0; k < 2; k++) {
        sources[k] = (rank + size - 1 - k) % size;
        destinations[k] = (rank + 1 + k) % size;
        mine[k] = 10 * rank + k;
    }
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, MPI_UNWEIGHTED,
                                   2, destinations, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &comm);
    MPI_Neighbor_alltoall(mine, 1, MPI_INT, got, 1, MPI_INT, comm);
    say_ints("arrows", got, 2);
    MPI_Comm_free(&comm);
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &degree, destinations,
                          MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    MPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
    MPI_Dist_graph_neighbors(comm, 4, from, MPI_UNWEIGHTED, 4, to,
                             MPI_UNWEIGHTED);
    say("in %d, out %d, weighted %d, from %d, to %d\n", in, out, weighted,
        from[0] + from[1], to[0] + to[1]);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    shapes();
    grid(0);
    grid(1);
    ring();
    graph();
    arrows();
    return end();
}
