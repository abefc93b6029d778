/* Room graph: the five checks, and trees that break each of them. */
#include <poise/bfs.h>
#include <poise/core.h>

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A serial search over the list of edges, the simplest there is. */
static void search(const struct poise_graph_edges *edges, uint64_t root,
                   int64_t *parents, int64_t *depths)
{
    for (uint64_t v = 0; v < edges->vertex_count; v++) {
        parents[v] = depths[v] = -1;
    }
    parents[root] = (int64_t)root;
    depths[root] = 0;
    bool found = true;
    for (int64_t depth = 0; found; depth++) {
        found = false;
        for (uint64_t i = 0; i < edges->count; i++) {
            for (int way = 0; way < (edges->directed ? 1 : 2); way++) {
                uint32_t a = edges->ends[2 * i + (uint64_t)way];
                uint32_t b = edges->ends[2 * i + 1 - (uint64_t)way];
                if (depths[a] == depth && depths[b] < 0) {
                    depths[b] = depth + 1;
                    parents[b] = a;
                    found = true;
                }
            }
        }
    }
}

/** A graph, a right tree of it, and room to spoil the tree. */
struct setting {
    struct poise_graph_edges edges;
    int64_t *parents, *depths;
    uint64_t root;
};

static void make(struct setting *set, uint64_t root)
{
    set->root = root;
    set->parents = calloc(set->edges.vertex_count, sizeof *set->parents);
    set->depths = calloc(set->edges.vertex_count, sizeof *set->depths);
    assert_non_null(set->parents);
    assert_non_null(set->depths);
    search(&set->edges, root, set->parents, set->depths);
}

static void drop(struct setting *set)
{
    free(set->parents);
    free(set->depths);
    poise_graph_edges_free(&set->edges);
}

enum { RANKS = 3 };

/** One rank of several that have each a part of the edges. */
struct rank {
    const struct setting *set;
    struct poise_world *world;
    struct poise_graph_verdict verdict;
    int code;
};

static void *rank_main(void *arg)
{
    struct rank *rank = arg;
    const struct poise_graph_edges *all = &rank->set->edges;
    struct poise_graph_edges part = {.directed = all->directed};
    int code = 0;
    for (uint64_t i = (uint64_t)poise_world_rank(rank->world);
         code == 0 && i < all->count; i += RANKS) {
        code = poise_graph_edges_add(&part, all->ends[2 * i],
                                     all->ends[2 * i + 1]);
    }
    part.vertex_count = all->vertex_count;
    rank->code = poise_world_agree(rank->world, code);
    if (rank->code == 0) {
        rank->code = poise_graph_validate_ranks(
            rank->world, &part, rank->set->root, rank->set->parents, NULL, 1,
            &rank->verdict);
    }
    poise_graph_edges_free(&part);
    return NULL;
}

/* All ranks come to the verdict of one that has the whole list. */
static void check_ranks(const struct setting *set,
                        const struct poise_graph_verdict *want)
{
    struct poise_world *worlds[RANKS];
    struct rank ranks[RANKS];
    pthread_t threads[RANKS];
    assert_int_equal(poise_world_create_local(RANKS, NULL, worlds), 0);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.set = set, .world = worlds[r]};
        assert_int_equal(
            pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
    }
    for (int r = 0; r < RANKS; r++) {
        const struct poise_graph_verdict *verdict = &ranks[r].verdict;
        poise_world_destroy(worlds[r]);
        assert_int_equal(ranks[r].code, 0);
        assert_int_equal(verdict->fault, want->fault);
        assert_int_equal(verdict->vertex, ranks[0].verdict.vertex);
        assert_int_equal(verdict->reached, want->reached);
        if (want->fault == POISE_GRAPH_VALID) {
            assert_int_equal(verdict->edges, want->edges);
        }
    }
}

static struct poise_graph_verdict check(const struct setting *set,
                                        enum poise_graph_fault fault)
{
    struct poise_graph_verdict verdict;
    for (unsigned threads = 1; threads <= 4; threads++) {
        assert_int_equal(poise_graph_validate(&set->edges, set->root,
                                              set->parents, threads, &verdict),
                         0);
        assert_int_equal(verdict.fault, fault);
    }
    check_ranks(set, &verdict);
    return verdict;
}

static uint64_t reachable(const struct setting *set)
{
    uint64_t count = 0;
    for (uint64_t v = 0; v < set->edges.vertex_count; v++) {
        count += set->parents[v] >= 0;
    }
    return count;
}

/* Path 0-1-2-3, triangle 4-5-6 hanging on 0, vertex 7 alone, 8-9 apart, a loop
 * at 1, 2-3 twice. */
static struct setting small(bool directed)
{
    static const uint32_t ends[][2] = {{0, 1}, {1, 2}, {2, 3}, {0, 4}, {4, 5},
                                       {5, 6}, {4, 6}, {8, 9}, {1, 1}, {2, 3}};
    struct setting set = {0};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        assert_int_equal(
            poise_graph_edges_add(&set.edges, ends[i][0], ends[i][1]), 0);
    }
    set.edges.directed = directed;
    make(&set, 0);
    return set;
}

