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
/* Nobody calls on it any more. */
void events_forget(struct state *state);

/* What names a communicator alike on all of its ranks; 0: not known yet. */
uint64_t events_group(const struct state *state);
/* Its name, for people; `out` has room for EVENTS_NAME bytes. */
const char *events_name(const struct state *state, char *out);

#endif
