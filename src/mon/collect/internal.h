/* What the files that read rings share. */
#ifndef POISE_MON_COLLECT_INTERNAL_H
#define POISE_MON_COLLECT_INTERNAL_H

#include <poise/monitor.h>
#include <poise/trace_session.h>

enum { COLLECT_SHIFT = 60 };

/* Ticks of one file as times. */
struct collect_clock {
    const struct poise_trace_session *session; /* NULL: linear */
    unsigned file;                             /* of the session */
    uint64_t start_ticks, tick_hz;
    uint64_t scale;  /* ns of a tick x 2^COLLECT_SHIFT; 0: too many for it */
    uint32_t number; /* alike: the same clock */
};

/* What a collector of a file is. */
struct collect_place {
    uint32_t collector; /* 0: the entry is free */
    uint32_t type;      /* POISE_TRACE_NONE: of no interest */
    int32_t rank, parent;
    uint64_t group;
    uint32_t operation;
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
    struct poise_trace_event hop;
    uint64_t ended; /* when the hop before it began, that no call had; 0 */
};

/* Take the next record of a ring: what it makes of calls goes to the monitor.
 */
void collect_join_add(struct collect_join *join, struct collect_places *places,
                      const struct collect_clock *clock,
                      const struct poise_trace_event *event);
/* No record of this ring is waited for. */
void collect_join_end(struct collect_join *join, struct collect_places *places,
                      const struct collect_clock *clock);

uint64_t collect_scale(uint64_t tick_hz);
int64_t collect_ns(const struct collect_clock *clock, uint64_t ticks,
                   uint64_t *error_ns);

#endif
