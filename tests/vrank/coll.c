/*
 * Collectives and topologies of virtual ranks in one process, on one worker
 * and on several: every kind with many sizes, in place and not, blocking and
 * not, against what the definition says.
 */
#include "run.h"

#include "vrank/communicator/topology.h"

#define MOST 700

static const int counts[] = {0, 1, 2, 7, 16, 17, MOST};
#define COUNTS (int)(sizeof counts / sizeof counts[0])

/* What rank `r` has at `i`, in round `k`. */
static int value(int r, int i, int k)
{
    return (r * 1009 + i * 31 + k * 7) % 100003;
}

static void fill(int *data, int count, int r, int k)
{
    for (int i = 0; i < count; i++) {
        data[i] = value(r, i, k);
    }
}

static int *ints(size_t count)
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

/* ---- moving ------------------------------------------------------------- */

static void try_bcast(int rank, int size, int count, bool now)
{
    int *data = ints((size_t)count), root = count % size;

    if (rank == root) {
        fill(data, count, root, 1);
    }
    BOTH(now, Bcast, data, count, MPI_INT, root, COMM);
    for (int i = 0; i < count; i++) {
        CHECK(data[i] == value(root, i, 1));
    }
    CHECK(data[count] == (int)0xeeeeeeee);
    free(data);
}

static void try_gather(int rank, int size, int count, bool now)
{
    size_t total = (size_t)count * (size_t)size;
    int *mine = ints((size_t)count), *all = ints(total),
        root = (count + 1) % size;
    bool in_place = rank == root && count % 2 == 1;

    fill(mine, count, rank, 2);
    if (in_place) {
        fill(all + rank * count, count, rank, 2);
    }
    BOTH(now, Gather, in_place ? MPI_IN_PLACE : mine, count, MPI_INT, all,
         count, MPI_INT, root, COMM);
    for (size_t i = 0; rank == root && i < total; i++) {
        CHECK(all[i] == value((int)i / count, (int)i % count, 2));
    }
    CHECK(all[total] == (int)0xeeeeeeee);
    memset(mine, 0, (size_t)count * sizeof(int));
    BOTH(now, Scatter, all, count, MPI_INT, in_place ? MPI_IN_PLACE : mine,
         count, MPI_INT, root, COMM);
    for (int i = 0; !in_place && i < count; i++) {
        CHECK(mine[i] == value(rank, i, 2));
    }
    free(mine);
    free(all);
}

static void try_allgather(int rank, int size, int count, bool now)
{
    size_t total = (size_t)count * (size_t)size;
    int *mine = ints((size_t)count), *all = ints(total);
    bool in_place = count % 2 == 0;

    fill(in_place ? all + rank * count : mine, count, rank, 3);
    BOTH(now, Allgather, in_place ? MPI_IN_PLACE : mine, count, MPI_INT, all,
         count, MPI_INT, COMM);
    for (size_t i = 0; i < total; i++) {
        CHECK(all[i] == value((int)i / count, (int)i % count, 3));
    }
    CHECK(all[total] == (int)0xeeeeeeee);
    free(mine);
    free(all);
}

static void try_alltoall(int rank, int size, int count, bool now)
{
    size_t total = (size_t)count * (size_t)size;
    int *send = ints(total), *recv = ints(total);
    bool in_place = count % 2 == 0;

    for (int to = 0; to < size; to++) {
        fill((in_place ? recv : send) + to * count, count, rank, to);
    }
    BOTH(now, Alltoall, in_place ? MPI_IN_PLACE : send, count, MPI_INT, recv,
         count, MPI_INT, COMM);
    for (size_t i = 0; i < total; i++) {
        CHECK(recv[i] == value((int)i / count, (int)i % count, rank));
    }
    CHECK(recv[total] == (int)0xeeeeeeee);
    free(send);
    free(recv);
}

static int moving(int rank, int size)
{
    for (int now = 0; now < 2; now++) {
        for (int k = 0; k < COUNTS; k++) {
            try_bcast(rank, size, counts[k], now);
            try_gather(rank, size, counts[k], now);
            try_allgather(rank, size, counts[k], now);
            try_alltoall(rank, size, counts[k], now);
        }
    }
    return 0;
}

