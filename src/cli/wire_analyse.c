/* poise wire analyse: how redundant data are, and what would be sent. */
#include "cli/common/common.h"
#include "cli/common/redraw.h"

#include <poise/dedup.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    struct poise_strings methods, sizes;
    uint64_t memory;
    int64_t bits;
    const char *report;
    bool json, progress;
};

static const struct poise_option options[] = {
    {POISE_OPTION_LIST, 0, "segmenter", "NAME[,OPTION...]",
     "how to cut files into segments: fixed, lbfs, gear, "
     "floats,shape=200x300x4,element=8 for arrays of numbers, auto "
     "(chooses by a sample), or a shared object, if the name has a "
     "slash; can be repeated (default: fixed, lbfs and gear)",
     .offset = offsetof(struct values, methods)},
    {POISE_OPTION_LIST, 0, "size", "SIZE",
     "segments of about SIZE bytes; can be repeated (default: 64, "
     "256, 1K and 4K)",
     .offset = offsetof(struct values, sizes)},
    {POISE_OPTION_INT, 0, "bits", "N", "width of fingerprints (default: 40)",
     .offset = offsetof(struct values, bits), .min = 8, .max = 64},
    {POISE_OPTION_BYTES, .name = "memory", .arg = "SIZE",
     .help = "memory of each end's cache (default: what the files need)",
     .offset = offsetof(struct values, memory)},
    {POISE_OPTION_FLAG, .name = "json", .help = "print JSON",
     .offset = offsetof(struct values, json)},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page of plots and tables (HTML)",
     .offset = offsetof(struct values, report)},
    CLI_PROGRESS_OPTION(struct values, progress),
    CLI_RENAMED(POISE_OPTION_LIST, 'm', "method", "NAME", "--segmenter",
                struct values, methods),
    CLI_RENAMED(POISE_OPTION_LIST, 's', NULL, "SIZE", "--size", struct values,
                sizes),
    CLI_RENAMED_INT('b', NULL, "--bits", struct values, bits, 8, 64),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_wire_analyse_command = {
    .name = "wire analyse",
    .operands = "FILE...",
    .summary = "say how redundant files are and what sending them would cost",
    .description =
        "Sends the files, in the given order, over the protocol of "
        "'poise send' within this process, once for each segmenter and "
        "size, and counts the bytes in both directions. 'last, sent' "
        "is what the last file cost when both ends knew the files "
        "before it; 'forgotten' is what it cost when only the receiver "
        "knew them.\n\n"
        "To learn what sending a new version would cost, give the old "
        "and the new version.",
    .options = options,
    .examples = "poise wire analyse v1.tar v2.tar\tcompare two versions\n"
                "poise wire analyse --segmenter gear --size 128 --size 256 "
                "*.csv\ttry two sizes\n",
    .exits = "0\tdone\n1\tit failed\n2\twrong use\n",
    .see =
        "poise-send(1) poise-wire-cached(1) poise-wire-model(1) docs/wire.md",
};

enum { TRIALS_MOST = 256 };

struct trial {
    const char *name;
    const struct poise_dedup_method *method;
    struct poise_dedup_cut_options cut;
    bool again; /* its size is chosen, and was: the same for all sizes */
    struct poise_dedup_outcome warm, cold;
};

/* Of which bytes of a segment. */
static uint32_t size_of(const struct trial *trial)
{
    return trial->cut.average ? trial->cut.average
                              : trial->warm.choice.cut.average;
}

static double ratio(uint64_t bytes, uint64_t sent)
{
    return sent ? (double)bytes / (double)sent : 0;
}

/* ---- what is printed ---------------------------------------------------- */

static const char page_text[] =
    "What poise send would put on the link, in both directions together, for "
    "each way to cut files into segments (segmenter) and each mean size of a "
    "segment in bytes. All, sent: all files, to a receiver that has nothing. "
    "Last, sent: the last file alone, when both ends have those before it in "
    "their caches. Forgotten: the same after the sender has lost its cache. "
    "Ratio: the size of the files divided by the bytes sent; more is better.";

/* "floats,element=8" */
static void put_choice(const struct trial *trial, struct poise_buf *out)
{
    const struct poise_dedup_choice *choice = &trial->warm.choice;

    poise_buf_puts(out, choice->method->name);
    if (choice->cut.element) {
        poise_buf_printf(out, ",element=%u", choice->cut.element);
    }
}

