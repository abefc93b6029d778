/*
 * An MPI program that knows nothing of Poise and checks its own answers: all
 * collectives that the preload takes over, with plain and derived types, in
 * place, on communicators that come and go, on an intercommunicator, and with
 * an operation of its own. Prints "right N" on rank 0.
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, checks;

static void check(int holds, const char *what)
{
    checks++;
    if (!holds) {
        fprintf(stderr, "rank %d of %d: %s is wrong\n", rank, size, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void reductions(MPI_Comm comm)
{
    int me, n;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    double d[300], ds[300];
    for (int i = 0; i < 300; i++) {
        d[i] = me + i;
    }
    MPI_Allreduce(d, ds, 300, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < 300; i++) {
        check(ds[i] == n * (n - 1) / 2 + (double)n * i, "allreduce sum");
    }
    MPI_Allreduce(MPI_IN_PLACE, d, 300, MPI_DOUBLE, MPI_MAX, comm);
    check(d[7] == n - 1 + 7, "allreduce max in place");
    long low = 5 - me, least = 0;
    MPI_Reduce(&low, &least, 1, MPI_LONG, MPI_MIN, n - 1, comm);
    check(me != n - 1 || least == 5 - (n - 1), "reduce min");
    unsigned bits = 1u << me;
    MPI_Reduce(me == 0 ? MPI_IN_PLACE : &bits, &bits, 1, MPI_UNSIGNED, MPI_BOR,
               0, comm);
    check(me != 0 || bits == (1u << n) - 1, "reduce bor in place");
    struct {
        double value;
        int where;
    } in = {.value = me == n / 2 ? -1 : me, .where = me}, out;
    MPI_Allreduce(&in, &out, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm);
    check(out.where == n / 2, "minloc");
}

static void moves(MPI_Comm comm)
{
    int me, n;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    for (int root = 0; root < n; root++) {
        int value = me == root ? 42 + root : 0;
        MPI_Bcast(&value, 1, MPI_INT, root, comm);
        check(value == 42 + root, "bcast");
        short mine[3] = {(short)me, (short)root, 7}, all[3 * 64];
        MPI_Gather(mine, 3, MPI_SHORT, all, 3, MPI_SHORT, root, comm);
        for (int r = 0; r < n && me == root; r++) {
            check(all[3 * r] == r && all[3 * r + 2] == 7, "gather");
        }
        memset(mine, 0, sizeof mine);
        MPI_Scatter(all, 3, MPI_SHORT, mine, 3, MPI_SHORT, root, comm);
        check(mine[0] == me && mine[1] == root, "scatter");
        int items[64];
        items[me] = me * me;
        MPI_Gather(me == root ? MPI_IN_PLACE : &items[me], 1, MPI_INT, items, 1,
                   MPI_INT, root, comm);
        for (int r = 0; r < n && me == root; r++) {
            check(items[r] == r * r, "gather in place");
            items[r]++;
        }
        int got = items[me];
        MPI_Scatter(items, 1, MPI_INT, me == root ? MPI_IN_PLACE : &got, 1,
                    MPI_INT, root, comm);
        check((me == root ? items[me] : got) == me * me + 1,
              "scatter in place");
    }
    long all[64];
    all[me] = 100 + me;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_LONG, comm);
    for (int r = 0; r < n; r++) {
        check(all[r] == 100 + r, "allgather in place");
    }
    MPI_Barrier(comm);
}

/* One column here, plain numbers there: the bytes are the same. */
static void derived(MPI_Comm comm)
{
    int me, n;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    MPI_Datatype column, item;
    int matrix[5][4] = {{0}}, plain[5] = {0};
    MPI_Type_vector(5, 1, 4, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < 5 && me == 0; i++) {
        matrix[i][1] = 10 + i;
    }
    if (me == 0) {
        MPI_Bcast(&matrix[0][1], 1, column, 0, comm);
    } else {
        MPI_Bcast(plain, 5, MPI_INT, 0, comm);
        check(plain[3] == 13, "bcast of a column");
    }
    /* A column of each rank, as the columns of a matrix. */
    int wide[5][64], mine[5];
    for (int i = 0; i < 5; i++) {
        mine[i] = me * 10 + i;
    }
    MPI_Type_vector(5, 1, 64, MPI_INT, &item);
    MPI_Datatype narrow;
    MPI_Type_create_resized(item, 0, sizeof(int), &narrow);
    MPI_Type_commit(&narrow);
    MPI_Allgather(mine, 5, MPI_INT, wide, 1, narrow, comm);
    for (int r = 0; r < n; r++) {
        check(wide[4][r] == r * 10 + 4, "allgather of columns");
    }
    MPI_Type_free(&column);
    MPI_Type_free(&item);
    MPI_Type_free(&narrow);
}

