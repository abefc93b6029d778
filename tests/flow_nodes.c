/* Room flow: several nodes, each a process. */
#include "flow_common.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS UINT64_C(1000000)

static const struct {
    enum mix_pattern pattern;
    unsigned dims;
    int64_t side, versions;
    unsigned nodes;
} cases[] = {
    {MIX_STENCIL, 1, 1, 1, 1},  {MIX_STENCIL, 1, 7, 30, 2},
    {MIX_STENCIL, 2, 5, 20, 4}, {MIX_SWEEP, 2, 5, 10, 3},
    {MIX_FFT, 1, 16, 20, 4},    {MIX_TREE, 1, 16, 10, 3},
    {MIX_RANDOM, 1, 11, 20, 3}, {MIX_LEAPFROG, 1, 9, 20, 2},
    {MIX_DATA, 1, 8, 20, 3},    {MIX_STENCIL, 1, 2, 20, 5},
};

/* The same bytes, however many nodes there are; some have nothing to do. */
static void test_patterns(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct mix mix;
        struct poise_flow_options options = {.nodes = cases[c].nodes,
                                             .threads = 1 + c % 2,
                                             .window = 1 + c % 5,
                                             .report_ns = 5 * MS};
        struct poise_flow_stats stats;
        mix_init(&mix, cases[c].pattern, cases[c].dims, cases[c].side,
                 cases[c].versions);
        if (c % 3 == 1) {
            mix_second(&mix);
        }
        if (mix_run(&mix, &options, &stats) < 0) {
            fail_msg("case %zu: %s", c, mix_error());
        }
        uint64_t blocks = 0;
        for (unsigned n = 0; n < stats.node_count; n++) {
            blocks += stats.nodes[n].blocks - stats.nodes[n].redone;
        }
        assert_int_equal(stats.node_count, cases[c].nodes);
        assert_int_equal(blocks, stats.blocks);
        assert_int_equal(stats.deaths, 0);
        poise_flow_stats_free(&stats);
        mix_free(&mix);
    }
}

/* Chunks by hand, which change hands at a version. */
static void test_parts(void **state)
{
    (void)state;
    struct mix mix;
    struct poise_flow_options options = {.nodes = 2, .report_ns = 5 * MS};
    struct poise_flow_stats stats;
    struct poise_flow_part parts[4] = {
        {{.dims = 1, .versions = {0, 9}, .index = {{0, 3}}}, 0},
        {{.dims = 1, .versions = {0, 9}, .index = {{3, 8}}}, 1},
        {{.dims = 1, .versions = {9, 20}, .index = {{0, 5}}}, 1},
        {{.dims = 1, .versions = {9, 20}, .index = {{5, 8}}}, 0},
    };
    mix_init(&mix, MIX_STENCIL, 1, 8, 20);
    mix.files[0].parts = parts;
    mix.files[0].part_count = 4;
    if (mix_run(&mix, &options, &stats) < 0) {
        fail_msg("%s", mix_error());
    }
    assert_int_equal(stats.nodes[0].blocks, 9 * 3 + 11 * 3);
    assert_int_equal(stats.nodes[1].blocks, 9 * 5 + 11 * 5);
    assert_true(stats.nodes[0].fetched > 0);
    poise_flow_stats_free(&stats);
    mix_free(&mix);
}

/* A node that is four times as slow gets fewer blocks of later versions. */
static void test_adapt(void **state)
{
    (void)state;
    const double slow[3] = {1, 4, 1};
    for (int policy = 0; policy < 2; policy++) {
        struct mix mix;
        struct poise_flow_options options = {
            .nodes = 3,
            .window = 2,
            .report_ns = 5 * MS,
            .policy = (enum poise_flow_policy)policy};
        struct poise_flow_stats stats;
        mix_init(&mix, MIX_STENCIL, 1, 18, 40);
        mix.files[0].adapt = 10;
        mix.sleep_ns = MS;
        mix.slow = slow;
        if (mix_run(&mix, &options, &stats) < 0) {
            fail_msg("%s", mix_error());
        }
        assert_true(stats.rechunkings >= 1);
        if (policy == POISE_FLOW_BY_RATE) {
            assert_true(stats.nodes[1].blocks < 160);
        }
        poise_flow_stats_free(&stats);
        mix_free(&mix);
    }
}