static int add_row(struct poise_table *table, const struct trial *trial)
{
    enum { COLUMNS = 9 };
    struct poise_buf texts[COLUMNS] = {0};
    const char *cells[COLUMNS];
    int code;

    poise_buf_puts(&texts[0], trial->name);
    if (trial->cut.average == 0) {
        poise_buf_puts(&texts[0], ": ");
        put_choice(trial, &texts[0]);
    }
    poise_buf_decimal(&texts[1], size_of(trial));
    poise_human_count(&texts[2], trial->warm.segments);
    poise_human_count(&texts[3], trial->warm.sent_bytes);
    poise_buf_printf(&texts[4], "%.1f",
                     ratio(trial->warm.bytes, trial->warm.sent_bytes));
    poise_human_count(&texts[5], trial->warm.last_sent_bytes);
    poise_buf_printf(
        &texts[6], "%.1f",
        ratio(trial->warm.last_bytes, trial->warm.last_sent_bytes));
    poise_human_count(&texts[7], trial->cold.last_sent_bytes);
    poise_buf_printf(
        &texts[8], "%.1f",
        ratio(trial->cold.last_bytes, trial->cold.last_sent_bytes));
    for (int i = 0; i < COLUMNS; i++) {
        cells[i] = poise_buf_str(&texts[i]);
    }
    code = poise_table_row(table, cells);
    for (int i = 0; i < COLUMNS; i++) {
        poise_buf_free(&texts[i]);
    }
    return code;
}

static int make_table(const struct trial *trials, size_t count,
                      struct poise_table **out)
{
    static const struct poise_column columns[] = {
        {"segmenter", POISE_ALIGN_LEFT}, {"size", POISE_ALIGN_RIGHT},
        {"segments", POISE_ALIGN_RIGHT}, {"all, sent", POISE_ALIGN_RIGHT},
        {"ratio", POISE_ALIGN_RIGHT},    {"last, sent", POISE_ALIGN_RIGHT},
        {"ratio", POISE_ALIGN_RIGHT},    {"forgotten", POISE_ALIGN_RIGHT},
        {"ratio", POISE_ALIGN_RIGHT},
    };
    int code =
        poise_table_create(columns, sizeof columns / sizeof *columns, out);

    for (size_t i = 0; i < count && code == 0; i++) {
        code = trials[i].again ? 0 : add_row(*out, &trials[i]);
        if (code < 0) {
            poise_table_destroy(*out);
        }
    }
    return code;
}

static int print_text(const struct trial *trials, size_t count,
                      struct poise_buf *out)
{
    struct poise_table *table;
    int code = make_table(trials, count, &table);

    if (code < 0) {
        return code;
    }
    poise_human_count(out, trials[0].warm.bytes);
    poise_buf_puts(out, " bytes, ");
    poise_human_count(out, trials[0].warm.last_bytes);
    poise_buf_puts(out, " of them in the last file\n");
    code = poise_table_text(table, out);
    poise_table_destroy(table);
    return code;
}

static void json_outcome(struct poise_json *json, const char *key,
                         const struct poise_dedup_outcome *outcome)
{
    poise_json_object(json, key);
    poise_json_u64(json, "sent_bytes", outcome->sent_bytes);
    poise_json_u64(json, "last_sent_bytes", outcome->last_sent_bytes);
    poise_json_u64(json, "segments", outcome->segments);
    poise_json_u64(json, "by_run_bytes", outcome->stats.by_run);
    poise_json_u64(json, "by_fingerprint_bytes", outcome->stats.by_fingerprint);
    poise_json_u64(json, "by_delta_bytes", outcome->stats.by_delta);
    poise_json_u64(json, "by_residual_bytes", outcome->stats.by_residual);
    poise_json_u64(json, "by_data_bytes", outcome->stats.by_data);
    poise_json_u64(json, "by_fill_bytes", outcome->stats.by_fill);
    poise_json_u64(json, "groups", outcome->stats.groups);
    poise_json_u64(json, "requests", outcome->stats.requests);
    poise_json_u64(json, "repairs", outcome->stats.repairs);
    poise_json_end_object(json);
}

