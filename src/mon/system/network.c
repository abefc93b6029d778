/*
 * What TCP did behind calls that took long: records of the ranks (type "tcp"),
 * both ends of a connection put together by its number, and calls charged with
 * the segments that were sent again before they ended.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECTIONS = 4096 };
/* Shorter calls are not charged: ranks look behind those of a millisecond. */
#define SLOW_NS 900000

/* ---- records ------------------------------------------------------------ */

/* The connection of that number, made if need be; NULL: there is no room. */
static struct poise_monitor_connection *
connection_of(struct poise_monitor_system *system, uint64_t id)
{
    for (size_t i = 0; i < system->connection_count; i++) {
        if (system->connection_ids[i] == id) {
            return &system->connections[i];
        }
    }
    if (system->connection_count == CONNECTIONS) {
        return NULL;
    }
    struct poise_monitor_connection *made =
        &system->connections[system->connection_count];
    *made = (struct poise_monitor_connection){.ranks = {-1, -1}};
    system->connection_ids[system->connection_count++] = id;
    return made;
}

static void note(struct poise_monitor_connection *connection, int rank,
                 const struct poise_trace_event *event)
{
    int end = connection->ranks[0] < 0 || connection->ranks[0] == rank ? 0 : 1;
    if (end == 1 && connection->ranks[1] >= 0 && connection->ranks[1] != rank) {
        return; /* two connections of one number */
    }
    int64_t rtt = (int64_t)(event->values[2] & INT64_MAX);
    int64_t least = (int64_t)(event->values[3] & INT64_MAX);
    connection->ranks[end] = rank;
    connection->again[end] += event->values[1];
    connection->rtt_ns = rtt;
    if (connection->least_rtt_ns == 0 || least < connection->least_rtt_ns) {
        connection->least_rtt_ns = least;
    }
}

static void note_resend(struct poise_monitor_system *system, int rank,
                        int64_t ns, uint64_t segments)
{
    if ((size_t)rank >= system->resend_count) {
        size_t count = (size_t)rank + 1;
        struct system_resends *more =
            poise_realloc(system->resends, count, sizeof *more);
        if (!more) {
            return;
        }
        memset(more + system->resend_count, 0,
               (count - system->resend_count) * sizeof *more);
        system->resends = more;
        system->resend_count = count;
    }
    struct system_resends *of = &system->resends[rank];
    size_t at = (size_t)(of->count++ % SYSTEM_RESENDS);
    of->newest[at].ns = ns;
    of->newest[at].segments = segments;
}

static bool is_tcp(const struct poise_scope_from *from, uint32_t collector)
{
    struct poise_trace_type type;
    return poise_trace_type(from->view, collector, &type) &&
           strcmp(type.name, "tcp") == 0;
}

static size_t stage(const struct poise_scope_from *from,
                    struct poise_trace_event *tuples, size_t count, void *arg)
{
    struct poise_monitor_system *system = arg;
    for (size_t i = 0; i < count; i++) {
        uint32_t number = tuples[i].collector - POISE_TRACE_USER;
        if (__builtin_expect(number < POISE_TRACE_COLLECTOR - POISE_TRACE_USER,
                             0) &&
            from->rank >= 0 && is_tcp(from, tuples[i].collector)) {
            struct poise_monitor_connection *connection =
                connection_of(system, tuples[i].sequence);
            uint64_t error, segments = tuples[i].values[1];
            if (connection) {
                note(connection, from->rank, &tuples[i]);
            }
            if (segments > 0) {
                note_resend(system, from->rank,
                            poise_scope_ns(from, tuples[i].values[0], &error),
                            segments);
            }
        }
    }
    return count;
}

int poise_monitor_system_scope(struct poise_monitor_system *system,
                               struct poise_scope *scope)
{
    system->connections = poise_alloc(CONNECTIONS, sizeof *system->connections);
    system->connection_ids =
        poise_alloc(CONNECTIONS, sizeof *system->connection_ids);
    if (!system->connections || !system->connection_ids) {
        return -ENOMEM;
    }
    return poise_scope_stage(scope, stage, system);
}

void system_network_end(struct poise_monitor_system *system)
{
    free(system->connections);
    free(system->connection_ids);
    free(system->resends);
}

/* ---- calls -------------------------------------------------------------- */

/* Segments that were found to be sent again when a rank left, each once. */
static uint64_t take_resends(struct system_resends *from,
                             const struct poise_monitor_span *span)
{
    uint64_t segments = 0;
    for (int i = 0; i < SYSTEM_RESENDS; i++) {
        if (from->newest[i].segments > 0 &&
            from->newest[i].ns >= span->enter_ns &&
            from->newest[i].ns <= span->left_ns) {
            segments += from->newest[i].segments;
            from->newest[i].segments = 0;
        }
    }
    return segments;
}

void system_network_charge(struct poise_monitor_system *system,
                           const struct poise_monitor_operation *operation,
                           const struct poise_monitor_span *spans,
                           const struct poise_monitor_verdict *verdict)
{
    int64_t total =
        verdict->arrival_ns + verdict->reduce_ns + verdict->broadcast_ns;
    uint64_t segments = 0;
    if (total < SLOW_NS) {
        return;
    }
    for (size_t i = 0; i < system->resend_count && i < (size_t)operation->size;
         i++) {
        segments += take_resends(&system->resends[i], &spans[i]);
    }
    struct system_operation *to =
        segments > 0 ? system_operation_of(system, operation) : NULL;
    if (to) {
        to->resent.calls++;
        to->resent.segments += segments;
        to->resent.inside_ns += verdict->inside_ns;
    }
}

/* ---- asking ------------------------------------------------------------- */

static int by_segments(const void *left, const void *right)
{
    const struct poise_monitor_connection *a = left, *b = right;
    uint64_t x = a->again[0] + a->again[1], y = b->again[0] + b->again[1];
    return x != y                       ? (x < y) - (x > y)
           : a->ranks[0] != b->ranks[0] ? a->ranks[0] - b->ranks[0]
                                        : a->ranks[1] - b->ranks[1];
}

size_t
poise_monitor_system_connections(const struct poise_monitor_system *system,
                                 struct poise_monitor_connection *out,
                                 size_t max)
{
    size_t count = system->connection_count;
    struct poise_monitor_connection *all =
        count > 0 ? poise_alloc(count, sizeof *all) : NULL;
    if (!all) {
        return 0;
    }
    memcpy(all, system->connections, count * sizeof *all);
    qsort(all, count, sizeof *all, by_segments);
    memcpy(out, all, (count < max ? count : max) * sizeof *all);
    free(all);
    return count;
}
