/*
 * Wing mon, tuning of trees: clusters of which all is known (hops.h), the best
 * of all generators' trees as the oracle; what holds calls up is named; changes
 * are followed; calls that are no use are left out. And the loop of a real
 * handle, over ranks of one process.
 */
#include "hops.h"

#include <poise/trace.h>

#include "../ranks.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define US 1e3

/* ---- against all trees ----------------------------------------------------
 */

/* What measuring all trees finds, measured again. */
static double best_of_all(struct hops *hops,
                          const struct poise_tune_tree *trees, int count,
                          double bytes)
{
    double least = INFINITY;
    int best = 0;
    for (int i = 0; i < count; i++) {
        double ns = hops_time(hops, trees[i].tree, bytes, 8);
        best = ns < least ? i : best;
        least = fmin(ns, least);
    }
    return hops_time(hops, trees[best].tree, bytes, 40);
}

static void expect_good(int size, const char *topology, const char *shape,
                        double wan_us, double bytes, double gain)
{
    struct hops *hops =
        hops_make(size, topology, 60 * US, wan_us * US, 25 * US, 7);
    struct poise_coll_tree *tree = hops_shape(size, topology, shape);
    int count;
    struct poise_tune_tree *trees = hops_trees(size, topology, &count);
    double best = best_of_all(hops, trees, count, bytes);
    struct hops_result result =
        hops_tune(hops, tree, bytes, POISE_TUNE_ANALYSE, trees, count, false);
    if (result.first_ns / result.last_ns < gain ||
        result.last_ns > 1.03 * best || 5 * result.trials > count) {
        fail_msg("%s on %s: %.0f, then %.0f, the best %.0f us, by %d of %d "
                 "trees",
                 shape, topology, result.first_ns / US, result.last_ns / US,
                 best / US, result.trials, count);
    }
    poise_tune_trees_free(trees, count);
    poise_coll_tree_free(tree);
    hops_free(hops);
}

static void poor_trees_become_good_ones(void **state)
{
    (void)state;
    expect_good(16, "1x4x1", "flat", 0, 8, 1.49);
    expect_good(16, "1x4x1", "binary", 0, 256, 1.49);
    expect_good(8, "1x8x1", "kary:1", 0, 8, 1.49);
    expect_good(8, "1x8x1", "binary", 0, 16384, 1.2);
    expect_good(8, "2x4x1", "flat", 5000, 8, 1.49);
    expect_good(9, "3x3x1", "binary", 9000, 4096, 1.49);
}

static void good_trees_stay_good(void **state)
{
    (void)state;
    expect_good(16, "1x4x1", "node:flat", 0, 8, 0.99);
    expect_good(9, "3x3x1", "magpie:flat", 9000, 8, 0.99);
}

static void measuring_finds_the_best(void **state)
{
    (void)state;
    struct hops *hops = hops_make(6, "1x6x1", 60 * US, 0, 25 * US, 3);
    struct poise_coll_tree *tree = hops_shape(6, "1x6x1", "kary:1");
    int count;
    struct poise_tune_tree *trees = hops_trees(6, "1x6x1", &count);
    double best = best_of_all(hops, trees, count, 8);
    struct hops_result result =
        hops_tune(hops, tree, 8, POISE_TUNE_MEASURE, trees, count, false);
    assert_int_equal(result.trials, count + 1);
    assert_true(result.last_ns < 1.001 * best);
    /* The rule looks at the length only. */
    double flat = 0, binary = 0;
    for (int i = 0; i < count; i++) {
        if (strcmp(trees[i].name, "flat") == 0) {
            flat = hops_time(hops, trees[i].tree, 200000, 8);
        } else if (strcmp(trees[i].name, "binary") == 0) {
            binary = hops_time(hops, trees[i].tree, 8, 8);
        }
    }
    result = hops_tune(hops, tree, 8, POISE_TUNE_RULE, trees, count, false);
    assert_true(fabs(result.last_ns - binary) < 0.01 * binary);
    result =
        hops_tune(hops, tree, 200000, POISE_TUNE_RULE, trees, count, false);
    assert_true(fabs(result.last_ns - flat) < 0.01 * flat);
    poise_tune_trees_free(trees, count);
    poise_coll_tree_free(tree);
    hops_free(hops);
}

