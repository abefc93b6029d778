/*
 * Which calls are recorded where they come too fast: rows of them, the same on
 * all ranks, and all of them again once they have become slow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <poise/trace.h>

#include "trace/internal.h"

/* A rank: its sampler, its clock, and which of its calls were recorded. */
struct sampled {
    struct poise_trace_sampler sampler;
    uint64_t ticks, number, recorded;
};

/* A call that took so long; whether it was recorded. */
static bool make_call(struct sampled *rank, uint64_t took)
{
    bool is_recorded = poise_trace_sampled(&rank->sampler, ++rank->number);
    rank->ticks += took;
    rank->recorded += is_recorded;
    if (is_recorded) {
        poise_trace_sampler_recorded(&rank->sampler, rank->number, rank->ticks);
    } else if (rank->number % POISE_TRACE_LOOK == 0) {
        poise_trace_sampler_look(&rank->sampler, rank->number, rank->ticks);
    }
    return is_recorded;
}

static void test_samples_are_rows(void **state)
{
    (void)state;
    struct poise_trace_options options = {.rate = 1000};
    struct poise_trace_ring ring = {0};
    struct sampled rank = {.ticks = 1};
    struct poise_trace *trace;
    unsigned row = 0;
    assert_int_equal(poise_trace_create(NULL, &options, &trace), 0);
    poise_trace_sampler_begin(&rank.sampler, trace);
    assert_int_equal(rank.sampler.spacing, trace->head->tick_hz / 1000);
    poise_trace_destroy(trace);
    rank.sampler.spacing = 1000;
    for (int i = 0; i < 1000000; i++) {
        bool is_recorded = make_call(&rank, 10);
        assert_true(!is_recorded || row > 0 ||
                    rank.number % POISE_TRACE_ROW == 1);
        assert_true(is_recorded || row % POISE_TRACE_ROW == 0);
        row = is_recorded ? row + 1 : 0;
    }
    /* One in a hundred may be, and at least a quarter of that is. */
    assert_in_range(rank.recorded, 2500, 10000 + 2 * POISE_TRACE_ROW);
    poise_trace_skip(&ring, 7);
    poise_trace_skip(&ring, 8);
    poise_trace_skip(NULL, 1);
    assert_int_equal(ring.skipped, 15);
}

static void test_samples_are_alike_on_all_ranks(void **state)
{
    (void)state;
    struct sampled ranks[2] = {{.ticks = 1}, {.ticks = UINT64_C(1) << 40}};
    uint64_t differ = 0, spell = 0, length = 100;
    ranks[0].sampler.spacing = ranks[1].sampler.spacing = 1000;
    /* Calls of another length for some time, up to twice or half as long, and
     * each a bit longer on one rank, which waits in the next. */
    for (int i = 0; i < 1000000; i++) {
        if (spell-- == 0) {
            spell = 2000 + poise_rng_next(poise_rng_current()) % 20000;
            length = 50 + poise_rng_next(poise_rng_current()) % 150;
        }
        uint64_t late = poise_rng_next(poise_rng_current()) % 20;
        bool first = make_call(&ranks[0], length + late);
        bool second = make_call(&ranks[1], length + 20 - late);
        differ += first != second;
    }
    assert_true(ranks[0].recorded > 10000);
    assert_true(differ < ranks[0].recorded / 20);
}

static void test_slow_calls_are_recorded(void **state)
{
    (void)state;
    struct sampled rank = {.ticks = 1};
    rank.sampler.spacing = 1000;
    for (int i = 0; i < 5000; i++) {
        assert_true(make_call(&rank, 2000));
    }
    for (int i = 0; i < 1000000; i++) {
        make_call(&rank, 1);
    }
    /* Each takes a thousand times what is worth a record. */
    uint64_t before = rank.recorded;
    for (int i = 0; i < 1000; i++) {
        make_call(&rank, 1000000);
    }
    assert_true(rank.recorded - before >= 1000 - 2 * POISE_TRACE_LOOK);
    /* Who does not sample leaves out nothing. */
    struct sampled all = {.ticks = 1};
    poise_trace_sampler_begin(&all.sampler, NULL);
    for (int i = 0; i < 1000; i++) {
        assert_true(make_call(&all, 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_are_rows),
        cmocka_unit_test(test_samples_are_alike_on_all_ranks),
        cmocka_unit_test(test_slow_calls_are_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
