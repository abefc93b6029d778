/* Room graph: the search against a plain one, with all of its options. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../share.h"
#include "make.h"

struct variant {
    struct poise_graph_build_options build;
    struct poise_graph_bfs_options bfs;
};

static void check_levels(const struct poise_graph_bfs_result *result)
{
    uint64_t found = 1, next = 0;
    for (size_t i = 0; i < result->level_count; i++) {
        const struct poise_graph_level *level = &result->levels[i];
        assert_int_equal(level->level, next);
        assert_true(level->levels >= 1);
        next = level->level + level->levels;
        found += level->found;
    }
    assert_int_equal(found, result->reached);
    if (result->level_count > 0) {
        assert_int_equal(next, result->depth + 1);
    }
}

static void check_root(const struct oracle *o, struct poise_graph_bfs *bfs,
                       uint64_t root, int64_t *parents)
{
    struct oracle_answer a = oracle_search(o, root);
    struct poise_graph_bfs_result result;
    assert_int_equal(poise_graph_bfs_run(bfs, root, &result), 0);
    assert_int_equal(result.reached, a.reached);
    assert_int_equal(result.depth, a.depth);
    assert_int_equal(result.edges, a.edges);
    assert_int_equal(result.loops, a.loops);
    check_levels(&result);
    oracle_check(o, &a, root, parents);

    int64_t *again = calloc(o->n + 1, sizeof *again);
    assert_non_null(again);
    assert_int_equal(poise_graph_bfs_parents(bfs, again), 0);
    assert_memory_equal(again, parents, o->n * sizeof *parents);
    assert_int_equal(poise_graph_bfs_depths(bfs, again), 0);
    assert_memory_equal(again, a.depths, o->n * sizeof *again);
    free(again);
    free(a.depths);
}

/* Search from some vertices of a graph by one variant. */
static void check(const struct poise_graph_edges *edges, const struct oracle *o,
                  const struct variant *variant)
{
    struct poise_graph_edges copy = *edges;
    struct poise_graph_build_options build = variant->build;
    struct poise_graph_bfs_options options = variant->bfs;
    struct poise_graph *graph;
    struct poise_graph_bfs *bfs;
    int64_t *parents = calloc(o->n + 1, sizeof *parents);
    build.keep_edges = true;
    options.parents = parents;
    assert_int_equal(poise_graph_build(NULL, &copy, &build, &graph), 0);
    assert_int_equal(poise_graph_bfs_create(graph, &options, &bfs), 0);
    for (uint64_t i = 0; i < 4; i++) {
        check_root(o, bfs, o->n * i / 4, parents);
    }
    check_root(o, bfs, o->n - 1, parents);
    poise_graph_bfs_destroy(bfs);
    poise_graph_destroy(graph);
    free(parents);
}

static const struct variant variants[] = {
    {.bfs = {.threads = 1}},
    {.bfs = {.threads = 2}},
    {.build = {.threads = 3}, .bfs = {.threads = 4}},
    {.bfs = {.threads = 2, .method = POISE_GRAPH_TOP_DOWN}},
    {.bfs = {.threads = 2,
             .method = POISE_GRAPH_TOP_DOWN,
             .ablation.no_fuse = true}},
    {.bfs = {.threads = 2, .method = POISE_GRAPH_BOTTOM_UP}},
    {.bfs = {.threads = 3,
             .method = POISE_GRAPH_BOTTOM_UP,
             .ablation.no_simd = true}},
    {.bfs = {.threads = 2,
             .method = POISE_GRAPH_BOTTOM_UP,
             .ablation.no_first = true}},
    {.bfs = {.threads = 2, .ablation.no_simd = true}},
    {.bfs = {.threads = 2,
             .ablation.no_first = true,
             .ablation.no_fuse = true}},
    {.bfs = {.threads = 2, .ablation.alpha = 1000, .ablation.beta = 2}},
    {.bfs = {.threads = 2, .ablation.granularity = 64}},
    {.bfs = {.threads = 2,
             .method = POISE_GRAPH_BOTTOM_UP,
             .ablation.granularity = 256}},
    {.bfs = {.threads = 1,
             .ablation.granularity = 4096,
             .ablation.no_first = true}},
    {.bfs = {.threads = 2, .ablation.alpha = 1, .ablation.beta = 1000}},
    {.build = {.order = POISE_GRAPH_ORDER_KEEP}, .bfs = {.threads = 2}},
    {.build = {.order = POISE_GRAPH_ORDER_DEGREE,
               .ablation.no_huge_pages = true},
     .bfs = {.threads = 2}},
    {.build = {.order = POISE_GRAPH_ORDER_DEGREE},
     .bfs = {.threads = 2, .method = POISE_GRAPH_BOTTOM_UP}},
};