static void no_tree_is_there_twice(void **state)
{
    (void)state;
    int count;
    struct poise_tune_tree *trees = hops_trees(12, "2x3x1", &count);
    assert_true(count > 40);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < i; k++) {
            bool same = true;
            for (int rank = 0; rank < 12; rank++) {
                same = same && poise_coll_tree_parent(trees[i].tree, rank) ==
                                   poise_coll_tree_parent(trees[k].tree, rank);
            }
            if (same) {
                fail_msg("%s is %s", trees[i].name, trees[k].name);
            }
        }
    }
    poise_tune_trees_free(trees, count);
}

/* ---- step by step ---------------------------------------------------------
 */

struct tuned {
    struct hops *hops;
    struct poise_tuner *tuner;
    struct poise_tune_step step;
    struct poise_monitor_span spans[64];
};

static void begin(struct tuned *tuned, struct hops *hops,
                  const struct poise_coll_tree *tree)
{
    struct poise_tune_options options = {.places = hops->places};
    *tuned = (struct tuned){.hops = hops, .step = {.tree = tree}};
    assert_int_equal(
        poise_tuner_create(tree, hops->size, &options, &tuned->tuner), 0);
}

static void trial(struct tuned *tuned, double bytes)
{
    for (int i = 0; i < 13; i++) {
        hops_call(tuned->hops, tuned->step.tree, bytes, tuned->spans);
        if (i >= 2) {
            poise_tuner_add(tuned->tuner, tuned->spans);
        }
    }
    assert_int_equal(poise_tuner_step(tuned->tuner, &tuned->step), 0);
}

static int root_of(const struct poise_coll_tree *tree)
{
    int rank = 0;
    while (poise_coll_tree_parent(tree, rank) >= 0) {
        rank++;
    }
    return rank;
}

/* The first step's cause over a tree of 8 hosts on one site, or two. */
static void expect_cause(struct hops *hops, const char *topology,
                         const char *shape, double bytes,
                         enum poise_tune_cause cause, const char *word)
{
    struct poise_coll_tree *tree = hops_shape(hops->size, topology, shape);
    struct tuned tuned;
    begin(&tuned, hops, tree);
    trial(&tuned, bytes);
    if (tuned.step.cause != cause || !strstr(tuned.step.reason, word)) {
        fail_msg("%s: %s", poise_tune_cause_name(tuned.step.cause),
                 tuned.step.reason);
    }
    while (!tuned.step.is_settled) {
        trial(&tuned, bytes);
    }
    if (cause == POISE_TUNE_LOAD) {
        assert_true(poise_coll_tree_parent(tuned.step.tree, 0) >= 0);
    }
    poise_tuner_destroy(tuned.tuner);
    poise_coll_tree_free(tree);
    hops_free(hops);
}

static void what_holds_calls_up_is_named(void **state)
{
    (void)state;
    struct hops *hops = hops_make(8, "1x8x1", 500 * US, 0, 5 * US, 1);
    expect_cause(hops, "1x8x1", "kary:1", 8, POISE_TUNE_NETWORK, "rank");
    hops = hops_make(8, "1x8x1", 5 * US, 0, 100 * US, 1);
    expect_cause(hops, "1x8x1", "flat", 8, POISE_TUNE_DEPARTURE,
                 "at the host of rank 0");
    hops = hops_make(8, "1x8x1", 5 * US, 0, 20 * US, 1);
    hops->cpu_ns[0] = 400 * US;
    expect_cause(hops, "1x8x1", "kary:3", 8, POISE_TUNE_LOAD, "that of rank 0");
    hops = hops_make(8, "1x8x1", 20 * US, 0, 5 * US, 1);
    hops->late_ns[7] = 3000 * US;
    expect_cause(hops, "1x8x1", "binary", 8, POISE_TUNE_ARRIVAL,
                 "until rank 7 comes");
    hops = hops_make(8, "2x4x1", 20 * US, 4000 * US, 5 * US, 1);
    expect_cause(hops, "2x4x1", "binomial", 8, POISE_TUNE_NETWORK,
                 "on their way");
}

