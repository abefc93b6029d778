/*
 * Messages between virtual ranks of one process: every way to send and to
 * receive, completion, order, wildcards, errors, deadlock.
 */
#include "run.h"

#include <errno.h>

enum { LARGE = 100000 };

/* What rank `from` sends as message `number` of `count` ints. */
static void fill(int *data, int count, int from, int number)
{
    for (int i = 0; i < count; i++) {
        data[i] = from * 1000003 + number * 1009 + i;
    }
}

static bool is_filled(const int *data, int count, int from, int number)
{
    for (int i = 0; i < count; i++) {
        if (data[i] != from * 1000003 + number * 1009 + i) {
            return false;
        }
    }
    return true;
}

/* ---- blocking ----------------------------------------------------------- */

typedef int send_function(const void *, int, MPI_Datatype, int, int, MPI_Comm);

static int ring(int rank, int size)
{
    static send_function *const sends[] = {MPI_Send, MPI_Ssend};
    static const int counts[] = {0, 1, 100, LARGE};
    int *data = malloc(LARGE * sizeof(int));
    for (size_t way = 0; way < 2; way++) {
        for (size_t c = 0; c < 4; c++) {
            MPI_Status status;
            int received = -1, right = (rank + 1) % size;
            int left = (rank + size - 1) % size;
            fill(data, counts[c], rank, (int)c);
            /* The odd ones receive first. */
            if (rank % 2 == 0) {
                CHECK(sends[way](data, counts[c], MPI_INT, right, 7,
                                 MPI_COMM_WORLD) == MPI_SUCCESS);
            }
            int *in = malloc(LARGE * sizeof(int));
            CHECK(MPI_Recv(in, LARGE, MPI_INT, left, 7, MPI_COMM_WORLD,
                           &status) == MPI_SUCCESS);
            if (rank % 2 == 1) {
                CHECK(sends[way](data, counts[c], MPI_INT, right, 7,
                                 MPI_COMM_WORLD) == MPI_SUCCESS);
            }
            CHECK(status.MPI_SOURCE == left && status.MPI_TAG == 7);
            received = (int)(status.poise_bytes / (MPI_Count)sizeof(int));
            CHECK(received == counts[c]);
            CHECK(is_filled(in, counts[c], left, (int)c));
            free(in);
        }
    }
    free(data);
    return 0;
}

static void test_ring(void **state)
{
    (void)state;
    run_well(2, ring);
    run_well(8, ring);
}

/* Small messages do not block their senders, as programs rely on. */
static int early(int rank, int size)
{
    (void)size;
    int data[2000], in[2000];
    for (int i = 0; i < 50; i++) {
        fill(data, 1 + 40 * i % 2000, rank, i);
        CHECK(MPI_Send(data, 1 + 40 * i % 2000, MPI_INT, 1 - rank, i,
                       MPI_COMM_WORLD) == MPI_SUCCESS);
    }
    /* In another order than they were sent. */
    for (int i = 49; i >= 0; i--) {
        CHECK(MPI_Recv(in, 2000, MPI_INT, 1 - rank, i, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE) == MPI_SUCCESS);
        CHECK(is_filled(in, 1 + 40 * i % 2000, 1 - rank, i));
    }
    return 0;
}

static void test_early(void **state)
{
    (void)state;
    run_well(2, early);
}

