/* Sorting files by several processes, which here are threads of one: the same
 * bytes as by one alone, and the same error for all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../share.h"
#include "folder.h"
#include <poise/core.h>
#include <poise/sort.h>

#define KB UINT64_C(1024)
enum { MOST_RANKS = 5 };

static struct poise_sort_options options_of(const char *type, uint64_t memory)
{
    struct poise_sort_options options = {.memory_bytes = memory, .threads = 2};

    assert_int_equal(poise_sort_type_parse(type, NULL, &options.type), 0);
    return options;
}

/* ---- ranks -------------------------------------------------------------- */

struct member {
    pthread_t thread;
    struct poise_world *world;
    struct poise_sort_options options;
    struct poise_sort_result result;
    const char *in;
    int code;
    char why[200];
};

static void *member_main(void *arg)
{
    struct member *member = arg;

    member->options.world = member->world;
    member->code =
        poise_sort_run(member->in, out_path, &member->options, &member->result);
    if (member->code < 0) {
        snprintf(member->why, sizeof member->why, "%s",
                 poise_error_last()->why);
    }
    poise_world_destroy(member->world);
    return NULL;
}

/* Sort by `ranks` ranks; what the first one got. If `fault` is not 0 the k-th
 * call of `kind` fails with it; *k becomes 0 if there was none. */
struct trial {
    unsigned ranks;
    const char *topology;
    enum poise_fault kind;
    int fault;
    uint64_t k;
};

static struct member sort_by(struct trial *trial,
                             const struct poise_sort_options *options)
{
    struct member members[MOST_RANKS] = {0};
    struct poise_world *worlds[MOST_RANKS];
    struct poise_local_options local = {.topology = trial->topology};

    assert_int_equal(
        poise_world_create_local((int)trial->ranks, &local, worlds), 0);
    poise_fault_arm(trial->kind, trial->fault ? trial->k : 0, trial->fault,
                    false);
    for (unsigned i = 0; i < trial->ranks; i++) {
        members[i].world = worlds[i];
        members[i].options = *options;
        members[i].in = in_path;
        assert_int_equal(
            pthread_create(&members[i].thread, NULL, member_main, &members[i]),
            0);
    }
    for (unsigned i = 0; i < trial->ranks; i++) {
        pthread_join(members[i].thread, NULL);
    }
    if (poise_fault_calls(trial->kind) < trial->k) {
        trial->k = 0;
    }
    poise_fault_arm(trial->kind, 0, 0, false);
    for (unsigned i = 1; i < trial->ranks; i++) {
        assert_int_equal(members[i].code, members[0].code);
    }
    return members[0];
}

/* The same bytes as by one process, and the same account of them. */
static struct poise_sort_result
check_sort(const struct poise_sort_options *given, unsigned ranks,
           uint64_t memory)
{
    struct poise_sort_options options = *given;
    struct poise_sort_result one, all;
    struct trial trial = {.ranks = ranks};
    struct member member;

    options.checksum = true;
    assert_int_equal(poise_sort_run(in_path, one_path, &options, &one), 0);
    options.memory_bytes = memory;
    unlink(out_path);
    member = sort_by(&trial, &options);
    assert_string_equal(member.why, "");
    assert_int_equal(member.code, 0);
    all = member.result;
    check_same_files(out_path, one_path);
    assert_int_equal(all.processes, ranks);
    assert_int_equal(all.items_in, one.items_in);
    assert_int_equal(all.items_out, one.items_out);
    assert_int_equal(all.bytes_out, one.bytes_out);
    assert_int_equal(all.checksum, one.checksum);
    assert_int_equal(files_in_folder(), 3);
    return all;
}

/* ---- all types and patterns --------------------------------------------- */

struct shape {
    const char *type;
    uint64_t count, small; /* memory far less than the data */
};
static const struct shape shapes[] = {
    {"u32", 800000, 1000 * KB},
    {"f64", 400000, 1000 * KB},
    {"record:100,0,10", 40000, 1000 * KB},
    {"record:7,6,1", 400000, 1000 * KB},
    {"lines", 80000, 1000 * KB},
};