/* ---- with lengths of their own ------------------------------------------ */

/* Rank r has r % 5 * scale elements, placed with a gap of one. */
struct spread {
    int *lengths, *places, total;
};

static struct spread spread_of(int size, int scale)
{
    struct spread spread = {ints((size_t)size), ints((size_t)size), 0};

    for (int r = 0; r < size; r++) {
        spread.lengths[r] = r % 5 * scale;
        spread.places[r] = spread.total + 1;
        spread.total += spread.lengths[r] + 1;
    }
    return spread;
}

static void spread_free(struct spread *spread)
{
    free(spread->lengths);
    free(spread->places);
}

static void check_spread(const struct spread *spread, int size, const int *all,
                         int k)
{
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < spread->lengths[r]; i++) {
            CHECK(all[spread->places[r] + i] == value(r, i, k));
        }
        CHECK(all[spread->places[r] - 1] == (int)0xeeeeeeee);
    }
}

static void try_lengths(int rank, int size, int scale, bool now)
{
    struct spread spread = spread_of(size, scale);
    int length = spread.lengths[rank], root = size / 2;
    int *mine = ints((size_t)length), *all = ints((size_t)spread.total);

    fill(mine, length, rank, 4);
    BOTH(now, Gatherv, mine, length, MPI_INT, all, spread.lengths,
         spread.places, MPI_INT, root, COMM);
    if (rank == root) {
        check_spread(&spread, size, all, 4);
    }
    memset(mine, 0, (size_t)length * sizeof(int));
    BOTH(now, Scatterv, all, spread.lengths, spread.places, MPI_INT, mine,
         length, MPI_INT, root, COMM);
    for (int i = 0; i < length; i++) {
        CHECK(mine[i] == value(rank, i, 4));
    }
    memset(all, 0xee, ((size_t)spread.total + 1) * sizeof(int));
    BOTH(now, Allgatherv, mine, length, MPI_INT, all, spread.lengths,
         spread.places, MPI_INT, COMM);
    check_spread(&spread, size, all, 4);
    free(mine);
    free(all);
    spread_free(&spread);
}

/* Rank a sends (a + b) % 3 elements to rank b; with types, every other int is
 * left out on the receiving side. */
static void try_exchange(int rank, int size, bool with_types, bool now)
{
    size_t slots = (size_t)size * 4;
    int *send = ints(slots), *recv = ints(slots);
    int *lengths = ints((size_t)size), *places = ints((size_t)size),
        *bytes = ints((size_t)size);
    MPI_Datatype *from = calloc((size_t)size, sizeof(MPI_Datatype));
    MPI_Datatype *to = calloc((size_t)size, sizeof(MPI_Datatype)), sparse;

    MPI_Type_create_resized(MPI_INT, 0, 8, &sparse);
    MPI_Type_commit(&sparse);
    for (int r = 0; r < size; r++) {
        lengths[r] = (rank + r) % 3;
        places[r] = 4 * r;
        bytes[r] = 16 * r;
        from[r] = MPI_INT;
        to[r] = lengths[r] == 2 ? sparse : MPI_INT;
        fill(send + 4 * r, lengths[r], rank, r);
    }
    if (with_types) {
        BOTH(now, Alltoallw, send, lengths, bytes, from, recv, lengths, bytes,
             to, COMM);
    } else {
        BOTH(now, Alltoallv, send, lengths, places, MPI_INT, recv, lengths,
             places, MPI_INT, COMM);
    }
    for (int r = 0; r < size; r++) {
        int step = with_types && lengths[r] == 2 ? 2 : 1;
        for (int i = 0; i < lengths[r]; i++) {
            CHECK(recv[4 * r + i * step] == value(r, i, rank));
        }
        CHECK(recv[4 * r + 3] == (int)0xeeeeeeee);
    }
    MPI_Type_free(&sparse);
    free(send);
    free(recv);
    free(lengths);
    free(places);
    free(bytes);
    free(from);
    free(to);
}

