/*
 * What a call leaves in a trace: that it began, and how many bytes it is about
 * (by which one sees where a program hangs), and at its end one record with the
 * four times of this rank's hop.
 *
 * Source: thesis 7.2, 4 (t1 to t4 around a wrapper).
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

void coll_record_forget(struct poise_coll *coll)
{
    if (coll->trace && coll->trace == __atomic_load_n(&poise_trace_in_force,
                                                      __ATOMIC_RELAXED)) {
        poise_trace_collector_end(coll->trace, coll->collector);
    }
    coll->trace = NULL;
}

/* Nobody but this rank records here: its handle is used by one thread. */
static uint32_t hop_of(struct poise_coll *coll)
{
    struct poise_trace *trace =
        __atomic_load_n(&poise_trace_in_force, __ATOMIC_RELAXED);
    int parent = coll->plan.tree->parent[coll->rank];
    if (coll->trace != trace || coll->collector_peer != parent) {
        coll_record_forget(coll);
        struct poise_trace_place place = {
            .type = POISE_TRACE_HOP,
            .rank = coll->rank,
            .peer = parent,
            .size = (uint32_t)coll->size,
            .group = coll->group,
        };
        memcpy(place.group_name, coll->group_name, sizeof place.group_name);
        snprintf(place.name, sizeof place.name, "rank %d of %d", coll->rank,
                 coll->size);
        coll->collector = poise_trace_collector(trace, &place);
        coll->trace = trace;
        coll->collector_peer = parent;
    }
    return coll->collector;
}

void poise_coll_mute(struct poise_coll *coll, bool is_mute)
{
    coll->is_mute = is_mute;
}

/* While recording is paused nothing is. */
void coll_record_begin(struct coll_call *call)
{
    call->ring = poise_trace_ring();
    call->enter = poise_trace_begin(call->ring);
}

void coll_record_await(const struct coll_call *call)
{
    poise_trace_put(call->ring, POISE_TRACE_COLL_ENTER, call->number,
                    call->enter, call->bytes, (uint64_t)call->kind, 0);
}

void coll_record_end(struct poise_coll *coll, const struct coll_call *call)
{
    struct poise_trace_ring *ring = poise_trace_ring();
    uint64_t now = call->left ? call->left : poise_clock_ticks();
    /* What did not come to pass took no time. */
    uint64_t released = call->released ? call->released : now;
    uint64_t arrived = call->arrived ? call->arrived : released;
    if (call->last > 0) {
        poise_trace_put(ring, POISE_TRACE_COLL_LAST, call->number, arrived,
                        (uint64_t)call->last - 1, 0, 0);
    }
    poise_trace_put(ring, hop_of(coll), call->number, call->enter, arrived,
                    released, now);
    poise_trace_end(ring, now);
    if (call->code != 0) {
        poise_trace_put(ring, POISE_TRACE_COLL_LEAVE, call->number, now,
                        (uint64_t)-call->code, 0, 0);
    }
}
