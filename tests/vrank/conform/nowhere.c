/* Answers that would go to NULL, and places of results that are none: errors,
 * not crashes. (As MPICH 4.0 has it; Open MPI 4.1 crashes at the last ones.) */
#include "conform.h"

static void *nowhere; /* no constant, of which compilers would warn */

static void try(const char *what, int code)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    say("%s: %s\n", what,
        class == MPI_SUCCESS   ? "good"
        : class == MPI_ERR_ARG ? "bad argument"
                               : "another error");
}

int main(int argc, char **argv)
{
    MPI_Group group;
    int from = 1, to = 2;

    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    try("rank", MPI_Comm_rank(MPI_COMM_WORLD, nowhere));
    try("size", MPI_Comm_size(MPI_COMM_WORLD, nowhere));
    try("group", MPI_Comm_group(MPI_COMM_WORLD, nowhere));
    try("inter", MPI_Comm_test_inter(MPI_COMM_WORLD, nowhere));
    try("compare", MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_SELF, nowhere));
    try("group's rank", MPI_Group_rank(group, nowhere));
    try("group's size", MPI_Group_size(group, nowhere));
    try("type's size", MPI_Type_size(MPI_INT, nowhere));
    try("type's long size", MPI_Type_size_x(MPI_INT, nowhere));
    say("from the place of the result: %d, to it: %d\n",
        MPI_Reduce_local(MPI_IN_PLACE, &to, 1, MPI_INT, MPI_SUM) != MPI_SUCCESS,
        MPI_Reduce_local(&from, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM) !=
            MPI_SUCCESS);
    /* All goes on. */
    MPI_Allreduce(&from, &to, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    say("sum %d\n", to);
    MPI_Group_free(&group);
    return end();
}
