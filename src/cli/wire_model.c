/*
 * poise wire model: how little can be sent, by equation 1 of the thesis, beside
 * what one level of long fingerprints would send.
 */
#include "cli/common/common.h"

#include <poise/dedup.h>
#include <poise/model.h>

#include <stdio.h>

struct values {
    struct cli_common common;
    uint64_t data;
    int64_t redundancy, bits, group, single, message;
    bool json;
};

static const struct poise_option options[] = {
    {POISE_OPTION_BYTES, 0, "data", "SIZE", "bytes of data (default: 100 GB)",
     .offset = offsetof(struct values, data)},
    {POISE_OPTION_INT, 0, "redundancy", "PERCENT",
     "how much of the data the receiver knows already (default: 75)",
     .offset = offsetof(struct values, redundancy), .min = 0, .max = 100},
    {POISE_OPTION_INT, 0, "bits", "N",
     "width of the short fingerprints (default: 40)",
     .offset = offsetof(struct values, bits), .min = 8, .max = 64},
    {POISE_OPTION_INT, 0, "group", "N",
     "segments that one long fingerprint covers (default: 20)",
     .offset = offsetof(struct values, group), .min = 1, .max = 65536},
    {POISE_OPTION_INT, .name = "single", .arg = "N",
     .help = "width of the single fingerprint to compare with (default: 160)",
     .offset = offsetof(struct values, single), .min = 8, .max = 512},
    {POISE_OPTION_INT, .name = "message", .arg = "BYTES",
     .help = "bytes of messages for each segment besides its fingerprint "
             "(default: 0, as in the paper)",
     .offset = offsetof(struct values, message), .min = 0, .max = 1000},
    {POISE_OPTION_FLAG, .name = "json", .help = "print JSON",
     .offset = offsetof(struct values, json)},
    CLI_RENAMED(POISE_OPTION_BYTES, 'd', NULL, "SIZE", "--data", struct values,
                data),
    CLI_RENAMED_INT('r', NULL, "--redundancy", struct values, redundancy, 0,
                    100),
    CLI_RENAMED_INT('b', NULL, "--bits", struct values, bits, 8, 64),
    CLI_RENAMED_INT('g', NULL, "--group", struct values, group, 1, 65536),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_wire_model_command = {
    .name = "wire model",
    .operands = NULL,
    .summary = "compute what fingerprints of two levels send, and choose them",
    .description =
        "Short fingerprints of segments can be wrong; a long one over "
        "a group of segments notices that, and the group is sent "
        "again. For each segment size the table shows the ratio of "
        "data to bytes sent: with one level, with the two levels that "
        "you ask for, and with the best two.",
    .options = options,
    .examples =
        "poise wire model\tthe defaults: 100 GB, of which 75 % are "
        "known\n"
        "poise wire model --data 1G --redundancy 95\ta smaller data set\n",
    .exits = "0\tdone\n2\twrong use\n",
    .see = "poise-wire-analyse(1) docs/wire.md",
};

static const unsigned sizes[] = {16,  32,   64,   128,  256,
                                 512, 1024, 2048, 4096, 8192};
enum { SIZES = sizeof sizes / sizeof *sizes, LOW = 16, HIGH = 8192 };

struct row {
    double one, two, best;
    struct poise_dedup_model chosen;
};

static struct row make_row(const struct poise_dedup_model *model,
                           unsigned single, unsigned size)
{
    struct poise_dedup_model two = *model, one;
    struct row row;

    two.segment_bytes = size;
    one = two;
    one.bits = single;
    one.group_bits = 0;
    row.one = poise_dedup_model_run(&one).ratio;
    row.two = poise_dedup_model_run(&two).ratio;
    row.chosen = two;
    poise_dedup_model_choose(&row.chosen);
    row.best = poise_dedup_model_run(&row.chosen).ratio;
    return row;
}

static int print_text(const struct poise_dedup_model *model, unsigned single,
                      struct poise_buf *out)
{
    static const struct poise_column columns[] = {
        {"segment", POISE_ALIGN_RIGHT},    {"one level", POISE_ALIGN_RIGHT},
        {"two levels", POISE_ALIGN_RIGHT}, {"best", POISE_ALIGN_RIGHT},
        {"bits", POISE_ALIGN_RIGHT},       {"group", POISE_ALIGN_RIGHT}};
    struct poise_table *table;
    int code = poise_table_create(columns, 6, &table);

    if (code < 0) {
        return code;
    }
    for (int i = 0; i < SIZES && code == 0; i++) {
        struct row row = make_row(model, single, sizes[i]);
        char cells[6][32];
        snprintf(cells[0], sizeof cells[0], "%u", sizes[i]);
        snprintf(cells[1], sizeof cells[1], "%.2f", row.one);
        snprintf(cells[2], sizeof cells[2], "%.2f", row.two);
        snprintf(cells[3], sizeof cells[3], "%.2f", row.best);
        snprintf(cells[4], sizeof cells[4], "%u", row.chosen.bits);
        snprintf(cells[5], sizeof cells[5], "%u", row.chosen.group_segments);
        const char *texts[] = {cells[0], cells[1], cells[2],
                               cells[3], cells[4], cells[5]};
        code = poise_table_row(table, texts);
    }
    if (code == 0) {
        code = poise_table_text(table, out);
    }
    poise_table_destroy(table);
    double even = poise_dedup_model_break_even(model, single, LOW, HIGH);
    if (even >= HIGH) {
        poise_buf_printf(out, "Two levels win at every size up to %d bytes.\n",
                         HIGH);
    } else if (even > 0) {
        poise_buf_printf(out, "Two levels win below %.0f bytes.\n", even);
    } else {
        poise_buf_puts(out, "One level wins at every size.\n");
    }
    return code < 0 ? code : out->error;
}

static int print_json(const struct poise_dedup_model *model, unsigned single,
                      struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    cli_json_begin(&json, "poise-wire-model-1");
    poise_json_double(&json, "break_even_bytes",
                      poise_dedup_model_break_even(model, single, LOW, HIGH));
    poise_json_array(&json, "segments");
    for (int i = 0; i < SIZES; i++) {
        struct row row = make_row(model, single, sizes[i]);
        poise_json_object(&json, NULL);
        poise_json_u64(&json, "bytes", sizes[i]);
        poise_json_double(&json, "one_level", row.one);
        poise_json_double(&json, "two_levels", row.two);
        poise_json_double(&json, "best", row.best);
        poise_json_u64(&json, "best_bits", row.chosen.bits);
        poise_json_u64(&json, "best_group", row.chosen.group_segments);
        poise_json_end_object(&json);
    }
    poise_json_end_array(&json);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
    return out->error;
}

int cli_wire_model(int argc, char **argv)
{
    const char *name = cli_wire_model_command.name;
    struct values values = {.data = UINT64_C(100000000000),
                            .redundancy = 75,
                            .bits = 40,
                            .group = 20,
                            .single = 160};
    struct poise_buf out = {0};
    int exit_code = CLI_DONE, code;
    int first = cli_parse(&cli_wire_model_command, argc, argv, &values,
                          &values.common, &exit_code);
    struct poise_dedup_model model = {
        .data_bytes = (double)values.data,
        .redundancy = (double)values.redundancy / 100,
        .bits = (unsigned)values.bits,
        .group_bits = 160,
        .group_segments = (unsigned)values.group,
        .message_bytes = (double)values.message,
    };

    if (first < 0) {
        return exit_code;
    }
    if (first < argc || values.data == 0) {
        cli_say(name,
                first < argc ? "it takes no operands" : "there are no data");
        return CLI_WRONG_USE;
    }
    code = values.json ? print_json(&model, (unsigned)values.single, &out)
                       : print_text(&model, (unsigned)values.single, &out);
    exit_code = code < 0 ? cli_fail(name, code) : cli_write(name, &out);
    poise_buf_free(&out);
    return exit_code;
}
