/*
 * poise SUBCOMMAND ...: the list of all commands; finds the one that is meant
 * and runs it. A command parses, calls the library and prints; it computes
 * nothing itself.
 */
#include "cli/common/common.h"

#include <poise/comm.h>
#include <poise/launcher.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct cli_command cli_commands[] = {
    {&cli_walk_command, cli_walk, .heading = "Trees of files"},
    {&cli_du_command, cli_du},
    {&cli_find_command, cli_find},
    {&cli_copy_command, cli_copy},
    {&cli_compare_command, cli_compare},
    {&cli_remove_command, cli_remove},
    {&cli_archive_command, cli_archive},
    {&cli_cc_command, cli_cc, .heading = "MPI programs"},
    {&cli_cxx_command, cli_cxx},
    {&cli_fort_command, cli_fort},
    {&cli_run_command, cli_run},
    {&cli_advise_command, cli_advise, .alone = true},
    {&cli_trace_run_command, cli_trace_run, .alone = true},
    {&cli_trace_attach_command, cli_trace_attach, .alone = true},
    {&cli_trace_show_command, cli_trace_show},
    {&cli_trace_gather_command, cli_trace_gather, .alone = true},
    {&cli_trace_command, cli_trace},
    {&cli_coll_command, cli_coll},
    {&cli_tune_command, cli_tune},
    {&cli_noise_command, cli_noise},
    {&cli_sort_command, cli_sort, .heading = "Data larger than memory"},
    {&cli_listrank_command, cli_listrank},
    {&cli_bfs_command, cli_bfs, .heading = "Graphs"},
    {&cli_bfs_convert_command, cli_bfs_convert, .alone = true},
    {&cli_send_command, cli_send, .alone = true, .heading = "Thin links"},
    {&cli_tunnel_command, cli_tunnel},
    {&cli_vnc_serve_command, cli_vnc_serve},
    {&cli_vnc_view_command, cli_vnc_view},
    {&cli_vnc_record_command, cli_vnc_record, .alone = true},
    {&cli_vnc_replay_command, cli_vnc_replay},
    {&cli_wire_analyse_command, cli_wire_analyse, .alone = true},
    {&cli_wire_cached_command, cli_wire_cached},
    {&cli_wire_model_command, cli_wire_model},
    {&cli_solve_command, cli_solve, .heading = "Iterative jobs"},
    {&cli_desync_run_command, cli_desync_run},
    {&cli_wan_command, cli_wan, .heading = "Emulated clusters"},
    {&cli_help_command, cli_help, .heading = "Poise itself"},
    {&cli_version_command, cli_version},
    {&cli_completion_command, cli_completion},
    /* Used by the build; not listed. */
    {&cli_man_command, cli_man},
    {NULL, NULL},
};
_Static_assert(sizeof cli_commands / sizeof *cli_commands <= CLI_COMMANDS_MAX,
               "raise CLI_COMMANDS_MAX");

/* How many of the words are a subcommand's name: 0 if they are not. */
static int words_of(const char *name, int count, char **words)
{
    const char *blank = strchr(name, ' ');
    size_t first = blank ? (size_t)(blank - name) : strlen(name);

    if (count < 1 || strlen(words[0]) != first ||
        strncmp(name, words[0], first) != 0) {
        return 0;
    }
    if (!blank) {
        return 1;
    }
    return count > 1 && strcmp(blank + 1, words[1]) == 0 ? 2 : 0;
}

const struct cli_command *cli_find_subcommand(int count, char **words,
                                              int *used)
{
    const struct cli_command *found = NULL;

    *used = 0;
    for (size_t i = 0; cli_commands[i].command; i++) {
        int n = words_of(cli_commands[i].command->name, count, words);

        if (n > *used) {
            *used = n;
            found = &cli_commands[i];
        }
    }
    return found;
}

/* The length of the first word of a name of two, else 0. */
static size_t group_of(const char *name)
{
    const char *blank = strchr(name, ' ');

    return blank ? (size_t)(blank - name) : 0;
}

static bool in_group(const char *name, const char *group)
{
    size_t length = group_of(name);

    return length > 0 && strlen(group) == length &&
           strncmp(name, group, length) == 0;
}

bool cli_is_group(const char *word)
{
    bool found = false;

    for (size_t i = 0; cli_commands[i].command; i++) {
        const char *name = cli_commands[i].command->name;

        if (strcmp(name, word) == 0) {
            return false;
        }
        found = found || in_group(name, word);
    }
    return found;
}

void cli_group_page(const char *group, struct poise_buf *out)
{
    poise_buf_printf(out, "Usage: poise %s SUBCOMMAND [ARGUMENT]...\n\n",
                     group);
    for (size_t i = 0; cli_commands[i].command; i++) {
        const struct poise_command *command = cli_commands[i].command;

        if (in_group(command->name, group)) {
            poise_buf_printf(out, "    poise %-15s%s\n", command->name,
                             command->summary);
        }
    }
    poise_buf_printf(
        out, "\n'poise help %s SUBCOMMAND' explains one of them.\n", group);
}

