/* Persistent collectives (MPI 4.0, which Open MPI 4.1 lacks): each is started
 * several times and must do what its blocking form does, with types and
 * operations that were freed meanwhile, and in another order on each rank. */
#include "conform.h"

enum { MOST = 64, ROUNDS = 3, KINDS = 17 };

static int mine[MOST], got[MOST], right[MOST];
static int lengths[8], places[8], ones[8], back[8];
static MPI_Datatype types[8];

static void reset(int round)
{
    for (int i = 0; i < MOST; i++) {
        mine[i] = 1000 * round + 100 * (rank + 1) + i;
        got[i] = right[i] = -1;
    }
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++) {
        ((int *)inout)[i] += 3 * ((int *)in)[i];
    }
}

/* What blocking forms do. */
static void run(int kind, MPI_Op op)
{
    MPI_Comm comm = MPI_COMM_WORLD;

    switch (kind) {
    case 0:
        MPI_Barrier(comm);
        break;
    case 1:
        memcpy(right, mine, sizeof right);
        MPI_Bcast(right, 3, MPI_INT, 1, comm);
        break;
    case 2:
        MPI_Gather(mine, 2, MPI_INT, right, 2, MPI_INT, 2, comm);
        break;
    case 3:
        MPI_Gatherv(mine, lengths[rank], MPI_INT, right, lengths, places,
                    MPI_INT, 0, comm);
        break;
    case 4:
        MPI_Scatter(mine, 2, MPI_INT, right, 2, MPI_INT, 1, comm);
        break;
    case 5:
        MPI_Scatterv(mine, lengths, places, MPI_INT, right, lengths[rank],
                     MPI_INT, 3, comm);
        break;
    case 6:
        MPI_Allgather(mine, 2, MPI_INT, right, 2, MPI_INT, comm);
        break;
    case 7:
        MPI_Allgatherv(mine, lengths[rank], MPI_INT, right, lengths, places,
                       MPI_INT, comm);
        break;
    case 8:
        MPI_Alltoall(mine, 2, MPI_INT, right, 2, MPI_INT, comm);
        break;
    case 9:
        MPI_Alltoallv(mine, ones, places, MPI_INT, right, ones, back, MPI_INT,
                      comm);
        break;
    case 10:
        MPI_Alltoallw(mine, ones, places, types, right, ones, places, types,
                      comm);
        break;
    case 11:
        MPI_Reduce(mine, right, 3, MPI_INT, MPI_MAX, 2, comm);
        break;
    case 12:
        MPI_Allreduce(mine, right, 3, MPI_INT, op, comm);
        break;
    case 13:
        MPI_Reduce_scatter(mine, right, lengths, MPI_INT, MPI_SUM, comm);
        break;
    case 14:
        MPI_Reduce_scatter_block(mine, right, 2, MPI_INT, MPI_SUM, comm);
        break;
    case 15:
        MPI_Scan(mine, right, 2, MPI_INT, MPI_SUM, comm);
        break;
    default:
        MPI_Exscan(mine, right, 2, MPI_INT, MPI_SUM, comm);
        break;
    }
}

