/* Room graph over several ranks of one process: whatever their number, and
 * however they exchange, they find what one finds. */
#include <poise/core.h>

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../share.h"
#include "make.h"

enum { MOST_RANKS = 8, ROOTS = 3 };

struct plan {
    int ranks;
    const char *topology;
    int nodes; /* with method bottom-up: compare the bytes with the model's */
    struct poise_graph_build_options build;
    struct poise_graph_bfs_options bfs;
};

/* What all ranks of one run work on; asserted by the main thread only. */
struct run {
    const struct plan *plan;
    const struct poise_graph_edges *edges;
    uint64_t roots[ROOTS];
    int64_t *parents[ROOTS], *depths[ROOTS]; /* of all labels, by slices */
    uint64_t *components;
    uint64_t fail_at, calls; /* which allocation fails, of how many */
};

struct rank {
    pthread_t thread;
    struct run *run;
    struct poise_world *world;
    int number, code;
    struct poise_graph_info info;
    struct poise_graph_bfs_result results[ROOTS];
    int64_t components, diameter;
    uint64_t sent[ROOTS]; /* bytes */
    double forecast[ROOTS];
};

/* This rank's part of the list: every so-manieth edge. */
static int take_part(const struct rank *rank, struct poise_graph_edges *part)
{
    const struct poise_graph_edges *all = rank->run->edges;
    int code = 0;
    part->directed = all->directed;
    for (uint64_t i = (uint64_t)rank->number; code == 0 && i < all->count;
         i += (uint64_t)rank->run->plan->ranks) {
        code =
            poise_graph_edges_add(part, all->ends[2 * i], all->ends[2 * i + 1]);
    }
    part->vertex_count = all->vertex_count;
    return code;
}

/* What the model says that all send bottom-up. */
static int forecast(struct rank *rank, const struct poise_graph *graph, int i)
{
    const struct plan *plan = rank->run->plan;
    const struct poise_graph_bfs_result *result = &rank->results[i];
    struct poise_graph_machine machine = {
        .nodes = (unsigned)plan->nodes,
        .sockets = (unsigned)(plan->ranks / plan->nodes),
        .latency_s = 1e-6,
        .node_bytes_per_s = 1e9,
        .exchange = plan->bfs.ablation.exchange,
    };
    struct poise_graph_forecast said;
    int code = poise_graph_forecast(graph, result, &machine, &said);
    rank->forecast[i] = said.bottom_up_bytes;
    return code;
}

static int search(struct rank *rank, const struct poise_graph *graph)
{
    struct run *run = rank->run;
    struct poise_graph_bfs_options options = run->plan->bfs;
    struct poise_graph_bfs *bfs;
    uint64_t first, count;
    int64_t *parents;
    poise_graph_slice(graph, rank->number, &first, &count);
    parents = calloc(count + 1, sizeof *parents);
    options.parents = parents;
    int code = poise_graph_bfs_create(graph, &options, &bfs);
    if (code < 0) {
        free(parents);
        return code;
    }
    for (int i = 0; code == 0 && i < ROOTS; i++) {
        code = poise_graph_bfs_run(bfs, run->roots[i], &rank->results[i]);
        memcpy(run->parents[i] + first, parents, count * sizeof *parents);
        if (code == 0) {
            code = poise_graph_bfs_depths(bfs, run->depths[i] + first);
        }
        if (code == 0 && run->plan->nodes > 0) {
            code = forecast(rank, graph, i);
        }
        for (size_t l = 0; code == 0 && l < rank->results[i].level_count; l++) {
            rank->sent[i] += rank->results[i].levels[l].bytes;
        }
        rank->results[i].levels = NULL;
    }
    if (code == 0) {
        rank->components = poise_graph_components(bfs, run->components + first);
        rank->diameter =
            run->edges->directed
                ? 0
                : poise_graph_diameter(bfs, run->roots[1], (uint64_t[2]){0});
    }
    poise_graph_bfs_destroy(bfs);
    free(parents);
    return code;
}

