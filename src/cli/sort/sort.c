/* poise sort: files larger than memory, sorted, merged, checked and generated.
 */
#include "internal.h"

#include <poise/file.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    struct cli_extmem disk;
    struct cli_sort_order order;
    int64_t seed, batch;
    uint64_t generate;         /* NOT_GIVEN: sort */
    uint64_t head;             /* NOT_GIVEN: all */
    struct poise_strings outs; /* all the same */
    const char *out, *names, *size, *compress, *report;
    int pattern, zstd;
    int check_how; /* -1: not asked for */
    bool progress, check, quiet, verify, merge, in_place, dry_run, count, debug;
};

#define NOT_GIVEN UINT64_MAX

static const char *const check_words[] = {"diagnose-first", "quiet", "silent",
                                          NULL};

/* As enum poise_sort_pack has them. */
static const char *const zstd_words[] = {"auto", "always", "never", NULL};

#define LETTER(letter, long_name, what)                                        \
    {                                                                          \
        POISE_OPTION_FLAG, (#letter)[0], long_name,                            \
            .help = what,                                                      \
            .offset = offsetof(struct values, order.letters.letter)            \
    }

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "How lines are ordered, as by GNU sort"},
    LETTER(b, "ignore-leading-blanks", "ignore leading blanks"),
    LETTER(d, "dictionary-order", "consider only blanks, letters and digits"),
    LETTER(f, "ignore-case", "take lower case for upper case"),
    LETTER(g, "general-numeric-sort", "by floating point numbers, as 1e-3"),
    LETTER(h, "human-numeric-sort", "by numbers with units, as 2K 1G"),
    LETTER(i, "ignore-nonprinting", "consider only printable characters"),
    LETTER(M, "month-sort", "by names of months: unknown < JAN < ... < DEC"),
    LETTER(n, "numeric-sort", "by decimal numbers of any length"),
    LETTER(R, "random-sort", "shuffle, but group keys that are equal"),
    LETTER(r, "reverse", "the other way round"),
    LETTER(V, "version-sort", "by versions, as a-1.9 < a-1.10"),
    {POISE_OPTION_ENUM, .name = "sort", .arg = "WORD",
     .help = "the same as -g, -h, -M, -n, -R or -V",
     .offset = offsetof(struct values, order.word), .choices = cli_sort_words},
    {POISE_OPTION_STRING, .name = "random-source", .arg = "FILE",
     .help = "shuffle by the first bytes of FILE: the same for the same",
     .offset = offsetof(struct values, order.random_source)},
    {POISE_OPTION_LIST, 'k', "key", "KEY",
     .help = "F[.C][LETTERS][,F[.C][LETTERS]]: from field F, character C, to "
             "the end of the line or the second place; can be repeated. Of "
             "records: OFFSET,KEYLEN for bytes, OFFSET:u64 (or another "
             "number's type) for a number, r behind it for the greatest first. "
             "With --csv: NAME[:LETTERS], a column by its name",
     .offset = offsetof(struct values, order.keys)},
    {POISE_OPTION_STRING, 't', "field-separator", "CHAR",
     .help = "what parts fields (default: between a blank and what precedes)",
     .offset = offsetof(struct values, order.separator)},
    {POISE_OPTION_FLAG, 'u', "unique",
     .help = "of items with equal keys, keep the first only",
     .offset = offsetof(struct values, order.unique)},
    {POISE_OPTION_FLAG, .name = "count",
     .help = "of lines with equal keys the first, their number before it: "
             "sort | uniq -c for -k",
     .offset = offsetof(struct values, count)},
    {POISE_OPTION_LIST, .name = "sum", .arg = "FIELD",
     .help = "of items with equal keys the first, with this field the sum of "
             "theirs; can be repeated. Of lines the field's number, of records "
             "OFFSET:u64 or another number's type",
     .offset = offsetof(struct values, order.sums)},
    {POISE_OPTION_BYTES, .name = "head", .arg = "N",
     .help = "write the first N items only; not all are stored for it",
     .offset = offsetof(struct values, head)},
    {POISE_OPTION_FLAG, 's', "stable",
     .help = "keep the order of equal keys (of lines: do not compare all of "
             "them at last)",
     .offset = offsetof(struct values, order.stable)},
    {POISE_OPTION_FLAG, 'z', "zero-terminated", .help = "lines end with NUL",
     .offset = offsetof(struct values, order.zero_ended)},
    {POISE_OPTION_HEADING, .help = "What is done"},
    {POISE_OPTION_STRING, .name = "type", .arg = "TYPE",
     .help = "u32, i32, u64, i64, f32, f64, lines, record:LEN or "
             "record:LEN,OFFSET,KEYLEN (default: lines)",
     .offset = offsetof(struct values, order.type)},
    {POISE_OPTION_FLAG, .name = "csv",
     .help = "rows of CSV behind one with the names of columns, which stays "
             "the first: -k NAME[:LETTERS] names one, -t what parts fields "
             "(default: ,); quotes count, and may hold newlines",
     .offset = offsetof(struct values, order.csv)},
    {POISE_OPTION_FLAG, .name = "dry-run",
     .help = "write nothing: say how often the data would be read and written, "
             "and how long the disk takes for that",
     .offset = offsetof(struct values, dry_run)},
    {POISE_OPTION_FLAG, .name = "debug",
     .help = "show below each line what of it the keys look at, and say on "
             "stderr what is questionable about them",
     .offset = offsetof(struct values, debug)},
    {POISE_OPTION_LIST, 'o', "output", "FILE",
     .help = "write there, not to standard output; it may be an input",
     .offset = offsetof(struct values, outs)},
    {POISE_OPTION_FLAG, .name = "in-place",
     .help = "the one input is the output, too",
     .offset = offsetof(struct values, in_place)},
    {POISE_OPTION_STRING, .name = "files0-from", .arg = "FILE",
     .help = "inputs are the names in FILE, each with a NUL behind it",
     .offset = offsetof(struct values, names)},
    {POISE_OPTION_FLAG, 'c',
     .help = "see whether the one input is sorted, and say where not",
     .offset = offsetof(struct values, check)},
    {POISE_OPTION_FLAG, 'C', .help = "the same without a word",
     .offset = offsetof(struct values, quiet)},
    {POISE_OPTION_ENUM, .name = "check", .arg = "WORD",
     .help = "diagnose-first: like -c; quiet, silent: like -C. Of numbers and "
             "records, and with --json: how many, and a checksum",
     .offset = offsetof(struct values, check_how), .implied = "diagnose-first",
     .choices = check_words},
    {POISE_OPTION_FLAG, .name = "verify",
     .help = "sort, then read the output again and compare its checksum with "
             "that of what was read",
     .offset = offsetof(struct values, verify)},
    {POISE_OPTION_FLAG, 'm', "merge",
     .help = "the inputs are sorted: merge them",
     .offset = offsetof(struct values, merge)},
    {POISE_OPTION_INT, .name = "batch-size", .arg = "N",
     .help = "merge N files at a time (default: 16)",
     .offset = offsetof(struct values, batch), .min = 2, .max = 100000},
    {POISE_OPTION_HEADING, .help = "How it is done"},
    CLI_EXTMEM_OPTIONS(struct values, disk),
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "a page of plots and tables (HTML)",
     .offset = offsetof(struct values, report)},
    CLI_PROGRESS_OPTION(struct values, progress),
    {POISE_OPTION_STRING, 'S', "buffer-size", "SIZE",
     .help = "like --memory, in KiB without a letter, N% of the machine's; "
             "less than 4M is taken for 4M",
     .offset = offsetof(struct values, size)},
    {POISE_OPTION_LIST, 'T', "temporary-directory", "DIR",
     .help = "like --scratch; can be repeated",
     .offset = offsetof(struct values, disk.scratch)},
    {POISE_OPTION_INT, .name = "p", .arg = "N", /* as GNU sort shortens it */
     .offset = offsetof(struct values, disk.threads), .min = 1, .max = 256},
    {POISE_OPTION_INT, .name = "parallel", .arg = "N", .help = "like --threads",
     .offset = offsetof(struct values, disk.threads), .min = 1, .max = 256},
    {POISE_OPTION_STRING, .name = "compress-program", .arg = "PROGRAM",
     .help = "compress blocks of scratch files by PROGRAM, from standard input "
             "to standard output, and back by PROGRAM -d; a program for each "
             "block: --zstd is many times faster",
     .offset = offsetof(struct values, compress)},
    {POISE_OPTION_ENUM, .name = "zstd", .arg = "WHEN", .implied = "always",
     .help = "compress scratch files by Zstandard: always, never, or auto: "
             "where that is quicker, by what the disk and some of the data "
             "take (default: auto)",
     .offset = offsetof(struct values, zstd), .choices = zstd_words},
    {POISE_OPTION_HEADING, .help = "Data to try it with"},
    {POISE_OPTION_BYTES, .name = "generate", .arg = "N",
     .help = "write N items of the type into the one file named; N may end "
             "in K, M, G, ... as sizes do",
     .offset = offsetof(struct values, generate)},
    {POISE_OPTION_ENUM, .name = "pattern", .arg = "NAME",
     .help = "their keys (default: random)",
     .offset = offsetof(struct values, pattern),
     .choices = poise_sort_pattern_names},
    {POISE_OPTION_INT, .name = "seed", .arg = "N",
     .help = "start of the random keys (default: 1)",
     .offset = offsetof(struct values, seed), .min = 0, .max = INT64_MAX},
    {POISE_OPTION_HEADING, .help = "Words"},
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_sort_command = {
    .name = "sort",
    .operands = "[IN]...",
    .summary = "sort files that are larger than memory",
    .description =
        "Sorts lines as GNU sort does, with its options and its answers, or "
        "numbers or records (--type) by keys in ascending order; past the page "
        "cache, each byte read twice and written twice if there is memory "
        "enough (--verbose says what it came to). The inputs are read as if "
        "they were one file, standard input if there is none. Lines are "
        "ordered as LC_ALL, LC_COLLATE or LANG say; bytes, by LC_ALL=C, is "
        "quickest. Floating point numbers (f32, f64) are ordered as by "
        "totalOrder of IEEE 754: -NaN, -inf ... -0, +0 ... +inf, NaN.\n\n"
        "The output appears when it is whole, under its name, or not at all; "
        "it may be one of the inputs, which else are never changed. Scratch "
        "files have no names: nothing is left of them, however the command "
        "ends. They take as much space as the inputs at most, the output as "
        "much again.\n\n"
        "An input or the output may be -, standard input and output. What is "
        "no file, as a pipe, is first copied into a scratch file, which takes "
        "as much space once more; --merge and -c copy nothing.\n\n"
        "Started by mpirun, srun or the like, all processes sort together, "
        "each "
        "with its part of the data; the output is the same. Inputs then have "
        "to be files.\n\n"
        "With --type, IN OUT still means IN -o OUT in this release.",
    .options = options,
    .examples =
        "poise sort -t, -k3,3nr -k1,1 table.csv -o sorted.csv\tlines by their "
        "third field, a number, the greatest first, then by their first\n"
        "poise sort --csv -k amount:nr -k name sales.csv -o sorted.csv\ta "
        "table "
        "by its columns\n"
        "poise sort -u words1 words2 >all\tseveral inputs, each line once\n"
        "poise sort --in-place list\tthe output is the input\n"
        "poise sort --type u64 in.bin -o out.bin\tnumbers\n"
        "poise sort --type record:100,0,10 --memory 4G --scratch /a,/b in -o "
        "out\trecords, two disks\n"
        "mpirun -n 4 poise sort --type u64 in.bin -o out.bin\tby four "
        "processes\n"
        "poise sort --type record:24 -k 16:f64r -k 0,8 in -o out\trecords by a "
        "number, the greatest first, then by bytes\n"
        "poise sort --check --type u64 out.bin\tis it sorted?\n"
        "poise sort --generate 1M --type u64 in.bin\ttest data\n",
    .exits = "0\tdone; with -c, -C, --check: sorted\n1\tnot sorted (-c, -C, "
             "--check, --verify)\n"
             "2\tnot done, or wrong use\n3\tthe machine lacks something\n",
};

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

