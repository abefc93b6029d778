/*
 * Messages between virtual ranks of several processes: run under a launcher.
 *
 *     test_mpi_vrank RANKS THREADS DELAY_US WHAT
 *
 * Says "ok WHAT" on process 0 if everything was right; exit status as the job
 * ended.
 */
#include "vrank/fill.h"
#include "vrank/job/job.h"
#include <poise/comm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wrong; /* atomic: ranks run on several threads */
static uint64_t delay_ns;

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);                   \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);            \
        }                                                                      \
    } while (0)

/* Everybody sends messages of many sizes to everybody, all with one tag: they
 * come in order, whatever way each takes. */
static int storm(int rank, int size)
{
    enum { EACH = 8, MOST = 70000 };
    static const int counts[EACH] = {1, 0, 1000, 1010, 3, MOST, 5000, 2};
    int total = EACH * size;
    MPI_Request *requests = calloc((size_t)total * 2, sizeof *requests);
    int **in = calloc((size_t)total, sizeof *in);
    int **out = calloc((size_t)total, sizeof *out);
    MPI_Status *statuses = calloc((size_t)total * 2, sizeof *statuses);
    for (int i = 0; i < total; i++) {
        int peer = (rank + i) % size;
        out[i] = malloc((size_t)counts[i / size] * sizeof(int) + 1);
        fill(out[i], counts[i / size], rank, i / size);
        CHECK(MPI_Isend(out[i], counts[i / size], MPI_INT, peer, 9,
                        MPI_COMM_WORLD, &requests[total + i]) == MPI_SUCCESS);
    }
    for (int i = 0; i < total; i++) {
        int peer = (rank + i) % size;
        in[i] = malloc(MOST * sizeof(int));
        CHECK(MPI_Irecv(in[i], MOST, MPI_INT, peer, 9, MPI_COMM_WORLD,
                        &requests[i]) == MPI_SUCCESS);
    }
    CHECK(MPI_Waitall(2 * total, requests, statuses) == MPI_SUCCESS);
    for (int i = 0; i < total; i++) {
        int peer = (rank + i) % size;
        CHECK(statuses[i].MPI_SOURCE == peer);
        CHECK(statuses[i].poise_bytes == counts[i / size] * 4);
        CHECK(is_filled(in[i], counts[i / size], peer, i / size));
        free(in[i]);
        free(out[i]);
    }
    free(statuses);
    free(in);
    free(out);
    free(requests);
    return 0;
}

enum { WAY_NUMBERS = 50000 }; /* of a large message of test "ways" */

