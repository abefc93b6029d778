/*
 * Grids of ranks. The last dimension is the fastest; ranks are never
 * reordered. Source: MPI 3.1, 7.5.
 */
#include "vrank/communicator/topology.h"

#include <stdlib.h>

/* ---- coordinates -------------------------------------------------------- */

static void coords_of(const struct vrank_topology *grid, int rank, int *coords)
{
    for (int d = grid->ndims - 1; d >= 0; d--) {
        coords[d] = rank % grid->dims[d];
        rank /= grid->dims[d];
    }
}

/* The rank at coordinates, which may lie outside where the grid is periodic;
 * MPI_PROC_NULL where it is not. */
static int rank_at(const struct vrank_topology *grid, const int *coords)
{
    int rank = 0;

    for (int d = 0; d < grid->ndims; d++) {
        int at = coords[d];
        if (at < 0 || at >= grid->dims[d]) {
            if (!grid->periods[d]) {
                return MPI_PROC_NULL;
            }
            at %= grid->dims[d];
            at += at < 0 ? grid->dims[d] : 0;
        }
        rank = rank * grid->dims[d] + at;
    }
    return rank;
}

/* The rank `step` further along a dimension. */
static int rank_along(struct vrank_topology *grid, int d, int step)
{
    int mine = grid->coords[d], rank;
    long long at = (long long)mine + step;

    if (grid->periods[d]) {
        at %= grid->dims[d];
    } else if (at < 0 || at >= grid->dims[d]) {
        return MPI_PROC_NULL;
    }
    grid->coords[d] = (int)at;
    rank = rank_at(grid, grid->coords);
    grid->coords[d] = mine;
    return rank;
}

static struct vrank_topology *grid_create(int ndims, const int *dims,
                                          const int *periods, int rank)
{
    struct vrank_topology *grid =
        topology_create(MPI_CART, 5 * (size_t)ndims + 1);

    if (grid == NULL) {
        return NULL;
    }
    grid->ndims = ndims;
    grid->dims = topology_ints(grid, dims, ndims);
    grid->periods = topology_ints(grid, periods, ndims);
    for (int d = 0; d < ndims; d++) {
        grid->periods[d] = grid->periods[d] != 0;
    }
    grid->coords = topology_ints(grid, NULL, ndims);
    coords_of(grid, rank, grid->coords);
    grid->in = grid->out = 2 * ndims;
    grid->sources = grid->destinations = topology_ints(grid, NULL, 2 * ndims);
    for (int d = 0; d < ndims; d++) {
        grid->sources[2 * d] = rank_along(grid, d, -1);
        grid->sources[2 * d + 1] = rank_along(grid, d, 1);
    }
    return grid;
}

/* ---- making ------------------------------------------------------------- */

/* How many ranks a grid takes; 0: it is none, or takes too many. */
static int grid_ranks(int ndims, const int *dims, int available)
{
    long long ranks = 1;

    for (int d = 0; d < ndims; d++) {
        if (dims[d] < 1) {
            return 0;
        }
        ranks *= dims[d];
        if (ranks > available) {
            return 0;
        }
    }
    return (int)ranks;
}

/* The first `count` ranks of a communicator become a grid. */
static int grid_make(struct poise_mpi_comm *comm, int count, int ndims,
                     const int *dims, const int *periods, const char *call,
                     MPI_Comm *out)
{
    struct vrank_topology *grid = NULL;
    int *members = poise_alloc((size_t)count, sizeof(int));
    int code = members == NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS;

    if (code == MPI_SUCCESS && comm->rank < count) {
        grid = grid_create(ndims, dims, periods, comm->rank);
        code = grid == NULL ? MPI_ERR_NO_MEM : MPI_SUCCESS;
    }
    if (code == MPI_SUCCESS) {
        for (int i = 0; i < count; i++) {
            members[i] = i;
        }
        code = topology_make(comm, members, count, grid, call, out);
    }
    free(members);
    return code;
}

int MPI_Cart_create(MPI_Comm comm_old, int ndims, const int dims[],
                    const int periods[], int reorder, MPI_Comm *comm_cart)
{
    static const char call[] = "MPI_Cart_create";
    struct vrank_mpi *mpi = mpi_enter(call);
    struct poise_mpi_comm *comm = vcomm_of(mpi, comm_old);
    int count, code = MPI_SUCCESS;

    (void)reorder;
    *comm_cart = MPI_COMM_NULL;
    if (comm == NULL || comm->remote != NULL) {
        return mpi_fail(mpi, comm, MPI_ERR_COMM, NULL);
    }
    count = ndims < 0 ? 0 : grid_ranks(ndims, dims, comm->size);
    if (count == 0) {
        return mpi_fail(mpi, comm, MPI_ERR_DIMS,
                        "there are %d ranks for the grid", comm->size);
    }
    code = grid_make(comm, count, ndims, dims, periods, call, comm_cart);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, comm, code, NULL);
}

