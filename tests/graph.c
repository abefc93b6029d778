/* Room graph: lists of edges, figures, building. */
#include <poise/graph.h>

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_edges_add(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;

    for (uint32_t i = 0; i < 5000; i++) {
        assert_int_equal(poise_graph_edges_add(&edges, i, 2 * i), 0);
    }
    assert_int_equal(edges.count, 5000);
    assert_int_equal(edges.vertex_count, 9999);
    for (uint32_t i = 0; i < 5000; i++) {
        assert_int_equal(edges.ends[2 * i], i);
        assert_int_equal(edges.ends[2 * i + 1], 2 * i);
    }
    assert_int_equal(poise_graph_edges_reserve(&edges, 1 << 20), 0);
    assert_int_equal(edges.ends[9998], 4999);
    poise_graph_edges_free(&edges);
    assert_null(edges.ends);
    assert_int_equal(edges.count, 0);
}

static void test_edges_limits(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;

    assert_int_equal(poise_graph_edges_add(&edges, 0, UINT32_MAX), -EOVERFLOW);
    assert_int_equal(poise_graph_edges_add(&edges, UINT64_MAX, 0), -EOVERFLOW);
    assert_int_equal(edges.count, 0);
    assert_int_equal(poise_graph_edges_add(&edges, UINT32_MAX - 1, 0), 0);
    assert_int_equal(edges.vertex_count, POISE_GRAPH_MAX_VERTICES);
    assert_int_equal(poise_graph_edges_reserve(&edges, UINT64_MAX / 2),
                     -ENOMEM);
    assert_int_equal(poise_graph_edges_reserve(&edges, UINT64_MAX / 16),
                     -ENOMEM);
    assert_int_equal(edges.count, 1);
    poise_graph_edges_free(&edges);
}

static void test_edges_faults(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;

    poise_fault_arm(POISE_FAULT_ALLOC, 2, ENOMEM, false);
    int code = 0;
    uint32_t added = 0;
    while (code == 0) {
        code = poise_graph_edges_add(&edges, added, added);
        added += code == 0;
    }
    poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
    assert_int_equal(code, -ENOMEM);
    assert_true(added > 0);
    assert_int_equal(edges.count, added);
    assert_int_equal(poise_graph_edges_add(&edges, 7, 8), 0);
    assert_int_equal(edges.ends[2 * added], 7);
    poise_graph_edges_free(&edges);
}

static void near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-12 * fabs(b));
}

static void test_figures(void **state)
{
    double values[] = {4, 1, 2, 8, 5};
    (void)state;

    struct poise_graph_figures f = poise_graph_figures_of(values, 5);
    near(f.min, 1);
    near(f.first_quartile, 2);
    near(f.median, 4);
    near(f.third_quartile, 5);
    near(f.max, 8);
    near(f.mean, 4);
    near(f.deviation, sqrt(30.0 / 4));
    near(f.harmonic_mean, 5 / (1 / 4. + 1 + 1 / 2. + 1 / 8. + 1 / 5.));
    assert_true(f.harmonic_deviation > 0);

    double alike[] = {3, 3, 3};
    f = poise_graph_figures_of(alike, 3);
    near(f.harmonic_mean, 3);
    assert_true(f.harmonic_deviation < 1e-12);

    double one[] = {7};
    f = poise_graph_figures_of(one, 1);
    near(f.median, 7);
    near(f.harmonic_mean, 7);
    assert_true(f.deviation == 0 && f.harmonic_deviation == 0);
    f = poise_graph_figures_of(NULL, 0);
    assert_true(f.mean == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges_add),
        cmocka_unit_test(test_edges_limits),
        cmocka_unit_test(test_edges_faults),
        cmocka_unit_test(test_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
