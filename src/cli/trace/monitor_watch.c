/*
 * Watching a session while it is written, and reporting on it: what trace run
 * and trace attach have in common.
 */
#include "monitor.h"
#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* What a watch has. */
struct monitor_watch {
    const char *command, *path;
    const struct monitor_wants *wants;
    struct poise_monitor *monitor;
    struct poise_scope *scope;
    struct poise_monitor_reader *reader;
    struct monitor_queries queries;
    struct monitor_timeline *timeline;
    struct monitor_live *live;
    struct poise_monitor_system *system;
    int64_t spent_ns; /* of processor time, until the last nap */
    struct monitor_tune *tune;
    struct poise_monitor_messages *messages;
};

/* ---- watching ----------------------------------------------------------- */

#define NAP_LEAST_NS 1000000
#define NAP_MOST_NS 20000000
/* And where its share of a processor is spent: less often nobody sees it live.
 */
#define REST_MOST_NS 200000000

/* In the order of their words. */
const char *const monitor_whens[] = {"released", "contributed", "always", NULL};
static const enum poise_scope_when whens[] = {
    POISE_SCOPE_RELEASED, POISE_SCOPE_CONTRIBUTED, POISE_SCOPE_ALWAYS};

/* How long to rest so that all that was done since the last nap is no more than
 * the share: also what looking for a good time takes, and waking up. */
static int64_t rest(struct monitor_watch *watch)
{
    struct timespec now;
    int share = (int)watch->wants->share;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    int64_t spent = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    int64_t took = spent - watch->spent_ns;
    watch->spent_ns = spent;
    if (share == 0 || took > REST_MOST_NS) {
        return share == 0 ? 0 : REST_MOST_NS;
    }
    int64_t rest_ns = took * (100 - share) / share;
    return rest_ns < REST_MOST_NS ? rest_ns : REST_MOST_NS;
}

/* Half full rings are read at once; where little comes, naps grow. Then the
 * time is waited for in which ranks mind least. */
static void nap(struct monitor_watch *watch, uint64_t records, int64_t *nap_ns)
{
    int64_t rest_ns = rest(watch);
    if (records > 2000) {
        *nap_ns = *nap_ns / 2 > NAP_LEAST_NS ? *nap_ns / 2 : NAP_LEAST_NS;
    } else if (records < 200) {
        *nap_ns = *nap_ns * 2 < NAP_MOST_NS ? *nap_ns * 2 : NAP_MOST_NS;
    }
    rest_ns = rest_ns > *nap_ns ? rest_ns : *nap_ns;
    nanosleep(&(struct timespec){0, (long)rest_ns}, NULL);
    poise_scope_wait(watch->scope, whens[watch->wants->when],
                     (uint64_t)*nap_ns);
}

/* Read until the program has ended, and then what is left. */
static int watch_all(struct monitor_watch *watch, monitor_ended_fn *ended,
                     void *arg)
{
    int64_t nap_ns = NAP_LEAST_NS;
    uint64_t before = 0;
    int code = 0, failed = 0;
    bool is_over;
    do {
        struct poise_monitor_source source;
        poise_monitor_reader_source(watch->reader, &source);
        is_over = ended(&source, arg);
        poise_monitor_system_look(watch->system);
        if (failed == 0) {
            code = poise_monitor_reader_poll(watch->reader, is_over);
            failed = code < 0 ? code : 0;
        }
        if (watch->tune && !is_over) {
            monitor_tune_look(watch->tune);
        }
        if (watch->live) {
            monitor_live_look(watch->live);
        }
        if (!is_over && code <= 0) {
            poise_monitor_reader_source(watch->reader, &source);
            nap(watch, source.records - before, &nap_ns);
            before = source.records;
        }
    } while (!is_over || code > 0);
    if (watch->live) {
        monitor_live_end(watch->live);
    }
    if (watch->tune) {
        monitor_tune_end(watch->tune);
    }
    return failed;
}

/* ---- the report --------------------------------------------------------- */

static int write_out(const struct monitor_watch *watch, const char *path,
                     const struct poise_buf *text)
{
    struct poise_output *output;
    if (!path || strcmp(path, "-") == 0) {
        return cli_write(watch->command, text);
    }
    int code = poise_output_open(path, NULL, &output);
    if (code < 0) {
        return cli_fail(watch->command, code);
    }
    code =
        poise_file_write(poise_output_fd(output), text->data, text->len, path);
    if (code == 0) {
        code = poise_output_commit(output, false);
    } else {
        poise_output_abort(output);
    }
    return code < 0 ? cli_fail(watch->command, code) : CLI_DONE;
}

/* Write what `make` made of the run; CLI_DONE, or the reason is printed. */
static int finish(const struct monitor_watch *watch, int code, const char *path,
                  struct poise_buf *out)
{
    int status =
        code < 0 ? cli_fail(watch->command, code) : write_out(watch, path, out);
    poise_buf_free(out);
    return status;
}

