/* A session for programs. */
#include "trace.h"

#include <errno.h>
#include <string.h>

static void json_error(struct poise_json *json, const char *key, uint64_t ns)
{
    /* Unknown is left out: there is no number for it. */
    if (ns != POISE_TRACE_UNKNOWN) {
        poise_json_u64(json, key, ns);
    }
}

static void json_ring(const struct trace_ring *ring, struct poise_json *json)
{
    poise_json_object(json, NULL);
    poise_json_bytes(json, "name", ring->info.name, strlen(ring->info.name));
    poise_json_i64(json, "thread", ring->info.tid);
    poise_json_u64(json, "owners", ring->info.owners);
    poise_json_u64(json, "events", ring->info.written);
    poise_json_u64(json, "lost", ring->lost);
    poise_json_u64(json, "idle_ns", (uint64_t)ring->idle_ns);
    poise_json_u64(json, "sent_bytes", ring->sent_bytes);
    poise_json_end_object(json);
}

static void json_file(const struct trace_show *show, unsigned number,
                      struct poise_json *json)
{
    static const char *const ways[] = {"same", "measured", "wall"};
    const struct poise_trace_file *file = &show->files[number];

    poise_json_object(json, NULL);
    poise_json_i64(json, "rank", file->info.rank);
    poise_json_bytes(json, "file", file->path, strlen(file->path));
    poise_json_bytes(json, "host", file->info.host, strlen(file->info.host));
    poise_json_bytes(json, "program", file->info.program,
                     strlen(file->info.program));
    poise_json_i64(json, "process", file->info.pid);
    poise_json_bool(json, "ended", file->info.ended);
    poise_json_bool(json, "invariant_tsc", file->info.has_tsc);
    poise_json_string(json, "clock", ways[file->way]);
    poise_json_i64(json, "offset_ns", file->offset_ns);
    json_error(json, "offset_error_ns", file->error_ns);
    poise_json_double(json, "drift_ppm", file->drift_ppm);
    poise_json_double(json, "drift_error_ppm", file->drift_error_ppm);
    poise_json_u64(json, "measurements", file->measurements);
    poise_json_u64(json, "snapshots", file->snapshots);
    poise_json_u64(json, "events", file->records);
    poise_json_u64(json, "lost", file->lost);
    poise_json_u64(json, "unfinished", file->unfinished);
    poise_json_u64(json, "threads_without_ring", file->info.refused);
    poise_json_array(json, "rings");
    for (unsigned i = 0; i < show->ring_count; i++) {
        if (show->rings[i].file == number) {
            json_ring(&show->rings[i], json);
        }
    }
    poise_json_end_array(json);
    poise_json_end_object(json);
}

