/* Ranks of lists, in memory and with little memory, against a walk through the
 * list and against what the generator knows; bad input; faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "extmem/listrank/internal.h"
#include "folder.h"

#define KB UINT64_C(1024)
#define LITTLE (1000 * KB) /* always ranked with scratch files */
#define MUCH (64 * 1024 * KB)

/* ---- the reference ------------------------------------------------------ */

static bool ends(uint64_t node, uint64_t next)
{
    return next == node || next == UINT64_MAX;
}

/* Each list from its begin to its end, and back with the sums. */
static uint64_t *chase(const uint64_t *next, const uint64_t *weights,
                       uint64_t count)
{
    uint64_t *ranks = calloc(count + 1, 8), *stack = calloc(count + 1, 8);
    bool *follows = calloc(count + 1, 1);

    for (uint64_t i = 0; i < count; i++) {
        if (!ends(i, next[i])) {
            follows[next[i]] = true;
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t depth = 0, at = i;

        while (!follows[i] && !ends(at, next[at])) {
            stack[depth++] = at;
            at = next[at];
        }
        while (depth > 0) {
            uint64_t node = stack[--depth];

            ranks[node] = ranks[next[node]] + (weights ? weights[node] : 1);
        }
    }
    free(follows);
    free(stack);
    return ranks;
}

static struct poise_listrank_options options_of(uint64_t memory,
                                                unsigned threads)
{
    return (struct poise_listrank_options){.memory_bytes = memory,
                                           .threads = threads};
}

/* Rank what is in in_path (and weight_path) and compare with the reference. */
static void check_ranks(const struct poise_listrank_options *options,
                        struct poise_listrank_result *result)
{
    size_t len, out_len;
    uint64_t *next = get_file(in_path, &len);
    uint64_t *weights =
        options->weights ? get_file(options->weights, &len) : NULL;
    uint64_t *expected = chase(next, weights, len / 8), *ranks;
    struct poise_listrank_report report;
    struct poise_listrank_progress progress = {0};
    struct poise_listrank_options watched = *options;

    watched.progress = &progress;
    assert_int_equal(poise_listrank_run(in_path, out_path, &watched, result),
                     0);
    assert_int_equal(result->nodes, len / 8);
    /* Each node is read, walked over and ranked. */
    assert_int_equal(progress.total_bytes, 3 * len);
    assert_int_equal(progress.passed_bytes, 3 * len);
    ranks = get_file(out_path, &out_len);
    assert_int_equal(out_len, len);
    assert_memory_equal(ranks, expected, len);
    assert_int_equal(poise_listrank_check(in_path, out_path, options, &report),
                     0);
    assert_int_equal(report.wrong, 0);
    assert_int_equal(report.lists, result->lists);
    free(ranks);
    free(expected);
    free(weights);
    free(next);
}

/* Both ways; on one thread and on more. */
static void check_both_ways(bool weighted)
{
    static const uint64_t memories[] = {LITTLE, 2048 * KB, MUCH, MUCH};

    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++) {
        struct poise_listrank_options options =
            options_of(memories[i], i < 3 ? 3 : 1);
        struct poise_listrank_result result;

        options.weights = weighted ? weight_path : NULL;
        check_ranks(&options, &result);
        assert_int_equal(result.in_memory, memories[i] == MUCH);
    }
}

/* ---- right lists -------------------------------------------------------- */

static void test_patterns(void **state)
{
    static const uint64_t lists[] = {1, 3, 700, 5000};

    (void)state;
    for (int p = 0; poise_listrank_pattern_names[p]; p++) {
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
            struct poise_listrank_shape shape = {
                .pattern = (enum poise_listrank_pattern)p,
                .nodes = 20011,
                .lists = lists[i],
                .seed = i};
            struct poise_listrank_options options = {0};

            assert_int_equal(poise_listrank_generate(in_path, &shape, &options),
                             0);
            check_both_ways(false);
        }
    }
}

static void test_sizes(void **state)
{
    static const uint64_t sizes[] = {0,    1,    2,    3,    63,   64,
                                     65,   511,  512,  513,  1023, 1024,
                                     1025, 2048, 4095, 4096, 4097, 9000};
    struct poise_listrank_options options = {0};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct poise_listrank_shape shape = {.nodes = sizes[i], .seed = 5};

        assert_int_equal(poise_listrank_generate(in_path, &shape, &options), 0);
        check_both_ways(false);
    }
}

/* What the generator says is what the file says. */
static void test_generator(void **state)
{
    enum { NODES = 9001, LISTS = 7 };
    struct poise_listrank_options options = {0};

    (void)state;
    for (int p = 0; poise_listrank_pattern_names[p]; p++) {
        struct poise_listrank_shape shape = {.pattern =
                                                 (enum poise_listrank_pattern)p,
                                             .nodes = NODES,
                                             .lists = LISTS,
                                             .seed = 3};
        uint64_t *next, *expected, ends_seen = 0;
        size_t len;

        assert_int_equal(poise_listrank_generate(in_path, &shape, &options), 0);
        next = get_file(in_path, &len);
        assert_int_equal(len, 8 * NODES);
        expected = chase(next, NULL, NODES);
        for (uint64_t i = 0; i < NODES; i++) {
            uint64_t successor, rank;

            poise_listrank_node(&shape, i, &successor, &rank);
            assert_int_equal(successor, next[i]);
            assert_int_equal(rank, expected[i]);
            ends_seen += successor == i;
        }
        assert_int_equal(ends_seen, LISTS);
        free(expected);
        free(next);
    }
}

