/*
 * Heat in a plate that is cut into blocks, each with up to four neighbours. A
 * rank sends its edges on their way, works on the inside, and turns to its own
 * edges when those of the neighbours are there. Plain MPI:
 *
 *     mpicc -O2 -o heat heat.c     mpirun -n 4 ./heat
 *     poise cc -O2 -o heat heat.c  poise run -n 2 -V 16 ./heat
 *
 * With more ranks than processors the blocks are smaller, and while one rank
 * waits for its neighbours' edges others have work.
 *
 * usage: heat [N [STEPS]]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { UP, DOWN, LEFT, RIGHT, SIDES };

static MPI_Comm grid;
static int sides[SIDES];      /* the neighbours, or MPI_PROC_NULL */
static int rows, columns;     /* of my block, without its borders */
static double *now, *next;    /* the block, and what it is a step later */
static MPI_Datatype a_column; /* of the block */

static double *at(double *block, int i, int j)
{
    return block + (size_t)i * (size_t)(columns + 2) + j;
}

/* How many of `n` lines place `part` of `parts` has. */
static int share(int n, int part, int parts)
{
    return (int)((long)n * (part + 1) / parts - (long)n * part / parts);
}

/* Cut the plate into blocks that are about square. */
static void make_grid(int n)
{
    int size, shape[2] = {0, 0}, closed[2] = {0, 0}, place[2];
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 2, shape);
    MPI_Cart_create(MPI_COMM_WORLD, 2, shape, closed, 1, &grid);
    MPI_Cart_get(grid, 2, shape, closed, place);
    MPI_Cart_shift(grid, 0, 1, &sides[UP], &sides[DOWN]);
    MPI_Cart_shift(grid, 1, 1, &sides[LEFT], &sides[RIGHT]);
    rows = share(n, place[0], shape[0]);
    columns = share(n, place[1], shape[1]);
    if (n < shape[0] || n < shape[1]) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Type_vector(rows, 1, columns + 2, MPI_DOUBLE, &a_column);
    MPI_Type_commit(&a_column);
}

/* The upper edge of the plate is hot. */
static void make_block(void)
{
    size_t points = (size_t)(rows + 2) * (size_t)(columns + 2);
    now = calloc(points, sizeof *now);
    next = calloc(points, sizeof *next);
    if (now == NULL || next == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int j = 0; sides[UP] == MPI_PROC_NULL && j < columns + 2; j++) {
        *at(now, 0, j) = *at(next, 0, j) = 100;
    }
}

/* The neighbours' edges into my borders, my edges to them. */
static void exchange(MPI_Request requests[2 * SIDES])
{
    double *borders[SIDES] = {at(now, 0, 1), at(now, rows + 1, 1),
                              at(now, 1, 0), at(now, 1, columns + 1)};
    double *edges[SIDES] = {at(now, 1, 1), at(now, rows, 1), at(now, 1, 1),
                            at(now, 1, columns)};
    for (int s = 0; s < SIDES; s++) {
        int count = s < LEFT ? columns : 1;
        MPI_Datatype type = s < LEFT ? MPI_DOUBLE : a_column;
        /* What goes up comes from below: the tag is the way that it goes. */
        MPI_Irecv(borders[s], count, type, sides[s], s ^ 1, grid, &requests[s]);
        MPI_Isend(edges[s], count, type, sides[s], s, grid,
                  &requests[SIDES + s]);
    }
}

static void step(int first_row, int last_row, int first, int last)
{
    for (int i = first_row; i <= last_row; i++) {
        for (int j = first; j <= last; j++) {
            *at(next, i, j) = 0.2 * (*at(now, i, j) + *at(now, i - 1, j) +
                                     *at(now, i + 1, j) + *at(now, i, j - 1) +
                                     *at(now, i, j + 1));
        }
    }
}

static void steps(int count)
{
    MPI_Request requests[2 * SIDES];
    for (int k = 0; k < count; k++) {
        exchange(requests);
        step(2, rows - 1, 2, columns - 1);
        MPI_Waitall(2 * SIDES, requests, MPI_STATUSES_IGNORE);
        step(1, 1, 1, columns);
        if (rows > 1) {
            step(rows, rows, 1, columns);
        }
        step(2, rows - 1, 1, 1);
        if (columns > 1) {
            step(2, rows - 1, columns, columns);
        }
        double *old = now;
        now = next;
        next = old;
    }
}

int main(int argc, char **argv)
{
    int rank;
    double sum = 0, all = 0;
    MPI_Init(&argc, &argv);
    int n = argc > 1 ? atoi(argv[1]) : 400;
    int count = argc > 2 ? atoi(argv[2]) : 100;
    if (n < 1 || count < 0) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    make_grid(n);
    make_block();
    MPI_Comm_rank(grid, &rank);
    double start = MPI_Wtime();
    steps(count);
    for (int i = 1; i <= rows; i++) {
        for (int j = 1; j <= columns; j++) {
            sum += *at(now, i, j);
        }
    }
    MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, grid);
    if (rank == 0) {
        printf("mean %.6f after %d steps\n", all / ((double)n * n), count);
        fprintf(stderr, "%.3f ms a step\n",
                (MPI_Wtime() - start) * 1e3 / (count > 0 ? count : 1));
    }
    free(now);
    free(next);
    MPI_Type_free(&a_column);
    MPI_Comm_free(&grid);
    MPI_Finalize();
    return 0;
}
