/*
 * Requests of virtual ranks of one process: non-blocking and persistent
 * messages, every way to complete them, buffers, probes.
 */
#include "run.h"

#include "fill.h"

#include <errno.h>

enum { LARGE = 100000 };

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_to_all), cmocka_unit_test(test_workers),
        cmocka_unit_test(test_completion), cmocka_unit_test(test_persistent),
        cmocka_unit_test(test_cancel),     cmocka_unit_test(test_forgotten),
        cmocka_unit_test(test_buffered),   cmocka_unit_test(test_probes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
