/* Room graph: lists of edges, figures, building. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../share.h"
#include "graph/build/build.h"
#include "make.h"

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

/* ---- building ----------------------------------------------------------- */

/* Rows are the different neighbours, ascending by place. */
static void check_rows(const struct poise_graph *graph,
                       const struct graph_rows *rows, const struct oracle *o)
{
    bool *seen = calloc(o->n + 1, sizeof *seen);
    assert_non_null(seen);
    for (uint64_t row = 0; row < graph->local_count; row++) {
        uint64_t label = graph_label(graph, (uint32_t)row), count = 0;
        assert_int_equal(graph_id(graph, label), row);
        for (uint64_t i = o->start[label]; i < o->start[label + 1]; i++) {
            count += o->to[i] != label && !seen[o->to[i]];
            seen[o->to[i]] = true;
        }
        uint64_t from = rows->start[row], to = rows->start[row + 1];
        assert_int_equal(to - from, count);
        assert_int_equal(rows->first[row], count > 0 ? rows->to[from] : row);
        assert_true(count <= 1 || row < rows->more_to);
        for (uint64_t a = from; a < to; a++) {
            assert_true(seen[graph_label(graph, rows->to[a])]);
            assert_true(a == from || rows->to[a - 1] < rows->to[a]);
        }
        for (uint64_t i = o->start[label]; i < o->start[label + 1]; i++) {
            seen[o->to[i]] = false;
        }
    }
    free(seen);
}

static void reverse(struct poise_graph_edges *edges)
{
    for (uint64_t i = 0; i < edges->count; i++) {
        uint32_t u = edges->ends[2 * i];
        edges->ends[2 * i] = edges->ends[2 * i + 1];
        edges->ends[2 * i + 1] = u;
    }
}

static void test_build_rows(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        if (!in_share((size_t)i)) {
            continue;
        }
        struct poise_graph_edges edges = {.directed = i % 2 != 0};
        struct poise_graph_build_options options = {
            .order = (enum poise_graph_order)(i / 2), .keep_edges = true};
        struct poise_graph *graph;
        /* Hubs of more than 2^16 ends, more than one bucket. */
        make_skewed(&edges, 14, 600000, 3);
        struct oracle o = oracle_of(&edges);
        assert_int_equal(poise_graph_build(NULL, &edges, &options, &graph), 0);
        check_rows(graph, &graph->out, &o);
        if (edges.directed) {
            oracle_free(&o);
            reverse(&edges);
            o = oracle_of(&edges);
            check_rows(graph, &graph->in, &o);
        }
        oracle_free(&o);
        poise_graph_edges_free(&edges);
        poise_graph_destroy(graph);
    }
}

static void test_build_info(void **state)
{
    struct poise_graph_edges edges = {0};
    struct poise_graph_info info;
    struct poise_graph *graph;
    (void)state;

    make_add(&edges, 1, 2);
    make_add(&edges, 2, 1);
    make_add(&edges, 2, 2);
    make_add(&edges, 2, 5);
    make_add(&edges, 7, 7);
    edges.vertex_count = 10;
    assert_int_equal(poise_graph_build(NULL, &edges, NULL, &graph), 0);
    assert_null(edges.ends);
    poise_graph_info(graph, &info);
    assert_int_equal(info.vertex_count, 10);
    assert_int_equal(info.connected_count, 3);
    assert_int_equal(info.edge_count, 5);
    assert_int_equal(info.arc_count, 4);
    assert_int_equal(info.loop_count, 2);
    assert_int_equal(info.max_degree, 5);
    assert_true(info.bytes > 0 && !info.directed);
    assert_int_equal(poise_graph_degree(graph, 2), 2);
    assert_int_equal(poise_graph_degree(graph, 1), 1);
    assert_int_equal(poise_graph_degree(graph, 7), 0);
    assert_int_equal(poise_graph_degree(graph, 10), 0);
    uint64_t first, count;
    poise_graph_slice(graph, 0, &first, &count);
    assert_int_equal(first, 0);
    assert_int_equal(count, 10);
    poise_graph_destroy(graph);
}

static enum poise_graph_order order_of(struct poise_graph_edges *edges)
{
    struct poise_graph_info info;
    struct poise_graph *graph;
    assert_int_equal(poise_graph_build(NULL, edges, NULL, &graph), 0);
    poise_graph_info(graph, &info);
    poise_graph_destroy(graph);
    return info.order;
}

