/*
 * What a run of virtual ranks is seen to do: where time goes, for what ranks
 * wait, calls and phases, the file of a profile; ranks that only poll.
 *
 * Times are compared with what the test itself made pass, from below: a busy
 * machine only adds to them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vrank/profile/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../temporary.h"

#define MS UINT64_C(1000000)

struct shared {
    struct profile profile;
    uint64_t network_due_ns; /* when progress wakes rank 0; 0: never */
    int computing, computing_most, order[64], count;
    bool stop, has_idled, holds; /* holds: the network waits for the timer */
    int said;
    char line[400];
};

static void say(const char *line, void *arg)
{
    struct shared *shared = arg;
    shared->said++;
    snprintf(shared->line, sizeof shared->line, "%s", line);
}

static void burn(uint64_t ns)
{
    uint64_t end_ns = poise_clock_ns() + ns;
    while (poise_clock_ns() < end_ns) {
    }
}

/* Progress that wakes rank 0 when its time has come. */
static int progress(void *arg)
{
    struct shared *shared = arg;
    if (shared->network_due_ns == 0 ||
        poise_clock_ns() < shared->network_due_ns) {
        return 0;
    }
    shared->network_due_ns = 0;
    vrank_unpark(vrank_local(0));
    return 1;
}

static void idle(uint64_t timeout_ns, void *arg)
{
    struct shared *shared = arg;
    (void)timeout_ns;
    /* All of the wait is in here, however long this process is away before and
     * after. */
    if (!shared->has_idled && !shared->holds) {
        shared->has_idled = true;
        burn(20 * MS);
        shared->network_due_ns = 1;
    }
    progress(arg);
}

static int never(void *arg)
{
    (void)arg;
    return 0;
}

static void wake(void *arg)
{
    (void)arg;
}

static const struct vrank_mpi_ops network = {
    .progress = progress, .idle = idle, .wake = wake, .is_deadlock = never};

static struct vrank_job job_of(struct shared *shared, int count, int threads,
                               int (*body)(struct vrank *, void *))
{
    return (struct vrank_job){.count = count,
                              .threads = threads,
                              .stack_bytes = 64 << 10,
                              .body = body,
                              .profile_ops = &profile_ops,
                              .profile = &shared->profile,
                              .say = say,
                              .arg = shared};
}

static void run(struct shared *shared, const struct vrank_job *job)
{
    struct vrank_outcome out = {.status = -1};
    assert_int_equal(vrank_run_job(job, &out), 0);
    assert_int_equal(out.status, 0);
    (void)shared;
}

static uint64_t time_ns(const struct shared *shared, int rank,
                        enum poise_vrank_time time)
{
    return poise_clock_ticks_to_ns(
        shared->profile.ranks[rank].times.ticks[time]);
}

/* Clocks of ticks and of nanoseconds agree to a thousandth. */
static void assert_at_least(uint64_t ns, uint64_t want_ns)
{
    assert_true(ns + ns / 500 >= want_ns);
}

/* What must hold for every profile. */
static void assert_sums(const struct profile *profile)
{
    uint64_t whole = profile->end - profile->start, sum = 0;
    for (int i = 0; i <= profile->rank_count; i++) {
        sum += profile->runnable_ticks[i];
    }
    assert_int_equal(sum, whole);
    for (int r = 0; r < profile->rank_count; r++) {
        uint64_t own = 0;
        for (int i = 0; i < POISE_VRANK_TIMES; i++) {
            own += profile->ranks[r].times.ticks[i];
        }
        assert_true(own <= whole);
    }
    assert_int_equal(profile->runnable, 0);
}

/* ---- for what ranks wait ------------------------------------------------ */

static int wait_for_one(struct vrank *rank, void *arg)
{
    (void)arg;
    if (vrank_number(rank) == 0) {
        vrank_park("test");
    } else {
        burn(20 * MS);
        vrank_unpark(vrank_local(0));
        burn(10 * MS);
    }
    return 0;
}

