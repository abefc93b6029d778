/*
 * Collectives that move data, of virtual ranks in one process, on one worker
 * and on several: every kind with many sizes, in place and not, blocking and
 * not, against what the definition says.
 */
#include "coll.h"

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

static void test_overlapping(void **state)
{
    (void)state;
    run_well(2, overlapping);
    run_well(9, overlapping);
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
        cmocka_unit_test(test_overlapping), cmocka_unit_test(test_groups),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
