/* "-" for standard input and output, where commands take names of files. */
#include "common.h"

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

int cli_standard_output(const char *name, bool json, const char **first,
                        const char **second, struct cli_standard *to)
{
    const char **path = is_dash(first) ? first : second;
    int fd;

    if (!is_dash(path)) {
        return CLI_DONE;
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
