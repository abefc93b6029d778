/* Sessions of events of commands that have no world, which would begin them. */
#include "common.h"

#include <poise/trace.h>

#include <stdlib.h>

int cli_trace_begin(const char *name, int size)
{
    const char *path = getenv("POISE_TRACE");
    struct poise_trace_options options = {.size = size};
    struct poise_trace *trace;
    int code;

    if (!path || !*path) {
        return CLI_DONE;
    }
    code = poise_trace_create(path, &options, &trace);
    if (code < 0) {
        return cli_fail(name, code);
    }
    poise_trace_use(trace);
    return CLI_DONE;
}

void cli_trace_end(void)
{
    poise_trace_stop(poise_trace_use(NULL));
}
