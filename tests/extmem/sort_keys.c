/* Lines by keys: what keys are made of, sorted in little memory, of several
 * files, merged, looked through; faults. (GNU sort is the oracle of
 * tests/extmem/sort_gnu.) Numbers sorted in memory, in each way. */
#include <poise/sort_order.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "../share.h"
#include "extmem/sort/internal.h"
#include "folder.h"

static struct poise_sort_keys *make(const char *ordering, const char *key,
                                    bool keys_only)
{
    const struct poise_sort_rules rules = {.ordering = ordering,
                                           .keys = &key,
                                           .key_count = key != NULL,
                                           .separator =
                                               key && *key == '0' ? ":" : NULL,
                                           .keys_only = keys_only};
    struct poise_sort_keys *keys;

    assert_int_equal(poise_sort_keys_make(&rules, &keys), 0);
    return keys;
}

/* ---- keys --------------------------------------------------------------- */

/* Lines in order, "=" before those that equal their predecessor. */
struct ordered {
    const char *ordering, *key, *lines[16];
};
static const struct ordered orders[] = {
    {"n",
     NULL,
     {"-100000000000000000001", "-100000000000000000000", "-2", "-1.5", "-1.49",
      "-.001", "-0", "=x", "=+1", "=00.00", ".0001", "0.2", " 1", "1.00001",
      "9", "10"}},
    {"h",
     NULL,
     {"-1M", "-2K", "-1K", "-1000", "0K", "=0", "1", "1000", "1k", "=1K", "2K",
      "1M", "1G", "1T"}},
    {"g",
     NULL,
     {"x", "=", "-inf", "-1e30", "-1", "-1e-30", "-0", "=0", "1e-30", "1",
      "0x2", "1e30", "1e4000", "inf"}},
    {"M", NULL, {"x", "=ju", "jan", "=JANUARY", "  Feb", "dec"}},
    {"V",
     NULL,
     {"", ".", "..", ".a", "a~", "a", "=a0", "a1", "a10", "ab", "a-", "a.1",
      "=a.01", "a.2", "a.10", "b"}},
    {"f", NULL, {"A", "=a", "aB", "=AB", "b", "~"}},
    {"d", NULL, {"", "=-", "a", "=-a", "a b", "a-b"}},
    {NULL, "2,2", {"x", "x  b", "y a", "=z a", "y b"}},
    {NULL, "1.2,1.3r", {"xzz", "xz", "xab", "xa", "=ya", "x"}},
};

static void check_order(const struct ordered *order, bool reversed)
{
    char letters[8];
    struct poise_sort_keys *keys;
    struct poise_buf last = {0};

    snprintf(letters, sizeof letters, "%s%s",
             order->ordering ? order->ordering : "", reversed ? "r" : "");
    keys = make(letters, order->key, true);
    for (int i = 0; i < 16 && order->lines[i]; i++) {
        const char *line = order->lines[i];
        bool is_same = *line == '=';
        struct poise_buf key = {0};
        size_t least;
        int c;

        line += is_same;
        assert_int_equal(poise_sort_keys_append(keys,
                                                (const unsigned char *)line,
                                                strlen(line), &key),
                         0);
        least = key.len < last.len ? key.len : last.len;
        c = least > 0 ? memcmp(last.data, key.data, least) : 0;
        c = c != 0 ? c : (last.len > key.len) - (last.len < key.len);
        if (i > 0 && (is_same ? c != 0 : reversed ? c <= 0 : c >= 0)) {
            fail_msg("%s %s: '%s' after '%s'", letters,
                     order->key ? order->key : "", line, order->lines[i - 1]);
        }
        poise_buf_free(&last);
        last = key;
    }
    poise_buf_free(&last);
    poise_sort_keys_free(keys);
}

static void test_orders(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        check_order(&orders[i], false);
        if (!orders[i].key) {
            check_order(&orders[i], true);
        }
    }
    /* What is ordered by bytes needs no keys. */
    assert_null(make(NULL, NULL, true));
    assert_null(make(NULL, NULL, false));
}