static int report(const struct monitor_watch *watch, int status)
{
    const struct monitor_wants *wants = watch->wants;
    struct monitor_run run;
    struct poise_buf out = {0};
    int code = monitor_gather(watch->monitor, watch->reader, watch->system,
                              status, &run);
    run.queries = &watch->queries;
    run.messages = watch->messages;
    if (code < 0) {
        monitor_free(&run);
        return cli_fail(watch->command, code);
    }
    code = wants->json ? monitor_json(&run, &out) : monitor_text(&run, &out);
    int written = finish(watch, code, wants->output, &out);
    if (wants->report && written == CLI_DONE) {
        written = finish(
            watch,
            monitor_page(&run, monitor_timeline_details(watch->timeline), &out),
            wants->report, &out);
    }
    if (wants->timeline && written == CLI_DONE) {
        written = finish(watch, monitor_timeline_json(watch->timeline, &out),
                         wants->timeline, &out);
    }
    monitor_free(&run);
    return written == CLI_DONE ? CLI_DONE : CLI_WRAPPER_FAILED;
}

/* What the rings still hold. */
static int export_records(const struct monitor_watch *watch)
{
    const struct trace_exports *exports = &watch->wants->exports;
    struct poise_trace_session *session;
    if (!exports->perfetto && !exports->otf2) {
        return CLI_DONE;
    }
    int code = poise_trace_session_open(&watch->path, 1, &session);
    if (code < 0) {
        return cli_fail(watch->command, code);
    }
    int status = trace_export(watch->command, session, exports);
    poise_trace_session_close(session);
    return status == CLI_DONE ? CLI_DONE : CLI_WRAPPER_FAILED;
}

/* ---- both --------------------------------------------------------------- */

static int begin(struct monitor_watch *watch)
{
    const struct monitor_wants *wants = watch->wants;
    struct poise_scope_options limits = {.share = (unsigned)wants->share * 10};
    int code = poise_monitor_create(NULL, &watch->monitor);
    code = code < 0 ? code
                    : poise_scope_create(watch->path, &limits, &watch->scope);
    if (code == 0) {
        code = poise_monitor_system_create(watch->monitor, watch->path,
                                           &watch->system);
    }
    /* What calls are charged with is read before they are complete. */
    code = code < 0 ? code
                    : poise_monitor_system_scope(watch->system, watch->scope);
    code = code < 0 ? code
                    : poise_monitor_reader_over(watch->monitor, watch->scope,
                                                &watch->reader);
    if (code == 0 && (wants->timeline || wants->report)) {
        code = monitor_timeline_create(watch->monitor, &watch->timeline);
    }
    if (code == 0 && wants->messages) {
        code = poise_monitor_messages_create(watch->scope, &watch->messages);
    }
    if (code == 0 && wants->tune) {
        code = monitor_tune_create(watch->command, watch->monitor, watch->scope,
                                   wants->tune, &watch->tune);
    }
    if (code == 0 && wants->live) {
        code = monitor_live_create(watch->monitor, watch->reader, wants->color,
                                   &watch->live);
    }
    return code < 0 ? code
                    : monitor_queries_create(&wants->queries, watch->monitor,
                                             watch->scope, &watch->queries);
}

int monitor_watch_create(const char *command, const char *path,
                         const struct monitor_wants *wants,
                         struct monitor_watch **out)
{
    struct monitor_watch *watch = poise_alloc(1, sizeof *watch);
    int code = watch ? 0 : -ENOMEM;
    if (code == 0) {
        *watch = (struct monitor_watch){
            .command = command, .path = path, .wants = wants};
        code = begin(watch);
    }
    if (code < 0) {
        cli_say_error(command);
        monitor_watch_destroy(watch);
        return CLI_WRAPPER_FAILED;
    }
    *out = watch;
    return CLI_DONE;
}

void monitor_watch_destroy(struct monitor_watch *watch)
{
    if (watch) {
        monitor_queries_free(&watch->queries);
        monitor_live_free(watch->live);
        monitor_timeline_free(watch->timeline);
        monitor_tune_free(watch->tune);
        poise_monitor_system_destroy(watch->system);
        poise_monitor_reader_destroy(watch->reader);
        poise_scope_destroy(watch->scope);
        poise_monitor_messages_destroy(watch->messages);
        poise_monitor_destroy(watch->monitor);
    }
    free(watch);
}

void monitor_wants_free(struct monitor_wants *wants)
{
    poise_strings_free(&wants->queries);
}

int monitor_watch_run(struct monitor_watch *watch, monitor_ended_fn *ended,
                      const int *status, void *arg)
{
    /* The program comes first. */
    setpriority(PRIO_PROCESS, 0, 19);
    int code = watch_all(watch, ended, arg);
    if (code < 0) {
        /* A launcher that failed has said why nothing was recorded. */
        if (code != -ENOENT || *status == 0) {
            cli_say_error(watch->command);
        }
        return CLI_WRAPPER_FAILED;
    }
    int reported = report(watch, *status);
    int exported = export_records(watch);
    return reported == CLI_DONE ? exported : reported;
}

int monitor_watch_size(const struct monitor_watch *watch)
{
    struct poise_monitor_source source;
    poise_monitor_reader_source(watch->reader, &source);
    return source.size;
}
