/* What MPICH's own tests found: attributes and names of predefined types,
 * duplicates that fail, keys that are freed twice, weights that are empty,
 * types of long double, views that go back, and how ranks are laid out. Open
 * MPI 4.1 differs in some of it. */
#include "conform.h"

#include <unistd.h>

static int deleted;
static char path[256]; /* of a file, the same on all ranks */

static int copy_no_type(MPI_Datatype type, int key, void *extra, void *in,
                        void *out, int *flag)
{
    (void)type, (void)key, (void)extra, (void)in, (void)out;
    *flag = 0;
    return MPI_ERR_OTHER;
}

static int copy_no_comm(MPI_Comm comm, int key, void *extra, void *in,
                        void *out, int *flag)
{
    (void)comm, (void)key, (void)extra, (void)in, (void)out;
    *flag = 0;
    return MPI_ERR_OTHER;
}

static int delete_key(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)value, (void)extra;
    deleted++;
    MPI_Comm_free_keyval(&key);
    return MPI_SUCCESS;
}

static void predefined(void)
{
    int key, flag, length, *value;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Datatype copy;

    MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &key,
                           NULL);
    /* Of this rank alone. */
    if (rank % 2 == 0) {
        MPI_Type_set_attr(MPI_INT, key, &rank);
        MPI_Type_set_name(MPI_INT, "even");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Type_get_attr(MPI_INT, key, &value, &flag);
    MPI_Type_get_name(MPI_INT, name, &length);
    say("%s has one: %d, %d\n", name, flag, flag ? *value : -1);
    MPI_Type_dup(MPI_INT, &copy);
    MPI_Type_get_attr(copy, key, &value, &flag);
    say("its duplicate: %d\n", flag);
    MPI_Type_free(&copy);
    if (rank % 2 == 0) {
        MPI_Type_delete_attr(MPI_INT, key);
    }
    MPI_Type_get_attr(MPI_INT, key, &value, &flag);
    say("and now: %d\n", flag);
    MPI_Type_free_keyval(&key);
}

static void failing(void)
{
    int types, comms;
    MPI_Datatype pair, copy = MPI_INT;
    MPI_Comm comm, other = MPI_COMM_SELF;
    MPI_Request request;

    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Type_create_keyval(copy_no_type, MPI_TYPE_NULL_DELETE_FN, &types, NULL);
    MPI_Comm_create_keyval(copy_no_comm, MPI_COMM_NULL_DELETE_FN, &comms, NULL);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_set_attr(pair, types, NULL);
    MPI_Comm_set_attr(comm, comms, NULL);
    say("type: fails %d", MPI_Type_dup(pair, &copy) != MPI_SUCCESS);
    say(", null %d\n", copy == MPI_DATATYPE_NULL);
    say("communicator: fails %d", MPI_Comm_dup(comm, &other) != MPI_SUCCESS);
    say(", null %d\n", other == MPI_COMM_NULL);
    other = MPI_COMM_SELF;
    if (MPI_Comm_idup(comm, &other, &request) == MPI_SUCCESS) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    say("meanwhile: null %d\n", other == MPI_COMM_NULL);
    MPI_Comm_free_keyval(&comms);
    MPI_Type_free_keyval(&types);
    MPI_Comm_free(&comm);
    MPI_Type_free(&pair);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* What cannot be made is MPI_COMM_NULL. */
static void not_made(void)
{
    int dims[2] = {size, size}, no[2] = {0, 0}, outside = size;
    MPI_Comm made[5] = {MPI_COMM_SELF, MPI_COMM_SELF, MPI_COMM_SELF,
                        MPI_COMM_SELF, MPI_COMM_SELF};
    int nulls = 0, errors = 0;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    errors += MPI_Cart_create(MPI_COMM_WORLD, 2, dims, no, 0, &made[0]) != 0;
    errors += MPI_Graph_create(MPI_COMM_WORLD, size + 1, dims, dims, 0,
                               &made[1]) != 0;
    errors += MPI_Dist_graph_create_adjacent(
                  MPI_COMM_WORLD, 1, &outside, MPI_UNWEIGHTED, 0, &outside,
                  MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made[2]) != 0;
    errors += MPI_Comm_split(MPI_COMM_WORLD, -5, 0, &made[3]) != 0;
    errors += MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_NULL, &made[4]) != 0;
    for (int i = 0; i < 5; i++) {
        nulls += made[i] == MPI_COMM_NULL;
    }
    say("not made: %d errors, %d null\n", errors, nulls);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void freed_twice(void)
{
    int key, again;
    MPI_Comm one, other;

    MPI_Comm_dup(MPI_COMM_SELF, &one);
    MPI_Comm_dup(MPI_COMM_SELF, &other);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_key, &key, NULL);
    again = key;
    MPI_Comm_set_attr(one, key, NULL);
    MPI_Comm_set_attr(other, key, NULL);
    MPI_Comm_free(&one);
    MPI_Comm_free_keyval(&key);
    say("freed: %d %d", key == MPI_KEYVAL_INVALID, deleted);
    MPI_Comm_free_keyval(&again);
    MPI_Comm_free(&other);
    say(" %d %d\n", again == MPI_KEYVAL_INVALID, deleted);
}

