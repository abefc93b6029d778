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
    struct poise_strings queries;
    int64_t share; /* per cent */
    int when;
    bool json;
};

/* In the order of their words; see poise_scope_wait. */
static const char *const when_names[] = {"released", "contributed", "always",
                                         NULL};
static const enum poise_scope_when whens[] = {
    POISE_SCOPE_RELEASED, POISE_SCOPE_CONTRIBUTED, POISE_SCOPE_ALWAYS};

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
    {POISE_OPTION_LIST, .name = "query", .arg = "TEXT",
     .help = "ask about the calls: 'filter bytes<64 | by rank | mean(wait)'; "
             "can be repeated",
     .offset = offsetof(struct values, queries)},
    {POISE_OPTION_INT, .name = "share", .arg = "PERCENT",
     .help = "how much of one processor looking at records may take; those "
             "that come faster are left out and counted; 0: no limit (default "
             "1)",
     .offset = offsetof(struct values, share), .max = 100},
    {POISE_OPTION_ENUM, .name = "when", .arg = "WHEN",
     .help = "look when all ranks here have left a call (released, the "
             "default), when all are inside one (contributed), or always",
     .offset = offsetof(struct values, when), .choices = when_names},
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
        "poise trace run --query 'by host | mean(wait)' mpirun -n 8 ./prog\t"
        "ask\n"
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

/* Half full rings are read at once; where little comes, naps grow. Then the
 * time is waited for in which ranks mind least. */
static void nap(struct poise_scope *scope, enum poise_scope_when when,
                uint64_t records, int64_t *nap_ns)
{
    if (records > 2000) {
        *nap_ns = *nap_ns / 2 > NAP_LEAST_NS ? *nap_ns / 2 : NAP_LEAST_NS;
    } else if (records < 200) {
        *nap_ns = *nap_ns * 2 < NAP_MOST_NS ? *nap_ns * 2 : NAP_MOST_NS;
    }
    nanosleep(&(struct timespec){0, (long)*nap_ns}, NULL);
    poise_scope_wait(scope, when, (uint64_t)*nap_ns);
}

/* Read until the program has ended, and then what is left. */
static int watch(struct poise_monitor_reader *reader,
                 enum poise_scope_when when, struct monitor_child *child)
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
            nap(poise_monitor_reader_scope(reader), when,
                source.records - before, &nap_ns);
            before = source.records;
        }
    } while (!child->ended || code > 0);
    return failed;
}

/* ---- the report --------------------------------------------------------- */

/* All that watches a program. */
struct watched {
    struct poise_monitor *monitor;
    struct poise_scope *scope;
    struct poise_monitor_reader *reader;
    struct monitor_timeline *timeline;
    struct monitor_queries queries;
};

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

static int report(const struct values *values, const struct watched *watched,
                  int status)
{
    struct monitor_run run;
    struct poise_buf out = {0};
    const struct monitor_timeline *timeline = watched->timeline;
    int code = monitor_gather(watched->monitor, watched->reader, status, &run);
    run.queries = &watched->queries;
    if (code < 0) {
        monitor_free(&run);
        return cli_fail("trace run", code);
    }
    code = values->json ? monitor_json(&run, &out) : monitor_text(&run, &out);
    int written = finish(code, values->output, &out);
    if (values->report && written == CLI_DONE) {
        written =
            finish(monitor_page(&run, monitor_timeline_details(timeline), &out),
                   values->report, &out);
    }
    if (values->timeline && written == CLI_DONE) {
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

static int begin(const struct values *values, const struct place *place,
                 struct watched *out)
{
    struct poise_scope_options limits = {.share = (unsigned)values->share * 10};
    int code = poise_monitor_create(NULL, &out->monitor);
    code =
        code < 0 ? code : poise_scope_create(place->path, &limits, &out->scope);
    code = code < 0 ? code
                    : poise_monitor_reader_over(out->monitor, out->scope,
                                                &out->reader);
    if (code == 0 && (values->timeline || values->report)) {
        code = monitor_timeline_create(out->monitor, &out->timeline);
    }
    return code < 0 ? code
                    : monitor_queries_create(&values->queries, out->monitor,
                                             out->scope, &out->queries);
}

static void end(struct watched *watched)
{
    monitor_queries_free(&watched->queries);
    monitor_timeline_free(watched->timeline);
    poise_monitor_reader_destroy(watched->reader);
    poise_scope_destroy(watched->scope);
    poise_monitor_destroy(watched->monitor);
}

static int run_and_report(const struct values *values,
                          const struct place *place,
                          const struct watched *watched, char **line)
{
    struct monitor_child child;
    int status = monitor_start(line, values->mpi, place->path, &child);
    if (status != CLI_DONE) {
        return status;
    }
    /* The program comes first. */
    setpriority(PRIO_PROCESS, 0, 19);
    int code = watch(watched->reader, whens[values->when], &child);
    /* A launcher that failed has said why nothing was recorded. */
    if (code < 0 && !(code == -ENOENT && child.status != 0)) {
        cli_say_error("trace run");
    }
    status =
        code < 0 ? CLI_WRAPPER_FAILED : report(values, watched, child.status);
    if (code == 0) {
        int written = export_records(values, place->path);
        status = status == CLI_DONE ? written : status;
    }
    return child.status != 0 ? child.status : status;
}

static int watch_and_report(const struct values *values,
                            const struct place *place, char **line)
{
    struct watched watched = {0};
    struct poise_scope_source source = {0};
    int status = CLI_WRAPPER_FAILED;
    if (begin(values, place, &watched) < 0) {
        cli_say_error("trace run");
    } else {
        status = run_and_report(values, place, &watched, line);
        poise_scope_source(watched.scope, &source);
        remove_records(place, source.size);
    }
    end(&watched);
    return status;
}

int cli_trace_run(int argc, char **argv)
{
    struct values values = {.share = 1};
    struct place place;
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
    cli_catch_signals();
    status = watch_and_report(&values, &place, argv + end);
    free((void *)values.queries.items);
    return status;
}