static void test_right_trees_pass(void **state)
{
    (void)state;
    for (int directed = 0; directed < 2; directed++) {
        struct setting set = small(directed);
        struct poise_graph_verdict verdict = check(&set, POISE_GRAPH_VALID);
        assert_int_equal(verdict.reached, 7);
        assert_int_equal(verdict.edges, 9);
        assert_int_equal(poise_graph_validate_depths(&set.edges, 0, set.parents,
                                                     set.depths, 2, &verdict),
                         0);
        assert_int_equal(verdict.fault, POISE_GRAPH_VALID);
        drop(&set);
    }
}

static void test_random_trees_pass(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct setting set = {0};
        struct poise_graph_kronecker options = {
            .scale = 10, .edge_factor = 2 * seed, .seed1 = seed};
        assert_int_equal(poise_graph_generate(NULL, &options, &set.edges), 0);
        set.edges.directed = seed % 2 == 0;
        make(&set, set.edges.ends[0]);
        struct poise_graph_verdict verdict = check(&set, POISE_GRAPH_VALID);
        assert_int_equal(verdict.reached, reachable(&set));
        drop(&set);
    }
}

/* A path, from its far end: levels are as many as vertices. */
static void test_long_path_passes(void **state)
{
    (void)state;
    enum { LENGTH = 300000 };
    struct setting set = {.root = LENGTH - 1};
    set.parents = calloc(LENGTH, sizeof *set.parents);
    assert_non_null(set.parents);
    for (uint32_t v = 0; v + 1 < LENGTH; v++) {
        poise_graph_edges_add(&set.edges, v, v + 1);
        set.parents[v] = v + 1;
    }
    set.parents[LENGTH - 1] = LENGTH - 1;
    struct poise_graph_verdict verdict = check(&set, POISE_GRAPH_VALID);
    assert_int_equal(verdict.reached, LENGTH);
    assert_int_equal(verdict.edges, LENGTH - 1);
    /* Closed to a cycle somewhere, everything above hangs on it. */
    set.parents[200000] = 100000;
    check(&set, POISE_GRAPH_FAULT_TREE);
    drop(&set);
}

static void test_parent_out_of_range(void **state)
{
    (void)state;
    static const int64_t wrong[] = {10, -2, INT64_MAX, INT64_MIN};
    for (int i = 0; i < 4; i++) {
        struct setting set = small(false);
        set.parents[3] = wrong[i];
        struct poise_graph_verdict verdict =
            check(&set, POISE_GRAPH_FAULT_RANGE);
        assert_int_equal(verdict.vertex, 3);
        assert_int_equal((int64_t)verdict.other, wrong[i]);
        drop(&set);
    }
}

static void test_1_not_a_tree(void **state)
{
    (void)state;
    struct setting set = small(false);
    set.parents[5] = 6; /* a cycle of two */
    set.parents[6] = 5;
    check(&set, POISE_GRAPH_FAULT_TREE);
    drop(&set);
    set = small(false);
    set.parents[5] = 5; /* a second root */
    assert_int_equal(check(&set, POISE_GRAPH_FAULT_TREE).vertex, 5);
    drop(&set);
    set = small(false);
    set.parents[0] = 1; /* the root has another parent */
    assert_int_equal(check(&set, POISE_GRAPH_FAULT_TREE).vertex, 0);
    set.parents[0] = -1; /* or none */
    assert_int_equal(check(&set, POISE_GRAPH_FAULT_TREE).vertex, 0);
    drop(&set);
    set = small(false);
    set.parents[3] = 7; /* hangs on an unreached vertex */
    assert_int_equal(check(&set, POISE_GRAPH_FAULT_TREE).vertex, 3);
    drop(&set);
}

static void test_2_wrong_levels(void **state)
{
    (void)state;
    for (uint64_t v = 0; v < 10; v++) {
        struct setting set = small(false);
        struct poise_graph_verdict verdict;
        set.depths[v]++;
        assert_int_equal(poise_graph_validate_depths(&set.edges, 0, set.parents,
                                                     set.depths, 2, &verdict),
                         0);
        assert_int_equal(verdict.fault, POISE_GRAPH_FAULT_LEVELS);
        assert_int_equal(verdict.vertex, v);
        drop(&set);
    }
}

/* All tree edges are edges, but the way round the ring is too long. */
static void test_3_edge_spans_two_levels(void **state)
{
    (void)state;
    struct setting set = {0};
    for (uint32_t v = 0; v < 5; v++) {
        poise_graph_edges_add(&set.edges, v, (v + 1) % 5);
    }
    make(&set, 0);
    check(&set, POISE_GRAPH_VALID);
    set.parents[4] = 3; /* 0-1-2-3-4, and the edge 4-0 spans four levels */
    set.parents[3] = 2;
    struct poise_graph_verdict verdict = check(&set, POISE_GRAPH_FAULT_SPAN);
    assert_int_equal(verdict.vertex, 4);
    assert_int_equal(verdict.other, 0);
    /* As arcs 0 -> 1 -> ... -> 4 -> 0 that is the right tree. */
    set.edges.directed = true;
    check(&set, POISE_GRAPH_VALID);
    drop(&set);
}

