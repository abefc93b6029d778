/* Sorting files: every type, pattern and size, in memory and out of it; bad
 * input; faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../share.h"
#include "extmem/sort/internal.h"
#include "folder.h"

#define KB UINT64_C(1024)

static struct poise_sort_options options_of(const char *type, const char *key,
                                            uint64_t memory)
{
    struct poise_sort_options options = {.memory_bytes = memory, .threads = 2};

    assert_int_equal(poise_sort_type_parse(type, key, &options.type), 0);
    return options;
}

/* ---- all types and patterns --------------------------------------------- */

struct shape {
    const char *type, *key;
    uint64_t count, small; /* memory far less than the data */
};
static const struct shape shapes[] = {
    {"u32", NULL, 150000, 256 * KB},
    {"i32", NULL, 150000, 256 * KB},
    {"f32", NULL, 150000, 256 * KB},
    {"u64", NULL, 150000, 512 * KB},
    {"i64", NULL, 50000, 256 * KB},
    {"f64", NULL, 50000, 256 * KB},
    {"record:100,0,10", NULL, 10000, 400 * KB},
    {"record:13", "2:u32", 50000, 400 * KB},
    {"record:7,6,1", NULL, 90000, 600 * KB},
    {"record:40,3,21", NULL, 20000, 400 * KB},
    {"lines", NULL, 15000, 400 * KB},
};

/* Sort and check against the input: order, multiset, number. */
static void check_sort(const struct poise_sort_options *given, uint64_t count,
                       struct poise_sort_result *result)
{
    struct poise_sort_options options = *given;
    struct poise_sort_report before, after;

    options.checksum = true;
    assert_int_equal(poise_sort_check(in_path, &options, &before), 0);
    assert_int_equal(before.items, count);
    assert_int_equal(poise_sort_run(in_path, out_path, &options, result), 0);
    assert_int_equal(poise_sort_check(out_path, &options, &after), 0);
    assert_true(after.sorted);
    assert_int_equal(after.items, count);
    assert_int_equal(after.bytes, before.bytes);
    assert_int_equal(after.checksum, before.checksum);
    assert_int_equal(result->checksum, before.checksum);
    assert_int_equal(result->items_out, count);
    assert_int_equal(result->bytes_out, before.bytes);
}

static void test_types(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int p = 0; poise_sort_pattern_names[p]; p++) {
            if (!in_share(i + (size_t)p)) {
                continue;
            }
            const struct shape *shape = &shapes[i];
            struct poise_sort_options options =
                options_of(shape->type, shape->key, 64 << 20);
            struct poise_sort_result result;

            assert_int_equal(poise_sort_generate(in_path, &options,
                                                 (enum poise_sort_pattern)p,
                                                 shape->count, (uint64_t)p),
                             0);
            check_sort(&options, shape->count, &result);
            assert_int_equal(result.scratch_bytes, 0);
            options.memory_bytes = shape->small;
            check_sort(&options, shape->count, &result);
            /* Equal numbers are counted, not stored. */
            assert_true(result.scratch_bytes > 0 || p == POISE_SORT_EQUAL ||
                        p == POISE_SORT_FEW);
        }
    }
}

/* Every size around the limits of pages, blocks and batches. */
static void test_sizes(void **state)
{
    static const uint64_t sizes[] = {0,   1,    2,    15,   16,    17,   511,
                                     512, 1023, 1024, 1025, 65536, 65537};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        static const char *const types[] = {"u32", "u64", "record:9,1,8",
                                            "lines"};

        for (size_t t = 0; t < 4; t++) {
            struct poise_sort_options options =
                options_of(types[t], NULL, 700 * KB);
            struct poise_sort_result result;

            options.threads = 3;
            assert_int_equal(poise_sort_generate(in_path, &options,
                                                 POISE_SORT_RANDOM, sizes[i],
                                                 7),
                             0);
            check_sort(&options, sizes[i], &result);
        }
    }
}

/* Through threads, through the page cache, over two folders. */
static void test_ways(void **state)
{
    const char *const two[] = {folder, poise_file_temporary_folder()};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct poise_sort_options options = options_of("u64", NULL, 512 * KB);
        struct poise_sort_result result;

        options.disk.engine = i & 1 ? POISE_DISK_THREADS : POISE_DISK_AUTO;
        options.disk.buffered = i & 2;
        options.scratch = two;
        options.scratch_count = 2;
        options.sync = true;
        options.threads = (unsigned)i + 1;
        assert_int_equal(poise_sort_generate(in_path, &options,
                                             POISE_SORT_RANDOM, 200000, 1),
                         0);
        check_sort(&options, 200000, &result);
        assert_true(result.scratch_bytes > 0);
        assert_false(result.direct_in && (i & 2));
        if (i & 1) {
            assert_string_equal(result.engine, "threads");
        }
    }
}

