/*
 * The summary of a survey against a plain recursion over the same tree.
 */
#include "survey_common.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_summary(void **state)
{
    (void)state;
    static const int ranks[] = {0, 0, 1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        struct poise_walk_survey_options options = survey_options(1 + i % 3);
        struct poise_walk_summary summary;
        options.now_ns = poise_clock_wall_ns();
        options.links_bytes = i % 2 ? 2560 : 0; /* the smallest set: spills */
        assert_int_equal(survey_run(ranks[i], &options, &summary), 0);
        survey_check(&summary, options.now_ns);
        poise_walk_summary_free(&summary);
    }
}

/* Where an entry counts, below the tree and eight levels deep at most. */
static void folder_of(const struct item *item, char *out, size_t size)
{
    const char *path = item->path + strlen(survey_tree);
    path += *path == '/';
    snprintf(out, size, "%s", path);
    char *end = out + strlen(out);
    if (!S_ISDIR(item->st.st_mode)) {
        char *slash = strrchr(out, '/');
        end = slash ? slash : out;
        *end = '\0';
    }
    int names = 0;
    for (char *at = out; at < end; at++) {
        names += *at == '/';
        if (names == 8) {
            *at = '\0';
            break;
        }
    }
}

static size_t linked_entries(void)
{
    size_t count = 0;
    for (size_t i = 0; i < survey_truth.count; i++) {
        const struct stat *st = &survey_truth.items[i].st;
        count += st->st_nlink > 1 && !S_ISDIR(st->st_mode);
    }
    return count;
}

static void check_folders(const struct poise_walk_summary *got)
{
    size_t found = 0;
    char path[PATH_MAX];
    for (size_t i = 0; i < got->folder_count; i++) {
        const struct poise_walk_folder *row = &got->folders[i];
        uint64_t entries = 0, bytes = 0, ages = 0;
        for (size_t k = 0; k < survey_truth.count; k++) {
            const struct item *item = &survey_truth.items[k];
            bool linked = item->st.st_nlink > 1 && !S_ISDIR(item->st.st_mode);
            folder_of(item, path, sizeof path);
            if (!linked && item->st.st_uid == row->uid &&
                strcmp(path, row->path) == 0) {
                entries++;
                bytes += (uint64_t)item->st.st_blocks * 512;
            }
        }
        for (int k = 0; k < POISE_WALK_FOLDER_AGES; k++) {
            ages += row->age_bytes[k];
        }
        assert_int_equal(row->entries, entries);
        assert_int_equal(row->allocated_bytes, bytes);
        assert_int_equal(ages, bytes);
        found += entries;
    }
    assert_true(found > 0);
    assert_int_equal(found + linked_entries(), survey_truth.count);
}

static void test_folders(void **state)
{
    (void)state;
    static const int ranks[] = {0, 1, 3};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        struct poise_walk_survey_options options = survey_options(1 + i);
        struct poise_walk_summary summary;
        options.folders = true;
        assert_int_equal(survey_run(ranks[i], &options, &summary), 0);
        check_folders(&summary);
        poise_walk_summary_free(&summary);
    }
}

