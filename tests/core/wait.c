/* Events, backoff and sleep; contexts that move between kernel threads. */
#include <poise/core.h>

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif
#ifndef WITH_ASAN
#define WITH_ASAN 0
#endif
#ifndef WITH_TSAN
#define WITH_TSAN 0
#endif
#if WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if WITH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/** No test waits that long unless a wake-up was lost. */
#define LOST_NS UINT64_C(30000000000)

static void start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    assert_int_equal(pthread_create(thread, NULL, run, arg), 0);
}

static void finish(pthread_t thread)
{
    void *result = NULL;
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
}

/* ---- events ------------------------------------------------------------- */

static void event_times_out(void **state)
{
    (void)state;
    struct poise_event event = {0};
    uint32_t seen = poise_event_seen(&event);
    poise_error_clear();
    assert_int_equal(poise_event_wait(&event, seen, 0), -ETIMEDOUT);
    uint64_t before_ns = poise_clock_ns();
    assert_int_equal(poise_event_wait(&event, seen, 3000000), -ETIMEDOUT);
    assert_true(poise_clock_ns() - before_ns >= 3000000);
    assert_int_equal(poise_error_last()->code, 0);
    assert_int_equal(event.waiters, 0);
}

static void event_signalled_since_does_not_wait(void **state)
{
    (void)state;
    struct poise_event event = {0};
    uint32_t seen = poise_event_seen(&event);
    poise_event_signal(&event);
    assert_int_equal(poise_event_wait(&event, seen, 0), 0);
    assert_int_equal(poise_event_wait(&event, seen, UINT64_MAX), 0);
    seen = poise_event_seen(&event);
    assert_int_equal(poise_event_wait(&event, seen, 0), -ETIMEDOUT);
    /* The sequence may wrap. */
    event.sequence = UINT32_MAX;
    seen = poise_event_seen(&event);
    poise_event_signal(&event);
    assert_int_equal(poise_event_wait(&event, seen, UINT64_MAX), 0);
}

#define RING_THREADS 4
#define RING_ROUNDS 1500

struct ring {
    struct poise_event event;
    uint32_t turn;  /* atomic */
    uint64_t plain; /* guarded by whose turn it is: the sanitizer watches */
    unsigned lost;  /* atomic */
};

struct ring_member {
    struct ring *ring;
    uint32_t index;
};

/* A wake-up that is lost even once leaves everybody waiting. */
static void *ring_run(void *arg)
{
    struct ring_member *member = arg;
    struct ring *ring = member->ring;
    for (uint32_t round = 0; round < RING_ROUNDS; round++) {
        uint32_t mine = round * RING_THREADS + member->index;
        for (;;) {
            uint32_t seen = poise_event_seen(&ring->event);
            if (__atomic_load_n(&ring->turn, __ATOMIC_ACQUIRE) == mine) {
                break;
            }
            if (poise_event_wait(&ring->event, seen, LOST_NS) != 0) {
                __atomic_fetch_add(&ring->lost, 1, __ATOMIC_RELAXED);
                return ring;
            }
        }
        ring->plain++;
        __atomic_store_n(&ring->turn, mine + 1, __ATOMIC_RELEASE);
        poise_event_signal(&ring->event);
    }
    return NULL;
}

static void event_loses_no_wake_up(void **state)
{
    (void)state;
    struct ring ring = {0};
    struct ring_member members[RING_THREADS];
    pthread_t threads[RING_THREADS];
    for (uint32_t i = 0; i < RING_THREADS; i++) {
        members[i] = (struct ring_member){&ring, i};
        start(&threads[i], ring_run, &members[i]);
    }
    for (uint32_t i = 0; i < RING_THREADS; i++) {
        finish(threads[i]);
    }
    assert_int_equal(ring.lost, 0);
    assert_int_equal(ring.plain, RING_THREADS * RING_ROUNDS);
    assert_int_equal(ring.event.waiters, 0);
}

struct crowd {
    struct poise_event event;
    uint32_t open; /* atomic */
};

