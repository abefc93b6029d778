/* poise sort: files larger than memory, sorted, merged, checked and generated.
 */
#include "internal.h"

#include <poise/file.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- words -------------------------------------------------------------- */

/* As POSIX has it for sort, 1 is for what is not sorted, and for nothing else:
 * scripts ask for it. */
static int failed(int status)
{
    return status == CLI_PARTLY ? CLI_WRONG_USE : status;
}

static int fail(int code)
{
    return failed(cli_fail("sort", code));
}

/* ---- what is done ------------------------------------------------------- */

/* The command as it is carried out. */
struct job {
    struct cli_sort_values *values;
    struct poise_sort_options sort;
    const char *in, *out;        /* the first input; NULL: no output */
    const char *shown;           /* that input as it was named */
    struct poise_strings inputs; /* as they are opened */
    bool checks, verifies;
    int debug_fd; /* where the lines go before they are shown; -1: nowhere */
};

/* Look through one file; `expected` is the checksum it has to have, or NULL. */
static int report(const struct job *job, const char *path,
                  const uint64_t *expected)
{
    struct poise_sort_options sort = job->sort;
    struct poise_sort_report report;
    int code, status;

    sort.more_count = 0;
    code = poise_sort_check(path, &sort, &report);
    if (code < 0) {
        return fail(code);
    }
    status = job->values->quiet
                 ? CLI_DONE
                 : failed(cli_sort_report(&report, job->values->disk.json));
    if (expected && *expected != report.checksum) {
        cli_say("sort",
                "'%s' does not hold the items of the input: their "
                "checksum is %016llx",
                path, (unsigned long long)*expected);
        status = CLI_PARTLY;
    }
    return report.sorted ? status : CLI_PARTLY;
}

/* Lines, as GNU sort -c looks at them. */
static int check_lines(const struct job *job)
{
    struct poise_buf line = {0};
    uint64_t number = 0;
    int code = poise_sort_find_disorder(job->in, &job->sort, &number, &line);
    int status = code < 0 ? fail(code) : number > 0 ? CLI_PARTLY : CLI_DONE;

    if (number > 0 && !job->values->quiet) {
        cli_say("sort", "%s:%llu: disorder: %s", job->shown,
                (unsigned long long)number, poise_buf_str(&line));
    }
    poise_buf_free(&line);
    return status;
}

static int check(const struct job *job)
{
    bool lines = job->sort.type.kind == POISE_SORT_LINES;

    return lines && !job->values->disk.json ? check_lines(job)
                                            : report(job, job->in, NULL);
}

static int plan(const struct job *job)
{
    struct poise_sort_forecast forecast;
    int code = poise_sort_plan(job->in, job->out, &job->sort, &forecast);

    return code < 0 ? fail(code)
                    : failed(cli_sort_plan(&forecast, job->values->disk.json));
}

/* The output again, if that was asked for, and the page, which says what came
 * of it. */
static int tell_more(const struct job *job,
                     const struct poise_sort_result *result, uint64_t ns,
                     const struct cli_series *series)
{
    const char *path = job->values->report;
    const char *checked = NULL;
    int status = CLI_DONE;

    if (job->verifies) {
        status = report(job, job->out,
                        job->sort.checksum ? &result->checksum : NULL);
        checked = status == CLI_PARTLY
                      ? "the output was read again: it is wrong"
                  : status != CLI_DONE
                      ? "the output was not checked: it could not be read again"
                  : job->sort.checksum
                      ? "the output was read again: it is sorted, and has the "
                        "checksum of the input"
                      : "the output was read again: it is sorted";
    }
    if (path) {
        int code = cli_sort_page(result, ns, series, checked, path);

        return code < 0 ? fail(code) : status;
    }
    return status;
}

