/*
 * The noise benchmark: what counts as delayed, on times made up; and a short
 * run, all ranks of which say the same.
 */
#include "coll/collective/internal.h"

#include "../ranks.h"

#include <errno.h>

static void test_marks(void **state)
{
    (void)state;
    static const uint64_t thresholds[] = {10, 100, 1000, 10000};
    /* The median is 50; exactly a threshold over it is not beyond it. */
    static const double times[] = {50, 40, 60, 61, 50, 1051, 150, 50, 20, 50};
    static const uint8_t right[4][10] = {
        {[3] = 1, [5] = 1, [6] = 1}, {[5] = 1}, {[5] = 1}, {0}};
    uint8_t late[4][10];
    double space[10];
    coll_noise_mark(times, 10, thresholds, late[0], space);
    assert_memory_equal(late, right, sizeof right);
}

struct seen {
    struct poise_coll_noise noise[3];
};

static int measure(struct poise_world *world, void *arg)
{
    struct seen *seen = arg;
    int rank = poise_world_rank(world);
    struct poise_coll *coll;
    EXPECT(poise_coll_create(world, NULL, &coll) == 0);
    struct poise_coll_noise_options options = {.allreduce = true};
    EXPECT(poise_coll_noise(coll, &options, &seen->noise[rank]) == -EINVAL);
    options.iterations = 50;
    options.quantum_ns = 20000;
    EXPECT(poise_coll_noise(coll, &options, &seen->noise[rank]) == 0);
    EXPECT(seen->noise[rank].quantum_ns == 20000);
    EXPECT(seen->noise[rank].rows[POISE_NOISE_ALLREDUCE].mean_ns > 0);
    options.allreduce = false;
    options.quantum_ns = 0;
    EXPECT(poise_coll_noise(coll, &options, &seen->noise[rank]) == 0);
    poise_coll_destroy(coll);
    return 0;
}

static void test_run(void **state)
{
    (void)state;
    struct seen seen;
    memset(&seen, 0, sizeof seen);
    run_clean(3, NULL, measure, &seen);
    for (int rank = 1; rank < 3; rank++) {
        assert_memory_equal(&seen.noise[0], &seen.noise[rank],
                            sizeof seen.noise[0]);
    }
    const struct poise_coll_noise *noise = &seen.noise[0];
    assert_int_equal(noise->quantum_ns, noise->thresholds_ns[0]);
    for (int row = 0; row < POISE_NOISE_ROWS; row++) {
        for (int t = 0; t < 4; t++) {
            assert_true(noise->rows[row].delayed[t] <= 50);
            assert_true(t < 2 || noise->rows[row].delayed[t] <=
                                     noise->rows[row].delayed[t - 1]);
        }
    }
    assert_true(noise->rows[POISE_NOISE_COMPUTATION].mean_ns > 0);
    assert_true(noise->rows[POISE_NOISE_ALLREDUCE].mean_ns == 0);
    assert_true(noise->rows[POISE_NOISE_ITERATION].mean_ns ==
                noise->rows[POISE_NOISE_COMPUTATION].mean_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
