/*
 * What is done from one trial to the next: take the calls of a trial, look
 * whether the tree was worth it, and choose the next one; when nothing is to be
 * gained, watch.
 */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Source: thesis, figure 10 (a flat tree for more than 100K, else a binary
 * one). */
#define RULE_BYTES 100000

/* Trees that the analysis uses, and which part of those to choose from. */
enum { TRIALS_MOST = 40, TRIALS_LEAST = 3, TRIALS_PART = 5 };
/* Trials in a row that came to nothing, after which the analysis ends. */
enum { FAILURES_MOST = 16 };
/* Trials until which any tree may come next, and then what is expected to be
 * slower by a few percent at most: then the model is trusted. Found by trying,
 * on the clusters of bench/mon/tune_hops.c, as are the others. */
enum { TRIALS_TRY = 6 };
/* Trials of a settled tree, one after the other, that take another time: one
 * alone may be a disturbance. */
enum { CHANGED_AFTER = 2 };

enum state { SEEKING, SETTLED };

struct poise_tuner {
    struct poise_tune_options options;
    int size;
    enum state state;
    struct tune_costs costs;
    struct tune_predict *predict;
    /* The present tree, the fastest so far, and the next one. */
    int *now, *best;
    struct poise_coll_tree *tree, *best_tree;
    double best_ns, settled_ns;
    int trials, failures, changed;
    int next; /* of `trees`, with POISE_TUNE_MEASURE */
    int best_number;
    struct tune_used used;
    struct poise_buf reason;
    /* The calls of a trial. */
    struct tune_hop *hops; /* [POISE_TUNE_CALLS * size] */
    bool follows[POISE_TUNE_CALLS];
    int calls;
    int64_t base_ns;
    uint64_t last_sequence;
    bool has_last;
    double *space[2];
};

const char *poise_tune_cause_name(enum poise_tune_cause cause)
{
    static const char *const names[POISE_TUNE_CAUSES] = {
        "nothing", "arrival", "network", "departure", "load"};
    return names[cause];
}

/* ---- making and ending ----------------------------------------------------
 */

void poise_tuner_destroy(struct poise_tuner *tuner)
{
    if (!tuner) {
        return;
    }
    tune_predict_free(tuner->predict);
    tune_costs_free(&tuner->costs);
    poise_coll_tree_free(tuner->tree);
    poise_coll_tree_free(tuner->best_tree);
    poise_buf_free(&tuner->reason);
    free(tuner->now);
    free(tuner->best);
    free(tuner->hops);
    free(tuner->space[0]);
    free(tuner->space[1]);
    free(tuner);
}

/* Put `parent` in place of `*tree`. */
static int set_tree(const int *parent, int size, struct poise_coll_tree **tree)
{
    struct poise_coll_tree *made;
    int code = poise_coll_tree_of_parents(parent, size, &made);
    if (code == 0) {
        poise_coll_tree_free(*tree);
        *tree = made;
    }
    return code;
}

static int allocate(struct poise_tuner *tuner)
{
    size_t size = (size_t)tuner->size;
    size_t space = size > POISE_TUNE_CALLS ? size : POISE_TUNE_CALLS;
    tuner->now = poise_alloc(size, sizeof *tuner->now);
    tuner->best = poise_alloc(size, sizeof *tuner->best);
    tuner->hops = poise_alloc(size * POISE_TUNE_CALLS, sizeof *tuner->hops);
    tuner->space[0] = poise_alloc(space, sizeof(double));
    tuner->space[1] = poise_alloc(space, sizeof(double));
    return tuner->now && tuner->best && tuner->hops && tuner->space[0] &&
                   tuner->space[1]
               ? 0
               : -ENOMEM;
}

static double or_else(double value, double usual)
{
    return value > 0 ? value : usual;
}

