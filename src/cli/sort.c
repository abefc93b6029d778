/* poise sort: files larger than memory, sorted, checked and generated. */
#include "cli/common/extmem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct values {
    struct cli_common common;
    struct cli_extmem disk;
    const char *type, *key;
    int64_t seed;
    uint64_t generate; /* NOT_GIVEN: sort */
    int pattern;
    bool unique, stable, check, in_place;
};

#define NOT_GIVEN UINT64_MAX

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What is sorted"},
    {POISE_OPTION_STRING, .name = "type", .arg = "TYPE",
     .help = "u32, i32, u64, i64, f32, f64, lines, record:LEN or "
             "record:LEN,OFFSET,KEYLEN (default: lines)",
     .offset = offsetof(struct values, type)},
    {POISE_OPTION_STRING, 'k', "key", "KEY",
     .help = "of records: OFFSET,KEYLEN for bytes, OFFSET:u64 (or another "
             "number's type) for a number",
     .offset = offsetof(struct values, key)},
    {POISE_OPTION_FLAG, 'u', "unique",
     .help = "of items with equal keys, keep the first only",
     .offset = offsetof(struct values, unique)},
    {POISE_OPTION_FLAG, 's', "stable",
     .help = "keep the order of equal keys (always so)",
     .offset = offsetof(struct values, stable)},
    {POISE_OPTION_FLAG, .name = "in-place",
     .help = "OUT may be IN: it is replaced when all is done",
     .offset = offsetof(struct values, in_place)},
    {POISE_OPTION_FLAG, 'c', "check",
     .help = "see whether IN is sorted; with OUT: sort, then read OUT again "
             "and compare its checksum with that of IN",
     .offset = offsetof(struct values, check)},
    {POISE_OPTION_HEADING, .help = "How it is done"},
    CLI_EXTMEM_OPTIONS(struct values, disk),
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
    .operands = "IN [OUT]",
    .summary = "sort a file that is larger than memory",
    .description =
        "Sorts numbers, records or lines by keys in ascending order, with two "
        "reads and two writes of the data at most, past the page cache. Lines "
        "are ordered as by LC_ALL=C sort. Floating point numbers are ordered "
        "as by totalOrder of IEEE 754: -NaN, -inf ... -0, +0 ... +inf, NaN.\n\n"
        "OUT appears when it is whole, under its name, or not at all; IN is "
        "never changed (--in-place replaces it at the end). Scratch files have "
        "no names: nothing is left of them, however the command ends. They "
        "take as much space as IN at most, OUT as much again.\n\n"
        "IN and OUT may be -, standard input and output. What is no file, as a "
        "pipe, is first copied into a scratch file, which takes as much space "
        "once more.\n\n"
        "Started by mpirun, srun or the like, all processes sort together, "
        "each "
        "with its part of the data; OUT is the same. IN then has to be a "
        "file.\n\n"
        "With --check the number of items, a checksum that does not depend on "
        "their order, and the number of keys that equal their predecessor are "
        "printed.",
    .options = options,
    .examples =
        "poise sort --type u64 in.bin out.bin\tnumbers\n"
        "poise sort --type record:100,0,10 --memory 4G --scratch /a,/b in "
        "out\trecords, two disks\n"
        "mpirun -n 4 poise sort --type u64 in.bin out.bin\tby four processes\n"
        "poise sort --type record:24 --key 16:f64 in out\ta number in records\n"
        "poise sort --check --type u64 out.bin\tis it sorted?\n"
        "poise sort --generate 1M --type u64 in.bin\ttest data\n",
    .exits = "0\tdone; with --check: sorted\n1\tnot sorted (--check only)\n"
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