/* A rank that is late by itself comes to be near the root. */
static void late_ranks_go_up(void **state)
{
    (void)state;
    struct hops *hops = hops_make(8, "1x8x1", 300 * US, 0, 5 * US, 1);
    struct poise_coll_tree *tree = hops_shape(8, "1x8x1", "kary:1");
    struct tuned tuned;
    hops->late_ns[7] = 2000 * US;
    begin(&tuned, hops, tree);
    do {
        trial(&tuned, 8);
    } while (!tuned.step.is_settled);
    int depth = 0;
    for (int at = 7; at >= 0;
         at = poise_coll_tree_parent(tuned.step.tree, at)) {
        depth++;
    }
    assert_true(depth <= 2);
    poise_tuner_destroy(tuned.tuner);
    poise_coll_tree_free(tree);
    hops_free(hops);
}

static void changes_are_followed(void **state)
{
    (void)state;
    struct hops *hops = hops_make(8, "1x8x1", 60 * US, 0, 25 * US, 5);
    struct poise_coll_tree *tree = hops_shape(8, "1x8x1", "binary");
    struct tuned tuned;
    begin(&tuned, hops, tree);
    do {
        trial(&tuned, 8);
    } while (!tuned.step.is_settled);
    for (int i = 0; i < 5; i++) {
        trial(&tuned, 8);
        assert_true(tuned.step.is_settled && !tuned.step.has_changed);
        assert_false(tuned.step.is_new);
    }
    /* The root's host gets a load: its messages take longer. */
    int root = root_of(tuned.step.tree), trials = 0;
    hops->cpu_ns[root] *= 20;
    double before = hops_time(hops, tuned.step.tree, 8, 40);
    bool has_changed = false;
    do {
        trial(&tuned, 8);
        has_changed = has_changed || tuned.step.has_changed;
        assert_true(++trials < 30);
    } while (!has_changed || !tuned.step.is_settled);
    /* It is nobody's way any more. */
    for (int rank = 0; rank < 8; rank++) {
        assert_int_not_equal(poise_coll_tree_parent(tuned.step.tree, rank),
                             root);
    }
    double after = hops_time(hops, tuned.step.tree, 8, 40);
    if (before < 1.49 * after) {
        fail_msg("%.0f us with the load, then %.0f", before / US, after / US);
    }
    poise_tuner_destroy(tuned.tuner);
    poise_coll_tree_free(tree);
    hops_free(hops);
}

/* ---- a program that runs --------------------------------------------------
 */

/* What `live` would do to a program: its ranks take the file's tree some calls
 * after it was written, as rank 0's looks at it have them do. */
struct guest {
    struct hops *hops;
    struct poise_monitor *monitor;
    struct poise_tune_live *live;
    struct poise_monitor_span *spans;
    struct poise_coll_tree *tree;
    uint32_t operations[2];
    uint32_t group;
    char path[64];
    int told, changes;
    char first[256];
};

static void hear(const struct poise_tune_step *step, int number, void *arg)
{
    struct guest *guest = arg;
    assert_int_equal(number, ++guest->told);
    guest->changes += step->has_changed;
    if (number == 1) {
        snprintf(guest->first, sizeof guest->first, "%s", step->reason);
    }
}

static void guest_begin(struct guest *guest, int size, const char *shape)
{
    snprintf(guest->path, sizeof guest->path, "/tmp/poise-live-%d", getpid());
    unlink(guest->path);
    guest->hops = hops_make(size, "3x2x1", 60 * US, 4000 * US, 25 * US, 5);
    guest->hops->noise = 0.02;
    guest->tree = hops_shape(size, "3x2x1", shape);
    guest->spans = calloc((size_t)size, sizeof *guest->spans);
    assert_int_equal(poise_monitor_create(NULL, &guest->monitor), 0);
    struct poise_tune_live_options options = {
        .path = guest->path, .topology = "3x2x1", .tell = hear, .arg = guest};
    assert_int_equal(
        poise_tune_live_create(guest->monitor, &options, &guest->live), 0);
    guest->operations[0] =
        (uint32_t)poise_monitor_name(guest->monitor, "MPI_Allreduce");
    guest->operations[1] =
        (uint32_t)poise_monitor_name(guest->monitor, "MPI_Bcast");
    guest->group = (uint32_t)poise_monitor_group(guest->monitor, 1,
                                                 "MPI_COMM_WORLD", size);
}