/* Two reads and two writes, and no bucket much larger than the mean. */
static void test_traffic(void **state)
{
    (void)state;
    for (int p = POISE_SORT_RANDOM; p <= POISE_SORT_SKEW; p++) {
        if (!in_share((size_t)p)) {
            continue;
        }
        struct poise_sort_options options = options_of("u64", NULL, 4 << 20);
        struct poise_sort_result result;
        uint64_t count = 2000000, bytes = 8 * count;

        assert_int_equal(poise_sort_generate(in_path, &options,
                                             (enum poise_sort_pattern)p, count,
                                             3),
                         0);
        check_sort(&options, count, &result);
        assert_int_equal(result.splits, 0);
        assert_true(result.largest_bytes <= 2 * result.mean_bytes ||
                    p == POISE_SORT_EQUAL || p == POISE_SORT_FEW);
        /* Samples are read beside it, and ends of blocks. */
        assert_true(result.read_bytes < 2 * bytes + bytes / 2);
        assert_true(result.written_bytes < 2 * bytes + bytes / 8);
    }
}

/* What is said beforehand comes true, from memory that holds all to one that
 * takes a third pass. */
static void test_promise(void **state)
{
    static const struct {
        const char *type;
        uint64_t count, memory;
        unsigned rounds;
    } cases[] = {
        {"u32", 600000, 16 << 20, 0},
        {"u32", 600000, 1200 * KB, 0},
        {"u64", 300000, 900 * KB, 0},
        {"u64", 2000000, 1000 * KB, 1}, /* blocks of many pages */
        {"record:100,0,10", 30000, 1500 * KB, 0},
        {"record:100,0,10", 30000, 400 * KB, 1},
        {"lines", 60000, 1500 * KB, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct poise_sort_options options =
            options_of(cases[i].type, NULL, cases[i].memory);
        struct poise_sort_forecast plan;
        struct poise_sort_result result;
        double bytes, read, written, limit;

        if (!in_share(i)) {
            continue;
        }
        assert_int_equal(poise_sort_generate(in_path, &options,
                                             POISE_SORT_RANDOM, cases[i].count,
                                             i),
                         0);
        unlink(out_path);
        assert_int_equal(poise_sort_plan(in_path, out_path, &options, &plan),
                         0);
        assert_int_equal(files_in_folder(), 1);
        assert_int_equal(poise_sort_run(in_path, out_path, &options, &result),
                         0);
        bytes = (double)result.bytes_in;
        assert_int_equal(plan.bytes_in, result.bytes_in);
        assert_int_equal(plan.rounds, cases[i].rounds);
        assert_int_equal(plan.read_bytes, result.planned_read_bytes);
        assert_int_equal(plan.written_bytes, result.planned_written_bytes);
        read = ((double)result.read_bytes - (double)plan.read_bytes) / bytes;
        written =
            ((double)result.written_bytes - (double)plan.written_bytes) / bytes;
        limit = cases[i].rounds > 0 ? 0.3 : 0.06;
        if (fabs(read) > limit || fabs(written) > limit) {
            fail_msg("%s in %llu bytes: read %+.3f, written %+.3f times more",
                     cases[i].type, (unsigned long long)cases[i].memory, read,
                     written);
        }
    }
}

/* Slots over disks of unequal room: each has a place of its own, side by side
 * as long as there is room on all, and no disk but the last has more than fit.
 */
static void test_uneven_disks(void **state)
{
    static const uint64_t rooms[][4] = {
        {5, 5, 5, 5}, {0, 3, 3, 9}, {1, 2, 40, 50}, {0, 0, 0, 7}, {7, 0, 0, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        for (size_t count = 1; count <= 4; count++) {
            char names[4];
            struct poise_disk *disks[4];
            uint64_t own[4], used[4] = {0};
            struct extmem_store store = {.disks = disks,
                                         .disk_count = count,
                                         .rooms = own,
                                         .block_bytes = 512};

            memcpy(own, rooms[i], sizeof own);
            for (size_t j = 0; j < count; j++) {
                disks[j] = (struct poise_disk *)(void *)&names[j];
                own[j] = j > 0 && own[j] < own[j - 1] ? own[j - 1] : own[j];
            }
            for (uint64_t slot = 0; slot < 200; slot++) {
                uint64_t place;
                size_t j = (size_t)((char *)extmem_store_place(&store, slot, 7,
                                                               &place) -
                                    names);

                /* A disk's slots come in the order of their places. */
                assert_int_equal(place, used[j]++ * 512 + 7);
                assert_true(j == count - 1 || used[j] <= own[j]);
                for (size_t k = 0; k < count; k++) {
                    assert_true(used[j] <= used[k] + 1 || used[k] >= own[k]);
                }
            }
        }
    }
}

/* Three descriptors are enough for what fits memory: input and output. */
static void test_few_descriptors(void **state)
{
    struct poise_sort_options options = options_of("u64", NULL, 16 << 20);
    struct poise_sort_result result;
    struct rlimit was, few;
    int lowest = dup(0), code;

    (void)state;
    close(lowest);
    assert_int_equal(
        poise_sort_generate(in_path, &options, POISE_SORT_RANDOM, 20000, 1), 0);
    unlink(out_path);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = (rlim_t)lowest + 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    code = poise_sort_run(in_path, out_path, &options, &result);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(code, 0);
    assert_int_equal(result.items_out, 20000);
    assert_string_equal(result.engine, "threads");
}

/* ---- order -------------------------------------------------------------- */

static void test_floats(void **state)
{
    /* In the order documented. */
    static const uint64_t sorted[] = {
        0xfff8000000000001, /* -NaN of the greater payload */
        0xfff8000000000000,
        0xfff0000000000000, /* -inf */
        0xbff0000000000000,
        0x8000000000000001, /* -1, -denormal */
        0x8000000000000000,
        0, /* -0, +0 */
        1,
        0x3ff0000000000000,
        0x7ff0000000000000, /* +inf */
        0x7ff8000000000000,
        0x7ff8000000000001};
    static const uint32_t small[] = {0xffc00001, 0xffc00000, 0xff800000,
                                     0xbf800000, 0x80000000, 0,
                                     0x3f800000, 0x7f800000, 0x7fc00000};
    enum {
        N = sizeof sorted / sizeof *sorted,
        S = sizeof small / sizeof *small
    };
    uint64_t mixed[N];
    uint32_t mixed_small[S];
    struct poise_sort_options options = options_of("f64", NULL, 1 << 20);
    size_t len;
    char *data;

    (void)state;
    for (size_t i = 0; i < N; i++) {
        mixed[i * 5 % N] = sorted[i];
    }
    put_file(in_path, mixed, sizeof mixed);
    assert_int_equal(poise_sort_run(in_path, out_path, &options, NULL), 0);
    data = get_file(out_path, &len);
    assert_int_equal(len, sizeof sorted);
    assert_memory_equal(data, sorted, len);
    free(data);

    for (size_t i = 0; i < S; i++) {
        mixed_small[i * 4 % S] = small[i];
    }
    options = options_of("f32", NULL, 1 << 20);
    put_file(in_path, mixed_small, sizeof mixed_small);
    assert_int_equal(poise_sort_run(in_path, out_path, &options, NULL), 0);
    data = get_file(out_path, &len);
    assert_memory_equal(data, small, sizeof small);
    free(data);
}

/* Records with equal keys keep their order; the first of them is kept by
 * `unique`. */
static void check_stable(bool unique, uint64_t memory, unsigned keys)
{
    enum { COUNT = 40000 };
    struct poise_sort_options options =
        options_of("record:16,4,4", NULL, memory);
    uint32_t *records = calloc(COUNT, 16);
    uint32_t *out;
    size_t len;

    options.unique = unique;
    for (uint32_t i = 0; i < COUNT; i++) {
        records[4 * i] = i;
        records[4 * i + 1] = (uint32_t)(poise_hash_u64(i) % keys);
    }
    put_file(in_path, records, (size_t)COUNT * 16);
    assert_int_equal(poise_sort_run(in_path, out_path, &options, NULL), 0);
    out = (uint32_t *)(void *)get_file(out_path, &len);
    if (!unique) {
        assert_int_equal(len, COUNT * 16);
    } else {
        assert_true(len <= (size_t)keys * 16);
    }
    for (size_t i = 1; i < len / 16; i++) {
        int order = memcmp(&out[4 * (i - 1) + 1], &out[4 * i + 1], 4);

        assert_true(order < 0 ||
                    (!unique && order == 0 && out[4 * (i - 1)] < out[4 * i]));
    }
    for (size_t i = 0; unique && i < len / 16; i++) {
        for (uint32_t j = 0; j < out[4 * i]; j++) {
            assert_int_not_equal(records[4 * j + 1], out[4 * i + 1]);
        }
    }
    free(out);
    free(records);
}

static void test_stable(void **state)
{
    (void)state;
    check_stable(false, 16 << 20, 1000);
    check_stable(false, 512 * KB, 1000);
    check_stable(false, 512 * KB, 3);
    check_stable(true, 16 << 20, 50);
    check_stable(true, 512 * KB, 50);
    check_stable(true, 512 * KB, 1);
}

static int compare_words(const void *a, const void *b)
{
    uint64_t x, y;

    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    return (x > y) - (x < y);
}

static void test_unique_words(void **state)
{
    enum { COUNT = 100000 };
    uint64_t *words = calloc(COUNT, 8);
    struct poise_sort_options options = options_of("u64", NULL, 300 * KB);
    struct poise_sort_result result;
    size_t len, kept = 1;
    char *data;

    (void)state;
    options.unique = true;
    for (uint64_t i = 0; i < COUNT; i++) {
        words[i] = poise_hash_u64(i % 3 ? i : i % 7) % 60000;
    }
    put_file(in_path, words, COUNT * sizeof *words);
    qsort(words, COUNT, 8, compare_words);
    for (size_t i = 1; i < COUNT; i++) {
        if (words[i] != words[kept - 1]) {
            words[kept++] = words[i];
        }
    }
    assert_int_equal(poise_sort_run(in_path, out_path, &options, &result), 0);
    data = get_file(out_path, &len);
    assert_int_equal(len, 8 * kept);
    assert_int_equal(result.items_out, kept);
    assert_memory_equal(data, words, len);
    free(data);
    free(words);
}

/* ---- lines -------------------------------------------------------------- */

static int compare_lines(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;

    return strcmp(*x, *y);
}

/* Sort what stands in `text` (no NULs) and compare with qsort. */
static void check_lines(char *text, uint64_t memory)
{
    struct poise_sort_options options = options_of("lines", NULL, memory);
    size_t len = strlen(text), lines = 0, at = 0, out_len;
    char **all = calloc(len + 1, sizeof *all);
    char *rest = text, *out;

    put_file(in_path, text, len);
    while (rest && *rest) {
        all[lines++] = strsep(&rest, "\n");
    }
    qsort(all, lines, sizeof *all, compare_lines);
    assert_int_equal(poise_sort_run(in_path, out_path, &options, NULL), 0);
    out = get_file(out_path, &out_len);
    for (size_t i = 0; i < lines; i++) {
        size_t n = strlen(all[i]);

        assert_true(at + n < out_len);
        assert_memory_equal(out + at, all[i], n);
        assert_int_equal(out[at + n], '\n');
        at += n + 1;
    }
    assert_int_equal(at, out_len);
    free(out);
    free(all);
}

static void test_lines(void **state)
{
    struct poise_buf text = {0};
    char small[] = "b\n\nab\na\n\nabc"; /* no newline at the end */
    char one[] = "\n";

    (void)state;
    check_lines(small, 1 << 20);
    check_lines(one, 1 << 20);
    /* Long common beginnings, many lengths, copies, empty lines. */
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t x = poise_hash_u64(i % 15000 + 1);

        poise_buf_printf(&text, "%.*s%llu\n", (int)(x % 40),
                         "the same words before what makes a difference",
                         (unsigned long long)(x >> 50));
        if (x % 64 == 0) {
            poise_buf_putc(&text, '\n');
        }
    }
    for (int i = 0; i < 2; i++) {
        char *copy = strdup(poise_buf_str(&text));

        check_lines(copy, i == 0 ? 16 << 20 : 500 * KB);
        free(copy);
    }
    poise_buf_free(&text);
}

/* A line longer than any block, and lines that differ only far behind. */
static void test_long_lines(void **state)
{
    enum { LINES = 300, LONG = 1500 };
    char *text = malloc((size_t)LINES * (LONG + 1) + 1), *at = text;

    (void)state;
    for (unsigned i = 0; i < LINES; i++) {
        size_t len = i % 7 ? LONG : i;

        memset(at, 'z', len);
        if (len > 1400) {
            at[1000 + i % 5] = (char)('a' + i % 9);
        }
        at += len;
        *at++ = '\n';
    }
    *at = '\0';
    check_lines(text, 1 << 20);
    free(text);
}

/* Bytes of zero end no line and count. */
/* Equal lines that are longer than a sample looks, and exceed the memory
 * together. */
static void test_long_equals(void **state)
{
    enum { LINES = 60, LONG = 20000 };
    struct poise_sort_options options = options_of("lines", NULL, 700 * KB);
    struct poise_sort_result result;
    struct poise_buf text = {0};

    (void)state;
    for (unsigned i = 0; i < 100 * LINES; i++) {
        poise_buf_printf(&text, "%llu\n",
                         (unsigned long long)poise_hash_u64(i) % 1000);
        if (i % 100 == 0) {
            memset(poise_buf_reserve(&text, LONG), 'y', LONG);
            text.len += LONG;
            poise_buf_putc(&text, '\n');
        }
    }
    assert_int_equal(text.error, 0);
    put_file(in_path, text.data, text.len);
    poise_buf_free(&text);
    check_sort(&options, 101 * LINES, &result);
    assert_true(result.splits > 0);
}

static void test_zero_bytes(void **state)
{
    static const char lines[] = "a\0\na\na\0\0b\na\0\0\n\0\n\n";
    static const char sorted[] = "\n\0\na\na\0\na\0\0\na\0\0b\n";
    enum { COPIES = 40 }; /* enough to be sorted by windows */
    struct poise_sort_options options = options_of("lines", NULL, 1 << 20);
    char *many = malloc(COPIES * sizeof lines), *data;
    size_t len;

    (void)state;
    for (size_t i = 0; i < COPIES; i++) {
        memcpy(many + i * (sizeof lines - 1), lines, sizeof lines - 1);
    }
    put_file(in_path, many, COPIES * (sizeof lines - 1));
    options.unique = true;
    assert_int_equal(poise_sort_run(in_path, out_path, &options, NULL), 0);
    data = get_file(out_path, &len);
    assert_int_equal(len, sizeof sorted - 1);
    assert_memory_equal(data, sorted, len);
    free(data);
    options.unique = false;
    assert_int_equal(poise_sort_run(in_path, out_path, &options, NULL), 0);
    data = get_file(out_path, &len);
    assert_int_equal(len, COPIES * (sizeof lines - 1));
    free(data);
    free(many);
}

/* ---- bad input ---------------------------------------------------------- */

static void test_types_refused(void **state)
{
    static const char *const bad[][2] = {
        {"u16", NULL},           {"record", NULL},
        {"record:", NULL},       {"record:0", NULL},
        {"record:10,", NULL},    {"record:10,5,6", NULL},
        {"record:10,0,0", NULL}, {"record:10,0,4x", NULL},
        {"u32", "0,4"},          {"record:10", "8:u32"},
        {"record:10", "0:u16"},  {"record:10", "0"},
        {"lines", "1,2"},        {"record:99999999999", NULL}};
    struct poise_sort_type type;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(poise_sort_type_parse(bad[i][0], bad[i][1], &type),
                         -EINVAL);
    }
    assert_int_equal(poise_sort_type_parse("record:10,5,6", NULL, &type),
                     -EINVAL);
    assert_non_null(strstr(poise_error_last()->why, "past the end"));
}

