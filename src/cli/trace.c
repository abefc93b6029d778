/* poise trace: what the threads of a run recorded (--trace FILE). */
#include "cli/common/common.h"

#include <poise/trace.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct values {
    struct cli_common common;
    bool events, json;
};

static const struct poise_option options[] = {
    {POISE_OPTION_FLAG, 'e', "events",
     .help = "list the events, in the order in which they happened",
     .offset = offsetof(struct values, events)},
    {POISE_OPTION_FLAG, .name = "json", .help = "print JSON",
     .offset = offsetof(struct values, json)},
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_trace_command = {
    .name = "trace",
    .operands = "FILE...",
    .summary = "show what the threads of a run recorded with --trace",
    .description =
        "A trace has a ring of events for each thread: 'caller' talks to other "
        "ranks, and works too where it is the only thread; 'worker N' runs "
        "tasks. Of a full ring the oldest events are lost; the counts are of "
        "those that are left. A trace may be read while the run goes on, and "
        "after it was killed. Each rank writes a file of its own.",
    .options = options,
    .examples = "poise walk --trace t /data\trecord\n"
                "poise trace t\twhat each thread did, in numbers\n"
                "poise trace --events t\tand event by event\n",
    .exits = "0\tall files were read\n1\ta file could not be read\n"
             "2\twrong use\n",
};

static const char *const kind_names[] = {
    [POISE_TRACE_TASK_BEGIN] = "task-begin",
    [POISE_TRACE_TASK_END] = "task-end",
    [POISE_TRACE_STEAL_ASK] = "steal-ask",
    [POISE_TRACE_STEAL_GOT] = "steal-got",
    [POISE_TRACE_STEAL_REFUSED] = "steal-refused",
    [POISE_TRACE_STEAL_GAVE] = "steal-gave",
    [POISE_TRACE_IDLE_BEGIN] = "idle-begin",
    [POISE_TRACE_IDLE_END] = "idle-end",
    [POISE_TRACE_TOKEN] = "token",
    [POISE_TRACE_CHECKPOINT] = "checkpoint",
    [POISE_TRACE_SEND] = "send",
    [POISE_TRACE_RECEIVE] = "receive",
    [POISE_TRACE_COLL_ENTER] = "coll-enter",
    [POISE_TRACE_COLL_LAST] = "coll-last",
    [POISE_TRACE_COLL_LEAVE] = "coll-leave",
};
enum { KINDS = sizeof kind_names / sizeof *kind_names };

/* One ring, copied out of the file. */
struct ring {
    struct poise_trace_ring_info info;
    struct poise_trace_event *events;
    size_t count;
    uint64_t kinds[KINDS];
    uint64_t idle_ticks, sent_bytes;
};

struct trace {
    const char *path;
    uint64_t hz, start;
    struct ring *rings;
    unsigned ring_count;
};

/* ---- reading ------------------------------------------------------------ */

static void count_events(struct ring *ring)
{
    uint64_t idle_since = 0;

    for (size_t i = 0; i < ring->count; i++) {
        const struct poise_trace_event *event = &ring->events[i];

        if (event->kind < KINDS) {
            ring->kinds[event->kind]++;
        }
        if (event->kind == POISE_TRACE_IDLE_BEGIN) {
            idle_since = event->ticks;
        } else if (event->kind == POISE_TRACE_IDLE_END && idle_since) {
            ring->idle_ticks += event->ticks - idle_since;
            idle_since = 0;
        } else if (event->kind == POISE_TRACE_SEND) {
            ring->sent_bytes += event->b;
        }
    }
}

static int read_ring(const struct poise_trace_view *view, unsigned index,
                     struct ring *ring)
{
    uint64_t next = 0;
    ssize_t found = 1;
    int code = poise_trace_ring_info(view, index, &ring->info);

    if (code < 0) {
        return code;
    }
    /* What is written while we look is left for another time. */
    size_t most = (size_t)(ring->info.written - ring->info.overwritten);
    ring->events = poise_alloc(most + 1, sizeof *ring->events);
    if (!ring->events) {
        return -ENOMEM;
    }
    while (found > 0 && ring->count < most) {
        found = poise_trace_read(view, index, next, most - ring->count,
                                 ring->events + ring->count, &next);
        ring->count += found > 0 ? (size_t)found : 0;
    }
    count_events(ring);
    return found < 0 ? (int)found : 0;
}

static int read_trace(const char *path, struct trace *trace)
{
    struct poise_trace_view *view;
    int code = poise_trace_open(path, &view);

    *trace = (struct trace){.path = path};
    if (code < 0) {
        return code;
    }
    trace->hz = poise_trace_tick_hz(view);
    trace->start = poise_trace_start_ticks(view);
    unsigned count = poise_trace_rings(view);
    trace->rings = poise_alloc(count + 1, sizeof *trace->rings);
    code = trace->rings ? 0 : -ENOMEM;
    for (; code == 0 && trace->ring_count < count; trace->ring_count++) {
        code = read_ring(view, trace->ring_count,
                         &trace->rings[trace->ring_count]);
    }
    poise_trace_close(view);
    return code;
}

static void free_trace(struct trace *trace)
{
    for (unsigned i = 0; i < trace->ring_count; i++) {
        free(trace->rings[i].events);
    }
    free(trace->rings);
}

/* ---- all events in order ------------------------------------------------ */

struct moment {
    const struct poise_trace_event *event;
    const struct ring *ring;
};

/* Of two events at once the one of the earlier ring comes first. */
static int compare_moments(const void *a, const void *b)
{
    const struct moment *x = a, *y = b;

    if (x->event->ticks != y->event->ticks) {
        return x->event->ticks < y->event->ticks ? -1 : 1;
    }
    if (x->ring != y->ring) {
        return x->ring < y->ring ? -1 : 1;
    }
    return x->event < y->event ? -1 : x->event > y->event;
}

static struct moment *sort_moments(const struct trace *trace, size_t *count)
{
    size_t all = 0, at = 0;
    struct moment *moments;

    for (unsigned i = 0; i < trace->ring_count; i++) {
        all += trace->rings[i].count;
    }
    moments = poise_alloc(all + 1, sizeof *moments);
    for (unsigned i = 0; moments && i < trace->ring_count; i++) {
        const struct ring *ring = &trace->rings[i];

        for (size_t k = 0; k < ring->count; k++) {
            moments[at++] = (struct moment){&ring->events[k], ring};
        }
    }
    if (moments) {
        qsort(moments, all, sizeof *moments, compare_moments);
    }
    *count = all;
    return moments;
}

static uint64_t nanoseconds(const struct trace *trace, uint64_t ticks)
{
    return (uint64_t)((double)ticks * 1e9 / (double)trace->hz);
}

static void kind_name(uint32_t kind, struct poise_buf *out)
{
    if (kind < KINDS && kind_names[kind]) {
        poise_buf_puts(out, kind_names[kind]);
    } else if (kind >= POISE_TRACE_USER) {
        poise_buf_printf(out, "user-%u", kind - POISE_TRACE_USER);
    } else {
        poise_buf_printf(out, "kind-%u", kind);
    }
}

/* ---- text --------------------------------------------------------------- */

static int text_events(const struct trace *trace, struct poise_buf *out)
{
    size_t count;
    struct moment *moments = sort_moments(trace, &count);

    for (size_t i = 0; moments && i < count; i++) {
        const struct poise_trace_event *event = moments[i].event;
        struct poise_buf name = {0};

        kind_name(event->kind, &name);
        poise_buf_printf(
            out, "%12.3f us  %-10s  %-13s  %u %llu %llu\n",
            (double)nanoseconds(trace, event->ticks - trace->start) / 1e3,
            moments[i].ring->info.name, poise_buf_str(&name), event->extra,
            (unsigned long long)event->a, (unsigned long long)event->b);
        poise_buf_free(&name);
    }
    free(moments);
    return moments ? out->error : -ENOMEM;
}

enum { COLUMNS = 9 };

static int table_row(const struct trace *trace, const struct ring *ring,
                     struct poise_table *table)
{
    const uint64_t numbers[] = {
        (uint64_t)ring->info.tid,
        ring->info.written,
        ring->info.overwritten,
        ring->kinds[POISE_TRACE_TASK_END],
        0,
        ring->kinds[POISE_TRACE_SEND],
        ring->sent_bytes,
        ring->kinds[POISE_TRACE_RECEIVE],
    };
    struct poise_buf cells[COLUMNS] = {0};
    const char *text[COLUMNS];
    int code;

    poise_buf_puts(&cells[0], ring->info.name);
    poise_buf_decimal(&cells[1], numbers[0]); /* an id, not a count */
    for (size_t i = 2; i < COLUMNS; i++) {
        poise_human_count(&cells[i], numbers[i - 1]);
    }
    poise_buf_reset(&cells[5]);
    poise_human_ns(&cells[5], nanoseconds(trace, ring->idle_ticks));
    for (size_t i = 0; i < COLUMNS; i++) {
        text[i] = poise_buf_str(&cells[i]);
    }
    code = poise_table_row(table, text);
    for (size_t i = 0; i < COLUMNS; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

static int text_rings(const struct trace *trace, struct poise_buf *out)
{
    static const struct poise_column columns[COLUMNS] = {
        {"ring", POISE_ALIGN_LEFT},      {"thread", POISE_ALIGN_RIGHT},
        {"events", POISE_ALIGN_RIGHT},   {"lost", POISE_ALIGN_RIGHT},
        {"tasks", POISE_ALIGN_RIGHT},    {"idle", POISE_ALIGN_RIGHT},
        {"sent", POISE_ALIGN_RIGHT},     {"bytes", POISE_ALIGN_RIGHT},
        {"received", POISE_ALIGN_RIGHT},
    };
    struct poise_table *table;
    int code = poise_table_create(columns, COLUMNS, &table);

    if (code < 0) {
        return code;
    }
    for (unsigned i = 0; code == 0 && i < trace->ring_count; i++) {
        code = table_row(trace, &trace->rings[i], table);
    }
    code = code < 0 ? code : poise_table_text(table, out);
    poise_table_destroy(table);
    return code;
}

/* ---- JSON --------------------------------------------------------------- */

static void json_ring(const struct trace *trace, const struct ring *ring,
                      struct poise_json *json)
{
    poise_json_object(json, NULL);
    poise_json_string(json, "name", ring->info.name);
    poise_json_i64(json, "process", ring->info.pid);
    poise_json_i64(json, "thread", ring->info.tid);
    poise_json_u64(json, "events", ring->info.written);
    poise_json_u64(json, "lost", ring->info.overwritten);
    poise_json_u64(json, "idle_ns", nanoseconds(trace, ring->idle_ticks));
    poise_json_u64(json, "sent_bytes", ring->sent_bytes);
    poise_json_object(json, "kinds");
    for (size_t i = 0; i < KINDS; i++) {
        if (kind_names[i] && ring->kinds[i]) {
            poise_json_u64(json, kind_names[i], ring->kinds[i]);
        }
    }
    poise_json_end_object(json);
    poise_json_end_object(json);
}

static int json_events(const struct trace *trace, struct poise_json *json)
{
    size_t count;
    struct moment *moments = sort_moments(trace, &count);

    poise_json_array(json, "list");
    for (size_t i = 0; moments && i < count; i++) {
        const struct poise_trace_event *event = moments[i].event;
        struct poise_buf name = {0};

        kind_name(event->kind, &name);
        poise_json_object(json, NULL);
        poise_json_u64(json, "ns",
                       nanoseconds(trace, event->ticks - trace->start));
        poise_json_string(json, "ring", moments[i].ring->info.name);
        poise_json_string(json, "kind", poise_buf_str(&name));
        poise_json_u64(json, "extra", event->extra);
        poise_json_u64(json, "a", event->a);
        poise_json_u64(json, "b", event->b);
        poise_json_end_object(json);
        poise_buf_free(&name);
    }
    poise_json_end_array(json);
    free(moments);
    return moments ? 0 : -ENOMEM;
}

static int json_trace(const struct trace *trace, bool events,
                      struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);
    int code = 0;

    poise_json_object(&json, NULL);
    poise_json_bytes(&json, "file", trace->path, strlen(trace->path));
    poise_json_array(&json, "rings");
    for (unsigned i = 0; i < trace->ring_count; i++) {
        json_ring(trace, &trace->rings[i], &json);
    }
    poise_json_end_array(&json);
    if (events) {
        code = json_events(trace, &json);
    }
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
    return code < 0 ? code : out->error;
}

/* ---- the command -------------------------------------------------------- */

/* One file; `title`: of several. */
static int show(const char *path, const struct values *values, bool title)
{
    struct trace trace;
    struct poise_buf out = {0};
    int status;
    int code = read_trace(path, &trace);

    if (code == 0 && values->json) {
        code = json_trace(&trace, values->events, &out);
    } else if (code == 0) {
        if (title) {
            poise_buf_printf(&out, "%s:\n", path);
        }
        code = values->events ? text_events(&trace, &out)
                              : text_rings(&trace, &out);
    }
    free_trace(&trace);
    if (code < 0) {
        cli_say_error("trace");
        status = CLI_PARTLY;
    } else {
        status = cli_write("trace", &out);
    }
    poise_buf_free(&out);
    return status;
}

int cli_trace(int argc, char **argv)
{
    struct values values = {0};
    int status = CLI_DONE;
    int first = cli_parse(&cli_trace_command, argc, argv, &values,
                          &values.common, &status);

    if (first < 0) {
        return status;
    }
    if (first == argc) {
        cli_say("trace", "name a file that --trace wrote");
        return CLI_WRONG_USE;
    }
    for (int i = first; i < argc; i++) {
        if (show(argv[i], &values, argc - first > 1) != CLI_DONE) {
            status = CLI_PARTLY;
        }
    }
    return status;
}