static int sort(struct job *job)
{
    const struct cli_sort_values *values = job->values;
    struct poise_sort_result result;
    struct poise_sort_progress progress = {0};
    struct cli_extmem_line line;
    struct cli_series series = {0};
    struct poise_buf out = {0};
    uint64_t begin = poise_clock_ns();
    int status = CLI_DONE, code;

    job->sort.checksum =
        job->verifies && !job->sort.unique && job->sort.head == 0;
    cli_extmem_line_start(
        &line, values->progress && cli_extmem_is_first(job->sort.world),
        values->report ? &series : NULL, &progress.passed_bytes,
        &progress.total_bytes);
    job->sort.progress = line.is_on ? &progress : NULL;
    code = poise_sort_run(job->in, job->out, &job->sort, &result);
    cli_extmem_line_stop(&line);
    job->sort.progress = NULL;
    if (code < 0) {
        return fail(code);
    }
    begin = poise_clock_ns() - begin;
    if (!cli_extmem_is_first(job->sort.world)) {
        return CLI_DONE;
    }
    if (values->disk.verbose) {
        cli_sort_verbose(&result, begin, &out);
        cli_write_verbose(&out);
    }
    if (values->disk.json && !job->verifies) {
        cli_sort_json(&result, begin, &out);
        status = failed(cli_write("sort", &out));
    }
    poise_buf_free(&out);
    return status == CLI_DONE ? tell_more(job, &result, begin, &series)
                              : status;
}

/* What one process does, or all. */
static int dispatch(struct job *job)
{
    const struct cli_sort_values *values = job->values;
    bool makes = values->generate != CLI_SORT_NOT_GIVEN;
    int code;

    if (!makes && !job->checks && !values->merge && !values->dry_run) {
        return sort(job);
    }
    if (!cli_extmem_is_first(job->sort.world)) {
        return CLI_DONE;
    }
    if (values->dry_run) {
        return plan(job);
    }
    if (job->checks) {
        return check(job);
    }
    code = makes ? poise_sort_generate(job->out, &job->sort,
                                       (enum poise_sort_pattern)values->pattern,
                                       values->generate, (uint64_t)values->seed)
                 : poise_sort_merge(job->in, job->out, &job->sort,
                                    (unsigned)values->batch);
    return code < 0 ? fail(code) : CLI_DONE;
}

/* Each process would shuffle in its own way. */
static int refuse_random(const struct job *job)
{
    return job->sort.world && poise_world_size(job->sort.world) > 1 &&
                   poise_sort_keys_random(job->sort.type.keys) &&
                   !job->values->order.random_source
               ? cli_sort_refuse(
                     "several processes shuffle by --random-source only")
               : CLI_DONE;
}

/* With scratch folders, in a world. */
static int run(struct job *job)
{
    const struct cli_sort_values *values = job->values;
    struct poise_strings scratch = {0};
    char *text = NULL;
    int status = failed(cli_extmem_start("sort", &job->sort.world)), code;

    if (status != CLI_DONE) {
        return status;
    }
    code = cli_split_list(&values->disk.scratch, &text, &scratch);
    job->sort.scratch = scratch.items;
    job->sort.scratch_count = scratch.count;
    code = poise_world_agree(job->sort.world, code);
    status = code < 0 ? fail(code) : refuse_random(job);
    if (status == CLI_DONE) {
        status = dispatch(job);
    }
    poise_strings_free(&scratch);
    free(text);
    code = cli_extmem_end("sort", job->sort.world, &status);
    return code == CLI_DONE ? status : failed(code);
}

/* With what items are. */
static int run_typed(struct job *job)
{
    const struct cli_sort_values *values = job->values;
    struct poise_sort_keys *keys = NULL, *sums = NULL;
    int status = cli_sort_type(&values->order, &job->sort.type, &keys);

    if (status == CLI_DONE) {
        status = cli_sort_sums(&values->order, &job->sort.type, &sums);
        job->sort.sums = sums;
    }
    if (status == CLI_DONE) {
        status = run(job);
    }
    if (status == CLI_DONE && job->debug_fd >= 0) {
        status = failed(cli_sort_show(job->debug_fd, &job->sort.type));
    }
    poise_sort_keys_free(keys);
    poise_sort_keys_free(sums);
    return status;
}

/* ---- operands ----------------------------------------------------------- */

