/* poise trace run: watch the collectives of an MPI program while it runs. */
#include "monitor.h"
#include "trace.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    const char *mpi, *trace, *output, *report, *timeline;
    struct trace_exports exports;
    bool json;
};

static const struct poise_option options[] = {
    {POISE_OPTION_STRING, .name = "mpi", .arg = "NAME",
     .help = "ompi or mpich (default: whose launcher it is)",
     .offset = offsetof(struct values, mpi)},
    {POISE_OPTION_STRING, .name = "trace", .arg = "FILE",
     .help = "keep the records in FILE (rank R above 0: FILE.R), for poise "
             "trace show",
     .offset = offsetof(struct values, trace)},
    {POISE_OPTION_STRING, 'o', "output", .arg = "FILE",
     .help = "the report into FILE, not behind what the program prints",
     .offset = offsetof(struct values, output)},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page with all figures there, HTML",
     .offset = offsetof(struct values, report)},
    {POISE_OPTION_STRING, .name = "timeline", .arg = "FILE",
     .help = "write the last calls there, for Perfetto and chrome://tracing",
     .offset = offsetof(struct values, timeline)},
    TRACE_EXPORT_OPTIONS(struct values, exports),
    {POISE_OPTION_FLAG, .name = "json", .help = "print JSON",
     .offset = offsetof(struct values, json)},
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_trace_run_command = {
    .name = "trace run",
    .operands = "[--] LAUNCHER [ARGUMENT...]",
    .summary = "run an MPI program, and show where its collectives spend time",
    .description =
        "Stands before the launcher: poise trace run mpirun -n 8 ./prog. The "
        "program stays as it is, but must be dynamically linked. Each "
        "collective call of each rank leaves a record, which this command "
        "reads while the program runs; memory does not grow with its length. "
        "At the end, or when it is interrupted, it reports for each operation "
        "of each communicator how long the calls took; how much of that went "
        "by until the last rank had come (arrival), until the root of the "
        "tree had all (reduce, with Poise's trees only), and until all had "
        "left (broadcast); and which rank was last how often, and by how much. "
        "A rank is last if another one had to wait for it.\n\n"
        "The collectives of the program's own MPI are watched; POISE_TREE, "
        "POISE_COLL_AFTER or POISE_COLL_RULES in the environment make it "
        "Poise's (poise help coll). Ranks on other hosts are seen if --trace "
        "names a place that all of them share.",
    .options = options,
    .examples =
        "poise trace run mpirun -n 8 ./prog\twho is late?\n"
        "poise trace run --json -o r.json mpirun -n 8 ./prog\tfor programs\n"
        "poise trace run --trace t mpirun -n 8 ./prog\tkeep the records\n",
    .exits = "N\tthe launcher's own status\n"
             "125\tPoise itself failed: wrong use, no preload, or nothing was "
             "recorded\n"
             "126\tthe launcher cannot be run\n"
             "127\tthere is no such launcher\n",
};

/* ---- the records -------------------------------------------------------- */

/* Where they go: as named, or in memory, of which nothing stays. */
struct place {
    char path[PATH_MAX];
    bool stays;
};

static int choose(const struct values *values, struct place *out)
{
    char folder[PATH_MAX];
    out->stays = values->trace != NULL;
    if (!values->trace) {
        uint64_t number = poise_rng_next(poise_rng_current());
        snprintf(out->path, sizeof out->path, "%s/poise-trace-%d-%08x",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
                 (int)getpid(), (unsigned)number);
        return CLI_DONE;
    }
    /* Ranks may have other working folders. */
    bool absolute = values->trace[0] == '/';
    if ((!absolute && !getcwd(folder, sizeof folder)) ||
        snprintf(out->path, sizeof out->path, "%s%s%s", absolute ? "" : folder,
                 absolute ? "" : "/", values->trace) >= (int)sizeof out->path) {
        cli_say("trace run", "cannot use '%s': its path is too long",
                values->trace);
        return CLI_WRAPPER_FAILED;
    }
    if (access(out->path, F_OK) == 0) {
        cli_say("trace run", "'%s' is there already", values->trace);
        return CLI_WRAPPER_FAILED;
    }
    return CLI_DONE;
}

static void remove_records(const struct place *place, int size)
{
    struct poise_buf path = {0};
    if (place->stays) {
        return;
    }
    unlink(place->path);
    for (int rank = 1; rank < size; rank++) {
        poise_buf_reset(&path);
        poise_buf_printf(&path, "%s.%d", place->path, rank);
        unlink(poise_buf_str(&path));
    }
    poise_buf_free(&path);
}

/* ---- watching ----------------------------------------------------------- */

#define NAP_LEAST_NS 1000000
#define NAP_MOST_NS 20000000

/* Half full rings are read at once; where little comes, naps grow. */
static void nap(uint64_t records, int64_t *nap_ns)
{
    if (records > 2000) {
        *nap_ns = *nap_ns / 2 > NAP_LEAST_NS ? *nap_ns / 2 : NAP_LEAST_NS;
    } else if (records < 200) {
        *nap_ns = *nap_ns * 2 < NAP_MOST_NS ? *nap_ns * 2 : NAP_MOST_NS;
    }
    nanosleep(&(struct timespec){0, (long)*nap_ns}, NULL);
}