/* From each to each: plain, in place, of any length, backwards, and as columns.
 */
static void exchanges(MPI_Comm comm, int each)
{
    int me, n;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    size_t all = (size_t)each * (size_t)n;
    int *in = malloc(all * sizeof(int)), *out = malloc(all * sizeof(int));
    for (size_t i = 0; i < all; i++) {
        in[i] = me * 100 + (int)i / each;
    }
    MPI_Alltoall(in, each, MPI_INT, out, each, MPI_INT, comm);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, each, MPI_INT, comm);
    for (size_t i = 0; i < all; i++) {
        check(out[i] == (int)i / each * 100 + me, "alltoall");
        check(in[i] == out[i], "alltoall in place");
    }
    int counts[64], gets[64], places[64], back[64];
    for (int r = 0; r < n; r++) {
        counts[r] = (me + r) % 3 * each / 2;
        gets[r] = counts[r];
        places[r] = r * each;
        back[r] = (n - 1 - r) * each;
    }
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < each; i++) {
            in[r * each + i] = me * 100 + r;
        }
    }
    memset(out, -1, all * sizeof(int));
    MPI_Alltoallv(in, counts, places, MPI_INT, out, gets, back, MPI_INT, comm);
    MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, in, gets, places,
                  MPI_INT, comm);
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < each; i++) {
            int want = i < gets[r] ? r * 100 + me : -1;
            check(out[back[r] + i] == want, "alltoallv backwards");
            check(i >= gets[r] || in[places[r] + i] == want,
                  "alltoallv in place");
        }
    }
    MPI_Datatype pair;
    MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    int here[3 * 64 + 1], there[2 * 64], ones[64], twos[64], at[64], to[64];
    for (int r = 0; r < n; r++) {
        here[3 * r] = me;
        here[3 * r + 1] = -5;
        here[3 * r + 2] = r;
        ones[r] = 1;
        twos[r] = 2;
        at[r] = r; /* the type is three numbers wide */
        to[r] = 2 * r;
    }
    MPI_Alltoallv(here, ones, at, pair, there, twos, to, MPI_INT, comm);
    for (int r = 0; r < n; r++) {
        check(there[2 * r] == r && there[2 * r + 1] == me,
              "alltoallv of pairs");
    }
    MPI_Type_free(&pair);
    free(in);
    free(out);
}

/* Item r is of r % 3 times a length, from the last place on; in place at the
 * root, and as columns, too. */
