/* Requests that are made once and started often. */
#include "conform.h"

enum { COUNT = 20000, ROUNDS = 5 };

static int out[COUNT], in[COUNT];

/* Of each kind, with its neighbours, started one by one or together. */
static void rounds(void)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size, bytes;
    MPI_Request requests[5];
    MPI_Status statuses[5];
    int room = (int)sizeof(int) + MPI_BSEND_OVERHEAD;
    void *buffer = malloc((size_t)room);
    int small[4] = {0}, values[2] = {0};
    MPI_Buffer_attach(buffer, room);
    MPI_Recv_init(in, COUNT, MPI_INT, last, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(small, 4, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD,
                  &requests[1]);
    MPI_Send_init(out, COUNT, MPI_INT, next, 1, MPI_COMM_WORLD, &requests[2]);
    MPI_Ssend_init(values, 2, MPI_INT, next, 2, MPI_COMM_WORLD, &requests[3]);
    MPI_Recv_init(NULL, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                  &requests[4]);
    for (int i = 0; i < ROUNDS; i++) {
        int flag;
        for (int j = 0; j < COUNT; j++) {
            out[j] = rank * 1000 + i + j;
        }
        values[0] = rank + i;
        values[1] = i;
        MPI_Test(&requests[0], &flag, &statuses[0]);
        say("inactive %d\n", flag);
        if (i % 2) {
            MPI_Startall(5, requests);
        } else {
            for (int j = 0; j < 5; j++) {
                MPI_Start(&requests[j]);
            }
        }
        MPI_Waitall(5, requests, statuses);
        say("round %d: %d %d from %d %d, kept %d\n", i, in[0], in[COUNT - 1],
            statuses[0].MPI_SOURCE, statuses[1].MPI_SOURCE,
            requests[0] != MPI_REQUEST_NULL);
        say_ints("small", small, 3);
    }
    for (int j = 0; j < 5; j++) {
        MPI_Request_free(&requests[j]);
        say("freed %d\n", requests[j] == MPI_REQUEST_NULL);
    }
    MPI_Request copied;
    MPI_Bsend_init(values, 1, MPI_INT, next, 3, MPI_COMM_WORLD, &copied);
    for (int i = 0; i < ROUNDS; i++) {
        values[0] = rank + 50 + i;
        MPI_Start(&copied);
        MPI_Wait(&copied, MPI_STATUS_IGNORE);
        values[0] = -1;
        MPI_Recv(small, 4, MPI_INT, last, 3, MPI_COMM_WORLD, &statuses[0]);
        say_ints("buffered", small, 1);
        MPI_Buffer_detach(&buffer, &bytes);
        MPI_Buffer_attach(buffer, bytes);
    }
    MPI_Request_free(&copied);
    MPI_Buffer_detach(&buffer, &bytes);
    free(buffer);
}

/* A ready send to who has started his receive. */
static void ready(void)
{
    MPI_Request request;
    int value = rank + 1;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank % 2 == 0 && rank + 1 < size) {
        MPI_Rsend_init(&value, 1, MPI_INT, rank + 1, 0, MPI_COMM_WORLD,
                       &request);
    } else if (rank % 2 == 1) {
        MPI_Recv_init(&value, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD,
                      &request);
    } else {
        MPI_Recv_init(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                      &request);
    }
    if (rank % 2 == 1) {
        MPI_Start(&request);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank % 2 == 0) {
        MPI_Start(&request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    say("ready %d\n", value);
}

/* Cancelled and started anew. */
static void cancelled(void)
{
    MPI_Request request;
    MPI_Status status;
    int value = -1, flag;
    MPI_Recv_init(&value, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD,
                  &request);
    MPI_Start(&request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    say("cancelled %d\n", flag);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Start(&request);
    MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    say("cancelled %d, value %d\n", flag, value);
    MPI_Request_free(&request);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    rounds();
    ready();
    cancelled();
    return end();
}
