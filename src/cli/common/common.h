/*
 * What all commands share. cli is the only wing that prints: results to
 * stdout, messages to stderr, one line for each error. Only rank 0 prints
 * results.
 */
#ifndef POISE_CLI_COMMON_H
#define POISE_CLI_COMMON_H

#include <poise/core.h>
#include <poise/report.h>

#include <limits.h>
#include <signal.h>

/** Exit codes, the same on every rank. */
enum {
    CLI_DONE = 0,
    CLI_PARTLY = 1, /**< some of it failed */
    CLI_WRONG_USE = 2,
    CLI_LACKS = 3,         /**< the machine lacks something */
    CLI_INTERRUPTED = 130, /**< a signal ended it, in order: as a shell says of
                                what SIGINT killed */
    CLI_WRAPPER_FAILED = 125 /**< a command that runs others: its own failure */
};

/** One subcommand: its table and what runs it (argv[0] is its name). */
struct cli_command {
    const struct poise_command *command;
    int (*run)(int argc, char **argv);
    bool alone; /**< of several processes that a launcher started each would do
                     all of it: refused */
    const char *heading; /**< of the first of its kind: of what kind */
};
/** All of them; ends with a NULL command. */
extern const struct cli_command cli_commands[];
/** More than there are. */
enum { CLI_COMMANDS_MAX = 64 };
/** The subcommand that the words begin with; `used` receives how many of them
 * are its name ("bfs convert" has two). NULL if there is none. */
const struct cli_command *cli_find_subcommand(int count, char **words,
                                              int *used);
/** Whether the word only begins names of two words, as "wire" does. */
bool cli_is_group(const char *word);
/** Append the first word of the command's name that `word` comes near to;
 * nothing if there is none. */
void cli_near_command(const char *word, struct poise_buf *out);
/** Append the list of the commands that begin with `group`. */
void cli_group_page(const char *group, struct poise_buf *out);
/** Say on stderr that the words, the first of which is a group, name none of
 * its commands, and what is meant or known. */
void cli_say_group(int count, char **words);

extern const struct poise_command cli_walk_command, cli_du_command,
    cli_find_command, cli_copy_command, cli_help_command, cli_version_command,
    cli_trace_command, cli_trace_show_command, cli_trace_run_command,
    cli_trace_attach_command, cli_trace_gather_command, cli_completion_command,
    cli_man_command;
extern const struct poise_command cli_remove_command, cli_compare_command,
    cli_archive_command;
extern const struct poise_command cli_bfs_command, cli_bfs_convert_command,
    cli_wan_command, cli_coll_command;
extern const struct poise_command cli_cc_command, cli_cxx_command,
    cli_fort_command, cli_run_command, cli_advise_command;
extern const struct poise_command cli_vnc_record_command,
    cli_vnc_replay_command, cli_vnc_serve_command, cli_vnc_view_command;
extern const struct poise_command cli_noise_command, cli_wire_analyse_command,
    cli_wire_model_command, cli_wire_cached_command;
extern const struct poise_command cli_sort_command, cli_listrank_command,
    cli_send_command, cli_tunnel_command, cli_solve_command,
    cli_desync_run_command, cli_tune_command;
