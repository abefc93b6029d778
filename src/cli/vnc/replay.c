/* poise vnc replay: what is in a recorded session, and what it costs to send,
 * by which method. */
#include "replay.h"
#include "cli/common/redraw.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    const char *picture, *boundaries, *report;
    struct poise_strings methods, ablations, delays;
    uint64_t memory;
    int64_t level, bits, updates;
    bool copies, history, strips, repeats, prediction; /* of auto */
    bool json, progress;
};

/* Each is a bit of what is left out. */
static const struct {
    const char *key;
    size_t offset;
    unsigned bit;
} parts[] = {
    {"copies", offsetof(struct values, copies), POISE_SCREEN_WITHOUT_COPIES},
    {"history", offsetof(struct values, history), POISE_SCREEN_WITHOUT_HISTORY},
    {"strips", offsetof(struct values, strips), POISE_SCREEN_WITHOUT_STRIPS},
    {"repeats", offsetof(struct values, repeats), POISE_SCREEN_WITHOUT_REPEATS},
    {"prediction", offsetof(struct values, prediction),
     POISE_SCREEN_WITHOUT_PREDICTION},
};
enum { PARTS = sizeof parts / sizeof *parts };

#define PART(member, text)                                                     \
    {                                                                          \
        POISE_OPTION_FLAG, .name = #member, .help = text,                      \
                           .offset = offsetof(struct values, member)           \
    }
static const struct poise_option ablations[] = {
    PART(copies, "find what is elsewhere on the screen"),
    PART(history, "find what was shown before"),
    PART(strips, "write text column by column"),
    PART(repeats, "leave out rows and columns that are repeated"),
    PART(prediction, "predict pixels of photographs from their neighbours"),
    {POISE_OPTION_END},
};

static const struct poise_option options[] = {
    {POISE_OPTION_LIST, .name = "method", .arg = "NAME",
     .help = "send the session with this method, NAME[,OPTION...]; can be "
             "repeated; 'all': every method (default: auto)",
     .offset = offsetof(struct values, methods)},
    CLI_ABLATION_OPTION(struct values, ablations),
    {POISE_OPTION_LIST, .name = "delay", .arg = "TIME[,RATE]",
     .help = "compute how long updates would take over a link with this "
             "one-way latency and RATE in bytes per second, such as 200KB; "
             "can be repeated",
     .offset = offsetof(struct values, delays)},
    {POISE_OPTION_INT, .name = "level", .arg = "N",
     .help = "compress at this Zstandard level (default: 9)",
     .offset = offsetof(struct values, level), .min = 1, .max = 19},
    {POISE_OPTION_INT, .name = "bits", .arg = "N",
     .help = "width of short fingerprints (default: 40; auto: 32)",
     .offset = offsetof(struct values, bits), .min = 8, .max = 64},
    {POISE_OPTION_BYTES, .name = "memory", .arg = "SIZE",
     .help = "memory for history at each end (default: 64M)",
     .offset = offsetof(struct values, memory)},
    {POISE_OPTION_INT, .name = "updates", .arg = "N",
     .help = "end after N updates", .offset = offsetof(struct values, updates),
     .min = 1, .max = INT64_MAX},
    {POISE_OPTION_STRING, .name = "boundaries", .arg = "FILE",
     .help = "write the last picture to FILE (PPM), with the pieces in "
             "which the first method sent it: copied green, recalled blue, "
             "new red, segments of the engine yellow",
     .offset = offsetof(struct values, boundaries)},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page of plots and tables (HTML)",
     .offset = offsetof(struct values, report)},
    {POISE_OPTION_STRING, .name = "picture", .arg = "FILE",
     .help = "write the last picture to FILE (PPM); '-' is standard output",
     .offset = offsetof(struct values, picture)},
    {POISE_OPTION_FLAG, .name = "json", .help = "print JSON",
     .offset = offsetof(struct values, json)},
    CLI_PROGRESS_OPTION(struct values, progress),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_vnc_replay_command = {
    .name = "vnc replay",
    .operands = "FILE",
    .summary = "compare ways to send a recorded session of a screen",
    .description =
        "Reads a session that 'poise vnc record' wrote, and prints "
        "what its updates cost: as the server sent them; as plain "
        "pixels; compressed by zstd (level 3, window 128 MiB, one "
        "stream, flushed after each update), for the changed pixels "
        "and for whole pictures; and by Poise's methods. Every picture "
        "that arrives is compared with the recorded one.\n\n"
        "Milliseconds are CPU time for each update, and the value that "
        "95 % of the updates stay below. With --delay the table also "
        "says how long updates would take over such a link, including "
        "the wait for those before them.",
    .options = options,
    .examples =
        "poise vnc replay session.screen\tprint the table\n"
        "poise vnc replay --method all --delay 60ms,200KB "
        "session.screen\tcompare all methods over a link of 1.6 Mbit/s\n"
        "poise vnc replay --method columns,width=16,min=4 "
        "session.screen\tuse the paper's parameters\n"
        "poise vnc replay --ablation copies=no --ablation history=no "
        "session.screen\tswitch off two parts of the method\n",
    .exits = "0\tdone\n"
             "1\tthe session cannot be read, is cut off or damaged, or a "
             "wrong picture arrived\n"
             "2\twrong use\n",
    .see = "poise-vnc-record(1) poise-vnc-serve(1) docs/vnc.md",
};

