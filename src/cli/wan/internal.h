/* poise wan: what its files share. */
#ifndef POISE_CLI_WAN_H
#define POISE_CLI_WAN_H

#include "cli/common/common.h"

#include <poise/wan.h>

/** What its options say. */
struct cli_wan {
    struct cli_common common;
    const char *name, *mpi, *answer;
    int64_t ranks, train, late_percent;
    uint64_t length, interval;
    bool json, keep_going;
};

/** The testbed, alive; else the exit code 125 with the error said. */
int cli_wan_alive(const char *name, struct poise_wan_testbed **out);
/** Run a command on a host: its status, or 125 to 127 with the error said.
 * `timeout_s`: see poise_wan_exec. */
int cli_wan_exec_on(const struct poise_wan_testbed *testbed, unsigned host,
                    char **argv, unsigned timeout_s);

/** Say the error; the exit code. */
int cli_wan_fail(int code);

/** The subcommands of link.c. */
int cli_wan_link(const struct cli_wan *values, int argc, char **argv);
int cli_wan_capture(const struct cli_wan *values, int argc, char **argv);
/** The subcommands of run.c: 'run', and 'agent', which launchers call. */
int cli_wan_run(const struct cli_wan *values, int argc, char **argv);
int cli_wan_agent(const struct cli_wan *values, int argc, char **argv);

#endif
