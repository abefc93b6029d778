/*
 * The scheduler of virtual ranks: switching, waiting and waking on one and on
 * several workers, policies, timers.
 */
#include "sched.h"

#include <errno.h>
#include <fenv.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- one worker --------------------------------------------------------- */

static void test_round_robin(void **state)
{
    (void)state;
    struct shared shared = {0};
    struct vrank_outcome out = run(&shared, 3, 1, in_turn);
    assert_int_equal(out.status, 0);
    assert_false(out.aborted);
    assert_int_equal(shared.count, 12);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(shared.order[i], i % 3);
    }
    assert_int_equal(shared.wrong, 0);
    assert_true(out.switches >= 12);
    assert_int_equal(run(&shared, 1, 1, in_turn).status, 0);
}

/* Any worker. */
static void is_wrong(struct shared *shared, bool wrong)
{
    if (wrong) {
        __atomic_fetch_add(&shared->wrong, 1, __ATOMIC_RELAXED);
    }
}

/* What belongs to each rank over a switch: registers, errno, the rounding
 * mode of both floating-point units, the last error. */
static int keep_own(struct vrank *rank, void *arg)
{
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD,
                                FE_TOWARDZERO};
    struct shared *shared = arg;
    int number = vrank_number(rank);
    uint64_t sum = 0, want = 0;
    double x = number + 0.5;
    fesetround(modes[number % 4]);
    errno = 1000 + number;
    poise_error_set(EINVAL, "test", NULL, "%d", number);
    for (uint64_t i = 1; i <= 50; i++) {
        sum += i * (uint64_t)number;
        want += i * (uint64_t)number;
        vrank_yield();
        x += 1;
        is_wrong(shared, errno != 1000 + number);
        is_wrong(shared, fegetround() != modes[number % 4]);
        is_wrong(shared, atoi(poise_error_last()->why) != number);
    }
    volatile double one = 1, three = 3;
    volatile long double lone = 1, lthree = 3;
    volatile double third = one / three;
    volatile long double lthird = lone / lthree;
    fesetround(FE_TONEAREST);
    bool is_up = number % 4 == 1;
    is_wrong(shared, is_up != (third > one / three));
    /* The nearest of these is the upper one. */
    bool is_down = number % 4 >= 2;
    is_wrong(shared, is_down != (lthird < lone / lthree));
    is_wrong(shared, sum != want || x != number + 50.5);
    return 0;
}

static void test_keep_own(void **state)
{
    (void)state;
    struct shared shared = {0};
    int mode = fegetround();
    errno = 77;
    run(&shared, 8, 1, keep_own);
    assert_int_equal(shared.wrong, 0);
    assert_int_equal(fegetround(), mode);
    run(&shared, 9, 3, keep_own);
    assert_int_equal(shared.wrong, 0);
}

/* The C library's gives the processor to another process; how often that was
 * done is what a test wants to know. */
static int given_away; /* atomic */

int sched_yield(void)
{
    __atomic_fetch_add(&given_away, 1, __ATOMIC_RELAXED);
    return (int)syscall(SYS_sched_yield);
}

static int poll_often(struct vrank *rank, void *arg)
{
    (void)rank;
    (void)arg;
    for (int i = 0; i < 640; i++) {
        vrank_poll("a test");
    }
    return 0;
}

/* What a rank polls for may come from a process that has no processor. */
static void test_poll_gives_way(void **state)
{
    (void)state;
    struct shared shared = {0};
    for (int ranks = 1; ranks <= 2; ranks++) {
        int before = __atomic_load_n(&given_away, __ATOMIC_RELAXED);
        run(&shared, ranks, 1, poll_often);
        int given = __atomic_load_n(&given_away, __ATOMIC_RELAXED) - before;
        assert_in_range(given, 10 * ranks, 640 * ranks);
    }
}

static void *exceptions_of_thread(void)
{
    static _Thread_local struct vrank_exceptions own;
    return &own;
}

static int keep_exceptions(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    struct vrank_exceptions *own = exceptions_of_thread();
    shared->wrong += own->caught != NULL || own->uncaught != 0;
    for (int i = 0; i < 5; i++) {
        own->caught = rank;
        own->uncaught = (uintptr_t)vrank_number(rank);
        vrank_yield();
        shared->wrong += own->caught != rank;
        shared->wrong += own->uncaught != (uintptr_t)vrank_number(rank);
    }
    return 0;
}