/* ---- what is asked for --------------------------------------------------- */

static int add_method(struct replay_found *found, const struct values *values,
                      const char *name, const char *part, unsigned without)
{
    struct poise_screen_codec_options how = {
        .method = name,
        .memory_bytes = values->memory,
        .level = (int)values->level,
        .bits = (unsigned)values->bits,
        .without = without,
    };
    struct replay_method *more =
        poise_realloc(found->methods, found->method_count + 1, sizeof *more);
    if (!more) {
        return -ENOMEM;
    }
    found->methods = more;
    struct replay_method *method = &more[found->method_count++];
    *method = (struct replay_method){.trial = NULL};
    poise_buf_printf(&method->label, "%s%s%s", name, part ? ", no " : "",
                     part ? part : "");
    return poise_screen_trial_create(&how, &method->trial);
}

static int add_methods(struct replay_found *found, const struct values *values)
{
    int code = 0;
    size_t count = values->methods.count;
    for (size_t i = 0; i < count && code == 0; i++) {
        const char *name = values->methods.items[i];
        if (strcmp(name, "all") != 0) {
            code = add_method(found, values, name, NULL, 0);
            continue;
        }
        for (const struct poise_screen_method *m = poise_screen_methods();
             m->name && code == 0; m++) {
            code = add_method(found, values, m->name, NULL, 0);
        }
    }
    if (count == 0) {
        code = add_method(found, values, "auto", NULL, 0);
    }
    for (size_t i = 0; i < PARTS && code == 0; i++) {
        const bool *is_on = (const bool *)(const void *)((const char *)values +
                                                         parts[i].offset);
        if (!*is_on) {
            code =
                add_method(found, values, "auto", parts[i].key, parts[i].bit);
        }
    }
    return code;
}

static int add_links(struct replay_found *found, const struct values *values)
{
    int code = 0;
    found->links = poise_alloc(values->delays.count + 1, sizeof *found->links);
    for (size_t i = 0; found->links && i < values->delays.count && code == 0;
         i++) {
        struct replay_link *link = &found->links[found->link_count++];
        char latency[32];
        uint64_t ns = 0;
        link->text = values->delays.items[i];
        size_t len = strcspn(link->text, ",");
        if (len >= sizeof latency) {
            return poise_error_set(EINVAL, "use a delay of", link->text,
                                   "not a time");
        }
        memcpy(latency, link->text, len);
        latency[len] = '\0';
        code = poise_parse_duration(latency, &ns);
        link->link.delay_us = ns / 1000;
        if (code == 0 && link->text[len] == ',') {
            code = poise_parse_bytes(link->text + len + 1,
                                     &link->link.bytes_per_s);
        }
    }
    return found->links ? code : -ENOMEM;
}

static void free_found(struct replay_found *found)
{
    for (size_t i = 0; i < found->method_count; i++) {
        poise_buf_free(&found->methods[i].label);
        poise_screen_trial_destroy(found->methods[i].trial);
    }
    free(found->methods);
    free(found->links);
}

/* ---- the run ------------------------------------------------------------- */

static void show_at(struct cli_meter *meter,
                    const struct poise_screen_reader *reader)
{
    uint64_t total, at = poise_screen_reader_at(reader, &total);
    cli_meter_show(meter, "replayed", NULL, at, total);
}

