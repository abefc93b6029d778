/*
 * Inventories: every format, rows at their limits, damaged files; and the sets
 * that a survey spills.
 */
#include "../share.h"
#include "survey_common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_inventory(void **state)
{
    (void)state;
    char output[TEMPORARY_MORE + 64];
    static const int ranks[] = {0, 1, 3, 4};
    snprintf(output, sizeof output, "%s/inventory", survey_place);
    for (int format = POISE_WALK_SQLITE; format <= POISE_WALK_BINARY;
         format++) {
        for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
            if (!in_share((size_t)format + i)) {
                continue;
            }
            struct poise_walk_survey_options options =
                survey_options(1 + i % 2);
            struct poise_walk_summary summary;
            options.output = output;
            options.format = (enum poise_walk_format)format;
            options.now_ns = poise_clock_wall_ns();
            assert_int_equal(survey_run(ranks[i], &options, &summary), 0);
            survey_check(&summary, options.now_ns);
            poise_walk_summary_free(&summary);
            survey_check_inventory(options.format, output);
            survey_check_litter("inventory");
        }
    }
    unlink(output);
}

static int drop_row(const struct walk_row *row, void *arg)
{
    (void)row;
    ++*(size_t *)arg;
    return 0;
}

static void test_damage(void **state)
{
    (void)state;
    char output[TEMPORARY_MORE + 64];
    static const char *roots[1];
    char root[TEMPORARY_MORE + 64];
    size_t len, rows = 0;
    snprintf(output, sizeof output, "%s/inventory", survey_place);
    snprintf(root, sizeof root, "%s/dir7", survey_tree);
    struct poise_walk_survey_options options = survey_options(1);
    struct poise_walk_summary summary;
    roots[0] = root;
    options.walk.roots = roots;
    options.output = output;
    options.format = POISE_WALK_BINARY;
    assert_int_equal(survey_run(0, &options, &summary), 0);
    poise_walk_summary_free(&summary);
    assert_int_equal(walk_inventory_read(output, drop_row, &rows), 0);
    assert_true(rows > 5);
    char *data = survey_slurp(output, &len);
    for (size_t i = 0; i < len; i++) {
        int fd = open(output, O_WRONLY | O_CLOEXEC);
        char bad = data[i] ^ (char)(1 << i % 8);
        assert_int_equal(pwrite(fd, &bad, 1, (off_t)i), 1);
        assert_true(walk_inventory_read(output, drop_row, &rows) < 0);
        assert_int_equal(pwrite(fd, &data[i], 1, (off_t)i), 1);
        close(fd);
    }
    for (size_t i = len; i-- > 0;) {
        assert_int_equal(truncate(output, (off_t)i), 0);
        assert_true(walk_inventory_read(output, drop_row, &rows) < 0);
    }
    free(data);
    unlink(output);
}

/* Rows at the limits of their fields. */
static void test_rows(void **state)
{
    (void)state;
    struct walk_row_state in = {0}, out = {0};
    struct poise_buf coded = {0};
    const struct walk_row rows[] = {
        {.name = "", .mode = S_IFREG, .size_bytes = UINT64_MAX},
        {.dir = UINT64_MAX,
         .ino = UINT64_MAX,
         .dev = UINT64_MAX,
         .uid = UINT32_MAX - 1,
         .mtime = INT64_MIN,
         .ctime = INT64_MAX,
         .mtime_ns = 999999999,
         .atime = INT64_MAX,
         .atime_ns = 999999999,
         .name = "a",
         .name_len = 1},
        {.id = 1, .mtime = INT64_MAX, .ctime = INT64_MIN, .nlink = UINT64_MAX},
        {.mtime = INT64_C(16725225600), .blocks = UINT64_MAX, .name = "ab"},
    };
    size_t count = sizeof rows / sizeof *rows;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(walk_row_encode(&out, &rows[i], &coded), 0);
    }
    struct poise_reader reader = poise_reader_of(coded.data, coded.len);
    for (size_t i = 0; i < count; i++) {
        struct walk_row row;
        assert_int_equal(walk_row_decode(&in, &reader, &row), 0);
        assert_memory_equal(row.name, rows[i].name, row.name_len);
        row.name = rows[i].name;
        assert_int_equal(row.name_len, rows[i].name_len);
        assert_memory_equal(&row, &rows[i], sizeof row);
    }
    assert_int_equal(poise_reader_left(&reader), 0);
    poise_buf_free(&coded);
    walk_row_state_free(&in);
    walk_row_state_free(&out);
}

/* ---- versions ----------------------------------------------------------- */

