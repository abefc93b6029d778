/* --where: the words behind it are an expression, not options. */
#include "where.h"

#include <errno.h>
#include <string.h>

/* Cut short, as other options may be, or with its argument behind "=": what was
 * meant to spare entries must not be lost. */
static bool is_nearly_where(const char *word)
{
    size_t len = strlen(word);

    return strncmp(word, "--where=", 8) == 0 ||
           (len > 2 && len < 7 && strncmp(word, "--where", len) == 0);
}

int cli_where(const char *name, int *argc, char **argv,
              struct poise_walk_filter **out)
{
    int at = 1;

    *out = NULL;
    while (at < *argc && strcmp(argv[at], "--") != 0 &&
           strcmp(argv[at], "--where") != 0) {
        if (is_nearly_where(argv[at])) {
            return cli_fail(
                name, poise_error_set(EINVAL, "use", argv[at],
                                      "--where is written out, and the "
                                      "expression is the words that follow "
                                      "it"));
        }
        at++;
    }
    if (at == *argc || argv[at][2] == '\0') {
        return CLI_DONE;
    }
    int code = poise_walk_filter_parse((const char *const *)argv + at + 1,
                                       (size_t)(*argc - at - 1), out);

    if (code < 0) {
        int status = cli_fail(name, code);
        const char *why = poise_error_last()->why;

        if (strncmp(why, "paths must come before", 22) == 0) {
            cli_say(name, "--where and its expression must come last, behind "
                          "all paths and options");
        }
        return status;
    }
    *argc = at;
    argv[at] = NULL;
    return CLI_DONE;
}