static void test_exceptions(void **state)
{
    (void)state;
    struct shared shared = {0};
    struct vrank_job job = {.count = 5,
                            .body = keep_exceptions,
                            .exceptions = exceptions_of_thread,
                            .arg = &shared};
    struct vrank_outcome out;
    assert_int_equal(vrank_run_job(&job, &out), 0);
    assert_int_equal(shared.wrong, 0);
}

/* Rank 0 leaves permits before the others park. */
static int permits(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    if (vrank_number(rank) == 0) {
        for (int i = 1; i < vrank_count(); i++) {
            vrank_unpark(vrank_local(i));
            vrank_unpark(vrank_local(i));
        }
        return 0;
    }
    vrank_park("test");
    shared->order[shared->count++] = vrank_number(rank);
    return 0;
}

static void test_permits(void **state)
{
    (void)state;
    struct shared shared = {0};
    assert_int_equal(run(&shared, 5, 1, permits).status, 0);
    assert_int_equal(shared.count, 4);
}

/* ---- several workers ---------------------------------------------------- */

static void test_ring(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 7};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        struct shared shared = {0};
        struct vrank_outcome out = run(&shared, 10, threads[i], ring);
        assert_int_equal(out.status, 0);
        assert_false(out.deadlock);
        assert_int_equal(shared.said_lines, 0);
        for (int r = 0; r < 10; r++) {
            assert_int_equal(shared.tokens[r], 300);
        }
    }
}

/* Everybody wakes random others and waits for as many wake-ups as were sent to
 * it: none may be lost, however far each is. */
static int wake_at_random(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    int self = vrank_number(rank), count = vrank_count();
    struct poise_rng rng;
    poise_rng_seed(&rng, (uint64_t)self);
    for (int round = 1; round <= 200; round++) {
        int to = (self + round) % count;
        __atomic_fetch_add(&shared->tokens[to], 1, __ATOMIC_RELEASE);
        vrank_unpark(vrank_local(to));
        if (poise_rng_below(&rng, 4) == 0) {
            vrank_yield();
        }
        while (__atomic_load_n(&shared->tokens[self], __ATOMIC_ACQUIRE) <
               (uint64_t)round) {
            vrank_park("a wake-up");
        }
    }
    return 0;
}

static void test_wake_at_random(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        struct shared shared = {0};
        struct vrank_outcome out = run(&shared, 23, threads, wake_at_random);
        assert_int_equal(out.status, 0);
        assert_false(out.deadlock);
        for (int r = 0; r < 23; r++) {
            assert_int_equal(shared.tokens[r], 200);
        }
    }
}

static struct vrank_spin spin;

static int count_under_lock(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    (void)rank;
    for (int i = 0; i < 2000; i++) {
        vrank_spin_lock(&spin);
        shared->turns++;
        vrank_spin_unlock(&spin);
        if (i % 16 == 0) {
            vrank_yield();
        }
    }
    return 0;
}

static void test_spin(void **state)
{
    (void)state;
    struct shared shared = {0};
    run(&shared, 6, 3, count_under_lock);
    assert_int_equal(shared.turns, 12000);
}

static int where(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    shared->order[vrank_number(rank)] = vrank_worker_of(rank);
    __atomic_fetch_add(&shared->wrong, !vrank_is_here(rank), __ATOMIC_RELAXED);
    __atomic_fetch_add(&shared->wrong,
                       vrank_communicates() != (vrank_worker_of(rank) == 0),
                       __ATOMIC_RELAXED);
    return 0;
}

/* A rank that waits for a lock keeps its worker: it may be half-way through a
 * switch, where another rank must not run. Ranks 0 and 1 belong to one worker,
 * 2 and 3 to the other. */
static struct vrank_spin slow_lock;
static bool is_kept;

static int keep_lock(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    switch (vrank_number(rank)) {
    case 0:
        while (!__atomic_load_n(&is_kept, __ATOMIC_ACQUIRE)) {
            vrank_yield();
        }
        shared->turns = 0;
        vrank_spin_lock(&slow_lock);
        shared->calls = shared->turns; /* of rank 1, meanwhile */
        vrank_spin_unlock(&slow_lock);
        shared->count = 1;
        break;
    case 1:
        while (shared->count == 0) {
            shared->turns++;
            vrank_yield();
        }
        break;
    case 2:
        vrank_spin_lock(&slow_lock);
        __atomic_store_n(&is_kept, true, __ATOMIC_RELEASE);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        vrank_spin_unlock(&slow_lock);
        break;
    default:
        break;
    }
    return 0;
}