int cli_walk(int argc, char **argv);
int cli_du(int argc, char **argv);
int cli_find(int argc, char **argv);
int cli_remove(int argc, char **argv);
int cli_compare(int argc, char **argv);
int cli_copy(int argc, char **argv);
int cli_archive(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_trace_show(int argc, char **argv);
int cli_trace_run(int argc, char **argv);
int cli_trace_attach(int argc, char **argv);
int cli_trace_gather(int argc, char **argv);
int cli_bfs(int argc, char **argv);
int cli_bfs_convert(int argc, char **argv);
int cli_cc(int argc, char **argv);
int cli_cxx(int argc, char **argv);
int cli_fort(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_advise(int argc, char **argv);
int cli_coll(int argc, char **argv);
int cli_wan(int argc, char **argv);
int cli_vnc_record(int argc, char **argv);
int cli_vnc_replay(int argc, char **argv);
int cli_vnc_serve(int argc, char **argv);
int cli_vnc_view(int argc, char **argv);
int cli_wire_analyse(int argc, char **argv);
int cli_wire_cached(int argc, char **argv);
int cli_wire_model(int argc, char **argv);
int cli_noise(int argc, char **argv);
int cli_send(int argc, char **argv);
int cli_tunnel(int argc, char **argv);
int cli_tune(int argc, char **argv);
int cli_sort(int argc, char **argv);
int cli_listrank(int argc, char **argv);
int cli_solve(int argc, char **argv);
int cli_desync_run(int argc, char **argv);
int cli_help(int argc, char **argv);
int cli_version(int argc, char **argv);
int cli_completion(int argc, char **argv);
int cli_man(int argc, char **argv);

/** poise_command_help or poise_command_man. */
typedef int (*cli_page_fn)(const struct poise_command *command,
                           struct poise_buf *out);
/** The help or man page of a subcommand. To its pages "see also" come those
 * that many have, and documents are named as they were installed. */
int cli_page(const struct poise_command *command, cli_page_fn write,
             struct poise_buf *out);
/** That of find, with the words that the library knows. */
int cli_find_page(cli_page_fn write, struct poise_buf *out);

/* ---- words -------------------------------------------------------------- */

/** Print "poise NAME: " and an error on stderr, in one write. Any thread. */
void cli_print_error(const char *name, const struct poise_error *err);
/** Print a sentence the same way, if cli_speaks. */
void cli_say(const char *name, const char *fmt, ...) POISE_PRINTF(2, 3);
/** Operands are missing, or too many: say what the command needs, and where it
 * is explained. CLI_WRONG_USE. */
int cli_needs(const char *name, const char *operands);
/** Whether what all ranks would say alike is to be said by this one: before
 * the world is made, as far as the launcher's environment tells. */
bool cli_speaks(void);
/** Print the last error, if cli_speaks. */
void cli_say_error(const char *name);
/** The same; the exit code that `code` stands for. */
int cli_fail(const char *name, int code);
/* Names and words of others never steer a terminal: messages have their control
 * characters as \ooo, results, where they go to a terminal, as '?'. */

/** Begin the object that a command prints with --json. Its first member is the
 * schema, "poise-COMMAND-VERSION": what the others mean (docs/formats.md). */
void cli_json_begin(struct poise_json *json, const char *schema);
/** A hash or an identifier: 16 hexadecimal digits, as text, which readers do
 * not round. */
void cli_json_hash(struct poise_json *json, const char *key, uint64_t value);

/** All of `out` on stdout; CLI_DONE, or the error printed and CLI_PARTLY. */
int cli_write(const char *name, const struct poise_buf *out);
/** Whether what is written there is looked at as it is. Open MPI's launcher
 * gives its processes a terminal for standard output and passes on what they
 * write to where it may have to arrive unchanged: that is none. */
bool cli_is_terminal(int fd);
/** --color: when there are colours. In the order of cli_color_names. */
enum cli_color { CLI_COLOR_AUTO, CLI_COLOR_ALWAYS, CLI_COLOR_NEVER };
extern const char *const cli_color_names[];
/** Whether what is written there has colours: `auto`: on a terminal that can,
 * unless NO_COLOR says no. */
bool cli_has_colours(int color, int fd);
/** All of `out` on stderr, for --verbose; empties it. */
void cli_write_verbose(struct poise_buf *out);
/** The time between two lines of progress: that of POISE_PROGRESS, or `usual`.
 */
uint64_t cli_progress_ns(uint64_t usual);
/** Wipe a line of progress, if lines were `shown` (redraw.h). */
void cli_progress_wipe(bool shown);

/* ---- "-" ---------------------------------------------------------------- */

/** Where data go that were asked for on standard output. */
struct cli_standard {
    char path[24];
};
/** The name to open: "-" is standard input. */
const char *cli_standard_input(const char *path);
/** Of outputs (each may be NULL, or point to NULL) one may be "-": it becomes a
 * name of standard output, and what the command has to say goes to stderr
 * instead. `json`: it has to go to stdout. CLI_DONE, or the exit code with the
 * reason printed. `to` lives as long as the name. */
int cli_standard_output(const char *name, bool json, const char **first,
                        const char **second, struct cli_standard *to);

/* ---- events ------------------------------------------------------------- */

/** Begin the session of events that POISE_TRACE asks for, in a command without
 * a world, which has `size` processes: CLI_DONE, or the exit code with the
 * reason printed. */
int cli_trace_begin(const char *name, int size);
/** In a process that another command started, which says in the environment
 * which session it began: record as `rank` of it, in FILE.rank. Nothing where
 * it said nothing, or that cannot be. */
void cli_trace_join(int rank, int size);
/** End the one that is in force, if any. */
void cli_trace_end(void);

/* ---- signals ------------------------------------------------------------ */

/** The signal that asked a command which called cli_catch_signals to end; 0:
 * none. */
extern volatile sig_atomic_t cli_interrupted;
/** From now on SIGINT, SIGTERM and SIGHUP only set cli_interrupted, and writing
 * into a pipe that nobody reads fails with EPIPE. */
void cli_catch_signals(void);

/* ---- preloads ----------------------------------------------------------- */

/** Where the preload called `name` is, in `out`. -ENOENT. */
int cli_preload_find(const char *name, struct poise_buf *out);
/** Append those that LD_PRELOAD names already, to stand behind ours. */
void cli_preload_others(struct poise_buf *out);
/** Where a program is that is called without a path: as execvp does. False:
 * there is none. */
bool cli_find_program(const char *name, char path[PATH_MAX]);

/* ---- options that several commands share -------------------------------- */

struct cli_common {
    bool help, version;
};

#define CLI_COMMON_OPTIONS(type, member)                                       \
    {POISE_OPTION_FLAG, .name = "help", .help = "print this help and exit",    \
     .offset = offsetof(type, member.help)},                                   \
    {                                                                          \
        POISE_OPTION_FLAG, .name = "version",                                  \
                           .help = "print the version and exit",               \
                           .offset = offsetof(type, member.version)            \
    }

/** An old name of a number's option: `now` is what to write instead. */
#define CLI_RENAMED_INT(short, long, now, type, member, least, most)           \
    {                                                                          \
        POISE_OPTION_INT, short, long, "N",                                    \
            .renamed = now, .offset = offsetof(type, member), .min = least,    \
            .max = most                                                        \
    }
/** The same of an option of another type, whose argument is called `text`. */
#define CLI_RENAMED(option_type, short, long, text, now, type, member)         \
    {                                                                          \
        option_type, short, long, text, .renamed = now,                        \
                                        .offset = offsetof(type, member)       \
    }

#define CLI_VERBOSE_OPTION(type, member)                                       \
    {                                                                          \
        POISE_OPTION_FLAG, 'v', "verbose",                                     \
            .help = "say on stderr what was done, and how fast",               \
            .offset = offsetof(type, member)                                   \
    }
#define CLI_PROGRESS_OPTION(type, member)                                      \
    {                                                                          \
        POISE_OPTION_FLAG,                                                     \
            .name = "progress",                                                \
            .help = "show progress on stderr (default: on a terminal; "        \
                    "--no-progress: never)",                                   \
            .offset = offsetof(type, member)                                   \
    }

#define CLI_COLOR_OPTION(type, member)                                         \
    {                                                                          \
        POISE_OPTION_ENUM, .name = "color", .arg = "NAME",                     \
                           .help = "use colours: auto (on a terminal, unless " \
                                   "NO_COLOR is set), always or never "        \
                                   "(default: auto)",                          \
                           .offset = offsetof(type, member),                   \
                           .choices = cli_color_names                          \
    }

/** Parse argv by the command's table; --help and --version are served here
 * (not if `common` is NULL). Index of the first operand, or -1 with the exit
 * code in *exit_code. */
int cli_parse(const struct poise_command *command, int argc, char **argv,
              void *into, const struct cli_common *common, int *exit_code);

#define CLI_ABLATION_OPTION(type, member)                                      \
    {                                                                          \
        POISE_OPTION_LIST,                                                     \
            .name = "ablation", .arg = "KEY=VALUE",                            \
            .help = "for measurements: change one part of the method; can be " \
                    "repeated; --ablation help lists the keys",                \
            .offset = offsetof(type, member)                                   \
    }
/** Apply each KEY=VALUE that was given by a table whose long names are the
 * keys (FLAG, INT or ENUM; a flag is yes or no). Whether to go on: else what
 * was wrong, or the keys, have been printed, and *exit_code is set. */
bool cli_ablate(const struct poise_command *command,
                const struct poise_option *keys,
                const struct poise_strings *given, void *into, int *exit_code);

/** Where the options before a program end: the index of the program, or of
 * "--". */
int cli_options_end(const struct poise_option *table, int argc, char **argv);

/** Words of an option that takes "A,B" given once, or A and B given one by
 * one. They lie in *text, which the caller frees, as `out` with
 * poise_strings_free; also after an error. */
int cli_split_list(const struct poise_strings *given, char **text,
                   struct poise_strings *out);

#endif