static int read_all(struct poise_screen_reader *reader,
                    struct poise_screen_meter *meter,
                    const struct values *values, struct replay_found *found)
{
    const struct poise_screen_picture *picture =
        poise_screen_reader_picture(reader);
    struct cli_meter line = {.wanted = values->progress};
    uint64_t most = (uint64_t)values->updates;
    struct poise_screen_step step;
    int code = 0;
    for (uint64_t n = 0;
         (most == 0 || n < most) &&
         (code = poise_screen_reader_next(reader, &step)) > 0 &&
         (code = poise_screen_meter_add(meter, picture, &step)) == 0;
         n++) {
        show_at(&line, reader);
        found->end_us = step.at_us;
        for (size_t i = 0; i < found->method_count && code == 0; i++) {
            code =
                poise_screen_trial_add(found->methods[i].trial, picture, &step);
        }
        if (code < 0) {
            break;
        }
    }
    cli_meter_wipe(&line);
    for (size_t i = 0; i < found->method_count; i++) {
        found->methods[i].result =
            poise_screen_trial_result(found->methods[i].trial);
    }
    found->costs = poise_screen_meter_costs(meter);
    found->width = picture->width;
    found->height = picture->height;
    found->hash = picture->pixels ? poise_screen_hash(picture) : 0;
    return code;
}

static int save_all(const struct poise_screen_picture *picture,
                    const struct values *values, const char *path,
                    const struct replay_found *found)
{
    const struct poise_screen_piece *pieces = NULL;
    size_t count = 0;
    int code = values->picture
                   ? replay_save_picture(picture, NULL, 0, values->picture)
                   : 0;
    if (code == 0 && values->boundaries) {
        code =
            poise_screen_trial_pieces(found->methods[0].trial, &pieces, &count);
        code = code == 0 ? replay_save_picture(picture, pieces, count,
                                               values->boundaries)
                         : code;
    }
    return code == 0 && values->report
               ? replay_save_page(found, path, values->report)
               : code;
}

static int replay(const char *path, const struct values *values,
                  struct replay_found *found)
{
    struct poise_screen_reader *reader = NULL;
    struct poise_screen_meter *meter = NULL;
    int code = poise_screen_reader_open(path, &reader);
    code = code == 0 ? poise_screen_meter_create(&meter) : code;
    code = code == 0 ? read_all(reader, meter, values, found) : code;
    code = code == 0 ? save_all(poise_screen_reader_picture(reader), values,
                                path, found)
                     : code;
    poise_screen_meter_destroy(meter);
    poise_screen_reader_close(reader);
    return code;
}

static int run(const char *path, const struct values *values)
{
    const char *name = cli_vnc_replay_command.name;
    struct replay_found found = {0};
    struct poise_buf out = {0};
    int end;
    if (add_methods(&found, values) < 0 || add_links(&found, values) < 0) {
        cli_say_error(name);
        free_found(&found);
        return CLI_WRONG_USE;
    }
    int code = replay(cli_standard_input(path), values, &found);
    if (code < 0) {
        end = cli_fail(name, code);
    } else {
        if (values->json) {
            replay_print_json(&found, &out);
        } else {
            replay_print_text(&found, &out);
        }
        end = cli_write(name, &out);
    }
    poise_buf_free(&out);
    free_found(&found);
    return end;
}

int cli_vnc_replay(int argc, char **argv)
{
    const char *name = cli_vnc_replay_command.name;
    struct values values = {.copies = true,
                            .history = true,
                            .strips = true,
                            .repeats = true,
                            .prediction = true,
                            .progress = cli_is_terminal(STDERR_FILENO)};
    struct cli_standard to;
    int end = CLI_DONE;
    int first = cli_parse(&cli_vnc_replay_command, argc, argv, &values,
                          &values.common, &end);
    if (first < 0 || !cli_ablate(&cli_vnc_replay_command, ablations,
                                 &values.ablations, &values, &end)) {
        goto free_lists;
    }
    if (argc - first != 1) {
        cli_say(name, "which session?");
        end = CLI_WRONG_USE;
    } else {
        end = cli_standard_output(name, values.json, &values.picture,
                                  &values.report, &to);
        end = end == CLI_DONE ? run(argv[first], &values) : end;
    }
free_lists:
    poise_strings_free(&values.methods);
    poise_strings_free(&values.ablations);
    poise_strings_free(&values.delays);
    return end;
}
