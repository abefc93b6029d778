/* What poise trace run shows of the calls that it saw. */
#ifndef POISE_CLI_TRACE_MONITOR_H
#define POISE_CLI_TRACE_MONITOR_H

#include "cli/common/common.h"
#include "trace.h"

#include <poise/monitor.h>
#include <poise/monitor_messages.h>
#include <poise/monitor_system.h>
#include <poise/query.h>
#include <poise/report.h>

#include <sys/types.h>

/** What is asked of the calls; see src/cli/trace/query.c. */
struct monitor_queries {
    const struct poise_strings *texts;
    struct poise_query **queries;
    size_t count;
};

/** Ask them from now on. Errors of poise_query_parse and poise_query_watch;
 * monitor_queries_free in any case, before the monitor is destroyed. */
int monitor_queries_create(const struct poise_strings *texts,
                           struct poise_monitor *monitor,
                           const struct poise_scope *scope,
                           struct monitor_queries *out);
void monitor_queries_free(struct monitor_queries *queries);
int monitor_queries_text(const struct monitor_queries *queries,
                         struct poise_buf *out);
void monitor_queries_json(const struct monitor_queries *queries,
                          struct poise_json *json);

/** What a run came to. */
struct monitor_run {
    const struct monitor_queries *queries;
    const struct poise_monitor_messages *messages; /**< NULL: not asked for */
    const struct poise_monitor *monitor;
    const struct poise_monitor_system *system;
    struct poise_monitor_source source;
    struct poise_monitor_missing missing;
    const struct poise_monitor_operation **operations; /**< most time first */
    unsigned count;
    double unseen; /**< calls for each that coverage tells of, which no number
                      behind them tells of: left out at the end */
    int status;    /**< the program's */
};

/** Gather it. -ENOMEM. */
int monitor_gather(const struct poise_monitor *monitor,
                   const struct poise_monitor_reader *reader,
                   const struct poise_monitor_system *system, int status,
                   struct monitor_run *out);
void monitor_free(struct monitor_run *run);

/** Which share of an operation's calls is in its figures, as far as that can be
 * told: by the numbers of calls, and by what ranks say that they left out. */
double monitor_coverage(const struct monitor_run *run,
                        const struct poise_monitor_operation *operation);

/** The rank that cost the others most by being last; -1: none ever was. */
int monitor_latest(const struct poise_monitor_operation *operation);
/** What most calls are blamed on. */
enum poise_monitor_cause
monitor_cause(const struct poise_monitor_operation *operation);
/** Their names, by cause. */
extern const char *const monitor_causes[POISE_MONITOR_CAUSES];

/** A report that a screen holds; all figures. */
int monitor_text(const struct monitor_run *run, struct poise_buf *out);
int monitor_json(const struct monitor_run *run, struct poise_buf *out);

/* ---- the last calls ----------------------------------------------------- */

/** The newest parts of calls, of a fixed number. */
struct monitor_timeline;
int monitor_timeline_create(struct poise_monitor *monitor,
                            struct monitor_timeline **out);
/** What a page wants of them. */
struct monitor_details;
const struct monitor_details *
monitor_timeline_details(const struct monitor_timeline *timeline);
void monitor_timeline_free(struct monitor_timeline *timeline);
/** As Chrome's trace events, which Perfetto reads, too. */
int monitor_timeline_json(const struct monitor_timeline *timeline,
                          struct poise_buf *out);

/* ---- the page ----------------------------------------------------------- */

/** Who waited for whom, and the longest calls, of a fixed number of operations.
 */
int monitor_details_create(struct monitor_details **out);
void monitor_details_free(struct monitor_details *details);
void monitor_details_add(struct monitor_details *details,
                         const struct poise_monitor_operation *operation,
                         const struct poise_monitor_span *spans,
                         const struct poise_monitor_verdict *verdict);
/** Draw them; nothing where the operation found no room. */
int monitor_details_waits(const struct monitor_details *details,
                          const struct poise_monitor_operation *operation,
                          struct poise_page *page);