static void test_sync(void **state)
{
    (void)state;
    struct shared shared = {0};
    struct vrank_job job = job_of(&shared, 2, 1, wait_for_one);
    run(&shared, &job);
    assert_at_least(time_ns(&shared, 0, POISE_VRANK_SYNC), 20 * MS);
    assert_at_least(time_ns(&shared, 0, POISE_VRANK_READY), 10 * MS);
    assert_at_least(time_ns(&shared, 1, POISE_VRANK_COMPUTING), 30 * MS);
    assert_int_equal(time_ns(&shared, 0, POISE_VRANK_NETWORK), 0);
    assert_int_equal(time_ns(&shared, 1, POISE_VRANK_SYNC), 0);
    assert_at_least(poise_clock_ticks_to_ns(shared.profile.runnable_ticks[1]),
                    20 * MS);
    assert_at_least(poise_clock_ticks_to_ns(shared.profile.runnable_ticks[2]),
                    10 * MS);
    assert_sums(&shared.profile);
    profile_free(&shared.profile);
}

/* Rank 0 waits for the network, rank 1 for rank 0, rank 2 for a time, which is
 * over before the network's begins, however long this process was away. */
static int wait_for_all(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    switch (vrank_number(rank)) {
    case 0:
        vrank_park("test");
        vrank_unpark(vrank_local(1));
        break;
    case 1:
        vrank_park("test");
        break;
    default:
        vrank_park_until("test", poise_clock_ns() + 5 * MS);
        shared->holds = false;
    }
    return 0;
}

static void test_network(void **state)
{
    (void)state;
    struct shared shared = {.holds = true};
    struct vrank_job job = job_of(&shared, 3, 1, wait_for_all);
    job.mpi = &network;
    run(&shared, &job);
    /* What passes before the wait is computing; what others take, ready. */
    assert_at_least(time_ns(&shared, 0, POISE_VRANK_NETWORK) +
                        time_ns(&shared, 0, POISE_VRANK_READY) +
                        time_ns(&shared, 0, POISE_VRANK_COMPUTING),
                    20 * MS);
    assert_true(time_ns(&shared, 0, POISE_VRANK_NETWORK) > 0);
    assert_at_least(time_ns(&shared, 2, POISE_VRANK_SLEEPING) +
                        time_ns(&shared, 2, POISE_VRANK_READY) +
                        time_ns(&shared, 2, POISE_VRANK_COMPUTING),
                    5 * MS);
    assert_true(time_ns(&shared, 2, POISE_VRANK_SLEEPING) > 0);
    assert_int_equal(time_ns(&shared, 2, POISE_VRANK_NETWORK), 0);
    /* In truth rank 1 waited for the network, too: all stood still, but for
     * what passed until a certain time. */
    assert_true(time_ns(&shared, 1, POISE_VRANK_NETWORK) > 0);
    const struct profile_worker *worker = &shared.profile.workers[0];
    assert_true(worker->idle_by[VRANK_BY_NETWORK] > 0);
    assert_int_equal(worker->idle_by[VRANK_BY_RANK], 0);
    assert_sums(&shared.profile);
    profile_free(&shared.profile);
}

/* Pairs of ranks of two workers that wake each other in turn. */
static int ping(struct vrank *rank, void *arg)
{
    int peer = (vrank_number(rank) + 4) % 8;
    (void)arg;
    for (int i = 0; i < 200; i++) {
        if (vrank_number(rank) < 4) {
            vrank_unpark(vrank_local(peer));
            vrank_park("test");
        } else {
            vrank_park("test");
            vrank_unpark(vrank_local(peer));
        }
        vrank_yield();
    }
    return 0;
}

static void test_workers(void **state)
{
    (void)state;
    struct shared shared = {0};
    struct vrank_job job = job_of(&shared, 8, 2, ping);
    run(&shared, &job);
    assert_sums(&shared.profile);
    uint64_t waited = 0;
    for (int r = 0; r < 8; r++) {
        assert_int_equal(shared.profile.ranks[r].worker, r / 4);
        assert_int_equal(time_ns(&shared, r, POISE_VRANK_NETWORK), 0);
        waited += time_ns(&shared, r, POISE_VRANK_SYNC);
    }
    assert_true(waited > 0);
    profile_free(&shared.profile);
}

/* ---- policies ----------------------------------------------------------- */

