/* All figures of a monitored run, for programs. Times are in ns. */
#include "monitor.h"

#include <poise/trace_session.h>

#include <string.h>

/** Part of the output: a new member keeps it, another meaning changes it. */
#define SCHEMA "poise-trace-run-1"

static void put_statistic(struct poise_json *json, const char *key,
                          const struct poise_monitor_statistic *statistic)
{
    if (statistic->count == 0) {
        return;
    }
    poise_json_object(json, key);
    poise_json_u64(json, "count", statistic->count);
    poise_json_i64(json, "sum", statistic->sum);
    poise_json_double(json, "mean", poise_monitor_mean(statistic));
    poise_json_i64(json, "min", statistic->least);
    poise_json_i64(json, "max", statistic->most);
    poise_json_double(json, "deviation", poise_monitor_deviation(statistic));
    poise_json_i64(json, "median", poise_monitor_median(statistic));
    poise_json_end_object(json);
}

static void put_wrapper(struct poise_json *json,
                        const struct poise_monitor_wrapper *wrapper)
{
    poise_json_object(json, "wrapper");
    poise_json_i64(json, "parent", wrapper->parent);
    poise_json_u64(json, "calls", wrapper->calls);
    poise_json_u64(json, "last_here", wrapper->last_here);
    poise_json_u64(json, "last_above", wrapper->last_above);
    put_statistic(json, "arrival_wait", &wrapper->arrival_wait);
    put_statistic(json, "departure_wait", &wrapper->departure_wait);
    put_statistic(json, "down", &wrapper->down);
    put_statistic(json, "up", &wrapper->up);
    put_statistic(json, "total", &wrapper->total);
    put_statistic(json, "two_way", &wrapper->two_way);
    poise_json_end_object(json);
}

static void put_rank(struct poise_json *json, const struct monitor_run *run,
                     const struct poise_monitor_operation *operation, int i)
{
    struct poise_monitor_charge charge =
        poise_monitor_system_charge(run->system, operation, i);
    const struct poise_monitor_rank *rank = &operation->ranks[i];
    poise_json_object(json, NULL);
    poise_json_i64(json, "rank", i);
    poise_json_u64(json, "first", rank->first);
    poise_json_u64(json, "last", rank->last);
    poise_json_double(json, "mean_order",
                      (double)rank->order_sum / (double)operation->ordered);
    poise_json_i64(json, "late_ns", rank->late_sum_ns);
    poise_json_i64(json, "late_most_ns", rank->late_most_ns);
    poise_json_i64(json, "late_program_ns", rank->program_ns);
    poise_json_i64(json, "late_departure_ns", rank->departure_ns);
    poise_json_i64(json, "late_queue_ns", charge.late.queue_ns);
    poise_json_i64(json, "late_stopped_ns", charge.late.stopped_ns);
    poise_json_u64(json, "late_by_system", charge.calls);
    poise_json_u64(json, "blamed", rank->caused);
    put_statistic(json, "arrival_wait", &rank->arrival_wait);
    put_statistic(json, "departure_wait", &rank->departure_wait);
    if (operation->wrappers) {
        put_wrapper(json, &operation->wrappers[i]);
    }
    poise_json_end_object(json);
}

static void put_worst(struct poise_json *json,
                      const struct poise_monitor_worst *worst)
{
    const struct poise_monitor_verdict *verdict = &worst->verdict;
    poise_json_object(json, NULL);
    poise_json_u64(json, "call", worst->sequence);
    poise_json_i64(json, "start_ns", worst->start_ns);
    poise_json_i64(json, "total_ns", worst->total_ns);
    poise_json_i64(json, "arrival_ns", verdict->arrival_ns);
    poise_json_i64(json, "reduce_ns", verdict->reduce_ns);
    poise_json_i64(json, "broadcast_ns", verdict->broadcast_ns);
    poise_json_i64(json, "late_ns", verdict->late_ns);
    poise_json_string(json, "cause", monitor_causes[verdict->cause]);
    poise_json_i64(json, "rank", verdict->rank);
    poise_json_i64(json, "peer", verdict->peer);
    poise_json_bool(json, "certain", verdict->is_certain);
    poise_json_end_object(json);
}

