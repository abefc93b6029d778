/*
 * A program whose tree is tuned while it runs. The monitor tells of its calls;
 * of all those that go over the tree of MPI_COMM_WORLD the kind that ranks
 * spend most time in is tuned for, and the tree that comes next goes into a
 * file, at which the program's rank 0 looks. Calls over an older tree, of which
 * there are some until then, are no use to the tuner.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Calls by which the kind is chosen, and those of a trial. Source: poise tune,
 * --iterations; ten would do, see POISE_TUNE_CALLS. */
enum { CHOOSE_CALLS = 64, TRIAL_CALLS = 21 };
/* The first calls over a new tree are not looked at: ranks are apart by what
 * the change took. */
enum { SKIPPED_CALLS = 2 };
/* How often a settled tree is looked at: two looks in a row notice a change. */
#define SETTLED_NS 200000000

/* Kinds of calls: an operation, with messages that are alike in length. */
enum { KINDS = 64 };
struct kind {
    const struct poise_monitor_operation *operation;
    unsigned length; /* bytes of a rank's part: its bits / 2 */
    int64_t inside_ns;
};

struct poise_tune_live {
    struct poise_monitor *monitor;
    struct poise_tune_live_options options;
    char *path;
    struct kind kinds[KINDS];
    int kind_count, met;
    const struct kind *kind; /* NULL: not chosen yet */
    struct poise_placement *places;
    struct poise_tune_tree *trees;
    int tree_count, size;
    struct poise_tuner *tuner;
    int *now; /* [size]: the tree that calls should go over */
    struct poise_monitor_span *spans; /* [size] */
    uint64_t sequence, stride, number;
    int skip, calls, failed;
    uint64_t looked_ns;
    struct poise_tune_live_state state;
};

/* ---- making and ending ----------------------------------------------------
 */

static poise_monitor_call_fn on_call;

int poise_tune_live_create(struct poise_monitor *monitor,
                           const struct poise_tune_live_options *options,
                           struct poise_tune_live **out)
{
    struct poise_tune_live *live = poise_alloc(1, sizeof *live);
    if (!live) {
        return -ENOMEM;
    }
    live->monitor = monitor;
    live->options = *options;
    live->path = strdup(options->path);
    int code = live->path ? 0
                          : poise_error_set(ENOMEM, "tune a tree",
                                            options->path, NULL);
    if (code == 0) {
        code = poise_monitor_on_call(monitor, on_call, live);
    }
    if (code < 0) {
        free(live->path);
        free(live);
        return code;
    }
    *out = live;
    return 0;
}

void poise_tune_live_destroy(struct poise_tune_live *live)
{
    if (!live) {
        return;
    }
    poise_monitor_on_call_end(live->monitor, live);
    poise_tuner_destroy(live->tuner);
    poise_tune_trees_free(live->trees, live->tree_count);
    free(live->places);
    free(live->now);
    free(live->spans);
    free(live->path);
    free(live);
}

/* ---- where ranks are ------------------------------------------------------
 */

/* Numbers count in order of the lowest rank: those of the scope count as files
 * came. */
static int number_of(const struct poise_tune_live *live,
                     enum poise_scope_level level, int rank, const int *numbers)
{
    int unit = poise_scope_unit(live->options.scope, level, rank), next = 0;
    for (int i = 0; i < rank; i++) {
        if (poise_scope_unit(live->options.scope, level, i) == unit) {
            return numbers[i];
        }
        next = numbers[i] >= next ? numbers[i] + 1 : next;
    }
    return next;
}

static int places_by_topology(struct poise_tune_live *live)
{
    struct poise_local_options how = {.topology = live->options.topology};
    size_t size = (size_t)live->size;
    struct poise_world **worlds = poise_alloc(size, sizeof(void *));
    int code =
        worlds ? poise_world_create_local(live->size, &how, worlds) : -ENOMEM;
    for (int rank = 0; rank < live->size && code == 0; rank++) {
        live->places[rank] = poise_world_placement(worlds[0], rank);
    }
    for (int rank = 0; rank < live->size && code == 0; rank++) {
        poise_world_leave(worlds[rank]);
    }
    for (int rank = 0; rank < live->size && code == 0; rank++) {
        poise_world_destroy(worlds[rank]);
    }
    free(worlds);
    return code;
}