static void print_verbose(const struct poise_sort_result *r, uint64_t ns,
                          struct poise_buf *out)
{
    poise_buf_puts(out, "poise sort: ");
    poise_human_count(out, r->items_in);
    poise_buf_puts(out, " items, ");
    poise_human_bytes(out, r->bytes_in);
    poise_buf_printf(out, " in %.2f s (%.0f MB/s)\n", cli_seconds(ns),
                     (double)r->bytes_in / cli_seconds(ns ? ns : 1) / 1e6);
    poise_buf_printf(out, "  sample %.2f s, distribute %.2f s, sort %.2f s\n",
                     cli_seconds(r->sample_ns), cli_seconds(r->distribute_ns),
                     cli_seconds(r->sort_ns));
    poise_buf_puts(out, "  memory ");
    poise_human_bytes(out, r->memory_bytes);
    if (r->processes > 1) {
        poise_buf_printf(out, ", %u processes", r->processes);
    }
    poise_buf_printf(out,
                     ", %u threads, %llu buckets (largest %.2f of the "
                     "mean, %llu split), blocks of ",
                     r->threads, (unsigned long long)r->buckets,
                     r->mean_bytes > 0
                         ? (double)r->largest_bytes / (double)r->mean_bytes
                         : 0.0,
                     (unsigned long long)r->splits);
    poise_human_bytes(out, r->block_bytes);
    poise_buf_puts(out, "\n  read ");
    poise_human_bytes(out, r->read_bytes);
    poise_buf_puts(out, ", written ");
    poise_human_bytes(out, r->written_bytes);
    poise_buf_puts(out, " (scratch ");
    poise_human_bytes(out, r->scratch_bytes);
    poise_buf_printf(out,
                     ") by %s; past the page cache: input %s, scratch %s, "
                     "output %s\n",
                     r->engine, r->direct_in ? "yes" : "no",
                     r->direct_scratch ? "yes" : "no",
                     r->direct_out ? "yes" : "no");
}