static void blocks(MPI_Comm comm, int each)
{
    int me, n, at = 0, counts[64], places[64];
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    for (int r = n - 1; r >= 0; r--) {
        counts[r] = r % 3 * each;
        places[r] = at;
        at += counts[r] + 1;
    }
    int *mine = malloc((size_t)(counts[me] + 1) * sizeof(int));
    int *all = malloc((size_t)at * sizeof(int));
    for (int way = 0; way < 2 * n + 2; way++) {
        int root = way / 2, in_place = way % 2;
        for (int i = 0; i < at; i++) {
            all[i] = -1;
        }
        for (int i = 0; i < counts[me]; i++) {
            mine[i] = me * 1000 + i % 777;
            all[places[me] + i] = mine[i];
        }
        mine[counts[me]] = -1;
        if (root == n) {
            MPI_Allgatherv(in_place ? MPI_IN_PLACE : mine, counts[me], MPI_INT,
                           all, counts, places, MPI_INT, comm);
        } else {
            MPI_Gatherv(in_place && me == root ? MPI_IN_PLACE : mine,
                        counts[me], MPI_INT, all, counts, places, MPI_INT, root,
                        comm);
        }
        for (int r = 0; r < n && (me == root || root == n); r++) {
            for (int i = 0; i <= counts[r]; i++) {
                int want = i < counts[r] ? r * 1000 + i % 777 : -1;
                check(all[places[r] + i] == want, "gatherv");
            }
        }
        if (root == n) {
            continue;
        }
        memset(mine, 0, (size_t)counts[me] * sizeof(int));
        MPI_Scatterv(all, counts, places, MPI_INT,
                     in_place && me == root ? MPI_IN_PLACE : mine, counts[me],
                     MPI_INT, root, comm);
        for (int i = 0; i <= counts[me] && !(in_place && me == root); i++) {
            check(mine[i] == (i < counts[me] ? me * 1000 + i % 777 : -1),
                  "scatterv");
        }
    }
    MPI_Datatype pair;
    int wide[3 * 64], two[2] = {me, -me}, twos[64], starts[64];
    MPI_Type_vector(2, 1, 2, MPI_INT, &pair); /* three numbers wide */
    MPI_Type_commit(&pair);
    for (int r = 0; r < n; r++) {
        twos[r] = 1;
        starts[r] = r;
        wide[3 * r + 1] = 5;
    }
    MPI_Allgatherv(two, 2, MPI_INT, wide, twos, starts, pair, comm);
    for (int r = 0; r < n; r++) {
        check(wide[3 * r] == r && wide[3 * r + 1] == 5 && wide[3 * r + 2] == -r,
              "allgatherv of pairs");
    }
    MPI_Type_free(&pair);
    free(mine);
    free(all);
}

static void parts(MPI_Comm comm, int each)
{
    int me, n, counts[64], all = 0, before = 0;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    for (int r = 0; r < n; r++) {
        counts[r] = (r + 1) % 3 * each;
        before += r < me ? counts[r] : 0;
        all += counts[r];
    }
    size_t most = (size_t)(all > n * each ? all : n * each);
    long *in = malloc((most + 1) * sizeof(long));
    long *out = malloc((most + 1) * sizeof(long));
    for (int in_place = 0; in_place < 2; in_place++) {
        long *to = in_place ? in : out;
        for (size_t i = 0; i < most; i++) {
            in[i] = me + (long)i;
        }
        MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : in, to, counts, MPI_LONG,
                           MPI_SUM, comm);
        for (int i = 0; i < counts[me]; i++) {
            check(to[i] == n * (n - 1) / 2 + (long)n * (before + i),
                  "reduce_scatter");
        }
        for (size_t i = 0; i < most; i++) {
            in[i] = me + (long)i;
        }
        MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : in, to, each,
                                 MPI_LONG, MPI_MAX, comm);
        for (int i = 0; i < each; i++) {
            check(to[i] == n - 1 + (long)(me * each + i),
                  "reduce_scatter_block");
        }
        for (size_t i = 0; i < most; i++) {
            in[i] = me + (long)i;
        }
        MPI_Scan(in_place ? MPI_IN_PLACE : in, to, each, MPI_LONG, MPI_SUM,
                 comm);
        for (int i = 0; i < each; i++) {
            check(to[i] == me * (me + 1) / 2 + (me + 1) * (long)i, "scan");
        }
        for (size_t i = 0; i < most; i++) {
            in[i] = me + (long)i;
        }
        MPI_Exscan(in_place ? MPI_IN_PLACE : in, to, each, MPI_LONG, MPI_SUM,
                   comm);
        for (int i = 0; i < each && me > 0; i++) {
            check(to[i] == me * (me - 1) / 2 + me * (long)i, "exscan");
        }
    }
    MPI_Request request;
    long sum = 0, one = 1;
    MPI_Iallreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(sum == n, "iallreduce");
    free(in);
    free(out);
}

