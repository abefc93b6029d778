/*
 * The heat solver of poise solve as an MPI program: a rectangle of cells to a
 * rank, edges exchanged in each sweep.
 *
 * usage: flow_mpi DOWN ACROSS SIDE SWEEPS MS blocking|overlap [FACTOR...]
 *
 * DOWN x ACROSS ranks have SIDE x SIDE cells each. As in poise solve, a sweep
 * of rank r takes MS times FACTOR r (default: 1), from when the one before was
 * over, or from when its data came, if that was later; the real work is done
 * inside of that time, and the rest slept. With "overlap" the cells that need
 * nobody else's are computed while edges travel. Rank 0 prints the
 * milliseconds a sweep took, the largest of all ranks.
 */
#include <errno.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct grid {
    int rank, size, down, across, side, beside[4]; /* up, low, left, right */
    double *now, *next;                            /* with a rim of ghosts */
    double *out[4], *in[4];
    MPI_Request requests[8];
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void sleep_until_ms(double ms)
{
    struct timespec t = {(time_t)(ms / 1e3), 0};
    t.tv_nsec = (long)((ms - (double)t.tv_sec * 1e3) * 1e6);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

static void sweep(const struct grid *g, int from, int to)
{
    int w = g->side + 2;
    for (int i = from; i < to; i++) {
        for (int j = from; j < to; j++) {
            const double *at = g->now + i * w + j;
            g->next[i * w + j] = ((at[-w] + at[w]) + (at[-1] + at[1])) / 4;
        }
    }
}

/* The outermost cells. */
static void sweep_rim(const struct grid *g)
{
    int w = g->side + 2;
    for (int i = 1; i <= g->side; i++) {
        bool whole = i == 1 || i == g->side;
        for (int j = 1; j <= g->side;
             j += whole || g->side < 2 ? 1 : g->side - 1) {
            const double *at = g->now + i * w + j;
            g->next[i * w + j] = ((at[-w] + at[w]) + (at[-1] + at[1])) / 4;
        }
    }
}

static void exchange_begin(struct grid *g)
{
    int w = g->side + 2, n = g->side;
    for (int k = 0; k < n; k++) {
        g->out[0][k] = g->now[w + 1 + k];
        g->out[1][k] = g->now[n * w + 1 + k];
        g->out[2][k] = g->now[(k + 1) * w + 1];
        g->out[3][k] = g->now[(k + 1) * w + n];
    }
    for (int s = 0; s < 4; s++) {
        MPI_Irecv(g->in[s], n, MPI_DOUBLE, g->beside[s], s ^ 1, MPI_COMM_WORLD,
                  &g->requests[s]);
        MPI_Isend(g->out[s], n, MPI_DOUBLE, g->beside[s], s, MPI_COMM_WORLD,
                  &g->requests[4 + s]);
    }
}

/* Look every 50 us: a rank that waits does not take a core from one that
 * computes. */
static void exchange_end(struct grid *g)
{
    int w = g->side + 2, n = g->side, done = 0;
    const struct timespec little = {0, 50000};
    MPI_Status statuses[8];
    for (;;) {
        MPI_Testall(8, g->requests, &done, statuses);
        if (done) {
            break;
        }
        nanosleep(&little, NULL);
    }
    for (int k = 0; k < n; k++) {
        g->now[1 + k] = g->in[0][k];
        g->now[(n + 1) * w + 1 + k] = g->in[1][k];
        g->now[(k + 1) * w] = g->in[2][k];
        g->now[(k + 1) * w + n + 1] = g->in[3][k];
    }
}

static double *cells_alloc(size_t count)
{
    double *cells = calloc(count, sizeof *cells);
    if (!cells) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return cells;
}

static double run(struct grid *g, int sweeps, double ms, bool overlap)
{
    double deadline, began;
    double inner = g->side > 2 ? (double)(g->side - 2) * (g->side - 2) /
                                     ((double)g->side * g->side)
                               : 0;
    MPI_Barrier(MPI_COMM_WORLD);
    began = deadline = now_ms();
    for (int s = 0; s < sweeps; s++) {
        exchange_begin(g);
        if (overlap) {
            sweep(g, 2, g->side);
            deadline += ms * inner;
            sleep_until_ms(deadline);
        }
        exchange_end(g);
        double came = now_ms();
        deadline = came > deadline ? came : deadline;
        if (overlap) {
            sweep_rim(g);
            deadline += ms * (1 - inner);
        } else {
            sweep(g, 1, g->side + 1);
            deadline += ms;
        }
        sleep_until_ms(deadline);
        double *other = g->now;
        g->now = g->next;
        g->next = other;
    }
    double took = (now_ms() - began) / sweeps, most;
    MPI_Allreduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

int main(int argc, char **argv)
{
    struct grid g = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g.size);
    if (argc < 7 || atoi(argv[1]) * atoi(argv[2]) != g.size) {
        fprintf(stderr, "usage: flow_mpi DOWN ACROSS SIDE SWEEPS MS "
                        "blocking|overlap [FACTOR...]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    g.down = atoi(argv[1]);
    g.across = atoi(argv[2]);
    g.side = atoi(argv[3]);
    int i = g.rank / g.across, j = g.rank % g.across;
    double factor = argc > 7 + g.rank ? atof(argv[7 + g.rank]) : 1;
    g.beside[0] = i > 0 ? g.rank - g.across : MPI_PROC_NULL;
    g.beside[1] = i + 1 < g.down ? g.rank + g.across : MPI_PROC_NULL;
    g.beside[2] = j > 0 ? g.rank - 1 : MPI_PROC_NULL;
    g.beside[3] = j + 1 < g.across ? g.rank + 1 : MPI_PROC_NULL;
    size_t cells = (size_t)(g.side + 2) * (size_t)(g.side + 2);
    g.now = cells_alloc(cells);
    g.next = cells_alloc(cells);
    for (int s = 0; s < 4; s++) {
        g.out[s] = cells_alloc((size_t)g.side);
        g.in[s] = cells_alloc((size_t)g.side);
    }
    g.now[g.side + 3] = g.rank;
    double took = run(&g, atoi(argv[4]), factor * atof(argv[5]),
                      strcmp(argv[6], "overlap") == 0);
    if (g.rank == 0) {
        printf("%.4f\n", took);
    }
    for (int s = 0; s < 4; s++) {
        free(g.out[s]);
        free(g.in[s]);
    }
    free(g.now);
    free(g.next);
    MPI_Finalize();
    return 0;
}
