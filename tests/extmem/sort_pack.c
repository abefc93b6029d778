/* Scratch files whose blocks are compressed: by Zstandard, by programs; scratch
 * blocks in the space of the output. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extmem/file/pack.h"
#include "extmem/sort/internal.h"
#include "folder.h"

#include <poise/core.h>
#include <poise/sort.h>

#define KB (UINT64_C(1) << 10)
enum { BLOCK = 256 << 10 };

/* Words that repeat. */
static void fill_text(char *data, size_t len)
{
    uint64_t x = 1;

    for (size_t i = 0; i < len; i++) {
        x = i % 8 == 0 ? x * 6364136223846793005u + 1442695040888963407u : x;
        data[i] = (char)('a' + (x >> 60) + i % 8);
    }
}

static void fill_noise(char *data, size_t len)
{
    uint64_t x = 1;

    for (size_t i = 0; i < len; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        data[i] = (char)(x >> 56);
    }
}

static void check_packing(struct extmem_packing packing)
{
    static const size_t sizes[] = {1, 4096, 100001, BLOCK};
    char *data = malloc(BLOCK), *packed = malloc(BLOCK), *back = malloc(BLOCK);
    struct extmem_packer *packer;

    packing.block = BLOCK;
    assert_int_equal(extmem_packer_open(&packing, &packer), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t len = sizes[i];
        ssize_t n;

        fill_text(data, len);
        n = extmem_pack(packer, data, len, packed, BLOCK);
        assert_true(n > 0 && (len < 4096 || (size_t)n < len));
        memset(back, 1, len);
        assert_int_equal(extmem_unpack(packer, packed, (size_t)n, back, len),
                         0);
        assert_memory_equal(data, back, len);
        if (len > 1) {
            assert_int_equal(
                extmem_unpack(packer, packed, (size_t)n, back, len - 1),
                -EBADMSG);
        }
        fill_noise(data, len);
        assert_int_equal(extmem_pack(packer, data, len, packed, len * 3 / 4),
                         0);
    }
    extmem_packer_close(packer);
    free(data);
    free(packed);
    free(back);
}

static void test_blocks(void **state)
{
    (void)state;
    check_packing((struct extmem_packing){.level = 1});
    check_packing((struct extmem_packing){.level = -3});
    check_packing((struct extmem_packing){.program = "gzip"});
}

/* What a packer takes is what the plan of memory counts for it. (Sanitizers
 * have a malloc of their own, which says nothing.) */
static void test_memory(void **state)
{
    (void)state;
    for (size_t block = 16 << 10; block <= 1 << 20; block *= 4) {
        const struct extmem_packing packing = {.level = 1, .block = block};
        char *data = malloc(block), *packed = malloc(block);
        struct mallinfo2 before = mallinfo2(), after;
        struct extmem_packer *packer;
        ssize_t n;

        fill_text(data, block);
        assert_int_equal(extmem_packer_open(&packing, &packer), 0);
        n = extmem_pack(packer, data, block, packed, block);
        assert_true(n > 0);
        assert_int_equal(extmem_unpack(packer, packed, (size_t)n, data, block),
                         0);
        after = mallinfo2();
        assert_true(after.uordblks + after.hblkhd <=
                    before.uordblks + before.hblkhd +
                        extmem_packer_bytes(&packing));
        extmem_packer_close(packer);
        free(data);
        free(packed);
    }
}

static void test_programs(void **state)
{
    static const struct {
        const char *program;
        int code;
        const char *says;
    } programs[] = {
        {"/no/such/program", -ENOENT, "run"},
        {"false", -EIO, "compress scratch files by"},
        {"cat", 0, NULL}, /* gains nothing */
    };
    char data[8192], packed[8192];

    (void)state;
    fill_text(data, sizeof data);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const struct extmem_packing packing = {.program = programs[i].program,
                                               .block = sizeof data};
        struct extmem_packer *packer;

        assert_int_equal(extmem_packer_open(&packing, &packer), 0);
        assert_int_equal(
            extmem_pack(packer, data, sizeof data, packed, sizeof data - 1),
            programs[i].code);
        if (programs[i].says) {
            assert_string_equal(poise_error_last()->doing, programs[i].says);
        }
        extmem_packer_close(packer);
    }
}

/* A block that is not what it was is found, whatever of it changed. */
static void test_damage(void **state)
{
    char data[4096];
    struct sort_span span = {.bytes = sizeof data};

    (void)state;
    fill_noise(data, sizeof data);
    assert_int_equal(sort_span_check(&span, data), 0);
    span.check = sort_check_of(data, sizeof data);
    assert_int_equal(sort_span_check(&span, data), 0);
    for (size_t at = 0; at < sizeof data; at += 97) {
        data[at] ^= 1;
        assert_int_equal(sort_span_check(&span, data), -EBADMSG);
        data[at] ^= 1;
    }
    assert_int_equal(sort_span_check(&span, data), 0);
}

/* ---- sorts --------------------------------------------------------------- */

static struct poise_sort_options options_of(const char *type, uint64_t memory)
{
    struct poise_sort_options options = {.memory_bytes = memory, .threads = 2};

    assert_int_equal(poise_sort_type_parse(type, NULL, &options.type), 0);
    return options;
}

/* The same bytes, with and without, of which less lie on the disk; and in two
 * rounds. */
