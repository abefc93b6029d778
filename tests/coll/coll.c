/*
 * Collectives on trees: right answers over shapes, layouts, kinds and lengths;
 * bits that do not depend on the run; bytes per link; stages; trees swapped
 * while calls go on; ranks that disagree; faults.
 */
#include "../share.h"
#include "coll/collective/internal.h"

#include "../ranks.h"

#include <errno.h>

static const char *const shapes[] = {
    "flat",      "binary",      "kary:3",        "binomial", "node",
    "node:flat", "site:binary", "magpie:kary:2", "magpie",   "default"};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static const struct layout {
    int size;
    const char *topology;
} layouts[] = {
    {1, NULL},    {2, NULL},    {5, NULL},    {3, "3x1x1"},
    {6, "1x3x1"}, {8, "2x2x1"}, {7, "3x1x2"}, {9, "2x3x1"},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

struct plan {
    const char *shape;
    struct poise_coll_options options;
    int rounds;
};

static int make(struct poise_world *world, const struct plan *plan,
                struct poise_coll **out)
{
    struct poise_coll_options options = plan->options;
    struct poise_coll_tree *tree;
    EXPECT(poise_coll_tree_make(world, plan->shape, &tree) == 0);
    options.tree = tree;
    EXPECT(poise_coll_create(world, &options, out) == 0);
    poise_coll_tree_free(tree);
    return 0;
}

/* ---- right answers ------------------------------------------------------ */

static int64_t value_of(int rank, size_t i, int round)
{
    return (int64_t)poise_hash_u64((uint64_t)rank * 1000003 + i * 17 +
                                   (uint64_t)round) %
           1000;
}

static int64_t expected(enum poise_coll_op op, int size, size_t i, int round)
{
    int64_t result = value_of(0, i, round);
    for (int rank = 1; rank < size; rank++) {
        int64_t value = value_of(rank, i, round);
        switch (op) {
        case POISE_OP_SUM:
            result += value;
            break;
        case POISE_OP_MIN:
            result = value < result ? value : result;
            break;
        default:
            result = value > result ? value : result;
            break;
        }
    }
    return result;
}

static int try_reduce(struct poise_coll *coll, int rank, int size, size_t count,
                      int round, int64_t *in, int64_t *out)
{
    static const enum poise_coll_op ops[] = {POISE_OP_SUM, POISE_OP_MIN,
                                             POISE_OP_MAX};
    enum poise_coll_op op = ops[round % 3];
    for (int root = -1; root < size; root += 1 + size / 3) {
        for (size_t i = 0; i < count; i++) {
            in[i] = value_of(rank, i, round);
            out[i] = -7;
        }
        if (root < 0) {
            EXPECT(poise_coll_allreduce(coll, in, out, count, POISE_INT64,
                                        op) == 0);
        } else {
            EXPECT(poise_coll_reduce(coll, root, in, out, count, POISE_INT64,
                                     op) == 0);
        }
        for (size_t i = 0; i < count; i++) {
            bool mine = root < 0 || root == rank;
            EXPECT(out[i] == (mine ? expected(op, size, i, round) : -7));
        }
    }
    return 0;
}

static int try_broadcast(struct poise_coll *coll, int rank, int size,
                         size_t count, int round, int64_t *data)
{
    for (int root = 0; root < size; root += 1 + size / 3) {
        for (size_t i = 0; i < count; i++) {
            data[i] = rank == root ? value_of(root, i, round) : 0;
        }
        EXPECT(poise_coll_broadcast(coll, root, data, count * 8) == 0);
        for (size_t i = 0; i < count; i++) {
            EXPECT(data[i] == value_of(root, i, round));
        }
    }
    return 0;
}

static int try_items(struct poise_coll *coll, int rank, int size, size_t count,
                     int round, int64_t *in, int64_t *out)
{
    for (int root = 0; root < size; root += 1 + size / 3) {
        for (size_t i = 0; i < count; i++) {
            in[i] = value_of(rank, i, round);
        }
        EXPECT(poise_coll_gather(coll, root, in, out, count * 8) == 0);
        for (size_t i = 0; i < count * (size_t)size && rank == root; i++) {
            EXPECT(out[i] == value_of((int)(i / count), i % count, round));
        }
        EXPECT(poise_coll_scatter(coll, root, out, in, count * 8) == 0);
        for (size_t i = 0; i < count; i++) {
            EXPECT(in[i] == value_of(rank, i, round));
        }
    }
    memset(out, 0, count * (size_t)size * 8);
    EXPECT(poise_coll_allgather(coll, in, out, count * 8) == 0);
    for (size_t i = 0; i < count * (size_t)size; i++) {
        EXPECT(out[i] == value_of((int)(i / count), i % count, round));
    }
    return 0;
}

/* In a record, in a slot, shared out over the group, in several pieces. */
static const size_t counts[] = {1, 4, 37, 1500, 3000};
enum { COUNTS = sizeof counts / sizeof counts[0], MOST = 3000 };

static int try_all(struct poise_world *world, void *arg)
{
    const struct plan *plan = arg;
    int rank = poise_world_rank(world), size = poise_world_size(world);
    struct poise_coll *coll;
    int line = make(world, plan, &coll);
    int64_t *in = malloc(MOST * 8);
    int64_t *out = malloc(MOST * 8 * (size_t)size);
    for (int round = 0; round < plan->rounds && line == 0; round++) {
        size_t count = counts[round % COUNTS];
        line = try_reduce(coll, rank, size, count, round, in, out);
        if (line == 0) {
            line = try_broadcast(coll, rank, size, count, round, in);
        }
        if (line == 0) {
            line = try_items(coll, rank, size, count, round, in, out);
        }
        if (line == 0 && poise_coll_barrier(coll) != 0) {
            line = __LINE__;
        }
    }
    free(in);
    free(out);
    if (line == 0) {
        poise_coll_destroy(coll);
    }
    return line;
}

static void test_answers(void **state)
{
    (void)state;
    for (int l = 0; l < LAYOUTS; l++) {
        struct poise_local_options opts = {.topology = layouts[l].topology};
        for (int s = 0; s < SHAPES; s++) {
            if (!in_share((size_t)(l + s))) {
                continue;
            }
            struct plan plan = {
                .shape = shapes[s],
                .options = {.reproducible = s % 2 == 0, .piece_bytes = 16384},
                .rounds = COUNTS};
            run_clean(layouts[l].size, &opts, try_all, &plan);
        }
    }
}

static void test_rough(void **state)
{
    (void)state;
    struct poise_local_options opts = {.delay_max_ns = 100000,
                                       .reorder = true,
                                       .seed = 11,
                                       .topology = "2x2x1"};
    for (int s = 0; s < SHAPES; s++) {
        struct plan plan = {
            .shape = shapes[s], .options = {.piece_bytes = 16384}, .rounds = 3};
        run_clean(6, &opts, try_all, &plan);
    }
}

/* ---- bits --------------------------------------------------------------- */

struct sums {
    const char *shape;
    double sum[MOST_RANKS][40];
};

static int sum_rounds(struct poise_world *world, void *arg)
{
    struct sums *sums = arg;
    struct plan plan = {.shape = sums->shape,
                        .options = {.reproducible = true}};
    struct poise_coll *coll;
    int rank = poise_world_rank(world);
    int line = make(world, &plan, &coll);
    for (int i = 0; i < 40 && line == 0; i++) {
        struct poise_rng rng;
        poise_rng_seed(&rng, (uint64_t)(rank * 100 + i));
        double mine = (double)(poise_rng_next(&rng) >> 11) * 1e-3 /
                      (double)(1 + poise_rng_below(&rng, 1000000));
        if (poise_rng_below(&rng, 4) == 0) {
            poise_sleep_ns(50000);
        }
        if (poise_coll_allreduce(coll, &mine, &sums->sum[rank][i], 1,
                                 POISE_DOUBLE, POISE_OP_SUM) != 0) {
            return __LINE__;
        }
    }
    poise_coll_destroy(coll);
    return line;
}

static void test_reproducible(void **state)
{
    (void)state;
    static const char *const some[] = {"flat", "binary", "site:flat", "magpie"};
    struct poise_local_options opts = {
        .delay_max_ns = 100000, .reorder = true, .topology = "3x1x1"};
    for (size_t s = 0; s < 4; s++) {
        struct sums first = {.shape = some[s]};
        run_clean(7, &opts, sum_rounds, &first);
        for (uint64_t seed = 1; seed < 4; seed++) {
            struct sums again = {.shape = some[s]};
            opts.seed = seed;
            run_clean(7, &opts, sum_rounds, &again);
            assert_memory_equal(&first.sum, &again.sum, sizeof first.sum);
        }
        for (int rank = 1; rank < 7; rank++) {
            assert_memory_equal(first.sum[0], first.sum[rank],
                                sizeof first.sum[0]);
        }
    }
}

/* ---- operations --------------------------------------------------------- */

static void test_operations(void **state)
{
    (void)state;
    int8_t a8[2] = {127, -128}, b8[2] = {1, -1};
    coll_combine(POISE_INT8, POISE_OP_SUM, a8, b8, 2);
    assert_int_equal(a8[0], -128);
    assert_int_equal(a8[1], 127);
    uint16_t a16[1] = {65535}, b16[1] = {65535};
    coll_combine(POISE_UINT16, POISE_OP_PROD, a16, b16, 1);
    assert_int_equal(a16[0], 1);
    int64_t a64[1] = {INT64_MAX}, b64[1] = {2};
    coll_combine(POISE_INT64, POISE_OP_PROD, a64, b64, 1);
    assert_true(a64[0] == -2);
    uint32_t a32[3] = {6, 0, 5}, b32[3] = {3, 4, 0};
    coll_combine(POISE_UINT32, POISE_OP_LXOR, a32, b32, 3);
    assert_int_equal(a32[0], 0);
    assert_int_equal(a32[1], 1);
    assert_int_equal(a32[2], 1);
    double nan = __builtin_nan("");
    double ad[4] = {nan, 1, nan, -3}, bd[4] = {2, nan, nan, -4};
    coll_combine(POISE_DOUBLE, POISE_OP_MAX, ad, bd, 4);
    assert_true(ad[0] == 2 && ad[1] == 1 && ad[2] != ad[2] && ad[3] == -3);
    float af[2] = {__builtin_nanf(""), 1}, bf[2] = {2, __builtin_nanf("")};
    coll_combine(POISE_FLOAT, POISE_OP_MIN, af, bf, 2);
    assert_true(af[0] == 2 && af[1] == 1);
    assert_false(coll_op_fits(POISE_DOUBLE, POISE_OP_BAND));
    assert_true(coll_op_fits(POISE_INT8, POISE_OP_LXOR));
    assert_int_equal(coll_type_bytes(POISE_FLOAT), 4);
}

/* ---- bytes per link ----------------------------------------------------- */

/* Three sites of two nodes: what crosses sites, in one call of 8 bytes. */
static int count_links(struct poise_world *world, void *arg)
{
    uint64_t *sent = arg; /* [3 kinds][size] messages between sites */
    int rank = poise_world_rank(world), size = poise_world_size(world);
    struct plan plan = {.shape = "magpie"};
    struct poise_coll *coll;
    int line = make(world, &plan, &coll);
    uint64_t value = 1, all[MOST_RANKS], before = 0;
    for (int kind = 0; kind < 3 && line == 0; kind++) {
        int code;
        if (kind == 0) {
            code = poise_coll_allreduce(coll, &value, all, 1, POISE_UINT64,
                                        POISE_OP_SUM);
        } else if (kind == 1) {
            code = poise_coll_broadcast(coll, 5, &value, 8);
        } else {
            code = poise_coll_allgather(coll, &value, all, 8);
        }
        line = code == 0 ? 0 : __LINE__;
        uint64_t now = poise_coll_stats(coll).sent_bytes[POISE_LEVEL_WORLD];
        sent[kind * size + rank] = now - before;
        before = now;
    }
    poise_coll_destroy(coll);
    return line;
}

static void test_each_site_gets_it_once(void **state)
{
    (void)state;
    enum { SIZE = 12, HEAD = sizeof(struct coll_head) };
    struct poise_local_options opts = {.topology = "3x2x1"};
    uint64_t sent[3][SIZE];
    run_clean(SIZE, &opts, count_links, sent);
    for (int rank = 0; rank < SIZE; rank++) {
        bool root = rank % 4 == 0;
        /* To the two other sites: its partial; its four items. */
        assert_int_equal(sent[0][rank], root ? 2 * (HEAD + 8) : 0);
        assert_int_equal(sent[2][rank], root ? 2 * (HEAD + 32) : 0);
        /* Rank 5 is of the second site, whose root is 4. */
        assert_int_equal(sent[1][rank], rank == 4 ? 2 * (HEAD + 8) : 0);
    }
}

/* ---- stages ------------------------------------------------------------- */

static int negate(void *arg, void *data, size_t bytes)
{
    ++*(int *)arg;
    for (size_t i = 0; i < bytes / 8; i++) {
        ((int64_t *)data)[i] *= -1;
    }
    return 0;
}

static int refuse(void *arg, void *data, size_t bytes)
{
    (void)arg;
    (void)data;
    (void)bytes;
    return poise_error_set(EDOM, "apply a stage", NULL, "it does not like it");
}

static void note_destroyed(void *arg)
{
    *(int *)arg += 1000;
}

static int use_stage(struct poise_world *world, void *arg)
{
    int *count = arg, rank = poise_world_rank(world);
    struct plan plan = {.shape = "flat"};
    struct poise_coll *coll;
    int line = make(world, &plan, &coll);
    EXPECT(line == 0);
    struct poise_coll_stage stage = {.to_root = negate,
                                     .from_root = negate,
                                     .destroy = note_destroyed,
                                     .arg = count};
    EXPECT(poise_coll_set_stage(coll, 0, NULL) == -EINVAL);
    EXPECT(poise_coll_set_stage(coll, 2, rank == 2 ? &stage : NULL) == 0);
    int64_t value = 1 << rank, sum = 0;
    EXPECT(poise_coll_allreduce(coll, &value, &sum, 1, POISE_INT64,
                                POISE_OP_SUM) == 0);
    /* 1 + 2 - 4 + 8, negated again for rank 2. */
    EXPECT(sum == (rank == 2 ? -7 : 7));
    sum = 5;
    EXPECT(poise_coll_broadcast(coll, 0, &sum, 8) == 0);
    EXPECT(sum == (rank == 2 ? -5 : 5));
    stage = (struct poise_coll_stage){.to_root = refuse};
    EXPECT(poise_coll_set_stage(coll, 3, rank == 3 ? &stage : NULL) == 0);
    EXPECT(poise_coll_allreduce(coll, &value, &sum, 1, POISE_INT64,
                                POISE_OP_SUM) == -EDOM);
    EXPECT(poise_coll_barrier(coll) == -EDOM);
    poise_coll_destroy(coll);
    return 0;
}

static void test_stages(void **state)
{
    (void)state;
    int count = 0;
    run_clean(4, NULL, use_stage, &count);
    /* Up and down, down, and up once more before rank 3 refuses. */
    assert_int_equal(count, 1004);
}

/* ---- swapping trees ----------------------------------------------------- */

static int swap_trees(struct poise_world *world, void *arg)
{
    int rank = poise_world_rank(world), size = poise_world_size(world);
    struct plan plan = {.shape = "flat"};
    struct poise_coll *coll;
    (void)arg;
    EXPECT(make(world, &plan, &coll) == 0);
    int64_t out[MOST_RANKS];
    for (int round = 0; round < 60; round++) {
        if (round % 3 == 0 && rank == round % size) {
            struct poise_coll_tree *tree;
            EXPECT(poise_coll_tree_make(world, shapes[round / 3 % SHAPES],
                                        &tree) == 0);
            EXPECT(poise_coll_propose(coll, tree) == 0);
            poise_coll_tree_free(tree);
        }
        int64_t value = value_of(rank, 0, round), sum = 0;
        EXPECT(poise_coll_broadcast(coll, round % size, &sum, 8) == 0);
        EXPECT(poise_coll_allreduce(coll, &value, &sum, 1, POISE_INT64,
                                    POISE_OP_SUM) == 0);
        EXPECT(sum == expected(POISE_OP_SUM, size, 0, round));
        EXPECT(poise_coll_gather(coll, round % size, &value, out, 8) == 0);
        EXPECT(rank != round % size ||
               out[size - 1] == value_of(size - 1, 0, round));
    }
    EXPECT(poise_coll_stats(coll).swaps == 20);
    struct poise_coll_tree *last;
    EXPECT(poise_coll_tree_make(world, shapes[57 / 3 % SHAPES], &last) == 0);
    for (int r = 0; r < size; r++) {
        EXPECT(poise_coll_tree_parent(last, r) ==
               poise_coll_tree_parent(poise_coll_tree_of(coll), r));
    }
    poise_coll_tree_free(last);
    poise_coll_destroy(coll);
    return 0;
}

static void test_swap(void **state)
{
    (void)state;
    for (int l = 0; l < LAYOUTS; l++) {
        struct poise_local_options opts = {.topology = layouts[l].topology};
        run_clean(layouts[l].size, &opts, swap_trees, NULL);
    }
}

/* ---- what goes wrong ---------------------------------------------------- */

static int disagree(struct poise_world *world, void *arg)
{
    const char *shape = arg;
    int rank = poise_world_rank(world);
    struct plan plan = {.shape = shape};
    struct poise_coll *coll;
    EXPECT(make(world, &plan, &coll) == 0);
    double values[2000] = {0};
    size_t count = rank == 2 ? 1100 : 1;
    int code = poise_coll_allreduce(coll, values, values, count, POISE_DOUBLE,
                                    POISE_OP_SUM);
    bool named = code == -EPROTO && poise_error_last()->why[0] != '\0';
    poise_coll_destroy(coll);
    EXPECT(named);
    return 0;
}

static int other_kind(struct poise_world *world, void *arg)
{
    const char *shape = arg;
    int rank = poise_world_rank(world);
    struct plan plan = {.shape = shape};
    struct poise_coll *coll;
    EXPECT(make(world, &plan, &coll) == 0);
    double value = 1, sum;
    /* Those who are not waited for may notice one call later. */
    int code = rank == 1 ? poise_coll_reduce(coll, 1, &value, &sum, 1,
                                             POISE_DOUBLE, POISE_OP_SUM)
                         : poise_coll_allreduce(coll, &value, &sum, 1,
                                                POISE_DOUBLE, POISE_OP_SUM);
    code = code == 0 ? poise_coll_barrier(coll) : code;
    poise_coll_destroy(coll);
    EXPECT(code == -EPROTO);
    return 0;
}

static void test_disagreement_is_named(void **state)
{
    (void)state;
    static char some[][10] = {"flat", "binomial", "magpie"};
    static const char *const topologies[] = {NULL, "2x2x1", "4x1x1"};
    for (int t = 0; t < 3; t++) {
        struct poise_local_options opts = {.topology = topologies[t]};
        for (int s = 0; s < 3; s++) {
            run_clean(4, &opts, disagree, some[s]);
            run_clean(4, &opts, other_kind, some[s]);
        }
    }
}

static int refuse_nonsense(struct poise_world *world, void *arg)
{
    struct plan plan = {.shape = "flat"};
    struct poise_coll *coll;
    int value = 0;
    (void)arg;
    EXPECT(make(world, &plan, &coll) == 0);
    EXPECT(poise_coll_broadcast(coll, 3, &value, 4) == -EINVAL);
    EXPECT(poise_coll_reduce(coll, -1, &value, &value, 1, POISE_INT32,
                             POISE_OP_SUM) == -EINVAL);
    EXPECT(poise_coll_allreduce(coll, &value, &value, 1, POISE_FLOAT,
                                POISE_OP_BXOR) == -EINVAL);
    EXPECT(poise_coll_allreduce(coll, &value, &value, SIZE_MAX / 2, POISE_INT32,
                                POISE_OP_SUM) == -EINVAL);
    struct poise_coll_tree *tree = coll_tree_alloc(3);
    tree->parent[0] = 1;
    tree->parent[1] = 0;
    EXPECT(poise_coll_propose(coll, tree) == -EINVAL);
    struct poise_coll *other;
    struct poise_coll_options options = {.tree = tree};
    EXPECT(poise_coll_create(world, &options, &other) == -EINVAL);
    tree->parent[0] = -1;
    tree->parent[1] = poise_world_rank(world) == 1 ? 2 : 0;
    EXPECT(poise_coll_create(world, &options, &other) == -EPROTO);
    poise_coll_tree_free(tree);
    EXPECT(poise_coll_barrier(coll) == 0);
    poise_coll_destroy(coll);
    return 0;
}

static void test_nonsense(void **state)
{
    (void)state;
    run_clean(3, NULL, refuse_nonsense, NULL);
}

static int create_and_sum(struct poise_world *world, void *arg)
{
    const struct poise_coll_options options = {.piece_bytes = 4096};
    struct poise_coll *coll;
    double value = 1, sum = 0;
    (void)arg;
    int code = poise_coll_create(world, &options, &coll);
    if (code == 0) {
        code = poise_coll_allreduce(coll, &value, &sum, 1, POISE_DOUBLE,
                                    POISE_OP_SUM);
        poise_coll_destroy(coll);
    }
    return code;
}

/* The k-th call fails, for every k: nobody hangs, nothing leaks. */
static void fail_each(enum poise_fault kind, int code)
{
    struct poise_local_options opts = {.topology = "2x1x1"};
    for (uint64_t k = 1;; k++) {
        struct poise_world *worlds[4];
        struct rank_run runs[4];
        pthread_t threads[4];
        assert_int_equal(poise_world_create_local(4, &opts, worlds), 0);
        poise_fault_arm(kind, k, code, false);
        for (int r = 0; r < 4; r++) {
            runs[r] =
                (struct rank_run){.world = worlds[r], .fn = create_and_sum};
            assert_int_equal(
                pthread_create(&threads[r], NULL, run_rank, &runs[r]), 0);
        }
        for (int r = 0; r < 4; r++) {
            pthread_join(threads[r], NULL);
            assert_true(runs[r].result == 0 || runs[r].result == -code);
        }
        uint64_t calls = poise_fault_calls(kind);
        poise_fault_arm(kind, 0, 0, false);
        for (int r = 0; r < 4; r++) {
            poise_world_destroy(worlds[r]);
        }
        if (calls < k) {
            return;
        }
    }
}

static void test_faults(void **state)
{
    (void)state;
    fail_each(POISE_FAULT_ALLOC, ENOMEM);
    fail_each(POISE_FAULT_WRITE, ENOSPC);
    fail_each(POISE_FAULT_OPEN, EMFILE);
    fail_each(POISE_FAULT_SEND, EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_rough),
        cmocka_unit_test(test_reproducible),
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_each_site_gets_it_once),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_swap),
        cmocka_unit_test(test_disagreement_is_named),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