int monitor_details_longest(const struct monitor_details *details,
                            const struct poise_monitor_operation *operation,
                            struct poise_page *page);

/** Draw the orders of an operation, and the ways through its tree. */
int monitor_paths_draw(struct poise_page *page,
                       const struct poise_monitor_operation *operation);
/** The slowest way through each tree, if there are several. */
int monitor_paths_overlay(struct poise_page *page,
                          const struct monitor_run *run);

/** Append a paragraph: whom most was waited for, in which operation, and whose
 * doing it was. Nothing where nobody was. */
void monitor_put_late(const struct monitor_run *run, struct poise_buf *out);

/** A page with all of it. */
int monitor_page(const struct monitor_run *run,
                 const struct monitor_details *details, struct poise_buf *out);

/* ---- point-to-point messages -------------------------------------------- */

int monitor_messages_text(const struct poise_monitor_messages *messages,
                          struct poise_buf *out);
int monitor_messages_json(const struct poise_monitor_messages *messages,
                          struct poise_json *json);
/** Of `size` ranks. */
int monitor_messages_draw(const struct poise_monitor_messages *messages,
                          int size, struct poise_page *page);

/** What the late rank of all waited for; nothing where nothing is known. */
void monitor_messages_hint(const struct monitor_run *run,
                           const struct poise_monitor_operation *operation,
                           int rank, struct poise_buf *out);

/* ---- the network -------------------------------------------------------- */

/** Calls in which TCP sent segments again, and whose; nothing if there are
 * none. */
void monitor_network_text(const struct monitor_run *run, struct poise_buf *out);
/** -ENOMEM. */
int monitor_network_json(const struct monitor_run *run,
                         struct poise_json *json);

/* ---- the live view ------------------------------------------------------ */

/** What collectives do now, on stderr; the others are borrowed. */
struct monitor_live;
int monitor_live_create(const struct poise_monitor *monitor,
                        const struct poise_monitor_reader *reader, int color,
                        struct monitor_live **out);
void monitor_live_free(struct monitor_live *live);
/** Show it, if it was long ago. */
void monitor_live_look(struct monitor_live *live);
/** Wipe the table from the terminal. */
void monitor_live_end(struct monitor_live *live);

/* ---- tuning ------------------------------------------------------------- */

/** The tree of MPI_COMM_WORLD, tuned while the program runs; says each step on
 * stderr for `command`. Others are borrowed. */
struct monitor_tune;
int monitor_tune_create(const char *command, struct poise_monitor *monitor,
                        const struct poise_scope *scope, const char *path,
                        struct monitor_tune **out);
void monitor_tune_free(struct monitor_tune *tune);
/** Take the next step if it is time for one. */
void monitor_tune_look(struct monitor_tune *tune);
/** Say what came of it. */
void monitor_tune_end(struct monitor_tune *tune);

/* ---- watching ----------------------------------------------------------- */

/** What is to come of it. */
struct monitor_wants {
    const char *output, *report, *timeline;
    const char *tune; /**< the tree file; NULL: nothing is tuned */
    struct trace_exports exports;
    struct poise_strings queries;
    int64_t share; /**< per cent of a processor; 0: no limit */
    int when;      /**< see monitor_whens */
    bool json, live, messages;
    int color;
};
/** What they are where nothing is said. */
#define MONITOR_WANTS                                                          \
    {                                                                          \
        .share = 1                                                             \
    }
