/* "-" for standard input and output, where commands take names of files. */
#include "common.h"

#include <poise/comm.h>
#include <poise/launcher.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_dash(const char *const *path)
{
    return path && *path && strcmp(*path, "-") == 0;
}

const char *cli_standard_input(const char *path)
{
    return is_dash(&path) ? "/dev/stdin" : path;
}

/* Before any work, whether it could be written. Of several processes the first
 * one looks by itself, when it can tell the others. */
static int check(const char *name, const char *const *path)
{
    bool beside;

    if (!path || !*path || poise_comm_launched() > 1 ||
        poise_output_check(*path, &beside) >= 0) {
        return CLI_DONE;
    }
    return cli_fail(name, -EIO);
}

int cli_standard_output(const char *name, bool json, const char **first,
                        const char **second, struct cli_standard *to)
{
    const char **path = is_dash(first) ? first : second;
    int fd;

    if (!is_dash(path)) {
        fd = check(name, first);
        return fd == CLI_DONE ? check(name, second) : fd;
    }
    if (json || (is_dash(first) && is_dash(second))) {
        cli_say(name, "only one thing goes to standard output: %s",
                json ? "'-' or --json" : "one '-'");
        return CLI_WRONG_USE;
    }
    /* Words make room. */
    fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        poise_error_set(errno, "write to", "standard output", NULL);
        return cli_fail(name, -EIO);
    }
    snprintf(to->path, sizeof to->path, "/dev/fd/%d", fd);
    *path = to->path;
    return CLI_DONE;
}