static int print_json(const struct trial *trials, size_t count,
                      struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    cli_json_begin(&json, "poise-wire-analyse-1");
    poise_json_u64(&json, "bytes", trials[0].warm.bytes);
    poise_json_u64(&json, "last_bytes", trials[0].warm.last_bytes);
    poise_json_array(&json, "trials");
    for (size_t i = 0; i < count; i++) {
        struct poise_buf choice = {0};
        if (trials[i].again) {
            continue;
        }
        put_choice(&trials[i], &choice);
        poise_json_object(&json, NULL);
        poise_json_string(&json, "segmenter", trials[i].name);
        poise_json_string(&json, "choice", poise_buf_str(&choice));
        poise_buf_free(&choice);
        poise_json_u64(&json, "size", size_of(&trials[i]));
        json_outcome(&json, "known", &trials[i].warm);
        json_outcome(&json, "forgotten", &trials[i].cold);
        poise_json_end_object(&json);
    }
    poise_json_end_array(&json);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
    return out->error;
}

/* Ratios of the last file over sizes, a line for each segmenter. */
static int add_plot(struct poise_page *page, const struct trial *trials,
                    size_t count, size_t sizes)
{
    double *numbers = poise_alloc(2 * count, sizeof *numbers);
    struct poise_line *lines = poise_alloc(count, sizeof *lines);
    struct poise_plot plot = {
        .title = "How many times fewer bytes the last file takes",
        .x_label = "bytes of a segment",
        .y_label = "ratio",
        .lines = lines,
        .line_count = count / sizes,
        .x_unit = POISE_UNIT_BYTES,
        .y_unit = POISE_UNIT_COUNT,
        .log_x = true,
        .log_y = true,
    };
    int code = numbers && lines ? 0 : -ENOMEM;

    for (size_t i = 0; i < count && code == 0; i++) {
        /* What is chosen is a line over all sizes. */
        numbers[i] = trials[i].cut.average ? trials[i].cut.average
                                           : trials[i % sizes].cut.average;
        numbers[count + i] =
            ratio(trials[i].warm.last_bytes, trials[i].warm.last_sent_bytes);
        lines[i / sizes] = (struct poise_line){
            .label = trials[i].name,
            .x = numbers + i / sizes * sizes,
            .y = numbers + count + i / sizes * sizes,
            .count = sizes,
        };
    }
    if (code == 0) {
        code = poise_page_plot(page, &plot);
    }
    free(numbers);
    free(lines);
    return code;
}

static int write_page(const struct trial *trials, size_t count, size_t sizes,
                      const char *path)
{
    struct poise_page *page;
    struct poise_table *table = NULL;
    struct poise_buf html = {0};
    int code = poise_page_create(
        "poise wire analyse",
        "How redundant files are, and what sending them costs", &page);

    if (code < 0) {
        return code;
    }
    code = poise_page_section(page, "What sending would cost", page_text);
    if (code == 0) {
        code = make_table(trials, count, &table);
    }
    if (code == 0) {
        code = poise_page_table(page, table);
        poise_table_destroy(table);
    }
    if (code == 0) {
        code = add_plot(page, trials, count, sizes);
    }
    if (code == 0) {
        code = poise_page_html(page, &(struct poise_page_run){0}, &html);
    }
    if (code == 0) {
        code = poise_file_save(path, &html);
    }
    poise_buf_free(&html);
    poise_page_destroy(page);
    return code;
}

/* ---- the run ------------------------------------------------------------ */

/* How far all trials are: each sends all files twice. */
struct way {
    struct cli_meter meter;
    uint64_t passed, total;
};

static void show_passed(uint64_t bytes, void *arg)
{
    struct way *way = arg;

    way->passed += bytes;
    cli_meter_show(&way->meter, "sent", NULL, way->passed, way->total);
}

static uint64_t bytes_of(const char *const *paths, int count)
{
    uint64_t bytes = 0;

    for (int i = 0; i < count; i++) {
        struct stat st;
        if (stat(paths[i], &st) == 0 && st.st_size > 0) {
            bytes += (uint64_t)st.st_size;
        }
    }
    return bytes;
}

static int run_trial(struct trial *trial, const struct values *values,
                     const char *const *paths, int count, struct way *way)
{
    /* Both caches hold all of the data, their tables and what is not full. */
    uint64_t needed = 3 * bytes_of(paths, count) + (64 << 20);
    struct poise_dedup_trial how = {
        .method = trial->method,
        .cut = trial->cut,
        .bits = (uint32_t)values->bits,
        .memory_bytes = values->memory ? values->memory : needed,
        .passed = show_passed,
        .arg = way,
    };
    int code = poise_dedup_try(&how, paths, (size_t)count, &trial->warm);

    how.forgets = true;
    return code < 0 ? code
                    : poise_dedup_try(&how, paths, (size_t)count, &trial->cold);
}

