/*
 * poise run: an MPI program as virtual ranks, in this process or, started by
 * the launcher of an MPI, in several that do the same.
 */
#include "cli/common/series.h"
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    int64_t processes, ranks, threads;
    int smt;
    uint64_t stack, memory, context;
    const char *scratch;
    int swap, track, io;
    const char *placement, *speeds, *policy, *delay, *profile_json, *against,
        *report;
    bool profile, check, buffered;
};

enum { SWAP_ALWAYS = 1, SWAP_WHOLE };
static const char *const swap_names[] = {"needed", "always", "whole", NULL};

/* In the order of enum poise_disk_engine, and one more. */
static const char *const io_names[] = {"auto", "io_uring", "threads", "sync",
                                       NULL};
enum { IO_SYNC = POISE_DISK_THREADS + 1 };

static const struct poise_option options[] = {
    {POISE_OPTION_INT, 'n', "processes", "N",
     .help = "processes, started with the installed mpirun (default: 1, "
             "without MPI)",
     .offset = offsetof(struct values, processes), .min = 1, .max = 1000000},
    {POISE_OPTION_INT, 'V', "ranks", "N",
     .help = "virtual ranks in all (default: one for each process)",
     .offset = offsetof(struct values, ranks), .min = 1, .max = 10000000},
    {POISE_OPTION_INT, 'j', "threads", "N",
     .help = "threads of each process (default: 1)",
     .offset = offsetof(struct values, threads), .min = 1, .max = 1024},
    CLI_RENAMED_INT('v', NULL, "-V", struct values, ranks, 1, 10000000),
    CLI_RENAMED_INT('t', NULL, "-j", struct values, threads, 1, 1024),
    {POISE_OPTION_STRING, .name = "policy", .arg = "NAME",
     .help = "which ready rank runs next: round-robin (default); serial or "
             "serial:N (at most N threads compute at once); priority (ranks "
             "that send to other processes first) or priority:LIST (those "
             "of LIST, such as 0,7,16-23, first); coschedule (messages "
             "before computation); or unblocked (the rank just woken)",
     .offset = offsetof(struct values, policy)},
    {POISE_OPTION_STRING, .name = "placement", .arg = "NAME",
     .help = "which ranks a process holds: block (default), cyclic, or "
             "graph:FILE (keeps ranks together that send to each other; "
             "FILE comes from --profile-json with as many ranks)",
     .offset = offsetof(struct values, placement)},
    {POISE_OPTION_STRING, .name = "speeds", .arg = "LIST",
     .help = "speed of each process, such as 1,1,2.5: faster ones hold more "
             "ranks (default: all the same)",
     .offset = offsetof(struct values, speeds)},
    {POISE_OPTION_ENUM, .name = "smt", .arg = "WAY",
     .help = "bind threads: on, to hardware threads, core after core; off, "
             "to cores, whose other hardware threads stay idle; any, not at "
             "all (default: any)",
     .offset = offsetof(struct values, smt), .choices = poise_vrank_smt_names},
    {POISE_OPTION_BYTES, .name = "stack", .arg = "SIZE",
     .help = "stack of each rank; takes memory only where it is touched "
             "(default: 8M)",
     .offset = offsetof(struct values, stack)},
    {POISE_OPTION_STRING, .name = "scratch", .arg = "DIR[,DIR...]",
     .help = "when memory is short, swap what ranks allocate to unnamed "
             "files in these folders, several disks at once (default with "
             "--memory: $TMPDIR, else /var/tmp)",
     .offset = offsetof(struct values, scratch)},
    {POISE_OPTION_BYTES, .name = "memory", .arg = "SIZE",
     .help = "memory of each process, if ranks may be swapped to disk "
             "(default with --scratch: what its control group and the "
             "machine allow)",
     .offset = offsetof(struct values, memory)},
    {POISE_OPTION_BYTES, .name = "context", .arg = "SIZE",
     .help = "the most that a rank may allocate (default: sixteen times the "
             "memory left for contexts, as far as the scratch folders have "
             "room)",
     .offset = offsetof(struct values, context)},
    {POISE_OPTION_ENUM, .name = "swap", .arg = "WHEN",
     .help = "when to swap: needed; always, at each call that waits (to "
             "test programs); or whole, which reads all of a rank's data "
             "whenever it goes on (for comparison) (default: needed)",
     .offset = offsetof(struct values, swap), .choices = swap_names},
    {POISE_OPTION_ENUM, .name = "track", .arg = "MODE",
     .help = "which pages to write out: only changed ones, found by "
             "asynchronous write protection (async-wp), or all (full) "
             "(default: auto, what the kernel can do)",
     .offset = offsetof(struct values, track),
     .choices = poise_vrank_tracking_names},
    {POISE_OPTION_ENUM, .name = "io", .arg = "NAME",
     .help = "how to read and write scratch files: io_uring or threads, "
             "many transfers at once, or sync, one after the other "
             "(default: auto)",
     .offset = offsetof(struct values, io), .choices = io_names},
    {POISE_OPTION_FLAG, .name = "buffered",
     .help = "go through the page cache even where O_DIRECT works",
     .offset = offsetof(struct values, buffered)},
    {POISE_OPTION_STRING, .name = "delay", .arg = "TIME[,RATE]",
     .help = "delay messages between processes as a slow network would: "
             "TIME is the one-way latency, RATE bytes per second, such as "
             "10M (default: no limit)",
     .offset = offsetof(struct values, delay)},
    {POISE_OPTION_FLAG, .name = "check",
     .help = "compare the data types of sends and receives; where they "
             "differ the receive fails with MPI_ERR_TYPE, and both are named",
     .offset = offsetof(struct values, check)},
    {POISE_OPTION_FLAG, .name = "profile",
     .help = "print on stderr where the time went: parallelism, computing, "
             "waiting, system, MPI functions, phases between collectives",
     .offset = offsetof(struct values, profile)},
    {POISE_OPTION_STRING, .name = "profile-json", .arg = "FILE",
     .help = "write the profile, and who sent to whom, to FILE",
     .offset = offsetof(struct values, profile_json)},
    {POISE_OPTION_STRING, .name = "against", .arg = "FILE",
     .help = "compare with the profile in FILE, of a run with one rank for "
             "each core",
     .offset = offsetof(struct values, against)},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write the profile as a page of plots and tables (HTML)",
     .offset = offsetof(struct values, report)},
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_run_command = {
    .name = "run",
    .operands = "PROGRAM [ARGUMENT...]",
    .summary = "run an MPI program with more ranks than processes",
    .description =
        "Compile PROGRAM with 'poise cc', 'poise c++' or 'poise fort' "
        "first. Each rank is a user-level thread with its own copy of "
        "the program's globals; while one rank waits for a message "
        "another computes.\n\n"
        "A batch system's launcher can start the processes, too: 'srun "
        "poise run -V 64 ./prog' joins its step.\n\n"
        "If several MPIs are installed, POISE_MPI=ompi or "
        "POISE_MPI=mpich in the environment chooses one. With "
        "POISE_WIRE=mpi, messages between processes of a node go "
        "through that MPI, not through shared memory.\n\n"
        "What is covered: MPI 3.1's point-to-point messages (with persistent "
        "ones and matched probes), requests, all collectives "
        "(blocking, nonblocking, persistent, neighbour, v and w "
        "forms), communicators, groups, intercommunicators, data types "
        "and packing, operations, Cartesian and graph topologies, "
        "attributes, Info, error handlers, files, and MPI-1's old "
        "names. Not supported: one-sided communication, dynamic "
        "processes and generalised requests. A program that calls one "
        "of these does not compile, and the compiler names the "
        "function.",
    .options = options,
    .examples = "poise run -V 64 ./prog\trun 64 ranks in one process\n"
                "poise run -j 2 -V 64 ./prog\tuse two cores for them\n"
                "poise run -V 64 --memory 1G ./prog\tkeep in 1 GiB what they "
                "use, and the rest on disk\n"
                "poise run -V 64 --report page.html ./prog\tsee where the "
                "time went\n"
                "poise run -n 4 -V 64 ./prog\trun them in four processes\n"
                "poise run -n 2 -V 16 --delay 5ms ./prog\tpretend that the "
                "processes are far apart\n"
                "poise run -n 2 -V 16 --profile ./prog\tprint where the time "
                "went\n",
    .exits = "N\tthe program's exit status: that of the lowest rank that "
             "failed, or of the first that ended before MPI_Finalize\n"
             "125\tPoise or the launcher failed, the ranks wait for each "
             "other for ever, or one exited with 0 before MPI_Finalize\n"
             "126\tPROGRAM cannot be run with virtual ranks\n"
             "127\tthere is no such program\n"
             "128+N\ta rank was ended by signal N; without -n the command "
             "ends by that signal\n",
    .see = "poise-advise(1) poise-cc(1) poise-trace-run(1) docs/vrank.md",
};

