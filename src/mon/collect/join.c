/*
 * Records made parts of calls. In a thread's ring a call's record follows that
 * of the hop which it made, and its times are around it; a hop that no call is
 * around is itself a call, of the tree. A call that made several collectives of
 * a tree has no one hop, and is shown without.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

__extension__ typedef __int128 wide;

/* A division of 128 bits takes longer than all else that is done to a time. */
uint64_t collect_scale(uint64_t tick_hz)
{
    wide scale = ((wide)1000000000 << COLLECT_SHIFT) / (wide)tick_hz;
    return scale <= INT64_MAX ? (uint64_t)scale : 0;
}

int64_t collect_ns(const struct collect_clock *clock, uint64_t ticks,
                   uint64_t *error_ns)
{
    int64_t ns = 0;
    if (clock->session) {
        poise_trace_session_time(clock->session, clock->file, ticks, &ns,
                                 error_ns);
        return ns;
    }
    *error_ns = 0;
    wide since = (wide)ticks - (wide)clock->start_ticks;
    since = clock->scale ? since * (wide)clock->scale >> COLLECT_SHIFT
                         : since * 1000000000 / (wide)clock->tick_hz;
    return since > INT64_MAX   ? INT64_MAX
           : since < INT64_MIN ? INT64_MIN
                               : (int64_t)since;
}

/* ---- what a record is of ------------------------------------------------ */

/* Trees number their calls themselves: they are groups of their own. */
static uint64_t tree_group(uint64_t group)
{
    return poise_hash_u64(group ^ UINT64_C(0x74726565));
}

static int size_of(const struct collect_places *places,
                   const struct poise_trace_place *place)
{
    return place->size > 0 && place->size <= INT32_MAX ? (int)place->size
                                                       : places->ranks;
}

/* What finds no room in the monitor is counted there with each record. */
static void announce(struct collect_places *places,
                     const struct poise_trace_place *from,
                     struct collect_place *to)
{
    char name[sizeof from->group_name + 16];
    bool is_tree = from->type == POISE_TRACE_HOP;
    int64_t operation =
        poise_monitor_name(places->monitor, is_tree ? "(tree)" : from->name);
    to->group = is_tree ? tree_group(from->group) : from->group;
    snprintf(name, sizeof name, "%.*s", (int)sizeof from->group_name - 1,
             from->group_name[0] ? from->group_name : "-");
    to->operation = operation < 0 ? UINT32_MAX : (uint32_t)operation;
    poise_monitor_group(places->monitor, to->group, name,
                        size_of(places, from));
}

static struct collect_place place_of(struct collect_places *places,
                                     uint32_t collector)
{
    struct collect_place *entry = &places->entries[collector % COLLECT_PLACES];
    struct poise_trace_place place;
    if (entry->collector == collector) {
        return *entry;
    }
    *entry = (struct collect_place){.collector = collector};
    if (collector < POISE_TRACE_COLLECTOR) {
        /* Of a bare type: nobody knows whose call it is. */
        *places->nameless +=
            collector == POISE_TRACE_CALL || collector == POISE_TRACE_HOP;
        entry->collector = 0;
    } else if (!poise_trace_place(places->view, collector, &place)) {
        ++*places->nameless;
        entry->collector = 0;
    } else if (place.type == POISE_TRACE_CALL ||
               place.type == POISE_TRACE_HOP) {
        entry->rank = place.rank;
        entry->parent = place.peer;
        entry->type = place.type;
        announce(places, &place, entry);
    }
    return *entry;
}

/* ---- joining ------------------------------------------------------------ */

static void add_call(struct collect_places *places,
                     const struct collect_clock *clock,
                     const struct collect_place *place,
                     const struct poise_trace_event *call,
                     const struct poise_trace_event *hop)
{
    uint64_t error;
    struct poise_monitor_span span = {
        .group = place->group,
        .sequence = call->sequence,
        .rank = place->rank,
        .operation = place->operation,
        .clock = clock->number,
    };
    bool is_tree = place->type == POISE_TRACE_HOP;
    span.enter_ns = collect_ns(clock, call->values[0], &span.error_ns);
    span.left_ns = collect_ns(clock, call->values[is_tree ? 3 : 1], &error);
    if (!is_tree) {
        span.bytes = call->values[2];
        span.code = (int32_t)call->values[3];
    }
    if (hop) {
        span.has_hop = true;
        span.parent = place_of(places, hop->collector).parent;
        span.arrived_ns = collect_ns(clock, hop->values[1], &error);
        span.released_ns = collect_ns(clock, hop->values[2], &error);
    }
    poise_monitor_add(places->monitor, &span);
}

/* The last hop is nobody's but the tree's. */
static void end_hop(struct collect_join *join, struct collect_places *places,
                    const struct collect_clock *clock)
{
    if (join->has_hop) {
        struct collect_place place = place_of(places, join->hop.collector);
        if (place.type == POISE_TRACE_HOP) {
            add_call(places, clock, &place, &join->hop, &join->hop);
        }
        join->ended = join->hop.values[0];
    }
    join->has_hop = false;
}

/* Whether the call made this hop, and no other. */
static bool is_around(const struct poise_trace_event *call,
                      const struct collect_join *join)
{
    return join->has_hop && call->values[0] <= join->hop.values[0] &&
           join->hop.values[3] <= call->values[1] &&
           (join->ended == 0 || join->ended < call->values[0]);
}

void collect_join_add(struct collect_join *join, struct collect_places *places,
                      const struct collect_clock *clock,
                      const struct poise_trace_event *event)
{
    struct collect_place place = place_of(places, event->collector);
    if (place.type == POISE_TRACE_HOP) {
        end_hop(join, places, clock);
        join->has_hop = true;
        join->hop = *event;
    } else if (place.type == POISE_TRACE_CALL) {
        bool joined = is_around(event, join);
        if (!joined) {
            end_hop(join, places, clock);
        }
        add_call(places, clock, &place, event, joined ? &join->hop : NULL);
        join->has_hop = false;
    }
}

void collect_join_end(struct collect_join *join, struct collect_places *places,
                      const struct collect_clock *clock)
{
    end_hop(join, places, clock);
}
