/*
 * Packets as events of a trace: for each line a collector of those that it
 * carries (when a packet came to it, when it went, when it is due at the other
 * end) and one of those that it drops. A line's packets are numbered as they
 * come to it; a copy has the number of what it is a copy of.
 *
 * Links know nothing but moments of the monotonic clock, also such that are
 * still to come; a trace counts ticks. Both are looked at for each record.
 */
#include "wan/link/link.h"

#include <poise/trace.h>

#include <stdio.h>

static uint32_t add_collector(const struct wan_lines *lines,
                              const struct wan_line *line, uint32_t type)
{
    const struct poise_wan_topology *t = lines->topology;
    unsigned number = (unsigned)(line - lines->lines);
    struct poise_trace_place place = {.type = type, .peer = -1};
    const char *kind = line->port ? "port" : line->lan ? "lan" : "link";
    snprintf(place.group_name, sizeof place.group_name, "%s", kind);
    if (line->port) {
        struct poise_buf name = {0};
        number -= lines->sites * lines->sites;
        poise_wan_host_name(t, number / 2, &name);
        snprintf(place.name, sizeof place.name, "%s %s", poise_buf_str(&name),
                 number % 2 ? "in" : "out");
        poise_buf_free(&name);
    } else {
        snprintf(place.name, sizeof place.name, "%.27s -> %.27s",
                 t->sites[number / lines->sites].name,
                 t->sites[number % lines->sites].name);
    }
    return poise_trace_collector(poise_trace_in_force, &place);
}

int wan_events_begin(struct wan_lines *lines)
{
    static const struct poise_trace_type packet = {
        .name = "packet",
        .sequence = "packet",
        .values = {{POISE_TRACE_TIME, "enqueued"},
                   {POISE_TRACE_TIME, "dequeued"},
                   {POISE_TRACE_TIME, "due"},
                   {POISE_TRACE_BYTES, "bytes"}}};
    static const struct poise_trace_type drop = {
        .name = "drop",
        .sequence = "packet",
        .values = {{POISE_TRACE_TIME, "enqueued"},
                   {POISE_TRACE_TEXT, "why"},
                   {POISE_TRACE_BYTES, "bytes"}}};
    int64_t types[] = {poise_trace_define(poise_trace_in_force, &packet),
                       poise_trace_define(poise_trace_in_force, &drop)};
    if (types[0] < 0 || types[1] < 0) {
        return (int)(types[0] < 0 ? types[0] : types[1]);
    }
    for (unsigned i = 0; i < lines->count; i++) {
        struct wan_line *line = &lines->lines[i];
        if (line->link->set || line->lan) {
            line->packets = add_collector(lines, line, (uint32_t)types[0]);
            line->drops = add_collector(lines, line, (uint32_t)types[1]);
        }
    }
    return 0;
}

/* A moment of the monotonic clock, which may be to come. */
static uint64_t ticks_at(uint64_t ns)
{
    uint64_t ticks = poise_clock_ticks(), now = poise_clock_ns();
    return ns >= now ? ticks + poise_clock_ns_to_ticks(ns - now)
                     : ticks - poise_clock_ns_to_ticks(now - ns);
}

void wan_event_packet(const struct wan_line *line,
                      const struct wan_packet *packet)
{
    /* Of one look at the clocks, so that differences are exact. */
    uint64_t due = ticks_at(packet->due_ns);
    uint64_t gone = line->free_ns - packet->wire_ns;
    poise_trace_put(
        poise_trace_ring(), line->packets, packet->number,
        due - poise_clock_ns_to_ticks(packet->due_ns - packet->queued_ns),
        due - poise_clock_ns_to_ticks(packet->due_ns - gone), due,
        packet->bytes);
}

void wan_event_drop(const struct wan_line *line,
                    const struct wan_packet *packet, const char *why)
{
    poise_trace_put(poise_trace_ring(), line->drops, packet->number,
                    ticks_at(packet->queued_ns), poise_trace_text(why),
                    packet->bytes, 0);
}
