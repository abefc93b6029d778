/* poise send: trees of files to another machine, and back. */
#include "cli/common/cache.h"

#include <poise/send.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    const char *shell, *program, *remote_cache, *segmenter, *report;
    struct cli_cache cache;
    uint64_t silence_ns;
    const char *restricted_to;
    bool read_only, write_only;
    bool archive, perms, owner, times, xattrs;
    bool checksum, ignore_times;
    bool remove, dry, verbose, progress, stats, json, one_file_system, server;
    struct poise_strings also;
};

static const struct poise_option options[] = {
    {POISE_OPTION_FLAG, .name = "delete",
     .help = "delete what the target's directories have and the sources' "
             "lack",
     .offset = offsetof(struct values, remove)},
    {POISE_OPTION_FLAG, 'c', "checksum", NULL,
     "compare files of the same size by content instead of times: "
     "both ends read all of them",
     .offset = offsetof(struct values, checksum)},
    {POISE_OPTION_FLAG, 'I', "ignore-times", NULL,
     "also send files whose size and time are the same",
     .offset = offsetof(struct values, ignore_times)},
    {POISE_OPTION_FLAG, 'n', "dry-run", NULL,
     "change nothing; list what would be done",
     .offset = offsetof(struct values, dry)},
    {POISE_OPTION_FLAG, 'v', "verbose", NULL,
     "list each entry that is sent, made, changed or deleted",
     .offset = offsetof(struct values, verbose)},
    {POISE_OPTION_FLAG, 'x', "one-file-system", NULL,
     "do not enter other file systems",
     .offset = offsetof(struct values, one_file_system)},
    {POISE_OPTION_FLAG, 'a', "archive", NULL,
     "accepted for habit's sake: everything is kept anyway",
     .offset = offsetof(struct values, archive)},
    {POISE_OPTION_FLAG, .name = "perms",
     .help = "keep permissions (default: yes)",
     .offset = offsetof(struct values, perms)},
    {POISE_OPTION_FLAG, .name = "owner",
     .help = "keep user and group, as numbers, where you may (default: yes)",
     .offset = offsetof(struct values, owner)},
    {POISE_OPTION_FLAG, .name = "times",
     .help = "keep modification times; without them every file is sent each "
             "time (default: yes)",
     .offset = offsetof(struct values, times)},
    {POISE_OPTION_FLAG, .name = "xattrs",
     .help = "keep extended attributes and access lists (default: yes)",
     .offset = offsetof(struct values, xattrs)},
    {POISE_OPTION_HEADING, .help = "The other end"},
    {POISE_OPTION_LIST, .name = "also", .arg = "[[USER@]HOST:]DST",
     .help = "send to this target as well, at the same time; can be repeated",
     .offset = offsetof(struct values, also)},
    {POISE_OPTION_STRING, 'e', "rsh", "COMMAND",
     "reach hosts with this command (default: ssh)",
     .offset = offsetof(struct values, shell)},
    {POISE_OPTION_STRING, .name = "program", .arg = "PATH",
     .help = "run this program on the other host (default: poise)",
     .offset = offsetof(struct values, program)},
    {POISE_OPTION_DURATION, .name = "timeout", .arg = "TIME",
     .help = "give up when the other end is silent for this long (default: "
             "never)",
     .offset = offsetof(struct values, silence_ns)},
    {POISE_OPTION_FLAG, .name = "server",
     .help = "be the other end, on stdin and stdout; sshd can be told to "
             "run only this",
     .offset = offsetof(struct values, server)},
    {POISE_OPTION_STRING, .name = "restrict", .arg = "DIR",
     .help = "with --server: serve only what lies in DIR, where all paths "
             "begin; the only cache is --cache",
     .offset = offsetof(struct values, restricted_to)},
    {POISE_OPTION_FLAG, .name = "read-only", .help = "with --server: send only",
     .offset = offsetof(struct values, read_only)},
    {POISE_OPTION_FLAG, .name = "write-only",
     .help = "with --server: receive only",
     .offset = offsetof(struct values, write_only)},
    {POISE_OPTION_HEADING, .help = "The cache"},
    CLI_CACHE_OPTIONS(struct values, cache, "poise/wire/to-HOST",
                      "for this transfer only"),
    {POISE_OPTION_STRING, .name = "remote-cache", .arg = "DIR",
     .help = "cache of the other end",
     .offset = offsetof(struct values, remote_cache)},
    {POISE_OPTION_STRING, .name = "segmenter", .arg = "NAME[,OPTION...]",
     .help = "how to cut files into segments (see 'poise help wire "
             "analyse'; default: gear); options: size=SIZE and, for floats, "
             "shape=200x300x4 and element=8",
     .offset = offsetof(struct values, segmenter)},
    {POISE_OPTION_HEADING, .help = "Output"},
    CLI_PROGRESS_OPTION(struct values, progress),
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page of plots and tables (HTML)",
     .offset = offsetof(struct values, report)},
    {POISE_OPTION_FLAG, .name = "stats", .help = "print statistics at the end",
     .offset = offsetof(struct values, stats)},
    {POISE_OPTION_FLAG, .name = "json", .help = "print statistics as JSON",
     .offset = offsetof(struct values, json)},
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_send_command = {
    .name = "send",
    .operands = "SRC... [[USER@]HOST:]DST",
    .summary = "send trees of files over a thin link, each byte once",
    .description =
        "Makes DST like SRC: files, directories, links, hard links, "
        "pipes and devices, with permissions, times, owners, extended "
        "attributes and holes. As with rsync, a SRC that ends in a "
        "slash means what is in it, files with the same size and time "
        "are skipped, and SRC... or DST may be on another host, "
        "reached by ssh, that has poise installed.\n\n"
        "Both ends remember in a cache what was sent before: known "
        "data, under whatever name, cost a few bytes, and so does what "
        "arrived before a transfer broke off. A file appears under its "
        "name only when it is complete and its digest is "
        "right.\n\n" CLI_CACHE_TELLS
        "So both ends keep a separate cache for each other end, by the "
        "name that you give it, unless --shared-cache or --cache and "
        "--remote-cache say otherwise. Give users who must not learn "
        "about each other caches of their own, and use --pad against "
        "observers of the link.\n\n"
        "With --also, SRC... go to several hosts at once, and are read "
        "and compressed once. A host that fails is named at the end "
        "and does not stop the others; a much slower one, or one that "
        "needs other files, is served after the others.",
    .options = options,
    .examples = "poise send results/ far:results\tsend what is in results\n"
                "poise send --delete -v src host:backup\tsend src, and delete "
                "what is gone\n"
                "poise send host:data/2024 .\tfetch\n"
                "poise send --also b:www --also c:www www/ a:www\tsend to "
                "three hosts at once\n",
    .exits = "0\tdone\n1\tsome of it failed\n2\twrong use\n",
    .see = "poise-copy(1) poise-tunnel(1) poise-wire-analyse(1) docs/send.md",
};

