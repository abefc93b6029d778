/* Parts and duplicates of intercommunicators: by colours, by groups, and
 * several at once. Open MPI 4.1 and MPICH 4.0 do not come to the end of it. */
#include "conform.h"

static MPI_Comm between;
static int low; /* so many are the one group */

/* Who is in it, as ranks of MPI_COMM_WORLD, and that messages go through. */
static void describe(const char *what, MPI_Comm *comm)
{
    MPI_Group local, remote, world;
    int near, far, me, sizes[2], from[8], ranks[8], hello;

    say("%s:", what);
    if (*comm == MPI_COMM_NULL) {
        say(" null\n");
        return;
    }
    MPI_Comm_rank(*comm, &me);
    MPI_Comm_size(*comm, &near);
    MPI_Comm_remote_size(*comm, &far);
    sizes[0] = near, sizes[1] = far;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(*comm, &local);
    MPI_Comm_remote_group(*comm, &remote);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < sizes[side]; i++) {
            from[i] = i;
        }
        MPI_Group_translate_ranks(side ? remote : local, sizes[side], from,
                                  world, ranks);
        say(side ? " to" : " %d of", me);
        for (int i = 0; i < sizes[side]; i++) {
            say(" %d", ranks[i]);
        }
    }
    MPI_Allreduce(&rank, &hello, 1, MPI_INT, MPI_SUM, *comm);
    say(", from there %d", hello);
    MPI_Sendrecv(&rank, 1, MPI_INT, me < far ? me : MPI_PROC_NULL, 1, &hello, 1,
                 MPI_INT, me < far ? me : MPI_PROC_NULL, 1, *comm,
                 MPI_STATUS_IGNORE);
    say(", %d\n", hello);
    MPI_Group_free(&world);
    MPI_Group_free(&local);
    MPI_Group_free(&remote);
    MPI_Comm_free(comm);
}

static void make(void)
{
    MPI_Comm half;
    int colour = rank < low;

    MPI_Comm_split(MPI_COMM_WORLD, colour, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, colour ? low : 0, 5,
                         &between);
    MPI_Comm_free(&half);
}

static void by_colour(void)
{
    MPI_Comm part;

    MPI_Comm_split(between, rank % 2, -rank, &part);
    describe("odd and even, backwards", &part);
    MPI_Comm_split(between, rank == 1 ? 3 : 7, rank, &part);
    describe("one colour on one side only", &part);
    MPI_Comm_split(between, rank == 3 ? MPI_UNDEFINED : 0, 0, &part);
    describe("without the last", &part);
    MPI_Comm_split(between, rank, 0, &part);
    describe("each its own", &part);
}

static void by_node(void)
{
    MPI_Comm part;
    MPI_Group own;
    int class;

    MPI_Comm_split_type(between, MPI_COMM_TYPE_SHARED, -rank, MPI_INFO_NULL,
                        &part);
    describe("all on this machine, backwards", &part);
    MPI_Comm_split_type(between,
                        rank == 0 ? MPI_UNDEFINED : MPI_COMM_TYPE_SHARED, 0,
                        MPI_INFO_NULL, &part);
    describe("all but one", &part);
    /* Only a group of one communicator can agree by itself. */
    MPI_Comm_group(between, &own);
    MPI_Comm_set_errhandler(between, MPI_ERRORS_RETURN);
    MPI_Error_class(MPI_Comm_create_group(between, own, 1, &part), &class);
    say("by the group alone: %d\n", class == MPI_ERR_COMM);
    MPI_Comm_set_errhandler(between, MPI_ERRORS_ARE_FATAL);
    MPI_Group_free(&own);
}

static void by_group(void)
{
    MPI_Comm part;
    MPI_Group own, some;
    int me, near, which[2];

    MPI_Comm_rank(between, &me);
    MPI_Comm_size(between, &near);
    MPI_Comm_group(between, &own);
    which[0] = near - 1;
    which[1] = 0;
    MPI_Group_incl(own, near > 1 ? 2 : 1, which, &some);
    MPI_Comm_create(between, some, &part);
    describe("the last and the first", &part);
    MPI_Group_free(&some);
    MPI_Group_incl(own, 1, which, &some);
    MPI_Comm_create(between, some, &part);
    describe("the last", &part);
    MPI_Comm_create(between, rank < low ? some : MPI_GROUP_EMPTY, &part);
    describe("nobody on one side", &part);
    MPI_Group_free(&some);
    MPI_Group_free(&own);
}

static void duplicates(void)
{
    MPI_Comm copies[3];
    MPI_Request requests[3];

    for (int i = 0; i < 3; i++) {
        MPI_Comm_idup(i == 2 ? MPI_COMM_WORLD : between, &copies[i],
                      &requests[i]);
    }
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    describe("one of two at once", &copies[1]);
    describe("the other", &copies[0]);
    MPI_Comm_free(&copies[2]);
    MPI_Comm_dup_with_info(between, MPI_INFO_NULL, &copies[0]);
    describe("a duplicate", &copies[0]);
    MPI_Comm_dup(between, &copies[1]);
    MPI_Comm_split(copies[1], 0, 0, &copies[0]);
    MPI_Comm_free(&copies[1]);
    MPI_Comm_dup(copies[0], &copies[1]);
    MPI_Comm_free(&copies[0]);
    describe("a duplicate of a part of a duplicate", &copies[1]);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (low = 1; low < size; low++) {
        say("%d and %d\n", low, size - low);
        make();
        by_colour();
        by_node();
        by_group();
        duplicates();
        MPI_Comm_free(&between);
    }
    return end();
}