static void *crowd_wait(void *arg)
{
    struct crowd *crowd = arg;
    for (;;) {
        uint32_t seen = poise_event_seen(&crowd->event);
        if (__atomic_load_n(&crowd->open, __ATOMIC_ACQUIRE) != 0) {
            return NULL;
        }
        if (poise_event_wait(&crowd->event, seen, LOST_NS) != 0) {
            return crowd;
        }
    }
}

static void event_wakes_all(void **state)
{
    (void)state;
    struct crowd crowd = {0};
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) {
        start(&threads[i], crowd_wait, &crowd);
    }
    /* Let them all go to sleep first: that is the case that needs a wake. */
    struct poise_backoff backoff = {0};
    while (__atomic_load_n(&crowd.event.waiters, __ATOMIC_RELAXED) < 6) {
        poise_backoff_wait(&backoff);
    }
    __atomic_store_n(&crowd.open, 1, __ATOMIC_RELEASE);
    poise_event_signal(&crowd.event);
    for (int i = 0; i < 6; i++) {
        finish(threads[i]);
    }
}

static int interrupt_flag; /* global: set by a signal handler; atomic */

static void interrupt_handler(int number)
{
    (void)number;
    __atomic_store_n(&interrupt_flag, 1, __ATOMIC_RELAXED);
}

static void *interrupt_wait(void *arg)
{
    struct poise_event *event = arg;
    while (__atomic_load_n(&interrupt_flag, __ATOMIC_RELAXED) == 0) {
        if (poise_event_wait(event, poise_event_seen(event), LOST_NS) != 0) {
            return arg;
        }
    }
    return NULL;
}

static void event_wait_returns_after_a_signal_handler(void **state)
{
    (void)state;
    struct poise_event event = {0};
    struct sigaction action = {.sa_handler = interrupt_handler}, old;
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    pthread_t thread;
    start(&thread, interrupt_wait, &event);
    struct poise_backoff backoff = {0};
    while (__atomic_load_n(&event.waiters, __ATOMIC_RELAXED) == 0) {
        poise_backoff_wait(&backoff);
    }
    /* Again and again: the thread may be between counting and sleeping. */
    while (__atomic_load_n(&event.waiters, __ATOMIC_RELAXED) != 0) {
        pthread_kill(thread, SIGUSR1);
        poise_sleep_ns(1000000);
    }
    finish(thread);
    assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
}

/* ---- the yield hook ----------------------------------------------------- */

struct hook {
    struct poise_event *event;
    unsigned calls, signal_at;
};

static void hook_yield(void *arg)
{
    struct hook *hook = arg;
    hook->calls++;
    if (hook->calls == hook->signal_at) {
        poise_event_signal(hook->event);
    }
}

static void waiting_calls_the_yield_hook(void **state)
{
    (void)state;
    struct poise_event event = {0};
    struct hook hook = {.event = &event, .signal_at = 5};
    poise_ctx_set_yield(hook_yield, &hook);
    /* Nobody else could signal: it is the hook or nothing. */
    assert_int_equal(poise_event_wait(&event, 0, UINT64_MAX), 0);
    assert_int_equal(hook.calls, 5);

    hook = (struct hook){.event = &event};
    uint32_t seen = poise_event_seen(&event);
    uint64_t before_ns = poise_clock_ns();
    assert_int_equal(poise_event_wait(&event, seen, 2000000), -ETIMEDOUT);
    assert_true(poise_clock_ns() - before_ns >= 2000000);
    assert_true(hook.calls > 0);

    hook.calls = 0;
    before_ns = poise_clock_ns();
    poise_sleep_ns(2000000);
    assert_true(poise_clock_ns() - before_ns >= 2000000);
    assert_true(hook.calls > 0);

    hook.calls = 0;
    struct poise_backoff backoff = {.min_ns = 1000, .max_ns = 2000};
    for (int i = 0; i < 20; i++) {
        poise_backoff_wait(&backoff);
    }
    assert_true(hook.calls > 0);

    hook.calls = 0;
    assert_true(poise_yield());
    assert_int_equal(hook.calls, 1);

    poise_ctx_set_yield(NULL, NULL);
    hook.calls = 0;
    assert_false(poise_yield());
    assert_int_equal(poise_event_wait(&event, seen, 1000000), -ETIMEDOUT);
    assert_int_equal(hook.calls, 0);
}

