/* What the files that read sessions share. */
#ifndef POISE_TRACE_SESSION_ROOM_H
#define POISE_TRACE_SESSION_ROOM_H

#include <poise/trace_clock.h>
#include <poise/trace_session.h>

#include "view.h"

/* ---- clocks (timeline.c) ------------------------------------------------ */

/* Both clocks of a host at one moment. */
struct timeline_point {
    uint64_t ticks, ns;
    int64_t wall_ns;
};

/* One clock: all that files with the same one know of it. */
struct timeline {
    uint64_t clock[2];
    uint64_t tick_hz;
    bool has_tsc;
    enum poise_trace_way way;
    struct timeline_point *points; /* by ticks, ns never falling */
    size_t count;
    struct poise_trace_offset *offsets; /* by time */
    size_t offset_count;
    int64_t wall_offset_ns; /* if way is POISE_TRACE_WALL */
};

struct timelines {
    struct timeline *all;
    size_t count;
};

/* Add what a trace knows; `out` is which timeline. */
int timelines_add(struct timelines *lines, const struct poise_trace_view *view,
                  size_t *out);
/* After the last one. */
void timelines_finish(struct timelines *lines);
void timelines_free(struct timelines *lines);

/* A tick in rank 0's CLOCK_MONOTONIC. */
int64_t timeline_ns(const struct timeline *line, uint64_t ticks,
                    uint64_t *error_ns);
int64_t timeline_offset(const struct timeline *line, uint64_t ticks);
/* From the first measurement to the last; 0 with error 0: not measured. */
double timeline_drift_ppm(const struct timeline *line, double *error_ppm);
double timeline_rate_ppm(const struct timeline *line);

/* ---- messages (causes.c) ------------------------------------------------ */

/* A message, by both ends. */
struct cause {
    uint64_t sequence;
    int32_t from, to;
    bool used, sent;
    unsigned waiting; /* rings that wait for it */
    int64_t ns, clock_ns;
    uint64_t error_ns;
    unsigned file;
};

/* A table with a place for each message that was sent. */
struct causes {
    struct cause *slots;
    size_t mask;
};

int causes_make(struct causes *causes, size_t count);
void causes_free(struct causes *causes);
/* The message; NULL if it is not there and `add` is false. */
struct cause *causes_find(const struct causes *causes, uint64_t sequence,
                          int32_t from, int32_t to, bool add);
/* None was sent yet. */
void causes_reset(struct causes *causes);

#endif