static void test_build_order(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_skewed(&edges, 12, 1 << 16, 1);
    assert_int_equal(order_of(&edges), POISE_GRAPH_ORDER_DEGREE);
    make_grid(&edges, 60);
    assert_int_equal(order_of(&edges), POISE_GRAPH_ORDER_KEEP);
    make_uniform(&edges, 4096, 1 << 16, 1);
    assert_int_equal(order_of(&edges), POISE_GRAPH_ORDER_KEEP);
    make_star(&edges, 4096);
    assert_int_equal(order_of(&edges), POISE_GRAPH_ORDER_DEGREE);
}

/* More ends at one vertex than are sorted by counting. */
static void test_build_huge_degrees(void **state)
{
    struct poise_graph_edges edges = {0};
    struct poise_graph_build_options options = {.order =
                                                    POISE_GRAPH_ORDER_DEGREE};
    struct poise_graph *graph;
    (void)state;

    for (uint32_t hub = 0; hub < 3; hub++) {
        for (uint32_t i = 0; i < 70000 + 1000 * hub; i++) {
            make_add(&edges, hub, 3 + i % 9);
        }
    }
    assert_int_equal(poise_graph_build(NULL, &edges, &options, &graph), 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(graph->label_of[i], 2 - i);
        assert_int_equal(poise_graph_degree(graph, i), 9);
    }
    poise_graph_destroy(graph);
}

static void test_build_refuses(void **state)
{
    struct poise_graph_edges edges = {0};
    struct poise_graph_build_options options = {.keep_edges = true};
    struct poise_graph *graph = NULL;
    (void)state;

    make_path(&edges, 100);
    edges.vertex_count = 99;
    assert_int_equal(poise_graph_build(NULL, &edges, &options, &graph),
                     -EINVAL);
    assert_non_null(strstr(poise_error_last()->why, "label 99"));
    assert_int_equal(edges.count, 99);

    /* Refused by the arithmetic alone: nothing of it is looked at. */
    struct poise_graph_edges many = edges;
    many.count = UINT64_C(1) << 45;
    assert_int_equal(poise_graph_build(NULL, &many, &options, &graph), -ENOMEM);
    assert_non_null(strstr(poise_error_last()->why, "35184372088832 edges"));

    /* So is what a limit does not leave beside the list itself. */
    many.count = 99;
    many.vertex_count = 100;
    options.memory_bytes = UINT64_C(99) * (8 + 12) + UINT64_C(100) * 32 - 1;
    assert_int_equal(poise_graph_build(NULL, &many, &options, &graph), -ENOMEM);
    assert_non_null(strstr(poise_error_last()->why, "the limit leaves"));
    options.memory_bytes++;
    assert_int_equal(poise_graph_build(NULL, &many, &options, &graph), 0);
    poise_graph_destroy(graph);
    graph = NULL;
    assert_null(graph);
    poise_graph_edges_free(&edges);
}

static int stop_at(const char *doing, uint64_t done, uint64_t total, void *arg)
{
    (void)doing;
    assert_true(done <= total);
    return done == *(uint64_t *)arg ? -ECANCELED : 0;
}

static void test_build_progress(void **state)
{
    (void)state;
    for (uint64_t step = 0; step < 8; step++) {
        struct poise_graph_edges edges = {0};
        struct poise_graph_build_options options = {.progress = stop_at,
                                                    .arg = &step};
        struct poise_graph *graph = NULL;
        make_path(&edges, 100);
        assert_int_equal(poise_graph_build(NULL, &edges, &options, &graph),
                         step < 7 ? -ECANCELED : 0);
        assert_null(edges.ends);
        poise_graph_destroy(graph);
    }
}

/* Build and search with the k-th allocation failing. */
static int build_and_search(bool directed)
{
    struct poise_graph_edges edges = {.directed = directed};
    struct poise_graph_bfs_options options = {.threads = 2};
    struct poise_graph_bfs_result result;
    struct poise_graph *graph = NULL;
    struct poise_graph_bfs *bfs = NULL;
    int64_t depths[256];
    int code = 0;
    for (uint32_t i = 0; i < 200 && code == 0; i++) {
        code = poise_graph_edges_add(&edges, i % 7, i);
    }
    if (code == 0) {
        code = poise_graph_build(NULL, &edges, NULL, &graph);
    }
    poise_graph_edges_free(&edges);
    if (code == 0) {
        code = poise_graph_bfs_create(graph, &options, &bfs);
    }
    if (code == 0) {
        code = poise_graph_bfs_run(bfs, 0, &result);
    }
    if (code == 0) {
        code = poise_graph_bfs_depths(bfs, depths);
    }
    poise_graph_bfs_destroy(bfs);
    poise_graph_destroy(graph);
    return code;
}

