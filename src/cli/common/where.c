/* --where: the words behind it are an expression, not options. */
#include "where.h"

#include <errno.h>
#include <string.h>

int cli_where(const char *name, int *argc, char **argv,
              struct poise_walk_filter **out)
{
    int at = 1;

    *out = NULL;
    while (at < *argc && strcmp(argv[at], "--") != 0 &&
           strcmp(argv[at], "--where") != 0) {
        if (strncmp(argv[at], "--where=", 8) == 0) {
            return cli_fail(
                name, poise_error_set(EINVAL, "use", argv[at],
                                      "the expression is the words that follow "
                                      "--where"));
        }
        at++;
    }
    if (at == *argc || argv[at][2] == '\0') {
        return CLI_DONE;
    }
    int code = poise_walk_filter_parse((const char *const *)argv + at + 1,
                                       (size_t)(*argc - at - 1), out);

    if (code < 0) {
        return cli_fail(name, code);
    }
    *argc = at;
    argv[at] = NULL;
    return CLI_DONE;
}