/* The second words of a group's names. */
static size_t second_words(const char *group, const char **words)
{
    size_t count = 0;

    for (size_t i = 0; cli_commands[i].command; i++) {
        const char *name = cli_commands[i].command->name;

        if (in_group(name, group)) {
            words[count++] = name + group_of(name) + 1;
        }
    }
    return count;
}

void cli_say_group(int count, char **words)
{
    struct poise_buf page = {0};
    const char *names[CLI_COMMANDS_MAX];
    const char *near;

    if (count < 2) {
        cli_say(words[0], "a subcommand is missing");
        cli_group_page(words[0], &page);
        fputs(poise_buf_str(&page), stderr);
        poise_buf_free(&page);
        return;
    }
    near = poise_nearest(words[1], names, second_words(words[0], names));
    if (near) {
        cli_say(words[0], "no subcommand '%s'; did you mean '%s %s'?", words[1],
                words[0], near);
    } else {
        cli_say(words[0], "no subcommand '%s'; 'poise help %s' lists them",
                words[1], words[0]);
    }
}

/* "poise wire", or "poise wire ANYTHING". */
static int run_group(int count, char **words)
{
    struct poise_buf page = {0};
    int status;

    if (count < 2 || strcmp(words[1], "--help") != 0) {
        cli_say_group(count, words);
        return CLI_WRONG_USE;
    }
    cli_group_page(words[0], &page);
    status = cli_write(words[0], &page);
    poise_buf_free(&page);
    return status;
}

/* First words of all names, each once. */
static size_t first_words(struct poise_buf *text, const char **words)
{
    size_t count = 0;

    for (size_t i = 0; cli_commands[i].command; i++) {
        const char *name = cli_commands[i].command->name;
        size_t length = strcspn(name, " ");

        poise_buf_append(text, name, length);
        poise_buf_putc(text, '\0');
    }
    if (text->error) {
        return 0;
    }
    for (const char *at = poise_buf_str(text); *at; at += strlen(at) + 1) {
        words[count++] = at;
    }
    return count;
}

void cli_near_command(const char *word, struct poise_buf *out)
{
    struct poise_buf text = {0};
    const char *names[CLI_COMMANDS_MAX];
    const char *near = poise_nearest(word, names, first_words(&text, names));

    poise_buf_puts(out, near ? near : "");
    poise_buf_free(&text);
}

static int unknown(const char *word)
{
    struct poise_buf near = {0};

    cli_near_command(word, &near);
    if (near.len > 0) {
        poise_error_set(EINVAL, "run", word,
                        "no such subcommand; did you mean '%s'?",
                        poise_buf_str(&near));
    } else {
        poise_error_set(EINVAL, "run", word,
                        "no such subcommand; 'poise help' lists them");
    }
    cli_print_error(NULL, poise_error_last());
    poise_buf_free(&near);
    return CLI_WRONG_USE;
}

typedef int (*run_fn)(int argc, char **argv);

/* The names under which one subcommand is a program of its own. */
static run_fn by_own_name(const char *path)
{
    static const struct {
        const char *name;
        run_fn run;
    } names[] = {
        {"poise-cc", cli_cc}, {"poise-c++", cli_cxx}, {"poise-fort", cli_fort}};
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i].name, name) == 0) {
            return names[i].run;
        }
    }
    return NULL;
}

/* Started by mpirun as one of several: each would do the whole job, into the
 * same files. */
static int refuse_launcher(const struct cli_command *command)
{
    int64_t processes = poise_comm_launched();

    if (processes < 0) {
        cli_say_error(command->command->name);
        return CLI_WRONG_USE;
    }
    if (processes > 1) {
        cli_say(command->command->name,
                "a launcher started %lld of it, and each would do the whole "
                "job: start one, without the launcher (POISE_MPI=none if they "
                "are meant to be jobs of their own)",
                (long long)processes);
        return CLI_WRONG_USE;
    }
    return CLI_DONE;
}

int main(int argc, char **argv)
{
    static char help[] = "help", version[] = "version";
    run_fn run = argc > 0 ? by_own_name(argv[0]) : NULL;
    const struct cli_command *command;
    int used;

    if (run) {
        return run(argc, argv);
    }
    if (argc < 2) {
        cli_say(NULL, "a subcommand is missing; 'poise help' lists them");
        return CLI_WRONG_USE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        argv[1] = help;
    } else if (strcmp(argv[1], "--version") == 0) {
        argv[1] = version;
    }
    command = cli_find_subcommand(argc - 1, argv + 1, &used);
    if (!command) {
        return cli_is_group(argv[1]) ? run_group(argc - 1, argv + 1)
                                     : unknown(argv[1]);
    }
    if (command->alone && refuse_launcher(command) != CLI_DONE) {
        return CLI_WRONG_USE;
    }
    return command->run(argc - used, argv + used);
}
