/* poise trace show: what the threads of a run recorded, of all ranks. */
#include "trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct values {
    struct cli_common common;
    struct trace_exports exports;
    bool events, json;
};

static const struct poise_option options[] = {
    {POISE_OPTION_FLAG, 'e', "events",
     .help = "list the events in the order in which they happened",
     .offset = offsetof(struct values, events)},
    {POISE_OPTION_FLAG, .name = "json", .help = "print JSON",
     .offset = offsetof(struct values, json)},
    TRACE_EXPORT_OPTIONS(struct values, exports),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

#define DESCRIPTION                                                            \
    "Each rank writes its own file: rank 0 FILE, rank R FILE.R, "              \
    "which is found beside FILE; name all files that you gathered "            \
    "from several hosts. They are shown together, in the time of "             \
    "rank 0's clock, with the offset of the other hosts' clocks "              \
    "and its error. You can read a file while the run goes on, and "           \
    "after it was killed.\n\n"                                                 \
    "To record, set POISE_TRACE=FILE for any command of poise, or "            \
    "for an MPI program under 'poise coll'. Each thread keeps its "            \
    "newest POISE_TRACE_EVENTS records (default: 16,384); older "              \
    "ones are lost and counted."
#define EXAMPLES                                                               \
    "poise walk --trace t /data\trecord\n"                                     \
    "POISE_TRACE=t poise bfs --scale 16\trecord, with any command\n"           \
    "poise trace show t\tshow what each thread did, in numbers\n"              \
    "poise trace show --events t\tshow it event by event\n"                    \
    "poise trace show --perfetto t.pftrace t\tconvert for "                    \
    "ui.perfetto.dev\n"
#define EXITS                                                                  \
    "0\tall files were read\n1\ta file could not be read\n2\twrong use\n"

const struct poise_command cli_trace_show_command = {
    .name = "trace show",
    .operands = "FILE...",
    .summary = "show what the threads of a run recorded",
    .description = DESCRIPTION,
    .options = options,
    .examples = EXAMPLES,
    .exits = EXITS,
    .see = "poise-trace(1) poise-trace-run(1) docs/trace.md",
};

const struct poise_command cli_trace_command = {
    .name = "trace",
    .operands = "FILE...",
    .summary = "the same as trace show",
    .description = DESCRIPTION,
    .options = options,
    .examples = EXAMPLES,
    .exits = EXITS,
    .see = "poise-trace-run(1) poise-trace-show(1) docs/trace.md",
};

/* ---- what records say --------------------------------------------------- */

struct trace_ring *trace_ring_of(const struct trace_show *show, unsigned file,
                                 unsigned ring)
{
    /* Rings are in the order of files. */
    for (unsigned i = 0; i < show->ring_count; i++) {
        if (show->rings[i].file == file) {
            return &show->rings[i + ring];
        }
    }
    return NULL;
}

static uint64_t since(const struct trace_show *show, unsigned file,
                      uint64_t from, uint64_t to)
{
    int64_t a, b;
    uint64_t error;

    poise_trace_session_time(show->session, file, from, &a, &error);
    poise_trace_session_time(show->session, file, to, &b, &error);
    return b > a ? (uint64_t)(b - a) : 0;
}

bool trace_duration(const struct trace_show *show,
                    const struct poise_trace_moment *moment,
                    const struct poise_trace_type *type, uint64_t *ns)
{
    const uint64_t *values = moment->event->values;
    int last = 0;

    for (int i = 1; i < POISE_TRACE_VALUES; i++) {
        if (type->values[i].unit == POISE_TRACE_TIME) {
            last = i;
        }
    }
    if (last > 0) {
        *ns = since(show, moment->file, values[0], values[last]);
    }
    return last > 0;
}

void trace_value(const struct trace_show *show,
                 const struct poise_trace_moment *moment, uint32_t unit,
                 uint64_t value, struct poise_buf *out)
{
    char text[9] = {0};

    switch (unit) {
    case POISE_TRACE_TIME: /* after the first one */
        poise_buf_printf(
            out, "+%.3f",
            (double)since(show, moment->file, moment->event->values[0], value) /
                1e3);
        break;
    case POISE_TRACE_RANK:
        poise_buf_printf(out, "%lld", (long long)(int64_t)value);
        break;
    case POISE_TRACE_TEXT:
        for (int i = 0; i < 8; i++) {
            text[i] = (char)(value >> (8 * i) & 0xff);
        }
        poise_buf_escape(out, text, strlen(text));
        break;
    default:
        poise_buf_decimal(out, value);
    }
}

void trace_type_name(const struct trace_show *show,
                     const struct poise_trace_moment *moment, char out[24])
{
    const struct poise_trace_view *view = show->files[moment->file].view;
    uint32_t collector = moment->event->collector;
    struct poise_trace_type type;
    struct poise_buf name = {0};

    if (poise_trace_type(view, collector, &type)) {
        poise_buf_puts(&name, type.name);
    } else if (collector >= POISE_TRACE_COLLECTOR) {
        poise_buf_printf(&name, "collector-%u",
                         collector - POISE_TRACE_COLLECTOR);
    } else if (collector >= POISE_TRACE_USER) {
        poise_buf_printf(&name, "user-%u", collector - POISE_TRACE_USER);
    } else {
        poise_buf_printf(&name, "kind-%u", collector);
    }
    memset(out, 0, 24);
    strncpy(out, poise_buf_str(&name), 23);
    poise_buf_free(&name);
}

/* ---- gathering ---------------------------------------------------------- */

/* The entry of records that are alike: the same type, name and group on all
 * ranks. */
static struct trace_span *span_of(struct trace_show *show,
                                  const struct poise_trace_moment *moment)
{
    const struct poise_trace_view *view = show->files[moment->file].view;
    struct poise_trace_place place = {0};
    struct trace_span span = {0};
    struct trace_span *spans;

    trace_type_name(show, moment, span.type);
    if (moment->event->collector >= POISE_TRACE_COLLECTOR &&
        poise_trace_place(view, moment->event->collector, &place)) {
        memcpy(span.name, place.name, sizeof span.name);
        memcpy(span.group, place.group_name, sizeof span.group);
    }
    for (size_t i = 0; i < show->span_count; i++) {
        if (strcmp(show->spans[i].type, span.type) == 0 &&
            strcmp(show->spans[i].name, span.name) == 0 &&
            strcmp(show->spans[i].group, span.group) == 0) {
            return &show->spans[i];
        }
    }
    spans = poise_realloc(show->spans, show->span_count + 1, sizeof *spans);
    if (!spans) {
        return NULL;
    }
    show->spans = spans;
    spans[show->span_count] = span;
    return &spans[show->span_count++];
}

static void count_ring(struct trace_ring *ring,
                       const struct poise_trace_moment *moment)
{
    const struct poise_trace_event *event = moment->event;

    if (event->collector < POISE_TRACE_KINDS) {
        ring->kinds[event->collector]++;
    } else {
        ring->others++;
    }
    switch (event->collector) {
    case POISE_TRACE_TASK_END:
        ring->tasks++;
        break;
    case POISE_TRACE_IDLE_BEGIN:
        ring->idle_since = moment->ns;
        break;
    case POISE_TRACE_IDLE_END:
        if (ring->idle_since != INT64_MIN) {
            ring->idle_ns += moment->ns - ring->idle_since;
        }
        ring->idle_since = INT64_MIN;
        break;
    case POISE_TRACE_SEND:
        ring->sent++;
        ring->sent_bytes += event->values[2];
        break;
    case POISE_TRACE_RECEIVE:
        ring->received++;
        break;
    default:
        break;
    }
}

/* A cache of one: records of a collector come in rows. */
static int count_all(struct trace_show *show)
{
    struct poise_trace_moment moment;
    struct trace_span *span = NULL;
    uint32_t collector = 0;
    unsigned file = 0;

    while (poise_trace_session_next(show->session, &moment) > 0) {
        const struct poise_trace_view *view = show->files[moment.file].view;
        struct poise_trace_type type;
        uint64_t ns;

        count_ring(trace_ring_of(show, moment.file, moment.ring), &moment);
        if (moment.has_cause) {
            show->messages++;
            show->latency_sum_ns += moment.latency_ns;
        }
        if (!span || collector != moment.event->collector ||
            file != moment.file) {
            span = span_of(show, &moment);
            collector = moment.event->collector;
            file = moment.file;
        }
        if (!span) {
            return -ENOMEM;
        }
        span->count++;
        if (poise_trace_type(view, collector, &type) &&
            trace_duration(show, &moment, &type, &ns)) {
            span->timed++;
            span->sum_ns += ns;
            span->most_ns = ns > span->most_ns ? ns : span->most_ns;
        }
    }
    return 0;
}

static int gather_rings(struct trace_show *show)
{
    unsigned count = 0;

    for (unsigned i = 0; i < show->file_count; i++) {
        count += poise_trace_rings(show->files[i].view);
    }
    show->rings = poise_alloc(count + 1, sizeof *show->rings);
    if (!show->rings) {
        return -ENOMEM;
    }
    for (unsigned i = 0; i < show->file_count; i++) {
        unsigned rings = poise_trace_rings(show->files[i].view);

        for (unsigned k = 0; k < rings; k++) {
            struct trace_ring *ring = &show->rings[show->ring_count++];
            int code =
                poise_trace_ring_info(show->files[i].view, k, &ring->info);

            if (code < 0) {
                return code;
            }
            ring->file = i;
            ring->ring = k;
            ring->lost = ring->info.overwritten;
            ring->idle_since = INT64_MIN;
        }
    }
    return 0;
}

static int gather(struct poise_trace_session *session, struct trace_show *show)
{
    int code = 0;

    *show = (struct trace_show){.session = session, .one_clock = true};
    show->file_count = poise_trace_session_files(session);
    show->files = poise_alloc(show->file_count + 1, sizeof *show->files);
    code = show->files ? 0 : -ENOMEM;
    for (unsigned i = 0; i < show->file_count && code == 0; i++) {
        code = poise_trace_session_file(session, i, &show->files[i]);
        show->one_clock = show->one_clock && show->files[i].error_ns == 0;
    }
    if (code == 0) {
        code = gather_rings(show);
    }
    if (code == 0) {
        code = count_all(show);
    }
    return code;
}

static void free_show(struct trace_show *show)
{
    free(show->files);
    free(show->rings);
    free(show->spans);
    poise_trace_session_close(show->session);
}

/* ---- what one should know ----------------------------------------------- */

static void warn_of_file(const struct poise_trace_file *file)
{
    const struct poise_trace_info *info = &file->info;

    if (!info->ended) {
        cli_say("trace", "'%s' did not end in order: it goes on, or was killed",
                file->path);
    }
    if (file->lost > 0) {
        cli_say("trace", "'%s': %llu older records were overwritten",
                file->path, (unsigned long long)file->lost);
    }
    if (file->unfinished > 0) {
        cli_say("trace", "'%s': %llu records were never finished", file->path,
                (unsigned long long)file->unfinished);
    }
    if (info->refused > 0) {
        cli_say("trace",
                "'%s': %llu threads found no ring (a full disk, or too many): "
                "nothing of them is here",
                file->path, (unsigned long long)info->refused);
    }
    if (info->unplaced > 0) {
        cli_say("trace",
                "'%s': %llu collectors found no place: their records show "
                "only their type",
                file->path, (unsigned long long)info->unplaced);
    }
    if (!info->has_tsc) {
        cli_say("trace",
                "'%s': host %s has no invariant time stamp counter; times are "
                "of CLOCK_MONOTONIC, and recording cost more",
                file->path, info->host);
    }
    if (file->rate_ppm > 500) {
        cli_say("trace",
                "'%s': the rate of ticks strayed by %.0f ppm: the machine "
                "slept or was moved, times in between are not exact",
                file->path, file->rate_ppm);
    }
    if (file->way == POISE_TRACE_WALL) {
        cli_say("trace",
                "'%s': the clock of host %s was not compared with rank 0's; "
                "its times are by its time of day, nobody knows how well",
                file->path, info->host);
    }
}

static void warn(const struct trace_show *show)
{
    unsigned missing = poise_trace_session_missing(show->session);
    uint64_t odd = poise_trace_session_contradictions(show->session);

    for (unsigned i = 0; i < show->file_count; i++) {
        warn_of_file(&show->files[i]);
    }
    if (missing > 0) {
        cli_say("trace", "%u rank%s of '%s' %s not here", missing,
                missing > 1 ? "s" : "", show->files[0].path,
                missing > 1 ? "are" : "is");
    }
    if (odd > 0) {
        cli_say("trace",
                "%llu messages were received before they were sent, by more "
                "than the clocks' errors allow: they are shown with no latency",
                (unsigned long long)odd);
    }
}

/* ---- the command -------------------------------------------------------- */

static int show_session(const char *const *paths, size_t count,
                        const struct values *values, bool title)
{
    struct poise_trace_session *session;
    struct trace_show show = {0};
    struct poise_buf out = {0};
    int status = CLI_PARTLY;
    int code = poise_trace_session_open(paths, count, &session);

    if (code == 0) {
        code = gather(session, &show);
    }
    if (code == 0 && values->json) {
        code = trace_json(&show, values->events, &out);
    } else if (code == 0) {
        if (title) {
            poise_buf_printf(&out, "%s:\n", show.files[0].path);
        }
        code = values->events ? trace_text_events(&show, &out)
                              : trace_text(&show, &out);
    }
    if (code < 0) {
        cli_say_error("trace");
    } else {
        status = cli_write("trace", &out);
        warn(&show);
        if (trace_export("trace", session, &values->exports) != CLI_DONE) {
            status = CLI_PARTLY;
        }
    }
    free_show(&show);
    poise_buf_free(&out);
    return status;
}

/* An operand that is a trace; those of one session are shown together. */
struct operand {
    const char *path;
    uint64_t session[2];
    bool shown;
};

/* The operands that can be opened; the others are told of. */
static size_t open_operands(char **words, int count, struct operand *out,
                            int *status)
{
    size_t opened = 0;

    for (int i = 0; i < count; i++) {
        struct poise_trace_view *view;
        struct poise_trace_info info;

        if (poise_trace_open(words[i], &view) < 0) {
            cli_say_error("trace");
            *status = CLI_PARTLY;
            continue;
        }
        poise_trace_info(view, &info);
        out[opened] = (struct operand){.path = words[i]};
        memcpy(out[opened++].session, info.session, sizeof info.session);
        poise_trace_close(view);
    }
    return opened;
}

/* An export is of one session. */
static bool are_several(const struct operand *operands, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (memcmp(operands[i].session, operands[0].session,
                   sizeof operands[0].session) != 0) {
            cli_say("trace",
                    "'%s' and '%s' are of different sessions: export one at a "
                    "time",
                    operands[0].path, operands[i].path);
            return true;
        }
    }
    return false;
}