/* ---- backoff and sleep -------------------------------------------------- */

static void backoff_sleeps_longer_up_to_its_limit(void **state)
{
    (void)state;
    struct poise_backoff backoff = {.min_ns = 100000, .max_ns = 400000};
    for (int i = 0; i < 16; i++) {
        poise_backoff_wait(&backoff);
    }
    assert_int_equal(backoff.rounds, 16);
    static const uint64_t least_ns[] = {100000, 200000, 400000, 400000};
    for (size_t i = 0; i < 4; i++) {
        uint64_t before_ns = poise_clock_ns();
        poise_backoff_wait(&backoff);
        assert_true(poise_clock_ns() - before_ns >= least_ns[i]);
    }
    /* Very many rounds later it is the same. */
    backoff.rounds = UINT32_MAX - 1;
    poise_backoff_wait(&backoff);
    poise_backoff_wait(&backoff);
    assert_int_equal(backoff.rounds, UINT32_MAX);
}

static void sleep_is_not_cut_short(void **state)
{
    (void)state;
    uint64_t before_ns = poise_clock_ns();
    poise_sleep_ns(3000000);
    assert_true(poise_clock_ns() - before_ns >= 3000000);
    poise_sleep_ns(0);
}

/* ---- contexts that move ------------------------------------------------- */

/* A user-level thread with a context of its own that is resumed on one kernel
 * thread after the other, in a stack of its own. Global: makecontext passes
 * integers only. */
static struct fiber {
    ucontext_t home, self;
    struct poise_ctx *ctx;
    char *stack;
    size_t stack_bytes;
    bool ended, wrong;
    unsigned steps;
    void *asan_fake;
    const void *home_stack;
    size_t home_stack_bytes;
    void *tsan_self, *tsan_home;
} fiber;

/* To the fiber, its context in force; returns when it pauses or ends. */
static void fiber_resume(void)
{
    struct poise_ctx *was = poise_ctx_swap(fiber.ctx);
#if WITH_TSAN
    fiber.tsan_home = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber.tsan_self, 0);
#endif
#if WITH_ASAN
    void *fake;
    __sanitizer_start_switch_fiber(&fake, fiber.stack, fiber.stack_bytes);
#endif
    swapcontext(&fiber.home, &fiber.self);
#if WITH_ASAN
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
    poise_ctx_swap(was);
}

static void fiber_pause(void)
{
#if WITH_TSAN
    __tsan_switch_to_fiber(fiber.tsan_home, 0);
#endif
#if WITH_ASAN
    __sanitizer_start_switch_fiber(fiber.ended ? NULL : &fiber.asan_fake,
                                   fiber.home_stack, fiber.home_stack_bytes);
#endif
    swapcontext(&fiber.self, &fiber.home);
#if WITH_ASAN
    __sanitizer_finish_switch_fiber(fiber.asan_fake, &fiber.home_stack,
                                    &fiber.home_stack_bytes);
#endif
}

static void fiber_main(void)
{
#if WITH_ASAN
    __sanitizer_finish_switch_fiber(NULL, &fiber.home_stack,
                                    &fiber.home_stack_bytes);
#endif
    /* The same numbers that an undisturbed generator gives. */
    struct poise_rng alone;
    poise_rng_seed(&alone, 42);
    poise_rng_seed(poise_rng_current(), 42);
    for (int i = 1; i <= 20; i++) {
        poise_error_set(i, "step", "fiber", "number %d", i);
        const struct poise_error *err = poise_error_last();
        fiber_pause();
        fiber.steps++;
        if (poise_error_last() != err || err->code != i ||
            strcmp(err->what, "fiber") != 0 ||
            poise_ctx_current() != fiber.ctx ||
            poise_rng_next(poise_rng_current()) != poise_rng_next(&alone)) {
            fiber.wrong = true;
        }
    }
    fiber.ended = true;
    fiber_pause();
}

