/* poise tune: the tree of an allreduce, tuned while it is used. */
#include "cli/common/redraw.h"
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    struct poise_strings names; /* of sizes */
    uint64_t *sizes;            /* [count] */
    int count;
    const char *tree, *output;
    int method, operation;
    int64_t iterations, trials;
    uint64_t time_ns;
    bool json, progress;
};

static const char *const methods[] = {"analysis", "measure", "rule", NULL};

/* In the order of enum poise_tune_operation. */
static const char *const operations[] = {"allreduce", "barrier", "allgather",
                                         "broadcast", "reduce",  NULL};

static const struct poise_option options[] = {
    {POISE_OPTION_ENUM, 0, "operation", "NAME",
     "tune for this collective, with rank 0 as root: allreduce, "
     "barrier, allgather, broadcast or reduce (default: allreduce)",
     .offset = offsetof(struct values, operation), .choices = operations},
    {POISE_OPTION_LIST, 0, "size", "SIZE",
     "tune for messages of SIZE; can be repeated (default: 8, 4K "
     "and 64K)",
     .offset = offsetof(struct values, names)},
    {POISE_OPTION_STRING, .name = "tree", .arg = "TREE",
     .help = "begin with this tree: a shape, or a tree file (default: "
             "POISE_TREE, or one that fits the hosts)",
     .offset = offsetof(struct values, tree)},
    {POISE_OPTION_ENUM, 0, "method", "NAME",
     "analysis: change what slows calls down; measure: try all "
     "generated trees; rule: flat above 100 KB, binary below "
     "(default: analysis)",
     .offset = offsetof(struct values, method), .choices = methods},
    {POISE_OPTION_STRING, 'o', "output", "FILE",
     "write the best tree to FILE; for several sizes to FILE.BYTES",
     .offset = offsetof(struct values, output)},
    {POISE_OPTION_INT, 0, "trials", "N",
     "analysis: try at most N trees (default: a fifth of all, 3 to "
     "16)",
     .offset = offsetof(struct values, trials), .min = 1, .max = 10000},
    {POISE_OPTION_INT, 0, "iterations", "N",
     "make N calls with each tree (default: 21)",
     .offset = offsetof(struct values, iterations), .min = 5, .max = 1000},
    {POISE_OPTION_DURATION, 0, "time", "TIME",
     "go on with the best tree for TIME, and tune again when the "
     "time of its calls changes",
     .offset = offsetof(struct values, time_ns)},
    {POISE_OPTION_FLAG, .name = "json", .help = "print JSON",
     .offset = offsetof(struct values, json)},
    CLI_PROGRESS_OPTION(struct values, progress),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_tune_command = {
    .name = "tune",
    .operands = NULL,
    .summary = "find the tree by which a collective is fastest here",
    .description =
        "All ranks call a collective over a tree again and again. The "
        "time of each hop shows what slows the calls down: a rank that "
        "comes late (arrival), the network between hosts (network), "
        "messages that queue behind others of their host (departure), "
        "or a slow host (load). That part of the tree is then changed: "
        "a level more or less, another fan-in, a partial reduction, or "
        "the root on another host. Tuning ends when nothing more is "
        "gained. Each line tells the time of a call, and what was "
        "changed and why. Use the tree file with poise coll --tree.",
    .options = options,
    .examples =
        "mpirun -n 16 poise tune --size 8 -o best.tree\ttune for one "
        "size\n"
        "mpirun -n 16 poise coll --tree best.tree ./prog\tuse the tree\n"
        "mpirun -n 16 poise tune --operation broadcast --size "
        "64K\ttune another operation\n"
        "mpirun -n 16 poise tune --method measure\ttry all generated "
        "trees\n"
        "poise wan -n 8 run poise tune --tree flat\ttune over emulated "
        "links\n",
    .exits = "0\tdone\n1\tit failed\n2\twrong use\n3\tthe MPI of the launcher "
             "cannot be joined\n",
    .see = "poise-coll(1) poise-trace-run(1) docs/tune.md",
};

/* ---- one size -------------------------------------------------------------
 */

struct job {
    const struct values *values;
    struct poise_world *world;
    struct poise_tune_loop *loop;
    struct poise_placement *places;
    struct poise_tune_tree *trees;
    int tree_count, size, rank;
    struct poise_coll_tree *first; /* the tree to begin with */
    struct poise_buf said;
    struct cli_meter meter;
};

static enum poise_tune_operation operation_of(const struct job *job)
{
    return (enum poise_tune_operation)job->values->operation;
}

static int copy_tree(const struct poise_coll_tree *tree, int size,
                     struct poise_coll_tree **out)
{
    int *parent = poise_alloc((size_t)size, sizeof *parent);
    if (!parent) {
        return -ENOMEM;
    }
    for (int rank = 0; rank < size; rank++) {
        parent[rank] = poise_coll_tree_parent(tree, rank);
    }
    int code = poise_coll_tree_of_parents(parent, size, out);
    free(parent);
    return code;
}

/* Rank 0 says whether all go on; a failure of one ends it for all. */
static int agree_on(const struct job *job, int code, bool *goes_on)
{
    struct poise_buf word = {0};
    poise_buf_u64(&word, *goes_on);
    code = poise_world_agree(job->world, code < 0 ? code : word.error);
    if (code == 0) {
        code = poise_world_broadcast(job->world, 0, &word);
    }
    if (code == 0) {
        struct poise_reader reader = poise_reader_of(word.data, word.len);
        *goes_on = poise_reader_u64(&reader) != 0;
    }
    poise_buf_free(&word);
    return code;
}

/* Print what was said so far. */
static void flush(struct job *job)
{
    if (!job->values->json && job->said.len > 0) {
        cli_meter_wipe(&job->meter);
        cli_write("tune", &job->said);
    }
    poise_buf_reset(&job->said);
}

static int keep_line(struct job *job, struct tune_result *result,
                     const struct poise_tune_step *step,
                     const struct poise_tune_shares *shares)
{
    struct tune_line line = {
        .step = *step, .shares = *shares, .reason = strdup(step->reason)};
    struct tune_line *lines =
        realloc(result->lines,
                ((size_t)result->line_count + 1) * sizeof *result->lines);
    result->lines = lines ? lines : result->lines;
    if (!lines || !line.reason) {
        free(line.reason);
        return -ENOMEM;
    }
    line.step.tree = NULL;
    line.step.reason = NULL;
    result->lines[result->line_count++] = line;
    /* A settled tree that stays so is no news. */
    if (line.reason[0]) {
        tune_text_line(&line, result->line_count, &job->said);
        flush(job);
    }
    return 0;
}

/* Rank 0, behind a trial: choose, say so, and propose. */
static int choose(struct job *job, struct poise_tuner *tuner,
                  struct tune_result *result,
                  const struct poise_tune_shares *shares, bool *is_settled)
{
    struct poise_tune_step step;
    int code = poise_tuner_step(tuner, &step);
    if (code < 0) {
        return code;
    }
    result->trials = step.trials;
    cli_meter_show(&job->meter, "tuning:", "trials", (uint64_t)step.trials,
                   (uint64_t)job->values->trials);
    *is_settled = step.is_settled;
    code = keep_line(job, result, &step, shares);
    if (code == 0 && step.is_new) {
        code = poise_tune_loop_use(job->loop, step.tree);
    }
    return code;
}

/* Trials until nothing is gained, and for as long as was asked for. */
static int tune(struct job *job, struct tune_result *result,
                struct poise_tuner *tuner)
{
    uint64_t settled_at = 0;
    bool goes_on = true;
    int code = 0;
    while (code == 0 && goes_on) {
        struct poise_tune_shares shares;
        bool is_settled = false;
        code =
            poise_tune_loop_trial(job->loop, (size_t)result->bytes,
                                  (int)job->values->iterations, tuner, &shares);
        if (code == 0 && job->rank == 0) {
            code = choose(job, tuner, result, &shares, &is_settled);
            uint64_t now = poise_clock_ns();
            settled_at = is_settled && settled_at == 0 ? now : settled_at;
            goes_on = !cli_interrupted &&
                      (!is_settled || now - settled_at < job->values->time_ns);
        }
        code = agree_on(job, code, &goes_on);
    }
    return code;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* What counts of a call, on average, on rank 0. */
static double call_ns(const struct job *job,
                      const struct poise_tune_shares *shares)
{
    return !poise_tune_operation_is_one_way(operation_of(job)) ? shares->call_ns
           : shares->calls > 0 ? shares->latency_ns / shares->calls
                               : 0;
}

/* The first tree and the best one in turn: their medians. */
static int compare(struct job *job, const struct poise_coll_tree *best,
                   struct tune_result *result)
{
    enum { ROUNDS = 3 };
    double times[2][ROUNDS];
    int code = 0;
    for (int i = 0; i < 2 * ROUNDS && code == 0; i++) {
        struct poise_tune_shares shares;
        if (job->rank == 0) {
            code = poise_tune_loop_use(job->loop, i % 2 ? best : job->first);
        }
        code = poise_world_agree(job->world, code);
        if (code == 0) {
            code = poise_tune_loop_trial(job->loop, (size_t)result->bytes,
                                         (int)job->values->iterations, NULL,
                                         &shares);
            times[i % 2][i / 2] = call_ns(job, &shares);
        }
    }
    for (int i = 0; i < 2 && code == 0; i++) {
        qsort(times[i], ROUNDS, sizeof(double), by_value);
    }
    if (code == 0) {
        result->first_ns = times[0][ROUNDS / 2];
        result->best_ns = times[1][ROUNDS / 2];
    }
    return code;
}

static int write_tree(const struct job *job, const struct poise_coll_tree *tree,
                      struct tune_result *result)
{
    struct poise_buf path = {0}, text = {0};
    struct poise_output *output;
    poise_buf_puts(&path, job->values->output);
    if (job->values->count > 1) {
        poise_buf_printf(&path, ".%llu", (unsigned long long)result->bytes);
    }
    int code = poise_coll_tree_write(tree, &text);
    code = code < 0 ? code : path.error;
    if (code == 0) {
        code = poise_output_open(poise_buf_str(&path), NULL, &output);
    }
    if (code == 0) {
        code = poise_file_write(poise_output_fd(output), text.data, text.len,
                                poise_buf_str(&path));
        if (code == 0) {
            code = poise_output_commit(output, false);
        } else {
            poise_output_abort(output);
        }
    }
    if (code == 0) {
        result->file = strdup(poise_buf_str(&path));
    }
    poise_buf_free(&path);
    poise_buf_free(&text);
    return code;
}

/* Rank 0 has a tuner; all begin with the same tree. */
static int begin_size(struct job *job, uint64_t bytes,
                      struct poise_tuner **tuner)
{
    struct poise_tune_options how = {
        .method = (enum poise_tune_method)job->values->method,
        .places = job->places,
        .trees = job->trees,
        .tree_count = job->tree_count,
        .bytes = (size_t)bytes,
        .operation = operation_of(job),
        .trials_max = (int)job->values->trials};
    int code = 0;
    *tuner = NULL;
    if (job->rank == 0) {
        code = poise_tuner_create(job->first, job->size, &how, tuner);
    }
    if (code == 0 && job->rank == 0) {
        code = poise_tune_loop_use(job->loop, job->first);
    }
    return poise_world_agree(job->world, code);
}

static int end_size(struct job *job, const struct poise_tuner *tuner,
                    struct tune_result *result)
{
    const struct poise_coll_tree *best = job->first;
    double ns;
    if (job->rank == 0) {
        best = poise_tuner_best(tuner, &ns);
    }
    int code = compare(job, best, result);
    if (code == 0 && result->best_ns > result->first_ns) {
        /* What was measured one after the other does not hold in turn. */
        best = job->first;
        result->best_ns = result->first_ns;
    }
    if (code == 0 && job->rank == 0) {
        result->parent = poise_alloc((size_t)job->size, sizeof(int));
        for (int rank = 0; rank < job->size && result->parent; rank++) {
            result->parent[rank] = poise_coll_tree_parent(best, rank);
        }
        code = !result->parent       ? -ENOMEM
               : job->values->output ? write_tree(job, best, result)
                                     : 0;
        tune_text_result(result, &job->said);
        flush(job);
    }
    return poise_world_agree(job->world, code);
}

static int tune_size(struct job *job, uint64_t bytes,
                     struct tune_result *result)
{
    struct poise_tuner *tuner;
    result->bytes = bytes;
    result->trees = job->tree_count;
    int code = begin_size(job, bytes, &tuner);
    if (code == 0) {
        code = tune(job, result, tuner);
    }
    if (code == 0) {
        code = end_size(job, tuner, result);
    }
    poise_tuner_destroy(tuner);
    return code;
}

/* ---- all ------------------------------------------------------------------
 */

static int prepare(struct job *job, uint64_t bytes_max)
{
    int code = 0;
    job->size = poise_world_size(job->world);
    job->rank = poise_world_rank(job->world);
    job->places = poise_alloc((size_t)job->size, sizeof *job->places);
    if (!job->places) {
        code = -ENOMEM;
    }
    for (int rank = 0; rank < job->size && code == 0; rank++) {
        job->places[rank] = poise_world_placement(job->world, rank);
    }
    if (code == 0 && job->rank == 0) {
        code = poise_tune_trees_make(job->places, job->size, &job->trees,
                                     &job->tree_count);
    }
    code = poise_world_agree(job->world, code);
    if (code == 0) {
        code = poise_tune_loop_create(job->world, NULL, (size_t)bytes_max,
                                      &job->loop);
    }
    if (code == 0) {
        code = poise_tune_loop_operation(job->loop, operation_of(job));
    }
    if (code == 0) {
        code = poise_world_agree(
            job->world,
            copy_tree(poise_tune_loop_tree(job->loop), job->size, &job->first));
    }
    return code;
}

static int tune_all(struct job *job)
{
    const uint64_t *sizes = job->values->sizes;
    int count = job->values->count, code = 0;
    struct tune_result *results = poise_alloc((size_t)count, sizeof *results);
    code = poise_world_agree(job->world, results ? 0 : -ENOMEM);
    for (int i = 0; i < count && code == 0; i++) {
        if (job->rank == 0 && !job->values->json) {
            poise_buf_printf(&job->said, "%d ranks, %s, messages of ",
                             job->size,
                             poise_tune_operation_name(operation_of(job)));
            poise_human_bytes(&job->said, sizes[i]);
            poise_buf_puts(&job->said, ":\n");
        }
        code = tune_size(job, sizes[i], &results[i]);
    }
    if (code == 0 && job->rank == 0 && job->values->json) {
        struct poise_buf out = {0};
        tune_json(results, count, job->size, operation_of(job), &out);
        code = cli_write("tune", &out) == CLI_DONE ? 0 : -EIO;
        poise_buf_free(&out);
    }
    for (int i = 0; i < count && results; i++) {
        tune_result_free(&results[i]);
    }
    free(results);
    return code;
}

static int run(const struct values *values)
{
    struct job job = {.values = values};
    uint64_t most = 0;
    for (int i = 0; i < values->count; i++) {
        most = values->sizes[i] > most ? values->sizes[i] : most;
    }
    int code = poise_world_create(NULL, &job.world);
    if (code < 0) {
        return cli_fail("tune", code);
    }
    if (poise_world_size(job.world) < 2) {
        poise_world_destroy(job.world);
        cli_say("tune", "one process has no tree: mpirun -n 8 poise tune");
        return CLI_WRONG_USE;
    }
    job.meter.wanted = values->progress && poise_world_rank(job.world) == 0;
    code = prepare(&job, most);
    if (code == 0) {
        code = tune_all(&job);
    }
    cli_meter_wipe(&job.meter);
    int status = code < 0 ? cli_fail("tune", code) : CLI_DONE;
    poise_tune_loop_destroy(job.loop);
    poise_tune_trees_free(job.trees, job.tree_count);
    poise_coll_tree_free(job.first);
    poise_buf_free(&job.said);
    free(job.places);
    poise_world_destroy(job.world);
    return status;
}

/* The greatest message: longer ones go in pieces, which no longer show what a
 * call takes. */
#define SIZE_MOST (UINT64_C(64) << 20)

static int read_sizes(struct values *values)
{
    static const char *usual[] = {"8", "4K", "64K"};
    const char **names = values->names.count ? values->names.items : usual;
    bool is_barrier = values->operation == POISE_TUNE_BARRIER;
    if (is_barrier && values->names.count > 0) {
        cli_say("tune", "a barrier has no --size");
        return CLI_WRONG_USE;
    }
    values->count = values->names.count ? (int)values->names.count
                    : is_barrier        ? 1
                                        : 3;
    values->sizes = poise_alloc((size_t)values->count, sizeof(uint64_t));
    if (!values->sizes) {
        return cli_fail("tune", -ENOMEM);
    }
    for (int i = 0; i < values->count; i++) {
        if (poise_parse_bytes(names[i], &values->sizes[i]) < 0 ||
            values->sizes[i] == 0 || values->sizes[i] > SIZE_MOST) {
            cli_say("tune", "--size takes 1 to 64M, not '%s'", names[i]);
            return CLI_WRONG_USE;
        }
    }
    return CLI_DONE;
}

static int prepare_and_run(struct values *values)
{
    struct cli_standard standard;
    int status = read_sizes(values);
    if (status == CLI_DONE && values->output && values->count == 1) {
        status = cli_standard_output("tune", values->json, &values->output,
                                     NULL, &standard);
    }
    if (status == CLI_DONE && values->tree &&
        setenv("POISE_TREE", values->tree, 1) < 0) {
        status = cli_fail("tune", -errno);
    }
    if (status == CLI_DONE) {
        cli_catch_signals();
        status = run(values);
    }
    return status;
}

int cli_tune(int argc, char **argv)
{
    struct values values = {.iterations = 21,
                            .progress = cli_is_terminal(STDERR_FILENO)};
    int status = CLI_DONE;
    int first = cli_parse(&cli_tune_command, argc, argv, &values,
                          &values.common, &status);
    if (first >= 0 && first < argc) {
        cli_say("tune", "it takes no operands");
        status = CLI_WRONG_USE;
    } else if (first >= 0) {
        status = prepare_and_run(&values);
    }
    free(values.sizes);
    poise_strings_free(&values.names);
    return status;
}
