/*
 * The summary of a survey against a plain recursion over the same tree.
 */
#include "survey_common.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
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
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_names_only),
        cmocka_unit_test(test_vanished),
        cmocka_unit_test(test_wrong_use),
    };
    return cmocka_run_group_tests_name("walk_survey", tests, survey_set_up,
                                       survey_tear_down);
}