static int compute_together(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    (void)rank;
    for (int i = 0; i < 20; i++) {
        int now = __atomic_add_fetch(&shared->computing, 1, __ATOMIC_SEQ_CST);
        int most = __atomic_load_n(&shared->computing_most, __ATOMIC_SEQ_CST);
        while (most < now && !__atomic_compare_exchange_n(
                                 &shared->computing_most, &most, now, false,
                                 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        }
        burn(100000);
        __atomic_sub_fetch(&shared->computing, 1, __ATOMIC_SEQ_CST);
        vrank_yield();
    }
    return 0;
}

static void test_serial(void **state)
{
    (void)state;
    for (int serial = 0; serial <= 3; serial++) {
        struct shared shared = {0};
        struct vrank_job job = job_of(&shared, 8, 4, compute_together);
        job.policy = POISE_VRANK_SERIAL;
        job.serial = serial;
        job.profile_ops = serial == 2 ? NULL : &profile_ops;
        run(&shared, &job);
        assert_in_range(shared.computing_most, 1, serial > 0 ? serial : 1);
        profile_free(&shared.profile);
    }
}

/* All wait for rank 0, which wakes them in order. */
static int wake_all(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    int number = vrank_number(rank);
    if (number > 0) {
        vrank_park("test");
        shared->order[shared->count++] = number;
        return 0;
    }
    vrank_yield();
    for (int i = 1; i < vrank_count(); i++) {
        vrank_unpark(vrank_local(i));
    }
    return 0;
}

static void test_urgent(void **state)
{
    (void)state;
    static const bool urgent[8] = {[5] = true, [7] = true};
    static const int want[] = {5, 7, 1, 2, 3, 4, 6};
    struct shared shared = {0};
    struct vrank_job job = job_of(&shared, 8, 1, wake_all);
    job.policy = POISE_VRANK_PRIORITY;
    job.urgent = urgent;
    run(&shared, &job);
    assert_int_equal(shared.count, 7);
    assert_memory_equal(shared.order, want, sizeof want);
    profile_free(&shared.profile);
}

/* ---- ranks that only poll ----------------------------------------------- */

/* Rank 0 polls until rank 1, which sleeps, has had enough: there was a warning,
 * and time for another one. */
static int poll_in_vain(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    if (vrank_number(rank) == 0) {
        while (!__atomic_load_n(&shared->stop, __ATOMIC_RELAXED)) {
            vrank_poll("MPI_Iprobe");
        }
    } else {
        bool warned = false;
        for (int looks = 0; looks < 4; looks += warned) {
            vrank_park_until("sleep", poise_clock_ns() + 50 * MS);
            warned = shared->said > 0;
        }
        __atomic_store_n(&shared->stop, true, __ATOMIC_RELAXED);
    }
    return 0;
}

/* The same, but something comes now and then. */
static int poll_at_last(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    (void)rank;
    uint64_t end_ns = poise_clock_ns() + 400 * MS;
    while (poise_clock_ns() < end_ns) {
        vrank_poll("MPI_Iprobe");
        vrank_polled();
    }
    (void)shared;
    return 0;
}

/* A process that is kept from running: much time, few looks. */
static int poll_seldom(struct vrank *rank, void *arg)
{
    (void)arg;
    for (int i = 0; vrank_number(rank) == 0 && i < 4; i++) {
        vrank_poll("MPI_Iprobe");
        nanosleep(&(struct timespec){.tv_nsec = 60000000}, NULL);
    }
    return 0;
}

static void test_poll(void **state)
{
    (void)state;
    struct shared shared = {0};
    struct vrank_job job = job_of(&shared, 2, 1, poll_in_vain);
    job.poll_timeout_ns = 50 * MS;
    run(&shared, &job);
    assert_int_equal(shared.said, 1);
    assert_non_null(strstr(shared.line, "only polled (MPI_Iprobe)"));
    profile_free(&shared.profile);
    static int (*const quiet[])(struct vrank *, void *) = {poll_at_last,
                                                           poll_seldom};
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++) {
        shared = (struct shared){0};
        job.body = quiet[i];
        run(&shared, &job);
        assert_int_equal(shared.said, 0);
        profile_free(&shared.profile);
    }
}

/* ---- calls and phases --------------------------------------------------- */

static long many(long a, long b, long c, long d, long e, long f, long g, long h,
                 long i, long j, long k, long l)
{
    burn(2 * MS);
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i +
           10 * j + 11 * k + 12 * l;
}

static double real(void)
{
    return 2.5;
}

static jmp_buf way_out;

static int leave(void)
{
    longjmp(way_out, 1);
}

static int collect_all(void)
{
    vrank_yield();
    return 7;
}

static long (*wrapped_many)(long, long, long, long, long, long, long, long,
                            long, long, long, long);
static double (*wrapped_real)(void);
static int (*wrapped_leave)(void), (*wrapped_all)(void);
/* The code addresses of functions and of data do not convert. */
static void set(void *function, void *into)
{
    memcpy(into, &function, sizeof function);
}