static int send_all(const struct values *values, const char *const *paths,
                    int count, struct trial *trials, size_t made)
{
    struct way way = {.meter.wanted = values->progress};
    int code = 0;

    for (size_t i = 0; i < made; i++) {
        way.total += trials[i].again ? 0 : 2 * bytes_of(paths, count);
    }
    for (size_t i = 0; i < made && code == 0; i++) {
        if (trials[i].again) {
            trials[i].warm = trials[i - 1].warm;
            trials[i].cold = trials[i - 1].cold;
        } else {
            code = run_trial(&trials[i], values, paths, count, &way);
        }
    }
    cli_meter_wipe(&way.meter);
    return code;
}

static int run_all(const struct values *values, const char *const *paths,
                   int count, struct trial *trials, size_t *made)
{
    static const char *const methods[] = {"fixed", "lbfs", "gear"};
    static const char *const sizes[] = {"64", "256", "1K", "4K"};
    size_t method_count = values->methods.count ? values->methods.count : 3;
    size_t size_count = values->sizes.count ? values->sizes.count : 4;
    const char *const *named =
        values->methods.count ? values->methods.items : methods;
    const char *const *sized =
        values->sizes.count ? values->sizes.items : sizes;
    int code = 0;

    if (method_count * size_count > TRIALS_MOST) {
        return poise_error_set(EINVAL, "analyse", NULL, "at most %d trials",
                               TRIALS_MOST);
    }
    *made = 0;
    for (size_t i = 0; i < method_count * size_count && code == 0; i++) {
        struct trial *trial = &trials[(*made)++];
        uint64_t size;
        trial->name = named[i / size_count];
        code = poise_dedup_cut_parse(trial->name, &trial->method, &trial->cut);
        if (code == 0 && trial->cut.average) {
            code = poise_error_set(EINVAL, "use", trial->name,
                                   "sizes are told by --size");
        }
        code =
            code < 0 ? code : poise_parse_bytes(sized[i % size_count], &size);
        if (code == 0 && (size < 8 || size > 1 << 15)) {
            code = poise_error_set(EINVAL, "use", sized[i % size_count],
                                   "segments have 8 to 32768 bytes");
        }
        if (code == 0 && strcmp(trial->method->name, "auto") == 0) {
            trial->again = i % size_count > 0;
        } else {
            trial->cut.average = code == 0 ? (uint32_t)size : 0;
        }
    }
    return code < 0 ? code : send_all(values, paths, count, trials, *made);
}

int cli_wire_analyse(int argc, char **argv)
{
    const char *name = cli_wire_analyse_command.name;
    struct values values = {.progress = cli_is_terminal(STDERR_FILENO)};
    struct poise_buf out = {0};
    struct trial *trials = poise_alloc(TRIALS_MOST, sizeof *trials);
    struct cli_standard standard;
    size_t made = 0;
    int exit_code = CLI_DONE, code = trials ? 0 : -ENOMEM;
    int first = cli_parse(&cli_wire_analyse_command, argc, argv, &values,
                          &values.common, &exit_code);

    if (first < 0) {
        goto free_all;
    }
    if (first == argc) {
        cli_say(name, "which files?");
        exit_code = CLI_WRONG_USE;
        goto free_all;
    }
    exit_code =
        cli_standard_output(name, values.json, &values.report, NULL, &standard);
    if (exit_code != CLI_DONE) {
        goto free_all;
    }
    if (code == 0) {
        code = run_all(&values, (const char *const *)argv + first, argc - first,
                       trials, &made);
    }
    if (code == 0) {
        code = values.json ? print_json(trials, made, &out)
                           : print_text(trials, made, &out);
    }
    if (code == 0 && values.report) {
        code = write_page(trials, made,
                          values.sizes.count ? values.sizes.count : 4,
                          values.report);
    }
    exit_code = code < 0 ? cli_fail(name, code) : cli_write(name, &out);
free_all:
    poise_strings_free(&values.methods);
    poise_strings_free(&values.sizes);
    poise_buf_free(&out);
    free(trials);
    return exit_code;
}