static void test_4_vertex_left_out(void **state)
{
    (void)state;
    struct setting set = small(false);
    set.parents[3] = -1;
    struct poise_graph_verdict verdict = check(&set, POISE_GRAPH_FAULT_REACH);
    assert_int_equal(verdict.vertex, 2);
    assert_int_equal(verdict.other, 3);
    drop(&set);
    set = small(true);
    set.parents[3] = -1;
    check(&set, POISE_GRAPH_FAULT_REACH);
    drop(&set);
    /* An arc into the tree from outside is right. */
    set = small(true);
    poise_graph_edges_add(&set.edges, 7, 3);
    check(&set, POISE_GRAPH_VALID);
    set.edges.directed = false;
    check(&set, POISE_GRAPH_FAULT_REACH);
    drop(&set);
}

static void test_5_tree_edge_not_in_graph(void **state)
{
    (void)state;
    struct setting set = small(false);
    set.parents[5] = 1; /* of the right level, but no neighbour */
    struct poise_graph_verdict verdict = check(&set, POISE_GRAPH_FAULT_EDGE);
    assert_int_equal(verdict.vertex, 5);
    assert_int_equal(verdict.other, 1);
    drop(&set);
    /* An arc the wrong way round is none: 0 -> 2 and 2 -> 1 only. */
    set = (struct setting){0};
    poise_graph_edges_add(&set.edges, 0, 1);
    poise_graph_edges_add(&set.edges, 0, 2);
    poise_graph_edges_add(&set.edges, 3, 1);
    set.edges.directed = true;
    make(&set, 0);
    set.parents[3] = 1;
    check(&set, POISE_GRAPH_FAULT_EDGE);
    drop(&set);
}

/* Spoil one parent of a larger tree, at random: whatever it is, it is found,
 * unless the tree happens to be right again. */
static void test_random_mutations_are_found(void **state)
{
    (void)state;
    struct setting set = {0};
    struct poise_graph_kronecker options = {.scale = 8, .edge_factor = 3};
    struct poise_rng rng;
    assert_int_equal(poise_graph_generate(NULL, &options, &set.edges), 0);
    make(&set, set.edges.ends[0]);
    const uint64_t n = set.edges.vertex_count;
    uint8_t *edge = calloc(n, n);
    assert_non_null(edge);
    for (uint64_t i = 0; i < set.edges.count; i++) {
        uint32_t a = set.edges.ends[2 * i], b = set.edges.ends[2 * i + 1];
        edge[a * n + b] = edge[b * n + a] = 1;
    }
    poise_rng_seed(&rng, 5);
    for (int i = 0; i < 2000; i++) {
        uint64_t v = poise_rng_below(&rng, n);
        int64_t was = set.parents[v];
        int64_t now = (int64_t)poise_rng_below(&rng, n + 1) - 1;
        bool right = now == was || (v != set.root && now >= 0 && was >= 0 &&
                                    edge[v * n + (uint64_t)now] &&
                                    set.depths[now] + 1 == set.depths[v]);
        struct poise_graph_verdict verdict;
        set.parents[v] = now;
        assert_int_equal(poise_graph_validate(&set.edges, set.root, set.parents,
                                              1, &verdict),
                         0);
        if (right != (verdict.fault == POISE_GRAPH_VALID)) {
            fail_msg("parent of %llu: %lld, then %lld: verdict %d",
                     (unsigned long long)v, (long long)was, (long long)now,
                     (int)verdict.fault);
        }
        set.parents[v] = was;
    }
    free(edge);
    drop(&set);
}

static void test_errors(void **state)
{
    (void)state;
    struct setting set = small(false);
    struct poise_graph_verdict verdict;
    assert_int_equal(
        poise_graph_validate(&set.edges, 10, set.parents, 1, &verdict),
        -EINVAL);
    set.edges.ends[5] = 10;
    assert_int_equal(
        poise_graph_validate(&set.edges, 0, set.parents, 1, &verdict), -EINVAL);
    assert_non_null(strstr(poise_error_last()->why, "edge 2 has"));
    set.edges.ends[5] = 3;
    for (uint64_t k = 1; k <= 2; k++) {
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        assert_int_equal(
            poise_graph_validate(&set.edges, 0, set.parents, 2, &verdict),
            -ENOMEM);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
    }
    drop(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_trees_pass),
        cmocka_unit_test(test_random_trees_pass),
        cmocka_unit_test(test_long_path_passes),
        cmocka_unit_test(test_parent_out_of_range),
        cmocka_unit_test(test_1_not_a_tree),
        cmocka_unit_test(test_2_wrong_levels),
        cmocka_unit_test(test_3_edge_spans_two_levels),
        cmocka_unit_test(test_4_vertex_left_out),
        cmocka_unit_test(test_5_tree_edge_not_in_graph),
        cmocka_unit_test(test_random_mutations_are_found),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