/* A binary inventory as version 1 wrote it, with one row of a file. */
static const unsigned char old_inventory[] = {
    0x50, 0x4f, 0x49, 0x53, 0x45, 0x49, 0x4e, 0x56, 0x01, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x20, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,
    0x72, 0xf2, 0x79, 0x43, 0xa8, 0x80, 0x66, 0x80, 0x55, 0x00, 0x01, 0x66,
    0xd0, 0x81, 0xc7, 0x0a, 0x80, 0xfc, 0x03, 0xa4, 0x83, 0x02, 0x88, 0x27,
    0x80, 0xa8, 0xd6, 0xb9, 0x07, 0x00, 0x8a, 0xa8, 0xc5, 0xf6, 0x05, 0xfc,
    0xa5, 0xfe, 0xa9, 0x03, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0xce, 0x6b, 0xa8, 0x10, 0x5e, 0x1d, 0x86, 0x72, 0x01, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0xa0, 0xc7, 0x1a, 0x4d, 0x3d, 0x0f, 0xec, 0xeb};

static int keep_one(const struct walk_row *row, void *arg)
{
    *(struct walk_row *)arg = *row;
    return 0;
}

static void test_versions(void **state)
{
    (void)state;
    char path[TEMPORARY_MORE + 64];
    struct walk_row row;
    snprintf(path, sizeof path, "%s/old", survey_place);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, old_inventory, sizeof old_inventory),
                     sizeof old_inventory);
    assert_int_equal(walk_inventory_read(path, keep_one, &row), 0);
    assert_int_equal(row.size_bytes, 5000);
    assert_int_equal(row.mtime, 1000000000);
    assert_int_equal(row.atime, row.mtime);
    assert_int_equal(row.atime_ns, row.mtime_ns);
    assert_int_equal(pwrite(fd, "\3", 1, 8), 1);
    assert_int_equal(walk_inventory_read(path, keep_one, &row), -EPROTO);
    assert_int_equal(pwrite(fd, "\0", 1, 8), 1);
    assert_int_equal(walk_inventory_read(path, keep_one, &row), -EPROTO);
    close(fd);
    unlink(path);
}

/* ---- sets --------------------------------------------------------------- */

struct sums {
    uint64_t seen[5000];
    uint64_t last;
};

static int count_record(const uint64_t *record, void *arg)
{
    struct sums *sums = arg;
    assert_true(record[0] > sums->last || record[0] == 0);
    sums->last = record[0];
    sums->seen[record[0]] += record[1];
    return 0;
}

static void test_set(void **state)
{
    (void)state;
    char path[TEMPORARY_MORE + 64], other[TEMPORARY_MORE + 64];
    struct poise_rng rng;
    struct walk_set set, loaded;
    struct sums expected = {0}, got = {0};
    struct poise_buf saved = {0};
    snprintf(path, sizeof path, "%s/set", survey_place);
    snprintf(other, sizeof other, "%s/set2", survey_place);
    poise_rng_seed(&rng, 5);
    walk_set_init(&set, 2, 1, true, 2048, path);
    for (int i = 0; i < 40000; i++) {
        uint64_t record[2] = {poise_rng_below(&rng, 5000),
                              1 + poise_rng_below(&rng, 9)};
        assert_int_equal(walk_set_add(&set, record), 0);
        expected.seen[record[0]] += record[1];
    }
    assert_true(set.run_count > 32); /* more than are merged at once */
    assert_int_equal(walk_set_save(&set, &saved), 0);
    walk_set_init(&loaded, 2, 1, true, 4096, other);
    struct poise_reader in = poise_reader_of(saved.data, saved.len);
    assert_int_equal(walk_set_load(&loaded, &in), 0);
    assert_int_equal(walk_set_each(&set, count_record, &got), 0);
    assert_memory_equal(got.seen, expected.seen, sizeof got.seen);
    memset(&got, 0, sizeof got);
    assert_int_equal(walk_set_each(&loaded, count_record, &got), 0);
    assert_memory_equal(got.seen, expected.seen, sizeof got.seen);
    walk_set_free(&set);
    walk_set_free(&loaded);
    /* A damaged run is noticed. */
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "?", 1, 100), 1);
    close(fd);
    in = poise_reader_of(saved.data, saved.len);
    unlink(other);
    walk_set_init(&loaded, 2, 1, true, 4096, other);
    assert_int_equal(walk_set_load(&loaded, &in), 0);
    assert_int_equal(walk_set_each(&loaded, count_record, &got), -EBADMSG);
    walk_set_free(&loaded);
    poise_buf_free(&saved);
    unlink(path);
    unlink(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),       cmocka_unit_test(test_rows),
        cmocka_unit_test(test_inventory), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests_name("walk_inventory", tests, survey_set_up,
                                       survey_tear_down);
}
