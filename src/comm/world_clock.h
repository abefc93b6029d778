/*
 * poise/world_clock.h - the clocks of a world's hosts, compared by messages.
 */
#ifndef POISE_WORLD_CLOCK_H
#define POISE_WORLD_CLOCK_H

#include <poise/comm.h>
#include <poise/trace_clock.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Compare clocks again, where rank 0 finds that it is time: 5 s after the last
 * comparison, later after 1/16 of the time that the session has taken so far.
 * For who makes calls that all ranks count alike, as often as that lasts: so
 * `calls` were made since the last time, and in `next` is after how many more
 * to come again (at most 512; UINT64_MAX: never, all clocks are one). Costs a
 * message from rank 0 to all others, and where it is time ten messages there
 * and back for each other clock. Collective over a world that began a session;
 * nothing in others.
 */
POISE_API int poise_world_trace_compare(struct poise_world *world,
                                        uint64_t calls, uint64_t *next);
/**
 * What rank 0's CLOCK_MONOTONIC is more than this host's, from ten messages
 * there and back for each clock that is not rank 0's; no rounds: they came to
 * nothing. Collective.
 */
int poise_world_compare_clocks(struct poise_world *world,
                               struct poise_trace_offset *out);

#ifdef __cplusplus
}
#endif

#endif