static int lengths(int rank, int size)
{
    for (int now = 0; now < 2; now++) {
        try_lengths(rank, size, 1, now);
        try_lengths(rank, size, 40, now);
        try_exchange(rank, size, false, now);
        try_exchange(rank, size, true, now);
    }
    return 0;
}

/* ---- combining ---------------------------------------------------------- */

/* Affine functions y = a x + b, composed: not commutative. */
static void compose(void *in, void *inout, int *len, MPI_Datatype *type)
{
    unsigned *f = in, *g = inout;

    (void)type;
    for (int i = 0; i < *len; i++) {
        unsigned a = f[2 * i] * g[2 * i];
        g[2 * i + 1] += g[2 * i] * f[2 * i + 1];
        g[2 * i] = a;
    }
}

/* What ranks [from, to) give at element i. */
static void composed(int from, int to, int i, unsigned *out)
{
    out[0] = 1;
    out[1] = 0;
    for (int r = from; r < to; r++) {
        unsigned a = 2U * (unsigned)r + 3U, b = (unsigned)(r + i);
        out[1] = a * out[1] + b;
        out[0] *= a;
    }
}

static bool is_composed(const unsigned *data, int from, int to, int i)
{
    unsigned wanted[2];

    composed(from, to, i, wanted);
    return data[0] == wanted[0] && data[1] == wanted[1];
}

struct combine {
    MPI_Datatype pair;
    MPI_Op op;
    int rank, size, count;
    unsigned *mine, *received;
    bool now, in_place;
};

static void combine_fill(struct combine *c, int count)
{
    unsigned *to = c->in_place ? c->received : c->mine;

    memset(c->received, 0xee, sizeof(unsigned) * 2 * (size_t)(count + 1));
    for (int i = 0; i < count; i++) {
        to[2 * i] = 2U * (unsigned)c->rank + 3U;
        to[2 * i + 1] = (unsigned)(c->rank + i);
    }
}

static void try_reduce(struct combine *c)
{
    int root = c->count % c->size;
    bool in_place = c->in_place;

    c->in_place = in_place && c->rank == root;
    combine_fill(c, c->count);
    BOTH(c->now, Reduce, c->in_place ? MPI_IN_PLACE : (void *)c->mine,
         c->received, c->count, c->pair, c->op, root, COMM);
    for (int i = 0; c->rank == root && i < c->count; i++) {
        CHECK(is_composed(c->received + 2 * i, 0, c->size, i));
    }
    c->in_place = in_place;
    combine_fill(c, c->count);
    BOTH(c->now, Allreduce, in_place ? MPI_IN_PLACE : (void *)c->mine,
         c->received, c->count, c->pair, c->op, COMM);
    for (int i = 0; i < c->count; i++) {
        CHECK(is_composed(c->received + 2 * i, 0, c->size, i));
    }
}

static void try_prefixes(struct combine *c)
{
    combine_fill(c, c->count);
    BOTH(c->now, Scan, c->in_place ? MPI_IN_PLACE : (void *)c->mine,
         c->received, c->count, c->pair, c->op, COMM);
    for (int i = 0; i < c->count; i++) {
        CHECK(is_composed(c->received + 2 * i, 0, c->rank + 1, i));
    }
    combine_fill(c, c->count);
    BOTH(c->now, Exscan, c->in_place ? MPI_IN_PLACE : (void *)c->mine,
         c->received, c->count, c->pair, c->op, COMM);
    for (int i = 0; c->rank > 0 && i < c->count; i++) {
        CHECK(is_composed(c->received + 2 * i, 0, c->rank, i));
    }
}

static void try_reduce_scatter(struct combine *c)
{
    struct spread spread = spread_of(c->size, c->count % 10);
    int block = c->count % 10, first = 0;

    combine_fill(c, block * c->size);
    BOTH(c->now, Reduce_scatter_block,
         c->in_place ? MPI_IN_PLACE : (void *)c->mine, c->received, block,
         c->pair, c->op, COMM);
    for (int i = 0; i < block; i++) {
        CHECK(
            is_composed(c->received + 2 * i, 0, c->size, block * c->rank + i));
    }
    combine_fill(c, spread.total);
    BOTH(c->now, Reduce_scatter, c->in_place ? MPI_IN_PLACE : (void *)c->mine,
         c->received, spread.lengths, c->pair, c->op, COMM);
    for (int r = 0; r < c->rank; r++) {
        first += spread.lengths[r];
    }
    for (int i = 0; i < spread.lengths[c->rank]; i++) {
        CHECK(is_composed(c->received + 2 * i, 0, c->size, first + i));
    }
    spread_free(&spread);
}

