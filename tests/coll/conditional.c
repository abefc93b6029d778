/*
 * The conditional allreduce: every early decision against the whole result, by
 * brute force; truths and values over sites, whichever is late; who may be
 * ahead; values that break the declared sign.
 */
#include "coll/collective/internal.h"

#include "../ranks.h"
#include "../share.h"

#include <errno.h>
#include <math.h>

#define MS UINT64_C(1000000)

/* ---- what may be decided early ------------------------------------------ */

static const double reals[] = {-INFINITY, -2, -1.5, -0.0,     0.0,
                               1e-300,    1,  2.5,  INFINITY, NAN};
enum { REALS = sizeof reals / sizeof reals[0] };
static const int64_t integers[] = {INT64_MIN, -3, -1, 0, 1, 2, INT64_MAX};
enum { INTEGERS = sizeof integers / sizeof integers[0] };
static const enum poise_coll_op ops[] = {POISE_OP_SUM, POISE_OP_MIN,
                                         POISE_OP_MAX};

struct count {
    unsigned long decided, open, wrong;
};

/* An independent reading of the test. */
/* All but POISE_TEST_NONE. */
enum { TESTS = POISE_TEST_EQUAL + 1 };

static bool plain_truth(const struct poise_coll_condition *c, long double x)
{
    long double y = c->type == POISE_DOUBLE ? (long double)c->real
                                            : (long double)c->integer;
    switch (c->test) {
    case POISE_TEST_GREATER:
        return x > y;
    case POISE_TEST_GREATER_EQUAL:
        return x >= y;
    case POISE_TEST_LESS:
        return x < y;
    case POISE_TEST_LESS_EQUAL:
        return x <= y;
    default:
        return x == y;
    }
}

/* The result of `count` values in order, of which a partial leaves some out. */
static struct coll_partial combine_some(const struct poise_coll_condition *c,
                                        const struct coll_partial *values,
                                        int count, unsigned which)
{
    struct coll_partial acc = {0};
    bool any = false;
    for (int i = 0; i < count; i++) {
        if (!(which >> i & 1)) {
            continue;
        }
        if (any) {
            coll_partial_combine(c, &acc, &values[i]);
        } else {
            acc = values[i];
        }
        any = true;
    }
    return acc;
}

/* All partials of three values: a decision must be the whole's truth. */
static void check_values(const struct poise_coll_condition *c,
                         const struct coll_partial *values, struct count *count)
{
    struct coll_partial whole = combine_some(c, values, 3, 7);
    long double result = c->type == POISE_DOUBLE ? (long double)whole.real
                                                 : (long double)whole.wide;
    bool truth = plain_truth(c, result);
    assert_int_equal(coll_truth(c, &whole), truth);
    for (unsigned which = 1; which < 7; which++) {
        struct coll_partial partial = combine_some(c, values, 3, which);
        int decided = coll_decide(c, &partial);
        count->open += decided < 0;
        count->decided += decided >= 0;
        count->wrong += decided >= 0 && decided != truth;
    }
}

static void check_reals(struct poise_coll_condition *c, struct count *count)
{
    struct coll_partial values[3] = {0};
    for (int i = 0; i < REALS * REALS * REALS; i++) {
        values[0].real = reals[i % REALS];
        values[1].real = reals[i / REALS % REALS];
        values[2].real = reals[i / REALS / REALS];
        bool allowed = true;
        for (int v = 0; v < 3; v++) {
            allowed = allowed && coll_sign_holds(c, &values[v].real);
        }
        for (int k = 0; k < REALS && allowed; k++) {
            c->real = reals[k];
            check_values(c, values, count);
        }
    }
}

