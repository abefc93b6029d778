/*
 * Surveys that are killed, interrupted and resumed, or meet faults: nothing
 * lost, nothing twice, nothing left lying about.
 */
#include "../share.h"
#include "survey_common.h"

#include <poise/checkpoint.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- kills -------------------------------------------------------------- */

static void first_run(const char *checkpoint, const char *output,
                      enum poise_walk_format format, int64_t now_ns, int ranks)
{
    struct poise_walk_survey_options options = survey_options(2);
    struct poise_walk_summary summary;
    options.output = output;
    options.format = format;
    options.now_ns = now_ns;
    options.links_bytes = 2560;
    options.walk.pool.checkpoint = checkpoint;
    options.walk.pool.checkpoint_ns = 200 * 1000;
    _exit(survey_run(ranks, &options, &summary) == 0 ? 0 : 1);
}

/* What is reported as left is all that is left, and can be removed; none of it
 * is of the job that is resumed. */
static void check_leftovers(const char *checkpoint, const char *output,
                            bool resumed)
{
    struct poise_walk_survey_options options = {.output = output};
    struct poise_buf names = {0};
    options.walk.pool.checkpoint = checkpoint;
    options.walk.pool.resume = resumed ? checkpoint : NULL;
    ssize_t count = poise_walk_survey_leftovers(&options, &names);
    const char *name = names.data;
    assert_true(count >= 0 && (count == 0 || !resumed));
    for (ssize_t i = 0; i < count; i++, name += strlen(name) + 1) {
        assert_int_equal(unlink(name), 0);
    }
    assert_int_equal(name - names.data, names.len);
    if (resumed) {
        options.walk.pool.resume = NULL;
        assert_true(poise_walk_survey_leftovers(&options, &names) > 0);
    } else {
        poise_pool_checkpoint_remove(checkpoint); /* no record: what is left */
        survey_check_litter("inventory");
    }
    poise_buf_free(&names);
}

/* Go on from the checkpoint if there is one; else there is nothing but
 * litter to be removed by the user. */
static bool second_run(const char *checkpoint, const char *output,
                       enum poise_walk_format format, int64_t now_ns, int ranks)
{
    struct poise_walk_survey_options options = survey_options(1);
    struct poise_walk_summary summary;
    struct poise_buf memory = {0};
    char command[2 * TEMPORARY_MORE];
    bool resumed = access(checkpoint, F_OK) == 0;
    options.links_bytes = 2560;
    check_leftovers(checkpoint, output, resumed);
    if (resumed) {
        options.walk.root_count = 0;
        assert_int_equal(
            poise_walk_survey_resume(checkpoint, &options, &memory), 0);
        assert_string_equal(options.output, output);
        assert_int_equal(options.format, format);
        assert_int_equal(survey_run(ranks, &options, &summary), 0);
        survey_check(&summary, now_ns);
        poise_walk_summary_free(&summary);
        survey_check_inventory(format, output);
        survey_check_litter("inventory");
    }
    poise_buf_free(&memory);
    snprintf(command, sizeof command, "rm -rf %s/inventory* %s/state*",
             survey_place, survey_place);
    assert_int_equal(system(command), 0);
    return resumed;
}

/* The process dies at the k-th call of a kind. */
static void test_crash(void **state)
{
    (void)state;
    static const char *const kinds[] = {"write", "sync", "rename"};
    char checkpoint[TEMPORARY_MORE + 64], output[TEMPORARY_MORE];
    int resumed = 0, tried = 0;
    const char *soak = getenv("POISE_TEST_SOAK");
    uint64_t most = soak ? 400 : 18;
    snprintf(checkpoint, sizeof checkpoint, "%s/state", survey_place);
    snprintf(output, sizeof output, "%s/inventory", survey_place);
    for (uint64_t k = 1; k <= most; k++) {
        /* Kinds and formats change at other paces than the share. */
        if (!in_share(k + k / 3)) {
            continue;
        }
        int64_t now_ns = poise_clock_wall_ns();
        enum poise_walk_format format = (enum poise_walk_format)(k / 3 % 4);
        pid_t child = fork();
        if (child == 0) {
            char fault[40];
            snprintf(fault, sizeof fault, "%s:%d:KILL", kinds[k % 3],
                     (int)(1 + k * 2 / 3));
            if (poise_fault_parse(fault) < 0) {
                _exit(2);
            }
            first_run(checkpoint, output, format, now_ns, (int)(k % 2 * 2));
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
        }
        resumed += second_run(checkpoint, output, format, now_ns, (int)(k % 4));
        tried++;
    }
    assert_true(resumed > 0);
    print_message("%d of %d resumed\n", resumed, tried);
}

/* The process is killed from outside, at any moment. */
static void test_kill(void **state)
{
    (void)state;
    char checkpoint[TEMPORARY_MORE + 64], output[TEMPORARY_MORE];
    struct poise_rng rng;
    int rounds = getenv("POISE_TEST_SOAK") ? 300 : 6;
    snprintf(checkpoint, sizeof checkpoint, "%s/state", survey_place);
    snprintf(output, sizeof output, "%s/inventory", survey_place);
    poise_rng_seed(&rng, poise_clock_ns());
    for (int i = 0; i < rounds; i++) {
        if (!in_share((size_t)i)) {
            continue;
        }
        int64_t now_ns = poise_clock_wall_ns();
        enum poise_walk_format format = (enum poise_walk_format)(i % 4);
        pid_t child = fork();
        if (child == 0) {
            first_run(checkpoint, output, format, now_ns, i % 3);
        }
        poise_sleep_ns(poise_rng_below(&rng, 60 * 1000 * 1000));
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        second_run(checkpoint, output, format, now_ns, (i + 1) % 5);
    }
}