static void *rank_main(void *arg)
{
    struct rank *rank = arg;
    struct poise_graph_edges part = {0};
    struct poise_graph *graph = NULL;
    int code = poise_world_agree(rank->world, take_part(rank, &part));
    if (code == 0) {
        code = poise_graph_build(rank->world, &part, &rank->run->plan->build,
                                 &graph);
    }
    if (code == 0) {
        poise_graph_info(graph, &rank->info);
        code = search(rank, graph);
    }
    poise_graph_edges_free(&part);
    poise_graph_destroy(graph);
    rank->code = code;
    return NULL;
}

static void run_ranks(struct run *run, struct rank *ranks)
{
    struct poise_local_options local = {.topology = run->plan->topology};
    struct poise_world *worlds[MOST_RANKS];
    int count = run->plan->ranks;
    assert_int_equal(poise_world_create_local(count, &local, worlds), 0);
    if (run->fail_at > 0) {
        poise_fault_arm(POISE_FAULT_ALLOC, run->fail_at, ENOMEM, false);
    }
    for (int r = 0; r < count; r++) {
        ranks[r] = (struct rank){.run = run, .world = worlds[r], .number = r};
        assert_int_equal(
            pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < count; r++) {
        pthread_join(ranks[r].thread, NULL);
    }
    run->calls = poise_fault_calls(POISE_FAULT_ALLOC);
    poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
    for (int r = 0; r < count; r++) {
        poise_world_destroy(worlds[r]);
    }
}

/* Components are closed under edges, and as many as they say. */
static void check_components(const struct run *run, const struct rank *ranks)
{
    const uint64_t *components = run->components;
    int64_t firsts = 0;
    for (uint64_t v = 0; v < run->edges->vertex_count; v++) {
        assert_true(components[v] <= v);
        firsts += components[v] == v;
    }
    for (uint64_t i = 0; i < run->edges->count; i++) {
        assert_int_equal(components[run->edges->ends[2 * i]],
                         components[run->edges->ends[2 * i + 1]]);
    }
    for (int r = 0; r < run->plan->ranks; r++) {
        assert_int_equal(ranks[r].components, firsts);
        assert_int_equal(ranks[r].diameter, ranks[0].diameter);
        assert_true(ranks[r].diameter >= 0);
    }
}

/* Search `edges` by a plan and compare with the oracle. */
static void check(const struct poise_graph_edges *edges, const struct oracle *o,
                  const struct plan *plan)
{
    struct run run = {.plan = plan, .edges = edges};
    struct rank ranks[MOST_RANKS];
    for (int i = 0; i < ROOTS; i++) {
        run.roots[i] = o->n * (uint64_t)i / ROOTS;
        run.parents[i] = calloc(o->n + 1, sizeof(int64_t));
        run.depths[i] = calloc(o->n + 1, sizeof(int64_t));
    }
    run.components = calloc(o->n + 1, sizeof *run.components);
    run_ranks(&run, ranks);
    for (int r = 0; r < plan->ranks; r++) {
        assert_int_equal(ranks[r].code, 0);
        assert_int_equal(ranks[r].info.edge_count, edges->count);
        assert_int_equal(ranks[r].info.arc_count, ranks[0].info.arc_count);
    }
    check_components(&run, ranks);
    free(run.components);
    for (int i = 0; i < ROOTS; i++) {
        struct oracle_answer a = oracle_search(o, run.roots[i]);
        for (int r = 0; r < plan->ranks; r++) {
            const struct poise_graph_bfs_result *result = &ranks[r].results[i];
            assert_int_equal(result->reached, a.reached);
            assert_int_equal(result->depth, a.depth);
            assert_int_equal(result->edges, a.edges);
            assert_int_equal(result->loops, a.loops);
        }
        if (plan->nodes > 0) {
            uint64_t sent = 0;
            for (int r = 0; r < plan->ranks; r++) {
                sent += ranks[r].sent[i];
            }
            assert_true(sent > 0 && (double)sent == ranks[0].forecast[i]);
        }
        oracle_check(o, &a, run.roots[i], run.parents[i]);
        assert_memory_equal(run.depths[i], a.depths, o->n * sizeof(int64_t));
        free(a.depths);
        free(run.parents[i]);
        free(run.depths[i]);
    }
}

static void check_all(struct poise_graph_edges *edges, const struct plan *plans,
                      size_t count)
{
    static size_t graphs; /* each has others of the plans in its share */
    struct oracle o = oracle_of(edges);
    for (size_t i = 0; i < count; i++) {
        if (in_share(graphs + i)) {
            check(edges, &o, &plans[i]);
        }
    }
    graphs++;
    oracle_free(&o);
    poise_graph_edges_free(edges);
}
#define CHECK_ALL(edges, plans)                                                \
    check_all(edges, plans, sizeof plans / sizeof *(plans))

/* Any number of ranks. */
static const struct plan by_count[] = {
    {.ranks = 1, .bfs = {.threads = 1}},
    {.ranks = 2, .bfs = {.threads = 1}},
    {.ranks = 3, .bfs = {.threads = 2}},
    {.ranks = 4, .topology = "1x2x2", .bfs = {.threads = 1}},
    {.ranks = 5, .topology = "1x2x1", .bfs = {.threads = 1}},
    {.ranks = 7, .topology = "1x3x1", .bfs = {.threads = 1}},
};

#define PLAN(...)                                                              \
    {                                                                          \
        .ranks = 4, .topology = "1x2x2", .bfs = {.threads = 1, __VA_ARGS__ }   \
    }
/* Any way to exchange, and to search. */
static const struct plan by_way[] = {
    PLAN(.ablation.exchange = POISE_GRAPH_EXCHANGE_PRIVATE),
    PLAN(.ablation.exchange = POISE_GRAPH_EXCHANGE_LEADER),
    PLAN(.ablation.exchange = POISE_GRAPH_EXCHANGE_SHARED_IN),
    PLAN(.ablation.exchange = POISE_GRAPH_EXCHANGE_SHARED_ALL),
    PLAN(.ablation.exchange = POISE_GRAPH_EXCHANGE_PARALLEL),
    PLAN(.method = POISE_GRAPH_TOP_DOWN),
    PLAN(.method = POISE_GRAPH_BOTTOM_UP),
    PLAN(.method = POISE_GRAPH_BOTTOM_UP,
         .ablation.exchange = POISE_GRAPH_EXCHANGE_SHARED_IN),
    PLAN(.ablation.no_simd = true, .ablation.no_first = true),
    PLAN(.ablation.alpha = 1000, .ablation.beta = 2),
    PLAN(.method = POISE_GRAPH_BOTTOM_UP, .ablation.no_sparse = true),
    PLAN(.ablation.granularity = 64),
    PLAN(.method = POISE_GRAPH_BOTTOM_UP, .ablation.granularity = 1024),
    {.ranks = 3,
     .build = {.order = POISE_GRAPH_ORDER_KEEP},
     .bfs = {.threads = 1}},
    {.ranks = 3,
     .build = {.order = POISE_GRAPH_ORDER_DEGREE},
     .bfs = {.threads = 1}},
    {.ranks = 3,
     .build = {.order = POISE_GRAPH_ORDER_DEGREE, .ablation.no_hubs = true},
     .bfs = {.threads = 1}},
};

static void test_count(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_skewed(&edges, 11, 1 << 14, 1);
    CHECK_ALL(&edges, by_count);
}

static void test_ways(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_skewed(&edges, 11, 1 << 14, 2);
    CHECK_ALL(&edges, by_way);
}

#define MODEL(way)                                                             \
    {                                                                          \
        .ranks = 6, .topology = "1x3x2", .nodes = 3, .bfs = {                  \
            .threads = 1,                                                      \
            .method = POISE_GRAPH_BOTTOM_UP,                                   \
            .ablation.no_sparse = true,                                        \
            .ablation.exchange = POISE_GRAPH_EXCHANGE_##way                    \
        }                                                                      \
    }
/* The model knows what is sent, (1) and (2) of the paper. */
static const struct plan by_model[] = {
    MODEL(PRIVATE),    MODEL(LEADER),   MODEL(SHARED_IN),
    MODEL(SHARED_ALL), MODEL(PARALLEL),
};

static void test_model(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_skewed(&edges, 11, 1 << 14, 2);
    /* From any vertex the frontier comes to be more than itself. */
    for (uint32_t v = 0; v + 1 < 1 << 11; v++) {
        make_add(&edges, v, v + 1);
    }
    CHECK_ALL(&edges, by_model);
}

/* Bytes that all ranks send in the first search of a plan. */
static uint64_t bytes_of(const struct plan *plan,
                         const struct poise_graph_edges *edges, uint64_t root)
{
    struct run run = {.plan = plan, .edges = edges};
    struct rank ranks[MOST_RANKS];
    uint64_t n = edges->vertex_count, sent = 0;
    for (int i = 0; i < ROOTS; i++) {
        run.roots[i] = root;
        run.parents[i] = calloc(n + 1, sizeof(int64_t));
        run.depths[i] = calloc(n + 1, sizeof(int64_t));
    }
    run.components = calloc(n + 1, sizeof *run.components);
    run_ranks(&run, ranks);
    for (int r = 0; r < plan->ranks; r++) {
        assert_int_equal(ranks[r].code, 0);
        sent += ranks[r].sent[0];
    }
    for (int i = 0; i < ROOTS; i++) {
        free(run.parents[i]);
        free(run.depths[i]);
    }
    free(run.components);
    return sent;
}

/* No message says what a hub leads to. */
static void test_hubs(void **state)
{
    static const struct poise_graph_bfs_options down = {
        .threads = 1, .method = POISE_GRAPH_TOP_DOWN};
    const enum poise_graph_order by_degree = POISE_GRAPH_ORDER_DEGREE;
    const struct plan with = {
        .ranks = 3, .build = {.order = by_degree}, .bfs = down};
    const struct plan without = {
        .ranks = 3,
        .build = {.order = by_degree, .ablation.no_hubs = true},
        .bfs = down};
    struct poise_graph_edges edges = {0};
    (void)state;
    /* A star that is a small part of the arcs, from its middle. */
    for (uint32_t v = 1; v <= 300; v++) {
        make_add(&edges, 0, v);
    }
    for (uint32_t v = 301; v < 2000; v++) {
        make_add(&edges, v, v + 1);
    }
    assert_true(bytes_of(&without, &edges, 0) >= 8 * 150);
    assert_int_equal(bytes_of(&with, &edges, 0), 0);
    poise_graph_edges_free(&edges);
}

/* Thin frontiers are sent as positions. */
static void test_sparse(void **state)
{
    static const struct poise_graph_bfs_options up = {
        .threads = 1, .method = POISE_GRAPH_BOTTOM_UP};
    struct plan with = {.ranks = 4, .topology = "1x2x2", .bfs = up};
    struct plan without = with;
    struct poise_graph_edges edges = {0};
    (void)state;
    without.bfs.ablation.no_sparse = true;
    for (uint32_t v = 0; v < 12; v++) {
        make_add(&edges, v, v + 1);
    }
    /* A number for each of 13 frontiers to the other node, hardly more. */
    assert_true(bytes_of(&with, &edges, 0) <= 3 * 13);
    assert_true(bytes_of(&without, &edges, 0) >= 13 * 1024);
    poise_graph_edges_free(&edges);
}

static void test_directed(void **state)
{
    struct poise_graph_edges edges = {.directed = true};
    (void)state;
    make_skewed(&edges, 10, 1 << 13, 3);
    CHECK_ALL(&edges, by_way);
}

static void test_grid(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_grid(&edges, 12);
    CHECK_ALL(&edges, by_count);
}

static void test_two_components(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_two(&edges, 9);
    CHECK_ALL(&edges, by_count);
}

/* Fewer vertices than ranks. */
static void test_tiny(void **state)
{
    struct poise_graph_edges edges = {0};
    (void)state;
    make_add(&edges, 4, 4);
    edges.vertex_count = 6;
    CHECK_ALL(&edges, by_count);
    make_add(&edges, 4, 2);
    edges.vertex_count = 5;
    CHECK_ALL(&edges, by_count);
}

/* One rank's part of the list is wrong: all refuse. */
static void test_refuses(void **state)
{
    struct poise_graph_edges edges = {0};
    struct run run = {.plan = &by_count[2], .edges = &edges};
    struct rank ranks[MOST_RANKS];
    (void)state;
    make_path(&edges, 10);
    edges.vertex_count = 9;
    run_ranks(&run, ranks);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].code, -EINVAL);
    }
    poise_graph_edges_free(&edges);
}

