/*
 * Contexts on disk: ranks with several times the memory that there is, what
 * goes to and from those that are not there, how memory is divided, and disks
 * that fail.
 */
#include "context.h"
#include "../share.h"

#include <sys/mman.h>

/* ---- how memory is divided ---------------------------------------------- */

static void test_plan(void **state)
{
    struct context_plan plan;
    struct context_options options = {.memory_bytes = 512 * MIB,
                                      .base_bytes = 48 * MIB,
                                      .count = 16,
                                      .threads = 1};
    (void)state;
    /* Less the base and an eighth for messages, and all but an eighth of that
     * for each; with several threads half of a thread's part. */
    assert_int_equal(context_plan(&options, 100000 * MIB, &plan), 0);
    assert_int_equal(plan.budget_bytes, 400 * MIB);
    assert_int_equal(plan.context_bytes, 350 * MIB);
    assert_true(plan.slot_bytes >= 437 * MIB);
    options.threads = 4;
    assert_int_equal(context_plan(&options, 100000 * MIB, &plan), 0);
    assert_int_equal(plan.context_bytes, 50 * MIB);
    /* What it runs from has its place, up to an eighth. */
    options.file_bytes = 8 * MIB;
    assert_int_equal(context_plan(&options, 100000 * MIB, &plan), 0);
    assert_int_equal(plan.budget_bytes, 392 * MIB);
    options.file_bytes = 800 * MIB;
    assert_int_equal(context_plan(&options, 100000 * MIB, &plan), 0);
    assert_int_equal(plan.budget_bytes, 336 * MIB);
    options.file_bytes = 0;
    assert_int_equal(context_plan(&options, 100000 * MIB, &plan), 0);
    /* A disk that has less makes contexts smaller, ... */
    assert_int_equal(context_plan(&options, 16 * 30 * MIB, &plan), 0);
    assert_true(plan.context_bytes <= 30 * MIB &&
                plan.context_bytes >= 18 * MIB);
    assert_true(plan.slot_bytes >= plan.heap_bytes);
    /* ... but not if they were asked for. */
    options.most_bytes = 40 * MIB;
    assert_int_equal(context_plan(&options, 100000 * MIB, &plan), 0);
    assert_int_equal(plan.context_bytes, 40 * MIB);
    assert_int_equal(context_plan(&options, 16 * 30 * MIB, &plan), -ENOSPC);
    assert_non_null(strstr(poise_error_last()->why, "480 MiB are free"));
    /* More than the memory for one, as asked for, or as the disk has. */
    options.most_bytes = 51 * MIB;
    assert_int_equal(context_plan(&options, 100000 * MIB, &plan), 0);
    assert_int_equal(plan.context_bytes, 50 * MIB);
    assert_int_equal(plan.heap_bytes, 50 * MIB);
    options.most_bytes = 5000 * MIB;
    assert_int_equal(context_plan(&options, 100000 * MIB, &plan), -ENOSPC);
    options.most_bytes = 4000 * MIB;
    assert_int_equal(context_plan(&options, 100000 * MIB, &plan), 0);
    assert_int_equal(plan.heap_bytes, 4000 * MIB);
    options.most_bytes = 0;
    assert_int_equal(context_plan(&options, 100000 * MIB, &plan), 0);
    assert_int_equal(plan.context_bytes, 50 * MIB);
    assert_int_equal(plan.heap_bytes, 16 * 400 * MIB);
    options.sharers = 1000000;
    assert_int_equal(context_plan(&options, 1000 * MIB, &plan), -ENOSPC);
    options.sharers = 0;
    options.memory_bytes = 49 * MIB;
    assert_int_equal(context_plan(&options, 100000 * MIB, &plan), -ENOMEM);
    /* The least that is named does. */
    const char *least = strstr(poise_error_last()->why, "at least ");
    assert_non_null(least);
    options.memory_bytes = strtoull(least + 9, NULL, 10) * MIB;
    assert_int_equal(context_plan(&options, 100000 * MIB, &plan), 0);
}