/* A rank may have crashed: nothing here allocates. */
static void say(const char *line, void *arg)
{
    static const char name[] = "poise run: ";
    struct iovec parts[] = {{(void *)(uintptr_t)name, sizeof name - 1},
                            {(void *)(uintptr_t)line, strlen(line)},
                            {(void *)(uintptr_t) "\n", 1}};

    (void)arg;
    (void)!writev(STDERR_FILENO, parts, 3);
}

static void die(int status, void *arg)
{
    (void)arg;
    _exit(status);
}

static void ending(int status, void *arg)
{
    (void)arg;
    cli_launch_ends(status);
}

static int fail(int code)
{
    cli_print_error("run", poise_error_last());
    switch (code) {
    case -ENOENT:
        return POISE_VRANK_NOT_FOUND;
    case -EACCES:
    case -ENOEXEC:
    case -ENOTSUP:
        return POISE_VRANK_CANNOT_RUN;
    default:
        return POISE_VRANK_FAILED;
    }
}

/* "5ms" or "5ms,100M". */
static struct poise_disk_options disk_options(const struct values *values)
{
    bool is_sync = values->io == IO_SYNC;

    return (struct poise_disk_options){
        .engine =
            is_sync ? POISE_DISK_THREADS : (enum poise_disk_engine)values->io,
        .depth = is_sync ? 1 : 0,
        .buffered = values->buffered,
    };
}

