/*
 * In how many ways N queens can stand on a board of N x N so that none attacks
 * another. One rank hands out pieces of the work, the places of the first two
 * queens, to whoever asks; pieces differ, and so may processors. Plain MPI:
 *
 *     mpicc -O2 -o queens queens.c     mpirun -n 4 ./queens 10
 *     poise cc -O2 -o queens queens.c  poise run -n 2 -V 16 ./queens 10
 *
 * As in many old programs the state of the search is in globals: each virtual
 * rank has its own.
 *
 * usage: queens [N]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 20, WORK = 1, RESULT, STOP };

static int n;
static int column_of[MOST]; /* of the queen in each row so far */
static long found;

static int is_safe(int row, int column)
{
    for (int above = 0; above < row; above++) {
        int distance = abs(column_of[above] - column);
        if (distance == 0 || distance == row - above) {
            return 0;
        }
    }
    return 1;
}

static void place(int row)
{
    if (row == n) {
        found++;
        return;
    }
    for (int column = 0; column < n; column++) {
        if (is_safe(row, column)) {
            column_of[row] = column;
            place(row + 1);
        }
    }
}

/* All ways that begin with these two. */
static long search(int piece)
{
    found = 0;
    column_of[0] = piece / n;
    if (n == 1) {
        return 1;
    }
    if (is_safe(1, piece % n)) {
        column_of[1] = piece % n;
        place(2);
    }
    return found;
}

/* A first answer is worth nothing and asks for work. */
static long manage(int workers, int pieces)
{
    long all = 0;
    int next = 0;
    while (workers > 0) {
        long ways;
        MPI_Status status;
        MPI_Recv(&ways, 1, MPI_LONG, MPI_ANY_SOURCE, RESULT, MPI_COMM_WORLD,
                 &status);
        all += ways;
        MPI_Send(&next, 1, MPI_INT, status.MPI_SOURCE,
                 next < pieces ? WORK : STOP, MPI_COMM_WORLD);
        if (next < pieces) {
            next++;
        } else {
            workers--;
        }
    }
    return all;
}

static void work(void)
{
    long ways = 0;
    for (;;) {
        int piece;
        MPI_Status status;
        MPI_Send(&ways, 1, MPI_LONG, 0, RESULT, MPI_COMM_WORLD);
        MPI_Recv(&piece, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        if (status.MPI_TAG == STOP) {
            return;
        }
        ways = search(piece);
    }
}

int main(int argc, char **argv)
{
    int rank, size;
    long all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    n = argc > 1 ? atoi(argv[1]) : 8;
    if (n < 1 || n > MOST) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int pieces = n == 1 ? 1 : n * n;
    if (rank > 0) {
        work();
    } else if (size > 1) {
        all = manage(size - 1, pieces);
    } else {
        for (int piece = 0; piece < pieces; piece++) {
            all += search(piece);
        }
    }
    if (rank == 0) {
        printf("%d queens: %ld ways\n", n, all);
    }
    MPI_Finalize();
    return 0;
}
