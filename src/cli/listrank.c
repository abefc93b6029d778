/* poise listrank: ranks of linked lists larger than memory. */
#include "cli/common/series.h"
#include "cli/extmem/extmem.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    struct cli_extmem disk;
    const char *weights, *report;
    int64_t seed;
    uint64_t generate; /* NOT_GIVEN: rank */
    uint64_t lists;
    int pattern;
    bool check, progress;
};

#define NOT_GIVEN UINT64_MAX

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What to do"},
    {POISE_OPTION_STRING, 'w', "weights", "FILE",
     .help = "distances of the nodes from their successors, 64-bit numbers "
             "(default: 1 each)",
     .offset = offsetof(struct values, weights)},
    {POISE_OPTION_FLAG, .name = "check",
     .help = "do not rank; check that OUT holds the ranks of IN",
     .offset = offsetof(struct values, check)},
    {POISE_OPTION_FLAG, 'c', .renamed = "--check",
     .offset = offsetof(struct values, check)},
    {POISE_OPTION_HEADING, .help = "How it runs"},
    CLI_EXTMEM_OPTIONS(struct values, disk),
    CLI_PROGRESS_OPTION(struct values, progress),
    CLI_EXTMEM_RENAMED(struct values, disk),
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page of plots and tables (HTML)",
     .offset = offsetof(struct values, report)},
    {POISE_OPTION_HEADING, .help = "Data to try it with"},
    {POISE_OPTION_BYTES, .name = "generate", .arg = "N",
     .help = "write lists of N nodes into the named file; N may end in K, "
             "M, G, ... as sizes do",
     .offset = offsetof(struct values, generate)},
    {POISE_OPTION_BYTES, .name = "lists", .arg = "N",
     .help = "make N lists, of about the same length (default: 1)",
     .offset = offsetof(struct values, lists)},
    {POISE_OPTION_ENUM, .name = "pattern", .arg = "NAME",
     .help = "how the lists go through the file (default: random)",
     .offset = offsetof(struct values, pattern),
     .choices = poise_listrank_pattern_names},
    {POISE_OPTION_INT, .name = "seed", .arg = "N",
     .help = "seed of the random order (default: 1)",
     .offset = offsetof(struct values, seed), .min = 0, .max = INT64_MAX},
    {POISE_OPTION_HEADING, .help = "Output"},
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_listrank_command = {
    .name = "listrank",
    .operands = "IN [OUT]",
    .summary = "rank the nodes of linked lists by how far the end is",
    .description =
        "IN holds a 64-bit number for each node: the index of its "
        "successor. The last node of a list is its own successor (or "
        "has 2^64-1); there may be any number of lists. OUT gets a "
        "64-bit number for each node: how many links, or what sum of "
        "weights, lie between it and the last node of its list.\n\n"
        "With 17 bytes of memory for each node, threads walk the list "
        "in memory from many random nodes at once. With less, it works "
        "on pieces of the file, with sequential reads and writes only; "
        "scratch files take up to 28 bytes for each node.\n\n"
        "Under mpirun on one machine, the first process does it with "
        "the threads of all. On several machines the processes share "
        "the work if their memory is enough together; otherwise the "
        "first one does it alone.\n\n"
        "IN, OUT and the FILE of --weights may be -, standard input or "
        "output. A pipe is first copied into a scratch file, which "
        "processes on several machines cannot share.\n\n"
        "A node with two predecessors, a cycle, or a successor past "
        "the end is an error that names the node; then there is no OUT.",
    .options = options,
    .examples = "poise listrank list ranks\trank a list, in memory if it fits\n"
                "poise listrank --memory 64M --scratch /a,/b list ranks\twith "
                "64 MiB of memory and two scratch disks\n"
                "poise listrank --generate 1M --lists 3 list\tmake test data\n"
                "poise listrank --check list ranks\tcheck the ranks\n",
    .exits = "0\tdone; with --check: the ranks are right\n"
             "1\tit failed, IN is not a list, or its ranks are wrong\n"
             "2\twrong use\n"
             "3\tthis machine lacks something that is needed\n",
    .see = "poise-sort(1) docs/listrank.md",
};

/* ---- words -------------------------------------------------------------- */

