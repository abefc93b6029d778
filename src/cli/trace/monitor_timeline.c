/*
 * The newest calls as a timeline: a process for each communicator, a thread for
 * each of its ranks, a slice for each rank's part of a call.
 */
#include "monitor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Parts that are kept: some 4 MB. */
enum { PARTS = 1 << 16 };

struct part {
    const struct poise_monitor_operation *operation;
    uint64_t sequence, bytes;
    int64_t enter_ns, left_ns;
    int32_t rank;
    bool is_blamed;
    enum poise_monitor_cause cause;
};

struct monitor_timeline {
    struct poise_monitor *monitor;
    struct monitor_details *details;
    uint64_t count; /* parts that ever came */
    struct part parts[PARTS];
};

static void keep(const struct poise_monitor_operation *operation,
                 const struct poise_monitor_span *spans,
                 const struct poise_monitor_verdict *verdict, void *arg)
{
    struct monitor_timeline *timeline = arg;
    monitor_details_add(timeline->details, operation, spans, verdict);
    for (int i = 0; i < operation->size; i++) {
        timeline->parts[timeline->count++ % PARTS] = (struct part){
            .operation = operation,
            .sequence = spans[i].sequence,
            .bytes = spans[i].bytes,
            .enter_ns = spans[i].enter_ns,
            .left_ns = spans[i].left_ns,
            .rank = i,
            .is_blamed = verdict->rank == i,
            .cause = verdict->cause,
        };
    }
}

int monitor_timeline_create(struct poise_monitor *monitor,
                            struct monitor_timeline **out)
{
    struct monitor_timeline *timeline = poise_alloc(1, sizeof *timeline);
    if (!timeline) {
        return -ENOMEM;
    }
    if (monitor_details_create(&timeline->details) < 0) {
        free(timeline);
        return -ENOMEM;
    }
    timeline->monitor = monitor;
    int code = poise_monitor_on_call(monitor, keep, timeline);
    if (code < 0) {
        monitor_timeline_free(timeline);
        return code;
    }
    *out = timeline;
    return 0;
}

void monitor_timeline_free(struct monitor_timeline *timeline)
{
    if (timeline) {
        poise_monitor_on_call_end(timeline->monitor, timeline);
        monitor_details_free(timeline->details);
    }
    free(timeline);
}

const struct monitor_details *
monitor_timeline_details(const struct monitor_timeline *timeline)
{
    return timeline->details;
}

/* ---- Chrome's trace events ---------------------------------------------- */

/* The communicator's number: that of its first operation. */
static unsigned process_of(const struct monitor_timeline *timeline,
                           const struct poise_monitor_operation *operation)
{
    const struct poise_monitor_operation *other;
    for (unsigned i = 0;
         (other = poise_monitor_operation(timeline->monitor, i)) != NULL; i++) {
        if (other->group == operation->group) {
            return i;
        }
    }
    return 0;
}

static void put_name(struct poise_json *json, const char *what,
                     unsigned process, int thread, const char *name)
{
    poise_json_object(json, NULL);
    poise_json_string(json, "ph", "M");
    poise_json_string(json, "name", what);
    poise_json_u64(json, "pid", process);
    poise_json_i64(json, "tid", thread < 0 ? 0 : thread);
    poise_json_object(json, "args");
    poise_json_bytes(json, "name", name, strlen(name));
    poise_json_end_object(json);
    poise_json_end_object(json);
}

static void put_names(const struct monitor_timeline *timeline,
                      struct poise_json *json)
{
    const struct poise_monitor_operation *operation;
    for (unsigned i = 0;
         (operation = poise_monitor_operation(timeline->monitor, i)) != NULL;
         i++) {
        if (process_of(timeline, operation) != i) {
            continue;
        }
        put_name(json, "process_name", i, -1, operation->group_name);
        for (int rank = 0; rank < operation->size; rank++) {
            char name[32];
            snprintf(name, sizeof name, "rank %d", rank);
            put_name(json, "thread_name", i, rank, name);
        }
    }
}

static void put_part(const struct monitor_timeline *timeline,
                     const struct part *part, struct poise_json *json)
{
    poise_json_object(json, NULL);
    poise_json_string(json, "ph", "X");
    poise_json_bytes(json, "name", part->operation->name,
                     strlen(part->operation->name));
    poise_json_string(json, "cat", "collective");
    poise_json_u64(json, "pid", process_of(timeline, part->operation));
    poise_json_i64(json, "tid", part->rank);
    /* In us: the format's unit. */
    poise_json_double(json, "ts", (double)part->enter_ns / 1e3);
    poise_json_double(json, "dur",
                      (double)(part->left_ns - part->enter_ns) / 1e3);
    poise_json_object(json, "args");
    poise_json_u64(json, "call", part->sequence);
    poise_json_u64(json, "bytes", part->bytes);
    if (part->is_blamed) {
        poise_json_string(json, "cause", monitor_causes[part->cause]);
    }
    poise_json_end_object(json);
    poise_json_end_object(json);
}

int monitor_timeline_json(const struct monitor_timeline *timeline,
                          struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, true);
    uint64_t first = timeline->count > PARTS ? timeline->count - PARTS : 0;
    poise_json_object(&json, NULL);
    poise_json_string(&json, "displayTimeUnit", "ns");
    poise_json_object(&json, "otherData");
    poise_json_u64(&json, "older_left_out", first);
    poise_json_end_object(&json);
    poise_json_array(&json, "traceEvents");
    put_names(timeline, &json);
    for (uint64_t i = first; i < timeline->count; i++) {
        put_part(timeline, &timeline->parts[i % PARTS], &json);
    }
    poise_json_end_array(&json);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
    return out->error;
}