static void json_spans(const struct trace_show *show, struct poise_json *json)
{
    poise_json_array(json, "collectors");
    for (size_t i = 0; i < show->span_count; i++) {
        const struct trace_span *span = &show->spans[i];

        poise_json_object(json, NULL);
        poise_json_bytes(json, "type", span->type, strlen(span->type));
        poise_json_bytes(json, "name", span->name, strlen(span->name));
        poise_json_bytes(json, "group", span->group, strlen(span->group));
        poise_json_u64(json, "events", span->count);
        if (span->timed > 0) {
            poise_json_u64(json, "sum_ns", span->sum_ns);
            poise_json_u64(json, "most_ns", span->most_ns);
        }
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
}

/* Values under their names; two of the same name become name, name2. */
static void json_values(const struct poise_trace_event *event,
                        const struct poise_trace_type *type,
                        struct poise_json *json)
{
    poise_json_array(json, "values");
    for (int i = 0; i < POISE_TRACE_VALUES; i++) {
        if (type->values[i].unit != POISE_TRACE_UNUSED) {
            poise_json_object(json, NULL);
            poise_json_bytes(json, "name", type->values[i].name,
                             strlen(type->values[i].name));
            if (type->values[i].unit == POISE_TRACE_RANK) {
                poise_json_i64(json, "value", (int64_t)event->values[i]);
            } else {
                poise_json_u64(json, "value", event->values[i]);
            }
            poise_json_end_object(json);
        }
    }
    poise_json_end_array(json);
}

/* Where it was recorded. The ranks are those of the group. */
static void json_place(const struct poise_trace_place *place,
                       struct poise_json *json)
{
    struct poise_buf group = {0};

    poise_json_bytes(json, "name", place->name, strlen(place->name));
    poise_json_bytes(json, "group", place->group_name,
                     strlen(place->group_name));
    /* As text: half of them are no numbers of JSON's readers. */
    poise_buf_printf(&group, "%016llx", (unsigned long long)place->group);
    poise_json_string(json, "group_id", poise_buf_str(&group));
    poise_buf_free(&group);
    poise_json_i64(json, "group_rank", place->rank);
    if (place->size > 0) {
        poise_json_u64(json, "group_size", place->size);
    }
    if (place->peer >= 0) {
        poise_json_i64(json, "group_peer", place->peer);
    }
}

static void json_event(const struct trace_show *show,
                       const struct poise_trace_moment *moment,
                       struct poise_json *json)
{
    const struct poise_trace_view *view = show->files[moment->file].view;
    struct poise_trace_place place;
    struct poise_trace_type type;
    uint64_t duration;
    char name[24];

    trace_type_name(show, moment, name);
    poise_json_object(json, NULL);
    poise_json_i64(json, "ns", moment->ns);
    json_error(json, "error_ns", moment->error_ns);
    poise_json_i64(json, "rank", show->files[moment->file].info.rank);
    poise_json_bytes(json, "ring", moment->name, strlen(moment->name));
    poise_json_bytes(json, "type", name, strlen(name));
    poise_json_u64(json, "collector", moment->event->collector);
    if (moment->event->collector >= POISE_TRACE_COLLECTOR &&
        poise_trace_place(view, moment->event->collector, &place)) {
        json_place(&place, json);
    }
    poise_json_u64(json, "sequence", moment->event->sequence);
    if (poise_trace_type(view, moment->event->collector, &type)) {
        if (trace_duration(show, moment, &type, &duration)) {
            poise_json_u64(json, "duration_ns", duration);
        }
        json_values(moment->event, &type, json);
    }
    if (moment->has_cause) {
        poise_json_u64(json, "latency_ns", moment->latency_ns);
        json_error(json, "latency_error_ns", moment->latency_error_ns);
    }
    poise_json_end_object(json);
}

int trace_json(struct trace_show *show, bool events, struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);
    struct poise_buf id = {0};
    const uint64_t *session = show->files[0].info.session;

    poise_buf_printf(&id, "%016llx%016llx", (unsigned long long)session[0],
                     (unsigned long long)session[1]);
    cli_json_begin(&json, "poise-trace-1");
    poise_json_string(&json, "session", poise_buf_str(&id));
    poise_buf_free(&id);
    poise_json_i64(&json, "ranks", show->files[0].info.size);
    poise_json_u64(&json, "missing",
                   poise_trace_session_missing(show->session));
    poise_json_u64(&json, "messages", show->messages);
    poise_json_u64(&json, "messages_back_in_time",
                   poise_trace_session_contradictions(show->session));
    poise_json_array(&json, "files");
    for (unsigned i = 0; i < show->file_count; i++) {
        json_file(show, i, &json);
    }
    poise_json_end_array(&json);
    json_spans(show, &json);
    if (events) {
        struct poise_trace_moment moment;

        poise_trace_session_rewind(show->session);
        poise_json_array(&json, "list");
        while (poise_trace_session_next(show->session, &moment) > 0) {
            json_event(show, &moment, &json);
        }
        poise_json_end_array(&json);
    }
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
    return out->error;
}
