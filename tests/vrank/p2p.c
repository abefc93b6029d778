/*
 * Messages between virtual ranks of one process: blocking calls, order,
 * wildcards, errors, deadlock.
 */
#include "run.h"

#include "fill.h"

#include <errno.h>

enum { LARGE = 100000 };

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
        cmocka_unit_test(test_ring),      cmocka_unit_test(test_early),
        cmocka_unit_test(test_self),      cmocka_unit_test(test_sendrecv),
        cmocka_unit_test(test_nobody),    cmocka_unit_test(test_errors),
        cmocka_unit_test(test_fatal),     cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_phases),    cmocka_unit_test(test_types),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
