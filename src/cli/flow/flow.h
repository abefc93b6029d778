/* What the commands over wing flow share: solve, desync run. */
#ifndef POISE_CLI_FLOW_H
#define POISE_CLI_FLOW_H

#include "cli/common/common.h"

#include <poise/flow.h>
#include <poise/report.h>

/** How a job is run. */
struct cli_flow {
    int64_t nodes, threads, window, spares;
    int64_t replicate; /**< CLI_FLOW_REPLICATE before options are read */
    uint64_t memory, lost_ns;
    const char *log;
    const char *hosts, *rsh, *etcd;
    struct poise_strings ablation;
    int policy;
    const char *chunks;
    int64_t adapt;
    bool check, verbose, json, live;
    int color;
};

/** Other hosts than this one, for a run. */
struct cli_cluster {
    struct poise_flow_cluster cluster;
    struct poise_flow_hosts hosts;
    struct poise_buf command;
    struct poise_world *world;
    bool used;  /**< there are any */
    bool agent; /**< this process only starts nodes for another one */
};

/** As often as pays. */
#define CLI_FLOW_REPLICATE (-1)

#define CLI_FLOW_OPTIONS(type, member)                                         \
    {POISE_OPTION_INT,                                                         \
     'n',                                                                      \
     "processes",                                                              \
     "N",                                                                      \
     .help = "processes that compute (default: this one)",                     \
     .offset = offsetof(type, member.nodes),                                   \
     .min = 1,                                                                 \
     .max = POISE_FLOW_NODES_MOST},                                            \
        {POISE_OPTION_INT,                                                     \
         'j',                                                                  \
         "threads",                                                            \
         "N",                                                                  \
         .help = "threads of each process (default: 1)",                       \
         .offset = offsetof(type, member.threads),                             \
         .min = 1,                                                             \
         .max = 1024},                                                         \
        {POISE_OPTION_INT,                                                     \
         .name = "window",                                                     \
         .arg = "N",                                                           \
         .help = "fetch blocks of up to N versions ahead (default: 4)",        \
         .offset = offsetof(type, member.window),                              \
         .min = 1,                                                             \
         .max = 1000000},                                                      \
        {POISE_OPTION_BYTES,                                                   \
         0,                                                                    \
         "memory",                                                             \
         "SIZE",                                                               \
         .help = "memory for blocks on each node; beyond it only the oldest "  \
                 "version goes on (default: no limit)",                        \
         .offset = offsetof(type, member.memory)},                             \
        {POISE_OPTION_INT,                                                     \
         .name = "replicate-every",                                            \
         .arg = "N",                                                           \
         .help =                                                               \
             "copy blocks to two other nodes after every N versions, so "      \
             "that any two nodes may die and little is computed again; 0: "    \
             "never (default: chosen by what copies cost, about 3 % of the "   \
             "time)",                                                          \
         .offset = offsetof(type, member.replicate),                           \
         .min = 0,                                                             \
         .max = 1000000},                                                      \
        {POISE_OPTION_INT,                                                     \
         .name = "spares",                                                     \
         .arg = "N",                                                           \
         .help = "start a new node for each that dies, at most N times; it "   \
                 "gets a part with --adapt, or when another one dies "         \
                 "(default: 0)",                                               \
         .offset = offsetof(type, member.spares),                              \
         .min = 0,                                                             \
         .max = 1024},                                                         \
        {POISE_OPTION_STRING, .name = "log", .arg = "FILE",                    \
         .help = "save in FILE what is needed to go on if this command dies: " \
                 "run the same command again",                                 \
         .offset = offsetof(type, member.log)},                                \
        {POISE_OPTION_STRING, .name = "hosts", .arg = "FILE",                  \
         .help =                                                               \
             "run on the hosts in FILE: lines 'NAME slots=N', N processes "    \
             "on each (default: this host)",                                   \
         .offset = offsetof(type, member.hosts)},                              \
        {POISE_OPTION_STRING,                                                  \
         0,                                                                    \
         "rsh",                                                                \
         "COMMAND",                                                            \
         .help = "reach hosts with this command (default: ssh; none for this " \
                 "host)",                                                      \
         .offset = offsetof(type, member.rsh)},                                \
        {POISE_OPTION_DURATION, .name = "lost-after", .arg = "TIME",           \
         .help = "declare a process dead after TIME without a sign of it "     \
                 "(default: 5s)",                                              \
         .offset = offsetof(type, member.lost_ns)},                            \
        {POISE_OPTION_STRING, .name = "etcd", .arg = "URL,...",                \
         .help =                                                               \
             "run several such commands with one --log: these etcd servers "   \
             "elect one of them, and another takes over if its host dies",     \
         .offset = offsetof(type, member.etcd)},                               \
        CLI_ABLATION_OPTION(type, member.ablation),                            \
        {POISE_OPTION_ENUM,                                                    \
         .name = "policy",                                                     \
         .arg = "NAME",                                                        \
         .renamed = "--ablation policy=NAME",                                  \
         .offset = offsetof(type, member.policy),                              \
         .choices = poise_flow_policy_names},                                  \
        CLI_RENAMED_INT(0, "nodes", "--processes", type, member.nodes, 1,      \
                        1024),                                                 \
        CLI_RENAMED_INT('t', NULL, "-j", type, member.threads, 1, 1024),       \
        CLI_RENAMED(POISE_OPTION_BYTES, 'm', NULL, "SIZE", "--memory", type,   \
                    member.memory),                                            \
        CLI_RENAMED_INT(0, "replicate", "--replicate-every", type,             \
                        member.replicate, 0, 1000000),                         \
    {                                                                          \
        POISE_OPTION_FLAG,                                                     \
            .name = "check",                                                   \
            .help = "compute one block in ten twice and compare",              \
            .offset = offsetof(type, member.check)                             \
    }