static void test_faults(void **state)
{
    (void)state;
    for (int directed = 0; directed < 2; directed++) {
        int code = -ENOMEM;
        uint64_t k = 1;
        for (; code < 0; k++) {
            poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
            code = build_and_search(directed != 0);
            assert_true(code == 0 || code == -ENOMEM);
        }
        assert_true(k > 20);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
    }
}

/* ---- roots -------------------------------------------------------------- */

static void test_roots(void **state)
{
    uint64_t roots[64], again[64];
    (void)state;
    for (int order = 1; order < 3; order++) {
        struct poise_graph_edges edges = {0};
        struct poise_graph_build_options options = {
            .order = (enum poise_graph_order)order};
        struct poise_graph *graph;
        make_skewed(&edges, 10, 2000, 9);
        assert_int_equal(poise_graph_build(NULL, &edges, &options, &graph), 0);
        assert_int_equal(poise_graph_pick_roots(graph, 1, 64, roots), 64);
        for (int i = 0; i < 64; i++) {
            assert_true(poise_graph_degree(graph, roots[i]) > 0);
            for (int j = 0; j < i; j++) {
                assert_true(roots[i] != roots[j]);
            }
        }
        if (order == 1) {
            memcpy(again, roots, sizeof roots);
        }
        assert_memory_equal(again, roots, sizeof roots);
        assert_int_equal(poise_graph_pick_roots(graph, 2, 64, roots), 64);
        assert_memory_not_equal(again, roots, sizeof roots);
        poise_graph_destroy(graph);
    }
}

static void test_few_roots(void **state)
{
    struct poise_graph_edges edges = {0};
    struct poise_graph *graph;
    uint64_t roots[64];
    (void)state;

    make_add(&edges, 4, 2);
    edges.vertex_count = 10;
    assert_int_equal(poise_graph_build(NULL, &edges, NULL, &graph), 0);
    assert_int_equal(poise_graph_pick_roots(graph, 1, 64, roots), 2);
    assert_int_equal(roots[0] + roots[1], 6);
    assert_true(roots[0] == 2 || roots[0] == 4);
    poise_graph_destroy(graph);
}

/* ---- teams -------------------------------------------------------------- */

struct sums {
    uint64_t sum;
    uint32_t *seen;
};

static void add_chunk(void *arg, unsigned thread, uint32_t chunk)
{
    struct sums *sums = arg;
    (void)thread;
    __atomic_fetch_add(&sums->sum, chunk, __ATOMIC_RELAXED);
    __atomic_fetch_add(&sums->seen[chunk], 1, __ATOMIC_RELAXED);
}

static void test_team(void **state)
{
    enum { CHUNKS = 500, ROUNDS = 300 };
    (void)state;
    for (unsigned threads = 1; threads <= 5; threads += 2) {
        struct graph_team *team;
        uint32_t seen[CHUNKS] = {0};
        struct sums sums = {.seen = seen};
        assert_int_equal(graph_team_create(threads, &team), 0);
        assert_int_equal(graph_team_size(team), threads);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            graph_team_run(team, add_chunk, &sums, round);
            sums.sum -= (uint64_t)round * (round > 0 ? round - 1 : 0) / 2;
            assert_int_equal(sums.sum, 0);
        }
        for (uint32_t i = 0; i < CHUNKS; i++) {
            assert_int_equal(seen[i], i < ROUNDS ? ROUNDS - 1 - i : 0);
        }
        graph_team_destroy(team);
    }
}

static void test_ranges(void **state)
{
    (void)state;
    for (uint64_t count = 0; count < 200; count++) {
        for (uint32_t chunks = 1; chunks < 9; chunks++) {
            uint64_t next = 0;
            for (uint32_t i = 0; i < chunks; i++) {
                struct graph_range range = graph_range_of(count, i, chunks, 16);
                assert_int_equal(range.from, next);
                assert_true(range.to == count || range.to % 16 == 0);
                next = range.to;
            }
            assert_int_equal(next, count);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges_add),
        cmocka_unit_test(test_edges_limits),
        cmocka_unit_test(test_edges_faults),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_build_rows),
        cmocka_unit_test(test_build_info),
        cmocka_unit_test(test_build_order),
        cmocka_unit_test(test_build_huge_degrees),
        cmocka_unit_test(test_build_refuses),
        cmocka_unit_test(test_build_progress),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_roots),
        cmocka_unit_test(test_few_roots),
        cmocka_unit_test(test_team),
        cmocka_unit_test(test_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
