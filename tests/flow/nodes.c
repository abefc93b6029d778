/* Room flow: several nodes, each a process. */
#include "../share.h"
#include "../slowness.h"
#include "common.h"

#include <poise/core.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
/** Whatever happens, a test ends: far beyond what a slow machine needs. */
#define ENDS_AFTER_S 200

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
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        if (!in_share(c + c / 6)) {
            continue;
        }
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
    assert_int_equal(stats.plan_count, 2);
    assert_int_equal(stats.plans[0].to, 9);
    assert_int_equal(stats.plans[1].from, 9);
    assert_int_equal(stats.plans[0].owner[4], 1);
    assert_int_equal(stats.plans[1].owner[4], 1);
    assert_int_equal(stats.plans[1].owner[5], 0);
    assert_true(stats.mark_count > 0);
    assert_int_equal(stats.marks[stats.mark_count - 1].version, 20);
    poise_flow_stats_free(&stats);
    mix_free(&mix);
}

/* A node that is four times as slow: the blocks that it computed. */
static uint64_t adapted(enum poise_flow_policy policy, uint64_t sleep_ns)
{
    const double slow[3] = {1, 4, 1};
    struct mix mix;
    struct poise_flow_options options = {
        .nodes = 3, .window = 2, .report_ns = 5 * MS, .policy = policy};
    struct poise_flow_stats stats;
    mix_init(&mix, MIX_STENCIL, 1, 18, 40);
    mix.files[0].adapt = 10;
    mix.sleep_ns = sleep_ns;
    mix.slow = slow;
    if (mix_run(&mix, &options, &stats) < 0) {
        fail_msg("%s", mix_error());
    }
    uint64_t blocks = stats.nodes[1].blocks;
    assert_true(stats.rechunkings > 0 || blocks == UINT64_C(40) * 18 / 3);
    poise_flow_stats_free(&stats);
    mix_free(&mix);
    return blocks;
}

/* It gets fewer blocks of later versions. */
static void test_adapt(void **state)
{
    (void)state;
    uint64_t blocks = UINT64_MAX;
    adapted(POISE_FLOW_BY_MISSES, MS);
    /* If the machine is slow itself, the node hardly is until it sleeps long.
     */
    for (uint64_t sleep_ns = MS; blocks >= 160 && sleep_ns < 100 * MS;
         sleep_ns *= 4) {
        blocks = adapted(POISE_FLOW_BY_RATE, sleep_ns);
    }
    assert_true(blocks < 160);
}

/* ---- what goes wrong ---------------------------------------------------- */

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
        /* One and who keeps its copies: what was there is computed again. */
        const int64_t both[4] = {-1, v, v, -1};
        size_t row = (size_t)v / 7;
        for (unsigned replicate = 0; replicate <= 10; replicate += 5) {
            if (in_share(row + replicate / 5)) {
                kill_at(MIX_STENCIL, one, replicate, 1);
            }
            if (in_share(row + replicate / 5 + 1)) {
                kill_at(MIX_LEAPFROG, two, replicate, 2);
            }
        }
        if (in_share(row)) {
            kill_at(MIX_FFT, one, 4, 1);
        }
        if (in_share(row + 1)) {
            kill_at(MIX_RANDOM, both, 4, 2);
        }
    }
}

enum {
    PAIR_SIDE = 16,
    PAIR_VERSIONS = 300,
    PAIR_BYTES = 20 /* of a block, on the average */
};

/* Who dies together: shared by all processes of a run. */
struct pair {
    pid_t pids[8];   /* by node, atomic */
    unsigned first;  /* kills the other one, and itself */
    unsigned second; /* the same as `first`: nobody else */
    int64_t version; /* atomic; -1: none, or it happened */
    int how;         /* the signal */
    pid_t leaver;    /* atomic: who is to leave, but has not ended so far */
};

