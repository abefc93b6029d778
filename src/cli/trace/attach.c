/* poise trace attach: watch a program that runs already, for a while. */
#include "monitor.h"

#include <poise/trace_clock.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    struct monitor_wants wants;
    uint64_t time_ns;
};

static const struct poise_option options[] = {
    {POISE_OPTION_DURATION, .name = "time", .arg = "TIME",
     .help = "watch for TIME (default: until the program ends, or Ctrl-C)",
     .offset = offsetof(struct values, time_ns)},
    MONITOR_WANTS_OPTIONS(struct values, wants),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_trace_attach_command = {
    .name = "trace attach",
    .operands = "FILE",
    .summary = "watch an MPI program that runs already",
    .description =
        "Start the program with POISE_TRACE=FILE under 'poise coll'. "
        "With POISE_TRACE_PAUSED=1 as well, it records only while this "
        "command watches; otherwise a call costs two readings of the "
        "clock and no memory. Without POISE_TRACE_PAUSED the newest "
        "records are always kept, and the report begins with them.\n\n"
        "The report and the options are those of 'poise trace run'. "
        "Ctrl-C ends this command with a report; the program goes on. "
        "To see ranks on other hosts, put FILE into a folder that all "
        "hosts share.",
    .options = options,
    .examples = "POISE_TRACE=/dev/shm/job POISE_TRACE_PAUSED=1 mpirun -n 8 "
                "poise coll ./prog\tstart a program, not recording yet\n"
                "poise trace attach --time 10s /dev/shm/job\twatch it for ten "
                "seconds\n"
                "poise trace attach --live /dev/shm/job\twatch it live\n",
    .exits = "0\tdone\n"
             "1\tthere is no such program, it has ended, or a file cannot "
             "be read or written\n"
             "2\twrong use\n",
    .see = "poise-trace-gather(1) poise-trace-run(1) poise-tune(1) "
           "docs/monitor.md",
};

/* ---- all ranks' files --------------------------------------------------- */

/* Let ranks record, or not; of those whose files are here. How many were
 * changed; an error only of the first one's. */
static int switch_all(const char *path, int size, bool paused)
{
    struct poise_buf name = {0};
    int changed = 0, code = 0;
    for (int rank = 0; rank < size && code >= 0; rank++) {
        poise_buf_reset(&name);
        poise_buf_printf(&name, rank ? "%s.%d" : "%s", path, rank);
        code = name.error ? name.error
                          : poise_trace_pause(poise_buf_str(&name), paused);
        changed += code >= 0 && (code == 1) != paused;
        /* Others may have ended, or be elsewhere. */
        code = rank > 0 && code != -ENOMEM && code < 0 ? 0 : code;
    }
    poise_buf_free(&name);
    return code < 0 ? code : changed;
}

static int look(const char *path, struct poise_trace_info *out, char host[256])
{
    struct poise_trace_view *view;
    int code = poise_trace_open(path, &view);
    if (code < 0) {
        return code;
    }
    poise_trace_info(view, out);
    snprintf(host, 256, "%s", out->host);
    poise_trace_close(view);
    return 0;
}

/* ---- until when --------------------------------------------------------- */

struct until {
    const char *path;
    int size;
    bool was_paused;
    uint64_t start_ns, time_ns; /* 0: no end */
    pid_t pid;                  /* of rank 0, if it is of this host; 0 */
};

static bool has_ended(const struct poise_monitor_source *source, void *arg)
{
    struct until *until = arg;
    bool in_order = source->size > 0 && source->files == source->size &&
                    source->running == 0;
    bool killed = until->pid > 0 && kill(until->pid, 0) != 0 && errno == ESRCH;
    bool is_over = cli_interrupted || in_order || killed ||
                   (until->time_ns > 0 &&
                    poise_clock_ns() - until->start_ns >= until->time_ns);
    if (is_over && until->was_paused) {
        /* As it was. A program that has ended meanwhile needs nothing. */
        switch_all(until->path, until->size, true);
        until->was_paused = false;
    }
    return is_over;
}

static pid_t local_pid(const struct poise_trace_info *info, const char *host)
{
    char here[256] = "";
    uint64_t clock[2];
    gethostname(here, sizeof here - 1);
    poise_trace_clock_id(clock);
    return strcmp(here, host) == 0 && clock[0] == info->clock[0] &&
                   clock[1] == info->clock[1]
               ? info->pid
               : 0;
}

/* ---- the command -------------------------------------------------------- */

static int attach(const char *path, const struct values *values)
{
    struct poise_trace_info info;
    struct monitor_watch *watch;
    char host[256];
    int code = look(path, &info, host), none = 0;
    if (code < 0) {
        return cli_fail("trace attach", code);
    }
    int status =
        monitor_watch_create("trace attach", path, &values->wants, &watch);
    if (status != CLI_DONE) {
        return CLI_PARTLY;
    }
    cli_catch_signals();
    code = switch_all(path, info.size, false);
    if (code < 0) {
        status = cli_fail("trace attach", code);
    } else {
        struct until until = {.path = path,
                              .size = info.size,
                              .was_paused = code > 0,
                              .start_ns = poise_clock_ns(),
                              .time_ns = values->time_ns,
                              .pid = local_pid(&info, host)};
        status = monitor_watch_run(watch, has_ended, &none, &until);
        status = status == CLI_DONE ? CLI_DONE : CLI_PARTLY;
    }
    monitor_watch_destroy(watch);
    return status;
}

int cli_trace_attach(int argc, char **argv)
{
    struct values values = {.wants = MONITOR_WANTS};
    int status = CLI_DONE;
    int first = cli_parse(&cli_trace_attach_command, argc, argv, &values,
                          &values.common, &status);
    if (first >= 0 && argc - first != 1) {
        cli_say("trace attach", "name the file that POISE_TRACE named");
        status = CLI_WRONG_USE;
    } else if (first >= 0) {
        status = attach(argv[first], &values);
    }
    monitor_wants_free(&values.wants);
    return status;
}
