/* poise solve: the temperature of a plate, by DesyncFS. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    struct cli_flow flow;
    struct cli_cluster cluster;
    int64_t sweeps, block;
    uint64_t block_ns;
    const char *omega, *hold, *report;
    struct poise_strings slow;
    int method;
    bool insulated;
};

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What to compute"},
    {POISE_OPTION_INT, .name = "sweeps", .arg = "N",
     .help = "number of sweeps over all cells (default: 1000)",
     .offset = offsetof(struct values, sweeps), .min = 0, .max = 1000000000},
    {POISE_OPTION_ENUM, .name = "method", .arg = "NAME",
     .help = "method (default: jacobi)",
     .offset = offsetof(struct values, method),
     .choices = poise_flow_method_names},
    {POISE_OPTION_STRING, .name = "omega", .arg = "W",
     .help = "over-relaxation, between 0 and 2 (default: 1)",
     .offset = offsetof(struct values, omega)},
    {POISE_OPTION_STRING, .name = "hold", .arg = "VALUE",
     .help = "keep cells that begin with VALUE or more as they are",
     .offset = offsetof(struct values, hold)},
    {POISE_OPTION_FLAG, .name = "insulated",
     .help = "insulate the edge (default: the outermost cells stay as they "
             "are)",
     .offset = offsetof(struct values, insulated)},
    {POISE_OPTION_HEADING, .help = "How it runs"},
    CLI_FLOW_OPTIONS(struct values, flow),
    CLI_RENAMED_INT('s', NULL, "--sweeps", struct values, sweeps, 0,
                    1000000000),
    {POISE_OPTION_INT, .name = "block", .arg = "N",
     .help = "side of a block, at most N cells (default: 128)",
     .offset = offsetof(struct values, block), .min = 1, .max = 1000000},
    CLI_FLOW_SHARES(struct values, flow),
    {POISE_OPTION_HEADING, .help = "Emulating unequal nodes"},
    {POISE_OPTION_DURATION, .name = "block-time", .arg = "TIME",
     .help = "make each block take TIME, mostly asleep",
     .offset = offsetof(struct values, block_ns)},
    {POISE_OPTION_LIST, .name = "slow", .arg = "F,...",
     .help = "multiply that by a factor for node 0, 1, ... (default: 1 each)",
     .offset = offsetof(struct values, slow)},
    {POISE_OPTION_HEADING, .help = "Output"},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page (HTML): the plate before and after, convergence, "
             "what each node did",
     .offset = offsetof(struct values, report)},
    CLI_FLOW_WORDS(struct values, flow),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_solve_command = {
    .name = "solve",
    .operands = "IN OUT",
    .summary = "solve for the temperature of a plate on unequal nodes",
    .description =
        "IN is an image (PGM, or the luminance of a PPM) or a text "
        "matrix with a line for each row: the temperature of each cell "
        "of a plate. Each sweep moves every cell towards the mean of "
        "its four neighbours. OUT is a grey image if it ends in .pgm, "
        "a coloured one if it ends in .ppm, otherwise a text matrix "
        "with the exact numbers.\n\n"
        "The plate is cut into blocks. No node waits for the slowest "
        "one, only for the blocks that it needs. The result is the "
        "same to the last bit, whatever the number of nodes and "
        "threads, and however many nodes die or change their share.\n\n"
        "Nodes are processes of this host, of the hosts in --hosts, or "
        "of a launcher (srun, mpirun). When a node dies the others "
        "compute its part again, from copies that nodes keep for each "
        "other (see --replicate-every). A node that gets SIGTERM hands "
        "its blocks over before it ends.",
    .options = options,
    .examples = "poise solve plate.pgm rest.ppm\tone thread, 1,000 sweeps\n"
                "poise solve -n 4 plate.txt rest.txt\tfour processes, of which "
                "any two may die\n"
                "poise solve --hosts hosts.txt plate.txt rest.txt\ton several "
                "hosts\n"
                "poise solve --method sor --omega 1.9 --report r.html "
                "plate.pgm rest.pgm\tconverge faster, and draw a page\n"
                "poise solve -n 4 --block-time 1ms --slow 1,4 --adapt 20 -v "
                "p.pgm o.pgm\temulate a node that is four times as slow\n",
    .exits = "0\tdone\n"
             "1\tit failed\n"
             "2\twrong use\n"
             "3\tthis machine lacks something that is needed\n",
    .see = "poise-desync-run(1) docs/tutorial/desync.md docs/flow.md",
};

/* ---- words -------------------------------------------------------------- */

static void print_verbose(const struct cli_solve_outcome *run,
                          struct poise_buf *out)
{
    const struct poise_flow_stats *s = run->stats;
    cli_flow_verbose("solve", s, out);
    if (run->change_blocks > 0) {
        poise_buf_puts(out, "  beside them ");
        poise_human_count(out, run->change_blocks);
        poise_buf_puts(out, " of one number each, for --json and --report: "
                            "how much a sweep changed\n");
    }
    poise_buf_printf(out, "  %.1f million cells a second\n",
                     (double)run->heat->rows * (double)run->heat->columns *
                         (double)run->heat->sweeps * 1e3 /
                         (double)(s->wall_ns ? s->wall_ns : 1));
}

