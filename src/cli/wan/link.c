/* poise wan link, poise wan capture: links of a testbed that is up. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int cli_wan_link(const struct cli_wan *values, int argc, char **argv)
{
    struct poise_wan_testbed *testbed = NULL;
    struct poise_buf line = {0};
    if (argc < 4) {
        cli_say("wan", "'link' takes what a line of a topology has behind it: "
                       "SITE SITE TIME RATE ...");
        return CLI_WRONG_USE;
    }
    poise_buf_puts(&line, "link");
    for (int i = 0; i < argc; i++) {
        poise_buf_printf(&line, " %s", argv[i]);
    }
    int code = line.error;
    if (code == 0) {
        code = poise_wan_open(values->name, &testbed);
    }
    if (code == 0) {
        code = poise_wan_change(testbed, poise_buf_str(&line));
    }
    if (code < 0) {
        code = cli_wan_fail(code);
    }
    poise_wan_close(testbed);
    poise_buf_free(&line);
    return code;
}

int cli_wan_capture(const struct cli_wan *values, int argc, char **argv)
{
    struct poise_wan_testbed *testbed = NULL;
    uint64_t missed = 0;
    if (argc != 3) {
        cli_say("wan", "'capture' takes two sites and a file ('-': stdout)");
        return CLI_WRONG_USE;
    }
    int code = poise_wan_open(values->name, &testbed), out = STDOUT_FILENO;
    if (code == 0 && strcmp(argv[2], "-") != 0) {
        out = poise_file_open(AT_FDCWD, argv[2],
                              O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        code = out < 0 ? out : 0;
    }
    if (code == 0) {
        cli_catch_signals();
        code = poise_wan_capture(testbed, argv[0], argv[1], out,
                                 &cli_interrupted, &missed);
        if (missed > 0) {
            cli_say("wan",
                    "%llu packets were missed: they came faster than "
                    "they could be written",
                    (unsigned long long)missed);
        }
    }
    if (out > STDERR_FILENO) {
        int closed = poise_file_close(out, argv[2]);
        code = code < 0 ? code : closed;
    }
    code = code < 0 ? cli_wan_fail(code) : missed ? CLI_PARTLY : CLI_DONE;
    poise_wan_close(testbed);
    return code;
}
