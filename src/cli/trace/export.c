/* A session as files for other people's tools. */
#include "trace.h"

#include <poise/monitor_export.h>

#include <string.h>

static int write_perfetto(struct poise_trace_session *session, const char *path,
                          struct poise_monitor_exported *counts)
{
    struct poise_output *output;
    path = strcmp(path, "-") == 0 ? "/dev/stdout" : path;
    int code = poise_output_open(
        path, &(struct poise_output_options){.sequential = true}, &output);
    if (code < 0) {
        return code;
    }
    code = poise_monitor_export_perfetto(session, poise_output_fd(output), path,
                                         counts);
    if (code < 0) {
        poise_output_abort(output);
        return code;
    }
    return poise_output_commit(output, false);
}

int trace_export(const char *command, struct poise_trace_session *session,
                 const struct trace_exports *to)
{
    struct poise_monitor_exported counts = {0};
    int code = 0;
    if (to->perfetto) {
        code = write_perfetto(session, to->perfetto, &counts);
    }
    if (code == 0 && to->otf2) {
        code = poise_monitor_export_otf2(session, to->otf2, &counts);
    }
    if (code < 0) {
        return cli_fail(command, code);
    }
    if (counts.left_out > 0) {
        cli_say(command,
                "%llu older records are not in the exports: they were "
                "overwritten, or never finished (POISE_TRACE_EVENTS=N keeps N "
                "of each thread)",
                (unsigned long long)counts.left_out);
    }
    return CLI_DONE;
}
