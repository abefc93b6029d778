/* Messages from rank to rank: ways to send, wildcards, probes, completion. */
#include "conform.h"

enum { LARGE = 60000 };

static int *data, *more;

static void fill(int *to, int count, int base)
{
    for (int i = 0; i < count; i++) {
        to[i] = base * 7919 + i;
    }
}

static int sum_of(const int *from, int count)
{
    unsigned sum = 0;
    for (int i = 0; i < count; i++) {
        sum = sum * 31 + (unsigned)from[i];
    }
    return (int)(sum & 0xffffff);
}

static void say_status(const char *what, const MPI_Status *status)
{
    int count = -1, elements = -1;
    MPI_Get_count(status, MPI_INT, &count);
    MPI_Get_elements(status, MPI_INT, &elements);
    say("%s: from %d, tag %d, %d %s, %d elements\n", what, status->MPI_SOURCE,
        status->MPI_TAG, count == MPI_UNDEFINED ? -1 : count,
        count == MPI_UNDEFINED ? "undefined" : "ints", elements);
}

/* Each way to send, of each size, to the next rank. */
static void ways(void)
{
    static const int counts[] = {0, 1, 500, 5000, LARGE};
    int next = (rank + 1) % size, last = (rank + size - 1) % size, bytes;
    void *buffer = malloc(LARGE * sizeof(int) + MPI_BSEND_OVERHEAD);
    MPI_Buffer_attach(buffer, (int)(LARGE * sizeof(int) + MPI_BSEND_OVERHEAD));
    for (int c = 0; c < 5; c++) {
        for (int way = 0; way < 7; way++) {
            MPI_Request in, out = MPI_REQUEST_NULL;
            MPI_Status status;
            fill(data, counts[c], rank + way);
            memset(more, 0, LARGE * sizeof(int));
            MPI_Irecv(more, LARGE, MPI_INT, last, way, MPI_COMM_WORLD, &in);
            /* For the ready ones: everybody has posted. */
            MPI_Barrier(MPI_COMM_WORLD);
            if (way == 0) {
                MPI_Isend(data, counts[c], MPI_INT, next, way, MPI_COMM_WORLD,
                          &out);
            } else if (way == 1) {
                MPI_Issend(data, counts[c], MPI_INT, next, way, MPI_COMM_WORLD,
                           &out);
            } else if (way == 2) {
                MPI_Ibsend(data, counts[c], MPI_INT, next, way, MPI_COMM_WORLD,
                           &out);
            } else if (way == 3) {
                MPI_Irsend(data, counts[c], MPI_INT, next, way, MPI_COMM_WORLD,
                           &out);
            } else if (way == 4) {
                MPI_Ssend(data, counts[c], MPI_INT, next, way, MPI_COMM_WORLD);
            } else if (way == 5) {
                MPI_Bsend(data, counts[c], MPI_INT, next, way, MPI_COMM_WORLD);
            } else {
                MPI_Rsend(data, counts[c], MPI_INT, next, way, MPI_COMM_WORLD);
            }
            MPI_Wait(&out, MPI_STATUS_IGNORE);
            MPI_Wait(&in, &status);
            say_status("way", &status);
            say("data %d\n", sum_of(more, counts[c]));
            /* Its space in the buffer is free again once this is done. */
            MPI_Buffer_detach(&buffer, &bytes);
            MPI_Buffer_attach(buffer, bytes);
        }
    }
    MPI_Buffer_detach(&buffer, &bytes);
    say("detached %d\n",
        bytes == (int)(LARGE * sizeof(int)) + MPI_BSEND_OVERHEAD);
    free(buffer);
}