static void test_types(void **state)
{
    static const enum poise_sort_pattern patterns[] = {
        POISE_SORT_RANDOM, POISE_SORT_REVERSE, POISE_SORT_FEW, POISE_SORT_SKEW};
    unsigned ranks = 2;

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (size_t p = 0; p < 4; p++) {
            if (!in_share(i + p)) {
                continue;
            }
            const struct shape *shape = &shapes[i];
            struct poise_sort_options options =
                options_of(shape->type, 8 << 20);
            struct poise_sort_result result;

            assert_int_equal(
                poise_sort_generate(in_path, &options, patterns[p],
                                    p > 0 ? shape->count / 4 : shape->count, p),
                0);
            options.threads = 1 + p % 2;
            options.unique = p >= 2;
            result = check_sort(&options, ranks,
                                ranks * options.threads * shape->small);
            assert_true(result.scratch_bytes > 0 || p > 0);
            ranks = ranks == 4 ? 2 : ranks + 1;
        }
    }
}

/* Fewer items than ranks, and sizes around those of pages. */
static void test_sizes(void **state)
{
    static const uint64_t sizes[] = {0, 1, 2, 513, 65537};
    static const char *const types[] = {"u64", "record:9,1,8", "lines"};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t t = 0; t < 3; t++) {
            if (!in_share(i + t)) {
                continue;
            }
            struct poise_sort_options options = options_of(types[t], 16 << 20);

            assert_int_equal(poise_sort_generate(in_path, &options,
                                                 POISE_SORT_RANDOM, sizes[i],
                                                 7),
                             0);
            check_sort(&options, 3, 16 << 20);
            options.unique = true;
            check_sort(&options, 3, 8 << 20);
        }
    }
}