/* By all variants; `edges` is used up. */
static void check_all(struct poise_graph_edges *edges)
{
    static size_t graphs; /* each has others of the variants in its share */
    struct oracle o = oracle_of(edges);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (in_share(graphs + i)) {
            check(edges, &o, &variants[i]);
        }
    }
    graphs++;
    oracle_free(&o);
    poise_graph_edges_free(edges);
}

static void test_skewed(void **state)
{
    (void)state;
    for (unsigned scale = 1; scale <= 12; scale++) {
        struct poise_graph_edges edges = {0};
        make_skewed(&edges, scale, UINT64_C(16) << scale, scale);
        check_all(&edges);
    }
}

static void test_directed(void **state)
{
    (void)state;
    for (unsigned scale = 1; scale <= 11; scale += 2) {
        struct poise_graph_edges edges = {.directed = true};
        make_skewed(&edges, scale, UINT64_C(8) << scale, scale);
        check_all(&edges);
    }
    struct poise_graph_edges edges = {.directed = true};
    make_path(&edges, 1000);
    check_all(&edges);
}

static void test_uniform(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 63, 64, 65, 1000, 4097};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct poise_graph_edges edges = {0};
        make_uniform(&edges, sizes[i], 2 * sizes[i], i);
        check_all(&edges);
    }
}

static void test_path(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_path(&edges, 3000);
    check_all(&edges);
}

static void test_star(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_star(&edges, 5000);
    check_all(&edges);
}

static void test_grid(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_grid(&edges, 70);
    check_all(&edges);
}

static void test_two_components(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_two(&edges, 333);
    check_all(&edges);
}

static void test_isolated(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_add(&edges, 3, 3);
    edges.vertex_count = 9;
    check_all(&edges);
    for (int directed = 0; directed < 2; directed++) {
        edges = (struct poise_graph_edges){.directed = directed};
        make_add(&edges, 4, 4);
        make_add(&edges, 4, 4);
        make_add(&edges, 8, 8);
        make_add(&edges, 2, 2);
        make_add(&edges, 2, 6);
        edges.vertex_count = 9;
        check_all(&edges);
    }
    edges = (struct poise_graph_edges){0};
    make_add(&edges, 2, 6);
    make_add(&edges, 6, 2);
    edges.vertex_count = 9;
    check_all(&edges);
}

static void test_empty(void **state)
{
    struct poise_graph_edges edges = {0};
    struct poise_graph *graph;
    struct poise_graph_bfs *bfs;
    struct poise_graph_bfs_result result;
    (void)state;

    assert_int_equal(poise_graph_build(NULL, &edges, NULL, &graph), 0);
    assert_int_equal(poise_graph_bfs_create(graph, NULL, &bfs), 0);
    assert_int_equal(poise_graph_bfs_run(bfs, 0, &result), -EINVAL);
    assert_int_equal(poise_graph_bfs_parents(bfs, NULL), -EINVAL);
    poise_graph_bfs_destroy(bfs);
    poise_graph_destroy(graph);
}

static void test_options(void **state)
{
    struct poise_graph_edges edges = {0};
    struct poise_graph *graph;
    struct poise_graph_bfs *bfs = NULL;
    (void)state;

    make_path(&edges, 5);
    assert_int_equal(poise_graph_build(NULL, &edges, NULL, &graph), 0);
    struct poise_graph_bfs_options wrong = {.ablation.granularity = 96};
    assert_int_equal(poise_graph_bfs_create(graph, &wrong, &bfs), -EINVAL);
    wrong.ablation.granularity = 8192;
    assert_int_equal(poise_graph_bfs_create(graph, &wrong, &bfs), -EINVAL);
    wrong = (struct poise_graph_bfs_options){.ablation.alpha = -1};
    assert_int_equal(poise_graph_bfs_create(graph, &wrong, &bfs), -EINVAL);
    assert_null(bfs);
    poise_graph_destroy(graph);
}