/* Read until the program has ended, and then what is left. */
static int watch(struct poise_monitor_reader *reader,
                 struct monitor_child *child)
{
    int64_t nap_ns = NAP_LEAST_NS;
    uint64_t before = 0;
    int code = 0, failed = 0;
    do {
        struct poise_monitor_source source;
        monitor_look(child);
        if (failed == 0) {
            code = poise_monitor_reader_poll(reader, child->ended);
            failed = code < 0 ? code : 0;
        }
        if (!child->ended && code <= 0) {
            poise_monitor_reader_source(reader, &source);
            nap(source.records - before, &nap_ns);
            before = source.records;
        }
    } while (!child->ended || code > 0);
    return failed;
}

/* ---- the report --------------------------------------------------------- */

static int write_out(const char *path, const struct poise_buf *text)
{
    struct poise_output *output;
    if (!path || strcmp(path, "-") == 0) {
        return cli_write("trace run", text);
    }
    int code = poise_output_open(path, NULL, &output);
    if (code < 0) {
        return cli_fail("trace run", code);
    }
    code =
        poise_file_write(poise_output_fd(output), text->data, text->len, path);
    if (code == 0) {
        code = poise_output_commit(output, false);
    } else {
        poise_output_abort(output);
    }
    return code < 0 ? cli_fail("trace run", code) : CLI_DONE;
}

/* Write what `make` made of the run; CLI_DONE, or the reason is printed. */
static int finish(int code, const char *path, struct poise_buf *out)
{
    int status = code < 0 ? cli_fail("trace run", code) : write_out(path, out);
    poise_buf_free(out);
    return status;
}

static int report(const struct values *values,
                  const struct poise_monitor *monitor,
                  const struct poise_monitor_reader *reader,
                  const struct monitor_timeline *timeline, int status)
{
    struct monitor_run run;
    struct poise_buf out = {0};
    int code = monitor_gather(monitor, reader, status, &run);
    if (code < 0) {
        monitor_free(&run);
        return cli_fail("trace run", code);
    }
    code = values->json ? monitor_json(&run, &out) : monitor_text(&run, &out);
    int written = finish(code, values->output, &out);
    if (values->report && written == CLI_DONE) {
        written = finish(monitor_page(&run, &out), values->report, &out);
    }
    if (timeline && written == CLI_DONE) {
        written = finish(monitor_timeline_json(timeline, &out),
                         values->timeline, &out);
    }
    monitor_free(&run);
    return written == CLI_DONE ? CLI_DONE : CLI_WRAPPER_FAILED;
}

/* What the rings still hold. */
static int export_records(const struct values *values, const char *path)
{
    struct poise_trace_session *session;
    if (!values->exports.perfetto && !values->exports.otf2) {
        return CLI_DONE;
    }
    int code = poise_trace_session_open(&path, 1, &session);
    if (code < 0) {
        return cli_fail("trace run", code);
    }
    int status = trace_export("trace run", session, &values->exports);
    poise_trace_session_close(session);
    return status == CLI_DONE ? CLI_DONE : CLI_WRAPPER_FAILED;
}

static int watch_and_report(const struct values *values,
                            const struct place *place,
                            struct poise_monitor *monitor, char **line)
{
    struct monitor_timeline *timeline = NULL;
    struct poise_monitor_reader *reader = NULL;
    struct poise_monitor_source source;
    struct monitor_child child;
    if (poise_monitor_reader_create(monitor, place->path, &reader) < 0 ||
        (values->timeline && monitor_timeline_create(monitor, &timeline) < 0)) {
        cli_say_error("trace run");
        poise_monitor_reader_destroy(reader);
        return CLI_WRAPPER_FAILED;
    }
    int status = monitor_start(line, values->mpi, place->path, &child);
    if (status == CLI_DONE) {
        /* The program comes first. */
        setpriority(PRIO_PROCESS, 0, 19);
        int code = watch(reader, &child);
        /* A launcher that failed has said why nothing was recorded. */
        if (code < 0 && !(code == -ENOENT && child.status != 0)) {
            cli_say_error("trace run");
        }
        status = code < 0
                     ? CLI_WRAPPER_FAILED
                     : report(values, monitor, reader, timeline, child.status);
        if (code == 0) {
            int written = export_records(values, place->path);
            status = status == CLI_DONE ? written : status;
        }
        status = child.status != 0 ? child.status : status;
    }
    poise_monitor_reader_source(reader, &source);
    remove_records(place, source.size);
    monitor_timeline_free(timeline);
    poise_monitor_reader_destroy(reader);
    return status;
}

int cli_trace_run(int argc, char **argv)
{
    struct values values = {0};
    struct place place;
    struct poise_monitor *monitor = NULL;
    int status = CLI_DONE;
    int end = cli_options_end(options, argc, argv);
    int first = cli_parse(&cli_trace_run_command, end, argv, &values,
                          &values.common, &status);
    if (first < 0) {
        return status == CLI_WRONG_USE ? CLI_WRAPPER_FAILED : status;
    }
    end += end < argc && strcmp(argv[end], "--") == 0;
    if (end >= argc) {
        cli_say("trace run", "the launcher is missing: poise trace run mpirun "
                             "-n 4 ./prog");
        return CLI_WRAPPER_FAILED;
    }
    status = choose(&values, &place);
    if (status != CLI_DONE) {
        return status;
    }
    if (poise_monitor_create(NULL, &monitor) < 0) {
        cli_say_error("trace run");
        return CLI_WRAPPER_FAILED;
    }
    cli_catch_signals();
    status = watch_and_report(&values, &place, monitor, argv + end);
    poise_monitor_destroy(monitor);
    return status;
}