static void test_bad_files(void **state)
{
    struct poise_sort_options options = options_of("u64", NULL, 1 << 20);

    (void)state;
    unlink(out_path);
    unlink(in_path);
    assert_int_equal(poise_sort_run(in_path, out_path, &options, NULL),
                     -ENOENT);
    put_file(in_path, "0123456789ab", 12);
    assert_int_equal(poise_sort_run(in_path, out_path, &options, NULL),
                     -EBADMSG);
    assert_non_null(strstr(poise_error_last()->why, "no multiple"));
    assert_int_equal(poise_sort_run(folder, out_path, &options, NULL), -EINVAL);
    put_file(in_path, "01234567", 8);
    assert_int_equal(poise_sort_run(in_path, folder, &options, NULL), -EISDIR);
    assert_int_equal(poise_sort_run(in_path, in_path, &options, NULL), -EINVAL);
    assert_non_null(strstr(poise_error_last()->why, "--in-place"));
    assert_int_equal(files_in_folder(), 1);
    options.in_place = true;
    assert_int_equal(poise_sort_run(in_path, in_path, &options, NULL), 0);
    assert_int_equal(files_in_folder(), 1);
}

/* The message says the least that works, and that works. */
static void test_little_memory(void **state)
{
    struct poise_sort_options options =
        options_of("record:100,0,10", NULL, 20000);
    struct sort_census census = {
        .bytes = 2000000, .item_bytes = 100, .least_item = 100};
    struct poise_sort_result result;

    (void)state;
    assert_int_equal(
        poise_sort_generate(in_path, &options, POISE_SORT_RANDOM, 20000, 1), 0);
    assert_int_equal(poise_sort_run(in_path, out_path, &options, NULL),
                     -ENOMEM);
    assert_non_null(strstr(poise_error_last()->why, "at least"));
    options.memory_bytes = sort_plan_least(&options, &census, 1);
    assert_true(options.memory_bytes < 1 << 20);
    check_sort(&options, 20000, &result);
    assert_int_equal(result.threads, 1);
}