static void print_json(const struct cli_solve_outcome *run,
                       struct poise_buf *out)
{
    const struct poise_flow_stats *stats = run->stats;
    struct poise_json json = poise_json_to(out, false);
    cli_json_begin(&json, "poise-solve-1");
    poise_json_u64(&json, "rows", (uint64_t)run->heat->rows);
    poise_json_u64(&json, "columns", (uint64_t)run->heat->columns);
    poise_json_u64(&json, "sweeps", (uint64_t)run->heat->sweeps);
    if (run->changes && run->heat->sweeps > 0) {
        poise_json_double(&json, "last_change",
                          run->changes[run->heat->sweeps - 1]);
    }
    poise_json_u64(&json, "change_blocks", run->change_blocks);
    cli_flow_json(&json, stats);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

static int tell(const struct values *values,
                const struct cli_solve_outcome *run)
{
    struct poise_buf out = {0};
    int status = CLI_DONE;
    if (values->flow.verbose) {
        print_verbose(run, &out);
        cli_write_verbose(&out);
    }
    if (values->flow.json) {
        print_json(run, &out);
        status = cli_write("solve", &out);
        poise_buf_reset(&out);
    }
    if (values->report) {
        int code = cli_solve_page(run, &out);
        code = code < 0 ? code : poise_file_save(values->report, &out);
        status = code < 0 ? cli_fail("solve", code) : status;
    }
    poise_buf_free(&out);
    return status;
}

/* ---- what is done ------------------------------------------------------- */

static int parse_number(const char *option, const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end != '\0' || !(*out > -1e300 && *out < 1e300)) {
        return poise_error_set(EINVAL, "use option", option,
                               "'%s' is not a number", text);
    }
    return 0;
}

/* Whether there is something to be slowed down, and as many nodes. */
static int check_slow(const struct values *values, size_t count)
{
    size_t nodes = values->flow.nodes > 0 ? (size_t)values->flow.nodes : 1;
    if (count > 0 && values->block_ns == 0) {
        return poise_error_set(EINVAL, "use option", "--slow",
                               "it multiplies --block-time, which is not "
                               "given");
    }
    if (count > nodes && !values->cluster.used) {
        return poise_error_set(EINVAL, "use option", "--slow",
                               "%zu factors, and there %s %zu node%s (-n)",
                               count, nodes == 1 ? "is" : "are", nodes,
                               nodes == 1 ? "" : "s");
    }
    return 0;
}

/* Factors by node; owned by the caller. */
static int parse_slow(const struct values *values, struct poise_flow_heat *heat,
                      double **out)
{
    struct poise_strings words = {0};
    char *text = NULL;
    int code = cli_split_list(&values->slow, &text, &words);
    code = code == 0 ? check_slow(values, words.count) : code;
    *out = code == 0 ? poise_alloc(words.count + 1, sizeof **out) : NULL;
    code = code == 0 && !*out ? -ENOMEM : code;
    for (size_t i = 0; code == 0 && i < words.count; i++) {
        code = parse_number("--slow", words.items[i], &(*out)[i]);
    }
    heat->slow = *out;
    heat->slow_count = (unsigned)words.count;
    poise_strings_free(&words);
    free(text);
    return code;
}

/* Which cells stay as they are; owned by the caller. */
static int hold(const struct cli_plate *plate, const char *text, bool **out)
{
    double least;
    int code = parse_number("--hold", text, &least);
    size_t count = (size_t)(plate->rows * plate->columns);
    *out = code == 0 ? poise_alloc(count, sizeof **out) : NULL;
    for (size_t c = 0; *out && c < count; c++) {
        (*out)[c] = plate->cells[c] >= least;
    }
    return code == 0 && !*out ? -ENOMEM : code;
}

/* Blocks that say how much a sweep changed: one for each block and version but
 * the first. They are no part of what is counted, which is so the same with and
 * without --json. */
static uint64_t change_blocks(const struct poise_flow_heat *heat)
{
    int64_t side = heat->block > 0 ? heat->block : CLI_SOLVE_BLOCK;
    int64_t down = (heat->rows - 1) / side + 1;
    int64_t across = (heat->columns - 1) / side + 1;
    int64_t halves = heat->method == POISE_FLOW_SOR ? 2 : 1;
    return (uint64_t)(down * across * halves * heat->sweeps);
}