static int refuse(const char *why)
{
    cli_say("sort", "%s", why);
    return CLI_WRONG_USE;
}

/* ---- what is done ------------------------------------------------------- */

/* The command as it is carried out. */
struct job {
    struct values *values;
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
    struct poise_buf out = {0};
    int code, status;

    sort.more_count = 0;
    code = poise_sort_check(path, &sort, &report);
    if (code < 0) {
        return fail(code);
    }
    cli_sort_report(&report, job->values->disk.json, &out);
    status = failed(cli_write("sort", &out));
    poise_buf_free(&out);
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
    struct poise_buf out = {0};
    int code = poise_sort_plan(job->in, job->out, &job->sort, &forecast);
    int status;

    if (code < 0) {
        return fail(code);
    }
    cli_sort_plan(&forecast, job->values->disk.json, &out);
    status = failed(cli_write("sort", &out));
    poise_buf_free(&out);
    return status;
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
        checked = status != CLI_DONE ? "the output was read again: it is wrong"
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
    const struct values *values = job->values;
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
    const struct values *values = job->values;
    bool makes = values->generate != NOT_GIVEN;
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
               ? refuse("several processes shuffle by --random-source only")
               : CLI_DONE;
}

/* With scratch folders, in a world. */
static int run(struct job *job)
{
    const struct values *values = job->values;
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
    const struct values *values = job->values;
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

/* IN OUT, as it was: where there is a type, which GNU sort does not know. */
static int take_former(struct job *job, const char *const *operands)
{
    const struct values *values = job->values;

    cli_say("sort", "IN OUT is now IN -o OUT");
    job->out = operands[1];
    job->sort.in_place = values->in_place;
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
    const struct values *values = job->values;

    job->out = values->out;
    job->sort.in_place = values->out != NULL || values->in_place;
    if (values->order.type && count == 2 && !values->out && !values->merge &&
        !values->names) {
        return take_former(job, operands);
    }
    if (job->checks && (count > 1 || values->out)) {
        return refuse(
            "-c, -C and --check look at one input, and write nothing");
    }
    if (values->in_place && (count != 1 || values->out)) {
        return refuse("--in-place takes one operand, and no --output");
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
    const struct values *values = job->values;
    struct cli_standard standard;
    int status;

    if (values->debug) {
        return run_debug(job);
    }
    if (job->verifies && job->out && strcmp(job->out, "-") == 0) {
        return refuse("--verify reads the output again: it cannot be '-'");
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
    struct values *values = job->values;
    struct cli_sort_csv csv = {
        .separator = values->order.separator ? *values->order.separator : ','};
    const char *separator = values->order.separator;
    char word[] = {csv.separator, '\0'};
    int code, status;

    if (separator && (strlen(separator) != 1 || strchr("\"\r\n", *separator))) {
        return refuse("--csv takes fields that one character parts, no quote "
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
    const struct values *values = job->values;
    const char *const *words = (const char *const *)operands;
    struct poise_strings names = {0};
    struct poise_buf text = {0};
    int status = CLI_DONE;

    if (values->generate != NOT_GIVEN) {
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

/* Whether something else is to be done than to sort. */
static bool is_no_sort(const struct values *values)
{
    return values->check || values->quiet || values->check_how >= 0 ||
           values->merge || values->generate != NOT_GIVEN;
}

/* What tables, and what is shown, cannot have. */
static int check_lines_only(const struct values *values)
{
    bool totals = values->count || values->order.sums.count > 0;
    bool others = totals || values->verify || values->dry_run;
    bool typed = values->order.type && strcmp(values->order.type, "lines") != 0;

    if (values->order.csv && (is_no_sort(values) || others || typed ||
                              values->debug || values->order.zero_ended)) {
        return refuse("--csv only sorts: it goes with none of -c, -m, -z, "
                      "--check, --count, --debug, --dry-run, --sum, --type and "
                      "--verify");
    }
    if (values->debug &&
        (others || typed || values->check || values->quiet ||
         values->check_how >= 0 || values->generate != NOT_GIVEN ||
         values->disk.json || values->in_place || values->outs.count > 0)) {
        return refuse("--debug shows lines on standard output: it is for "
                      "sorting and merging them, without -o");
    }
    return CLI_DONE;
}

/* What is for sorting alone. */
static int check_sorting(const struct values *values)
{
    bool totals = values->count || values->order.sums.count > 0;

    if (values->report &&
        (is_no_sort(values) || values->dry_run || values->debug)) {
        return refuse("--report is for sorting");
    }
    if (values->dry_run && (is_no_sort(values) || values->verify)) {
        return refuse("--dry-run is for sorting alone");
    }
    if (values->head != NOT_GIVEN &&
        (is_no_sort(values) || values->head == 0)) {
        return refuse("--head is for sorting, and takes a number from 1 on");
    }
    if (totals && (is_no_sort(values) || values->verify)) {
        return refuse("--count and --sum are for sorting");
    }
    return CLI_DONE;
}

/* What of the options fits together. */
static int check_options(struct values *values, int count)
{
    bool quiet = values->quiet || values->check_how > 0;

    if (values->quiet && (values->check || values->check_how == 0)) {
        return refuse("-c and -C exclude each other");
    }
    if (check_sorting(values) != CLI_DONE ||
        check_lines_only(values) != CLI_DONE) {
        return CLI_WRONG_USE;
    }
    if (values->names && count > 0) {
        return refuse("operands cannot be combined with --files0-from");
    }
    if (values->generate != NOT_GIVEN && count != 1) {
        return refuse("--generate takes one operand, the file to write");
    }
    if (values->size && cli_sort_size(values->size, &values->disk.memory) < 0) {
        cli_say_error("sort");
        return CLI_WRONG_USE;
    }
    for (size_t k = 0; k < values->outs.count; k++) {
        values->out = values->outs.items[k];
        if (strcmp(values->out, values->outs.items[0]) != 0) {
            return refuse("there are several outputs");
        }
    }
    values->order.is_shown = values->debug;
    values->order.unique |= values->count || values->order.sums.count > 0;
    values->check |= quiet || values->check_how >= 0;
    values->quiet = quiet;
    return CLI_DONE;
}

static int run_words(int argc, char **argv, const struct poise_strings *old)
{
    struct values values = {.generate = NOT_GIVEN,
                            .head = NOT_GIVEN,
                            .seed = 1,
                            .check_how = -1,
                            .progress = cli_is_terminal(STDERR_FILENO),
                            .order = {.word = -1, .old_words = old}};
    int status = CLI_DONE;
    int first = cli_parse(&cli_sort_command, argc, argv, &values,
                          &values.common, &status);

    status = failed(status);
    if (first >= 0) {
        status = check_options(&values, argc - first);
    }
    if (first >= 0 && status == CLI_DONE) {
        struct job job = {
            .values = &values,
            .sort = {.memory_bytes = values.disk.memory,
                     .threads = (unsigned)values.disk.threads,
                     .unique = values.order.unique,
                     .count = values.count,
                     .head = values.head == NOT_GIVEN ? 0 : values.head,
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