/* Names of inputs to open: of standard input, which comes to its end once, the
 * first. */
static int take_inputs(struct job *job, size_t count,
                       const char *const *operands)
{
    static const char *const standard = "-";
    bool any_standard = false;

    if (count == 0) {
        operands = &standard;
        count = 1;
    }
    job->inputs.items = poise_alloc(count, sizeof *job->inputs.items);
    if (!job->inputs.items) {
        return fail(-ENOMEM);
    }
    for (size_t i = 0; i < count; i++) {
        bool is_standard = strcmp(operands[i], "-") == 0;

        if (!is_standard || !any_standard) {
            job->inputs.items[job->inputs.count++] =
                cli_standard_input(operands[i]);
        }
        any_standard |= is_standard;
    }
    job->shown = operands[0];
    job->in = job->inputs.items[0];
    job->sort.more = job->inputs.items + 1;
    job->sort.more_count = job->inputs.count - 1;
    return CLI_DONE;
}

/* IN OUT, as it was: where there is a type, which GNU sort does not know. What
 * is there already may be meant as a second input. */
static int take_former(struct job *job, const char *const *operands)
{
    if (access(operands[1], F_OK) == 0) {
        cli_say("sort",
                "'%s' is there: to sort into it write IN -o OUT, to sort both "
                "files IN IN2 -o OUT (-o - for standard output)",
                operands[1]);
        return CLI_WRONG_USE;
    }
    cli_say("sort", "IN OUT is now IN -o OUT");
    job->out = operands[1];
    job->sort.in_place = job->values->in_place;
    job->verifies |= job->checks;
    job->checks = false;
    return take_inputs(job, 1, operands);
}

/* An output that was forgotten is not made, and a file that is there not taken
 * for one. */
static bool lacks_output(const struct job *job, size_t count,
                         const char *const *operands)
{
    return count == 2 && !job->out && !job->checks &&
           access(operands[1], F_OK) != 0 && strcmp(operands[1], "-") != 0;
}

static int take_operands(struct job *job, size_t count,
                         const char *const *operands)
{
    const struct cli_sort_values *values = job->values;

    job->out = values->out;
    job->sort.in_place = values->out != NULL || values->in_place;
    if (values->order.type && count == 2 && !values->out && !values->merge &&
        !values->names) {
        return take_former(job, operands);
    }
    if (job->checks && (count > 1 || values->out)) {
        return cli_sort_refuse(
            "-c, -C and --check look at one input, and write nothing");
    }
    if (values->in_place && (count != 1 || values->out)) {
        return cli_sort_refuse("--in-place takes one operand, and no --output");
    }
    if (values->in_place) {
        job->out = operands[0];
    }
    if (lacks_output(job, count, operands)) {
        cli_say("sort",
                "there is no file '%s' to read: an output is named by -o",
                operands[1]);
        return CLI_WRONG_USE;
    }
    if (!job->out && !job->checks) {
        job->out = "-";
    }
    return take_inputs(job, count, operands);
}

/* Into a file without a name, which then is shown. */
static int run_debug(struct job *job)
{
    struct poise_buf name = {0};
    int status = cli_sort_notes(&job->values->order);

    if (status != CLI_DONE) {
        return status;
    }
    job->debug_fd = poise_file_nameless(NULL, 0);
    if (job->debug_fd < 0) {
        return fail(job->debug_fd);
    }
    poise_buf_printf(&name, "/dev/fd/%d", job->debug_fd);
    job->out = poise_buf_str(&name);
    status = run_typed(job);
    close(job->debug_fd);
    poise_buf_free(&name);
    return status;
}

/* "-" becomes what stands there. */
static int run_named(struct job *job)
{
    const struct cli_sort_values *values = job->values;
    struct cli_standard standard;
    int status;

    if (values->debug) {
        return run_debug(job);
    }
    if (job->verifies && job->out && strcmp(job->out, "-") == 0) {
        return cli_sort_refuse(
            "--verify reads the output again: it cannot be '-'");
    }
    if (values->dry_run && job->out && strcmp(job->out, "-") == 0) {
        job->out = NULL;
    }
    status = failed(cli_standard_output("sort", values->disk.json, &job->out,
                                        &job->values->report, &standard));
    if (status == CLI_DONE) {
        status = failed(cli_page_check("sort", values->report));
    }
    return status == CLI_DONE ? run_typed(job) : status;
}

