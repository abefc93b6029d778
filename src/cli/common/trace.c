/* Sessions of events of commands that have no world, which would begin them. */
#include "common.h"

#include <poise/trace.h>

#include <stdio.h>
#include <stdlib.h>

/* By which processes that this one starts know the session, if they get its
 * environment. */
#define SESSION "POISE_TRACE_SESSION"

static void tell_session(struct poise_trace *trace)
{
    struct poise_trace_view *view;
    struct poise_trace_info info;
    char text[33];

    if (poise_trace_view_of(trace, &view) == 0) {
        poise_trace_info(view, &info);
        snprintf(text, sizeof text, "%016llx%016llx",
                 (unsigned long long)info.session[0],
                 (unsigned long long)info.session[1]);
        setenv(SESSION, text, 1);
        poise_trace_close(view);
    }
}

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
    tell_session(trace);
    return CLI_DONE;
}

void cli_trace_join(int rank, int size)
{
    const char *path = getenv("POISE_TRACE"), *session = getenv(SESSION);
    struct poise_trace_options options = {.rank = rank, .size = size};
    struct poise_trace *trace;
    struct poise_buf name = {0};
    unsigned long long id[2];

    if (!path || !*path || !session ||
        sscanf(session, "%16llx%16llx", &id[0], &id[1]) != 2) {
        return;
    }
    options.session[0] = id[0];
    options.session[1] = id[1];
    poise_buf_printf(&name, "%s.%d", path, rank);
    if (!name.error &&
        poise_trace_create(poise_buf_str(&name), &options, &trace) == 0) {
        poise_trace_use(trace);
    } else {
        poise_error_clear();
    }
    poise_buf_free(&name);
}

void cli_trace_end(void)
{
    poise_trace_stop(poise_trace_use(NULL));
}