static void test_spin_keeps_worker(void **state)
{
    (void)state;
    struct shared shared = {0};
    is_kept = false;
    shared.calls = -1;
    assert_int_equal(run(&shared, 4, 2, keep_lock).status, 0);
    assert_int_equal(shared.calls, 0);
}

static void test_workers(void **state)
{
    (void)state;
    struct shared shared = {0};
    run(&shared, 5, 2, where);
    assert_int_equal(shared.wrong, 0);
    static const int want[] = {0, 0, 0, 1, 1};
    assert_memory_equal(shared.order, want, sizeof want);
    /* No more workers than ranks. */
    run(&shared, 2, 9, where);
    assert_int_equal(shared.order[1], 1);
}

/* ---- policies ----------------------------------------------------------- */

static int compute_alone(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    (void)rank;
    for (int i = 0; i < 200; i++) {
        int others = __atomic_fetch_add(&shared->turns, 1, __ATOMIC_SEQ_CST);
        is_wrong(shared, others != 0);
        __atomic_fetch_sub(&shared->turns, 1, __ATOMIC_SEQ_CST);
        vrank_yield();
    }
    return 0;
}

static void run_policy(struct shared *shared, int count, int threads,
                       enum poise_vrank_policy policy,
                       int (*body)(struct vrank *, void *))
{
    struct vrank_job job = {.count = count,
                            .threads = threads,
                            .policy = policy,
                            .stack_bytes = 64 << 10,
                            .body = body,
                            .arg = shared};
    struct vrank_outcome out;
    assert_int_equal(vrank_run_job(&job, &out), 0);
    assert_false(out.aborted);
}

static void test_serial(void **state)
{
    (void)state;
    struct shared shared = {0};
    run_policy(&shared, 9, 3, POISE_VRANK_SERIAL, compute_alone);
    assert_int_equal(shared.wrong, 0);
}

/* Whatever the policy: no rank is forgotten. */
static void test_policies(void **state)
{
    (void)state;
    for (int policy = 0; policy < POISE_VRANK_POLICIES; policy++) {
        for (int threads = 1; threads <= 3; threads++) {
            struct shared shared = {0};
            run_policy(&shared, 11, threads, (enum poise_vrank_policy)policy,
                       wake_at_random);
            assert_int_equal(shared.tokens[10], 200);
        }
    }
}

/* Rank 0 wakes 1, 2 and 3 in turn. */
static int wake_in_turn(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    if (vrank_number(rank) == 3) {
        vrank_prioritize(rank);
    }
    if (vrank_number(rank) == 0) {
        vrank_yield();
        for (int i = 1; i < vrank_count(); i++) {
            vrank_unpark(vrank_local(i));
        }
        return 0;
    }
    vrank_park("test");
    shared->order[shared->count++] = vrank_number(rank);
    return 0;
}