static int places_by_hosts(struct poise_tune_live *live)
{
    size_t size = (size_t)live->size;
    int *nodes = poise_alloc(size, sizeof *nodes);
    int *sites = poise_alloc(size, sizeof *sites);
    int code = nodes && sites ? 0 : -ENOMEM;
    for (int rank = 0; rank < live->size && code == 0; rank++) {
        nodes[rank] = number_of(live, POISE_SCOPE_HOST, rank, nodes);
        sites[rank] = number_of(live, POISE_SCOPE_CLUSTER, rank, sites);
        live->places[rank] = (struct poise_placement){
            .site = sites[rank], .node = nodes[rank], .numa = rank};
    }
    free(nodes);
    free(sites);
    return code;
}

static int find_places(struct poise_tune_live *live)
{
    live->places = poise_alloc((size_t)live->size, sizeof *live->places);
    return !live->places            ? -ENOMEM
           : live->options.topology ? places_by_topology(live)
                                    : places_by_hosts(live);
}

/* ---- calls ----------------------------------------------------------------
 */

static int begin(struct poise_tune_live *live,
                 const struct poise_monitor_span *spans, int size)
{
    struct poise_tune_options how = {.of_program = true};
    struct poise_coll_tree *tree = NULL;
    live->size = size;
    live->now = poise_alloc((size_t)size, sizeof *live->now);
    live->spans = poise_alloc((size_t)size, sizeof *live->spans);
    int code = live->now && live->spans ? find_places(live) : -ENOMEM;
    if (code == 0) {
        code = poise_tune_trees_make(live->places, size, &live->trees,
                                     &live->tree_count);
    }
    for (int rank = 0; rank < size && code == 0; rank++) {
        live->now[rank] = spans[rank].parent;
    }
    if (code == 0) {
        code = poise_coll_tree_of_parents(live->now, size, &tree);
    }
    if (code == 0) {
        how.places = live->places;
        how.trees = live->trees;
        how.tree_count = live->tree_count;
        how.bytes = (size_t)spans[0].bytes;
        code = poise_tuner_create(tree, size, &how, &live->tuner);
    }
    poise_coll_tree_free(tree);
    return code;
}

static unsigned length_of(uint64_t bytes)
{
    return bytes == 0 ? 0 : (unsigned)(64 - __builtin_clzll(bytes)) / 2 + 1;
}

/* Add a call to its kind, and choose when enough have come. */
static void choose_kind(struct poise_tune_live *live,
                        const struct poise_monitor_operation *operation,
                        unsigned length, int64_t inside_ns)
{
    struct kind *kind = live->kinds, *most = live->kinds;
    struct kind *end = kind + live->kind_count;
    while (kind < end &&
           (kind->operation != operation || kind->length != length)) {
        kind++;
    }
    if (kind == end && live->kind_count == KINDS) {
        return;
    }
    if (kind == end) {
        live->kind_count++;
        *kind = (struct kind){.operation = operation, .length = length};
    }
    kind->inside_ns += inside_ns;
    if (++live->met >= CHOOSE_CALLS) {
        for (int i = 1; i < live->kind_count; i++) {
            if (live->kinds[i].inside_ns > most->inside_ns) {
                most = &live->kinds[i];
            }
        }
        live->kind = most;
    }
}

static bool is_of_tree(const struct poise_tune_live *live,
                       const struct poise_monitor_span *spans)
{
    for (int rank = 0; rank < live->size; rank++) {
        if (spans[rank].parent != live->now[rank]) {
            return false;
        }
    }
    return true;
}

/* Between calls of the kind there may be others, as many each time: those that
 * follow each other have numbers that follow each other for the tuner. */
static void number_call(struct poise_tune_live *live, uint64_t sequence)
{
    uint64_t step = sequence - live->sequence;
    if (live->sequence == 0 || sequence <= live->sequence) {
        step = 0;
    } else if (live->stride == 0 || step < live->stride) {
        live->stride = step;
    }
    live->number += step != 0 && step == live->stride ? 1 : 2;
    live->sequence = sequence;
}

