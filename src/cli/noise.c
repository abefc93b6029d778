/* poise noise: how much the operating system disturbs a parallel program. */
#include "cli/common/common.h"
#include "cli/common/redraw.h"

#include <poise/coll.h>
#include <poise/noise.h>

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    uint64_t quantum_ns, time_ns;
    int64_t iterations;
    bool json, progress;
};

static const struct poise_option options[] = {
    {POISE_OPTION_DURATION, 0, "quantum", "TIME",
     "compute for TIME in each iteration (default: 1ms, then 10ms, "
     "then the time of an allreduce)",
     .offset = offsetof(struct values, quantum_ns)},
    {POISE_OPTION_DURATION, 0, "time", "TIME",
     "compute for about TIME in each run (default: 2s)",
     .offset = offsetof(struct values, time_ns)},
    {POISE_OPTION_INT, 0, "iterations", "N",
     "make N iterations in each run, however long that takes",
     .offset = offsetof(struct values, iterations), .min = 1, .max = 100000000},
    {POISE_OPTION_FLAG, .name = "json", .help = "print JSON",
     .offset = offsetof(struct values, json)},
    CLI_PROGRESS_OPTION(struct values, progress),
    CLI_RENAMED(POISE_OPTION_DURATION, 'q', NULL, "TIME", "--quantum",
                struct values, quantum_ns),
    CLI_RENAMED(POISE_OPTION_DURATION, 't', NULL, "TIME", "--time",
                struct values, time_ns),
    CLI_RENAMED_INT('n', NULL, "--iterations", struct values, iterations, 1,
                    100000000),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_noise_command = {
    .name = "noise",
    .operands = NULL,
    .summary = "measure how much the operating system disturbs computation",
    .description =
        "Each rank multiplies matrices for a quantum of time, again "
        "and again: first alone, then with an allreduce of 8 bytes "
        "after each quantum. The table counts iterations that were "
        "delayed: that took longer than a rank's median by more than "
        "the mean time of an allreduce, by 2 ms, 5 ms or 10 ms.",
    .options = options,
    .examples =
        "poise noise\tone process\n"
        "mpirun -n 8 poise noise --quantum 1ms --time 10s\teight ranks, ten "
        "seconds\n",
    .exits = "0\tdone\n1\tit failed\n2\twrong use\n3\tthe MPI of the launcher "
             "cannot be joined\n",
    .see = "poise-trace-run(1) docs/tutorial/collectives.md",
};

static const char *const row_names[POISE_NOISE_ROWS] = {
    [POISE_NOISE_COMPUTATION] = "computation",
    [POISE_NOISE_ALLREDUCE] = "allreduce",
    [POISE_NOISE_ITERATION] = "iteration",
};

/* ---- what is printed ---------------------------------------------------- */

static void time_text(struct poise_buf *out, double ns)
{
    if (ns < 1e6) {
        poise_buf_printf(out, "%.2f us", ns / 1e3);
    } else {
        poise_buf_printf(out, "%.3f ms", ns / 1e6);
    }
}

static int add_row(struct poise_table *table, const char *name,
                   const struct poise_coll_noise_row *row)
{
    struct poise_buf texts[2 + POISE_NOISE_THRESHOLDS] = {0};
    const char *cells[3 + POISE_NOISE_THRESHOLDS] = {name};
    int code;

    time_text(&texts[0], row->mean_ns);
    time_text(&texts[1], row->deviation_ns);
    for (int t = 0; t < POISE_NOISE_THRESHOLDS; t++) {
        poise_human_count(&texts[2 + t], row->delayed[t]);
    }
    for (int i = 0; i < 2 + POISE_NOISE_THRESHOLDS; i++) {
        cells[1 + i] = poise_buf_str(&texts[i]);
    }
    code = poise_table_row(table, cells);
    for (int i = 0; i < 2 + POISE_NOISE_THRESHOLDS; i++) {
        poise_buf_free(&texts[i]);
    }
    return code;
}

static int print_text(const struct poise_coll_noise *noise, bool communicates,
                      uint64_t iterations, struct poise_buf *out)
{
    struct poise_buf first = {0};
    struct poise_table *table;
    int code;

    poise_buf_puts(&first, "+");
    time_text(&first, (double)noise->thresholds_ns[0]);
    struct poise_column columns[3 + POISE_NOISE_THRESHOLDS] = {
        {"", POISE_ALIGN_LEFT},
        {"mean", POISE_ALIGN_RIGHT},
        {"deviation", POISE_ALIGN_RIGHT},
        {poise_buf_str(&first), POISE_ALIGN_RIGHT},
        {"+2 ms", POISE_ALIGN_RIGHT},
        {"+5 ms", POISE_ALIGN_RIGHT},
        {"+10 ms", POISE_ALIGN_RIGHT},
    };
    code = poise_table_create(columns, 3 + POISE_NOISE_THRESHOLDS, &table);
    if (code < 0) {
        poise_buf_free(&first);
        return code;
    }
    for (int row = 0; row < POISE_NOISE_ROWS && code == 0; row++) {
        if (communicates || row == POISE_NOISE_COMPUTATION) {
            code = add_row(table, row_names[row], &noise->rows[row]);
        }
    }
    poise_buf_puts(out, "quantum ");
    time_text(out, (double)noise->quantum_ns);
    poise_buf_printf(out, ", %llu iterations, %s\n",
                     (unsigned long long)iterations,
                     communicates ? "with an allreduce" : "no allreduce");
    if (code == 0) {
        code = poise_table_text(table, out);
    }
    poise_buf_putc(out, '\n');
    poise_table_destroy(table);
    poise_buf_free(&first);
    return code < 0 ? code : out->error;
}

static void print_json(const struct poise_coll_noise *noise, bool communicates,
                       uint64_t iterations, struct poise_json *json)
{
    poise_json_object(json, NULL);
    poise_json_u64(json, "quantum_ns", noise->quantum_ns);
    poise_json_u64(json, "iterations", iterations);
    poise_json_bool(json, "allreduce", communicates);
    poise_json_array(json, "thresholds_ns");
    for (int t = 0; t < POISE_NOISE_THRESHOLDS; t++) {
        poise_json_u64(json, NULL, noise->thresholds_ns[t]);
    }
    poise_json_end_array(json);
    for (int row = 0; row < POISE_NOISE_ROWS; row++) {
        poise_json_object(json, row_names[row]);
        poise_json_double(json, "mean_ns", noise->rows[row].mean_ns);
        poise_json_double(json, "deviation_ns", noise->rows[row].deviation_ns);
        poise_json_array(json, "delayed");
        for (int t = 0; t < POISE_NOISE_THRESHOLDS; t++) {
            poise_json_u64(json, NULL, noise->rows[row].delayed[t]);
        }
        poise_json_end_array(json);
        poise_json_end_object(json);
    }
    poise_json_end_object(json);
}

/* ---- runs --------------------------------------------------------------- */

/* So many iterations that they compute for the time that was asked for. The
 * quantum of an allreduce's own latency is not known yet: 20 us. */
static uint32_t iterations_of(const struct values *values, uint64_t quantum_ns)
{
    uint64_t count = values->time_ns / (quantum_ns ? quantum_ns : 20000);

    if (values->iterations > 0) {
        return (uint32_t)values->iterations;
    }
    return count < 1 ? 1 : count > 1000000 ? 1000000 : (uint32_t)count;
}

static int run_all(struct poise_coll *coll, const struct values *values,
                   struct cli_meter *meter, struct poise_buf *out)
{
    static const uint64_t usual[] = {1000000, 10000000, 0};
    struct poise_json json = poise_json_to(out, false);
    size_t quanta = values->quantum_ns ? 1 : 3;
    int code = 0;

    if (values->json) {
        cli_json_begin(&json, "poise-noise-1");
        poise_json_array(&json, "runs");
    }
    for (size_t i = 0; i < 2 * quanta && code == 0; i++) {
        uint64_t quantum =
            values->quantum_ns ? values->quantum_ns : usual[i / 2];
        struct poise_coll_noise_options run = {
            .quantum_ns = quantum,
            .iterations = iterations_of(values, quantum),
            .allreduce = i % 2 == 1};
        struct poise_coll_noise noise;

        /* Between runs only: what shows it would be noise, too. */
        cli_meter_show(meter, "measured", "runs", i, 2 * quanta);
        code = poise_coll_noise(coll, &run, &noise);
        if (code == 0 && values->json) {
            print_json(&noise, run.allreduce, run.iterations, &json);
        } else if (code == 0) {
            code = print_text(&noise, run.allreduce, run.iterations, out);
        }
    }
    if (values->json) {
        poise_json_end_array(&json);
        poise_json_end_object(&json);
        poise_buf_putc(out, '\n');
    }
    return code < 0 ? code : out->error;
}

int cli_noise(int argc, char **argv)
{
    const char *name = cli_noise_command.name;
    struct values values = {.time_ns = UINT64_C(2000000000),
                            .progress = cli_is_terminal(STDERR_FILENO)};
    struct poise_world *world;
    struct poise_coll *coll = NULL;
    struct cli_meter meter = {0};
    struct poise_buf out = {0};
    int exit_code = CLI_DONE, code;
    int first = cli_parse(&cli_noise_command, argc, argv, &values,
                          &values.common, &exit_code);

    if (first < 0) {
        return exit_code;
    }
    if (first < argc) {
        cli_say(name, "it takes no operands");
        return CLI_WRONG_USE;
    }
    code = poise_world_create(NULL, &world);
    if (code < 0) {
        return cli_fail(name, code);
    }
    code = poise_coll_create(world, NULL, &coll);
    if (code == 0) {
        meter.wanted = values.progress && poise_world_rank(world) == 0;
        code = run_all(coll, &values, &meter, &out);
        cli_meter_wipe(&meter);
    }
    if (code < 0) {
        exit_code = cli_fail(name, code);
    } else if (poise_world_rank(world) == 0) {
        exit_code = cli_write(name, &out);
    }
    poise_buf_free(&out);
    poise_coll_destroy(coll);
    poise_world_destroy(world);
    return exit_code;
}