static void check_integers(struct poise_coll_condition *c, struct count *count)
{
    struct coll_partial values[3] = {0};
    for (int i = 0; i < INTEGERS * INTEGERS * INTEGERS; i++) {
        int64_t v[3] = {integers[i % INTEGERS],
                        integers[i / INTEGERS % INTEGERS],
                        integers[i / INTEGERS / INTEGERS]};
        bool allowed = true;
        for (int j = 0; j < 3; j++) {
            values[j].wide = v[j];
            allowed = allowed && coll_sign_holds(c, &v[j]);
        }
        for (int k = 0; k < INTEGERS && allowed; k++) {
            c->integer = integers[k];
            check_values(c, values, count);
        }
    }
}

static void test_decisions_are_sound(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * TESTS * 3; i++) {
        struct poise_coll_condition c = {
            .op = ops[i % 3],
            .test = (enum poise_coll_test)(i / 3 % TESTS),
            .sign = (enum poise_coll_sign)(i / 3 / TESTS)};
        struct count count = {0};
        c.type = POISE_DOUBLE;
        check_reals(&c, &count);
        c.type = POISE_INT64;
        check_integers(&c, &count);
        assert_int_equal(count.wrong, 0);
        /* Sums of mixed signs never; all others somewhere. */
        bool never = c.op == POISE_OP_SUM && c.sign == POISE_SIGN_ANY;
        assert_int_equal(count.decided == 0, never);
        assert_true(count.open > 0);
    }
}

