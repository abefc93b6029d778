/*
 * vrank/coll_args.h - what the collective functions of MPI check before a call
 * begins.
 */
#ifndef POISE_VRANK_COLL_ARGS_H
#define POISE_VRANK_COLL_ARGS_H

#include "coll.h"

/** Begin to fill in a call. Otherwise the error has been handled, and its code
 * is returned. */
int vcoll_args_enter(struct vcoll_call *call, enum vcoll_kind kind,
                     const char *name, MPI_Comm comm);
/** MPI_SUCCESS, or what the communicator's handler makes of an error. */
int vcoll_args_fail(const struct vcoll_call *call, int error);
/** MPI_SUCCESS or a class of error: whether a root may be ... */
int vcoll_args_root(const struct vcoll_call *call, int root);
/** ... and whether counts and types are sound. */
int vcoll_args_side(const struct vcoll_call *call,
                    const struct vcoll_side *side);

#endif /* POISE_VRANK_COLL_ARGS_H */