static int combining(int rank, int size)
{
    struct combine c = {.rank = rank, .size = size};
    size_t room = 2 * (size_t)(MOST + 50 * size);

    MPI_Type_contiguous(2, MPI_UNSIGNED, &c.pair);
    MPI_Type_commit(&c.pair);
    MPI_Op_create(compose, 0, &c.op);
    c.mine = malloc(room * sizeof(unsigned));
    c.received = malloc(room * sizeof(unsigned));
    for (int k = 0; k < 4 * COUNTS; k++) {
        c.count = counts[k / 4];
        c.now = k % 2 == 0;
        c.in_place = k / 2 % 2 == 0;
        try_reduce(&c);
        try_prefixes(&c);
        try_reduce_scatter(&c);
    }
    free(c.mine);
    free(c.received);
    MPI_Op_free(&c.op);
    MPI_Type_free(&c.pair);
    return 0;
}

/* Of doubles whose extent is negative. */
static void add_back(void *in, void *inout, int *len, MPI_Datatype *type)
{
    const double *from = in;
    double *to = inout;

    (void)type;
    for (int i = 0; i < *len; i++) {
        to[-i] += from[-i];
    }
}

/* What of a sum is lost by rounding shows the order of the additions. */
static double term(int r, int i)
{
    return 1.0 / (1 + r + 3 * i);
}

/* The terms of `count` ranks from `first` on, added in pairs. */
static double sum_of(int first, int count, int i)
{
    int half = 1;

    if (count == 1) {
        return term(first, i);
    }
    while (2 * half < count) {
        half *= 2;
    }
    return sum_of(first, half, i) + sum_of(first + half, count - half, i);
}

#define TERMS 2500

/* Whether `all` is what comes of adding the terms of `size` ranks. */
static bool are_sums(const double *all, int size)
{
    for (int i = 0; i < TERMS; i++) {
        double expected = sum_of(0, size, i);
        if (memcmp(&all[i], &expected, sizeof(double)) != 0) {
            return false;
        }
    }
    return true;
}

/* More sums than are added at a time. */
static int sums(int rank, int size)
{
    double mine[TERMS], all[TERMS];

    for (int i = 0; i < TERMS; i++) {
        mine[i] = term(rank, i);
    }
    MPI_Allreduce(mine, all, TERMS, MPI_DOUBLE, MPI_SUM, COMM);
    CHECK(are_sums(all, size));
    return 0;
}

/* The same of elements that go backwards. */
static int backwards(int rank, int size)
{
    double mine[TERMS], all[TERMS];
    MPI_Datatype back;
    MPI_Op add;

    for (int i = 0; i < TERMS; i++) {
        mine[i] = term(rank, i);
    }
    MPI_Type_create_resized(MPI_DOUBLE, 0, -(MPI_Aint)sizeof(double), &back);
    MPI_Type_commit(&back);
    MPI_Op_create(add_back, 1, &add);
    MPI_Allreduce(mine + TERMS - 1, all + TERMS - 1, TERMS, back, add, COMM);
    CHECK(are_sums(all, size));
    MPI_Op_free(&add);
    MPI_Type_free(&back);
    return 0;
}

/* Sums come out the same to the last bit, whoever comes when; and a type with
 * gaps leaves them alone. */
