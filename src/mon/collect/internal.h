/* What the files that make calls of records share. */
#ifndef POISE_MON_COLLECT_INTERNAL_H
#define POISE_MON_COLLECT_INTERNAL_H

#include "mon/analyse/analyse.h"
#include "mon/scope/scope.h"
#include <poise/monitor.h>

/* What a collector of a file is. */
struct collect_place {
    uint32_t collector; /* 0: the entry is free */
    uint32_t type;      /* POISE_TRACE_NONE: of no interest */
    uint32_t operation;
    int32_t rank, parent;
    struct mon_calls *calls; /* of its group; NULL: there is no room for it */
};

/* Enough for all collectors that a file can have at a time. */
enum { COLLECT_PLACES = 2048 };

/* What the records of a file are of, as far as they were met. */
struct collect_places {
    struct poise_monitor *monitor;
    const struct poise_trace_view *view;
    int ranks;          /* of the session: of groups that do not say */
    uint64_t *nameless; /* counted there */
    struct collect_place entries[COLLECT_PLACES];
};

/* A ring's last hop, until it is known whether a call is around it. */
struct collect_join {
    bool has_hop;
    int32_t parent; /* of its hop */
    struct poise_trace_event hop;
    uint64_t ended; /* when the hop before it began, that no call had; 0 */
};

/* Take the next records of a ring: what they make of calls goes to the monitor.
 */
void collect_join_add(struct collect_join *join, struct collect_places *places,
                      const struct scope_clock *clock,
                      const struct poise_trace_event *events, size_t count);
/* No record of this ring is waited for. */
void collect_join_end(struct collect_join *join, struct collect_places *places,
                      const struct scope_clock *clock);

#endif