static void print_verbose(const struct poise_listrank_result *r, uint64_t ns,
                          struct poise_buf *out)
{
    poise_buf_puts(out, "poise listrank: ");
    poise_human_count(out, r->nodes);
    poise_buf_puts(out, " nodes, ");
    poise_human_count(out, r->lists);
    poise_buf_printf(out, " lists in %.2f s (%.1f ns a node)\n",
                     cli_seconds(ns),
                     (double)ns / (double)(r->nodes ? r->nodes : 1));
    poise_buf_printf(out, "  read %.2f s, walk %.2f s, write %.2f s\n",
                     cli_seconds(r->read_ns), cli_seconds(r->walk_ns),
                     cli_seconds(r->write_ns));
    poise_buf_puts(out, "  memory ");
    poise_human_bytes(out, r->memory_bytes);
    if (r->processes > 1) {
        poise_buf_printf(out, ", %u processes, in memory\n", r->processes);
    } else if (r->in_memory) {
        poise_buf_printf(out, ", %u threads, in memory\n", r->threads);
    } else {
        poise_buf_printf(out, ", one thread, %llu buckets\n",
                         (unsigned long long)r->buckets);
    }
    poise_buf_puts(out, "  read ");
    poise_human_bytes(out, r->read_bytes);
    poise_buf_puts(out, ", written ");
    poise_human_bytes(out, r->written_bytes);
    poise_buf_puts(out, " (scratch ");
    poise_human_bytes(out, r->scratch_bytes);
    poise_buf_printf(out, ") by %s\n", r->engine);
}

