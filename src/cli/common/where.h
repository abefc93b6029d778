/*
 * `--where EXPRESSION...`, the last words of a command: the tests of find that
 * say which entries it is for.
 */
#ifndef POISE_CLI_WHERE_H
#define POISE_CLI_WHERE_H

#include "common.h"

#include <poise/find.h>

/** For the command's table: help, completion. `member` (const char *) is set
 * only by --where=..., which cli_where refuses before. */
#define CLI_WHERE_OPTION(type, member)                                         \
    {                                                                          \
        POISE_OPTION_STRING,                                                   \
            .name = "where", .arg = "EXPRESSION",                              \
            .help =                                                            \
                "only entries that match EXPRESSION (see 'poise help find'); " \
                "must come last, takes the rest of the line",                  \
            .offset = offsetof(type, member)                                   \
    }

/** Take "--where" and all that follows off the words, to be called before
 * cli_parse. `out` receives the filter, NULL without --where; free it with
 * poise_walk_filter_free. CLI_DONE, or the exit code with the error printed. */
int cli_where(const char *name, int *argc, char **argv,
              struct poise_walk_filter **out);

#endif