/* Whoever counted which part: too many folders give up as many levels. */
static void test_many_folders(void **state)
{
    (void)state;
    enum { WIDE = 40, PARTS = 3 };
    struct poise_walk_folder *rows[2];
    size_t counts[2];
    for (int way = 0; way < 2; way++) {
        struct walk_folders parts[PARTS] = {{0}};
        for (int i = 0; i < WIDE * WIDE * WIDE; i++) {
            int n = way ? i : WIDE * WIDE * WIDE - 1 - i;
            char path[64];
            snprintf(path, sizeof path, "a%d/b%d/c%d", n / WIDE / WIDE,
                     n / WIDE % WIDE, n % WIDE);
            const struct poise_walk_folder row = {.path = path,
                                                  .path_len = strlen(path),
                                                  .entries = 1,
                                                  .allocated_bytes =
                                                      (uint64_t)n,
                                                  .age_bytes = {(uint64_t)n}};
            assert_int_equal(
                walk_folders_add(&parts[way ? i % PARTS : 0], &row), 0);
        }
        struct poise_buf saved = {0};
        assert_int_equal(walk_folders_save(&parts[1], &saved), 0);
        struct poise_reader in = poise_reader_of(saved.data, saved.len);
        assert_int_equal(walk_folders_load(&parts[0], &in), 0);
        assert_int_equal(walk_folders_move(&parts[0], &parts[2]), 0);
        walk_folders_free(&parts[1]);
        poise_buf_free(&saved);
        walk_folders_take(&parts[0], &rows[way], &counts[way]);
    }
    assert_int_equal(counts[0], WIDE * WIDE);
    assert_int_equal(counts[1], counts[0]);
    for (size_t i = 0; i < counts[0]; i++) {
        assert_string_equal(rows[0][i].path, rows[1][i].path);
        assert_int_equal(rows[0][i].entries, WIDE);
        assert_int_equal(rows[1][i].entries, WIDE);
        assert_int_equal(rows[0][i].allocated_bytes,
                         rows[1][i].allocated_bytes);
        free(rows[0][i].path);
        free(rows[1][i].path);
    }
    free(rows[0]);
    free(rows[1]);
}

static void test_names_only(void **state)
{
    (void)state;
    struct expected e = survey_expect(0);
    for (int ranks = 0; ranks <= 3; ranks += 3) {
        struct poise_walk_survey_options options = survey_options(2);
        struct poise_walk_summary summary;
        options.names_only = true;
        assert_int_equal(survey_run(ranks, &options, &summary), 0);
        assert_int_equal(summary.entries, survey_truth.count);
        assert_memory_equal(summary.types, e.sums.types, sizeof summary.types);
        assert_false(summary.with_metadata);
        poise_walk_summary_free(&summary);
    }
    free(e.sizes);
    free(e.widths);
}

/* An entry that is gone when it is looked at is an error, not the end. */
static void test_vanished(void **state)
{
    (void)state;
    for (uint64_t k = 2; k < 18; k++) {
        struct poise_walk_survey_options options = survey_options(1);
        struct poise_walk_summary summary;
        struct poise_walk_result result;
        tree_single_entries(k % 2);
        poise_fault_arm(POISE_FAULT_STAT, k, ENOENT, false);
        int code = poise_walk_survey(NULL, &options, &summary, &result);
        poise_fault_arm(POISE_FAULT_STAT, 0, 0, false);
        tree_single_entries(false);
        assert_int_equal(code, 0);
        assert_int_equal(result.errors, 1);
        assert_int_equal(summary.entries, result.entries);
        assert_true(summary.entries > 0 &&
                    summary.entries < survey_truth.count);
        poise_walk_result_free(&result);
        poise_walk_summary_free(&summary);
    }
}

static void test_wrong_use(void **state)
{
    (void)state;
    char file[TEMPORARY_MORE + 64];
    struct poise_walk_survey_options options = survey_options(1);
    struct poise_walk_summary summary;
    options.names_only = true;
    options.output = "nowhere";
    assert_int_equal(survey_run(0, &options, &summary), -EINVAL);
    options = survey_options(1);
    options.output = "/nonexistent/inventory";
    assert_int_equal(survey_run(2, &options, &summary), -ENOENT);
    assert_int_equal(survey_run(0, &options, &summary), -ENOENT);
    assert_non_null(strstr(poise_error_last()->what, "/nonexistent/"));
    snprintf(file, sizeof file, "%s/state", survey_place);
    int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "rubbish", 7), 7);
    close(fd);
    struct poise_buf memory = {0};
    assert_true(poise_walk_survey_resume(file, &options, &memory) < 0);
    poise_buf_free(&memory);
    unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summary),      cmocka_unit_test(test_folders),
        cmocka_unit_test(test_many_folders), cmocka_unit_test(test_names_only),
        cmocka_unit_test(test_vanished),     cmocka_unit_test(test_wrong_use),
    };
    return cmocka_run_group_tests_name("walk_survey", tests, survey_set_up,
                                       survey_tear_down);
}
