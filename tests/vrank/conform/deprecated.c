/* Names that MPI-2 replaced and old programs still use. */
#include "conform.h"

static int deletions;

static int copy(MPI_Comm comm, int keyval, void *extra, void *value, void *out,
                int *flag)
{
    (void)comm;
    (void)keyval;
    *(void **)out = (char *)value + *(int *)extra;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete (MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    deletions += (int)(size_t)value;
    return MPI_SUCCESS;
}

static void say_attribute(const char *what, MPI_Comm comm, int keyval)
{
    void *value = NULL;
    int flag = -1;
    MPI_Attr_get(comm, keyval, &value, &flag);
    say("%s: %d %d\n", what, flag, flag ? (int)(size_t)value : -1);
}

int main(int argc, char **argv)
{
    MPI_Comm comm, again;
    int key, kept, extra = 3;

    begin(&argc, &argv);
    MPI_Keyval_create(copy, delete, &key, &extra);
    MPI_Keyval_create(MPI_DUP_FN, MPI_NULL_DELETE_FN, &kept, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    say_attribute("not set", comm, key);
    MPI_Attr_put(comm, key, (void *)10);
    MPI_Attr_put(comm, kept, (void *)20);
    MPI_Comm_dup(comm, &again);
    say_attribute("changed", again, key);
    say_attribute("kept", again, kept);
    MPI_Attr_delete(comm, key);
    say_attribute("deleted", comm, key);
    say("deletions %d\n", deletions);
    MPI_Comm_free(&again);
    MPI_Comm_free(&comm);
    say("deletions %d\n", deletions);
    MPI_Keyval_free(&key);
    MPI_Keyval_free(&kept);
    say("freed %d\n", key == MPI_KEYVAL_INVALID);
    return end();
}