/** Who computes what. */
#define CLI_FLOW_SHARES(type, member)                                          \
    {POISE_OPTION_STRING, .name = "chunks", .arg = "FILE",                     \
     .help = "who computes what: lines 'NODE ROWS COLUMNS [VERSIONS]', each "  \
             "a range of blocks A-B, without B (default: equal shares)",       \
     .offset = offsetof(type, member.chunks)},                                 \
    {                                                                          \
        POISE_OPTION_INT,                                                      \
            .name = "adapt", .arg = "N",                                       \
            .help =                                                            \
                "share out N versions at a time, by measured speed (default: " \
                "equal shares of all)",                                        \
            .offset = offsetof(type, member.adapt), .min = 1,                  \
            .max = 1000000000                                                  \
    }

#define CLI_FLOW_WORDS(type, member)                                           \
    {POISE_OPTION_FLAG, .name = "live",                                        \
     .help = "show how far each process is (default: on a terminal)",          \
     .offset = offsetof(type, member.live)},                                   \
        CLI_COLOR_OPTION(type, member.color),                                  \
        CLI_VERBOSE_OPTION(type, member.verbose),                              \
    {                                                                          \
        POISE_OPTION_FLAG, .name = "json", .help = "print statistics as JSON", \
                           .offset = offsetof(type, member.json)               \
    }

/** Apply --ablation, as cli_ablate does. */
bool cli_flow_ablate(const struct poise_command *command, struct cli_flow *flow,
                     int *exit_code);
struct poise_flow_options cli_flow_options(const struct cli_flow *flow);
/** Find out whether this process is an agent or one of a launcher's, and which
 * hosts there are: `out` is then to be handed to the options, where `used`. An
 * exit code; what is wrong has been said. */
int cli_cluster_open(const char *name, const struct cli_flow *flow,
                     struct cli_cluster *out);
/** Collective under a launcher. */
void cli_cluster_close(struct cli_cluster *cluster);
/** Chunks by hand for a file of this shape: struct poise_flow_part, appended to
 * `out`. */
int cli_chunks_read(const char *path, const struct poise_flow_chunk *shape,
                    struct poise_buf *out);
/** All of a file, appended to `out` with a 0 behind it. */
int cli_text_read(const char *path, struct poise_buf *out);

/** What is shown of a run while it goes on, and kept of it for a page. */
struct cli_live;
/** A watch for the options of a run: on stderr if `flow` wants it, for a page
 * if `keeps`; none of both: `out` is NULL, and nothing is set. 0 or -ENOMEM. */
int cli_live_open(const struct cli_flow *flow, bool keeps,
                  struct poise_flow_options *options, struct cli_live **out);
/** What was drawn last goes, if it was on a terminal. NULL is allowed. */
void cli_live_close(struct cli_live *live);
/** Each node's way through the versions, and what it fetched. */
int cli_live_page(const struct cli_live *live, struct poise_page *page);

/** What each node did, and progress. */
int cli_flow_page(const struct poise_flow_stats *stats,
                  struct poise_page *page);
/** Who computed which blocks of a file of this shape at first, and whenever
 * that changed (desyncfs, figure 7). */
int cli_flow_page_chunks(const struct poise_flow_chunk *shape, uint32_t file,
                         const struct poise_flow_stats *stats,
                         struct poise_page *page);

/** What a run was, in some lines. */
void cli_flow_verbose(const char *name, const struct poise_flow_stats *stats,
                      struct poise_buf *out);
/** The same, as members of an object. */
void cli_flow_json(struct poise_json *json,
                   const struct poise_flow_stats *stats);

#endif
