/* Reductions: every operation on types of every kind, and the user's. */
#include "conform.h"

#define N 5

/* A reduction of two numbers of one type by all operations that it has. */
#define TRY(type, mpi, format, ...)                                            \
    do {                                                                       \
        MPI_Op ops_[] = {__VA_ARGS__};                                         \
        for (int k_ = 0; k_ < (int)(sizeof ops_ / sizeof ops_[0]); k_++) {     \
            type in_[2] = {(type)(rank + 1), (type)(rank % 2)}, out_[2];       \
            MPI_Allreduce(in_, out_, 2, mpi, ops_[k_], MPI_COMM_WORLD);        \
            say("%s %d: " format " " format "\n", #mpi, k_, out_[0], out_[1]); \
        }                                                                      \
    } while (0)

#define INTEGER_OPS                                                            \
    MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD, MPI_LAND, MPI_BAND, MPI_LOR, MPI_BOR, \
        MPI_LXOR, MPI_BXOR

static void predefined(void)
{
    TRY(int, MPI_INT, "%d", INTEGER_OPS);
    TRY(short, MPI_SHORT, "%d", INTEGER_OPS);
    TRY(long, MPI_LONG, "%ld", INTEGER_OPS);
    TRY(long long, MPI_LONG_LONG, "%lld", INTEGER_OPS);
    TRY(unsigned, MPI_UNSIGNED, "%u", INTEGER_OPS);
    TRY(unsigned char, MPI_UNSIGNED_CHAR, "%u", INTEGER_OPS);
    TRY(signed char, MPI_SIGNED_CHAR, "%d", INTEGER_OPS);
    TRY(unsigned char, MPI_BYTE, "%u", MPI_BAND, MPI_BOR, MPI_BXOR);
    TRY(float, MPI_FLOAT, "%g", MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD);
    TRY(double, MPI_DOUBLE, "%g", MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD);
    TRY(long double, MPI_LONG_DOUBLE, "%Lg", MPI_MAX, MPI_MIN, MPI_SUM,
        MPI_PROD);
}

static void places(void)
{
    struct {
        double value;
        int index;
    } a = {(rank * 7) % 3, rank}, b;
    struct {
        int value, index;
    } c = {(rank * 5) % 4, 10 - rank}, d;
    struct {
        short value;
        int index;
    } e = {(short)(rank % 2), rank}, f;

    MPI_Allreduce(&a, &b, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    say("maxloc %g %d\n", b.value, b.index);
    MPI_Allreduce(&c, &d, 1, MPI_2INT, MPI_MINLOC, MPI_COMM_WORLD);
    say("minloc %d %d\n", d.value, d.index);
    MPI_Allreduce(&e, &f, 1, MPI_SHORT_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    say("maxloc %d %d\n", f.value, f.index);
}

/* 2 x 2 matrices, multiplied modulo 10007: order matters. */
static void multiply(void *in, void *inout, int *count, MPI_Datatype *type)
{
    int *a = in, *b = inout;

    (void)type;
    for (int i = 0; i < *count; i++, a += 4, b += 4) {
        int c[4];
        for (int k = 0; k < 4; k++) {
            c[k] = (a[k / 2 * 2] * b[k % 2] + a[k / 2 * 2 + 1] * b[k % 2 + 2]) %
                   10007;
        }
        memcpy(b, c, sizeof c);
    }
}

static void ordered(void)
{
    MPI_Datatype matrix;
    MPI_Op op;
    int mine[N * 4], out[N * 4 * 8], lengths[8];

    MPI_Type_contiguous(4, MPI_INT, &matrix);
    MPI_Type_commit(&matrix);
    MPI_Op_create(multiply, 0, &op);
    for (int i = 0; i < N * 4; i++) {
        mine[i] = (rank + 2) * (i + 1) % 97;
    }
    memset(out, 0, sizeof out);
    MPI_Reduce(mine, out, N, matrix, op, size - 1, MPI_COMM_WORLD);
    say_ints("reduce", out, 4 * N);
    MPI_Allreduce(mine, out, N, matrix, op, MPI_COMM_WORLD);
    say_ints("allreduce", out, 4 * N);
    MPI_Scan(mine, out, N, matrix, op, MPI_COMM_WORLD);
    say_ints("scan", out, 4 * N);
    MPI_Exscan(mine, out, N, matrix, op, MPI_COMM_WORLD);
    say_ints("exscan", out, rank > 0 ? 4 * N : 0);
    memset(out, 0, sizeof out);
    for (int r = 0; r < size; r++) {
        lengths[r] = r == 0 ? N - size + 1 : 1;
    }
    MPI_Reduce_scatter(mine, out, lengths, matrix, op, MPI_COMM_WORLD);
    say_ints("reduce_scatter", out, 4 * N);
    memcpy(out, mine, sizeof mine);
    MPI_Allreduce(MPI_IN_PLACE, out, N, matrix, op, MPI_COMM_WORLD);
    say_ints("allreduce in place", out, 4 * N);
    memcpy(out, mine, sizeof mine);
    MPI_Scan(MPI_IN_PLACE, out, N, matrix, op, MPI_COMM_WORLD);
    say_ints("scan in place", out, 4 * N);
    MPI_Op_free(&op);
    MPI_Type_free(&matrix);
}

/* Without messages. */
static void alone(void)
{
    int a[3] = {rank, 2, 3}, b[3] = {10, 20, 30}, flags[3] = {-1, -1, -1};
    MPI_Op op;

    MPI_Reduce_local(a, b, 3, MPI_INT, MPI_SUM);
    say_ints("reduce_local", b, 3);
    MPI_Op_commutative(MPI_SUM, &flags[0]);
    MPI_Op_create(multiply, 0, &op);
    MPI_Op_commutative(op, &flags[1]);
    MPI_Op_free(&op);
    say("gone %d\n", op == MPI_OP_NULL);
    MPI_Op_create(multiply, 1, &op);
    MPI_Op_commutative(op, &flags[2]);
    int left[4] = {1, 2, 3, 4}, right[4] = {5, rank, 7, 8};
    MPI_Datatype matrix;
    MPI_Type_contiguous(4, MPI_INT, &matrix);
    MPI_Type_commit(&matrix);
    MPI_Reduce_local(left, right, 1, matrix, op);
    MPI_Type_free(&matrix);
    MPI_Op_free(&op);
    say_ints("by my own", right, 4);
    say_ints("commutative", flags, 3);
}

static void large(void)
{
    enum { MANY = 50000 };
    double *a = malloc(MANY * sizeof(double));
    double *b = malloc(MANY * sizeof(double)), sum = 0;
    MPI_Request request;

    for (int i = 0; i < MANY; i++) {
        a[i] = rank * i;
    }
    MPI_Iallreduce(a, b, MANY, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < MANY; i++) {
        sum += b[i];
    }
    say("large %.17g\n", sum);
    MPI_Reduce(a, b, MANY, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    say("large %.17g\n", rank == 0 ? b[MANY - 1] : 0.0);
    MPI_Reduce_scatter_block(a, b, 100, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    say("block %.17g %.17g\n", b[0], b[99]);
    free(a);
    free(b);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    predefined();
    places();
    ordered();
    alone();
    large();
    return end();
}