static void test_bad_rules(void **state)
{
    static const char *const bad[] = {"",      "x",    "0",   "1.0",  "1,0",
                                      "1,",    "1.",   "1x",  "1,2x", "1ng",
                                      "1n,2M", "1,2.", "1dn", "1Vh"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct poise_sort_rules rules = {.keys = &bad[i], .key_count = 1};
        struct poise_sort_keys *keys;

        assert_int_equal(poise_sort_keys_make(&rules, &keys), -EINVAL);
    }
}

/* ---- files -------------------------------------------------------------- */

/* The same for the same seed: words and numbers, some of them often. */
static void put_lines(const char *path, unsigned count, uint64_t seed,
                      bool ended)
{
    struct poise_rng rng;
    struct poise_buf text = {0};

    poise_rng_seed(&rng, seed);
    for (unsigned i = 0; i < count; i++) {
        poise_buf_printf(&text, "%s%llu %c%lld.%llu %08llx",
                         i % 3 ? "word" : "",
                         (unsigned long long)poise_rng_below(&rng, 50),
                         "-+ 1"[poise_rng_below(&rng, 4)],
                         (long long)poise_rng_below(&rng, 300),
                         (unsigned long long)poise_rng_below(&rng, 10),
                         (unsigned long long)poise_rng_next(&rng) >> 40);
        if (i + 1 < count || ended) {
            poise_buf_putc(&text, '\n');
        }
    }
    put_file(path, text.data ? text.data : "", text.len);
    poise_buf_free(&text);
}

static struct poise_sort_options options_of(const struct poise_sort_keys *keys,
                                            uint64_t memory)
{
    return (struct poise_sort_options){
        .type = {.kind = POISE_SORT_LINES, .keys = keys},
        .memory_bytes = memory,
        .threads = 2,
    };
}

static uint64_t disorder_of(const char *path,
                            const struct poise_sort_options *options)
{
    struct poise_buf line = {0};
    uint64_t number;

    assert_int_equal(poise_sort_find_disorder(path, options, &number, &line),
                     0);
    poise_buf_free(&line);
    return number;
}

/* In little memory as in much, with many keys that are equal. */
static void test_little_memory(void **state)
{
    static const struct {
        const char *ordering, *key;
        bool keys_only, unique;
    } ways[] = {{"r", NULL, false, false},    {NULL, "2,2n", false, false},
                {NULL, "2,2nr", true, false}, {"V", "1,1", true, false},
                {NULL, "2n", true, true},     {"f", "3", false, true}};
    enum { COUNT = 14000 };

    (void)state;
    put_lines(in_path, COUNT, 1, false);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct poise_sort_keys *keys =
            make(ways[i].ordering, ways[i].key, ways[i].keys_only);
        struct poise_sort_options options = options_of(keys, 64 << 20);
        struct poise_sort_result result;

        options.unique = ways[i].unique;
        options.checksum = true;
        assert_int_equal(poise_sort_run(in_path, out_path, &options, NULL), 0);
        assert_int_equal(disorder_of(out_path, &options), 0);
        options.memory_bytes = 300 << 10;
        assert_int_equal(poise_sort_run(in_path, one_path, &options, &result),
                         0);
        assert_int_equal(result.items_in, COUNT);
        assert_true(result.scratch_bytes > 0);
        check_same_files(out_path, one_path);
        if (!options.unique) {
            struct poise_sort_report report;

            assert_int_equal(poise_sort_check(one_path, &options, &report), 0);
            assert_true(report.sorted);
            assert_int_equal(report.items, COUNT);
            assert_int_equal(report.checksum, result.checksum);
        }
        poise_sort_keys_free(keys);
    }
}

/* The names of `count` files of lines, the last lines of some not ended. */
static void put_several(const char **names, char (*room)[TEMPORARY_MORE],
                        unsigned count, unsigned lines)
{
    for (unsigned i = 0; i < count; i++) {
        snprintf(room[i], sizeof *room, "%s/%u", folder, i);
        names[i] = room[i];
        put_lines(room[i], i % 4 == 1 ? 0 : lines, i, i % 3 != 0);
    }
}

enum { MANY = 20 };

static void remove_several(const char *const *names, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        unlink(names[i]);
    }
}