/* ---- words -------------------------------------------------------------- */

struct shown {
    bool line;     /* a line of progress may stand there */
    bool progress; /* it is wanted */
    struct poise_buf out;
    uint64_t begin_ns, then_ns, then_bytes;
    struct cli_series series; /* for the page */
};

static void wipe(struct shown *shown)
{
    cli_progress_wipe(shown->line);
    shown->line = false;
}

static void show_action(enum poise_remote_action action, const char *path,
                        size_t len, void *arg)
{
    struct shown *shown = arg;

    poise_buf_printf(&shown->out, "%-7s", poise_remote_action_names[action]);
    poise_buf_append(&shown->out, path, len);
    poise_buf_putc(&shown->out, '\n');
    wipe(shown);
    cli_write("send", &shown->out);
    poise_buf_reset(&shown->out);
}

static void show_problem(const struct poise_error *err, void *arg)
{
    wipe(arg);
    cli_print_error("send", err);
}

static void keep(struct shown *shown, const struct poise_remote_stats *stats)
{
    const uint64_t values[CLI_SERIES_VALUES] = {stats->file_bytes,
                                                stats->wire_bytes};

    cli_series_add(&shown->series, poise_clock_ns() - shown->begin_ns, values);
}

/* How fast files go, from one call to the next. */
static void put_speed(struct shown *shown, uint64_t bytes,
                      struct poise_buf *line)
{
    uint64_t now = poise_clock_ns();

