/*
 * poise/trace_clock.h - clocks of several processes, and of several machines.
 */
#ifndef POISE_TRACE_CLOCK_H
#define POISE_TRACE_CLOCK_H

#include <poise/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Note what ticks are in CLOCK_MONOTONIC and CLOCK_REALTIME now. Done by the
 * library at the beginning and the end, and at most once a second (later once
 * in 1/64 of the time so far) when rings turn. Safe in signal handlers. */
void poise_trace_snapshot(struct poise_trace *trace);

/** A measurement: rank `reference`'s CLOCK_MONOTONIC was `offset_ns` more than
 * this process' when this one's was `at_ns`; wrong by at most `error_ns`. */
struct poise_trace_offset {
    uint64_t at_ns;
    int64_t offset_ns;
    uint64_t error_ns;
    int32_t reference;
    uint32_t rounds; /**< messages there and back that it is from */
};

/** Note a measurement; the newest 250 are kept. One thread at a time. */
void poise_trace_offset_add(struct poise_trace *trace,
                            const struct poise_trace_offset *offset);

/** What names the clock of this machine's kernel, in 16 bytes: alike in two
 * processes whose ticks and CLOCK_MONOTONIC are the same. POISE_TRACE_CLOCK in
 * the environment adds its text: for emulators, whose hosts share a kernel. */
POISE_API void poise_trace_clock_id(uint64_t out[2]);

/** Times of one message there and back: sent by the reference, received by
 * this process, sent back, received by the reference; ns of the sides' own
 * clocks. */
struct poise_trace_round {
    uint64_t sent, received, answered, returned;
};

/** The offset that `count` rounds bound: since no message arrives before it was
 * sent, it lies between the largest sent - received and the smallest returned -
 * answered; the middle is taken. -EINVAL: none; -ERANGE: not even one round
 * agrees with itself, a clock was set meanwhile. */
int poise_trace_offset_from(const struct poise_trace_round *rounds,
                            size_t count, struct poise_trace_offset *out);

#ifdef __cplusplus
}
#endif

#endif