/* The k-th allocation fails; returns whether a rank said so, and how many
 * allocations there were. */
static bool run_short(const struct plan *plan,
                      const struct poise_graph_edges *edges,
                      const struct oracle *o, uint64_t k, uint64_t *calls)
{
    struct run run = {.plan = plan, .edges = edges, .fail_at = k};
    struct rank ranks[MOST_RANKS];
    bool failed = false;
    for (int i = 0; i < ROOTS; i++) {
        run.parents[i] = calloc(o->n + 1, sizeof(int64_t));
        run.depths[i] = calloc(o->n + 1, sizeof(int64_t));
    }
    run.components = calloc(o->n + 1, sizeof *run.components);
    run_ranks(&run, ranks);
    struct oracle_answer a = oracle_search(o, 0);
    for (int r = 0; r < plan->ranks; r++) {
        failed = failed || ranks[r].code < 0;
        assert_true(ranks[r].code == 0 || ranks[r].code == -ENOMEM ||
                    ranks[r].code == -ECANCELED);
    }
    for (int r = 0; !failed && r < plan->ranks; r++) {
        assert_int_equal(ranks[r].results[0].reached, a.reached);
    }
    free(a.depths);
    for (int i = 0; i < ROOTS; i++) {
        free(run.parents[i]);
        free(run.depths[i]);
    }
    free(run.components);
    *calls = run.calls;
    return failed;
}

