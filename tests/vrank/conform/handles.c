/* Handles as Fortran sees them, there and back. */
#include "conform.h"

static void objects(void)
{
    MPI_Comm comm;
    MPI_Group group, same_group;
    MPI_Datatype pair;
    MPI_Info info;
    MPI_Errhandler handler;
    int result, bytes, flag;
    char value[16];

    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
    MPI_Fint number = MPI_Comm_c2f(comm);
    say("communicator %d, world %d, nothing %d\n", MPI_Comm_f2c(number) == comm,
        MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_WORLD)) == MPI_COMM_WORLD,
        MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_NULL)) == MPI_COMM_NULL);
    MPI_Comm_rank(MPI_Comm_f2c(number), &result);
    say("used: rank %d\n", result);

    MPI_Comm_group(comm, &group);
    same_group = MPI_Group_f2c(MPI_Group_c2f(group));
    MPI_Group_compare(group, same_group, &result);
    say("group %d\n", result == MPI_IDENT);
    MPI_Group_free(&group);
    MPI_Comm_free(&comm);

    MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
    MPI_Type_commit(&pair);
    MPI_Type_size(MPI_Type_f2c(MPI_Type_c2f(pair)), &bytes);
    say("type %d of %d bytes, int %d\n",
        MPI_Type_f2c(MPI_Type_c2f(pair)) == pair, bytes,
        MPI_Type_f2c(MPI_Type_c2f(MPI_INT)) == MPI_INT);
    MPI_Type_free(&pair);

    MPI_Info_create(&info);
    MPI_Info_set(info, "colour", "red");
    MPI_Info_get(MPI_Info_f2c(MPI_Info_c2f(info)), "colour", 15, value, &flag);
    say("hints %d %s\n", flag, flag ? value : "");
    MPI_Info_free(&info);

    handler = MPI_Errhandler_f2c(MPI_Errhandler_c2f(MPI_ERRORS_RETURN));
    say("handler %d\n", handler == MPI_ERRORS_RETURN);
    say("operations %d %d\n", MPI_Op_f2c(MPI_Op_c2f(MPI_SUM)) == MPI_SUM,
        MPI_Op_f2c(MPI_Op_c2f(MPI_OP_NULL)) == MPI_OP_NULL);
}

static void multiply(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const int *a = in;
    int *b = inout;
    (void)type;
    for (int i = 0; i < *count; i++) {
        b[i] = a[i] * b[i];
    }
}

/* What is under way is still found by its number. */
static void under_way(void)
{
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    MPI_Op op;
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    int value = rank + 2, got = -1;

    MPI_Irecv(&got, 1, MPI_INT, last, 1, MPI_COMM_WORLD, &request);
    MPI_Fint number = MPI_Request_c2f(request);
    MPI_Send(&value, 1, MPI_INT, next, 1, MPI_COMM_WORLD);
    request = MPI_Request_f2c(number);
    MPI_Wait(&request, &status);
    say("request: %d from %d, gone %d\n", got, status.MPI_SOURCE,
        request == MPI_REQUEST_NULL);
    say("no request %d\n",
        MPI_Request_f2c(MPI_Request_c2f(MPI_REQUEST_NULL)) == MPI_REQUEST_NULL);

    MPI_Isend(&value, 1, MPI_INT, next, 2, MPI_COMM_WORLD, &request);
    MPI_Mprobe(last, 2, MPI_COMM_WORLD, &message, &status);
    message = MPI_Message_f2c(MPI_Message_c2f(message));
    got = -1;
    MPI_Mrecv(&got, 1, MPI_INT, &message, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    say("message: %d, gone %d\n", got, message == MPI_MESSAGE_NULL);

    MPI_Op_create(multiply, 1, &op);
    MPI_Allreduce(&value, &got, 1, MPI_INT, MPI_Op_f2c(MPI_Op_c2f(op)),
                  MPI_COMM_WORLD);
    say("operation: %d\n", got);
    MPI_Op_free(&op);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    objects();
    under_way();
    return end();
}
