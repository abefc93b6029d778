/* What other rooms of the wing know of a scope's clocks: times are worked out
 * several times a record. */
#ifndef POISE_MON_SCOPE_SCOPE_H
#define POISE_MON_SCOPE_SCOPE_H

#include <poise/scope.h>
#include <poise/trace_session.h>

enum { SCOPE_SHIFT = 60 };

/* Ticks of one file as times. */
struct scope_clock {
    const struct poise_trace_session *session; /* NULL: linear */
    unsigned file;                             /* of the session */
    uint64_t start_ticks, tick_hz;
    uint64_t scale; /* ns of a tick x 2^SCOPE_SHIFT; 0: too many for it */
    /* Fewer than so many from the beginning are simply scaled, to less than
     * 2^61 ns. */
    uint64_t near_ticks;
    uint32_t number; /* alike: the same clock */
};

/* The clock of the file that a batch is from. */
const struct scope_clock *scope_clock(const struct poise_scope_from *from);

/* Ticks far from the beginning, or of another host's clock. */
int64_t scope_far_ns(const struct scope_clock *clock, uint64_t ticks,
                     uint64_t *error_ns);

static inline int64_t scope_ns(const struct scope_clock *clock, uint64_t ticks,
                               uint64_t *error_ns)
{
    __extension__ typedef unsigned __int128 wide;
    uint64_t since = ticks - clock->start_ticks;
    if (__builtin_expect(since >= clock->near_ticks, 0)) {
        return scope_far_ns(clock, ticks, error_ns);
    }
    *error_ns = 0;
    return (int64_t)((wide)since * clock->scale >> SCOPE_SHIFT);
}

#endif