int MPI_Cart_map(MPI_Comm handle, int ndims, const int dims[],
                 const int periods[], int *newrank)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Cart_map");
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);
    int count;

    (void)periods;
    if (comm == NULL) {
        return mpi_fail(mpi, NULL, MPI_ERR_COMM, NULL);
    }
    count = ndims < 0 ? 0 : grid_ranks(ndims, dims, comm->size);
    if (count == 0) {
        return mpi_fail(mpi, comm, MPI_ERR_DIMS, NULL);
    }
    *newrank = comm->rank < count ? comm->rank : MPI_UNDEFINED;
    return MPI_SUCCESS;
}

/* The members of the part of a grid that the caller is in, and its shape. */
static int sub_members(struct vrank_topology *grid, const int *remain,
                       int *members, int *coords)
{
    int count = 0, size = grid_ranks(grid->ndims, grid->dims, INT32_MAX);

    for (int rank = 0; rank < size; rank++) {
        bool is_in = true;
        coords_of(grid, rank, coords);
        for (int d = 0; d < grid->ndims; d++) {
            is_in &= remain[d] || coords[d] == grid->coords[d];
        }
        if (is_in) {
            members[count++] = rank;
        }
    }
    return count;
}

static int cart_sub(struct poise_mpi_comm *comm, struct vrank_topology *grid,
                    const int *remain, const char *call, MPI_Comm *out)
{
    int *members = poise_alloc((size_t)comm->size, sizeof(int));
    int *shape = poise_alloc(3 * (size_t)grid->ndims + 1, sizeof(int));
    int *periods = shape + grid->ndims, kept = 0, count, rank = 0;
    struct vrank_topology *part = NULL;
    int code = MPI_ERR_NO_MEM;

    if (members == NULL || shape == NULL) {
        goto free_arrays;
    }
    count = sub_members(grid, remain, members, periods + grid->ndims);
    while (members[rank] != comm->rank) {
        rank++;
    }
    for (int d = 0; d < grid->ndims; d++) {
        if (remain[d]) {
            shape[kept] = grid->dims[d];
            periods[kept++] = grid->periods[d];
        }
    }
    part = grid_create(kept, shape, periods, rank);
    if (part != NULL) {
        code = topology_make(comm, members, count, part, call, out);
    }
free_arrays:
    free(shape);
    free(members);
    return code;
}

int MPI_Cart_sub(MPI_Comm handle, const int remain_dims[], MPI_Comm *newcomm)
{
    static const char call[] = "MPI_Cart_sub";
    struct poise_mpi_comm *comm;
    int code;
    struct vrank_topology *grid =
        topology_enter(call, handle, MPI_CART, &comm, &code);

    *newcomm = MPI_COMM_NULL;
    if (grid == NULL) {
        return code;
    }
    code = cart_sub(comm, grid, remain_dims, call, newcomm);
    return code == MPI_SUCCESS ? code : mpi_fail(comm->mpi, comm, code, NULL);
}

/* ---- asking ------------------------------------------------------------- */

int MPI_Cartdim_get(MPI_Comm handle, int *ndims)
{
    struct poise_mpi_comm *comm;
    int code;
    struct vrank_topology *grid =
        topology_enter("MPI_Cartdim_get", handle, MPI_CART, &comm, &code);

    if (grid == NULL) {
        return code;
    }
    *ndims = grid->ndims;
    return MPI_SUCCESS;
}

int MPI_Cart_get(MPI_Comm handle, int maxdims, int dims[], int periods[],
                 int coords[])
{
    struct poise_mpi_comm *comm;
    int code;
    struct vrank_topology *grid =
        topology_enter("MPI_Cart_get", handle, MPI_CART, &comm, &code);

    if (grid == NULL) {
        return code;
    }
    if (maxdims < grid->ndims) {
        return mpi_fail(comm->mpi, comm, MPI_ERR_ARG, NULL);
    }
    for (int d = 0; d < grid->ndims; d++) {
        dims[d] = grid->dims[d];
        periods[d] = grid->periods[d];
        coords[d] = grid->coords[d];
    }
    return MPI_SUCCESS;
}

int MPI_Cart_rank(MPI_Comm handle, const int coords[], int *rank)
{
    struct poise_mpi_comm *comm;
    int code;
    struct vrank_topology *grid =
        topology_enter("MPI_Cart_rank", handle, MPI_CART, &comm, &code);

    if (grid == NULL) {
        return code;
    }
    *rank = rank_at(grid, coords);
    return *rank == MPI_PROC_NULL
               ? mpi_fail(comm->mpi, comm, MPI_ERR_ARG,
                          "the coordinates lie outside of the grid")
               : MPI_SUCCESS;
}

int MPI_Cart_coords(MPI_Comm handle, int rank, int maxdims, int coords[])
{
    struct poise_mpi_comm *comm;
    int code;
    struct vrank_topology *grid =
        topology_enter("MPI_Cart_coords", handle, MPI_CART, &comm, &code);

    if (grid == NULL) {
        return code;
    }
    if (rank < 0 || rank >= comm->size) {
        return mpi_fail(comm->mpi, comm, MPI_ERR_RANK, NULL);
    }
    if (maxdims < grid->ndims) {
        return mpi_fail(comm->mpi, comm, MPI_ERR_ARG, NULL);
    }
    coords_of(grid, rank, coords);
    return MPI_SUCCESS;
}