static void test_input_untouched(void **state)
{
    struct poise_sort_options options = options_of("u32", NULL, 300 * KB);
    struct stat before, after;
    char *first, *second;
    size_t len;

    (void)state;
    assert_int_equal(
        poise_sort_generate(in_path, &options, POISE_SORT_REVERSE, 100000, 1),
        0);
    first = get_file(in_path, &len);
    assert_int_equal(stat(in_path, &before), 0);
    assert_int_equal(poise_sort_run(in_path, out_path, &options, NULL), 0);
    assert_int_equal(stat(in_path, &after), 0);
    second = get_file(in_path, &len);
    assert_memory_equal(first, second, len);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    free(first);
    free(second);
}

/* ---- faults ------------------------------------------------------------- */

static int never_run(void *arg, unsigned thread)
{
    (void)arg;
    (void)thread;
    fail();
    return 0;
}

/* Others wait for its threads or for the job to stop. */
static void test_team_without_memory(void **state)
{
    bool stop = false;

    (void)state;
    poise_fault_arm(POISE_FAULT_ALLOC, 1, ENOMEM, false);
    assert_int_equal(extmem_team_run(2, never_run, NULL, &stop), -ENOMEM);
    poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
    assert_true(stop);
}

/* Make call after call fail until a run succeeds: nothing may be left, and the
 * code has to arrive. Late calls of long series are sampled. */