/** The words of --when; NULL ends them. */
extern const char *const monitor_whens[];
void monitor_wants_free(struct monitor_wants *wants);
/** Its options, of a struct of values that has such a member. */
#define MONITOR_WANTS_OPTIONS(type, member)                                    \
    {POISE_OPTION_STRING,                                                      \
     'o',                                                                      \
     "output",                                                                 \
     .arg = "FILE",                                                            \
     .help = "write the report to FILE instead of stdout",                     \
     .offset = offsetof(type, member.output)},                                 \
        {POISE_OPTION_STRING, .name = "report", .arg = "FILE",                 \
         .help = "write a page of plots and tables (HTML)",                    \
         .offset = offsetof(type, member.report)},                             \
        {POISE_OPTION_STRING, .name = "timeline", .arg = "FILE",               \
         .help = "write the last calls to FILE, for Perfetto and "             \
                 "chrome://tracing",                                           \
         .offset = offsetof(type, member.timeline)},                           \
        TRACE_EXPORT_OPTIONS(type, member.exports),                            \
        {POISE_OPTION_LIST, .name = "query", .arg = "TEXT",                    \
         .help =                                                               \
             "ask a question about the calls, such as 'filter bytes<64 | by "  \
             "rank | mean(wait)'; can be repeated",                            \
         .offset = offsetof(type, member.queries)},                            \
        {POISE_OPTION_INT,                                                     \
         .name = "share",                                                      \
         .arg = "PERCENT",                                                     \
         .help =                                                               \
             "spend at most PERCENT of one core on reading records; what "     \
             "comes faster is left out and counted; 0: no limit (default: 1)", \
         .offset = offsetof(type, member.share),                               \
         .max = 100},                                                          \
        {POISE_OPTION_ENUM,                                                    \
         .name = "when",                                                       \
         .arg = "WHEN",                                                        \
         .help =                                                               \
             "when to read records: released, when all ranks here have left "  \
             "a call; contributed, when all are inside one; or always "        \
             "(default: released)",                                            \
         .offset = offsetof(type, member.when),                                \
         .choices = monitor_whens},                                            \
        {POISE_OPTION_STRING, .name = "tune", .arg = "FILE",                   \
         .help =                                                               \
             "tune the tree of MPI_COMM_WORLD while the program runs; FILE "   \
             "keeps the best one (see POISE_TREE_WATCH)",                      \
         .offset = offsetof(type, member.tune)},                               \
        {POISE_OPTION_FLAG, .name = "messages",                                \
         .help = "also watch point-to-point messages: who sends how much to "  \
                 "whom, and who waits",                                        \
         .offset = offsetof(type, member.messages)},                           \
        {POISE_OPTION_FLAG, .name = "live",                                    \
         .help = "show who is late each second, on stderr: a table on a "      \
                 "terminal, otherwise lines",                                  \
         .offset = offsetof(type, member.live)},                               \
        CLI_COLOR_OPTION(type, member.color),                                  \
    {                                                                          \
        POISE_OPTION_FLAG, .name = "json", .help = "print JSON",               \
                           .offset = offsetof(type, member.json)               \
    }

/** A session that is watched. Reasons are printed for `command`. */
struct monitor_watch;
/** `path` and `wants` are borrowed. CLI_DONE, or the exit code. */
int monitor_watch_create(const char *command, const char *path,
                         const struct monitor_wants *wants,
                         struct monitor_watch **out);
void monitor_watch_destroy(struct monitor_watch *watch);
/** Whether the program has ended, asked often. */
typedef bool monitor_ended_fn(const struct poise_monitor_source *source,
                              void *arg);
/** Watch until then, and report, with the program's `status` as it is then. */
int monitor_watch_run(struct monitor_watch *watch, monitor_ended_fn *ended,
                      const int *status, void *arg);
/** Ranks; 0: their files were not there yet. */
int monitor_watch_size(const struct monitor_watch *watch);

/* ---- the program -------------------------------------------------------- */

/** A launcher that runs. */
struct monitor_child {
    pid_t pid;
    bool ended;
    int status; /**< as a shell would say it */
};

/** What ranks are started with. */
struct monitor_start {
    const char *mpi;   /**< whose preload; NULL: whose launcher it is */
    const char *trace; /**< POISE_TRACE */
    const char *tree;  /**< POISE_TREE_WATCH; NULL: none */
    int rate;          /**< POISE_TRACE_RATE */
    bool messages;     /**< POISE_TRACE_MESSAGES */
};
/** Start `line`. Reasons are printed; CLI_DONE, or the exit code. */
int monitor_start(char **line, const struct monitor_start *how,
                  struct monitor_child *out);
/** Look whether it has ended; passes on what interrupted this command. */
void monitor_look(struct monitor_child *child);

#endif
