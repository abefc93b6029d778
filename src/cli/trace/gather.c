/* poise trace gather: records of other hosts, brought here as they are made. */
#include "cli/common/common.h"

#include <poise/gather.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    struct poise_strings children;
    uint64_t interval_ns;
    bool in_turn, once;
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
};

/* ---- children ----------------------------------------------------------- */

/* The other end of a pair of sockets, run by the shell. */
static pid_t start(const char *command, int ends[2])
{
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_IGN); /* it ends when it is asked no more */
        if (dup2(ends[1], 0) < 0 || dup2(ends[1], 1) < 0) {
            _exit(126);
        }
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static int add_child(struct poise_gather *gather, const char *command,
                     pid_t *pid)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        return poise_error_set(errno, "start", command, NULL);
    }
    *pid = start(command, ends);
    int error = errno;
    close(ends[1]);
    if (*pid < 0) {
        close(ends[0]);
        return poise_error_set(error, "start", command, NULL);
    }
    return poise_gather_add(gather, ends[0], ends[0], command);
}

/* ---- gathering ---------------------------------------------------------- */

/* Whether anybody is left to be asked. */
static bool goes_on(const struct poise_gather *gather)
{
    bool any = false;
    for (unsigned i = 0; i < poise_gather_children(gather); i++) {
        struct poise_gather_child child;
        poise_gather_child(gather, i, &child);
        any = any ||
              (!child.gone && (child.files == 0 || child.ended < child.files));
    }
    return any;
}

static void ask(struct poise_gather *gather, const struct values *values)
{
    do {
        while (poise_gather_poll(gather, false) > 0 && !cli_interrupted) {
        }
        if (!values->once && goes_on(gather)) {
            nanosleep(
                &(struct timespec){(time_t)(values->interval_ns / 1000000000),
                                   (long)(values->interval_ns % 1000000000)},
                NULL);
        }
    } while (!values->once && !cli_interrupted && goes_on(gather));
    if (cli_interrupted) {
        poise_gather_poll(gather, true); /* what killed ranks left, too */
    }
}

static int say(const struct poise_gather *gather, bool early)
{
    struct poise_buf out = {0};
    int status = CLI_DONE;
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
        if (child.code < 0) {
            cli_say("trace gather", "'%s': %s", child.name,
                    strerror(-child.code));
            status = CLI_PARTLY;
        } else if (child.gone && !early &&
                   (child.files == 0 || child.ended < child.files)) {
            cli_say("trace gather", "'%s' ended before what it sends",
                    child.name);
            status = CLI_PARTLY;
        }
    }
    int written = cli_write("trace gather", &out);
    poise_buf_free(&out);
    return written == CLI_DONE ? status : written;
}

static int gather(const struct values *values, const char *path)
{
    struct poise_gather_options how = {.parallel = !values->in_turn};
    struct poise_gather *gather = NULL;
    pid_t *pids = poise_alloc(values->children.count, sizeof *pids);
    int code = pids ? poise_gather_create(path, &how, &gather) : -ENOMEM;
    int status = CLI_PARTLY;
    cli_catch_signals();
    for (size_t i = 0; i < values->children.count && code == 0; i++) {
        code = add_child(gather, values->children.items[i], &pids[i]);
    }
    if (code < 0) {
        status = cli_fail("trace gather", code);
    } else {
        ask(gather, values);
        status = say(gather, values->once || cli_interrupted);
    }
    poise_gather_destroy(gather);
    for (size_t i = 0; pids && i < values->children.count; i++) {
        if (pids[i] > 0) {
            waitpid(pids[i], NULL, 0);
        }
    }
    free(pids);
    return status;
}

int cli_trace_gather(int argc, char **argv)
{
    struct values values = {.interval_ns = 100000000};
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
    free((void *)values.children.items);
    return status;
}