static void test_order(void **state)
{
    (void)state;
    static const struct {
        enum poise_vrank_policy policy;
        int order[3];
    } cases[] = {
        {POISE_VRANK_ROUND_ROBIN, {1, 2, 3}},
        {POISE_VRANK_PRIORITY, {3, 1, 2}},
        {POISE_VRANK_UNBLOCKED, {3, 2, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shared shared = {0};
        run_policy(&shared, 4, 1, cases[i].policy, wake_in_turn);
        assert_memory_equal(shared.order, cases[i].order,
                            sizeof cases[i].order);
    }
}

static int count_progress(void *arg)
{
    ((struct shared *)arg)->calls++;
    return 0;
}

static void test_coschedule(void **state)
{
    (void)state;
    static const struct vrank_mpi_ops ops = {.progress = count_progress};
    struct shared shared = {0};
    struct vrank_job job = {.count = 4,
                            .policy = POISE_VRANK_COSCHEDULE,
                            .body = in_turn,
                            .mpi = &ops,
                            .arg = &shared};
    struct vrank_outcome out;
    assert_int_equal(vrank_run_job(&job, &out), 0);
    /* Four yields of four ranks. */
    assert_true(shared.calls >= 16);
    shared.calls = shared.count = 0;
    job.policy = POISE_VRANK_ROUND_ROBIN;
    assert_int_equal(vrank_run_job(&job, &out), 0);
    assert_true(shared.calls < 16);
}

/* Compute for longer than a message should have to wait. */
static int compute_in_turn(struct vrank *rank, void *arg)
{
    (void)rank;
    (void)arg;
    for (int i = 0; i < 10; i++) {
        uint64_t until_ns = poise_clock_ns() + 50000;
        while (poise_clock_ns() < until_ns) {
        }
        vrank_yield();
    }
    return 0;
}

static void test_look(void **state)
{
    (void)state;
    static const struct vrank_mpi_ops ops = {.progress = count_progress};
    static const int placed[] = {0, 0, 0, 0, 1};
    struct shared shared = {0};
    struct vrank_job job = {.count = 4,
                            .body = compute_in_turn,
                            .placed = placed,
                            .mpi = &ops,
                            .arg = &shared};
    struct vrank_outcome out;
    assert_int_equal(vrank_run_job(&job, &out), 0);
    assert_true(shared.calls < 20);
    /* With others: after each of forty computations. */
    shared.calls = 0;
    job.count = 5;
    job.processes = 2;
    assert_int_equal(vrank_run_job(&job, &out), 0);
    assert_true(shared.calls >= 40);
}

/* ---- time --------------------------------------------------------------- */

static int sleepers(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    int self = vrank_number(rank);
    if (self == 0) {
        /* The last sleeper is woken long before its time. */
        vrank_unpark(vrank_local(vrank_count() - 1));
        return 0;
    }
    uint64_t start_ns = poise_clock_ns();
    uint64_t wait_ns = self == vrank_count() - 1
                           ? UINT64_C(1000000000000)
                           : (uint64_t)(vrank_count() - self) * 2000000;
    shared->start_ns[self] = start_ns;
    shared->due_ns[self] = start_ns + wait_ns;
    vrank_park_until("sleep", start_ns + wait_ns);
    uint64_t slept_ns = poise_clock_ns() - start_ns;
    shared->wrong += self != vrank_count() - 1 && slept_ns < wait_ns;
    shared->order[shared->count++] = self;
    return 0;
}

static void test_sleepers(void **state)
{
    (void)state;
    struct shared shared = {0};
    struct vrank_outcome out = run(&shared, 12, 1, sleepers);
    assert_false(out.deadlock);
    assert_int_equal(shared.wrong, 0);
    assert_int_equal(shared.count, 11);
    for (int i = 0; i < 11; i++) {
        int first = shared.order[i];
        for (int k = i + 1; k < 11; k++) {
            int second = shared.order[k];
            /* Unless it began to sleep when the first one's time was over. */
            bool is_wrong = first != 11 && second != 11 &&
                            shared.due_ns[second] < shared.due_ns[first] &&
                            shared.start_ns[second] < shared.due_ns[first];
            assert_false(is_wrong);
        }
    }
}

/* The heap against a plain search. */
static void test_timer_heap(void **state)
{
    (void)state;
    enum { RANKS = 40 };
    static struct vrank ranks[RANKS];
    struct vrank *timers[RANKS];
    struct vrank_worker worker = {.timers = timers};
    struct poise_rng rng;
    poise_rng_seed(&rng, 3);
    for (int i = 0; i < RANKS; i++) {
        ranks[i].timer = -1;
    }
    for (int step = 0; step < 20000; step++) {
        struct vrank *rank = &ranks[poise_rng_below(&rng, RANKS)];
        if (rank->timer < 0) {
            rank->deadline_ns = poise_rng_below(&rng, 1000);
            timer_add(&worker, rank);
        } else {
            timer_remove(&worker, rank);
        }
        uint64_t least = UINT64_MAX;
        int in = 0;
        for (int i = 0; i < RANKS; i++) {
            if (ranks[i].timer >= 0) {
                in++;
                assert_ptr_equal(timers[ranks[i].timer], &ranks[i]);
                if (ranks[i].deadline_ns < least) {
                    least = ranks[i].deadline_ns;
                }
            }
        }
        assert_int_equal(in, worker.timer_count);
        if (in > 0) {
            assert_int_equal(timers[0]->deadline_ns, least);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_robin),
        cmocka_unit_test(test_keep_own),
        cmocka_unit_test(test_poll_gives_way),
        cmocka_unit_test(test_exceptions),
        cmocka_unit_test(test_permits),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_wake_at_random),
        cmocka_unit_test(test_spin),
        cmocka_unit_test(test_spin_keeps_worker),
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_serial),
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_coschedule),
        cmocka_unit_test(test_look),
        cmocka_unit_test(test_sleepers),
        cmocka_unit_test(test_timer_heap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