static int solve(const struct values *values, struct poise_flow_heat *heat,
                 struct cli_plate *before, const char *in, const char *out)
{
    struct poise_flow_options run_options = cli_flow_options(&values->flow);
    struct poise_flow_stats stats = {0};
    struct cli_live *live = NULL;
    struct cli_plate after = *before;
    size_t sweeps = (size_t)values->sweeps;
    double *changes = values->report || values->flow.json
                          ? poise_alloc(sweeps + 1, sizeof *changes)
                          : NULL;
    after.cells = poise_alloc((size_t)(before->rows * before->columns),
                              sizeof *after.cells);
    int code =
        after.cells && (changes || !(values->report || values->flow.json))
            ? 0
            : -ENOMEM;
    run_options.cluster =
        values->cluster.used ? &values->cluster.cluster : NULL;
    bool agent = values->cluster.agent;
    if (code == 0 && !agent &&
        cli_trace_begin("solve", (int)values->flow.nodes + 1) != CLI_DONE) {
        cli_plate_free(&after);
        free(changes);
        return CLI_PARTLY;
    }
    if (code == 0 && !agent) {
        code = cli_live_open(&values->flow, values->report != NULL,
                             &run_options, &live);
    }
    if (code == 0) {
        code = poise_flow_heat_run(heat, &run_options, after.cells, changes,
                                   &stats);
    }
    code = code == 0 && !agent ? cli_plate_write(&after, out) : code;
    uint64_t counted = changes ? change_blocks(heat) : 0;
    stats.blocks -= code == 0 && !agent ? counted : 0;
    const struct cli_solve_outcome run = {
        in,  values->flow.check, before, &after, heat, &stats, changes, counted,
        live};
    int status = code < 0 ? cli_fail("solve", code)
                 : agent  ? CLI_DONE
                          : tell(values, &run);
    if (!agent) {
        cli_trace_end();
    }
    cli_live_close(live);
    poise_flow_stats_free(&stats);
    cli_plate_free(&after);
    free(changes);
    return status;
}

static int compute(const struct values *values, const char *in, const char *out)
{
    struct cli_plate plate = {0};
    struct poise_flow_heat heat = {.insulated = values->insulated,
                                   .method =
                                       (enum poise_flow_method)values->method,
                                   .sweeps = values->sweeps,
                                   .block = values->block,
                                   .adapt = values->flow.adapt,
                                   .block_ns = values->block_ns};
    double *slow = NULL;
    bool *held = NULL;
    struct poise_buf parts = {0};
    int64_t halves = values->method == POISE_FLOW_SOR ? 2 : 1;
    int status = CLI_DONE;
    int code =
        values->omega ? parse_number("--omega", values->omega, &heat.omega) : 0;
    code = code == 0 ? parse_slow(values, &heat, &slow) : code;
    code = code == 0 ? cli_plate_read(in, &plate) : code;
    const struct poise_flow_chunk shape = {
        .dims = 2, .versions = {0, halves * values->sweeps + 1}};
    if (code == 0 && values->flow.chunks) {
        code = cli_chunks_read(values->flow.chunks, &shape, &parts);
    }
    heat.parts = (struct poise_flow_part *)parts.data;
    heat.part_count = parts.len / sizeof *heat.parts;
    if (code == 0 && values->hold) {
        code = hold(&plate, values->hold, &held);
    }
    if (code < 0) {
        status = cli_fail("solve", code);
    } else {
        heat.rows = plate.rows;
        heat.columns = plate.columns;
        heat.cells = plate.cells;
        heat.held = held;
        status = solve(values, &heat, &plate, in, out);
    }
    free(slow);
    free(held);
    poise_buf_free(&parts);
    cli_plate_free(&plate);
    return status;
}

/* OUT would take the place of what was solved, of which nothing is left then.
 */
static bool is_same_file(const char *in, const char *out)
{
    struct stat a, b;
    return stat(in, &a) == 0 && stat(out, &b) == 0 && S_ISREG(a.st_mode) &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int run(struct values *values, const char *in, const char *out)
{
    struct cli_standard standard;
    int status = cli_cluster_open("solve", &values->flow, &values->cluster);
    if (status == CLI_DONE && values->cluster.used && strcmp(in, "-") == 0) {
        cli_say("solve", "IN is read on each host, and cannot be standard "
                         "input: name a file");
        status = CLI_WRONG_USE;
    }
    if (status == CLI_DONE && is_same_file(in, out)) {
        cli_say("solve", "IN and OUT are one file, '%s': name another OUT",
                out);
        status = CLI_WRONG_USE;
    }
    if (status == CLI_DONE && !values->cluster.agent) {
        status = cli_standard_output("solve", values->flow.json, &out,
                                     &values->report, &standard);
    }
    if (status == CLI_DONE) {
        status = compute(values, cli_standard_input(in), out);
    }
    cli_cluster_close(&values->cluster);
    return status;
}

int cli_solve(int argc, char **argv)
{
    struct values values = {.sweeps = 1000,
                            .flow.replicate = CLI_FLOW_REPLICATE,
                            .flow.live = cli_is_terminal(STDERR_FILENO)};
    int status = CLI_DONE;
    int first = cli_parse(&cli_solve_command, argc, argv, &values,
                          &values.common, &status);
    bool go_on = first >= 0 &&
                 cli_flow_ablate(&cli_solve_command, &values.flow, &status);
    if (go_on && argc - first != 2) {
        status = cli_needs("solve", "two operands, IN and OUT");
    } else if (go_on) {
        status = run(&values, argv[first], argv[first + 1]);
    }
    poise_strings_free(&values.flow.ablation);
    poise_strings_free(&values.slow);
    return status;
}