/* A communicator that knows whether it is weighted. */
static void graph(const char *what, const int *weights)
{
    int one = 1, to = (rank + 1) % size, from, weight = -1, in, out, weighted;
    MPI_Comm comm;

    if (rank == 0) {
        MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &one, &to, weights,
                              MPI_INFO_NULL, 0, &comm);
    } else {
        MPI_Dist_graph_create(MPI_COMM_WORLD, 0, NULL, NULL, NULL,
                              weights == MPI_UNWEIGHTED ? MPI_UNWEIGHTED
                              : rank == 1               ? NULL
                                                        : MPI_WEIGHTS_EMPTY,
                              MPI_INFO_NULL, 0, &comm);
    }
    MPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
    if (weights != MPI_UNWEIGHTED) {
        MPI_Dist_graph_neighbors(comm, in, &from, &weight, out, &to, &weight);
    }
    say("%s: %d in, %d out, weighted %d, %d\n", what, in, out, weighted != 0,
        weight);
    MPI_Comm_free(&comm);
}

static void graphs(void)
{
    const int seven = 7;
    int in, out, weighted;
    MPI_Comm comm;

    graph("with weights", &seven);
    graph("without", MPI_UNWEIGHTED);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, NULL, MPI_WEIGHTS_EMPTY,
                                   0, NULL, MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, 0,
                                   &comm);
    MPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
    say("without edges: weighted %d\n", weighted != 0);
    MPI_Comm_free(&comm);
}

static void sizes(void)
{
    MPI_Datatype type;

    MPI_Type_match_size(MPI_TYPECLASS_REAL, sizeof(long double), &type);
    say("long double: %d", type == MPI_LONG_DOUBLE);
    MPI_Type_match_size(MPI_TYPECLASS_COMPLEX, 2 * sizeof(long double), &type);
    say(" %d\n", type == MPI_C_LONG_DOUBLE_COMPLEX);
}

static void view(const char *what, int first, int length, int second)
{
    int lengths[2] = {length, 1}, places[2] = {first, second};
    MPI_Datatype type;
    MPI_File file;

    MPI_File_open(MPI_COMM_WORLD, path,
                  MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE,
                  MPI_INFO_NULL, &file);
    MPI_Type_indexed(2, lengths, places, MPI_INT, &type);
    MPI_Type_commit(&type);
    say("%s: fits %d\n", what,
        MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL) ==
            MPI_SUCCESS);
    MPI_File_close(&file);
    MPI_Type_free(&type);
}

static void choose_path(void)
{
    const char *folder = getenv("TMPDIR");
    int id = (int)getpid();

    MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/poise-corners-%d",
             folder != NULL ? folder : "/tmp", id);
}

static void layouts(void)
{
    const int counts[] = {12, 5040, 6240, 98784, 2147483647};

    for (int i = 0; i < 5; i++) {
        int dims[5] = {0};
        MPI_Dims_create(counts[i], 3, dims);
        say_ints("3 factors", dims, 3);
        memset(dims, 0, sizeof dims);
        MPI_Dims_create(counts[i], 5, dims);
        say_ints("5 factors", dims, 5);
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    predefined();
    failing();
    not_made();
    freed_twice();
    graphs();
    sizes();
    choose_path();
    view("with a gap", 0, 2, 4);
    view("from below", -1, 1, 2);
    view("backwards", 3, 1, 0);
    view("twice", 0, 3, 1);
    if (rank == 0) {
        layouts();
    }
    return end();
}