int poise_tuner_create(const struct poise_coll_tree *tree, int size,
                       const struct poise_tune_options *options,
                       struct poise_tuner **out)
{
    struct poise_tuner *tuner = poise_alloc(1, sizeof *tuner);
    if (!tuner) {
        return -ENOMEM;
    }
    tuner->size = size;
    tuner->options = *options;
    if (options->trials_max <= 0) {
        int part = options->tree_count / TRIALS_PART;
        tuner->options.trials_max = part == 0 || part > TRIALS_MOST
                                        ? TRIALS_MOST
                                    : part < TRIALS_LEAST ? TRIALS_LEAST
                                                          : part;
    }
    tuner->options.of_program =
        options->of_program ||
        poise_tune_operation_is_one_way(options->operation);
    tuner->options.worth = or_else(options->worth, 0.02);
    tuner->options.change = or_else(options->change, 0.2);
    int code = allocate(tuner);
    if (code == 0) {
        code = tune_costs_make(options->places, size, &tuner->costs);
    }
    tuner->costs.flow = options->operation == POISE_TUNE_BROADCAST ? TUNE_DOWN
                        : options->operation == POISE_TUNE_REDUCE
                            ? TUNE_UP
                            : TUNE_BOTH_WAYS;
    tuner->options.places = NULL;
    if (code == 0) {
        code = tune_predict_make(&tuner->costs, &tuner->predict);
    }
    for (int rank = 0; rank < size && code == 0; rank++) {
        tuner->now[rank] = tuner->best[rank] =
            poise_coll_tree_parent(tree, rank);
    }
    if (code == 0) {
        code = set_tree(tuner->now, size, &tuner->tree);
    }
    if (code == 0) {
        code = set_tree(tuner->now, size, &tuner->best_tree);
    }
    if (code < 0) {
        poise_tuner_destroy(tuner);
        return code;
    }
    tuner->best_number = -1;
    *out = tuner;
    return 0;
}

/* ---- calls ----------------------------------------------------------------
 */

bool poise_tuner_add(struct poise_tuner *tuner,
                     const struct poise_monitor_span *spans)
{
    if (tuner->calls == POISE_TUNE_CALLS) {
        return false;
    }
    for (int rank = 0; rank < tuner->size; rank++) {
        if (!spans[rank].has_hop || spans[rank].parent != tuner->now[rank]) {
            return false;
        }
    }
    if (tuner->calls == 0) {
        tuner->base_ns = spans[0].enter_ns;
    }
    struct tune_hop *hops =
        &tuner->hops[(size_t)tuner->calls * (size_t)tuner->size];
    for (int rank = 0; rank < tuner->size; rank++) {
        const struct poise_monitor_span *span = &spans[rank];
        hops[rank] =
            (struct tune_hop){(double)(span->enter_ns - tuner->base_ns),
                              (double)(span->arrived_ns - tuner->base_ns),
                              (double)(span->released_ns - tuner->base_ns),
                              (double)(span->left_ns - tuner->base_ns)};
    }
    tuner->follows[tuner->calls++] =
        tuner->has_last && spans[0].sequence == tuner->last_sequence + 1;
    tuner->has_last = true;
    tuner->last_sequence = spans[0].sequence;
    return true;
}

/* ---- choosing -------------------------------------------------------------
 */

/* Use another tree from now on. */
static int use(struct poise_tuner *tuner, const int *parent,
               struct poise_tune_step *out)
{
    int code = set_tree(parent, tuner->size, &tuner->tree);
    if (code == 0) {
        size_t bytes = (size_t)tuner->size * sizeof *parent;
        out->is_new = memcmp(tuner->now, parent, bytes) != 0;
        memmove(tuner->now, parent, bytes);
    }
    return code;
}

static void settle(struct poise_tuner *tuner, struct poise_tune_step *out)
{
    tuner->state = SETTLED;
    tuner->settled_ns = 0;
    tuner->changed = 0;
    out->is_settled = true;
    out->expected_ns = tuner->best_ns;
}

