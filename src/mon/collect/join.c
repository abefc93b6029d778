/*
 * Records made parts of calls. In a thread's ring a call's record follows that
 * of the hop which it made, and its times are around it; a hop that no call is
 * around is itself a call, of the tree. A call that made several collectives of
 * a tree has no one hop, and is shown without.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

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
    snprintf(name, sizeof name, "%.*s", (int)sizeof from->group_name - 1,
             from->group_name[0] ? from->group_name : "-");
    to->operation = operation < 0 ? UINT32_MAX : (uint32_t)operation;
    int64_t group = poise_monitor_group(
        places->monitor, is_tree ? tree_group(from->group) : from->group, name,
        size_of(places, from));
    to->calls =
        group < 0 ? NULL : mon_calls_of(places->monitor, (uint32_t)group);
}

/* Look up a collector that was not met yet, or not lately. */
static void learn(struct collect_places *places, struct collect_place *entry,
                  uint32_t collector)
{
    struct poise_trace_place place;
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
}

static const struct collect_place *place_of(struct collect_places *places,
                                            uint32_t collector)
{
    struct collect_place *entry = &places->entries[collector % COLLECT_PLACES];
    if (__builtin_expect(entry->collector != collector, 0)) {
        learn(places, entry, collector);
    }
    return entry;
}

/* ---- joining ------------------------------------------------------------ */

/* For each record. */
#define FAST static inline __attribute__((always_inline))

/* Times of one clock, in order and not absurd, are scaled; the others go the
 * long way. `hop` NULL: nothing is known of the inside. */
FAST void set_times(const struct scope_clock *clock,
                    struct poise_monitor_span *span, uint64_t enter,
                    uint64_t left, const struct poise_trace_event *hop)
{
    uint64_t error, since = enter - clock->start_ticks;
    uint64_t stay = left - enter, most = clock->near_ticks / 2;
    span->enter_ns = scope_ns(clock, enter, &span->error_ns);
    span->left_ns = scope_ns(clock, left, &error);
    if (hop) {
        span->arrived_ns = scope_ns(clock, hop->values[1], &error);
        span->released_ns = scope_ns(clock, hop->values[2], &error);
    }
    if (__builtin_expect(since >= most || stay >= most, 0) || hop) {
        mon_part_cut(span);
    }
}

/* A call of the program's, or one of the tree's that is its own `hop`. */
FAST void add_call(struct collect_places *places,
                   const struct scope_clock *clock,
                   const struct collect_place *place,
                   const struct poise_trace_event *call, int32_t parent,
                   const struct poise_trace_event *hop)
{
    bool is_tree = call == hop;
    struct poise_monitor_span *span =
        mon_part(places->monitor, place->calls, call->sequence, place->rank);
    if (!span) {
        return;
    }
    span->bytes = is_tree ? 0 : call->values[2];
    span->code = is_tree ? 0 : (int32_t)call->values[3];
    span->clock = clock->number;
    span->operation = place->operation;
    span->has_hop = hop != NULL;
    span->parent = parent;
    set_times(clock, span, call->values[0], call->values[is_tree ? 3 : 1], hop);
    mon_part_done(places->monitor, place->calls, span);
}

/* The last hop is nobody's but the tree's. */
static void end_hop(struct collect_join *join, struct collect_places *places,
                    const struct scope_clock *clock)
{
    if (join->has_hop) {
        const struct collect_place *place =
            place_of(places, join->hop.collector);
        if (place->type == POISE_TRACE_HOP) {
            add_call(places, clock, place, &join->hop, join->parent,
                     &join->hop);
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

static void add_hop(struct collect_join *join, struct collect_places *places,
                    const struct scope_clock *clock,
                    const struct poise_trace_event *hop, int32_t parent)
{
    end_hop(join, places, clock);
    join->has_hop = true;
    join->parent = parent;
    join->hop = *hop;
}

void collect_join_add(struct collect_join *join, struct collect_places *places,
                      const struct scope_clock *clock,
                      const struct poise_trace_event *events, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct poise_trace_event *event = &events[i];
        const struct collect_place *place = place_of(places, event->collector);
        if (place->type == POISE_TRACE_HOP) {
            add_hop(join, places, clock, event, place->parent);
        } else if (place->type == POISE_TRACE_CALL) {
            if (is_around(event, join)) {
                add_call(places, clock, place, event, join->parent, &join->hop);
                join->has_hop = false;
                continue;
            }
            if (join->has_hop) {
                end_hop(join, places, clock);
                place = place_of(places, event->collector);
            }
            add_call(places, clock, place, event, 0, NULL);
        }
    }
}

void collect_join_end(struct collect_join *join, struct collect_places *places,
                      const struct scope_clock *clock)
{
    end_hop(join, places, clock);
}
