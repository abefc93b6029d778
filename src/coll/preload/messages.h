/*
 * Records of the program's point-to-point messages (messages.c).
 */
#ifndef POISE_COLL_PRELOAD_MESSAGES_H
#define POISE_COLL_PRELOAD_MESSAGES_H

#include "communicator.h"

/* Record them if POISE_TRACE_MESSAGES asks for it, while a trace is in force.
 * MPI runs now. */
void messages_begin(void);
/* Say what was not recorded. */
void messages_end(void);

#endif
