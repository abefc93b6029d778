/*
 * Ranks that wait over and over and touch nothing between: what such switches
 * leave out, and that nothing is lost when one touches something after all; and
 * how much of the memory contexts get.
 */
#include "context.h"
#include "vrank/context/internal.h"

enum { RANKS = 24, TURNS = 300 };

/* Now and then a rank changes some of its words, or a block of its neighbour's
 * comes into them. Between, all only wait for each other. */
static int body_surprises(int rank, int size)
{
    uint32_t state = 7u * (uint32_t)rank + 1;
    int64_t sum = 0, mine, before = (rank + size - 1) % size;
    uint64_t *data = words(rank, WORDS), block[600];

    for (int turn = 0; turn < TURNS && data != NULL; turn++) {
        mine = rank + turn;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == size * (size - 1) / 2 + size * turn);
        if (model_next(&state) % 40 == 0) {
            size_t at = model_next(&state) % (WORDS - 1000);
            for (size_t i = at; i < at + 1000; i++) {
                CHECK(data[i] == word(rank, i));
                data[i] = 0;
                data[i] = word(rank, i);
            }
        }
        if (turn % 97 == 96) {
            /* Blocks go between heaps, of ranks that only waited so far. */
            size_t at = (size_t)turn * 600;
            MPI_Sendrecv(data + at, 600, MPI_UINT64_T, (rank + 1) % size, 0,
                         block, 600, MPI_UINT64_T, (int)before, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(words_are(block, (int)before, at, 600));
            MPI_Sendrecv(block, 600, MPI_UINT64_T, (int)before, 0, data + at,
                         600, MPI_UINT64_T, (rank + 1) % size, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (turn % 150 == 149) {
            /* The heap changes, too. */
            char *more = zeroed_alloc(1, 3 * MIB / 2);
            CHECK(more != NULL && more[MIB] == 0);
            wrap_free(more);
        }
    }
    CHECK(data != NULL && words_are(data, rank, 0, WORDS));
    wrap_free(data);
    return 0;
}

static void test_surprises(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        struct context_sums sums;
        struct vrank_outcome out = run_within(30 * MIB, RANKS, threads,
                                              scratch(), body_surprises, &sums);
        if (out.status != 0) {
            print_error("%s", poise_buf_str(&run.said));
        }
        assert_int_equal(out.status, 0);
        assert_true(sums.swapped_out > 0);
        poise_buf_free(&run.said);
    }
}

static int body_wait(int rank, int size)
{
    uint64_t *data = words(rank, WORDS);

    (void)size;
    for (int turn = 0; turn < 4000; turn++) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK(data != NULL && words_are(data, rank, 0, WORDS));
    wrap_free(data);
    return 0;
}

/* Nobody looks at pages because of a switch that touches nothing. */
static void test_looks(void **state)
{
    struct context_sums sums;
    (void)state;
    struct vrank_outcome out =
        run_within(30 * MIB, RANKS, 1, scratch(), body_wait, &sums);
    assert_int_equal(out.status, 0);
    assert_true(sums.looks < (uint64_t)RANKS * 4000 / 4);
    /* The paper's way looks each time. */
    whole = true;
    out = run_within(120 * MIB, RANKS, 1, scratch(), body_wait, &sums);
    whole = false;
    assert_int_equal(out.status, 0);
    assert_true(sums.looks > (uint64_t)RANKS * 4000 / 2);
    poise_buf_free(&run.said);
}

static bool is_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
    return __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
    return false;
#endif
}

/* Bytes that this process holds. */
static size_t held_now(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long pages = 0;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return (size_t)pages * 4096;
}

/* Where all else needs less than was thought, contexts have the rest. */
static void test_lent(void **state)
{
    struct context_sums sums;
    size_t now = held_now(), memory = now + 56 * MIB;
    (void)state;
    if (is_sanitized()) {
        skip(); /* What is held is not ours alone. */
    }
    base = now + 32 * MIB;
    struct vrank_outcome out =
        run_within(memory, RANKS, 1, scratch(), body_wait, &sums);
    size_t planned = memory - base - memory / 8;
    base = 0;
    assert_int_equal(out.status, 0);
    assert_true(sums.most_bytes > planned + 16 * MIB);
    assert_true(sums.most_bytes <= memory - now);
    poise_buf_free(&run.said);
}

/* What is lent, and what goes beyond the plan where nothing else helps, do not
 * add up. */
static void test_most(void **state)
{
    static struct contexts all = {.plan.budget_bytes = 100 * MIB};
    (void)state;
    all.lent_bytes = 20 * MIB;
    all.pending_bytes = 5 * MIB;
    assert_int_equal(budget_most(&all, false, 0), 120 * MIB);
    assert_int_equal(budget_most(&all, true, 8 * MIB), 120 * MIB);
    all.lent_bytes = 0;
    assert_int_equal(budget_most(&all, true, 8 * MIB), 113 * MIB);
    assert_int_equal(budget_most(&all, false, 0), 105 * MIB);
    /* What all else has beyond its part contexts do without, if they can. */
    all.owed_bytes = 30 * MIB;
    assert_int_equal(budget_most(&all, false, 0), 75 * MIB);
    assert_int_equal(budget_most(&all, true, 0), 105 * MIB);
    all.owed_bytes = 300 * MIB;
    assert_int_equal(budget_most(&all, false, 0), 0);
}

enum { ALIKE_TURNS = 4 };

/* All read all that they have, from one barrier to the next. */
static int body_alike(int rank, int size)
{
    uint64_t *data = words(rank, WORDS);

    (void)size;
    for (int turn = 0; turn < ALIKE_TURNS; turn++) {
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(data != NULL && words_are(data, rank, 0, WORDS));
    }
    wrap_free(data);
    return 0;
}

/* What the first rank finds out page by page comes in bulk for the others, also
 * in a phase that none was in before. */
static void test_alike(void **state)
{
    struct context_sums sums;
    (void)state;
    struct vrank_outcome out =
        run_within(30 * MIB, RANKS, 1, scratch(), body_alike, &sums);
    assert_int_equal(out.status, 0);
    /* Nearly all of it, each time. */
    assert_true(sums.swapped_in > (uint64_t)RANKS * WORDS * 8 * 2);
    assert_true(sums.faulted < sums.swapped_in / 8);
    poise_buf_free(&run.said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_surprises), cmocka_unit_test(test_looks),
        cmocka_unit_test(test_lent),      cmocka_unit_test(test_most),
        cmocka_unit_test(test_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
