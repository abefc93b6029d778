/* poise SUBCOMMAND ...: finds the subcommand and runs it. */
#include "internal.h"

#include <errno.h>
#include <string.h>

const struct cli_command cli_commands[] = {
    {&cli_walk_command, cli_walk},
    {&cli_du_command, cli_du},
    {&cli_find_command, cli_find},
    {&cli_trace_command, cli_trace},
    {&cli_help_command, cli_help},
    {&cli_version_command, cli_version},
    {&cli_completion_command, cli_completion},
    /* Used by the build; not listed. */
    {&cli_man_command, cli_man},
    {NULL, NULL},
};

static int unknown(const char *word)
{
    const char *names[sizeof cli_commands / sizeof *cli_commands];
    const char *near;
    size_t count = 0;

    for (size_t i = 0; cli_commands[i].command; i++) {
        names[count++] = cli_commands[i].command->name;
    }
    near = poise_nearest(word, names, count);
    if (near) {
        poise_error_set(EINVAL, "run", word,
                        "no such subcommand; did you mean '%s'?", near);
    } else {
        poise_error_set(EINVAL, "run", word,
                        "no such subcommand; 'poise help' lists them");
    }
    cli_print_error(NULL, poise_error_last());
    return CLI_WRONG_USE;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;

    if (!word) {
        cli_say(NULL, "a subcommand is missing; 'poise help' lists them");
        return CLI_WRONG_USE;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        word = "help";
    } else if (strcmp(word, "--version") == 0) {
        word = "version";
    }
    for (size_t i = 0; cli_commands[i].command; i++) {
        if (strcmp(cli_commands[i].command->name, word) == 0) {
            return cli_commands[i].run(argc - 1, argv + 1);
        }
    }
    return unknown(word);
}