    if (now > shown->then_ns && bytes >= shown->then_bytes) {
        poise_buf_puts(line, ", ");
        poise_human_bytes(line,
                          (uint64_t)((double)(bytes - shown->then_bytes) * 1e9 /
                                     (double)(now - shown->then_ns)));
        poise_buf_puts(line, "/s");
    }
    shown->then_ns = now;
    shown->then_bytes = bytes;
}

static void show_progress(const struct poise_remote_stats *stats, void *arg)
{
    struct shown *shown = arg;
    struct poise_buf line = {0};

    keep(shown, stats);
    if (!shown->progress) {
        return;
    }
    poise_buf_puts(&line, "\r\033[K");
    poise_human_count(&line, stats->entries);
    poise_buf_puts(&line, " entries, ");
    poise_human_bytes(&line, stats->file_bytes);
    poise_buf_puts(&line, " of files");
    put_speed(shown, stats->file_bytes, &line);
    poise_buf_puts(&line, ", ");
    poise_human_bytes(&line, stats->wire_bytes);
    poise_buf_puts(&line, " on the wire");
    if (!line.error) {
        (void)!write(STDERR_FILENO, line.data, line.len);
        shown->line = true;
    }
    poise_buf_free(&line);
}

static void put_figures(const struct poise_remote_stats *stats,
                        struct poise_json *json)
{
    poise_json_u64(json, "entries", stats->entries);
    for (int i = 0; i < POISE_REMOTE_ACTIONS; i++) {
        poise_json_u64(json, poise_remote_action_names[i], stats->actions[i]);
    }
    poise_json_u64(json, "problems", stats->problems);
    poise_json_u64(json, "file_bytes", stats->file_bytes);
    poise_json_u64(json, "wire_out_bytes", stats->peer.wire_out);
    poise_json_u64(json, "wire_in_bytes", stats->peer.wire_in);
    poise_json_u64(json, "by_run_bytes", stats->peer.by_run);
    poise_json_u64(json, "by_fingerprint_bytes", stats->peer.by_fingerprint);
    poise_json_u64(json, "by_delta_bytes", stats->peer.by_delta);
    poise_json_u64(json, "by_data_bytes", stats->peer.by_data);
    poise_json_u64(json, "repairs", stats->peer.repairs);
}