static int read_delay(const char *text, struct poise_vrank_options *out)
{
    char latency[32];
    const char *comma = text ? strchr(text, ',') : NULL;
    size_t len = comma ? (size_t)(comma - text) : text ? strlen(text) : 0;

    if (!text) {
        return 0;
    }
    if (len >= sizeof latency) {
        return poise_error_set(EINVAL, "hold messages back for", text,
                               "not a time");
    }
    memcpy(latency, text, len);
    latency[len] = '\0';
    int code = poise_parse_duration(latency, &out->delay_ns);
    if (code == 0 && comma) {
        code = poise_parse_bytes(comma + 1, &out->delay_bytes_per_s);
    }
    return code;
}

/* Parse the options before the program. The index of the program, or -1 with
 * the exit code. */
static int parse(int argc, char **argv, struct values *values, int *status)
{
    int end = cli_options_end(options, argc, argv);
    int first =
        cli_parse(&cli_run_command, end, argv, values, &values->common, status);

    if (first < 0) {
        if (*status == CLI_WRONG_USE) {
            *status = POISE_VRANK_FAILED;
        }
        return -1;
    }
    end += end < argc && strcmp(argv[end], "--") == 0;
    if (end >= argc) {
        cli_needs("run", "a program");
        *status = POISE_VRANK_FAILED;
        return -1;
    }
    return end;
}

/* Whether a launcher started this process: then it is one of several. */
static bool is_launched(void)
{
    return getenv("OMPI_COMM_WORLD_RANK") || getenv("PMI_RANK") ||
           getenv("PMIX_RANK");
}

/* Words that mean nothing by themselves, and outputs that could not be written
 * when all is done. By the first process only: what others see is the same. */
static int check(const struct values *values)
{
    bool asks_swap = values->swap || values->context || values->track ||
                     values->io || values->buffered;

    if (is_launched()) {
        return CLI_DONE;
    }
    if (asks_swap && !values->memory && !values->scratch) {
        cli_say("run",
                "--context, --swap, --track, --io and --buffered say how "
                "ranks are swapped to disk: add --memory or --scratch");
        return POISE_VRANK_FAILED;
    }
    if (cli_page_check("run", values->report) != CLI_DONE ||
        cli_page_check("run", values->profile_json) != CLI_DONE) {
        return POISE_VRANK_FAILED;
    }
    if (values->ranks > 0 && values->ranks < values->processes) {
        cli_say("run", "only %lld of %lld processes hold a rank (-V %lld)",
                (long long)values->ranks, (long long)values->processes,
                (long long)values->ranks);
    }
    return CLI_DONE;
}

/* The libraries of C++ and OpenMP want a little of the space for thread-local
 * variables that the loader keeps free, in each copy: ask it for more, which is
 * possible only for a program that starts. Whether the environment was changed.
 */
static bool make_room(int64_t ranks)
{
    static const char name[] = "glibc.rtld.optional_static_tls";
    const char *now = getenv("GLIBC_TUNABLES");
    struct poise_buf value = {0};

    if (now && strstr(now, name)) {
        return false;
    }
    poise_buf_printf(&value, "%s%s%s=%lld", now ? now : "", now ? ":" : "",
                     name, 512 + 320 * (long long)ranks);
    bool changed =
        !value.error && setenv("GLIBC_TUNABLES", poise_buf_str(&value), 1) == 0;
    poise_buf_free(&value);
    return changed;
}

