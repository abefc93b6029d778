/*
 * Grids and graphs of virtual ranks, and collectives with neighbours.
 */
#include "coll.h"

#include "vrank/communicator/topology.h"

/* ---- grids -------------------------------------------------------------- */

static int grids(int rank, int size)
{
    int dims[2] = {3, 2}, periods[2] = {1, 0}, coords[2], at, from, to, ndims;
    int remain[2] = {0, 1}, kind, sub_size, sub_rank, shape[2], wrap[2];
    MPI_Comm grid, row, same;

    MPI_Cart_create(COMM, 2, dims, periods, 1, &grid);
    if (rank >= 6) {
        CHECK(grid == MPI_COMM_NULL);
        return 0;
    }
    (void)size;
    MPI_Topo_test(grid, &kind);
    CHECK(kind == MPI_CART);
    MPI_Topo_test(COMM, &kind);
    CHECK(kind == MPI_UNDEFINED);
    MPI_Cart_coords(grid, rank, 2, coords);
    CHECK(coords[0] == rank / 2 && coords[1] == rank % 2);
    MPI_Cart_rank(grid, coords, &at);
    CHECK(at == rank);
    coords[0] += 3;
    MPI_Cart_rank(grid, coords, &at);
    CHECK(at == rank);
    MPI_Cart_shift(grid, 0, 1, &from, &to);
    CHECK(from == (rank + 4) % 6 && to == (rank + 2) % 6);
    MPI_Cart_shift(grid, 1, 1, &from, &to);
    CHECK(from == (rank % 2 == 1 ? rank - 1 : MPI_PROC_NULL));
    CHECK(to == (rank % 2 == 0 ? rank + 1 : MPI_PROC_NULL));
    MPI_Cart_sub(grid, remain, &row);
    MPI_Comm_size(row, &sub_size);
    MPI_Comm_rank(row, &sub_rank);
    CHECK(sub_size == 2 && sub_rank == rank % 2);
    MPI_Cartdim_get(row, &ndims);
    CHECK(ndims == 1);
    MPI_Comm_dup(grid, &same);
    MPI_Cart_get(same, 2, shape, wrap, coords);
    CHECK(shape[0] == 3 && shape[1] == 2 && wrap[0] == 1 && wrap[1] == 0);
    CHECK(coords[0] == rank / 2);
    MPI_Comm_free(&same);
    MPI_Comm_free(&row);
    MPI_Comm_free(&grid);
    return 0;
}

static int shapes(int rank, int size)
{
    static const struct {
        int nodes, ndims, in[4], out[4];
    } known[] = {
        {6, 2, {0, 0}, {3, 2}},        {7, 2, {0, 0}, {7, 1}},
        {6, 3, {0, 3, 0}, {2, 3, 1}},  {24, 3, {0, 0, 0}, {4, 3, 2}},
        {16, 3, {0, 0, 0}, {4, 2, 2}}, {1, 2, {0, 0}, {1, 1}},
        {1024, 2, {0, 0}, {32, 32}},   {12, 2, {4, 3}, {4, 3}},
    };

    (void)rank;
    (void)size;
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        int dims[4];
        memcpy(dims, known[k].in, sizeof dims);
        CHECK(MPI_Dims_create(known[k].nodes, known[k].ndims, dims) ==
              MPI_SUCCESS);
        for (int d = 0; d < known[k].ndims; d++) {
            CHECK(dims[d] == known[k].out[d]);
        }
    }
    return 0;
}

/* What comes from the left neighbour and the right one of a ring or a line. */
static int neighbours(int rank, int size)
{
    for (int wrap = 0; wrap < 2; wrap++) {
        for (int now = 0; now < 2; now++) {
            int send[2] = {10 * rank, 10 * rank + 1}, recv[2] = {-1, -1};
            int left = wrap || rank > 0 ? (rank + size - 1) % size : -1;
            int right = wrap || rank < size - 1 ? (rank + 1) % size : -1;
            MPI_Comm line;
            MPI_Cart_create(COMM, 1, &size, &wrap, 0, &line);
            BOTH(now, Neighbor_alltoall, send, 1, MPI_INT, recv, 1, MPI_INT,
                 line);
            CHECK(recv[0] == (left < 0 ? -1 : 10 * left + 1));
            CHECK(recv[1] == (right < 0 ? -1 : 10 * right));
            BOTH(now, Neighbor_allgather, send, 1, MPI_INT, recv, 1, MPI_INT,
                 line);
            CHECK(recv[0] == (left < 0 ? -1 : 10 * left));
            CHECK(recv[1] == (right < 0 ? -1 : 10 * right));
            MPI_Comm_free(&line);
        }
    }
    return 0;
}

/* A star that all know, and arrows to the next rank and the one after. */
static int graphs(int rank, int size)
{
    int index[16], edges[32], count, nodes, all, list[16], kind, from[2], to[2];
    int degree = 2, in, out, weighted, weights[2] = {5, 6}, received[2],
        mine[2];
    MPI_Comm star, arrows[2], same;

    for (int r = 0; r < size; r++) {
        index[r] = size - 1 + r;
        if (r > 0) {
            edges[r - 1] = r;
            edges[size - 2 + r] = 0;
        }
        mine[r % 2] = 10 * rank + r % 2;
    }
    CHECK(MPI_Graph_create(COMM, size, index, edges, 0, &star) == MPI_SUCCESS);
    MPI_Graphdims_get(star, &nodes, &all);
    CHECK(nodes == size && all == 2 * (size - 1));
    MPI_Graph_neighbors_count(star, rank, &count);
    CHECK(count == (rank == 0 ? size - 1 : 1));
    MPI_Graph_neighbors(star, rank, 16, list);
    CHECK(list[0] == (rank == 0 ? 1 : 0));
    MPI_Graph_get(star, 16, 32, index, list);
    CHECK(index[0] == size - 1);
    for (int k = 0; k < 2; k++) {
        from[k] = (rank + size - 1 - k) % size;
        to[k] = (rank + 1 + k) % size;
    }
    CHECK(MPI_Dist_graph_create_adjacent(COMM, 2, from, MPI_UNWEIGHTED, 2, to,
                                         MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                         &arrows[0]) == MPI_SUCCESS);
    CHECK(MPI_Dist_graph_create(COMM, 1, &rank, &degree, to, weights,
                                MPI_INFO_NULL, 0, &arrows[1]) == MPI_SUCCESS);
    MPI_Comm_dup(arrows[0], &same);
    MPI_Topo_test(same, &kind);
    CHECK(kind == MPI_DIST_GRAPH);
    MPI_Neighbor_alltoall(mine, 1, MPI_INT, received, 1, MPI_INT, same);
    CHECK(received[0] == 10 * from[0] && received[1] == 10 * from[1] + 1);
    MPI_Dist_graph_neighbors_count(arrows[1], &in, &out, &weighted);
    CHECK(in == 2 && out == 2 && weighted);
    MPI_Dist_graph_neighbors(arrows[1], 2, list, weights, 2, to, weights);
    CHECK(list[0] + list[1] == from[0] + from[1] && weights[1] == 6);
    MPI_Comm_free(&same);
    MPI_Comm_free(&arrows[0]);
    MPI_Comm_free(&arrows[1]);
    MPI_Comm_free(&star);
    return 0;
}

static void test_topologies(void **state)
{
    (void)state;
    run_well(6, grids);
    run_well(8, grids);
    run_well(1, shapes);
    run_well(5, neighbours);
    run_well(5, graphs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topologies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