/* ---- runs ---------------------------------------------------------------- */

static void run_short(size_t memory, int count, int (*body)(int rank, int size))
{
    struct context_sums sums;
    char folders[1000];
    snprintf(folders, sizeof folders, "%s,%s", scratch(), scratch());
    for (int threads = 1; threads <= 2; threads++) {
        struct vrank_outcome out =
            run_within(memory, count, threads,
                       threads == 1 ? scratch() : folders, body, &sums);
        if (out.status != 0) {
            print_error("%s", poise_buf_str(&run.said));
        }
        assert_int_equal(out.status, 0);
        assert_true(sums.swapped_in > 0 && sums.swapped_out > 0);
        poise_buf_free(&run.said);
    }
}

/* 16 ranks of 6 MiB in 24 MiB: all keep theirs, and exchange it, too. */
static int body_exchange(int rank, int size)
{
    int before = (rank + size - 1) % size, after = (rank + 1) % size;
    int *counts = wrap_malloc((size_t)size * sizeof(int));
    int *places = wrap_malloc((size_t)size * sizeof(int));
    uint64_t *mine = words(rank, WORDS), *theirs = words(rank, WORDS);
    MPI_Request requests[2];
    for (int round = 0; round < 2; round++) {
        MPI_Irecv(theirs, WORDS, MPI_UINT64_T, before, 1, MPI_COMM_WORLD,
                  &requests[0]);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Isend(mine, WORDS, MPI_UINT64_T, after, 1, MPI_COMM_WORLD,
                  &requests[1]);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(words_are(theirs, before, 0, WORDS));
        int each = WORDS / size;
        for (int i = 0; i < size; i++) {
            counts[i] = each - (rank + i) % 3;
            places[i] = i * each;
        }
        memset(theirs, 0, WORDS * sizeof *theirs);
        MPI_Alltoallv(mine, counts, places, MPI_UINT64_T, theirs, counts,
                      places, MPI_UINT64_T, MPI_COMM_WORLD);
        for (int i = 0; i < size; i++) {
            CHECK(words_are(theirs + places[i], i, (size_t)places[rank],
                            (size_t)counts[i]));
        }
        CHECK(words_are(mine, rank, 0, WORDS));
    }
    wrap_free(theirs);
    wrap_free(mine);
    wrap_free(places);
    wrap_free(counts);
    return 0;
}

static void test_exchange(void **state)
{
    (void)state;
    if (is_light()) {
        skip();
    }
    run_short(40 * MIB, 16, body_exchange);
}

/* Reductions of megabytes, prefixes, and what is everybody's. */
static int body_reduce(int rank, int size)
{
    enum { COUNT = 400000 };
    int *mine = wrap_malloc(COUNT * sizeof(int));
    int *all = wrap_malloc(COUNT * sizeof(int));
    int below = rank * (rank - 1) / 2, total = size * (size - 1) / 2;
    for (int i = 0; i < COUNT; i++) {
        mine[i] = rank + i;
    }
    MPI_Allreduce(mine, all, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) {
        CHECK(all[i] == total + size * i);
    }
    MPI_Scan(mine, all, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) {
        CHECK(all[i] == below + rank + (rank + 1) * i);
    }
    MPI_Exscan(mine, all, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT && rank > 0; i++) {
        CHECK(all[i] == below + rank * i);
    }
    if (rank == 1) {
        memcpy(all, mine, COUNT * sizeof(int));
    }
    MPI_Bcast(all, COUNT, MPI_INT, 1, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) {
        CHECK(all[i] == 1 + i);
    }
    wrap_free(mine);
    wrap_free(all);
    return 0;
}

static void test_reduce(void **state)
{
    (void)state;
    if (is_light()) {
        skip();
    }
    run_short(16 * MIB, 12, body_reduce);
}

/* Every second number of a matrix, to a buffer without gaps and back, between
 * ranks that need not be there. */