/* Become this command again, with the changed environment. */
static void restart(int argc, char **argv)
{
    const char **line = poise_alloc((size_t)argc + 2, sizeof *line);

    if (line) {
        setenv("POISE_HINTED", "1", 1);
        line[0] = "poise";
        line[1] = "run";
        for (int i = 1; i < argc; i++) {
            line[1 + i] = argv[i];
        }
        execv("/proc/self/exe", (char **)(uintptr_t)line);
        free(line);
    }
}

/** Libraries that take over functions of MPI, for the process that comes. */
#define TOOLS_VARIABLE "POISE_RUN_TOOLS"
/** Set where LD_PRELOAD has been seen to. */
#define SEEN_VARIABLE "POISE_RUN_PRELOADED"

/* Unless the user wants to know of them. */
static void hide_leaks(void)
{
    const char *now = getenv("ASAN_OPTIONS");
    struct poise_buf value = {0};

    if (now && strstr(now, "detect_leaks")) {
        return;
    }
    poise_buf_printf(&value, "%s%sdetect_leaks=0", now ? now : "",
                     now ? ":" : "");
    setenv("ASAN_OPTIONS", poise_buf_str(&value), 1);
    poise_buf_free(&value);
}

/* Sort what is in LD_PRELOAD, and what has to be. 1: the environment has
 * changed; negative: an error. */
static int sort_preload(const char *program)
{
    const char *now = getenv("LD_PRELOAD");
    struct poise_buf first = {0}, tools = {0};

    if (getenv(SEEN_VARIABLE)) {
        return 0;
    }
    unsetenv(TOOLS_VARIABLE);
    int code = poise_vrank_preload(program, now, &first, &tools);
    if (code == 0 && tools.len > 0) {
        setenv(TOOLS_VARIABLE, poise_buf_str(&tools), 1);
    }
    if (code == 0 && strstr(poise_buf_str(&first), "/libasan.") &&
        is_launched()) {
        /* MPIs leave memory to the end of the process. */
        hide_leaks();
    }
    if (code == 0 && strcmp(poise_buf_str(&first), now ? now : "") != 0) {
        setenv("LD_PRELOAD", poise_buf_str(&first), 1);
        setenv(SEEN_VARIABLE, "1", 1);
        code = 1;
    }
    poise_buf_free(&first);
    poise_buf_free(&tools);
    return code;
}

/* The threads that OpenMP makes for each rank are many more than processors: by
 * default they do not spin. */
static void calm_threads(void)
{
    setenv("OMP_WAIT_POLICY", "passive", 0);
}

/* The index in `names` of what stands before a colon, whose rest is *rest, or
 * NULL if there is none; -EINVAL. */
static int read_name(const char *doing, const char *text,
                     const char *const *names, int count, const char **rest)
{
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : strlen(text);

    *rest = colon ? colon + 1 : NULL;
    for (int i = 0; i < count; i++) {
        if (strlen(names[i]) == len && strncmp(names[i], text, len) == 0) {
            return i;
        }
    }
    const char *near = poise_nearest(text, names, (size_t)count);
    return poise_error_set(
        EINVAL, doing, text,
        near ? "did you mean '%s'?" : "there is none of this name", near);
}

/* "serial:2", "priority:0,8-15". */
static int read_policy(const char *text, struct poise_vrank_options *out)
{
    static const char doing[] = "schedule by the policy";
    const char *rest = NULL;
    int64_t serial = 0;

    if (!text) {
        return 0;
    }
    int found = read_name(doing, text, poise_vrank_policy_names,
                          POISE_VRANK_POLICIES, &rest);
    if (found < 0) {
        return found;
    }
    out->policy = (enum poise_vrank_policy)found;
    if (rest && found == POISE_VRANK_SERIAL) {
        int code = poise_parse_int(rest, 1, 1024, &serial);
        out->serial = (int)serial;
        return code;
    }
    if (rest && found == POISE_VRANK_PRIORITY) {
        out->urgent = rest;
    } else if (rest) {
        return poise_error_set(EINVAL, doing, text, "it takes no argument");
    }
    return 0;
}

/* "graph:FILE". */
static int read_placement(const char *text, struct poise_vrank_options *out)
{
    static const char doing[] = "place ranks by";
    const char *rest = NULL;

    if (!text) {
        return 0;
    }
    int found = read_name(doing, text, poise_vrank_placement_names,
                          POISE_VRANK_PLACEMENTS, &rest);
    if (found < 0) {
        return found;
    }
    out->placement = (enum poise_vrank_placement)found;
    out->graph = rest;
    if (found == POISE_VRANK_GRAPH && !(rest && *rest)) {
        return poise_error_set(EINVAL, doing, text,
                               "say by which profile: graph:FILE, as "
                               "--profile-json wrote it");
    }
    if (found != POISE_VRANK_GRAPH && rest) {
        return poise_error_set(EINVAL, doing, text, "it takes no argument");
    }
    return 0;
}