static void put_operation(struct poise_json *json,
                          const struct monitor_run *run,
                          const struct poise_monitor_operation *operation)
{
    struct poise_buf id = {0};
    poise_json_object(json, NULL);
    poise_json_bytes(json, "operation", operation->name,
                     strlen(operation->name));
    poise_json_bytes(json, "group", operation->group_name,
                     strlen(operation->group_name));
    /* As text: half of them are no numbers of JSON's readers. */
    poise_buf_printf(&id, "%016llx", (unsigned long long)operation->group);
    poise_json_string(json, "group_id", poise_buf_str(&id));
    poise_buf_free(&id);
    poise_json_i64(json, "ranks", operation->size);
    poise_json_u64(json, "calls", operation->calls);
    poise_json_double(json, "coverage", monitor_coverage(run, operation));
    poise_json_u64(json, "bytes", operation->bytes);
    poise_json_i64(json, "inside_ns", operation->inside_ns);
    poise_json_u64(json, "failed", operation->failed);
    poise_json_u64(json, "uncertain", operation->uncertain);
    poise_json_object(json, "causes");
    for (int i = 0; i < POISE_MONITOR_CAUSES; i++) {
        poise_json_u64(json, monitor_causes[i], operation->causes[i]);
    }
    poise_json_end_object(json);
    put_statistic(json, "total", &operation->total);
    put_statistic(json, "arrival", &operation->arrival);
    put_statistic(json, "reduce", &operation->reduce);
    put_statistic(json, "broadcast", &operation->broadcast);
    struct poise_monitor_resent resent =
        poise_monitor_system_resent(run->system, operation);
    poise_json_object(json, "sent_again");
    poise_json_u64(json, "calls", resent.calls);
    poise_json_u64(json, "segments", resent.segments);
    poise_json_i64(json, "inside_ns", resent.inside_ns);
    poise_json_end_object(json);
    poise_json_array(json, "by_rank");
    for (int i = 0; i < operation->size; i++) {
        put_rank(json, run, operation, i);
    }
    poise_json_end_array(json);
    poise_json_array(json, "longest");
    for (unsigned i = 0; i < operation->worst_count; i++) {
        put_worst(json, &operation->worst[i]);
    }
    poise_json_end_array(json);
    poise_json_end_object(json);
}

int monitor_json(const struct monitor_run *run, struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);
    cli_json_begin(&json, SCHEMA);
    poise_json_i64(&json, "status", run->status);
    poise_json_i64(&json, "ranks", run->source.size);
    poise_json_i64(&json, "files", run->source.files);
    poise_json_i64(&json, "not_ended", run->source.running);
    poise_json_i64(&json, "span_ns", run->source.span_ns);
    poise_json_u64(&json, "records", run->source.records);
    poise_json_u64(&json, "lost", run->missing.lost);
    poise_json_u64(&json, "left_out", run->missing.left_out);
    poise_json_u64(&json, "calls_not_recorded", run->source.skipped);
    poise_json_u64(&json, "nameless", run->source.nameless);
    poise_json_u64(&json, "incomplete", run->missing.incomplete);
    poise_json_u64(&json, "unplaced", run->missing.unplaced);
    poise_json_u64(&json, "mismatched", run->missing.mismatched);
    poise_json_bool(&json, "one_clock", run->source.one_clock);
    if (run->source.error_ns != POISE_TRACE_UNKNOWN) {
        poise_json_u64(&json, "clock_error_ns", run->source.error_ns);
    }
    poise_json_array(&json, "operations");
    for (unsigned i = 0; i < run->count; i++) {
        put_operation(&json, run, run->operations[i]);
    }
    poise_json_end_array(&json);
    int code = monitor_network_json(run, &json);
    if (code < 0) {
        return code;
    }
    if (run->queries && run->queries->count > 0) {
        monitor_queries_json(run->queries, &json);
    }
    if (run->messages) {
        code = monitor_messages_json(run->messages, &json);
        if (code < 0) {
            return code;
        }
    }
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
    return out->error;
}