static void print_json(const struct poise_remote_stats *stats,
                       struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    cli_json_begin(&json, "poise-send-1");
    put_figures(stats, &json);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

static void print_stats(const struct poise_remote_stats *stats,
                        struct poise_buf *out)
{
    poise_human_count(out, stats->entries);
    poise_buf_puts(out, " entries");
    for (int i = 0; i < POISE_REMOTE_ACTIONS; i++) {
        poise_buf_printf(out, ", %s ", poise_remote_action_names[i]);
        poise_human_count(out, stats->actions[i]);
    }
    poise_buf_puts(out, "\nfiles: ");
    poise_human_count(out, stats->file_bytes);
    poise_buf_puts(out, " bytes; on the wire: ");
    poise_human_count(out, stats->peer.wire_out);
    poise_buf_puts(out, " out, ");
    poise_human_count(out, stats->peer.wire_in);
    poise_buf_puts(out, " in\n");
}

/* ---- the page ----------------------------------------------------------- */

/* What was sent to one target. */
static int put_target(struct poise_page *page,
                      const struct poise_remote_stats *stats)
{
    struct cli_amount counts[POISE_REMOTE_ACTIONS];
    int code = poise_page_section(page, "What was done", NULL);

    for (int i = 0; i < POISE_REMOTE_ACTIONS; i++) {
        counts[i] = (struct cli_amount){poise_remote_action_names[i],
                                        stats->actions[i]};
    }
    code = code ? code : cli_page_counts(page, counts, POISE_REMOTE_ACTIONS);
    code = code ? code
                : poise_page_section(
                      page, "In which way data went out",
                      "References, fingerprints and changes stand for what the "
                      "other end knows already.");
    return code ? code : cli_cache_ways(page, &stats->peer);
}

/* What became of each of several. */
static int put_targets(struct poise_page *page, const char *const *targets,
                       size_t count,
                       const struct poise_remote_outcome *outcomes)
{
    static const struct poise_column columns[] = {
        {"target", POISE_ALIGN_LEFT},   {"entries", POISE_ALIGN_RIGHT},
        {"files", POISE_ALIGN_RIGHT},   {"on the link", POISE_ALIGN_RIGHT},
        {"put off", POISE_ALIGN_RIGHT}, {"error", POISE_ALIGN_LEFT}};
    enum { COLUMNS = sizeof columns / sizeof *columns };
    struct poise_table *table;
    int code = poise_page_section(page, "Targets", NULL);

    code = code ? code : poise_table_create(columns, COLUMNS, &table);
    if (code < 0) {
        return code;
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        const struct poise_remote_stats *stats = &outcomes[i].stats;
        struct poise_buf cells[COLUMNS] = {{0}};
        const char *texts[COLUMNS];

        poise_buf_puts(&cells[0], targets[i]);
        poise_human_count(&cells[1], stats->entries);
        poise_human_bytes(&cells[2], stats->file_bytes);
        poise_human_bytes(&cells[3],
                          stats->peer.wire_out + stats->peer.wire_in);
        poise_buf_decimal(&cells[4], outcomes[i].postponed);
        poise_buf_puts(&cells[5], outcomes[i].code < 0 ? outcomes[i].why : "");
        for (int k = 0; k < COLUMNS; k++) {
            texts[k] = poise_buf_str(&cells[k]);
        }
        code = poise_table_row(table, texts);
        for (int k = 0; k < COLUMNS; k++) {
            poise_buf_free(&cells[k]);
        }
    }
    code = code ? code : poise_page_table(page, table);
    poise_table_destroy(table);
    return code;
}

/* The page of a transfer to `count` targets; `sum` is what all of it came to.
 * 0, or the exit code with the error printed. */
static int save_page(const struct values *values, const struct shown *shown,
                     const char *const *targets, size_t count,
                     const struct poise_remote_outcome *outcomes)
{
    uint64_t ns = poise_clock_ns() - shown->begin_ns, wire = 0, problems = 0;
    const struct poise_remote_stats *first = &outcomes[0].stats;
    struct cli_figures head = {0};
    struct poise_page *page = NULL;
    int code = poise_page_create("Transfer", targets[0], &page);

    for (size_t i = 0; i < count; i++) {
        wire +=
            outcomes[i].stats.peer.wire_out + outcomes[i].stats.peer.wire_in;
        problems += outcomes[i].stats.problems + (outcomes[i].code < 0 ? 1 : 0);
    }
    poise_human_count(cli_figure(&head, "entries"), first->entries);
    poise_human_bytes(cli_figure(&head, "files that were sent"),
                      first->file_bytes);
    poise_human_bytes(cli_figure(&head, "on the link"), wire);
    poise_buf_printf(cli_figure(&head, "bytes of files for each"), "%.3g",
                     wire > 0 ? (double)first->file_bytes * (double)count /
                                    (double)wire
                              : 0);
    poise_human_ns(cli_figure(&head, "time"), ns);
    poise_human_count(cli_figure(&head, "problems"), problems);
    code = code ? code : cli_page_figures(page, &head);
    cli_figures_free(&head);
    /* Of several targets only those are known that are not done. */
    if (code == 0 && count == 1) {
        code = cli_cache_course(page, &shown->series);
    }
    if (code == 0) {
        code = count == 1 ? put_target(page, first)
                          : put_targets(page, targets, count, outcomes);
    }
    code = cli_page_save(
        page,
        &(struct poise_page_run){
            .checked = values->dry
                           ? NULL
                           : "each file by its digest, before it got its name"},
        values->report, code);
    return code < 0 ? cli_fail("send", code) : CLI_DONE;
}

/* ---- the run ------------------------------------------------------------ */

static unsigned kept(const struct values *values)
{
    return (values->perms ? POISE_WALK_KEEP_MODE : 0u) |
           (values->owner ? POISE_WALK_KEEP_OWNER : 0u) |
           (values->times ? POISE_WALK_KEEP_TIMES : 0u) |
           (values->xattrs ? POISE_WALK_KEEP_XATTRS : 0u);
}

static struct poise_remote_options options_of(const struct values *values,
                                              const char *const *paths,
                                              size_t count, struct shown *shown)
{
    return (struct poise_remote_options){
        .sources = paths,
        .source_count = count - 1,
        .target = paths[count - 1],
        .shell = values->shell,
        .program = values->program,
        .keep = kept(values),
        .remove = values->remove,
        .dry = values->dry,
        .report_actions = values->dry || values->verbose,
        .one_file_system = values->one_file_system,
        .checksum = values->checksum,
        .ignore_times = values->ignore_times,
        .level = (int)values->cache.level,
        .segmenter = values->segmenter,
        .silence_ns = values->silence_ns,
        .cache = values->cache.folder,
        .remote_cache = values->remote_cache,
        .cache_bytes = values->cache.bytes,
        .cache_bits = (uint32_t)values->cache.bits,
        .shared_cache = values->cache.shared,
        .pad_bytes = (uint32_t)values->cache.pad,
        .action = show_action,
        .problem = show_problem,
        .progress = values->progress || values->report ? show_progress : NULL,
        .arg = shown,
        .stop = &cli_interrupted,
    };
}

/* What was to be printed; `code` if that is worse than that it cannot be. */
static int print_out(struct shown *shown, int code)
{
    if (cli_write("send", &shown->out) != CLI_DONE && code == CLI_DONE) {
        code = CLI_PARTLY;
    }
    poise_buf_free(&shown->out);
    return code;
}

static struct shown shown_of(const struct values *values)
{
    uint64_t now = poise_clock_ns();

    return (struct shown){.progress = values->progress,
                          .begin_ns = now,
                          .then_ns = now,
                          .series.count = 1};
}

/* After an interruption. */
static void say_go_on(int err)
{
    if (err == -EINTR) {
        cli_say("send", "to go on, run the same command again: what has "
                        "arrived is not sent again");
    }
}

static int run(const struct values *values, const char *const *paths,
               size_t count)
{
    struct shown shown = shown_of(values);
    struct poise_remote_options how = options_of(values, paths, count, &shown);
    struct poise_remote_stats stats = {0};
    int err = poise_remote_send(&how, &stats), code;

    wipe(&shown);
    if (err < 0) {
        code = cli_fail("send", err);
        say_go_on(err);
    } else {
        code = stats.problems ? CLI_PARTLY : CLI_DONE;
    }
    if (values->report && err == 0) {
        keep(&shown, &stats);
        int saved = save_page(values, &shown, &how.target, 1,
                              &(struct poise_remote_outcome){.stats = stats});

        code = code == CLI_DONE ? saved : code;
    }
    if (values->json) {
        print_json(&stats, &shown.out);
    } else if (values->stats) {
        print_stats(&stats, &shown.out);
    }
    return print_out(&shown, code);
}

/* ---- to several --------------------------------------------------------- */

static void print_outcomes_json(const char *const *targets, size_t count,
                                const struct poise_remote_outcome *outcomes,
                                struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    cli_json_begin(&json, "poise-send-several-1");
    poise_json_array(&json, "targets");
    for (size_t i = 0; i < count; i++) {
        poise_json_object(&json, NULL);
        poise_json_string(&json, "target", targets[i]);
        poise_json_string(&json, "error", outcomes[i].why);
        poise_json_u64(&json, "put_off", outcomes[i].postponed);
        put_figures(&outcomes[i].stats, &json);
        poise_json_end_object(&json);
    }
    poise_json_end_array(&json);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

static int show_outcomes(const struct values *values,
                         const char *const *targets, size_t count,
                         const struct poise_remote_outcome *outcomes,
                         struct poise_buf *out)
{
    int code = CLI_DONE;

    for (size_t i = 0; i < count; i++) {
        const struct poise_remote_outcome *outcome = &outcomes[i];
        if (outcome->code < 0) {
            cli_say("send", "%s: %s", targets[i], outcome->why);
        }
        if (outcome->code < 0 || outcome->stats.problems) {
            code = CLI_PARTLY;
        }
        if (values->stats && !values->json) {
            poise_buf_printf(out, "%s: ", targets[i]);
            print_stats(&outcome->stats, out);
        }
    }
    if (values->json) {
        print_outcomes_json(targets, count, outcomes, out);
    }
    return code;
}

static int run_several(const struct values *values, const char *const *paths,
                       size_t count)
{
    struct shown shown = shown_of(values);
    struct poise_remote_options how = options_of(values, paths, count, &shown);
    size_t all = values->also.count + 1;
    struct poise_remote_outcome *outcomes = poise_alloc(all, sizeof *outcomes);
    const char **targets = poise_alloc(all, sizeof *targets);
    int err = outcomes && targets ? 0 : -ENOMEM, code;

    if (err == 0) {
        targets[0] = how.target;
        memcpy(targets + 1, values->also.items,
               values->also.count * sizeof *targets);
        err = poise_remote_send_multicast(&how, targets, all, outcomes);
    }
    wipe(&shown);
    /* What concerns one of them is said of it. */
    code = outcomes && targets
               ? show_outcomes(values, targets, all, outcomes, &shown.out)
               : CLI_DONE;
    if (err == -EINTR) {
        say_go_on(err);
        code = CLI_INTERRUPTED;
    } else if (err < 0 && code == CLI_DONE) {
        code = cli_fail("send", err);
    }
    if (values->report && outcomes && targets) {
        int saved = save_page(values, &shown, targets, all, outcomes);

        code = code == CLI_DONE ? saved : code;
    }
    free(outcomes);
    free(targets);
    return print_out(&shown, code);
}

/* What is wrong is said to the other end. */
static int serve(const struct values *values)
{
    struct poise_remote_service service = {
        .in = STDIN_FILENO,
        .out = STDOUT_FILENO,
        .restricted_to = values->restricted_to,
        .read_only = values->read_only,
        .write_only = values->write_only,
        .cache = values->cache.folder,
        .cache_bytes = values->cache.bytes,
        .stop = &cli_interrupted,
    };

    cli_catch_signals();
    return poise_remote_serve(&service) < 0 ? CLI_PARTLY : CLI_DONE;
}

int cli_send(int argc, char **argv)
{
    struct values values = {.perms = true,
                            .owner = true,
                            .times = true,
                            .xattrs = true,
                            .progress = isatty(STDERR_FILENO) == 1};
    struct cli_standard standard;
    int exit_code = CLI_DONE;
    int first = cli_parse(&cli_send_command, argc, argv, &values,
                          &values.common, &exit_code);

    if (first < 0) {
        poise_strings_free(&values.also);
        return exit_code;
    }
    if (values.server) {
        poise_strings_free(&values.also);
        cli_trace_join(1, 2);
        exit_code = serve(&values);
        cli_trace_end();
        return exit_code;
    }
    if (values.restricted_to || values.read_only || values.write_only) {
        poise_strings_free(&values.also);
        cli_say("send", "--restrict, --read-only and --write-only are for "
                        "--server");
        return CLI_WRONG_USE;
    }
    if (!cli_cache_check("send", &values.cache)) {
        poise_strings_free(&values.also);
        return CLI_WRONG_USE;
    }
    if (argc - first < 2) {
        poise_strings_free(&values.also);
        cli_say("send", "what, and where to?");
        return CLI_WRONG_USE;
    }
    exit_code = cli_standard_output("send", values.json, NULL, &values.report,
                                    &standard);
    exit_code = exit_code == CLI_DONE ? cli_page_check("send", values.report)
                                      : exit_code;
    /* The other end is rank 1, if it hears of the session and records. */
    exit_code = exit_code == CLI_DONE ? cli_trace_begin("send", 2) : exit_code;
    if (exit_code != CLI_DONE) {
        poise_strings_free(&values.also);
        return exit_code;
    }
    cli_catch_signals();
    exit_code = (values.also.count > 0 ? run_several : run)(
        &values, (const char *const *)argv + first, (size_t)(argc - first));
    cli_trace_end();
    poise_strings_free(&values.also);
    return exit_code;
}