/* All of them as one file, each line ended. */
static void join(const char *path, const char *const *names, unsigned count)
{
    struct poise_buf all = {0};

    for (unsigned i = 0; i < count; i++) {
        size_t len;
        char *data = get_file(names[i], &len);

        poise_buf_append(&all, data, len);
        if (len > 0 && data[len - 1] != '\n') {
            poise_buf_putc(&all, '\n');
        }
        free(data);
    }
    put_file(path, all.data, all.len);
    poise_buf_free(&all);
}

/* Each where it lies, or all copied: as one file. */
static void test_several_inputs(void **state)
{
    static char room[MANY][TEMPORARY_MORE];
    static const unsigned counts[] = {2, 3, 16, MANY};
    const char *names[MANY];
    struct poise_sort_keys *keys = make(NULL, "2,2n", true);

    (void)state;
    put_several(names, room, MANY, 500);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct poise_sort_options options =
            options_of(i % 2 ? keys : NULL, 400 << 10);
        struct poise_sort_result result;

        join(in_path, names, counts[i]);
        assert_int_equal(poise_sort_run(in_path, one_path, &options, NULL), 0);
        options.more = names + 1;
        options.more_count = counts[i] - 1;
        assert_int_equal(poise_sort_run(names[0], out_path, &options, &result),
                         0);
        check_same_files(out_path, one_path);
        /* An output that is one of them has to be meant to be. */
        assert_int_equal(poise_sort_run(names[0], names[1], &options, NULL),
                         counts[i] <= 16 ? -EINVAL : 0);
        if (counts[i] > 16) {
            check_same_files(names[1], one_path);
        }
    }
    remove_several(names, MANY);
    poise_sort_keys_free(keys);
}

