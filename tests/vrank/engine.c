/*
 * A run of virtual ranks: deadlock and the other ways in which it ends, what
 * MPI hooks into it, placement, jobs that cannot run.
 */
#include "sched.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- how a run ends ----------------------------------------------------- */

static int forget(struct vrank *rank, void *arg)
{
    (void)arg;
    if (vrank_number(rank) > 0) {
        for (;;) {
            vrank_park("MPI_Recv");
        }
    }
    return 0;
}

static void test_deadlock(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct shared shared = {0};
        struct vrank_outcome out = run(&shared, 4, threads, forget);
        assert_true(out.deadlock);
        assert_true(out.aborted);
        assert_int_equal(out.status, POISE_VRANK_FAILED);
        assert_string_equal(poise_buf_str(&shared.said),
                            "deadlock: 3 of 4 virtual ranks wait for ever, "
                            "and no message is on its way\n"
                            "  rank 1 waits in MPI_Recv\n"
                            "  rank 2 waits in MPI_Recv\n"
                            "  rank 3 waits in MPI_Recv\n");
        poise_buf_free(&shared.said);
    }
}

static int abort_one(struct vrank *rank, void *arg)
{
    (void)arg;
    if (vrank_number(rank) == 2) {
        vrank_abort(7, "rank %d gives up", 2);
    }
    while (vrank_count() > 0) {
        if (vrank_number(rank) % 2 == 0) {
            vrank_park("for ever");
        } else {
            vrank_yield();
        }
    }
    return 0;
}

static void test_abort(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct shared shared = {0};
        struct vrank_outcome out = run(&shared, 6, threads, abort_one);
        assert_true(out.aborted);
        assert_false(out.deadlock);
        assert_int_equal(out.status, 7);
        assert_string_equal(poise_buf_str(&shared.said), "rank 2 gives up\n");
        poise_buf_free(&shared.said);
    }
}

static int deep(int level)
{
    volatile int kept = level;
    if (level == 0) {
        vrank_exit(5);
    }
    return level > 50 ? 0 : deep(level - 1) + kept;
}

static int exit_deep(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    if (vrank_number(rank) == 1) {
        return deep(50);
    }
    vrank_yield();
    vrank_yield();
    shared->count++;
    return vrank_number(rank) == 3 ? 6 : 0;
}

static void test_exit(void **state)
{
    (void)state;
    struct shared shared = {0};
    struct vrank_outcome out = run(&shared, 4, 1, exit_deep);
    assert_int_equal(out.status, 5);
    assert_false(out.aborted);
    assert_int_equal(shared.count, 3);
}

/* An ended rank takes no harm from a late unpark. */
static int unpark_ended(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    if (vrank_number(rank) > 0) {
        return 0;
    }
    for (int i = 0; i < 5; i++) {
        for (int to = 1; to < vrank_count(); to++) {
            vrank_unpark(vrank_local(to));
        }
        vrank_yield();
    }
    shared->count++;
    return 0;
}

static void test_unpark_ended(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct shared shared = {0};
        assert_int_equal(run(&shared, 4, threads, unpark_ended).status, 0);
        assert_int_equal(shared.count, 1);
    }
}

/* ---- what MPI hooks in --------------------------------------------------- */

static int mpi_start(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    __atomic_fetch_add(&shared->started, 1, __ATOMIC_RELAXED);
    vrank_set_mpi(rank, &shared->tokens[vrank_number(rank)]);
    if (shared->turns > 0 && vrank_number(rank) == shared->turns) {
        return poise_error_set(ENOMEM, "begin", NULL, "no luck");
    }
    return 0;
}

static void mpi_end(struct vrank *rank, int status, void *arg)
{
    struct shared *shared = arg;
    __atomic_fetch_add(&shared->ended, 1, __ATOMIC_RELAXED);
    shared->ended_status[vrank_number(rank)] = status;
    shared->wrong += vrank_mpi(rank) != &shared->tokens[vrank_number(rank)];
}

static void mpi_free(struct vrank *rank, void *arg)
{
    (void)rank;
    ((struct shared *)arg)->freed++;
}

/* Every third look finds that rank 1 may go on. */
static int mpi_progress(void *arg)
{
    struct shared *shared = arg;
    if (++shared->calls % 3 == 0) {
        vrank_unpark(vrank_local(1));
        return 1;
    }
    return 0;
}

static int mpi_is_deadlock(void *arg)
{
    (void)arg;
    return 0;
}

static void mpi_idle(uint64_t timeout_ns, void *arg)
{
    struct shared *shared = arg;
    shared->count++;
    (void)timeout_ns;
}

