/*
 * A tree file that somebody else writes while the program runs (watch.c).
 */
#ifndef POISE_COLL_PRELOAD_WATCH_H
#define POISE_COLL_PRELOAD_WATCH_H

#include <poise/coll.h>

#include <stdbool.h>

/* Whether POISE_TREE_WATCH names a file. */
bool watch_wanted(void);
/* MPI runs now: this is rank 0 of MPI_COMM_WORLD, which looks. */
void watch_begin(int size);
extern bool watch_is_on __attribute__((visibility("hidden")));
/* Propose the file's tree if it is another one than when it was last looked at,
 * but look no more often than some times a second. */
void watch_look(struct poise_coll *coll);

#endif