/* ---- the profile -------------------------------------------------------- */

/* What say, ending, die and run_profiled get; the first three need nothing. */
struct profiled {
    const struct values *values;
    const char *program;
    struct poise_vrank_profile *against;
    int code;
};

/* The ranks' words stay where they are, too. */
static const char *dash_is_stdout(const char *path)
{
    return strcmp(path, "-") == 0 ? "/dev/stdout" : path;
}

static void run_profiled(const struct poise_vrank_profile *profile, void *arg)
{
    struct profiled *run = arg;
    const struct values *values = run->values;
    struct poise_buf out = {0};
    int code = 0;

    if (values->profile || values->against) {
        code = cli_profile_text(profile, run->against, &out);
        if (code == 0) {
            cli_write_verbose(&out);
        }
    }
    if (code == 0 && values->profile_json) {
        poise_buf_reset(&out);
        code = poise_vrank_profile_json(profile, &out);
        code = code == 0
                   ? poise_file_save(dash_is_stdout(values->profile_json), &out)
                   : code;
    }
    if (code == 0 && values->report) {
        poise_buf_reset(&out);
        code = cli_profile_page(
            profile, run->against, run->program,
            values->check ? "that types of messages match at both ends" : NULL,
            &out);
        code = code == 0 ? poise_file_save(dash_is_stdout(values->report), &out)
                         : code;
    }
    poise_buf_free(&out);
    if (code < 0) {
        cli_print_error("run", poise_error_last());
    }
    run->code = code;
}

static int run_here(struct values *values, char **argv,
                    struct poise_vrank_options *run, int *status)
{
    struct profiled profiled = {.values = values, .program = argv[0]};
    int code = 0;

    run->arg = &profiled;
    if (values->profile || values->profile_json || values->report ||
        values->against) {
        run->profiled = run_profiled;
    }
    if (values->against && cli_speaks()) {
        code = poise_vrank_profile_read(values->against, &profiled.against);
        /* Not a failure to find the program. */
        code = code < 0 ? -EINVAL : 0;
    }
    if (code == 0) {
        code = poise_vrank_run(run, argv, status);
    }
    if (code == 0 && profiled.code < 0 && *status == 0) {
        *status = POISE_VRANK_FAILED;
    }
    poise_vrank_profile_free(profiled.against);
    return code;
}

int cli_run(int argc, char **argv)
{
    struct values values = {.processes = 1};
    int status = 0, first = parse(argc, argv, &values, &status);

    status = first < 0 ? status : check(&values);
    if (status != CLI_DONE || first < 0) {
        return status;
    }
    struct poise_vrank_options run = {
        .count = (int)values.ranks,
        .threads = (int)values.threads,
        .speeds = values.speeds,
        .smt = (enum poise_vrank_smt)values.smt,
        .stack_bytes = values.stack,
        .scratch = values.scratch,
        .memory_bytes = values.memory,
        .context_bytes = values.context,
        .swap_always = values.swap == SWAP_ALWAYS,
        .swap_whole = values.swap == SWAP_WHOLE,
        .checks = values.check,
        .tracking = (enum poise_vrank_tracking)values.track,
        .disk = disk_options(&values),
        .say = say,
        .ending = ending,
        .die = die,
    };
    int code = read_delay(values.delay, &run);
    if (code == 0) {
        code = read_policy(values.policy, &run);
    }
    if (code == 0) {
        code = read_placement(values.placement, &run);
    }
    bool must_restart = make_room(values.ranks);
    bool launches = values.processes > 1 && !is_launched();
    if (code == 0 && !launches) {
        code = sort_preload(argv[first]);
        must_restart |= code > 0;
        code = code > 0 ? 0 : code;
    }
    if (code == 0 && launches) {
        code = cli_launch(values.processes, argc, argv, &status);
    } else if (code == 0) {
        /* A launcher on another machine need not have passed it on. */
        if (must_restart) {
            restart(argc, argv);
        }
        cli_launch_begins();
        calm_threads();
        unsetenv(SEEN_VARIABLE);
        run.tools = getenv(TOOLS_VARIABLE);
        code = run_here(&values, argv + first, &run, &status);
    }
    status = code < 0 ? fail(code) : status;
    cli_launch_ends(status);
    return status;
}
