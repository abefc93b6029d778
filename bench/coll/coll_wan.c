/*
 * Allreduces of 8 bytes among sites that are far from each other: MPI's, over
 * a tree with one root, over MagPIe's, and a conditional one that the own site
 * can decide. Prints rows of cells, "NAME|CELL|CELL", for bench/run.
 *
 *   table CALLS           one after the other: median, least and worst of the
 *                         slowest rank's times in ms, and that of a site alone
 *   placements CALLS      the median of each way, for every way to put the
 *                         ranks on sites of equal size
 *   noise CALLS MS TRIP   MS of computation before each: ms an iteration, and
 *                         how much faster than one root; TRIP: the greatest
 *                         round trip
 *   replay DATA N MS      a conditional allreduce of what a relaxation of N by
 *                         N points reduces (heat, tridiagonal, random), with
 *                         MS of computation before each
 *
 * Computation is sleep: the ranks are more than the processors.
 *
 * usage: mpirun -n N coll_wan_MPI MODE ...     (POISE_SITES)
 * Source: thesis 7.3, V.A, V.B, figures 4 and 5.
 */
#include <poise/coll.h>
#include <poise/conditional.h>
#include <poise/core.h>
#include <poise/mpi.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CALLS 20000
#define MOST_RANKS 64
#define EPSILON 0.01904 /* as in examples/sor_sites.c */

static int rank, size;
static struct poise_world *world;
static struct poise_coll *coll;
static struct poise_coll_if *cond;
static double contribution = 1;
static struct poise_coll_verdict verdict;