static void test_merge(void **state)
{
    static char room[MANY][TEMPORARY_MORE];
    const char *names[MANY];
    struct poise_sort_keys *keys = make(NULL, "2,2n", true);
    struct poise_sort_options options = options_of(keys, 64 << 20);
    struct rlimit before, few = {.rlim_cur = 16};

    (void)state;
    put_several(names, room, MANY, 200);
    for (unsigned i = 0; i < MANY; i++) {
        options.in_place = true;
        assert_int_equal(poise_sort_run(names[i], names[i], &options, NULL), 0);
    }
    join(in_path, names, MANY);
    for (int unique = 0; unique < 2; unique++) {
        options.unique = unique;
        options.more_count = 0;
        assert_int_equal(poise_sort_run(in_path, one_path, &options, NULL), 0);
        options.more = names + 1;
        options.more_count = MANY - 1;
        for (unsigned batch = 0; batch <= MANY; batch += 5) {
            assert_int_equal(
                poise_sort_merge(names[0], out_path, &options, batch), 0);
            check_same_files(out_path, one_path);
        }
    }
    /* More files than descriptors. */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(poise_sort_merge(names[0], out_path, &options, MANY), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    check_same_files(out_path, one_path);
    remove_several(names, MANY);
    poise_sort_keys_free(keys);
}

static void test_disorder(void **state)
{
    struct poise_sort_keys *keys = make("n", NULL, true);
    struct poise_sort_options options = options_of(keys, 0);
    struct poise_buf line = {0};
    uint64_t number;

    (void)state;
    put_file(in_path, "1\n2\n02\n10\n9\n8", 13);
    assert_int_equal(
        poise_sort_find_disorder(in_path, &options, &number, &line), 0);
    assert_int_equal(number, 5);
    assert_string_equal(poise_buf_str(&line), "9");
    options.unique = true;
    assert_int_equal(disorder_of(in_path, &options), 3);
    put_file(in_path, "", 0);
    assert_int_equal(disorder_of(in_path, &options), 0);
    assert_int_equal(poise_sort_find_disorder(folder, &options, &number, &line),
                     -EISDIR);
    poise_buf_free(&line);
    poise_sort_keys_free(keys);
}

/* ---- faults ------------------------------------------------------------- */

/* Every k-th call fails: an error, the old output, and nothing else left. */
static void check_faults(enum poise_fault kind, int error,
                         int (*run)(const struct poise_sort_options *),
                         const struct poise_sort_options *options)
{
    unsigned files = files_in_folder();
    int code = -1;

    for (int k = 1; code < 0; k += k < 40 ? 1 : k / 8) {
        put_file(out_path, "old", 3);
        poise_fault_arm(kind, k, error, false);
        code = run(options);
        poise_fault_arm(kind, 0, 0, false);
        assert_int_equal(files_in_folder(), files);
        if (code < 0) {
            size_t len;
            char *left = get_file(out_path, &len);

            assert_int_equal(code, -error);
            assert_int_equal(len, 3);
            free(left);
        }
        assert_true(k < 100000);
    }
}

static int run_sort(const struct poise_sort_options *options)
{
    return poise_sort_run(in_path, out_path, options, NULL);
}

static int run_merge(const struct poise_sort_options *options)
{
    return poise_sort_merge(in_path, out_path, options, 2);
}

static void test_faults(void **state)
{
    struct poise_sort_keys *keys = make(NULL, "2,2n", false);
    struct poise_sort_options options = options_of(keys, 500 << 10);
    const char *more[] = {one_path, in_path};

    (void)state;
    put_lines(in_path, 1000, 3, true);
    put_lines(one_path, 1000, 4, false);
    put_file(out_path, "old", 3);
    options.more = more;
    options.more_count = 2;
    check_faults(POISE_FAULT_ALLOC, ENOMEM, run_sort, &options);
    check_faults(POISE_FAULT_READ, EIO, run_sort, &options);
    check_faults(POISE_FAULT_WRITE, ENOSPC, run_sort, &options);
    check_faults(POISE_FAULT_ALLOC, ENOMEM, run_merge, &options);
    check_faults(POISE_FAULT_READ, EIO, run_merge, &options);
    check_faults(POISE_FAULT_WRITE, ENOSPC, run_merge, &options);
    poise_sort_keys_free(keys);
}

/* ---- numbers, in memory -------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* `count` numbers of 64 and of 32 bits: by vectors, where there are any, and
 * by radix, against qsort(3). */
static void check_numbers(size_t count, unsigned pattern, struct poise_rng *rng)
{
    static uint64_t oracle[9000], large[9000], to[9000];
    static uint32_t small[9000], small_to[9000];

    assert_true(count <= 9000);
    for (int way = 0; way < 4; way++) {
        bool is_small = way & 1, by_vectors = way & 2;
        bool done = true;

        for (size_t i = 0; i < count; i++) {
            uint64_t x = poise_rng_next(rng);

            x = pattern == 1   ? x % 3
                : pattern == 2 ? i
                : pattern == 3 ? count - i
                : pattern == 4 ? UINT64_MAX - x % 2
                : pattern == 5 ? (x % 2 ? UINT64_MAX : x)
                               : x;
            small[i] = (uint32_t)x;
            large[i] = x;
            oracle[i] = is_small ? small[i] : x;
        }
        qsort(oracle, count, sizeof *oracle, by_number);
        if (is_small && by_vectors) {
            done = extmem_vector_32(small, small_to, count);
        } else if (by_vectors) {
            done = extmem_vector_64(large, to, count);
        } else if (is_small) {
            extmem_radix_32(small, small_to, count, true);
        } else {
            extmem_radix_64(large, to, count, true);
        }
        for (size_t i = 0; i < count && done; i++) {
            assert_true((is_small ? small_to[i] : to[i]) == oracle[i]);
        }
    }
}

static void test_numbers(void **unused)
{
    static const size_t sizes[] = {511, 1000, 8999};
    struct poise_rng rng;

    (void)unused;
    poise_rng_seed(&rng, 42);
    for (size_t n = 0; n < 140; n++) {
        check_numbers(n, (unsigned)(n % 6), &rng);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (unsigned pattern = 0; pattern < 6; pattern++) {
            check_numbers(sizes[i], pattern, &rng);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_bad_rules),
        cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_several_inputs),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_disorder),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_faults),
    };

    setenv("LC_ALL", "C", 1);
    return cmocka_run_group_tests(tests, setup, teardown);
}