/* What a wildcard takes of one sender keeps its order, whatever the sizes. */
static void order(void)
{
    if (rank > 0) {
        for (int i = 0; i < 12; i++) {
            int count = i % 3 == 2 ? LARGE : i % 3 * 900 + 1;
            fill(data, count, rank * 100 + i);
            MPI_Send(data, count, MPI_INT, 0, i % 5, MPI_COMM_WORLD);
        }
        return;
    }
    int *seen = calloc((size_t)size, sizeof(int)), right = 1;
    for (int i = 0; i < 12 * (size - 1); i++) {
        MPI_Status status;
        int count;
        MPI_Recv(data, LARGE, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG,
                 MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        int number = seen[status.MPI_SOURCE]++;
        fill(more, count, status.MPI_SOURCE * 100 + number);
        right &= status.MPI_TAG == number % 5 &&
                 memcmp(data, more, (size_t)count * sizeof(int)) == 0;
    }
    say("in order %d\n", right);
    free(seen);
}

/* Tags choose among messages that wait. */
static void choice(void)
{
    MPI_Status status;
    int values[4] = {10, 11, 12, 13};
    if (rank == 0) {
        for (int i = 0; i < 4; i++) {
            MPI_Send(&values[i], 1, MPI_INT, 1, i, MPI_COMM_WORLD);
        }
        MPI_Send(values, 4, MPI_INT, 1, 9, MPI_COMM_WORLD);
    } else if (rank == 1) {
        int got[8] = {0}, flag;
        MPI_Message message;
        MPI_Recv(got, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &status);
        say_ints("tag 2", got, 1);
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        say_status("probed", &status);
        MPI_Probe(0, 9, MPI_COMM_WORLD, &status);
        say_status("probed", &status);
        MPI_Mprobe(0, 3, MPI_COMM_WORLD, &message, &status);
        say_status("matched", &status);
        MPI_Mrecv(got, 1, MPI_INT, &message, &status);
        say("gone %d\n", message == MPI_MESSAGE_NULL);
        say_ints("matched", got, 1);
        MPI_Iprobe(0, 3, MPI_COMM_WORLD, &flag, &status);
        say("again %d\n", flag);
        MPI_Improbe(0, 3, MPI_COMM_WORLD, &flag, &message, &status);
        say("and again %d\n", flag);
        MPI_Mprobe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
        MPI_Request request;
        MPI_Imrecv(got, 1, MPI_INT, &message, &request);
        MPI_Wait(&request, &status);
        say_status("first left", &status);
        MPI_Recv(got, 8, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &status);
        say_ints("all", got, 5);
        MPI_Recv(got, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        say_status("last", &status);
    }
}

static void nobody(void)
{
    MPI_Status status;
    MPI_Request request;
    int flag, value = 5;
    MPI_Message message;
    MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status);
    say("nobody: %d %d\n", status.MPI_SOURCE == MPI_PROC_NULL,
        status.MPI_TAG == MPI_ANY_TAG);
    MPI_Irecv(&value, 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &request);
    MPI_Test(&request, &flag, &status);
    say("done %d, null %d\n", flag, request == MPI_REQUEST_NULL);
    MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message, &status);
    say("no process %d\n", message == MPI_MESSAGE_NO_PROC);
    MPI_Mrecv(&value, 1, MPI_INT, &message, &status);
    say("value %d\n", value);
    request = MPI_REQUEST_NULL;
    MPI_Wait(&request, &status);
    say("empty: %d %d\n", status.MPI_SOURCE == MPI_ANY_SOURCE,
        status.MPI_TAG == MPI_ANY_TAG);
    MPI_Test_cancelled(&status, &flag);
    say("cancelled %d\n", flag);
}