/* ---- the hook ----------------------------------------------------------- */

struct heard {
    int64_t *depths;
    uint64_t total;
    uint32_t stop_at;
};

static int note_level(const struct poise_graph_level *level,
                      const uint32_t *found, size_t count, void *arg)
{
    struct heard *heard = arg;
    assert_int_equal(level->levels, 1);
    assert_int_equal(level->found, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(heard->depths[found[i]], level->level + 1);
    }
    heard->total += count;
    return level->level == heard->stop_at ? -ECANCELED : 0;
}

static void test_hook(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;

    make_skewed(&edges, 11, 1 << 15, 5);
    uint64_t root = edges.ends[0];
    struct oracle o = oracle_of(&edges);
    struct oracle_answer a = oracle_search(&o, root);
    struct heard heard = {.depths = a.depths, .stop_at = UINT32_MAX};
    struct poise_graph_bfs_options options = {
        .threads = 2, .level = note_level, .arg = &heard};
    struct poise_graph *graph;
    struct poise_graph_bfs *bfs;
    struct poise_graph_bfs_result result;
    assert_int_equal(poise_graph_build(NULL, &edges, NULL, &graph), 0);
    assert_int_equal(poise_graph_bfs_create(graph, &options, &bfs), 0);
    assert_int_equal(poise_graph_bfs_run(bfs, root, &result), 0);
    assert_int_equal(heard.total + 1, a.reached);
    heard.stop_at = 1;
    assert_int_equal(poise_graph_bfs_run(bfs, root, &result), -ECANCELED);
    assert_int_equal(poise_graph_bfs_depths(bfs, a.depths), -EINVAL);
    poise_graph_bfs_destroy(bfs);
    poise_graph_destroy(graph);
    oracle_free(&o);
    free(a.depths);
}

/* ---- components and diameter -------------------------------------------- */

static void check_components(struct poise_graph_edges *edges, int64_t want,
                             int64_t diameter)
{
    struct poise_graph_build_options build = {.keep_edges = true};
    struct poise_graph *graph;
    struct poise_graph_bfs *bfs;
    uint64_t n = edges->vertex_count, ends[2];
    uint64_t *components = calloc(n + 1, sizeof *components);
    assert_int_equal(poise_graph_build(NULL, edges, &build, &graph), 0);
    assert_int_equal(poise_graph_bfs_create(graph, NULL, &bfs), 0);
    assert_int_equal(poise_graph_components(bfs, components), want);
    int64_t firsts = 0;
    for (uint64_t v = 0; v < n; v++) {
        assert_true(components[v] <= v);
        assert_int_equal(components[components[v]], components[v]);
        firsts += components[v] == v;
    }
    assert_int_equal(firsts, want);
    for (uint64_t i = 0; i < edges->count; i++) {
        assert_int_equal(components[edges->ends[2 * i]],
                         components[edges->ends[2 * i + 1]]);
    }
    if (edges->directed) {
        assert_int_equal(poise_graph_diameter(bfs, 0, ends), -EINVAL);
    } else {
        assert_int_equal(poise_graph_diameter(bfs, 0, ends), diameter);
        assert_int_equal(components[ends[0]], components[0]);
        assert_int_equal(components[ends[1]], components[0]);
    }
    poise_graph_bfs_destroy(bfs);
    poise_graph_destroy(graph);
    poise_graph_edges_free(edges);
    free(components);
}

static void test_components(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_two(&edges, 99);
    check_components(&edges, 2 + 5, 49);
    make_path(&edges, 500);
    check_components(&edges, 1, 499);
    make_grid(&edges, 20);
    check_components(&edges, 1, 38);
    make_star(&edges, 300);
    check_components(&edges, 1, 2);
    make_add(&edges, 0, 0);
    edges.vertex_count = 4;
    check_components(&edges, 4, 0);
    edges.directed = true;
    make_path(&edges, 10);
    make_add(&edges, 12, 11);
    check_components(&edges, 1 + 1 + 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_skewed),
        cmocka_unit_test(test_directed),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_path),
        cmocka_unit_test(test_star),
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_two_components),
        cmocka_unit_test(test_isolated),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_hook),
        cmocka_unit_test(test_components),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
