/*
 * Shared inside room cli: the only room that prints. Data go to stdout, words
 * to stderr; one line per error. Only rank 0 prints results.
 */
#ifndef POISE_CLI_INTERNAL_H
#define POISE_CLI_INTERNAL_H

#include <poise/report.h>
#include <poise/walk.h>

/** Exit codes, the same on every rank. */
enum {
    CLI_DONE = 0,
    CLI_PARTLY = 1, /**< some of it failed */
    CLI_WRONG_USE = 2,
    CLI_LACKS = 3,           /**< the machine lacks something */
    CLI_WRAPPER_FAILED = 125 /**< a command that runs others: its own failure */
};

/** One subcommand: its table and what runs it (argv[0] is its name). */
struct cli_command {
    const struct poise_command *command;
    int (*run)(int argc, char **argv);
};
/** All of them; ends with a NULL command. */
extern const struct cli_command cli_commands[];
/** The subcommand that the words begin with; `used` receives how many of them
 * are its name ("bfs convert" has two). NULL if there is none. */
const struct cli_command *cli_find_subcommand(int count, char **words,
                                              int *used);

extern const struct poise_command cli_walk_command, cli_du_command,
    cli_find_command, cli_help_command, cli_version_command, cli_trace_command,
    cli_completion_command, cli_man_command;
extern const struct poise_command cli_bfs_command, cli_bfs_convert_command,
    cli_wan_command, cli_coll_command;
extern const struct poise_command cli_cc_command, cli_cxx_command,
    cli_fort_command, cli_run_command, cli_advise_command;
extern const struct poise_command cli_noise_command, cli_wire_analyse_command,
    cli_wire_model_command, cli_wire_cached_command;
extern const struct poise_command cli_sort_command, cli_listrank_command,
    cli_send_command, cli_tunnel_command, cli_solve_command,
    cli_desync_run_command;