struct carrier {
    struct poise_event *event;
    uint32_t *turn; /* atomic */
    uint32_t index;
};

static void *carrier_run(void *arg)
{
    struct carrier *carrier = arg;
    poise_error_set(ERANGE, "carry", "carrier", NULL);
    bool ended = false;
    while (!ended) {
        uint32_t seen = poise_event_seen(carrier->event);
        uint32_t turn = __atomic_load_n(carrier->turn, __ATOMIC_ACQUIRE);
        if (turn % 2 != carrier->index) {
            if (poise_event_wait(carrier->event, seen, LOST_NS) != 0) {
                return arg;
            }
            continue;
        }
        if (!fiber.ended) {
            fiber_resume();
        }
        ended = fiber.ended;
        if (poise_error_last()->code != ERANGE ||
            strcmp(poise_error_last()->what, "carrier") != 0) {
            return arg;
        }
        __atomic_store_n(carrier->turn, turn + 1, __ATOMIC_RELEASE);
        poise_event_signal(carrier->event);
    }
    return NULL;
}

static void ctx_goes_with_its_user_level_thread(void **state)
{
    (void)state;
    fiber = (struct fiber){.stack_bytes = 256 * 1024};
    fiber.stack = malloc(fiber.stack_bytes);
    fiber.ctx = poise_ctx_create();
    assert_non_null(fiber.stack);
    assert_non_null(fiber.ctx);
    assert_int_equal(getcontext(&fiber.self), 0);
    fiber.self.uc_stack.ss_sp = fiber.stack;
    fiber.self.uc_stack.ss_size = fiber.stack_bytes;
    fiber.self.uc_link = NULL;
    makecontext(&fiber.self, fiber_main, 0);
#if WITH_TSAN
    fiber.tsan_self = __tsan_create_fiber(0);
#endif
    struct poise_event event = {0};
    uint32_t turn = 0;
    struct carrier carriers[2];
    pthread_t threads[2];
    for (uint32_t i = 0; i < 2; i++) {
        carriers[i] = (struct carrier){&event, &turn, i};
        start(&threads[i], carrier_run, &carriers[i]);
    }
    finish(threads[0]);
    finish(threads[1]);
    assert_true(fiber.ended);
    assert_false(fiber.wrong);
    assert_int_equal(fiber.steps, 20);
#if WITH_TSAN
    __tsan_destroy_fiber(fiber.tsan_self);
#endif
    poise_ctx_destroy(fiber.ctx);
    free(fiber.stack);
}

static void *arm_and_check(void *arg)
{
    unsigned *failed = arg;
    for (int i = 0; i < 1000; i++) {
        if (poise_fault_check(POISE_FAULT_SEND) == EPIPE) {
            __atomic_fetch_add(failed, 1, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

static void fault_fails_once_in_one_of_many_threads(void **state)
{
    (void)state;
    unsigned failed = 0;
    pthread_t threads[4];
    poise_fault_arm(POISE_FAULT_SEND, 2345, EPIPE, false);
    for (int i = 0; i < 4; i++) {
        start(&threads[i], arm_and_check, &failed);
    }
    for (int i = 0; i < 4; i++) {
        finish(threads[i]);
    }
    assert_int_equal(poise_fault_calls(POISE_FAULT_SEND), 4000);
    poise_fault_arm(POISE_FAULT_SEND, 0, 0, false);
    assert_int_equal(failed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event_times_out),
        cmocka_unit_test(event_signalled_since_does_not_wait),
        cmocka_unit_test(event_loses_no_wake_up),
        cmocka_unit_test(event_wakes_all),
        cmocka_unit_test(event_wait_returns_after_a_signal_handler),
        cmocka_unit_test(waiting_calls_the_yield_hook),
        cmocka_unit_test(backoff_sleeps_longer_up_to_its_limit),
        cmocka_unit_test(sleep_is_not_cut_short),
        cmocka_unit_test(ctx_goes_with_its_user_level_thread),
        cmocka_unit_test(fault_fails_once_in_one_of_many_threads),
    };
    return cmocka_run_group_tests_name("core_wait", tests, NULL, NULL);
}
