/* What poise trace run shows of the calls that it saw. */
#ifndef POISE_CLI_TRACE_MONITOR_H
#define POISE_CLI_TRACE_MONITOR_H

#include "cli/common/common.h"

#include <poise/monitor.h>
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
    const struct poise_monitor *monitor;
    struct poise_monitor_source source;
    struct poise_monitor_missing missing;
    const struct poise_monitor_operation **operations; /**< most time first */
    unsigned count;
    int status; /**< the program's */
};

/** Gather it. -ENOMEM. */
int monitor_gather(const struct poise_monitor *monitor,
                   const struct poise_monitor_reader *reader, int status,
                   struct monitor_run *out);
void monitor_free(struct monitor_run *run);

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

/** A page with all of it. */
int monitor_page(const struct monitor_run *run,
                 const struct monitor_details *details, struct poise_buf *out);

/* ---- the program -------------------------------------------------------- */

/** A launcher that runs. */
struct monitor_child {
    pid_t pid;
    bool ended;
    int status; /**< as a shell would say it */
};

/** Start `line` with `trace` as POISE_TRACE of its ranks and the preload of
 * `mpi` (NULL: whose launcher line[0] is) before their libraries. Reasons are
 * printed; CLI_DONE, or the exit code. */
int monitor_start(char **line, const char *mpi, const char *trace,
                  struct monitor_child *out);
/** Look whether it has ended; passes on what interrupted this command. */
void monitor_look(struct monitor_child *child);

#endif