static void mpi_wake(void *arg)
{
    (void)arg;
}

static int mpi_finished(void *arg)
{
    return ((struct shared *)arg)->calls > 100;
}

static void mpi_describe(const struct vrank *rank, struct poise_buf *out,
                         void *arg)
{
    (void)arg;
    poise_buf_printf(out, "from rank %d", vrank_number(rank) + 1);
}

static int park_often(struct vrank *rank, void *arg)
{
    (void)arg;
    for (int i = 0; i < 5 && vrank_number(rank) == 1; i++) {
        vrank_park("progress");
    }
    return vrank_number(rank);
}

static void test_mpi(void **state)
{
    (void)state;
    static const struct vrank_mpi_ops ops = {.rank_start = mpi_start,
                                             .rank_end = mpi_end,
                                             .rank_free = mpi_free,
                                             .progress = mpi_progress,
                                             .is_deadlock = mpi_is_deadlock,
                                             .idle = mpi_idle,
                                             .wake = mpi_wake,
                                             .finished = mpi_finished};
    struct shared shared = {0};
    struct vrank_job job = {
        .count = 3, .body = park_often, .mpi = &ops, .arg = &shared};
    struct vrank_outcome out;
    assert_int_equal(vrank_run_job(&job, &out), 0);
    assert_int_equal(shared.started, 3);
    assert_int_equal(shared.ended, 3);
    assert_int_equal(shared.freed, 3);
    assert_int_equal(shared.wrong, 0);
    assert_int_equal(shared.ended_status[2], 2);
    assert_true(shared.count > 0);
    assert_true(shared.calls > 100);
    /* Of the lowest rank that failed; rank 2 was the first. */
    assert_int_equal(out.status, 1);
}

static void test_mpi_fails(void **state)
{
    (void)state;
    static const struct vrank_mpi_ops ops = {.rank_start = mpi_start,
                                             .rank_free = mpi_free};
    struct shared shared = {.turns = 2};
    struct vrank_job job = {
        .count = 4, .body = forget, .mpi = &ops, .say = say, .arg = &shared};
    struct vrank_outcome out;
    assert_int_equal(vrank_run_job(&job, &out), 0);
    assert_true(out.aborted);
    assert_int_equal(out.status, POISE_VRANK_FAILED);
    assert_string_equal(poise_buf_str(&shared.said), "cannot begin: no luck\n");
    assert_int_equal(shared.freed, 4);
    poise_buf_free(&shared.said);
}

static void test_describe(void **state)
{
    (void)state;
    static const struct vrank_mpi_ops ops = {.describe = mpi_describe};
    struct shared shared = {0};
    struct vrank_job job = {
        .count = 2, .body = forget, .mpi = &ops, .say = say, .arg = &shared};
    struct vrank_outcome out;
    assert_int_equal(vrank_run_job(&job, &out), 0);
    assert_non_null(strstr(poise_buf_str(&shared.said),
                           "\n  rank 1 waits in MPI_Recv from rank 2\n"));
    poise_buf_free(&shared.said);
}

/* ---- placement and errors ----------------------------------------------- */

static int look_around(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    int *ranks = NULL;
    struct vrank *const *locals;
    for (int i = 0; i < vrank_count(); i++) {
        shared->order[i] = vrank_process_of(i);
        shared->wrong +=
            vrank_is_local(i) != (vrank_process_of(i) == vrank_process());
        shared->wrong += vrank_is_local(i) != (vrank_local(i) != NULL);
        shared->wrong += vrank_is_local(i) && vrank_number(vrank_local(i)) != i;
    }
    int count = vrank_ranks_of(vrank_process(), &ranks);
    shared->wrong += count != vrank_locals(&locals);
    for (int i = 0; i < count; i++) {
        shared->wrong += vrank_number(locals[i]) != ranks[i];
    }
    shared->wrong += vrank_self() != rank;
    free(ranks);
    return 0;
}

static void test_placement(void **state)
{
    (void)state;
    static const int block[] = {0, 0, 0, 1, 1, 1, 2, 2};
    static const int cyclic[] = {0, 1, 2, 0, 1, 2, 0, 1};
    static const int given[] = {2, 2, 1, 0, 1, 1, 0, 2};
    for (int process = 0; process < 3; process++) {
        struct shared shared = {0};
        struct vrank_job job = {.count = 8,
                                .processes = 3,
                                .process = process,
                                .body = look_around,
                                .arg = &shared};
        struct vrank_outcome out;
        assert_int_equal(vrank_run_job(&job, &out), 0);
        assert_memory_equal(shared.order, block, sizeof block);
        job.placement = POISE_VRANK_CYCLIC;
        assert_int_equal(vrank_run_job(&job, &out), 0);
        assert_memory_equal(shared.order, cyclic, sizeof cyclic);
        job.placed = given;
        assert_int_equal(vrank_run_job(&job, &out), 0);
        assert_memory_equal(shared.order, given, sizeof given);
        assert_int_equal(shared.wrong, 0);
    }
}