int cli_walk(int argc, char **argv);
int cli_du(int argc, char **argv);
int cli_find(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_bfs(int argc, char **argv);
int cli_bfs_convert(int argc, char **argv);
int cli_cc(int argc, char **argv);
int cli_cxx(int argc, char **argv);
int cli_fort(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_advise(int argc, char **argv);
int cli_coll(int argc, char **argv);
int cli_wan(int argc, char **argv);
int cli_wire_analyse(int argc, char **argv);
int cli_wire_cached(int argc, char **argv);
int cli_wire_model(int argc, char **argv);
int cli_noise(int argc, char **argv);
int cli_send(int argc, char **argv);
int cli_tunnel(int argc, char **argv);
int cli_sort(int argc, char **argv);
int cli_listrank(int argc, char **argv);
int cli_solve(int argc, char **argv);
int cli_desync_run(int argc, char **argv);
int cli_help(int argc, char **argv);
int cli_version(int argc, char **argv);
int cli_completion(int argc, char **argv);
int cli_man(int argc, char **argv);

/** The help or man page of find, with the words that its room knows. */
int cli_find_page(int (*write)(const struct poise_command *command,
                               struct poise_buf *out),
                  struct poise_buf *out);

/* ---- words -------------------------------------------------------------- */

/** Print "poise NAME: " and an error on stderr, in one write. Any thread. */
void cli_print_error(const char *name, const struct poise_error *err);
/** Print a sentence the same way, if cli_speaks. */
void cli_say(const char *name, const char *fmt, ...) POISE_PRINTF(2, 3);
/** Whether what all ranks would say alike is to be said by this one: before
 * the world is made, as far as the launcher's environment tells. */
bool cli_speaks(void);
/** Print the last error, if cli_speaks. */
void cli_say_error(const char *name);
/** The same; the exit code that `code` stands for. */
int cli_fail(const char *name, int code);
/** All of `out` on stdout; CLI_DONE, or the error printed and CLI_PARTLY. */
int cli_write(const char *name, const struct poise_buf *out);
/** How far something is, in one line on stderr that the next one replaces: a
 * poise_graph_progress. */
int cli_progress_show(const char *doing, uint64_t done, uint64_t total,
                      void *arg);
/** Wipe that line, if lines were `shown`. */
void cli_progress_wipe(bool shown);
/** A hook for poise_walk_*: prints the error; `arg` is a struct cli_job. */
int cli_error_hook(struct poise_worker *worker, const struct poise_error *err,
                   void *arg);

/* ---- preloads ----------------------------------------------------------- */

/** Where the preload called `name` is, in `out`. -ENOENT. */
int cli_preload_find(const char *name, struct poise_buf *out);
/** Append those that LD_PRELOAD names already, to stand behind ours. */
void cli_preload_others(struct poise_buf *out);

/* ---- options that several commands share -------------------------------- */

struct cli_common {
    bool help, version;
};
/** What drives a walk, whatever it is for. */
struct cli_engine {
    struct cli_common common;
    int64_t threads, max_in_flight, batch, seed;
    int policy, split;
    uint64_t queue_memory, checkpoint_interval;
    const char *checkpoint, *resume, *trace;
    bool progress;
};

#define CLI_COMMON_OPTIONS(type, member)                                       \
    {POISE_OPTION_FLAG, .name = "help", .help = "print this help and exit",    \
     .offset = offsetof(type, member.help)},                                   \
    {                                                                          \
        POISE_OPTION_FLAG, .name = "version",                                  \
                           .help = "print the version and exit",               \
                           .offset = offsetof(type, member.version)            \
    }

#define CLI_ENGINE_OPTIONS(type, member, t_letter)                             \
    {POISE_OPTION_INT,                                                         \
     .letter = t_letter,                                                       \
     .name = "threads",                                                        \
     .arg = "N",                                                               \
     .help = "threads of each process (default: one for each of its cores)",   \
     .offset = offsetof(type, member.threads),                                 \
     .min = 1,                                                                 \
     .max = 1024},                                                             \
        {POISE_OPTION_INT,                                                     \
         .name = "max-in-flight",                                              \
         .arg = "N",                                                           \
         .help = "where waiting for a disk or server leaves processors idle, " \
                 "add threads while that pays, up to N (default: 32)",         \
         .offset = offsetof(type, member.max_in_flight),                       \
         .min = 1,                                                             \
         .max = 4096},                                                         \
        {POISE_OPTION_ENUM,                                                    \
         .name = "policy",                                                     \
         .arg = "NAME",                                                        \
         .help = "how work is found among ranks (default: hybrid)",            \
         .offset = offsetof(type, member.policy),                              \
         .choices = poise_policy_names},                                       \
        {POISE_OPTION_ENUM,                                                    \
         .name = "split",                                                      \
         .arg = "NAME",                                                        \
         .help = "how much of its work a rank gives away (default: half)",     \
         .offset = offsetof(type, member.split),                               \
         .choices = poise_split_names},                                        \
        {POISE_OPTION_INT,                                                     \
         .name = "batch",                                                      \
         .arg = "N",                                                           \
         .help = "tasks in a message of the central policies (default: 1)",    \
         .offset = offsetof(type, member.batch),                               \
         .min = 1,                                                             \
         .max = 1000000},                                                      \
        {POISE_OPTION_BYTES, .name = "queue-memory", .arg = "SIZE",            \
         .help = "memory for the queue of a rank; what is more is spilled to " \
                 "a file in $TMPDIR (default: 8M)",                            \
         .offset = offsetof(type, member.queue_memory)},                       \
        {POISE_OPTION_INT,                                                     \
         .name = "seed",                                                       \
         .arg = "N",                                                           \
         .help = "start of the random choices (default: from the system)",     \
         .offset = offsetof(type, member.seed),                                \
         .min = 0,                                                             \
         .max = INT64_MAX},                                                    \
        {POISE_OPTION_FLAG, .name = "progress",                                \
         .help = "show a line of progress on stderr (default: if it is a "     \
                 "terminal; --no-progress: never)",                            \
         .offset = offsetof(type, member.progress)},                           \
    {                                                                          \
        POISE_OPTION_STRING, .name = "trace", .arg = "FILE",                   \
                             .help = "record what each thread does in a new "  \
                                     "file (rank R above 0 writes FILE.R);"    \
                                     " 'poise trace FILE' shows it",           \
                             .offset = offsetof(type, member.trace)            \
    }

/** Fill in what a command starts with before its options are parsed. */
void cli_engine_defaults(struct cli_engine *engine);

/** Parse argv by the command's table; --help and --version are served here
 * (not if `common` is NULL). Index of the first operand, or -1 with the exit
 * code in *exit_code. */
int cli_parse(const struct poise_command *command, int argc, char **argv,
              void *into, const struct cli_common *common, int *exit_code);

/** Words of an option that takes "A,B" given once, or A and B given one by
 * one. They lie in *text, which the caller frees, as `out` with
 * poise_strings_free; also after an error. */
int cli_split_list(const struct poise_strings *given, char **text,
                   struct poise_strings *out);

/* ---- a run over a world ------------------------------------------------- */

/** What the line of progress showed last. */
struct cli_progress {
    unsigned calls;
    uint64_t entries, then_ns;
    double rate; /**< per second */
};

/** One run of a command: its world, its trace, its line of progress. */
struct cli_job {
    const char *name;
    struct poise_world *world; /**< NULL before cli_job_start */
    int rank, size;
    bool progress;     /**< a line may stand on the terminal */
    bool root_missing; /**< an operand could not be read at all */
    struct cli_progress line;
    struct poise_trace *trace;
};

/** Join the world, catch SIGINT and SIGTERM. Collective. 0, or the exit code
 * with the error printed. */
int cli_job_start(struct cli_job *job, const char *name,
                  const struct cli_engine *engine,
                  struct poise_walk_options *walk);
/** Leave it again. Collective. */
void cli_job_end(struct cli_job *job);
/** The world for poise_walk_*: NULL if this process is alone. */
struct poise_world *cli_job_world(const struct cli_job *job);
/** The hook for struct poise_walk_hooks and its kin, where job->progress;
 * `arg` is the job. */
void cli_progress_hook(const struct poise_pool_stats *stats, void *arg);
/** Wipe the line of progress. */
void cli_progress_end(struct cli_job *job);
/** The exit code of a finished run on all ranks: `code` of poise_walk_*,
 * `errors` of its result; prints what is to be said. */
int cli_job_code(struct cli_job *job, int code, uint64_t errors);

/* ---- what walk prints --------------------------------------------------- */

/** A finished walk and how it was run. */
struct cli_walk_outcome {
    const char *const *roots;
    size_t root_count;
    const struct poise_walk_summary *summary;
    const struct poise_walk_result *result;
    const char *world_name;
    uint64_t startup_ns;
    int ranks;
    unsigned threads;
    const char *policy, *split;
    bool interrupted, stats;
};

int cli_walk_text(const struct cli_walk_outcome *walk, struct poise_buf *out);
int cli_walk_json(const struct cli_walk_outcome *walk, struct poise_buf *out);
int cli_walk_page(const struct cli_walk_outcome *walk, struct poise_buf *out);

/** The name of a user, or its number. */
void cli_owner_name(uint32_t uid, struct poise_buf *out);
/** "up to 4 KiB": the upper limit of a bin of sizes or widths, exclusive. */
uint64_t cli_bin_limit(unsigned bin);
/** "1 day", the limit of a bin of ages; "older" for the last. */
void cli_age_label(unsigned bin, struct poise_buf *out);

#endif