/* ---- what goes wrong
 * --------------------------------------------------------------
 */

static int spoil_fails(struct mix *mix, struct poise_flow_task *task,
                       const struct poise_flow_address *block, uint64_t *value)
{
    (void)mix;
    (void)task;
    (void)value;
    return block->version == 5 && block->index[0] == 6 ? -EDOM : 0;
}

static int spoil_waits(struct mix *mix, struct poise_flow_task *task,
                       const struct poise_flow_address *block, uint64_t *value)
{
    struct poise_flow_address a = *block;
    struct poise_flow_view view;
    (void)mix;
    (void)value;
    if (block->version == 5) { /* everybody for what depends on it */
        a.version++;
        return poise_flow_read(task, &a, &view);
    }
    return 0;
}

static void test_errors(void **state)
{
    (void)state;
    struct mix mix;
    struct poise_flow_options options = {.nodes = 3, .report_ns = 5 * MS};
    mix_init(&mix, MIX_STENCIL, 1, 8, 20);
    mix.spoil = spoil_fails;
    assert_int_equal(mix_run(&mix, &options, NULL), -EDOM);
    assert_non_null(strstr(mix_error(), "compute block 'mix:5[6]'"));
    mix.spoil = spoil_waits;
    int code = mix_run(&mix, &options, NULL);
    assert_true(code == -EDEADLK || code == -ELOOP);
    mix_free(&mix);
}

/* Node 1 kills itself in the middle: the others do its part. */
static int spoil_dies(struct mix *mix, struct poise_flow_task *task,
                      const struct poise_flow_address *block, uint64_t *value)
{
    const int64_t *versions = mix->spoil_arg;
    (void)value;
    if (versions[poise_flow_node(task)] == block->version) {
        raise(SIGKILL);
    }
    return 0;
}

static void kill_at(enum mix_pattern pattern, const int64_t *versions,
                    unsigned replicate, unsigned deaths)
{
    struct mix mix;
    struct poise_flow_options options = {
        .nodes = 4, .replicate = replicate, .report_ns = 5 * MS};
    struct poise_flow_stats stats;
    mix_init(&mix, pattern, 1, 16, 30);
    mix.spoil = spoil_dies;
    mix.spoil_arg = (void *)(uintptr_t)versions;
    mix.sleep_ns = MS / 5;
    if (mix_run(&mix, &options, &stats) < 0) {
        fail_msg("%s", mix_error());
    }
    assert_int_equal(stats.deaths, deaths);
    poise_flow_stats_free(&stats);
    mix_free(&mix);
}

static void test_kill(void **state)
{
    (void)state;
    for (int64_t v = 0; v < 30; v += 7) {
        const int64_t one[4] = {-1, v, -1, -1};
        const int64_t two[4] = {-1, v, -1, 29 - v};
        for (unsigned replicate = 0; replicate <= 10; replicate += 5) {
            kill_at(MIX_STENCIL, one, replicate, 1);
            kill_at(MIX_LEAPFROG, two, replicate, 2);
        }
        kill_at(MIX_FFT, one, 4, 1);
    }
}

static void test_all_dead(void **state)
{
    (void)state;
    const int64_t all[3] = {3, 5, 7};
    struct mix mix;
    struct poise_flow_options options = {.nodes = 3, .report_ns = 5 * MS};
    mix_init(&mix, MIX_STENCIL, 1, 9, 20);
    mix.spoil = spoil_dies;
    mix.spoil_arg = (void *)(uintptr_t)all;
    assert_int_equal(mix_run(&mix, &options, NULL), -EPIPE);
    assert_non_null(strstr(mix_error(), "no other is left"));
    mix_free(&mix);
}

/* ---- faults by dice
 * -------------------------------------------------------------
 */

/** What a node does at a moment: shared by all processes of a run. */
struct fate {
    int64_t version[8];
    bool stops[8];    /**< it stops, else it dies */
    pid_t stopped[8]; /**< atomic: to be continued by the helper */
};