static void add(struct poise_tune_live *live,
                const struct poise_monitor_span *spans)
{
    if (!is_of_tree(live, spans)) {
        live->state.waited += live->state.trials > 0;
        return;
    }
    live->state.waited = 0;
    number_call(live, spans[0].sequence);
    if (live->skip > 0) {
        live->skip--;
        return;
    }
    for (int rank = 0; rank < live->size; rank++) {
        live->spans[rank] = spans[rank];
        live->spans[rank].sequence = live->number;
    }
    live->calls += poise_tuner_add(live->tuner, live->spans);
}

/* Operations whose calls go up the tree and down again, by which trees are
 * swapped, too. */
static bool is_two_way(const char *operation)
{
    return strcmp(operation, "MPI_Allreduce") == 0 ||
           strcmp(operation, "MPI_Barrier") == 0;
}

static void on_call(const struct poise_monitor_operation *operation,
                    const struct poise_monitor_span *spans,
                    const struct poise_monitor_verdict *verdict, void *arg)
{
    struct poise_tune_live *live = arg;
    if (live->failed || !verdict->has_hops || verdict->failed ||
        strcmp(operation->group_name, "MPI_COMM_WORLD") != 0 ||
        !is_two_way(operation->name)) {
        return;
    }
    unsigned length = length_of(spans[0].bytes);
    if (!live->kind) {
        choose_kind(live, operation, length, verdict->inside_ns);
        return;
    }
    if (live->kind->operation != operation || live->kind->length != length) {
        return;
    }
    if (!live->tuner) {
        live->failed = begin(live, spans, operation->size);
        live->state.operation = operation->name;
        live->state.bytes = spans[0].bytes;
        live->skip = SKIPPED_CALLS;
    }
    if (live->tuner) {
        add(live, spans);
    }
}

/* ---- the next tree --------------------------------------------------------
 */

static int write_tree(const struct poise_tune_live *live,
                      const struct poise_coll_tree *tree)
{
    struct poise_buf text = {0};
    struct poise_output *output;
    int code = poise_coll_tree_write(tree, &text);
    if (code == 0) {
        code = poise_output_open(live->path, NULL, &output);
    }
    if (code == 0) {
        code = poise_file_write(poise_output_fd(output), text.data, text.len,
                                live->path);
        if (code == 0) {
            code = poise_output_commit(output, false);
        } else {
            poise_output_abort(output);
        }
    }
    poise_buf_free(&text);
    return code;
}

static void keep_state(struct poise_tune_live *live,
                       const struct poise_tune_step *step)
{
    struct poise_tune_live_state *state = &live->state;
    state->trees += state->trials == 0 || step->is_new;
    state->trials++;
    state->changes += step->has_changed;
    state->is_settled = step->is_settled;
    if (state->trials == 1 || step->has_changed) {
        state->first_ns = step->call_ns;
    }
    poise_tuner_best(live->tuner, &state->best_ns);
}

int poise_tune_live_look(struct poise_tune_live *live)
{
    struct poise_tune_step step;
    uint64_t now = poise_clock_ns();
    if (live->failed || live->calls < TRIAL_CALLS ||
        (live->state.is_settled && now - live->looked_ns < SETTLED_NS)) {
        return live->failed;
    }
    live->looked_ns = now;
    live->calls = 0;
    live->failed = poise_tuner_step(live->tuner, &step);
    if (live->failed < 0) {
        return live->failed;
    }
    keep_state(live, &step);
    if (step.is_new) {
        for (int rank = 0; rank < live->size; rank++) {
            live->now[rank] = poise_coll_tree_parent(step.tree, rank);
        }
        live->skip = SKIPPED_CALLS;
        live->failed = write_tree(live, step.tree);
    }
    if (live->options.tell) {
        live->options.tell(&step, live->state.trials, live->options.arg);
    }
    return live->failed;
}

int poise_tune_live_end(struct poise_tune_live *live,
                        struct poise_tune_live_state *out)
{
    double ns;
    *out = live->state;
    return live->failed < 0 || !live->tuner
               ? live->failed
               : write_tree(live, poise_tuner_best(live->tuner, &ns));
}