static int spoil_pair(struct mix *mix, struct poise_flow_task *task,
                      const struct poise_flow_address *block, uint64_t *value)
{
    struct pair *pair = mix->spoil_arg;
    unsigned node = poise_flow_node(task);
    int64_t due = __atomic_load_n(&pair->version, __ATOMIC_ACQUIRE);
    (void)value;
    __atomic_store_n(&pair->pids[node], getpid(), __ATOMIC_RELEASE);
    pid_t leaver = __atomic_load_n(&pair->leaver, __ATOMIC_ACQUIRE);
    if (leaver != 0 && kill(leaver, 0) == 0 &&
        block->version > PAIR_VERSIONS * 3 / 4) {
        /* The map may be late: what is left is to last until it has come. */
        poise_sleep_ns(50 * MS);
    }
    if (node != pair->first || due < 0 || block->version < due ||
        !__atomic_compare_exchange_n(&pair->version, &due, -1, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        return 0;
    }
    pid_t other = __atomic_load_n(&pair->pids[pair->second], __ATOMIC_ACQUIRE);
    while (other == 0) { /* it has not begun */
        poise_sleep_ns(MS);
        other = __atomic_load_n(&pair->pids[pair->second], __ATOMIC_ACQUIRE);
    }
    if (other != getpid()) {
        kill(other, pair->how);
    }
    if (pair->how == SIGTERM) {
        __atomic_store_n(&pair->leaver, getpid(), __ATOMIC_RELEASE);
    }
    kill(getpid(), pair->how);
    return 0;
}

static struct pair *pair_make(void)
{
    struct pair *pair = mmap(NULL, sizeof *pair, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(pair != MAP_FAILED);
    return pair;
}

/* A run in which one node, or two at once, are hit when they get to a version.
 * How many blocks one of the others had to have computed again. */
static uint64_t hit_pair(const struct pair *what, enum mix_pattern pattern,
                         struct poise_flow_options *options, uint64_t sleep_ns,
                         uint64_t bytes_most)
{
    struct pair *pair = pair_make();
    struct mix mix;
    struct poise_flow_stats stats;
    uint64_t again = 0;
    *pair = *what;
    mix_init(&mix, pattern, 1, PAIR_SIDE, PAIR_VERSIONS);
    mix.sleep_ns = sleep_ns;
    mix.spoil = spoil_pair;
    mix.spoil_arg = pair;
    if (mix_run(&mix, options, &stats) < 0) {
        fail_msg("nodes %u and %u of %u hit at %lld: %s", what->first,
                 what->second, options->nodes, (long long)what->version,
                 mix_error());
    }
    assert_int_equal(stats.deaths, 1 + (what->first != what->second));
    for (unsigned n = 0; n < options->nodes; n++) {
        const struct poise_flow_node_stats *node = &stats.nodes[n];
        if (n == what->first || n == what->second) {
            continue;
        }
        if (node->peak_bytes > bytes_most || node->unforeseen > 0) {
            fail_msg("pattern %d, nodes %u and %u of %u hit at %lld: node %u: "
                     "%llu blocks unforeseen, at most %llu bytes",
                     pattern, what->first, what->second, options->nodes,
                     (long long)what->version, n,
                     (unsigned long long)node->unforeseen,
                     (unsigned long long)node->peak_bytes);
        }
        again = node->redone > again ? node->redone : again;
    }
    poise_flow_stats_free(&stats);
    mix_free(&mix);
    munmap(pair, sizeof *pair);
    return again;
}

/* A small part of what was done is computed again, and that is freed as it is
 * used. If the machine is slow, the map may be late with its lines: then once
 * more, with tasks that are slower. */
static void hit_bounded(const struct pair *pair,
                        struct poise_flow_options *options)
{
    const uint64_t all = PAIR_SIDE * PAIR_VERSIONS;
    uint64_t again = UINT64_MAX;
    for (uint64_t sleep_ns = MS / 20; again > all / 16 && sleep_ns < 100 * MS;
         sleep_ns *= 4) {
        again = hit_pair(pair, MIX_STENCIL, options, sleep_ns,
                         all * PAIR_BYTES / 8);
    }
    assert_true(again <= all / 16);
}

/* Two neighbours die at once when nine tenths are done. */
static void test_recovery_is_bounded(void **state)
{
    (void)state;
    struct poise_flow_options options = {
        .nodes = 4, .replicate = 10, .report_ns = 5 * MS};
    const struct pair pair = {.first = 1,
                              .second = 2,
                              .version = PAIR_VERSIONS * 9 / 10,
                              .how = SIGKILL};
    hit_bounded(&pair, &options);
}

/* With SIGTERM a node hands its blocks over, though else no copies are made. */
static void test_leave(void **state)
{
    (void)state;
    struct poise_flow_options options = {.nodes = 3,
                                         .replicate =
                                             POISE_FLOW_REPLICATE_NEVER,
                                         .report_ns = 5 * MS};
    const struct pair pair = {
        .first = 1, .second = 1, .version = PAIR_VERSIONS / 3, .how = SIGTERM};
    hit_bounded(&pair, &options);
}

/* Any two at any moment, as many nodes and whichever pattern. */
static void test_pairs(void **state)
{
    (void)state;
    const enum mix_pattern patterns[] = {MIX_STENCIL, MIX_FFT, MIX_RANDOM,
                                         MIX_LEAPFROG, MIX_DATA};
    bool soak = getenv("POISE_TEST_SOAK") != NULL;
    for (uint64_t seed = 1; seed <= (soak ? 100 : 3); seed++) {
        struct poise_rng rng;
        if (!in_share(seed)) {
            continue;
        }
        poise_rng_seed(&rng, seed);
        alarm(slowness_s(ENDS_AFTER_S));
        unsigned nodes = 3 + (unsigned)poise_rng_below(&rng, 5);
        struct poise_flow_options options = {
            .nodes = nodes,
            .threads = 1 + (unsigned)poise_rng_below(&rng, 2),
            .replicate = (unsigned)poise_rng_below(&rng, 20),
            .report_ns = 5 * MS};
        struct pair pair = {.first = (unsigned)poise_rng_below(&rng, nodes),
                            .how = SIGKILL};
        pair.second =
            (pair.first + 1 + (unsigned)poise_rng_below(&rng, nodes - 1)) %
            nodes;
        pair.version = (int64_t)poise_rng_below(&rng, PAIR_VERSIONS - 1);
        enum mix_pattern pattern = patterns[poise_rng_below(&rng, 5)];
        /* Blocks of MIX_DATA are kept for all that might read them. */
        hit_pair(&pair, pattern, &options, MS / 20,
                 pattern == MIX_DATA
                     ? UINT64_MAX
                     : PAIR_SIDE * PAIR_VERSIONS * PAIR_BYTES / 4);
    }
}

/* A node that comes later gets its share with the next assignment, and one
 * that comes for a dead one, too. */
static void test_join(void **state)
{
    (void)state;
    uint64_t sleep_ns = MS / 4;
    for (int kills = 0; kills < 2; kills++) {
        const int64_t dies[4] = {-1, kills ? 12 : -1, -1, -1};
        struct poise_flow_stats stats = {0};
        uint64_t blocks = 0;
        while (blocks == 0 && sleep_ns < 1000 * MS) {
            struct mix mix;
            struct poise_flow_options options = {.nodes = 2,
                                                 .window = 2,
                                                 .replicate = 5,
                                                 .spares = kills > 0,
                                                 .join = kills == 0,
                                                 .join_version = 8,
                                                 .report_ns = 5 * MS};
            poise_flow_stats_free(&stats);
            mix_init(&mix, MIX_STENCIL, 1, 12, 60);
            mix.files[0].adapt = 6;
            mix.sleep_ns = sleep_ns;
            mix.spoil = spoil_dies;
            mix.spoil_arg = (void *)(uintptr_t)dies;
            if (mix_run(&mix, &options, &stats) < 0) {
                fail_msg("%s", mix_error());
            }
            assert_int_equal(stats.deaths, kills);
            assert_int_equal(stats.node_count, 3);
            blocks = stats.nodes[2].blocks;
            sleep_ns *= 2; /* all may be over before a newcomer is there */
            mix_free(&mix);
        }
        assert_int_equal(stats.joins, 1);
        assert_true(blocks > 0);
        poise_flow_stats_free(&stats);
    }
}

/* Two that come at once hear of each other, whoever is there first. */
static void test_join_together(void **state)
{
    (void)state;
    uint64_t sleep_ns = MS / 4;
    bool both = false;
    while (!both && sleep_ns < 1000 * MS) {
        struct mix mix;
        struct poise_flow_stats stats;
        struct poise_flow_options options = {.nodes = 2,
                                             .window = 2,
                                             .join = 2,
                                             .join_version = 2,
                                             .report_ns = 5 * MS};
        mix_init(&mix, MIX_STENCIL, 1, 12, 60);
        mix.files[0].adapt = 6;
        mix.sleep_ns = sleep_ns;
        if (mix_run(&mix, &options, &stats) < 0) {
            fail_msg("%s", mix_error());
        }
        assert_int_equal(stats.node_count, 4);
        assert_int_equal(stats.deaths, 0);
        both = stats.joins == 2 && stats.nodes[2].blocks > 0 &&
               stats.nodes[3].blocks > 0;
        sleep_ns *= 2;
        poise_flow_stats_free(&stats);
        mix_free(&mix);
    }
    assert_true(both);
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

/* ---- callbacks that crash, or do not return ------------------------------ */

/* Words of the map's, all of them. */
static void hear_notice(const char *words, void *arg)
{
    poise_buf_puts(arg, words);
    poise_buf_putc(arg, '\n');
}

/* In memory that all nodes share: how often one may crash yet. */
static int spoil_crashes(struct mix *mix, struct poise_flow_task *task,
                         const struct poise_flow_address *block,
                         uint64_t *value)
{
    int *left = mix->spoil_arg;
    (void)value;
    (void)task;
    if (block->version == 7 && block->index[0] == 3 &&
        __atomic_fetch_sub(left, 1, __ATOMIC_RELAXED) > 0) {
        raise(SIGSEGV);
    }
    return 0;
}

/* One crash: others compute the block, and the map says where it was. The same
 * again and again: an error that names the block and the node, before all nodes
 * are gone. */
static void test_crash(void **state)
{
    int *left = mmap(NULL, sizeof *left, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_true(left != MAP_FAILED);
    for (int crashes = 1; crashes <= 9; crashes += 8) {
        struct mix mix;
        struct poise_buf words = {0};
        struct poise_flow_options options = {.nodes = 4,
                                             .report_ns = 5 * MS,
                                             .notice = hear_notice,
                                             .notice_arg = &words};
        *left = crashes;
        mix_init(&mix, MIX_STENCIL, 1, 9, 20);
        mix.spoil = spoil_crashes;
        mix.spoil_arg = left;
        int code = mix_run(&mix, &options, NULL);
        assert_non_null(strstr(poise_buf_str(&words), "ended by signal 11"));
        assert_non_null(strstr(poise_buf_str(&words), "while it computed"));
        if (crashes == 1) {
            assert_int_equal(code, 0);
        } else {
            assert_int_equal(code, -EFAULT);
            assert_non_null(strstr(mix_error(), "the program crashes there"));
            assert_non_null(strstr(mix_error(), "node "));
        }
        poise_buf_free(&words);
        mix_free(&mix);
    }
    munmap(left, sizeof *left);
}

static int spoil_long(struct mix *mix, struct poise_flow_task *task,
                      const struct poise_flow_address *block, uint64_t *value)
{
    const atomic_bool *told = mix->spoil_arg;
    (void)value;
    (void)task;
    while (block->version == 7 && block->index[0] == 3 && !atomic_load(told)) {
        poise_sleep_ns(MS);
    }
    return 0;
}

struct long_words {
    struct poise_buf words;
    atomic_bool *told;
};

static void hear_long(const char *words, void *arg)
{
    struct long_words *heard = arg;
    hear_notice(words, &heard->words);
    atomic_store(heard->told, true);
}

/* A block that takes for ever, until the map says so. */
static void test_long(void **state)
{
    struct mix mix;
    struct long_words heard = {.told = mmap(NULL, sizeof(atomic_bool),
                                            PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    struct poise_flow_options options = {.nodes = 2,
                                         .report_ns = 5 * MS,
                                         .lost_ns = 300 * MS,
                                         .notice = hear_long,
                                         .notice_arg = &heard};
    (void)state;
    assert_true(heard.told != MAP_FAILED);
    mix_init(&mix, MIX_STENCIL, 1, 9, 20);
    mix.spoil = spoil_long;
    mix.spoil_arg = heard.told;
    assert_int_equal(mix_run(&mix, &options, NULL), 0);
    assert_non_null(strstr(poise_buf_str(&heard.words), "has been computing"));
    assert_non_null(strstr(poise_buf_str(&heard.words), ":7[3] for "));
    poise_buf_free(&heard.words);
    munmap(heard.told, sizeof *heard.told);
    mix_free(&mix);
}

/* ---- faults by dice ----------------------------------------------------- */

/** Nodes of a run, newcomers included. */
#define FATES 10

/** What a node does at a moment: shared by all processes of a run. */
struct fate {
    int64_t version[FATES]; /**< atomic; -1: none, or it happened */
    bool stops[FATES];      /**< it stops, else it dies */
    pid_t stopped[FATES];   /**< atomic: to be continued by the helper */
    int64_t tires[FATES];   /**< from this version on it is slower */
};

static int spoil_fate(struct mix *mix, struct poise_flow_task *task,
                      const struct poise_flow_address *block, uint64_t *value)
{
    struct fate *fate = mix->spoil_arg;
    unsigned node = poise_flow_node(task);
    (void)value;
    if (block->version >= fate->tires[node]) {
        poise_sleep_ns(MS / 2);
    }
    int64_t due = block->version; /* one of its threads takes it */
    if (due < 0 ||
        !__atomic_compare_exchange_n(&fate->version[node], &due, -1, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        return 0;
    }
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
    if (pid != 0) {
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned n = 0;; n = (n + 1) % FATES) {
        pid_t who = __atomic_exchange_n(&fate->stopped[n], 0, __ATOMIC_ACQ_REL);
        poise_sleep_ns(who ? after_ns : MS);
        if (who) {
            kill(who, SIGCONT);
        }
    }
}

/* Everything about a run from its seed: who is hit, when and how. */
static void make_fate(struct poise_rng *rng, unsigned nodes, struct fate *fate)
{
    memset(fate, 0, sizeof *fate);
    for (unsigned n = 0; n < FATES; n++) {
        /* One is left in any case. */
        bool hit = n > 0 && n < nodes && poise_rng_below(rng, 2) == 0;
        fate->version[n] = hit ? (int64_t)poise_rng_below(rng, 30) : -1;
        fate->stops[n] = poise_rng_below(rng, 3) == 0;
    }
}

/* Newcomers are hit, too, and some nodes grow slower. */
static void make_more(uint64_t seed, unsigned nodes, struct fate *fate)
{
    struct poise_rng rng;
    poise_rng_seed(&rng, ~seed);
    for (unsigned n = 0; n < FATES; n++) {
        bool hit = n >= nodes && poise_rng_below(&rng, 3) == 0;
        fate->version[n] =
            hit ? (int64_t)poise_rng_below(&rng, 30) : fate->version[n];
        fate->tires[n] = poise_rng_below(&rng, 4) == 0
                             ? (int64_t)poise_rng_below(&rng, 30)
                             : INT64_MAX;
    }
}

/* One run. Nodes that are silent for `lost_ns` are given up; on a machine that
 * is slow itself that may be all of them, and the code is -EPIPE. */
static int run_fate(uint64_t seed, struct fate *fate, uint64_t lost_ns)
{
    const enum mix_pattern patterns[] = {MIX_STENCIL,  MIX_FFT,  MIX_RANDOM,
                                         MIX_LEAPFROG, MIX_DATA, MIX_SWEEP};
    struct poise_rng rng;
    struct mix mix;
    poise_rng_seed(&rng, seed);
    unsigned nodes = 3 + (unsigned)poise_rng_below(&rng, 4);
    struct poise_flow_options options = {
        .nodes = nodes,
        .threads = 1 + (unsigned)poise_rng_below(&rng, 2),
        .window = 1 + (unsigned)poise_rng_below(&rng, 5),
        .replicate = (unsigned)poise_rng_below(&rng, 8),
        .spares = (unsigned)poise_rng_below(&rng, 3),
        .join = (unsigned)poise_rng_below(&rng, 2),
        .join_version = (int64_t)poise_rng_below(&rng, 30),
        .report_ns = 5 * MS,
        .lost_ns = lost_ns};
    if (options.replicate == 7) {
        options.replicate = POISE_FLOW_REPLICATE_NEVER;
    }
    make_fate(&rng, nodes, fate);
    make_more(seed, nodes, fate);
    double slow[FATES];
    for (unsigned n = 0; n < FATES; n++) {
        slow[n] = 1 + (double)(poise_rng_below(&rng, 4) / 3 * 7);
    }
    mix_init(&mix, patterns[poise_rng_below(&rng, 6)], 1, 16, 30);
    if (poise_rng_below(&rng, 3) == 0) {
        mix_second(&mix);
    }
    mix.files[0].adapt = poise_rng_below(&rng, 2) ? 7 : 0;
    mix.spoil = spoil_fate;
    mix.spoil_arg = fate;
    mix.sleep_ns = MS / 10;
    mix.slow = slow;
    /* A stop that nobody notices, or one that is taken for a death. */
    bool brief = poise_rng_below(&rng, 2);
    pid_t helper = helper_start(fate, brief ? lost_ns / 8 : 2 * lost_ns);
    struct poise_flow_stats stats;
    int code = mix_run(&mix, &options, &stats);
    kill(helper, SIGKILL);
    waitpid(helper, NULL, 0);
    mix_free(&mix);
    for (unsigned n = 0; code == 0 && n < stats.node_count; n++) {
        assert_int_equal(stats.nodes[n].unforeseen, 0);
    }
    if (code == 0) {
        poise_flow_stats_free(&stats);
    }
    return code;
}

static void test_fates(void **state)
{
    (void)state;
    const char *rounds = getenv("POISE_TEST_ROUNDS");
    bool soak = getenv("POISE_TEST_SOAK") != NULL;
    uint64_t runs = rounds ? strtoull(rounds, NULL, 10) : soak ? 300 : 12;
    struct fate *fate = mmap(NULL, sizeof *fate, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(fate != MAP_FAILED);
    for (uint64_t seed = 1; seed <= runs; seed++) {
        if (!in_share(seed)) {
            continue;
        }
        uint64_t lost_ns = 400 * MS;
        alarm(slowness_s(ENDS_AFTER_S));
        int code = run_fate(seed, fate, lost_ns);
        while (code == -EPIPE && lost_ns < 40000 * MS) {
            lost_ns *= 10;
            code = run_fate(seed, fate, lost_ns);
        }
        if (code < 0) {
            fail_msg("seed %llu: %s", (unsigned long long)seed, mix_error());
        }
    }
    munmap(fate, sizeof *fate);
}

static int limit(void **state)
{
    (void)state;
    alarm(slowness_s(ENDS_AFTER_S));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_patterns, limit),
        cmocka_unit_test_setup(test_parts, limit),
        cmocka_unit_test_setup(test_adapt, limit),
        cmocka_unit_test_setup(test_errors, limit),
        cmocka_unit_test_setup(test_kill, limit),
        cmocka_unit_test_setup(test_recovery_is_bounded, limit),
        cmocka_unit_test_setup(test_leave, limit),
        cmocka_unit_test_setup(test_pairs, limit),
        cmocka_unit_test_setup(test_all_dead, limit),
        cmocka_unit_test_setup(test_crash, limit),
        cmocka_unit_test_setup(test_long, limit),
        cmocka_unit_test_setup(test_fates, limit),
        cmocka_unit_test_setup(test_join, limit),
        cmocka_unit_test_setup(test_join_together, limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
