/* poise trace run: watch the collectives of an MPI program while it runs. */
#include "children.h"
#include "monitor.h"

#include "cli/common/series.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    struct monitor_wants wants;
    const char *mpi, *trace;
    struct poise_strings gather;
    int64_t rate;
};

static const struct poise_option options[] = {
    {POISE_OPTION_STRING, .name = "mpi", .arg = "NAME",
     .help = "ompi or mpich (default: that of the launcher)",
     .offset = offsetof(struct values, mpi)},
    {POISE_OPTION_STRING, .name = "trace", .arg = "FILE",
     .help = "keep the records in FILE (rank R above 0: FILE.R), for 'poise "
             "trace show'",
     .offset = offsetof(struct values, trace)},
    {POISE_OPTION_LIST, .name = "gather", .arg = "COMMAND",
     .help = "bring the records of another host while they are made, with "
             "--trace FILE, by a shell command: 'ssh n2 poise trace gather "
             "FILE'; can be repeated",
     .offset = offsetof(struct values, gather)},
    {POISE_OPTION_INT, 0, "rate", "N",
     "record at most about N calls of a communicator per second; "
     "all ranks leave out the same ones, and count them; 0: record "
     "all (default: 40000)",
     .offset = offsetof(struct values, rate), .max = INT32_MAX},
    MONITOR_WANTS_OPTIONS(struct values, wants),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_trace_run_command = {
    .name = "trace run",
    .operands = "[--] LAUNCHER [ARGUMENT...]",
    .summary = "run an MPI program, and show where its collectives spend time",
    .description =
        "Put it before the launcher: poise trace run mpirun -n 8 "
        "./prog. The program is not changed, but must be dynamically "
        "linked. Each collective call leaves a record, which this "
        "command reads while the program runs; memory does not grow "
        "with the length of the run.\n\n"
        "At the end, or when you interrupt it, it reports for each "
        "operation of each communicator how long the calls took, and "
        "how much of that passed until the last rank had come "
        "(arrival), until the root of the tree had all values (reduce; '-' "
        "where nothing tells what goes on inside: only Poise's trees do) and "
        "until all had left (broadcast). "
        "It names the ranks that came last, how often, by how much, "
        "and why. A rank is last if another one had to wait for it.\n\n"
        "It watches the collectives of the program's own MPI, or "
        "Poise's if POISE_TREE, POISE_COLL_AFTER or POISE_COLL_RULES "
        "is set (see 'poise help coll'). To see ranks on other hosts, "
        "let --trace name a file in a folder that all hosts share, or "
        "let --gather bring what they write there.",
    .options = options,
    .examples =
        "poise trace run mpirun -n 8 ./prog\twho is late?\n"
        "poise trace run --report page.html mpirun -n 8 ./prog\tthe same as "
        "a web page\n"
        "poise trace run --query 'by host | mean(wait)' mpirun -n 8 "
        "./prog\task a question of your own\n"
        "poise trace run --live mpirun -n 8 ./prog\twho is late now?\n"
        "poise trace run --messages mpirun -n 8 ./prog\twho is late in "
        "messages?\n"
        "poise trace run --json -o r.json mpirun -n 8 ./prog\twrite "
        "JSON, for programs\n"
        "poise trace run --trace t mpirun -n 8 ./prog\tkeep the "
        "records for later\n"
        "poise trace run --tune best.tree mpirun -n 8 ./prog\ttune its "
        "tree while it runs\n"
        "poise trace run --trace /dev/shm/t --gather 'ssh n2 poise trace "
        "gather /dev/shm/t' mpirun --host n1,n2 ./prog\twatch two hosts\n",
    .exits = "N\tthe launcher's own status\n"
             "125\tPoise itself failed: wrong use, no preload, or no records\n"
             "126\tthe launcher cannot be run\n"
             "127\tthere is no such launcher\n",
    .see = "poise-trace-attach(1) poise-trace-gather(1) poise-tune(1) "
           "docs/monitor.md",
};

/* ---- the records -------------------------------------------------------- */

/* Where they go: as named, or in memory, of which nothing stays. */
struct place {
    char path[PATH_MAX];
    bool stays;
};

/* Ranks may have other working folders. */
static int make_absolute(const char *path, char out[PATH_MAX])
{
    char folder[PATH_MAX];
    bool absolute = path[0] == '/';
    if ((!absolute && !getcwd(folder, sizeof folder)) ||
        snprintf(out, PATH_MAX, "%s%s%s", absolute ? "" : folder,
                 absolute ? "" : "/", path) >= PATH_MAX) {
        cli_say("trace run", "cannot use '%s': its path is too long", path);
        return CLI_WRAPPER_FAILED;
    }
    return CLI_DONE;
}

static int choose(const struct values *values, struct place *out)
{
    out->stays = values->trace != NULL;
    if (!values->trace) {
        uint64_t number = poise_rng_next(poise_rng_current());
        snprintf(out->path, sizeof out->path, "%s/poise-trace-%d-%08x",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
                 (int)getpid(), (unsigned)number);
        return CLI_DONE;
    }
    if (make_absolute(values->trace, out->path) != CLI_DONE) {
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

/* ---- the command -------------------------------------------------------- */

/* The program, and what brings records of other hosts; NULL: nothing does. */
struct job {
    struct monitor_child child;
    struct trace_gathering *gathering;
};

static bool has_ended(const struct poise_monitor_source *source, void *arg)
{
    struct job *job = arg;
    (void)source;
    monitor_look(&job->child);
    if (job->child.ended) {
        trace_gathering_finish(job->gathering);
    }
    return job->child.ended;
}

/* Those that bring records begin before there are any. */
static int run_and_watch(const struct values *values, const struct place *place,
                         char **line, const struct monitor_start *how,
                         struct monitor_watch *watch)
{
    struct job job = {0};
    int code = values->gather.count > 0
                   ? trace_gathering_start("trace run", place->path,
                                           &values->gather, &job.gathering)
                   : 0;
    if (code < 0) {
        cli_say_error("trace run");
        return CLI_WRAPPER_FAILED;
    }
    int status = monitor_start(line, how, &job.child);
    if (status == CLI_DONE) {
        status = monitor_watch_run(watch, has_ended, &job.child.status, &job);
        status = job.child.status != 0 ? job.child.status : status;
    }
    trace_gathering_end(job.gathering);
    return status;
}

static int watch_and_report(const struct values *values,
                            const struct place *place, char **line)
{
    struct monitor_watch *watch;
    char tree[PATH_MAX];
    if (values->wants.tune &&
        make_absolute(values->wants.tune, tree) != CLI_DONE) {
        return CLI_WRAPPER_FAILED;
    }
    int status =
        monitor_watch_create("trace run", place->path, &values->wants, &watch);
    if (status != CLI_DONE) {
        return status;
    }
    struct monitor_start how = {.mpi = values->mpi,
                                .trace = place->path,
                                .tree = values->wants.tune ? tree : NULL,
                                .rate = (int)values->rate,
                                .messages = values->wants.messages};
    status = run_and_watch(values, place, line, &how, watch);
    remove_records(place, monitor_watch_size(watch));
    monitor_watch_destroy(watch);
    return status;
}

/* As far as the program's start. */
static int run(const struct values *values, int argc, char **argv, int end)
{
    struct place place;
    end += end < argc && strcmp(argv[end], "--") == 0;
    if (end >= argc) {
        cli_say("trace run", "the launcher is missing: poise trace run mpirun "
                             "-n 4 ./prog");
        return CLI_WRAPPER_FAILED;
    }
    if (values->gather.count > 0 && !values->trace) {
        cli_say("trace run", "--gather needs --trace FILE: what the ranks of "
                             "other hosts write there is brought");
        return CLI_WRAPPER_FAILED;
    }
    if (cli_page_check("trace run", values->wants.report) != CLI_DONE ||
        cli_page_check("trace run", values->wants.output) != CLI_DONE ||
        cli_page_check("trace run", values->wants.timeline) != CLI_DONE) {
        return CLI_WRAPPER_FAILED;
    }
    int status = choose(values, &place);
    if (status != CLI_DONE) {
        return status;
    }
    cli_catch_signals();
    return watch_and_report(values, &place, argv + end);
}

int cli_trace_run(int argc, char **argv)
{
    struct values values = {.wants = MONITOR_WANTS, .rate = 40000};
    int status = CLI_DONE;
    int end = cli_options_end(options, argc, argv);
    int first = cli_parse(&cli_trace_run_command, end, argv, &values,
                          &values.common, &status);
    if (first < 0) {
        status = status == CLI_WRONG_USE ? CLI_WRAPPER_FAILED : status;
    } else {
        status = run(&values, argc, argv, end);
    }
    monitor_wants_free(&values.wants);
    poise_strings_free(&values.gather);
    return status;
}