static void guest_end(struct guest *guest)
{
    poise_tune_live_destroy(guest->live);
    poise_monitor_destroy(guest->monitor);
    poise_coll_tree_free(guest->tree);
    unlink(guest->path);
    free(guest->spans);
    hops_free(guest->hops);
}

/* A call, behind which ranks compute: each for longer than a call takes, and
 * not equally long each time. */
static void guest_call(struct guest *guest, int operation, uint64_t bytes)
{
    struct hops *hops = guest->hops;
    for (int rank = 0; rank < hops->size; rank++) {
        hops->late_ns[rank] = 2e7 + 2e5 * hops_random(&hops->rng);
    }
    hops_call(hops, guest->tree, (double)bytes, guest->spans);
    for (int rank = 0; rank < hops->size; rank++) {
        struct poise_monitor_span span = guest->spans[rank];
        span.group = guest->group;
        span.operation = guest->operations[operation];
        span.bytes = bytes;
        poise_monitor_add(guest->monitor, &span);
    }
}

/* A step of the program: a small allreduce, a long one now and then, and a
 * broadcast. What the next small call takes, in a copy of the program. */
static void guest_steps(struct guest *guest, int steps)
{
    for (int i = 0; i < steps; i++) {
        struct poise_coll_tree *tree;
        guest_call(guest, 0, 8);
        guest_call(guest, 1, 1024);
        if (i % 8 == 0) {
            guest_call(guest, 0, 100000);
        }
        if (i % 5 == 0) {
            assert_int_equal(poise_tune_live_look(guest->live), 0);
        }
        if (i % 7 == 0 && access(guest->path, F_OK) == 0) {
            assert_int_equal(
                poise_coll_tree_load(guest->path, guest->hops->size, &tree), 0);
            poise_coll_tree_free(guest->tree);
            guest->tree = tree;
        }
    }
}

static double guest_time(struct guest *guest)
{
    memset(guest->hops->late_ns, 0,
           (size_t)guest->hops->size * sizeof *guest->hops->late_ns);
    return hops_time(guest->hops, guest->tree, 8, 40);
}

static void a_program_is_tuned_while_it_runs(void **state)
{
    (void)state;
    struct guest guest = {0};
    struct poise_tune_live_state found;
    guest_begin(&guest, 6, "kary:1");
    double chain = guest_time(&guest);
    guest_steps(&guest, 900);
    double tuned = guest_time(&guest);
    if (tuned * 2 > chain || guest.told < 3 || guest.changes != 0) {
        fail_msg("%.0f, then %.0f us, by %d trials: %s", chain / US, tuned / US,
                 guest.told, guest.first);
    }
    assert_non_null(strstr(guest.first, "network"));
    /* A settled tree is looked at some times a second; what its calls take is
     * known from the first of these. */
    usleep(220000);
    guest_steps(&guest, 30);
    /* The way between two sites becomes six times as long: both ways. */
    struct hops *hops = guest.hops;
    for (int a = 0; a < hops->size; a++) {
        for (int b = 0; b < hops->size; b++) {
            if (hops->places[a].site + hops->places[b].site == 1) {
                hops->way_ns[hops->places[a].node * hops->nodes +
                             hops->places[b].node] *= 6;
            }
        }
    }
    double changed = guest_time(&guest);
    assert_true(changed > 1.5 * tuned);
    for (int i = 0; i < 20 && guest.changes == 0; i++) {
        guest_steps(&guest, 30);
        usleep(220000);
    }
    assert_int_equal(guest.changes, 1);
    guest_steps(&guest, 900);
    double followed = guest_time(&guest);
    if (followed * 1.5 > changed) {
        fail_msg("%.0f, with the longer way %.0f, then %.0f us", tuned / US,
                 changed / US, followed / US);
    }
    assert_int_equal(poise_tune_live_end(guest.live, &found), 0);
    assert_string_equal(found.operation, "MPI_Allreduce");
    assert_int_equal(found.bytes, 8);
    assert_true(found.changes == 1 && found.trees > 3 && found.waited == 0);
    assert_true(found.best_ns < found.first_ns);
    guest_end(&guest);
}

/* What cannot be tuned is left alone: calls without a tree, of other
 * communicators; and a file that cannot be written is an error, once. */
