/* Sends that are taken back: of every mode and size, to ranks of the same
 * process and of others. What nobody has received is cancelled, and never
 * received; what was received is not. Open MPI 4.1 cancels no sends. */
#include "conform.h"

enum { LARGE = 1 << 18, ROOM = LARGE + MPI_BSEND_OVERHEAD };

static char data[LARGE], got[LARGE], room[ROOM];

static int cancelled(MPI_Request *request)
{
    MPI_Status status;
    int flag;

    MPI_Cancel(request);
    MPI_Wait(request, &status);
    MPI_Test_cancelled(&status, &flag);
    return flag;
}

/* One message, in a way that is a letter. */
static void begin_send(int way, int bytes, int to, MPI_Request *request)
{
    if (way == 's') {
        MPI_Issend(data, bytes, MPI_CHAR, to, 1, MPI_COMM_WORLD, request);
    } else if (way == 'b') {
        MPI_Ibsend(data, bytes, MPI_CHAR, to, 1, MPI_COMM_WORLD, request);
    } else if (way == 'p') {
        MPI_Send_init(data, bytes, MPI_CHAR, to, 1, MPI_COMM_WORLD, request);
        MPI_Start(request);
    } else {
        MPI_Isend(data, bytes, MPI_CHAR, to, 1, MPI_COMM_WORLD, request);
    }
}

static int nothing_there(void)
{
    int flag;

    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag,
               MPI_STATUS_IGNORE);
    return !flag;
}

/* Rank 0 takes back what rank `to` never asks for. */
static void unwanted(int way, int bytes, int to)
{
    MPI_Request request;
    int flag = 0;

    if (rank == 0) {
        begin_send(way, bytes, to, &request);
        flag = cancelled(&request);
        if (way == 'p') {
            MPI_Start(&request);
            flag += cancelled(&request);
            MPI_Request_free(&request);
        }
        say("%c, %d bytes, to %d: %d cancelled\n", way, bytes, to, flag);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == to) {
        say("nothing there: %d\n", nothing_there());
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The second of three is taken back. */
static void middle(int bytes, int to)
{
    MPI_Request requests[3];

    if (rank == 0) {
        for (int i = 0; i < 3; i++) {
            MPI_Isend(&data[i], bytes, MPI_CHAR, to, 1, MPI_COMM_WORLD,
                      &requests[i]);
        }
        say("the second of three: %d cancelled\n", cancelled(&requests[1]));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2 && rank == to; i++) {
        MPI_Recv(got, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        say("came: %d\n", got[0]);
    }
    if (rank == 0) {
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Too late. */
static void received(int bytes, int to)
{
    MPI_Request request;

    if (rank == 0) {
        MPI_Isend(data, bytes, MPI_CHAR, to, 1, MPI_COMM_WORLD, &request);
        MPI_Recv(got, 0, MPI_CHAR, to, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        say("received: %d cancelled\n", cancelled(&request));
    } else if (rank == to) {
        MPI_Recv(got, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(got, 0, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    const char ways[] = "isbp";
    void *buffer;
    int bytes;

    begin(&argc, &argv);
    for (int i = 0; i < LARGE; i++) {
        data[i] = (char)i;
    }
    MPI_Buffer_attach(room, ROOM);
    for (int to = 0; to < size; to++) {
        for (int i = 0; ways[i] != '\0'; i++) {
            unwanted(ways[i], 10, to);
            unwanted(ways[i], LARGE, to);
        }
        if (to > 0) {
            middle(1, to);
            middle(LARGE - 2, to);
            received(10, to);
            received(LARGE, to);
        }
    }
    MPI_Buffer_detach(&buffer, &bytes);
    return end();
}