/* Interrupted with a last checkpoint, on some ranks; resumed on others. */
static void test_interrupt(void **state)
{
    (void)state;
    static const int ranks[][2] = {{0, 0}, {2, 3}, {3, 0}};
    char checkpoint[TEMPORARY_MORE + 64], output[TEMPORARY_MORE];
    snprintf(checkpoint, sizeof checkpoint, "%s/state", survey_place);
    snprintf(output, sizeof output, "%s/inventory", survey_place);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        static const volatile int interrupt = SIGTERM;
        struct poise_walk_survey_options options = survey_options(1);
        struct poise_walk_summary summary;
        options.output = output;
        options.format = POISE_WALK_SQLITE;
        options.now_ns = poise_clock_wall_ns();
        options.walk.pool.checkpoint = checkpoint;
        options.walk.pool.interrupt = &interrupt;
        /* It may all be done before anybody looks at the flag. */
        int code = survey_run(ranks[i][0], &options, &summary);
        assert_true(code == -EINTR || code == 0);
        assert_true(summary.entries <= survey_truth.count);
        poise_walk_summary_free(&summary);
        if (code == 0) {
            survey_check_inventory(options.format, output);
            unlink(output);
            continue;
        }
        assert_int_equal(access(output, F_OK), -1);
        assert_true(second_run(checkpoint, output, options.format,
                               options.now_ns, ranks[i][1]));
    }
}

/* An inventory under a relative name: resumed only where that leads to it. */
static void test_elsewhere(void **state)
{
    (void)state;
    static const volatile int interrupt = SIGTERM;
    char checkpoint[TEMPORARY_MORE + 64], before[4096];
    struct poise_walk_survey_options options = survey_options(1);
    struct poise_walk_summary summary;
    struct poise_buf memory = {0};
    snprintf(checkpoint, sizeof checkpoint, "%s/state", survey_place);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(survey_place), 0);
    options.output = "inventory";
    options.now_ns = poise_clock_wall_ns();
    options.walk.pool.checkpoint = checkpoint;
    options.walk.pool.interrupt = &interrupt;
    /* Two ranks look at the flag every tenth of a millisecond. */
    assert_int_equal(survey_run(2, &options, &summary), -EINTR);
    poise_walk_summary_free(&summary);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(poise_walk_survey_resume(checkpoint, &options, &memory),
                     -EINVAL);
    assert_non_null(strstr(poise_error_last()->why, survey_place));
    assert_int_equal(chdir(survey_place), 0);
    assert_true(second_run(checkpoint, "inventory", POISE_WALK_SQLITE,
                           options.now_ns, 3));
    assert_int_equal(chdir(before), 0);
    poise_buf_free(&memory);
}

/* ---- faults ------------------------------------------------------------- */

static bool fails(enum poise_fault kind, uint64_t k, int code,
                  enum poise_walk_format format, const char *output)
{
    struct poise_walk_survey_options options = survey_options(1);
    struct poise_walk_summary summary;
    options.output = output;
    options.format = format;
    options.links_bytes = 2560;
    poise_fault_arm(kind, k, code, false);
    int got = survey_run(0, &options, &summary);
    bool reached = poise_fault_calls(kind) >= k;
    poise_fault_arm(kind, 0, 0, false);
    if (reached && got != 0) {
        assert_int_equal(got, -code);
        assert_int_equal(access(output, F_OK), -1);
    } else {
        assert_int_equal(got, 0);
        unlink(output);
    }
    poise_walk_summary_free(&summary);
    survey_check_litter(NULL);
    return reached;
}

static void test_faults(void **state)
{
    (void)state;
    char output[TEMPORARY_MORE + 64];
    uint64_t most = getenv("POISE_TEST_SOAK") ? 60 : 12;
    snprintf(output, sizeof output, "%s/inventory", survey_place);
    for (int format = POISE_WALK_SQLITE; format <= POISE_WALK_BINARY;
         format++) {
        enum poise_walk_format f = (enum poise_walk_format)format;
        for (uint64_t k = 1; k < most; k++) {
            fails(POISE_FAULT_WRITE, k, ENOSPC, f, output);
            fails(POISE_FAULT_ALLOC, k * k, ENOMEM, f, output);
        }
        assert_true(fails(POISE_FAULT_WRITE, 1, ENOSPC, f, output));
        assert_true(fails(POISE_FAULT_SYNC, 1, EIO, f, output));
        assert_true(fails(POISE_FAULT_RENAME, 1, EIO, f, output));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),    cmocka_unit_test(test_crash),
        cmocka_unit_test(test_kill),      cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_elsewhere),
    };
    return cmocka_run_group_tests_name("walk_survey_crash", tests,
                                       survey_set_up, survey_tear_down);
}