/* One allocation after the other fails (of the many in a search, which repeat
 * themselves, only some), on whichever rank it falls: no rank waits for ever,
 * and all that went well is right. */
static void test_memory(void **state)
{
    static const struct plan plan = {
        .ranks = 3,
        .topology = "1x2x1",
        .bfs = {.threads = 1, .ablation.alpha = 2}};
    struct poise_graph_edges edges = {0};
    uint64_t k = 1, calls, failed = 0;
    (void)state;
    make_skewed(&edges, 6, 200, 5);
    make_add(&edges, 63, 64);
    for (uint32_t v = 64; v < 140; v++) {
        make_add(&edges, v, v + 1);
    }
    struct oracle o = oracle_of(&edges);
    do {
        failed += run_short(&plan, &edges, &o, k, &calls);
        k += 1 + k / 64;
    } while (calls >= k);
    assert_true(failed > 20);
    oracle_free(&o);
    poise_graph_edges_free(&edges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count),          cmocka_unit_test(test_ways),
        cmocka_unit_test(test_directed),       cmocka_unit_test(test_grid),
        cmocka_unit_test(test_two_components), cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_refuses),        cmocka_unit_test(test_model),
        cmocka_unit_test(test_hubs),           cmocka_unit_test(test_memory),
        cmocka_unit_test(test_sparse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