static void print_json(const struct poise_listrank_result *r, uint64_t ns,
                       struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    cli_json_begin(&json, "poise-listrank-1");
    poise_json_u64(&json, "nodes", r->nodes);
    poise_json_u64(&json, "lists", r->lists);
    poise_json_u64(&json, "greatest", r->greatest);
    poise_json_double(&json, "seconds", cli_seconds(ns));
    poise_json_double(&json, "read_seconds", cli_seconds(r->read_ns));
    poise_json_double(&json, "walk_seconds", cli_seconds(r->walk_ns));
    poise_json_double(&json, "write_seconds", cli_seconds(r->write_ns));
    poise_json_bool(&json, "in_memory", r->in_memory);
    poise_json_u64(&json, "memory_bytes", r->memory_bytes);
    poise_json_u64(&json, "processes", r->processes);
    poise_json_u64(&json, "threads", r->threads);
    poise_json_u64(&json, "buckets", r->buckets);
    poise_json_u64(&json, "read_bytes", r->read_bytes);
    poise_json_u64(&json, "written_bytes", r->written_bytes);
    poise_json_u64(&json, "scratch_bytes", r->scratch_bytes);
    poise_json_string(&json, "io", r->engine);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

static void print_report(const struct poise_listrank_report *report,
                         bool as_json, struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    if (as_json) {
        cli_json_begin(&json, "poise-listrank-check-1");
        poise_json_u64(&json, "nodes", report->nodes);
        poise_json_u64(&json, "lists", report->lists);
        poise_json_u64(&json, "wrong", report->wrong);
        if (report->wrong > 0) {
            poise_json_u64(&json, "first_wrong", report->first_wrong);
        }
        poise_json_end_object(&json);
        poise_buf_putc(out, '\n');
        return;
    }
    poise_buf_printf(out, "nodes %llu\nlists %llu\nwrong %llu",
                     (unsigned long long)report->nodes,
                     (unsigned long long)report->lists,
                     (unsigned long long)report->wrong);
    if (report->wrong > 0) {
        poise_buf_printf(out, ", the first at node %llu",
                         (unsigned long long)report->first_wrong);
    }
    poise_buf_putc(out, '\n');
}

/* ---- the page ----------------------------------------------------------- */

static int fill_page(const struct poise_listrank_result *r, uint64_t ns,
                     struct poise_page *page)
{
    uint64_t known = r->read_ns + r->walk_ns + r->write_ns;
    const struct cli_phase phases[] = {
        {r->in_memory ? "read" : "read and plan", r->read_ns},
        {r->in_memory ? "walk" : "bridge nodes out", r->walk_ns},
        {r->in_memory ? "write" : "rank", r->write_ns},
        {"the rest", ns > known ? ns - known : 0}};
    const struct cli_amount amounts[] = {
        {"input and output", 16 * r->nodes},
        {"read", r->read_bytes},
        {"written", r->written_bytes},
        {"of it scratch files", r->scratch_bytes}};
    struct cli_figures head = {0};
    int code;

    poise_human_count(cli_figure(&head, "nodes"), r->nodes);
    poise_human_count(cli_figure(&head, "lists"), r->lists);
    poise_human_ns(cli_figure(&head, "time"), ns);
    poise_human_ns(cli_figure(&head, "each node"),
                   ns / (r->nodes ? r->nodes : 1));
    poise_human_bytes(cli_figure(&head, "memory allowed"), r->memory_bytes);
    poise_human_bytes(cli_figure(&head, "memory used, most"),
                      cli_memory_peak());
    poise_human_count(cli_figure(&head, "greatest rank"), r->greatest);
    code = cli_page_figures(page, &head);
    code = code ? code : poise_page_section(page, "When what was done", NULL);
    code = code ? code : cli_page_phases(page, phases, 4);
    code = code ? code
                : poise_page_section(page, "What went through the disks", NULL);
    return code ? code
                : cli_page_amounts(page, "Bytes", amounts, 4, POISE_UNIT_BYTES);
}

static int save_page(const struct poise_listrank_result *r, uint64_t ns,
                     const char *path)
{
    struct poise_buf under = {0};
    struct poise_page *page = NULL;
    int code;

    if (r->in_memory) {
        poise_buf_printf(&under, "in memory, by %u process%s of %u thread%s",
                         r->processes, r->processes == 1 ? "" : "es",
                         r->threads, r->threads == 1 ? "" : "s");
    } else {
        poise_buf_printf(&under, "%llu buckets on disk, by %s",
                         (unsigned long long)r->buckets, r->engine);
    }
    code = under.error ? under.error
                       : poise_page_create("List ranking",
                                           poise_buf_str(&under), &page);
    poise_buf_free(&under);
    code = code ? code : fill_page(r, ns, page);
    return cli_page_save(page, &(struct poise_page_run){0}, path, code);
}

/* ---- what is done ------------------------------------------------------- */

static int check(const struct values *values,
                 const struct poise_listrank_options *rank, const char *in,
                 const char *ranks)
{
    struct poise_listrank_report report;
    struct poise_buf out = {0};
    int code = poise_listrank_check(in, ranks, rank, &report);
    int status;

    if (code < 0) {
        return cli_fail("listrank", code);
    }
    print_report(&report, values->disk.json, &out);
    status = cli_write("listrank", &out);
    poise_buf_free(&out);
    return report.wrong == 0 ? status : CLI_PARTLY;
}

/* With a line that says how far it is. */
static int rank_shown(const struct values *values,
                      struct poise_listrank_options rank_options,
                      const char *in, const char *out_path,
                      struct poise_listrank_result *result)
{
    struct poise_listrank_progress progress = {0};
    struct cli_extmem_line line;
    int code;

    cli_extmem_line_start(
        &line, values->progress && cli_extmem_is_first(rank_options.world),
        NULL, &progress.passed_bytes, &progress.total_bytes);
    rank_options.progress = line.is_on ? &progress : NULL;
    code = poise_listrank_run(in, out_path, &rank_options, result);
    cli_extmem_line_stop(&line);
    return code;
}

static int rank(const struct values *values,
                const struct poise_listrank_options *rank_options,
                const char *in, const char *out_path)
{
    struct poise_listrank_result result;
    struct poise_buf out = {0};
    uint64_t begin = poise_clock_ns();
    int status = CLI_DONE;
    int code = rank_shown(values, *rank_options, in, out_path, &result);

    if (code < 0) {
        return cli_fail("listrank", code);
    }
    begin = poise_clock_ns() - begin;
    if (!cli_extmem_is_first(rank_options->world)) {
        return CLI_DONE;
    }
    if (values->disk.verbose) {
        print_verbose(&result, begin, &out);
        cli_write_verbose(&out);
    }
    if (values->disk.json) {
        print_json(&result, begin, &out);
        status = cli_write("listrank", &out);
    }
    if (values->report) {
        code = save_page(&result, begin, values->report);
        status = code < 0 ? cli_fail("listrank", code) : status;
    }
    poise_buf_free(&out);
    return status;
}

static int generate(const struct values *values,
                    const struct poise_listrank_options *rank_options,
                    const char *path)
{
    struct poise_listrank_shape shape = {
        .pattern = (enum poise_listrank_pattern)values->pattern,
        .nodes = values->generate,
        .lists = values->lists,
        .seed = (uint64_t)values->seed,
    };
    int code = poise_listrank_generate(path, &shape, rank_options);

    return code < 0 ? cli_fail("listrank", code) : CLI_DONE;
}

static int dispatch(const struct values *values,
                    const struct poise_listrank_options *rank_options,
                    const char *const *operands)
{
    if (values->generate == NOT_GIVEN && !values->check) {
        return rank(values, rank_options, operands[0], operands[1]);
    }
    if (!cli_extmem_is_first(rank_options->world)) {
        return CLI_DONE;
    }
    return values->check ? check(values, rank_options, operands[0], operands[1])
                         : generate(values, rank_options, operands[0]);
}

static int run(const struct values *values, const char *const *operands)
{
    struct poise_listrank_options rank_options = {
        .weights = values->weights ? cli_standard_input(values->weights) : NULL,
        .memory_bytes = values->disk.memory,
        .threads = (unsigned)values->disk.threads,
        .sync = values->disk.sync,
        .disk = cli_extmem_disk(&values->disk),
    };
    struct poise_strings scratch = {0};
    char *text = NULL;
    int code, status = cli_extmem_start("listrank", &rank_options.world);

    if (status != CLI_DONE) {
        return status;
    }
    code = cli_split_list(&values->disk.scratch, &text, &scratch);
    rank_options.scratch = scratch.items;
    rank_options.scratch_count = scratch.count;
    code = poise_world_agree(rank_options.world, code);
    status = code < 0 ? cli_fail("listrank", code)
                      : dispatch(values, &rank_options, operands);
    poise_strings_free(&scratch);
    free(text);
    code = cli_extmem_end("listrank", rank_options.world, &status);
    return code == CLI_DONE ? status : code;
}

/* IN, OUT, or both; "-" is standard input or output. */
static int run_named(struct values *values, int count, char **operands)
{
    struct cli_standard standard;
    const char *names[2] = {operands[0], count > 1 ? operands[1] : NULL};
    bool makes = values->generate != NOT_GIVEN;
    const char **out = makes ? &names[0] : values->check ? NULL : &names[1];
    int status = cli_standard_output("listrank", values->disk.json, out,
                                     &values->report, &standard);

    if (!makes) {
        names[0] = cli_standard_input(names[0]);
    }
    if (values->check) {
        names[1] = cli_standard_input(names[1]);
    }
    if (status == CLI_DONE) {
        status = cli_page_check("listrank", values->report);
    }
    return status == CLI_DONE ? run(values, names) : status;
}

int cli_listrank(int argc, char **argv)
{
    struct values values = {.generate = NOT_GIVEN,
                            .seed = 1,
                            .progress = cli_is_terminal(STDERR_FILENO)};
    int status = CLI_DONE;
    int first = cli_parse(&cli_listrank_command, argc, argv, &values,
                          &values.common, &status);
    int count = argc - first;

    if (first >= 0 && values.generate != NOT_GIVEN && count != 1) {
        cli_say("listrank", "--generate takes one operand, the file to write");
        status = CLI_WRONG_USE;
    } else if (first >= 0 && values.report &&
               (values.check || values.generate != NOT_GIVEN)) {
        cli_say("listrank", "--report is for ranking");
        status = CLI_WRONG_USE;
    } else if (first >= 0 && values.generate == NOT_GIVEN && count != 2) {
        cli_needs("listrank", "two operands, IN and OUT");
        status = CLI_WRONG_USE;
    } else if (first >= 0) {
        status = run_named(&values, count, argv + first);
    }
    poise_strings_free(&values.disk.scratch);
    return status;
}
