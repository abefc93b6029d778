/* Two groups of unequal size that talk with each other. */
#include "conform.h"

static MPI_Comm half, inter;
static int low, place, here, there;

static void make(void)
{
    MPI_Group group;
    int count, first = -1, zero = 0;
    MPI_Group world;
    low = rank == 0;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? 1 : 0, 3, &inter);
    MPI_Comm_rank(inter, &place);
    MPI_Comm_size(inter, &here);
    MPI_Comm_remote_size(inter, &there);
    MPI_Comm_remote_group(inter, &group);
    MPI_Group_size(group, &count);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(group, 1, &zero, world, &first);
    say("I am %d of %d, they are %d, %d in their group, first is %d\n", place,
        here, there, count, first);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
}

/* Who has the data says MPI_ROOT, his own group nothing. */
static int root(void)
{
    return !low ? 0 : place == 0 ? MPI_ROOT : MPI_PROC_NULL;
}

static void rooted(void)
{
    int data[8], value = rank * 3 + 1;
    for (int i = 0; i < 8; i++) {
        data[i] = low ? 50 + i : -1;
    }
    MPI_Bcast(data, 3, MPI_INT, root(), inter);
    say_ints("bcast", data, 4);
    for (int i = 0; i < 8; i++) {
        data[i] = -1;
    }
    MPI_Gather(&value, 1, MPI_INT, data, 1, MPI_INT, root(), inter);
    say_ints("gather", data, low ? there + 1 : 1);
    for (int i = 0; i < 8; i++) {
        data[i] = 70 + i;
    }
    MPI_Scatter(data, 1, MPI_INT, &value, 1, MPI_INT, root(), inter);
    say_ints("scatter", &value, low ? 0 : 1);
    data[0] = -1;
    value = rank + 1;
    MPI_Reduce(&value, data, 1, MPI_INT, MPI_SUM, root(), inter);
    say_ints("reduce", data, 1);
}

static void among_all(void)
{
    int sent[8], got[8], value = rank + 10;
    MPI_Request request;
    for (int i = 0; i < 8; i++) {
        sent[i] = 10 * rank + i;
        got[i] = -1;
    }
    MPI_Allgather(&value, 1, MPI_INT, got, 1, MPI_INT, inter);
    say_ints("allgather", got, there + 1);
    MPI_Alltoall(sent, 1, MPI_INT, got, 1, MPI_INT, inter);
    say_ints("alltoall", got, there + 1);
    MPI_Iallreduce(&value, got, 1, MPI_INT, MPI_MAX, inter, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    say_ints("iallreduce", got, 1);
    MPI_Barrier(inter);
}

/* A wildcard takes from the others only. */
static void messages(void)
{
    MPI_Status status;
    int value = rank + 30, got = -1;
    if (low) {
        for (int i = 0, sum = 0; i < there; i++) {
            MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 4, inter, &status);
            sum += got;
            if (i == there - 1) {
                say("sum %d\n", sum);
            }
        }
    } else {
        MPI_Send(&value, 1, MPI_INT, 0, 4, inter);
    }
}

static void undo(void)
{
    MPI_Comm merged, parent = MPI_COMM_WORLD;
    int count, number;
    MPI_Intercomm_merge(inter, !low, &merged);
    MPI_Comm_size(merged, &count);
    MPI_Comm_rank(merged, &number);
    say("merged: %d of %d\n", number, count);
    MPI_Comm_disconnect(&merged);
    say("disconnected %d\n", merged == MPI_COMM_NULL);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    MPI_Comm_get_parent(&parent);
    say("no parent %d\n", parent == MPI_COMM_NULL);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    make();
    rooted();
    among_all();
    messages();
    undo();
    return end();
}