static int with_self(int rank, int size)
{
    (void)size;
    int out[10], in[10];
    MPI_Request request;
    fill(out, 10, rank, 1);
    CHECK(MPI_Send(out, 10, MPI_INT, rank, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPI_Recv(in, 10, MPI_INT, rank, 0, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(is_filled(in, 10, rank, 1));
    fill(out, 10, rank, 2);
    CHECK(MPI_Irecv(in, 10, MPI_INT, 0, 3, MPI_COMM_SELF, &request) ==
          MPI_SUCCESS);
    CHECK(MPI_Ssend(out, 10, MPI_INT, 0, 3, MPI_COMM_SELF) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(request == MPI_REQUEST_NULL);
    CHECK(is_filled(in, 10, rank, 2));
    return 0;
}

static void test_self(void **state)
{
    (void)state;
    run_well(3, with_self);
}

static int sendrecv(int rank, int size)
{
    int *data = malloc(LARGE * sizeof(int));
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int count = 1; count <= LARGE; count *= 10) {
        int *in = calloc(LARGE, sizeof(int));
        MPI_Status status;
        fill(data, count, rank, 5);
        CHECK(MPI_Sendrecv(data, count, MPI_INT, right, 1, in, LARGE, MPI_INT,
                           left, 1, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
        CHECK(is_filled(in, count, left, 5) && status.MPI_SOURCE == left);
        free(in);
        CHECK(MPI_Sendrecv_replace(data, count, MPI_INT, right, 2, left,
                                   MPI_ANY_TAG, MPI_COMM_WORLD,
                                   &status) == MPI_SUCCESS);
        CHECK(is_filled(data, count, left, 5) && status.MPI_TAG == 2);
    }
    free(data);
    return 0;
}

static void test_sendrecv(void **state)
{
    (void)state;
    run_well(1, sendrecv);
    run_well(5, sendrecv);
}

static int to_nobody(int rank, int size)
{
    (void)rank;
    (void)size;
    int data = 5, flag = 0;
    MPI_Status status;
    MPI_Request request;
    CHECK(MPI_Send(&data, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD) ==
          MPI_SUCCESS);
    CHECK(MPI_Recv(&data, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                   &status) == MPI_SUCCESS);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
    CHECK(status.poise_bytes == 0 && data == 5);
    CHECK(MPI_Irecv(&data, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                    &request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
    CHECK(MPI_Iprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &flag, &status) ==
          MPI_SUCCESS);
    CHECK(flag && status.MPI_SOURCE == MPI_PROC_NULL);
    MPI_Message message;
    CHECK(MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message, &status) ==
          MPI_SUCCESS);
    CHECK(message == MPI_MESSAGE_NO_PROC);
    CHECK(MPI_Mrecv(&data, 1, MPI_INT, &message, &status) == MPI_SUCCESS);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && message == MPI_MESSAGE_NULL);
    return 0;
}

static void test_nobody(void **state)
{
    (void)state;
    run_well(1, to_nobody);
}

/* ---- non-blocking ------------------------------------------------------- */

/* Everybody sends messages of many sizes to everybody; each pair's arrive in
 * order though they all have one tag. */
static int all_to_all(int rank, int size)
{
    enum { EACH = 12 };
    static const int counts[EACH] = {0,    1,    3,    64, 300, 5000,
                                     4096, 4097, 9000, 2,  1,   12000};
    int total = size * EACH;
    MPI_Request *requests = calloc((size_t)total * 2, sizeof *requests);
    int **in = calloc((size_t)total, sizeof *in);
    int **out = calloc((size_t)total, sizeof *out);
    for (int m = 0; m < EACH; m++) {
        for (int peer = 0; peer < size; peer++) {
            int at = m * size + peer;
            in[at] = calloc(20000, sizeof(int));
            CHECK(MPI_Irecv(in[at], 20000, MPI_INT, peer, 9, MPI_COMM_WORLD,
                            &requests[at]) == MPI_SUCCESS);
        }
        if (m == EACH / 2) {
            for (int i = 0; i < rank; i++) {
                vrank_yield();
            }
        }
        for (int peer = 0; peer < size; peer++) {
            int at = m * size + peer;
            out[at] = calloc(20000, sizeof(int));
            fill(out[at], counts[m], rank, m);
            CHECK(MPI_Isend(out[at], counts[m], MPI_INT, peer, 9,
                            MPI_COMM_WORLD,
                            &requests[total + at]) == MPI_SUCCESS);
        }
    }
    MPI_Status *statuses = calloc((size_t)total * 2, sizeof *statuses);
    CHECK(MPI_Waitall(2 * total, requests, statuses) == MPI_SUCCESS);
    for (int m = 0; m < EACH; m++) {
        for (int peer = 0; peer < size; peer++) {
            int at = m * size + peer;
            CHECK(statuses[at].MPI_SOURCE == peer);
            CHECK(statuses[at].poise_bytes == counts[m] * 4);
            CHECK(is_filled(in[at], counts[m], peer, m));
            CHECK(requests[at] == MPI_REQUEST_NULL);
            free(in[at]);
            free(out[at]);
        }
    }
    free(statuses);
    free(in);
    free(out);
    free(requests);
    return 0;
}

static void test_all_to_all(void **state)
{
    (void)state;
    run_well(1, all_to_all);
    run_well(6, all_to_all);
}

/* A master that takes results from whoever has one. */
static int workers(int rank, int size)
{
    enum { TASKS = 60 };
    int task, done = 0, sum = 0;
    if (rank > 0) {
        for (;;) {
            MPI_Status status;
            CHECK(MPI_Send(&rank, 1, MPI_INT, 0, 1, MPI_COMM_WORLD) ==
                  MPI_SUCCESS);
            CHECK(MPI_Recv(&task, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD,
                           &status) == MPI_SUCCESS);
            if (status.MPI_TAG == 3) {
                return 0;
            }
            task *= 2;
            CHECK(MPI_Send(&task, 1, MPI_INT, 0, 2, MPI_COMM_WORLD) ==
                  MPI_SUCCESS);
        }
    }
    int given = 0, working = size - 1;
    while (working > 0) {
        MPI_Status status;
        CHECK(MPI_Recv(&task, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG,
                       MPI_COMM_WORLD, &status) == MPI_SUCCESS);
        if (status.MPI_TAG == 2) {
            done++;
            sum += task;
            continue;
        }
        CHECK(task == status.MPI_SOURCE);
        int tag = given < TASKS ? 2 : 3;
        CHECK(MPI_Send(&given, 1, MPI_INT, status.MPI_SOURCE, tag,
                       MPI_COMM_WORLD) == MPI_SUCCESS);
        given += tag == 2;
        working -= tag == 3;
    }
    CHECK(done == TASKS && sum == TASKS * (TASKS - 1));
    return 0;
}

static void test_workers(void **state)
{
    (void)state;
    run_well(2, workers);
    run_well(9, workers);
}

/* All the ways to wait for requests. */
static int completion(int rank, int size)
{
    (void)size;
    enum { N = 8 };
    int data[N], flag, index, done, indices[N];
    MPI_Request requests[N];
    MPI_Status statuses[N], status;
    for (int round = 0; round < 6; round++) {
        if (rank == 0) {
            for (int i = 0; i < N; i++) {
                int at = (i * 3 + round) % N;
                data[at] = at + 100 * round;
                CHECK(MPI_Ssend(&data[at], 1, MPI_INT, 1, at, MPI_COMM_WORLD) ==
                      MPI_SUCCESS);
            }
            continue;
        }
        for (int i = 0; i < N; i++) {
            CHECK(MPI_Irecv(&data[i], 1, MPI_INT, 0, i, MPI_COMM_WORLD,
                            &requests[i]) == MPI_SUCCESS);
        }
        int left = N;
        while (left > 0) {
            if (round == 0) {
                CHECK(MPI_Waitany(N, requests, &index, &status) == MPI_SUCCESS);
                CHECK(index >= 0 && status.MPI_TAG == index);
                left--;
            } else if (round == 1) {
                CHECK(MPI_Testany(N, requests, &index, &flag, &status) ==
                      MPI_SUCCESS);
                CHECK(!flag || status.MPI_TAG == index);
                left -= flag;
            } else if (round == 2) {
                CHECK(MPI_Waitsome(N, requests, &done, indices, statuses) ==
                      MPI_SUCCESS);
                CHECK(done > 0);
                left -= done;
            } else if (round == 3) {
                CHECK(MPI_Testsome(N, requests, &done, indices, statuses) ==
                      MPI_SUCCESS);
                left -= done;
            } else if (round == 4) {
                CHECK(MPI_Testall(N, requests, &flag, statuses) == MPI_SUCCESS);
                left = flag ? 0 : left;
            } else {
                CHECK(MPI_Request_get_status(requests[left - 1], &flag,
                                             &status) == MPI_SUCCESS);
                if (flag) {
                    CHECK(MPI_Test(&requests[left - 1], &flag, &status) ==
                          MPI_SUCCESS);
                    CHECK(flag && status.MPI_TAG == left - 1);
                    left--;
                }
            }
        }
        for (int i = 0; i < N; i++) {
            CHECK(requests[i] == MPI_REQUEST_NULL);
            CHECK(data[i] == i + 100 * round);
        }
        CHECK(MPI_Waitany(N, requests, &index, &status) == MPI_SUCCESS);
        CHECK(index == MPI_UNDEFINED && status.MPI_SOURCE == MPI_ANY_SOURCE);
        CHECK(MPI_Waitsome(N, requests, &done, indices, statuses) ==
              MPI_SUCCESS);
        CHECK(done == MPI_UNDEFINED);
        CHECK(MPI_Testany(N, requests, &index, &flag, &status) == MPI_SUCCESS);
        CHECK(flag && index == MPI_UNDEFINED);
    }
    return 0;
}

static void test_completion(void **state)
{
    (void)state;
    run_well(2, completion);
}

static int persistent(int rank, int size)
{
    int data[3] = {0}, in[3] = {0};
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Request requests[2];
    CHECK(MPI_Send_init(data, 3, MPI_INT, right, 4, MPI_COMM_WORLD,
                        &requests[0]) == MPI_SUCCESS);
    CHECK(MPI_Recv_init(in, 3, MPI_INT, left, 4, MPI_COMM_WORLD,
                        &requests[1]) == MPI_SUCCESS);
    MPI_Status statuses[2];
    /* Inactive ones are done. */
    CHECK(MPI_Waitall(2, requests, statuses) == MPI_SUCCESS);
    for (int i = 0; i < 10; i++) {
        fill(data, 3, rank, i);
        if (i % 2) {
            CHECK(MPI_Startall(2, requests) == MPI_SUCCESS);
        } else {
            CHECK(MPI_Start(&requests[1]) == MPI_SUCCESS);
            CHECK(MPI_Start(&requests[0]) == MPI_SUCCESS);
        }
        CHECK(MPI_Waitall(2, requests, statuses) == MPI_SUCCESS);
        CHECK(is_filled(in, 3, left, i) && statuses[1].MPI_SOURCE == left);
        CHECK(requests[0] && requests[1]);
    }
    CHECK(MPI_Request_free(&requests[0]) == MPI_SUCCESS);
    CHECK(MPI_Request_free(&requests[1]) == MPI_SUCCESS);
    CHECK(requests[0] == MPI_REQUEST_NULL);
    /* Synchronous and large: it stays active until it is taken. */
    int *big = calloc(LARGE, sizeof(int));
    CHECK(MPI_Ssend_init(big, LARGE, MPI_INT, right, 5, MPI_COMM_WORLD,
                         &requests[0]) == MPI_SUCCESS);
    fill(big, LARGE, rank, 77);
    CHECK(MPI_Start(&requests[0]) == MPI_SUCCESS);
    int *received = calloc(LARGE, sizeof(int));
    CHECK(MPI_Recv(received, LARGE, MPI_INT, left, 5, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(is_filled(received, LARGE, left, 77));
    CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_Request_free(&requests[0]) == MPI_SUCCESS);
    free(big);
    free(received);
    return 0;
}

static void test_persistent(void **state)
{
    (void)state;
    run_well(1, persistent);
    run_well(4, persistent);
}

static int cancel(int rank, int size)
{
    (void)size;
    int data = 3, flag = 0;
    MPI_Request request;
    MPI_Status status;
    if (rank == 1) {
        CHECK(MPI_Recv(&data, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &status) ==
              MPI_SUCCESS);
        CHECK(data == 42);
        return 0;
    }
    CHECK(MPI_Irecv(&data, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD,
                    &request) == MPI_SUCCESS);
    CHECK(MPI_Cancel(&request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS);
    CHECK(MPI_Test_cancelled(&status, &flag) == MPI_SUCCESS && flag);
    /* A synchronous send that nobody has received. */
    CHECK(MPI_Issend(&data, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, &request) ==
          MPI_SUCCESS);
    CHECK(MPI_Cancel(&request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS);
    CHECK(MPI_Test_cancelled(&status, &flag) == MPI_SUCCESS);
    if (!flag) {
        return 0; /* it was faster */
    }
    data = 42;
    CHECK(MPI_Send(&data, 1, MPI_INT, 1, 2, MPI_COMM_WORLD) == MPI_SUCCESS);
    return 0;
}

static void test_cancel(void **state)
{
    (void)state;
    struct vrank_outcome out = run_ranks(2, 1, false, cancel);
    assert_int_equal(out.status, 0);
}

/* Requests that nobody asks for do what they are for all the same. */
static int forgotten(int rank, int size)
{
    (void)size;
    int *data = calloc(LARGE, sizeof(int));
    MPI_Request request;
    if (rank == 0) {
        fill(data, LARGE, 0, 1);
        CHECK(MPI_Isend(data, LARGE, MPI_INT, 1, 0, MPI_COMM_WORLD, &request) ==
              MPI_SUCCESS);
        CHECK(MPI_Request_free(&request) == MPI_SUCCESS);
        CHECK(MPI_Recv(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE) == MPI_SUCCESS);
    } else {
        CHECK(MPI_Recv(data, LARGE, MPI_INT, 0, 0, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE) == MPI_SUCCESS);
        CHECK(is_filled(data, LARGE, 0, 1));
        CHECK(MPI_Send(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
    }
    free(data);
    return 0;
}

static void test_forgotten(void **state)
{
    (void)state;
    run_well(2, forgotten);
}

static int buffered(int rank, int size)
{
    (void)size;
    int out[100], in[100], length = 0;
    char *buffer = malloc(10 * (400 + MPI_BSEND_OVERHEAD)), *back = NULL;
    if (rank == 0) {
        CHECK(MPI_Buffer_attach(buffer, 10 * (400 + MPI_BSEND_OVERHEAD)) ==
              MPI_SUCCESS);
        for (int i = 0; i < 10; i++) {
            fill(out, 100, 0, i);
            CHECK(MPI_Bsend(out, 100, MPI_INT, 1, i, MPI_COMM_WORLD) ==
                  MPI_SUCCESS);
        }
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        int full = MPI_Bsend(out, 100, MPI_INT, 1, 9, MPI_COMM_WORLD);
        /* The receiver may have made room already. */
        CHECK(full == MPI_ERR_BUFFER || full == MPI_SUCCESS);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        if (full != MPI_SUCCESS) {
            CHECK(MPI_Send(out, 100, MPI_INT, 1, 9, MPI_COMM_WORLD) ==
                  MPI_SUCCESS);
        }
        CHECK(MPI_Buffer_detach(&back, &length) == MPI_SUCCESS);
        CHECK(back == buffer && length == 10 * (400 + MPI_BSEND_OVERHEAD));
    } else {
        for (int i = 9; i >= 0; i--) {
            CHECK(MPI_Recv(in, 100, MPI_INT, 0, i, MPI_COMM_WORLD,
                           MPI_STATUS_IGNORE) == MPI_SUCCESS);
            CHECK(is_filled(in, 100, 0, i));
        }
        CHECK(MPI_Recv(in, 100, MPI_INT, 0, 9, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    free(buffer);
    return 0;
}

static void test_buffered(void **state)
{
    (void)state;
    run_well(2, buffered);
}

/* ---- probes ------------------------------------------------------------- */

static int probes(int rank, int size)
{
    (void)size;
    int data[50], flag = 0;
    MPI_Status status;
    MPI_Message message;
    MPI_Request request;
    if (rank == 0) {
        for (int i = 0; i < 5; i++) {
            fill(data, 10 * i, 0, i);
            CHECK(MPI_Send(data, 10 * i, MPI_INT, 1, i, MPI_COMM_WORLD) ==
                  MPI_SUCCESS);
            /* So that each is waited for. */
            CHECK(MPI_Recv(data, 1, MPI_INT, 1, 9, MPI_COMM_WORLD,
                           MPI_STATUS_IGNORE) == MPI_SUCCESS);
        }
        return 0;
    }
    for (int i = 0; i < 5; i++) {
        if (i == 0) {
            CHECK(MPI_Probe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &status) ==
                  MPI_SUCCESS);
        } else if (i == 1) {
            while (!flag) {
                CHECK(MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &flag,
                                 &status) == MPI_SUCCESS);
            }
        } else if (i < 4) {
            CHECK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                             &message, &status) == MPI_SUCCESS);
        } else {
            flag = 0;
            while (!flag) {
                CHECK(MPI_Improbe(0, 4, MPI_COMM_WORLD, &flag, &message,
                                  &status) == MPI_SUCCESS);
            }
        }
        CHECK(status.MPI_TAG == i && status.MPI_SOURCE == 0);
        CHECK(status.poise_bytes == 40 * i);
        if (i < 2) {
            CHECK(MPI_Recv(data, 50, MPI_INT, 0, i, MPI_COMM_WORLD, &status) ==
                  MPI_SUCCESS);
        } else if (i < 4) {
            /* Taken out: nobody else finds it. */
            CHECK(MPI_Iprobe(0, i, MPI_COMM_WORLD, &flag, &status) ==
                  MPI_SUCCESS);
            CHECK(!flag);
            CHECK(MPI_Mrecv(data, 50, MPI_INT, &message, &status) ==
                  MPI_SUCCESS);
        } else {
            CHECK(MPI_Imrecv(data, 50, MPI_INT, &message, &request) ==
                  MPI_SUCCESS);
            CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS);
        }
        CHECK(status.poise_bytes == 40 * i && status.MPI_TAG == i);
        CHECK(is_filled(data, 10 * i, 0, i));
        CHECK(MPI_Send(data, 1, MPI_INT, 0, 9, MPI_COMM_WORLD) == MPI_SUCCESS);
    }
    return 0;
}

static void test_probes(void **state)
{
    (void)state;
    run_well(2, probes);
}

/* ---- errors ------------------------------------------------------------- */

static int errors(int rank, int size)
{
    (void)size;
    int data[10] = {0}, in[2] = {0};
    MPI_Request request;
    MPI_Status status, statuses[2];
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Send(data, 1, MPI_INT, 2, 0, MPI_COMM_WORLD) == MPI_ERR_RANK);
    CHECK(MPI_Send(data, 1, MPI_INT, -1, 0, MPI_COMM_WORLD) == MPI_ERR_RANK);
    CHECK(MPI_Send(data, -1, MPI_INT, 0, 0, MPI_COMM_WORLD) == MPI_ERR_COUNT);
    CHECK(MPI_Send(data, 1, MPI_INT, 0, -1, MPI_COMM_WORLD) == MPI_ERR_TAG);
    CHECK(MPI_Send(data, 1, NULL, 0, 0, MPI_COMM_WORLD) == MPI_ERR_TYPE);
    CHECK(MPI_Send(data, 1, MPI_INT, 0, 0, MPI_COMM_NULL) == MPI_ERR_COMM);
    CHECK(MPI_Send(NULL, 1, MPI_INT, 0, 0, MPI_COMM_WORLD) == MPI_ERR_BUFFER);
    CHECK(MPI_Recv(in, 1, MPI_INT, 5, 0, MPI_COMM_WORLD, &status) ==
          MPI_ERR_RANK);
    CHECK(MPI_Recv(in, 1, MPI_INT, 0, -2, MPI_COMM_WORLD, &status) ==
          MPI_ERR_TAG);
    CHECK(MPI_Wait(NULL, &status) == MPI_ERR_REQUEST);
    /* Too long: early and late, and the rest of the buffer stays. */
    for (int i = 0; i < 2; i++) {
        if (rank == 0) {
            for (int j = 0; j < 10; j++) {
                data[j] = j + 1;
            }
            CHECK(MPI_Send(data, 10, MPI_INT, 1, i, MPI_COMM_WORLD) ==
                  MPI_SUCCESS);
            CHECK(MPI_Recv(data, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &status) ==
                  MPI_SUCCESS);
        } else {
            in[1] = -7;
            if (i == 0) {
                CHECK(MPI_Probe(0, 0, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
            }
            CHECK(MPI_Irecv(in, 1, MPI_INT, 0, i, MPI_COMM_WORLD, &request) ==
                  MPI_SUCCESS);
            MPI_Request both[2] = {MPI_REQUEST_NULL, request};
            if (i == 0) {
                CHECK(MPI_Wait(&request, &status) == MPI_ERR_TRUNCATE);
            } else {
                CHECK(MPI_Waitall(2, both, statuses) == MPI_ERR_IN_STATUS);
                CHECK(statuses[0].MPI_ERROR == MPI_SUCCESS);
                CHECK(statuses[1].MPI_ERROR == MPI_ERR_TRUNCATE);
            }
            CHECK(in[0] == 1 && in[1] == -7);
            CHECK(MPI_Send(data, 1, MPI_INT, 0, 0, MPI_COMM_WORLD) ==
                  MPI_SUCCESS);
        }
    }
    return 0;
}

static void test_errors(void **state)
{
    (void)state;
    run_well(2, errors);
}

static int fatal(int rank, int size)
{
    int data = 0;
    if (rank == 1) {
        MPI_Send(&data, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
        CHECK(false);
    }
    MPI_Recv(&data, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0;
}

static void test_fatal(void **state)
{
    (void)state;
    run_badly(3,
              "virtual rank 1: MPI_Send failed on MPI_COMM_WORLD: invalid "
              "rank: there is no rank 3 among 3",
              fatal);
}

static int deadlock(int rank, int size)
{
    int data = 0;
    MPI_Recv(&data, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    CHECK(false);
    return 0;
}

static void test_deadlock(void **state)
{
    (void)state;
    run_badly(3, "rank 2 waits in MPI_Recv from rank 0, tag 5", deadlock);
}

static int before_init(int rank, int size)
{
    int data = rank + size;
    MPI_Send(&data, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    CHECK(false);
    return 0;
}

static int after_finalize(int rank, int size)
{
    CHECK(size > rank);
    MPI_Init(NULL, NULL);
    MPI_Finalize();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CHECK(false);
    return 0;
}

static int never_finalized(int rank, int size)
{
    CHECK(size > rank);
    MPI_Init(NULL, NULL);
    return 0;
}

static void test_phases(void **state)
{
    (void)state;
    static const struct {
        int (*body)(int rank, int size);
        const char *text;
    } cases[] = {
        {before_init, "called MPI_Send before MPI_Init"},
        {after_finalize, "called MPI_Comm_rank after MPI_Finalize"},
        {never_finalized, "ended without MPI_Finalize"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct vrank_outcome out = run_ranks(2, 1, true, cases[i].body);
        assert_true(out.aborted);
        assert_non_null(strstr(poise_buf_str(&run.said), cases[i].text));
    }
    poise_buf_free(&run.said);
}

/* ---- types -------------------------------------------------------------- */

/* What MPI says of ints that are received as `type`. */
static int received_as(MPI_Datatype type, int count, int tag)
{
    double in[8];
    return MPI_Recv(in, count, type, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Rank 0 sends ints, in each way and before and after its receive, and rank 1
 * takes them for what they are, and for something else. */
static int checked(int rank, int size)
{
    int data[10] = {1, 2, 3, 4, 5, 6};
    double in[8];
    char buffer[256 + MPI_BSEND_OVERHEAD];
    MPI_Request request;
    MPI_Datatype column;
    MPI_Type_vector(3, 1, 2, MPI_INT, &column);
    MPI_Type_commit(&column);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        MPI_Buffer_attach(buffer, sizeof buffer);
        for (int tag = 0; tag < 2; tag++) {
            MPI_Send(data, 4, MPI_INT, size - 1, tag, MPI_COMM_WORLD);
            MPI_Bsend(data, 4, MPI_INT, size - 1, tag, MPI_COMM_WORLD);
            MPI_Ssend(data, 4, MPI_INT, size - 1, tag, MPI_COMM_WORLD);
            MPI_Send(data, 2, column, size - 1, tag, MPI_COMM_WORLD);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Send(data, 4, MPI_INT, size - 1, 2, MPI_COMM_WORLD);
        MPI_Send(data, 4, MPI_INT, size - 1, 3, MPI_COMM_WORLD);
        MPI_Buffer_detach(&(void *){NULL}, &(int){0});
    } else if (rank == size - 1) {
        CHECK(received_as(MPI_INT, 8, 0) == MPI_SUCCESS);
        CHECK(received_as(column, 2, 0) == MPI_SUCCESS);
        CHECK(received_as(MPI_UNSIGNED, 4, 0) == MPI_SUCCESS);
        CHECK(received_as(MPI_BYTE, 24, 0) == MPI_SUCCESS);
        CHECK(received_as(MPI_DOUBLE, 4, 1) == MPI_ERR_TYPE);
        CHECK(received_as(MPI_FLOAT, 4, 1) == MPI_ERR_TYPE);
        CHECK(received_as(MPI_DOUBLE_INT, 4, 1) == MPI_ERR_TYPE);
        /* Too long counts first. */
        CHECK(received_as(MPI_FLOAT, 1, 1) == MPI_ERR_TRUNCATE);
        MPI_Irecv(in, 8, MPI_DOUBLE, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD,
                  &request);
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_ERR_TYPE);
        CHECK(received_as(MPI_INT, 4, 3) == MPI_SUCCESS);
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Type_free(&column);
    return 0;
}

/* Nobody looks at types unless told to. */
static int unchecked(int rank, int size)
{
    int data[4] = {1, 2, 3, 4};
    if (rank == 0) {
        MPI_Send(data, 4, MPI_INT, size - 1, 0, MPI_COMM_WORLD);
    } else if (rank == size - 1) {
        CHECK(received_as(MPI_DOUBLE, 4, 0) == MPI_SUCCESS);
    }
    return 0;
}

static void test_types(void **state)
{
    (void)state;
    run_well(2, unchecked);
    run_options.checks = true;
    for (int threads = 1; threads <= 2; threads++) {
        run_ranks(3, threads, false, checked);
        assert_non_null(strstr(poise_buf_str(&run.said),
                               "virtual rank 2 receives MPI_DOUBLE, and rank 0 "
                               "of the communicator sent MPI_INT (16 bytes, "
                               "tag 1)"));
        assert_non_null(strstr(poise_buf_str(&run.said), "tag 2)"));
        assert_null(strstr(poise_buf_str(&run.said), "tag 3)"));
    }
    run_options.checks = false;
    poise_buf_free(&run.said);
}

/* ---- no memory ---------------------------------------------------------- */

static int exchange(int rank, int size)
{
    int out[100], in[100];
    MPI_Request requests[2];
    fill(out, 100, rank, 0);
    MPI_Irecv(in, 100, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD,
              &requests[0]);
    MPI_Isend(out, 100, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD,
              &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(is_filled(in, 100, (rank + 1) % size, 0));
    MPI_Send(out, 100, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD);
    MPI_Recv(in, 100, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    return 0;
}

static void test_no_memory(void **state)
{
    (void)state;
    run_starved(2, 200, exchange);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),       cmocka_unit_test(test_early),
        cmocka_unit_test(test_self),       cmocka_unit_test(test_sendrecv),
        cmocka_unit_test(test_nobody),     cmocka_unit_test(test_all_to_all),
        cmocka_unit_test(test_workers),    cmocka_unit_test(test_completion),
        cmocka_unit_test(test_persistent), cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_forgotten),  cmocka_unit_test(test_buffered),
        cmocka_unit_test(test_probes),     cmocka_unit_test(test_errors),
        cmocka_unit_test(test_fatal),      cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_phases),     cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
