/*
 * The same tasks as flow_grain's, as an MPI program writes them by hand (Task
 * Bench's non-blocking one): a rank has neighbouring places, asks for what it
 * needs of others before a version, sends what others need as soon as it is
 * computed, and waits for all of its messages of a version together.
 *
 * usage: flow_grain_mpi PATTERN WIDTH VERSIONS
 *
 * Rank 0 prints what flow_grain does; WIDTH is a multiple of the ranks.
 */
#include "grain.h"

#include <errno.h>
#include <mpi.h>
#include <stdlib.h>

enum { WIDTH_MOST = 64, KEPT = 2 };

struct ranks {
    int rank, size;
    int64_t from, to; /* places of this one */
    /* Blocks of two versions, own ones and those that came. */
    uint64_t block[KEPT][WIDTH_MOST][2];
    MPI_Request sends[KEPT][WIDTH_MOST * GRAIN_MOST];
    int send_count[KEPT];
    MPI_Request gets[WIDTH_MOST];
    int get_count;
    MPI_Status *ignored; /* a place of its own: compilers warn of MPICH's 1 */
};

static int rank_of(const struct ranks *r, const struct grain *grain, int64_t x)
{
    return (int)(x / (grain->width / r->size));
}

/* Ask for what this rank's tasks of a version need of others' of `of`, each
 * once. */
static void ask(struct ranks *r, const struct grain *grain, int64_t version,
                int64_t of, int64_t versions)
{
    struct grain_at list[GRAIN_MOST];
    bool asked[WIDTH_MOST] = {false};
    for (int64_t x = r->from; x < r->to; x++) {
        int count = grain_list(grain, version, x, false, versions, list);
        for (int i = 0; i < count; i++) {
            int64_t y = list[i].x;
            int rank = rank_of(r, grain, y);
            if (rank != r->rank && list[i].version == of && !asked[y]) {
                asked[y] = true;
                MPI_Irecv(r->block[of % KEPT][y], 2, MPI_UINT64_T, rank, (int)y,
                          MPI_COMM_WORLD, &r->gets[r->get_count++]);
            }
        }
    }
}

static void wait_gets(struct ranks *r)
{
    if (r->get_count > 0) {
        MPI_Waitall(r->get_count, r->gets, r->ignored);
        r->get_count = 0;
    }
}

/* To each rank that needs it, once. */
static void send(struct ranks *r, const struct grain *grain, int64_t version,
                 int64_t x, int64_t versions)
{
    struct grain_at list[GRAIN_MOST];
    bool sent[WIDTH_MOST] = {false};
    int at = (int)(version % KEPT);
    int count = grain_list(grain, version, x, true, versions, list);
    for (int i = 0; i < count; i++) {
        int rank = rank_of(r, grain, list[i].x);
        if (rank != r->rank && !sent[rank]) {
            sent[rank] = true;
            MPI_Isend(r->block[at][x], 2, MPI_UINT64_T, rank, (int)x,
                      MPI_COMM_WORLD, &r->sends[at][r->send_count[at]++]);
        }
    }
}

static void version_run(struct ranks *r, const struct grain *grain,
                        int64_t version, int64_t versions)
{
    int at = (int)(version % KEPT);
    if (version > 0) {
        ask(r, grain, version, version - 1, versions);
    }
    if (r->send_count[at] > 0) { /* of what is to be written now */
        MPI_Waitall(r->send_count[at], r->sends[at], r->ignored);
        r->send_count[at] = 0;
    }
    wait_gets(r);
    if (grain->pattern == GRAIN_SWEEP) {
        ask(r, grain, version, version, versions);
    }
    for (int64_t x = r->from; x < r->to; x++) {
        wait_gets(r);
        r->block[at][x][0] = grain_work(grain->rounds, (uint64_t)version);
        r->block[at][x][1] = (uint64_t)x;
        send(r, grain, version, x, versions);
    }
}

static int run(struct grain *grain, int64_t versions, double *task_ns,
               void *arg)
{
    struct ranks *r = arg;
    MPI_Barrier(MPI_COMM_WORLD);
    double began = grain_now_ns(), took, most;
    for (int64_t v = 0; v < versions; v++) {
        version_run(r, grain, v, versions);
    }
    for (int at = 0; at < KEPT; at++) {
        MPI_Waitall(r->send_count[at], r->sends[at], r->ignored);
        r->send_count[at] = 0;
    }
    took = grain_now_ns() - began;
    MPI_Allreduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    *task_ns = most * r->size / (double)(versions * grain->width);
    return 0;
}

int main(int argc, char **argv)
{
    static struct ranks r;
    struct grain grain;
    double ns = grain_round_ns(), metg_ns, best;
    MPI_Init(&argc, &argv);
    r.ignored = MPI_STATUSES_IGNORE;
    MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r.size);
    if (argc != 4 || !grain_init(&grain, argv[1], atoll(argv[2])) ||
        grain.width > WIDTH_MOST || grain.width % r.size) {
        fputs("usage: flow_grain_mpi PATTERN WIDTH VERSIONS\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    /* All ranks compute as many versions. */
    MPI_Allreduce(&ns, &best, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    grain.versions_least = atoll(argv[3]);
    r.from = grain.width / r.size * r.rank;
    r.to = grain.width / r.size * (r.rank + 1);
    grain_measure(&grain, best, r.rank == 0, run, &r, &metg_ns);
    if (r.rank == 0) {
        printf("METG %.3f us\n", metg_ns / 1e3);
    }
    MPI_Finalize();
    return 0;
}