static void prepare(int kind, MPI_Op op, int *to, MPI_Request *out)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Info info = MPI_INFO_NULL;

    switch (kind) {
    case 0:
        MPI_Barrier_init(comm, info, out);
        break;
    case 1:
        MPI_Bcast_init(to, 3, MPI_INT, 1, comm, info, out);
        break;
    case 2:
        MPI_Gather_init(mine, 2, MPI_INT, to, 2, MPI_INT, 2, comm, info, out);
        break;
    case 3:
        MPI_Gatherv_init(mine, lengths[rank], MPI_INT, to, lengths, places,
                         MPI_INT, 0, comm, info, out);
        break;
    case 4:
        MPI_Scatter_init(mine, 2, MPI_INT, to, 2, MPI_INT, 1, comm, info, out);
        break;
    case 5:
        MPI_Scatterv_init(mine, lengths, places, MPI_INT, to, lengths[rank],
                          MPI_INT, 3, comm, info, out);
        break;
    case 6:
        MPI_Allgather_init(mine, 2, MPI_INT, to, 2, MPI_INT, comm, info, out);
        break;
    case 7:
        MPI_Allgatherv_init(mine, lengths[rank], MPI_INT, to, lengths, places,
                            MPI_INT, comm, info, out);
        break;
    case 8:
        MPI_Alltoall_init(mine, 2, MPI_INT, to, 2, MPI_INT, comm, info, out);
        break;
    case 9:
        MPI_Alltoallv_init(mine, ones, places, MPI_INT, to, ones, back, MPI_INT,
                           comm, info, out);
        break;
    case 10:
        MPI_Alltoallw_init(mine, ones, places, types, to, ones, places, types,
                           comm, info, out);
        break;
    case 11:
        MPI_Reduce_init(mine, to, 3, MPI_INT, MPI_MAX, 2, comm, info, out);
        break;
    case 12:
        MPI_Allreduce_init(mine, to, 3, MPI_INT, op, comm, info, out);
        break;
    case 13:
        MPI_Reduce_scatter_init(mine, to, lengths, MPI_INT, MPI_SUM, comm, info,
                                out);
        break;
    case 14:
        MPI_Reduce_scatter_block_init(mine, to, 2, MPI_INT, MPI_SUM, comm, info,
                                      out);
        break;
    case 15:
        MPI_Scan_init(mine, to, 2, MPI_INT, MPI_SUM, comm, info, out);
        break;
    default:
        MPI_Exscan_init(mine, to, 2, MPI_INT, MPI_SUM, comm, info, out);
        break;
    }
}

/* Each by itself. */
static void one_by_one(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        MPI_Request request;
        MPI_Op op, same;
        int good = 0;

        MPI_Op_create(add, 0, &op);
        MPI_Op_create(add, 0, &same);
        prepare(kind, op, got, &request);
        MPI_Op_free(&op);
        for (int round = 0; round < ROUNDS; round++) {
            reset(round);
            if (kind == 1) {
                memcpy(got, mine, sizeof got);
            }
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            run(kind, same);
            good += memcmp(got, right, sizeof got) == 0;
        }
        MPI_Op_free(&same);
        MPI_Request_free(&request);
        say("%d: %d of %d right\n", kind, good, ROUNDS);
    }
}

/* All at once: the ranks start them in orders of their own, and some again
 * before others have seen the first. */
static void together(void)
{
    static int places_of[KINDS][MOST];
    MPI_Request requests[KINDS];
    int order[KINDS], good = 0;

    for (int kind = 0; kind < KINDS; kind++) {
        prepare(kind, MPI_SUM, places_of[kind], &requests[kind]);
        order[kind] = rank % 2 ? KINDS - 1 - kind : (kind + 5 * rank) % KINDS;
    }
    for (int round = 0; round < ROUNDS; round++) {
        reset(round);
        for (int kind = 0; kind < KINDS; kind++) {
            memset(places_of[kind], -1, sizeof places_of[kind]);
        }
        memcpy(places_of[1], mine, sizeof mine);
        if (rank % 3 == 0) {
            MPI_Request ordered[KINDS];
            for (int i = 0; i < KINDS; i++) {
                ordered[i] = requests[order[i]];
            }
            MPI_Startall(KINDS, ordered);
        } else {
            for (int i = 0; i < KINDS; i++) {
                MPI_Start(&requests[order[i]]);
            }
        }
        MPI_Waitall(KINDS, requests, MPI_STATUSES_IGNORE);
        for (int kind = 0; kind < KINDS; kind++) {
            memset(right, -1, sizeof right);
            run(kind, MPI_SUM);
            good += memcmp(places_of[kind], right, sizeof right) == 0;
        }
    }
    for (int kind = 0; kind < KINDS; kind++) {
        MPI_Request_free(&requests[kind]);
    }
    say("together: %d of %d right\n", good, KINDS * ROUNDS);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int i = 0; i < 8; i++) {
        lengths[i] = i % 3 + 1;
        places[i] = 4 * i;
        back[i] = 4 * (7 - i);
        ones[i] = 1;
        types[i] = MPI_INT;
    }
    one_by_one();
    together();
    return end();
}