int MPI_Cart_shift(MPI_Comm handle, int direction, int disp, int *rank_source,
                   int *rank_dest)
{
    struct poise_mpi_comm *comm;
    int code;
    struct vrank_topology *grid =
        topology_enter("MPI_Cart_shift", handle, MPI_CART, &comm, &code);

    if (grid == NULL) {
        return code;
    }
    if (direction < 0 || direction >= grid->ndims || disp == INT32_MIN) {
        return mpi_fail(comm->mpi, comm, MPI_ERR_ARG, NULL);
    }
    *rank_source = rank_along(grid, direction, -disp);
    *rank_dest = rank_along(grid, direction, disp);
    return MPI_SUCCESS;
}

/* ---- shapes ------------------------------------------------------------- */

/* The greatest number whose power `exponent` is not above `value`. */
static int root_of(int value, int exponent)
{
    int low = 1, high = value;

    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        long long power = 1;
        for (int i = 0; i < exponent && power <= value; i++) {
            power *= middle;
        }
        if (power <= value) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* No int has more divisors. */
#define MOST_DIVISORS 1536

/* A number is split into factors in descending order: the greatest and the
 * least as close to each other as can be; of those the ones with the greater
 * least, or next to least, and so on. */
struct factors {
    int count;
    int *now, *best;                            /* [count]; owned, as one */
    int gap;                                    /* of the best */
    int divisors[MOST_DIVISORS], divisor_count; /* of the number, ascending */
};

static void factors_take(struct factors *factors)
{
    int end = factors->count - 1, at = end;
    int gap = factors->now[0] - factors->now[end];

    while (at > 0 && factors->now[at] == factors->best[at]) {
        at--;
    }
    if (gap > factors->gap ||
        (gap == factors->gap && factors->now[at] <= factors->best[at])) {
        return;
    }
    factors->gap = gap;
    for (int i = 0; i < factors->count; i++) {
        factors->best[i] = factors->now[i];
    }
}

/* Try all factors from `at` on, whose product is `left`. */
static void factors_search(struct factors *factors, int at, int left)
{
    int others = factors->count - at - 1;
    int limit = at > 0 ? factors->now[at - 1] : left;

    if (others == 0) {
        factors->now[at] = left;
        if (left <= limit) {
            factors_take(factors);
        }
        return;
    }
    /* The others are no greater, and the last no more than their root. */
    for (int i = 0; i < factors->divisor_count; i++) {
        int f = factors->divisors[i];
        if (f > limit || f > left) {
            return;
        }
        if (f < root_of(left, others + 1)) {
            continue;
        }
        int first = at > 0 ? factors->now[0] : f;
        if (first - root_of(left / f, others) > factors->gap) {
            return;
        }
        if (left % f == 0) {
            factors->now[at] = f;
            factors_search(factors, at + 1, left / f);
        }
    }
}

/* Find the factors of `number`; false: no memory. */
static bool factors_find(struct factors *factors, int number)
{
    int small;

    factors->gap = INT32_MAX;
    factors->now = poise_alloc(2 * (size_t)factors->count, sizeof(int));
    if (factors->now == NULL) {
        return false;
    }
    factors->best = factors->now + factors->count;
    /* Up to the root, and then what they leave. */
    for (int d = 1; (long long)d * d <= number; d++) {
        if (number % d == 0) {
            factors->divisors[factors->divisor_count++] = d;
        }
    }
    small = factors->divisor_count;
    for (int i = small - 1; i >= 0; i--) {
        int d = factors->divisors[i];
        if (number / d != d) {
            factors->divisors[factors->divisor_count++] = number / d;
        }
    }
    factors_search(factors, 0, number);
    return true;
}

int MPI_Dims_create(int nnodes, int ndims, int dims[])
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Dims_create");
    int fixed = 1, open = 0, *next;
    struct factors factors = {0};

    if (nnodes < 1 || ndims < 0) {
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, NULL);
    }
    for (int d = 0; d < ndims; d++) {
        if (dims[d] < 0 || (dims[d] > 0 && nnodes / fixed % dims[d] != 0)) {
            return mpi_fail(mpi, NULL, MPI_ERR_DIMS, NULL);
        }
        fixed *= dims[d] > 0 ? dims[d] : 1;
        open += dims[d] == 0;
    }
    if (open == 0) {
        return fixed == nnodes ? MPI_SUCCESS
                               : mpi_fail(mpi, NULL, MPI_ERR_DIMS, NULL);
    }
    factors.count = open;
    if (!factors_find(&factors, nnodes / fixed)) {
        return mpi_fail(mpi, NULL, MPI_ERR_NO_MEM, NULL);
    }
    next = factors.best;
    for (int d = 0; d < ndims; d++) {
        if (dims[d] == 0) {
            dims[d] = *next++;
        }
    }
    free(factors.now);
    return MPI_SUCCESS;
}