static void what_cannot_be_tuned_is_left_alone(void **state)
{
    (void)state;
    struct guest guest = {0};
    struct poise_tune_live_state found;
    guest_begin(&guest, 6, "kary:1");
    uint32_t world = guest.group;
    guest.group = (uint32_t)poise_monitor_group(guest.monitor, 2, "other", 6);
    guest_steps(&guest, 100);
    guest.group = world;
    for (int i = 0; i < 100; i++) {
        guest_call(&guest, 1, 8);
    }
    assert_int_equal(poise_tune_live_end(guest.live, &found), 0);
    assert_true(!found.operation && found.trials == 0);
    assert_int_equal(access(guest.path, F_OK), -1);
    /* A folder is in its place. */
    assert_int_equal(mkdir(guest.path, 0700), 0);
    int code = 0;
    for (int i = 0; i < 200 && code == 0; i++) {
        guest_call(&guest, 0, 8);
        code = poise_tune_live_look(guest.live);
    }
    assert_true(code < 0);
    assert_int_equal(poise_tune_live_look(guest.live), code);
    assert_int_equal(poise_tune_live_end(guest.live, &found), code);
    rmdir(guest.path);
    guest_end(&guest);
}

static void useless_calls_are_left_out(void **state)
{
    (void)state;
    struct hops *hops = hops_make(4, "1x4x1", 60 * US, 0, 25 * US, 5);
    struct poise_coll_tree *tree = hops_shape(4, "1x4x1", "flat");
    struct poise_coll_tree *other = hops_shape(4, "1x4x1", "kary:1");
    struct tuned tuned;
    begin(&tuned, hops, tree);
    assert_int_equal(poise_tuner_step(tuned.tuner, &tuned.step), 0);
    assert_string_equal(tuned.step.reason, "no calls were seen");
    assert_true(tuned.step.call_ns == 0 && !tuned.step.is_settled);
    for (int i = 0; i < 9; i++) {
        hops_call(hops, other, 8, tuned.spans);
        poise_tuner_add(tuned.tuner, tuned.spans);
        hops_call(hops, tree, 8, tuned.spans);
        tuned.spans[2].has_hop = false;
        poise_tuner_add(tuned.tuner, tuned.spans);
    }
    assert_int_equal(poise_tuner_step(tuned.tuner, &tuned.step), 0);
    assert_string_equal(tuned.step.reason, "no calls were seen");
    /* Every other call: no two follow each other. */
    for (int i = 0; i < 9; i++) {
        hops_call(hops, tree, 8, tuned.spans);
        hops_call(hops, tree, 8, tuned.spans);
        poise_tuner_add(tuned.tuner, tuned.spans);
    }
    assert_int_equal(poise_tuner_step(tuned.tuner, &tuned.step), 0);
    assert_string_equal(tuned.step.reason, "no calls were seen");
    /* Times that make no sense, as of clocks that were set, do no harm. */
    for (int round = 0; round < 20 && !tuned.step.is_settled; round++) {
        for (int i = 0; i < 2 * POISE_TUNE_CALLS; i++) {
            hops_call(hops, tuned.step.tree, 8, tuned.spans);
            tuned.spans[1].arrived_ns = (int64_t)poise_rng_next(&hops->rng) / 4;
            tuned.spans[3].released_ns = -tuned.spans[3].released_ns;
            poise_tuner_add(tuned.tuner, tuned.spans);
        }
        assert_int_equal(poise_tuner_step(tuned.tuner, &tuned.step), 0);
    }
    assert_true(tuned.step.is_settled);
    poise_tuner_destroy(tuned.tuner);
    poise_tuner_destroy(NULL);
    poise_coll_tree_free(tree);
    poise_coll_tree_free(other);
    hops_free(hops);
}

