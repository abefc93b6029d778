/*
 * Collectives of an MPI program that knows nothing of Poise, to be run with a
 * preload and without (bench/coll/preload): each rank's slowest time per call,
 * in microseconds, least and median of batches. Results are checked.
 *
 * usage: mpirun -n N coll_guest_MPI WHAT [BATCHES [CALLS [BYTES]]]
 *   barrier, bcast, allreduce, allgather, gatherv, scan, ireduce
 *              BATCHES of CALLS each, of BYTES from each rank
 *   comms      BATCHES communicators, each split off, used by CALLS allreduces
 *              of 8 bytes, and freed; the time is that of one communicator
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct guest {
    int rank, size, calls;
    size_t bytes;
    char *in, *out;
    int *counts, *places;
};

static void fail(const char *what)
{
    fprintf(stderr, "coll_guest: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void do_barrier(struct guest *guest)
{
    (void)guest;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void do_bcast(struct guest *guest)
{
    MPI_Bcast(guest->in, (int)guest->bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void do_allreduce(struct guest *guest)
{
    MPI_Allreduce(guest->in, guest->out, (int)(guest->bytes / 8), MPI_DOUBLE,
                  MPI_SUM, MPI_COMM_WORLD);
}

static void do_allgather(struct guest *guest)
{
    MPI_Allgather(guest->in, (int)guest->bytes, MPI_BYTE, guest->out,
                  (int)guest->bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void do_gatherv(struct guest *guest)
{
    MPI_Gatherv(guest->in, (int)guest->bytes, MPI_BYTE, guest->out,
                guest->counts, guest->places, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void do_scan(struct guest *guest)
{
    MPI_Scan(guest->in, guest->out, (int)(guest->bytes / 8), MPI_DOUBLE,
             MPI_SUM, MPI_COMM_WORLD);
}

static void do_iallreduce(struct guest *guest)
{
    MPI_Request request;
    MPI_Iallreduce(guest->in, guest->out, (int)(guest->bytes / 8), MPI_DOUBLE,
                   MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Ones from all ranks. */
static void check(const struct guest *guest, const char *what)
{
    double first;
    memcpy(&first, guest->out, sizeof first);
    if (strstr(what, "allreduce") && first != guest->size) {
        fail("a sum is wrong");
    }
    if (strcmp(what, "allgather") == 0) {
        for (int r = 0; r < guest->size; r++) {
            memcpy(&first, guest->out + (size_t)r * guest->bytes, sizeof first);
            if (first != 1) {
                fail("an item is wrong");
            }
        }
    }
}

static const struct {
    const char *name;
    void (*run)(struct guest *guest);
} ways[] = {{"barrier", do_barrier},      {"bcast", do_bcast},
            {"allreduce", do_allreduce},  {"allgather", do_allgather},
            {"gatherv", do_gatherv},      {"scan", do_scan},
            {"iallreduce", do_iallreduce}};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const struct guest *guest, double *times, int count)
{
    double *most = malloc((size_t)count * sizeof *most);
    if (!most) {
        fail("no memory");
    }
    MPI_Reduce(times, most, count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (guest->rank == 0) {
        qsort(most, (size_t)count, sizeof *most, by_value);
        printf("%.4f %.4f\n", most[0] * 1e6, most[count / 2] * 1e6);
    }
    free(most);
}

static double one_comm(struct guest *guest)
{
    double begun = MPI_Wtime(), mine = 1, sum = 0;
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, 0, guest->rank, &comm);
    for (int i = 0; i < guest->calls; i++) {
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
        if (sum != guest->size) {
            fail("a sum on a communicator is wrong");
        }
    }
    MPI_Comm_free(&comm);
    return MPI_Wtime() - begun;
}

static void make_buffers(struct guest *guest)
{
    size_t size = (size_t)guest->size;
    double one = 1;
    guest->in = calloc(1, guest->bytes + 8);
    guest->out = calloc(size, guest->bytes + 8);
    guest->counts = calloc(size, sizeof *guest->counts);
    guest->places = calloc(size, sizeof *guest->places);
    if (!guest->in || !guest->out || !guest->counts || !guest->places) {
        fail("no memory");
    }
    for (size_t i = 0; i + sizeof one <= guest->bytes; i += sizeof one) {
        memcpy(guest->in + i, &one, sizeof one);
    }
    for (int r = 0; r < guest->size; r++) {
        guest->counts[r] = (int)guest->bytes;
        guest->places[r] = (int)((size_t)r * guest->bytes);
    }
}

static int number(int argc, char **argv, int at, int otherwise)
{
    int value = argc > at ? atoi(argv[at]) : otherwise;
    return value < 1 ? otherwise : value;
}

int main(int argc, char **argv)
{
    struct guest guest = {0};
    const char *what = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &guest.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &guest.size);
    int batches = number(argc, argv, 2, 9);
    guest.calls = number(argc, argv, 3, 1);
    guest.bytes = (size_t)number(argc, argv, 4, 8);
    double *times = calloc((size_t)batches, sizeof *times);
    make_buffers(&guest);
    void (*run)(struct guest *) = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        run = strcmp(what, ways[i].name) == 0 ? ways[i].run : run;
    }
    if (!times || (!run && strcmp(what, "comms") != 0)) {
        fail("what is it to do?");
    }
    for (int b = -1; b < batches; b++) { /* one to warm up */
        double took;
        if (run) {
            MPI_Barrier(MPI_COMM_WORLD);
            took = MPI_Wtime();
            for (int i = 0; i < guest.calls; i++) {
                run(&guest);
            }
            took = (MPI_Wtime() - took) / guest.calls;
        } else {
            took = one_comm(&guest);
        }
        if (b >= 0) {
            times[b] = took;
        }
    }
    check(&guest, what);
    report(&guest, times, batches);
    free(guest.in);
    free(guest.out);
    free(guest.counts);
    free(guest.places);
    free(times);
    MPI_Finalize();
    return 0;
}