/* The number of a tree by its name; -1: there is none. */
static int find_tree(const struct poise_tuner *tuner, const char *name)
{
    for (int i = 0; i < tuner->options.tree_count; i++) {
        if (strcmp(tuner->options.trees[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static int use_number(struct poise_tuner *tuner, int number,
                      struct poise_tune_step *out)
{
    int *parent = poise_alloc((size_t)tuner->size, sizeof *parent);
    if (!parent) {
        return -ENOMEM;
    }
    for (int rank = 0; rank < tuner->size; rank++) {
        parent[rank] =
            poise_coll_tree_parent(tuner->options.trees[number].tree, rank);
    }
    int code = use(tuner, parent, out);
    free(parent);
    return code;
}

static int follow_rule(struct poise_tuner *tuner, struct poise_tune_step *out)
{
    const char *name = tuner->options.bytes > RULE_BYTES ? "flat" : "binary";
    int number = find_tree(tuner, name);
    if (tuner->trials == 1 && number >= 0) {
        poise_buf_printf(
            &tuner->reason, "use %s: the message has %s %d bytes", name,
            tuner->options.bytes > RULE_BYTES ? "more than" : "at most",
            RULE_BYTES);
        return use_number(tuner, number, out);
    }
    poise_buf_puts(&tuner->reason, "settled: the rule has one tree");
    /* Faster or not. */
    memcpy(tuner->best, tuner->now, (size_t)tuner->size * sizeof(int));
    tuner->best_ns = out->call_ns;
    settle(tuner, out);
    return set_tree(tuner->best, tuner->size, &tuner->best_tree);
}

static int go_back(struct poise_tuner *tuner, struct poise_tune_step *out)
{
    int code = use(tuner, tuner->best, out);
    poise_buf_puts(&tuner->reason,
                   out->is_new ? "; back to the fastest" : "; stay");
    settle(tuner, out);
    return code;
}

static int measure_next(struct poise_tuner *tuner, struct poise_tune_step *out)
{
    if (tuner->next < tuner->options.tree_count) {
        int number = tuner->next++;
        poise_buf_printf(&tuner->reason, "use %s, number %d of %d",
                         tuner->options.trees[number].name, number + 1,
                         tuner->options.tree_count);
        return use_number(tuner, number, out);
    }
    poise_buf_printf(&tuner->reason, "settled: all %d were used",
                     tuner->options.tree_count);
    return go_back(tuner, out);
}

/* How much slower a tree may be expected to be and is used all the same, if
 * nothing better is there: at first little is known, and the model may
 * underrate the present tree. */
static double limit_of(const struct poise_tuner *tuner)
{
    double predicted = tune_predict_call(tuner->predict, tuner->best, NULL);
    if (tuner->trials < TRIALS_TRY) {
        return INFINITY;
    }
    double rate = tuner->best_ns / predicted;
    return rate > 1 ? 1.05 * rate : 1.05;
}

static int change_part(struct poise_tuner *tuner, struct poise_tune_step *out)
{
    struct tune_change change = {
        .parent = poise_alloc((size_t)tuner->size, sizeof(int))};
    struct poise_buf reason = {0};
    if (!change.parent) {
        return -ENOMEM;
    }
    int code = tune_change_find(&tuner->costs, tuner->predict, tuner->best,
                                limit_of(tuner), &tuner->options, &tuner->used,
                                &change, &reason);
    out->cause = change.cause;
    bool is_over = tuner->trials >= tuner->options.trials_max ||
                   tuner->failures >= FAILURES_MOST;
    if (code == 0 && !is_over && change.is_found) {
        poise_buf_puts(&tuner->reason, poise_buf_str(&reason));
        out->expected_ns = tuner->best_ns * change.after_ns / change.before_ns;
        code = use(tuner, change.parent, out);
    } else if (code == 0) {
        poise_buf_printf(&tuner->reason, "settled: %s",
                         !is_over ? "no change is expected to gain"
                         : tuner->failures >= FAILURES_MOST
                             ? "changes have not gained what was expected"
                             : "no more trials are allowed");
        code = go_back(tuner, out);
    }
    poise_buf_free(&reason);
    free(change.parent);
    return code;
}

/* Learn from the calls of a trial, also whether hosts send and receive at the
 * same time: the truth is what makes ways up most like ways down. */
static int learn(struct poise_tuner *tuner, const struct tune_calls *calls,
                 double ns)
{
    struct tune_costs *costs = &tuner->costs;
    int code = 0;
    for (int duplex = 0; duplex < 2 && code == 0; duplex++) {
        costs->is_duplex = duplex;
        code = tune_costs_learn(costs, tuner->now, calls);
        costs->misfit[duplex] += costs->residual_ns / ns;
    }
    costs->is_duplex = costs->misfit[1] < costs->misfit[0];
    code = code < 0 ? code : tune_costs_learn(costs, tuner->now, calls);
    if (tuner->options.of_program) {
        costs->between = 0; /* no tree changes that */
    }
    return code;
}

/* ---- a trial's end --------------------------------------------------------
 */

/* Keep what the trial says of the present tree. */
static int judge(struct poise_tuner *tuner, double ns)
{
    unsigned most = sizeof tuner->used.hashes / sizeof tuner->used.hashes[0];
    tuner->trials++;
    tuner->used.hashes[tuner->used.count++ % most] =
        tune_hash(tuner->now, tuner->size);
    if (tuner->trials > 1 && ns >= tuner->best_ns) {
        tuner->failures++;
        return 0;
    }
    bool is_little =
        tuner->trials > 1 && ns > tuner->best_ns * (1 - tuner->options.worth);
    tuner->failures = is_little ? tuner->failures + 1 : 0;
    tuner->best_ns = ns;
    memcpy(tuner->best, tuner->now, (size_t)tuner->size * sizeof(int));
    return set_tree(tuner->best, tuner->size, &tuner->best_tree);
}

/* Whether the settled tree's calls have come to take another time. */
static bool has_changed(struct poise_tuner *tuner, double ns)
{
    if (tuner->settled_ns <= 0) {
        tuner->settled_ns = ns;
        return false;
    }
    double share = fabs(ns - tuner->settled_ns) / tuner->settled_ns;
    tuner->changed = share > tuner->options.change ? tuner->changed + 1 : 0;
    return tuner->changed >= CHANGED_AFTER;
}

/* All begins anew, with the present tree. */
static void begin_anew(struct poise_tuner *tuner, double ns)
{
    struct poise_buf before = {0}, now = {0};
    poise_human_ns(&before, (uint64_t)tuner->settled_ns);
    poise_human_ns(&now, (uint64_t)ns);
    poise_buf_printf(&tuner->reason, "calls take %s, and took %s: begin anew; ",
                     poise_buf_str(&now), poise_buf_str(&before));
    poise_buf_free(&before);
    poise_buf_free(&now);
    tune_costs_forget(&tuner->costs);
    tuner->state = SEEKING;
    tuner->trials = tuner->failures = tuner->next = 0;
    tuner->used.count = 0;
}

static int seek(struct poise_tuner *tuner, struct poise_tune_step *out)
{
    int code = judge(tuner, out->call_ns);
    if (code < 0) {
        return code;
    }
    switch (tuner->options.method) {
    case POISE_TUNE_RULE:
        return follow_rule(tuner, out);
    case POISE_TUNE_MEASURE:
        return measure_next(tuner, out);
    default:
        return change_part(tuner, out);
    }
}

int poise_tuner_step(struct poise_tuner *tuner, struct poise_tune_step *out)
{
    struct tune_calls calls = {.size = tuner->size,
                               .count = tuner->calls,
                               .hops = tuner->hops,
                               .follows = tuner->follows};
    int code = 0;
    *out = (struct poise_tune_step){0};
    poise_buf_reset(&tuner->reason);
    out->call_ns = tuner->options.of_program
                       ? tune_latency(&calls, tuner->space[0])
                       : tune_period(&calls, tuner->space);
    tuner->calls = 0;
    tuner->has_last = false;
    if (!(out->call_ns > 0)) {
        poise_buf_puts(&tuner->reason, "no calls were seen");
        out->call_ns = 0;
    } else {
        if (tuner->options.method == POISE_TUNE_ANALYSE) {
            code = learn(tuner, &calls, out->call_ns);
        }
        if (code == 0 && tuner->state == SETTLED) {
            out->has_changed = has_changed(tuner, out->call_ns);
            out->is_settled = true;
        }
        if (out->has_changed) {
            out->is_settled = false;
            begin_anew(tuner, out->call_ns);
            code = learn(tuner, &calls, out->call_ns);
        }
        if (code == 0 && tuner->state == SEEKING) {
            code = seek(tuner, out);
        }
    }
    out->tree = tuner->tree;
    out->reason = poise_buf_str(&tuner->reason);
    out->trials = tuner->trials;
    return code < 0 ? code : tuner->reason.error;
}

const struct poise_coll_tree *poise_tuner_best(const struct poise_tuner *tuner,
                                               double *call_ns)
{
    *call_ns = tuner->best_ns;
    return tuner->best_tree;
}
