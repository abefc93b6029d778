/* Groups, and the communicators made of them. */
#include "conform.h"

static void say_group(const char *what, MPI_Group group)
{
    int count, place;
    MPI_Group world;
    int ranks[8], in_world[8];
    MPI_Group_size(group, &count);
    MPI_Group_rank(group, &place);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int i = 0; i < count; i++) {
        ranks[i] = i;
    }
    if (count > 0) {
        MPI_Group_translate_ranks(group, count, ranks, world, in_world);
    }
    say("%s: I am %d of %d;", what, place == MPI_UNDEFINED ? -1 : place, count);
    for (int i = 0; i < count; i++) {
        say(" %d", in_world[i]);
    }
    say("\n");
    MPI_Group_free(&world);
}

static const char *comparison(int result)
{
    return result == MPI_IDENT       ? "identical"
           : result == MPI_CONGRUENT ? "congruent"
           : result == MPI_SIMILAR   ? "similar"
                                     : "unequal";
}

static void groups(void)
{
    MPI_Group world, a, b, c;
    int result, some[2] = {size - 1, 0}, range[1][3] = {{size - 1, 0, -2}};
    int all[8], back[8];
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    say_group("world", world);
    MPI_Group_incl(world, 2, some, &a);
    say_group("included", a);
    MPI_Group_excl(world, 2, some, &b);
    say_group("excluded", b);
    MPI_Group_union(b, a, &c);
    say_group("union", c);
    MPI_Group_compare(world, c, &result);
    say("against the world: %s\n", comparison(result));
    MPI_Group_free(&c);
    MPI_Group_intersection(world, a, &c);
    say_group("intersection", c);
    MPI_Group_compare(a, c, &result);
    say("against the same: %s\n", comparison(result));
    MPI_Group_free(&c);
    MPI_Group_difference(world, b, &c);
    say_group("difference", c);
    MPI_Group_free(&c);
    MPI_Group_intersection(a, b, &c);
    MPI_Group_compare(c, MPI_GROUP_EMPTY, &result);
    say("nothing: %s\n", comparison(result));
    if (c != MPI_GROUP_EMPTY) {
        MPI_Group_free(&c);
    }
    MPI_Group_range_incl(world, 1, range, &c);
    say_group("range", c);
    for (int i = 0; i < size; i++) {
        all[i] = i;
    }
    MPI_Group_translate_ranks(world, size, all, c, back);
    for (int i = 0; i < size; i++) {
        back[i] = back[i] == MPI_UNDEFINED ? -1 : back[i];
    }
    say_ints("translated", back, size);
    MPI_Group_free(&c);
    MPI_Group_range_excl(world, 1, range, &c);
    say_group("range left out", c);
    MPI_Group_free(&c);
    MPI_Group_free(&a);
    MPI_Group_free(&b);
    MPI_Group_free(&world);
    say("freed %d\n", world == MPI_GROUP_NULL);
}

/* Who is in it, by a sum of their numbers. */
static void say_comm(const char *what, MPI_Comm comm)
{
    int place, count, sum, result, inter;
    if (comm == MPI_COMM_NULL) {
        say("%s: not in it\n", what);
        return;
    }
    MPI_Comm_rank(comm, &place);
    MPI_Comm_size(comm, &count);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_compare(comm, MPI_COMM_WORLD, &result);
    MPI_Comm_test_inter(comm, &inter);
    say("%s: %d of %d, sum %d, %s, inter %d\n", what, place, count, sum,
        comparison(result), inter);
}

static void communicators(void)
{
    MPI_Comm comm, again;
    MPI_Group world, part;
    MPI_Request request;
    char name[MPI_MAX_OBJECT_NAME];
    int length, some[2] = {size - 1, 0};
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    say("named %s %d\n", name, length);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    say_comm("dup", comm);
    MPI_Comm_set_name(comm, "the other");
    MPI_Comm_get_name(comm, name, &length);
    say("named %s %d\n", name, length);
    MPI_Comm_idup(comm, &again, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    say_comm("idup", again);
    MPI_Comm_free(&again);
    MPI_Comm_dup_with_info(comm, MPI_INFO_NULL, &again);
    say_comm("with info", again);
    MPI_Comm_free(&again);
    MPI_Comm_split(comm, rank % 2, -rank, &again);
    say_comm("split, backwards", again);
    MPI_Comm_free(&again);
    MPI_Comm_split(comm, rank == 1 ? MPI_UNDEFINED : 5, 0, &again);
    say_comm("split without one", again);
    if (again != MPI_COMM_NULL) {
        MPI_Comm_free(&again);
    }
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL,
                        &again);
    say_comm("of a node", again);
    MPI_Comm_free(&again);
    MPI_Comm_group(comm, &world);
    MPI_Group_incl(world, 2, some, &part);
    MPI_Comm_create(comm, part, &again);
    say_comm("created", again);
    if (again != MPI_COMM_NULL) {
        MPI_Comm_free(&again);
        MPI_Comm_create_group(comm, part, 7, &again);
        say_comm("created by the group", again);
        MPI_Comm_free(&again);
    }
    MPI_Group_free(&part);
    MPI_Group_free(&world);
    MPI_Info hints, found;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "colour", "red");
    say("takes hints %d\n", MPI_Comm_set_info(comm, hints) == MPI_SUCCESS);
    MPI_Info_free(&hints);
    MPI_Comm_get_info(comm, &found);
    say("has hints %d\n", found != MPI_INFO_NULL);
    MPI_Info_free(&found);
    MPI_Comm_free(&comm);
    say("freed %d\n", comm == MPI_COMM_NULL);
    say_comm("self", MPI_COMM_SELF);
}

/* The same tags in different communicators do not meet. */
static void contexts(void)
{
    MPI_Comm comm;
    int here = rank, there = rank + 100, a = -1, b = -1;
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    MPI_Request requests[4];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Irecv(&b, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[0]);
    MPI_Irecv(&a, 1, MPI_INT, last, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&here, 1, MPI_INT, next, 0, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(&there, 1, MPI_INT, next, 0, comm, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    say("contexts: %d %d\n", a, b);
    MPI_Comm_free(&comm);
}

/* Two groups that talk with each other. */
static void between(void)
{
    MPI_Comm half, inter, merged, twin;
    int count, value = rank, got = -1, sum = 0, place;
    int low = rank < size / 2;
    MPI_Status status;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? size / 2 : 0, 3,
                         &inter);
    MPI_Comm_remote_size(inter, &count);
    MPI_Comm_rank(inter, &place);
    say("between: I am %d, they are %d\n", place, count);
    MPI_Sendrecv(&value, 1, MPI_INT, place % count, 0, &got, 1, MPI_INT,
                 place % count, 0, inter, &status);
    say("from the other side: %d, which is %d\n", got, status.MPI_SOURCE);
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, inter);
    say("their sum: %d\n", sum);
    MPI_Comm_dup(inter, &twin);
    MPI_Comm_free(&inter);
    MPI_Intercomm_merge(twin, low, &merged);
    say_comm("merged", merged);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&twin);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    groups();
    communicators();
    contexts();
    between();
    return end();
}