/* What the rules name must be decided: not only nothing wrong. */
static void test_decisions_are_early(void **state)
{
    (void)state;
    static const struct {
        enum poise_coll_op op;
        enum poise_coll_sign sign;
        double partial, constant;
        const char *verdicts; /* > >= < <= ==: t, f or - */
    } rows[] = {
        {POISE_OP_SUM, POISE_SIGN_NOT_NEGATIVE, 3, 2, "ttfff"},
        {POISE_OP_SUM, POISE_SIGN_NOT_NEGATIVE, 2, 2, "-tf--"},
        {POISE_OP_SUM, POISE_SIGN_NOT_NEGATIVE, 1, 2, "-----"},
        {POISE_OP_SUM, POISE_SIGN_NOT_POSITIVE, -3, -2, "ffttf"},
        {POISE_OP_SUM, POISE_SIGN_NOT_POSITIVE, -2, -2, "f--t-"},
        {POISE_OP_SUM, POISE_SIGN_ANY, 3, 2, "-----"},
        {POISE_OP_MAX, POISE_SIGN_ANY, 3, 2, "ttfff"},
        {POISE_OP_MAX, POISE_SIGN_ANY, 2, 2, "-tf--"},
        {POISE_OP_MAX, POISE_SIGN_ANY, -1, 2, "-----"},
        {POISE_OP_MAX, POISE_SIGN_NOT_POSITIVE, -1, 2, "ffttf"},
        {POISE_OP_MAX, POISE_SIGN_NOT_POSITIVE, -1, 0, "f--t-"},
        {POISE_OP_MIN, POISE_SIGN_ANY, 1, 2, "ffttf"},
        {POISE_OP_MIN, POISE_SIGN_NOT_NEGATIVE, 1, -2, "ttfff"},
        {POISE_OP_MIN, POISE_SIGN_ANY, NAN, 2, "-----"},
        {POISE_OP_MAX, POISE_SIGN_ANY, 3, NAN, "-----"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (int test = 0; test < TESTS; test++) {
            struct poise_coll_condition c = {.type = POISE_DOUBLE,
                                             .op = rows[r].op,
                                             .sign = rows[r].sign,
                                             .test = (enum poise_coll_test)test,
                                             .real = rows[r].constant};
            struct coll_partial partial = {.real = rows[r].partial};
            int decided = coll_decide(&c, &partial);
            char message = decided < 0 ? '-' : decided ? 't' : 'f';
            if (message != rows[r].verdicts[test]) {
                fail_msg("row %zu, test %d: %c", r, test, message);
            }
        }
    }
}

/* ---- over sites --------------------------------------------------------- */

struct series {
    struct poise_coll_condition condition;
    int calls;
    int lazy_site; /* that sleeps now and then; -1: none */
};

static double contribution(const struct poise_coll_condition *c, int rank,
                           int call)
{
    uint64_t hash = poise_hash_u64((uint64_t)rank * 7919 + (uint64_t)call);
    double value = (double)(hash % 64) / 8;
    if (c->sign == POISE_SIGN_NOT_POSITIVE) {
        return -value;
    }
    return c->sign == POISE_SIGN_ANY ? value - 4 : value;
}

static int run_series(struct poise_world *world, void *arg)
{
    const struct series *series = arg;
    const struct poise_coll_condition *c = &series->condition;
    int rank = poise_world_rank(world), size = poise_world_size(world);
    int site = poise_world_placement(world, rank).site;
    struct poise_coll_if *cond;
    EXPECT(poise_coll_if_create(world, c, &cond) == 0);
    for (int call = 0; call < series->calls; call++) {
        double real = contribution(c, rank, call);
        int64_t integer = (int64_t)(real * 8);
        const void *value =
            c->type == POISE_DOUBLE ? (const void *)&real : &integer;
        if (site == series->lazy_site && call % 16 == 3) {
            poise_sleep_ns(MS / 2);
        }
        struct poise_coll_verdict verdict;
        EXPECT(poise_coll_allreduce_if(cond, value, &verdict) == 0);
        struct coll_partial whole = {0};
        for (int r = 0; r < size; r++) {
            struct coll_partial next = {.real = contribution(c, r, call)};
            next.wide = (int64_t)(next.real * 8);
            if (r == 0) {
                whole = next;
            } else {
                coll_partial_combine(c, &whole, &next);
            }
        }
        /* Eighths: sums are exact, so their order does not matter. */
        EXPECT(verdict.truth == coll_truth(c, &whole));
        EXPECT(!verdict.complete || c->type != POISE_DOUBLE ||
               verdict.real == whole.real);
        EXPECT(!verdict.complete || c->type == POISE_DOUBLE ||
               verdict.integer == (int64_t)whole.wide);
    }
    struct poise_coll_if_stats stats = poise_coll_if_stats(cond);
    EXPECT(stats.calls == (uint64_t)series->calls);
    EXPECT(stats.local + stats.prefetched + stats.waited == stats.calls);
    poise_coll_if_destroy(cond);
    return 0;
}

static void test_over_sites(void **state)
{
    (void)state;
    static const char *const topologies[] = {NULL, "2x1x1", "3x2x1"};
    for (int i = 0; i < 3 * 3 * 3 * TESTS; i++) {
        /* Each value of each digit has its cases. */
        if (!in_share((size_t)(i + i / 3 + i / 9 + i / 27))) {
            continue;
        }
        struct poise_local_options opts = {.topology = topologies[i % 3],
                                           .delay_max_ns = i % 2 ? 100000 : 0,
                                           .reorder = i % 4 == 1,
                                           .seed = (uint64_t)i};
        struct series series = {
            .condition = {.type = i % 5 < 3 ? POISE_DOUBLE : POISE_INT64,
                          .op = ops[i / 3 % 3],
                          .sign = (enum poise_coll_sign)(i / 9 % 3),
                          .test = (enum poise_coll_test)(i / 27),
                          .real = i / 9 % 3 == 2 ? -5.5 : 5.5,
                          .integer = i / 9 % 3 == 2 ? -44 : 44},
            .calls = 150,
            .lazy_site = i % 4 - 1};
        run_clean(6, &opts, run_series, &series);
    }
}

/* A site that never asks the others is held after 64 calls, no earlier. */
struct race {
    uint32_t ahead; /* __atomic: calls that site 0 has finished */
    uint32_t seen;  /* when site 1 makes its first */
};

static int run_ahead(struct poise_world *world, void *arg)
{
    struct race *race = arg;
    int rank = poise_world_rank(world);
    struct poise_coll_condition c = {.type = POISE_DOUBLE,
                                     .op = POISE_OP_MAX,
                                     .test = POISE_TEST_GREATER,
                                     .real = 1};
    struct poise_coll_if *cond;
    struct poise_coll_verdict verdict;
    EXPECT(poise_coll_if_create(world, &c, &cond) == 0);
    if (rank == 1) {
        while (__atomic_load_n(&race->ahead, __ATOMIC_ACQUIRE) < 64) {
            poise_sleep_ns(MS);
        }
        poise_sleep_ns(20 * MS);
        race->seen = __atomic_load_n(&race->ahead, __ATOMIC_ACQUIRE);
    }
    for (int call = 0; call < 200; call++) {
        /* Site 0 always decides; site 1 never does by itself. */
        double value = rank == 0 ? 2 : 0;
        EXPECT(poise_coll_allreduce_if(cond, &value, &verdict) == 0);
        EXPECT(verdict.truth);
        EXPECT((verdict.how == POISE_HOW_LOCAL) == (rank == 0));
        if (rank == 0) {
            __atomic_fetch_add(&race->ahead, 1, __ATOMIC_RELEASE);
        }
    }
    poise_coll_if_destroy(cond);
    return 0;
}

static void test_ahead_by_64(void **state)
{
    (void)state;
    struct race race = {0};
    struct poise_local_options opts = {.topology = "2x1x1"};
    run_clean(2, &opts, run_ahead, &race);
    assert_int_equal(race.seen, 64);
}

/* ---- what goes wrong ---------------------------------------------------- */

static int break_sign(struct poise_world *world, void *arg)
{
    const double *bad = arg;
    int rank = poise_world_rank(world);
    struct poise_coll_condition c = {.type = POISE_DOUBLE,
                                     .op = POISE_OP_SUM,
                                     .sign = POISE_SIGN_NOT_NEGATIVE,
                                     .test = POISE_TEST_GREATER,
                                     .real = 1};
    struct poise_coll_if *cond;
    struct poise_coll_verdict verdict;
    EXPECT(poise_coll_if_create(world, &c, &cond) == 0);
    int calls = 0, code = 0;
    while (code == 0 && calls < 200) {
        double value = rank == 3 && calls == 5 ? *bad : 2;
        code = poise_coll_allreduce_if(cond, &value, &verdict);
        calls += code == 0;
    }
    EXPECT(code == -EDOM);
    /* At once in its own site; elsewhere when the news comes, in whatever call
     * that is, but not more than 64 ahead. */
    EXPECT(rank < 2 ? calls <= 5 + 64 : calls == 5);
    EXPECT(poise_coll_allreduce_if(cond, bad, &verdict) == -EDOM);
    poise_coll_if_destroy(cond);
    return 0;
}

static void test_sign_is_a_contract(void **state)
{
    (void)state;
    static const double bad[] = {-1, NAN, -INFINITY, -5e-324};
    struct poise_local_options opts = {.topology = "2x1x1"};
    for (int i = 0; i < 4; i++) {
        run_clean(4, &opts, break_sign, (void *)&bad[i]);
    }
}

static int overflow(struct poise_world *world, void *arg)
{
    (void)arg;
    struct poise_coll_condition c = {
        .type = POISE_INT64, .op = POISE_OP_SUM, .test = POISE_TEST_LESS};
    struct poise_coll_if *cond;
    struct poise_coll_verdict verdict;
    EXPECT(poise_coll_if_create(world, &c, &cond) == 0);
    int64_t value = poise_world_rank(world) < 2 ? INT64_MAX : INT64_MIN;
    EXPECT(poise_coll_allreduce_if(cond, &value, &verdict) == 0);
    EXPECT(verdict.complete && verdict.integer == -2 && verdict.truth);
    value = INT64_MAX;
    EXPECT(poise_coll_allreduce_if(cond, &value, &verdict) == -ERANGE);
    poise_coll_if_destroy(cond);
    return 0;
}

static void test_overflow(void **state)
{
    (void)state;
    struct poise_local_options opts = {.topology = "2x1x1"};
    run_clean(4, NULL, overflow, NULL);
    run_clean(4, &opts, overflow, NULL);
}

/* Calls of several conditions in one sequence: those that ask for nothing are
 * complete, the others true early. Site 0 is always the first. */
static int mix_conditions(struct poise_world *world, void *arg)
{
    (void)arg;
    int rank = poise_world_rank(world);
    struct poise_coll_condition none = {
        .type = POISE_INT64, .op = POISE_OP_SUM, .test = POISE_TEST_NONE};
    struct poise_coll_condition most = {.type = POISE_DOUBLE,
                                        .op = POISE_OP_MAX,
                                        .test = POISE_TEST_GREATER,
                                        .real = 1};
    struct poise_coll_if *cond;
    struct poise_coll_verdict verdict;
    EXPECT(poise_coll_if_create(world, &none, &cond) == 0);
    for (int call = 0; call < 200; call++) {
        double value = 2;
        int64_t number = rank + call;
        if (rank >= 4 && call % 16 == 0) {
            poise_sleep_ns(MS / 2);
        }
        if (call % 3 == 0) {
            EXPECT(poise_coll_allreduce_if(cond, &number, &verdict) == 0);
            EXPECT(verdict.complete && !verdict.truth);
            EXPECT(verdict.integer == 15 + 6 * call);
        } else {
            EXPECT(poise_coll_allreduce_if_as(cond, &most, &value, &verdict) ==
                   0);
            EXPECT(verdict.truth && verdict.how == POISE_HOW_LOCAL);
        }
    }
    poise_coll_if_destroy(cond);
    return 0;
}

/* A rank that asks for something else, decided or not, is found out. */
static int differ(struct poise_world *world, void *arg)
{
    const int *other = arg;
    int rank = poise_world_rank(world), code = 0;
    struct poise_coll_condition c = {.type = POISE_DOUBLE,
                                     .op = POISE_OP_MAX,
                                     .test = POISE_TEST_GREATER,
                                     .real = 1};
    struct poise_coll_if *cond;
    struct poise_coll_verdict verdict;
    EXPECT(poise_coll_if_create(world, &c, &cond) == 0);
    for (int call = 0; call < 200 && code == 0; call++) {
        double value = 2;
        c.real = rank >= *other && call == 5 ? 1.5 : 1;
        code = poise_coll_allreduce_if_as(cond, &c, &value, &verdict);
    }
    EXPECT(code == -EPROTO);
    poise_coll_if_destroy(cond);
    return 0;
}

static void test_conditions_of_calls(void **state)
{
    (void)state;
    struct poise_local_options opts = {.topology = "3x1x2",
                                       .delay_max_ns = 100000};
    run_clean(6, &opts, mix_conditions, NULL);
    run_clean(6, NULL, mix_conditions, NULL);
    /* In its site, and between sites. */
    for (int other = 3; other < 6; other++) {
        run_clean(6, &opts, differ, &other);
    }
}

static int refuse_conditions(struct poise_world *world, void *arg)
{
    (void)arg;
    struct poise_coll_if *cond;
    struct poise_coll_condition c = {.type = POISE_FLOAT};
    EXPECT(poise_coll_if_create(world, &c, &cond) == -EINVAL);
    c = (struct poise_coll_condition){.type = POISE_INT64, .op = POISE_OP_PROD};
    EXPECT(poise_coll_if_create(world, &c, &cond) == -EINVAL);
    c = (struct poise_coll_condition){.type = POISE_INT64,
                                      .integer = poise_world_rank(world)};
    EXPECT(poise_coll_if_create(world, &c, &cond) == -EPROTO);
    return 0;
}

static void test_refusals(void **state)
{
    (void)state;
    run_clean(2, NULL, refuse_conditions, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decisions_are_sound),
        cmocka_unit_test(test_decisions_are_early),
        cmocka_unit_test(test_over_sites),
        cmocka_unit_test(test_ahead_by_64),
        cmocka_unit_test(test_sign_is_a_contract),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_conditions_of_calls),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
