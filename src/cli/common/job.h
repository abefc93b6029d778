/*
 * What the commands over trees have in common: the options of the pool and of
 * the engine, the world, signals, the line of progress.
 */
#ifndef POISE_CLI_JOB_H
#define POISE_CLI_JOB_H

#include "common.h"

#include <poise/walk.h>

/** What drives a walk, whatever it is for. */
struct cli_engine {
    struct cli_common common;
    int64_t threads, max_in_flight, batch, seed;
    int policy, split;
    uint64_t queue_memory, checkpoint_interval;
    const char *checkpoint, *resume, *trace;
    bool progress;
};

#define CLI_ENGINE_OPTIONS(type, member, short)                                \
    {POISE_OPTION_INT,                                                         \
     .short_name = short,                                                      \
     .name = "threads",                                                        \
     .arg = "N",                                                               \
     .help = "threads of each process (default: one for each of its cores)",   \
     .offset = offsetof(type, member.threads),                                 \
     .min = 1,                                                                 \
     .max = 1024},                                                             \
        {POISE_OPTION_INT,                                                     \
         .name = "max-in-flight",                                              \
         .arg = "N",                                                           \
         .help =                                                               \
             "add up to N threads where a slow disk or server leaves cores "   \
             "idle (default: 32)",                                             \
         .offset = offsetof(type, member.max_in_flight),                       \
         .min = 1,                                                             \
         .max = 4096},                                                         \
        {POISE_OPTION_ENUM,                                                    \
         .name = "balance",                                                    \
         .arg = "NAME",                                                        \
         .help = "how work is balanced among ranks (default: hybrid)",         \
         .offset = offsetof(type, member.policy),                              \
         .choices = poise_policy_names},                                       \
        {POISE_OPTION_ENUM,                                                    \
         .name = "policy",                                                     \
         .arg = "NAME",                                                        \
         .renamed = "--balance",                                               \
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
         .help =                                                               \
             "tasks in each message, with the central policies (default: 1)",  \
         .offset = offsetof(type, member.batch),                               \
         .min = 1,                                                             \
         .max = 1000000},                                                      \
        {POISE_OPTION_BYTES, .name = "queue-memory", .arg = "SIZE",            \
         .help = "memory for each rank's queue; the rest goes to a file in "   \
                 "$TMPDIR (default: 8M)",                                      \
         .offset = offsetof(type, member.queue_memory)},                       \
        {POISE_OPTION_INT,                                                     \
         .name = "seed",                                                       \
         .arg = "N",                                                           \
         .help = "seed of the random choices (default: from the system)",      \
         .offset = offsetof(type, member.seed),                                \
         .min = 0,                                                             \
         .max = INT64_MAX},                                                    \
        CLI_PROGRESS_OPTION(type, member.progress),                            \
    {                                                                          \
        POISE_OPTION_STRING,                                                   \
            .name = "trace", .arg = "FILE",                                    \
            .help =                                                            \
                "record what each thread does in a new FILE (rank R above 0: " \
                "FILE.R); 'poise trace show FILE' shows it",                   \
            .offset = offsetof(type, member.trace)                             \
    }

/** Fill in what a command starts with before its options are parsed. */
void cli_engine_defaults(struct cli_engine *engine);

/** What the line of progress showed last. */
struct cli_progress {
    unsigned calls;
    uint64_t entries, then_ns;
    double rate; /**< per second */
};

/** One run of a command: its world, its line of progress. */
struct cli_job {
    const char *name;
    struct poise_world *world; /**< NULL before cli_job_start */
    int rank, size;
    uint64_t seed;     /**< of random choices; 0: from the system */
    bool progress;     /**< a line may stand on the terminal */
    bool root_missing; /**< an operand could not be read at all */
    struct cli_progress line;
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
/** Entries (or bytes) per second, of late: from one call to the next, smoothed
 * over about a second. */
uint64_t cli_progress_rate(struct cli_progress *progress, uint64_t entries,
                           uint64_t now_ns);
/** The hook for struct poise_walk_hooks and its kin, where job->progress;
 * `arg` is the job. */
void cli_progress_hook(const struct poise_pool_stats *stats, void *arg);
/** The exit code of a finished run on all ranks: `code` of poise_walk_*,
 * `errors` of its result; prints what is to be said. */
int cli_job_code(struct cli_job *job, int code, uint64_t errors);

/** A hook for poise_walk_*: prints the error; `arg` is a struct cli_job. */
int cli_error_hook(struct poise_worker *worker, const struct poise_error *err,
                   void *arg);

#endif