/* Lengths from 1 up, ends of both kinds, weights of both signs. */
static void test_weights(void **state)
{
    enum { NODES = 30000 };
    uint64_t *next = calloc(NODES, 8), *weights = calloc(NODES, 8);
    uint64_t *order = calloc(NODES, 8), length = 0, wanted = 1;

    (void)state;
    for (uint64_t i = 0; i < NODES; i++) {
        uint64_t j = poise_hash_u64(i + 9) % (i + 1);

        order[i] = order[j];
        order[j] = i;
    }
    for (uint64_t i = 0; i < NODES; i++) {
        uint64_t node = order[i];

        weights[node] = poise_hash_u64(node + 77);
        next[node] = i + 1 < NODES ? order[i + 1] : UINT64_MAX;
        if (++length == wanted) {
            next[node] = wanted % 2 ? node : UINT64_MAX;
            wanted = wanted * 5 / 4 + 1;
            length = 0;
        }
    }
    put_file(in_path, next, NODES * sizeof *next);
    put_file(weight_path, weights, NODES * sizeof *weights);
    check_both_ways(true);
    unlink(weight_path);
    free(order);
    free(weights);
    free(next);
}

/* Many buckets: their number, and that traffic stays the same. */
static void test_traffic(void **state)
{
    enum { NODES = 200000 };
    struct poise_listrank_shape shape = {.nodes = NODES, .seed = 1};
    struct poise_listrank_options options = options_of(1500 * KB, 2);
    struct poise_listrank_result few, many;

    (void)state;
    assert_int_equal(poise_listrank_generate(in_path, &shape, &options), 0);
    options.memory_bytes = 3800 * KB;
    check_ranks(&options, &few);
    options.memory_bytes = 1400 * KB;
    check_ranks(&options, &many);
    assert_true(many.buckets >= 2 * few.buckets);
    assert_true(many.read_bytes + many.written_bytes < 180 * (uint64_t)NODES);
    assert_true(many.scratch_bytes > 30 * (uint64_t)NODES);
}

/* All ways to transfer, several scratch folders. */
static void test_ways(void **state)
{
    struct poise_listrank_shape shape = {.nodes = 20000, .seed = 1};
    const char *const folders[] = {folder, folder};

    (void)state;
    for (int way = 0; way < 3; way++) {
        struct poise_listrank_options options = options_of(LITTLE, 1);
        struct poise_listrank_result result;

        options.disk.engine = way == 0 ? POISE_DISK_AUTO : POISE_DISK_THREADS;
        options.disk.buffered = way == 2;
        options.scratch = folders;
        options.scratch_count = (size_t)way;
        options.sync = way == 2;
        assert_int_equal(poise_listrank_generate(in_path, &shape, &options), 0);
        check_ranks(&options, &result);
    }
}

/* ---- wrong lists -------------------------------------------------------- */

/* Both ways say the same. */
static void check_refused(const uint64_t *next, uint64_t count,
                          const char *words)
{
    static const uint64_t memories[] = {LITTLE, MUCH};

    put_file(in_path, next, count * 8);
    unlink(out_path);
    for (int i = 0; i < 2; i++) {
        struct poise_listrank_options options = options_of(memories[i], 2);

        assert_int_equal(poise_listrank_run(in_path, out_path, &options, NULL),
                         -EBADMSG);
        assert_string_equal(poise_error_last()->why, words);
        assert_int_equal(files_in_folder(), 1);
    }
}

static void test_wrong(void **state)
{
    enum { NODES = 12000 };
    uint64_t *next = calloc(NODES, 8);

    (void)state;
    for (uint64_t i = 0; i < NODES; i++) {
        next[i] = i + 1 < NODES ? i + 1 : i;
    }
    next[7000] = NODES;
    next[9000] = UINT64_MAX - 1;
    check_refused(next, NODES,
                  "the successor of node 7000 is 12000, and there "
                  "are 12000 nodes");
    next[7000] = 7001;
    next[9000] = 9001;
    /* From far and near, forwards and backwards. */
    next[100] = 8000;
    check_refused(next, NODES, "node 8000 has two predecessors, 100 and 7999");
    next[100] = 101;
    next[11000] = 500;
    check_refused(next, NODES, "node 500 has two predecessors, 499 and 11000");
    next[499] = 499;
    check_refused(next, NODES, "node 500 lies on a cycle");
    next[11000] = 11001;
    next[499] = 500;
    /* A short one within a bucket, and the whole file. */
    next[8000] = 7990;
    next[7989] = 8001;
    check_refused(next, NODES, "node 7990 lies on a cycle");
    next[8000] = 8001;
    next[7989] = 7990;
    next[NODES - 1] = 0;
    check_refused(next, NODES, "node 0 lies on a cycle");
    free(next);
}