static void check_fault(enum poise_fault kind, int code, const char *type,
                        bool unique)
{
    struct poise_sort_options options = options_of(type, NULL, 300 * KB);
    const char *scratch = folder;
    uint64_t k = 1;
    int result = -1;

    options.unique = unique;
    /* A file of its own for scratch blocks. */
    options.scratch = &scratch;
    options.scratch_count =
        kind == POISE_FAULT_OPEN || kind == POISE_FAULT_STAT;
    assert_int_equal(
        poise_sort_generate(in_path, &options, POISE_SORT_FEW, 4000, 1), 0);
    while (result != 0) {
        unlink(out_path);
        assert_true(k < 100000);
        poise_fault_arm(kind, k, code, false);
        result = poise_sort_run(in_path, out_path, &options, NULL);
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
    (void)state;
    check_fault(POISE_FAULT_READ, EIO, "record:100,0,10", false);
    check_fault(POISE_FAULT_WRITE, ENOSPC, "record:100,0,10", true);
    check_fault(POISE_FAULT_WRITE, EIO, "record:50,0,10", false);
    check_fault(POISE_FAULT_ALLOC, ENOMEM, "record:100,0,10", false);
    check_fault(POISE_FAULT_ALLOC, ENOMEM, "lines", true);
    /* More than memory: what fits opens no scratch file. */
    check_fault(POISE_FAULT_OPEN, EMFILE, "record:100,0,10", false);
    check_fault(POISE_FAULT_STAT, EIO, "record:100,0,10", false);
    check_fault(POISE_FAULT_RENAME, EIO, "u32", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_promise),
        cmocka_unit_test(test_uneven_disks),
        cmocka_unit_test(test_few_descriptors),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_stable),
        cmocka_unit_test(test_unique_words),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_long_equals),
        cmocka_unit_test(test_zero_bytes),
        cmocka_unit_test(test_types_refused),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_input_untouched),
        cmocka_unit_test(test_team_without_memory),
        cmocka_unit_test(test_faults),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