/* The first rank sends in each way and does not know how the last receives. */
static void send_ways(int *data, int last)
{
    char buffer[4096 + MPI_BSEND_OVERHEAD];
    int back = 0;
    MPI_Status status;
    MPI_Request request;
    fill(data, WAY_NUMBERS, 0, 1);
    CHECK(MPI_Ssend(data, 1, MPI_INT, last, 1, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPI_Buffer_attach(buffer, sizeof buffer) == MPI_SUCCESS);
    CHECK(MPI_Bsend(data, 1000, MPI_INT, last, 2, MPI_COMM_WORLD) ==
          MPI_SUCCESS);
    void *received;
    int bytes;
    CHECK(MPI_Buffer_detach(&received, &bytes) == MPI_SUCCESS);
    CHECK(received == buffer);
    CHECK(MPI_Send(data, WAY_NUMBERS, MPI_INT, last, 3, MPI_COMM_WORLD) ==
          MPI_SUCCESS);
    CHECK(MPI_Send(data, WAY_NUMBERS, MPI_INT, last, 4, MPI_COMM_WORLD) ==
          MPI_SUCCESS);
    CHECK(MPI_Send(data, 10, MPI_INT, last, 5, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPI_Send(data, WAY_NUMBERS, MPI_INT, last, 6, MPI_COMM_WORLD) ==
          MPI_SUCCESS);
    CHECK(MPI_Recv(&back, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG,
                   MPI_COMM_WORLD, &status) == MPI_SUCCESS);
    CHECK(back == 77 && status.MPI_SOURCE == last);
    CHECK(MPI_Isend(data, WAY_NUMBERS, MPI_INT, last, 7, MPI_COMM_WORLD,
                    &request) == MPI_SUCCESS);
    CHECK(MPI_Request_free(&request) == MPI_SUCCESS);
}

/* The last rank receives in each way what send_ways sends. */
static void receive_ways(int *data)
{
    MPI_Status status;
    MPI_Message message;
    CHECK(MPI_Recv(data, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &status) ==
          MPI_SUCCESS);
    CHECK(is_filled(data, 1, 0, 1));
    CHECK(MPI_Probe(0, 2, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
    CHECK(status.poise_bytes == 4000);
    CHECK(MPI_Recv(data, 1000, MPI_INT, 0, 2, MPI_COMM_WORLD, &status) ==
          MPI_SUCCESS);
    CHECK(is_filled(data, 1000, 0, 1));
    /* Large, too long for the buffer. */
    data[10] = -5;
    CHECK(MPI_Recv(data, 10, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD,
                   &status) == MPI_ERR_TRUNCATE);
    CHECK(is_filled(data, 10, 0, 1) && data[10] == -5);
    CHECK(MPI_Mprobe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status) ==
          MPI_SUCCESS);
    CHECK(status.MPI_TAG == 4 && status.poise_bytes == WAY_NUMBERS * 4);
    memset(data, 0, WAY_NUMBERS * sizeof(int));
    CHECK(MPI_Mrecv(data, WAY_NUMBERS, MPI_INT, &message, &status) ==
          MPI_SUCCESS);
    CHECK(is_filled(data, WAY_NUMBERS, 0, 1));
    int flag = 0;
    while (!flag) {
        CHECK(MPI_Iprobe(0, 6, MPI_COMM_WORLD, &flag, &status) == MPI_SUCCESS);
    }
    memset(data, 0, WAY_NUMBERS * sizeof(int));
    CHECK(MPI_Recv(data, WAY_NUMBERS, MPI_INT, 0, 6, MPI_COMM_WORLD, &status) ==
          MPI_SUCCESS);
    CHECK(is_filled(data, WAY_NUMBERS, 0, 1));
    CHECK(MPI_Recv(data, 10, MPI_INT, 0, 5, MPI_COMM_WORLD, &status) ==
          MPI_SUCCESS);
    int back = 77;
    CHECK(MPI_Send(&back, 1, MPI_INT, 0, 8, MPI_COMM_WORLD) == MPI_SUCCESS);
    memset(data, 0, WAY_NUMBERS * sizeof(int));
    CHECK(MPI_Recv(data, WAY_NUMBERS, MPI_INT, 0, 7, MPI_COMM_WORLD, &status) ==
          MPI_SUCCESS);
    CHECK(is_filled(data, WAY_NUMBERS, 0, 1));
}

/* Each way to send, from the first rank to the last. */
static int ways(int rank, int size)
{
    int *data = calloc(WAY_NUMBERS, sizeof *data);
    MPI_Comm comm;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        send_ways(data, size - 1);
    } else if (rank == size - 1) {
        receive_ways(data);
    }
    if (rank == 0) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        /* A forgotten send still needs its buffer. */
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_disconnect(&comm);
    } else {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_free(&comm);
    }
    free(data);
    return 0;
}

/* Data with gaps on either side. */
static int gaps(int rank, int size)
{
    enum { ROWS = 3000 };
    int *matrix = calloc(ROWS * 4, sizeof(int));
    int *column = calloc(ROWS, sizeof(int));
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Datatype type;
    MPI_Request request;
    CHECK(MPI_Type_vector(ROWS, 1, 4, MPI_INT, &type) == MPI_SUCCESS);
    CHECK(MPI_Type_commit(&type) == MPI_SUCCESS);
    for (int i = 0; i < ROWS; i++) {
        matrix[4 * i + 2] = rank * ROWS + i;
    }
    CHECK(MPI_Isend(matrix + 2, 1, type, right, 0, MPI_COMM_WORLD, &request) ==
          MPI_SUCCESS);
    CHECK(MPI_Recv(column, ROWS, MPI_INT, left, 0, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (int i = 0; i < ROWS; i++) {
        CHECK(column[i] == left * ROWS + i);
    }
    CHECK(MPI_Isend(column, ROWS, MPI_INT, right, 1, MPI_COMM_WORLD,
                    &request) == MPI_SUCCESS);
    CHECK(MPI_Recv(matrix + 1, 1, type, left, 1, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (int i = 0; i < ROWS; i++) {
        CHECK(matrix[4 * i + 1] == (left + size - 1) % size * ROWS + i);
        CHECK(matrix[4 * i] == 0);
    }
    CHECK(MPI_Type_free(&type) == MPI_SUCCESS);
    free(column);
    free(matrix);
    return 0;
}

static int communicators(int rank, int size)
{
    MPI_Comm odd, inter, merged;
    int in = -1, place, count;
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &odd) == MPI_SUCCESS);
    CHECK(MPI_Comm_rank(odd, &place) == MPI_SUCCESS);
    CHECK(MPI_Comm_size(odd, &count) == MPI_SUCCESS);
    CHECK(MPI_Sendrecv(&rank, 1, MPI_INT, (place + 1) % count, 0, &in, 1,
                       MPI_INT, (place + count - 1) % count, 0, odd,
                       MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(in % 2 == rank % 2 && (count == 1 || in != rank));
    if (size > 1) {
        CHECK(MPI_Intercomm_create(odd, 0, MPI_COMM_WORLD,
                                   rank % 2 ? (size - 1) / 2 * 2
                                            : size / 2 * 2 - 1,
                                   4, &inter) == MPI_SUCCESS);
        CHECK(MPI_Intercomm_merge(inter, rank % 2, &merged) == MPI_SUCCESS);
        CHECK(MPI_Comm_size(merged, &count) == MPI_SUCCESS && count == size);
        CHECK(MPI_Comm_free(&merged) == MPI_SUCCESS);
        CHECK(MPI_Comm_free(&inter) == MPI_SUCCESS);
    }
    CHECK(MPI_Comm_free(&odd) == MPI_SUCCESS);
    return 0;
}

/* A message takes as long as was asked for. */
static int delayed(int rank, int size)
{
    int data = rank, last = size - 1;
    double begun = MPI_Wtime();
    for (int i = 0; i < 3; i++) {
        if (rank == 0) {
            MPI_Send(&data, 1, MPI_INT, last, 0, MPI_COMM_WORLD);
            MPI_Recv(&data, 1, MPI_INT, last, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        } else if (rank == last) {
            MPI_Recv(&data, 1, MPI_INT, 0, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            MPI_Send(&data, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        }
    }
    CHECK(rank != 0 || MPI_Wtime() - begun >= 6e-9 * (double)delay_ns);
    return 0;
}

/* Sums in floating point are added in pairs of ranks, wherever those are: as
 * on one process, of whose sums the unit tests know the same. Where the
 * processes are no power of two this holds for the first root only. */
static int sums(int rank, int size)
{
    enum { N = 1200 };
    double *mine = calloc(N, sizeof *mine), *all = calloc(N, sizeof *all);
    double *expected = calloc((size_t)size * N, sizeof *expected);
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < N; i++) {
            expected[r * N + i] = 1.0 / (1 + r + 3 * i);
        }
    }
    memcpy(mine, expected + (ptrdiff_t)rank * N, N * sizeof *mine);
    for (int step = 1; step < size; step *= 2) {
        for (int r = 0; r + step < size; r += 2 * step) {
            for (int i = 0; i < N; i++) {
                expected[r * N + i] += expected[(r + step) * N + i];
            }
        }
    }
    MPI_Allreduce(mine, all, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(memcmp(all, expected, N * sizeof *all) == 0);
    MPI_Allreduce(mine, all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(memcmp(all, expected, sizeof *all) == 0);
    for (int root = 0; root < size; root++) {
        memset(all, 0, N * sizeof *all);
        MPI_Reduce(mine, all, N, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD);
        CHECK(rank != root || memcmp(all, expected, N * sizeof *all) == 0);
    }
    free(expected);
    free(all);
    free(mine);
    return 0;
}

/* Types are compared across processes, too, of short and of long messages. */
static int types(int rank, int size)
{
    enum { LARGE = 50000 };
    int *data = calloc(LARGE, sizeof *data), last = size - 1;
    char buffer[256 + MPI_BSEND_OVERHEAD];
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int count = 4; count <= LARGE; count += LARGE - 4) {
        for (int way = 0; way < 2; way++) {
            MPI_Datatype type = way == 0 ? MPI_INT : MPI_DOUBLE;
            int right = way == 0 ? MPI_SUCCESS : MPI_ERR_TYPE;
            if (rank == 0) {
                MPI_Send(data, count, MPI_INT, last, way, MPI_COMM_WORLD);
            } else if (rank == last) {
                CHECK(MPI_Recv(data, count / (1 + way), type, 0, way,
                               MPI_COMM_WORLD, MPI_STATUS_IGNORE) == right);
            }
        }
    }
    if (rank == 0) {
        MPI_Buffer_attach(buffer, sizeof buffer);
        MPI_Bsend(data, 4, MPI_INT, last, 3, MPI_COMM_WORLD);
        MPI_Buffer_detach(&(void *){NULL}, &(int){0});
    } else if (rank == last) {
        CHECK(MPI_Recv(data, 2, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE) == MPI_ERR_TYPE);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    free(data);
    return 0;
}

static int deadlock(int rank, int size)
{
    int data = rank;
    MPI_Recv(&data, 1, MPI_INT, (rank + 1) % size, 3, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    return 0;
}

static int abort_job(int rank, int size)
{
    if (rank == size - 1) {
        MPI_Abort(MPI_COMM_WORLD, 42);
    }
    return deadlock(rank, size);
}

static const struct test {
    const char *name;
    int (*body)(int rank, int size);
    bool in_blocks; /* or else neighbours are apart */
    bool checks;    /* types */
} tests[] = {
    {"storm", storm},
    {"ways", ways},
    {"gaps", gaps},
    {"communicators", communicators},
    {"delayed", delayed},
    {"deadlock", deadlock},
    {"abort", abort_job},
    {"sums", sums, true},
    {"types", types, false, true},
};

static int body(struct vrank *rank, void *arg)
{
    const struct test *test = arg;
    CHECK(MPI_Init(NULL, NULL) == MPI_SUCCESS);
    test->body(vrank_number(rank), vrank_count());
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    return 0;
}

static void say(const char *line, void *arg)
{
    (void)arg;
    fprintf(stderr, "%s\n", line);
}

static void die(int status, void *arg)
{
    (void)arg;
    _exit(status);
}

static int run(struct poise_world *world, int ranks, int threads,
               const struct test *test)
{
    const struct vrank_mpi_ops *ops;
    struct vrank_outcome outcome;
    struct mpi_options options = {
        .world = world, .delay_ns = delay_ns, .checks = test->checks};
    int code = mpi_job_begin(&options, &ops);
    if (code < 0) {
        return 1;
    }
    struct vrank_job job = {.count = ranks,
                            .processes = poise_world_size(world),
                            .process = poise_world_rank(world),
                            .threads = threads,
                            .placement = test->in_blocks ? POISE_VRANK_BLOCK
                                                         : POISE_VRANK_CYCLIC,
                            .stack_bytes = 256 << 10,
                            .body = body,
                            .mpi = ops,
                            .say = say,
                            .die = die,
                            .arg = (void *)test};
    code = vrank_run_job(&job, &outcome);
    mpi_job_end();
    return code < 0 || outcome.status || wrong;
}

int main(int argc, char **argv)
{
    struct poise_world *world;
    const struct test *test = NULL;
    for (size_t i = 0; argc == 5 && i < sizeof tests / sizeof *tests; i++) {
        if (strcmp(argv[4], tests[i].name) == 0) {
            test = &tests[i];
        }
    }
    if (!test || poise_world_create(NULL, &world) < 0) {
        return 2;
    }
    delay_ns = strtoull(argv[3], NULL, 10) * 1000;
    int rank = poise_world_rank(world);
    int failed = run(world, atoi(argv[1]), atoi(argv[2]), test);
    failed = poise_world_agree(world, failed ? -1 : 0) < 0;
    poise_world_destroy(world);
    if (rank == 0 && !failed) {
        printf("ok %s\n", test->name);
    }
    return failed;
}