static void test_bad_files(void **state)
{
    struct poise_listrank_options options = options_of(MUCH, 1);
    struct poise_listrank_report report;
    uint64_t one = 0, two[2] = {0, 0};

    (void)state;
    unlink(in_path);
    assert_int_equal(poise_listrank_run(in_path, out_path, &options, NULL),
                     -ENOENT);
    put_file(in_path, "0123456789ab", 12);
    assert_int_equal(poise_listrank_run(in_path, out_path, &options, NULL),
                     -EBADMSG);
    put_file(in_path, &one, sizeof one);
    assert_int_equal(poise_listrank_run(in_path, in_path, &options, NULL),
                     -EINVAL);
    put_file(weight_path, two, sizeof two);
    options.weights = weight_path;
    assert_int_equal(poise_listrank_run(in_path, out_path, &options, NULL),
                     -EBADMSG);
    assert_non_null(strstr(poise_error_last()->why, "2 weights for 1 nodes"));
    unlink(weight_path);
    /* Ranks that are wrong are found. */
    options.weights = NULL;
    put_file(out_path, two, sizeof two);
    assert_int_equal(poise_listrank_check(in_path, out_path, &options, &report),
                     -EBADMSG);
    two[0] = two[1] = 1; /* 0 -> 1 */
    put_file(in_path, two, sizeof two);
    two[1] = 0;
    put_file(out_path, two, sizeof two);
    assert_int_equal(poise_listrank_check(in_path, out_path, &options, &report),
                     0);
    assert_int_equal(report.wrong, 0);
    assert_int_equal(report.lists, 1);
    two[0] = 2;
    put_file(out_path, two, sizeof two);
    assert_int_equal(poise_listrank_check(in_path, out_path, &options, &report),
                     0);
    assert_int_equal(report.wrong, 1);
    assert_int_equal(report.first_wrong, 0);
    unlink(out_path);
}

/* The message says the least that works, and that works. */
static void test_little_memory(void **state)
{
    struct poise_listrank_shape shape = {.nodes = 100000, .seed = 1};
    struct poise_listrank_options options = options_of(100 * KB, 1);
    struct poise_listrank_result result;
    const char *words;
    double least;

    (void)state;
    assert_int_equal(poise_listrank_generate(in_path, &shape, &options), 0);
    unlink(out_path);
    assert_int_equal(poise_listrank_run(in_path, out_path, &options, &result),
                     -ENOMEM);
    words = strstr(poise_error_last()->why, "at least ");
    assert_non_null(words);
    assert_int_equal(sscanf(words, "at least %lf", &least), 1);
    if (strstr(words, "MiB")) {
        least *= 1024;
    }
    options.memory_bytes = (uint64_t)(least * 1.01 * 1024);
    assert_true(options.memory_bytes < 8192 * KB);
    check_ranks(&options, &result);
}

/* ---- faults ------------------------------------------------------------- */

/* Make call after call fail until a run succeeds. */
static void check_fault(enum poise_fault kind, int code, uint64_t memory)
{
    struct poise_listrank_options options = options_of(memory, 2);
    uint64_t k = 1;
    int result = -1;

    while (result != 0) {
        unlink(out_path);
        assert_true(k < 100000);
        poise_fault_arm(kind, k, code, false);
        result = poise_listrank_run(in_path, out_path, &options, NULL);
        poise_fault_arm(kind, 0, 0, false);
        if (result != 0) {
            assert_int_equal(result, -code);
            assert_int_equal(poise_error_last()->code, code);
            assert_int_equal(files_in_folder(), 1);
        }
        k += 1 + k / 16;
    }
    assert_int_equal(files_in_folder(), 2);
    assert_true(k > 2);
}

static void test_faults(void **state)
{
    struct poise_listrank_shape shape = {.nodes = 12000, .seed = 1};
    struct poise_listrank_options options = {0};

    (void)state;
    assert_int_equal(poise_listrank_generate(in_path, &shape, &options), 0);
    for (int i = 0; i < 2; i++) {
        uint64_t memory = i == 0 ? LITTLE : MUCH;

        check_fault(POISE_FAULT_READ, EIO, memory);
        check_fault(POISE_FAULT_WRITE, ENOSPC, memory);
        check_fault(POISE_FAULT_ALLOC, ENOMEM, memory);
        check_fault(POISE_FAULT_OPEN, EMFILE, memory);
        check_fault(POISE_FAULT_RENAME, EIO, memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns),      cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_generator),     cmocka_unit_test(test_weights),
        cmocka_unit_test(test_traffic),       cmocka_unit_test(test_ways),
        cmocka_unit_test(test_wrong),         cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_little_memory), cmocka_unit_test(test_faults),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