/* Lines without an end, and long ones, over the bounds of parts. */
static void test_lines(void **state)
{
    struct poise_sort_options options = options_of("lines", 16 << 20);
    struct poise_buf text = {0};
    int fd;

    (void)state;
    for (unsigned i = 0; i < 3000; i++) {
        uint64_t x = poise_hash_u64(i);

        poise_buf_printf(&text, "%llu", (unsigned long long)x % 1000);
        for (unsigned j = 0; i % 500 == 0 && j < 3000; j++) {
            poise_buf_puts(&text, "0123456789");
        }
        if (i < 2999) {
            poise_buf_putc(&text, '\n');
        }
    }
    fd = open(in_path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_int_equal(write(fd, text.data, text.len), text.len);
    close(fd);
    poise_buf_free(&text);
    check_sort(&options, 4, 16 << 20);
    options.unique = true;
    check_sort(&options, 5, 16 << 20);
}

/* Equal keys keep their order, whichever process read them: half of all
 * records have one key, which no process owns. */
static void test_stable(void **state)
{
    enum { COUNT = 250000 };
    struct poise_sort_options options = options_of("record:16,4,4", 16 << 20);
    uint32_t *records = calloc(COUNT, 16), *out;
    size_t len;
    int fd;

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        records[4 * i] = i;
        records[4 * i + 1] = i % 2 ? 77 : (uint32_t)(poise_hash_u64(i) % 1000);
    }
    fd = open(in_path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_int_equal(write(fd, records, (size_t)COUNT * 16), COUNT * 16);
    close(fd);
    free(records);
    check_sort(&options, 3, 3 * 1000 * KB);
    out = (uint32_t *)(void *)get_file(out_path, &len);
    for (size_t i = 1; i < len / 16; i++) {
        int order = memcmp(&out[4 * (i - 1) + 1], &out[4 * i + 1], 4);

        assert_true(order < 0 || (order == 0 && out[4 * (i - 1)] < out[4 * i]));
    }
    free(out);
    options.unique = true;
    check_sort(&options, 4, 4 * 1000 * KB);
}

/* ---- memory, traffic, nodes --------------------------------------------- */

/* Each process moves its share twice, and no bucket is much larger than the
 * mean, whatever the keys. */
static void test_traffic(void **state)
{
    (void)state;
    for (int p = POISE_SORT_RANDOM; p <= POISE_SORT_SKEW; p += 5) {
        struct poise_sort_options options = options_of("u64", 8 << 20);
        struct poise_sort_result result;
        struct trial trial = {.ranks = 2};
        uint64_t count = 1500000, bytes = 8 * count;

        options.threads = 1;
        assert_int_equal(poise_sort_generate(in_path, &options,
                                             (enum poise_sort_pattern)p, count,
                                             3),
                         0);
        check_sort(&options, 2, 8 << 20);
        result = sort_by(&trial, &options).result;
        assert_int_equal(result.splits, 0);
        assert_true(result.largest_bytes <= 2 * result.mean_bytes);
        assert_true(result.read_bytes < 2 * bytes + bytes / 2);
        assert_true(result.written_bytes < 2 * bytes + bytes / 8);
        assert_true(result.memory_bytes <= 8 << 20);
    }
}

/* Ranks of a node share its memory; other nodes have their own. */
static void test_nodes(void **state)
{
    struct poise_sort_options options = options_of("u64", 4 << 20);
    struct trial together = {.ranks = 4};
    struct trial apart = {.ranks = 4, .topology = "1x2x1"};

    (void)state;
    assert_int_equal(
        poise_sort_generate(in_path, &options, POISE_SORT_RANDOM, 100000, 1),
        0);
    assert_int_equal(sort_by(&together, &options).result.memory_bytes, 4 << 20);
    assert_int_equal(sort_by(&apart, &options).result.memory_bytes, 8 << 20);
}

/* ---- bad input and faults ----------------------------------------------- */

static void test_refused(void **state)
{
    struct poise_sort_options options = options_of("u64", 16 << 20);
    struct trial trial = {.ranks = 3};
    struct member member;

    (void)state;
    unlink(out_path);
    unlink(one_path);
    unlink(in_path);
    assert_int_equal(sort_by(&trial, &options).code, -ENOENT);
    assert_int_equal(
        poise_sort_generate(in_path, &options, POISE_SORT_RANDOM, 50000, 1), 0);
    options.memory_bytes = 60 * KB;
    member = sort_by(&trial, &options);
    assert_int_equal(member.code, -ENOMEM);
    assert_non_null(strstr(member.why, "for a process: at least"));
    assert_int_equal(files_in_folder(), 1);
}

/* Make call after call fail until there is none: all get the same, and nothing
 * is left. */
static void check_fault(enum poise_fault kind, int code, const char *type,
                        bool unique)
{
    struct poise_sort_options options = options_of(type, 16 << 20);
    struct trial trial = {.ranks = 3, .kind = kind, .fault = code, .k = 1};
    unsigned failed = 0;

    options.unique = unique;
    options.threads = 1;
    assert_int_equal(
        poise_sort_generate(in_path, &options, POISE_SORT_FEW, 12000, 1), 0);
    assert_int_equal(poise_sort_run(in_path, one_path, &options, NULL), 0);
    options.memory_bytes = 3 * 1000 * KB;
    while (trial.k > 0) {
        uint64_t k = trial.k;
        int result;

        unlink(out_path);
        result = sort_by(&trial, &options).code;
        assert_true(result == 0 || result == -code);
        failed += result != 0;
        /* What strikes when they agree that all went well leaves a whole
         * output. */
        if (result == 0 || access(out_path, F_OK) == 0) {
            check_same_files(out_path, one_path);
            assert_int_equal(unlink(out_path), 0);
        }
        assert_int_equal(files_in_folder(), 2);
        trial.k = trial.k > 0 ? k + 1 + k / 6 : 0;
    }
    assert_true(failed > 0);
}

static void test_faults(void **state)
{
    (void)state;
    check_fault(POISE_FAULT_READ, EIO, "record:100,0,10", false);
    check_fault(POISE_FAULT_WRITE, ENOSPC, "record:100,0,10", true);
    check_fault(POISE_FAULT_ALLOC, ENOMEM, "lines", true);
    check_fault(POISE_FAULT_SEND, EIO, "u64", false);
    check_fault(POISE_FAULT_RENAME, EIO, "u32", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),   cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_lines),   cmocka_unit_test(test_stable),
        cmocka_unit_test(test_traffic), cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_faults),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
