/* poise trace gather: records of other hosts, brought here as they are made. */
#include "children.h"
#include "cli/common/redraw.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    struct poise_strings children;
    uint64_t interval_ns;
    bool in_turn, once, progress;
};

static const struct poise_option options[] = {
    {POISE_OPTION_LIST, .name = "child", .arg = "COMMAND",
     .help = "shell command that starts another end, such as 'ssh n2 poise "
             "trace gather /dev/shm/t'; can be repeated",
     .offset = offsetof(struct values, children)},
    {POISE_OPTION_DURATION, .name = "interval", .arg = "TIME",
     .help = "time between two requests (default: 100ms)",
     .offset = offsetof(struct values, interval_ns)},
    {POISE_OPTION_FLAG, .name = "in-turn",
     .help = "ask one child after the other, not all at once",
     .offset = offsetof(struct values, in_turn)},
    {POISE_OPTION_FLAG, .name = "once",
     .help = "copy what there is now, and end",
     .offset = offsetof(struct values, once)},
    CLI_PROGRESS_OPTION(struct values, progress),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_trace_gather_command = {
    .name = "trace gather",
    .operands = "FILE",
    .summary = "copy the records of other hosts here while they are made",
    .description =
        "With --child, runs a shell command that starts the other end, "
        "such as ssh, and copies all trace files of that host to FILE "
        "and FILE.R until the programs have ended. Without --child, it "
        "is that other end: it sends the records in FILE, FILE.1, ... "
        "over its standard output. Copies are traces like any other: "
        "'poise trace show' reads them, and 'poise trace gather' can "
        "pass them on, so that hosts form a tree. Records that were "
        "overwritten before they were copied are counted.",
    .options = options,
    .examples = "poise trace gather --child 'ssh n2 poise trace gather "
                "/dev/shm/t' t\tcopy the records of n2's ranks to files beside "
                "t\n"
                "poise trace gather --once --child 'ssh n2 poise trace gather "
                "t' now\tcopy what there is now\n",
    .exits = "0\teverything was copied\n"
             "1\ta child ended before its programs, or could not be "
             "understood\n"
             "2\twrong use\n",
    .see = "poise-trace-attach(1) poise-trace-run(1) docs/monitor.md",
};

/* ---- gathering ---------------------------------------------------------- */

/* Whether anybody is left to be asked. */
static bool goes_on(const struct poise_gather *gather)
{
    bool any = false;
    for (unsigned i = 0; i < poise_gather_children(gather); i++) {
        struct poise_gather_child child;
        poise_gather_child(gather, i, &child);
        any = any || (!child.gone && !trace_child_is_done(&child));
    }
    return any;
}

/* What is here, of how many there is no end. */
static void show_here(struct cli_meter *meter,
                      const struct poise_gather *gather)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < poise_gather_children(gather); i++) {
        struct poise_gather_child child;
        poise_gather_child(gather, i, &child);
        bytes += child.bytes;
    }
    cli_meter_show(meter, "gathered", NULL, bytes, 0);
}

static void ask(struct poise_gather *gather, const struct values *values)
{
    struct cli_meter meter = {.wanted = values->progress};
    do {
        while (poise_gather_poll(gather, false) > 0 && !cli_interrupted) {
            show_here(&meter, gather);
        }
        show_here(&meter, gather);
        if (!values->once && goes_on(gather)) {
            nanosleep(
                &(struct timespec){(time_t)(values->interval_ns / 1000000000),
                                   (long)(values->interval_ns % 1000000000)},
                NULL);
        }
    } while (!values->once && !cli_interrupted && goes_on(gather));
    cli_meter_wipe(&meter);
    if (cli_interrupted) {
        poise_gather_poll(gather, true); /* what killed ranks left, too */
    }
}

static int say(const struct poise_gather *gather, bool early)
{
    struct poise_buf out = {0};
    for (unsigned i = 0; i < poise_gather_children(gather); i++) {
        struct poise_gather_child child;
        poise_gather_child(gather, i, &child);
        poise_buf_escape(&out, child.name, strlen(child.name));
        poise_buf_printf(&out, ": %u files, ", child.files);
        poise_human_count(&out, child.records);
        poise_buf_puts(&out, " records, ");
        poise_human_count(&out, child.lost);
        poise_buf_puts(&out, " lost, ");
        poise_human_bytes(&out, child.bytes);
        poise_buf_puts(&out, "\n");
    }
    bool good = trace_children_are_good("trace gather", gather, early);
    int written = cli_write("trace gather", &out);
    poise_buf_free(&out);
    return written != CLI_DONE ? written : good ? CLI_DONE : CLI_PARTLY;
}

static int gather(const struct values *values, const char *path)
{
    struct poise_gather_options how = {.parallel = !values->in_turn};
    struct trace_children *children;
    cli_catch_signals();
    int code = trace_children_start(path, &how, &values->children, &children);
    if (code < 0) {
        return cli_fail("trace gather", code);
    }
    ask(children->gather, values);
    int status = say(children->gather, values->once || cli_interrupted);
    trace_children_end(children);
    return status;
}

int cli_trace_gather(int argc, char **argv)
{
    struct values values = {.interval_ns = 100000000,
                            .progress = cli_is_terminal(STDERR_FILENO)};
    int status = CLI_DONE;
    int first = cli_parse(&cli_trace_gather_command, argc, argv, &values,
                          &values.common, &status);
    if (first < 0) {
        return status;
    }
    if (argc - first != 1) {
        cli_say("trace gather", "needs one FILE");
        status = CLI_WRONG_USE;
    } else if (values.children.count > 0) {
        status = gather(&values, argv[first]);
    } else if (isatty(0) || isatty(1)) {
        cli_say("trace gather", "is the lower end of a pipe: poise trace "
                                "gather --child 'ssh HOST poise trace gather "
                                "FILE' FILE");
        status = CLI_WRONG_USE;
    } else {
        int code = poise_gather_serve(0, 1, argv[first]);
        status = code < 0 ? cli_fail("trace gather", code) : CLI_DONE;
    }
    poise_strings_free(&values.children);
    return status;
}
