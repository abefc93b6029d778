/*
 * Reductions of virtual ranks in one process: every kind against what the
 * definition says, in which order operands are combined, and operations and
 * types that the program frees early.
 */
#include "coll.h"

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

static void test_freed_early(void **state)
{
    (void)state;
    run_well(9, freed_early);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_combining),
        cmocka_unit_test(test_predefined),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_freed_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
