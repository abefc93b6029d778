/*
 * What the collective functions of MPI check before a call begins.
 */
#ifndef POISE_VRANK_COLL_ARGS_H
#define POISE_VRANK_COLL_ARGS_H

#include "internal.h"

/** The whole of a function of MPI: have `check`, if any, make sure that what
 * has been filled in is sound, and then run the call; or start it, where there
 * is a request. `check` returns MPI_SUCCESS or a class of error, and clears the
 * side that does not count. */
int vcoll_args_go(struct vcoll_call *call, MPI_Comm comm,
                  int (*check)(struct vcoll_call *call), MPI_Request *request);
/** MPI_SUCCESS or a class of error: whether a root may be ... */
int vcoll_args_root(const struct vcoll_call *call, int root);
/** ... and whether counts and types are sound. */
int vcoll_args_side(const struct vcoll_call *call,
                    const struct vcoll_side *side);

/** What a rank gives or takes: as much for each peer, ... */
static inline struct vcoll_side vcoll_each(const void *base, int count,
                                           MPI_Datatype type)
{
    return (struct vcoll_side){
        .base = (char *)(uintptr_t)base, .count = count, .type = type};
}
/** ... by lengths, ... */
static inline struct vcoll_side vcoll_lengths(const void *base,
                                              const int *counts,
                                              const int *displs,
                                              MPI_Datatype type)
{
    return (struct vcoll_side){.base = (char *)(uintptr_t)base,
                               .type = type,
                               .counts = counts,
                               .displs = displs};
}
/** ... or of a type for each. */
static inline struct vcoll_side vcoll_typed(const void *base, const int *counts,
                                            const int *displs,
                                            const MPI_Datatype *types)
{
    return (struct vcoll_side){.base = (char *)(uintptr_t)base,
                               .counts = counts,
                               .displs = displs,
                               .types = types};
}

#endif /* POISE_VRANK_COLL_ARGS_H */