static int spoil_fate(struct mix *mix, struct poise_flow_task *task,
                      const struct poise_flow_address *block, uint64_t *value)
{
    struct fate *fate = mix->spoil_arg;
    unsigned node = poise_flow_node(task);
    (void)value;
    if (fate->version[node] != block->version) {
        return 0;
    }
    fate->version[node] = -1;
    if (fate->stops[node]) {
        __atomic_store_n(&fate->stopped[node], getpid(), __ATOMIC_RELEASE);
        raise(SIGSTOP);
    } else {
        raise(SIGKILL);
    }
    return 0;
}

/* A process that lets stopped nodes go on after a while. */
static pid_t helper_start(struct fate *fate, uint64_t after_ns)
{
    pid_t pid = fork();
    for (unsigned n = 0; pid == 0; n = (n + 1) % 8) {
        pid_t who = __atomic_exchange_n(&fate->stopped[n], 0, __ATOMIC_ACQ_REL);
        poise_sleep_ns(who ? after_ns : MS);
        if (who) {
            kill(who, SIGCONT);
        }
    }
    return pid;
}

static void run_fate(uint64_t seed, struct fate *fate)
{
    struct poise_rng rng;
    struct mix mix;
    struct poise_flow_stats stats;
    poise_rng_seed(&rng, seed);
    unsigned nodes = 3 + (unsigned)poise_rng_below(&rng, 4), fates = 0;
    struct poise_flow_options options = {
        .nodes = nodes,
        .threads = 1 + (unsigned)poise_rng_below(&rng, 2),
        .window = 1 + (unsigned)poise_rng_below(&rng, 5),
        .replicate = (unsigned)poise_rng_below(&rng, 8),
        .report_ns = 5 * MS,
        .lost_ns = 400 * MS};
    memset(fate, 0, sizeof(*fate));
    for (unsigned n = 0; n < 8; n++) {
        /* One is left in any case. */
        bool hit = n > 0 && n < nodes && poise_rng_below(&rng, 2) == 0;
        fate->version[n] = hit ? (int64_t)poise_rng_below(&rng, 30) : -1;
        fate->stops[n] = poise_rng_below(&rng, 3) == 0;
        fates += hit;
    }
    const enum mix_pattern patterns[] = {MIX_STENCIL,  MIX_FFT,  MIX_RANDOM,
                                         MIX_LEAPFROG, MIX_DATA, MIX_SWEEP};
    mix_init(&mix, patterns[poise_rng_below(&rng, 6)], 1, 16, 30);
    if (poise_rng_below(&rng, 3) == 0) {
        mix_second(&mix);
    }
    mix.files[0].adapt = poise_rng_below(&rng, 2) ? 7 : 0;
    mix.spoil = spoil_fate;
    mix.spoil_arg = fate;
    mix.sleep_ns = MS / 10;
    pid_t helper =
        helper_start(fate, poise_rng_below(&rng, 2) ? 50 * MS : 900 * MS);
    int code = mix_run(&mix, &options, &stats);
    kill(helper, SIGKILL);
    waitpid(helper, NULL, 0);
    if (code < 0) {
        fail_msg("seed %llu: %s", (unsigned long long)seed, mix_error());
    }
    assert_true(stats.deaths <= fates);
    poise_flow_stats_free(&stats);
    mix_free(&mix);
}

static void test_fates(void **state)
{
    (void)state;
    bool soak = getenv("POISE_TEST_SOAK") != NULL;
    uint64_t runs = soak ? 500 : 12;
    struct fate *fate = mmap(NULL, sizeof(*fate), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(fate != MAP_FAILED);
    for (uint64_t seed = 1; seed <= runs; seed++) {
        if (soak) {
            alarm(60);
        }
        run_fate(seed, fate);
    }
    munmap(fate, sizeof(*fate));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_adapt),    cmocka_unit_test(test_errors),
        cmocka_unit_test(test_kill),     cmocka_unit_test(test_all_dead),
        cmocka_unit_test(test_fates),
    };
    alarm(110); /* whatever happens, it ends */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