#define CODE(function) ((void *)(uintptr_t)(function))

static int call(struct vrank *rank, void *arg)
{
    (void)arg;
    int wrong = 0;
    /* Volatile: unrolled, the loop would have several call sites. */
    for (volatile int i = 0; i < 3; i++) {
        wrong += wrapped_many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12) != 650;
        wrong += wrapped_real() != 2.5;
        wrong += wrapped_all() != 7;
    }
    if (vrank_number(rank) == 0 && setjmp(way_out) == 0) {
        wrapped_leave();
    }
    /* After a call that did not return, too. */
    wrong += wrapped_all() != 7;
    return wrong;
}

static void test_calls(void **state)
{
    (void)state;
    struct shared shared = {0};
    struct profile *profile = &shared.profile;
    set(profile_wrap(profile, "MPI_Sendrecv", CODE(many)), &wrapped_many);
    set(profile_wrap(profile, "MPI_Wtime", CODE(real)), &wrapped_real);
    set(profile_wrap(profile, "MPI_Abort", CODE(leave)), &wrapped_leave);
    set(profile_wrap(profile, "MPI_Allreduce", CODE(collect_all)),
        &wrapped_all);
    assert_ptr_equal(profile_wrap(profile, "MPI_DUP_FN", CODE(real)),
                     CODE(real));
    assert_null(profile_wrap(profile, "MPI_Nothing", NULL));
    int (*again)(void);
    set(profile_wrap(profile, "MPI_Allreduce", CODE(collect_all)), &again);
    assert_ptr_equal(CODE(again), CODE(wrapped_all));
    struct vrank_job job = job_of(&shared, 2, 1, call);
    run(&shared, &job);
    assert_sums(profile);
    for (int r = 0; r < 2; r++) {
        const struct profile_call *calls = profile->ranks[r].calls;
        assert_int_equal(calls[0].calls, 3);
        assert_int_equal(calls[1].calls, 3);
        assert_int_equal(calls[2].calls, 0);
        assert_int_equal(calls[3].calls, 4);
        assert_at_least(
            poise_clock_ticks_to_ns(calls[0].times.ticks[POISE_VRANK_CALLING]),
            6 * MS);
        assert_true(calls[3].times.ticks[POISE_VRANK_READY] > 0);
        assert_false(profile->is_phased[0]);
        assert_true(profile->is_phased[3]);
        /* From the start, between the calls of the loop, to the last one. */
        assert_int_equal(profile->ranks[r].phase_count, 3);
        assert_int_equal(profile->ranks[r].phases[1].count, 2);
    }
    profile_free(profile);
}

/* ---- messages, and the file --------------------------------------------- */

static int send_to_all(struct vrank *rank, void *arg)
{
    (void)arg;
    for (int i = 0; i < vrank_count(); i++) {
        for (int times = 0; times <= i % 3; times++) {
            profile_message(rank, i, i == 1 ? 5 << 20 : i == 2 ? 4096 : 8);
        }
    }
    return 0;
}

static struct poise_vrank_profile *gathered(int count)
{
    struct shared shared = {0};
    struct poise_vrank_profile *all = NULL;
    struct vrank_job job = job_of(&shared, count, 2, send_to_all);
    run(&shared, &job);
    assert_int_equal(profile_gather(&shared.profile, NULL, &all), 0);
    profile_free(&shared.profile);
    return all;
}

static void test_gather(void **state)
{
    (void)state;
    struct poise_vrank_profile *all = gathered(50);
    assert_int_equal(all->count, 50);
    assert_int_equal(all->worker_count, 2);
    assert_int_equal(all->edge_count, 50 * 50);
    assert_int_equal(all->ranks_most, 50);
    for (int i = 0; i < all->edge_count; i++) {
        int to = i % 50;
        uint64_t messages = (uint64_t)(to % 3) + 1;
        uint64_t bytes = to == 1 ? 5 << 20 : to == 2 ? 4096 : 8;
        assert_int_equal(all->edges[i].from, i / 50);
        assert_int_equal(all->edges[i].to, to);
        assert_int_equal(all->edges[i].messages, messages);
        assert_int_equal(all->edges[i].bytes, messages * bytes);
    }
    assert_int_equal(all->sizes[POISE_VRANK_LARGE], 2 * 50);
    assert_int_equal(all->sizes[POISE_VRANK_MEDIUM], 3 * 50);
    for (int r = 0; r < 50; r++) {
        assert_int_equal(all->ranks[r].rank, r);
    }
    poise_vrank_profile_free(all);
}

