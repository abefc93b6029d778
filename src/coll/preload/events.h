/*
 * Calls of the program in a session of events (events.c).
 */
#ifndef POISE_COLL_PRELOAD_EVENTS_H
#define POISE_COLL_PRELOAD_EVENTS_H

#include "communicator.h"

#include <poise/trace.h>

/* The ring that a call of the program's is recorded in (NULL: none), when it
 * began and ended, the bytes of one rank's part (0 if ranks have parts of their
 * own lengths), and what it returned. */
struct events_span {
    struct poise_trace_ring *ring;
    uint64_t enter, left, bytes;
    int code;
};

/* What traces know of a communicator (events.c). */
struct marks {
    struct poise_trace *trace; /* that knows the collectors; never followed */
    uint64_t calls;            /* while one was in force */
    uint64_t right;            /* of those, that all ranks know to be right */
    uint64_t asked, next; /* of the right ones: when clocks were last thought
                             of, and when to think of them again */
    uint64_t group;       /* 0: not known yet */
    uint32_t collectors[ENTRIES]; /* 0: none */
    struct poise_trace_sampler sampler;
    uint64_t skipped; /* calls, since one was recorded */
    uint64_t idle;    /* calls to come that leave nothing: counted already, as
                         right ones */
};

enum { EVENTS_NAME = MPI_MAX_OBJECT_NAME + 1 };

/* Whether this is rank 0 of MPI_COMM_WORLD and its POISE_TRACE names a file. */
bool events_wanted(void);
/* Begin the session that rank 0 wants, or end the job. Collective over
 * MPI_COMM_WORLD. */
void events_begin(void);
/* Collective. Nothing if none was begun. */
void events_end(void);

/* Record a call on a communicator, in order of its calls; a trace is in force.
 * `right`: no rank's library refused it, and none returned before it had begun,
 * so that ranks may tell each other here what they have to know alike. */
void events_call(enum entry entry, struct state *state, bool right,
                 const struct events_span *span);
/* Whether the next call on it is left out, and behind it: it was. A trace is in
 * force, the one that the sampler is of or a later one, which then begins with
 * what the one before left out. */
static inline bool events_skips(const struct marks *marks)
{
    return !poise_trace_sampled(&marks->sampler, marks->calls + 1);
}
void events_skip(struct marks *marks, bool alike);
/* The same of most of those, with no more to do than that; `alike` is said
 * behind the call. */
static inline bool events_idles(struct marks *marks)
{
    return marks->idle > 0 && marks->idle-- > 0;
}
static inline void events_idled(struct marks *marks, bool alike)
{
    marks->right -= !alike;
}
/* Count what was left out so far: it is freed, or all are about to be. NULL is
 * allowed. */
void events_flush(const struct state *state);
/* Nobody calls on it any more. */
void events_forget(struct state *state);

/* What TCP did meanwhile is recorded behind calls that took so many ticks,
 * which is never before sockets_begin (sockets.c). */
extern uint64_t sockets_slow __attribute__((visibility("hidden")));
void sockets_begin(void);
/* Behind such a call, which ended then. Any thread. */
void sockets_look(struct poise_trace_ring *ring, uint64_t ticks);

/* What names a communicator alike on all of its ranks; 0: not known yet. */
uint64_t events_group(const struct state *state);
/* Its name, for people; `out` has room for EVENTS_NAME bytes. */
const char *events_name(const struct state *state, char *out);

#endif