/* Tables: behind their headers they are lines. */
static int run_csv(struct job *job)
{
    struct cli_sort_values *values = job->values;
    const char *separator = values->order.separator;
    struct cli_sort_csv csv = {.separator = separator ? *separator : ','};
    char word[] = {csv.separator, '\0'};
    int code, status;

    if (separator && (strlen(separator) != 1 || strchr("\"\r\n", *separator))) {
        return cli_sort_refuse(
            "--csv takes fields that one character parts, no quote "
            "and no end of a line");
    }
    values->order.separator = word;
    code = cli_sort_csv_open(&csv, &job->inputs, &values->order.keys);
    if (code < 0) {
        cli_say_error("sort");
        status = CLI_WRONG_USE;
    } else {
        job->in = job->inputs.items[0];
        job->sort.header = csv.header.data;
        job->sort.header_bytes = csv.header.len;
        job->sort.filter = cli_sort_csv_filter;
        job->sort.filter_arg = &csv;
        status = run_named(job);
    }
    cli_sort_csv_close(&csv);
    return status;
}

static int run_operands(struct job *job, int count, char **operands)
{
    const struct cli_sort_values *values = job->values;
    const char *const *words = (const char *const *)operands;
    struct poise_strings names = {0};
    struct poise_buf text = {0};
    int status = CLI_DONE;

    if (values->generate != CLI_SORT_NOT_GIVEN) {
        job->out = words[0];
    } else if (values->names) {
        int code = cli_sort_names(values->names, &text, &names);

        status = code < 0 ? failed(fail(code))
                          : take_operands(job, names.count, names.items);
    } else {
        status = take_operands(job, (size_t)count, words);
    }
    if (status == CLI_DONE) {
        status = values->order.csv ? run_csv(job) : run_named(job);
    }
    poise_strings_free(&job->inputs);
    poise_strings_free(&names);
    poise_buf_free(&text);
    return status;
}

static int run_words(int argc, char **argv, const struct poise_strings *old)
{
    struct cli_sort_values values = {.generate = CLI_SORT_NOT_GIVEN,
                                     .head = CLI_SORT_NOT_GIVEN,
                                     .seed = 1,
                                     .check_how = -1,
                                     .progress = cli_is_terminal(STDERR_FILENO),
                                     .order = {.word = -1, .old_words = old}};
    int status = CLI_DONE;
    int first = cli_parse(&cli_sort_command, argc, argv, &values,
                          &values.common, &status);

    status = failed(status);
    if (first >= 0) {
        status = cli_sort_check_options(&values, argc - first);
    }
    if (first >= 0 && status == CLI_DONE) {
        struct job job = {
            .values = &values,
            .sort = {.memory_bytes = values.disk.memory,
                     .threads = (unsigned)values.disk.threads,
                     .unique = values.order.unique,
                     .count = values.count,
                     .head =
                         values.head == CLI_SORT_NOT_GIVEN ? 0 : values.head,
                     .sync = values.disk.sync,
                     .pack = (enum poise_sort_pack)values.zstd,
                     .pack_program = values.compress,
                     .disk = cli_extmem_disk(&values.disk)},
            .checks = values.check,
            .verifies = values.verify,
            .debug_fd = -1,
        };

        status = run_operands(&job, argc - first, argv + first);
    }
    poise_strings_free(&values.disk.scratch);
    poise_strings_free(&values.order.keys);
    poise_strings_free(&values.order.sums);
    poise_strings_free(&values.outs);
    return status;
}

int cli_sort(int argc, char **argv)
{
    struct poise_strings words = {0};
    int code = cli_sort_positions(&argc, argv, &words);
    int status = code < 0 ? fail(code) : run_words(argc, argv, &words);

    cli_sort_positions_free(&words);
    return status;
}
