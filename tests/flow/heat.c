/* Room flow: the heat solver against a loop over the whole plate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poise/core.h>
#include <poise/heat.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 37
#define COLUMNS 29
#define CELLS (ROWS * COLUMNS)

static void plate_fill(double *cells, bool *held)
{
    struct poise_rng rng;
    poise_rng_seed(&rng, 11);
    for (int c = 0; c < CELLS; c++) {
        cells[c] = (double)poise_rng_below(&rng, 1000) / 7;
        held[c] = poise_rng_below(&rng, 20) == 0;
    }
}

/* The cell beside one, or the one itself at the edge. */
static double beside(const double *cells, int row, int column, int down,
                     int right)
{
    int r = row + down, c = column + right;
    bool inside = r >= 0 && r < ROWS && c >= 0 && c < COLUMNS;
    return inside ? cells[r * COLUMNS + c] : cells[row * COLUMNS + column];
}

/* One version; the greatest change. */
static double step(const struct poise_flow_heat *heat, int version,
                   const double *from, double *to)
{
    double most = 0, omega = heat->omega > 0 ? heat->omega : 1;
    for (int row = 0; row < ROWS; row++) {
        for (int column = 0; column < COLUMNS; column++) {
            int at = row * COLUMNS + column;
            bool edge = row == 0 || column == 0 || row == ROWS - 1 ||
                        column == COLUMNS - 1;
            to[at] = from[at];
            if ((edge && !heat->insulated) || (heat->held && heat->held[at]) ||
                (heat->method == POISE_FLOW_SOR &&
                 (row + column) % 2 != version % 2)) {
                continue;
            }
            double mean = ((beside(from, row, column, -1, 0) +
                            beside(from, row, column, 1, 0)) +
                           (beside(from, row, column, 0, -1) +
                            beside(from, row, column, 0, 1))) /
                          4;
            to[at] = from[at] + omega * (mean - from[at]);
            most = fmax(most, fabs(to[at] - from[at]));
        }
    }
    return most;
}

static void solve(const struct poise_flow_heat *heat, double *cells,
                  double *changes)
{
    double now[CELLS];
    int halves = heat->method == POISE_FLOW_SOR ? 2 : 1;
    memcpy(cells, heat->cells, sizeof now);
    memset(changes, 0, (size_t)heat->sweeps * sizeof *changes);
    for (int v = 1; v <= halves * heat->sweeps; v++) {
        double change = step(heat, v, cells, now);
        double *most = &changes[(v - 1) / halves];
        *most = fmax(*most, change);
        memcpy(cells, now, sizeof now);
    }
}

static void compare(const struct poise_flow_heat *heat,
                    const struct poise_flow_options *options, bool with_changes)
{
    double wanted[CELLS], got[CELLS], changes[64], found[64];
    solve(heat, wanted, changes);
    int code = poise_flow_heat_run(heat, options, got,
                                   with_changes ? found : NULL, NULL);
    assert_int_equal(code, 0);
    assert_memory_equal(got, wanted, sizeof got);
    if (with_changes) {
        assert_memory_equal(found, changes,
                            (size_t)heat->sweeps * sizeof *found);
    }
}

/* The same bits, however it is cut and whoever computes it. */
static void test_same(void **state)
{
    (void)state;
    static double cells[CELLS];
    static bool held[CELLS];
    plate_fill(cells, held);
    for (unsigned c = 0; c < 16; c++) {
        const int64_t blocks[4] = {0, 1000, 10, 7};
        struct poise_flow_heat heat = {.rows = ROWS,
                                       .columns = COLUMNS,
                                       .cells = cells,
                                       .held = c & 1 ? held : NULL,
                                       .insulated = c & 2,
                                       .method = c & 4 ? POISE_FLOW_SOR
                                                       : POISE_FLOW_JACOBI,
                                       .omega = c & 4 ? 1.7 : 0,
                                       .sweeps = 12 + c,
                                       .block = blocks[c % 4],
                                       .adapt = c & 8 ? 5 : 0};
        struct poise_flow_options options = {.nodes = c / 4,
                                             .threads = 1 + c % 3,
                                             .lost_ns = UINT64_C(60000000000)};
        compare(&heat, &options, c & 2);
    }
}

/* Emulated speeds: a node of half the speed takes twice as long. */
static void test_slow(void **state)
{
    (void)state;
    static double cells[CELLS];
    static bool held[CELLS];
    const double slow[2] = {1, 3}, later[2] = {3, 1};
    struct poise_flow_stats stats;
    struct poise_flow_heat heat = {.rows = ROWS,
                                   .columns = COLUMNS,
                                   .cells = cells,
                                   .sweeps = 10,
                                   .block = 10,
                                   .block_ns = 1000000,
                                   .slow = slow,
                                   .slow_count = 2};
    struct poise_flow_options options = {.nodes = 2,
                                         .lost_ns = UINT64_C(60000000000)};
    plate_fill(cells, held);
    compare(&heat, &options, false);
    double *out = malloc(sizeof cells);
    assert_int_equal(poise_flow_heat_run(&heat, &options, out, NULL, &stats),
                     0);
    /* Six of the twelve blocks of each version are node 1's. */
    assert_true(stats.wall_ns >= UINT64_C(10) * 6 * 3 * 1000000);
    poise_flow_stats_free(&stats);
    heat.later = later;
    heat.later_from = 6;
    heat.adapt = 3;
    assert_int_equal(poise_flow_heat_run(&heat, &options, out, NULL, NULL), 0);
    free(out);
}

static void test_bad(void **state)
{
    (void)state;
    static double cells[CELLS];
    const double none[1] = {0};
    struct poise_flow_heat good = {
        .rows = ROWS, .columns = COLUMNS, .cells = cells, .sweeps = 2};
    struct poise_flow_heat heat = good;
    heat.rows = 0;
    assert_int_equal(poise_flow_heat_run(&heat, NULL, cells, NULL, NULL),
                     -EINVAL);
    heat = good;
    heat.omega = 2;
    assert_int_equal(poise_flow_heat_run(&heat, NULL, cells, NULL, NULL),
                     -EINVAL);
    heat = good;
    heat.slow = none;
    heat.slow_count = 1;
    assert_int_equal(poise_flow_heat_run(&heat, NULL, cells, NULL, NULL),
                     -EINVAL);
    heat = good;
    heat.block_ns = 1;
    const struct poise_flow_options threads = {.threads = 2};
    assert_int_equal(poise_flow_heat_run(&heat, &threads, cells, NULL, NULL),
                     -EINVAL);
    heat = good;
    heat.sweeps = 0;
    assert_int_equal(poise_flow_heat_run(&heat, NULL, cells, NULL, NULL), 0);
    /* No memory, wherever it is asked for. */
    for (uint64_t k = 1;; k++) {
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, true);
        int code = poise_flow_heat_run(&good, NULL, cells, NULL, NULL);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        if (code == 0) {
            break;
        }
        assert_int_equal(code, -ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