static void print_json(const struct poise_sort_result *r, uint64_t ns,
                       struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    poise_json_object(&json, NULL);
    poise_json_u64(&json, "items_in", r->items_in);
    poise_json_u64(&json, "items_out", r->items_out);
    poise_json_u64(&json, "bytes_in", r->bytes_in);
    poise_json_u64(&json, "bytes_out", r->bytes_out);
    poise_json_double(&json, "seconds", cli_seconds(ns));
    poise_json_double(&json, "sample_seconds", cli_seconds(r->sample_ns));
    poise_json_double(&json, "distribute_seconds",
                      cli_seconds(r->distribute_ns));
    poise_json_double(&json, "sort_seconds", cli_seconds(r->sort_ns));
    poise_json_u64(&json, "memory_bytes", r->memory_bytes);
    poise_json_u64(&json, "processes", r->processes);
    poise_json_u64(&json, "threads", r->threads);
    poise_json_u64(&json, "buckets", r->buckets);
    poise_json_u64(&json, "largest_bucket_bytes", r->largest_bytes);
    poise_json_u64(&json, "mean_bucket_bytes", r->mean_bytes);
    poise_json_u64(&json, "splits", r->splits);
    poise_json_u64(&json, "block_bytes", r->block_bytes);
    poise_json_u64(&json, "read_bytes", r->read_bytes);
    poise_json_u64(&json, "written_bytes", r->written_bytes);
    poise_json_u64(&json, "scratch_bytes", r->scratch_bytes);
    poise_json_string(&json, "io", r->engine);
    poise_json_bool(&json, "direct_in", r->direct_in);
    poise_json_bool(&json, "direct_scratch", r->direct_scratch);
    poise_json_bool(&json, "direct_out", r->direct_out);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

static void print_report(const struct poise_sort_report *report, bool as_json,
                         struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    if (as_json) {
        poise_json_object(&json, NULL);
        poise_json_u64(&json, "items", report->items);
        poise_json_u64(&json, "bytes", report->bytes);
        poise_json_u64(&json, "checksum", report->checksum);
        poise_json_u64(&json, "duplicates", report->duplicates);
        poise_json_bool(&json, "sorted", report->sorted);
        if (!report->sorted) {
            poise_json_u64(&json, "first_unsorted", report->first_unsorted);
        }
        poise_json_end_object(&json);
        poise_buf_putc(out, '\n');
        return;
    }
    poise_buf_printf(
        out, "items      %llu\nchecksum   %016llx\nduplicates %llu\n",
        (unsigned long long)report->items, (unsigned long long)report->checksum,
        (unsigned long long)report->duplicates);
    if (report->sorted) {
        poise_buf_puts(out, "sorted     yes\n");
    } else {
        poise_buf_printf(out,
                         "sorted     no: item %llu is less than its "
                         "predecessor\n",
                         (unsigned long long)report->first_unsorted);
    }
}

/* ---- what is done ------------------------------------------------------- */

/* Check one file; `expected` is the checksum it has to have, or NULL. */
static int check(const struct values *values,
                 const struct poise_sort_options *sort, const char *path,
                 const uint64_t *expected)
{
    struct poise_sort_report report;
    struct poise_buf out = {0};
    int code = poise_sort_check(path, sort, &report);
    int status;

    if (code < 0) {
        return fail(code);
    }
    print_report(&report, values->disk.json, &out);
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

static int sort(const struct values *values, struct poise_sort_options *sort,
                const char *in, const char *out_path)
{
    struct poise_sort_result result;
    struct poise_buf out = {0};
    uint64_t begin = poise_clock_ns();
    int status = CLI_DONE, code;

    sort->checksum = values->check && !values->unique;
    code = poise_sort_run(in, out_path, sort, &result);
    if (code < 0) {
        return fail(code);
    }
    begin = poise_clock_ns() - begin;
    if (!cli_extmem_is_first(sort->world)) {
        return CLI_DONE;
    }
    if (values->disk.verbose) {
        print_verbose(&result, begin, &out);
        cli_write_verbose(&out);
    }
    if (values->disk.json && !values->check) {
        print_json(&result, begin, &out);
        status = failed(cli_write("sort", &out));
    }
    poise_buf_free(&out);
    if (values->check && status == CLI_DONE) {
        status = check(values, sort, out_path,
                       sort->checksum ? &result.checksum : NULL);
    }
    return status;
}

/* What one process does, or all. */
static int dispatch(const struct values *values,
                    struct poise_sort_options *sort_options, int count,
                    const char *const *operands)
{
    int code;

    if (values->generate == NOT_GIVEN && count == 2) {
        return sort(values, sort_options, operands[0], operands[1]);
    }
    if (!cli_extmem_is_first(sort_options->world)) {
        return CLI_DONE;
    }
    if (values->generate == NOT_GIVEN) {
        return check(values, sort_options, operands[0], NULL);
    }
    code = poise_sort_generate(operands[0], sort_options,
                               (enum poise_sort_pattern)values->pattern,
                               values->generate, (uint64_t)values->seed);
    return code < 0 ? fail(code) : CLI_DONE;
}

static int run(const struct values *values, int count,
               const char *const *operands)
{
    struct poise_sort_options sort_options = {
        .memory_bytes = values->disk.memory,
        .threads = (unsigned)values->disk.threads,
        .unique = values->unique,
        .in_place = values->in_place,
        .sync = values->disk.sync,
        .disk = cli_extmem_disk(&values->disk),
    };
    struct poise_strings scratch = {0};
    char *text = NULL;
    int status, code;

    code = poise_sort_type_parse(values->type ? values->type : "lines",
                                 values->key, &sort_options.type);
    if (code < 0) {
        cli_say_error("sort");
        return CLI_WRONG_USE;
    }
    status = cli_extmem_start("sort", &sort_options.world);
    if (status != CLI_DONE) {
        return status;
    }
    code = cli_split_list(&values->disk.scratch, &text, &scratch);
    sort_options.scratch = scratch.items;
    sort_options.scratch_count = scratch.count;
    code = poise_world_agree(sort_options.world, code);
    status = code < 0 ? fail(code)
                      : dispatch(values, &sort_options, count, operands);
    poise_strings_free(&scratch);
    free(text);
    return cli_extmem_end("sort", sort_options.world, status);
}

/* IN, OUT, or both; "-" is standard input or output. */
static int run_named(const struct values *values, int count, char **operands)
{
    struct cli_standard standard;
    const char *names[2] = {operands[0], count > 1 ? operands[1] : NULL};
    bool makes = values->generate != NOT_GIVEN;
    const char **out = makes ? &names[0] : &names[1];
    int status;

    if (values->check && names[1] && strcmp(names[1], "-") == 0) {
        cli_say("sort", "--check reads OUT again: it cannot be '-'");
        return CLI_WRONG_USE;
    }
    status =
        cli_standard_output("sort", values->disk.json, out, NULL, &standard);
    if (!makes) {
        names[0] = cli_standard_input(names[0]);
    }
    return status == CLI_DONE ? run(values, count, names) : status;
}

int cli_sort(int argc, char **argv)
{
    struct values values = {.generate = NOT_GIVEN, .seed = 1};
    int status = CLI_DONE;
    int first = cli_parse(&cli_sort_command, argc, argv, &values,
                          &values.common, &status);
    int count = argc - first;

    if (first >= 0 && values.generate != NOT_GIVEN && count != 1) {
        cli_say("sort", "--generate takes one operand, the file to write");
        status = CLI_WRONG_USE;
    } else if (first >= 0 && values.generate == NOT_GIVEN && count != 2 &&
               !(values.check && count == 1)) {
        cli_say("sort", "two operands are needed, IN and OUT (with --check one "
                        "will do)");
        status = CLI_WRONG_USE;
    } else if (first >= 0) {
        status = run_named(&values, count, argv + first);
    }
    poise_strings_free(&values.disk.scratch);
    return status;
}