static void test_sorts(void **state)
{
    static const struct {
        const char *type, *program;
        enum poise_sort_pattern pattern;
        uint64_t count, memory;
    } sorts[] = {
        {"lines", NULL, POISE_SORT_RANDOM, 60000, 4096 * KB},
        {"lines", NULL, POISE_SORT_SKEW, 60000, 4096 * KB},
        {"record:100,0,10", NULL, POISE_SORT_RANDOM, 40000, 4096 * KB},
        {"lines", "gzip", POISE_SORT_RANDOM, 60000, 3072 * KB},
    };

    (void)state;
    for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++) {
        struct poise_sort_options options =
            options_of(sorts[i].type, sorts[i].memory);
        struct poise_sort_result plain, packed;

        assert_int_equal(poise_sort_generate(in_path, &options,
                                             sorts[i].pattern, sorts[i].count,
                                             1),
                         0);
        options.pack = POISE_SORT_PACK_NEVER;
        assert_int_equal(poise_sort_run(in_path, one_path, &options, &plain),
                         0);
        assert_true(plain.scratch_bytes > 0);
        assert_int_equal(plain.packed_bytes, 0);
        options.pack = POISE_SORT_PACK_ALWAYS;
        options.pack_program = sorts[i].program;
        assert_int_equal(poise_sort_run(in_path, out_path, &options, &packed),
                         0);
        assert_true(packed.packed_bytes > 0);
        assert_true(packed.packed_bytes < packed.unpacked_bytes * 3 / 4);
        assert_true(packed.scratch_bytes < plain.scratch_bytes);
        check_same_files(one_path, out_path);
    }
}

/* Lines that are alike as far as a sample looks make a bucket too large, which
 * is parted once more: its packed blocks are unpacked first. */
static void test_parted(void **state)
{
    enum { LINES = 120, LONG = 20000 };
    struct poise_sort_options options = options_of("lines", 2048 * KB);
    struct poise_sort_result result;
    struct poise_buf text = {0};

    (void)state;
    options.threads = 1;
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
    options.pack = POISE_SORT_PACK_NEVER;
    assert_int_equal(poise_sort_run(in_path, one_path, &options, NULL), 0);
    options.pack = POISE_SORT_PACK_ALWAYS;
    assert_int_equal(poise_sort_run(in_path, out_path, &options, &result), 0);
    assert_true(result.splits > 0);
    assert_true(result.packed_bytes > 0);
    check_same_files(one_path, out_path);
}

/* Each call fails once; nothing is left. */
static void test_faults(void **state)
{
    static const struct {
        enum poise_fault kind;
        int code;
    } faults[] = {{POISE_FAULT_READ, EIO},
                  {POISE_FAULT_WRITE, ENOSPC},
                  {POISE_FAULT_ALLOC, ENOMEM}};
    struct poise_sort_options options = options_of("lines", 2048 * KB);

    (void)state;
    options.pack = POISE_SORT_PACK_ALWAYS;
    assert_int_equal(
        poise_sort_generate(in_path, &options, POISE_SORT_RANDOM, 40000, 1), 0);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        int code = -1;

        for (uint64_t k = 1; code != 0; k += 1 + k / 4) {
            unlink(out_path);
            assert_true(k < 100000);
            poise_fault_arm(faults[i].kind, k, faults[i].code, false);
            code = poise_sort_run(in_path, out_path, &options, NULL);
            poise_fault_arm(faults[i].kind, 0, 0, false);
            if (code != 0) {
                assert_int_equal(code, -faults[i].code);
                assert_int_equal(access(out_path, F_OK), -1);
            }
        }
    }
}

/* ---- in the space of the output ------------------------------------------ */

/* Records of which many in a row have one key: a sample knows little of them.
 */
static uint64_t make_clumps(uint64_t seed, uint32_t keys)
{
    enum { CLUMPS = 250, EACH = 48, RECORD = 64 };
    struct poise_rng rng = {0};
    FILE *file = fopen(in_path, "wb");
    uint64_t number = 0;

    assert_non_null(file);
    poise_rng_seed(&rng, seed);
    for (int i = 0; i < CLUMPS; i++) {
        uint64_t key = poise_rng_below(&rng, keys);

        for (int j = 0; j < EACH; j++) {
            uint64_t record[RECORD / 8] = {key, number++};

            assert_int_equal(fwrite(record, sizeof record, 1, file), 1);
        }
    }
    assert_int_equal(fclose(file), 0);
    return number;
}

/* Scratch blocks lie where the output is written, also where the sample did not
 * tell where that would be. */
static void test_in_output(void **state)
{
    uint64_t moved = 0;

    (void)state;
    for (unsigned i = 0; i < 48; i++) {
        struct poise_sort_options options =
            options_of("record:64", (400 + i % 4 * 100) * KB);
        uint64_t count = make_clumps(i, i % 3 == 0 ? 4 : 1u << 30);
        struct poise_sort_result result;
        struct poise_sort_report before, after;
        unsigned files;

        assert_int_equal(
            poise_sort_type_parse("record:64", "0:u64", &options.type), 0);
        options.threads = i % 3 + 1;
        options.disk.engine = i % 7 == 0 ? POISE_DISK_THREADS : POISE_DISK_AUTO;
        options.disk.buffered = i % 11 == 0;
        unlink(out_path);
        files = files_in_folder();
        assert_int_equal(poise_sort_check(in_path, &options, &before), 0);
        assert_int_equal(poise_sort_run(in_path, out_path, &options, &result),
                         0);
        assert_int_equal(poise_sort_check(out_path, &options, &after), 0);
        assert_true(after.sorted);
        assert_int_equal(after.items, count);
        assert_int_equal(after.checksum, before.checksum);
        assert_true(result.in_output);
        assert_true(result.scratch_bytes > 0);
        assert_int_equal(files_in_folder(), files + 1);
        moved += result.moved_bytes;
    }
    assert_true(moved > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),   cmocka_unit_test(test_memory),
        cmocka_unit_test(test_programs), cmocka_unit_test(test_sorts),
        cmocka_unit_test(test_parted),   cmocka_unit_test(test_faults),
        cmocka_unit_test(test_damage),   cmocka_unit_test(test_in_output),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