/* All that completes more than one request. */
static void completion(void)
{
    enum { MANY = 6 };
    MPI_Request in[MANY], out[MANY];
    MPI_Status statuses[MANY], status;
    int values[MANY], got[MANY], places[MANY], count, flag, index;
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < MANY; i++) {
            values[i] = rank * 10 + i + round;
            MPI_Irecv(&got[i], 1, MPI_INT, last, i, MPI_COMM_WORLD, &in[i]);
        }
        for (int i = 0; i < MANY; i++) {
            MPI_Isend(&values[i], 1, MPI_INT, next, i, MPI_COMM_WORLD, &out[i]);
        }
        int left = MANY;
        while (round == 0 && left > 0) {
            MPI_Waitany(MANY, in, &index, &status);
            left--;
            say("any: %d\n",
                status.MPI_TAG == index && in[index] == MPI_REQUEST_NULL);
        }
        while (round == 1 && left > 0) {
            MPI_Waitsome(MANY, in, &count, places, statuses);
            for (int i = 0; i < count; i++) {
                say("some: %d\n", statuses[i].MPI_TAG == places[i]);
            }
            left -= count;
        }
        while (round == 2 && left > 0) {
            MPI_Testsome(MANY, in, &count, places, statuses);
            for (int i = 0; i < count; i++) {
                say("tested: %d\n", statuses[i].MPI_TAG == places[i]);
            }
            left -= count;
        }
        for (flag = 0; round == 3 && !flag;) {
            MPI_Testall(MANY, in, &flag, statuses);
        }
        if (round == 3) {
            say_status("all", &statuses[MANY - 1]);
        }
        say_ints("got", got, MANY);
        MPI_Waitall(MANY, out, MPI_STATUSES_IGNORE);
    }
    MPI_Waitany(MANY, in, &index, &status);
    say("none: %d\n", index == MPI_UNDEFINED);
    MPI_Testany(MANY, in, &index, &flag, &status);
    say("none: %d %d\n", index == MPI_UNDEFINED, flag);
    MPI_Waitsome(MANY, in, &count, places, statuses);
    say("none: %d\n", count == MPI_UNDEFINED);
}

static void exchanges(void)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    MPI_Status status;
    int mine[3] = {rank, 1, 2}, theirs[3] = {0};
    MPI_Sendrecv(mine, 3, MPI_INT, next, 4, theirs, 3, MPI_INT, last, 4,
                 MPI_COMM_WORLD, &status);
    say_status("exchanged", &status);
    say_ints("exchanged", theirs, 3);
    fill(data, LARGE, rank);
    MPI_Sendrecv_replace(data, LARGE, MPI_INT, next, 4, last, 4, MPI_COMM_WORLD,
                         &status);
    say_status("replaced", &status);
    say("replaced %d\n", sum_of(data, LARGE));
    /* With oneself. */
    MPI_Sendrecv(mine, 2, MPI_INT, rank, 1, theirs, 3, MPI_INT, rank, 1,
                 MPI_COMM_WORLD, &status);
    say_status("with myself", &status);
}

static void cancelled(void)
{
    MPI_Request request;
    MPI_Status status;
    int flag, value = -1;
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &request);
    MPI_Request_get_status(request, &flag, &status);
    say("not yet %d\n", flag);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    say("cancelled %d, value %d\n", flag, value);
    MPI_Barrier(MPI_COMM_WORLD);
    /* The message goes to who asks next. */
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 77, &value, 1, MPI_INT,
                 MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &status);
    say("value %d\n", value);
}

/* Too long a message: an error, after which all goes on. Short ones only:
 * once of some hundred times Open MPI ended the program at a long one. */
static void truncated(void)
{
    static const int counts[] = {3, 300};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int c = 0; c < 2; c++) {
        int next = (rank + 1) % size, last = (rank + size - 1) % size, class;
        MPI_Request request;
        MPI_Status status;
        MPI_Isend(data, counts[c], MPI_INT, next, 8, MPI_COMM_WORLD, &request);
        int code = MPI_Recv(more, 2, MPI_INT, last, 8, MPI_COMM_WORLD, &status);
        MPI_Error_class(code, &class);
        say("truncated %d\n", class == MPI_ERR_TRUNCATE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    data = calloc(LARGE, sizeof(int));
    more = calloc(LARGE, sizeof(int));
    ways();
    MPI_Barrier(MPI_COMM_WORLD);
    order();
    MPI_Barrier(MPI_COMM_WORLD);
    choice();
    MPI_Barrier(MPI_COMM_WORLD);
    nobody();
    completion();
    exchanges();
    cancelled();
    truncated();
    free(data);
    free(more);
    return end();
}