static int predefined(int rank, int size)
{
    double mine = term(rank, 0), sum[2] = {0, 0};
    double expected = sum_of(0, size, 0);
    struct {
        double v;
        int k;
    } best = {rank % 3 == 1 ? 5.0 : 1.0, rank}, received;
    long big[300], most[300];

    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < (rank * 7 + k) % 5; i++) {
            vrank_yield();
        }
        MPI_Allreduce(&mine, &sum[k], 1, MPI_DOUBLE, MPI_SUM, COMM);
    }
    CHECK(memcmp(&sum[0], &sum[1], sizeof(double)) == 0);
    CHECK(memcmp(&sum[0], &expected, sizeof(double)) == 0);
    MPI_Allreduce(&best, &received, 1, MPI_DOUBLE_INT, MPI_MAXLOC, COMM);
    CHECK(received.k == (size > 1 ? 1 : 0));
    for (int i = 0; i < 300; i++) {
        big[i] = (long)rank * i - 1000L * (i % 2);
    }
    MPI_Allreduce(big, most, 300, MPI_LONG, MPI_MAX, COMM);
    for (int i = 0; i < 300; i++) {
        CHECK(most[i] == (long)(size - 1) * i - 1000L * (i % 2));
    }
    return 0;
}

/* ---- many at a time ----------------------------------------------------- */

/* Under way together, completed in another order, between blocking ones. */
static int overlapping(int rank, int size)
{
    enum { N = 12 };
    MPI_Request requests[N];
    int sums[N], ins[N], flag = 0, data[3] = {rank, 0, 0};
    MPI_Comm half;

    MPI_Comm_split(COMM, rank % 2, rank, &half);
    for (int k = 0; k < N; k++) {
        ins[k] = rank + k;
        if (k % 3 == 2) {
            sums[k] = rank == k % size ? k : -1;
            MPI_Ibcast(&sums[k], 1, MPI_INT, k % size, COMM, &requests[k]);
        } else {
            MPI_Iallreduce(&ins[k], &sums[k], 1, MPI_INT, MPI_SUM,
                           k % 2 ? half : COMM, &requests[k]);
        }
    }
    MPI_Barrier(COMM);
    MPI_Allreduce(&data[0], &data[1], 1, MPI_INT, MPI_MAX, COMM);
    CHECK(data[1] == size - 1);
    while (!flag) {
        MPI_Test(&requests[N - 1], &flag, MPI_STATUS_IGNORE);
    }
    MPI_Waitall(N, requests, MPI_STATUSES_IGNORE);
    for (int k = 0; k < N; k++) {
        int wanted = k % 3 == 2 ? k : 0;
        for (int r = 0; k % 3 != 2 && r < size; r++) {
            wanted += k % 2 && r % 2 != rank % 2 ? 0 : r + k;
        }
        CHECK(sums[k] == wanted);
    }
    MPI_Comm_free(&half);
    return 0;
}

/* The program may free types and operations before the end. */
static int freed_early(int rank, int size)
{
    unsigned mine[2] = {2U * (unsigned)rank + 3U, (unsigned)rank}, received[2];
    MPI_Datatype pair;
    MPI_Request request;
    MPI_Op op;

    MPI_Type_contiguous(2, MPI_UNSIGNED, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(compose, 0, &op);
    MPI_Iallreduce(mine, received, 1, pair, op, COMM, &request);
    MPI_Type_free(&pair);
    MPI_Op_free(&op);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(is_composed(received, 0, size, 0));
    return 0;
}

static void test_moving(void **state)
{
    (void)state;
    run_well(1, moving);
    run_well(3, moving);
    run_well(16, moving);
}

static void test_lengths(void **state)
{
    (void)state;
    run_well(1, lengths);
    run_well(4, lengths);
    run_well(17, lengths);
}

static void test_combining(void **state)
{
    (void)state;
    run_well(1, combining);
    run_well(2, combining);
    run_well(13, combining);
}

static void test_predefined(void **state)
{
    (void)state;
    run_well(1, predefined);
    run_well(8, predefined);
    run_well(33, predefined);
}

static void test_sums(void **state)
{
    (void)state;
    for (int size = 1; size < 10; size++) {
        run_well(size, sums);
        run_well(size, backwards);
    }
    run_well(32, sums);
    run_starved(5, 500, sums);
}

static void test_overlapping(void **state)
{
    (void)state;
    run_well(2, overlapping);
    run_well(9, overlapping);
    run_well(9, freed_early);
}

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

/* ---- between groups ----------------------------------------------------- */

static int groups(int rank, int size)
{
    MPI_Comm half, both;
    int side = rank % 2, me, mine = rank, other, sum, all[16], wanted = 0;
    int root = side ? 0 : MPI_PROC_NULL, given = -1;

    MPI_Comm_split(COMM, side, rank, &half);
    MPI_Comm_rank(half, &me);
    MPI_Intercomm_create(half, 0, COMM, side ? 0 : 1, 5, &both);
    MPI_Comm_remote_size(both, &other);
    CHECK(MPI_Barrier(both) == MPI_SUCCESS);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, both);
    MPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, both);
    for (int r = 0; r < other; r++) {
        CHECK(all[r] == 2 * r + !side);
        wanted += 2 * r + !side;
    }
    CHECK(sum == wanted);
    if (side == 0 && me == 0) {
        root = MPI_ROOT;
        given = 77;
    }
    MPI_Bcast(&given, 1, MPI_INT, root, both);
    CHECK(given == (side || root == MPI_ROOT ? 77 : -1));
    MPI_Gather(&mine, 1, MPI_INT, all, 1, MPI_INT, root, both);
    for (int r = 0; root == MPI_ROOT && r < other; r++) {
        CHECK(all[r] == 2 * r + 1);
    }
    MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_MAX, root, both);
    CHECK(root != MPI_ROOT || sum == (size % 2 ? size - 2 : size - 1));
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
    return 0;
}