static void wrong_use_is_refused(void **state)
{
    (void)state;
    struct hops *hops = hops_make(4, "1x4x1", 60 * US, 0, 25 * US, 5);
    struct poise_coll_tree *tree = hops_shape(4, "1x4x1", "flat"), *made;
    struct poise_tune_options options = {.places = hops->places};
    struct poise_tuner *tuner;
    hops->places[2].node = 9;
    assert_int_equal(poise_tuner_create(tree, 4, &options, &tuner), -EINVAL);
    assert_non_null(strstr(poise_error_last()->why, "rank 2 has no place"));
    assert_int_equal(
        poise_coll_tree_of_parents((const int[]){-1, 0, 4}, 3, &made), -EINVAL);
    assert_int_equal(
        poise_coll_tree_of_parents((const int[]){1, 0, 0}, 3, &made), -EINVAL);
    poise_coll_tree_free(tree);
    hops_free(hops);
}

/* ---- real calls -----------------------------------------------------------
 */

enum { RANKS = 5, CALLS = 7 };

/* What rank 0 saw. */
struct seen {
    int trials, calls;
    double first_ns, last_ns, arrival_ns, all_ns;
};

static int tune_calls(struct poise_world *world, struct poise_tune_loop *loop,
                      struct poise_tuner *tuner, struct seen *seen)
{
    uint64_t goes_on = 1;
    int code = 0;
    while (goes_on && code == 0) {
        struct poise_tune_step step = {.is_settled = true};
        struct poise_tune_shares shares;
        code = poise_tune_loop_trial(loop, 8, CALLS, tuner, &shares);
        if (tuner && code == 0) {
            code = poise_tuner_step(tuner, &step);
            seen->trials++;
            seen->calls += shares.calls;
            seen->first_ns = step.trials == 1 ? step.call_ns : seen->first_ns;
        }
        if (step.is_new && code == 0) {
            code = poise_tune_loop_use(loop, step.tree);
        }
        goes_on = !step.is_settled && code == 0;
        int failed = poise_world_reduce(world, POISE_MAX, &goes_on, 1);
        code = code < 0 ? code : failed;
    }
    return code;
}

/* Begin with a chain of hosts. */
static int run_rank_of_loop(struct poise_world *world, void *arg)
{
    struct seen *seen = arg;
    struct poise_placement places[RANKS];
    struct poise_coll_tree *chain = NULL;
    struct poise_tune_loop *loop = NULL;
    struct poise_tuner *tuner = NULL;
    for (int i = 0; i < RANKS; i++) {
        places[i] = poise_world_placement(world, i);
    }
    struct poise_tune_options options = {.places = places};
    int code = poise_coll_tree_make(world, "kary:1", &chain);
    if (code == 0) {
        code = poise_tune_loop_create(world, chain, 64, &loop);
    }
    if (code == 0 && poise_world_rank(world) == 0) {
        code = poise_tuner_create(chain, RANKS, &options, &tuner);
    }
    if (code == 0) {
        code = tune_calls(world, loop, tuner, seen);
    }
    if (tuner) {
        poise_tuner_best(tuner, &seen->last_ns);
    }
    poise_tuner_destroy(tuner);
    poise_coll_tree_free(chain);
    poise_tune_loop_destroy(loop);
    return code;
}

/* Hosts 5 ms apart: a call over the chain takes 40 ms, and cannot take less
 * than 10 (all to one and back) or, all to all, 5. */
static struct seen tune_once(void)
{
    struct poise_local_options options = {.topology = "1x5x1:0,0,5ms,0"};
    struct poise_trace_options in_memory = {0};
    struct poise_trace *trace;
    struct seen seen = {0};
    int results[RANKS];
    /* One for all threads: each finds its own ring. */
    assert_int_equal(poise_trace_create(NULL, &in_memory, &trace), 0);
    poise_trace_use(trace);
    assert_int_equal(run_all(RANKS, &options, run_rank_of_loop, &seen, results),
                     0);
    poise_trace_use(NULL);
    poise_trace_destroy(trace);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(results[rank], 0);
    }
    assert_int_equal(seen.calls, CALLS * seen.trials);
    assert_true(seen.first_ns >= 40e6);
    assert_true(seen.last_ns >= 5e6);
    return seen;
}

/* On a machine that stalls for longer than the hosts are apart, a tree is one
 * as good as another: then once more. */
static void calls_of_a_handle_are_tuned(void **state)
{
    (void)state;
    struct seen seen = tune_once();
    for (int more = 0; more < 20 && seen.last_ns >= seen.first_ns; more++) {
        seen = tune_once();
    }
    assert_true(seen.last_ns < seen.first_ns);
}