static void check(int code)
{
    if (code < 0) {
        fprintf(stderr, "coll_wan: %s\n", poise_error_last()->why);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* ---- the ways ----------------------------------------------------------- */

static MPI_Comm comm; /* the world's, in some order */

static void by_mpi(void)
{
    double sum;
    MPI_Allreduce(&contribution, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
}

static void by_tree(void)
{
    double sum;
    check(poise_coll_allreduce(coll, &contribution, &sum, 1, POISE_DOUBLE,
                               POISE_OP_SUM));
}

static void by_condition(void)
{
    check(poise_coll_allreduce_if(cond, &contribution, &verdict));
}

static void make_coll(struct poise_world *of, const char *shape)
{
    struct poise_coll_tree *tree;
    check(poise_coll_tree_make(of, shape, &tree));
    struct poise_coll_options options = {.tree = tree};
    check(poise_coll_create(of, &options, &coll));
    poise_coll_tree_free(tree);
}

static void make_condition(double constant)
{
    const struct poise_coll_condition condition = {.type = POISE_DOUBLE,
                                                   .op = POISE_OP_SUM,
                                                   .test = POISE_TEST_GREATER,
                                                   .sign =
                                                       POISE_SIGN_NOT_NEGATIVE,
                                                   .real = constant};
    check(poise_coll_if_create(world, &condition, &cond));
}

/* ---- times -------------------------------------------------------------- */

struct times {
    double median, least, worst; /* ms, of the slowest rank */
    double whole;                /* ms an iteration, computation included */
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct times measure(void (*step)(void), int calls, double compute_ms)
{
    static double times[MOST_CALLS], slowest[MOST_CALLS];
    struct times out;
    for (int i = 0; i < 3; i++) {
        step();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++) {
        if (compute_ms > 0) {
            poise_sleep_ns((uint64_t)(compute_ms * 1e6));
        }
        double begun = MPI_Wtime();
        step();
        times[i] = (MPI_Wtime() - begun) * 1e3;
    }
    out.whole = (MPI_Wtime() - start) * 1e3 / calls;
    MPI_Allreduce(times, slowest, calls, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &out.whole, 1, MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
    qsort(slowest, (size_t)calls, sizeof *slowest, by_value);
    out.median = slowest[calls / 2];
    out.least = slowest[0];
    out.worst = slowest[calls - 1];
    return out;
}

static struct times with_tree(struct poise_world *of, const char *shape,
                              int calls, double compute_ms)
{
    make_coll(of, shape);
    struct times times = measure(by_tree, calls, compute_ms);
    poise_coll_destroy(coll);
    return times;
}

static struct times with_condition(int calls, double compute_ms)
{
    make_condition(0.5);
    struct times times = measure(by_condition, calls, compute_ms);
    poise_coll_if_destroy(cond);
    return times;
}

/* ---- table -------------------------------------------------------------- */

static void show(const char *way, const struct times *times)
{
    if (rank == 0) {
        printf("%s|%.3f|%.3f|%.3f\n", way, times->median, times->least,
               times->worst);
        fflush(stdout);
    }
}

static void table(int calls)
{
    struct poise_world *site;
    struct times times = measure(by_mpi, calls, 0);
    show(poise_world_name(world), &times);
    times = with_tree(world, "site", calls, 0);
    show("site", &times);
    times = with_tree(world, "magpie", calls, 0);
    show("magpie", &times);
    times = with_condition(calls, 0);
    show("conditional, decided by the site", &times);
    check(poise_world_split(world, POISE_LEVEL_SITE, &site));
    times = with_tree(site, "node", calls, 0);
    show("each site's own", &times);
    poise_world_destroy(site);
}

/* ---- placements --------------------------------------------------------- */

/* The medians with the ranks dealt out as sites[] says: rank r of the
 * communicator sits on site sites[r]. */
static void place(const int *sites, int calls)
{
    struct poise_world *whole = world;
    int here = poise_world_placement(world, rank).site, earlier = 0, mine = -1;
    for (int r = 0; r < rank; r++) {
        earlier += poise_world_placement(world, r).site == here;
    }
    for (int r = 0; r < size && mine < 0; r++) {
        if (sites[r] == here && earlier-- == 0) {
            mine = r;
        }
    }
    MPI_Comm_split(MPI_COMM_WORLD, 0, mine, &comm);
    check(poise_world_from_mpi(comm, &world));
    struct times mpi = measure(by_mpi, calls, 0);
    struct times site = with_tree(world, "site", calls, 0);
    struct times magpie = with_tree(world, "magpie", calls, 0);
    if (rank == 0) {
        for (int r = 0; r < size; r++) {
            printf("%c", 'a' + sites[r]);
        }
        printf("|%.2f|%.2f|%.2f\n", mpi.median, site.median, magpie.median);
        fflush(stdout);
    }
    poise_world_destroy(world);
    MPI_Comm_free(&comm);
    comm = MPI_COMM_WORLD;
    world = whole;
}

/* All ways to go on from `at`; sites are first met in order, since they differ
 * in their names only. */
static void place_all(int *sites, int at, int met, int count, int calls)
{
    if (at == size) {
        place(sites, calls);
        return;
    }
    for (int site = 0; site <= met && site < count; site++) {
        int used = 0;
        for (int r = 0; r < at; r++) {
            used += sites[r] == site;
        }
        if (used < size / count) {
            sites[at] = site;
            place_all(sites, at + 1, site == met ? met + 1 : met, count, calls);
        }
    }
}

static void placements(int calls)
{
    int sites[MOST_RANKS], count = 0;
    for (int r = 0; r < size; r++) {
        int site = poise_world_placement(world, r).site;
        count = site >= count ? site + 1 : count;
    }
    if (size > MOST_RANKS || size % count != 0) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    place_all(sites, 0, 0, count, calls);
}

/* ---- noise-allreduce ---------------------------------------------------- */

/* `trip_ms`: the greatest round trip, which a tree with one root pays. */
static void noise(int calls, double ms, double trip_ms)
{
    enum { MPI, SITE, MAGPIE, CONDITIONAL, WAYS };
    static const char *const names[WAYS] = {"MPI", "site", "magpie",
                                            "conditional"};
    struct times times[WAYS];
    times[MPI] = measure(by_mpi, calls, ms);
    times[SITE] = with_tree(world, "site", calls, ms);
    times[MAGPIE] = with_tree(world, "magpie", calls, ms);
    times[CONDITIONAL] = with_condition(calls, ms);
    double possible = (ms + trip_ms) / ms;
    for (int i = 0; i < WAYS && rank == 0; i++) {
        double faster = times[SITE].whole / times[i].whole;
        printf("%s|%.2f|%.3f|%.3f\n", names[i], times[i].whole, faster,
               faster / possible);
    }
}

/* ---- replay ------------------------------------------------------------- */

static double begin(const char *data, int i, int j)
{
    struct poise_rng rng;
    poise_rng_seed(&rng, (uint64_t)i * 100003 + (uint64_t)j);
    double any = (double)poise_rng_below(&rng, 10000);
    if (strcmp(data, "heat") == 0) {
        return i == 0 ? 27760 : -273.15;
    }
    return strcmp(data, "random") == 0 || abs(i - j) <= 3 ? any : 0;
}

/* One red and one black sweep of the whole plate; what my rows changed by, and
 * all of them. */
static double sweep(double *plate, int n, double omega, double *all)
{
    int from = (int)((long)n * rank / size) + 1;
    int to = (int)((long)n * (rank + 1) / size) + 1;
    size_t wide = (size_t)n + 2;
    double mine = 0;
    *all = 0;
    for (int colour = 0; colour < 2; colour++) {
        for (int i = 1; i <= n; i++) {
            double *row = plate + (size_t)i * wide, changes = 0;
            for (int j = 1 + (i + colour) % 2; j <= n; j += 2) {
                double change =
                    omega * (0.25 * (row[j - 1] + row[j + 1] + (row - wide)[j] +
                                     (row + wide)[j]) -
                             row[j]);
                row[j] += change;
                changes += fabs(change);
            }
            *all += changes;
            mine += i >= from && i < to ? changes : 0;
        }
    }
    return mine;
}

/* What this rank contributes in each iteration until the end. */
static int relax(const char *data, int n, double *mine)
{
    size_t wide = (size_t)n + 2;
    double *plate = malloc(wide * wide * sizeof *plate), all = INFINITY;
    int count = 0;
    if (!plate) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < n + 2; i++) {
        for (int j = 0; j < n + 2; j++) {
            plate[(size_t)i * wide + (size_t)j] = begin(data, i, j);
        }
    }
    double omega = 2 / (1 + sin(acos(-1) / (n + 1)));
    while (all > EPSILON * n && count < MOST_CALLS) {
        mine[count++] = sweep(plate, n, omega, &all);
    }
    free(plate);
    return count;
}

/* The cells of one site's first rank, and points of its curve. */
static void show_site(int site, const double *times, const double *hows,
                      int count)
{
    static double sorted[MOST_CALLS];
    double sum = 0, by[3] = {0};
    int step = count / 300 + 1;
    for (int i = 0; i < count; i++) {
        sum += times[i];
        by[(int)hows[i]] += 100.0 / count;
        if (i % step == 0 || i == count - 1) {
            printf("time|%d|%d|%.4f\n", site, i, times[i]);
        }
    }
    memcpy(sorted, times, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    printf("share|%d|%d|%.1f %%|%.1f %%|%.1f %%|%.3f|%.3f|%.1f\n", site, count,
           by[POISE_HOW_LOCAL], by[POISE_HOW_PREFETCHED], by[POISE_HOW_WAITED],
           sorted[count / 2], sum / count, sorted[count - 1]);
}

static void replay(const char *data, int n, double ms)
{
    static double mine[MOST_CALLS], times[MOST_CALLS], hows[MOST_CALLS];
    int count = relax(data, n, mine), done = 0;
    make_condition(EPSILON * n);
    MPI_Barrier(MPI_COMM_WORLD);
    for (verdict.truth = true; verdict.truth && done < count; done++) {
        poise_sleep_ns((uint64_t)(ms * 1e6));
        contribution = mine[done];
        double begun = MPI_Wtime();
        by_condition();
        times[done] = (MPI_Wtime() - begun) * 1e3;
        hows[done] = verdict.how;
    }
    poise_coll_if_destroy(cond);
    for (int r = 0, last = -1; r < size; r++) {
        int site = poise_world_placement(world, r).site;
        if (site <= last) {
            continue; /* its first rank speaks for it */
        }
        last = site;
        if (r != 0 && rank == r) {
            MPI_Send(times, done, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
            MPI_Send(hows, done, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
        } else if (r != 0 && rank == 0) {
            MPI_Recv(times, done, MPI_DOUBLE, r, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            MPI_Recv(hows, done, MPI_DOUBLE, r, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        }
        if (rank == 0) {
            show_site(site, times, hows, done);
        }
    }
}

static int calls_of(const char *text)
{
    int calls = atoi(text);
    return calls < 1 || calls > MOST_CALLS ? 20 : calls;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    comm = MPI_COMM_WORLD;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    check(poise_world_from_mpi(comm, &world));
    if (argc == 3 && strcmp(argv[1], "table") == 0) {
        table(calls_of(argv[2]));
    } else if (argc == 3 && strcmp(argv[1], "placements") == 0) {
        placements(calls_of(argv[2]));
    } else if (argc == 5 && strcmp(argv[1], "noise") == 0) {
        noise(calls_of(argv[2]), atof(argv[3]), atof(argv[4]));
    } else if (argc == 5 && strcmp(argv[1], "replay") == 0) {
        replay(argv[2], atoi(argv[3]), atof(argv[4]));
    } else {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    poise_world_destroy(world);
    MPI_Finalize();
    return 0;
}
