/* What those who read records know of the analysis: parts of calls are filled
 * in where they are put together, since copying them takes longer. */
#ifndef POISE_MON_ANALYSE_ANALYSE_H
#define POISE_MON_ANALYSE_ANALYSE_H

#include <poise/monitor.h>

/* A call whose parts are not all there. */
struct mon_pending {
    uint64_t sequence;
    int arrived;  /* parts that are there */
    bool is_used; /* sequence is that of a call, complete or not */
};

/* The calls of a group whose parts are waited for: that of number s has place s
 * modulo their number. Where it is while the monitor lives. */
struct mon_calls {
    uint64_t mask; /* calls_max - 1 */
    int size;      /* ranks; 0: there is no room for them */
    uint32_t group;
    struct mon_pending *pending;      /* [calls_max] */
    struct poise_monitor_span *spans; /* [calls_max][size]; rank -1: none */
};

/* NULL: there is no such group. */
struct mon_calls *mon_calls_of(const struct poise_monitor *monitor,
                               uint32_t group);

/* mon_part where it is not the next of a call. */
struct poise_monitor_span *mon_part_slow(struct poise_monitor *monitor,
                                         struct mon_calls *calls,
                                         uint64_t sequence, int rank);
/* All parts of the call at this place are there. */
void mon_complete(struct poise_monitor *monitor, struct mon_calls *calls,
                  size_t at);
/* Times that a file made up are cut to what can be subtracted. */
void mon_part_cut(struct poise_monitor_span *part);

/* The place of a rank's part of a call, with group, sequence and rank set and
 * all else to be written; NULL: it has none, and that is counted. Nothing else
 * may be called before mon_part_done. `calls` NULL: it has none. */
static inline struct poise_monitor_span *mon_part(struct poise_monitor *monitor,
                                                  struct mon_calls *calls,
                                                  uint64_t sequence, int rank)
{
    if (__builtin_expect(calls && (unsigned)rank < (unsigned)calls->size, 1)) {
        size_t at = (size_t)(sequence & calls->mask);
        struct mon_pending *pending = &calls->pending[at];
        struct poise_monitor_span *part =
            &calls->spans[at * (size_t)calls->size + (size_t)rank];
        if (pending->arrived == calls->size && pending->sequence != sequence) {
            pending->sequence = sequence;
            pending->arrived = 0;
        }
        if (__builtin_expect(pending->is_used && part->sequence != sequence &&
                                 pending->sequence == sequence,
                             1)) {
            part->sequence = sequence;
            part->group = calls->group;
            part->rank = rank;
            return part;
        }
    }
    return mon_part_slow(monitor, calls, sequence, rank);
}

/* The part is there: of times that may be subtracted, and left after it was
 * entered. */
static inline void mon_part_done(struct poise_monitor *monitor,
                                 struct mon_calls *calls,
                                 const struct poise_monitor_span *part)
{
    size_t at = (size_t)(part->sequence & calls->mask);
    if (++calls->pending[at].arrived == calls->size) {
        mon_complete(monitor, calls, at);
    }
}

#endif