static int body_gaps(int rank, int size)
{
    enum { COUNT = 200000 };
    int other = rank ^ 1;
    double *mine = wrap_malloc(2 * COUNT * sizeof(double));
    double *theirs = wrap_malloc(2 * COUNT * sizeof(double));
    MPI_Datatype second;
    MPI_Type_vector(COUNT, 1, 2, MPI_DOUBLE, &second);
    MPI_Type_commit(&second);
    for (int i = 0; i < 2 * COUNT; i++) {
        mine[i] = rank * 1e6 + i;
        theirs[i] = -1;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (other < size) {
        MPI_Sendrecv(mine, 1, second, other, 5, theirs, COUNT, MPI_DOUBLE,
                     other, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < COUNT; i++) {
            CHECK(theirs[i] == other * 1e6 + 2 * i);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Sendrecv(mine, COUNT, MPI_DOUBLE, other, 5, theirs, 1, second,
                     other, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < COUNT; i++) {
            CHECK(theirs[2 * i] == other * 1e6 + i);
        }
    }
    MPI_Type_free(&second);
    wrap_free(mine);
    wrap_free(theirs);
    return 0;
}

static void test_gaps(void **state)
{
    (void)state;
    run_short(32 * MIB, 8, body_gaps);
}

/* Parts of all lengths and alignments, delivered to a rank that is away. */
static int body_parts(int rank, int size)
{
    enum { PARTS = 400 };
    static const size_t lengths[] = {1,    7,     4095,  4096,  4097,
                                     8192, 20000, 65536, 70001, 300000};
    char *area = wrap_malloc(64 + 12 * MIB);
    if (rank == 0) {
        MPI_Request requests[PARTS];
        size_t at[PARTS], offset = 3;
        memset(area, 0x55, 64 + 12 * MIB);
        int count = 0;
        while (count < PARTS && offset + 300000 < 12 * MIB) {
            size_t bytes = lengths[count % 10];
            at[count] = offset;
            MPI_Irecv(area + offset, (int)bytes, MPI_CHAR, 1, count,
                      MPI_COMM_WORLD, &requests[count]);
            offset += bytes + (size_t)(count % 3);
            count++;
        }
        MPI_Send(&count, 1, MPI_INT, 1, PARTS, MPI_COMM_WORLD);
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < count; i++) {
            size_t bytes = lengths[i % 10];
            for (size_t k = 0; k < bytes; k++) {
                CHECK(area[at[i] + k] == (char)(i + 1));
            }
            CHECK(i % 3 == 0 || area[at[i] + bytes] == 0x55);
        }
        CHECK(area[2] == 0x55);
    } else if (rank == 1) {
        int count = 0;
        MPI_Recv(&count, 1, MPI_INT, 0, PARTS, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        /* The others have touched theirs since. */
        for (int other = 2; other < size; other++) {
            MPI_Recv(NULL, 0, MPI_INT, other, PARTS, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        }
        for (int i = count - 1; i >= 0; i--) {
            memset(area, i + 1, 300000 + 5);
            MPI_Send(area + i % 5, (int)lengths[i % 10], MPI_CHAR, 0, i,
                     MPI_COMM_WORLD);
        }
    } else {
        memset(area, 1, 12 * MIB);
        MPI_Send(NULL, 0, MPI_INT, 1, PARTS, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    wrap_free(area);
    return 0;
}

static void test_parts(void **state)
{
    (void)state;
    run_short(68 * MIB, 9, body_parts);
}

/* A part of each heap is made another mapping, which cannot be moved as one
 * with the rest; and what was never written stays zero, whichever pages come.
 */
static int body_mappings(int rank, int size)
{
    enum { HOLE = 12 };
    uint64_t *mine = words(rank, WORDS);
    uintptr_t page = ((uintptr_t)mine + 65536) & ~(uintptr_t)4095;
    char *zero = zeroed_alloc(3, MIB), *last = zeroed_alloc(1, MIB);
    CHECK(size > 1 && zero != NULL && last != NULL);
    if (rank % 2 == 0) {
        memset(last, 1, MIB);
    }
    if (rank % 3 == 0) {
        CHECK(madvise((void *)page, 4096, MADV_DONTDUMP) == 0);
    }
    for (size_t at = 0; at < 3 * MIB; at += HOLE * 4096) {
        zero[at] = (char)(rank + 1);
    }
    for (int round = 0; round < 4; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(words_are(mine, rank, 0, WORDS));
        for (size_t at = 0; at < 3 * MIB; at += 4096) {
            CHECK(zero[at] == (at % (HOLE * 4096) == 0 ? (char)(rank + 1) : 0));
            CHECK(zero[at + 4095] == 0);
        }
        mine[round * 70001] = 0;
        mine[round * 70001] = word(rank, (size_t)round * 70001);
    }
    for (size_t at = 0; at < MIB; at += 512) {
        CHECK(last[at] == (rank % 2 == 0));
    }
    wrap_free(last);
    wrap_free(zero);
    wrap_free(mine);
    return 0;
}

static void test_mappings(void **state)
{
    (void)state;
    run_short(40 * MIB, 12, body_mappings);
    /* The same in huge pages. */
    run_short(80 * MIB, 16, body_mappings);
}

/* Messages that stay with the run until they are wanted: no rank waits for its
 * neighbour, and more of them than there is room for. */
static int body_kept(int rank, int size)
{
    enum { BYTES = 60000, MANY = 100 };
    int before = (rank + size - 1) % size, after = (rank + 1) % size;
    char *mine = wrap_malloc(BYTES), *theirs = wrap_malloc(BYTES);
    char *more = wrap_malloc((size_t)MANY * BYTES);
    uint64_t *beside = words(rank, WORDS);
    MPI_Request requests[MANY];
    for (int round = 0; round < 20; round++) {
        memset(mine, rank + round, BYTES);
        MPI_Send(mine, BYTES, MPI_CHAR, after, 1, MPI_COMM_WORLD);
        memset(mine, 0x11, BYTES);
        MPI_Recv(theirs, BYTES, MPI_CHAR, before, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        CHECK(theirs[0] == (char)(before + round));
        CHECK(memcmp(theirs, theirs + 1, BYTES - 1) == 0);
    }
    for (int i = 0; i < MANY; i++) {
        memset(more + (size_t)i * BYTES, rank + i, BYTES);
        MPI_Isend(more + (size_t)i * BYTES, BYTES, MPI_CHAR, after, i,
                  MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = MANY - 1; i >= 0; i--) {
        MPI_Recv(theirs, BYTES, MPI_CHAR, before, i, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        CHECK(theirs[BYTES / 2] == (char)(before + i));
        CHECK(memcmp(theirs, theirs + 1, BYTES - 1) == 0);
    }
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    CHECK(words_are(beside, rank, 0, WORDS));
    wrap_free(beside);
    wrap_free(more);
    wrap_free(theirs);
    wrap_free(mine);
    return 0;
}

static void test_kept(void **state)
{
    (void)state;
    run_short(48 * MIB, 12, body_kept);
}

/* Bytes from one to another: none to 40,000, at odd places. */
static int piece_bytes(int from, int to)
{
    static const int lengths[] = {1237, 40001, 20011, 0,
                                  333,  16384, 9973,  30000};
    return lengths[(from * 5 + to * 3) % 8];
}

static bool piece_is(const char *data, int bytes, int from, int to)
{
    for (int i = 0; i < bytes; i++) {
        if (data[i] != (char)(from * 31 + to * 7 + i)) {
            return false;
        }
    }
    return true;
}

/* Each gets pieces that begin and end inside pages, one beside the other, with
 * a gap of a byte now and then, by which it is seen what is written. */
static int body_pieces(int rank, int size)
{
    int *counts = wrap_malloc(4 * (size_t)size * sizeof(int));
    int *places = counts + size, *came = places + size, *at = came + size;
    int sent = 1, total = 3;
    for (int i = 0; i < size; i++) {
        counts[i] = piece_bytes(rank, i);
        places[i] = sent;
        sent += counts[i];
        came[i] = piece_bytes(i, rank);
        at[i] = total;
        total += came[i] + (i % 3 == 0);
    }
    char *out = wrap_malloc((size_t)sent), *in = wrap_malloc((size_t)total + 1);
    uint64_t *more = words(rank, WORDS / 2);
    CHECK(out != NULL && in != NULL);
    for (int to = 0; to < size; to++) {
        for (int i = 0; i < counts[to]; i++) {
            out[places[to] + i] = (char)(rank * 31 + to * 7 + i);
        }
    }
    for (int round = 0; round < 2; round++) {
        memset(in, 0x77, (size_t)total + 1);
        MPI_Alltoallv(out, counts, places, MPI_CHAR, in, came, at, MPI_CHAR,
                      MPI_COMM_WORLD);
        for (int i = 0; i < size; i++) {
            CHECK(piece_is(in + at[i], came[i], i, rank));
            CHECK(i % 3 != 0 || in[at[i] + came[i]] == 0x77);
        }
        CHECK(in[2] == 0x77 && in[total] == 0x77);
        CHECK(words_are(more, rank, 0, WORDS / 2));
    }
    wrap_free(more);
    wrap_free(in);
    wrap_free(out);
    wrap_free(counts);
    return 0;
}

static void test_pieces(void **state)
{
    (void)state;
    run_short(24 * MIB, 16, body_pieces);
    /* Hardly any room for the ends of pieces. */
    run_short(12 * MIB, 16, body_pieces);
}

/* What one rank writes to and reads from the memory of another that is away:
 * parts of all lengths, over each other and beside each other. */
enum { COPIED = 1 << 20, COPIES = 400 };
static char copied[COPIED], copied_back[COPIED];
static char *copied_to;

static void copy_out(size_t at, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        copied[at + i] = (char)(seed + i);
    }
    context_copy_async(copied_to + at, copied + at, bytes);
}

static void copy_some(uint32_t *state)
{
    static const size_t lengths[] = {1, 100, 4095, 9000, 17000, 40000, 70000};
    size_t bytes = lengths[model_next(state) % 7];
    size_t at = model_next(state) % (COPIED - 4 * bytes);
    if (model_next(state) % 4 == 0) {
        context_copy(copied_back, copied_to + at, 4 * bytes);
        CHECK(memcmp(copied_back, copied + at, 4 * bytes) == 0);
        return;
    }
    /* Some beside each other, up or down, and on a page's bound or not. */
    at = model_next(state) % 3 == 0 ? at & ~(size_t)4095 : at;
    int count = 1 + (int)(model_next(state) % 4);
    bool down = model_next(state) % 2 == 0;
    for (int i = 0; i < count; i++) {
        size_t place = at + (size_t)(down ? count - 1 - i : i) * bytes;
        copy_out(place, bytes, model_next(state));
    }
    context_copy_wait();
}

static int body_copies(int rank, int size)
{
    char *mine = wrap_malloc(COPIED + 64), byte = 0;
    uint64_t *more = words(rank, WORDS);
    uint32_t state = 5;
    memset(mine, 0, COPIED + 64);
    if (rank == 0) {
        memset(copied, 0, COPIED);
        copied_to = mine + 5;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(words_are(more, rank, 0, WORDS));
    if (rank == 1) {
        for (int i = 2; i < size; i++) {
            MPI_Recv(&byte, 1, MPI_CHAR, i, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        }
        for (int i = 0; i < COPIES; i++) {
            copy_some(&state);
        }
        MPI_Send(&byte, 1, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    } else if (rank == 0) {
        MPI_Recv(&byte, 1, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(memcmp(mine + 5, copied, COPIED) == 0);
        CHECK(words_are(more, rank, 0, WORDS));
    } else {
        MPI_Send(&byte, 1, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    wrap_free(more);
    wrap_free(mine);
    return 0;
}

static void test_copies(void **state)
{
    struct context_sums sums;
    (void)state;
    /* With room for notes, and with hardly any. */
    for (int memory = 40; memory >= 10; memory -= 30) {
        struct vrank_outcome out = run_within(memory * MIB, (int)memory * 3 / 5,
                                              1, scratch(), body_copies, &sums);
        assert_int_equal(out.status, 0);
        assert_true(sums.written_parts > MIB && sums.read_parts > MIB);
    }
    poise_buf_free(&run.said);
}

/* Memory of a rank, wanted by what progress does on its stack while the rank
 * waits and its context is on disk. */
static char *late;

static int late_progress(void *arg)
{
    (void)arg;
    if (late != NULL && vrank_self() != NULL) {
        context_copy(late, "late", 5);
        late = NULL;
    }
    return 0;
}

static int late_body(struct vrank *rank, void *arg)
{
    (void)arg;
    context_adopt(rank, vrank_number(rank));
    char *data = wrap_malloc(MIB);
    CHECK(data != NULL);
    memset(data, 'x', MIB);
    late = data + 12345;
    while (late != NULL) {
        vrank_yield();
    }
    CHECK(strcmp(data + 12345, "late") == 0);
    CHECK(data[12344] == 'x' && data[12350] == 'x' && data[MIB - 1] == 'x');
    return 0;
}

static void test_suspended(void **state)
{
    (void)state;
    static const struct vrank_mpi_ops ops = {.progress = late_progress};
    const struct context_options options = {.memory_bytes = 64 * MIB,
                                            .scratch = scratch(),
                                            .count = 1,
                                            .threads = 1,
                                            .always = true};
    struct vrank_job job = {.count = 1,
                            .policy = POISE_VRANK_COSCHEDULE,
                            .stack_bytes = 256 << 10,
                            .body = late_body,
                            .mpi = &ops,
                            .swap = &context_swap_ops};
    struct vrank_outcome out = {.status = -1};
    run = (struct run){0};
    assert_int_equal(context_begin(&options), 0);
    assert_int_equal(vrank_run_job(&job, &out), 0);
    context_end();
    assert_int_equal(run.wrong, 0);
    assert_int_equal(out.status, 0);
}

/* ---- what goes wrong ---------------------------------------------------- */

static int body_greedy(int rank, int size)
{
    void *all[64];
    int count = 0;
    (void)size;
    /* Most of the memory that is left, and no more. */
    while (count < 64 && (all[count] = wrap_malloc(MIB)) != NULL) {
        memset(all[count++], rank, MIB);
    }
    CHECK(count >= 20 && count <= 25);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) {
        CHECK(((char *)all[i])[MIB / 2] == (char)rank);
        wrap_free(all[i]);
    }
    CHECK(wrap_malloc(MIB) != NULL);
    return 0;
}

static void test_greedy(void **state)
{
    struct context_sums sums;
    (void)state;
    most = 24 * MIB;
    struct vrank_outcome out =
        run_within(32 * MIB, 4, 1, scratch(), body_greedy, &sums);
    most = 0;
    assert_int_equal(out.status, 0);
    const char *said = poise_buf_str(&run.said);
    assert_non_null(strstr(said, "got no memory"));
    assert_null(strstr(strstr(said, "got no memory") + 1, "got no memory"));
    poise_buf_free(&run.said);
}

enum { LARGER = 12 };

/* Each rank in turn has more than the memory: what the others send, in blocks
 * that grow, are given back, and come again. */
static int body_larger(int rank, int size)
{
    uint64_t *mine = words(rank, WORDS), *all = NULL;
    char *blocks[LARGER];
    for (int root = 0; root < size; root += 3) {
        if (rank == root) {
            all = wrap_malloc((size_t)size * WORDS * sizeof *all);
            CHECK(all != NULL);
        }
        MPI_Gather(mine, WORDS, MPI_UINT64_T, all, WORDS, MPI_UINT64_T, root,
                   MPI_COMM_WORLD);
        for (int from = 0; rank == root && from < size; from++) {
            CHECK(words_are(all + (size_t)from * WORDS, from, 0, WORDS));
        }
        for (int i = 0; i < LARGER && rank == root; i++) {
            blocks[i] = zeroed_alloc(1, 2 * MIB + 1000);
            CHECK(blocks[i] != NULL && blocks[i][MIB] == 0);
            memset(blocks[i], i + 1, 2 * MIB + 1000);
        }
        MPI_Bcast(mine, WORDS, MPI_UINT64_T, root, MPI_COMM_WORLD);
        CHECK(words_are(mine, root, 0, WORDS));
        for (size_t i = 0; i < WORDS; i++) {
            mine[i] = word(rank, i);
        }
        for (int i = 0; i < LARGER && rank == root; i++) {
            CHECK(blocks[i][0] == i + 1);
            CHECK(memcmp(blocks[i], blocks[i] + 1, 2 * MIB + 999) == 0);
            wrap_free(blocks[i]);
        }
        if (rank == root) {
            wrap_free(all);
        }
    }
    wrap_free(mine);
    return 0;
}

static void test_larger(void **state)
{
    struct context_sums sums;
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        struct vrank_outcome out =
            run_within(16 * MIB, 9, threads, scratch(), body_larger, &sums);
        assert_int_equal(out.status, 0);
        assert_string_equal(poise_buf_str(&run.said), "");
    }
}

/* A run in which the k-th call of a kind fails: whether there were so many. */
static bool run_fault(enum poise_fault kind, uint64_t k, int code,
                      const char *says)
{
    const struct context_options options = {.memory_bytes = 16 * MIB,
                                            .scratch = scratch(),
                                            .count = 6,
                                            .threads = 1};
    const struct vrank_mpi_ops *ops;
    struct vrank_outcome out = {.status = -1};
    poise_buf_free(&run.said);
    run = (struct run){.body = body_reduce};
    assert_int_equal(mpi_job_begin(NULL, &ops), 0);
    struct vrank_job job = {.count = 6,
                            .stack_bytes = 256 << 10,
                            .body = run_body,
                            .mpi = ops,
                            .swap = &context_swap_ops,
                            .say = run_say};
    poise_fault_arm(kind, k, code, true);
    int result = context_begin(&options);
    if (result == 0) {
        result = vrank_run_job(&job, &out);
    }
    bool failed = poise_fault_calls(kind) >= k;
    poise_fault_arm(kind, 0, 0, false);
    mpi_job_end();
    context_end();
    assert_true(result == 0 || result == -ENOMEM);
    assert_true(!failed || result < 0 || out.status != 0);
    if (failed && says != NULL) {
        const char *said = poise_buf_str(&run.said);
        assert_int_equal(out.status, POISE_VRANK_FAILED);
        assert_non_null(strstr(said, says));
        assert_non_null(strstr(said, scratch()));
    }
    assert_true(failed || out.status == 0);
    return failed;
}

/* Each transfer and allocation fails: the job ends and says why. */
static void test_faults(void **state)
{
    (void)state;
    for (uint64_t k = 1;
         run_fault(POISE_FAULT_WRITE, k, ENOSPC, "No space left on device");
         k += k) {
    }
    for (uint64_t k = 1;
         run_fault(POISE_FAULT_READ, k, EIO, "Input/output error"); k += k) {
    }
    for (uint64_t k = 1; run_fault(POISE_FAULT_ALLOC, k, ENOMEM, NULL);
         k += k < 24 ? 1 : k) {
    }
    poise_buf_free(&run.said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),      cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_reduce),    cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_parts),     cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_mappings),  cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_kept),      cmocka_unit_test(test_copies),
        cmocka_unit_test(test_suspended), cmocka_unit_test(test_larger),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