static void test_groups(void **state)
{
    (void)state;
    run_well(2, groups);
    run_well(7, groups);
}

/* ---- errors ------------------------------------------------------------- */

static int wrong_calls(int rank, int size)
{
    int data[30] = {0}, negative = -1;
    MPI_Datatype sparse;

    MPI_Comm_set_errhandler(COMM, MPI_ERRORS_RETURN);
    CHECK(MPI_Bcast(data, 1, MPI_INT, size, COMM) == MPI_ERR_ROOT);
    CHECK(MPI_Bcast(data, -1, MPI_INT, 0, COMM) == MPI_ERR_COUNT);
    CHECK(MPI_Bcast(data, 1, MPI_DATATYPE_NULL, 0, COMM) == MPI_ERR_TYPE);
    CHECK(MPI_Barrier(MPI_COMM_NULL) == MPI_ERR_COMM);
    CHECK(MPI_Allreduce(data, data + 1, 1, MPI_INT, MPI_OP_NULL, COMM) ==
          MPI_ERR_OP);
    CHECK(MPI_Allreduce(data, data + 1, 1, MPI_FLOAT, MPI_BAND, COMM) ==
          MPI_ERR_OP);
    CHECK(rank == 0 || MPI_Reduce(MPI_IN_PLACE, data, 1, MPI_INT, MPI_SUM, 0,
                                  COMM) == MPI_ERR_BUFFER);
    CHECK(MPI_Dims_create(7, 1, &negative) == MPI_ERR_DIMS);
    CHECK(MPI_Cartdim_get(COMM, data) == MPI_ERR_TOPOLOGY);
    MPI_Type_contiguous(1, MPI_INT, &sparse);
    CHECK(MPI_Bcast(data, 1, sparse, 0, COMM) == MPI_ERR_TYPE);
    MPI_Type_free(&sparse);
    /* One that gives more than the other expects. */
    CHECK(MPI_Bcast(data, rank == 0 ? 30 : 29, MPI_INT, 0, COMM) ==
          (rank == 0 ? MPI_SUCCESS : MPI_ERR_TRUNCATE));
    CHECK(MPI_Bcast(data, rank == 0 ? 3 : 2, MPI_INT, 0, COMM) ==
          (rank == 0 ? MPI_SUCCESS : MPI_ERR_TRUNCATE));
    return 0;
}

static void test_errors(void **state)
{
    (void)state;
    run_well(3, wrong_calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moving),      cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_combining),   cmocka_unit_test(test_predefined),
        cmocka_unit_test(test_overlapping), cmocka_unit_test(test_topologies),
        cmocka_unit_test(test_groups),      cmocka_unit_test(test_errors),
        cmocka_unit_test(test_sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