static void write_text(const char *path, const char *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

static void test_file(void **state)
{
    (void)state;
    char path[TEMPORARY_BYTES];
    close(mkstemp(temporary_name(path, "profile")));
    struct poise_vrank_profile *all = gathered(5), *read = NULL;
    struct poise_buf text = {0}, again = {0};
    assert_int_equal(poise_vrank_profile_json(all, &text), 0);
    write_text(path, text.data, text.len);
    assert_int_equal(poise_vrank_profile_read(path, &read), 0);
    assert_int_equal(poise_vrank_profile_json(read, &again), 0);
    assert_string_equal(poise_buf_str(&text), poise_buf_str(&again));
    poise_vrank_profile_free(read);
    /* Cut off anywhere before the last bracket it is refused. */
    for (size_t len = 0; len + 2 < text.len; len += 1 + len / 97) {
        write_text(path, text.data, len);
        assert_int_equal(poise_vrank_profile_read(path, &read), -EBADMSG);
    }
    static const char *const others[] = {
        "",
        "{}",
        "[]",
        "{\"format\":\"poise vrank profile\"}",
        "{\"a\":",
        "{\"format\":\"poise vrank profile\",\"count\":99999999999}",
        "{\"count\":2,\"ranks\":[{}]}",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        "{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        write_text(path, others[i], strlen(others[i]));
        assert_int_equal(poise_vrank_profile_read(path, &read), -EBADMSG);
    }
    static const char newer[] = "{\"version\": 2}";
    write_text(path, newer, sizeof newer - 1);
    assert_int_equal(poise_vrank_profile_read(path, &read), -EPROTO);
    unlink(path);
    assert_int_equal(poise_vrank_profile_read(path, &read), -ENOENT);
    poise_vrank_profile_free(all);
    poise_buf_free(&text);
    poise_buf_free(&again);
}

/* ---- what fails --------------------------------------------------------- */

static int run_and_read(const char *path)
{
    struct shared shared = {0};
    struct poise_vrank_profile *all = NULL, *read = NULL;
    struct vrank_outcome out;
    struct poise_buf text = {0};
    struct vrank_job job = job_of(&shared, 3, 2, send_to_all);
    int code = vrank_run_job(&job, &out);
    if (code == 0) {
        code = profile_gather(&shared.profile, NULL, &all);
    }
    if (code == 0) {
        code = poise_vrank_profile_json(all, &text);
    }
    if (code == 0) {
        code = poise_vrank_profile_read(path, &read);
    }
    profile_free(&shared.profile);
    poise_vrank_profile_free(all);
    poise_vrank_profile_free(read);
    poise_buf_free(&text);
    return code;
}

static void test_faults(void **state)
{
    (void)state;
    char path[TEMPORARY_BYTES];
    close(mkstemp(temporary_name(path, "profile")));
    struct poise_vrank_profile *all = gathered(5);
    struct poise_buf text = {0};
    assert_int_equal(poise_vrank_profile_json(all, &text), 0);
    write_text(path, text.data, text.len);
    poise_fault_arm(POISE_FAULT_ALLOC, 1000000, ENOMEM, false);
    assert_int_equal(run_and_read(path), 0);
    uint64_t most = poise_fault_calls(POISE_FAULT_ALLOC);
    assert_in_range(most, 20, 1000);
    for (uint64_t k = 1; k <= most; k++) {
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        int code = run_and_read(path);
        /* An edge that is not there is no error. */
        assert_true(code == -ENOMEM || code == 0);
    }
    poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
    for (enum poise_fault kind = POISE_FAULT_OPEN; kind <= POISE_FAULT_READ;
         kind++) {
        poise_fault_arm(kind, 1, EIO, false);
        assert_int_equal(run_and_read(path), -EIO);
        poise_fault_arm(kind, 0, 0, false);
    }
    unlink(path);
    poise_vrank_profile_free(all);
    poise_buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sync),    cmocka_unit_test(test_network),
        cmocka_unit_test(test_workers), cmocka_unit_test(test_serial),
        cmocka_unit_test(test_urgent),  cmocka_unit_test(test_poll),
        cmocka_unit_test(test_calls),   cmocka_unit_test(test_gather),
        cmocka_unit_test(test_file),    cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
