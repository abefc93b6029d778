/*
 * Signals that end a process of virtual ranks: which rank it was, and what the
 * process ends with, are told before it ends by them as it would have.
 */
#ifndef POISE_VRANK_RUN_SIGNALS_H
#define POISE_VRANK_RUN_SIGNALS_H

#include <poise/vrank.h>

/* Until signals_release. Those that are ignored, or caught by somebody else,
 * are left alone. The options stay where they are. On a stack of its own
 * (sigaltstack), if the thread has one. */
void signals_catch(const struct poise_vrank_options *options);
void signals_release(void);

#endif