/* More processes than ranks: one holds none, and comes back. */
static void test_no_ranks(void **state)
{
    (void)state;
    struct shared shared = {0};
    struct vrank_job job = {.count = 1,
                            .processes = 2,
                            .process = 1,
                            .threads = 2,
                            .body = in_turn,
                            .arg = &shared};
    struct vrank_outcome out;
    assert_int_equal(vrank_run_job(&job, &out), 0);
    assert_int_equal(shared.count, 0);
}

static int run_again(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    struct vrank_job job = {.count = 1, .body = run_again, .arg = arg};
    struct vrank_outcome out;
    (void)rank;
    shared->wrong += vrank_run_job(&job, &out) != -EBUSY;
    return 0;
}

static void test_bad_jobs(void **state)
{
    (void)state;
    struct shared shared = {0};
    struct vrank_outcome out;
    struct vrank_job none = {.count = 0, .body = in_turn};
    struct vrank_job beyond = {.count = 1, .process = 1, .body = in_turn};
    struct vrank_job huge = {
        .count = 2, .stack_bytes = SIZE_MAX / 2 + 1, .body = in_turn};
    assert_int_equal(vrank_run_job(&none, &out), -EINVAL);
    assert_int_equal(vrank_run_job(&beyond, &out), -EINVAL);
    assert_true(vrank_run_job(&huge, &out) < 0);
    run(&shared, 1, 1, run_again);
    assert_int_equal(shared.wrong, 0);
}

static void test_faults(void **state)
{
    (void)state;
    uint64_t k = 1;
    for (;; k++) {
        struct shared shared = {0};
        struct vrank_job job = {
            .count = 6, .threads = 3, .body = ring, .arg = &shared};
        struct vrank_outcome out;
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        int code = vrank_run_job(&job, &out);
        bool struck = poise_fault_calls(POISE_FAULT_ALLOC) >= k;
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        if (!struck) {
            assert_int_equal(code, 0);
            break;
        }
        assert_int_equal(code, -ENOMEM);
        assert_int_equal(poise_error_last()->code, ENOMEM);
        assert_int_equal(shared.tokens[0], 0);
    }
    assert_true(k > 12);
}

/* A stack that overflows meets its guard, not its neighbour. */
static int overflow(struct vrank *rank, void *arg)
{
    (void)arg;
    volatile char *low = rank->stack;
    low[0] = 1;
    low[-1] = 1;
    return 0;
}

static void test_guard(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct vrank_job job = {.count = 3, .body = overflow};
        struct vrank_outcome out;
        fclose(stderr);
        signal(SIGSEGV, SIG_DFL);
        vrank_run_job(&job, &out);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Stacks an even number of pages apart are translated in half of the sets of
 * the processor's caches, or fewer. */
static int note_stack(struct vrank *rank, void *arg)
{
    const char **stacks = arg;
    stacks[vrank_number(rank)] = rank->stack;
    return 0;
}

static void test_distance(void **state)
{
    (void)state;
    ptrdiff_t page = sysconf(_SC_PAGESIZE);
    for (size_t kib = 16; kib <= 32 << 10; kib += kib / 2) {
        const char *stacks[3] = {NULL};
        struct vrank_job job = {.count = 3,
                                .stack_bytes = kib << 10,
                                .body = note_stack,
                                .arg = stacks};
        struct vrank_outcome out;
        assert_int_equal(vrank_run_job(&job, &out), 0);
        for (int i = 1; i < 3; i++) {
            assert_int_equal((stacks[i] - stacks[i - 1]) / page % 2, 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deadlock), cmocka_unit_test(test_abort),
        cmocka_unit_test(test_exit),     cmocka_unit_test(test_unpark_ended),
        cmocka_unit_test(test_mpi),      cmocka_unit_test(test_mpi_fails),
        cmocka_unit_test(test_describe), cmocka_unit_test(test_placement),
        cmocka_unit_test(test_no_ranks), cmocka_unit_test(test_bad_jobs),
        cmocka_unit_test(test_faults),   cmocka_unit_test(test_guard),
        cmocka_unit_test(test_distance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