/* What is called over a chain of hosts, and what the tuner makes of it. */
struct of_operation {
    enum poise_tune_operation operation;
    struct seen seen;
    int depth, roots, root; /* of the best tree */
};

static void look_at_best(const struct poise_tuner *tuner,
                         struct of_operation *of)
{
    const struct poise_coll_tree *best =
        poise_tuner_best(tuner, &of->seen.last_ns);
    of->depth = of->roots = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        int depth = 0;
        for (int at = rank; poise_coll_tree_parent(best, at) >= 0; depth++) {
            at = poise_coll_tree_parent(best, at);
        }
        of->depth = depth > of->depth ? depth : of->depth;
        of->roots += depth == 0;
        of->root = depth == 0 ? rank : of->root;
    }
}

static int run_rank_of_operation(struct poise_world *world, void *arg)
{
    struct of_operation *of = arg;
    struct poise_placement places[RANKS];
    struct poise_coll_tree *chain = NULL;
    struct poise_tune_loop *loop = NULL;
    struct poise_tuner *tuner = NULL;
    for (int i = 0; i < RANKS; i++) {
        places[i] = poise_world_placement(world, i);
    }
    struct poise_tune_options options = {
        .places = places, .trials_max = 3, .operation = of->operation};
    int code = poise_coll_tree_make(world, "kary:1", &chain);
    if (code == 0) {
        code = poise_tune_loop_create(world, chain, 64, &loop);
    }
    if (code == 0) {
        code = poise_tune_loop_operation(loop, of->operation);
    }
    if (code == 0 && poise_world_rank(world) == 0) {
        code = poise_tuner_create(chain, RANKS, &options, &tuner);
    }
    if (code == 0) {
        code = tune_calls(world, loop, tuner, &of->seen);
    }
    if (tuner) {
        look_at_best(tuner, of);
    }
    poise_tuner_destroy(tuner);
    poise_coll_tree_free(chain);
    poise_tune_loop_destroy(loop);
    return code;
}

/* Hosts 5 ms apart: a call over a chain passes four of these ways, or eight
 * there and back. Whoever is stopped for that long while it is measured may
 * make the chain look good: then it is done again. */
static void other_operations_are_tuned(void **state)
{
    (void)state;
    static const enum poise_tune_operation operations[] = {
        POISE_TUNE_BARRIER, POISE_TUNE_ALLGATHER, POISE_TUNE_BROADCAST,
        POISE_TUNE_REDUCE};
    struct poise_local_options options = {.topology = "1x5x1:0,0,5ms,0"};
    struct poise_trace_options in_memory = {0};
    for (int i = 0, again = 0; i < 4; i++) {
        struct poise_trace *trace;
        struct of_operation of = {.operation = operations[i]};
        int results[RANKS];
        assert_int_equal(poise_trace_create(NULL, &in_memory, &trace), 0);
        poise_trace_use(trace);
        assert_int_equal(
            run_all(RANKS, &options, run_rank_of_operation, &of, results), 0);
        poise_trace_use(NULL);
        poise_trace_destroy(trace);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(results[rank], 0);
        }
        assert_int_equal(of.seen.calls, CALLS * of.seen.trials);
        if (of.depth == RANKS - 1 && again++ < 8) {
            i--;
            continue;
        }
        assert_true(of.depth < RANKS - 1);
        if (poise_tune_operation_is_one_way(operations[i])) {
            assert_int_equal(of.roots, 1);
            assert_int_equal(of.root, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(poor_trees_become_good_ones),
        cmocka_unit_test(good_trees_stay_good),
        cmocka_unit_test(measuring_finds_the_best),
        cmocka_unit_test(no_tree_is_there_twice),
        cmocka_unit_test(what_holds_calls_up_is_named),
        cmocka_unit_test(late_ranks_go_up),
        cmocka_unit_test(changes_are_followed),
        cmocka_unit_test(a_program_is_tuned_while_it_runs),
        cmocka_unit_test(what_cannot_be_tuned_is_left_alone),
        cmocka_unit_test(useless_calls_are_left_out),
        cmocka_unit_test(wrong_use_is_refused),
        cmocka_unit_test(calls_of_a_handle_are_tuned),
        cmocka_unit_test(other_operations_are_tuned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
