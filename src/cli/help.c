/* help, version, completion, and the sources of the man pages. */
#include "cli/common/common.h"

#include <poise/parts.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct plain {
    struct cli_common common;
};

static const struct poise_option plain_options[] = {
    CLI_COMMON_OPTIONS(struct plain, common),
    {POISE_OPTION_END},
};

struct help_values {
    struct cli_common common;
    bool options;
};

static const struct poise_option help_options[] = {
    /* For tests/cli/options.py. */
    {POISE_OPTION_FLAG, .name = "options",
     .offset = offsetof(struct help_values, options)},
    CLI_COMMON_OPTIONS(struct help_values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_help_command = {
    .name = "help",
    .operands = "[SUBCOMMAND]",
    .summary = "explain poise or one of its subcommands",
    .options = help_options,
};
const struct poise_command cli_version_command = {
    .name = "version",
    .summary = "print the version",
    .description =
        "Also lists the libraries that this build lacks, and what does "
        "not work without them.",
    .options = plain_options,
};
const struct poise_command cli_completion_command = {
    .name = "completion",
    .operands = "bash|zsh|fish",
    .summary = "print a completion script for a shell",
    .description = "Try it in bash:\n\n"
                   "    . <(poise completion bash)\n\n"
                   "The packages and 'make install' put the scripts where the "
                   "shells look for them.",
    .options = plain_options,
};
const struct poise_command cli_man_command = {
    .name = "man-source",
    .operands = "[SUBCOMMAND]",
    .summary = "print the mdoc source of a man page",
    .options = plain_options,
};

static bool listed(const struct poise_command *command)
{
    return command != &cli_man_command;
}

static void say_unknown(const char *user, const char *word)
{
    struct poise_buf near = {0};

    cli_near_command(word, &near);
    if (near.len > 0) {
        cli_say(user, "no subcommand '%s'; did you mean '%s'?", word,
                poise_buf_str(&near));
    } else {
        cli_say(user, "no subcommand '%s'; 'poise help' lists them", word);
    }
    poise_buf_free(&near);
}

/* Subcommand by name; an error is set and printed if there is none. */
static const struct poise_command *command_named(const char *user, int count,
                                                 char **words)
{
    int used;
    const struct cli_command *found = cli_find_subcommand(count, words, &used);

    if (!found && cli_is_group(words[0])) {
        cli_say_group(count, words);
        return NULL;
    }
    if (!found) {
        say_unknown(user, words[0]);
        return NULL;
    }
    /* The page of wan explains its words. */
    if (used < count && found->command != &cli_wan_command) {
        cli_say(user, "takes at most one subcommand");
        return NULL;
    }
    return found->command;
}

/* The page of poise itself: what subcommands there are. */
static int program_page(cli_page_fn write, struct poise_buf *out)
{
    struct poise_buf text = {0};
    struct poise_command program = {
        .operands = "SUBCOMMAND [ARGUMENT]...",
        .summary = "data-intensive work, run evenly on every core of a machine "
                   "or cluster",
        .options = plain_options,
        .exits = "0\tall done\n"
                 "1\tsome of it failed\n"
                 "2\twrong use\n"
                 "3\tthis machine lacks something that is needed\n",
        .see = "poise-formats(5) poise(7) poise-environment(7) docs/index.md",
    };
    int code;

    poise_buf_puts(&text,
                   "Run a command as it is and it uses all cores of this "
                   "machine (run, advise, solve and desync run: as many as -j "
                   "says). Put mpirun or srun in front and its ranks work "
                   "together, with Open MPI or MPICH.\n\n"
                   "'poise help SUBCOMMAND' explains one of these:");
    for (size_t i = 0; cli_commands[i].command; i++) {
        const struct poise_command *command = cli_commands[i].command;

        if (cli_commands[i].heading) {
            poise_buf_printf(&text, "\n\n  %s", cli_commands[i].heading);
        }
        if (listed(command)) {
            poise_buf_printf(&text, "\n    %-13s%s", command->name,
                             command->summary);
        }
    }
    program.description = poise_buf_str(&text);
    code = text.error ? text.error : cli_page(&program, write, out);
    poise_buf_free(&text);
    return code;
}

/* help and man: the page of poise or of the subcommand that is named. */
static int print_page(const char *self, int count, char **words,
                      cli_page_fn write)
{
    struct poise_buf out = {0};
    const struct poise_command *command = NULL;
    int status;

    if (count == 1 && cli_is_group(words[0])) {
        cli_group_page(words[0], &out);
        status = cli_write(self, &out);
        poise_buf_free(&out);
        return status;
    }
    if (count > 0) {
        command = command_named(self, count, words);
        if (!command) {
            return CLI_WRONG_USE;
        }
    }
    if (!command) {
        program_page(write, &out);
    } else if (command == &cli_find_command) {
        cli_find_page(write, &out);
    } else {
        cli_page(command, write, &out);
    }
    status = cli_write(self, &out);
    poise_buf_free(&out);
    return status;
}

/* One line: the command, the long name, the short one, the argument, and what
 * to write instead of an old name, with tabs between them. */
static void list_option(const char *command, const struct poise_option *option,
                        struct poise_buf *out)
{
    bool takes = option->type != POISE_OPTION_FLAG &&
                 option->type != POISE_OPTION_PRESET;

    poise_buf_printf(out, "%s\t%s%s\t", command, option->name ? "--" : "",
                     option->name ? option->name : "");
    if (option->short_name) {
        poise_buf_printf(out, "-%c", option->short_name);
    }
    poise_buf_printf(out, "\t%s\t%s\n", takes ? option->arg : "",
                     option->renamed ? option->renamed : "");
}

/* Every option that users know, of every command, from the tables. */
static int list_options(void)
{
    struct poise_buf out = {0};
    int status;

    for (size_t i = 0; cli_commands[i].command; i++) {
        const struct poise_command *command = cli_commands[i].command;
        const struct poise_option *option = command->options;

        for (; option->type != POISE_OPTION_END && listed(command); option++) {
            if (option->renamed || poise_option_listed(option)) {
                list_option(command->name, option, &out);
            }
        }
    }
    status = cli_write("help", &out);
    poise_buf_free(&out);
    return status;
}

int cli_help(int argc, char **argv)
{
    struct help_values into = {0};
    int status = CLI_DONE;
    int first =
        cli_parse(&cli_help_command, argc, argv, &into, &into.common, &status);

    if (first < 0) {
        return status;
    }
    return into.options ? list_options()
                        : print_page("help", argc - first, argv + first,
                                     poise_command_help);
}

int cli_man(int argc, char **argv)
{
    struct plain into = {0};
    int status = CLI_DONE;
    int first =
        cli_parse(&cli_man_command, argc, argv, &into, &into.common, &status);

    return first < 0 ? status
                     : print_page("man-source", argc - first, argv + first,
                                  poise_command_man);
}

int cli_version(int argc, char **argv)
{
    struct plain into = {0};
    int status = CLI_DONE;
    int first = cli_parse(&cli_version_command, argc, argv, &into, &into.common,
                          &status);
    struct poise_buf out = {0};

    if (first < 0) {
        return status;
    }
    poise_buf_printf(&out, "poise %s\n", poise_version());
    for (int i = 0; i < POISE_PARTS; i++) {
        if (!poise_parts[i].is_built) {
            poise_buf_printf(&out, "built without %s (%s): no %s\n",
                             poise_parts[i].name, poise_parts[i].package,
                             poise_parts[i].without);
        }
    }
    status = cli_write("version", &out);
    poise_buf_free(&out);
    return status;
}

int cli_completion(int argc, char **argv)
{
    const struct poise_command *all[CLI_COMMANDS_MAX];
    struct plain into = {0};
    struct poise_buf out = {0};
    size_t count = 0;
    int status = CLI_DONE;
    int first = cli_parse(&cli_completion_command, argc, argv, &into,
                          &into.common, &status);

    if (first < 0) {
        return status;
    }
    if (first + 1 != argc) {
        cli_say("completion", "name one shell: bash, zsh or fish");
        return CLI_WRONG_USE;
    }
    for (size_t i = 0; cli_commands[i].command; i++) {
        if (listed(cli_commands[i].command)) {
            all[count++] = cli_commands[i].command;
        }
    }
    status = poise_command_completion("poise", all, count, argv[first], &out);
    status = status < 0 ? cli_fail("completion", status)
                        : cli_write("completion", &out);
    poise_buf_free(&out);
    return status;
}
