/* What the commands over wing extmem share: sort, listrank. */
#ifndef POISE_CLI_EXTMEM_H
#define POISE_CLI_EXTMEM_H

#include "cli/common/series.h"

#include <poise/listrank.h>
#include <poise/sort.h>
#include <poise/wait.h>

#include <pthread.h>

/** How data larger than memory are handled. */
struct cli_extmem {
    uint64_t memory;
    struct poise_strings scratch;
    int64_t threads;
    int engine;
    bool sync, buffered, verbose, json;
};

extern const char *const cli_extmem_engines[];

#define CLI_EXTMEM_OPTIONS(type, member)                                       \
    {POISE_OPTION_BYTES,                                                       \
     0,                                                                        \
     "memory",                                                                 \
     "SIZE",                                                                   \
     .help = "memory to use on each node; its processes share it (default: "   \
             "half of what the control group and the machine leave, or less)", \
     .offset = offsetof(type, member.memory)},                                 \
        {POISE_OPTION_LIST, .name = "scratch", .arg = "DIR[,DIR...]",          \
         .help = "folders for scratch files, best one on each disk (default: " \
                 "the folder of OUT)",                                         \
         .offset = offsetof(type, member.scratch)},                            \
        {POISE_OPTION_INT,                                                     \
         'j',                                                                  \
         "threads",                                                            \
         "N",                                                                  \
         .help = "threads of each process (default: its share of the cores)",  \
         .offset = offsetof(type, member.threads),                             \
         .min = 1,                                                             \
         .max = 256},                                                          \
        {POISE_OPTION_FLAG, .name = "fsync",                                   \
         .help = "wait until the output is safe on disk",                      \
         .offset = offsetof(type, member.sync)},                               \
        {POISE_OPTION_ENUM,                                                    \
         .name = "io",                                                         \
         .arg = "NAME",                                                        \
         .help = "how to read and write files (default: auto)",                \
         .offset = offsetof(type, member.engine),                              \
         .choices = cli_extmem_engines},                                       \
        {POISE_OPTION_FLAG, .name = "buffered",                                \
         .help = "go through the page cache even where O_DIRECT works",        \
         .offset = offsetof(type, member.buffered)},                           \
        CLI_RENAMED(POISE_OPTION_FLAG, 0, "sync", NULL, "--fsync", type,       \
                    member.sync),                                              \
        CLI_VERBOSE_OPTION(type, member.verbose),                              \
    {                                                                          \
        POISE_OPTION_FLAG, .name = "json", .help = "print statistics as JSON", \
                           .offset = offsetof(type, member.json)               \
    }

/** Letters that `-j` and `--memory` had, and that mean something else in sort.
 */
#define CLI_EXTMEM_RENAMED(type, member)                                       \
    CLI_RENAMED_INT('t', NULL, "-j", type, member.threads, 1, 256),            \
        CLI_RENAMED(POISE_OPTION_BYTES, 'm', NULL, "SIZE", "--memory", type,   \
                    member.memory)

/** How the disks are used. */
struct poise_disk_options cli_extmem_disk(const struct cli_extmem *values);
/** Join the world. Collective. 0, or the exit code with the error printed. */
int cli_extmem_start(const char *name, struct poise_world **world);
/** Whether this process does what one does alone, and prints. */
bool cli_extmem_is_first(const struct poise_world *world);
/** Leave it: *status becomes the greatest of all processes. Collective. 0, or
 * the exit code with the error printed. */
int cli_extmem_end(const char *name, struct poise_world *world, int *status);
double cli_seconds(uint64_t ns);

/** A line on stderr that says how far a run is, five times a second. (line.c)
 */
struct cli_extmem_line {
    struct cli_series *series;      /* how far it was when; NULL: not kept */
    const uint64_t *passed, *total; /* bytes; borrowed, __atomic */
    pthread_t thread;
    struct poise_event over;
    bool is_on, is_shown;
};
/** Nothing where it is neither `shown` nor kept. */
void cli_extmem_line_start(struct cli_extmem_line *line, bool shown,
                           struct cli_series *series, const uint64_t *passed,
                           const uint64_t *total);
/** Wipes it. */
void cli_extmem_line_stop(struct cli_extmem_line *line);

#endif