static int show_operands(struct operand *operands, size_t count,
                         const char **paths, const struct values *values)
{
    int status = CLI_DONE;

    for (size_t i = 0; i < count; i++) {
        size_t together = 0;

        for (size_t k = i; k < count && !operands[i].shown; k++) {
            if (memcmp(operands[k].session, operands[i].session,
                       sizeof operands[i].session) == 0) {
                operands[k].shown = k > i;
                paths[together++] = operands[k].path;
            }
        }
        if (together > 0 && show_session(paths, together, values,
                                         together < count) != CLI_DONE) {
            status = CLI_PARTLY;
        }
    }
    return status;
}

static int run(const struct poise_command *command, int argc, char **argv)
{
    struct values values = {0};
    int status = CLI_DONE;
    int first =
        cli_parse(command, argc, argv, &values, &values.common, &status);

    if (first < 0) {
        return status;
    }
    if (first == argc) {
        cli_say("trace", "name a file that --trace wrote");
        return CLI_WRONG_USE;
    }
    struct cli_standard standard;
    status = cli_standard_output("trace", values.json, &values.exports.perfetto,
                                 NULL, &standard);
    if (status != CLI_DONE) {
        return status;
    }
    size_t count = (size_t)(argc - first);
    struct operand *operands = poise_alloc(count, sizeof *operands);
    const char **paths = poise_alloc(count, sizeof *paths);
    if (!operands || !paths) {
        cli_say_error("trace");
        status = CLI_PARTLY;
    } else {
        count = open_operands(argv + first, argc - first, operands, &status);
        if ((values.exports.perfetto || values.exports.otf2) &&
            are_several(operands, count)) {
            status = CLI_WRONG_USE;
        } else if (show_operands(operands, count, paths, &values) != CLI_DONE) {
            status = CLI_PARTLY;
        }
    }
    free(operands);
    free(paths);
    return status;
}

int cli_trace(int argc, char **argv)
{
    return run(&cli_trace_command, argc, argv);
}

int cli_trace_show(int argc, char **argv)
{
    return run(&cli_trace_show_command, argc, argv);
}