/* Longer than what goes through shared memory in one piece. */
static void lengths(MPI_Comm comm)
{
    int me, n, count = 100000;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n);
    double *in = malloc((size_t)count * sizeof(double));
    double *out = malloc((size_t)count * sizeof(double));
    for (int i = 0; i < count; i++) {
        in[i] = me + i;
    }
    MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Reduce(me == 0 ? MPI_IN_PLACE : in, in, count, MPI_DOUBLE, MPI_MAX, 0,
               comm);
    for (int i = 0; i < count; i += 7) {
        check(out[i] == n * (n - 1) / 2 + (double)n * i, "a long allreduce");
        check(me != 0 || in[i] == n - 1 + i, "a long reduce in place");
    }
    MPI_Bcast(in, count, MPI_DOUBLE, 0, comm);
    check(in[count - 1] == n - 1 + count - 1, "a long bcast");
    free(in);
    free(out);
}

/* Freed at once, with requests of the program's own about. */
static void come_and_go(MPI_Comm comm)
{
    MPI_Request none = MPI_REQUEST_NULL;
    for (int i = 0; i < 5; i++) {
        MPI_Comm copy;
        int sum = 0, one = 1;
        MPI_Comm_dup(comm, &copy);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, copy);
        MPI_Comm_free(&copy);
        MPI_Wait(&none, MPI_STATUS_IGNORE);
        check(copy == MPI_COMM_NULL && none == MPI_REQUEST_NULL, "nothing");
    }
}

static void take_left(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    memcpy(inout, in, (size_t)*len * sizeof(int));
}

static void falls_through(void)
{
    MPI_Op left;
    int mine = rank + 5, first = 0;
    MPI_Op_create(take_left, 0, &left);
    MPI_Allreduce(&mine, &first, 1, MPI_INT, left, MPI_COMM_WORLD);
    check(first == 5, "an operation of one's own");
    MPI_Op_free(&left);
    char *big = malloc(1 << 20);
    memset(big, rank == 0 ? 7 : 0, 1 << 20);
    MPI_Bcast(big, 1 << 20, MPI_CHAR, 0, MPI_COMM_WORLD);
    check(big[123456] == 7, "a long bcast");
    free(big);
    if (size < 2) {
        return;
    }
    MPI_Comm half, inter;
    int lower = rank < size / 2;
    MPI_Comm_split(MPI_COMM_WORLD, lower, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, lower ? size / 2 : 0, 3,
                         &inter);
    int one = lower ? 1 : 10, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter);
    check(sum == (lower ? 10 * (size - size / 2) : size / 2),
          "allreduce over an intercommunicator");
    int word = lower ? 7 : 8;
    MPI_Barrier(inter);
    MPI_Bcast(&word, 1, MPI_INT,
              !lower      ? 0
              : rank == 0 ? MPI_ROOT
                          : MPI_PROC_NULL,
              inter);
    check(word == 7, "bcast over an intercommunicator");
    int theirs[64], others = lower ? size - size / 2 : size / 2;
    MPI_Allgather(&rank, 1, MPI_INT, theirs, 1, MPI_INT, inter);
    check(theirs[others - 1] == (lower ? size - 1 : size / 2 - 1),
          "allgather over an intercommunicator");
    int send[64];
    for (int r = 0; r < others; r++) {
        send[r] = rank * 100 + r;
    }
    MPI_Alltoall(send, 1, MPI_INT, theirs, 1, MPI_INT, inter);
    check(theirs[0] ==
              (lower ? size / 2 : 0) * 100 + rank - (lower ? 0 : size / 2),
          "alltoall over an intercommunicator");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 2;
    for (int round = 0; round < rounds; round++) {
        MPI_Comm half;
        reductions(MPI_COMM_WORLD);
        moves(MPI_COMM_WORLD);
        derived(MPI_COMM_WORLD);
        exchanges(MPI_COMM_WORLD, 2 + round * 20000);
        blocks(MPI_COMM_WORLD, 3 + round * 20000);
        parts(MPI_COMM_WORLD, 3 + round * 20000);
        lengths(MPI_COMM_WORLD);
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
        reductions(half);
        moves(half);
        blocks(half, 2);
        parts(half, 2);
        MPI_Comm_free(&half);
    }
    come_and_go(MPI_COMM_WORLD);
    falls_through();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("right %d\n", checks);
    }
    MPI_Finalize();
    return 0;
}
